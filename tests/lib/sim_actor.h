/* SPDX-License-Identifier: MIT */
/*
 * Actors: tasks that do random things with ops and with each other, and check all that they are told. What an actor
 * does is drawn from its own stream, so it does not depend on who runs when.
 */
#ifndef MRT_TESTS_LIB_SIM_ACTOR_H
#define MRT_TESTS_LIB_SIM_ACTOR_H

#include <stdbool.h>
#include <stdint.h>

/* What an actor may do. X(NAME, function) */
#define SIM_ACTS(X)                                                                                            \
	X(OP, act_op)           /* start one op, perhaps with a deadline or cancelled, and wait for it */      \
	X(ALL, act_all)         /* several, and wait for all */                                                \
	X(ANY, act_any)         /* several, wait for any, again and again, perhaps cancel the rest */          \
	X(SYNC, act_sync)       /* channel, semaphore, notify, oneshot */                                      \
	X(YIELD, act_yield)                                                                                    \
	X(BUDGET, act_budget)   /* many ops that end at once */                                                \
	X(SHIELD, act_shield)   /* ops that an abort leaves alone */                                           \
	X(SPAWN, act_spawn)     /* a child that nobody waits for */                                            \
	X(JOIN, act_join)       /* a child, waited for, perhaps aborted */                                     \
	X(SCOPE, act_scope)     /* children in a scope */                                                      \
	X(ABORT, act_abort)     /* somebody else, or itself */                                                 \
	X(BLOCKING, act_blocking)                                                                              \
	X(OPEN, act_open)       /* open and close */                                                           \
	X(FILE, act_file)       /* register a file, or end a handle */                                         \
	X(MEMORY, act_memory)   /* take a block of the arena, or free one */                                   \
	X(STUCK, act_stuck)     /* a poll that takes long */                                                   \
	X(FORGET, act_forget)   /* return with ops in flight */                                                \
	X(HANG, act_hang)       /* wait for what only an abort ends */

enum sim_act {
#define SIM_X(NAME, function) SIM_ACT_##NAME,
	SIM_ACTS(SIM_X)
#undef SIM_X
	SIM_ACTS_NR
};

struct sim_actors_opts {
	unsigned weights[SIM_ACTS_NR];
	unsigned acts_max;              /* of one actor */
	unsigned alive_max;             /* actors beyond which none spawns */
	unsigned depth_max;             /* generations */
	unsigned by_handle;             /* chance that an op is by a registered file, per mille */
	unsigned on_block;              /* ... on memory of the arena */
	unsigned twins;                 /* that a file is registered which has a handle, per mille */
	uint64_t sleep_ns_max;
	uint64_t stuck_ns_max;
};

/* Sensible options: everything but STUCK and HANG. */
void sim_actors_draw(struct sim_actors_opts *opts);

/* Begin; after sim_start(). */
void sim_actors_start(const struct sim_actors_opts *opts);

/* Spawn actors from outside, as a thread that is no worker. */
void sim_actors_spawn(unsigned nr);

/* What threads outside do now and then: abort, notify, release, send. */
void sim_actors_meddle(void);

/* Close the channels and the semaphore: whoever waits, or comes later, is told so. */
void sim_actors_close_objects(void);

/* All have ended: give handles back, and check what the shared objects have seen. Before sim_close() or after. */
void sim_actors_finish(void);

/* Actors that have begun and not ended. */
unsigned sim_actors_alive(void);

#endif
