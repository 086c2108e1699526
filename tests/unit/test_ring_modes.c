/* SPDX-License-Identifier: MIT */
/*
 * Rings of other kinds on the real kernel. Proven: a ring whose SQ a kernel thread takes (SQPOLL) hands back each op
 * once, through full queues, cancels, sleeps of the thread and threads that are shared, and falls back where it is
 * refused; a big ring carries commands and second results, at every position of its queues; a polled ring works without
 * anything that it cannot have. Not proven: that a device is polled (no device here can be; the guest run has one).
 */
#include "ring/uring.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"
#include "ringtest.h"

#define IDLE_MS 20u             /* of SQPOLL's thread, so that tests see it asleep */
#define SETUP_IOPOLL (1u << 0)
#define SETUP_SQPOLL (1u << 1)
#define SETUP_HYBRID (1u << 17)

static struct mrt__ring_opts sqpoll_opts(unsigned sq_entries, unsigned cq_entries)
{
	return (struct mrt__ring_opts){
		.sq_entries = sq_entries, .cq_entries = cq_entries, .flags = MRT__RING_OPT_SQPOLL,
		.sq_idle_ms = IDLE_MS, .sq_cpu = -1,
	};
}

static struct mrt__ring *make_sqpoll(unsigned sq_entries, unsigned cq_entries)
{
	struct mrt__ring_opts opts = sqpoll_opts(sq_entries, cq_entries);
	struct mrt__ring *ring = make_enabled_opts(&opts);
	struct mrt_ring_report report;

	mrt__ring_report(ring, &report);
	ck_assert_msg(report.setup_flags & SETUP_SQPOLL, "%s", report.text);
	return ring;
}

/* By its own flag: where the machine is busy the thread may run long after its idle time. */
static void wait_for_its_sleep(struct mrt__ring *ring)
{
	uint64_t deadline = mrt__clock_now() + PATIENCE;

	do {
		ck_assert(mrt__clock_now() < deadline);
		mrt__ring_wait(ring, (IDLE_MS + 10) * MS);
	} while (!(atomic_load(ring->sq_kflags) & IORING_SQ_NEED_WAKEUP));
}

/* ---- SQPOLL ---------------------------------------------------------------------------------------------------- */

