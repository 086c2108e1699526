/* SPDX-License-Identifier: MIT */
/*
 * Any number of workers, also many more than there are CPUs: the same mix of everything at once, pinned and floating, and
 * every result is known beforehand.
 *
 * A root spawns all jobs, every second one by MRT_SPAWN_SPREAD, and joins each: trees of tasks, files by descriptor and by
 * handle, conversations over sockets, sleeps, deadlines, blocking calls, cancels, aborts, a channel, and a task that does not
 * give its worker back until all its children have run on others. Meanwhile threads outside spawn and join. Tasks that wait
 * for ever are ended by the shutdown. Then everything that was spawned has ended, nothing is in flight, and no descriptor is
 * left.
 *
 * Not proven here: random orders (stress_sched), how fast it is (scripts/bench-workers).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define BLOCK 4096
#define BLOCKS_EACH 8
#define FILES_NR 16
#define PAIRS_NR 16
#define MESSAGES 40
#define BYTES_MAX 3000
#define SENDERS_NR 4
#define SENT_EACH 300
#define KIDS_NR 200             /* fit a local queue and a next slot, if nothing else is there */
#define OVERFLOW_NR 129         /* what goes to inject where they do not fit */
#define HANGING_NR 30
#define THREADS_NR 2
#define THREADS_SPARE 16        /* for blocking calls, and those outside */
#define SPAWNS_EACH (ITEST_SLOW ? 200 : 1000)
#define HOUR MRT_SEC(3600)
#define WORKERS_MAX 64

static const unsigned worker_counts[] = { 1, 2, 3, 8, 16, WORKERS_MAX };
#define COUNTS_NR (int)(sizeof(worker_counts) / sizeof(worker_counts[0]))

static unsigned workers_allowed = WORKERS_MAX; /* what the limits of this user let us have */

static struct {
	struct mrt_runtime *rt;
	unsigned workers_nr;
	int fd, handle;
	int pairs[PAIRS_NR][2];
	int quiet[2];           /* nothing ever comes */
	struct mrt_channel *channel;
	struct mrt_notify notify; /* never notified */
	atomic_ullong spawned;  /* by tasks */
	atomic_ullong received; /* sum of what came through the channel */
	atomic_int kids_ran, hanging, ended_hanging;
} st;

static struct mrt_task *spawn(mrt_poll_fn fn, const void *frame, size_t frame_bytes, unsigned flags)
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = flags };
	struct mrt_task *task;

	ck_assert_int_eq(mrt_spawn(NULL, fn, frame, frame_bytes, &opts, &task), 0);
	atomic_fetch_add(&st.spawned, 1);
	return task;
}

/* ---- the jobs: what each returns is in the table below ---- */

#define TREE_FANS 4
#define TREE_LEAVES 256

/* The sum of the numbers of its leaves. */
ITEST_CHILD(tree, { unsigned i; struct mrt_op op; struct mrt_task *kids[TREE_FANS]; unsigned first, nr, k; int64_t sum; })
{
	struct tree kid = { 0 };

	MRT_BEGIN(self);
	if (f->nr == 0)
		f->nr = TREE_LEAVES;
	if (f->nr == 1)
		MRT_RETURN(self, f->first);
	for (f->k = 0; f->k < TREE_FANS; f->k++) {
		kid.nr = f->nr / TREE_FANS;
		kid.first = f->first + f->k * kid.nr;
		f->kids[f->k] = spawn(tree_poll, &kid, sizeof(kid), f->k % 2 ? MRT_SPAWN_SPREAD : 0);
	}
	for (f->k = 0; f->k < TREE_FANS; f->k++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->kids[f->k]));
		f->sum += f->op.res;
	}
	MRT_RETURN(self, f->sum);
}

static int64_t tree_result(unsigned i)
{
	(void)i;
	return TREE_LEAVES * (TREE_LEAVES - 1) / 2;
}

