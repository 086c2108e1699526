/* SPDX-License-Identifier: MIT */
/*
 * The blocking pool: threads that run calls which block, so that workers need not.
 *
 *	                  mrt_blocking  cancel  run_one  shutdown  join_wait  destroy
 *	exclusion            -          -       -         -         -          X     (X: the caller excludes all others)
 *
 * All of it is blocking, by a lock that is held for a few dozen instructions and never while a call runs.
 */
#ifndef MRT_BLOCKING_POOL_H
#define MRT_BLOCKING_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <martlet/blocking.h>

struct mrt__op;
struct mrt__pool;

#define MRT__POOL_THREADS_DEFAULT 512u
#define MRT__POOL_THREADS_MAX 65536u
#define MRT__POOL_KEEP_ALIVE_NS UINT64_C(10000000000)

struct mrt__pool_opts {
	uint32_t threads_max;   /* 0: no threads, the owner calls mrt__pool_run_one (simulation) */
	uint32_t queue_max;     /* calls that may wait for a thread; 0: no bound */
	uint64_t keep_alive_ns; /* an idle thread leaves after this long; 0: MRT__POOL_KEEP_ALIVE_NS */
	const char *name;       /* copied; threads are called "<name>-blk"; NULL: "mrt" */
	struct mrt_global_stats *stats; /* where its figures are published */
};

struct mrt__pool_stats {
	uint32_t threads;       /* started and not left */
	uint32_t idle;          /* of them: waiting, not yet claimed */
	uint64_t queued;        /* calls that have not begun */
};

/**
 * Make a pool; no thread is started before it is needed.
 *
 * @owner  *ret_pool is the caller's until mrt__pool_destroy
 * @return 0, -EINVAL (threads_max), -ENOMEM
 */
int mrt__pool_create(const struct mrt__pool_opts *opts, struct mrt__pool **ret_pool);

/**
 * Run the oldest queued call on the calling thread.
 *
 * @thread  any
 * @blocks  as long as the call does
 * @return false: nothing is queued
 */
bool mrt__pool_run_one(struct mrt__pool *pool);

/**
 * Take no more calls, finish those that have not begun with -ECANCELED (shielded ones excepted, in both), and let the
 * threads leave when nothing is queued. Idempotent.
 *
 * @thread  any
 * @blocks  for the lock
 */
void mrt__pool_shutdown(struct mrt__pool *pool);

/**
 * Wait, after a shutdown and when no more calls can be made, until every thread has ended, and join them. May be called
 * again after -ETIMEDOUT.
 *
 * @thread  any but the pool's; one at a time
 * @blocks  until then
 * @param deadline_ns  CLOCK_MONOTONIC; UINT64_MAX: no limit; a past one looks without waiting
 * @param ret_running  always written: threads that still run a call (0 on success)
 * @return 0, -ETIMEDOUT
 */
int mrt__pool_join_wait(struct mrt__pool *pool, uint64_t deadline_ns, uint32_t *ret_running);

/* Free it; all threads were joined (else the process ends). NULL is ignored. */
void mrt__pool_destroy(struct mrt__pool *pool);

/* Each number is exact, the three of slightly different times. @thread any @blocks never */
void mrt__pool_stats_get(const struct mrt__pool *pool, struct mrt__pool_stats *ret_stats);

#endif