START_TEST(the_kernels_thread_takes_what_is_flushed)
{
	struct mrt__ring *ring = make_sqpoll(8, 16);
	unsigned i;

	for (i = 0; i < 100; i++) {
		ck_assert(stage_nop(ring, &ops[i]));
		(void)mrt__ring_flush(ring);
		collect(ring, 1);
		ck_assert_ptr_eq(done[0].user, &ops[i]);
		ck_assert_int_eq(done[0].res, 0);
	}
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

START_TEST(what_is_staged_is_not_taken_before_the_flush)
{
	struct mrt__ring *ring = make_sqpoll(8, 16);
	uint64_t until = mrt__clock_now() + 5 * MS;
	unsigned events = 0;

	ck_assert(stage_nop(ring, &ops[0]));
	while (mrt__clock_now() < until)
		ck_assert_uint_eq(mrt__ring_reap(ring, done, 1, &events), 0);
	ck_assert_uint_eq(mrt__ring_staged(ring), 1);
	collect(ring, 1);
	end_ring(ring);
}
END_TEST

START_TEST(a_thread_that_is_awake_takes_ops_without_an_enter)
{
	struct mrt__ring_opts opts = sqpoll_opts(8, 16);
	struct mrt__ring *ring;
	uint64_t deadline = mrt__clock_now() + PATIENCE, enters;
	unsigned events = 0, i;

	opts.sq_idle_ms = 2000;
	ring = make_enabled_opts(&opts);
	enters = stats.enters;
	for (i = 0; i < 100; i++) {
		ck_assert(stage_nop(ring, &ops[0]));
		/* the two may have one CPU */
		for ((void)mrt__ring_flush(ring); mrt__ring_staged(ring) > 0; (void)mrt__ring_flush(ring)) {
			ck_assert(mrt__clock_now() < deadline);
			sched_yield();
		}
		while (mrt__ring_reap(ring, done, 1, &events) == 0) {
			ck_assert(mrt__clock_now() < deadline);
			sched_yield();
		}
	}
	ck_assert_uint_le(stats.enters - enters, 3);
	ck_assert_uint_eq(stats.sq_staged, 0);
	end_ring(ring);
}
END_TEST

/* The SQ is full as far as we know, the thread has taken five, and nobody flushes. */
START_TEST(stage_looks_for_room_itself)
{
	struct mrt__ring *ring = make_sqpoll(8, 16);
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned i;

	for (i = 0; i < 5; i++)
		ck_assert(stage_nop(ring, &ops[i]));
	(void)mrt__ring_flush(ring);
	for (; i < 11; i++) {
		while (!stage_nop(ring, &ops[i]))
			ck_assert(mrt__clock_now() < deadline);
	}
	collect(ring, 11);
	end_ring(ring);
}
END_TEST

/* There is room after it, or it has looked many times; the thread may have to wait for a CPU. */
START_TEST(a_flush_of_a_full_sq_waits_for_room)
{
	struct mrt__ring *ring = make_sqpoll(8, 64);
	uint64_t deadline = mrt__clock_now() + PATIENCE, enters;
	unsigned round, i;

	for (round = 0; round < 10; round++) {
		mrt__ring_wait(ring, (IDLE_MS + 5) * MS);       /* the thread sleeps, and must be scheduled first */
		for (i = 0; i < 6; i++)
			ck_assert(stage_nop(ring, &ops[i]));
		for (;;) {
			ck_assert(mrt__clock_now() < deadline);
			enters = stats.enters;
			(void)mrt__ring_flush(ring);
			if (stage_nop(ring, &ops[6]))
				break;
			ck_assert_uint_ge(stats.enters - enters, 100);
		}
		collect(ring, 7);
	}
	end_ring(ring);
}
END_TEST

START_TEST(a_thousand_nops_pass_through_a_full_sq)
{
	struct mrt__ring *ring = make_sqpoll(8, 64);
	static unsigned char seen[1000];
	static uint64_t users[1000];
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned events = 0, sent = 0, got = 0, turns = 0, nr, i;

	memset(seen, 0, sizeof(seen));
	while (got < 1000) {
		ck_assert(mrt__clock_now() < deadline);
		while (sent < 1000 && sent - got < 60 && stage_nop(ring, &users[sent]))
			sent++;
		ck_assert_uint_le(mrt__ring_staged(ring), 6);
		if (turns++ % 3)
			(void)mrt__ring_flush(ring);
		else
			mrt__ring_wait(ring, SEC);
		nr = mrt__ring_reap(ring, done, OPS_MAX, &events);
		for (i = 0; i < nr; i++)
			ck_assert_uint_eq(seen[(uint64_t *)done[i].user - users]++, 0);
		got += nr;
	}
	(void)mrt__ring_flush(ring);           /* what the thread took since the last look is counted by the next */
	ck_assert_uint_eq(stats.sqes, 1002);   /* two polls of the ring's own */
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

/* Ops that never end fill the SQ: a wait must not sleep while others cannot be staged. */
START_TEST(a_wait_with_a_full_sq_makes_room_and_returns)
{
	struct mrt__ring *ring = make_sqpoll(8, 64);
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned sent = 0, i;
	char buf[8];
	int fds[2];

	make_pipe(fds);
	while (sent < 60) {
		ck_assert(mrt__clock_now() < deadline);
		if (stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[sent]))
			sent++;
		else
			mrt__ring_wait(ring, UINT64_MAX);
	}
	for (i = 0; i < sent; i++)
		mrt__ring_cancel(ring, &ops[i]);
	collect(ring, sent);
	for (i = 0; i < sent; i++)
		ck_assert_int_eq(done[i].res, -ECANCELED);
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

/* It may see what is flushed by itself, with the flag set, before it has fallen asleep: such a round does not count. */
START_TEST(a_thread_that_sleeps_is_woken)
{
	struct mrt__ring *ring = make_sqpoll(8, 16);
	uint64_t deadline = mrt__clock_now() + PATIENCE, before;
	unsigned woken = 0;
	void *op;

	while (woken < 5) {
		ck_assert(mrt__clock_now() < deadline);
		wait_for_its_sleep(ring);
		before = stats.enters;
		op = &ops[woken];
		ck_assert(stage_nop(ring, op));
		(void)mrt__ring_flush(ring);
		ck_assert_uint_le(stats.enters - before, 1);
		woken += stats.enters > before;
		collect(ring, 1);
		ck_assert_ptr_eq(done[0].user, op);
		ck_assert_int_eq(done[0].res, 0);
	}
	end_ring(ring);
}
END_TEST

/* Flushes race with the thread that is falling asleep: none may be missed. */
START_TEST(no_flush_is_missed_while_the_thread_falls_asleep)
{
	struct mrt__ring_opts opts = sqpoll_opts(8, 16);
	struct mrt__ring *ring;
	uint64_t pause, until;
	unsigned i;

	opts.sq_idle_ms = 1;
	ring = make_enabled_opts(&opts);
	for (i = 0; i < 200; i++) {
		ck_assert(stage_nop(ring, &ops[0]));
		(void)mrt__ring_flush(ring);
		collect(ring, 1);
		pause = MS - 100000 + (i % 40) * 10000; /* around its idle time */
		for (until = mrt__clock_now() + pause; mrt__clock_now() < until;)
			sched_yield();
	}
	end_ring(ring);
}
END_TEST

/* Nothing is staged: nobody may wake the thread. */
START_TEST(flushes_and_waits_of_an_idle_ring_leave_the_thread_asleep)
{
	struct mrt__ring *ring = make_sqpoll(8, 16);
	uint64_t before, deadline = mrt__clock_now() + PATIENCE, enters;
	unsigned i;

	wait_for_its_sleep(ring);
	while ((before = mrt__ring_sq_thread_ns(ring)) == 0)
		ck_assert(mrt__clock_now() < deadline);
	enters = stats.enters;
	for (i = 0; i < 100; i++)
		(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(stats.enters, enters);
	mrt__ring_wait(ring, 100 * MS);
	/* a woken thread would have spun for IDLE_MS */
	ck_assert_uint_lt(mrt__ring_sq_thread_ns(ring) - before, IDLE_MS * MS / 2);
	end_ring(ring);
}
END_TEST

START_TEST(a_sqpoll_ring_is_woken_and_its_timer_goes_off)
{
	struct mrt__ring *ring = make_sqpoll(8, 16);
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned events = 0;

	mrt__ring_wait(ring, (IDLE_MS + 10) * MS);      /* the thread sleeps */
	mrt__ring_wake(ring);
	while (!(events & MRT__RING_EVENT_WAKE)) {
		ck_assert(mrt__clock_now() < deadline);
		mrt__ring_wait(ring, UINT64_MAX);
		(void)mrt__ring_reap(ring, done, 1, &events);
	}
	mrt__ring_sentry_arm(ring, MS);
	while (!(events & MRT__RING_EVENT_SENTRY)) {
		ck_assert(mrt__clock_now() < deadline);
		mrt__ring_wait(ring, UINT64_MAX);
		(void)mrt__ring_reap(ring, done, 1, &events);
	}
	end_ring(ring);
}
END_TEST

START_TEST(an_overflow_of_a_sqpoll_ring_loses_nothing)
{
	struct mrt__ring *ring = make_sqpoll(16, 16);
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned events = 0, got, i;

	for (i = 0; i < 200; i++) {
		while (!stage_nop(ring, &ops[i])) {
			ck_assert(mrt__clock_now() < deadline);
			(void)mrt__ring_flush(ring);
		}
	}
	/* by flushes: a wait would ask the kernel for the rest in any case */
	for (got = 0; got < 200; got += mrt__ring_reap(ring, done + got, 200 - got, &events)) {
		ck_assert(mrt__clock_now() < deadline);
		(void)mrt__ring_flush(ring);
	}
	for (i = 0; i < 200; i++)
		ck_assert_ptr_eq(done[i].user, &ops[i]);
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

START_TEST(cancels_of_a_sqpoll_ring_find_their_ops_alone)
{
	struct mrt__ring *ring = make_sqpoll(8, 64);
	unsigned round, i;
	char buf[8];
	int fds[2];

	make_pipe(fds);
	for (round = 0; round < 50; round++) {
		/* ops[0] has ended when its cancel is staged; its address is used again at once */
		ck_assert(stage_nop(ring, &ops[0]));
		collect(ring, 1);
		mrt__ring_cancel(ring, &ops[0]);
		ck_assert(stage_read(ring, fds[0], buf, 1, UINT64_MAX, &ops[0]));
		for (i = 1; i < 5; i++) {
			while (!stage_read(ring, fds[0], buf, 1, UINT64_MAX, &ops[i]))
				(void)mrt__ring_flush(ring);
		}
		for (i = 1; i < 5; i++) {
			if (round % 2 == 0)
				mrt__ring_cancel(ring, &ops[i]);
			else
				while (!mrt__ring_try_cancel(ring, &ops[i]))
					(void)mrt__ring_flush(ring);
		}
		collect(ring, 4);
		for (i = 0; i < 4; i++) {
			ck_assert_int_eq(done[i].res, -ECANCELED);
			ck_assert_ptr_ne(done[i].user, &ops[0]);
		}
		ck_assert_int_eq(write(fds[1], "x", 1), 1);
		collect(ring, 1);
		ck_assert_ptr_eq(done[0].user, &ops[0]);
		ck_assert_int_eq(done[0].res, 1);
	}
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

struct sharer {
	struct mrt__ring *ring;
	uint64_t users[64];
	unsigned got;
};

static void *use_shared(void *arg)
{
	struct sharer *s = arg;
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	struct mrt__ring_done mine[64];
	unsigned events = 0, sent = 0;

	if (mrt__ring_enable(s->ring, NULL))
		return NULL;
	while (s->got < 500 && mrt__clock_now() < deadline) {
		while (sent < 500 && sent - s->got < 64 && stage_nop(s->ring, &s->users[sent % 64]))
			sent++;
		mrt__ring_wait(s->ring, SEC);
		s->got += mrt__ring_reap(s->ring, mine, 64, &events);
	}
	if (mrt__ring_drain(s->ring))
		s->got = 0;
	return NULL;
}

START_TEST(rings_share_a_thread)
{
	struct mrt__ring_opts opts = sqpoll_opts(16, 128);
	static struct sharer sharers[3];
	struct mrt_ring_report report;
	pthread_t threads[3];
	uint64_t deadline;
	unsigned i;

	for (i = 0; i < 3; i++) {
		sharers[i] = (struct sharer){ .ring = NULL };
		opts.attach = i ? sharers[0].ring : NULL;
		opts.stats = NULL;
		ck_assert_int_eq(mrt__ring_create(&opts, &sharers[i].ring, NULL, 0), 0);
		mrt__ring_report(sharers[i].ring, &report);
		ck_assert_msg(!!strstr(report.text, "another ring's thread") == (i > 0), "%s", report.text);
	}
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use_shared, &sharers[i]), 0);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	deadline = mrt__clock_now() + PATIENCE;
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(sharers[i].got, 500);
		/* it may have to fall asleep first, see below */
		while (mrt__ring_sq_thread_ns(sharers[i].ring) == 0 || sharers[i].ring->sq_tid == 0)
			ck_assert(mrt__clock_now() < deadline);
		ck_assert_int_eq(sharers[i].ring->sq_tid, sharers[0].ring->sq_tid);
		ck_assert_int_ne(sharers[i].ring->sq_tid, gettid());    /* who made it is named before the thread has run */
	}
	for (i = 0; i < 3; i++)
		mrt__ring_destroy(sharers[i].ring);
}
END_TEST

/* Some kernels (6.1) say which thread it is only while it sleeps: it sleeps first, and then it works without a pause. */
START_TEST(the_threads_time_is_known)
{
	struct mrt__ring *ring = make_sqpoll(8, 16), *plain = make_enabled(8, 16, 0);
	uint64_t deadline = mrt__clock_now() + PATIENCE, first;

	while ((first = mrt__ring_sq_thread_ns(ring)) == 0 || ring->sq_tid == 0) {
		ck_assert(mrt__clock_now() < deadline);
		mrt__ring_wait(ring, (IDLE_MS + 10) * MS);
	}
	while (mrt__ring_sq_thread_ns(ring) < first + 2 * MS) {
		ck_assert(mrt__clock_now() < deadline);
		ck_assert(stage_nop(ring, &ops[0]));
		collect(ring, 1);
	}
	ck_assert_uint_eq(mrt__ring_sq_thread_ns(plain), 0);
	end_ring(ring);
	end_ring(plain);
}
END_TEST

START_TEST(a_cpu_that_does_not_exist_is_refused_and_the_ring_is_an_ordinary_one)
{
	struct mrt__ring_opts opts = sqpoll_opts(8, 16);
	struct mrt__ring *ring, *second;
	struct mrt_ring_report report;

	opts.sq_cpu = 4000;
	ring = make_enabled_opts(&opts);
	mrt__ring_report(ring, &report);
	ck_assert(!(report.setup_flags & SETUP_SQPOLL));
	ck_assert_msg(strstr(report.text, "SQPOLL refused (error 22)") != NULL, "%s", report.text);
	ck_assert_uint_eq(mrt__ring_sq_thread_ns(ring), 0);
	opts.attach = ring;
	opts.sq_cpu = -1;
	second = make_enabled_opts(&opts);
	mrt__ring_report(second, &report);
	ck_assert_msg(strstr(report.text, "SQPOLL refused (error 22)") != NULL, "%s", report.text);
	ck_assert(stage_nop(second, &ops[0]));
	collect(second, 1);
	end_ring(second);
	end_ring(ring);
}
END_TEST

START_TEST(a_sqpoll_ring_says_where_its_thread_runs)
{
	struct mrt__ring_opts opts = sqpoll_opts(8, 16);
	struct mrt_ring_report report;
	struct mrt__ring *ring;
	char want[64];
	cpu_set_t cpus;
	int cpu = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	while (!CPU_ISSET((size_t)cpu, &cpus))
		cpu++;
	opts.sq_cpu = cpu;
	ring = make_enabled_opts(&opts);
	mrt__ring_report(ring, &report);
	(void)snprintf(want, sizeof(want), "SQPOLL on CPU %d, idle after %u ms", cpu, IDLE_MS);
	ck_assert_msg(strstr(report.text, want) != NULL, "%s", report.text);
	ck_assert(stage_nop(ring, &ops[0]));
	collect(ring, 1);
	end_ring(ring);
}
END_TEST

START_TEST(buffers_and_files_of_a_sqpoll_ring_are_registered_too)
{
	struct mrt__ring *ring = make_sqpoll(8, 16);
	static char memory[4096];
	struct mrt__ring_args args = {
		.opcode = MRT__OPCODE_READ_FIXED, .sqe_flags = MRT__RING_SQE_FIXED_FILE, .fd = 1, .buf_index = 2,
		.addr = (uintptr_t)memory, .len = 8, .off = UINT64_MAX,
	};
	int fds[2];

	make_pipe(fds);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, 4, 2, memory, sizeof(memory)), 0);
	ck_assert_int_eq(mrt__ring_file_set(ring, 4, 1, fds[0]), 0);
	ck_assert_int_eq(write(fds[1], "martlet", 7), 7);
	ck_assert_int_eq(run_op(ring, &args), 7);
	ck_assert_str_eq(memory, "martlet");
	ck_assert(mrt__ring_stage(ring, &args, 0, &ops[0]));
	ck_assert(mrt__ring_cancel_file(ring, 1, true));
	collect(ring, 1);
	ck_assert_int_eq(done[0].res, -ECANCELED);
	end_ring(ring);
}
END_TEST