/* Its own blocks, written in order and read backwards, with waits between; every second task has the handle. */
ITEST_CHILD(file, { unsigned i; struct mrt_op op; int fd; unsigned k; int64_t bytes; char buf[BLOCK], expected[BLOCK]; })
{
	int64_t off;

	MRT_BEGIN(self);
	f->fd = f->i % 2 ? st.handle : st.fd;
	for (f->k = 0; f->k < BLOCKS_EACH; f->k++) {
		off = (int64_t)(f->i * BLOCKS_EACH + f->k) * BLOCK;
		fixture_pattern(f->buf, BLOCK, 1, (uint64_t)off);
		MRT_AWAIT(self, mrt_write_all(&f->op, f->fd, f->buf, BLOCK, off));
		ck_assert_int_eq(f->op.res, BLOCK);
		MRT_AWAIT(self, f->k % 2 ? mrt_yield(&f->op) : mrt_sleep(&f->op, MRT_US(20)));
	}
	while (f->k-- > 0) {
		off = (int64_t)(f->i * BLOCKS_EACH + f->k) * BLOCK;
		memset(f->buf, 0, BLOCK);
		MRT_AWAIT(self, mrt_read_exact(&f->op, f->fd, f->buf, BLOCK, off));
		ck_assert_int_eq(f->op.res, BLOCK);
		off = (int64_t)(f->i * BLOCKS_EACH + f->k) * BLOCK;
		fixture_pattern(f->expected, BLOCK, 1, (uint64_t)off);
		ck_assert_mem_eq(f->buf, f->expected, BLOCK);
		f->bytes += f->op.res;
	}
	MRT_RETURN(self, f->bytes);
}

static int64_t file_result(unsigned i)
{
	(void)i;
	return BLOCKS_EACH * BLOCK;
}

static int64_t message_bytes(unsigned i, unsigned m)
{
	return 1 + (i * 7919u + m * 104729u) % BYTES_MAX;
}

/* Both sides of a conversation on a pair: even tasks ask, odd ones answer until the other has gone. */
ITEST_CHILD(talk, { unsigned i; struct mrt_op op; int fd; unsigned m; int64_t bytes; char buf[BYTES_MAX], expected[BYTES_MAX]; })
{
	size_t nr;

	MRT_BEGIN(self);
	f->fd = st.pairs[f->i / 2][f->i % 2];
	if (f->i % 2) {
		for (;;) {
			MRT_AWAIT(self, mrt_recv(&f->op, f->fd, f->buf, sizeof(f->buf), 0));
			ck_assert_int_ge(f->op.res, 0);
			if (f->op.res == 0)
				break;
			f->bytes += f->op.res;
			MRT_AWAIT(self, mrt_send_all(&f->op, f->fd, f->buf, (size_t)f->op.res));
			ck_assert_int_gt(f->op.res, 0);
		}
		MRT_RETURN(self, f->bytes);
	}
	for (f->m = 0; f->m < MESSAGES; f->m++) {
		nr = (size_t)message_bytes(f->i, f->m);
		fixture_pattern(f->expected, nr, f->i, f->m);
		MRT_AWAIT(self, mrt_send_all(&f->op, f->fd, f->expected, nr));
		ck_assert_int_eq(f->op.res, message_bytes(f->i, f->m));
		MRT_AWAIT(self, mrt_recv_exact(&f->op, f->fd, f->buf, (size_t)f->op.res));
		ck_assert_int_eq(f->op.res, message_bytes(f->i, f->m));
		ck_assert_mem_eq(f->buf, f->expected, (size_t)f->op.res);
		f->bytes += f->op.res;
	}
	MRT_AWAIT(self, mrt_shutdown(&f->op, f->fd, SHUT_WR));
	ck_assert_int_eq(f->op.res, 0);
	MRT_RETURN(self, f->bytes);
}

static int64_t talk_result(unsigned i)
{
	int64_t bytes = 0;
	unsigned m;

	for (m = 0; m < MESSAGES; m++)
		bytes += message_bytes(i & ~1u, m);
	return bytes;
}

