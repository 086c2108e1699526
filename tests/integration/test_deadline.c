/* SPDX-License-Identifier: MIT */
/*
 * Deadlines: -ETIMEDOUT only where nothing was done; a result wins; the entry may be used again; none is early.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "itest.h"

ITEST_TASK(a_receive_times_out_and_the_timer_is_used_again, {
	struct mrt_op op; struct mrt_timer timer; int fds[2]; char buf[8]; int round; uint64_t start; })
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	for (f->round = 0; f->round < 60; f->round++) {
		f->start = mrt_now();
		MRT_AWAIT(self, mrt_deadline(mrt_recv(&f->op, f->fds[0], f->buf, 8, 0), &f->timer,
					     MRT_US(200) * (uint64_t)(1 + f->round % 5)));
		ck_assert_int_eq(f->op.res, -ETIMEDOUT);
		ck_assert_int_eq(f->op.why, 0);
		ck_assert_uint_ge(mrt_now() - f->start, MRT_US(200) * (uint64_t)(1 + f->round % 5));
		/* and one that does not pass */
		ck_assert_int_eq(write(f->fds[1], "ab", 2), 2);
		MRT_AWAIT(self, mrt_deadline(mrt_recv(&f->op, f->fds[0], f->buf, 8, 0), &f->timer, MRT_SEC(100)));
		ck_assert_int_eq(f->op.res, 2);
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
	}
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* Every kind of wait. */
ITEST_TASK(every_wait_can_time_out, {
	struct mrt_op op[9]; struct mrt_op *ops[9]; struct mrt_timer timer[9]; struct mrt_oneshot o;
	struct mrt_notify n; struct mrt_semaphore s; struct mrt_channel *ch; int pipe[2]; int fds[2]; int msg;
	char buf[4]; int round;
})
{
	int i, k;

	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	ck_assert_int_eq(pipe(f->pipe), 0);
	mrt_oneshot_init(&f->o);
	mrt_notify_init(&f->n);
	ck_assert_int_eq(mrt_semaphore_init(&f->s, 0), 0);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(int), &f->ch), 0);
	for (f->round = 0; f->round < 20; f->round++) {
		k = 0;
		mrt_recv(&f->op[k++], f->fds[0], f->buf, 4, 0);
		mrt_read(&f->op[k++], f->pipe[0], f->buf, 4, MRT_OFF_CURRENT);
		mrt_poll_fd(&f->op[k++], f->fds[1], POLLIN);
		mrt_sleep(&f->op[k++], UINT64_MAX);
		mrt_oneshot_recv(&f->op[k++], &f->o);
		mrt_notify_wait(&f->op[k++], &f->n);
		mrt_semaphore_acquire(&f->op[k++], &f->s, 1);
		mrt_channel_recv(&f->op[k++], f->ch, &f->msg);
		mrt_recv_exact(&f->op[k++], f->fds[1], f->buf, 4);
		for (i = 0; i < 9; i++)
			f->ops[i] = mrt_deadline(&f->op[i], &f->timer[i], MRT_US(100) * (uint64_t)(1 + (i + f->round) % 9));
		MRT_AWAIT_ALL(self, f->ops, 9);
		for (i = 0; i < 9; i++)
			ck_assert_msg(f->op[i].res == -ETIMEDOUT, "op %d: %lld", i, (long long)f->op[i].res);
	}
	mrt_channel_destroy(f->ch);
	close(f->fds[0]);
	close(f->fds[1]);
	close(f->pipe[0]);
	close(f->pipe[1]);
	MRT_RETURN(self, 0);
}

