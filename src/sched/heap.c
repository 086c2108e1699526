/* SPDX-License-Identifier: MIT */
/*
 * Slabs for task cells.
 *
 * A slab is 64 KiB, aligned to 64 KiB, its header in front. It is in its class's `partial` list exactly while it has a
 * free cell (on its free list, or never used yet). Others push freed cells on heap->remote; the owner sorts them into
 * their slabs when a class runs dry, before it asks for a new slab. Rejected: a stack per slab (a full slab's frees would
 * go unseen until somebody visits it), and malloc (its aligned allocation cost Tokio a factor of four per spawn).
 *
 * AddressSanitizer: free cells are poisoned, all but their first words, so that a frame used after its task is found.
 */
#include "sched/heap.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

#define MRT__PAGE_BYTES ((size_t)4096) /* of a system with larger ones the calls below fail, which only keeps memory */

struct mrt__heap_chunk {
	struct mrt__heap_chunk *next;
	void *base;
	size_t bytes;
};

static void *cell_at(struct mrt__slab *slab, uint32_t i)
{
	return (char *)slab + MRT__SLAB_HEADER_BYTES + (size_t)i * slab->cell_bytes;
}

static unsigned class_of(size_t bytes)
{
	if (bytes <= MRT__HEAP_FINE_MAX)
		return (unsigned)((bytes + MRT__HEAP_FINE_STEP - 1) / MRT__HEAP_FINE_STEP) - 1;
	return MRT__HEAP_FINE_MAX / MRT__HEAP_FINE_STEP - 1 +
	       (unsigned)((bytes - MRT__HEAP_FINE_MAX + MRT__HEAP_COARSE_STEP - 1) / MRT__HEAP_COARSE_STEP);
}

static uint32_t class_bytes(unsigned class_idx)
{
	const unsigned fine_nr = MRT__HEAP_FINE_MAX / MRT__HEAP_FINE_STEP;

	if (class_idx < fine_nr)
		return (class_idx + 1) * MRT__HEAP_FINE_STEP;
	return MRT__HEAP_FINE_MAX + (class_idx - fine_nr + 1) * MRT__HEAP_COARSE_STEP;
}

/* Memory aligned to a slab; the ends that alignment leaves over are unmapped. */
static void *map_aligned(size_t bytes)
{
	size_t total = bytes + MRT__SLAB_BYTES, head;
	char *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	head = -(uintptr_t)p & (MRT__SLAB_BYTES - 1);
	if (head)
		(void)munmap(p, head);  /* cannot fail: our own pages */
	if (total - head - bytes)
		(void)munmap(p + head + bytes, total - head - bytes);   /* likewise */
	return p + head;
}

static void partial_add(struct mrt__heap *heap, struct mrt__slab *slab)
{
	struct mrt__slab **list = &heap->classes[slab->class_idx].partial;

	slab->partial_next = *list;
	slab->partial_pprev = list;
	if (*list)
		(*list)->partial_pprev = &slab->partial_next;
	*list = slab;
}

void mrt__slab_unlist(struct mrt__slab *slab)
{
	*slab->partial_pprev = slab->partial_next;
	if (slab->partial_next)
		slab->partial_next->partial_pprev = slab->partial_pprev;
	slab->partial_pprev = NULL;
}

static void slab_link(struct mrt__heap *heap, struct mrt__slab *slab)
{
	slab->heap = heap;
	slab->next = heap->slabs;
	slab->pprev = &heap->slabs;
	if (slab->next)
		slab->next->pprev = &slab->next;
	heap->slabs = slab;
}

static void slab_unlink(struct mrt__slab *slab)
{
	*slab->pprev = slab->next;
	if (slab->next)
		slab->next->pprev = slab->pprev;
}

/* Cut a new chunk into spare slabs. Only their headers are touched. */
static bool chunk_add(struct mrt__heap *heap)
{
	char *base = map_aligned(MRT__HEAP_CHUNK_BYTES);
	struct mrt__heap_chunk *chunk;
	size_t off;

	if (!base)
		return false;
	/* the first slab's header room is larger than its header: the chunk's record lives there */
	_Static_assert(sizeof(struct mrt__slab) + sizeof(struct mrt__heap_chunk) <= MRT__SLAB_HEADER_BYTES,
		       "the chunk's record fits behind the header");
	chunk = (struct mrt__heap_chunk *)(void *)(base + sizeof(struct mrt__slab));
	chunk->base = base;
	chunk->bytes = MRT__HEAP_CHUNK_BYTES;
	chunk->next = heap->chunks;
	heap->chunks = chunk;
	for (off = MRT__HEAP_CHUNK_BYTES; off; off -= MRT__SLAB_BYTES) {
		struct mrt__slab *slab = (struct mrt__slab *)(void *)(base + off - MRT__SLAB_BYTES);

		slab->next = heap->spare;
		heap->spare = slab;
	}
	return true;
}

