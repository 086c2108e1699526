/* SPDX-License-Identifier: MIT */
/*
 * The ledger of handles and of blocks of the arena: which file a handle names and whether it still does; which block a
 * piece of memory belongs to. Numbers of entries begin with 1 and are never used again, whatever the runtime does with
 * slots and addresses; 0 is none.
 */
#ifndef MRT_TESTS_LIB_SIM_LEDGER_H
#define MRT_TESTS_LIB_SIM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_rand;

struct sim_handle {
	int handle;
	int fd;                         /* that was registered */
	int file;                       /* what it is a descriptor of: sim_fd_file() */
	unsigned closers;               /* ops that were to end it */
	unsigned closed;                /* ... and say that they have */
	bool ended;                     /* the descriptor was closed, or given back */
	bool twin;                      /* another handle is of the same open file */
};

/* A file was registered. */
unsigned sim_handle_new(int handle, int fd);
struct sim_handle *sim_handle_at(unsigned id);
/* The one that has not ended of this descriptor, or with `slot` of this slot; 0: none */
unsigned sim_handle_find(int fd, bool slot);
/* One of a range of files (SIM_FD_*, -1: any), perhaps one that has ended; 0: there is none */
unsigned sim_handle_draw(struct sim_rand *rand, int range, bool live);
/* The runtime lets go of a descriptor: whose handle it was must be ending, and no ring may have an op on it, or the file. */
void sim_handle_let_go(int fd);
/* ... and has: it was closed or given back. */
void sim_handle_ended(int fd);

struct sim_block {
	char *base;
	size_t bytes;
	bool freed;
	bool busy;                      /* an op uses it, or will for ever */
	bool starting;                  /* ... and is being started: who frees it now gets what he deserves, see arena.h */
};

/* A block was allocated. No op may be on its memory. */
unsigned sim_block_new(void *base, size_t bytes);
struct sim_block *sim_block_at(unsigned id);
/* One that may be freed, and with `idle` not in use; 0: there is none */
unsigned sim_block_draw(struct sim_rand *rand, bool idle);
/* One that was freed, and whose memory nobody has got since */
unsigned sim_block_draw_freed(struct sim_rand *rand);
/* Is it memory of the arena? Then it must be of this block. */
bool sim_block_check(unsigned id, uintptr_t addr, size_t bytes, uint64_t serial);
/* Before mrt_free(). */
void sim_block_freed(unsigned id);
/* All that are left. */
void sim_blocks_free(void (*free_fn)(unsigned id));

void sim_ledger_start(void);
/* Every handle that was closed has ended, and every block was freed. */
void sim_ledger_finish(void);

/*
 * sim_ring.c: serial number of an op that the ring has by a handle, or on memory; 0: none. And of one that only a cancel
 * ends, by a handle that somebody ends.
 */
uint64_t sim_op_by_handle(unsigned id);
uint64_t sim_op_left_waiting(void);
uint64_t sim_op_on_memory(uintptr_t base, size_t bytes);
/* Does the table of any ring have the file in this slot? */
bool sim_rings_have(unsigned slot, int file);

#endif
