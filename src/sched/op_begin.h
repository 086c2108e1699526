/* SPDX-License-Identifier: MIT */
/*
 * The begin of an op inline, and its end where nobody else has seen it: for the ops that are begun most often.
 */
#ifndef MRT_SCHED_OP_BEGIN_H
#define MRT_SCHED_OP_BEGIN_H

#include "base/assert.h"
#include "base/compiler.h"
#include "sched/op.h"
#include "sched/task.h"
#include "sched/worker.h"

/* The unusual cases of a begin. @thread the running task's worker, or none */
__attribute__((cold, noinline)) void mrt__op_bug_not_startable(const struct mrt__op *op, enum mrt__op_kind kind);
struct mrt__worker *mrt__op_begin_outside(struct mrt__op *op, enum mrt__op_kind kind);
struct mrt__worker *mrt__op_begin_aborted(struct mrt__op *op, enum mrt__op_kind kind, struct mrt_task *t);

static inline void mrt__op_check_startable(const struct mrt__op *op, enum mrt__op_kind kind)
{
	if (mrt__unlikely(op->state != MRT__OP_IDLE && op->state != MRT__OP_DONE))
		mrt__op_bug_not_startable(op, kind);
}

static inline void mrt__op_unlink(struct mrt__op *op)
{
	*op->pprev = op->next;
	if (op->next)
		op->next->pprev = op->pprev;
}

static inline void mrt__op_set_done(struct mrt__op *op, int64_t res)
{
	op->res = res;
	op->state = MRT__OP_DONE;
}

/* The first half of mrt__op_begin_fast(): may it begin? @return as that */
static inline __attribute__((always_inline)) struct mrt__worker *mrt__op_check(struct mrt__op *op, enum mrt__op_kind kind,
										unsigned flags)
{
	struct mrt__worker *w = mrt__worker_self;
	struct mrt_task *t;

	mrt__op_check_startable(op, kind);
	if (mrt__unlikely(!w || !w->task))
		return mrt__op_begin_outside(op, kind);
	t = w->task;
	if (mrt__unlikely(t->flags & MRT__TASKF_ABORTED)) {
		if (!t->shield && !(flags & MRT__OPF_SHIELDED))
			return mrt__op_begin_aborted(op, kind, t);
	}
	return w;
}

/* Its other half: the op is in flight. */
static inline __attribute__((always_inline)) void mrt__op_enter(struct mrt__worker *w, struct mrt__op *op,
								 enum mrt__op_kind kind, unsigned flags)
{
	struct mrt_task *t = w->task;

	if (mrt__unlikely(t->shield))
		flags |= MRT__OPF_SHIELDED;
	if (!t->ops)
		t->flags &= ~MRT__TASKF_SHARED;
	if (kind >= MRT__OP_KINDS_SHARED && kind >= w->shared_kinds)
		t->flags |= MRT__TASKF_SHARED;
	op->what = mrt__op_what(MRT__OP_INFLIGHT, kind, flags);
	op->task = t;
	/* msg: MRT__OP_MSG_NONE, and when it began, for who looks from outside. Nobody else knows the op yet: no atomic store */
	op->where = mrt__op_where(w->index, 0, 0, w->meter.stamp);
	op->next = t->ops;
	if (op->next)
		op->next->pprev = &op->next;
	op->pprev = &t->ops;
	t->ops = op;
}

/* mrt__op_begin(), whose description holds here. */
static inline __attribute__((always_inline)) struct mrt__worker *mrt__op_begin_fast(struct mrt__op *op, enum mrt__op_kind kind,
										     unsigned flags)
{
	struct mrt__worker *w = mrt__op_check(op, kind, flags);

	if (mrt__likely(w != NULL))
		mrt__op_enter(w, op, kind, flags);
	return w;
}

/* Instead of mrt__op_enter(): it is done already. */
static inline void mrt__op_done_at_once(struct mrt__op *op, enum mrt__op_kind kind, int64_t res, int32_t why)
{
	op->what = mrt__op_what(MRT__OP_DONE, kind, 0);
	op->where = 0;
	op->why = why;
	op->res = res;
}

/* The starter completes an op that it has just begun and nobody else has seen. @thread the holder */
static inline void mrt__op_end_inline(struct mrt__op *op, int64_t res)
{
	mrt__assert(op->state == MRT__OP_INFLIGHT);
	mrt__op_unlink(op);
	mrt__op_set_done(op, res);
}

/* Does nothing but a value stand behind the result of a wait (join, sleep, notify), which owns no memory and has no parts?
 * @thread the holder */
static inline bool mrt__op_is_plain_wait(const struct mrt_task *t, const struct mrt__op *op)
{
	return !(op->raw < 0 || t->flags & MRT__TASKF_RETURNED || op->hflags & (MRT__OPH_MSG | MRT__OPH_DEADLINE));
}

/* ... any op's */
static inline bool mrt__op_is_plain(const struct mrt_task *t, const struct mrt__op *op)
{
	return mrt__op_is_plain_wait(t, op) && !(op->flags & MRT__OPF_OWNS_MEM || op->rflags & MRT__OPR_PARTIAL ||
						 op->kind == MRT__OP_DEADLINE);
}

/* Deliver an op of that kind, whose raw is set; what a join has consumed is the caller's to drop. @thread the holder */
static inline void mrt__op_deliver_plain(struct mrt_task *t, struct mrt__op *op)
{
	mrt__op_unlink(op);
	if (op->hflags & MRT__OPH_AWAITED && t->await_nr > 0)
		t->await_nr--;
	op->hflags &= (uint8_t)~MRT__OPH_AWAITED;
	mrt__op_set_done(op, op->raw);
}

#endif
