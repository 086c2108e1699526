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
#include <linux/bpf.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"
#include "observe.h"
#include "subject.h"
#include "work.h"

#define PINS "/sys/fs/bpf/mrt"

static bool has_bpf;    /* found by trying: this process may make maps */
static bool has_bpftool;

static uint64_t sum_polls(const struct observe *o)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < o->workers_nr; i++)
		sum += __atomic_load_n(&o->workers[i].polls, __ATOMIC_RELAXED);
	return sum;
}

/* What workers add to sums is there, and whoever leaves its sleep looks at what is to be timed. */
static void wait_parked(const struct observe *o)
{
	unsigned i;

	for (i = 0; o->global->flavour == MRT_FLAVOUR_MULTI_THREAD && i < o->workers_nr; i++)
		ITEST_WAIT(__atomic_load_n(&o->workers[i].state, __ATOMIC_RELAXED) == MRT_WORKER_PARKED, 20000);
}

static void check_known(const struct subject *s)
{
	struct observe o;

	ck_assert_int_eq(observe_open(s->pid, &o), 0);
	ck_assert_uint_eq(sum_polls(&o), WORK_POLLS);
	ck_assert_uint_eq(o.global->pid, (unsigned)s->pid);
	ck_assert_uint_eq(o.global->workers_nr, o.workers_nr);
	ck_assert_uint_eq(o.workers[0].pid, (unsigned)s->pid);
	ck_assert_uint_ge(o.workers[0].sq_entries, 8);
	ck_assert_uint_gt(o.global->start_ticks, 0);
	ck_assert_uint_eq(o.global->spawns_outside, WORK_TASKS);
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
	{ "as this process", SUBJECT_CAPS_ALL, { 0 }, "bpf" },
	{ "CAP_BPF", UINT64_C(1) << CAP_BPF, { 0 }, "bpf" },
	{ "CAP_BPF and CAP_PERFMON", UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON, { 0 }, "bpf" },
	{ "none", 0, { 0 }, "memfd" },
	{ "no bpf(2)", SUBJECT_CAPS_ALL, { SYS_bpf }, "memfd" },
	{ "no bpf(2), no memfd_create(2)", SUBJECT_CAPS_ALL, { SYS_bpf, SYS_memfd_create }, "heap" },
};
#define CAPABILITY_CASES_NR ((int)(sizeof(capability_cases) / sizeof(capability_cases[0])))

START_TEST(what_is_allowed_decides_where_the_statistics_are)
{
	const struct capability_case *c = &capability_cases[_i];
	struct subject_opts so = { .kind = ITEST_TWO, .caps = c->caps, .work = work_polls,
				   .forbidden = { c->forbidden[0], c->forbidden[1] } };
	struct subject s;

	if (c->caps != SUBJECT_CAPS_ALL && (geteuid() != 0 || (c->caps && !has_bpf))) {
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
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .flags = MRT_RUNTIME_STATS_MEMFD,
				   .work = work_polls };
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
	struct subject_opts so = { .kind = _i, .caps = SUBJECT_CAPS_ALL, .work = work_polls };
	struct subject s = subject_start(&so);

	check_known(&s);
	subject_end(&s);
}
END_TEST

/* ---- bpftool alone ---- */

static char output[1 << 20];    /* of the last command */

static bool run_well(const char *command)
{
	FILE *f = popen(command, "r");
	size_t nr;

	ck_assert_ptr_nonnull(f);
	nr = fread(output, 1, sizeof(output) - 1, f);
	output[nr] = '\0';
	return pclose(f) == 0;
}

static char *output_of(const char *command)
{
	ck_assert_msg(run_well(command), "%s: %s", command, output);
	return output;
}

