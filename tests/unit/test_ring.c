/* SPDX-License-Identifier: MIT */
/*
 * One ring on the real kernel, without a scheduler. Proven here: every op that is staged comes back once, with its
 * pointer and result, on all three tiers, through small queues and through CQ overflow; cancels are never dropped, not
 * even while the kernel refuses submissions; wakes are never lost, time-outs never early, the sentry's timer goes on;
 * storms of signals lose nothing; descriptors do not leak; and each way to be without io_uring has its own code and
 * sentence (seccomp filters and limits in forked children). Not proven: orders of completions that this kernel does not
 * show (the simulated ring has those), kernels older than this one, speed.
 */
#include "ring/ring.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "fixture.h"
#include "ringtest.h"

#define TIERS 3

/* ---- ops ------------------------------------------------------------------------------------------------------- */

START_TEST(a_nop_comes_back_once_with_its_pointer)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);

	ck_assert(stage_nop(ring, &ops[3]));
	ck_assert_uint_eq(mrt__ring_staged(ring), 1);
	ck_assert_uint_eq(stats.sq_staged, 1);
	ck_assert_int_eq(mrt__ring_flush(ring), 1);
	ck_assert_uint_eq(mrt__ring_staged(ring), 0);
	ck_assert_uint_eq(stats.sq_staged, 0);
	collect(ring, 1);
	ck_assert_ptr_eq(done[0].user, &ops[3]);
	ck_assert_int_eq(done[0].res, 0);
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

START_TEST(a_file_is_read_into_the_buffer_that_was_named)
{
	static const char text[] = "the bird that never lands";
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	FILE *file = tmpfile();
	char buf[64] = "";

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(write(fileno(file), text, sizeof(text)), sizeof(text));
	ck_assert(stage_read(ring, fileno(file), buf, sizeof(buf), 4, &ops[0]));
	collect(ring, 1);
	ck_assert_int_eq(done[0].res, (int)sizeof(text) - 4);
	ck_assert_str_eq(buf, text + 4);
	end_ring(ring);
	(void)fclose(file);
}
END_TEST

START_TEST(an_errno_of_the_kernel_is_the_result)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	char buf[8];

	ck_assert(stage_read(ring, -1, buf, sizeof(buf), 0, &ops[0]));
	ck_assert(stage_nop(ring, &ops[1]));
	collect(ring, 2);
	ck_assert_int_eq(done[0].res, -EBADF);
	ck_assert_int_eq(done[1].res, 0);
	end_ring(ring);
}
END_TEST

START_TEST(a_thousand_nops_pass_through_an_sq_of_8)
{
	struct mrt__ring *ring = make_enabled(8, 64, (unsigned)_i);
	unsigned events = 0, sent = 0, got = 0;
	unsigned char seen[1000] = { 0 };
	uint64_t *user;

	while (got < 1000) {
		while (sent < 1000 && stage_nop(ring, &ops[sent]))
			sent++;
		ck_assert(mrt__ring_staged(ring) == 6 || sent == 1000);
		if (mrt__ring_flush(ring) == 0)
			mrt__ring_wait(ring, PATIENCE);
		got += mrt__ring_reap(ring, done + got, 1000 - got, &events);
	}
	for (got = 0; got < 1000; got++) {
		user = done[got].user;
		ck_assert_uint_eq(seen[user - ops]++, 0);
	}
	ck_assert_uint_eq(stats.sqes, 1002);    /* two polls of the ring's own */
	ck_assert_uint_eq(stats.cqes, 1000);
	end_ring(ring);
}
END_TEST

START_TEST(two_sqes_are_kept_back)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	unsigned i;

	for (i = 0; i < 6; i++)
		ck_assert(stage_nop(ring, &ops[i]));
	ck_assert(!stage_nop(ring, &ops[6]));
	ck_assert_uint_eq(mrt__ring_staged(ring), 6);
	mrt__ring_cancel(ring, &ops[0]);
	mrt__ring_cancel(ring, &ops[1]);
	ck_assert_uint_eq(mrt__ring_staged(ring), 8);   /* none of these entered the kernel */
	ck_assert_uint_eq(mrt__ring_ready(ring), 0);
	collect(ring, 6);
	end_ring(ring);
}
END_TEST

START_TEST(the_smallest_ring_has_room_for_an_op)
{
	struct mrt__ring *ring = make_enabled(1, 1, 0);

	ck_assert(stage_nop(ring, &ops[0]));
	collect(ring, 1);
	end_ring(ring);
}
END_TEST

