/* SPDX-License-Identifier: MIT */
/*
 * The blocking pool, through mrt_blocking() on a real runtime.
 *
 * Proven: results, the thread cap and the queue bound to the call, that threads are started only when nobody is idle,
 * leave after their keep-alive and have all signals blocked; that short calls wake few threads and none that blocks holds
 * up another, that a task is woken once for all that it waits for; cancel before and after the begin; shutdown with a call
 * that blocks. The failure of pthread_create is provoked by RLIMIT_AS. Not proven: that an idle thread is sent in place of one that could
 * not be started.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <martlet/martlet.h>

#include "base/compiler.h"
#include "suite.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1   /* as gcc says it */
#endif
#endif

#define LIMIT_S 30
#define FLAVOURS_NR 2   /* loop index: 0 multi-thread with 2 workers, 1 current-thread */
#define OPS_NR 8
#define ROUND_NR 16

struct settings {
	uint32_t threads_max;
	uint32_t queue_max;
	uint64_t keep_alive_ns;
};

static struct mrt_runtime *runtime_create(int flavour, struct settings set)
{
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt = NULL;

	mrt_runtime_opts_init(&opts);
	opts.flavour = flavour ? MRT_FLAVOUR_CURRENT_THREAD : MRT_FLAVOUR_MULTI_THREAD;
	opts.workers_nr = flavour ? 1 : 2;
	opts.sq_entries = 64;
	opts.blocking_threads_max = set.threads_max;
	opts.blocking_queue_max = set.queue_max;
	opts.blocking_keep_alive_ns = set.keep_alive_ns;
	opts.name = "a-name-that-is-long";
	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), 0);
	return rt;
}

struct script {
	struct mrt_op op[OPS_NR];
	struct mrt_op yield;
	struct mrt_op sleep;
	struct mrt_timer timer;
	struct mrt_task *task;
	unsigned i;
};

static void script_run(int flavour, struct settings set, mrt_poll_fn fn)
{
	struct mrt_runtime *rt = runtime_create(flavour, set);
	struct script script;
	int64_t result = -1;

	memset(&script, 0, sizeof(script));
	ck_assert_int_eq(mrt_block_on(rt, fn, &script, sizeof(script), &result), 0);
	ck_assert_int_eq(result, 0);
	mrt_runtime_destroy(rt);
}

/* A test whose body is a poll function on a struct script; the settings follow the name. */
#define SCRIPT(name, ...)                                                                               \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame);                           \
	START_TEST(name)                                                                                \
	{                                                                                               \
		script_run(_i, (struct settings){ __VA_ARGS__ }, name##_poll);                          \
	}                                                                                               \
	END_TEST                                                                                        \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame)

static struct mrt_global_stats stats_now(struct mrt_runtime *rt)
{
	struct mrt_global_stats stats;

	ck_assert_int_eq(mrt_stats_global_get(rt, &stats), 0);
	return stats;
}

