/* SPDX-License-Identifier: MIT */
/*
 * mrt_abort() at every moment of a task's life: idle, running, finished, before its first poll, twice; what it does to
 * ops in flight and to those that start later; shields; and that nothing is leaked: no descriptor, no byte, no memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "itest.h"

/* ---- what the aborted task tells ---- */

struct told {
	atomic_int polls, inside, go, done;
	atomic_llong res[8];
};

/* ---- idle ---- */

struct idle {
	struct mrt_op recv, sleep, wait, close;
	struct mrt_op *ops[3];
	struct told *told;
	int fds[2];
	struct mrt_notify *notify;
	char buf[8];
};

static enum mrt_poll idle_poll(struct mrt_task *self, void *frame)
{
	struct idle *f = frame;

	atomic_fetch_add(&f->told->polls, 1);
	MRT_BEGIN(self);
	f->ops[0] = mrt_recv(&f->recv, f->fds[0], f->buf, sizeof(f->buf), 0);
	f->ops[1] = mrt_sleep(&f->sleep, UINT64_MAX);
	f->ops[2] = mrt_notify_wait(&f->wait, f->notify);
	atomic_store(&f->told->inside, 1);
	MRT_AWAIT_ALL(self, f->ops, 3);
	atomic_store(&f->told->res[0], f->recv.res);
	atomic_store(&f->told->res[1], f->sleep.res);
	atomic_store(&f->told->res[2], f->wait.res);
	ck_assert(mrt_task_is_aborted(self));
	/* from here on nothing starts ... */
	MRT_AWAIT(self, mrt_nop(&f->recv));
	atomic_store(&f->told->res[3], f->recv.res);
	MRT_AWAIT(self, mrt_sleep(&f->recv, MRT_SEC(100)));
	atomic_store(&f->told->res[4], f->recv.res);
	MRT_AWAIT(self, mrt_open(&f->recv, MRT_AT_FDCWD, "/dev/null", O_RDONLY, 0));
	atomic_store(&f->told->res[5], f->recv.res);
	/* ... but a close, */
	MRT_AWAIT(self, mrt_close(&f->close, f->fds[0]));
	atomic_store(&f->told->res[6], f->close.res);
	/* and what is shielded */
	mrt_shield(self, true);
	mrt_shield(self, true);
	mrt_shield(self, false);
	MRT_AWAIT(self, mrt_nop(&f->close));
	ck_assert_int_eq(f->close.res, 0);
	MRT_AWAIT(self, mrt_sleep(&f->close, MRT_MS(1)));
	atomic_store(&f->told->res[7], f->close.res);
	mrt_shield(self, false);
	MRT_AWAIT(self, mrt_nop(&f->recv));
	ck_assert_int_eq(f->recv.res, -ECANCELED);
	MRT_RETURN(self, 5);
}

static void check_told(struct told *told)
{
	int i;

	for (i = 0; i < 6; i++)
		ck_assert_msg(atomic_load(&told->res[i]) == -ECANCELED, "result %d is %lld", i,
			      atomic_load(&told->res[i]));
	ck_assert_int_eq(atomic_load(&told->res[6]), 0);
	ck_assert_int_eq(atomic_load(&told->res[7]), 0);
}

START_TEST(an_idle_task_is_woken_and_its_ops_end)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_notify notify;
	struct told told = { 0 };
	struct idle f = { .told = &told, .notify = &notify };
	struct mrt_task *task;
	unsigned fds_nr;

	mrt_notify_init(&notify);
	fds_nr = itest_fds_nr();
	itest_socketpair(f.fds);
	task = itest_spawn(rt, idle_poll, &f, sizeof(f));
	ITEST_WAIT(atomic_load(&told.inside) && itest_all_parked(rt), 20000);
	ck_assert(!mrt_task_is_aborted(task));
	mrt_abort(task);
	ck_assert(mrt_task_is_aborted(task));
	mrt_abort(task);
	ck_assert_int_eq(itest_join(task), 5); /* it returned a result: that is the result */
	check_told(&told);
	close(f.fds[1]);
	ck_assert_uint_eq(itest_fds_nr(), fds_nr);
	mrt_runtime_destroy(rt);
}
END_TEST

/* By a task on the same runtime, also current-thread. */
ITEST_TASK(a_task_aborts_another, {
	struct told told; struct mrt_notify notify; struct mrt_op op; struct mrt_task *task; int fds[2]; int twice; })
{
	struct idle child = { .told = &f->told, .notify = &f->notify };

	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	mrt_notify_init(&f->notify);
	memcpy(child.fds, f->fds, sizeof(child.fds));
	ck_assert_int_eq(mrt_spawn(NULL, idle_poll, &child, sizeof(child), NULL, &f->task), 0);
	while (!atomic_load(&f->told.inside))
		MRT_AWAIT(self, mrt_yield(&f->op));
	mrt_abort(f->task);
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	ck_assert_int_eq(f->op.res, 5);
	ck_assert_int_eq(f->op.why, 0);
	check_told(&f->told);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* ---- running ---- */

struct running {
	struct mrt_op a, b, c;
	struct mrt_op *ops[3];
	struct told *told;
	int fd;
	char buf[4];
};

static enum mrt_poll running_poll(struct mrt_task *self, void *frame)
{
	struct running *f = frame;

