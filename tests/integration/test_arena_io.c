/* SPDX-License-Identifier: MIT */
/*
 * I/O on arena memory through the public API. That the fixed opcodes are really used is shown by taking the write
 * permission from the pages: the kernel writes pinned pages all the same, a plain read fails with -EFAULT.
 *
 * Where each ring registers for itself (6.1) it does so at its first op on the memory, so there all workers use it once
 * before the permission is taken; where what the arena grows by cannot be registered (6.12) it must say so.
 *
 * Proven here: blocks are fixed on whichever worker a task runs, also when it is moved between ops and while the arena
 * grows; ops on freed memory are refused; memory that is freed with ops in flight is nobody else's until they have ended,
 * on pipes and on a device that is slow, or that wait for room in the ring; children do without; an ordinary user with Debian's limit can do it all.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define BLOCK 65536
#define MIB ((size_t)1 << 20)

static int file = -1;
static unsigned char pattern[BLOCK];

static void setup(void)
{
	fixture_pattern(pattern, sizeof(pattern), 7, 0);
	file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(pwrite(file, pattern, sizeof(pattern), 0), sizeof(pattern));
}

static void *take(struct mrt_runtime *rt, size_t bytes)
{
	void *p = NULL;
	int err = mrt_alloc(rt, bytes, 0, &p);

	ck_assert_msg(err == 0, "%zu bytes: %s", bytes, strerror(-err));
	return p;
}

/* A block that may be protected: its pages may be huge. */
static void *take_page(void)
{
	void *p = NULL;

	ck_assert_int_eq(mrt_alloc(NULL, 2 * MIB, 2 * MIB, &p), 0);
	return p;
}

/* From now on a plain read into it fails. */
static void protect(void *p, bool on)
{
	ck_assert_int_eq(mprotect(p, 2 * MIB, on ? PROT_READ : PROT_READ | PROT_WRITE), 0);
}

static struct mrt_arena_report report(struct mrt_runtime *rt)
{
	struct mrt_arena_report r;

	ck_assert_int_eq(mrt_arena_report(rt, &r), 0);
	return r;
}

/* ---- what the kernel can ---- */

static const char growth_text[] = "growth is not registered on this kernel";

/* Can this kernel do it at all for us? Otherwise the tests still show that everything works, by plain opcodes. */
static bool registers;
static bool per_ring;   /* each ring on its own, when it first uses the memory */
static bool grows;      /* also memory that the arena gets when rings have used what it had */

struct one_read {
	struct mrt_op op;
	char *block;
	int fd;
};

static enum mrt_poll read_zeros(struct mrt_task *self, void *frame)
{
	struct one_read *f = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->block, 4096, 0));
	MRT_RETURN(self, f->op.res);
}

/* Outside of any test. @return false: no runtime could be made, or nothing can be read into its arena */
static bool find_out(void)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);
	struct one_read f = { .fd = open("/dev/zero", O_RDONLY | O_CLOEXEC) };
	struct mrt_arena_report r = { 0 };
	struct mrt_runtime *rt;
	int64_t got = -1;
	void *p = NULL;

	opts.arena_bytes = 2 * MIB;
	if (mrt_runtime_create(&opts, &rt))
		return false;
	(void)mrt_arena_report(rt, &r); /* zeros: not registered */
	registers = r.how != MRT_ARENA_UNREGISTERED;
	per_ring = r.how == MRT_ARENA_PER_RING;
	if (!registers)
		printf("memory is not registered here: %s\n", r.text);
	if (mrt_alloc(rt, 4096, 0, &p) == 0) {
		f.block = p;
		if (mrt_block_on(rt, read_zeros, &f, sizeof(f), &got))
			got = -1;
	}
	if (got != 4096 || mrt_alloc(rt, 2 * MIB, 0, &p) || mrt_arena_report(rt, &r))
		got = -1;
	grows = registers && !strstr(r.text, growth_text);
	mrt_runtime_destroy(rt);
	close(f.fd);
	return got == 4096;
}

