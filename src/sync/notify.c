/* SPDX-License-Identifier: MIT */
/*
 * An event without a value: tokio's Notify. One permit is stored at most, and only while nobody waits.
 *
 * notify_all completes exactly the waits that stand in the queue when it takes the lock, however many they are and
 * whatever queues while it wakes them. It therefore takes the queue as a whole and advances `epoch`. A wait remembers
 * the epoch that it queued in: if the object's is later, a notify_all has the op. Marking each op under the lock
 * would do as well, but a thousand waiters would hold the lock for a thousand cache misses.
 *
 * A wait that was notified by notify_one after its task had returned passes the notification on (orphan); one that
 * notify_all woke does not, since that stores nothing.
 */
#include <martlet/sync.h>

#include <string.h>

#include "sync/waitq.h"

#define MRT__NOTIFY_PERMIT 1u

struct __attribute__((may_alias)) mrt__notify {
	struct mrt__waitq waiters;
	uint64_t epoch;                 /* calls of notify_all that found waiters; 64 bit, does not wrap */
};
_Static_assert(sizeof(struct mrt__notify) == sizeof(struct mrt_notify), "overlays the public struct");

static struct mrt__notify *notify_of(struct mrt_notify *n)
{
	return (struct mrt__notify *)(void *)n;
}

/*
 * The epoch in which an op queued. It is kept in `res`, which is the holder's until delivery and which no completer
 * writes; `raw` would be a race, because notify_all's finish writes it outside the lock.
 */
static bool notify_is_linked(const struct mrt__notify *n, const struct mrt__op *op)
{
	return op->res == (int64_t)n->epoch && op->wait.pprev != NULL;
}

static bool notify_cancel(struct mrt__op *op)
{
	struct mrt__notify *n = op->wait.object;
	bool linked;

	mrt__lock(&n->waiters.lock);
	linked = notify_is_linked(n, op);
	if (linked)
		mrt__waitq_remove(&n->waiters, op);
	mrt__unlock(&n->waiters.lock);
	return linked;
}

static void notify_one(struct mrt__notify *n)
{
	struct mrt__op *op;

	mrt__lock(&n->waiters.lock);
	op = mrt__waitq_pop(&n->waiters);
	if (!op)
		n->waiters.flags |= MRT__NOTIFY_PERMIT;
	mrt__unlock(&n->waiters.lock);
	if (!op)
		return;
	op->wait.next = op;     /* for orphan(): woken by notify_one */
	mrt__op_finish(op, 0);
}

static void notify_orphan(struct mrt__op *op)
{
	if (op->wait.next == op)
		notify_one(op->wait.object);
}

static const struct mrt__wait_class notify_class = {
	.cancel = notify_cancel,
	.orphan = notify_orphan,
};

void mrt_notify_init(struct mrt_notify *n)
{
	memset(n, 0, sizeof(*n));
}

void mrt_notify_one(struct mrt_notify *n)
{
	notify_one(notify_of(n));
}

void mrt_notify_all(struct mrt_notify *public)
{
	struct mrt__notify *n = notify_of(public);
	struct mrt__op *list;

	mrt__lock(&n->waiters.lock);
	list = mrt__waitq_take(&n->waiters);
	n->epoch += list != NULL;
	mrt__unlock(&n->waiters.lock);
	mrt__waitq_finish(list, 0);
}

struct mrt_op *mrt_notify_wait(struct mrt_op *op, struct mrt_notify *public)
{
	struct mrt__notify *n = notify_of(public);
	struct mrt__op *p = mrt__op_of(op);
	bool permit;

	if (!mrt__op_begin_fast(p, MRT__OP_NOTIFY, MRT__OPF_WAIT))
		return op;
	mrt__waitq_enter(p, &notify_class, n);
	mrt__lock(&n->waiters.lock);
	permit = n->waiters.flags & MRT__NOTIFY_PERMIT;
	if (permit) {
		n->waiters.flags = 0;
	} else {
		p->res = (int64_t)n->epoch;
		mrt__waitq_push(&n->waiters, p);
	}
	mrt__unlock(&n->waiters.lock);
	if (permit)
		mrt__op_end_inline(p, 0);
	return op;
}
