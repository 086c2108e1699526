/* SPDX-License-Identifier: MIT */
/*
 * What `martlet top` makes of two looks at a runtime: rates, percentiles, warnings. The looks are made up here, so every figure
 * is known; that real runtimes are read right is in tests/integration/test_attach.c and test_top.c.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

#include "buckets.h"
#include "top_model.h"
#include "top_view.h"

#define SECOND UINT64_C(1000000000)
#define BEGIN (100 * SECOND)
#define WORKERS 2u
#define READ 22u
#define WRITE 23u

static struct attach *a;
static struct attach_set set;
static struct top_model model;
static struct attach *items[2];

static void *zeroed(size_t bytes)
{
	void *mem = aligned_alloc(128, (bytes + 127) / 128 * 128);

	ck_assert_ptr_nonnull(mem);
	return memset(mem, 0, bytes);
}

static struct attach *make(const char *label, uint64_t created_ns)
{
	struct attach *made = zeroed(sizeof(*made));
	unsigned i;

	made->pid = getpid();
	snprintf(made->label, sizeof(made->label), "%s", label);
	made->backend = "memfd";
	made->workers_nr = WORKERS;
	made->workers = zeroed(WORKERS * sizeof(*made->workers));
	made->hists = zeroed(WORKERS * sizeof(*made->hists));
	made->global.created_ns = created_ns;
	made->global.workers_nr = WORKERS;
	made->read_ns = BEGIN;
	for (i = 0; i < WORKERS; i++) {
		made->workers[i].index = made->hists[i].index = i;
		made->workers[i].state = MRT_WORKER_PARKED;
		made->workers[i].sq_entries = 256;
		made->workers[i].cq_entries = 1024;
		made->workers[i].turn_ns = BEGIN - SECOND;
	}
	return made;
}

static void drop(struct attach *made)
{
	free(made->workers);
	free(made->hists);
	free(made);
}

static void setup(void)
{
	a = items[0] = make("one", BEGIN - 10 * SECOND);
	set.items = items;
	set.nr = 1;
}

static void teardown(void)
{
	top_close(&model);
	drop(a);
}

/* Look again, so much later. */
static struct top_runtime *look(uint64_t after_ns)
{
	a->read_ns += after_ns;
	ck_assert_int_eq(top_update(&model, &set), 0);
	return model.items[0];
}

static bool warns(const struct top_runtime *r, int worker, const char *part)
{
	unsigned i;

	for (i = 0; i < r->warnings_nr; i++)
		if (r->warnings[i].worker == worker && strstr(r->warnings[i].text, part))
			return true;
	return false;
}

/* ---- figures ---- */

START_TEST(percentiles_lie_in_the_bucket_that_has_them)
{
	struct buckets b = { 0 };
	uint64_t now[MRT_HIST_NR] = { 0 }, was[MRT_HIST_NR] = { 0 };

	ck_assert_uint_eq(buckets_percentile(&b, 50), 0);
	ck_assert_uint_eq(buckets_longest(&b), 0);
	ck_assert_uint_eq(buckets_mean(&b), 0);
	was[10] = 7;
	now[10] = 7 + 90; /* 90 have come in one bucket, 10 in another */
	now[40] = 10;
	buckets_add(&b, now, was);
	b.sum_ns = 1000;
	ck_assert_uint_eq(b.nr, 100);
	ck_assert_uint_eq(buckets_mean(&b), 10);
	ck_assert_uint_eq(buckets_percentile(&b, 0), mrt_hist_min_ns(10));
	ck_assert_uint_eq(buckets_percentile(&b, 45), (mrt_hist_min_ns(10) + mrt_hist_min_ns(11)) / 2);
	ck_assert_uint_eq(buckets_percentile(&b, 90), mrt_hist_min_ns(11));
	ck_assert_uint_ge(buckets_percentile(&b, 91), mrt_hist_min_ns(40));
	ck_assert_uint_eq(buckets_percentile(&b, 100), mrt_hist_min_ns(41));
	ck_assert_uint_eq(buckets_longest(&b), mrt_hist_min_ns(40));
	memset(now, 0, sizeof(now));
	now[MRT_HIST_NR - 1] = 1; /* open at its end */
	memset(&b, 0, sizeof(b));
	buckets_add(&b, now, NULL);
	ck_assert_uint_eq(buckets_percentile(&b, 100), UINT64_C(1) << 36);
}
END_TEST