#define LEARN_MAX 24

struct learner {
	struct mrt_op op[LEARN_MAX];
	struct mrt_op *ops[LEARN_MAX];
	atomic_uint *here;
	unsigned workers_nr;
	char *const *blocks;
	unsigned nr;
};

/* As many as there are workers: they wait for each other, so each has a worker of its own when it uses the blocks. */
static enum mrt_poll learner_poll(struct mrt_task *self, void *frame)
{
	struct learner *f = frame;
	unsigned i;

	MRT_BEGIN(self);
	atomic_fetch_add(f->here, 1);
	ITEST_WAIT(atomic_load(f->here) == f->workers_nr, 20000);
	for (i = 0; i < f->nr; i++)
		f->ops[i] = mrt_read(&f->op[i], file, f->blocks[i], 4096, 0);
	MRT_AWAIT_ALL(self, f->ops, f->nr);
	for (i = 0; i < f->nr; i++)
		ck_assert_int_eq(f->op[i].res, 4096);
	MRT_RETURN(self, 0);
}

/* Every ring has used these blocks, at most LEARN_MAX. */
static void learn(struct mrt_runtime *rt, char *const *blocks, unsigned nr)
{
	atomic_uint here = 0;
	struct learner f = { .here = &here, .workers_nr = mrt_runtime_workers_nr(rt), .blocks = blocks, .nr = nr };
	struct mrt_task *tasks[8];
	unsigned i;

	ck_assert(nr <= LEARN_MAX && f.workers_nr <= 8);
	if (f.workers_nr == 1) {
		ck_assert_int_eq(itest_run(rt, learner_poll, &f, sizeof(f)), 0);
		return;
	}
	for (i = 0; i < f.workers_nr; i++)
		tasks[i] = itest_spawn(rt, learner_poll, &f, sizeof(f));
	for (i = 0; i < f.workers_nr; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
}

/* With so much at once, in one region: where each ring registers it for itself, all have done so. */
static struct mrt_runtime *create_known(int kind, size_t arena_bytes)
{
	struct mrt_runtime_opts opts = itest_opts(kind);
	struct mrt_runtime *rt;
	char *block;

	opts.arena_bytes = arena_bytes;
	rt = itest_create(&opts);
	if (per_ring) {
		block = take(rt, 4096);
		learn(rt, &block, 1);
		mrt_free(rt, block);
	}
	return rt;
}

/* As itest_task(). Elsewhere the arena has no memory yet. */
static void run_known(int kind, mrt_poll_fn fn, size_t frame_bytes)
{
	struct mrt_runtime *rt = create_known(kind, per_ring ? 8 * MIB : 0);
	void *frame = calloc(1, frame_bytes);

	ck_assert_ptr_nonnull(frame);
	ck_assert_int_eq(itest_run(rt, fn, frame, frame_bytes), 0);
	mrt_runtime_destroy(rt);
	free(frame);
}

/* ---- reads and writes ---- */

ITEST_TASK_WITH(reads_and_writes_use_the_fixed_opcodes_by_themselves, run_known, {
	struct mrt_op op;
	char *block;
	int i;
})
{
	MRT_BEGIN(self);
	f->block = take_page();
	protect(f->block, registers);
	MRT_AWAIT(self, mrt_read(&f->op, file, f->block, BLOCK, 0));
	ck_assert_int_eq(f->op.res, BLOCK);
	ck_assert_int_eq(memcmp(f->block, pattern, BLOCK), 0);
	/* any part of it */
	MRT_AWAIT(self, mrt_read(&f->op, file, f->block + 5001, 7000, 1));
	ck_assert_int_eq(f->op.res, 7000);
	ck_assert_int_eq(memcmp(f->block + 5001, pattern + 1, 7000), 0);
	protect(f->block, false);
	MRT_AWAIT(self, mrt_read_exact(&f->op, file, f->block, BLOCK, 4096));
	ck_assert_int_eq(f->op.res, BLOCK - 4096);
	ck_assert_int_eq(f->op.why, 0);
	for (f->i = 0; f->i < 100; f->i++) {
		MRT_AWAIT(self, mrt_write_all(&f->op, file, f->block + f->i, 4096, 4096 + f->i));
		ck_assert_int_eq(f->op.res, 4096);
	}
	MRT_AWAIT(self, mrt_read_exact(&f->op, file, f->block + 4096, 4000, 4096));
	ck_assert_int_eq(memcmp(f->block + 4096, pattern + 4096, 4000), 0);
	mrt_free(NULL, f->block);
	MRT_RETURN(self, 0);
}

ITEST_TASK(vectors_and_sockets_take_arena_memory, {
	struct mrt_op op, op2;
	struct iovec iov[3];
	char *block;
	char here[100];
	int fds[2];
})
{
	MRT_BEGIN(self);
	f->block = take(NULL, BLOCK);
	f->iov[0] = (struct iovec){ f->block, 1000 };
	f->iov[1] = (struct iovec){ f->block + 20000, 3000 };
	MRT_AWAIT(self, mrt_readv(&f->op, file, f->iov, 2, 10));
	ck_assert_int_eq(f->op.res, 4000);
	ck_assert_int_eq(memcmp(f->block, pattern + 10, 1000), 0);
	ck_assert_int_eq(memcmp(f->block + 20000, pattern + 1010, 3000), 0);
	/* not all of it in the arena */
	f->iov[2] = (struct iovec){ f->here, 100 };
	MRT_AWAIT(self, mrt_readv(&f->op, file, f->iov, 3, 10));
	ck_assert_int_eq(f->op.res, 4100);
	ck_assert_int_eq(memcmp(f->here, pattern + 4010, 100), 0);
	itest_socketpair(f->fds);
	MRT_AWAIT(self, mrt_send_all(&f->op, f->fds[0], f->block, 1000));
	ck_assert_int_eq(f->op.res, 1000);
	MRT_AWAIT(self, mrt_recv_exact(&f->op, f->fds[1], f->block + 30000, 1000));
	ck_assert_int_eq(f->op.res, 1000);
	ck_assert_int_eq(memcmp(f->block + 30000, pattern + 10, 1000), 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->fds[0]));
	MRT_AWAIT(self, mrt_close(&f->op, f->fds[1]));
	mrt_free(NULL, f->block);
	ck_assert_uint_eq(report(NULL).waiting_bytes, 0);
	MRT_RETURN(self, 0);
}

