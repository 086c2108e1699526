/* SPDX-License-Identifier: MIT */
/* Tables for people. Latencies are in microseconds, since that is the scale of what is measured. */
#include "report.h"

#include <inttypes.h>
#include <string.h>

static const char *const dir_names[DIRS_NR] = { "read", "write" };

const char *report_si(char buf[16], double n)
{
	if (n >= 1e6)
		snprintf(buf, 16, "%.2fM", n / 1e6);
	else if (n >= 1e3)
		snprintf(buf, 16, "%.1fk", n / 1e3);
	else
		snprintf(buf, 16, "%.0f", n);
	return buf;
}

static void print_mix(FILE *out, const struct bench_opts *o)
{
	if (o->reads && o->writes)
		fprintf(out, " (%u %% reads)", o->rwmixread);
	if (o->random && o->dist == DIST_ZIPF)
		fprintf(out, " (zipf %.3g)", o->zipf_theta);
	if (o->rate_iops)
		fprintf(out, ", %" PRIu64 " starts/s a job, %s", o->rate_iops, o->rate_poisson ? "poisson" : "linear");
	if (o->verify)
		fprintf(out, ", verify %s", o->verify == VERIFY_CRC32C ? "crc32c" : "pattern");
}

void report_head(FILE *out, const struct bench_opts *o, const struct targets *ts)
{
	char line[1024];

	fprintf(out, "%s: %s", o->name, o->rw);
	print_mix(out, o);
	fprintf(out, ", bs %" PRIu64 ", depth %u x %u job%s, %s, seed %" PRIu64 "\n", o->bs, o->iodepth, o->numjobs,
		o->numjobs == 1 ? "" : "s", o->ladder_rounds ? "rung by rung" : o->direct ? "O_DIRECT" : "buffered (page cache)", o->seed);
	for (unsigned i = 0; i < ts->nr; i++) {
		const struct target *t = &ts->t[i];

		target_describe(t, line, sizeof(line));
		fprintf(out, "target %s\n", line);
		if (o->direct)
			fprintf(out, "alignment: memory %u, offset and length %u (%s)\n", t->mem_align, t->off_align,
				t->align_reported ? "reported" : "not reported: logical block size");
	}
}

static double us(uint64_t ns)
{
	return (double)ns / 1e3;
}

static void print_hist_line(FILE *out, const char *name, const struct hist *h)
{
	if (hist_count(h) == 0)
		return;
	fprintf(out, "  %-5s us  min %.2f  mean %.2f  stddev %.2f  p50 %.2f  p99 %.2f  p99.9 %.2f  max %.1f  (n %" PRIu64
		")\n", name, us(h->min), hist_mean(h) / 1e3, hist_stddev(h) / 1e3, us(hist_percentile(h, 50)),
		us(hist_percentile(h, 99)), us(hist_percentile(h, 99.9)), us(h->max), hist_count(h));
}

static void print_percentiles(FILE *out, const struct bench_opts *o, const struct hist *h)
{
	for (unsigned i = 0; i < o->percentiles_nr; i++) {
		if (i % 6 == 0)
			fprintf(out, "%s   ", i ? "\n" : "  lat percentiles, us\n");
		fprintf(out, " p%-7.6g %-9.2f", o->percentile[i], us(hist_percentile(h, o->percentile[i])));
	}
	fputc('\n', out);
}

static void print_dir(FILE *out, const struct bench_opts *o, const struct result *r, unsigned d)
{
	const struct dir_result *dr = &r->dir[d];
	char iops[16], low[16], high[16];

	fprintf(out, "%s: IOPS %s, %.1f MiB/s, %" PRIu64 " I/Os in %.3f s", dir_names[d],
		report_si(iops, result_iops(r, d)), result_bw(r, d) / 0x1p20, dr->ios, (double)r->runtime_ns / 1e9);
	if (dr->samples)
		fprintf(out, " (half-seconds %s..%s)", report_si(low, dr->iops_min), report_si(high, dr->iops_max));
	fputc('\n', out);
	print_hist_line(out, "lat", &dr->lat);
	print_hist_line(out, "slat", &dr->slat);
	print_hist_line(out, "clat", &dr->clat);
	print_percentiles(out, o, &dr->lat);
}

