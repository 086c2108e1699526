/* SPDX-License-Identifier: MIT */
/*
 * What `martlet top` makes of tasks that were counted and tasks that are in memory: times that add up, states, who is who when
 * memory is used again, entries that are dropped, warnings and where they begin. Both sources are made up here; real ones are
 * in tests/integration/test_top_tasks.c.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

#include "task_list.h"

#define MS UINT64_C(1000000)
#define BEGIN (UINT64_C(1000) * MS)
#define FN 0x1000u
#define ADDR(n) (UINT64_C(0x7f0000000000) + 256 * (uint64_t)(n))

static struct task_list list;
static struct tracer_tasks *counted;

static void setup(void)
{
	memset(&list, 0, sizeof(list));
	list.since_ns = BEGIN;
	counted = calloc(1, sizeof(*counted));
	ck_assert_ptr_nonnull(counted);
}

static void teardown(void)
{
	task_list_free(&list);
	free(counted);
}

static struct trace_task *add(uint64_t addr, enum trace_task_state state, uint64_t first_ns, uint64_t since_ns)
{
	struct trace_task *t = &counted->tasks[counted->nr];

	memset(t, 0, sizeof(*t));
	counted->keys[counted->nr++].task = addr;
	t->fn = FN;
	t->state = state;
	t->first_ns = first_ns;
	t->since_ns = since_ns;
	return t;
}

static void walk(uint64_t addr, uint64_t id, enum walk_state state, const char *name)
{
	struct walk_task t = { .addr = addr, .id = id, .fn = FN, .state = state };

	(void)snprintf(t.name, sizeof(t.name), "%s", name); /* fits */
	task_list_walked(&t, &list);
}

static void count_at(uint64_t now_ns)
{
	ck_assert_int_eq(task_list_count(&list, counted, now_ns), 0);
}

static const struct task_row *only(void)
{
	ck_assert_uint_eq(list.nr, 1);
	ck_assert_uint_eq(list.rows[0].busy_ns + list.rows[0].sched_ns + list.rows[0].idle_ns, list.rows[0].total_ns);
	return &list.rows[0];
}

/* Total, busy, sched and idle of a task that was spawned 10 ms after the begin, 40 ms before now, with 5 and 3 ms so far. */
static const struct {
	enum trace_task_state state;
	uint64_t since_ms, total_ms, busy_ms, sched_ms;
} time_cases[] = {
	{ TRACE_TASK_IDLE, 7, 40, 5, 3 },
	{ TRACE_TASK_SCHED, 7, 40, 5, 10 },
	{ TRACE_TASK_RUNNING, 7, 40, 12, 3 },
	{ TRACE_TASK_DONE, 7, 33, 5, 3 },
};

START_TEST(times_add_up_in_each_state)
{
	uint64_t now = BEGIN + 50 * MS;
	struct trace_task *t = add(ADDR(1), time_cases[_i].state, BEGIN + 10 * MS, now - time_cases[_i].since_ms * MS);
	const struct task_row *r;

	t->spawned = 1;
	t->poll.sum_ns = 5 * MS;
	t->sched.sum_ns = 3 * MS;
	count_at(now);
	task_list_finish(&list);
	r = only();
	ck_assert_uint_eq(r->total_ns, time_cases[_i].total_ms * MS);
	ck_assert_uint_eq(r->busy_ns, time_cases[_i].busy_ms * MS);
	ck_assert_uint_eq(r->sched_ns, time_cases[_i].sched_ms * MS);
	ck_assert_int_eq(r->state, time_cases[_i].state);
}
END_TEST

START_TEST(whose_spawn_was_not_seen_was_there_before)
{
	add(ADDR(1), TRACE_TASK_IDLE, BEGIN + 30 * MS, BEGIN + 30 * MS);
	count_at(BEGIN + 50 * MS);
	task_list_finish(&list);
	ck_assert_uint_eq(only()->total_ns, 50 * MS);
	counted->dropped = 1; /* or its entry was dropped, and this is another */
	count_at(BEGIN + 50 * MS);
	task_list_finish(&list);
	ck_assert_uint_eq(only()->total_ns, 20 * MS);
}
END_TEST

/* Its busy time may be more than the time that anybody listened. */
START_TEST(a_poll_that_began_before_counts_whole)
{
	struct trace_task *t = add(ADDR(1), TRACE_TASK_IDLE, BEGIN - 30 * MS, BEGIN + 10 * MS);

	t->poll.sum_ns = 40 * MS;
	count_at(BEGIN + 20 * MS);
	task_list_finish(&list);
	ck_assert_uint_eq(only()->busy_ns, 40 * MS);
	ck_assert_uint_eq(only()->total_ns, 50 * MS);
}
END_TEST