START_TEST(bpftool_prints_typed_values)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = work_polls };
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
	wait_parked(&o);
	snprintf(command, sizeof(command), "bpftool map dump id %u", o.map_ids[0]);
	text = output_of(command);
	ck_assert_ptr_nonnull(strstr(text, "\"state\": \"MRT_WORKER_PARKED\""));
	for (p = text; (p = strstr(p, "\"polls\": ")) != NULL; p++) {
		ck_assert_int_eq(sscanf(p, "\"polls\": %llu", &polls), 1);
		sum += polls;
	}
	ck_assert_uint_eq(sum, WORK_POLLS);
	/* those of all processes, of which another may just end */
	ITEST_WAIT(run_well("bpftool map dump name mrt_workers 2>&1"), 20000);
	ck_assert_ptr_nonnull(strstr(output, "\"polls\": "));
	snprintf(command, sizeof(command), "bpftool map dump id %u", o.map_ids[3]);
	ck_assert_ptr_nonnull(strstr(output_of(command), "\"poll_timing\": \"MRT_TIMING_SAMPLED\""));
	snprintf(command, sizeof(command), "bpftool map dump id %u", o.map_ids[2]);
	ck_assert_ptr_nonnull(strstr(output_of(command), "\"tasks_alive\": 0"));
	observe_close(&o);
	subject_end(&s);
}
END_TEST

/* ---- a process that hangs, or is stopped ---- */

static void hang(struct mrt_runtime *rt)
{
	work_polls(rt);
	work_get_all_stuck(rt);
	atomic_store(&subject_note, (uint64_t)(uintptr_t)work_stuck_poll);
}

START_TEST(a_process_that_hangs_shows_where)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = hang,
				   .flags = _i ? MRT_RUNTIME_STATS_MEMFD : 0 };
	struct subject s = subject_start(&so);
	uint64_t polls;
	struct observe o;
	unsigned i;

	ck_assert_int_eq(kill(s.pid, SIGSTOP), 0);
	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	polls = sum_polls(&o);
	ck_assert_uint_eq(polls, WORK_POLLS + o.workers_nr);
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

START_TEST(full_timing_tells_when_a_poll_began)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .other = hang };
	struct subject s = subject_start(&so);
	uint64_t before;
	struct observe o;
	unsigned i;

	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	wait_parked(&o);
	o.ctl->poll_timing = MRT_TIMING_FULL;
	before = mrt_now();
	subject_do(&s, SUBJECT_OTHER);
	for (i = 0; i < o.workers_nr; i++) {
		ck_assert_uint_gt(o.workers[i].poll_start_ns, before);
		ck_assert_uint_lt(o.workers[i].poll_start_ns, mrt_now());
	}
	observe_close(&o);
	subject_kill(&s);
}
END_TEST

/* ---- what is timed is switched from outside ---- */

static uint64_t polls_timed(const struct observe *o, uint64_t *ret_buckets)
{
	uint64_t sum = 0;
	unsigned i, j;

	*ret_buckets = 0;
	for (i = 0; i < o->workers_nr; i++) {
		sum += o->hists[i].polls_timed;
		for (j = 0; j < MRT_HIST_NR; j++)
			*ret_buckets += o->hists[i].poll[j];
	}
	return sum;
}

START_TEST(poll_timing_is_switched_from_outside)
{
	struct subject_opts so = { .kind = _i / 2, .caps = SUBJECT_CAPS_ALL, .work = work_polls,
				   .flags = _i % 2 ? MRT_RUNTIME_STATS_MEMFD : 0 };
	struct subject s = subject_start(&so);
	uint64_t timed, buckets, before;
	struct observe o;

	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	timed = polls_timed(&o, &buckets); /* one in 64 */
	ck_assert_uint_ge(timed, WORK_POLLS / 64 - o.workers_nr);
	ck_assert_uint_le(timed, WORK_POLLS / 64 + o.workers_nr);

	wait_parked(&o);
	o.ctl->poll_timing = MRT_TIMING_FULL;
	before = timed;
	subject_do(&s, SUBJECT_WORK);
	timed = polls_timed(&o, &buckets);
	ck_assert_uint_eq(timed - before, WORK_POLLS);
	ck_assert_uint_eq(buckets, timed);
	ck_assert_uint_gt(o.hists[0].poll_max_ns + o.hists[o.workers_nr - 1].poll_max_ns, 0);

	wait_parked(&o);
	o.ctl->poll_timing = MRT_TIMING_OFF;
	before = timed;
	subject_do(&s, SUBJECT_WORK);
	ck_assert_uint_eq(polls_timed(&o, &buckets), before);

	wait_parked(&o);
	o.ctl->poll_shift = 3;
	o.ctl->poll_timing = MRT_TIMING_SAMPLED;
	subject_do(&s, SUBJECT_WORK);
	timed = polls_timed(&o, &buckets) - before;
	ck_assert_uint_ge(timed, WORK_POLLS / 8 - o.workers_nr);
	ck_assert_uint_le(timed, WORK_POLLS / 8 + o.workers_nr);
	observe_close(&o);
	subject_end(&s);
}
END_TEST

