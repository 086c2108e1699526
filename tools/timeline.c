/* SPDX-License-Identifier: MIT */
/*
 * See timeline.h.
 *
 * A worker is busy whenever it is not parked, as mrt_workers has it, so busy spans come from parks alone: from the end of
 * one to the begin of the next, both by the clock reads that mrt_workers is made of. If records of parks are lost, which
 * their numbers tell, what lies between is left out.
 */
#include "timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcode.h"
#include "output.h"
#include "proc.h"

struct track {
	uint32_t tgid, tid, worker;
	uint64_t busy_ns;               /* since; 0: unknown */
	uint64_t parks;                 /* number of the next: they are counted from the begin of the tracing */
	bool has_parked;
	uint64_t busy_sum_ns;           /* of spans written */
};

struct timeline {
	FILE *out;
	struct timeline_opts opts;
	struct track *tracks;
	size_t tracks_nr;
	uint64_t op_id;                 /* of the next op's spans */
	struct trace_file file;
};

/* ---- writing ---- */

static double us_of(const struct timeline *t, uint64_t ns)
{
	return ns > t->opts.begin_ns ? (double)(ns - t->opts.begin_ns) / 1e3 : 0;
}

static int pid_of(const struct timeline *t, uint32_t tgid)
{
	return t->opts.pid ? t->opts.pid : (int)tgid;
}

/* @return false: the file has as many events as it may have */
static bool begin_event(struct timeline *t)
{
	if (t->file.events == t->opts.events_max) {
		t->file.skipped++;
		return false;
	}
	fputs(t->file.events++ ? ",\n" : "\n", t->out);
	return true;
}

static void put_string(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			fprintf(out, "\\u%04x", (unsigned char)*s);
		else
			fputc(*s, out);
	}
	fputc('"', out);
}

static void put_common(struct timeline *t, const char *name, const char *cat, char ph, uint64_t ns, uint32_t tgid, uint32_t tid)
{
	fputs("{\"name\":", t->out);
	put_string(t->out, name);
	fprintf(t->out, ",\"cat\":\"%s\",\"ph\":\"%c\",\"ts\":%.3f,\"pid\":%d,\"tid\":%u", cat, ph, us_of(t, ns),
		pid_of(t, tgid), tid);
}

/* A span of a track, up to its arguments. It begins at the begin of the tracing, if it was before. */
static bool begin_span(struct timeline *t, const char *name, const char *cat, uint64_t start, uint64_t end, uint32_t tgid,
		       uint32_t tid)
{
	if (!begin_event(t))
		return false;
	put_common(t, name, cat, 'X', start, tgid, tid);
	fprintf(t->out, ",\"dur\":%.3f", us_of(t, end) - us_of(t, start));
	return true;
}

static void put_metadata(struct timeline *t, const char *what, uint32_t tgid, uint32_t tid, const char *name)
{
	if (!begin_event(t))
		return;
	fprintf(t->out, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"args\":{\"name\":", what, pid_of(t, tgid), tid);
	put_string(t->out, name);
	fputs("}}", t->out);
}

/* ---- tracks ---- */

static void name_track(struct timeline *t, const struct track *k, bool first_of_process)
{
	char name[32];

	if (first_of_process) {
		proc_name(pid_of(t, k->tgid), name, sizeof(name));
		put_metadata(t, "process_name", k->tgid, k->tid, name);
	}
	(void)snprintf(name, sizeof(name), "worker %u", k->worker); /* fits */
	put_metadata(t, "thread_name", k->tgid, k->tid, name);
}

/* NULL: no memory, which timeline_end() tells. */
static struct track *track_of(struct timeline *t, uint32_t tgid, uint32_t tid, uint32_t worker)
{
	bool first = true;
	struct track *grown;

