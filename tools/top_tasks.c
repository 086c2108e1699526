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
#include "top_model.h"
#include "trace_result.h"

#define BUFFER_BYTES (1u << 20)         /* for the functions' names alone */
#define SELF_WAKE_POLLS 100             /* a second: fewer are no trouble */

static void drop_record(void *ctx, const struct trace_rec *rec)
{
	struct top_tasks *t = ctx;

	if (rec->kind == TRACE_REC_FUNCTION)
		(void)fn_name(t->names, t->pid, rec->function.fn); /* kept there */
}

int top_tasks_open(struct top_tasks *t, int pid, char ret_why[TOP_TASKS_WHY_BYTES])
{
	struct tracer_opts o = { .pid = pid, .how = TRACER_AUTO, .buffer_bytes = BUFFER_BYTES, .workers_fd = -1,
				 .on_record = drop_record, .ctx = t };
	char why[TRACER_WHY_BYTES];
	struct probed probed = { 0 };
	int err;

	memset(t, 0, sizeof(*t));
	t->pid = pid;
	t->looked_ns = clock_ns();
	t->names = fn_names_create();
	err = t->names ? probed_process(&probed, pid) : -ENOMEM;
	if (!err && probed.nr == 0) {
		(void)snprintf(ret_why, TOP_TASKS_WHY_BYTES, "process %d has no probes of Martlet", pid); /* fits */
		err = -ENOENT;
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

int top_tasks_look(struct top_tasks *t)
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
	tracer_counts(t->tracer, hits, lost);
	for (i = 0, t->lost = 0; i < TRACE_LOST_NR; i++)
		t->lost += i == TRACE_LOST_ops_early ? 0 : lost[i];
	t->looked_ns = now;
	return 0;
}

void top_tasks_close(struct top_tasks *t)
{
	tracer_close(t->tracer);
	fn_names_destroy(t->names);
	free(t->functions);
	memset(t, 0, sizeof(*t));
}