START_TEST(rates_are_of_the_time_between_two_looks)
{
	struct top_runtime *r = look(0);
	struct mrt_worker_stats *w = &a->workers[1];
	struct top_worker *t;

	ck_assert(!r->has_rates);
	ck_assert_uint_eq(r->uptime_ns, 10 * SECOND);
	w->polls = 3000;
	w->steals = 40;
	w->steal_ops = 20;
	w->parks = 10;
	w->noop_wakes = 5;
	w->enters = 100;
	w->sqes = 800;
	w->cqes = 600;
	w->turns = 200;
	w->busy_ns = SECOND / 2;
	w->park_ns = 3 * SECOND / 2;
	w->local_queue_ns = 14 * SECOND;
	w->local_queue = 9;
	w->state = MRT_WORKER_RUNNING;
	a->hists[1].poll[20] = 4;
	a->hists[1].poll_sum_ns = 4000;
	a->global.spawns_outside = 10;
	a->workers[0].spawns = 5;
	a->workers[1].ends = 8;
	r = look(2 * SECOND);
	ck_assert(r->has_rates);
	t = &r->workers[1];
	ck_assert_double_eq(t->polls, 1500);
	ck_assert_double_eq(t->steals, 20);
	ck_assert_double_eq(t->steal_ops, 10);
	ck_assert_double_eq(t->noop, 50);
	ck_assert_double_eq(t->sqes_an_enter, 8);
	ck_assert_double_eq(t->cqes_a_turn, 3);
	ck_assert_double_eq(t->busy, 25);
	ck_assert_double_eq(t->park, 75);
	ck_assert_double_eq(t->queue_mean, 7);
	ck_assert_uint_eq(t->local_queue, 9);
	ck_assert_uint_eq(t->state, MRT_WORKER_RUNNING);
	ck_assert_uint_eq(t->poll.nr, 4);
	ck_assert_uint_eq(buckets_mean(&t->poll), 1000);
	ck_assert_double_eq(r->workers[0].polls, 0);
	ck_assert_double_eq(r->sum.polls, 1500);
	ck_assert_double_eq(r->sum.busy, 12.5);
	ck_assert_uint_eq(r->sum.sq_entries, 512);
	ck_assert_int_eq(r->tasks_alive, 7);
	ck_assert_uint_eq(r->queue.nr, 1);
	ck_assert_double_eq(r->queue.value[0], 7);
	ck_assert_uint_eq(r->warnings_nr, 0);
	r = look(SECOND); /* nothing has come since */
	ck_assert_double_eq(r->workers[1].polls, 0);
	ck_assert_uint_eq(r->workers[1].poll.nr, 0);
}
END_TEST

START_TEST(ops_are_by_opcode_the_most_frequent_first)
{
	struct top_runtime *r = look(0);

	a->hists[0].op_nr[READ] = 100;
	a->hists[0].op_nr[WRITE] = 40;
	a->hists[1].op_nr[WRITE] = 200;
	a->hists[0].op_slot[0] = WRITE + 1;
	a->hists[1].op_slot[3] = WRITE + 1;
	a->hists[0].op_hist[0 * MRT_HIST_NR + 30] = 1;
	a->hists[1].op_hist[3 * MRT_HIST_NR + 30] = 2;
	a->hists[1].op_sum_ns[WRITE] = 3000;
	r = look(SECOND);
	ck_assert_uint_eq(r->ops_nr, 2);
	ck_assert_uint_eq(r->ops[0].opcode, WRITE);
	ck_assert_double_eq(r->ops[0].rate, 240);
	ck_assert_uint_eq(r->ops[0].lat.nr, 3);
	ck_assert_uint_eq(buckets_mean(&r->ops[0].lat), 1000);
	ck_assert(r->ops[0].has_percentiles);
	ck_assert_uint_eq(r->ops[1].opcode, READ);
	ck_assert(!r->ops[1].has_percentiles);
	ck_assert_double_eq(r->iops, 340);
	ck_assert_uint_eq(r->lat.nr, 3);
}
END_TEST

START_TEST(histories_keep_the_last_looks)
{
	struct top_runtime *r = NULL;
	unsigned i;

	for (i = 0; i < TOP_HISTORY_NR + 10; i++) {
		a->hists[0].op_nr[READ] += i;
		r = look(SECOND);
	}
	ck_assert_uint_eq(r->io.nr, TOP_HISTORY_NR);
	ck_assert_double_eq(r->io.value[TOP_HISTORY_NR - 1], TOP_HISTORY_NR + 9);
	ck_assert_double_eq(r->io.value[0], 10);
}
END_TEST

/* ---- warnings ---- */