/* A gate that calls wait at. Waiting for a state of other threads polls it; nothing depends on how long that takes. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool open;
	unsigned inside;
};

static struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0 };

static int64_t gate_pass(void *arg)
{
	pthread_mutex_lock(&gate.lock);
	gate.inside++;
	pthread_cond_broadcast(&gate.cond);
	while (!gate.open)
		pthread_cond_wait(&gate.cond, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	return (int64_t)(uintptr_t)arg;
}

static void gate_open(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.open = true;
	pthread_cond_broadcast(&gate.cond);
	pthread_mutex_unlock(&gate.lock);
}

static unsigned gate_inside(void)
{
	unsigned inside;

	pthread_mutex_lock(&gate.lock);
	inside = gate.inside;
	pthread_mutex_unlock(&gate.lock);
	return inside;
}

static void gate_await_inside(unsigned nr)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.inside < nr)
		pthread_cond_wait(&gate.cond, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
}

static void *opener_main(void *arg)
{
	gate_await_inside((unsigned)(uintptr_t)arg);
	gate_open();
	return NULL;
}

static int64_t square(void *arg)
{
	return (int64_t)((uintptr_t)arg * (uintptr_t)arg);
}

#define NR(n) ((void *)(uintptr_t)(n))

SCRIPT(a_call_runs_elsewhere_and_its_result_comes_back, 0)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_blocking(&s->op[0], square, NR(12)));
	ck_assert_int_eq(s->op[0].res, 144);
	MRT_AWAIT(self, mrt_blocking(&s->op[0], NULL, NULL));
	ck_assert_int_eq(s->op[0].res, -EINVAL);
	MRT_RETURN(self, 0);
}

static int64_t fails(void *arg)
{
	return -(int64_t)(uintptr_t)arg;
}

SCRIPT(a_negative_result_is_passed_on, 0)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_blocking(&s->op[0], fails, NR(ENXIO)));
	ck_assert_int_eq(s->op[0].res, -ENXIO);
	MRT_RETURN(self, 0);
}

static int64_t looks_around(void *arg)
{
	char name[16];
	sigset_t set;

	(void)arg;
	ck_assert_ptr_null(mrt_task_self());
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
	for (int sig = 1; sig < 32; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			ck_assert_int_eq(sigismember(&set, sig), 1);
	ck_assert_int_eq(pthread_getname_np(pthread_self(), name, sizeof(name)), 0);
	ck_assert_str_eq(name, "a-name-that-blk");
	return 0;
}

SCRIPT(pool_threads_have_a_name_and_block_all_signals, 0)
{
	struct script *s = frame;
	sigset_t before, after;

	MRT_BEGIN(self);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
	mrt_blocking(&s->op[0], looks_around, NULL);
	mrt_flush();
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
	for (int sig = 1; sig < 32; sig++)      /* the submitter's are as they were */
		ck_assert_int_eq(sigismember(&before, sig), sigismember(&after, sig));
	MRT_AWAIT(self, &s->op[0]);
	ck_assert_int_eq(s->op[0].res, 0);
	MRT_RETURN(self, 0);
}

/* Nobody is idle, the cap is not reached: each call gets a thread of its own. */
SCRIPT(calls_that_block_get_a_thread_each, .threads_max = 4)
{
	struct script *s = frame;
	struct mrt_op *ops[] = { &s->op[0], &s->op[1], &s->op[2], &s->op[3] };

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 4; s->i++)
		mrt_blocking(&s->op[s->i], gate_pass, NR(s->i));
	mrt_flush();
	gate_await_inside(4);
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_threads, 4);
	gate_open();
	MRT_AWAIT_ALL(self, ops, 4);
	for (s->i = 0; s->i < 4; s->i++)
		ck_assert_int_eq(s->op[s->i].res, s->i);
	MRT_RETURN(self, 0);
}

SCRIPT(an_idle_thread_is_used_again, .threads_max = 4)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 100; s->i++) {
		MRT_AWAIT(self, mrt_blocking(&s->op[0], square, NR(s->i)));
		ck_assert_int_eq(s->op[0].res, s->i * s->i);
		while (stats_now(mrt_runtime_self()).blocking_idle == 0)
			(void)sched_yield();
	}
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_threads, 1);
	MRT_RETURN(self, 0);
}

/* Tokio: cap 1 and two calls that block; the queue is seen, and empty at the end. */
SCRIPT(a_call_beyond_the_cap_waits_and_still_runs, .threads_max = 1)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_blocking(&s->op[0], gate_pass, NR(1));
	mrt_flush();
	gate_await_inside(1);
	mrt_blocking(&s->op[1], gate_pass, NR(2));
	mrt_blocking(&s->op[2], square, NR(3));
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_queued, 2);
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_threads, 1);
	gate_open();
	MRT_AWAIT(self, &s->op[2]);
	ck_assert(mrt_op_is_done(&s->op[0]));           /* first come, first served */
	ck_assert(mrt_op_is_done(&s->op[1]));
	ck_assert_int_eq(s->op[2].res, 9);
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_queued, 0);
	MRT_RETURN(self, 0);
}

