/* SPDX-License-Identifier: MIT */
/* See top_view.h. A column is a line here; whatever shows tables goes through them. */
#include "top_view.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <martlet/martlet.h>

#include "opcode.h"
#include "output.h"
#include "report.h"
#include "sys.h"
#include "trace_result.h"

const char *top_ns(char buf[16], double ns)
{
	static const struct {
		double unit;
		const char *name;
	} units[] = { { 1, "ns" }, { 1e3, "us" }, { 1e6, "ms" }, { 1e9, "s" } };
	unsigned i = 0;

	if (ns >= 1e11) {
		double s = floor(ns * 1e-9);

		if (s < 3600)
			(void)snprintf(buf, 16, "%.0fm%02.0fs", floor(s / 60), fmod(s, 60)); /* fits */
		else if (s < 86400)
			(void)snprintf(buf, 16, "%.0fh%02.0fm", floor(s / 3600), floor(fmod(s, 3600) / 60)); /* fits */
		else
			(void)snprintf(buf, 16, "%.0fd%02.0fh", floor(s / 86400), floor(fmod(s, 86400) / 3600)); /* fits */
		return buf;
	}
	while (i < 3 && ns >= units[i + 1].unit)
		i++;
	ns /= units[i].unit;
	(void)snprintf(buf, 16, "%.*f%s", i == 0 || ns >= 100 ? 0 : ns >= 10 ? 1 : 2, ns, units[i].name); /* fits */
	return buf;
}

void top_cell(const struct top_column *c, const void *row, char cell[TOP_CELL_BYTES])
{
	char buf[16];
	double value;

	if (c->text) {
		c->text(row, cell);
		return;
	}
	value = c->value(row);
	switch (c->format) {
	case TOP_TEXT:
	case TOP_NUMBER:
		(void)snprintf(cell, TOP_CELL_BYTES, "%.0f", value); /* fits */
		break;
	case TOP_SHORT:
		(void)snprintf(cell, TOP_CELL_BYTES, "%s", report_si(buf, value)); /* fits */
		break;
	case TOP_DECIMAL:
	case TOP_PERCENT:
		(void)snprintf(cell, TOP_CELL_BYTES, "%.1f", value); /* fits */
		break;
	case TOP_NS:
		(void)snprintf(cell, TOP_CELL_BYTES, "%s", value > 0 ? top_ns(buf, value) : "-"); /* fits */
		break;
	}
}

/* ---- columns ---- */

#define VALUE(name, type, expr)                                 \
	static double name(const void *row)                     \
	{                                                       \
		const type *t = row;                            \
								\
		return (double)(expr);                          \
	}
#define TEXT(name, type, ...)                                           \
	static void name(const void *row, char cell[TOP_CELL_BYTES])    \
	{                                                               \
		const type *t = row;                                    \
									\
		(void)snprintf(cell, TOP_CELL_BYTES, __VA_ARGS__);      \
	}

#define WORKER(name, expr) VALUE(w_##name, struct top_worker, expr)
WORKER(index, t->index)
WORKER(state, t->state)
WORKER(tid, t->tid)
WORKER(cpu, t->cpu)
WORKER(busy, t->busy)
WORKER(park, t->park)
WORKER(queue, t->local_queue)
WORKER(queue_mean, t->queue_mean)
WORKER(next, t->next_slot)
WORKER(yielded, t->yielded)
WORKER(polls, t->polls)
WORKER(mean, buckets_mean(&t->poll))
WORKER(p50, buckets_percentile(&t->poll, 50))
WORKER(p99, buckets_percentile(&t->poll, 99))
WORKER(max, buckets_percentile(&t->poll, 100))
WORKER(steal_ops, t->steal_ops)
WORKER(steals, t->steals)
WORKER(overflows, t->overflows)
WORKER(injects, t->injects)
WORKER(parks, t->parks)
WORKER(noop, t->noop)
WORKER(inflight, t->inflight)
WORKER(queued, t->queued)
WORKER(sq, t->sq_staged)
WORKER(sq_entries, t->sq_entries)
WORKER(cq, t->cq_ready)
WORKER(cq_entries, t->cq_entries)
WORKER(enters, t->enters)
WORKER(sqes, t->sqes_an_enter)
WORKER(cqes, t->cqes_a_turn)
WORKER(cq_overflows, t->cq_overflows)
WORKER(sq_fulls, t->sq_fulls)
WORKER(credit_waits, t->credit_waits)
WORKER(yields, t->yields)
WORKER(budget, t->budget_yields)
WORKER(timers, t->timers)
WORKER(poll_nr, t->poll_nr)
WORKER(poll_fn, t->poll_fn)
WORKER(poll_ns, t->poll_fn ? t->poll_ns : 0)
WORKER(exact, t->is_exact)
WORKER(stuck, t->is_stuck)
TEXT(w_state_text, struct top_worker, "%s", t->is_stuck ? "STUCK" : top_state_name(t->state))
TEXT(w_cpu_text, struct top_worker, t->cpu < 0 ? "-" : "%d", t->cpu)
TEXT(w_sq_text, struct top_worker, "%u/%u", t->sq_staged, t->sq_entries)
TEXT(w_cq_text, struct top_worker, "%u/%u", t->cq_ready, t->cq_entries)
TEXT(w_fn_text, struct top_worker, "%s", t->fn)

