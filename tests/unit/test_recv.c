/* SPDX-License-Identifier: MIT */
/*
 * When a receive has the kernel wait for data before it tries. That it makes no difference to what it returns is for
 * tests/integration/test_socket.c; here it is looked at what the ring was given.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <martlet/file.h>
#include <martlet/net.h>
#include <martlet/runtime.h>
#include <martlet/task.h>
#include <martlet/time.h>

#include "ring/uring.h"
#include "sched/worker.h"
#include "suite.h"

#define LIMIT_S 30
#define ROUNDS 64
#define WAIT_NS UINT64_C(2000000000)

struct talk {
	struct mrt_op op, other, turn;
	int fds[2], i, first;
	char buf[8];
};

struct refused {
	struct mrt_op op;
	struct mrt_timer timer;
	int fds[2], listener, i;
	char buf[8];
};

/* Was the entry that was staged last told to wait first? */
static bool polls_first(void)
{
	const struct mrt__ring *ring = mrt__worker_self->ring;
	const struct io_uring_sqe *sqe =
		(const struct io_uring_sqe *)(ring->sqes + ((ring->sq_tail - 1) * ring->sqe_bytes & ring->sq_bytes_mask));

	ck_assert_uint_eq(sqe->opcode, IORING_OP_RECV);
	ck_assert_uint_eq(sqe->ioprio & ~IORING_RECVSEND_POLL_FIRST, 0);
	return sqe->ioprio;
}

static void write_byte(int fd)
{
	ck_assert_int_eq(write(fd, "x", 1), 1);
}

static enum mrt_poll talk_poll(struct mrt_task *self, void *frame)
{
	struct talk *f = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->fds), 0);

	/* nothing is there when the kernel gets it: after some, it waits first */
	for (f->i = 0; f->i < ROUNDS; f->i++) {
		(void)mrt_recv(&f->op, f->fds[0], f->buf, sizeof(f->buf), 0);
		if (f->i == 0)
			ck_assert(!polls_first());
		MRT_AWAIT(self, mrt_yield(&f->turn));
		MRT_AWAIT(self, mrt_yield(&f->turn));
		ck_assert(!mrt_op_is_done(&f->op));
		write_byte(f->fds[1]);
		MRT_AWAIT(self, &f->op);
		ck_assert_int_eq(f->op.res, 1);
	}
	(void)mrt_recv(&f->op, f->fds[0], f->buf, sizeof(f->buf), 0);
	ck_assert(polls_first());
	write_byte(f->fds[1]);
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, 1);

	/* but not where it is to say that there is nothing, and not where nobody knows that it is a socket */
	(void)mrt_recv(&f->op, f->fds[0], f->buf, sizeof(f->buf), MSG_DONTWAIT);
	ck_assert(!polls_first());
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, -EAGAIN);
	write_byte(f->fds[1]);
	(void)mrt_recv(&f->other, f->fds[0], f->buf, sizeof(f->buf), 0);
	ck_assert(!polls_first());
	MRT_AWAIT(self, &f->other);
	ck_assert_int_eq(f->other.res, 1);
	(void)mrt_recv(&f->other, f->fds[1], f->buf, sizeof(f->buf), 0);
	ck_assert(!polls_first());
	write_byte(f->fds[0]);
	MRT_AWAIT(self, &f->other);
	ck_assert_int_eq(f->other.res, 1);

	/* data is there: it tries at once again, and the first ones that waited got it all the same */
	for (f->i = 0, f->first = 0; f->i < ROUNDS; f->i++) {
		write_byte(f->fds[1]);
		(void)mrt_recv(&f->op, f->fds[0], f->buf, sizeof(f->buf), 0);
		f->first += polls_first();
		MRT_AWAIT(self, &f->op);
		ck_assert_int_eq(f->op.res, 1);
	}
	ck_assert_int_gt(f->first, 0);
	ck_assert_int_lt(f->first, ROUNDS / 2);

	/* the end of the stream is no data, and ends the wait */
	mrt__worker_self->recv_found = 0;
	(void)mrt_recv(&f->op, f->fds[0], f->buf, sizeof(f->buf), 0);
	ck_assert(polls_first());
	MRT_AWAIT(self, mrt_yield(&f->turn));
	MRT_AWAIT(self, mrt_yield(&f->turn));
	(void)close(f->fds[1]);
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, 0);
	mrt__worker_self->recv_found = 0;
	(void)mrt_recv(&f->op, f->fds[0], f->buf, sizeof(f->buf), 0);
	ck_assert(polls_first());
	MRT_AWAIT(self, &f->op);
	ck_assert_int_eq(f->op.res, 0);
	(void)close(f->fds[0]);
	MRT_RETURN(self, 0);
}

/* What is no socket, or none to read from, is refused however often the same op is used on it. */
static enum mrt_poll refused_poll(struct mrt_task *self, void *frame)
{
	struct refused *f = frame;

	MRT_BEGIN(self);
	ck_assert_int_eq(pipe(f->fds), 0);
	f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(f->listener, 0);
	ck_assert_int_eq(listen(f->listener, 1), 0);
	for (f->i = 0; f->i < 6; f->i++) {
		mrt__worker_self->recv_found = 0;
		mrt_recv(&f->op, f->i < 3 ? f->fds[0] : f->listener, f->buf, sizeof(f->buf), 0);
		ck_assert(!polls_first());
		MRT_AWAIT(self, mrt_deadline(&f->op, &f->timer, WAIT_NS));
		ck_assert_int_eq(f->op.res, f->i < 3 ? -ENOTSOCK : -ENOTCONN);
	}
	(void)close(f->fds[0]);
	(void)close(f->fds[1]);
	(void)close(f->listener);
	MRT_RETURN(self, 0);
}

static void run(mrt_poll_fn fn, void *frame, size_t bytes)
{
	struct mrt_runtime_opts opts = { .size = sizeof(opts), .flavour = MRT_FLAVOUR_CURRENT_THREAD };
	struct mrt_runtime *rt;
	int64_t result;

	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), 0);
	ck_assert_int_eq(mrt_block_on(rt, fn, frame, bytes, &result), 0);
	ck_assert_int_eq(result, 0);
	mrt_runtime_destroy(rt);
}

START_TEST(a_receive_waits_first_where_the_first_try_fails_as_a_rule)
{
	static struct talk frame;

	run(talk_poll, &frame, sizeof(frame));
}
END_TEST

START_TEST(a_receive_that_was_refused_is_refused_again)
{
	static struct refused frame;

	run(refused_poll, &frame, sizeof(frame));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("recv");
	TCase *tc = tcase_create("core");

	tcase_set_timeout(tc, LIMIT_S);
	tcase_add_test(tc, a_receive_waits_first_where_the_first_try_fails_as_a_rule);
	tcase_add_test(tc, a_receive_that_was_refused_is_refused_again);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
