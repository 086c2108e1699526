/* SPDX-License-Identifier: MIT */
/*
 * NVMe passthrough on a device: what is written one way is read the other way, by passthrough, through the block layer,
 * in one piece, in segments, from arena memory and from any other, polled and not; ends, limits and errors are what the
 * block layer makes of them; what would let the device write over memory, or goes to the wrong node, is refused before
 * the kernel sees it, with a sentence; statuses of the device arrive.
 *
 * Needs a namespace that may be overwritten: MRT_TEST_NVME_CHAR (/dev/ngXnY) and MRT_TEST_NVME (its block device), as in
 * the guests of scripts/vm-test. MRT_TEST_NVME_BAD_SECTOR: a sector that cannot be read or written. What can be asked
 * anywhere (that other nodes are refused) is tried without.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define KIB (1u << 10)
#define MIB (1u << 20)
#define AREA (16 * (int64_t)MIB)        /* where the tests write */
#define BIG (1 * MIB)                   /* more than one command takes */
#define STATUS_LBA_RANGE 0x4080u
#define STATUS_OPCODE 0x4001u
#define STATUS_READ_ERROR 0x281u
#define STATUS_COMPARE 0x285u
#define CODE 0x7ffu

static const char *char_path, *block_path;
static char ctrl_path[64];      /* /dev/nvme0 */

/* Loop indices: which runtime, and is the file polled? */
#define VARIANTS 4
#define IS_POLLED(i) ((i) & 2)

/* The test's own: Check forks. */
static struct mrt_runtime *rt;
static int file, ctrl, block;   /* handles of the namespace and the controller; descriptor of the block device */
static struct mrt_nvme_node info;
static char out[2 * BIG] __attribute__((aligned(4096)));
static char in[2 * BIG] __attribute__((aligned(4096)));

static struct mrt_runtime *create(int variant)
{
	struct mrt_runtime_opts opts = itest_opts(variant & 1 ? ITEST_CURRENT : ITEST_TWO);

	opts.flags |= MRT_RUNTIME_NVME;
	return itest_create(&opts);
}

static int open_node(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	return fd;
}

static int register_node(const char *path, unsigned flags)
{
	int handle = mrt_file_register(rt, open_node(path, O_RDWR), MRT_FILE_PASSTHROUGH | flags);

	if (handle < 0)
		ck_abort_msg("%s: %s; %s", path, strerror(-handle), itest_log_text());
	return handle;
}

static void run(int variant, mrt_poll_fn fn, size_t frame_bytes)
{
	void *frame = calloc(1, frame_bytes);

	ck_assert_ptr_nonnull(frame);
	rt = create(variant);
	file = register_node(char_path, IS_POLLED(variant) ? MRT_FILE_POLLED : 0);
	ctrl = register_node(ctrl_path, 0);
	block = open_node(block_path, O_RDWR | O_DIRECT);
	ck_assert_int_eq(mrt_nvme_info(rt, file, &info), 0);
	ck_assert_int_eq(itest_run(rt, fn, frame, frame_bytes), 0);
	mrt_runtime_destroy(rt);
	free(frame);
}

/* NVME_TASK(name, { members of the frame }) { body }: a test on `file`, in all variants; as ITEST_TASK. */
#define NVME_TASK(name, ...) ITEST_TASK_WITH(name, run, __VA_ARGS__)

static void block_write(const void *buf, size_t bytes, int64_t off)
{
	ck_assert_int_eq(pwrite(block, buf, bytes, off), (ssize_t)bytes);
}

static void block_read(void *buf, size_t bytes, int64_t off)
{
	ck_assert_int_eq(pread(block, buf, bytes, off), (ssize_t)bytes);
}

/* Other bytes in each test and variant, so that what an earlier one wrote does not pass for it. */
static void fresh(size_t bytes)
{
	fixture_pattern(out, bytes, (uint64_t)getpid() * 1000003, 0);
	memset(in, 0x5a, sizeof(in));
}

static int64_t device_bytes(void)
{
	return (int64_t)(info.blocks * info.block_bytes);
}

static struct mrt_nvme_cmd rw_cmd(uint8_t opcode, void *data, uint32_t blocks, int64_t off)
{
	uint64_t slba = (uint64_t)off / info.block_bytes;

	return (struct mrt_nvme_cmd){
		.opcode = opcode, .nsid = info.nsid, .cdw10 = (uint32_t)slba, .cdw11 = (uint32_t)(slba >> 32),
		.cdw12 = blocks - 1, .data = data, .data_bytes = blocks * info.block_bytes,
	};
}

/* ---- data ---- */

