/* SPDX-License-Identifier: MIT */
/*
 * fork(): the child gets a clear error from every call, and what it does or how it ends does no harm to the parent,
 * whose I/O goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "itest.h"

/* The child cannot fail a test by itself: it counts, and its exit code tells. */
#define EXPECT(cond)                                                                                    \
	do {                                                                                            \
		if (!(cond)) {                                                                          \
			dprintf(STDERR_FILENO, "line %d: %s\n", __LINE__, #cond);                       \
			failures++;                                                                     \
		}                                                                                       \
	} while (0)

struct parent {
	struct mrt_runtime *rt;
	struct mrt_task *task;
};

ITEST_CHILD(echo, { struct mrt_op op; int fd; char buf[256]; })
{
	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_recv(&f->op, f->fd, f->buf, sizeof(f->buf), 0));
		if (f->op.res <= 0)
			break;
		MRT_AWAIT(self, mrt_send_all(&f->op, f->fd, f->buf, (size_t)f->op.res));
		if (f->op.res < 0)
			break;
	}
	MRT_RETURN(self, f->op.res);
}

static int in_child(void *ctx)
{
	struct parent *p = ctx;
	struct mrt_op op = { 0 };
	struct mrt_oneshot o;
	struct mrt_notify n;
	struct mrt_semaphore s;
	struct mrt_channel *ch = NULL;
	struct mrt_runtime *other = NULL;
	struct mrt_task *task = NULL;
	struct iovec iov = { &op, 1 };
	struct statx stx;
	struct sockaddr addr = { .sa_family = AF_UNIX };
	int64_t result = 9;
	int failures = 0;
	char buf[4];

	EXPECT(mrt_spawn(p->rt, echo_poll, NULL, 0, NULL, NULL) == -ECHILD);
	EXPECT(mrt_spawn(NULL, echo_poll, NULL, 0, NULL, &task) == -ECHILD);
	EXPECT(mrt_block_on(p->rt, echo_poll, NULL, 0, &result) == -ECHILD);
	EXPECT(mrt_task_join_wait(p->task, &result) == -ECHILD);
	EXPECT(mrt_runtime_shutdown_wait(p->rt, 0) == -ECHILD);
	EXPECT(mrt_runtime_create(NULL, &other) == -ECHILD);
	EXPECT(result == 9 && other == NULL && task == NULL);
	EXPECT(mrt_nop(&op)->res == -ECHILD);
	EXPECT(mrt_yield(&op)->res == -ECHILD);
	EXPECT(mrt_sleep(&op, 5)->res == -ECHILD);
	EXPECT(mrt_sleep_until(&op, 5)->res == -ECHILD);
	EXPECT(mrt_open(&op, MRT_AT_FDCWD, "/", O_RDONLY, 0)->res == -ECHILD);
	EXPECT(mrt_close(&op, 0)->res == -ECHILD);
	EXPECT(mrt_read(&op, 0, buf, 4, 0)->res == -ECHILD);
	EXPECT(mrt_write(&op, 1, buf, 0, 0)->res == -ECHILD);
	EXPECT(mrt_read_exact(&op, 0, buf, 4, 0)->res == -ECHILD);
	EXPECT(mrt_write_all(&op, 1, buf, 0, 0)->res == -ECHILD);
	EXPECT(mrt_readv(&op, 0, &iov, 1, 0)->res == -ECHILD);
	EXPECT(mrt_writev(&op, 0, &iov, 1, 0)->res == -ECHILD);
	EXPECT(mrt_fsync(&op, 0)->res == -ECHILD);
	EXPECT(mrt_fdatasync(&op, 0)->res == -ECHILD);
	EXPECT(mrt_fallocate(&op, 0, 0, 0, 1)->res == -ECHILD);
	EXPECT(mrt_ftruncate(&op, 0, 1)->res == -ECHILD);
	EXPECT(mrt_statx(&op, MRT_AT_FDCWD, "/", 0, 0, &stx)->res == -ECHILD);
	EXPECT(mrt_unlink(&op, MRT_AT_FDCWD, "/nothing", 0)->res == -ECHILD);
	EXPECT(mrt_rename(&op, MRT_AT_FDCWD, "/nothing", MRT_AT_FDCWD, "/none", 0)->res == -ECHILD);
	EXPECT(mrt_mkdir(&op, MRT_AT_FDCWD, "/proc/nothing", 0)->res == -ECHILD);
	EXPECT(mrt_fadvise(&op, 0, 0, 0, 0)->res == -ECHILD);
	EXPECT(mrt_splice(&op, 0, MRT_OFF_CURRENT, 1, MRT_OFF_CURRENT, 1, 0)->res == -ECHILD);
	EXPECT(mrt_poll_fd(&op, 0, POLLIN)->res == -ECHILD);
	EXPECT(mrt_socket(&op, AF_INET, SOCK_STREAM, 0)->res == -ECHILD);
	EXPECT(mrt_accept(&op, 0, NULL, NULL, 0)->res == -ECHILD);
	EXPECT(mrt_connect(&op, 0, &addr, sizeof(addr))->res == -ECHILD);
	EXPECT(mrt_recv(&op, 0, buf, 4, 0)->res == -ECHILD);
	EXPECT(mrt_send(&op, 0, buf, 4, 0)->res == -ECHILD);
	EXPECT(mrt_recv_exact(&op, 0, buf, 4)->res == -ECHILD);
	EXPECT(mrt_send_all(&op, 0, buf, 4)->res == -ECHILD);
	EXPECT(mrt_shutdown(&op, 0, SHUT_RDWR)->res == -ECHILD);
	EXPECT(mrt_blocking(&op, NULL, NULL)->res == -ECHILD);
	EXPECT(mrt_join(&op, p->task)->res == -ECHILD);
	mrt_oneshot_init(&o);
	EXPECT(mrt_oneshot_recv(&op, &o)->res == -ECHILD);
	mrt_notify_init(&n);
	EXPECT(mrt_notify_wait(&op, &n)->res == -ECHILD);
	EXPECT(mrt_semaphore_init(&s, 1) == 0);
	EXPECT(mrt_semaphore_acquire(&op, &s, 1)->res == -ECHILD);
	EXPECT(mrt_channel_create(1, 1, &ch) == 0);
	EXPECT(mrt_channel_send(&op, ch, buf)->res == -ECHILD);
	EXPECT(mrt_channel_recv(&op, ch, buf)->res == -ECHILD);
	mrt_channel_destroy(ch);
	/* what has no code to give back does nothing */
	mrt_abort(p->task);
	mrt_detach(p->task);
	mrt_cancel(&op);
	mrt_flush();
	EXPECT(mrt_task_self() == NULL);
	EXPECT(mrt_runtime_self() == NULL);
	mrt_runtime_destroy(p->rt);
	return failures;
}

