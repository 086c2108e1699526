/* SPDX-License-Identifier: MIT */
/*
 * The rung report: see rung.h and docs/nvme.md.
 *
 * Nothing here decides anything on the path of an I/O. The device-facing half is looked up when a file is registered or
 * a report is asked for; the text names the file of sysfs, the option or the function that would change the answer, since
 * who reads it wants to know what to do.
 *
 * A file's device is that of its file system (st_dev). Where that is none of the block layer (btrfs, overlay, tmpfs, FUSE),
 * or a stack (device mapper, loop), what the top says is what counts: its queue's io_poll is the one that the kernel looks
 * at, and the trial has the last word. Where even that is wrong (a device mapper target that fails what is polled only when it
 * gets there), the polled op itself is refused, and the file is not polled from then on.
 */
#include "sched/rung.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "ring/ring.h"
#include "sched/nvme.h"

#define TRIAL_NS_MAX (2 * MRT__NS_PER_SEC)
#define TRIAL_ENTRIES 8u
#define TRIAL_BYTES_MAX (UINT32_C(64) << 10)    /* the largest block that is tried */
#define POLLED_BYTES_GUESS (UINT32_C(128) << 10) /* a limit that every queue has: where sysfs is silent */
#define PAGE_SHIFT 12
#define TRIAL_BYTES_GUESS 4096u                 /* where the kernel does not say */
#define SETUP_HYBRID_IOPOLL (1u << 17)          /* IORING_SETUP_HYBRID_IOPOLL */

/* ---- the device ---------------------------------------------------------------------------------------------- */

/*
 * STATX_DIOALIGN came with 6.1; the fields are read by their place, since the libc's structure may be older. They are
 * the 38th and 39th word of 64.
 */
#define DIOALIGN 0x2000u
#define DIOALIGN_MEM_WORD 38
#define DIOALIGN_OFF_WORD 39

bool mrt__rung_alignment(int fd, uint32_t *ret_mem, uint32_t *ret_off)
{
	union {
		struct statx stx;
		uint32_t words[64];
	} u = { .words = { 0 } };

	_Static_assert(sizeof(struct statx) == sizeof(u.words), "the kernel's ABI");
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, DIOALIGN, &u.stx) || !(u.stx.stx_mask & DIOALIGN))
		return false;
	*ret_mem = u.words[DIOALIGN_MEM_WORD];
	*ret_off = u.words[DIOALIGN_OFF_WORD];
	return true;
}

static void queue_path(const struct mrt__rung_dev *dev, const char *name, char *ret_path, size_t path_bytes)
{
	(void)snprintf(ret_path, path_bytes, "/sys/block/%s/queue/%s", dev->disk, name);
}

/* @return -1: no queue, or unknown */
static int64_t queue_number(const struct mrt__rung_dev *dev, const char *name)
{
	char path[96];

	if (!dev->disk[0])
		return -1;
	queue_path(dev, name, path, sizeof(path));
	return mrt__sysfs_number(path);
}

int mrt__rung_look(int fd, const struct mrt__nvme_ns *ns, struct mrt__rung_dev *ret_dev)
{
	struct mrt__rung_dev dev = { .kind = MRT__RUNG_OTHER, .io_poll = -1 };
	struct stat st;
	int flags;

	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fstat(fd, &st))
		return -errno;
	if (ns) {
		dev.kind = MRT__RUNG_NVME;
		dev.align_off = ns->nsid ? UINT32_C(1) << ns->lba_shift : 0;
		dev.align_mem = 1; /* the kernel copies where the device could not */
		(void)snprintf(dev.disk, sizeof(dev.disk), "%s", ns->disk);
	} else if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) {
		dev.kind = S_ISREG(st.st_mode) ? MRT__RUNG_REGULAR : MRT__RUNG_BLOCK;
		dev.direct = flags & O_DIRECT;
		dev.no_direct = mrt__rung_alignment(fd, &dev.align_mem, &dev.align_off) && dev.align_off == 0;
		if (!mrt__sysfs_disk(S_ISREG(st.st_mode) ? st.st_dev : st.st_rdev, dev.disk, sizeof(dev.disk)))
			dev.disk[0] = '\0';
	}
	dev.io_poll = (int8_t)queue_number(&dev, "io_poll");
	*ret_dev = dev;
	return 0;
}

/* ---- what may be polled for ---------------------------------------------------------------------------------- */

