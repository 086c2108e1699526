/* SPDX-License-Identifier: MIT */
/*
 * The arena's memory: address space, regions, registration, blocks.
 *
 *	address space   reserved once, so that one comparison says whether a pointer is ours, and offsets are table indices
 *	region          a part that has memory; up to 1 GiB, whole slots of 2 MiB; the arena grows by one at a time, in order
 *	registered      the front part of a region, down to nothing: what RLIMIT_MEMLOCK allows is never known before it is tried
 *	block           what mrt_alloc() gave: whole units of 4 KiB, which stand in blocks[]; the rest is in the extents
 *
 * Registered and other memory are two pools of the extents. A block comes from the first if it can, so that memory that
 * is not registered is used when the rest is full; none reaches from one into the other unless it would not fit otherwise.
 * A border keeps regions apart, so that no op needs two buffers; only a block of more than 1 GiB reaches over it.
 *
 * Three locks, taken in this order, each released as soon as it is not needed:
 *
 *	growth  one thread makes a region at a time; held while its memory is touched, which may take long
 *	table   the donor's table and the list of regions; a ring that wants to learn of regions only tries it, and takes
 *	        the plain opcodes this once
 *	lock    extents and the blocks that wait: a few dozen instructions
 *
 * Memlock. The limit is the user's, not ours alone: rings count too on some kernels, those that are made later with them.
 * So of a limit a quarter is left alone, and what is refused all the same is tried again at half the size. CAP_IPC_LOCK
 * exempts.
 *
 * Fork: the memory is not the child's (MADV_DONTFORK), or pinned pages would be copied when the parent writes to them.
 *
 * Rejected: registering each block (16,384 slots at most, and a system call per ring and block); unpinning free memory
 * (a device is slow to forget); counting ops per block with atomic additions (two of them for each op).
 */
#include "sched/arena.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/extent.h"
#include "base/lock.h"
#include "ring/ring.h"
#include "sched/sched.h"
#include "sched/worker.h"

#if MRT__ASAN
#include <sanitizer/asan_interface.h>
#define POISON(ptr, bytes) ASAN_POISON_MEMORY_REGION((ptr), (bytes))
#define UNPOISON(ptr, bytes) ASAN_UNPOISON_MEMORY_REGION((ptr), (bytes))
#else
#define POISON(ptr, bytes) ((void)0)
#define UNPOISON(ptr, bytes) ((void)0)
#endif

#define UNIT ((uint64_t)MRT_ARENA_UNIT)
#define SLOT (UINT64_C(1) << MRT__ARENA_SLOT_SHIFT)
#define POOL_FIXED 0u
#define POOL_PLAIN 1u
#define SWEEP_BLOCKS_MAX 8u             /* blocks that wait that one alloc or free looks at, */
#define SWEEP_LOOKS_MAX 256u            /* and counts */
#define SWEEP_HOLD_LOOKS_MAX 8192u      /* counts in one hold of the lock, when all are looked at */
#define REFUSED_TRIES_MAX 2u            /* sizes that are tried for a region once memory was refused */
#define LOST_MAX 4u                     /* pieces of address space that may be lost to others, see commit_huge() */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* 5.14 */
#endif
#define HUGE_2MB (21 << 26) /* MAP_HUGE_2MB */

_Static_assert(MRT__ARENA_BYTES_MAX >> MRT__ARENA_UNIT_SHIFT <= MRT__EXTENT_UNITS_MAX, "the extents can count it");
_Static_assert(MRT__ARENA_REGIONS_MAX <= UINT16_MAX, "an index has 16 bits in `fixed`");
_Static_assert(MRT__ARENA_BYTES_MAX < UINT64_C(1) << 48, "an end offset has 48");

