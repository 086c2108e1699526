/* SPDX-License-Identifier: MIT */
/*
 * Oneshot, notify, semaphore, channel, through the public API on a real runtime.
 *
 * Proven: order, hand-off, close, what a cancelled or abandoned wait leaves behind (nothing), that senders may be any
 * thread. Most cases are scripts: one task starts several ops, and a yield in between delivers what completed, so that
 * they are deterministic; each runs on both flavours. Not proven here: races (the last cases loop over some; the rest
 * is in tests/stress/stress_sync.c).
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <martlet/martlet.h>

#include "suite.h"

#define LIMIT_S 30
#define FLAVOURS_NR 2   /* loop index: 0 multi-thread with 3 workers, 1 current-thread */
#define OPS_NR 8

static struct mrt_runtime *runtime_create(int flavour)
{
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt = NULL;

	mrt_runtime_opts_init(&opts);
	opts.flavour = flavour ? MRT_FLAVOUR_CURRENT_THREAD : MRT_FLAVOUR_MULTI_THREAD;
	opts.workers_nr = flavour ? 1 : 3;
	opts.sq_entries = 64;
	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), 0);
	return rt;
}

/* The frame of every script. */
struct script {
	struct mrt_op op[OPS_NR];
	struct mrt_op yield;
	struct mrt_timer timer;
	struct mrt_oneshot oneshot;
	struct mrt_notify notify;
	struct mrt_semaphore sem;
	struct mrt_channel *ch;
	struct mrt_channel *ch2;
	uint32_t msg[OPS_NR];
	int64_t result;
	struct mrt_task *task;
	pthread_t thread;
	unsigned i;
};

static void script_run(int flavour, mrt_poll_fn fn)
{
	struct mrt_runtime *rt = runtime_create(flavour);
	struct script script;
	int64_t result = -1;

	memset(&script, 0, sizeof(script));
	ck_assert_int_eq(mrt_block_on(rt, fn, &script, sizeof(script), &result), 0);
	ck_assert_int_eq(result, 0);
	mrt_runtime_destroy(rt);
}

/* A test whose body is a poll function on a struct script. */
#define SCRIPT(name)                                                                                    \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame);                           \
	START_TEST(name)                                                                                \
	{                                                                                               \
		script_run(_i, name##_poll);                                                            \
	}                                                                                               \
	END_TEST                                                                                        \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame)

/* Deliver what has completed so far. */
#define SETTLE(self, s) MRT_AWAIT(self, mrt_yield(&(s)->yield))

#define assert_done(op, value) do {                                                                     \
	ck_assert(mrt_op_is_done(op));                                                                  \
	ck_assert_int_eq((op)->res, (value));                                                           \
} while (0)

#define assert_waits(op) ck_assert(!mrt_op_is_done(op))

static pthread_t thread_start(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, fn, arg), 0);
	return thread;
}

/* ---- oneshot ---- */

SCRIPT(oneshot_value_reaches_receivers_before_and_after_the_send)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_oneshot_init(&s->oneshot);
	mrt_oneshot_recv(&s->op[0], &s->oneshot);
	mrt_oneshot_recv(&s->op[1], &s->oneshot);
	SETTLE(self, s);
	assert_waits(&s->op[0]);
	ck_assert_int_eq(mrt_oneshot_send(&s->oneshot, 42), 0);
	ck_assert_int_eq(mrt_oneshot_send(&s->oneshot, 43), -EALREADY);
	ck_assert_int_eq(mrt_oneshot_close(&s->oneshot), -EALREADY);
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	assert_done(&s->op[0], 42);
	assert_done(&s->op[1], 42);
	MRT_AWAIT(self, mrt_oneshot_recv(&s->op[2], &s->oneshot));
	assert_done(&s->op[2], 42);
	MRT_RETURN(self, 0);
}

SCRIPT(oneshot_passes_negative_values_unchanged)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_oneshot_recv(&s->op[0], &s->oneshot);       /* zeroed is ready for use */
	ck_assert_int_eq(mrt_oneshot_send(&s->oneshot, INT64_MIN), 0);
	MRT_AWAIT(self, &s->op[0]);
	assert_done(&s->op[0], INT64_MIN);
	MRT_RETURN(self, 0);
}

SCRIPT(oneshot_close_fails_receivers_before_and_after)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_oneshot_recv(&s->op[0], &s->oneshot);
	ck_assert_int_eq(mrt_oneshot_close(&s->oneshot), 0);
	ck_assert_int_eq(mrt_oneshot_send(&s->oneshot, 1), -EALREADY);
	MRT_AWAIT(self, &s->op[0]);
	assert_done(&s->op[0], -EPIPE);
	MRT_AWAIT(self, mrt_oneshot_recv(&s->op[1], &s->oneshot));
	assert_done(&s->op[1], -EPIPE);
	MRT_RETURN(self, 0);
}

SCRIPT(oneshot_receive_can_be_cancelled_and_times_out)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_oneshot_recv(&s->op[0], &s->oneshot);
	mrt_oneshot_recv(&s->op[1], &s->oneshot);
	mrt_oneshot_recv(&s->op[2], &s->oneshot);
	mrt_cancel(&s->op[1]);
	MRT_AWAIT(self, &s->op[1]);
	assert_done(&s->op[1], -ECANCELED);
	MRT_AWAIT(self, mrt_deadline(mrt_oneshot_recv(&s->op[3], &s->oneshot), &s->timer, MRT_MS(1)));
	assert_done(&s->op[3], -ETIMEDOUT);
	assert_waits(&s->op[0]);
	ck_assert_int_eq(mrt_oneshot_send(&s->oneshot, 7), 0);
	mrt_cancel(&s->op[0]);                           /* too late: the value was there */
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[2]);
	assert_done(&s->op[0], 7);
	assert_done(&s->op[2], 7);
	MRT_RETURN(self, 0);
}