START_TEST(memory_has_the_newer_state)
{
	static const struct {
		enum walk_state in_memory;
		enum trace_task_state shown;
	} cases[] = { { WALK_RUNNING, TRACE_TASK_RUNNING }, { WALK_RUNNABLE, TRACE_TASK_SCHED }, { WALK_WAITING, TRACE_TASK_IDLE },
		      { WALK_ENDING, TRACE_TASK_IDLE }, { WALK_ENDED, TRACE_TASK_DONE } };
	unsigned i;

	add(ADDR(1), TRACE_TASK_IDLE, BEGIN, BEGIN + 1)->spawned = 1;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		count_at(BEGIN + 10 * MS);
		walk(ADDR(1), 7, cases[i].in_memory, "seven");
		task_list_finish(&list);
		ck_assert_int_eq(only()->state, cases[i].shown);
		ck_assert_uint_eq(only()->id, 7);
		ck_assert_str_eq(only()->name, "seven");
	}
}
END_TEST

START_TEST(memory_that_is_used_again_is_another_task)
{
	struct trace_task *t = add(ADDR(1), TRACE_TASK_IDLE, BEGIN, BEGIN + 1);

	t->spawned = 1;
	t->id = 7;
	count_at(BEGIN + 10 * MS);
	walk(ADDR(1), 7, WALK_WAITING, "seven");
	task_list_finish(&list);
	/* it has ended, and keeps its name; what is there now was not counted yet */
	t->state = TRACE_TASK_DONE;
	count_at(BEGIN + 20 * MS);
	walk(ADDR(1), 8, WALK_WAITING, "eight");
	task_list_finish(&list);
	ck_assert_uint_eq(only()->id, 7);
	ck_assert_str_eq(only()->name, "seven");
	ck_assert_int_eq(only()->state, TRACE_TASK_DONE);
	ck_assert_ptr_eq(task_list_find(&list, ADDR(1), BEGIN), only());
	/* now it is: of the old one nothing is left */
	t->id = 8;
	t->first_ns = BEGIN + 25 * MS;
	t->state = TRACE_TASK_IDLE;
	count_at(BEGIN + 30 * MS);
	task_list_finish(&list);
	ck_assert_uint_eq(only()->id, 8);
	ck_assert_str_eq(only()->name, "");
	ck_assert_ptr_null(task_list_find(&list, ADDR(1), BEGIN));
}
END_TEST

START_TEST(one_that_has_ended_is_not_what_runs_where_it_was)
{
	add(ADDR(1), TRACE_TASK_DONE, BEGIN, BEGIN + 5 * MS)->spawned = 1; /* with no id that would tell */
	count_at(BEGIN + 10 * MS);
	walk(ADDR(1), 8, WALK_RUNNING, "eight");
	task_list_finish(&list);
	ck_assert_int_eq(only()->state, TRACE_TASK_DONE);
	ck_assert_uint_eq(only()->id, 0);
	/* but one whose handle is kept is the same */
	count_at(BEGIN + 10 * MS);
	walk(ADDR(1), 7, WALK_ENDED, "seven");
	task_list_finish(&list);
	ck_assert_uint_eq(only()->id, 7);
}
END_TEST

START_TEST(tasks_without_an_entry_are_known_from_memory)
{
	count_at(BEGIN + 10 * MS);
	walk(ADDR(2), 2, WALK_WAITING, "two");
	walk(ADDR(1), 1, WALK_ENDED, ""); /* before anybody listened */
	task_list_finish(&list);
	ck_assert_uint_eq(only()->id, 2);
	ck_assert_uint_eq(only()->total_ns, 10 * MS);
	ck_assert(!only()->is_counted);
	/* memory is not read at each look */
	count_at(BEGIN + 20 * MS);
	task_list_keep(&list);
	task_list_finish(&list);
	ck_assert_uint_eq(only()->id, 2);
	ck_assert_uint_eq(only()->total_ns, 20 * MS);
	/* one that came later */
	count_at(BEGIN + 30 * MS);
	walk(ADDR(3), 3, WALK_RUNNABLE, "");
	task_list_finish(&list);
	ck_assert_uint_eq(only()->total_ns, 0);
}
END_TEST

