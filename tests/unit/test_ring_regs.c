/* SPDX-License-Identifier: MIT */
/*
 * Registered buffers and files on the real kernel. Proven: memory that the donor has is the same slot on each ring that
 * has cloned it, also slots that came later, and nothing else is; a registration that fails leaves the table as it was;
 * what an ordinary user may lock is charged once for all clones and comes back at once; a file's slot can be filled,
 * replaced and emptied while ops are in flight, which keep their file; a file's ops can be cancelled at once, and no
 * others. Not proven: kernels that cannot clone, or only once (the guest run has those).
 */
#include "ring/ring.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"
#include "kernel.h"
#include "ringtest.h"

#define SLOTS 8u
#define REGION (64u << 10)
#define KIB (1u << 10)
#define MIB (1u << 20)

/* Of small pages: a huge one is charged as a whole, also where the region has but a part of it. */
static unsigned char *map_region(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	(void)madvise(p, bytes, MADV_NOHUGEPAGE); /* fails where there are none */
	memset(p, 0, bytes);
	return p;
}

/* A file of 64 KiB, byte i of which is i * 7. */
static int make_file(void)
{
	static unsigned char bytes[64 * KIB];
	char path[] = "/tmp/mrt-ring-XXXXXX";
	int fd = mkstemp(path);
	size_t i;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 7);
	ck_assert_int_eq(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	return fd;
}

static bool holds_file(const unsigned char *p, size_t bytes, size_t off)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		if (p[i] != (unsigned char)((off + i) * 7))
			return false;
	return true;
}

static int32_t read_fixed(struct mrt__ring *ring, int fd, unsigned slot, void *buf, uint32_t len, uint64_t off)
{
	return run_op(ring, &(struct mrt__ring_args){
		.opcode = MRT__OPCODE_READ_FIXED, .fd = fd, .buf_index = (uint16_t)slot,
		.addr = (uintptr_t)buf, .len = len, .off = off,
	});
}

/* NULL: this kernel cannot clone. */
static struct mrt__ring_donor *make_donor(void)
{
	struct mrt__ring_donor *donor = NULL;
	int ret = mrt__ring_donor_create(SLOTS, &donor);

	if (ret == -EOPNOTSUPP) {
		printf("not tried: this kernel cannot clone buffers\n");
		return NULL;
	}
	ck_assert_int_eq(ret, 0);
	return donor;
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

START_TEST(memory_of_the_donor_is_the_same_slot_on_every_ring)
{
	struct mrt__ring *rings[3];
	struct mrt__ring_donor *donor = make_donor();
	unsigned char *a, *b;
	int fd = make_file();
	unsigned i;

	if (!donor)
		return;
	a = map_region(REGION);
	b = map_region(REGION);
	ck_assert_int_eq(mrt__ring_donor_set(donor, 0, a, REGION), 0);
	ck_assert_int_eq(mrt__ring_donor_set(donor, 5, b, REGION), 0);
	for (i = 0; i < 3; i++) {
		rings[i] = make_enabled(8, 16, i);
		ck_assert_int_eq(mrt__ring_donor_clone(donor, rings[i], 0), 0);
	}
	mrt__ring_donor_destroy(donor);         /* the clones hold what they have */
	for (i = 0; i < 3; i++) {
		memset(a, 0, REGION);
		memset(b, 0, REGION);
		ck_assert_int_eq(read_fixed(rings[i], fd, 0, a + 100, 4000, 40), 4000);
		ck_assert(holds_file(a + 100, 4000, 40));
		ck_assert_int_eq(read_fixed(rings[i], fd, 5, b + REGION - 512, 512, 1024), 512);
		ck_assert(holds_file(b + REGION - 512, 512, 1024));
		end_ring(rings[i]);
	}
}
END_TEST

START_TEST(what_lies_in_no_slot_is_efault)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	unsigned char *a = map_region(2 * REGION);
	int fd = make_file();

	ck_assert_int_eq(read_fixed(ring, fd, 0, a, 512, 0), -EFAULT);  /* no table */
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 1, a, REGION), 0);
	ck_assert_int_eq(read_fixed(ring, fd, 0, a, 512, 0), -EFAULT);  /* the slot is empty */
	ck_assert_int_eq(read_fixed(ring, fd, SLOTS, a, 512, 0), -EFAULT);
	ck_assert_int_eq(read_fixed(ring, fd, 1, a + REGION - 511, 512, 0), -EFAULT);
	ck_assert_int_eq(read_fixed(ring, fd, 1, a - 1, 512, 0), -EFAULT);
	ck_assert_int_eq(a[0], 0);
	ck_assert_int_eq(read_fixed(ring, fd, 1, a, 512, 0), 512);
	end_ring(ring);
}
END_TEST