static const struct top_column worker_columns[] = {
	{ "W", "worker", 3, TOP_NUMBER, w_index, NULL, "number of the worker" },
	{ "STATE", "state", 6, TOP_TEXT, w_state, w_state_text, "RUN between polls, POLL, SEARCH, PARK; STUCK: in one poll for too long" },
	{ "TID", "tid", 8, TOP_NUMBER, w_tid, NULL, "thread" },
	{ "CPU", "cpu", 3, TOP_NUMBER, w_cpu, w_cpu_text, "pinned to; - floats" },
	{ "BUSY%", "busy_percent", 6, TOP_PERCENT, w_busy, NULL, "of the time, not parked" },
	{ "PARK%", "park_percent", 6, TOP_PERCENT, w_park, NULL, "of the time, parked" },
	{ "QUEUE", "local_queue", 5, TOP_NUMBER, w_queue, NULL, "tasks in the local queue" },
	{ "QMEAN", "local_queue_mean", 6, TOP_DECIMAL, w_queue_mean, NULL, "their true mean since the last look" },
	{ "POLL/s", "polls_per_s", 7, TOP_SHORT, w_polls, NULL, "polls" },
	{ "P50", "poll_p50_ns", 7, TOP_NS, w_p50, NULL, "half of the polls took no longer" },
	{ "P99", "poll_p99_ns", 7, TOP_NS, w_p99, NULL, "99 % of the polls took no longer" },
	{ "MAX", "poll_max_ns", 7, TOP_NS, w_max, NULL, "none took longer" },
	{ "MEAN", "poll_mean_ns", 7, TOP_NS, w_mean, NULL, "mean time of a poll" },
	{ "SQ", NULL, 8, TOP_TEXT, w_sq, w_sq_text, "SQEs staged, of so many entries" },
	{ NULL, "sq_staged", 0, TOP_NUMBER, w_sq, NULL, NULL },
	{ NULL, "sq_entries", 0, TOP_NUMBER, w_sq_entries, NULL, NULL },
	{ "CQ", NULL, 9, TOP_TEXT, w_cq, w_cq_text, "completions seen at the last ring turn, of so many entries" },
	{ NULL, "cq_ready", 0, TOP_NUMBER, w_cq, NULL, NULL },
	{ NULL, "cq_entries", 0, TOP_NUMBER, w_cq_entries, NULL, NULL },
	{ "INFL", "inflight", 5, TOP_NUMBER, w_inflight, NULL, "ops in flight" },
	{ "STEAL/s", "steal_ops_per_s", 7, TOP_SHORT, w_steal_ops, NULL, "successful thefts" },
	{ "TAKEN/s", "steals_per_s", 7, TOP_SHORT, w_steals, NULL, "tasks stolen from others" },
	{ "PARK/s", "parks_per_s", 7, TOP_SHORT, w_parks, NULL, "parks" },
	{ "NOOP%", "noop_percent", 6, TOP_PERCENT, w_noop, NULL, "of the parks, ended without work" },
	{ "ENTER/s", "enters_per_s", 7, TOP_SHORT, w_enters, NULL, "io_uring_enter calls" },
	{ "SQE/E", "sqes_per_enter", 6, TOP_DECIMAL, w_sqes, NULL, "SQEs an enter" },
	{ "CQE/T", "cqes_per_turn", 6, TOP_DECIMAL, w_cqes, NULL, "completions a ring turn" },
	{ "CQOVF/s", "cq_overflows_per_s", 7, TOP_SHORT, w_cq_overflows, NULL, "times that the kernel held completions back" },
	{ "SQFUL/s", "sq_fulls_per_s", 7, TOP_SHORT, w_sq_fulls, NULL, "ops that found no SQ entry" },
	{ "CREDW/s", "credit_waits_per_s", 7, TOP_SHORT, w_credit_waits, NULL, "ops that waited for credits" },
	{ "WAIT", "queued", 5, TOP_NUMBER, w_queued, NULL, "ops waiting for credits or SQ room" },
	{ "NEXT", "next_slot", 4, TOP_NUMBER, w_next, NULL, "a task in the next slot" },
	{ "YLDED", "yielded", 5, TOP_NUMBER, w_yielded, NULL, "tasks waiting for the next ring turn" },
	{ "YIELD/s", "yields_per_s", 7, TOP_SHORT, w_yields, NULL, "polls that ended with mrt_yield" },
	{ "BUDG/s", "budget_yields_per_s", 7, TOP_SHORT, w_budget, NULL, "polls that ended because the budget was spent" },
	{ "OVFL/s", "overflows_per_s", 7, TOP_SHORT, w_overflows, NULL, "times that the local queue was full" },
	{ "INJ/s", "injects_per_s", 7, TOP_SHORT, w_injects, NULL, "tasks taken from the inject queue" },
	{ "TIMERS", "timers", 6, TOP_NUMBER, w_timers, NULL, "entries in the wheel" },
	{ NULL, "polls", 0, TOP_NUMBER, w_poll_nr, NULL, NULL },
	{ "SINCE", "poll_ns", 7, TOP_NS, w_poll_ns, NULL, "how long the poll runs: exact with full timing, else since the last ring turn" },
	{ NULL, "poll_since_is_exact", 0, TOP_NUMBER, w_exact, NULL, NULL },
	{ NULL, "is_stuck", 0, TOP_NUMBER, w_stuck, NULL, NULL },
	{ NULL, "poll_fn_address", 0, TOP_NUMBER, w_poll_fn, NULL, NULL },
	{ "FUNCTION", "poll_fn", 16, TOP_TEXT, w_poll_fn, w_fn_text, "the function being polled" },
};

