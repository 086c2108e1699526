/* SPDX-License-Identifier: MIT */
/*
 * mrt_cancel(): an op ends exactly once, a result that was there wins, and a cancel that comes from another worker than
 * the one whose ring has the op is as good as any other.
 *
 * Migration is forced, not hoped for: a task starts ops, and its worker is held until another has taken it (ITEST_MOVE).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "itest.h"

/* ---- one op of each kind that waits ---- */

enum waits {
	WAITS_RECV,
	WAITS_RECV_EXACT,
	WAITS_READ_PIPE,
	WAITS_POLL,
	WAITS_ACCEPT,
	WAITS_SLEEP,
	WAITS_ONESHOT,
	WAITS_NOTIFY,
	WAITS_SEMAPHORE,
	WAITS_CHANNEL,
	WAITS_SPLICE,
	WAITS_NR
};

struct waits_all {
	struct mrt_op op[WAITS_NR];
	struct mrt_op *ops[WAITS_NR];
	struct mrt_op pause;
	int sock[2], pipe[2], pipe2[2], listener;
	char buf[WAITS_NR][16];
	struct mrt_oneshot oneshot;
	struct mrt_notify notify;
	struct mrt_semaphore sem;
	struct mrt_channel *ch;
	int msg, how, round;
};

static void waits_open(struct waits_all *f)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->sock), 0);
	ck_assert_int_eq(pipe(f->pipe), 0);
	ck_assert_int_eq(pipe(f->pipe2), 0);
	f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(f->listener, 0);
	ck_assert_int_eq(listen(f->listener, 5), 0);
	mrt_oneshot_init(&f->oneshot);
	mrt_notify_init(&f->notify);
	ck_assert_int_eq(mrt_semaphore_init(&f->sem, 1), 0);
	ck_assert_int_eq(mrt_channel_create(1, sizeof(int), &f->ch), 0);
}

static void waits_close(struct waits_all *f)
{
	int fds[] = { f->sock[0], f->sock[1], f->pipe[0], f->pipe[1], f->pipe2[0], f->pipe2[1], f->listener };
	size_t i;

	for (i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		ck_assert_int_eq(close(fds[i]), 0);
	mrt_channel_destroy(f->ch);
}

static void waits_start(struct waits_all *f)
{
	int i;

	mrt_recv(&f->op[WAITS_RECV], f->sock[0], f->buf[0], 16, 0);
	mrt_recv_exact(&f->op[WAITS_RECV_EXACT], f->sock[1], f->buf[1], 16);
	mrt_read(&f->op[WAITS_READ_PIPE], f->pipe[0], f->buf[2], 16, MRT_OFF_CURRENT);
	mrt_poll_fd(&f->op[WAITS_POLL], f->sock[0], POLLIN);
	mrt_accept(&f->op[WAITS_ACCEPT], f->listener, NULL, NULL, 0);
	mrt_sleep(&f->op[WAITS_SLEEP], UINT64_MAX);
	mrt_oneshot_recv(&f->op[WAITS_ONESHOT], &f->oneshot);
	mrt_notify_wait(&f->op[WAITS_NOTIFY], &f->notify);
	mrt_semaphore_acquire(&f->op[WAITS_SEMAPHORE], &f->sem, 2);
	mrt_channel_recv(&f->op[WAITS_CHANNEL], f->ch, &f->msg);
	mrt_splice(&f->op[WAITS_SPLICE], f->pipe2[0], MRT_OFF_CURRENT, f->pipe[1], MRT_OFF_CURRENT, 16, 0);
	for (i = 0; i < WAITS_NR; i++) {
		f->ops[i] = &f->op[i];
		ck_assert_msg(!mrt_op_is_done(&f->op[i]), "op %d is done at once: %lld", i, (long long)f->op[i].res);
	}
}

/* Cancelled at once, after a flush, after a yield, after a while: always -ECANCELED, once. */
static enum mrt_poll waits_all_poll(struct mrt_task *self, void *frame)
{
	struct waits_all *f = frame;
	int i;

	MRT_BEGIN(self);
	waits_open(f);
	for (f->round = 0; f->round < 40; f->round++) {
		waits_start(f);
		switch (f->round % 4) {
		case 0:
			break;
		case 1:
			mrt_flush();
			break;
		case 2:
			MRT_AWAIT(self, mrt_yield(&f->pause));
			break;
		default:
			MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(1)));
		}
		for (i = 0; i < WAITS_NR; i++) {
			mrt_cancel(&f->op[i]);
			mrt_cancel(&f->op[i]); /* twice is once */
			ck_assert(!mrt_op_is_done(&f->op[i]) || f->op[i].res == -ECANCELED);
		}
		MRT_AWAIT_ALL(self, f->ops, WAITS_NR);
		for (i = 0; i < WAITS_NR; i++) {
			ck_assert_msg(f->op[i].res == -ECANCELED, "op %d: %lld", i, (long long)f->op[i].res);
			ck_assert_int_eq(f->op[i].why, 0);
			mrt_cancel(&f->op[i]); /* not in flight: nothing */
		}
	}
	waits_close(f);
	MRT_RETURN(self, 0);
}