START_TEST(a_slot_that_is_filled_later_is_there_once_it_is_cloned)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	struct mrt__ring_donor *donor = make_donor();
	struct mrt__ring_args args = { .opcode = MRT__OPCODE_READ_FIXED, .len = 4, .off = UINT64_MAX };
	unsigned char *a = map_region(REGION), *b = map_region(REGION);
	int fd = make_file(), fds[2];

	if (!donor || !mrt__ring_donor_can_grow(donor))
		return;
	make_pipe(fds);
	ck_assert_int_eq(mrt__ring_donor_set(donor, 0, a, REGION), 0);
	ck_assert_int_eq(mrt__ring_donor_clone(donor, ring, 0), 0);
	args.fd = fds[0];
	args.addr = (uintptr_t)a;
	ck_assert(mrt__ring_stage(ring, &args, 0, &ops[9]));    /* waits, in slot 0 */
	(void)mrt__ring_flush(ring);

	ck_assert_int_eq(mrt__ring_donor_set(donor, 3, b, REGION), 0);
	ck_assert_int_eq(read_fixed(ring, fd, 3, b, 512, 0), -EFAULT);
	ck_assert_int_eq(mrt__ring_donor_clone(donor, ring, 3), 0);
	ck_assert_int_eq(read_fixed(ring, fd, 3, b, 512, 0), 512);
	ck_assert(holds_file(b, 512, 0));
	ck_assert_int_eq(read_fixed(ring, fd, 0, a + 512, 512, 0), 512);
	ck_assert(holds_file(a + 512, 512, 0));

	ck_assert_int_eq(write(fds[1], "bird", 4), 4);
	collect(ring, 1);
	ck_assert_ptr_eq(done[0].user, &ops[9]);
	ck_assert_int_eq(done[0].res, 4);
	ck_assert_int_eq(memcmp(a, "bird", 4), 0);
	end_ring(ring);
	mrt__ring_donor_destroy(donor);
}
END_TEST

START_TEST(a_ring_without_a_donor_has_slots_of_its_own)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	unsigned char *a = map_region(REGION), *b = map_region(REGION);
	int fd = make_file();

	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 2, a, REGION), 0);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 7, b, REGION), 0);
	ck_assert_int_eq(read_fixed(ring, fd, 2, a, 512, 0), 512);
	ck_assert_int_eq(read_fixed(ring, fd, 7, b, 512, 512), 512);
	ck_assert(holds_file(a, 512, 0) && holds_file(b, 512, 512));
	mrt__ring_buffers_drop(ring);
	ck_assert_int_eq(read_fixed(ring, fd, 2, a, 512, 0), -EFAULT);
	mrt__ring_buffers_drop(ring);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, 2, 1, a, REGION), 0);       /* a table of another size */
	ck_assert_int_eq(read_fixed(ring, fd, 1, a, 512, 0), 512);
	end_ring(ring);
}
END_TEST

START_TEST(a_registration_that_fails_leaves_the_table_as_it_was)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0), *other = make_enabled(8, 16, 0);
	unsigned char *a = map_region(REGION), *hole = map_region(REGION);
	struct mrt__ring_donor *donor = make_donor(), *untouched = NULL;
	int fd = make_file();

	ck_assert_int_eq(mprotect(hole, REGION, PROT_NONE), 0); /* not unmapped: the range would be used again */
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 0, hole, REGION), -EFAULT);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 0, a, REGION), 0);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 1, hole, REGION), -EFAULT);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, SLOTS, a, REGION), -EINVAL);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS + 1, 1, a, REGION), -EINVAL);
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 1, NULL, 0), -EINVAL);
	ck_assert_int_eq(read_fixed(ring, fd, 0, a, 512, 0), 512);
	ck_assert_int_eq(read_fixed(ring, fd, 1, a, 512, 0), -EFAULT);
	ck_assert_int_eq(mrt__ring_buffer_set(other, 16385, 0, a, REGION), -EINVAL);
	ck_assert_int_eq(mrt__ring_buffer_set(other, 0, 0, a, REGION), -EINVAL);
	ck_assert_int_eq(mrt__ring_buffer_set(other, 16384, 16383, a, REGION), 0);
	ck_assert_int_eq(read_fixed(other, fd, 16383, a, 512, 0), 512);
	ck_assert_int_eq(mrt__ring_donor_create(0, &untouched), -EINVAL);
	ck_assert_int_eq(mrt__ring_donor_create(16385, &untouched), -EINVAL);
	ck_assert_ptr_null(untouched);
	if (donor) {
		ck_assert_int_eq(mrt__ring_donor_set(donor, 0, hole, REGION), -EFAULT);
		ck_assert_int_eq(mrt__ring_donor_set(donor, SLOTS, a, REGION), -EINVAL);
		mrt__ring_buffers_drop(other);
		ck_assert_int_eq(mrt__ring_donor_set(donor, 0, a, REGION), 0);
		ck_assert_int_eq(mrt__ring_donor_clone(donor, other, SLOTS), -EINVAL);
		ck_assert_int_eq(mrt__ring_donor_clone(donor, other, 0), 0);
		ck_assert_int_eq(mrt__ring_donor_set(donor, 1, hole, REGION), -EFAULT);
		ck_assert_int_eq(read_fixed(other, fd, 0, a, 512, 0), 512);
	}
	mrt__ring_donor_destroy(donor);
	end_ring(ring);
	end_ring(other);
}
END_TEST

