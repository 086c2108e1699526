/* SPDX-License-Identifier: MIT */
/*
 * The timing wheel (Varghese and Lauck 1987, scheme 7), in the dimensions of Tokio's: 6 levels x 64 slots, 1 ms at the
 * bottom, a bitmap of the occupied slots per level, the level chosen by the highest bit in which now and the deadline
 * differ. Two things are other than there: deadlines stay exact, and the top level is searched correctly.
 *
 * Position. Time is a 64-bit position: (ms since start) << 20 | (ns within that ms). It grows with time, its upper 44
 * bits are the tick of the wheel, and the lower 20 bits go on below the tick in the same way:
 *
 *     level     0        1        2        3       |  4      5       6       7        8       9 (top)
 *     bits      0-1      2-7      8-13     14-19   |  20-25  26-31   32-37   38-43    44-49   50-55
 *     slot      1 ns     4 ns     256 ns   16.4 us |  1 ms   64 ms   4.1 s   4.4 min  4.7 h   12.4 days
 *               the sorter of the due millisecond  |  the wheel
 *
 * Why levels below 1 ms: with a million sleepers over one second the due millisecond holds a thousand entries, a few
 * of them due at each call. Rescanning them is quadratic. Sorting the slot when it comes due is cheap on average,
 * but is one unbounded step under the lock that the bound of `max` is there for (60,000 entries: 10 ms). Going on with
 * 6 bits at a time is the same sort as a radix sort, from the top, and only as far as needed; each step is one move
 * that can be counted. Insert and remove stay O(1) in the due millisecond too. The price: an entry moves at most nine
 * times in its life (in a crowded wheel four), and 6 KiB.
 *
 * A slot with up to MRT__WHEEL_SORT_MAX entries is not moved down level by level, but sorted and expired at once; so
 * where timers are sparse an entry is hardly ever moved. And an idle worker is not woken for a cascade: each slot on
 * each level keeps its earliest deadline, and that is what next() answers with (but for deadlines that are more than a
 * turn of the top level away: 2.18 years).
 *
 * Invariants (mrt__wheel_check() walks them):
 *  1. An entry is where insert() would put it now: level and slot follow from its deadline and `elapsed` alone.
 *     So `elapsed` enters no slot that has entries, other than by advance() taking the slot apart.
 *  2. Therefore: every occupied slot of a level but the top lies after the slot of `elapsed` in the same turn (on
 *     level 0: at or after), all of a level is earlier than all of the next, and the first bit set of the lowest
 *     occupied level is the earliest slot.
 *  3. The top level goes round. An entry in the slot that `elapsed` is in has wrapped: it is a full turn away, distance
 *     64 and not 0. Taking it for the nearest hides every other slot of the level (this stopped Tokio's timers after
 *     2^30 ms = 12.43 days of uptime). A deadline beyond the turn is put where its bits say and is looked at again
 *     each time round, every 2^36 ms = 2.18 years.
 *  4. `moving` is the rest of one slot that is being taken apart. Its entries are not before `elapsed`, and nothing
 *     expires until they are all in place.
 *  5. deadline_ns_min is at most the least deadline in the slot.
 *  6. What was inserted since anybody last asked has no place yet: it stands in a list of its own, a few at most, in the
 *     order of its coming. The invariants above are those of the others. Whoever asks places it first, and elapsed
 *     moves on only after that. So a timeout that is cancelled at once is linked and unlinked, and not sorted.
 *
 * Rejected: a merge-sorted list for the due slot with a side list for late inserts (unbounded step, see above); a
 * pairing heap for it (three pointers, the entry has room for two); slots of 2^20 ns, which would save the division
 * by 10^6 (1.5 ns) but no longer be the milliseconds that the rest of the documentation speaks of.
 */
#include "timer/wheel.h"

#include <inttypes.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/compiler.h"

