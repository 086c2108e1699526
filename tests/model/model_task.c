/* SPDX-License-Identifier: MIT */
/*
 * Model of the task word (src/sched/task.h): one task, one or two workers that run it and steal it from each other, completers,
 * and an aborter. The word's functions are the real ones; around them stand the steps of task.c and op.c, reduced to the
 * order in which they use them. The task follows a program, a letter a poll:
 *
 *	y  yields, so that either worker may run it next
 *	r  starts an op of the ring of the worker that runs it, which that worker completes at some turn
 *	s  the same, but the op ends only if it is cancelled: an ask that is lost leaves it in flight for ever
 *	t  two such ops, the second of which the delivery of the first ends (a deadline, a sleep that it stands behind)
 *	c  starts the completers' ops, all at once
 *	d  the same, but these are completed only if they are cancelled
 *
 * Proven at this scale: never two holders (whoever touches what is the holder's enters a section; two in it are a failure);
 * no push and no ask is lost, or the task would not end, which the check at rest finds; each op is delivered once; the cell
 * is freed once, and nobody touches it afterwards. Each rule is also broken once, and the model must find that.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "model.h"
#include "sched/task.h"

#define WORKERS_MAX 2u
#define COMPLETERS_MAX 3u

/* Threads: workers, completers, the aborter. Worker 0 spawned the task. */
struct config {
	const char *program;
	unsigned workers_nr;
	unsigned completers_nr;
	unsigned outsiders_nr;          /* the first of the completers cannot deliver, and push */
	bool aborts;
	/* broken rules */
	bool claim_no_hold;             /* a completer takes what it finds idle, but sets no HELD */
	bool let_go_blind;              /* lets go without a look at what came */
	bool keep_blind;                /* sets the keeper with a store */
	bool keep_shared;               /* keeps a task that others complete, too */
	bool deliver_resting;           /* the keeper delivers to a task that still rests */
	bool keep_elsewhere;            /* takes any keeper in the word for itself */
	bool ask_no_tell;               /* an ask that meets HELD goes away, keeper or not */
	bool told_no_look;              /* the keeper reads a message, and does not look for RESTS */
	bool told_looks_late;           /* ... and looks when TOLD is gone */
	bool end_no_pin;                /* the ending holder does not look for a message */
	bool leave_early;               /* ... and leaves before the joiner is told */
};

struct ring {
	struct mrt__op op, behind;
	bool inflight, done;
};

static struct {
	struct mrt_task task;
	const char *at;                 /* the program's next letter */
	struct ring rings[WORKERS_MAX];
	struct mrt__op ops[COMPLETERS_MAX];
	bool go[COMPLETERS_MAX];        /* its completer may finish it */
	unsigned started_nr, delivered_nr;
	struct mrt_task *queue;         /* one for all: whoever is first takes it */
	struct mrt_task *told[WORKERS_MAX];
	bool in_section;
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
	unsigned i;

	memset(&world, 0, sizeof(world));
	atomic_init(&t->word, MRT__WORD_LIVE | MRT__WORD_HELD);
	atomic_init(&t->place, 0);
	for (i = 0; i < COMPLETERS_MAX; i++)
		world.ops[i].task = t;
	for (i = 0; i < WORKERS_MAX; i++)
		world.rings[i].op.task = world.rings[i].behind.task = t;
	world.at = c->program;
	world.queue = t;
}

/* The holder's section: between the two it touches what is its alone. */
static void enter(void)
{
	mdl_assert(!world.freed && !world.in_section);
	world.in_section = true;
	mdl_point("section", "", __FILE__, __LINE__);
}

static void leave(void)
{
	mdl_assert(!world.freed && world.in_section);
	world.in_section = false;
}

static void enqueue(struct mrt_task *t)
{
	mdl_point("enqueue", "", __FILE__, __LINE__);
	mdl_assert(!world.freed && world.queue == NULL);
	world.queue = t;
}

