/* SPDX-License-Identifier: MIT */
/*
 * The command line of bench: values, fio's spellings, and that nothing is ever ignored: each bad line is refused with a
 * sentence that names the option.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opts.h"
#include "suite.h"

#define TIME_LIMIT_S 10
#define WORDS_MAX 32

static struct bench_opts o;
static char said[4096];

/* Splits at blanks; the strings live as long as the test. */
static int parse(const char *line)
{
	static char copy[1024];
	static char name[] = "bench";
	char *argv[WORDS_MAX] = { name };
	FILE *err;
	int argc = 1, rc;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok(copy, " "); w && argc < WORDS_MAX - 1; w = strtok(NULL, " "))
		argv[argc++] = w;
	memset(said, 0, sizeof(said));
	err = fmemopen(said, sizeof(said) - 1, "w");
	rc = opts_parse(&o, argc, argv, err);
	fclose(err);
	return rc;
}

START_TEST(defaults_read_at_random_from_the_page_cache)
{
	ck_assert_int_eq(parse("f"), 0);
	ck_assert_str_eq(o.filename, "f");
	ck_assert(o.reads && !o.writes && o.random && !o.direct && !o.allow_write);
	ck_assert_uint_eq(o.bs, 4096);
	ck_assert_uint_eq(o.iodepth, 32);
	ck_assert_uint_eq(o.numjobs, 1);
	ck_assert_int_eq(o.engine, ENGINE_MARTLET);
	ck_assert_uint_eq(o.runtime_ns, UINT64_C(10000000000));
}
END_TEST

START_TEST(fio_spellings_are_understood)
{
	ck_assert_int_eq(parse("--filename=f --readwrite=randrw --rwmixread=70 --bs=16K --iodepth=4 --numjobs=2 "
			       "--direct=1 --runtime=30 --ramp-time=2s --time_based --group_reporting --norandommap "
			       "--percentile_list=50:99.9 --ioengine=psync --output-format=json"), 0);
	ck_assert(o.reads && o.writes && o.random && o.direct);
	ck_assert_uint_eq(o.rwmixread, 70);
	ck_assert_uint_eq(o.bs, 16384);
	ck_assert_uint_eq(o.ramp_ns, UINT64_C(2000000000));
	ck_assert_uint_eq(o.percentiles_nr, 2);
	ck_assert_double_eq(o.percentile[1], 99.9);
	ck_assert_int_eq(o.engine, ENGINE_PSYNC);
	ck_assert_int_eq(o.format, OUTPUT_JSON);
}
END_TEST

START_TEST(a_bare_flag_does_not_swallow_the_next_word)
{
	ck_assert_int_eq(parse("--direct f"), 0);
	ck_assert(o.direct);
	ck_assert_str_eq(o.filename, "f");
	ck_assert_int_eq(parse("--compare f"), 0);
	ck_assert_uint_eq(o.compare_rounds, OPTS_COMPARE_ROUNDS);
	ck_assert_uint_eq(o.runtime_ns, UINT64_C(2000000000));
	ck_assert_int_eq(parse("--compare=9 --runtime=3 f"), 0);
	ck_assert_uint_eq(o.compare_rounds, 9);
	ck_assert_uint_eq(o.runtime_ns, UINT64_C(3000000000));
}
END_TEST

START_TEST(a_value_may_look_like_an_option)
{
	ck_assert_int_eq(parse("--name --odd f"), 0);
	ck_assert_str_eq(o.name, "--odd");
	ck_assert_int_eq(parse("-- --file"), 0);
	ck_assert_str_eq(o.filename, "--file");
}
END_TEST

START_TEST(colons_separate_targets_and_a_backslash_keeps_one)
{
	ck_assert_int_eq(parse("a:/dev/b:c\\:d\\\\:e\\f --file_service_type=roundrobin"), 0);
	ck_assert_uint_eq(o.targets_nr, 4);
	ck_assert_str_eq(opts_target(&o, 0), "a");
	ck_assert_str_eq(opts_target(&o, 1), "/dev/b");
	ck_assert_str_eq(opts_target(&o, 2), "c:d\\");
	ck_assert_str_eq(opts_target(&o, 3), "e\\f");
	ck_assert_int_eq(parse("--filename=a:b"), 0);
	ck_assert_uint_eq(o.targets_nr, 2);
}
END_TEST

START_TEST(counts_end_a_run_instead_of_time)
{
	ck_assert_int_eq(parse("f --number_ios=100"), 0);
	ck_assert_uint_eq(o.runtime_ns, 0);
	ck_assert_int_eq(parse("f --io_size=1m --runtime=5"), 0);
	ck_assert_uint_eq(o.runtime_ns, UINT64_C(5000000000));
	ck_assert_int_eq(parse("f --rw=write --verify=crc32c"), 0);
	ck_assert_uint_eq(o.runtime_ns, 0);
}
END_TEST

