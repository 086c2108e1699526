/* SPDX-License-Identifier: MIT */
/*
 * The inside of the arena, for the files arena*.c alone.
 *
 *	arena_region.c  address space, memory, registration: how the arena grows, and how rings learn of it
 *	arena.c         blocks: alloc, free, blocks that wait for their ops; views; life
 *	arena_report.c  what it tells the user
 */
#ifndef MRT_SCHED_ARENA_REGION_H
#define MRT_SCHED_ARENA_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/extent.h"
#include "base/lock.h"
#include "sched/arena.h"

struct mrt__ring_donor;

#define MRT__ARENA_UNIT ((uint64_t)MRT_ARENA_UNIT)
#define MRT__ARENA_SLOT (UINT64_C(1) << MRT__ARENA_SLOT_SHIFT)

/* Pools of the extents. */
enum {
	MRT__ARENA_POOL_FIXED,  /* registered: given out first */
	MRT__ARENA_POOL_PLAIN,
};

_Static_assert(MRT__ARENA_BYTES_MAX >> MRT__ARENA_UNIT_SHIFT <= MRT__EXTENT_UNITS_MAX, "the extents can count it");
_Static_assert(MRT__ARENA_REGIONS_MAX <= UINT16_MAX, "an index has 16 bits in `fixed`");
_Static_assert(MRT__ARENA_BYTES_MAX < UINT64_C(1) << 48, "an end offset has 48");

/* AddressSanitizer: memory of no live block is poisoned. */
#if MRT__ASAN
#include <sanitizer/asan_interface.h>
#define MRT__ARENA_POISON(ptr, bytes) ASAN_POISON_MEMORY_REGION((ptr), (bytes))
#define MRT__ARENA_UNPOISON(ptr, bytes) ASAN_UNPOISON_MEMORY_REGION((ptr), (bytes))
#else
#define MRT__ARENA_POISON(ptr, bytes) ((void)0)
#define MRT__ARENA_UNPOISON(ptr, bytes) ((void)0)
#endif

/* Why there is less than there could be; each is logged once and stays in the report. */
enum mrt__arena_reason {
	MRT__REASON_MEMLOCK,    /* RLIMIT_MEMLOCK */
	MRT__REASON_GROWTH,     /* the kernel clones once only, and a ring has */
	MRT__REASON_KERNEL,     /* the kernel cannot register at all */
	MRT__REASON_REFUSED,    /* it refused for another reason */
	MRT__REASON_SPACE,      /* less address space than asked for */
	MRT__REASON_LIMIT,      /* arena_bytes_max is reached */
	MRT__REASON_MEMORY,     /* out of memory */
	MRT__REASONS_NR
};

struct mrt__region {
	uint64_t off, bytes;
	_Atomic uint64_t fixed_bytes;   /* registered, from the start; falls where a ring got less, and with it all */
	bool huge;
};

struct mrt__arena {
	/* ---- const ---- */
	struct mrt__sched *sched;
	char *base;
	uint64_t span;
	unsigned workers_nr;
	bool exempt;                            /* from RLIMIT_MEMLOCK: rings ask when they are made, and never again */
	_Atomic uint32_t *blocks;               /* [units] first unit + 1; see arena.h */
	struct mrt__extent_tag *tags;           /* [units] */
	_Atomic(_Atomic uint32_t *) *uses;      /* [workers_nr] each [units]; the first uses_nr are there, and stay */

	/* ---- under growth ---- */
	pthread_mutex_t growth;
	uint64_t used_bytes;                    /* address space that has been given to regions, or lost */

	/* ---- under table ---- */
	pthread_mutex_t table;
	struct mrt__ring_donor *donor;
	bool cloned;                            /* a ring has cloned it */
	bool refused;                           /* it was refused memory that we thought was allowed */
	uint64_t charged_bytes;                 /* against RLIMIT_MEMLOCK, by us */
	struct mrt__region regions[MRT__ARENA_REGIONS_MAX]; /* those below regions_nr do not change, but for fixed_bytes */

	/* ---- read by all ---- */
	_Atomic uint32_t regions_nr;            /* [ARENA.regions.pub] */
	_Atomic uint32_t uses_nr;               /* [ARENA.uses.pub] */
	atomic_uint how;                        /* enum mrt_arena_how */
	atomic_uint reasons;                    /* bits: 1 << enum mrt__arena_reason */
	atomic_int refusal;                     /* MRT__REASON_REFUSED: the error */
	atomic_bool registering;                /* table is held, or will be, for long */

	/* ---- under lock ---- */
	mrt__cache_aligned struct mrt__lock lock;
	struct mrt__extent extent;
	uint64_t allocated_units;
	uint64_t allocs, frees;
	uint32_t waiting_head, waiting_tail;    /* blocks that wait, first unit + 1; by link[LINK_NEXT] */
	uint32_t waiting_nr;
	uint64_t waiting_units;
};

struct mrt__size_text {
	char text[24];
};

/* "6 MiB", "64 KiB"; whole numbers only, rounded up to KiB */
struct mrt__size_text mrt__size_text(uint64_t bytes);

/* Log a reason, the first time only. @thread any */
__attribute__((format(printf, 3, 4)))
void mrt__arena_say_once(struct mrt__arena *a, enum mrt__arena_reason reason, const char *fmt, ...);

/* RLIMIT_MEMLOCK, as far as it concerns us; UINT64_MAX: none. @thread any */
uint64_t mrt__arena_memlock_limit(const struct mrt__arena *a);

/* The limit that would let so many bytes of the arena be registered: it leaves a quarter alone. @thread any */
uint64_t mrt__arena_memlock_need(struct mrt__arena *a, uint64_t bytes);

/* Memory of all regions. @thread any */
uint64_t mrt__arena_mapped(struct mrt__arena *a);

/* How much of a region is registered. @thread any */
static inline uint64_t mrt__region_fixed(const struct mrt__region *r)
{
	return atomic_load_explicit(&r->fixed_bytes, memory_order_relaxed); /* relaxed: falls only, and a view checks */
}

/* Memory for a table: zeroed, and there when it is touched. @return NULL: no room */
void *mrt__table_map(uint64_t bytes);

/* By its address, since it may be an array of atomics; 0 is ignored. */
void mrt__table_unmap(uintptr_t table, uint64_t bytes);

/**
 * Reserve address space and tables for so many bytes, or for as much as there is room (RLIMIT_AS, mlockall), and find out
 * how this kernel registers.
 *
 * @thread  the builder
 * @param bytes  whole slots
 * @return 0, -ENOMEM
 */
int mrt__arena_map(struct mrt__arena *a, uint64_t bytes);

/* Undo it: the memory of all regions too. @thread any, when all others are gone */
void mrt__arena_unmap(struct mrt__arena *a);

/* Make the regions that were asked for, whole slots. @thread the builder @return 0, -ENOMEM */
int mrt__arena_begin(struct mrt__arena *a, uint64_t bytes);

/**
 * Grow, to twice the size if that is possible, so that a block finds room.
 *
 * @thread  with growth
 * @param need, align  the block, in whole units
 * @return 0, -ENOMEM
 */
int mrt__arena_grow(struct mrt__arena *a, uint64_t need, uint64_t align);

#endif
