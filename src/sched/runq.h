/* SPDX-License-Identifier: MIT */
/*
 * The local queue of a worker and its next slot. A task is an opaque pointer here: the queue neither counts nor
 * frees it; whoever holds the pointer that a function returned holds the task.
 *
 * Who must exclude whom (X: the caller excludes, -: safe together). "owner" is the worker that the queue belongs
 * to, "thief" any other worker, "any" a thread that only looks:
 *
 *                        owner side   steal(victim)   next_take   len, has_*
 *    push, pop, room         X              -              -           -
 *    next_swap               X              -              -           -
 *    steal(.., dst)          X              - (refuses)    -           -
 *
 *    try_push, pop, push     wait-free but for a compare-exchange that a thief's claim can make fail once per
 *                            steal; one caller, the owner
 *    push (overflow)         lock-free, the owner
 *    steal                   lock-free, any number of thieves; all but one at the same victim are refused
 *    next_swap               wait-free, the owner
 *    next_take               wait-free, any number of callers
 *    len, has_work, has_next wait-free, any thread; exact for the owner, an estimate for others
 */
#ifndef MRT_SCHED_RUNQ_H
#define MRT_SCHED_RUNQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/compiler.h"

struct mrt_task;

/* The model checker builds with 4, as small as every path through the code allows. */
#ifndef MRT__RUNQ_SLOTS
#define MRT__RUNQ_SLOTS 256u
#endif

#define MRT__RUNQ_MASK (MRT__RUNQ_SLOTS - 1u)

/* What an overflow moves out: the newer half and the task that did not fit. */
#define MRT__RUNQ_BATCH_MAX (MRT__RUNQ_SLOTS / 2u + 1u)

_Static_assert((MRT__RUNQ_SLOTS & MRT__RUNQ_MASK) == 0, "indices are masked");
_Static_assert(MRT__RUNQ_SLOTS >= 4 && MRT__RUNQ_SLOTS <= 1u << 15, "half must be a steal; far below index wrap");

/* A plain slot access. The model checker makes it a point where another thread may run, as atomics are. */
#ifndef MRT__RUNQ_SLOT_POINT
#define MRT__RUNQ_SLOT_POINT() ((void)0)
#endif

struct mrt__runq {
	/*
	 * Two free-running u32 indices: `steal` in the high half, `real` in the low half; steal <= real <= tail,
	 * compared by unsigned difference. steal == real: nobody steals. steal != real: one thief owns the slots
	 * [steal, real) until it moves steal up to real. Written by the owner (pop, overflow) and by thieves, by
	 * compare-exchange only. No ABA: a thief would have to sleep between load and exchange while exactly
	 * 2^32 tasks pass (16-bit indices wrapped in seconds and were a bug elsewhere).
	 */
	mrt__cache_aligned _Atomic uint64_t head;

	/* Free running; the owner alone writes it, and publishes the slots below it by that. */
	mrt__cache_aligned _Atomic uint32_t tail;
	/* Set at init: no thief exists, so no read-modify-write is needed anywhere. */
	bool solo;
	/*
	 * The task to run before the queue's. Only the owner stores a task, anyone may take it (exchange NULL): so
	 * the owner that sees NULL knows that it stays NULL.
	 */
	_Atomic(struct mrt_task *) next;

	/*
	 * Plain: slot i is the owner's outside [steal, tail), a thief's in its claim, and whoever moves head over
	 * it gets the task. Order comes from head and tail, and ThreadSanitizer can check that it does.
	 */
	mrt__cache_aligned struct mrt_task *slot[MRT__RUNQ_SLOTS];
};

enum mrt__runq_push {
	MRT__RUNQ_PUSHED,       /* it is in the queue                                              */
	MRT__RUNQ_PUSH_ONE_OUT, /* full and a thief at work: the batch is the task alone           */
	MRT__RUNQ_PUSH_OVERFLOW,/* full: the batch is the newer half of the queue, then the task   */
};

static inline uint64_t mrt__runq_pack(uint32_t steal, uint32_t real)
{
	return (uint64_t)steal << 32 | real;
}

static inline uint32_t mrt__runq_head_steal(uint64_t head)
{
	return (uint32_t)(head >> 32);
}

static inline uint32_t mrt__runq_head_real(uint64_t head)
{
	return (uint32_t)head;
}

/* The two ways to touch a slot; the caller owns index idx at that moment. */
static inline struct mrt_task *mrt__runq_slot_get(const struct mrt__runq *q, uint32_t idx)
{
	MRT__RUNQ_SLOT_POINT();
	return q->slot[idx & MRT__RUNQ_MASK];
}

static inline void mrt__runq_slot_set(struct mrt__runq *q, uint32_t idx, struct mrt_task *task)
{
	MRT__RUNQ_SLOT_POINT();
	q->slot[idx & MRT__RUNQ_MASK] = task;
}

/* The owner's view of its own index. */
static inline uint32_t mrt__runq_own_tail(const struct mrt__runq *q)
{
	/* relaxed: only this thread writes tail */
	return atomic_load_explicit(&q->tail, memory_order_relaxed);
}

