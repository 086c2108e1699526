/* SPDX-License-Identifier: MIT */
/*
 * A hierarchical timing wheel: 6 levels x 64 slots of 1 ms, exact deadlines in ns. A pure data structure: it never
 * reads a clock, knows no task and takes no lock.
 *
 * Who must exclude whom: every function here writes or reads without atomics, so the caller excludes all others for
 * the length of each call (the worker's wheel lock). Each call is bounded: insert, remove and next are O(1), advance
 * takes out at most `max` entries and moves at most MRT__WHEEL_MOVES_MAX(max). Nothing allocates or blocks.
 *
 *                    insert  remove  advance  next  nr
 *     insert            X       X       X       X    X
 *     remove            X       X       X       X    X
 *     advance           X       X       X       X    X
 *     next              X       X       X       X    -
 *     nr                X       X       X       -    -
 */
#ifndef MRT_TIMER_WHEEL_H
#define MRT_TIMER_WHEEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/compiler.h"

#define MRT__WHEEL_LEVELS_MS_NR 6u      /* the wheel proper: slots of 1 ms, 64 ms, 4.1 s, 4.4 min, 4.7 h, 12.4 days */
#define MRT__WHEEL_LEVELS_NS_NR 4u      /* below it: they sort the millisecond that is due */
#define MRT__WHEEL_LEVELS_NR (MRT__WHEEL_LEVELS_MS_NR + MRT__WHEEL_LEVELS_NS_NR)
#define MRT__WHEEL_SLOTS_NR 64u         /* per level: one bit each in a uint64_t */
#define MRT__WHEEL_RECENT (MRT__WHEEL_LEVELS_NR * MRT__WHEEL_SLOTS_NR) /* `where` of what has no place yet */
#define MRT__WHEEL_RECENT_MAX 64u       /* of these; one more places them all */
/* what is further away asks for its next step at once, see mrt__wheel_is_far() */
#define MRT__WHEEL_FAR_NS (UINT64_C(365) * 24 * 3600 * MRT__NS_PER_SEC)

/* Entries that one advance() may move to a finer level: 8 for each that it may expire, and two small slots. */
#define MRT__WHEEL_SORT_MAX 16u
#define MRT__WHEEL_MOVES_MAX(max) (8u * (max) + 2 * MRT__WHEEL_SORT_MAX)

/**
 * One deadline, embedded in a sleep's op, where it overlays the arguments of I/O.
 *
 * @owner  the caller's memory. From insert to the return of remove, or of the advance that hands the entry out, it
 *         must neither move nor be freed, and next, pprev, deadline_ns and where are the wheel's
 */
struct mrt__wheel_entry {
	struct mrt__wheel_entry *next;
	struct mrt__wheel_entry **pprev; /* what points at this entry; NULL: not linked */
	uint64_t deadline_ns;            /* exact, as the caller gave it */
	uint16_t where;                  /* level * 64 + slot, so that remove finds the slot; or MRT__WHEEL_RECENT */
	uint16_t owner;                  /* caller's: index of the worker whose wheel holds it */
	atomic_uint state;               /* caller's: armed, fired or cancelled; in the wheel, written under its lock */
};

_Static_assert(sizeof(struct mrt__wheel_entry) == 32, "overlays the I/O arguments of an op");

struct mrt__wheel_slot {
	struct mrt__wheel_entry *head;
	struct mrt__wheel_entry **tail; /* the last entry's next, or &head */
	uint64_t deadline_ns_min;       /* of its entries, or lower after a remove; empty: UINT64_MAX */
};

struct mrt__wheel {
	uint64_t start_ns;              /* time zero of positions */
	uint64_t elapsed;               /* position up to which all is expired; no slot that starts earlier has entries */
	uint64_t seen_ns;               /* `elapsed` is not before this: the now of an advance that left nothing to do */
	uint64_t nr;                    /* entries linked */
	struct mrt__wheel_entry *moving; /* rest of the slot that is being cascaded; they have left their slot */
	struct mrt__wheel_entry **moving_tail; /* its last entry's next; undefined if moving is NULL */
	uint32_t levels;                /* bit l: occupied[l] is not 0 */
	uint64_t occupied[MRT__WHEEL_LEVELS_NR];
	struct mrt__wheel_entry *recent; /* what has no place yet, in the order of its coming */
	struct mrt__wheel_entry **recent_tail; /* its last entry's next, or &recent */
	uint32_t recent_nr;
	struct mrt__wheel_slot slots[MRT__WHEEL_LEVELS_NR * MRT__WHEEL_SLOTS_NR];
};

