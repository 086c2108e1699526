/* SPDX-License-Identifier: MIT */
/*
 * `martlet top --once` and `--json`, and `martlet export --once`, as a user runs them against processes that work, hang in a
 * poll, and are stopped: as root, with CAP_BPF alone, and with nothing.
 *
 * What the terminal shows is in test_top_screen.c, how rates come about in tests/unit/test_top_model.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "itest.h"
#include "observe.h"
#include "subject.h"
#include "work.h"

#include "bpf/tracer.h"
#include "symbols.h"

#define MARTLET MRT_TEST_BUILD_DIR "/martlet"
#define OUT_BYTES (1u << 20)

static bool has_bpf, has_programs;
static char out[OUT_BYTES];     /* standard output and error of the last run */

/* Run it as nobody with these capabilities, or as we are. @return exit status */
static int run(uint64_t caps, ...)
{
	char *args[16] = { (char *)(uintptr_t)"martlet" };
	unsigned nr = 1;
	size_t used = 0;
	int fds[2], status;
	va_list ap;
	ssize_t n;
	pid_t pid;

	va_start(ap, caps);
	while ((args[nr] = va_arg(ap, char *)) != NULL)
		ck_assert_uint_lt(++nr, 16);
	va_end(ap);
	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		alarm(2 * ITEST_LIMIT_S);
		dup2(fds[1], 1);
		dup2(fds[1], 2);
		close(fds[0]);
		close(fds[1]);
		if (caps != SUBJECT_CAPS_ALL)
			subject_become_nobody(caps);
		execv(MARTLET, args);
		_exit(99);
	}
	close(fds[1]);
	while ((n = read(fds[0], out + used, sizeof(out) - 1 - used)) > 0)
		used += (size_t)n;
	out[used] = '\0';
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "status %#x: %s", status, out);
	return WEXITSTATUS(status);
}

static void check_has(const char *part)
{
	ck_assert_msg(strstr(out, part) != NULL, "'%s' is not in:\n%s", part, out);
}

static void check_lacks(const char *part)
{
	ck_assert_msg(strstr(out, part) == NULL, "'%s' is in:\n%s", part, out);
}

static const char *text_of(pid_t pid)
{
	static char text[16];

	snprintf(text, sizeof(text), "%d", (int)pid);
	return text;
}

/* ---- work ---- */

/* What it is called in a build with libelf, or without. */
static const char *hung_name(void)
{
	return symbols_has_names() ? "work_stuck_poll" : "test_top+0x";
}

/* "before NAME after" */
static const char *with_name(const char *before, const char *after)
{
	static char text[256];

	snprintf(text, sizeof(text), "%s%s%s", before, hung_name(), symbols_has_names() ? after : "");
	return text;
}

static void hang(struct mrt_runtime *rt)
{
	work_nops(rt);
	work_get_all_stuck(rt);
}

/* ---- JSON ---- */

static struct json_object *doc;

static void drop_doc(void)
{
	json_object_put(doc);
	doc = NULL;
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *c = NULL;

	ck_assert_msg(json_object_object_get_ex(o, key, &c), "no '%s' in %s", key, json_object_to_json_string(o));
	return c;
}

static int64_t number(struct json_object *o, const char *key)
{
	return json_object_get_int64(get(o, key));
}

static const char *string(struct json_object *o, const char *key)
{
	return json_object_get_string(get(o, key));
}

/* The only runtime of `out`; until the next one is parsed. */
static struct json_object *parse_runtime(void)
{
	struct json_object *array;

	json_object_put(doc);
	doc = json_tokener_parse(out);
	ck_assert_msg(doc != NULL, "no JSON: %s", out);
	array = get(doc, "runtimes");
	ck_assert_uint_eq(json_object_array_length(array), 1);
	return json_object_array_get_idx(array, 0);
}

static bool has_warning(struct json_object *r, const char *part)
{
	struct json_object *array = get(r, "warnings");
	size_t i;

	for (i = 0; i < json_object_array_length(array); i++)
		if (strstr(string(json_object_array_get_idx(array, i), "text"), part))
			return true;
	return false;
}

/* ---- one look ---- */

static const struct {
	const char *name;
	uint64_t subject_caps, viewer_caps;
	const char *backend;
} view_cases[] = {
	{ "root", SUBJECT_CAPS_ALL, SUBJECT_CAPS_ALL, "bpf" },
	{ "CAP_BPF", UINT64_C(1) << CAP_BPF, UINT64_C(1) << CAP_BPF, "bpf" },
	{ "nothing", 0, 0, "memfd" },
};

