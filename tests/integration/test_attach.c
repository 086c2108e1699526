/* SPDX-License-Identifier: MIT */
/*
 * Runtimes of other processes as `martlet top` and its kin find them (tools/attach.h): with all capabilities, with CAP_BPF
 * alone, with none, through pins that can only be read; several runtimes of a process, processes of another PID namespace;
 * and what must be refused: what the dead have left, numbers that were used again, inherited descriptors, other versions of the
 * library, files that lie about their size.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"
#include "observe.h"
#include "subject.h"
#include "work.h"

#include "attach.h"
#include "proc.h"

#define PINS "/sys/fs/bpf/mrt"
#define FAKES_NR 65u            /* one more than of a process are looked at */
#define CHANGES_SEEN_NR 3000u

static bool has_bpf;

static uint64_t sum_polls(const struct attach *a)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < a->workers_nr; i++)
		sum += a->workers[i].polls;
	return sum;
}

static uint64_t sum_timed(const struct attach *a)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < a->workers_nr; i++)
		sum += a->hists[i].polls_timed;
	return sum;
}

/* Scan for one process. */
static struct attach_set scan(pid_t pid)
{
	struct attach_set set = { 0 };
	int one = (int)pid;

	ck_assert_int_eq(attach_scan(&set, &one, 1), 0);
	return set;
}

static void check_refused(pid_t pid, const char *part)
{
	struct attach_set set = scan(pid);
	char buf[256];

	ck_assert_uint_eq(set.nr, 0);
	ck_assert_msg(strstr(attach_why_not(&set, (int)pid, buf, sizeof(buf)), part) != NULL, "'%s' is not in: %s", part,
		      attach_why_not(&set, (int)pid, buf, sizeof(buf)));
	attach_set_close(&set);
}

/* Neither the process is there, nor what it had. */
static bool is_gone(pid_t pid)
{
	struct attach_set set = scan(pid);
	char buf[256];
	bool gone = set.nr == 0 && strstr(attach_why_not(&set, (int)pid, buf, sizeof(buf)), "there is no process");

	attach_set_close(&set);
	return gone;
}

/* ---- who may look at whom ---- */

/* A viewer is a child: 0, or the line where it was wrong. */
#define CHECK(c)                                                                                        \
	do {                                                                                            \
		if (!(c)) {                                                                             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #c);                                 \
			return 1;                                                                       \
		}                                                                                       \
	} while (0)

struct viewer {
	uint64_t caps;
	const struct subject *s;
	const char *from;               /* in how it was found; NULL: not at all */
	const char *why;                /* then */
	bool is_mapped, may_control;
};

static int view(void *ctx)
{
	const struct viewer *v = ctx;
	struct attach_set set = { 0 };
	int pid = (int)v->s->pid;
	char buf[256];
	struct attach *a;

	if (v->caps != SUBJECT_CAPS_ALL)
		subject_become_nobody(v->caps);
	CHECK(attach_scan(&set, &pid, 1) == 0);
	if (!v->from) {
		CHECK(set.nr == 0);
		fprintf(stderr, "%s\n", attach_why_not(&set, pid, buf, sizeof(buf)));
		CHECK(strstr(attach_why_not(&set, pid, buf, sizeof(buf)), v->why));
		return 0;
	}
	if (set.nr == 0)
		fprintf(stderr, "%s\n", attach_why_not(&set, pid, buf, sizeof(buf)));
	CHECK(set.nr == 1);
	a = set.items[0];
	fprintf(stderr, "%s\n", a->from);
	CHECK(strstr(a->from, v->from));
	CHECK(a->pid == pid && a->global.pid == (uint32_t)pid);
	CHECK(strcmp(a->label, "itest") == 0);
	CHECK(strcmp(a->backend, v->s->backend) == 0);
	CHECK(a->is_mapped == v->is_mapped);
	CHECK(a->may_control == v->may_control);
	CHECK(a->workers_nr == 2 && a->workers[1].index == 1);
	CHECK(sum_polls(a) == WORK_POLLS);
	CHECK(attach_read(a) == 0);
	CHECK(sum_polls(a) == WORK_POLLS);
	CHECK(a->ctl.poll_timing == MRT_TIMING_SAMPLED);
	CHECK(a->ctl.watched_until_ns == 0);
	CHECK(attach_watch(a, 12345) == (v->may_control ? 0 : -EACCES));
	CHECK(attach_read(a) == 0);
	CHECK(a->ctl.watched_until_ns == (v->may_control ? 12345 : 0));
	attach_set_close(&set);
	return 0;
}

