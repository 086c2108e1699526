/* SPDX-License-Identifier: MIT */
/*
 * File ops: each start function checks what the kernel would not, and fills an SQE in. What goes on afterwards (steps of
 * _exact and _all, retries, cancels) is op.c's.
 *
 * Credits: what ends by itself takes one. Ops at the descriptor's own position may be on a pipe, a terminal or a socket
 * and wait for a peer, so they take none; neither do splice (one side is a pipe) and poll.
 *
 * Paths are copied, so that they may be on the starter's stack: the kernel reads them at submission, which is later.
 */
#include "sched/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <martlet/file.h>
#include <martlet/runtime.h>

#include "sched/files.h"
#include "sched/op_begin.h"
#include "sched/op_run.h"
#include "sched/rung.h"
#include "sched/sched.h"
#include "sched/task.h"
#include "sched/worker.h"

#define PATH_BYTES_MAX 4096u    /* with the NUL: the kernel's PATH_MAX */
#define IOV_NR_MAX 1024u        /* the kernel's UIO_MAXIOV */

_Static_assert(MRT_AT_FDCWD == AT_FDCWD, "public constant");

/* ---- read and write ------------------------------------------------------------------------------------------ */

static inline bool is_offset(int64_t off)
{
	return off >= 0 || off == MRT_OFF_CURRENT;
}

static inline unsigned rw_flags(int64_t off)
{
	return off == MRT_OFF_CURRENT ? 0 : MRT__OPF_CREDIT | MRT__OPF_RETRY;
}

struct mrt_op *mrt_read(struct mrt_op *op, int fd, void *buf, size_t len, int64_t off)
{
	return mrt__op_start_read(op, 0, fd, buf, mrt__io_len(len), off);
}

struct mrt_op *mrt_write(struct mrt_op *op, int fd, const void *buf, size_t len, int64_t off)
{
	return mrt__op_start_write(op, 0, fd, buf, mrt__io_len(len), off);
}

struct mrt_op *mrt_read_exact(struct mrt_op *op, int fd, void *buf, size_t len, int64_t off)
{
	if (mrt__unlikely(len > MRT_IO_BYTES_MAX))
		return mrt__op_refuse(op, MRT__OP_READ, -EINVAL);
	return mrt__op_start_read(op, MRT__OPF_ALL, fd, buf, (uint32_t)len, off);
}

struct mrt_op *mrt_write_all(struct mrt_op *op, int fd, const void *buf, size_t len, int64_t off)
{
	if (mrt__unlikely(len > MRT_IO_BYTES_MAX))
		return mrt__op_refuse(op, MRT__OP_WRITE, -EINVAL);
	return mrt__op_start_write(op, MRT__OPF_ALL, fd, buf, (uint32_t)len, off);
}

static struct mrt_op *start_rwv(struct mrt_op *op, enum mrt__op_kind kind, enum mrt__opcode opcode, int fd,
				const struct iovec *iov, unsigned iov_nr, int64_t off)
{
	struct mrt__ring_args args = {
		.opcode = (uint8_t)opcode, .fd = fd, .addr = mrt__io_addr(iov), .len = iov_nr, .off = (uint64_t)off,
	};

	if (mrt__unlikely(iov_nr == 0 || iov_nr > IOV_NR_MAX || !iov || !is_offset(off)))
		return mrt__op_refuse(op, kind, -EINVAL);
	return mrt__io_start(op, kind, rw_flags(off) | MRT__OPF_IOV, args);
}

struct mrt_op *mrt_readv(struct mrt_op *op, int fd, const struct iovec *iov, unsigned iov_nr, int64_t off)
{
	return start_rwv(op, MRT__OP_READV, MRT__OPCODE_READV, fd, iov, iov_nr, off);
}

struct mrt_op *mrt_writev(struct mrt_op *op, int fd, const struct iovec *iov, unsigned iov_nr, int64_t off)
{
	return start_rwv(op, MRT__OP_WRITEV, MRT__OPCODE_WRITEV, fd, iov, iov_nr, off);
}