START_TEST(every_wait_ends_with_ecanceled)
{
	itest_task(_i, waits_all_poll, sizeof(struct waits_all));
}
END_TEST

ITEST_TASK(cancelling_what_is_not_in_flight_does_nothing, { struct mrt_op op; struct mrt_op never; })
{
	MRT_BEGIN(self);
	mrt_cancel(&f->never);
	ck_assert(!mrt_op_is_done(&f->never));
	MRT_AWAIT(self, mrt_nop(&f->op));
	mrt_cancel(&f->op);
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_nop(&f->op));
	ck_assert_int_eq(f->op.res, 0);
	MRT_RETURN(self, 0);
}

/* ---- a result that is there wins ---- */

ITEST_TASK(a_result_that_is_there_wins, {
	struct mrt_op recv; struct mrt_op pause; int fds[2]; char buf[8]; int round;
})
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	for (f->round = 0; f->round < 100; f->round++) {
		ck_assert_int_eq(write(f->fds[1], "data", 4), 4);
		mrt_recv(&f->recv, f->fds[0], f->buf, sizeof(f->buf), 0);
		if (f->round % 3 == 1)
			mrt_flush();
		else if (f->round % 3 == 2)
			MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_US(200)));
		mrt_cancel(&f->recv);
		MRT_AWAIT(self, &f->recv);
		ck_assert_int_eq(f->recv.res, 4); /* else the bytes would be lost, or still be there */
	}
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* A peer that writes while we cancel: no byte is lost, none comes twice. */
ITEST_TASK(no_byte_is_lost_between_cancel_and_data, {
	struct mrt_op recv; struct mrt_op send; struct mrt_op *ops[2]; int fds[2]; char buf[8]; int round;
	int got; int sent;
})
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	for (f->round = 0; f->round < 2000; f->round++) {
		mrt_recv(&f->recv, f->fds[0], f->buf, 1, 0);
		mrt_send(&f->send, f->fds[1], "x", 1, 0);
		if (f->round % 2)
			mrt_flush();
		mrt_cancel(&f->recv);
		f->ops[0] = &f->recv;
		f->ops[1] = &f->send;
		MRT_AWAIT_ALL(self, f->ops, 2);
		ck_assert_int_eq(f->send.res, 1);
		f->sent++;
		if (f->recv.res == -ECANCELED)
			MRT_AWAIT(self, mrt_recv(&f->recv, f->fds[0], f->buf, 1, 0));
		ck_assert_int_eq(f->recv.res, 1);
		f->got++;
	}
	ck_assert_int_eq(recv(f->fds[0], f->buf, 1, MSG_DONTWAIT), -1);
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* ---- in io-wq ---- */

#define TAKEN_NR 4
#define TAKEN_DELAYS 150
#define TAKEN_PASSES 3

/*
 * A splice goes to io-wq. On 6.1 a cancel that comes while a thread takes the op from the queue finds it nowhere; it must not be
 * lost. That moment is some microseconds long and nobody knows where, so the delays are tried one after the other. With a
 * cancel that is lost the test runs into its limit.
 */
