/* SPDX-License-Identifier: MIT */
/*
 * Tasks and awaits: results, joins, names, composition, budget, and what happens to those who break the contract.
 *
 * Broken contracts end the process, so they are tried in a child whose last words are read.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "itest.h"

#define MANY 1000
#define BUDGET 128

/* ---- results and frames ---- */

struct sum {
	struct mrt_op op;
	int64_t a, b, sum;
	void *at;
};

static enum mrt_poll sum_poll(struct mrt_task *self, void *frame)
{
	struct sum *s = frame;

	MRT_BEGIN(self);
	s->at = frame;
	ck_assert_uint_eq((uintptr_t)frame % 16, 0);
	MRT_AWAIT(self, mrt_sleep(&s->op, MRT_MS(1)));
	ck_assert_ptr_eq(s->at, frame);
	MRT_AWAIT(self, mrt_yield(&s->op));
	ck_assert_ptr_eq(s->at, frame);
	s->sum = s->a + s->b;
	MRT_RETURN(self, s->sum);
}

START_TEST(block_on_returns_the_result_and_the_frame)
{
	struct sum s = { .a = 40, .b = 2 };
	struct mrt_runtime *rt = itest_runtime(_i);

	ck_assert_int_eq(itest_run(rt, sum_poll, &s, sizeof(s)), 42);
	ck_assert_int_eq(s.sum, 42);
	ck_assert_int_eq(mrt_block_on(rt, sum_poll, &s, sizeof(s), NULL), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

static enum mrt_poll fixed_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_BEGIN(self);
	MRT_RETURN(self, -7);
}

START_TEST(block_on_without_a_frame)
{
	struct mrt_runtime *rt = itest_runtime(_i);

	ck_assert_int_eq(itest_run(rt, fixed_poll, NULL, 0), -7);
	mrt_runtime_destroy(rt);
}
END_TEST

struct sized {
	size_t bytes;
	struct mrt_op op;
	unsigned char rest[];
};

static bool all_are(const unsigned char *bytes, size_t nr, unsigned char value)
{
	size_t i;

	for (i = 0; i < nr && bytes[i] == value; i++)
		continue;
	return i == nr;
}

static enum mrt_poll sized_poll(struct mrt_task *self, void *frame)
{
	struct sized *s = frame;
	size_t nr = s->bytes - sizeof(*s);

	MRT_BEGIN(self);
	ck_assert(all_are(s->rest, nr, 0));
	memset(s->rest, 0xa5, nr);
	MRT_AWAIT(self, mrt_yield(&s->op));
	ck_assert(all_are(s->rest, nr, 0xa5));
	MRT_RETURN(self, (int64_t)nr);
}

START_TEST(frames_of_every_size_are_zeroed_beyond_what_is_copied)
{
	static const size_t sizes[] = { sizeof(struct sized), 200, 256, 257, 1000, 4096, 8192, 9000, 16384, 65536, 70000,
					1 << 20, 5 << 20 };
	struct mrt_runtime *rt = itest_runtime(_i);
	size_t i, round;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct sized s = { .bytes = sizes[i] };
			struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizes[i] };
			struct mrt_task *task;
			int64_t result;

			ck_assert_int_eq(mrt_spawn(rt, sized_poll, &s, sizeof(s), &opts, &task), 0);
			if (_i == ITEST_CURRENT)
				ck_assert_int_eq(mrt_block_on(rt, fixed_poll, NULL, 0, NULL), 0);
			while (_i == ITEST_CURRENT && !mrt_task_is_finished(task))
				ck_assert_int_eq(mrt_block_on(rt, fixed_poll, NULL, 0, NULL), 0);
			result = itest_join(task);
			ck_assert_int_eq(result, (int64_t)(sizes[i] - sizeof(s)));
		}
	}
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(spawn_refuses_bad_arguments)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct {
		struct mrt_spawn_opts opts;
		uint64_t later;
	} longer = { .opts = { .size = sizeof(longer) } };
	struct mrt_spawn_opts opts = { .size = sizeof(opts) };
	struct mrt_task *task = (void *)&opts;
	int64_t result = 5;

	ck_assert_int_eq(mrt_spawn(rt, NULL, NULL, 0, NULL, &task), -EINVAL);
	ck_assert_int_eq(mrt_spawn(NULL, fixed_poll, NULL, 0, NULL, &task), -EINVAL);
	ck_assert_int_eq(mrt_spawn(rt, fixed_poll, NULL, (size_t)(1 << 30) + 1, NULL, &task), -EINVAL);
	opts.frame_bytes = (size_t)(1 << 30) + 1;
	ck_assert_int_eq(mrt_spawn(rt, fixed_poll, NULL, 0, &opts, &task), -EINVAL);
	opts.frame_bytes = 0;
	opts.flags = 1u << 31;
	ck_assert_int_eq(mrt_spawn(rt, fixed_poll, NULL, 0, &opts, &task), -EINVAL);
	opts.flags = 0;
	opts.reserved = 1;
	ck_assert_int_eq(mrt_spawn(rt, fixed_poll, NULL, 0, &opts, &task), -EINVAL);
	longer.later = 1;
	ck_assert_int_eq(mrt_spawn(rt, fixed_poll, NULL, 0, &longer.opts, &task), -E2BIG);
	ck_assert_ptr_eq(task, (void *)&opts); /* untouched on failure */
	ck_assert_int_eq(mrt_block_on(rt, NULL, NULL, 0, &result), -EINVAL);
	ck_assert_int_eq(result, 5);
	longer.later = 0;
	ck_assert_int_eq(mrt_spawn(rt, fixed_poll, NULL, 0, &longer.opts, NULL), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- ids and names ---- */

#define IDS_OUTSIDE 300

static int compare_ids(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void check_ids(uint64_t *ids, size_t nr)
{
	size_t i;

	qsort(ids, nr, sizeof(*ids), compare_ids);
	ck_assert_uint_ne(ids[0], 0);
	for (i = 1; i < nr; i++)
		ck_assert_uint_ne(ids[i - 1], ids[i]);
}

ITEST_CHILD(own_id, { uint64_t *ret; struct mrt_op op; })
{
	MRT_BEGIN(self);
	*f->ret = mrt_task_id(self);
	ck_assert_ptr_eq(mrt_task_self(), self);
	MRT_AWAIT(self, mrt_yield(&f->op));
	ck_assert_uint_eq(*f->ret, mrt_task_id(self));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(id_parent, { uint64_t *ids; struct mrt_task *task[MANY]; struct mrt_op op; int i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < MANY; f->i++) {
		struct own_id child = { .ret = &f->ids[f->i] };

		ck_assert_int_eq(mrt_spawn(NULL, own_id_poll, &child, sizeof(child), NULL, &f->task[f->i]), 0);
	}
	for (f->i = 0; f->i < MANY; f->i++) {
		ck_assert_uint_ne(mrt_task_id(f->task[f->i]), 0);
		MRT_AWAIT(self, mrt_join(&f->op, f->task[f->i]));
	}
	MRT_RETURN(self, 0);
}

START_TEST(ids_are_unique_and_never_zero)
{
	static uint64_t ids[MANY + IDS_OUTSIDE];
	struct mrt_task *tasks[IDS_OUTSIDE];
	struct id_parent parent = { .ids = ids };
	struct mrt_runtime *rt = itest_runtime(_i);
	int i;

	for (i = 0; i < IDS_OUTSIDE; i++) {
		tasks[i] = itest_spawn(rt, fixed_poll, NULL, 0);
		ids[MANY + i] = mrt_task_id(tasks[i]);
	}
	ck_assert_int_eq(itest_run(rt, id_parent_poll, &parent, sizeof(parent)), 0);
	for (i = 0; i < IDS_OUTSIDE; i++)
		mrt_detach(tasks[i]);
	check_ids(ids, MANY + IDS_OUTSIDE);
	mrt_runtime_destroy(rt);
}
END_TEST

ITEST_TASK(a_task_knows_its_name, { struct mrt_op op; struct mrt_task *task; })
{
	static const struct mrt_spawn_opts opts = { .size = sizeof(opts), .name = "copier" };
	char buf[64];

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_spawn(NULL, fixed_poll, NULL, 0, &opts, &f->task), 0);
	ck_assert_str_eq(mrt_task_name(f->task, buf, sizeof(buf)), "copier");
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	ck_assert_int_eq(f->op.res, -7);
	ck_assert_int_eq(f->op.why, 0);
	ck_assert_uint_gt(strlen(mrt_task_name(self, buf, sizeof(buf))), 0);
	ck_assert_str_eq(mrt_task_name(self, buf, 1), mrt_task_name(self, buf, 1));
	MRT_RETURN(self, 0);
}

/* ---- awaits ---- */

ITEST_TASK(any_is_select_over_a_socket_a_sleep_and_a_channel, {
	struct mrt_op recv; struct mrt_op sleep; struct mrt_op chan; struct mrt_op send; struct mrt_op *ops[4];
	struct mrt_channel *ch; int fds[2]; char buf[8]; int msg; size_t which; int round; })
{
	int msg = 17;

	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	ck_assert_int_eq(mrt_channel_create(4, sizeof(int), &f->ch), 0);
	f->ops[0] = &f->recv;
	f->ops[1] = NULL;
	f->ops[2] = &f->sleep;
	f->ops[3] = &f->chan;
	mrt_recv(&f->recv, f->fds[0], f->buf, sizeof(f->buf), 0);
	mrt_sleep(&f->sleep, MRT_MS(5));
	mrt_channel_recv(&f->chan, f->ch, &f->msg);
	MRT_AWAIT_ANY(self, f->ops, 4, f->which);
	ck_assert_uint_eq(f->which, 2);
	ck_assert_int_eq(f->sleep.res, 0);
	ck_assert(!mrt_op_is_done(&f->recv) && !mrt_op_is_done(&f->chan));
	for (f->round = 0; f->round < 50; f->round++) {
		mrt_sleep(&f->sleep, UINT64_MAX);
		if (f->round % 2)
			ck_assert_int_eq(mrt_channel_try_send(f->ch, &msg), 0);
		else
			MRT_AWAIT(self, mrt_send_all(&f->send, f->fds[1], "ping", 4));
		MRT_AWAIT_ANY(self, f->ops, 4, f->which);
		if (f->round % 2) {
			ck_assert_uint_eq(f->which, 3);
			ck_assert_int_eq(f->msg, 17);
			mrt_channel_recv(&f->chan, f->ch, &f->msg);
		} else {
			ck_assert_uint_eq(f->which, 0);
			ck_assert_int_eq(f->recv.res, 4);
			mrt_recv(&f->recv, f->fds[0], f->buf, sizeof(f->buf), 0);
		}
		ck_assert(!mrt_op_is_done(&f->sleep));
		mrt_cancel(&f->sleep);
		MRT_AWAIT(self, &f->sleep);
		ck_assert_int_eq(f->sleep.res, -ECANCELED);
	}
	mrt_cancel(&f->recv);
	mrt_cancel(&f->chan);
	MRT_AWAIT(self, &f->recv);
	MRT_AWAIT(self, &f->chan);
	ck_assert_int_eq(f->recv.res, -ECANCELED);
	ck_assert_int_eq(f->chan.res, -ECANCELED);
	mrt_channel_destroy(f->ch);
	MRT_AWAIT(self, mrt_close(&f->send, f->fds[0]));
	MRT_AWAIT(self, mrt_close(&f->send, f->fds[1]));
	MRT_RETURN(self, 0);
}

ITEST_TASK(any_returns_the_first_in_the_array_that_is_done, {
	struct mrt_op a; struct mrt_op b; struct mrt_op *ops[2]; size_t which; })
{
	MRT_BEGIN(self);
	f->ops[0] = &f->a;
	f->ops[1] = &f->b;
	mrt_sleep(&f->b, 0);
	mrt_sleep(&f->a, 0);
	MRT_AWAIT_ANY(self, f->ops, 2, f->which);
	ck_assert_uint_eq(f->which, 0);
	mrt_sleep(&f->a, MRT_MS(3));
	MRT_AWAIT_ANY(self, f->ops, 2, f->which);
	ck_assert_uint_eq(f->which, 1);
	MRT_AWAIT(self, &f->a);
	MRT_RETURN(self, 0);
}

#define ALL_NR 20

ITEST_TASK(all_waits_for_every_op_once, {
	struct mrt_op op[ALL_NR]; struct mrt_op *ops[ALL_NR + 3]; unsigned polls; uint64_t start; })
{
	int i;

	f->polls++;
	MRT_BEGIN(self);
	f->start = mrt_now();
	for (i = 0; i < ALL_NR; i++)
		f->ops[i] = mrt_sleep(&f->op[i], i % 4 == 3 ? 0 : MRT_MS(1 + i % 5));
	f->ops[ALL_NR] = &f->op[0];     /* named twice */
	f->ops[ALL_NR + 1] = NULL;
	f->ops[ALL_NR + 2] = &f->op[4];
	MRT_AWAIT_ALL(self, f->ops, ALL_NR + 3);
	ck_assert_uint_ge(mrt_now() - f->start, MRT_MS(5));
	for (i = 0; i < ALL_NR; i++) {
		ck_assert(mrt_op_is_done(&f->op[i]));
		ck_assert_int_eq(f->op[i].res, 0);
	}
	ck_assert_uint_eq(f->polls, 2);
	MRT_AWAIT_ALL(self, f->ops, ALL_NR + 3); /* all are done: at once */
	MRT_AWAIT_ALL(self, f->ops, 0);
	ck_assert_uint_eq(f->polls, 2);
	MRT_RETURN(self, 0);
}

ITEST_TASK(marks_of_an_any_do_not_count_in_a_later_all, {
	struct mrt_op fast; struct mrt_op slow[4]; struct mrt_op *ops[5]; struct mrt_op *two[2]; size_t which;
	unsigned polls;
})
{
	int i;

	f->polls++;
	MRT_BEGIN(self);
	f->ops[0] = mrt_sleep(&f->fast, MRT_MS(1));
	for (i = 0; i < 4; i++)
		f->ops[i + 1] = mrt_sleep(&f->slow[i], MRT_MS(10 + 3 * (uint64_t)i));
	MRT_AWAIT_ANY(self, f->ops, 5, f->which);
	ck_assert_uint_eq(f->which, 0);
	/* only the last two: the first two slow ones end earlier and must not satisfy it */
	f->two[0] = &f->slow[2];
	f->two[1] = &f->slow[3];
	f->polls = 0;
	MRT_AWAIT_ALL(self, f->two, 2);
	ck_assert_uint_le(f->polls, 1); /* none where a slow machine had all done by then */
	ck_assert(mrt_op_is_done(&f->slow[3]));
	MRT_AWAIT_ALL(self, f->ops, 5);
	MRT_RETURN(self, 0);
}

/* ---- sub-tasks ---- */

struct leaf {
	struct mrt_op op;
	int nr, i;
	int64_t sum;
};

static enum mrt_poll leaf_poll(struct mrt_task *self, void *frame)
{
	struct leaf *l = frame;

	MRT_BEGIN(self);
	for (l->i = 0; l->i < l->nr; l->i++) {
		switch (l->i % 4) {
		case 0:
			MRT_AWAIT(self, mrt_sleep(&l->op, MRT_US(100)));
			break;
		case 1:
			MRT_AWAIT(self, mrt_yield(&l->op));
			break;
		case 2:
			MRT_AWAIT(self, mrt_nop(&l->op));
			break;
		default:
			MRT_AWAIT(self, mrt_sleep(&l->op, 0));
		}
		ck_assert_int_eq(l->op.res, 0);
		l->sum += l->i;
	}
	MRT_RETURN(self, l->sum);
}

struct branch {
	struct mrt_call call;
	struct leaf leaf;
	struct mrt_op op;
	int i;
	int64_t sum;
};

static enum mrt_poll branch_poll(struct mrt_task *self, void *frame)
{
	struct branch *b = frame;

	MRT_BEGIN(self);
	for (b->i = 0; b->i < 5; b->i++) {
		b->leaf = (struct leaf){ .nr = b->i };
		MRT_CALL(self, &b->call, leaf_poll, &b->leaf);
		b->sum += b->call.res;
		MRT_AWAIT(self, mrt_yield(&b->op));
	}
	MRT_RETURN(self, b->sum);
}

ITEST_TASK(calls_nest_and_resume_where_they_were, { struct mrt_call call[2]; struct branch branch[2]; int i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 2; f->i++) {
		MRT_CALL(self, &f->call[f->i], branch_poll, &f->branch[f->i]);
		ck_assert_int_eq(f->call[f->i].res, 0 + 0 + 1 + 3 + 6);
	}
	MRT_RETURN(self, 0);
}

/* ---- join ---- */

ITEST_CHILD(waiter, { struct mrt_op op; struct mrt_oneshot *until; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, f->until));
	MRT_RETURN(self, f->op.res);
}

static struct mrt_task *spawn_waiter(struct mrt_oneshot *until)
{
	struct waiter w = { .until = until };
	struct mrt_task *task;

	mrt_oneshot_init(until);
	ck_assert_int_eq(mrt_spawn(NULL, waiter_poll, &w, sizeof(w), NULL, &task), 0);
	return task;
}

ITEST_TASK(join_gives_the_result_before_and_after_the_end, {
	struct mrt_oneshot until; struct mrt_task *task; struct mrt_op join; })
{
	MRT_BEGIN(self);
	f->task = spawn_waiter(&f->until);
	mrt_join(&f->join, f->task);
	ck_assert(!mrt_op_is_done(&f->join));
	ck_assert_int_eq(mrt_oneshot_send(&f->until, -123), 0);
	MRT_AWAIT(self, &f->join);
	ck_assert_int_eq(f->join.res, -123);
	ck_assert_int_eq(f->join.why, 0);

	f->task = spawn_waiter(&f->until);
	ck_assert_int_eq(mrt_oneshot_send(&f->until, 9), 0);
	while (!mrt_task_is_finished(f->task))
		MRT_AWAIT(self, mrt_yield(&f->join));
	mrt_join(&f->join, f->task);
	ck_assert(mrt_op_is_done(&f->join)); /* it has ended: inline */
	MRT_AWAIT(self, &f->join);
	ck_assert_int_eq(f->join.res, 9);
	ck_assert_int_eq(f->join.why, 0);
	MRT_RETURN(self, 0);
}

ITEST_TASK(join_says_why_when_it_did_not_join, {
	struct mrt_oneshot until; struct mrt_task *task; struct mrt_op join; struct mrt_op second;
	struct mrt_timer timer;
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_join(&f->join, self));
	ck_assert_int_eq(f->join.res, -EDEADLK);
	ck_assert_int_eq(f->join.why, -EDEADLK);

	f->task = spawn_waiter(&f->until);
	mrt_join(&f->join, f->task);
	MRT_AWAIT(self, mrt_join(&f->second, f->task));
	ck_assert_int_eq(f->second.res, -EBUSY);
	ck_assert_int_eq(f->second.why, -EBUSY);

	mrt_cancel(&f->join);
	MRT_AWAIT(self, &f->join);
	ck_assert_int_eq(f->join.res, -ECANCELED);
	ck_assert_int_eq(f->join.why, -ECANCELED);

	MRT_AWAIT(self, mrt_deadline(mrt_join(&f->join, f->task), &f->timer, MRT_MS(2)));
	ck_assert_int_eq(f->join.res, -ETIMEDOUT);
	ck_assert_int_eq(f->join.why, -ETIMEDOUT);

	/* the handle is still ours; a result that looks like an error is a result */
	ck_assert_int_eq(mrt_oneshot_send(&f->until, -ECANCELED), 0);
	MRT_AWAIT(self, mrt_join(&f->join, f->task));
	ck_assert_int_eq(f->join.res, -ECANCELED);
	ck_assert_int_eq(f->join.why, 0);
	MRT_RETURN(self, 0);
}

/* The joiner's and the joined one's ends race. */
ITEST_TASK(join_cancelled_while_the_task_ends, {
	struct mrt_oneshot until; struct mrt_task *task; struct mrt_op join; struct mrt_op pause; int i;
	int joined;
})
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 2000; f->i++) {
		f->task = spawn_waiter(&f->until);
		if (f->i % 2)
			MRT_AWAIT(self, mrt_yield(&f->pause));
		mrt_join(&f->join, f->task);
		ck_assert_int_eq(mrt_oneshot_send(&f->until, 77), 0);
		if (f->i % 3)
			itest_spin((uint64_t)f->i % 7 * 1000);
		mrt_cancel(&f->join);
		MRT_AWAIT(self, &f->join);
		if (f->join.why == 0) {
			ck_assert_int_eq(f->join.res, 77);
			f->joined++;
		} else {
			ck_assert_int_eq(f->join.res, -ECANCELED);
			MRT_AWAIT(self, mrt_join(&f->join, f->task));
			ck_assert_int_eq(f->join.res, 77);
		}
	}
	MRT_RETURN(self, 0);
}

