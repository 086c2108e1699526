/* SPDX-License-Identifier: MIT */
/*
 * A bounded channel: a ring of fixed-size messages, a queue of waiting receivers and one of waiting senders.
 *
 * Invariants, whenever the lock is free:
 *   receivers wait only if the ring is empty, senders only if it is full; so never both (capacity >= 1);
 *   nobody waits once the channel is closed.
 *
 * Messages are handed over directly: a send with a receiver waiting copies into that receiver's buffer, and a receive
 * that frees a slot fills it with the oldest waiting sender's message, so order is that of arrival and nobody who
 * comes later overtakes. A woken task has its message; it does not compete for it. Copying into a waiting op's
 * buffer is safe under the lock, because its cancel() needs the lock too.
 *
 * The lock is held while one message, at most two, are copied. Big messages should travel by pointer.
 *
 * A receive that got a message after its task had returned puts it back in front of all others, or passes it to the
 * oldest waiting receiver. If the ring has filled up meanwhile there is no place for it: then the message is dropped,
 * as Tokio drops one whose receiver is gone.
 *
 * The message pointer of a waiting op is in raw; wait.next of a completed receive has it for orphan() (waitq.h, 4).
 */
#include <martlet/sync.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sync/waitq.h"

#define MRT__CHANNEL_CAPACITY_MAX ((size_t)1 << 30)
#define MRT__CHANNEL_MSG_BYTES_MAX ((size_t)1 << 20)
_Static_assert(MRT__CHANNEL_CAPACITY_MAX < SIZE_MAX / MRT__CHANNEL_MSG_BYTES_MAX / 2, "the ring's size does not wrap");

struct mrt_channel {
	struct mrt__lock lock;          /* guards all below; the queues' own locks are not used */
	bool closed;
	size_t capacity;                /* constant */
	size_t msg_bytes;               /* constant */
	size_t head;                    /* slot of the oldest message */
	size_t nr;                      /* messages in the ring */
	struct mrt__waitq senders;
	struct mrt__waitq receivers;
	unsigned char ring[];           /* [capacity] of msg_bytes; no alignment: copied in and out */
};

/* The slot `offset` after the oldest; offset <= capacity. */
static unsigned char *channel_slot(struct mrt_channel *ch, size_t offset)
{
	size_t slot = ch->head + offset;

	return ch->ring + (slot < ch->capacity ? slot : slot - ch->capacity) * ch->msg_bytes;
}

static void channel_copy(const struct mrt_channel *ch, void *to, const void *from)
{
	if (ch->msg_bytes)      /* without bytes the pointers may be NULL */
		memcpy(to, from, ch->msg_bytes);
}

static void *channel_msg(const struct mrt__op *op)
{
	return (void *)(uintptr_t)op->raw;
}

static void channel_wait(struct mrt__waitq *q, struct mrt__op *op, const void *msg)
{
	op->raw = (int64_t)(uintptr_t)msg;
	mrt__waitq_push(q, op);
}

static void channel_append(struct mrt_channel *ch, const void *msg)
{
	mrt__assert(ch->nr < ch->capacity);
	channel_copy(ch, channel_slot(ch, ch->nr), msg);
	ch->nr++;
}

/* Give a message to the oldest waiting receiver, if there is one. @thread under the lock @return it, to be finished */
static struct mrt__op *channel_hand_over(struct mrt_channel *ch, const void *msg)
{
	struct mrt__op *op = mrt__waitq_pop(&ch->receivers);

	if (op) {
		mrt__assert(ch->nr == 0);
		channel_copy(ch, channel_msg(op), msg);
		op->wait.next = channel_msg(op);
	}
	return op;
}

/*
 * @thread under the lock
 * @param ret_woken  on success: the receiver that got it, to be finished after unlocking; NULL: it is in the ring
 * @return 0, -EAGAIN full, -EPIPE closed
 */
static int channel_put(struct mrt_channel *ch, const void *msg, struct mrt__op **ret_woken)
{
	if (ch->closed)
		return -EPIPE;
	if (ch->nr == ch->capacity)
		return -EAGAIN;
	*ret_woken = channel_hand_over(ch, msg);
	if (!*ret_woken)
		channel_append(ch, msg);
	return 0;
}

/*
 * @thread under the lock
 * @param ret_woken  on success: the sender whose message took the free slot, to be finished after unlocking, or NULL
 * @return 0, -EAGAIN empty, -EPIPE closed and empty
 */
static int channel_get(struct mrt_channel *ch, void *ret_msg, struct mrt__op **ret_woken)
{
	if (ch->nr == 0)
		return ch->closed ? -EPIPE : -EAGAIN;
	channel_copy(ch, ret_msg, channel_slot(ch, 0));
	ch->head = ch->head + 1 < ch->capacity ? ch->head + 1 : 0;
	ch->nr--;
	*ret_woken = mrt__waitq_pop(&ch->senders);
	if (*ret_woken)
		channel_append(ch, channel_msg(*ret_woken));
	return 0;
}

/* Unlocks. The object may be gone after the finish: a woken task may have been the last to need it. */
static void channel_unlock_and_wake(struct mrt_channel *ch, struct mrt__op *woken)
{
	mrt__unlock(&ch->lock);
	if (woken)
		mrt__op_finish(woken, 0);
}

