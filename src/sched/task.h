/* SPDX-License-Identifier: MIT */
/*
 * A task: one cell of a heap, holding this header, the frame, and (for a scope's child) a trailer.
 *
 * The task word is the one thing that several threads write: the top 16 bits are state, the rest is the head of the
 * done stack (finished ops, newest first).
 *
 *	          completer: hold, then deliver        the last op: end
 *	   idle ---------------------------------> HELD ---------------> ENDED
 *	     ^                                       |
 *	     +------------ holder: let go -----------+   (only if nothing was pushed or asked meanwhile)
 *
 * HELD: exactly one party has the task, its holder: one queue, one hand that carries it there, the thread that runs it, or
 * its keeper. Whoever sets HELD is the holder, and must run the task, enqueue it, or let go again. Who meets HELD pushes
 * or asks, and goes: the holder looks before it lets go. So to be runnable, to be queued and to run are one state, and a
 * task that yields changes no word.
 *
 * A completer that has become the holder is the one who may touch the op and the task's list, so it delivers its op
 * itself, on the spot: nothing is stacked, and the run that follows has nothing to take.
 *
 * The keeper. A task that waits for nothing but ops of one ring can be completed by that ring's owner alone; so can one that
 * waits for timers, scopes and joins of its own runtime's tasks where that has but one worker. The owner does not let go, but
 * keeps it. HELD stays, the keeper's index goes into the word, and RESTS into the header, which is the keeper's own note that
 * the task waits with it and is in no queue. A completion then finds RESTS and goes on: reads in
 * a loop touch the word not once. What is left is the aborter, who would wait for a look that nobody takes. So an ask that
 * meets a keeper sets TOLD with ABORT, and sends the keeper the task as a message (tell, in worker.c), once in a task's
 * life, since only the first ask counts. The keeper looks for RESTS: if it is there, it is the holder, and enqueues the
 * task. If not, the task is queued or running, here or at a thief; each of these sees ABORT before it rests:
 *
 *	- the keeper itself looks at the word before it sets RESTS, and has the message behind it, or still before it;
 *	- another one becomes the keeper, or lets go, by an exchange that fails on ABORT.
 *
 * The keeper's index may be stale in a task that was stolen: the message is then for nothing, and the one above holds.
 * TOLD keeps the cell until the message is read: of the ending holder (HELD) and the message (TOLD) whoever is last gives
 * the runtime's reference back. An aborted task gets no keeper: there are no further messages.
 *
 * A task is freed after it has ended, so HELD keeps it alive without a count. The runtime and the handle have one reference in
 * `refs` together: who is the last of the two drops it, as the join word tells them. The end closes it: if nobody waits yet,
 * the reference is left to the handle, whose join or detach finds ENDED. A join that waits gets it with the result. A detach that
 * comes before the end leaves DETACHED, which the end finds; so does the spawn without a handle.
 *
 * Fields marked H are the holder's alone.
 */
#ifndef MRT_SCHED_TASK_H
#define MRT_SCHED_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/task.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "sched/op.h"

struct mrt__sched;
struct mrt__worker;

/* The task word. User addresses have 47 bits on x86-64 and at most 48 on aarch64 (unless asked otherwise). */
#define MRT__WORD_HELD (UINT64_C(1) << 48)      /* it has a holder */
#define MRT__WORD_ABORT (UINT64_C(1) << 50)     /* asked since the holder last looked */
#define MRT__WORD_ABORTED (UINT64_C(1) << 51)   /* asked at all; sticky, for readers */
#define MRT__WORD_ENDED (UINT64_C(1) << 52)     /* result valid, nothing runs any more */
#define MRT__WORD_LIVE (UINT64_C(1) << 53)      /* the cell holds a task */
#define MRT__WORD_TOLD (UINT64_C(1) << 49)      /* an ask is on its way to a keeper, by told_next */
#define MRT__WORD_KEEPER_SHIFT 54               /* index + 1 of the worker that is told of asks; 0: none */
#define MRT__WORD_KEEPER (~UINT64_C(0) << MRT__WORD_KEEPER_SHIFT)
#define MRT__KEEPERS_MAX 1023u                  /* workers from here on keep nothing */
#define MRT__WORD_KEEPER_OF(idx) ((idx) < MRT__KEEPERS_MAX ? ((uint64_t)(idx) + 1) << MRT__WORD_KEEPER_SHIFT : 0)
#define MRT__WORD_PTR (MRT__WORD_HELD - 1)      /* the done stack; empty unless HELD */

