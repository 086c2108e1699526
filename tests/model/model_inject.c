/* SPDX-License-Identifier: MIT */
/*
 * Model of the inject queue (src/sched/inject.c): pushers, poppers and one who only looks, all at once. What it does for going
 * to sleep is in model_park.c.
 *
 * Proven at this scale: no task is lost or taken twice; tasks of one pusher come in its order, from pop to pop too; nobody,
 * looking or popping, finds the queue empty while a task is in it for certain; at rest the length, the published depth and
 * the tasks left agree. Without either half of [INJECT.nr.move] (see real_inject.h) a look finds an empty queue.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "model.h"
#include "real_inject.h"

#define PUSHERS_MAX 2u
#define POPPERS_MAX 2u
#define PUSHES_MAX 3u
#define BATCH_MAX 3u
#define TASKS_MAX (PUSHES_MAX * BATCH_MAX)      /* of one pusher */

/* Threads: pushers, poppers, the looker. */
struct config {
	unsigned pushers_nr;
	unsigned pushes[PUSHES_MAX];    /* tasks in each push of a pusher; 0: no more */
	unsigned poppers_nr;
	unsigned pops[2];               /* the most that each pop of a popper takes; 0: no more */
	unsigned looks_nr;
	bool moves_backwards, looks_backwards;
};

struct job {
	struct mrt_task task;
	unsigned pusher, number;        /* the pusher's numbers begin with 1 */
	bool taken;
};

static struct {
	struct mrt__inject q;
	uint64_t depth;
	struct job jobs[PUSHERS_MAX][TASKS_MAX];
	unsigned begun_nr, pushed_nr;   /* tasks whose push has begun, and has returned */
	unsigned claimed_nr, taken_nr;  /* the most that pops may have taken, and what those that returned have */
	unsigned last[PUSHERS_MAX];     /* the highest number that a pop has returned */
} world;

static const struct config *config_of(const void *arg)
{
	return arg;
}

static void setup(const void *arg)
{
	const struct config *c = config_of(arg);
	unsigned p, i;

	memset(&world, 0, sizeof(world));
	mrt__inject_init(&world.q, &world.depth);
	inject_order.moves_backwards = c->moves_backwards;
	inject_order.looks_backwards = c->looks_backwards;
	for (p = 0; p < PUSHERS_MAX; p++) {
		for (i = 0; i < TASKS_MAX; i++)
			world.jobs[p][i] = (struct job){ .pusher = p, .number = i + 1 };
	}
}

static void pusher(const struct config *c, unsigned p)
{
	struct mrt_task *batch[BATCH_MAX];
	unsigned i, k, next = 0;

	for (i = 0; i < PUSHES_MAX && c->pushes[i]; i++) {
		for (k = 0; k < c->pushes[i]; k++)
			batch[k] = &world.jobs[p][next++].task;
		world.begun_nr += c->pushes[i];
		mrt__inject_push(&world.q, batch, c->pushes[i]);
		world.pushed_nr += c->pushes[i];
	}
}

/* One pop, and what must hold of it. */
static void pop(unsigned max)
{
	struct mrt_task *batch[TASKS_MAX];
	unsigned before[PUSHERS_MAX], pushed_nr = world.pushed_nr, p;
	size_t nr, i;

	memcpy(before, world.last, sizeof(before));
	world.claimed_nr += max;
	nr = mrt__inject_pop(&world.q, batch, max);
	mdl_assert(nr <= max);
	/* the others' claims may have been met before; max of them are this pop's */
	mdl_assert(nr > 0 || pushed_nr <= world.claimed_nr - max);
	world.claimed_nr -= max - (unsigned)nr;
	world.taken_nr += (unsigned)nr;
	for (i = 0; i < nr; i++) {
		struct job *job = mrt__container_of(batch[i], struct job, task);

		p = job->pusher;
		mdl_assert(!job->taken && job->number > before[p]);
		job->taken = true;
		before[p] = job->number;
		world.last[p] = mrt__max(world.last[p], job->number);
	}
}

static void popper(const struct config *c)
{
	unsigned i;

	for (i = 0; i < MRT__ARRAY_NR(c->pops) && c->pops[i]; i++)
		pop(c->pops[i]);
}

static void looker(const struct config *c)
{
	unsigned i, pushed_nr, taken_nr;
	size_t len;

	for (i = 0; i < c->looks_nr; i++) {
		pushed_nr = world.pushed_nr;
		taken_nr = world.taken_nr;
		len = mrt__inject_len(&world.q);
		mdl_assert(len > 0 || pushed_nr <= world.claimed_nr);
		/* what is moved meanwhile may count twice */
		mdl_assert(len <= 2 * (size_t)(world.begun_nr - taken_nr));
	}
}

static void run(unsigned thread, const void *arg)
{
	const struct config *c = config_of(arg);

	if (thread < c->pushers_nr)
		pusher(c, thread);
	else if (thread < c->pushers_nr + c->poppers_nr)
		popper(c);
	else
		looker(c);
}

static void check(const void *arg)
{
	unsigned left = world.pushed_nr - world.taken_nr;

	(void)arg;
	mdl_assert(mrt__inject_len(&world.q) == left && world.depth == left);
	pop(TASKS_MAX * PUSHERS_MAX);
	mdl_assert(world.taken_nr == world.pushed_nr);
	mdl_assert(mrt__inject_len(&world.q) == 0 && world.depth == 0);
	mdl_assert(!world.q.in.head && !world.q.in.tail && !world.q.out.head && !world.q.out.tail);
}

#define TEST(test_name, nr, breaks, bound, ...) \
	{ .name = (test_name), .threads_nr = (nr), .arg = &(const struct config){ __VA_ARGS__ }, .setup = setup, \
	  .run = run, .check = check, .must_fail = (breaks), .preemptions = (bound) }

static const struct mdl_test tests[] = {
	TEST("push_pop", 2, false, 5, .pushers_nr = 1, .pushes = { 2, 1 }, .poppers_nr = 1, .pops = { 1, 2 }),
	TEST("push_push_pop", 3, false, 3, .pushers_nr = 2, .pushes = { 2, 1 }, .poppers_nr = 1, .pops = { 1, 4 }),
	TEST("push_pop_pop", 3, false, 3, .pushers_nr = 1, .pushes = { 1, 2 }, .poppers_nr = 2, .pops = { 1, 2 }),
	TEST("push_push_pop_pop", 4, false, 3, .pushers_nr = 2, .pushes = { 1, 2 }, .poppers_nr = 2, .pops = { 2, 2 }),
	TEST("push_pop_look", 3, false, 4, .pushers_nr = 1, .pushes = { 3 }, .poppers_nr = 1, .pops = { 1, 1 }, .looks_nr = 2),
	TEST("push_pop_look, moves backwards", 3, true, 4, .pushers_nr = 1, .pushes = { 3 }, .poppers_nr = 1,
	     .pops = { 1, 1 }, .looks_nr = 2, .moves_backwards = true),
	TEST("push_pop_look, looks backwards", 3, true, 4, .pushers_nr = 1, .pushes = { 3 }, .poppers_nr = 1,
	     .pops = { 1, 1 }, .looks_nr = 2, .looks_backwards = true),
	TEST("push_pop_pop_look", 4, false, 3, .pushers_nr = 1, .pushes = { 2, 2 }, .poppers_nr = 2, .pops = { 1 },
	     .looks_nr = 2),
};

int main(void)
{
	return mdl_main(tests, MRT__ARRAY_NR(tests));
}