/* Its end is another worker's, also where each of the two runtimes has but one. */
ITEST_CHILD(abroad, { struct mrt_runtime *there; struct mrt_oneshot until; struct mrt_task *task; struct mrt_op join; int i; })
{
	struct waiter w = { .until = &f->until };

	MRT_BEGIN(self);
	for (f->i = 0; f->i < 1000; f->i++) {
		mrt_oneshot_init(&f->until);
		w.until = &f->until;
		ck_assert_int_eq(mrt_spawn(f->there, waiter_poll, &w, sizeof(w), NULL, &f->task), 0);
		mrt_join(&f->join, f->task);
		ck_assert_int_eq(mrt_oneshot_send(&f->until, 77), 0);
		if (f->i % 2) {
			itest_spin((uint64_t)f->i % 7 * 1000);
			mrt_cancel(&f->join);
		}
		MRT_AWAIT(self, &f->join);
		if (f->join.why != 0) {
			ck_assert_int_eq(f->join.res, -ECANCELED);
			MRT_AWAIT(self, mrt_join(&f->join, f->task));
		}
		ck_assert_int_eq(f->join.res, 77);
	}
	MRT_RETURN(self, 0);
}

START_TEST(a_task_of_another_runtime_is_joined)
{
	struct mrt_runtime_opts one = itest_opts(ITEST_TWO);
	struct abroad f = { .i = 0 };
	struct mrt_runtime *here, *there;

	one.workers_nr = 1;
	here = _i == ITEST_CURRENT ? itest_runtime(ITEST_CURRENT) : itest_create(&one);
	there = _i == ITEST_FLOAT ? itest_runtime(ITEST_FLOAT) : itest_create(&one);
	f.there = there;
	ck_assert_int_eq(itest_run(here, abroad_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(here);
	mrt_runtime_destroy(there);
}
END_TEST

static void *join_outside(void *arg)
{
	return (void *)(intptr_t)itest_join(arg);
}

START_TEST(a_thread_outside_joins)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_oneshot until;
	struct waiter w = { .until = &until };
	struct mrt_task *task;
	pthread_t thread;
	void *result;

	mrt_oneshot_init(&until);
	task = itest_spawn(rt, waiter_poll, &w, sizeof(w));
	ck_assert_int_eq(pthread_create(&thread, NULL, join_outside, task), 0);
	ck_assert(!mrt_task_is_finished(task));
	ck_assert_int_eq(mrt_oneshot_send(&until, 4711), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_int_eq((intptr_t)result, 4711);
	mrt_runtime_destroy(rt);
}
END_TEST

/* Whichever side is first, exactly once: result or detach at every moment of the task's life. */
START_TEST(handles_are_given_back_at_any_moment)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_worker_stats stats;
	int i, nr = ITEST_TSAN ? 3000 : 20000;

	for (i = 0; i < nr; i++) {
		struct mrt_task *task = itest_spawn(rt, fixed_poll, NULL, 0);

		if (i % 3 == 1)
			itest_spin((uint64_t)i % 5 * 1000);
		if (i % 2)
			mrt_detach(task);
		else
			ck_assert_int_eq(itest_join(task), -7);
	}
	mrt_detach(NULL);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, UINT64_MAX), 0);
	stats = itest_stats(rt);
	ck_assert_uint_eq(stats.ends, (uint64_t)nr);
	ck_assert_uint_eq(itest_global(rt).spawns_outside, (uint64_t)nr);
	ck_assert_int_eq(itest_global(rt).tasks_alive, 0);
	mrt_runtime_destroy(rt);
}
END_TEST

