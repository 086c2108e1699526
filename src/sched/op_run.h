/* SPDX-License-Identifier: MIT */
/* The half of op.c that only the scheduler calls: what the reaper, the mailbox and the holder do to ops. */
#ifndef MRT_SCHED_OP_RUN_H
#define MRT_SCHED_OP_RUN_H

#include "sched/op.h"

#define MRT__OP_PREFETCH_AHEAD 4u /* ops, in a batch that is handed to its tasks */

/* The header of the task, which its op's end will touch; the op's own lines are there. */
static inline void mrt__op_prefetch_task(const struct mrt__op *op)
{
	__builtin_prefetch(op->task, 1);
	__builtin_prefetch((char *)op->task + 64, 1);
}

/**
 * Take CQEs: each op goes on (a step of an _all form, another try), or is handed to its task. Within a turn.
 *
 * @thread  the ring's owner
 * @param room  tasks' slots in the local queue
 * @return tasks made runnable, at most room
 */
unsigned mrt__op_reap(struct mrt__worker *w, struct mrt__ring *ring, unsigned room);

/* The holder delivers an op that is finished; it may have to wait for a message or a deadline. */
void mrt__op_deliver(struct mrt_task *t, struct mrt__op *op);

/* Cancel an op of this worker's ring. @thread the ring's owner; the op is not delivered meanwhile */
void mrt__op_cancel_on_owner(struct mrt__worker *w, struct mrt__op *op);

/* Send a cancel message. @thread the op's holder */
void mrt__mailbox_push(struct mrt__worker *owner, struct mrt__op *op);

/* A read or write got -EINVAL: say what is misaligned, if that is why. See file.c. */
void mrt__file_explain_einval(struct mrt__op *op);

#endif
