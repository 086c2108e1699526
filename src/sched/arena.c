/* SPDX-License-Identifier: MIT */
/*
 * The arena's blocks, and the views that rings have of it. Where the memory comes from is arena_region.c's business.
 *
 * A block is a run of whole units of 4 KiB; blocks[] says which block a unit belongs to, the extents know the rest.
 * Registered and other memory are two pools of theirs. A block comes from the first if it can, so that memory that is not
 * registered is used when the rest is full; none reaches from one into the other unless it would not fit otherwise. A
 * border keeps regions apart, so that no op needs two buffers; only a block of more than 1 GiB reaches over it.
 *
 * Three locks, taken in this order, each released as soon as it is not needed:
 *
 *	growth  one thread makes a region at a time; held while its memory is touched, which may take long
 *	table   the donor's table and the list of regions; while memory is registered, rings that would learn of regions do
 *	        not wait, but take the plain opcodes this once
 *	lock    extents and the blocks that wait: a few dozen instructions
 *
 * Rejected: counting ops per block with atomic additions (two of them for each op, on lines that workers share).
 */
#include "sched/arena.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/extent.h"
#include "base/lock.h"
#include "ring/ring.h"
#include "sched/arena_region.h"
#include "sched/sched.h"
#include "sched/worker.h"

#define UNIT MRT__ARENA_UNIT
#define SLOT MRT__ARENA_SLOT
#define SWEEP_BLOCKS_MAX 8u             /* blocks that wait that one alloc or free looks at, */
#define SWEEP_LOOKS_MAX 256u            /* and counts */
#define SWEEP_HOLD_LOOKS_MAX 8192u      /* counts in one hold of the lock, when all are looked at */

/* A block that waits uses the two words of its extent. */
enum {
	LINK_NEXT,      /* first unit of the next + 1 */
	LINK_UNIT,      /* the counts before this unit are 0 */
};

/* ---- blocks that wait ---- */

/*
 * Look at the counts of a block from unit *at on, until one is not 0 or `looks` run out.
 *
 * @return true: they are 0 to the end
 */
static bool is_quiet(struct mrt__arena *a, uint32_t *at, uint32_t end, uint64_t *looks)
{
	/* [ARENA.uses.obs] pairs with [ARENA.uses.pub]; a worker whose view came later cannot have started an op on this */
	uint32_t uses_nr = atomic_load_explicit(&a->uses_nr, memory_order_acquire), i;

	for (; *at < end; ++*at) {
		if (*looks == 0)
			return false;
		*looks -= mrt__min(*looks, uses_nr);
		for (i = 0; i < uses_nr; i++) {
			/* relaxed: the pointer came with uses_nr. [ARENA.use.obs] pairs with [ARENA.use.drop] */
			_Atomic uint32_t *use = atomic_load_explicit(&a->uses[i], memory_order_relaxed);

			if (atomic_load_explicit(&use[*at], memory_order_acquire) != 0)
				return false;
		}
	}
	return true;
}

/* Ops in flight on units. For the log: the counts move. */
static uint64_t count_ops(struct mrt__arena *a, uint32_t at, uint32_t end)
{
	uint32_t uses_nr = atomic_load_explicit(&a->uses_nr, memory_order_acquire), i; /* [ARENA.uses.obs] */
	uint64_t ops = 0;

	for (; at < end; at++)
		for (i = 0; i < uses_nr; i++)
			ops += atomic_load_explicit(&atomic_load_explicit(&a->uses[i], memory_order_relaxed)[at],
						    memory_order_relaxed); /* relaxed: a number for the log */
	return ops;
}

/* @thread under lock */
static void push_waiting(struct mrt__arena *a, uint32_t first)
{
	mrt__extent_link(&a->extent, first)[LINK_NEXT] = 0;
	if (a->waiting_tail)
		mrt__extent_link(&a->extent, a->waiting_tail - 1)[LINK_NEXT] = first + 1;
	else
		a->waiting_head = first + 1;
	a->waiting_tail = first + 1;
	a->waiting_nr++;
}

/* @thread under lock, not empty */
static uint32_t pop_waiting(struct mrt__arena *a)
{
	uint32_t first = a->waiting_head - 1;

	a->waiting_head = mrt__extent_link(&a->extent, first)[LINK_NEXT];
	if (!a->waiting_head)
		a->waiting_tail = 0;
	a->waiting_nr--;
	return first;
}

/* The units are nobody's any more. @thread under lock */
static void put_back(struct mrt__arena *a, uint32_t first)
{
	a->allocated_units -= mrt__extent_size(&a->extent, first);
	mrt__extent_free(&a->extent, first);
}

/*
 * Look at the block that has waited longest: put it back, or behind the others; where the looks run out it stays.
 *
 * @thread  under lock, not empty
 */
