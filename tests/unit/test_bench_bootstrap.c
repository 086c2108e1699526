/* SPDX-License-Identifier: MIT */
/* The interval of a median. */
#include <check.h>
#include <stdlib.h>

#include "bootstrap.h"
#include "suite.h"

#define TIME_LIMIT_S 10
#define VALUES_NR 15u

START_TEST(an_interval_of_equal_values_is_that_value)
{
	double v[VALUES_NR];
	struct interval i;

	for (unsigned k = 0; k < VALUES_NR; k++)
		v[k] = 0.98;
	i = bootstrap_median(v, VALUES_NR);
	ck_assert_double_eq(i.low, 0.98);
	ck_assert_double_eq(i.high, 0.98);
}
END_TEST

/*
 * For distinct values the bootstrap's distribution of the median is known: of 11, it is at most the k-th smallest when a
 * binomial(11, k/11) is at least 6: 0.7 % for the second, 5.1 % for the third. So the 2.5 % point is the third value and, by
 * symmetry, the 97.5 % point the ninth.
 */
START_TEST(an_interval_of_eleven_values_goes_from_the_third_to_the_ninth)
{
	static const unsigned order[11] = { 7, 0, 3, 5, 9, 1, 2, 4, 10, 6, 8 };
	double v[11];
	struct interval i;

	for (unsigned k = 0; k < 11; k++)
		v[k] = 1 + order[k];
	i = bootstrap_median(v, 11);
	ck_assert_double_eq(i.low, 3);
	ck_assert_double_eq(i.high, 9);
	ck_assert_double_eq(v[0], 8);   /* untouched */
}
END_TEST

START_TEST(one_wild_value_does_not_move_an_interval)
{
	double v[VALUES_NR];
	struct interval calm, wild;

	for (unsigned k = 0; k < VALUES_NR; k++)
		v[k] = k;
	calm = bootstrap_median(v, VALUES_NR);
	v[VALUES_NR - 1] = 1e9;
	wild = bootstrap_median(v, VALUES_NR);
	ck_assert_double_eq(calm.low, wild.low);
	ck_assert_double_eq(calm.high, wild.high);
}
END_TEST

START_TEST(an_even_number_of_values_has_the_middle_of_two)
{
	const double v[] = { 1, 3 };
	struct interval i = bootstrap_median(v, 2);

	/* of four resamples two have the median 2, one each 1 and 3: far more than 2.5 % */
	ck_assert_double_eq(i.low, 1);
	ck_assert_double_eq(i.high, 3);
	i = bootstrap_median(v, 1);
	ck_assert_double_eq(i.low, 1);
	ck_assert_double_eq(i.high, 1);
	i = bootstrap_median(v, 0);
	ck_assert_double_eq(i.low, 0);
	ck_assert_double_eq(i.high, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_bootstrap");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_test(t, an_interval_of_equal_values_is_that_value);
	tcase_add_test(t, an_interval_of_eleven_values_goes_from_the_third_to_the_ninth);
	tcase_add_test(t, one_wild_value_does_not_move_an_interval);
	tcase_add_test(t, an_even_number_of_values_has_the_middle_of_two);
	suite_add_tcase(s, t);
	return suite_main(s);
}
