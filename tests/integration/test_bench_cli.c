/* SPDX-License-Identifier: MIT */
/*
 * The command `martlet bench` as its users run it: exit codes, one JSON document on standard output, exact counts, data
 * checks that find a corrupted byte, refusals that leave the target untouched, nothing left behind. Speed is not judged:
 * runs end by a count where it does not matter when, so that a machine that is away for a while does not leave them empty,
 * and what a rate comes to is tried again until the machine was there (once_in_time()).
 *
 * Device tests need root and a loop device and are left out, with a line that says so, where there is none.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "suite.h"

#define TIME_LIMIT_S 60
#define IN_TIME_S 30            /* once_in_time() gives up */
#define OUT_BYTES_MAX (4u << 20)

static const char *const engines[] = { "martlet", "raw", "psync" };
#define ENGINES_NR 3

static char folder[512], command_path[1024];
static char loop[64];           /* loop device that is attached, or "" */
static char out[OUT_BYTES_MAX], err[OUT_BYTES_MAX];
static struct json_object *doc;

/* --- running it --- */

/* @return false: there is no such file */
static bool try_slurp(const char *name, char *buf)
{
	char path[700];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(buf, 1, OUT_BYTES_MAX - 1, f);
	buf[n] = '\0';
	fclose(f);
	return true;
}

static void slurp(const char *name, char *buf)
{
	ck_assert_msg(try_slurp(name, buf), "%s: %s", name, strerror(errno));
}

static int exit_code_of(int status)
{
	ck_assert_msg(WIFEXITED(status), "ended by signal %d: %s", WTERMSIG(status), err);
	return WEXITSTATUS(status);
}

/* Run `martlet ARGS` in the test's folder; its output goes to out and err. */
__attribute__((format(printf, 1, 2)))
static int run(const char *fmt, ...)
{
	char args[2048], line[4096];
	va_list ap;
	int status;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	snprintf(line, sizeof(line), "cd %s && exec %s %s >.out 2>.err </dev/null", folder, command_path, args);
	status = system(line);
	slurp(".out", out);
	slurp(".err", err);
	return exit_code_of(status);
}

/* The whole of standard output must be one document. */
static void parse_json(void)
{
	struct json_tokener *tok = json_tokener_new();
	const char *end;

	if (doc)
		json_object_put(doc);
	doc = json_tokener_parse_ex(tok, out, (int)strlen(out) + 1);
	ck_assert_msg(doc != NULL, "no JSON: %s\n%s", out, err);
	end = out + json_tokener_get_parse_end(tok);
	ck_assert_msg(strspn(end, "\n") == strlen(end), "after the document: %s", end);
	json_tokener_free(tok);
}

/* "jobs/0/read/lat_ns/N" */
static struct json_object *at(const char *path)
{
	struct json_object *o = doc;
	char copy[256];

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *w = strtok(copy, "/"); w; w = strtok(NULL, "/")) {
		struct json_object *next = NULL;

		if (json_object_is_type(o, json_type_array))
			next = json_object_array_get_idx(o, (size_t)atoi(w));
		else
			json_object_object_get_ex(o, w, &next);
		ck_assert_msg(next != NULL, "no %s (at %s) in %s", path, w, out);
		o = next;
	}
	return o;
}

static double num(const char *path)
{
	return json_object_get_double(at(path));
}

static const char *text(const char *path)
{
	return json_object_get_string(at(path));
}

/* Entries of the folder but for our own two files. */
static unsigned files_left(void)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/*
 * What follows runs until it breaks out of the loop, having found that the machine kept pace; fails if that takes too long.
 * For what is right only then, and is never right by accident.
 */
#define once_in_time() for (time_t tries_end = time(NULL) + IN_TIME_S; is_not_over(tries_end);)

static bool is_not_over(time_t end)
{
	ck_assert_msg(time(NULL) <= end, "the machine did not keep pace in %d s", IN_TIME_S);
	return true;
}

static void set_up(void)
{
	snprintf(folder, sizeof(folder), "%s/bench-cli.XXXXXX", MRT_TEST_BUILD_DIR);
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void detach_loop(void)
{
	char line[128];

	snprintf(line, sizeof(line), "losetup -d %s", loop);
	loop[0] = '\0';
	ck_assert_int_eq(system(line), 0);
}

static void tear_down(void)
{
	char line[1500];

	if (doc)
		json_object_put(doc);
	doc = NULL;
	if (loop[0]) {          /* a test failed half-way */
		snprintf(line, sizeof(line), "%s/m", folder);
		(void)umount(line);
		detach_loop();
	}
	snprintf(line, sizeof(line), "rm -rf %s", folder);
	ck_assert_int_eq(system(line), 0);
}

static void flip_byte(const char *name, off_t offset)
{
	char path[700];
	unsigned char c;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &c, 1, offset), 1);
	c ^= 1;
	ck_assert_int_eq(pwrite(fd, &c, 1, offset), 1);
	close(fd);
}

/* --- results --- */

