/* SPDX-License-Identifier: MIT */
/* How far a median of a few noisy figures can be trusted. Pure: no clock, no files. */
#ifndef TOOLS_BOOTSTRAP_H
#define TOOLS_BOOTSTRAP_H

struct interval {
	double low, high;
};

/* Sort in place, from the lowest up. @param values  [nr], none of them NaN */
void sort_values(double *values, unsigned nr);

#define BOOTSTRAP_DRAWS 10000u
#define BOOTSTRAP_VALUES_MAX 1000u

/**
 * The 95 % percentile interval of the median: resampled with replacement, always with the same random numbers, so that
 * the same figures give the same interval.
 *
 * @param values  [nr], in any order, untouched; nr is 0 (gives 0..0) to BOOTSTRAP_VALUES_MAX
 */
struct interval bootstrap_median(const double *values, unsigned nr);

#endif
