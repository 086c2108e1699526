/* SPDX-License-Identifier: MIT */
/*
 * A file that the run makes has no name as far as that is possible: O_TMPFILE, or unlinked as soon as it is open. So it
 * is gone whatever ends the process, SIGKILL included. It is filled with random data, written the way it will be read:
 * a hole, or a block of zeros that zram stores as nothing, would not be read at all.
 *
 * A device is opened for writing with O_EXCL, which the kernel refuses while anything has claimed it: a mount in any
 * namespace, swap, RAID, device mapper. The mount table is read as well, to say what holds it.
 */
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "clock.h"
#include "nvme.h"
#include "rng.h"
#include "sys.h"

#define FILL_BYTES (1u << 20)

__attribute__((format(printf, 3, 4)))
static int refuse(FILE *err, int rc, const char *fmt, ...)
{
	va_list ap;

	fputs("martlet bench: ", err);
	va_start(ap, fmt);
	vfprintf(err, fmt, ap);
	va_end(ap);
	fputc('\n', err);
	return rc;
}

/* --- what it is --- */

/* A field of the queue below a device; partitions have theirs one level up. */
static bool read_queue(const struct target *t, const char *field, char *buf, size_t buf_bytes)
{
	return sys_read_line(buf, buf_bytes, "/sys/dev/block/%u:%u/%s", t->major, t->minor, field) ||
	       sys_read_line(buf, buf_bytes, "/sys/dev/block/%u:%u/../%s", t->major, t->minor, field);
}

/* "mq-deadline" out of "none [mq-deadline] kyber". */
static void pick_bracketed(char *line)
{
	char *open = strchr(line, '['), *close = open ? strchr(open, ']') : NULL;

	if (close) {
		*close = '\0';
		memmove(line, open + 1, strlen(open + 1) + 1);
	}
}

static void learn_disk(struct target *t)
{
	char line[256], link[512];
	ssize_t n;

	snprintf(line, sizeof(line), "/sys/dev/block/%u:%u", t->major, t->minor);
	n = readlink(line, link, sizeof(link) - 1);
	if (n <= 0)
		return;
	link[n] = '\0';
	snprintf(t->disk, sizeof(t->disk), "%.60s", strrchr(link, '/') ? strrchr(link, '/') + 1 : link);
	if (read_queue(t, "device/model", line, sizeof(line)))
		snprintf(t->model, sizeof(t->model), "%.79s", line);
	if (read_queue(t, "queue/scheduler", line, sizeof(line))) {
		pick_bracketed(line);
		snprintf(t->scheduler, sizeof(t->scheduler), "%.31s", line);
	}
	if (read_queue(t, "queue/nr_requests", line, sizeof(line)))
		t->nr_requests = (unsigned)strtoul(line, NULL, 10);
	if (read_queue(t, "queue/io_poll", line, sizeof(line)))
		t->io_poll = line[0] == '1';
	if (read_queue(t, "queue/rotational", line, sizeof(line)))
		t->rotational = line[0] == '1';
	if (read_queue(t, "queue/logical_block_size", line, sizeof(line)))
		t->logical_block = (uint32_t)strtoul(line, NULL, 10);
}

static int learn_size(struct target *t, const struct stat *st, FILE *err)
{
	uint64_t bytes;

	t->is_block = S_ISBLK(st->st_mode);
	if (t->is_block) {
		if (ioctl(t->fd, BLKGETSIZE64, &bytes))
			return refuse(err, -errno, "%s: no size: %s", t->path, strerror(errno));
		t->bytes = bytes;
		t->major = major(st->st_rdev);
		t->minor = minor(st->st_rdev);
	} else {
		t->bytes = (uint64_t)st->st_size;
		t->major = major(st->st_dev);
		t->minor = minor(st->st_dev);
	}
	return 0;
}