ITEST_TASK(join_wait_on_a_worker_is_refused, { struct mrt_oneshot until; struct mrt_task *task; struct mrt_op op; })
{
	int64_t result = 3;

	MRT_BEGIN(self);
	f->task = spawn_waiter(&f->until);
	ck_assert_int_eq(mrt_task_join_wait(f->task, &result), -EDEADLK);
	ck_assert_int_eq(result, 3);
	ck_assert_int_eq(mrt_oneshot_send(&f->until, 0), 0);
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	MRT_RETURN(self, f->op.res);
}

/* ---- budget and yields ---- */

ITEST_TASK(a_loop_over_ready_ops_is_interrupted, {
	struct mrt_oneshot ready; struct mrt_op op; int i; int in_poll; int in_poll_max; int polls; })
{
	f->polls++;
	f->in_poll = 0;
	MRT_BEGIN(self);
	mrt_oneshot_init(&f->ready);
	mrt_oneshot_send(&f->ready, 1);
	for (f->i = 0; f->i < 1000; f->i++) {
		MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->ready));
		if (++f->in_poll > f->in_poll_max)
			f->in_poll_max = f->in_poll;
	}
	ck_assert_int_ge(f->polls, 2);
	ck_assert_int_le(f->in_poll_max, BUDGET + 1);
	ck_assert_int_ge(f->polls, 1000 / (BUDGET + 1));
	ck_assert_uint_ge(itest_stats(mrt_runtime_self()).budget_yields, 1000 / (BUDGET + 1));
	MRT_RETURN(self, 0);
}

