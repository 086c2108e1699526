/* SPDX-License-Identifier: MIT */
/*
 * Sleeps: never early, late by microseconds, any number of them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "itest.h"

/* ---- a 1 ms sleep overshoots by microseconds ---- */

#define OVERSHOOTS 100
#define PHASES 10       /* of a millisecond, in which sleeps are due */

ITEST_CHILD(overshoot, { struct mrt_op op; uint64_t due; uint64_t late[OVERSHOOTS]; uint64_t least[PHASES]; int i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < OVERSHOOTS; f->i++) {
		f->due = (mrt_now() / MRT_MS(1) + 2) * MRT_MS(1) + (uint64_t)(f->i % PHASES) * (MRT_MS(1) / PHASES);
		MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due));
		ck_assert_int_eq(f->op.res, 0);
		f->late[f->i] = mrt_now() - f->due;
		ck_assert_int_ge((int64_t)f->late[f->i], 0);
		if (f->late[f->i] < f->least[f->i % PHASES])
			f->least[f->i % PHASES] = f->late[f->i];
	}
	MRT_RETURN(self, 0);
}

static uint64_t largest(const uint64_t *values, unsigned nr)
{
	uint64_t max = 0;

	while (nr-- > 0)
		max = values[nr] > max ? values[nr] : max;
	return max;
}

/*
 * The machine may be shared, so most may be late; but whenever in a millisecond they are due, some are not. If they were rounded
 * up to whole ones, wherever these begin, all of some phase would be late by most of one.
 */
START_TEST(a_millisecond_overshoots_by_microseconds)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	uint64_t until = mrt_now() + MRT_SEC(20), worst;
	struct overshoot f = { .i = 0 };

	for (unsigned i = 0; i < PHASES; i++)
		f.least[i] = UINT64_MAX;
	do {
		ck_assert_int_eq(itest_run(rt, overshoot_poll, &f, sizeof(f)), 0);
		worst = largest(f.least, PHASES);
	} while (worst >= MRT_US(500) && mrt_now() < until);
	printf("1 ms sleep, kind %d: median overshoot %llu us, the least of the worst phase %llu us\n", _i,
	       (unsigned long long)(itest_quantile(f.late, OVERSHOOTS, 500) / 1000), (unsigned long long)(worst / 1000));
	ck_assert_uint_lt(worst, MRT_US(500));
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- never early ---- */

#define RANDOM_TASKS 200
#define RANDOM_SLEEPS 50

struct random_sleeper {
	struct mrt_op op;
	uint64_t state, due;
	int i;
	atomic_int *early;
};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static enum mrt_poll random_sleeper_poll(struct mrt_task *self, void *frame)
{
	struct random_sleeper *f = frame;
	uint64_t ns;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < RANDOM_SLEEPS; f->i++) {
		ns = next_random(&f->state) % (f->i % 3 == 0 ? MRT_MS(70) : MRT_MS(3));
		f->due = mrt_now() + ns;
		MRT_AWAIT(self, f->i % 2 ? mrt_sleep(&f->op, ns) : mrt_sleep_until(&f->op, f->due));
		ck_assert_int_eq(f->op.res, 0);
		if (mrt_now() < f->due)
			atomic_fetch_add(f->early, 1);
	}
	MRT_RETURN(self, 0);
}