static void print_rate(FILE *out, const struct bench_opts *o, const struct result *r)
{
	uint64_t started = hist_count(&r->pacing);

	if (!o->rate_iops || r->read_back)
		return;
	fprintf(out, "rate: %" PRIu64 " starts due in the window, %" PRIu64 " made, %" PRIu64 " more than 100 us late; "
		"latencies above count from the intended start\n", r->offered, started, r->late_starts);
	fprintf(out, "  sleeps ended %.0f us before a start and the rest was polled through, which the CPU figures hold\n",
		us(r->lead_ns));
	print_hist_line(out, "pace", &r->pacing);
}

static void print_errors(FILE *out, const struct result *r)
{
	for (unsigned i = 0; i < JOB_ERRNOS_NR; i++) {
		if (r->errnos[i])
			fprintf(out, "FAILED: %" PRIu64 " I/Os with %s (%s)\n", r->errnos[i], strerrorname_np((int)i),
				strerror((int)i));
	}
	if (result_short(r))
		fprintf(out, "SHORT: %" PRIu64 " I/Os moved fewer bytes than asked\n", result_short(r));
	if (r->retries)
		fprintf(out, "retried after EAGAIN or EINTR: %" PRIu64 "\n", r->retries);
}

static void print_noise(FILE *out, const struct bench_opts *o, const struct result *r)
{
	if (r->other_cpus > SERIES_OTHER_CPUS_MAX)
		fprintf(out, "warning: others used %.2f CPUs meanwhile\n", r->other_cpus);
	if (r->steal_cpus > SERIES_STEAL_CPUS_MAX)
		fprintf(out, "warning: the hypervisor took %.2f CPUs meanwhile\n", r->steal_cpus);
	if (r->throttled_ms > 0)
		fprintf(out, "warning: the CPU limit of this control group stopped the run for %.0f ms\n", r->throttled_ms);
	if (r->hot_throttles)
		fprintf(out, "warning: CPUs were slowed down for heat %" PRIu64 " times\n", r->hot_throttles);
	if (!o->direct && r->disk_reads_512 && r->dir[DIR_READ].ios)
		fprintf(out, "note: %.1f MiB came from the device, not from the page cache\n",
			(double)r->disk_reads_512 / 2048);
	if (r->iowq_threads)
		fprintf(out, "note: %u kernel worker thread%s (io-wq) had been started for this process' I/O\n",
			r->iowq_threads, r->iowq_threads == 1 ? "" : "s");
}

static void print_engine(FILE *out, const struct result *r)
{
	fprintf(out, "cpu: %.2f us per I/O, usr %.1f %%, sys %.1f %%, %" PRIu64 " context switches\n", r->cpu_us_per_io,
		r->usr_pct, r->sys_pct, r->ctx);
	fprintf(out, "engine %s: %s\n", r->engine, r->note.what);
	if (r->note.ring[0])
		fprintf(out, "ring: %s; %.4f enters per I/O\n", r->note.ring, result_enters_per_io(r));
	if (r->note.rung[0])
		fprintf(out, "rung: %s: %s\n", r->note.rung, r->note.rung_text);
	if (r->note.arena[0])
		fprintf(out, "arena: %s\n", r->note.arena);
	for (unsigned i = 0; i < r->note.extra_nr; i++)
		fprintf(out, "%s%s %.10g", i ? ", " : "  ", r->note.extra[i].name, r->note.extra[i].value);
	if (r->note.extra_nr)
		fputc('\n', out);
}

static void print_lat_log(FILE *out, const struct bench_opts *o, const struct result *r)
{
	if (!r->has_lat_log)
		return;
	fprintf(out, "latency log: %" PRIu64 " %s\n", r->log_entries, o->log_avg_given ? "intervals" : "I/Os");
	if (r->log_dropped)
		fprintf(out, "warning: %" PRIu64 " more did not fit into --log_mem=%.0fk and were left out; "
			"--log_avg_msec takes less\n", r->log_dropped, (double)o->log_mem / 1024);
}