ITEST_TASK(an_op_on_memory_that_is_not_a_live_block_is_refused, {
	struct mrt_op op;
	struct iovec iov[2];
	char *block, *other;
})
{
	MRT_BEGIN(self);
	f->block = take(NULL, BLOCK);
	f->other = take(NULL, 4096);
	MRT_AWAIT(self, mrt_read(&f->op, file, f->block + BLOCK - 10, 4096, 0));
	ck_assert_int_eq(f->op.res, -EFAULT);
	f->iov[0] = (struct iovec){ f->other, 4096 };
	f->iov[1] = (struct iovec){ f->block, BLOCK + 1 };
	MRT_AWAIT(self, mrt_readv(&f->op, file, f->iov, 2, 0));
	ck_assert_int_eq(f->op.res, -EFAULT);
	mrt_free(NULL, f->block);
	MRT_AWAIT(self, mrt_read(&f->op, file, f->block, 4096, 0));
	ck_assert_int_eq(f->op.res, -EFAULT);
	MRT_AWAIT(self, mrt_write(&f->op, file, f->block, 4096, 0));
	ck_assert_int_eq(f->op.res, -EFAULT);
	ck_assert(itest_log_has("refused"));
	MRT_AWAIT(self, mrt_read(&f->op, file, f->other, 4096, 0));
	ck_assert_int_eq(f->op.res, 4096);
	/* nothing that was refused is still counted */
	mrt_free(NULL, f->other);
	ck_assert_uint_eq(report(NULL).waiting_bytes, 0);
	MRT_RETURN(self, 0);
}

