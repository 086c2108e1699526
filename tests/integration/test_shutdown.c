/* SPDX-License-Identifier: MIT */
/*
 * Shutdown: everything is collected before anything is freed; a limit names what holds it up and leaves all alive; no
 * spawn is lost between being refused and being aborted.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "itest.h"

#define ROUNDS_NS MRT_SEC(8)

/* Another round? Where others have the CPUs, making and closing a runtime takes as long as they let it: then there are fewer. */
static bool goes_on(int round, int rounds, uint64_t start_ns)
{
	return round < rounds && (round < 4 || mrt_now() - start_ns < ROUNDS_NS);
}

/* ---- ordinary ends ---- */

START_TEST(create_and_destroy)
{
	unsigned fds_nr = itest_fds_nr();
	uint64_t start = mrt_now();
	int i;

	for (i = 0; goes_on(i, 50, start); i++)
		mrt_runtime_destroy(itest_runtime(_i));
	mrt_runtime_destroy(NULL);
	ck_assert_uint_eq(itest_fds_nr(), fds_nr);
}
END_TEST

START_TEST(an_idle_runtime_shuts_down_at_once)
{
	uint64_t until = mrt_now() + MRT_SEC(20), start, took;

	/* once the machine is not busy */
	do {
		struct mrt_runtime *rt = itest_runtime(_i);

		start = mrt_now();
		ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(10000)), 0);
		took = mrt_now() - start;
		ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, 0), 0); /* again is nothing */
		mrt_runtime_destroy(rt);
	} while (took >= MRT_SEC(1) && mrt_now() < until);
	ck_assert_uint_lt(took, MRT_SEC(1));
}
END_TEST

/* ---- idle tasks ---- */

ITEST_CHILD(idler, {
	struct mrt_op op; struct mrt_op sleep; struct mrt_op wait; struct mrt_op *ops[3]; int fd;
	struct mrt_notify *notify; atomic_int *ready; atomic_int *ended; char buf[8];
})
{
	MRT_BEGIN(self);
	f->ops[0] = mrt_sleep(&f->sleep, UINT64_MAX);
	f->ops[1] = mrt_notify_wait(&f->wait, f->notify);
	f->ops[2] = f->fd >= 0 ? mrt_recv(&f->op, f->fd, f->buf, sizeof(f->buf), 0) : NULL;
	atomic_fetch_add(f->ready, 1);
	MRT_AWAIT_ALL(self, f->ops, 3);
	ck_assert_int_eq(f->sleep.res, -ECANCELED);
	ck_assert_int_eq(f->wait.res, -ECANCELED);
	/* the runtime is closing: nothing starts any more, and says so */
	MRT_AWAIT(self, mrt_nop(&f->op));
	ck_assert_int_eq(f->op.res, -ESHUTDOWN);
	ck_assert_int_eq(mrt_spawn(NULL, idler_poll, NULL, 0, NULL, NULL), -ESHUTDOWN);
	atomic_fetch_add(f->ended, 1);
	MRT_RETURN(self, 0);
}

START_TEST(ten_thousand_idle_tasks_are_ended)
{
	int nr = ITEST_SLOW ? 2000 : 10000, fds[2], i;
	struct mrt_runtime *rt = itest_runtime(_i);
	atomic_int ready = 0, ended = 0;
	struct mrt_notify notify;
	struct idler f = { .notify = &notify, .ready = &ready, .ended = &ended };

	mrt_notify_init(&notify);
	itest_socketpair(fds);
	for (i = 0; i < nr; i++) {
		f.fd = i % 4 ? -1 : fds[0];
		ck_assert_int_eq(mrt_spawn(rt, idler_poll, &f, sizeof(f), NULL, NULL), 0);
	}
	if (_i != ITEST_CURRENT)
		ITEST_WAIT(atomic_load(&ready) == nr, 20000);
	if (_i == ITEST_CURRENT) {
		/* never driven: none has been polled, so none runs */
		mrt_runtime_destroy(rt);
		ck_assert_int_eq(atomic_load(&ended), 0);
		return;
	}
	ck_assert_int_eq(itest_global(rt).tasks_alive, (uint64_t)nr);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, UINT64_MAX), 0);
	ck_assert_int_eq(atomic_load(&ended), nr);
	ck_assert_int_eq(itest_global(rt).tasks_alive, 0);
	ck_assert_uint_eq(itest_stats(rt).ends, (uint64_t)nr);
	ck_assert_uint_eq(itest_stats(rt).inflight, 0);
	ck_assert_uint_eq(itest_stats(rt).timers, 0);
	ck_assert_int_eq(mrt_spawn(rt, idler_poll, NULL, 0, NULL, NULL), -ESHUTDOWN);
	ck_assert_int_eq(mrt_block_on(rt, idler_poll, NULL, 0, NULL), -ESHUTDOWN);
	mrt_runtime_destroy(rt);
}
END_TEST