ITEST_CHILD(switched, { struct mrt_op op; const struct mrt_worker_hists *hists; struct mrt_ctl *ctl; uint64_t polls, seen; })
{
	MRT_BEGIN(self);
	f->seen = f->hists->polls_timed;
	f->ctl->poll_timing = MRT_TIMING_FULL;
	/* under load: within eight ring turns, and a yield is one */
	for (f->polls = 0; f->polls < 64; f->polls++)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, (int64_t)(f->hists->polls_timed - f->seen));
}

START_TEST(a_busy_worker_notices_within_eight_ring_turns)
{
	struct mrt_runtime *rt = itest_create(&(struct mrt_runtime_opts){ .size = sizeof(struct mrt_runtime_opts),
									   .workers_nr = 1, .flags = MRT_RUNTIME_STATS_MEMFD });
	struct switched f = { .seen = 0 };
	struct observe o;
	int64_t timed;

	ck_assert_int_eq(observe_open(getpid(), &o), 0);
	f.hists = &o.hists[0];
	f.ctl = o.ctl;
	f.ctl->poll_timing = MRT_TIMING_OFF;
	ck_assert_int_eq(mrt_block_on(rt, switched_poll, &f, sizeof(f), &timed), 0);
	ck_assert_int_ge(timed, 64 - 9);
	ck_assert_int_le(timed, 64);
	observe_close(&o);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- ops ---- */

#define OPCODE_NOP 0
#define OPCODE_READ 22

static int sockets[2];

ITEST_CHILD(receiver, { struct mrt_op op; char bytes[2]; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_read_exact(&f->op, sockets[0], f->bytes, 2, MRT_OFF_CURRENT));
	MRT_RETURN(self, f->op.res);
}

static char leased[FIXTURE_PATH + 8];

/* Waits in the kernel until the file's lease is given up: a path op, which ends by itself as far as the runtime knows. */
ITEST_CHILD(opener, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_open(&f->op, AT_FDCWD, leased, O_RDONLY, 0));
	MRT_RETURN(self, f->op.res);
}

static struct mrt_task *receiver;
static unsigned bytes_sent;

/* The first time it waits for two bytes; then they come, one each time. */
static void do_recv(struct mrt_runtime *rt)
{
	if (!receiver) {
		itest_socketpair(sockets);
		receiver = itest_spawn(rt, receiver_poll, NULL, sizeof(struct receiver));
		mrt_detach(itest_spawn(rt, opener_poll, NULL, sizeof(struct opener)));
		return;
	}
	ck_assert_int_eq(write(sockets[1], "", 1), 1);
	if (++bytes_sent == 2)
		ck_assert_int_eq(itest_join(receiver), 2);
}

static struct mrt_worker_hists sum_hists(const struct observe *o)
{
	struct mrt_worker_hists sum = { 0 };
	unsigned i, j;