static void sweep_one(struct mrt__arena *a, uint64_t *looks)
{
	uint32_t first = a->waiting_head - 1, nr = mrt__extent_size(&a->extent, first);
	bool quiet = is_quiet(a, &mrt__extent_link(&a->extent, first)[LINK_UNIT], first + nr, looks);

	if (!quiet && *looks == 0)
		return;
	(void)pop_waiting(a); /* it is `first` */
	if (quiet) {
		a->waiting_units -= nr;
		put_back(a, first);
	} else {
		push_waiting(a, first);
	}
}

/* A little of it with each alloc and free. @thread under lock */
static void sweep(struct mrt__arena *a)
{
	uint64_t looks = SWEEP_LOOKS_MAX;
	unsigned i;

	for (i = 0; i < SWEEP_BLOCKS_MAX && a->waiting_head && looks > 0; i++)
		sweep_one(a, &looks);
}

/* All of them, however long it takes: before the arena grows. */
static void sweep_all(struct mrt__arena *a)
{
	uint32_t left;

	mrt__lock(&a->lock);
	left = a->waiting_nr;
	while (left > 0 && a->waiting_head) {
		uint64_t looks = SWEEP_HOLD_LOOKS_MAX;

		sweep_one(a, &looks);
		left -= looks > 0;
		mrt__unlock(&a->lock);
		mrt__lock(&a->lock);
	}
	mrt__unlock(&a->lock);
}

/* ---- blocks ---- */

static void write_blocks(struct mrt__arena *a, uint32_t first, uint32_t nr, uint32_t block)
{
	uint32_t u;

	/* relaxed: the units are ours alone; whoever we give the pointer to sees them by that */
	for (u = first; u < first + nr; u++)
		atomic_store_explicit(&a->blocks[u], block, memory_order_relaxed);
}

/* @return true: *ret_first are the caller's */
static bool take(struct mrt__arena *a, uint32_t nr, uint32_t align, uint32_t *ret_first)
{
	bool found;

	mrt__lock(&a->lock);
	if (mrt__unlikely(a->waiting_head))
		sweep(a);
	found = mrt__extent_alloc(&a->extent, MRT__ARENA_POOL_FIXED, nr, align, ret_first) ||
		mrt__extent_alloc(&a->extent, MRT__ARENA_POOL_PLAIN, nr, align, ret_first);
	if (found) {
		a->allocated_units += nr;
		a->allocs++;
	}
	mrt__unlock(&a->lock);
	return found;
}

static int take_growing(struct mrt__arena *a, uint32_t nr, uint32_t align, uint32_t *ret_first)
{
	int err = 0;

	pthread_mutex_lock(&a->growth);
	sweep_all(a);
	/* somebody else may have grown it; and what we grow by may be taken by others before we look */
	while (!err && !take(a, nr, align, ret_first))
		err = mrt__arena_grow(a, nr * UNIT, align * UNIT);
	pthread_mutex_unlock(&a->growth);
	return err;
}

static int alloc_block(struct mrt__arena *a, uint64_t bytes, uint64_t align, void **ret_ptr)
{
	uint32_t nr, align_nr = (uint32_t)(mrt__max(align, UNIT) / UNIT), first;
	int err = 0;

	if (bytes > a->span) {
		mrt__arena_say_once(a, MRT__REASON_LIMIT,
				    "a block of %s does not fit: the arena may have %s; raise arena_bytes_max",
				    mrt__size_text(bytes).text, mrt__size_text(a->span).text);
		return -ENOMEM;
	}
	nr = (uint32_t)((bytes + UNIT - 1) / UNIT);
	if (mrt__unlikely(!take(a, nr, align_nr, &first)))
		err = take_growing(a, nr, align_nr, &first);
	if (err)
		return err;
	write_blocks(a, first, nr, first + 1);
	*ret_ptr = a->base + first * UNIT;
	MRT__ARENA_UNPOISON(*ret_ptr, nr * UNIT);
	return 0;
}

/* The block that begins at ptr is not live any more. @return its first unit; what is none ends the process */
static uint32_t retire(struct mrt__arena *a, const void *ptr)
{
	uint64_t off = (uintptr_t)ptr - (uintptr_t)a->base;
	uint32_t unit, block;

	if (off >= a->span)
		mrt__bug("mrt_free: %p is not memory of this runtime's arena", ptr);
	unit = (uint32_t)(off / UNIT);
	block = atomic_load_explicit(&a->blocks[unit], memory_order_relaxed); /* relaxed: see arena.h */
	if (block != 0 && (block != unit + 1 || off % UNIT != 0))
		mrt__bug("mrt_free: %p lies inside the block that begins at %p", ptr,
			 (void *)(a->base + (block - 1) * UNIT));
	/* relaxed: of two frees of one block one finds 0, and that ends the process */
	if (block == 0 || atomic_exchange_explicit(&a->blocks[unit], 0, memory_order_relaxed) == 0)
		mrt__bug("mrt_free: %p is not a live block: it was freed before, or never given out", ptr);
	return unit;
}