	atomic_fetch_add(&f->told->polls, 1);
	MRT_BEGIN(self);
	f->ops[0] = mrt_recv(&f->a, f->fd, f->buf, sizeof(f->buf), 0);
	atomic_store(&f->told->inside, 1);
	while (!atomic_load(&f->told->go))
		continue;
	/* aborted by now: these either never start or are cancelled at the await */
	f->ops[1] = mrt_sleep(&f->b, UINT64_MAX);
	f->ops[2] = mrt_poll_fd(&f->c, f->fd, POLLIN);
	MRT_AWAIT_ALL(self, f->ops, 3);
	ck_assert_int_eq(f->a.res, -ECANCELED);
	ck_assert_int_eq(f->b.res, -ECANCELED);
	ck_assert_int_eq(f->c.res, -ECANCELED);
	MRT_RETURN(self, 1);
}

START_TEST(a_running_task_finds_out_at_its_next_await)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct told told = { 0 };
	struct running f = { .told = &told };
	struct mrt_task *task;
	int fds[2];

	itest_socketpair(fds);
	f.fd = fds[0];
	task = itest_spawn(rt, running_poll, &f, sizeof(f));
	ITEST_WAIT(atomic_load(&told.inside), 20000);
	mrt_abort(task);
	mrt_abort(task);
	atomic_store(&told.go, 1);
	ck_assert_int_eq(itest_join(task), 1);
	ck_assert_int_le(atomic_load(&told.polls), 2);
	mrt_runtime_destroy(rt);
}
END_TEST

ITEST_CHILD(suicide, { struct mrt_op op; struct mrt_oneshot ready; })
{
	MRT_BEGIN(self);
	mrt_oneshot_init(&f->ready);
	mrt_oneshot_send(&f->ready, 1);
	mrt_abort(self);
	ck_assert(mrt_task_is_aborted(self));
	/* "from now on": in this very poll, also what would complete at once */
	ck_assert_int_eq(mrt_oneshot_recv(&f->op, &f->ready)->res, -ECANCELED);
	ck_assert_int_eq(mrt_sleep(&f->op, 0)->res, -ECANCELED);
	MRT_AWAIT(self, mrt_nop(&f->op));
	ck_assert_int_eq(f->op.res, -ECANCELED);
	MRT_RETURN(self, 0);
}