	for (i = 0; i < o->workers_nr; i++) {
		const struct mrt_worker_hists *h = &o->hists[i];

		sum.ops_timed += h->ops_timed;
		sum.io_sum_ns += h->io_sum_ns;
		sum.peer_sum_ns += h->peer_sum_ns;
		for (j = 0; j < MRT_OPCODES_NR; j++) {
			sum.op_nr[j] += h->op_nr[j];
			sum.op_timed[j] += h->op_timed[j];
			sum.op_sum_ns[j] += h->op_sum_ns[j];
		}
		for (j = 0; j < MRT_HIST_NR; j++) {
			sum.io[j] += h->io[j];
			sum.peer[j] += h->peer[j];
		}
	}
	return sum;
}

static uint64_t sum_of(const uint64_t *buckets)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < MRT_HIST_NR; i++)
		sum += buckets[i];
	return sum;
}

START_TEST(ops_are_counted_by_opcode_and_timed_by_sample)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = work_nops };
	struct subject s = subject_start(&so);
	struct mrt_worker_hists sum, before;
	struct observe o;

	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	sum = sum_hists(&o);
	ck_assert_uint_eq(sum.op_nr[OPCODE_NOP], WORK_NOPS);
	ck_assert_uint_ge(sum.ops_timed, WORK_NOPS / 48 - 2);
	ck_assert_uint_le(sum.ops_timed, WORK_NOPS / 16 + 2);

	wait_parked(&o);
	o.ctl->op_timing = MRT_TIMING_FULL;
	before = sum;
	subject_do(&s, SUBJECT_WORK);
	sum = sum_hists(&o);
	ck_assert_uint_eq(sum.op_nr[OPCODE_NOP], 2 * WORK_NOPS);
	ck_assert_uint_eq(sum.ops_timed - before.ops_timed, WORK_NOPS);
	ck_assert_uint_eq(sum.op_timed[OPCODE_NOP], sum.ops_timed);
	ck_assert_uint_eq(sum_of(sum.io), sum.ops_timed);
	ck_assert_uint_eq(sum_of(sum.peer), 0);
	ck_assert_uint_eq(sum.op_sum_ns[OPCODE_NOP], sum.io_sum_ns);

	wait_parked(&o);
	o.ctl->op_timing = MRT_TIMING_OFF;
	before = sum;
	subject_do(&s, SUBJECT_WORK);
	sum = sum_hists(&o);
	ck_assert_uint_eq(sum.op_nr[OPCODE_NOP], 3 * WORK_NOPS);
	ck_assert_uint_eq(sum.ops_timed, before.ops_timed);
	observe_close(&o);
	subject_end(&s);
}
END_TEST

#define FIXED_READS 100

/* On a block of the arena: the kernel gets another opcode. */
ITEST_CHILD(fixed_reader, { struct mrt_op op; void *buf; int fd; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < FIXED_READS; f->i++) {
		MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->buf, 4096, 0));
		if (f->op.res != 4096)
			MRT_RETURN(self, -1);
	}
	MRT_RETURN(self, 0);
}

START_TEST(an_op_on_the_arena_is_counted_and_timed_under_one_opcode)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_CURRENT);
	struct fixed_reader r = { 0 };
	struct mrt_worker_hists h;
	struct observe o;

	ck_assert_int_eq(observe_open(getpid(), &o), 0);
	o.ctl->op_timing = MRT_TIMING_FULL; /* before the first drive looks */
	r.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(r.fd, 0);
	ck_assert_int_eq(mrt_alloc(rt, 4096, 4096, &r.buf), 0);
	ck_assert_int_eq(itest_run(rt, fixed_reader_poll, &r, sizeof(r)), 0);
	ck_assert_int_eq(mrt_stats_hists_get(rt, 0, &h), 0);
	for (unsigned i = 0; i < MRT_OPCODES_NR; i++)
		ck_assert_msg(h.op_nr[i] == h.op_timed[i], "opcode %u: %llu staged, %llu timed", i,
			      (unsigned long long)h.op_nr[i], (unsigned long long)h.op_timed[i]);
	ck_assert_uint_ge(h.op_nr[OPCODE_READ], FIXED_READS);
	mrt_free(rt, r.buf);
	observe_close(&o);
	mrt_runtime_destroy(rt);
	close(r.fd);
}
END_TEST