static void ping(int fd, int nr)
{
	char out[64], in[64];

	snprintf(out, sizeof(out), "message %d", nr);
	ck_assert_int_eq(send(fd, out, sizeof(out), 0), sizeof(out));
	ck_assert_int_eq(recv(fd, in, sizeof(in), MSG_WAITALL), sizeof(in));
	ck_assert_str_eq(in, out);
}

START_TEST(every_call_in_a_child_says_echild_and_the_parent_goes_on)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct echo e = { .fd = -1 };
	struct parent p = { .rt = rt };
	int fds[2], i;

	itest_socketpair(fds);
	e.fd = fds[0];
	p.task = itest_spawn(rt, echo_poll, &e, sizeof(e));
	for (i = 0; i < 20; i++) {
		ping(fds[1], i);
		itest_child_ok(in_child, &p);
		ping(fds[1], i);
	}
	ck_assert_int_eq(shutdown(fds[1], SHUT_WR), 0);
	ck_assert_int_eq(itest_join(p.task), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* The child may exit in an orderly way: its destructors and atexit handlers see a dead runtime. */
static int exits(void *ctx)
{
	(void)ctx;
	fflush(stdout);
	exit(0);
}

START_TEST(a_child_may_exit_orderly_while_the_parent_is_busy)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct echo e = { .fd = -1 };
	struct mrt_task *task;
	int fds[2], i;

	itest_socketpair(fds);
	e.fd = fds[0];
	task = itest_spawn(rt, echo_poll, &e, sizeof(e));
	for (i = 0; i < 30; i++) {
		ping(fds[1], i);
		itest_child_ok(exits, NULL);
	}
	mrt_abort(task);
	(void)itest_join(task);
	mrt_runtime_destroy(rt);
}
END_TEST

/* Forks, many of them, while the workers are in the middle of everything. */
ITEST_CHILD(busy, {
	struct mrt_op op; struct mrt_op nop; struct mrt_op *ops[2]; atomic_int *stop; atomic_int *begun; uint64_t rounds;
})
{
	MRT_BEGIN(self);
	while (!atomic_load(f->stop)) {
		f->ops[0] = mrt_sleep(&f->op, MRT_US(20));
		f->ops[1] = mrt_nop(&f->nop);
		MRT_AWAIT_ALL(self, f->ops, 2);
		if (f->op.res || f->nop.res)
			MRT_RETURN(self, -1);
		if (f->rounds++ == 0)
			atomic_fetch_add(f->begun, 1);
	}
	MRT_RETURN(self, (int64_t)f->rounds);
}

