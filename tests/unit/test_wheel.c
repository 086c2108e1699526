/* SPDX-License-Identifier: MIT */
/*
 * The timing wheel alone, on simulated time. Proven here: where entries go (a table of the borders of every level);
 * by a model (a plain array) under random inserts, removes and steps of time from 1 ns to weeks, that each entry comes
 * out exactly once, never early, in order of its deadline, that next() is never late, and that the structure is sound
 * after each step; the bounds on one call; three years of a ticker beside very long sleeps. Not proven: time per
 * operation (bench/), and anything about threads, since the caller locks.
 *
 * MRT_SEED picks the seed of the random tests (it is printed), MRT_STEPS their length.
 */
#include "timer/wheel.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/rand.h"
#include "suite.h"

#define NS UINT64_C(1)
#define US MRT__NS_PER_US
#define MS MRT__NS_PER_MS
#define SEC MRT__NS_PER_SEC
#define DAY (86400 * SEC)
#define START UINT64_C(123456789012345) /* a machine that is up for 34 hours; no multiple of anything */
#define BATCH 32u

static struct mrt__wheel wheel;         /* in static memory: each test forks, so each finds its own */

/* ck_assert() for loops: a passed ck_assert() costs a microsecond, since Check writes down where it was. */
#define must(c) do {                                            \
	if (mrt__unlikely(!(c)))                                \
		ck_abort_msg("not so: %s", #c);                 \
} while (0)

static void assert_sound(void)
{
	if (!mrt__wheel_check(&wheel, stderr))
		ck_abort_msg("the wheel is broken, see above");
}

static uint64_t seed_of_run(void)
{
	const char *env = getenv("MRT_SEED");
	uint64_t seed = env ? strtoull(env, NULL, 0) : mrt__clock_now();

	printf("MRT_SEED=%" PRIu64 "\n", seed);
	(void)fflush(stdout);   /* seen even if the test dies; nothing to do if it fails */
	return seed;
}

static unsigned steps_of_run(unsigned by_default)
{
	const char *env = getenv("MRT_STEPS");

	return env ? (unsigned)strtoul(env, NULL, 0) : by_default;
}

static bool is_linked(const struct mrt__wheel_entry *e)
{
	return e->pprev != NULL;
}

static uint64_t random_u64(struct mrt__rand *r)
{
	uint64_t high = mrt__rand_next(r);

	return high << 32 | mrt__rand_next(r);
}

/* 1 .. 2^bits_max, each power of two equally likely. */
static uint64_t random_log(struct mrt__rand *r, unsigned bits_max)
{
	unsigned bits = mrt__rand_below(r, bits_max) + 1;

	return (random_u64(r) & ((UINT64_C(1) << bits) - 1)) + 1;
}

/* Expire all that is due by now, each not early and after the one before. Returns how many. */
static unsigned drain(uint64_t now)
{
	unsigned total = 0, calls = 0;

	do {
		struct mrt__wheel_entry *list;
		uint64_t last = 0;
		unsigned n = mrt__wheel_advance(&wheel, now, BATCH, &list), listed = 0;

		for (; list; list = list->next, listed++) {
			must(list->deadline_ns <= now);
			must(list->deadline_ns >= last);
			must(!is_linked(list));
			last = list->deadline_ns;
		}
		must(n == listed);
		total += n;
		calls++;
		must(calls < 1000000);
	} while (mrt__wheel_is_due(&wheel, now));
	return total;
}

/* ---- where entries go ---- */

static const struct {
	uint64_t elapsed, deadline;     /* since the start */
	unsigned level, slot;
} places[] = {
	/* below the tick: levels 0 to 3, by the ns within the ms */
	{ 0, 0, 0, 0 },
	{ 0, 3, 0, 3 },
	{ 0, 4, 1, 1 },
	{ 0, 255, 1, 63 },
	{ 0, 256, 2, 1 },
	{ 0, 16383, 2, 63 },
	{ 0, 16384, 3, 1 },
	{ 0, MS - 1, 3, 61 },
	/* a sleep of 10 us across the border of a ms */
	{ MS - 5 * US, MS + 5 * US, 4, 1 },
	/* the six levels of the wheel: first and last slot of each */
	{ 0, MS, 4, 1 },
	{ 0, 64 * MS - 1, 4, 63 },
	{ 0, 64 * MS, 5, 1 },
	{ 0, 4096 * MS - 1, 5, 63 },
	{ 0, 4096 * MS, 6, 1 },
	{ 0, 262144 * MS - 1, 6, 63 },
	{ 0, 262144 * MS, 7, 1 },
	{ 0, (MS << 24) - 1, 7, 63 },
	{ 0, MS << 24, 8, 1 },
	{ 0, (MS << 30) - 1, 8, 63 },
	{ 0, MS << 30, 9, 1 },
	{ 0, (MS << 36) - 1, 9, 63 },
	/* further than a turn of the top: at the slot of its bits, the current one included */
	{ 0, MS << 36, 9, 0 },
	{ 0, (MS << 36) + (MS << 30), 9, 1 },
	{ 0, (MS << 40) + 5 * (MS << 30), 9, 5 },
	{ 3 * (MS << 30), (MS << 36) + 3 * (MS << 30), 9, 3 },
	{ 0, UINT64_MAX, 9, 63 },
	/* the level is by the border between now and then, not by the distance */
	{ 63 * MS, 64 * MS, 5, 1 },
	{ 64 * MS, 65 * MS, 4, 1 },
	{ 4095 * MS, 4096 * MS, 6, 1 },
	{ (MS << 36) - 1, MS << 36, 9, 0 },
	/* the past is the present */
	{ 70 * MS + 5, 70 * MS + 4, 0, 5 },
	{ 70 * MS + 5, 70 * MS + 5, 0, 5 },
};