START_TEST(json_has_fio_s_fields_and_they_agree)
{
	const char *e = engines[_i];

	ck_assert_int_eq(run("bench f --create --size=8m --runtime=1 --ramp_time=0.1 --engine=%s --output-format=json", e), 0);
	parse_json();
	ck_assert(strncmp(text("martlet version"), "martlet-", 8) == 0);
	ck_assert_str_eq(text("jobs/0/jobname"), "bench");
	ck_assert_double_gt(num("jobs/0/read/iops"), 0);
	ck_assert_double_eq(num("jobs/0/read/io_bytes"), num("jobs/0/read/total_ios") * 4096);
	ck_assert_double_eq(num("jobs/0/read/lat_ns/N"), num("jobs/0/read/total_ios"));
	ck_assert_double_le(num("jobs/0/read/lat_ns/min"), num("jobs/0/read/lat_ns/percentile/50.000000"));
	ck_assert_double_le(num("jobs/0/read/lat_ns/percentile/50.000000"),
			    num("jobs/0/read/lat_ns/percentile/99.990000"));
	ck_assert_double_le(num("jobs/0/read/lat_ns/percentile/99.990000"), num("jobs/0/read/lat_ns/max"));
	ck_assert_double_gt(num("jobs/0/read/lat_ns/min"), 0);
	ck_assert_double_eq(num("jobs/0/write/total_ios"), 0);
	ck_assert_double_gt(num("jobs/0/usr_cpu") + num("jobs/0/sys_cpu"), 0);
	ck_assert_double_ge(num("jobs/0/read/runtime"), 990);
	ck_assert_str_eq(text("jobs/0/martlet/engine"), e);
	ck_assert_str_eq(text("jobs/0/job options/engine"), e);
	ck_assert_double_eq(num("martlet/schema_version"), 1);
	if (_i < 2)
		ck_assert_double_gt(num("jobs/0/martlet/enters_per_io"), 0);
	if (_i == 1)
		ck_assert_double_lt(num("jobs/0/martlet/enters_per_io"), 1);
	ck_assert_uint_eq(files_left(), 0);
}
END_TEST

START_TEST(number_ios_is_exact_for_every_job)
{
	ck_assert_int_eq(run("bench f --create --size=4m --numjobs=2 --iodepth=7 --number_ios=1001 --engine=%s "
			     "--output-format=json", engines[_i]), 0);
	parse_json();
	ck_assert_double_eq(num("jobs/0/read/total_ios"), 2002);
}
END_TEST

START_TEST(io_size_and_offset_bound_a_sequential_read)
{
	ck_assert_int_eq(run("bench f --create --size=4m --rw=read --bs=64k --io_size=2m --engine=%s "
			     "--output-format=json+", engines[_i]), 0);
	parse_json();
	ck_assert_double_eq(num("jobs/0/read/io_bytes"), 2 << 20);
	ck_assert(json_object_object_length(at("jobs/0/read/lat_ns/bins")) > 0);
}
END_TEST

START_TEST(a_mix_keeps_its_share)
{
	double reads, writes;

	ck_assert_int_eq(run("bench f --create --size=8m --rw=randrw --rwmixread=70 --number_ios=20000 --engine=%s "
			     "--random_distribution=zipf:1.1 --output-format=json", engines[_i]), 0);
	parse_json();
	reads = num("jobs/0/read/total_ios");
	writes = num("jobs/0/write/total_ios");
	ck_assert_double_eq(reads + writes, 20000);
	ck_assert_double_eq_tol(reads / 20000, 0.70, 0.02);
}
END_TEST

START_TEST(an_open_loop_keeps_its_rate_and_reports_pacing_apart)
{
	once_in_time() {
		ck_assert_int_eq(run("bench f --create --size=8m --rate_iops=1000 --rate_process=%s --runtime=1 --engine=%s "
				     "--output-format=json", _i % 2 ? "poisson" : "linear", engines[_i / 2]), 0);
		parse_json();
		ck_assert_double_le(num("jobs/0/read/total_ios"), 1200);
		ck_assert_double_eq(num("jobs/0/martlet/pacing/error_ns/N"), num("jobs/0/read/total_ios"));
		/* latency counts from the intended start, so it holds the pacing error */
		ck_assert_double_ge(num("jobs/0/read/lat_ns/mean"), num("jobs/0/martlet/pacing/error_ns/mean"));
		if (num("jobs/0/read/total_ios") >= 800) /* else the end came before what was due could be done */
			break;
	}
}
END_TEST

START_TEST(a_comparison_gives_ratios_of_neighbours)
{
	ck_assert_int_eq(run("bench f --create --size=8m --compare=2 --number_ios=500 --output-format=json"), 0);
	parse_json();
	ck_assert_uint_eq(json_object_array_length(at("jobs")), 6);
	ck_assert_double_eq(num("martlet/compare/rounds"), 2);
	ck_assert_double_gt(num("martlet/compare/engines/raw/iops/median"), 0);
	/* the keys hold a slash, which at() would split */
	ck_assert_ptr_nonnull(json_object_object_get(at("martlet/compare"), "martlet/raw"));
	ck_assert_ptr_nonnull(json_object_object_get(at("martlet/compare"), "martlet/psync"));
	/* the second round runs the other way round */
	ck_assert_str_eq(text("jobs/2/martlet/engine"), "psync");
	ck_assert_str_eq(text("jobs/3/martlet/engine"), "psync");
	ck_assert_str_eq(text("jobs/5/martlet/engine"), "martlet");
	ck_assert_double_eq(num("jobs/5/martlet/round"), 2);
}
END_TEST

/* Registered buffers and files carry the right data in both directions; and the report says that they were used. */
static const char *const fast[] = {
	"--fixedbufs=1", "--registerfiles=1", "--fixedbufs=1 --registerfiles=1", "--sqthread_poll=1 --sqthread_idle=5",
	"--fixedbufs=1 --registerfiles=1 --sqthread_poll=1 --sqthread_idle=5 --numjobs=2",
	"--fixedbufs=1 --bs=64k --rate_iops=2000 --registerfiles=1",
};
#define FAST_NR 6

