/* SPDX-License-Identifier: MIT */
/*
 * One queue, and a stack of idle threads, under one short lock.
 *
 * Who wakes whom. To wake a thread costs more than a short call does, so a call is not a reason to wake one; that nobody is
 * on the way to it is. A thread that was woken or started, and has not looked at the queue yet, is "coming". The invariant,
 * whenever the lock is let go: if calls are queued, one is coming, or none can be had, or a worker owes pool_send(). So a call
 * that blocks never holds up the one behind it, and sixteen that do nothing are done by the thread that came first, while
 * the next is still on its way. Beyond the one, min(pace, queued) are sent for.
 *
 * The pace is learnt. With one at a time, calls that block would each begin a wake later than the one before. So a thread
 * that comes while others are in calls, and finds one left, doubles the pace, and one that finds nothing halves it.
 *
 * The one who wakes takes the idle thread off the stack, under the lock, and writes its word: idle falls there, not when the
 * thread wakes up. Most recently idle first: it is the one whose stack is in a cache, and the others' keep-alives run out.
 *
 * Threads are counted when it is decided to start them, so that the cap holds, and started outside the lock. A thread that
 * could not be started was coming, and others may have relied on it: an idle one is sent in its place. If no thread is left
 * at all, nobody would ever serve the queue, and everything in it fails with -EAGAIN.
 *
 * A thread that leaves joins the one that left before it and leaves itself to be joined: one zombie at most, and joining
 * the last one, at the end, means that all are gone.
 *
 * The queue's node is the op itself: wait.next and wait.pprev are the links (NULL pprev: not queued), raw is the
 * function and done_next the argument, both the completer's own until it finishes the op.
 *
 * A shutdown cancels what has not begun, but for calls made inside mrt_shield(): those are the clean-up that must happen
 * (Tokio's "mandatory" work), they are still run and still accepted. Their tasks keep the runtime from stopping, so none
 * can come once the threads are joined.
 *
 * Threads begin with every signal blocked, by blocking them around pthread_create.
 *
 * Rejected: a wake for each call, as Tokio's pool does it (measured with 16 calls at once that do nothing: 3.7 futex calls a
 * call, and most threads find nothing); a condition variable (its waiters wake in the order in which they fell asleep, each
 * into the mutex of the one who woke it).
 */
#define _GNU_SOURCE /* pthread_setname_np */
#include "blocking/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/lock.h"
#include "probe/usdt.h"
#include "sched/op_begin.h"
#include "sched/sched.h"
#include "sched/worker.h"

#define MRT__POOL_NAME_BYTES 16 /* of a thread's name in Linux, with NUL */
#define PACE_MAX 64u            /* threads that may be coming at once */
#define FETCHES_MAX 2u          /* threads that one fetches before it runs its call: the number of those who fetch doubles */

/* An idle thread, on its own stack. All under the lock; `called` is also slept on. */
struct sleeper {
	struct sleeper *next;
	struct sleeper **pprev;
	atomic_uint called;             /* 1: off the stack, and to look at the queue */
};

struct mrt__pool {
	/* const */
	uint32_t threads_max;
	uint32_t queue_max;
	uint64_t keep_alive_ns;
	struct mrt_global_stats *stats;
	char name[MRT__POOL_NAME_BYTES];

	struct mrt__lock lock;          /* guards all below */
	bool shutdown;
	bool has_leaver;
	bool has_cpus;
	uint32_t coming;                /* threads that were woken or started, and have not looked at the queue yet */
	uint32_t pace;                  /* so many may be: 1..PACE_MAX */
	uint32_t busy;                  /* threads in a call */
	struct mrt__op *head;           /* oldest call */
	struct mrt__op **tail;          /* the newest one's next, or &head */
	struct sleeper *sleepers;       /* the most recent first */
	cpu_set_t cpus;                 /* of the creator: threads are started by workers, which are pinned to one CPU */
	pthread_t leaver;               /* the last thread that left, to be joined by the next one */

