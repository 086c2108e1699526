/* SPDX-License-Identifier: MIT */
/*
 * Statistics from outside. A child is the process that is looked at: with all capabilities, with CAP_BPF alone, with
 * CAP_BPF and CAP_PERFMON, with none, and with bpf(2) and memfd_create(2) filtered. It makes a number of polls that is
 * known, and then waits, hangs or is stopped; this process finds its maps or its memfd and compares. Nothing that is
 * missing may keep a runtime from starting.
 *
 * Not shown here: that what is written costs little (scripts/bench-observe).
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"
#include "observe.h"

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#define CAP_BPF 39
#endif
#define NOBODY 65534
#define TASKS 50u
#define YIELDS 20u
#define POLLS (TASKS * (YIELDS + 1))
#define PINS "/sys/fs/bpf/mrt"

static bool has_bpf;    /* found by trying: this process may make maps */
static bool has_bpftool;

static bool try_bpf(void)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .map_flags = BPF_F_MMAPABLE, .key_size = 4,
				.value_size = 8, .max_entries = 1 };
	long fd = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));

	if (fd >= 0)
		close((int)fd);
	return fd >= 0;
}

/* ---- the child that is looked at ---- */

#define CAPS_ALL UINT64_MAX     /* stay who we are */

struct subject_opts {
	int kind;
	uint32_t flags;
	uint64_t caps;                          /* become nobody with these */
	unsigned forbidden[2];                  /* system calls that fail with EPERM; 0: none */
	void (*work)(struct mrt_runtime *rt);   /* before it is looked at */
};

struct subject {
	pid_t pid;
	int to, from;
	char backend[16];
	uint64_t note;          /* what the work has left */
};

static atomic_uint_fast64_t note;

static void forbid(unsigned nr)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(9);
}

static void become_nobody(uint64_t caps)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { (uint32_t)caps, (uint32_t)caps, 0 },
					       { (uint32_t)(caps >> 32), (uint32_t)(caps >> 32), 0 } };

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY) || syscall(SYS_capset, &h, d) || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
		_exit(8);
}

static void subject_main(const struct subject_opts *so, int from, int to)
{
	struct mrt_runtime_opts opts = itest_opts(so->kind);
	struct subject s = { .pid = getpid() };
	struct mrt_runtime *rt;
	char byte;

	alarm(ITEST_LIMIT_S);
	opts.flags |= so->flags;
	if (so->caps != CAPS_ALL)
		become_nobody(so->caps);
	if (so->forbidden[0])
		forbid(so->forbidden[0]);
	if (so->forbidden[1])
		forbid(so->forbidden[1]);
	rt = itest_create(&opts);
	if (so->work)
		so->work(rt);
	snprintf(s.backend, sizeof(s.backend), "%s", mrt_stats_backend(rt));
	s.note = atomic_load(&note);
	if (write(to, &s, sizeof(s)) != sizeof(s) || read(from, &byte, 1) != 1)
		_exit(7);
	mrt_runtime_destroy(rt);
	_exit(0);
}

static struct subject subject_start(const struct subject_opts *so)
{
	struct subject s;
	int down[2], up[2];
	pid_t pid;

	ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(down[1]);
		close(up[0]);
		subject_main(so, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	ck_assert_msg(read(up[0], &s, sizeof(s)) == sizeof(s), "the subject did not start");
	s.pid = pid;
	s.to = down[1];
	s.from = up[0];
	return s;
}

static void subject_end(struct subject *s)
{
	int status;

	ck_assert_int_eq(write(s->to, "", 1), 1);
	ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
	ck_assert_msg(status == 0, "the subject ended with status %#x", status);
	close(s->to);
	close(s->from);
}

static void subject_kill(struct subject *s)
{
	ck_assert_int_eq(kill(s->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(s->pid, NULL, 0), s->pid);
	close(s->to);
	close(s->from);
}

/* ---- work with a number of polls that is known ---- */

ITEST_CHILD(yielder, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < YIELDS; f->i++)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

static void known_polls(struct mrt_runtime *rt)
{
	unsigned i;

	for (i = 0; i < TASKS; i++)
		ck_assert_int_eq(mrt_block_on(rt, yielder_poll, NULL, sizeof(struct yielder), NULL), 0);
}

static uint64_t sum_polls(const struct observe *o)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < o->workers_nr; i++)
		sum += __atomic_load_n(&o->workers[i].polls, __ATOMIC_RELAXED);
	return sum;
}

