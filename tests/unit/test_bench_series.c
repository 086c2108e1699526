/* SPDX-License-Identifier: MIT */
/*
 * A series: variants run in turn, round by round; medians, spreads and neighbours' ratios are those of the definition;
 * a round that was cut short does not count; what makes figures doubtful is said. The engine is one of the test's own,
 * which does no I/O. Not proven here: that a quiet machine gives small spreads.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "series.h"
#include "target.h"
#include "suite.h"

#define TIME_LIMIT_S 30
#define ROUNDS 3u

static struct bench_opts o;
static struct target file;
static struct targets targets;
static struct series s;
static atomic_int stop;
static char order[64];

/* --- an engine that only says that it ran --- */

static unsigned one_lane(const struct bench_opts *opts)
{
	(void)opts;
	return 1;
}

static int note_start(struct run *r)
{
	size_t n = strlen(order);

	/* variants of the test differ by their depth */
	snprintf(order + n, sizeof(order) - n, "%u ", r->o->iodepth);
	r->running = 1;
	return r->o->iodepth == 13 ? -EIO : 0;
}

static void end_at_once(struct run *r)
{
	run_ended(r, 1);
}

static void finish(struct run *r)
{
	(void)r;
}

static const struct engine fake = { .name = "fake", .lanes_nr = one_lane, .start = note_start, .go = end_at_once, .finish = finish };

static void set_up(void)
{
	char name[] = "/tmp/martlet-series.XXXXXX";

	file.fd = mkstemp(name);
	ck_assert_int_ge(file.fd, 0);
	ck_assert_int_eq(unlink(name), 0);
	file.open_flags = O_RDONLY;
	file.len = 1 << 20;
	targets = (struct targets){ &file, 1, file.len };
	o = (struct bench_opts){ .reads = true, .random = true, .bs = 4096, .iodepth = 1, .numjobs = 1, .group = true,
				 .runtime_ns = 1000000, .slat_sample = 17, .targets_nr = 1 };
}

static void tear_down(void)
{
	series_fini(&s);
	close(file.fd);
}

static void count_each(const struct result *r, void *ctx)
{
	unsigned *n = ctx;

	++*n;
	ck_assert_uint_eq(r->round, (*n + 1) / 2);
	/* one two, two one, one two */
	ck_assert_str_eq(r->variant, *n % 2 == r->round % 2 ? "one" : "two");
	/* as Ctrl-C does in the middle of the last round */
	if (*n == 5 && o.iodepth == 7)
		atomic_store(&stop, 1);
}

START_TEST(variants_run_in_turn_and_every_second_round_the_other_way)
{
	struct bench_opts deep = o;
	struct series_variant v[2] = { { "one", &o, &targets, &fake }, { "two", &deep, &targets, &fake } };
	struct series_env env = { .stop = &stop, .each = count_each };
	unsigned n = 0;

	env.ctx = &n;
	deep.iodepth = 2;
	ck_assert_int_eq(series_init(&s, v, 2, ROUNDS), 0);
	ck_assert_int_eq(series_run(&s, &env), 0);
	ck_assert_str_eq(order, "1 2 2 1 1 2 ");
	ck_assert_uint_eq(n, 6);
	series_summarise(&s);
	ck_assert_uint_eq(s.rounds, ROUNDS);
	for (unsigned round = 0; round < ROUNDS; round++) {
		ck_assert_str_eq(series_at(&s, round, 0)->variant, "one");
		ck_assert_str_eq(series_at(&s, round, 1)->variant, "two");
	}
}
END_TEST

START_TEST(a_stop_ends_the_series_and_its_round_does_not_count)
{
	struct bench_opts deep = o;
	struct series_variant v[2] = { { "one", &o, &targets, &fake }, { "two", &deep, &targets, &fake } };
	struct series_env env = { .stop = &stop, .each = count_each };
	unsigned n = 0;

	env.ctx = &n;
	o.iodepth = 7;
	ck_assert_int_eq(series_init(&s, v, 2, ROUNDS), 0);
	ck_assert_int_eq(series_run(&s, &env), 0);
	ck_assert_uint_eq(s.results_nr, 5);
	series_summarise(&s);
	ck_assert_uint_eq(s.rounds, 2);
}
END_TEST

START_TEST(a_variant_that_cannot_run_ends_the_series)
{
	struct series_variant v = { NULL, &o, &targets, &fake };
	struct series_env env = { .stop = &stop };

	o.iodepth = 13;
	ck_assert_int_eq(series_init(&s, &v, 1, ROUNDS), 0);
	ck_assert_int_eq(series_run(&s, &env), -EIO);
	ck_assert_uint_eq(s.results_nr, 0);
}
END_TEST

/* --- figures --- */

static const struct series_variant two[2] = { { .name = "one" }, { .name = "two" } };

