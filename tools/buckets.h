/* SPDX-License-Identifier: MIT */
/* Histograms as the statistics have them (mrt_hists): what came between two looks, and its percentiles. */
#ifndef TOOLS_BUCKETS_H
#define TOOLS_BUCKETS_H

#include <stdint.h>

#include <martlet/stats.h>

struct buckets {
	uint64_t nr, sum_ns;
	uint64_t bucket[MRT_HIST_NR];
};

/* Add what has come since `before` (NULL: all). */
void buckets_add(struct buckets *b, const uint64_t now[MRT_HIST_NR], const uint64_t *before);

/**
 * The value that p per cent do not exceed, as far as buckets tell: evenly spread over the one that it is in.
 *
 * @param p  0..100
 * @return ns; 0 when empty
 */
uint64_t buckets_percentile(const struct buckets *b, double p);

/* Where the highest bucket that holds something begins: one took so long at least, ns. 0 when empty. */
uint64_t buckets_longest(const struct buckets *b);

/* 0 when empty. */
uint64_t buckets_mean(const struct buckets *b);

#endif