#define OP(name, expr) VALUE(o_##name, struct top_op, expr)
OP(opcode, t->opcode)
OP(rate, t->rate)
OP(nr, t->nr)
OP(timed, t->lat.nr)
OP(mean, buckets_mean(&t->lat))
OP(p50, buckets_percentile(&t->lat, 50))
OP(p99, buckets_percentile(&t->lat, 99))
OP(p999, buckets_percentile(&t->lat, 99.9))
OP(max, buckets_percentile(&t->lat, 100))

static void o_name(const void *row, char cell[TOP_CELL_BYTES])
{
	const struct top_op *t = row;
	char text[OPCODE_NAME_MAX];

	(void)snprintf(cell, TOP_CELL_BYTES, "%s", opcode_text(t->opcode, text)); /* fits */
}

static const struct top_column op_columns[] = {
	{ "OP", "op", 14, TOP_TEXT, o_opcode, o_name, "opcode of io_uring" },
	{ "OP/s", "ops_per_s", 8, TOP_SHORT, o_rate, NULL, "ops a second" },
	{ "P50", "latency_p50_ns", 8, TOP_NS, o_p50, NULL, "half of the ops took no longer, from staging to reaping" },
	{ "P99", "latency_p99_ns", 8, TOP_NS, o_p99, NULL, "99 % took no longer" },
	{ "P99.9", "latency_p999_ns", 8, TOP_NS, o_p999, NULL, "99.9 % took no longer" },
	{ "MAX", "latency_max_ns", 8, TOP_NS, o_max, NULL, "none took longer" },
	{ "MEAN", "latency_mean_ns", 8, TOP_NS, o_mean, NULL, "mean" },
	{ "TIMED", "timed", 8, TOP_SHORT, o_timed, NULL, "ops that were timed since the last look" },
	{ "TOTAL", "ops", 8, TOP_SHORT, o_nr, NULL, "ops so far" },
};