uint32_t mrt__rung_polled_max(int fd, const struct mrt__nvme_ns *ns)
{
	struct mrt__rung_dev dev;
	int64_t kib, segments, most = POLLED_BYTES_GUESS;

	if (ns)
		return UINT32_MAX;
	if (mrt__rung_look(fd, NULL, &dev))
		return POLLED_BYTES_GUESS;
	kib = queue_number(&dev, "max_sectors_kb");
	segments = queue_number(&dev, "max_segments");
	if (kib > 0 && kib <= UINT32_MAX >> 10)
		most = kib << 10;
	/* memory that does not begin with a page lies in one more */
	if (segments > 1 && (segments - 1) << PAGE_SHIFT < most)
		most = (segments - 1) << PAGE_SHIFT;
	return (uint32_t)most;
}

bool mrt__rung_polled_takes(uint32_t bytes_max, const struct iovec *iov, unsigned iov_nr)
{
	const uintptr_t in_page = (1u << PAGE_SHIFT) - 1;
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < iov_nr; i++) {
		uintptr_t begin = (uintptr_t)iov[i].iov_base;

		if (iov[i].iov_len > bytes_max - sum)
			return false;
		sum += iov[i].iov_len;
		if ((i > 0 && begin & in_page) || (i + 1 < iov_nr && (begin + iov[i].iov_len) & in_page))
			return false;
	}
	return true;
}

/* ---- words --------------------------------------------------------------------------------------------------- */

struct text {
	char *at;
	size_t left;            /* with the NUL */
	const char *between;    /* put before the next part; NULL: it is the first */
};

__attribute__((format(printf, 3, 4)))
static void add(struct text *text, const char *between, const char *fmt, ...)
{
	va_list args;
	int nr;

	nr = snprintf(text->at, text->left, "%s", text->between ? text->between : "");
	if (nr >= 0 && (size_t)nr < text->left) {
		text->at += nr;
		text->left -= (size_t)nr;
		va_start(args, fmt);
		nr = vsnprintf(text->at, text->left, fmt, args);
		va_end(args);
	}
	if (nr < 0 || (size_t)nr >= text->left)
		nr = (int)text->left - 1; /* cut to fit */
	text->at += nr;
	text->left -= (size_t)nr;
	text->between = between;
}

static bool is_said(const char *why)
{
	return why && why[0];
}

/* Which option of which driver makes poll queues. */
static const char *poll_option(const char *disk)
{
	if (!strncmp(disk, "nvme", 4))
		return ": load it with nvme.poll_queues=N";
	if (!strncmp(disk, "vd", 2))
		return ": load it with virtio_blk.poll_queues=N";
	return "";
}

/* Why polling is out of the question, without a trial. @return false: it is not */
static bool why_not_polled(const struct mrt__rung_dev *dev, char *why, size_t why_bytes)
{
	char path[96];

	if (dev->kind == MRT__RUNG_OTHER) {
		(void)snprintf(why, why_bytes, "neither a file nor a block device");
		return true;
	}
	if (dev->kind != MRT__RUNG_NVME && !dev->direct) {
		(void)snprintf(why, why_bytes, "only direct I/O can be polled for");
		return true;
	}
	if (dev->io_poll == 0) {
		queue_path(dev, "io_poll", path, sizeof(path));
		(void)snprintf(why, why_bytes, "%s is 0 (the driver has no poll queues%s)", path, poll_option(dev->disk));
		return true;
	}
	return false;
}

static void add_direct(struct text *text, const struct mrt__rung_dev *dev)
{
	if (dev->kind == MRT__RUNG_OTHER)
		add(text, "; ", "not direct: neither a file nor a block device");
	else if (dev->no_direct)
		add(text, "; ", "not direct: this file system does not support O_DIRECT here");
	else
		add(text, "; ", "not direct: opened without O_DIRECT");
}

static void add_polled(struct text *text, const struct mrt__rung_facts *f)
{
	char why[200];

	if (f->polled_asked && is_said(f->polled_why))
		add(text, "; ", "not polled: %s", f->polled_why);
	else if (why_not_polled(&f->dev, why, sizeof(why)))
		add(text, "; ", "not polled: %s", why);
	else if (!f->polled_asked)
		add(text, "; ", "not polled: not registered with MRT_FILE_POLLED%s",
		    f->dev.io_poll == 1 ? ", and the device could" : "");
	else
		add(text, "; ", "not polled: refused");
}