/* Why there is less than there could be; each is logged once and stays in the report. */
enum reason {
	REASON_MEMLOCK,         /* RLIMIT_MEMLOCK */
	REASON_GROWTH,          /* the kernel clones once only, and a ring has */
	REASON_KERNEL,          /* the kernel cannot register at all */
	REASON_REFUSED,         /* it refused for another reason */
	REASON_SPACE,           /* less address space than asked for */
	REASON_LIMIT,           /* arena_bytes_max is reached */
	REASON_MEMORY,          /* out of memory */
	REASONS_NR
};

struct region {
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
	struct region regions[MRT__ARENA_REGIONS_MAX]; /* those below regions_nr do not change, but for fixed_bytes */

	/* ---- read by all ---- */
	_Atomic uint32_t regions_nr;            /* [ARENA.regions.pub] */
	_Atomic uint32_t uses_nr;               /* [ARENA.uses.pub] */
	atomic_uint how;                        /* enum mrt_arena_how */
	atomic_uint reasons;                    /* bits: 1 << enum reason */
	atomic_int refusal;                     /* REASON_REFUSED: the error */

	/* ---- under lock ---- */
	mrt__cache_aligned struct mrt__lock lock;
	struct mrt__extent extent;
	uint64_t allocated_units;
	uint64_t allocs, frees;
	uint32_t waiting_head, waiting_tail;    /* blocks that wait, first unit + 1; by link[LINK_NEXT] */
	uint32_t waiting_nr;
	uint64_t waiting_units;
};

/* A block that waits uses the two words of its extent. */
enum {
	LINK_NEXT,      /* first unit of the next + 1 */
	LINK_UNIT,      /* the counts before this unit are 0 */
};

/* ---- words ---- */

struct size_text {
	char text[24];
};

/* "6 MiB", "64 KiB"; whole numbers only, rounded up to KiB */
static struct size_text size_text(uint64_t bytes)
{
	static const char *const names[] = { "KiB", "MiB", "GiB", "TiB" };
	uint64_t n = (bytes + 1023) / 1024;
	struct size_text t;
	unsigned i = 0;

	while (i + 1 < MRT__ARRAY_NR(names) && n >= 1024 && n % 1024 == 0) {
		n /= 1024;
		i++;
	}
	(void)snprintf(t.text, sizeof(t.text), "%llu %s", (unsigned long long)n, names[i]); /* fits */
	return t;
}

/* The first time only. */
__attribute__((format(printf, 3, 4)))
static void say_once(struct mrt__arena *a, enum reason reason, const char *fmt, ...)
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

/* UINT64_MAX: none for us. */
static uint64_t memlock_limit(const struct mrt__arena *a)
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

/* The limit that would let so many bytes of the arena be registered: it leaves a quarter alone. */
static uint64_t memlock_need(struct mrt__arena *a, uint64_t bytes)
{
	uint64_t charge = bytes * charges_nr(a);

	return charge + (charge + 2) / 3;
}

/* How much of so many new bytes may be registered. @thread under table */
static uint64_t allowed_bytes(struct mrt__arena *a, uint64_t bytes)
{
	uint64_t limit = memlock_limit(a), left;

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

/* Memory of all regions, one that is about to be published not counted. */
static uint64_t mapped_bytes(struct mrt__arena *a)
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
	uint64_t limit = memlock_limit(a), mapped = mapped_bytes(a);

	if (limit == UINT64_MAX)
		say_once(a, REASON_MEMLOCK,
			 "the kernel refused to lock %s more: %s of them are registered, the rest is used by plain opcodes; it "
			 "may be short of memory, or want CAP_IPC_LOCK outside this user namespace",
			 size_text(bytes).text, size_text(fixed).text);
	else
		say_once(a, REASON_MEMLOCK,
			 "RLIMIT_MEMLOCK is %s and %s would be needed: of the last %s there are %s registered, the rest is used by "
			 "plain opcodes; raise it (ulimit -l, LimitMEMLOCK= of the service) or give CAP_IPC_LOCK",
			 size_text(limit).text, size_text(memlock_need(a, mapped)).text, size_text(bytes).text,
			 size_text(fixed).text);
}

