/* SPDX-License-Identifier: MIT */
/*
 * The simulation: the whole runtime but for the kernel, on one thread, on a virtual clock, from one seed.
 *
 * sim_ring.c stands behind src/ring/ring.h and src/base/clock.h instead of the real ones. sim.c builds a scheduler with
 * several workers and interleaves their steps, also in the middle of a step: wherever a worker reads the clock or would
 * make a system call, others may run before it goes on. sim_actor.c has tasks that do random things and check what they
 * get. A program in tests/sim/ chooses what is tried and adds checks of its own.
 *
 * All of it is for the one thread that runs sim_main().
 */
#ifndef MRT_TESTS_LIB_SIM_H
#define MRT_TESTS_LIB_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/ring.h"
#include "sched/sched.h"
#include "sched/worker.h"

#define SIM_WORKERS_MAX 4u
#define SIM_NEVER UINT64_MAX
#define SIM_FILES_MAX 8u                /* few, so that slots are used again */
#define SIM_ARENA_BYTES (UINT64_C(8) << 20)

/* ---- chance ---- */

/* splitmix64 (Steele, Lea, Flood 2014): any seed is a good one, and streams do not disturb each other. */
struct sim_rand {
	uint64_t state;
};

static inline uint64_t sim_rand_next(struct sim_rand *r)
{
	uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0..n - 1; n >= 1 */
static inline uint64_t sim_rand_below(struct sim_rand *r, uint64_t n)
{
	return sim_rand_next(r) % n;
}

static inline bool sim_rand_chance(struct sim_rand *r, unsigned per_mille)
{
	return per_mille && sim_rand_below(r, 1000) < per_mille;
}

/* ---- the world ---- */

/* What the kernel can do with a donor's buffers. */
enum sim_clone {
	SIM_CLONE_NEVER,                /* before 6.12 */
	SIM_CLONE_ONCE,                 /* 6.12 */
	SIM_CLONE_SLOTS,                /* 6.13 */
};

/* What is tried; each seed draws its own (sim_opts_draw), a program may change it before sim_start(). */
struct sim_opts {
	unsigned workers_nr;            /* 1..SIM_WORKERS_MAX */
	uint32_t sq_entries;            /* powers of two, as mrt__ring_opts */
	uint32_t cq_entries;
	uint32_t inject_interval;
	uint32_t event_interval;
	bool tune_inject;
	bool tune_events;

	/* chances, per mille */
	unsigned preempt;               /* that others run, where a worker reads the clock or enters the kernel */
	unsigned freeze;                /* that a worker gets no turn for a while, per step */
	unsigned spurious;              /* that a sleeping worker wakes up for nothing, per step */
	unsigned refuse;                /* that an enter takes only part of what is staged */
	unsigned stale;                 /* that has_deferred is true with nothing there */
	unsigned inline_ends;           /* that an op ends while it is submitted */
	unsigned shorts;                /* that a read or write is short */
	unsigned errors;                /* that an op fails */
	unsigned reg_fails;             /* that a registration fails for want of memory */
	enum sim_clone clone;
	unsigned hide;                  /* that a cancel does not find an op at first, as on 6.1 */
	bool busy_overflow;             /* -EBUSY while completions overflow, as kernels up to 5.18 */

	uint64_t delay_ns_max;          /* of an op */
	uint64_t tick_ns_max;           /* of a worker's step */
};

/* How a worker of the simulation stands. */
struct sim_worker {
	struct mrt__worker *w;
	bool busy;                      /* in the middle of a step */
	bool parked;
	bool stopped;
	uint64_t until_ns;              /* parked: its time-out */
	uint64_t slip_ns;               /* parked: from its last look at the clock until it slept */
	uint64_t frozen_until_step;
};

struct sim {
	uint64_t seed;
	bool verbose;
	struct sim_rand rand;           /* of the world: who runs when */
	struct sim_rand ring_rand;      /* of the kernel */
	struct sim_opts opts;
	uint64_t now_ns;
	uint64_t steps;
	uint64_t steps_max;
	uint64_t preempt_left;          /* preemption points until the next preemption */
	unsigned depth;                 /* steps that were interrupted */
	uint64_t quiet_nr;              /* times that all workers slept */
	bool closing;
	bool registering;               /* somebody is interrupted while he registers memory: who allocates would wait for him */
	void (*on_quiet)(void);         /* all sleep: more checks, or NULL */
	struct mrt__sched *sched;
	struct mrt__ring *rings[SIM_WORKERS_MAX];
	struct sim_worker workers[SIM_WORKERS_MAX];
};

extern struct sim sim;

/* A failed check: says what, and how to see it again; ends the process. */
__attribute__((noreturn, format(printf, 1, 2)))
void sim_fail(const char *fmt, ...);

#define sim_check(c, ...) do {          \
	if (!(c))                       \
		sim_fail(__VA_ARGS__);  \
} while (0)

