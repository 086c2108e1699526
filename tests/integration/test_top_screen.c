/* SPDX-License-Identifier: MIT */
/*
 * `martlet top` on a terminal, which is tmux's: keys are sent, screens are captured. Views, help, sorting, pausing, sparklines,
 * sizes down to a few letters, a worker that is stuck, a process that ends while it is looked at, tasks one by one and by
 * function, and that after q and after kill -9 timing goes back to what was set and nobody listens to the probes.
 *
 * What the numbers are is in tests/unit/test_top_model.c, test_top.c and test_top_tasks.c.
 */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"
#include "observe.h"
#include "subject.h"
#include "work.h"

#include "probe/usdt.h"
#include "symbols.h"

#define MARTLET MRT_TEST_BUILD_DIR "/martlet"
#define WAIT_MS 20000
#define YIELDS 345u

static char dir[FIXTURE_PATH];
static unsigned server; /* its socket: one that ends may still answer */
static char screen[1 << 16];

__attribute__((format(printf, 1, 2)))
static void tmux(const char *fmt, ...)
{
	char command[1024];
	int n = snprintf(command, sizeof(command), "tmux -S %s/tmux%u -f /dev/null ", dir, server);
	va_list ap;
	size_t nr;
	FILE *f;

	va_start(ap, fmt);
	vsnprintf(command + n, sizeof(command) - (size_t)n, fmt, ap);
	va_end(ap);
	f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	nr = fread(screen, 1, sizeof(screen) - 1, f);
	screen[nr] = '\0';
	ck_assert_msg(pclose(f) == 0, "%s: %s", command, screen);
}

/* A shell starts it, so that what it has said stays there. */
static void start(const char *environment, int columns, int lines, const char *arguments)
{
	tmux("new-session -d -x %d -y %d '%s " MARTLET " top --interval=200ms %s; echo status $?; exec cat'", columns, lines,
	     environment, arguments);
	/* A test that fails ends where it is: nothing of this may outlive it. */
	tmux("run-shell -b 'tail --pid=%d -f /dev/null; kill #{pid}'", (int)getpid());
}

static bool shows(const char *part)
{
	tmux("capture-pane -p");
	return strstr(screen, part) != NULL;
}

/* Wait for a part of the screen. */
#define SHOWS(part)                                                                                             \
	do {                                                                                                    \
		uint64_t shows_until = mrt_now() + MRT_MS(WAIT_MS);                                             \
		while (!shows(part)) {                                                                          \
			ck_assert_msg(mrt_now() < shows_until, "'%s' is not in:\n%s", part, screen);           \
			itest_pause();                                                                          \
		}                                                                                               \
	} while (0)

/* Both are there, one above the other. */
static bool shows_above(const char *upper, const char *lower)
{
	const char *one, *other;

	tmux("capture-pane -p");
	one = strstr(screen, upper);
	other = strstr(screen, lower);
	return one && other && one < other;
}

#define SHOWS_NOT(part)                                                                                         \
	do {                                                                                                    \
		uint64_t shows_until = mrt_now() + MRT_MS(WAIT_MS);                                             \
		while (shows(part)) {                                                                           \
			ck_assert_msg(mrt_now() < shows_until, "'%s' is in:\n%s", part, screen);               \
			itest_pause();                                                                          \
		}                                                                                               \
	} while (0)

/* The process itself, a child of the pane's shell. */
static int pid_of_it(void)
{
	char path[64];
	int shell, pid = 0;
	FILE *f;

	tmux("display-message -p '#{pane_pid}'");
	shell = atoi(screen);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", shell, shell);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%d", &pid), 1);
	fclose(f);
	return pid;
}

/* Its descriptors of maps, programs and links. */
static unsigned bpf_fds_nr(int pid)
{
	char path[64], link[64];
	unsigned nr = 0;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)) != NULL) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);

		link[n > 0 ? n : 0] = '\0';
		nr += strstr(link, "bpf") != NULL;
	}
	closedir(d);
	return nr;
}

static void setup(void)
{
	ck_assert_int_eq(fixture_dir(dir), 0);
}