ITEST_TASK(a_deadline_in_the_past_lets_a_ready_op_succeed, {
	struct mrt_op op; struct mrt_timer timer; struct mrt_oneshot o; int fds[2]; char buf[8]; int fd; })
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	mrt_oneshot_init(&f->o);
	mrt_oneshot_send(&f->o, 4);
	MRT_AWAIT(self, mrt_deadline(mrt_oneshot_recv(&f->op, &f->o), &f->timer, 0));
	ck_assert_int_eq(f->op.res, 4);
	ck_assert_int_eq(write(f->fds[1], "abc", 3), 3);
	MRT_AWAIT(self, mrt_deadline(mrt_recv(&f->op, f->fds[0], f->buf, 8, 0), &f->timer, 0));
	ck_assert_int_eq(f->op.res, 3);
	MRT_AWAIT(self, mrt_deadline(mrt_recv(&f->op, f->fds[0], f->buf, 8, 0), &f->timer, 0));
	ck_assert_int_eq(f->op.res, -ETIMEDOUT);
	MRT_AWAIT(self, mrt_deadline(mrt_recv(&f->op, f->fds[0], f->buf, 8, 0), &f->timer, 1));
	ck_assert_int_eq(f->op.res, -ETIMEDOUT);
	MRT_AWAIT(self, mrt_deadline(mrt_sleep(&f->op, 0), &f->timer, 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_deadline(mrt_sleep(&f->op, MRT_MS(5)), &f->timer, UINT64_MAX));
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, f->op.res);
}

/* What the kernel has done in part is delivered as a count; the reason stands in why. */
ITEST_TASK(progress_is_delivered_with_the_reason, {
	struct mrt_op recv; struct mrt_op send; struct mrt_timer timer; struct mrt_timer timer2; int fds[2];
	char buf[64]; int round;
})
{
	static char big[4 << 20];

	MRT_BEGIN(self);
	for (f->round = 0; f->round < 10; f->round++) {
		itest_socketpair(f->fds);
		ck_assert_int_eq(write(f->fds[1], "12345", 5), 5);
		mrt_deadline(mrt_recv_exact(&f->recv, f->fds[0], f->buf, sizeof(f->buf)), &f->timer, MRT_MS(2));
		mrt_deadline(mrt_send_all(&f->send, f->fds[0], big, sizeof(big)), &f->timer2,
			     f->round % 2 ? 0 : MRT_MS(2));
		MRT_AWAIT(self, &f->recv);
		MRT_AWAIT(self, &f->send);
		ck_assert_int_eq(f->recv.res, 5);
		ck_assert_int_eq(f->recv.why, -ETIMEDOUT);
		ck_assert_int_eq(memcmp(f->buf, "12345", 5), 0);
		if (f->send.res < 0) {
			ck_assert_int_eq(f->send.res, -ETIMEDOUT);
		} else {
			ck_assert_int_lt(f->send.res, (int64_t)sizeof(big));
			ck_assert_int_eq(f->send.why, -ETIMEDOUT);
		}
		close(f->fds[0]);
		close(f->fds[1]);
	}
	MRT_RETURN(self, 0);
}

/* A read that a file system or device works on cannot be stopped: its result stands, however late. */
ITEST_TASK(a_read_of_a_file_wins, { struct mrt_op op; struct mrt_timer timer; int fd; int round; char buf[4096]; })
{
	MRT_BEGIN(self);
	f->fd = memfd_create("deadline", MFD_CLOEXEC);
	ck_assert_int_ge(f->fd, 0);
	memset(f->buf, 'r', sizeof(f->buf));
	ck_assert_int_eq(write(f->fd, f->buf, sizeof(f->buf)), sizeof(f->buf));
	for (f->round = 0; f->round < 200; f->round++) {
		mrt_read(&f->op, f->fd, f->buf, sizeof(f->buf), 0);
		mrt_flush();
		MRT_AWAIT(self, mrt_deadline(&f->op, &f->timer, (uint64_t)(f->round % 50) * 200));
		/* io-wq has it, so it may also be told in time: but never half */
		ck_assert(f->op.res == sizeof(f->buf) || f->op.res == -ETIMEDOUT);
	}
	close(f->fd);
	MRT_RETURN(self, 0);
}

/* ---- many ---- */

#define MANY 3000
#define TASKS 50
#define PER_TASK 40

