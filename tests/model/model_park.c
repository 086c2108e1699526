/* SPDX-License-Identifier: MIT */
/*
 * Model of going to sleep and being woken: queues, idle books and park word together (src/sched/runq.c, inject.c, idle.c,
 * park.h), driven by a worker loop reduced to the order of steps that sched/idle.h prescribes. A worker that sleeps waits for its
 * eventfd, so a lost wake is a schedule in which all wait though there is work: the check at rest finds it.
 *
 * Each rule of the protocol is also left out once, and the model must then find the lost wake (`must_fail`): the
 * rescan after parking, the swap of the park word in every wake, the wake after the last search, the notification after
 * an overflow, the order of the inject queue's two numbers on either side. So the model is known to be able to see what
 * it is there for.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "model.h"
#include "real_inject.h"
#include "sched/idle.h"
#include "sched/park.h"
#include "sched/runq.h"

_Static_assert(MRT__RUNQ_SLOTS == 4, "build with -DMRT__RUNQ_SLOTS=4");

#define WORKERS_MAX 2u
#define TASKS_MAX 8u

struct config {
	unsigned workers_nr;            /* threads 0.. are workers, the next is the publisher */
	unsigned inject_tasks_nr;       /* tasks that the publisher injects */
	unsigned messages_nr;           /* messages that the publisher sends to worker 0 */
	unsigned local_tasks_nr;        /* tasks that worker 0 pushes to its queue before its first look */
	unsigned prefill_nr;            /* tasks in worker 0's queue from the start */
	bool first_waits;               /* the first task runs until all others have run: a long poll */
	bool solo;                      /* one worker, and no books: who has pushed looks at its park word, and it at the queue */
	bool no_rescan, wake_looks_first, quiet_finder, no_overflow_notify, no_wake_on_push;
	bool moves_backwards, looks_backwards;  /* real_inject.h */
};

struct job {
	struct mrt_task task;
	bool done;
};

static struct {
	struct mrt__idle idle;
	bool solo;
	struct mrt__park park[WORKERS_MAX];
	struct mrt__runq q[WORKERS_MAX];
	unsigned eventfd[WORKERS_MAX];
	atomic_uint mailbox;            /* messages for worker 0 */
	unsigned messages_seen;
	struct mrt__inject inject;
	uint64_t inject_depth;
	struct job jobs[TASKS_MAX];
	unsigned made_nr, total_nr, started_nr, done_nr;
} world;

static const struct config *config_of(const void *arg)
{
	return arg;
}

static struct mrt_task *make_task(void)
{
	mdl_assert(world.made_nr < TASKS_MAX);
	return &world.jobs[world.made_nr++].task;
}

static void setup(const void *arg)
{
	const struct config *c = config_of(arg);
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned w, i, nr;

	world.solo = c->solo;
	mrt__idle_fini(&world.idle);
	mdl_assert(mrt__idle_init(&world.idle, c->workers_nr) == 0);
	for (w = 0; w < c->workers_nr; w++) {
		mrt__park_init(&world.park[w]);
		mrt__runq_init(&world.q[w], 0, false);
		world.eventfd[w] = 0;
	}
	for (i = 0; i < TASKS_MAX; i++)
		world.jobs[i].done = false;
	atomic_init(&world.mailbox, 0);
	mrt__inject_init(&world.inject, &world.inject_depth);
	inject_order.moves_backwards = c->moves_backwards;
	inject_order.looks_backwards = c->looks_backwards;
	world.messages_seen = 0;
	world.made_nr = world.started_nr = world.done_nr = 0;
	for (i = 0; i < c->prefill_nr; i++)
		(void)mrt__runq_push(&world.q[0], make_task(), batch, &nr); /* fits */
	world.total_nr = c->prefill_nr + c->local_tasks_nr + c->inject_tasks_nr;
}

static void wake(int w)
{
	if (w >= 0 && mrt__park_wake(&world.park[w]))
		world.eventfd[w]++;
}

static void notify(void)
{
	if (!world.solo)
		wake(mrt__idle_worker_to_notify(&world.idle));
	else if (mrt__park_sleeps(&world.park[0]))
		wake(0);
}

static struct mrt_task *inject_take(void)
{
	struct mrt_task *task;

	return mrt__inject_pop(&world.inject, &task, 1) ? task : NULL;
}

static bool all_others_done(const void *arg)
{
	(void)arg;
	return world.done_nr + 1 == world.total_nr;
}

