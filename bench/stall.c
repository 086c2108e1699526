/* SPDX-License-Identifier: MIT */
/*
 * A worker stands still: one poll spins for 200 ms, two workers.
 *
 *	stall_sleep   how late a 30 ms sleep of another task of that worker fires
 *	stall_child   how long a task waits that was spawned right before the spin
 *
 * Medians over five rounds. Where a task is, is seen by the CPU that its worker is pinned to: a round in which the sleeper
 * was started by the other worker does not count, and is repeated.
 */
#include <stdatomic.h>

#include "bench.h"

#define ROUNDS 5u
#define TRIES_MAX 200u
#define SPIN_NS MRT_MS(200)
#define SLEEP_NS MRT_MS(30)

struct round {
	_Atomic int sleeper_cpu;        /* where the sleep was started */
	struct mrt_notify asleep;
	uint64_t due_ns, spawned_ns;
	_Atomic uint64_t woken_ns, child_ns;
};

struct task_frame {
	struct mrt_op op;
	struct round *r;
};

static enum mrt_poll sleeper_poll(struct mrt_task *self, void *frame)
{
	struct task_frame *f = frame;

	MRT_BEGIN(self);
	f->r->due_ns = mrt_now() + SLEEP_NS;
	(void)mrt_sleep_until(&f->op, f->r->due_ns); /* awaited below */
	atomic_store_explicit(&f->r->sleeper_cpu, sched_getcpu(), memory_order_release);
	mrt_notify_one(&f->r->asleep);
	MRT_AWAIT(self, &f->op);
	atomic_store_explicit(&f->r->woken_ns, mrt_now(), memory_order_release);
	MRT_RETURN(self, 0);
}

static enum mrt_poll child_poll(struct mrt_task *self, void *frame)
{
	struct task_frame *f = frame;

	atomic_store_explicit(&f->r->child_ns, mrt_now(), memory_order_release);
	MRT_RETURN(self, 0);
}

struct root {
	struct mrt_op op;
	struct round *r;
	struct mrt_task *sleeper, *child;
	bool valid;
};

static enum mrt_poll root_poll(struct mrt_task *self, void *frame)
{
	struct root *f = frame;
	struct task_frame t;

	MRT_BEGIN(self);
	memset(&t, 0, sizeof(t));
	t.r = f->r;
	bench_spawn(NULL, sleeper_poll, &t, sizeof(t), &f->sleeper);
	MRT_AWAIT(self, mrt_notify_wait(&f->op, &f->r->asleep));
	f->valid = atomic_load_explicit(&f->r->sleeper_cpu, memory_order_acquire) == sched_getcpu();
	if (f->valid) {
		memset(&t, 0, sizeof(t));
		t.r = f->r;
		f->r->spawned_ns = mrt_now();
		bench_spawn(NULL, child_poll, &t, sizeof(t), &f->child);
		bench_spin_ns(SPIN_NS);
		MRT_AWAIT(self, mrt_join(&f->op, f->child));
	}
	MRT_AWAIT(self, mrt_join(&f->op, f->sleeper));
	MRT_RETURN(self, 0);
}

static bool run_round(const struct bench_pass *p, double *ret_sleep_us, double *ret_child_us)
{
	struct round r = { .sleeper_cpu = -1 };
	struct root root = { .r = &r };
	uint64_t woken_ns;

	mrt_notify_init(&r.asleep);
	bench_block_on(p->rt, root_poll, &root, sizeof(root));
	if (!root.valid)
		return false;
	woken_ns = atomic_load_explicit(&r.woken_ns, memory_order_acquire);
	if (woken_ns < r.due_ns)
		bench_die("stall: a sleep ended early");
	*ret_sleep_us = (double)(woken_ns - r.due_ns) / 1e3;
	*ret_child_us = (double)(atomic_load_explicit(&r.child_ns, memory_order_acquire) - r.spawned_ns) / 1e3;
	return true;
}

static void pass_stall(const struct bench_pass *p, double *ret)
{
	double sleep_us[ROUNDS], child_us[ROUNDS];
	unsigned nr = 0, tries;

	for (tries = 0; nr < ROUNDS && tries < TRIES_MAX; tries++)
		nr += run_round(p, &sleep_us[nr], &child_us[nr]);
	if (nr < ROUNDS)
		bench_die("stall: in %u tries the sleeper was on the spinning worker only %u times", tries, nr);
	qsort(sleep_us, ROUNDS, sizeof(double), bench_cmp);
	qsort(child_us, ROUNDS, sizeof(double), bench_cmp);
	ret[0] = bench_median(sleep_us, ROUNDS);
	ret[1] = bench_median(child_us, ROUNDS);
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "stall_sleep", "us" }, { "stall_child", "us" } }, .variants = BENCH_W2, .no_warm_up = true,
		  .pass = pass_stall },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