START_TEST(one_look_shows_workers_and_ops)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = view_cases[_i].subject_caps, .work = work_nops };
	uint64_t caps = view_cases[_i].viewer_caps;
	struct json_object *r, *w, *op;
	int64_t polls = 0;
	struct subject s;
	size_t i;

	if (caps != SUBJECT_CAPS_ALL && geteuid() != 0) {
		printf("%s: skipped: this process cannot give it\n", view_cases[_i].name);
		return;
	}
	s = subject_start(&so);
	ck_assert_int_eq(run(caps, "top", "--json", "--interval=100ms", text_of(s.pid), NULL), 0);
	r = parse_runtime();
	ck_assert_int_eq(number(r, "pid"), s.pid);
	ck_assert_str_eq(string(r, "runtime"), "itest");
	ck_assert_str_eq(string(r, "backend"), has_bpf ? view_cases[_i].backend : "memfd");
	ck_assert_int_eq(number(r, "tasks_alive"), 0);
	ck_assert_int_ge(number(r, "interval_ns"), 100000000);
	ck_assert_uint_eq(json_object_array_length(get(r, "workers")), 2);
	for (i = 0; i < 2; i++) {
		w = json_object_array_get_idx(get(r, "workers"), i);
		ck_assert_int_eq(number(w, "worker"), (int64_t)i);
		ck_assert_str_eq(string(w, "state"), "PARK");
		ck_assert_int_gt(number(w, "tid"), 0);
		ck_assert_int_gt(number(w, "cq_entries"), 0);
		polls += number(w, "polls");
	}
	ck_assert_int_ge(polls, 1);
	op = json_object_array_get_idx(get(r, "ops"), 0);
	ck_assert_str_eq(string(op, "op"), "nop");
	ck_assert_int_eq(number(op, "ops"), WORK_NOPS);
	ck_assert_uint_eq(json_object_array_length(get(r, "warnings")), 0);

	ck_assert_int_eq(run(caps, "top", "--once", "--interval=100ms", text_of(s.pid), NULL), 0);
	check_has("runtime itest: up ");
	check_has("timed: all while this looks (else one poll in 64, one op in 32)");
	check_has("PARK");
	check_has("nop ");
	check_lacks("!");
	ck_assert_int_eq(run(caps, "top", "--once", "--interval=100ms", "--keep-timing", text_of(s.pid), NULL), 0);
	check_has("timed: one poll in 64, one op in 32\n");
	ck_assert_int_eq(run(caps, "top", "--once", "--interval=100ms", NULL), 0); /* found by itself */
	check_has(text_of(s.pid));
	ck_assert_int_eq(run(caps, "export", "--once", text_of(s.pid), NULL), 0);
	check_has("mrt_ops_total{pid=");
	check_has("op=\"nop\"} 320\n");
	subject_end(&s);
}
END_TEST

START_TEST(another_users_process_is_refused_in_a_sentence)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL };
	struct subject s;

	if (geteuid() != 0) {
		printf("skipped: this process cannot be another user\n");
		return;
	}
	s = subject_start(&so);
	ck_assert_int_eq(run(0, "top", "--once", "--interval=100ms", text_of(s.pid), NULL), 1);
	check_has("martlet top: this user may not look into process");
	ck_assert_int_eq(run(0, "export", "--once", text_of(s.pid), NULL), 1);
	check_has("martlet export: this user may not look into process");
	subject_end(&s);
}
END_TEST

/* ---- a process that hangs ---- */

START_TEST(a_process_that_hangs_in_polls_shows_the_function_and_since_when)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = hang,
				   .flags = _i & 1 ? MRT_RUNTIME_STATS_MEMFD : 0 };
	struct subject s = subject_start(&so);
	struct json_object *r, *w;
	int64_t polls;
	size_t i;

	if (_i & 2)
		ck_assert_int_eq(kill(s.pid, SIGSTOP), 0);
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--json", "--interval=600ms", text_of(s.pid), NULL), 0);
	r = parse_runtime();
	ck_assert_str_eq(string(r, "process_state"), _i & 2 ? "T" : "S");
	ck_assert_int_eq(has_warning(r, "is stopped"), (_i & 2) != 0);
	ck_assert(has_warning(r, with_name("stuck: in one poll of ", "")));
	ck_assert(has_warning(r, "last ring turn "));
	for (i = 0; i < 2; i++) {
		w = json_object_array_get_idx(get(r, "workers"), i);
		ck_assert_str_eq(string(w, "state"), "STUCK");
		ck_assert_int_eq(number(w, "is_stuck"), 1);
		ck_assert_int_eq(number(w, "poll_since_is_exact"), 0);
		ck_assert_ptr_nonnull(strstr(string(w, "poll_fn"), hung_name()));
		ck_assert_int_ge(number(w, "poll_ns"), 600000000);
	}
	polls = number(w, "polls");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "--interval=600ms", text_of(s.pid), NULL), 0);
	check_has(with_name("! worker 0: stuck: in one poll of ", ", and does not yield; last ring turn "));
	check_has("! worker 1: stuck: ");
	check_has("STUCK");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--json", "--interval=600ms", text_of(s.pid), NULL), 0);
	ck_assert_int_eq(number(json_object_array_get_idx(get(parse_runtime(), "workers"), 1), "polls"), polls);
	subject_kill(&s);
}
END_TEST

