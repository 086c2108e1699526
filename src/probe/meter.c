/* SPDX-License-Identifier: MIT */
/*
 * See meter.h. All of it off the paths that run all the time: after a clock read, or when somebody has turned a knob.
 *
 * Ops are sampled by a count that is drawn anew around its mean, since ops come in batches of powers of two: every 32nd
 * would always be the same one of its batch.
 */
#include "probe/meter.h"

#include <string.h>

#define SHIFT_MAX 31u

_Static_assert(MRT_OP_HIST_NR == MRT_OP_SLOTS_NR * MRT_HIST_NR, "a histogram a slot");
_Static_assert(MRT_HIST_NR == (36 - MRT_HIST_FIRST_SHIFT) * 4 + 2, "the last bucket begins at 2^36 ns");

unsigned mrt__hist_bucket(uint64_t ns)
{
	unsigned top, bucket;

	if (ns < UINT64_C(1) << MRT_HIST_FIRST_SHIFT)
		return 0;
	top = 63 - (unsigned)__builtin_clzll(ns);
	bucket = (top - MRT_HIST_FIRST_SHIFT) * 4 + (unsigned)(ns >> (top - 2) & 3) + 1;
	return mrt__min(bucket, MRT_HIST_NR - 1u);
}

/* What a timing comes to: one in how many, less one; all ones: none. */
static uint32_t mask_of(uint32_t timing, uint32_t shift)
{
	if (timing == MRT_TIMING_FULL)
		return 0;
	if (timing == MRT_TIMING_SAMPLED)
		return (uint32_t)((UINT64_C(1) << mrt__min(shift, SHIFT_MAX)) - 1);
	return UINT32_MAX;
}

void mrt__meter_update(struct mrt__meter *m)
{
	const mrt__ctl_word *c = (const void *)m->ctl;
	struct mrt_ctl ctl;
	uint32_t op_mask;

	m->seen[0] = mrt__stat_get(&c[0]);
	m->seen[1] = mrt__stat_get(&c[1]);
	m->seen[2] = mrt__stat_get(&c[2]);
	memcpy(&ctl, m->seen, sizeof(ctl));
	m->seen_listeners = mrt__meter_listeners();
	m->watch_end = UINT64_MAX;
	if (m->clock_ns < ctl.watched_until_ns) {
		m->watch_end = ctl.watched_until_ns;
		ctl.poll_timing = ctl.op_timing = MRT_TIMING_FULL;
	}

	m->record_mask = mask_of(ctl.poll_timing, ctl.poll_shift);
	m->records_polls = m->record_mask != UINT32_MAX;
	m->shows_start = m->record_mask == 0;
	m->poll_mask = mrt__min(m->record_mask, MRT__METER_SCHED_MASK);
	if (mrt__listens(poll_start) || mrt__listens(poll_end))
		m->poll_mask = 0;

	op_mask = mask_of(ctl.op_timing, ctl.op_shift);
	m->records_ops = op_mask != UINT32_MAX;
	if (mrt__listens(op_complete))
		op_mask = 0;
	m->op_interval = op_mask == UINT32_MAX ? UINT32_MAX : op_mask + 1;
	m->op_left = mrt__meter_op_draw(m);
}

void mrt__meter_init(struct mrt__meter *m, const struct mrt__stats *stats, unsigned worker, uint64_t now, uint32_t random)
{
	memset(m, 0, sizeof(*m));
	m->stats = &stats->workers[worker];
	m->hists = &stats->hists[worker];
	m->ctl = stats->ctl;
	mrt__meter_set_clock(m, now);
	m->turns_left = 1;
	m->random = random;
	mrt__meter_update(m);
}

uint32_t mrt__meter_op_draw(struct mrt__meter *m)
{
	uint32_t interval = m->op_interval;

	if (interval == 1 || interval == UINT32_MAX)
		return interval;
	/* a linear congruence (Knuth's constants), of which the high bits are good */
	m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return interval / 2 + 1 + (uint32_t)((m->random >> 32) * (interval - 1) >> 32);
}

void mrt__meter_poll_end(struct mrt__meter *m, uint64_t polls, uint64_t ns)
{
	struct mrt_worker_hists *h = m->hists;

	if (!m->records_polls || (polls & m->record_mask) != 0)
		return;
	mrt__stat_add(&h->polls_timed, 1);
	mrt__stat_add(&h->poll_sum_ns, ns);
	if (ns > h->poll_max_ns)
		mrt__stat_set(&h->poll_max_ns, ns);
	mrt__stat_add(&h->poll[mrt__hist_bucket(ns)], 1);
}

/* The histogram of an opcode; NULL: all slots have others. */
static uint64_t *op_hist(struct mrt_worker_hists *h, unsigned opcode)
{
	unsigned i;

	for (i = 0; i < MRT_OP_SLOTS_NR; i++) {
		if (h->op_slot[i] == 0)
			mrt__stat_set(&h->op_slot[i], opcode + 1);
		if (h->op_slot[i] == opcode + 1)
			return &h->op_hist[i * MRT_HIST_NR];
	}
	return NULL;
}

void mrt__meter_op_end(struct mrt__meter *m, unsigned opcode, bool ends_by_itself, uint64_t ns)
{
	struct mrt_worker_hists *h = m->hists;
	unsigned bucket = mrt__hist_bucket(ns);
	uint64_t *by_opcode;

	if (!m->records_ops)
		return;
	mrt__stat_add(&h->ops_timed, 1);
	mrt__stat_add(&h->op_timed[opcode % MRT_OPCODES_NR], 1);
	mrt__stat_add(&h->op_sum_ns[opcode % MRT_OPCODES_NR], ns);
	by_opcode = op_hist(h, opcode % MRT_OPCODES_NR);
	if (by_opcode)
		mrt__stat_add(&by_opcode[bucket], 1);
	if (ends_by_itself) {
		mrt__stat_add(&h->io_sum_ns, ns);
		mrt__stat_add(&h->io[bucket], 1);
	} else {
		mrt__stat_add(&h->peer_sum_ns, ns);
		mrt__stat_add(&h->peer[bucket], 1);
	}
}

void mrt__meter_clock(struct mrt__meter *m, uint64_t now)
{
	uint64_t ns = now - m->clock_ns;

	m->turns_left = MRT__METER_TURNS;
	if (m->looks > 0) {
		mrt__stat_add(&m->stats->local_queue_ns, m->queue_sum * ns / (2 * (uint64_t)m->looks));
		mrt__stat_add(&m->stats->inflight_ns, m->inflight_sum * ns / m->looks);
	}
	m->looks = 0;
	m->queue_sum = m->inflight_sum = 0;
	mrt__meter_set_clock(m, now);
	mrt__meter_look(m);
}