START_TEST(vectors_and_writes_may_lie_in_a_slot_too)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	unsigned char *a = map_region(REGION);
	struct iovec iov[2] = { { a + 1000, 500 }, { a + 3000, 700 } };
	struct mrt__ring_args args = { .addr = (uintptr_t)iov, .len = 2, .buf_index = 4 };
	char back[4] = "";

	args.fd = make_file();
	ck_assert_int_eq(mrt__ring_buffer_set(ring, SLOTS, 4, a, REGION), 0);
	if (mrt__ring_has_opcode(ring, MRT__OPCODE_READV_FIXED)) {
		args.opcode = MRT__OPCODE_READV_FIXED;
		ck_assert_int_eq(run_op(ring, &args), 1200);
		ck_assert(holds_file(a + 1000, 500, 0) && holds_file(a + 3000, 700, 500));
		iov[1].iov_base = a + REGION - 600;
		ck_assert_int_eq(run_op(ring, &args), -EFAULT);
	}
	memcpy(a, "wing", 4);
	ck_assert_int_eq(run_op(ring, &(struct mrt__ring_args){ .opcode = MRT__OPCODE_WRITE_FIXED, .fd = args.fd,
			 .addr = (uintptr_t)a, .len = 4, .off = 100, .buf_index = 4 }), 4);
	ck_assert_int_eq(pread(args.fd, back, 4, 100), 4);
	ck_assert_int_eq(memcmp(back, "wing", 4), 0);
	end_ring(ring);
}
END_TEST

/* A kernel that has READV_FIXED (6.15) has what came before it (6.13). */
START_TEST(a_new_kernel_clones_and_grows)
{
	struct mrt__ring *ring = make_ring(8, 16, 0);
	struct mrt__ring_donor *donor = make_donor();

	if (mrt__ring_has_opcode(ring, MRT__OPCODE_READV_FIXED)) {
		ck_assert_ptr_nonnull(donor);
		ck_assert(mrt__ring_donor_can_grow(donor));
	}
	mrt__ring_donor_destroy(donor);
	mrt__ring_destroy(ring);
}
END_TEST

START_TEST(donors_leave_no_descriptor_behind)
{
	struct mrt__ring_donor *donor;
	unsigned before = count_fds(), i;

	for (i = 0; i < 5; i++) {
		donor = make_donor();
		mrt__ring_donor_destroy(donor);
		ck_assert_uint_eq(count_fds(), before);
	}
}
END_TEST

static struct mrt__ring_donor *shared_donor;

static int abandon_donor(void)
{
	unsigned before = count_fds();

	mrt__ring_donor_abandon(shared_donor);
	CHILD_ASSERT(count_fds() == before - 1);
	mrt__ring_donor_destroy(shared_donor);
	CHILD_ASSERT(count_fds() == before - 1);
	return 0;
}

START_TEST(a_child_that_abandons_a_donor_leaves_the_parents_alone)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	unsigned char *a = map_region(REGION);
	int fd = make_file();

	shared_donor = make_donor();
	if (!shared_donor)
		return;
	ck_assert_int_eq(mrt__ring_donor_set(shared_donor, 0, a, REGION), 0);
	in_child(abandon_donor);
	ck_assert_int_eq(mrt__ring_donor_clone(shared_donor, ring, 0), 0);
	ck_assert_int_eq(read_fixed(ring, fd, 0, a, 512, 0), 512);
	end_ring(ring);
	mrt__ring_donor_destroy(shared_donor);
}
END_TEST

