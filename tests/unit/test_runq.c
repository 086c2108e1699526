/* SPDX-License-Identifier: MIT */
/*
 * The local queue on one thread: capacity, overflow, steals, wrap of the indices, the next slot, the current-thread
 * flavour. Every case runs with indices from 0 and with indices that wrap. What happens between threads is not here:
 * tests/model/model_runq.c tries interleavings, tests/stress/stress_runq.c runs real threads.
 */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "sched/runq.h"
#include "suite.h"

#define TASKS_NR 4096u
#define LIMIT_S 10

struct mrt_task {
	unsigned taken_nr;
};

static struct mrt_task tasks[TASKS_NR];
static struct mrt__runq q, other, third;

static const uint32_t starts[] = { 0, UINT32_MAX, UINT32_MAX - 100, UINT32_MAX - 255, UINT32_MAX - 300, INT32_MAX };

static void init_queues(int start, bool solo)
{
	mrt__runq_init(&q, starts[start], solo);
	mrt__runq_init(&other, starts[start] + 77, solo);
	mrt__runq_init(&third, starts[start], solo);
}

static void check_all(void)
{
	ck_assert(mrt__runq_check(&q, stderr));
	ck_assert(mrt__runq_check(&other, stderr));
	ck_assert(mrt__runq_check(&third, stderr));
}

/* Push tasks[from .. to - 1], which must fit. */
static void push_range(struct mrt__runq *to_q, unsigned from, unsigned to)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr = 0, i;

	for (i = from; i < to; i++)
		ck_assert_int_eq(mrt__runq_push(to_q, &tasks[i], batch, &nr), MRT__RUNQ_PUSHED);
	ck_assert_uint_eq(nr, 0);
}

/* Pop exactly tasks[from .. to - 1], in this order. */
static void pop_range(struct mrt__runq *from_q, unsigned from, unsigned to)
{
	unsigned i;

	for (i = from; i < to; i++)
		ck_assert_ptr_eq(mrt__runq_pop(from_q), &tasks[i]);
}

static void expect_empty(struct mrt__runq *e)
{
	ck_assert_ptr_null(mrt__runq_pop(e));
	ck_assert_uint_eq(mrt__runq_len(e), 0);
	ck_assert_uint_eq(mrt__runq_room(e), MRT__RUNQ_SLOTS);
	ck_assert(!mrt__runq_has_work(e));
}

START_TEST(a_new_queue_is_empty)
{
	init_queues(_i, false);
	expect_empty(&q);
	ck_assert(!mrt__runq_has_next(&q));
	ck_assert_ptr_null(mrt__runq_next_take(&q));
	check_all();
}
END_TEST

START_TEST(tasks_come_out_in_the_order_in_which_they_went_in)
{
	unsigned round;

	init_queues(_i, false);
	for (round = 0; round < 20; round++) {
		push_range(&q, round * 100, round * 100 + 100);
		ck_assert_uint_eq(mrt__runq_len(&q), 100);
		ck_assert_uint_eq(mrt__runq_room(&q), 156);
		ck_assert(mrt__runq_has_work(&q));
		pop_range(&q, round * 100, round * 100 + 100);
		expect_empty(&q);
	}
	check_all();
}
END_TEST

START_TEST(fits_256_and_try_push_refuses_the_257th)
{
	init_queues(_i, false);
	push_range(&q, 0, 256);
	ck_assert_uint_eq(mrt__runq_len(&q), 256);
	ck_assert_uint_eq(mrt__runq_room(&q), 0);
	ck_assert(!mrt__runq_try_push(&q, &tasks[256]));
	ck_assert_uint_eq(mrt__runq_len(&q), 256);
	pop_range(&q, 0, 1);
	ck_assert(mrt__runq_try_push(&q, &tasks[256]));
	pop_range(&q, 1, 257);
	expect_empty(&q);
	check_all();
}
END_TEST

static void overflow_keeps_first_half(void)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr = 0, i;

	push_range(&q, 0, 256);
	ck_assert_int_eq(mrt__runq_push(&q, &tasks[256], batch, &nr), MRT__RUNQ_PUSH_OVERFLOW);
	ck_assert_uint_eq(nr, 129);
	for (i = 0; i < nr; i++)
		ck_assert_ptr_eq(batch[i], &tasks[128 + i]);
	ck_assert_uint_eq(mrt__runq_len(&q), 128);
	ck_assert_uint_eq(mrt__runq_room(&q), 128);
	check_all();
	/* there is room again: 128 more fit, and the next one overflows anew */
	push_range(&q, 257, 385);
	nr = 0;
	ck_assert_int_eq(mrt__runq_push(&q, &tasks[385], batch, &nr), MRT__RUNQ_PUSH_OVERFLOW);
	ck_assert_uint_eq(nr, 129);
	for (i = 0; i < nr; i++)
		ck_assert_ptr_eq(batch[i], &tasks[257 + i]);
	pop_range(&q, 0, 128);
	expect_empty(&q);
	check_all();
}

