/* SPDX-License-Identifier: MIT */
/*
 * A copy job on a device that is slow on purpose, ended at every point: aborted, dropped, or its runtime shut down,
 * while reads are in flight that nobody can stop.
 *
 * The device is a loop over tmpfs whose reads are throttled by a cgroup, opened with O_DIRECT: the kernel has the buffer
 * for as long as we like, and a cancel does not give it back. A point is the moment before an op starts or after it was
 * delivered; the job counts them, and ends itself at the one that is injected.
 *
 * The proof that no buffer is touched after it was given back: as soon as the runtime says so (the task has ended, the
 * shutdown is over), buffers are filled with a pattern, then the throttle is lifted, so that whatever were still in
 * flight would land now; the pattern must be whole. Buffers in frames are the runtime's own memory: there the next tasks
 * of the same size get the cells, fill them and look again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define BLOCK 4096
#define BLOCKS 16
#define SLOTS 8
#define READS_PER_SECOND 50     /* the kernel lets five of them pass every 100 ms */
#define POINTS_PER_BLOCK 4
#define POINTS (POINTS_PER_BLOCK * BLOCKS + 2)
#define GIVEN_BACK 0xd5

static char dir[FIXTURE_PATH];
static struct fixture_loop loop;
static struct fixture_throttle throttle;

enum how {
	HOW_ABORT,              /* the root is aborted; its scope ends the slots */
	HOW_ABORT_FRAMES,       /* the same, with the buffers in the slots' frames */
	HOW_DROP,               /* the root returns without waiting */
	HOW_ABORT_SLOT,         /* only one slot is aborted: the others finish */
	HOW_SHUTDOWN,
	HOW_NR
};

struct job {
	enum how how;
	int inject;             /* point at which it ends; beyond the last: it runs through */
	atomic_int points, reached, next, copied;
	atomic_bool drop;
	int in, out;
	struct mrt_task *root;
	struct mrt_notify dropped;
	unsigned char (*bufs)[BLOCK]; /* [SLOTS], the caller's */
};

/* A point of the job; ends it if it is the one. */
static void point(struct job *job)
{
	if (atomic_fetch_add(&job->points, 1) != job->inject)
		return;
	switch (job->how) {
	case HOW_ABORT:
	case HOW_ABORT_FRAMES:
		mrt_abort(job->root);
		break;
	case HOW_ABORT_SLOT:
		if (mrt_task_self() != job->root)
			mrt_abort(mrt_task_self());
		break;
	case HOW_DROP:
		atomic_store(&job->drop, true);
		mrt_notify_one(&job->dropped);
		break;
	default:
		break; /* the shutdown comes from outside, which waits for `reached` */
	}
	atomic_store(&job->reached, 1);
}

struct slot {
	struct job *job;
	int index, block;
	struct mrt_op op;
	unsigned char *buf;
	unsigned char own[2 * BLOCK];   /* holds an aligned block */
};

static unsigned char *slot_buf(struct slot *s)
{
	if (s->job->how != HOW_ABORT_FRAMES)
		return s->job->bufs[s->index];
	return (unsigned char *)(((uintptr_t)s->own + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1));
}

static enum mrt_poll slot_poll(struct mrt_task *self, void *frame)
{
	struct slot *s = frame;
	struct job *job = s->job;

	MRT_BEGIN(self);
	s->buf = slot_buf(s);
	for (;;) {
		s->block = atomic_fetch_add(&job->next, 1);
		if (s->block >= BLOCKS)
			break;
		point(job);
		MRT_AWAIT(self, mrt_read_exact(&s->op, job->in, s->buf, BLOCK, (int64_t)s->block * BLOCK));
		point(job);
		if (s->op.res != BLOCK)
			MRT_RETURN(self, s->op.res);
		point(job);
		MRT_AWAIT(self, mrt_write_all(&s->op, job->out, s->buf, BLOCK, (int64_t)s->block * BLOCK));
		point(job);
		if (s->op.res != BLOCK)
			MRT_RETURN(self, s->op.res);
		atomic_fetch_add(&job->copied, 1);
	}
	MRT_RETURN(self, 0);
}

ITEST_CHILD(root, {
	struct job *job; struct mrt_scope scope; struct mrt_op wait; struct mrt_op *ops[2]; size_t which;
})
{
	struct slot slot = { .job = f->job };
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizeof(slot) };
	int err = 0;

	MRT_BEGIN(self);
	f->job->root = self;
	point(f->job);
	mrt_scope_init(&f->scope, 0);
	for (slot.index = 0; slot.index < SLOTS && !err; slot.index++)
		err = mrt_scope_spawn(&f->scope, slot_poll, &slot, offsetof(struct slot, own), &opts);
	point(f->job);
	f->ops[0] = mrt_scope_join(&f->scope);
	f->ops[1] = mrt_notify_wait(&f->wait, &f->job->dropped);
	MRT_AWAIT_ANY(self, f->ops, 2, f->which);
	if (atomic_load(&f->job->drop))
		MRT_RETURN(self, 1); /* with the scope in flight */
	MRT_AWAIT(self, f->ops[0]);
	MRT_RETURN(self, f->ops[0]->res);
}

