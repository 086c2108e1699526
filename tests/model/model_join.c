/* SPDX-License-Identifier: MIT */
/*
 * Model of a task's end: references and the join word (src/sched/task.h). One thread ends the task as task.c does; the others
 * have a reference each, and do with it what their letter says:
 *
 *	j  joins by an op, and waits
 *	c  joins by an op, and cancels it
 *	t  joins as a thread outside, and waits
 *	d  detaches
 *	x  has looked at the task, and is done with it
 *
 * With `solo` the ending thread is the only worker: a join by an op is its own, begun before, and the others are threads outside.
 * The functions of the two words are the real ones.
 *
 * Proven: the cell is freed once, by the last who uses it, and nobody touches it afterwards; who waits is told once; a join that
 * was cancelled still has its handle. Each rule is also broken once, and the model must find that.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "model.h"
#include "sched/task.h"

struct config {
	const char *others;             /* a letter for each thread but the first */
	bool solo;
	bool solo_joins;
	bool solo_cancels;              /* ... its join, before the end */
	/* broken rules */
	bool own_blind;                 /* several workers, but who joins does so as if there were one */
	bool merge_blind;               /* our reference goes with the op's, whoever else has one */
	bool end_blind;                 /* who has no joiner is freed by its end */
};

static struct {
	struct mrt_task task;
	struct mrt__op op;
	unsigned waiter;                /* of a thread outside: its address */
	bool held;                      /* the joining task has a holder, its thread */
	bool pushed, thread_told;
	unsigned delivered_nr, cancelled_nr;
	bool ended, freed;
} world;

static const struct config *config_of(const void *arg)
{
	return arg;
}

static void setup(const void *arg)
{
	const struct config *c = config_of(arg);
	struct mrt_task *t = &world.task;

	memset(&world, 0, sizeof(world));
	/* the runtime's, one for each, and that of the join that is begun here */
	atomic_init(&t->refs, 1 + (unsigned)strlen(c->others) + c->solo_joins);
	atomic_init(&t->join, 0);
	world.held = true;
}

static void touch(void)
{
	mdl_assert(!world.freed);
}

static void unref(struct mrt_task *t)
{
	touch();
	if (!mrt__task_drop_ref(t))
		return;
	mdl_point("free", "", __FILE__, __LINE__);
	mdl_assert(world.ended && !world.freed);
	world.freed = true;
}

static void deliver(void)
{
	touch();
	mdl_assert(world.ended);
	world.delivered_nr++;
	unref(&world.task);
}

/* mrt__op_finish(): by whoever has the task */
static void finish(void)
{
	mdl_point("finish", "", __FILE__, __LINE__);
	if (world.held)
		world.pushed = true;
	else
		deliver();
}

/* end_task() */
static void end(const struct config *c)
{
	struct mrt_task *t = &world.task;
	uintptr_t join;

	touch();
	world.ended = true;
	if (mrt__task_is_last_ref(t)) {
		unref(t);
		return;
	}
	join = mrt__task_close_join(t);
	if (join & MRT__JOIN_THREAD) {
		mdl_assert((join & ~MRT__JOIN_THREAD) == (uintptr_t)&world.waiter);
		touch();
		unref(t);
		world.thread_told = true;
	} else if (join) {
		mdl_assert((join & MRT__JOIN_PTR) == (uintptr_t)&world.op);
		touch();
		if (c->merge_blind)
			atomic_store_explicit(&t->refs, 1, memory_order_release);
		else if (!mrt__task_merge_refs(t))
			join = 0;
		finish();
		if (join)
			return;
	}
	if (c->end_blind) {
		touch();
		world.freed = true;
		return;
	}
	unref(t);
}

static bool is_pushed(const void *arg)
{
	(void)arg;
	return world.pushed;
}

static bool is_told(const void *arg)
{
	(void)arg;
	return world.thread_told;
}