START_TEST(an_entry_goes_to_the_level_of_the_highest_bit_that_differs)
{
	struct mrt__wheel_entry e = { 0 }, *list;
	uint64_t deadline = places[_i].deadline == UINT64_MAX ? UINT64_MAX : START + places[_i].deadline;

	mrt__wheel_init(&wheel, START);
	ck_assert_uint_eq(mrt__wheel_advance(&wheel, START + places[_i].elapsed, BATCH, &list), 0);
	ck_assert_ptr_null(list);
	mrt__wheel_insert(&wheel, &e, deadline);
	assert_sound();
	ck_assert_uint_eq(e.where, MRT__WHEEL_RECENT);
	(void)mrt__wheel_next(&wheel);
	assert_sound();
	ck_assert_uint_eq(e.where / MRT__WHEEL_SLOTS_NR, places[_i].level);
	ck_assert_uint_eq(e.where % MRT__WHEEL_SLOTS_NR, places[_i].slot);
	ck_assert_uint_eq(e.deadline_ns, deadline);
	ck_assert_uint_le(mrt__wheel_next(&wheel), deadline);
	if (places[_i].deadline - places[_i].elapsed < MS << 36)
		ck_assert_uint_eq(mrt__wheel_next(&wheel), deadline);

	/* not a ns before, and then at once, from whatever level */
	if (places[_i].deadline > places[_i].elapsed) {
		ck_assert_uint_eq(drain(deadline - 1), 0);
		assert_sound();
	}
	deadline = mrt__max(deadline, START + places[_i].elapsed);
	ck_assert_uint_eq(mrt__wheel_advance(&wheel, deadline, BATCH, &list), 1);
	ck_assert_ptr_eq(list, &e);
	ck_assert_ptr_null(e.next);
	ck_assert_uint_eq(mrt__wheel_next(&wheel), UINT64_MAX);
	assert_sound();
}
END_TEST

/* ---- small cases ---- */

START_TEST(an_empty_wheel_waits_for_ever)
{
	struct mrt__wheel_entry *list = (void *)&wheel;

	mrt__wheel_init(&wheel, START);
	assert_sound();
	ck_assert_uint_eq(mrt__wheel_next(&wheel), UINT64_MAX);
	ck_assert_uint_eq(mrt__wheel_nr(&wheel), 0);
	ck_assert_uint_eq(mrt__wheel_advance(&wheel, UINT64_MAX, BATCH, &list), 0);
	ck_assert_ptr_null(list);
	assert_sound();
}
END_TEST

START_TEST(the_callers_fields_are_left_alone)
{
	struct mrt__wheel_entry e = { .owner = 77 }, *list;

	atomic_init(&e.state, 88);
	mrt__wheel_init(&wheel, START);
	mrt__wheel_insert(&wheel, &e, START + 3 * SEC);
	mrt__wheel_remove(&wheel, &e);
	mrt__wheel_insert(&wheel, &e, START + 3 * SEC);
	ck_assert_uint_eq(mrt__wheel_advance(&wheel, START + DAY, BATCH, &list), 1);
	ck_assert_uint_eq(e.owner, 77);
	ck_assert_uint_eq(atomic_load_explicit(&e.state, memory_order_relaxed), 88);
}
END_TEST

START_TEST(past_deadlines_are_due_at_once)
{
	static const uint64_t deadlines[] = { 0, 1, START - 1, START, START + 5 * SEC - 1, START + 5 * SEC };
	struct mrt__wheel_entry e[MRT__ARRAY_NR(deadlines)] = { 0 };

	mrt__wheel_init(&wheel, START);
	ck_assert_uint_eq(drain(START + 5 * SEC), 0);
	for (unsigned i = 0; i < MRT__ARRAY_NR(deadlines); i++) {
		mrt__wheel_insert(&wheel, &e[i], deadlines[i]);
		assert_sound();
		ck_assert_uint_le(mrt__wheel_next(&wheel), START + 5 * SEC);
	}
	ck_assert_uint_eq(drain(START + 5 * SEC), MRT__ARRAY_NR(deadlines));
	assert_sound();
}
END_TEST