START_TEST(a_reap_takes_at_most_max_and_the_oldest_first)
{
	struct mrt__ring *ring = make_enabled(16, 32, 0);
	unsigned events = 0, i;

	for (i = 0; i < 10; i++)
		ck_assert(stage_nop(ring, &ops[i]));
	(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(mrt__ring_ready(ring), 10);
	ck_assert_uint_eq(mrt__ring_reap(ring, done, 4, &events), 4);
	ck_assert_uint_eq(mrt__ring_ready(ring), 6);
	ck_assert_uint_eq(mrt__ring_reap(ring, done + 4, 0, &events), 0);
	ck_assert_uint_eq(mrt__ring_reap(ring, done + 4, 100, &events), 6);
	for (i = 0; i < 10; i++)
		ck_assert_ptr_eq(done[i].user, &ops[i]);
	end_ring(ring);
}
END_TEST

START_TEST(own_completions_in_front_are_consumed_beyond_max)
{
	struct mrt__ring *ring = make_enabled(16, 32, 0);
	unsigned events = 0;

	mrt__ring_wake(ring);
	(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(mrt__ring_ready(ring), 1);
	ck_assert_uint_eq(mrt__ring_reap(ring, done, 0, &events), 0);
	ck_assert_uint_eq(events, MRT__RING_EVENT_WAKE);
	ck_assert_uint_eq(mrt__ring_ready(ring), 0);
	end_ring(ring);
}
END_TEST

/* ---- cancels --------------------------------------------------------------------------------------------------- */

START_TEST(a_pipe_read_is_cancelled_and_the_answer_is_kept_inside)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	char buf[8];
	int fds[2];

	make_pipe(fds);
	ck_assert(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[0]));
	(void)mrt__ring_flush(ring);
	assert_quiet(ring);
	mrt__ring_cancel(ring, &ops[0]);
	collect(ring, 1);
	ck_assert_ptr_eq(done[0].user, &ops[0]);
	ck_assert_int_eq(done[0].res, -ECANCELED);
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

START_TEST(a_cancel_finds_an_op_that_is_staged_before_it)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	char buf[8];
	int fds[2];

	make_pipe(fds);
	ck_assert(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[0]));
	mrt__ring_cancel(ring, &ops[0]);
	collect(ring, 1);
	ck_assert_int_eq(done[0].res, -ECANCELED);
	end_ring(ring);
}
END_TEST

START_TEST(a_cancel_of_what_has_ended_does_not_touch_the_next_user_of_its_address)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	unsigned events = 0;
	char buf[8];
	int fds[2];

	make_pipe(fds);
	ck_assert(stage_nop(ring, &ops[0]));
	(void)mrt__ring_flush(ring);
	mrt__ring_cancel(ring, &ops[0]);        /* staged, while the nop's completion waits to be reaped */
	collect(ring, 1);
	ck_assert(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[0]));
	(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(mrt__ring_reap(ring, done, 1, &events), 0);
	assert_quiet(ring);
	ck_assert_int_eq(write(fds[1], "x", 1), 1);
	collect(ring, 1);
	ck_assert_int_eq(done[0].res, 1);
	end_ring(ring);
}
END_TEST

START_TEST(every_cancel_finds_room_in_a_full_sq)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	unsigned i, sent;
	char buf[8];
	int fds[2];

	make_pipe(fds);
	for (sent = 0; sent < 60;) {
		if (stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[sent]))
			sent++;
		else
			(void)mrt__ring_flush(ring);
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

START_TEST(a_cancel_that_is_only_tried_needs_a_free_sqe)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	unsigned i, staged_nr;
	char buf[8];
	int fds[2];

	make_pipe(fds);
	for (i = 0; i < 6; i++)
		ck_assert(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[i]));
	ck_assert(mrt__ring_try_cancel(ring, &ops[0]));
	ck_assert(mrt__ring_try_cancel(ring, &ops[1]));
	staged_nr = mrt__ring_staged(ring);
	ck_assert(!mrt__ring_try_cancel(ring, &ops[2]));
	ck_assert_uint_eq(mrt__ring_staged(ring), staged_nr); /* neither flushed nor remembered */
	collect(ring, 2);
	assert_quiet(ring); /* the others still wait */
	for (i = 2; i < 6; i++)
		ck_assert(mrt__ring_try_cancel(ring, &ops[i]));
	collect(ring, 4);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(done[i].res, -ECANCELED);
	end_ring(ring);
}
END_TEST

/* ---- wakes and waits ------------------------------------------------------------------------------------------- */

static atomic_uint rounds;

static unsigned wait_for_wake(struct mrt__ring *ring)
{
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned events = 0;

	do {
		ck_assert_msg(mrt__clock_now() < deadline, "a wake was lost");
		mrt__ring_wait(ring, PATIENCE);
		ck_assert_uint_eq(mrt__ring_reap(ring, done, 1, &events), 0);
	} while (!(events & MRT__RING_EVENT_WAKE));
	return events;
}