#define CAP(nr) (UINT64_C(1) << (nr))

static const struct {
	const char *name;
	uint64_t subject_caps, viewer_caps;
	uint32_t flags;
	const char *from, *why;
	bool needs_bpf, may_control;
} view_cases[] = {
	{ "root at root's maps", SUBJECT_CAPS_ALL, SUBJECT_CAPS_ALL, 0, "maps", NULL, true, true },
	{ "root at a memfd", SUBJECT_CAPS_ALL, SUBJECT_CAPS_ALL, MRT_RUNTIME_STATS_MEMFD, "memfd", NULL, false, true },
	{ "root at another's memfd", 0, SUBJECT_CAPS_ALL, 0, "memfd", NULL, false, true },
	{ "CAP_BPF at CAP_BPF's maps", CAP(CAP_BPF), CAP(CAP_BPF), 0, "its descriptors", NULL, true, true },
	{ "who may trace, at root's maps", SUBJECT_CAPS_ALL, CAP(CAP_SYS_PTRACE) | CAP(CAP_DAC_READ_SEARCH), 0,
	  "its descriptors", NULL, true, true },
	{ "CAP_BPF at the same user's memfd", 0, CAP(CAP_BPF), 0, "memfd", NULL, false, true },
	{ "nobody at its own memfd", 0, 0, 0, "memfd", NULL, false, true },
	{ "nobody at root's maps", SUBJECT_CAPS_ALL, 0, 0, NULL, "may not look into process", true, false },
	{ "nobody at root's memfd", SUBJECT_CAPS_ALL, 0, MRT_RUNTIME_STATS_MEMFD, NULL, "may not look into process", false, false },
};

START_TEST(what_is_allowed_decides_how_it_is_found)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = view_cases[_i].subject_caps, .flags = view_cases[_i].flags,
				   .work = work_polls };
	struct viewer v = { .caps = view_cases[_i].viewer_caps, .from = view_cases[_i].from, .why = view_cases[_i].why,
			    .is_mapped = true, .may_control = view_cases[_i].may_control };
	struct subject s;

	if (geteuid() != 0 || (view_cases[_i].needs_bpf && !has_bpf)) {
		printf("%s: skipped: this process cannot give it\n", view_cases[_i].name);
		return;
	}
	s = subject_start(&so);
	v.s = &s;
	itest_child_ok(view, &v);
	subject_end(&s);
}
END_TEST

START_TEST(a_pin_is_read_without_being_mapped)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = MRT_RUNTIME_STATS_PIN,
				   .work = work_polls };
	static const char *const names[] = { "mrt_workers", "mrt_hists", "mrt_global", "mrt_ctl" };
	struct viewer v = { .caps = 0, .from = "read by system calls" };
	struct subject s;
	char path[128];
	unsigned i;

	if (!has_bpf || fixture_privileged() || mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0755")) {
		printf("skipped: no maps, or no bpffs of our own\n");
		return;
	}
	s = subject_start(&so);
	v.s = &s;
	for (i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), PINS "/%d/%s", (int)s.pid, names[i]);
		ck_assert_int_eq(chmod(path, 0444), 0);
	}
	itest_child_ok(view, &v);
	subject_end(&s);
}
END_TEST

/* ---- what is there, and what ends ---- */

static struct mrt_runtime *further;

static void make_further(struct mrt_runtime *rt)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);

	(void)rt;
	if (further)
		mrt_runtime_destroy(further);
	opts.flags |= MRT_RUNTIME_STATS_MEMFD;
	further = itest_create(&opts);
}

