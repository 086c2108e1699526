/* SPDX-License-Identifier: MIT */
/*
 * The arena on a kernel that is made up: a donor and rings whose buffer tables can be looked at, with a memlock limit of
 * their own, in each of the ways that kernels differ. Whenever a hold says "registered, with this index", the ring's table
 * must hold the memory at that index.
 *
 * The real kernel, and ordinary users on it, are in tests/integration/test_arena_io.c. The scheduler's part (who holds and
 * releases when) is not here.
 */
#include <check.h>
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/rand.h"
#include "ring/ring.h"
#include "sched/arena.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "suite.h"

#if MRT__ASAN
#include <sanitizer/asan_interface.h>
#endif
#if MRT__ASAN || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define LIMIT_S 30
#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define WORKERS_NR 4u
#define SLOTS_NR 256u

/* ---- the kernel ---- */

struct slot {
	char *base;
	size_t bytes;
};

struct mrt__ring_donor {
	struct slot slots[SLOTS_NR];
};

struct mrt__ring {
	struct slot slots[SLOTS_NR];
	bool has_table;
	unsigned calls;
};

static struct {
	int donor_err;                  /* donor_create */
	bool once;                      /* a ring can clone once only */
	int set_err;                    /* donor_set, buffer_set */
	int clone_err;
	uint64_t limit, charged;
	void (*in_set)(void);           /* while donor_set runs */
	struct mrt__ring_donor donor;
	unsigned donors_nr;
} kernel;

static struct mrt__ring rings[WORKERS_NR];

static int charge(struct slot *slot, void *base, size_t bytes)
{
	ck_assert_ptr_null(slot->base);
	ck_assert(bytes > 0 && bytes <= GIB);
	if (kernel.set_err)
		return kernel.set_err;
	if (kernel.charged + bytes > kernel.limit)
		return -ENOMEM;
	kernel.charged += bytes;
	slot->base = base;
	slot->bytes = bytes;
	return 0;
}

int mrt__ring_donor_create(unsigned nr, struct mrt__ring_donor **ret_donor)
{
	ck_assert_uint_eq(nr, SLOTS_NR);
	if (kernel.donor_err)
		return kernel.donor_err;
	ck_assert_uint_eq(kernel.donors_nr, 0);
	kernel.donors_nr++;
	*ret_donor = &kernel.donor;
	return 0;
}

void mrt__ring_donor_destroy(struct mrt__ring_donor *donor)
{
	if (donor)
		kernel.donors_nr--;
}

void mrt__ring_donor_abandon(struct mrt__ring_donor *donor)
{
	ck_assert_ptr_eq(donor, &kernel.donor);
	kernel.donors_nr--;
}

int mrt__ring_donor_set(struct mrt__ring_donor *donor, unsigned slot, void *base, size_t bytes)
{
	if (kernel.in_set)
		kernel.in_set();
	return charge(&donor->slots[slot], base, bytes);
}

bool mrt__ring_donor_can_grow(const struct mrt__ring_donor *donor)
{
	ck_assert_ptr_eq(donor, &kernel.donor);
	return !kernel.once;
}

int mrt__ring_donor_clone(struct mrt__ring_donor *donor, struct mrt__ring *ring, unsigned slot)
{
	ring->calls++;
	if (kernel.clone_err)
		return kernel.clone_err;
	if (!ring->has_table) {
		memcpy(ring->slots, donor->slots, sizeof(ring->slots));
		ring->has_table = true;
		return 0;
	}
	if (kernel.once)
		return -EBUSY;
	ring->slots[slot] = donor->slots[slot];
	return 0;
}

int mrt__ring_buffer_set(struct mrt__ring *ring, unsigned nr, unsigned slot, void *base, size_t bytes)
{
	ck_assert_uint_eq(nr, SLOTS_NR);
	ring->calls++;
	return charge(&ring->slots[slot], base, bytes);
}

/* ---- the scheduler ---- */

__thread struct mrt__worker *mrt__worker_self __attribute__((tls_model("initial-exec")));

static bool forked;
static char told[8192];
static unsigned told_nr;
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;

bool mrt__sched_is_forked(void)
{
	return forked;
}

void mrt__sched_log(struct mrt__sched *s, int level, const char *fmt, ...)
{
	size_t at;
	va_list ap;

	(void)s;
	(void)level;
	pthread_mutex_lock(&told_lock);
	at = strlen(told);
	va_start(ap, fmt);
	(void)vsnprintf(told + at, sizeof(told) - at, fmt, ap); /* cut to fit */
	va_end(ap);
	told_nr++;
	pthread_mutex_unlock(&told_lock);
}

static void expect_told(const char *part, unsigned nr)
{
	ck_assert_msg(strstr(told, part), "not told of '%s', but: %s", part, told);
	ck_assert_msg(told_nr == nr, "told %u times: %s", told_nr, told);
}

static void expect_silence(void)
{
	ck_assert_msg(told_nr == 0, "told: %s", told);
}

/* ---- an arena ---- */

static struct mrt__sched sched;
static struct mrt_runtime *rt = (struct mrt_runtime *)(void *)&sched;
static struct mrt__arena_view views[WORKERS_NR];

static bool is_limited;

