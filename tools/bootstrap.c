/* SPDX-License-Identifier: MIT */
/*
 * Of nr values in order, the median of a resample is decided by how often each was drawn. So a draw counts in place of
 * sorting: nr random numbers, then one walk to the middle.
 */
#include "bootstrap.h"

#include <stdlib.h>
#include <string.h>

#include "rng.h"

#define SEED 1u

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void sort_values(double *values, unsigned nr)
{
	qsort(values, nr, sizeof(*values), by_value);
}

/* The rank-th value, from 0, of a resample that drew sorted[i] times[i] times. */
static double nth(const double *sorted, const unsigned *times, unsigned rank)
{
	unsigned i = 0;

	for (unsigned seen = times[0]; seen <= rank; seen += times[i])
		i++;
	return sorted[i];
}

static double draw_median(const double *sorted, unsigned nr, uint64_t *state)
{
	unsigned times[BOOTSTRAP_VALUES_MAX] = { 0 };

	for (unsigned i = 0; i < nr; i++)
		times[rng_below(state, nr)]++;
	return nr % 2 ? nth(sorted, times, nr / 2) :
			(nth(sorted, times, nr / 2 - 1) + nth(sorted, times, nr / 2)) / 2;
}

struct interval bootstrap_median(const double *values, unsigned nr)
{
	static double medians[BOOTSTRAP_DRAWS];
	double sorted[BOOTSTRAP_VALUES_MAX];
	uint64_t state = rng_seed(SEED);

	if (nr == 0 || nr > BOOTSTRAP_VALUES_MAX)
		return (struct interval){ 0, 0 };
	memcpy(sorted, values, nr * sizeof(*values));
	sort_values(sorted, nr);
	for (unsigned i = 0; i < BOOTSTRAP_DRAWS; i++)
		medians[i] = draw_median(sorted, nr, &state);
	sort_values(medians, BOOTSTRAP_DRAWS);
	return (struct interval){ medians[BOOTSTRAP_DRAWS / 40], medians[BOOTSTRAP_DRAWS - 1 - BOOTSTRAP_DRAWS / 40] };
}