/* One that looks has all timed, for three seconds from its last look. @return it has begun to hang while that lasted */
static bool hang_while_watched(struct subject *s)
{
	struct observe o;
	bool watched;

	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "--interval=100ms", text_of(s->pid), NULL), 0);
	subject_do(s, SUBJECT_OTHER);
	ck_assert_int_eq(observe_open(s->pid, &o), 0);
	watched = mrt_now() < o.ctl->watched_until_ns;
	observe_close(&o);
	return watched;
}

START_TEST(with_full_timing_it_is_exact)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = work_nops, .other = hang };
	uint64_t until = mrt_now() + MRT_SEC(20), before = mrt_now();
	struct subject s = subject_start(&so);
	struct json_object *w;

	while (!hang_while_watched(&s)) {
		ck_assert_msg(mrt_now() < until, "it never hangs in time");
		subject_kill(&s);
		before = mrt_now();
		s = subject_start(&so);
	}
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--json", "--interval=600ms", text_of(s.pid), NULL), 0);
	w = json_object_array_get_idx(get(parse_runtime(), "workers"), 0);
	ck_assert_int_eq(number(w, "poll_since_is_exact"), 1);
	ck_assert_int_le(number(w, "poll_ns"), (int64_t)(mrt_now() - before));
	ck_assert(has_warning(parse_runtime(), with_name("stuck: in one poll of ", " for ")));
	subject_kill(&s);
}
END_TEST

/* ---- tasks ---- */

ITEST_CHILD(naps, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	for (;;)
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(5)));
	MRT_RETURN(self, 0);
}

/* Two that nap, and later one that hangs in a poll. */
static void nap(struct mrt_runtime *rt)
{
	const struct mrt_spawn_opts opts = { .size = sizeof(opts), .name = "the napper" };
	struct mrt_task *t;
	unsigned i;

	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(mrt_spawn(rt, naps_poll, NULL, sizeof(struct naps), &opts, &t), 0);
		mrt_detach(t);
	}
}

START_TEST(tasks_are_listed_with_their_columns)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = nap, .other = work_get_stuck };
	struct json_object *r, *tasks, *t;
	unsigned napping = 0, hanging = 0;
	int64_t before = INT64_MAX;
	struct subject s;
	size_t i;

	if (!has_programs) {
		printf("skipped: no BPF programs here\n");
		return;
	}
	s = subject_start(&so);
	subject_do(&s, SUBJECT_OTHER);
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--json", "--tasks=9", "--interval=1500ms", text_of(s.pid), NULL), 0);
	r = parse_runtime();
	tasks = get(r, "tasks");
	ck_assert_uint_eq(json_object_array_length(tasks), 3);
	ck_assert_int_eq(number(r, "tasks_nr"), 3);
	ck_assert_int_eq(number(r, "tasks_dropped") + number(r, "tasks_not_shown") + number(r, "task_events_lost"), 0);
	ck_assert_int_ge(number(r, "tasks_interval_ns"), 1500000000);
	for (i = 0; i < 3; i++) {
		t = json_object_array_get_idx(tasks, i);
		ck_assert_int_le(number(t, "total_ns"), before);
		before = number(t, "total_ns");
		ck_assert_int_eq(number(t, "busy_ns") + number(t, "sched_ns") + number(t, "idle_ns"), before);
		ck_assert_int_eq(strncmp(string(t, "id"), "0x", 2), 0);
		if (strcmp(string(t, "name"), "the napper") == 0) {
			napping++;
			ck_assert_int_gt(number(t, "polls"), 1);
			ck_assert_int_eq(number(t, "polls_without_wake"), 0);
			ck_assert_int_gt(number(t, "poll_max_ns"), 0);
			ck_assert_int_gt(number(t, "idle_ns"), 0);
		} else {
			hanging++;
			ck_assert_str_eq(string(t, "state"), "RUNNING");
			ck_assert_str_eq(string(t, "warning"), "never yields");
			ck_assert_ptr_nonnull(strstr(string(t, "function"), hung_name()));
			ck_assert_int_eq(number(t, "polls"), 0);
		}
	}
	ck_assert_uint_eq(napping, 2);
	ck_assert_uint_eq(hanging, 1);

	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--json", "--tasks=1", "--interval=100ms", text_of(s.pid), NULL), 0);
	r = parse_runtime();
	ck_assert_uint_eq(json_object_array_length(get(r, "tasks")), 1);
	ck_assert_int_eq(number(r, "tasks_nr"), 3);
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "--tasks=2", "--interval=100ms", text_of(s.pid), NULL), 0);
	check_has("3 tasks, while the probes are listened to; 0 dropped, 0 not shown, 0 events lost\nthe 2 with the longest total\nWARN");
	check_has("the napper");
	subject_kill(&s);
}
END_TEST