START_TEST(overflow_keeps_the_first_128_and_hands_out_the_129_newest)
{
	init_queues(_i, false);
	overflow_keeps_first_half();
}
END_TEST

START_TEST(overflow_works_from_any_position_in_the_ring)
{
	unsigned shift;

	init_queues(_i, false);
	for (shift = 0; shift < 256; shift++) {
		struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
		unsigned nr = 0;

		push_range(&q, 0, 256);
		ck_assert_int_eq(mrt__runq_push(&q, &tasks[256], batch, &nr), MRT__RUNQ_PUSH_OVERFLOW);
		ck_assert_ptr_eq(batch[0], &tasks[128]);
		ck_assert_ptr_eq(batch[128], &tasks[256]);
		pop_range(&q, 0, 128);
		expect_empty(&q);
		push_range(&q, 0, 1);
		pop_range(&q, 0, 1);
	}
	check_all();
}
END_TEST

struct steal_case {
	unsigned len, moved;
};

static const struct steal_case steal_cases[] = {
	{ 1, 1 }, { 2, 1 }, { 3, 2 }, { 4, 2 }, { 5, 3 }, { 127, 64 }, { 128, 64 }, { 255, 128 }, { 256, 128 },
};

START_TEST(steal_takes_half_rounded_up)
{
	unsigned c;

	init_queues(_i, false);
	for (c = 0; c < MRT__ARRAY_NR(steal_cases); c++) {
		unsigned len = steal_cases[c].len, moved = steal_cases[c].moved, nr = 0;

		push_range(&q, 0, len);
		/* the oldest move; the last of them runs at once, the others are queued in order */
		ck_assert_ptr_eq(mrt__runq_steal(&q, &other, &nr), &tasks[moved - 1]);
		ck_assert_uint_eq(nr, moved);
		ck_assert_uint_eq(mrt__runq_len(&other), moved - 1);
		ck_assert_uint_eq(mrt__runq_len(&q), len - moved);
		ck_assert_uint_eq(mrt__runq_room(&q), MRT__RUNQ_SLOTS - (len - moved));
		check_all();
		pop_range(&other, 0, moved - 1);
		pop_range(&q, moved, len);
		expect_empty(&q);
		expect_empty(&other);
	}
}
END_TEST

START_TEST(steal_from_an_empty_queue_finds_nothing)
{
	unsigned nr = 4711;

	init_queues(_i, false);
	ck_assert_ptr_null(mrt__runq_steal(&q, &other, &nr));
	ck_assert_uint_eq(nr, 4711);
	expect_empty(&other);
	check_all();
}
END_TEST

START_TEST(steal_appends_behind_what_the_thief_has)
{
	unsigned nr = 0;

	init_queues(_i, false);
	push_range(&other, 1000, 1128);
	push_range(&q, 0, 256);
	ck_assert_ptr_eq(mrt__runq_steal(&q, &other, &nr), &tasks[127]);
	ck_assert_uint_eq(mrt__runq_len(&other), 128 + 127);
	pop_range(&other, 1000, 1128);
	pop_range(&other, 0, 127);
	pop_range(&q, 128, 256);
	check_all();
}
END_TEST

START_TEST(a_thief_with_more_than_128_queued_is_refused)
{
	unsigned nr = 0;

	init_queues(_i, false);
	push_range(&other, 1000, 1129);
	push_range(&q, 0, 4);
	ck_assert_ptr_null(mrt__runq_steal(&q, &other, &nr));
	ck_assert_uint_eq(nr, 0);
	ck_assert_uint_eq(mrt__runq_len(&q), 4);
	pop_range(&other, 1000, 1001);
	ck_assert_ptr_eq(mrt__runq_steal(&q, &other, &nr), &tasks[1]);
	ck_assert_uint_eq(nr, 2);
	check_all();
}
END_TEST

/*
 * The state that a thief leaves between its two exchanges, made by hand: the first nr tasks are claimed. A thread
 * that stands still there cannot be had on one thread otherwise.
 */
static void leave_claim(struct mrt__runq *victim, uint32_t nr)
{
	uint64_t head = atomic_load_explicit(&victim->head, memory_order_relaxed);
	uint32_t real = mrt__runq_head_real(head);

	ck_assert_uint_eq(mrt__runq_head_steal(head), real);
	atomic_store_explicit(&victim->head, mrt__runq_pack(real, real + nr), memory_order_relaxed);
}