SCRIPT(a_full_queue_refuses_and_runs_what_it_took, .threads_max = 2, .queue_max = 1)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_blocking(&s->op[0], gate_pass, NR(0));
	mrt_blocking(&s->op[1], gate_pass, NR(1));      /* threads are on their way: neither waits for one */
	mrt_blocking(&s->op[2], gate_pass, NR(2));
	mrt_blocking(&s->op[3], gate_pass, NR(3));
	ck_assert(mrt_op_is_done(&s->op[3]));
	ck_assert_int_eq(s->op[3].res, -EAGAIN);
	mrt_flush();
	gate_await_inside(2);
	mrt_blocking(&s->op[4], gate_pass, NR(4));
	ck_assert(mrt_op_is_done(&s->op[4]));
	ck_assert_int_eq(s->op[4].res, -EAGAIN);
	gate_open();
	for (s->i = 0; s->i < 3; s->i++) {
		MRT_AWAIT(self, &s->op[s->i]);
		ck_assert_int_eq(s->op[s->i].res, s->i);
	}
	MRT_RETURN(self, 0);
}

SCRIPT(cancel_works_until_the_call_has_begun, .threads_max = 1)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_blocking(&s->op[0], gate_pass, NR(5));
	mrt_flush();
	gate_await_inside(1);
	mrt_blocking(&s->op[1], square, NR(1));
	mrt_blocking(&s->op[2], square, NR(2));
	mrt_blocking(&s->op[3], square, NR(3));
	mrt_cancel(&s->op[0]);
	mrt_cancel(&s->op[2]);
	mrt_deadline(&s->op[3], &s->timer, 0);
	MRT_AWAIT(self, &s->op[2]);
	MRT_AWAIT(self, &s->op[3]);
	ck_assert_int_eq(s->op[2].res, -ECANCELED);
	ck_assert_int_eq(s->op[3].res, -ETIMEDOUT);
	ck_assert(!mrt_op_is_done(&s->op[0]));
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_queued, 1);
	gate_open();
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	ck_assert_int_eq(s->op[0].res, 5);              /* it had begun: its result stands */
	ck_assert_int_eq(s->op[1].res, 1);
	MRT_RETURN(self, 0);
}

struct caller {
	struct mrt_op op[2];
};

static enum mrt_poll caller_poll(struct mrt_task *self, void *frame)
{
	struct caller *c = frame;

	MRT_BEGIN(self);
	mrt_blocking(&c->op[0], gate_pass, &c->op[0]);   /* its argument is in the frame */
	mrt_flush();
	gate_await_inside(1);
	mrt_blocking(&c->op[1], square, NR(2));
	MRT_RETURN(self, 1);
}

SCRIPT(a_task_that_returns_is_kept_until_its_call_has_ended, .threads_max = 1)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_spawn(NULL, caller_poll, NULL, sizeof(struct caller), NULL, &s->task), 0);
	mrt_join(&s->op[0], s->task);
	while (gate_inside() == 0)                         /* its own worker may be this one */
		MRT_AWAIT(self, mrt_sleep(&s->sleep, MRT_US(100)));
	MRT_AWAIT(self, mrt_sleep(&s->sleep, MRT_MS(2)));
	ck_assert(!mrt_op_is_done(&s->op[0]));
	gate_open();
	MRT_AWAIT(self, &s->op[0]);
	ck_assert_int_eq(s->op[0].res, 1);
	MRT_RETURN(self, 0);
}

SCRIPT(a_thread_leaves_after_its_keep_alive, .threads_max = 8, .keep_alive_ns = MRT_MS(5))
{
	struct script *s = frame;
	struct mrt_op *ops[] = { &s->op[0], &s->op[1], &s->op[2], &s->op[3] };

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 4; s->i++)
		mrt_blocking(&s->op[s->i], gate_pass, NULL);
	mrt_flush();
	gate_await_inside(4);
	gate_open();
	MRT_AWAIT_ALL(self, ops, 4);
	while (stats_now(mrt_runtime_self()).blocking_threads > 0)
		MRT_AWAIT(self, mrt_sleep(&s->sleep, MRT_MS(1)));
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_idle, 0);
	MRT_AWAIT(self, mrt_blocking(&s->op[0], square, NR(3))); /* and another comes */
	ck_assert_int_eq(s->op[0].res, 9);
	MRT_RETURN(self, 0);
}