START_TEST(several_runtimes_of_a_process_are_told_apart)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0,
				   .work = work_polls, .other = make_further };
	struct subject s = subject_start(&so);
	struct attach_set set = { 0 };
	int pid = (int)s.pid;

	subject_do(&s, SUBJECT_OTHER);
	ck_assert_int_eq(attach_scan(&set, &pid, 1), 0);
	ck_assert_uint_eq(set.nr, 2);
	ck_assert_str_eq(set.items[0]->label, "itest");
	ck_assert_str_eq(set.items[1]->label, "itest-2");
	ck_assert_uint_eq(sum_polls(set.items[0]), WORK_POLLS);
	ck_assert_uint_eq(sum_polls(set.items[1]), 0);
	ck_assert_uint_eq(set.items[1]->workers_nr, 1);
	ck_assert_int_eq(attach_scan(&set, &pid, 1), 0); /* the same, once */
	ck_assert_uint_eq(set.nr, 2);

	subject_do(&s, SUBJECT_OTHER); /* the further one goes, another comes */
	ck_assert_int_eq(attach_scan(&set, &pid, 1), 0);
	ck_assert_uint_eq(set.nr, 3);
	ck_assert_int_eq(attach_read(set.items[0]), 0);
	ck_assert_int_eq(attach_read(set.items[1]), -ENOENT);
	ck_assert_int_eq(attach_read(set.items[2]), 0);
	attach_set_drop(&set, 1);
	ck_assert_str_eq(set.items[1]->label, "itest-3");

	subject_kill(&s);
	ck_assert_int_eq(attach_read(set.items[0]), -ESRCH);
	ck_assert_int_eq(attach_read(set.items[1]), -ESRCH);
	attach_set_close(&set);
	ITEST_WAIT(is_gone(pid), 10000); /* the kernel frees a dead process's maps when it gets to it */
}
END_TEST

START_TEST(a_process_is_found_among_all)
{
	struct subject_opts so = { .kind = ITEST_CURRENT, .caps = SUBJECT_CAPS_ALL, .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0,
				   .work = work_polls };
	struct subject s = subject_start(&so);
	struct attach_set set = { 0 };
	unsigned i, nr = 0;

	ck_assert_int_eq(attach_scan(&set, NULL, 0), 0);
	for (i = 0; i < set.nr; i++) {
		if (set.items[i]->pid == (int)s.pid && sum_polls(set.items[i]) == WORK_POLLS)
			nr++;
	}
	ck_assert_uint_eq(nr, 1);
	attach_set_close(&set);
	subject_end(&s);
}
END_TEST

static bool all_are_parked(struct attach *a)
{
	unsigned i;

	ck_assert_int_eq(attach_read(a), 0);
	for (i = 0; i < a->workers_nr && a->workers[i].state == MRT_WORKER_PARKED; i++)
		continue;
	return i == a->workers_nr;
}

/* Polls that were timed of a round of work, at whose begin all workers have seen the control word: they look when they wake. */
static uint64_t timed_in_a_round(struct attach *a, struct subject *s)
{
	uint64_t before;

	ITEST_WAIT(all_are_parked(a), 10000);
	subject_do(s, SUBJECT_WORK);
	ck_assert_int_eq(attach_read(a), 0);
	before = sum_timed(a);
	subject_do(s, SUBJECT_WORK);
	ck_assert_int_eq(attach_read(a), 0);
	return sum_timed(a) - before;
}

START_TEST(all_is_timed_while_somebody_looks_and_not_after)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0,
				   .work = work_polls };
	struct subject s = subject_start(&so);
	struct attach_set set = scan(s.pid), other = scan(s.pid);
	uint64_t until = mrt_now() + MRT_MS(100), before;

	ck_assert_uint_eq(set.nr, 1);
	ck_assert_uint_lt(timed_in_a_round(set.items[0], &s), WORK_POLLS / 2);
	ck_assert_int_eq(attach_watch(set.items[0], mrt_now() + MRT_SEC(3600)), 0);
	ck_assert_uint_eq(timed_in_a_round(set.items[0], &s), WORK_POLLS);
	/* another viewer, that wants less, takes nothing away */
	before = set.items[0]->ctl.watched_until_ns;
	ck_assert_uint_gt(before, until);
	ck_assert_int_eq(attach_watch(other.items[0], until), 0);
	ck_assert_int_eq(attach_read(other.items[0]), 0);
	ck_assert_uint_eq(other.items[0]->ctl.watched_until_ns, before);
	ck_assert_uint_eq(timed_in_a_round(set.items[0], &s), WORK_POLLS);
	attach_set_close(&set);
	attach_set_close(&other);
	subject_end(&s);

	s = subject_start(&so);
	set = scan(s.pid);
	ck_assert_int_eq(attach_watch(set.items[0], until), 0);
	ITEST_WAIT(mrt_now() > until, 5000); /* and then it was killed, say */
	ck_assert_uint_lt(timed_in_a_round(set.items[0], &s), WORK_POLLS / 2);
	attach_set_close(&set);
	subject_end(&s);
}
END_TEST

