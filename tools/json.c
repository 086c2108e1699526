/* SPDX-License-Identifier: MIT */
/*
 * fio's names where they mean the same: jobs[] with read and write, each with slat_ns, clat_ns and lat_ns. What fio has
 * no word for is in one object "martlet" per document and per job. lat_ns counts all I/Os; slat_ns and clat_ns are
 * sampled, which their N shows. Figures are integers where fio's are.
 *
 * Everything that fio 3.33 writes for a job is there, so that its readers find it (tests/fio checks that, and checks
 * fio's own output with the same script); shares that are not measured are 0: iodepth_submit and iodepth_complete.
 *
 * json-c reports no failure of its "add" calls that could be acted upon half-way: an object that could not be made
 * becomes null, and the final print fails.
 */
#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <martlet/martlet.h>

#include "clock.h"
#include "output.h"
#include "sys.h"

typedef struct json_object json;

static void add(json *o, const char *key, json *value)
{
	(void)json_object_object_add(o, key, value); /* see the top */
}

static void add_u64(json *o, const char *key, uint64_t n)
{
	add(o, key, json_object_new_uint64(n));
}

static void add_double(json *o, const char *key, double n)
{
	char text[40];

	/* six digits after the point, as fio; json-c's own 17 digits are noise */
	snprintf(text, sizeof(text), "%f", n);
	add(o, key, json_object_new_double_s(n, text));
}

static void add_text(json *o, const char *key, const char *text)
{
	add(o, key, json_object_new_string(text));
}

static void add_bool(json *o, const char *key, bool b)
{
	add(o, key, json_object_new_boolean(b));
}

static json *add_object(json *o, const char *key)
{
	json *child = json_object_new_object();

	add(o, key, child);
	return child;
}

/* --- latencies --- */

static void add_percentiles(json *o, const struct bench_opts *opts, const struct hist *h)
{
	json *p = add_object(o, "percentile");

	for (unsigned i = 0; i < opts->percentiles_nr; i++) {
		char key[32];

		snprintf(key, sizeof(key), "%f", opts->percentile[i]);
		add_u64(p, key, hist_percentile(h, opts->percentile[i]));
	}
}

/* Lowest value of each bucket that is not empty, and its count: such histograms can be added up. */
static void add_bins(json *o, const struct hist *h)
{
	json *bins = add_object(o, "bins");

	for (unsigned i = 0; i < HIST_BUCKETS_NR; i++) {
		char key[32];

		if (!h->bucket[i])
			continue;
		snprintf(key, sizeof(key), "%" PRIu64, hist_bucket_low(i));
		add_u64(bins, key, h->bucket[i]);
	}
}

static void add_hist(json *o, const char *key, const struct bench_opts *opts, const struct hist *h)
{
	json *l = add_object(o, key);
	uint64_t n = hist_count(h);

	add_u64(l, "min", n ? h->min : 0);
	add_u64(l, "max", h->max);
	add_double(l, "mean", hist_mean(h));
	add_double(l, "stddev", hist_stddev(h));
	add_u64(l, "N", n);
	if (n)
		add_percentiles(l, opts, h);
	if (n && opts->format == OUTPUT_JSON_PLUS) {
		add_u64(l, "sum", h->sum);      /* exact, where the mean is rounded */
		add_bins(l, h);
	}
}

static void add_share(json *o, const char *key, const struct hist *h, uint64_t from, uint64_t below, uint64_t n)
{
	uint64_t in = hist_count_below(h, below) - hist_count_below(h, from);

	add_double(o, key, n ? (double)in * 100 / (double)n : 0);
}

/* fio's three coarse distributions, in per cent of all I/Os. */
static void add_distribution(json *job, const char *key, const struct hist *h, uint64_t unit, unsigned rows, bool last)
{
	static const unsigned upto[] = { 2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000 };
	json *d = add_object(job, key);
	uint64_t n = hist_count(h), from = unit == 1 ? 0 : unit;
	char name[16];

	for (unsigned i = 0; i < rows; i++) {
		snprintf(name, sizeof(name), "%u", upto[i]);
		add_share(d, name, h, from, upto[i] * unit, n);
		from = upto[i] * unit;
	}
	if (last)
		add_share(d, ">=2000", h, from, UINT64_MAX, n);
}