static void check_known(const struct subject *s)
{
	struct observe o;

	ck_assert_int_eq(observe_open(s->pid, &o), 0);
	ck_assert_uint_eq(sum_polls(&o), POLLS);
	ck_assert_uint_eq(o.global->pid, (unsigned)s->pid);
	ck_assert_uint_eq(o.global->workers_nr, o.workers_nr);
	ck_assert_uint_eq(o.workers[0].pid, (unsigned)s->pid);
	ck_assert_uint_ge(o.workers[0].sq_entries, 8);
	ck_assert_uint_gt(o.global->start_ticks, 0);
	ck_assert_uint_eq(o.global->spawns_outside, TASKS);
	ck_assert_int_eq(o.file != NULL, strcmp(s->backend, "memfd") == 0);
	observe_close(&o);
}

/* ---- capabilities ---- */

struct capability_case {
	const char *name;
	uint64_t caps;
	unsigned forbidden[2];
	const char *backend;
};

static const struct capability_case capability_cases[] = {
	{ "as this process", CAPS_ALL, { 0 }, "bpf" },
	{ "CAP_BPF", UINT64_C(1) << CAP_BPF, { 0 }, "bpf" },
	{ "CAP_BPF and CAP_PERFMON", UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON, { 0 }, "bpf" },
	{ "none", 0, { 0 }, "memfd" },
	{ "no bpf(2)", CAPS_ALL, { SYS_bpf }, "memfd" },
	{ "no bpf(2), no memfd_create(2)", CAPS_ALL, { SYS_bpf, SYS_memfd_create }, "heap" },
};
#define CAPABILITY_CASES_NR ((int)(sizeof(capability_cases) / sizeof(capability_cases[0])))

START_TEST(what_is_allowed_decides_where_the_statistics_are)
{
	const struct capability_case *c = &capability_cases[_i];
	struct subject_opts so = { .kind = ITEST_TWO, .caps = c->caps, .work = known_polls,
				   .forbidden = { c->forbidden[0], c->forbidden[1] } };
	struct subject s;

	if (c->caps != CAPS_ALL && (geteuid() != 0 || (c->caps && !has_bpf))) {
		printf("%s: skipped: this process cannot give it\n", c->name);
		return;
	}
	s = subject_start(&so);
	if (strcmp(c->backend, "bpf") == 0 && !has_bpf)
		ck_assert_str_eq(s.backend, "memfd");
	else
		ck_assert_str_eq(s.backend, c->backend);
	if (strcmp(s.backend, "heap") != 0)
		check_known(&s);
	subject_end(&s);
}
END_TEST

START_TEST(an_option_keeps_away_from_bpf)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = CAPS_ALL, .flags = MRT_RUNTIME_STATS_MEMFD,
				   .work = known_polls };
	struct subject s = subject_start(&so);

	ck_assert_str_eq(s.backend, "memfd");
	check_known(&s);
	subject_end(&s);
	so.flags = MRT_RUNTIME_STATS_HEAP;
	s = subject_start(&so);
	ck_assert_str_eq(s.backend, "heap");
	subject_end(&s);
}
END_TEST

START_TEST(every_flavour_counts_in_the_map)
{
	struct subject_opts so = { .kind = _i, .caps = CAPS_ALL, .work = known_polls };
	struct subject s = subject_start(&so);

	check_known(&s);
	subject_end(&s);
}
END_TEST

/* ---- bpftool alone ---- */

static char *output_of(const char *command)
{
	static char text[1 << 20];
	FILE *f = popen(command, "r");
	size_t nr;

	ck_assert_ptr_nonnull(f);
	nr = fread(text, 1, sizeof(text) - 1, f);
	text[nr] = '\0';
	ck_assert_msg(pclose(f) == 0, "%s: %s", command, text);
	return text;
}

