/* SPDX-License-Identifier: MIT */
/*
 * The arena on real rings, without a scheduler: what a hold says is registered can be read into by READ_FIXED with that
 * index (the kernel refuses any other), on every ring, before and after growth, as root and as an ordinary user with
 * several limits. One uid per test, since locked memory is counted per user and given back late.
 *
 * What a kernel can is asked of a donor (test_ring_regs.c holds new ones to it): where no ring can clone, each locks the
 * memory again, and has its share of the limit; where it can do so only once, what the arena grows by afterwards is not
 * registered, and the report says so.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "ringtest.h"
#include "sched/arena.h"
#include "sched/sched.h"

#define LIMIT_S 30
#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define RINGS_NR 2u
#define FILE_BYTES (256 * KIB)

static struct mrt__sched sched;
static struct mrt_runtime *rt = (struct mrt_runtime *)(void *)&sched;
static struct mrt__ring *rings[RINGS_NR];
static struct mrt__arena_view views[RINGS_NR];
static unsigned char pattern[FILE_BYTES];
static int fd = -1;
static bool clones, grows;      /* this kernel: buffers are locked once for all rings; also those that come later */

static const char growth_text[] = "growth is not registered on this kernel";

/* ---- the parts ---- */

static int make_file(void)
{
	char path[] = "/tmp/martlet-arena-XXXXXX";
	size_t i;

	for (i = 0; i < FILE_BYTES; i++)
		pattern[i] = (unsigned char)(i * 31 + (i >> 12));
	fd = mkstemp(path);
	if (fd < 0 || unlink(path))
		return -1;
	return pwrite(fd, pattern, FILE_BYTES, 0) == (ssize_t)FILE_BYTES ? 0 : -1;
}

static void make_rings(void)
{
	unsigned i;

	for (i = 0; i < RINGS_NR; i++)
		rings[i] = make_enabled(8, 16, 0);
}

static int start(uint64_t bytes, uint64_t bytes_max)
{
	struct mrt__arena_opts opts = { .sched = &sched, .bytes = bytes, .bytes_max = bytes_max, .workers_nr = RINGS_NR };
	unsigned i;
	int err = mrt__arena_create(&opts, &sched.arena);

	for (i = 0; i < RINGS_NR && !err; i++)
		err = mrt__arena_view_init(&views[i], sched.arena, NULL);
	return err;
}

/* As a runtime ends: rings let go first. */
static void stop(void)
{
	unsigned i;

	for (i = 0; i < RINGS_NR; i++) {
		mrt__arena_view_fini(&views[i]);
		end_ring(rings[i]);
	}
	mrt__arena_destroy(sched.arena);
	sched.arena = NULL;
}

/* Outside of any test. */
static int find_out(void)
{
	struct mrt__ring_donor *donor = NULL;
	int err = mrt__ring_donor_create(8, &donor);

	if (err && err != -EOPNOTSUPP)
		return err;
	clones = !err;
	grows = !donor || mrt__ring_donor_can_grow(donor);
	mrt__ring_donor_destroy(donor);
	return 0;
}

/* Is this process allowed to? Nothing is there that could be locked. */
static bool may_lock(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	bool may = p != MAP_FAILED && mlock2(p, bytes, MLOCK_ONFAULT) == 0;

	if (p != MAP_FAILED)
		(void)munmap(p, bytes);
	return may;
}

/* How often a page is charged. */
static uint64_t charges_nr(void)
{
	return clones ? 1 : RINGS_NR;
}

static char *take(uint64_t bytes)
{
	void *p = NULL;

	return mrt_alloc(rt, bytes, 0, &p) ? NULL : p;
}

/* Read the file into memory, by the opcode that the arena says. @return its kind; BAD: the data was wrong */
static enum mrt__arena_kind read_into(unsigned i, char *p)
{
	struct mrt__ring_args args = { .opcode = MRT__OPCODE_READ, .fd = fd, .addr = (uintptr_t)p, .len = FILE_BYTES };
	enum mrt__arena_kind kind = mrt__arena_hold(&views[i], rings[i], args.addr, args.len, &args.buf_index);

	if (kind == MRT__ARENA_BAD)
		return kind;
	if (kind == MRT__ARENA_FIXED)
		args.opcode = MRT__OPCODE_READ_FIXED;
	memset(p, 0, FILE_BYTES);
	if (run_op(rings[i], &args) != (int32_t)FILE_BYTES || memcmp(p, pattern, FILE_BYTES) != 0)
		kind = MRT__ARENA_BAD;
	mrt__arena_release(&views[i], args.addr);
	return kind;
}

static struct mrt_arena_report report(void)
{
	struct mrt_arena_report r = { 0 };

	(void)mrt_arena_report(rt, &r); /* zeros will not do for the caller */
	return r;
}