START_TEST(ten_thousand_random_sleeps_and_none_early)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_task *tasks[RANDOM_TASKS];
	atomic_int early = 0;
	int i;

	for (i = 0; i < RANDOM_TASKS; i++) {
		struct random_sleeper f = { .state = 88172645463325252u + (uint64_t)i * 7919, .early = &early };

		tasks[i] = itest_spawn(rt, random_sleeper_poll, &f, sizeof(f));
	}
	for (i = 0; i < RANDOM_TASKS; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
	ck_assert_int_eq(atomic_load(&early), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- a hundred thousand at once ---- */

struct crowd {
	atomic_int started, fired, early;
	atomic_ullong late_max;
};

struct one_sleep {
	struct mrt_op op;
	struct crowd *crowd;
	uint64_t due;
};

static enum mrt_poll one_sleep_poll(struct mrt_task *self, void *frame)
{
	struct one_sleep *f = frame;
	unsigned long long late, max;
	uint64_t now;

	MRT_BEGIN(self);
	atomic_fetch_add_explicit(&f->crowd->started, 1, memory_order_relaxed);
	MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due));
	now = mrt_now();
	if (now < f->due)
		atomic_fetch_add(&f->crowd->early, 1);
	late = now - f->due;
	max = atomic_load(&f->crowd->late_max);
	while (late > max && !atomic_compare_exchange_weak(&f->crowd->late_max, &max, late))
		continue;
	atomic_fetch_add_explicit(&f->crowd->fired, 1, memory_order_relaxed);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(crowd_parent, { struct crowd *crowd; int nr; int i; struct mrt_op op; uint64_t base; })
{
	MRT_BEGIN(self);
	f->base = mrt_now() + MRT_MS(ITEST_SLOW ? 1500 : 300);
	for (f->i = 0; f->i < f->nr; f->i++) {
		struct one_sleep child = { .crowd = f->crowd, .due = f->base + (uint64_t)f->i * 7919 % MRT_MS(700) };

		ck_assert_int_eq(mrt_spawn(NULL, one_sleep_poll, &child, sizeof(child), NULL, NULL), 0);
		if (f->i % 64 == 63)
			MRT_AWAIT(self, mrt_yield(&f->op));
	}
	MRT_RETURN(self, 0);
}

START_TEST(a_hundred_thousand_sleepers_all_fire)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct crowd crowd = { 0 };
	int nr = ITEST_SLOW ? 20000 : 100000;
	struct crowd_parent f = { .crowd = &crowd, .nr = nr };

	ck_assert_int_eq(itest_run(rt, crowd_parent_poll, &f, sizeof(f)), 0);
	/* they all fire while one sleeps that is due after them, if this machine lets them; else while more do */
	for (uint64_t until = mrt_now() + MRT_SEC(20);
	     _i == ITEST_CURRENT && atomic_load(&crowd.fired) < nr && mrt_now() < until; nr++) {
		struct one_sleep last = { .crowd = &crowd, .due = mrt_now() + MRT_SEC(1) };

		ck_assert_int_eq(itest_run(rt, one_sleep_poll, &last, sizeof(last)), 0);
	}
	ITEST_WAIT(atomic_load(&crowd.fired) == nr, 20000);
	ck_assert_int_eq(atomic_load(&crowd.early), 0);
	printf("%d sleepers, kind %d: the latest was late by %llu us\n", nr, _i,
	       (unsigned long long)atomic_load(&crowd.late_max) / 1000);
	ck_assert_uint_eq(itest_stats(rt).timers, 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- slack ---- */

#define CLOSE_NR 1000
#define APART_NS MRT_US(100)

/* Sleeps that are due one after the other. @return parks */
static uint64_t parks_of_close_sleeps(uint64_t slack_ns)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);
	struct crowd crowd = { 0 };
	struct one_sleep f = { .crowd = &crowd };
	struct mrt_runtime *rt;
	uint64_t parks, base;
	int i;

	opts.timer_slack_ns = slack_ns;
	rt = itest_create(&opts);
	base = mrt_now() + MRT_MS(ITEST_SLOW ? 500 : 50);
	for (i = 0; i < CLOSE_NR; i++) {
		f.due = base + (uint64_t)i * APART_NS;
		mrt_detach(itest_spawn(rt, one_sleep_poll, &f, sizeof(f)));
	}
	f.due = base + CLOSE_NR * APART_NS + MRT_MS(10);
	parks = itest_stats(rt).parks;
	ck_assert_int_eq(itest_run(rt, one_sleep_poll, &f, sizeof(f)), 0);
	parks = itest_stats(rt).parks - parks;
	ck_assert_int_eq(atomic_load(&crowd.fired), CLOSE_NR + 1);
	ck_assert_int_eq(atomic_load(&crowd.early), 0);
	mrt_runtime_destroy(rt);
	return parks;
}

/* A park for every second one at most, of a few in each millisecond; whoever loses the CPU parks less often. */
START_TEST(sleeps_that_are_close_share_a_wake)
{
	uint64_t parks = parks_of_close_sleeps(MRT_US(500)), exact = parks_of_close_sleeps(0);

	printf("%d sleeps %d us apart: %llu parks with a slack of 500 us, %llu without\n", CLOSE_NR,
	       (int)(APART_NS / MRT_US(1)), (unsigned long long)parks, (unsigned long long)exact);
	ck_assert_uint_le(parks, CLOSE_NR / 2);
}
END_TEST

