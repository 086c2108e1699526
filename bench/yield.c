/* SPDX-License-Identifier: MIT */
/*
 * yield_many: a plain thread spawns 200 tasks, each yields 5,000 times; until all have ended. ns a yield.
 */
#include "bench.h"

#define TASKS 200u
#define YIELDS 5000u

struct yielder {
	struct mrt_op op;
	unsigned left;
};

static enum mrt_poll yielder_poll(struct mrt_task *self, void *frame)
{
	struct yielder *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

struct joins {
	struct mrt_op op;
	struct mrt_task **tasks;
	unsigned i;
};

static enum mrt_poll joins_poll(struct mrt_task *self, void *frame)
{
	struct joins *f = frame;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < TASKS; f->i++)
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
	MRT_RETURN(self, 0);
}

static void pass_yield_many(const struct bench_pass *p, double *ret)
{
	struct yielder f = { .left = YIELDS };
	struct mrt_task *tasks[TASKS];
	struct joins j = { .tasks = tasks };
	uint64_t start = mrt_now();
	unsigned i;

	for (i = 0; i < TASKS; i++)
		bench_spawn(p->rt, yielder_poll, &f, sizeof(f), &tasks[i]);
	bench_block_on(p->rt, joins_poll, &j, sizeof(j));
	ret[0] = (double)(mrt_now() - start) / (TASKS * YIELDS);
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "yield_many", "ns/yield" } }, .variants = BENCH_ALL, .pass = pass_yield_many },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