/**
 * Make an empty queue.
 *
 * @thread  whoever makes the worker, before any other thread sees the queue
 *
 * @param start  first index; any value (tests start near 2^32)
 * @param solo   current-thread flavour: nobody will ever steal from it or into it
 */
void mrt__runq_init(struct mrt__runq *q, uint32_t start, bool solo);

/**
 * The slow half of mrt__runq_push(): parameters and result as there.
 *
 * @thread  owner
 */
enum mrt__runq_push mrt__runq_push_slow(struct mrt__runq *q, struct mrt_task *task, struct mrt_task **ret_batch,
					unsigned *ret_batch_nr);

/**
 * Move half of the victim's queue, rounded up, behind dst's tail, and return the last of it to run at once.
 *
 * The next slot is not touched: see mrt__runq_next_take().
 *
 * @thread    dst's owner; the victim's owner runs meanwhile. dst's head is never written
 * @blocks    never
 * @progress  lock-free; NULL while another thief is at the same victim, or when dst is more than half full
 * @order     what was written before the victim's push is visible to the caller
 * @source    Tokio multi_thread/queue.rs steal_into2 (numbers: the scheduler's documentation)
 *
 * @param victim   not dst, not solo
 * @param ret_nr   tasks moved including the returned one, 1..SLOTS/2; written only on success
 * @return the task to run, or NULL
 */
struct mrt_task *mrt__runq_steal(struct mrt__runq *victim, struct mrt__runq *dst, unsigned *ret_nr);

/**
 * Check the invariants that hold at rest, and say what is wrong.
 *
 * @thread  owner, and no thief at work
 *
 * @param why  where to say it, or NULL
 * @return true if all hold
 */
bool mrt__runq_check(const struct mrt__runq *q, FILE *why);

/**
 * Tasks in the queue, without the next slot.
 *
 * @thread  owner: exact; any other: an estimate, 0..SLOTS
 */
static inline uint32_t mrt__runq_len(const struct mrt__runq *q)
{
	uint64_t head;
	uint32_t tail, len;

	/* [RUNQ.head.obs] tail is then at least as new as head, so the difference is never negative */
	head = atomic_load_explicit(&q->head, memory_order_acquire);
	/* relaxed: a count; whoever goes on to take a task looks again */
	tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
	len = tail - mrt__runq_head_real(head);
	/* an overflow between the two loads moves tail half a ring past what head knew */
	return mrt__min(len, MRT__RUNQ_SLOTS);
}

/**
 * Has the queue no task? Without the next slot.
 *
 * @thread  owner: exact but for a thief at work
 */
static inline bool mrt__runq_is_empty(const struct mrt__runq *q)
{
	/* relaxed: tail is this thread's, and a head that a thief moves on now would only make it emptier */
	return mrt__runq_head_real(atomic_load_explicit(&q->head, memory_order_relaxed)) == mrt__runq_own_tail(q);
}

/**
 * Slots that can be pushed to now without an overflow: a thief's claim counts as used until it is finished.
 *
 * @thread  owner; the number can only grow until its next push
 */
static inline uint32_t mrt__runq_room(const struct mrt__runq *q)
{
	/* [RUNQ.head.obs] the thief has read the slots that it gave back; pairs with [RUNQ.head.done] */
	uint64_t head = atomic_load_explicit(&q->head, memory_order_acquire);

	return MRT__RUNQ_SLOTS - (mrt__runq_own_tail(q) - mrt__runq_head_steal(head));
}

/**
 * Is there something to take in the queue? The next slot is asked for separately.
 *
 * In the rescan of a worker that has just parked the answer is not an estimate: a push whose
 * mrt__idle_worker_to_notify() came before that worker's mrt__idle_park() is seen ([IDLE.word.dekker]).
 *
 * @thread  any
 */
static inline bool mrt__runq_has_work(const struct mrt__runq *q)
{
	return mrt__runq_len(q) != 0;
}

/**
 * Is there a task in the next slot?
 *
 * @thread  any
 */
static inline bool mrt__runq_has_next(const struct mrt__runq *q)
{
	/* relaxed: a hint; the exchange of next_take decides */
	return atomic_load_explicit(&q->next, memory_order_relaxed) != NULL;
}

/**
 * Append a task if there is room; never overflows.
 *
 * @thread  owner
 * @order   publishes the task's fields to whoever takes it
 *
 * @return false, and nothing changed, when there is no room
 */
static inline bool mrt__runq_try_push(struct mrt__runq *q, struct mrt_task *task)
{
	uint32_t tail = mrt__runq_own_tail(q);

	if (mrt__unlikely(mrt__runq_room(q) == 0))
		return false;
	mrt__runq_slot_set(q, tail, task);
	/* [RUNQ.tail.pub] publishes the slot; pairs with [RUNQ.tail.obs] in mrt__runq_steal() */
	atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
	return true;
}

/**
 * Append several tasks: each is staged, then all are published at once.
 *
 * @thread  owner
 * @order   publish: as mrt__runq_try_push(), for all of them
 *
 * @param i   the i-th behind what is queued, 0.. ; less than mrt__runq_room() then
 * @param nr  staged
 */
