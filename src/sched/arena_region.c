/* SPDX-License-Identifier: MIT */
/*
 * The arena's memory. What it is cut into:
 *
 *	address space   reserved once, so that one comparison says whether a pointer is ours, and offsets are table indices
 *	region          a part that has memory; up to 1 GiB, whole slots of 2 MiB; the arena grows by one at a time, in order
 *	registered      the front part of a region, down to nothing: what RLIMIT_MEMLOCK allows is never known before it is
 *	                tried
 *
 * A ring that misses in its table of registered slots learns of new regions (mrt__arena_sync): with a donor it clones,
 * else it registers them itself. Where the kernel lets a ring clone only once (6.12), what is added after that is not
 * registered.
 *
 * Memlock. The limit is the user's, not ours alone: rings count too on some kernels, those that are made later with them.
 * So of a limit a quarter is left alone, and what is refused all the same is tried again at half the size. CAP_IPC_LOCK
 * exempts. A huge page is charged whole, however little of it is registered.
 *
 * Fork: the memory is not the child's (MADV_DONTFORK), or pinned pages would be copied when the parent writes to them.
 *
 * Rejected: registering each block (16,384 slots at most, and a system call per ring and block); unpinning free memory
 * (registering it again costs more than it gives).
 */
#include "sched/arena_region.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/ring.h"
#include "sched/sched.h"

#define UNIT MRT__ARENA_UNIT
#define SLOT MRT__ARENA_SLOT
#define REFUSED_TRIES_MAX 2u            /* sizes that are tried for a region once memory was refused */
#define LOST_MAX 4u                     /* pieces of address space that may be lost to others, see commit_huge() */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* 5.14 */
#endif
#define HUGE_2MB (21 << 26) /* MAP_HUGE_2MB */

/* ---- words ---- */

struct mrt__size_text mrt__size_text(uint64_t bytes)
{
	static const char *const names[] = { "KiB", "MiB", "GiB", "TiB" };
	uint64_t n = (bytes + 1023) / 1024;
	struct mrt__size_text t;
	unsigned i = 0;

	while (i + 1 < MRT__ARRAY_NR(names) && n >= 1024 && n % 1024 == 0) {
		n /= 1024;
		i++;
	}
	(void)snprintf(t.text, sizeof(t.text), "%llu %s", (unsigned long long)n, names[i]); /* fits */
	return t;
}

void mrt__arena_say_once(struct mrt__arena *a, enum mrt__arena_reason reason, const char *fmt, ...)
{
	char sentence[400];
	va_list ap;

	/* relaxed: a mark, nothing is read by its means */
	if (atomic_fetch_or_explicit(&a->reasons, 1u << reason, memory_order_relaxed) & 1u << reason)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(sentence, sizeof(sentence), fmt, ap); /* cut to fit */
	va_end(ap);
	mrt__sched_log(a->sched, MRT_LOG_WARN, "arena: %s", sentence);
}

/* ---- memlock ---- */

/* May this process lock what it likes? (In a user namespace the answer may be wrong: then it is refused and tries less.) */
static bool is_exempt(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[CAP_IPC_LOCK / 32].effective >> (CAP_IPC_LOCK % 32) & 1;
}