/* Tasks whose end wakes others that wait: no deadlock, whichever is first. */
ITEST_CHILD(ring_of_friends, {
	struct mrt_op op; struct mrt_oneshot *mine; struct mrt_oneshot *next; atomic_int *ready;
})
{
	MRT_BEGIN(self);
	atomic_fetch_add(f->ready, 1);
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, f->mine));
	(void)mrt_oneshot_send(f->next, 1); /* it may have been sent */
	MRT_RETURN(self, 0);
}

START_TEST(ends_that_wake_others_do_not_deadlock)
{
	uint64_t start = mrt_now();
	int round, i;

	for (round = 0; goes_on(round, 100, start); round++) {
		struct mrt_runtime *rt = itest_runtime(_i);
		struct mrt_oneshot o[8];
		atomic_int ready = 0;

		for (i = 0; i < 8; i++)
			mrt_oneshot_init(&o[i]);
		for (i = 0; i < 8; i++) {
			struct ring_of_friends f = { .mine = &o[i], .next = &o[(i + 1) % 8], .ready = &ready };

			ck_assert_int_eq(mrt_spawn(rt, ring_of_friends_poll, &f, sizeof(f), NULL, NULL), 0);
		}
		if (round % 2)
			ITEST_WAIT(atomic_load(&ready) == 8, 20000);
		mrt_runtime_destroy(rt);
	}
}
END_TEST

/* ---- a task that refuses to end ---- */

struct stubborn {
	struct mrt_op op;
	int fd;
	atomic_int *ready;
	char buf[8];
};

static enum mrt_poll stubborn_poll(struct mrt_task *self, void *frame)
{
	struct stubborn *f = frame;

	MRT_BEGIN(self);
	mrt_shield(self, true);
	mrt_recv(&f->op, f->fd, f->buf, sizeof(f->buf), 0);
	mrt_shield(self, false);
	atomic_store(f->ready, 1);
	MRT_AWAIT(self, &f->op);
	MRT_RETURN(self, f->op.res);
}

/* Workers that have lost their CPU do not answer in time, and what they have is named by a later call. */
static void shut_down_until_named(struct mrt_runtime *rt, const char *what)
{
	uint64_t until = mrt_now() + MRT_SEC(20);

	do
		ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_MS(50)), -ETIMEDOUT);
	while (!itest_log_has(what) && mrt_now() < until);
	ck_assert_msg(itest_log_has(what), "the log does not name: %s", what);
}

static const struct mrt_spawn_opts stubborn_opts = { .size = sizeof(stubborn_opts), .name = "stubborn-task" };

START_TEST(a_limit_names_what_holds_it_up_and_leaves_all_alive)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	atomic_int ready = 0;
	struct stubborn f = { .ready = &ready };
	struct mrt_task *task;
	uint64_t start, took, until = mrt_now() + MRT_SEC(20);
	int fds[2];

	itest_socketpair(fds);
	f.fd = fds[0];
	ck_assert_int_eq(mrt_spawn(rt, stubborn_poll, &f, sizeof(f), &stubborn_opts, &task), 0);
	ITEST_WAIT(atomic_load(&ready), 20000);
	/* no longer either, once the machine is not busy */
	do {
		start = mrt_now();
		ck_assert_uint_lt(start, until);
		ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_MS(50)), -ETIMEDOUT);
		took = mrt_now() - start;
		ck_assert_uint_ge(took, MRT_MS(50));
	} while (took >= MRT_SEC(3));
	shut_down_until_named(rt, "stubborn-task");
	shut_down_until_named(rt, "recv");
	ck_assert(!mrt_task_is_finished(task));
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, 0), -ETIMEDOUT);
	/* released, it goes on, and so does the shutdown */
	ck_assert_int_eq(write(fds[1], "abc", 3), 3);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(20)), 0);
	ck_assert_int_eq(itest_join(task), 3);
	mrt_runtime_destroy(rt);
}
END_TEST