NVME_TASK(what_the_block_layer_wrote_is_read, { struct mrt_op op; size_t bytes; })
{
	MRT_BEGIN(self);
	fresh(64 * KIB);
	block_write(out, 64 * KIB, AREA);
	for (f->bytes = 512; f->bytes <= 64 * KIB; f->bytes *= 2) {
		ITEST_RES(mrt_nvme_read(&f->op, file, in, f->bytes, AREA), (int64_t)f->bytes);
		ck_assert_mem_eq(in, out, f->bytes);
		ck_assert_int_eq(in[f->bytes], 0x5a);
		ck_assert_uint_eq(mrt_nvme_status(&f->op), 0);
	}
	/* the ordinary functions do the same */
	memset(in, 0, sizeof(in));
	ITEST_RES(mrt_read(&f->op, file, in, 4096, AREA + 4096), 4096);
	ck_assert_mem_eq(in, out + 4096, 4096);
	MRT_RETURN(self, 0);
}

NVME_TASK(what_passthrough_wrote_the_block_layer_reads, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	fresh(64 * KIB);
	ITEST_RES(mrt_nvme_write(&f->op, file, out, 32 * KIB, AREA), 32 * KIB);
	ITEST_RES(mrt_write(&f->op, file, out + 32 * KIB, 32 * KIB, AREA + 32 * KIB), 32 * KIB);
	ITEST_RES(mrt_nvme_flush(&f->op, file), 0);
	ITEST_RES(mrt_fsync(&f->op, file), 0);
	ITEST_RES(mrt_fdatasync(&f->op, file), 0);
	block_read(in, 64 * KIB, AREA);
	ck_assert_mem_eq(in, out, 64 * KIB);
	MRT_RETURN(self, 0);
}

/* Addresses need not be aligned to anything but what the DMA engine asks for: the kernel copies. */
NVME_TASK(memory_may_lie_anywhere, { struct mrt_op op; size_t at; })
{
	MRT_BEGIN(self);
	fresh(16 * KIB);
	block_write(out, 16 * KIB, AREA);
	for (f->at = 1; f->at < 4096; f->at = f->at * 5 + 1) {
		memset(in, 0x5a, 32 * KIB);
		ITEST_RES(mrt_nvme_read(&f->op, file, in + f->at, 8 * KIB, AREA), 8 * KIB);
		ck_assert_mem_eq(in + f->at, out, 8 * KIB);
		ck_assert_int_eq(in[f->at - 1], 0x5a);
		ck_assert_int_eq(in[f->at + 8 * KIB], 0x5a);
		ITEST_RES(mrt_nvme_write(&f->op, file, in + f->at, 8 * KIB, AREA + 32 * KIB), 8 * KIB);
		block_read(in, 8 * KIB, AREA + 32 * KIB);
		ck_assert_mem_eq(in, out, 8 * KIB);
	}
	MRT_RETURN(self, 0);
}

NVME_TASK(arena_memory_is_used_as_registered_buffers, {
	struct mrt_op op;
	struct mrt_nvme_cmd cmd;
	char *a;
	void *block;
	struct mrt_rung_report report;
})
{
	MRT_BEGIN(self);
	fresh(16 * KIB);
	ck_assert_int_eq(mrt_alloc(NULL, 16 * KIB, 0, &f->block), 0);
	f->a = f->block;
	memcpy(f->a, out, 16 * KIB);
	ITEST_RES(mrt_nvme_write(&f->op, file, f->a, 16 * KIB, AREA), 16 * KIB);
	block_read(in, 16 * KIB, AREA);
	ck_assert_mem_eq(in, out, 16 * KIB);
	memset(f->a, 0, 16 * KIB);
	ITEST_RES(mrt_nvme_read(&f->op, file, f->a + 512, 8 * KIB, AREA + 4096), 8 * KIB);
	ck_assert_mem_eq(f->a + 512, out + 4096, 8 * KIB);
	ck_assert_int_eq(f->a[511], 0);
	ck_assert_int_eq(f->a[512 + 8 * KIB], 0);
	ck_assert_int_eq(mrt_file_report(NULL, file, f->a, &f->report), 0);
	ck_assert_uint_eq(f->report.rung, MRT_RUNG_PASSTHROUGH);
	/* kernel 6.1 refuses them; then it went on without, and says so */
	ck_assert_msg(f->report.fixed_buffer || strstr(f->report.text, "this kernel refuses them in NVMe commands"), "%s",
		      f->report.text);
	f->cmd = rw_cmd(2, f->a, 16, AREA);
	memset(f->a, 0, 16 * KIB);
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), 0);
	ck_assert_mem_eq(f->a, out, 8 * KIB);
	mrt_free(NULL, f->block);
	MRT_RETURN(self, 0);
}