static inline void mrt__runq_stage(struct mrt__runq *q, unsigned i, struct mrt_task *task)
{
	mrt__runq_slot_set(q, mrt__runq_own_tail(q) + i, task);
}

static inline void mrt__runq_publish(struct mrt__runq *q, unsigned nr)
{
	/* [RUNQ.tail.pub] publishes the slots; pairs with [RUNQ.tail.obs] in mrt__runq_steal() */
	atomic_store_explicit(&q->tail, mrt__runq_own_tail(q) + nr, memory_order_release);
}

/**
 * Append a task; when the queue is full, hand tasks out for the inject queue.
 *
 * Full with a thief at work: the task alone goes out, since the thief is about to make room. Else the first half
 * stays and the newer half goes out with the task behind it, oldest first: what has waited longest keeps its
 * place. Between the claim and the publication a thief sees an empty queue and may go to sleep, so the caller must
 * put the batch into the inject queue and notify (mrt__idle_worker_to_notify).
 *
 * @thread  owner; not solo, where nobody would take it from there
 * @order   as mrt__runq_try_push()
 *
 * @param ret_batch     [MRT__RUNQ_BATCH_MAX]; written unless the result is MRT__RUNQ_PUSHED
 * @param ret_batch_nr  1 or MRT__RUNQ_BATCH_MAX; written unless the result is MRT__RUNQ_PUSHED
 */
static inline enum mrt__runq_push mrt__runq_push(struct mrt__runq *q, struct mrt_task *task,
						 struct mrt_task **ret_batch, unsigned *ret_batch_nr)
{
	if (mrt__likely(mrt__runq_try_push(q, task)))
		return MRT__RUNQ_PUSHED;
	return mrt__runq_push_slow(q, task, ret_batch, ret_batch_nr);
}

/**
 * Take the oldest task.
 *
 * @thread  owner
 * @return NULL when empty
 */
static inline struct mrt_task *mrt__runq_pop(struct mrt__runq *q)
{
	uint32_t tail = mrt__runq_own_tail(q);
	uint64_t head, next;
	uint32_t steal, real;

	/* relaxed: the exchange below decides, and the slots were written by this thread */
	head = atomic_load_explicit(&q->head, memory_order_relaxed);
	for (;;) {
		steal = mrt__runq_head_steal(head);
		real = mrt__runq_head_real(head);
		if (real == tail)
			return NULL;
		/* a thief at work keeps its mark: it moves steal up itself when it is done */
		next = mrt__runq_pack(steal == real ? real + 1 : steal, real + 1);
		if (q->solo) {
			/* relaxed: nobody else writes head or takes tasks */
			atomic_store_explicit(&q->head, next, memory_order_relaxed);
			break;
		}
		/*
		 * [RUNQ.head.pop] release: a thief that reads this head also sees a tail not older than ours,
		 * pairs with [RUNQ.head.obs]; acquire, relaxed on failure: nothing is read that a thief wrote.
		 * On failure head is what a thief has just left; at most two such per steal.
		 */
		if (atomic_compare_exchange_weak_explicit(&q->head, &head, next, memory_order_release,
							  memory_order_relaxed))
			break;
	}
	return mrt__runq_slot_get(q, real);
}

/**
 * Put a task into the next slot.
 *
 * @thread  owner
 * @order   publishes the task's fields to whoever takes it
 *
 * @return the task that it displaces, or NULL
 */
static inline struct mrt_task *mrt__runq_next_swap(struct mrt__runq *q, struct mrt_task *task)
{
	/* relaxed: what is there, this thread has put there */
	struct mrt_task *old = atomic_load_explicit(&q->next, memory_order_relaxed);

	/* NULL stays NULL (only the owner stores a task): no exchange needed, which is the usual case */
	if (q->solo || old == NULL) {
		/* [RUNQ.next.pub] publishes the task; pairs with [RUNQ.next.take] */
		atomic_store_explicit(&q->next, task, memory_order_release);
		return old;
	}
	/* [RUNQ.next.pub] and decides against a thief: exactly one of us gets the old task */
	return atomic_exchange_explicit(&q->next, task, memory_order_release);
}

/**
 * Take the task out of the next slot.
 *
 * @thread  owner; or a thief in its last pass
 * @return NULL when empty
 */
static inline struct mrt_task *mrt__runq_next_take(struct mrt__runq *q)
{
	/* relaxed: NULL is an answer; a task is not touched before the exchange */
	struct mrt_task *old = atomic_load_explicit(&q->next, memory_order_relaxed);

	if (old == NULL)
		return NULL;
	if (q->solo) {
		/* relaxed: one thread */
		atomic_store_explicit(&q->next, NULL, memory_order_relaxed);
		return old;
	}
	/* [RUNQ.next.take] the task's fields are visible; pairs with [RUNQ.next.pub] */
	return atomic_exchange_explicit(&q->next, NULL, memory_order_acquire);
}

#endif