static void learn_alignment(struct target *t)
{
	struct statx stx = { 0 };

	if (t->logical_block == 0)
		t->logical_block = 512;
	t->mem_align = t->off_align = t->logical_block;
	if (statx(t->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 && (stx.stx_mask & STATX_DIOALIGN) &&
	    stx.stx_dio_offset_align) {
		t->align_reported = true;
		t->mem_align = stx.stx_dio_mem_align;
		t->off_align = stx.stx_dio_offset_align;
	}
}

static void learn_holes(struct target *t)
{
	off_t hole = lseek(t->fd, 0, SEEK_HOLE);

	t->has_holes = !t->is_block && hole >= 0 && (uint64_t)hole < t->bytes;
}

static int learn_nvme(struct target *t, const struct bench_opts *o, FILE *err);

static int learn(struct target *t, const struct bench_opts *o, FILE *err)
{
	struct stat st;
	int rc;

	if (o->fast.nvme)
		return learn_nvme(t, o, err);
	if (fstat(t->fd, &st))
		return refuse(err, -errno, "%s: %s", t->path, strerror(errno));
	rc = learn_size(t, &st, err);
	if (rc)
		return rc;
	if (!t->is_block)
		(void)sys_mount_of_fd(t->fd, t->fs, sizeof(t->fs), t->source, sizeof(t->source)); /* stays "" */
	learn_disk(t);
	learn_alignment(t);
	learn_holes(t);
	return 0;
}

static const char *size_text(char buf[32], uint64_t bytes)
{
	if (bytes < UINT64_C(1) << 30)
		snprintf(buf, 32, "%.3g MiB", (double)bytes / 0x1p20);
	else
		snprintf(buf, 32, "%.2f GiB", (double)bytes / 0x1p30);
	return buf;
}

void target_describe(const struct target *t, char *buf, size_t buf_bytes)
{
	char queue[256] = "", requests[32] = "", all[32], region[32];
	bool is_device = t->is_block || t->is_nvme;

	if (t->nr_requests)
		snprintf(requests, sizeof(requests), ", nr_requests %u", t->nr_requests);
	if (t->disk[0])
		snprintf(queue, sizeof(queue), "; %s%s%s, scheduler %s%s%s", t->disk, t->model[0] ? " " : "", t->model,
			 t->scheduler[0] ? t->scheduler : "none", requests, t->io_poll ? ", poll queues" : "");
	snprintf(buf, buf_bytes, "%s: %s %s%s%s%s, %s, region %s at %" PRIu64 "%s", t->path,
		 t->is_made ? "own" : "existing", t->is_nvme ? "NVMe namespace" : t->is_block ? "block device" : "file",
		 is_device ? "" : " on ", is_device ? "" : t->fs[0] ? t->fs : "an unknown file system",
		 queue, size_text(all, t->bytes), size_text(region, t->len), t->off, t->has_holes ? ", has holes" : "");
}

static void warn_of(const struct target *t, const struct bench_opts *o, FILE *err)
{
	if (strcmp(t->fs, "tmpfs") == 0)
		fputs("warning: on tmpfs each read of a ring goes to a kernel worker thread (io-wq): that is measured, "
		      "not storage\n", err);
	if (t->is_block && strncmp(t->disk, "zram", 4) == 0)
		fputs("warning: raw zram sends each read of a ring to a kernel worker thread (io-wq): that is measured; "
		      "a file on XFS on zram completes inline\n", err);
	if (t->has_holes && o->reads)
		fputs("warning: the file has holes; reading a hole touches no storage\n", err);
	if (t->rotational && o->direct && t->is_block)
		fputs("note: the device calls itself rotational\n", err);
}

void targets_warn(const struct targets *ts, const struct bench_opts *o, FILE *err)
{
	for (unsigned i = 0; i < ts->nr; i++)
		warn_of(&ts->t[i], o, err);
}

/* --- safety --- */

/* The disk below an NVMe character device, which knows nothing of mounts. */
static int hold_nvme_disk(struct target *t, const struct bench_opts *o, FILE *err)
{
	char path[96], where[512];
	struct stat st;

	if (!o->writes)
		return 0;
	if (!t->disk[0])
		return refuse(err, -EPERM, "%s has no block device by which one could see whether it is in use: not "
			      "written to", t->path);
	snprintf(path, sizeof(path), "/dev/%s", t->disk);
	t->held_fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (t->held_fd >= 0)
		return 0;
	if (errno == EBUSY && stat(path, &st) == 0 &&
	    sys_mounted_at(major(st.st_rdev), minor(st.st_rdev), where, sizeof(where)))
		return refuse(err, -EBUSY, "%s is in use: mounted at %s; commands would destroy that file system", path,
			      where);
	return refuse(err, -errno, "%s: %s: commands do not write to a device that cannot be held", path,
		      strerror(errno));
}

static int learn_nvme(struct target *t, const struct bench_opts *o, FILE *err)
{
	struct nvme_namespace ns;
	char path[96];
	struct stat st;
	int rc = nvme_identify(t->fd, &ns);

	if (rc)
		return refuse(err, rc, "%s: no NVMe namespace: %s", t->path, strerror(-rc));
	if (ns.metadata_bytes)
		return refuse(err, -EINVAL, "%s has %u bytes of metadata with each block, which bench cannot move", t->path,
			      ns.metadata_bytes);
	t->is_nvme = true;
	t->bytes = ns.bytes;
	t->nvme_nsid = ns.nsid;
	t->nvme_lba_shift = ns.lba_shift;
	t->logical_block = 1u << ns.lba_shift;
	if (nvme_disk_of(t->path, t->disk, sizeof(t->disk))) {
		snprintf(path, sizeof(path), "/dev/%s", t->disk);
		if (stat(path, &st) == 0) {
			t->major = major(st.st_rdev);
			t->minor = minor(st.st_rdev);
			learn_disk(t);
		}
	} else {
		t->disk[0] = '\0';
	}
	t->mem_align = 4;
	t->off_align = 1u << ns.lba_shift;
	t->align_reported = true;
	return hold_nvme_disk(t, o, err);
}

static int refuse_held(const char *path, const struct stat *st, FILE *err)
{
	char where[512];

	if (sys_mounted_at(major(st->st_rdev), minor(st->st_rdev), where, sizeof(where)))
		return refuse(err, -EBUSY, "%s is in use: mounted at %s; writing would destroy that file system", path,
			      where);
	return 0;
}

static int check_may_write(const char *path, const struct stat *st, const struct bench_opts *o, FILE *err)
{
	if (!o->writes)
		return 0;
	if (!o->allow_write)
		return refuse(err, -EPERM, "--rw=%s would overwrite %s; add --allow-write if that is meant, or let "
			      "--create make a file", o->rw, path);
	return S_ISBLK(st->st_mode) ? refuse_held(path, st, err) : 0;
}

/* A path with a colon that was not escaped is a list of two to us. A device is not made by us. */
static const char *hint_absent(const struct bench_opts *o, const char *path, int code)
{
	struct stat st;

	if (code != ENOENT)
		return "";
	if (o->targets_nr > 1 && stat(o->filename, &st) == 0)
		return "; in a name that holds a colon, write it as \\:";
	if (o->fast.nvme)
		return "; ls /dev/ng* lists the character devices of NVMe namespaces";
	if (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0)
		return "; lsblk lists the block devices that there are";
	return "; --create --size=SIZE makes it";
}

static int open_existing(struct target *t, const char *path, const struct bench_opts *o, FILE *err)
{
	struct stat st;
	int rc;

	if (stat(path, &st)) {
		rc = -errno;
		return refuse(err, rc, "%s: %s%s", path, strerror(-rc), hint_absent(o, path, -rc));
	}
	if (S_ISCHR(st.st_mode) != o->fast.nvme)
		return refuse(err, -EINVAL, o->fast.nvme ? "%s is no character device: --cmd_type=nvme needs /dev/ngXnY" :
			      "%s is a character device, and a regular file or a block device is needed; NVMe's /dev/ngXnY wants "
			      "--cmd_type=nvme", path);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode) && !S_ISCHR(st.st_mode))
		return refuse(err, -EINVAL, "%s is %s: a regular file or a block device is needed", path,
			      S_ISDIR(st.st_mode) ? "a folder (with --create a file is made in it)" : "neither");
	rc = check_may_write(path, &st, o, err);
	if (rc)
		return rc;
	t->path = path;
	t->open_flags = (o->writes ? O_RDWR : O_RDONLY) | (o->direct && !o->fast.nvme ? O_DIRECT : 0) |
			O_CLOEXEC;
	t->fd = open(t->path, t->open_flags | (S_ISBLK(st.st_mode) && o->writes ? O_EXCL : 0));
	if (t->fd < 0 && errno == EBUSY)
		return refuse(err, -EBUSY, "%s is in use (mounted, swap, or part of another device): not written to",
			      t->path);
	if (t->fd < 0)
		return refuse(err, -errno, "%s: %s%s", t->path, strerror(errno), errno == EINVAL && o->direct ?
			      "; its file system has no direct I/O" : "");
	return 0;
}