#define LEVEL_TOP (MRT__WHEEL_LEVELS_NR - 1)
#define SLOT_BITS 6u
#define SLOT_MASK (MRT__WHEEL_SLOTS_NR - 1)
#define TICK_SHIFT 20u                  /* a position below it is ns within the ms */
#define TICK_MAX ((UINT64_C(1) << (64 - TICK_SHIFT)) - 1)

_Static_assert(MRT__WHEEL_SLOTS_NR == 1u << SLOT_BITS, "a slot is 6 bits of the position");
_Static_assert(UINT64_C(1) << TICK_SHIFT >= MRT__NS_PER_MS, "a millisecond fits below the tick");
_Static_assert(MRT__WHEEL_LEVELS_NS_NR * SLOT_BITS - 4 == TICK_SHIFT, "level 0 has 2 bits, see level_shift()");
_Static_assert(MRT__WHEEL_LEVELS_NR * MRT__WHEEL_SLOTS_NR <= UINT16_MAX, "fits `where`");

/* What one call of advance() works with. */
struct advance {
	struct mrt__wheel *w;
	uint64_t now_ns;
	uint64_t now;                           /* as a position */
	unsigned expire_left, moves_left;
	struct mrt__wheel_entry **list_tail;
};

static inline uint64_t position(const struct mrt__wheel *w, uint64_t ns)
{
	uint64_t t = ns > w->start_ns ? ns - w->start_ns : 0;
	uint64_t ms = t / MRT__NS_PER_MS;

	if (mrt__unlikely(ms > TICK_MAX))
		return UINT64_MAX;
	return ms << TICK_SHIFT | (t - ms * MRT__NS_PER_MS);
}

/* The inverse: the instant at which a position is reached. */
static inline uint64_t instant(const struct mrt__wheel *w, uint64_t pos)
{
	return w->start_ns + (pos >> TICK_SHIFT) * MRT__NS_PER_MS + (pos & ((UINT64_C(1) << TICK_SHIFT) - 1));
}

/* Lowest bit of the level's slot number. Level 0 has only bits 0 and 1; its slots are numbered by bits 0 to 5, of
   which the others agree with those of `elapsed`, so that no level needs other arithmetic. */
static inline unsigned level_shift(unsigned level)
{
	return level ? level * SLOT_BITS - 4 : 0;
}

static inline unsigned slot_index(const struct mrt__wheel *w, uint64_t pos)
{
	unsigned bit = 63u - (unsigned)__builtin_clzll((pos ^ w->elapsed) | 1);
	unsigned level = mrt__min((bit + 4) / SLOT_BITS, LEVEL_TOP);

	return level * MRT__WHEEL_SLOTS_NR + (unsigned)(pos >> level_shift(level) & SLOT_MASK);
}

static inline void link_entry(struct mrt__wheel *w, struct mrt__wheel_entry *e, uint64_t deadline_ns)
{
	unsigned idx = slot_index(w, mrt__max(position(w, deadline_ns), w->elapsed));
	struct mrt__wheel_slot *s = &w->slots[idx];

	e->deadline_ns = deadline_ns;
	e->where = (uint16_t)idx;
	e->next = NULL;
	e->pprev = s->tail;
	*s->tail = e;
	s->tail = &e->next;
	s->deadline_ns_min = mrt__min(s->deadline_ns_min, deadline_ns);
	w->occupied[idx / MRT__WHEEL_SLOTS_NR] |= UINT64_C(1) << (idx & SLOT_MASK);
	w->levels |= UINT32_C(1) << idx / MRT__WHEEL_SLOTS_NR;
}

static inline void empty(struct mrt__wheel_slot *s)
{
	s->head = NULL;
	s->tail = &s->head;
	s->deadline_ns_min = UINT64_MAX;
}

