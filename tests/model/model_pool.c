/* SPDX-License-Identifier: MIT */
/*
 * Model of the blocking pool (src/blocking/pool.c), the real one: its threads are started on fibers, sleep on a model of the
 * futex, and leave when the model's clock ticks. Workers submit calls and send for threads as worker.c does.
 *
 * Proven at this scale: each call runs once, or is cancelled, or refused, and is finished once; no call is left queued while
 * threads sleep or could be started, nor held up behind one that blocks (calls that wait for each other meet); there are
 * never more threads than allowed; a shutdown lets all threads end, and all are joined. Besides, whenever the lock is let go the
 * invariant holds that is written at the top of pool.c.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "model.h"
#include "probe/usdt.h"
#include "sched/op_begin.h"
#include "sched/sched.h"
#include "sched/worker.h"

#define CALLS_MAX 4u            /* of all workers */
#define THREADS_MAX 4u          /* fibers for the pool's threads */
#define RECORDS_MAX 12u         /* threads that one execution may start */

/* Threads of the model: workers, the closer, the clock, the pool's. */
struct config {
	unsigned workers_nr;
	unsigned calls_nr;              /* of each worker */
	unsigned threads_max;           /* of the pool */
	unsigned ticks_nr;              /* of the clock: whoever sleeps with a limit then, wakes */
	unsigned starts_fail;           /* bits: this start of a thread fails */
	bool one_by_one;                /* a worker waits for its call before it makes the next */
	bool calls_meet;                /* each call blocks until all have begun */
	bool cancels;                   /* a worker cancels its last call */
	bool closes;                    /* there is a closer */
	bool shielded;                  /* each worker's first call is */
	/* broken rules */
	bool no_send;                   /* a worker forgets the threads that it owes */
	bool wakes_get_lost;            /* a thread that is called is not woken */
};

struct call {
	struct mrt__op op;
	unsigned begun_nr, finished_nr;
	int64_t res;
	bool cancelled;
};

/* A thread of the pool. Its pthread_t is its place in the records, from 1 on. */
struct record {
	void *(*fn)(void *arg);
	void *arg;
	bool ended, joined;
};

struct waiter {
	const atomic_uint *word;        /* NULL: not waiting */
	bool has_limit, woken, late;
};

static struct {
	struct mrt__pool *pool;
	struct mrt_global_stats stats;
	struct mrt__sched sched;
	struct mrt__worker workers[2];
	struct call calls[CALLS_MAX];
	struct record records[RECORDS_MAX];
	struct record *fibers[THREADS_MAX]; /* what each of them runs, NULL: nothing */
	struct waiter waiters[MDL_THREADS_MAX];
	unsigned calls_nr, begun_nr, records_nr, starts_nr, workers_done_nr;
	unsigned owing_nr;              /* workers in pool_send() */
	unsigned holder;                /* of the pool's lock, + 1; 0: nobody */
	bool start_failed, closed;
} world;

static const struct config *config;

/* ---- what stands in for the kernel and for pthreads ---- */

static bool is_called(const void *arg)
{
	const struct waiter *w = arg;

	return w->woken || w->late;
}

static bool model_futex_wait(atomic_uint *word, unsigned value, uint64_t until_ns)
{
	struct waiter *w = &world.waiters[mdl_thread()];

	mdl_point("futex_wait", "", __FILE__, __LINE__);
	if (MDL__LOAD(word) != value)
		return true;
	*w = (struct waiter){ .word = word, .has_limit = until_ns != UINT64_MAX };
	mdl_wait(is_called, w);
	w->word = NULL;
	return w->woken;
}

static void model_futex_wake(const atomic_uint *word, int nr)
{
	unsigned i;

	mdl_point("futex_wake", "", __FILE__, __LINE__);
	for (i = 0; i < MDL_THREADS_MAX && nr > 0; i++) {
		if (world.waiters[i].word != word || world.waiters[i].woken)
			continue;
		world.waiters[i].woken = !config->wakes_get_lost;
		nr--;
	}
}

static void tick(void)
{
	unsigned i;

	mdl_point("tick", "", __FILE__, __LINE__);
	for (i = 0; i < MDL_THREADS_MAX; i++) {
		if (world.waiters[i].word && world.waiters[i].has_limit)
			world.waiters[i].late = true;
	}
}

static struct record **free_fiber(void)
{
	unsigned i;

	for (i = 0; i < config->threads_max; i++) {
		if (!world.fibers[i])
			return &world.fibers[i];
	}
	return NULL;
}