/* flags, H */
#define MRT__TASKF_ABORTED (1u << 0)    /* ops that start are refused */
#define MRT__TASKF_RETURNED (1u << 1)   /* its poll function has returned READY; only draining is left */
#define MRT__TASKF_YIELD (1u << 2)      /* the next await gives others a turn */
#define MRT__TASKF_POLLED (1u << 3)     /* has run at least once */
#define MRT__TASKF_TRAILER (1u << 4)    /* set at spawn */
#define MRT__TASKF_SHARED (1u << 5)     /* not: all its ops are completed by the worker `place` alone */
#define MRT__TASKF_ARMED (1u << 6)      /* this poll has armed timers, which are not yet in the wheel */

/* frame_bytes, const: a name stands behind the frame */
#define MRT__FRAME_NAMED (1u << 31)

/* place */
#define MRT__PLACE_RESTS ((uint16_t)0x8000)
#define MRT__PLACE_NONE ((uint16_t)0x7fff)

/* join: 0, a join op or a blocked thread's waiter, with a bit that says what it is, or one of ENDED and DETACHED */
#define MRT__JOIN_THREAD ((uintptr_t)1)
#define MRT__JOIN_ENDED ((uintptr_t)2)
#define MRT__JOIN_OWN ((uintptr_t)4)    /* an op of the one worker that runs this task, too: nobody else touches the word */
#define MRT__JOIN_DETACHED ((uintptr_t)6) /* there is no handle, or not any more */
#define MRT__JOIN_PTR (~(uintptr_t)7)

struct mrt_task {
	int32_t resume;                 /* H; first member: struct mrt__resume_point */
	uint32_t flags;                 /* H */
	_Atomic uint64_t word;          /* all; see above */
	struct mrt_task *queue_next;    /* whoever holds the queue it is in */
	mrt_poll_fn fn;                 /* const */
	struct mrt__op *ops;            /* H; ops in flight, newest first */
	uint32_t await_nr;              /* H; deliveries until the poll function is called again */
	atomic_uint refs;               /* runtime and handle have one together; and who keeps it for a moment */
	uint32_t frame_bytes;           /* const; and MRT__FRAME_NAMED */
	_Atomic uint16_t place;         /* who polled or spawned it last; H, but RESTS is the keeper's */
	uint8_t shield;                 /* H; depth */
	uint8_t slow;                   /* H; > 0: recent polls were long, so flush before the next */
	uint64_t id;                    /* const */
	int64_t result;                 /* H until ENDED */
	_Atomic uintptr_t join;         /* joiner and holder */
	struct mrt__sched *sched;       /* const */
	struct mrt_task *told_next;     /* with TOLD: who asked; then the keeper */
};
_Static_assert(sizeof(struct mrt_task) <= 96, "design: a task's header is at most 96 B");
_Static_assert(sizeof(struct mrt_task) % 16 == 0, "the frame behind it is 16-byte aligned");
_Static_assert(offsetof(struct mrt_task, resume) == 0, "MRT__RESUME");

/* What stands behind the frame of a scope's child. */
struct mrt__task_trailer {
	void (*on_end)(struct mrt_task *task);  /* on the worker, after the task has ended, before it is freed */
	void *reserved;
	/* the spawner's bytes follow */
};

static inline void *mrt__task_frame(struct mrt_task *t)
{
	return t + 1;
}

static inline size_t mrt__task_frame_room(size_t frame_bytes)
{
	return (frame_bytes + 15) & ~(size_t)15;
}

/* What stands behind the frame: a name, if it has one; a trailer, if it has one. */
static inline char *mrt__task_behind_frame(struct mrt_task *t)
{
	return (char *)mrt__task_frame(t) + mrt__task_frame_room(t->frame_bytes & ~MRT__FRAME_NAMED);
}

#define MRT__TASK_NAME_ROOM ((size_t)16) /* a pointer, and what keeps the trailer aligned */

static inline struct mrt__task_trailer *mrt__task_trailer(struct mrt_task *t)
{
	char *behind = mrt__task_behind_frame(t);

	mrt__assert(t->flags & MRT__TASKF_TRAILER);
	return (struct mrt__task_trailer *)(void *)(behind + (t->frame_bytes & MRT__FRAME_NAMED ? MRT__TASK_NAME_ROOM : 0));
}