struct mrt_op *mrt_splice(struct mrt_op *pub, int fd_in, int64_t off_in, int fd_out, int64_t off_out, size_t len,
			  unsigned flags)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w;

	if (!is_offset(off_in) || !is_offset(off_out) || len == 0 || len > UINT32_MAX)
		return mrt__op_refuse(pub, MRT__OP_SPLICE, -EINVAL);
	/* OUT: it has none, but is in the list of cancels while it is held, which only the slow ways deal with */
	w = mrt__op_begin(op, MRT__OP_SPLICE, (mrt__is_handle(fd_out) ? MRT__OPF_FILE | MRT__OPF_OUT : 0) |
					      (mrt__is_handle(fd_in) ? MRT__OPF_FILE2 | MRT__OPF_OUT : 0));
	if (!w)
		return pub;
	op->raw = fd_in;
	op->io = (struct mrt__ring_args){
		.opcode = MRT__OPCODE_SPLICE, .fd = fd_out, .off = (uint64_t)off_out, .addr = (uint64_t)off_in,
		.len = (uint32_t)len, .op_flags = flags,
	};
	return mrt__op_submit(w, op);
}

struct mrt_op *mrt_poll_fd(struct mrt_op *op, int fd, unsigned events)
{
	struct mrt__ring_args args = { .opcode = MRT__OPCODE_POLL_ADD, .fd = fd, .op_flags = events };

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	args.op_flags = events << 16 | events >> 16; /* the kernel reads the halves of poll32_events swapped */
#endif
	return mrt__io_start(op, MRT__OP_POLL, 0, args);
}

/* ---- paths --------------------------------------------------------------------------------------------------- */

/* Copy one or two paths, the second behind the first, into memory that becomes the op's. @return 0 or -errno */
static int copy_paths(const char *path, const char *second, char **ret_copy, char **ret_second)
{
	size_t bytes, second_bytes;
	char *copy;

	if (!path || !second)
		return -EINVAL;
	bytes = strnlen(path, PATH_BYTES_MAX) + 1;
	second_bytes = strnlen(second, PATH_BYTES_MAX) + 1;
	if (bytes > PATH_BYTES_MAX || second_bytes > PATH_BYTES_MAX)
		return -ENAMETOOLONG;
	copy = malloc(bytes + second_bytes);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, path, bytes);
	memcpy(copy + bytes, second, second_bytes);
	*ret_copy = copy;
	*ret_second = copy + bytes;
	return 0;
}

/* As mrt__io_start, with args.addr being memory of the op. */
static struct mrt_op *start_owning(struct mrt_op *pub, enum mrt__op_kind kind, unsigned flags, char *copy,
				   struct mrt__ring_args args)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w;

	if (mrt__is_handle(args.fd))
		flags |= MRT__OPF_FILE | MRT__OPF_DIRFD;
	w = mrt__op_begin(op, kind, flags | MRT__OPF_OWNS_MEM | MRT__OPF_CREDIT);
	if (!w) {
		free(copy);
		return pub;
	}
	op->raw = 0;
	op->io = args;
	op->io.addr = mrt__io_addr(copy);
	return mrt__op_submit(w, op);
}

static struct mrt_op *start_path(struct mrt_op *op, enum mrt__op_kind kind, unsigned flags, const char *path,
				 struct mrt__ring_args args)
{
	char *copy, *none;
	int ret = copy_paths(path, "", &copy, &none);

	if (ret)
		return mrt__op_refuse(op, kind, ret);
	return start_owning(op, kind, flags, copy, args);
}

struct mrt_op *mrt_open(struct mrt_op *op, int dirfd, const char *path, int flags, unsigned mode)
{
	return start_path(op, MRT__OP_OPEN, MRT__OPF_OPENS_FD, path, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_OPENAT, .fd = dirfd, .len = mode, .op_flags = (uint32_t)(flags | O_CLOEXEC),
	});
}

struct mrt_op *mrt_statx(struct mrt_op *op, int dirfd, const char *path, int flags, unsigned mask,
			 struct statx *ret_stx)
{
	if (!ret_stx)
		return mrt__op_refuse(op, MRT__OP_STATX, -EINVAL);
	return start_path(op, MRT__OP_STATX, MRT__OPF_OUT, path, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_STATX, .fd = dirfd, .len = mask, .off = mrt__io_addr(ret_stx),
		.op_flags = (uint32_t)flags,
	});
}

