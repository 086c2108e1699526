/* SPDX-License-Identifier: MIT */
/*
 * A worker: a thread with a ring, a run queue, a wheel and a heap. Its loop is a step function, so that a simulation
 * can interleave several workers on one thread.
 */
#ifndef MRT_SCHED_WORKER_H
#define MRT_SCHED_WORKER_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/rand.h"
#include "probe/meter.h"
#include "ring/ring.h"
#include "sched/arena.h"
#include "sched/cancels.h"
#include "sched/files.h"
#include "sched/heap.h"
#include "sched/park.h"
#include "sched/runq.h"
#include "sched/sched.h"
#include "sched/task.h"
#include "timer/wheel.h"

/* By opcode: does what is submitted with it as the last one end with the submission? See may_submit_late(). */
struct mrt__foresight {
	uint8_t misses;         /* flushes in a row that found no completion, at most MISSES_MAX */
	uint8_t left;           /* waits that submit, until a flush is tried again */
};
#define MRT__FORESIGHTS_NR 64u

struct mrt__pool;

struct mrt__worker {
	/* ---- the owner's, and const ---- */
	struct mrt__sched *sched;
	struct mrt__ring *ring;
	struct mrt_worker_stats *stats;
	uint16_t index;
	int cpu;                        /* pinned to, -1: floats */
	uint64_t keeper;                /* our mark in a task's word, 0: we keep none */
	uint8_t shared_kinds;           /* ops from this kind on may be completed by others */

	/* ---- the owner's ---- */
	struct mrt_task *task;          /* being polled, or whose news are being delivered */
	unsigned budget;                /* left in this poll */
	bool next_enabled;              /* false: wakes go to the queue, the next slot had its turns */
	bool in_turn;                   /* inside a ring turn: what becomes runnable goes to the queue's tail */
	bool searching;
	bool woken;                     /* parked since the last task: for noop_wakes */
	bool heard;                     /* something came that may be from outside: mrt_global is behind */
	uint32_t inject_interval;       /* self-tuned, or the scheduler's */
	uint32_t inject_left;           /* ticks until inject is served first */
	uint32_t event_interval;
	uint32_t event_left;            /* ticks until the next event turn */
	unsigned turn_first;            /* which source is served first in the next turn */
	unsigned turn_woken;            /* tasks that this turn made runnable */
	uint32_t credits;               /* ops that may still be given to the kernel */
	uint32_t credits_max;
	uint32_t inflight;              /* ops that the kernel has */
	uint32_t polled_inflight;       /* ... those of them on the polled ring */
	uint32_t file_mask;             /* slots of file_use - 1 */
	struct mrt__file_use *file_use; /* [file_mask + 1] what this worker knows of the registered files */
	struct mrt__arena_view arena;
	struct mrt_task *yielded_head, *yielded_tail;
	uint32_t yielded_nr;
	struct mrt_task *spilled_head, *spilled_tail; /* the only worker's: what its full queue did not take, by queue_next */
	uint32_t spilled_nr;
	struct mrt__op *queued_head, *queued_tail; /* ops without credit or SQE, by done_next */
	uint32_t queued_nr;
	void (*calls_due)(struct mrt__pool *pool); /* to be called: blocking calls wait, and no thread was woken; else NULL */
	struct mrt__rand rand;
	uint64_t id_base;               /* added to the count of its spawns: a task's number */
	uint64_t tune_ns;               /* start of the current sample, and polls then */
	uint64_t tune_polls;
	double tune_mean_ns;            /* mean poll time, exponentially weighted; 0: none yet */
	uint64_t parked_ns;             /* when the last park began or ended, for busy_ns and park_ns */
	uint64_t slept_ns;              /* how long the last park was */
	uint64_t trim_ns;               /* when the heap's excess goes back; 0: it has none */
	bool heap_aborted;              /* closing: our tasks were aborted */
	uint32_t files_seen;            /* the version of the registered files that we have dealt with */
	uint32_t cancels_due;           /* closing files whose ops could not yet be cancelled */
	struct mrt__cancels cancels;    /* that were sent, and whose ops have not ended */
	struct mrt__ring *polled;       /* made at the first op on a polled file; NULL: none */
	int polled_error;               /* why there is none, -errno; 0: not tried */
	struct mrt__arena_view polled_arena;
	bool big;                       /* rings with 32-byte CQEs */
	uint64_t extra;                 /* ... the second result of the completion that is being dealt with */
	struct mrt__meter meter;
	struct mrt__foresight foresight[MRT__FORESIGHTS_NR];
	uint8_t recv_found;             /* share of receives that found data when the kernel got them, of 255; see op.c */
	bool recv_polls;                /* the kernel can wait for data first */
	int64_t alive_shared;           /* tasks and timers of ours that mrt_global has been told of */
	int64_t timers_shared;
	struct mrt__wheel_entry *armed, **armed_tail; /* timers that the running poll has armed */
	uint32_t armed_nr;
	uint64_t armed_ns;              /* when the newest was */

