/* SPDX-License-Identifier: MIT */
/*
 * The park word: closes the race between a worker that goes to sleep and one that wakes it. It is the whole machine;
 * nobody else reads or writes the word.
 *
 *                   begin (w)                     wake: the caller writes the eventfd
 *         EMPTY ----------------> PARKED ------------------------------------------+
 *         ^   ^                      |                                             |
 *         |   +------- end (w) ------+                                             v
 *         +------ begin (w): refuses to sleep; end (w) ---------------------- NOTIFIED <--+
 *                                                                                 |       | wake
 *         EMPTY ------------------------ wake: nobody sleeps yet ---------------->+-------+
 *
 *    begin, end         wait-free, the worker
 *    wake               wait-free, any number of callers
 *
 * [PARK.state.dekker] All accesses are seq_cst read-modify-writes, and a wake always swaps: it meets the worker in this
 * word. Swap before begin: begin sees NOTIFIED, and with it what the waker published. Swap after begin: the waker sees
 * PARKED and writes the eventfd. Rejected: a waker that leaves an awake worker's line alone and only looks. The two sides
 * can then miss each other in this word, unless the worker looks at every message once more between begin and sleep
 * (tests/model/model_park.c has that waker as one that must fail). The only worker of a runtime looks so at the inject queue:
 * mrt__park_sleeps() is for who has pushed there, and spares it the books of idle.h.
 *
 * An eventfd write may arrive after the worker left by itself: a spurious completion at its next turn, no more.
 */
#ifndef MRT_SCHED_PARK_H
#define MRT_SCHED_PARK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/assert.h"

enum mrt__park_state {
	MRT__PARK_EMPTY,        /* w runs, nothing noted. w -> PARKED; any waker -> NOTIFIED                */
	MRT__PARK_PARKED,       /* w sleeps or is about to. w -> EMPTY; a waker -> NOTIFIED, and it owes w
				   an eventfd write                                                         */
	MRT__PARK_NOTIFIED,     /* w must look around before it sleeps. w -> EMPTY                          */
	MRT__PARK_STATES_NR,
};

struct mrt__park {
	/* the state; EMPTY <-> PARKED by the worker, NOTIFIED by any thread, all by read-modify-write */
	atomic_uint state;
};

static inline void mrt__park_init(struct mrt__park *p)
{
	atomic_init(&p->state, MRT__PARK_EMPTY);
}

/**
 * Announce the sleep.
 *
 * @thread  the worker, not between begin and end
 * @return true: sleep, then end.
 *         false: notified since the last turn, and that is consumed: do not sleep, do not call end
 */
static inline bool mrt__park_begin(struct mrt__park *p)
{
	unsigned old = MRT__PARK_EMPTY;

	/* [PARK.state.dekker] whose swap comes later sees this; on failure old is NOTIFIED, and seq_cst on failure
	 * acquires what its writer published */
	if (atomic_compare_exchange_strong_explicit(&p->state, &old, MRT__PARK_PARKED, memory_order_seq_cst,
						    memory_order_seq_cst))
		return true;
	mrt__assert(old == MRT__PARK_NOTIFIED);
	/* a swap, not a store: a second waker may have come since, and what it published must be acquired too */
	old = atomic_exchange_explicit(&p->state, MRT__PARK_EMPTY, memory_order_seq_cst);
	mrt__assert(old == MRT__PARK_NOTIFIED);
	return false;
}

/**
 * The sleep is over, or was called off after begin.
 *
 * @thread  the worker, after mrt__park_begin() said true
 * @order   everything published before a wake that this consumes is visible
 * @return true: somebody woke it; false: it woke by itself
 */
static inline bool mrt__park_end(struct mrt__park *p)
{
	/* [PARK.state.dekker] consumes PARKED or NOTIFIED alike */
	unsigned old = atomic_exchange_explicit(&p->state, MRT__PARK_EMPTY, memory_order_seq_cst);

	mrt__assert(old != MRT__PARK_EMPTY);
	return old == MRT__PARK_NOTIFIED;
}

/**
 * Make the worker look around: it does not sleep, or not for long.
 *
 * @thread  any, after it published what there is to see
 * @return true: the worker sleeps; the caller, and only it, must write the worker's eventfd
 */
static inline bool mrt__park_wake(struct mrt__park *p)
{
	/* [PARK.state.dekker] always a read-modify-write, also over NOTIFIED: the worker's next consumption must
	 * acquire what *this* caller published */
	return atomic_exchange_explicit(&p->state, MRT__PARK_NOTIFIED, memory_order_seq_cst) == MRT__PARK_PARKED;
}

/**
 * Does the worker sleep? For a waker whose worker looks once more between begin and sleep at what it has published.
 *
 * @thread  any, after it published what there is to see
 * @return true: it does, or is about to: the caller calls mrt__park_wake(). false: its next begin is after this, and acquires
 *         what was published, so that its look shows it
 */
static inline bool mrt__park_sleeps(struct mrt__park *p)
{
	/* [PARK.state.dekker] a read-modify-write, that this and begin have an order */
	return atomic_fetch_add_explicit(&p->state, 0, memory_order_seq_cst) == MRT__PARK_PARKED;
}

#endif