/* ---- the proof ---- */

static void give_back(unsigned char (*bufs)[BLOCK])
{
	memset(bufs, GIVEN_BACK, SLOTS * BLOCK);
}

static void check_given_back(unsigned char (*bufs)[BLOCK])
{
	const unsigned char *byte = (const unsigned char *)bufs;
	size_t i;

	for (i = 0; i < SLOTS * BLOCK; i++)
		if (byte[i] != GIVEN_BACK)
			ck_abort_msg("byte %zu was written after the buffer was given back", i);
}

/* Gets a cell that a slot had: whole of it is filled, and looked at when everything would have landed. */
static enum mrt_poll squatter_poll(struct mrt_task *self, void *frame)
{
	struct slot *s = frame;
	size_t i;

	MRT_BEGIN(self);
	memset(s->own, GIVEN_BACK, sizeof(s->own));
	MRT_AWAIT(self, mrt_sleep(&s->op, MRT_MS(30)));
	for (i = 0; i < sizeof(s->own); i++)
		if (s->own[i] != GIVEN_BACK)
			MRT_RETURN(self, (int64_t)i + 1);
	MRT_RETURN(self, 0);
}

static void squat(struct mrt_runtime *rt)
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizeof(struct slot) };
	struct mrt_task *tasks[2 * SLOTS];
	int i;

	for (i = 0; i < 2 * SLOTS; i++)
		ck_assert_int_eq(mrt_spawn(rt, squatter_poll, NULL, 0, &opts, &tasks[i]), 0);
	ck_assert_int_eq(fixture_throttle_set(&throttle, 0), 0);
	for (i = 0; i < 2 * SLOTS; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
}

/* From inside, so that the cells come from the same worker's heap. */
ITEST_CHILD(squat_inside, { struct mrt_task *tasks[2 * SLOTS]; struct mrt_op op; int i; int64_t bad; })
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizeof(struct slot) };

	MRT_BEGIN(self);
	for (f->i = 0; f->i < 2 * SLOTS; f->i++)
		ck_assert_int_eq(mrt_spawn(NULL, squatter_poll, NULL, 0, &opts, &f->tasks[f->i]), 0);
	ck_assert_int_eq(fixture_throttle_set(&throttle, 0), 0);
	for (f->i = 0; f->i < 2 * SLOTS; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		f->bad |= f->op.res;
	}
	MRT_RETURN(self, f->bad);
}

/*
 * Time for a late write of the kernel to land, once the throttle is lifted: one that must not come has no event that could
 * be waited for. Too short a time could only hide a fault, never make one up.
 */
static void let_it_land(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
}

/* ---- one run ---- */

static void check_copy(const struct job *job)
{
	static unsigned char got[BLOCKS * BLOCK], want[BLOCKS * BLOCK];

	fixture_pattern(want, sizeof(want), 1, 0);
	ck_assert_int_eq(pread(job->out, got, sizeof(got), 0), sizeof(got));
	ck_assert_int_eq(memcmp(got, want, sizeof(got)), 0);
}

/* @return true: it ran through before the point was reached */
static bool run_once(int kind, enum how how, int inject)
{
	struct mrt_runtime *rt = itest_runtime(kind);
	struct job job = { .how = how, .inject = inject };
	struct root root = { .job = &job };
	unsigned fds_nr;
	struct mrt_task *task;
	uint64_t until;
	bool through;

	job.in = open(loop.path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	job.out = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_ge(job.in, 0);
	ck_assert_int_ge(job.out, 0);
	job.bufs = aligned_alloc(BLOCK, SLOTS * BLOCK);
	ck_assert_ptr_nonnull(job.bufs);
	mrt_notify_init(&job.dropped);
	fds_nr = itest_fds_nr();
	ck_assert_int_eq(fixture_throttle_set(&throttle, READS_PER_SECOND), 0);

	task = itest_spawn(rt, root_poll, &root, sizeof(root));
	ITEST_WAIT(atomic_load(&job.reached) || mrt_task_is_finished(task), 10000);
	through = !atomic_load(&job.reached);
	if (how == HOW_SHUTDOWN) {
		int err = mrt_runtime_shutdown_wait(rt, MRT_MS(5));

		ck_assert(err == 0 || err == -ETIMEDOUT);
		if (err) {
			ck_assert(itest_log_has("shutdown is late"));
			ck_assert_int_eq(fixture_throttle_set(&throttle, 0), 0);
			ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(10)), 0);
		}
	} else {
		until = mrt_now() + MRT_MS(5);
		while (!mrt_task_is_finished(task) && mrt_now() < until)
			itest_pause();
		if (!mrt_task_is_finished(task))
			ck_assert_int_eq(fixture_throttle_set(&throttle, 0), 0);
	}
	(void)itest_join(task);
	/* all slots have ended with the root: every buffer is ours */
	give_back(job.bufs);
	if (how == HOW_ABORT_FRAMES && inject % 2)
		squat(rt);
	else if (how == HOW_ABORT_FRAMES)
		ck_assert_int_eq(itest_run(rt, squat_inside_poll, &(struct squat_inside){ .i = 0 }, sizeof(struct squat_inside)), 0);
	ck_assert_int_eq(fixture_throttle_set(&throttle, 0), 0);
	let_it_land();
	check_given_back(job.bufs);
	if (through) {
		ck_assert_int_eq(atomic_load(&job.copied), BLOCKS);
		check_copy(&job);
	}
	if (how == HOW_ABORT_SLOT)
		ck_assert_int_ge(atomic_load(&job.next), BLOCKS); /* the others went on */
	ck_assert_uint_eq(itest_fds_nr(), fds_nr);
	mrt_runtime_destroy(rt);
	check_given_back(job.bufs);
	free(job.bufs);
	close(job.in);
	close(job.out);
	return through;
}

