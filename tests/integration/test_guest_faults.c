/* SPDX-License-Identifier: MIT */
/*
 * Devices that fail and devices that make one wait, as only a guest of scripts/vm-test has them (docs/vm.md): an NVMe
 * device with a bad sector, one that is throttled and dies, device-mapper targets that fail or delay, a null_blk disk with
 * bad blocks.
 *
 * Shown here: an error of the device is the result of just the op that hit it, with the kernel's own code, and its
 * neighbours in the same batch have theirs; a direct read that straddles good and bad fails whole, a buffered one is
 * short, and so is a direct one at the end of a device or file; the device's answer, data or error, wins over cancel,
 * deadline, abort, a task that returns, a descriptor that is closed and a shutdown, and none of them ends before it, by
 * descriptor, polled, and as NVMe command; a queue that is full (-EAGAIN inside the kernel) and a controller that is reset
 * are not seen, or seen as documented. That no buffer is touched after it was given back is shown as in
 * test_copyjob.c: what the runtime gave back is filled, and looked at when whatever were still in flight had to be over.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define BLOCK 4096
#define SECTOR 512
#define SEED 77
#define GIVEN_BACK 0xd5

/* ---- devices --------------------------------------------------------------------------------------------------- */

struct device {
	int fd;                 /* O_DIRECT; -1: not there */
	int64_t bad;            /* where the first bad byte is */
};

static struct device nvme, dm_error, nullb, flakey, slow, throttled;
static int error_buffered = -1; /* dm_error through the page cache */
static int dm_control = -1;

static int open_device(const char *name, int flags)
{
	const char *path = getenv(name);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC | flags) : -1;

	if (path && fd < 0)
		printf("%s: %s: %s\n", name, path, strerror(errno));
	return fd;
}

static struct device find_device(const char *name, const char *bad_name)
{
	struct device device = { .fd = open_device(name, O_DIRECT) };

	if (bad_name)
		device.bad = (int64_t)itest_env(bad_name, 0) * SECTOR;
	if (device.fd < 0)
		printf("skipped: the tests that need %s\n", name);
	return device;
}

/* What tests read: bytes of the pattern, at the same place. */
static bool fill_device(const struct device *device, int64_t from, size_t bytes)
{
	char *buf = aligned_alloc(BLOCK, bytes);
	bool filled;

	if (!buf)
		return false;
	fixture_pattern(buf, bytes, SEED, (uint64_t)from);
	filled = pwrite(device->fd, buf, bytes, from) == (ssize_t)bytes;
	free(buf);
	return filled;
}

static void check_pattern(const char *buf, size_t bytes, int64_t from)
{
	char *want = malloc(bytes);

	ck_assert_ptr_nonnull(want);
	fixture_pattern(want, bytes, SEED, (uint64_t)from);
	ck_assert_msg(memcmp(buf, want, bytes) == 0, "wrong data from byte %lld on", (long long)from);
	free(want);
}

/* ---- a sector that is bad -------------------------------------------------------------------------------------- */

#define AROUND 8                /* blocks before the bad one, and as many from it on */
#define STRIDE (2 * BLOCK)      /* with gaps: the block layer merges neighbours, and a merged request fails whole */

struct bad_sector {
	const struct device *device;
	int want;               /* the code of it */
	struct mrt_op op;
	struct mrt_op many[2 * AROUND];
	struct mrt_op *ops[2 * AROUND];
	struct iovec iov[2];
	char *buf;
	bool end;               /* all is bad from there on; otherwise a few sectors at its begin */
	int round;
};

/* Blocks around it, each an op of its own, all at once. */
static void check_around(const struct bad_sector *f, bool data)
{
	int i;

	for (i = 0; i < 2 * AROUND; i++) {
		bool bad = i == AROUND || (i > AROUND && f->end);

		ck_assert_msg(f->many[i].res == (bad ? f->want : BLOCK), "block %d of %d: %lld", i, 2 * AROUND,
			      (long long)f->many[i].res);
		ck_assert_int_eq(f->many[i].why, 0);
		if (data && !bad)
			check_pattern(f->buf + BLOCK * i, BLOCK, f->device->bad + (i - AROUND) * STRIDE);
	}
}

static enum mrt_poll bad_sector_poll(struct mrt_task *self, void *frame)
{
	struct bad_sector *f = frame;
	int fd = f->device->fd, i;
	int64_t bad = f->device->bad;

	MRT_BEGIN(self);
	f->buf = aligned_alloc(BLOCK, 2 * AROUND * BLOCK);
	ck_assert_ptr_nonnull(f->buf);
	for (f->round = 0; f->round < 3; f->round++) {
		for (i = 0; i < 2 * AROUND; i++) {
			int64_t at = bad + (i - AROUND) * STRIDE;

			fixture_pattern(f->buf + BLOCK * i, BLOCK, SEED, (uint64_t)at);
			f->ops[i] = mrt_write(&f->many[i], fd, f->buf + BLOCK * i, BLOCK, at);
		}
		MRT_AWAIT_ALL(self, f->ops, 2 * AROUND);
		check_around(f, false);

		memset(f->buf, 0, 2 * AROUND * BLOCK);
		for (i = 0; i < 2 * AROUND; i++)
			f->ops[i] = mrt_read(&f->many[i], fd, f->buf + BLOCK * i, BLOCK, bad + (i - AROUND) * STRIDE);
		MRT_AWAIT_ALL(self, f->ops, 2 * AROUND);
		check_around(f, true);

		/* the sector alone, and what straddles: whole or nothing, in every form */
		MRT_AWAIT(self, mrt_read(&f->op, fd, f->buf, SECTOR, bad));
		ck_assert_int_eq(f->op.res, f->want);
		MRT_AWAIT(self, mrt_read(&f->op, fd, f->buf, SECTOR, bad - SECTOR));
		ck_assert_int_eq(f->op.res, SECTOR);
		MRT_AWAIT(self, mrt_read(&f->op, fd, f->buf, 2 * BLOCK, bad - BLOCK));
		ck_assert_int_eq(f->op.res, f->want);
		MRT_AWAIT(self, mrt_read_exact(&f->op, fd, f->buf, 4 * BLOCK, bad - 2 * BLOCK));
		ck_assert_int_eq(f->op.res, f->want);
		ck_assert_int_eq(f->op.why, 0);
		MRT_AWAIT(self, mrt_write_all(&f->op, fd, f->buf, 2 * BLOCK, bad - BLOCK));
		ck_assert_int_eq(f->op.res, f->want);
		f->iov[0] = (struct iovec){ f->buf, BLOCK };
		f->iov[1] = (struct iovec){ f->buf + 8 * BLOCK, BLOCK };
		MRT_AWAIT(self, mrt_readv(&f->op, fd, f->iov, 2, bad - BLOCK));
		ck_assert_int_eq(f->op.res, f->want);
	}
	free(f->buf);
	MRT_RETURN(self, 0);
}

