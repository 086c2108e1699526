/* SPDX-License-Identifier: MIT */
/* Compiler vocabulary: branch hints, alignment, containers. */
#ifndef MRT_BASE_COMPILER_H
#define MRT_BASE_COMPILER_H

#include <stddef.h>

#define mrt__likely(c) __builtin_expect(!!(c), 1)
#define mrt__unlikely(c) __builtin_expect(!!(c), 0)

/* Two lines: the adjacent-line prefetcher of x86-64 makes pairs of lines the unit of false sharing. */
#define MRT__CACHE_PAIR 128
#define mrt__cache_aligned __attribute__((aligned(MRT__CACHE_PAIR)))

#define mrt__container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - offsetof(type, member)))

#define MRT__ARRAY_NR(a) (sizeof(a) / sizeof((a)[0]))

#define mrt__min(a, b) ((a) < (b) ? (a) : (b))
#define mrt__max(a, b) ((a) > (b) ? (a) : (b))

/* Tell the core that this is a spin loop. */
static inline void mrt__cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* An optional build tells memcheck what the kernel wrote. */
#ifndef MRT_VALGRIND
#define MRT_VALGRIND 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define MRT__ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MRT__ASAN 1
#endif
#endif
#ifndef MRT__ASAN
#define MRT__ASAN 0
#endif

#endif