ITEST_CHILD(spinner, { int unused; })
{
	(void)self;
	(void)f;
	for (;;)
		itest_pause();
	return MRT_POLL_PENDING;
}

/* One of two workers never parks again. */
static void spin_forever(struct mrt_runtime *rt)
{
	mrt_detach(itest_spawn(rt, spinner_poll, NULL, sizeof(struct spinner)));
}

START_TEST(times_are_those_of_the_moment_without_a_park)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0,
				   .work = spin_forever };
	struct subject s = subject_start(&so);
	struct attach_set set = scan(s.pid);
	struct attach *a = set.items[0];
	uint64_t busy[2], park[2], began;
	unsigned i, spinning = 2;

	ITEST_WAIT(attach_read(a) == 0 && ((a->workers[0].poll_fn && a->workers[1].state == MRT_WORKER_PARKED) ||
					   (a->workers[1].poll_fn && a->workers[0].state == MRT_WORKER_PARKED)), 10000);
	for (i = 0; i < 2; i++) {
		busy[i] = a->workers[i].busy_ns;
		park[i] = a->workers[i].park_ns;
		if (a->workers[i].poll_fn)
			spinning = i;
	}
	began = a->read_ns;
	/* the other one is the sentry, and wakes now and then for a moment, which is long only where it gets no CPU */
	do {
		itest_pause();
		ck_assert_int_eq(attach_read(a), 0);
		ck_assert_uint_eq(a->workers[spinning].busy_ns - busy[spinning], a->read_ns - began);
		ck_assert_uint_eq(a->workers[spinning].park_ns, park[spinning]);
		ck_assert_uint_lt(a->read_ns, began + MRT_SEC(20));
	} while (a->read_ns < began + MRT_MS(50) ||
		 a->workers[!spinning].park_ns - park[!spinning] <= a->workers[!spinning].busy_ns - busy[!spinning]);
	attach_set_close(&set);
	subject_kill(&s);
}
END_TEST

/* ---- another PID namespace ---- */

START_TEST(a_process_of_another_pid_namespace_has_the_number_that_we_see)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = _i & 1 ? MRT_RUNTIME_STATS_MEMFD : 0,
				   .work = work_polls, .own_proc = _i & 2 };
	int home = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	struct attach_set set;
	struct subject s;

	if (unshare(CLONE_NEWPID)) {
		printf("skipped: unshare: %s\n", strerror(errno));
		return;
	}
	s = subject_start(&so); /* fork gives our number of it; it has 1 */
	set = scan(s.pid);
	ck_assert_uint_eq(set.nr, 1);
	ck_assert_int_eq(set.items[0]->pid, s.pid);
	ck_assert_uint_eq(set.items[0]->global.pid, 1);
	ck_assert_uint_eq(sum_polls(set.items[0]), WORK_POLLS);
	ck_assert_int_eq(attach_read(set.items[0]), 0);
	attach_set_close(&set);
	subject_kill(&s); /* a leak check at its end does not work as process 1 */
	ck_assert_int_eq(setns(home, CLONE_NEWPID), 0); /* nor in a process that cannot have children */
	close(home);
}
END_TEST

/* ---- what must be refused ---- */