static int forbid_enter(unsigned error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = MRT__ARRAY_NR(code), .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
}

static uint32_t forbidden_flags;

static int enable_without_enter(void)
{
	struct mrt__ring_opts opts = sqpoll_opts(8, 16);
	struct mrt__ring *ring = NULL;

	opts.flags = forbidden_flags;
	CHILD_ASSERT(mrt__ring_create(&opts, &ring, NULL, 0) == 0);
	if (forbid_enter(EPERM))
		return 0;
	CHILD_ASSERT(mrt__ring_enable(ring, NULL) == -EPERM);
	mrt__ring_destroy(ring);
	return 0;
}

START_TEST(an_enter_that_is_forbidden_shows_when_the_ring_is_enabled)
{
	static const uint32_t kinds[] = { 0, MRT__RING_OPT_SQPOLL, MRT__RING_OPT_IOPOLL, MRT__RING_OPT_BIG };

	forbidden_flags = kinds[_i];
	in_child(enable_without_enter);
}
END_TEST

/* ---- big rings ------------------------------------------------------------------------------------------------- */

static struct mrt__ring *make_big(unsigned more)
{
	struct mrt__ring_opts opts = {
		.sq_entries = 8, .cq_entries = 32, .flags = MRT__RING_OPT_BIG | more, .sq_cpu = -1, .sq_idle_ms = IDLE_MS,
	};
	struct mrt__ring *ring = make_enabled_opts(&opts);
	struct mrt_ring_report report;

