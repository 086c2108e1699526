/* SPDX-License-Identifier: MIT */
/* --plot=FILE: what was measured, as a chart. */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include "ladder.h"
#include "series.h"

/**
 * A series of several variants: a bar of the median IOPS for each, from lowest to highest as its error bar. Of one
 * variant: a bar for each run. A single run: IOPS over time.
 *
 * @param s     summarised, or not a series but results_nr runs one after the other
 * @param path  overwritten
 * @return 0, -ENODATA (a run shorter than a second), or -errno
 */
int plot_write(const char *path, const struct bench_opts *o, const struct series *s);

/* Rungs that have figures: IOPS and CPU time per I/O of each, the lowest rung being 1. Otherwise as above. */
int plot_ladder(const char *path, const struct bench_opts *o, const struct ladder *l, const struct series *s);

#endif