START_TEST(bpftool_prints_typed_values)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = CAPS_ALL, .work = known_polls };
	unsigned long long sum = 0, polls;
	char command[128], *text, *p;
	struct subject s;
	struct observe o;

	if (!has_bpf || !has_bpftool) {
		printf("skipped: no maps here, or no bpftool\n");
		return;
	}
	s = subject_start(&so);
	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	snprintf(command, sizeof(command), "bpftool map dump id %u", o.map_ids[0]);
	text = output_of(command);
	ck_assert_ptr_nonnull(strstr(text, "\"state\": \"MRT_WORKER_PARKED\""));
	for (p = text; (p = strstr(p, "\"polls\": ")) != NULL; p++) {
		ck_assert_int_eq(sscanf(p, "\"polls\": %llu", &polls), 1);
		sum += polls;
	}
	ck_assert_uint_eq(sum, POLLS);
	text = output_of("bpftool map dump name mrt_workers");
	ck_assert_ptr_nonnull(strstr(text, "\"polls\": "));
	snprintf(command, sizeof(command), "bpftool map dump id %u", o.map_ids[3]);
	ck_assert_ptr_nonnull(strstr(output_of(command), "\"poll_timing\": \"MRT_TIMING_SAMPLED\""));
	snprintf(command, sizeof(command), "bpftool map dump id %u", o.map_ids[2]);
	ck_assert_ptr_nonnull(strstr(output_of(command), "\"tasks_alive\": 0"));
	observe_close(&o);
	subject_end(&s);
}
END_TEST

/* ---- a process that hangs, or is stopped ---- */

ITEST_CHILD(hanger, { int unused; })
{
	(void)self;
	(void)f;
	atomic_fetch_add(&note, 1);
	for (;;)
		pause();
	return MRT_POLL_PENDING;
}

static void hang(struct mrt_runtime *rt)
{
	unsigned nr = mrt_runtime_workers_nr(rt), i;

	known_polls(rt);
	for (i = 0; i < nr; i++)
		mrt_detach(itest_spawn(rt, hanger_poll, NULL, sizeof(struct hanger)));
	ITEST_WAIT(atomic_load(&note) == nr, 10000);
	atomic_store(&note, (uint64_t)(uintptr_t)hanger_poll);
}

START_TEST(a_process_that_hangs_shows_where)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = CAPS_ALL, .work = hang,
				   .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0 };
	struct subject s = subject_start(&so);
	uint64_t polls;
	struct observe o;
	unsigned i;

	ck_assert_int_eq(kill(s.pid, SIGSTOP), 0);
	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	polls = sum_polls(&o);
	ck_assert_uint_eq(polls, POLLS + o.workers_nr);
	for (i = 0; i < o.workers_nr; i++) {
		ck_assert_uint_eq(o.workers[i].poll_fn, s.note);
		ck_assert_uint_ne(o.workers[i].poll_task, 0);
		ck_assert_uint_gt(o.workers[i].turn_ns, 0);
		ck_assert_uint_lt(o.workers[i].turn_ns, mrt_now());
	}
	ck_assert_uint_eq(sum_polls(&o), polls);
	observe_close(&o);
	subject_kill(&s);
}
END_TEST

/* ---- pins ---- */

__attribute__((format(printf, 1, 2)))
static bool exists(const char *format, ...)
{
	char path[128];
	struct stat st;
	va_list ap;

	va_start(ap, format);
	vsnprintf(path, sizeof(path), format, ap);
	va_end(ap);
	return stat(path, &st) == 0;
}

/* A bpffs of our own, in a mount namespace of our own. */
static bool own_bpffs(void)
{
	return has_bpf && fixture_privileged() == 0 &&
	       mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700") == 0;
}

static const char *const map_names[] = { "mrt_workers", "mrt_hists", "mrt_global", "mrt_ctl" };

static void check_pinned(int pid, bool pinned)
{
	unsigned i;

	for (i = 0; i < 4; i++)
		ck_assert_msg(exists(PINS "/%d/%s", pid, map_names[i]) == pinned, "%d %s", pid, map_names[i]);
	ck_assert(exists(PINS "/%d", pid) == pinned);
}

START_TEST(pins_are_made_on_request_and_go_with_the_runtime)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = CAPS_ALL, .work = known_polls };
	struct subject s;

	if (!own_bpffs()) {
		printf("skipped: no maps, or no bpffs of our own\n");
		return;
	}
	s = subject_start(&so);
	check_pinned(s.pid, false);
	subject_end(&s);
	so.flags = MRT_RUNTIME_STATS_PIN;
	s = subject_start(&so);
	check_pinned(s.pid, true);
	subject_end(&s);
	check_pinned(s.pid, false);
}
END_TEST