static uint32_t sum_gauge(const struct observe *o, size_t offset)
{
	uint32_t sum = 0;
	unsigned i;

	for (i = 0; i < o->workers_nr; i++)
		sum += *(const uint32_t *)(const void *)((const char *)&o->workers[i] + offset);
	return sum;
}

START_TEST(an_op_that_waits_for_a_peer_is_told_apart_and_integrated)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .other = do_recv };
	uint64_t start, ns, integral = 0;
	struct mrt_worker_hists sum;
	char dir[FIXTURE_PATH];
	struct subject s;
	struct observe o;
	unsigned i;
	int fd;

	ck_assert_int_eq(fixture_dir(dir), 0);
	snprintf(leased, sizeof(leased), "%s/leased", dir);
	fd = open(leased, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	signal(SIGIO, SIG_IGN); /* that somebody wants it */
	if (fcntl(fd, F_SETLEASE, F_WRLCK)) {
		printf("skipped: no leases on %s\n", dir);
		close(fd);
		return;
	}
	s = subject_start(&so);
	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	wait_parked(&o);
	o.ctl->op_timing = MRT_TIMING_FULL;
	subject_do(&s, SUBJECT_OTHER);
	ITEST_WAIT(sum_gauge(&o, offsetof(struct mrt_worker_stats, inflight_peer)) == 1, 20000);
	ITEST_WAIT(sum_gauge(&o, offsetof(struct mrt_worker_stats, inflight_io)) == 1, 20000);
	start = mrt_now();
	ck_assert_uint_eq(sum_gauge(&o, offsetof(struct mrt_worker_stats, inflight)), 2);
	ITEST_WAIT(mrt_now() > start + MRT_MS(50), 20000);
	ns = mrt_now() - start;
	ck_assert_int_eq(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
	close(fd);
	subject_do(&s, SUBJECT_OTHER);
	ITEST_WAIT(sum_hists(&o).op_nr[OPCODE_READ] == 2, 20000); /* the second step */
	subject_do(&s, SUBJECT_OTHER);
	ITEST_WAIT(sum_gauge(&o, offsetof(struct mrt_worker_stats, inflight)) == 0, 20000);
	wait_parked(&o);
	for (i = 0; i < o.workers_nr; i++)
		integral += o.workers[i].inflight_ns;
	ck_assert_uint_ge(integral, 2 * ns);
	ck_assert_uint_eq(sum_gauge(&o, offsetof(struct mrt_worker_stats, inflight_peer)), 0);
	sum = sum_hists(&o);
	ck_assert_uint_eq(sum.op_nr[OPCODE_READ], 2);
	ck_assert_uint_eq(sum_of(sum.peer), 1);
	ck_assert_uint_ge(sum.peer_sum_ns, ns);
	ck_assert_uint_eq(sum_of(sum.io), 1);
	ck_assert_uint_ge(sum.io_sum_ns, ns);
	observe_close(&o);
	subject_end(&s);
}
END_TEST

/* ---- depth over time ---- */

#define SPINNERS 10u
#define SPINS 30u

ITEST_CHILD(spinner, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < SPINS; f->i++) {
		itest_spin(MRT_US(200));
		MRT_AWAIT(self, mrt_yield(&f->op));
	}
	MRT_RETURN(self, 0);
}