static const struct {
	const char *text;
	int rc;
	uint64_t bytes;
} sizes[] = {
	{ "4096", 0, 4096 }, { "4k", 0, 4096 }, { "4K", 0, 4096 }, { "4kib", 0, 4096 }, { "4kb", 0, 4096 },
	{ "1m", 0, 1u << 20 }, { "2g", 0, UINT64_C(2) << 30 }, { "1t", 0, UINT64_C(1) << 40 }, { "0x1000", 0, 4096 },
	{ "", -EINVAL, 0 }, { "k", -EINVAL, 0 }, { "-1", -EINVAL, 0 }, { "4q", -EINVAL, 0 }, { "4kk", -EINVAL, 0 },
	{ "99999999999t", -EINVAL, 0 }, { "1.5k", -EINVAL, 0 }, { " 4", -EINVAL, 0 },
};

START_TEST(sizes_are_read_exactly)
{
	uint64_t bytes = 77;

	ck_assert_int_eq(opts_size(sizes[_i].text, &bytes), sizes[_i].rc);
	ck_assert_uint_eq(bytes, sizes[_i].rc ? 77 : sizes[_i].bytes);
}
END_TEST

static const struct {
	const char *text;
	int rc;
	uint64_t ns;
} times[] = {
	{ "10", 0, UINT64_C(10000000000) }, { "10s", 0, UINT64_C(10000000000) }, { "500ms", 0, 500000000 },
	{ "20us", 0, 20000 }, { "7ns", 0, 7 }, { "0.5", 0, 500000000 }, { "2m", 0, UINT64_C(120000000000) },
	{ "x", -EINVAL, 0 }, { "5x", -EINVAL, 0 }, { "-5", -EINVAL, 0 }, { "1e300", -EINVAL, 0 }, { "", -EINVAL, 0 },
};

START_TEST(times_are_read_exactly)
{
	uint64_t ns = 77;

	ck_assert_int_eq(opts_time(times[_i].text, &ns), times[_i].rc);
	ck_assert_uint_eq(ns, times[_i].rc ? 77 : times[_i].ns);
}
END_TEST

static const struct {
	const char *line, *says;
} bad[] = {
	{ "", "say which file" },
	{ "f g", "name the targets once" },
	{ "f::g", "an empty name" },
	{ "f:", "an empty name" },
	{ "f:g --file_service_type=random", "in turn" },
	{ "f --uncached=1", "fio has this option" },
	{ "f --fixedbufs=2", "neither 0 nor 1" },
	{ "f --fixedbufs --engine=psync", "no ring" },
	{ "f --registerfiles=1 --engine=psync", "no ring" },
	{ "f --hipri", "--direct=1" },
	{ "f --hybrid", "--hipri=1" },
	{ "f --sqthread_poll_cpu=1", "needs --sqthread_poll=1" },
	{ "f --sqthread_idle=5", "needs --sqthread_poll=1" },
	{ "f --sqthread_poll_cpu=-1", "--sqthread_poll_cpu" },
	{ "f --cmd_type=scsi", "neither none nor nvme" },
	{ "f --cmd_type=nvme --create --size=1m", "not to a file" },
	{ "f --cmd_type=nvme --compare", "pread cannot" },
	{ "f --cmd_type=nvme --sqthread_poll", "choose" },
	{ "f --ladder --fixedbufs", "leave them out" },
	{ "f --ladder --direct=1", "leave them out" },
	{ "f --ladder --compare", "series of its own" },
	{ "f --ladder --repeat=3", "series of its own" },
	{ "f --ladder --verify=crc32c", "series of its own" },
	{ "f --ladder --engine=psync", "no ring" },
	{ "f --ladder=0", "--ladder" },
	{ "f --ladder --write_lat_log=l", "--write_lat_log: logs are of one run" },
	{ "f --ladder --write_bw_log=l", "--write_bw_log: logs are of one run" },
	{ "f --ladder --hdr_log=x", "of one rung" },
	{ "f --nonvectored=0", "never vectored" },
	{ "f --fsync=1", "fio has this option" },
	{ "f --rate_min=5", "fio has this option" },
	{ "f --nosuch=1", "no such option" },
	{ "f --iodept=4", "no such option" },
	{ "f -d4", "two dashes" },
	{ "f --iodepth", "value is missing" },
	{ "f --iodepth=0", "--iodepth" },
	{ "f --iodepth=4x", "--iodepth" },
	{ "f --iodepth=99999", "from 1 to 4096" },
	{ "f --rw=readrand", "--rw" },
	{ "f --bs=0", "--bs" },
	{ "f --direct=2", "neither 0 nor 1" },
	{ "f --norandommap=0", "independently" },
	{ "f --invalidate=1", "never dropped" },
	{ "f --time_based=0", "time based" },
	{ "f --thread=0", "always threads" },
	{ "f --random_distribution=pareto:1", "zipf" },
	{ "f --random_distribution=zipf:0", "theta" },
	{ "f --rw=read --random_distribution=zipf:1.1", "sequential" },
	{ "f --rate_process=poisson", "needs --rate_iops" },
	{ "f --rate_iops=100,200", "--rate_iops" },
	{ "f --verify=md5", "--verify" },
	{ "f --verify=crc32c --compare", "two runs" },
	{ "f --verify=crc32c --bs=32", "64 bytes" },
	{ "f --verify_pattern=abc", "0x" },
	{ "f --engine=libaio", "none of martlet, raw, psync" },
	{ "f --compare=0", "--compare" },
	{ "f --repeat=3 --compare", "already runs each engine 5 times" },
	{ "f --repeat=3 --verify=crc32c", "two runs" },
	{ "f --repeat=0", "--repeat" },
	{ "f --compare --hdr_log=x", "one engine" },
	{ "--merge", "which results" },
	{ "--merge=a.json b.json", "neither parallel nor serial" },
	{ "--merge a.json --iodepth=3", "runs nothing" },
	{ "f --repeat=2 --write_iops_log=x", "--write_iops_log: logs are of one run" },
	{ "f --compare --write_lat_log", "one run" },
	{ "f --log_avg_msec=1", "from 10" },
	{ "f --log_mem=1", "4k" },
	{ "f --cpus_allowed=3-1", "no list of CPUs" },
	{ "f --cpus_allowed=0,", "no list of CPUs" },
	{ "f --output-format=terse", "--output_format" },
	{ "f --percentile_list=50:101", "--percentile_list" },
	{ "f --readonly --rw=write", "writes" },
	{ "f --create", "--size" },
	{ "f --keep", "--create" },
	{ "f --size=101%", "1% to 100%" },
	{ "f --runtime=0", "measures nothing" },
	{ "f --io_size=1k", "less than one block" },
	{ "f --help=1", "takes no value" },
};