/*
 * An op whose completion is there already is seen after a few yields: yielding goes behind the ring. Those count that begin and
 * end on the worker of that ring: the task may be stolen while the worker's CPU is taken from it.
 */
ITEST_TASK(yields_let_a_ready_socket_in, {
	struct mrt_op recv; struct mrt_op op; int fds[2]; char buf[4]; int yields; int home; int from;
})
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	ck_assert_int_eq(write(f->fds[1], "x", 1), 1);
	f->home = gettid();
	mrt_recv(&f->recv, f->fds[0], f->buf, sizeof(f->buf), 0);
	while (!mrt_op_is_done(&f->recv)) {
		f->from = gettid();
		MRT_AWAIT(self, mrt_yield(&f->op));
		f->yields += f->from == f->home && gettid() == f->home;
	}
	ck_assert_int_lt(f->yields, 10);
	ck_assert_int_eq(f->recv.res, 1);
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* The same: a round has more ops than a budget, and those rounds count that are on the ring's worker all the time. */
ITEST_TASK(a_spent_budget_lets_a_ready_socket_in, {
	struct mrt_oneshot ready; struct mrt_op recv; struct mrt_op op; int fds[2]; char buf[4]; int rounds; int i; int home; int from;
})
{
	MRT_BEGIN(self);
	mrt_oneshot_init(&f->ready);
	mrt_oneshot_send(&f->ready, 1);
	itest_socketpair(f->fds);
	ck_assert_int_eq(write(f->fds[1], "x", 1), 1);
	f->home = gettid();
	mrt_recv(&f->recv, f->fds[0], f->buf, sizeof(f->buf), 0);
	while (!mrt_op_is_done(&f->recv)) {
		f->from = gettid();
		for (f->i = 0; f->i < BUDGET + 1; f->i++)
			MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->ready));
		f->rounds += f->from == f->home && gettid() == f->home;
	}
	ck_assert_int_lt(f->rounds, 10);
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* Who is woken while it runs is polled exactly once more. */
struct poked {
	struct mrt_op a, b;
	struct mrt_op *ops[2];
	struct mrt_notify *poke;
	size_t which;
	int polls;
	atomic_int *inside, *go;
};