static bool has_free_fiber(const void *arg)
{
	(void)arg;
	return free_fiber() != NULL;
}

static int model_create(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
	struct record *r, **place;

	(void)attr;
	mdl_point("create", "", __FILE__, __LINE__);
	if (config->starts_fail >> world.starts_nr++ & 1) {
		world.start_failed = true;
		return EAGAIN;
	}
	mdl_wait(has_free_fiber, NULL); /* one that has left the pool is about to end */
	mdl_assert(world.records_nr < RECORDS_MAX);
	r = &world.records[world.records_nr++];
	*r = (struct record){ .fn = fn, .arg = arg };
	place = free_fiber();
	mdl_assert(place != NULL);
	*place = r;
	*ret_thread = world.records_nr;
	return 0;
}

static bool has_ended(const void *arg)
{
	return ((const struct record *)arg)->ended;
}

static int model_join(pthread_t thread, void **ret)
{
	struct record *r = &world.records[thread - 1];

	(void)ret;
	mdl_point("join", "", __FILE__, __LINE__);
	mdl_assert(!r->joined);
	r->joined = true;
	mdl_wait(has_ended, r);
	return 0;
}

static unsigned first_fiber(void)
{
	return config->workers_nr + config->closes + (config->ticks_nr > 0);
}

/* @return 0 for one that is no thread of the pool */
static pthread_t model_self(void)
{
	unsigned t = mdl_thread(), first = first_fiber();

	return t < first ? 0 : (pthread_t)(world.fibers[t - first] - world.records) + 1;
}

static int model_nothing(void)
{
	return 0;
}

/* ---- what stands in for the rest of the runtime ---- */

static void model_finish(struct mrt__op *op, int64_t raw)
{
	struct call *call = mrt__container_of(op, struct call, op);

	mdl_assert(world.holder != mdl_thread() + 1);
	mdl_assert(!op->wait.pprev && call->finished_nr == 0);
	call->finished_nr++;
	call->res = raw;
}

static void pool_lock(struct mrt__lock *lock)
{
	mrt__lock(lock);
	world.holder = mdl_thread() + 1;
}

static void check_invariant(void);

/* What a thread does under the lock nobody can see before it lets go: a section is one step. */
static void pool_unlock(struct mrt__lock *lock)
{
	check_invariant();
	mdl_assert(lock->held && world.holder == mdl_thread() + 1);
	world.holder = 0;
	lock->held = 0;
}

static void pool_point(const char *what, const char *object, const char *file, int line)
{
	if (world.holder != mdl_thread() + 1)
		mdl_point(what, object, file, line);
}

#define MRT_BASE_FUTEX_H
#define mrt__futex_wait(word, value, until) model_futex_wait((word), (value), (until))
#define mrt__futex_wake(word, nr) model_futex_wake((word), (nr))
#define mrt__op_finish model_finish
#define mrt__lock(lock) pool_lock(lock)
#define mrt__unlock(lock) pool_unlock(lock)
#define pthread_create model_create
#define pthread_join model_join
#define pthread_self model_self
#define pthread_setname_np(thread, name) model_nothing()
#define pthread_sigmask(how, set, old) ((void)(set), (void)(old), model_nothing())
#undef atomic_load_explicit
#undef atomic_store_explicit
#define atomic_load_explicit(p, mo) (pool_point("load", #p, __FILE__, __LINE__), MDL__LOAD(p))
#define atomic_store_explicit(p, v, mo) (pool_point("store", #p, __FILE__, __LINE__), MDL__STORE(p, v))
#include "../../src/blocking/pool.c"

/* At the top of pool.c: if calls are queued, one thread is coming, or none can be had, or a worker owes. */
static void check_invariant(void)
{
	const struct mrt__pool *pool = world.pool;
	unsigned nr = 0, i;
	const struct sleeper *s;

	for (s = pool->sleepers; s; s = s->next)
		nr++;
	mdl_assert(nr == MDL__LOAD(&pool->idle));
	mdl_assert(MDL__LOAD(&pool->threads) <= pool->threads_max);
	mdl_assert(pool->coming + pool->busy + nr <= MDL__LOAD(&pool->threads));
	mdl_assert((pool->head == NULL) == (MDL__LOAD(&pool->queued) == 0));
	if (!pool->head || pool->coming > 0 || world.owing_nr > 0 || world.start_failed)
		return;
	for (i = 0; i < config->workers_nr; i++) {
		if (world.workers[i].calls_due)
			return;
	}
	mdl_assert(!pool->sleepers && MDL__LOAD(&pool->threads) == pool->threads_max);
}

