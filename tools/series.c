/* SPDX-License-Identifier: MIT */
/*
 * Running, medians, neighbours' ratios, and what makes the figures doubtful. A round that Ctrl-C cut short is not in the
 * medians, but its results stay in the report.
 */
#include "series.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "target.h"
#include "verify.h"

int series_init(struct series *s, const struct series_variant *variants, unsigned variants_nr, unsigned rounds)
{
	*s = (struct series){ .variants = variants, .variants_nr = variants_nr, .rounds_max = rounds };
	s->results = calloc((size_t)rounds * variants_nr, sizeof(*s->results));
	s->summary = calloc(variants_nr, sizeof(*s->summary));
	return s->results && s->summary ? 0 : -ENOMEM;
}

void series_fini(struct series *s)
{
	for (unsigned i = 0; i < s->results_nr; i++)
		result_free(&s->results[i]);
	free(s->results);
	free(s->summary);
	*s = (struct series){ 0 };
}

/* --- running --- */

static void make_label(char *buf, size_t buf_bytes, const struct series_variant *v, unsigned round, unsigned rounds,
		       bool read_back)
{
	const char *name = v->name ? v->name : v->engine->name;

	if (round)
		snprintf(buf, buf_bytes, "round %u/%u %s", round, rounds, name);
	else
		snprintf(buf, buf_bytes, "%s%s", name, read_back ? " verify" : "");
}

int series_run_one(const struct series_variant *v, const struct series_env *env, unsigned round, unsigned rounds,
		   bool read_back, struct result *ret)
{
	char label[64];
	struct control_view view = { .live = env->live, .status_s = v->o->status_interval_s, .label = label };
	struct run r;
	int rc;

	rc = run_init(&r, v->o, v->targets, v->engine, env->verify, read_back);
	if (rc) {
		fprintf(stderr, "martlet bench: %s: setting up: %s\n", v->engine->name, strerror(-rc));
		return rc;
	}
	make_label(label, sizeof(label), v, round, rounds, read_back);
	rc = control_run(&r, v->engine, &view, env->stop, ret);
	run_fini(&r);
	if (rc) {
		result_free(ret);
		fprintf(stderr, "martlet bench: engine %s did not run: %s\n", v->engine->name, strerror(-rc));
		return rc;
	}
	result_set_round(ret, v->name, round);
	return 0;
}

static bool is_stopped(const struct series_env *env)
{
	return atomic_load_explicit(env->stop, memory_order_relaxed) != 0; /* relaxed: a flag */
}

int series_run(struct series *s, const struct series_env *env)
{
	for (unsigned round = 1; round <= s->rounds_max; round++) {
		for (unsigned i = 0; i < s->variants_nr && !is_stopped(env); i++) {
			struct result *res = &s->results[s->results_nr];
			int rc = series_run_one(&s->variants[series_turn(s, round - 1, i)], env, round, s->rounds_max, false, res);

			if (rc)
				return rc;
			s->results_nr++;
			if (env->each)
				env->each(res, env->ctx);
		}
	}
	return 0;
}

unsigned series_turn(const struct series *s, unsigned round, unsigned nth)
{
	return round % 2 ? s->variants_nr - 1 - nth : nth;
}

const struct result *series_at(const struct series *s, unsigned round, unsigned variant)
{
	return &s->results[round * s->variants_nr + series_turn(s, round, variant)];
}

/* --- spreads --- */

struct spread spread_of(double *values, unsigned nr)
{
	struct spread s = { 0, 0, 0 };

	if (nr == 0)
		return s;
	sort_values(values, nr);
	s.min = values[0];
	s.max = values[nr - 1];
	s.median = nr % 2 ? values[nr / 2] : (values[nr / 2 - 1] + values[nr / 2]) / 2;
	return s;
}

double spread_pct(const struct spread *s)
{
	return s->median > 0 ? (s->max - s->min) / s->median * 100 : 0;
}