static void run_task(const struct config *c, struct mrt_task *task)
{
	struct job *job = mrt__container_of(task, struct job, task);

	mdl_assert(!job->done);
	job->done = true;
	if (c->first_waits && world.started_nr++ == 0)
		mdl_wait(all_others_done, NULL);
	world.done_nr++;
}

static void push_local(const struct config *c, struct mrt_task *task)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr = 0;

	if (mrt__runq_push(&world.q[0], task, batch, &nr) == MRT__RUNQ_PUSHED) {
		if (!c->no_wake_on_push)
			notify();
		return;
	}
	mrt__inject_push(&world.inject, batch, nr);
	if (!c->no_overflow_notify)
		notify();
}

static bool has_work(const struct config *c)
{
	unsigned v;

	for (v = 0; v < c->workers_nr; v++) {
		if (mrt__runq_has_work(&world.q[v]))
			return true;
	}
	return mrt__inject_len(&world.inject) > 0;
}

static struct mrt_task *steal_work(const struct config *c, unsigned w)
{
	struct mrt_task *task = NULL;
	unsigned v, nr;

	for (v = 0; v < c->workers_nr && task == NULL; v++) {
		if (v != w)
			task = mrt__runq_steal(&world.q[v], &world.q[w], &nr);
	}
	return task != NULL ? task : inject_take();
}

static void read_mailbox(unsigned w)
{
	if (w == 0)
		world.messages_seen += atomic_exchange_explicit(&world.mailbox, 0, memory_order_acquire);
}

static bool eventfd_is_set(const void *arg)
{
	return *(const unsigned *)arg != 0;
}

/* Off the books, to sleep, and back. Returns whether w counts as searching now. */
static bool sleep_until_woken(const struct config *c, unsigned w, bool searching)
{
	bool rescan = mrt__idle_park(&world.idle, w, searching);

	if (rescan && !c->no_rescan && has_work(c))
		notify();
	if (mrt__park_begin(&world.park[w])) {
		mdl_wait(eventfd_is_set, &world.eventfd[w]);
		world.eventfd[w] = 0;
		(void)mrt__park_end(&world.park[w]); /* what for, the books and the mailbox say */
	}
	return !mrt__idle_unpark_worker(&world.idle, w);
}

static void sleep_solo(const struct config *c)
{
	if (!mrt__park_begin(&world.park[0]))
		return;
	if (c->no_rescan || mrt__inject_len(&world.inject) == 0) {
		mdl_wait(eventfd_is_set, &world.eventfd[0]);
		world.eventfd[0] = 0;
	}
	(void)mrt__park_end(&world.park[0]);
}

static void worker(const struct config *c, unsigned w)
{
	struct mrt_task *task;
	bool searching = false;
	unsigned i;

	for (i = 0; w == 0 && i < c->local_tasks_nr; i++)
		push_local(c, make_task());
	for (;;) {
		read_mailbox(w);
		task = mrt__runq_pop(&world.q[w]);
		if (task == NULL)
			task = inject_take();
		if (task == NULL && c->solo) {
			sleep_solo(c);
			continue;
		}
		if (task == NULL) {
			searching = searching || mrt__idle_try_search(&world.idle);
			if (searching)
				task = steal_work(c, w);
		}
		if (task == NULL) {
			searching = sleep_until_woken(c, w, searching);
			continue;
		}
		/* the sparing form of the rule: wake one more only if there is something to see */
		if (searching && mrt__idle_end_search(&world.idle) && !c->quiet_finder && has_work(c))
			notify();
		searching = false;
		run_task(c, task);
	}
}

/* wake_looks_first: a waker that leaves a worker alone that it finds awake. */
static void send_message(const struct config *c)
{
	atomic_fetch_add_explicit(&world.mailbox, 1, memory_order_seq_cst);
	if (c->wake_looks_first &&
	    atomic_load_explicit(&world.park[0].state, memory_order_seq_cst) != MRT__PARK_PARKED)
		return;
	wake(0);
}

static void publisher(const struct config *c)
{
	struct mrt_task *task;
	unsigned i;

	for (i = 0; i < c->messages_nr; i++)
		send_message(c);
	for (i = 0; i < c->inject_tasks_nr; i++) {
		task = make_task();
		mrt__inject_push(&world.inject, &task, 1);
		notify();
	}
}