static void setup(const void *arg)
{
	struct mrt__pool_opts opts = { .stats = &world.stats };
	unsigned i;

	config = arg;
	free(world.pool); /* of the last execution, which may have stopped anywhere */
	memset(&world, 0, sizeof(world));
	opts.threads_max = config->threads_max;
	mdl_assert(mrt__pool_create(&opts, &world.pool) == 0);
	world.pool->has_cpus = false;
	world.sched.pool = world.pool;
	for (i = 0; i < MRT__ARRAY_NR(world.workers); i++)
		world.workers[i].sched = &world.sched;
	world.calls_nr = config->workers_nr * config->calls_nr;
	mdl_assert(world.calls_nr <= CALLS_MAX && config->threads_max <= THREADS_MAX);
}

static bool all_have_begun(const void *arg)
{
	(void)arg;
	return world.begun_nr == world.calls_nr;
}

static int64_t run_call(void *arg)
{
	struct call *call = arg;

	mdl_assert(!call->cancelled && call->finished_nr == 0);
	call->begun_nr++;
	world.begun_nr++;
	mdl_point("call", "", __FILE__, __LINE__);
	if (config->calls_meet)
		mdl_wait(all_have_begun, NULL);
	return 7;
}

static bool is_finished(const void *arg)
{
	return ((const struct call *)arg)->finished_nr > 0;
}

/* As the worker of that name: after a poll, and before it sleeps. */
static void send_calls(struct mrt__worker *w)
{
	void (*calls_due)(struct mrt__pool *pool) = w->calls_due;

	if (!calls_due || config->no_send)
		return;
	world.owing_nr++;
	w->calls_due = NULL;
	calls_due(w->sched->pool);
	world.owing_nr--;
}

static void worker(unsigned t)
{
	struct mrt__worker *w = &world.workers[t];
	struct call *call = NULL;
	unsigned i;
	int err;

	for (i = 0; i < config->calls_nr; i++) {
		call = &world.calls[t * config->calls_nr + i];
		call->op.flags = config->shielded && i == 0 ? MRT__OPF_SHIELDED : 0;
		err = pool_submit(w, &call->op, run_call, call);
		if (err) {
			mdl_assert(err == -ESHUTDOWN && world.closed && !call->op.flags);
			model_finish(&call->op, err);
		}
		if (!config->one_by_one)
			continue;
		send_calls(w);
		mdl_wait(is_finished, call);
	}
	send_calls(w);
	if (config->cancels && pool_cancel(&call->op)) {
		call->cancelled = true;
		model_finish(&call->op, -ECANCELED);
	}
	world.workers_done_nr++;
}

static bool workers_are_done(const void *arg)
{
	(void)arg;
	return world.workers_done_nr == config->workers_nr;
}

static void closer(void)
{
	uint32_t running;

	world.closed = true;
	mrt__pool_shutdown(world.pool);
	mdl_wait(workers_are_done, NULL);
	mdl_assert(mrt__pool_join_wait(world.pool, UINT64_MAX, &running) == 0 && running == 0);
}

static bool has_record(const void *arg)
{
	return *(struct record *const *)arg != NULL;
}

static void fiber(unsigned i)
{
	for (;;) {
		struct record *r;

		mdl_wait(has_record, &world.fibers[i]);
		r = world.fibers[i];
		(void)r->fn(r->arg);
		r->ended = true;
		world.fibers[i] = NULL;
	}
}

static void run(unsigned thread, const void *arg)
{
	unsigned t = thread, i;

	(void)arg;
	if (t < config->workers_nr) {
		worker(t);
		return;
	}
	t -= config->workers_nr;
	if (config->closes && t-- == 0)
		closer();
	else if (config->ticks_nr > 0 && t-- == 0)
		for (i = 0; i < config->ticks_nr; i++)
			tick();
	else
		fiber(t);
}

static void check_call(const struct call *call)
{
	mdl_assert(call->finished_nr == 1);
	mdl_assert(call->begun_nr == (call->res == 7));
	switch (call->res) {
	case 7:
		break;
	case -ECANCELED:
		mdl_assert(call->cancelled || (world.closed && !call->op.flags));
		break;
	case -ESHUTDOWN:
		mdl_assert(world.closed && !call->op.flags);
		break;
	case -EAGAIN:
		mdl_assert(world.start_failed);
		break;
	default:
		mdl_fail("a result that nobody gave");
	}
}

