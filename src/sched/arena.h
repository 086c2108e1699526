/* SPDX-License-Identifier: MIT */
/*
 * The arena: memory that every ring of a runtime may use by buffer index. See arena_region.c for how it is made.
 *
 * Each ring has a view of it, which an op asks before it is staged: is this memory ours, is it live, which index has it
 * here. Three tables answer:
 *
 *	blocks[unit]   the block that a unit (4 KiB) belongs to, 0: none. Written by whoever allocates and frees.
 *	use[unit]      ops in flight that start in the unit; one table a worker, written by that worker alone
 *	fixed[slot]    of 2 MiB: up to where memory is registered with this ring, and as which index; the ring owner's
 *
 * Freed memory and the kernel. mrt_free() clears blocks[], then adds up use[] over all workers; only where all is 0 may
 * the block be given out again. That is enough, with plain loads and stores on the path of an op:
 *
 *	a start that happens before the free   its count is seen, since whatever lets the caller know that it may free (it
 *	                                       runs the same task, or was told by it) orders the two. Where the count is
 *	                                       already back at 0, the op's terminal completion was reaped.
 *	a start that happens after the free    sees blocks 0, for the same reason, and is refused.
 *	neither                                a task starts an op on memory that another frees at this moment: the caller's
 *	                                       mistake, as with any memory. The kernel may then write into a block that
 *	                                       somebody else has by now, but never outside the arena, since that is mapped
 *	                                       (and pinned) until every ring has let go of it.
 *
 * A block that is freed while ops are in flight waits until the counts are 0. No new op can start on it, so each of them
 * only falls: a unit that was seen at 0 need not be looked at again.
 *
 *	                          hold  release  sync  view_init/fini  alloc, free, report
 *	hold, release, sync        X       X      X           X                 -
 *	alloc, free, report        -       -      -           -                 -
 *
 * X: of one worker's views, the owner's alone. Hold and release are wait-free for any number of workers; alloc and free
 * take a short lock, and alloc blocks while another grows the arena.
 */
#ifndef MRT_SCHED_ARENA_H
#define MRT_SCHED_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <martlet/arena.h>

#include "base/assert.h"
#include "base/compiler.h"

#define MRT__ARENA_UNIT_SHIFT 12u
#define MRT__ARENA_SLOT_SHIFT 21u
#define MRT__ARENA_REGIONS_MAX 256u             /* also the slots of each ring's buffer table */
#define MRT__ARENA_REGION_BYTES_MAX (UINT64_C(1) << 30) /* the kernel's limit of one buffer */
#define MRT__ARENA_BYTES_MAX (UINT64_C(1) << 38)        /* 256 regions of 1 GiB */
#define MRT__ARENA_FIXED_BYTES_MIN (UINT64_C(64) << 10) /* less is not worth a registration */
_Static_assert(MRT_ARENA_UNIT == 1u << MRT__ARENA_UNIT_SHIFT, "what is said and what is done");
_Static_assert(MRT_ARENA_ALIGN_MAX == 1u << MRT__ARENA_SLOT_SHIFT, "the arena begins at such a boundary");

struct mrt__arena;
struct mrt__ring;
struct mrt__sched;

struct mrt__arena_opts {
	struct mrt__sched *sched;       /* for the log */
	uint64_t bytes;                 /* to begin with */
	uint64_t bytes_max;             /* at least `bytes` are taken; at most MRT__ARENA_BYTES_MAX */
	unsigned workers_nr;
};

/* One ring's view. All fields are the owner worker's, but what the pointers name. Zeroed: of no arena. */
struct mrt__arena_view {
	uintptr_t base;
	uint64_t span;                          /* bytes of address space from base on; 0: no arena */
	uint64_t *fixed;                        /* [span / 2 MiB] end offset << 16 | buffer index; 0: not registered */
	_Atomic uint32_t *use;                  /* [span / 4 KiB] shared by the two rings of a worker */
	const _Atomic uint32_t *blocks;         /* [span / 4 KiB] */
	const _Atomic uint32_t *regions_nr;     /* of the arena */
	uint32_t seen;                          /* regions that `fixed` knows of */
	bool cloned;                            /* the ring's buffer table is a copy of the donor's */
	bool second;                            /* of a worker that has another: what it lacks is its own affair */
	struct mrt__arena *arena;
};

/**
 * Reserve address space, and make the first regions if `bytes` is not 0. They are registered as far as the kernel and
 * RLIMIT_MEMLOCK allow; that never fails the call.
 *
 * @thread  the builder
 * @return 0, -ENOMEM (no memory; or not even 2 MiB of address space)
 */
int mrt__arena_create(const struct mrt__arena_opts *opts, struct mrt__arena **ret_arena);

/**
 * Unmap everything. NULL is ignored.
 *
 * @thread  any, when no ring has an op in flight and all have been destroyed, or have dropped their buffers
 */
void mrt__arena_destroy(struct mrt__arena *arena);

/* In a child after fork, which does not have the memory: close what was inherited. NULL is ignored. */
void mrt__arena_abandon(struct mrt__arena *arena);

