/* SPDX-License-Identifier: MIT */
/*
 * Martlet in the shapes that its peers run too (docs/bench-peers.md says what each is). The reads are not here: that is
 * `martlet bench`.
 *
 * A pass runs twice, and the second one counts, as in every peer; what takes seconds or measures memory runs once.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "../bench.h"
#include "peer.h"

static struct mrt_runtime *runtime(const struct peer_args *a)
{
	static struct bench b; /* zero but for the CPUs */

	b.cpus_nr = bench_cpus(b.cpus);
	if (a->workers > 2) {
		fprintf(stderr, "martlet: 0, 1 or 2 workers\n");
		exit(2);
	}
	return bench_runtime(&b, a->workers == 0 ? BENCH_CT : a->workers == 1 ? BENCH_W1 : BENCH_W2);
}

/* The root of a shape: it counts what was done. */
struct root {
	const struct peer_args *a;
	uint64_t done;
};

/* Run a root twice on one runtime, print the second pass. Its frame begins with a struct root. */
static void run_twice(const struct peer_args *a, mrt_poll_fn fn, void *frame, size_t frame_bytes)
{
	struct mrt_runtime *rt = runtime(a);
	struct root *root = frame;
	struct peer_span s;
	unsigned i;

	for (i = 0; i < 2; i++) {
		memset(frame, 0, frame_bytes);
		root->a = a;
		s = peer_start();
		bench_block_on(rt, fn, frame, frame_bytes);
		peer_stop(&s);
	}
	peer_print(a, NULL, root->done, &s, "%s", "");
	mrt_runtime_destroy(rt);
}

/* ---- spawn and join ---- */

static enum mrt_poll empty_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_RETURN(self, 1);
}

struct joins {
	struct root root;
	struct mrt_op op;
	struct mrt_task *tasks[PEER_JOIN_ROUND];
	unsigned i;
};

static enum mrt_poll join_poll(struct mrt_task *self, void *frame)
{
	struct joins *f = frame;

	MRT_BEGIN(self);
	while (f->root.done < f->root.a->n) {
		bench_spawn(NULL, empty_poll, NULL, 0, &f->tasks[0]);
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[0]));
		f->root.done += (uint64_t)f->op.res;
	}
	MRT_RETURN(self, 0);
}

static void spawn_join(const struct peer_args *a)
{
	struct joins f;

	run_twice(a, join_poll, &f, sizeof(f));
}

static enum mrt_poll join_many_poll(struct mrt_task *self, void *frame)
{
	struct joins *f = frame;

	MRT_BEGIN(self);
	while (f->root.done < f->root.a->n) {
		for (f->i = 0; f->i < PEER_JOIN_ROUND; f->i++)
			bench_spawn(NULL, empty_poll, NULL, 0, &f->tasks[f->i]);
		for (f->i = 0; f->i < PEER_JOIN_ROUND; f->i++) {
			MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
			f->root.done += (uint64_t)f->op.res;
		}
	}
	MRT_RETURN(self, 0);
}

static void spawn_join_many(const struct peer_args *a)
{
	struct joins f;

	run_twice(a, join_many_poll, &f, sizeof(f));
}

/* ---- yield ---- */

struct yielder {
	struct mrt_op op;
	uint64_t left, done;
};

static enum mrt_poll yielder_poll(struct mrt_task *self, void *frame)
{
	struct yielder *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_yield(&f->op));
		f->done++;
	}
	MRT_RETURN(self, (int64_t)f->done);
}

struct yields {
	struct root root;
	struct mrt_op op;
	struct mrt_task *tasks[PEER_YIELDERS];
	unsigned i;
};

static enum mrt_poll yields_poll(struct mrt_task *self, void *frame)
{
	struct yields *f = frame;
	struct yielder y;

	MRT_BEGIN(self);
	memset(&y, 0, sizeof(y));
	y.left = f->root.a->n / PEER_YIELDERS;
	for (f->i = 0; f->i < PEER_YIELDERS; f->i++)
		bench_spawn(NULL, yielder_poll, &y, sizeof(y), &f->tasks[f->i]);
	for (f->i = 0; f->i < PEER_YIELDERS; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		f->root.done += (uint64_t)f->op.res;
	}
	MRT_RETURN(self, 0);
}

static void yield(const struct peer_args *a)
{
	struct yields f;

	run_twice(a, yields_poll, &f, sizeof(f));
}

int main(int argc, char **argv)
{
	static const struct peer_shape shapes[] = {
		{ "spawn_join", spawn_join },
		{ "spawn_join_many", spawn_join_many },
		{ "yield", yield },
	};

	return peer_main("martlet", shapes, BENCH_NR(shapes), argc, argv);
}
