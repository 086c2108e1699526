/* SPDX-License-Identifier: MIT */
/*
 * Life of an op: begin, submit or wait, finish, deliver; and how it is cancelled.
 *
 *	IDLE/DONE --begin--> INFLIGHT --(completer: finish)--> [on the task's done stack] --(holder: deliver)--> DONE
 *
 * An op is in flight until it is delivered, and a task with ops in flight is not freed: that is the whole proof that
 * the kernel never writes into freed memory. Three things may hold a delivery up, each of them bounded by somebody who
 * is certain to come by: a cancel message in another worker's mailbox, a deadline that has fired but was not popped,
 * and, before the op is on the stack at all, the kernel.
 */
#include "sched/op.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <martlet/task.h>
#include <martlet/time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "sched/op_run.h"
#include "sched/sched.h"
#include "sched/task.h"
#include "sched/worker.h"

#if MRT_VALGRIND
#include <sys/uio.h>
#include <valgrind/memcheck.h>

#define STATX_BYTES 256 /* struct statx, since 4.11 */

/* Tell memcheck what the kernel wrote: it does not see io_uring's writes. */
static void mark_written(const struct mrt__op *op, int32_t res)
{
	const struct iovec *iov = (const struct iovec *)(uintptr_t)op->io.addr;
	size_t left = res > 0 ? (size_t)res : 0;

	if (op->kind == MRT__OP_READ || op->kind == MRT__OP_RECV)
		(void)VALGRIND_MAKE_MEM_DEFINED((void *)(uintptr_t)op->io.addr, left);
	for (; op->kind == MRT__OP_READV && left > 0; left -= mrt__min(left, iov->iov_len), iov++)
		(void)VALGRIND_MAKE_MEM_DEFINED(iov->iov_base, mrt__min(left, iov->iov_len));
	if (op->kind == MRT__OP_STATX && res == 0)
		(void)VALGRIND_MAKE_MEM_DEFINED((void *)(uintptr_t)op->io.off, STATX_BYTES);
}
#else
static inline void mark_written(const struct mrt__op *op, int32_t res)
{
	(void)op;
	(void)res;
}
#endif

/* What the kernel says of an op that io-wq was told to stop; no error number of its own outside the kernel. */
#define RESTARTSYS 512

static const char *const kind_names[MRT__OP_KINDS_NR] = {
#define MRT__X(NAME, name) [MRT__OP_##NAME] = name,
	MRT__OP_KINDS(MRT__X)
#undef MRT__X
};

const char *mrt__op_kind_name(unsigned kind)
{
	return kind < MRT__OP_KINDS_NR ? kind_names[kind] : "?";
}

/* ---- begin ---- */

static void bug_reused(const struct mrt__op *op, const char *starts)
{
	char held[64] = "?", now[64] = "outside a task";

	mrt__bug("op %p is started as %s by task %s while it is in flight as %s of task %s: an op may be started again "
		 "only after it was delivered",
		 (const void *)op, starts,
		 mrt_task_self() ? mrt_task_name(mrt_task_self(), now, sizeof(now)) : now,
		 mrt__op_kind_name(op->kind), mrt_task_name(op->task, held, sizeof(held)));
}

static __attribute__((cold, noinline)) void bug_not_startable(const struct mrt__op *op, enum mrt__op_kind kind)
{
	if (op->state == MRT__OP_INFLIGHT)
		bug_reused(op, mrt__op_kind_name(kind));
	mrt__bug("op %p is started as %s but holds garbage: zero it before its first use", (const void *)op,
		 mrt__op_kind_name(kind));
}

static inline void check_startable(const struct mrt__op *op, enum mrt__op_kind kind)
{
	if (mrt__unlikely(op->state != MRT__OP_IDLE && op->state != MRT__OP_DONE))
		bug_not_startable(op, kind);
}

static void set_done(struct mrt__op *op, int64_t res)
{
	op->res = res;
	op->state = MRT__OP_DONE;
}

struct mrt_op *mrt__op_refuse(struct mrt_op *pub, enum mrt__op_kind kind, int64_t res)
{
	struct mrt__op *op = mrt__op_of(pub);

	check_startable(op, kind);
	op->kind = (uint8_t)kind;
	op->flags = 0;
	op->hflags = 0;
	op->why = 0;
	set_done(op, mrt__sched_is_forked() ? -ECHILD : res);
	return pub;
}

