/* SPDX-License-Identifier: MIT */
/* The result for people: tables. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <stdio.h>

#include "ladder.h"
#include "merge.h"
#include "result.h"
#include "series.h"
#include "target.h"
#include "verify.h"

/* What is about to be measured: a few lines. */
void report_head(FILE *out, const struct bench_opts *o, const struct targets *ts);

/* What was merged; then report_run() of the sum. */
void report_merged(FILE *out, const struct bench_opts *o, const struct merged *m);

/* One run in full. v: its checks, or NULL. */
void report_run(FILE *out, const struct bench_opts *o, const struct targets *ts, const struct result *r,
		const struct verify *v);

/* One line for a run of a series. */
void report_round(FILE *out, const struct result *r);

/* Medians, spreads, warnings; of a comparison also the ratios. */
void report_series(FILE *out, const struct bench_opts *o, const struct series *s);

/* A series whose variants are the rungs. */
void report_ladder(FILE *out, const struct bench_opts *o, const struct ladder *l, const struct series *s);

/* "12.3k", "1.05M". */
const char *report_si(char buf[16], double n);

#endif