START_TEST(the_fast_path_reads_back_what_it_wrote)
{
	const char *how = fast[_i / 2];

	ck_assert_int_eq(run("bench f:g --create --size=8m --rw=randrw --verify=crc32c --number_ios=600 --iodepth=8 --engine=%s "
			     "--output-format=json %s", engines[_i % 2], how), 0);
	parse_json();
	ck_assert_double_gt(num("martlet/verify/blocks_checked"), 0);
	ck_assert_double_eq(num("martlet/verify/blocks_bad"), 0);
	/* granted, or refused and said so */
	ck_assert_msg(!strstr(text("jobs/0/martlet/ring"), "SQPOLL") == !strstr(how, "sqthread_poll"), "%s: %s", how,
		      text("jobs/0/martlet/ring"));
	if (strstr(how, "registerfiles"))
		ck_assert_str_eq(text("jobs/0/martlet/rung/name"), "fixed file");
	else if (strstr(how, "fixedbufs"))
		ck_assert_str_eq(text("jobs/0/martlet/rung/name"), "fixed buffer");
}
END_TEST

START_TEST(what_cannot_be_polled_runs_and_says_so)
{
	ck_assert_int_eq(run("bench f --create --size=4m --direct=1 --hipri=1 --number_ios=200 --engine=%s "
			     "--output-format=json", engines[_i]), 0);
	parse_json();
	ck_assert_double_eq(num("jobs/0/read/total_ios"), 200);
	if (strcmp(text("jobs/0/martlet/rung/name"), "polled"))
		ck_assert_msg(strstr(text("jobs/0/martlet/rung/text"), "poll"), "%s",
			      text("jobs/0/martlet/rung/text"));
}
END_TEST

START_TEST(a_ladder_has_every_rung_or_the_reason)
{
	static const char *const rungs[] = { "buffered", "direct", "fixed buffer", "fixed file", "polled", "passthrough" };
	struct stat st;
	char path[700];

	ck_assert_int_eq(run("bench f --create --size=8m --ladder=2 --number_ios=300 --engine=%s --plot=.svg "
			     "--output-format=json", engines[_i]), 0);
	parse_json();
	ck_assert_double_eq(num("martlet/ladder/rounds"), 2);
	for (unsigned i = 0; i < 6; i++) {
		struct json_object *rung = json_object_object_get(at("martlet/ladder/rungs"), rungs[i]);
		struct json_object *iops, *why;

		ck_assert_msg(rung != NULL, "no rung %s", rungs[i]);
		if (json_object_object_get_ex(rung, "not_available", &why)) {
			ck_assert_uint_gt(strlen(json_object_get_string(why)), 10);
			continue;
		}
		ck_assert(json_object_object_get_ex(rung, "iops", &iops));
		ck_assert_double_gt(json_object_get_double(json_object_object_get(iops, "median")), 0);
	}
	/* the page cache is always there; a file of a file system takes no commands */
	ck_assert_ptr_nonnull(json_object_object_get(at("martlet/ladder/rungs/buffered"), "iops"));
	ck_assert_ptr_nonnull(json_object_object_get(at("martlet/ladder/rungs/passthrough"), "not_available"));
	ck_assert_str_eq(text("jobs/0/martlet/rung/name"), "buffered");
	snprintf(path, sizeof(path), "%s/.svg", folder);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_gt(st.st_size, 500);
	ck_assert_int_eq(run("bench f --create --size=8m --ladder=1 --number_ios=300 --engine=%s", engines[_i]), 0);
	ck_assert_ptr_nonnull(strstr(out, "passthrough  n/a: "));
	ck_assert_uint_eq(files_left(), 0);
}
END_TEST

/* The result in `doc`, with other IOPS, to a file. */
static void write_result(const char *name, double iops)
{
	struct json_object *read = at("jobs/0/read");
	char path[700];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	ck_assert_int_eq(json_object_object_add(read, "iops", json_object_new_double(iops)), 0);
	ck_assert_int_eq(json_object_to_file(path, doc), 0);
}

START_TEST(results_are_compared_in_pairs)
{
	ck_assert_int_eq(run("bench f --create --size=4m --iodepth=4 --number_ios=200 --output-format=json"), 0);
	parse_json();
	/* in each pair the one has twice the other's */
	for (unsigned i = 0; i < 6; i++) {
		char name[8];

		snprintf(name, sizeof(name), ".r%u", i);
		write_result(name, (i % 2 ? 500 : 1000) * (1 + i / 2 * 0.01));
	}
	ck_assert_int_eq(run("compare --json --label=rates --iops-min=1.5 .r0 .r1 .r2 .r3 .r4 .r5"), 0);
	parse_json();
	ck_assert_str_eq(text("label"), "rates");
	ck_assert_double_eq(num("pairs"), 3);
	ck_assert_double_eq_tol(num("iops/median"), 2, 1e-9);
	ck_assert_double_le(num("iops/ci95_low"), num("iops/median"));
	ck_assert_double_gt(num("cpu_us_per_io/median"), 0);
	ck_assert_int_eq(run("compare --iops-min=3 .r0 .r1 .r2 .r3 .r4 .r5"), 1);
	ck_assert_msg(strstr(out, "SHORT"), "%s", out);
	ck_assert_int_eq(run("compare --scaling .r1 .r1 .r0 .r0"), 0);
	ck_assert_msg(strstr(out, "1.000"), "%s", out);
	ck_assert_int_eq(run("compare --scaling --iops-min=1.5 .r1 .r1 .r0 .r1"), 0);
	ck_assert_int_eq(run("compare .r0 .r1 .r2"), 2);
	ck_assert_msg(strstr(err, "groups of 2"), "%s", err);
	ck_assert_int_eq(run("compare .r0 .out"), 2);
	ck_assert_msg(strstr(err, "no JSON document"), "%s", err);
	ck_assert_int_eq(run("compare --iops-min=x .r0 .r1"), 2);
	ck_assert_int_eq(run("compare --help"), 0);
}
END_TEST