ITEST_TASK(a_cancel_is_not_lost_while_io_wq_takes_the_op, {
	struct mrt_op op[TAKEN_NR]; struct mrt_op *ops[TAKEN_NR]; struct mrt_op pause; int from[2]; int to[2]; int round;
})
{
	int i;

	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->from, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(f->to, O_CLOEXEC), 0);
	for (f->round = 0; f->round < TAKEN_PASSES * TAKEN_DELAYS; f->round++) {
		for (i = 0; i < TAKEN_NR; i++)
			f->ops[i] = mrt_splice(&f->op[i], f->from[0], MRT_OFF_CURRENT, f->to[1], MRT_OFF_CURRENT, 16, 0);
		MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_US(2) * (uint64_t)(f->round % TAKEN_DELAYS)));
		for (i = 0; i < TAKEN_NR; i++)
			mrt_cancel(&f->op[i]);
		MRT_AWAIT_ALL(self, f->ops, TAKEN_NR);
		for (i = 0; i < TAKEN_NR; i++)
			ck_assert_int_eq(f->op[i].res, -ECANCELED);
	}
	close(f->from[0]);
	close(f->from[1]);
	close(f->to[0]);
	close(f->to[1]);
	MRT_RETURN(self, 0);
}

/*
 * The same for the cancels that a handle's close sends: of the pipe that is read, or of the one that is written. The kernel
 * knows a splice by the latter, and that only when a thread has begun with it.
 */
ITEST_TASK(a_close_ends_a_splice_at_any_time, {
	struct mrt_op op[TAKEN_NR]; struct mrt_op *ops[TAKEN_NR]; struct mrt_op pause; int from[2]; int to[2]; int round;
	int fds[2]; int handle;
})
{
	int i, side;

	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->from, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(f->to, O_CLOEXEC), 0);
	for (f->round = 0; f->round < TAKEN_PASSES * TAKEN_DELAYS; f->round++) {
		side = f->round % 2;
		f->fds[0] = f->from[0];
		f->fds[1] = f->to[1];
		f->handle = mrt_file_register(NULL, f->fds[side], 0);
		ck_assert_int_gt(f->handle, 0);
		f->fds[side] = f->handle;
		for (i = 0; i < TAKEN_NR; i++)
			f->ops[i] = mrt_splice(&f->op[i], f->fds[0], MRT_OFF_CURRENT, f->fds[1], MRT_OFF_CURRENT, 16, 0);
		MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_US(2) * (uint64_t)(f->round % TAKEN_DELAYS)));
		if (f->round % 3 == 0)
			mrt_cancel(&f->op[1]);
		mrt_file_unregister(&f->pause, f->handle);
		if (f->round % 3 == 1)
			mrt_cancel(&f->op[1]);
		MRT_AWAIT(self, &f->pause);
		ck_assert_int_ge(f->pause.res, 0);
		MRT_AWAIT_ALL(self, f->ops, TAKEN_NR);
		for (i = 0; i < TAKEN_NR; i++) {
			ck_assert_int_eq(f->op[i].res, -ECANCELED);
			ck_assert_int_eq(f->op[i].why, 0);
		}
	}
	close(f->from[0]);
	close(f->from[1]);
	close(f->to[0]);
	close(f->to[1]);
	MRT_RETURN(self, 0);
}

/* Those that end by themselves leave nothing behind that the close could still find. */
ITEST_TASK(a_close_leaves_ended_splices_alone, {
	struct mrt_op op[TAKEN_NR]; struct mrt_op *ops[TAKEN_NR]; struct mrt_op end; int from[2]; int to[2]; int handle;
})
{
	static const char data[16 * TAKEN_NR];
	int i;

	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->from, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(f->to, O_CLOEXEC), 0);
	f->handle = mrt_file_register(NULL, f->to[1], 0);
	ck_assert_int_gt(f->handle, 0);
	for (i = 0; i < TAKEN_NR; i++)
		f->ops[i] = mrt_splice(&f->op[i], f->from[0], MRT_OFF_CURRENT, f->handle, MRT_OFF_CURRENT, 16, 0);
	mrt_flush();
	ck_assert_int_eq(write(f->from[1], data, sizeof(data)), sizeof(data));
	MRT_AWAIT_ALL(self, f->ops, TAKEN_NR);
	for (i = 0; i < TAKEN_NR; i++) {
		ck_assert_int_eq(f->op[i].res, 16);
		ck_assert_int_eq(f->op[i].why, 0);
	}
	MRT_AWAIT(self, mrt_file_unregister(&f->end, f->handle));
	ck_assert_int_eq(f->end.res, f->to[1]);
	close(f->from[1]);
	close(f->from[0]);
	close(f->to[0]);
	close(f->to[1]);
	MRT_RETURN(self, 0);
}