START_TEST(forks_in_the_middle_of_work)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_task *tasks[20];
	atomic_int stop = 0, begun = 0;
	struct busy b = { .stop = &stop, .begun = &begun };
	int i;

	for (i = 0; i < 20; i++)
		tasks[i] = itest_spawn(rt, busy_poll, &b, sizeof(b));
	ITEST_WAIT(atomic_load(&begun) == 20, 20000);
	for (i = 0; i < 60; i++) {
		pid_t pid = fork();
		int status;

		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			struct mrt_op op = { 0 };

			_exit(mrt_nop(&op)->res == -ECHILD && mrt_runtime_shutdown_wait(rt, 0) == -ECHILD ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	atomic_store(&stop, 1);
	for (i = 0; i < 20; i++)
		ck_assert_int_gt(itest_join(tasks[i]), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- fork inside a poll function ---- */

/* The child is a copy of the worker: its ops say -ECHILD, and if it goes on as a task it is told what is wrong. */
ITEST_CHILD(forker, { struct mrt_op op; int status; pid_t pid; })
{
	MRT_BEGIN(self);
	f->pid = fork();
	if (f->pid == 0) {
		struct mrt_op op = { 0 };

		_exit(mrt_nop(&op)->res == -ECHILD && mrt_task_self() == NULL ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(f->pid, &f->status, 0), f->pid);
	ck_assert(WIFEXITED(f->status) && WEXITSTATUS(f->status) == 0);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(100)));
	ck_assert_int_eq(f->op.res, 0);
	MRT_RETURN(self, 0);
}

START_TEST(a_fork_inside_a_task)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	int i;

	for (i = 0; i < 20; i++) {
		struct forker f = { .pid = 0 };

		ck_assert_int_eq(itest_run(rt, forker_poll, &f, sizeof(f)), 0);
	}
	mrt_runtime_destroy(rt);
}
END_TEST

ITEST_CHILD(fork_and_go_on, { struct mrt_op op; int how; })
{
	pid_t pid;
	int status;

	MRT_BEGIN(self);
	pid = fork();
	if (pid > 0) {
		waitpid(pid, &status, 0);
		_exit(WIFSIGNALED(status) && WTERMSIG(status) == 6 /* SIGABRT */ ? 42 : 1);
	}
	if (f->how == 0)
		MRT_AWAIT(self, mrt_nop(&f->op));       /* done at once: the await would go on */
	MRT_RETURN(self, 0);                            /* back into the loop of a worker that is none */
}

static int go_on(void *how)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_TWO);
	struct fork_and_go_on f = { .how = *(int *)how };

	return mrt_block_on(rt, fork_and_go_on_poll, &f, sizeof(f), NULL);
}

START_TEST(a_task_that_goes_on_in_a_child_is_told_so)
{
	struct itest_exit e = itest_child(go_on, &_i, ITEST_LIMIT_S);

	ck_assert_msg(WIFEXITED(e.status) && WEXITSTATUS(e.status) == 42, "status %#x: %s", e.status, e.err);
	ck_assert_msg(strstr(e.err, "fork") != NULL, "it says: %s", e.err);
}
END_TEST

/* ---- before and after ---- */

static int make_one(void *ctx)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_TWO);

	(void)ctx;
	mrt_runtime_destroy(rt);
	return 0;
}

START_TEST(a_child_of_a_process_without_a_runtime_may_make_one)
{
	mrt_runtime_destroy(itest_runtime(ITEST_TWO));
	itest_child_ok(make_one, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tc = tcase_create("fork");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_test(tc, every_call_in_a_child_says_echild_and_the_parent_goes_on);
	tcase_add_loop_test(tc, every_call_in_a_child_says_echild_and_the_parent_goes_on, ITEST_FLOAT, ITEST_KINDS_NR);
	if (!ITEST_TSAN) /* its own exit handlers wait for threads that a child does not have */
		tcase_add_test(tc, a_child_may_exit_orderly_while_the_parent_is_busy);
	tcase_add_loop_test(tc, forks_in_the_middle_of_work, ITEST_TWO, ITEST_TWO + 1);
	tcase_add_loop_test(tc, forks_in_the_middle_of_work, ITEST_FLOAT, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_fork_inside_a_task, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, a_task_that_goes_on_in_a_child_is_told_so, 0, 2);
	tcase_add_test(tc, a_child_of_a_process_without_a_runtime_may_make_one);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