/* From park to park: there the integral is brought up to date, and the time that was not parked. */
ITEST_CHILD(spinners, {
	struct mrt_op op[SPINNERS], nap; struct mrt_task *tasks[SPINNERS]; unsigned i; uint64_t parks, queue_ns, busy_ns;
})
{
	struct mrt_worker_stats now;

	MRT_BEGIN(self);
	f->parks = itest_stats(mrt_runtime_self()).parks;
	do
		MRT_AWAIT(self, mrt_sleep(&f->nap, MRT_MS(1)));
	while (itest_stats(mrt_runtime_self()).parks == f->parks);
	now = itest_stats(mrt_runtime_self());
	f->parks = now.parks;
	f->queue_ns = now.local_queue_ns;
	f->busy_ns = now.busy_ns;
	for (f->i = 0; f->i < SPINNERS; f->i++)
		f->tasks[f->i] = itest_spawn(mrt_runtime_self(), spinner_poll, NULL, sizeof(struct spinner));
	for (f->i = 0; f->i < SPINNERS; f->i++)
		MRT_AWAIT(self, mrt_join(&f->op[f->i], f->tasks[f->i]));
	do
		MRT_AWAIT(self, mrt_sleep(&f->nap, MRT_MS(1)));
	while (itest_stats(mrt_runtime_self()).parks == f->parks);
	now = itest_stats(mrt_runtime_self());
	/* ten tasks go round: after a turn all are queued, before the next one none is */
	MRT_RETURN(self, (int64_t)(100 * (now.local_queue_ns - f->queue_ns) / (now.busy_ns - f->busy_ns)));
}

START_TEST(the_integral_gives_the_mean_length_of_the_queue)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);
	struct mrt_runtime *rt = itest_create(&opts);
	uint64_t until = mrt_now() + MRT_SEC(20);
	int64_t hundredths;

	/* who loses the CPU for long before the first spins, or after the last, has that time in the mean */
	do {
		ck_assert_int_eq(mrt_block_on(rt, spinners_poll, NULL, sizeof(struct spinners), &hundredths), 0);
		printf("mean length %.2f\n", (double)hundredths / 100);
	} while ((hundredths < 300 || hundredths > 700) && mrt_now() < until);
	ck_assert_int_ge(hundredths, 300);
	ck_assert_int_le(hundredths, 700);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- mrt_global ---- */

#define SLEEPERS 30u

ITEST_CHILD(sleeper, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(1000000)));
	MRT_RETURN(self, 0);
}

static int64_t call_blocks(void *arg)
{
	(void)arg;
	while (!atomic_load(&subject_note))
		itest_pause();
	return 0;
}

ITEST_CHILD(blocker, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_blocking(&f->op, call_blocks, NULL));
	MRT_RETURN(self, 0);
}

static struct mrt_task *blocker;

static void fill_global(struct mrt_runtime *rt)
{
	unsigned i;

	if (blocker) {
		atomic_store(&subject_note, 1);
		(void)itest_join(blocker);
		return;
	}
	for (i = 0; i < SLEEPERS; i++)
		mrt_detach(itest_spawn(rt, sleeper_poll, NULL, sizeof(struct sleeper)));
	blocker = itest_spawn(rt, blocker_poll, NULL, sizeof(struct blocker));
}

START_TEST(the_whole_runtime_is_in_mrt_global)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = fill_global };
	struct subject s = subject_start(&so);
	struct observe o;

	ck_assert_int_eq(observe_open(s.pid, &o), 0);
	ITEST_WAIT(__atomic_load_n(&o.global->timers, __ATOMIC_RELAXED) == SLEEPERS, 20000);
	ITEST_WAIT(__atomic_load_n(&o.global->blocking_threads, __ATOMIC_RELAXED) == 1, 20000);
	ITEST_WAIT(__atomic_load_n(&o.global->blocking_queued, __ATOMIC_RELAXED) == 0, 20000);
	ITEST_WAIT(__atomic_load_n(&o.global->tasks_alive, __ATOMIC_RELAXED) == SLEEPERS + 1, 20000);
	wait_parked(&o);
	ck_assert_uint_eq(o.global->spawns_outside, SLEEPERS + 1);
	ck_assert_uint_ge(o.global->remote_wakes, 1);
	ck_assert_uint_eq(o.global->inject_depth, 0);
	ck_assert_uint_eq(o.global->blocking_idle, 0);
	subject_do(&s, SUBJECT_WORK);
	ITEST_WAIT(__atomic_load_n(&o.global->blocking_idle, __ATOMIC_RELAXED) == 1, 20000);
	ITEST_WAIT(__atomic_load_n(&o.global->tasks_alive, __ATOMIC_RELAXED) == SLEEPERS, 20000);
	observe_close(&o);
	subject_end(&s);
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
		ck_assert_msg(exists(PINS "/%d/%s", pid, map_names[i]) == pinned, "%d %s: pinned %d", pid, map_names[i], !pinned);
	ck_assert(exists(PINS "/%d", pid) == pinned);
}