#define RUNTIME(name, expr) VALUE(r_##name, struct top_runtime, expr)
RUNTIME(pid, t->pid)
RUNTIME(up, t->uptime_ns)
RUNTIME(workers, t->workers_nr)
RUNTIME(busy, t->sum.busy)
RUNTIME(tasks, t->tasks_alive)
RUNTIME(inject, t->global.inject_depth)
RUNTIME(queue, t->sum.local_queue)
RUNTIME(inflight, t->sum.inflight)
RUNTIME(polls, t->sum.polls)
RUNTIME(iops, t->iops)
RUNTIME(poll_p99, buckets_percentile(&t->sum.poll, 99))
RUNTIME(io_p50, buckets_percentile(&t->lat, 50))
RUNTIME(io_p99, buckets_percentile(&t->lat, 99))
RUNTIME(io_p999, buckets_percentile(&t->lat, 99.9))
RUNTIME(warnings, t->warnings_nr)
RUNTIME(threads, t->global.blocking_threads)
RUNTIME(idle, t->global.blocking_idle)
RUNTIME(calls, t->global.blocking_queued)
RUNTIME(timers, t->sum.timers)
RUNTIME(state, t->process_state)
RUNTIME(flavour, t->is_current_thread)
TEXT(r_process, struct top_runtime, "%s", t->process)
TEXT(r_label, struct top_runtime, "%s", t->label)
TEXT(r_state_text, struct top_runtime, "%c", t->a ? t->process_state : '-')
TEXT(r_backend, struct top_runtime, "%s", t->backend)
TEXT(r_flavour_text, struct top_runtime, "%s", t->is_current_thread ? "current" : "multi")

static const struct top_column runtime_columns[] = {
	{ "PID", "pid", 8, TOP_NUMBER, r_pid, NULL, "process" },
	{ "PROCESS", "process", 15, TOP_TEXT, r_pid, r_process, "its name" },
	{ "RUNTIME", "runtime", 10, TOP_TEXT, r_pid, r_label, "name of the runtime" },
	{ "S", "process_state", 1, TOP_TEXT, r_state, r_state_text, "state of the process, as ps has it; T stopped, - ended" },
	{ "W", "workers_nr", 3, TOP_NUMBER, r_workers, NULL, "workers" },
	{ "BUSY%", "busy_percent", 6, TOP_PERCENT, r_busy, NULL, "of the workers' time, not parked" },
	{ "TASKS", "tasks_alive", 7, TOP_SHORT, r_tasks, NULL, "tasks that have not ended" },
	{ "INJECT", "inject_depth", 6, TOP_NUMBER, r_inject, NULL, "tasks in the inject queue" },
	{ "QUEUE", "local_queues", 6, TOP_NUMBER, r_queue, NULL, "tasks in local queues" },
	{ "INFL", "inflight", 6, TOP_NUMBER, r_inflight, NULL, "ops in flight" },
	{ "POLL/s", "polls_per_s", 7, TOP_SHORT, r_polls, NULL, "polls" },
	{ "P99", "poll_p99_ns", 7, TOP_NS, r_poll_p99, NULL, "99 % of the polls took no longer" },
	{ "OP/s", "ops_per_s", 7, TOP_SHORT, r_iops, NULL, "ops" },
	{ "IO50", "op_p50_ns", 7, TOP_NS, r_io_p50, NULL, "half of the ops took no longer" },
	{ "IO99", "op_p99_ns", 7, TOP_NS, r_io_p99, NULL, "99 % of the ops took no longer" },
	{ NULL, "op_p999_ns", 0, TOP_NS, r_io_p999, NULL, NULL },
	{ NULL, "timers", 0, TOP_NUMBER, r_timers, NULL, NULL },
	{ NULL, "blocking_threads", 0, TOP_NUMBER, r_threads, NULL, NULL },
	{ NULL, "blocking_idle", 0, TOP_NUMBER, r_idle, NULL, NULL },
	{ NULL, "blocking_queued", 0, TOP_NUMBER, r_calls, NULL, NULL },
	{ "UP", "uptime_ns", 7, TOP_NS, r_up, NULL, "how long the runtime exists" },
	{ "KIND", "flavour", 7, TOP_TEXT, r_flavour, r_flavour_text, "multi: multi-thread; current: current-thread" },
	{ "STATS", "backend", 5, TOP_TEXT, r_pid, r_backend, "where its statistics are" },
	{ "WARN", "warnings_nr", 4, TOP_NUMBER, r_warnings, NULL, "warnings" },
};

#define FUNCTION(name, expr) VALUE(f_##name, struct top_function, expr)
FUNCTION(spawns, t->spawns)
FUNCTION(ends, t->ends)
FUNCTION(polls, t->polls)
FUNCTION(busy, t->busy)
FUNCTION(p50, trace_hist_quantile(&t->poll, 0.5))
FUNCTION(p99, trace_hist_quantile(&t->poll, 0.99))
FUNCTION(sched50, trace_hist_quantile(&t->sched, 0.5))
FUNCTION(sched99, trace_hist_quantile(&t->sched, 0.99))
FUNCTION(unwoken, t->unwoken)
FUNCTION(fn, t->fn)
TEXT(f_warning, struct top_function, "%s", t->warning)
TEXT(f_name, struct top_function, "%s", t->name)

