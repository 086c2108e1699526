/* SPDX-License-Identifier: MIT */
/*
 * An op is one operation in flight. It completes once, with a result. Reads, sleeps, channel receives and joins are
 * all ops: the same await, the same cancellation, the same deadline.
 *
 * Life of an op, as its task sees it:
 *
 *	struct mrt_op op = { 0 };          zeroed, or completed: it may be started
 *	mrt_read(&op, ...)                 from here the op and its buffer are the runtime's
 *	MRT_AWAIT(self, &op)               ... until delivery: op.res is set and the buffer is the task's again
 *
 * Starting never fails: a bad argument, a closed runtime or an exhausted resource completes the op at once with a
 * negative errno in `res`. Starting an op that is still in flight ends the process with its name and its task's,
 * because going on would corrupt memory.
 */
#ifndef MARTLET_OP_H
#define MARTLET_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt_task;

/**
 * One operation. It lives in the frame of the task that starts it (or in memory that the task keeps until delivery).
 *
 * Zero it once before the first use; it may be started again whenever it is not in flight.
 */
struct mrt_op {
	int64_t res;            /* result, >= 0 or -errno; valid after delivery */
	int32_t why;            /* 0, or the -errno that ended an _all or _exact form after it had moved bytes */
	uint32_t mrt__bits;     /* private */
	uint64_t mrt__priv[10]; /* private */
};

/**
 * Was the op delivered?
 *
 * @thread  the running task that started it
 * @blocks  never
 * @return true once res is valid; false while it is in flight, and for an op that was never started
 */
MRT_API bool mrt_op_is_done(const struct mrt_op *op);

/**
 * Ask an op to end early.
 *
 * The op still completes exactly once, and its buffer stays the runtime's until then. A result that was already
 * there wins: -ECANCELED stands only where nothing was done. A read or write that a device works on cannot be
 * stopped: it completes normally. Cancelling an op that is not in flight does nothing.
 *
 * @thread  the running task that started it
 * @blocks  never
 */
MRT_API void mrt_cancel(struct mrt_op *op);

/**
 * Start an op that goes through the ring and back and does nothing.
 *
 * @thread  the running task's worker
 * @owner   op is the runtime's until it completes
 * @blocks  never
 * @result  0, or -ECANCELED, -ESHUTDOWN
 * @return op
 */
MRT_API struct mrt_op *mrt_nop(struct mrt_op *op);

/**
 * Submit what this worker has staged, and have its blocking calls begin, now.
 *
 * Ops are staged while tasks are polled and submitted in batches. A poll that computes for long calls this first, so
 * that its own I/O and its neighbours' proceeds meanwhile. Outside a task it does nothing.
 *
 * @thread  the running task's worker
 * @blocks  never; a system call if anything is staged
 */
MRT_API void mrt_flush(void);

#ifdef __cplusplus
}
#endif

#endif