START_TEST(for_ever_is_not_before_the_end_of_time)
{
	struct mrt__wheel_entry never = { 0 }, late = { 0 }, soon = { 0 };

	mrt__wheel_init(&wheel, START);
	mrt__wheel_insert(&wheel, &never, UINT64_MAX);
	mrt__wheel_insert(&wheel, &late, UINT64_MAX - DAY);
	mrt__wheel_insert(&wheel, &soon, START + DAY);
	ck_assert_uint_eq(drain(START + DAY), 1);
	ck_assert_uint_eq(drain(START + 1000 * DAY), 0);
	ck_assert_uint_eq(drain(UINT64_MAX - DAY - 1), 0);
	assert_sound();
	ck_assert_uint_eq(drain(UINT64_MAX - DAY), 1);
	ck_assert(is_linked(&never));
	mrt__wheel_insert(&wheel, &late, UINT64_MAX - 1);
	ck_assert_uint_eq(mrt__wheel_next(&wheel), UINT64_MAX - 1);
	assert_sound();
	ck_assert_uint_eq(drain(UINT64_MAX - 1), 1);
	ck_assert_uint_eq(drain(UINT64_MAX), 1);
	assert_sound();
}
END_TEST

START_TEST(a_removed_entry_never_fires_and_can_go_back_into_its_slot)
{
	struct mrt__wheel_entry e[3] = { 0 }, *list;

	mrt__wheel_init(&wheel, START);
	for (unsigned round = 0; round < 6; round++) {
		/* 64 ms slot, three entries; out come the first, the middle or the last, and in again */
		uint64_t base = START + (round + 1) * SEC;
		unsigned out = round % 3;

		for (unsigned i = 0; i < 3; i++)
			mrt__wheel_insert(&wheel, &e[i], base + i);
		mrt__wheel_remove(&wheel, &e[out]);
		assert_sound();
		ck_assert(!is_linked(&e[out]));
		ck_assert_uint_eq(mrt__wheel_nr(&wheel), 2);
		if (round >= 3)
			mrt__wheel_insert(&wheel, &e[out], base + 7);
		assert_sound();
		ck_assert_uint_eq(mrt__wheel_advance(&wheel, base + 10, BATCH, &list), round >= 3 ? 3 : 2);
		for (; list; list = list->next)
			ck_assert(round >= 3 || list != &e[out]);
		assert_sound();
	}
}
END_TEST

START_TEST(removing_the_last_entry_leaves_nothing_to_wait_for)
{
	struct mrt__wheel_entry e = { 0 };

	for (unsigned bits = 0; bits < 64; bits++) {
		mrt__wheel_init(&wheel, START);
		mrt__wheel_insert(&wheel, &e, mrt__clock_add(START, UINT64_C(1) << bits));
		mrt__wheel_remove(&wheel, &e);
		assert_sound();
		ck_assert_uint_eq(mrt__wheel_next(&wheel), UINT64_MAX);
		ck_assert_uint_eq(drain(UINT64_MAX), 0);
	}
}
END_TEST

START_TEST(a_clock_that_steps_back_neither_hangs_nor_fires_early)
{
	struct mrt__wheel_entry e[3] = { 0 };
	uint64_t back = START + SEC;

	mrt__wheel_init(&wheel, START);
	mrt__wheel_insert(&wheel, &e[0], START + 10 * SEC);
	ck_assert_uint_eq(drain(START + 5 * SEC), 0);
	ck_assert_uint_eq(drain(back), 0);
	assert_sound();

	/* slept in the time that the wheel has behind it: fires by the clock that there is */
	mrt__wheel_insert(&wheel, &e[1], back + 20 * MS);
	mrt__wheel_insert(&wheel, &e[2], back + 10 * MS);
	assert_sound();
	ck_assert_uint_eq(mrt__wheel_next(&wheel), back + 10 * MS);
	ck_assert_uint_eq(drain(back + 10 * MS - 1), 0);
	ck_assert_uint_eq(drain(back + 10 * MS), 1);
	ck_assert(!is_linked(&e[2]));
	ck_assert_uint_eq(mrt__wheel_next(&wheel), back + 20 * MS);
	assert_sound();
	ck_assert_uint_eq(drain(0), 0);
	ck_assert_uint_eq(drain(back + 20 * MS), 1);
	ck_assert_uint_eq(drain(START + 10 * SEC - 1), 0);
	ck_assert_uint_eq(drain(START + 10 * SEC), 1);
	assert_sound();
}
END_TEST

/* ---- bounds ---- */

#define CROWD 60000u

static struct mrt__wheel_entry crowd[CROWD];
static uint16_t where_before[CROWD];

/* How many of the entries still linked changed their place since the last call. */
static unsigned count_moves(unsigned n)
{
	unsigned moves = 0;

	for (unsigned i = 0; i < n; i++) {
		moves += is_linked(&crowd[i]) && crowd[i].where != where_before[i];
		where_before[i] = crowd[i].where;
	}
	return moves;
}

/* Expire n entries of the crowd at now, checking each call's bounds. Returns the calls. */
static unsigned drain_crowd(unsigned n, uint64_t now, unsigned max)
{
	unsigned calls = 0;
	uint64_t last = 0;

	(void)count_moves(n);
	while (n > 0 && mrt__wheel_nr(&wheel) > 0) {
		struct mrt__wheel_entry *list;
		unsigned got;

		must(mrt__wheel_is_due(&wheel, now)); /* it says that there is more */
		got = mrt__wheel_advance(&wheel, now, max, &list);
		must(got <= max);
		must(count_moves(n) <= MRT__WHEEL_MOVES_MAX(max));
		for (; list; list = list->next) {
			must(list->deadline_ns >= last);
			last = list->deadline_ns;
		}
		if (++calls % 64 == 1)
			assert_sound();
		must(calls < 16 * n);
	}
	return calls;
}