static void free_block(struct mrt__arena *a, void *ptr)
{
	uint32_t first = retire(a, ptr), nr = mrt__extent_size(&a->extent, first), at = first;
	uint64_t looks = UINT64_MAX;
	bool quiet;

	MRT__ARENA_POISON(ptr, nr * UNIT);
	write_blocks(a, first, nr, 0);
	quiet = is_quiet(a, &at, first + nr, &looks);
	if (mrt__unlikely(!quiet))
		mrt__sched_log(a->sched, MRT_LOG_WARN,
			       "mrt_free: %p was freed with %llu ops in flight on it: it is kept until they have ended; await or "
			       "cancel ops before their memory is freed",
			       ptr, (unsigned long long)count_ops(a, at, first + nr));
	mrt__lock(&a->lock);
	a->frees++;
	if (mrt__likely(quiet)) {
		put_back(a, first);
	} else {
		mrt__extent_link(&a->extent, first)[LINK_UNIT] = at;
		a->waiting_units += nr;
		push_waiting(a, first);
	}
	if (mrt__unlikely(a->waiting_head))
		sweep(a);
	mrt__unlock(&a->lock);
}

/* ---- views ---- */

int mrt__arena_view_init(struct mrt__arena_view *v, struct mrt__arena *a, const struct mrt__arena_view *same)
{
	uint64_t units;
	uint32_t nr;

	memset(v, 0, sizeof(*v));
	if (!a)
		return 0;
	units = a->span / UNIT;
	v->fixed = mrt__table_map(a->span / SLOT * sizeof(*v->fixed));
	v->use = same ? same->use : mrt__table_map(units * sizeof(*v->use));
	if (!v->fixed || !v->use) {
		mrt__table_unmap((uintptr_t)v->fixed, a->span / SLOT * sizeof(*v->fixed));
		if (!same)
			mrt__table_unmap((uintptr_t)v->use, units * sizeof(*v->use));
		memset(v, 0, sizeof(*v));
		return -ENOMEM;
	}
	if (!same) {
		mrt__lock(&a->lock);
		nr = atomic_load_explicit(&a->uses_nr, memory_order_relaxed); /* relaxed: written under lock */
		mrt__assert(nr < a->workers_nr);
		atomic_store_explicit(&a->uses[nr], v->use, memory_order_relaxed); /* relaxed: published by what follows */
		/* [ARENA.uses.pub] a worker's counts; pairs with [ARENA.uses.obs] */
		atomic_store_explicit(&a->uses_nr, nr + 1, memory_order_release);
		mrt__unlock(&a->lock);
	}
	v->second = same != NULL;
	v->base = (uintptr_t)a->base;
	v->span = a->span;
	v->blocks = a->blocks;
	v->regions_nr = &a->regions_nr;
	v->arena = a;
	return 0;
}

void mrt__arena_view_fini(struct mrt__arena_view *v)
{
	if (!v->arena)
		return;
	mrt__table_unmap((uintptr_t)v->fixed, v->span / SLOT * sizeof(*v->fixed));
	memset(v, 0, sizeof(*v));
}

enum mrt__arena_kind mrt__arena_look(const struct mrt__arena *a, uint64_t addr, uint32_t len)
{
	uint64_t off = addr - (uintptr_t)a->base, last = off + len - (len > 0);
	uint32_t nr = atomic_load_explicit(&a->regions_nr, memory_order_acquire), i; /* [ARENA.regions.obs] */

	if (off >= a->span || last >= a->span || !mrt__arena_is_live(a->blocks, off, last))
		return MRT__ARENA_BAD;
	for (i = 0; i < nr; i++)
		if (off >= a->regions[i].off && last < a->regions[i].off + mrt__region_fixed(&a->regions[i]))
			return MRT__ARENA_FIXED;
	return MRT__ARENA_PLAIN;
}

/* ---- life ---- */

static uint64_t whole_slots(uint64_t bytes)
{
	return (mrt__min(bytes, MRT__ARENA_BYTES_MAX) + SLOT - 1) & ~(SLOT - 1);
}