static void run_bad_sector(int kind, const struct device *device, int want, bool end)
{
	struct mrt_runtime *rt = itest_runtime(kind);
	struct bad_sector f = { .device = device, .want = want, .end = end };

	ck_assert_int_eq(itest_run(rt, bad_sector_poll, &f, sizeof(f)), 0);
	ck_assert_uint_eq(itest_stats(rt).inflight, 0);
	mrt_runtime_destroy(rt);
}

/* A media error of NVMe is not -EIO: the block layer says -ENODATA. */
START_TEST(a_media_error_of_nvme_is_enodata)
{
	run_bad_sector(_i, &nvme, -ENODATA, false);
}
END_TEST

START_TEST(what_a_mapped_device_refuses_is_eio)
{
	run_bad_sector(_i, &dm_error, -EIO, true);
}
END_TEST

START_TEST(a_bad_block_is_eio)
{
	run_bad_sector(_i, &nullb, -EIO, false);
}
END_TEST

/* Through the page cache a read gives what it has, and the next one the error; a write fails when it is flushed. */
ITEST_TASK(buffered_reads_are_short_before_the_error, { struct mrt_op op; char *buf; })
{
	MRT_BEGIN(self);
	f->buf = malloc(4 * BLOCK);
	ck_assert_ptr_nonnull(f->buf);
	/* pages that could not be written would still be there to read */
	(void)ioctl(error_buffered, BLKFLSBUF);
	MRT_AWAIT(self, mrt_read(&f->op, error_buffered, f->buf, 4 * BLOCK, dm_error.bad - 2 * BLOCK));
	ck_assert_int_eq(f->op.res, 2 * BLOCK);
	MRT_AWAIT(self, mrt_read(&f->op, error_buffered, f->buf, BLOCK, dm_error.bad));
	ck_assert_int_eq(f->op.res, -EIO);
	MRT_AWAIT(self, mrt_read_exact(&f->op, error_buffered, f->buf, 4 * BLOCK, dm_error.bad - 2 * BLOCK));
	ck_assert_int_eq(f->op.res, 2 * BLOCK);
	ck_assert_int_eq(f->op.why, -EIO);
	MRT_AWAIT(self, mrt_write(&f->op, error_buffered, f->buf, BLOCK, dm_error.bad));
	if (f->op.res == BLOCK)
		MRT_AWAIT(self, mrt_fdatasync(&f->op, error_buffered));
	ck_assert_int_eq(f->op.res, -EIO);
	free(f->buf);
	MRT_RETURN(self, 0);
}

/* ---- the end of a device, and of a file ------------------------------------------------------------------------- */

#define TAIL 100                /* a file ends within a sector */

struct at_the_end {
	struct mrt_op op;
	struct iovec iov[2];
	char *buf;              /* of the arena, or not */
	int fd;
	int64_t end;
	bool device;            /* no byte can be written behind its end */
};

static enum mrt_poll at_the_end_poll(struct mrt_task *self, void *frame)
{
	struct at_the_end *f = frame;
	int64_t last = (f->end - 1) / BLOCK * BLOCK;    /* where the last block begins */

	MRT_BEGIN(self);
	memset(f->buf, GIVEN_BACK, 4 * BLOCK);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->buf, 4 * BLOCK, last));
	ck_assert_int_eq(f->op.res, f->end - last);
	check_pattern(f->buf, (size_t)(f->end - last), last);
	if (f->device) /* a file system may clear what there is no file for */
		ck_assert_int_eq((unsigned char)f->buf[2 * BLOCK], GIVEN_BACK);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->buf, BLOCK, last + BLOCK));
	ck_assert_int_eq(f->op.res, 0);
	/* what goes on behind a short one sees the end, not an error */
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->buf, 4 * BLOCK, last - BLOCK));
	ck_assert_int_eq(f->op.res, f->end - last + BLOCK);
	ck_assert_int_eq(f->op.why, 0);
	check_pattern(f->buf, (size_t)(f->end - last) + BLOCK, last - BLOCK);
	f->iov[0] = (struct iovec){ f->buf + 2 * BLOCK, BLOCK };
	f->iov[1] = (struct iovec){ f->buf, 2 * BLOCK };
	MRT_AWAIT(self, mrt_readv(&f->op, f->fd, f->iov, 2, last - BLOCK));
	ck_assert_int_eq(f->op.res, f->end - last + BLOCK);
	check_pattern(f->buf + 2 * BLOCK, BLOCK, last - BLOCK);
	check_pattern(f->buf, (size_t)(f->end - last), last);
	if (f->device) {
		fixture_pattern(f->buf, BLOCK, SEED, (uint64_t)last);
		MRT_AWAIT(self, mrt_write(&f->op, f->fd, f->buf, 2 * BLOCK, last));
		ck_assert_int_eq(f->op.res, BLOCK);
		MRT_AWAIT(self, mrt_write(&f->op, f->fd, f->buf, BLOCK, f->end));
		ck_assert_int_eq(f->op.res, -ENOSPC);
		MRT_AWAIT(self, mrt_write_all(&f->op, f->fd, f->buf, 2 * BLOCK, last));
		ck_assert_int_eq(f->op.res, BLOCK);
		ck_assert_int_eq(f->op.why, -ENOSPC);
	}
	MRT_RETURN(self, 0);
}

