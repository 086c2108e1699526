/* SPDX-License-Identifier: MIT */
/* The real clock; tests/lib has the virtual one. */
#include "base/clock.h"

#include <time.h>

uint64_t mrt__clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * MRT__NS_PER_SEC + (uint64_t)ts.tv_nsec;
}
