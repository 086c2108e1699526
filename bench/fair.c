/* SPDX-License-Identifier: MIT */
/*
 * Fairness: 1,000 tasks, spawned at once by one task, that are always ready.
 *
 *	fair_yield        each yields in a loop
 *	fair_nop          each sends nops through the ring
 *	fair_read         each reads 4 KiB from the page cache
 *	..._min, _max     polls of the slowest and the fastest over the mean, in a window of half a second
 *	..._ready         most tasks seen ready at once: a queue of 256 does not hold them
 *
 * Ready tasks are counted from outside by the workers' gauges, every millisecond: before a ring turn they stand in the
 * CQ, after it in the local queue and among the yielded. The larger of the two, and what is in inject.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "bench.h"

#define TASKS 1000u
#define WARM_NS MRT_MS(100)
#define WINDOW_NS MRT_MS(500)
#define SAMPLE_NS MRT_MS(1)
#define FILE_BYTES (UINT64_C(4) << 20)
#define BLOCK 4096u

enum mode {
	MODE_YIELD,
	MODE_NOP,
	MODE_READ
};

enum phase {
	PHASE_WARM,
	PHASE_COUNT,
	PHASE_STOP
};

struct all {
	enum mode mode;
	_Atomic enum phase phase;
	int fd;
	char *bufs;             /* [TASKS * BLOCK] */
	uint64_t polls[TASKS];  /* each written by its task */
};

struct ready {
	struct mrt_op op;
	struct all *all;
	unsigned i;
	uint64_t rand;
};

static struct mrt_op *start(struct ready *f)
{
	struct all *all = f->all;

	switch (all->mode) {
	case MODE_YIELD:
		return mrt_yield(&f->op);
	case MODE_NOP:
		return mrt_nop(&f->op);
	case MODE_READ:
		break;
	}
	return mrt_read(&f->op, all->fd, all->bufs + (size_t)f->i * BLOCK, BLOCK,
			(int64_t)(bench_rand(&f->rand) % (FILE_BYTES / BLOCK) * BLOCK));
}

static enum mrt_poll ready_poll(struct mrt_task *self, void *frame)
{
	struct ready *f = frame;
	enum phase phase;

	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, start(f));
		if (f->op.res < 0)
			MRT_RETURN(self, f->op.res);
		/* relaxed: a flag; a poll more or less at the borders */
		phase = atomic_load_explicit(&f->all->phase, memory_order_relaxed);
		if (phase == PHASE_STOP)
			MRT_RETURN(self, 0);
		f->all->polls[f->i] += phase == PHASE_COUNT;
	}
}

struct root {
	struct mrt_op op;
	struct mrt_scope scope;
	struct all *all;
	struct mrt_op *joined;
};

static enum mrt_poll root_poll(struct mrt_task *self, void *frame)
{
	struct root *f = frame;
	struct ready r;
	int err;

	MRT_BEGIN(self);
	mrt_scope_init(&f->scope, 0);
	memset(&r, 0, sizeof(r));
	r.all = f->all;
	for (r.i = 0; r.i < TASKS; r.i++) {
		r.rand = r.i + 1;
		err = mrt_scope_spawn(&f->scope, ready_poll, &r, sizeof(r), NULL);
		if (err)
			MRT_RETURN(self, err);
	}
	f->joined = mrt_scope_join(&f->scope);
	MRT_AWAIT(self, f->joined);
	MRT_RETURN(self, f->joined->res);
}

/* The current-thread runtime needs this thread: another one looks on. */
struct clock {
	const struct bench_pass *p;
	struct all *all;
	double ready_max;
};

static double ready_now(struct mrt_runtime *rt)
{
	struct mrt_global_stats global;
	struct mrt_worker_stats s;
	double total = 0;
	unsigned i;

	for (i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		(void)mrt_stats_get(rt, i, &s); /* the worker exists */
		total += s.cq_ready > s.local_queue + s.yielded ? s.cq_ready : s.local_queue + s.yielded;
	}
	(void)mrt_stats_global_get(rt, &global); /* rt is valid */
	return total + (double)global.inject_depth;
}

static void *clock_main(void *arg)
{
	struct clock *c = arg;
	uint64_t end;
	double ready;

	bench_pin(c->p->b->cpus, c->p->b->cpus_nr);
	bench_sleep_ns(WARM_NS);
	atomic_store_explicit(&c->all->phase, PHASE_COUNT, memory_order_relaxed);
	end = mrt_now() + WINDOW_NS;
	do {
		bench_sleep_ns(SAMPLE_NS);
		ready = ready_now(c->p->rt);
		if (ready > c->ready_max)
			c->ready_max = ready;
	} while (mrt_now() < end);
	atomic_store_explicit(&c->all->phase, PHASE_STOP, memory_order_relaxed);
	return NULL;
}

static void run(const struct bench_pass *p, enum mode mode, double *ret)
{
	struct all *all = bench_alloc(1, sizeof(*all));
	struct clock c = { .p = p, .all = all };
	struct root root = { .all = all };
	double sum = 0;
	pthread_t id;
	unsigned i;

	all->mode = mode;
	all->fd = -1;
	if (mode == MODE_READ) {
		all->fd = bench_file(p->b, FILE_BYTES);
		all->bufs = bench_alloc_touched(TASKS, BLOCK);
	}
	if (pthread_create(&id, NULL, clock_main, &c))
		bench_die("pthread_create failed");
	bench_block_on(p->rt, root_poll, &root, sizeof(root));
	(void)pthread_join(id, NULL); /* ours */
	ret[0] = ret[1] = (double)all->polls[0];
	for (i = 0; i < TASKS; i++) {
		double n = (double)all->polls[i];

		sum += n;
		ret[0] = n < ret[0] ? n : ret[0];
		ret[1] = n > ret[1] ? n : ret[1];
	}
	if (sum < 10.0 * TASKS)
		bench_die("fair: only %.0f polls: too few to judge", sum);
	ret[0] /= sum / TASKS;
	ret[1] /= sum / TASKS;
	ret[2] = c.ready_max;
	ret[3] = (double)WINDOW_NS * p->workers_nr / sum;
	if (mode == MODE_READ) {
		(void)close(all->fd); /* only read */
		free(all->bufs);
	}
	free(all);
}

static void pass_yield(const struct bench_pass *p, double *ret)
{
	run(p, MODE_YIELD, ret);
}

static void pass_nop(const struct bench_pass *p, double *ret)
{
	run(p, MODE_NOP, ret);
}

static void pass_read(const struct bench_pass *p, double *ret)
{
	run(p, MODE_READ, ret);
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "fair_yield_min", "of_mean" }, { "fair_yield_max", "of_mean" }, { "fair_yield_ready", "tasks" },
		    { "fair_yield", "ns/poll" } }, .variants = BENCH_ALL, .no_warm_up = true, .pass = pass_yield },
		{ { { "fair_nop_min", "of_mean" }, { "fair_nop_max", "of_mean" }, { "fair_nop_ready", "tasks" },
		    { "fair_nop", "ns/poll" } }, .variants = BENCH_ALL, .no_warm_up = true, .pass = pass_nop },
		{ { { "fair_read_min", "of_mean" }, { "fair_read_max", "of_mean" }, { "fair_read_ready", "tasks" },
		    { "fair_read", "ns/poll" } }, .variants = BENCH_ALL, .no_warm_up = true, .pass = pass_read },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