	struct mrt__heap heap;
	struct mrt__runq runq;          /* owner and thieves */

	/* ---- others' too ---- */
	mrt__cache_aligned struct mrt__park park;
	/* ops whose cancel we are asked for, by op->res; MPSC, taken whole. [WORKER.mailbox.push], [.take] */
	_Atomic(struct mrt__op *) mailbox;
	/* tasks placed here, by queue_next; pushed by any, taken whole by the owner or the sentry. [WORKER.inbox.push],
	 * [.take] */
	_Atomic(struct mrt_task *) inbox;
	atomic_uint inbox_nr;
	/* tasks that we keep, or did, and that were asked to abort; by told_next; MPSC, taken whole. [WORKER.told.push],
	 * [.take] */
	_Atomic(struct mrt_task *) told;
	atomic_bool report;             /* asked to say what its tasks wait for; it clears it */
	atomic_bool sentry_armed;       /* the ring's sentry timer runs */
	_Atomic uint64_t seen_polls;    /* whoever looked as sentry: our poll count then, */
	_Atomic uint64_t seen_ns;       /* and when it was seen first */
	_Atomic uint64_t stalled_polls; /* and the count at which it was last said to be stuck */

	/* the wheel; lock: owner's insert after a poll, cancel, advance; any worker's cancel; the sentry by try-lock */
	mrt__cache_aligned struct mrt__lock wheel_lock;
	struct mrt__wheel wheel;
	/* earliest instant that needs an advance; written under the lock, read without (a hint) */
	_Atomic uint64_t wheel_next;
};

/* The calling thread's worker, or NULL. The simulation sets it by hand. */
extern __thread struct mrt__worker *mrt__worker_self __attribute__((tls_model("initial-exec")));

/* The scheduler of a runtime, or with NULL that of the running task. @thread any @return 0, -EINVAL, -ECHILD */
static inline int mrt__sched_find(struct mrt_runtime *rt, struct mrt__sched **ret_sched)
{
	struct mrt__worker *w = mrt__worker_self;

	if (mrt__sched_is_forked())
		return -ECHILD;
	/* struct mrt_runtime begins with its scheduler (asserted in src/rt) */
	if (rt)
		*ret_sched = (struct mrt__sched *)(void *)rt;
	else if (w && w->task)
		*ret_sched = w->sched;
	else
		return -EINVAL;
	return 0;
}

struct mrt__worker_opts {
	struct mrt__sched *sched;
	struct mrt__ring *ring;
	unsigned index;
	int cpu;
	uint32_t cq_entries;
	uint64_t seed;
};

/* What this worker knows of a handle; NULL: stale. @thread owner */
static inline struct mrt__file_use *mrt__file_use_of(struct mrt__worker *w, int handle)
{
	struct mrt__file_use *u = &w->file_use[(unsigned)handle & w->file_mask];

	if (mrt__unlikely(u->handle != handle))
		return mrt__file_learn(w, handle) ? u : NULL;
	return u;
}

/* Where the worker's io-wq may run; NULL: it is not pinned. */
static inline const cpu_set_t *mrt__worker_iowq_cpus(const struct mrt__worker *w)
{
	return w->cpu >= 0 && CPU_COUNT(&w->sched->iowq_cpus) > 0 ? &w->sched->iowq_cpus : NULL;
}

/* Make the worker's polled ring, once. @thread owner @return false: there is none, and the log has said why */
bool mrt__worker_make_polled(struct mrt__worker *w);

/* Everything has ended: let go of the rings. @thread owner @return 0, or -ETIMEDOUT: leak them */
int mrt__worker_drain(struct mrt__worker *w);

/* Make a worker. @thread the builder @return 0, -ENOMEM */
int mrt__worker_create(const struct mrt__worker_opts *opts, struct mrt__worker **ret_worker);

/* Free it; NULL is ignored. Its heap must hold no live task (or the caller knows that nobody will look). */
void mrt__worker_destroy(struct mrt__worker *w);

enum mrt__tick {
	MRT__TICK_RAN,          /* something was done: call again */
	MRT__TICK_PARK,         /* nothing to do: park */
	MRT__TICK_STOP,         /* the runtime is stopping, and this worker is done */
};

/* One step: one task, or one look for work. @thread owner */
enum mrt__tick mrt__worker_tick(struct mrt__worker *w);

/* Step after step, until one does not say RAN, or `root` (may be NULL) has ended. @thread owner @return the last step's */
enum mrt__tick mrt__worker_ticks(struct mrt__worker *w, const struct mrt_task *root);

/* Prepare to sleep. @return false: do not, something came. *ret_timeout_ns: how long at most */
bool mrt__worker_park_begin(struct mrt__worker *w, uint64_t *ret_timeout_ns);

/* Awake again (or not asleep at all). */
void mrt__worker_park_end(struct mrt__worker *w);

/* begin, wait in the ring, end. @thread owner @blocks until there is something to do */
void mrt__worker_park(struct mrt__worker *w);

/* ---- pieces, for the other files of this folder ---- */

