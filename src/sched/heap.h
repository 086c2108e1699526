/* SPDX-License-Identifier: MIT */
/*
 * Task memory: one heap per worker (and a few, locked, for threads outside), slabs of 64 KiB cut into cells of one size
 * class. Allocation and the owner's frees are plain pops and pushes; others free through one lock-free stack per heap,
 * which the owner takes whole; a worker that frees tasks of another heap keeps them until they are a few, or it has nothing
 * left to run, since the stack is a line that all of them write. A cell's slab is found by masking its address, so tasks need
 * no back pointer, and the runtime enumerates its tasks by walking the slabs.
 *
 *	function                  owner   other thread     progress
 *	mrt__heap_alloc           yes     X                wait-free but for a new slab (mmap)
 *	mrt__heap_free            yes     yes              owner wait-free, others lock-free
 *	mrt__heap_flush           yes     X                lock-free
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

#include "base/assert.h"
#include "base/compiler.h"

#if MRT__ASAN
#include <sanitizer/asan_interface.h>
#endif

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
#define MRT__HEAP_AWAY_MAX 32u                  /* cells of another heap that are sent back together */

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
	struct mrt__heap *away_of;      /* owner: the other heap that these are of, */
	struct mrt__heap_cell *away_head, *away_tail; /* which it has freed and not sent back yet */
	unsigned away_nr;
	/* others: freed cells; taken whole by the owner, so no ABA */
	mrt__cache_aligned _Atomic(struct mrt__heap_cell *) remote;
};

void mrt__heap_init(struct mrt__heap *heap);

/* Unmap everything. No cell may be in use. */
void mrt__heap_fini(struct mrt__heap *heap);

static inline struct mrt__slab *mrt__slab_of(const void *cell)
{
	return (struct mrt__slab *)((uintptr_t)cell & ~(MRT__SLAB_BYTES - 1));
}

/* A large cell's slab is full as long as it lives. */
static inline bool mrt__slab_is_full(const struct mrt__slab *slab)
{
	return !slab->free && slab->used_nr == slab->cells_nr;
}

/* The only one of its class with a free cell: it stays when it is empty, as the next spawn will want it. */
static inline bool mrt__slab_is_kept(const struct mrt__heap *heap, const struct mrt__slab *slab)
{
	return heap->classes[slab->class_idx].partial == slab && !slab->partial_next;
}

/* It has become full. */
void mrt__slab_unlist(struct mrt__slab *slab);

/* AddressSanitizer: a free cell is poisoned, all but its first words. */
static inline void mrt__cell_poison(struct mrt__heap_cell *cell, size_t bytes)
{
#if MRT__ASAN
	ASAN_POISON_MEMORY_REGION(cell + 1, bytes - sizeof(*cell));
#else
	(void)cell;
	(void)bytes;
#endif
}

static inline void mrt__cell_unpoison(void *cell, size_t bytes)
{
#if MRT__ASAN
	ASAN_UNPOISON_MEMORY_REGION(cell, bytes);
#else
	(void)cell;
	(void)bytes;
#endif
}

/*
 * A cell of a slab that has one, and whether it was the last: the last one freed, else one never used before. An empty slab
 * is cut anew when it is used again, and not taken with its list: after a burst that others helped with, the list has the
 * order in which they were done, while cells in the order of their addresses come into the cache by themselves.
 */
static inline struct mrt__heap_cell *mrt__slab_take(struct mrt__slab *slab, bool *ret_full)
{
	struct mrt__heap_cell *cell = slab->free, *next;

	if (mrt__likely(cell)) {
		next = cell->next;
		mrt__cell_unpoison(cell, slab->cell_bytes);
		slab->free = next;
		*ret_full = !next && slab->used_nr == slab->cells_nr;
	} else {
		cell = (struct mrt__heap_cell *)(void *)((char *)slab + MRT__SLAB_HEADER_BYTES +
							 (size_t)slab->used_nr * slab->cell_bytes);
		cell->word = 0; /* the walk may look at it from here on */
		slab->used_nr++;
		*ret_full = slab->used_nr == slab->cells_nr;
	}
	slab->live_nr++;
	return cell;
}

/* With whatever comes before: a new slab, a large cell. Parameters and result as below. */
void *mrt__heap_alloc_slow(struct mrt__heap *heap, size_t bytes);

/*
 * A cell of at least `bytes`, 32-byte aligned; NULL: no memory. Contents undefined, but for cells of more than
 * MRT__HEAP_CELL_MAX bytes: those are zero. @thread owner
 */
static inline void *mrt__heap_alloc(struct mrt__heap *heap, size_t bytes)
{
	struct mrt__heap_cell *cell;
	struct mrt__slab *slab;
	bool full;

	if (mrt__unlikely(bytes > MRT__HEAP_FINE_MAX))
		return mrt__heap_alloc_slow(heap, bytes);
	slab = heap->classes[(bytes + MRT__HEAP_FINE_STEP - 1) / MRT__HEAP_FINE_STEP - 1].partial;
	if (mrt__unlikely(!slab))
		return mrt__heap_alloc_slow(heap, bytes);
	cell = mrt__slab_take(slab, &full);
	if (mrt__unlikely(full))
		mrt__slab_unlist(slab);
	return cell;
}

void mrt__heap_free_slow(void *cell, struct mrt__heap *self);

/* Free a cell whose word is already 0. @thread any; `self` is the calling worker's own heap, or NULL */
static inline void mrt__heap_free(void *p, struct mrt__heap *self)
{
	struct mrt__slab *slab = mrt__slab_of(p);
	struct mrt__heap_cell *cell = p;

	/* another's heap; a slab that gets its first free cell; one that goes */
	if (mrt__unlikely(slab->heap != self || mrt__slab_is_full(slab) ||
			  (slab->live_nr == 1 && !mrt__slab_is_kept(self, slab)))) {
		mrt__heap_free_slow(p, self);
		return;
	}
	cell->next = slab->free;
	slab->free = cell;
	mrt__cell_poison(cell, slab->cell_bytes);
	slab->live_nr--;
}

/* Send back what `self` has freed of another heap. @thread owner of self, before it sleeps or leaves */
void mrt__heap_flush(struct mrt__heap *self);

/* Does it keep more empty memory than it should for long? @thread owner */
static inline bool mrt__heap_can_trim(const struct mrt__heap *heap)
{
	return heap->warm_nr > MRT__HEAP_WARM_MAX;
}

/* Give one empty slab's memory back: a system call. @thread owner; mrt__heap_can_trim() */
void mrt__heap_trim(struct mrt__heap *heap);

/*
 * Call fn for each cell that was ever handed out, free ones included (look at its word). It may free the cell that it is
 * given: a task that is aborted may end at a thief meanwhile, and leave its cell to who aborts it. @thread owner
 */
void mrt__heap_walk(struct mrt__heap *heap, void (*fn)(void *cell, void *ctx), void *ctx);

/* Cells in use. @thread owner, when nobody frees any more */
uint64_t mrt__heap_live(struct mrt__heap *heap);

#endif