/* What an ordinary user's real limit is, is not this kernel's: there is one where a test has set one. */
int getrlimit(__rlimit_resource_t resource, struct rlimit *ret)
{
	if (resource != RLIMIT_MEMLOCK || is_limited)
		return prlimit(0, resource, NULL, ret);
	*ret = (struct rlimit){ .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
	return 0;
}

static void setup(void)
{
	kernel.limit = UINT64_MAX;
}

static void start(uint64_t bytes, uint64_t bytes_max)
{
	struct mrt__arena_opts opts = { .sched = &sched, .bytes = bytes, .bytes_max = bytes_max, .workers_nr = WORKERS_NR };
	unsigned i;

	ck_assert_int_eq(mrt__arena_create(&opts, &sched.arena), 0);
	for (i = 0; i < WORKERS_NR; i++)
		ck_assert_int_eq(mrt__arena_view_init(&views[i], sched.arena, NULL), 0);
}

static void check(void)
{
	ck_assert(mrt__arena_check(sched.arena, stderr));
}

static void stop(void)
{
	unsigned i;

	check();
	for (i = 0; i < WORKERS_NR; i++)
		mrt__arena_view_fini(&views[i]);
	mrt__arena_destroy(sched.arena);
	sched.arena = NULL;
	ck_assert_uint_eq(kernel.donors_nr, 0);
}

static char *take(uint64_t bytes, size_t align)
{
	void *p = NULL;
	int err = mrt_alloc(rt, bytes, align, &p);

	ck_assert_msg(err == 0, "%llu bytes aligned to %zu: %d", (unsigned long long)bytes, align, err);
	ck_assert_uint_eq((uintptr_t)p % mrt__max(align, (size_t)MRT_ARENA_UNIT), 0);
	ck_assert(mrt__arena_has(&views[0], p));
	ck_assert(mrt__arena_has(&views[0], (char *)p + bytes - 1));
	return p;
}

static void refuse(uint64_t bytes)
{
	void *p = &bytes;

	ck_assert_int_eq(mrt_alloc(rt, bytes, 0, &p), -ENOMEM);
	ck_assert_ptr_eq(p, &bytes);
	check();
}

static void give(void *p)
{
	mrt_free(rt, p);
	check();
}

static uint64_t addr(const void *p)
{
	return (uintptr_t)p;
}

/* Hold; a registered answer must be true of the ring's table. */
static enum mrt__arena_kind hold(unsigned worker, const char *p, uint32_t len)
{
	struct mrt__ring *ring = &rings[worker];
	uint16_t index = UINT16_MAX;
	enum mrt__arena_kind kind = mrt__arena_hold(&views[worker], ring, addr(p), len, &index);

	if (kind == MRT__ARENA_FIXED) {
		ck_assert_uint_lt(index, SLOTS_NR);
		ck_assert(ring->slots[index].base && p >= ring->slots[index].base);
		ck_assert(p + len <= ring->slots[index].base + ring->slots[index].bytes);
	} else {
		ck_assert_uint_eq(index, UINT16_MAX);
	}
	return kind;
}

static void release(unsigned worker, const char *p)
{
	mrt__arena_release(&views[worker], addr(p));
}

/* Hold and release. */
static enum mrt__arena_kind try(unsigned worker, const char *p, uint32_t len)
{
	enum mrt__arena_kind kind = hold(worker, p, len);

	if (kind != MRT__ARENA_BAD)
		release(worker, p);
	return kind;
}

static struct mrt_arena_report report(void)
{
	struct mrt_arena_report r;

	ck_assert_int_eq(mrt_arena_report(rt, &r), 0);
	ck_assert_uint_gt(strlen(r.text), 0);
	ck_assert_uint_lt(strlen(r.text), sizeof(r.text));
	return r;
}

/* ---- arguments ---- */

START_TEST(a_view_of_nothing_has_nothing)
{
	struct mrt__arena_view v;
	int here;

	ck_assert_int_eq(mrt__arena_view_init(&v, NULL, NULL), 0);
	ck_assert(!mrt__arena_has(&v, &here));
	ck_assert(!mrt__arena_has(&v, NULL));
	ck_assert(!mrt__arena_has(&v, (void *)UINTPTR_MAX));
	mrt__arena_view_fini(&v);
	mrt__arena_destroy(NULL);
	mrt__arena_abandon(NULL);
}
END_TEST

START_TEST(arguments_outside_their_range_are_refused)
{
	void *p = &p;

	start(0, 16 * MIB);
	ck_assert_int_eq(mrt_alloc(rt, 0, 0, &p), -EINVAL);
	ck_assert_int_eq(mrt_alloc(rt, 1, 3, &p), -EINVAL);
	ck_assert_int_eq(mrt_alloc(rt, 1, 4 * MIB, &p), -EINVAL);
	ck_assert_int_eq(mrt_alloc(NULL, 1, 0, &p), -EINVAL);
	ck_assert_int_eq(mrt_arena_report(rt, NULL), -EINVAL);
	ck_assert_int_eq(mrt_arena_report(NULL, NULL), -EINVAL);
	ck_assert_ptr_eq(p, &p);
	mrt_free(rt, NULL);
	mrt_free(NULL, NULL);
	ck_assert_uint_eq(report().regions_nr, 0);
	forked = true;
	ck_assert_int_eq(mrt_alloc(rt, 1, 0, &p), -ECHILD);
	mrt_free(rt, &p);
	ck_assert_int_eq(mrt_arena_report(rt, NULL), -ECHILD);
	forked = false;
	expect_silence();
	stop();
}
END_TEST

START_TEST(a_runtime_without_an_arena_has_no_memory)
{
	void *p;
	struct mrt_arena_report r;

	ck_assert_int_eq(mrt_alloc(rt, 1, 0, &p), -ENOMEM);
	ck_assert_int_eq(mrt_arena_report(rt, &r), -EINVAL);
}
END_TEST

/* ---- blocks ---- */

START_TEST(blocks_are_memory_of_their_own)
{
	char *blocks[64];
	unsigned i;

	start(0, 16 * MIB);
	for (i = 0; i < MRT__ARRAY_NR(blocks); i++) {
		blocks[i] = take(1 + i * 1000, 0);
		memset(blocks[i], (int)i, 1 + i * 1000);
	}
	for (i = 0; i < MRT__ARRAY_NR(blocks); i++) {
		ck_assert_int_eq(blocks[i][0], (char)i);
		ck_assert_int_eq(blocks[i][i * 1000], (char)i);
		ck_assert_uint_eq(try(0, blocks[i], 1 + i * 1000), MRT__ARENA_FIXED);
	}
	for (i = 0; i < MRT__ARRAY_NR(blocks); i++)
		give(blocks[i]);
	ck_assert_uint_eq(report().allocated_bytes, 0);
	ck_assert_uint_eq(report().allocs, MRT__ARRAY_NR(blocks));
	ck_assert_uint_eq(report().frees, MRT__ARRAY_NR(blocks));
	stop();
}
END_TEST

START_TEST(each_alignment_is_kept)
{
	size_t align = (size_t)1 << _i;
	char *a, *b;

	start(0, 64 * MIB);
	(void)take(1, 0); /* so that the next one is not aligned by chance */
	a = take(5000, align);
	b = take(4 * MIB, align);
	ck_assert_uint_eq(try(0, a, 5000), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, b, 4 * MIB), MRT__ARENA_FIXED);
	give(a);
	give(b);
	expect_silence();
	stop();
}
END_TEST