/* --- making a file --- */

static int open_made(struct target *t, const char *path, const struct bench_opts *o, FILE *err)
{
	int flags = O_RDWR | (o->direct ? O_DIRECT : 0) | O_CLOEXEC;
	struct stat st;
	bool in_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);

	if (in_dir)
		snprintf(t->made_path, sizeof(t->made_path), "%.4000s/martlet-bench.%d.%u", path, (int)getpid(), t->idx);
	else
		snprintf(t->made_path, sizeof(t->made_path), "%.4090s", path);
	t->path = t->made_path;
	t->open_flags = flags;
	t->fd = in_dir && !o->keep ? open(path, flags | O_TMPFILE, 0600) : -1;
	if (t->fd >= 0)
		return 0;
	t->fd = open(t->made_path, flags | O_CREAT | O_EXCL, 0600);
	if (t->fd < 0)
		return refuse(err, -errno, "%s: %s%s", t->made_path, strerror(errno), errno == EEXIST ?
			      ": --create makes a new file; without it the existing one is measured" : "");
	if (!o->keep)
		(void)unlink(t->made_path); /* if it fails the file stays under its name, which the report gives */
	return 0;
}

static uint64_t align_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static int fill_file(struct target *t, uint64_t bytes, uint64_t seed, const atomic_int *stop, char *buf)
{
	uint64_t state = rng_seed(seed);

	for (uint64_t off = 0; off < bytes;) {
		size_t n = bytes - off < FILL_BYTES ? (size_t)(bytes - off) : FILL_BYTES;
		ssize_t wrote;

		/* relaxed: a flag that a signal handler sets */
		if (atomic_load_explicit(stop, memory_order_relaxed))
			return -EINTR;
		for (size_t i = 0; i + 8 <= n; i += 8) {
			uint64_t word = rng_next(&state);

			memcpy(buf + i, &word, 8);
		}
		wrote = pwrite(t->fd, buf, n, (off_t)off);
		if (wrote < 0 && errno != EINTR)
			return -errno;
		if (wrote > 0)
			off += (uint64_t)wrote;
	}
	return fsync(t->fd) ? -errno : 0;
}

