/* SPDX-License-Identifier: MIT */
/* See top_tasks.h. */
#include "top_tasks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/tracer.h"
#include "clock.h"
#include "probed.h"
#include "proc.h"
#include "trace_result.h"

#define BUFFER_BYTES (1u << 20)         /* for the functions' names alone */
#define SELF_WAKE_POLLS 100             /* a second: fewer are no trouble */
#define WALK_SHARE 10                   /* of the time memory is read one part, however many tasks there are */

static void drop_record(void *ctx, const struct trace_rec *rec)
{
	struct top_tasks *t = ctx;

	if (rec->kind == TRACE_REC_FUNCTION)
		(void)fn_name(t->names, t->pid, rec->function.fn); /* kept there */
}

static void open_memory(struct top_tasks *t, const struct top_runtime *r)
{
	t->may_walk = !walk_open(&t->walk, t->pid, r->global.runtime, r->global.layout, r->workers_nr, t->why, sizeof(t->why));
	if (t->may_walk)
		t->why[0] = '\0';
}

int top_tasks_open(struct top_tasks *t, const struct top_runtime *r, char ret_why[TOP_TASKS_WHY_BYTES])
{
	struct tracer_opts o = { .pid = r->pid, .how = TRACER_AUTO, .buffer_bytes = BUFFER_BYTES, .workers_fd = -1,
				 .tasks = true, .punts = true, .task_id_at = -1, .on_record = drop_record, .ctx = t };
	char why[TRACER_WHY_BYTES];
	struct probed probed = { 0 };
	int err, pid = r->pid;

	memset(t, 0, sizeof(*t));
	t->pid = pid;
	open_memory(t, r);
	if (t->may_walk)
		o.task_id_at = (int)t->walk.layout.task_id;
	t->names = fn_names_create();
	t->counted = malloc(sizeof(*t->counted));
	err = t->names && t->counted ? probed_process(&probed, pid) : -ENOMEM;
	if (!err && probed.nr == 0) {
		(void)snprintf(ret_why, TOP_TASKS_WHY_BYTES, "process %d has no probes of Martlet", pid); /* fits */
		err = -ENOENT;
	} else if (err == -EACCES) {
		(void)proc_why_not(pid, ret_why, TOP_TASKS_WHY_BYTES);
	} else if (err) {
		(void)snprintf(ret_why, TOP_TASKS_WHY_BYTES, "process %d: %s", pid, strerror(-err)); /* fits */
	} else {
		o.files = (const char *const *)probed.files;
		o.files_nr = probed.nr;
		err = tracer_open(&o, &t->tracer, why);
		if (err)
			(void)snprintf(ret_why, TOP_TASKS_WHY_BYTES, "%s", why); /* cut to fit */
	}
	probed_free(&probed);
	if (err)
		top_tasks_close(t);
	t->looked_ns = t->list.since_ns = clock_ns();
	return err;
}

static struct top_function *function_of(struct top_tasks *t, uint64_t fn)
{
	struct top_function *grown;
	unsigned i;