static void unref(void)
{
	mdl_assert(world.ended && !world.freed);
	world.freed = true;
}

/* ---- op.c ---- */

static void finish(const struct config *c, struct mrt__op *op, unsigned self, bool can_deliver);

/* @return the op that its delivery ends, NULL: none */
static struct mrt__op *ends_another(const struct mrt__op *op)
{
	unsigned w;

	for (w = 0; w < WORKERS_MAX; w++)
		if (op == &world.rings[w].op && world.rings[w].behind.state == MRT__OP_INFLIGHT)
			return &world.rings[w].behind;
	return NULL;
}

static void deliver(const struct config *c, struct mrt_task *t, struct mrt__op *op)
{
	struct mrt__op *other = ends_another(op);

	mdl_assert(op->state == MRT__OP_INFLIGHT && t->await_nr > 0);
	op->state = MRT__OP_DONE;
	t->await_nr--;
	world.delivered_nr++;
	if (other)
		finish(c, other, mrt__task_place(t), true);
}

static void hand_over(const struct config *c, struct mrt_task *t, struct mrt__op *op)
{
	bool runnable;

	enter();
	deliver(c, t, op);
	runnable = mrt__task_is_runnable(t);
	leave();
	if (runnable || !mrt__task_let_go(t))
		enqueue(t);
}

static void finish_kept(const struct config *c, struct mrt_task *t, struct mrt__op *op, unsigned w)
{
	mdl_assert(mrt__task_rests_at(t, (uint16_t)w));
	if (ends_another(op) && !c->deliver_resting) {
		mrt__task_set_place(t, (uint16_t)w);
		hand_over(c, t, op);
		return;
	}
	deliver(c, t, op);
	if (!mrt__task_is_runnable(t))
		return;
	mrt__task_set_place(t, (uint16_t)w);
	enqueue(t);
}

static bool claim(const struct config *c, struct mrt_task *t, struct mrt__op *op)
{
	if (c->claim_no_hold && !(atomic_load_explicit(&t->word, memory_order_relaxed) & MRT__WORD_HELD))
		return true;
	return mrt__task_hold_or_push(t, op) == MRT__CLAIM_HELD;
}

/* @param self  the worker that finishes it; a number that no worker has: a completer */
static void finish(const struct config *c, struct mrt__op *op, unsigned self, bool can_deliver)
{
	struct mrt_task *t = op->task;

	mdl_assert(!world.freed);
	if (mrt__task_rests(t)) {
		finish_kept(c, t, op, self);
		return;
	}
	if (!can_deliver) {
		if (mrt__task_push(t, op) == MRT__CLAIM_HELD)
			enqueue(t);
		return;
	}
	if (claim(c, t, op))
		hand_over(c, t, op);
}

/* ---- task.c ---- */

/* Whatever is in flight ends by this, if it would not end by itself. */
static void cancel_all(void)
{
	unsigned i;

	for (i = 0; i < WORKERS_MAX; i++)
		world.rings[i].done = world.rings[i].inflight;
	for (i = 0; i < COMPLETERS_MAX; i++)
		world.go[i] = world.ops[i].state != MRT__OP_IDLE;
}

static void collect(const struct config *c, struct mrt_task *t)
{
	while (mrt__task_has_news(t)) {
		uint64_t old = mrt__task_take(t);
		struct mrt__op *op = (struct mrt__op *)(uintptr_t)(old & MRT__WORD_PTR), *next;

		for (; op; op = next) {
			next = op->done_next;
			deliver(c, t, op);
		}
		if (old & MRT__WORD_ABORT) {
			t->flags |= MRT__TASKF_ABORTED;
			cancel_all();
		}
	}
}

static void start(struct mrt_task *t, struct mrt__op *op)
{
	mdl_assert(op->state != MRT__OP_INFLIGHT);
	op->state = MRT__OP_INFLIGHT;
	t->await_nr++;
	world.started_nr++;
}

