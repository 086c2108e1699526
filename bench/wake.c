/* SPDX-License-Identifier: MIT */
/*
 * Idle, and awake again.
 *
 *	request_rate       one request at a time: a client thread sends a byte over a socket pair, a task answers
 *	request_switches   voluntary context switches of all workers, the sentry's among them, for each request
 *	idle_cpu           CPU time of the workers in ten seconds without work
 *	idle_switches      voluntary context switches of the workers in them
 *	wake_50us, _1ms    a thread pauses so long, then notifies a task whose worker is parked: until the task runs
 */
#include <stdatomic.h>
#include <sys/socket.h>

#include "bench.h"

#define WARM_REQUESTS 2000u
#define REQUESTS_NS MRT_SEC(1)
#define IDLE_NS MRT_SEC(10)
#define SETTLE_NS MRT_MS(300)
#define WAKES 2000u

/* ---- one request at a time ---- */

struct server {
	struct mrt_op op;
	int fd;
	char byte;
};

static enum mrt_poll server_poll(struct mrt_task *self, void *frame)
{
	struct server *f = frame;

	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_recv(&f->op, f->fd, &f->byte, 1, 0));
		if (f->op.res <= 0)
			break;
		MRT_AWAIT(self, mrt_send(&f->op, f->fd, &f->byte, 1, 0));
		if (f->op.res < 0)
			break;
	}
	MRT_RETURN(self, f->op.res);
}

static void request(int fd)
{
	char byte = 1;

	if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || recv(fd, &byte, 1, 0) != 1)
		bench_die("request: %s", strerror(errno));
}

static void pass_request(const struct bench_pass *p, double *ret)
{
	struct server s = { .fd = -1 };
	struct mrt_task *task;
	struct bench_usage before;
	uint64_t start, nr = 0;
	int64_t result;
	int fds[2];
	unsigned i;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		bench_die("socketpair: %s", strerror(errno));
	s.fd = fds[1];
	bench_spawn(p->rt, server_poll, &s, sizeof(s), &task);
	for (i = 0; i < WARM_REQUESTS; i++)
		request(fds[0]);
	before = bench_usage_of(p->rt);
	start = mrt_now();
	do {
		request(fds[0]);
		nr++;
	} while (mrt_now() - start < REQUESTS_NS);
	ret[0] = (double)nr * 1e9 / (double)(mrt_now() - start);
	ret[1] = (double)(bench_usage_of(p->rt).switches - before.switches) / (double)nr;
	(void)close(fds[0]); /* ends the server */
	if (mrt_task_join_wait(task, &result) || result < 0)
		bench_die("request: the server failed");
	(void)close(fds[1]); /* nothing was left to send */
}

/* ---- idle ---- */

static enum mrt_poll sleep_poll(struct mrt_task *self, void *frame)
{
	struct mrt_op *op = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(op, MRT_MS(2)));
	MRT_RETURN(self, 0);
}

static void pass_idle(const struct bench_pass *p, double *ret)
{
	struct mrt_op op = { 0 };
	struct bench_usage before, after;
	unsigned i;

	/* wake everybody, so that what they leave behind (the sentry) is there to be seen */
	for (i = 0; i < 100; i++)
		bench_spawn(p->rt, sleep_poll, &op, sizeof(op), NULL);
	bench_sleep_ns(SETTLE_NS);
	before = bench_usage_of(p->rt);
	bench_sleep_ns(p->b->quick ? IDLE_NS / 10 : IDLE_NS);
	after = bench_usage_of(p->rt);
	ret[0] = (double)(after.cpu_ns - before.cpu_ns) / 1e3;
	ret[1] = (double)(after.switches - before.switches);
}

/* ---- wake of an idle worker ---- */

struct sleeper {
	struct mrt_op op;
	struct mrt_notify *notify;
	_Atomic uint64_t *woken_ns;
	unsigned left;
};

static enum mrt_poll sleeper_poll(struct mrt_task *self, void *frame)
{
	struct sleeper *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_notify_wait(&f->op, f->notify));
		atomic_store_explicit(f->woken_ns, mrt_now(), memory_order_release);
	}
	MRT_RETURN(self, 0);
}

static void wake_after(const struct bench_pass *p, uint64_t gap_ns, double *ret)
{
	static uint64_t ns[WAKES];
	struct mrt_notify notify;
	_Atomic uint64_t woken_ns = 0;
	struct sleeper f = { .notify = &notify, .woken_ns = &woken_ns, .left = WAKES };
	struct mrt_task *task;
	uint64_t start, end;
	unsigned i;

	mrt_notify_init(&notify);
	bench_spawn(p->rt, sleeper_poll, &f, sizeof(f), &task);
	for (i = 0; i < WAKES; i++) {
		bench_spin_ns(gap_ns);
		start = mrt_now();
		mrt_notify_one(&notify);
		while ((end = atomic_load_explicit(&woken_ns, memory_order_acquire)) < start)
			;
		ns[i] = end - start;
	}
	(void)mrt_task_join_wait(task, NULL); /* not a worker, and the only joiner */
	bench_sort_u64(ns, WAKES);
	ret[0] = (double)bench_percentile(ns, WAKES, 50) / 1e3;
	ret[1] = (double)bench_percentile(ns, WAKES, 99) / 1e3;
}

static void pass_wake_50us(const struct bench_pass *p, double *ret)
{
	wake_after(p, 50000, ret);
}

static void pass_wake_1ms(const struct bench_pass *p, double *ret)
{
	wake_after(p, 1000000, ret);
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "request_rate", "/s" }, { "request_switches", "/request" } }, .variants = BENCH_W1 | BENCH_W2,
		  .pass = pass_request },
		{ { { "idle_cpu", "us" }, { "idle_switches", "switches" } }, .variants = BENCH_W1 | BENCH_W2, .repeats = 1,
		  .no_warm_up = true, .pass = pass_idle },
		{ { { "wake_50us_p50", "us" }, { "wake_50us_p99", "us" } }, .variants = BENCH_W1, .repeats = 3,
		  .no_warm_up = true, .pass = pass_wake_50us },
		{ { { "wake_1ms_p50", "us" }, { "wake_1ms_p99", "us" } }, .variants = BENCH_W1, .repeats = 3,
		  .no_warm_up = true, .pass = pass_wake_1ms },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
