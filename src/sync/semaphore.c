/* SPDX-License-Identifier: MIT */
/*
 * A counting semaphore, first come, first served.
 *
 * Permits stay in the counter until the oldest wait can be satisfied as a whole; nobody overtakes it, so a big request
 * is not starved by small ones, and a wait holds nothing until it completes: a cancelled one has nothing to give back.
 * But its leaving may make way for those behind it, so cancel() grants as release() does.
 *
 * Invariant, whenever the lock is free: the queue is empty, or permits < what its head wants.
 *
 * A release holds the lock for as long as it takes to unlink those whom it satisfies. Doing that in batches was
 * rejected: between two batches the object would have to be locked again after a woken task may have freed it.
 *
 * The count that an op wants is in raw until it is granted, then in wait.next for orphan() (waitq.h, rule 4).
 */
#include <martlet/sync.h>

#include <errno.h>
#include <string.h>

#include "sync/waitq.h"

#define MRT__SEMAPHORE_CLOSED 1u

struct __attribute__((may_alias)) mrt__semaphore {
	struct mrt__waitq waiters;
	uint64_t permits;               /* free; 0..MRT_SEMAPHORE_PERMITS_MAX */
	uint64_t reserved;
};
_Static_assert(sizeof(struct mrt__semaphore) == sizeof(struct mrt_semaphore), "overlays the public struct");
_Static_assert(MRT_SEMAPHORE_PERMITS_MAX <= (uint64_t)INT64_MAX, "a count fits an op's raw");

static struct mrt__semaphore *semaphore_of(struct mrt_semaphore *s)
{
	return (struct mrt__semaphore *)(void *)s;
}

/* Unlink, oldest first, those whose turn it is. @thread under the lock @return list linked by next */
static struct mrt__op *semaphore_grant(struct mrt__semaphore *s)
{
	struct mrt__op *list = NULL, **end = &list, *op;

	while ((op = s->waiters.head) && (uint64_t)op->raw <= s->permits) {
		s->permits -= (uint64_t)op->raw;
		mrt__waitq_remove(&s->waiters, op);
		*end = op;
		end = &op->wait.next;
	}
	return list;
}

static void semaphore_finish(struct mrt__op *list)
{
	while (list) {
		struct mrt__op *op = list;

		list = op->wait.next;
		op->wait.next = (struct mrt__op *)(uintptr_t)op->raw;
		mrt__op_finish(op, 0);
	}
}

static bool semaphore_cancel(struct mrt__op *op)
{
	struct mrt__semaphore *s = op->wait.object;
	struct mrt__op *list = NULL;
	bool linked;

	mrt__lock(&s->waiters.lock);
	linked = !(s->waiters.flags & MRT__SEMAPHORE_CLOSED) && op->wait.pprev != NULL;
	if (linked) {
		mrt__waitq_remove(&s->waiters, op);
		list = semaphore_grant(s);
	}
	mrt__unlock(&s->waiters.lock);
	semaphore_finish(list);
	return linked;
}

static int semaphore_release(struct mrt__semaphore *s, uint64_t nr)
{
	struct mrt__op *list;

	mrt__lock(&s->waiters.lock);
	if (nr > MRT_SEMAPHORE_PERMITS_MAX - s->permits) {
		mrt__unlock(&s->waiters.lock);
		return -EINVAL;
	}
	s->permits += nr;
	list = semaphore_grant(s);
	mrt__unlock(&s->waiters.lock);
	semaphore_finish(list);
	return 0;
}

static void semaphore_orphan(struct mrt__op *op)
{
	/* refused only if the caller's releases alone have reached the maximum: then nobody misses them */
	(void)semaphore_release(op->wait.object, (uint64_t)(uintptr_t)op->wait.next);
}

static const struct mrt__wait_class semaphore_class = {
	.cancel = semaphore_cancel,
	.orphan = semaphore_orphan,
};

/* @thread under the lock @return 0 taken, -EAGAIN others are first or too few, -EPIPE closed */
static int semaphore_take(struct mrt__semaphore *s, uint64_t nr)
{
	if (s->waiters.flags & MRT__SEMAPHORE_CLOSED)
		return -EPIPE;
	if (s->waiters.head || nr > s->permits)
		return -EAGAIN;
	s->permits -= nr;
	return 0;
}

int mrt_semaphore_init(struct mrt_semaphore *s, uint64_t permits)
{
	if (permits > MRT_SEMAPHORE_PERMITS_MAX)
		return -EINVAL;
	memset(s, 0, sizeof(*s));
	semaphore_of(s)->permits = permits;
	return 0;
}

struct mrt_op *mrt_semaphore_acquire(struct mrt_op *op, struct mrt_semaphore *public, uint64_t nr)
{
	struct mrt__semaphore *s = semaphore_of(public);
	struct mrt__op *p = mrt__op_of(op);
	int err;

	if (nr == 0 || nr > MRT_SEMAPHORE_PERMITS_MAX)
		return mrt__op_refuse(op, MRT__OP_SEMAPHORE, -EINVAL);
	if (!mrt__op_begin_fast(p, MRT__OP_SEMAPHORE, MRT__OPF_WAIT))
		return op;
	mrt__waitq_enter(p, &semaphore_class, s);
	mrt__lock(&s->waiters.lock);
	err = semaphore_take(s, nr);
	if (err == -EAGAIN) {
		p->raw = (int64_t)nr;
		mrt__waitq_push(&s->waiters, p);
	}
	mrt__unlock(&s->waiters.lock);
	if (err != -EAGAIN)
		mrt__op_end_inline(p, err);
	return op;
}

int mrt_semaphore_try_acquire(struct mrt_semaphore *public, uint64_t nr)
{
	struct mrt__semaphore *s = semaphore_of(public);
	int err;

	if (nr == 0 || nr > MRT_SEMAPHORE_PERMITS_MAX)
		return -EINVAL;
	mrt__lock(&s->waiters.lock);
	err = semaphore_take(s, nr);
	mrt__unlock(&s->waiters.lock);
	return err;
}

int mrt_semaphore_release(struct mrt_semaphore *s, uint64_t nr)
{
	return semaphore_release(semaphore_of(s), nr);
}

void mrt_semaphore_close(struct mrt_semaphore *public)
{
	struct mrt__semaphore *s = semaphore_of(public);
	struct mrt__op *list;

	mrt__lock(&s->waiters.lock);
	s->waiters.flags |= MRT__SEMAPHORE_CLOSED;
	list = mrt__waitq_take(&s->waiters);
	mrt__unlock(&s->waiters.lock);
	mrt__waitq_finish(list, -EPIPE);
}

uint64_t mrt_semaphore_permits(struct mrt_semaphore *public)
{
	struct mrt__semaphore *s = semaphore_of(public);
	uint64_t permits;

	mrt__lock(&s->waiters.lock);
	permits = s->permits;
	mrt__unlock(&s->waiters.lock);
	return permits;
}