struct mrt_op *mrt_unlink(struct mrt_op *op, int dirfd, const char *path, int flags)
{
	return start_path(op, MRT__OP_UNLINK, 0, path, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_UNLINKAT, .fd = dirfd, .op_flags = (uint32_t)flags,
	});
}

struct mrt_op *mrt_mkdir(struct mrt_op *op, int dirfd, const char *path, unsigned mode)
{
	return start_path(op, MRT__OP_MKDIR, 0, path, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_MKDIRAT, .fd = dirfd, .len = mode,
	});
}

struct mrt_op *mrt_rename(struct mrt_op *op, int olddirfd, const char *oldpath, int newdirfd, const char *newpath,
			  unsigned flags)
{
	char *old_copy, *new_copy;
	int ret = copy_paths(oldpath, newpath, &old_copy, &new_copy);

	if (ret)
		return mrt__op_refuse(op, MRT__OP_RENAME, ret);
	return start_owning(op, MRT__OP_RENAME, mrt__is_handle(newdirfd) ? MRT__OPF_FILE2 : 0, old_copy, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_RENAMEAT, .fd = olddirfd, .len = (uint32_t)newdirfd,
		.off = mrt__io_addr(new_copy), .op_flags = flags,
	});
}

/* ---- descriptors --------------------------------------------------------------------------------------------- */

struct mrt_op *mrt_close(struct mrt_op *op, int fd)
{
	if (mrt__is_handle(fd))
		return mrt__file_end(op, MRT__OP_CLOSE_FILE, fd);
	/* shielded: a descriptor that an aborted task has opened must not stay open */
	return mrt__io_start(op, MRT__OP_CLOSE, MRT__OPF_CREDIT | MRT__OPF_SHIELDED, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_CLOSE, .fd = fd,
	});
}

struct mrt_op *mrt_fsync(struct mrt_op *op, int fd)
{
	return mrt__io_start(op, MRT__OP_FSYNC, MRT__OPF_CREDIT, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_FSYNC, .fd = fd,
	});
}

struct mrt_op *mrt_fdatasync(struct mrt_op *op, int fd)
{
	return mrt__io_start(op, MRT__OP_FDATASYNC, MRT__OPF_CREDIT, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_FSYNC, .fd = fd, .op_flags = MRT__RING_FSYNC_DATASYNC,
	});
}

struct mrt_op *mrt_fallocate(struct mrt_op *op, int fd, int mode, int64_t off, int64_t len)
{
	if (off < 0 || len < 0)
		return mrt__op_refuse(op, MRT__OP_FALLOCATE, -EINVAL);
	return mrt__io_start(op, MRT__OP_FALLOCATE, MRT__OPF_CREDIT, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_FALLOCATE, .fd = fd, .off = (uint64_t)off, .addr = (uint64_t)len,
		.len = (uint32_t)mode,
	});
}

/* @return 0 or -errno */
static int truncate_here(struct mrt__worker *w, int fd, int64_t len)
{
	if (mrt__is_handle(fd)) {
		/* knowing it makes a close wait for this worker's turn, which comes after this call */
		struct mrt__file_use *u = mrt__file_use_of(w, fd);

		if (!u)
			return -EBADF;
		fd = u->fd;
	}
	return ftruncate(fd, len) ? -errno : 0;
}

struct mrt_op *mrt_ftruncate(struct mrt_op *pub, int fd, int64_t len)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w;

	if (len < 0)
		return mrt__op_refuse(pub, MRT__OP_FTRUNCATE, -EINVAL);
	w = mrt__op_begin(op, MRT__OP_FTRUNCATE, MRT__OPF_CREDIT | (mrt__is_handle(fd) ? MRT__OPF_FILE : 0));
	if (!w)
		return pub;
	if (!mrt__ring_has_opcode(w->ring, MRT__OPCODE_FTRUNCATE)) {
		mrt__op_end_inline(op, truncate_here(w, fd, len));
		return pub;
	}
	op->raw = 0;
	op->io = (struct mrt__ring_args){ .opcode = MRT__OPCODE_FTRUNCATE, .fd = fd, .off = (uint64_t)len };
	return mrt__op_submit(w, op);
}

