/* SPDX-License-Identifier: MIT */
/*
 * File ops. Each is the system call of its name, without errno: the result is `res`. Raw calls may be short, like the
 * system call; _all and _exact forms go on inside the op.
 *
 * For every function here:
 *
 * @thread  the running task's worker (elsewhere the op completes with -EINVAL and the log says how)
 * @owner   op, buffers, iovec arrays and out-structures are the runtime's until the op completes; paths are copied
 * @blocks  never
 * @result  what the system call returns, >= 0, or its -errno; besides:
 *          -EINVAL      an argument outside its range; O_DIRECT: address, length or offset not aligned, and the log says
 *                       which one and what is needed
 *          -ECANCELED   cancelled before anything was done
 *          -ETIMEDOUT   its deadline passed before anything was done
 *          -EAGAIN      the kernel needs a thread for it and can start none (RLIMIT_NPROC)
 *          -ESHUTDOWN   the runtime is closing
 *          -ECHILD      in a child after fork
 * @return op
 */
#ifndef MARTLET_FILE_H
#define MARTLET_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <martlet/export.h>
#include <martlet/op.h>
#include <martlet/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt_runtime;
struct statx;

#define MRT_OFF_CURRENT INT64_C(-1) /* the descriptor's own position; also for pipes and sockets */
#define MRT_AT_FDCWD (-100)         /* as AT_FDCWD: paths are relative to the working directory */
#define MRT_IO_BYTES_MAX 0x7ffff000u /* what one read or write moves at most, as read(2) */

/**
 * Open a file. O_CLOEXEC is added.
 *
 * A descriptor that arrives after its task has returned is closed by the runtime.
 *
 * A FIFO without a peer: with O_RDONLY alone it does not wait; with O_CREAT it waits on an io-wq thread, of which a worker
 * has 16 for files.
 *
 * @param dirfd  directory, or MRT_AT_FDCWD
 * @param path   NUL-terminated, at most 4,095 bytes (else -ENAMETOOLONG)
 * @param flags  O_* of open(2)
 * @param mode   permission bits for O_CREAT
 * @result  descriptor
 */
MRT_API struct mrt_op *mrt_open(struct mrt_op *op, int dirfd, const char *path, int flags, unsigned mode);

#define MRT_FILE_POLLED (1u << 0)      /* completions by polling the device: needs O_DIRECT and a device with poll queues */
#define MRT_FILE_PASSTHROUGH (1u << 1) /* NVMe commands: see nvme.h */

/**
 * Register a file with the runtime: its handle saves the kernel a look-up and a reference for each op, on any worker.
 *
 * The descriptor is the runtime's from now on: do not close or use it. The handle is a number outside the range of
 * descriptors, taken wherever a descriptor is; one that was closed gets -EBADF, also when its place was taken by another
 * file since. Destroying the runtime closes what is still registered.
 *
 * What was asked for and cannot be had (polling, a ring's table) is left out; mrt_file_report() says so.
 *
 * @thread  any
 * @owner   fd is the runtime's, on failure still the caller's
 * @blocks  for a trial read with MRT_FILE_POLLED; for the device to identify itself with MRT_FILE_PASSTHROUGH
 *
 * @param rt     NULL: the running task's
 * @param flags  MRT_FILE_*
 * @return a handle, >= 2^30; or
 *         -EBADF      fd is no descriptor
 *         -EINVAL     unknown flags; no runtime
 *         -ENFILE     files_max files are registered
 *         -EOPNOTSUPP MRT_FILE_PASSTHROUGH: not an NVMe character node, or the runtime lacks MRT_RUNTIME_NVME
 *         -EACCES     MRT_FILE_PASSTHROUGH: the device refuses to identify itself to this user
 *         -ESHUTDOWN  the runtime is closing
 *         -ECHILD     in a child after fork
 */
MRT_API int mrt_file_register(struct mrt_runtime *rt, int fd, unsigned flags);