static void start_ring_op(struct mrt_task *t, unsigned w, bool ends, bool two)
{
	t->flags &= ~MRT__TASKF_SHARED;
	if (two)
		start(t, &world.rings[w].behind);
	start(t, &world.rings[w].op);
	world.rings[w].inflight = true;
	world.rings[w].done = ends;
}

static void start_completers_ops(const struct config *c, struct mrt_task *t, bool end)
{
	unsigned i;

	t->flags |= MRT__TASKF_SHARED;
	for (i = 0; i < c->completers_nr; i++) {
		start(t, &world.ops[i]);
		world.go[i] = end;
	}
}

/* @return it yields */
static bool poll_task(const struct config *c, struct mrt_task *t, unsigned w)
{
	if (mrt__task_place(t) != w)
		mrt__task_set_place(t, (uint16_t)w);
	for (;;) {
		char letter = *world.at;

		if (letter == '\0') {
			t->flags |= MRT__TASKF_RETURNED;
			return false;
		}
		world.at++;
		if (letter == 'y')
			return true;
		if (t->flags & MRT__TASKF_ABORTED)
			continue; /* what it starts is refused */
		if (letter == 'r' || letter == 's' || letter == 't')
			start_ring_op(t, w, letter != 's', letter == 't');
		else
			start_completers_ops(c, t, letter == 'c');
		return false;
	}
}

static bool keep(const struct config *c, struct mrt_task *t, unsigned w)
{
	uint64_t word;

	if (!c->keep_blind && !c->keep_elsewhere)
		return mrt__task_keep(t, MRT__WORD_KEEPER_OF(w), (uint16_t)w);
	word = atomic_load_explicit(&t->word, memory_order_relaxed);
	if (word & (MRT__WORD_PTR | MRT__WORD_ABORT))
		return false;
	if (c->keep_elsewhere && !(word & MRT__WORD_KEEPER))
		return mrt__task_keep(t, MRT__WORD_KEEPER_OF(w), (uint16_t)w);
	if (c->keep_blind)
		atomic_store_explicit(&t->word, word | MRT__WORD_KEEPER_OF(w),
				      memory_order_relaxed);
	mrt__task_set_place(t, (uint16_t)w | MRT__PLACE_RESTS);
	return true;
}

static bool rest(const struct config *c, struct mrt_task *t, unsigned w)
{
	if ((c->keep_shared || !(t->flags & MRT__TASKF_SHARED)) && !(t->flags & MRT__TASKF_ABORTED) &&
	    mrt__task_place(t) == w)
		return keep(c, t, w);
	if (!c->let_go_blind)
		return mrt__task_let_go(t);
	(void)atomic_fetch_and_explicit(&t->word, ~(MRT__WORD_HELD | MRT__WORD_KEEPER), memory_order_release);
	return true;
}

static void end_task(const struct config *c, struct mrt_task *t)
{
	bool told, last = false;

	world.ended = true;
	told = mrt__task_end(t);
	if (told && c->leave_early)
		last = mrt__task_leave(t);
	mdl_point("tell the joiner", "", __FILE__, __LINE__);
	mdl_assert(!world.freed);
	if (told && !c->leave_early)
		last = mrt__task_leave(t);
	if (!told || last || c->end_no_pin)
		unref();
}

static void run_task(const struct config *c, struct mrt_task *t, unsigned w)
{
	bool yields = false;

	enter();
	collect(c, t);
	if (mrt__task_is_runnable(t))
		yields = poll_task(c, t, w);
	for (;;) {
		leave();
		if (t->flags & MRT__TASKF_RETURNED) {
			end_task(c, t);
			return;
		}
		if (yields) {
			enqueue(t);
			return;
		}
		if (rest(c, t, w))
			return;
		enter();
		collect(c, t);
		yields = mrt__task_is_runnable(t);
	}
}

