/* SPDX-License-Identifier: MIT */
/*
 * Merging results: the histogram that comes out equals, byte for byte, one that had been given all the samples, through
 * the JSON files and back; counts add up, times by how the results ran; what cannot be merged is refused. And the file
 * of percentiles that HdrHistogram's readers take.
 */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hgrm.h"
#include "json.h"
#include "merge.h"
#include "rng.h"
#include "target.h"
#include "suite.h"

#define TIME_LIMIT_S 30

static char folder[] = "/tmp/martlet-merge.XXXXXX";
static char paths[3][64], *inputs[3] = { paths[0], paths[1], paths[2] };
static char said[2048];
static struct bench_opts o;
static struct result results[3], both;
static struct merged m;
static const struct targets none;

static void set_up(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	for (unsigned i = 0; i < 3; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%u", folder, i);
	memset(&o, 0, sizeof(o));
	o.name = "bench";
	o.rw = "randread";
	o.bs = 4096;
	o.format = OUTPUT_JSON_PLUS;
	o.percentile[0] = 99.9;
	o.percentiles_nr = 1;
	o.inputs = inputs;
	o.merge = MERGE_PARALLEL;
	result_init(&both, "both");
	for (unsigned i = 0; i < 3; i++) {
		result_init(&results[i], "raw");
		results[i].runtime_ns = (i + 1) * CLOCK_NS_PER_SEC;
	}
}

static void tear_down(void)
{
	char line[128];

	merge_fini(&m);
	snprintf(line, sizeof(line), "rm -rf %s", folder);
	ck_assert_int_eq(system(line), 0);
}

/* Samples into a result, and into the one that gets all of them. */
static void add_samples(struct result *r, unsigned dir, unsigned nr, uint64_t seed)
{
	uint64_t state = rng_seed(seed);

	for (unsigned i = 0; i < nr; i++) {
		uint64_t ns = 300 + (uint64_t)(-log(rng_unit(&state)) * 50000 * (double)seed);

		hist_record(&r->dir[dir].lat, ns);
		hist_record(&both.dir[dir].lat, ns);
		hist_record(&r->dir[dir].slat, ns % 1000);
		hist_record(&both.dir[dir].slat, ns % 1000);
	}
	r->dir[dir].ios += nr;
	r->dir[dir].bytes += nr * o.bs;
	r->cpu_us_per_io = (double)seed;
}

/* Results [from, end) as one file. */
static void save(unsigned file, unsigned from, unsigned end)
{
	struct json_in in = { .o = &o, .targets = &none, .results = results + from, .results_nr = end - from };
	FILE *f = fopen(paths[file], "w");

	ck_assert_int_eq(json_write(f, &in), 0);
	fclose(f);
	o.inputs_nr = file + 1;
}

static int merge(void)
{
	FILE *err = fmemopen(said, sizeof(said), "w");
	int rc = merge_read(&m, &o, err);

	fclose(err);
	return rc;
}

START_TEST(merged_percentiles_are_exactly_those_of_all_samples)
{
	add_samples(&results[0], DIR_READ, 40000, 1);
	add_samples(&results[1], DIR_READ, 7, 9);
	add_samples(&results[1], DIR_WRITE, 3000, 4);
	add_samples(&results[2], DIR_READ, 20000, 3);
	for (unsigned i = 0; i < 3; i++)
		save(i, i, i + 1);
	ck_assert_msg(merge() == 0, "%s", said);
	for (unsigned d = 0; d < DIRS_NR; d++) {
		ck_assert_int_eq(memcmp(&m.r.dir[d].lat, &both.dir[d].lat, sizeof(struct hist)), 0);
		ck_assert_int_eq(memcmp(&m.r.dir[d].slat, &both.dir[d].slat, sizeof(struct hist)), 0);
	}
	ck_assert_uint_eq(m.r.dir[DIR_READ].ios, 60007);
	ck_assert_uint_eq(m.r.dir[DIR_WRITE].bytes, 3000 * 4096);
	for (double p = 0; p <= 100; p += 0.5)
		ck_assert_uint_eq(hist_percentile(&m.r.dir[DIR_READ].lat, p), hist_percentile(&both.dir[DIR_READ].lat, p));
	/* by their I/Os: (40000 * 1 + 3007 * 4 + 20000 * 3) / 63007 */
	ck_assert_double_eq_tol(m.r.cpu_us_per_io, (40000 + 3007 * 4 + 60000) / 63007.0, 1e-6);
}
END_TEST

START_TEST(a_merged_result_can_be_merged_again)
{
	struct json_in in = { .o = &o, .results = &m.r, .results_nr = 1, .merged = &m };
	FILE *f;

	for (unsigned i = 0; i < 3; i++) {
		add_samples(&results[i], DIR_READ, 1000 * (i + 1), i + 1);
		save(i, i, i + 1);
	}
	o.inputs_nr = 2;
	ck_assert_int_eq(merge(), 0);
	f = fopen(paths[0], "w");
	ck_assert_int_eq(json_write(f, &in), 0);
	fclose(f);
	merge_fini(&m);
	paths[1][strlen(paths[1]) - 1] = '2';
	ck_assert_msg(merge() == 0, "%s", said);
	ck_assert_int_eq(memcmp(&m.r.dir[DIR_READ].lat, &both.dir[DIR_READ].lat, sizeof(struct hist)), 0);
	ck_assert_uint_eq(o.bs, 4096);
}
END_TEST

START_TEST(times_are_the_longest_or_add_up)
{
	for (unsigned i = 0; i < 3; i++) {
		add_samples(&results[i], DIR_READ, 10, 1);
		save(i, i, i + 1);
	}
	ck_assert_int_eq(merge(), 0);
	ck_assert_uint_eq(m.r.runtime_ns, 3 * CLOCK_NS_PER_SEC);
	ck_assert_uint_eq(m.warnings_nr, 1);
	ck_assert_ptr_nonnull(strstr(m.warning[0], "run times differ (1.000 to 3.000 s)"));
	merge_fini(&m);
	o.merge = MERGE_SERIAL;
	ck_assert_int_eq(merge(), 0);
	ck_assert_uint_eq(m.r.runtime_ns, 6 * CLOCK_NS_PER_SEC);
	ck_assert_double_eq(result_iops(&m.r, DIR_READ), 5);
	ck_assert_uint_eq(m.warnings_nr, 0);
}
END_TEST

START_TEST(rounds_of_one_file_came_one_after_the_other_and_jobs_side_by_side)
{
	for (unsigned i = 0; i < 3; i++) {
		add_samples(&results[i], DIR_READ, 10, 1);
		result_set_round(&results[i], NULL, i + 1);
	}
	save(0, 0, 3);
	ck_assert_int_eq(merge(), 0);
	ck_assert_uint_eq(m.inputs[0].runtime_ns, 6 * CLOCK_NS_PER_SEC);
	merge_fini(&m);
	for (unsigned i = 0; i < 3; i++)
		result_set_round(&results[i], NULL, 0);
	results[2].read_back = true;    /* the pass that checks is not part of the load */
	save(0, 0, 3);
	ck_assert_int_eq(merge(), 0);
	ck_assert_uint_eq(m.inputs[0].runtime_ns, 2 * CLOCK_NS_PER_SEC);
	ck_assert_uint_eq(m.r.dir[DIR_READ].ios, 20);
}
END_TEST

START_TEST(failures_add_up_by_errno_and_other_loads_are_told)
{
	for (unsigned i = 0; i < 2; i++) {
		add_samples(&results[i], DIR_READ, 10, 1);
		results[i].runtime_ns = CLOCK_NS_PER_SEC;
		results[i].errnos[EIO] = i + 1;
		results[i].dir[DIR_READ].failed = i + 1;
		o.iodepth = i + 7;
		save(i, i, i + 1);
	}
	ck_assert_int_eq(merge(), 0);
	ck_assert_uint_eq(m.r.errnos[EIO], 3);
	ck_assert_uint_eq(result_failed(&m.r), 3);
	ck_assert_uint_eq(m.warnings_nr, 1);
	ck_assert_ptr_nonnull(strstr(m.warning[0], "not of the same load"));
}
END_TEST

/* --- refusals --- */

static void write_text(const char *text)
{
	FILE *f = fopen(paths[0], "w");

	fputs(text, f);
	fclose(f);
	o.inputs_nr = 1;
}

#define DOCUMENT(lat) "{\"martlet\":{\"schema_version\":1,\"work\":{\"bs\":4096}},\"jobs\":[{\"read\":{\"lat_ns\":{" lat "}}}]}"

static const struct {
	const char *text, *says;
} bad[] = {
	{ "", "no JSON" },
	{ "{", "no JSON" },
	{ "[]", "no result of martlet bench" },
	{ "{\"fio version\":\"fio-3.33\",\"jobs\":[]}", "no result of martlet bench" },
	{ "{\"martlet\":{\"schema_version\":2,\"work\":{}},\"jobs\":[]}", "no result of martlet bench" },
	{ "{\"martlet\":{\"schema_version\":1,\"work\":{},\"compare\":{}},\"jobs\":[]}", "a comparison" },
	{ "{\"martlet\":{\"schema_version\":1,\"work\":{},\"ladder\":{}},\"jobs\":[]}", "a ladder" },
	{ DOCUMENT("\"N\":3"), "json+" },
	{ DOCUMENT("\"N\":3,\"sum\":9,\"bins\":{\"3\":2}"), "holds 2 samples, not 3" },
	{ DOCUMENT("\"N\":1,\"sum\":9,\"bins\":{\"257\":1}"), "other buckets" },
	{ DOCUMENT("\"N\":1,\"sum\":9,\"bins\":{\"3x\":1}"), "other buckets" },
};

START_TEST(what_cannot_be_merged_is_refused)
{
	write_text(bad[_i].text);
	ck_assert_int_eq(merge(), -EINVAL);
	ck_assert_msg(strstr(said, bad[_i].says) && strstr(said, paths[0]), "%s", said);
	ck_assert_msg(strchr(said, '\n') == said + strlen(said) - 1, "one line, not: %s", said);
}
END_TEST

START_TEST(a_document_with_the_right_histogram_is_taken)
{
	write_text(DOCUMENT("\"N\":1,\"sum\":256,\"min\":256,\"max\":257,\"bins\":{\"256\":1}"));
	ck_assert_msg(merge() == 0, "%s", said);
	ck_assert_uint_eq(hist_count(&m.r.dir[DIR_READ].lat), 1);
}
END_TEST

/* --- the file of percentiles --- */

static char text[65536];

static void draw(const struct hist *h)
{
	FILE *f = fmemopen(text, sizeof(text), "w");

	ck_assert_int_eq(hgrm_write(f, h), 0);
	fclose(f);
}

START_TEST(the_distribution_has_hdrhistogram_s_form)
{
	static struct hist h;

	hist_init(&h);
	for (unsigned i = 1; i <= 4; i++)
		hist_record(&h, i * 10);
	draw(&h);
	/* five steps to each halving of what remains, until all have been seen */
	ck_assert_str_eq(text,
		"       Value     Percentile TotalCount 1/(1-Percentile)\n\n"
		"       0.010 0.000000000000          1           1.00\n"
		"       0.010 0.100000000000          1           1.11\n"
		"       0.010 0.200000000000          1           1.25\n"
		"       0.020 0.300000000000          2           1.43\n"
		"       0.020 0.400000000000          2           1.67\n"
		"       0.020 0.500000000000          2           2.00\n"
		"       0.030 0.550000000000          3           2.22\n"
		"       0.030 0.600000000000          3           2.50\n"
		"       0.030 0.650000000000          3           2.86\n"
		"       0.030 0.700000000000          3           3.33\n"
		"       0.030 0.750000000000          3           4.00\n"
		"       0.040 0.775000000000          4           4.44\n"
		"       0.040 1.000000000000          4\n"
		"#[Mean    =        0.025, StdDeviation   =        0.011]\n"
		"#[Max     =        0.040, Total count    =            4]\n"
		"#[Buckets =           36, SubBuckets     =          128]\n");
}
END_TEST

START_TEST(the_distribution_rises_to_the_maximum)
{
	static struct hist h;
	uint64_t state = rng_seed(2), count = 0, last_count = 0, lines = 0;
	double value, p, last = 0, last_p = -1;
	unsigned falls = 0;

	hist_init(&h);
	for (unsigned i = 0; i < 200000; i++)
		hist_record(&h, 1000 + (uint64_t)(-log(rng_unit(&state)) * 1e6));
	draw(&h);
	for (char *line = strchr(text, '\n') + 2; *line != '#'; line = strchr(line, '\n') + 1) {
		ck_assert_int_eq(sscanf(line, "%lf %lf %lu", &value, &p, &count), 3);
		falls += value < last || p <= last_p || count < last_count || (double)count / 200000 < p - 1e-9;
		last = value;
		last_p = p;
		last_count = count;
		lines++;
	}
	ck_assert_uint_eq(falls, 0);
	ck_assert_uint_gt(lines, 50);
	ck_assert_uint_eq(count, 200000);
	ck_assert_double_eq_tol(value, (double)h.max / 1e3, 0.001);
}
END_TEST

START_TEST(an_empty_distribution_has_a_foot)
{
	static struct hist h;

	hist_init(&h);
	draw(&h);
	ck_assert_ptr_nonnull(strstr(text, "Total count    =            0]"));
}
END_TEST

#define NR(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("bench_merge");
	TCase *t = tcase_create("merge");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, merged_percentiles_are_exactly_those_of_all_samples);
	tcase_add_test(t, a_merged_result_can_be_merged_again);
	tcase_add_test(t, times_are_the_longest_or_add_up);
	tcase_add_test(t, rounds_of_one_file_came_one_after_the_other_and_jobs_side_by_side);
	tcase_add_test(t, failures_add_up_by_errno_and_other_loads_are_told);
	tcase_add_loop_test(t, what_cannot_be_merged_is_refused, 0, NR(bad));
	tcase_add_test(t, a_document_with_the_right_histogram_is_taken);
	tcase_add_test(t, the_distribution_has_hdrhistogram_s_form);
	tcase_add_test(t, the_distribution_rises_to_the_maximum);
	tcase_add_test(t, an_empty_distribution_has_a_foot);
	suite_add_tcase(s, t);
	return suite_main(s);
}