	/* written under the lock, read by anybody */
	atomic_uint threads;            /* slept on by who waits for the end */
	atomic_uint idle;
	_Atomic uint64_t queued;
};

/* relaxed, here and below: the lock orders; readers without it want a figure only */
#define pool_get(field) atomic_load_explicit(&(field), memory_order_relaxed)
/* under the lock; published for those who look from outside */
#define pool_set(pool, field, value) do {                                               \
	atomic_store_explicit(&(pool)->field, value, memory_order_relaxed);             \
	mrt__stat_set(&(pool)->stats->blocking_##field, pool_get((pool)->field));       \
} while (0)
#define pool_add(pool, field, n) pool_set(pool, field, pool_get((pool)->field) + (n))
#define pool_sub(pool, field, n) pool_set(pool, field, pool_get((pool)->field) - (n))

/* ---- the queue, under the lock ---- */

static void pool_push(struct mrt__pool *pool, struct mrt__op *op)
{
	op->wait.next = NULL;
	op->wait.pprev = pool->tail;
	*pool->tail = op;
	pool->tail = &op->wait.next;
	pool_add(pool, queued, 1);
}

static void pool_remove(struct mrt__pool *pool, struct mrt__op *op)
{
	*op->wait.pprev = op->wait.next;
	if (op->wait.next)
		op->wait.next->wait.pprev = op->wait.pprev;
	else
		pool->tail = op->wait.pprev;
	op->wait.pprev = NULL;
	pool_sub(pool, queued, 1);
}

static struct mrt__op *pool_pop(struct mrt__pool *pool)
{
	struct mrt__op *op = pool->head;

	if (op)
		pool_remove(pool, op);
	return op;
}

/* Move what an abort may cancel, or all, from the queue into a list by next; every pprev in it is NULL. */
static struct mrt__op *pool_take(struct mrt__pool *pool, bool shielded_too)
{
	struct mrt__op *list = NULL, **end = &list, *op, *next;

	for (op = pool->head; op; op = next) {
		next = op->wait.next;
		if (op->flags & MRT__OPF_SHIELDED && !shielded_too)
			continue;
		pool_remove(pool, op);
		*end = op;
		end = &op->wait.next;
		*end = NULL;
	}
	return list;
}

static void pool_finish(struct mrt__op *list, int64_t res)
{
	while (list) {
		struct mrt__op *op = list;

		list = op->wait.next;
		mrt__op_finish(op, res);
	}
}

static bool pool_cancel(struct mrt__op *op)
{
	struct mrt__pool *pool = op->wait.object;
	bool queued;

	mrt__lock(&pool->lock);
	queued = op->wait.pprev != NULL;
	if (queued)
		pool_remove(pool, op);
	mrt__unlock(&pool->lock);
	return queued;
}

static const struct mrt__wait_class pool_class = {
	.cancel = pool_cancel,
};

/* ---- a thread ---- */

static void pool_run(struct mrt__pool *pool, struct mrt__op *op)
{
	mrt_blocking_fn fn = (mrt_blocking_fn)(uintptr_t)op->raw;
	uint64_t start = 0;
	int64_t res;

	mrt__fire(blocking_start, mrt__arg(op), mrt__arg(fn), pool_get(pool->queued));
	if (mrt__listens(blocking_end))
		start = mrt__clock_now();
	res = fn(op->done_next);
	/* began to listen meanwhile: 0 */
	mrt__fire(blocking_end, mrt__arg(op), mrt__arg(fn), start ? mrt__clock_now() - start : 0, (uint64_t)res);
	mrt__op_finish(op, res);
}

static void sleeper_remove(struct mrt__pool *pool, struct sleeper *s)
{
	*s->pprev = s->next;
	if (s->next)
		s->next->pprev = s->pprev;
	pool_sub(pool, idle, 1);
}