START_TEST(a_call_takes_at_most_max_of_one_slot)
{
	static const unsigned maxima[] = { 1, 2, 31, 32, 1000, 20000 };
	unsigned max = maxima[_i], calls, n = 10000;

	/* all at the same ns: the slot cannot be divided */
	mrt__wheel_init(&wheel, START);
	for (unsigned i = 0; i < n; i++)
		mrt__wheel_insert(&wheel, &crowd[i], START + 7 * SEC);
	assert_sound();
	calls = drain_crowd(n, START + 7 * SEC, max);
	must(mrt__wheel_nr(&wheel) == 0);
	must(calls <= n / max + 1 + 10 * n / (8 * max) + 1);
}
END_TEST

START_TEST(a_call_moves_a_bounded_part_of_a_crowded_slot)
{
	struct mrt__rand r;

	mrt__rand_init(&r, seed_of_run());
	mrt__wheel_init(&wheel, START);
	/* 0: one slot of 4.4 min; 1: one ms; 2: one slot of 256 ns */
	for (unsigned i = 0; i < CROWD; i++) {
		static const uint64_t widths[] = { 262144 * MS - 1, MS - 1, 255 };

		mrt__wheel_insert(&wheel, &crowd[i], START + 262144 * MS + random_u64(&r) % widths[_i]);
	}
	assert_sound();
	(void)drain_crowd(CROWD, START + 2 * 262144 * MS, BATCH);
	must(mrt__wheel_nr(&wheel) == 0);
}
END_TEST

START_TEST(entries_can_come_and_go_while_a_slot_is_being_moved)
{
	struct mrt__wheel_entry early = { 0 }, *list;
	unsigned n = 5000, fired = 0, removed = 0;
	bool inserted = false;
	struct mrt__rand r;

	mrt__rand_init(&r, seed_of_run());
	mrt__wheel_init(&wheel, START);
	for (unsigned i = 0; i < n; i++)
		mrt__wheel_insert(&wheel, &crowd[i], START + 64 * MS + random_u64(&r) % (64 * MS));
	while (mrt__wheel_is_due(&wheel, START + 128 * MS)) {
		fired += mrt__wheel_advance(&wheel, START + 128 * MS, 1, &list);
		for (unsigned k = 0; k < 3; k++) {
			unsigned i = mrt__rand_below(&r, n);

			if (!is_linked(&crowd[i]))
				continue;
			mrt__wheel_remove(&wheel, &crowd[i]);
			assert_sound();
			removed++;
			/* the ends of the list that is being moved are the delicate ones */
			if (wheel.moving && k == 1) {
				mrt__wheel_remove(&wheel, wheel.moving);
				assert_sound();
				removed++;
			}
			if (wheel.moving && k == 2) {
				mrt__wheel_remove(&wheel, mrt__container_of(wheel.moving_tail,
									    struct mrt__wheel_entry, next));
				assert_sound();
				removed++;
			}
		}
		if (wheel.moving && !inserted) {
			mrt__wheel_insert(&wheel, &early, START);
			assert_sound();
			inserted = true;
		}
	}
	assert_sound();
	must(mrt__wheel_nr(&wheel) == 0);
	must(inserted);
	must(fired + removed == n + 1);
}
END_TEST

/* The one that is due may be the last to be moved: until then next() must not point past it. */
START_TEST(next_says_at_once_while_a_slot_is_being_moved)
{
	struct mrt__wheel_entry early = { 0 }, *list;
	unsigned n = 5000, calls = 0;
	uint64_t now = START + 64 * MS;

	mrt__wheel_init(&wheel, START);
	for (unsigned i = 0; i < n; i++)
		mrt__wheel_insert(&wheel, &crowd[i], now + (i == n / 2 ? 0 : 32 * MS + i));
	while (mrt__wheel_advance(&wheel, now, 1, &list) == 0) {
		must(mrt__wheel_next(&wheel) <= now);
		calls++;
		must(calls < n);
	}
	must(list == &crowd[n / 2]);
	must(calls > n / MRT__WHEEL_MOVES_MAX(1) / 2);
	assert_sound();
	must(!mrt__wheel_is_due(&wheel, now));

	/* nor if the clock steps back in the middle of it, and a sleep starts then */
	mrt__wheel_init(&wheel, START);
	for (unsigned i = 0; i < n; i++)
		mrt__wheel_insert(&wheel, &crowd[i], now + 32 * MS + i);
	must(mrt__wheel_advance(&wheel, now, 1, &list) == 0);
	must(wheel.moving != NULL);
	mrt__wheel_insert(&wheel, &early, START + 3 * MS);
	must(drain(START + 2 * MS) == 0);
	must(mrt__wheel_next(&wheel) == START + 3 * MS);
	must(drain(START + 3 * MS) == 1);
	assert_sound();
	must(drain(now + SEC) == n);
}
END_TEST