/* Claims against keep-alives that run out at the same time: no call may be forgotten. */
SCRIPT(a_call_is_not_lost_on_a_thread_that_is_about_to_leave, .threads_max = 2, .keep_alive_ns = MRT_US(50))
{
	struct script *s = frame;
	struct mrt_op *ops[] = { &s->op[0], &s->op[1], &s->op[2] };

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 1500; s->i++) {
		mrt_blocking(&s->op[0], square, NR(2));
		mrt_blocking(&s->op[1], square, NR(3));
		mrt_blocking(&s->op[2], square, NR(4));
		MRT_AWAIT_ALL(self, ops, 3);
		ck_assert_int_eq(s->op[0].res, 4);
		ck_assert_int_eq(s->op[1].res, 9);
		ck_assert_int_eq(s->op[2].res, 16);
		if (s->i % 4)
			MRT_AWAIT(self, mrt_sleep(&s->sleep, MRT_US(40 + s->i % 30)));
	}
	MRT_RETURN(self, 0);
}

/* ---- who is woken ---- */

struct rounds {
	struct mrt_op ops[3 * ROUND_NR];
	struct mrt_op *all[3 * ROUND_NR];
	mrt_blocking_fn fn;
	unsigned nr;            /* of calls in a round */
	unsigned i, rounds;
};

static enum mrt_poll rounds_poll(struct mrt_task *self, void *frame)
{
	struct rounds *f = frame;
	unsigned i;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < f->rounds; f->i++) {
		for (i = 0; i < f->nr; i++)
			f->all[i] = mrt_blocking(&f->ops[i], f->fn, NR(i));
		MRT_AWAIT_ALL(self, f->all, f->nr);
		for (i = 0; i < f->nr; i++)
			ck_assert_int_ge(f->ops[i].res, 0);
	}
	MRT_RETURN(self, 0);
}

static void rounds_run(struct mrt_runtime *rt, mrt_blocking_fn fn, unsigned nr, unsigned rounds)
{
	struct rounds f = { .fn = fn, .nr = nr, .rounds = rounds };

	ck_assert_int_eq(mrt_block_on(rt, rounds_poll, &f, sizeof(f), NULL), 0);
}

static uint64_t parks_of(struct mrt_runtime *rt)
{
	struct mrt_worker_stats stats;
	uint64_t parks = 0;
	unsigned i;

	for (i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		ck_assert_int_eq(mrt_stats_get(rt, i, &stats), 0);
		parks += stats.parks - stats.sentry_wakes;
	}
	return parks;
}

/*
 * From now on this process's threads take turns: one at a time, and each goes on until it sleeps, whatever else the machine does.
 * So who is woken runs when its waker has nothing to do. @return 0, -errno
 */
static int take_turns(void)
{
	struct sched_param lowest = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };
	int cpu = sched_getcpu();
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu < 0 ? 0u : (unsigned)cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) || sched_setscheduler(0, SCHED_FIFO, &lowest))
		return -errno;
	return 0;
}

/* Whoever is woken for the first of them has done them all before the next one comes. A wake for each would be 16. */
START_TEST(short_calls_wake_few_threads)
{
	uint64_t wakes_before, parks_before;
	struct mrt_runtime *rt;
	double wakes, parks;
	int err = take_turns();

	if (err) {
		printf("skipped: short_calls_wake_few_threads: its threads cannot be made to take turns: %s\n", strerror(-err));
		return;
	}
	rt = runtime_create(_i, (struct settings){ .threads_max = 0 });
	rounds_run(rt, square, ROUND_NR, 50);
	wakes_before = stats_now(rt).blocking_wakes;
	parks_before = parks_of(rt);
	rounds_run(rt, square, ROUND_NR, 200);
	wakes = (double)(stats_now(rt).blocking_wakes - wakes_before) / 200;
	parks = (double)(parks_of(rt) - parks_before) / 200;
	printf("%d calls at once, flavour %d: %.2f threads woken, %.2f parks\n", ROUND_NR, _i, wakes, parks);
	ck_assert_msg(wakes <= 4, "%.2f threads were woken for %d calls", wakes, ROUND_NR);
	ck_assert_msg(parks <= 2, "%.2f parks for %d calls", parks, ROUND_NR);
	mrt_runtime_destroy(rt);
}
END_TEST

static int64_t dozes(void *arg)
{
	struct timespec ts = { .tv_nsec = 200000 };

	(void)arg;
	(void)nanosleep(&ts, NULL); /* shorter, with a signal */
	return 0;
}