/**
 * End a handle and get its descriptor back. Ops in flight on it are cancelled, on every ring; what a device works on
 * ends normally. Not cancelled by an abort.
 *
 * @param file  a handle
 * @result  the descriptor, when the last op on it has ended; -EBADF: no valid handle
 */
MRT_API struct mrt_op *mrt_file_unregister(struct mrt_op *op, int file);

/**
 * Close a descriptor: close(2) alone. Ops in flight on it go on: cancel them first. Not cancelled by an abort.
 *
 * A handle: cancel what is in flight on it on every ring, wait for that, and close. So it may wait for a device. Ops that
 * were cancelled by it say -ECANCELED.
 *
 * @result  0
 */
MRT_API struct mrt_op *mrt_close(struct mrt_op *op, int fd);

/**
 * Read.
 *
 * @param buf  [len]
 * @param len  0..SIZE_MAX; at most MRT_IO_BYTES_MAX are moved at once
 * @param off  bytes from the start of the file, or MRT_OFF_CURRENT. On a pipe or socket always the latter: with an offset
 *             io_uring waits all the same, but the op counts as one that ends by itself, and many of them hold up file I/O
 * @result  bytes, 0 at end of file; may be short
 */
MRT_API struct mrt_op *mrt_read(struct mrt_op *op, int fd, void *buf, size_t len, int64_t off);

/* Write; parameters as mrt_read. @result bytes; may be short */
MRT_API struct mrt_op *mrt_write(struct mrt_op *op, int fd, const void *buf, size_t len, int64_t off);

/**
 * Read until len bytes or the end of the file.
 *
 * @param len  0..MRT_IO_BYTES_MAX; more is -EINVAL
 * @result  bytes: len, or less at end of file; where an error ended it after it had moved bytes, their number, and
 *          the error in op->why
 */
MRT_API struct mrt_op *mrt_read_exact(struct mrt_op *op, int fd, void *buf, size_t len, int64_t off);

/**
 * Write all len bytes.
 *
 * @param len  0..MRT_IO_BYTES_MAX; more is -EINVAL
 * @result  len; where an error ended it after it had moved bytes, their number, and the error in op->why
 */
MRT_API struct mrt_op *mrt_write_all(struct mrt_op *op, int fd, const void *buf, size_t len, int64_t off);

/**
 * Vectored read.
 *
 * @param iov     [iov_nr] segments
 * @param iov_nr  1..1024
 * @result  bytes, may be short
 */
MRT_API struct mrt_op *mrt_readv(struct mrt_op *op, int fd, const struct iovec *iov, unsigned iov_nr, int64_t off);

/* Vectored write; as mrt_readv. */
MRT_API struct mrt_op *mrt_writev(struct mrt_op *op, int fd, const struct iovec *iov, unsigned iov_nr, int64_t off);

/* Flush data and metadata. Not ordered against writes in flight: await those first. @result 0 */
MRT_API struct mrt_op *mrt_fsync(struct mrt_op *op, int fd);

/* Flush data, and the metadata that is needed to read it. @result 0 */
MRT_API struct mrt_op *mrt_fdatasync(struct mrt_op *op, int fd);

/* Preallocate or punch; mode as fallocate(2); off, len >= 0. @result 0 */
MRT_API struct mrt_op *mrt_fallocate(struct mrt_op *op, int fd, int mode, int64_t off, int64_t len);

/* Set a file's length, len >= 0. Kernels before 6.9: done on the worker, which it may block. @result 0 */
MRT_API struct mrt_op *mrt_ftruncate(struct mrt_op *op, int fd, int64_t len);

/**
 * Get a file's attributes.
 *
 * @param path   relative to dirfd; "" with AT_EMPTY_PATH in flags: dirfd itself
 * @param mask   STATX_*
 * @param ret_stx  written on success
 * @result  0
 */
MRT_API struct mrt_op *mrt_statx(struct mrt_op *op, int dirfd, const char *path, int flags, unsigned mask,
				 struct statx *ret_stx);

