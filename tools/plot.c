/* SPDX-License-Identifier: MIT */
/* Results to charts. Points of time are the controller's, about one a second. */
#include "plot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "svg.h"

static int write_file(const char *path, const struct svg_chart *c)
{
	FILE *f = fopen(path, "we");
	int rc;

	if (!f)
		return -errno;
	rc = svg_write(f, c);
	if (fclose(f) && rc == 0)
		rc = -errno;
	return rc;
}

static void make_title(char buf[160], const struct bench_opts *o)
{
	snprintf(buf, 160, "%.60s: %s, bs %llu, depth %u x %u", o->name, o->rw, (unsigned long long)o->bs, o->iodepth,
		 o->numjobs);
}

/* --- over time --- */

/* [nr] of x, then of each direction. */
static void fill_rates(const struct result *r, double *x, double *y[DIRS_NR])
{
	uint32_t before = 0;

	for (unsigned i = 0; i < r->series_nr; i++) {
		const struct series_point *p = &r->series[i];
		double seconds = (double)(p->ms - before) / 1e3;

		x[i] = (double)p->ms / 1e3;
		for (unsigned d = 0; d < DIRS_NR; d++)
			y[d][i] = seconds > 0 ? (double)p->ios[d] / seconds : 0;
		before = p->ms;
	}
}

static int plot_time(const char *path, const struct bench_opts *o, const struct result *r)
{
	static const char *const names[DIRS_NR] = { "read", "write" };
	unsigned nr = r->series_nr;
	double *x, *y[DIRS_NR];
	struct svg_series lines[DIRS_NR];
	struct svg_chart c = { .kind = SVG_LINES, .x_label = "time, s", .y_label = "IOPS", .series = lines, .nr = nr };
	char title[160];
	int rc;

	if (nr == 0)
		return -ENODATA;
	x = calloc((1 + DIRS_NR) * (size_t)nr, sizeof(*x));
	if (!x)
		return -ENOMEM;
	for (unsigned d = 0; d < DIRS_NR; d++)
		y[d] = x + (1 + d) * (size_t)nr;
	fill_rates(r, x, y);
	for (unsigned d = 0; d < DIRS_NR; d++) {
		if (r->dir[d].ios)
			lines[c.series_nr++] = (struct svg_series){ .name = names[d], .x = x, .y = y[d] };
	}
	make_title(title, o);
	c.title = title;
	rc = c.series_nr ? write_file(path, &c) : -ENODATA;
	free(x);
	return rc;
}

/* --- bars --- */

struct bars {
	double *y, *low, *high;
	const char **names;
	char (*text)[16];       /* where names are numbers */
};

static int plot_bars(const char *path, const struct bench_opts *o, const struct series *s, bool runs)
{
	unsigned nr = runs ? s->results_nr : s->variants_nr;
	struct bars b = {
		calloc(nr, sizeof(*b.y)), calloc(nr, sizeof(*b.low)), calloc(nr, sizeof(*b.high)),
		calloc(nr, sizeof(*b.names)), calloc(nr, sizeof(*b.text)),
	};
	struct svg_series bars = { .name = "IOPS", .y = b.y, .low = runs ? NULL : b.low, .high = runs ? NULL : b.high };
	struct svg_chart c = {
		.kind = SVG_BARS, .x_label = runs ? "run" : "median of the rounds, lowest to highest", .y_label = "IOPS",
		.categories = b.names, .nr = nr, .series = &bars, .series_nr = 1,
	};
	char title[160];
	int rc = -ENOMEM;

	make_title(title, o);
	c.title = title;
	for (unsigned i = 0; b.y && b.low && b.high && b.names && b.text && i < nr; i++) {
		const struct spread *iops = runs ? NULL : &s->summary[i].iops;

		snprintf(b.text[i], sizeof(b.text[i]), "%u", i + 1);
		b.names[i] = runs ? b.text[i] : s->summary[i].name;
		b.y[i] = runs ? result_iops_all(&s->results[i]) : iops->median;
		b.low[i] = runs ? 0 : iops->min;
		b.high[i] = runs ? 0 : iops->max;
		rc = 0;
	}
	if (rc == 0)
		rc = write_file(path, &c);
	free(b.y);
	free(b.low);
	free(b.high);
	free(b.names);
	free(b.text);
	return rc;
}

int plot_write(const char *path, const struct bench_opts *o, const struct series *s)
{
	if (s->results_nr == 0)
		return -ENODATA;
	if (s->variants_nr > 1)
		return s->rounds ? plot_bars(path, o, s, false) : -ENODATA;
	return s->results[0].round ? plot_bars(path, o, s, true) : plot_time(path, o, &s->results[0]);
}

/* Two figures of different units in one chart: each to that of the first bar, which the title gives in full. */
int plot_ladder(const char *path, const struct bench_opts *o, const struct ladder *l, const struct series *s)
{
	double iops[RUNGS_NR], cpu[RUNGS_NR];
	const char *names[RUNGS_NR];
	struct svg_series bars[2] = { { .name = "IOPS", .y = iops }, { .name = "CPU time per I/O", .y = cpu } };
	struct svg_chart c = {
		.kind = SVG_BARS, .x_label = "rung", .y_label = "relative to the first rung", .categories = names,
		.series = bars, .series_nr = 2,
	};
	const struct series_summary *first = NULL;
	char base[160], title[360];

	for (unsigned i = 0; i < RUNGS_NR && s->rounds; i++) {
		const struct series_summary *sum;

		if (l->rung[i].reason[0])
			continue;
		sum = &s->summary[l->rung[i].variant];
		first = first ? first : sum;
		names[c.nr] = l->rung[i].name;
		iops[c.nr] = first->iops.median > 0 ? sum->iops.median / first->iops.median : 0;
		cpu[c.nr++] = first->cpu_us.median > 0 ? sum->cpu_us.median / first->cpu_us.median : 0;
	}
	if (!first)
		return -ENODATA;
	make_title(base, o);
	snprintf(title, sizeof(title), "%s; %s: %.0f IOPS, %.2f us of CPU per I/O", base, first->name, first->iops.median,
		 first->cpu_us.median);
	c.title = title;
	return write_file(path, &c);
}