/**
 * Make a ring's view.
 *
 * @thread  the builder, or the ring's owner
 * @param arena  NULL: a view of nothing
 * @param same   the view of the worker's other ring, whose counts it shares; NULL: this is the first
 * @return 0, -ENOMEM
 */
int mrt__arena_view_init(struct mrt__arena_view *view, struct mrt__arena *arena, const struct mrt__arena_view *same);

/*
 * Give a view up, when the last op has ended; mrt__ring_drain() has let go of the buffers. A zeroed one is ignored. The
 * worker's counts stay with the arena. @thread the ring's owner, or whoever frees the worker
 */
void mrt__arena_view_fini(struct mrt__arena_view *view);

/**
 * Learn of regions that the arena has got since, and register them with this ring. May leave that for the next time if
 * somebody is registering just now.
 *
 * @thread  the ring's owner
 * @blocks  for a system call or two for each new region; where locked memory is short, for up to 30 ms a try, by halves
 */
void mrt__arena_sync(struct mrt__arena_view *view, struct mrt__ring *ring);

enum mrt__arena_kind {
	MRT__ARENA_BAD,         /* not wholly inside one live block */
	MRT__ARENA_PLAIN,       /* fine, but not registered with this ring */
	MRT__ARENA_FIXED,       /* in one registered buffer */
};

/* What an op on [addr, addr + len) would get from a ring that is up to date. @thread any */
enum mrt__arena_kind mrt__arena_look(const struct mrt__arena *arena, uint64_t addr, uint32_t len);

/* Everything holds together? Between calls of others only. @return false: no, and `why` was told how */
bool mrt__arena_check(struct mrt__arena *arena, FILE *why);

/* Is this address in the arena's address space? */
static inline bool mrt__arena_has(const struct mrt__arena_view *v, const void *addr)
{
	return (uintptr_t)addr - v->base < v->span;
}

/* Is [off, last] inside one live block? Both are below the span. */
static inline bool mrt__arena_is_live(const _Atomic uint32_t *blocks, uint64_t off, uint64_t last)
{
	/* relaxed: ordered by what gave the caller the pointer, see above */
	uint32_t block = atomic_load_explicit(&blocks[off >> MRT__ARENA_UNIT_SHIFT], memory_order_relaxed);

	if (block == 0 || off >> MRT__ARENA_UNIT_SHIFT == last >> MRT__ARENA_UNIT_SHIFT)
		return block != 0;
	/* blocks do not interleave: equal at both ends is equal in between */
	return atomic_load_explicit(&blocks[last >> MRT__ARENA_UNIT_SHIFT], memory_order_relaxed) == block;
}

/**
 * Hold memory, which mrt__arena_has(), for an op that is about to be given to `ring`.
 *
 * The answer holds for every part of it too, so an op that goes on behind a short result keeps its hold and its index.
 * Empty memory is live if its address is.
 *
 * @thread  the ring's owner
 * @param ret_index  FIXED: the buffer index on this ring
 * @return BAD: nothing is held
 */
static inline enum mrt__arena_kind mrt__arena_hold(struct mrt__arena_view *v, struct mrt__ring *ring, uint64_t addr,
						   uint32_t len, uint16_t *ret_index)
{
	uint64_t off = addr - v->base, last = off + len - (len > 0), entry;
	_Atomic uint32_t *use = &v->use[off >> MRT__ARENA_UNIT_SHIFT];

	if (mrt__unlikely(last >= v->span) || mrt__unlikely(!mrt__arena_is_live(v->blocks, off, last)))
		return MRT__ARENA_BAD;
	/* relaxed, and no read-modify-write: only this worker writes it; see above for who reads it */
	atomic_store_explicit(use, atomic_load_explicit(use, memory_order_relaxed) + 1, memory_order_relaxed);
	entry = v->fixed[off >> MRT__ARENA_SLOT_SHIFT];
	if (mrt__unlikely(last >= entry >> 16)) {
		/* [ARENA.regions.obs] the region of this memory is in the table; pairs with [ARENA.regions.pub] */
		if (atomic_load_explicit(v->regions_nr, memory_order_acquire) == v->seen)
			return MRT__ARENA_PLAIN;
		mrt__arena_sync(v, ring);
		entry = v->fixed[off >> MRT__ARENA_SLOT_SHIFT];
		if (last >= entry >> 16)
			return MRT__ARENA_PLAIN;
	}
	*ret_index = (uint16_t)entry;
	return MRT__ARENA_FIXED;
}

/* The kernel has let go of an op's memory. @param addr as it was given to hold @thread the ring's owner */
static inline void mrt__arena_release(struct mrt__arena_view *v, uint64_t addr)
{
	_Atomic uint32_t *use = &v->use[(addr - v->base) >> MRT__ARENA_UNIT_SHIFT];
	uint32_t nr = atomic_load_explicit(use, memory_order_relaxed); /* relaxed: only this worker writes it */

	mrt__assert(nr > 0);
	/* [ARENA.use.drop] all that we did with the memory is done; pairs with [ARENA.use.obs] */
	atomic_store_explicit(use, nr - 1, memory_order_release);
}

#endif
