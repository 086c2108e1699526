/* SPDX-License-Identifier: MIT */
/*
 * Model of the local queue (src/sched/runq.c) with 4 slots: the four queue models that Tokio runs under loom, and the
 * next slot, each also with indices that wrap at 2^32. Proven, within model.h's limits: every task is taken exactly
 * once, from whichever place it ends in; the owner takes in order; the queue is consistent at rest.
 */
#include <stddef.h>

#include "base/compiler.h"
#include "model.h"
#include "sched/runq.h"

_Static_assert(MRT__RUNQ_SLOTS == 4, "build with -DMRT__RUNQ_SLOTS=4");

#define TASKS_MAX 16u
#define QUEUES_NR 4u

struct mrt_task {
	bool taken;
};

struct world {
	struct mrt_task tasks[TASKS_MAX];
	unsigned made_nr, taken_nr;
	struct mrt__runq q[QUEUES_NR];
	struct mrt_task *inject[TASKS_MAX];     /* what the pushes handed out */
	unsigned inject_nr, overflows_nr;
	struct mrt_task *owner_last;            /* for the order of the owner's pops */
};

static struct world world;

static const uint32_t start_zero = 0, start_wrap = UINT32_MAX - 2;

static struct mrt_task *make_task(void)
{
	mdl_assert(world.made_nr < TASKS_MAX);
	return &world.tasks[world.made_nr++];
}

static void take(struct mrt_task *task)
{
	mdl_assert(task >= world.tasks && task < world.tasks + world.made_nr);
	mdl_assert(!task->taken);
	task->taken = true;
	world.taken_nr++;
}

static void push(struct mrt__runq *q, struct mrt_task *task)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr = 0, i;

	if (mrt__runq_push(q, task, batch, &nr) == MRT__RUNQ_PUSHED)
		return;
	mdl_assert(nr == 1 || nr == MRT__RUNQ_BATCH_MAX);
	mdl_assert(batch[nr - 1] == task);
	world.overflows_nr++;
	for (i = 0; i < nr; i++)
		world.inject[world.inject_nr++] = batch[i];
}

static bool pop(struct mrt__runq *q)
{
	struct mrt_task *task = mrt__runq_pop(q);

	if (task != NULL)
		take(task);
	return task != NULL;
}

/* As pop, for a queue that is filled by pushes only: those come out in the order in which they went in. */
static bool pop_in_order(struct mrt__runq *q)
{
	struct mrt_task *task = mrt__runq_pop(q);

	if (task == NULL)
		return false;
	mdl_assert(world.owner_last == NULL || task > world.owner_last);
	world.owner_last = task;
	take(task);
	return true;
}

/* Steal once and empty what came. */
static void steal_and_drain(struct mrt__runq *victim, struct mrt__runq *mine)
{
	unsigned nr = 0, left = 0;
	struct mrt_task *task = mrt__runq_steal(victim, mine, &nr);

	if (task == NULL)
		return;
	mdl_assert(nr >= 1 && nr <= MRT__RUNQ_SLOTS / 2);
	take(task);
	while (pop(mine))
		left++;
	mdl_assert(left == nr - 1);
}

static void setup(const void *arg)
{
	unsigned i;

	world = (struct world){ .made_nr = 0 };
	for (i = 0; i < QUEUES_NR; i++)
		mrt__runq_init(&world.q[i], *(const uint32_t *)arg, false);
}

/* All that is left anywhere, then the sum. */
static void check(const void *arg)
{
	struct mrt_task *task;
	unsigned i;

	(void)arg;
	for (i = 0; i < QUEUES_NR; i++) {
		mdl_assert(mrt__runq_check(&world.q[i], stdout));
		while (pop(&world.q[i]))
			;
		task = mrt__runq_next_take(&world.q[i]);
		if (task != NULL)
			take(task);
	}
	for (i = 0; i < world.inject_nr; i++)
		take(world.inject[i]);
	mdl_assert(world.taken_nr == world.made_nr);
}

/* Tokio `basic`: owner 2 x (2 pushes, pop, push, drain), one thief with 3 tries. */
static void basic_run(unsigned thread, const void *arg)
{
	unsigned i;

	(void)arg;
	if (thread == 1) {
		for (i = 0; i < 3; i++)
			steal_and_drain(&world.q[0], &world.q[1]);
		return;
	}
	for (i = 0; i < 2; i++) {
		push(&world.q[0], make_task());
		push(&world.q[0], make_task());
		(void)pop_in_order(&world.q[0]); /* a thief may have been faster */
		push(&world.q[0], make_task());
		while (pop_in_order(&world.q[0]))
			;
	}
	mdl_assert(world.made_nr == 6);
}

/* Tokio `steal_overflow`: push, pop, then 6 pushes, which must overflow unless the thief makes room. */
static void steal_overflow_run(unsigned thread, const void *arg)
{
	unsigned i;

	(void)arg;
	if (thread == 1) {
		steal_and_drain(&world.q[0], &world.q[1]);
		return;
	}
	push(&world.q[0], make_task());
	(void)pop_in_order(&world.q[0]); /* a thief may have been faster */
	for (i = 0; i < 6; i++)
		push(&world.q[0], make_task());
	while (pop_in_order(&world.q[0]))
		;
	mdl_assert(world.made_nr == 7);
}

