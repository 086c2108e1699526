/* SPDX-License-Identifier: MIT */
/*
 * The same thing several times: a list of variants of a load, run in turn, round by round and every second round in the
 * opposite order, so that what drifts on the machine hits them alike. Of each figure the median over the rounds counts;
 * ratios of two variants are taken between neighbours of one round, and have a bootstrap interval. A comparison of engines is a series, and so is --repeat, with one variant.
 */
#ifndef TOOLS_SERIES_H
#define TOOLS_SERIES_H

#include <stdatomic.h>
#include <stdio.h>

#include "bootstrap.h"
#include "control.h"
#include "result.h"

#define SERIES_SPREAD_PCT_MAX 10.0      /* what is above is warned of */
#define SERIES_OTHER_CPUS_MAX 0.2
#define SERIES_STEAL_CPUS_MAX 0.03
#define SERIES_WARNINGS_MAX 12u

struct targets;
struct verify;

/* What is run: all of it may differ from variant to variant, and lives as long as the series. */
struct series_variant {
	const char *name;               /* NULL: the only one */
	const struct bench_opts *o;
	const struct targets *targets;
	const struct engine *engine;
};

/* What runs have in common. */
struct series_env {
	struct verify *verify;          /* NULL: no checks */
	const atomic_int *stop;         /* set by a signal: the run under way is the last, and is no whole round's */
	bool live;                      /* a line of progress on stderr */
	void (*each)(const struct result *r, void *ctx);        /* after each run of a series; NULL: nothing */
	void *ctx;
};

struct spread {
	double median, min, max;
};

struct ratio {
	struct spread spread;
	struct interval ci;             /* of the median, 95 % */
};

struct series_summary {
	const char *name;
	struct spread iops, bw, cpu_us, p50_us, p99_us, p999_us, enters;
};

struct series {
	const struct series_variant *variants;  /* [variants_nr] */
	unsigned variants_nr, rounds_max;
	struct result *results;         /* [rounds_max * variants_nr], as they were run: see series_turn() */
	unsigned results_nr;
	/* by series_summarise() */
	unsigned rounds;                /* whole ones */
	struct series_summary *summary; /* [variants_nr] */
	unsigned warnings_nr;
	char warning[SERIES_WARNINGS_MAX][160];
};

/* A figure of one run. */
typedef double series_figure(const struct result *r);
double series_cpu_us(const struct result *r);

/**
 * @param variants  [variants_nr], the caller's, kept
 * @return 0 or -ENOMEM; series_fini() in either case
 */
int series_init(struct series *s, const struct series_variant *variants, unsigned variants_nr, unsigned rounds);
void series_fini(struct series *s);

/* Run all rounds, or until stopped. 0, or -errno after a message: what has been run is there. */
int series_run(struct series *s, const struct series_env *env);

/**
 * One run, of a series (round from 1) or by itself (round 0).
 *
 * @param read_back  read what env->verify knows to be written, instead of what the options say
 * @param ret        overwritten; result_free() it on success
 * @return 0, or -errno after a message
 */
int series_run_one(const struct series_variant *v, const struct series_env *env, unsigned round, unsigned rounds,
		   bool read_back, struct result *ret);

/* Fill in the summaries and warnings from the results that are there; rounds that are not whole are left out. */
void series_summarise(struct series *s);

/* The variant whose turn it is, nth of a round from 0. In rounds 0, 2, 4.. the first is first. Its own inverse. */
unsigned series_turn(const struct series *s, unsigned round, unsigned nth);

const struct result *series_at(const struct series *s, unsigned round, unsigned variant);

/* One variant's figure divided by another's, round by round. */
struct ratio series_ratio(const struct series *s, unsigned of, unsigned to, series_figure *figure);

/* Sorts values. nr 0: all zero. */
struct spread spread_of(double *values, unsigned nr);

/* From the lowest to the highest, in per cent of the median. */
double spread_pct(const struct spread *s);

#endif