/* Take the most recent sleeper to wake it. @return its word, to be woken outside the lock; it may be gone by then */
static atomic_uint *sleeper_call(struct mrt__pool *pool)
{
	struct sleeper *s = pool->sleepers;

	sleeper_remove(pool, s);
	/* relaxed: under the lock, which the sleeper takes before it looks again */
	atomic_store_explicit(&s->called, 1, memory_order_relaxed);
	pool->coming++;
	return &s->called;
}

static int pool_thread_create(struct mrt__pool *pool);
static void pool_thread_failed(struct mrt__pool *pool);

/* Are fewer coming than `want`? @param mine  1: the caller is coming itself, and takes a call; 0: it does not */
static inline bool pool_lacks(const struct mrt__pool *pool, unsigned mine, unsigned want)
{
	return pool->coming < mrt__min(want + mine, pool_get(pool->queued));
}

/*
 * Send for one more thread if too few are coming.
 *
 * @thread  any, under the lock, which is let go meanwhile
 * @return false: enough are, or no other can be had
 */
static bool pool_fetch(struct mrt__pool *pool, unsigned mine, unsigned want)
{
	atomic_uint *word = NULL;
	bool came = true;

	if (mrt__likely(!pool_lacks(pool, mine, want)))
		return false;
	if (pool->sleepers) {
		word = sleeper_call(pool);
	} else if (pool_get(pool->threads) < pool->threads_max) {
		pool_add(pool, threads, 1);
		pool->coming++;
	} else {
		return false;
	}
	mrt__stat_add(&pool->stats->blocking_wakes, 1);
	mrt__unlock(&pool->lock);
	if (word)
		mrt__futex_wake(word, 1);
	else
		came = pool_thread_create(pool) == 0;
	if (!came)
		pool_thread_failed(pool);
	mrt__lock(&pool->lock);
	return came;
}

/* A worker has queued calls: see to it that threads come. */
static void pool_send(struct mrt__pool *pool)
{
	mrt__lock(&pool->lock);
	while (pool_fetch(pool, 0, pool->pace))
		;
	mrt__unlock(&pool->lock);
}

/* Learn from what a thread finds that was coming. */
static void pool_learn(struct mrt__pool *pool)
{
	if (!pool->head)
		pool->pace = mrt__max(pool->pace / 2, 1u);
	else if (pool->busy > 0)
		pool->pace = mrt__min(pool->pace * 2, PACE_MAX);
}

/*
 * A thread that comes takes a call, and first sends for others if that leaves some: for a few, and then it still sees to it
 * that one is coming when it lets go. It is itself still coming meanwhile: the kernel may run the one that is woken at once, in
 * its place, and that one need send for nobody.
 *
 * @thread  the pool's, under the lock
 * @return NULL: nothing is queued
 */
static struct mrt__op *pool_come(struct mrt__pool *pool)
{
	unsigned i;

	for (i = 0; pool_fetch(pool, 1, i < FETCHES_MAX ? pool->pace : 1); i++)
		;
	pool->coming--;
	return pool_pop(pool);
}

/* Run what is queued. @thread the pool's, counted as coming; under the lock, which is let go while a call runs */
static void pool_serve(struct mrt__pool *pool)
{
	struct mrt__op *op;

	pool_learn(pool);
	while ((op = pool_come(pool)) != NULL) {
		pool->busy++;
		mrt__unlock(&pool->lock);
		pool_run(pool, op);
		mrt__lock(&pool->lock);
		pool->busy--;
		pool->coming++;
	}
}

/* Be idle until called. @thread the pool's, under the lock @return false: leave */
static bool pool_idle(struct mrt__pool *pool)
{
	struct sleeper me = { .next = pool->sleepers, .pprev = &pool->sleepers };
	uint64_t until = 0;
	bool in_time = true;

	if (me.next)
		me.next->pprev = &me.next;
	pool->sleepers = &me;
	pool_add(pool, idle, 1);
	/* relaxed: under the lock */
	while (in_time && !atomic_load_explicit(&me.called, memory_order_relaxed)) {
		mrt__unlock(&pool->lock);
		if (!until)
			until = mrt__clock_add(mrt__clock_now(), pool->keep_alive_ns);
		in_time = mrt__futex_wait(&me.called, 0, until);
		mrt__lock(&pool->lock);
	}
	if (atomic_load_explicit(&me.called, memory_order_relaxed))
		return true;
	sleeper_remove(pool, &me);
	return false;
}