static const struct top_column function_columns[] = {
	{ "WARN", "warning", 10, TOP_TEXT, f_fn, f_warning, "long polls: one took 10 ms or more; self-wakes: more than half of its polls" },
	{ "BUSY%", "busy_percent", 6, TOP_PERCENT, f_busy, NULL, "of one worker's time, in its polls" },
	{ "POLL/s", "polls_per_s", 7, TOP_SHORT, f_polls, NULL, "polls" },
	{ "P50", "poll_p50_ns", 7, TOP_NS, f_p50, NULL, "half of its polls took no longer (to a power of two)" },
	{ "P99", "poll_p99_ns", 7, TOP_NS, f_p99, NULL, "99 % took no longer" },
	{ "WAIT50", "wait_p50_ns", 7, TOP_NS, f_sched50, NULL, "from a wake to the poll: half took no longer" },
	{ "WAIT99", "wait_p99_ns", 7, TOP_NS, f_sched99, NULL, "99 % took no longer" },
	{ "SELF/s", "self_wakes_per_s", 7, TOP_SHORT, f_unwoken, NULL, "polls without a wake before them: after a yield" },
	{ "SPAWNED", "spawned", 8, TOP_SHORT, f_spawns, NULL, "tasks spawned since it listens" },
	{ "ENDED", "ended", 8, TOP_SHORT, f_ends, NULL, "tasks that ended since" },
	{ "FUNCTION", "function", 16, TOP_TEXT, f_fn, f_name, "the tasks' function" },
};

#define TASK(name, expr) VALUE(t_##name, struct task_row, expr)
TASK(warnings, t->warnings)
TASK(id, t->id)
TASK(state, t->state)
TASK(total, t->total_ns)
TASK(busy, t->busy_ns)
TASK(sched, t->sched_ns)
TASK(idle, t->idle_ns)
TASK(polls, t->polls)
TASK(fn, t->fn)
TASK(self_wakes, t->self_wakes)
TASK(poll_max, t->poll_max_ns)
TASK(poll50, trace_hist_quantile(&t->poll, 0.5))
TASK(poll99, trace_hist_quantile(&t->poll, 0.99))
TASK(sched_max, t->sched_max_ns)
TASK(sched50, trace_hist_quantile(&t->sched, 0.5))
TASK(sched99, trace_hist_quantile(&t->sched, 0.99))
TEXT(t_warning_text, struct task_row, "%s", task_warning_name(t->warnings))
TEXT(t_state_text, struct task_row, "%s", task_state_name(t->state))
TEXT(t_name, struct task_row, "%s", t->name[0] ? t->name : "-")
TEXT(t_fn_name, struct task_row, "%s", t->fn_name)

/* Addresses and numbers in JSON, where a number has 53 bits. */
static void put_hex(char cell[TOP_CELL_BYTES], uint64_t n)
{
	cell[0] = '\0';
	if (n)
		(void)snprintf(cell, TOP_CELL_BYTES, "%#" PRIx64, n); /* fits */
}

static void t_id_hex(const void *row, char cell[TOP_CELL_BYTES])
{
	put_hex(cell, ((const struct task_row *)row)->id);
}

static void t_addr_hex(const void *row, char cell[TOP_CELL_BYTES])
{
	put_hex(cell, ((const struct task_row *)row)->addr);
}

/* As martlet dump has it. */
static void t_id_text(const void *row, char cell[TOP_CELL_BYTES])
{
	const struct task_row *t = row;

	(void)snprintf(cell, TOP_CELL_BYTES, t->id ? "%" PRIx64 : "0x%" PRIx64, t->id ? t->id : t->addr); /* fits */
}

