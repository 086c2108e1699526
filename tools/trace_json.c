/* SPDX-License-Identifier: MIT */
/* See trace_result.h: one JSON document. Durations are in ns; of histograms only slots that have something are there. */
#include <errno.h>
#include <json-c/json.h>

#include "opcode.h"
#include "output.h"
#include "trace_result.h"

#define SCHEMA_VERSION 1

/* json-c aborts nothing and returns NULL without memory; the first such is remembered. */
struct writer {
	bool failed;
};

static struct json_object *made(struct writer *w, struct json_object *o)
{
	w->failed |= !o;
	return o;
}

static struct json_object *put(struct writer *w, struct json_object *to, const char *key, struct json_object *value)
{
	if (!value || !to || json_object_object_add(to, key, value))
		w->failed = true;
	return value;
}

static void put_u64(struct writer *w, struct json_object *to, const char *key, uint64_t v)
{
	(void)put(w, to, key, json_object_new_uint64(v));
}

static void put_text(struct writer *w, struct json_object *to, const char *key, const char *v)
{
	(void)put(w, to, key, json_object_new_string(v));
}

static struct json_object *put_object(struct writer *w, struct json_object *to, const char *key)
{
	return put(w, to, key, json_object_new_object());
}

static struct json_object *put_array(struct writer *w, struct json_object *to, const char *key)
{
	return put(w, to, key, json_object_new_array());
}

static struct json_object *append(struct writer *w, struct json_object *array)
{
	struct json_object *o = made(w, json_object_new_object());

	if (!array || !o || json_object_array_add(array, o))
		w->failed = true;
	return o;
}

static void put_hist(struct writer *w, struct json_object *to, const char *key, const struct trace_hist *h)
{
	struct json_object *o = put_object(w, to, key), *slots;

	put_u64(w, o, "count", h->count);
	put_u64(w, o, "sum_ns", h->sum_ns);
	slots = put_array(w, o, "slots");
	for (unsigned i = 0; i < TRACE_HIST_SLOTS; i++) {
		struct json_object *slot;

		if (!h->slots[i])
			continue;
		slot = append(w, slots);
		put_u64(w, slot, "min_ns", trace_slot_min(i));
		put_u64(w, slot, "max_ns", trace_slot_min(i + 1) - 1);
		put_u64(w, slot, "count", h->slots[i]);
	}
}

static void put_function(struct writer *w, struct json_object *to, int pid, uint64_t fn, const char *name)
{
	char address[32];

	(void)snprintf(address, sizeof(address), "0x%llx", (unsigned long long)fn); /* fits */
	put_u64(w, to, "pid", (uint64_t)pid);
	put_text(w, to, "function", name);
	put_text(w, to, "address", address);
}

static void put_functions(struct writer *w, struct json_object *doc, const struct trace_result *r)
{
	struct json_object *array = put_array(w, doc, "functions");

	for (size_t i = 0; i < r->functions_nr; i++) {
		const struct trace_fn_row *row = &r->functions[i];
		struct json_object *o = append(w, array);

		put_function(w, o, row->pid, row->fn, row->name);
		put_u64(w, o, "spawned", row->f.spawns);
		put_u64(w, o, "ended", row->f.ends);
		put_u64(w, o, "unwoken", row->f.unwoken);
		put_u64(w, o, "blocked", row->f.blocked_nr);
		put_u64(w, o, "blocked_ns", row->f.blocked_ns);
		put_u64(w, o, "preempted", row->f.preempted_nr);
		put_u64(w, o, "preempted_ns", row->f.preempted_ns);
		put_hist(w, o, "poll", &row->f.poll);
		put_hist(w, o, "wait", &row->f.sched);
	}
}

static void put_ops(struct writer *w, struct json_object *doc, const struct trace_result *r)
{
	static const char *const stages[TRACE_STAGES_NR] = {
#define NAME(name, text) #name,
		TRACE_STAGES(NAME)
#undef NAME
	};
	struct json_object *array = put_array(w, doc, "ops"), *punts = put_array(w, doc, "punts");
	char name[OPCODE_NAME_MAX];

	for (size_t i = 0; i < r->ops_nr; i++) {
		struct json_object *o = append(w, array);

		put_u64(w, o, "opcode", r->ops[i].opcode);
		put_text(w, o, "op", opcode_text(r->ops[i].opcode, name));
		for (unsigned s = 0; s < TRACE_STAGES_NR; s++)
			put_hist(w, o, stages[s], &r->ops[i].stages[s]);
	}
	for (size_t i = 0; i < r->punts_nr; i++) {
		struct json_object *o = append(w, punts);

		put_function(w, o, r->punts[i].pid, r->punts[i].fn, r->punts[i].name);
		put_u64(w, o, "opcode", r->punts[i].opcode);
		put_text(w, o, "op", opcode_text(r->punts[i].opcode, name));
		put_u64(w, o, "count", r->punts[i].nr);
	}
}