/* ---- freed in flight ---- */

#define PIPE_READS 4

static bool is_in(const char *p, const char *block, size_t bytes)
{
	return p >= block && p < block + bytes;
}

static bool is_filled(const char *p, size_t bytes, char fill)
{
	return p[0] == fill && memcmp(p, p + 1, bytes - 1) == 0;
}

ITEST_CHILD(pipe_reader, {
	struct mrt_op ops[PIPE_READS];
	int fds[2], i;
	char *blocks[PIPE_READS], *others[512];
	int others_nr;
	void *p;
})
{
	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->fds, O_CLOEXEC), 0);
	for (f->i = 0; f->i < PIPE_READS; f->i++) {
		f->blocks[f->i] = take(NULL, 8192);
		memset(f->blocks[f->i], 'b', 8192);
		(void)mrt_read(&f->ops[f->i], f->fds[0], f->blocks[f->i], 4096, MRT_OFF_CURRENT); /* awaited below */
	}
	mrt_flush();
	for (f->i = 0; f->i < PIPE_READS; f->i++)
		mrt_free(NULL, f->blocks[f->i]);
	ck_assert(itest_log_has("1 ops in flight"));
	ck_assert_uint_eq(report(NULL).waiting_bytes, PIPE_READS * 8192);
	/* all the memory that there is */
	while (f->others_nr < 512 && mrt_alloc(NULL, 4096, 0, &f->p) == 0) {
		memset(f->p, 'o', 4096);
		f->others[f->others_nr++] = f->p;
	}
	ck_assert_int_eq(f->others_nr, 512 - PIPE_READS * 2);
	for (f->i = 0; f->i < f->others_nr * PIPE_READS; f->i++)
		ck_assert(!is_in(f->others[f->i / PIPE_READS], f->blocks[f->i % PIPE_READS], 8192));
	for (f->i = 0; f->i < PIPE_READS; f->i++)
		ck_assert_int_eq(write(f->fds[1], pattern, 4096), 4096);
	for (f->i = 0; f->i < PIPE_READS; f->i++) {
		MRT_AWAIT(self, &f->ops[f->i]);
		ck_assert_int_eq(f->ops[f->i].res, 4096);
	}
	for (f->i = 0; f->i < f->others_nr; f->i++)
		ck_assert(is_filled(f->others[f->i], 4096, 'o'));
	/* now they come back */
	for (f->i = 0; f->i < PIPE_READS * 2; f->i++)
		ck_assert_int_eq(mrt_alloc(NULL, 4096, 0, &f->p), 0);
	ck_assert_int_eq(mrt_alloc(NULL, 4096, 0, &f->p), -ENOMEM);
	ck_assert_uint_eq(report(NULL).waiting_bytes, 0);
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