/* ---- all rights ---- */

START_TEST(a_block_is_registered_with_every_ring_before_and_after_growth)
{
	const enum mrt__arena_kind later = grows ? MRT__ARENA_FIXED : MRT__ARENA_PLAIN;
	struct mrt_arena_report first = { 0 };
	char *blocks[6];
	unsigned i, j;

	ck_assert_int_eq(make_file(), 0);
	make_rings();
	ck_assert_int_eq(start(_i ? 4 * MIB : 0, 256 * MIB), 0);
	for (i = 0; i < MRT__ARRAY_NR(blocks); i++) {
		blocks[i] = take(2 * MIB << i);
		ck_assert_ptr_nonnull(blocks[i]);
		if (i == 0)
			first = report();
		/* ring 1 learns of two regions at a time */
		ck_assert_uint_eq(read_into(0, blocks[i]), i == 0 ? MRT__ARENA_FIXED : later);
		for (j = 0; i % 2 && j <= i; j++)
			ck_assert_uint_eq(read_into(1, blocks[j] + (2 * MIB << j) - FILE_BYTES), j == 0 ? MRT__ARENA_FIXED : later);
	}
	ck_assert_uint_eq(first.registered_bytes, first.mapped_bytes);
	ck_assert_uint_eq(report().how, clones ? MRT_ARENA_CLONED : MRT_ARENA_PER_RING);
	ck_assert_uint_eq(report().registered_bytes, grows ? report().mapped_bytes : first.mapped_bytes);
	ck_assert_uint_eq(report().regions_unregistered, grows ? 0 : report().regions_nr - first.regions_nr);
	ck_assert_msg(!strstr(report().text, growth_text) == grows, "%s", report().text);
	for (i = 0; i < MRT__ARRAY_NR(blocks); i++) {
		mrt_free(rt, blocks[i]);
		ck_assert_uint_eq(read_into(0, blocks[i]), MRT__ARENA_BAD);
	}
	ck_assert(mrt__arena_check(sched.arena, stderr));
	stop();
}
END_TEST

START_TEST(nothing_is_left_behind)
{
	unsigned fds, i;

	ck_assert_int_eq(make_file(), 0);
	fds = count_fds();
	for (i = 0; i < 20; i++) {
		make_rings();
		ck_assert_int_eq(start(0, 16 * MIB), 0);
		ck_assert_uint_eq(read_into(1, take(FILE_BYTES)), MRT__ARENA_FIXED);
		stop();
	}
	ck_assert_uint_eq(count_fds(), fds);
}
END_TEST

static int read_in_the_child(void)
{
	mrt__arena_abandon(sched.arena);
	/* the child's are gone, the parent's are not */
	return sched.arena ? 0 : 1;
}

START_TEST(a_fork_leaves_the_parents_registration_alone)
{
	char *p;

	ck_assert_int_eq(make_file(), 0);
	make_rings();
	ck_assert_int_eq(start(0, 16 * MIB), 0);
	p = take(FILE_BYTES);
	ck_assert_uint_eq(read_into(0, p), MRT__ARENA_FIXED);
	in_child(read_in_the_child);
	ck_assert_uint_eq(read_into(0, p), MRT__ARENA_FIXED);
	ck_assert_uint_eq(read_into(1, take(4 * MIB)), grows ? MRT__ARENA_FIXED : MRT__ARENA_PLAIN);
	stop();
}
END_TEST

/* ---- ordinary users ---- */

static int become_ordinary(uint64_t memlock)
{
	struct rlimit limit;
	uid_t uid = 200000 + (uid_t)getpid() % 100000;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return -errno;
	/* root may be unable to raise it, too */
	limit.rlim_cur = limit.rlim_max = mrt__min((rlim_t)memlock, limit.rlim_max);
	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return -errno;
	if (geteuid() != 0)
		return 0;
	return setgroups(0, NULL) || setgid((gid_t)uid) || setuid(uid) ? -errno : 0;
}