/*
 * A pipe whose lock somebody holds until we let him go: a write of a page that is not there. Nothing ends a splice from it that
 * waits for the lock, and the kernel says so each time (-EALREADY).
 */
struct locked_pipe {
	int fds[2], uffd;
	void *page;
	pthread_t writer;
};

static void *locked_pipe_write(void *arg)
{
	const struct locked_pipe *p = arg;

	ck_assert_int_eq(write(p->fds[1], p->page, 16), 16);
	return NULL;
}

static int open_userfaultfd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void locked_pipe_open(struct locked_pipe *p)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffd_msg msg;

	ck_assert_int_eq(pipe2(p->fds, O_CLOEXEC), 0);
	p->page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(p->page, MAP_FAILED);
	p->uffd = open_userfaultfd();
	ck_assert_int_ge(p->uffd, 0);
	range.range.start = (uintptr_t)p->page;
	range.range.len = bytes;
	ck_assert_int_eq(ioctl(p->uffd, UFFDIO_REGISTER, &range), 0);
	ck_assert_int_eq(pthread_create(&p->writer, NULL, locked_pipe_write, p), 0);
	ck_assert_int_eq(read(p->uffd, &msg, sizeof(msg)), (ssize_t)sizeof(msg)); /* he has the lock, and misses the page */
	ck_assert_int_eq(msg.event, UFFD_EVENT_PAGEFAULT);
}

static void locked_pipe_unlock(struct locked_pipe *p)
{
	struct uffdio_zeropage zero = { .range = { (uintptr_t)p->page, (size_t)sysconf(_SC_PAGESIZE) } };

	ck_assert_int_eq(ioctl(p->uffd, UFFDIO_ZEROPAGE, &zero), 0);
	ck_assert_int_eq(pthread_join(p->writer, NULL), 0);
}

static void locked_pipe_close(struct locked_pipe *p)
{
	close(p->uffd);
	munmap(p->page, (size_t)sysconf(_SC_PAGESIZE));
	close(p->fds[0]);
	close(p->fds[1]);
}

struct stubborn {
	struct mrt_op splice, pause;
	uint64_t pause_ns;      /* for a thread of io-wq to take it */
	int from, to;
	_Atomic uint64_t *cancel_ns;
};

/* @return the splice's result */
static enum mrt_poll stubborn_poll(struct mrt_task *self, void *frame)
{
	struct stubborn *f = frame;

	MRT_BEGIN(self);
	mrt_splice(&f->splice, f->from, MRT_OFF_CURRENT, f->to, MRT_OFF_CURRENT, 16, 0);
	MRT_AWAIT(self, mrt_sleep(&f->pause, f->pause_ns));
	atomic_store(f->cancel_ns, mrt_now());
	mrt_cancel(&f->splice);
	MRT_AWAIT(self, &f->splice);
	MRT_RETURN(self, f->splice.res);
}

/* @return the splice's result: -ECANCELED: no thread had taken it, and there was nothing to see */
static int64_t cancel_stubborn(struct mrt_runtime *rt, uint64_t pause_ns)
{
	uint64_t before = itest_stats(rt).cancels, sent, ms;
	_Atomic uint64_t cancel_ns = 0;
	struct stubborn f = { .cancel_ns = &cancel_ns, .pause_ns = pause_ns };
	struct locked_pipe p;
	struct mrt_task *task;
	int64_t ret;
	int to[2];

	locked_pipe_open(&p);
	ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
	f.from = p.fds[0];
	f.to = to[1];
	task = itest_spawn(rt, stubborn_poll, &f, sizeof(f));
	ITEST_WAIT(mrt_task_is_finished(task) || itest_stats(rt).cancels >= before + 6, 20000);
	sent = itest_stats(rt).cancels - before;
	ms = (mrt_now() - atomic_load(&cancel_ns)) / MRT_MS(1);
	locked_pipe_unlock(&p);
	ret = itest_join(task);
	if (ret != -ECANCELED) {
		ck_assert_int_eq(ret, 16); /* what came then wins */
		/* at once, after 1 ms, 3, 7, 15, 31 */
		ck_assert_msg(sent >= 6 && ms + 1 >= UINT64_C(1) << (sent - 1), "%" PRIu64 " cancels in %" PRIu64 " ms", sent, ms);
		sent = itest_stats(rt).cancels;
		usleep(70000);
		ck_assert_uint_eq(itest_stats(rt).cancels, sent); /* it has ended */
	}
	locked_pipe_close(&p);
	close(to[0]);
	close(to[1]);
	return ret;
}