/* The same on a current-thread runtime, whose shutdown drives it. */
ITEST_CHILD(spawn_stubborn, { struct stubborn child; struct mrt_op op; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_spawn(NULL, stubborn_poll, &f->child, sizeof(f->child), &stubborn_opts, NULL), 0);
	while (!atomic_load(f->child.ready))
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

START_TEST(a_limit_on_a_current_thread_runtime)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_CURRENT);
	atomic_int ready = 0;
	struct spawn_stubborn f = { .child = { .ready = &ready } };
	uint64_t start;
	int fds[2];

	itest_socketpair(fds);
	f.child.fd = fds[0];
	ck_assert_int_eq(itest_run(rt, spawn_stubborn_poll, &f, sizeof(f)), 0);
	start = mrt_now();
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_MS(50)), -ETIMEDOUT);
	ck_assert_uint_ge(mrt_now() - start, MRT_MS(50));
	shut_down_until_named(rt, "stubborn-task");
	ck_assert_int_eq(write(fds[1], "abc", 3), 3);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(20)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* A poll function that does not return. */
ITEST_CHILD(spinner, { atomic_int *ready; atomic_int *stop; })
{
	MRT_BEGIN(self);
	atomic_store(f->ready, 1);
	while (!atomic_load(f->stop))
		continue;
	MRT_RETURN(self, 0);
}

START_TEST(a_worker_that_is_stuck_in_a_poll_is_named)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	atomic_int ready = 0, stop = 0;
	struct spinner f = { .ready = &ready, .stop = &stop };

	ck_assert_int_eq(mrt_spawn(rt, spinner_poll, &f, sizeof(f), NULL, NULL), 0);
	ITEST_WAIT(atomic_load(&ready), 20000);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_MS(20)), -ETIMEDOUT);
	shut_down_until_named(rt, "does not answer");
	atomic_store(&stop, 1);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(20)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- blocking calls ---- */

static int64_t wait_for(void *arg)
{
	atomic_int *state = arg;

	atomic_store(state, 1);
	while (atomic_load(state) == 1)
		itest_pause();
	atomic_store(state, 3);
	return 5;
}

ITEST_CHILD(blocker, { struct mrt_op op; atomic_int *state; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_blocking(&f->op, wait_for, f->state));
	MRT_RETURN(self, f->op.res);
}

START_TEST(a_blocking_call_that_runs_is_waited_for)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	atomic_int state = 0;
	struct blocker f = { .state = &state };
	struct mrt_task *task = itest_spawn(rt, blocker_poll, &f, sizeof(f));

	ITEST_WAIT(atomic_load(&state) == 1, 20000);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, 0), -ETIMEDOUT);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_MS(100)), -ETIMEDOUT);
	shut_down_until_named(rt, "blocking");
	atomic_store(&state, 2);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(20)), 0);
	ck_assert_int_eq(atomic_load(&state), 3);
	ck_assert_int_eq(itest_join(task), 5);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- spawns that race with the close ---- */

struct racer {
	struct mrt_runtime *rt;
	atomic_int *go;
	atomic_int *polled;
	unsigned flags;
	uint64_t spawned, refused;
	struct mrt_task *tasks[20000];
	int64_t results[20000];
};

ITEST_CHILD(raced, { struct mrt_op op; atomic_int *polled; })
{
	MRT_BEGIN(self);
	atomic_fetch_add_explicit(f->polled, 1, memory_order_relaxed);
	MRT_AWAIT(self, mrt_sleep(&f->op, UINT64_MAX));
	MRT_RETURN(self, f->op.res);
}

/* Spawn until refused; then wait for each handle: none may hang. */
static void *race(void *arg)
{
	struct racer *r = arg;
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = r->flags };
	struct raced f = { .polled = r->polled };
	uint64_t i;
	int err = 0;

	while (!atomic_load(r->go))
		continue;
	while (!err && r->spawned < sizeof(r->tasks) / sizeof(r->tasks[0])) {
		err = mrt_spawn(r->rt, raced_poll, &f, sizeof(f), &opts, &r->tasks[r->spawned]);
		r->spawned += !err;
	}
	ck_assert(err == 0 || err == -ESHUTDOWN);
	for (i = 0; i < r->spawned; i++)
		ck_assert_int_eq(itest_join(r->tasks[i]), -ECANCELED);
	return NULL;
}

