/* SPDX-License-Identifier: MIT */
/*
 * What the workers count. One writer per block: its worker, with plain stores; readers see each field whole, and fields
 * of one block at slightly different times. Counters never fall.
 */
#ifndef MARTLET_STATS_H
#define MARTLET_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt_runtime;

enum mrt_worker_state {
	MRT_WORKER_STARTING = 0,
	MRT_WORKER_RUNNING = 1,         /* between polls */
	MRT_WORKER_POLLING = 2,         /* inside a task's poll function */
	MRT_WORKER_SEARCHING = 3,       /* looking for work elsewhere */
	MRT_WORKER_PARKED = 4,          /* in io_uring_enter */
	MRT_WORKER_STOPPED = 5
};

/* One worker. Words are those of design and docs/architecture.md. */
struct mrt_worker_stats {
	/* gauges */
	uint32_t index;
	uint32_t state;                 /* enum mrt_worker_state */
	int32_t tid;
	int32_t cpu;                    /* pinned to; -1: floats */
	uint32_t local_queue;           /* tasks in the local queue, at the last tick */
	uint32_t next_slot;             /* 0 or 1 */
	uint32_t yielded;               /* tasks waiting for the next ring turn */
	uint32_t inflight;              /* ops that the kernel has */
	uint32_t queued;                /* ops waiting for credits or SQ room */
	uint32_t sq_staged;             /* SQEs not yet submitted */
	uint32_t cq_ready;              /* completions seen at the last ring turn */
	uint32_t reserved;
	uint64_t timers;                /* entries in the wheel */
	uint64_t poll_fn;               /* address of the function being polled, 0 outside a poll */
	uint64_t turn_ns;               /* time of the last ring turn, CLOCK_MONOTONIC; 0: never */

	/* counters */
	uint64_t polls;
	uint64_t ticks;
	uint64_t spawns;                /* tasks spawned by tasks here */
	uint64_t ends;                  /* tasks that ended here */
	uint64_t local_schedules;       /* tasks made runnable here that went to this worker */
	uint64_t moved;                 /* polls of tasks that were last polled, or spawned, by another worker */
	uint64_t steals;                /* tasks taken from others */
	uint64_t steal_ops;             /* successful thefts */
	uint64_t steal_tries;           /* searches */
	uint64_t overflows;             /* times that half the local queue went to inject */
	uint64_t injects;               /* tasks taken from the inject queue */
	uint64_t parks;
	uint64_t noop_wakes;            /* parks that ended without work */
	uint64_t wakes_sent;            /* workers woken by this one */
	uint64_t sentry_wakes;          /* wakes as sentry */
	uint64_t rescued;               /* tasks and timers taken from a stuck worker by this sentry */
	uint64_t budget_yields;         /* polls that ended because the budget was spent */
	uint64_t yields;
	uint64_t enters;                /* io_uring_enter calls */
	uint64_t sqes;                  /* submitted */
	uint64_t cqes;                  /* reaped */
	uint64_t cq_overflows;          /* times that the kernel held completions back */
	uint64_t sq_fulls;              /* times that an op found no SQ entry */
	uint64_t credit_waits;          /* ops that waited for credits */
	uint64_t retries;               /* ops sent again after -EAGAIN or -EINTR, and steps of _all forms */
	uint64_t cancels;               /* cancels sent to the kernel */
	uint64_t timer_fires;
	uint64_t busy_ns;               /* time not parked, at the last park */
	uint64_t park_ns;               /* time parked */
} __attribute__((aligned(128)));

/* The whole runtime. */
struct mrt_global_stats {
	uint64_t inject_depth;
	uint64_t tasks_alive;
	uint64_t blocking_threads;
	uint64_t blocking_idle;
	uint64_t blocking_queued;
	uint64_t spawns_outside;        /* spawned by threads that are no workers */
	uint64_t remote_wakes;          /* tasks made runnable by threads that are no workers */
};

/**
 * Read one worker's block.
 *
 * @thread  any
 * @blocks  never
 * @return 0, -EINVAL (no such worker)
 */
MRT_API int mrt_stats_get(const struct mrt_runtime *rt, unsigned worker, struct mrt_worker_stats *ret_stats);

/* Read the runtime's block. @thread any @return 0, -EINVAL */
MRT_API int mrt_stats_global_get(struct mrt_runtime *rt, struct mrt_global_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
