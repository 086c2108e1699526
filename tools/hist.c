/* SPDX-License-Identifier: MIT */
/*
 * Reading a histogram. All walks are over HIST_BUCKETS_NR counters, microseconds of work, and only at the end of a
 * run, so nothing is cached. Debian 12 packages no C library for HdrHistogram or circllhist; hence our own.
 */
#include "hist.h"

#include <math.h>
#include <string.h>

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

void hist_merge(struct hist *to, const struct hist *from)
{
	to->sum += from->sum;
	if (from->max > to->max)
		to->max = from->max;
	if (from->min < to->min)
		to->min = from->min;
	for (unsigned i = 0; i < HIST_BUCKETS_NR; i++)
		to->bucket[i] += from->bucket[i];
}

uint64_t hist_count(const struct hist *h)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < HIST_BUCKETS_NR; i++)
		n += h->bucket[i];
	return n;
}

static unsigned bucket_shift(unsigned idx)
{
	return idx < 2 * HIST_SUB_NR ? 0 : idx / HIST_SUB_NR - 1;
}

uint64_t hist_bucket_low(unsigned idx)
{
	unsigned shift = bucket_shift(idx);

	return (uint64_t)(idx - shift * HIST_SUB_NR) << shift;
}

uint64_t hist_bucket_mid(unsigned idx)
{
	unsigned shift = bucket_shift(idx);

	return hist_bucket_low(idx) + (shift ? UINT64_C(1) << (shift - 1) : 0);
}

bool hist_add_bucket(struct hist *h, uint64_t low, uint64_t count)
{
	unsigned idx = hist_index(low);

	if (hist_bucket_low(idx) != low)
		return false;
	h->bucket[idx] += count;
	return true;
}

double hist_mean(const struct hist *h)
{
	uint64_t n = hist_count(h);

	return n ? (double)h->sum / (double)n : 0;
}

double hist_stddev(const struct hist *h)
{
	double mean = hist_mean(h), squares = 0;
	uint64_t n = hist_count(h);

	for (unsigned i = 0; i < HIST_BUCKETS_NR; i++) {
		double d = (double)hist_bucket_mid(i) - mean;

		squares += (double)h->bucket[i] * d * d;
	}
	return n ? sqrt(squares / (double)n) : 0;
}

static uint64_t clamp(const struct hist *h, uint64_t v)
{
	if (v < h->min)
		return h->min;
	return v > h->max ? h->max : v;
}

uint64_t hist_percentile(const struct hist *h, double p)
{
	uint64_t n = hist_count(h), want, seen = 0;

	if (n == 0)
		return 0;
	want = (uint64_t)ceil(p / 100.0 * (double)n);
	if (want <= 1)
		return h->min;
	if (want >= n)
		return h->max;
	for (unsigned i = 0; i < HIST_BUCKETS_NR; i++) {
		seen += h->bucket[i];
		if (seen >= want)
			return clamp(h, hist_bucket_mid(i));
	}
	return h->max;
}

uint64_t hist_count_below(const struct hist *h, uint64_t below)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < HIST_BUCKETS_NR && hist_bucket_low(i) < below; i++)
		n += h->bucket[i];
	return n;
}