/* The slot has become, or is being made, empty. */
static inline void clear_slot(struct mrt__wheel *w, unsigned idx)
{
	unsigned level = idx / MRT__WHEEL_SLOTS_NR;

	empty(&w->slots[idx]);
	w->occupied[level] &= ~(UINT64_C(1) << (idx & SLOT_MASK));
	if (w->occupied[level] == 0)
		w->levels &= ~(UINT32_C(1) << level);
}

/* The earliest occupied slot; w->levels is not 0. */
static inline unsigned first_slot(const struct mrt__wheel *w)
{
	unsigned level = (unsigned)__builtin_ctz(w->levels);
	uint64_t occupied = w->occupied[level];
	unsigned after;

	if (mrt__likely(level != LEVEL_TOP))
		return level * MRT__WHEEL_SLOTS_NR + (unsigned)__builtin_ctzll(occupied);

	/* start looking after the current slot, so that it comes last (invariant 3) */
	after = (unsigned)(w->elapsed >> level_shift(LEVEL_TOP) & SLOT_MASK) + 1;
	occupied = occupied >> (after & SLOT_MASK) | occupied << (-after & SLOT_MASK);
	return level * MRT__WHEEL_SLOTS_NR + ((after + (unsigned)__builtin_ctzll(occupied)) & SLOT_MASK);
}

/* First position of an occupied slot. No overflow on the top: an entry is there whose position is not before it. */
static inline uint64_t slot_start(const struct mrt__wheel *w, unsigned idx)
{
	unsigned level = idx / MRT__WHEEL_SLOTS_NR, shift = level_shift(level);
	uint64_t cur = w->elapsed >> shift, nr = (cur & ~(uint64_t)SLOT_MASK) | (idx & SLOT_MASK);

	if (level == LEVEL_TOP && nr <= cur)
		nr += MRT__WHEEL_SLOTS_NR;
	return nr << shift;
}

void mrt__wheel_init(struct mrt__wheel *w, uint64_t now_ns)
{
	w->start_ns = w->seen_ns = now_ns;
	w->elapsed = 0;
	w->nr = 0;
	w->moving = NULL;
	w->moving_tail = &w->moving;
	w->levels = 0;
	for (unsigned l = 0; l < MRT__WHEEL_LEVELS_NR; l++)
		w->occupied[l] = 0;
	w->recent = NULL;
	w->recent_tail = &w->recent;
	w->recent_nr = 0;
	for (unsigned i = 0; i < MRT__ARRAY_NR(w->slots); i++)
		empty(&w->slots[i]);
}

void mrt__wheel_place(struct mrt__wheel *w)
{
	struct mrt__wheel_entry *e = w->recent, *next;

	for (; e; e = next) {
		next = e->next;
		link_entry(w, e, e->deadline_ns);
	}
	w->recent = NULL;
	w->recent_tail = &w->recent;
	w->recent_nr = 0;
}

static inline void place_recent(struct mrt__wheel *w)
{
	if (w->recent_nr > 0)
		mrt__wheel_place(w);
}

void mrt__wheel_remove_placed(struct mrt__wheel *w, struct mrt__wheel_entry *e)
{
	struct mrt__wheel_entry *next = e->next, **pprev = e->pprev;
	struct mrt__wheel_slot *s;

	mrt__assert(pprev && *pprev == e);
	mrt__assert(w->nr > 0);
	*pprev = next;
	e->pprev = NULL;
	w->nr--;
	if (next) {
		next->pprev = pprev;
		return;
	}
	s = &w->slots[e->where];
	if (mrt__unlikely(s->tail != &e->next)) {
		/* an entry of `moving` still has the number of the slot that it left, whose tail is another's */
		w->moving_tail = pprev;
		return;
	}
	s->tail = pprev;
	if (!s->head)
		clear_slot(w, e->where);
}