uint64_t mrt__arena_memlock_limit(const struct mrt__arena *a)
{
	struct rlimit r;

	if (a->exempt || getrlimit(RLIMIT_MEMLOCK, &r) || r.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return r.rlim_cur;
}

/* How often memory is charged. */
static uint64_t charges_nr(struct mrt__arena *a)
{
	/* relaxed: set before the first region is published */
	return atomic_load_explicit(&a->how, memory_order_relaxed) == MRT_ARENA_PER_RING ? a->workers_nr : 1;
}

uint64_t mrt__arena_memlock_need(struct mrt__arena *a, uint64_t bytes)
{
	uint64_t charge = bytes * charges_nr(a);

	return charge + (charge + 2) / 3;
}

/* How much of so many new bytes may be registered. @thread under table */
static uint64_t allowed_bytes(struct mrt__arena *a, uint64_t bytes)
{
	uint64_t limit = mrt__arena_memlock_limit(a), left;

	if (limit == UINT64_MAX)
		return bytes;
	left = limit - limit / 4;
	left = left > a->charged_bytes ? (left - a->charged_bytes) / charges_nr(a) : 0;
	return mrt__min(bytes, left) & ~(MRT__ARENA_FIXED_BYTES_MIN - 1);
}

/* Whole slots while there is more than one, since a huge page is charged as a whole. */
static uint64_t halve(uint64_t bytes)
{
	uint64_t half = bytes / 2;

	return half >= SLOT ? half & ~(SLOT - 1) : half & ~(MRT__ARENA_FIXED_BYTES_MIN - 1);
}

uint64_t mrt__arena_mapped(struct mrt__arena *a)
{
	uint32_t nr = atomic_load_explicit(&a->regions_nr, memory_order_acquire), i; /* [ARENA.regions.obs] */
	uint64_t bytes = 0;

	for (i = 0; i < nr; i++)
		bytes += a->regions[i].bytes;
	return bytes;
}

/* Of a region's `bytes`, so many were registered. */
static void say_memlock(struct mrt__arena *a, uint64_t bytes, uint64_t fixed)
{
	uint64_t limit = mrt__arena_memlock_limit(a), mapped = mrt__arena_mapped(a);

	if (limit == UINT64_MAX)
		mrt__arena_say_once(a, MRT__REASON_MEMLOCK,
				    "the kernel refused to lock %s more: %s of them are registered, the rest is used by plain "
				    "opcodes; it may be short of memory, or want CAP_IPC_LOCK outside this user namespace",
				    mrt__size_text(bytes).text, mrt__size_text(fixed).text);
	else
		mrt__arena_say_once(a, MRT__REASON_MEMLOCK,
				    "RLIMIT_MEMLOCK is %s and %s would be needed: of the last %s there are %s registered, the "
				    "rest is used by plain opcodes; raise it (ulimit -l, LimitMEMLOCK= of the service) or give "
				    "CAP_IPC_LOCK",
				    mrt__size_text(limit).text, mrt__size_text(mrt__arena_memlock_need(a, mapped)).text,
				    mrt__size_text(bytes).text, mrt__size_text(fixed).text);
}

static void say_refused(struct mrt__arena *a, int err)
{
	atomic_store_explicit(&a->refusal, -err, memory_order_relaxed); /* relaxed: a number for the report */
	mrt__arena_say_once(a, MRT__REASON_REFUSED, "memory could not be registered (%s): it is used by plain opcodes",
			    strerrordesc_np(-err));
}

/* ---- address space and memory ---- */

void *mrt__table_map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void mrt__table_unmap(uintptr_t table, uint64_t bytes)
{
	if (table)
		(void)munmap((void *)table, bytes); /* ours, whole */
}

/* What every part of the arena is told; each is a wish. */
static void advise(char *p, uint64_t bytes)
{
	(void)madvise(p, bytes, MADV_DONTFORK);
	(void)madvise(p, bytes, MADV_HUGEPAGE);
}

/* Address space at a slot's boundary. */
static char *reserve(uint64_t bytes)
{
	uint64_t more = bytes + SLOT, lead;
	char *p = mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	lead = (0 - (uintptr_t)p) & (SLOT - 1);
	if (lead)
		(void)munmap(p, lead); /* what is left mapped costs address space only */
	(void)munmap(p + lead + bytes, more - lead - bytes);
	advise(p + lead, bytes);
	return p + lead;
}

/*
 * Explicit huge pages, if there are so many. Whether there are is tried elsewhere first, because a fixed mapping that
 * fails may have unmapped what was there before: another thread's mapping could then take the place. Should that happen
 * for all that, the place is given up.
 *
 * @return 0, -ENOMEM: there are none, all is as before; -EEXIST: the place is lost
 */
static int commit_huge(char *p, uint64_t bytes)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | HUGE_2MB;
	void *trial = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (trial == MAP_FAILED)
		return -ENOMEM;
	(void)munmap(trial, bytes); /* ours, whole */
	if (mmap(p, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) != MAP_FAILED) {
		(void)madvise(p, bytes, MADV_DONTFORK); /* a wish */
		return 0;
	}
	trial = mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (trial == MAP_FAILED)
		return -EEXIST;
	advise(p, bytes);
	return -ENOMEM;
}