/* ---- borders ---- */

ITEST_TASK(the_longest_and_the_shortest_sleep, {
	struct mrt_op op; struct mrt_op other; struct mrt_op pause; struct mrt_op *ops[2]; size_t which;
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(&f->op, 0));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_sleep_until(&f->op, 0));
	MRT_AWAIT(self, mrt_sleep_until(&f->op, mrt_now() - 1));
	MRT_AWAIT(self, mrt_sleep(&f->op, 1));
	ck_assert_int_eq(f->op.res, 0);
	f->ops[0] = mrt_sleep(&f->op, UINT64_MAX);
	f->ops[1] = mrt_sleep(&f->other, MRT_MS(3));
	MRT_AWAIT_ANY(self, f->ops, 2, f->which);
	ck_assert_uint_eq(f->which, 1);
	mrt_cancel(&f->op);
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, -ECANCELED);
	/* beyond what the wheel spans, and what ns can express */
	f->ops[0] = mrt_sleep(&f->op, UINT64_MAX - 5);
	f->ops[1] = mrt_sleep(&f->other, MRT_SEC(3600) * 24 * 365 * 4);
	MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(2)));
	ck_assert(!mrt_op_is_done(&f->op) && !mrt_op_is_done(&f->other));
	mrt_cancel(&f->op);
	mrt_cancel(&f->other);
	MRT_AWAIT_ALL(self, f->ops, 2);
	ck_assert_int_eq(f->op.res, -ECANCELED);
	ck_assert_int_eq(f->other.res, -ECANCELED);
	MRT_RETURN(self, 0);
}

/* A cancelled sleep that was the earliest delays nobody, and a later, earlier one is not overslept. */
ITEST_TASK(an_earlier_sleep_started_later_fires_first, { struct mrt_op a; struct mrt_op b; uint64_t start; int i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 50; f->i++) {
		f->start = mrt_now();
		mrt_sleep(&f->a, MRT_SEC(20));
		MRT_AWAIT(self, mrt_sleep(&f->b, MRT_US(300)));
		ck_assert(!mrt_op_is_done(&f->a));
		ck_assert_uint_lt(mrt_now() - f->start, MRT_SEC(10));
		mrt_cancel(&f->a);
		MRT_AWAIT(self, &f->a);
	}
	MRT_RETURN(self, 0);
}

/* ---- what one poll arms ---- */

#define ARMED_NR 100
#define IS_CANCELLED(i, round) (((i) + (round)) % 3 == 0)

/* More than are kept outside of the wheel; a third is taken back before the poll is over: as they come, or all at its end. */
ITEST_TASK(a_poll_arms_many_and_cancels_some, {
	struct mrt_op op[ARMED_NR]; struct mrt_op *ops[ARMED_NR]; struct mrt_op pause; uint64_t due[ARMED_NR]; uint64_t now;
	int round; int i; int left;
})
{
	MRT_BEGIN(self);
	for (f->round = 0; f->round < 12; f->round++) {
		for (f->i = 0; f->i < ARMED_NR; f->i++) {
			f->due[f->i] = mrt_now() + (IS_CANCELLED(f->i, f->round) ? MRT_SEC(1000) : MRT_US(f->i * 37 % 100 * 20));
			f->ops[f->i] = mrt_sleep_until(&f->op[f->i], f->due[f->i]);
			if (f->round % 2 && IS_CANCELLED(f->i, f->round))
				mrt_cancel(&f->op[f->i]);
		}
		for (f->i = 0; f->i < ARMED_NR; f->i++)
			if (IS_CANCELLED(f->i, f->round))
				mrt_cancel(&f->op[f->i]);
		MRT_AWAIT_ALL(self, f->ops, ARMED_NR);
		f->now = mrt_now();
		for (f->i = 0; f->i < ARMED_NR; f->i++) {
			if (IS_CANCELLED(f->i, f->round)) {
				ck_assert_int_eq(f->op[f->i].res, -ECANCELED);
				continue;
			}
			ck_assert_int_eq(f->op[f->i].res, 0);
			ck_assert_uint_ge(f->now, f->due[f->i]);
		}
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
	}
	/* none is lost on the way into the wheel, by an await or a yield; the rest is cancelled there, from behind */
	for (f->round = 0; f->round < 6; f->round++) {
		f->left = 0;
		for (f->i = 0; f->i < ARMED_NR; f->i++) {
			f->ops[f->i] = mrt_sleep(&f->op[f->i], MRT_SEC(1000));
			if (IS_CANCELLED(f->i, f->round))
				mrt_cancel(&f->op[f->i]);
			else
				f->left++;
		}
		MRT_AWAIT(self, f->round % 2 ? mrt_yield(&f->pause) : mrt_sleep(&f->pause, 1));
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, (uint64_t)f->left);
		for (f->i = ARMED_NR - 1; f->i >= 0; f->i--)
			mrt_cancel(&f->op[f->i]);
		MRT_AWAIT_ALL(self, f->ops, ARMED_NR);
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
	}
	MRT_RETURN(self, 0);
}

