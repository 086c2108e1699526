/* SPDX-License-Identifier: MIT */
/*
 * The extent allocator against an array that says of each unit who has it. The whole structure is checked after every
 * step. Not proven here: that alloc takes constant time (it has no loop but the bounded look, which is tested).
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/extent.h"
#include "base/rand.h"
#include "suite.h"

#define LIMIT_S 20
#define UNITS_NR 2048u
#define STEPS_NR 8000u
#define NOT_ADDED UINT32_MAX

static struct mrt__extent_tag tags[UNITS_NR];
static struct mrt__extent e;

static void setup(void)
{
	memset(tags, 0, sizeof(tags));
	mrt__extent_init(&e, tags, UNITS_NR);
}

static void check(void)
{
	ck_assert(mrt__extent_check(&e, stderr));
}

static uint32_t take(unsigned pool, uint32_t nr, uint32_t align)
{
	uint32_t first = 0;

	ck_assert_msg(mrt__extent_alloc(&e, pool, nr, align, &first), "no room for %u units aligned to %u", nr, align);
	ck_assert_uint_eq(first % align, 0);
	ck_assert_uint_eq(mrt__extent_size(&e, first), nr);
	check();
	return first;
}

static void give(uint32_t first)
{
	mrt__extent_free(&e, first);
	check();
}

static void refuse(unsigned pool, uint32_t nr, uint32_t align)
{
	uint32_t first = 12345;

	ck_assert(!mrt__extent_alloc(&e, pool, nr, align, &first));
	ck_assert_uint_eq(first, 12345);
	check();
}

START_TEST(nothing_can_be_taken_before_units_were_added)
{
	refuse(0, 1, 1);
	mrt__extent_add(&e, 0, 100, 1, false);
	check();
	refuse(1, 1, 1);
	ck_assert_uint_eq(take(0, 1, 1), 100);
	refuse(0, 1, 1);
}
END_TEST

START_TEST(all_units_can_be_taken_one_by_one_and_become_one_again_in_any_order)
{
	static uint32_t firsts[UNITS_NR];
	struct mrt__rand r;
	uint32_t i;

	mrt__rand_init(&r, (uint64_t)_i + 1);
	mrt__extent_add(&e, 0, 0, UNITS_NR, true);
	for (i = 0; i < UNITS_NR; i++)
		ck_assert(mrt__extent_alloc(&e, 0, 1, 1, &firsts[i]));
	refuse(0, 1, 1);
	for (i = UNITS_NR; i > 0; i--) {
		uint32_t pick = mrt__rand_below(&r, i);

		mrt__extent_free(&e, firsts[pick]);
		firsts[pick] = firsts[i - 1];
		if (i % 64 == 0)
			check();
	}
	ck_assert_uint_eq(take(0, UNITS_NR, 1), 0);
}
END_TEST

START_TEST(a_freed_extent_becomes_one_with_both_neighbours)
{
	uint32_t a, b, c;

	mrt__extent_add(&e, 0, 0, 90, true);
	a = take(0, 30, 1);
	b = take(0, 30, 1);
	c = take(0, 30, 1);
	give(a);
	give(c);
	refuse(0, 31, 1);
	give(b);
	ck_assert_uint_eq(take(0, 90, 1), 0);
}
END_TEST

START_TEST(pools_do_not_mix)
{
	uint32_t a, b;

	mrt__extent_add(&e, 0, 0, 64, false);
	mrt__extent_add(&e, 1, 64, 64, false);
	check();
	refuse(0, 65, 1);
	refuse(1, 65, 1);
	a = take(0, 64, 1);
	b = take(1, 64, 1);
	ck_assert_uint_eq(a, 0);
	ck_assert_uint_eq(b, 64);
	give(a);
	refuse(1, 1, 1);
	give(b);
	refuse(0, 65, 1);
	ck_assert_uint_eq(take(1, 64, 1), 64);
}
END_TEST

START_TEST(nothing_reaches_over_a_border_and_the_border_stays_where_it_is)
{
	uint32_t a, b;

	mrt__extent_add(&e, 0, 0, 512, true);
	mrt__extent_add(&e, 0, 512, 512, true);
	mrt__extent_add(&e, 0, 1024, 512, false);
	check();
	refuse(0, 1025, 1);
	/* behind the second border there are 1024 */
	ck_assert_uint_eq(take(0, 1024, 1), 512);
	give(512);
	/* cut the extent at the border, then give it back in either order */
	a = take(0, 512, 512);
	ck_assert_uint_eq(a % 512, 0);
	b = take(0, 512, 512);
	give(a);
	give(b);
	refuse(0, 1025, 1);
	a = take(0, 1024, 1);
	b = take(0, 512, 1);
	ck_assert_uint_eq(a, 512);
	ck_assert_uint_eq(b, 0);
	give(b);
	give(a);
	refuse(0, 1025, 1);
}
END_TEST