static void run_at_the_end(int kind, int fd, int64_t end, bool device, unsigned flags)
{
	struct mrt_runtime *rt = itest_runtime(kind);
	struct at_the_end f = { .fd = dup(fd), .end = end, .device = device };
	struct device whole = { .fd = fd };
	void *arena;
	int turn;

	ck_assert_int_ge(f.fd, 0);
	if (device)
		ck_assert(fill_device(&whole, end - 4 * BLOCK, 4 * BLOCK));
	ck_assert_int_eq(mrt_alloc(rt, 4 * BLOCK, 0, &arena), 0);
	f.buf = aligned_alloc(BLOCK, 4 * BLOCK);
	ck_assert_ptr_nonnull(f.buf);
	/* by descriptor from any memory, by handle from the arena */
	for (turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(itest_run(rt, at_the_end_poll, &f, sizeof(f)), 0);
		if (turn == 0) {
			free(f.buf);
			f.buf = arena;
			f.fd = mrt_file_register(rt, f.fd, flags);
			ck_assert_int_ge(f.fd, 0);
		}
	}
	mrt_runtime_destroy(rt);
}

START_TEST(direct_io_is_short_at_the_end_of_a_device)
{
	const struct device *devices[] = { &nvme, &dm_error, &nullb };
	size_t i;

	for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		if (devices[i]->fd >= 0)
			run_at_the_end(_i, devices[i]->fd, lseek(devices[i]->fd, 0, SEEK_END), true,
				       devices[i] == &dm_error ? 0 : MRT_FILE_POLLED);
	}
}
END_TEST

START_TEST(direct_io_is_short_at_the_end_of_a_file)
{
	const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
	struct device whole = { .fd = fd };

	ck_assert_msg(fd >= 0, "%s: %s", dir, strerror(errno));
	ck_assert(fill_device(&whole, 0, 4 * BLOCK));
	ck_assert_int_eq(ftruncate(fd, 3 * BLOCK + TAIL), 0);
	run_at_the_end(_i, fd, 3 * BLOCK + TAIL, false, MRT_FILE_POLLED);
	close(fd);
}
END_TEST

/* ---- a device that is well and ill by turns --------------------------------------------------------------------- */

#define FLAKEY_BLOCKS 16
#define FLAKEY_ENOUGH 10        /* writes that must have failed, and as many that must have done well */

/* Each writer has a block of its own, and at every time knows what must stand there. */
ITEST_CHILD(flakey_writer, {
	int block; atomic_int *good; atomic_int *bad; struct mrt_op op; struct mrt_op pause; char *buf; uint64_t version;
})
{
	int64_t at = (int64_t)f->block * BLOCK;
	uint64_t seed = SEED + 1000 * (uint64_t)f->block;
	bool written;

	MRT_BEGIN(self);
	f->buf = aligned_alloc(BLOCK, 2 * BLOCK);
	ck_assert_ptr_nonnull(f->buf);
	while (atomic_load(f->good) < FLAKEY_ENOUGH || atomic_load(f->bad) < FLAKEY_ENOUGH) {
		fixture_pattern(f->buf, BLOCK, seed + f->version + 1, 0);
		MRT_AWAIT(self, mrt_write_all(&f->op, flakey.fd, f->buf, BLOCK, at));
		written = f->op.res == BLOCK;
		ck_assert_msg(written || f->op.res == -EIO, "write: %lld", (long long)f->op.res);
		f->version += written;
		atomic_fetch_add(written ? f->good : f->bad, 1);
		/* reads always do well: what was said to be written is there, what failed has changed nothing */
		MRT_AWAIT(self, mrt_read_exact(&f->op, flakey.fd, f->buf, BLOCK, at));
		ck_assert_int_eq(f->op.res, BLOCK);
		if (f->version > 0) {
			fixture_pattern(f->buf + BLOCK, BLOCK, seed + f->version, 0);
			ck_assert_msg(memcmp(f->buf, f->buf + BLOCK, BLOCK) == 0, "block %d is not version %llu", f->block,
				      (unsigned long long)f->version);
		}
		MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(20)));
	}
	free(f->buf);
	MRT_RETURN(self, 0);
}

