/* SPDX-License-Identifier: MIT */
/*
 * Force-included (-include) before the code under a model: makes each atomic access, each use of a lock and each slot
 * access of the local queue a point where the model may run another thread. The operations themselves become plain
 * sequentially consistent ones on one OS thread, whatever order the code asked for: see model.h for what that proves
 * and what it does not.
 */
#ifndef MRT_TESTS_MODEL_ATOMIC_H
#define MRT_TESTS_MODEL_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "model.h"

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_thread_fence
/* The implicit forms are not house style; without a definition they do not compile, so none can slip past. */
#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_fetch_or
#undef atomic_fetch_and

#define MDL__POINT(what, p) mdl_point(what, #p, __FILE__, __LINE__)
#define MDL__SC __ATOMIC_SEQ_CST

#ifdef __clang__
#define MDL__LOAD(p) __c11_atomic_load((p), MDL__SC)
#define MDL__STORE(p, v) __c11_atomic_store((p), (v), MDL__SC)
#define MDL__XCHG(p, v) __c11_atomic_exchange((p), (v), MDL__SC)
#define MDL__CAS(p, e, v) __c11_atomic_compare_exchange_strong((p), (e), (v), MDL__SC, MDL__SC)
#define MDL__FETCH(op, p, v) __c11_atomic_fetch_##op((p), (v), MDL__SC)
#else
#define MDL__LOAD(p) __atomic_load_n((p), MDL__SC)
#define MDL__STORE(p, v) __atomic_store_n((p), (v), MDL__SC)
#define MDL__XCHG(p, v) __atomic_exchange_n((p), (v), MDL__SC)
#define MDL__CAS(p, e, v) __atomic_compare_exchange_n((p), (e), (v), false, MDL__SC, MDL__SC)
#define MDL__FETCH(op, p, v) __atomic_fetch_##op((p), (v), MDL__SC)
#endif

#define atomic_load_explicit(p, mo) (MDL__POINT("load", p), MDL__LOAD(p))
#define atomic_store_explicit(p, v, mo) (MDL__POINT("store", p), MDL__STORE(p, v))
#define atomic_exchange_explicit(p, v, mo) (MDL__POINT("exchange", p), MDL__XCHG(p, v))
#define atomic_compare_exchange_strong_explicit(p, e, v, ok, no) (MDL__POINT("cas", p), MDL__CAS(p, e, v))
#define atomic_compare_exchange_weak_explicit(p, e, v, ok, no) (MDL__POINT("cas", p), MDL__CAS(p, e, v))
#define atomic_fetch_add_explicit(p, v, mo) (MDL__POINT("fetch_add", p), MDL__FETCH(add, p, v))
#define atomic_fetch_sub_explicit(p, v, mo) (MDL__POINT("fetch_sub", p), MDL__FETCH(sub, p, v))
#define atomic_fetch_or_explicit(p, v, mo) (MDL__POINT("fetch_or", p), MDL__FETCH(or, p, v))
#define atomic_fetch_and_explicit(p, v, mo) (MDL__POINT("fetch_and", p), MDL__FETCH(and, p, v))

/* sched/runq.h: plain accesses to slots. */
#define MRT__RUNQ_SLOT_POINT() mdl_point("slot", "", __FILE__, __LINE__)

/*
 * Stands in for base/lock.h: a waiter does not spin (that would be an endless schedule) but is not runnable until the
 * lock is free.
 */
#define MRT_BASE_LOCK_H

struct mrt__lock {
	atomic_uchar held;
};

static inline bool mdl__lock_is_free(const void *lock)
{
	return !((const struct mrt__lock *)lock)->held;
}

static inline bool mrt__lock_try(struct mrt__lock *l)
{
	bool won;

	mdl_point("lock_try", "", __FILE__, __LINE__);
	won = !l->held;
	l->held = 1;
	return won;
}

static inline void mrt__lock(struct mrt__lock *l)
{
	mdl_point("lock", "", __FILE__, __LINE__);
	mdl_wait(mdl__lock_is_free, l);
	l->held = 1;
}

static inline void mrt__unlock(struct mrt__lock *l)
{
	mdl_point("unlock", "", __FILE__, __LINE__);
	mdl_assert(l->held);
	l->held = 0;
}

#endif
