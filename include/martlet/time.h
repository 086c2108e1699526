/* SPDX-License-Identifier: MIT */
/*
 * Sleeps and deadlines. Times are CLOCK_MONOTONIC in ns. A sleep allocates nothing: its wheel entry is part of the op.
 * Nothing fires early; it is late by microseconds (the kernel's timer and the queue in front of the task).
 */
#ifndef MARTLET_TIME_H
#define MARTLET_TIME_H

#include <stdint.h>

#include <martlet/export.h>
#include <martlet/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MRT_US(n) ((uint64_t)(n) * UINT64_C(1000))
#define MRT_MS(n) ((uint64_t)(n) * UINT64_C(1000000))
#define MRT_SEC(n) ((uint64_t)(n) * UINT64_C(1000000000))

/* Now, CLOCK_MONOTONIC in ns. @thread any @blocks never */
MRT_API uint64_t mrt_now(void);

/**
 * Sleep for a while.
 *
 * @thread  the running task's worker
 * @owner   op is the runtime's until it completes
 * @blocks  never
 * @param ns  0: completes at once; UINT64_MAX: for ever, until cancelled
 * @result  0, or -ECANCELED, -ESHUTDOWN
 * @return op
 */
MRT_API struct mrt_op *mrt_sleep(struct mrt_op *op, uint64_t ns);

/**
 * Sleep until mrt_now() reaches `when_ns`; at once if it has.
 *
 * Otherwise as mrt_sleep.
 */
MRT_API struct mrt_op *mrt_sleep_until(struct mrt_op *op, uint64_t when_ns);

/* A deadline's own wheel entry; the caller's, in the frame beside its op. Zero it before its first use. */
struct mrt_timer {
	struct mrt_op mrt__op;
	struct mrt_op *mrt__target;
};

/**
 * Give an op that is in flight a deadline. When it passes, the op is cancelled; it completes with -ETIMEDOUT where
 * nothing was done, and with its result otherwise. A result that is there when the worker comes to look wins, also over a
 * deadline that passed before it: behind a long poll a sleep may be due, too. Where the kernel does not give a buffer back yet
 * (a read that a device works on), the completion comes late. An op has at most one deadline; one that is done gets none.
 *
 *	MRT_AWAIT(self, mrt_deadline(mrt_recv(&c->op, ...), &c->timer, MRT_SEC(5)));
 *
 * @thread  the running task that started op
 * @owner   timer is the runtime's until op completes
 * @blocks  never
 * @param ns  from now; 0: has passed already
 * @return op
 */
MRT_API struct mrt_op *mrt_deadline(struct mrt_op *op, struct mrt_timer *timer, uint64_t ns);

#ifdef __cplusplus
}
#endif

#endif
