/* SPDX-License-Identifier: MIT */
/*
 * Who sleeps, who searches, and whom to wake. Workers are named by index, 0..workers_nr - 1. This module only keeps
 * the books; the sleeping and the waking itself is sched/park.h and the ring.
 *
 * A worker's turn to sleep, in this order (the model checker holds it to that):
 *
 *    rescan = mrt__idle_park(idle, w, searching);      off the books: others may now pick w
 *    if (rescan && some queue or the inject queue has work)
 *            mrt__idle_worker_to_notify() and wake the one it names (it may be w itself)
 *    if (mrt__park_begin(park)) {                      w's park word says PARKED from here on
 *            wait
 *            mrt__park_end(park)
 *    }
 *    searching = !mrt__idle_unpark_worker(idle, w)     and look everywhere, at what is published to w alone, too
 *
 * A publisher's turn: put the task where a rescan sees it; then worker_to_notify(); then mrt__park_wake() on that one.
 *
 *    worker_to_notify   two atomic accesses when there is nobody to wake, a short lock otherwise; any thread
 *    try_search, end_search, is_parked, *_nr    wait-free, any thread
 *    the rest           a short lock; any thread unless said otherwise
 */
#ifndef MRT_SCHED_IDLE_H
#define MRT_SCHED_IDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/compiler.h"
#include "base/lock.h"

#define MRT__IDLE_WORKERS_MAX 0xffffu

struct mrt__idle {
	/*
	 * Workers searching in the low 16 bits, unparked in the high 16. Written by read-modify-writes only, all
	 * seq_cst; unparked changes under the lock only, so that there unparked + sleepers_nr == workers_nr.
	 */
	mrt__cache_aligned atomic_uint word;

	mrt__cache_aligned struct mrt__lock lock;
	unsigned workers_nr;            /* set at init */
	unsigned sleepers_nr;           /* under the lock */
	uint16_t *sleepers;             /* [workers_nr] a stack: who parked last is warm and wakes first; under the lock */
	atomic_bool *parked;            /* [workers_nr] w is in sleepers; written under the lock, set by w only */
};

/**
 * Set the books up: all workers unparked, none searching.
 *
 * @thread  before any other thread sees it
 *
 * @param workers_nr  1..MRT__IDLE_WORKERS_MAX
 * @return 0, or -EINVAL (workers_nr), -ENOMEM; then *idle may be given to mrt__idle_fini() or not
 */
int mrt__idle_init(struct mrt__idle *idle, unsigned workers_nr);

/* Free what init allocated; a zeroed or half-built object is fine. */
void mrt__idle_fini(struct mrt__idle *idle);

/**
 * Work was published: is there a worker to wake for it?
 *
 * Only when nobody searches (a searcher will find it, or rescan) and somebody sleeps. Both are counted here on behalf
 * of the sleeper: it is unparked *and searching* from now on, and the caller must wake it (mrt__park_wake).
 *
 * @thread  any, after it published the work
 * @blocks  a short lock if there is somebody to wake
 * @order   [IDLE.word.dekker] against mrt__idle_park() and mrt__idle_end_search()
 * @return worker index, or -1
 */
int mrt__idle_worker_to_notify(struct mrt__idle *idle);

/**
 * Worker w has stopped sleeping by itself (its own completion, a message, a time-out).
 *
 * @thread  w, or a thread that stands in for it while w cannot run; nobody else, since only so is the result clear
 * @return true: w was a sleeper and is now counted unparked, not searching;
 *         false: somebody has picked w to be woken, so w is counted unparked and *searching* and has to end that
 *         search (its park word may still become NOTIFIED: one spurious turn)
 */
bool mrt__idle_unpark_worker(struct mrt__idle *idle, unsigned w);

/**
 * Worker w goes to sleep: it becomes pickable.
 *
 * @thread  w, with no task in hand
 * @order   [IDLE.word.dekker]: after a true result the queues show every push whose publisher found nobody to wake
 *
 * @param searching  w counts as searching
 * @return true: nobody searches any more, so the caller must look at all queues once more, and wake one worker if
 *         there is work. (Tokio says so to the last searcher only. A worker that was refused to search and parks just
 *         after the last searcher found something then sleeps through a push made in between.)
 */
bool mrt__idle_park(struct mrt__idle *idle, unsigned w, bool searching);

/**
 * May one more worker search? At most about half of them at once; racy on purpose, a few too many do no harm.
 *
 * @thread  an unparked worker that does not search
 * @return true: the caller is now counted as searching
 */
bool mrt__idle_try_search(struct mrt__idle *idle);

/**
 * The caller has found work.
 *
 * @thread  a worker counted as searching
 * @return true: it was the last searcher. Pushes made meanwhile relied on it: before it runs the task it must wake one
 *         more (mrt__idle_worker_to_notify), unless it looks at all queues once more and there is nothing
 */
bool mrt__idle_end_search(struct mrt__idle *idle);

/* Is w a sleeper (not picked yet)? @thread any; exact for w itself after mrt__park_end() */
bool mrt__idle_is_parked(const struct mrt__idle *idle, unsigned w);

/* @thread any; of the past when it returns */
unsigned mrt__idle_unparked_nr(const struct mrt__idle *idle);
unsigned mrt__idle_searching_nr(const struct mrt__idle *idle);

/**
 * Put a sleeper into an office that is free: *post becomes its index + 1 if it was 0. It cannot stop sleeping in between,
 * and stays asleep and on the books as such.
 *
 * @thread  any
 * @param except  worker index that is passed over, or -1
 * @return  the worker, the one that parked last; or -1: nobody sleeps, or the office was taken
 */
int mrt__idle_appoint(struct mrt__idle *idle, int except, atomic_uint *post);

/* Check the invariants under the lock; say what is wrong to why (or NULL). @thread any */
bool mrt__idle_check(struct mrt__idle *idle, FILE *why);

#endif
