/* SPDX-License-Identifier: MIT */
/*
 * A worker's meter: what is timed, and the sums behind the integrals. The owner's alone.
 *
 * What is asked for (mrt_ctl, and probes that somebody listens to) is looked at every few ring turns and turned into the few
 * words that the paths of polls and ops compare with, so that these pay one branch that is there anyway:
 *
 *	polls  every poll whose number has no bit of poll_mask is timed. One in 64 always is, for the scheduler; what is
 *	       counted for the statistics is up to record_mask
 *	ops    op_left counts down to the next op that is timed
 */
#ifndef MRT_PROBE_METER_H
#define MRT_PROBE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "probe/stat.h"
#include "probe/usdt.h"

#define MRT__METER_SCHED_MASK 63u       /* one poll in 64 is timed in any case: the scheduler looks for slow tasks */
#define MRT__METER_TURNS 8u             /* a clock read every so many turns at least */

/*
 * clock_ns in 30 bits, for ops: so many ns >> 22 (4 ms), shifted left by 2. Wraps after 52 days.
 */
#define MRT__METER_STAMP_SHIFT 20u
#define MRT__METER_STAMP_MASK (~UINT32_C(3))

/* Two words of mrt_ctl in one look; the third look is at watched_until_ns. */
typedef uint64_t __attribute__((may_alias)) mrt__ctl_word;
_Static_assert(sizeof(struct mrt_ctl) == 3 * sizeof(mrt__ctl_word), "looked at in three");

struct mrt__meter {
	struct mrt_worker_stats *stats;
	struct mrt_worker_hists *hists;
	const struct mrt_ctl *ctl;
	mrt__ctl_word seen[3];          /* ctl as it was taken over */
	uint64_t watch_end;             /* all is timed until then; UINT64_MAX: nobody looks */
	uint8_t seen_listeners;         /* mrt__meter_listeners() then */
	bool records_polls;
	bool records_ops;
	bool shows_start;               /* full: poll_start_ns is set */
	uint32_t poll_mask;
	uint32_t record_mask;
	uint32_t op_left;               /* ops until one is timed */
	uint32_t op_interval;           /* their mean distance; UINT32_MAX: none is */
	uint64_t random;
	uint32_t turns_left;            /* turns until the clock is read anyway */
	uint32_t stamp;                 /* of clock_ns: for each op that begins */

	/* since clock_ns */
	uint32_t looks;                 /* turns: how often the depths were looked at */
	uint64_t queue_sum;
	uint64_t inflight_sum;
	uint64_t clock_ns;
};

static inline void mrt__meter_set_clock(struct mrt__meter *m, uint64_t now)
{
	m->clock_ns = now;
	m->stamp = (uint32_t)(now >> MRT__METER_STAMP_SHIFT) & MRT__METER_STAMP_MASK;
}

/* @param random  any number: where sampling begins */
void mrt__meter_init(struct mrt__meter *m, const struct mrt__stats *stats, unsigned worker, uint64_t now, uint32_t random);

/* Take over what ctl and the listeners ask for, at clock_ns. */
void mrt__meter_update(struct mrt__meter *m);

/* Who listens, a bit each: one that comes is seen also where another listens already. */
static inline uint8_t mrt__meter_listeners(void)
{
#if MRT__USDT
	return (uint8_t)((mrt__sem_poll_start != 0) | (mrt__sem_poll_end != 0) << 1 | (mrt__sem_op_complete != 0) << 2);
#else
	return 0;
#endif
}

/* Has somebody turned the knobs? When the clock is read, and after a sleep. */
static inline void mrt__meter_look(struct mrt__meter *m)
{
	const mrt__ctl_word *c = (const void *)m->ctl;

	if (mrt__unlikely(mrt__stat_get(&c[0]) != m->seen[0] || mrt__stat_get(&c[1]) != m->seen[1] ||
			  mrt__stat_get(&c[2]) != m->seen[2] || m->clock_ns >= m->watch_end ||
			  mrt__meter_listeners() != m->seen_listeners))
		mrt__meter_update(m);
}

/* Is the poll timed that comes after `polls` others? */
static inline bool mrt__meter_times_poll(const struct mrt__meter *m, uint64_t polls)
{
	return (polls & m->poll_mask) == 0;
}

/* Note the time of a poll. @param polls  as it was before the poll */
void mrt__meter_poll_end(struct mrt__meter *m, uint64_t polls, uint64_t ns);

/* Ops until the next one that is timed: the mean, and up to a half of it more or less. */
uint32_t mrt__meter_op_draw(struct mrt__meter *m);

/* An op is staged. @return true: it is to be timed */
static inline bool mrt__meter_op_start(struct mrt__meter *m, unsigned opcode)
{
	mrt__stat_add(&m->hists->op_nr[opcode % MRT_OPCODES_NR], 1);
	if (mrt__likely(--m->op_left > 0))
		return false;
	m->op_left = mrt__meter_op_draw(m);
	return true;
}

/* A timed op was reaped. */
void mrt__meter_op_end(struct mrt__meter *m, unsigned opcode, bool ends_by_itself, uint64_t ns);

/*
 * The depths at the end of a turn. Between two turns a queue falls more or less evenly, so its mean length is that of the
 * end of one and the begin of the next; it is empty at a turn's begin, unless the turn was due in any case: then whoever
 * takes the turn adds to queue_sum before.
 */
static inline void mrt__meter_depths(struct mrt__meter *m, uint32_t queue, uint32_t inflight)
{
	m->queue_sum += queue;
	m->inflight_sum += inflight;
	m->looks++;
}

/* The turn that reads the clock, or a park: bring the integrals up to now, look at the knobs. */
void mrt__meter_clock(struct mrt__meter *m, uint64_t now);

/* A sleep is over: nothing was queued, ops went on. */
static inline void mrt__meter_slept(struct mrt__meter *m, uint32_t inflight, uint64_t slept_ns, uint64_t now)
{
	mrt__stat_add(&m->stats->inflight_ns, inflight * slept_ns);
	mrt__meter_set_clock(m, now);
	mrt__meter_look(m);
}

/* The bucket of a duration. */
unsigned mrt__hist_bucket(uint64_t ns);

#endif