static const struct top_column task_columns[] = {
	{ "WARN", "warning", 12, TOP_TEXT, t_warnings, t_warning_text, "never yields: in one poll for 1 s; self-wakes: more than half of its polls came without a wake; long poll: 10 ms; long wait: runnable for 100 ms" },
	{ "ID", NULL, 16, TOP_NUMBER, t_id, t_id_text, "as martlet dump has it; 0x...: its address, where the process's memory may not be read" },
	{ "STATE", "state", 7, TOP_TEXT, t_state, t_state_text, "RUNNING in a poll, SCHED runnable, IDLE waits, DONE has ended" },
	{ "NAME", "name", 12, TOP_TEXT, t_fn, t_name, "that it was given" },
	{ "TOTAL", "total_ns", 8, TOP_NS, t_total, NULL, "since it was spawned, or since top listens" },
	{ "BUSY", "busy_ns", 8, TOP_NS, t_busy, NULL, "of that, in polls" },
	{ "SCHED", "sched_ns", 8, TOP_NS, t_sched, NULL, "of that, runnable" },
	{ "IDLE", "idle_ns", 8, TOP_NS, t_idle, NULL, "of that, waiting" },
	{ "POLLS", "polls", 8, TOP_NUMBER, t_polls, NULL, "polls that have ended" },
	{ NULL, "id", 0, TOP_TEXT, t_id, t_id_hex, NULL },
	{ NULL, "address", 0, TOP_TEXT, t_id, t_addr_hex, NULL },
	{ NULL, "polls_without_wake", 0, TOP_NUMBER, t_self_wakes, NULL, NULL },
	{ NULL, "poll_p50_ns", 0, TOP_NS, t_poll50, NULL, NULL },
	{ NULL, "poll_p99_ns", 0, TOP_NS, t_poll99, NULL, NULL },
	{ NULL, "poll_max_ns", 0, TOP_NS, t_poll_max, NULL, NULL },
	{ NULL, "wait_p50_ns", 0, TOP_NS, t_sched50, NULL, NULL },
	{ NULL, "wait_p99_ns", 0, TOP_NS, t_sched99, NULL, NULL },
	{ NULL, "wait_max_ns", 0, TOP_NS, t_sched_max, NULL, NULL },
	{ "FUNCTION", "function", 16, TOP_TEXT, t_fn, t_fn_name, "the task's function" },
};

#define TABLE(columns) { columns, sizeof(columns) / sizeof((columns)[0]) }
const struct top_table top_runtimes = TABLE(runtime_columns);
const struct top_table top_workers = TABLE(worker_columns);
const struct top_table top_ops = TABLE(op_columns);
const struct top_table top_functions = TABLE(function_columns);
const struct top_table top_task_rows = TABLE(task_columns);

/* ---- lines ---- */

void top_headline(const struct top_runtime *r, char *line, size_t line_bytes)
{
	char up[16];

	(void)snprintf(line, line_bytes, "%s (%d), runtime %s: up %s, %s, %u worker%s, statistics in %s (%s)", r->process, r->pid,
		       r->label, top_ns(up, (double)r->uptime_ns), r->is_current_thread ? "current-thread" : "multi-thread",
		       r->workers_nr, r->workers_nr == 1 ? "" : "s", r->backend, r->a ? r->a->from : "it has ended"); /* cut */
}

void top_tasks_line(const struct top_runtime *r, char *line, size_t line_bytes)
{
	const struct mrt_global_stats *g = &r->global;

	(void)snprintf(line, line_bytes,
		       "tasks %" PRId64 ", inject %" PRIu64 ", timers %" PRIu64 "; blocking pool: %" PRIu64 " threads, %" PRIu64
		       " idle, %" PRIu64 " calls wait",
		       r->tasks_alive, g->inject_depth, r->sum.timers, g->blocking_threads, g->blocking_idle,
		       g->blocking_queued); /* cut to fit */
}

/* No op has no percentile: 0 would be a wonder of speed. */
static const char *latency(char buf[16], const struct buckets *lat, double p)
{
	uint64_t ns = buckets_percentile(lat, p);

	return ns ? top_ns(buf, (double)ns) : "-";
}

void top_rates_line(const struct top_runtime *r, char *line, size_t line_bytes)
{
	char polls[16], iops[16], p50[16], p99[16], p999[16];

	(void)snprintf(line, line_bytes, "%s polls/s; %s ops/s, p50 %s, p99 %s, p99.9 %s", report_si(polls, r->sum.polls),
		       report_si(iops, r->iops), latency(p50, &r->lat, 50), latency(p99, &r->lat, 99),
		       latency(p999, &r->lat, 99.9)); /* cut to fit */
}

static void describe_timing(uint32_t timing, uint32_t shift, const char *what, char *text, size_t text_bytes)
{
	if (timing == MRT_TIMING_FULL)
		(void)snprintf(text, text_bytes, "all %ss", what); /* fits */
	else if (timing == MRT_TIMING_SAMPLED && shift < 32)
		(void)snprintf(text, text_bytes, "one %s in %u", what, 1u << shift); /* fits */
	else
		(void)snprintf(text, text_bytes, "no %s", what); /* fits */
}