double series_cpu_us(const struct result *r)
{
	return r->cpu_us_per_io;
}

static double bw(const struct result *r)
{
	return result_bw(r, DIR_READ) + result_bw(r, DIR_WRITE);
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

static struct spread spread_of_figure(const struct series *s, unsigned variant, series_figure *figure)
{
	double *values = calloc(s->rounds + 1, sizeof(*values));
	struct spread spread = { 0, 0, 0 };

	if (!values)
		return spread;
	for (unsigned i = 0; i < s->rounds; i++)
		values[i] = figure(series_at(s, i, variant));
	spread = spread_of(values, s->rounds);
	free(values);
	return spread;
}

struct ratio series_ratio(const struct series *s, unsigned of, unsigned to, series_figure *figure)
{
	double *values = calloc(s->rounds + 1, sizeof(*values));
	struct ratio q = { 0 };
	unsigned n = 0;

	if (!values)
		return q;
	for (unsigned i = 0; i < s->rounds; i++) {
		double below = figure(series_at(s, i, to));

		if (below > 0)
			values[n++] = figure(series_at(s, i, of)) / below;
	}
	q.ci = bootstrap_median(values, n);
	q.spread = spread_of(values, n);
	free(values);
	return q;
}

/* --- doubts --- */

__attribute__((format(printf, 2, 3)))
static void warn(struct series *s, const char *fmt, ...)
{
	va_list ap;

	if (s->warnings_nr == SERIES_WARNINGS_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(s->warning[s->warnings_nr++], sizeof(s->warning[0]), fmt, ap);
	va_end(ap);
}

/* The worst of the runs, once. */
static void warn_of_machine(struct series *s)
{
	double other = 0, steal = 0, throttled_ms = 0;
	uint64_t hot = 0;

	for (unsigned i = 0; i < s->results_nr; i++) {
		const struct result *r = &s->results[i];

		other = fmax(other, r->other_cpus);
		steal = fmax(steal, r->steal_cpus);
		throttled_ms += r->throttled_ms;
		hot += r->hot_throttles;
	}
	if (other > SERIES_OTHER_CPUS_MAX)
		warn(s, "in some round others used %.2f CPUs", other);
	if (steal > SERIES_STEAL_CPUS_MAX)
		warn(s, "in some round the hypervisor took %.2f CPUs", steal);
	if (throttled_ms > 0)
		warn(s, "the CPU limit of this control group stopped the runs for %.0f ms", throttled_ms);
	if (hot)
		warn(s, "CPUs were slowed down for heat %llu times", (unsigned long long)hot);
}

static void warn_of_spread(struct series *s, const struct series_summary *sum)
{
	double pct = spread_pct(&sum->iops);

	if (pct > SERIES_SPREAD_PCT_MAX)
		warn(s, "%s%sIOPS of the %u runs are %.0f %% apart", sum->name ? sum->name : "", sum->name ? ": " : "",
		     s->rounds, pct);
}

void series_summarise(struct series *s)
{
	s->rounds = s->results_nr / s->variants_nr;
	while (s->rounds && s->results[s->rounds * s->variants_nr - 1].interrupted)
		s->rounds--;
	s->warnings_nr = 0;
	for (unsigned i = 0; i < s->variants_nr; i++) {
		struct series_summary *sum = &s->summary[i];

		sum->name = s->variants[i].name;
		sum->iops = spread_of_figure(s, i, result_iops_all);
		sum->bw = spread_of_figure(s, i, bw);
		sum->cpu_us = spread_of_figure(s, i, series_cpu_us);
		sum->p50_us = spread_of_figure(s, i, p50_us);
		sum->p99_us = spread_of_figure(s, i, p99_us);
		sum->p999_us = spread_of_figure(s, i, p999_us);
		sum->enters = spread_of_figure(s, i, result_enters_per_io);
		warn_of_spread(s, sum);
	}
	warn_of_machine(s);
}