START_TEST(memory_that_a_pipe_will_be_read_into_is_nobody_elses)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	struct mrt_runtime *rt;
	struct pipe_reader f = { .i = 0 };

	opts.arena_bytes = opts.arena_bytes_max = 2 * MIB;
	rt = itest_create(&opts);
	ck_assert_int_eq(itest_run(rt, pipe_reader_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* Reads with an offset wait on a pipe, too, but count as I/O that ends by itself: so many have room in a CQ of 16. */
#define ROOM 14

ITEST_CHILD(waiting_reader, {
	struct mrt_op ops[ROOM + 1];
	int fds[2], i;
	char *block, *other;
	char bytes[ROOM];
})
{
	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->fds, O_CLOEXEC), 0);
	for (f->i = 0; f->i < ROOM; f->i++)
		(void)mrt_read(&f->ops[f->i], f->fds[0], &f->bytes[f->i], 1, 0); /* awaited below */
	f->block = take(NULL, 4096);
	memset(f->block, 'b', 4096);
	(void)mrt_read(&f->ops[ROOM], f->fds[0], f->block, 1, 0); /* the same */
	mrt_flush();
	mrt_free(NULL, f->block);
	ck_assert(itest_log_has("1 ops in flight"));
	ck_assert_uint_eq(report(NULL).waiting_bytes, 4096);
	f->other = take(NULL, 4096);
	ck_assert_ptr_ne(f->other, f->block);
	ck_assert_int_eq(write(f->fds[1], pattern, ROOM), ROOM);
	for (f->i = 0; f->i < ROOM; f->i++) {
		MRT_AWAIT(self, &f->ops[f->i]);
		ck_assert_int_eq(f->ops[f->i].res, 1);
	}
	MRT_AWAIT(self, &f->ops[ROOM]);
	ck_assert_int_eq(f->ops[ROOM].res, -EFAULT);
	mrt_free(NULL, f->other);
	ck_assert_uint_eq(report(NULL).allocated_bytes, 0);
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

START_TEST(memory_of_a_read_that_waits_for_room_is_nobody_elses)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	struct mrt_runtime *rt;
	struct waiting_reader f = { .i = 0 };

	opts.sq_entries = 8;
	opts.cq_entries = 16;
	rt = itest_create(&opts);
	ck_assert_int_eq(itest_run(rt, waiting_reader_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* A task that is aborted, and frees what it was reading into before the read has ended. */
ITEST_CHILD(aborted_reader, {
	struct mrt_op op;
	char *block;
	int fd;
})
{
	MRT_BEGIN(self);
	f->block = take(NULL, 4096);
	(void)mrt_read(&f->op, f->fd, f->block, 4096, MRT_OFF_CURRENT); /* cancelled when the task returns */
	mrt_flush();
	mrt_free(NULL, f->block);
	MRT_RETURN(self, 0);
}

START_TEST(a_task_that_returns_with_its_read_in_flight_leaves_nothing_behind)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct aborted_reader f = { .fd = -1 };
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	f.fd = fds[0];
	ck_assert_int_eq(itest_run(rt, aborted_reader_poll, &f, sizeof(f)), 0);
	mrt_free(rt, take(rt, 4096));
	ck_assert_uint_eq(report(rt).waiting_bytes, 0);
	ck_assert_uint_eq(report(rt).allocated_bytes, 0);
	mrt_runtime_destroy(rt);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* ---- a device ---- */

#define DEVICE_BYTES (4 * MIB)
#define DEVICE_READS 16

static char dir[FIXTURE_PATH];
static struct fixture_loop loop;
static struct fixture_throttle throttle;
static atomic_bool freed;

ITEST_CHILD(device_reader, {
	struct mrt_op ops[DEVICE_READS];
	char *blocks[DEVICE_READS];
	int fd, i;
})
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < DEVICE_READS; f->i++) {
		f->blocks[f->i] = take(NULL, BLOCK);
		(void)mrt_read(&f->ops[f->i], f->fd, f->blocks[f->i], BLOCK, f->i * BLOCK); /* awaited below */
	}
	mrt_flush();
	for (f->i = 0; f->i < DEVICE_READS; f->i++)
		mrt_free(NULL, f->blocks[f->i]);
	atomic_store(&freed, true);
	for (f->i = 0; f->i < DEVICE_READS; f->i++) {
		MRT_AWAIT(self, &f->ops[f->i]);
		ck_assert_int_eq(f->ops[f->i].res, BLOCK);
	}
	MRT_RETURN(self, 0);
}

START_TEST(memory_that_a_slow_device_writes_is_nobody_elses)
{
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	struct device_reader f = { .i = 0 };
	struct mrt_task *task;
	char *others[512];
	unsigned nr = 0, i;
	void *p;

	ck_assert_int_eq(fixture_throttle_enter(&throttle), 0);
	ck_assert_int_eq(fixture_throttle_set(&throttle, 1), 0); /* most of them wait until the limit is lifted */
	opts = itest_opts(_i == 0 ? ITEST_TWO : ITEST_FLOAT);
	opts.arena_bytes = opts.arena_bytes_max = 4 * MIB;
	rt = itest_create(&opts);
	f.fd = open(loop.path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	ck_assert_int_ge(f.fd, 0);
	task = itest_spawn(rt, device_reader_poll, &f, sizeof(f));
	ITEST_WAIT(atomic_load(&freed), 10000);
	ck_assert_uint_gt(report(rt).waiting_bytes, 0);
	while (nr < 512 && mrt_alloc(rt, 8192, 0, &p) == 0) {
		memset(p, 'o', 8192);
		others[nr++] = p;
	}
	ck_assert(itest_log_has("ops in flight"));
	ck_assert_int_eq(fixture_throttle_set(&throttle, 0), 0);
	ck_assert_int_eq(itest_join(task), 0);
	for (i = 0; i < nr; i++)
		ck_assert(is_filled(others[i], 8192, 'o'));
	for (i = 0; i < nr; i++)
		mrt_free(rt, others[i]);
	mrt_free(rt, take(rt, 4096));
	mrt_free(rt, take(rt, 4096));
	mrt_free(rt, take(rt, 4096));
	ck_assert_uint_eq(report(rt).allocated_bytes, 0);
	mrt_runtime_destroy(rt);
	close(f.fd);
}
END_TEST

/* ---- workers ---- */

#define MOVERS 24
_Static_assert(MOVERS <= LEARN_MAX, "all their blocks are learnt at once");
#define MOVES(i) (10 + 6 * (i)) /* who has done his looks for the work of others */

static atomic_int moved, growing;

/* Reads into its own block, now on one worker and then on another: one of them before each read, the others as it happens. */
ITEST_CHILD(mover, {
	struct mrt_op op;
	struct itest_move move;
	bool is_moved;
	char *block;            /* NULL: it takes one */
	int i, moves;
	bool grew;
	bool fixed;             /* all rings must have it registered */
})
{
	MRT_BEGIN(self);
	if (!f->block)
		f->block = take_page();
	protect(f->block, f->fixed);
	for (f->i = 0; f->i < f->moves || atomic_load(&growing); f->i++) {
		if (f->is_moved) {
			ITEST_MOVE(self, &f->move);
			itest_move_let_go(&f->move);
			atomic_fetch_add(&moved, 1);
		}
		f->grew = atomic_load(&growing);
		MRT_AWAIT(self, mrt_read(&f->op, file, f->block + f->i % 16 * 4096, 4096, f->i % 16 * 4096));
		/* while somebody registers, a ring that does not know of the block yet takes the plain opcode */
		if (f->op.res != -EFAULT || !f->grew) {
			ck_assert_int_eq(f->op.res, 4096);
			ck_assert_int_eq(memcmp(f->block + f->i % 16 * 4096, pattern + f->i % 16 * 4096, 4096), 0);
		}
		itest_spin(20000);
		MRT_AWAIT(self, mrt_yield(&f->op));
		if (f->is_moved)
			ITEST_MOVE_END(self, &f->move);
	}
	protect(f->block, false);
	mrt_free(NULL, f->block);
	MRT_RETURN(self, 0);
}

/* @param blocks  [MOVERS] what they read into, and free; NULL: each takes one */
static void run_movers(struct mrt_runtime *rt, bool fixed, char *const *blocks, void (*meanwhile)(struct mrt_runtime *))
{
	struct mrt_task *tasks[MOVERS];
	struct mover f = { .fixed = fixed };
	unsigned i;

	for (i = 0; i < MOVERS; i++) {
		f.moves = MOVES((int)i);
		f.is_moved = i == 0;
		f.block = blocks ? blocks[i] : NULL;
		tasks[i] = itest_spawn(rt, mover_poll, &f, sizeof(f));
	}
	if (meanwhile)
		meanwhile(rt);
	for (i = 0; i < MOVERS; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
}

START_TEST(a_block_is_fixed_on_every_worker_that_a_task_is_moved_to)
{
	struct mrt_runtime *rt = create_known(_i, 2 * MIB * (MOVERS + 1)); /* nothing is registered while they run */

	run_movers(rt, registers, NULL, NULL);
	ck_assert_int_eq(atomic_load(&moved), MOVES(0));
	ck_assert_uint_gt(itest_stats(rt).steals, 0);
	ck_assert_uint_eq(report(rt).allocated_bytes, 0);
	mrt_runtime_destroy(rt);
}
END_TEST

static void grow(struct mrt_runtime *rt)
{
	unsigned i;

	for (i = 0; i < 6; i++) {
		char *p = take(rt, 4 * MIB << i);

		p[0] = p[(4 * MIB << i) - 1] = 1;
	}
	atomic_store(&growing, 0);
}

START_TEST(the_arena_grows_under_reads)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	char *blocks[MOVERS];
	unsigned i;
	void *p;

	/* a ring that learns of the arena only when it has grown gets all of it also where it could not get the rest later */
	if (registers && !grows) {
		blocks[0] = take(rt, 4096);
		learn(rt, blocks, 1);
		mrt_free(rt, blocks[0]);
	}
	atomic_store(&growing, 1);
	run_movers(rt, grows && !per_ring, NULL, grow);
	ck_assert_uint_ge(report(rt).mapped_bytes, 252 * MIB);
	if (registers && !grows) {
		ck_assert_uint_lt(report(rt).registered_bytes, report(rt).mapped_bytes);
		ck_assert_uint_gt(report(rt).regions_unregistered, 0);
		ck_assert(strstr(report(rt).text, growth_text) && itest_log_has("give arena_bytes"));
	}
	if (grows) {
		ck_assert_uint_eq(report(rt).registered_bytes, report(rt).mapped_bytes);
		/* and so it is for every ring */
		for (i = 0; i < MOVERS; i++) {
			ck_assert_int_eq(mrt_alloc(rt, 2 * MIB, 2 * MIB, &p), 0);
			blocks[i] = p;
		}
		learn(rt, blocks, MOVERS);
		run_movers(rt, true, blocks, NULL);
	}
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- the process ---- */

static enum mrt_poll one_read_poll(struct mrt_task *self, void *frame)
{
	struct one_read *f = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_read(&f->op, file, f->block, BLOCK, 0));
	MRT_RETURN(self, f->op.res == BLOCK && memcmp(f->block, pattern, BLOCK) == 0 ? 0 : -1);
}

static int use_in_a_child(void *ctx)
{
	struct mrt_runtime *rt = ctx;
	struct mrt_arena_report r;
	void *p;

	mrt_free(rt, &p);
	return mrt_alloc(rt, 1, 0, &p) == -ECHILD && mrt_arena_report(rt, &r) == -ECHILD ? 0 : 1;
}

START_TEST(a_child_is_told_and_its_parent_goes_on)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct one_read f = { .block = take(rt, BLOCK) };

	ck_assert_int_eq(itest_run(rt, one_read_poll, &f, sizeof(f)), 0);
	itest_child_ok(use_in_a_child, rt);
	ck_assert_int_eq(itest_run(rt, one_read_poll, &f, sizeof(f)), 0);
	f.block = take(rt, 4 * MIB);
	ck_assert_int_eq(itest_run(rt, one_read_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

static int run_as_ordinary(void *ctx)
{
	struct rlimit limit = { .rlim_cur = 8 * MIB, .rlim_max = 8 * MIB };
	uid_t uid = 300000 + (uid_t)getpid() % 100000;
	int kind = *(int *)ctx, turn, i;

	setup();
	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return 1;
	if (geteuid() == 0 && (setgroups(0, NULL) || setgid((gid_t)uid) || setuid(uid)))
		return 2;
	for (turn = 0; turn < 3; turn++) {
		struct mrt_runtime *rt = itest_runtime(kind);

		for (i = 0; i < 20; i++) {
			struct one_read f = { .block = take(rt, MIB) };

			if (itest_run(rt, one_read_poll, &f, sizeof(f)))
				return 3;
		}
		fprintf(stderr, "%s\n", report(rt).text);
		if (report(rt).registered_bytes > 6 * MIB || (registers && report(rt).registered_bytes < MIB))
			return 4;
		if (!itest_log_has("RLIMIT_MEMLOCK is 8 MiB"))
			return 5;
		mrt_runtime_destroy(rt);
	}
	return 0;
}

START_TEST(an_ordinary_user_with_debians_limit_can_use_more_than_it)
{
	int kind = _i;

	itest_child_ok(run_as_ordinary, &kind);
}
END_TEST

START_TEST(the_options_are_kept)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	struct mrt_runtime *rt;
	void *p;

	opts.arena_bytes = 6 * MIB;
	opts.arena_bytes_max = 8 * MIB;
	rt = itest_create(&opts);
	ck_assert_uint_eq(report(rt).mapped_bytes, 6 * MIB);
	ck_assert_uint_eq(report(rt).limit_bytes, 8 * MIB);
	if (registers)
		ck_assert_uint_eq(report(rt).registered_bytes, 6 * MIB);
	ck_assert_int_eq(mrt_alloc(rt, 7 * MIB, 0, &p), -ENOMEM);
	ck_assert(itest_log_has("arena_bytes_max"));
	(void)take(rt, 6 * MIB);
	(void)take(rt, 2 * MIB);
	ck_assert_int_eq(mrt_alloc(rt, 1, 0, &p), -ENOMEM);
	mrt_runtime_destroy(rt);
}
END_TEST

static void add_device_tests(TCase *tc)
{
	int err = fixture_tmpfs(16 * MIB, dir);

	if (!err)
		err = fixture_loop(dir, DEVICE_BYTES, true, &loop);
	if (!err)
		err = fixture_throttle(loop.major, loop.minor, &throttle);
	if (err)
		printf("skipped: a slow device: %s\n", strerror(-err));
	else
		tcase_add_loop_test(tc, memory_that_a_slow_device_writes_is_nobody_elses, 0, 2);
}

int main(void)
{
	Suite *suite = suite_create("arena_io");
	TCase *tc = tcase_create("arena_io");

	itest_need_io_uring();
	if (!find_out()) {
		printf("no runtime with an arena could be made\n");
		return EXIT_FAILURE;
	}
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, reads_and_writes_use_the_fixed_opcodes_by_themselves, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, vectors_and_sockets_take_arena_memory, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, an_op_on_memory_that_is_not_a_live_block_is_refused, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, memory_that_a_pipe_will_be_read_into_is_nobody_elses, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, memory_of_a_read_that_waits_for_room_is_nobody_elses, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_task_that_returns_with_its_read_in_flight_leaves_nothing_behind, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_block_is_fixed_on_every_worker_that_a_task_is_moved_to, ITEST_TWO, ITEST_TWO + 1);
	tcase_add_loop_test(tc, a_block_is_fixed_on_every_worker_that_a_task_is_moved_to, ITEST_FLOAT, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, the_arena_grows_under_reads, ITEST_TWO, ITEST_TWO + 1);
	tcase_add_loop_test(tc, the_arena_grows_under_reads, ITEST_FLOAT, ITEST_FLOAT + 1);
	tcase_add_loop_test(tc, a_child_is_told_and_its_parent_goes_on, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, an_ordinary_user_with_debians_limit_can_use_more_than_it, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, the_options_are_kept);
	add_device_tests(tc);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