/* Tokio `multi_stealer`: 5 tasks, 2 thieves, and the owner pops. */
static void multi_stealer_setup(const void *arg)
{
	unsigned i;

	setup(arg);
	for (i = 0; i < 5; i++)
		push(&world.q[0], make_task());
	mdl_assert(world.overflows_nr == 1 && world.inject_nr == 3);
}

static void multi_stealer_run(unsigned thread, const void *arg)
{
	(void)arg;
	if (thread != 0) {
		steal_and_drain(&world.q[0], &world.q[thread]);
		return;
	}
	while (pop_in_order(&world.q[0]))
		;
}

/* The same with a full queue, so that there is something for both thieves, and the owner pushes as well. */
static void full_two_thieves_setup(const void *arg)
{
	unsigned i;

	setup(arg);
	for (i = 0; i < 4; i++)
		push(&world.q[0], make_task());
	mdl_assert(world.overflows_nr == 0);
}

static void full_two_thieves_run(unsigned thread, const void *arg)
{
	(void)arg;
	if (thread != 0) {
		steal_and_drain(&world.q[0], &world.q[thread]);
		return;
	}
	push(&world.q[0], make_task());
	(void)pop_in_order(&world.q[0]); /* thieves may have been faster */
	push(&world.q[0], make_task());
}

/* Tokio `chained_steal`: somebody steals from queue 0 while its owner steals from queue 1. */
static void chained_steal_setup(const void *arg)
{
	unsigned i;

	setup(arg);
	for (i = 0; i < 4; i++) {
		push(&world.q[0], make_task());
		push(&world.q[1], make_task());
	}
}

static void chained_steal_run(unsigned thread, const void *arg)
{
	unsigned nr = 0;
	struct mrt_task *task;

	(void)arg;
	if (thread == 1) {
		steal_and_drain(&world.q[0], &world.q[2]);
		return;
	}
	while (pop(&world.q[0]))
		;
	/* refused while the thief's claim still holds more than half of the slots */
	task = mrt__runq_steal(&world.q[1], &world.q[0], &nr);
	if (task != NULL) {
		mdl_assert(nr == 2);
		take(task);
	}
	while (pop(&world.q[0]))
		;
	while (pop(&world.q[1]))
		;
}

/* Three in a ring: the thief of queue 0 is stolen from at the same time. */
static void ring_steal_setup(const void *arg)
{
	unsigned i;

	setup(arg);
	for (i = 0; i < 3; i++) {
		push(&world.q[0], make_task());
		if (i < 2)
			push(&world.q[1], make_task());
	}
}

static void ring_steal_run(unsigned thread, const void *arg)
{
	unsigned nr = 0;
	struct mrt_task *task;

	(void)arg;
	if (thread == 0) {
		(void)pop(&world.q[0]); /* a thief may have been faster */
		push(&world.q[0], make_task());
		return;
	}
	/* 1 steals from 0; 2 steals from 1 */
	task = mrt__runq_steal(&world.q[thread - 1], &world.q[thread], &nr);
	if (task != NULL)
		take(task);
	(void)pop(&world.q[thread]); /* a thief may have been faster */
}

/* The owner fills and replaces its next slot while a thief takes from it in a last pass. */
static void next_slot_run(unsigned thread, const void *arg)
{
	struct mrt_task *task;
	unsigned i;

	(void)arg;
	if (thread != 0) {
		for (i = 0; i < 2; i++) {
			task = mrt__runq_next_take(&world.q[0]);
			if (task != NULL)
				take(task);
			else
				steal_and_drain(&world.q[0], &world.q[thread]);
		}
		return;
	}
	for (i = 0; i < 3; i++) {
		task = mrt__runq_next_swap(&world.q[0], make_task());
		if (task != NULL)
			push(&world.q[0], task);
	}
	task = mrt__runq_next_take(&world.q[0]);
	if (task != NULL)
		take(task);
}

#define BOTH(test, nr, setup_fn) \
	{ .name = #test, .threads_nr = (nr), .arg = &start_zero, .setup = (setup_fn), .run = test##_run, \
	  .check = check }, \
	{ .name = #test " near 2^32", .threads_nr = (nr), .arg = &start_wrap, .setup = (setup_fn), \
	  .run = test##_run, .check = check }

static const struct mdl_test tests[] = {
	BOTH(basic, 2, setup),
	BOTH(steal_overflow, 2, setup),
	BOTH(multi_stealer, 3, multi_stealer_setup),
	BOTH(full_two_thieves, 3, full_two_thieves_setup),
	BOTH(chained_steal, 2, chained_steal_setup),
	BOTH(ring_steal, 3, ring_steal_setup),
	BOTH(next_slot, 3, setup),
};

int main(void)
{
	return mdl_main(tests, MRT__ARRAY_NR(tests));
}