static void *oneshot_sender(void *arg)
{
	ck_assert_int_eq(mrt_oneshot_send(arg, 99), 0);
	return NULL;
}

SCRIPT(oneshot_send_from_a_thread_that_is_no_worker)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_oneshot_recv(&s->op[0], &s->oneshot);
	s->thread = thread_start(oneshot_sender, &s->oneshot);
	MRT_AWAIT(self, &s->op[0]);
	assert_done(&s->op[0], 99);
	ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
	MRT_RETURN(self, 0);
}

/* ---- notify ---- */

SCRIPT(notify_one_stores_one_permit_not_two)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_notify_init(&s->notify);
	mrt_notify_one(&s->notify);
	mrt_notify_one(&s->notify);
	MRT_AWAIT(self, mrt_notify_wait(&s->op[0], &s->notify));
	assert_done(&s->op[0], 0);
	mrt_notify_wait(&s->op[1], &s->notify);
	SETTLE(self, s);
	assert_waits(&s->op[1]);
	mrt_notify_one(&s->notify);
	MRT_AWAIT(self, &s->op[1]);
	assert_done(&s->op[1], 0);
	MRT_RETURN(self, 0);
}

SCRIPT(notify_one_wakes_the_oldest_wait)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 3; s->i++)
		mrt_notify_wait(&s->op[s->i], &s->notify);
	for (s->i = 0; s->i < 3; s->i++) {
		mrt_notify_one(&s->notify);
		SETTLE(self, s);
		assert_done(&s->op[s->i], 0);
		if (s->i < 2)
			assert_waits(&s->op[s->i + 1]);
	}
	MRT_RETURN(self, 0);
}

SCRIPT(notify_all_wakes_exactly_those_that_wait_and_stores_nothing)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_notify_all(&s->notify);                      /* nobody: nothing stored */
	for (s->i = 0; s->i < 3; s->i++)
		mrt_notify_wait(&s->op[s->i], &s->notify);
	SETTLE(self, s);
	assert_waits(&s->op[0]);
	mrt_notify_all(&s->notify);
	mrt_notify_wait(&s->op[3], &s->notify);          /* came later */
	for (s->i = 0; s->i < 3; s->i++) {
		MRT_AWAIT(self, &s->op[s->i]);
		assert_done(&s->op[s->i], 0);
	}
	SETTLE(self, s);
	assert_waits(&s->op[3]);
	mrt_notify_one(&s->notify);
	MRT_AWAIT(self, &s->op[3]);
	MRT_RETURN(self, 0);
}

SCRIPT(notify_all_leaves_a_stored_permit_alone)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_notify_one(&s->notify);
	mrt_notify_all(&s->notify);
	MRT_AWAIT(self, mrt_notify_wait(&s->op[0], &s->notify));
	assert_done(&s->op[0], 0);
	MRT_RETURN(self, 0);
}

SCRIPT(notify_wait_can_be_cancelled_from_any_place_in_the_queue)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 5; s->i++)
		mrt_notify_wait(&s->op[s->i], &s->notify);
	mrt_cancel(&s->op[0]);
	mrt_cancel(&s->op[2]);
	mrt_cancel(&s->op[4]);
	SETTLE(self, s);
	assert_done(&s->op[0], -ECANCELED);
	assert_done(&s->op[2], -ECANCELED);
	assert_done(&s->op[4], -ECANCELED);
	assert_waits(&s->op[1]);
	assert_waits(&s->op[3]);
	mrt_notify_wait(&s->op[4], &s->notify);
	mrt_notify_one(&s->notify);
	mrt_notify_one(&s->notify);
	mrt_notify_one(&s->notify);
	MRT_AWAIT(self, &s->op[1]);
	MRT_AWAIT(self, &s->op[3]);
	MRT_AWAIT(self, &s->op[4]);
	assert_done(&s->op[4], 0);
	mrt_notify_wait(&s->op[0], &s->notify);
	SETTLE(self, s);
	assert_waits(&s->op[0]);                         /* none of them was stored */
	mrt_cancel(&s->op[0]);
	MRT_AWAIT(self, &s->op[0]);
	MRT_RETURN(self, 0);
}

SCRIPT(a_cancel_after_the_notification_comes_too_late)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_notify_wait(&s->op[0], &s->notify);
	mrt_notify_wait(&s->op[1], &s->notify);
	mrt_notify_one(&s->notify);
	mrt_cancel(&s->op[0]);
	mrt_notify_all(&s->notify);
	mrt_cancel(&s->op[1]);
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	assert_done(&s->op[0], 0);
	assert_done(&s->op[1], 0);
	MRT_RETURN(self, 0);
}

static void *notifier(void *arg)
{
	mrt_notify_one(arg);
	return NULL;
}

SCRIPT(notify_from_a_thread_that_is_no_worker)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	s->thread = thread_start(notifier, &s->notify);
	MRT_AWAIT(self, mrt_notify_wait(&s->op[0], &s->notify));
	assert_done(&s->op[0], 0);
	ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
	MRT_RETURN(self, 0);
}

/* ---- semaphore ---- */