static enum mrt_poll poked_poll(struct mrt_task *self, void *frame)
{
	struct poked *p = frame;

	p->polls++;
	MRT_BEGIN(self);
	mrt_notify_wait(&p->a, p->poke);
	mrt_notify_wait(&p->b, p->poke);
	p->ops[0] = &p->a;
	p->ops[1] = &p->b;
	atomic_store(p->inside, 1);
	while (!atomic_load(p->go))
		continue;
	MRT_AWAIT_ALL(self, p->ops, 2);
	MRT_RETURN(self, p->polls);
}

START_TEST(a_wake_while_running_costs_at_most_one_poll)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	atomic_int inside = 0, go = 0;
	struct mrt_notify poke;
	struct poked p = { .poke = &poke, .inside = &inside, .go = &go };
	struct mrt_task *task;

	mrt_notify_init(&poke);
	task = itest_spawn(rt, poked_poll, &p, sizeof(p));
	ITEST_WAIT(atomic_load(&inside), 20000);
	mrt_notify_one(&poke);          /* while it runs */
	atomic_store(&go, 1);
	mrt_notify_one(&poke);          /* while it runs or waits */
	ck_assert_int_le(itest_join(task), 2);
	mrt_runtime_destroy(rt);
}
END_TEST

/* The only worker polls another task: then that poll is over, and its task waits. */
START_TEST(two_wakes_of_an_idle_task_are_one_poll)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	atomic_int inside = 0, go = 1;
	struct mrt_notify poke;
	struct poked p = { .poke = &poke, .inside = &inside, .go = &go };
	struct mrt_runtime *rt;
	struct mrt_task *task;

	opts.workers_nr = 1;
	rt = itest_create(&opts);
	mrt_notify_init(&poke);
	task = itest_spawn(rt, poked_poll, &p, sizeof(p));
	ITEST_WAIT(atomic_load(&inside), 20000);
	ck_assert_int_eq(itest_run(rt, fixed_poll, NULL, 0), -7);
	mrt_notify_all(&poke);
	ck_assert_int_eq(itest_join(task), 2);
	mrt_runtime_destroy(rt);
}
END_TEST

