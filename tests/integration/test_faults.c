/* SPDX-License-Identifier: MIT */
/*
 * What the kernel throws at a ring: full queues, overflow, signals, errors of devices, exhausted descriptors. Nothing is
 * lost, nothing is spun on, and what failed says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

static char dir[FIXTURE_PATH];

static int small_file(void)
{
	static char block[65536];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	fixture_pattern(block, sizeof(block), 9, 0);
	ck_assert_int_eq(write(fd, block, sizeof(block)), sizeof(block));
	return fd;
}

static struct mrt_runtime *small_runtime(int kind, unsigned sq, unsigned cq)
{
	struct mrt_runtime_opts opts = itest_opts(kind);

	opts.sq_entries = sq;
	opts.cq_entries = cq;
	return itest_create(&opts);
}

/* ---- a submission queue of eight ---- */

#define OPS_NR 1000

ITEST_CHILD(thousand, {
	struct mrt_op op[OPS_NR]; struct mrt_op *ops[OPS_NR]; unsigned char byte[OPS_NR]; int fd; int fds[2];
	int mix;
})
{
	unsigned char want;
	int i;

	MRT_BEGIN(self);
	for (i = 0; i < OPS_NR; i++) {
		switch (f->mix ? i % 4 : 0) {
		case 0:
			f->ops[i] = mrt_read(&f->op[i], f->fd, &f->byte[i], 1, i);
			break;
		case 1:
			f->ops[i] = mrt_nop(&f->op[i]);
			break;
		case 2:
			f->ops[i] = mrt_recv(&f->op[i], f->fds[0], &f->byte[i], 1, 0);
			break;
		default:
			f->ops[i] = mrt_send(&f->op[i], f->fds[1], "s", 1, 0);
		}
	}
	MRT_AWAIT_ALL(self, f->ops, OPS_NR);
	for (i = 0; i < OPS_NR; i++) {
		int kind = f->mix ? i % 4 : 0;

		ck_assert_msg(f->op[i].res == (kind != 1), "op %d: %lld", i, (long long)f->op[i].res);
		fixture_pattern(&want, 1, 9, (uint64_t)i);
		if (kind == 0 && f->byte[i] != want)
			ck_abort_msg("byte %d is wrong", i);
	}
	MRT_RETURN(self, 0);
}

START_TEST(a_thousand_ops_through_a_queue_of_eight)
{
	struct mrt_runtime *rt = small_runtime(_i, 8, 0);
	static struct thousand f;
	struct mrt_worker_stats stats;
	int round;

	f.fd = small_file();
	itest_socketpair(f.fds);
	for (round = 0; round < 10; round++) {
		memset(f.op, 0, sizeof(f.op));
		f.mix = round % 2;
		ck_assert_int_eq(itest_run(rt, thousand_poll, &f, sizeof(f)), 0);
	}
	stats = itest_stats(rt);
	ck_assert_uint_gt(stats.sq_fulls + stats.credit_waits, 0);
	ITEST_WAIT(itest_stats(rt).queued == 0, 20000);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- idle receives beyond the completion queue ---- */

#define IDLE_CQ 64
#define IDLE_NR (2 * IDLE_CQ)

ITEST_CHILD(idle_recvs, {
	struct mrt_op recv[IDLE_NR]; struct mrt_op *ops[IDLE_NR]; struct mrt_op op; struct mrt_op send;
	int fds[IDLE_NR][2]; char buf[IDLE_NR]; int file; char block[512]; int i; struct mrt_op reads[100];
	struct mrt_op *read_ops[100];
})
{
	int i;

	MRT_BEGIN(self);
	for (i = 0; i < IDLE_NR; i++) {
		itest_socketpair(f->fds[i]);
		f->ops[i] = mrt_recv(&f->recv[i], f->fds[i][0], &f->buf[i], 1, 0);
	}
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(1)));
	/* all wait; a file is read all the same */
	MRT_AWAIT(self, mrt_read(&f->op, f->file, f->block, sizeof(f->block), 0));
	ck_assert_int_eq(f->op.res, sizeof(f->block));
	for (i = 0; i < 100; i++)
		f->read_ops[i] = mrt_read(&f->reads[i], f->file, f->block, sizeof(f->block), 512 * i);
	MRT_AWAIT_ALL(self, f->read_ops, 100);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(f->reads[i].res, sizeof(f->block));
	for (i = 0; i < IDLE_NR; i++)
		ck_assert(!mrt_op_is_done(&f->recv[i]));
	/* then all complete at once: more than the queue holds. Nobody reaps meanwhile. */
	for (i = 0; i < IDLE_NR; i++)
		ck_assert_int_eq(write(f->fds[i][1], "z", 1), 1);
	MRT_AWAIT_ALL(self, f->ops, IDLE_NR);
	for (i = 0; i < IDLE_NR; i++) {
		ck_assert_int_eq(f->recv[i].res, 1);
		ck_assert_int_eq(f->buf[i], 'z');
		close(f->fds[i][0]);
		close(f->fds[i][1]);
	}
	MRT_RETURN(self, 0);
}