START_TEST(figures_are_compared_in_pairs)
{
	ck_assert_int_eq(run("compare --json --figures --label=x --at-most=0.5 1 2 3 8 1.2 2.4"), 0);
	parse_json();
	ck_assert_double_eq(num("pairs"), 3);
	ck_assert_double_eq_tol(num("median"), 0.5, 1e-9);
	ck_assert_double_eq_tol(num("ratio_of_medians"), 0.5, 1e-9);
	ck_assert_double_eq_tol(num("ratio_of_minima"), 0.5, 1e-9);
	/* one of the two ratios is short: the medians 1.0, the minima 0.5 */
	ck_assert_int_eq(run("compare --figures --at-most=0.5 2 2 1 2 3 3"), 1);
	ck_assert_msg(strstr(out, "SHORT"), "%s", out);
	ck_assert_int_eq(run("compare --figures --by-minima --at-most=0.5 2 2 1 2 3 3"), 0);
	ck_assert_int_eq(run("compare --figures --by-minima --at-most=0.49 2 2 1 2 3 3"), 1);
	ck_assert_int_eq(run("compare --figures 1 2 3"), 2);
	ck_assert_msg(strstr(err, "in pairs"), "%s", err);
	ck_assert_int_eq(run("compare --figures 1 0"), 2);
	ck_assert_msg(strstr(err, "no figure"), "%s", err);
	ck_assert_int_eq(run("compare --figures --iops-min=1 1 2"), 2);
	ck_assert_int_eq(run("compare --at-most=1 .r0 .r1"), 2);
}
END_TEST

START_TEST(several_targets_are_served_in_turn)
{
	ck_assert_int_eq(run("bench --filename=a:b:c\\\\:d --create --size=6m --rw=randrw --numjobs=2 --number_ios=3000 "
			     "--engine=%s --output-format=json", engines[_i]), 0);
	parse_json();
	ck_assert_uint_eq(json_object_array_length(at("martlet/targets")), 3);
	ck_assert_str_eq(text("martlet/targets/2/path"), "c:d");
	ck_assert_double_eq(num("martlet/targets/0/bytes"), 2 << 20);
	ck_assert_uint_eq(json_object_array_length(at("jobs/0/martlet/targets")), 3);
	for (unsigned i = 0; i < 3; i++) {
		char reads[64], writes[64];

		snprintf(reads, sizeof(reads), "jobs/0/martlet/targets/%u/read/total_ios", i);
		snprintf(writes, sizeof(writes), "jobs/0/martlet/targets/%u/write/total_ios", i);
		ck_assert_double_eq(num(reads) + num(writes), 2000);
	}
	ck_assert_uint_eq(files_left(), 0);
}
END_TEST

/* Write 4 MiB once, all of which is read back and found good. Its targets, with further options; they stay. */
static void checked_pass(const char *targets, const char *engine)
{
	ck_assert_int_eq(run("bench %s --create --keep --size=4m --rw=write --verify=crc32c --engine=%s --output-format=json",
			     targets, engine), 0);
	parse_json();
	ck_assert_double_eq(num("jobs/0/write/total_ios"), 1024);
	ck_assert_double_eq(num("jobs/1/read/total_ios"), 1024);
	ck_assert_double_eq(num("martlet/verify/blocks_checked"), 1024);
	ck_assert_double_eq(num("martlet/verify/blocks_bad"), 0);
}

START_TEST(a_pass_over_several_targets_writes_and_checks_each_block)
{
	const char *e = engines[_i];

	checked_pass("a:b --numjobs=2", e);
	ck_assert_double_eq(num("jobs/1/martlet/targets/1/read/total_ios"), 512);
	flip_byte("b", 700000);
	ck_assert_int_eq(run("bench b:a --rw=read --verify=crc32c --engine=%s", e), 1);
	ck_assert_msg(strstr(err, "bad block of b at offset 696320"), "%s", err);
	ck_assert_ptr_nonnull(strstr(out, "1024 blocks checked, 1 bad"));
}
END_TEST

START_TEST(each_worker_has_figures_of_its_own)
{
	double ios = 0;

	ck_assert_int_eq(run("bench f --create --size=8m --numjobs=2 --iodepth=4 --runtime=2 --engine=%s "
			     "--output-format=json", engines[_i]), 0);
	parse_json();
	ck_assert_uint_eq(json_object_array_length(at("jobs")), 1);
	ck_assert_uint_eq(json_object_array_length(at("jobs/0/martlet/workers")), 2);
	for (unsigned i = 0; i < 2; i++) {
		char path[64];

		snprintf(path, sizeof(path), "jobs/0/martlet/workers/%u", i);
		ck_assert(json_object_get_boolean(json_object_object_get(at(path), "cpu_known")));
		ck_assert_double_gt(json_object_get_double(json_object_object_get(at(path), "cpu_us_per_io")), 0);
		ios += json_object_get_double(json_object_object_get(at(path), "read_ios"));
	}
	ck_assert_double_eq(ios, num("jobs/0/read/total_ios"));
}
END_TEST