static void print_verify(FILE *out, const struct verify *v)
{
	uint64_t checked, bad;

	if (!v)
		return;
	/* relaxed: the run is over */
	checked = atomic_load_explicit(&v->checked, memory_order_relaxed);
	bad = atomic_load_explicit(&v->bad, memory_order_relaxed);
	fprintf(out, "verify: %" PRIu64 " blocks checked, %" PRIu64 " bad%s\n", checked, bad, bad ? ": CORRUPTION" : "");
}

/* Where there are several: which of them got what. */
static void print_targets(FILE *out, const struct bench_opts *o, const struct targets *ts, const struct result *r)
{
	double seconds = (double)r->runtime_ns / 1e9;

	for (unsigned i = 0; i < r->targets_nr; i++) {
		const struct target_result *tr = &r->targets[i];

		const char *before = "";

		fprintf(out, "target %s: ", ts->t[i].path);
		for (unsigned d = 0; d < DIRS_NR; d++) {
			double iops = seconds > 0 ? (double)tr->ios[d] / seconds : 0;
			char text[16];

			if (tr->ios[d])
				fprintf(out, "%s%s %" PRIu64 " I/Os, IOPS %s, %.1f MiB/s", before, dir_names[d],
					tr->ios[d], report_si(text, iops), iops * (double)o->bs / 0x1p20);
			if (tr->ios[d])
				before = "; ";
			if (tr->failed[d] || tr->short_ios[d])
				fprintf(out, ", %ss FAILED %" PRIu64 ", SHORT %" PRIu64, dir_names[d], tr->failed[d],
					tr->short_ios[d]);
		}
		fputc('\n', out);
	}
}

static void print_workers(FILE *out, const struct bench_opts *o, const struct result *r)
{
	double seconds = (double)r->runtime_ns / 1e9;

	if (r->workers_nr < 2)
		return;
	fprintf(out, "  %3s %4s %9s %9s %8s %6s %6s %9s %9s %9s %9s %9s\n", "job", "cpu", "IOPS", "MiB/s", "us/IO",
		"usr %", "sys %", "lat mean", "p50", "p99", "p99.9", "max us");
	for (unsigned i = 0; i < r->workers_nr; i++) {
		const struct worker_result *w = &r->workers[i];
		double iops = seconds > 0 ? (double)(w->ios[DIR_READ] + w->ios[DIR_WRITE]) / seconds : 0;
		char text[16], cpu[16] = "-", used[64];

		if (w->cpu >= 0)
			snprintf(cpu, sizeof(cpu), "%d", w->cpu);
		snprintf(used, sizeof(used), "%8s %6s %6s", "-", "-", "-");
		if (w->cpu_known)
			snprintf(used, sizeof(used), "%8.2f %6.1f %6.1f", w->cpu_us_per_io, w->usr_pct, w->sys_pct);
		fprintf(out, "  %3u %4s %9s %9.1f %s %9.2f %9.2f %9.2f %9.2f %9.1f", i, cpu, report_si(text, iops),
			iops * (double)o->bs / 0x1p20, used, w->lat_mean / 1e3, us(w->lat_p50), us(w->lat_p99),
			us(w->lat_p999), us(w->lat_max));
		if (w->failed || w->short_ios)
			fprintf(out, "  FAILED %" PRIu64 ", SHORT %" PRIu64, w->failed, w->short_ios);
		fputc('\n', out);
	}
}

/* --group_reporting=0 */
static void print_parts(FILE *out, const struct bench_opts *o, const struct result *r)
{
	for (unsigned i = 0; i < r->parts_nr; i++) {
		fprintf(out, "job %u:\n", i);
		for (unsigned d = 0; d < DIRS_NR; d++) {
			if (r->parts[i].dir[d].ios)
				print_dir(out, o, &r->parts[i], d);
		}
	}
	if (r->parts_nr)
		fputs("all jobs:\n", out);
}

void report_run(FILE *out, const struct bench_opts *o, const struct targets *ts, const struct result *r,
		const struct verify *v)
{
	if (r->interrupted)
		fputs("interrupted: the result so far\n", out);
	if (r->read_back)
		fputs("read back of what was written:\n", out);
	print_parts(out, o, r);
	for (unsigned d = 0; d < DIRS_NR; d++) {
		if (r->dir[d].ios)
			print_dir(out, o, r, d);
	}
	print_workers(out, o, r);
	print_targets(out, o, ts, r);
	print_rate(out, o, r);
	print_engine(out, r);
	print_errors(out, r);
	print_lat_log(out, o, r);
	print_noise(out, o, r);
	print_verify(out, v);
}