static void *pool_thread(void *arg)
{
	struct mrt__pool *pool = arg;
	pthread_t before = pthread_self();
	bool join_before, last;

	/* only a name: too long cannot be, it was cut */
	(void)pthread_setname_np(pthread_self(), pool->name);
	mrt__lock(&pool->lock);
	do
		pool_serve(pool);
	while (!pool->shutdown && pool_idle(pool));

	join_before = pool->has_leaver;
	if (join_before)
		before = pool->leaver;
	pool->leaver = pthread_self();
	pool->has_leaver = true;
	pool_sub(pool, threads, 1);
	last = pool->shutdown && pool_get(pool->threads) == 0;
	/* from here the pool lives until this thread is joined: by the next leaver, or by join_wait */
	mrt__unlock(&pool->lock);
	if (last)
		mrt__futex_wake(&pool->threads, INT_MAX);
	if (join_before)
		(void)pthread_join(before, NULL); /* joinable, and ours alone to join */
	return NULL;
}

static int pool_thread_create(struct mrt__pool *pool)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	(void)pthread_attr_init(&attr); /* on Linux it allocates nothing */
	if (pool->has_cpus)
		(void)pthread_attr_setaffinity_np(&attr, sizeof(pool->cpus), &pool->cpus); /* without it: pinned, but works */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old); /* neither can fail with these arguments */
	err = pthread_create(&thread, &attr, pool_thread, pool);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return err;
}

/* A counted thread could not be started. */
static void pool_thread_failed(struct mrt__pool *pool)
{
	struct mrt__op *list = NULL;
	atomic_uint *word = NULL;
	bool last = false;

	mrt__lock(&pool->lock);
	pool->coming--;
	pool_sub(pool, threads, 1);
	if (pool_get(pool->threads) == 0) {
		list = pool_take(pool, true);
		last = pool->shutdown;
	} else if (pool->head && pool->sleepers) {
		word = sleeper_call(pool); /* it fell asleep meanwhile, relying on the one that does not come */
	}
	mrt__unlock(&pool->lock);
	if (word)
		mrt__futex_wake(word, 1);
	if (last)
		mrt__futex_wake(&pool->threads, INT_MAX);
	pool_finish(list, -EAGAIN);
}

/* ---- interface ---- */

int mrt__pool_create(const struct mrt__pool_opts *opts, struct mrt__pool **ret_pool)
{
	struct mrt__pool *pool;

	if (opts->threads_max > MRT__POOL_THREADS_MAX)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->threads_max = opts->threads_max;
	pool->stats = opts->stats;
	pool->queue_max = opts->queue_max;
	pool->keep_alive_ns = opts->keep_alive_ns ? opts->keep_alive_ns : MRT__POOL_KEEP_ALIVE_NS;
	pool->tail = &pool->head;
	pool->pace = 1;
	pool->has_cpus = sched_getaffinity(0, sizeof(pool->cpus), &pool->cpus) == 0;
	(void)snprintf(pool->name, sizeof(pool->name), "%.11s-blk", opts->name ? opts->name : "mrt");
	*ret_pool = pool;
	return 0;
}

bool mrt__pool_run_one(struct mrt__pool *pool)
{
	struct mrt__op *op;

	mrt__lock(&pool->lock);
	op = pool_pop(pool);
	mrt__unlock(&pool->lock);
	if (!op)
		return false;
	pool_run(pool, op);
	return true;
}

