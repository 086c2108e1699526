/* SPDX-License-Identifier: MIT */
/* The simulated kernel's tables of registered buffers and files: see sim_regs.c. */
#ifndef MRT_TESTS_SIM_REGS_H
#define MRT_TESTS_SIM_REGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mrt__ring;

struct sim_region {
	uintptr_t base;
	size_t bytes;                   /* 0: the slot is empty */
};

/* Of one ring. */
struct sim_tables {
	struct sim_region *buffers;     /* [buffers_nr] */
	unsigned buffers_nr;
	int *files;                     /* [files_nr], -1: empty */
	unsigned files_nr;
};

/* Does the slot hold all of [addr, addr + bytes)? */
bool sim_tables_hold(const struct sim_tables *t, unsigned slot, uintptr_t addr, size_t bytes);
/* The descriptor in a slot, -1: it is empty, or there is no such slot */
int sim_tables_file(const struct sim_tables *t, unsigned slot);
void sim_tables_fini(struct sim_tables *t);

/* Nobody has forgotten a donor. */
void sim_donors_check(void);

/* sim_ring.c: a ring's tables; its worker asks, and the ring is enabled. */
struct sim_tables *sim_ring_tables(struct mrt__ring *ring);
/* Ops in flight that name a registered buffer. */
unsigned sim_ring_fixed_nr(const struct mrt__ring *ring);

#endif
