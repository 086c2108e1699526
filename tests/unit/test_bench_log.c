/* SPDX-License-Identifier: MIT */
/*
 * fio's logs: what a lane notes comes out line by line in the order of time; the memory is bounded and what does not fit
 * is counted; means over an interval are those of all I/Os of all lanes; rates are those of the interval, also when the
 * controller looks late. Times are given by the test.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "opts.h"
#include "suite.h"

#define TIME_LIMIT_S 10
#define T0 UINT64_C(5000000000)
#define MS CLOCK_NS_PER_MS

static struct bench_opts o;
static struct lat_entry room[3][100];
static struct lat_log l[3];
static char text[8192];

static void set_up(void)
{
	memset(&o, 0, sizeof(o));
	o.bs = 4096;
	o.reads = true;
	o.log_avg_ms = 100;
	memset(l, 0, sizeof(l));
	for (unsigned i = 0; i < 3; i++) {
		l[i].entries = room[i];
		l[i].max = 100;
		l[i].from_ns = T0;
	}
}

static const char *written(unsigned lanes)
{
	FILE *f;

	memset(text, 0, sizeof(text));
	f = fmemopen(text, sizeof(text), "w");
	for (unsigned i = 0; i < lanes; i++)
		lat_log_end(&l[i]);
	ck_assert_int_eq(lat_log_write(f, l, lanes, &o), 0);
	fclose(f);
	return text;
}

START_TEST(each_io_is_a_line)
{
	lat_log_add(&l[0], 0, T0 + 1, 700, 4096);
	lat_log_add(&l[0], 1, T0 + 2 * MS, UINT64_C(5000000000), 8192);
	ck_assert_str_eq(written(1), "0, 700, 0, 4096, 0\n2, 5000000000, 1, 4096, 0\n");
	o.log_offset = true;
	ck_assert_str_eq(written(1), "0, 700, 0, 4096, 4096, 0\n2, 5000000000, 1, 4096, 8192, 0\n");
}
END_TEST

START_TEST(lanes_of_a_job_are_put_in_order)
{
	lat_log_add(&l[0], 0, T0 + 1 * MS, 10, 0);
	lat_log_add(&l[0], 0, T0 + 4 * MS, 11, 0);
	lat_log_add(&l[1], 0, T0 + 3 * MS, 20, 0);
	lat_log_add(&l[2], 0, T0 + 2 * MS, 30, 0);
	ck_assert_str_eq(written(3), "1, 10, 0, 4096, 0\n2, 30, 0, 4096, 0\n3, 20, 0, 4096, 0\n4, 11, 0, 4096, 0\n");
}
END_TEST

START_TEST(what_does_not_fit_is_counted)
{
	l[0].max = 2;
	for (unsigned i = 0; i < 7; i++)
		lat_log_add(&l[0], 0, T0 + i * MS, i, 0);
	ck_assert_uint_eq(l[0].nr, 2);
	ck_assert_uint_eq(l[0].dropped, 5);
	ck_assert_str_eq(written(1), "0, 0, 0, 4096, 0\n1, 1, 0, 4096, 0\n");
}
END_TEST

START_TEST(means_are_over_all_ios_of_all_lanes)
{
	for (unsigned i = 0; i < 2; i++)
		l[i].interval_ns = 100 * MS;
	/* the first interval: 3 I/Os of 1,000 and 1 of 200: 800, not 600 */
	for (unsigned i = 0; i < 3; i++)
		lat_log_add(&l[0], 0, T0 + 10 * MS, 1000, 0);
	lat_log_add(&l[1], 0, T0 + 20 * MS, 200, 0);
	lat_log_add(&l[1], 1, T0 + 99 * MS, 5, 0);
	/* none in the second; one in the third */
	lat_log_add(&l[0], 0, T0 + 200 * MS, 70, 0);
	ck_assert_str_eq(written(2), "100, 800, 0, 4096, 0\n100, 5, 1, 4096, 0\n300, 70, 0, 4096, 0\n");
}
END_TEST

/* --- rates --- */

static struct rate_log g;

static void open_rates(unsigned jobs)
{
	char prefix[] = "/tmp/martlet-log.XXXXXX", path[64];
	int fd = mkstemp(prefix);

	ck_assert_int_ge(fd, 0);
	o.iops_log = o.bw_log = prefix;
	ck_assert_int_eq(rate_log_open(&g, &o, jobs), 0);
	fclose(fdopen(fd, "w"));
	remove(prefix);
	for (unsigned i = 1; i <= jobs; i++) {
		snprintf(path, sizeof(path), "%s_iops.%u.log", prefix, i);
		ck_assert_int_eq(remove(path), 0);
		snprintf(path, sizeof(path), "%s_bw.%u.log", prefix, i);
		ck_assert_int_eq(remove(path), 0);
	}
}