START_TEST(a_wake_before_the_wait_ends_the_wait)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	unsigned i;

	for (i = 0; i < 5; i++) {
		mrt__ring_wake(ring);
		mrt__ring_wake(ring);   /* a level, not a count */
		(void)wait_for_wake(ring);
		assert_quiet(ring);
	}
	end_ring(ring);
}
END_TEST

START_TEST(a_wake_before_enable_is_not_lost)
{
	struct mrt__ring *ring = make_ring(8, 16, (unsigned)_i);

	mrt__ring_wake(ring);
	ck_assert_int_eq(mrt__ring_enable(ring, NULL), 0);
	(void)wait_for_wake(ring);
	end_ring(ring);
}
END_TEST

#define WAKE_ROUNDS 2000u

static void *wake_each_round(void *arg)
{
	struct mrt__ring *ring = arg;
	unsigned i;

	for (i = 0; i < WAKE_ROUNDS; i++) {
		while (atomic_load(&rounds) != i)
			sched_yield();
		mrt__ring_wake(ring);
	}
	return NULL;
}

START_TEST(no_wake_of_another_thread_is_lost)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	pthread_t thread;
	unsigned i;

	atomic_store(&rounds, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, wake_each_round, ring), 0);
	for (i = 0; i < WAKE_ROUNDS; i++) {
		(void)wait_for_wake(ring);
		atomic_store(&rounds, i + 1);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

START_TEST(a_time_out_is_never_early)
{
	static const uint64_t timeouts[] = { 1, 999, 50000, 1 * MS, 5 * MS, 20 * MS, SEC / 10 };
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	uint64_t deadline = mrt__clock_now() + PATIENCE, start, took;
	size_t i;

	for (i = 0; i < MRT__ARRAY_NR(timeouts); i++) {
		/* nor late, once the machine is not busy */
		do {
			start = mrt__clock_now();
			ck_assert_uint_lt(start, deadline);
			mrt__ring_wait(ring, timeouts[i]);
			took = mrt__clock_now() - start;
			ck_assert_uint_ge(took, timeouts[i]);
		} while (took > timeouts[i] + SEC);
	}
	ck_assert_uint_eq(mrt__ring_ready(ring), 0);
	end_ring(ring);
}
END_TEST

START_TEST(a_wait_with_something_to_reap_returns_at_once)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);

	ck_assert(stage_nop(ring, &ops[0]));
	mrt__ring_wait(ring, UINT64_MAX);       /* submits it, and it completes at once */
	ck_assert_uint_eq(mrt__ring_ready(ring), 1);
	mrt__ring_wait(ring, UINT64_MAX);
	ck_assert_uint_eq(mrt__ring_ready(ring), 1);
	mrt__ring_wait(ring, 0);
	collect(ring, 1);
	end_ring(ring);
}
END_TEST

START_TEST(the_sentrys_timer_goes_off_again_and_again_until_it_is_stopped)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	uint64_t start = mrt__clock_now(), deadline = start + PATIENCE;
	unsigned events, fired = 0;

	mrt__ring_sentry_arm(ring, 2 * MS);
	while (fired < 10) {
		events = 0;
		mrt__ring_wait(ring, SEC);
		ck_assert_uint_eq(mrt__ring_reap(ring, done, 1, &events), 0);
		fired += !!(events & MRT__RING_EVENT_SENTRY);
		ck_assert_msg(mrt__clock_now() < deadline, "it went off %u times", fired);
	}
	ck_assert_uint_ge(mrt__clock_now() - start, 20 * MS - 2 * MS);

	mrt__ring_sentry_disarm(ring);
	events = 0;
	(void)mrt__ring_flush(ring);
	(void)mrt__ring_reap(ring, done, 1, &events);   /* may have gone off before it was stopped */
	events = 0;
	mrt__ring_wait(ring, 20 * MS);
	(void)mrt__ring_reap(ring, done, 1, &events);
	ck_assert_uint_eq(events, 0);

	mrt__ring_sentry_arm(ring, 3 * MS);
	do {
		ck_assert(mrt__clock_now() < deadline);
		mrt__ring_wait(ring, SEC);
		(void)mrt__ring_reap(ring, done, 1, &events);
	} while (!(events & MRT__RING_EVENT_SENTRY));
	end_ring(ring);
}
END_TEST

static atomic_bool storm_over;
static pthread_t storm_target;
static struct mrt__ring *_Atomic storm_ring;

static void on_signal(int signo)
{
	(void)signo;
	mrt__ring_wake(atomic_load(&storm_ring));
}

static void *send_signals(void *arg)
{
	(void)arg;
	while (!atomic_load(&storm_over)) {
		(void)pthread_kill(storm_target, SIGUSR1);
		sched_yield();
	}
	return NULL;
}