START_TEST(every_write_to_a_flakey_device_is_done_or_refused)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_task *tasks[FLAKEY_BLOCKS];
	atomic_int good = 0, bad = 0;
	struct flakey_writer f = { .good = &good, .bad = &bad };

	for (f.block = 0; f.block < FLAKEY_BLOCKS; f.block++)
		tasks[f.block] = itest_spawn(rt, flakey_writer_poll, &f, sizeof(f));
	for (f.block = 0; f.block < FLAKEY_BLOCKS; f.block++)
		ck_assert_int_eq(itest_join(tasks[f.block]), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- a device that takes its time -------------------------------------------------------------------------------- */

#define READS 8
#define HOLD_FIRST 16           /* reads of the test's own that stand before them: see hold_device() */
#define LEVELS 4                /* each next try holds the device twice as long */
#define HOLD_MAX (HOLD_FIRST << (LEVELS - 1))

/* What a task does once its reads are with the device. */
enum how {
	HOW_WAIT,               /* nothing: they end by themselves */
	HOW_CANCEL,             /* each is cancelled, twice */
	HOW_DEADLINE,           /* each has a deadline that passes before */
	HOW_UNREGISTER,         /* they are on a handle, which is closed: that cancels, and waits */
	HOW_RETURN,             /* the task returns at once, with all in flight */
	HOW_CLOSE,              /* the descriptor is closed under them */
	HOW_ABORT,              /* the task is aborted from outside */
	HOW_SHUTDOWN,           /* the runtime is */
	HOW_NR
};

/*
 * Which reads. The device-mapper target that delays takes no non-blocking ones, so that they go through the kernel's worker
 * threads: a read that no thread has taken yet can still be cancelled. Hence with_device(): from when the device counts
 * them all, nothing but its answer may end them. The throttled device has all at once, serves them one after the other, and
 * one of them it cannot read; reads of the test's own stand before them, so that it answers none meanwhile.
 */
enum way {
	WAY_DELAY,              /* of the delayed device, by descriptor */
	WAY_THROTTLED,          /* of the throttled one, by descriptor */
	WAY_POLLED,             /* by a handle that is polled */
	WAY_COMMAND,            /* by a handle of its character node, as NVMe commands */
	WAY_NR
};

static unsigned delay_ms;               /* of the delayed device, when the tests begin */
static unsigned reads_a_second;         /* of the throttled one */

struct slow_reads {
	enum how how;
	enum way way;
	atomic_bool *started;
	struct mrt_op op[READS], pause, close;
	struct mrt_op *ops[READS];
	struct mrt_timer timer[READS];
	char *buf;              /* [READS * BLOCK], the test's */
	uint64_t start;         /* before the first of them */
	uint64_t least_ns;      /* from then on no less passes until all have their answer */
	int fd;                 /* a descriptor, or a handle */
	atomic_bool *strict;    /* all were seen with the device before something happened to them */
};

/* What device-mapper is asked, and answers, about the delayed device. */
union dm_io {
	struct dm_ioctl head;
	char bytes[1024];
};

static char *ask_dm(union dm_io *io, unsigned long request, unsigned flags)
{
	struct stat st;

	ck_assert_int_eq(fstat(slow.fd, &st), 0);
	io->head.version[0] = DM_VERSION_MAJOR;
	io->head.version[1] = io->head.version[2] = 0;
	io->head.data_size = sizeof(*io);
	io->head.data_start = sizeof(io->head);
	io->head.dev = st.st_rdev;
	io->head.flags = flags;
	ck_assert_msg(ioctl(dm_control, request, io) == 0, "dm-delay: %s", strerror(errno));
	io->bytes[sizeof(*io) - 1] = '\0';
	return io->bytes + io->head.data_start + sizeof(struct dm_target_spec);
}

/* The reads that dm-delay holds back: the first number of its target's status. Its block statistics do not count them. */
static int held_back(void)
{
	union dm_io io = { .bytes = "" };
	const char *status = ask_dm(&io, DM_TABLE_STATUS, DM_NOFLUSH_FLAG);
	int nr = -1;

	ck_assert_msg(sscanf(status, "%d", &nr) == 1, "what is this of dm-delay: %s", status);
	return nr;
}

/* Have the delayed device delay reads for so long: its table as it is, but for the third word. */
static void set_delay(unsigned ms)
{
	const size_t at = sizeof(struct dm_ioctl), text_at = at + sizeof(struct dm_target_spec);
	char table[256], device[64], rest[128];
	union dm_io io = { .bytes = "" };
	struct dm_target_spec spec;
	unsigned long long from;
	unsigned is;

	snprintf(table, sizeof(table), "%s", ask_dm(&io, DM_TABLE_STATUS, DM_STATUS_TABLE_FLAG));
	memcpy(&spec, io.bytes + io.head.data_start, sizeof(spec));
	ck_assert_msg(sscanf(table, "%63s %llu %u %127[^\n]", device, &from, &is, rest) == 4, "table: %s", table);
	if (is == ms)
		return;
	memset(&io, 0, sizeof(io));
	spec.next = 0;
	memcpy(io.bytes + at, &spec, sizeof(spec));
	snprintf(io.bytes + text_at, sizeof(io) - text_at, "%s %llu %u %s", device, from, ms, rest);
	io.head.target_count = 1;
	(void)ask_dm(&io, DM_TABLE_LOAD, 0);
	memset(&io, 0, sizeof(io));
	(void)ask_dm(&io, DM_DEV_SUSPEND, 0); /* without DM_SUSPEND_FLAG: resume, with the new table */
}

/* The reads that it has held back long enough, and which the disk below works on. */
static int below_device(void)
{
	char path[64], text[64] = "";
	struct stat st;
	int file, nr = -1;

	ck_assert_int_eq(fstat(slow.fd, &st), 0);
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/inflight", major(st.st_rdev), minor(st.st_rdev));
	file = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(file, 0);
	ck_assert_int_gt((int)read(file, text, sizeof(text) - 1), 0);
	close(file);
	ck_assert_int_eq(sscanf(text, "%d", &nr), 1);
	return nr;
}

/* Requests that the throttled device has, commands too: a line each, in a file for each of its queues. */
static int with_throttled(void)
{
	const char *name = strrchr(getenv("MRT_TEST_SLOW_NVME"), '/') + 1;
	char path[128], text[8192];
	unsigned queue;
	int nr = 0;

	for (queue = 0;; queue++) {
		ssize_t bytes, i;
		int file;

		snprintf(path, sizeof(path), "/sys/kernel/debug/block/%s/hctx%u/busy", name, queue);
		file = open(path, O_RDONLY | O_CLOEXEC);
		if (file < 0)
			break;
		while ((bytes = read(file, text, sizeof(text))) > 0)
			for (i = 0; i < bytes; i++)
				nr += text[i] == '\n';
		close(file);
	}
	ck_assert_uint_gt(queue, 0);
	return nr;
}

/* Where the i-th read is: with gaps, as above, but for the target that takes no batch. */
static int64_t read_at(enum way way, int i)
{
	return i * (way == WAY_DELAY ? BLOCK : STRIDE);
}

static int with_device(enum way way)
{
	return way == WAY_DELAY ? held_back() : with_throttled();
}

/*
 * The throttled device serves what it has in order. So reads of the test's own, by the kernel's older interface, hold it: as
 * long as they take, it answers nothing that came after them.
 */
static struct {
	aio_context_t context;
	int nr;                 /* submitted ... */
	int done;               /* ... and seen to be done; the holder of the task's */
	struct iocb iocb[HOLD_MAX];
} hold;

/* How many of its own reads has the device not answered yet, or not been seen to? */
static int still_held(void)
{
	struct timespec at_once = { 0 };
	struct io_event event;

	while (hold.done < hold.nr && syscall(SYS_io_getevents, hold.context, 1, 1, &event, &at_once) == 1) {
		ck_assert_int_eq((int)event.res, BLOCK);
		hold.done++;
	}
	return hold.nr - hold.done;
}

static void hold_device(int nr)
{
	struct iocb *one[1];
	int i, left;

	hold.context = 0;
	hold.nr = nr;
	hold.done = 0;
	ck_assert_int_eq((int)syscall(SYS_io_setup, HOLD_MAX, &hold.context), 0);
	for (i = 0; i < nr; i++) {
		hold.iocb[i] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (uint32_t)throttled.fd, .aio_nbytes = BLOCK,
			.aio_buf = (uintptr_t)aligned_alloc(BLOCK, BLOCK),
		};
		ck_assert_uint_ne(hold.iocb[i].aio_buf, 0);
		one[0] = &hold.iocb[i];
		ck_assert_int_eq((int)syscall(SYS_io_submit, hold.context, 1, one), 1);
	}
	/*
	 * What another queue gets next may reach the emulated device before these, since it looks at its queues in no order;
	 * not when it has answered a few more, each in a turn of its own.
	 */
	left = still_held();
	ITEST_WAIT(still_held() <= left - 3 || still_held() == 0, 60000);
}

