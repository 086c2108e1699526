/* SPDX-License-Identifier: MIT */
/* The simulated kernel's descriptors, and its tables of registered buffers and files: see sim_regs.c. */
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
	int *files;                     /* [files_nr] sim_fd_file(), -1: empty */
	unsigned files_nr;
};

/* Does the slot hold all of [addr, addr + bytes)? */
bool sim_tables_hold(const struct sim_tables *t, unsigned slot, uintptr_t addr, size_t bytes);
/* The file in a slot, -1: it is empty, or there is no such slot */
int sim_tables_file(const struct sim_tables *t, unsigned slot);
void sim_tables_fini(struct sim_tables *t);

/*
 * Descriptors of files that are to be registered. A number is used again as soon as it is closed, the lowest first; what
 * it names is told apart by the file: a number in the range of sim.h that says how it behaves, never used again.
 */
#define SIM_FD_FILES 50000
#define SIM_FDS_MAX 32u

/* @param range  SIM_FD_DISK, SIM_FD_STREAM, SIM_FD_IDLE @return descriptor, -1: all are in use */
int sim_fd_open(int range);
/* Another descriptor of the same file. */
int sim_fd_dup(int fd);
/* @return 0, -EBADF */
int sim_fd_close(int fd);
/* Is it the number of such a descriptor, open or not? */
bool sim_fd_is(int fd);
/* Its file, -1: closed. Other numbers of sim.h are files themselves. */
int sim_fd_file(int fd);
void sim_fds_start(void);
/* All are closed. */
void sim_fds_check(void);

/* Nobody has forgotten a donor. */
void sim_donors_check(void);

/* sim_ring.c: a ring's tables; its worker asks, and the ring is enabled. */
struct sim_tables *sim_ring_tables(struct mrt__ring *ring);
/* Ops in flight that name a registered buffer. */
unsigned sim_ring_fixed_nr(const struct mrt__ring *ring);

#endif