/* Outside a task there is nobody to deliver to. */
static struct mrt__worker *begin_outside(struct mrt__op *op, enum mrt__op_kind kind)
{
	(void)mrt__op_refuse(mrt__op_public(op), kind, -EINVAL);
	if (!mrt__sched_is_forked())
		mrt__sched_log_all(MRT_LOG_ERROR,
				   "%s was started outside a task; start ops in a poll function, or use mrt_block_on()",
				   mrt__op_kind_name(kind));
	return NULL;
}

static struct mrt__worker *begin_aborted(struct mrt__op *op, enum mrt__op_kind kind, struct mrt_task *t)
{
	/* relaxed: which of the two codes is a courtesy */
	bool closing = atomic_load_explicit(&t->sched->closing, memory_order_relaxed);

	return (void)mrt__op_refuse(mrt__op_public(op), kind, closing ? -ESHUTDOWN : -ECANCELED), NULL;
}

static void link_op(struct mrt_task *t, struct mrt__op *op)
{
	op->next = t->ops;
	if (op->next)
		op->next->pprev = &op->next;
	op->pprev = &t->ops;
	t->ops = op;
}

static void unlink_op(struct mrt__op *op)
{
	*op->pprev = op->next;
	if (op->next)
		op->next->pprev = op->pprev;
}

struct mrt__worker *mrt__op_begin(struct mrt__op *op, enum mrt__op_kind kind, unsigned flags)
{
	struct mrt__worker *w = mrt__worker_self;
	struct mrt_task *t;

	check_startable(op, kind);
	if (mrt__unlikely(!w || !w->task))
		return begin_outside(op, kind);
	t = w->task;
	if (mrt__unlikely(t->flags & MRT__TASKF_ABORTED)) {
		if (!t->shield && !(flags & MRT__OPF_SHIELDED))
			return begin_aborted(op, kind, t);
	}
	if (mrt__unlikely(t->shield))
		flags |= MRT__OPF_SHIELDED;
	if (!t->ops)
		t->flags &= ~MRT__TASKF_SHARED;
	if (kind >= MRT__OP_KINDS_SHARED)
		t->flags |= MRT__TASKF_SHARED;
	op->why = 0;
	op->state = MRT__OP_INFLIGHT;
	op->kind = (uint8_t)kind;
	op->flags = (uint16_t)flags;
	op->hflags = 0;
	op->task = t;
	op->rflags = 0;
	/* relaxed: nobody else knows the op yet */
	atomic_store_explicit(&op->msg, MRT__OP_MSG_NONE, memory_order_relaxed);
	link_op(t, op);
	return w;
}

void mrt__op_end_inline(struct mrt__op *op, int64_t res)
{
	mrt__assert(op->state == MRT__OP_INFLIGHT);
	unlink_op(op);
	set_done(op, res);
}

/* ---- finish ---- */

static void deliver(struct mrt_task *t, struct mrt__op *op);

/*
 * Deliver at once, as the task's new holder, if that takes a worker no lock that its caller may hold, and no system call:
 * whatever comes after the task has returned may (it is given back).
 */
static __attribute__((noinline)) bool hand_over(struct mrt_task *t, struct mrt__op *op)
{
	if (mrt__unlikely(t->flags & MRT__TASKF_RETURNED))
		(void)mrt__task_push(t, op); /* held, by us */
	else
		deliver(t, op);
	/* it may wait for more: then nobody need run it */
	if (!mrt__task_is_runnable(t) && mrt__task_let_go(t))
		return false;
	mrt__sched_enqueue(t);
	return true;
}

/* The task rests with us, who are its holder by that: the word is not looked at. @return true: made runnable */
static inline bool finish_kept(struct mrt__worker *w, struct mrt_task *t, struct mrt__op *op)
{
	mrt__assert(w && mrt__task_rests_at(t, w->index) && w->in_turn);
	if (mrt__unlikely(t->flags & MRT__TASKF_RETURNED))
		(void)mrt__task_push(t, op); /* as below */
	else
		deliver(t, op);
	if (!mrt__task_is_runnable(t) && mrt__likely(!(t->flags & MRT__TASKF_RETURNED)))
		return false;
	mrt__task_set_place(t, w->index);
	mrt__worker_push_woken(w, t);
	return true;
}