/* A line of the log: virtual time, worker, task, and what. Nothing unless the run is verbose. */
#define sim_log(...) do {                       \
	if (sim.verbose)                        \
		sim_log_line(__VA_ARGS__);      \
} while (0)
__attribute__((format(printf, 1, 2)))
void sim_log_line(const char *fmt, ...);

static inline uint64_t sim_below(uint64_t n)
{
	return sim_rand_below(&sim.rand, n);
}

static inline bool sim_chance(unsigned per_mille)
{
	return sim_rand_chance(&sim.rand, per_mille);
}

/* Draw options from the seed. */
void sim_opts_draw(struct sim_opts *opts);

/* Build the scheduler, rings, workers and pool from sim.opts. */
void sim_start(void);

/* One step of one worker, or of the pool, chosen by the seed. @return false: all sleep (or run further out) */
bool sim_step(void);

/* All sleep: check that rightly so, and move the clock to the next event. @return false: nothing will ever come */
bool sim_advance(void);

/* Step until no task is alive and all workers sleep for good. Fails if tasks are left that nothing will wake. */
void sim_run_to_idle(void);

/* Step, at most so many times or for so long; stops early when nothing is left to do. @return false: it did */
bool sim_run_steps(uint64_t steps);

/* Close: abort everything, and run until every worker has stopped. */
void sim_close(void);

/* After sim_close(): check that nothing is left anywhere, and free it all. */
void sim_finish(void);

/*
 * From inside a poll: this poll takes so long, and others run meanwhile.
 *
 * @thread  a running task's poll function
 */
void sim_stuck(uint64_t ns);

/* A place where the calling worker may be interrupted. Called by the ring and the clock, with no lock held. */
void sim_preempt(void);

/* The same inside a donor's registration, when the arena's locks are held and nobody waits for them but who allocates. */
void sim_preempt_registering(void);

/* ---- the ring's side (sim_ring.c) ---- */

/* Numbers of descriptors that mean something to the simulated kernel; below them are real ones. */
#define SIM_FD_DISK 10000               /* ends by itself; cancel often finds nothing */
#define SIM_FD_STREAM 20000             /* a stream: ends by itself, cancel works; bytes are numbered as they come */
#define SIM_FD_IDLE 30000               /* a peer that never says anything: ends only by a cancel */
#define SIM_FD_RANGE 10000
#define SIM_FD_PLAIN 5000               /* of each range these are used as descriptors, the rest are files: sim_regs.h */

/* The byte at `off` of a file or stream. */
uint8_t sim_pattern(int fd, uint64_t off);
void sim_pattern_fill(void *buf, size_t bytes, int fd, uint64_t off);
bool sim_pattern_is(const void *buf, size_t bytes, int fd, uint64_t off);

/* Position of a stream: bytes that were received or sent on it. */
uint64_t sim_stream_pos(int fd);

/* Deliver what is due by sim.now_ns. */
void sim_kernel_run(void);
/* When the next op ends or a sentry's timer goes off, or SIM_NEVER. */
uint64_t sim_kernel_next(void);
/* The first half of a wait: submit. @return true: sleep */
bool sim_ring_wait_begin(struct mrt__ring *ring);
/* Would a sleeping wait return? */
bool sim_ring_can_wake(const struct mrt__ring *ring);
/* The second half: run deferred work. */
void sim_ring_wait_end(struct mrt__ring *ring);

void sim_kernel_start(void);
/* Nothing is in flight, nothing leaked. */
void sim_kernel_finish(void);

/*
 * The ledger: what the kernel was given, and what it said. A test tells of each ring op before it starts it, and asks
 * afterwards.
 */
struct sim_op_history {
	uint64_t serial;
	unsigned stages;                /* times that it was staged */
	unsigned ends;                  /* times that it was handed back */
	int64_t moved;                  /* bytes, in all */
	int32_t last;                   /* the last result */
	bool cancel_seen;               /* a cancel was staged for it */
	unsigned twins_closed;          /* closes of other handles of its file that hit it, each once or more in a row */
	unsigned retries;               /* times that it was tried again after EAGAIN or EINTR */
	uint64_t stream_pos;            /* streams: where its bytes began */
};
void sim_op_begin(struct mrt_op *op, bool all);
/* ... what it is by, and on: numbers of sim_ledger.h, 0: a descriptor; memory that is not the arena's. After the above. */
void sim_op_uses(struct mrt_op *op, unsigned handle, unsigned block);
/* @return false: the kernel never saw it */
bool sim_op_end(struct mrt_op *op, struct sim_op_history *ret_history);
/* Serial number for the log, 0: not known. */
uint64_t sim_op_serial(const void *op);

/* ---- programs ---- */

struct sim_program {
	const char *name;
	void (*run)(void);              /* one seed */
};

/*
 * The main function of a program: seeds from MRT_SIM_FIRST (1) on for MRT_SIM_SECONDS (10); or
 *
 *	--seed N [--verbose]    one seed, with a log
 *	--seeds N               so many
 */
int sim_main(int argc, char **argv, const struct sim_program *program);

#endif