/* The pool's thread counts down for the task, and wakes its worker at the end. */
START_TEST(a_task_that_awaits_many_calls_is_woken_once)
{
	struct mrt_runtime *rt = runtime_create(1, (struct settings){ .threads_max = 1 });
	uint64_t parks;

	rounds_run(rt, dozes, 1, 1);
	parks = parks_of(rt);
	rounds_run(rt, dozes, ROUND_NR, 4);
	ck_assert_uint_le(parks_of(rt) - parks, 8);
	mrt_runtime_destroy(rt);
}
END_TEST

/* More and more threads are sent for: with the first few only, the others would wait for ever. Then those are awake anyhow. */
START_TEST(each_of_many_calls_that_block_begins)
{
	struct mrt_runtime *rt = runtime_create(_i, (struct settings){ .threads_max = 3 * ROUND_NR });
	struct rounds f = { .fn = gate_pass, .nr = 3 * ROUND_NR, .rounds = 1 };
	pthread_t opener;
	unsigned i;

	for (i = 0; i < 3; i++) {
		gate.inside = 0;
		gate.open = false;
		ck_assert_int_eq(pthread_create(&opener, NULL, opener_main, NR(f.nr)), 0);
		ck_assert_int_eq(mrt_block_on(rt, rounds_poll, &f, sizeof(f), NULL), 0);
		ck_assert_int_eq(pthread_join(opener, NULL), 0);
	}
	ck_assert_uint_eq(stats_now(rt).blocking_threads, f.nr);
	mrt_runtime_destroy(rt);
}
END_TEST

/* Calls that all have to be inside at once, from two tasks at a time, and short ones between, which slow the sending down. */
static pthread_barrier_t together;

static int64_t meets(void *arg)
{
	(void)arg;
	(void)pthread_barrier_wait(&together); /* one of them gets another value */
	return 0;
}

static enum mrt_poll meetings_poll(struct mrt_task *self, void *frame)
{
	struct rounds *f = frame;
	unsigned i;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < f->rounds; f->i++) {
		for (i = 0; i < f->nr; i++)
			f->all[i] = mrt_blocking(&f->ops[i], meets, NULL);
		MRT_AWAIT_ALL(self, f->all, f->nr);
		for (i = 0; i < f->i % 8; i++)
			f->all[i] = mrt_blocking(&f->ops[i], square, NR(i));
		for (; i < f->nr; i++)
			f->all[i] = NULL;
		MRT_AWAIT_ALL(self, f->all, f->nr);
	}
	MRT_RETURN(self, 0);
}

START_TEST(no_call_is_forgotten_whoever_sends_for_threads)
{
	struct mrt_runtime *rt = runtime_create(_i, (struct settings){ .threads_max = 2 * ROUND_NR });
	struct rounds f = { .nr = ROUND_NR, .rounds = 400 };
	struct mrt_task *other;

	ck_assert_int_eq(pthread_barrier_init(&together, NULL, 2 * ROUND_NR), 0);
	ck_assert_int_eq(mrt_spawn(rt, meetings_poll, &f, sizeof(f), NULL, &other), 0);
	mrt_detach(other);
	ck_assert_int_eq(mrt_block_on(rt, meetings_poll, &f, sizeof(f), NULL), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

static enum mrt_poll leaves_a_call_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_blocking(&s->op[0], gate_pass, NR(7)));
	ck_assert_int_eq(s->op[0].res, 7);
	MRT_RETURN(self, 0);
}

static enum mrt_poll spawns_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_spawn(NULL, leaves_a_call_poll, NULL, sizeof(struct script), NULL, NULL), 0);
	MRT_RETURN(self, 0);
}

/* Nobody drives the runtime any more, and yet it begins. */
START_TEST(a_call_begins_though_the_drive_has_ended)
{
	struct mrt_runtime *rt = runtime_create(1, (struct settings){ .threads_max = 1 });

	ck_assert_int_eq(mrt_block_on(rt, spawns_poll, NULL, 0, NULL), 0);
	gate_await_inside(1);
	gate_open();
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- shutdown ---- */

static enum mrt_poll blocks_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_blocking(&s->op[0], gate_pass, NR(1));
	mrt_blocking(&s->op[1], square, NR(2));
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	ck_assert_int_eq(s->op[0].res, 1);
	ck_assert_int_eq(s->op[1].res, -ECANCELED);
	MRT_RETURN(self, 0);
}