START_TEST(pins_are_made_on_request_and_go_with_the_runtime)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = work_polls };
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

/* What a process has left that had two runtimes, the second of another version of the library. */
static void leave_another_version(pid_t pid)
{
	union bpf_attr attr = { .pathname = 0 };
	struct mrt_global_stats g = { 0 };
	char path[64];
	struct observe o;
	int fd;

	ck_assert_int_eq(observe_open(pid, &o), 0);
	g.version = MRT_STATS_VERSION + 1;
	g.pid = o.global->pid;
	g.pid_ns = o.global->pid_ns;
	g.start_ticks = o.global->start_ticks;
	observe_close(&o);
	fd = observe_fake_global(BPF_MAP_TYPE_ARRAY, sizeof(g) + 64, &g);
	snprintf(path, sizeof(path), PINS "/%d-2", (int)pid);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), PINS "/%d-2/mrt_global", (int)pid);
	attr.pathname = (uintptr_t)path;
	attr.bpf_fd = (uint32_t)fd;
	ck_assert_int_eq(syscall(SYS_bpf, BPF_OBJ_PIN, &attr, sizeof(attr)), 0);
	close(fd);
}

START_TEST(pins_of_the_dead_are_removed_and_those_of_the_living_stay)
{
	struct subject_opts so = { .kind = ITEST_CURRENT, .caps = SUBJECT_CAPS_ALL, .flags = MRT_RUNTIME_STATS_PIN };
	struct subject dead, reused, alive, next;
	struct observe o;
	char from[64], to[64];

	if (!own_bpffs()) {
		printf("skipped: no maps, or no bpffs of our own\n");
		return;
	}
	alive = subject_start(&so);
	dead = subject_start(&so);
	reused = subject_start(&so);
	/* the number of a process that lives (this one), with the start time of another */
	ck_assert_int_eq(observe_open(reused.pid, &o), 0);
	((struct mrt_global_stats *)o.mem[2])->pid = (uint32_t)getpid();
	((struct mrt_global_stats *)o.mem[2])->start_ticks += 1000; /* all of them begin within one tick, or two */
	observe_close(&o);
	leave_another_version(dead.pid);
	subject_kill(&dead);
	subject_kill(&reused);
	check_pinned(dead.pid, true);
	snprintf(from, sizeof(from), PINS "/%d", (int)reused.pid);
	snprintf(to, sizeof(to), PINS "/%d", (int)getpid());
	ck_assert_int_eq(rename(from, to), 0);
	ck_assert_int_eq(mkdir(PINS "/of-somebody-else", 0700), 0);
	ck_assert_int_eq(mkdir(PINS "/1", 0700), 0);

	next = subject_start(&so);
	check_pinned(dead.pid, false);
	ck_assert(!exists(PINS "/%d-2", dead.pid));
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
	work_polls(rt);
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
	tcase_add_test(tc, full_timing_tells_when_a_poll_began);
	tcase_add_loop_test(tc, poll_timing_is_switched_from_outside, 0, 4);
	tcase_add_test(tc, a_busy_worker_notices_within_eight_ring_turns);
	tcase_add_test(tc, ops_are_counted_by_opcode_and_timed_by_sample);
	tcase_add_test(tc, an_op_on_the_arena_is_counted_and_timed_under_one_opcode);
	tcase_add_test(tc, an_op_that_waits_for_a_peer_is_told_apart_and_integrated);
	tcase_add_test(tc, the_integral_gives_the_mean_length_of_the_queue);
	tcase_add_test(tc, the_whole_runtime_is_in_mrt_global);
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
	has_bpf = subject_has_bpf();
	has_bpftool = system("bpftool version >/dev/null 2>&1") == 0;
	return itest_main(observe_suite());
}
