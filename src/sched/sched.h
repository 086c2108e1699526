/* SPDX-License-Identifier: MIT */
/*
 * What the workers of one runtime share. Const after creation unless said.
 */
#ifndef MRT_SCHED_SCHED_H
#define MRT_SCHED_SCHED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <martlet/runtime.h>
#include <martlet/task.h>

#include "base/compiler.h"
#include "probe/stat.h"
#include "ring/ring.h"
#include "sched/heap.h"
#include "sched/idle.h"
#include "sched/inject.h"

struct mrt__arena;
struct mrt__files;
struct mrt__worker;
struct mrt__pool;

#define MRT__WORKERS_MAX 1024u
#define MRT__INTERVAL_DEFAULT 61u       /* of the inject check and of the event turn */
#define MRT__INTERVAL_MAX 65536u
#define MRT__BUDGET 128u                /* units a poll; next-slot polls share it */
#define MRT__NEXT_POLLS_MAX 3u          /* next-slot polls in a row */
#define MRT__INJECT_BATCH_MAX 128u
#define MRT__FLUSH_STAGED 128u          /* staged SQEs that are worth an enter of their own: half of the default SQ */
#define MRT__TIMERS_PER_HOLD 32u        /* entries taken out of a wheel per hold of its lock */
#define MRT__SENTRY_NS (2 * MRT__NS_PER_MS)
#define MRT__SENTRY_GRACE_NS (MRT__NS_PER_MS / 2) /* a wheel may be this late before others fire it */
#define MRT__OUTSIDE_HEAPS_NR 8u

/*
 * What threads that are no workers share, a few of them each: a heap, and how often they have made a task runnable (spawns and
 * wakes) and were done with it. They touch the scheduler after the push that may end the last task, so destruction waits until
 * the two are equal.
 */
struct mrt__outside {
	mrt__cache_aligned pthread_mutex_t lock;
	struct mrt__heap heap;
	uint64_t ids;           /* under lock: task ids given */
	uint64_t spawns;        /* written under lock, read without */
	mrt__cache_aligned _Atomic uint64_t wakes; /* beside the spawns */
	_Atomic uint64_t done;
};

struct mrt__sched {
	struct mrt__worker **workers;   /* [workers_nr] */
	unsigned workers_nr;
	bool current_thread;
	_Atomic uintptr_t owner;        /* current-thread: mrt__sched_thread() of who drives it, 0: nobody yet. Set once */
	bool tune_inject;
	bool tune_events;
	uint32_t inject_interval;
	uint32_t event_interval;
	uint64_t timer_slack_ns;        /* a worker may sleep so much beyond a deadline if others are due then */
	struct mrt_worker_stats *stats; /* [workers_nr] of stats_mem */
	struct mrt__stats stats_mem;
	struct mrt__pool *pool;         /* of the layer above; NULL: none */
	struct mrt__arena *arena;       /* registered memory */
	struct mrt__files *files;       /* registered files */
	struct mrt__ring_opts polled_opts; /* of the polled rings */
	cpu_set_t iowq_cpus;            /* of pinned workers' io-wq; empty: as it inherits */
	mrt_log_fn log;
	void *log_ctx;
	struct mrt__sched *log_next;    /* of the schedulers that a thread outside can be told through; see sched.c */

	struct mrt__inject inject;
	struct mrt__idle idle;
	struct mrt__outside outside[MRT__OUTSIDE_HEAPS_NR];

	/* worker index + 1 of the sentry, 0: none. [SENTRY.dekker] see sentry.c */
	mrt__cache_aligned atomic_uint sentry;
	_Atomic uint64_t sentry_ns;     /* last time that somebody did the sentry's duty */
	_Atomic uint64_t outside_shared; /* spawns from outside that mrt_global's tasks_alive has in it */
	atomic_uint spread_next;        /* where MRT_SPAWN_SPREAD begins to look */
	atomic_bool closing;            /* no new tasks; all are aborted. Set once */
	atomic_bool stopping;           /* all tasks have ended: whoever sets it wakes the others, once */
	atomic_uint aborted_heaps;      /* closing: tickets for the outside heaps that are to be walked */
	atomic_uint walked_heaps;       /* closing: outside heaps walked; all of them: nothing comes from outside any more */
};

/* The statistics have their memory: what is built from now on uses it. @thread the builder */
void mrt__sched_attach_stats(struct mrt__sched *s);

/* Say something through the log callback; no newline. @thread any */
__attribute__((format(printf, 3, 4)))
void mrt__sched_log(struct mrt__sched *s, int level, const char *fmt, ...);

/* Say it through every runtime of the process: for calls that belong to none. @thread any */
__attribute__((format(printf, 2, 3)))
void mrt__sched_log_all(int level, const char *fmt, ...);

/* From when on, and until when, mrt__sched_log_all() reaches it. @thread any @blocks for a log call that is under way */
void mrt__sched_log_add(struct mrt__sched *s);
void mrt__sched_log_remove(struct mrt__sched *s);

/* Threads outside share a few of these; each keeps to one. @thread any that is no worker of s */
struct mrt__outside *mrt__sched_outside(struct mrt__sched *s);

/* Before a task is made runnable from outside, but for a spawn, which counts by itself; and after, as the last access. */
static inline struct mrt__outside *mrt__outside_begin(struct mrt__sched *s)
{
	struct mrt__outside *out = mrt__sched_outside(s);

	/* relaxed: before the push, whose order publishes it to whoever ends the task */
	atomic_fetch_add_explicit(&out->wakes, 1, memory_order_relaxed);
	return out;
}

static inline void mrt__outside_end(struct mrt__outside *out)
{
	/* [OUTSIDE.done] the last access to the scheduler; pairs with mrt__sched_await_outside() */
	atomic_fetch_add_explicit(&out->done, 1, memory_order_release);
}

/* How often threads outside have made a task runnable. @thread any */
uint64_t mrt__sched_remote_wakes(const struct mrt__sched *s);

/* Until threads outside that made the last tasks runnable are out of their calls. @thread the destroyer; no task is left */
void mrt__sched_await_outside(const struct mrt__sched *s);

/* As mrt__sched_enqueue(), for a thread that is no worker of s, between begin and end. */
void mrt__sched_inject(struct mrt__sched *s, struct mrt_task *t);

/**
 * A task has become SCHEDULED by the caller's hand: put it into a queue, and wake somebody if that is needed.
 *
 * @thread  any
 */
void mrt__sched_enqueue(struct mrt_task *t);

/* Work was published: wake a searcher unless one is about. @thread any */
void mrt__sched_notify(struct mrt__sched *s);

/* Wake a worker whatever it does: it looks at its mailbox, inbox and the stop flags. @thread any */
void mrt__sched_wake(struct mrt__worker *w);

/* Tasks that have not ended; exact while closing (nothing is spawned any more). @thread any */
uint64_t mrt__sched_tasks_alive(const struct mrt__sched *s);

/* Begin to close: no spawns from now on; every worker aborts what it finds. @thread any */
void mrt__sched_close(struct mrt__sched *s);

/* A name for the calling thread, without a system call: unique among the threads that live. @thread any */
uintptr_t mrt__sched_thread(void);

/* Is the process a child of the one that made the runtime? See fork.c. @thread any */
bool mrt__sched_is_forked(void);

#endif
