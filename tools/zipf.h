/* SPDX-License-Identifier: MIT */
/*
 * Zipf-distributed block numbers: rank k (1..n) has weight k^-theta, and ranks are scattered over the blocks by a
 * bijection, so that the hot blocks are not neighbours.
 */
#ifndef TOOLS_ZIPF_H
#define TOOLS_ZIPF_H

#include <stdint.h>

struct zipf {
	uint64_t n;             /* blocks */
	double theta;           /* > 0 */
	double h_first, h_last; /* the integral of the hat at 1.5 (less 1) and n + 0.5 */
	double squeeze;         /* candidates this near below their rank need no exact test */
	uint64_t mul, add;      /* block = (rank * mul + add) mod n; mul is coprime to n */
};

/**
 * @param n      blocks, 1 or more
 * @param theta  above 0; 1 is allowed
 * @param seed   decides which blocks are hot
 */
void zipf_init(struct zipf *z, uint64_t n, double theta, uint64_t seed);

/**
 * @thread  any: z is read-only, the generator's state is the caller's
 * @return a block, 0 .. n - 1
 */
uint64_t zipf_next(const struct zipf *z, uint64_t *rng);

/* The rank behind the draw, 1 .. n: what zipf_next() scatters. */
uint64_t zipf_rank(const struct zipf *z, uint64_t *rng);

#endif