START_TEST(pins_of_the_dead_are_removed_and_those_of_the_living_stay)
{
	struct subject_opts so = { .kind = ITEST_CURRENT, .caps = CAPS_ALL, .flags = MRT_RUNTIME_STATS_PIN };
	struct subject dead, reused, alive, next;
	char from[64], to[64];

	if (!own_bpffs()) {
		printf("skipped: no maps, or no bpffs of our own\n");
		return;
	}
	alive = subject_start(&so);
	dead = subject_start(&so);
	reused = subject_start(&so);
	subject_kill(&dead);
	subject_kill(&reused);
	check_pinned(dead.pid, true);
	/* the number of a process that lives (this one), with the start time of another */
	snprintf(from, sizeof(from), PINS "/%d", (int)reused.pid);
	snprintf(to, sizeof(to), PINS "/%d", (int)getpid());
	ck_assert_int_eq(rename(from, to), 0);
	ck_assert_int_eq(mkdir(PINS "/of-somebody-else", 0700), 0);
	ck_assert_int_eq(mkdir(PINS "/1", 0700), 0);

	next = subject_start(&so);
	check_pinned(dead.pid, false);
	check_pinned(getpid(), false);
	check_pinned(alive.pid, true);
	check_pinned(next.pid, true);
	ck_assert(exists(PINS "/of-somebody-else"));
	ck_assert(exists(PINS "/1")); /* nothing in it says whose it is */
	subject_end(&next);
	subject_end(&alive);
}
END_TEST

START_TEST(several_runtimes_of_a_process_have_folders_of_their_own)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);
	struct mrt_runtime *first, *second;

	if (!own_bpffs()) {
		printf("skipped: no maps, or no bpffs of our own\n");
		return;
	}
	opts.flags |= MRT_RUNTIME_STATS_PIN;
	first = itest_create(&opts);
	second = itest_create(&opts);
	check_pinned(getpid(), true);
	ck_assert(exists(PINS "/%d-2/mrt_ctl", getpid()));
	mrt_runtime_destroy(first);
	check_pinned(getpid(), false);
	ck_assert(exists(PINS "/%d-2/mrt_ctl", getpid()));
	mrt_runtime_destroy(second);
	ck_assert(!exists(PINS "/%d-2", getpid()));
}
END_TEST

START_TEST(pins_that_cannot_be_made_are_said_and_harm_nothing)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	struct mrt_runtime *rt;

	opts.flags |= MRT_RUNTIME_STATS_PIN | MRT_RUNTIME_STATS_MEMFD;
	rt = itest_create(&opts);
	ck_assert(itest_log_has("not pinned"));
	known_polls(rt);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(no_descriptor_is_left_behind)
{
	static const uint32_t flags[] = { 0, MRT_RUNTIME_STATS_MEMFD, MRT_RUNTIME_STATS_HEAP };
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	unsigned before = itest_fds_nr(), i;

	for (i = 0; i < 3 * 4; i++) {
		opts.flags = flags[i % 3];
		mrt_runtime_destroy(itest_create(&opts));
	}
	ck_assert_uint_eq(itest_fds_nr(), before);
}
END_TEST

static Suite *observe_suite(void)
{
	Suite *suite = suite_create("observe");
	TCase *tc = tcase_create("observe");

	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, what_is_allowed_decides_where_the_statistics_are, 0, CAPABILITY_CASES_NR);
	tcase_add_test(tc, an_option_keeps_away_from_bpf);
	tcase_add_loop_test(tc, every_flavour_counts_in_the_map, 0, ITEST_KINDS_NR);
	tcase_add_test(tc, bpftool_prints_typed_values);
	tcase_add_loop_test(tc, a_process_that_hangs_shows_where, 0, 2);
	tcase_add_test(tc, no_descriptor_is_left_behind);
	suite_add_tcase(suite, tc);

	tc = tcase_create("pins");
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_test(tc, pins_are_made_on_request_and_go_with_the_runtime);
	tcase_add_test(tc, pins_of_the_dead_are_removed_and_those_of_the_living_stay);
	tcase_add_test(tc, several_runtimes_of_a_process_have_folders_of_their_own);
	tcase_add_test(tc, pins_that_cannot_be_made_are_said_and_harm_nothing);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	itest_need_io_uring();
	has_bpf = try_bpf();
	has_bpftool = system("bpftool version >/dev/null 2>&1") == 0;
	return itest_main(observe_suite());
}