/* @return true: the task was made runnable */
static inline bool finish(struct mrt__worker *w, struct mrt__op *op, int64_t raw)
{
	struct mrt_task *t = op->task;

	op->raw = raw;
	if (mrt__likely(mrt__task_rests(t)))
		return finish_kept(w, t, op);
	if (mrt__likely(w && w->sched == t->sched))
		return mrt__task_hold_or_push(t, op) == MRT__CLAIM_HELD && hand_over(t, op);
	if (mrt__task_push(t, op) == MRT__CLAIM_PUSHED)
		return false;
	mrt__sched_enqueue(t);
	return true;
}

void mrt__op_finish(struct mrt__op *op, int64_t raw)
{
	(void)finish(mrt__worker_self, op, raw); /* for those who count */
}

/* ---- ring ops: submit, step ---- */

static void enqueue_unstaged(struct mrt__worker *w, struct mrt__op *op)
{
	op->rflags |= MRT__OPR_QUEUED;
	op->done_next = NULL;
	if (w->queued_tail)
		w->queued_tail->done_next = op;
	else
		w->queued_head = op;
	w->queued_tail = op;
	mrt__stat_set(&w->stats->queued, ++w->queued_nr);
}

static int32_t extra_fd(const struct mrt__op *op)
{
	return op->kind == MRT__OP_SPLICE ? (int32_t)op->raw : 0;
}

/* Give an op to the ring if a credit and an SQE are there. */
static inline __attribute__((always_inline)) bool try_stage(struct mrt__worker *w, struct mrt__op *op)
{
	bool credit = op->flags & MRT__OPF_CREDIT;

	if (mrt__unlikely(credit && w->credits == 0)) {
		mrt__stat_add(&w->stats->credit_waits, 1);
		return false;
	}
	if (mrt__unlikely(!mrt__ring_stage(w->ring, &op->io, extra_fd(op), op))) {
		mrt__stat_add(&w->stats->sq_fulls, 1);
		(void)mrt__ring_flush(w->ring); /* a short submit leaves the rest staged; then there is still no SQE */
		if (!mrt__ring_stage(w->ring, &op->io, extra_fd(op), op))
			return false;
	}
	w->credits -= credit;
	w->inflight++;
	return true;
}

struct mrt_op *mrt__op_submit(struct mrt__worker *w, struct mrt__op *op)
{
	mrt__assert_slow(op->kind < MRT__OP_KINDS_SHARED);
	op->flags |= MRT__OPF_RING;
	op->ring = w->index;
	/* FIFO among those that wait for credits; what needs none passes them by */
	if (mrt__unlikely(w->queued_head && op->flags & MRT__OPF_CREDIT) || mrt__unlikely(!try_stage(w, op)))
		enqueue_unstaged(w, op);
	else if (mrt__unlikely(mrt__ring_staged(w->ring) >= MRT__FLUSH_STAGED))
		(void)mrt__ring_flush(w->ring); /* what is not taken stays staged for the next turn */
	return mrt__op_public(op);
}

void mrt__worker_resubmit(struct mrt__worker *w)
{
	struct mrt__op *op;

	while ((op = w->queued_head) != NULL) {
		struct mrt__op *next = op->done_next;

		if (!try_stage(w, op))
			return;
		op->rflags &= (uint8_t)~MRT__OPR_QUEUED;
		w->queued_head = next;
		if (!next)
			w->queued_tail = NULL;
		mrt__stat_set(&w->stats->queued, --w->queued_nr);
	}
}

/* Take an op out of the queue of unstaged ops; false: not there. */
static bool unqueue(struct mrt__worker *w, struct mrt__op *op)
{
	struct mrt__op **link, *prev = NULL;

	for (link = &w->queued_head; *link && *link != op; link = &(*link)->done_next)
		prev = *link;
	if (!*link)
		return false;
	*link = op->done_next;
	if (w->queued_tail == op)
		w->queued_tail = prev;
	op->rflags &= (uint8_t)~MRT__OPR_QUEUED;
	mrt__stat_set(&w->stats->queued, --w->queued_nr);
	return true;
}

/* Stage an op's next step, or queue it; it keeps its place in the task's list. */
static void restage(struct mrt__worker *w, struct mrt__op *op)
{
	mrt__stat_add(&w->stats->retries, 1);
	if (!try_stage(w, op))
		enqueue_unstaged(w, op);
}