static void read_message(const struct config *c, struct mrt_task *t, unsigned w)
{
	bool rests;

	mdl_assert(!world.freed);
	rests = !c->told_looks_late && mrt__task_rests_at(t, (uint16_t)w);
	if (mrt__task_end_told(t)) {
		unref();
		return;
	}
	if (c->told_looks_late) {
		mdl_point("look", "", __FILE__, __LINE__);
		mdl_assert(!world.freed);
		rests = mrt__task_rests_at(t, (uint16_t)w);
	}
	if (rests && !c->told_no_look) {
		mrt__task_set_place(t, (uint16_t)w);
		enqueue(t);
	}
}

static bool has_work(const void *arg)
{
	size_t w = (size_t)((const struct ring *)arg - world.rings);

	return world.queue || world.told[w] || (world.rings[w].inflight && world.rings[w].done);
}

/* A worker's turn: messages, its ring, one task. Messages may come in between. */
static void turn(const struct config *c, unsigned w)
{
	struct mrt_task *t = world.told[w];

	world.told[w] = NULL;
	if (t)
		read_message(c, t, w);
	mdl_point("reap", "", __FILE__, __LINE__);
	if (world.rings[w].inflight && world.rings[w].done) {
		world.rings[w].inflight = false;
		finish(c, &world.rings[w].op, w, true);
	}
	t = world.queue;
	world.queue = NULL;
	if (t)
		run_task(c, t, w);
}

static bool is_set(const void *arg)
{
	return *(const bool *)arg;
}

static void completer(const struct config *c, unsigned i)
{
	mdl_wait(is_set, &world.go[i]);
	finish(c, &world.ops[i], WORKERS_MAX, i >= c->outsiders_nr);
}

/* Like a walk: it has no reference, and before the ask the word is all that it may look at. */
static void aborter(const struct config *c)
{
	struct mrt_task *t = &world.task;
	unsigned keeper = WORKERS_MAX;

	switch (mrt__task_ask_abort(t, &keeper)) {
	case MRT__ASK_ENQUEUE:
		enqueue(t);
		break;
	case MRT__ASK_TELL:
		if (c->ask_no_tell)
			break;
		mdl_point("tell", "", __FILE__, __LINE__);
		mdl_assert(!world.freed && world.told[keeper] == NULL);
		world.told[keeper] = t;
		break;
	case MRT__ASK_NOTHING:
		break;
	}
}

static void run(unsigned thread, const void *arg)
{
	const struct config *c = config_of(arg);

	if (thread < c->workers_nr) {
		for (;;) {
			mdl_wait(has_work, &world.rings[thread]);
			turn(c, thread);
		}
	} else if (thread < c->workers_nr + c->completers_nr) {
		completer(c, thread - c->workers_nr);
	} else {
		aborter(c);
	}
}

/* All wait. */
static void check(const void *arg)
{
	(void)arg;
	mdl_assert(world.ended && world.freed);
	mdl_assert(world.delivered_nr == world.started_nr);
	mdl_assert(world.queue == NULL && world.told[0] == NULL && world.told[1] == NULL);
	/* the cell lives on in the model: its last word says ENDED and has nothing under way */
	mdl_assert((atomic_load_explicit(&world.task.word, memory_order_relaxed) & (MRT__WORD_PTR | MRT__WORD_TOLD | MRT__WORD_HELD)) == 0);
}

#define TEST(test_name, nr, breaks, bound, ...) \
	{ .name = (test_name), .threads_nr = (nr), .arg = &(const struct config){ __VA_ARGS__ }, .setup = setup, \
	  .run = run, .check = check, .may_rest = true, .must_fail = (breaks), .preemptions = (bound) }

#define ALL (-1)