START_TEST(memory_that_is_not_wholly_in_one_live_block_is_bad)
{
	char *a, *b;

	start(2 * MIB, 8 * MIB);
	a = take(3 * 4096, 0);
	b = take(4096, 0);
	ck_assert_ptr_eq(b, a + 3 * 4096); /* else what follows proves less */
	ck_assert_uint_eq(try(0, a, 3 * 4096), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, a + 1, 3 * 4096 - 1), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, a + 3 * 4096 - 1, 1), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, a, 3 * 4096 + 1), MRT__ARENA_BAD);
	ck_assert_uint_eq(try(0, a + 3 * 4096 - 1, 2), MRT__ARENA_BAD);
	ck_assert_uint_eq(try(0, b, 4097), MRT__ARENA_BAD);
	ck_assert_uint_eq(try(0, a, UINT32_MAX), MRT__ARENA_BAD);
	/* not given out, no memory there yet, the last byte of all */
	ck_assert_uint_eq(try(0, b + 4096, 1), MRT__ARENA_BAD);
	ck_assert_uint_eq(try(0, (char *)views[0].base + 4 * MIB, 1), MRT__ARENA_BAD);
	ck_assert_uint_eq(try(0, (char *)views[0].base + 8 * MIB - 1, UINT32_MAX), MRT__ARENA_BAD);
	/* nothing at all may be read at any live address */
	ck_assert_uint_eq(try(0, a, 0), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, b + 4096, 0), MRT__ARENA_BAD);
	ck_assert_uint_eq(mrt__arena_look(sched.arena, addr(a), 3 * 4096), MRT__ARENA_FIXED);
	ck_assert_uint_eq(mrt__arena_look(sched.arena, addr(a), 3 * 4096 + 1), MRT__ARENA_BAD);
	ck_assert_uint_eq(mrt__arena_look(sched.arena, addr(&a), 1), MRT__ARENA_BAD);
	give(a);
	ck_assert_uint_eq(try(0, a, 1), MRT__ARENA_BAD);
	ck_assert_uint_eq(try(0, a + 8192, 0), MRT__ARENA_BAD);
	ck_assert_uint_eq(try(0, b, 4096), MRT__ARENA_FIXED);
	give(b);
	stop();
}
END_TEST

START_TEST(at_the_limit_there_is_no_more_until_something_is_freed)
{
	char *blocks[4];
	unsigned i;

	start(0, 8 * MIB);
	ck_assert_uint_eq(report().limit_bytes, 8 * MIB);
	for (i = 0; i < 4; i++)
		blocks[i] = take(2 * MIB, 0);
	refuse(4096);
	expect_told("raise arena_bytes_max", 1);
	refuse(4096);
	ck_assert_uint_eq(told_nr, 1);
	give(blocks[2]);
	blocks[2] = take(2 * MIB, MRT_ARENA_ALIGN_MAX);
	refuse(1);
	refuse(9 * MIB);
	refuse(SIZE_MAX);
	for (i = 0; i < 4; i++)
		give(blocks[i]);
	refuse(8 * MIB); /* regions are not one block */
	stop();
}
END_TEST

START_TEST(it_grows_to_twice_its_size_each_time)
{
	uint64_t mapped = 0, regions = 0;

	start(0, 64 * MIB);
	while (report().allocated_bytes < 40 * MIB) {
		struct mrt_arena_report r;

		(void)take(MIB, 0);
		r = report();
		ck_assert_uint_eq(r.registered_bytes, r.mapped_bytes);
		if (r.regions_nr > regions) {
			ck_assert(r.mapped_bytes == 2 * mapped || mapped == 0);
			mapped = r.mapped_bytes;
			regions = r.regions_nr;
		}
	}
	ck_assert_uint_eq(mapped, 64 * MIB);
	ck_assert_uint_eq(regions, 6);
	stop();
}
END_TEST