/* An _all or _exact form moved `res` bytes: is there more to do? */
static bool advance_all(struct mrt__op *op, int32_t res)
{
	op->raw += res;
	if (res == 0 || (uint32_t)res >= op->io.len)
		return false;
	op->io.addr += (uint32_t)res;
	op->io.len -= (uint32_t)res;
	if (op->io.off != (uint64_t)-1 && (op->kind == MRT__OP_READ || op->kind == MRT__OP_WRITE))
		op->io.off += (uint32_t)res;
	return true;
}

/* Errors that are the runtime's to deal with, not the task's. @return true: tried again */
static bool retry_error(struct mrt__worker *w, struct mrt__op *op, int32_t res)
{
	if (op->rflags & MRT__OPR_RETRIED || !(op->flags & MRT__OPF_RETRY))
		return false;
	if (res != -EAGAIN && res != -EINTR)
		return false;
	/*
	 * A request that io-wq was told to stop ends with -EINTR, too. A cancel that this ring has seen set RETRIED, so
	 * it is not undone here; one that is still in the mailbox finds the second try. Positional file I/O only.
	 */
	op->rflags |= MRT__OPR_RETRIED;
	op->io.sqe_flags |= MRT__RING_SQE_ASYNC; /* io-wq may block where the first try said it would have to */
	restage(w, op);
	return true;
}

bool mrt__op_step(struct mrt__worker *w, struct mrt__op *op, int32_t res)
{
	int64_t raw = res;

	mrt__assert(op->state == MRT__OP_INFLIGHT && !(op->rflags & MRT__OPR_TERMINAL));
	w->inflight--;
	w->credits += !!(op->flags & MRT__OPF_CREDIT);
	mark_written(op, res);
	if (mrt__unlikely(res < 0)) {
		if (retry_error(w, op, res))
			return false;
		if (op->flags & MRT__OPF_ALL && op->raw > 0) {
			op->rflags |= MRT__OPR_PARTIAL;
			op->io.len = (uint32_t)-res;
			raw = op->raw;
		}
	} else if (mrt__unlikely(op->flags & MRT__OPF_ALL)) {
		bool more = advance_all(op, res);

		/* A cancel that found this step completed would not find the next: it is staged before it. */
		if (more && !(op->rflags & MRT__OPR_STOPPED)) {
			restage(w, op);
			return false;
		}
		if (more) {
			op->rflags |= MRT__OPR_PARTIAL;
			op->io.len = ECANCELED;
		}
		raw = op->raw;
	}
	op->rflags |= MRT__OPR_TERMINAL;
	return finish(w, op, raw);
}

/* ---- deliver ---- */

/* The kernel's codes for "stopped by a cancel", where a cancel was asked for. */
static int32_t map_error(const struct mrt__op *op, int64_t raw)
{
	/* nobody asked: io-wq gives up what it has no thread for, and can start none (RLIMIT_NPROC) */
	if (raw == -ECANCELED && op->flags & MRT__OPF_RING && !(op->hflags & MRT__OPH_CANCELLED))
		return -EAGAIN;
	/* io-wq says -EINTR; a first try that was not sent on to io-wq because of the cancel says -EAGAIN */
	bool stopped = raw == -ECANCELED || raw == -RESTARTSYS ||
		       (op->hflags & MRT__OPH_CANCELLED &&
			(raw == -EINTR || (raw == -EAGAIN && op->flags & MRT__OPF_RETRY)));

	if (!stopped)
		return (int32_t)raw;
	return op->hflags & MRT__OPH_TIMEDOUT ? -ETIMEDOUT : -ECANCELED;
}

/* Nobody will see this result: undo what it took. */
static void drop_result(struct mrt__op *op)
{
	if (op->raw < 0)
		return;
	if (op->flags & MRT__OPF_OPENS_FD)
		(void)close((int)op->raw); /* nobody is left to tell */
	else if (op->flags & MRT__OPF_WAIT && op->wait.cls->orphan)
		op->wait.cls->orphan(op);
}

static void release_inputs(struct mrt__op *op)
{
	if (op->flags & MRT__OPF_OWNS_MEM)
		free((void *)(uintptr_t)op->io.addr);
}