START_TEST(units_that_are_added_behind_others_become_one_with_them)
{
	mrt__extent_add(&e, 0, 0, 100, true);
	mrt__extent_add(&e, 0, 100, 100, false);
	check();
	ck_assert_uint_eq(take(0, 200, 1), 0);
}
END_TEST

START_TEST(each_alignment_is_kept_and_what_it_leaves_over_can_be_taken)
{
	uint32_t align = 1u << _i, odd, first, nr = 0;

	mrt__extent_add(&e, 0, 0, UNITS_NR, true);
	odd = take(0, 1, 1);
	ck_assert_uint_eq(odd, 0);
	while (mrt__extent_alloc(&e, 0, 1, align, &first)) {
		ck_assert_uint_eq(first % align, 0);
		nr++;
	}
	check();
	/* unit 0 is taken */
	ck_assert_uint_eq(nr, UNITS_NR / align - 1);
	if (align > 1) {
		first = take(0, align - 1, 1);
		ck_assert_uint_eq(first % align, 1);
	}
}
END_TEST

START_TEST(an_extent_that_fits_exactly_is_found_although_its_class_does_not_promise_it)
{
	/* 500 is no class of its own, and 512 aligned to 512 needs 1023 to be sure */
	mrt__extent_add(&e, 0, 512, 500, true);
	ck_assert_uint_eq(take(0, 500, 1), 512);
	mrt__extent_add(&e, 1, 1024, 512, true);
	ck_assert_uint_eq(take(1, 512, 512), 1024);
}
END_TEST

START_TEST(the_look_is_bounded)
{
	uint32_t i, nr = UNITS_NR / 3;

	/* extents of 2 units at odd places, none of which can hold 2 units aligned to 2; one that can stands last */
	mrt__extent_add(&e, 0, 0, 2, true);
	for (i = 1; i < nr; i++)
		mrt__extent_add(&e, 0, i * 3 + (i * 3 % 2 ? 0 : 1), 2, true);
	check();
	ck_assert_uint_gt(nr, MRT__EXTENT_LOOKS_MAX);
	refuse(0, 2, 2);
}
END_TEST

START_TEST(sizes_up_to_the_largest_are_classed)
{
	static struct mrt__extent big;
	const size_t bytes = (size_t)MRT__EXTENT_UNITS_MAX * sizeof(struct mrt__extent_tag);
	/* two gigabytes of address space, of which a few pages are touched */
	struct mrt__extent_tag *many = calloc(1, bytes);
	uint32_t first;

	ck_assert_ptr_nonnull(many);
	mrt__extent_init(&big, many, MRT__EXTENT_UNITS_MAX);
	mrt__extent_add(&big, 0, 0, MRT__EXTENT_UNITS_MAX, true);
	ck_assert(mrt__extent_alloc(&big, 0, MRT__EXTENT_UNITS_MAX, 1, &first));
	ck_assert(!mrt__extent_alloc(&big, 0, 1, 1, &first));
	mrt__extent_free(&big, first);
	ck_assert(mrt__extent_alloc(&big, 0, MRT__EXTENT_UNITS_MAX / 2, MRT__EXTENT_UNITS_MAX / 2, &first));
	ck_assert(mrt__extent_alloc(&big, 0, MRT__EXTENT_UNITS_MAX / 2, MRT__EXTENT_UNITS_MAX / 2, &first));
	ck_assert(!mrt__extent_alloc(&big, 0, 1, 1, &first));
	free(many);
}
END_TEST

/* ---- random steps ---- */

static uint32_t holder[UNITS_NR];       /* of a unit: first unit of its block + 1; 0: free */
static uint8_t pool_at[UNITS_NR], border_at[UNITS_NR];

/* The longest free run of a pool that no border cuts, from an aligned unit on. */
static uint32_t longest(unsigned pool, uint32_t align)
{
	uint32_t u, start = UINT32_MAX, best = 0;

	for (u = 0; u <= UNITS_NR; u++) {
		bool in = u < UNITS_NR && holder[u] == 0 && pool_at[u] == pool;

		if (start != UINT32_MAX && (!in || border_at[u])) {
			uint32_t from = (start + align - 1) & ~(align - 1);

			if (from < u && u - from > best)
				best = u - from;
			start = UINT32_MAX;
		}
		if (in && start == UINT32_MAX)
			start = u;
	}
	return best;
}