static bool channel_cancel(struct mrt_channel *ch, struct mrt__waitq *q, struct mrt__op *op)
{
	bool linked;

	mrt__lock(&ch->lock);
	linked = !ch->closed && op->wait.pprev != NULL;
	if (linked)
		mrt__waitq_remove(q, op);
	mrt__unlock(&ch->lock);
	return linked;
}

static bool channel_send_cancel(struct mrt__op *op)
{
	struct mrt_channel *ch = op->wait.object;

	return channel_cancel(ch, &ch->senders, op);
}

static bool channel_recv_cancel(struct mrt__op *op)
{
	struct mrt_channel *ch = op->wait.object;

	return channel_cancel(ch, &ch->receivers, op);
}

static void channel_recv_orphan(struct mrt__op *op)
{
	struct mrt_channel *ch = op->wait.object;
	const void *msg = op->wait.next;
	struct mrt__op *woken;

	mrt__lock(&ch->lock);
	woken = channel_hand_over(ch, msg);
	if (!woken && ch->nr < ch->capacity) {
		ch->head = ch->head ? ch->head - 1 : ch->capacity - 1;
		channel_copy(ch, channel_slot(ch, 0), msg);
		ch->nr++;
	}
	channel_unlock_and_wake(ch, woken);
}

static const struct mrt__wait_class channel_send_class = {
	.cancel = channel_send_cancel,
	/* no orphan: a message that was sent is sent */
};

static const struct mrt__wait_class channel_recv_class = {
	.cancel = channel_recv_cancel,
	.orphan = channel_recv_orphan,
};

int mrt_channel_create(size_t capacity, size_t msg_bytes, struct mrt_channel **ret_channel)
{
	struct mrt_channel *ch;

	if (capacity == 0 || capacity > MRT__CHANNEL_CAPACITY_MAX || msg_bytes > MRT__CHANNEL_MSG_BYTES_MAX)
		return -EINVAL;
	ch = malloc(sizeof(*ch) + capacity * msg_bytes);
	if (!ch)
		return -ENOMEM;
	memset(ch, 0, sizeof(*ch));
	ch->capacity = capacity;
	ch->msg_bytes = msg_bytes;
	*ret_channel = ch;
	return 0;
}

void mrt_channel_destroy(struct mrt_channel *ch)
{
	struct mrt__op *waiting;

	if (!ch)
		return;
	/* the lock: a completer on another thread may still be about to release it */
	mrt__lock(&ch->lock);
	waiting = ch->senders.head ? ch->senders.head : ch->receivers.head;
	mrt__unlock(&ch->lock);
	if (waiting)
		mrt__bug("mrt_channel_destroy: a %s is waiting in the channel", mrt__op_kind_name(waiting->kind));
	free(ch);
}

struct mrt_op *mrt_channel_send(struct mrt_op *op, struct mrt_channel *ch, const void *msg)
{
	struct mrt__op *p = mrt__op_of(op), *woken = NULL;
	int err;

	if (!mrt__op_begin_fast(p, MRT__OP_CHANNEL_SEND, MRT__OPF_WAIT))
		return op;
	mrt__waitq_enter(p, &channel_send_class, ch);
	mrt__lock(&ch->lock);
	err = channel_put(ch, msg, &woken);
	if (err == -EAGAIN)
		channel_wait(&ch->senders, p, msg);
	channel_unlock_and_wake(ch, woken);
	if (err != -EAGAIN)
		mrt__op_end_inline(p, err);
	return op;
}

struct mrt_op *mrt_channel_recv(struct mrt_op *op, struct mrt_channel *ch, void *ret_msg)
{
	struct mrt__op *p = mrt__op_of(op), *woken = NULL;
	int err;

	if (!mrt__op_begin_fast(p, MRT__OP_CHANNEL_RECV, MRT__OPF_WAIT))
		return op;
	mrt__waitq_enter(p, &channel_recv_class, ch);
	mrt__lock(&ch->lock);
	err = channel_get(ch, ret_msg, &woken);
	if (err == -EAGAIN)
		channel_wait(&ch->receivers, p, ret_msg);
	channel_unlock_and_wake(ch, woken);
	if (err != -EAGAIN)
		mrt__op_end_inline(p, err);
	return op;
}

int mrt_channel_try_send(struct mrt_channel *ch, const void *msg)
{
	struct mrt__op *woken = NULL;
	int err;

	mrt__lock(&ch->lock);
	err = channel_put(ch, msg, &woken);
	channel_unlock_and_wake(ch, woken);
	return err;
}

int mrt_channel_try_recv(struct mrt_channel *ch, void *ret_msg)
{
	struct mrt__op *woken = NULL;
	int err;

	mrt__lock(&ch->lock);
	err = channel_get(ch, ret_msg, &woken);
	channel_unlock_and_wake(ch, woken);
	return err;
}

void mrt_channel_close(struct mrt_channel *ch)
{
	struct mrt__op *senders, *receivers;

	mrt__lock(&ch->lock);
	ch->closed = true;
	senders = mrt__waitq_take(&ch->senders);
	receivers = mrt__waitq_take(&ch->receivers);
	mrt__unlock(&ch->lock);
	mrt__waitq_finish(senders, -EPIPE);
	mrt__waitq_finish(receivers, -EPIPE);
}

size_t mrt_channel_nr(struct mrt_channel *ch)
{
	size_t nr;

	mrt__lock(&ch->lock);
	nr = ch->nr;
	mrt__unlock(&ch->lock);
	return nr;
}
