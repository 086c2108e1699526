/* SPDX-License-Identifier: MIT */
/*
 * A value that is given once and stays.
 *
 * Two bits say it all: SENT (value valid) or CLOSED; neither is ever taken back, so after either is set nobody queues
 * any more, and the one who set it owns every op that was queued. That is how cancel() knows that an op is no longer
 * in the queue. And it is why a receive may look without the lock: what it finds set is final. It must see the lock free
 * after that, since its task may free the object next: a lock that is seen free after the bits is one that the sender has left,
 * as he set them while he held it.
 *
 * The usual place of a oneshot is the frame of the task that receives from it. That task may free the frame as soon
 * as its op is finished, so send() and close() touch the object before they unlock and never after (waitq.h, rule 2).
 */
#include <martlet/sync.h>

#include <errno.h>
#include <string.h>

#include "sync/waitq.h"

#define MRT__ONESHOT_SENT 1u
#define MRT__ONESHOT_CLOSED 2u

struct __attribute__((may_alias)) mrt__oneshot {
	struct mrt__waitq waiters;
	int64_t value;                  /* written once, under the lock, with SENT */
	uint64_t reserved;
};
_Static_assert(sizeof(struct mrt__oneshot) == sizeof(struct mrt_oneshot), "overlays the public struct");

static struct mrt__oneshot *oneshot_of(struct mrt_oneshot *o)
{
	return (struct mrt__oneshot *)(void *)o;
}

/* Not 0: settled, and the value valid. @thread any */
static uint8_t settled_by(const struct mrt__oneshot *o)
{
	/* [ONESHOT.flags.obs] the value, what was done before it was given, and that the lock was taken for it; pairs with
	 * [ONESHOT.flags.pub] */
	return __atomic_load_n(&o->waiters.flags, __ATOMIC_ACQUIRE);
}

static bool oneshot_cancel(struct mrt__op *op)
{
	struct mrt__oneshot *o = op->wait.object;
	bool linked;

	mrt__lock(&o->waiters.lock);
	linked = settled_by(o) == 0;
	if (linked)
		mrt__waitq_remove(&o->waiters, op);
	mrt__unlock(&o->waiters.lock);
	return linked;
}

static const struct mrt__wait_class oneshot_class = {
	.cancel = oneshot_cancel,
	/* no orphan: the value stays for others */
};

static int oneshot_settle(struct mrt__oneshot *o, uint8_t flag, int64_t value)
{
	struct mrt__op *list;

	mrt__lock(&o->waiters.lock);
	if (settled_by(o) != 0) {
		mrt__unlock(&o->waiters.lock);
		return -EALREADY;
	}
	o->value = value;
	/* [ONESHOT.flags.pub] publishes the value to a receive that takes no lock; pairs with [ONESHOT.flags.obs] */
	__atomic_store_n(&o->waiters.flags, flag, __ATOMIC_RELEASE);
	list = mrt__waitq_take(&o->waiters);
	mrt__unlock(&o->waiters.lock);
	mrt__waitq_finish(list, value);
	return 0;
}

void mrt_oneshot_init(struct mrt_oneshot *o)
{
	memset(o, 0, sizeof(*o));
}

int mrt_oneshot_send(struct mrt_oneshot *o, int64_t value)
{
	return oneshot_settle(oneshot_of(o), MRT__ONESHOT_SENT, value);
}

int mrt_oneshot_close(struct mrt_oneshot *o)
{
	return oneshot_settle(oneshot_of(o), MRT__ONESHOT_CLOSED, -EPIPE);
}

struct mrt_op *mrt_oneshot_recv(struct mrt_op *op, struct mrt_oneshot *public)
{
	struct mrt__oneshot *o = oneshot_of(public);
	struct mrt__op *p = mrt__op_of(op);
	struct mrt__worker *w = mrt__op_check(p, MRT__OP_ONESHOT, MRT__OPF_WAIT);
	bool settled;

	if (mrt__unlikely(!w))
		return op;
	if (settled_by(o) != 0 && mrt__lock_is_free(&o->waiters.lock)) {
		mrt__op_done_at_once(p, MRT__OP_ONESHOT, o->value, 0);
		return op;
	}
	mrt__op_enter(w, p, MRT__OP_ONESHOT, MRT__OPF_WAIT);
	mrt__waitq_enter(p, &oneshot_class, o);
	mrt__lock(&o->waiters.lock);
	settled = settled_by(o) != 0;
	if (!settled)
		mrt__waitq_push(&o->waiters, p);
	mrt__unlock(&o->waiters.lock);
	if (settled)
		mrt__op_end_inline(p, o->value);
	return op;
}