	mrt__ring_report(ring, &report);
	ck_assert_msg(strstr(report.text, "128-byte SQEs") != NULL, "%s", report.text);
	return ring;
}

static const uint32_t big_kinds[] = { 0, MRT__RING_OPT_SQPOLL };

/* Reads tell where they come from, so an SQE or CQE at the wrong place shows. */
START_TEST(ops_of_a_big_ring_come_back_at_every_position)
{
	struct mrt__ring *ring = make_big(big_kinds[_i]);
	unsigned char bytes[200], buf[6];
	char path[] = "/tmp/mrt-ring-XXXXXX";
	int fd = mkstemp(path);
	unsigned i, k;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	ck_assert_int_eq(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	for (i = 0; i < 40; i++) {
		for (k = 0; k < 1 + i % 6; k++)
			ck_assert(stage_read(ring, fd, &buf[k], 1, i + 7 * k, &ops[k]));
		collect(ring, k);
		while (k-- > 0) {
			ck_assert_ptr_eq(done[k].user, &ops[k]);
			ck_assert_int_eq(done[k].res, 1);
			ck_assert_uint_eq(buf[k], i + 7 * k);
			ck_assert_uint_eq(mrt__ring_extra(ring, k), 0);
		}
	}
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

/* NOPs that give their own second result: IORING_NOP_CQE32 and IORING_NOP_INJECT_RESULT (6.16). */
START_TEST(second_results_belong_to_their_ops)
{
	struct mrt__ring *ring = make_big(big_kinds[_i]);
	struct mrt__ring_args args = { .opcode = MRT__OPCODE_NOP, .fd = -1, .op_flags = 1u << 5 };
	unsigned i;

	args.off = 1;
	if (run_op(ring, &args) == -EINVAL) {
		printf("not tried: this kernel's NOPs have no second result\n");
		end_ring(ring);
		return;
	}
	for (i = 0; i < 5; i++) {
		args.off = 1000 + i;    /* extra1 */
		ck_assert(mrt__ring_stage(ring, &args, 0, &ops[i]));
	}
	collect(ring, 5);
	for (i = 0; i < 5; i++) {
		ck_assert_ptr_eq(done[i].user, &ops[i]);
		ck_assert_uint_eq(mrt__ring_extra(ring, i), 1000 + i);
	}
	end_ring(ring);
}
END_TEST

/* A datagram socket that is its own peer. */
static int make_mirror(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(addr);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, bytes), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, bytes), 0);
	return fd;
}