static void teardown(void)
{
	char command[512];

	snprintf(command, sizeof(command), "tmux -S %s/tmux%u kill-server 2>/dev/null", dir, server);
	if (system(command))
		printf("no tmux server any more\n"); /* it ends with its last session */
}

/* ---- subjects ---- */

ITEST_CHILD(sleeps, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_SEC(1000)));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(yields, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < YIELDS; f->i++)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

/* Before the first look one that sleeps, too. */
static void do_yields(struct mrt_runtime *rt)
{
	const struct mrt_spawn_opts opts = { .size = sizeof(opts), .name = "the sleeper" };
	static bool sleeps;
	struct mrt_task *task;

	if (!sleeps) {
		ck_assert_int_eq(mrt_spawn(rt, sleeps_poll, NULL, sizeof(struct sleeps), &opts, &task), 0);
		mrt_detach(task);
		sleeps = true;
	}
	ck_assert_int_eq(mrt_block_on(rt, yields_poll, NULL, sizeof(struct yields), NULL), 0);
}

#define SEMAPHORE(name, text, ...) +(unsigned)(mrt__sem_##name != 0)

static void note_listeners(struct mrt_runtime *rt)
{
	(void)rt;
	atomic_store(&subject_note, 0u MRT__PROBES(SEMAPHORE));
}

/* As a build with libelf calls it, or without. */
static const char *stuck_exactly(void)
{
	return symbols_has_names() ? ": stuck: in one poll of work_stuck_poll for " : ": stuck: in one poll of test_top_screen+0x";
}

static struct subject start_subject(void (*work)(struct mrt_runtime *rt))
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = work, .other = work_get_stuck };

	return subject_start(&so);
}