/* Use 16 MiB, all of which can be read into. */
static int use_all(void)
{
	uint64_t fixed = 0, limit = report().memlock_limit, begun = report().mapped_bytes, can = 16 * MIB, i;

	for (i = 0; i < 16 * MIB / FILE_BYTES; i++) {
		char *p = take(FILE_BYTES);
		unsigned r;

		/* blocks do not reach over the end of what is registered: the last one may not fit in what is left on both sides */
		if (!p) {
			CHILD_ASSERT(i == 16 * MIB / FILE_BYTES - 1 && report().registered_bytes % FILE_BYTES != 0);
			break;
		}
		begun = mrt__max(begun, i == 0 ? report().mapped_bytes : 0);
		for (r = 0; r < RINGS_NR; r++)
			CHILD_ASSERT(read_into(r, p) != MRT__ARENA_BAD);
		if (read_into(0, p) == MRT__ARENA_FIXED)
			fixed += FILE_BYTES;
	}
	fprintf(stderr, "limit %llu KiB: %s; %llu KiB in whole blocks\n", (unsigned long long)(limit / KIB), report().text,
		(unsigned long long)(fixed / KIB));
	CHILD_ASSERT(report().mapped_bytes == 16 * MIB);
	CHILD_ASSERT(report().registered_bytes * charges_nr() <= limit - limit / 4);
	CHILD_ASSERT(fixed <= report().registered_bytes);
	if (!grows)
		can = begun;    /* and rings have cloned it since */
	CHILD_ASSERT(report().registered_bytes >= can || strstr(report().text, "RLIMIT_MEMLOCK"));
	CHILD_ASSERT(!strstr(report().text, growth_text) == (grows || begun == 16 * MIB || limit < MIB));
	/* at least a half of it can be used; blocks do not reach over the end of it */
	CHILD_ASSERT(limit < MIB || fixed >= mrt__min(limit / 2 / charges_nr(), can) - FILE_BYTES);
	return 0;
}

static const uint64_t limits[] = { 0, 4 * KIB, 64 * KIB, MIB, 5 * MIB, 8 * MIB, 64 * MIB };
static uint64_t wanted;

/*
 * Where the limit is too small for a ring there is no runtime, but a process that has lowered it may have one: then the
 * rings and the arena are older than the limit. A ring is charged to the user that makes it.
 */
static int run_ordinary(void)
{
	bool early = wanted < MIB;

	CHILD_ASSERT(make_file() == 0);
	CHILD_ASSERT(become_ordinary(early ? MIB : wanted) == 0);
	make_rings();
	if (early)
		CHILD_ASSERT(become_ordinary(wanted) == 0);
	CHILD_ASSERT(start(0, 16 * MIB) == 0);
	CHILD_ASSERT(report().memlock_limit <= wanted);
	CHILD_ASSERT(use_all() == 0);
	stop();
	return 0;
}

/* As a server does that was started as root: rings and arena first. What it was allowed it still is. */
static int drop_rights(void)
{
	CHILD_ASSERT(make_file() == 0);
	make_rings();
	CHILD_ASSERT(start(0, 16 * MIB) == 0);
	CHILD_ASSERT(become_ordinary(MIB) == 0);
	CHILD_ASSERT(use_all() == 0);
	CHILD_ASSERT(geteuid() == 0 || report().memlock_limit != UINT64_MAX || !grows || report().registered_bytes == 16 * MIB);
	stop();
	return 0;
}

START_TEST(rights_that_are_given_up_later_change_nothing)
{
	in_child(drop_rights);
}
END_TEST

START_TEST(an_ordinary_user_runs_with_any_limit)
{
	wanted = limits[_i];
	in_child(run_ordinary);
}
END_TEST

/* Debian's default: everything, twice in a row, so that the first gave back what it had locked. */
static int run_twice(void)
{
	uint64_t registered[2];
	unsigned i;

	CHILD_ASSERT(make_file() == 0);
	CHILD_ASSERT(become_ordinary(8 * MIB) == 0);
	for (i = 0; i < 2; i++) {
		make_rings();
		CHILD_ASSERT(start(16 * MIB, 16 * MIB) == 0);
		CHILD_ASSERT(use_all() == 0);
		registered[i] = report().registered_bytes;
		stop();
	}
	CHILD_ASSERT(registered[0] == registered[1]);
	return 0;
}

START_TEST(with_debians_limit_a_user_registers_most_of_it_each_time)
{
	in_child(run_twice);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena_ring");
	TCase *tc = tcase_create("arena_ring");

	if (try_create(8, 16, NULL, 0) == 0 && find_out()) {
		printf("what this kernel can is not known\n");
		return EXIT_FAILURE;
	}
	tcase_set_timeout(tc, LIMIT_S);
	if (may_lock(512 * MIB)) {
		tcase_add_loop_test(tc, a_block_is_registered_with_every_ring_before_and_after_growth, 0, 2);
		tcase_add_test(tc, nothing_is_left_behind);
	} else {
		printf("skipped in part: what locks much takes CAP_IPC_LOCK, or a higher limit (ulimit -l)\n");
	}
	tcase_add_test(tc, a_fork_leaves_the_parents_registration_alone);
	tcase_add_loop_test(tc, an_ordinary_user_runs_with_any_limit, 0, (int)MRT__ARRAY_NR(limits));
	tcase_add_test(tc, rights_that_are_given_up_later_change_nothing);
	tcase_add_test(tc, with_debians_limit_a_user_registers_most_of_it_each_time);
	suite_add_tcase(suite, tc);
	return ring_main(suite);
}