/* The spawner's own bytes in the trailer. */
static inline void *mrt__task_trailer_data(struct mrt_task *t)
{
	return mrt__task_trailer(t) + 1;
}

/* ---- the task word ---- */

/* What a completer finds. */
enum mrt__claim {
	MRT__CLAIM_PUSHED,      /* it has a holder, who will look: the task is no longer the caller's to touch */
	MRT__CLAIM_HELD,        /* it was idle: the caller is its holder */
};

/*
 * A completer that can deliver: become the holder of an idle task; else push the op. The op is not pushed if the task is
 * held now: the caller delivers it.
 */
static inline enum mrt__claim mrt__task_hold_or_push(struct mrt_task *t, struct mrt__op *op)
{
	/* relaxed: the exchange decides */
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed), word;

	for (;;) {
		if (mrt__likely(!(old & MRT__WORD_HELD))) {
			/* [TASK.word.hold] header and frame as the last holder left them; pairs with [TASK.word.put].
			 * No release: the next holder gets the task from us, by a queue. relaxed on failure: only old is
			 * used */
			if (atomic_compare_exchange_weak_explicit(&t->word, &old, old | MRT__WORD_HELD,
								  memory_order_acquire, memory_order_relaxed))
				return MRT__CLAIM_HELD;
			continue;
		}
		op->done_next = (struct mrt__op *)(uintptr_t)(old & MRT__WORD_PTR);
		word = (old & ~MRT__WORD_PTR) | (uint64_t)(uintptr_t)op;
		/* [TASK.word.push] publishes the op's result and all that the completer did before; pairs with
		 * [TASK.word.take]. Each push is a read-modify-write, so a take has what all of them published. relaxed
		 * on failure: only old is used */
		if (atomic_compare_exchange_weak_explicit(&t->word, &old, word, memory_order_release,
							  memory_order_relaxed))
			return MRT__CLAIM_PUSHED;
	}
}

/* A completer that cannot deliver: push in any case. HELD: the caller must enqueue the task. */
static inline enum mrt__claim mrt__task_push(struct mrt_task *t, struct mrt__op *op)
{
	/* relaxed: the exchange decides */
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed), word;

	do {
		op->done_next = (struct mrt__op *)(uintptr_t)(old & MRT__WORD_PTR);
		word = (old & ~MRT__WORD_PTR) | MRT__WORD_HELD | (uint64_t)(uintptr_t)op;
		/* [TASK.word.push] and [TASK.word.hold] in one; relaxed on failure: only old is used */
	} while (!atomic_compare_exchange_weak_explicit(&t->word, &old, word, memory_order_acq_rel,
							memory_order_relaxed));
	return old & MRT__WORD_HELD ? MRT__CLAIM_PUSHED : MRT__CLAIM_HELD;
}

/* Does the holder have something to take? Relaxed: a hint, the take orders. */
static inline bool mrt__task_has_news(const struct mrt_task *t)
{
	return atomic_load_explicit(&t->word, memory_order_relaxed) & (MRT__WORD_PTR | MRT__WORD_ABORT);
}

/* The holder takes the stack and what was asked. @return the word before */
static inline uint64_t mrt__task_take(struct mrt_task *t)
{
	/* [TASK.word.take] pairs with [TASK.word.push] and [TASK.word.ask] */
	return atomic_fetch_and_explicit(&t->word, ~(MRT__WORD_PTR | MRT__WORD_ABORT), memory_order_acquire);
}

/* The holder lets go of a task that waits. False: something came meanwhile, the caller is still the holder. */
static inline bool mrt__task_let_go(struct mrt_task *t)
{
	/* relaxed: the exchange decides */
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed), word;

	do {
		if (old & (MRT__WORD_PTR | MRT__WORD_ABORT))
			return false;
		word = old & ~(MRT__WORD_HELD | MRT__WORD_KEEPER);
		/* [TASK.word.put] the next holder sees frame and header as we leave them; pairs with [TASK.word.hold];
		 * relaxed on failure: only old is used */
	} while (!atomic_compare_exchange_weak_explicit(&t->word, &old, word, memory_order_release,
							memory_order_relaxed));
	return true;
}