START_TEST(a_cancel_is_sent_again_less_and_less_often_until_the_op_ends)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	uint64_t pause_ns = MRT_MS(20);

	/* twice as long each time; all in all, 20 s */
	while (cancel_stubborn(rt, pause_ns) == -ECANCELED) {
		pause_ns *= 2;
		ck_assert_uint_lt(pause_ns, MRT_SEC(15));
	}
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- _exact and _all forms ---- */

/*
 * The first step of a receive has ended, but nobody has seen it, when the cancel comes: the kernel finds nothing to
 * cancel, and the next step must not begin to wait.
 */
ITEST_TASK(a_cancel_between_two_steps_ends_the_op, {
	struct mrt_op recv; struct mrt_op pause; int fds[2]; char buf[64]; int round; })
{
	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	for (f->round = 0; f->round < 50; f->round++) {
		ck_assert_int_eq(write(f->fds[1], "0123456789", 10), 10);
		mrt_recv_exact(&f->recv, f->fds[0], f->buf, sizeof(f->buf));
		switch (f->round % 3) {
		case 0:
			mrt_flush(); /* it completes inline */
			break;
		case 1:
			break;
		default:
			MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_US(500)));
		}
		mrt_cancel(&f->recv);
		MRT_AWAIT(self, &f->recv);
		ck_assert_int_eq(f->recv.res, 10);
		ck_assert_int_eq(f->recv.why, -ECANCELED);
		ck_assert_int_eq(memcmp(f->buf, "0123456789", 10), 0);
	}
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

#define BIG (4 << 20)

ITEST_TASK(a_cancelled_send_all_says_how_far_it_came, {
	struct mrt_op send; struct mrt_op pause; int fds[2]; int round;
})
{
	static char big[BIG], drain[65536];
	ssize_t nr;
	size_t total = 0;

	MRT_BEGIN(self);
	for (f->round = 0; f->round < 6; f->round++) {
		itest_socketpair(f->fds);
		mrt_send_all(&f->send, f->fds[0], big, BIG);
		if (f->round % 3 == 0)
			mrt_flush();
		else
			MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_US(300) * (uint64_t)(f->round % 3)));
		mrt_cancel(&f->send);
		MRT_AWAIT(self, &f->send);
		ck_assert_int_gt(f->send.res, 0);
		ck_assert_int_lt(f->send.res, BIG);
		ck_assert_int_eq(f->send.why, -ECANCELED);
		for (total = 0; (nr = recv(f->fds[1], drain, sizeof(drain), MSG_DONTWAIT)) > 0;)
			total += (size_t)nr;
		ck_assert_uint_eq(total, (size_t)f->send.res);
		close(f->fds[0]);
		close(f->fds[1]);
	}
	MRT_RETURN(self, 0);
}

/* ---- cancel before the kernel has it: small rings ---- */

#define SMALL_NR 200

struct small {
	struct mrt_op op[SMALL_NR];
	struct mrt_op *ops[SMALL_NR];
	int fds[2];
	char buf[SMALL_NR];
	int round;
};

static enum mrt_poll small_poll(struct mrt_task *self, void *frame)
{
	struct small *f = frame;
	int i;

	MRT_BEGIN(self);
	itest_socketpair(f->fds);
	for (f->round = 0; f->round < 30; f->round++) {
		for (i = 0; i < SMALL_NR; i++)
			f->ops[i] = mrt_recv(&f->op[i], f->fds[0], &f->buf[i], 1, 0);
		for (i = f->round % 2 ? SMALL_NR - 1 : 0; i >= 0 && i < SMALL_NR; i += f->round % 2 ? -1 : 1)
			mrt_cancel(&f->op[i]);
		MRT_AWAIT_ALL(self, f->ops, SMALL_NR);
		for (i = 0; i < SMALL_NR; i++)
			ck_assert_int_eq(f->op[i].res, -ECANCELED);
	}
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

START_TEST(hundreds_of_cancels_on_a_ring_of_eight)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	static struct small frame;
	struct mrt_runtime *rt;

