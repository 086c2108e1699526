/* SPDX-License-Identifier: MIT */
/*
 * Every op of file.h on a real folder, with its errors. The folder is under $TMPDIR, which may be any file system; what
 * needs another one (a full tmpfs, a small ext4) mounts it, where that is allowed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

static char dir[FIXTURE_PATH];
static int top; /* dir, open */

#define MIB (1 << 20)

/* ---- open, write, read, close ---- */

ITEST_TASK(write_and_read_back, { struct mrt_op op; int fd; char out[64]; char in[64]; })
{
	MRT_BEGIN(self);
	snprintf(f->out, sizeof(f->out), "what was written");
	MRT_AWAIT(self, mrt_open(&f->op, top, "rw", O_RDWR | O_CREAT | O_TRUNC, 0600));
	ck_assert_int_ge(f->op.res, 0);
	f->fd = (int)f->op.res;
	ck_assert_int_eq(fcntl(f->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	MRT_AWAIT(self, mrt_write(&f->op, f->fd, f->out, sizeof(f->out), 100));
	ck_assert_int_eq(f->op.res, sizeof(f->out));
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->in, sizeof(f->in), 100));
	ck_assert_int_eq(f->op.res, sizeof(f->in));
	ck_assert_mem_eq(f->in, f->out, sizeof(f->in));
	/* a hole reads as zeros, the end as 0, beyond it too; 0 bytes are 0 bytes */
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->in, 1, 0));
	ck_assert_int_eq(f->op.res, 1);
	ck_assert_int_eq(f->in[0], 0);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->in, sizeof(f->in), 164));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->in, sizeof(f->in), INT64_C(1) << 40));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->in, 0, 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_write(&f->op, f->fd, f->in, 0, 0));
	ck_assert_int_eq(f->op.res, 0);
	/* the descriptor's own position */
	MRT_AWAIT(self, mrt_write(&f->op, f->fd, "abc", 3, MRT_OFF_CURRENT));
	MRT_AWAIT(self, mrt_write(&f->op, f->fd, "def", 3, MRT_OFF_CURRENT));
	ck_assert_int_eq(lseek(f->fd, 0, SEEK_CUR), 6);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->in, 6, 0));
	ck_assert_mem_eq(f->in, "abcdef", 6);
	MRT_AWAIT(self, mrt_fsync(&f->op, f->fd));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_fdatasync(&f->op, f->fd));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->fd));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->fd));
	ck_assert_int_eq(f->op.res, -EBADF);
	MRT_RETURN(self, 0);
}

/* Paths are copied: the starter's may be on its stack. */
static struct mrt_op *open_from_stack(struct mrt_op *op, const char *name)
{
	char path[FIXTURE_PATH + 32];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	mrt_open(op, MRT_AT_FDCWD, path, O_RDWR | O_CREAT, 0600);
	memset(path, 'x', sizeof(path));
	return op;
}

ITEST_TASK(paths_are_copied, { struct mrt_op op; struct stat st; char path[FIXTURE_PATH + 32]; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, open_from_stack(&f->op, "stack"));
	ck_assert_int_ge(f->op.res, 0);
	MRT_AWAIT(self, mrt_close(&f->op, (int)f->op.res));
	snprintf(f->path, sizeof(f->path), "%s/stack", dir);
	ck_assert_int_eq(stat(f->path, &f->st), 0);
	MRT_RETURN(self, 0);
}

/* ---- errors ---- */

