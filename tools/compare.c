/* SPDX-License-Identifier: MIT */
/* Medians and neighbours' ratios over the rounds of a comparison. */
#include "compare.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct spread spread_of(double *values, unsigned nr)
{
	struct spread s = { 0, 0, 0 };

	if (nr == 0)
		return s;
	qsort(values, nr, sizeof(*values), by_value);
	s.min = values[0];
	s.max = values[nr - 1];
	s.median = nr % 2 ? values[nr / 2] : (values[nr / 2 - 1] + values[nr / 2]) / 2;
	return s;
}

static const struct result *result_at(const struct compare *c, unsigned round, unsigned engine)
{
	return &c->results[round * ENGINES_NR + engine];
}

/* ---- figures of one run ---- */

typedef double figure_fn(const struct result *r);

static double cpu_us(const struct result *r)
{
	return r->cpu_us_per_io;
}

static double p_us(const struct result *r, double percentile)
{
	struct hist lat;

	result_lat_all(r, &lat);
	return (double)hist_percentile(&lat, percentile) / 1e3;
}

static double p50_us(const struct result *r)
{
	return p_us(r, 50);
}

static double p99_us(const struct result *r)
{
	return p_us(r, 99);
}

static double p999_us(const struct result *r)
{
	return p_us(r, 99.9);
}

/* ---- over the rounds ---- */

static struct spread spread_of_figure(const struct compare *c, unsigned rounds, unsigned engine, figure_fn *figure)
{
	double *values = calloc(rounds + 1, sizeof(*values));
	struct spread s = { 0, 0, 0 };

	if (!values)
		return s;
	for (unsigned i = 0; i < rounds; i++)
		values[i] = figure(result_at(c, i, engine));
	s = spread_of(values, rounds);
	free(values);
	return s;
}

static struct spread spread_of_ratio(const struct compare *c, unsigned rounds, unsigned to, figure_fn *figure)
{
	double *values = calloc(rounds + 1, sizeof(*values));
	struct spread s = { 0, 0, 0 };
	unsigned n = 0;

	if (!values)
		return s;
	for (unsigned i = 0; i < rounds; i++) {
		double below = figure(result_at(c, i, to));

		if (below > 0)
			values[n++] = figure(result_at(c, i, ENGINE_MARTLET)) / below;
	}
	s = spread_of(values, n);
	free(values);
	return s;
}

void compare_summarise(struct compare *c)
{
	static const enum opts_engine to[2] = { ENGINE_RAW, ENGINE_PSYNC };
	unsigned rounds = c->results_nr / ENGINES_NR;

	c->rounds = rounds;
	for (unsigned e = 0; e < ENGINES_NR; e++) {
		struct engine_summary *s = &c->engine[e];

		s->name = opts_engine_name((enum opts_engine)e);
		s->iops = spread_of_figure(c, rounds, e, result_iops_all);
		s->cpu_us = spread_of_figure(c, rounds, e, cpu_us);
		s->p50_us = spread_of_figure(c, rounds, e, p50_us);
		s->p99_us = spread_of_figure(c, rounds, e, p99_us);
		s->p999_us = spread_of_figure(c, rounds, e, p999_us);
		s->enters = spread_of_figure(c, rounds, e, result_enters_per_io);
	}
	for (unsigned i = 0; i < 2; i++) {
		c->ratio[i].of = opts_engine_name(ENGINE_MARTLET);
		c->ratio[i].to = opts_engine_name(to[i]);
		c->ratio[i].iops = spread_of_ratio(c, rounds, to[i], result_iops_all);
		c->ratio[i].cpu = spread_of_ratio(c, rounds, to[i], cpu_us);
	}
}