/* Who polled or spawned it last. @thread the holder; others: any of the last values */
static inline uint16_t mrt__task_place(const struct mrt_task *t)
{
	/* relaxed: the holder's own, or a hint */
	return atomic_load_explicit(&t->place, memory_order_relaxed) & (uint16_t)~MRT__PLACE_RESTS;
}

static inline void mrt__task_set_place(struct mrt_task *t, uint16_t place)
{
	/* relaxed: the holder's own. RESTS is read by others than the holder, see mrt__task_rests_at() */
	atomic_store_explicit(&t->place, place, memory_order_relaxed);
}

/*
 * Does it rest with this keeper? A worker alone sets and clears RESTS with its own index, so its answer is certain even if
 * the task is a thief's by now.
 *
 * @thread  worker `idx`
 */
static inline bool mrt__task_rests_at(const struct mrt_task *t, uint16_t idx)
{
	/* relaxed: our own store, or somebody's who has not our index */
	return atomic_load_explicit(&t->place, memory_order_relaxed) == (idx | MRT__PLACE_RESTS);
}

/*
 * Does it rest? A completer's question: an op of a task that rests is finished by its keeper alone. Whoever finishes an op
 * of another kind was given it after the task last rested, so it sees that place no more.
 */
static inline bool mrt__task_rests(const struct mrt_task *t)
{
	/* relaxed: as above */
	return atomic_load_explicit(&t->place, memory_order_relaxed) & MRT__PLACE_RESTS;
}

/*
 * The holder, worker `idx`, keeps a task that waits for ops that it alone completes: not flagged SHARED or ABORTED. False:
 * something came meanwhile, it is not to rest.
 *
 * @param keeper  MRT__WORD_KEEPER_OF(idx), not 0
 */
static inline bool mrt__task_keep(struct mrt_task *t, uint64_t keeper, uint16_t idx)
{
	const uint64_t news = MRT__WORD_PTR | MRT__WORD_ABORT;
	/* relaxed: an ask that this does not see comes as a message; see above */
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed), word;

	while (mrt__unlikely((old & (news | MRT__WORD_KEEPER)) != keeper)) {
		if (old & news)
			return false;
		word = (old & ~MRT__WORD_KEEPER) | keeper;
		/* relaxed: nobody takes it over by this; an ask of before makes it fail, one of after sees the keeper */
		if (atomic_compare_exchange_weak_explicit(&t->word, &old, word, memory_order_relaxed,
							  memory_order_relaxed))
			break;
	}
	mrt__task_set_place(t, idx | MRT__PLACE_RESTS);
	return true;
}

/* What an aborter has to do. */
enum mrt__ask {
	MRT__ASK_NOTHING,       /* no task, or asked before, or the holder will see it */
	MRT__ASK_ENQUEUE,       /* it was idle: the caller is its holder */
	MRT__ASK_TELL,          /* send it to the worker *ret_keeper; the cell lives until that has read it */
};

/* Ask for an abort. */
static inline enum mrt__ask mrt__task_ask_abort(struct mrt_task *t, unsigned *ret_keeper)
{
	/* relaxed: the exchange decides */
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed), word;

	do {
		if (!(old & MRT__WORD_LIVE) || old & (MRT__WORD_ENDED | MRT__WORD_ABORTED))
			return MRT__ASK_NOTHING;
		word = old | MRT__WORD_ABORT | MRT__WORD_ABORTED | MRT__WORD_HELD;
		if (old & MRT__WORD_KEEPER)
			word |= MRT__WORD_TOLD;
		/* [TASK.word.ask] pairs with [TASK.word.take], [TASK.word.spawn] and [TASK.word.free]; acquire as
		 * [TASK.word.hold]; relaxed on failure: only old is used */
	} while (!atomic_compare_exchange_weak_explicit(&t->word, &old, word, memory_order_acq_rel,
							memory_order_relaxed));
	if (old & MRT__WORD_KEEPER) {
		*ret_keeper = (unsigned)(old >> MRT__WORD_KEEPER_SHIFT) - 1;
		return MRT__ASK_TELL;
	}
	return old & MRT__WORD_HELD ? MRT__ASK_NOTHING : MRT__ASK_ENQUEUE;
}

/* The message was read. True: its task has ended meanwhile, and the runtime's reference is the caller's. */
static inline bool mrt__task_end_told(struct mrt_task *t)
{
	/* [TASK.word.told] whoever is last has all that the other did before; pairs with [TASK.word.leave] */
	uint64_t old = atomic_fetch_and_explicit(&t->word, ~MRT__WORD_TOLD, memory_order_acq_rel);

	return (old & (MRT__WORD_ENDED | MRT__WORD_HELD)) == MRT__WORD_ENDED;
}