static struct mrt__slab *slab_add(struct mrt__heap *heap, unsigned class_idx)
{
	struct mrt__slab *slab = heap->warm;

	if (slab) {
		heap->warm = slab->next;
		heap->warm_nr--;
	} else {
		if (!heap->spare && !chunk_add(heap))
			return NULL;
		slab = heap->spare;
		heap->spare = slab->next;
	}
	slab->free = NULL;
	slab->class_idx = class_idx;
	slab->cell_bytes = class_bytes(class_idx);
	slab->cells_nr = (uint32_t)((MRT__SLAB_BYTES - MRT__SLAB_HEADER_BYTES) / slab->cell_bytes);
	slab->used_nr = slab->live_nr = 0;
	slab->map_bytes = 0;
	slab_link(heap, slab);
	partial_add(heap, slab);
	return slab;
}

/* A slab without live cells may serve another class. */
static void slab_retire(struct mrt__heap *heap, struct mrt__slab *slab)
{
	mrt__slab_unlist(slab);
	slab_unlink(slab);
	mrt__cell_unpoison((char *)slab + MRT__SLAB_HEADER_BYTES, MRT__SLAB_BYTES - MRT__SLAB_HEADER_BYTES);
	/* a burst of tasks comes back: faulting its pages in again would cost more than running it */
	slab->next = heap->warm;
	heap->warm = slab;
	heap->warm_nr++;
}

void mrt__heap_trim(struct mrt__heap *heap)
{
	struct mrt__slab *slab = heap->warm;

	heap->warm = slab->next;
	heap->warm_nr--;
	/* all but the header's page; failure only keeps the memory */
	(void)madvise((char *)slab + MRT__PAGE_BYTES, MRT__SLAB_BYTES - MRT__PAGE_BYTES, MADV_DONTNEED);
	slab->next = heap->spare;
	heap->spare = slab;
}

static void free_own(struct mrt__heap *heap, struct mrt__heap_cell *cell)
{
	struct mrt__slab *slab = mrt__slab_of(cell);

	if (slab->map_bytes) {
		slab_unlink(slab);
		mrt__cell_unpoison(cell, slab->cell_bytes);
		(void)munmap(slab, slab->map_bytes);    /* cannot fail: our own mapping */
		return;
	}
	mrt__assert(slab->live_nr > 0);
	if (mrt__slab_is_full(slab))
		partial_add(heap, slab);
	cell->next = slab->free;
	slab->free = cell;
	mrt__cell_poison(cell, slab->cell_bytes);
	if (--slab->live_nr == 0 && !mrt__slab_is_kept(heap, slab))
		slab_retire(heap, slab);
}

/* Sort what others have freed into the slabs. */
static bool take_remote(struct mrt__heap *heap)
{
	struct mrt__heap_cell *cell, *next;

	/* relaxed: an empty stack needs no order */
	if (!atomic_load_explicit(&heap->remote, memory_order_relaxed))
		return false;
	/* [HEAP.remote.take] the cells are ours, all accesses of their last users done; pairs with [HEAP.remote.push] */
	cell = atomic_exchange_explicit(&heap->remote, NULL, memory_order_acquire);
	for (; cell; cell = next) {
		next = cell->next;
		free_own(heap, cell);
	}
	return true;
}

void mrt__heap_init(struct mrt__heap *heap)
{
	memset(heap, 0, sizeof(*heap));
}

void mrt__heap_fini(struct mrt__heap *heap)
{
	struct mrt__heap_chunk *chunk, *next;
	struct mrt__slab *slab, *slab_next;

	(void)take_remote(heap); /* large cells that others freed are unmapped here */
	for (slab = heap->slabs; slab; slab = slab_next) {
		slab_next = slab->next;
		if (slab->map_bytes)
			(void)munmap(slab, slab->map_bytes); /* our own mapping */
	}
	for (chunk = heap->chunks; chunk; chunk = next) {
		next = chunk->next;
		mrt__cell_unpoison(chunk->base, chunk->bytes);
		(void)munmap(chunk->base, chunk->bytes); /* our own mapping */
	}
	memset(heap, 0, sizeof(*heap));
}