/* An hour passes in which nothing is due; then a crowd goes to sleep, and few are moved for the first to be woken. */
START_TEST(catching_up_spreads_the_inserts_after_a_long_pause)
{
	struct mrt__wheel_entry far = { 0 };
	uint64_t now = START + 1000 * 4096 * MS; /* the crowd will be in ten slots of 64 ms */

	mrt__wheel_init(&wheel, START);
	mrt__wheel_insert(&wheel, &far, now + 60 * SEC);
	for (unsigned i = 0; i < CROWD; i++) {
		(void)mrt__wheel_catch_up(&wheel, now + i * US);
		mrt__wheel_insert(&wheel, &crowd[i], now + SEC + i * 10 * US);
	}
	assert_sound();
	must(mrt__wheel_nr(&wheel) == CROWD + 1);
	must(mrt__wheel_next(&wheel) == now + SEC);
	(void)count_moves(CROWD);
	must(drain(now + SEC) == 1);
	must(!is_linked(&crowd[0]));
	must(count_moves(CROWD) < CROWD / 8);
	assert_sound();
}
END_TEST

START_TEST(catching_up_expires_nothing)
{
	struct mrt__wheel_entry e[40] = { 0 };

	mrt__wheel_init(&wheel, START);
	for (unsigned i = 0; i < MRT__ARRAY_NR(e); i++)
		mrt__wheel_insert(&wheel, &e[i], START + i * 7 * SEC);
	for (unsigned i = 0; i < 2 * MRT__ARRAY_NR(e); i++) {
		(void)mrt__wheel_catch_up(&wheel, START + i * 7 * SEC);
		assert_sound();
		must(mrt__wheel_nr(&wheel) == MRT__ARRAY_NR(e));
		must(mrt__wheel_is_due(&wheel, START));
	}
	must(drain(START + 38 * 7 * SEC) == 39);
}
END_TEST

/* ---- who may be late ---- */

START_TEST(a_deadline_that_is_alone_is_not_put_off)
{
	struct mrt__wheel_entry e[3] = { 0 };

	mrt__wheel_init(&wheel, START);
	must(mrt__wheel_next_within(&wheel, 50 * US) == UINT64_MAX);
	mrt__wheel_insert(&wheel, &e[0], START + 10 * MS);
	mrt__wheel_insert(&wheel, &e[1], START + 10 * MS + 51 * US);
	mrt__wheel_insert(&wheel, &e[2], START + 400 * DAY);
	must(mrt__wheel_next_within(&wheel, 50 * US) == START + 10 * MS);
	must(drain(START + 10 * MS) == 1);
	must(mrt__wheel_next_within(&wheel, 50 * US) == START + 10 * MS + 51 * US);
	must(drain(START + 11 * MS) == 1);
	must(mrt__wheel_next_within(&wheel, 50 * US) == START + 400 * DAY);
	must(mrt__wheel_next_within(&wheel, UINT64_MAX) == START + 400 * DAY);
}
END_TEST

/* Ten thousand, 1 us apart: up to 50 at a time, and none later than that. */
START_TEST(slack_takes_what_is_due_together)
{
	uint64_t now = START, first;
	unsigned wakes = 0, fired = 0;

	mrt__wheel_init(&wheel, START);
	for (unsigned i = 0; i < 10000; i++)
		mrt__wheel_insert(&wheel, &crowd[i], START + 5 * MS + i * US);
	for (; mrt__wheel_nr(&wheel) > 0; wakes++) {
		first = mrt__wheel_next(&wheel);
		now = mrt__wheel_next_within(&wheel, 50 * US);
		must(now >= first);
		must(now - first <= 50 * US);
		fired += drain(now);
		assert_sound();
	}
	must(fired == 10000);
	must(now == START + 5 * MS + 9999 * US);
	must(wakes >= 10000 / 51);
	must(wakes <= 10000 / 25);
}
END_TEST

/* ---- against a model ---- */

#define POOL 300u

struct model {
	struct mrt__rand rand;
	struct mrt__wheel_entry e[POOL];
	uint64_t key[POOL];             /* what it is ordered by: its deadline, or when it was inserted if that is later */
	bool armed[POOL];
	unsigned armed_nr;
	uint64_t now, fired, inserted, removed;
};

static struct model model;

static uint64_t elapsed_ns(void)
{
	return wheel.start_ns + (wheel.elapsed >> 20) * MS + (wheel.elapsed & 0xfffff);
}

static uint64_t least_deadline(void)
{
	uint64_t min = UINT64_MAX;

	for (unsigned i = 0; i < POOL; i++) {
		if (model.armed[i] && model.e[i].deadline_ns < min)
			min = model.e[i].deadline_ns;
	}
	return min;
}

