/* SPDX-License-Identifier: MIT */
/*
 * The queue of ops that wait in an object (notify, semaphore, ...), oldest first, and the object's lock.
 *
 * It overlays the opaque struct mrt__wait_queue of <martlet/sync.h>. All zero is an empty queue, and an empty queue
 * points nowhere, so an object that nobody waits in may be copied (a frame is, at spawn).
 *
 * Rules that all users follow:
 *
 * 1. head, tail, flags and the links of queued ops are touched under the lock only.
 * 2. A completer unlinks under the lock, unlocks, then finishes. Its unlock is its last access to the object: the
 *    task that it wakes may free it. On the private list that it finishes, `next` is read before mrt__op_finish(),
 *    because the op is its task's afterwards.
 * 3. Where a call completes every waiter (close, a oneshot's value, notify_all), it takes the whole queue in one step
 *    and walks it after unlocking, so the lock is held for O(1). The links of those ops are then the completer's;
 *    cancel() must recognise such ops by the object's state (closed, sent, a later epoch), not by their links.
 * 4. An op that left the queue alone has pprev NULL: its completer has it. `next` of such an op is free and carries
 *    what orphan() needs, since raw then is the result.
 *
 * Progress: blocking, by the lock.
 */
#ifndef MRT_SYNC_WAITQ_H
#define MRT_SYNC_WAITQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/sync.h>

#include "base/assert.h"
#include "base/lock.h"
#include "sched/op_begin.h"

struct __attribute__((may_alias)) mrt__waitq {
	struct mrt__op *head;           /* oldest; NULL: empty */
	struct mrt__op **tail;          /* the newest op's next; NULL: empty */
	struct mrt__lock lock;
	uint8_t flags;                  /* the object's */
	uint8_t pad[6];
};
_Static_assert(sizeof(struct mrt__waitq) == sizeof(struct mrt__wait_queue), "overlays the public struct");
_Static_assert(sizeof(void *) == sizeof(uint64_t), "counts and pointers share fields of an op");

/* Link an op, not linked, at the end. @thread under the lock */
static inline void mrt__waitq_push(struct mrt__waitq *q, struct mrt__op *op)
{
	struct mrt__op **end = q->tail ? q->tail : &q->head;

	mrt__assert(*end == NULL);
	op->wait.next = NULL;
	op->wait.pprev = end;
	*end = op;
	q->tail = &op->wait.next;
}

/* Unlink a queued op. @thread under the lock */
static inline void mrt__waitq_remove(struct mrt__waitq *q, struct mrt__op *op)
{
	struct mrt__op **pprev = op->wait.pprev, *next = op->wait.next;

	mrt__assert(*pprev == op);
	*pprev = next;
	if (next)
		next->wait.pprev = pprev;
	else
		q->tail = pprev == &q->head ? NULL : pprev;
	op->wait.next = NULL;
	op->wait.pprev = NULL;
}

/* Unlink the oldest op. @thread under the lock @return NULL: nobody waits */
static inline struct mrt__op *mrt__waitq_pop(struct mrt__waitq *q)
{
	struct mrt__op *op = q->head;

	if (op)
		mrt__waitq_remove(q, op);
	return op;
}

/* Take all, oldest first, linked by next; their pprev stay as they are (rule 3). @thread under the lock */
static inline struct mrt__op *mrt__waitq_take(struct mrt__waitq *q)
{
	struct mrt__op *list = q->head;

	q->head = NULL;
	q->tail = NULL;
	return list;
}

/* Finish a private list, linked by next, with one result. @thread any, without the lock */
static inline void mrt__waitq_finish(struct mrt__op *list, int64_t res)
{
	while (list) {
		struct mrt__op *op = list;

		list = op->wait.next;
		op->wait.next = NULL;
		mrt__op_finish(op, res);
	}
}

/* Say where a begun op is going to wait. @thread the holder, before anybody else sees the op */
static inline void mrt__waitq_enter(struct mrt__op *op, const struct mrt__wait_class *cls, void *object)
{
	op->wait.cls = cls;
	op->wait.object = object;
	op->wait.next = NULL;
	op->wait.pprev = NULL;
}

#endif