START_TEST(what_was_counted_stays_when_its_entry_is_dropped)
{
	struct trace_task *t = add(ADDR(1), TRACE_TASK_IDLE, BEGIN + MS, BEGIN + 2 * MS);

	t->spawned = 1;
	t->poll.count = 3;
	count_at(BEGIN + 10 * MS);
	walk(ADDR(1), 7, WALK_WAITING, "");
	task_list_finish(&list);
	counted->nr = 0;
	counted->dropped = 1;
	count_at(BEGIN + 20 * MS);
	walk(ADDR(1), 7, WALK_WAITING, "");
	task_list_finish(&list);
	ck_assert_uint_eq(only()->polls, 3);
	ck_assert_uint_eq(only()->total_ns, 19 * MS);
	ck_assert_uint_eq(list.dropped, 1);
}
END_TEST

START_TEST(more_than_fit_are_hidden)
{
	unsigned i;

	count_at(BEGIN + 10 * MS);
	for (i = 0; i < TASK_LIST_MAX - TRACE_TASKS_MAX + 5; i++)
		walk(ADDR(i), i + 1, WALK_WAITING, "");
	task_list_finish(&list);
	ck_assert_uint_eq(list.nr, TASK_LIST_MAX - TRACE_TASKS_MAX);
	ck_assert_uint_eq(list.hidden, 5);
}
END_TEST

static const struct {
	uint64_t polls, self_wakes, poll_max_ns, sched_max_ns, running_ns;
	unsigned warnings;
} warning_cases[] = {
	{ 10, 5, 0, 0, 0, 0 },
	{ 10, 6, 0, 0, 0, TASK_SELF_WAKES },
	{ 9, 9, 0, 0, 0, 0 },
	{ 1, 0, 10 * MS - 1, 0, 0, 0 },
	{ 1, 0, 10 * MS, 0, 0, TASK_LONG_POLL },
	{ 1, 0, 0, 100 * MS - 1, 0, 0 },
	{ 1, 0, 0, 100 * MS, 0, TASK_LONG_WAIT },
	{ 1, 0, 0, 0, 1000 * MS - 1, TASK_LONG_POLL },
	{ 1, 0, 0, 0, 1000 * MS, TASK_LONG_POLL | TASK_NEVER_YIELDS },
};

START_TEST(warnings_begin_where_they_say)
{
	uint64_t now = BEGIN + 2000 * MS, running = warning_cases[_i].running_ns;
	struct trace_task *t = add(ADDR(1), running ? TRACE_TASK_RUNNING : TRACE_TASK_IDLE, BEGIN, now - running);

	t->spawned = 1;
	t->poll.count = warning_cases[_i].polls;
	t->self_wakes = warning_cases[_i].self_wakes;
	t->poll_max_ns = warning_cases[_i].poll_max_ns;
	t->sched_max_ns = warning_cases[_i].sched_max_ns;
	count_at(now);
	task_list_finish(&list);
	ck_assert_uint_eq(only()->warnings, warning_cases[_i].warnings);
}
END_TEST

START_TEST(a_worker_tells_how_long_a_poll_lasts_that_was_not_counted)
{
	count_at(BEGIN + 10 * MS);
	walk(ADDR(1), 1, WALK_RUNNING, "");
	task_list_polled(&list, ADDR(1), 5000 * MS);
	task_list_finish(&list);
	ck_assert_uint_eq(only()->running_ns, 5000 * MS);
	ck_assert_uint_eq(only()->busy_ns, 10 * MS); /* of the time that it was listened to */
	ck_assert_uint_eq(only()->warnings, TASK_NEVER_YIELDS | TASK_LONG_POLL);
}
END_TEST

#define CASES_NR(cases) ((int)(sizeof(cases) / sizeof((cases)[0])))

int main(void)
{
	Suite *suite = suite_create("task_list");
	TCase *tc = tcase_create("list");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, times_add_up_in_each_state, 0, CASES_NR(time_cases));
	tcase_add_test(tc, whose_spawn_was_not_seen_was_there_before);
	tcase_add_test(tc, a_poll_that_began_before_counts_whole);
	tcase_add_test(tc, memory_has_the_newer_state);
	tcase_add_test(tc, memory_that_is_used_again_is_another_task);
	tcase_add_test(tc, one_that_has_ended_is_not_what_runs_where_it_was);
	tcase_add_test(tc, tasks_without_an_entry_are_known_from_memory);
	tcase_add_test(tc, what_was_counted_stays_when_its_entry_is_dropped);
	tcase_add_test(tc, more_than_fit_are_hidden);
	tcase_add_loop_test(tc, warnings_begin_where_they_say, 0, CASES_NR(warning_cases));
	tcase_add_test(tc, a_worker_tells_how_long_a_poll_lasts_that_was_not_counted);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