START_TEST(a_task_that_aborts_itself_starts_nothing_more)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct suicide f = { 0 };

	ck_assert_int_eq(itest_run(rt, suicide_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- before the first poll, finished ---- */

struct flag {
	atomic_int *ran;
};

static enum mrt_poll flag_poll(struct mrt_task *self, void *frame)
{
	struct flag *f = frame;

	MRT_BEGIN(self);
	atomic_fetch_add(f->ran, 1);
	MRT_RETURN(self, 3);
}

ITEST_TASK(aborted_before_its_first_poll_it_does_not_run, {
	atomic_int ran; struct mrt_task *task; struct mrt_op op; int i;
})
{
	struct flag child = { .ran = &f->ran };

	MRT_BEGIN(self);
	for (f->i = 0; f->i < 300; f->i++) {
		ck_assert_int_eq(mrt_spawn(NULL, flag_poll, &child, sizeof(child), NULL, &f->task), 0);
		mrt_abort(f->task);
		mrt_abort(f->task);
		MRT_AWAIT(self, mrt_join(&f->op, f->task));
		ck_assert_int_eq(f->op.why, 0);
		/* another worker may have been quicker than the abort */
		ck_assert(f->op.res == -ECANCELED || f->op.res == 3);
	}
	if (mrt_runtime_workers_nr(mrt_runtime_self()) == 1)
		ck_assert_int_eq(atomic_load(&f->ran), 0);
	MRT_RETURN(self, 0);
}

START_TEST(aborting_a_finished_task_changes_nothing)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	atomic_int ran = 0;
	struct flag f = { .ran = &ran };
	struct mrt_task *task = itest_spawn(rt, flag_poll, &f, sizeof(f));

	ITEST_WAIT(mrt_task_is_finished(task), 20000);
	mrt_abort(task);
	mrt_abort(task);
	ck_assert(!mrt_task_is_aborted(task));
	ck_assert_int_eq(itest_join(task), 3);
	ck_assert_int_eq(atomic_load(&ran), 1);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- shields ---- */

struct shielded {
	struct mrt_op in, out;
	struct mrt_op *ops[2];
	struct told *told;
	int fd;
	char buf[4];
};

static enum mrt_poll shielded_poll(struct mrt_task *self, void *frame)
{
	struct shielded *f = frame;

	MRT_BEGIN(self);
	mrt_shield(self, true);
	f->ops[0] = mrt_recv(&f->in, f->fd, f->buf, sizeof(f->buf), 0);
	mrt_shield(self, false);
	f->ops[1] = mrt_recv(&f->out, f->fd, f->buf, sizeof(f->buf), 0);
	atomic_store(&f->told->inside, 1);
	MRT_AWAIT(self, &f->out);
	ck_assert_int_eq(f->out.res, -ECANCELED);
	ck_assert(!mrt_op_is_done(&f->in));
	atomic_store(&f->told->go, 1);
	MRT_AWAIT(self, &f->in);
	MRT_RETURN(self, f->in.res);
}

START_TEST(an_abort_leaves_shielded_ops_alone)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct told told = { 0 };
	struct shielded f = { .told = &told };
	struct mrt_task *task;
	int fds[2];

	itest_socketpair(fds);
	f.fd = fds[0];
	task = itest_spawn(rt, shielded_poll, &f, sizeof(f));
	ITEST_WAIT(atomic_load(&told.inside), 20000);
	mrt_abort(task);
	ITEST_WAIT(atomic_load(&told.go), 20000);
	ck_assert(!mrt_task_is_finished(task));
	ck_assert_int_eq(write(fds[1], "abc", 3), 3);
	ck_assert_int_eq(itest_join(task), 3);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- joins ---- */

ITEST_CHILD(joiner, { struct mrt_op op; struct mrt_task *task; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	/* the join was cancelled; the handle is still ours */
	ck_assert_int_eq(f->op.res, -ECANCELED);
	ck_assert_int_eq(f->op.why, -ECANCELED);
	mrt_abort(f->task);
	mrt_shield(self, true);
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	mrt_shield(self, false);
	ck_assert_int_eq(f->op.why, 0);
	MRT_RETURN(self, f->op.res);
}

ITEST_CHILD(sleeper, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(&f->op, UINT64_MAX));
	MRT_RETURN(self, f->op.res);
}

START_TEST(an_aborted_joiner_keeps_the_handle)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct sleeper s = { 0 };
	struct joiner j = { .task = itest_spawn(rt, sleeper_poll, &s, sizeof(s)) };
	struct mrt_task *task;

	task = itest_spawn(rt, joiner_poll, &j, sizeof(j));
	ITEST_WAIT(itest_stats(rt).timers == 1 && itest_stats(rt).polls >= 2 && itest_all_parked(rt), 20000);
	mrt_abort(task);
	ck_assert_int_eq(itest_join(task), -ECANCELED);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- descriptors ---- */

struct opener {
	struct mrt_op open, accept, sock, none;
	int listener;
	const char *path;
};

/* Opens, does not look, returns: what arrives is closed by the runtime. */
static enum mrt_poll opener_poll(struct mrt_task *self, void *frame)
{
	struct opener *f = frame;

	MRT_BEGIN(self);
	mrt_open(&f->open, MRT_AT_FDCWD, f->path, O_RDONLY, 0);
	mrt_socket(&f->sock, AF_INET, SOCK_STREAM, 0);
	if (f->listener >= 0)
		mrt_accept(&f->accept, f->listener, NULL, NULL, 0);
	mrt_flush();
	MRT_RETURN(self, 0);
}

START_TEST(descriptors_that_nobody_took_are_closed)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct opener f = { .path = "/proc/self/status", .listener = -1 };
	unsigned fds_nr = itest_fds_nr();
	int i;

	for (i = 0; i < 500; i++)
		ck_assert_int_eq(itest_run(rt, opener_poll, &f, sizeof(f)), 0);
	ck_assert_uint_eq(itest_fds_nr(), fds_nr);
	mrt_runtime_destroy(rt);
}
END_TEST

ITEST_CHILD(taker, { struct mrt_op op; const char *path; struct told *told; })
{
	MRT_BEGIN(self);
	atomic_store(&f->told->inside, 1);
	MRT_AWAIT(self, mrt_open(&f->op, MRT_AT_FDCWD, f->path, O_RDONLY, 0));
	if (f->op.res >= 0)
		MRT_AWAIT(self, mrt_close(&f->op, (int)f->op.res)); /* in spite of the abort */
	MRT_RETURN(self, f->op.res);
}

START_TEST(aborts_around_an_open_leak_nothing)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct told told = { 0 };
	struct taker f = { .path = "/proc/self/status", .told = &told };
	unsigned fds_nr = itest_fds_nr();
	int i, opened = 0;

	for (i = 0; i < 2000; i++) {
		struct mrt_task *task = itest_spawn(rt, taker_poll, &f, sizeof(f));
		int64_t result;

		itest_spin((uint64_t)(i % 40) * 500);
		mrt_abort(task);
		result = itest_join(task);
		ck_assert(result == 0 || result == -ECANCELED);
		opened += result == 0;
	}
	ck_assert_uint_eq(itest_fds_nr(), fds_nr);
	mrt_runtime_destroy(rt);
	ck_assert_int_lt(opened, 2000);
}
END_TEST