/* SIOCINQ as a command: the size of the first datagram (6.7). */
START_TEST(a_command_is_carried_out)
{
	struct mrt__ring *ring = make_big(big_kinds[_i]);
	struct mrt__ring_args args = { .opcode = MRT__OPCODE_URING_CMD, .off = 0 }; /* SOCKET_URING_OP_SIOCINQ */
	unsigned char cmd[MRT__RING_CMD_BYTES] = { 0 };
	char datagram[64] = "";
	int size, k;

	args.fd = make_mirror();
	for (size = 1; size < 20; size++) {
		ck_assert_int_eq(send(args.fd, datagram, (size_t)size, 0), size);
		for (k = 0; k < 5; k++)
			ck_assert(mrt__ring_stage_cmd(ring, &args, cmd, &ops[k]));
		collect(ring, 5);
		if (done[0].res == -EOPNOTSUPP || done[0].res == -EINVAL) {
			printf("not tried: this kernel's sockets take no commands (error %d)\n", -done[0].res);
			break;
		}
		for (k = 0; k < 5; k++) {
			ck_assert_ptr_eq(done[k].user, &ops[k]);
			ck_assert_int_eq(done[k].res, size);
		}
		ck_assert_int_eq(recv(args.fd, datagram, sizeof(datagram), 0), size);
	}
	args.off = 12345;       /* no such command: cmd_op does reach the kernel */
	ck_assert(mrt__ring_stage_cmd(ring, &args, cmd, &ops[0]));
	collect(ring, 1);
	ck_assert_int_lt(done[0].res, 0);
	end_ring(ring);
}
END_TEST