#define ERR(expr, code)                                                                                 \
	do {                                                                                            \
		MRT_AWAIT(self, expr);                                                                  \
		ck_assert_msg(f->op.res == -(code), "%s: %lld, expected %d", #expr, (long long)f->op.res, -(code)); \
	} while (0)

ITEST_TASK(errors_of_paths, { struct mrt_op op; char longest[5000]; struct statx stx; })
{
	MRT_BEGIN(self);
	memset(f->longest, 'n', sizeof(f->longest));
	f->longest[4999] = '\0';
	ERR(mrt_open(&f->op, top, "none", O_RDONLY, 0), ENOENT);
	ERR(mrt_open(&f->op, top, "", O_RDONLY, 0), ENOENT);
	ERR(mrt_open(&f->op, top, NULL, O_RDONLY, 0), EINVAL);
	ERR(mrt_open(&f->op, top, f->longest, O_RDONLY, 0), ENAMETOOLONG);
	ERR(mrt_statx(&f->op, top, f->longest, 0, 0, &f->stx), ENAMETOOLONG);
	ERR(mrt_unlink(&f->op, top, f->longest, 0), ENAMETOOLONG);
	ERR(mrt_mkdir(&f->op, top, f->longest, 0), ENAMETOOLONG);
	ERR(mrt_rename(&f->op, top, f->longest, top, "x", 0), ENAMETOOLONG);
	ERR(mrt_rename(&f->op, top, "x", top, f->longest, 0), ENAMETOOLONG);
	f->longest[300] = '\0'; /* a component, not a path: the kernel's word */
	ERR(mrt_open(&f->op, top, f->longest, O_RDONLY, 0), ENAMETOOLONG);
	ERR(mrt_open(&f->op, -5, "none", O_RDONLY, 0), EBADF);
	ERR(mrt_open(&f->op, MRT_AT_FDCWD, dir, O_RDWR, 0), EISDIR);
	ERR(mrt_open(&f->op, MRT_AT_FDCWD, "/dev/null/x", O_RDONLY, 0), ENOTDIR);
	ERR(mrt_statx(&f->op, top, "none", 0, 0, &f->stx), ENOENT);
	ERR(mrt_statx(&f->op, top, "none", 0, 0, NULL), EINVAL);
	ERR(mrt_unlink(&f->op, top, "none", 0), ENOENT);
	ERR(mrt_rename(&f->op, top, "none", top, "x", 0), ENOENT);
	ERR(mrt_mkdir(&f->op, MRT_AT_FDCWD, dir, 0700), EEXIST);
	ERR(mrt_mkdir(&f->op, top, "none/x", 0700), ENOENT);
	ERR(mrt_unlink(&f->op, MRT_AT_FDCWD, dir, AT_REMOVEDIR), ENOTEMPTY);
	MRT_RETURN(self, 0);
}

ITEST_TASK(errors_of_descriptors_and_ranges, {
	struct mrt_op op; char buf[16]; struct iovec iov; int rd; int wr; int pipe[2];
})
{
	MRT_BEGIN(self);
	f->iov = (struct iovec){ f->buf, sizeof(f->buf) };
	ck_assert_int_eq(pipe(f->pipe), 0);
	f->wr = openat(top, "wronly", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	f->rd = openat(top, "wronly", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(f->rd, 0);
	ERR(mrt_read(&f->op, -1, f->buf, 4, 0), EBADF);
	ERR(mrt_read(&f->op, 100000, f->buf, 4, 0), EBADF);
	ERR(mrt_read(&f->op, f->wr, f->buf, 4, 0), EBADF);
	ERR(mrt_write(&f->op, f->rd, f->buf, 4, 0), EBADF);
	ERR(mrt_readv(&f->op, f->wr, &f->iov, 1, 0), EBADF);
	ERR(mrt_writev(&f->op, f->rd, &f->iov, 1, 0), EBADF);
	ERR(mrt_fsync(&f->op, -1), EBADF);
	ERR(mrt_fdatasync(&f->op, -1), EBADF);
	ERR(mrt_fallocate(&f->op, -1, 0, 0, 1), EBADF);
	ERR(mrt_ftruncate(&f->op, -1, 0), EBADF);
	ERR(mrt_fadvise(&f->op, -1, 0, 0, POSIX_FADV_NORMAL), EBADF);
	ERR(mrt_poll_fd(&f->op, -1, POLLIN), EBADF);
	ERR(mrt_close(&f->op, -1), EBADF);
	ERR(mrt_read(&f->op, f->rd, f->buf, 4, -2), EINVAL);
	ERR(mrt_write(&f->op, f->wr, f->buf, 4, INT64_MIN), EINVAL);
	ERR(mrt_read_exact(&f->op, f->rd, f->buf, (size_t)MRT_IO_BYTES_MAX + 1, 0), EINVAL);
	ERR(mrt_write_all(&f->op, f->wr, f->buf, (size_t)3 << 30, 0), EINVAL);
	ERR(mrt_readv(&f->op, f->rd, &f->iov, 0, 0), EINVAL);
	ERR(mrt_readv(&f->op, f->rd, &f->iov, 1025, 0), EINVAL);
	ERR(mrt_readv(&f->op, f->rd, NULL, 1, 0), EINVAL);
	ERR(mrt_writev(&f->op, f->wr, NULL, 1, 0), EINVAL);
	ERR(mrt_writev(&f->op, f->wr, &f->iov, 1, -7), EINVAL);
	ERR(mrt_fallocate(&f->op, f->wr, 0, -1, 1), EINVAL);
	ERR(mrt_fallocate(&f->op, f->wr, 0, 0, -1), EINVAL);
	ERR(mrt_ftruncate(&f->op, f->wr, -1), EINVAL);
	ERR(mrt_fadvise(&f->op, f->rd, -1, 0, POSIX_FADV_NORMAL), EINVAL);
	ERR(mrt_fadvise(&f->op, f->rd, 0, 0, 77), EINVAL);
	ERR(mrt_splice(&f->op, f->rd, 0, f->pipe[1], MRT_OFF_CURRENT, 0, 0), EINVAL);
	ERR(mrt_splice(&f->op, f->rd, 0, f->pipe[1], MRT_OFF_CURRENT, (size_t)1 << 33, 0), EINVAL);
	ERR(mrt_splice(&f->op, f->rd, -2, f->pipe[1], MRT_OFF_CURRENT, 1, 0), EINVAL);
	ERR(mrt_splice(&f->op, f->rd, 0, f->wr, 0, 1, 0), EINVAL);
	ERR(mrt_read(&f->op, f->rd, (void *)16, 4096, 0) /* at the end: nothing is touched */, 0);
	ck_assert_int_eq(write(f->wr, "data", 4), 4);
	ERR(mrt_read(&f->op, f->rd, (void *)16, 4, 0), EFAULT);
	ERR(mrt_write(&f->op, f->wr, (void *)16, 4, 0), EFAULT);
	close(f->rd);
	close(f->wr);
	close(f->pipe[0]);
	close(f->pipe[1]);
	MRT_RETURN(self, 0);
}

/* ---- more than one call moves ---- */

#define LARGE ((size_t)3 << 30)

/* Raw calls move 2 GiB - 4 KiB at most, as the system calls do; a sparse file and one page mapped over and over. */
ITEST_TASK(a_read_of_three_gigabytes_is_cut, { struct mrt_op op; char *buf; int fd; })
{
	MRT_BEGIN(self);
	f->fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	/* never touched: the read faults at its first page that is not there */
	f->buf = mmap(NULL, LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(f->buf, MAP_FAILED);
	ERR(mrt_read(&f->op, f->fd, f->buf, LARGE, 0), EFAULT);
	/* /dev/null takes what a call moves at most, without looking */
	close(f->fd);
	f->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	MRT_AWAIT(self, mrt_write(&f->op, f->fd, f->buf, LARGE, 0));
	ck_assert_int_eq(f->op.res, MRT_IO_BYTES_MAX);
	MRT_AWAIT(self, mrt_write(&f->op, f->fd, f->buf, SIZE_MAX, 0));
	ck_assert_int_eq(f->op.res, MRT_IO_BYTES_MAX);
	MRT_AWAIT(self, mrt_write_all(&f->op, f->fd, f->buf, MRT_IO_BYTES_MAX, 0));
	ck_assert_int_eq(f->op.res, MRT_IO_BYTES_MAX);
	ck_assert_int_eq(munmap(f->buf, LARGE), 0);
	close(f->fd);
	MRT_RETURN(self, 0);
}

ITEST_TASK(big_transfers, { struct mrt_op op; int fd; unsigned char *out; unsigned char *in; })
{
	MRT_BEGIN(self);
	f->out = malloc(80 * MIB);
	f->in = malloc(80 * MIB);
	fixture_pattern(f->out, 80 * MIB, 5, 0);
	f->fd = openat(top, "big", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(f->fd, 0);
	MRT_AWAIT(self, mrt_write_all(&f->op, f->fd, f->out, 80 * MIB, 0));
	ck_assert_int_eq(f->op.res, 80 * MIB);
	ck_assert_int_eq(f->op.why, 0);
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->in, 80 * MIB, 0));
	ck_assert_int_eq(f->op.res, 80 * MIB);
	ck_assert_int_eq(memcmp(f->in, f->out, 80 * MIB), 0);
	free(f->out);
	free(f->in);
	close(f->fd);
	ck_assert_int_eq(unlinkat(top, "big", 0), 0);
	MRT_RETURN(self, 0);
}

/* ---- exact and all ---- */

ITEST_TASK(exact_stops_at_the_end, { struct mrt_op op; int fd; int pipe[2]; struct mrt_op write; char buf[256]; })
{
	MRT_BEGIN(self);
	f->fd = openat(top, "exact", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(f->fd, "0123456789", 10), 10);
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->buf, 4, 3));
	ck_assert_int_eq(f->op.res, 4);
	ck_assert_mem_eq(f->buf, "3456", 4);
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->buf, 100, 3));
	ck_assert_int_eq(f->op.res, 7);
	ck_assert_int_eq(f->op.why, 0);
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->buf, 100, 10));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->buf, 0, 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_write_all(&f->op, f->fd, f->buf, 0, 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->buf, 100, MRT_OFF_CURRENT)); /* position is at the end */
	ck_assert_int_eq(f->op.res, 0);
	close(f->fd);
	/* a pipe gives it in pieces */
	ck_assert_int_eq(pipe(f->pipe), 0);
	mrt_read_exact(&f->op, f->pipe[0], f->buf, 12, MRT_OFF_CURRENT);
	MRT_AWAIT(self, mrt_write(&f->write, f->pipe[1], "abcd", 4, MRT_OFF_CURRENT));
	MRT_AWAIT(self, mrt_sleep(&f->write, MRT_MS(1)));
	ck_assert(!mrt_op_is_done(&f->op));
	MRT_AWAIT(self, mrt_write(&f->write, f->pipe[1], "efgh", 4, MRT_OFF_CURRENT));
	MRT_AWAIT(self, mrt_write(&f->write, f->pipe[1], "ijkl", 4, MRT_OFF_CURRENT));
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, 12);
	ck_assert_mem_eq(f->buf, "abcdefghijkl", 12);
	mrt_read_exact(&f->op, f->pipe[0], f->buf, 12, MRT_OFF_CURRENT);
	MRT_AWAIT(self, mrt_write(&f->write, f->pipe[1], "xyz", 3, MRT_OFF_CURRENT));
	close(f->pipe[1]);
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, 3);
	close(f->pipe[0]);
	MRT_RETURN(self, 0);
}

