/* SPDX-License-Identifier: MIT */
/*
 * The run of a task, inline in the worker's tick: what happens at each poll. The rest of it is in task.c.
 */
#ifndef MRT_SCHED_TASK_RUN_H
#define MRT_SCHED_TASK_RUN_H

#include <errno.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "probe/meter.h"
#include "probe/stat.h"
#include "sched/task.h"
#include "sched/worker.h"

/* ---- task.c; all by the task's holder ---- */

/* Deliver what was pushed, carry out what was asked, until there is nothing more. */
void mrt__task_take_news(struct mrt_task *t);

/* As mrt__task_call_poll(), and note how long it takes. */
enum mrt_poll mrt__task_call_poll_timed(struct mrt__worker *w, struct mrt_task *t);

/* It came from elsewhere: its ops in flight, if it has any, are of other rings. */
void mrt__task_move_here(struct mrt__worker *w, struct mrt_task *t);

/* Its poll function has returned: cancel the ops that it has left in flight. */
void mrt__task_cancel_left(struct mrt_task *t);

/* All ops are collected: publish the result, tell whoever waits, free. */
void mrt__task_finish(struct mrt__worker *w, struct mrt_task *t);

/* Something came while it ran. */
void mrt__task_run_on(struct mrt__worker *w, struct mrt_task *t);

/* ---- inline ---- */

/* The holder collects what has come: delivers ops, carries out an abort. */
static inline void mrt__task_collect(struct mrt_task *t)
{
	if (mrt__unlikely(mrt__task_has_news(t)))
		mrt__task_take_news(t);
}

/* Has its poll function returned, with no op in flight? */
static inline bool mrt__task_is_drained(const struct mrt_task *t)
{
	return t->flags & MRT__TASKF_RETURNED && !t->ops;
}

static inline __attribute__((always_inline)) enum mrt_poll mrt__task_call_poll(struct mrt__worker *w, struct mrt_task *t)
{
	struct mrt_worker_stats *stats = w->stats;
	enum mrt_poll poll;

	mrt__stat_set(&stats->poll_task, (uint64_t)(uintptr_t)t);
	mrt__stat_set(&stats->poll_fn, (uint64_t)(uintptr_t)t->fn);
	mrt__stat_add(&stats->polls, 1);
	poll = t->fn(t, mrt__task_frame(t));
	if (mrt__unlikely(!mrt__worker_self))
		mrt__bug("a task went on in a child after fork; call exec or _exit there");
	mrt__stat_set(&stats->poll_fn, 0);
	return poll;
}

/* Once. An aborted task that has not begun never does. */
static inline __attribute__((always_inline)) enum mrt_poll mrt__task_poll(struct mrt__worker *w, struct mrt_task *t)
{
	if (mrt__unlikely(t->flags & MRT__TASKF_ABORTED) && !(t->flags & MRT__TASKF_POLLED)) {
		t->result = -ECANCELED;
		return MRT_POLL_READY;
	}
	if (mrt__unlikely(mrt__task_place(t) != w->index))
		mrt__task_move_here(w, t);
	t->flags |= MRT__TASKF_POLLED;
	if (mrt__unlikely(t->slow || mrt__meter_times_poll(&w->meter, w->stats->polls)))
		return mrt__task_call_poll_timed(w, t);
	return mrt__task_call_poll(w, t);
}

/*
 * The task waits: keep it if nobody but this worker can complete its ops, else let go. False: something came.
 *
 * @param here  its place is this worker: it was polled just now
 */
static inline __attribute__((always_inline)) bool mrt__task_rest(const struct mrt__worker *w, struct mrt_task *t, bool here)
{
	if (!(t->flags & (MRT__TASKF_SHARED | MRT__TASKF_ABORTED)) && w->keeper && (here || mrt__task_place(t) == w->index))
		return mrt__task_keep(t, w->keeper, w->index);
	return mrt__task_let_go(t);
}

/**
 * Run a task: deliver what else has come, poll, let go. Called by its holder, who has dequeued it.
 *
 * @thread  w's
 */
static inline __attribute__((always_inline)) void mrt__task_run(struct mrt__worker *w, struct mrt_task *t)
{
	w->task = t;
	mrt__task_collect(t);
	if (mrt__likely(mrt__task_is_runnable(t) && !(t->flags & MRT__TASKF_RETURNED))) {
		if (mrt__task_poll(w, t) != MRT_POLL_PENDING) {
			t->flags |= MRT__TASKF_RETURNED;
			if (mrt__unlikely(t->ops != NULL))
				mrt__task_cancel_left(t);
		} else {
			if (mrt__unlikely(t->flags & MRT__TASKF_ARMED))
				mrt__worker_put_timers(w);
			if (t->await_nr == 0) {
				w->task = NULL;
				mrt__worker_append_yielded(w, t);
				return;
			}
			if (mrt__likely(mrt__task_rest(w, t, true)))
				w->task = NULL;
			else
				mrt__task_run_on(w, t);
			return;
		}
	}
	if (mrt__task_is_drained(t))
		mrt__task_finish(w, t);
	else if (mrt__likely(mrt__task_rest(w, t, false)))
		w->task = NULL;
	else
		mrt__task_run_on(w, t);
}

#endif