ITEST_CHILD(sleeper, { unsigned i; struct mrt_op op; uint64_t due; int k; })
{
	MRT_BEGIN(self);
	for (f->k = 0; f->k < 20; f->k++) {
		f->due = mrt_now() + (f->i * 977u + (unsigned)f->k * 331u) % 2000 * 1000;
		MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due));
		ck_assert_int_eq(f->op.res, 0);
		ck_assert_uint_ge(mrt_now(), f->due);
	}
	MRT_RETURN(self, f->k);
}

static int64_t sleeper_result(unsigned i)
{
	(void)i;
	return 20;
}

ITEST_CHILD(late, { unsigned i; struct mrt_op op; struct mrt_timer timer; char buf[8]; })
{
	MRT_BEGIN(self);
	if (f->i % 2)
		mrt_recv(&f->op, st.quiet[0], f->buf, sizeof(f->buf), 0);
	else
		mrt_notify_wait(&f->op, &st.notify);
	MRT_AWAIT(self, mrt_deadline(&f->op, &f->timer, MRT_US(500)));
	MRT_RETURN(self, f->op.res);
}

static int64_t late_result(unsigned i)
{
	(void)i;
	return -ETIMEDOUT;
}

static int64_t square(void *arg)
{
	int64_t x = (intptr_t)arg;

	return x * x;
}

ITEST_CHILD(caller, { unsigned i; struct mrt_op op; int k; int64_t sum; })
{
	MRT_BEGIN(self);
	for (f->k = 0; f->k < 10; f->k++) {
		MRT_AWAIT(self, mrt_blocking(&f->op, square, (void *)(intptr_t)(f->i + (unsigned)f->k)));
		f->sum += f->op.res;
	}
	MRT_RETURN(self, f->sum);
}

static int64_t caller_result(unsigned i)
{
	int64_t sum = 0;
	unsigned k;

	for (k = 0; k < 10; k++)
		sum += (int64_t)(i + k) * (i + k);
	return sum;
}

/* Three ops that would never end, one of each kind, cancelled at once or by a later poll, perhaps elsewhere. */
ITEST_CHILD(quitter, { unsigned i; struct mrt_op sleep, recv, wait, op; struct mrt_op *ops[3]; char buf[8]; })
{
	MRT_BEGIN(self);
	f->ops[0] = mrt_sleep(&f->sleep, HOUR);
	f->ops[1] = mrt_recv(&f->recv, st.quiet[0], f->buf, sizeof(f->buf), 0);
	f->ops[2] = mrt_notify_wait(&f->wait, &st.notify);
	if (f->i % 2)
		MRT_AWAIT(self, mrt_yield(&f->op));
	else
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(100)));
	mrt_cancel(&f->sleep);
	mrt_cancel(&f->recv);
	mrt_cancel(&f->wait);
	MRT_AWAIT_ALL(self, f->ops, 3);
	ck_assert_int_eq(f->sleep.res, -ECANCELED);
	ck_assert_int_eq(f->recv.res, -ECANCELED);
	ck_assert_int_eq(f->wait.res, -ECANCELED);
	MRT_RETURN(self, 3);
}

static int64_t quitter_result(unsigned i)
{
	(void)i;
	return 3;
}

ITEST_CHILD(waiting, { unsigned i; struct mrt_op op; char buf[8]; })
{
	MRT_BEGIN(self);
	if (f->i % 2)
		MRT_AWAIT(self, mrt_recv(&f->op, st.quiet[0], f->buf, sizeof(f->buf), 0));
	else
		MRT_AWAIT(self, mrt_sleep(&f->op, HOUR));
	MRT_RETURN(self, f->op.res);
}

/* The child's result, which it has from its abort. */
ITEST_CHILD(killer, { unsigned i; struct mrt_op op; struct mrt_task *child; })
{
	struct waiting child = { .i = f->i };

	MRT_BEGIN(self);
	f->child = spawn(waiting_poll, &child, sizeof(child), f->i % 4 < 2 ? MRT_SPAWN_SPREAD : 0);
	MRT_AWAIT(self, mrt_sleep(&f->op, f->i % 8 < 4 ? 0 : MRT_US(200)));
	mrt_abort(f->child);
	MRT_AWAIT(self, mrt_join(&f->op, f->child));
	MRT_RETURN(self, f->op.res);
}