static void join_by_op(const struct config *c, bool cancels)
{
	struct mrt_task *t = &world.task;
	uintptr_t old;

	touch();
	old = mrt__task_wait_join(t, (uintptr_t)&world.op | (c->own_blind ? MRT__JOIN_OWN : 0));
	if (old) {
		mdl_assert(old == MRT__JOIN_ENDED);
		deliver();
		return;
	}
	if (cancels) {
		touch();
		if (mrt__task_cancel_join(t, &world.op)) {
			world.cancelled_nr++;
			unref(t); /* the handle, by mrt_detach() */
			return;
		}
		mdl_wait(is_pushed, NULL); /* the end has it */
	}
	/* lets go, unless something came */
	mdl_point("let go", "", __FILE__, __LINE__);
	if (world.pushed)
		deliver();
	else
		world.held = false;
}

static void join_by_thread(void)
{
	uintptr_t old = mrt__task_wait_join(&world.task, (uintptr_t)&world.waiter | MRT__JOIN_THREAD);

	if (!old) {
		mdl_wait(is_told, NULL);
		world.delivered_nr++;
	} else {
		mdl_assert(old == MRT__JOIN_ENDED);
		deliver();
	}
}

static void run_solo(const struct config *c)
{
	if (c->solo_joins)
		mdl_assert(mrt__task_wait_join(&world.task, (uintptr_t)&world.op | MRT__JOIN_OWN) == 0);
	if (c->solo_cancels && mrt__task_cancel_join(&world.task, &world.op)) {
		world.cancelled_nr++;
		unref(&world.task);
	} else {
		world.held = false;
	}
	end(c);
}

static void run(unsigned thread, const void *arg)
{
	const struct config *c = config_of(arg);

	if (thread == 0) {
		if (c->solo)
			run_solo(c);
		else
			end(c);
		return;
	}
	switch (c->others[thread - 1]) {
	case 'j':
	case 'c':
		join_by_op(c, c->others[thread - 1] == 'c');
		break;
	case 't':
		join_by_thread();
		break;
	default:
		unref(&world.task);
	}
}

static void check(const void *arg)
{
	const struct config *c = config_of(arg);
	unsigned joins = c->solo_joins || strpbrk(c->others, "jct") ? 1 : 0;

	mdl_assert(world.ended && world.freed);
	mdl_assert(world.delivered_nr + world.cancelled_nr == joins);
}

#define TEST(test_name, nr, breaks, ...) \
	{ .name = (test_name), .threads_nr = (nr), .arg = &(const struct config){ __VA_ARGS__ }, .setup = setup, \
	  .run = run, .check = check, .must_fail = (breaks), .preemptions = -1 }

static const struct mdl_test tests[] = {
	TEST("detached", 1, false, .others = ""),
	TEST("detach", 2, false, .others = "d"),
	TEST("detach, freed by its end", 2, true, .others = "d", .end_blind = true),
	TEST("join", 2, false, .others = "j"),
	TEST("join, freed by its end", 2, true, .others = "j", .end_blind = true),
	TEST("cancelled_join", 2, false, .others = "c"),
	TEST("join, as if by the only worker", 2, true, .others = "j", .own_blind = true),
	TEST("cancelled_join, as if by the only worker", 2, true, .others = "c", .own_blind = true),
	TEST("join_and_look", 3, false, .others = "jx"),
	TEST("join_and_look, merged blindly", 3, true, .others = "jx", .merge_blind = true),
	TEST("cancelled_join_and_look", 3, false, .others = "cx"),
	TEST("join_by_thread", 2, false, .others = "t"),
	TEST("join_by_thread_and_look", 3, false, .others = "tx"),
	TEST("solo", 2, false, .others = "x", .solo = true, .solo_joins = true),
	TEST("solo_cancelled", 2, false, .others = "x", .solo = true, .solo_joins = true, .solo_cancels = true),
	TEST("solo, merged blindly", 2, true, .others = "x", .solo = true, .solo_joins = true, .merge_blind = true),
	TEST("solo_and_thread", 3, false, .others = "tx", .solo = true),
};

int main(void)
{
	return mdl_main(tests, MRT__ARRAY_NR(tests));
}