static void add_distributions(json *job, const struct result *r)
{
	struct hist lat;

	result_lat_all(r, &lat);
	add_distribution(job, "latency_ns", &lat, 1, 10, false);
	add_distribution(job, "latency_us", &lat, 1000, 10, false);
	add_distribution(job, "latency_ms", &lat, 1000000, 11, true);
}

/* --- a job --- */

static void add_dir(json *job, const char *key, const struct bench_opts *o, const struct result *r,
		    const struct dir_result *dr)
{
	double seconds = (double)r->runtime_ns / 1e9, per_io = dr->ios ? (double)o->bs / 1024 : 0;
	double bw = seconds > 0 ? (double)dr->bytes / seconds : 0;
	json *j = add_object(job, key);

	add_u64(j, "io_bytes", dr->bytes);
	add_u64(j, "io_kbytes", dr->bytes / 1024);
	add_u64(j, "bw_bytes", (uint64_t)bw);
	add_u64(j, "bw", (uint64_t)(bw / 1024));
	add_double(j, "iops", seconds > 0 ? (double)dr->ios / seconds : 0);
	add_u64(j, "runtime", dr->ios ? r->runtime_ns / 1000000 : 0);
	add_u64(j, "total_ios", dr->ios);
	add_u64(j, "short_ios", dr->short_ios);
	add_u64(j, "drop_ios", dr->failed);
	add_hist(j, "slat_ns", o, &dr->slat);
	add_hist(j, "clat_ns", o, &dr->clat);
	add_hist(j, "lat_ns", o, &dr->lat);
	add_u64(j, "bw_min", (uint64_t)(dr->iops_min * per_io));
	add_u64(j, "bw_max", (uint64_t)(dr->iops_max * per_io));
	add_double(j, "bw_agg", dr->ios ? 100 : 0);
	add_double(j, "bw_mean", dr->iops_mean * per_io);
	add_double(j, "bw_dev", dr->iops_stddev * per_io);
	add_u64(j, "bw_samples", dr->samples);
	add_u64(j, "iops_min", (uint64_t)dr->iops_min);
	add_u64(j, "iops_max", (uint64_t)dr->iops_max);
	add_double(j, "iops_mean", dr->iops_mean);
	add_double(j, "iops_stddev", dr->iops_stddev);
	add_u64(j, "iops_samples", dr->samples);
}

static void add_depths(json *job, const struct result *r)
{
	static const char *const names[JOB_DEPTHS_NR] = { "1", "2", "4", "8", "16", "32", ">=64" };
	json *d = add_object(job, "iodepth_level");
	uint64_t n = 0;

	for (unsigned i = 0; i < JOB_DEPTHS_NR; i++)
		n += r->depth[i];
	for (unsigned i = 0; i < JOB_DEPTHS_NR; i++)
		add_double(d, names[i], n ? (double)r->depth[i] * 100 / (double)n : 0);
}

/* How many I/Os a system call moved: what we know is enters per I/O, so all shares are 0. */
static void add_batches(json *job, const char *key)
{
	static const char *const names[] = { "0", "4", "8", "16", "32", "64", ">=64" };
	json *d = add_object(job, key);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		add_double(d, names[i], 0);
}

/* fsync and its like: none here. */
static void add_sync(json *job, const struct bench_opts *o, const struct hist *none)
{
	json *s = add_object(job, "sync");

	add_u64(s, "total_ios", 0);
	add_hist(s, "lat_ns", o, none);
}

/* Of fio's latency_target, which is not here: its constants for a run without one. */
static void add_latency_target(json *job, const struct bench_opts *o)
{
	add_u64(job, "latency_depth", o->iodepth);
	add_u64(job, "latency_target", 0);
	add_double(job, "latency_percentile", 100);
	add_u64(job, "latency_window", 0);
}