void report_merged(FILE *out, const struct bench_opts *o, const struct merged *m)
{
	static const struct targets none;

	for (unsigned i = 0; i < m->inputs_nr; i++) {
		const struct merge_input *in = &m->inputs[i];
		double seconds = (double)in->runtime_ns / 1e9;
		char iops[16];

		fprintf(out, "%s: %" PRIu64 " I/Os in %.3f s, IOPS %s\n", in->path, in->ios, seconds,
			report_si(iops, seconds > 0 ? (double)in->ios / seconds : 0));
	}
	for (unsigned i = 0; i < m->warnings_nr; i++)
		fprintf(out, "warning: %s\n", m->warning[i]);
	report_run(out, o, &none, &m->r, NULL);
}

void report_round(FILE *out, const struct result *r)
{
	struct hist lat;
	char iops[16];

	result_lat_all(r, &lat);
	fprintf(out, "  round %u  %-12s %8s IOPS  %6.2f us CPU per I/O  p50 %.1f  p99 %.1f us%s\n", r->round,
		r->variant ? r->variant : r->engine, report_si(iops, result_iops_all(r)), r->cpu_us_per_io,
		us(hist_percentile(&lat, 50)), us(hist_percentile(&lat, 99)), r->interrupted ? "  (interrupted)" : "");
}

static void print_one_ratio(FILE *out, const char *what, const struct ratio *q)
{
	fprintf(out, "%s %.3f (95 %%: %.3f..%.3f, rounds %.3f..%.3f)", what, q->spread.median, q->ci.low, q->ci.high,
		q->spread.min, q->spread.max);
}

static void print_ratio(FILE *out, const struct series *s, unsigned to)
{
	struct ratio iops = series_ratio(s, ENGINE_MARTLET, to, result_iops_all);
	struct ratio cpu = series_ratio(s, ENGINE_MARTLET, to, series_cpu_us);

	fprintf(out, "%s/%s: ", s->summary[ENGINE_MARTLET].name, s->summary[to].name);
	print_one_ratio(out, "IOPS", &iops);
	print_one_ratio(out, ", CPU per I/O", &cpu);
	fputc('\n', out);
}

/* The worst of the rounds, once. */
static void print_series_notes(FILE *out, const struct bench_opts *o, const struct series *s)
{
	uint64_t disk_512 = 0;
	unsigned iowq = 0;

	for (unsigned i = 0; i < s->results_nr; i++) {
		const struct result *r = &s->results[i];

		iowq = r->iowq_threads > iowq ? r->iowq_threads : iowq;
		disk_512 += r->disk_reads_512;
	}
	for (unsigned i = 0; i < s->warnings_nr; i++)
		fprintf(out, "warning: %s\n", s->warning[i]);
	if (!o->direct && !o->ladder_rounds && disk_512)
		fprintf(out, "note: in all rounds %.1f MiB came from the device, not from the page cache\n",
			(double)disk_512 / 2048);
	if (iowq)
		fprintf(out, "note: up to %u kernel worker thread%s (io-wq) worked for this process\n", iowq,
			iowq == 1 ? "" : "s");
}

static void print_summary(FILE *out, const struct series_summary *s, const char *name)
{
	char mid[16], low[16], high[16], iops[64], cpu[64];

	snprintf(iops, sizeof(iops), "%s (%s..%s)", report_si(mid, s->iops.median), report_si(low, s->iops.min),
		 report_si(high, s->iops.max));
	snprintf(cpu, sizeof(cpu), "%.2f (%.2f..%.2f)", s->cpu_us.median, s->cpu_us.min, s->cpu_us.max);
	fprintf(out, "  %-12s %-28s %6.1f %% %-20s %9.1f %9.1f %9.1f ", name, iops, spread_pct(&s->iops), cpu,
		s->p50_us.median, s->p99_us.median, s->p999_us.median);
	if (s->enters.median > 0)
		fprintf(out, "%10.4f\n", s->enters.median);
	else
		fprintf(out, "%10s\n", "-");
}