START_TEST(shutdown_waits_for_a_call_that_blocks_as_long_as_it_is_told)
{
	struct mrt_runtime *rt = runtime_create(0, (struct settings){ .threads_max = 1 });
	uint64_t start;

	ck_assert_int_eq(mrt_spawn(rt, blocks_poll, NULL, sizeof(struct script), NULL, NULL), 0);
	gate_await_inside(1);
	while (stats_now(rt).blocking_queued == 0)
		(void)sched_yield();
	start = mrt_now();
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, 0), -ETIMEDOUT);
	ck_assert_uint_lt(mrt_now() - start, MRT_SEC(10)); /* it blocks for as long as nobody opens the gate */
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_MS(100)), -ETIMEDOUT);
	ck_assert_uint_ge(mrt_now() - start, MRT_MS(100));
	gate_open();
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(10000)), 0);
	ck_assert_uint_eq(stats_now(rt).blocking_idle, 0);
	ck_assert_uint_eq(stats_now(rt).blocking_threads, 0);
	mrt_runtime_destroy(rt);
}
END_TEST

static atomic_uint cleaned;

static int64_t clean_up(void *arg)
{
	(void)arg;
	return (int64_t)atomic_fetch_add_explicit(&cleaned, 1, memory_order_relaxed);
}

static enum mrt_poll cleans_up_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_shield(self, true);
	mrt_blocking(&s->op[0], gate_pass, NR(1));
	mrt_blocking(&s->op[1], clean_up, NULL);         /* queued when the shutdown begins */
	mrt_shield(self, false);
	mrt_blocking(&s->op[2], clean_up, NULL);         /* the same, without a shield */
	MRT_AWAIT(self, &s->op[2]);
	ck_assert_int_eq(s->op[2].res, -ECANCELED);
	gate_open();
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	ck_assert_int_eq(s->op[1].res, 0);
	mrt_shield(self, true);
	MRT_AWAIT(self, mrt_blocking(&s->op[1], clean_up, NULL));
	ck_assert_int_eq(s->op[1].res, 1);
	mrt_shield(self, false);
	MRT_AWAIT(self, mrt_blocking(&s->op[1], clean_up, NULL));
	ck_assert_int_eq(s->op[1].res, -ESHUTDOWN);
	MRT_RETURN(self, 0);
}

START_TEST(shutdown_runs_shielded_calls_and_cancels_the_others)
{
	struct mrt_runtime *rt = runtime_create(0, (struct settings){ .threads_max = 1 });

	ck_assert_int_eq(mrt_spawn(rt, cleans_up_poll, NULL, sizeof(struct script), NULL, NULL), 0);
	gate_await_inside(1);
	while (stats_now(rt).blocking_queued < 2)
		(void)sched_yield();
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, UINT64_MAX), 0);
	ck_assert_uint_eq(atomic_load_explicit(&cleaned, memory_order_relaxed), 2);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(shutdown_does_not_wait_for_idle_threads)
{
	struct mrt_runtime *rt = runtime_create(0, (struct settings){ .keep_alive_ns = MRT_SEC(10000) });
	struct script script;
	uint64_t start;

	memset(&script, 0, sizeof(script));
	ck_assert_int_eq(mrt_block_on(rt, a_call_runs_elsewhere_and_its_result_comes_back_poll, &script,
				      sizeof(script), NULL), 0);
	start = mrt_now();
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(10000)), 0);
	ck_assert_uint_lt(mrt_now() - start, MRT_SEC(5));
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- no thread to be had (sanitizers need address space) ---- */

#if !MRT__ASAN && !defined(__SANITIZE_THREAD__)

static enum mrt_poll no_thread_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;
	struct rlimit old, none;

	MRT_BEGIN(self);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &old), 0);
	none = (struct rlimit){ .rlim_cur = 1 << 20, .rlim_max = old.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);   /* below what is mapped: no new stack */
	mrt_blocking(&s->op[0], square, NR(2));
	mrt_flush();
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &old), 0);
	MRT_AWAIT(self, &s->op[0]);
	ck_assert_int_eq(s->op[0].res, -EAGAIN);
	MRT_AWAIT(self, mrt_blocking(&s->op[0], square, NR(2)));
	ck_assert_int_eq(s->op[0].res, 4);
	MRT_RETURN(self, 0);
}