void top_timing_line(const struct top_runtime *r, bool looks, char *line, size_t line_bytes)
{
	char polls[32], ops[32];

	if (!r->a) {
		(void)snprintf(line, line_bytes, "ended");
		return;
	}
	describe_timing(r->a->ctl.poll_timing, r->a->ctl.poll_shift, "poll", polls, sizeof(polls));
	describe_timing(r->a->ctl.op_timing, r->a->ctl.op_shift, "op", ops, sizeof(ops));
	if (looks && r->a->may_control)
		(void)snprintf(line, line_bytes, "timed: all while this looks (else %s, %s)", polls, ops); /* cut to fit */
	else
		(void)snprintf(line, line_bytes, "timed: %s, %s%s", polls, ops,
			       looks ? " (this user may not ask for more)" : ""); /* cut to fit */
}

void top_task_head(const struct task_row *t, uint64_t now_ns, char *line, size_t line_bytes)
{
	char id[TOP_CELL_BYTES], since[16] = "";

	t_id_text(t, id);
	if (t->state_ns && now_ns > t->state_ns)
		(void)top_ns(since, (double)(now_ns - t->state_ns));
	(void)snprintf(line, line_bytes, "task %s%s%s at 0x%" PRIx64 ", %s: %s%s%s", id, t->name[0] ? " " : "", t->name, t->addr,
		       t->fn_name, task_state_name(t->state), since[0] ? " for " : "", since); /* cut to fit */
}

void top_task_times(const struct task_row *t, char *line, size_t line_bytes)
{
	char total[16], busy[16], sched[16], idle[16], poll[16], wait[16];

	(void)snprintf(line, line_bytes,
		       "total %s: busy %s, sched %s, idle %s; polls %" PRIu64 ", %" PRIu64 " without a wake; longest poll %s, longest wait %s",
		       top_ns(total, (double)t->total_ns), top_ns(busy, (double)t->busy_ns), top_ns(sched, (double)t->sched_ns),
		       top_ns(idle, (double)t->idle_ns), t->polls, t->self_wakes, top_ns(poll, (double)t->poll_max_ns),
		       top_ns(wait, (double)t->sched_max_ns)); /* cut to fit */
}

bool top_task_warning(const struct task_row *t, unsigned idx, char *line, size_t line_bytes)
{
	char ns[16];
	unsigned nr = 0;

	if (t->warnings & TASK_NEVER_YIELDS && nr++ == idx)
		(void)snprintf(line, line_bytes, "never yields: it is in one poll for %s, and its worker's other tasks wait",
			       top_ns(ns, (double)t->running_ns)); /* cut to fit */
	else if (t->warnings & TASK_SELF_WAKES && nr++ == idx)
		(void)snprintf(line, line_bytes, "self-wakes: %.0f %% of its polls came without a wake",
			       100 * (double)t->self_wakes / (double)t->polls); /* cut to fit */
	else if (t->warnings & TASK_LONG_POLL && nr++ == idx)
		(void)snprintf(line, line_bytes, "long poll: one took %s", top_ns(ns, (double)t->poll_max_ns)); /* cut to fit */
	else if (t->warnings & TASK_LONG_WAIT && nr++ == idx)
		(void)snprintf(line, line_bytes, "long wait: it was runnable for %s", top_ns(ns, (double)t->sched_max_ns)); /* cut */
	else
		return false;
	return true;
}

void top_quantiles_line(const char *what, const struct trace_hist *h, char *line, size_t line_bytes)
{
	char p50[16], p90[16], p99[16];

	(void)snprintf(line, line_bytes, "%s: %" PRIu64 ", p50 %s, p90 %s, p99 %s (to a power of two)", what, h->count,
		       top_ns(p50, (double)trace_hist_quantile(h, 0.5)), top_ns(p90, (double)trace_hist_quantile(h, 0.9)),
		       top_ns(p99, (double)trace_hist_quantile(h, 0.99))); /* cut to fit */
}

void top_task_list_line(const struct top_runtime *r, const struct top_tasks *t, char *line, size_t line_bytes)
{
	(void)snprintf(line, line_bytes,
		       "%s (%d): %u tasks, while the probes are listened to; %" PRIu64 " dropped, %" PRIu64 " not shown, %" PRIu64
		       " events lost", r->process, r->pid, t->list.nr, t->list.dropped, t->list.hidden, t->lost); /* cut to fit */
}