static void add_passthrough(struct text *text, const struct mrt__rung_dev *dev)
{
	unsigned ctrl, ns;

	if (sscanf(dev->disk, "nvme%un%u", &ctrl, &ns) != 2)
		add(text, "; ", "no passthrough: %s is no NVMe device", dev->disk[0] ? dev->disk : "this");
	else
		add(text, "; ", "no passthrough: that takes the node /dev/ng%un%u%s", ctrl, ns,
		    dev->kind == MRT__RUNG_REGULAR ? ", which knows no file systems" : "");
}

static bool has_fixed_buffer(const struct mrt__rung_facts *f)
{
	return f->fixed_buffer && !f->buffer_refused;
}

/* What was reached, then what was not, each from the lowest rung up. */
static void compose(const struct mrt__rung_facts *f, char *ret_text, size_t text_bytes)
{
	struct text text = { ret_text, text_bytes, NULL };

	add(&text, ", ", "%s", f->passthrough ? "NVMe passthrough" : f->dev.direct ? "O_DIRECT" : "buffered");
	if (has_fixed_buffer(f))
		add(&text, ", ", "fixed buffer");
	if (f->fixed_file)
		add(&text, ", ", "registered file");
	if (f->polled)
		add(&text, ", ", "%s", f->hybrid ? "polled (hybrid)" : "polled");

	text.between = "; ";
	if (!f->passthrough && !f->dev.direct)
		add_direct(&text, &f->dev);
	if (f->buffer_refused)
		add(&text, "; ", "no fixed buffer: this kernel refuses them in NVMe commands");
	else if (!f->fixed_buffer)
		add(&text, "; ", "no fixed buffer: %s",
		    is_said(f->buffer_why) ? f->buffer_why : "the memory is none of mrt_alloc()");
	if (!f->fixed_file && f->handle)
		add(&text, "; ", "not registered with the rings: %s", is_said(f->file_why) ? f->file_why : "refused");
	else if (!f->fixed_file)
		add(&text, "; ", "no registered file: see mrt_file_register()");
	if (!f->polled)
		add_polled(&text, f);
	else if (f->hybrid_asked && !f->hybrid)
		add(&text, "; ", "not hybrid: the kernel lacks it (6.13)");
	if (!f->passthrough)
		add_passthrough(&text, &f->dev);
}

static enum mrt_rung highest(const struct mrt__rung_facts *f)
{
	if (f->passthrough)
		return MRT_RUNG_PASSTHROUGH;
	if (f->polled)
		return MRT_RUNG_POLLED;
	if (f->fixed_file)
		return MRT_RUNG_FIXED_FILE;
	if (has_fixed_buffer(f))
		return MRT_RUNG_FIXED_BUFFER;
	return f->dev.direct ? MRT_RUNG_DIRECT : MRT_RUNG_BUFFERED;
}

void mrt__rung_report(const struct mrt__rung_facts *f, struct mrt_rung_report *ret_report)
{
	struct mrt_rung_report report = {
		.rung = highest(f), .direct = f->dev.direct || f->passthrough, .fixed_buffer = has_fixed_buffer(f),
		.fixed_file = f->fixed_file, .polled = f->polled, .hybrid = f->polled && f->hybrid,
		.passthrough = f->passthrough, .align_mem = f->dev.align_mem, .align_off = f->dev.align_off,
	};

	compose(f, report.text, sizeof(report.text));
	*ret_report = report;
}

/* ---- the trial ----------------------------------------------------------------------------------------------- */

struct trial {
	struct mrt__ring *ring;
	void *buf;
	uint32_t bytes;
};

/* One read of one block, or where that is not allowed a write of none. @return false: the ring took nothing */
static bool trial_stage(struct trial *t, int fd, const struct mrt__nvme_ns *ns)
{
	bool write_only = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
	struct mrt__ring_args args = {
		.opcode = write_only ? MRT__OPCODE_WRITE : MRT__OPCODE_READ, .fd = fd, .addr = (uintptr_t)t->buf,
		.len = write_only ? 0 : t->bytes,
	};
	uint8_t cmd[MRT__RING_CMD_BYTES];

	if (!ns)
		return mrt__ring_stage(t->ring, &args, 0, t);
	if (mrt__nvme_build_rw(ns, false, (uintptr_t)t->buf, t->bytes, 0, cmd) <= 0)
		return false;
	args = (struct mrt__ring_args){ .opcode = MRT__OPCODE_URING_CMD, .fd = fd, .off = MRT__NVME_URING_IO };
	return mrt__ring_stage_cmd(t->ring, &args, cmd, t);
}