START_TEST(a_storm_of_signals_loses_nothing)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	struct sigaction action = { .sa_handler = on_signal };
	uint64_t deadline = mrt__clock_now() + PATIENCE, start;
	unsigned events = 0, sent = 0, got = 0;
	pthread_t thread;

	storm_target = pthread_self();
	atomic_store(&storm_ring, ring);
	atomic_store(&storm_over, false);
	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, send_signals, NULL), 0);
	while (got < 1000) {
		while (sent < 1000 && sent - got < 12 && stage_nop(ring, &ops[sent]))
			sent++;
		mrt__ring_wait(ring, SEC);
		got += mrt__ring_reap(ring, done, OPS_MAX, &events);
		ck_assert(mrt__clock_now() < deadline);
	}
	/* waits end early, so callers come again: the storm must not turn them into errors */
	start = mrt__clock_now();
	while (mrt__clock_now() < start + 20 * MS || !(events & MRT__RING_EVENT_WAKE)) {
		ck_assert(mrt__clock_now() < deadline); /* on a busy machine the first signal may come late */
		mrt__ring_wait(ring, 5 * MS);
		(void)mrt__ring_reap(ring, done, 1, &events);
	}
	atomic_store(&storm_over, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	end_ring(ring);
}
END_TEST

/* ---- overflow -------------------------------------------------------------------------------------------------- */

START_TEST(an_overflowing_cq_loses_nothing_and_keeps_the_order)
{
	struct mrt__ring *ring = make_enabled(16, 16, (unsigned)_i);
	unsigned i;

	for (i = 0; i < 64; i++) {
		while (!stage_nop(ring, &ops[i]))
			(void)mrt__ring_flush(ring);
	}
	while (mrt__ring_staged(ring))
		(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(mrt__ring_ready(ring), 16);
	ck_assert(mrt__ring_has_deferred(ring));
	collect(ring, 64);
	for (i = 0; i < 64; i++)
		ck_assert_ptr_eq(done[i].user, &ops[i]);
	(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(stats.cq_overflows, 1);
	ck_assert_uint_eq(stats.cqes, 64);
	end_ring(ring);
}
END_TEST

START_TEST(wakes_go_on_after_an_overflow_has_ended_their_poll)
{
	struct mrt__ring *ring = make_enabled(16, 16, (unsigned)_i);
	unsigned round, i;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 40; i++) {
			while (!stage_nop(ring, &ops[i]))
				(void)mrt__ring_flush(ring);
		}
		while (mrt__ring_staged(ring))
			(void)mrt__ring_flush(ring);
		mrt__ring_wake(ring);
		(void)mrt__ring_flush(ring);
		collect(ring, 40);
		/* the wake itself may have been reaped with the nops; the next one must come */
		for (i = 0; i < 3; i++) {
			mrt__ring_wake(ring);
			(void)wait_for_wake(ring);
		}
	}
	end_ring(ring);
}
END_TEST

START_TEST(deferred_work_shows_as_a_hint)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	struct mrt_ring_report report;
	unsigned events = 0;

	mrt__ring_report(ring, &report);
	if (!(report.setup_flags & (1u << 13))) {       /* DEFER_TASKRUN: elsewhere completions come unasked */
		end_ring(ring);
		return;
	}
	ck_assert(!mrt__ring_has_deferred(ring));
	mrt__ring_wake(ring);
	ck_assert_uint_eq(mrt__ring_ready(ring), 0);
	ck_assert(mrt__ring_has_deferred(ring));
	(void)mrt__ring_flush(ring);
	ck_assert_uint_eq(mrt__ring_reap(ring, done, 1, &events), 0);
	ck_assert_uint_eq(events, MRT__RING_EVENT_WAKE);
	end_ring(ring);
}
END_TEST

/* ---- life ------------------------------------------------------------------------------------------------------ */

START_TEST(a_ring_leaves_no_descriptor_behind)
{
	unsigned before = count_fds(), i;
	struct mrt__ring *ring;
	char buf[8];
	int fds[2];

	for (i = 0; i < 60; i++) {
		ring = make_ring(64, 256, i % TIERS);
		if (i % 2) {
			ck_assert_int_eq(mrt__ring_enable(ring, NULL), 0);
			make_pipe(fds);
			ck_assert(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[0]));
			(void)mrt__ring_flush(ring);
			mrt__ring_cancel(ring, &ops[0]);
			mrt__ring_wake(ring);
			collect(ring, 1);
			ck_assert_int_eq(mrt__ring_drain(ring), 0);
			close(fds[0]);
			close(fds[1]);
		}
		mrt__ring_destroy(ring);
	}
	mrt__ring_destroy(NULL);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