static void end_hold(void)
{
	int i;

	ITEST_WAIT(still_held() == 0, 60000);
	ck_assert_int_eq((int)syscall(SYS_io_destroy, hold.context), 0);
	for (i = 0; i < hold.nr; i++)
		free((void *)(uintptr_t)hold.iocb[i].aio_buf);
	hold.nr = hold.done = 0;
}

static int unanswered(const struct slow_reads *f)
{
	int nr = 0, i;

	for (i = 0; i < READS; i++)
		nr += !mrt_op_is_done(&f->op[i]);
	return nr;
}

/*
 * Has the device all of them? What stands before them is counted first: what it answers meanwhile makes this say no, never a
 * wrong yes.
 */
static bool all_with_device(const struct slow_reads *f)
{
	int own = f->way == WAY_DELAY ? 0 : still_held();

	return unanswered(f) == READS && with_device(f->way) == own + READS;
}

static void start_reads(struct slow_reads *f)
{
	int i;

	for (i = 0; i < READS; i++)
		f->ops[i] = mrt_read(&f->op[i], f->fd, f->buf + i * BLOCK, BLOCK, read_at(f->way, i));
	mrt_flush();
}

/* The answer wins, and none is given before it is there. */
static void check_answer(const struct slow_reads *f, int i)
{
	const char *block = f->buf + i * BLOCK;
	int64_t gone = f->how == HOW_DEADLINE ? -ETIMEDOUT : -ECANCELED;
	bool strict = atomic_load(f->strict), bad = f->way != WAY_DELAY && throttled.bad == read_at(f->way, i);

	if (f->op[i].res == (bad ? -ENODATA : BLOCK)) {
		if (f->way == WAY_DELAY || strict)
			ck_assert_uint_ge(mrt_now() - f->start, f->least_ns - MRT_MS(20));
		ck_assert_int_eq(f->op[i].why, 0);
		if (!bad)
			check_pattern(block, BLOCK, read_at(f->way, i));
		return;
	}
	ck_assert_msg(!strict && f->how != HOW_WAIT && f->how != HOW_CLOSE && f->op[i].res == gone, "read %d, %s: %lld", i,
		      strict ? "with the device" : "on its way", (long long)f->op[i].res);
	ck_assert_int_eq((unsigned char)block[0], GIVEN_BACK);
}

static enum mrt_poll slow_reads_poll(struct mrt_task *self, void *frame)
{
	struct slow_reads *f = frame;
	int i;

	MRT_BEGIN(self);
	start_reads(f);
	/* one that is answered was answered too early: the device has to be held longer */
	while (!all_with_device(f) && unanswered(f) == READS)
		MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(2)));
	atomic_store(f->strict, unanswered(f) == READS);
	atomic_store(f->started, true);
	switch (f->how) {
	case HOW_CANCEL:
		for (i = 0; i < 2 * READS; i++)
			mrt_cancel(&f->op[i % READS]);
		break;
	case HOW_DEADLINE:
		for (i = 0; i < READS; i++)
			mrt_deadline(f->ops[i], &f->timer[i], MRT_MS(i % 4 * 10));
		break;
	case HOW_CLOSE:
		MRT_AWAIT(self, mrt_close(&f->close, f->fd));
		ck_assert_int_eq(f->close.res, 0);
		break;
	case HOW_UNREGISTER:
		MRT_AWAIT(self, mrt_close(&f->close, f->fd));
		ck_assert_int_eq(f->close.res, 0);
		for (i = 0; i < READS; i++)
			ck_assert_msg(mrt_op_is_done(&f->op[i]), "the handle is gone, and read %d is not done", i);
		break;
	case HOW_RETURN:
		MRT_RETURN(self, 0);
	default:
		break;
	}
	MRT_AWAIT_ALL(self, f->ops, READS);
	for (i = 0; i < READS; i++)
		check_answer(f, i);
	MRT_RETURN(self, mrt_task_is_aborted(self) ? -ECANCELED : 0);
}

static void check_given_back(const char *buf)
{
	const unsigned char *byte = (const unsigned char *)buf;
	size_t i;

	for (i = 0; i < READS * BLOCK; i++)
		if (byte[i] != GIVEN_BACK)
			ck_abort_msg("byte %zu was written after the buffer was given back", i);
}

/*
 * Until nothing that was with the device can be written to memory any more. It passes its reads on in their order, so one
 * of our own comes behind all of them: when that has its answer, the disk below has them, and its count says when it is done.
 */
static void let_it_land(enum way way)
{
	char *own = aligned_alloc(BLOCK, BLOCK);

	ck_assert_ptr_nonnull(own);
	ITEST_WAIT(with_device(way) == 0, 60000);
	ck_assert_int_eq(pread(way == WAY_DELAY ? slow.fd : throttled.fd, own, BLOCK, 0), BLOCK);
	ITEST_WAIT(with_device(way) == 0 && (way != WAY_DELAY || below_device() == 0), 60000);
	free(own);
}

static struct mrt_runtime *slow_runtime(int kind, enum way way)
{
	struct mrt_runtime_opts opts = itest_opts(kind);

	if (way == WAY_COMMAND)
		opts.flags |= MRT_RUNTIME_NVME;
	return itest_create(&opts);
}

