/* SPDX-License-Identifier: MIT */
/*
 * What decides the offsets and the times of a load: the random stream, zipf, the open-loop schedule. Distributions are
 * compared with their exact weights, with fixed seeds, so the tests are repeatable.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "pace.h"
#include "rng.h"
#include "zipf.h"
#include "suite.h"

#define TIME_LIMIT_S 60
#define DRAWS 500000u           /* an assertion costs a message to the runner: count in the loops, assert after them */

START_TEST(uniform_numbers_hit_every_value_about_equally)
{
	enum { N = 1000 };
	unsigned *hits = calloc(N, sizeof(*hits)), off = 0;
	uint64_t state = rng_seed(1);
	double expect = (double)DRAWS / N;

	for (unsigned i = 0; i < DRAWS; i++)
		hits[rng_below(&state, N)]++;
	for (unsigned i = 0; i < N; i++)
		off += fabs(hits[i] - expect) > 6 * sqrt(expect);
	ck_assert_uint_eq(off, 0);
	free(hits);
}
END_TEST

START_TEST(seed_zero_gives_a_stream_too)
{
	uint64_t state = rng_seed(0);

	ck_assert_uint_ne(state, 0);
	ck_assert_uint_ne(rng_next(&state), rng_next(&state));
}
END_TEST

static const double thetas[] = { 0.5, 0.99, 1.0, 1.1, 2.5 };

START_TEST(zipf_ranks_have_the_weights_of_the_definition)
{
	enum { N = 1000 };
	double theta = thetas[_i], sum = 0;
	unsigned *hits = calloc(N + 1, sizeof(*hits)), off = 0, outside = 0;
	uint64_t state = rng_seed(5);
	struct zipf z;

	zipf_init(&z, N, theta, 1);
	for (unsigned i = 0; i < DRAWS; i++) {
		uint64_t k = zipf_rank(&z, &state);

		if (k >= 1 && k <= N)
			hits[k]++;
		else
			outside++;
	}
	ck_assert_uint_eq(outside, 0);
	for (unsigned k = 1; k <= N; k++)
		sum += pow(k, -theta);
	for (unsigned k = 1; k <= N; k++) {
		double expect = DRAWS * pow(k, -theta) / sum;

		off += fabs(hits[k] - expect) > 6 * sqrt(expect) + 1;
	}
	ck_assert_uint_eq(off, 0);
	free(hits);
}
END_TEST

START_TEST(zipf_scatters_each_rank_to_a_block_of_its_own)
{
	static const uint64_t sizes[] = { 1, 2, 3, 64, 1000, 4096, 99991 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t n = sizes[i];
		bool *seen = calloc(n, sizeof(*seen));
		unsigned twice = 0;
		struct zipf z;

		zipf_init(&z, n, 1.2, 77);
		for (uint64_t rank = 1; rank <= n; rank++) {
			uint64_t block = (uint64_t)(((unsigned __int128)rank * z.mul + z.add) % n);

			twice += seen[block];
			seen[block] = true;
		}
		ck_assert_uint_eq(twice, 0);
		free(seen);
	}
}
END_TEST

START_TEST(zipf_stays_inside_a_very_large_region)
{
	uint64_t n = UINT64_C(1) << 40, state = rng_seed(9);
	unsigned outside = 0;
	struct zipf z;

	zipf_init(&z, n, 1.1, 1);
	for (unsigned i = 0; i < 100000; i++)
		outside += zipf_next(&z, &state) >= n;
	ck_assert_uint_eq(outside, 0);
}
END_TEST

START_TEST(a_linear_schedule_has_equal_gaps)
{
	unsigned off = 0;
	struct pace p;

	pace_init(&p, 10000, false, 1);
	pace_begin(&p, 5000000);
	for (unsigned k = 1; k <= 10000; k++)
		off += pace_claim(&p) != 5000000 + UINT64_C(100000) * k;
	ck_assert_uint_eq(off, 0);
	ck_assert_uint_eq(pace_offered(&p, 5000000 + 1000000000), 10000);
	ck_assert_uint_eq(pace_offered(&p, 4999999), 0);
}
END_TEST

START_TEST(a_poisson_schedule_has_exponential_gaps_of_the_same_mean)
{
	enum { N = 500000 };
	double mean, variance, sum = 0, squares = 0;
	unsigned back = 0;
	uint64_t last = 0;
	struct pace p;

	pace_init(&p, 1000, true, 3);
	pace_begin(&p, 0);
	for (unsigned k = 0; k < N; k++) {
		uint64_t when = pace_claim(&p);
		double gap = (double)(when - last);

		back += when < last;
		sum += gap;
		squares += gap * gap;
		last = when;
	}
	mean = sum / N;
	variance = squares / N - mean * mean;
	ck_assert_uint_eq(back, 0);
	ck_assert_double_eq_tol(mean, 1e6, 1e4);
	ck_assert_double_eq_tol(sqrt(variance), 1e6, 2e4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_load");
	TCase *t = tcase_create("load");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_test(t, uniform_numbers_hit_every_value_about_equally);
	tcase_add_test(t, seed_zero_gives_a_stream_too);
	tcase_add_loop_test(t, zipf_ranks_have_the_weights_of_the_definition, 0,
			    (int)(sizeof(thetas) / sizeof(thetas[0])));
	tcase_add_test(t, zipf_scatters_each_rank_to_a_block_of_its_own);
	tcase_add_test(t, zipf_stays_inside_a_very_large_region);
	tcase_add_test(t, a_linear_schedule_has_equal_gaps);
	tcase_add_test(t, a_poisson_schedule_has_exponential_gaps_of_the_same_mean);
	suite_add_tcase(s, t);
	return suite_main(s);
}