/**
 * Make an empty wheel.
 *
 * @thread  the one that will own the wheel
 * @blocks  never
 *
 * @param w       may not be moved or copied afterwards: it points into itself
 * @param now_ns  time zero of the slots; CLOCK_MONOTONIC or a simulated clock
 */
void mrt__wheel_init(struct mrt__wheel *w, uint64_t now_ns);

/* Give the recent entries their places. O(MRT__WHEEL_RECENT_MAX). @thread any, under the caller's lock; @blocks never */
void mrt__wheel_place(struct mrt__wheel *w);

/**
 * Link an entry. O(1), whatever the deadline and whatever the slot holds.
 *
 * It gets its place later, when somebody asks for what is next or due: most timeouts are cancelled before, and then cost
 * a list's link and unlink. What is inserted into a list of MRT__WHEEL_RECENT_MAX places these first.
 *
 * A deadline in the past is due at the next advance(); among the entries that are due it stands where one with a
 * deadline of "the latest now that the wheel has seen" would stand. UINT64_MAX is for ever. (So is, in effect,
 * a deadline 2^44 ms = 557 years after init: expired exactly, but no longer ordered among its kind.)
 *
 * @thread  any, under the caller's lock
 * @owner   the wheel's, see the struct; writes next, pprev, deadline_ns and where, reads none of them (so the entry
 *          need not be zeroed), and leaves owner and state alone
 * @blocks  never
 *
 * @param e            not linked
 * @param deadline_ns  same clock as the now of init() and advance()
 */
static inline void mrt__wheel_insert(struct mrt__wheel *w, struct mrt__wheel_entry *e, uint64_t deadline_ns)
{
	if (mrt__unlikely(w->recent_nr == MRT__WHEEL_RECENT_MAX))
		mrt__wheel_place(w);
	e->deadline_ns = deadline_ns;
	e->where = MRT__WHEEL_RECENT;
	e->next = NULL;
	e->pprev = w->recent_tail;
	*w->recent_tail = e;
	w->recent_tail = &e->next;
	w->recent_nr++;
	w->nr++;
}

/* Unlink one that has its place. Contract as below. */
void mrt__wheel_remove_placed(struct mrt__wheel *w, struct mrt__wheel_entry *e);

/**
 * Unlink an entry before its time. O(1).
 *
 * @thread  any, under the caller's lock
 * @owner   the entry is the caller's again on return
 * @blocks  never
 *
 * @param e  linked in w (then pprev is not NULL); otherwise abort, or a broken wheel where that cannot be seen
 */
static inline void mrt__wheel_remove(struct mrt__wheel *w, struct mrt__wheel_entry *e)
{
	struct mrt__wheel_entry *next = e->next, **pprev = e->pprev;

	if (e->where != MRT__WHEEL_RECENT) {
		mrt__wheel_remove_placed(w, e);
		return;
	}
	mrt__assert(pprev && *pprev == e);
	mrt__assert(w->nr > 0);
	*pprev = next;
	if (next)
		next->pprev = pprev;
	else
		w->recent_tail = pprev;
	e->pprev = NULL;
	w->recent_nr--;
	w->nr--;
}