START_TEST(a_poll_that_does_not_end_is_stuck)
{
	struct mrt_worker_stats *w = &a->workers[0];
	struct top_runtime *r;

	w->state = MRT_WORKER_RUNNING;
	w->poll_fn = 0x10; /* nothing is mapped there */
	w->poll_task = 0x1000;
	w->polls = 77;
	r = look(0);
	ck_assert_uint_eq(r->workers[0].state, MRT_WORKER_POLLING);
	ck_assert(!r->workers[0].is_stuck); /* one look cannot tell */
	r = look(TOP_STUCK_NS - 1);
	ck_assert(!r->workers[0].is_stuck);
	r = look(1);
	ck_assert(r->workers[0].is_stuck);
	ck_assert(!r->workers[0].is_exact);
	ck_assert_uint_eq(r->workers[0].poll_ns, SECOND + TOP_STUCK_NS); /* since the last ring turn */
	ck_assert_str_eq(r->workers[0].fn, "0x10");
	ck_assert(warns(r, 0, "stuck: in one poll of 0x10, and does not yield; last ring turn 1.5 s ago, 77 polls and no more"));
	w->polls++; /* another poll of the same function */
	r = look(SECOND);
	ck_assert(!r->workers[0].is_stuck);
	w->poll_start_ns = a->read_ns;
	w->polls++;
	r = look(TOP_STUCK_NS);
	ck_assert(r->workers[0].is_stuck);
	ck_assert(r->workers[0].is_exact);
	ck_assert_uint_eq(r->workers[0].poll_ns, TOP_STUCK_NS);
	ck_assert(warns(r, 0, "stuck: in one poll of 0x10 for 0.5 s"));
	w->poll_fn = w->poll_start_ns = 0;
	r = look(SECOND);
	ck_assert(!r->workers[0].is_stuck);
	ck_assert_uint_eq(r->warnings_nr, 0);
}
END_TEST

static void cq_overflow(struct mrt_worker_stats *w) { w->cq_overflows += 3; }
static void cq_pressure(struct mrt_worker_stats *w) { w->cq_ready = 768; }
static void sq_pressure(struct mrt_worker_stats *w) { w->sq_fulls += 3; }
static void credits(struct mrt_worker_stats *w) { w->credit_waits += 3; }
static void yields(struct mrt_worker_stats *w) { w->polls += 1000; w->yields += 501; }
static void noops(struct mrt_worker_stats *w) { w->parks += 2000; w->noop_wakes += 1001; }

static const struct {
	void (*change)(struct mrt_worker_stats *w);
	const char *warning;
} worker_cases[] = {
	{ cq_overflow, "CQ overflow: the kernel held completions back 3 times a second (1024 entries)" },
	{ cq_pressure, "CQ pressure: 768 completions waited, of 1024 entries" },
	{ sq_pressure, "SQ pressure: 3 ops a second found no entry (256 entries)" },
	{ credits, "3 ops a second wait for credits" },
	{ yields, "self-wakes: 50 % of its polls ended with mrt_yield" },
	{ noops, "50 % of its parks ended without work" },
};

START_TEST(a_worker_under_pressure_is_warned_of_while_it_lasts)
{
	struct top_runtime *r = look(0);

	ck_assert_uint_eq(r->warnings_nr, 0);
	worker_cases[_i].change(&a->workers[1]);
	r = look(SECOND);
	ck_assert_msg(warns(r, 1, worker_cases[_i].warning), "%s", r->warnings_nr ? r->warnings[0].text : "no warning");
	ck_assert_uint_eq(r->warnings_nr, 1);
	a->workers[1].cq_ready = 0;
	r = look(SECOND);
	ck_assert_uint_eq(r->warnings_nr, 0);
}
END_TEST

START_TEST(half_is_not_more_than_half)
{
	struct top_runtime *r = look(0);

	a->workers[0].polls += 1000;
	a->workers[0].yields += 500;
	a->workers[0].parks += 2000;
	a->workers[0].noop_wakes += 1000;
	a->workers[0].cq_ready = 767;
	r = look(SECOND);
	ck_assert_uint_eq(r->warnings_nr, 0);
}
END_TEST

START_TEST(queues_that_nobody_serves_are_warned_of)
{
	struct top_runtime *r = look(0);

	a->global.inject_depth = 5;
	r = look(SECOND);
	ck_assert_uint_eq(r->warnings_nr, 0); /* may have come just now */
	r = look(SECOND);
	ck_assert(warns(r, -1, "inject queue starved: 5 tasks wait, none was taken for 1.0 s"));
	r = look(SECOND);
	ck_assert(warns(r, -1, "none was taken for 2.0 s"));
	a->workers[1].injects++;
	r = look(SECOND);
	ck_assert_uint_eq(r->warnings_nr, 0);
	a->global.inject_depth = 0;
	a->global.blocking_queued = 3;
	a->global.blocking_threads = 4;
	r = look(SECOND);
	ck_assert(warns(r, -1, "blocking pool: 3 calls wait for one of 4 threads"));
	a->global.blocking_idle = 1;
	r = look(SECOND);
	ck_assert_uint_eq(r->warnings_nr, 0);
}
END_TEST