	for (size_t i = 0; i < t->tracks_nr; i++) {
		struct track *k = &t->tracks[i];

		if (k->tgid == tgid && k->tid == tid && k->worker == worker)
			return k;
		first &= k->tgid != tgid;
	}
	grown = realloc(t->tracks, (t->tracks_nr + 1) * sizeof(*grown));
	if (!grown) {
		t->file.error = -ENOMEM;
		return NULL;
	}
	t->tracks = grown;
	grown[t->tracks_nr] = (struct track){ .tgid = tgid, .tid = tid, .worker = worker };
	name_track(t, &grown[t->tracks_nr], first);
	return &grown[t->tracks_nr++];
}

static void end_busy(struct timeline *t, struct track *k, uint64_t end)
{
	if (k->busy_ns && end > k->busy_ns && begin_span(t, "busy", "busy", k->busy_ns, end, k->tgid, k->tid)) {
		fputs("}", t->out);
		k->busy_sum_ns += end - k->busy_ns;
	}
	k->busy_ns = 0;
}

/* It was busy then, as it did something. */
static void busy_at(struct track *k, uint64_t ns)
{
	if (!k->busy_ns && !k->has_parked)
		k->busy_ns = ns;
}

/* ---- records ---- */

static void add_poll(struct timeline *t, struct track *k, const struct trace_rec *r)
{
	busy_at(k, r->poll.start_ns);
	if (!begin_span(t, fn_name(t->opts.names, pid_of(t, r->tgid), r->poll.fn), "poll", r->poll.start_ns, r->end_ns,
			r->tgid, r->tid))
		return;
	fprintf(t->out, ",\"args\":{\"task\":\"0x%" PRIx64 "\",\"ready\":%s", r->poll.task,
		r->poll.ready ? "true" : "false");
	if (r->poll.sched_ns != UINT64_MAX)
		fprintf(t->out, ",\"waited_us\":%.3f", (double)r->poll.sched_ns / 1e3);
	fputs("}}", t->out);
}

static void add_park(struct timeline *t, struct track *k, const struct trace_rec *r)
{
	uint64_t start = r->end_ns - r->park.slept_ns;

	if (r->park.seq != k->parks) {
		t->file.gaps++;
		k->busy_ns = 0;
	}
	end_busy(t, k, start);
	if (begin_span(t, "parked", "park", start, r->end_ns, r->tgid, r->tid))
		fputs("}", t->out);
	k->busy_ns = r->end_ns;
	k->parks = r->park.seq + 1;
	k->has_parked = true;
}

static void add_steal(struct timeline *t, struct track *k, const struct trace_rec *r)
{
	busy_at(k, r->end_ns);
	if (!begin_event(t))
		return;
	put_common(t, "steal", "steal", 'i', r->end_ns, r->tgid, r->tid);
	fprintf(t->out, ",\"s\":\"t\",\"args\":{\"victim\":%" PRIu64 ",\"tasks\":%" PRIu64 "}}", r->steal.victim,
		r->steal.nr);
}

/* Both ends of an asynchronous span, which count as one event. Whatever has the same id lies inside of the first. */
static bool begin_async(struct timeline *t, const char *name, uint64_t start, const struct trace_rec *r)
{
	if (!begin_event(t))
		return false;
	put_common(t, name, "op", 'b', start, r->tgid, r->tid);
	fprintf(t->out, ",\"id\":\"0x%" PRIx64 "\"", t->op_id);
	return true;
}

static void end_async(struct timeline *t, const char *name, uint64_t end, const struct trace_rec *r)
{
	fputs(",\n", t->out);
	put_common(t, name, "op", 'e', end, r->tgid, r->tid);
	fprintf(t->out, ",\"id\":\"0x%" PRIx64 "\"}", t->op_id);
}

static void add_stage(struct timeline *t, const char *name, uint64_t start, uint64_t end, const struct trace_rec *r)
{
	if (!start || end < start || !begin_async(t, name, start, r))
		return;
	fputs("}", t->out);
	end_async(t, name, end, r);
}

