/* SPDX-License-Identifier: MIT */
/*
 * Sleep until a word changes, in one process. Any return is a reason to look again: woken, changed before, interrupted.
 * A wake is by address alone, so it is harmless where the word has gone meanwhile.
 */
#ifndef MRT_BASE_FUTEX_H
#define MRT_BASE_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/**
 * Sleep while the word is `value`.
 *
 * @blocks  until woken, or until_ns
 * @param until_ns  CLOCK_MONOTONIC; UINT64_MAX: no limit
 * @return false: that time is over
 */
static inline bool mrt__futex_wait(atomic_uint *word, unsigned value, uint64_t until_ns)
{
	struct timespec until = mrt__clock_timespec(until_ns);

	/* the form whose time is absolute */
	return !syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
			until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY) ||
	       errno != ETIMEDOUT;
}

/* Wake up to nr of those who sleep there. @blocks never */
static inline void mrt__futex_wake(atomic_uint *word, int nr)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, nr, NULL, NULL, 0); /* nobody there is fine */
}

#endif
