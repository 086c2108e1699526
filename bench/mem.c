/* SPDX-License-Identifier: MIT */
/*
 * Memory of 1,000,000 tasks: growth of the resident set for each, frame = one op and 32 bytes of the user's.
 *
 *	mem_1M_pending   parked on one notify, then woken by one mrt_notify_all
 *	mem_1M_sleep     asleep for an hour, then aborted
 *	mem_1M_expire    asleep until deadlines over one second: the same memory, and that they fire: how many early, how
 *	                 late the median, the 99th percentile and the last
 *
 * Each measurement is a process of its own, so that nothing is reused.
 */
#include <stdatomic.h>
#include <sys/wait.h>

#include "bench.h"

#define TASKS 1000000u
#define AHEAD_NS MRT_SEC(6)     /* of the first deadline before the start: all must be asleep by then */

enum mode {
	MODE_PENDING,
	MODE_SLEEP,
	MODE_EXPIRE
};

struct all {
	enum mode mode;
	struct mrt_notify notify;
	atomic_uint started, ended;
	atomic_uint early;
	uint64_t first_ns;
	uint64_t *late_ns;      /* [TASKS], MODE_EXPIRE */
};

static struct all all;

/* 32 bytes of user state: of a real program's size, and what is needed to judge the sleep. */
struct task_frame {
	struct mrt_op op;
	uint64_t due_ns;
	uint64_t i;
	uint64_t user[2];
};
_Static_assert(sizeof(struct task_frame) == sizeof(struct mrt_op) + 32, "one op and 32 bytes");

static void judge(struct task_frame *f)
{
	uint64_t now = mrt_now();

	if (now < f->due_ns) {
		/* relaxed: a count */
		atomic_fetch_add_explicit(&all.early, 1, memory_order_relaxed);
		all.late_ns[f->i] = 0;
	} else {
		all.late_ns[f->i] = now - f->due_ns;
	}
}

static enum mrt_poll task_poll(struct mrt_task *self, void *frame)
{
	struct task_frame *f = frame;

	MRT_BEGIN(self);
	/* relaxed: counts, and the main thread waits for them */
	atomic_fetch_add_explicit(&all.started, 1, memory_order_relaxed);
	if (all.mode == MODE_PENDING)
		MRT_AWAIT(self, mrt_notify_wait(&f->op, &all.notify));
	else
		MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due_ns));
	if (all.mode == MODE_EXPIRE)
		judge(f);
	/* release: publishes late_ns */
	atomic_fetch_add_explicit(&all.ended, 1, memory_order_release);
	MRT_RETURN(self, 0);
}

/* Keeps a current-thread runtime going until `until` has come to TASKS. */
struct watch {
	struct mrt_op op;
	atomic_uint *until;
};

static enum mrt_poll watch_poll(struct mrt_task *self, void *frame)
{
	struct watch *f = frame;

	MRT_BEGIN(self);
	while (atomic_load_explicit(f->until, memory_order_acquire) < TASKS)
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(5)));
	MRT_RETURN(self, 0);
}

static enum mrt_poll spawn_poll(struct mrt_task *self, void *frame)
{
	struct task_frame f;
	uint64_t rand = 1;

	(void)frame;
	memset(&f, 0, sizeof(f));
	for (f.i = 0; f.i < TASKS; f.i++) {
		f.due_ns = all.first_ns + bench_rand(&rand) % MRT_SEC(1);
		bench_spawn(NULL, task_poll, &f, sizeof(f), NULL);
	}
	MRT_RETURN(self, 0);
}

static enum mrt_poll notify_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	mrt_notify_all(&all.notify);
	MRT_RETURN(self, 0);
}

static void wait_for(struct mrt_runtime *rt, atomic_uint *until)
{
	struct watch f = { .until = until };

	bench_block_on(rt, watch_poll, &f, sizeof(f));
}