START_TEST(tasks_that_cannot_be_had_are_told_and_the_rest_is_shown)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = 0, .work = nap };
	struct json_object *r;
	struct subject s;

	if (geteuid() != 0) {
		printf("skipped: this process cannot be another user\n");
		return;
	}
	s = subject_start(&so);
	ck_assert_int_eq(run(0, "top", "--json", "--tasks=9", "--interval=100ms", text_of(s.pid), NULL), 1);
	check_has("martlet top: the tasks of runtime itest of process ");
	check_has("\"tasks\":null");
	check_has("\"tasks_why\":\"");
	check_has("\"workers\":[");
	ck_assert_int_eq(run(0, "top", "--json", "--interval=100ms", text_of(s.pid), NULL), 0);
	r = parse_runtime();
	ck_assert(!json_object_object_get_ex(r, "tasks", NULL));
	subject_kill(&s);
}
END_TEST

/* ---- bad input ---- */

START_TEST(what_is_wrong_is_said)
{
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "--interval=5s", NULL), 2);
	check_has("--interval=5s: it must be 100ms to 2s");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "12x", NULL), 2);
	check_has("'12x' is not the number of a process");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "--tasks=0", "1", NULL), 2);
	check_has("--tasks=0: it must be a number from 1 to 20480");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "--tasks=9", NULL), 2);
	check_has("--tasks needs the processes' numbers");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--tasks=9", "1", NULL), 2);
	check_has("--tasks is of --once and --json");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--nonsense", NULL), 2);
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", NULL), 2);
	ck_assert(strstr(out, "no terminal here") || strstr(out, "without ncursesw"));
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--once", "--interval=100ms", "4000000", NULL), 1);
	check_has("there is no process 4000000");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "export", "--listen=nowhere", NULL), 2);
	check_has("it must be ADDR:PORT");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "export", "--listen=127.0.0.1:65536", NULL), 2);
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "export", "--listen=[::1:80", NULL), 2);
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "top", "--help", NULL), 0);
	check_has("usage: martlet top");
	ck_assert_int_eq(run(SUBJECT_CAPS_ALL, "export", "--help", NULL), 0);
	check_has("usage: martlet export");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("top");
	char why[TRACER_WHY_BYTES];
	TCase *tc;

	itest_need_io_uring();
	if (access(MARTLET, X_OK)) {
		printf("skipped: the command was not built\n");
		return ITEST_SKIP;
	}
	has_bpf = subject_has_bpf();
	has_programs = !tracer_missing() && !tracer_check(TRACER_AUTO, why);
	tc = tcase_create("top");
	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_checked_fixture(tc, NULL, drop_doc);
	tcase_add_loop_test(tc, one_look_shows_workers_and_ops, 0, (int)(sizeof(view_cases) / sizeof(view_cases[0])));
	tcase_add_test(tc, another_users_process_is_refused_in_a_sentence);
	tcase_add_loop_test(tc, a_process_that_hangs_in_polls_shows_the_function_and_since_when, 0, 4);
	tcase_add_test(tc, with_full_timing_it_is_exact);
	tcase_add_test(tc, tasks_are_listed_with_their_columns);
	tcase_add_test(tc, tasks_that_cannot_be_had_are_told_and_the_rest_is_shown);
	tcase_add_test(tc, what_is_wrong_is_said);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