/* What was written before a wake is seen by the poll that it leads to, also if the task was scheduled already. */
struct published {
	struct mrt_op op[2];
	struct mrt_op *ops[2];
	struct mrt_notify *first, *second;
	int *plain;
	size_t which;
};

static enum mrt_poll published_poll(struct mrt_task *self, void *frame)
{
	struct published *p = frame;

	MRT_BEGIN(self);
	p->ops[0] = mrt_notify_wait(&p->op[0], p->first);
	p->ops[1] = mrt_notify_wait(&p->op[1], p->second);
	MRT_AWAIT_ANY(self, p->ops, 2, p->which);
	MRT_AWAIT_ALL(self, p->ops, 2);
	MRT_RETURN(self, *p->plain);
}

START_TEST(writes_before_a_second_wake_are_seen)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	int i, nr = ITEST_TSAN ? 500 : 3000;

	for (i = 0; i < nr; i++) {
		struct mrt_notify first, second;
		int plain = 0;
		struct published p = { .first = &first, .second = &second, .plain = &plain };
		struct mrt_task *task;

		mrt_notify_init(&first);
		mrt_notify_init(&second);
		task = itest_spawn(rt, published_poll, &p, sizeof(p));
		mrt_notify_one(&first);
		plain = i;
		mrt_notify_one(&second);
		ck_assert_int_eq(itest_join(task), i);
	}
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- a task that returns with ops in flight ---- */

struct leaver {
	struct mrt_op recv, sleep, poll, wait, chan, nop;
	struct mrt_timer timer;
	int fd;
	struct mrt_notify *notify;
	struct mrt_channel *ch;
	int msg;
	char buf[64];
};

static enum mrt_poll leaver_poll(struct mrt_task *self, void *frame)
{
	struct leaver *l = frame;

	MRT_BEGIN(self);
	mrt_recv(&l->recv, l->fd, l->buf, sizeof(l->buf), 0);
	mrt_deadline(mrt_poll_fd(&l->poll, l->fd, 1 /* POLLIN */), &l->timer, MRT_SEC(100));
	mrt_sleep(&l->sleep, UINT64_MAX);
	mrt_notify_wait(&l->wait, l->notify);
	mrt_channel_recv(&l->chan, l->ch, &l->msg);
	mrt_nop(&l->nop);
	MRT_RETURN(self, 11);
}

