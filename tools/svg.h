/* SPDX-License-Identifier: MIT */
/*
 * A chart as SVG: lines over a numeric axis, or bars by category, with error bars. Written directly, so that the command
 * needs no plotting program. The y axis begins at 0 in both, as a chart of rates must to be honest.
 */
#ifndef TOOLS_SVG_H
#define TOOLS_SVG_H

#include <stdbool.h>
#include <stdio.h>

enum svg_kind {
	SVG_LINES,              /* y over x */
	SVG_BARS,               /* one bar a category and series, side by side */
};

struct svg_series {
	const char *name;       /* for the legend; shown if there is more than one series */
	const double *x;        /* [nr], rising; bars: NULL, bar i is of category i */
	const double *y;        /* [nr], 0 or more */
	const double *low, *high;       /* [nr] ends of the error bars; NULL: none */
};

struct svg_chart {
	enum svg_kind kind;
	const char *title, *x_label, *y_label;  /* labels with their units */
	const char *const *categories;  /* [nr] bars; NULL for lines */
	unsigned nr;            /* points of each series */
	const struct svg_series *series;        /* [series_nr] */
	unsigned series_nr;
	bool log_x;             /* lines: every x is above 0, and doubles count as equal steps */
};

/**
 * Write the whole document. Text may be anything in UTF-8: it is escaped.
 *
 * @param out  flushed, not closed
 * @return 0, -EINVAL (no series, or no points), or -EIO
 */
int svg_write(FILE *out, const struct svg_chart *c);

#endif