START_TEST(a_ring_can_be_drained_amid_wakes_and_sentry_alarms)
{
	struct mrt__ring *ring;
	unsigned i;

	for (i = 0; i < 30; i++) {
		ring = make_enabled(8, 16, i % TIERS);
		mrt__ring_sentry_arm(ring, MS / 10);
		mrt__ring_wake(ring);
		mrt__ring_wait(ring, MS);
		ck_assert_int_eq(mrt__ring_drain(ring), 0);
		mrt__ring_wake(ring);           /* late, but the ring exists */
		mrt__ring_sentry_disarm(ring);
		mrt__ring_destroy(ring);
	}
}
END_TEST

START_TEST(the_report_says_what_was_granted)
{
	static const char *const names[TIERS] = { "DEFER_TASKRUN", "COOP_TASKRUN", "plain" };
	struct mrt__ring *ring = make_enabled(32, 128, (unsigned)_i);
	struct mrt_ring_report report;

	mrt__ring_report(ring, &report);
	ck_assert_uint_eq(report.sq_entries, 32);
	ck_assert_uint_eq(report.cq_entries, 128);
	ck_assert_msg(strstr(report.text, names[_i]) != NULL, "%s", report.text);
	ck_assert_msg(strstr(report.text, "SQ 32, CQ 128") != NULL, "%s", report.text);
	ck_assert(!!(report.setup_flags & (1u << 13)) == (_i == 0));
	ck_assert(!!(report.setup_flags & (1u << 8)) == (_i == 1));
	ck_assert_uint_ne(report.features, 0);
	end_ring(ring);
}
END_TEST

START_TEST(opcodes_are_probed)
{
	struct mrt__ring *ring = make_ring(8, 16, 0);

	ck_assert(mrt__ring_has_opcode(ring, MRT__OPCODE_NOP));
	ck_assert(mrt__ring_has_opcode(ring, MRT__OPCODE_READ));
	ck_assert(!mrt__ring_has_opcode(ring, 63));
	mrt__ring_destroy(ring);
}
END_TEST

/* The kernel takes 16 registered rings per thread; the others go on with their plain descriptor, and say so. */
START_TEST(the_seventeenth_ring_of_a_thread_works_too)
{
	struct mrt__ring *rings[17];
	struct mrt_ring_report report;
	unsigned i, registered = 0;

	for (i = 0; i < 17; i++) {
		rings[i] = make_enabled(8, 16, 0);
		mrt__ring_report(rings[i], &report);
		registered += report.ring_fd_registered;
	}
	ck_assert_uint_le(registered, 16);
	ck_assert_uint_eq(report.ring_fd_registered, 0);
	ck_assert_msg(strstr(report.text, "not registered") != NULL, "%s", report.text);
	for (i = 0; i < 17; i++) {
		ck_assert(stage_nop(rings[i], &ops[i]));
		collect(rings[i], 1);
		ck_assert_ptr_eq(done[0].user, &ops[i]);
	}
	for (i = 0; i < 17; i++)
		end_ring(rings[i]);
}
END_TEST

START_TEST(io_wq_runs_where_it_is_told_to)
{
	struct mrt__ring_args args = { .opcode = MRT__OPCODE_NOP, .fd = -1, .sqe_flags = MRT__RING_SQE_ASYNC };
	struct mrt__ring *ring = make_ring(8, 16, 0);   /* while this thread may still run anywhere */
	struct mrt_ring_report report;
	cpu_set_t all, mine, others;
	int cpu = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET((size_t)cpu, &all))
		cpu++;
	CPU_ZERO(&mine);
	CPU_SET((size_t)cpu, &mine);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(mine), &mine), 0);
	others = all;
	if (CPU_COUNT(&all) > 1)
		CPU_CLR((size_t)cpu, &others);
	ck_assert_int_eq(mrt__ring_enable(ring, &others), 0);
	mrt__ring_report(ring, &report);
	ck_assert_msg(strstr(report.text, "io-wq") == NULL, "%s", report.text);
	ck_assert(mrt__ring_stage(ring, &args, 0, &ops[0]));
	collect(ring, 1);
	if (CPU_COUNT(&all) > 1)
		ck_assert_int_eq(fixture_iowq_may_run_on(gettid(), cpu), 0);
	end_ring(ring);
}
END_TEST

static struct mrt__ring *fork_ring;

static int abandon_and_check(void)
{
	unsigned before = count_fds();

	mrt__ring_abandon(fork_ring);
	CHILD_ASSERT(count_fds() == before - 3);
	mrt__ring_wake(fork_ring);              /* reaches nobody, and does no harm */
	mrt__ring_sentry_arm(fork_ring, MS);
	mrt__ring_destroy(fork_ring);
	CHILD_ASSERT(count_fds() == before - 3);
	return 0;
}

START_TEST(a_child_that_abandons_a_ring_leaves_the_parents_alone)
{
	unsigned events = 0;

	fork_ring = make_enabled(8, 16, 0);
	ck_assert(stage_nop(fork_ring, &ops[0]));
	in_child(abandon_and_check);
	ck_assert_uint_eq(mrt__ring_staged(fork_ring), 1);
	collect(fork_ring, 1);
	mrt__ring_wait(fork_ring, MS);
	(void)mrt__ring_reap(fork_ring, done, 1, &events);
	ck_assert_uint_eq(events, 0);
	end_ring(fork_ring);
}
END_TEST