struct many {
	struct mrt_op op[PER_TASK];
	struct mrt_timer timer[PER_TASK];
	struct mrt_op *ops[PER_TASK];
	uint64_t start, due[PER_TASK];
	int fd, round;
	char buf[4];
};

static enum mrt_poll many_poll(struct mrt_task *self, void *frame)
{
	struct many *f = frame;
	uint64_t now;
	int i;

	MRT_BEGIN(self);
	for (f->round = 0; f->round < 10; f->round++) {
		for (i = 0; i < PER_TASK; i++) {
			uint64_t ns = MRT_US(10) * (uint64_t)(1 + (i * 37 + f->round * 11) % 300);

			if (i % 2)
				mrt_recv(&f->op[i], f->fd, f->buf, 4, 0);
			else
				mrt_sleep(&f->op[i], MRT_SEC(50));
			f->due[i] = mrt_now() + ns;
			f->ops[i] = mrt_deadline(&f->op[i], &f->timer[i], ns);
		}
		for (i = 0; i < PER_TASK; i += 7)
			mrt_cancel(&f->op[i]); /* a cancel and a deadline may both be on their way */
		MRT_AWAIT_ALL(self, f->ops, PER_TASK);
		now = mrt_now();
		for (i = 0; i < PER_TASK; i++) {
			if (i % 7 == 0) {
				ck_assert(f->op[i].res == -ECANCELED || f->op[i].res == -ETIMEDOUT);
				continue;
			}
			ck_assert_int_eq(f->op[i].res, -ETIMEDOUT);
			ck_assert_uint_ge(now, f->due[i]);
		}
	}
	MRT_RETURN(self, 0);
}

