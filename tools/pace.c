/* SPDX-License-Identifier: MIT */
/*
 * Coordinated omission is what this file exists to avoid: a closed loop, or a rate that is measured from the actual
 * start, stops asking while the device stalls and so never sees the stall. Here the schedule does not care.
 */
#include "pace.h"

#include <math.h>

#include "rng.h"

void pace_init(struct pace *p, uint64_t rate, bool poisson, uint64_t seed)
{
	atomic_flag_clear_explicit(&p->held, memory_order_relaxed); /* relaxed: nobody else has it yet */
	p->poisson = poisson;
	p->start_ns = 0;
	p->gap_ns = 1e9 / (double)rate;
	p->at_ns = 0;
	p->rng = rng_seed(seed);
}

void pace_begin(struct pace *p, uint64_t start_ns)
{
	p->start_ns = start_ns;
}

uint64_t pace_claim(struct pace *p)
{
	uint64_t when;

	/* [PACE.held.acq] the schedule as the last claimer left it; pairs with [PACE.held.rel] */
	while (atomic_flag_test_and_set_explicit(&p->held, memory_order_acquire))
		;
	p->at_ns += p->poisson ? -log(rng_unit(&p->rng)) * p->gap_ns : p->gap_ns;
	when = p->start_ns + (uint64_t)p->at_ns;
	/* [PACE.held.rel] pairs with [PACE.held.acq] */
	atomic_flag_clear_explicit(&p->held, memory_order_release);
	return when;
}

uint64_t pace_offered(const struct pace *p, uint64_t now_ns)
{
	return now_ns > p->start_ns ? (uint64_t)((double)(now_ns - p->start_ns) / p->gap_ns) : 0;
}