/* --size is that of all targets together, as in fio. */
static uint64_t size_of_each(const struct bench_opts *o)
{
	return o->size / o->targets_nr;
}

static int lay_out(struct target *t, const struct bench_opts *o, const atomic_int *stop, FILE *err)
{
	uint64_t bytes = align_up(size_of_each(o), 4096);
	char *buf, size[32];
	int rc;

	t->is_made = true;
	if (fallocate(t->fd, 0, 0, (off_t)bytes) && errno != EOPNOTSUPP)
		return refuse(err, -errno, "%s: no room for %" PRIu64 " bytes: %s", t->path, bytes, strerror(errno));
	buf = mmap(NULL, FILL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED)
		return refuse(err, -ENOMEM, "no memory for 1 MiB");
	fprintf(err, "making %s: %s of random data\n", t->path, size_text(size, bytes));
	rc = fill_file(t, bytes, o->seed + t->idx, stop, buf);
	munmap(buf, FILL_BYTES);
	if (rc && rc != -EINTR)
		return refuse(err, rc, "%s: filling it: %s", t->path, strerror(-rc));
	return rc;
}

/* --- the region --- */

static int check_direct(const struct target *t, const struct bench_opts *o, FILE *err)
{
	const char *needs = t->align_reported ? "as it reports" : "its logical block size; it reports no need";

	if (o->bs % t->off_align)
		return refuse(err, -EINVAL, "--direct: length: --bs=%" PRIu64 " is no multiple of %u, which %s needs (%s)",
			      o->bs, t->off_align, t->path, needs);
	if (o->offset % t->off_align)
		return refuse(err, -EINVAL, "--direct: offset: --offset=%" PRIu64 " is no multiple of %u, which %s needs "
			      "(%s)", o->offset, t->off_align, t->path, needs);
	if (t->mem_align > 4096)
		return refuse(err, -EINVAL, "--direct: address: buffers are aligned to 4096, %s needs %u (%s)", t->path,
			      t->mem_align, needs);
	return 0;
}