static void add_errors(json *m, const struct result *r)
{
	json *errors = add_object(m, "errors");

	for (unsigned i = 0; i < JOB_ERRNOS_NR; i++) {
		if (r->errnos[i])
			add_u64(errors, strerrorname_np((int)i) ? strerrorname_np((int)i) : "other", r->errnos[i]);
	}
}

static void add_pacing(json *m, const struct bench_opts *o, const struct result *r)
{
	json *p;

	if (!o->rate_iops || r->read_back)
		return;
	p = add_object(m, "pacing");
	add_u64(p, "rate_iops", o->rate_iops);
	add_text(p, "process", o->rate_poisson ? "poisson" : "linear");
	add_u64(p, "due", r->offered);
	add_u64(p, "started", hist_count(&r->pacing));
	add_u64(p, "late_100us", r->late_starts);
	add_u64(p, "lead_ns", r->lead_ns);
	add_hist(p, "error_ns", o, &r->pacing);
}

static void add_series(json *m, const struct result *r)
{
	json *s = json_object_new_array();

	for (unsigned i = 0; i < r->series_nr; i++) {
		json *p = json_object_new_object();

		add_u64(p, "ms", r->series[i].ms);
		add_u64(p, "read_ios", r->series[i].ios[DIR_READ]);
		add_u64(p, "write_ios", r->series[i].ios[DIR_WRITE]);
		(void)json_object_array_add(s, p); /* see the top */
	}
	add(m, "series", s);
}

static void add_target_counts(json *m, const struct targets *ts, const struct result *r)
{
	static const char *const names[DIRS_NR] = { "read", "write" };
	json *list;

	if (!r->targets_nr)
		return;
	list = json_object_new_array();
	for (unsigned i = 0; i < r->targets_nr; i++) {
		const struct target_result *tr = &r->targets[i];
		json *k = json_object_new_object();

		add_text(k, "path", ts->t[i].path);
		for (unsigned d = 0; d < DIRS_NR; d++) {
			json *j = add_object(k, names[d]);

			add_u64(j, "total_ios", tr->ios[d]);
			add_u64(j, "short_ios", tr->short_ios[d]);
			add_u64(j, "drop_ios", tr->failed[d]);
			add_double(j, "iops", r->runtime_ns ? (double)tr->ios[d] * 1e9 / (double)r->runtime_ns : 0);
		}
		(void)json_object_array_add(list, k); /* see the top */
	}
	add(m, "targets", list);
}

/* The jobs where they are reported as one. */
static void add_workers(json *m, const struct bench_opts *o, const struct result *r)
{
	double seconds = (double)r->runtime_ns / 1e9;
	json *list = json_object_new_array();

	for (unsigned i = 0; i < r->workers_nr; i++) {
		const struct worker_result *w = &r->workers[i];
		double iops = seconds > 0 ? (double)(w->ios[DIR_READ] + w->ios[DIR_WRITE]) / seconds : 0;
		json *k = json_object_new_object(), *lat;

		add_u64(k, "job", i);
		add(k, "cpu", w->cpu < 0 ? NULL : json_object_new_int(w->cpu));
		add_u64(k, "read_ios", w->ios[DIR_READ]);
		add_u64(k, "write_ios", w->ios[DIR_WRITE]);
		add_u64(k, "short_ios", w->short_ios);
		add_u64(k, "drop_ios", w->failed);
		add_double(k, "iops", iops);
		add_u64(k, "bw_bytes", (uint64_t)(iops * (double)o->bs));
		add_bool(k, "cpu_known", w->cpu_known);
		add_double(k, "cpu_us_per_io", w->cpu_us_per_io);
		add_double(k, "usr_cpu", w->usr_pct);
		add_double(k, "sys_cpu", w->sys_pct);
		add_u64(k, "ctx", w->ctx);
		lat = add_object(k, "lat_ns");
		add_u64(lat, "min", w->lat_min);
		add_u64(lat, "max", w->lat_max);
		add_double(lat, "mean", w->lat_mean);
		add_u64(lat, "p50", w->lat_p50);
		add_u64(lat, "p99", w->lat_p99);
		add_u64(lat, "p99.9", w->lat_p999);
		(void)json_object_array_add(list, k); /* see the top */
	}
	add(m, "workers", list);
}