START_TEST(long_polls_are_warned_of)
{
	struct top_runtime *r = look(0);
	unsigned bucket = 0;

	while (mrt_hist_min_ns(bucket) < TOP_LONG_POLL_NS)
		bucket++;
	a->hists[0].poll[bucket - 1]++;
	r = look(SECOND);
	ck_assert_uint_eq(r->warnings_nr, 0);
	a->hists[0].poll[bucket]++;
	r = look(SECOND);
	ck_assert(warns(r, 0, "long polls: one took 10 ms or more"));
}
END_TEST

/* ---- coming and going ---- */

START_TEST(what_has_ended_stays_until_it_is_forgotten)
{
	struct top_runtime *r;

	items[1] = make("two", BEGIN - 5 * SECOND);
	set.nr = 2;
	r = look(0);
	ck_assert_uint_eq(model.nr, 2);
	ck_assert_str_eq(model.items[1]->label, "two");
	drop(items[1]);
	set.nr = 1;
	ck_assert_ptr_eq(look(SECOND), r);
	ck_assert_uint_eq(model.nr, 2);
	ck_assert_ptr_eq(model.items[0]->a, a);
	ck_assert_ptr_null(model.items[1]->a);
	ck_assert_str_eq(model.items[1]->label, "two");
	top_forget(&model);
	ck_assert_uint_eq(model.nr, 1);
	ck_assert_ptr_eq(model.items[0], r);
}
END_TEST

/* ---- words ---- */

START_TEST(times_are_short)
{
	static const struct {
		double ns;
		const char *text;
	} cases[] = {
		{ 0, "0ns" }, { 999, "999ns" }, { 1000, "1.00us" }, { 12345, "12.3us" }, { 123456, "123us" }, { 4.5e6, "4.50ms" },
		{ 1.5e9, "1.50s" }, { 99e9, "99.0s" }, { 100e9, "1m40s" }, { 3599e9, "59m59s" }, { 3600e9, "1h00m" },
		{ 90000e9, "1d01h" },
	};
	char buf[16];
	unsigned i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_str_eq(top_ns(buf, cases[i].ns), cases[i].text);
}
END_TEST

static void check_columns(const struct top_table *t, const void *row)
{
	char cell[TOP_CELL_BYTES];
	unsigned i;

	for (i = 0; i < t->nr; i++) {
		const struct top_column *c = &t->columns[i];

		ck_assert(c->title || c->key);
		ck_assert_ptr_nonnull(c->value);
		if (c->title) {
			ck_assert_ptr_nonnull(c->help);
			ck_assert_int_ge(c->width, (int)strlen(c->title));
		}
		top_cell(c, row, cell);
		ck_assert_uint_lt(strlen(cell), TOP_CELL_BYTES);
	}
}

START_TEST(every_column_has_a_title_a_help_and_room)
{
	struct top_runtime *r = look(0);
	const struct top_op op = { .opcode = READ };
	const struct task_row task = { .fn_name = "" };

	check_columns(&top_runtimes, r);
	check_columns(&top_workers, &r->workers[0]);
	check_columns(&top_ops, &op);
	check_columns(&top_task_rows, &task);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("top_model");
	TCase *tc = tcase_create("model");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, percentiles_lie_in_the_bucket_that_has_them);
	tcase_add_test(tc, rates_are_of_the_time_between_two_looks);
	tcase_add_test(tc, ops_are_by_opcode_the_most_frequent_first);
	tcase_add_test(tc, histories_keep_the_last_looks);
	tcase_add_test(tc, a_poll_that_does_not_end_is_stuck);
	tcase_add_loop_test(tc, a_worker_under_pressure_is_warned_of_while_it_lasts, 0,
			    (int)(sizeof(worker_cases) / sizeof(worker_cases[0])));
	tcase_add_test(tc, half_is_not_more_than_half);
	tcase_add_test(tc, queues_that_nobody_serves_are_warned_of);
	tcase_add_test(tc, long_polls_are_warned_of);
	tcase_add_test(tc, what_has_ended_stays_until_it_is_forgotten);
	tcase_add_test(tc, times_are_short);
	tcase_add_test(tc, every_column_has_a_title_a_help_and_room);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