static uint64_t random_deadline(void)
{
	struct mrt__rand *r = &model.rand;
	uint64_t past = random_log(r, 50);

	switch (mrt__rand_below(r, 16)) {
	case 0:
		return UINT64_MAX;
	case 1:
		return past < model.now ? model.now - past : 0;
	case 2:         /* the same as another: ties */
		return mrt__clock_add(model.e[mrt__rand_below(r, POOL)].deadline_ns, mrt__rand_below(r, 3));
	case 3:         /* around a border of slots */
		return mrt__clock_add(model.now, (MS << mrt__rand_below(r, 40)) - 1 + mrt__rand_below(r, 3));
	case 4:         /* about a turn of the top away */
		return mrt__clock_add(model.now, (MS << 36) - (MS << 31) + random_u64(r) % (MS << 32));
	case 5:
	case 6:
	case 7:
	case 8:         /* a crowd within the ms */
		return mrt__clock_add(model.now, random_u64(r) % MS);
	default:
		return mrt__clock_add(model.now, random_log(r, 62));
	}
}

static void model_insert(unsigned i)
{
	uint64_t deadline = random_deadline();

	memset(&model.e[i], 0xa5, sizeof(model.e[i])); /* insert promises to need nothing */
	model.key[i] = mrt__max(deadline, elapsed_ns());
	mrt__wheel_insert(&wheel, &model.e[i], deadline);
	model.armed[i] = true;
	model.armed_nr++;
	model.inserted++;
}

static void model_remove(unsigned i)
{
	mrt__wheel_remove(&wheel, &model.e[i]);
	model.armed[i] = false;
	model.armed_nr--;
	model.removed++;
}

/* One call of advance(), compared with what the array says. */
static void model_advance(uint64_t now, unsigned max)
{
	struct mrt__wheel_entry *list;
	unsigned due = 0, n;
	uint64_t last = 0;

	for (unsigned i = 0; i < POOL; i++)
		due += model.armed[i] && model.e[i].deadline_ns <= now;
	n = mrt__wheel_advance(&wheel, now, max, &list);
	assert_sound();
	if (n != mrt__min(due, max)) {
		must(n < mrt__min(due, max)); /* the moves ran out, and it says so */
		must(mrt__wheel_is_due(&wheel, now));
	}
	for (unsigned k = 0; k < n; k++, list = list->next) {
		unsigned i = (unsigned)(list - model.e);

		must(i < POOL);
		must(model.armed[i]);
		must(!is_linked(list));
		must(list->deadline_ns <= now);
		must(model.key[i] >= last);
		last = model.key[i];
		model.armed[i] = false;
		model.armed_nr--;
		model.fired++;
	}
	must(!list);
	for (unsigned i = 0; i < POOL; i++) {
		if (n > 0 && model.armed[i] && model.e[i].deadline_ns <= now)
			must(model.key[i] >= last);
	}
}

static void model_step(void)
{
	struct mrt__rand *r = &model.rand;
	unsigned i = mrt__rand_below(r, POOL), what = mrt__rand_below(r, 100), back = mrt__rand_below(r, 40);
	uint64_t next;

	if (mrt__rand_below(r, 8) == 0) {
		(void)mrt__wheel_catch_up(&wheel, model.now);
		assert_sound();
	}
	if (what < 60) {
		if (model.armed[i])
			model_remove(i);
		if (what >= 20)
			model_insert(i);
	} else if (what < 95) {
		model.now += random_log(r, what < 80 ? 21 : 51);
		next = back == 0 ? random_log(r, 40) : 0;
		model_advance(model.now - mrt__min(next, model.now), 1 + mrt__rand_below(r, BATCH));
	} else {        /* as a worker does it: park, then expire all */
		next = mrt__wheel_next(&wheel);
		if (next < START + 100 * 365 * DAY)
			model.now = mrt__max(model.now, next);
		do {
			model_advance(model.now, BATCH);
		} while (mrt__wheel_is_due(&wheel, model.now));
	}
	assert_sound();
	must(mrt__wheel_nr(&wheel) == model.armed_nr);
	if (what % 8)
		return; /* to ask for what is next gives all entries a place */
	must(mrt__wheel_next(&wheel) <= least_deadline());
	next = random_log(r, 30); /* a slack */
	must(mrt__wheel_next_within(&wheel, next) >= mrt__wheel_next(&wheel));
	must(mrt__wheel_next_within(&wheel, next) <= mrt__clock_add(mrt__wheel_next(&wheel), next));
	if (model.armed_nr == 0)
		must(mrt__wheel_next(&wheel) == UINT64_MAX);
}

START_TEST(a_wheel_agrees_with_a_sorted_array)
{
	uint64_t seed = seed_of_run();
	unsigned steps = steps_of_run(20000);

	mrt__rand_init(&model.rand, seed);
	mrt__wheel_init(&wheel, START);
	model.now = START;
	for (unsigned s = 0; s < steps; s++) {
		if (model.now > START + 200 * 365 * DAY) { /* a new machine, before the clock runs out */
			while (model.armed_nr > 0)
				model_advance(UINT64_MAX, BATCH);
			mrt__wheel_init(&wheel, START + s);
			model.now = START + s;
		}
		model_step();
	}
	while (model.armed_nr > 0)
		model_advance(UINT64_MAX, BATCH);
	must(model.inserted == model.fired + model.removed);
	must(model.fired > steps / 16);
	printf("%" PRIu64 " inserted, %" PRIu64 " fired, %" PRIu64 " removed\n", model.inserted, model.fired,
	       model.removed);
}
END_TEST