void mrt__pool_shutdown(struct mrt__pool *pool)
{
	atomic_uint *word;
	struct mrt__op *list;

	mrt__lock(&pool->lock);
	pool->shutdown = true;
	list = pool_take(pool, false);
	/* nobody falls asleep any more */
	while (pool->sleepers) {
		word = sleeper_call(pool);
		mrt__unlock(&pool->lock);
		mrt__futex_wake(word, 1);
		mrt__lock(&pool->lock);
	}
	mrt__unlock(&pool->lock);
	pool_finish(list, -ECANCELED);
}

int mrt__pool_join_wait(struct mrt__pool *pool, uint64_t deadline_ns, uint32_t *ret_running)
{
	bool in_time = true, join = false;
	pthread_t leaver = pthread_self();

	mrt__lock(&pool->lock);
	mrt__assert(pool->shutdown);
	while (in_time && (*ret_running = pool_get(pool->threads)) > 0) {
		mrt__unlock(&pool->lock);
		in_time = mrt__futex_wait(&pool->threads, *ret_running, deadline_ns);
		mrt__lock(&pool->lock);
	}
	*ret_running = pool_get(pool->threads);
	if (*ret_running == 0 && pool->has_leaver) {
		join = true;
		leaver = pool->leaver;
		pool->has_leaver = false;
	}
	mrt__unlock(&pool->lock);
	if (join)
		(void)pthread_join(leaver, NULL); /* joinable, and ours alone to join */
	return *ret_running ? -ETIMEDOUT : 0;
}

void mrt__pool_destroy(struct mrt__pool *pool)
{
	if (!pool)
		return;
	mrt__assert(pool_get(pool->threads) == 0);
	mrt__assert(!pool->has_leaver);
	mrt__assert(pool->head == NULL);
	free(pool);
}

void mrt__pool_stats_get(const struct mrt__pool *pool, struct mrt__pool_stats *ret_stats)
{
	ret_stats->threads = pool_get(pool->threads);
	ret_stats->idle = pool_get(pool->idle);
	ret_stats->queued = pool_get(pool->queued);
}

/*
 * Queue a begun op. It will be finished by a thread of the pool, or taken out by its cancel().
 *
 * @return 0; or the op is still the caller's: -EAGAIN the queue is full, -ESHUTDOWN the pool is shut down and the op is
 *         not shielded. (Where no thread could be started and none is there, the op is finished with -EAGAIN.)
 */
static int pool_submit(struct mrt__worker *w, struct mrt__op *op, mrt_blocking_fn fn, void *arg)
{
	struct mrt__pool *pool = w->sched->pool;

	op->raw = (int64_t)(uintptr_t)fn;
	op->done_next = arg;
	op->wait.cls = &pool_class;
	op->wait.object = pool;

	mrt__lock(&pool->lock);
	if (pool->shutdown && !(op->flags & MRT__OPF_SHIELDED)) {
		mrt__unlock(&pool->lock);
		return -ESHUTDOWN;
	}
	/* calls for which there is a thread, idle, coming, or to be started, do not wait for one */
	if (pool->queue_max &&
	    pool_get(pool->queued) >= (uint64_t)pool->queue_max + (pool->threads_max - pool->busy)) {
		mrt__unlock(&pool->lock);
		return -EAGAIN;
	}
	pool_push(pool, op);
	if (pool_lacks(pool, 0, pool->pace))
		w->calls_due = pool_send;
	mrt__unlock(&pool->lock);
	/* the op may be finished by now: a thread that came back may have run it */
	return 0;
}

struct mrt_op *mrt_blocking(struct mrt_op *op, mrt_blocking_fn fn, void *arg)
{
	struct mrt__op *p = mrt__op_of(op);
	struct mrt__worker *w;
	int err;

	if (!fn)
		return mrt__op_refuse(op, MRT__OP_BLOCKING, -EINVAL);
	w = mrt__op_begin(p, MRT__OP_BLOCKING, MRT__OPF_WAIT);
	if (!w)
		return op;
	mrt__assert(w->sched->pool);
	err = pool_submit(w, p, fn, arg);
	if (err)
		mrt__op_end_inline(p, err);
	return op;
}