static int settle_region(struct target *t, const struct bench_opts *o, FILE *err)
{
	uint64_t want = o->size_percent ? t->bytes / 100 * o->size_percent : size_of_each(o);

	if (t->bytes == 0)
		return refuse(err, -EINVAL, "%s is empty", t->path);
	if (o->offset >= t->bytes)
		return refuse(err, -EINVAL, "--offset=%" PRIu64 " is beyond %s, which has %" PRIu64 " bytes", o->offset,
			      t->path, t->bytes);
	t->off = o->offset;
	t->len = t->bytes - t->off;
	if (want && want > t->len && !t->is_made)
		return refuse(err, -EINVAL, "--size=%" PRIu64 " from offset %" PRIu64 " is beyond %s, which has %" PRIu64
			      " bytes", want, t->off, t->path, t->bytes);
	if (want && want < t->len)
		t->len = want;
	t->len -= t->len % o->bs;
	if (t->len / o->bs < o->numjobs)
		return refuse(err, -EINVAL, "the region of %s has %" PRIu64 " blocks of --bs=%" PRIu64 ", fewer than --numjobs=%u",
			      t->path, t->len / o->bs, o->bs, o->numjobs);
	if (o->verify && t->len / o->bs < 2ull * o->iodepth * o->numjobs)
		return refuse(err, -EINVAL, "--verify keeps two I/Os off one block, which needs a region of twice the "
			      "depth: %llu blocks, not %" PRIu64, 2ull * o->iodepth * o->numjobs, t->len / o->bs);
	return o->direct ? check_direct(t, o, err) : 0;
}

static int open_one(struct target *t, unsigned idx, const struct bench_opts *o, const atomic_int *stop, FILE *err)
{
	const char *path = opts_target(o, idx);
	int rc;

	t->idx = idx;
	t->fd = t->held_fd = -1;
	rc = o->create ? open_made(t, path, o, err) : open_existing(t, path, o, err);
	if (rc == 0 && o->create)
		rc = lay_out(t, o, stop, err);
	if (rc == 0)
		rc = learn(t, o, err);
	if (rc == 0)
		rc = settle_region(t, o, err);
	return rc;
}