/* Registered ring descriptors are numbers per thread: with a ring of its own, this thread would drive that one. */
static void *flush_foreign(void *arg)
{
	struct mrt__ring *own = make_enabled(8, 16, 2);

	(void)mrt__ring_flush(arg);
	end_ring(own);
	return NULL;
}

static int flush_on_another_thread(void)
{
	struct rlimit no_core = { 0 };
	pthread_t thread;

	(void)setrlimit(RLIMIT_CORE, &no_core);
	if (!freopen("/dev/null", "w", stderr) || pthread_create(&thread, NULL, flush_foreign, fork_ring))
		return 2;
	(void)pthread_join(thread, NULL);
	return 0;
}

START_TEST(a_flush_by_another_thread_ends_the_process)
{
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		fork_ring = make_enabled(8, 16, 2);     /* the kernel itself would refuse it on tier 0 only */
		_exit(flush_on_another_thread());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
END_TEST

/* ---- without io_uring ------------------------------------------------------------------------------------------ */

START_TEST(sizes_that_no_ring_has_are_refused)
{
	static const unsigned sizes[][2] = { { 0, 8 }, { 8, 4 }, { 6, 8 }, { 8, 12 }, { 8, 0 } };
	char why[256];
	size_t i;

	for (i = 0; i < MRT__ARRAY_NR(sizes); i++) {
		why[0] = '\0';
		ck_assert_int_eq(try_create(sizes[i][0], sizes[i][1], why, sizeof(why)), -EINVAL);
		ck_assert_uint_gt(strlen(why), 10);
		ck_assert_int_eq(try_create(sizes[i][0], sizes[i][1], NULL, 0), -EINVAL);
	}
}
END_TEST

static int exhaust_descriptors(void)
{
	struct rlimit limit = { .rlim_cur = 64, .rlim_max = 64 };
	char why[256] = "";
	int fds[64], room, nr = 0, i;

	CHILD_ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	while (nr < 64 && (fds[nr] = dup(0)) >= 0)
		nr++;
	CHILD_ASSERT(nr > 3 && errno == EMFILE);
	for (room = 0; room < 3; room++) {      /* a ring needs three */
		for (i = 0; i < room; i++)
			CHILD_ASSERT(close(fds[--nr]) == 0);
		CHILD_ASSERT(try_create(8, 16, why, sizeof(why)) == -EMFILE);
		CHILD_ASSERT(strstr(why, "RLIMIT_NOFILE is 64") != NULL);
		for (i = 0; i < room; i++)      /* all that was free is free again */
			CHILD_ASSERT((fds[nr++] = dup(0)) >= 0);
		CHILD_ASSERT(dup(0) < 0);
	}
	return 0;
}

START_TEST(running_out_of_descriptors_is_emfile_at_each_step)
{
	in_child(exhaust_descriptors);
}
END_TEST

/* From now on io_uring_setup ends with setup_error, and io_uring_enter with min_complete 0 with enter_error; 0: neither. */
static int install_filter(unsigned setup_error, unsigned enter_error)
{
	const unsigned low_word = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, setup_error ? SYS_io_uring_setup : UINT32_MAX, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | setup_error),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, enter_error ? SYS_io_uring_enter : UINT32_MAX, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, args[2]) + low_word),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | enter_error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = MRT__ARRAY_NR(code), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) ? -errno : 0;
}

struct refusal {
	int error;              /* what the kernel says */
	int code;               /* what create returns */
	const char *word;       /* in the sentence */
};

static const struct refusal refusals[] = {
	{ ENOSYS, -ENOSYS, "has no io_uring" },
	{ EPERM, -EPERM, "seccomp" },
	{ EACCES, -EPERM, "seccomp" },
	{ EINVAL, -EOPNOTSUPP, "too old" },
	{ ENOMEM, -ENOMEM, "RLIMIT_MEMLOCK" },
	{ ENFILE, -EMFILE, "RLIMIT_NOFILE" },
	{ EIO, -EIO, "error 5" },
};
static const struct refusal *refusal;

