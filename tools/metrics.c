/* SPDX-License-Identifier: MIT */
/*
 * See metrics.h. All series of a metric stand together, as the format wants it: so the outer loop is over metrics, the inner
 * one over runtimes and workers.
 *
 * Histograms have a bucket for each power of two, a quarter of what the statistics have: a series costs the server memory. A
 * bound is the end of a bucket, so what is counted below it is below it.
 */
#include "metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include <martlet/martlet.h>

#include "clock.h"
#include "opcode.h"
#include "output.h"
#include "proc.h"

#define NAME_MAX_BYTES 96
#define FIRST_SHIFT MRT_HIST_FIRST_SHIFT        /* the first bound is 2^6 ns */
#define LAST_SHIFT 36u                          /* the last is 2^36 ns; then all */

/* ---- names ---- */

enum cls { CLS_info, CLS_gauge, CLS_counter };
enum type { TYPE_u32, TYPE_i32, TYPE_u64, TYPE_i64, TYPE_char, TYPE_worker_state, TYPE_timing };

struct field {
	enum cls cls;
	enum type type;
	const char *name, *text;
	size_t offset;
};

#define FIELD(cls_, type_, name_, text_) { CLS_##cls_, TYPE_##type_, #name_, text_, offsetof(struct STRUCT, name_) },
#define NO_ARRAY(cls_, type_, name_, nr_, text_)

#define STRUCT mrt_worker_stats
static const struct field worker_fields[] = { MRT_WORKER_STATS(FIELD, NO_ARRAY, FIELD) };
#undef STRUCT
#define STRUCT mrt_global_stats
static const struct field global_fields[] = { MRT_GLOBAL_STATS(FIELD, NO_ARRAY, FIELD) };
#undef STRUCT

#define FIELDS_NR(f) (sizeof(f) / sizeof((f)[0]))

/* What says who and where is in labels; sizes are worth a series of their own. */
static bool is_exported(const struct field *f)
{
	static const char *const sizes[] = { "sq_entries", "cq_entries", "workers_nr" };
	static const char *const addresses[] = { "poll_fn", "poll_task" };
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (strcmp(f->name, sizes[i]) == 0)
			return true;
	}
	for (i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		if (strcmp(f->name, addresses[i]) == 0)
			return false;
	}
	return f->cls != CLS_info && f->type != TYPE_worker_state;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_ns(const struct field *f)
{
	return ends_with(f->name, "_ns");
}

/* A gauge in ns is a moment. */
static bool is_moment(const struct field *f)
{
	return f->cls == CLS_gauge && is_ns(f);
}

static void metric_name(const char *prefix, const struct field *f, char name[NAME_MAX_BYTES])
{
	size_t bare = strlen(f->name) - (is_ns(f) || ends_with(f->name, "_nr") ? 3 : 0);

	(void)snprintf(name, NAME_MAX_BYTES, "%s%.*s%s%s", prefix, (int)bare, f->name,
		       is_moment(f) ? "_age_seconds" : is_ns(f) ? "_seconds" : "", f->cls == CLS_counter ? "_total" : "");
}

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The text of the list, with its units as they are here. */
static void put_field_head(FILE *out, const char *name, const struct field *f)
{
	char help[256];
	size_t n;

	(void)snprintf(help, sizeof(help), "%s%s", is_moment(f) ? "How long ago: " : "", f->text); /* fits */
	n = strlen(help);
	if (is_ns(f) && ends_with(help, " ns")) {
		n -= 3;
		(void)snprintf(help + n, sizeof(help) - n, " seconds");
	}
	put_head(out, name, f->cls == CLS_counter ? "counter" : "gauge", help);
}

/* ---- series ---- */

static void put_text(FILE *out, const char *label, const char *text)
{
	fprintf(out, "%s=\"", label);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc('\\', out);
		putc(*text, out);
	}
	putc('"', out);
}

/* Name and labels of a series, left open for more labels. */
static void put_series(FILE *out, const char *name, const struct attach *a)
{
	fprintf(out, "%s{pid=\"%d\",", name, a->pid);
	put_text(out, "runtime", a->label);
}

static double word_of(const struct field *f, const void *block)
{
	const char *p = (const char *)block + f->offset;

	switch (f->type) {
	case TYPE_i32:
		return *(const int32_t *)(const void *)p;
	case TYPE_u64:
		return (double)*(const uint64_t *)(const void *)p;
	case TYPE_i64:
		return (double)*(const int64_t *)(const void *)p;
	case TYPE_u32:
	case TYPE_char:
	case TYPE_worker_state:
	case TYPE_timing:
		break;
	}
	return *(const uint32_t *)(const void *)p;
}

/* false: it has none now. */
static bool value_of(const struct field *f, const void *block, uint64_t now_ns, double *ret_value)
{
	*ret_value = word_of(f, block);
	if (is_moment(f)) {
		if (*ret_value == 0)
			return false;
		*ret_value = (double)now_ns - *ret_value;
		if (*ret_value < 0)
			*ret_value = 0; /* written while we read */
	}
	if (is_ns(f))
		*ret_value *= 1e-9;
	return true;
}