/* The holder publishes the result; no op is left. True: a message is on its way, so mrt__task_leave() comes last. */
static inline bool mrt__task_end(struct mrt_task *t)
{
	/* relaxed: keepers are the holders' own; without one, or a message of before, nobody can tell any more */
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed), word;

	if (mrt__likely(!(old & (MRT__WORD_KEEPER | MRT__WORD_TOLD | MRT__WORD_PTR)))) {
		/* [TASK.word.end] publishes the result; pairs with mrt_task_is_finished(). An abort that comes meanwhile
		 * finds HELD and sets its bits for nothing. */
		atomic_store_explicit(&t->word, MRT__WORD_ENDED | MRT__WORD_LIVE | (old & MRT__WORD_ABORTED),
				      memory_order_release);
		return false;
	}
	mrt__assert(!(old & MRT__WORD_PTR));
	do {
		word = MRT__WORD_ENDED | MRT__WORD_LIVE | (old & (MRT__WORD_ABORTED | MRT__WORD_TOLD));
		if (old & MRT__WORD_TOLD)
			word |= MRT__WORD_HELD;
		/* [TASK.word.end] the same; acquire: as [TASK.word.leave], if the message has been read; relaxed on
		 * failure: only old is used */
	} while (!atomic_compare_exchange_weak_explicit(&t->word, &old, word, memory_order_acq_rel,
							memory_order_relaxed));
	return old & MRT__WORD_TOLD;
}

/* The holder is done with a task that has ended. True: so is the message, and the runtime's reference is the caller's. */
static inline bool mrt__task_leave(struct mrt_task *t)
{
	/* [TASK.word.leave] pairs with [TASK.word.told] */
	return !(atomic_fetch_and_explicit(&t->word, ~MRT__WORD_HELD, memory_order_acq_rel) & MRT__WORD_TOLD);
}

/* ---- references and the join word ---- */

/* Take a reference. @thread any that has one */
static inline void mrt__task_ref(struct mrt_task *t)
{
	/* relaxed: whoever has one may make another */
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
}

/* Is the caller's reference the only one? Then it stays so: who has none can make none. */
static inline bool mrt__task_is_last_ref(const struct mrt_task *t)
{
	/* [TASK.refs.drop] acquire: the last one sees all that the others did; pairs with itself, the release in the
	 * exchange of those before */
	return atomic_load_explicit(&t->refs, memory_order_acquire) == 1;
}

/* @return true: it was the last one, the cell is to be freed */
static inline bool mrt__task_drop_ref(struct mrt_task *t)
{
	/* [TASK.refs.drop] acquire, and release: as above */
	return mrt__task_is_last_ref(t) || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1;
}

/* Has it ended, with the result valid? @thread who has the handle */
static inline bool mrt__task_join_is_closed(const struct mrt_task *t)
{
	/* [TASK.join.wait] acquire: the result; pairs with [TASK.join.end] */
	return atomic_load_explicit(&t->join, memory_order_acquire) == MRT__JOIN_ENDED;
}

/*
 * Begin to wait for the end.
 *
 * OWN: the caller is the one worker of the task's runtime, and the end is its own as well. A thread outside could only meet it
 * here with another join of the same handle. Two joins that are not ordered are nobody's right: the first to be delivered frees
 * the cell under the second. One that is ordered before is seen by the load.
 *
 * @param waiter  with JOIN_THREAD or JOIN_OWN, or neither
 * @return 0: `waiter` waits; else what stands there, with JOIN_ENDED the result is valid
 */
static inline uintptr_t mrt__task_wait_join(struct mrt_task *t, uintptr_t waiter)
{
	uintptr_t old = 0;

	if (waiter & MRT__JOIN_OWN) {
		/* acquire: as mrt__task_join_is_closed() */
		old = atomic_load_explicit(&t->join, memory_order_acquire);
		if (!old) /* relaxed: read by this thread alone */
			atomic_store_explicit(&t->join, waiter, memory_order_relaxed);
		return old;
	}
	/* [TASK.join.wait] publishes the waiter to the ending task; acquire on failure: the result, if it has ended; pairs
	 * with [TASK.join.end] */
	return atomic_compare_exchange_strong_explicit(&t->join, &old, waiter, memory_order_acq_rel,
						       memory_order_acquire) ? 0 : old;
}

