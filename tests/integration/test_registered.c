/* SPDX-License-Identifier: MIT */
/*
 * Registered files: a handle works wherever a descriptor does and on whichever worker; a closed one is stale for good; a
 * close cancels what is in flight on every ring, waits for it, and only then is the descriptor closed or given back.
 *
 * Not proven here: that IOSQE_FIXED_FILE is used (tests/unit of the ring, and the simulation, which checks each SQE).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define HANDLE_MIN (1 << 30)

/* A file without a name, filled with one byte. */
static int file_of(char fill, size_t bytes)
{
	char path[] = "/tmp/martlet-registered.XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);
	char *buf = malloc(bytes);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	memset(buf, fill, bytes);
	ck_assert_int_eq(pwrite(fd, buf, bytes, 0), (ssize_t)bytes);
	free(buf);
	return fd;
}

static int handle_of(int fd)
{
	int handle = mrt_file_register(NULL, fd, 0);

	ck_assert_int_ge(handle, HANDLE_MIN);
	return handle;
}

/* ---- wherever a descriptor is ---- */

ITEST_TASK(every_kind_of_op_takes_a_handle, {
	struct mrt_op op;
	int file, in, out, dir, sock[2], back[2];
	struct statx stx;
	struct iovec iov[2];
	char a[64], b[64], name[2][64];
})
{
	int fds[2];

	MRT_BEGIN(self);
	f->file = handle_of(file_of('a', 4096));
	MRT_AWAIT(self, mrt_read(&f->op, f->file, f->a, 64, 100));
	ck_assert_int_eq(f->op.res, 64);
	ck_assert_int_eq(f->a[63], 'a');
	memset(f->a, 'w', 64);
	MRT_AWAIT(self, mrt_write_all(&f->op, f->file, f->a, 64, 0));
	ck_assert_int_eq(f->op.res, 64);
	f->iov[0] = (struct iovec){ f->a, 32 };
	f->iov[1] = (struct iovec){ f->b, 64 };
	MRT_AWAIT(self, mrt_readv(&f->op, f->file, f->iov, 2, 0));
	ck_assert_int_eq(f->op.res, 96);
	ck_assert_int_eq(f->b[31], 'w');
	ck_assert_int_eq(f->b[32], 'a');
	MRT_AWAIT(self, mrt_fsync(&f->op, f->file));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_fdatasync(&f->op, f->file));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_fadvise(&f->op, f->file, 0, 4096, POSIX_FADV_RANDOM));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_ftruncate(&f->op, f->file, 1000));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_statx(&f->op, f->file, "", AT_EMPTY_PATH, STATX_SIZE, &f->stx));
	ck_assert_int_eq(f->op.res, 0);
	ck_assert_uint_eq(f->stx.stx_size, 1000);
	MRT_AWAIT(self, mrt_read_exact(&f->op, f->file, f->a, 64, 980));
	ck_assert_int_eq(f->op.res, 20);

	/* a directory, in both places */
	f->dir = handle_of(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	for (unsigned i = 0; i < 2; i++) /* nobody else's, nor that of one that was killed */
		snprintf(f->name[i], sizeof(f->name[i]), "martlet-registered.%d.%llx.%u", (int)getpid(),
			 (unsigned long long)mrt_now(), i);
	MRT_AWAIT(self, mrt_mkdir(&f->op, f->dir, f->name[0], 0700));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_rename(&f->op, f->dir, f->name[0], f->dir, f->name[1], 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_unlink(&f->op, f->dir, f->name[1], AT_REMOVEDIR));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->dir));
	ck_assert_int_eq(f->op.res, 0);

	/* pipes: splice takes two */
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	f->in = handle_of(fds[0]);
	f->out = handle_of(fds[1]);
	MRT_AWAIT(self, mrt_splice(&f->op, f->file, 0, f->out, MRT_OFF_CURRENT, 64, 0));
	ck_assert_int_eq(f->op.res, 64);
	MRT_AWAIT(self, mrt_poll_fd(&f->op, f->in, POLLIN));
	ck_assert_int_eq(f->op.res, POLLIN);
	MRT_AWAIT(self, mrt_read(&f->op, f->in, f->a, 64, MRT_OFF_CURRENT));
	ck_assert_int_eq(f->op.res, 64);
	ck_assert_int_eq(f->a[63], 'w');
	MRT_AWAIT(self, mrt_close(&f->op, f->in));
	MRT_AWAIT(self, mrt_close(&f->op, f->out));
	ck_assert_int_eq(f->op.res, 0);

	/* sockets */
	itest_socketpair(fds);
	f->sock[0] = handle_of(fds[0]);
	f->sock[1] = handle_of(fds[1]);
	MRT_AWAIT(self, mrt_send_all(&f->op, f->sock[0], "hello", 5));
	ck_assert_int_eq(f->op.res, 5);
	MRT_AWAIT(self, mrt_recv_exact(&f->op, f->sock[1], f->a, 5));
	ck_assert_int_eq(f->op.res, 5);
	ck_assert_int_eq(memcmp(f->a, "hello", 5), 0);
	MRT_AWAIT(self, mrt_shutdown(&f->op, f->sock[0], SHUT_WR));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_recv(&f->op, f->sock[1], f->a, 5, 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->sock[0]));
	MRT_AWAIT(self, mrt_close(&f->op, f->sock[1]));
	MRT_AWAIT(self, mrt_close(&f->op, f->file));
	ck_assert_int_eq(f->op.res, 0);
	MRT_RETURN(self, 0);
}

