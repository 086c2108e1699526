/* SPDX-License-Identifier: MIT */
/*
 * Times. Results of one file that ran in rounds ran one after the other, those of one round side by side; files ran side
 * by side (machines, or processes) unless --merge=serial says that they too came one after the other. So counts always
 * add up, and time adds up or is the longest; rates follow from both. Files of different length side by side have no
 * common rate: that is said.
 *
 * What is not measured by samples or counts (extremes over time, rings, workers) is not in a merged result.
 */
#include "merge.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"

typedef struct json_object json;

struct reading {
	struct merged *m;
	struct bench_opts *o;
	FILE *err;
	const char *path;
	double cpu_us;          /* of all I/Os so far */
	double usr_s, sys_s;    /* CPU time so far */
	json *work;             /* of the first file */
};

__attribute__((format(printf, 2, 3)))
static int refuse(const struct reading *d, const char *fmt, ...)
{
	va_list ap;

	fprintf(d->err, "martlet bench: --merge: %s: ", d->path);
	va_start(ap, fmt);
	vfprintf(d->err, fmt, ap);
	va_end(ap);
	fputc('\n', d->err);
	return -EINVAL;
}

/* NULL where there is none. */
static json *member(json *o, const char *key)
{
	json *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? v : NULL;
}

static uint64_t get_u64(json *o, const char *key)
{
	json *v = member(o, key);

	return v ? json_object_get_uint64(v) : 0;
}

static double get_double(json *o, const char *key)
{
	json *v = member(o, key);

	return v ? json_object_get_double(v) : 0;
}

/* --- histograms --- */

static int read_bins(const struct reading *d, struct hist *h, json *bins)
{
	json_object_object_foreach(bins, key, value) {
		char *end;
		uint64_t low = strtoull(key, &end, 10);

		if (*end || !hist_add_bucket(h, low, json_object_get_uint64(value)))
			return refuse(d, "a histogram has other buckets than ours (%s)", key);
	}
	return 0;
}

static int add_hist(const struct reading *d, struct hist *to, json *o)
{
	json *bins = member(o, "bins"), *sum = member(o, "sum");
	struct hist h;
	int rc;

	if (!o || !get_u64(o, "N"))
		return 0;
	if (!bins || !sum)
		return refuse(d, "no histograms in it: write results with --output-format=json+");
	hist_init(&h);
	rc = read_bins(d, &h, bins);
	if (rc)
		return rc;
	h.sum = json_object_get_uint64(sum);
	h.min = get_u64(o, "min");
	h.max = get_u64(o, "max");
	if (hist_count(&h) != get_u64(o, "N"))
		return refuse(d, "a histogram holds %" PRIu64 " samples, not %" PRIu64, hist_count(&h), get_u64(o, "N"));
	hist_merge(to, &h);
	return 0;
}

/* --- a job --- */

static int add_dir(const struct reading *d, struct dir_result *to, json *o)
{
	int rc = add_hist(d, &to->lat, member(o, "lat_ns"));

	if (rc == 0)
		rc = add_hist(d, &to->slat, member(o, "slat_ns"));
	if (rc == 0)
		rc = add_hist(d, &to->clat, member(o, "clat_ns"));
	to->ios += get_u64(o, "total_ios");
	to->bytes += get_u64(o, "io_bytes");
	to->short_ios += get_u64(o, "short_ios");
	to->failed += get_u64(o, "drop_ios");
	return rc;
}

static void add_errors(struct result *r, json *errors)
{
	if (!errors)
		return;
	json_object_object_foreach(errors, key, value) {
		unsigned code = 0;

		for (unsigned i = 1; i < JOB_ERRNOS_NR && !code; i++)
			code = strerrorname_np((int)i) && strcmp(strerrorname_np((int)i), key) == 0 ? i : 0;
		r->errnos[code] += json_object_get_uint64(value);
	}
}