SCRIPT(semaphore_takes_gives_and_refuses)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_semaphore_init(&s->sem, MRT_SEMAPHORE_PERMITS_MAX + 1), -EINVAL);
	ck_assert_int_eq(mrt_semaphore_init(&s->sem, 3), 0);
	MRT_AWAIT(self, mrt_semaphore_acquire(&s->op[0], &s->sem, 2));
	assert_done(&s->op[0], 0);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 1);
	ck_assert_int_eq(mrt_semaphore_try_acquire(&s->sem, 2), -EAGAIN);
	ck_assert_int_eq(mrt_semaphore_try_acquire(&s->sem, 1), 0);
	ck_assert_int_eq(mrt_semaphore_try_acquire(&s->sem, 0), -EINVAL);
	ck_assert_int_eq(mrt_semaphore_try_acquire(&s->sem, MRT_SEMAPHORE_PERMITS_MAX + 1), -EINVAL);
	MRT_AWAIT(self, mrt_semaphore_acquire(&s->op[0], &s->sem, 0));
	assert_done(&s->op[0], -EINVAL);
	MRT_AWAIT(self, mrt_semaphore_acquire(&s->op[0], &s->sem, MRT_SEMAPHORE_PERMITS_MAX + 1));
	assert_done(&s->op[0], -EINVAL);
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, 0), 0);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 0);
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, MRT_SEMAPHORE_PERMITS_MAX), 0);
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, 1), -EINVAL);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), MRT_SEMAPHORE_PERMITS_MAX);
	MRT_AWAIT(self, mrt_semaphore_acquire(&s->op[0], &s->sem, MRT_SEMAPHORE_PERMITS_MAX));
	assert_done(&s->op[0], 0);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 0);
	MRT_RETURN(self, 0);
}

SCRIPT(semaphore_big_request_is_not_starved_by_small_ones)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_semaphore_acquire(&s->op[0], &s->sem, 3);   /* zeroed: 0 permits */
	mrt_semaphore_acquire(&s->op[1], &s->sem, 1);
	mrt_semaphore_acquire(&s->op[2], &s->sem, 1);
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, 2), 0);
	ck_assert_int_eq(mrt_semaphore_try_acquire(&s->sem, 1), -EAGAIN); /* somebody waits */
	mrt_semaphore_acquire(&s->op[3], &s->sem, 1);
	SETTLE(self, s);
	for (s->i = 0; s->i < 4; s->i++)
		assert_waits(&s->op[s->i]);
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, 2), 0); /* 4: the big one and the next */
	SETTLE(self, s);
	assert_done(&s->op[0], 0);
	assert_done(&s->op[1], 0);
	assert_waits(&s->op[2]);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 0);
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, 5), 0);
	SETTLE(self, s);
	assert_done(&s->op[2], 0);
	assert_done(&s->op[3], 0);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 3);
	MRT_RETURN(self, 0);
}

SCRIPT(semaphore_cancelled_acquire_takes_nothing_and_makes_way)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_semaphore_init(&s->sem, 2), 0);
	mrt_semaphore_acquire(&s->op[0], &s->sem, 3);
	mrt_semaphore_acquire(&s->op[1], &s->sem, 1);
	mrt_semaphore_acquire(&s->op[2], &s->sem, 2);
	mrt_cancel(&s->op[0]);
	SETTLE(self, s);
	assert_done(&s->op[0], -ECANCELED);
	assert_done(&s->op[1], 0);
	assert_waits(&s->op[2]);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 1);
	mrt_deadline(&s->op[2], &s->timer, 0);
	MRT_AWAIT(self, &s->op[2]);
	assert_done(&s->op[2], -ETIMEDOUT);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 1);
	MRT_RETURN(self, 0);
}

SCRIPT(semaphore_close_fails_waits_and_later_acquires)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_semaphore_init(&s->sem, 1), 0);
	mrt_semaphore_acquire(&s->op[0], &s->sem, 2);
	mrt_semaphore_acquire(&s->op[1], &s->sem, 2);
	mrt_semaphore_close(&s->sem);
	mrt_cancel(&s->op[1]);                           /* too late: already failed */
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, 5), 0);
	ck_assert_int_eq(mrt_semaphore_try_acquire(&s->sem, 1), -EPIPE);
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	assert_done(&s->op[0], -EPIPE);
	assert_done(&s->op[1], -EPIPE);
	MRT_AWAIT(self, mrt_semaphore_acquire(&s->op[2], &s->sem, 1));
	assert_done(&s->op[2], -EPIPE);
	MRT_RETURN(self, 0);
}

static void *releaser(void *arg)
{
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(mrt_semaphore_release(arg, 1), 0);
	return NULL;
}

SCRIPT(semaphore_release_from_a_thread_that_is_no_worker)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	s->thread = thread_start(releaser, &s->sem);
	MRT_AWAIT(self, mrt_semaphore_acquire(&s->op[0], &s->sem, 10));
	assert_done(&s->op[0], 0);
	ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 0);
	MRT_RETURN(self, 0);
}

/* ---- channel ---- */

START_TEST(channel_create_checks_its_sizes)
{
	struct mrt_channel *ch = (struct mrt_channel *)(void *)&ch;

	ck_assert_int_eq(mrt_channel_create(0, 4, &ch), -EINVAL);
	ck_assert_int_eq(mrt_channel_create(((size_t)1 << 30) + 1, 4, &ch), -EINVAL);
	ck_assert_int_eq(mrt_channel_create(1, ((size_t)1 << 20) + 1, &ch), -EINVAL);
	ck_assert_ptr_eq(ch, (void *)&ch);
	ck_assert_int_eq(mrt_channel_create(1, (size_t)1 << 20, &ch), 0);
	mrt_channel_destroy(ch);
	ck_assert_int_eq(mrt_channel_create((size_t)1 << 30, 0, &ch), 0);
	mrt_channel_destroy(ch);
	mrt_channel_destroy(NULL);
}
END_TEST

