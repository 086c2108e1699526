/* SPDX-License-Identifier: MIT */
/*
 * The local queue: a ring of 256 task pointers, one owner that pushes behind and pops in front, and thieves that take
 * half from the front. It is Tokio's queue (multi_thread/queue.rs), to the constant:
 *
 *          steal      real              tail
 *            |  claim  |      tasks      |   free    |
 *      ------+---------+-----------------+-----------+---->   indices run for ever, slots are index & 255
 *
 * Both front indices stand in one 64-bit word, so that one compare-exchange moves or tests both. A thief first
 * moves `real` over what it wants and leaves `steal` as the mark of its claim, copies the slots, and then moves
 * `steal` up to `real`. While the mark stands the owner goes on popping and pushing, but no second thief starts,
 * the owner counts the claimed slots as used, and an overflow leaves the ring alone.
 *
 * Invariants: steal <= real <= tail <= steal + 256 by unsigned difference; only the owner writes tail and stores
 * tasks; who moves `real` over a slot has the task in it, once.
 *
 * Overflow claims the whole ring by moving both front indices to tail, and publishes the first half again in the
 * same slots under the indices [tail, tail + 128): nothing is copied, and the tasks that waited longest stay. The
 * newer half is then the owner's alone and goes to the caller's batch.
 *
 * Why a ring with half-steals and not a Chase-Lev deque: FIFO for the owner (fair to I/O completions), and one
 * synchronisation moves up to 128 tasks. The price is a compare-exchange per pop; in the current-thread flavour
 * (solo) nobody steals and there is none.
 */
#include "sched/runq.h"

#include <string.h>

_Static_assert(offsetof(struct mrt__runq, tail) - offsetof(struct mrt__runq, head) >= MRT__CACHE_PAIR,
	       "thieves write head, the owner's pushes write tail");
_Static_assert(offsetof(struct mrt__runq, slot) - offsetof(struct mrt__runq, tail) >= MRT__CACHE_PAIR,
	       "slots and tail are read by different parties");

void mrt__runq_init(struct mrt__runq *q, uint32_t start, bool solo)
{
	memset(q->slot, 0, sizeof(q->slot));
	atomic_init(&q->head, mrt__runq_pack(start, start));
	atomic_init(&q->tail, start);
	atomic_init(&q->next, NULL);
	q->solo = solo;
}

/*
 * Claim the whole ring, whose head was seen as (real, real), and keep its first half. False if a thief came first.
 */
static bool claim_half(struct mrt__runq *q, uint32_t real, uint32_t tail)
{
	uint64_t seen = mrt__runq_pack(real, real), all = mrt__runq_pack(tail, tail);

	mrt__assert(tail - real == MRT__RUNQ_SLOTS);
	mrt__assert(!q->solo);
	/*
	 * [RUNQ.head.all] release: as [RUNQ.head.pop], pairs with [RUNQ.head.obs] in claim_steal(). No acquire: the
	 * caller's load of head has seen that no thief is at work ([RUNQ.head.obs]), and success means that none has
	 * come since. On failure `seen` holds the thief's claim; the caller starts over.
	 */
	if (!atomic_compare_exchange_strong_explicit(&q->head, &seen, all, memory_order_release,
						     memory_order_relaxed))
		return false;
	/*
	 * [RUNQ.tail.pub] after the claim, never before: with the old head and this tail a thief would count
	 * 384 tasks. That pair can be read, but then the thief's exchange fails, for head has moved.
	 */
	atomic_store_explicit(&q->tail, tail + MRT__RUNQ_SLOTS / 2, memory_order_release);
	return true;
}

enum mrt__runq_push mrt__runq_push_slow(struct mrt__runq *q, struct mrt_task *task, struct mrt_task **ret_batch,
					unsigned *ret_batch_nr)
{
	uint32_t tail = mrt__runq_own_tail(q);
	uint32_t steal, real;
	uint64_t head;
	unsigned i;

	do {
		if (mrt__runq_try_push(q, task))
			return MRT__RUNQ_PUSHED;
		/* [RUNQ.head.obs] if no thief is at work, the last one has read its slots; pairs with
		 * [RUNQ.head.done] */
		head = atomic_load_explicit(&q->head, memory_order_acquire);
		steal = mrt__runq_head_steal(head);
		real = mrt__runq_head_real(head);
		if (steal != real) {
			ret_batch[0] = task;
			*ret_batch_nr = 1;
			return MRT__RUNQ_PUSH_ONE_OUT;
		}
		/* a thief may have come and gone between the two looks: then there is room */
	} while (tail - real < MRT__RUNQ_SLOTS || !claim_half(q, real, tail));

	/* the newer half: no index reaches it any more, only this thread's next pushes */
	for (i = 0; i < MRT__RUNQ_SLOTS / 2; i++)
		ret_batch[i] = mrt__runq_slot_get(q, real + MRT__RUNQ_SLOTS / 2 + i);
	ret_batch[i] = task;
	*ret_batch_nr = MRT__RUNQ_BATCH_MAX;
	return MRT__RUNQ_PUSH_OVERFLOW;
}

