/* SPDX-License-Identifier: MIT */
/*
 * Model of a task's end: the join word and the references (src/sched/task.h). One thread ends the task as task.c does; of the
 * others one may have the handle, and those with an x a reference of their own. They do with it what their letter says:
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
	bool end_blind;                 /* where nobody waits the end drops the reference, too */
	bool detach_blind;              /* a detach drops the reference, whether the task has ended or not */
	bool detach_silent;             /* a detach that comes first says nothing */
	bool told_blind;                /* the end drops the reference, too, where it has told a thread */
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

static bool has_handle(const struct config *c)
{
	return c->solo_joins || strpbrk(c->others, "jctd");
}

static void setup(const void *arg)
{
	const struct config *c = config_of(arg);
	struct mrt_task *t = &world.task;
	const char *other;

	memset(&world, 0, sizeof(world));
	atomic_init(&t->refs, 1);
	for (other = c->others; *other; other++)
		if (*other == 'x')
			mrt__task_ref(t);
	atomic_init(&t->join, has_handle(c) ? 0 : MRT__JOIN_DETACHED);
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

/* mrt_detach() */
static void detach(const struct config *c, struct mrt_task *t)
{
	touch();
	if (c->detach_silent ? mrt__task_join_is_closed(t) : mrt__task_drop_handle(t) || c->detach_blind)
		unref(t);
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

/* mrt__task_finish() */
static void end(const struct config *c)
{
	struct mrt_task *t = &world.task;
	uintptr_t join;

	touch();
	world.ended = true;
	join = mrt__task_close_join(t);
	if (join == MRT__JOIN_DETACHED) {
		unref(t);
	} else if (join & MRT__JOIN_THREAD) {
		mdl_assert((join & ~MRT__JOIN_THREAD) == (uintptr_t)&world.waiter);
		touch();
		unref(t);
		world.thread_told = true;
		if (c->told_blind)
			unref(t);
	} else if (join) {
		mdl_assert((join & MRT__JOIN_PTR) == (uintptr_t)&world.op);
		touch();
		finish();
	} else if (c->end_blind) {
		unref(t);
	}
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
			detach(c, t);
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
		detach(c, &world.task);
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
	case 'd':
		detach(c, &world.task);
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
	TEST("detached_and_look", 2, false, .others = "x"),
	TEST("detach", 2, false, .others = "d"),
	TEST("detach, freed by its end", 2, true, .others = "d", .end_blind = true),
	TEST("detach, freed by it", 2, true, .others = "d", .detach_blind = true),
	TEST("detach, not told", 2, true, .others = "d", .detach_silent = true),
	TEST("detach_and_look", 3, false, .others = "dx"),
	TEST("join", 2, false, .others = "j"),
	TEST("join, freed by its end", 2, true, .others = "j", .end_blind = true),
	TEST("cancelled_join", 2, false, .others = "c"),
	TEST("cancelled_join, freed by its end", 2, true, .others = "c", .end_blind = true),
	TEST("join, as if by the only worker", 2, true, .others = "j", .own_blind = true),
	TEST("cancelled_join, as if by the only worker", 2, true, .others = "c", .own_blind = true),
	TEST("join_and_look", 3, false, .others = "jx"),
	TEST("cancelled_join_and_look", 3, false, .others = "cx"),
	TEST("join_by_thread", 2, false, .others = "t"),
	TEST("join_by_thread, freed by its end", 2, true, .others = "t", .told_blind = true),
	TEST("join_by_thread_and_look", 3, false, .others = "tx"),
	TEST("solo", 2, false, .others = "x", .solo = true, .solo_joins = true),
	TEST("solo_cancelled", 2, false, .others = "x", .solo = true, .solo_joins = true, .solo_cancels = true),
	TEST("solo_and_thread", 3, false, .others = "tx", .solo = true),
};

int main(void)
{
	return mdl_main(tests, MRT__ARRAY_NR(tests));
}