/* ---- stale handles ---- */

ITEST_TASK(a_closed_handle_is_stale_also_when_its_slot_serves_another_file, {
	struct mrt_op op;
	int first, second, i;
	char buf[16];
})
{
	MRT_BEGIN(self);
	f->first = handle_of(file_of('a', 16));
	MRT_AWAIT(self, mrt_read(&f->op, f->first, f->buf, 16, 0));
	MRT_AWAIT(self, mrt_close(&f->op, f->first));
	ck_assert_int_eq(f->op.res, 0);
	/* more files than there are slots, so that the first one's is used again */
	for (f->i = 0; f->i < 1100; f->i++) {
		f->second = handle_of(file_of('b', 16));
		MRT_AWAIT(self, mrt_read(&f->op, f->first, f->buf, 16, 0));
		ck_assert_int_eq(f->op.res, -EBADF);
		MRT_AWAIT(self, mrt_read(&f->op, f->second, f->buf, 16, 0));
		ck_assert_int_eq(f->op.res, 16);
		ck_assert_int_eq(f->buf[0], 'b');
		MRT_AWAIT(self, mrt_close(&f->op, f->first));
		ck_assert_int_eq(f->op.res, -EBADF);
		MRT_AWAIT(self, mrt_close(&f->op, f->second));
		ck_assert_int_eq(f->op.res, 0);
	}
	MRT_AWAIT(self, mrt_file_unregister(&f->op, f->first));
	ck_assert_int_eq(f->op.res, -EBADF);
	MRT_AWAIT(self, mrt_read(&f->op, HANDLE_MIN + 77, f->buf, 16, 0));
	ck_assert_int_eq(f->op.res, -EBADF);
	MRT_AWAIT(self, mrt_read(&f->op, INT32_MAX, f->buf, 16, 0));
	ck_assert_int_eq(f->op.res, -EBADF);
	MRT_AWAIT(self, mrt_file_unregister(&f->op, 0));
	ck_assert_int_eq(f->op.res, -EBADF);
	MRT_RETURN(self, 0);
}

ITEST_TASK(an_op_started_behind_the_close_in_the_same_poll_is_refused, {
	struct mrt_op close_op, read_op;
	int file;
	char buf[16];
})
{
	MRT_BEGIN(self);
	f->file = handle_of(file_of('a', 16));
	MRT_AWAIT(self, mrt_read(&f->read_op, f->file, f->buf, 16, 0));
	mrt_close(&f->close_op, f->file);
	MRT_AWAIT(self, mrt_read(&f->read_op, f->file, f->buf, 16, 0));
	ck_assert_int_eq(f->read_op.res, -EBADF);
	MRT_AWAIT(self, &f->close_op);
	ck_assert_int_eq(f->close_op.res, 0);
	MRT_RETURN(self, 0);
}

ITEST_TASK(a_descriptor_comes_back_from_unregister_and_works, {
	struct mrt_op op;
	int fd, file;
	char buf[16];
})
{
	MRT_BEGIN(self);
	f->fd = file_of('a', 16);
	f->file = handle_of(f->fd);
	MRT_AWAIT(self, mrt_read(&f->op, f->file, f->buf, 16, 0));
	ck_assert_int_eq(f->op.res, 16);
	MRT_AWAIT(self, mrt_file_unregister(&f->op, f->file));
	ck_assert_int_eq(f->op.res, f->fd);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->buf, 16, 0));
	ck_assert_int_eq(f->op.res, 16);
	MRT_AWAIT(self, mrt_close(&f->op, f->fd));
	ck_assert_int_eq(f->op.res, 0);
	MRT_RETURN(self, 0);
}