START_TEST(returning_with_ops_in_flight_cancels_and_collects_them)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_channel *ch;
	struct mrt_notify notify;
	struct leaver l = { .notify = &notify };
	char buf[8];
	int fds[2], i, msg = 1;

	itest_socketpair(fds);
	l.fd = fds[0];
	mrt_notify_init(&notify);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(int), &ch), 0);
	l.ch = ch;
	for (i = 0; i < 200; i++) {
		/* the result comes only when nothing is in flight any more */
		ck_assert_int_eq(itest_run(rt, leaver_poll, &l, sizeof(l)), 11);
		ck_assert_uint_eq(itest_stats(rt).timers, 0);
		/* nobody reads what comes now: no receive was left behind */
		ck_assert_int_eq(write(fds[1], "data", 4), 4);
		ck_assert_int_eq(recv(fds[0], buf, sizeof(buf), MSG_DONTWAIT), 4);
		ck_assert_int_eq(mrt_channel_try_send(ch, &msg), 0);
		ck_assert_int_eq(mrt_channel_try_recv(ch, &msg), 0);
	}
	mrt_channel_destroy(ch); /* ends the process if a waiter were left */
	mrt_runtime_destroy(rt);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* ---- outside a task ---- */

START_TEST(an_op_outside_a_task_is_refused)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_op op = { 0 };
	struct mrt_oneshot o;
	char buf[4];

	mrt_oneshot_init(&o);
	ck_assert_ptr_eq(mrt_nop(&op), &op);
	ck_assert(mrt_op_is_done(&op));
	ck_assert_int_eq(op.res, -EINVAL);
	ck_assert_int_eq(mrt_read(&op, 0, buf, 1, 0)->res, -EINVAL);
	ck_assert_int_eq(mrt_sleep(&op, 1)->res, -EINVAL);
	ck_assert_int_eq(mrt_yield(&op)->res, -EINVAL);
	ck_assert_int_eq(mrt_open(&op, MRT_AT_FDCWD, "/", 0, 0)->res, -EINVAL);
	ck_assert_int_eq(mrt_oneshot_recv(&op, &o)->res, -EINVAL);
	ck_assert_int_eq(mrt_recv(&op, 0, buf, 1, 0)->res, -EINVAL);
	mrt_cancel(&op);
	mrt_flush();
	ck_assert_ptr_null(mrt_task_self());
	ck_assert_ptr_null(mrt_runtime_self());
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(an_op_outside_a_task_is_told_to_the_log)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_op op = { 0 };

	ck_assert_int_eq(mrt_nop(&op)->res, -EINVAL);
	ck_assert_msg(itest_log_has("nop"), "the log does not name the op");
	ck_assert(itest_log_has("outside a task"));
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- broken contracts ---- */

static const struct mrt_spawn_opts sinner = { .size = sizeof(sinner), .name = "sinner" };

static int run_sinner(void *fn)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_TWO);
	struct mrt_spawn_opts opts = sinner;
	struct mrt_task *task;

	opts.frame_bytes = 4096;
	ck_assert_int_eq(mrt_spawn(rt, *(mrt_poll_fn *)fn, NULL, 0, &opts, &task), 0);
	(void)mrt_task_join_wait(task, NULL); /* it does not end */
	return 0;
}