uint64_t mrt__wheel_next(struct mrt__wheel *w)
{
	unsigned idx;
	uint64_t min, start;

	place_recent(w);
	if (mrt__unlikely(w->moving != NULL))
		return 0; /* not `elapsed`, which is ahead of the clock if that stepped back */
	if (!w->levels)
		return UINT64_MAX;
	idx = first_slot(w);
	min = w->slots[idx].deadline_ns_min;
	if (mrt__likely(idx < LEVEL_TOP * MRT__WHEEL_SLOTS_NR))
		return min;
	/* The first slot of the top may have only entries of later turns; then other slots have earlier ones. */
	start = slot_start(w, idx);
	return (position(w, min) ^ start) >> level_shift(LEVEL_TOP) ? instant(w, start) : min;
}

/*
 * The latest of the slots' earliest deadlines that is within the slack. On the level of the limit, slots up to the one that
 * the limit is in; on those below, all. The first of these that is looked at may be beyond the limit, no other.
 */
uint64_t mrt__wheel_next_within(struct mrt__wheel *w, uint64_t slack_ns)
{
	uint64_t first = mrt__wheel_next(w), limit = first + slack_ns, occupied, min;
	unsigned idx, level, bit;

	if (!w->levels || w->moving || limit < first)
		return first;
	idx = slot_index(w, mrt__max(position(w, limit), w->elapsed));
	level = idx / MRT__WHEEL_SLOTS_NR;
	if (level == LEVEL_TOP)
		return first;
	for (occupied = w->occupied[level] & ~UINT64_C(0) >> (SLOT_MASK - (idx & SLOT_MASK));;
	     occupied = w->occupied[--level]) {
		for (; occupied; occupied ^= UINT64_C(1) << bit) {
			bit = SLOT_MASK - (unsigned)__builtin_clzll(occupied);
			min = w->slots[level * MRT__WHEEL_SLOTS_NR + bit].deadline_ns_min;
			if (min <= limit)
				return mrt__max(min, first);
		}
		if (level == 0)
			return first;
	}
}

static inline void expire(struct advance *a, struct mrt__wheel_entry *e)
{
	e->pprev = NULL;
	*a->list_tail = e;
	a->list_tail = &e->next;
	a->expire_left--;
	a->w->nr--;
}

/*
 * Level 0: all entries are due at the same ns. The exceptions are past deadlines with a clock that stepped back, and
 * the end of time (position UINT64_MAX), so each deadline is compared.
 */
static void expire_slot(struct advance *a, unsigned idx)
{
	struct mrt__wheel_slot *s = &a->w->slots[idx];
	struct mrt__wheel_entry *e, **link = &s->head;
	uint64_t min = UINT64_MAX;

	while ((e = *link) && a->expire_left) {
		struct mrt__wheel_entry *next = e->next;

		__builtin_prefetch(next, 1);
		if (mrt__unlikely(e->deadline_ns > a->now_ns)) {
			min = mrt__min(min, e->deadline_ns);
			link = &e->next;
			continue;
		}
		*link = next;
		if (next)
			next->pprev = link;
		else
			s->tail = link;
		expire(a, e);
	}
	if (!s->head)
		clear_slot(a->w, idx);
	else if (!e)
		s->deadline_ns_min = min;
}

/* Copy the slot's entries in order of deadline, stably. Returns 0 if there are more than MRT__WHEEL_SORT_MAX. */
static unsigned sort_slot(const struct mrt__wheel_slot *s, struct mrt__wheel_entry **sorted)
{
	unsigned n = 0;

	for (struct mrt__wheel_entry *e = s->head; e; e = e->next) {
		unsigned i = n++;

		if (i == MRT__WHEEL_SORT_MAX)
			return 0;
		for (; i > 0 && sorted[i - 1]->deadline_ns > e->deadline_ns; i--)
			sorted[i] = sorted[i - 1];
		sorted[i] = e;
	}
	return n;
}

/*
 * Put entries of `moving` on finer levels, as far as the moves last. From both ends in turn: following a list of
 * entries that have left the cache is one miss after the other, and two halves miss in parallel (a million over one
 * second: 450 ns an entry from one end, 260 from both).
 */