/**
 * Take out what is due, earliest deadline first.
 *
 * Never early: only entries with deadline_ns <= now_ns. Equal deadlines come in no promised order (in that of
 * insertion, where few entries share a slot). A now_ns below an earlier one is tolerated: nothing fires that is not due
 * by this now_ns, and what was inserted meanwhile fires on time.
 *
 * Work is bounded by max expiries and MRT__WHEEL_MOVES_MAX(max) moves, since the caller holds a lock. A crowded slot of
 * an upper level can use up the moves before anything expires, so the rule is **call again while mrt__wheel_is_due(w,
 * now_ns)**, which covers every reason to stop early. (A return of max says only that there may be more.) Not to ask
 * delays entries until the next call and loses none. (The one unbounded case: a clock that stepped back while many
 * entries with past deadlines were inserted; they are looked through once a call.)
 *
 * @thread  any, under the caller's lock
 * @owner   the entries returned are the caller's
 * @blocks  never
 *
 * @param max       most entries to take; 0 expires nothing and only does moves: see mrt__wheel_catch_up()
 * @param ret_list  always written: [return value] entries in order of deadline, linked by next, the last one's next
 *                  is NULL; pprev is NULL in each; NULL if none
 * @return entries taken, 0..max
 */
unsigned mrt__wheel_advance(struct mrt__wheel *w, uint64_t now_ns, unsigned max, struct mrt__wheel_entry **ret_list);

/**
 * When advance() is needed next: the earliest deadline of all, on whatever level it is. O(1).
 *
 * Never late. Early if the entry with that deadline was removed while others shared its slot (once for each such
 * slot), and if all deadlines are more than 2.18 years away (then once in up to 2.18 years). If advance() stopped early
 * it is in the past, or 0 for "at once": a time to compare with, not one to measure lateness by.
 *
 * @thread  any, under the caller's lock
 * @blocks  never
 * @return ns, or UINT64_MAX: nothing to wait for
 */
uint64_t mrt__wheel_next(struct mrt__wheel *w);

/**
 * Tell the wheel what time it is, expiring nothing. O(1), a few ns; a compare if it knows of this millisecond.
 *
 * An entry's slot is as wide as its distance from the time that the wheel knows. If that is an hour old, because
 * nothing was due for an hour, the next million sleeps share one slot and would be moved when the first of them is
 * due, which makes that one late by all the moves. So whoever inserts without having called advance() in this tick
 * calls this first. A time that is less than a millisecond old will do: what is due in the next one then stands in a slot
 * of a millisecond at most, which is taken apart when it comes due.
 *
 * @thread  any, under the caller's lock
 * @blocks  never
 * @return false: it knew, and nothing has changed
 */
static inline bool mrt__wheel_catch_up(struct mrt__wheel *w, uint64_t now_ns)
{
	struct mrt__wheel_entry *none;

	if (mrt__likely(now_ns - w->seen_ns < MRT__NS_PER_MS)) /* a clock that stepped back: a huge difference */
		return false;
	(void)mrt__wheel_advance(w, now_ns, 0, &none); /* always 0 */
	return true;
}

/* Is a deadline so far away that advance() may be needed before? Nearly: that begins with 2.18 years. */
static inline bool mrt__wheel_is_far(uint64_t deadline_ns, uint64_t now_ns)
{
	return deadline_ns > now_ns && deadline_ns - now_ns >= MRT__WHEEL_FAR_NS;
}

/**
 * Until when may one who is allowed to be late by slack_ns sleep, so that as much as possible is due then? O(levels).
 *
 * The instant is one at which something is due, as far as the wheel knows: a deadline that is alone is not delayed.
 *
 * @thread  as next()
 * @blocks  never
 * @return next(), or up to slack_ns later
 */
uint64_t mrt__wheel_next_within(struct mrt__wheel *w, uint64_t slack_ns);

/* Has advance(now_ns) something to do? Also right at now_ns == UINT64_MAX, which expires all. @thread as next() */
static inline bool mrt__wheel_is_due(struct mrt__wheel *w, uint64_t now_ns)
{
	return w->nr > 0 && mrt__wheel_next(w) <= now_ns;
}

/* Entries linked. @thread any, under the caller's lock; @blocks never */
static inline uint64_t mrt__wheel_nr(const struct mrt__wheel *w)
{
	return w->nr;
}

/**
 * Walk everything and compare it with the invariants in wheel.c.
 *
 * @thread  any, under the caller's lock
 * @blocks  on why
 * @param why  gets a sentence if something is wrong; may be NULL
 * @return sound
 */
bool mrt__wheel_check(const struct mrt__wheel *w, FILE *why);

#endif