/* Make a part usable; with huge pages if that is wanted, and *ret_huge. @return 0, -ENOMEM, -EEXIST as above */
static int commit(char *p, uint64_t bytes, bool want_huge, bool *ret_huge)
{
	int err = want_huge ? commit_huge(p, bytes) : -ENOMEM;

	*ret_huge = err == 0;
	if (err == -ENOMEM)
		err = mprotect(p, bytes, PROT_READ | PROT_WRITE) ? -ENOMEM : 0;
	return err;
}

/* Fresh memory of small pages, or with PROT_NONE none. The place stays ours: the mapping is replaced in one step. */
static int replace(char *p, uint64_t bytes, int prot)
{
	if (mmap(p, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -ENOMEM;
	advise(p, bytes);
	return 0;
}

static int populate(char *p, uint64_t bytes)
{
	uint64_t at;

	if (bytes == 0 || madvise(p, bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	for (at = 0; at < bytes; at += UNIT)
		((volatile char *)p)[at] = 0; /* before 5.14; a store that nothing reads */
	return 0;
}

/*
 * Touch memory that is to be registered and that nobody has yet: registration would fault pages in one by one, and slowly.
 * A huge page is charged as a whole, so the slot in which the registered part ends gets small ones.
 *
 * @return 0, -ENOMEM, -EFAULT (a huge page is missing)
 */
static int touch(char *p, uint64_t bytes)
{
	char *last = p + (bytes & ~(SLOT - 1));

	if (bytes % SLOT != 0)
		(void)madvise(last, SLOT, MADV_NOHUGEPAGE); /* without transparent huge pages all are small */
	return populate(p, bytes);
}

/* ---- registration ---- */

/*
 * How this kernel does it. Before a region is made, as early as the rings, because a ring clones only what is charged to
 * the same user, and that is decided when a ring is made: a process may give up its rights afterwards.
 *
 * @thread  the builder; later under table: a donor that could not be made is tried again
 */
static void choose_how(struct mrt__arena *a)
{
	int err;

	/* relaxed, here and below: written by one at a time, published with the regions */
	if (atomic_load_explicit(&a->how, memory_order_relaxed) != MRT_ARENA_UNREGISTERED)
		return;
	err = mrt__ring_donor_create(MRT__ARENA_REGIONS_MAX, &a->donor);
	if (!err)
		atomic_store_explicit(&a->how, MRT_ARENA_CLONED, memory_order_relaxed);
	else if (err == -EOPNOTSUPP)
		atomic_store_explicit(&a->how, MRT_ARENA_PER_RING, memory_order_relaxed);
	else
		atomic_store_explicit(&a->refusal, -err, memory_order_relaxed);
}

/* Put the front part of a region into the donor, as much of it as the kernel takes; *ret_limited: memlock. @return bytes */
static uint64_t fill_donor(struct mrt__arena *a, unsigned index, uint64_t bytes, bool *ret_limited)
{
	char *p = a->base + a->regions[index].off;
	/* each costs a while, since the ring waits for what may be given back late */
	unsigned tries = a->refused ? REFUSED_TRIES_MAX : UINT_MAX;

	if (a->cloned && !mrt__ring_donor_can_grow(a->donor)) {
		mrt__arena_say_once(a, MRT__REASON_GROWTH,
				    "this kernel cannot register more memory once a ring has what there was (6.13 can): the %s "
				    "that it grew by are used by plain opcodes; give arena_bytes at creation",
				    mrt__size_text(a->regions[index].bytes).text);
		return 0;
	}
	for (; bytes >= MRT__ARENA_FIXED_BYTES_MIN && tries > 0; tries--) {
		int err = mrt__ring_donor_set(a->donor, index, p, bytes);

		if (!err)
			return bytes;
		if (err != -ENOMEM) {
			say_refused(a, err);
			return 0;
		}
		a->refused = true;
		*ret_limited = true;
		bytes = halve(bytes);
		/* less than one slot is left: with small pages */
		if (bytes % SLOT != 0 && (replace(p, SLOT, PROT_READ | PROT_WRITE) || touch(p, bytes)))
			break;
	}
	return 0;
}

/* How much of new memory to register; *ret_limited: less, because of memlock. @return bytes from its start, 0..bytes */
static uint64_t plan_fixed(struct mrt__arena *a, uint64_t bytes, bool *ret_limited)
{
	uint64_t fixed = 0;
	int refusal;

	pthread_mutex_lock(&a->table);
	choose_how(a);
	/* relaxed: written under table */
	if (atomic_load_explicit(&a->how, memory_order_relaxed) != MRT_ARENA_UNREGISTERED) {
		fixed = allowed_bytes(a, bytes);
		*ret_limited = fixed < bytes;
	} else {
		refusal = atomic_load_explicit(&a->refusal, memory_order_relaxed);
		*ret_limited = refusal == ENOMEM;
		if (!*ret_limited)
			say_refused(a, -refusal);
	}
	pthread_mutex_unlock(&a->table);
	return fixed;
}

/*
 * Make a region, register the front part as far as may be, and let the rings see it.
 *
 * @thread  with growth
 * @param fixed    bytes to be registered; they have been touched
 * @param limited  they are less because of memlock
 * @return bytes that are registered
 */
static uint64_t publish_region(struct mrt__arena *a, const struct mrt__region *new, uint64_t fixed, bool limited)
{
	/* relaxed: only growth writes it, and we hold that */
	uint32_t index = atomic_load_explicit(&a->regions_nr, memory_order_relaxed);
	struct mrt__region *r = &a->regions[index];

	/* relaxed, here and below: a hint */
	atomic_store_explicit(&a->registering, true, memory_order_relaxed);
	pthread_mutex_lock(&a->table);
	r->off = new->off;
	r->bytes = new->bytes;
	r->huge = new->huge;
	/* else each ring does it for itself, see sync_own(). relaxed: written under table */
	if (atomic_load_explicit(&a->how, memory_order_relaxed) == MRT_ARENA_CLONED)
		fixed = fill_donor(a, index, fixed, &limited);
	a->charged_bytes += fixed * charges_nr(a);
	atomic_store_explicit(&r->fixed_bytes, fixed, memory_order_relaxed); /* relaxed: published by what follows */
	/* [ARENA.regions.pub] the region, and what is in the donor; pairs with [ARENA.regions.obs] */
	atomic_store_explicit(&a->regions_nr, index + 1, memory_order_release);
	pthread_mutex_unlock(&a->table);
	atomic_store_explicit(&a->registering, false, memory_order_relaxed);
	if (limited && fixed < r->bytes)
		say_memlock(a, r->bytes, fixed);
	return fixed;
}

/* ---- what rings learn ---- */

/* Registered memory [off, off + bytes) has this index on the ring. */
static void fill_fixed(struct mrt__arena_view *v, uint32_t index, uint64_t off, uint64_t bytes)
{
	uint64_t slot;

	for (slot = off / SLOT; slot * SLOT < off + bytes; slot++)
		v->fixed[slot] = (off + bytes) << 16 | index;
}

/* The ring's table is to be as the donor's. @thread under table, the ring's owner */
static void sync_clone(struct mrt__arena_view *v, struct mrt__ring *ring, uint32_t regions_nr)
{
	struct mrt__arena *a = v->arena;
	uint32_t i = v->seen;
	bool whole = !v->cloned;
	int err;

	if (whole) {
		for (i = 0; i < regions_nr && mrt__region_fixed(&a->regions[i]) == 0; i++)
			;
		if (i == regions_nr)
			return; /* nothing to be had: a later one may still clone the whole */
	}
	for (; i < regions_nr; i++) {
		uint64_t bytes = mrt__region_fixed(&a->regions[i]);

		if (bytes == 0)
			continue;
		/* the first call brings all that there is */
		err = v->cloned && whole ? 0 : mrt__ring_donor_clone(a->donor, ring, i);
		if (err) {
			say_refused(a, err);
			if (whole)
				return;
			continue;
		}
		v->cloned = a->cloned = true;
		fill_fixed(v, i, a->regions[i].off, bytes);
	}
}

/* A ring could register less of a region than was thought: so do the others from now on, and the report. */
static void lower_fixed(struct mrt__arena *a, struct mrt__region *r, uint64_t bytes)
{
	pthread_mutex_lock(&a->table);
	if (bytes < mrt__region_fixed(r)) {
		a->charged_bytes -= (mrt__region_fixed(r) - bytes) * charges_nr(a);
		/* relaxed: a hint for others */
		atomic_store_explicit(&r->fixed_bytes, bytes, memory_order_relaxed);
	}
	pthread_mutex_unlock(&a->table);
}

/* Without a donor. @thread the ring's owner */
static void sync_own(struct mrt__arena_view *v, struct mrt__ring *ring, uint32_t regions_nr)
{
	struct mrt__arena *a = v->arena;
	uint32_t i;

	for (i = v->seen; i < regions_nr; i++) {
		struct mrt__region *r = &a->regions[i];
		uint64_t bytes = mrt__region_fixed(r);
		int err = -ENOMEM;

		while (bytes >= MRT__ARENA_FIXED_BYTES_MIN && err == -ENOMEM) {
			err = mrt__ring_buffer_set(ring, MRT__ARENA_REGIONS_MAX, i, a->base + r->off, bytes);
			if (err == -ENOMEM)
				bytes = halve(bytes);
		}
		if (err == -EINVAL)
			mrt__arena_say_once(a, MRT__REASON_KERNEL,
					    "this kernel cannot register buffers one by one: the memory is used by plain "
					    "opcodes");
		else if (err && err != -ENOMEM)
			say_refused(a, err);
		if (err)
			bytes = 0;
		if (bytes < mrt__region_fixed(r)) {
			if (!v->second)
				lower_fixed(a, r, bytes);
			if (!err || err == -ENOMEM)
				say_memlock(a, r->bytes, bytes);
		}
		fill_fixed(v, i, r->off, bytes);
	}
}

void mrt__arena_sync(struct mrt__arena_view *v, struct mrt__ring *ring)
{
	struct mrt__arena *a = v->arena;
	/* [ARENA.regions.obs] */
	uint32_t regions_nr = atomic_load_explicit(&a->regions_nr, memory_order_acquire);

	/* relaxed: published with the regions */
	switch (atomic_load_explicit(&a->how, memory_order_relaxed)) {
	case MRT_ARENA_CLONED:
		/* no wait for somebody who may be registering a gigabyte; for another ring that clones, yes. relaxed: a hint */
		if (atomic_load_explicit(&a->registering, memory_order_relaxed))
			return;
		pthread_mutex_lock(&a->table);
		/* relaxed: written under table */
		regions_nr = atomic_load_explicit(&a->regions_nr, memory_order_relaxed);
		sync_clone(v, ring, regions_nr);
		pthread_mutex_unlock(&a->table);
		break;
	case MRT_ARENA_PER_RING:
		sync_own(v, ring, regions_nr);
		break;
	default:
		break;
	}
	v->seen = regions_nr;
}

/* ---- growth ---- */

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* Hand new memory to the extents. */
static void add_extents(struct mrt__arena *a, uint64_t off, uint64_t bytes, uint64_t fixed, uint64_t need, uint64_t align)
{
	uint32_t first = (uint32_t)(off / UNIT), nr = (uint32_t)(bytes / UNIT), fixed_nr = (uint32_t)(fixed / UNIT);
	/* what has made us grow must find room in one pool; behind the registered part alignment costs some */
	bool cut = fixed > 0 && fixed < bytes && (need <= fixed || need + align - UNIT <= bytes - fixed);

	MRT__ARENA_POISON(a->base + off, bytes);
	mrt__lock(&a->lock);
	if (cut) {
		mrt__extent_add(&a->extent, MRT__ARENA_POOL_FIXED, first, fixed_nr, true);
		mrt__extent_add(&a->extent, MRT__ARENA_POOL_PLAIN, first + fixed_nr, nr - fixed_nr, true);
	} else {
		mrt__extent_add(&a->extent, fixed == bytes ? MRT__ARENA_POOL_FIXED : MRT__ARENA_POOL_PLAIN, first, nr, true);
	}
	mrt__unlock(&a->lock);
}

/*
 * Get memory for the arena.
 *
 * @thread  with growth
 * @param bytes  whole slots, within the address space that is left
 * @param need, align  a block of this must find room in it
 */
static int grow_by(struct mrt__arena *a, uint64_t bytes, uint64_t need, uint64_t align)
{
	struct mrt__region piece = { .off = a->used_bytes };
	uint64_t off = a->used_bytes, plan, fixed = 0;
	bool limited;
	int err;

	plan = plan_fixed(a, bytes, &limited);
	/* a huge page cannot be registered in part, and where the limit is that small it is better spent elsewhere */
	err = commit(a->base + off, bytes, plan % SLOT == 0, &piece.huge);
	if (err == -EEXIST)
		a->used_bytes += bytes;
	if (err)
		return err;
	err = touch(a->base + off, plan);
	if (err && piece.huge) { /* they were promised, but a cgroup may have a say in it */
		piece.huge = false;
		err = replace(a->base + off, bytes, PROT_READ | PROT_WRITE) ? -ENOMEM : touch(a->base + off, plan);
	}
	if (err) {
		(void)replace(a->base + off, bytes, PROT_NONE); /* else it is memory that nobody uses */
		return -ENOMEM;
	}
	for (; piece.off < off + bytes; piece.off += piece.bytes) {
		uint64_t want;

		piece.bytes = mrt__min(off + bytes - piece.off, MRT__ARENA_REGION_BYTES_MAX);
		want = mrt__min(piece.bytes, plan);
		fixed += publish_region(a, &piece, want, limited);
		plan -= want;
	}
	a->used_bytes += bytes;
	/* registered in part and of several regions: the parts do not stand together */
	if (bytes > MRT__ARENA_REGION_BYTES_MAX && fixed < bytes)
		fixed = 0;
	add_extents(a, off, bytes, fixed, need, align);
	return 0;
}

/* Regions that so many bytes need, and the room for them. */
static bool has_room(const struct mrt__arena *a, uint64_t bytes)
{
	uint64_t regions = (bytes + MRT__ARENA_REGION_BYTES_MAX - 1) / MRT__ARENA_REGION_BYTES_MAX;

	return bytes <= a->span - a->used_bytes &&
	       regions <= MRT__ARENA_REGIONS_MAX - atomic_load_explicit(&a->regions_nr, memory_order_relaxed);
}

int mrt__arena_grow(struct mrt__arena *a, uint64_t need, uint64_t align)
{
	uint64_t least = round_up(need, SLOT), bytes;
	unsigned tries;
	int err = -ENOMEM;

	for (tries = 0; tries <= LOST_MAX; tries++) {
		if (!has_room(a, least)) {
			mrt__arena_say_once(a, MRT__REASON_LIMIT,
					    "%s more do not fit: %s of at most %s are in use; raise arena_bytes_max",
					    mrt__size_text(need).text, mrt__size_text(a->used_bytes).text,
					    mrt__size_text(a->span).text);
			return -ENOMEM;
		}
		bytes = mrt__min(a->used_bytes, MRT__ARENA_REGION_BYTES_MAX);
		bytes = mrt__min(bytes, a->span - a->used_bytes);
		bytes = mrt__max(bytes, least);
		err = grow_by(a, bytes, need, align);
		if (err == -ENOMEM && bytes > least)
			err = grow_by(a, least, need, align);
		if (err != -EEXIST)
			break;
	}
	if (err)
		mrt__arena_say_once(a, MRT__REASON_MEMORY, "no memory for %s more", mrt__size_text(least).text);
	return err ? -ENOMEM : 0;
}

int mrt__arena_begin(struct mrt__arena *a, uint64_t bytes)
{
	int err = 0;

	pthread_mutex_lock(&a->growth);
	while (!err && a->used_bytes < bytes) {
		uint64_t piece = mrt__min(bytes - a->used_bytes, MRT__ARENA_REGION_BYTES_MAX);

		err = has_room(a, piece) ? grow_by(a, piece, 0, UNIT) : -ENOMEM;
	}
	pthread_mutex_unlock(&a->growth);
	if (err)
		mrt__sched_log(a->sched, MRT_LOG_ERROR, "no memory for an arena of %s: lower arena_bytes",
			       mrt__size_text(bytes).text);
	return err ? -ENOMEM : 0;
}

/* ---- life ---- */

/* Halved until it fits. */
static int reserve_all(struct mrt__arena *a, uint64_t want)
{
	for (a->span = want; a->span >= SLOT; a->span = (a->span / 2) & ~(SLOT - 1)) {
		uint64_t units = a->span / UNIT;

		a->base = reserve(a->span);
		a->blocks = mrt__table_map(units * sizeof(*a->blocks));
		a->tags = mrt__table_map(units * sizeof(*a->tags));
		if (a->base && a->blocks && a->tags)
			break;
		if (a->base)
			(void)munmap(a->base, a->span); /* ours, whole */
		mrt__table_unmap((uintptr_t)a->blocks, units * sizeof(*a->blocks));
		mrt__table_unmap((uintptr_t)a->tags, units * sizeof(*a->tags));
		a->base = NULL;
		a->blocks = NULL;
		a->tags = NULL;
	}
	if (a->span < SLOT) {
		a->span = 0;
		return -ENOMEM;
	}
	if (a->span < want)
		mrt__arena_say_once(a, MRT__REASON_SPACE, "there is address space for %s of %s only; raise RLIMIT_AS",
				    mrt__size_text(a->span).text, mrt__size_text(want).text);
	mrt__extent_init(&a->extent, a->tags, (uint32_t)(a->span / UNIT));
	return 0;
}

int mrt__arena_map(struct mrt__arena *a, uint64_t bytes)
{
	int err = reserve_all(a, bytes);

	a->exempt = is_exempt();
	if (!err)
		choose_how(a);
	return err;
}

void mrt__arena_unmap(struct mrt__arena *a)
{
	uint64_t units = a->span / UNIT;
	uint32_t i;

	mrt__ring_donor_destroy(a->donor);
	/* one by one: between them there may be what was lost, and is somebody else's */
	for (i = 0; i < atomic_load_explicit(&a->regions_nr, memory_order_relaxed); i++) { /* relaxed: all others are gone */
		MRT__ARENA_UNPOISON(a->base + a->regions[i].off, a->regions[i].bytes);
		(void)munmap(a->base + a->regions[i].off, a->regions[i].bytes);
	}
	if (a->base && a->used_bytes < a->span)
		(void)munmap(a->base + a->used_bytes, a->span - a->used_bytes); /* ours, never used */
	mrt__table_unmap((uintptr_t)a->blocks, units * sizeof(*a->blocks));
	mrt__table_unmap((uintptr_t)a->tags, units * sizeof(*a->tags));
}