static int be_refused(void)
{
	struct rlimit limit = { .rlim_cur = 65536, .rlim_max = 65536 };
	char why[256] = "";
	unsigned before;
	int ret;

	before = count_fds();
	CHILD_ASSERT(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	if (install_filter((unsigned)refusal->error, 0)) {
		fprintf(stderr, "no seccomp filters here: %s not tried\n", refusal->word);
		return 0;
	}
	ret = try_create(256, 2048, why, sizeof(why));
	printf("%d: %s\n", ret, why);
	CHILD_ASSERT(ret == refusal->code);
	CHILD_ASSERT(strstr(why, refusal->word) != NULL);
	CHILD_ASSERT(strchr(why, '\n') == NULL);
	CHILD_ASSERT(count_fds() == before);
	(void)fflush(stdout);
	return 0;
}

START_TEST(each_refusal_has_its_code_and_its_sentence)
{
	refusal = &refusals[_i];
	in_child(be_refused);
}
END_TEST

static int exceed_memlock(void)
{
	struct rlimit limit = { .rlim_cur = 0, .rlim_max = 0 };
	char why[256] = "";
	int ret;

	CHILD_ASSERT(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	if (geteuid() == 0)
		CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	ret = try_create(256, 2048, why, sizeof(why));
	if (ret == 0)
		return 0;       /* kernels before 6.14 or so do not count rings */
	printf("%d: %s\n", ret, why);
	(void)fflush(stdout);
	CHILD_ASSERT(ret == -ENOMEM);
	CHILD_ASSERT(strstr(why, "52 KiB") || sysconf(_SC_PAGESIZE) != 4096);
	CHILD_ASSERT(strstr(why, "RLIMIT_MEMLOCK allows all processes of this user 0 KiB"));
	return 0;
}

START_TEST(too_little_memlock_names_need_and_limit)
{
	in_child(exceed_memlock);
}
END_TEST

/* Flushes fail, waits do not: the third cancel finds no SQE, and must not be lost. */
static int cancel_while_flushes_fail(void)
{
	struct mrt__ring *ring = make_enabled(8, 64, 0);
	unsigned events = 0, got = 0, turns, i;
	char buf[8];
	int fds[2];

	CHILD_ASSERT(pipe(fds) == 0);
	for (i = 0; i < 6; i++)
		CHILD_ASSERT(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[i]));
	if (install_filter(0, EBUSY))
		return 0;
	CHILD_ASSERT(mrt__ring_flush(ring) == 0);
	for (i = 0; i < 6; i++)
		mrt__ring_cancel(ring, &ops[i]);
	CHILD_ASSERT(mrt__ring_staged(ring) == 8);
	for (turns = 0; got < 6 && turns < 100; turns++) {
		mrt__ring_wait(ring, MS);
		got += mrt__ring_reap(ring, done + got, 6 - got, &events);
	}
	CHILD_ASSERT(got == 6);
	for (i = 0; i < 6; i++)
		CHILD_ASSERT(done[i].res == -ECANCELED);
	CHILD_ASSERT(mrt__ring_drain(ring) == 0);
	mrt__ring_destroy(ring);
	return 0;
}

START_TEST(cancels_survive_a_kernel_that_takes_no_submissions)
{
	in_child(cancel_while_flushes_fail);
}
END_TEST

/* A cancel that waits for an SQE reaches the kernel before the next user of its op's address. */
static int reuse_after_late_cancel(void)
{
	struct mrt__ring *ring = make_enabled(8, 64, 0);
	unsigned events = 0, got = 0, turns, i;
	char buf[8];
	int fds[2];

	CHILD_ASSERT(pipe(fds) == 0);
	CHILD_ASSERT(stage_nop(ring, &ops[0]) && stage_nop(ring, &ops[1]));
	CHILD_ASSERT(mrt__ring_flush(ring) == 2);
	if (install_filter(0, EAGAIN))
		return 0;
	for (i = 2; i < 8; i++)
		CHILD_ASSERT(stage_nop(ring, &ops[i]));
	mrt__ring_cancel(ring, &ops[2]);
	mrt__ring_cancel(ring, &ops[3]);
	mrt__ring_cancel(ring, &ops[0]);        /* no room for these two */
	mrt__ring_cancel(ring, &ops[1]);
	CHILD_ASSERT(mrt__ring_reap(ring, done, 2, &events) == 2);
	for (turns = 0; got < 6 && turns < 100; turns++) {
		mrt__ring_wait(ring, MS);
		got += mrt__ring_reap(ring, done + got, 6 - got, &events);
	}
	CHILD_ASSERT(got == 6);
	CHILD_ASSERT(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[0]));
	CHILD_ASSERT(stage_read(ring, fds[0], buf, sizeof(buf), UINT64_MAX, &ops[1]));
	for (turns = 0; turns < 5; turns++) {
		mrt__ring_wait(ring, MS);
		CHILD_ASSERT(mrt__ring_reap(ring, done, 1, &events) == 0);
	}
	CHILD_ASSERT(write(fds[1], "xyxyxyxyxy", 10) == 10);
	for (turns = 0, got = 0; got < 2 && turns < 100; turns++) {
		mrt__ring_wait(ring, MS);
		got += mrt__ring_reap(ring, done + got, 2 - got, &events);
	}
	CHILD_ASSERT(got == 2 && done[0].res == 8 && done[1].res == 2);
	return 0;
}