/* @return false: the end has it. @thread the holder of the op's task */
static inline bool mrt__task_cancel_join(struct mrt_task *t, struct mrt__op *op)
{
	/* relaxed: the exchange decides */
	uintptr_t old = atomic_load_explicit(&t->join, memory_order_relaxed);

	/* relaxed: taking ourselves out publishes nothing; the task is alive, as the op holds its handle */
	return (old & MRT__JOIN_PTR) == (uintptr_t)op &&
	       atomic_compare_exchange_strong_explicit(&t->join, &old, 0, memory_order_relaxed, memory_order_relaxed);
}

/*
 * The task has ended: from here on nobody can begin to wait. With 0 the reference is the handle's, and the caller is through with
 * the task; else it is the caller's.
 *
 * @return who waits, with its bit; DETACHED: there is no handle; 0: nobody waits yet
 */
static inline uintptr_t mrt__task_close_join(struct mrt_task *t)
{
	/* [TASK.join.end] acquire: what was done by a handle that was dropped; pairs with mrt__task_drop_handle(). OWN is this
	 * thread's */
	uintptr_t old = atomic_load_explicit(&t->join, memory_order_acquire);

	if (old == MRT__JOIN_DETACHED)
		return old; /* for good: nobody writes it any more */
	if (old & MRT__JOIN_OWN) {
		/* [TASK.join.end] a store: whoever comes while an op stands there is refused, and writes nothing, and its
		 * cancel is this thread's */
		atomic_store_explicit(&t->join, MRT__JOIN_ENDED, memory_order_release);
		return old;
	}
	/* [TASK.join.end] acquire: the joiner's op or waiter is readable; pairs with [TASK.join.wait]; release: the result is, to a
	 * join that comes later, and all that the runtime did with the task comes before that frees it */
	return atomic_exchange_explicit(&t->join, MRT__JOIN_ENDED, memory_order_acq_rel);
}

/* The handle goes, unjoined. @return true: the task has ended, the reference is the caller's */
static inline bool mrt__task_drop_handle(struct mrt_task *t)
{
	/* [TASK.join.end] release: our uses, to the end that frees it; acquire: the end's, if it was first */
	return atomic_exchange_explicit(&t->join, MRT__JOIN_DETACHED, memory_order_acq_rel) == MRT__JOIN_ENDED;
}

/* As mrt_task_is_finished(). @thread who knows that the cell is this task's */
static inline bool mrt__task_has_ended(const struct mrt_task *t)
{
	/* [TASK.word.end] the result is there; pairs with mrt__task_end() */
	return atomic_load_explicit(&t->word, memory_order_acquire) & MRT__WORD_ENDED;
}

/* Is there anything for a worker to do with the task? @thread the holder */
static inline bool mrt__task_is_runnable(const struct mrt_task *t)
{
	return t->flags & MRT__TASKF_RETURNED ? !t->ops : t->await_nr == 0;
}

/* ---- spawn and end ---- */

/* How a task is made; zero is the default of each. */
struct mrt__spawn {
	mrt_poll_fn fn;
	const void *frame;
	size_t frame_bytes;
	const struct mrt_spawn_opts *opts;
	size_t trailer_bytes;                   /* of the spawner's data in the trailer; 0 with on_end NULL: no trailer */
	void (*on_end)(struct mrt_task *task);
	void (*on_init)(struct mrt_task *task, void *ctx); /* before anybody can see the task */
	void *ctx;
};

/**
 * Make a task and make it runnable. Errors as mrt_spawn.
 *
 * @thread  any
 * @param ret_task  a handle (counted), or NULL: none
 */
int mrt__task_spawn(struct mrt__sched *s, const struct mrt__spawn *spawn, struct mrt_task **ret_task);

/* As mrt_abort, for one who knows that the task is alive. @thread any */
void mrt__task_abort(struct mrt_task *t);

/* A keeper reads its message: t was asked. @thread w's */
void mrt__task_told(struct mrt__worker *w, struct mrt_task *t);

/* Say through the log what a task waits for. @thread a worker; @return false: no living task */
bool mrt__task_report(struct mrt_task *t);

/* Drop a reference; the last one frees the cell. @thread any */
void mrt__task_unref(struct mrt_task *t);

#endif