/* Whoever parks until next() is woken at each deadline, to the ns, and for nothing only where years are waited for. */
START_TEST(each_entry_fires_exactly_at_its_deadline_if_the_caller_waits_for_next)
{
	unsigned n = 2000, fired = 0;
	struct mrt__rand r;
	uint64_t now;

	mrt__rand_init(&r, seed_of_run());
	for (unsigned round = 0; round < 20; round++) {
		unsigned bits_max = 20 + 2 * round;

		mrt__wheel_init(&wheel, START);
		for (unsigned i = 0; i < n; i++)
			mrt__wheel_insert(&wheel, &crowd[i], START + random_log(&r, bits_max));
		assert_sound();
		for (fired = 0; (now = mrt__wheel_next(&wheel)) != UINT64_MAX; ) {
			struct mrt__wheel_entry *list;
			unsigned got = 0;

			while (mrt__wheel_is_due(&wheel, now)) {
				got += mrt__wheel_advance(&wheel, now, BATCH, &list);
				for (; list; list = list->next)
					must(list->deadline_ns == now);
			}
			if (bits_max < 56)      /* within a turn of the top level, 2^55.9 ns */
				must(got > 0);
			fired += got;
		}
		must(fired == n);
		assert_sound();
	}
}
END_TEST

START_TEST(a_stale_minimum_wakes_once_and_not_for_ever)
{
	struct mrt__wheel_entry e[2] = { 0 };

	mrt__wheel_init(&wheel, START);
	mrt__wheel_insert(&wheel, &e[0], START + 5 * DAY);
	mrt__wheel_insert(&wheel, &e[1], START + 5 * DAY + SEC);
	must(mrt__wheel_next(&wheel) == START + 5 * DAY);
	mrt__wheel_remove(&wheel, &e[0]);
	must(mrt__wheel_next(&wheel) == START + 5 * DAY);
	must(drain(START + 5 * DAY) == 0);
	must(mrt__wheel_next(&wheel) == START + 5 * DAY + SEC);
	must(drain(START + 5 * DAY + SEC) == 1);
}
END_TEST

/* What has no place yet is a list: taken out in front, in the middle and behind, and placed when it is long or asked for. */
START_TEST(what_was_inserted_and_removed_before_anybody_asks_never_gets_a_place)
{
	static struct mrt__wheel_entry e[3 * MRT__WHEEL_RECENT_MAX];
	struct mrt__wheel_entry *list;
	unsigned i, nr = MRT__ARRAY_NR(e), recent = 0;

	mrt__wheel_init(&wheel, START);
	for (i = 0; i < nr; i++) {
		mrt__wheel_insert(&wheel, &e[i], START + (nr - i) * SEC);
		assert_sound();
	}
	for (i = 0; i < nr; i++)
		recent += e[i].where == MRT__WHEEL_RECENT;
	ck_assert_uint_eq(recent, MRT__WHEEL_RECENT_MAX);
	ck_assert_uint_eq(wheel.recent_nr, recent);
	for (i = nr - recent; i < nr; i += 2) { /* the first, and each other one */
		mrt__wheel_remove(&wheel, &e[i]);
		assert_sound();
	}
	mrt__wheel_remove(&wheel, &e[nr - 1]);
	assert_sound();
	ck_assert_uint_eq(wheel.recent_nr, recent / 2 - 1);
	/* the earliest was the last one, which is gone */
	ck_assert_uint_eq(mrt__wheel_next(&wheel), START + 3 * SEC);
	ck_assert_uint_eq(wheel.recent_nr, 0);
	for (i = 0; i < nr; i++)
		ck_assert_uint_ne(is_linked(&e[i]) && e[i].where == MRT__WHEEL_RECENT, true);
	assert_sound();
	ck_assert_uint_eq(drain(START + nr * SEC), nr - recent / 2 - 1);

	/* none is left: nothing was ever placed */
	mrt__wheel_insert(&wheel, &e[0], START + 2 * DAY);
	mrt__wheel_insert(&wheel, &e[1], START + 1 * DAY);
	mrt__wheel_remove(&wheel, &e[1]);
	mrt__wheel_remove(&wheel, &e[0]);
	assert_sound();
	ck_assert_uint_eq(mrt__wheel_next(&wheel), UINT64_MAX);
	/* an advance places, too */
	mrt__wheel_insert(&wheel, &e[0], START + 2 * DAY);
	ck_assert_uint_eq(mrt__wheel_advance(&wheel, START + 2 * DAY, BATCH, &list), 1);
	ck_assert_ptr_eq(list, &e[0]);
	assert_sound();
}
END_TEST

/* ---- years ---- */

#define YEARS3 (3 * 365 * DAY)