static void add_op(struct timeline *t, const struct trace_rec *r)
{
	uint64_t taken = r->op.taken_ns, cqe = r->op.cqe_ns;
	char name[OPCODE_NAME_MAX];

	(void)opcode_text((unsigned)r->op.opcode, name);
	t->op_id++;
	if (!begin_async(t, name, r->op.start_ns, r))
		return;
	fprintf(t->out, ",\"args\":{\"op\":\"0x%" PRIx64 "\",\"task\":\"0x%" PRIx64 "\",\"worker\":%u,\"res\":%d,\"function\":",
		r->op.op, r->op.task, r->worker, (int)r->op.res);
	put_string(t->out, r->op.fn ? fn_name(t->opts.names, pid_of(t, r->tgid), r->op.fn) : "");
	fputs("}}", t->out);
	if (taken) {
		add_stage(t, "queued", r->op.start_ns, taken, r);
		if (cqe >= taken) {
			add_stage(t, "kernel", taken, cqe, r);
			add_stage(t, "unreaped", cqe, r->end_ns, r);
		}
	}
	end_async(t, name, r->end_ns, r);
}

void timeline_add(struct timeline *t, const struct trace_rec *r)
{
	struct track *k;

	if (r->kind == TRACE_REC_OP) {
		add_op(t, r);
		return;
	}
	k = r->kind == TRACE_REC_FUNCTION ? NULL : track_of(t, r->tgid, r->tid, r->worker);
	if (!k)
		return;
	if (r->kind == TRACE_REC_POLL)
		add_poll(t, k, r);
	else if (r->kind == TRACE_REC_PARK)
		add_park(t, k, r);
	else
		add_steal(t, k, r);
}

void timeline_add_thread(struct timeline *t, const struct trace_thread *th, uint64_t end_ns)
{
	struct track *k = track_of(t, th->tgid, th->tid, th->worker);

	if (!k)
		return;
	if (th->parks != k->parks) {
		t->file.gaps++;
		k->busy_ns = 0;
	}
	if (th->task) {
		busy_at(k, th->poll_ns);
		if (begin_span(t, fn_name(t->opts.names, pid_of(t, th->tgid), th->fn), "poll", th->poll_ns, end_ns, th->tgid,
			       th->tid))
			fputs(",\"args\":{\"unfinished\":true}}", t->out);
	}
	end_busy(t, k, th->park_ns ? th->park_ns : end_ns);
	if (th->park_ns && begin_span(t, "parked", "park", th->park_ns, end_ns, th->tgid, th->tid))
		fputs(",\"args\":{\"unfinished\":true}}", t->out);
}

/* ---- begin and end ---- */

int timeline_create(const struct timeline_opts *opts, struct timeline **ret_timeline)
{
	struct timeline *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->opts = *opts;
	t->out = fopen(opts->path, "we");
	if (!t->out) {
		int err = -errno;

		free(t);
		return err;
	}
	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", t->out);
	*ret_timeline = t;
	return 0;
}

void timeline_end(struct timeline *t, uint64_t records_lost, struct trace_file *ret_file)
{
	fprintf(t->out, "\n],\"otherData\":{\"version\":\"martlet %s\",\"records_lost\":%" PRIu64 ",\"events_skipped\":%" PRIu64
		",\"gaps\":%" PRIu64 ",\"begin_ns\":%" PRIu64 ",\"busy_ns\":{", MRT_VERSION_STRING, records_lost,
		t->file.skipped, t->file.gaps, t->opts.begin_ns);
	for (size_t i = 0; i < t->tracks_nr; i++)
		fprintf(t->out, "%s\"%d/%u\":%" PRIu64, i ? "," : "", pid_of(t, t->tracks[i].tgid), t->tracks[i].tid,
			t->tracks[i].busy_sum_ns);
	fputs("}}}\n", t->out);
	if (!t->file.error)
		t->file.error = output_flush(t->out);
	if (fclose(t->out) && !t->file.error)
		t->file.error = -errno;
	*ret_file = t->file;
	free(t->tracks);
	free(t);
}