#define RACERS 3

START_TEST(spawns_that_race_with_the_shutdown_all_resolve)
{
	static struct racer r[RACERS];
	int round, i, rounds = ITEST_SLOW ? 60 : 300;
	uint64_t start = mrt_now();

	/* each lasts as long as the closing thread waits for a CPU, and all spawn meanwhile */
	for (round = 0; goes_on(round, rounds, start); round++) {
		struct mrt_runtime *rt = itest_runtime(_i);
		atomic_int go = 0, polled = 0;
		pthread_t threads[RACERS];

		for (i = 0; i < RACERS; i++) {
			r[i].rt = rt;
			r[i].go = &go;
			r[i].polled = &polled;
			r[i].flags = round % 2 ? MRT_SPAWN_SPREAD : 0;
			r[i].spawned = 0;
			ck_assert_int_eq(pthread_create(&threads[i], NULL, race, &r[i]), 0);
		}
		atomic_store(&go, 1);
		itest_spin((uint64_t)(round % 50) * 2000);
		ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(20)), 0);
		for (i = 0; i < RACERS; i++)
			pthread_join(threads[i], NULL);
		ck_assert_int_eq(itest_global(rt).tasks_alive, 0);
		mrt_runtime_destroy(rt);
	}
}
END_TEST

/* ---- a thread that waits for a task while the runtime closes ---- */

static void *join_it(void *arg)
{
	return (void *)(intptr_t)itest_join(arg);
}

START_TEST(a_join_from_outside_resolves)
{
	uint64_t start = mrt_now();
	int round;

	for (round = 0; goes_on(round, 100, start); round++) {
		struct mrt_runtime *rt = itest_runtime(_i);
		atomic_int polled = 0;
		struct raced f = { .polled = &polled };
		struct mrt_task *task = itest_spawn(rt, raced_poll, &f, sizeof(f));
		pthread_t thread;
		void *result;

		ck_assert_int_eq(pthread_create(&thread, NULL, join_it, task), 0);
		itest_spin((uint64_t)round * 1000);
		ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, UINT64_MAX), 0);
		pthread_join(thread, &result);
		ck_assert_int_eq((intptr_t)result, -ECANCELED);
		mrt_runtime_destroy(rt);
	}
}
END_TEST

/* ---- who may call ---- */

ITEST_TASK(a_worker_may_not_block_itself, { int none; })
{
	struct mrt_runtime *rt = mrt_runtime_self(), *other = NULL;
	int64_t result = 8;

	(void)f;
	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, 0), -EDEADLK);
	ck_assert_int_eq(mrt_block_on(rt, raced_poll, NULL, 0, &result), -EDEADLK);
	ck_assert_int_eq(mrt_runtime_create(NULL, &other), -EDEADLK);
	ck_assert_ptr_null(other);
	ck_assert_int_eq(result, 8);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(counter, { struct mrt_op op; int i; int64_t sum; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 20; f->i++) {
		MRT_AWAIT(self, f->i % 2 ? mrt_yield(&f->op) : mrt_sleep(&f->op, MRT_US(50)));
		f->sum += f->i;
	}
	MRT_RETURN(self, f->sum);
}

static void *block_many(void *arg)
{
	int i;

	for (i = 0; i < 50; i++) {
		struct counter c = { .i = 0 };

		ck_assert_int_eq(itest_run(arg, counter_poll, &c, sizeof(c)), 190);
		ck_assert_int_eq(c.sum, 190);
	}
	return NULL;
}

START_TEST(block_on_from_several_threads_at_once)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	pthread_t threads[8];
	int i;

	for (i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, block_many, rt), 0);
	for (i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	mrt_runtime_destroy(rt);
}
END_TEST

static void *intrude(void *arg)
{
	struct counter c = { .i = 0 };

	ck_assert_int_eq(mrt_block_on(arg, counter_poll, &c, sizeof(c), NULL), -EXDEV);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(arg, 0), -EXDEV);
	ck_assert_int_eq(mrt_spawn(arg, counter_poll, &c, sizeof(c), NULL, NULL), 0); /* from anywhere */
	return NULL;
}