static void run(unsigned thread, const void *arg)
{
	const struct config *c = config_of(arg);

	if (thread < c->workers_nr)
		worker(c, thread);
	else
		publisher(c);
}

/* All wait: for good reason? */
static void check(const void *arg)
{
	const struct config *c = config_of(arg);
	unsigned w;

	mdl_assert(world.made_nr == world.total_nr);
	mdl_assert(world.done_nr == world.total_nr);
	mdl_assert(world.messages_seen == c->messages_nr);
	mdl_assert(mrt__idle_check(&world.idle, stdout));
	mdl_assert(mrt__idle_unparked_nr(&world.idle) == (c->solo ? 1 : 0));
	mdl_assert(mrt__idle_searching_nr(&world.idle) == 0);
	for (w = 0; w < c->workers_nr; w++) {
		mdl_assert(atomic_load_explicit(&world.park[w].state, memory_order_seq_cst) == MRT__PARK_PARKED);
		mdl_assert(mrt__runq_check(&world.q[w], stdout));
	}
}

#define TEST(test_name, nr, breaks, bound, ...) \
	{ .name = (test_name), .threads_nr = (nr), .arg = &(const struct config){ __VA_ARGS__ }, .setup = setup, \
	  .run = run, .check = check, .may_rest = true, .must_fail = (breaks), .preemptions = (bound) }

static const struct mdl_test tests[] = {
	TEST("inject_against_park", 2, false, 4, .workers_nr = 1, .inject_tasks_nr = 2),
	TEST("inject_against_park, no rescan", 2, true, 4, .workers_nr = 1, .inject_tasks_nr = 2, .no_rescan = true),
	TEST("inject_against_solo", 2, false, 4, .workers_nr = 1, .inject_tasks_nr = 3, .solo = true),
	TEST("inject_against_solo, no rescan", 2, true, 4, .workers_nr = 1, .inject_tasks_nr = 2, .solo = true,
	     .no_rescan = true),
	TEST("message_and_inject_against_solo", 2, false, 4, .workers_nr = 1, .messages_nr = 1, .inject_tasks_nr = 2,
	     .solo = true),
	TEST("message_against_park", 2, false, 4, .workers_nr = 1, .messages_nr = 2),
	TEST("message_against_park, the waker looks first", 2, true, 4, .workers_nr = 1, .messages_nr = 2,
	     .wake_looks_first = true),
	TEST("message_and_inject", 2, false, 4, .workers_nr = 1, .messages_nr = 1, .inject_tasks_nr = 1),
	TEST("push_then_long_poll", 2, false, 3, .workers_nr = 2, .local_tasks_nr = 2, .first_waits = true),
	TEST("push_then_long_poll, no wake", 2, true, 3, .workers_nr = 2, .local_tasks_nr = 2, .first_waits = true,
	     .no_wake_on_push = true),
	TEST("push_then_long_poll, no rescan", 2, true, 3, .workers_nr = 2, .local_tasks_nr = 2, .first_waits = true,
	     .no_rescan = true),
	TEST("overflow_then_long_poll", 2, false, 3, .workers_nr = 2, .prefill_nr = 4, .local_tasks_nr = 1,
	     .first_waits = true),
	TEST("overflow_then_long_poll, no notify", 2, true, 3, .workers_nr = 2, .prefill_nr = 4, .local_tasks_nr = 1,
	     .first_waits = true, .no_overflow_notify = true),
	TEST("two_workers", 3, false, 3, .workers_nr = 2, .inject_tasks_nr = 1),
	TEST("two_workers_long_poll", 3, false, 3, .workers_nr = 2, .inject_tasks_nr = 2, .first_waits = true),
	TEST("two_workers_long_poll, quiet finder", 3, true, 3, .workers_nr = 2, .inject_tasks_nr = 2,
	     .first_waits = true, .quiet_finder = true),
	TEST("two_workers_long_poll, moves backwards", 3, true, 3, .workers_nr = 2, .inject_tasks_nr = 2,
	     .first_waits = true, .moves_backwards = true),
	TEST("two_workers_long_poll, looks backwards", 3, true, 3, .workers_nr = 2, .inject_tasks_nr = 2,
	     .first_waits = true, .looks_backwards = true),
};

int main(void)
{
	int status = mdl_main(tests, MRT__ARRAY_NR(tests));

	mrt__idle_fini(&world.idle);
	return status;
}