START_TEST(channel_try_forms_work_without_a_runtime)
{
	struct mrt_channel *ch;
	uint32_t in = 1, out = 0;

	ck_assert_int_eq(mrt_channel_create(3, sizeof(in), &ch), 0);
	ck_assert_int_eq(mrt_channel_try_recv(ch, &out), -EAGAIN);
	for (unsigned round = 0; round < 10; round++) {   /* the ring wraps */
		for (in = 1; in <= 3; in++)
			ck_assert_int_eq(mrt_channel_try_send(ch, &in), 0);
		ck_assert_int_eq(mrt_channel_try_send(ch, &in), -EAGAIN);
		ck_assert_uint_eq(mrt_channel_nr(ch), 3);
		for (in = 1; in <= 2; in++) {
			ck_assert_int_eq(mrt_channel_try_recv(ch, &out), 0);
			ck_assert_uint_eq(out, in);
		}
		in = 4;
		ck_assert_int_eq(mrt_channel_try_send(ch, &in), 0);
		for (in = 3; in <= 4; in++) {
			ck_assert_int_eq(mrt_channel_try_recv(ch, &out), 0);
			ck_assert_uint_eq(out, in);
		}
	}
	in = 5;
	ck_assert_int_eq(mrt_channel_try_send(ch, &in), 0);
	mrt_channel_close(ch);
	mrt_channel_close(ch);
	ck_assert_int_eq(mrt_channel_try_send(ch, &in), -EPIPE);
	ck_assert_int_eq(mrt_channel_try_recv(ch, &out), 0);
	ck_assert_uint_eq(out, 5);
	ck_assert_int_eq(mrt_channel_try_recv(ch, &out), -EPIPE);
	mrt_channel_destroy(ch);
}
END_TEST

SCRIPT(channel_hands_messages_to_receivers_in_order_of_waiting)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(uint32_t), &s->ch), 0);
	mrt_channel_recv(&s->op[0], s->ch, &s->msg[0]);
	mrt_channel_recv(&s->op[1], s->ch, &s->msg[1]);
	s->msg[2] = 10;
	ck_assert_int_eq(mrt_channel_try_send(s->ch, &s->msg[2]), 0);
	s->msg[2] = 11;
	ck_assert_int_eq(mrt_channel_try_send(s->ch, &s->msg[2]), 0);
	ck_assert_uint_eq(mrt_channel_nr(s->ch), 0);      /* handed over, not stored */
	s->msg[2] = 12;
	ck_assert_int_eq(mrt_channel_try_send(s->ch, &s->msg[2]), 0);
	s->msg[2] = 0;
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	MRT_AWAIT(self, mrt_channel_recv(&s->op[2], s->ch, &s->msg[2]));
	assert_done(&s->op[0], 0);
	assert_done(&s->op[1], 0);
	assert_done(&s->op[2], 0);
	ck_assert_uint_eq(s->msg[0], 10);
	ck_assert_uint_eq(s->msg[1], 11);
	ck_assert_uint_eq(s->msg[2], 12);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

SCRIPT(channel_takes_over_waiting_senders_in_order)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(2, sizeof(uint32_t), &s->ch), 0);
	for (s->i = 0; s->i < 5; s->i++) {
		s->msg[s->i] = 100 + s->i;
		mrt_channel_send(&s->op[s->i], s->ch, &s->msg[s->i]);
	}
	SETTLE(self, s);
	assert_done(&s->op[0], 0);
	assert_done(&s->op[1], 0);
	assert_waits(&s->op[2]);
	ck_assert_int_eq(mrt_channel_try_send(s->ch, &s->msg[0]), -EAGAIN);
	for (s->i = 0; s->i < 5; s->i++) {
		ck_assert_int_eq(mrt_channel_try_recv(s->ch, &s->msg[7]), 0);
		ck_assert_uint_eq(s->msg[7], 100 + s->i);
		if (s->i < 3) {
			ck_assert_uint_eq(mrt_channel_nr(s->ch), 2);
			ck_assert_int_eq(mrt_channel_try_send(s->ch, &s->msg[0]), -EAGAIN); /* no overtaking */
			s->msg[s->i + 2] = 0;            /* it was copied, though its op was not delivered */
		}
		SETTLE(self, s);
		if (s->i < 3)
			assert_done(&s->op[s->i + 2], 0);
		if (s->i < 2)
			assert_waits(&s->op[s->i + 3]);
	}
	ck_assert_int_eq(mrt_channel_try_recv(s->ch, &s->msg[7]), -EAGAIN);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

SCRIPT(channel_close_fails_waiting_senders_and_drains)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(uint32_t), &s->ch), 0);
	s->msg[0] = 1;
	s->msg[1] = 2;
	MRT_AWAIT(self, mrt_channel_send(&s->op[0], s->ch, &s->msg[0]));
	mrt_channel_send(&s->op[1], s->ch, &s->msg[1]);
	mrt_channel_close(s->ch);
	mrt_cancel(&s->op[1]);                           /* too late */
	MRT_AWAIT(self, &s->op[1]);
	assert_done(&s->op[1], -EPIPE);
	MRT_AWAIT(self, mrt_channel_send(&s->op[2], s->ch, &s->msg[1]));
	assert_done(&s->op[2], -EPIPE);
	MRT_AWAIT(self, mrt_channel_recv(&s->op[3], s->ch, &s->msg[3]));
	assert_done(&s->op[3], 0);
	ck_assert_uint_eq(s->msg[3], 1);
	MRT_AWAIT(self, mrt_channel_recv(&s->op[3], s->ch, &s->msg[3]));
	assert_done(&s->op[3], -EPIPE);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

SCRIPT(channel_close_fails_waiting_receivers)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(uint32_t), &s->ch), 0);
	mrt_channel_recv(&s->op[0], s->ch, &s->msg[0]);
	mrt_channel_recv(&s->op[1], s->ch, &s->msg[1]);
	mrt_channel_close(s->ch);
	MRT_AWAIT(self, &s->op[0]);
	MRT_AWAIT(self, &s->op[1]);
	assert_done(&s->op[0], -EPIPE);
	assert_done(&s->op[1], -EPIPE);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