static void cascade(struct advance *a)
{
	struct mrt__wheel *w = a->w;
	struct mrt__wheel_entry *front = w->moving, **tail = w->moving_tail, *e;

	/* In between, the outer links of the first and the last entry are stale. */
	for (bool from_back = false; front && a->moves_left; from_back = !from_back, a->moves_left--) {
		bool is_last = &front->next == tail;

		if (from_back) {
			e = mrt__container_of(tail, struct mrt__wheel_entry, next);
			tail = e->pprev;
			__builtin_prefetch(tail, 1);
		} else {
			e = front;
			front = e->next;
			__builtin_prefetch(front, 1);
		}
		if (is_last)
			front = NULL;
		link_entry(w, e, e->deadline_ns);
	}
	w->moving = front;
	if (front) {
		w->moving_tail = tail;
		front->pprev = &w->moving;
		*tail = NULL;
	}
}

/* Any level but 0: time has entered the slot. */
static void open_slot(struct advance *a, unsigned idx)
{
	struct mrt__wheel *w = a->w;
	struct mrt__wheel_entry *sorted[MRT__WHEEL_SORT_MAX];
	unsigned n = sort_slot(&w->slots[idx], sorted), i = 0;
	uint64_t last = w->elapsed | ((UINT64_C(1) << level_shift(idx / MRT__WHEEL_SLOTS_NR)) - 1);
	bool is_top = idx >= LEVEL_TOP * MRT__WHEEL_SLOTS_NR;

	if (n == 0) {
		w->moving = w->slots[idx].head;
		w->moving->pprev = &w->moving;
		w->moving_tail = w->slots[idx].tail;
		clear_slot(w, idx);
		cascade(a);
		return;
	}
	clear_slot(w, idx);
	/* On the top level an entry may be of a later turn, with other slots before it. */
	while (i < n && a->expire_left && sorted[i]->deadline_ns <= a->now_ns &&
	       (!is_top || position(w, sorted[i]->deadline_ns) <= last))
		expire(a, sorted[i++]);
	if (i == n)
		return;
	/* Nothing else in the wheel is before the end of this slot, so time may go on to its earliest entry. */
	last = mrt__min(last, position(w, sorted[i]->deadline_ns));
	w->elapsed = mrt__min(last, a->now);
	a->moves_left -= mrt__min(a->moves_left, n - i);
	for (; i < n; i++)
		link_entry(w, sorted[i], sorted[i]->deadline_ns);
}

unsigned mrt__wheel_advance(struct mrt__wheel *w, uint64_t now_ns, unsigned max, struct mrt__wheel_entry **ret_list)
{
	struct advance a = {
		.w = w,
		.now_ns = now_ns,
		.now = position(w, now_ns),
		.expire_left = max,
		.moves_left = MRT__WHEEL_MOVES_MAX(max) - MRT__WHEEL_SORT_MAX, /* the last slot may overdraw */
		.list_tail = ret_list,
	};
	bool is_clear = false; /* no occupied slot has begun */

	place_recent(w);
	if (mrt__unlikely(w->moving != NULL))
		cascade(&a);
	while (a.moves_left && (a.expire_left || max == 0)) {
		unsigned idx;
		uint64_t start;

		is_clear = !w->levels;
		if (is_clear)
			break;
		idx = first_slot(w);
		start = slot_start(w, idx);
		/* Level 0 by deadline, not by start: a past deadline starts at `elapsed`, where now may not be yet if
		   the clock stepped back. */
		if (idx < MRT__WHEEL_SLOTS_NR) {
			is_clear = w->slots[idx].deadline_ns_min > now_ns;
			if (is_clear || !a.expire_left)
				break;
			w->elapsed = start;
			expire_slot(&a, idx);
		} else {
			is_clear = start > a.now;
			if (is_clear)
				break;
			w->elapsed = start;
			open_slot(&a, idx);
		}
	}
	/* Inserts to come are to be placed by the time that it is, whether or not something was due. */
	if (is_clear && a.now > w->elapsed) {
		w->elapsed = a.now;
		w->seen_ns = now_ns;
	}
	*a.list_tail = NULL;
	return max - a.expire_left;
}