/* The file has no name any more: read it by its descriptor. */
static const char *lines_of(FILE *f)
{
	char path[64];
	FILE *in;

	fflush(f);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(f));
	in = fopen(path, "r");
	ck_assert_ptr_nonnull(in);
	memset(text, 0, sizeof(text));
	ck_assert_uint_lt(fread(text, 1, sizeof(text), in), sizeof(text));
	fclose(in);
	return text;
}

START_TEST(rates_are_those_of_the_interval_and_of_the_job)
{
	uint64_t done[2][2] = { { 1000, 0 }, { 50, 0 } };

	open_rates(2);
	rate_log_begin(&g, T0, done);
	done[0][0] += 100;
	done[1][0] += 7;
	rate_log_step(&g, &o, T0 + 99 * MS, done, false);       /* not due yet */
	rate_log_step(&g, &o, T0 + 100 * MS, done, false);
	done[0][0] += 200;
	rate_log_step(&g, &o, T0 + 200 * MS, done, false);
	ck_assert_str_eq(lines_of(g.iops[0]), "100, 1000, 0, 4096, 0\n200, 2000, 0, 4096, 0\n");
	ck_assert_str_eq(lines_of(g.bw[0]), "100, 4000, 0, 4096, 0\n200, 8000, 0, 4096, 0\n");
	ck_assert_str_eq(lines_of(g.iops[1]), "100, 70, 0, 4096, 0\n200, 0, 0, 4096, 0\n");
	ck_assert_int_eq(rate_log_close(&g), 0);
}
END_TEST

START_TEST(a_late_look_gives_the_mean_and_the_next_is_on_time)
{
	uint64_t done[1][2] = { { 0, 0 } };

	o.writes = true;
	open_rates(1);
	rate_log_begin(&g, T0, done);
	done[0][0] = 250;
	done[0][1] = 25;
	rate_log_step(&g, &o, T0 + 250 * MS, done, false);
	ck_assert_uint_eq(g.due_ns, T0 + 300 * MS);
	done[0][0] += 100;
	rate_log_step(&g, &o, T0 + 300 * MS, done, false);
	ck_assert_str_eq(lines_of(g.iops[0]), "250, 1000, 0, 4096, 0\n250, 100, 1, 4096, 0\n"
			 "300, 2000, 0, 4096, 0\n300, 0, 1, 4096, 0\n");
	ck_assert_int_eq(rate_log_close(&g), 0);
}
END_TEST

START_TEST(the_end_counts_when_half_an_interval_has_passed)
{
	uint64_t done[1][2] = { { 0, 0 } };

	open_rates(1);
	rate_log_begin(&g, T0, done);
	done[0][0] = 100;
	rate_log_step(&g, &o, T0 + 100 * MS, done, false);
	rate_log_step(&g, &o, T0 + 140 * MS, done, true);
	done[0][0] = 160;
	rate_log_step(&g, &o, T0 + 160 * MS, done, true);
	ck_assert_str_eq(lines_of(g.iops[0]), "100, 1000, 0, 4096, 0\n160, 1000, 0, 4096, 0\n");
	ck_assert_int_eq(rate_log_close(&g), 0);
}
END_TEST

START_TEST(a_log_that_cannot_be_written_is_said)
{
	FILE *err;

	o.lat_log = "/nosuch/prefix";
	memset(text, 0, sizeof(text));
	err = fmemopen(text, sizeof(text) - 1, "w");
	ck_assert_int_eq(log_check(&o, err), -ENOENT);
	fclose(err);
	ck_assert_ptr_nonnull(strstr(text, "--write_lat_log=/nosuch/prefix: No such file"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_log");
	TCase *t = tcase_create("log");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_checked_fixture(t, set_up, NULL);
	tcase_add_test(t, each_io_is_a_line);
	tcase_add_test(t, lanes_of_a_job_are_put_in_order);
	tcase_add_test(t, what_does_not_fit_is_counted);
	tcase_add_test(t, means_are_over_all_ios_of_all_lanes);
	tcase_add_test(t, rates_are_those_of_the_interval_and_of_the_job);
	tcase_add_test(t, a_late_look_gives_the_mean_and_the_next_is_on_time);
	tcase_add_test(t, the_end_counts_when_half_an_interval_has_passed);
	tcase_add_test(t, a_log_that_cannot_be_written_is_said);
	suite_add_tcase(s, t);
	return suite_main(s);
}