/* A descriptor of the device's, or a handle: `handle`, or where there is no other way. */
static int slow_file(struct mrt_runtime *rt, enum way way, bool handle)
{
	static const unsigned flags[WAY_NR] = { [WAY_POLLED] = MRT_FILE_POLLED, [WAY_COMMAND] = MRT_FILE_PASSTHROUGH };
	struct mrt_rung_report report;
	int fd;

	if (way == WAY_COMMAND)
		fd = open(getenv("MRT_TEST_SLOW_NVME_CHAR"), O_RDWR | O_CLOEXEC);
	else
		fd = dup(way == WAY_DELAY ? slow.fd : throttled.fd);
	ck_assert_int_ge(fd, 0);
	if (!handle && !flags[way])
		return fd;
	fd = mrt_file_register(rt, fd, flags[way]);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(mrt_file_report(rt, fd, NULL, &report), 0);
	ck_assert_msg(report.polled == (way == WAY_POLLED), "%s", report.text);
	return fd;
}

/* @return whether all reads were seen with the device: otherwise less was shown */
static bool try_slow(int kind, enum way way, enum how how, int level)
{

	unsigned fds = itest_fds_nr();
	struct mrt_runtime *rt = slow_runtime(kind, way);
	atomic_bool started = false, strict = false;
	struct slow_reads f = { .how = how, .way = way, .started = &started, .strict = &strict };
	struct mrt_task *task;

	f.buf = aligned_alloc(BLOCK, READS * BLOCK);
	ck_assert_ptr_nonnull(f.buf);
	memset(f.buf, GIVEN_BACK, READS * BLOCK);
	f.fd = slow_file(rt, way, how == HOW_UNREGISTER);
	if (way == WAY_DELAY)
		set_delay(delay_ms << level);
	else
		hold_device(HOLD_FIRST << level);
	f.start = mrt_now();
	f.least_ns = MRT_MS(delay_ms << level);
	/* the throttle lets a few pass at once, and a few may have been answered and not been seen */
	if (way != WAY_DELAY)
		f.least_ns = MRT_SEC((uint64_t)still_held() + READS - 6) / reads_a_second;
	if (kind == ITEST_CURRENT) {
		/* nobody outside can act while the thread drives it */
		ck_assert(how != HOW_ABORT && how != HOW_SHUTDOWN);
		ck_assert_int_eq(itest_run(rt, slow_reads_poll, &f, sizeof(f)), 0);
	} else {
		task = itest_spawn(rt, slow_reads_poll, &f, sizeof(f));
		ITEST_WAIT(atomic_load(&started), 60000);
		if (how == HOW_ABORT)
			mrt_abort(task);
		if (how == HOW_SHUTDOWN && mrt_runtime_shutdown_wait(rt, MRT_MS(10)) != 0) {
			ck_assert(itest_log_has("shutdown is late"));
			ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(60)), 0);
		}
		ck_assert_int_eq(itest_join(task), how == HOW_ABORT || how == HOW_SHUTDOWN ? -ECANCELED : 0);
	}
	/* whatever ended the task, it did not end before its reads had: all of them, if the device had them all */
	if (atomic_load(&strict))
		ck_assert_uint_ge(mrt_now() - f.start, f.least_ns - MRT_MS(20));
	memset(f.buf, GIVEN_BACK, READS * BLOCK);
	if (way != WAY_DELAY)
		end_hold();
	let_it_land(way);
	check_given_back(f.buf);
	ck_assert_uint_eq(itest_stats(rt).inflight, 0);
	mrt_runtime_destroy(rt);
	check_given_back(f.buf);
	if (how != HOW_CLOSE && how != HOW_UNREGISTER && way <= WAY_THROTTLED)
		close(f.fd);
	ck_assert_uint_eq(itest_fds_nr(), fds);
	free(f.buf);
	return atomic_load(&strict);
}

/*
 * An emulated machine may be too slow to bring all reads to the device before the first has its answer: then that is held
 * longer, for as long as a test may take.
 */
static void run_slow(int kind, enum way way, enum how how)
{
	uint64_t until = mrt_now() + MRT_SEC(ITEST_LIMIT_S / 2) * itest_env("CK_TIMEOUT_MULTIPLIER", 1);
	int level = 0, tries = 0;

	for (;;) {
		if (try_slow(kind, way, how, level))
			return;
		tries++;
		ck_assert_msg(mrt_now() < until, "kind %d, way %d, end %d: in none of %d tries did all reads reach the device",
			      kind, way, how, tries);
		level += level < LEVELS - 1;
	}
}

START_TEST(a_delayed_answer_wins_over_whatever_ends_the_wait)
{
	run_slow(ITEST_TWO, WAY_DELAY, (enum how)_i);
}
END_TEST

START_TEST(a_delayed_answer_wins_on_workers_that_float)
{
	run_slow(ITEST_FLOAT, WAY_DELAY, (enum how)_i);
}
END_TEST

START_TEST(a_delayed_answer_wins_without_deferred_completions)
{
	run_slow(ITEST_PLAIN, WAY_DELAY, (enum how)_i);
}
END_TEST

START_TEST(a_delayed_answer_wins_on_one_thread)
{
	run_slow(ITEST_CURRENT, WAY_DELAY, (enum how)_i);
}
END_TEST

START_TEST(the_answers_of_a_throttled_device_win)
{
	run_slow(ITEST_TWO, WAY_THROTTLED, (enum how)_i);
}
END_TEST

/* A handle is not a descriptor: HOW_UNREGISTER is what HOW_CLOSE would be. */
START_TEST(the_answers_of_a_throttled_device_win_when_it_is_polled)
{
	if (_i != HOW_CLOSE)
		run_slow(ITEST_FLOAT, WAY_POLLED, (enum how)_i);
}
END_TEST

START_TEST(the_answers_of_a_throttled_device_win_when_it_is_polled_on_one_thread)
{
	run_slow(ITEST_CURRENT, WAY_POLLED, (enum how)_i);
}
END_TEST

START_TEST(the_answers_to_commands_of_a_throttled_device_win)
{
	if (_i != HOW_CLOSE)
		run_slow(ITEST_TWO, WAY_COMMAND, (enum how)_i);
}
END_TEST

/* ---- a queue that is full, a controller that is reset ------------------------------------------------------------ */

#define MANY 24
#define MANY_FROM (2 * READS * STRIDE)  /* behind the bad one */
#define FEW_REQUESTS 4

struct many_reads {
	struct mrt_op op[MANY];
	struct mrt_op *ops[MANY];
	char *buf;
	int fd;
	atomic_bool *started;
	atomic_bool *ended;
	bool may_lose;          /* -EIO will do */
};