static void random_alloc(struct mrt__rand *r, uint32_t *blocks, uint32_t *blocks_nr)
{
	uint32_t nr = 1 + mrt__rand_below(r, 1u << mrt__rand_below(r, 10)), align = 1u << mrt__rand_below(r, 8);
	unsigned pool = mrt__rand_below(r, 2);
	uint32_t first, u, room;

	if (mrt__extent_alloc(&e, pool, nr, align, &first)) {
		ck_assert_uint_eq(first % align, 0);
		ck_assert_uint_eq(mrt__extent_size(&e, first), nr);
		for (u = first; u < first + nr; u++) {
			ck_assert_uint_eq(holder[u], 0);
			ck_assert_uint_eq(pool_at[u], pool);
			ck_assert(u == first || !border_at[u]);
			holder[u] = first + 1;
		}
		blocks[(*blocks_nr)++] = first;
		return;
	}
	/* refused: then nothing was there that is sure to do; the best may be 1/16 too small for its class */
	room = longest(pool, 1);
	ck_assert_msg(room < (nr + align - 1) + (nr + align - 1) / 16 + 1, "%u aligned to %u refused with %u free", nr, align,
		      room);
}

START_TEST(random_steps_agree_with_an_array)
{
	static uint32_t blocks[UNITS_NR];
	uint32_t blocks_nr = 0, step, u;
	struct mrt__rand r;

	mrt__rand_init(&r, 1000 + (uint64_t)_i);
	memset(pool_at, 0xff, sizeof(pool_at));
	/* four ranges, one of which is never added; two of them could be one but for the border */
	mrt__extent_add(&e, 0, 0, 700, true);
	mrt__extent_add(&e, 0, 700, 300, _i % 2);
	mrt__extent_add(&e, 1, 1000, 500, false);
	mrt__extent_add(&e, 1, 1600, UNITS_NR - 1600, true);
	for (u = 0; u < UNITS_NR; u++)
		if (u < 1500 || u >= 1600)
			pool_at[u] = u >= 1000;
	border_at[0] = border_at[1600] = 1;
	border_at[700] = (uint8_t)(_i % 2);
	for (step = 0; step < STEPS_NR; step++) {
		/* phases that fill up and phases that empty */
		bool fill = mrt__rand_below(&r, 100) < (step / 500 % 2 ? 65u : 35u);

		if (fill || blocks_nr == 0) {
			random_alloc(&r, blocks, &blocks_nr);
		} else {
			uint32_t pick = mrt__rand_below(&r, blocks_nr), first = blocks[pick];

			for (u = first; u < UNITS_NR && holder[u] == first + 1; u++)
				holder[u] = 0;
			ck_assert_uint_eq(u - first, mrt__extent_size(&e, first));
			mrt__extent_free(&e, first);
			blocks[pick] = blocks[--blocks_nr];
		}
		check();
	}
	while (blocks_nr > 0)
		mrt__extent_free(&e, blocks[--blocks_nr]);
	check();
	ck_assert_uint_eq(e.pools[0].free_nr, 1000);
	ck_assert_uint_eq(e.pools[1].free_nr, 500 + UNITS_NR - 1600);
}
END_TEST

START_TEST(the_check_sees_what_is_broken)
{
	FILE *nowhere = fopen("/dev/null", "w");

	ck_assert_ptr_nonnull(nowhere);
	mrt__extent_add(&e, 0, 0, 100, true);
	(void)take(0, 10, 1);
	switch (_i) {
	case 0: tags[10].head--; break;
	case 1: tags[99].tail = 0; break;
	case 2: tags[9].tail = 1; break;
	case 3: e.pools[0].first_map = 0; break;
	case 4: e.pools[0].free_nr++; break;
	case 5: tags[10].link[1] = 1; break;
	case 6: tags[10].link[0] = 11; break;
	}
	ck_assert(!mrt__extent_check(&e, nowhere));
	fclose(nowhere);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("extent");
	TCase *tc = tcase_create("extent");

	tcase_set_timeout(tc, LIMIT_S);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, nothing_can_be_taken_before_units_were_added);
	tcase_add_loop_test(tc, all_units_can_be_taken_one_by_one_and_become_one_again_in_any_order, 0, 3);
	tcase_add_test(tc, a_freed_extent_becomes_one_with_both_neighbours);
	tcase_add_test(tc, pools_do_not_mix);
	tcase_add_test(tc, nothing_reaches_over_a_border_and_the_border_stays_where_it_is);
	tcase_add_test(tc, units_that_are_added_behind_others_become_one_with_them);
	tcase_add_loop_test(tc, each_alignment_is_kept_and_what_it_leaves_over_can_be_taken, 0, 11);
	tcase_add_test(tc, an_extent_that_fits_exactly_is_found_although_its_class_does_not_promise_it);
	tcase_add_test(tc, the_look_is_bounded);
	tcase_add_test(tc, sizes_up_to_the_largest_are_classed);
	tcase_add_loop_test(tc, random_steps_agree_with_an_array, 0, 4);
	tcase_add_loop_test(tc, the_check_sees_what_is_broken, 0, 7);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