static int add_pacing(struct reading *d, json *p)
{
	struct result *r = &d->m->r;

	if (!p)
		return 0;
	d->o->rate_iops = get_u64(p, "rate_iops");
	r->offered += get_u64(p, "due");
	r->late_starts += get_u64(p, "late_100us");
	r->lead_ns = get_u64(p, "lead_ns") > r->lead_ns ? get_u64(p, "lead_ns") : r->lead_ns;
	return add_hist(d, &r->pacing, member(p, "error_ns"));
}

/* fio has shares where counts would add up: they are turned back. */
static void add_depths(struct result *r, json *levels, uint64_t ios)
{
	static const char *const names[JOB_DEPTHS_NR] = { "1", "2", "4", "8", "16", "32", ">=64" };

	for (unsigned i = 0; levels && i < JOB_DEPTHS_NR; i++)
		r->depth[i] += (uint64_t)(get_double(levels, names[i]) * (double)ios / 100 + 0.5);
}

static int add_job(struct reading *d, json *job, struct merge_input *in)
{
	struct result *r = &d->m->r;
	json *m = member(job, "martlet"), *read = member(job, "read"), *write = member(job, "write");
	double seconds = get_double(m, "runtime_ns") / 1e9;
	uint64_t ios = get_u64(read, "total_ios") + get_u64(write, "total_ios");
	int rc;

	rc = add_dir(d, &r->dir[DIR_READ], read);
	if (rc == 0)
		rc = add_dir(d, &r->dir[DIR_WRITE], write);
	if (rc == 0)
		rc = add_pacing(d, member(m, "pacing"));
	add_errors(r, member(m, "errors"));
	add_depths(r, member(job, "iodepth_level"), ios);
	in->ios += ios;
	r->ios_all += ios;
	r->retries += get_u64(m, "retries");
	r->ctx += get_u64(job, "ctx");
	r->majf += get_u64(job, "majf");
	r->minf += get_u64(job, "minf");
	d->cpu_us += get_double(m, "cpu_us_per_io") * (double)ios;
	d->usr_s += get_double(job, "usr_cpu") / 100 * seconds;
	d->sys_s += get_double(job, "sys_cpu") / 100 * seconds;
	if (json_object_get_boolean(member(m, "interrupted")))
		r->interrupted = true;
	return rc;
}

/* --- a file --- */

static int check_document(const struct reading *d, json *doc)
{
	json *m = member(doc, "martlet");

	if (!m || get_u64(m, "schema_version") != JSON_SCHEMA_VERSION || !member(m, "work") ||
	    !json_object_is_type(member(doc, "jobs"), json_type_array))
		return refuse(d, "no result of martlet bench, schema version %u", JSON_SCHEMA_VERSION);
	if (member(m, "compare"))
		return refuse(d, "a comparison: its engines are not one load");
	if (member(m, "ladder"))
		return refuse(d, "a ladder: its rungs are not one load");
	return 0;
}

/* The same load in all files? Those that differ are merged all the same, but it is said. */
static void check_work(struct reading *d, json *m)
{
	json *work = member(m, "work");
	struct merged *g = d->m;

	if (!d->work) {
		d->work = json_object_get(work);
		d->o->bs = get_u64(work, "bs");
		g->work = strdup(json_object_to_json_string_ext(work, JSON_C_TO_STRING_PLAIN));
		return;
	}
	if (!json_object_equal(d->work, work) && g->warnings_nr == 0)
		snprintf(g->warning[g->warnings_nr++], sizeof(g->warning[0]), "%.40s and %.40s are not of the same load: "
			 "%.100s, %.100s", g->inputs[0].path, d->path,
			 json_object_to_json_string_ext(d->work, JSON_C_TO_STRING_PLAIN),
			 json_object_to_json_string_ext(work, JSON_C_TO_STRING_PLAIN));
}