START_TEST(thousands_of_deadlines_at_once)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_task *tasks[TASKS];
	struct many f = { .round = 0 };
	int fds[2], i;

	itest_socketpair(fds);
	f.fd = fds[0];
	for (i = 0; i < TASKS; i++)
		tasks[i] = itest_spawn(rt, many_poll, &f, sizeof(f));
	for (i = 0; i < TASKS; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
	ck_assert_uint_eq(itest_stats(rt).timers, 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* The op ends just when its deadline passes: whatever comes of it, it comes once, and nothing of it is left. */
ITEST_TASK(deadline_and_result_at_the_same_moment, {
	struct mrt_op op; struct mrt_op send; struct mrt_timer timer; struct mrt_notify n; int fds[2];
	char buf[4]; int round; int won; int lost;
})
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	mrt_notify_init(&f->n);
	for (f->round = 0; f->round < MANY; f->round++) {
		uint64_t ns = 1000 + (uint64_t)(f->round % 100) * 500;

		if (f->round % 3 == 0) {
			mrt_sleep(&f->op, ns);
		} else if (f->round % 3 == 1) {
			mrt_recv(&f->op, f->fds[0], f->buf, 1, 0);
			mrt_send(&f->send, f->fds[1], "x", 1, 0);
		} else {
			mrt_notify_wait(&f->op, &f->n);
		}
		mrt_deadline(&f->op, &f->timer, ns);
		if (f->round % 3 == 2) {
			itest_spin(ns);
			mrt_notify_all(&f->n);
		}
		MRT_AWAIT(self, &f->op);
		if (f->op.res >= 0) {
			f->won++;
		} else {
			ck_assert_int_eq(f->op.res, -ETIMEDOUT);
			f->lost++;
		}
		if (f->round % 3 == 1) {
			MRT_AWAIT(self, &f->send);
			ck_assert_int_eq(f->send.res, 1);
			if (f->op.res < 0)
				MRT_AWAIT(self, mrt_recv(&f->op, f->fds[0], f->buf, 1, 0));
			ck_assert_int_eq(f->op.res, 1);
		}
	}
	ck_assert_int_gt(f->won, 0);
	ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* ---- in one poll ---- */

#define SOON_NR 40

/* The deadline is taken back in the poll that armed it, by whatever ends the op; and its timer can be used again at once. */
ITEST_TASK(an_op_ends_in_the_poll_that_armed_its_deadline, {
	struct mrt_op op[SOON_NR]; struct mrt_timer timer[SOON_NR]; struct mrt_op *ops[SOON_NR]; struct mrt_op pause;
	struct mrt_notify n; struct mrt_oneshot o; size_t which; int round; int i;
})
{
	MRT_BEGIN(self);
	mrt_notify_init(&f->n);
	for (f->round = 0; f->round < 200; f->round++) {
		/* its end waits on the stack of what is done until somebody looks: an await of one, of any, of all */
		mrt_oneshot_init(&f->o);
		f->ops[0] = mrt_deadline(mrt_oneshot_recv(&f->op[0], &f->o), &f->timer[0], MRT_SEC(1000));
		mrt_oneshot_send(&f->o, f->round);
		if (f->round % 3 == 0)
			MRT_AWAIT(self, &f->op[0]);
		else if (f->round % 3 == 1)
			MRT_AWAIT_ANY(self, f->ops, 1, f->which);
		else
			MRT_AWAIT_ALL(self, f->ops, 1);
		ck_assert_int_eq(f->op[0].res, f->round);
		/* a cancel ends it at once */
		mrt_deadline(mrt_notify_wait(&f->op[0], &f->n), &f->timer[0], MRT_SEC(1000));
		mrt_cancel(&f->op[0]);
		ck_assert(mrt_op_is_done(&f->op[0]));
		ck_assert_int_eq(f->op[0].res, -ECANCELED);
		mrt_deadline(mrt_sleep(&f->op[0], MRT_SEC(1000)), &f->timer[0], MRT_SEC(2000));
		mrt_cancel(&f->op[0]);
		ck_assert(mrt_op_is_done(&f->op[0]));
		ck_assert_int_eq(f->op[0].res, -ECANCELED);
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
		/* and one that is left behind is in the wheel */
		mrt_deadline(mrt_notify_wait(&f->op[0], &f->n), &f->timer[0], MRT_SEC(1000));
		MRT_AWAIT(self, mrt_yield(&f->pause));
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 1);
		mrt_notify_all(&f->n);
		MRT_AWAIT(self, &f->op[0]);
		ck_assert_int_eq(f->op[0].res, 0);
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
	}
	/* more than are kept outside of the wheel; every third passes */
	for (f->round = 0; f->round < 9; f->round++) {
		for (f->i = 0; f->i < SOON_NR; f->i++)
			f->ops[f->i] = mrt_deadline(mrt_notify_wait(&f->op[f->i], &f->n), &f->timer[f->i],
						    (f->i + f->round) % 3 ? MRT_SEC(1000) : 1);
		for (f->i = SOON_NR - 1; f->i >= 0; f->i--)
			if ((f->i + f->round) % 3)
				mrt_cancel(&f->op[f->i]);
		MRT_AWAIT_ALL(self, f->ops, SOON_NR);
		for (f->i = 0; f->i < SOON_NR; f->i++)
			ck_assert_int_eq(f->op[f->i].res, (f->i + f->round) % 3 ? -ECANCELED : -ETIMEDOUT);
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
	}
	MRT_RETURN(self, 0);
}

int main(void)
{
	Suite *suite = suite_create("deadline");
	TCase *tc = tcase_create("deadline");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, a_receive_times_out_and_the_timer_is_used_again, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, every_wait_can_time_out, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_deadline_in_the_past_lets_a_ready_op_succeed, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, progress_is_delivered_with_the_reason, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_read_of_a_file_wins, 0, ITEST_KINDS_NR);
	tcase_add_test(tc, thousands_of_deadlines_at_once);
	tcase_add_loop_test(tc, thousands_of_deadlines_at_once, ITEST_FLOAT, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, deadline_and_result_at_the_same_moment, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, an_op_ends_in_the_poll_that_armed_its_deadline, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