__attribute__((format(printf, 1, 2)))
static char *text_of(const char *fmt, ...)
{
	static char text[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return text;
}

/* ---- tests ---- */

START_TEST(views_follow_the_keys)
{
	struct subject a = start_subject(work_nops), b = start_subject(work_nops);

	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d %d", (int)a.pid, (int)b.pid));
	SHOWS("2 runtimes;");
	SHOWS(" PID PROCESS ");
	SHOWS(text_of("%d", (int)b.pid));
	tmux("send-keys '<' '<' '<' '<' '<'"); /* by pid */
	SHOWS(text_of("%d", (int)a.pid));
	tmux("send-keys Enter");
	SHOWS(text_of("(%d), runtime itest: up ", (int)a.pid));
	SHOWS("  W STATE ");
	SHOWS("timed: all while this looks (else one poll in 64, one op in 32)");
	SHOWS("queued ");
	SHOWS("poll p99 ");
	SHOWS("nop ");
	SHOWS("▁");
	tmux("send-keys Enter");
	SHOWS("runtime itest, worker 0");
	SHOWS("polls since the last look, by time:");
	tmux("send-keys Down");
	SHOWS("runtime itest, worker 1");
	tmux("send-keys h");
	SHOWS("this help");
	SHOWS("BUSY%     of the time, not parked");
	tmux("send-keys x");
	SHOWS("runtime itest, worker 1");
	tmux("send-keys Escape");
	SHOWS("  W STATE ");
	tmux("send-keys Escape");
	SHOWS("2 runtimes;");
	tmux("send-keys Down Enter");
	SHOWS(text_of("(%d), runtime itest: up ", (int)b.pid));
	tmux("send-keys q");
	SHOWS("status 0");
	subject_end(&a);
	subject_end(&b);
}
END_TEST

/* Is worker `first` above the other one on the screen? */
static bool is_first(unsigned first)
{
	char *zero, *one;

	tmux("capture-pane -p");
	zero = strstr(screen, "\n  0 ");
	one = strstr(screen, "\n  1 ");
	return zero && one && (zero < one) == (first == 0);
}

START_TEST(tables_are_sorted_and_scrolled_sideways)
{
	struct subject s = start_subject(work_nops);

	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d", (int)s.pid));
	ITEST_WAIT(is_first(0), WAIT_MS);
	tmux("send-keys I");
	ITEST_WAIT(is_first(1), WAIT_MS);
	tmux("send-keys '>'"); /* by state, which is the same: in the workers' order */
	ITEST_WAIT(is_first(0), WAIT_MS);
	ck_assert_ptr_null(strstr(screen, "FUNCTION"));
	tmux("send-keys Right Right Right Right Right Right Right Right Right Right Right Right Right Right Right Right");
	tmux("send-keys Right Right Right Right Right Right Right Right Right Right Right Right Right Right Right Right");
	SHOWS("FUNCTION");
	SHOWS("  W STATE ");
	ck_assert_ptr_null(strstr(screen, "BUSY%"));
	subject_end(&s);
}
END_TEST

START_TEST(a_pause_stops_the_looks)
{
	struct subject s = start_subject(work_nops);

	start("LC_ALL=C", 120, 30, text_of("%d", (int)s.pid));
	SHOWS("nop ");
	SHOWS(text_of(" %u\n", WORK_NOPS));
	tmux("send-keys Space");
	SHOWS("PAUSED");
	subject_do(&s, SUBJECT_WORK);
	tmux("send-keys h"); /* drawn anew, with what was seen before */
	SHOWS("this help");
	tmux("send-keys x");
	SHOWS(text_of(" %u\n", WORK_NOPS));
	tmux("send-keys Space");
	SHOWS(text_of(" %u\n", 2 * WORK_NOPS));
	SHOWS("queued ");
	ck_assert_ptr_null(strstr(screen, "▁")); /* not in this locale */
	subject_end(&s);
}
END_TEST

START_TEST(any_size_of_terminal_will_do)
{
	static const int sizes[][2] = { { 200, 50 }, { 80, 24 }, { 60, 12 }, { 40, 8 }, { 20, 5 }, { 8, 3 }, { 2, 2 }, { 120, 30 } };
	struct subject s = start_subject(work_nops);
	unsigned i;

	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d", (int)s.pid));
	SHOWS("  W STATE ");
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		tmux("resize-window -x %d -y %d", sizes[i][0], sizes[i][1]);
		if (sizes[i][0] >= 20)
			SHOWS(" martlet top");
		if (sizes[i][0] >= 40)
			SHOWS("  W STATE ");
		tmux("send-keys h");
		tmux("send-keys Down x Enter");
		tmux("send-keys Escape");
	}
	SHOWS("  W STATE ");
	SHOWS("nop ");
	tmux("send-keys q");
	SHOWS("status 0");
	subject_end(&s);
}
END_TEST

START_TEST(a_worker_that_gets_stuck_is_shown)
{
	struct subject s = start_subject(work_nops);

	start("LC_ALL=C.UTF-8", 160, 30, text_of("%d", (int)s.pid));
	SHOWS("PARK");
	subject_do(&s, SUBJECT_OTHER);
	SHOWS("STUCK");
	SHOWS(stuck_exactly()); /* timing was full while it looked */
	subject_kill(&s);
}
END_TEST

START_TEST(a_process_may_end_while_it_is_looked_at)
{
	struct subject s = start_subject(work_nops);

	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d", (int)s.pid));
	SHOWS("  W STATE ");
	SHOWS("0 ops/s, p50 -, p99 -, p99.9 -");
	subject_kill(&s);
	SHOWS("This runtime has ended");
	SHOWS("  W STATE ");
	tmux("send-keys Enter");
	SHOWS("This runtime has ended");
	tmux("send-keys Escape Escape");
	SHOWS("0 runtimes;");
	SHOWS("no Martlet runtime");
	tmux("send-keys Enter Down Escape q");
	SHOWS("status 0");
}
END_TEST