/* ---- RLIMIT_MEMLOCK -------------------------------------------------------------------------------------------- */

/* Become an ordinary user that no other test is: the charge is per user. */
static int become_ordinary(size_t memlock)
{
	struct rlimit limit = { .rlim_cur = memlock, .rlim_max = memlock };
	uid_t uid = 200000 + (uid_t)getpid() % 100000;

	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return -errno;
	if (geteuid() != 0)
		return 0;
	return setgroups(0, NULL) || setgid((gid_t)uid) || setuid(uid) ? -errno : 0;
}

static int register_beyond_the_limit(void)
{
	struct mrt__ring *first, *second;
	unsigned char *a = map_region(3 * MIB), *b = map_region(3 * MIB);
	int fd = make_file();

	CHILD_ASSERT(become_ordinary(4 * MIB) == 0);
	first = make_enabled(8, 16, 0);
	second = make_enabled(8, 16, 0);
	CHILD_ASSERT(mrt__ring_buffer_set(first, SLOTS, 0, a, 3 * MIB) == 0);
	CHILD_ASSERT(mrt__ring_buffer_set(first, SLOTS, 1, b, 3 * MIB) == -ENOMEM);
	CHILD_ASSERT(mrt__ring_buffer_set(second, SLOTS, 0, b, 3 * MIB) == -ENOMEM);
	CHILD_ASSERT(read_fixed(first, fd, 0, a, 512, 0) == 512);
	CHILD_ASSERT(read_fixed(first, fd, 1, b, 512, 0) == -EFAULT);
	CHILD_ASSERT(mrt__ring_buffer_set(second, SLOTS, 0, b, 64 * KIB) == 0);
	mrt__ring_buffers_drop(first);
	CHILD_ASSERT(mrt__ring_buffer_set(second, SLOTS, 1, b, 3 * MIB) == 0);
	CHILD_ASSERT(read_fixed(second, fd, 1, b, 512, 0) == 512);
	CHILD_ASSERT(mrt__ring_drain(second) == 0);     /* lets go as well */
	CHILD_ASSERT(mrt__ring_buffer_set(first, SLOTS, 0, a, 3 * MIB) == 0);
	end_ring(first);
	mrt__ring_destroy(second);
	return 0;
}

START_TEST(memory_beyond_the_limit_is_enomem_and_comes_back_when_it_is_dropped)
{
	in_child(register_beyond_the_limit);
}
END_TEST

static int clone_beyond_the_limit(void)
{
	struct mrt__ring_donor *donor = NULL;
	unsigned char *a = map_region(3 * MIB), *b = map_region(3 * MIB); /* a page that is locked may be free a second time */
	struct mrt__ring *rings[6];
	int fd = make_file(), ret;
	unsigned i;

	CHILD_ASSERT(become_ordinary(4 * MIB) == 0);
	ret = mrt__ring_donor_create(SLOTS, &donor);
	if (ret == -EOPNOTSUPP)
		return 0;
	CHILD_ASSERT(ret == 0);
	CHILD_ASSERT(mrt__ring_donor_set(donor, 0, a, 3 * MIB) == 0);
	for (i = 0; i < 6; i++) {
		rings[i] = make_enabled(8, 16, 0);
		CHILD_ASSERT(mrt__ring_donor_clone(donor, rings[i], 0) == 0);
		CHILD_ASSERT(read_fixed(rings[i], fd, 0, a, 512, 0) == 512);
	}
	CHILD_ASSERT(mrt__ring_donor_set(donor, 1, b, 3 * MIB) == -ENOMEM);
	for (i = 0; i < 6; i++)
		mrt__ring_buffers_drop(rings[i]);
	mrt__ring_donor_destroy(donor);
	CHILD_ASSERT(mrt__ring_buffer_set(rings[0], SLOTS, 0, b, 3 * MIB) == 0);
	return 0;
}

START_TEST(clones_are_not_charged_again)
{
	in_child(clone_beyond_the_limit);
}
END_TEST

/* ---- files ----------------------------------------------------------------------------------------------------- */

static struct mrt__ring_args slot_read(unsigned slot, void *buf, uint32_t len, uint64_t off)
{
	return (struct mrt__ring_args){
		.opcode = MRT__OPCODE_READ, .sqe_flags = MRT__RING_SQE_FIXED_FILE, .fd = (int)slot,
		.addr = (uintptr_t)buf, .len = len, .off = off,
	};
}