/* Drive the ring, fire timers, refill the local queue evenly. @return true if anything was made runnable */
bool mrt__worker_turn(struct mrt__worker *w);

/* The local queue, with overflow into inject, or, where nobody else comes by there, behind it. */
void mrt__worker_push(struct mrt__worker *w, struct mrt_task *t);

/* Behind the last one of a list by queue_next. */
static inline void mrt__worker_append(struct mrt_task **head, struct mrt_task **tail, struct mrt_task *t)
{
	t->queue_next = NULL;
	if (*tail)
		(*tail)->queue_next = t;
	else
		*head = t;
	*tail = t;
}

/* As mrt__worker_push_yielded(). */
static inline void mrt__worker_append_yielded(struct mrt__worker *w, struct mrt_task *t)
{
	mrt__worker_append(&w->yielded_head, &w->yielded_tail, t);
	w->yielded_nr++;
}

/* Behind the next ring turn. */
void mrt__worker_push_yielded(struct mrt__worker *w, struct mrt_task *t);

/* Place a task on a worker, from any thread (outside: between begin and end), and wake it. */
void mrt__inbox_push(struct mrt__worker *w, struct mrt_task *t);

/* Take all that was placed on v, oldest first; linked by queue_next. @thread any */
struct mrt_task *mrt__inbox_take(struct mrt__worker *v);

/* Something became runnable within w's own ring turn. */
static inline void mrt__worker_push_woken(struct mrt__worker *w, struct mrt_task *t)
{
	w->turn_woken++;
	mrt__fire(task_wake, w->index, mrt__arg(t), w->index);
	if (mrt__unlikely(!mrt__runq_try_push(&w->runq, t)))
		mrt__worker_push(w, t);
}

/* The rest of mrt__worker_schedule(): `t` goes to the queue's back. */
void mrt__worker_schedule_behind(struct mrt__worker *w, struct mrt_task *t);

/*
 * A task that w made runnable: into the next slot, whose former occupant goes to the queue's back. A slot push wakes nobody:
 * the sentry looks after tasks behind a long poll.
 */
static inline __attribute__((always_inline)) void mrt__worker_schedule(struct mrt__worker *w, struct mrt_task *t)
{
	if (mrt__unlikely(w->in_turn)) {
		mrt__worker_push_woken(w, t);
		return;
	}
	mrt__stat_add(&w->stats->local_schedules, 1);
	mrt__fire(task_wake, w->index, mrt__arg(t), w->index);
	if (mrt__likely(w->next_enabled)) {
		t = mrt__runq_next_swap(&w->runq, t);
		if (mrt__likely(!t))
			return;
	}
	mrt__worker_schedule_behind(w, t);
}

/*
 * A task that another's end has made runnable: behind those that are queued already. Nothing that it shares with who has ended
 * is lost by that, and who joins many is woken by the first and finds the others ended, too.
 */
static inline __attribute__((always_inline)) void mrt__worker_schedule_joiner(struct mrt__worker *w, struct mrt_task *t)
{
	if (mrt__runq_is_empty(&w->runq)) {
		mrt__worker_schedule(w, t);
		return;
	}
	mrt__stat_add(&w->stats->local_schedules, 1);
	mrt__fire(task_wake, w->index, mrt__arg(t), w->index);
	mrt__worker_schedule_behind(w, t);
}

/* Send a task that was asked (MRT__ASK_TELL) to its keeper, and wake it. @thread any; t may be gone afterwards */
void mrt__tell(struct mrt__worker *keeper, struct mrt_task *t);

/* Submit what is staged, and have blocking calls begin. */
void mrt__worker_flush(struct mrt__worker *w);

/* Send staged and queued ops as far as credits and SQEs allow. */
void mrt__worker_resubmit(struct mrt__worker *w);

/* Fire due timers of v's wheel on w, at most max. @return number fired */
unsigned mrt__worker_fire(struct mrt__worker *w, struct mrt__worker *v, uint64_t now, unsigned max);

/* When a worker that goes to sleep is to wake for its wheel; UINT64_MAX: never. @thread owner */
uint64_t mrt__worker_wheel_wake(struct mrt__worker *w, uint64_t now);

/* What the running task's poll has armed goes into the wheel: it is over, or has armed many. @thread owner, with w->task */
void mrt__worker_put_timers(struct mrt__worker *w);

/* Take a sleep or deadline out of whichever wheel it is in; false: it has fired. */
bool mrt__worker_timer_cancel(struct mrt__sched *s, struct mrt__op *op);

/* ---- sentry.c ---- */

/* Going to sleep, and the first task after a sleep, hand the watch over. */
void mrt__sentry_on_park(struct mrt__worker *w);
void mrt__sentry_on_work(struct mrt__worker *w);
/* The timer went off on w's ring. */
void mrt__sentry_on_timer(struct mrt__worker *w);
/* All are busy: nobody sleeps, so the busy look. Cheap unless 2 ms have passed. */
void mrt__sentry_on_event_turn(struct mrt__worker *w, uint64_t now);

#endif