START_TEST(without_group_reporting_each_job_has_a_report)
{
	ck_assert_int_eq(run("bench f --create --size=8m --numjobs=2 --iodepth=3 --number_ios=500 --group_reporting=0 "
			     "--engine=%s --output-format=json+", engines[_i]), 0);
	parse_json();
	ck_assert_uint_eq(json_object_array_length(at("jobs")), 2);
	ck_assert_double_eq(num("jobs/0/read/total_ios") + num("jobs/1/read/total_ios"), 1000);
	ck_assert_double_eq(num("jobs/1/martlet/job"), 1);
	ck_assert_double_eq(num("jobs/1/read/lat_ns/N"), num("jobs/1/read/total_ios"));
	ck_assert_double_gt(num("jobs/1/read/iops_mean"), 0);
	ck_assert_int_eq(run("bench f --create --size=8m --numjobs=2 --number_ios=500 --group_reporting=0"), 0);
	ck_assert_ptr_nonnull(strstr(out, "job 1:\nread: IOPS"));
	ck_assert_ptr_nonnull(strstr(out, "all jobs:\nread: IOPS"));
}
END_TEST

START_TEST(a_repeated_run_gives_medians_and_their_spread)
{
	double median, low, high;

	ck_assert_int_eq(run("bench f --create --size=8m --repeat=3 --number_ios=2000 --engine=%s --output-format=json",
			     engines[_i]), 0);
	parse_json();
	ck_assert_uint_eq(json_object_array_length(at("jobs")), 3);
	ck_assert_str_eq(text("jobs/2/jobname"), "bench-3");
	ck_assert_double_eq(num("martlet/repeat/runs"), 3);
	median = num("martlet/repeat/iops/median");
	low = num("martlet/repeat/iops/min");
	high = num("martlet/repeat/iops/max");
	ck_assert(low > 0 && low <= median && median <= high);
	ck_assert_double_eq_tol(num("martlet/repeat/iops/spread_pct"), (high - low) / median * 100, 0.01);
	ck_assert_double_eq_tol(median, num("jobs/0/read/iops") + num("jobs/1/read/iops") + num("jobs/2/read/iops") - low -
				high, 0.01);
	ck_assert(json_object_is_type(at("martlet/repeat/warnings"), json_type_array));
	ck_assert_ptr_nonnull(strstr(err, "medians of 3 rounds"));
}
END_TEST

START_TEST(a_table_for_people_is_the_default)
{
	ck_assert_int_eq(run("bench f --create --size=4m --number_ios=500 --percentile_list=50:99.9"), 0);
	ck_assert_ptr_nonnull(strstr(out, "read: IOPS"));
	ck_assert_ptr_nonnull(strstr(out, "p99.9"));
	ck_assert_ptr_null(strstr(out, "p99.99 "));
	ck_assert_ptr_nonnull(strstr(out, "enters per I/O"));
	ck_assert_ptr_null(strchr(err, '\r'));
}
END_TEST

START_TEST(a_plot_has_a_bar_for_each_engine)
{
	const char *bar;
	unsigned n = 0;

	ck_assert_int_eq(run("bench f --create --size=4m --compare=1 --number_ios=500 --plot=p.svg"), 0);
	slurp("p.svg", out);
	for (bar = out; (bar = strstr(bar, "class=\"bar\"")); bar++)
		n++;
	ck_assert_uint_eq(n, ENGINES_NR);
	ck_assert_ptr_nonnull(strstr(out, ">psync<"));
	/* what stands in the way of a file is said before anything is measured */
	ck_assert_int_eq(run("bench f --create --size=4m --runtime=0.1 --plot=nosuch/p.svg"), 2);
	ck_assert_ptr_nonnull(strstr(err, "--plot=nosuch/p.svg: No such file"));
}
END_TEST

static unsigned lines_in(const char *name)
{
	unsigned n = 0;

	slurp(name, out);
	for (const char *c = out; *c; c++)
		n += *c == '\n';
	return n;
}

#define LOG_LINES_MAX 16

/* A job's log of rates, and that of bandwidths agrees. @return lines; the I/Os that they stand for, up to *ret_slack wrong */
static unsigned check_rate_logs(unsigned job, double *ret_ios, double *ret_slack)
{
	unsigned ms[LOG_LINES_MAX], dir, bs, bw_ms, lines, i;
	double iops[LOG_LINES_MAX], bw;
	char name[32], *at;

	snprintf(name, sizeof(name), "r_iops.%u.log", job);
	lines = lines_in(name);
	ck_assert_msg(lines <= LOG_LINES_MAX, "%u lines", lines);
	for (i = 0, at = out; i < lines; i++, at = strchr(at, '\n') + 1) {
		ck_assert_int_eq(sscanf(at, "%u, %lf, %u, %u, 0\n", &ms[i], &iops[i], &dir, &bs), 4);
		*ret_ios += iops[i] * (ms[i] - (i ? ms[i - 1] : 0)) / 1000;
		/* both ends of the interval were cut to a millisecond, the rate was rounded */
		*ret_slack += iops[i] / 1000 + 1;
	}
	snprintf(name, sizeof(name), "r_bw.%u.log", job);
	ck_assert_uint_eq(lines_in(name), lines);
	for (i = 0, at = out; i < lines; i++, at = strchr(at, '\n') + 1) {
		ck_assert_int_eq(sscanf(at, "%u, %lf,", &bw_ms, &bw), 2);
		ck_assert_uint_eq(bw_ms, ms[i]);
		/* blocks of 4 KiB; both were rounded */
		ck_assert_double_eq_tol(bw, iops[i] * 4, 2.5);
	}
	return lines;
}

