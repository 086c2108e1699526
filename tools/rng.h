/* SPDX-License-Identifier: MIT */
/*
 * Random numbers for offsets, the read/write mix and buffer contents: xorshift64* (Vigna 2014, "An experimental
 * exploration of Marsaglia's xorshift generators, scrambled"), 8 bytes of state, about 1 ns. Seeds go through
 * splitmix64, so that neighbouring seeds give unrelated streams. Not for secrets.
 */
#ifndef TOOLS_RNG_H
#define TOOLS_RNG_H

#include <stdint.h>

/* A well mixed, never-zero state from any seed (0 is the generator's fixed point). */
static inline uint64_t rng_seed(uint64_t seed)
{
	uint64_t z = seed + UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	return z ? z : 1;
}

static inline uint64_t rng_next(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * UINT64_C(2685821657736338717);
}

/* 0 .. n - 1 by the high half of a product: no division, bias below n / 2^64. */
static inline uint64_t rng_below(uint64_t *state, uint64_t n)
{
	return (uint64_t)((unsigned __int128)rng_next(state) * n >> 64);
}

/* (0, 1]: never 0, so that its logarithm is finite. */
static inline double rng_unit(uint64_t *state)
{
	return ((double)(rng_next(state) >> 11) + 1.0) * 0x1p-53;
}

#endif
