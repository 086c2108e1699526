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
 * HELD: exactly one party has the task, its holder: one queue, one hand that carries it there, or the thread that runs it.
 * Whoever sets HELD is the holder, and must run the task, enqueue it, or let go again. Who meets HELD pushes or asks, and
 * goes: the holder looks before it lets go. So to be runnable, to be queued and to run are one state, and a task that
 * yields changes no word.
 *
 * A completer that has become the holder is the one who may touch the op and the task's list, so it delivers its op
 * itself, on the spot: nothing is stacked, and the run that follows has nothing to take.
 *
 * A task is freed by its holder after it has ended, so HELD keeps it alive without a count; `refs` counts the runtime
 * (1) and the handle.
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
#define MRT__WORD_PTR (MRT__WORD_HELD - 1)      /* the done stack; empty unless HELD */

/* flags, H */
#define MRT__TASKF_ABORTED (1u << 0)    /* ops that start are refused */
#define MRT__TASKF_RETURNED (1u << 1)   /* its poll function has returned READY; only draining is left */
#define MRT__TASKF_YIELD (1u << 2)      /* the next await gives others a turn */
#define MRT__TASKF_POLLED (1u << 3)     /* has run at least once */
#define MRT__TASKF_TRAILER (1u << 4)    /* set at spawn */

/* join: NULL, a join op, a blocked thread's waiter (bit 0 set), or this */
#define MRT__JOIN_ENDED ((uintptr_t)2)
#define MRT__JOIN_THREAD ((uintptr_t)1)

struct mrt_task {
	int32_t resume;                 /* H; first member: struct mrt__resume_point */
	uint32_t flags;                 /* H */
	_Atomic uint64_t word;          /* all; see above */
	struct mrt_task *queue_next;    /* whoever holds the queue it is in */
	mrt_poll_fn fn;                 /* const */
	struct mrt__op *ops;            /* H; ops in flight, newest first */
	uint32_t await_nr;              /* H; deliveries until the poll function is called again */
	atomic_uint refs;               /* runtime and handle */
	uint32_t frame_bytes;           /* const */
	uint16_t last_worker;           /* H; who polled or spawned it last */
	uint8_t shield;                 /* H; depth */
	uint8_t slow;                   /* H; > 0: recent polls were long, so flush before the next */
	uint64_t id;                    /* const */
	int64_t result;                 /* H until ENDED */
	_Atomic uintptr_t join;         /* joiner and holder */
	struct mrt__sched *sched;       /* const */
	const char *name;               /* const */
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

static inline struct mrt__task_trailer *mrt__task_trailer(struct mrt_task *t)
{
	mrt__assert(t->flags & MRT__TASKF_TRAILER);
	return (struct mrt__task_trailer *)(void *)((char *)mrt__task_frame(t) + mrt__task_frame_room(t->frame_bytes));
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
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed);

	do {
		if (old & (MRT__WORD_PTR | MRT__WORD_ABORT))
			return false;
		/* [TASK.word.put] the next holder sees frame and header as we leave them; pairs with [TASK.word.hold];
		 * relaxed on failure: only old is used */
	} while (!atomic_compare_exchange_weak_explicit(&t->word, &old, old & ~MRT__WORD_HELD, memory_order_release,
							memory_order_relaxed));
	return true;
}

/* Ask for an abort. True: it was idle, the caller is its holder and must enqueue it. */
static inline bool mrt__task_ask_abort(struct mrt_task *t)
{
	/* relaxed: the exchange decides */
	uint64_t old = atomic_load_explicit(&t->word, memory_order_relaxed), word;

	do {
		if (!(old & MRT__WORD_LIVE) || old & (MRT__WORD_ENDED | MRT__WORD_ABORTED))
			return false;
		word = old | MRT__WORD_ABORT | MRT__WORD_ABORTED | MRT__WORD_HELD;
		/* [TASK.word.ask] pairs with [TASK.word.take], [TASK.word.spawn] and [TASK.word.free]; acquire as
		 * [TASK.word.hold]; relaxed on failure: only old is used */
	} while (!atomic_compare_exchange_weak_explicit(&t->word, &old, word, memory_order_acq_rel,
							memory_order_relaxed));
	return !(old & MRT__WORD_HELD);
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

/**
 * Run a task: deliver what else has come, poll, let go. Called by its holder, who has dequeued it.
 *
 * @thread  w's
 */
void mrt__task_run(struct mrt__worker *w, struct mrt_task *t);

/* Take a reference. @thread any that has one */
static inline void mrt__task_ref(struct mrt_task *t)
{
	/* relaxed: whoever has one may make another */
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
}

/* Say through the log what a task waits for. @thread a worker; @return false: no living task */
bool mrt__task_report(struct mrt_task *t);

/* Drop a reference; the last one frees the cell. @thread any */
void mrt__task_unref(struct mrt_task *t);

#endif