static int32_t read_slot(struct mrt__ring *ring, unsigned slot, void *buf, uint32_t len, uint64_t off)
{
	struct mrt__ring_args args = slot_read(slot, buf, len, off);

	return run_op(ring, &args);
}

START_TEST(a_registered_file_is_read_without_its_descriptor)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	unsigned char buf[512];
	int fd = make_file();

	ck_assert_int_eq(read_slot(ring, 3, buf, 512, 0), -EBADF);      /* no table */
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 3, -1), 0);
	ck_assert_int_eq(read_slot(ring, 3, buf, 512, 0), -EBADF);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 3, fd), 0);
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(read_slot(ring, 3, buf, 512, 64), 512);
	ck_assert(holds_file(buf, 512, 64));
	ck_assert_int_eq(read_slot(ring, 2, buf, 512, 0), -EBADF);
	ck_assert_int_eq(read_slot(ring, SLOTS, buf, 512, 0), -EBADF);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 3, -1), 0);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 3, -1), 0);
	ck_assert_int_eq(read_slot(ring, 3, buf, 512, 0), -EBADF);
	end_ring(ring);
}
END_TEST

START_TEST(a_slot_that_is_replaced_under_an_op_leaves_it_its_file)
{
	struct mrt__ring *ring = make_enabled(8, 16, (unsigned)_i);
	int first[2], second[2];
	struct mrt__ring_args args;
	char buf[8], other[8];

	make_pipe(first);
	make_pipe(second);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 0, first[0]), 0);
	args = slot_read(0, buf, sizeof(buf), UINT64_MAX);
	ck_assert(mrt__ring_stage(ring, &args, 0, &ops[1]));
	(void)mrt__ring_flush(ring);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 0, second[0]), 0);
	ck_assert_int_eq(write(second[1], "second", 6), 6);
	ck_assert_int_eq(read_slot(ring, 0, other, sizeof(other), UINT64_MAX), 6);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 0, -1), 0);
	assert_quiet(ring);
	ck_assert_int_eq(write(first[1], "first", 5), 5);
	collect(ring, 1);
	ck_assert_ptr_eq(done[0].user, &ops[1]);
	ck_assert_int_eq(done[0].res, 5);
	ck_assert_int_eq(memcmp(buf, "first", 5), 0);
	end_ring(ring);
}
END_TEST

START_TEST(a_file_that_cannot_be_registered_leaves_the_slot_as_it_was)
{
	struct mrt__ring *ring = make_enabled(8, 16, 0);
	unsigned char buf[512];
	int fd = make_file();

	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 0, 1000000), -EBADF);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 0, fd), 0);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 0, -2), -EBADF);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, SLOTS, fd), -EINVAL);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS - 1, 0, fd), -EINVAL);
	ck_assert_int_eq(read_slot(ring, 0, buf, 512, 0), 512);
	end_ring(ring);
}
END_TEST

static int exceed_nofile(void)
{
	struct rlimit limit = { .rlim_cur = 64, .rlim_max = 128 }, after;
	struct mrt__ring *ring = make_enabled(8, 16, 0);

	CHILD_ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	CHILD_ASSERT(mrt__ring_file_set(ring, 65, 0, -1) == 0); /* empty without a table, too */
	CHILD_ASSERT(mrt__ring_file_set(ring, 65, 0, 0) == -EMFILE);
	CHILD_ASSERT(mrt__ring_file_set(ring, 64, 0, 0) == 0);
	CHILD_ASSERT(getrlimit(RLIMIT_NOFILE, &after) == 0 && after.rlim_cur == 64);
	CHILD_ASSERT(mrt__ring_drain(ring) == 0);
	mrt__ring_destroy(ring);
	return 0;
}

START_TEST(a_table_counts_against_the_limit_of_descriptors_which_stays)
{
	in_child(exceed_nofile);
}
END_TEST

/*
 * Reads of two pipes, by descriptor and by slot; cancel those of the first. Where a kernel's reads of pipes may block, one
 * that was woken for nothing waits in io-wq, and a cancel interrupts it.
 */