static int64_t killer_result(unsigned i)
{
	(void)i;
	return -ECANCELED;
}

/* Even tasks send what nobody else sends, odd ones take as many. */
ITEST_CHILD(trader, { unsigned i; struct mrt_op op; uint64_t msg; int k; })
{
	MRT_BEGIN(self);
	for (f->k = 0; f->k < SENT_EACH; f->k++) {
		if (f->i % 2) {
			MRT_AWAIT(self, mrt_channel_recv(&f->op, st.channel, &f->msg));
			atomic_fetch_add(&st.received, f->msg);
		} else {
			f->msg = (uint64_t)f->i / 2 * SENT_EACH + (unsigned)f->k;
			MRT_AWAIT(self, mrt_channel_send(&f->op, st.channel, &f->msg));
		}
		ck_assert_int_ge(f->op.res, 0);
	}
	MRT_RETURN(self, f->k);
}

static int64_t trader_result(unsigned i)
{
	(void)i;
	return SENT_EACH;
}

ITEST_CHILD(kid, { unsigned i; })
{
	(void)f;
	MRT_BEGIN(self);
	atomic_fetch_add(&st.kids_ran, 1);
	MRT_RETURN(self, 0);
}

/* What is in its queue and its next slot has to be stolen. */
ITEST_CHILD(hog, { unsigned i; })
{
	MRT_BEGIN(self);
	if (st.workers_nr > 1) {
		for (f->i = 0; f->i < KIDS_NR; f->i++)
			mrt_detach(spawn(kid_poll, f, sizeof(*f), 0));
		ITEST_WAIT(atomic_load(&st.kids_ran) == KIDS_NR, 1000 * ITEST_LIMIT_S);
	}
	MRT_RETURN(self, atomic_load(&st.kids_ran));
}

static int64_t hog_result(unsigned i)
{
	(void)i;
	return st.workers_nr > 1 ? KIDS_NR : 0;
}

static const struct job {
	const char *name;
	mrt_poll_fn fn;
	size_t frame_bytes;     /* the frame begins with the number of the task */
	unsigned nr;
	int64_t (*result)(unsigned i);
} jobs[] = {
#define JOB(name, nr) { #name, name##_poll, sizeof(struct name), nr, name##_result }
	JOB(tree, 4), JOB(file, FILES_NR), JOB(talk, 2 * PAIRS_NR), JOB(sleeper, 30), JOB(late, 10), JOB(caller, 10),
	JOB(quitter, 20), JOB(killer, 20), JOB(trader, 2 * SENDERS_NR), JOB(hog, 1),
#undef JOB
};
#define JOBS_NR (sizeof(jobs) / sizeof(jobs[0]))
#define JOB_TASKS_MAX (2 * PAIRS_NR)
#define FRAME_MAX (sizeof(struct file) > sizeof(struct talk) ? sizeof(struct file) : sizeof(struct talk))

/* ---- what waits until the shutdown ---- */

ITEST_CHILD(hanging, { unsigned i; struct mrt_op op; char buf[8]; })
{
	MRT_BEGIN(self);
	atomic_fetch_add(&st.hanging, 1);
	switch (f->i % 3) {
	case 0:
		MRT_AWAIT(self, mrt_recv(&f->op, st.quiet[0], f->buf, sizeof(f->buf), 0));
		break;
	case 1:
		MRT_AWAIT(self, mrt_sleep(&f->op, HOUR));
		break;
	default:
		MRT_AWAIT(self, mrt_notify_wait(&f->op, &st.notify));
	}
	ck_assert_int_eq(f->op.res, -ECANCELED);
	atomic_fetch_add(&st.ended_hanging, 1);
	MRT_RETURN(self, 0);
}

/* ---- all of it ---- */