START_TEST(a_current_thread_runtime_belongs_to_its_first_thread)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_CURRENT);
	struct counter c = { .i = 0 };
	pthread_t thread;

	ck_assert_int_eq(itest_run(rt, counter_poll, &c, sizeof(c)), 190);
	ck_assert_int_eq(pthread_create(&thread, NULL, intrude, rt), 0);
	pthread_join(thread, NULL);
	c = (struct counter){ .i = 0 };
	ck_assert_int_eq(itest_run(rt, counter_poll, &c, sizeof(c)), 190);
	mrt_runtime_destroy(rt);
}
END_TEST

static void *destroy_it(void *arg)
{
	mrt_runtime_destroy(arg);
	return NULL;
}

START_TEST(a_runtime_that_nobody_drove_may_be_destroyed_anywhere)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_CURRENT);
	atomic_int polled = 0;
	struct raced f = { .polled = &polled };
	struct mrt_task *task = itest_spawn(rt, raced_poll, &f, sizeof(f));
	pthread_t thread;

	mrt_detach(task);
	ck_assert_int_eq(pthread_create(&thread, NULL, destroy_it, rt), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(atomic_load(&polled), 0);
}
END_TEST

/* Several runtimes at once, one inside the life of the other. */
ITEST_CHILD(bridge, { struct mrt_runtime *other; struct mrt_op op; struct mrt_oneshot *o; int i; })
{
	struct counter c = { .i = 0 };

	MRT_BEGIN(self);
	for (f->i = 0; f->i < 100; f->i++)
		ck_assert_int_eq(mrt_spawn(f->other, counter_poll, &c, sizeof(c), NULL, NULL), 0);
	ck_assert_int_eq(mrt_oneshot_send(f->o, 6), 0);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(awaiter, { struct mrt_op op; struct mrt_oneshot *o; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, f->o));
	MRT_RETURN(self, f->op.res);
}

START_TEST(tasks_of_two_runtimes_meet)
{
	struct mrt_runtime *a = itest_runtime(_i), *b = itest_runtime(ITEST_TWO);
	struct mrt_oneshot o;
	struct bridge f = { .other = b, .o = &o };
	struct awaiter w = { .o = &o };
	struct mrt_task *task;

	mrt_oneshot_init(&o);
	task = itest_spawn(b, awaiter_poll, &w, sizeof(w));
	ck_assert_int_eq(itest_run(a, bridge_poll, &f, sizeof(f)), 0);
	ck_assert_int_eq(itest_join(task), 6);
	mrt_runtime_destroy(a);
	mrt_runtime_destroy(b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shutdown");
	TCase *tc = tcase_create("shutdown");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, create_and_destroy, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, an_idle_runtime_shuts_down_at_once, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, ten_thousand_idle_tasks_are_ended, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, ends_that_wake_others_do_not_deadlock, ITEST_TWO, ITEST_TWO + 1);
	tcase_add_loop_test(tc, ends_that_wake_others_do_not_deadlock, ITEST_FLOAT, ITEST_FLOAT + 1);
	tcase_add_test(tc, a_limit_names_what_holds_it_up_and_leaves_all_alive);
	tcase_add_loop_test(tc, a_limit_names_what_holds_it_up_and_leaves_all_alive, ITEST_FLOAT, ITEST_KINDS_NR);
	tcase_add_test(tc, a_limit_on_a_current_thread_runtime);
	tcase_add_test(tc, a_worker_that_is_stuck_in_a_poll_is_named);
	tcase_add_test(tc, a_blocking_call_that_runs_is_waited_for);
	tcase_add_test(tc, spawns_that_race_with_the_shutdown_all_resolve);
	tcase_add_loop_test(tc, spawns_that_race_with_the_shutdown_all_resolve, ITEST_FLOAT, ITEST_FLOAT + 1);
	tcase_add_test(tc, a_join_from_outside_resolves);
	tcase_add_loop_test(tc, a_worker_may_not_block_itself, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, block_on_from_several_threads_at_once);
	tcase_add_loop_test(tc, block_on_from_several_threads_at_once, ITEST_FLOAT, ITEST_FLOAT + 1);
	tcase_add_test(tc, a_current_thread_runtime_belongs_to_its_first_thread);
	tcase_add_test(tc, a_runtime_that_nobody_drove_may_be_destroyed_anywhere);
	tcase_add_loop_test(tc, tasks_of_two_runtimes_meet, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