START_TEST(a_late_cancel_does_not_touch_the_next_user_of_its_address)
{
	in_child(reuse_after_late_cancel);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------------- */

static Suite *ring_suite(void)
{
	Suite *s = suite_create("ring");
	TCase *basic = tcase_create("ops"), *cancel = tcase_create("cancel"), *wait = tcase_create("wait");
	TCase *overflow = tcase_create("overflow"), *life = tcase_create("life"), *without = tcase_create("without");

	tcase_set_timeout(basic, 30);
	tcase_add_loop_test(basic, a_nop_comes_back_once_with_its_pointer, 0, TIERS);
	tcase_add_loop_test(basic, a_file_is_read_into_the_buffer_that_was_named, 0, TIERS);
	tcase_add_test(basic, an_errno_of_the_kernel_is_the_result);
	tcase_add_loop_test(basic, a_thousand_nops_pass_through_an_sq_of_8, 0, TIERS);
	tcase_add_test(basic, two_sqes_are_kept_back);
	tcase_add_test(basic, the_smallest_ring_has_room_for_an_op);
	tcase_add_test(basic, a_reap_takes_at_most_max_and_the_oldest_first);
	tcase_add_test(basic, own_completions_in_front_are_consumed_beyond_max);
	suite_add_tcase(s, basic);

	tcase_set_timeout(cancel, 30);
	tcase_add_loop_test(cancel, a_pipe_read_is_cancelled_and_the_answer_is_kept_inside, 0, TIERS);
	tcase_add_test(cancel, a_cancel_finds_an_op_that_is_staged_before_it);
	tcase_add_test(cancel, a_cancel_of_what_has_ended_does_not_touch_the_next_user_of_its_address);
	tcase_add_loop_test(cancel, every_cancel_finds_room_in_a_full_sq, 0, TIERS);
	tcase_add_loop_test(cancel, a_cancel_that_is_only_tried_needs_a_free_sqe, 0, TIERS);
	tcase_add_test(cancel, cancels_survive_a_kernel_that_takes_no_submissions);
	tcase_add_test(cancel, a_late_cancel_does_not_touch_the_next_user_of_its_address);
	suite_add_tcase(s, cancel);

	tcase_set_timeout(wait, 30);
	tcase_add_loop_test(wait, a_wake_before_the_wait_ends_the_wait, 0, TIERS);
	tcase_add_loop_test(wait, a_wake_before_enable_is_not_lost, 0, TIERS);
	tcase_add_loop_test(wait, no_wake_of_another_thread_is_lost, 0, TIERS);
	tcase_add_loop_test(wait, a_time_out_is_never_early, 0, TIERS);
	tcase_add_loop_test(wait, a_wait_with_something_to_reap_returns_at_once, 0, TIERS);
	tcase_add_loop_test(wait, the_sentrys_timer_goes_off_again_and_again_until_it_is_stopped, 0, TIERS);
	tcase_add_loop_test(wait, a_storm_of_signals_loses_nothing, 0, TIERS);
	suite_add_tcase(s, wait);

	tcase_set_timeout(overflow, 30);
	tcase_add_loop_test(overflow, an_overflowing_cq_loses_nothing_and_keeps_the_order, 0, TIERS);
	tcase_add_loop_test(overflow, wakes_go_on_after_an_overflow_has_ended_their_poll, 0, TIERS);
	tcase_add_test(overflow, deferred_work_shows_as_a_hint);
	suite_add_tcase(s, overflow);

	tcase_set_timeout(life, 30);
	tcase_add_test(life, a_ring_leaves_no_descriptor_behind);
	tcase_add_test(life, a_ring_can_be_drained_amid_wakes_and_sentry_alarms);
	tcase_add_loop_test(life, the_report_says_what_was_granted, 0, TIERS);
	tcase_add_test(life, opcodes_are_probed);
	tcase_add_test(life, the_seventeenth_ring_of_a_thread_works_too);
	tcase_add_test(life, io_wq_runs_where_it_is_told_to);
	tcase_add_test(life, a_child_that_abandons_a_ring_leaves_the_parents_alone);
	tcase_add_test(life, a_flush_by_another_thread_ends_the_process);
	suite_add_tcase(s, life);

	tcase_set_timeout(without, 30);
	tcase_add_test(without, sizes_that_no_ring_has_are_refused);
	tcase_add_test(without, running_out_of_descriptors_is_emfile_at_each_step);
	tcase_add_loop_test(without, each_refusal_has_its_code_and_its_sentence, 0, (int)MRT__ARRAY_NR(refusals));
	tcase_add_test(without, too_little_memlock_names_need_and_limit);
	suite_add_tcase(s, without);
	return s;
}

int main(void)
{
	return ring_main(ring_suite());
}
