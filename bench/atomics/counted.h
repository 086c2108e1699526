/* SPDX-License-Identifier: MIT */
/*
 * Force-included (-include) before the library's sources in bench/count_atomics: counts what makes workers wait for each other,
 * read-modify-writes and writes to lines that another thread wrote last. They are counted in the source's terms, so the figures
 * are the same on every machine; those of one x86-64 are its lock-prefixed instructions.
 *
 * Counted: the compiler's __atomic builtins, which <stdatomic.h> is made of (clang: __c11_atomic), and mutexes. Not counted:
 * loads, plain stores, what the C library and the kernel do.
 */
#ifndef BENCH_ATOMICS_COUNTED_H
#define BENCH_ATOMICS_COUNTED_H

#include <pthread.h>
#include <stdatomic.h>

/* A read-modify-write, or a store that is one (seq_cst). @thread any */
void bench_counted_rmw(const volatile void *p);

/* Another atomic store. @thread any */
void bench_counted_store(const volatile void *p);

/* The order decides what a store is. */
static inline void bench_counted_store_of(const volatile void *p, int order)
{
	if (order == __ATOMIC_SEQ_CST)
		bench_counted_rmw(p);
	else
		bench_counted_store(p);
}

/* A macro's own name in its body is not expanded again. */
#define __atomic_fetch_add(p, ...) (bench_counted_rmw(p), __atomic_fetch_add(p, __VA_ARGS__))
#define __atomic_fetch_sub(p, ...) (bench_counted_rmw(p), __atomic_fetch_sub(p, __VA_ARGS__))
#define __atomic_fetch_or(p, ...) (bench_counted_rmw(p), __atomic_fetch_or(p, __VA_ARGS__))
#define __atomic_fetch_and(p, ...) (bench_counted_rmw(p), __atomic_fetch_and(p, __VA_ARGS__))
#define __atomic_fetch_xor(p, ...) (bench_counted_rmw(p), __atomic_fetch_xor(p, __VA_ARGS__))
#define __atomic_exchange(p, ...) (bench_counted_rmw(p), __atomic_exchange(p, __VA_ARGS__))
#define __atomic_exchange_n(p, ...) (bench_counted_rmw(p), __atomic_exchange_n(p, __VA_ARGS__))
#define __atomic_compare_exchange(p, ...) (bench_counted_rmw(p), __atomic_compare_exchange(p, __VA_ARGS__))
#define __atomic_compare_exchange_n(p, ...) (bench_counted_rmw(p), __atomic_compare_exchange_n(p, __VA_ARGS__))
#define __atomic_test_and_set(p, ...) (bench_counted_rmw(p), __atomic_test_and_set(p, __VA_ARGS__))
#define __atomic_store(p, v, order) (bench_counted_store_of(p, order), __atomic_store(p, v, order))
#define __atomic_store_n(p, v, order) (bench_counted_store_of(p, order), __atomic_store_n(p, v, order))

#ifdef __clang__
#define __c11_atomic_fetch_add(p, ...) (bench_counted_rmw(p), __c11_atomic_fetch_add(p, __VA_ARGS__))
#define __c11_atomic_fetch_sub(p, ...) (bench_counted_rmw(p), __c11_atomic_fetch_sub(p, __VA_ARGS__))
#define __c11_atomic_fetch_or(p, ...) (bench_counted_rmw(p), __c11_atomic_fetch_or(p, __VA_ARGS__))
#define __c11_atomic_fetch_and(p, ...) (bench_counted_rmw(p), __c11_atomic_fetch_and(p, __VA_ARGS__))
#define __c11_atomic_fetch_xor(p, ...) (bench_counted_rmw(p), __c11_atomic_fetch_xor(p, __VA_ARGS__))
#define __c11_atomic_exchange(p, ...) (bench_counted_rmw(p), __c11_atomic_exchange(p, __VA_ARGS__))
#define __c11_atomic_compare_exchange_strong(p, ...)                                                                   \
	(bench_counted_rmw(p), __c11_atomic_compare_exchange_strong(p, __VA_ARGS__))
#define __c11_atomic_compare_exchange_weak(p, ...)                                                                     \
	(bench_counted_rmw(p), __c11_atomic_compare_exchange_weak(p, __VA_ARGS__))
#define __c11_atomic_store(p, v, order) (bench_counted_store_of(p, order), __c11_atomic_store(p, v, order))
#endif

#define pthread_mutex_lock(m) (bench_counted_rmw(m), pthread_mutex_lock(m))
#define pthread_mutex_unlock(m) (bench_counted_rmw(m), pthread_mutex_unlock(m))

#endif
