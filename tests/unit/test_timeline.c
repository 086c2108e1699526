/* SPDX-License-Identifier: MIT */
/*
 * The timeline's busy spans when records of parks are lost: what lies between two that were not lost is left out and told, also
 * if the first ones are missing, or all. Records are made up here; real ones are in tests/integration/test_trace.c.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

#include "timeline.h"

#define TGID 77u
#define END 10000u

static struct timeline *timeline;
static FILE *file;              /* what it writes; it has no name any more, so that nothing is left behind */
static char text[1 << 16];      /* the file */

static void setup(void)
{
	char path[] = "/tmp/martlet-timeline.XXXXXX";
	struct timeline_opts opts = { .path = path, .events_max = 100 };
	int fd;

	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(timeline_create(&opts, &timeline), 0);
	ck_assert_int_eq(unlink(path), 0);
	file = fdopen(fd, "r");
	ck_assert_ptr_nonnull(file);
}

static void teardown(void)
{
	fclose(file);
}

/* It did something, so it is awake. */
static void steal(unsigned tid, uint64_t at)
{
	struct trace_rec r = { .kind = TRACE_REC_STEAL, .tgid = TGID, .tid = tid, .end_ns = at, .steal = { .nr = 1 } };

	timeline_add(timeline, &r);
}

static void park(unsigned tid, uint64_t seq, uint64_t from, uint64_t to)
{
	struct trace_rec r = { .kind = TRACE_REC_PARK, .tgid = TGID, .tid = tid, .end_ns = to,
			       .park = { .slept_ns = to - from, .seq = seq } };

	timeline_add(timeline, &r);
}

static void thread(unsigned tid, uint64_t parks, uint64_t parked_at)
{
	struct trace_thread th = { .tgid = TGID, .tid = tid, .parks = parks, .park_ns = parked_at };

	timeline_add_thread(timeline, &th, END);
}

/* @return gaps; `text` is the file */
static uint64_t end(void)
{
	struct trace_file result;

	timeline_end(timeline, 1, &result);
	ck_assert_int_eq(result.error, 0);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	return result.gaps;
}

static unsigned long long busy_ns(unsigned tid)
{
	unsigned long long ns;
	char key[32];
	char *at;

	snprintf(key, sizeof(key), "\"%u/%u\":", TGID, tid);
	at = strstr(text, key);
	ck_assert_msg(at != NULL, "no %s in %s", key, text);
	ck_assert_int_eq(sscanf(at + strlen(key), "%llu", &ns), 1);
	return ns;
}

START_TEST(with_all_records_busy_is_what_is_not_parked)
{
	steal(1, 100);
	park(1, 0, 200, 300);
	park(1, 1, 1000, 2000);
	thread(1, 2, 2500);
	ck_assert_uint_eq(end(), 0);
	ck_assert_uint_eq(busy_ns(1), 100 + 700 + 500);
}
END_TEST

START_TEST(nothing_is_made_up_between_two_parks_with_others_lost)
{
	park(1, 0, 200, 300);
	park(1, 2, 1000, 2000);
	thread(1, 3, 2500);
	ck_assert_uint_eq(end(), 1);
	ck_assert_uint_eq(busy_ns(1), 500);
}
END_TEST

START_TEST(nothing_is_made_up_before_the_first_park_that_is_left)
{
	steal(1, 100);
	park(1, 3, 1000, 2000);
	thread(1, 4, 2500);
	ck_assert_uint_eq(end(), 1);
	ck_assert_uint_eq(busy_ns(1), 500);
}
END_TEST

START_TEST(nothing_is_made_up_behind_the_last_park_that_is_left)
{
	park(1, 0, 200, 300);
	thread(1, 3, 2500);
	ck_assert_uint_eq(end(), 1);
	ck_assert_uint_eq(busy_ns(1), 0);
}
END_TEST

START_TEST(nothing_is_made_up_where_all_parks_are_lost)
{
	steal(1, 100);
	thread(1, 3, 2500);
	steal(2, 100);
	thread(2, 0, 0);        /* never parked */
	ck_assert_uint_eq(end(), 1);
	ck_assert_uint_eq(busy_ns(1), 0);
	ck_assert_uint_eq(busy_ns(2), END - 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timeline");
	TCase *tc = tcase_create("gaps");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, with_all_records_busy_is_what_is_not_parked);
	tcase_add_test(tc, nothing_is_made_up_between_two_parks_with_others_lost);
	tcase_add_test(tc, nothing_is_made_up_before_the_first_park_that_is_left);
	tcase_add_test(tc, nothing_is_made_up_behind_the_last_park_that_is_left);
	tcase_add_test(tc, nothing_is_made_up_where_all_parks_are_lost);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