/* Two I/Os on one block at once, and a device that is held by ourselves: neither is meant. */
static int check_distinct(const struct targets *ts, const struct target *t, FILE *err)
{
	struct stat st, other;

	if (fstat(t->fd, &st))
		return refuse(err, -errno, "%s: %s", t->path, strerror(errno));
	for (unsigned i = 0; i < t->idx; i++) {
		const struct target *o = &ts->t[i];

		if (fstat(o->fd, &other))
			return refuse(err, -errno, "%s: %s", o->path, strerror(errno));
		if (!t->is_nvme != !o->is_nvme)
			continue;
		if (t->is_block || t->is_nvme ? o->is_block == t->is_block && st.st_rdev == other.st_rdev :
				  st.st_dev == other.st_dev && st.st_ino == other.st_ino)
			return refuse(err, -EINVAL, "%s and %s are one target", o->path, t->path);
	}
	return 0;
}

int targets_open(struct targets *ts, const struct bench_opts *o, const atomic_int *stop, FILE *err)
{
	int rc = 0;

	*ts = (struct targets){ .t = calloc(o->targets_nr, sizeof(*ts->t)) };
	if (!ts->t)
		return refuse(err, -ENOMEM, "no memory for %u targets", o->targets_nr);
	for (unsigned i = 0; i < o->targets_nr && rc == 0; i++) {
		ts->nr++;
		rc = open_one(&ts->t[i], i, o, stop, err);
		if (rc == 0)
			rc = check_distinct(ts, &ts->t[i], err);
		ts->len += ts->t[i].len;
	}
	if (rc == 0)
		return 0;
	for (unsigned i = 0; i < ts->nr; i++) {
		if (o->keep && ts->t[i].fd >= 0)
			(void)unlink(ts->t[i].made_path); /* half made, so not worth keeping */
	}
	targets_close(ts);
	return rc;
}

void targets_note_disks(struct targets *ts)
{
	for (unsigned i = 0; i < ts->nr; i++) {
		struct target *t = &ts->t[i];

		t->disk_known = sys_disk_stat(t->major, t->minor, &t->disk_begin);
		t->disk_begin_ns = clock_ns();
	}
}

void targets_close(struct targets *ts)
{
	for (unsigned i = 0; i < ts->nr; i++) {
		if (ts->t[i].fd >= 0)
			(void)close(ts->t[i].fd); /* what was written has been synced or does not matter */
		if (ts->t[i].held_fd >= 0)
			(void)close(ts->t[i].held_fd); /* it was only held */
	}
	free(ts->t);
	*ts = (struct targets){ 0 };
}

int target_reopen(const struct target *t, const struct bench_opts *o)
{
	int flags = (t->open_flags & ~O_DIRECT) | (o->direct && !t->is_nvme ? O_DIRECT : 0), fd;
	char link[64];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", t->fd);
	fd = open(link, flags);
	return fd < 0 ? -errno : fd;
}

static int pre_read(const struct target *t, const atomic_int *stop)
{
	char *buf = malloc(FILL_BYTES);
	int rc = 0;

	if (!buf)
		return -ENOMEM;
	for (uint64_t off = 0; off < t->len && rc == 0;) {
		size_t n = t->len - off < FILL_BYTES ? (size_t)(t->len - off) : FILL_BYTES;
		ssize_t got = pread(t->fd, buf, n, (off_t)(t->off + off));

		if (got > 0)
			off += (uint64_t)got;
		else if (got == 0)
			break;
		else if (errno != EINTR)
			rc = -errno;
		if (atomic_load_explicit(stop, memory_order_relaxed)) /* relaxed: a signal's flag */
			rc = -EINTR;
	}
	free(buf);
	return rc;
}

int targets_pre_read(const struct targets *ts, const atomic_int *stop)
{
	int rc = 0;

	for (unsigned i = 0; i < ts->nr && rc == 0; i++)
		rc = pre_read(&ts->t[i], stop);
	return rc;
}
