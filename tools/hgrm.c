/* SPDX-License-Identifier: MIT */
/* The iteration is that of HdrHistogram's percentile iterator: a bucket that spans several steps is a line for each. */
#include "hgrm.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include "output.h"

#define STEPS_PER_HALVING 5.0

static double next_level(double level)
{
	return level + 100 / (STEPS_PER_HALVING * exp2(floor(log2(100 / (100 - level))) + 1));
}

static double upper_us(const struct hist *h, unsigned idx)
{
	uint64_t high = idx + 1 < HIST_BUCKETS_NR ? hist_bucket_low(idx + 1) - 1 : h->max;

	return (double)(high < h->max ? high : h->max) / 1e3;
}

static void put_levels(FILE *out, const struct hist *h, uint64_t n)
{
	uint64_t seen = 0;
	double level = 0;

	for (unsigned i = 0; i < HIST_BUCKETS_NR && seen < n; i++) {
		if (!h->bucket[i])
			continue;
		seen += h->bucket[i];
		while (level < 100 && (double)seen * 100 / (double)n >= level) {
			fprintf(out, "%12.3f %2.12f %10" PRIu64 " %14.2f\n", upper_us(h, i), level / 100, seen,
				1 / (1 - level / 100));
			level = next_level(level);
			if (seen == n)
				break;  /* what remains is the last line */
		}
	}
	if (n)
		fprintf(out, "%12.3f %2.12f %10" PRIu64 "\n", (double)h->max / 1e3, 1.0, n);
}

int hgrm_write(FILE *out, const struct hist *h)
{
	uint64_t n = hist_count(h);

	fprintf(out, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
	put_levels(out, h, n);
	fprintf(out, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", hist_mean(h) / 1e3, hist_stddev(h) / 1e3);
	fprintf(out, "#[Max     = %12.3f, Total count    = %12" PRIu64 "]\n", (double)h->max / 1e3, n);
	fprintf(out, "#[Buckets = %12u, SubBuckets     = %12u]\n", HIST_BUCKETS_NR / HIST_SUB_NR, HIST_SUB_NR);
	return output_flush(out);
}

int hgrm_save(const char *path, const struct hist *h)
{
	FILE *f = fopen(path, "we");
	int rc;

	if (!f)
		return -errno;
	rc = hgrm_write(f, h);
	if (fclose(f) && rc == 0)
		rc = -errno;
	return rc;
}
