/* SPDX-License-Identifier: MIT */
/* See trace_result.h: reading. */
#include "trace_result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more element of a table. @return its address, NULL: no memory */
static void *append(void *table_ptr, size_t *nr, size_t bytes)
{
	void *old, *grown;

	memcpy(&old, table_ptr, sizeof(old));
	grown = realloc(old, (*nr + 1) * bytes);
	if (!grown)
		return NULL;
	memcpy(table_ptr, &grown, sizeof(grown));
	memset((char *)grown + *nr * bytes, 0, bytes);
	return (char *)grown + (*nr)++ * bytes;
}

uint64_t trace_slot_min(unsigned slot)
{
	return slot ? UINT64_C(1) << slot : 0;
}

uint64_t trace_hist_quantile(const struct trace_hist *h, double share)
{
	double wanted = (double)h->count * share;
	uint64_t seen = 0;

	for (unsigned i = 0; i < TRACE_HIST_SLOTS; i++) {
		seen += h->slots[i];
		if (seen && (double)seen >= wanted)
			return trace_slot_min(i + 1) - 1;
	}
	return 0;
}

static void add(struct trace_hist *to, const struct trace_hist *h)
{
	to->count += h->count;
	to->sum_ns += h->sum_ns;
	for (unsigned i = 0; i < TRACE_HIST_SLOTS; i++)
		to->slots[i] += h->slots[i];
}

static int read_functions(struct trace_result *r, const struct tracer *t, int pid, struct fn_names *names)
{
	const void *prev = NULL;
	struct trace_fn_key key;
	struct trace_fn f;

	for (; tracer_next(t, TRACER_FUNCTIONS, prev, &key, &f); prev = &key) {
		struct trace_fn_row *row;

		add(&r->poll, &f.poll);
		add(&r->sched, &f.sched);
		if (!f.spawns && !f.ends && !f.unwoken && !f.poll.count && !f.sched.count)
			continue; /* that of the others, unused */
		row = append(&r->functions, &r->functions_nr, sizeof(*row));
		if (!row)
			return -ENOMEM;
		row->pid = pid ? pid : (int)key.tgid;
		row->fn = key.fn;
		row->name = fn_name(names, row->pid, key.fn);
		row->f = f;
	}
	return 0;
}

static int read_punts(struct trace_result *r, const struct tracer *t, int pid, struct fn_names *names)
{
	const void *prev = NULL;
	struct trace_punt_key key;
	uint64_t nr;

	for (; tracer_next(t, TRACER_PUNTS, prev, &key, &nr); prev = &key) {
		struct trace_punt_row *row = append(&r->punts, &r->punts_nr, sizeof(*row));

		if (!row)
			return -ENOMEM;
		row->pid = pid ? pid : (int)key.tgid;
		row->opcode = key.opcode;
		row->fn = key.fn;
		row->nr = nr;
		row->name = fn_name(names, row->pid, key.fn);
	}
	return 0;
}

static int read_workers(struct trace_result *r, const struct tracer *t, int pid)
{
	const void *prev = NULL;
	struct trace_worker_key key;
	struct trace_worker w;

	for (; tracer_next(t, TRACER_WORKERS, prev, &key, &w); prev = &key) {
		struct trace_worker_row *row = append(&r->workers, &r->workers_nr, sizeof(*row));

		if (!row)
			return -ENOMEM;
		row->pid = pid ? pid : (int)key.tgid;
		row->worker = key.worker;
		row->w = w;
	}
	return 0;
}

static int read_ops(struct trace_result *r, const struct tracer *t)
{
	for (unsigned opcode = 0; opcode < TRACE_OPCODES; opcode++) {
		struct trace_op_row row = { .opcode = opcode }, *place;
		bool any = false;

		for (unsigned s = 0; s < TRACE_STAGES_NR; s++) {
			tracer_stage(t, opcode, (enum trace_stage)s, &row.stages[s]);
			any |= row.stages[s].count > 0;
		}
		if (!any)
			continue;
		place = append(&r->ops, &r->ops_nr, sizeof(*place));
		if (!place)
			return -ENOMEM;
		*place = row;
	}
	return 0;
}

static int read_depths(struct trace_result *r, const struct tracer *t, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct trace_depth_row *row = append(&r->depths, &r->depths_nr, sizeof(*row));

		if (!row)
			return -ENOMEM;
		row->worker = i;
		tracer_depths(t, i, &row->d);
	}
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct trace_fn_row *x = a, *y = b;

	return (x->f.poll.sum_ns < y->f.poll.sum_ns) - (x->f.poll.sum_ns > y->f.poll.sum_ns);
}

static int by_number(const void *a, const void *b)
{
	const struct trace_punt_row *x = a, *y = b;

	return (x->nr < y->nr) - (x->nr > y->nr);
}

static int by_worker(const void *a, const void *b)
{
	const struct trace_worker_row *x = a, *y = b;

	if (x->pid != y->pid)
		return (x->pid > y->pid) - (x->pid < y->pid);
	return (x->worker > y->worker) - (x->worker < y->worker);
}

static void sort(void *table, size_t nr, size_t bytes, int (*compare)(const void *, const void *))
{
	if (nr > 0)
		qsort(table, nr, bytes, compare);
}

int trace_result_read(struct trace_result *r, const struct tracer *t, int pid, unsigned depths_nr, struct fn_names *names)
{
	int err;

	r->how = tracer_how(t);
	tracer_counts(t, r->hits, r->lost);
	for (unsigned i = 0; i < TRACER_NOTES_MAX && tracer_note(t, i); i++)
		r->notes[r->notes_nr++] = tracer_note(t, i);
	err = read_functions(r, t, pid, names);
	if (!err)
		err = read_punts(r, t, pid, names);
	if (!err)
		err = read_workers(r, t, pid);
	if (!err)
		err = read_ops(r, t);
	if (!err)
		err = read_depths(r, t, depths_nr);
	sort(r->functions, r->functions_nr, sizeof(*r->functions), by_time);
	sort(r->punts, r->punts_nr, sizeof(*r->punts), by_number);
	sort(r->workers, r->workers_nr, sizeof(*r->workers), by_worker);
	return err;
}

void trace_result_free(struct trace_result *r)
{
	free(r->functions);
	free(r->punts);
	free(r->workers);
	free(r->ops);
	free(r->depths);
}