/* How it ends does not matter: a key, a signal, kill -9. */
START_TEST(timing_goes_back_to_what_was_set_however_it_ends)
{
	struct subject s = start_subject(work_nops);
	struct observe o;
	uint64_t until;
	int pid;

	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d", (int)s.pid));
	ITEST_WAIT(__atomic_load_n(&o.ctl->watched_until_ns, __ATOMIC_RELAXED) > mrt_now(), WAIT_MS);
	pid = pid_of_it();
	switch (_i) {
	case 0:
		tmux("send-keys q");
		SHOWS("status 0");
		break;
	case 1:
		ck_assert_int_eq(kill(pid, SIGTERM), 0);
		SHOWS("status 0");
		break;
	default:
		ck_assert_int_eq(kill(pid, SIGKILL), 0);
		ITEST_WAIT(kill(pid, 0) != 0, WAIT_MS); /* the shell has collected it */
		break;
	}
	until = o.ctl->watched_until_ns;
	ck_assert_uint_lt(until, mrt_now() + MRT_SEC(4));
	ck_assert_uint_eq(o.ctl->poll_timing, MRT_TIMING_SAMPLED); /* was never touched */
	ck_assert_uint_eq(o.ctl->op_timing, MRT_TIMING_SAMPLED);
	ITEST_WAIT(mrt_now() > until, WAIT_MS);
	ck_assert_uint_eq(o.ctl->watched_until_ns, until);
	observe_close(&o);
	subject_end(&s);
}
END_TEST

/* @return false: they cannot be shown here */
static bool open_tasks(const char *key)
{
	uint64_t until = mrt_now() + MRT_MS(WAIT_MS);

	tmux("send-keys %s", key);
	while (!shows("probes are listened to") && !shows("tasks cannot be shown: ")) {
		ck_assert_msg(mrt_now() < until, "nothing happens: %s", screen);
		itest_pause();
	}
	return !shows("tasks cannot be shown: ");
}

START_TEST(tasks_are_shown_one_by_one)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = do_yields, .other = note_listeners };
	struct subject s = subject_start(&so);
	int pid;

	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d", (int)s.pid));
	SHOWS("  W STATE ");
	pid = pid_of_it();
	if (!open_tasks("t")) {
		printf("skipped: no BPF programs here: %s\n", screen);
		subject_end(&s);
		return;
	}
	SHOWS("WARN                       ID STATE   NAME            TOTAL     BUSY    SCHED     IDLE    POLLS FUNCTION");
	SHOWS("IDLE    the sleeper "); /* it was there before */
	subject_do(&s, SUBJECT_OTHER);
	ck_assert_uint_gt(s.note, 0);
	subject_do(&s, SUBJECT_WORK);
	SHOWS("self-wakes ");
	SHOWS(" DONE    -  ");
	SHOWS(text_of(" %u %s", YIELDS + 1, symbols_has_names() ? "yields_poll" : "test_top_screen"));
	SHOWS("; 0 dropped, 0 not shown, 0 events lost");
	ITEST_WAIT(shows_above("the sleeper ", "self-wakes "), WAIT_MS); /* the longest total first */
	tmux("send-keys '<' '<' '<' '<' I"); /* by warning, those with one first */
	tmux("send-keys Home Enter");
	SHOWS(text_of("polls %u, %u without a wake", YIELDS + 1, YIELDS));
	SHOWS("! self-wakes: ");
	SHOWS(text_of("polls: %u, p50 ", YIELDS + 1));
	SHOWS(text_of("waits from the wake to the poll: %u, p50 ", YIELDS + 1));
	SHOWS("|*");
	tmux("send-keys h");
	SHOWS("SCHED     of that, runnable");
	tmux("send-keys x f");
	SHOWS("tasks by function");
	tmux("send-keys t");
	SHOWS("the sleeper ");
	/* however it ends: nobody listens any more */
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ITEST_WAIT((subject_do(&s, SUBJECT_OTHER), s.note == 0), WAIT_MS);
	tmux("kill-server");
	server++;
	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d", (int)s.pid));
	SHOWS("  W STATE ");
	ck_assert(open_tasks("t"));
	SHOWS("IDLE    the sleeper ");
	subject_kill(&s);
	SHOWS("This runtime has ended; below is what was seen last");
	SHOWS("the sleeper ");
}
END_TEST