static void say_refused(struct mrt__arena *a, int err)
{
	atomic_store_explicit(&a->refusal, -err, memory_order_relaxed); /* relaxed: a number for the report */
	say_once(a, REASON_REFUSED, "memory could not be registered (%s): it is used by plain opcodes", strerrordesc_np(-err));
}

/* ---- address space and memory ---- */

/* @return NULL: no room. Pages appear when they are touched, zeroed. */
static void *map_table(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* By its address, since it may be an array of atomics. */
static void unmap_table(uintptr_t table, uint64_t bytes)
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

/* Make a part usable. @return 0, -ENOMEM, -EEXIST as above */
static int commit(char *p, uint64_t bytes, bool *ret_huge)
{
	int err = commit_huge(p, bytes);

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

	if (bytes % SLOT != 0) {
		(void)madvise(last, SLOT, MADV_NOHUGEPAGE); /* without transparent huge pages all are small */
		(void)madvise(last, SLOT, MADV_DONTNEED); /* of an earlier try; fails on no memory of ours */
	}
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
		say_once(a, REASON_GROWTH,
			 "this kernel cannot register more memory once a ring has what there was (6.13 can): the %s that it "
			 "grew by are used by plain opcodes; give arena_bytes at creation",
			 size_text(a->regions[index].bytes).text);
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
		if (a->regions[index].huge && bytes % SLOT != 0)
			break;
		if (bytes % SLOT != 0 && touch(p, bytes))
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
static uint64_t publish_region(struct mrt__arena *a, const struct region *new, uint64_t fixed, bool limited)
{
	/* relaxed: only growth writes it, and we hold that */
	uint32_t index = atomic_load_explicit(&a->regions_nr, memory_order_relaxed);
	struct region *r = &a->regions[index];

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
	if (limited && fixed < r->bytes)
		say_memlock(a, r->bytes, fixed);
	return fixed;
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

	POISON(a->base + off, bytes);
	mrt__lock(&a->lock);
	if (cut) {
		mrt__extent_add(&a->extent, POOL_FIXED, first, fixed_nr, true);
		mrt__extent_add(&a->extent, POOL_PLAIN, first + fixed_nr, nr - fixed_nr, true);
	} else {
		mrt__extent_add(&a->extent, fixed == bytes ? POOL_FIXED : POOL_PLAIN, first, nr, true);
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
	struct region piece = { .off = a->used_bytes };
	uint64_t off = a->used_bytes, plan, fixed = 0;
	bool limited;
	int err;

	err = commit(a->base + off, bytes, &piece.huge);
	if (err == -EEXIST)
		a->used_bytes += bytes;
	if (err)
		return err;
	plan = plan_fixed(a, bytes, &limited);
	if (piece.huge)
		plan &= ~(SLOT - 1);
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

/* Grow for a block: to twice the size, if that is possible. @thread with growth @return 0, -ENOMEM */
static int grow_for(struct mrt__arena *a, uint64_t need, uint64_t align)
{
	uint64_t least = round_up(need, SLOT), bytes;
	unsigned tries;
	int err = -ENOMEM;

	for (tries = 0; tries <= LOST_MAX; tries++) {
		if (!has_room(a, least)) {
			say_once(a, REASON_LIMIT, "%s more do not fit: %s of at most %s are in use; raise arena_bytes_max",
				 size_text(need).text, size_text(a->used_bytes).text, size_text(a->span).text);
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
		say_once(a, REASON_MEMORY, "no memory for %s more", size_text(least).text);
	return err ? -ENOMEM : 0;
}

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
	found = mrt__extent_alloc(&a->extent, POOL_FIXED, nr, align, ret_first) ||
		mrt__extent_alloc(&a->extent, POOL_PLAIN, nr, align, ret_first);
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
		err = grow_for(a, nr * UNIT, align * UNIT);
	pthread_mutex_unlock(&a->growth);
	return err;
}

static int alloc_block(struct mrt__arena *a, uint64_t bytes, uint64_t align, void **ret_ptr)
{
	uint32_t nr, align_nr = (uint32_t)(mrt__max(align, UNIT) / UNIT), first;
	int err = 0;

	if (bytes > a->span) {
		say_once(a, REASON_LIMIT, "a block of %s does not fit: the arena may have %s; raise arena_bytes_max",
			 size_text(bytes).text, size_text(a->span).text);
		return -ENOMEM;
	}
	nr = (uint32_t)((bytes + UNIT - 1) / UNIT);
	if (mrt__unlikely(!take(a, nr, align_nr, &first)))
		err = take_growing(a, nr, align_nr, &first);
	if (err)
		return err;
	write_blocks(a, first, nr, first + 1);
	*ret_ptr = a->base + first * UNIT;
	UNPOISON(*ret_ptr, nr * UNIT);
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

	POISON(ptr, nr * UNIT);
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
	v->fixed = map_table(a->span / SLOT * sizeof(*v->fixed));
	v->use = same ? same->use : map_table(units * sizeof(*v->use));
	if (!v->fixed || !v->use) {
		unmap_table((uintptr_t)v->fixed, a->span / SLOT * sizeof(*v->fixed));
		if (!same)
			unmap_table((uintptr_t)v->use, units * sizeof(*v->use));
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
	unmap_table((uintptr_t)v->fixed, v->span / SLOT * sizeof(*v->fixed));
	memset(v, 0, sizeof(*v));
}

/* Registered memory [off, off + bytes) has this index on the ring. */
static void fill_fixed(struct mrt__arena_view *v, uint32_t index, uint64_t off, uint64_t bytes)
{
	uint64_t slot;

	for (slot = off / SLOT; slot * SLOT < off + bytes; slot++)
		v->fixed[slot] = (off + bytes) << 16 | index;
}

static uint64_t fixed_of(const struct region *r)
{
	return atomic_load_explicit(&r->fixed_bytes, memory_order_relaxed); /* relaxed: falls only, and a view checks */
}

/* The ring's table is to be as the donor's. @thread under table, the ring's owner */
static void sync_clone(struct mrt__arena_view *v, struct mrt__ring *ring, uint32_t regions_nr)
{
	struct mrt__arena *a = v->arena;
	uint32_t i = v->seen;
	bool whole = !v->cloned;
	int err;

	if (whole) {
		for (i = 0; i < regions_nr && fixed_of(&a->regions[i]) == 0; i++)
			;
		if (i == regions_nr)
			return; /* nothing to be had: a later one may still clone the whole */
	}
	for (; i < regions_nr; i++) {
		uint64_t bytes = fixed_of(&a->regions[i]);

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
static void lower_fixed(struct mrt__arena *a, struct region *r, uint64_t bytes)
{
	pthread_mutex_lock(&a->table);
	if (bytes < fixed_of(r)) {
		a->charged_bytes -= (fixed_of(r) - bytes) * charges_nr(a);
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
		struct region *r = &a->regions[i];
		uint64_t bytes = fixed_of(r);
		int err = -ENOMEM;

		while (bytes >= MRT__ARENA_FIXED_BYTES_MIN && err == -ENOMEM) {
			err = mrt__ring_buffer_set(ring, MRT__ARENA_REGIONS_MAX, i, a->base + r->off, bytes);
			if (err == -ENOMEM)
				bytes = halve(bytes);
		}
		if (err == -EINVAL)
			say_once(a, REASON_KERNEL, "this kernel cannot register buffers piece by piece (5.19 can): the memory is "
						   "used by plain opcodes");
		else if (err && err != -ENOMEM)
			say_refused(a, err);
		if (err)
			bytes = 0;
		if (bytes < fixed_of(r)) {
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
		/* no wait: somebody may be registering a gigabyte, and there are the plain opcodes */
		if (pthread_mutex_trylock(&a->table))
			return;
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

enum mrt__arena_kind mrt__arena_look(const struct mrt__arena *a, uint64_t addr, uint32_t len)
{
	uint64_t off = addr - (uintptr_t)a->base, last = off + len - (len > 0);
	uint32_t nr = atomic_load_explicit(&a->regions_nr, memory_order_acquire), i; /* [ARENA.regions.obs] */

	if (off >= a->span || last >= a->span || !mrt__arena_is_live(a->blocks, off, last))
		return MRT__ARENA_BAD;
	for (i = 0; i < nr; i++)
		if (off >= a->regions[i].off && last < a->regions[i].off + fixed_of(&a->regions[i]))
			return MRT__ARENA_FIXED;
	return MRT__ARENA_PLAIN;
}

/* ---- life ---- */

static void free_arena(struct mrt__arena *a)
{
	uint64_t units = a->span / UNIT;
	uint32_t i;

	/* one by one: between them there may be what was lost, and is somebody else's */
	for (i = 0; i < atomic_load_explicit(&a->regions_nr, memory_order_relaxed); i++) { /* relaxed: all others are gone */
		UNPOISON(a->base + a->regions[i].off, a->regions[i].bytes);
		(void)munmap(a->base + a->regions[i].off, a->regions[i].bytes);
	}
	if (a->base && a->used_bytes < a->span)
		(void)munmap(a->base + a->used_bytes, a->span - a->used_bytes);
	unmap_table((uintptr_t)a->blocks, units * sizeof(*a->blocks));
	unmap_table((uintptr_t)a->tags, units * sizeof(*a->tags));
	for (i = 0; i < atomic_load_explicit(&a->uses_nr, memory_order_relaxed); i++) /* relaxed: all others are gone */
		unmap_table((uintptr_t)atomic_load_explicit(&a->uses[i], memory_order_relaxed), units * sizeof(uint32_t));
	pthread_mutex_destroy(&a->growth);
	pthread_mutex_destroy(&a->table);
	unmap_table((uintptr_t)a->uses, a->workers_nr * sizeof(*a->uses));
	free(a);
}

/* Address space and tables, halved until they fit (RLIMIT_AS, mlockall). */
static int map_arena(struct mrt__arena *a, uint64_t want)
{
	for (a->span = want; a->span >= SLOT; a->span = (a->span / 2) & ~(SLOT - 1)) {
		uint64_t units = a->span / UNIT;

		a->base = reserve(a->span);
		a->blocks = map_table(units * sizeof(*a->blocks));
		a->tags = map_table(units * sizeof(*a->tags));
		if (a->base && a->blocks && a->tags)
			break;
		if (a->base)
			(void)munmap(a->base, a->span); /* ours, whole */
		unmap_table((uintptr_t)a->blocks, units * sizeof(*a->blocks));
		unmap_table((uintptr_t)a->tags, units * sizeof(*a->tags));
		a->base = NULL;
		a->blocks = NULL;
		a->tags = NULL;
	}
	if (a->span < SLOT) {
		a->span = 0;
		return -ENOMEM;
	}
	if (a->span < want)
		say_once(a, REASON_SPACE, "there is address space for %s of %s only; raise RLIMIT_AS", size_text(a->span).text,
			 size_text(want).text);
	mrt__extent_init(&a->extent, a->tags, (uint32_t)(a->span / UNIT));
	return 0;
}

/* The regions that were asked for. */
static int begin_with(struct mrt__arena *a, uint64_t bytes)
{
	int err = 0;

	pthread_mutex_lock(&a->growth);
	while (!err && a->used_bytes < bytes) {
		uint64_t piece = mrt__min(bytes - a->used_bytes, MRT__ARENA_REGION_BYTES_MAX);

		err = has_room(a, piece) ? grow_by(a, piece, 0, UNIT) : -ENOMEM;
	}
	pthread_mutex_unlock(&a->growth);
	if (err)
		mrt__sched_log(a->sched, MRT_LOG_ERROR, "no memory for an arena of %s: lower arena_bytes", size_text(bytes).text);
	return err ? -ENOMEM : 0;
}

int mrt__arena_create(const struct mrt__arena_opts *opts, struct mrt__arena **ret_arena)
{
	uint64_t bytes = round_up(mrt__min(opts->bytes, MRT__ARENA_BYTES_MAX), SLOT);
	uint64_t bytes_max = mrt__max(round_up(mrt__min(opts->bytes_max, MRT__ARENA_BYTES_MAX), SLOT), mrt__max(bytes, SLOT));
	struct mrt__arena *a = aligned_alloc(MRT__CACHE_PAIR, round_up(sizeof(*a), MRT__CACHE_PAIR));
	int err;

	if (!a)
		return -ENOMEM;
	memset(a, 0, sizeof(*a));
	a->sched = opts->sched;
	a->workers_nr = opts->workers_nr;
	a->exempt = is_exempt();
	pthread_mutex_init(&a->growth, NULL);
	pthread_mutex_init(&a->table, NULL);
	a->uses = map_table(opts->workers_nr * sizeof(*a->uses));
	err = a->uses ? map_arena(a, bytes_max) : -ENOMEM;
	choose_how(a);
	if (!err)
		err = begin_with(a, bytes);
	if (err) {
		mrt__ring_donor_destroy(a->donor);
		free_arena(a);
		return err;
	}
	*ret_arena = a;
	return 0;
}

void mrt__arena_destroy(struct mrt__arena *a)
{
	if (!a)
		return;
	mrt__ring_donor_destroy(a->donor);
	free_arena(a);
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
	free_units = a->extent.pools[POOL_FIXED].free_nr + a->extent.pools[POOL_PLAIN].free_nr;
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

/* rt NULL: the running task's. @return 0, -EINVAL, -ECHILD */
static int find_sched(struct mrt_runtime *rt, struct mrt__sched **ret_sched)
{
	struct mrt__worker *w = mrt__worker_self;

	if (mrt__sched_is_forked())
		return -ECHILD;
	/* struct mrt_runtime begins with its scheduler (asserted in src/rt) */
	if (rt)
		*ret_sched = (struct mrt__sched *)(void *)rt;
	else if (w && w->task)
		*ret_sched = w->sched;
	else
		return -EINVAL;
	return 0;
}

int mrt_alloc(struct mrt_runtime *rt, size_t bytes, size_t align, void **ret_ptr)
{
	struct mrt__sched *s;
	int err = find_sched(rt, &s);

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
	err = find_sched(rt, &s);
	if (err == -ECHILD)
		return;
	if (err)
		mrt__bug("mrt_free: %p is freed outside a task: name the runtime that it came from", ptr);
	if (!s->arena)
		mrt__bug("mrt_free: %p is not memory of this runtime's arena", ptr);
	free_block(s->arena, ptr);
}

/* ---- report ---- */

struct text {
	char *at;
	size_t left;
};

__attribute__((format(printf, 2, 3)))
static void add_text(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int nr;

	va_start(ap, fmt);
	nr = vsnprintf(t->at, t->left, fmt, ap);
	va_end(ap);
	nr = nr < 0 ? 0 : nr;
	nr = (size_t)nr >= t->left ? (int)t->left - 1 : nr; /* cut */
	t->at += nr;
	t->left -= (size_t)nr;
}

static void report_reasons(struct mrt__arena *a, const struct mrt_arena_report *r, struct text *t)
{
	unsigned reasons = atomic_load_explicit(&a->reasons, memory_order_relaxed); /* relaxed: marks */

	if (reasons & 1u << REASON_MEMLOCK && r->memlock_limit != UINT64_MAX)
		add_text(t, "; RLIMIT_MEMLOCK is %s, %s would be needed for all", size_text(r->memlock_limit).text,
			 size_text(r->memlock_need).text);
	else if (reasons & 1u << REASON_MEMLOCK)
		add_text(t, "; the kernel refused to lock more");
	if (reasons & 1u << REASON_GROWTH)
		add_text(t, "; growth is not registered on this kernel (6.13 can): give arena_bytes");
	if (reasons & 1u << REASON_KERNEL)
		add_text(t, "; this kernel cannot register buffers piece by piece (5.19 can)");
	if (reasons & 1u << REASON_REFUSED)
		add_text(t, "; the kernel refused: %s",
			 strerrordesc_np(atomic_load_explicit(&a->refusal, memory_order_relaxed))); /* relaxed: a number */
	if (reasons & 1u << REASON_SPACE)
		add_text(t, "; the address space was too small for more");
	if (reasons & 1u << REASON_LIMIT)
		add_text(t, "; a block did not fit in arena_bytes_max");
	if (reasons & 1u << REASON_MEMORY)
		add_text(t, "; there was no memory to grow");
}

static void report_text(struct mrt__arena *a, struct mrt_arena_report *r)
{
	static const char *const hows[] = { "nothing is registered", "registered once and cloned into each ring",
					    "registered with each ring on its own" };
	struct text t = { .at = r->text, .left = sizeof(r->text) };

	if (r->regions_nr == 0) {
		add_text(&t, "no memory yet; up to %s", size_text(r->limit_bytes).text);
	} else {
		add_text(&t, "%s of up to %s in %u %s, ", size_text(r->mapped_bytes).text, size_text(r->limit_bytes).text,
			 r->regions_nr, r->regions_nr == 1 ? "region" : "regions");
		if (r->registered_bytes > 0)
			add_text(&t, "%s of it %s", size_text(r->registered_bytes).text, hows[r->how]);
		else
			add_text(&t, "%s", hows[MRT_ARENA_UNREGISTERED]);
		if (r->huge_bytes > 0)
			add_text(&t, ", %s in huge pages", size_text(r->huge_bytes).text);
	}
	report_reasons(a, r, &t);
}

static void report_arena(struct mrt__arena *a, struct mrt_arena_report *r)
{
	uint32_t i;

	memset(r, 0, sizeof(*r));
	r->limit_bytes = a->span;
	r->regions_nr = atomic_load_explicit(&a->regions_nr, memory_order_acquire); /* [ARENA.regions.obs] */
	r->how = atomic_load_explicit(&a->how, memory_order_relaxed); /* relaxed: published with the regions */
	r->mapped_bytes = mapped_bytes(a);
	for (i = 0; i < r->regions_nr; i++) {
		uint64_t fixed = fixed_of(&a->regions[i]);

		r->registered_bytes += fixed;
		r->huge_bytes += a->regions[i].huge ? a->regions[i].bytes : 0;
		r->regions_unregistered += fixed < a->regions[i].bytes;
	}
	if (r->registered_bytes == 0)
		r->how = MRT_ARENA_UNREGISTERED;
	mrt__lock(&a->lock);
	r->allocated_bytes = a->allocated_units * UNIT;
	r->waiting_bytes = a->waiting_units * UNIT;
	r->allocs = a->allocs;
	r->frees = a->frees;
	mrt__unlock(&a->lock);
	r->memlock_need = memlock_need(a, r->mapped_bytes);
	r->memlock_limit = memlock_limit(a);
	report_text(a, r);
}

int mrt_arena_report(struct mrt_runtime *rt, struct mrt_arena_report *ret_report)
{
	struct mrt__sched *s;
	int err = find_sched(rt, &s);

	if (err)
		return err;
	if (!ret_report || !s->arena)
		return -EINVAL;
	report_arena(s->arena, ret_report);
	return 0;
}