	opts.sq_entries = 8;
	opts.cq_entries = 16;
	rt = itest_create(&opts);
	ck_assert_int_eq(itest_run(rt, small_poll, &frame, sizeof(frame)), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- so many that their ends take longer than a cancel waits before it is sent again ---- */

#define BURST_NR (ITEST_SLOW ? 5000 : 25000)

struct burst {
	struct mrt_op *op, **ops, pause;
	int fds[2], nr;
	uint64_t ns;
};

static enum mrt_poll burst_poll(struct mrt_task *self, void *frame)
{
	static char byte;
	struct burst *f = frame;
	int i;

	MRT_BEGIN(self);
	f->nr = BURST_NR;
	f->op = calloc((size_t)f->nr, sizeof(*f->op));
	f->ops = calloc((size_t)f->nr, sizeof(struct mrt_op *));
	ck_assert(f->op && f->ops);
	itest_socketpair(f->fds);
	for (i = 0; i < f->nr; i++)
		f->ops[i] = mrt_recv(&f->op[i], f->fds[0], &byte, 1, 0);
	MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(10)));
	f->ns = mrt_now();
	for (i = 0; i < f->nr; i++)
		mrt_cancel(&f->op[i]);
	MRT_AWAIT_ALL(self, f->ops, (size_t)f->nr);
	f->ns = mrt_now() - f->ns;
	for (i = 0; i < f->nr; i++)
		ck_assert_int_eq(f->op[i].res, -ECANCELED);
	close(f->fds[0]);
	close(f->fds[1]);
	free(f->op);
	free(f->ops);
	MRT_RETURN(self, 0);
}

/* Each that is sent again delays the others' ends, and so more of them would be sent again. */
START_TEST(a_burst_of_cancels_is_sent_once)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct burst f = { .nr = 0 };
	uint64_t again;

	ck_assert_int_eq(itest_run(rt, burst_poll, &f, sizeof(f)), 0);
	ck_assert_uint_ge(itest_stats(rt).cancels, (uint64_t)f.nr);
	again = itest_stats(rt).cancels - (uint64_t)f.nr;
	printf("%d cancels, kind %d: %" PRIu64 " sent again, in %" PRIu64 " ms\n", f.nr, _i, again, f.ns / MRT_MS(1));
	/* one a millisecond, and a few when the last have ended, or seem to have */
	ck_assert_uint_le(again, f.ns / MRT_MS(1) + (uint64_t)f.nr / 32);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- from a worker that does not own the ring ---- */

#define NOMADS 64
#define NOMAD_ROUNDS 30

struct nomad_shared {
	atomic_int migrated, cancelled, results;
};

struct nomad {
	struct mrt_op recv, exact, sleep, pause, nop;
	struct mrt_timer timer;
	struct mrt_op *ops[4];
	struct nomad_shared *shared;
	struct itest_move move;
	bool is_moved;          /* in each round, for certain; the others only if somebody steals them */
	int fds[2], fds2[2];
	int round, started_on, i;
	char buf[32], buf2[32];
};

/* Which worker are we on? By its thread: the public API has no other word for it. */
static int here(void)
{
	return (int)gettid();
}

static enum mrt_poll nomad_poll(struct mrt_task *self, void *frame)
{
	struct nomad *n = frame;