START_TEST(tasks_are_shown_by_function_while_it_listens)
{
	struct subject s = start_subject(work_nops);
	unsigned held;

	start("LC_ALL=C.UTF-8", 120, 30, text_of("%d", (int)s.pid));
	SHOWS("  W STATE ");
	held = bpf_fds_nr(pid_of_it());
	if (!open_tasks("f")) {
		printf("skipped: no BPF programs here: %s\n", screen);
	} else {
		SHOWS("tasks by function");
		SHOWS("no task was polled since");
		subject_do(&s, SUBJECT_WORK);
		SHOWS(symbols_has_names() ? " 1        1 nopper_poll" : " 1        1 "); /* spawned, ended */
		subject_do(&s, SUBJECT_WORK);
		SHOWS(symbols_has_names() ? " 2        2 nopper_poll" : " 2        2 ");
		SHOWS("; 0 events lost");
		tmux("send-keys h");
		SHOWS("WAIT99    ");
		ck_assert_uint_gt(bpf_fds_nr(pid_of_it()), held);
		tmux("send-keys x Escape");
		SHOWS("  W STATE ");
		ITEST_WAIT(bpf_fds_nr(pid_of_it()) == held, WAIT_MS); /* nobody listens any more */
		tmux("send-keys f");
		SHOWS("no task was polled since"); /* anew */
		SHOWS_NOT("This runtime has ended");
	}
	subject_kill(&s);
	SHOWS("This runtime has ended");
	tmux("send-keys q");
	SHOWS("status 0");
}
END_TEST

START_TEST(a_user_without_capabilities_sees_its_own)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = 0, .work = work_nops, .other = work_get_stuck };
	struct subject s;

	if (geteuid() != 0 || system("setpriv --version >/dev/null 2>&1")) {
		printf("skipped: this needs root and setpriv\n");
		return;
	}
	s = subject_start(&so);
	start("LC_ALL=C.UTF-8 setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all", 120, 30,
	      text_of("%d", (int)s.pid));
	SHOWS("statistics in memfd");
	SHOWS("timed: all while this looks");
	SHOWS("  W STATE ");
	tmux("send-keys t");
	SHOWS("tasks cannot be shown: ");
	tmux("send-keys Down");
	SHOWS_NOT("tasks cannot be shown: ");
	subject_do(&s, SUBJECT_OTHER);
	SHOWS(stuck_exactly());
	subject_kill(&s);
}
END_TEST

START_TEST(a_terminal_that_is_not_known_is_said)
{
	struct subject s = start_subject(work_nops);

	start("TERM=nonsense", 120, 30, text_of("%d", (int)s.pid));
	SHOWS("terminal 'nonsense' is not known here");
	SHOWS("status 1");
	subject_end(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("top_screen");
	TCase *tc;

	itest_need_io_uring();
	if (access(MARTLET, X_OK)) {
		printf("skipped: the command was not built\n");
		return ITEST_SKIP;
	}
	if (system("tmux -V >/dev/null 2>&1")) {
		printf("skipped: there is no tmux (apt-get install tmux)\n");
		return ITEST_SKIP;
	}
	if (system(MARTLET " top </dev/null 2>&1 | grep -q ncursesw") == 0) {
		printf("skipped: the command was built without ncursesw\n");
		return ITEST_SKIP;
	}
	tc = tcase_create("screen");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 4 * ITEST_LIMIT_S);
	tcase_add_test(tc, views_follow_the_keys);
	tcase_add_test(tc, tables_are_sorted_and_scrolled_sideways);
	tcase_add_test(tc, a_pause_stops_the_looks);
	tcase_add_test(tc, any_size_of_terminal_will_do);
	tcase_add_test(tc, a_worker_that_gets_stuck_is_shown);
	tcase_add_test(tc, a_process_may_end_while_it_is_looked_at);
	tcase_add_loop_test(tc, timing_goes_back_to_what_was_set_however_it_ends, 0, 3);
	tcase_add_test(tc, tasks_are_shown_one_by_one);
	tcase_add_test(tc, tasks_are_shown_by_function_while_it_listens);
	tcase_add_test(tc, a_user_without_capabilities_sees_its_own);
	tcase_add_test(tc, a_terminal_that_is_not_known_is_said);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