/* ---- races ---- */

#define STORM 4000

struct stormed {
	struct mrt_op op[3];
	struct mrt_op *ops[3];
	struct mrt_timer timer;
	int fd;
	unsigned i;
	uint64_t canary;
	char buf[32];
};

static enum mrt_poll stormed_poll(struct mrt_task *self, void *frame)
{
	struct stormed *f = frame;

	MRT_BEGIN(self);
	f->canary = 0x1122334455667788u;
	for (f->i = 0; f->i < 1000 && !mrt_task_is_aborted(self); f->i++) {
		f->ops[0] = mrt_deadline(mrt_recv(&f->op[0], f->fd, f->buf, sizeof(f->buf), 0), &f->timer,
					 MRT_US(50) * (1 + f->i % 7));
		f->ops[1] = mrt_sleep(&f->op[1], MRT_US(20) * (f->i % 11));
		f->ops[2] = mrt_nop(&f->op[2]);
		if (f->i % 3 == 0)
			MRT_AWAIT(self, f->ops[f->i % 2 ? 2 : 1]);
		MRT_AWAIT_ALL(self, f->ops, 3);
		ck_assert_uint_eq(f->canary, 0x1122334455667788u);
	}
	/* sometimes leave without collecting */
	if ((uintptr_t)f->fd % 2)
		mrt_recv(&f->op[0], f->fd, f->buf, sizeof(f->buf), 0);
	MRT_RETURN(self, 0);
}

struct storm {
	struct mrt_task **tasks;
	int nr, first, step;
};

static void *abort_them(void *arg)
{
	struct storm *s = arg;
	int i;

	for (i = s->first; i >= 0 && i < s->nr; i += s->step) {
		mrt_abort(s->tasks[i]);
		if (i % 16 == 0)
			itest_spin(20000);
	}
	return NULL;
}

START_TEST(two_threads_abort_thousands)
{
	int nr = ITEST_SLOW ? STORM / 8 : STORM, fds[2], i;
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_task **tasks = calloc((size_t)nr, sizeof(struct mrt_task *));
	struct storm up = { tasks, nr, 0, 1 }, down = { tasks, nr, nr - 1, -1 };
	struct stormed f = { 0 };
	pthread_t a, b;

	itest_socketpair(fds);
	f.fd = fds[0];
	for (i = 0; i < nr; i++)
		tasks[i] = itest_spawn(rt, stormed_poll, &f, sizeof(f));
	ck_assert_int_eq(pthread_create(&a, NULL, abort_them, &up), 0);
	ck_assert_int_eq(pthread_create(&b, NULL, abort_them, &down), 0);
	for (i = 0; i < nr; i++) {
		if (i % 2)
			(void)itest_join(tasks[i]);
	}
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	for (i = 0; i < nr; i++) {
		if (i % 2 == 0)
			mrt_detach(tasks[i]);
	}
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(20)), 0);
	ck_assert_int_eq(itest_global(rt).tasks_alive, 0);
	mrt_runtime_destroy(rt);
	free(tasks);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("abort");
	TCase *tc = tcase_create("abort");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_test(tc, an_idle_task_is_woken_and_its_ops_end);
	tcase_add_loop_test(tc, an_idle_task_is_woken_and_its_ops_end, ITEST_FLOAT, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_task_aborts_another, 0, ITEST_KINDS_NR);
	tcase_add_test(tc, a_running_task_finds_out_at_its_next_await);
	tcase_add_loop_test(tc, a_task_that_aborts_itself_starts_nothing_more, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, aborted_before_its_first_poll_it_does_not_run, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, aborting_a_finished_task_changes_nothing);
	tcase_add_test(tc, an_abort_leaves_shielded_ops_alone);
	tcase_add_test(tc, an_aborted_joiner_keeps_the_handle);
	tcase_add_loop_test(tc, descriptors_that_nobody_took_are_closed, 0, ITEST_KINDS_NR);
	tcase_add_test(tc, aborts_around_an_open_leak_nothing);
	tcase_add_loop_test(tc, aborts_around_an_open_leak_nothing, ITEST_FLOAT, ITEST_KINDS_NR);
	tcase_add_test(tc, two_threads_abort_thousands);
	tcase_add_loop_test(tc, two_threads_abort_thousands, ITEST_FLOAT, ITEST_KINDS_NR);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