/* ---- vectors ---- */

ITEST_TASK(vectors, {
	struct mrt_op op; int fd; char a[5]; char b[7]; char c[100]; struct iovec iov[4];
	struct iovec many[1024]; char byte[1024];
})
{
	int i;

	MRT_BEGIN(self);
	f->fd = openat(top, "vec", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	memcpy(f->a, "aaaaa", 5);
	memcpy(f->b, "bbbbbbb", 7);
	f->iov[0] = (struct iovec){ f->a, 5 };
	f->iov[1] = (struct iovec){ f->c, 0 };
	f->iov[2] = (struct iovec){ f->b, 7 };
	MRT_AWAIT(self, mrt_writev(&f->op, f->fd, f->iov, 3, 3));
	ck_assert_int_eq(f->op.res, 12);
	memset(f->a, 0, 5);
	memset(f->b, 0, 7);
	f->iov[3] = (struct iovec){ f->c, sizeof(f->c) };
	MRT_AWAIT(self, mrt_readv(&f->op, f->fd, f->iov, 4, 3));
	ck_assert_int_eq(f->op.res, 12);
	ck_assert_mem_eq(f->a, "aaaaa", 5);
	ck_assert_mem_eq(f->b, "bbbbbbb", 7);
	for (i = 0; i < 1024; i++)
		f->many[i] = (struct iovec){ &f->byte[i], 1 };
	memset(f->byte, 'm', sizeof(f->byte));
	MRT_AWAIT(self, mrt_writev(&f->op, f->fd, f->many, 1024, 0));
	ck_assert_int_eq(f->op.res, 1024);
	memset(f->byte, 0, sizeof(f->byte));
	MRT_AWAIT(self, mrt_readv(&f->op, f->fd, f->many, 1024, 0));
	ck_assert_int_eq(f->op.res, 1024);
	ck_assert_int_eq(f->byte[1023], 'm');
	close(f->fd);
	MRT_RETURN(self, 0);
}

/* ---- the rest ---- */

ITEST_TASK(lengths_and_attributes, { struct mrt_op op; int fd; struct statx stx; int64_t len; })
{
	MRT_BEGIN(self);
	f->fd = openat(top, "attr", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	MRT_AWAIT(self, mrt_fallocate(&f->op, f->fd, 0, 0, 100000));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_statx(&f->op, top, "attr", 0, STATX_BASIC_STATS, &f->stx));
	ck_assert_int_eq(f->op.res, 0);
	ck_assert_uint_eq(f->stx.stx_size, 100000);
	ck_assert_uint_eq(f->stx.stx_mode & 07777, 0640);
	MRT_AWAIT(self, mrt_fallocate(&f->op, f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
	ck_assert(f->op.res == 0 || f->op.res == -EOPNOTSUPP);
	MRT_AWAIT(self, mrt_ftruncate(&f->op, f->fd, 777));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_statx(&f->op, f->fd, "", AT_EMPTY_PATH, STATX_SIZE, &f->stx));
	ck_assert_int_eq(f->op.res, 0);
	ck_assert_uint_eq(f->stx.stx_size, 777);
	f->len = INT64_C(5) << 32;
	MRT_AWAIT(self, mrt_ftruncate(&f->op, f->fd, f->len));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_statx(&f->op, f->fd, "", AT_EMPTY_PATH, STATX_SIZE, &f->stx));
	ck_assert_uint_eq(f->stx.stx_size, (uint64_t)f->len);
	MRT_AWAIT(self, mrt_fadvise(&f->op, f->fd, 0, 0, POSIX_FADV_DONTNEED));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_fadvise(&f->op, f->fd, 4096, f->len, POSIX_FADV_SEQUENTIAL));
	ck_assert_int_eq(f->op.res, 0);
	close(f->fd);
	MRT_RETURN(self, 0);
}