SCRIPT(channel_cancelled_waits_neither_send_nor_take)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(uint32_t), &s->ch), 0);
	for (s->i = 0; s->i < 4; s->i++) {
		s->msg[s->i] = s->i;
		mrt_channel_send(&s->op[s->i], s->ch, &s->msg[s->i]);
	}
	mrt_cancel(&s->op[1]);
	mrt_deadline(&s->op[3], &s->timer, MRT_MS(1));
	MRT_AWAIT(self, &s->op[1]);
	MRT_AWAIT(self, &s->op[3]);
	assert_done(&s->op[1], -ECANCELED);
	assert_done(&s->op[3], -ETIMEDOUT);
	ck_assert_int_eq(mrt_channel_try_recv(s->ch, &s->msg[7]), 0);
	ck_assert_uint_eq(s->msg[7], 0);
	ck_assert_int_eq(mrt_channel_try_recv(s->ch, &s->msg[7]), 0);
	ck_assert_uint_eq(s->msg[7], 2);
	ck_assert_int_eq(mrt_channel_try_recv(s->ch, &s->msg[7]), -EAGAIN);
	MRT_AWAIT(self, &s->op[2]);

	mrt_channel_recv(&s->op[4], s->ch, &s->msg[4]);
	mrt_channel_recv(&s->op[5], s->ch, &s->msg[5]);
	mrt_cancel(&s->op[4]);
	s->msg[4] = 4444;
	s->msg[0] = 55;
	ck_assert_int_eq(mrt_channel_try_send(s->ch, &s->msg[0]), 0);
	MRT_AWAIT(self, &s->op[4]);
	MRT_AWAIT(self, &s->op[5]);
	assert_done(&s->op[4], -ECANCELED);
	assert_done(&s->op[5], 0);
	ck_assert_uint_eq(s->msg[4], 4444);
	ck_assert_uint_eq(s->msg[5], 55);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

SCRIPT(channel_of_empty_messages_counts)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(2, 0, &s->ch), 0);
	MRT_AWAIT(self, mrt_channel_send(&s->op[0], s->ch, NULL));
	MRT_AWAIT(self, mrt_channel_send(&s->op[0], s->ch, NULL));
	mrt_channel_send(&s->op[1], s->ch, NULL);
	for (s->i = 0; s->i < 3; s->i++) {
		MRT_AWAIT(self, mrt_channel_recv(&s->op[0], s->ch, NULL));
		assert_done(&s->op[0], 0);
	}
	MRT_AWAIT(self, &s->op[1]);
	ck_assert_uint_eq(mrt_channel_nr(s->ch), 0);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

static enum mrt_poll destroys_a_channel_in_use_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(uint32_t), &s->ch), 0);
	mrt_channel_recv(&s->op[0], s->ch, &s->msg[0]);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

START_TEST(channel_with_waiters_is_not_destroyed_in_silence)
{
	script_run(0, destroys_a_channel_in_use_poll);
}
END_TEST

/* ---- composition ---- */

SCRIPT(a_wait_a_sleep_and_a_receive_are_awaited_together)
{
	struct script *s = frame;
	struct mrt_op *ops[3] = { &s->op[0], &s->op[1], &s->op[2] };
	size_t which = 0;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(uint32_t), &s->ch), 0);
	mrt_channel_recv(&s->op[0], s->ch, &s->msg[0]);
	mrt_notify_wait(&s->op[1], &s->notify);
	mrt_sleep(&s->op[2], MRT_MS(1));
	MRT_AWAIT_ANY(self, ops, 3, which);
	ck_assert_uint_eq(which, 2);
	assert_waits(&s->op[0]);
	assert_waits(&s->op[1]);
	s->thread = thread_start(notifier, &s->notify);
	mrt_sleep(&s->op[2], MRT_SEC(20));
	MRT_AWAIT_ANY(self, ops, 3, which);
	ck_assert_uint_eq(which, 1);
	mrt_cancel(&s->op[0]);
	mrt_cancel(&s->op[2]);
	MRT_AWAIT_ALL(self, ops, 3);
	assert_done(&s->op[0], -ECANCELED);
	assert_done(&s->op[2], -ECANCELED);
	ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

/* ---- a task that returns without looking at what it has taken ---- */

struct leaver {
	struct mrt_op op[3];
	struct mrt_notify *notify;
	struct mrt_semaphore *sem;
	struct mrt_channel *ch;
	bool all;
	uint32_t msg;
};

/* Its waits are satisfied by its own hand, but it returns before they are delivered. */
static enum mrt_poll leaver_poll(struct mrt_task *self, void *frame)
{
	struct leaver *l = frame;
	uint32_t msg = 77;

	MRT_BEGIN(self);
	if (l->notify) {
		mrt_notify_wait(&l->op[0], l->notify);
		if (l->all)
			mrt_notify_all(l->notify);
		else
			mrt_notify_one(l->notify);
	}
	if (l->sem) {
		mrt_semaphore_acquire(&l->op[1], l->sem, 5);
		ck_assert_int_eq(mrt_semaphore_release(l->sem, 5), 0);
	}
	if (l->ch) {
		mrt_channel_recv(&l->op[2], l->ch, &l->msg);
		ck_assert_int_eq(mrt_channel_try_send(l->ch, &msg), 0);
		for (msg = 78; mrt_channel_nr(l->ch) < 2 && l->all; msg++)
			ck_assert_int_eq(mrt_channel_try_send(l->ch, &msg), 0);
	}
	MRT_RETURN(self, 0);
}