START_TEST(logs_are_fio_s)
{
	unsigned ms, dir, bs;
	double iops;

	ck_assert_int_eq(run("bench f --create --size=8m --numjobs=2 --iodepth=3 --number_ios=500 --engine=%s "
			     "--write_lat_log=l --log_offset=1", engines[_i]), 0);
	ck_assert_ptr_nonnull(strstr(out, "latency log: 1000 I/Os"));
	ck_assert_uint_eq(lines_in("l_lat.1.log") + lines_in("l_lat.2.log"), 1000);
	ck_assert_int_eq(sscanf(out, "%u, %lf, %u, %u, %*u, 0\n", &ms, &iops, &dir, &bs), 4);
	ck_assert(ms < TIME_LIMIT_S * 1000 && iops > 0 && dir == 0 && bs == 4096);

	once_in_time() {
		double ios = 0, slack = 0, total;
		unsigned lines;

		ck_assert_int_eq(run("bench f --create --size=8m --numjobs=2 --runtime=0.45 --ramp_time=0.1 --engine=%s --eta=never "
				     "--write_iops_log=r --write_bw_log=r --log_avg_msec=100 --output-format=json", engines[_i]), 0);
		parse_json();
		total = num("jobs/0/read/total_ios");
		lines = check_rate_logs(1, &ios, &slack);
		ck_assert_uint_eq(check_rate_logs(2, &ios, &slack), lines);
		ck_assert_double_le(ios, total + slack);
		/* late looks leave lines out; and the end is left out when less than half an interval remains */
		if (lines >= 3 && ios >= total * 0.6)
			break;
	}
}
END_TEST

START_TEST(results_are_merged_and_distributions_written)
{
	double n[2], max[2];

	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(run("bench f --create --size=8m --number_ios=%u --engine=%s --output-format=json+ "
				     "--output=%u.json --hdr_log=%u.hgrm", 2000 + 500 * i, engines[_i], i, i), 0);
		slurp(i ? "1.json" : "0.json", out);
		parse_json();
		n[i] = num("jobs/0/read/lat_ns/N");
		max[i] = num("jobs/0/read/lat_ns/max");
	}
	ck_assert_int_eq(run("bench --merge=serial 0.json 1.json --output-format=json+ --hdr_log=m.hgrm"), 0);
	parse_json();
	ck_assert_double_eq(n[0] + n[1], 4500);
	ck_assert_double_eq(num("jobs/0/read/lat_ns/N"), 4500);
	ck_assert_double_eq(num("jobs/0/read/total_ios"), 4500);
	ck_assert_double_eq(num("jobs/0/read/lat_ns/max"), max[0] > max[1] ? max[0] : max[1]);
	ck_assert_str_eq(text("martlet/merge/inputs/1/path"), "1.json");
	ck_assert_double_eq(num("martlet/work/bs"), 4096);
	slurp("m.hgrm", out);
	ck_assert_ptr_nonnull(strstr(out, "1.000000000000       4500\n"));
	slurp("0.hgrm", out);
	ck_assert_ptr_nonnull(strstr(out, "1.000000000000       2000\n"));
	ck_assert_int_eq(run("bench --merge 0.json 1.json"), 0);
	ck_assert_ptr_nonnull(strstr(out, "0.json: 2000 I/Os"));
	ck_assert_ptr_nonnull(strstr(out, "(n 4500)"));
	ck_assert_int_eq(run("bench --merge 0.json m.hgrm"), 2);
	ck_assert_ptr_nonnull(strstr(err, "m.hgrm"));
}
END_TEST

START_TEST(output_goes_to_a_file_if_asked)
{
	ck_assert_int_eq(run("bench f --create --size=4m --number_ios=100 --output-format=json --output=result.json"), 0);
	ck_assert_str_eq(out, "");
	slurp("result.json", out);
	parse_json();
	ck_assert_double_gt(num("jobs/0/read/total_ios"), 0);
}
END_TEST

/* --- data checks --- */

START_TEST(what_is_written_is_read_back_and_one_flipped_bit_is_found)
{
	const char *e = engines[_i];

	checked_pass("f", e);
	ck_assert_int_eq(run("bench f --rw=read --verify=crc32c --engine=%s --output-format=json", e), 0);
	parse_json();
	ck_assert_double_eq(num("martlet/verify/blocks_checked"), 1024);

	flip_byte("f", 700000);
	ck_assert_int_eq(run("bench f --rw=read --verify=crc32c --engine=%s --output-format=json", e), 1);
	parse_json();
	ck_assert_double_eq(num("martlet/verify/blocks_bad"), 1);
	ck_assert_msg(strstr(err, "bad block at offset 696320 (4096 bytes)"), "%s", err);
	ck_assert_msg(strstr(err, "first wrong byte at offset 700000"), "%s", err);
}
END_TEST

START_TEST(a_checked_mix_of_two_jobs_finds_nothing_wrong)
{
	ck_assert_int_eq(run("bench f --create --size=2m --rw=randrw --numjobs=2 --verify=crc32c --number_ios=2000 "
			     "--engine=%s --output-format=json", engines[_i]), 0);
	parse_json();
	ck_assert_double_gt(num("martlet/verify/blocks_checked"), 100);
	ck_assert_double_eq(num("martlet/verify/blocks_bad"), 0);
}
END_TEST

START_TEST(a_pattern_is_written_and_checked)
{
	ck_assert_int_eq(run("bench f --create --keep --size=1m --rw=randwrite --verify_pattern=0xdeadbeef --number_ios=500 "
			     "--engine=%s", engines[_i]), 0);
	ck_assert_ptr_nonnull(strstr(out, " 0 bad"));
	ck_assert_int_eq(run("bench f --create --keep --size=1m --rw=write"), 2);
}
END_TEST

/* --- safety --- */