START_TEST(what_the_dead_have_left_is_refused)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = MRT_RUNTIME_STATS_PIN };
	struct attach_set set = { 0 };
	struct subject s;
	unsigned i;
	bool told = false;

	if (!has_bpf || fixture_privileged() || mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0755")) {
		printf("skipped: no maps, or no bpffs of our own\n");
		return;
	}
	s = subject_start(&so);
	subject_kill(&s);
	ck_assert_int_eq(access(PINS, F_OK), 0);
	ck_assert_int_eq(attach_scan(&set, NULL, 0), 0);
	for (i = 0; i < set.nr; i++)
		ck_assert_int_ne(set.items[i]->pid, s.pid);
	for (i = 0; i < set.refusals_nr && i < ATTACH_REFUSALS_MAX; i++)
		told |= set.refusals[i].pid == (int)s.pid && strstr(set.refusals[i].why, "has ended") != NULL;
	ck_assert(told);
	attach_set_close(&set);
}
END_TEST

START_TEST(a_number_that_was_used_again_is_refused)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL };
	struct attach_set set;
	struct subject s;
	struct observe o;

	if (!has_bpf) {
		printf("skipped: no maps here\n");
		return;
	}
	s = subject_start(&so);
	set = scan(s.pid);
	ck_assert_uint_eq(set.nr, 1);
	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	((struct mrt_global_stats *)o.mem[2])->start_ticks--; /* as if an earlier process had made it */
	observe_close(&o);
	ck_assert_int_eq(attach_read(set.items[0]), 0); /* it knows better */
	attach_set_close(&set);
	check_refused(s.pid, "used again");
	subject_end(&s);
}
END_TEST

START_TEST(a_child_that_inherited_the_descriptors_has_no_runtime)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);
	struct mrt_runtime *rt;
	struct attach_set set;
	pid_t child;

	if (_i)
		opts.flags |= MRT_RUNTIME_STATS_MEMFD;
	rt = itest_create(&opts);
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	check_refused(child, "shows no Martlet runtime");
	set = scan(getpid());
	ck_assert_uint_eq(set.nr, 1);
	attach_set_close(&set);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	mrt_runtime_destroy(rt);
}
END_TEST

#define FAKE_BYTES 40960u

static const struct mrt_stats_file good_file = {
	.magic = MRT_STATS_MAGIC, .version = MRT_STATS_VERSION, .workers_nr = 2, .workers_off = 4096,
	.worker_bytes = sizeof(struct mrt_worker_stats), .hists_off = 8192, .hist_bytes = sizeof(struct mrt_worker_hists),
	.global_off = 32768, .global_bytes = sizeof(struct mrt_global_stats), .ctl_off = 36864,
	.ctl_bytes = sizeof(struct mrt_ctl),
};

