/* SPDX-License-Identifier: MIT */
/*
 * One queue, one mutex, one condition, as Tokio's pool (reference: runtime/blocking/pool.rs).
 *
 * The submitter claims the idle thread that it wakes, under the lock: idle falls and `claims` rises there, not when
 * the thread wakes up. With an idle count that the woken thread lowered later, two submits in a row would count on
 * the same thread, and the second call would wait for the first. `claims` also tells a claimed thread from a spurious
 * wake-up. A claim is not tied to a thread or a call: whoever wakes first takes the claim, whoever looks first the call.
 *
 * Threads are counted when it is decided to start them, so that the cap holds, and started outside the lock. A thread
 * that could not be started matters only if none is left: then nobody would ever serve the queue, and everything in it
 * fails with -EAGAIN, also calls that other submitters have queued in reliance on it.
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
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "probe/usdt.h"
#include "sched/op_begin.h"
#include "sched/sched.h"
#include "sched/worker.h"

#define MRT__POOL_NAME_BYTES 16 /* of a thread's name in Linux, with NUL */

struct mrt__pool {
	/* const */
	uint32_t threads_max;
	uint32_t queue_max;
	uint64_t keep_alive_ns;
	struct mrt_global_stats *stats;
	char name[MRT__POOL_NAME_BYTES];

	pthread_mutex_t lock;           /* guards all below */
	pthread_cond_t work;            /* claims > 0, or shutdown */
	pthread_cond_t gone;            /* shutdown, and threads == 0 */
	struct mrt__op *head;           /* oldest call */
	struct mrt__op **tail;          /* the newest one's next, or &head */
	uint32_t claims;                /* idle threads that were claimed and have not woken up yet */
	uint32_t starting;              /* threads that were counted and have not looked at the queue yet */
	bool shutdown;
	bool has_leaver;
	bool has_cpus;
	cpu_set_t cpus;                 /* of the creator: threads are started by workers, which are pinned to one CPU */
	pthread_t leaver;               /* the last thread that left, to be joined by the next one */

	/* written under the lock, read by anybody */
	atomic_uint threads;
	atomic_uint idle;
	_Atomic uint64_t queued;
};

/* relaxed, here and below: the mutex orders; readers without it want a figure only */
#define pool_get(field) atomic_load_explicit(&(field), memory_order_relaxed)
/* under the lock; published for those who look from outside */
#define pool_set(pool, field, value) do {                                               \
	atomic_store_explicit(&(pool)->field, value, memory_order_relaxed);             \
	mrt__stat_set(&(pool)->stats->blocking_##field, pool_get((pool)->field));       \
} while (0)
#define pool_add(pool, field, n) pool_set(pool, field, pool_get((pool)->field) + (n))
#define pool_sub(pool, field, n) pool_set(pool, field, pool_get((pool)->field) - (n))

static void pool_lock(struct mrt__pool *pool)
{
	int err = pthread_mutex_lock(&pool->lock);

	mrt__assert(err == 0);
}

static void pool_unlock(struct mrt__pool *pool)
{
	int err = pthread_mutex_unlock(&pool->lock);

	mrt__assert(err == 0);
}

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

	pool_lock(pool);
	queued = op->wait.pprev != NULL;
	if (queued)
		pool_remove(pool, op);
	pool_unlock(pool);
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

/* Run what is queued. @thread the pool's, under the lock, which is let go while a call runs */
static void pool_drain(struct mrt__pool *pool)
{
	struct mrt__op *op;

	while ((op = pool_pop(pool)) != NULL) {
		pool_unlock(pool);
		pool_run(pool, op);
		pool_lock(pool);
	}
}

/* Be idle until claimed. @thread the pool's, under the lock @return false: leave */
static bool pool_idle(struct mrt__pool *pool)
{
	struct timespec until = mrt__clock_timespec(mrt__clock_add(mrt__clock_now(), pool->keep_alive_ns));
	int err = 0;

	pool_add(pool, idle, 1);
	for (;;) {
		if (pool->claims > 0) {
			pool->claims--;         /* the claimer has taken us out of idle */
			return true;
		}
		if (pool->shutdown || err == ETIMEDOUT) {
			pool_sub(pool, idle, 1);
			return false;
		}
		err = pthread_cond_timedwait(&pool->work, &pool->lock, &until);
		mrt__assert(err == 0 || err == ETIMEDOUT);
	}
}