START_TEST(a_block_of_more_than_a_gigabyte_is_several_buffers)
{
	bool whole = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * 4096 > 4 * GIB && !SANITIZED;
	char *p;

	/* where that would be too much memory, nothing is registered, and so nothing touched */
	if (!whole)
		kernel.donor_err = -EMFILE;
	start(0, 4 * GIB);
	p = take(GIB + 3 * MIB, 0);
	ck_assert_uint_eq(report().regions_nr, 2);
	ck_assert_uint_eq(report().mapped_bytes, GIB + 4 * MIB);
	ck_assert_uint_eq(try(0, p + GIB - 4096, 8192), MRT__ARENA_PLAIN);
	if (whole) {
		ck_assert_uint_eq(try(0, p, GIB), MRT__ARENA_FIXED);
		ck_assert_uint_eq(try(0, p + GIB, 3 * MIB), MRT__ARENA_FIXED);
		ck_assert_uint_eq(report().regions_unregistered, 0);
	}
	ck_assert_uint_eq(try(0, p + GIB, 3 * MIB + 1), MRT__ARENA_BAD);
	give(p);
	stop();
}
END_TEST

START_TEST(memory_at_the_start_is_cut_into_regions_of_a_gigabyte)
{
	kernel.donor_err = -EMFILE; /* nothing is touched then */
	start(2 * GIB + 2 * MIB, GIB);
	ck_assert_uint_eq(report().regions_nr, 3);
	ck_assert_uint_eq(report().mapped_bytes, 2 * GIB + 2 * MIB);
	ck_assert_uint_eq(report().limit_bytes, 2 * GIB + 2 * MIB);
	(void)take(GIB, 0);
	(void)take(GIB, 0);
	refuse(GIB);
	stop();
}
END_TEST

/* ---- ops in flight ---- */

START_TEST(a_block_that_is_freed_with_ops_in_flight_waits_for_them)
{
	char *a, *b;
	unsigned i;

	start(2 * MIB, 2 * MIB);
	a = take(2 * MIB, 0);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(hold(1, a + 4096, 4096), MRT__ARENA_FIXED);
	ck_assert_uint_eq(hold(3, a + 2 * MIB - 4096, 10), MRT__ARENA_FIXED);
	give(a);
	expect_told("with 4 ops in flight", 1);
	ck_assert_uint_eq(hold(1, a + 4096, 4096), MRT__ARENA_BAD);
	ck_assert_uint_eq(report().waiting_bytes, 2 * MIB);
	ck_assert_uint_eq(report().allocated_bytes, 2 * MIB);
	for (i = 0; i < 3; i++) {
		refuse(4096);
		release(1, a + 4096);
	}
	refuse(4096);
	release(3, a + 2 * MIB - 4096);
	b = take(2 * MIB, 0);
	ck_assert_ptr_eq(a, b);
	ck_assert_uint_eq(report().waiting_bytes, 0);
	give(b);
	stop();
}
END_TEST

START_TEST(the_two_rings_of_a_worker_share_its_counts)
{
	struct mrt__arena_view second;
	struct mrt__ring ring = { 0 };
	uint16_t index;
	char *a;

	start(2 * MIB, 2 * MIB);
	ck_assert_int_eq(mrt__arena_view_init(&second, sched.arena, &views[0]), 0);
	a = take(2 * MIB, 0);
	ck_assert_uint_eq(mrt__arena_hold(&second, &ring, addr(a), 1, &index), MRT__ARENA_FIXED);
	ck_assert(ring.has_table && !rings[0].has_table);
	ck_assert_uint_eq(hold(0, a, 1), MRT__ARENA_FIXED);
	give(a);
	release(0, a);
	refuse(1);
	mrt__arena_release(&second, addr(a));
	give(take(2 * MIB, 0));
	mrt__arena_view_fini(&second);
	stop();
}
END_TEST

START_TEST(blocks_that_wait_are_looked_at_in_turn)
{
	char *blocks[40];
	unsigned i;

	start(2 * MIB, 2 * MIB);
	for (i = 0; i < MRT__ARRAY_NR(blocks); i++) {
		blocks[i] = take(8192, 0);
		ck_assert_uint_eq(hold(i % WORKERS_NR, blocks[i], 1), MRT__ARENA_FIXED);
		give(blocks[i]);
	}
	ck_assert_uint_eq(told_nr, MRT__ARRAY_NR(blocks));
	ck_assert_uint_eq(report().waiting_bytes, MRT__ARRAY_NR(blocks) * 8192);
	/* the last ones end; alloc and free find them by and by */
	for (i = 30; i < 40; i++)
		release(i % WORKERS_NR, blocks[i]);
	for (i = 0; i < 10; i++)
		give(take(4096, 0));
	ck_assert_uint_eq(report().waiting_bytes, 30 * 8192);
	for (i = 0; i < 30; i++)
		release(i % WORKERS_NR, blocks[i]);
	/* and all at once when there is no room */
	give(take(2 * MIB, 0));
	ck_assert_uint_eq(report().waiting_bytes, 0);
	ck_assert_uint_eq(told_nr, MRT__ARRAY_NR(blocks));
	stop();
}
END_TEST

START_TEST(a_large_block_that_waits_is_looked_through_in_parts)
{
	char *p;

	kernel.donor_err = -EMFILE; /* nothing is touched then */
	start(0, 256 * MIB);
	p = take(256 * MIB, 0);
	ck_assert_uint_eq(hold(0, p, 1), MRT__ARENA_PLAIN);
	give(p);
	release(0, p);
	give(take(256 * MIB, 0));
	stop();
}
END_TEST

/* ---- kernels ---- */