	MRT_BEGIN(self);
	itest_socketpair(n->fds);
	itest_socketpair(n->fds2);
	for (n->round = 0; n->round < NOMAD_ROUNDS; n->round++) {
		n->started_on = here();
		mrt_recv(&n->recv, n->fds[0], n->buf, sizeof(n->buf), 0);
		mrt_recv_exact(&n->exact, n->fds2[0], n->buf2, sizeof(n->buf2));
		mrt_sleep(&n->sleep, UINT64_MAX);
		if (n->round % 4 == 1)
			mrt_deadline(&n->recv, &n->timer, MRT_MS(1 + n->round % 3));
		if (n->round % 4 == 2)
			ck_assert_int_eq(write(n->fds2[1], "abc", 3), 3);
		if (n->is_moved)
			ITEST_MOVE(self, &n->move);
		/* be stolen */
		for (n->i = 0; n->i < 200 && here() == n->started_on; n->i++) {
			MRT_AWAIT(self, mrt_yield(&n->pause));
			itest_spin(2000);
		}
		if (here() != n->started_on)
			atomic_fetch_add(&n->shared->migrated, 1);
		if (n->is_moved && n->round % 2)
			itest_move_let_go(&n->move); /* else its cancels find the owner in the middle of a poll */
		if (n->round % 3 == 0)
			ck_assert_int_eq(write(n->fds[1], "xy", 2), 2); /* races with the cancel */
		mrt_cancel(&n->recv);
		mrt_cancel(&n->exact);
		mrt_cancel(&n->sleep);
		n->ops[0] = &n->recv;
		n->ops[1] = &n->exact;
		n->ops[2] = &n->sleep;
		n->ops[3] = mrt_nop(&n->nop);
		if (n->is_moved)
			ITEST_MOVE_END(self, &n->move);
		MRT_AWAIT_ALL(self, n->ops, 4);
		ck_assert_int_eq(n->sleep.res, -ECANCELED);
		ck_assert_int_eq(n->nop.res, 0);
		if (n->recv.res >= 0) {
			ck_assert_int_eq(n->recv.res, 2);
			atomic_fetch_add(&n->shared->results, 1);
		} else {
			ck_assert(n->recv.res == -ECANCELED || (n->round % 4 == 1 && n->recv.res == -ETIMEDOUT));
			atomic_fetch_add(&n->shared->cancelled, 1);
			if (n->round % 3 == 0)
				ck_assert_int_eq(read(n->fds[0], n->buf, 2), 2);
		}
		if (n->round % 4 == 2) {
			ck_assert_int_eq(n->exact.res, 3);
			ck_assert_int_eq(n->exact.why, -ECANCELED);
		} else {
			ck_assert_int_eq(n->exact.res, -ECANCELED);
		}
	}
	close(n->fds[0]);
	close(n->fds[1]);
	close(n->fds2[0]);
	close(n->fds2[1]);
	MRT_RETURN(self, 0);
}

START_TEST(cancel_from_a_worker_that_does_not_own_the_ring)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct nomad_shared shared = { 0 };
	struct nomad n = { .shared = &shared };
	struct mrt_task *tasks[NOMADS];
	int i;

	for (i = 0; i < NOMADS; i++) {
		n.is_moved = i == 0;
		tasks[i] = itest_spawn(rt, nomad_poll, &n, sizeof(n));
	}
	for (i = 0; i < NOMADS; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
	ck_assert_int_gt(atomic_load(&shared.cancelled), 0);
	ck_assert_int_ge(atomic_load(&shared.migrated), NOMAD_ROUNDS);
	mrt_runtime_destroy(rt);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cancel");
	TCase *tc = tcase_create("cancel"), *iowq = tcase_create("io-wq");
	int uffd;

	itest_need_io_uring();
	uffd = open_userfaultfd();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, every_wait_ends_with_ecanceled, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, cancelling_what_is_not_in_flight_does_nothing, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, a_result_that_is_there_wins, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, no_byte_is_lost_between_cancel_and_data, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_cancel_between_two_steps_ends_the_op, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_cancelled_send_all_says_how_far_it_came, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, hundreds_of_cancels_on_a_ring_of_eight, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, a_burst_of_cancels_is_sent_once, 0, ITEST_KINDS_NR);
	/* not current-thread: there is no other worker */
	tcase_add_test(tc, cancel_from_a_worker_that_does_not_own_the_ring);
	tcase_add_loop_test(tc, cancel_from_a_worker_that_does_not_own_the_ring, ITEST_FLOAT, ITEST_KINDS_NR);
	suite_add_tcase(suite, tc);
	tcase_set_timeout(iowq, ITEST_LIMIT_S);
	tcase_add_loop_test(iowq, a_cancel_is_not_lost_while_io_wq_takes_the_op, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(iowq, a_close_ends_a_splice_at_any_time, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(iowq, a_close_leaves_ended_splices_alone, 0, ITEST_KINDS_NR);
	if (uffd >= 0) {
		close(uffd);
		/* not current-thread: nobody drives it while the test looks */
		tcase_add_test(iowq, a_cancel_is_sent_again_less_and_less_often_until_the_op_ends);
	} else {
		printf("skipped: a_cancel_is_sent_again_less_and_less_often_until_the_op_ends: userfaultfd: %s\n", strerror(errno));
	}
	suite_add_tcase(suite, iowq);
	return itest_main(suite);
}