bool top_punts_line(const struct top_tasks *t, char *line, size_t line_bytes)
{
	char name[OPCODE_NAME_MAX], rate[16], nr[16];
	uint64_t sum = 0;
	size_t used;
	unsigned i;

	for (i = 0; i < TRACE_OPCODES; i++)
		sum += t->punts[i];
	if (sum == 0)
		return false;
	used = (size_t)snprintf(line, line_bytes, "! io-wq: %s ops/s are handed to threads of the kernel; since it listens:",
				report_si(rate, t->punts_per_s));
	for (i = 0; i < TRACE_OPCODES && used < line_bytes; i++) {
		if (t->punts[i])
			used += (size_t)snprintf(line + used, line_bytes - used, " %s %s", opcode_text(i, name),
						 report_si(nr, (double)t->punts[i])); /* cut to fit */
	}
	return true;
}

/* ---- plain text ---- */

static void print_head(FILE *out, const struct top_table *t)
{
	unsigned i;

	for (i = 0; i < t->nr; i++) {
		const struct top_column *c = &t->columns[i];

		if (c->title)
			fprintf(out, c->format == TOP_TEXT ? "%-*s " : "%*s ", c->width, c->title);
	}
	putc('\n', out);
}

static void print_row(FILE *out, const struct top_table *t, const void *row)
{
	char cell[TOP_CELL_BYTES];
	unsigned i;

	for (i = 0; i < t->nr; i++) {
		const struct top_column *c = &t->columns[i];

		if (!c->title)
			continue;
		top_cell(c, row, cell);
		fprintf(out, c->format == TOP_TEXT ? "%-*s " : "%*s ", c->width, cell);
	}
	putc('\n', out);
}

/* Nothing where they cannot be had: whoever asked for them says so. */
static void print_tasks(FILE *out, const struct top_runtime *r, const struct top_listings *l)
{
	const struct top_listing *item = top_listing_of(l, r);
	char line[512];
	unsigned i;

	if (top_listing_why(l, r))
		return;
	top_task_list_line(r, &item->tasks, line, sizeof(line));
	fprintf(out, "\n%s\n", line);
	if (item->tasks.why[0])
		fprintf(out, "no numbers, and none that sleeps: %s\n", item->tasks.why);
	if (item->rows_nr < item->tasks.list.nr)
		fprintf(out, "the %u with the longest total\n", item->rows_nr);
	if (item->rows_nr)
		print_head(out, &top_task_rows);
	for (i = 0; i < item->rows_nr; i++)
		print_row(out, &top_task_rows, item->rows[i]);
	if (top_punts_line(&item->tasks, line, sizeof(line)))
		fprintf(out, "%s\n", line);
}

static void print_runtime(FILE *out, const struct top_runtime *r, const struct top_listings *l, bool looks)
{
	char line[512];
	unsigned i;

	top_headline(r, line, sizeof(line));
	fprintf(out, "%s\n", line);
	top_tasks_line(r, line, sizeof(line));
	fprintf(out, "%s\n", line);
	top_rates_line(r, line, sizeof(line));
	fprintf(out, "%s\n", line);
	top_timing_line(r, looks, line, sizeof(line));
	fprintf(out, "%s\n\n", line);
	print_head(out, &top_workers);
	for (i = 0; i < r->workers_nr; i++)
		print_row(out, &top_workers, &r->workers[i]);
	if (r->ops_nr) {
		putc('\n', out);
		print_head(out, &top_ops);
	}
	for (i = 0; i < r->ops_nr; i++)
		print_row(out, &top_ops, &r->ops[i]);
	if (r->warnings_nr)
		putc('\n', out);
	for (i = 0; i < r->warnings_nr; i++) {
		if (r->warnings[i].worker >= 0)
			fprintf(out, "! worker %d: %s\n", r->warnings[i].worker, r->warnings[i].text);
		else
			fprintf(out, "! %s\n", r->warnings[i].text);
	}
	if (l)
		print_tasks(out, r, l);
}

int top_print(FILE *out, const struct top_model *m, const struct top_listings *l, bool looks)
{
	char kernel[256];
	unsigned i;

	sys_kernel(kernel, sizeof(kernel));
	fprintf(out, "martlet top: %u runtime%s; %s\n", m->nr, m->nr == 1 ? "" : "s", kernel);
	for (i = 0; i < m->nr; i++) {
		putc('\n', out);
		print_runtime(out, m->items[i], l, looks);
	}
	return output_flush(out);
}
