/* SPDX-License-Identifier: MIT */
/*
 * What the unit tests of the ring share: one thread that makes a ring, stages ops on it and collects them.
 *
 * Tests of the ring run where Check forks, so the globals are each test's own.
 */
#ifndef MRT_TESTS_RINGTEST_H
#define MRT_TESTS_RINGTEST_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "ring/ring.h"

#define MS MRT__NS_PER_MS
#define SEC MRT__NS_PER_SEC
#define PATIENCE (25 * SEC)     /* a test that waits so long has failed */
#define OPS_MAX 1024

extern struct mrt_worker_stats stats;           /* of the ring made last */
extern uint64_t ops[OPS_MAX];                   /* their addresses are what the ring is given */
extern struct mrt__ring_done done[OPS_MAX];     /* what collect() has collected */

struct mrt__ring *make_ring_opts(const struct mrt__ring_opts *opts);
struct mrt__ring *make_enabled_opts(const struct mrt__ring_opts *opts);
struct mrt__ring *make_ring(unsigned sq_entries, unsigned cq_entries, unsigned tier);
struct mrt__ring *make_enabled(unsigned sq_entries, unsigned cq_entries, unsigned tier);
void end_ring(struct mrt__ring *ring);

bool stage_nop(struct mrt__ring *ring, void *user);
bool stage_read(struct mrt__ring *ring, int fd, void *buf, uint32_t len, uint64_t off, void *user);

/* Reap until nr ops are in done[]. */
void collect(struct mrt__ring *ring, unsigned nr);

/* Stage one op, collect it. @return its result */
int32_t run_op(struct mrt__ring *ring, const struct mrt__ring_args *args);

/* No op comes for a while; own completions are consumed. */
void assert_quiet(struct mrt__ring *ring);

void make_pipe(int fds[2]);
unsigned count_fds(void);

/* Run fn in a process of its own, since what it does to the process cannot be undone. fn's asserts end that process. */
void in_child(int (*fn)(void));

#define CHILD_ASSERT(c) do {                                                                    \
	if (!(c)) {                                                                             \
		fprintf(stderr, "%s:%d: child: %s is false\n", __FILE__, __LINE__, #c);         \
		return 1;                                                                       \
	}                                                                                       \
} while (0)

/* 0, or the error of making a ring, with its sentence in why. */
int try_create(unsigned sq_entries, unsigned cq_entries, char *why, size_t why_bytes);

/* main() of a test of the ring: runs the suite, or says why not and returns 77. */
int ring_main(Suite *suite);

#endif