ITEST_CHILD(root, { struct mrt_op op; struct mrt_task *tasks[JOBS_NR][JOB_TASKS_MAX]; unsigned j, i; })
{
	char frame[FRAME_MAX];

	MRT_BEGIN(self);
	for (f->i = 0; f->i < JOB_TASKS_MAX; f->i++) {
		for (f->j = 0; f->j < JOBS_NR; f->j++) {
			if (f->i >= jobs[f->j].nr)
				continue;
			memset(frame, 0, sizeof(frame));
			memcpy(frame, &f->i, sizeof(f->i));
			f->tasks[f->j][f->i] = spawn(jobs[f->j].fn, frame, jobs[f->j].frame_bytes,
						     (f->i + f->j) % 2 ? MRT_SPAWN_SPREAD : 0);
		}
	}
	for (f->i = 0; f->i < HANGING_NR; f->i++) {
		struct hanging h = { .i = f->i };

		mrt_detach(spawn(hanging_poll, &h, sizeof(h), MRT_SPAWN_SPREAD));
	}
	for (f->j = 0; f->j < JOBS_NR; f->j++) {
		for (f->i = 0; f->i < jobs[f->j].nr; f->i++) {
			MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->j][f->i]));
			ck_assert_int_eq(f->op.why, 0);
			if (f->op.res != jobs[f->j].result(f->i))
				ck_abort_msg("%s %u of %u workers: %lld instead of %lld", jobs[f->j].name, f->i, st.workers_nr,
					     (long long)f->op.res, (long long)jobs[f->j].result(f->i));
		}
	}
	MRT_RETURN(self, 1);
}

ITEST_CHILD(numbered, { int64_t number; struct mrt_op op; })
{
	MRT_BEGIN(self);
	if (f->number % 3 == 0)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, f->number);
}

static void *spawn_and_join(void *arg)
{
	struct mrt_task *tasks[50];
	int64_t base = (intptr_t)arg, i, k;

	for (i = 0; i < SPAWNS_EACH; i += 50) {
		for (k = 0; k < 50; k++) {
			struct numbered f = { .number = base + i + k };

			tasks[k] = itest_spawn(st.rt, numbered_poll, &f, sizeof(f));
		}
		for (k = 0; k < 50; k++)
			ck_assert_int_eq(itest_join(tasks[k]), base + i + k);
	}
	return NULL;
}

static void open_all(void)
{
	char dir[FIXTURE_PATH];
	int i;

	ck_assert_int_eq(fixture_dir(dir), 0);
	st.fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_ge(st.fd, 0);
	st.handle = mrt_file_register(st.rt, dup(st.fd), 0);
	ck_assert_int_ge(st.handle, 0);
	for (i = 0; i < PAIRS_NR; i++)
		itest_socketpair(st.pairs[i]);
	itest_socketpair(st.quiet);
	ck_assert_int_eq(mrt_channel_create(16, sizeof(uint64_t), &st.channel), 0);
	mrt_notify_init(&st.notify);
}

static void close_all(void)
{
	int i;

	close(st.fd);
	for (i = 0; i < PAIRS_NR; i++) {
		close(st.pairs[i][0]);
		close(st.pairs[i][1]);
	}
	close(st.quiet[0]);
	close(st.quiet[1]);
	mrt_channel_destroy(st.channel);
}

static void check_after(void)
{
	uint64_t sent = (uint64_t)SENDERS_NR * SENT_EACH, outside = THREADS_NR * (uint64_t)SPAWNS_EACH + 1;
	struct mrt_worker_stats sum = itest_stats(st.rt);
	struct mrt_global_stats global = itest_global(st.rt);

	ck_assert_uint_eq(st.received, sent * (sent - 1) / 2);
	ck_assert_int_eq(st.ended_hanging, HANGING_NR);
	ck_assert_uint_eq(sum.spawns, st.spawned);
	ck_assert_uint_eq(global.spawns_outside, outside);
	ck_assert_uint_eq(sum.ends, st.spawned + outside);
	ck_assert_int_eq(global.tasks_alive, 0);
	ck_assert_uint_eq(global.inject_depth, 0);
	ck_assert_uint_eq(sum.inflight, 0);
	ck_assert_uint_eq(sum.queued, 0);
	ck_assert_uint_eq(sum.timers, 0);
	if (st.workers_nr == 1)
		ck_assert_uint_eq(sum.steal_tries + sum.steals + sum.sentry_wakes, 0);
	else
		ck_assert(sum.steals > 0 && sum.steals + OVERFLOW_NR * sum.overflows >= KIDS_NR);
	printf("%2u workers: %llu tasks, %llu stolen by %llu thefts of %llu searches, %llu from inject, %llu parks\n", st.workers_nr,
	       (unsigned long long)sum.ends, (unsigned long long)sum.steals, (unsigned long long)sum.steal_ops,
	       (unsigned long long)sum.steal_tries, (unsigned long long)sum.injects, (unsigned long long)sum.parks);
}