START_TEST(a_ring_that_has_cloned_learns_of_growth)
{
	char *a, *b;

	start(0, 64 * MIB);
	a = take(2 * MIB, 0);
	ck_assert_uint_eq(try(0, a, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(rings[0].calls, 1);
	ck_assert_uint_eq(try(0, a, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(rings[0].calls, 1);
	b = take(8 * MIB, 0);
	ck_assert_uint_eq(try(0, b, 8 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(rings[0].calls, 2);
	/* another brings all of it at once */
	ck_assert_uint_eq(try(1, b, 8 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(1, a, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(rings[1].calls, 1);
	ck_assert_uint_eq(report().how, MRT_ARENA_CLONED);
	ck_assert_uint_eq(kernel.charged, 10 * MIB);
	expect_silence();
	stop();
}
END_TEST

START_TEST(where_a_ring_clones_once_only_later_growth_is_plain_everywhere)
{
	char *a, *b, *c;

	kernel.once = true;
	start(0, 64 * MIB);
	a = take(2 * MIB, 0);
	b = take(2 * MIB, 0);
	ck_assert_uint_eq(try(0, b, 2 * MIB), MRT__ARENA_FIXED);
	expect_silence();
	c = take(2 * MIB, 0);
	expect_told("give arena_bytes", 1);
	ck_assert_uint_eq(try(0, c, 2 * MIB), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(1, c, 2 * MIB), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(1, a, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(report().regions_unregistered, 1);
	ck_assert_uint_eq(report().registered_bytes, 4 * MIB);
	ck_assert_ptr_nonnull(strstr(report().text, "arena_bytes"));
	/* what is registered is used first */
	give(a);
	ck_assert_ptr_eq(take(MIB, 0), a);
	stop();
}
END_TEST

START_TEST(without_a_donor_each_ring_registers_for_itself)
{
	char *a, *b;

	kernel.donor_err = -EOPNOTSUPP;
	start(2 * MIB, 64 * MIB);
	a = take(2 * MIB, 0);
	ck_assert_uint_eq(kernel.charged, 0);
	ck_assert_uint_eq(try(0, a, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(1, a, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(kernel.charged, 4 * MIB);
	b = take(2 * MIB, 0);
	ck_assert_uint_eq(try(1, b, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(report().how, MRT_ARENA_PER_RING);
	ck_assert_uint_eq(report().registered_bytes, 4 * MIB);
	expect_silence();
	/* ring 0 finds less room than was thought, and the others take no more than it */
	kernel.limit = kernel.charged + 600 * KIB;
	ck_assert_uint_eq(try(0, b, 2 * MIB), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(0, b, 512 * KIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, b, 512 * KIB + 1), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(report().registered_bytes, 2 * MIB + 512 * KIB);
	ck_assert_uint_eq(told_nr, 1);
	kernel.limit = UINT64_MAX;
	ck_assert_uint_eq(try(2, b, 2 * MIB), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(2, b, 512 * KIB), MRT__ARENA_FIXED);
	stop();
}
END_TEST

START_TEST(a_kernel_that_cannot_register_is_done_without)
{
	char *a;

	kernel.donor_err = -EOPNOTSUPP;
	kernel.set_err = -EINVAL;
	start(2 * MIB, 64 * MIB);
	a = take(2 * MIB, 0);
	ck_assert_uint_eq(try(0, a, 2 * MIB), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(1, a, 2 * MIB), MRT__ARENA_PLAIN);
	expect_told("cannot register buffers", 1);
	ck_assert_uint_eq(report().how, MRT_ARENA_UNREGISTERED);
	ck_assert_uint_eq(report().registered_bytes, 0);
	ck_assert_uint_eq(try(2, take(8 * MIB, 0), 8 * MIB), MRT__ARENA_PLAIN);
	stop();
}
END_TEST

START_TEST(whatever_fails_the_memory_can_be_used)
{
	char *a, *b;

	switch (_i) {
	case 0: kernel.donor_err = -ENOMEM; break;
	case 1: kernel.donor_err = -EMFILE; break;
	case 2: kernel.set_err = -EFAULT; break;
	case 3: kernel.set_err = -ENOMEM; break;
	case 4: kernel.clone_err = -ENOMEM; break;
	}
	start(2 * MIB, 64 * MIB);
	a = take(2 * MIB, 0);
	memset(a, 1, 2 * MIB);
	ck_assert_uint_eq(try(0, a, 2 * MIB), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(told_nr, 1);
	/* and the next region may be luckier */
	kernel.donor_err = kernel.set_err = kernel.clone_err = 0;
	b = take(2 * MIB, 0);
	ck_assert_uint_eq(try(0, b, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, a, 2 * MIB), _i == 4 ? MRT__ARENA_FIXED : MRT__ARENA_PLAIN);
	stop();
}
END_TEST

static char *in_set_block;
static unsigned in_set_kinds[3];

static void hold_in_set(void)
{
	in_set_kinds[try(0, in_set_block, 1)]++;
}

START_TEST(a_ring_does_not_wait_for_a_registration_that_is_under_way)
{
	start(0, 64 * MIB);
	in_set_block = take(2 * MIB, 0);
	kernel.in_set = hold_in_set;
	(void)take(2 * MIB, 0);
	ck_assert_uint_eq(in_set_kinds[MRT__ARENA_PLAIN], 1);
	kernel.in_set = NULL;
	ck_assert_uint_eq(try(0, in_set_block, 1), MRT__ARENA_FIXED);
	stop();
}
END_TEST

/* ---- memlock ---- */

static const uint64_t limits[] = { 0, 4 * KIB, 64 * KIB, 100 * KIB, 300 * KIB, MIB, 3 * MIB, 8 * MIB, 100 * MIB };

START_TEST(what_may_not_be_locked_is_plain_memory_behind_the_rest)
{
	uint64_t plain = 0, fixed = 0;
	bool was_plain = false;
	unsigned i;

	kernel.limit = limits[_i];
	start(0, 32 * MIB);
	for (i = 0; i < 32 * MIB / (16 * KIB); i++) {
		char *p = take(16 * KIB, 0);

		p[0] = 1;
		if (try(0, p, 16 * KIB) == MRT__ARENA_FIXED)
			fixed += 16 * KIB;
		else
			plain += 16 * KIB;
		was_plain |= plain > 0;
	}
	refuse(1);
	check();
	ck_assert_uint_eq(fixed, report().registered_bytes);
	ck_assert_uint_eq(fixed, kernel.charged);
	ck_assert_uint_le(fixed, kernel.limit);
	/* most of what is allowed is used */
	if (kernel.limit >= 64 * KIB)
		ck_assert_uint_ge(fixed, mrt__min(kernel.limit / 2 & ~(64 * KIB - 1), 32 * MIB));
	ck_assert_uint_eq(report().how, fixed ? MRT_ARENA_CLONED : MRT_ARENA_UNREGISTERED);
	if (was_plain)
		ck_assert_ptr_nonnull(strstr(told, "lock"));
	ck_assert_uint_eq(told_nr, was_plain ? 2 : 1); /* and the limit of the arena */
	stop();
}
END_TEST

START_TEST(registered_memory_is_given_out_first)
{
	char *a, *b;

	kernel.limit = MIB;
	start(4 * MIB, 4 * MIB);
	a = take(MIB, 0);
	b = take(MIB, 0);
	ck_assert_uint_eq(try(0, a, MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, b, MIB), MRT__ARENA_PLAIN);
	give(a);
	give(b);
	/* nothing lies across the end of what is registered */
	a = take(768 * KIB, 0);
	b = take(768 * KIB, 0);
	ck_assert_uint_eq(try(0, a, 768 * KIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, b, 4096), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(0, take(256 * KIB, 0), 256 * KIB), MRT__ARENA_FIXED);
	give(b);
	/* the rest has the room that it says */
	(void)take(3 * MIB, 0);
	refuse(1);
	stop();
}
END_TEST

START_TEST(a_block_that_fits_in_neither_part_of_a_region_gets_both)
{
	char *p;

	kernel.limit = 2 * MIB;
	start(0, 64 * MIB);
	p = take(4 * MIB, MRT_ARENA_ALIGN_MAX);
	ck_assert_uint_eq(report().mapped_bytes, 4 * MIB);
	ck_assert_uint_eq(report().registered_bytes, 2 * MIB);
	ck_assert_uint_eq(try(0, p, 2 * MIB), MRT__ARENA_FIXED);
	ck_assert_uint_eq(try(0, p, 2 * MIB + 1), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(0, p + 2 * MIB - 4096, 8192), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(try(0, p + 2 * MIB, 2 * MIB), MRT__ARENA_PLAIN);
	give(p);
	stop();
}
END_TEST

/* No CAP_IPC_LOCK, and this limit; this process is a fork of the runner's. */
static void limit_memlock(uint64_t bytes)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct rlimit r = { .rlim_cur = bytes, .rlim_max = bytes };

	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	data[CAP_IPC_LOCK / 32].effective &= ~(1u << CAP_IPC_LOCK % 32);
	data[CAP_IPC_LOCK / 32].permitted &= ~(1u << CAP_IPC_LOCK % 32);
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &r), 0);
	is_limited = true;
}

START_TEST(a_quarter_of_the_limit_is_left_alone)
{
	limit_memlock(4 * MIB);
	start(0, 16 * MIB);
	(void)take(2 * MIB, 0);
	expect_silence();
	(void)take(2 * MIB, 0);
	ck_assert_uint_eq(report().registered_bytes, 3 * MIB);
	expect_told("RLIMIT_MEMLOCK is 4 MiB", 1);
	(void)take(4 * MIB, 0);
	ck_assert_uint_eq(report().registered_bytes, 3 * MIB);
	ck_assert_uint_eq(report().memlock_limit, 4 * MIB);
	ck_assert_uint_ge(report().memlock_need, 8 * MIB);
	ck_assert_uint_eq(told_nr, 1);
	ck_assert_ptr_nonnull(strstr(report().text, "RLIMIT_MEMLOCK"));
	stop();
}
END_TEST

START_TEST(each_ring_that_registers_for_itself_gets_its_share_of_the_limit)
{
	char *p;
	unsigned i;

	limit_memlock(4 * MIB);
	kernel.limit = 4 * MIB;
	kernel.donor_err = -EOPNOTSUPP;
	start(2 * MIB, 16 * MIB);
	p = take(4096, 0);
	for (i = 0; i < WORKERS_NR; i++)
		ck_assert_uint_eq(try(i, p, 4096), MRT__ARENA_FIXED);
	ck_assert_uint_eq(report().registered_bytes, 3 * MIB / WORKERS_NR);
	stop();
}
END_TEST

START_TEST(a_limit_of_nothing_is_enough_to_run)
{
	limit_memlock((uint64_t)_i * 64 * KIB);
	start(0, 16 * MIB);
	ck_assert_uint_eq(try(0, take(2 * MIB, 0), 2 * MIB), MRT__ARENA_PLAIN);
	ck_assert_uint_eq(report().registered_bytes, 0);
	expect_told("RLIMIT_MEMLOCK", 1);
	stop();
}
END_TEST

/* ---- the process ---- */

START_TEST(a_small_address_space_makes_a_small_arena)
{
	struct rlimit r = { .rlim_cur = 1 * GIB, .rlim_max = 1 * GIB };

	ck_assert_int_eq(setrlimit(RLIMIT_AS, &r), 0);
	start(0, 16 * GIB);
	ck_assert_uint_lt(report().limit_bytes, GIB);
	ck_assert_uint_gt(report().limit_bytes, 64 * MIB);
	expect_told("RLIMIT_AS", 1);
	(void)take(2 * MIB, 0);
	stop();
}
END_TEST

START_TEST(a_child_does_not_have_the_memory)
{
	char *p;
	int status;
	pid_t pid;

	start(2 * MIB, 8 * MIB);
	p = take(4096, 0);
	*p = 1;
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		bool gone = msync(p, 4096, MS_ASYNC) < 0 && errno == ENOMEM &&
			    msync((char *)views[0].base + 6 * MIB, 4096, MS_ASYNC) < 0 && errno == ENOMEM;

		mrt__arena_abandon(sched.arena);
		_exit(gone && kernel.donors_nr == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(*p, 1);
	give(p);
	stop();
}
END_TEST

/* fn must end the process with a sentence that has `part` in it. */
static void expect_bug(void (*fn)(void), const char *part)
{
	char err[2048] = "";
	int fds[2], status;
	size_t at = 0;
	ssize_t nr;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)signal(SIGABRT, SIG_DFL);
		(void)dup2(fds[1], 2);
		fn();
		_exit(0);
	}
	close(fds[1]);
	while (at < sizeof(err) - 1 && (nr = read(fds[0], err + at, sizeof(err) - 1 - at)) > 0)
		at += (size_t)nr;
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(strstr(err, part), "expected '%s', got: %s", part, err);
	ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

/* The memory is not a child's, so the child makes an arena of its own. */
static void free_foreign(void)
{
	static char here[4096];

	start(2 * MIB, 8 * MIB);
	mrt_free(rt, here);
}

static void free_twice(void)
{
	char *p;

	start(2 * MIB, 8 * MIB);
	p = take(8192, 0);
	mrt_free(rt, p);
	mrt_free(rt, p);
}

static void free_inside(void)
{
	start(2 * MIB, 8 * MIB);
	mrt_free(rt, take(8192, 0) + 4096);
}

static void free_askew(void)
{
	start(2 * MIB, 8 * MIB);
	mrt_free(rt, take(8192, 0) + 1);
}

static void free_outside_a_task(void)
{
	start(2 * MIB, 8 * MIB);
	mrt_free(NULL, take(8192, 0));
}

static void release_too_often(void)
{
	char *p;

	start(2 * MIB, 8 * MIB);
	p = take(8192, 0);
	(void)try(0, p, 1);
	release(0, p);
}

START_TEST(a_free_of_what_is_no_block_ends_the_process)
{
	expect_bug(free_foreign, "is not memory of this runtime's arena");
	expect_bug(free_twice, "is not a live block");
	expect_bug(free_inside, "lies inside the block that begins at");
	expect_bug(free_askew, "lies inside the block that begins at");
	expect_bug(free_outside_a_task, "name the runtime");
	expect_bug(release_too_often, "assertion failed");
}
END_TEST

#if MRT__ASAN
START_TEST(the_sanitizer_knows_what_is_live)
{
	char *p;

	start(2 * MIB, 8 * MIB);
	p = take(4096, 0);
	ck_assert(!__asan_region_is_poisoned(p, 4096));
	ck_assert(__asan_address_is_poisoned(p + 4096));
	give(p);
	ck_assert(__asan_address_is_poisoned(p));
	stop();
}
END_TEST
#endif

/* ---- threads ---- */

#define STEPS_NR (SANITIZED ? 4000u : 20000u)
#define HELD_MAX 16u

/* A block with an op on it, whose memory another thread frees. */
struct passed {
	char *ptr;
	uint64_t bytes;
};

static struct {
	pthread_mutex_t lock;
	struct passed all[64];
	unsigned nr;
} passing = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic uint64_t checked_nr, plain_nr;

static void stamp(char *p, uint64_t bytes, uint32_t mark)
{
	uint64_t at;

	for (at = 0; at < bytes; at += 4096)
		memcpy(p + at, &mark, sizeof(mark));
}

/* The memory is freed, but nobody may have it yet. AddressSanitizer would object, rightly. */
__attribute__((no_sanitize("address")))
static bool has_stamp(const char *p, uint64_t bytes, uint32_t mark)
{
	uint64_t at;

	for (at = 0; at < bytes; at += 4096)
		if (*(const uint32_t *)(const void *)(p + at) != mark)
			return false;
	return true;
}

static bool pass(char *p, uint64_t bytes)
{
	bool room;

	pthread_mutex_lock(&passing.lock);
	room = passing.nr < MRT__ARRAY_NR(passing.all);
	if (room)
		passing.all[passing.nr++] = (struct passed){ p, bytes };
	pthread_mutex_unlock(&passing.lock);
	return room;
}

static char *receive(struct mrt__rand *r)
{
	char *p = NULL;

	pthread_mutex_lock(&passing.lock);
	if (passing.nr > 0) {
		unsigned i = mrt__rand_below(r, passing.nr);

		p = passing.all[i].ptr;
		passing.all[i] = passing.all[--passing.nr];
	}
	pthread_mutex_unlock(&passing.lock);
	return p;
}

/* A worker: it stamps a block, holds it as for an op, lets another free it, looks at the stamp, and only then releases. */
static void *work(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg, step, held_nr = 0, i;
	struct { char *ptr; uint64_t bytes; uint32_t mark; } held[HELD_MAX];
	struct mrt__rand r;
	char *p;

	mrt__rand_init(&r, me + 77);
	for (step = 0; step < STEPS_NR || held_nr > 0; step++) {
		if (step < STEPS_NR && held_nr < HELD_MAX && mrt__rand_below(&r, 2)) {
			uint64_t bytes = 4096 * (1 + mrt__rand_below(&r, mrt__rand_below(&r, 50) ? 4 : 300));
			uint32_t mark = me << 24 | step;
			void *block;
			uint16_t index;

			if (mrt_alloc(rt, bytes, mrt__rand_below(&r, 4) ? 0 : 65536, &block))
				continue; /* the arena is small, so that blocks are used again at once */
			stamp(block, bytes, mark);
			if (mrt__arena_hold(&views[me], &rings[me], addr(block), (uint32_t)bytes, &index) == MRT__ARENA_PLAIN)
				atomic_fetch_add(&plain_nr, 1);
			if (!pass(block, bytes)) {
				release(me, block);
				mrt_free(rt, block);
				continue;
			}
			held[held_nr].ptr = block;
			held[held_nr].bytes = bytes;
			held[held_nr++].mark = mark;
		} else if (held_nr > 0 && mrt__rand_below(&r, 2)) {
			i = mrt__rand_below(&r, held_nr);
			ck_assert(has_stamp(held[i].ptr, held[i].bytes, held[i].mark));
			release(me, held[i].ptr);
			held[i] = held[--held_nr];
			atomic_fetch_add(&checked_nr, 1);
		} else if ((p = receive(&r)) != NULL) {
			mrt_free(rt, p);
		}
	}
	return NULL;
}

START_TEST(memory_with_ops_in_flight_is_nobody_elses_however_many_free_it)
{
	pthread_t threads[WORKERS_NR];
	struct mrt__rand r;
	unsigned i;
	char *p;

	start(0, 32 * MIB);
	for (i = 0; i < WORKERS_NR; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
	for (i = 0; i < WORKERS_NR; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	mrt__rand_init(&r, 1);
	while ((p = receive(&r)) != NULL)
		mrt_free(rt, p);
	ck_assert_uint_gt(checked_nr, 1000);
	ck_assert_ptr_nonnull(strstr(told, "in flight")); /* else nothing was tried */
	check();
	/* everything comes back */
	for (i = 0; i < 200; i++)
		mrt_free(rt, take(4096, 0));
	ck_assert_uint_eq(report().allocated_bytes, 0);
	stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena");
	TCase *tc = tcase_create("arena");

	tcase_set_timeout(tc, LIMIT_S);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_view_of_nothing_has_nothing);
	tcase_add_test(tc, arguments_outside_their_range_are_refused);
	tcase_add_test(tc, a_runtime_without_an_arena_has_no_memory);
	tcase_add_test(tc, blocks_are_memory_of_their_own);
	tcase_add_loop_test(tc, each_alignment_is_kept, 0, 22);
	tcase_add_test(tc, memory_that_is_not_wholly_in_one_live_block_is_bad);
	tcase_add_test(tc, at_the_limit_there_is_no_more_until_something_is_freed);
	tcase_add_test(tc, it_grows_to_twice_its_size_each_time);
	tcase_add_test(tc, a_block_of_more_than_a_gigabyte_is_several_buffers);
	tcase_add_test(tc, memory_at_the_start_is_cut_into_regions_of_a_gigabyte);
	tcase_add_test(tc, a_block_that_is_freed_with_ops_in_flight_waits_for_them);
	tcase_add_test(tc, the_two_rings_of_a_worker_share_its_counts);
	tcase_add_test(tc, blocks_that_wait_are_looked_at_in_turn);
	tcase_add_test(tc, a_large_block_that_waits_is_looked_through_in_parts);
	tcase_add_test(tc, a_ring_that_has_cloned_learns_of_growth);
	tcase_add_test(tc, where_a_ring_clones_once_only_later_growth_is_plain_everywhere);
	tcase_add_test(tc, without_a_donor_each_ring_registers_for_itself);
	tcase_add_test(tc, a_kernel_that_cannot_register_is_done_without);
	tcase_add_loop_test(tc, whatever_fails_the_memory_can_be_used, 0, 5);
	tcase_add_test(tc, a_ring_does_not_wait_for_a_registration_that_is_under_way);
	tcase_add_loop_test(tc, what_may_not_be_locked_is_plain_memory_behind_the_rest, 0, (int)MRT__ARRAY_NR(limits));
	tcase_add_test(tc, registered_memory_is_given_out_first);
	tcase_add_test(tc, a_block_that_fits_in_neither_part_of_a_region_gets_both);
	tcase_add_test(tc, a_quarter_of_the_limit_is_left_alone);
	tcase_add_test(tc, each_ring_that_registers_for_itself_gets_its_share_of_the_limit);
	tcase_add_loop_test(tc, a_limit_of_nothing_is_enough_to_run, 0, 2);
	if (!SANITIZED) /* their shadow needs more than any limit */
		tcase_add_test(tc, a_small_address_space_makes_a_small_arena);
	tcase_add_test(tc, a_child_does_not_have_the_memory);
	tcase_add_test(tc, a_free_of_what_is_no_block_ends_the_process);
#if MRT__ASAN
	tcase_add_test(tc, the_sanitizer_knows_what_is_live);
#endif
	tcase_add_test(tc, memory_with_ops_in_flight_is_nobody_elses_however_many_free_it);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