static void leave(struct script *s, struct leaver l)
{
	ck_assert_int_eq(mrt_spawn(NULL, leaver_poll, &l, sizeof(l), NULL, &s->task), 0);
}

SCRIPT(notification_of_a_task_that_has_returned_is_passed_on)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	leave(s, (struct leaver){ .notify = &s->notify });
	MRT_AWAIT(self, mrt_join(&s->op[0], s->task));
	mrt_notify_wait(&s->op[1], &s->notify);
	MRT_AWAIT(self, &s->op[1]);                      /* it was stored */
	assert_done(&s->op[1], 0);
	leave(s, (struct leaver){ .notify = &s->notify, .all = true });
	MRT_AWAIT(self, mrt_join(&s->op[0], s->task));
	mrt_notify_wait(&s->op[1], &s->notify);
	SETTLE(self, s);
	assert_waits(&s->op[1]);                         /* notify_all stores nothing */
	MRT_RETURN(self, 0);
}

SCRIPT(permits_of_a_task_that_has_returned_come_back)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	leave(s, (struct leaver){ .sem = &s->sem });
	MRT_AWAIT(self, mrt_join(&s->op[0], s->task));
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 5);
	MRT_RETURN(self, 0);
}

SCRIPT(message_of_a_task_that_has_returned_goes_back_to_the_front)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(3, sizeof(uint32_t), &s->ch), 0);
	leave(s, (struct leaver){ .ch = s->ch, .all = true });  /* 77 to itself, then 78 and 79 */
	MRT_AWAIT(self, mrt_join(&s->op[0], s->task));
	ck_assert_uint_eq(mrt_channel_nr(s->ch), 3);
	for (s->i = 77; s->i < 80; s->i++) {
		ck_assert_int_eq(mrt_channel_try_recv(s->ch, &s->msg[0]), 0);
		ck_assert_uint_eq(s->msg[0], s->i);
	}
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

SCRIPT(message_of_a_task_that_has_returned_is_dropped_where_there_is_no_room)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(2, sizeof(uint32_t), &s->ch), 0);
	leave(s, (struct leaver){ .ch = s->ch, .all = true });
	MRT_AWAIT(self, mrt_join(&s->op[0], s->task));
	ck_assert_uint_eq(mrt_channel_nr(s->ch), 2);
	ck_assert_int_eq(mrt_channel_try_recv(s->ch, &s->msg[0]), 0);
	ck_assert_uint_eq(s->msg[0], 78);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

/* ---- a task that is aborted while it waits ---- */

struct waiter {
	struct mrt_op op[3];
	struct mrt_notify *notify;
	struct mrt_semaphore *sem;
	struct mrt_channel *ch;
	uint32_t msg;
	atomic_uint *started;
};

static enum mrt_poll waiter_poll(struct mrt_task *self, void *frame)
{
	struct waiter *w = frame;
	struct mrt_op *ops[3] = { &w->op[0], &w->op[1], &w->op[2] };

	MRT_BEGIN(self);
	mrt_notify_wait(&w->op[0], w->notify);
	mrt_semaphore_acquire(&w->op[1], w->sem, 4);
	mrt_channel_recv(&w->op[2], w->ch, &w->msg);
	atomic_fetch_add_explicit(w->started, 1, memory_order_release);
	MRT_AWAIT_ALL(self, ops, 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(w->op[i].res, -ECANCELED);
	MRT_AWAIT(self, mrt_notify_wait(&w->op[0], w->notify));
	ck_assert_int_eq(w->op[0].res, -ECANCELED);     /* refused after an abort */
	MRT_RETURN(self, 123);
}

static atomic_uint started;

SCRIPT(abort_ends_all_waits_of_a_task)
{
	struct script *s = frame;
	struct waiter w = { .notify = &s->notify, .sem = &s->sem, .started = &started };

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(uint32_t), &s->ch), 0);
	w.ch = s->ch;
	ck_assert_int_eq(mrt_spawn(NULL, waiter_poll, &w, sizeof(w), NULL, &s->task), 0);
	while (atomic_load_explicit(&started, memory_order_acquire) == 0)
		SETTLE(self, s);
	mrt_abort(s->task);
	MRT_AWAIT(self, mrt_join(&s->op[0], s->task));
	assert_done(&s->op[0], 123);
	ck_assert_int_eq(s->op[0].why, 0);
	/* nobody is left in any queue */
	ck_assert_int_eq(mrt_semaphore_release(&s->sem, 4), 0);
	ck_assert_uint_eq(mrt_semaphore_permits(&s->sem), 4);
	mrt_notify_all(&s->notify);
	mrt_channel_destroy(s->ch);
	MRT_RETURN(self, 0);
}

/* ---- budget ---- */

static enum mrt_poll ready_messages_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 1000; s->i++) {
		MRT_AWAIT(self, mrt_channel_recv(&s->op[0], s->ch, &s->msg[0]));
		assert_done(&s->op[0], 0);
		ck_assert_uint_eq(s->msg[0], s->i);
	}
	MRT_RETURN(self, 0);
}