enum leave { LEAVE_RETURN, LEAVE_ABORT, LEAVE_ABORT_AND_WAIT, LEAVES_NR };

ITEST_CHILD(leaver, {
	struct mrt_op op[ARMED_NR]; struct mrt_timer timer[ARMED_NR]; struct mrt_op *ops[ARMED_NR]; struct mrt_notify *n; int fd;
	enum leave leave; int nr; char buf;
})
{
	int i;

	MRT_BEGIN(self);
	for (i = 0; i < f->nr; i++) {
		if (i % 4 == 0) /* it ends later, and its deadline goes into the wheel until then */
			mrt_recv(&f->op[i], f->fd, &f->buf, 1, 0);
		else if (i % 2)
			mrt_notify_wait(&f->op[i], f->n);
		else
			mrt_sleep(&f->op[i], MRT_SEC(1000));
		f->ops[i] = i % 3 == 2 ? &f->op[i] : mrt_deadline(&f->op[i], &f->timer[i], MRT_SEC(1000));
	}
	if (f->leave != LEAVE_RETURN)
		mrt_abort(self);
	if (f->leave == LEAVE_ABORT_AND_WAIT) {
		MRT_AWAIT_ALL(self, f->ops, (size_t)f->nr);
		for (i = 0; i < f->nr; i++)
			ck_assert_int_eq(f->op[i].res, -ECANCELED);
	}
	MRT_RETURN(self, 0);
}

/* A task that returns, or aborts itself, in the poll that armed them leaves none behind: its frame is gone. */
ITEST_TASK(a_poll_arms_many_and_ends_its_task, {
	struct mrt_op op; struct mrt_notify n; struct mrt_task *task; int fds[2]; int round;
})
{
	struct leaver child = { .n = &f->n };

	MRT_BEGIN(self);
	mrt_notify_init(&f->n);
	itest_socketpair(f->fds);
	for (f->round = 0; f->round < 60; f->round++) {
		child.fd = f->fds[0];
		child.leave = (enum leave)(f->round % LEAVES_NR);
		child.nr = 1 + f->round * 7 % ARMED_NR;
		ck_assert_int_eq(mrt_spawn(NULL, leaver_poll, &child, sizeof(child), NULL, &f->task), 0);
		MRT_AWAIT(self, mrt_join(&f->op, f->task));
		ck_assert_int_eq(f->op.res, 0);
		ck_assert_uint_eq(itest_stats(mrt_runtime_self()).timers, 0);
	}
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

int main(void)
{
	Suite *suite = suite_create("timer");
	TCase *tc = tcase_create("timer");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, a_millisecond_overshoots_by_microseconds, 0, ITEST_CURRENT + 1);
	tcase_add_test(tc, ten_thousand_random_sleeps_and_none_early);
	tcase_add_loop_test(tc, ten_thousand_random_sleeps_and_none_early, ITEST_FLOAT, ITEST_FLOAT + 1);
	tcase_add_loop_test(tc, a_hundred_thousand_sleepers_all_fire, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, sleeps_that_are_close_share_a_wake);
	tcase_add_loop_test(tc, the_longest_and_the_shortest_sleep, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, an_earlier_sleep_started_later_fires_first, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, a_poll_arms_many_and_cancels_some, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, a_poll_arms_many_and_ends_its_task, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