/* A memfd of that name in this process, with this header. */
static int fake_file(const struct mrt_stats_file *f, size_t bytes, bool sealed)
{
	int fd = memfd_create("mrt_workers", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	ck_assert_int_ge(pwrite(fd, f, bytes < sizeof(*f) ? bytes : sizeof(*f), 0), 1);
	if (sealed)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

START_TEST(a_memfd_is_looked_at_before_it_is_believed)
{
	const struct mrt_stats_file good = good_file;
	struct mrt_stats_file bad = good;
	int fd = fake_file(&good, FAKE_BYTES, false);

	check_refused(getpid(), "would be sealed");
	close(fd);
	fd = fake_file(&good, 16, true);
	check_refused(getpid(), "would be sealed");
	close(fd);
	bad.magic++;
	fd = fake_file(&bad, FAKE_BYTES, true);
	check_refused(getpid(), "has not begun");
	close(fd);
	bad = good;
	bad.version++;
	fd = fake_file(&bad, FAKE_BYTES, true);
	check_refused(getpid(), "another version of libmartlet");
	close(fd);
	bad = good;
	bad.worker_bytes += 128;
	fd = fake_file(&bad, FAKE_BYTES, true);
	check_refused(getpid(), "this program (martlet ");
	close(fd);
	bad = good;
	bad.workers_nr = 60000;
	fd = fake_file(&bad, FAKE_BYTES, true);
	check_refused(getpid(), "says that it has 60000 workers");
	close(fd);
	bad.workers_nr = 600;
	fd = fake_file(&bad, FAKE_BYTES, true);
	check_refused(getpid(), "smaller than it says");
	close(fd);
	bad = good;
	bad.ctl_off = 40952;
	fd = fake_file(&bad, FAKE_BYTES, true);
	check_refused(getpid(), "smaller than it says");
	close(fd);
	bad = good;
	bad.global_off = 32769;
	fd = fake_file(&bad, FAKE_BYTES, true);
	check_refused(getpid(), "smaller than it says");
	close(fd);
	fd = fake_file(&good, FAKE_BYTES, true); /* well formed, but nobody's: all zeros */
	check_refused(getpid(), "shows no Martlet runtime");
	close(fd);
}
END_TEST

/* A memfd that is this process's runtime to all appearance. */
struct fake {
	int fd;
	char *mem;
	struct mrt_stats_file *f;
	struct mrt_global_stats *g;
};

static struct fake fake_runtime(uint64_t created_ns)
{
	struct fake k = { .fd = fake_file(&good_file, FAKE_BYTES, true) };

	k.mem = mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, k.fd, 0);
	ck_assert(k.mem != MAP_FAILED);
	k.f = (void *)k.mem;
	k.g = (void *)(k.mem + good_file.global_off);
	k.g->pid = (uint32_t)getpid();
	k.g->pid_ns = proc_own_pid_ns();
	k.g->start_ticks = proc_start_ticks(getpid());
	k.g->created_ns = created_ns;
	k.g->workers_nr = good_file.workers_nr;
	return k;
}

static void fake_end(struct fake *k)
{
	munmap(k->mem, FAKE_BYTES);
	close(k->fd);
}

static atomic_bool is_enough;

static void *keep_changing(void *arg)
{
	struct mrt_stats_file *f = arg;

	while (!atomic_load(&is_enough)) {
		__atomic_store_n(&f->workers_nr, 900, __ATOMIC_RELAXED);
		__atomic_store_n(&f->global_off, 1u << 30, __ATOMIC_RELAXED);
		__atomic_store_n(&f->workers_nr, good_file.workers_nr, __ATOMIC_RELAXED);
		__atomic_store_n(&f->global_off, good_file.global_off, __ATOMIC_RELAXED);
	}
	return NULL;
}

START_TEST(a_header_that_changes_while_it_is_read_is_read_once)
{
	struct fake k = fake_runtime(1);
	struct attach_set set;
	unsigned i;
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, keep_changing, k.f), 0);
	for (i = 0; i < CHANGES_SEEN_NR; i++) {
		set = scan(getpid());
		ck_assert_uint_le(set.nr, 1);
		if (set.nr)
			ck_assert_uint_eq(set.items[0]->workers_nr, good_file.workers_nr);
		attach_set_close(&set);
	}
	atomic_store(&is_enough, true);
	pthread_join(t, NULL);
	set = scan(getpid());
	ck_assert_uint_eq(set.nr, 1);
	attach_set_close(&set);
	fake_end(&k);
}
END_TEST

START_TEST(who_it_is_stays_what_it_was_when_it_was_opened)
{
	struct fake k = fake_runtime(1);
	uint64_t ticks = k.g->start_ticks;
	struct attach_set set = scan(getpid());
	int pid = (int)getpid(), i;

	ck_assert_uint_eq(set.nr, 1);
	for (i = 2; i < 10; i++) {
		k.g->created_ns = (uint64_t)i;
		k.g->start_ticks = 0;
		k.g->pid = (uint32_t)i;
		ck_assert_int_eq(attach_read(set.items[0]), 0);
		ck_assert_uint_eq(set.items[0]->global.created_ns, 1);
		ck_assert_uint_eq(set.items[0]->global.start_ticks, ticks);
		ck_assert_uint_eq(set.items[0]->global.pid, (unsigned)pid);
		k.g->pid = (uint32_t)pid;
		k.g->start_ticks = ticks;
		ck_assert_int_eq(attach_scan(&set, &pid, 1), 0);
		ck_assert_uint_eq(set.nr, 1); /* not once more under each name */
	}
	attach_set_close(&set);
	fake_end(&k);
}
END_TEST