/* Claim half of the victim's tasks: how many, from *ret_first on. 0: none there, or refused. */
static uint32_t claim_steal(struct mrt__runq *victim, uint32_t *ret_first)
{
	uint32_t steal, real, tail, nr;
	uint64_t head, next;

	/* [RUNQ.head.obs] the tail below is not older than this head; pairs with [RUNQ.head.pop] and with the
	 * exchange of the thief before us */
	head = atomic_load_explicit(&victim->head, memory_order_acquire);
	do {
		steal = mrt__runq_head_steal(head);
		real = mrt__runq_head_real(head);
		if (steal != real)
			return 0;
		/* [RUNQ.tail.obs] slots below tail are now readable; pairs with [RUNQ.tail.pub] */
		tail = atomic_load_explicit(&victim->tail, memory_order_acquire);
		nr = tail - real;
		nr -= nr / 2;
		if (nr == 0)
			return 0;
		next = mrt__runq_pack(steal, real + nr);
		/*
		 * [RUNQ.head.claim] release: whoever reads this head sees a tail not older than ours, pairs with
		 * [RUNQ.head.obs]; acquire, on failure too: the head that another left is looked at anew, as above.
		 */
	} while (!atomic_compare_exchange_weak_explicit(&victim->head, &head, next, memory_order_acq_rel,
							memory_order_acquire));
	/* more can be counted (see claim_half), but then the exchange fails */
	mrt__assert(nr <= MRT__RUNQ_SLOTS / 2);
	*ret_first = real;
	return nr;
}

/* Give the copied slots back: steal moves up to wherever the owner's pops have brought real. */
static void finish_steal(struct mrt__runq *victim, uint32_t first)
{
	/* relaxed: only a first guess for the exchange */
	uint64_t head = atomic_load_explicit(&victim->head, memory_order_relaxed);
	uint32_t real;

	do {
		real = mrt__runq_head_real(head);
		/* nobody but us moves the mark while it stands */
		mrt__assert(mrt__runq_head_steal(head) == first);
		/*
		 * [RUNQ.head.done] release: our reads of the slots come before the owner's next writes to them,
		 * pairs with [RUNQ.head.obs] in mrt__runq_room(); the owner's pops in between are
		 * read-modify-writes and keep the release sequence. Relaxed on failure: only head's value is used.
		 */
	} while (!atomic_compare_exchange_weak_explicit(&victim->head, &head, mrt__runq_pack(real, real),
							memory_order_acq_rel, memory_order_relaxed));
}

struct mrt_task *mrt__runq_steal(struct mrt__runq *victim, struct mrt__runq *dst, unsigned *ret_nr)
{
	uint32_t tail = mrt__runq_own_tail(dst);
	uint32_t first = 0, nr, i;
	struct mrt_task *task;

	mrt__assert(victim != dst);
	mrt__assert(!victim->solo && !dst->solo);
	/* up to half a ring is coming, behind what thieves have left of ours */
	if (mrt__runq_room(dst) < MRT__RUNQ_SLOTS / 2)
		return NULL;
	nr = claim_steal(victim, &first);
	if (nr == 0)
		return NULL;
	for (i = 0; i + 1 < nr; i++)
		mrt__runq_slot_set(dst, tail + i, mrt__runq_slot_get(victim, first + i));
	task = mrt__runq_slot_get(victim, first + i);
	finish_steal(victim, first);
	if (nr > 1) {
		/* [RUNQ.tail.pub] publishes the copies to dst's thieves; pairs with [RUNQ.tail.obs] */
		atomic_store_explicit(&dst->tail, tail + nr - 1, memory_order_release);
	}
	*ret_nr = nr;
	return task;
}

static bool complain(FILE *why, const char *what, uint32_t a, uint32_t b)
{
	if (why != NULL)
		(void)fprintf(why, "runq: %s (%u, %u)\n", what, a, b); /* best effort: a diagnosis */
	return false;
}

bool mrt__runq_check(const struct mrt__runq *q, FILE *why)
{
	/* relaxed, all: at rest */
	uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
	uint32_t steal = mrt__runq_head_steal(head), real = mrt__runq_head_real(head);
	uint32_t tail = mrt__runq_own_tail(q), i;

	if (steal != real)
		return complain(why, "a steal that nobody finishes: steal, real", steal, real);
	if (tail - real > MRT__RUNQ_SLOTS)
		return complain(why, "more tasks than slots: real, tail", real, tail);
	for (i = real; i != tail; i++) {
		if (q->slot[i & MRT__RUNQ_MASK] == NULL)
			return complain(why, "an empty slot between real and tail: index, tail", i, tail);
	}
	return true;
}
