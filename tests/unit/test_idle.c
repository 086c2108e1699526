/* SPDX-License-Identifier: MIT */
/*
 * The idle books and the park word on one thread: who is named, what is counted, which transitions exist. The races are
 * in tests/model/model_idle.c and model_park.c.
 */
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "sched/idle.h"
#include "sched/park.h"
#include "suite.h"

#define LIMIT_S 5
#define WORKERS_NR 4u

static struct mrt__idle idle;

static void setup(void)
{
	ck_assert_int_eq(mrt__idle_init(&idle, WORKERS_NR), 0);
}

static void teardown(void)
{
	ck_assert(mrt__idle_check(&idle, stderr));
	mrt__idle_fini(&idle);
}

static void expect_counts(unsigned unparked, unsigned searching)
{
	ck_assert_uint_eq(mrt__idle_unparked_nr(&idle), unparked);
	ck_assert_uint_eq(mrt__idle_searching_nr(&idle), searching);
	ck_assert(mrt__idle_check(&idle, stderr));
}

START_TEST(workers_start_unparked_and_nobody_is_named)
{
	expect_counts(WORKERS_NR, 0);
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), -1);
	ck_assert(!mrt__idle_is_parked(&idle, 0));
	ck_assert(!mrt__idle_unpark_worker(&idle, 0));
	expect_counts(WORKERS_NR, 0);
}
END_TEST

START_TEST(who_parked_last_is_named_first_and_counted_as_searching)
{
	(void)mrt__idle_park(&idle, 2, false); /* nothing to rescan */
	(void)mrt__idle_park(&idle, 0, false); /* nothing to rescan */
	expect_counts(2, 0);
	ck_assert(mrt__idle_is_parked(&idle, 0));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), 0);
	ck_assert(!mrt__idle_is_parked(&idle, 0));
	expect_counts(3, 1);
	/* the named worker knows by this that it searches */
	ck_assert(!mrt__idle_unpark_worker(&idle, 0));
	expect_counts(3, 1);
	ck_assert(mrt__idle_end_search(&idle));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), 2);
	expect_counts(4, 1);
}
END_TEST

START_TEST(nobody_is_named_while_somebody_searches)
{
	(void)mrt__idle_park(&idle, 3, false); /* nothing to rescan */
	ck_assert(mrt__idle_try_search(&idle));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), -1);
	expect_counts(3, 1);
	ck_assert(mrt__idle_end_search(&idle));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), 3);
	expect_counts(4, 1);
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), -1);
	expect_counts(4, 1);
}
END_TEST

START_TEST(at_most_half_of_the_workers_search)
{
	ck_assert(mrt__idle_try_search(&idle));
	ck_assert(mrt__idle_try_search(&idle));
	ck_assert(!mrt__idle_try_search(&idle));
	expect_counts(4, 2);
	ck_assert(!mrt__idle_end_search(&idle));
	ck_assert(mrt__idle_try_search(&idle));
	ck_assert(!mrt__idle_end_search(&idle));
	ck_assert(mrt__idle_end_search(&idle));
	expect_counts(4, 0);
}
END_TEST

START_TEST(a_lone_worker_may_search)
{
	struct mrt__idle lone;

	ck_assert_int_eq(mrt__idle_init(&lone, 1), 0);
	ck_assert(mrt__idle_try_search(&lone));
	ck_assert(!mrt__idle_try_search(&lone));
	ck_assert(mrt__idle_park(&lone, 0, true));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&lone), 0);
	mrt__idle_fini(&lone);
}
END_TEST

START_TEST(parking_asks_for_a_rescan_when_no_searcher_is_left)
{
	ck_assert(mrt__idle_try_search(&idle));
	ck_assert(mrt__idle_try_search(&idle));
	ck_assert(!mrt__idle_park(&idle, 0, false));
	ck_assert(!mrt__idle_park(&idle, 1, true));
	ck_assert(mrt__idle_park(&idle, 2, true));
	expect_counts(1, 0);
	/* nor was this one a searcher, but nobody else will look */
	ck_assert(mrt__idle_park(&idle, 3, false));
	expect_counts(0, 0);
}
END_TEST

START_TEST(a_worker_that_wakes_by_itself_leaves_the_stack_from_the_middle)
{
	unsigned w;

	for (w = 0; w < WORKERS_NR; w++)
		(void)mrt__idle_park(&idle, w, false); /* nothing to rescan */
	ck_assert(mrt__idle_unpark_worker(&idle, 1));
	ck_assert(!mrt__idle_is_parked(&idle, 1));
	expect_counts(1, 0);
	ck_assert(!mrt__idle_unpark_worker(&idle, 1));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), 3);
	ck_assert(mrt__idle_end_search(&idle));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), 2);
	ck_assert(mrt__idle_end_search(&idle));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), 0);
	ck_assert(mrt__idle_end_search(&idle));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&idle), -1);
	expect_counts(4, 0);
}
END_TEST

/* Appoint to a free office; it is free again afterwards. */
static int appoint(int except)
{
	atomic_uint post = 0;
	int w = mrt__idle_appoint(&idle, except, &post);

	ck_assert_int_eq((int)atomic_load_explicit(&post, memory_order_relaxed), w + 1);
	return w;
}