/* What no socket looks at: the whole command, where NVMe looks for it. */
START_TEST(a_commands_bytes_lie_behind_its_sqe_and_nowhere_else)
{
	struct mrt__ring *ring = make_big(0);
	struct mrt__ring_args args = {
		.opcode = MRT__OPCODE_URING_CMD, .fd = -1, .off = 0x1234, .op_flags = MRT__RING_CMD_FIXED, .buf_index = 5,
	};
	unsigned char cmd[MRT__RING_CMD_BYTES], *sqe = ring->sqes + 2 * 128; /* two polls have passed */
	static char memory[4096];
	uint32_t word;
	uint16_t half;
	unsigned i;

	for (i = 0; i < sizeof(cmd); i++)
		cmd[i] = (unsigned char)(0x80 + i);
	/* else it depends on the kernel whether it looks for the buffer or the descriptor first */
	ck_assert_int_eq(mrt__ring_buffer_set(ring, 8, 5, memory, sizeof(memory)), 0);
	memset(sqe, 0x11, 4 * 128);
	ck_assert(mrt__ring_stage_cmd(ring, &args, cmd, &ops[3]));
	ck_assert_int_eq(memcmp(sqe + 48, cmd, sizeof(cmd)), 0);
	memcpy(&word, sqe + 8, sizeof(word));
	ck_assert_uint_eq(word, 0x1234);
	memcpy(&word, sqe + 28, sizeof(word));
	ck_assert_uint_eq(word, MRT__RING_CMD_FIXED);
	memcpy(&half, sqe + 40, sizeof(half));
	ck_assert_uint_eq(half, 5);
	for (i = 120; i < 4 * 128; i++)
		ck_assert_uint_eq(sqe[i], 0x11);
	collect(ring, 1);
	ck_assert_ptr_eq(done[0].user, &ops[3]);
	ck_assert_int_eq(done[0].res, -EBADF);
	end_ring(ring);
}
END_TEST

