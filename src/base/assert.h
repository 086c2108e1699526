/* SPDX-License-Identifier: MIT */
/*
 * Assertions. mrt__assert() stays on in release and is O(1); mrt__assert_slow() walks structures and is on in
 * Debug builds (MRT_DEBUG); mrt__bug() is for what a switch cannot reach and for broken user contracts: going on
 * would corrupt memory, so the process ends with a sentence.
 */
#ifndef MRT_BASE_ASSERT_H
#define MRT_BASE_ASSERT_H

/**
 * Print "martlet: " and the message to standard error and abort().
 *
 * @thread  any
 * @blocks  never returns
 */
__attribute__((noreturn, cold, format(printf, 3, 4)))
void mrt__bug_at(const char *file, int line, const char *fmt, ...);

#define mrt__bug(...) mrt__bug_at(__FILE__, __LINE__, __VA_ARGS__)

#define mrt__assert(c) do {                                     \
	if (__builtin_expect(!(c), 0))                          \
		mrt__bug("assertion failed: %s", #c);           \
} while (0)

#ifdef MRT_DEBUG
#define mrt__assert_slow(c) mrt__assert(c)
#else
#define mrt__assert_slow(c) do { } while (0)
#endif

#endif