/* Nobody can go on: for good reason? */
static void check(const void *arg)
{
	struct mrt__pool *pool = world.pool;
	unsigned running_nr = 0, zombies_nr = 0, i;

	(void)arg;
	mdl_assert(world.workers_done_nr == config->workers_nr);
	for (i = 0; i < world.calls_nr; i++)
		check_call(&world.calls[i]);
	for (i = 0; i < world.records_nr; i++) {
		running_nr += !world.records[i].ended;
		zombies_nr += world.records[i].ended && !world.records[i].joined;
	}
	mdl_assert(!pool->head && pool->coming == 0 && pool->busy == 0);
	mdl_assert(running_nr == MDL__LOAD(&pool->threads) && running_nr == MDL__LOAD(&pool->idle));
	mdl_assert(zombies_nr <= 1);
	if (config->closes) {
		mdl_assert(running_nr == 0 && zombies_nr == 0);
		mrt__pool_destroy(pool);
		world.pool = NULL;
	}
}

#define TEST(test_name, nr, breaks, bound, ...) \
	{ .name = (test_name), .threads_nr = (nr), .arg = &(const struct config){ __VA_ARGS__ }, .setup = setup, \
	  .run = run, .check = check, .may_rest = true, .must_fail = (breaks), .preemptions = (bound) }

static const struct mdl_test tests[] = {
	TEST("one_thread", 3, false, 4, .workers_nr = 2, .calls_nr = 2, .threads_max = 1),
	TEST("call_against_sleep", 3, false, 4, .workers_nr = 1, .calls_nr = 3, .threads_max = 2, .one_by_one = true),
	TEST("calls_meet", 4, false, 3, .workers_nr = 1, .calls_nr = 3, .threads_max = 3, .calls_meet = true),
	TEST("calls_meet, no send", 4, true, 3, .workers_nr = 1, .calls_nr = 3, .threads_max = 3, .calls_meet = true,
	     .no_send = true),
	TEST("two_workers_meet", 4, false, 3, .workers_nr = 2, .calls_nr = 1, .threads_max = 2, .calls_meet = true),
	TEST("two_workers", 4, false, 2, .workers_nr = 2, .calls_nr = 2, .threads_max = 2, .one_by_one = true),
	TEST("two_workers, wakes get lost", 4, true, 2, .workers_nr = 2, .calls_nr = 2, .threads_max = 2, .one_by_one = true,
	     .wakes_get_lost = true),
	TEST("timeout", 4, false, 3, .workers_nr = 1, .calls_nr = 3, .threads_max = 2, .ticks_nr = 2, .one_by_one = true),
	TEST("two_workers_timeout", 5, false, 3, .workers_nr = 2, .calls_nr = 1, .threads_max = 2, .ticks_nr = 1),
	TEST("cancel", 4, false, 3, .workers_nr = 2, .calls_nr = 2, .threads_max = 2, .cancels = true),
	TEST("close", 4, false, 3, .workers_nr = 1, .calls_nr = 2, .threads_max = 2, .closes = true),
	TEST("close_one_by_one", 4, false, 3, .workers_nr = 1, .calls_nr = 2, .threads_max = 2, .closes = true,
	     .one_by_one = true, .shielded = true),
	TEST("close_shielded", 5, false, 2, .workers_nr = 2, .calls_nr = 2, .threads_max = 2, .closes = true,
	     .shielded = true),
	TEST("close_timeout", 5, false, 2, .workers_nr = 1, .calls_nr = 2, .threads_max = 2, .ticks_nr = 1, .closes = true,
	     .one_by_one = true),
	TEST("close, wakes get lost", 4, true, 3, .workers_nr = 1, .calls_nr = 2, .threads_max = 2, .closes = true,
	     .one_by_one = true, .wakes_get_lost = true),
	TEST("no_thread_starts", 4, false, 4, .workers_nr = 2, .calls_nr = 2, .threads_max = 1, .closes = true,
	     .starts_fail = ~0u),
	TEST("first_start_fails", 4, false, 3, .workers_nr = 2, .calls_nr = 2, .threads_max = 2, .starts_fail = 1),
	TEST("second_start_fails", 4, false, 2, .workers_nr = 2, .calls_nr = 2, .threads_max = 2, .starts_fail = 2,
	     .one_by_one = true),
};

int main(void)
{
	int status = mdl_main(tests, MRT__ARRAY_NR(tests));

	free(world.pool);
	return status;
}