NVME_TASK(segments_are_read_and_written, { struct mrt_op op; struct iovec iov[4]; })
{
	MRT_BEGIN(self);
	fresh(64 * KIB);
	f->iov[0] = (struct iovec){ out, 512 };
	f->iov[1] = (struct iovec){ out + 512, 0 };
	f->iov[2] = (struct iovec){ out + 512, 7 * 512 };
	f->iov[3] = (struct iovec){ out + 4096, 28 * KIB };
	ITEST_RES(mrt_writev(&f->op, file, f->iov, 4, AREA), 32 * KIB);
	block_read(in, 32 * KIB, AREA);
	ck_assert_mem_eq(in, out, 32 * KIB);
	memset(in, 0, sizeof(in));
	f->iov[0] = (struct iovec){ in + 100 * KIB, 256 };
	f->iov[1] = (struct iovec){ in + 200 * KIB, 256 };
	f->iov[2] = (struct iovec){ in + 300 * KIB, 4096 };
	ITEST_RES(mrt_readv(&f->op, file, f->iov, 3, AREA), 4096 + 512);
	ck_assert_mem_eq(in + 100 * KIB, out, 256);
	ck_assert_mem_eq(in + 200 * KIB, out + 256, 256);
	ck_assert_mem_eq(in + 300 * KIB, out + 512, 4096);
	MRT_RETURN(self, 0);
}

NVME_TASK(what_is_longer_than_a_command_is_short_or_goes_on, { struct mrt_op op; struct iovec iov[2]; })
{
	MRT_BEGIN(self);
	ck_assert_uint_gt(info.transfer_bytes_max, 0);
	ck_assert_uint_lt(info.transfer_bytes_max, BIG);
	fresh(BIG);
	ITEST_RES(mrt_write_all(&f->op, file, out, BIG, AREA), BIG);
	ck_assert_int_eq(f->op.why, 0);
	block_read(in, BIG, AREA);
	ck_assert_mem_eq(in, out, BIG);
	memset(in, 0, sizeof(in));
	/* at an odd address, so that it lies in one page more */
	ITEST_RES(mrt_read_exact(&f->op, file, in + 1, BIG, AREA), BIG);
	ck_assert_mem_eq(in + 1, out, BIG);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, BIG, AREA), info.transfer_bytes_max);
	ITEST_RES(mrt_nvme_write(&f->op, file, out, BIG, AREA), info.transfer_bytes_max);
	f->iov[0] = (struct iovec){ in, 64 * KIB };
	f->iov[1] = (struct iovec){ in + 64 * KIB, BIG };
	ITEST_RES(mrt_readv(&f->op, file, f->iov, 2, AREA), 64 * KIB);
	f->iov[0].iov_len = BIG;
	ITEST_RES(mrt_readv(&f->op, file, f->iov, 1, AREA), info.transfer_bytes_max);
	ck_assert_mem_eq(in, out, info.transfer_bytes_max);
	MRT_RETURN(self, 0);
}

NVME_TASK(the_end_of_the_namespace_is_that_of_a_block_device, { struct mrt_op op; int64_t end; })
{
	MRT_BEGIN(self);
	f->end = device_bytes();
	fresh(8 * KIB);
	block_write(out, 4096, f->end - 4096);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 8 * KIB, f->end - 4096), 4096);
	ck_assert_mem_eq(in, out, 4096);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 4096, f->end), 0);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 4096, INT64_C(1) << 60), 0);
	ITEST_RES(mrt_nvme_write(&f->op, file, out, 8 * KIB, f->end - 512), 512);
	ITEST_RES(mrt_nvme_write(&f->op, file, out, 4096, f->end), -ENOSPC);
	ITEST_RES(mrt_read_exact(&f->op, file, in, 64 * KIB, f->end - 8 * KIB), 8 * KIB);
	ITEST_RES(mrt_write_all(&f->op, file, out, 8 * KIB, f->end - 4096), 4096);
	ck_assert_int_eq(f->op.why, -ENOSPC);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 0, 0), 0);
	ITEST_RES(mrt_nvme_write(&f->op, file, out, 0, 0), 0);
	MRT_RETURN(self, 0);
}

/* Many at once, each reading what it wrote: completions go to whom they belong. */
#define CROWD 64u

ITEST_CHILD(crowd, { struct mrt_op op; unsigned nr, round; char buf[1024]; char want[1024]; })
{
	MRT_BEGIN(self);
	for (f->round = 0; f->round < 4; f->round++) {
		fixture_pattern(f->buf, 1024, f->nr, f->round);
		memcpy(f->want, f->buf, 1024);
		ITEST_RES(mrt_nvme_write(&f->op, file, f->buf, 1024, AREA + f->nr * 1024), 1024);
		memset(f->buf, 0, 1024);
		MRT_AWAIT(self, mrt_yield(&f->op));
		ITEST_RES(mrt_nvme_read(&f->op, file, f->buf, 1024, AREA + f->nr * 1024), 1024);
		ck_assert_mem_eq(f->buf, f->want, 1024);
	}
	MRT_RETURN(self, 0);
}

