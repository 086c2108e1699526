/* SPDX-License-Identifier: MIT */
/* A dump for readers. Ages: "1.204 s" is exact, "~1.20 s" from a look at the clock shortly before, "<1.20 s" at most that. */
#include "dump.h"

#include <inttypes.h>
#include <string.h>

#include "clock.h"

#define AGE_BYTES 24
#define FD_BYTES 48

static const char *const states[] = {
#define STATE(NAME, value, text) [value] = #NAME,
	MRT_WORKER_STATES(STATE)
#undef STATE
};

static const char *state_name(const struct dump_worker *w)
{
	uint32_t state = w->is_polling && w->stats->state == MRT_WORKER_RUNNING ? MRT_WORKER_POLLING : w->stats->state;

	return state < sizeof(states) / sizeof(states[0]) ? states[state] : "?";
}

static const char *thread_state(char c)
{
	return c == 'R' ? "running" : c == 'S' ? "sleeping" : c == 'D' ? "in the kernel" : c == 'T' ? "stopped" :
	       c == 't' ? "stopped by a debugger" : c == 'Z' ? "ended" : "?";
}

/* "12.3 ms", "1.204 s", "3 min 20 s", "2 h 5 min" */
static const char *format_ns(uint64_t ns, const char *prefix, char *buf, size_t buf_bytes)
{
	uint64_t s = ns / CLOCK_NS_PER_SEC;

	if (s >= 3600)
		snprintf(buf, buf_bytes, "%s%" PRIu64 " h %" PRIu64 " min", prefix, s / 3600, s / 60 % 60);
	else if (s >= 100)
		snprintf(buf, buf_bytes, "%s%" PRIu64 " min %" PRIu64 " s", prefix, s / 60, s % 60);
	else if (s >= 1)
		snprintf(buf, buf_bytes, "%s%.3f s", prefix, (double)ns / (double)CLOCK_NS_PER_SEC);
	else
		snprintf(buf, buf_bytes, "%s%.1f ms", prefix, (double)ns / (double)CLOCK_NS_PER_MS);
	return buf;
}

static const char *format_age(const struct dump *d, enum walk_age age, uint64_t began_ns, char *buf, size_t buf_bytes)
{
	if (age == WALK_AGE_UNKNOWN)
		return "?";
	return format_ns(d->now_ns > began_ns ? d->now_ns - began_ns : 0, age == WALK_AGE_EXACT ? "" : "~", buf, buf_bytes);
}

static void print_head(const struct dump *d, FILE *out)
{
	char up[AGE_BYTES];

	fprintf(out, "process %d (%s), %s%s\n", d->a->pid, d->process, thread_state(d->state),
		d->state == 'T' ? ": kill -CONT lets it go on" : "");
	fprintf(out, "runtime %s: %u worker%s, statistics in %s, up %s\n", d->a->label, d->a->workers_nr,
		d->a->workers_nr == 1 ? "" : "s", d->a->from,
		format_ns(d->now_ns > d->a->global.created_ns ? d->now_ns - d->a->global.created_ns : 0, "", up, sizeof(up)));
}

static void print_worker(struct dump *d, const struct dump_worker *w, FILE *out)
{
	char since[AGE_BYTES] = "-", moved[40] = "";

	if (w->since_ns)
		format_ns(d->now_ns > w->since_ns ? d->now_ns - w->since_ns : 0, w->is_exact ? "" : "<", since, sizeof(since));
	if (w->is_stuck)
		snprintf(moved, sizeof(moved), " (none in %" PRIu64 " ms)", d->look_ns / CLOCK_NS_PER_MS);
	fprintf(out, "%6u  %7d  %-9s %-12s %12" PRIu64 "%-16s %-13s %-22s ", w->stats->index, w->stats->tid, state_name(w), since,
		w->stats->polls, moved, thread_state(w->thread_state), w->wchan[0] ? w->wchan : "-");
	if (w->is_polling)
		fprintf(out, "%s, task %#" PRIx64 "\n", dump_fn(d, w->stats->poll_fn), w->stats->poll_task);
	else
		fprintf(out, "-\n");
}

