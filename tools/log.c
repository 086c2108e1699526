/* SPDX-License-Identifier: MIT */
/*
 * The lanes of a job (threads of the psync engine) log apart and are put in order at the end. An averaged interval is
 * the same for all of them, counted from the start of the window, so that their means can be joined by their counts.
 */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "opts.h"
#include "output.h"

FILE *log_open(const char *prefix, const char *kind, unsigned job)
{
	char path[4200];

	snprintf(path, sizeof(path), "%.4096s_%s.%u.log", prefix, kind, job + 1);
	return fopen(path, "we");
}

static int check_one(const char *option, const char *prefix, const char *kind, FILE *err)
{
	FILE *f = prefix ? log_open(prefix, kind, 0) : NULL;

	if (prefix && !f) {
		int rc = -errno;

		fprintf(err, "martlet bench: --%s=%s: %s\n", option, prefix, strerror(-rc));
		return rc;
	}
	if (f)
		(void)fclose(f); /* nothing was written */
	return 0;
}

int log_check(const struct bench_opts *o, FILE *err)
{
	int rc = check_one("write_iops_log", o->iops_log, "iops", err);

	if (rc == 0)
		rc = check_one("write_bw_log", o->bw_log, "bw", err);
	if (rc == 0)
		rc = check_one("write_lat_log", o->lat_log, "lat", err);
	return rc;
}

/* --- latencies --- */

static void push(struct lat_log *l, uint64_t at_ns, unsigned dir, uint64_t ns, uint64_t off)
{
	if (l->nr == l->max) {
		l->dropped++;
		return;
	}
	l->entries[l->nr++] = (struct lat_entry){ (uint32_t)(at_ns / CLOCK_NS_PER_MS), dir, ns, off };
}

void lat_log_end(struct lat_log *l)
{
	for (unsigned d = 0; d < LOG_DIRS_NR; d++) {
		if (l->count[d])
			push(l, (l->interval + 1) * l->interval_ns, d, l->sum[d] / l->count[d], l->count[d]);
		l->sum[d] = l->count[d] = 0;
	}
}

void lat_log_add(struct lat_log *l, unsigned dir, uint64_t now, uint64_t ns, uint64_t off)
{
	uint64_t at = now - l->from_ns;

	if (!l->interval_ns) {
		push(l, at, dir, ns, off);
		return;
	}
	if (at / l->interval_ns != l->interval) {
		lat_log_end(l);
		l->interval = at / l->interval_ns;
	}
	l->sum[dir] += ns;
	l->count[dir]++;
}

static int by_time(const void *a, const void *b)
{
	const struct lat_entry *x = a, *y = b;

	if (x->ms != y->ms)
		return x->ms < y->ms ? -1 : 1;
	return (x->dir > y->dir) - (x->dir < y->dir);
}

/* Join what lanes say of one interval and direction. */
static uint64_t join(struct lat_entry *e, uint64_t nr)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < nr; i++) {
		struct lat_entry *last = kept ? &e[kept - 1] : NULL;

		if (last && last->ms == e[i].ms && last->dir == e[i].dir) {
			last->ns = (uint64_t)(((unsigned __int128)last->ns * last->off +
					       (unsigned __int128)e[i].ns * e[i].off) / (last->off + e[i].off));
			last->off += e[i].off;
		} else {
			e[kept++] = e[i];
		}
	}
	return kept;
}

static void print_entry(FILE *out, const struct lat_entry *e, const struct bench_opts *o, bool averaged)
{
	uint64_t off = averaged ? 0 : e->off;

	if (o->log_offset)
		fprintf(out, "%" PRIu32 ", %" PRIu64 ", %" PRIu32 ", %" PRIu64 ", %" PRIu64 ", 0\n", e->ms, e->ns, e->dir,
			o->bs, off);
	else
		fprintf(out, "%" PRIu32 ", %" PRIu64 ", %" PRIu32 ", %" PRIu64 ", 0\n", e->ms, e->ns, e->dir, o->bs);
}

