/* SPDX-License-Identifier: MIT */
/*
 * See top_model.h.
 *
 * A worker is stuck if it is in one poll for TOP_STUCK_NS. With full timing the statistics say since when; without, the poll
 * count that did not move between looks says that it is one poll, and the last ring turn, which came before it, says since when
 * at most.
 */
#include "top_model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <martlet/martlet.h>

#include "clock.h"
#include "opcode.h"
#include "proc.h"

const char *top_state_name(unsigned state)
{
	static const char *const names[] = { [MRT_WORKER_STARTING] = "START", [MRT_WORKER_RUNNING] = "RUN",
					     [MRT_WORKER_POLLING] = "POLL", [MRT_WORKER_SEARCHING] = "SEARCH",
					     [MRT_WORKER_PARKED] = "PARK", [MRT_WORKER_STOPPED] = "STOP" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

/* ---- one runtime ---- */

static void free_runtime(struct top_runtime *r)
{
	if (!r)
		return;
	free(r->workers);
	free(r->before);
	free(r->before_hists);
	free(r->same);
	symbols_close(r->symbols);
	free(r);
}

static void *alloc_aligned(size_t bytes)
{
	void *mem = aligned_alloc(128, (bytes + 127) / 128 * 128);

	if (mem)
		memset(mem, 0, bytes);
	return mem;
}

static struct top_runtime *make_runtime(struct attach *a)
{
	struct top_runtime *r = alloc_aligned(sizeof(*r));

	if (!r)
		return NULL;
	r->a = a;
	r->pid = a->pid;
	r->backend = a->backend;
	r->workers_nr = a->workers_nr;
	memcpy(r->label, a->label, sizeof(r->label));
	proc_name(a->pid, r->process, sizeof(r->process));
	r->workers = calloc(a->workers_nr, sizeof(*r->workers));
	r->before = alloc_aligned(a->workers_nr * sizeof(*r->before));
	r->before_hists = alloc_aligned(a->workers_nr * sizeof(*r->before_hists));
	r->same = calloc(a->workers_nr, sizeof(*r->same));
	if (!r->workers || !r->before || !r->before_hists || !r->same) {
		free_runtime(r);
		return NULL;
	}
	return r;
}

static void push(struct top_history *h, double value)
{
	if (h->nr == TOP_HISTORY_NR)
		memmove(h->value, h->value + 1, --h->nr * sizeof(h->value[0]));
	h->value[h->nr++] = value;
}

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* ---- workers ---- */

/* A second. */
#define RATE(field) ((double)(now->field - was->field) * per_second)

static void set_rates(struct top_worker *t, const struct mrt_worker_stats *now, const struct mrt_worker_stats *was, double span_ns)
{
	double per_second = 1e9 / span_ns;

	t->busy = 100 * (double)(now->busy_ns - was->busy_ns) / span_ns;
	t->park = 100 * (double)(now->park_ns - was->park_ns) / span_ns;
	t->queue_mean = (double)(now->local_queue_ns - was->local_queue_ns) / span_ns;
	t->polls = RATE(polls);
	t->yields = RATE(yields);
	t->budget_yields = RATE(budget_yields);
	t->steals = RATE(steals);
	t->steal_ops = RATE(steal_ops);
	t->overflows = RATE(overflows);
	t->injects = RATE(injects);
	t->parks = RATE(parks);
	t->enters = RATE(enters);
	t->stalls = RATE(stalls);
	t->sq_fulls = RATE(sq_fulls);
	t->credit_waits = RATE(credit_waits);
	t->cq_overflows = RATE(cq_overflows);
	t->noop = 100 * ratio((double)(now->noop_wakes - was->noop_wakes), (double)(now->parks - was->parks));
	t->sqes_an_enter = ratio((double)(now->sqes - was->sqes), (double)(now->enters - was->enters));
	t->cqes_a_turn = ratio((double)(now->cqes - was->cqes), (double)(now->turns - was->turns));
}

static void set_gauges(struct top_worker *t, const struct mrt_worker_stats *now)
{
	t->index = now->index;
	t->tid = now->tid;
	t->cpu = now->cpu;
	t->state = now->state == MRT_WORKER_RUNNING && now->poll_fn ? (unsigned)MRT_WORKER_POLLING : now->state;
	t->local_queue = now->local_queue;
	t->next_slot = now->next_slot;
	t->yielded = now->yielded;
	t->inflight = now->inflight;
	t->queued = now->queued;
	t->sq_staged = now->sq_staged;
	t->sq_entries = now->sq_entries;
	t->cq_ready = now->cq_ready;
	t->cq_entries = now->cq_entries;
	t->timers = now->timers;
	t->poll_nr = now->polls;
}

/* The poll that runs, and for how long at least. */
static void set_poll(struct top_runtime *r, struct top_worker *t, struct top_same *same, const struct mrt_worker_stats *now)
{
	uint64_t at = r->a->read_ns, unmoved;

	if (same->since_ns == 0 || same->polls != now->polls || !now->poll_fn)
		*same = (struct top_same){ .polls = now->polls, .since_ns = at };
	unmoved = at - same->since_ns;
	t->poll_fn = now->poll_fn;
	t->poll_task = now->poll_task;
	t->is_exact = now->poll_fn && now->poll_start_ns && now->poll_start_ns <= at;
	t->poll_ns = 0;
	t->is_stuck = false;
	t->fn[0] = '\0';
	if (!now->poll_fn)
		return;
	if (t->is_exact)
		t->poll_ns = at - now->poll_start_ns;
	else if (unmoved && now->turn_ns && now->turn_ns <= at)
		t->poll_ns = at - now->turn_ns; /* at most, since the turn came before */
	t->is_stuck = t->is_exact ? t->poll_ns >= TOP_STUCK_NS : unmoved >= TOP_STUCK_NS;
	if (!r->symbols && symbols_open(r->pid, &r->symbols) == -ENOMEM)
		r->symbols = NULL;
	if (r->symbols)
		(void)symbols_name(r->symbols, now->poll_fn, t->fn, sizeof(t->fn));
	else
		(void)snprintf(t->fn, sizeof(t->fn), "%#" PRIx64, now->poll_fn); /* fits */
}

#define ADD(field) sum->field += t->field

static void add_worker(struct top_worker *sum, const struct top_worker *t)
{
	ADD(busy);
	ADD(park);
	ADD(local_queue);
	ADD(next_slot);
	ADD(yielded);
	ADD(inflight);
	ADD(queued);
	ADD(sq_staged);
	ADD(sq_entries);
	ADD(cq_ready);
	ADD(cq_entries);
	ADD(timers);
	ADD(queue_mean);
	ADD(polls);
	ADD(yields);
	ADD(budget_yields);
	ADD(steals);
	ADD(steal_ops);
	ADD(overflows);
	ADD(injects);
	ADD(parks);
	ADD(enters);
	ADD(stalls);
	ADD(sq_fulls);
	ADD(credit_waits);
	ADD(cq_overflows);
	ADD(poll_nr);
	buckets_add(&sum->poll, t->poll.bucket, NULL);
	sum->poll.sum_ns += t->poll.sum_ns;
}

static void look_at_workers(struct top_runtime *r)
{
	unsigned i;

	memset(&r->sum, 0, sizeof(r->sum));
	for (i = 0; i < r->workers_nr; i++) {
		const struct mrt_worker_stats *now = &r->a->workers[i], *was = &r->before[i];
		const struct mrt_worker_hists *h = &r->a->hists[i], *h_was = &r->before_hists[i];
		struct top_worker *t = &r->workers[i];

		set_gauges(t, now);
		set_poll(r, t, &r->same[i], now);
		memset(&t->poll, 0, sizeof(t->poll));
		if (r->has_rates) {
			set_rates(t, now, was, (double)r->span_ns);
			buckets_add(&t->poll, h->poll, h_was->poll);
			t->poll.sum_ns = h->poll_sum_ns - h_was->poll_sum_ns;
		}
		add_worker(&r->sum, t);
	}
	r->sum.busy /= r->workers_nr;
	r->sum.park /= r->workers_nr;
}

/* ---- ops ---- */

static void add_slots(struct top_op *op, const struct mrt_worker_hists *now, const struct mrt_worker_hists *was)
{
	unsigned s;

	for (s = 0; s < MRT_OP_SLOTS_NR; s++) {
		if (now->op_slot[s] != op->opcode + 1)
			continue;
		op->has_percentiles = true;
		buckets_add(&op->lat, &now->op_hist[s * MRT_HIST_NR], &was->op_hist[s * MRT_HIST_NR]);
	}
}

static int compare_ops(const void *x, const void *y)
{
	const struct top_op *a = x, *b = y;

	if (a->rate != b->rate)
		return a->rate < b->rate ? 1 : -1;
	return a->nr < b->nr ? 1 : a->nr > b->nr ? -1 : 0;
}

static void look_at_ops(struct top_runtime *r)
{
	unsigned opcode, i;

	r->ops_nr = 0;
	r->iops = 0;
	memset(&r->lat, 0, sizeof(r->lat));
	for (opcode = 0; opcode < MRT_OPCODES_NR; opcode++) {
		struct top_op *op = &r->ops[r->ops_nr];
		uint64_t came = 0;

		memset(op, 0, sizeof(*op));
		op->opcode = opcode;
		for (i = 0; i < r->workers_nr; i++) {
			const struct mrt_worker_hists *now = &r->a->hists[i], *was = &r->before_hists[i];

			op->nr += now->op_nr[opcode];
			if (!r->has_rates)
				continue;
			came += now->op_nr[opcode] - was->op_nr[opcode];
			op->lat.sum_ns += now->op_sum_ns[opcode] - was->op_sum_ns[opcode];
			add_slots(op, now, was);
		}
		if (op->nr == 0)
			continue;
		op->rate = r->has_rates ? (double)came * 1e9 / (double)r->span_ns : 0;
		r->iops += op->rate;
		buckets_add(&r->lat, op->lat.bucket, NULL);
		r->lat.sum_ns += op->lat.sum_ns;
		r->ops_nr++;
	}
	qsort(r->ops, r->ops_nr, sizeof(r->ops[0]), compare_ops);
}

/* ---- warnings ---- */

__attribute__((format(printf, 3, 4)))
static void warn(struct top_runtime *r, int worker, const char *fmt, ...)
{
	struct top_warning *w;
	va_list ap;

	if (r->warnings_nr == TOP_WARNINGS_NR)
		return;
	w = &r->warnings[r->warnings_nr++];
	w->worker = worker;
	va_start(ap, fmt);
	(void)vsnprintf(w->text, sizeof(w->text), fmt, ap); /* cut to fit */
	va_end(ap);
}

static double seconds(uint64_t ns)
{
	return (double)ns * 1e-9;
}

static void warn_of_poll(struct top_runtime *r, const struct top_worker *t)
{
	uint64_t longest = buckets_longest(&t->poll);
	int w = (int)t->index;

	if (t->is_stuck && t->is_exact)
		warn(r, w, "stuck: in one poll of %s for %.1f s, and does not yield; %" PRIu64 " polls", t->fn, seconds(t->poll_ns),
		     t->poll_nr);
	else if (t->is_stuck)
		warn(r, w, "stuck: in one poll of %s, and does not yield; last ring turn %.1f s ago, %" PRIu64
		     " polls and no more", t->fn, seconds(t->poll_ns), t->poll_nr);
	else if (longest >= TOP_LONG_POLL_NS)
		warn(r, w, "long polls: one took %.0f ms or more", seconds(longest) * 1e3);
}

static void warn_of_ring(struct top_runtime *r, const struct top_worker *t)
{
	int w = (int)t->index;

	if (t->cq_overflows > 0)
		warn(r, w, "CQ overflow: the kernel held completions back %.0f times a second (%u entries)", t->cq_overflows,
		     t->cq_entries);
	else if (t->cq_entries && t->cq_ready >= t->cq_entries / 4 * 3)
		warn(r, w, "CQ pressure: %u completions waited, of %u entries", t->cq_ready, t->cq_entries);
	if (t->sq_fulls > 0)
		warn(r, w, "SQ pressure: %.0f ops a second found no entry (%u entries)", t->sq_fulls, t->sq_entries);
	if (t->credit_waits > 0)
		warn(r, w, "%.0f ops a second wait for credits: more in flight than its CQ has room for", t->credit_waits);
}

static void warn_of_scheduling(struct top_runtime *r, const struct top_worker *t)
{
	int w = (int)t->index;

	if (t->polls >= 100 && t->yields > t->polls / 2)
		warn(r, w, "self-wakes: %.0f %% of its polls ended with mrt_yield", 100 * t->yields / t->polls);
	if (t->parks >= 1000 && t->noop > 50)
		warn(r, w, "%.0f %% of its parks ended without work", t->noop);
}

static void warn_of_queues(struct top_runtime *r)
{
	const struct mrt_global_stats *g = &r->global;
	uint64_t at = r->a->read_ns;

	if (g->inject_depth > 0 && r->has_rates && r->before_global.inject_depth > 0 && r->sum.injects == 0)
		r->starved_ns = r->starved_ns ? r->starved_ns : r->before_ns;
	else
		r->starved_ns = 0;
	if (r->starved_ns)
		warn(r, -1, "inject queue starved: %" PRIu64 " tasks wait, none was taken for %.1f s", g->inject_depth,
		     seconds(at - r->starved_ns));
	if (g->blocking_queued > 0 && g->blocking_idle == 0)
		warn(r, -1, "blocking pool: %" PRIu64 " calls wait for one of %" PRIu64 " threads", g->blocking_queued,
		     g->blocking_threads);
}

static void look_for_warnings(struct top_runtime *r)
{
	unsigned i;

	r->warnings_nr = 0;
	if (r->process_state == 'T' || r->process_state == 't')
		warn(r, -1, "the process is stopped (by a signal or a debugger): nothing moves");
	warn_of_queues(r);
	for (i = 0; i < r->workers_nr; i++)
		warn_of_poll(r, &r->workers[i]);
	for (i = 0; i < r->workers_nr; i++) {
		warn_of_ring(r, &r->workers[i]);
		warn_of_scheduling(r, &r->workers[i]);
	}
}

/* ---- a look ---- */

static void look(struct top_runtime *r)
{
	struct attach *a = r->a;
	unsigned i;

	r->has_rates = r->before_ns && a->read_ns > r->before_ns;
	r->span_ns = a->read_ns - r->before_ns;
	r->process_state = proc_state(a->pid);
	r->global = a->global;
	r->is_current_thread = a->global.flavour == MRT_FLAVOUR_CURRENT_THREAD;
	r->uptime_ns = a->read_ns > a->global.created_ns ? a->read_ns - a->global.created_ns : 0;
	look_at_workers(r);
	look_at_ops(r);
	r->tasks_alive = (int64_t)a->global.spawns_outside;
	for (i = 0; i < a->workers_nr; i++)
		r->tasks_alive += (int64_t)(a->workers[i].spawns - a->workers[i].ends);
	if (r->tasks_alive < 0)
		r->tasks_alive = 0; /* the words are of slightly different moments */
	look_for_warnings(r);
	if (r->has_rates) {
		push(&r->queue, r->sum.queue_mean + (double)r->global.inject_depth);
		push(&r->poll_p99, (double)buckets_percentile(&r->sum.poll, 99));
		push(&r->io, r->iops);
	}
	r->before_ns = a->read_ns;
	r->before_global = a->global;
	memcpy(r->before, a->workers, a->workers_nr * sizeof(*r->before));
	memcpy(r->before_hists, a->hists, a->workers_nr * sizeof(*r->before_hists));
}

static int add_runtime(struct top_model *m, struct attach *a)
{
	struct top_runtime **grown = realloc(m->items, (m->nr + 1) * sizeof(struct top_runtime *)), *r;

	if (!grown)
		return -ENOMEM;
	m->items = grown;
	r = make_runtime(a);
	if (!r)
		return -ENOMEM;
	m->items[m->nr++] = r;
	return 0;
}

static int compare_runtimes(const void *x, const void *y)
{
	const struct top_runtime *a = *(struct top_runtime *const *)x, *b = *(struct top_runtime *const *)y;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return a->global.created_ns < b->global.created_ns ? -1 : a->global.created_ns > b->global.created_ns;
}

int top_update(struct top_model *m, const struct attach_set *set)
{
	unsigned i, j;
	int err = 0;

	for (j = 0; j < m->nr; j++)
		m->items[j]->is_old = true;
	for (i = 0; i < set->nr && !err; i++) {
		struct attach *a = set->items[i];

		/* an address may be used again for another runtime */
		for (j = 0; j < m->nr; j++) {
			if (m->items[j]->a == a && m->items[j]->pid == a->pid &&
			    m->items[j]->global.created_ns == a->global.created_ns)
				break;
		}
		if (j == m->nr)
			err = add_runtime(m, a);
		if (err)
			break;
		m->items[j]->is_old = false;
		look(m->items[j]);
	}
	for (j = 0; j < m->nr; j++) {
		if (m->items[j]->is_old)
			m->items[j]->a = NULL;
	}
	if (m->nr)
		qsort(m->items, m->nr, sizeof(struct top_runtime *), compare_runtimes);
	return err;
}

void top_forget(struct top_model *m)
{
	unsigned i, kept = 0;

	for (i = 0; i < m->nr; i++) {
		if (m->items[i]->a)
			m->items[kept++] = m->items[i];
		else
			free_runtime(m->items[i]);
	}
	m->nr = kept;
}

void top_close(struct top_model *m)
{
	unsigned i;

	for (i = 0; i < m->nr; i++)
		free_runtime(m->items[i]);
	free(m->items);
	memset(m, 0, sizeof(*m));
}
