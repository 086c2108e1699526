/* SPDX-License-Identifier: MIT */
/*
 * See task_list.h. Memory is read after the figures, so where both are known memory has the newer state. Idle time is what is left
 * of the total, since a yield is no wake: what no probe tells between two polls is waiting to be polled, once the next poll shows
 * that nothing woke it.
 */
#include "task_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_rows(const void *x, const void *y)
{
	const struct task_row *a = x, *b = y;

	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static struct task_row *find(struct task_row *rows, unsigned nr, uint64_t addr)
{
	const struct task_row key = { .addr = addr };

	return nr ? bsearch(&key, rows, nr, sizeof(*rows), compare_rows) : NULL;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t between(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

static int make_room(struct task_list *l)
{
	struct task_row *rows;

	if (l->rows)
		return 0;
	/* touched as far as there are tasks */
	rows = malloc(2 * TASK_LIST_MAX * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	l->rows = rows;
	l->before = rows + TASK_LIST_MAX;
	return 0;
}

static void count_one(struct task_list *l, uint64_t addr, const struct trace_task *t)
{
	struct task_row *r = &l->rows[l->nr++];
	const struct task_row *old = find(l->before, l->before_nr, addr);
	uint64_t in_state = between(t->since_ns, l->now_ns);

	memset(r, 0, sizeof(*r));
	r->addr = addr;
	r->fn = t->fn;
	r->id = t->id;
	r->state = t->state <= TRACE_TASK_DONE ? (enum trace_task_state)t->state : TRACE_TASK_IDLE;
	r->is_counted = true;
	r->met_ns = t->first_ns;
	r->state_ns = t->since_ns;
	/* whose spawn was not seen was there before; unless its entry was dropped, and it is met for the second time */
	r->first_ns = t->spawned || l->dropped ? t->first_ns : at_most(t->first_ns, l->since_ns);
	r->busy_ns = t->poll.sum_ns;
	r->sched_ns = t->sched.sum_ns;
	r->polls = t->poll.count;
	r->self_wakes = t->self_wakes;
	r->poll_max_ns = t->poll_max_ns;
	r->sched_max_ns = t->sched_max_ns;
	r->poll = t->poll;
	r->sched = t->sched;
	if (r->state == TRACE_TASK_RUNNING) {
		r->running_ns = in_state;
		r->busy_ns += in_state;
	} else if (r->state == TRACE_TASK_SCHED) {
		r->sched_ns += in_state;
		r->sched_max_ns = r->sched_max_ns > in_state ? r->sched_max_ns : in_state;
	}
	r->total_ns = between(r->first_ns, r->state == TRACE_TASK_DONE ? t->since_ns : l->now_ns);
	if (old && (old->met_ns == r->met_ns || (!old->met_ns && !t->spawned))) {
		memcpy(r->name, old->name, sizeof(r->name));
		r->id = r->id ? r->id : old->id;
	}
}

int task_list_count(struct task_list *l, const struct tracer_tasks *counted, uint64_t now_ns)
{
	struct task_row *swapped = l->rows;
	unsigned i;

	if (make_room(l))
		return -ENOMEM;
	if (swapped) {
		l->rows = l->before;
		l->before = swapped;
	}
	l->before_nr = l->nr;
	l->nr = 0;
	l->now_ns = now_ns;
	l->dropped = counted->dropped;
	l->hidden = 0;
	for (i = 0; i < counted->nr && i < TRACE_TASKS_MAX; i++)
		count_one(l, counted->keys[i].task, &counted->tasks[i]);
	qsort(l->rows, l->nr, sizeof(*l->rows), compare_rows);
	l->counted_nr = l->nr;
	return 0;
}

static enum trace_task_state state_of(enum walk_state state)
{
	switch (state) {
	case WALK_RUNNING:
		return TRACE_TASK_RUNNING;
	case WALK_RUNNABLE:
		return TRACE_TASK_SCHED;
	case WALK_ENDED:
		return TRACE_TASK_DONE;
	default:
		return TRACE_TASK_IDLE;
	}
}

static void set_state(struct task_row *r, enum trace_task_state state)
{
	if (state == r->state)
		return;
	r->state = state;
	r->state_ns = 0;
	r->running_ns = 0;
}

/* It has no entry: as it was last seen, or new. */
static struct task_row *add_uncounted(struct task_list *l, uint64_t addr, uint64_t id)
{
	const struct task_row *old = find(l->before, l->before_nr, addr);
	struct task_row *r;

	if (l->nr - l->counted_nr >= TASK_LIST_MAX - TRACE_TASKS_MAX) {
		l->hidden++;
		return NULL;
	}
	r = &l->rows[l->nr++];
	if (old && (!id || !old->id || old->id == id)) {
		*r = *old;
		r->is_counted = false;
		r->running_ns = 0;
	} else {
		memset(r, 0, sizeof(*r));
		r->addr = addr;
		r->first_ns = l->has_looked ? l->now_ns : l->since_ns;
	}
	r->total_ns = between(r->first_ns, l->now_ns);
	return r;
}

void task_list_walked(const struct walk_task *task, void *list)
{
	struct task_list *l = list;
	struct task_row *r = find(l->rows, l->counted_nr, task->addr);

	if (!r && task->state == WALK_ENDED)
		return; /* before it listened, or dropped */
	if (r && ((r->id && r->id != task->id) || (r->state == TRACE_TASK_DONE && task->state != WALK_ENDED)))
		return; /* the next one has its memory since it was counted */
	if (!r)
		r = add_uncounted(l, task->addr, task->id);
	if (!r)
		return;
	r->id = task->id;
	r->fn = task->fn;
	(void)snprintf(r->name, sizeof(r->name), "%s", task->name); /* fits */
	set_state(r, state_of(task->state));
}

void task_list_keep(struct task_list *l)
{
	unsigned i;

	for (i = 0; i < l->before_nr; i++) {
		const struct task_row *old = &l->before[i];

		if (!old->is_counted && !find(l->rows, l->counted_nr, old->addr))
			(void)add_uncounted(l, old->addr, old->id); /* no room: counted as hidden */
	}
}

void task_list_polled(struct task_list *l, uint64_t addr, uint64_t ns)
{
	unsigned i;

	for (i = l->counted_nr; i < l->nr; i++) {
		struct task_row *r = &l->rows[i];

		if (r->addr != addr || r->state != TRACE_TASK_RUNNING)
			continue;
		r->running_ns = ns;
		r->busy_ns = at_most(ns, r->total_ns);
	}
}

static unsigned warn(const struct task_row *r)
{
	uint64_t longest = r->running_ns > r->poll_max_ns ? r->running_ns : r->poll_max_ns;

	return (r->running_ns >= TASK_NEVER_YIELDS_NS ? TASK_NEVER_YIELDS : 0) |
	       (r->polls >= TASK_SELF_WAKES_POLLS && 2 * r->self_wakes > r->polls ? TASK_SELF_WAKES : 0) |
	       (longest >= TASK_LONG_POLL_NS ? TASK_LONG_POLL : 0) | (r->sched_max_ns >= TASK_LONG_WAIT_NS ? TASK_LONG_WAIT : 0);
}

void task_list_finish(struct task_list *l)
{
	unsigned i;

	l->has_looked = true;
	for (i = 0; i < l->nr; i++) {
		struct task_row *r = &l->rows[i];

		r->warnings = warn(r);
		r->poll_max_ns = r->running_ns > r->poll_max_ns ? r->running_ns : r->poll_max_ns;
		/* a poll that began before the listening is counted whole */
		if (r->total_ns < r->busy_ns + r->sched_ns)
			r->total_ns = r->busy_ns + r->sched_ns;
		r->idle_ns = r->total_ns - r->busy_ns - r->sched_ns;
	}
	qsort(l->rows, l->nr, sizeof(*l->rows), compare_rows);
}

const struct task_row *task_list_find(const struct task_list *l, uint64_t addr, uint64_t met_ns)
{
	const struct task_row *r = find(l->rows, l->nr, addr);

	return r && (r->met_ns == met_ns || !met_ns) ? r : NULL;
}

void task_list_free(struct task_list *l)
{
	/* one block, of which either half may be the rows */
	free(l->rows < l->before ? l->rows : l->before);
	memset(l, 0, sizeof(*l));
}

const char *task_state_name(enum trace_task_state state)
{
	static const char *const names[] = { "IDLE", "SCHED", "RUNNING", "DONE" };

	return names[state];
}

const char *task_warning_name(unsigned warnings)
{
	return warnings & TASK_NEVER_YIELDS ? "never yields" : warnings & TASK_SELF_WAKES ? "self-wakes" :
	       warnings & TASK_LONG_POLL ? "long poll" : warnings & TASK_LONG_WAIT ? "long wait" : "";
}