/* The op's deadline stands behind it in the list. @return false: it has fired, and must be popped first */
static bool settle_deadline(struct mrt__op *op)
{
	struct mrt__op *d = op->next;

	mrt__assert(d && d->kind == MRT__OP_DEADLINE);
	if (!mrt__worker_timer_cancel(op->task->sched, d)) {
		op->hflags |= MRT__OPH_HELD;
		return false;
	}
	unlink_op(d);
	set_done(d, -ECANCELED);
	op->hflags &= (uint8_t)~MRT__OPH_DEADLINE;
	return true;
}

/* Has the ring's owner consumed our cancel message? If not, it pushes the op again when it does. */
static bool settle_message(struct mrt__op *op)
{
	unsigned old = MRT__OP_MSG_SENT;

	/* [OP.msg.wait] pairs with [OP.msg.consume]: exactly one of us sees the other's store; relaxed on failure would
	 * do for the value, acquire because the owner's last accesses to the op must be over before it is delivered */
	return !atomic_compare_exchange_strong_explicit(&op->msg, &old, MRT__OP_MSG_WAITING, memory_order_acq_rel,
							memory_order_acquire);
}

/* The target of a deadline that has fired: end it, or deliver it if that is all that was missing. */
static void deadline_fired(struct mrt_task *t, struct mrt__op *d)
{
	struct mrt__op *target = mrt__op_of(((struct mrt_timer *)(void *)d)->mrt__target);

	target->hflags &= (uint8_t)~MRT__OPH_DEADLINE;
	if (target->hflags & MRT__OPH_HELD) {
		target->hflags &= (uint8_t)~MRT__OPH_HELD;
		mrt__op_deliver(t, target);
	} else {
		mrt__op_cancel(target, MRT__OPH_TIMEDOUT);
	}
}

/* With everything that may stand behind a result. */
static __attribute__((noinline)) void deliver_slow(struct mrt_task *t, struct mrt__op *op)
{
	if (op->hflags & MRT__OPH_MSG && !settle_message(op))
		return;
	op->hflags &= (uint8_t)~MRT__OPH_MSG;
	if (op->hflags & MRT__OPH_DEADLINE && !settle_deadline(op))
		return;
	if (t->flags & MRT__TASKF_RETURNED)
		drop_result(op);
	if (op->kind == MRT__OP_JOIN && !(op->rflags & MRT__OPR_UNDONE))
		mrt__task_unref(op->wait.object); /* the join has consumed the handle */
	release_inputs(op);
	unlink_op(op);
	if (op->hflags & MRT__OPH_AWAITED && t->await_nr > 0)
		t->await_nr--;
	op->hflags &= (uint8_t)~MRT__OPH_AWAITED;
	if (op->rflags & MRT__OPR_PARTIAL)
		op->why = map_error(op, -(int64_t)op->io.len);
	if (op->raw == -EINVAL && op->flags & MRT__OPF_RING)
		mrt__file_explain_einval(op);
	if (op->kind == MRT__OP_DEADLINE) {
		set_done(op, op->raw);
		deadline_fired(t, op);
		return;
	}
	/* what an object or a task gave is a value, whatever it looks like; the kernel's codes are translated */
	if (op->raw < 0 && (op->flags & MRT__OPF_RING || op->rflags & MRT__OPR_UNDONE))
		op->raw = map_error(op, op->raw);
	if (op->kind == MRT__OP_JOIN && op->rflags & MRT__OPR_UNDONE)
		op->why = (int32_t)op->raw;
	set_done(op, op->raw);
}

/* Most results have nothing behind them, and are delivered in a few stores. */
static inline void deliver(struct mrt_task *t, struct mrt__op *op)
{
	mrt__assert(op->state == MRT__OP_INFLIGHT && op->task == t);
	if (mrt__unlikely(op->raw < 0 || t->flags & MRT__TASKF_RETURNED || op->flags & MRT__OPF_OWNS_MEM ||
			  op->rflags & MRT__OPR_PARTIAL || op->hflags & (MRT__OPH_MSG | MRT__OPH_DEADLINE) ||
			  op->kind == MRT__OP_DEADLINE || op->kind == MRT__OP_JOIN)) {
		deliver_slow(t, op);
		return;
	}
	unlink_op(op);
	if (op->hflags & MRT__OPH_AWAITED && t->await_nr > 0)
		t->await_nr--;
	op->hflags &= (uint8_t)~MRT__OPH_AWAITED;
	set_done(op, op->raw);
}