START_TEST(a_thousand_ready_messages_do_not_keep_others_waiting)
{
	struct mrt_runtime *rt = runtime_create(1);
	struct mrt_worker_stats stats;
	struct script script;
	uint32_t msg;

	memset(&script, 0, sizeof(script));
	ck_assert_int_eq(mrt_channel_create(1000, sizeof(msg), &script.ch), 0);
	for (msg = 0; msg < 1000; msg++)
		ck_assert_int_eq(mrt_channel_try_send(script.ch, &msg), 0);
	ck_assert_int_eq(mrt_block_on(rt, ready_messages_poll, &script, sizeof(script), NULL), 0);
	ck_assert_int_eq(mrt_stats_get(rt, 0, &stats), 0);
	ck_assert_uint_ge(stats.budget_yields, 1000 / 128);
	ck_assert_uint_le(stats.budget_yields, 1000 / 64);
	mrt_channel_destroy(script.ch);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- many tasks ---- */

/* Producers and consumers over a channel of few slots: each message once, each producer's in order. */
#define PIPE_TASKS 4u
#define PIPE_MSGS 2000u

struct pipe_msg {
	uint32_t from;
	uint32_t serial;
};

struct pipe_shared {
	struct mrt_channel *ch;
	atomic_uint senders_left;
	atomic_uint seen[PIPE_TASKS][PIPE_MSGS];
};

struct pipe_task {
	struct mrt_op op;
	struct pipe_shared *shared;
	struct pipe_msg msg;
	uint32_t last[PIPE_TASKS];      /* a consumer: next serial that is still possible from each producer */
};

static enum mrt_poll producer_poll(struct mrt_task *self, void *frame)
{
	struct pipe_task *p = frame;

	MRT_BEGIN(self);
	for (p->msg.serial = 0; p->msg.serial < PIPE_MSGS; p->msg.serial++) {
		MRT_AWAIT(self, mrt_channel_send(&p->op, p->shared->ch, &p->msg));
		assert_done(&p->op, 0);
	}
	if (atomic_fetch_sub_explicit(&p->shared->senders_left, 1, memory_order_acq_rel) == 1)
		mrt_channel_close(p->shared->ch);
	MRT_RETURN(self, 0);
}

static enum mrt_poll consumer_poll(struct mrt_task *self, void *frame)
{
	struct pipe_task *p = frame;

	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_channel_recv(&p->op, p->shared->ch, &p->msg));
		if (p->op.res < 0)
			break;
		ck_assert_uint_lt(p->msg.from, PIPE_TASKS);
		ck_assert_uint_ge(p->msg.serial, p->last[p->msg.from]);
		p->last[p->msg.from] = p->msg.serial + 1;
		ck_assert_uint_eq(atomic_fetch_add_explicit(&p->shared->seen[p->msg.from][p->msg.serial], 1,
							    memory_order_relaxed), 0);
	}
	ck_assert_int_eq(p->op.res, -EPIPE);
	MRT_RETURN(self, 0);
}

struct joiner {
	struct mrt_op op;
	struct mrt_task **tasks;
	unsigned i;
};

static enum mrt_poll joiner_poll(struct mrt_task *self, void *frame)
{
	struct joiner *j = frame;

	MRT_BEGIN(self);
	for (; j->i < 2 * PIPE_TASKS; j->i++)
		MRT_AWAIT(self, mrt_join(&j->op, j->tasks[j->i]));
	MRT_RETURN(self, 0);
}

static struct pipe_shared pipe_shared;