START_TEST(a_process_cannot_fill_us_with_runtimes)
{
	struct fake fakes[FAKES_NR];
	struct attach_set set;
	char buf[256];
	unsigned i;

	for (i = 0; i < FAKES_NR; i++)
		fakes[i] = fake_runtime(i + 1);
	set = scan(getpid());
	ck_assert_uint_eq(set.nr, FAKES_NR - 1);
	ck_assert_ptr_nonnull(strstr(attach_why_not(&set, (int)getpid(), buf, sizeof(buf)), "more than 64 runtimes"));
	attach_set_close(&set);
	for (i = 0; i < FAKES_NR; i++)
		fake_end(&fakes[i]);
}
END_TEST

/* In a mount namespace of its own anything may have the name of a memfd. */
static void hold_fifo(int ready)
{
	char dir[] = "/tmp/mrt-fifo-XXXXXX";
	bool made;

	itest_alarm(ITEST_LIMIT_S);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || !mkdtemp(dir))
		_exit(77);
	made = mount("none", dir, "tmpfs", 0, NULL) == 0 && chdir(dir) == 0 && syscall(SYS_pivot_root, ".", ".") == 0;
	if (made && (umount2(".", MNT_DETACH) || chdir("/") || chmod("/", 0755) || mkfifo("/memfd:mrt_workers", 0444) ||
		     open("/memfd:mrt_workers", O_RDONLY | O_NONBLOCK) < 0))
		_exit(1);
	if (made)
		subject_become_nobody(0);
	(void)!write(ready, made ? "y" : "n", 1); /* else the other end sees the end */
	pause();
	_exit(0);
}

static int view_fifo(void *ctx)
{
	int pid = *(int *)ctx;
	struct attach_set set = { 0 };
	char buf[256];

	subject_become_nobody(0);
	CHECK(attach_scan(&set, &pid, 1) == 0); /* opened the wrong way it waits for a writer, until it is killed */
	CHECK(set.nr == 0);
	CHECK(strstr(attach_why_not(&set, pid, buf, sizeof(buf)), "not the statistics of a runtime"));
	return 0;
}

START_TEST(a_fifo_of_that_name_is_not_waited_for)
{
	int ready[2], pid;
	char made = 0;

	if (geteuid() != 0) {
		printf("skipped: this process cannot mount\n");
		return;
	}
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid = (int)fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		hold_fifo(ready[1]);
	close(ready[1]);
	if (read(ready[0], &made, 1) == 1 && made == 'y')
		itest_child_ok(view_fifo, &pid);
	else
		printf("skipped: no mount namespace with a root of its own\n");
	close(ready[0]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* With any number of descriptors it is found, or the lack of them is told. */
START_TEST(no_descriptors_left_is_an_error_and_not_an_empty_machine)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0 };
	struct subject s = subject_start(&so);
	unsigned nr, refused = 0;
	struct rlimit was, tight;
	int pid = (int)s.pid;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	tight = was;
	for (nr = 0; nr < 24; nr++) {
		struct attach_set set = { 0 };
		int err;

		tight.rlim_cur = nr;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
		err = attach_scan(&set, &pid, 1);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
		ck_assert_msg(err == -EMFILE || (err == 0 && set.nr == 1), "%u descriptors: %d, %u found", nr, err, set.nr);
		refused += err == -EMFILE;
		attach_set_close(&set);
	}
	ck_assert(refused >= 3 && refused < 24);
	subject_end(&s);
}
END_TEST

#define GLOBAL_BYTES sizeof(struct mrt_global_stats)