static void add_engine(json *job, const struct json_in *in, const struct result *r)
{
	const struct bench_opts *o = in->o;
	json *m = add_object(job, "martlet");

	add_text(m, "engine", r->engine);
	add_text(m, "how", r->note.what);
	add_u64(m, "round", r->round);
	add_bool(m, "read_back", r->read_back);
	add_bool(m, "interrupted", r->interrupted);
	add_u64(m, "runtime_ns", r->runtime_ns);
	add_double(m, "cpu_us_per_io", r->cpu_us_per_io);
	add_double(m, "other_cpus", r->other_cpus);
	add_double(m, "steal_cpus", r->steal_cpus);
	add_double(m, "throttled_ms", r->throttled_ms);
	add_u64(m, "hot_throttles", r->hot_throttles);
	add_u64(m, "iowq_threads", r->iowq_threads);
	add_u64(m, "device_read_bytes", r->disk_reads_512 * 512);
	add_u64(m, "retries", r->retries);
	if (r->note.ring[0])
		add_text(m, "ring", r->note.ring);
	if (r->job >= 0)
		add_u64(m, "job", (uint64_t)r->job);
	else
		add_workers(m, o, r);
	if (r->note.ring[0] && r->job < 0) {
		add_u64(m, "enters", r->note.enters);
		add_double(m, "enters_per_io", result_enters_per_io(r));
	}
	if (r->note.rung[0]) {
		json *rung = add_object(m, "rung");

		add_text(rung, "name", r->note.rung);
		add_text(rung, "text", r->note.rung_text);
	}
	if (r->note.arena[0])
		add_text(m, "arena", r->note.arena);
	for (unsigned i = 0; i < r->note.extra_nr; i++)
		add_double(m, r->note.extra[i].name, r->note.extra[i].value);
	add_u64(m, "slat_sample", o->slat_sample);
	add_errors(m, r);
	add_target_counts(m, in->targets, r);
	add_pacing(m, o, r);
	if (r->has_lat_log) {
		json *k = add_object(m, "latency_log");

		add_u64(k, "entries", r->log_entries);
		add_u64(k, "dropped", r->log_dropped);
	}
	add_series(m, r);
}

static void add_job_options(json *job, const struct bench_opts *o)
{
	json *j = add_object(job, "job options");

	for (unsigned i = 0; i < o->given_nr; i++)
		add_text(j, o->given[i].name, o->given[i].value);
}

static json *new_job(const struct json_in *in, const struct result *r)
{
	static struct dir_result none;  /* what is never done here; zero, and never written */
	const struct bench_opts *o = in->o;
	json *job = json_object_new_object();
	char name[128];

	if (r->variant)
		snprintf(name, sizeof(name), "%.80s-%s-%u", o->name, r->variant, r->round);
	else if (r->round)
		snprintf(name, sizeof(name), "%.80s-%u", o->name, r->round);
	else
		snprintf(name, sizeof(name), "%.80s%s", o->name, r->read_back ? "-verify" : "");
	add_text(job, "jobname", name);
	add_u64(job, "groupid", 0);
	add_u64(job, "error", result_failed(r) || result_short(r) ? EIO : 0);
	add_u64(job, "eta", 0);
	add_u64(job, "elapsed", (r->elapsed_ns + 999999999) / 1000000000);
	add_job_options(job, o);
	add_dir(job, "read", o, r, &r->dir[DIR_READ]);
	add_dir(job, "write", o, r, &r->dir[DIR_WRITE]);
	add_dir(job, "trim", o, r, &none);
	add_sync(job, o, &none.lat);
	add_u64(job, "job_runtime", r->runtime_ns / 1000000);
	add_double(job, "usr_cpu", r->usr_pct);
	add_double(job, "sys_cpu", r->sys_pct);
	add_u64(job, "ctx", r->ctx);
	add_u64(job, "majf", r->majf);
	add_u64(job, "minf", r->minf);
	add_depths(job, r);
	add_batches(job, "iodepth_submit");
	add_batches(job, "iodepth_complete");
	add_distributions(job, r);
	add_latency_target(job, o);
	add_engine(job, in, r);
	return job;
}