START_TEST(channel_delivers_each_message_once_and_each_senders_in_order)
{
	struct mrt_runtime *rt = runtime_create(_i % FLAVOURS_NR);
	struct mrt_task *tasks[2 * PIPE_TASKS];
	struct joiner join = { .i = 0 };

	memset(&pipe_shared, 0, sizeof(pipe_shared));
	atomic_store_explicit(&pipe_shared.senders_left, PIPE_TASKS, memory_order_relaxed);
	ck_assert_int_eq(mrt_channel_create(_i < FLAVOURS_NR ? 1 : 7, sizeof(struct pipe_msg), &pipe_shared.ch), 0);
	for (unsigned i = 0; i < 2 * PIPE_TASKS; i++) {
		struct pipe_task p = { .shared = &pipe_shared, .msg.from = i };

		ck_assert_int_eq(mrt_spawn(rt, i < PIPE_TASKS ? producer_poll : consumer_poll, &p, sizeof(p), NULL,
					   &tasks[i]), 0);
	}
	join.tasks = tasks;
	ck_assert_int_eq(mrt_block_on(rt, joiner_poll, &join, sizeof(join), NULL), 0);
	for (unsigned i = 0; i < PIPE_TASKS; i++)
		for (unsigned m = 0; m < PIPE_MSGS; m++)
			ck_assert_uint_eq(atomic_load_explicit(&pipe_shared.seen[i][m], memory_order_relaxed), 1);
	mrt_channel_destroy(pipe_shared.ch);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- short races ---- */

#define RACES_NR 3000u

#define RACES_MIN 10u
#define RACES_NS MRT_SEC(10)    /* where both have one CPU, and others want it, a round takes two time slices */

struct race {
	struct mrt_op op, yield;
	struct mrt_timer timer;
	uint64_t start_ns;
	unsigned i;
	int64_t granted;
};

static struct mrt_semaphore race_sem;
static atomic_uint race_round, race_released; /* the round that the task has begun; how many have had their release */
static atomic_bool race_is_over;

/* In step with the task: one release a round, a little later each time. */
static void *race_releaser(void *arg)
{
	(void)arg;
	for (unsigned i = 1; i <= RACES_NR; i++) {
		while (atomic_load_explicit(&race_round, memory_order_acquire) < i) {
			if (atomic_load_explicit(&race_is_over, memory_order_relaxed))
				return NULL;
			(void)sched_yield();
		}
		for (unsigned spin = 0; spin < i % 64 * 16; spin++)
			atomic_signal_fence(memory_order_seq_cst);
		ck_assert_int_eq(mrt_semaphore_release(&race_sem, 2), 0);
		atomic_store_explicit(&race_released, i, memory_order_release);
	}
	return NULL;
}

static enum mrt_poll race_poll(struct mrt_task *self, void *frame)
{
	struct race *r = frame;

	MRT_BEGIN(self);
	r->start_ns = mrt_now();
	for (r->i = 1; r->i <= RACES_NR && (r->i <= RACES_MIN || mrt_now() - r->start_ns < RACES_NS); r->i++) {
		while (atomic_load_explicit(&race_released, memory_order_acquire) + 1 < r->i)
			MRT_AWAIT(self, mrt_yield(&r->yield));
		mrt_semaphore_acquire(&r->op, &race_sem, 3);
		if (r->i % 2)
			mrt_deadline(&r->op, &r->timer, r->i % 5 * 1000);
		atomic_store_explicit(&race_round, r->i, memory_order_release);
		if (r->i % 2 == 0)
			mrt_cancel(&r->op);
		MRT_AWAIT(self, &r->op);
		if (r->op.res == 0)
			r->granted += 3;
		else
			ck_assert_int_eq(r->op.res, r->i % 2 ? -ETIMEDOUT : -ECANCELED);
	}
	MRT_RETURN(self, r->granted);
}

START_TEST(a_cancel_or_deadline_that_races_with_a_release_loses_no_permit)
{
	struct mrt_runtime *rt = runtime_create(_i);
	struct race race;
	int64_t granted = 0;
	pthread_t thread = thread_start(race_releaser, NULL);

	memset(&race, 0, sizeof(race));
	ck_assert_int_eq(mrt_block_on(rt, race_poll, &race, sizeof(race), &granted), 0);
	atomic_store_explicit(&race_is_over, true, memory_order_relaxed);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_gt(granted, 0); /* what a round leaves is there in the next but one at the latest */
	ck_assert_int_eq(granted + (int64_t)mrt_semaphore_permits(&race_sem),
			 2 * (int64_t)atomic_load_explicit(&race_released, memory_order_relaxed));
	mrt_runtime_destroy(rt);
}
END_TEST

#define ADD(tc, name) tcase_add_loop_test(tc, name, 0, FLAVOURS_NR)

static Suite *sync_suite(void)
{
	Suite *s = suite_create("sync");
	TCase *oneshot = tcase_create("oneshot"), *notify = tcase_create("notify"), *sem = tcase_create("semaphore");
	TCase *channel = tcase_create("channel"), *tasks = tcase_create("tasks");

	tcase_set_timeout(oneshot, LIMIT_S);
	ADD(oneshot, oneshot_value_reaches_receivers_before_and_after_the_send);
	ADD(oneshot, oneshot_passes_negative_values_unchanged);
	ADD(oneshot, oneshot_close_fails_receivers_before_and_after);
	ADD(oneshot, oneshot_receive_can_be_cancelled_and_times_out);
	ADD(oneshot, oneshot_send_from_a_thread_that_is_no_worker);
	suite_add_tcase(s, oneshot);

	tcase_set_timeout(notify, LIMIT_S);
	ADD(notify, notify_one_stores_one_permit_not_two);
	ADD(notify, notify_one_wakes_the_oldest_wait);
	ADD(notify, notify_all_wakes_exactly_those_that_wait_and_stores_nothing);
	ADD(notify, notify_all_leaves_a_stored_permit_alone);
	ADD(notify, notify_wait_can_be_cancelled_from_any_place_in_the_queue);
	ADD(notify, a_cancel_after_the_notification_comes_too_late);
	ADD(notify, notify_from_a_thread_that_is_no_worker);
	suite_add_tcase(s, notify);

	tcase_set_timeout(sem, LIMIT_S);
	ADD(sem, semaphore_takes_gives_and_refuses);
	ADD(sem, semaphore_big_request_is_not_starved_by_small_ones);
	ADD(sem, semaphore_cancelled_acquire_takes_nothing_and_makes_way);
	ADD(sem, semaphore_close_fails_waits_and_later_acquires);
	ADD(sem, semaphore_release_from_a_thread_that_is_no_worker);
	suite_add_tcase(s, sem);

	tcase_set_timeout(channel, LIMIT_S);
	tcase_add_test(channel, channel_create_checks_its_sizes);
	tcase_add_test(channel, channel_try_forms_work_without_a_runtime);
	ADD(channel, channel_hands_messages_to_receivers_in_order_of_waiting);
	ADD(channel, channel_takes_over_waiting_senders_in_order);
	ADD(channel, channel_close_fails_waiting_senders_and_drains);
	ADD(channel, channel_close_fails_waiting_receivers);
	ADD(channel, channel_cancelled_waits_neither_send_nor_take);
	ADD(channel, channel_of_empty_messages_counts);
	tcase_add_test_raise_signal(channel, channel_with_waiters_is_not_destroyed_in_silence, SIGABRT);
	suite_add_tcase(s, channel);

	tcase_set_timeout(tasks, LIMIT_S);
	ADD(tasks, a_wait_a_sleep_and_a_receive_are_awaited_together);
	ADD(tasks, notification_of_a_task_that_has_returned_is_passed_on);
	ADD(tasks, permits_of_a_task_that_has_returned_come_back);
	ADD(tasks, message_of_a_task_that_has_returned_goes_back_to_the_front);
	ADD(tasks, message_of_a_task_that_has_returned_is_dropped_where_there_is_no_room);
	ADD(tasks, abort_ends_all_waits_of_a_task);
	tcase_add_test(tasks, a_thousand_ready_messages_do_not_keep_others_waiting);
	tcase_add_loop_test(tasks, channel_delivers_each_message_once_and_each_senders_in_order, 0, 2 * FLAVOURS_NR);
	ADD(tasks, a_cancel_or_deadline_that_races_with_a_release_loses_no_permit);
	suite_add_tcase(s, tasks);
	return s;
}

int main(void)
{
	return suite_main(sync_suite());
}