/* @return the read's result, or -ETIME: it has not ended, the kernel still has the buffer */
static int32_t trial_wait(struct trial *t)
{
	uint64_t until = mrt__clock_now() + TRIAL_NS_MAX;
	struct mrt__ring_done done;
	unsigned events = 0;

	do {
		(void)mrt__ring_flush(t->ring); /* what it did shows in the reap */
		if (mrt__ring_reap(t->ring, &done, 1, &events))
			return done.res;
	} while (mrt__clock_now() < until);
	return -ETIME;
}

static int trial_ring(struct trial *t, bool big, bool hybrid, bool *ret_hybrid, char *why, size_t why_bytes)
{
	struct mrt__ring_opts opts = {
		.sq_entries = TRIAL_ENTRIES, .cq_entries = 2 * TRIAL_ENTRIES, .sq_cpu = -1,
		.flags = MRT__RING_OPT_IOPOLL | (hybrid ? MRT__RING_OPT_HYBRID : 0) | (big ? MRT__RING_OPT_BIG : 0),
	};
	struct mrt_ring_report report;
	int ret = mrt__ring_create(&opts, &t->ring, why, why_bytes);

	if (ret)
		return ret;
	ret = mrt__ring_enable(t->ring, NULL);
	if (ret) {
		(void)snprintf(why, why_bytes, "a polled ring cannot be enabled: %s", strerror(-ret));
		mrt__ring_destroy(t->ring);
		return ret;
	}
	mrt__ring_report(t->ring, &report);
	*ret_hybrid = report.setup_flags & SETUP_HYBRID_IOPOLL;
	return 0;
}

static int trial_run(struct trial *t, int fd, const struct mrt__nvme_ns *ns, char *why, size_t why_bytes)
{
	int32_t res;

	if (!trial_stage(t, fd, ns)) {
		(void)snprintf(why, why_bytes, "no read can be tried");
		return -EOPNOTSUPP;
	}
	res = trial_wait(t);
	if (res == -ETIME)
		(void)snprintf(why, why_bytes, "a polled read has not ended in 2 s");
	else if (res == -EOPNOTSUPP)
		(void)snprintf(why, why_bytes, "the kernel refuses to poll for it (%s)",
			       ns ? "no poll queues" : "the file system or its device cannot");
	else if (res < 0)
		(void)snprintf(why, why_bytes, "a polled read failed: %s", strerror(-res));
	else if (ns && res > 0)
		(void)snprintf(why, why_bytes, "a polled read failed with NVMe status %#x", (unsigned)res);
	else
		return 0;
	return res < 0 ? res : -EIO;
}

int mrt__rung_poll_trial(int fd, const struct mrt__nvme_ns *ns, bool hybrid, bool *ret_hybrid, char *why, size_t why_bytes)
{
	struct mrt__rung_dev dev;
	struct trial *t;
	int ret = mrt__rung_look(fd, ns, &dev);

	if (ret) {
		(void)snprintf(why, why_bytes, "%s", strerror(-ret));
		return ret;
	}
	if (why_not_polled(&dev, why, why_bytes))
		return -EOPNOTSUPP;
	if (ns && ns->nsid == 0) {
		(void)snprintf(why, why_bytes, "admin commands cannot be polled for");
		return -EOPNOTSUPP;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		(void)snprintf(why, why_bytes, "no memory to try it");
		return -ENOMEM;
	}
	t->bytes = dev.align_off && dev.align_off <= TRIAL_BYTES_MAX ? dev.align_off : TRIAL_BYTES_GUESS;
	t->buf = aligned_alloc(TRIAL_BYTES_MAX, TRIAL_BYTES_MAX);
	(void)snprintf(why, why_bytes, "%s", t->buf ? "" : "no memory to try it");
	ret = t->buf ? trial_ring(t, ns != NULL, hybrid, ret_hybrid, why, why_bytes) : -ENOMEM;
	if (ret == 0) {
		ret = trial_run(t, fd, ns, why, why_bytes);
		/* a read that has not ended, or a ring that cannot be drained, keeps its memory: it is the kernel's */
		if (ret == -ETIME || mrt__ring_drain(t->ring))
			return ret ? ret : -ETIME;
		mrt__ring_destroy(t->ring);
	}
	free(t->buf);
	free(t);
	return ret;
}
