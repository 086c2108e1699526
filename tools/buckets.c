/* SPDX-License-Identifier: MIT */
/* See buckets.h. */
#include "buckets.h"

#include <stddef.h>

#define LAST (MRT_HIST_NR - 1u)

void buckets_add(struct buckets *b, const uint64_t now[MRT_HIST_NR], const uint64_t *before)
{
	unsigned i;

	for (i = 0; i < MRT_HIST_NR; i++) {
		uint64_t came = now[i] - (before ? before[i] : 0);

		b->bucket[i] += came;
		b->nr += came;
	}
}

uint64_t buckets_percentile(const struct buckets *b, double p)
{
	double rank = p / 100 * (double)b->nr, below = 0;
	uint64_t low, high;
	unsigned i;

	for (i = 0; b->nr && i < MRT_HIST_NR; i++) {
		double in = (double)b->bucket[i];

		if (in > 0 && below + in >= rank) {
			low = mrt_hist_min_ns(i);
			high = i < LAST ? mrt_hist_min_ns(i + 1) : low;
			return low + (uint64_t)((double)(high - low) * (rank > below ? (rank - below) / in : 0));
		}
		below += in;
	}
	return 0;
}

uint64_t buckets_longest(const struct buckets *b)
{
	unsigned i;

	for (i = MRT_HIST_NR; i-- > 0;) {
		if (b->bucket[i])
			return mrt_hist_min_ns(i);
	}
	return 0;
}

uint64_t buckets_mean(const struct buckets *b)
{
	return b->nr ? b->sum_ns / b->nr : 0;
}
