/* SPDX-License-Identifier: MIT */
/*
 * Engines side by side: each round runs all of them in turn, so that what drifts on the machine hits them alike, and
 * ratios are taken between neighbours of one round. Of all figures the median over the rounds counts.
 */
#ifndef TOOLS_COMPARE_H
#define TOOLS_COMPARE_H

#include "result.h"

struct spread {
	double median, min, max;
};

struct engine_summary {
	const char *name;
	struct spread iops, cpu_us, p50_us, p99_us, p999_us, enters;
};

struct ratio_summary {
	const char *of, *to;
	struct spread iops, cpu;        /* of's figure divided by to's, per round */
};

struct compare {
	struct result *results;         /* [rounds * ENGINES_NR], in the order in which they ran */
	unsigned results_nr, rounds;
	struct engine_summary engine[ENGINES_NR];
	struct ratio_summary ratio[2];  /* martlet to raw, martlet to psync */
};

/* Fill in the summaries from the results that are there; rounds that are not whole are left out. */
void compare_summarise(struct compare *c);

/* Sorts values. nr 0: all zero. */
struct spread spread_of(double *values, unsigned nr);

#endif