START_TEST(a_crowd_reads_what_each_wrote)
{
	struct mrt_task *tasks[CROWD];
	unsigned i;

	rt = create(_i & ~1); /* tasks must run while this thread spawns */
	file = register_node(char_path, IS_POLLED(_i) ? MRT_FILE_POLLED : 0);
	for (i = 0; i < CROWD; i++) {
		struct crowd frame = { .nr = i };

		tasks[i] = itest_spawn(rt, crowd_poll, &frame, sizeof(frame));
	}
	for (i = 0; i < CROWD; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- what is refused before the kernel sees it ---- */

NVME_TASK(misaligned_reads_are_refused_with_a_sentence, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 100, AREA), -EINVAL);
	ck_assert(itest_log_has("length 100 (not aligned), offset 16777216"));
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 512, AREA + 1), -EINVAL);
	ck_assert(itest_log_has("length 512, offset 16777217 (not aligned)"));
	ITEST_RES(mrt_nvme_write(&f->op, file, out, 511, AREA), -EINVAL);
	ITEST_RES(mrt_write_all(&f->op, file, out, 513, AREA), -EINVAL);
	ck_assert_int_eq(f->op.why, 0);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 512, MRT_OFF_CURRENT), -EINVAL);
	ck_assert(itest_log_has("no position of its own"));
	ck_assert_uint_eq(mrt_nvme_status(&f->op), 0);
	MRT_RETURN(self, 0);
}

NVME_TASK(a_command_longer_than_its_buffer_never_reaches_the_device, { struct mrt_op op; struct mrt_nvme_cmd cmd; })
{
	MRT_BEGIN(self);
	fresh(8 * KIB);
	block_write(out, 8 * KIB, AREA);
	f->cmd = rw_cmd(2, in, 8, AREA);
	f->cmd.data_bytes = 512;
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), -EINVAL);
	ck_assert(itest_log_has("opcode 0x2 moves 4096 bytes of data, but data_bytes is 512"));
	ck_assert_int_eq(in[0], 0x5a);
	ck_assert_int_eq(in[4095], 0x5a);
	f->cmd.data_bytes = 8192;
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), -EINVAL);
	f->cmd = rw_cmd(1, out, 8, AREA);
	f->cmd.data_bytes = 512;
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), -EINVAL);
	/* another namespace's */
	f->cmd = rw_cmd(2, in, 1, AREA);
	f->cmd.nsid++;
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), -EINVAL);
	ck_assert(itest_log_has("but /dev/ng"));
	ITEST_RES(mrt_nvme_command(&f->op, file, NULL, 0), -EINVAL);
	MRT_RETURN(self, 0);
}

NVME_TASK(commands_for_the_other_node_are_refused, { struct mrt_op op; struct mrt_nvme_cmd cmd; })
{
	MRT_BEGIN(self);
	ITEST_RES(mrt_nvme_identify(&f->op, file, 1, 0, in), -EOPNOTSUPP);
	f->cmd = (struct mrt_nvme_cmd){ .opcode = 6, .cdw10 = 1, .data = in, .data_bytes = 4096 };
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, MRT_NVME_ADMIN), -EOPNOTSUPP);
	ck_assert(itest_log_has("admin commands go to the controller"));
	ITEST_RES(mrt_nvme_read(&f->op, ctrl, in, 512, 0), -EOPNOTSUPP);
	ITEST_RES(mrt_nvme_flush(&f->op, ctrl), -EOPNOTSUPP);
	f->cmd = rw_cmd(2, in, 1, 0);
	ITEST_RES(mrt_nvme_command(&f->op, ctrl, &f->cmd, 0), -EOPNOTSUPP);
	ck_assert(itest_log_has("is MRT_NVME_ADMIN missing?"));
	ITEST_RES(mrt_fallocate(&f->op, file, 0, 0, 4096), -EOPNOTSUPP);
	ck_assert(itest_log_has("takes reads, writes, fsync and NVMe commands"));
	/* what is no passthrough file */
	ITEST_RES(mrt_nvme_read(&f->op, block, in, 512, 0), -EBADF);
	ITEST_RES(mrt_nvme_flush(&f->op, 1 << 30 | 0x3ff), -EBADF);
	MRT_RETURN(self, 0);
}

/* ---- what the device says ---- */

