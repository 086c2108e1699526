/* SPDX-License-Identifier: MIT */
/*
 * xorshift64+ over two 32-bit words (Marsaglia 2003, "Xorshift RNGs"; shifts 17, 7, 16 as Tokio's FastRand): picks
 * steal victims. Not for anything that an adversary may predict.
 */
#ifndef MRT_BASE_RAND_H
#define MRT_BASE_RAND_H

#include <stdint.h>

struct mrt__rand {
	uint32_t one, two;
};

static inline void mrt__rand_init(struct mrt__rand *r, uint64_t seed)
{
	r->one = (uint32_t)(seed >> 32);
	r->two = (uint32_t)seed;
	if (r->two == 0)
		r->two = 1;     /* all-zero is the fixed point */
}

static inline uint32_t mrt__rand_next(struct mrt__rand *r)
{
	uint32_t s1 = r->one, s0 = r->two;

	s1 ^= s1 << 17;
	s1 = s1 ^ s0 ^ s1 >> 7 ^ s0 >> 16;
	r->one = s0;
	r->two = s1;
	return s0 + s1;
}

/* 0 .. n - 1, by multiplication instead of division; n >= 1. */
static inline uint32_t mrt__rand_below(struct mrt__rand *r, uint32_t n)
{
	return (uint32_t)((uint64_t)mrt__rand_next(r) * n >> 32);
}

#endif