/* ---- closing cancels, everywhere ---- */

#define READERS_NR 24

static atomic_uint readers_ready; /* they begin to receive next */

ITEST_CHILD(reader, {
	struct mrt_op op;
	struct mrt_op nap;
	int file;
	bool all;
	char buf[64];
})
{
	MRT_BEGIN(self);
	atomic_fetch_add(&readers_ready, 1);
	if (f->all)
		MRT_AWAIT(self, mrt_recv_exact(&f->op, f->file, f->buf, 64));
	else
		MRT_AWAIT(self, mrt_recv(&f->op, f->file, f->buf, 64, 0));
	MRT_RETURN(self, f->op.res);
}

ITEST_TASK(a_close_cancels_what_waits_on_every_worker_and_the_peer_sees_the_end, {
	struct mrt_op op, nap;
	struct mrt_task *tasks[READERS_NR];
	int file, peer, i;
	char buf[8];
})
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = MRT_SPAWN_SPREAD };
	int fds[2];

	MRT_BEGIN(self);
	itest_socketpair(fds);
	f->file = handle_of(fds[0]);
	f->peer = fds[1];
	atomic_store(&readers_ready, 0);
	for (f->i = 0; f->i < READERS_NR; f->i++) {
		struct reader r = { .file = f->file, .all = f->i % 3 == 0 };

		ck_assert_int_eq(mrt_spawn(NULL, reader_poll, &r, sizeof(r), &opts, &f->tasks[f->i]), 0);
	}
	/* what is received behind the close is refused with another code; each worker counts at its turns */
	while (atomic_load(&readers_ready) < READERS_NR || itest_stats(mrt_runtime_self()).inflight < READERS_NR)
		MRT_AWAIT(self, mrt_sleep(&f->nap, MRT_MS(1)));
	MRT_AWAIT(self, mrt_close(&f->op, f->file));
	ck_assert_int_eq(f->op.res, 0);
	/* no reader holds the socket any more */
	MRT_AWAIT(self, mrt_recv(&f->op, f->peer, f->buf, 8, 0));
	ck_assert_int_eq(f->op.res, 0);
	for (f->i = 0; f->i < READERS_NR; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		ck_assert_int_eq(f->op.res, -ECANCELED);
	}
	ck_assert_int_eq(close(f->peer), 0);
	MRT_RETURN(self, 0);
}

static int unread(int fd)
{
	int bytes = -1;

	ck_assert_int_eq(ioctl(fd, FIONREAD, &bytes), 0);
	return bytes;
}

ITEST_TASK(bytes_that_an_exact_form_has_moved_are_told_when_its_file_is_closed, {
	struct mrt_op recv_op, op, nap;
	int file, again, peer;
	char buf[64];
})
{
	int fds[2];

	MRT_BEGIN(self);
	itest_socketpair(fds);
	f->again = dup(fds[0]); /* to see what has not been received */
	ck_assert_int_ge(f->again, 0);
	f->file = handle_of(fds[0]);
	f->peer = fds[1];
	mrt_recv_exact(&f->recv_op, f->file, f->buf, 64);
	ck_assert_int_eq(send(f->peer, "12345", 5, 0), 5);
	while (unread(f->again) > 0)
		MRT_AWAIT(self, mrt_sleep(&f->nap, MRT_MS(1)));
	ck_assert(!mrt_op_is_done(&f->recv_op));
	ck_assert_int_eq(close(f->again), 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->file));
	MRT_AWAIT(self, &f->recv_op);
	ck_assert_int_eq(f->recv_op.res, 5);
	ck_assert_int_eq(f->recv_op.why, -ECANCELED);
	ck_assert_int_eq(close(f->peer), 0);
	MRT_RETURN(self, 0);
}

ITEST_TASK(a_close_leaves_alone_what_another_handle_of_the_same_open_file_waits_for, {
	struct mrt_op recv_op, op, nap;
	int first, second, peer;
	char buf[8];
})
{
	int fds[2], again;

	MRT_BEGIN(self);
	itest_socketpair(fds);
	again = dup(fds[0]);
	ck_assert_int_ge(again, 0);
	f->first = handle_of(fds[0]);
	f->second = handle_of(again);
	f->peer = fds[1];
	mrt_recv(&f->recv_op, f->second, f->buf, 8, 0);
	MRT_AWAIT(self, mrt_poll_fd(&f->op, f->first, POLLOUT));
	/* something of the first must be in flight, or nothing is cancelled at all */
	mrt_poll_fd(&f->op, f->first, POLLIN | POLLRDHUP);
	MRT_AWAIT(self, mrt_sleep(&f->nap, MRT_MS(2)));
	MRT_AWAIT(self, mrt_close(&f->nap, f->first));
	ck_assert_int_eq(f->nap.res, 0);
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, -ECANCELED);
	MRT_AWAIT(self, mrt_sleep(&f->nap, MRT_MS(2)));
	ck_assert(!mrt_op_is_done(&f->recv_op));
	ck_assert_int_eq(send(f->peer, "x", 1, 0), 1);
	MRT_AWAIT(self, &f->recv_op);
	ck_assert_int_eq(f->recv_op.res, 1);
	MRT_AWAIT(self, mrt_close(&f->op, f->second));
	ck_assert_int_eq(close(f->peer), 0);
	MRT_RETURN(self, 0);
}