struct mrt_op *mrt_fadvise(struct mrt_op *pub, int fd, int64_t off, int64_t len, int advice)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w;

	if (off < 0 || len < 0)
		return mrt__op_refuse(pub, MRT__OP_FADVISE, -EINVAL);
	w = mrt__op_begin(op, MRT__OP_FADVISE, MRT__OPF_CREDIT | (mrt__is_handle(fd) ? MRT__OPF_FILE : 0));
	if (!w)
		return pub;
	op->raw = 0;
	op->io = (struct mrt__ring_args){
		.opcode = MRT__OPCODE_FADVISE, .fd = fd, .off = (uint64_t)off, .op_flags = (uint32_t)advice,
	};
	if (len <= UINT32_MAX)
		op->io.len = (uint32_t)len;
	else if (mrt__ring_has_opcode(w->ring, MRT__OPCODE_BIND))
		op->io.addr = (uint64_t)len;
	return mrt__op_submit(w, op);
}

/* ---- why direct I/O was refused ------------------------------------------------------------------------------ */

/* What the kernel has, in bytes, of what direct I/O on a descriptor must be a multiple of. */
struct dio_align {
	uint32_t mem;
	uint32_t off;
	bool known;             /* false: guessed */
};

static struct dio_align dio_align_of(int fd)
{
	struct dio_align guess = { 512, 512, false }; /* the smallest logical block there is */
	struct dio_align align = { .known = true };

	return mrt__rung_alignment(fd, &align.mem, &align.off) ? align : guess;
}

/* The first segment that is not aligned, or the first of all. */
static struct iovec worst_segment(const struct mrt__op *op, const struct dio_align *align)
{
	struct iovec one = { (void *)(uintptr_t)op->io.addr, op->io.len };
	const struct iovec *iov = one.iov_base;
	uint32_t i;

	if (!mrt__op_is_vectored(op))
		return one;
	for (i = 0; i < op->io.len; i++) {
		if ((uintptr_t)iov[i].iov_base % align->mem || iov[i].iov_len % align->off)
			return iov[i];
	}
	return iov[0];
}

static void explain_direct(const struct mrt__op *op, int fd, const struct dio_align *align)
{
	int64_t off = (int64_t)op->io.off;
	struct iovec iov = worst_segment(op, align);
	bool bad_mem, bad_len, bad_off;

	if (off == MRT_OFF_CURRENT)
		off = lseek(fd, 0, SEEK_CUR); /* no position: -1, which is then the sentence's answer */
	bad_mem = (uintptr_t)iov.iov_base % align->mem;
	bad_len = iov.iov_len % align->off;
	bad_off = off < 0 || (uint64_t)off % align->off;
	if (align->known && !bad_mem && !bad_len && !bad_off)
		return; /* refused for another reason */
	mrt__sched_log(op->task->sched, MRT_LOG_ERROR,
		       "%s on fd %d got EINVAL; it is open with O_DIRECT: address %p%s, length %zu%s, offset %lld%s; "
		       "needed are multiples of %u for the address, of %u for length and offset%s",
		       mrt__op_kind_name(op->kind), fd, iov.iov_base, bad_mem ? " (not aligned)" : "",
		       iov.iov_len, bad_len ? " (not aligned)" : "", (long long)off, bad_off ? " (not aligned)" : "",
		       align->mem, align->off,
		       align->known ? "" : ", or more: the file system does not say, try 4096");
}

void mrt__file_explain_einval(struct mrt__op *op)
{
	struct dio_align align;
	int flags, fd = op->io.fd;

	if (!mrt__op_is_rw(op))
		return;
	if (op->flags & MRT__OPF_FILE) {
		const struct mrt__file *f = mrt__file_of(op->task->sched->files, fd);

		if (!f)
			return;
		fd = f->fd;
	}
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || !(flags & O_DIRECT))
		return;
	align = dio_align_of(fd);
	if (align.mem && align.off)
		explain_direct(op, fd, &align);
	else
		mrt__sched_log(op->task->sched, MRT_LOG_ERROR,
			       "%s on fd %d got EINVAL: it is open with O_DIRECT, which this file does not support",
			       mrt__op_kind_name(op->kind), fd);
}