NVME_TASK(commands_of_the_callers_reach_the_device, { struct mrt_op op; struct mrt_nvme_cmd cmd; uint32_t range[4]; })
{
	MRT_BEGIN(self);
	fresh(8 * KIB);
	f->cmd = rw_cmd(1, out, 16, AREA);
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), 0);
	ck_assert_uint_eq(f->cmd.status, 0);
	block_read(in, 8 * KIB, AREA);
	ck_assert_mem_eq(in, out, 8 * KIB);
	memset(in, 0, sizeof(in));
	f->cmd = rw_cmd(2, in, 16, AREA);
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), 0);
	ck_assert_mem_eq(in, out, 8 * KIB);
	/* write zeroes: no data */
	f->cmd = rw_cmd(8, NULL, 8, AREA);
	f->cmd.data_bytes = 0;
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), 0);
	block_read(in, 8 * KIB, AREA);
	ck_assert_int_eq(in[0], 0);
	ck_assert_int_eq(in[4095], 0);
	ck_assert_mem_eq(in + 4096, out + 4096, 4096);
	/* dataset management: a range of 16 bytes */
	f->range[1] = 8;
	f->range[2] = (uint32_t)(AREA / info.block_bytes);
	f->cmd = (struct mrt_nvme_cmd){
		.opcode = 9, .nsid = info.nsid, .cdw11 = 4, .data = f->range, .data_bytes = sizeof(f->range),
	};
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), 0);
	MRT_RETURN(self, 0);
}

NVME_TASK(the_controller_takes_admin_commands, { struct mrt_op op; struct mrt_nvme_cmd cmd; uint32_t nsid; })
{
	MRT_BEGIN(self);
	memset(in, 0, 4096);
	ITEST_RES(mrt_nvme_identify(&f->op, ctrl, 1, 0, in), 0);
	ck_assert_int_eq(memcmp(in + 4, "        ", 8) != 0 && in[4] != 0, 1); /* a serial number */
	ITEST_RES(mrt_nvme_identify(&f->op, ctrl, 2, 0, in), 0);
	memcpy(&f->nsid, in, sizeof(f->nsid));
	ck_assert_uint_gt(f->nsid, 0);
	ITEST_RES(mrt_nvme_identify(&f->op, ctrl, 0, info.nsid, in), 0);
	ck_assert_mem_eq(in, &info.blocks, sizeof(info.blocks));
	ITEST_RES(mrt_nvme_identify(&f->op, ctrl, 1, 0, NULL), -EINVAL);
	ITEST_RES(mrt_nvme_identify(&f->op, ctrl, 256, 0, in), -EINVAL);
	/* SMART: 512 bytes, all namespaces */
	f->cmd = (struct mrt_nvme_cmd){
		.opcode = 2, .nsid = 0xffffffff, .cdw10 = 127 << 16 | 2, .data = in, .data_bytes = 512,
	};
	ITEST_RES(mrt_nvme_command(&f->op, ctrl, &f->cmd, MRT_NVME_ADMIN), 0);
	f->cmd.data_bytes = 256;
	ITEST_RES(mrt_nvme_command(&f->op, ctrl, &f->cmd, MRT_NVME_ADMIN), -EINVAL);
	/* a feature comes in the completion: the number of queues, which is never 0 here */
	f->cmd = (struct mrt_nvme_cmd){ .opcode = 0x0a, .cdw10 = 7 };
	ITEST_RES(mrt_nvme_command(&f->op, ctrl, &f->cmd, MRT_NVME_ADMIN), 0);
	ck_assert_uint_gt(f->cmd.result & 0xffff, 0);
	MRT_RETURN(self, 0);
}

NVME_TASK(statuses_of_the_device_arrive, { struct mrt_op op; struct mrt_nvme_cmd cmd; char text[160]; })
{
	MRT_BEGIN(self);
	f->cmd = rw_cmd(2, in, 1, device_bytes());
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), -EREMOTEIO);
	ck_assert_uint_eq(mrt_nvme_status(&f->op), STATUS_LBA_RANGE);
	ck_assert_uint_eq(f->cmd.status, STATUS_LBA_RANGE);
	ck_assert_int_eq(f->op.why, 0);
	ck_assert_str_eq(mrt_nvme_status_text(mrt_nvme_status(&f->op), f->text, sizeof(f->text)),
			 "LBA out of range (generic, code 0x80, do not retry)");
	f->cmd = (struct mrt_nvme_cmd){ .opcode = 0xf0, .nsid = info.nsid };
	ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), -EOPNOTSUPP);
	ck_assert_uint_eq(mrt_nvme_status(&f->op), STATUS_OPCODE);
	/* the next life of the op knows nothing of it */
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 512, AREA), 512);
	ck_assert_uint_eq(mrt_nvme_status(&f->op), 0);
	/* compare, with what is there and with something else */
	fresh(4096);
	block_write(out, 4096, AREA);
	f->cmd = rw_cmd(5, out, 8, AREA);
	MRT_AWAIT(self, mrt_nvme_command(&f->op, file, &f->cmd, 0));
	if (mrt_nvme_status(&f->op) != STATUS_OPCODE) { /* optional */
		ck_assert_int_eq(f->op.res, 0);
		out[4095]++;
		ITEST_RES(mrt_nvme_command(&f->op, file, &f->cmd, 0), -ENODATA);
		ck_assert_uint_eq(mrt_nvme_status(&f->op) & CODE, STATUS_COMPARE);
	}
	/* a device that says "not supported" has not refused the polling, nor the buffer: still all works */
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 4096, AREA), 4096);
	MRT_RETURN(self, 0);
}