static void *pool_thread(void *arg)
{
	struct mrt__pool *pool = arg;
	pthread_t before = pthread_self();
	bool join_before;

	/* only a name: too long cannot be, it was cut */
	(void)pthread_setname_np(pthread_self(), pool->name);
	pool_lock(pool);
	pool->starting--;
	do
		pool_drain(pool);
	while (!pool->shutdown && pool_idle(pool));

	join_before = pool->has_leaver;
	if (join_before)
		before = pool->leaver;
	pool->leaver = pthread_self();
	pool->has_leaver = true;
	pool_sub(pool, threads, 1);
	if (pool->shutdown && pool_get(pool->threads) == 0)
		(void)pthread_cond_broadcast(&pool->gone); /* cannot fail on an initialised one */
	/* from here the pool lives until this thread is joined: by the next leaver, or by join_wait */
	pool_unlock(pool);
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

	pool_lock(pool);
	pool->starting--;
	pool_sub(pool, threads, 1);
	if (pool_get(pool->threads) == 0) {
		list = pool_take(pool, true);
		if (pool->shutdown)
			(void)pthread_cond_broadcast(&pool->gone);
	}
	pool_unlock(pool);
	pool_finish(list, -EAGAIN);
}

/* ---- interface ---- */

int mrt__pool_create(const struct mrt__pool_opts *opts, struct mrt__pool **ret_pool)
{
	struct mrt__pool *pool;
	pthread_condattr_t attr;

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
	pool->has_cpus = sched_getaffinity(0, sizeof(pool->cpus), &pool->cpus) == 0;
	(void)snprintf(pool->name, sizeof(pool->name), "%.11s-blk", opts->name ? opts->name : "mrt");

	/* on Linux none of these allocates or can fail with these arguments */
	(void)pthread_mutex_init(&pool->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&pool->work, &attr);
	(void)pthread_cond_init(&pool->gone, &attr);
	(void)pthread_condattr_destroy(&attr);
	*ret_pool = pool;
	return 0;
}

bool mrt__pool_run_one(struct mrt__pool *pool)
{
	struct mrt__op *op;

	pool_lock(pool);
	op = pool_pop(pool);
	pool_unlock(pool);
	if (!op)
		return false;
	pool_run(pool, op);
	return true;
}

void mrt__pool_shutdown(struct mrt__pool *pool)
{
	struct mrt__op *list;

	pool_lock(pool);
	pool->shutdown = true;
	list = pool_take(pool, false);
	(void)pthread_cond_broadcast(&pool->work); /* cannot fail on an initialised one */
	pool_unlock(pool);
	pool_finish(list, -ECANCELED);
}

int mrt__pool_join_wait(struct mrt__pool *pool, uint64_t deadline_ns, uint32_t *ret_running)
{
	struct timespec until = mrt__clock_timespec(deadline_ns);
	bool join = false;
	pthread_t leaver = pthread_self();
	int err = 0;

	pool_lock(pool);
	mrt__assert(pool->shutdown);
	while (pool_get(pool->threads) > 0 && err == 0) {
		if (deadline_ns == UINT64_MAX)
			err = pthread_cond_wait(&pool->gone, &pool->lock);
		else
			err = pthread_cond_timedwait(&pool->gone, &pool->lock, &until);
		mrt__assert(err == 0 || err == ETIMEDOUT);
	}
	*ret_running = pool_get(pool->threads);
	if (*ret_running == 0 && pool->has_leaver) {
		join = true;
		leaver = pool->leaver;
		pool->has_leaver = false;
	}
	pool_unlock(pool);
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
	(void)pthread_cond_destroy(&pool->gone); /* nobody waits: all threads were joined */
	(void)pthread_cond_destroy(&pool->work);
	(void)pthread_mutex_destroy(&pool->lock);
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
static int pool_submit(struct mrt__pool *pool, struct mrt__op *op, mrt_blocking_fn fn, void *arg)
{
	uint32_t coming;
	bool start = false;

	op->raw = (int64_t)(uintptr_t)fn;
	op->done_next = arg;
	op->wait.cls = &pool_class;
	op->wait.object = pool;

	pool_lock(pool);
	if (pool->shutdown && !(op->flags & MRT__OPF_SHIELDED)) {
		pool_unlock(pool);
		return -ESHUTDOWN;
	}
	if (pool_get(pool->idle) > 0) {
		pool_sub(pool, idle, 1);
		pool->claims++;
		(void)pthread_cond_signal(&pool->work); /* cannot fail on an initialised one */
	} else if (pool_get(pool->threads) < pool->threads_max) {
		pool_add(pool, threads, 1);
		pool->starting++;
		start = true;
	} else if (pool->queue_max) {
		/* calls that a thread is already on its way to do not wait for one */
		coming = pool->claims + pool->starting;
		if (pool_get(pool->queued) >= (uint64_t)pool->queue_max + coming) {
			pool_unlock(pool);
			return -EAGAIN;
		}
	}
	pool_push(pool, op);
	pool_unlock(pool);

	/* the op may be finished by now: another thread may have run it */
	if (start && pool_thread_create(pool) != 0)
		pool_thread_failed(pool);
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
	err = pool_submit(w->sched->pool, p, fn, arg);
	if (err)
		mrt__op_end_inline(p, err);
	return op;
}
