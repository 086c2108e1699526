/* SPDX-License-Identifier: MIT */
/*
 * Task memory by itself: walks whose callback frees what it is given, and cells of another heap, which go back in batches.
 * What the scheduler does with it is for the simulation and the stress tests.
 */
#include <check.h>
#include <stdlib.h>

#include "sched/heap.h"
#include "suite.h"

#define LIMIT_S 20
#define CELL_BYTES 4000u
#define LARGE_BYTES 40000u
#define CELLS_NR 200u           /* of a dozen slabs */

static struct mrt__heap own, other;

static void setup(void)
{
	mrt__heap_init(&own);
	mrt__heap_init(&other);
}

static void teardown(void)
{
	mrt__heap_fini(&own);
	mrt__heap_fini(&other);
}

static struct mrt__heap_cell *take(struct mrt__heap *heap, size_t bytes)
{
	struct mrt__heap_cell *cell = mrt__heap_alloc(heap, bytes);

	ck_assert_ptr_nonnull(cell);
	cell->word = 1;
	return cell;
}

static __attribute__((noinline)) void give(struct mrt__heap_cell *cell, struct mrt__heap *self)
{
	cell->word = 0;
	mrt__heap_free(cell, self);
}

static bool is_sent_back(struct mrt__heap *heap, const struct mrt__heap_cell *cell)
{
	const struct mrt__heap_cell *c;

	for (c = atomic_load(&heap->remote); c; c = c->next)
		if (c == cell)
			return true;
	return false;
}

/* ---- walks ---- */

struct visit {
	unsigned seen, every;
};

static void free_some(void *p, void *ctx)
{
	struct mrt__heap_cell *cell = p;
	struct visit *v = ctx;

	if (cell->word && v->seen++ % v->every == 0)
		give(cell, &own);
}

/* As abort_all() may: a slab that is left, and a mapping that goes, end no walk. */
START_TEST(a_walk_sees_all_cells_though_it_frees_them)
{
	struct visit some = { .every = 3 }, rest = { .every = 1 };
	unsigned i;

	for (i = 0; i < CELLS_NR; i++)
		(void)take(&own, i % 4 == 3 ? LARGE_BYTES : CELL_BYTES);
	mrt__heap_walk(&own, free_some, &some);
	ck_assert_uint_eq(some.seen, CELLS_NR);
	mrt__heap_walk(&own, free_some, &rest);
	ck_assert_uint_eq(rest.seen, CELLS_NR - (CELLS_NR + 2) / 3);
	ck_assert_uint_eq(mrt__heap_live(&own), 0);
	rest.seen = 0;
	mrt__heap_walk(&own, free_some, &rest);
	ck_assert_uint_eq(rest.seen, 0);
}
END_TEST

/* ---- cells of another heap ---- */

START_TEST(cells_of_another_heap_go_back_when_they_are_many)
{
	struct mrt__heap_cell *cells[MRT__HEAP_AWAY_MAX];
	unsigned i;

	for (i = 0; i < MRT__HEAP_AWAY_MAX; i++)
		cells[i] = take(&other, CELL_BYTES);
	for (i = 0; i < MRT__HEAP_AWAY_MAX; i++) {
		ck_assert_ptr_null(atomic_load(&other.remote));
		give(cells[i], &own);
	}
	for (i = 0; i < MRT__HEAP_AWAY_MAX; i++)
		ck_assert(is_sent_back(&other, cells[i]));
	ck_assert_uint_eq(mrt__heap_live(&other), 0);
	ck_assert_uint_eq(own.away_nr, 0);
}
END_TEST

START_TEST(cells_of_another_heap_go_back_when_they_are_flushed)
{
	struct mrt__heap_cell *first = take(&other, CELL_BYTES), *second = take(&other, CELL_BYTES), *again;

	give(first, &own);
	give(second, &own);
	ck_assert_ptr_null(atomic_load(&other.remote));
	mrt__heap_flush(&own);
	ck_assert(is_sent_back(&other, first) && is_sent_back(&other, second));
	ck_assert_uint_eq(mrt__heap_live(&other), 0);
	/* a second flush sends nothing twice, and what comes later is a batch of its own */
	mrt__heap_flush(&own);
	again = take(&other, LARGE_BYTES); /* takes what was sent back */
	ck_assert_ptr_null(atomic_load(&other.remote));
	give(take(&other, CELL_BYTES), &own);
	mrt__heap_flush(&own);
	ck_assert_uint_eq(mrt__heap_live(&other), 1);
	give(again, &other);
	ck_assert_uint_eq(mrt__heap_live(&other), 0);
}
END_TEST

/* A batch is of one heap: those of the one before go first. */
START_TEST(cells_of_a_third_heap_begin_another_batch)
{
	static struct mrt__heap third;
	struct mrt__heap_cell *a, *b;

	mrt__heap_init(&third);
	a = take(&other, CELL_BYTES);
	b = take(&third, CELL_BYTES);
	give(a, &own);
	give(b, &own);
	ck_assert(is_sent_back(&other, a));
	ck_assert_ptr_null(atomic_load(&third.remote));
	mrt__heap_flush(&own);
	ck_assert(is_sent_back(&third, b));
	ck_assert_uint_eq(mrt__heap_live(&other) + mrt__heap_live(&third), 0);
	mrt__heap_fini(&third);
}
END_TEST

/* Large ones wait for nobody, nor does a thread that has no heap. */
START_TEST(some_cells_go_back_at_once)
{
	struct mrt__heap_cell *large = take(&other, LARGE_BYTES), *small = take(&other, CELL_BYTES);

	give(large, &own);
	ck_assert(is_sent_back(&other, large));
	give(small, NULL);
	ck_assert(is_sent_back(&other, small));
	ck_assert_uint_eq(mrt__heap_live(&other), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap");
	TCase *tc = tcase_create("core");

	tcase_set_timeout(tc, LIMIT_S);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_walk_sees_all_cells_though_it_frees_them);
	tcase_add_test(tc, cells_of_another_heap_go_back_when_they_are_many);
	tcase_add_test(tc, cells_of_another_heap_go_back_when_they_are_flushed);
	tcase_add_test(tc, cells_of_a_third_heap_begin_another_batch);
	tcase_add_test(tc, some_cells_go_back_at_once);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