ITEST_TASK(two_closes_of_one_handle_give_one_close_and_one_ebadf, {
	struct mrt_op one, two;
	int file;
	char buf[8];
})
{
	MRT_BEGIN(self);
	f->file = handle_of(file_of('a', 16));
	MRT_AWAIT(self, mrt_read(&f->one, f->file, f->buf, 8, 0));
	mrt_close(&f->one, f->file);
	mrt_close(&f->two, f->file);
	MRT_AWAIT(self, &f->one);
	MRT_AWAIT(self, &f->two);
	ck_assert_int_eq(f->one.res, 0);
	ck_assert_int_eq(f->two.res, -EBADF);
	MRT_RETURN(self, 0);
}

/* ---- tasks move, files come and go ---- */

#define CHURN_TASKS_NR 32
#define CHURN_ROUNDS 40

ITEST_CHILD(churner, {
	struct mrt_op op, nap;
	int file, round, i;
	char fill, buf[32];
})
{
	MRT_BEGIN(self);
	for (f->round = 0; f->round < CHURN_ROUNDS; f->round++) {
		f->file = handle_of(file_of(f->fill, 64));
		for (f->i = 0; f->i < 8; f->i++) {
			MRT_AWAIT(self, mrt_read(&f->op, f->file, f->buf, 32, f->i));
			ck_assert_int_eq(f->op.res, 32);
			ck_assert_int_eq(f->buf[0], f->fill);
			ck_assert_int_eq(f->buf[31], f->fill);
			MRT_AWAIT(self, mrt_yield(&f->nap));
		}
		MRT_AWAIT(self, mrt_close(&f->op, f->file));
		ck_assert_int_eq(f->op.res, 0);
		MRT_AWAIT(self, mrt_read(&f->op, f->file, f->buf, 32, 0));
		ck_assert_int_eq(f->op.res, -EBADF);
	}
	MRT_RETURN(self, 0);
}

START_TEST(files_that_come_and_go_under_moving_tasks_are_never_mixed_up)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	struct mrt_task *tasks[CHURN_TASKS_NR];
	struct mrt_runtime *rt;
	unsigned before = itest_fds_nr(), i;

	opts.files_max = 64; /* slots are used again all the time */
	rt = itest_create(&opts);
	for (i = 0; i < CHURN_TASKS_NR; i++) {
		struct churner c = { .fill = (char)('A' + i) };

		tasks[i] = itest_spawn(rt, churner_poll, &c, sizeof(c));
	}
	if (_i != ITEST_CURRENT)
		for (i = 0; i < CHURN_TASKS_NR; i++)
			ck_assert_int_eq(itest_join(tasks[i]), 0);
	else
		for (i = 0; i < CHURN_TASKS_NR; i++)
			mrt_detach(tasks[i]);
	mrt_runtime_destroy(rt);
	ck_assert_uint_eq(itest_fds_nr(), before);
}
END_TEST

/* ---- limits and ends ---- */

START_TEST(more_files_than_files_max_are_refused_and_the_log_says_what_to_do)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	int fds[5], handles[5], i;
	struct mrt_runtime *rt;

	opts.files_max = 4;
	rt = itest_create(&opts);
	for (i = 0; i < 5; i++) {
		fds[i] = file_of('a', 16);
		handles[i] = mrt_file_register(rt, fds[i], 0);
	}
	for (i = 0; i < 4; i++)
		ck_assert_int_ge(handles[i], HANDLE_MIN);
	ck_assert_int_eq(handles[4], -ENFILE);
	ck_assert(itest_log_has("files_max"));
	ck_assert_int_eq(fcntl(fds[4], F_GETFD), FD_CLOEXEC); /* still the caller's */
	ck_assert_int_eq(mrt_file_register(rt, -1, 0), -EBADF);
	ck_assert_int_eq(mrt_file_register(rt, handles[0], 0), -EBADF);
	ck_assert_int_eq(mrt_file_register(rt, fds[4], 1u << 31), -EINVAL);
	ck_assert_int_eq(mrt_file_register(NULL, fds[4], 0), -EINVAL);
	ck_assert_int_eq(close(fds[4]), 0);
	mrt_runtime_destroy(rt);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(fcntl(fds[i], F_GETFD), -1); /* closed with the runtime */
}
END_TEST