START_TEST(a_second_thief_at_the_same_victim_is_refused)
{
	unsigned nr = 0;

	init_queues(_i, false);
	push_range(&q, 0, 8);
	leave_claim(&q, 4);
	ck_assert_ptr_null(mrt__runq_steal(&q, &other, &nr));
	ck_assert_uint_eq(nr, 0);
	expect_empty(&other);
	/* the owner goes on behind the claim, and the claimed slots still count as used */
	ck_assert_uint_eq(mrt__runq_len(&q), 4);
	ck_assert_uint_eq(mrt__runq_room(&q), 248);
	pop_range(&q, 4, 8);
	ck_assert_ptr_null(mrt__runq_pop(&q));
	ck_assert_uint_eq(mrt__runq_room(&q), 248);
}
END_TEST

START_TEST(a_full_queue_with_a_thief_at_work_hands_out_the_task_alone)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr = 0;

	init_queues(_i, false);
	push_range(&q, 0, 256);
	leave_claim(&q, 128);
	ck_assert_int_eq(mrt__runq_push(&q, &tasks[256], batch, &nr), MRT__RUNQ_PUSH_ONE_OUT);
	ck_assert_uint_eq(nr, 1);
	ck_assert_ptr_eq(batch[0], &tasks[256]);
	ck_assert_uint_eq(mrt__runq_len(&q), 128);
	pop_range(&q, 128, 256);
}
END_TEST

START_TEST(a_thief_with_a_claim_on_its_own_queue_counts_it_as_used)
{
	unsigned nr = 0;

	init_queues(_i, false);
	push_range(&other, 1000, 1129);
	leave_claim(&other, 65);
	push_range(&q, 0, 4);
	ck_assert_uint_eq(mrt__runq_len(&other), 64);
	ck_assert_ptr_null(mrt__runq_steal(&q, &other, &nr));
}
END_TEST

START_TEST(next_slot_swaps_and_takes)
{
	init_queues(_i, false);
	ck_assert_ptr_null(mrt__runq_next_swap(&q, &tasks[0]));
	ck_assert(mrt__runq_has_next(&q));
	ck_assert(!mrt__runq_has_work(&q));
	ck_assert_ptr_eq(mrt__runq_next_swap(&q, &tasks[1]), &tasks[0]);
	ck_assert_ptr_eq(mrt__runq_next_take(&q), &tasks[1]);
	ck_assert(!mrt__runq_has_next(&q));
	ck_assert_ptr_null(mrt__runq_next_take(&q));
	ck_assert_ptr_null(mrt__runq_next_swap(&q, &tasks[2]));
	ck_assert_ptr_eq(mrt__runq_next_take(&q), &tasks[2]);
}
END_TEST

START_TEST(solo_queue_behaves_the_same)
{
	init_queues(_i, true);
	push_range(&q, 0, 256);
	ck_assert(!mrt__runq_try_push(&q, &tasks[256]));
	pop_range(&q, 0, 256);
	push_range(&q, 0, 3);
	ck_assert_ptr_null(mrt__runq_next_swap(&q, &tasks[10]));
	ck_assert_ptr_eq(mrt__runq_next_swap(&q, &tasks[11]), &tasks[10]);
	ck_assert_ptr_eq(mrt__runq_next_take(&q), &tasks[11]);
	ck_assert_ptr_null(mrt__runq_next_take(&q));
	pop_range(&q, 0, 3);
	expect_empty(&q);
}
END_TEST

START_TEST(check_finds_a_claim_that_nobody_finishes)
{
	FILE *null = fopen("/dev/null", "w");

	ck_assert_ptr_nonnull(null);
	init_queues(_i, false);
	push_range(&q, 0, 8);
	ck_assert(mrt__runq_check(&q, null));
	leave_claim(&q, 4);
	ck_assert(!mrt__runq_check(&q, null));
	ck_assert(!mrt__runq_check(&q, NULL));
	(void)fclose(null); /* nothing of value in it */
}
END_TEST

/* Random steps of three queues against plain lists of what must be in them, checked after every step. */
struct list {
	struct mrt_task *items[MRT__RUNQ_SLOTS];
	unsigned nr;
};

static void list_remove_front(struct list *l, unsigned nr)
{
	unsigned i;

	for (i = nr; i < l->nr; i++)
		l->items[i - nr] = l->items[i];
	l->nr -= nr;
}