/* Counts below 2^53 are printed as they are. */
static void put_value(FILE *out, double value)
{
	fprintf(out, "} %.16g\n", value);
}

static void put_workers(FILE *out, const struct attach_set *set, const struct field *f)
{
	char name[NAME_MAX_BYTES];
	unsigned i, w;
	double value;

	metric_name("mrt_worker_", f, name);
	put_field_head(out, name, f);
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];

		for (w = 0; w < a->workers_nr; w++) {
			if (!value_of(f, &a->workers[w], a->read_ns, &value))
				continue;
			put_series(out, name, a);
			fprintf(out, ",worker=\"%u\"", w);
			put_value(out, value);
		}
	}
}

/* Exact, while the gauge is what workers have published. */
static double tasks_alive(const struct attach *a)
{
	int64_t alive = (int64_t)a->global.spawns_outside;
	unsigned w;

	for (w = 0; w < a->workers_nr; w++)
		alive += (int64_t)(a->workers[w].spawns - a->workers[w].ends);
	return (double)(alive > 0 ? alive : 0); /* a task may end while we add up */
}

static void put_runtimes(FILE *out, const struct attach_set *set, const struct field *f)
{
	bool is_alive = strcmp(f->name, "tasks_alive") == 0;
	char name[NAME_MAX_BYTES];
	double value;
	unsigned i;

	metric_name("mrt_runtime_", f, name);
	if (is_alive)
		put_head(out, name, "gauge", "tasks that have not ended");
	else
		put_field_head(out, name, f);
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];

		if (!value_of(f, &a->global, a->read_ns, &value))
			continue;
		put_series(out, name, a);
		put_value(out, is_alive ? tasks_alive(a) : value);
	}
}

/* ---- who they are ---- */

static void put_info(FILE *out, const struct attach_set *set)
{
	char name[64];
	unsigned i, w;

	put_head(out, "mrt_runtime_info", "gauge", "1; who it is: process, flavour, where its statistics are");
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];

		proc_name(a->pid, name, sizeof(name));
		put_series(out, "mrt_runtime_info", a);
		putc(',', out);
		put_text(out, "process", name);
		fprintf(out, ",flavour=\"%s\",backend=\"%s\"",
			a->global.flavour == MRT_FLAVOUR_CURRENT_THREAD ? "current-thread" : "multi-thread", a->backend);
		put_value(out, 1);
	}
	put_head(out, "mrt_worker_info", "gauge", "1; its thread, and the CPU that it is pinned to (-1: it floats)");
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];

		for (w = 0; w < a->workers_nr; w++) {
			put_series(out, "mrt_worker_info", a);
			fprintf(out, ",worker=\"%u\",tid=\"%d\",cpu=\"%d\"", w, a->workers[w].tid, a->workers[w].cpu);
			put_value(out, 1);
		}
	}
}

static void put_created(FILE *out, const struct attach_set *set)
{
	static const char name[] = "mrt_runtime_created_timestamp_seconds";
	struct timespec real;
	unsigned i;

	(void)clock_gettime(CLOCK_REALTIME, &real); /* cannot fail */
	put_head(out, name, "gauge", "when the runtime was made, seconds since 1970");
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];
		double age = (double)(clock_ns() - a->global.created_ns) * 1e-9;

		put_series(out, name, a);
		fprintf(out, "} %.3f\n", (double)real.tv_sec + (double)real.tv_nsec * 1e-9 - age);
	}
}

#define STATE_NAME(NAME, value, text) [value] = #NAME,
static const char *const states[] = { MRT_WORKER_STATES(STATE_NAME) };

static void put_states(FILE *out, const struct attach_set *set)
{
	unsigned i, w, s;

	put_head(out, "mrt_worker_state", "gauge", "1: it is in this state");
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];

		for (w = 0; w < a->workers_nr; w++) {
			unsigned state = a->workers[w].state;

			if (state == MRT_WORKER_RUNNING && a->workers[w].poll_fn)
				state = MRT_WORKER_POLLING;
			for (s = 0; s < sizeof(states) / sizeof(states[0]); s++) {
				put_series(out, "mrt_worker_state", a);
				fprintf(out, ",worker=\"%u\",state=\"%s\"", w, states[s]);
				put_value(out, s == state);
			}
		}
	}
}

/* ---- histograms ---- */

/* @param label  more labels, with a comma before; count and sum are of all that was timed */
static void put_histogram(FILE *out, const char *name, const struct attach *a, const char *labels,
			  const uint64_t buckets[MRT_HIST_NR], uint64_t count, uint64_t sum_ns)
{
	char series[NAME_MAX_BYTES];
	uint64_t below = 0, all = 0;
	unsigned bucket, shift;

	for (bucket = 0; bucket < MRT_HIST_NR; bucket++)
		all += buckets[bucket];
	if (count < all)
		count = all; /* read a moment earlier */
	(void)snprintf(series, sizeof(series), "%s_bucket", name); /* fits */
	for (bucket = 0, shift = FIRST_SHIFT; shift <= LAST_SHIFT; shift++) {
		while (bucket < MRT_HIST_NR - 1 && mrt_hist_min_ns(bucket + 1) <= UINT64_C(1) << shift)
			below += buckets[bucket++];
		put_series(out, series, a);
		fprintf(out, "%s,le=\"%.9g\"", labels, (double)(UINT64_C(1) << shift) * 1e-9);
		put_value(out, (double)below);
	}
	put_series(out, series, a);
	fprintf(out, "%s,le=\"+Inf\"", labels);
	put_value(out, (double)count);
	(void)snprintf(series, sizeof(series), "%s_sum", name); /* fits */
	put_series(out, series, a);
	fputs(labels, out);
	put_value(out, (double)sum_ns * 1e-9);
	(void)snprintf(series, sizeof(series), "%s_count", name); /* fits */
	put_series(out, series, a);
	fputs(labels, out);
	put_value(out, (double)count);
}