static void print_op(struct dump *d, const struct dump_op *o, FILE *out)
{
	char age[AGE_BYTES], fd[FD_BYTES + 16] = "-", what[FD_BYTES], due[AGE_BYTES], task[32];
	const struct walk_op *op = &o->op;

	if (op->is_ring && op->is_handle)
		snprintf(fd, sizeof(fd), "file %d", op->fd);
	else if (op->is_ring && op->fd >= 0)
		snprintf(fd, sizeof(fd), "%d %s", op->fd, dump_fd(d, op->fd, what, sizeof(what)));
	snprintf(task, sizeof(task), "%#" PRIx64, o->task);
	fprintf(out, "%-12s  %-16s %-28s  %-18s %s", format_age(d, op->age, op->began_ns, age, sizeof(age)), op->kind, fd, task,
		dump_fn(d, o->fn));
	if (op->object_fn)
		fprintf(out, ", of %s", dump_fn(d, op->object_fn));
	if (op->deadline_ns > d->now_ns)
		fprintf(out, ", due in %s", format_ns(op->deadline_ns - d->now_ns, "", due, sizeof(due)));
	else if (op->deadline_ns)
		fprintf(out, ", late by %s", format_ns(d->now_ns - op->deadline_ns, "", due, sizeof(due)));
	fprintf(out, "%s%s%s\n", op->is_queued ? ", not yet submitted" : "", op->is_cancelled ? ", cancelled" : "",
		op->is_ended ? ", over: its task has not run since" : "");
}

static void print_ops(struct dump *d, FILE *out)
{
	fprintf(out, "\nops in flight: %" PRIu64 ", of which %" PRIu64 " at rings and the blocking pool", d->ops_nr,
		d->ops_out_nr);
	if (d->ops_kept == 0) {
		fprintf(out, "\n");
		return;
	}
	fprintf(out, "; the oldest %u:\n%-12s  %-16s %-28s  %-18s %s\n", d->ops_kept, "AGE", "OP", "FD", "TASK", "FUNCTION");
	for (unsigned i = 0; i < d->ops_kept; i++)
		print_op(d, &d->ops[i], out);
}

static void print_tasks(struct dump *d, FILE *out)
{
	char age[AGE_BYTES];

	fprintf(out, "\ntasks:");
	for (unsigned i = 0; i < WALK_STATES_NR; i++)
		fprintf(out, "%s %" PRIu64 " %s", i ? "," : "", d->tasks_nr[i], walk_state_name((enum walk_state)i));
	fprintf(out, "\n");
	if (d->groups_nr)
		fprintf(out, "%10s  %-12s  %-40s %s\n", "WAITING", "OLDEST", "FUNCTION", "FOR");
	for (unsigned i = 0; i < d->groups_nr; i++) {
		const struct dump_group *g = &d->groups[i];

		fprintf(out, "%10" PRIu64 "  %-12s  %-40s %s\n", g->nr, format_age(d, g->age, g->began_ns, age, sizeof(age)),
			dump_fn(d, g->fn), g->wait);
	}
	if (d->groups_left)
		fprintf(out, "%10" PRIu64 "  of other functions, for other ops\n", d->groups_left);
	if (d->tasks_kept)
		fprintf(out, "\n%-12s  %-18s %-10s %-6s %-40s %s\n", "AGE", "TASK", "ID", "WORKER", "FUNCTION", "WAITS FOR");
	for (unsigned i = 0; i < d->tasks_kept; i++) {
		const struct dump_task *t = &d->tasks[i];
		char addr[32], worker[16] = "-", id[32];

		snprintf(addr, sizeof(addr), "%#" PRIx64, t->task.addr);
		snprintf(id, sizeof(id), "%" PRIx64, t->task.id);
		if (t->task.worker >= 0)
			snprintf(worker, sizeof(worker), "%d", t->task.worker);
		fprintf(out, "%-12s  %-18s %-10s %-6s %-40s %s", format_age(d, t->age, t->began_ns, age, sizeof(age)), addr, id,
			worker, dump_fn(d, t->task.fn), t->wait);
		if (t->object)
			fprintf(out, " at %#" PRIx64, t->object);
		fprintf(out, "%s%s%s\n", t->task.name[0] ? ", named " : "", t->task.name, t->task.is_aborted ? ", aborted" : "");
	}
}

void dump_text(struct dump *d, FILE *out)
{
	print_head(d, out);
	fprintf(out, "\n%6s  %7s  %-9s %-12s %12s%-16s %-13s %-22s %s\n", "WORKER", "TID", "STATE", "SINCE", "POLLS", "", "THREAD",
		"IN THE KERNEL AT", "FUNCTION");
	for (unsigned i = 0; i < d->a->workers_nr; i++)
		print_worker(d, &d->workers[i], out);
	if (d->memory_why)
		return;
	print_ops(d, out);
	print_tasks(d, out);
	if (d->walk.changed_nr)
		fprintf(out, "\n%u tasks changed while they were read\n", d->walk.changed_nr);
	if (d->walk.torn_nr)
		fprintf(out, "\nincomplete: %u lists could not be followed; the first: %s\n", d->walk.torn_nr, d->walk.torn);
}
