/* SPDX-License-Identifier: MIT */
/*
 * The clock: CLOCK_MONOTONIC in ns, the same that bpf_ktime_get_ns() gives. Everything above takes `now` as an
 * argument where it can, so that the simulated ring's virtual clock (tests/lib) replaces this file at link time.
 */
#ifndef MRT_BASE_CLOCK_H
#define MRT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MRT__NS_PER_US UINT64_C(1000)
#define MRT__NS_PER_MS UINT64_C(1000000)
#define MRT__NS_PER_SEC UINT64_C(1000000000)

/**
 * Now, in ns since an arbitrary start (boot).
 *
 * @thread  any
 * @blocks  never; about 23 ns by the vDSO
 */
uint64_t mrt__clock_now(void);

/* now + ns, saturated: "for ever" stays for ever. */
static inline uint64_t mrt__clock_add(uint64_t now, uint64_t ns)
{
	return now + ns < now ? UINT64_MAX : now + ns;
}

/* For the kernel and pthreads: a moment or a time, saturated at 68 years, which every time_t holds. */
static inline struct timespec mrt__clock_timespec(uint64_t ns)
{
	uint64_t sec = ns / MRT__NS_PER_SEC;

	return (struct timespec){ .tv_sec = (time_t)(sec < INT32_MAX ? sec : INT32_MAX), .tv_nsec = (long)(ns % MRT__NS_PER_SEC) };
}

#endif
