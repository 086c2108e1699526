/* SPDX-License-Identifier: MIT */
/* The benchmark's clock, CLOCK_MONOTONIC in ns: the one that every engine is stamped with (about 23 ns a read). */
#ifndef TOOLS_CLOCK_H
#define TOOLS_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_SEC UINT64_C(1000000000)
#define CLOCK_NS_PER_MS UINT64_C(1000000)
#define CLOCK_NS_PER_US UINT64_C(1000)

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / CLOCK_NS_PER_SEC), (long)(ns % CLOCK_NS_PER_SEC) };
}

#endif