static void *alloc_large(struct mrt__heap *heap, size_t bytes)
{
	size_t map_bytes = (bytes + MRT__SLAB_HEADER_BYTES + 4095) & ~(size_t)4095;
	struct mrt__slab *slab;

	(void)take_remote(heap); /* large cells that others freed are unmapped here, or never */
	slab = map_aligned(map_bytes);
	if (!slab)
		return NULL;
	slab->map_bytes = map_bytes;
	slab->cell_bytes = (uint32_t)bytes;
	slab->cells_nr = slab->used_nr = slab->live_nr = 1;
	slab_link(heap, slab);
	return cell_at(slab, 0);
}

void *mrt__heap_alloc_slow(struct mrt__heap *heap, size_t bytes)
{
	struct mrt__heap_class *class;
	struct mrt__heap_cell *cell;
	struct mrt__slab *slab;
	bool full;
	unsigned class_idx;

	if (mrt__unlikely(bytes > MRT__HEAP_CELL_MAX))
		return alloc_large(heap, bytes);
	class_idx = class_of(bytes);
	class = &heap->classes[class_idx];
	slab = class->partial;
	if (mrt__unlikely(!slab)) {
		(void)take_remote(heap);
		slab = class->partial;
		if (!slab)
			slab = slab_add(heap, class_idx);
		if (!slab)
			return NULL;
	}
	cell = mrt__slab_take(slab, &full);
	if (full)
		mrt__slab_unlist(slab);
	return cell;
}

/* A chain of freed cells goes to their heap's owner. @thread any */
static void send_back(struct mrt__heap *heap, struct mrt__heap_cell *head, struct mrt__heap_cell *tail)
{
	/* relaxed: the exchange decides */
	struct mrt__heap_cell *old = atomic_load_explicit(&heap->remote, memory_order_relaxed);

	do {
		tail->next = old;
		/* [HEAP.remote.push] our accesses to the cells are over; relaxed on failure: only old is used */
	} while (!atomic_compare_exchange_weak_explicit(&heap->remote, &old, head, memory_order_release,
							memory_order_relaxed));
}

void mrt__heap_flush(struct mrt__heap *self)
{
	if (self->away_nr == 0)
		return;
	send_back(self->away_of, self->away_head, self->away_tail);
	self->away_head = NULL;
	self->away_nr = 0;
}

void mrt__heap_free_slow(void *p, struct mrt__heap *self)
{
	struct mrt__heap *heap = mrt__slab_of(p)->heap;
	struct mrt__heap_cell *cell = p;
	struct mrt__slab *slab;

	if (heap == self) {
		free_own(heap, cell);
		return;
	}
	slab = mrt__slab_of(p);
	if (mrt__unlikely(slab->map_bytes > MRT__PAGE_BYTES))
		/* the owner may be long in coming: the pages go now, but for the one with header and links. On failure later */
		(void)madvise((char *)slab + MRT__PAGE_BYTES, slab->map_bytes - MRT__PAGE_BYTES, MADV_DONTNEED);
	if (!self || slab->map_bytes) {
		send_back(heap, cell, cell);
		return;
	}
	if (self->away_of != heap) {
		mrt__heap_flush(self);
		self->away_of = heap;
	}
	cell->next = self->away_head;
	if (!cell->next)
		self->away_tail = cell;
	self->away_head = cell;
	if (++self->away_nr >= MRT__HEAP_AWAY_MAX)
		mrt__heap_flush(self);
}

void mrt__heap_walk(struct mrt__heap *heap, void (*fn)(void *cell, void *ctx), void *ctx)
{
	struct mrt__slab *slab, *next;
	uint32_t nr, i;

	for (slab = heap->slabs; slab; slab = next) {
		/* before fn: with the last cell the slab leaves the list, and a large cell's mapping goes */
		next = slab->next;
		nr = slab->used_nr;
		for (i = 0; i < nr; i++)
			fn(cell_at(slab, i), ctx);
	}
}

uint64_t mrt__heap_live(struct mrt__heap *heap)
{
	struct mrt__slab *slab;
	uint64_t nr = 0;

	(void)take_remote(heap); /* what was freed is not live */
	for (slab = heap->slabs; slab; slab = slab->next)
		nr += slab->live_nr;
	return nr;
}