ITEST_TASK(names, { struct mrt_op op; struct stat st; int fd; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_mkdir(&f->op, top, "sub", 0755));
	ck_assert_int_eq(f->op.res, 0);
	f->fd = openat(top, "sub", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MRT_AWAIT(self, mrt_open(&f->op, f->fd, "one", O_WRONLY | O_CREAT | O_EXCL, 0600));
	ck_assert_int_ge(f->op.res, 0);
	MRT_AWAIT(self, mrt_close(&f->op, (int)f->op.res));
	MRT_AWAIT(self, mrt_open(&f->op, f->fd, "one", O_WRONLY | O_CREAT | O_EXCL, 0600));
	ck_assert_int_eq(f->op.res, -EEXIST);
	MRT_AWAIT(self, mrt_rename(&f->op, f->fd, "one", top, "two", 0));
	ck_assert_int_eq(f->op.res, 0);
	ck_assert_int_eq(fstatat(top, "two", &f->st, 0), 0);
	MRT_AWAIT(self, mrt_open(&f->op, f->fd, "three", O_WRONLY | O_CREAT, 0600));
	MRT_AWAIT(self, mrt_close(&f->op, (int)f->op.res));
	MRT_AWAIT(self, mrt_rename(&f->op, f->fd, "three", top, "two", RENAME_NOREPLACE));
	ck_assert(f->op.res == -EEXIST || f->op.res == -EINVAL); /* not every file system has it */
	MRT_AWAIT(self, mrt_unlink(&f->op, top, "sub", 0));
	ck_assert_int_eq(f->op.res, -EISDIR);
	MRT_AWAIT(self, mrt_unlink(&f->op, f->fd, "three", 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_unlink(&f->op, top, "two", 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_unlink(&f->op, top, "sub", AT_REMOVEDIR));
	ck_assert_int_eq(f->op.res, 0);
	ck_assert_int_eq(fstatat(top, "sub", &f->st, 0), -1);
	close(f->fd);
	MRT_RETURN(self, 0);
}

ITEST_TASK(splice_and_poll, { struct mrt_op op; struct mrt_op poll; int fd; int out; int pipe[2]; char buf[64]; })
{
	MRT_BEGIN(self);
	f->fd = openat(top, "splice-in", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	f->out = openat(top, "splice-out", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(f->fd, "0123456789abcdef", 16), 16);
	ck_assert_int_eq(pipe(f->pipe), 0);
	mrt_poll_fd(&f->poll, f->pipe[0], POLLIN);
	mrt_flush();
	ck_assert(!mrt_op_is_done(&f->poll));
	MRT_AWAIT(self, mrt_splice(&f->op, f->fd, 4, f->pipe[1], MRT_OFF_CURRENT, 8, 0));
	ck_assert_int_eq(f->op.res, 8);
	MRT_AWAIT(self, &f->poll);
	ck_assert_int_eq(f->poll.res & POLLIN, POLLIN);
	MRT_AWAIT(self, mrt_splice(&f->op, f->pipe[0], MRT_OFF_CURRENT, f->out, 2, 100, 0));
	ck_assert_int_eq(f->op.res, 8);
	MRT_AWAIT(self, mrt_read(&f->op, f->out, f->buf, sizeof(f->buf), 0));
	ck_assert_int_eq(f->op.res, 10);
	ck_assert_mem_eq(f->buf, "\0\000456789ab", 10);
	MRT_AWAIT(self, mrt_splice(&f->op, f->fd, 16, f->pipe[1], MRT_OFF_CURRENT, 8, 0));
	ck_assert_int_eq(f->op.res, 0); /* end of input */
	MRT_AWAIT(self, mrt_poll_fd(&f->poll, f->pipe[1], POLLOUT));
	ck_assert_int_eq(f->poll.res & POLLOUT, POLLOUT);
	close(f->pipe[1]);
	MRT_AWAIT(self, mrt_poll_fd(&f->poll, f->pipe[0], POLLIN));
	ck_assert_int_eq(f->poll.res & POLLHUP, POLLHUP);
	close(f->pipe[0]);
	close(f->fd);
	close(f->out);
	MRT_RETURN(self, 0);
}

/* ---- O_DIRECT ---- */

static int direct_fd = -1;

ITEST_TASK(a_misaligned_direct_call_says_what_is_wrong, { struct mrt_op op; char *buf; struct iovec iov[2]; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(posix_memalign((void **)&f->buf, 4096, 16384), 0);
	memset(f->buf, 'd', 16384);
	MRT_AWAIT(self, mrt_write(&f->op, direct_fd, f->buf, 16384, 0));
	ck_assert_int_eq(f->op.res, 16384);
	MRT_AWAIT(self, mrt_read(&f->op, direct_fd, f->buf, 4096, 4096));
	ck_assert_int_eq(f->op.res, 4096);
	ck_assert(!itest_log_has("aligned"));

	MRT_AWAIT(self, mrt_read(&f->op, direct_fd, f->buf, 4096, 100));
	ck_assert_int_eq(f->op.res, -EINVAL);
	ck_assert_msg(itest_log_has("offset 100 (not aligned)"), "the offset is not named");
	ck_assert(!itest_log_has("length 4096 (not"));
	itest_log_clear();
	MRT_AWAIT(self, mrt_write(&f->op, direct_fd, f->buf, 1000, 0));
	ck_assert_int_eq(f->op.res, -EINVAL);
	ck_assert_msg(itest_log_has("length 1000 (not aligned)"), "the length is not named");
	ck_assert(!itest_log_has("offset 0 (not"));
	ck_assert(itest_log_has("multiples of"));
	itest_log_clear();
	MRT_AWAIT(self, mrt_read_exact(&f->op, direct_fd, f->buf, 777, 33));
	ck_assert_int_eq(f->op.res, -EINVAL);
	ck_assert(itest_log_has("length 777 (not aligned)") && itest_log_has("offset 33 (not aligned)"));
	itest_log_clear();
	f->iov[0] = (struct iovec){ f->buf, 4096 };
	f->iov[1] = (struct iovec){ f->buf + 4096, 100 };
	MRT_AWAIT(self, mrt_readv(&f->op, direct_fd, f->iov, 2, 0));
	ck_assert_int_eq(f->op.res, -EINVAL);
	ck_assert_msg(itest_log_has("length 100 (not aligned)"), "the segment is not named");
	itest_log_clear();
	/* not every device minds the address */
	MRT_AWAIT(self, mrt_read(&f->op, direct_fd, f->buf + 3, 4096, 0));
	if (f->op.res == -EINVAL)
		ck_assert_msg(itest_log_has("(not aligned), length 4096,"), "the address is not named");
	else
		ck_assert_int_eq(f->op.res, 4096);
	free(f->buf);
	MRT_RETURN(self, 0);
}

/* ---- full ---- */

static char full_dir[FIXTURE_PATH];

ITEST_TASK(a_full_file_system_says_enospc, { struct mrt_op op; int fd; char *buf; char path[FIXTURE_PATH + 16]; })
{
	MRT_BEGIN(self);
	f->buf = calloc(4, MIB);
	snprintf(f->path, sizeof(f->path), "%s/full", full_dir);
	f->fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(f->fd, 0);
	/* what fits is written, and counted; why it is not more is told */
	MRT_AWAIT(self, mrt_write_all(&f->op, f->fd, f->buf, 4 * MIB, 0));
	ck_assert_int_gt(f->op.res, 0);
	ck_assert_int_lt(f->op.res, 4 * MIB);
	ck_assert_int_eq(f->op.why, -ENOSPC);
	MRT_AWAIT(self, mrt_write(&f->op, f->fd, f->buf, MIB, 3 * MIB));
	ck_assert_int_eq(f->op.res, -ENOSPC);
	MRT_AWAIT(self, mrt_write_all(&f->op, f->fd, f->buf, MIB, 3 * MIB));
	ck_assert_int_eq(f->op.res, -ENOSPC);
	ck_assert_int_eq(f->op.why, 0);
	MRT_AWAIT(self, mrt_fallocate(&f->op, f->fd, 0, 0, 8 * MIB));
	ck_assert_int_eq(f->op.res, -ENOSPC);
	close(f->fd);
	unlink(f->path);
	free(f->buf);
	MRT_RETURN(self, 0);
}

/* ---- */

int main(void)
{
	Suite *suite = suite_create("file");
	TCase *tc = tcase_create("file");
	char path[FIXTURE_PATH + 16];
	char *probe;
	int err;

	itest_need_io_uring();
	if (fixture_dir(dir)) {
		printf("skipped: no folder for temporary files\n");
		return ITEST_SKIP;
	}
	top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, write_and_read_back, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, paths_are_copied, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, errors_of_paths, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, errors_of_descriptors_and_ranges, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, a_read_of_three_gigabytes_is_cut);
	tcase_add_test(tc, big_transfers);
	tcase_add_loop_test(tc, exact_stops_at_the_end, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, vectors, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, lengths_and_attributes, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, names, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, splice_and_poll, 0, ITEST_KINDS_NR);
	/* tried, not guessed: a file system may take the flag and not enforce alignment */
	snprintf(path, sizeof(path), "%s/direct", dir);
	direct_fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	probe = direct_fd >= 0 ? aligned_alloc(4096, 4096) : NULL;
	if (probe) {
		memset(probe, 0, 4096);
		if (pwrite(direct_fd, probe, 4096, 0) != 4096 || pread(direct_fd, probe, 4096, 100) >= 0) {
			free(probe);
			probe = NULL;
		}
	}
	if (probe)
		tcase_add_loop_test(tc, a_misaligned_direct_call_says_what_is_wrong, 0, ITEST_FLAVOURS_NR);
	else
		printf("skipped: direct I/O is not enforced on %s\n", dir);
	free(probe);
	err = fixture_tmpfs(2 * MIB, full_dir);
	if (err)
		printf("skipped: a full file system: %s\n", strerror(-err));
	else
		tcase_add_loop_test(tc, a_full_file_system_says_enospc, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