ITEST_CHILD(closer, {
	struct mrt_op op;
	int file;
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_close(&f->op, f->file));
	MRT_RETURN(self, f->op.res);
}

START_TEST(a_shutdown_ends_readers_and_files_that_are_still_registered)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	unsigned before = itest_fds_nr(), i;
	struct mrt_runtime *rt = itest_create(&opts);
	int fds[2], file, other;

	itest_socketpair(fds);
	file = mrt_file_register(rt, fds[0], 0);
	other = mrt_file_register(rt, file_of('a', 16), 0);
	ck_assert_int_ge(file, HANDLE_MIN);
	ck_assert_int_ge(other, HANDLE_MIN);
	atomic_store(&readers_ready, 0);
	for (i = 0; i < 8; i++) {
		struct reader r = { .file = file };

		mrt_detach(itest_spawn(rt, reader_poll, &r, sizeof(r)));
	}
	if (_i != ITEST_CURRENT) {
		ITEST_WAIT(atomic_load(&readers_ready) == 8, 20000);
		/* a close that is under way when the shutdown comes */
		mrt_detach(itest_spawn(rt, closer_poll, &(struct closer){ .file = file }, sizeof(struct closer)));
	}
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(10)), 0);
	ck_assert_int_eq(mrt_file_register(rt, fds[1], 0), -ESHUTDOWN);
	mrt_runtime_destroy(rt);
	ck_assert_int_eq(close(fds[1]), 0);
	ck_assert_uint_eq(itest_fds_nr(), before);
}
END_TEST

/* Ops that wait for an SQE when their file is closed end, too. */
ITEST_TASK(ops_that_wait_in_the_queue_end_when_their_file_is_closed, {
	struct mrt_op ops[600], op, nap;
	int file, peer, i, ended;
	char buf[600][4];
})
{
	int fds[2];

	MRT_BEGIN(self);
	itest_socketpair(fds);
	f->file = handle_of(fds[0]);
	f->peer = fds[1];
	for (f->i = 0; f->i < 600; f->i++)
		mrt_recv(&f->ops[f->i], f->file, f->buf[f->i], 4, 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->file));
	ck_assert_int_eq(f->op.res, 0);
	for (f->i = 0; f->i < 600; f->i++) {
		MRT_AWAIT(self, &f->ops[f->i]);
		ck_assert_int_eq(f->ops[f->i].res, -ECANCELED);
	}
	ck_assert_int_eq(close(f->peer), 0);
	MRT_RETURN(self, 0);
}

static Suite *make_suite(void)
{
	Suite *suite = suite_create("registered");
	TCase *ops = tcase_create("ops");
	TCase *ends = tcase_create("ends");

	tcase_set_timeout(ops, ITEST_LIMIT_S);
	tcase_add_loop_test(ops, every_kind_of_op_takes_a_handle, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(ops, a_closed_handle_is_stale_also_when_its_slot_serves_another_file, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(ops, an_op_started_behind_the_close_in_the_same_poll_is_refused, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(ops, a_descriptor_comes_back_from_unregister_and_works, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(ops, two_closes_of_one_handle_give_one_close_and_one_ebadf, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(ops, files_that_come_and_go_under_moving_tasks_are_never_mixed_up, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, ops);
	tcase_set_timeout(ends, ITEST_LIMIT_S);
	tcase_add_loop_test(ends, a_close_cancels_what_waits_on_every_worker_and_the_peer_sees_the_end, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(ends, bytes_that_an_exact_form_has_moved_are_told_when_its_file_is_closed, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(ends, a_close_leaves_alone_what_another_handle_of_the_same_open_file_waits_for, 0,
			    ITEST_KINDS_NR);
	tcase_add_loop_test(ends, ops_that_wait_in_the_queue_end_when_their_file_is_closed, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(ends, more_files_than_files_max_are_refused_and_the_log_says_what_to_do, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(ends, a_shutdown_ends_readers_and_files_that_are_still_registered, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, ends);
	return suite;
}

int main(void)
{
	itest_need_io_uring();
	return itest_main(make_suite());
}