static int add_document(struct reading *d, json *doc, struct merge_input *in)
{
	json *jobs = member(doc, "jobs");
	uint64_t round = 0, longest = 0;
	int rc = check_document(d, doc);

	if (rc)
		return rc;
	check_work(d, member(doc, "martlet"));
	for (size_t i = 0; i < json_object_array_length(jobs) && rc == 0; i++) {
		json *job = json_object_array_get_idx(jobs, i), *m = member(job, "martlet");

		if (json_object_get_boolean(member(m, "read_back")))
			continue;
		if (get_u64(m, "round") != round) {
			in->runtime_ns += longest;
			round = get_u64(m, "round");
			longest = 0;
		}
		longest = get_u64(m, "runtime_ns") > longest ? get_u64(m, "runtime_ns") : longest;
		rc = add_job(d, job, in);
	}
	in->runtime_ns += longest;
	return rc;
}

static int add_file(struct reading *d, struct merge_input *in)
{
	json *doc;
	int rc;

	d->path = in->path;
	if (access(in->path, R_OK))
		return refuse(d, "%s", strerror(errno));
	doc = json_object_from_file(in->path);
	if (!doc) {
		const char *why = json_util_get_last_err();

		return refuse(d, "no JSON: %.*s", why ? (int)strcspn(why, "\n") : 0, why ? why : "");
	}
	rc = add_document(d, doc, in);
	(void)json_object_put(doc); /* the count of what it freed */
	return rc;
}

static void check_times(struct merged *m)
{
	uint64_t shortest = UINT64_MAX, longest = 0;

	for (unsigned i = 0; i < m->inputs_nr; i++) {
		shortest = m->inputs[i].runtime_ns < shortest ? m->inputs[i].runtime_ns : shortest;
		longest = m->inputs[i].runtime_ns > longest ? m->inputs[i].runtime_ns : longest;
	}
	if (shortest < longest - longest / 20)
		snprintf(m->warning[m->warnings_nr++], sizeof(m->warning[0]), "run times differ (%.3f to %.3f s): rates are "
			 "means over the longest; --merge=serial if they came one after the other", (double)shortest / 1e9,
			 (double)longest / 1e9);
}

static void settle(struct reading *d)
{
	struct merged *m = d->m;
	struct result *r = &m->r;

	for (unsigned i = 0; i < m->inputs_nr; i++) {
		uint64_t ns = m->inputs[i].runtime_ns;

		if (d->o->merge == MERGE_SERIAL)
			r->runtime_ns += ns;
		else if (ns > r->runtime_ns)
			r->runtime_ns = ns;
	}
	r->elapsed_ns = r->runtime_ns;
	if (d->o->merge == MERGE_PARALLEL)
		check_times(m);
	r->cpu_us_per_io = r->ios_all ? d->cpu_us / (double)r->ios_all : 0;
	if (r->runtime_ns) {
		r->usr_pct = d->usr_s / ((double)r->runtime_ns / 1e9) * 100;
		r->sys_pct = d->sys_s / ((double)r->runtime_ns / 1e9) * 100;
	}
	for (unsigned i = 0; i < DIRS_NR; i++)
		r->dir[i].iops_min = r->dir[i].iops_max = r->dir[i].iops_mean = result_iops(r, i);
	snprintf(r->note.what, sizeof(r->note.what), "%u results, %s", m->inputs_nr, d->o->merge == MERGE_SERIAL ?
		 "one after the other: times add up" : "side by side: rates add up");
}

int merge_read(struct merged *m, struct bench_opts *o, FILE *err)
{
	struct reading d = { .m = m, .o = o, .err = err };
	int rc = 0;

	memset(m, 0, sizeof(*m));
	result_init(&m->r, "merged");
	m->inputs = calloc(o->inputs_nr, sizeof(*m->inputs));
	if (!m->inputs)
		return -ENOMEM;
	for (unsigned i = 0; i < o->inputs_nr && rc == 0; i++) {
		m->inputs[i].path = o->inputs[i];
		m->inputs_nr++;
		rc = add_file(&d, &m->inputs[i]);
	}
	if (rc == 0)
		settle(&d);
	(void)json_object_put(d.work); /* the count of what it freed */
	return rc;
}

void merge_fini(struct merged *m)
{
	free(m->work);
	free(m->inputs);
	m->work = NULL;
	m->inputs = NULL;
	result_free(&m->r);
}
