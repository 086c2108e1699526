/* SPDX-License-Identifier: MIT */
/*
 * Task memory: one heap per worker (and a few, locked, for threads outside), slabs of 64 KiB cut into cells of one size
 * class. Allocation and the owner's frees are plain pops and pushes; others free through one lock-free stack per heap,
 * which the owner takes whole. A cell's slab is found by masking its address, so tasks need no back pointer, and the
 * runtime enumerates its tasks by walking the slabs.
 *
 *	function                  owner   other thread     progress
 *	mrt__heap_alloc           yes     X                wait-free but for a new slab (mmap)
 *	mrt__heap_free            yes     yes              owner wait-free, others lock-free
 *	mrt__heap_walk            yes     X                wait-free
 *
 * Emptied slabs are kept for reuse. What exceeds MRT__HEAP_WARM_MAX is given back to the kernel by mrt__heap_trim(), when
 * the owner has nothing else to do: never by a free, since the last tasks of a burst empty most of its slabs, and would pay
 * for all of them. Address space goes back with the heap.
 */
#ifndef MRT_SCHED_HEAP_H
#define MRT_SCHED_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define MRT__SLAB_BYTES ((size_t)64 << 10)
#define MRT__SLAB_HEADER_BYTES 128u
#define MRT__HEAP_CHUNK_BYTES ((size_t)1 << 20) /* mapped at once */
#define MRT__HEAP_CELL_MAX 8192u                /* larger cells get a mapping of their own */
#define MRT__HEAP_FINE_STEP 32u                 /* classes up to MRT__HEAP_FINE_MAX */
#define MRT__HEAP_FINE_MAX 1024u
#define MRT__HEAP_COARSE_STEP 256u              /* and from there on */
#define MRT__HEAP_CLASSES_NR                                                                    \
	(MRT__HEAP_FINE_MAX / MRT__HEAP_FINE_STEP +                                             \
	 (MRT__HEAP_CELL_MAX - MRT__HEAP_FINE_MAX) / MRT__HEAP_COARSE_STEP)

#define MRT__HEAP_WARM_MAX 128u                 /* empty slabs that keep their memory: 8 MiB */

struct mrt__heap;
struct mrt__heap_chunk;

/* A free cell: the second word, because the task word (the second too: dead, without LIVE) must not be mistaken. */
struct mrt__heap_cell {
	uint64_t resume_and_flags;      /* left alone */
	uint64_t word;                  /* 0: no task here */
	struct mrt__heap_cell *next;
};

struct mrt__slab {
	struct mrt__heap *heap;
	struct mrt__slab *next, **pprev;        /* heap->slabs */
	struct mrt__slab *partial_next, **partial_pprev;        /* NULL pprev: not in the list */
	struct mrt__heap_cell *free;
	uint32_t cell_bytes;
	uint32_t cells_nr;
	uint32_t used_nr;       /* cells handed out at least once: the ones before it are initialised */
	uint32_t live_nr;       /* cells handed out and not (yet) seen freed */
	uint32_t class_idx;
	size_t map_bytes;       /* a mapping of its own; 0: part of a chunk */
};
_Static_assert(sizeof(struct mrt__slab) <= MRT__SLAB_HEADER_BYTES, "the header has its room");

struct mrt__heap_class {
	struct mrt__slab *partial;      /* slabs with a free cell; the first serves */
};

struct mrt__heap {
	struct mrt__heap_class classes[MRT__HEAP_CLASSES_NR];
	struct mrt__slab *slabs;        /* all slabs in use, for the walk */
	struct mrt__slab *warm;         /* empty slabs that are still backed by memory */
	unsigned warm_nr;
	struct mrt__slab *spare;        /* empty slabs without memory, but for their header's page */
	struct mrt__heap_chunk *chunks;
	uint64_t allocs;                /* owner: cells handed out, ever */
	uint64_t frees;                 /* owner: cells freed by it, ever */
	/* others: freed cells, and how many; taken whole by the owner, so no ABA */
	mrt__cache_aligned _Atomic(struct mrt__heap_cell *) remote;
	_Atomic uint64_t remote_frees;
};

void mrt__heap_init(struct mrt__heap *heap);

/* Unmap everything. No cell may be in use. */
void mrt__heap_fini(struct mrt__heap *heap);

/*
 * A cell of at least `bytes`, 32-byte aligned; NULL: no memory. Contents undefined, but for cells of more than
 * MRT__HEAP_CELL_MAX bytes: those are zero. @thread owner
 */
void *mrt__heap_alloc(struct mrt__heap *heap, size_t bytes);

/* Free a cell whose word is already 0. @thread any; `self` is the calling worker's own heap, or NULL */
void mrt__heap_free(void *cell, struct mrt__heap *self);

/* Does it keep more empty memory than it should for long? @thread owner */
static inline bool mrt__heap_can_trim(const struct mrt__heap *heap)
{
	return heap->warm_nr > MRT__HEAP_WARM_MAX;
}

/* Give one empty slab's memory back: a system call. @thread owner; mrt__heap_can_trim() */
void mrt__heap_trim(struct mrt__heap *heap);

/* Call fn for each cell that was ever handed out, free ones included (look at its word). @thread owner */
void mrt__heap_walk(struct mrt__heap *heap, void (*fn)(void *cell, void *ctx), void *ctx);

/* Cells in use, by racy counters: exact while nobody allocates or frees. @thread any */
uint64_t mrt__heap_live(const struct mrt__heap *heap);

#endif