	for (i = 0; i < t->nr; i++) {
		if (t->functions[i].fn == fn)
			return &t->functions[i];
	}
	grown = realloc(t->functions, (t->nr + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	t->functions = grown;
	grown += t->nr++;
	memset(grown, 0, sizeof(*grown));
	grown->fn = fn;
	grown->name = fn ? fn_name(t->names, t->pid, fn) : "(others)";
	return grown;
}

static void subtract(struct trace_hist *ret, const struct trace_hist *now, const struct trace_hist *was)
{
	unsigned i;

	ret->count = now->count - was->count;
	ret->sum_ns = now->sum_ns - was->sum_ns;
	for (i = 0; i < TRACE_HIST_SLOTS; i++)
		ret->slots[i] = now->slots[i] - was->slots[i];
}

static bool has_long_poll(const struct trace_hist *h)
{
	unsigned i;

	for (i = 0; i < TRACE_HIST_SLOTS; i++) {
		if (h->slots[i] && trace_slot_min(i) >= TOP_LONG_POLL_NS)
			return true;
	}
	return false;
}

static void take_in(struct top_function *f, const struct trace_fn *now, double span_ns)
{
	f->spawns = now->spawns;
	f->ends = now->ends;
	subtract(&f->poll, &now->poll, &f->before.poll);
	subtract(&f->sched, &now->sched, &f->before.sched);
	f->polls = (double)f->poll.count * 1e9 / span_ns;
	f->unwoken = (double)(now->unwoken - f->before.unwoken) * 1e9 / span_ns;
	f->busy = 100 * (double)f->poll.sum_ns / span_ns;
	f->warning = has_long_poll(&f->poll) ? "long polls" :
		     f->polls >= SELF_WAKE_POLLS && f->unwoken > f->polls / 2 ? "self-wakes" : "";
	f->before = *now;
}

/* ---- one by one ---- */

/* Not for longer than a part of the time, so that a million tasks do not keep us. @return 0, -ENOMEM */
static int look_at_memory(struct top_tasks *t, uint64_t now)
{
	uint64_t begin = clock_ns();
	int err;

	if (!t->may_walk)
		return 0;
	if (now < t->walk_ns) {
		task_list_keep(&t->list);
		return 0;
	}
	t->walk.torn_nr = t->walk.changed_nr = 0;
	err = walk_tasks(&t->walk, task_list_walked, &t->list);
	t->walk_ns = now + WALK_SHARE * (clock_ns() - begin);
	return err == -ENOMEM ? err : 0; /* it has ended: the runtime's own view says so */
}

static int look_at_tasks(struct top_tasks *t, const struct top_runtime *r)
{
	uint64_t now;
	unsigned i;
	int err = tracer_tasks(t->tracer, t->counted);

	if (err)
		t->counted->nr = 0; /* memory may do without */
	now = clock_ns();
	err = task_list_count(&t->list, t->counted, now);
	if (!err)
		err = look_at_memory(t, now);
	if (err)
		return err;
	for (i = 0; i < r->workers_nr; i++) {
		if (r->workers[i].poll_fn)
			task_list_polled(&t->list, r->workers[i].poll_task, r->workers[i].poll_ns);
	}
	task_list_finish(&t->list);
	for (i = 0; i < t->list.nr; i++) {
		struct task_row *row = &t->list.rows[i];

		row->fn_name = row->fn ? fn_name(t->names, t->pid, row->fn) : "";
	}
	return 0;
}

/* ---- all ---- */

static void look_at_punts(struct top_tasks *t, double span_ns)
{
	const struct trace_punt_key *prev = NULL;
	struct trace_punt_key key, last;
	uint64_t value, sum = 0, before = 0;
	unsigned i;

	for (i = 0; i < TRACE_OPCODES; i++)
		before += t->punts[i];
	while (tracer_next(t->tracer, TRACER_PUNTS, prev, &key, &value)) {
		if (key.opcode < TRACE_OPCODES)
			t->punts[key.opcode] = value;
		last = key;
		prev = &last;
	}
	for (i = 0; i < TRACE_OPCODES; i++)
		sum += t->punts[i];
	t->punts_per_s = (double)(sum - before) * 1e9 / span_ns;
}

int top_tasks_look(struct top_tasks *t, const struct top_runtime *r)
{
	uint64_t now = clock_ns(), hits[TRACE_PROBES_NR], lost[TRACE_LOST_NR];
	double span_ns = (double)(now - t->looked_ns);
	const struct trace_fn_key *prev = NULL;
	struct trace_fn_key key, last;
	struct trace_fn value;
	unsigned i;

	(void)tracer_consume(t->tracer); /* names; what is lost is counted */
	while (tracer_next(t->tracer, TRACER_FUNCTIONS, prev, &key, &value)) {
		struct top_function *f = value.poll.count || value.spawns ? function_of(t, key.fn) : NULL;

		if (f)
			take_in(f, &value, span_ns > 0 ? span_ns : 1);
		else if (value.poll.count || value.spawns)
			return -ENOMEM;
		last = key;
		prev = &last;
	}
	look_at_punts(t, span_ns > 0 ? span_ns : 1);
	tracer_counts(t->tracer, hits, lost);
	for (i = 0, t->lost = 0; i < TRACE_LOST_NR; i++)
		t->lost += i == TRACE_LOST_ops_early ? 0 : lost[i];
	t->looked_ns = now;
	return look_at_tasks(t, r);
}

static int compare_totals(const void *x, const void *y)
{
	const struct task_row *a = *(const struct task_row *const *)x, *b = *(const struct task_row *const *)y;

	if (a->total_ns != b->total_ns)
		return a->total_ns > b->total_ns ? -1 : 1;
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

unsigned top_tasks_sorted(const struct top_tasks *t, const struct task_row **ret_rows)
{
	unsigned i;

	for (i = 0; i < t->list.nr; i++)
		ret_rows[i] = &t->list.rows[i];
	qsort(ret_rows, t->list.nr, sizeof(ret_rows[0]), compare_totals);
	return t->list.nr;
}

void top_tasks_close(struct top_tasks *t)
{
	tracer_close(t->tracer);
	fn_names_destroy(t->names);
	task_list_free(&t->list);
	free(t->counted);
	free(t->functions);
	memset(t, 0, sizeof(*t));
}