static enum mrt_poll no_second_thread_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;
	struct rlimit old, none;

	MRT_BEGIN(self);
	mrt_blocking(&s->op[0], gate_pass, NR(1));
	mrt_flush();
	gate_await_inside(1);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &old), 0);
	none = (struct rlimit){ .rlim_cur = 1 << 20, .rlim_max = old.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	mrt_blocking(&s->op[1], square, NR(2));
	mrt_blocking(&s->op[2], square, NR(3));
	mrt_flush();
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &old), 0);
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_threads, 1);
	ck_assert_uint_eq(stats_now(mrt_runtime_self()).blocking_queued, 2);
	mrt_blocking(&s->op[3], square, NR(4));         /* now it can be started, and does them all */
	MRT_AWAIT(self, &s->op[3]);
	ck_assert_int_eq(s->op[3].res, 16);
	gate_open();
	for (s->i = 0; s->i < 3; s->i++)
		MRT_AWAIT(self, &s->op[s->i]);
	ck_assert_int_eq(s->op[0].res, 1);
	ck_assert_int_eq(s->op[1].res, 4);
	ck_assert_int_eq(s->op[2].res, 9);
	MRT_RETURN(self, 0);
}

START_TEST(a_call_waits_where_no_second_thread_can_be_started)
{
	script_run(_i, (struct settings){ .threads_max = 0 }, no_second_thread_poll);
}
END_TEST

START_TEST(without_any_thread_the_call_fails_and_the_pool_recovers)
{
	script_run(_i, (struct settings){ .threads_max = 0 }, no_thread_poll);
}
END_TEST
#endif

#define ADD(tc, name) tcase_add_loop_test(tc, name, 0, FLAVOURS_NR)

static Suite *blocking_suite(void)
{
	Suite *s = suite_create("blocking");
	TCase *calls = tcase_create("calls"), *threads = tcase_create("threads"), *end = tcase_create("shutdown"),
	      *woken = tcase_create("woken");

	tcase_set_timeout(calls, LIMIT_S);
	ADD(calls, a_call_runs_elsewhere_and_its_result_comes_back);
	ADD(calls, a_negative_result_is_passed_on);
	ADD(calls, pool_threads_have_a_name_and_block_all_signals);
	ADD(calls, a_call_beyond_the_cap_waits_and_still_runs);
	ADD(calls, a_full_queue_refuses_and_runs_what_it_took);
	ADD(calls, cancel_works_until_the_call_has_begun);
	ADD(calls, a_task_that_returns_is_kept_until_its_call_has_ended);
	suite_add_tcase(s, calls);

	tcase_set_timeout(threads, LIMIT_S);
	ADD(threads, calls_that_block_get_a_thread_each);
	ADD(threads, an_idle_thread_is_used_again);
	ADD(threads, a_thread_leaves_after_its_keep_alive);
	ADD(threads, a_call_is_not_lost_on_a_thread_that_is_about_to_leave);
#if !MRT__ASAN && !defined(__SANITIZE_THREAD__)
	ADD(threads, without_any_thread_the_call_fails_and_the_pool_recovers);
	ADD(threads, a_call_waits_where_no_second_thread_can_be_started);
#endif
	suite_add_tcase(s, threads);

	tcase_set_timeout(woken, LIMIT_S);
	ADD(woken, short_calls_wake_few_threads);
	ADD(woken, each_of_many_calls_that_block_begins);
	ADD(woken, no_call_is_forgotten_whoever_sends_for_threads);
	tcase_add_test(woken, a_task_that_awaits_many_calls_is_woken_once);
	tcase_add_test(woken, a_call_begins_though_the_drive_has_ended);
	suite_add_tcase(s, woken);

	tcase_set_timeout(end, LIMIT_S);
	tcase_add_test(end, shutdown_waits_for_a_call_that_blocks_as_long_as_it_is_told);
	tcase_add_test(end, shutdown_runs_shielded_calls_and_cancels_the_others);
	tcase_add_test(end, shutdown_does_not_wait_for_idle_threads);
	suite_add_tcase(s, end);
	return s;
}

int main(void)
{
	return suite_main(blocking_suite());
}