NVME_TASK(media_errors_have_the_block_layers_errno, { struct mrt_op op; int64_t bad; struct iovec iov; })
{
	MRT_BEGIN(self);
	f->bad = (int64_t)itest_env("MRT_TEST_NVME_BAD_SECTOR", 0) * 512;
	if (f->bad == 0)
		MRT_RETURN(self, 0);
	ck_assert_int_eq(pread(block, in, 4096, f->bad), -1);
	ck_assert_int_eq(errno, ENODATA);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 4096, f->bad), -ENODATA);
	ck_assert_uint_eq(mrt_nvme_status(&f->op) & CODE, STATUS_READ_ERROR);
	f->iov = (struct iovec){ in, 4096 };
	ITEST_RES(mrt_readv(&f->op, file, &f->iov, 1, f->bad), -ENODATA);
	ITEST_RES(mrt_nvme_write(&f->op, file, out, 512, f->bad), -ENODATA);
	/* what went before is counted, and the reason kept */
	MRT_AWAIT(self, mrt_read_exact(&f->op, file, in, 2 * BIG, f->bad - BIG));
	ck_assert_int_gt(f->op.res, 0);
	ck_assert_int_le(f->op.res, BIG);
	ck_assert_int_eq(f->op.why, -ENODATA);
	ck_assert_uint_eq(mrt_nvme_status(&f->op) & CODE, STATUS_READ_ERROR);
	/* and the neighbour is well */
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 4096, f->bad - 4096), 4096);
	MRT_RETURN(self, 0);
}

/* ---- the file ---- */

NVME_TASK(the_namespace_is_what_the_block_layer_says, { struct mrt_op op; struct mrt_nvme_node other; int fd; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(lseek(block, 0, SEEK_END), device_bytes());
	ck_assert_uint_gt(info.nsid, 0);
	ck_assert_uint_eq(info.block_bytes & (info.block_bytes - 1), 0);
	ck_assert_uint_eq(info.transfer_bytes_max % info.block_bytes, 0);
	ck_assert_int_eq(mrt_nvme_info(NULL, ctrl, &f->other), 0);
	ck_assert_uint_eq(f->other.nsid, 0);
	ck_assert_uint_eq(f->other.blocks, 0);
	ck_assert_uint_eq(f->other.mdts_bytes, info.mdts_bytes);
	ck_assert_int_eq(mrt_nvme_info(NULL, block, &f->other), -EBADF);
	f->fd = mrt_file_register(NULL, dup(block), 0);
	ck_assert_int_eq(mrt_nvme_info(NULL, f->fd, &f->other), -EOPNOTSUPP);
	ITEST_RES(mrt_nvme_read(&f->op, f->fd, in, 512, 0), -EOPNOTSUPP);
	ck_assert(itest_log_has("was not registered with MRT_FILE_PASSTHROUGH"));
	/* a closed one is stale; a node that was given back works as before */
	ITEST_RES(mrt_close(&f->op, f->fd), 0);
	ITEST_RES(mrt_nvme_read(&f->op, f->fd, in, 512, 0), -EBADF);
	MRT_AWAIT(self, mrt_file_unregister(&f->op, file));
	ck_assert_int_ge(f->op.res, 0);
	f->fd = (int)f->op.res;
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 512, 0), -EBADF);
	ck_assert_int_eq(mrt_nvme_info(NULL, file, &f->other), -EBADF);
	file = mrt_file_register(NULL, f->fd, MRT_FILE_PASSTHROUGH);
	ck_assert_int_ge(file, 1 << 30);
	ITEST_RES(mrt_nvme_read(&f->op, file, in, 512, AREA), 512);
	MRT_RETURN(self, 0);
}