#define complain(why, ...) do {                         \
	if (why)                                        \
		(void)fprintf(why, "wheel: " __VA_ARGS__);      \
} while (0)

static bool check_slot(const struct mrt__wheel *w, unsigned idx, uint64_t *nr, FILE *why)
{
	const struct mrt__wheel_slot *s = &w->slots[idx];
	struct mrt__wheel_entry *const *link = &s->head;
	bool bit = w->occupied[idx / MRT__WHEEL_SLOTS_NR] >> (idx & SLOT_MASK) & 1;

	for (const struct mrt__wheel_entry *e; (e = *link); link = &e->next) {
		uint64_t pos = position(w, e->deadline_ns);
		unsigned expected = slot_index(w, mrt__max(pos, w->elapsed));

		if (++*nr > w->nr) {
			complain(why, "a cycle, or more entries than the %" PRIu64 " counted\n", w->nr);
			return false;
		}
		if (e->pprev != link || e->where != idx || expected != idx || e->deadline_ns < s->deadline_ns_min) {
			complain(why, "slot %u: deadline %" PRIu64 " (minimum %" PRIu64 ") has where %u, belongs in %u, "
				 "pprev is %s\n", idx, e->deadline_ns, s->deadline_ns_min, e->where, expected,
				 e->pprev == link ? "right" : "wrong");
			return false;
		}
	}
	if (s->tail != link || bit != (s->head != NULL) || (!s->head && s->deadline_ns_min != UINT64_MAX)) {
		complain(why, "slot %u: tail, bit %d or minimum %" PRIu64 " is wrong\n", idx, bit, s->deadline_ns_min);
		return false;
	}
	return true;
}

bool mrt__wheel_check(const struct mrt__wheel *w, FILE *why)
{
	struct mrt__wheel_entry *const *link = &w->moving;
	uint64_t nr = 0, moving_nr;

	for (const struct mrt__wheel_entry *e; (e = *link); link = &e->next) {
		if (++nr > w->nr || e->pprev != link || position(w, e->deadline_ns) < w->elapsed) {
			complain(why, "moving entry of deadline %" PRIu64 " is early, badly linked or one too many\n",
				 e->deadline_ns);
			return false;
		}
	}
	moving_nr = nr;
	if (w->moving && w->moving_tail != link) {
		complain(why, "tail of the moving entries is wrong\n");
		return false;
	}
	link = &w->recent;
	for (const struct mrt__wheel_entry *e; (e = *link); link = &e->next) {
		if (++nr > w->nr || e->pprev != link || e->where != MRT__WHEEL_RECENT) {
			complain(why, "recent entry of deadline %" PRIu64 " is badly linked, marked %u or one too many\n",
				 e->deadline_ns, e->where);
			return false;
		}
	}
	if (w->recent_tail != link || nr != w->recent_nr + moving_nr) {
		complain(why, "%" PRIu64 " recent entries found, %u counted, or their tail is wrong\n", nr - moving_nr,
			 w->recent_nr);
		return false;
	}
	for (unsigned i = 0; i < MRT__ARRAY_NR(w->slots); i++) {
		if (!check_slot(w, i, &nr, why))
			return false;
	}
	for (unsigned l = 0; l < MRT__WHEEL_LEVELS_NR; l++) {
		if ((w->levels >> l & 1) != (w->occupied[l] != 0)) {
			complain(why, "level %u: summary bit is wrong\n", l);
			return false;
		}
	}
	if (nr != w->nr) {
		complain(why, "%" PRIu64 " entries found, %" PRIu64 " counted\n", nr, w->nr);
		return false;
	}
	return true;
}