static void step_push(struct mrt__runq *rq, struct list *l, struct mrt_task *task)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr = 0, i;

	if (mrt__runq_push(rq, task, batch, &nr) == MRT__RUNQ_PUSHED) {
		ck_assert_uint_lt(l->nr, MRT__RUNQ_SLOTS);
		l->items[l->nr++] = task;
		return;
	}
	ck_assert_uint_eq(l->nr, MRT__RUNQ_SLOTS);
	ck_assert_uint_eq(nr, 129);
	for (i = 0; i < 128; i++)
		ck_assert_ptr_eq(batch[i], l->items[128 + i]);
	ck_assert_ptr_eq(batch[128], task);
	l->nr = 128;
}

static void step_pop(struct mrt__runq *rq, struct list *l)
{
	struct mrt_task *task = mrt__runq_pop(rq);

	ck_assert_ptr_eq(task, l->nr > 0 ? l->items[0] : NULL);
	if (l->nr > 0)
		list_remove_front(l, 1);
}

static void step_steal(struct mrt__runq *from, struct list *lf, struct mrt__runq *to, struct list *lt)
{
	unsigned nr = 0, want = lf->nr - lf->nr / 2, i;
	struct mrt_task *task = mrt__runq_steal(from, to, &nr);

	if (lt->nr > 128 || want == 0) {
		ck_assert_ptr_null(task);
		return;
	}
	ck_assert_uint_eq(nr, want);
	ck_assert_ptr_eq(task, lf->items[want - 1]);
	for (i = 0; i + 1 < want; i++)
		lt->items[lt->nr++] = lf->items[i];
	list_remove_front(lf, want);
}

START_TEST(random_steps_agree_with_a_plain_list)
{
	struct mrt__runq *queues[3] = { &q, &other, &third };
	static struct list lists[3];
	unsigned step, made = 0, i;
	uint64_t x = 88172645463325252u + (uint64_t)_i; /* xorshift64, the same every time */

	init_queues(_i, false);
	for (step = 0; step < 60000; step++) {
		unsigned a, b;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		a = (unsigned)(x >> 8) % 3;
		b = (a + 1 + (unsigned)(x >> 16) % 2) % 3;
		/* phases in which the queues fill and drain */
		if ((x >> 32) % 8 < (step / 2000 % 2 == 0 ? 6u : 2u))
			step_push(queues[a], &lists[a], &tasks[made++ % TASKS_NR]);
		else if ((x >> 40) % 8 < 6)
			step_pop(queues[a], &lists[a]);
		else
			step_steal(queues[a], &lists[a], queues[b], &lists[b]);
		for (i = 0; i < 3; i++) {
			ck_assert_uint_eq(mrt__runq_len(queues[i]), lists[i].nr);
			ck_assert_uint_eq(mrt__runq_room(queues[i]), MRT__RUNQ_SLOTS - lists[i].nr);
		}
		if (step % 64 == 0)
			check_all();
	}
}
END_TEST

static Suite *runq_suite(void)
{
	const int n = (int)MRT__ARRAY_NR(starts);
	Suite *s = suite_create("runq");
	TCase *tc = tcase_create("one thread");

	tcase_set_timeout(tc, LIMIT_S);
	tcase_add_loop_test(tc, a_new_queue_is_empty, 0, n);
	tcase_add_loop_test(tc, tasks_come_out_in_the_order_in_which_they_went_in, 0, n);
	tcase_add_loop_test(tc, fits_256_and_try_push_refuses_the_257th, 0, n);
	tcase_add_loop_test(tc, overflow_keeps_the_first_128_and_hands_out_the_129_newest, 0, n);
	tcase_add_loop_test(tc, overflow_works_from_any_position_in_the_ring, 0, n);
	tcase_add_loop_test(tc, steal_takes_half_rounded_up, 0, n);
	tcase_add_loop_test(tc, steal_from_an_empty_queue_finds_nothing, 0, n);
	tcase_add_loop_test(tc, steal_appends_behind_what_the_thief_has, 0, n);
	tcase_add_loop_test(tc, a_thief_with_more_than_128_queued_is_refused, 0, n);
	tcase_add_loop_test(tc, a_second_thief_at_the_same_victim_is_refused, 0, n);
	tcase_add_loop_test(tc, a_full_queue_with_a_thief_at_work_hands_out_the_task_alone, 0, n);
	tcase_add_loop_test(tc, a_thief_with_a_claim_on_its_own_queue_counts_it_as_used, 0, n);
	tcase_add_loop_test(tc, next_slot_swaps_and_takes, 0, n);
	tcase_add_loop_test(tc, solo_queue_behaves_the_same, 0, n);
	tcase_add_loop_test(tc, check_finds_a_claim_that_nobody_finishes, 0, n);
	tcase_add_loop_test(tc, random_steps_agree_with_a_plain_list, 0, n);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_main(runq_suite());
}