static void put_polls(FILE *out, const struct attach_set *set)
{
	char labels[32];
	unsigned i, w;

	put_head(out, "mrt_poll_duration_seconds", "histogram", "How long polls take, of those that are timed (mrt_ctl)");
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];

		for (w = 0; w < a->workers_nr; w++) {
			const struct mrt_worker_hists *h = &a->hists[w];

			(void)snprintf(labels, sizeof(labels), ",worker=\"%u\"", w); /* fits */
			put_histogram(out, "mrt_poll_duration_seconds", a, labels, h->poll, h->polls_timed, h->poll_sum_ns);
		}
	}
	put_head(out, "mrt_poll_duration_max_seconds", "gauge", "The longest poll that was timed, ever");
	for (i = 0; i < set->nr; i++) {
		const struct attach *a = set->items[i];

		for (w = 0; w < a->workers_nr; w++) {
			put_series(out, "mrt_poll_duration_max_seconds", a);
			fprintf(out, ",worker=\"%u\"", w);
			put_value(out, (double)a->hists[w].poll_max_ns * 1e-9);
		}
	}
}

struct op_sums {
	uint64_t nr, timed, sum_ns;
	uint64_t buckets[MRT_HIST_NR];
};

static void sum_op(const struct attach *a, unsigned opcode, struct op_sums *ret)
{
	unsigned w, slot, b;

	memset(ret, 0, sizeof(*ret));
	for (w = 0; w < a->workers_nr; w++) {
		const struct mrt_worker_hists *h = &a->hists[w];

		ret->nr += h->op_nr[opcode];
		ret->timed += h->op_timed[opcode];
		ret->sum_ns += h->op_sum_ns[opcode];
		for (slot = 0; slot < MRT_OP_SLOTS_NR; slot++) {
			if (h->op_slot[slot] != opcode + 1)
				continue;
			for (b = 0; b < MRT_HIST_NR; b++)
				ret->buckets[b] += h->op_hist[slot * MRT_HIST_NR + b];
		}
	}
}

static void put_ops(FILE *out, const struct attach_set *set)
{
	char labels[64], text[OPCODE_NAME_MAX];
	struct op_sums sums;
	unsigned i, op;

	put_head(out, "mrt_ops_total", "counter", "SQEs staged for ops, by opcode of io_uring");
	for (i = 0; i < set->nr; i++) {
		for (op = 0; op < MRT_OPCODES_NR; op++) {
			sum_op(set->items[i], op, &sums);
			if (sums.nr == 0)
				continue;
			put_series(out, "mrt_ops_total", set->items[i]);
			fprintf(out, ",op=\"%s\"", opcode_text(op, text));
			put_value(out, (double)sums.nr);
		}
	}
	put_head(out, "mrt_op_latency_seconds", "histogram",
		 "From staging to reaping, by opcode of io_uring, of those ops that are timed (mrt_ctl)");
	for (i = 0; i < set->nr; i++) {
		for (op = 0; op < MRT_OPCODES_NR; op++) {
			sum_op(set->items[i], op, &sums);
			if (sums.timed == 0)
				continue;
			(void)snprintf(labels, sizeof(labels), ",op=\"%s\"", opcode_text(op, text)); /* fits */
			put_histogram(out, "mrt_op_latency_seconds", set->items[i], labels, sums.buckets, sums.timed,
				      sums.sum_ns);
		}
	}
}

int metrics_write(FILE *out, const struct attach_set *set)
{
	size_t i;

	put_head(out, "mrt_exporter_runtimes", "gauge", "Runtimes that were found");
	fprintf(out, "mrt_exporter_runtimes %u\n", set->nr);
	put_head(out, "mrt_exporter_refused", "gauge", "Runtimes that were found and cannot be read: of another version, stale, not for this user");
	fprintf(out, "mrt_exporter_refused %u\n", set->refusals_nr);
	put_info(out, set);
	put_created(out, set);
	for (i = 0; i < FIELDS_NR(global_fields); i++) {
		if (is_exported(&global_fields[i]))
			put_runtimes(out, set, &global_fields[i]);
	}
	put_states(out, set);
	for (i = 0; i < FIELDS_NR(worker_fields); i++) {
		if (is_exported(&worker_fields[i]))
			put_workers(out, set, &worker_fields[i]);
	}
	put_polls(out, set);
	put_ops(out, set);
	return output_flush(out);
}