NVME_TASK(the_report_says_passthrough, { struct mrt_op op; struct mrt_rung_report report; })
{
	bool poll_queues = itest_env("MRT_TEST_POLL", 0);

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_file_report(NULL, file, NULL, &f->report), 0);
	ck_assert_msg(f->report.rung == MRT_RUNG_PASSTHROUGH, "%s", f->report.text);
	ck_assert_uint_eq(f->report.passthrough, 1);
	ck_assert_uint_eq(f->report.fixed_file, 1);
	ck_assert_uint_eq(f->report.align_off, info.block_bytes);
	if (!f->report.polled)
		ck_assert_msg(strstr(f->report.text, poll_queues ? "MRT_FILE_POLLED" : "io_poll is 0") != NULL, "%s",
			      f->report.text);
	ck_assert_msg(f->report.polled <= poll_queues, "%s", f->report.text);
	MRT_RETURN(self, 0);
}

START_TEST(polling_a_namespace_is_granted_where_there_are_poll_queues)
{
	struct mrt_rung_report report;

	rt = create(0);
	file = register_node(char_path, MRT_FILE_POLLED);
	ck_assert_int_eq(mrt_file_report(rt, file, NULL, &report), 0);
	ck_assert_msg(report.polled == itest_env("MRT_TEST_POLL", 0), "%s", report.text);
	ctrl = register_node(ctrl_path, MRT_FILE_POLLED);
	ck_assert_int_eq(mrt_file_report(rt, ctrl, NULL, &report), 0);
	ck_assert_msg(report.polled == 0 && strstr(report.text, "admin commands"), "%s", report.text);
	mrt_runtime_destroy(rt);
}
END_TEST

/* @return what registering a node says, with a sentence in the log */
static int try_register(const char *path, unsigned runtime_flags)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	int fd = open(path, O_RDWR | O_CLOEXEC), ret;

	if (fd < 0)
		fd = open_node(path, O_RDONLY);
	opts.flags |= runtime_flags;
	rt = itest_create(&opts);
	ret = mrt_file_register(rt, fd, MRT_FILE_PASSTHROUGH);
	if (ret < 0)
		ck_assert_int_eq(close(fd), 0); /* still ours */
	mrt_runtime_destroy(rt);
	return ret;
}

START_TEST(a_runtime_without_big_rings_refuses)
{
	ck_assert_int_eq(try_register(char_path, 0), -EOPNOTSUPP);
	ck_assert(itest_log_has("MRT_RUNTIME_NVME"));
}
END_TEST

START_TEST(the_block_device_is_refused_and_the_node_named)
{
	ck_assert_int_eq(try_register(block_path, MRT_RUNTIME_NVME), -EOPNOTSUPP);
	ck_assert(itest_log_has(char_path));
}
END_TEST

/* An ordinary user with an open node: kernel 6.1 refuses every command, later ones take what the node was opened for. */
static int as_nobody(void *ctx)
{
	int fd = open_node(char_path, O_RDWR), ret;

	(void)ctx;
	ck_assert_int_eq(setgroups(0, NULL), 0);
	ck_assert_int_eq(setresgid(65534, 65534, 65534), 0);
	ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
	rt = create(0);
	ret = mrt_file_register(rt, fd, MRT_FILE_PASSTHROUGH);
	if (ret < 0) {
		if (ret != -EACCES || !itest_log_has("may not send NVMe commands"))
			fprintf(stderr, "%d: %s\n", ret, itest_log_text());
		return ret == -EACCES && itest_log_has("may not send NVMe commands") ? 0 : 1;
	}
	mrt_runtime_destroy(rt);
	return 0;
}

START_TEST(an_ordinary_user_is_told_or_works)
{
	itest_child_ok(as_nobody, NULL);
}
END_TEST

/* ---- anywhere ---- */

START_TEST(what_is_no_nvme_is_refused_anywhere)
{
	ck_assert_int_eq(try_register("/dev/null", MRT_RUNTIME_NVME), -EOPNOTSUPP);
	ck_assert(itest_log_has("no NVMe device"));
	ck_assert_int_eq(try_register("/dev/null", 0), -EOPNOTSUPP);
	ck_assert(itest_log_has("MRT_RUNTIME_NVME"));
}
END_TEST

/* A runtime with big rings does what others do. */
ITEST_CHILD(ordinary, { struct mrt_op op; int fds[2]; char buf[8]; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->fds, O_CLOEXEC), 0);
	ITEST_RES(mrt_write(&f->op, f->fds[1], "abc", 3, MRT_OFF_CURRENT), 3);
	ITEST_RES(mrt_read(&f->op, f->fds[0], f->buf, 8, MRT_OFF_CURRENT), 3);
	ck_assert_mem_eq(f->buf, "abc", 3);
	ITEST_RES(mrt_nvme_read(&f->op, f->fds[0], f->buf, 8, 0), -EBADF);
	ITEST_RES(mrt_close(&f->op, f->fds[0]), 0);
	ITEST_RES(mrt_close(&f->op, f->fds[1]), 0);
	MRT_RETURN(self, 0);
}