/* --- the document --- */

static void add_machine(json *m)
{
	struct timespec now;
	char text[256];
	json *k = add_object(m, "machine");

	sys_kernel(text, sizeof(text));
	add_text(k, "kernel", text);
	sys_cpu_model(text, sizeof(text));
	add_text(k, "cpu", text);
	add_u64(k, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	add_u64(k, "memory_bytes", sys_memory_bytes());
	if (clock_gettime(CLOCK_BOOTTIME, &now) == 0)
		add_u64(k, "uptime_s", (uint64_t)now.tv_sec);
}

static json *new_target(const struct bench_opts *o, const struct target *t)
{
	json *k = json_object_new_object();

	add_text(k, "path", t->path);
	add_text(k, "type", t->is_nvme ? "NVMe namespace" : t->is_block ? "block device" : "file");
	add_bool(k, "own", t->is_made);
	add_u64(k, "bytes", t->bytes);
	add_u64(k, "region_offset", t->off);
	add_u64(k, "region_bytes", t->len);
	add_bool(k, "direct", o->direct);
	add_u64(k, "dio_mem_align", t->mem_align);
	add_u64(k, "dio_offset_align", t->off_align);
	add_bool(k, "dio_align_reported", t->align_reported);
	add_bool(k, "has_holes", t->has_holes);
	add_text(k, "file_system", t->fs);
	add_text(k, "mounted_from", t->source);
	add_text(k, "disk", t->disk);
	add_text(k, "model", t->model);
	add_text(k, "scheduler", t->scheduler);
	add_u64(k, "nr_requests", t->nr_requests);
	add_bool(k, "poll_queues", t->io_poll);
	return k;
}

static void add_targets(json *m, const struct bench_opts *o, const struct targets *ts)
{
	json *list = json_object_new_array();

	for (unsigned i = 0; i < ts->nr; i++)
		(void)json_object_array_add(list, new_target(o, &ts->t[i])); /* see the top */
	add(m, "targets", list);
}

static void add_spread(json *o, const char *key, const struct spread *s)
{
	json *j = add_object(o, key);

	add_double(j, "median", s->median);
	add_double(j, "min", s->min);
	add_double(j, "max", s->max);
	add_double(j, "spread_pct", spread_pct(s));
}

static void add_ratio_figure(json *o, const char *key, const struct ratio *q)
{
	json *j = add_object(o, key);

	add_double(j, "median", q->spread.median);
	add_double(j, "min", q->spread.min);
	add_double(j, "max", q->spread.max);
	add_double(j, "ci95_low", q->ci.low);
	add_double(j, "ci95_high", q->ci.high);
}

static void add_summary(json *j, const struct series_summary *s)
{
	add_spread(j, "iops", &s->iops);
	add_spread(j, "bw_bytes", &s->bw);
	add_spread(j, "cpu_us_per_io", &s->cpu_us);
	add_spread(j, "lat_p50_us", &s->p50_us);
	add_spread(j, "lat_p99_us", &s->p99_us);
	add_spread(j, "lat_p99.9_us", &s->p999_us);
	add_spread(j, "enters_per_io", &s->enters);
}

static void add_warnings(json *j, const struct series *s)
{
	json *list = json_object_new_array();

	for (unsigned i = 0; i < s->warnings_nr; i++)
		(void)json_object_array_add(list, json_object_new_string(s->warning[i])); /* see the top */
	add(j, "warnings", list);
}

static void add_ratio(json *j, const struct series *s, unsigned to)
{
	struct ratio iops = series_ratio(s, ENGINE_MARTLET, to, result_iops_all);
	struct ratio cpu = series_ratio(s, ENGINE_MARTLET, to, series_cpu_us);
	char key[64];
	json *k;

	snprintf(key, sizeof(key), "%s/%s", s->summary[ENGINE_MARTLET].name, s->summary[to].name);
	k = add_object(j, key);
	add_ratio_figure(k, "iops", &iops);
	add_ratio_figure(k, "cpu_us_per_io", &cpu);
}

static void add_compare(json *m, const struct series *s)
{
	json *k = add_object(m, "compare"), *engines;

	add_u64(k, "rounds", s->rounds);
	add_warnings(k, s);
	engines = add_object(k, "engines");
	for (unsigned e = 0; s->rounds && e < s->variants_nr; e++)
		add_summary(add_object(engines, s->summary[e].name), &s->summary[e]);
	for (unsigned to = ENGINE_MARTLET + 1; s->rounds && to < s->variants_nr; to++)
		add_ratio(k, s, to);
}

static void add_repeat(json *m, const struct series *s)
{
	json *k = add_object(m, "repeat");

	add_u64(k, "runs", s->rounds);
	add_warnings(k, s);
	if (s->rounds)
		add_summary(k, &s->summary[0]);
}

/* What was done, whoever gave which option. */
static void add_work(json *m, const struct bench_opts *o)
{
	json *k = add_object(m, "work");

	add_text(k, "engine", o->compare_rounds ? "compare" : opts_engine_name(o->engine));
	add_text(k, "rw", o->rw);
	add_u64(k, "rwmixread", o->rwmixread);
	add_u64(k, "bs", o->bs);
	add_u64(k, "iodepth", o->iodepth);
	add_u64(k, "numjobs", o->numjobs);
	add_bool(k, "direct", o->direct);
	add_u64(k, "rate_iops", o->rate_iops);
}

static void add_merged(json *m, const struct bench_opts *o, const struct merged *g)
{
	json *k = add_object(m, "merge"), *inputs = json_object_new_array(), *warnings = json_object_new_array();

	add_text(k, "mode", o->merge == MERGE_SERIAL ? "serial" : "parallel");
	for (unsigned i = 0; i < g->inputs_nr; i++) {
		const struct merge_input *in = &g->inputs[i];
		json *j = json_object_new_object();

		add_text(j, "path", in->path);
		add_u64(j, "total_ios", in->ios);
		add_u64(j, "runtime_ns", in->runtime_ns);
		(void)json_object_array_add(inputs, j); /* see the top */
	}
	for (unsigned i = 0; i < g->warnings_nr; i++)
		(void)json_object_array_add(warnings, json_object_new_string(g->warning[i])); /* see the top */
	add(k, "inputs", inputs);
	add(k, "warnings", warnings);
	add(m, "work", g->work ? json_tokener_parse(g->work) : NULL);
}

static void add_ladder(json *m, const struct ladder *l, const struct series *s)
{
	json *k = add_object(m, "ladder"), *rungs;

	add_u64(k, "rounds", s->rounds);
	add_warnings(k, s);
	rungs = add_object(k, "rungs");
	for (unsigned i = 0; s->rounds && i < RUNGS_NR; i++) {
		json *j = add_object(rungs, l->rung[i].name);

		if (l->rung[i].reason[0])
			add_text(j, "not_available", l->rung[i].reason);
		else
			add_summary(j, &s->summary[l->rung[i].variant]);
	}
}

static void add_verify(json *m, const struct verify *v)
{
	json *k;

	if (!v)
		return;
	k = add_object(m, "verify");
	add_text(k, "kind", v->kind == VERIFY_CRC32C ? "crc32c" : "pattern");
	/* relaxed: the run is over */
	add_u64(k, "blocks_checked", atomic_load_explicit(&v->checked, memory_order_relaxed));
	add_u64(k, "blocks_bad", atomic_load_explicit(&v->bad, memory_order_relaxed));
}

static void add_times(json *doc)
{
	struct timeval tv;
	struct tm tm;
	char text[64];

	(void)gettimeofday(&tv, NULL); /* cannot fail */
	add_u64(doc, "timestamp", (uint64_t)tv.tv_sec);
	add_u64(doc, "timestamp_ms", (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000);
	if (localtime_r(&tv.tv_sec, &tm) && strftime(text, sizeof(text), "%a %b %e %H:%M:%S %Y", &tm))
		add_text(doc, "time", text);
}

/* One entry, or one a job. */
static void add_result(json *jobs, const struct json_in *in, const struct result *r)
{
	if (!r->parts_nr)
		(void)json_object_array_add(jobs, new_job(in, r)); /* see the top */
	for (unsigned i = 0; i < r->parts_nr; i++)
		(void)json_object_array_add(jobs, new_job(in, &r->parts[i])); /* see the top */
}

static bool is_first_of_disk(const struct targets *ts, unsigned idx)
{
	for (unsigned i = 0; i < idx; i++) {
		if (ts->t[i].major == ts->t[idx].major && ts->t[i].minor == ts->t[idx].minor)
			return false;
	}
	return true;
}

/* What the disks did from the first run's start until now. */
static void add_disk_util(json *doc, const struct targets *ts)
{
	json *list = json_object_new_array();

	for (unsigned i = 0; i < ts->nr; i++) {
		const struct target *t = &ts->t[i];
		const struct sys_disk_stat *b = &t->disk_begin;
		double ms = (double)(clock_ns() - t->disk_begin_ns) / 1e6;
		struct sys_disk_stat e;
		json *k;

		if (!t->disk_known || !is_first_of_disk(ts, i) || !sys_disk_stat(t->major, t->minor, &e))
			continue;
		k = json_object_new_object();
		add_text(k, "name", t->disk);
		add_u64(k, "read_ios", e.read_ios - b->read_ios);
		add_u64(k, "write_ios", e.write_ios - b->write_ios);
		add_u64(k, "read_merges", e.read_merges - b->read_merges);
		add_u64(k, "write_merges", e.write_merges - b->write_merges);
		add_u64(k, "read_ticks", e.read_ticks - b->read_ticks);
		add_u64(k, "write_ticks", e.write_ticks - b->write_ticks);
		add_u64(k, "in_queue", e.in_queue - b->in_queue);
		add_double(k, "util", ms > 0 ? (double)(e.busy_ms - b->busy_ms) * 100 / ms : 0);
		(void)json_object_array_add(list, k); /* see the top */
	}
	add(doc, "disk_util", list);
}

static json *new_document(const struct json_in *in)
{
	json *doc = json_object_new_object(), *jobs = json_object_new_array(), *m;
	char version[64];

	snprintf(version, sizeof(version), "martlet-%s", mrt_version());
	add_text(doc, "fio version", version);  /* the field that fio's readers look for; the value says who wrote it */
	add_text(doc, "martlet version", version);
	add_times(doc);
	for (unsigned i = 0; i < in->results_nr; i++)
		add_result(jobs, in, &in->results[i]);
	add(doc, "jobs", jobs);
	if (in->targets)
		add_disk_util(doc, in->targets);
	m = add_object(doc, "martlet");
	add_u64(m, "schema_version", JSON_SCHEMA_VERSION);
	add_u64(m, "exit_code", (uint64_t)in->exit_code);
	if (in->merged) {
		add_merged(m, in->o, in->merged);
		return doc;
	}
	add_u64(m, "seed", in->o->seed);
	add_work(m, in->o);
	add_machine(m);
	add_targets(m, in->o, in->targets);
	add_verify(m, in->verify);
	if (in->ladder)
		add_ladder(m, in->ladder, in->series);
	else if (in->series && in->o->compare_rounds)
		add_compare(m, in->series);
	else if (in->series)
		add_repeat(m, in->series);
	return doc;
}

int json_write(FILE *out, const struct json_in *in)
{
	json *doc = new_document(in);
	const char *text = doc ? json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PRETTY |
								JSON_C_TO_STRING_NOSLASHESCAPE) : NULL;
	int rc = -ENOMEM;

	if (text)
		rc = fprintf(out, "%s\n", text) < 0 ? -errno : output_flush(out);
	(void)json_object_put(doc); /* the count of what it freed */
	return rc;
}
