/* SPDX-License-Identifier: MIT */
/* Calls that block run on a thread of the pool; to their task they are ops like any other. */
#ifndef MARTLET_BLOCKING_H
#define MARTLET_BLOCKING_H

#include <stdint.h>

#include <martlet/export.h>
#include <martlet/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * What runs on a pool thread.
 *
 * @thread  a pool thread, all signals blocked; may block; may not start ops
 * @return the op's result
 */
typedef int64_t (*mrt_blocking_fn)(void *arg);

/**
 * Run a function on a thread of the blocking pool.
 *
 * It begins when the worker next submits, as other ops do, so at the latest with what else was started before the task
 * waits; a poll that goes on for long calls mrt_flush() first.
 *
 * Cancelling works until the call has begun; from then on it runs to its end and its result stands. A call made inside
 * mrt_shield() is run even while the runtime is closing.
 *
 * @thread  the running task's worker
 * @owner   op and *arg are the runtime's until the op completes
 * @blocks  never
 * @result  what fn returned; or
 *          -EAGAIN      the pool's queue is full (blocking_queue_max), or no thread could be started
 *          -ECANCELED   cancelled before it began, also by the runtime's closing
 *          -ESHUTDOWN   the runtime is closing
 * @return op
 */
MRT_API struct mrt_op *mrt_blocking(struct mrt_op *op, mrt_blocking_fn fn, void *arg);

#ifdef __cplusplus
}
#endif

#endif