/* Results as if they had been run: [round][variant] I/Os in one second, and CPU per I/O. */
static void pretend(unsigned rounds, const uint64_t ios[][2])
{
	ck_assert_int_eq(series_init(&s, two, 2, rounds), 0);
	for (unsigned i = 0; i < 2 * rounds; i++) {
		struct result *r = &s.results[s.results_nr++];
		unsigned variant = series_turn(&s, i / 2, i % 2);

		r->runtime_ns = CLOCK_NS_PER_SEC;
		for (unsigned d = 0; d < DIRS_NR; d++)
			hist_init(&r->dir[d].lat);
		r->dir[DIR_READ].ios = ios[i / 2][variant];
		r->cpu_us_per_io = 2 + variant;
	}
}

START_TEST(medians_and_spreads)
{
	double odd[] = { 3, 1, 2 }, even[] = { 4, 1, 3, 2 };
	struct spread spread = spread_of(odd, 3);

	ck_assert_double_eq(spread.median, 2);
	ck_assert_double_eq(spread.min, 1);
	ck_assert_double_eq(spread.max, 3);
	ck_assert_double_eq(spread_pct(&spread), 100);
	ck_assert_double_eq(spread_of(even, 4).median, 2.5);
	spread = spread_of(even, 0);
	ck_assert_double_eq(spread.median, 0);
	ck_assert_double_eq(spread_pct(&spread), 0);
}
END_TEST

START_TEST(ratios_are_those_of_neighbours)
{
	static const uint64_t ios[][2] = { { 100, 50 }, { 300, 100 }, { 200, 50 } };
	struct ratio ratio;

	pretend(3, ios);
	series_summarise(&s);
	ratio = series_ratio(&s, 0, 1, result_iops_all);
	ck_assert_double_eq(ratio.spread.median, 3);
	ck_assert_double_eq(ratio.spread.min, 2);
	ck_assert_double_eq(ratio.spread.max, 4);
	/* three values: each end of the interval is one that was measured */
	ck_assert_double_eq(ratio.ci.low, 2);
	ck_assert_double_eq(ratio.ci.high, 4);
	ck_assert_double_eq(s.summary[0].iops.median, 200);
	ck_assert_double_eq(s.summary[1].cpu_us.median, 3);
	/* a variant without a figure gives no ratio, not a division by it */
	for (unsigned i = 0; i < 3; i++)
		s.results[2 * i + series_turn(&s, i, 1)].dir[DIR_READ].ios = 0;
	ck_assert_double_eq(series_ratio(&s, 0, 1, result_iops_all).spread.median, 0);
}
END_TEST

static bool is_warned(const char *words)
{
	for (unsigned i = 0; i < s.warnings_nr; i++) {
		if (strstr(s.warning[i], words))
			return true;
	}
	return false;
}

START_TEST(doubtful_figures_are_warned_of)
{
	static const uint64_t ios[][2] = { { 1000, 1000 }, { 1050, 1110 }, { 1040, 1000 } };

	pretend(3, ios);
	series_summarise(&s);
	ck_assert_uint_eq(s.warnings_nr, 1);
	ck_assert(is_warned("two: IOPS of the 3 runs are 11 % apart"));
	s.results[3].steal_cpus = 0.2;
	s.results[4].other_cpus = 0.7;
	s.results[1].throttled_ms = 40;
	s.results[2].throttled_ms = 2;
	s.results[2].hot_throttles = 5;
	series_summarise(&s);
	ck_assert(is_warned("hypervisor took 0.20"));
	ck_assert(is_warned("others used 0.70"));
	ck_assert(is_warned("stopped the runs for 42 ms"));
	ck_assert(is_warned("heat 5 times"));
	ck_assert_uint_eq(s.warnings_nr, 5);
}
END_TEST

START_TEST(an_interrupted_last_round_is_left_out)
{
	static const uint64_t ios[][2] = { { 100, 50 }, { 300, 100 }, { 2, 1 } };

	pretend(3, ios);
	s.results[5].interrupted = true;
	series_summarise(&s);
	ck_assert_uint_eq(s.rounds, 2);
	ck_assert_double_eq(s.summary[0].iops.median, 200);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bench_series");
	TCase *t = tcase_create("series");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, variants_run_in_turn_and_every_second_round_the_other_way);
	tcase_add_test(t, a_stop_ends_the_series_and_its_round_does_not_count);
	tcase_add_test(t, a_variant_that_cannot_run_ends_the_series);
	tcase_add_test(t, medians_and_spreads);
	tcase_add_test(t, ratios_are_those_of_neighbours);
	tcase_add_test(t, doubtful_figures_are_warned_of);
	tcase_add_test(t, an_interrupted_last_round_is_left_out);
	suite_add_tcase(suite, t);
	return suite_main(suite);
}