static const struct mdl_test tests[] = {
	TEST("two_completers", 3, false, 6, .program = "c", .workers_nr = 1, .completers_nr = 2),
	TEST("completer_and_outsider", 3, false, 6, .program = "c", .workers_nr = 1, .completers_nr = 2,
	     .outsiders_nr = 1),
	TEST("three_completers", 4, false, 3, .program = "c", .workers_nr = 1, .completers_nr = 3, .outsiders_nr = 1),
	TEST("completers, no hold", 3, true, ALL, .program = "c", .workers_nr = 1, .completers_nr = 2,
	     .claim_no_hold = true),
	TEST("completers, let go blindly", 3, true, ALL, .program = "c", .workers_nr = 1, .completers_nr = 2,
	     .let_go_blind = true),
	TEST("completer_and_abort", 3, false, 6, .program = "cyy", .workers_nr = 1, .completers_nr = 1, .aborts = true),
	TEST("abort_ends_a_wait", 3, false, ALL, .program = "d", .workers_nr = 1, .completers_nr = 1, .aborts = true),
	TEST("abort_ends_a_wait, let go blindly", 3, true, ALL, .program = "d", .workers_nr = 1, .completers_nr = 1,
	     .aborts = true, .let_go_blind = true),
	TEST("keeper_and_abort", 2, false, ALL, .program = "rrs", .workers_nr = 1, .aborts = true),
	TEST("keeper_and_abort, not told", 2, true, ALL, .program = "rrs", .workers_nr = 1, .aborts = true,
	     .ask_no_tell = true),
	TEST("keeper_and_abort, set by a store", 2, true, ALL, .program = "rrs", .workers_nr = 1, .aborts = true,
	     .keep_blind = true),
	TEST("keeper_and_abort, no look for RESTS", 2, true, ALL, .program = "rrs", .workers_nr = 1, .aborts = true,
	     .told_no_look = true),
	TEST("keeper_and_end", 2, false, ALL, .program = "rry", .workers_nr = 1, .aborts = true),
	TEST("keeper_and_end, no pin", 2, true, ALL, .program = "rry", .workers_nr = 1, .aborts = true,
	     .end_no_pin = true),
	TEST("keeper_and_nested", 2, false, 6, .program = "tr", .workers_nr = 1, .aborts = true),
	TEST("keeper_and_nested, delivered while it rests", 2, true, ALL, .program = "tr", .workers_nr = 1, .aborts = true,
	     .deliver_resting = true),
	TEST("keeper_and_completer", 2, false, ALL, .program = "rcr", .workers_nr = 1, .completers_nr = 1),
	TEST("keeper_and_completer, kept all the same", 2, true, ALL, .program = "rcr", .workers_nr = 1,
	     .completers_nr = 1, .keep_shared = true),
	TEST("steal", 3, false, 4, .program = "ryrys", .workers_nr = 2, .aborts = true),
	TEST("steal, any keeper is mine", 3, true, 4, .program = "ryrys", .workers_nr = 2, .aborts = true,
	     .keep_elsewhere = true),
	TEST("steal_and_end", 3, false, 4, .program = "ryry", .workers_nr = 2, .aborts = true),
	TEST("steal_and_end, no pin", 3, true, 4, .program = "ryry", .workers_nr = 2, .aborts = true, .end_no_pin = true),
	TEST("steal_and_end, leaves early", 3, true, 4, .program = "ryry", .workers_nr = 2, .aborts = true,
	     .leave_early = true),
	TEST("steal_and_end, looks late", 3, true, 4, .program = "ryry", .workers_nr = 2, .aborts = true,
	     .told_looks_late = true),
	TEST("all", 4, false, 3, .program = "rycrs", .workers_nr = 2, .completers_nr = 1, .aborts = true),
	TEST("all_outsider", 4, false, 3, .program = "ryds", .workers_nr = 2, .completers_nr = 1, .outsiders_nr = 1,
	     .aborts = true),
};

int main(void)
{
	return mdl_main(tests, MRT__ARRAY_NR(tests));
}