/* Of a variant: how its first run was done. */
static void print_how(FILE *out, const struct series *s, unsigned variant)
{
	const struct result *r = series_at(s, 0, variant);

	fprintf(out, "%s %s: %s%s%s%s%s\n", r->variant && strcmp(r->variant, r->engine) ? r->variant : "engine",
		r->engine, r->note.what, r->note.ring[0] ? "; ring: " : "", r->note.ring,
		r->note.rung[0] ? "; rung: " : "", r->note.rung);
}

void report_series(FILE *out, const struct bench_opts *o, const struct series *s)
{
	fprintf(out, "medians of %u round%s of %.3g s (min..max, spread)\n", s->rounds,
		s->rounds == 1 ? "" : "s", (double)o->runtime_ns / 1e9);
	if (s->rounds == 0)
		return;
	fprintf(out, "  %-12s %-28s %8s %-20s %9s %9s %9s %10s\n", s->variants_nr > 1 ? "variant" : "engine", "IOPS", "spread",
		"CPU us per I/O", "p50 us", "p99 us", "p99.9 us", "enters/IO");
	for (unsigned i = 0; i < s->variants_nr; i++)
		print_summary(out, &s->summary[i], s->summary[i].name ? s->summary[i].name : s->variants[i].engine->name);
	for (unsigned to = ENGINE_MARTLET + 1; o->compare_rounds && to < s->variants_nr; to++)
		print_ratio(out, s, to);
	for (unsigned i = 0; i < s->variants_nr; i++)
		print_how(out, s, i);
	for (unsigned i = 0; i < s->results_nr; i++)
		print_errors(out, &s->results[i]);
	print_series_notes(out, o, s);
}

/* "x1.23" of the rung below it that has figures. */
static void print_step(FILE *out, const struct ladder *l, const struct series *s, unsigned rung)
{
	const double *iops = &s->summary[l->rung[rung].variant].iops.median;

	for (unsigned below = rung; below-- > 0;) {
		if (l->rung[below].reason[0])
			continue;
		fprintf(out, "  x%.3f", *iops / s->summary[l->rung[below].variant].iops.median);
		return;
	}
}

static void print_rung(FILE *out, const struct ladder *l, const struct series *s, unsigned rung)
{
	const struct series_summary *sum;
	char mid[16], low[16], high[16], iops[64];

	if (l->rung[rung].reason[0]) {
		fprintf(out, "  %-12s n/a: %s\n", l->rung[rung].name, l->rung[rung].reason);
		return;
	}
	sum = &s->summary[l->rung[rung].variant];
	snprintf(iops, sizeof(iops), "%s (%s..%s)", report_si(mid, sum->iops.median), report_si(low, sum->iops.min),
		 report_si(high, sum->iops.max));
	fprintf(out, "  %-12s %-28s %6.2f (%.2f..%.2f) %9.1f %9.1f %9.1f %10.4f", l->rung[rung].name, iops,
		sum->cpu_us.median, sum->cpu_us.min, sum->cpu_us.max, sum->p50_us.median, sum->p99_us.median,
		sum->p999_us.median, sum->enters.median);
	print_step(out, l, s, rung);
	fputc('\n', out);
}

void report_ladder(FILE *out, const struct bench_opts *o, const struct ladder *l, const struct series *s)
{
	fprintf(out, "rung by rung, medians of %u round%s of %.3g s (min..max); the last column: IOPS to the rung below\n",
		s->rounds, s->rounds == 1 ? "" : "s", (double)o->runtime_ns / 1e9);
	if (s->rounds == 0)
		return;
	fprintf(out, "  %-12s %-28s %-19s %9s %9s %9s %10s\n", "rung", "IOPS", "CPU us per I/O", "p50 us", "p99 us", "p99.9 us",
		"enters/IO");
	for (unsigned i = 0; i < RUNGS_NR; i++)
		print_rung(out, l, s, i);
	for (unsigned i = 0; i < s->variants_nr; i++)
		print_how(out, s, i);
	for (unsigned i = 0; i < s->results_nr; i++)
		print_errors(out, &s->results[i]);
	print_series_notes(out, o, s);
}