static const struct {
	unsigned type;
	size_t bytes;
	uint32_t version;
	const char *why;
} other_maps[] = {
	{ BPF_MAP_TYPE_ARRAY, GLOBAL_BYTES, MRT_STATS_VERSION + 1, "another version of libmartlet: its statistics are of version " },
	{ BPF_MAP_TYPE_ARRAY, GLOBAL_BYTES + 8, MRT_STATS_VERSION + 1, "another version of libmartlet: its statistics are of version " },
	{ BPF_MAP_TYPE_ARRAY, offsetof(struct mrt_global_stats, name), 1, "another version of libmartlet: its statistics are of version " },
	{ BPF_MAP_TYPE_ARRAY, GLOBAL_BYTES + 8, MRT_STATS_VERSION, "another version of libmartlet: its mrt_global has elements of" },
	{ BPF_MAP_TYPE_ARRAY, 16, MRT_STATS_VERSION, "shows no Martlet runtime" },
	{ BPF_MAP_TYPE_PERCPU_ARRAY, GLOBAL_BYTES, MRT_STATS_VERSION, "shows no Martlet runtime" }, /* gives a value a CPU */
};

START_TEST(a_map_of_another_version_is_refused_in_a_sentence)
{
	const struct mrt_global_stats g = { .version = other_maps[_i].version, .pid = (uint32_t)getpid(), .workers_nr = 2,
					    .pid_ns = proc_own_pid_ns(), .start_ticks = proc_start_ticks(getpid()) };
	char why[128], nr[16] = "";
	int fd;

	if (!has_bpf) {
		printf("skipped: no maps here\n");
		return;
	}
	fd = observe_fake_global(other_maps[_i].type, other_maps[_i].bytes, &g);
	if (other_maps[_i].version != MRT_STATS_VERSION)
		snprintf(nr, sizeof(nr), "%u,", other_maps[_i].version);
	snprintf(why, sizeof(why), "%s%s", other_maps[_i].why, nr);
	check_refused(getpid(), why);
	close(fd);
}
END_TEST

START_TEST(no_descriptor_is_left_behind)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0 };
	struct subject s = subject_start(&so);
	struct attach_set set = { 0 };
	unsigned before = itest_fds_nr(), i;

	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(attach_scan(&set, NULL, 0), 0);
		ck_assert_uint_ge(set.nr, 1);
		attach_set_close(&set);
	}
	ck_assert_uint_eq(itest_fds_nr(), before);
	subject_end(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("attach");
	TCase *tc;

	itest_need_io_uring();
	has_bpf = subject_has_bpf();
	tc = tcase_create("who may look");
	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_loop_test(tc, what_is_allowed_decides_how_it_is_found, 0,
			    (int)(sizeof(view_cases) / sizeof(view_cases[0])));
	tcase_add_test(tc, a_pin_is_read_without_being_mapped);
	suite_add_tcase(suite, tc);

	tc = tcase_create("what is there");
	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_loop_test(tc, several_runtimes_of_a_process_are_told_apart, 0, 2);
	tcase_add_loop_test(tc, a_process_is_found_among_all, 0, 2);
	tcase_add_loop_test(tc, all_is_timed_while_somebody_looks_and_not_after, 0, 2);
	tcase_add_loop_test(tc, times_are_those_of_the_moment_without_a_park, 0, 2);
	tcase_add_loop_test(tc, a_process_of_another_pid_namespace_has_the_number_that_we_see, 0, 4);
	tcase_add_loop_test(tc, no_descriptor_is_left_behind, 0, 2);
	suite_add_tcase(suite, tc);

	tc = tcase_create("refused");
	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_test(tc, what_the_dead_have_left_is_refused);
	tcase_add_test(tc, a_number_that_was_used_again_is_refused);
	tcase_add_loop_test(tc, a_child_that_inherited_the_descriptors_has_no_runtime, 0, 2);
	tcase_add_test(tc, a_memfd_is_looked_at_before_it_is_believed);
	tcase_add_test(tc, a_header_that_changes_while_it_is_read_is_read_once);
	tcase_add_test(tc, who_it_is_stays_what_it_was_when_it_was_opened);
	tcase_add_test(tc, a_process_cannot_fill_us_with_runtimes);
	tcase_add_test(tc, a_fifo_of_that_name_is_not_waited_for);
	tcase_add_loop_test(tc, no_descriptors_left_is_an_error_and_not_an_empty_machine, 0, 2);
	tcase_add_loop_test(tc, a_map_of_another_version_is_refused_in_a_sentence, 0,
			    (int)(sizeof(other_maps) / sizeof(other_maps[0])));
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