START_TEST(a_runtime_with_big_rings_does_what_others_do)
{
	struct ordinary frame = { 0 };

	rt = create(_i);
	ck_assert_int_eq(itest_run(rt, ordinary_poll, &frame, sizeof(frame)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(started_outside_a_task_it_says_so)
{
	struct mrt_op op = { 0 };
	struct mrt_nvme_cmd cmd = { 0 };

	rt = create(0);
	ck_assert_int_eq(mrt_nvme_read(&op, 1 << 30, in, 512, 0)->res, -EINVAL);
	ck_assert(itest_log_has("outside a task"));
	ck_assert_int_eq(mrt_nvme_command(&op, 1 << 30, &cmd, 0)->res, -EINVAL);
	ck_assert_int_eq(mrt_nvme_identify(&op, 1 << 30, 1, 0, in)->res, -EINVAL);
	ck_assert_uint_eq(mrt_nvme_status(&op), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* /dev/ng0n1 -> /dev/nvme0 */
static bool find_nodes(void)
{
	unsigned nr, ns;

	char_path = getenv("MRT_TEST_NVME_CHAR");
	block_path = getenv("MRT_TEST_NVME");
	if (!char_path || !block_path || sscanf(char_path, "/dev/ng%un%u", &nr, &ns) != 2)
		return false;
	snprintf(ctrl_path, sizeof(ctrl_path), "/dev/nvme%u", nr);
	return true;
}

static void add_device_tests(Suite *suite)
{
	TCase *tc = tcase_create("device");

	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, what_the_block_layer_wrote_is_read, 0, VARIANTS);
	tcase_add_loop_test(tc, what_passthrough_wrote_the_block_layer_reads, 0, VARIANTS);
	tcase_add_loop_test(tc, memory_may_lie_anywhere, 0, VARIANTS);
	tcase_add_loop_test(tc, arena_memory_is_used_as_registered_buffers, 0, VARIANTS);
	tcase_add_loop_test(tc, segments_are_read_and_written, 0, VARIANTS);
	tcase_add_loop_test(tc, what_is_longer_than_a_command_is_short_or_goes_on, 0, VARIANTS);
	tcase_add_loop_test(tc, the_end_of_the_namespace_is_that_of_a_block_device, 0, VARIANTS);
	tcase_add_loop_test(tc, a_crowd_reads_what_each_wrote, 0, VARIANTS);
	tcase_add_loop_test(tc, misaligned_reads_are_refused_with_a_sentence, 0, VARIANTS);
	tcase_add_loop_test(tc, a_command_longer_than_its_buffer_never_reaches_the_device, 0, VARIANTS);
	tcase_add_loop_test(tc, commands_for_the_other_node_are_refused, 0, VARIANTS);
	tcase_add_loop_test(tc, commands_of_the_callers_reach_the_device, 0, VARIANTS);
	tcase_add_loop_test(tc, the_controller_takes_admin_commands, 0, VARIANTS);
	tcase_add_loop_test(tc, statuses_of_the_device_arrive, 0, VARIANTS);
	tcase_add_loop_test(tc, media_errors_have_the_block_layers_errno, 0, VARIANTS);
	tcase_add_loop_test(tc, the_namespace_is_what_the_block_layer_says, 0, VARIANTS);
	tcase_add_loop_test(tc, the_report_says_passthrough, 0, VARIANTS);
	tcase_add_test(tc, polling_a_namespace_is_granted_where_there_are_poll_queues);
	tcase_add_test(tc, a_runtime_without_big_rings_refuses);
	tcase_add_test(tc, the_block_device_is_refused_and_the_node_named);
	tcase_add_test(tc, an_ordinary_user_is_told_or_works);
	suite_add_tcase(suite, tc);
}

int main(void)
{
	Suite *suite = suite_create("nvme");
	TCase *tc = tcase_create("anywhere");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_test(tc, what_is_no_nvme_is_refused_anywhere);
	tcase_add_loop_test(tc, a_runtime_with_big_rings_does_what_others_do, 0, 2);
	tcase_add_test(tc, started_outside_a_task_it_says_so);
	suite_add_tcase(suite, tc);
	if (find_nodes())
		add_device_tests(suite);
	else
		printf("skipping what needs a device: MRT_TEST_NVME_CHAR and MRT_TEST_NVME name no namespace\n");
	return itest_main(suite);
}