/* Remove a name; flags 0 or AT_REMOVEDIR. @result 0 */
MRT_API struct mrt_op *mrt_unlink(struct mrt_op *op, int dirfd, const char *path, int flags);

/* Rename; flags as renameat2(2). @result 0 */
MRT_API struct mrt_op *mrt_rename(struct mrt_op *op, int olddirfd, const char *oldpath, int newdirfd,
				  const char *newpath, unsigned flags);

/* Make a directory. @result 0 */
MRT_API struct mrt_op *mrt_mkdir(struct mrt_op *op, int dirfd, const char *path, unsigned mode);

/**
 * Announce an access pattern.
 *
 * @param off, len  >= 0; len 0: to the end, and on kernels before 6.11 so is a len above UINT32_MAX
 * @param advice    as posix_fadvise(2)
 * @result  0
 */
MRT_API struct mrt_op *mrt_fadvise(struct mrt_op *op, int fd, int64_t off, int64_t len, int advice);

/**
 * Move bytes between two descriptors, one of them a pipe.
 *
 * @param off_in, off_out  position, or MRT_OFF_CURRENT (needed for the pipe)
 * @param len    1..UINT32_MAX
 * @param flags  SPLICE_F_*
 * @result  bytes moved, 0 at end of input
 */
MRT_API struct mrt_op *mrt_splice(struct mrt_op *op, int fd_in, int64_t off_in, int fd_out, int64_t off_out, size_t len,
				  unsigned flags);

/**
 * Wait until a descriptor is ready.
 *
 * @param events  POLLIN | POLLOUT | ...
 * @result  the events that are there, > 0
 */
MRT_API struct mrt_op *mrt_poll_fd(struct mrt_op *op, int fd, unsigned events);

/* ---- which rung ---- */

/* The rungs of the ladder, from what costs most per I/O to what costs least. */
enum mrt_rung {
	MRT_RUNG_BUFFERED = 0,          /* through the page cache */
	MRT_RUNG_DIRECT = 1,            /* O_DIRECT */
	MRT_RUNG_FIXED_BUFFER = 2,      /* memory that the ring has pinned: mrt_alloc() */
	MRT_RUNG_FIXED_FILE = 3,        /* a file that the ring holds: mrt_file_register() */
	MRT_RUNG_POLLED = 4,            /* MRT_FILE_POLLED: completions are looked for, not announced by interrupts */
	MRT_RUNG_PASSTHROUGH = 5        /* MRT_FILE_PASSTHROUGH: NVMe commands, no block layer */
};

/* Which rung a file got. The highest need not mean that all below it were reached: see the single ones, and the text. */
struct mrt_rung_report {
	uint32_t rung;          /* the highest: enum mrt_rung */
	uint32_t direct;        /* 1: these hold, 0: they do not */
	uint32_t fixed_buffer;
	uint32_t fixed_file;
	uint32_t polled;
	uint32_t hybrid;        /* polled, and the kernel sleeps before it polls */
	uint32_t passthrough;
	uint32_t align_mem;     /* direct I/O: what addresses must be a multiple of; 0: unknown */
	uint32_t align_off;     /* ... offsets and lengths; 0: unknown, try 4096 */
	char text[512];         /* all of this in words, and for each rung that was not reached why not */
};

/**
 * Say on which rung a file's reads and writes are, and why they are not on the next.
 *
 * @thread  any
 * @blocks  for a look into sysfs
 * @param rt   NULL: the running task's
 * @param fd   descriptor, or one from mrt_file_register()
 * @param buf  the memory that is to be read into or written from; NULL: such of mrt_alloc()
 * @return 0, -EINVAL, -EBADF, -ECHILD; -EMFILE (a handle is looked at through a second descriptor)
 */
MRT_API int mrt_file_report(struct mrt_runtime *rt, int fd, const void *buf, struct mrt_rung_report *ret_report);

#ifdef __cplusplus
}
#endif

#endif