/* ---- polled rings ---------------------------------------------------------------------------------------------- */

static struct mrt__ring *make_polled(uint32_t more)
{
	struct mrt__ring_opts opts = { .sq_entries = 8, .cq_entries = 32, .flags = MRT__RING_OPT_IOPOLL | more };

	return make_enabled_opts(&opts);
}

/* As collect(), but by flushes: a polled ring cannot be waited in. */
static void poll_ops(struct mrt__ring *ring, unsigned nr)
{
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned got = 0, events = 0;

	while (got < nr) {
		(void)mrt__ring_flush(ring);
		got += mrt__ring_reap(ring, done + got, nr - got, &events);
		ck_assert_msg(mrt__clock_now() < deadline, "%u of %u ops came back", got, nr);
	}
	ck_assert_uint_eq(events, 0);
}

START_TEST(a_file_that_cannot_be_polled_is_refused_op_by_op)
{
	struct mrt__ring *ring = make_polled(_i ? MRT__RING_OPT_BIG : 0);
	char path[] = "/tmp/mrt-ring-XXXXXX";
	int fd = mkstemp(path), k;
	static char buf[4096];

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(write(fd, buf, sizeof(buf)), sizeof(buf));
	for (k = 0; k < 20; k++) {
		ck_assert(stage_read(ring, fd, buf, sizeof(buf), 0, &ops[0]));
		ck_assert(stage_nop(ring, &ops[1]));
		poll_ops(ring, 2);
		ck_assert_int_eq(done[done[0].user == &ops[0] ? 0 : 1].res, -EOPNOTSUPP);
		ck_assert_int_eq(done[done[0].user == &ops[0] ? 1 : 0].res, 0);
	}
	ck_assert_uint_eq(stats.sqes, 40);      /* nothing of the ring's own */
	end_ring(ring);
}
END_TEST

