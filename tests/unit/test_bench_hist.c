/* SPDX-License-Identifier: MIT */
/*
 * The latency histogram: buckets cover every value once, no reported value is more than 1 % off, percentiles agree with
 * a sorted array, merging equals recording together. Not proven here: speed.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hist.h"
#include "rng.h"
#include "suite.h"

#define TIME_LIMIT_S 30

static struct hist a, b, both;

START_TEST(every_bucket_begins_where_the_one_before_ends)
{
	for (unsigned i = 1; i < HIST_BUCKETS_NR; i++) {
		uint64_t low = hist_bucket_low(i);

		ck_assert_uint_eq(hist_index(low), i);
		ck_assert_uint_eq(hist_index(low - 1), i - 1);
	}
	ck_assert_uint_eq(hist_index(0), 0);
	ck_assert_uint_eq(hist_index(HIST_VALUE_MAX), HIST_BUCKETS_NR - 1);
	ck_assert_uint_eq(hist_index(UINT64_MAX), HIST_BUCKETS_NR - 1);
}
END_TEST

START_TEST(a_bucket_s_middle_is_within_one_per_cent_of_its_values)
{
	uint64_t state = rng_seed(7);
	unsigned off = 0;

	/* an assertion costs a message to the runner: count, and assert once */
	for (unsigned i = 0; i < 1000000; i++) {
		uint64_t v = rng_next(&state) >> (22 + rng_below(&state, 42));
		uint64_t mid = hist_bucket_mid(hist_index(v));
		double error = fabs((double)mid - (double)v);

		off += error > 0.01 * (double)v;
	}
	ck_assert_uint_eq(off, 0);
}
END_TEST

START_TEST(values_below_256_are_exact)
{
	for (uint64_t v = 0; v < 256; v++)
		ck_assert_uint_eq(hist_bucket_mid(hist_index(v)), v);
}
END_TEST

static int by_value(const void *x, const void *y)
{
	uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;

	return (p > q) - (p < q);
}

START_TEST(percentiles_agree_with_a_sorted_array)
{
	enum { N = 100000 };
	static const double ps[] = { 0, 1, 50, 90, 99, 99.9, 99.99, 99.999, 100 };
	uint64_t *values = malloc(N * sizeof(*values)), state = rng_seed(3);

	hist_init(&a);
	for (unsigned i = 0; i < N; i++) {
		values[i] = 900 + (uint64_t)(-log(rng_unit(&state)) * 30000);
		hist_record(&a, values[i]);
	}
	qsort(values, N, sizeof(*values), by_value);
	for (unsigned i = 0; i < sizeof(ps) / sizeof(ps[0]); i++) {
		size_t rank = (size_t)ceil(ps[i] / 100 * N);
		double exact = (double)values[rank ? rank - 1 : 0];

		ck_assert_double_eq_tol((double)hist_percentile(&a, ps[i]), exact, 0.01 * exact);
	}
	ck_assert_uint_eq(hist_percentile(&a, 100), values[N - 1]);
	ck_assert_uint_eq(hist_percentile(&a, 0), values[0]);
	ck_assert_uint_eq(hist_count(&a), N);
	free(values);
}
END_TEST

START_TEST(mean_is_exact_and_stddev_is_close)
{
	hist_init(&a);
	for (uint64_t v = 1; v <= 10000; v++)
		hist_record(&a, v);
	ck_assert_double_eq(hist_mean(&a), 5000.5);
	ck_assert_double_eq_tol(hist_stddev(&a), 2886.75, 10);
}
END_TEST

START_TEST(an_empty_histogram_reads_as_zero)
{
	hist_init(&a);
	ck_assert_uint_eq(hist_count(&a), 0);
	ck_assert_uint_eq(hist_percentile(&a, 99), 0);
	ck_assert_double_eq(hist_mean(&a), 0);
	ck_assert_double_eq(hist_stddev(&a), 0);
}
END_TEST

START_TEST(merging_equals_recording_together)
{
	uint64_t state = rng_seed(11);

	hist_init(&a);
	hist_init(&b);
	hist_init(&both);
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t v = rng_below(&state, 1u << 20);

		hist_record(i % 3 ? &a : &b, v);
		hist_record(&both, v);
	}
	hist_merge(&a, &b);
	ck_assert_int_eq(memcmp(&a, &both, sizeof(a)), 0);
}
END_TEST

START_TEST(merging_an_empty_one_changes_nothing)
{
	hist_init(&a);
	hist_init(&b);
	hist_record(&a, 42);
	both = a;
	hist_merge(&a, &b);
	ck_assert_int_eq(memcmp(&a, &both, sizeof(a)), 0);
}
END_TEST

START_TEST(counting_below_splits_at_bucket_borders)
{
	hist_init(&a);
	hist_record(&a, 1);
	hist_record(&a, 100);
	hist_record(&a, 101);
	ck_assert_uint_eq(hist_count_below(&a, 100), 1);
	ck_assert_uint_eq(hist_count_below(&a, 101), 2);
	ck_assert_uint_eq(hist_count_below(&a, UINT64_MAX), 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_hist");
	TCase *t = tcase_create("hist");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_test(t, every_bucket_begins_where_the_one_before_ends);
	tcase_add_test(t, a_bucket_s_middle_is_within_one_per_cent_of_its_values);
	tcase_add_test(t, values_below_256_are_exact);
	tcase_add_test(t, percentiles_agree_with_a_sorted_array);
	tcase_add_test(t, mean_is_exact_and_stddev_is_close);
	tcase_add_test(t, an_empty_histogram_reads_as_zero);
	tcase_add_test(t, merging_equals_recording_together);
	tcase_add_test(t, merging_an_empty_one_changes_nothing);
	tcase_add_test(t, counting_below_splits_at_bucket_borders);
	suite_add_tcase(s, t);
	return suite_main(s);
}