START_TEST(idle_receives_of_twice_the_queue_do_not_stop_a_read)
{
	struct mrt_runtime *rt = small_runtime(_i, 32, IDLE_CQ);
	static struct idle_recvs f;

	f.file = small_file();
	ck_assert_int_eq(itest_run(rt, idle_recvs_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* Thousands of them, on the smallest queue that there is; and they come back in order of arrival, none lost. */
#define FLOOD_NR 4000

struct flood {
	struct mrt_op op[FLOOD_NR];
	struct mrt_op *ops[FLOOD_NR];
	struct mrt_op more;
	uint64_t value[FLOOD_NR];
	int efd, round;
};

static enum mrt_poll flood_poll(struct mrt_task *self, void *frame)
{
	struct flood *f = frame;
	int i;

	MRT_BEGIN(self);
	for (f->round = 0; f->round < 4; f->round++) {
		for (i = 0; i < FLOOD_NR; i++)
			f->ops[i] = mrt_poll_fd(&f->op[i], f->efd, POLLIN);
		MRT_AWAIT(self, mrt_sleep(&f->more, MRT_MS(2)));
		ck_assert_int_eq(eventfd_write(f->efd, 1), 0); /* one write, and each of them is done */
		MRT_AWAIT_ALL(self, f->ops, FLOOD_NR);
		for (i = 0; i < FLOOD_NR; i++)
			ck_assert_msg(f->op[i].res == POLLIN, "op %d: %lld", i, (long long)f->op[i].res);
		MRT_AWAIT(self, mrt_read(&f->more, f->efd, &f->value[0], 8, MRT_OFF_CURRENT));
		ck_assert_int_eq(f->more.res, 8);
	}
	MRT_RETURN(self, 0);
}

START_TEST(thousands_of_completions_at_once_overflow_and_all_arrive)
{
	struct mrt_runtime *rt = small_runtime(_i, 8, 8);
	static struct flood f;
	struct mrt_worker_stats stats;

	f.efd = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_eq(itest_run(rt, flood_poll, &f, sizeof(f)), 0);
	stats = itest_stats(rt);
	printf("%d polls done by one write, CQ of 8, kind %d: %llu overflows seen\n", FLOOD_NR, _i,
	       (unsigned long long)stats.cq_overflows);
	/* a worker tells at its turn's end; who was woken in the turn may be through before */
	ITEST_WAIT(itest_stats(rt).inflight == 0, 20000);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- signals ---- */

static atomic_int handled;

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
}

ITEST_CHILD(stormed, {
	struct mrt_op op; struct mrt_op recv; struct mrt_op send; struct mrt_op *ops[3]; struct mrt_timer timer;
	int fds[2]; int file; int i; char buf[4096]; uint64_t start; atomic_bool *stop; atomic_int *rounds;
})
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	for (f->i = 0; !atomic_load(f->stop); f->i++) {
		f->ops[0] = mrt_read(&f->op, f->file, f->buf, sizeof(f->buf), 4096 * (f->i % 16));
		f->ops[1] = mrt_recv(&f->recv, f->fds[0], f->buf, 1, 0);
		f->ops[2] = mrt_send(&f->send, f->fds[1], "x", 1, 0);
		MRT_AWAIT_ALL(self, f->ops, 3);
		ck_assert_int_eq(f->op.res, sizeof(f->buf));
		ck_assert_int_eq(f->recv.res, 1);
		ck_assert_int_eq(f->send.res, 1);
		f->start = mrt_now();
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(300)));
		ck_assert_int_eq(f->op.res, 0);
		ck_assert_uint_ge(mrt_now() - f->start, MRT_US(300));
		MRT_AWAIT(self, mrt_deadline(mrt_recv(&f->recv, f->fds[0], f->buf, 1, 0), &f->timer, MRT_US(100)));
		ck_assert_int_eq(f->recv.res, -ETIMEDOUT);
		atomic_fetch_add(f->rounds, 1);
	}
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* Workers have signals blocked; one that is unblocked there (a poll function may do that) must harm nothing. */
ITEST_CHILD(unblock, { struct mrt_op op; atomic_int *nr; int want; })
{
	sigset_t set;

	MRT_BEGIN(self);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	ck_assert_int_eq(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
	atomic_fetch_add(f->nr, 1);
	while (atomic_load(f->nr) < f->want) /* stay here: each worker gets one */
		continue;
	MRT_RETURN(self, 0);
}

#define STORMED_NR 8

START_TEST(a_storm_of_signals_changes_nothing)
{
	struct mrt_runtime *rt = small_runtime(_i, 16, 0);
	struct sigaction action = { .sa_handler = on_signal };
	atomic_bool stop = false;
	atomic_int nr = 0, rounds = 0;
	struct stormed f = { .stop = &stop, .rounds = &rounds };
	struct unblock u = { .nr = &nr, .want = 2 };
	struct mrt_task *tasks[STORMED_NR];
	struct mrt_worker_stats one;
	uint64_t until;
	int i;

	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	f.file = small_file();
	for (i = 0; i < 2; i++)
		tasks[i] = itest_spawn(rt, unblock_poll, &u, sizeof(u));
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
	for (i = 0; i < STORMED_NR; i++)
		tasks[i] = itest_spawn(rt, stormed_poll, &f, sizeof(f));
	/* slow machines deliver few signals in that time, and do few rounds */
	for (until = mrt_now() + MRT_MS(800);
	     mrt_now() < until || atomic_load(&handled) <= 100 || atomic_load(&rounds) < 4 * STORMED_NR;) {
		for (i = 0; i < 2; i++) {
			ck_assert_int_eq(mrt_stats_get(rt, (unsigned)i, &one), 0);
			ck_assert_int_eq(syscall(SYS_tgkill, getpid(), one.tid, SIGUSR1), 0);
		}
		itest_spin(20000);
	}
	atomic_store(&stop, true);
	for (i = 0; i < STORMED_NR; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- descriptors run out ---- */

ITEST_CHILD(fd_eater, { struct mrt_op op; int fds[200]; int nr; int got; int i; })
{
	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_open(&f->op, MRT_AT_FDCWD, "/dev/null", O_RDONLY, 0));
		if (f->op.res < 0 || f->nr == 200)
			break;
		f->fds[f->nr++] = (int)f->op.res;
	}
	ck_assert_int_eq(f->op.res, -EMFILE);
	MRT_AWAIT(self, mrt_socket(&f->op, AF_INET, SOCK_STREAM, 0));
	ck_assert_int_eq(f->op.res, -EMFILE);
	f->got = f->nr;
	while (f->nr > 0)
		MRT_AWAIT(self, mrt_close(&f->op, f->fds[--f->nr]));
	MRT_AWAIT(self, mrt_open(&f->op, MRT_AT_FDCWD, "/dev/null", O_RDONLY, 0));
	ck_assert_int_ge(f->op.res, 0);
	MRT_AWAIT(self, mrt_close(&f->op, (int)f->op.res));
	MRT_RETURN(self, f->got);
}

START_TEST(out_of_descriptors_is_an_error_and_passes)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct rlimit limit;
	static struct fd_eater f;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = itest_fds_nr() + 50;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_gt(itest_run(rt, fd_eater_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- devices ---- */

static struct fixture_loop eio_loop, ro_loop;
static char loop_dir[FIXTURE_PATH];

#define LOOP_BYTES (4 << 20)

/* The file behind a loop device is cut short: what lies beyond cannot be read. */
ITEST_TASK(a_device_error_is_the_result, {
	struct mrt_op op; struct mrt_op many[16]; struct mrt_op *ops[16]; char *buf;
})
{
	int i;

	MRT_BEGIN(self);
	f->buf = aligned_alloc(4096, 16 * 4096);
	MRT_AWAIT(self, mrt_read(&f->op, eio_loop.fd, f->buf, 4096, 0));
	ck_assert_int_eq(f->op.res, 4096);
	MRT_AWAIT(self, mrt_read(&f->op, eio_loop.fd, f->buf, 4096, LOOP_BYTES / 2));
	ck_assert_int_eq(f->op.res, -EIO);
	for (i = 0; i < 16; i++)
		f->ops[i] = mrt_read(&f->many[i], eio_loop.fd, f->buf + 4096 * i, 4096, (i % 2 ? LOOP_BYTES / 2 : 0) + 4096 * i);
	MRT_AWAIT_ALL(self, f->ops, 16);
	for (i = 0; i < 16; i++)
		ck_assert_int_eq(f->many[i].res, i % 2 ? -EIO : 4096);
	/* what was read before the error is counted */
	MRT_AWAIT(self, mrt_read_exact(&f->op, eio_loop.fd, f->buf, 16384, LOOP_BYTES / 4 - 8192));
	ck_assert(f->op.res == -EIO || (f->op.res > 0 && f->op.res <= 8192 && f->op.why == -EIO));
	free(f->buf);
	MRT_RETURN(self, 0);
}

ITEST_TASK(the_end_of_a_device_and_a_device_that_is_read_only, { struct mrt_op op; char *buf; })
{
	MRT_BEGIN(self);
	f->buf = aligned_alloc(4096, 16384);
	MRT_AWAIT(self, mrt_read(&f->op, ro_loop.fd, f->buf, 8192, LOOP_BYTES - 4096));
	ck_assert_int_eq(f->op.res, 4096);
	MRT_AWAIT(self, mrt_read_exact(&f->op, ro_loop.fd, f->buf, 16384, LOOP_BYTES - 8192));
	ck_assert_int_eq(f->op.res, 8192);
	ck_assert_int_eq(f->op.why, 0);
	MRT_AWAIT(self, mrt_read(&f->op, ro_loop.fd, f->buf, 4096, LOOP_BYTES));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_write(&f->op, ro_loop.fd, f->buf, 4096, 0));
	ck_assert(f->op.res == -EPERM || f->op.res == -EBADF);
	free(f->buf);
	MRT_RETURN(self, 0);
}

/* Older kernels (6.1) give zeros for what the file behind a loop device no longer has: no error to look at. */
static bool reads_beyond_fail(void)
{
	char *buf = aligned_alloc(4096, 4096);
	bool failed = buf && pread(eio_loop.fd, buf, 4096, LOOP_BYTES / 2) < 0;

	free(buf);
	return failed;
}

static void add_device_tests(TCase *tc)
{
	int err = fixture_tmpfs(64 << 20, loop_dir);

	if (!err)
		err = fixture_loop(loop_dir, LOOP_BYTES, false, &eio_loop);
	if (!err)
		err = fixture_loop(loop_dir, LOOP_BYTES, true, &ro_loop);
	if (!err && ftruncate(eio_loop.image_fd, LOOP_BYTES / 4))
		err = -errno;
	if (!err && (fcntl(eio_loop.fd, F_SETFL, O_DIRECT) || fcntl(ro_loop.fd, F_SETFL, O_DIRECT)))
		err = -errno;
	if (err) {
		printf("skipped: loop devices: %s\n", strerror(-err));
		return;
	}
	if (reads_beyond_fail())
		tcase_add_loop_test(tc, a_device_error_is_the_result, 0, ITEST_KINDS_NR);
	else
		printf("skipped: a_device_error_is_the_result: this kernel's loop devices read zeros beyond their file\n");
	tcase_add_loop_test(tc, the_end_of_a_device_and_a_device_that_is_read_only, 0, ITEST_FLAVOURS_NR);
}

int main(void)
{
	Suite *suite = suite_create("faults");
	TCase *tc = tcase_create("faults");

	itest_need_io_uring();
	if (fixture_dir(dir)) {
		printf("skipped: no folder for temporary files\n");
		return ITEST_SKIP;
	}
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, a_thousand_ops_through_a_queue_of_eight, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, idle_receives_of_twice_the_queue_do_not_stop_a_read, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, thousands_of_completions_at_once_overflow_and_all_arrive, 0, ITEST_KINDS_NR);
	tcase_add_test(tc, a_storm_of_signals_changes_nothing);
	tcase_add_loop_test(tc, a_storm_of_signals_changes_nothing, ITEST_COOP, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, out_of_descriptors_is_an_error_and_passes, 0, ITEST_FLAVOURS_NR);
	add_device_tests(tc);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