START_TEST(every_bad_line_is_refused_with_a_sentence)
{
	ck_assert_int_eq(parse(bad[_i].line), -EINVAL);
	ck_assert_msg(strstr(said, bad[_i].says), "'%s' said: %s", bad[_i].line, said);
	ck_assert_msg(strchr(said, '\n') == said + strlen(said) - 1, "one line, not: %s", said);
}
END_TEST

START_TEST(the_fast_path_has_fio_s_names)
{
	ck_assert_int_eq(parse("f"), 0);
	ck_assert(!o.fast.fixedbufs && !o.fast.registerfiles && !o.fast.hipri && !o.fast.sqpoll && !o.fast.nvme);
	ck_assert_int_eq(o.fast.sqpoll_cpu, -1);
	ck_assert_int_eq(parse("f --fixedbufs=1 --registerfiles --nonvectored=1 --direct=1 --hipri=1 --hybrid=1 "
			       "--sqthread_poll=1 --sqthread_poll_cpu=0 --sqthread_idle=20 --cmd_type=none"), 0);
	ck_assert(o.fast.fixedbufs && o.fast.registerfiles && o.fast.hipri && o.fast.hybrid && o.fast.sqpoll);
	ck_assert(!o.fast.nvme);
	ck_assert_int_eq(o.fast.sqpoll_cpu, 0);
	ck_assert_uint_eq(o.fast.sqpoll_idle_ms, 20);
	ck_assert_int_eq(parse("f --cmd_type=nvme --hipri"), 0);
	ck_assert(o.fast.nvme && o.direct);
	ck_assert_int_eq(parse("--ladder f"), 0);
	ck_assert_uint_eq(o.ladder_rounds, OPTS_LADDER_ROUNDS);
	ck_assert_uint_eq(o.runtime_ns, UINT64_C(2000000000));
	ck_assert_int_eq(parse("--ladder=7 --hybrid f"), 0);
	ck_assert_uint_eq(o.ladder_rounds, 7);
}
END_TEST

START_TEST(a_pattern_is_bytes_in_hex)
{
	ck_assert_int_eq(parse("f --verify_pattern=0xDEad01"), 0);
	ck_assert_int_eq(o.verify, VERIFY_PATTERN);
	ck_assert_uint_eq(o.pattern_nr, 3);
	ck_assert_uint_eq(o.pattern[0], 0xde);
	ck_assert_uint_eq(o.pattern[2], 0x01);
}
END_TEST

#define NR(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("bench_opts");
	TCase *t = tcase_create("opts");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_test(t, defaults_read_at_random_from_the_page_cache);
	tcase_add_test(t, fio_spellings_are_understood);
	tcase_add_test(t, a_bare_flag_does_not_swallow_the_next_word);
	tcase_add_test(t, a_value_may_look_like_an_option);
	tcase_add_test(t, colons_separate_targets_and_a_backslash_keeps_one);
	tcase_add_test(t, counts_end_a_run_instead_of_time);
	tcase_add_loop_test(t, sizes_are_read_exactly, 0, NR(sizes));
	tcase_add_loop_test(t, times_are_read_exactly, 0, NR(times));
	tcase_add_loop_test(t, every_bad_line_is_refused_with_a_sentence, 0, NR(bad));
	tcase_add_test(t, the_fast_path_has_fio_s_names);
	tcase_add_test(t, a_pattern_is_bytes_in_hex);
	suite_add_tcase(s, t);
	return suite_main(s);
}