static enum mrt_poll many_reads_poll(struct mrt_task *self, void *frame)
{
	struct many_reads *f = frame;
	int i;

	MRT_BEGIN(self);
	for (i = 0; i < MANY; i++)
		f->ops[i] = mrt_read(&f->op[i], f->fd, f->buf + i * BLOCK, BLOCK, MANY_FROM + i * STRIDE);
	mrt_flush();
	atomic_store(f->started, true);
	/* a thread that io-wq makes now is made in an interrupt: see docs/nvme.md, of the x32 ABI */
	itest_spin(MRT_MS(300));
	MRT_AWAIT_ALL(self, f->ops, MANY);
	atomic_store(f->ended, true);
	for (i = 0; i < MANY; i++) {
		if (f->may_lose && f->op[i].res == -EIO)
			continue;
		ck_assert_msg(f->op[i].res == BLOCK, "read %d of %d: %lld", i, MANY, (long long)f->op[i].res);
		check_pattern(f->buf + i * BLOCK, BLOCK, MANY_FROM + i * STRIDE);
	}
	MRT_RETURN(self, 0);
}

static void run_many(struct mrt_runtime *rt, int fd, bool may_lose, void (*meanwhile)(const atomic_bool *ended))
{
	atomic_bool started = false, ended = false;
	struct many_reads f = { .fd = fd, .started = &started, .ended = &ended, .may_lose = may_lose };
	struct mrt_task *task;

	f.buf = aligned_alloc(BLOCK, MANY * BLOCK);
	ck_assert_ptr_nonnull(f.buf);
	task = itest_spawn(rt, many_reads_poll, &f, sizeof(f));
	ITEST_WAIT(atomic_load(&started), 60000);
	meanwhile(&ended);
	ck_assert_int_eq(itest_join(task), 0);
	ck_assert_uint_eq(itest_stats(rt).inflight, 0);
	free(f.buf);
}

static int requests_before;             /* nr_requests of the throttled device, when the tests begin */

/* A number of the throttled device's in sysfs; `set` it first, if not negative. main() asks, too. @return -1: it cannot be had */
static int throttled_number(const char *attribute, int set)
{
	const char *name = strrchr(getenv("MRT_TEST_SLOW_NVME"), '/') + 1;
	char path[128], text[32] = "";
	int file, nr;
	bool done;

	snprintf(path, sizeof(path), "/sys/block/%s/%s", name, attribute);
	file = open(path, set < 0 ? O_RDONLY | O_CLOEXEC : O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return -1;
	if (set >= 0) {
		snprintf(text, sizeof(text), "%d", set);
		done = write(file, text, strlen(text)) > 0;
		nr = set;
	} else {
		done = read(file, text, sizeof(text) - 1) > 0 && sscanf(text, "%d", &nr) == 1;
	}
	close(file);
	return done ? nr : -1;
}

/* Whatever a test before this one has left. */
static void let_requests_be(void)
{
	if (throttled_number("queue/nr_requests", -1) != requests_before)
		ck_assert_int_eq(throttled_number("queue/nr_requests", requests_before), requests_before);
}

static bool was_full;

/* Look until it is full, or all is over: who looks too late tries again. */
static void see_it_full(const atomic_bool *ended)
{
	while (!was_full && !atomic_load(ended)) {
		was_full = with_throttled() == FEW_REQUESTS;
		itest_pause();
	}
}

/* Inside the kernel each read beyond the queue's few requests is refused with -EAGAIN, and waits in io-wq. */
START_TEST(a_queue_that_is_full_is_waited_for)
{
	uint64_t until = mrt_now() + MRT_SEC(ITEST_LIMIT_S / 2) * itest_env("CK_TIMEOUT_MULTIPLIER", 1);
	enum way way = (enum way)_i;
	struct mrt_runtime *rt = slow_runtime(ITEST_TWO, way);
	int fd = slow_file(rt, way, false);

	ck_assert_int_eq(throttled_number("queue/nr_requests", FEW_REQUESTS), FEW_REQUESTS);
	ck_assert_int_eq(throttled_number("queue/nr_requests", -1), FEW_REQUESTS);
	for (was_full = false; !was_full;) {
		ck_assert_msg(mrt_now() < until, "the queue was never seen full");
		run_many(rt, fd, false, see_it_full);
	}
	(void)throttled_number("queue/nr_requests", requests_before);
	mrt_runtime_destroy(rt);
}
END_TEST

static void reset_controller(const atomic_bool *ended)
{
	(void)ended;
	ck_assert_int_eq(throttled_number("device/reset_controller", 1), 1);
}

static void nothing_more(const atomic_bool *ended)
{
	(void)ended;
}

/* The block layer asks again for what was taken away. Nobody does for commands: data or -EIO, whichever the device made of it. */
START_TEST(a_reset_of_the_controller_is_survived)
{
	enum way way = (enum way)_i;
	struct mrt_runtime *rt = slow_runtime(ITEST_TWO, way);
	int fd = slow_file(rt, way, false);

	run_many(rt, fd, way == WAY_COMMAND, reset_controller);
	run_many(rt, fd, false, nothing_more);
	mrt_runtime_destroy(rt);
}
END_TEST

/* More than the credits of a small ring, cancelled in every state: staged, queued, with the device, done. */
#define CROWD 300

struct crowd {
	struct mrt_op op[CROWD], pause;
	struct mrt_op *ops[CROWD];
	struct mrt_timer timer[CROWD];
	char *buf;
	int got, gone;
};

static enum mrt_poll crowd_poll(struct mrt_task *self, void *frame)
{
	struct crowd *f = frame;
	int i;

	MRT_BEGIN(self);
	memset(f->buf, GIVEN_BACK, CROWD * BLOCK);
	for (i = 0; i < CROWD; i++) {
		f->ops[i] = mrt_read(&f->op[i], slow.fd, f->buf + i * BLOCK, BLOCK, i * BLOCK);
		if (i % 5 == 1)
			mrt_deadline(&f->op[i], &f->timer[i], MRT_MS(delay_ms / 4));
		if (i % 5 == 2)
			mrt_cancel(&f->op[i]);
	}
	MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(delay_ms / 3)));
	for (i = 0; i < CROWD; i++)
		if (i % 5 == 3)
			mrt_cancel(&f->op[i]);
	MRT_AWAIT_ALL(self, f->ops, CROWD);
	for (i = 0; i < CROWD; i++) {
		if (f->op[i].res == BLOCK) {
			f->got++;
			check_pattern(f->buf + i * BLOCK, BLOCK, i * BLOCK);
			continue;
		}
		/* not reached by the device: told so, and the buffer is as it was */
		ck_assert_msg(f->op[i].res == (i % 5 == 1 ? -ETIMEDOUT : -ECANCELED), "read %d: %lld", i,
			      (long long)f->op[i].res);
		ck_assert_msg(i % 5 >= 1 && i % 5 <= 3, "read %d, which nobody ended: %lld", i, (long long)f->op[i].res);
		ck_assert_int_eq((unsigned char)f->buf[i * BLOCK], GIVEN_BACK);
		f->gone++;
	}
	ck_assert_int_eq(f->got + f->gone, CROWD);
	ck_assert_int_gt(f->gone, 0);
	MRT_RETURN(self, 0);
}