static void enter_throttle(void)
{
	ck_assert_int_eq(fixture_throttle_enter(&throttle), 0);
}

static void sweep_points(int kind, enum how how, int step)
{
	int inject, through = 0;

	enter_throttle();
	for (inject = 0; inject < POINTS; inject += step)
		through += run_once(kind, how, inject);
	ck_assert_int_le(through, 1 + POINTS / step / 4);  /* nearly all points were reached */
	(void)run_once(kind, how, 1 << 30);             /* and undisturbed it copies */
}

START_TEST(ended_at_every_point)
{
	sweep_points(ITEST_TWO, (enum how)_i, ITEST_SLOW ? 5 : _i == HOW_SHUTDOWN || _i == HOW_ABORT ? 1 : 3);
}
END_TEST

START_TEST(ended_at_some_points_on_workers_that_float)
{
	sweep_points(ITEST_FLOAT, (enum how)_i, 7);
}
END_TEST

/* ---- one read that is stuck ---- */

#define STUCK_PER_SECOND 2

ITEST_CHILD(stuck_read, {
	struct mrt_op op; struct mrt_op second; struct mrt_op pause; struct mrt_timer timer;
	struct mrt_op *ops[2]; int fd; unsigned char *buf; int how; uint64_t start;
})
{
	unsigned char want[BLOCK];

	MRT_BEGIN(self);
	/* the first passes, the second waits for half a second */
	mrt_read(&f->op, f->fd, f->buf, BLOCK, 0);
	mrt_read(&f->second, f->fd, f->buf + BLOCK, BLOCK, BLOCK);
	f->start = mrt_now();
	if (f->how == 0) {
		mrt_deadline(&f->second, &f->timer, MRT_MS(20));
	} else if (f->how == 1) {
		MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(20)));
		mrt_cancel(&f->second);
	}
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, BLOCK);
	MRT_AWAIT(self, &f->second);
	/* the device cannot be stopped: the buffer comes back late, with its data */
	ck_assert_int_eq(f->second.res, BLOCK);
	ck_assert_uint_ge(mrt_now() - f->start, MRT_MS(100));
	fixture_pattern(want, BLOCK, 1, BLOCK);
	ck_assert_mem_eq(f->buf + BLOCK, want, BLOCK);
	MRT_RETURN(self, 0);
}

START_TEST(a_read_that_is_stuck_gives_its_buffer_back_with_the_data)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_TWO);
	struct stuck_read f = { .how = _i };

	enter_throttle();
	ck_assert_int_eq(fixture_throttle_set(&throttle, STUCK_PER_SECOND), 0);
	f.fd = open(loop.path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	f.buf = aligned_alloc(BLOCK, 2 * BLOCK);
	ck_assert_int_eq(itest_run(rt, stuck_read_poll, &f, sizeof(f)), 0);
	ck_assert_int_eq(fixture_throttle_set(&throttle, 0), 0);
	mrt_runtime_destroy(rt);
	free(f.buf);
	close(f.fd);
}
END_TEST

static const char *make_fixtures(void)
{
	if (fixture_tmpfs(64 << 20, dir))
		return "a tmpfs cannot be mounted (needs root)";
	if (fixture_loop(dir, 1 << 20, false, &loop))
		return "no loop device";
	if (fixture_throttle(loop.major, loop.minor, &throttle))
		return "no blkio throttle (cgroup v1)";
	if (fixture_throttle_set(&throttle, READS_PER_SECOND))
		return "the throttle does not take this device";
	return NULL;
}

int main(void)
{
	Suite *suite = suite_create("copyjob");
	TCase *tc = tcase_create("copyjob");
	const char *missing;

	itest_need_io_uring();
	missing = make_fixtures();
	if (missing) {
		printf("skipped: %s\n", missing);
		return ITEST_SKIP;
	}
	tcase_set_timeout(tc, 4 * ITEST_LIMIT_S);
	tcase_add_loop_test(tc, ended_at_every_point, 0, HOW_NR);
	tcase_add_loop_test(tc, ended_at_some_points_on_workers_that_float, 0, HOW_NR);
	tcase_add_loop_test(tc, a_read_that_is_stuck_gives_its_buffer_back_with_the_data, 0, 3);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
