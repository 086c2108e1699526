/* SPDX-License-Identifier: MIT */
/*
 * Log-linear histogram of nanoseconds, after HdrHistogram: 128 buckets for each power of two, so a bucket is at most
 * 1/128 of its value wide (0.78 %), and values below 256 ns are exact. Fixed size, no allocation, one increment and
 * three updates per record. Values from 2^42 ns (73 minutes) up share the last bucket; `max` stays exact.
 *
 * One thread records; others read after it has ended (the run's end orders that).
 */
#ifndef TOOLS_HIST_H
#define TOOLS_HIST_H

#include <stdbool.h>
#include <stdint.h>

#define HIST_SUB_BITS 7u
#define HIST_SUB_NR (1u << HIST_SUB_BITS)
#define HIST_TOP_BITS 42u
#define HIST_BUCKETS_NR ((HIST_TOP_BITS - HIST_SUB_BITS + 1) * HIST_SUB_NR)
#define HIST_VALUE_MAX ((UINT64_C(1) << HIST_TOP_BITS) - 1)

struct hist {
	uint64_t sum;           /* exact, for the mean */
	uint64_t min, max;      /* exact; min is UINT64_MAX while empty */
	uint64_t bucket[HIST_BUCKETS_NR];
};

/* Bucket of a value; shift is how many low bits the bucket ignores. */
static inline unsigned hist_index(uint64_t v)
{
	unsigned shift;

	if (__builtin_expect(v > HIST_VALUE_MAX, 0))
		v = HIST_VALUE_MAX;
	shift = 63u - (unsigned)__builtin_clzll(v | HIST_SUB_NR) - HIST_SUB_BITS;
	return shift * HIST_SUB_NR + (unsigned)(v >> shift);
}

static inline void hist_record(struct hist *h, uint64_t v)
{
	h->bucket[hist_index(v)]++;
	h->sum += v;
	if (v > h->max)
		h->max = v;
	if (v < h->min)
		h->min = v;
}

void hist_init(struct hist *h);

/* Add what `from` holds to `to`. */
void hist_merge(struct hist *to, const struct hist *from);

/* Add `count` values to the bucket that begins with `low`; sum, min and max are the caller's. false: none does. */
bool hist_add_bucket(struct hist *h, uint64_t low, uint64_t count);

/* Number of values recorded: a walk over the buckets, so that a record need not count. */
uint64_t hist_count(const struct hist *h);

/* 0 when empty. */
double hist_mean(const struct hist *h);

/* From the buckets' middles (error below 1 %); 0 when empty. */
double hist_stddev(const struct hist *h);

/**
 * Value at a percentile: the smallest recorded value, to a bucket's precision, that at least p per cent of all values
 * do not exceed. Clamped to min and max, so p = 0 and p = 100 are exact.
 *
 * @param p  0..100
 * @return ns; 0 when empty
 */
uint64_t hist_percentile(const struct hist *h, double p);

/* Number of values in [0, below): whole buckets whose lower end is under `below`. */
uint64_t hist_count_below(const struct hist *h, uint64_t below);

/* Lowest value of a bucket, and its middle. */
uint64_t hist_bucket_low(unsigned idx);
uint64_t hist_bucket_mid(unsigned idx);

#endif