/* A 15 s ticker, armed again each time it fires, and a long sleep, for three years. */
static void run_ticker(uint64_t sleep_ns)
{
	struct mrt__wheel_entry ticker = { 0 }, sleeper = { 0 };
	uint64_t sleep_end = mrt__clock_add(START, sleep_ns), now, ticks = 0;
	bool slept = false;

	mrt__wheel_init(&wheel, START);
	mrt__wheel_insert(&wheel, &sleeper, sleep_end);
	mrt__wheel_insert(&wheel, &ticker, START + 15 * SEC);
	for (now = START; now < START + YEARS3; ) {
		struct mrt__wheel_entry *list;

		now = mrt__wheel_next(&wheel);
		(void)mrt__wheel_advance(&wheel, now, BATCH, &list);
		for (struct mrt__wheel_entry *next; list; list = next) {
			next = list->next;
			must(list->deadline_ns == now);
			if (list == &sleeper) {
				slept = true;
				continue;
			}
			ticks++;
			must(now == START + ticks * 15 * SEC); /* none skipped */
			mrt__wheel_insert(&wheel, &ticker, now + 15 * SEC);
		}
		if (ticks % 10000 == 0)
			assert_sound();
		must(slept == (now >= sleep_end));
	}
	must(ticks == YEARS3 / (15 * SEC));
}

static const uint64_t long_sleeps[] = {
	MS << 36, (MS << 36) + (MS << 30) - 5 * MS, (MS << 36) - (MS << 30), 20 * DAY, UINT64_MAX,
};

START_TEST(a_ticker_beside_a_long_sleep_misses_no_tick_in_three_years)
{
	run_ticker(long_sleeps[_i]);
}
END_TEST

/* The case as it was met: uptime 2^30 ms = 12.43 days, time in steps, whatever next() says. */
START_TEST(a_ticker_survives_the_twelfth_day)
{
	struct mrt__wheel_entry ticker = { 0 }, sleeper = { 0 };
	uint64_t ticks = 0;

	mrt__wheel_init(&wheel, START);
	mrt__wheel_insert(&wheel, &ticker, START + 15 * SEC);
	for (uint64_t now = START; now < START + 26 * DAY; now += 250 * MS) {
		struct mrt__wheel_entry *list;

		if (now == START + 10 * SEC)
			mrt__wheel_insert(&wheel, &sleeper, now + (MS << 36));
		if (mrt__wheel_advance(&wheel, now, BATCH, &list) == 0)
			continue;
		must(list == &ticker);
		ticks++;
		must(now == START + ticks * 15 * SEC);
		mrt__wheel_insert(&wheel, &ticker, now + 15 * SEC);
		must(mrt__wheel_next(&wheel) == now + 15 * SEC);
	}
	must(ticks == (26 * DAY - 1) / (15 * SEC));
	assert_sound();
}
END_TEST

static Suite *wheel_suite(void)
{
	Suite *s = suite_create("wheel");
	TCase *tc = tcase_create("places"), *bounds = tcase_create("bounds"), *random = tcase_create("model"),
	      *years = tcase_create("years");

	tcase_set_timeout(tc, 10);
	tcase_add_loop_test(tc, an_entry_goes_to_the_level_of_the_highest_bit_that_differs, 0,
			    (int)MRT__ARRAY_NR(places));
	tcase_add_test(tc, an_empty_wheel_waits_for_ever);
	tcase_add_test(tc, the_callers_fields_are_left_alone);
	tcase_add_test(tc, past_deadlines_are_due_at_once);
	tcase_add_test(tc, for_ever_is_not_before_the_end_of_time);
	tcase_add_test(tc, a_removed_entry_never_fires_and_can_go_back_into_its_slot);
	tcase_add_test(tc, removing_the_last_entry_leaves_nothing_to_wait_for);
	tcase_add_test(tc, a_clock_that_steps_back_neither_hangs_nor_fires_early);
	tcase_add_test(tc, a_stale_minimum_wakes_once_and_not_for_ever);
	tcase_add_test(tc, what_was_inserted_and_removed_before_anybody_asks_never_gets_a_place);
	suite_add_tcase(s, tc);

	tcase_set_timeout(bounds, 60);
	tcase_add_loop_test(bounds, a_call_takes_at_most_max_of_one_slot, 0, 6);
	tcase_add_loop_test(bounds, a_call_moves_a_bounded_part_of_a_crowded_slot, 0, 3);
	tcase_add_test(bounds, next_says_at_once_while_a_slot_is_being_moved);
	tcase_add_test(bounds, catching_up_spreads_the_inserts_after_a_long_pause);
	tcase_add_test(bounds, catching_up_expires_nothing);
	tcase_add_test(bounds, a_deadline_that_is_alone_is_not_put_off);
	tcase_add_test(bounds, slack_takes_what_is_due_together);
	tcase_add_test(bounds, entries_can_come_and_go_while_a_slot_is_being_moved);
	suite_add_tcase(s, bounds);

	tcase_set_timeout(random, 120);
	tcase_add_test(random, a_wheel_agrees_with_a_sorted_array);
	tcase_add_test(random, each_entry_fires_exactly_at_its_deadline_if_the_caller_waits_for_next);
	suite_add_tcase(s, random);

	tcase_set_timeout(years, 120);
	tcase_add_loop_test(years, a_ticker_beside_a_long_sleep_misses_no_tick_in_three_years, 0,
			    (int)MRT__ARRAY_NR(long_sleeps));
	tcase_add_test(years, a_ticker_survives_the_twelfth_day);
	suite_add_tcase(s, years);
	return s;
}

int main(void)
{
	return suite_main(wheel_suite());
}