START_TEST(a_polled_ring_cancels_nothing_and_is_not_woken)
{
	struct mrt__ring *ring = make_polled(0);
	unsigned events = 0, i;

	for (i = 0; i < 6; i++)
		ck_assert(stage_nop(ring, &ops[i]));
	mrt__ring_cancel(ring, &ops[0]);
	ck_assert(mrt__ring_cancel_file(ring, 0, false));
	ck_assert_uint_eq(mrt__ring_staged(ring), 6);
	mrt__ring_wake(ring);
	poll_ops(ring, 6);
	(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(mrt__ring_reap(ring, done, 1, &events), 0);
	ck_assert_uint_eq(events, 0);
	end_ring(ring);
}
END_TEST

START_TEST(a_polled_ring_needs_one_descriptor_and_leaves_none)
{
	unsigned before = count_fds();
	struct mrt__ring *ring = make_polled(0);

	ck_assert_uint_eq(count_fds(), before + 1);
	end_ring(ring);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

START_TEST(a_polled_ring_says_what_it_is)
{
	struct mrt__ring *ring = make_polled(_i ? MRT__RING_OPT_HYBRID : 0);
	struct mrt_ring_report report;

	mrt__ring_report(ring, &report);
	ck_assert(report.setup_flags & SETUP_IOPOLL);
	ck_assert_msg(strstr(report.text, ", polled") != NULL, "%s", report.text);
	if (_i)
		ck_assert_msg(!!strstr(report.text, "hybrid refused") == !(report.setup_flags & SETUP_HYBRID), "%s", report.text);
	else
		ck_assert_msg(strstr(report.text, "hybrid") == NULL, "%s", report.text);
	end_ring(ring);
}
END_TEST

START_TEST(a_polled_ring_beside_the_workers_own)
{
	struct mrt__ring *own = make_enabled(8, 16, 0), *polled = make_polled(0);
	char buf[8];
	int fds[2];

	make_pipe(fds);
	ck_assert(stage_read(own, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[0]));
	(void)mrt__ring_flush(own);
	ck_assert(stage_nop(polled, &ops[1]));
	poll_ops(polled, 1);
	ck_assert_ptr_eq(done[0].user, &ops[1]);
	ck_assert_int_eq(write(fds[1], "x", 1), 1);
	collect(own, 1);
	ck_assert_ptr_eq(done[0].user, &ops[0]);
	end_ring(polled);
	end_ring(own);
}
END_TEST

START_TEST(kinds_that_do_not_go_together_are_refused)
{
	static const uint32_t flags[] = {
		MRT__RING_OPT_IOPOLL | MRT__RING_OPT_SQPOLL, MRT__RING_OPT_HYBRID,
		MRT__RING_OPT_HYBRID | MRT__RING_OPT_SQPOLL,
	};
	struct mrt__ring_opts opts = { .sq_entries = 8, .cq_entries = 8 };
	struct mrt__ring *ring = NULL;
	char why[256] = "";
	size_t i;

	for (i = 0; i < MRT__ARRAY_NR(flags); i++) {
		opts.flags = flags[i];
		ck_assert_int_eq(mrt__ring_create(&opts, &ring, why, sizeof(why)), -EINVAL);
		ck_assert_ptr_null(ring);
		ck_assert_msg(strstr(why, "IOPOLL") != NULL, "%s", why);
	}
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------------- */

static Suite *modes_suite(void)
{
	Suite *s = suite_create("ring_modes");
	TCase *sqpoll = tcase_create("sqpoll"), *big = tcase_create("big"), *polled = tcase_create("polled");

	tcase_set_timeout(sqpoll, 30);
	tcase_add_test(sqpoll, the_kernels_thread_takes_what_is_flushed);
	tcase_add_test(sqpoll, what_is_staged_is_not_taken_before_the_flush);
	tcase_add_test(sqpoll, a_thread_that_is_awake_takes_ops_without_an_enter);
	tcase_add_test(sqpoll, stage_looks_for_room_itself);
	tcase_add_test(sqpoll, a_flush_of_a_full_sq_waits_for_room);
	tcase_add_test(sqpoll, a_thousand_nops_pass_through_a_full_sq);
	tcase_add_test(sqpoll, a_wait_with_a_full_sq_makes_room_and_returns);
	tcase_add_test(sqpoll, a_thread_that_sleeps_is_woken);
	tcase_add_test(sqpoll, no_flush_is_missed_while_the_thread_falls_asleep);
	tcase_add_test(sqpoll, flushes_and_waits_of_an_idle_ring_leave_the_thread_asleep);
	tcase_add_test(sqpoll, a_sqpoll_ring_is_woken_and_its_timer_goes_off);
	tcase_add_test(sqpoll, an_overflow_of_a_sqpoll_ring_loses_nothing);
	tcase_add_test(sqpoll, cancels_of_a_sqpoll_ring_find_their_ops_alone);
	tcase_add_test(sqpoll, rings_share_a_thread);
	tcase_add_test(sqpoll, the_threads_time_is_known);
	tcase_add_test(sqpoll, a_cpu_that_does_not_exist_is_refused_and_the_ring_is_an_ordinary_one);
	tcase_add_test(sqpoll, a_sqpoll_ring_says_where_its_thread_runs);
	tcase_add_test(sqpoll, buffers_and_files_of_a_sqpoll_ring_are_registered_too);
	tcase_add_loop_test(sqpoll, an_enter_that_is_forbidden_shows_when_the_ring_is_enabled, 0, 4);
	suite_add_tcase(s, sqpoll);

	tcase_set_timeout(big, 30);
	tcase_add_loop_test(big, ops_of_a_big_ring_come_back_at_every_position, 0, 2);
	tcase_add_loop_test(big, second_results_belong_to_their_ops, 0, 2);
	tcase_add_loop_test(big, a_command_is_carried_out, 0, 2);
	tcase_add_test(big, a_commands_bytes_lie_behind_its_sqe_and_nowhere_else);
	suite_add_tcase(s, big);

	tcase_set_timeout(polled, 30);
	tcase_add_loop_test(polled, a_file_that_cannot_be_polled_is_refused_op_by_op, 0, 2);
	tcase_add_test(polled, a_polled_ring_cancels_nothing_and_is_not_woken);
	tcase_add_test(polled, a_polled_ring_needs_one_descriptor_and_leaves_none);
	tcase_add_loop_test(polled, a_polled_ring_says_what_it_is, 0, 2);
	tcase_add_test(polled, a_polled_ring_beside_the_workers_own);
	tcase_add_test(polled, kinds_that_do_not_go_together_are_refused);
	suite_add_tcase(s, polled);
	return s;
}

int main(void)
{
	return ring_main(modes_suite());
}