int mrt__arena_create(const struct mrt__arena_opts *opts, struct mrt__arena **ret_arena)
{
	uint64_t bytes = whole_slots(opts->bytes), bytes_max = mrt__max(whole_slots(opts->bytes_max), mrt__max(bytes, SLOT));
	struct mrt__arena *a = aligned_alloc(MRT__CACHE_PAIR, (sizeof(*a) + MRT__CACHE_PAIR - 1) & ~(MRT__CACHE_PAIR - 1UL));
	int err;

	if (!a)
		return -ENOMEM;
	memset(a, 0, sizeof(*a));
	a->sched = opts->sched;
	a->workers_nr = opts->workers_nr;
	pthread_mutex_init(&a->growth, NULL);
	pthread_mutex_init(&a->table, NULL);
	a->uses = mrt__table_map(opts->workers_nr * sizeof(*a->uses));
	err = a->uses ? mrt__arena_map(a, bytes_max) : -ENOMEM;
	if (!err)
		err = mrt__arena_begin(a, bytes);
	if (err) {
		mrt__arena_destroy(a);
		return err;
	}
	*ret_arena = a;
	return 0;
}

void mrt__arena_destroy(struct mrt__arena *a)
{
	uint32_t i;

	if (!a)
		return;
	mrt__arena_unmap(a);
	for (i = 0; i < atomic_load_explicit(&a->uses_nr, memory_order_relaxed); i++) /* relaxed: all others are gone */
		mrt__table_unmap((uintptr_t)atomic_load_explicit(&a->uses[i], memory_order_relaxed),
				 a->span / UNIT * sizeof(uint32_t));
	mrt__table_unmap((uintptr_t)a->uses, a->workers_nr * sizeof(*a->uses));
	pthread_mutex_destroy(&a->growth);
	pthread_mutex_destroy(&a->table);
	free(a);
}

void mrt__arena_abandon(struct mrt__arena *a)
{
	if (a && a->donor)
		mrt__ring_donor_abandon(a->donor);
}

/* ---- check ---- */

static bool check_waiting(struct mrt__arena *a, FILE *why)
{
	uint64_t units = 0;
	uint32_t at, nr = 0;

	for (at = a->waiting_head; at; at = mrt__extent_link(&a->extent, at - 1)[LINK_NEXT], nr++) {
		units += mrt__extent_size(&a->extent, at - 1);
		if (nr > a->waiting_nr || atomic_load_explicit(&a->blocks[at - 1], memory_order_relaxed) != 0) {
			(void)fprintf(why, "arena: block %u waits but is live, or the list is a circle\n", at - 1);
			return false;
		}
	}
	if (nr != a->waiting_nr || units != a->waiting_units) {
		(void)fprintf(why, "arena: %u blocks wait, counted %u\n", nr, a->waiting_nr);
		return false;
	}
	return true;
}

bool mrt__arena_check(struct mrt__arena *a, FILE *why)
{
	uint64_t live = 0, free_units, units;
	uint32_t u, end;
	bool ok;

	mrt__lock(&a->lock);
	end = (uint32_t)(a->used_bytes / UNIT);
	for (u = 0; u < end; u++)
		live += atomic_load_explicit(&a->blocks[u], memory_order_relaxed) != 0;
	ok = mrt__extent_check(&a->extent, why) && check_waiting(a, why);
	free_units = a->extent.pools[MRT__ARENA_POOL_FIXED].free_nr + a->extent.pools[MRT__ARENA_POOL_PLAIN].free_nr;
	units = a->allocated_units;
	if (ok && (live + a->waiting_units != units || units + free_units > end)) {
		(void)fprintf(why, "arena: %llu units live, %llu wait, %llu allocated, %llu free, of %u\n", (unsigned long long)live,
			      (unsigned long long)a->waiting_units, (unsigned long long)units, (unsigned long long)free_units, end);
		ok = false;
	}
	mrt__unlock(&a->lock);
	return ok;
}

/* ---- the public half ---- */

int mrt_alloc(struct mrt_runtime *rt, size_t bytes, size_t align, void **ret_ptr)
{
	struct mrt__sched *s;
	int err = mrt__sched_find(rt, &s);

	if (err)
		return err;
	if (bytes == 0 || align & (align - 1) || align > MRT_ARENA_ALIGN_MAX || !ret_ptr)
		return -EINVAL;
	return s->arena ? alloc_block(s->arena, bytes, align, ret_ptr) : -ENOMEM;
}

void mrt_free(struct mrt_runtime *rt, void *ptr)
{
	struct mrt__sched *s;
	int err;

	if (!ptr)
		return;
	err = mrt__sched_find(rt, &s);
	if (err == -ECHILD)
		return;
	if (err)
		mrt__bug("mrt_free: %p is freed outside a task: name the runtime that it came from", ptr);
	if (!s->arena)
		mrt__bug("mrt_free: %p is not memory of this runtime's arena", ptr);
	free_block(s->arena, ptr);
}