START_TEST(an_existing_file_is_not_overwritten_without_the_flag)
{
	struct stat before, after;
	char path[700];

	ck_assert_int_eq(run("bench f --create --keep --size=1m --number_ios=10"), 0);
	snprintf(path, sizeof(path), "%s/f", folder);
	ck_assert_int_eq(stat(path, &before), 0);
	ck_assert_int_eq(run("bench f --rw=randwrite --number_ios=100"), 2);
	ck_assert_ptr_nonnull(strstr(err, "--allow-write"));
	ck_assert_str_eq(out, "");
	ck_assert_int_eq(stat(path, &after), 0);
	ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	ck_assert_int_eq(run("bench f --rw=randwrite --number_ios=100 --allow-write"), 0);
	ck_assert_int_eq(run("bench f --create --size=1m"), 2);
	ck_assert_ptr_nonnull(strstr(err, "exists"));
}
END_TEST

static const struct {
	const char *args, *says;
} refused[] = {
	{ "", "which file" },
	{ "nosuch", "--create" },
	{ "/dev/martlet-nosuch", "lsblk" },
	{ "/dev/ngnosuch --cmd_type=nvme", "/dev/ng*" },
	{ ". ", "folder" },
	{ "/dev/null", "regular file or a block device" },
	{ "/dev/null --cmd_type=nvme", "no NVMe namespace" },
	{ ". --cmd_type=nvme", "no character device" },
	{ "f --create --size=1m --hipri", "--direct=1" },
	{ "f --create --size=1m --direct=1 --bs=1000", "length" },
	{ "f --create --size=2k --bs=1m", "fewer" },
	{ "f --create --size=64k --rw=randwrite --verify=crc32c", "twice the depth" },
	{ "nosuch:other", "--create" },
	{ "f --fsync=1", "fio has this option" },
	{ "f --iodepth=zero", "--iodepth" },
};

START_TEST(one_file_under_two_names_is_refused)
{
	ck_assert_int_eq(run("bench f --create --keep --size=1m --number_ios=10"), 0);
	ck_assert_int_eq(run("bench f:./f --number_ios=10"), 2);
	ck_assert_msg(strstr(err, "one target"), "%s", err);
	/* of several, the one that is missing is named, and nothing is measured */
	ck_assert_int_eq(run("bench f:nosuch --number_ios=10"), 2);
	ck_assert_msg(strstr(err, "nosuch: "), "%s", err);
	/* each is checked for safety */
	ck_assert_int_eq(run("bench f:g --rw=randwrite --number_ios=10"), 2);
	ck_assert_msg(strstr(err, "--allow-write"), "%s", err);
}
END_TEST

START_TEST(what_cannot_be_done_is_refused_in_a_sentence)
{
	ck_assert_int_eq(run("bench %s", refused[_i].args), 2);
	ck_assert_msg(strstr(err, refused[_i].says), "%s: %s", refused[_i].args, err);
	ck_assert_str_eq(out, "");
	ck_assert_uint_eq(files_left(), 0);
}
END_TEST

static bool wait_for_text(const char *name, const char *what)
{
	static const struct timespec look = { 0, 10000000 };

	for (unsigned i = 0; i < 2000; i++) {
		/* the file may not be there yet: the shell opens it */
		if (try_slurp(name, err) && strstr(err, what))
			return true;
		nanosleep(&look, NULL);
	}
	return false;
}