void mrt__op_deliver(struct mrt_task *t, struct mrt__op *op)
{
	deliver(t, op);
}

/* ---- cancel ---- */

static void cancel_ring_op(struct mrt__worker *w, struct mrt__op *op)
{
	struct mrt__worker *owner = w->sched->workers[op->ring];

	if (mrt__likely(owner == w)) {
		mrt__op_cancel_on_owner(w, op);
		return;
	}
	op->hflags |= MRT__OPH_MSG;
	/* relaxed: the mailbox push publishes it */
	atomic_store_explicit(&op->msg, MRT__OP_MSG_SENT, memory_order_relaxed);
	mrt__mailbox_push(owner, op);
}

void mrt__op_cancel_on_owner(struct mrt__worker *w, struct mrt__op *op)
{
	if (op->rflags & MRT__OPR_TERMINAL)
		return;
	if (op->rflags & MRT__OPR_QUEUED) {
		bool found = unqueue(w, op);

		mrt__assert(found);
		op->rflags |= MRT__OPR_TERMINAL;
		if (op->flags & MRT__OPF_ALL && op->raw > 0) {
			op->rflags |= MRT__OPR_PARTIAL;
			op->io.len = ECANCELED;
			mrt__op_finish(op, op->raw);
		} else {
			mrt__op_finish(op, -ECANCELED);
		}
		return;
	}
	/* positional file I/O may be tried again after -EINTR: not after a cancel that we know of */
	op->rflags |= MRT__OPR_RETRIED | MRT__OPR_STOPPED;
	mrt__stat_add(&w->stats->cancels, 1);
	mrt__ring_cancel(w->ring, op);
}

/* Nobody else completes it: as if somebody else had: the task is held, so it goes through the done
 * stack, and whoever walks the list is not surprised. */
static void finish_undone(struct mrt__op *op)
{
	op->rflags |= MRT__OPR_UNDONE;
	mrt__op_finish(op, -ECANCELED);
}

void mrt__op_cancel(struct mrt__op *op, unsigned reason_flag)
{
	struct mrt__worker *w = mrt__worker_self;

	if (op->state != MRT__OP_INFLIGHT || op->hflags & (MRT__OPH_CANCELLED | MRT__OPH_HELD))
		return;
	if (op->kind == MRT__OP_CLOSE)
		return; /* it ends by itself, and a descriptor that is not closed is lost */
	op->hflags |= (uint8_t)(MRT__OPH_CANCELLED | reason_flag);
	if (op->flags & MRT__OPF_RING) {
		cancel_ring_op(w, op);
	} else if (op->flags & MRT__OPF_WAIT) {
		if (op->wait.cls->cancel(op))
			finish_undone(op);
	} else if (op->kind == MRT__OP_SLEEP) {
		if (mrt__worker_timer_cancel(w->sched, op))
			finish_undone(op);
	}
	/* a deadline ends with its op */
}

/* ---- the public half ---- */

bool mrt_op_is_done(const struct mrt_op *pub)
{
	const struct mrt__op *op = (const struct mrt__op *)(const void *)pub;

	return op->state == MRT__OP_DONE;
}

void mrt_cancel(struct mrt_op *pub)
{
	struct mrt__op *op = mrt__op_of(pub);

	if (op->state != MRT__OP_INFLIGHT)
		return;
	if (mrt__unlikely(op->task != mrt_task_self()))
		mrt__bug("mrt_cancel: op %p (%s) belongs to another task", (void *)op, mrt__op_kind_name(op->kind));
	mrt__op_cancel(op, 0);
}

struct mrt_op *mrt_nop(struct mrt_op *pub)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w = mrt__op_begin(op, MRT__OP_NOP, MRT__OPF_CREDIT);

	if (!w)
		return pub;
	op->raw = 0;
	op->io = (struct mrt__ring_args){ .opcode = MRT__OPCODE_NOP, .fd = -1 };
	return mrt__op_submit(w, op);
}

void mrt_flush(void)
{
	struct mrt__worker *w = mrt__worker_self;

	if (w && w->task)
		mrt__worker_flush(w);
}
