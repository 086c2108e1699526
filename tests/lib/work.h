/* SPDX-License-Identifier: MIT */
/*
 * What the runtimes do that tests look at from outside: polls and ops of which there is a number that is known, turns of the ring,
 * and polls that do not end.
 */
#ifndef MRT_TESTS_WORK_H
#define MRT_TESTS_WORK_H

#include <stdatomic.h>
#include <stdint.h>

#include <martlet/martlet.h>

/* Tasks one after the other, each of so many yields. Then all workers are parked, but for a current-thread runtime's. */
#define WORK_TASKS 50u
#define WORK_YIELDS 20u
#define WORK_POLLS (WORK_TASKS * (WORK_YIELDS + 1))
void work_polls(struct mrt_runtime *rt);

/* One task that waits for one nop after the other; as above. */
#define WORK_NOPS 320u
void work_nops(struct mrt_runtime *rt);

/* Turns of the ring in which a worker takes over what is to be timed, or notices who listens. */
struct work_turner {
	struct mrt_op op;
	unsigned i;
};
enum mrt_poll work_turner_poll(struct mrt_task *self, void *frame);

/* A poll that should have been an op: it sleeps for good. Needs no frame. */
enum mrt_poll work_stuck_poll(struct mrt_task *self, void *frame);

/* So many of them have begun, in this process. */
extern atomic_uint work_stuck_nr;

/* Get one worker stuck, and all; return when they are. */
void work_get_stuck(struct mrt_runtime *rt);
void work_get_all_stuck(struct mrt_runtime *rt);

/* For checksums: each bit of x in many. */
static inline uint64_t work_mix(uint64_t x)
{
	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 32;
}

#endif