START_TEST(ctrl_c_gives_the_result_so_far_and_leaves_nothing)
{
	char line[2048];
	int status;
	pid_t pid;

	snprintf(line, sizeof(line), "cd %s && exec %s bench . --create --size=4m --runtime=1000 --engine=%s "
		 "--status-interval=1 --output-format=json >.out 2>.err", folder, command_path, engines[_i]);
	pid = fork();
	if (pid == 0)
		_exit(execl("/bin/sh", "sh", "-c", line, (char *)NULL));
	ck_assert_int_gt(pid, 0);
	ck_assert(wait_for_text(".err", "IOPS"));
	ck_assert_uint_eq(files_left(), 0);
	ck_assert_int_eq(kill(pid, SIGINT), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	slurp(".out", out);
	ck_assert_int_eq(exit_code_of(status), 130);
	parse_json();
	ck_assert(json_object_get_boolean(at("jobs/0/martlet/interrupted")));
	ck_assert_double_gt(num("jobs/0/read/total_ios"), 0);
	ck_assert_uint_eq(files_left(), 0);
}
END_TEST

START_TEST(the_command_itself_answers)
{
	ck_assert_int_eq(run("version"), 0);
	ck_assert(strncmp(out, "martlet ", 8) == 0);
	ck_assert_int_eq(run("help"), 0);
	ck_assert_int_eq(run("bench --help"), 0);
	ck_assert_ptr_nonnull(strstr(out, "--iodepth=N"));
	ck_assert_int_eq(run("nosuch"), 2);
	ck_assert_int_eq(run("%s", ""), 2);
	ck_assert_int_eq(run("probe"), 0);
	ck_assert_ptr_nonnull(strstr(out, "runs here"));
	ck_assert_int_eq(run("probe nosuch"), 2);
}
END_TEST

/* --- devices: root, and a loop device --- */

/* A loop device over an 8 MiB file. */
static bool attach_loop(void)
{
	char line[1200];
	FILE *p;

	snprintf(line, sizeof(line), "head -c 8M /dev/urandom >%s/img && losetup -f --show %s/img 2>/dev/null", folder,
		 folder);
	p = popen(line, "re");
	loop[0] = '\0';
	if (p && !fgets(loop, sizeof(loop), p))
		loop[0] = '\0';
	if (p)
		pclose(p);
	loop[strcspn(loop, "\n")] = '\0';
	if (loop[0] == '\0')
		printf("no loop device here: this test was left out\n");
	return loop[0] != '\0';
}

START_TEST(a_device_that_is_held_or_mounted_is_never_written)
{
	char line[1600];
	int fd;

	if (!attach_loop())
		return;
	ck_assert_int_eq(run("bench %s --rw=randwrite --number_ios=10", loop), 2);
	ck_assert_ptr_nonnull(strstr(err, "--allow-write"));
	fd = open(loop, O_RDONLY | O_EXCL | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(run("bench %s --rw=randwrite --number_ios=10 --allow-write", loop), 2);
	ck_assert_ptr_nonnull(strstr(err, "in use"));
	ck_assert_int_eq(run("bench %s --number_ios=10", loop), 0);
	close(fd);
	ck_assert_int_eq(run("bench %s --rw=randwrite --number_ios=10 --allow-write", loop), 0);

	snprintf(line, sizeof(line), "mkfs.ext4 -q %s && mkdir %s/m && mount %s %s/m", loop, folder, loop, folder);
	if (system(line) == 0) {
		ck_assert_int_eq(run("bench %s --rw=randwrite --number_ios=10 --allow-write", loop), 2);
		ck_assert_msg(strstr(err, "mounted at"), "%s", err);
		snprintf(line, sizeof(line), "%s/m", folder);
		ck_assert_int_eq(umount(line), 0);
	}
	detach_loop();
}
END_TEST

START_TEST(failed_reads_are_counted_by_errno_and_make_the_exit_non_zero)
{
	char path[700];

	if (!attach_loop())
		return;
	snprintf(path, sizeof(path), "%s/img", folder);
	ck_assert_int_eq(truncate(path, 4 << 20), 0);
	ck_assert_int_eq(run("bench %s --direct=1 --number_ios=500 --engine=%s --output-format=json", loop, engines[_i]),
			 1);
	parse_json();
	ck_assert_double_gt(num("jobs/0/martlet/errors/EIO"), 0);
	ck_assert_double_gt(num("jobs/0/read/total_ios"), 0);
	ck_assert_double_eq(num("jobs/0/martlet/errors/EIO") + num("jobs/0/read/total_ios"), 500);
	detach_loop();
}
END_TEST

#define NR(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("bench_cli");
	TCase *t = tcase_create("cli");

	snprintf(command_path, sizeof(command_path), "%s/martlet", MRT_TEST_BUILD_DIR);
	if (access(command_path, X_OK)) {
		printf("skipped: the command was not built (%s)\n", command_path);
		return 77;
	}
	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, json_has_fio_s_fields_and_they_agree, 0, ENGINES_NR);
	tcase_add_loop_test(t, number_ios_is_exact_for_every_job, 0, ENGINES_NR);
	tcase_add_loop_test(t, io_size_and_offset_bound_a_sequential_read, 0, ENGINES_NR);
	tcase_add_loop_test(t, a_mix_keeps_its_share, 0, ENGINES_NR);
	tcase_add_loop_test(t, an_open_loop_keeps_its_rate_and_reports_pacing_apart, 0, 2 * ENGINES_NR);
	tcase_add_test(t, a_comparison_gives_ratios_of_neighbours);
	tcase_add_loop_test(t, the_fast_path_reads_back_what_it_wrote, 0, 2 * FAST_NR);
	tcase_add_loop_test(t, what_cannot_be_polled_runs_and_says_so, 0, 2);
	tcase_add_loop_test(t, a_ladder_has_every_rung_or_the_reason, 0, 2);
	tcase_add_test(t, results_are_compared_in_pairs);
	tcase_add_test(t, figures_are_compared_in_pairs);
	tcase_add_loop_test(t, several_targets_are_served_in_turn, 0, ENGINES_NR);
	tcase_add_loop_test(t, a_pass_over_several_targets_writes_and_checks_each_block, 0, ENGINES_NR);
	tcase_add_loop_test(t, each_worker_has_figures_of_its_own, 0, ENGINES_NR);
	tcase_add_loop_test(t, without_group_reporting_each_job_has_a_report, 0, ENGINES_NR);
	tcase_add_loop_test(t, a_repeated_run_gives_medians_and_their_spread, 0, ENGINES_NR);
	tcase_add_test(t, a_table_for_people_is_the_default);
	tcase_add_test(t, a_plot_has_a_bar_for_each_engine);
	tcase_add_loop_test(t, logs_are_fio_s, 0, ENGINES_NR);
	tcase_add_loop_test(t, results_are_merged_and_distributions_written, 0, ENGINES_NR);
	tcase_add_test(t, output_goes_to_a_file_if_asked);
	tcase_add_loop_test(t, what_is_written_is_read_back_and_one_flipped_bit_is_found, 0, ENGINES_NR);
	tcase_add_loop_test(t, a_checked_mix_of_two_jobs_finds_nothing_wrong, 0, ENGINES_NR);
	tcase_add_loop_test(t, a_pattern_is_written_and_checked, 0, ENGINES_NR);
	tcase_add_test(t, an_existing_file_is_not_overwritten_without_the_flag);
	tcase_add_test(t, one_file_under_two_names_is_refused);
	tcase_add_loop_test(t, what_cannot_be_done_is_refused_in_a_sentence, 0, NR(refused));
	tcase_add_loop_test(t, ctrl_c_gives_the_result_so_far_and_leaves_nothing, 0, ENGINES_NR);
	tcase_add_test(t, the_command_itself_answers);
	tcase_add_test(t, a_device_that_is_held_or_mounted_is_never_written);
	tcase_add_loop_test(t, failed_reads_are_counted_by_errno_and_make_the_exit_non_zero, 0, ENGINES_NR);
	suite_add_tcase(s, t);
	return suite_main(s);
}
