/* SPDX-License-Identifier: MIT */
/*
 * A one-byte lock for critical sections of a few dozen instructions (a wheel, a channel, a scope): the holder never
 * sleeps, allocates or makes a system call while it holds it. A waiter spins briefly and then gives its CPU away,
 * because on few CPUs the holder may have been preempted.
 *
 * Progress: blocking, for any number of callers. Not recursive. Unlock is the last access to the lock's memory, so a
 * lock may live in an object that its last user frees.
 */
#ifndef MRT_BASE_LOCK_H
#define MRT_BASE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

struct mrt__lock {
	atomic_uchar held;      /* 0 free, 1 held */
};

#define MRT__LOCK_SPINS_MAX 64u

static inline bool mrt__lock_try(struct mrt__lock *l)
{
	/* [LOCK.held.acq] what the last holder wrote is visible; pairs with [LOCK.held.rel] */
	return !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

static inline void mrt__lock(struct mrt__lock *l)
{
	unsigned spins = 0;

	while (!mrt__lock_try(l)) {
		/* relaxed: only a hint to try again; the exchange orders */
		while (atomic_load_explicit(&l->held, memory_order_relaxed)) {
			if (++spins < MRT__LOCK_SPINS_MAX)
				mrt__cpu_relax();
			else
				(void)sched_yield(); /* cannot fail on Linux */
		}
	}
}

static inline void mrt__unlock(struct mrt__lock *l)
{
	/* [LOCK.held.rel] publishes the section; pairs with [LOCK.held.acq] */
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

/* Has whoever held it let go? A look, which takes nothing. */
static inline bool mrt__lock_is_free(const struct mrt__lock *l)
{
	/* [LOCK.held.acq] the holder of before is through with what the lock guards; pairs with [LOCK.held.rel] */
	return !atomic_load_explicit(&l->held, memory_order_acquire);
}

#endif