static void put_workers(struct writer *w, struct json_object *doc, const struct trace_result *r)
{
	struct json_object *array = put_array(w, doc, "workers");

	for (size_t i = 0; i < r->workers_nr; i++) {
		const struct trace_worker_row *row = &r->workers[i];
		struct json_object *o = append(w, array);

		put_u64(w, o, "pid", (uint64_t)row->pid);
		put_u64(w, o, "worker", row->worker);
		put_hist(w, o, "parked", &row->w.off[TRACE_OFF_PARKED]);
		put_hist(w, o, "blocked", &row->w.off[TRACE_OFF_BLOCKED]);
		put_hist(w, o, "preempted", &row->w.off[TRACE_OFF_PREEMPTED]);
	}
}

static void put_depths(struct writer *w, struct json_object *doc, const struct trace_result *r)
{
	static const char *const names[TRACE_DEPTHS_NR] = {
		[TRACE_DEPTH_LOCAL] = "local_queue", [TRACE_DEPTH_INFLIGHT] = "inflight",
		[TRACE_DEPTH_QUEUED] = "queued", [TRACE_DEPTH_CQ] = "cq_ready",
	};
	struct json_object *array = put_array(w, doc, "depths");

	for (size_t i = 0; i < r->depths_nr; i++) {
		const struct trace_depths *d = &r->depths[i].d;
		struct json_object *o = append(w, array);

		put_u64(w, o, "worker", r->depths[i].worker);
		put_u64(w, o, "looks", d->count);
		for (unsigned which = 0; which < TRACE_DEPTHS_NR; which++) {
			struct json_object *of = put_object(w, o, names[which]), *slots;

			put_u64(w, of, "sum", d->sum[which]);
			slots = put_array(w, of, "slots");
			for (unsigned s = 0; s < TRACE_DEPTH_SLOTS; s++) {
				struct json_object *slot;

				if (!d->slots[which][s])
					continue;
				slot = append(w, slots);
				put_u64(w, slot, "min", s ? UINT64_C(1) << (s - 1) : 0);
				put_u64(w, slot, "max", (UINT64_C(1) << s) - 1);
				put_u64(w, slot, "count", d->slots[which][s]);
			}
		}
	}
}

static void put_counts(struct writer *w, struct json_object *doc, const struct trace_result *r)
{
	static const char *const probes[TRACE_PROBES_NR] = {
#define NAME(name) #name,
		TRACE_PROBES(NAME)
#undef NAME
	};
	static const char *const losses[TRACE_LOST_NR] = {
#define NAME(name, text) #name,
		TRACE_LOST_LIST(NAME)
#undef NAME
	};
	struct json_object *hits = put_object(w, doc, "probes"), *lost = put_object(w, doc, "lost"),
			   *notes = put_array(w, doc, "left_out");

	for (unsigned i = 0; i < TRACE_PROBES_NR; i++)
		put_u64(w, hits, probes[i], r->hits[i]);
	for (unsigned i = 0; i < TRACE_LOST_NR; i++)
		put_u64(w, lost, losses[i], r->lost[i]);
	put_u64(w, lost, "events", r->file.skipped);
	put_u64(w, lost, "gaps", r->file.gaps);
	for (unsigned i = 0; i < r->notes_nr; i++)
		if (json_object_array_add(notes, made(w, json_object_new_string(r->notes[i]))))
			w->failed = true;
}

int trace_result_print_json(FILE *out, const struct trace_result *r, const struct trace_opts *o)
{
	struct json_object *doc = json_object_new_object();
	struct writer w = { .failed = !doc };
	const char *text;
	int err = 0;

	put_u64(&w, doc, "schema", SCHEMA_VERSION);
	put_text(&w, doc, "martlet version", MRT_VERSION_STRING);
	put_text(&w, doc, "attached_by", r->how == TRACER_MULTI ? "uprobe_multi" : "usdt");
	put_u64(&w, doc, "duration_ns", r->duration_ns);
	put_counts(&w, doc, r);
	put_hist(&w, doc, "poll", &r->poll);
	put_hist(&w, doc, "wait", &r->sched);
	put_functions(&w, doc, r);
	if (o->ops)
		put_ops(&w, doc, r);
	if (o->offcpu)
		put_workers(&w, doc, r);
	if (o->depths)
		put_depths(&w, doc, r);
	text = w.failed ? NULL : json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
	if (!text)
		err = -ENOMEM;
	else
		err = fprintf(out, "%s\n", text) < 0 ? -errno : output_flush(out);
	(void)json_object_put(doc);
	return err;
}