START_TEST(a_crowd_on_a_slow_device_ends_one_by_one)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	struct mrt_runtime *rt;
	static struct crowd f;

	opts.sq_entries = 16;
	opts.cq_entries = 64;
	set_delay(delay_ms);
	rt = itest_create(&opts);
	f.buf = aligned_alloc(BLOCK, CROWD * BLOCK);
	ck_assert_ptr_nonnull(f.buf);
	ck_assert_int_eq(itest_run(rt, crowd_poll, &f, sizeof(f)), 0);
	ck_assert_uint_eq(itest_stats(rt).inflight, 0);
	ck_assert_uint_eq(itest_stats(rt).queued, 0);
	mrt_runtime_destroy(rt);
	free(f.buf);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest faults");
	TCase *tc = tcase_create("devices");
	int ret;

	if (!getenv("MRT_TEST_GUEST")) {
		printf("skipped: this is for a guest of scripts/vm-test, which has the devices\n");
		return ITEST_SKIP;
	}
	itest_need_io_uring();
	nvme = find_device("MRT_TEST_NVME", "MRT_TEST_NVME_BAD_SECTOR");
	dm_error = find_device("MRT_TEST_DM_ERROR", "MRT_TEST_DM_ERROR_SECTOR");
	nullb = find_device("MRT_TEST_NULLB", "MRT_TEST_NULLB_BAD_SECTOR");
	flakey = find_device("MRT_TEST_DM_FLAKEY", NULL);
	slow = find_device("MRT_TEST_DM_DELAY", NULL);
	error_buffered = open_device("MRT_TEST_DM_ERROR", 0);
	dm_control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	throttled = find_device("MRT_TEST_SLOW_NVME", "MRT_TEST_SLOW_NVME_BAD_SECTOR");
	delay_ms = itest_env("MRT_TEST_DM_DELAY_MS", 0);
	reads_a_second = itest_env("MRT_TEST_SLOW_NVME_READS", 20);

	tcase_set_timeout(tc, ITEST_LIMIT_S);
	if (nvme.fd >= 0)
		tcase_add_loop_test(tc, a_media_error_of_nvme_is_enodata, 0, ITEST_KINDS_NR);
	if (dm_error.fd >= 0) {
		tcase_add_loop_test(tc, what_a_mapped_device_refuses_is_eio, 0, ITEST_KINDS_NR);
		tcase_add_loop_test(tc, buffered_reads_are_short_before_the_error, 0, ITEST_FLAVOURS_NR);
	}
	if (nullb.fd >= 0)
		tcase_add_loop_test(tc, a_bad_block_is_eio, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, direct_io_is_short_at_the_end_of_a_device, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, direct_io_is_short_at_the_end_of_a_file, 0, ITEST_KINDS_NR);
	if (flakey.fd >= 0)
		tcase_add_loop_test(tc, every_write_to_a_flakey_device_is_done_or_refused, ITEST_TWO, ITEST_TWO + 1);
	if (slow.fd >= 0) {
		if (!fill_device(&slow, 0, CROWD * BLOCK)) {
			printf("the device that is slow cannot be written: %s\n", strerror(errno));
			return EXIT_FAILURE;
		}
		tcase_add_loop_test(tc, a_delayed_answer_wins_over_whatever_ends_the_wait, 0, HOW_NR);
		tcase_add_loop_test(tc, a_delayed_answer_wins_on_workers_that_float, 0, HOW_NR);
		tcase_add_loop_test(tc, a_delayed_answer_wins_without_deferred_completions, 0, HOW_NR);
		tcase_add_loop_test(tc, a_delayed_answer_wins_on_one_thread, 0, HOW_ABORT);
		tcase_add_loop_test(tc, a_crowd_on_a_slow_device_ends_one_by_one, 0, ITEST_KINDS_NR);
	}
	if (throttled.fd >= 0) {
		if (!fill_device(&throttled, 0, MANY_FROM + MANY * STRIDE)) {
			printf("the device that is throttled cannot be written: %s\n", strerror(errno));
			return EXIT_FAILURE;
		}
		requests_before = throttled_number("queue/nr_requests", -1);
		tcase_add_checked_fixture(tc, let_requests_be, NULL);
		tcase_add_loop_test(tc, the_answers_of_a_throttled_device_win, 0, HOW_NR);
		tcase_add_loop_test(tc, the_answers_of_a_throttled_device_win_when_it_is_polled, 0, HOW_NR);
		tcase_add_loop_test(tc, the_answers_of_a_throttled_device_win_when_it_is_polled_on_one_thread, 0, HOW_CLOSE);
		tcase_add_loop_test(tc, the_answers_to_commands_of_a_throttled_device_win, 0, HOW_NR);
		tcase_add_loop_test(tc, a_queue_that_is_full_is_waited_for, WAY_THROTTLED, WAY_NR);
		tcase_add_loop_test(tc, a_reset_of_the_controller_is_survived, WAY_THROTTLED, WAY_NR);
	}
	suite_add_tcase(suite, tc);
	ret = itest_main(suite);
	/* also after a test that failed, for whatever is run next */
	if (throttled.fd >= 0)
		(void)throttled_number("queue/nr_requests", requests_before);
	return ret;
}