START_TEST(every_result_is_exact)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	unsigned fds_nr = itest_fds_nr();
	pthread_t threads[THREADS_NR];
	struct root f;
	int i;

	memset(&st, 0, sizeof(st));
	memset(&f, 0, sizeof(f));
	st.workers_nr = worker_counts[_i / 2];
	if (st.workers_nr > workers_allowed)
		return; /* main() has said why */
	opts.workers_nr = st.workers_nr;
	opts.flags = _i % 2 ? MRT_RUNTIME_FLOAT : 0;
	st.rt = itest_create(&opts);
	ck_assert_uint_eq(mrt_runtime_workers_nr(st.rt), st.workers_nr);
	open_all();
	for (i = 0; i < THREADS_NR; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, spawn_and_join, (void *)(intptr_t)(i * 1000000)), 0);
	ck_assert_int_eq(itest_run(st.rt, root_poll, &f, sizeof(f)), 1);
	for (i = 0; i < THREADS_NR; i++)
		pthread_join(threads[i], NULL);
	ITEST_WAIT(atomic_load(&st.hanging) == HANGING_NR, 1000 * ITEST_LIMIT_S);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(st.rt, MRT_SEC(ITEST_LIMIT_S)), 0);
	check_after();
	mrt_runtime_destroy(st.rt);
	close_all();
	ck_assert_uint_eq(itest_fds_nr(), fds_nr);
}
END_TEST

static void *wait_for_end(void *arg)
{
	(void)arg;
	for (;;)
		(void)pause();
	return NULL;
}

/*
 * In a child, which is left as it is: so many workers, or the code and a sentence. And as many threads again, and some: where
 * io-wq can have none an op fails with -EAGAIN, the pool of blocking calls likewise.
 */
static int try_workers(void *ctx)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	unsigned nr = *(unsigned *)ctx, i;
	struct mrt_runtime *rt;
	pthread_t thread;
	char *log;
	int err;

	opts.workers_nr = nr;
	err = mrt_runtime_create(&opts, &rt);
	if (err) {
		log = itest_log_text();
		fputs(log, stderr);
		free(log);
		return -err;
	}
	for (i = 0; i < nr + THREADS_SPARE; i++) {
		err = pthread_create(&thread, NULL, wait_for_end, NULL);
		if (err) {
			fprintf(stderr, "no threads beside the workers (RLIMIT_NPROC)\n");
			return err;
		}
	}
	return 0;
}

/* Limits on locked memory, threads and descriptors are this user's: what they forbid is left out. @return a count is left */
static bool find_workers_allowed(void)
{
	int i, code;

	for (i = COUNTS_NR - 1; i >= 0; i--) {
		unsigned nr = worker_counts[i];
		struct itest_exit e = itest_child(try_workers, &nr, ITEST_LIMIT_S);

		code = WIFEXITED(e.status) ? WEXITSTATUS(e.status) : 0;
		workers_allowed = nr;
		if (code != ENOMEM && code != EAGAIN && code != EMFILE)
			return true;
		printf("skipped: %u workers: %s", nr, e.err);
	}
	return false;
}

int main(void)
{
	Suite *suite = suite_create("workers");
	TCase *tc = tcase_create("workers");

	itest_need_io_uring();
	if (!find_workers_allowed())
		return ITEST_SKIP;
	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_loop_test(tc, every_result_is_exact, 0, 2 * COUNTS_NR);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