START_TEST(all_ops_of_one_file_are_cancelled_and_no_others)
{
	struct mrt__ring *ring = make_enabled(32, 64, (unsigned)_i % 3);
	bool by_slot = _i >= 3, may_block;
	int first[2], second[2];
	struct mrt__ring_args args;
	char buf[8];
	unsigned i;

	make_pipe(first);
	make_pipe(second);
	ck_assert_int_eq(mrt__ring_file_set(ring, SLOTS, 1, first[0]), 0);
	for (i = 0; i < 6; i++) {
		args = slot_read(1, buf, sizeof(buf), UINT64_MAX);
		ck_assert(mrt__ring_stage(ring, &args, 0, &ops[2 * i]));
		ck_assert(stage_read(ring, i % 2 ? first[0] : second[0], buf, sizeof(buf), UINT64_MAX, &ops[2 * i + 1]));
	}
	ck_assert(mrt__ring_cancel_file(ring, by_slot ? 1 : first[0], by_slot));
	collect(ring, 9);
	for (i = 0; i < 9; i++)
		ck_assert_int_eq(done[i].res, -ECANCELED);
	assert_quiet(ring);
	ck_assert_int_eq(write(second[1], "abc", 3), 3);
	collect(ring, 1);
	ck_assert_int_eq(done[0].res, 3);
	may_block = kernel_pipe_reads_may_block();
	ck_assert(mrt__ring_cancel_file(ring, second[0], false));
	collect(ring, 2);
	for (i = 0; i < 2; i++)
		ck_assert_msg(done[i].res == -ECANCELED || (may_block && done[i].res == -EINTR), "read %u: %d", i, done[i].res);
	ck_assert(mrt__ring_cancel_file(ring, second[0], false));       /* nothing is left */
	ck_assert(mrt__ring_cancel_file(ring, 7, true));                /* an empty slot */
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

START_TEST(a_full_sq_takes_no_cancel_of_a_file)
{
	struct mrt__ring *ring = make_enabled(8, 64, 0);
	unsigned i;

	for (i = 0; i < 6; i++)
		ck_assert(stage_nop(ring, &ops[i]));
	ck_assert(mrt__ring_cancel_file(ring, 0, false));
	ck_assert(mrt__ring_cancel_file(ring, 0, false));
	ck_assert(!mrt__ring_cancel_file(ring, 0, false));
	(void)mrt__ring_flush(ring);
	ck_assert(mrt__ring_cancel_file(ring, 0, false));
	collect(ring, 6);
	assert_quiet(ring);
	end_ring(ring);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------------- */

static Suite *regs_suite(void)
{
	Suite *s = suite_create("ring_regs");
	TCase *buffers = tcase_create("buffers"), *memlock = tcase_create("memlock"), *files = tcase_create("files");

	tcase_set_timeout(buffers, 30);
	tcase_add_test(buffers, memory_of_the_donor_is_the_same_slot_on_every_ring);
	tcase_add_test(buffers, what_lies_in_no_slot_is_efault);
	tcase_add_loop_test(buffers, a_slot_that_is_filled_later_is_there_once_it_is_cloned, 0, 3);
	tcase_add_loop_test(buffers, a_ring_without_a_donor_has_slots_of_its_own, 0, 3);
	tcase_add_test(buffers, a_registration_that_fails_leaves_the_table_as_it_was);
	tcase_add_test(buffers, vectors_and_writes_may_lie_in_a_slot_too);
	tcase_add_test(buffers, a_new_kernel_clones_and_grows);
	tcase_add_test(buffers, donors_leave_no_descriptor_behind);
	tcase_add_test(buffers, a_child_that_abandons_a_donor_leaves_the_parents_alone);
	suite_add_tcase(s, buffers);

	tcase_set_timeout(memlock, 30);
	tcase_add_test(memlock, memory_beyond_the_limit_is_enomem_and_comes_back_when_it_is_dropped);
	tcase_add_test(memlock, clones_are_not_charged_again);
	suite_add_tcase(s, memlock);

	tcase_set_timeout(files, 30);
	tcase_add_loop_test(files, a_registered_file_is_read_without_its_descriptor, 0, 3);
	tcase_add_loop_test(files, a_slot_that_is_replaced_under_an_op_leaves_it_its_file, 0, 3);
	tcase_add_test(files, a_file_that_cannot_be_registered_leaves_the_slot_as_it_was);
	tcase_add_test(files, a_table_counts_against_the_limit_of_descriptors_which_stays);
	tcase_add_loop_test(files, all_ops_of_one_file_are_cancelled_and_no_others, 0, 6);
	tcase_add_test(files, a_full_sq_takes_no_cancel_of_a_file);
	suite_add_tcase(s, files);
	return s;
}

int main(void)
{
	return ring_main(regs_suite());
}