/* @param ret  [5] bytes a task; early; late p50, p99, last in us */
static void measure(const struct bench_pass *p, enum mode mode, double *ret)
{
	struct mrt_runtime *rt = bench_runtime(p->b, p->variant);
	atomic_uint enough = TASKS;
	size_t before;

	all.mode = mode;
	mrt_notify_init(&all.notify);
	if (mode == MODE_EXPIRE)
		all.late_ns = bench_alloc_touched(TASKS, sizeof(uint64_t)); /* before it is measured */
	wait_for(rt, &enough); /* now what one task needs is there */
	before = bench_rss_bytes();
	all.first_ns = mrt_now() + (mode == MODE_SLEEP ? MRT_SEC(3600) : AHEAD_NS);
	bench_block_on(rt, spawn_poll, NULL, 0);
	wait_for(rt, &all.started);
	if (mode == MODE_EXPIRE && mrt_now() > all.first_ns)
		bench_die("mem_1M_expire: this machine needs more than %llu s to start them",
			  (unsigned long long)(AHEAD_NS / MRT_SEC(1)));
	ret[0] = (double)(bench_rss_bytes() - before) / TASKS;
	if (mode == MODE_PENDING)
		bench_block_on(rt, notify_poll, NULL, 0);
	if (mode != MODE_SLEEP)
		wait_for(rt, &all.ended);
	if (mode == MODE_EXPIRE) {
		bench_sort_u64(all.late_ns, TASKS);
		ret[1] = (double)atomic_load_explicit(&all.early, memory_order_acquire);
		ret[2] = (double)bench_percentile(all.late_ns, TASKS, 50) / 1e3;
		ret[3] = (double)bench_percentile(all.late_ns, TASKS, 99) / 1e3;
		ret[4] = (double)all.late_ns[TASKS - 1] / 1e3;
	}
	mrt_runtime_destroy(rt);
}

/* A process without threads may fork; the child makes the runtime. */
static void in_child(const struct bench_pass *p, enum mode mode, double *ret)
{
	double figures[5] = { 0 };
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		bench_die("pipe2: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (pid == 0) {
		(void)alarm(BENCH_LIMIT_S / 4); /* alarms are not inherited */
		measure(p, mode, figures);
		_exit(write(fds[1], figures, sizeof(figures)) == (ssize_t)sizeof(figures) ? 0 : 1);
	}
	(void)close(fds[1]); /* the child's */
	if (read(fds[0], figures, sizeof(figures)) != (ssize_t)sizeof(figures))
		bench_die("mem: the measuring process failed");
	(void)close(fds[0]); /* only read */
	if (waitpid(pid, &status, 0) != pid || status)
		bench_die("mem: the measuring process ended with status %#x", status);
	memcpy(ret, figures, sizeof(figures));
}

static void pass_pending(const struct bench_pass *p, double *ret)
{
	in_child(p, MODE_PENDING, ret);
}

static void pass_sleep(const struct bench_pass *p, double *ret)
{
	in_child(p, MODE_SLEEP, ret);
}

static void pass_expire(const struct bench_pass *p, double *ret)
{
	in_child(p, MODE_EXPIRE, ret);
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "mem_1M_pending", "B/task" } }, .variants = BENCH_CT | BENCH_W2, .repeats = 3, .no_warm_up = true,
		  .no_runtime = true, .pass = pass_pending },
		{ { { "mem_1M_sleep", "B/task" } }, .variants = BENCH_CT | BENCH_W2, .repeats = 3, .no_warm_up = true,
		  .no_runtime = true, .pass = pass_sleep },
		{ { { "mem_1M_expire", "B/task" }, { "mem_1M_expire_early", "tasks" }, { "mem_1M_expire_p50", "us" },
		    { "mem_1M_expire_p99", "us" }, { "mem_1M_expire_last", "us" } },
		  .variants = BENCH_CT | BENCH_W2, .repeats = 3, .no_warm_up = true, .no_runtime = true,
		  .pass = pass_expire },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