int lat_log_write(FILE *out, const struct lat_log *l, unsigned lanes_nr, const struct bench_opts *o)
{
	bool averaged = l[0].interval_ns != 0;
	struct lat_entry *all;
	uint64_t nr = 0, at = 0;

	for (unsigned i = 0; i < lanes_nr; i++)
		nr += l[i].nr;
	all = malloc((nr + 1) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (unsigned i = 0; i < lanes_nr; i++) {
		memcpy(all + at, l[i].entries, l[i].nr * sizeof(*all));
		at += l[i].nr;
	}
	if (lanes_nr > 1)
		qsort(all, nr, sizeof(*all), by_time);
	if (averaged)
		nr = join(all, nr);
	for (uint64_t i = 0; i < nr; i++)
		print_entry(out, &all[i], o, averaged);
	free(all);
	return output_flush(out);
}

/* --- rates --- */

static FILE **open_all(const char *prefix, const char *kind, unsigned jobs_nr)
{
	FILE **f = calloc(jobs_nr, sizeof(FILE *));

	for (unsigned i = 0; f && i < jobs_nr; i++)
		f[i] = log_open(prefix, kind, i);
	return f;
}

static bool are_open(FILE **f, unsigned nr)
{
	for (unsigned i = 0; f && i < nr; i++) {
		if (!f[i])
			return false;
	}
	return f != NULL;
}

int rate_log_open(struct rate_log *g, const struct bench_opts *o, unsigned jobs_nr)
{
	*g = (struct rate_log){ .jobs_nr = jobs_nr, .due_ns = UINT64_MAX };
	if (!o->iops_log && !o->bw_log)
		return 0;
	g->interval_ns = o->log_avg_ms * CLOCK_NS_PER_MS;
	g->done = calloc(jobs_nr, LOG_DIRS_NR * sizeof(*g->done));
	if (!g->done)
		return -ENOMEM;
	errno = 0;
	if (o->iops_log)
		g->iops = open_all(o->iops_log, "iops", jobs_nr);
	if (o->iops_log && !are_open(g->iops, jobs_nr))
		return errno ? -errno : -EIO;
	if (o->bw_log)
		g->bw = open_all(o->bw_log, "bw", jobs_nr);
	if (o->bw_log && !are_open(g->bw, jobs_nr))
		return errno ? -errno : -EIO;
	return 0;
}

void rate_log_begin(struct rate_log *g, uint64_t now, const uint64_t (*done)[LOG_DIRS_NR])
{
	if (!g->done)
		return;
	memcpy(g->done, done, g->jobs_nr * LOG_DIRS_NR * sizeof(*g->done));
	g->begin_ns = g->last_ns = now;
	g->due_ns = now + g->interval_ns;
}

static void print_rate(struct rate_log *g, FILE *out, uint64_t ms, double rate, unsigned dir, const struct bench_opts *o)
{
	int n = o->log_offset ?
		fprintf(out, "%" PRIu64 ", %.0f, %u, %" PRIu64 ", 0, 0\n", ms, rate, dir, o->bs) :
		fprintf(out, "%" PRIu64 ", %.0f, %u, %" PRIu64 ", 0\n", ms, rate, dir, o->bs);

	g->broken |= n < 0;
}

void rate_log_step(struct rate_log *g, const struct bench_opts *o, uint64_t now, const uint64_t (*done)[LOG_DIRS_NR],
		   bool last)
{
	double seconds = (double)(now - g->last_ns) / 1e9;
	uint64_t ms = (now - g->begin_ns) / CLOCK_NS_PER_MS;

	if (g->due_ns == UINT64_MAX || (now < g->due_ns && !(last && now - g->last_ns >= g->interval_ns / 2)))
		return;
	for (unsigned i = 0; i < g->jobs_nr; i++) {
		for (unsigned d = 0; d < LOG_DIRS_NR; d++) {
			double iops = (double)(done[i][d] - g->done[i * LOG_DIRS_NR + d]) / seconds;

			g->done[i * LOG_DIRS_NR + d] = done[i][d];
			if (d == 0 ? !o->reads : !o->writes)
				continue;
			if (g->iops)
				print_rate(g, g->iops[i], ms, iops, d, o);
			if (g->bw)
				print_rate(g, g->bw[i], ms, iops * (double)o->bs / 1024, d, o);
		}
	}
	g->last_ns = now;
	/* a late look leaves out the intervals that it has missed: its lines are means over all of them */
	while (g->due_ns <= now)
		g->due_ns += g->interval_ns;
}

static void close_all(struct rate_log *g, FILE **f)
{
	for (unsigned i = 0; f && i < g->jobs_nr; i++) {
		if (f[i] && fclose(f[i]))
			g->broken = true;
	}
	free(f);
}

int rate_log_close(struct rate_log *g)
{
	int rc;

	close_all(g, g->iops);
	close_all(g, g->bw);
	free(g->done);
	rc = g->broken ? -EIO : 0;
	*g = (struct rate_log){ .due_ns = UINT64_MAX };
	return rc;
}