START_TEST(who_is_appointed_stays_asleep)
{
	ck_assert_int_eq(appoint(-1), -1);
	(void)mrt__idle_park(&idle, 1, false); /* nothing to rescan */
	ck_assert_int_eq(appoint(-1), 1);
	ck_assert_int_eq(appoint(1), -1);
	(void)mrt__idle_park(&idle, 2, false); /* nothing to rescan */
	ck_assert_int_eq(appoint(-1), 2);
	ck_assert_int_eq(appoint(2), 1);
	ck_assert(mrt__idle_is_parked(&idle, 1));
	expect_counts(2, 0);
}
END_TEST

START_TEST(an_office_that_is_taken_stays_with_its_holder)
{
	atomic_uint post = 4;

	(void)mrt__idle_park(&idle, 1, false); /* nothing to rescan */
	ck_assert_int_eq(mrt__idle_appoint(&idle, -1, &post), -1);
	ck_assert_uint_eq(atomic_load_explicit(&post, memory_order_relaxed), 4);
}
END_TEST

START_TEST(init_refuses_silly_numbers_and_takes_the_limit)
{
	struct mrt__idle x;

	ck_assert_int_eq(mrt__idle_init(&x, 0), -EINVAL);
	mrt__idle_fini(&x);
	ck_assert_int_eq(mrt__idle_init(&x, MRT__IDLE_WORKERS_MAX + 1), -EINVAL);
	mrt__idle_fini(&x);
	mrt__idle_fini(NULL);
	ck_assert_int_eq(mrt__idle_init(&x, MRT__IDLE_WORKERS_MAX), 0);
	ck_assert_uint_eq(mrt__idle_unparked_nr(&x), MRT__IDLE_WORKERS_MAX);
	ck_assert(mrt__idle_park(&x, MRT__IDLE_WORKERS_MAX - 1, false));
	ck_assert_int_eq(mrt__idle_worker_to_notify(&x), (int)MRT__IDLE_WORKERS_MAX - 1);
	ck_assert(mrt__idle_check(&x, stderr));
	mrt__idle_fini(&x);
	mrt__idle_fini(&x);
}
END_TEST

START_TEST(check_finds_counts_that_do_not_add_up)
{
	atomic_fetch_add_explicit(&idle.word, 1, memory_order_seq_cst);
	ck_assert(mrt__idle_check(&idle, NULL));
	atomic_fetch_sub_explicit(&idle.word, (1u << 16) + 1, memory_order_seq_cst);
	ck_assert(!mrt__idle_check(&idle, NULL));
	atomic_fetch_add_explicit(&idle.word, 1u << 16, memory_order_seq_cst);
}
END_TEST

START_TEST(park_and_wake_by_itself)
{
	struct mrt__park p;

	mrt__park_init(&p);
	ck_assert(mrt__park_begin(&p));
	ck_assert(!mrt__park_end(&p));
	ck_assert(mrt__park_begin(&p));
	ck_assert(!mrt__park_end(&p));
}
END_TEST

START_TEST(only_the_first_wake_of_a_sleeper_writes)
{
	struct mrt__park p;

	mrt__park_init(&p);
	ck_assert(mrt__park_begin(&p));
	ck_assert(mrt__park_wake(&p));
	ck_assert(!mrt__park_wake(&p));
	ck_assert(mrt__park_end(&p));
	/* all consumed */
	ck_assert(mrt__park_begin(&p));
	ck_assert(mrt__park_wake(&p));
	ck_assert(mrt__park_end(&p));
}
END_TEST

START_TEST(a_wake_before_the_sleep_refuses_it_once)
{
	struct mrt__park p;

	mrt__park_init(&p);
	ck_assert(!mrt__park_wake(&p));
	ck_assert(!mrt__park_wake(&p));
	ck_assert(!mrt__park_begin(&p));
	ck_assert(mrt__park_begin(&p));
	ck_assert(!mrt__park_end(&p));
}
END_TEST

static Suite *idle_suite(void)
{
	Suite *s = suite_create("idle");
	TCase *tc = tcase_create("books"), *park = tcase_create("park word");

	tcase_set_timeout(tc, LIMIT_S);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, workers_start_unparked_and_nobody_is_named);
	tcase_add_test(tc, who_parked_last_is_named_first_and_counted_as_searching);
	tcase_add_test(tc, nobody_is_named_while_somebody_searches);
	tcase_add_test(tc, at_most_half_of_the_workers_search);
	tcase_add_test(tc, a_lone_worker_may_search);
	tcase_add_test(tc, parking_asks_for_a_rescan_when_no_searcher_is_left);
	tcase_add_test(tc, a_worker_that_wakes_by_itself_leaves_the_stack_from_the_middle);
	tcase_add_test(tc, who_is_appointed_stays_asleep);
	tcase_add_test(tc, an_office_that_is_taken_stays_with_its_holder);
	tcase_add_test(tc, init_refuses_silly_numbers_and_takes_the_limit);
	tcase_add_test(tc, check_finds_counts_that_do_not_add_up);
	suite_add_tcase(s, tc);
	tcase_set_timeout(park, LIMIT_S);
	tcase_add_test(park, park_and_wake_by_itself);
	tcase_add_test(park, only_the_first_wake_of_a_sleeper_writes);
	tcase_add_test(park, a_wake_before_the_sleep_refuses_it_once);
	suite_add_tcase(s, park);
	return s;
}

int main(void)
{
	return suite_main(idle_suite());
}
