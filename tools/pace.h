/* SPDX-License-Identifier: MIT */
/*
 * The schedule of an open loop: when the k-th I/O of a job should start, whatever became of those before it. Shared by
 * the job's slots: a slot that is free claims the next start and waits for it, so a start is late only when all slots
 * are busy or the machine is.
 */
#ifndef TOOLS_PACE_H
#define TOOLS_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pace {
	atomic_flag held;       /* a spin lock around the few instructions of a claim */
	bool poisson;           /* exponential gaps instead of equal ones */
	uint64_t start_ns;      /* schedule's origin */
	double gap_ns;          /* mean distance of two starts */
	double at_ns;           /* of the next start, from the origin */
	uint64_t rng;
};

/**
 * @param rate  starts a second, above 0
 */
void pace_init(struct pace *p, uint64_t rate, bool poisson, uint64_t seed);

/* Fix the origin: the first start is one gap later. Before any claim. */
void pace_begin(struct pace *p, uint64_t start_ns);

/**
 * Take the next start.
 *
 * @thread  any
 * @blocks  never; spins while another slot claims
 * @return ns, CLOCK_MONOTONIC; may have passed already
 */
uint64_t pace_claim(struct pace *p);

/* How many starts the schedule has up to now_ns, claimed or not; exact for equal gaps, the mean for poisson. */
uint64_t pace_offered(const struct pace *p, uint64_t now_ns);

#endif