ITEST_CHILD(reuse, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	mrt_sleep(&f->op, MRT_SEC(10));
	mrt_nop(&f->op);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(reuse_inline, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	mrt_sleep(&f->op, MRT_SEC(10));
	mrt_read(&f->op, 0, NULL, 0, -5); /* a bad argument is no excuse */
	MRT_RETURN(self, 0);
}

ITEST_CHILD(never_started, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, &f->op);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(garbage, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	memset(&f->op, 0xee, sizeof(f->op));
	MRT_AWAIT(self, mrt_nop(&f->op));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(any_of_none, { struct mrt_op *ops[2]; size_t which; })
{
	MRT_BEGIN(self);
	MRT_AWAIT_ANY(self, f->ops, 2, f->which);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(two_deadlines, { struct mrt_op op; struct mrt_timer a; struct mrt_timer b; })
{
	MRT_BEGIN(self);
	mrt_deadline(mrt_sleep(&f->op, MRT_SEC(9)), &f->a, MRT_SEC(1));
	mrt_deadline(&f->op, &f->b, MRT_SEC(1));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(busy_timer, { struct mrt_op op; struct mrt_op other; struct mrt_timer a; })
{
	MRT_BEGIN(self);
	mrt_deadline(mrt_sleep(&f->op, MRT_SEC(9)), &f->a, MRT_SEC(1));
	mrt_deadline(mrt_sleep(&f->other, MRT_SEC(9)), &f->a, MRT_SEC(1));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(low_shield, { int none; })
{
	(void)f;
	MRT_BEGIN(self);
	mrt_shield(self, false);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(meddler, { struct mrt_op *op; int how; struct mrt_timer timer; })
{
	MRT_BEGIN(self);
	if (f->how == 0)
		mrt_cancel(f->op);
	else if (f->how == 1)
		mrt_deadline(f->op, &f->timer, 1);
	else
		MRT_AWAIT(self, f->op);
	MRT_RETURN(self, 0);
}

#define MEDDLES(name, nr)                                                                               \
	ITEST_CHILD(name, { struct mrt_op op; struct mrt_op wait; struct mrt_task *task; })             \
	{                                                                                               \
		struct meddler m = { .op = &f->op, .how = nr };                                         \
									                                \
		MRT_BEGIN(self);                                                                        \
		mrt_sleep(&f->op, MRT_SEC(10));                                                         \
		ck_assert_int_eq(mrt_spawn(NULL, meddler_poll, &m, sizeof(m), NULL, &f->task), 0);      \
		MRT_AWAIT(self, mrt_join(&f->wait, f->task));                                           \
		MRT_RETURN(self, 0);                                                                    \
	}

MEDDLES(foreign_cancel, 0)
MEDDLES(foreign_deadline, 1)
MEDDLES(foreign_await, 2)

static const struct sin {
	mrt_poll_fn fn;
	const char *says[3];
} sins[] = {
	{ reuse_poll, { "nop", "sleep", "sinner" } },
	{ reuse_inline_poll, { "read", "sleep", "sinner" } },
	{ never_started_poll, { "never started" } },
	{ garbage_poll, { "garbage", "nop" } },
	{ any_of_none_poll, { "NULL" } },
	{ two_deadlines_poll, { "mrt_deadline", "sleep" } },
	{ busy_timer_poll, { "mrt_deadline", "in use" } },
	{ low_shield_poll, { "mrt_shield" } },
	{ foreign_cancel_poll, { "mrt_cancel", "sleep", "another task" } },
	{ foreign_deadline_poll, { "mrt_deadline", "another task" } },
	{ foreign_await_poll, { "sleep", "another task" } },
};

START_TEST(a_broken_contract_ends_the_process_with_names)
{
	const struct sin *sin = &sins[_i];
	mrt_poll_fn fn = sin->fn;

	itest_aborts_with(run_sinner, &fn, "martlet:", sin->says[0], sin->says[1], sin->says[2], NULL);
}
END_TEST

/* ---- */

/* ---- between two drives of a current-thread runtime ---- */

ITEST_CHILD(late_writer, { struct mrt_op op; struct mrt_notify *begun; int fd; })
{
	MRT_BEGIN(self);
	(void)mrt_write(&f->op, f->fd, "x", 1, MRT_OFF_CURRENT);
	mrt_notify_one(f->begun); /* the other one is next, without a ring turn between */
	MRT_AWAIT(self, &f->op);
	MRT_RETURN(self, f->op.res);
}

ITEST_CHILD(hasty, { struct mrt_op op; struct mrt_notify *begun; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_notify_wait(&f->op, f->begun));
	MRT_RETURN(self, 0);
}

static void write_and_leave(struct mrt_runtime *rt, int fd)
{
	struct mrt_notify begun;
	struct late_writer lw = { .begun = &begun, .fd = fd };
	struct hasty h = { .begun = &begun };

	mrt_notify_init(&begun);
	mrt_detach(itest_spawn(rt, late_writer_poll, &lw, sizeof(lw)));
	ck_assert_int_eq(itest_run(rt, hasty_poll, &h, sizeof(h)), 0);
}

START_TEST(what_was_started_is_submitted_when_block_on_returns)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);
	struct mrt_runtime *rt;
	char byte = 0;
	int fds[2];

	opts.flags |= _i ? MRT_RUNTIME_SQPOLL : 0;
	rt = itest_create(&opts);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	for (unsigned i = 0; i < 10; i++) {
		write_and_leave(rt, fds[1]);
		/* SQPOLL's thread takes its time; without it the enter has written */
		ITEST_WAIT(read(fds[0], &byte, 1) == 1, 20000);
	}
	mrt_runtime_destroy(rt);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("task");
	TCase *tc = tcase_create("task"), *sin = tcase_create("contracts");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, block_on_returns_the_result_and_the_frame, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, block_on_without_a_frame, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, frames_of_every_size_are_zeroed_beyond_what_is_copied, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, spawn_refuses_bad_arguments, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, ids_are_unique_and_never_zero, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, a_task_knows_its_name, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, any_is_select_over_a_socket_a_sleep_and_a_channel, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, any_returns_the_first_in_the_array_that_is_done, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, all_waits_for_every_op_once, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, marks_of_an_any_do_not_count_in_a_later_all, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, calls_nest_and_resume_where_they_were, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, join_gives_the_result_before_and_after_the_end, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, join_says_why_when_it_did_not_join, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, join_cancelled_while_the_task_ends, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, join_wait_on_a_worker_is_refused, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, a_thread_outside_joins);
	tcase_add_loop_test(tc, a_task_of_another_runtime_is_joined, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, handles_are_given_back_at_any_moment);
	tcase_add_loop_test(tc, a_loop_over_ready_ops_is_interrupted, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, yields_let_a_ready_socket_in, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_spent_budget_lets_a_ready_socket_in, 0, ITEST_KINDS_NR);
	tcase_add_test(tc, a_wake_while_running_costs_at_most_one_poll);
	tcase_add_test(tc, two_wakes_of_an_idle_task_are_one_poll);
	tcase_add_test(tc, writes_before_a_second_wake_are_seen);
	tcase_add_loop_test(tc, returning_with_ops_in_flight_cancels_and_collects_them, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, what_was_started_is_submitted_when_block_on_returns, 0, 2);
	tcase_add_loop_test(tc, an_op_outside_a_task_is_refused, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, an_op_outside_a_task_is_told_to_the_log, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, tc);
	tcase_set_timeout(sin, ITEST_LIMIT_S);
	tcase_add_loop_test(sin, a_broken_contract_ends_the_process_with_names, 0, sizeof(sins) / sizeof(sins[0]));
	suite_add_tcase(suite, sin);
	return itest_main(suite);
}
