/* SPDX-License-Identifier: MIT */
/*
 * Polls that take up to 200 ms, on all workers but one at a time. Meanwhile timers on a stuck worker are at most 5 ms
 * late, and so is a task that was spawned, or placed on a stuck worker, by a worker or a thread outside. Cancels that wait
 * for a stuck worker are carried out when its poll ends.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <martlet/file.h>
#include <martlet/net.h>
#include <martlet/scope.h>
#include <martlet/task.h>
#include <martlet/time.h>

#include "base/compiler.h"
#include "sched/worker.h"
#include "sim.h"

#define LATE_NS_MAX MRT_MS(5)
#define STUCK_NS_MAX MRT_MS(200)

struct sleeper {
	struct sim_rand rand;
	unsigned rounds;
	uint64_t when_ns;
	struct mrt_op op;
};

struct hog {
	struct sim_rand rand;
	unsigned rounds;
	struct mrt_op op, idle;
	struct mrt_timer timer;
	struct mrt_scope scope;
	char buf[16];
};

/* Spawned just before a poll gets stuck. */
struct child {
	uint64_t since_ns;
};

static unsigned stuck_nr;
static uint64_t latest_ns;      /* of all sleeps and children */

static void note_late(const char *what, uint64_t due_ns)
{
	sim_check(sim.now_ns >= due_ns, "%s is early", what);
	latest_ns = mrt__max(latest_ns, sim.now_ns - due_ns);
	sim_check(sim.now_ns - due_ns <= LATE_NS_MAX, "%s is %" PRIu64 " us late", what, (sim.now_ns - due_ns) / 1000);
}

static enum mrt_poll sleeper_poll(struct mrt_task *self, void *frame)
{
	struct sleeper *s = frame;

	MRT_BEGIN(self);
	for (; s->rounds > 0; s->rounds--) {
		s->when_ns = sim.now_ns + sim_rand_below(&s->rand, MRT_MS(40));
		MRT_AWAIT(self, mrt_sleep_until(&s->op, s->when_ns));
		note_late("a sleep", s->when_ns);
	}
	MRT_RETURN(self, 0);
}

static enum mrt_poll child_poll(struct mrt_task *self, void *frame)
{
	struct child *c = frame;

	(void)self;
	note_late("a child", c->since_ns);
	MRT_RETURN(self, 0);
}

/* A thread outside places one: perhaps on the worker that is about to be stuck. */
static void spawn_outside(void)
{
	static const struct mrt_spawn_opts spread = { .size = sizeof(spread), .flags = MRT_SPAWN_SPREAD };
	struct mrt__worker *w = mrt__worker_self;
	struct child child = { .since_ns = sim.now_ns };

	mrt__worker_self = NULL;
	sim_check(!mrt_spawn((struct mrt_runtime *)(void *)sim.sched, child_poll, &child, sizeof(child), &spread, NULL), "no child");
	mrt__worker_self = w;
}

static void get_stuck(struct hog *h)
{
	/* somebody must be there to look; and those that are interrupted meanwhile would be late without a fault */
	if (stuck_nr + 1 >= sim.opts.workers_nr || sim.depth != stuck_nr)
		return;
	stuck_nr++;
	if (sim_rand_chance(&h->rand, 500))
		spawn_outside();
	sim_stuck(sim_rand_below(&h->rand, STUCK_NS_MAX));
	stuck_nr--;
}

static enum mrt_poll hog_poll(struct mrt_task *self, void *frame)
{
	/* placed: perhaps on a worker that is stuck, and looks idle therefore */
	static const struct mrt_spawn_opts spread = { .size = sizeof(spread), .flags = MRT_SPAWN_SPREAD };
	struct hog *h = frame;
	struct child child = { 0 };
	struct sim_op_history history;
	unsigned nr;

	MRT_BEGIN(self);
	for (; h->rounds > 0; h->rounds--) {
		/* an op on this ring, with a deadline that passes while we are stuck, or is cancelled from elsewhere */
		sim_op_begin(&h->idle, true);
		mrt_deadline(mrt_recv_exact(&h->idle, SIM_FD_IDLE + (int)sim_rand_below(&h->rand, SIM_FD_RANGE), h->buf,
					    sizeof(h->buf)), &h->timer, 1 + sim_rand_below(&h->rand, MRT_MS(20)));
		mrt_scope_init(&h->scope, 0);
		child.since_ns = sim.now_ns;
		for (nr = (unsigned)sim_rand_below(&h->rand, 3); nr > 0; nr--)
			sim_check(!mrt_scope_spawn(&h->scope, child_poll, &child, sizeof(child),
						   sim_rand_chance(&h->rand, 500) ? &spread : NULL), "no child");
		get_stuck(h);
		MRT_AWAIT(self, mrt_scope_join(&h->scope));
		if (sim_rand_chance(&h->rand, 300))
			mrt_cancel(&h->idle);
		MRT_AWAIT(self, &h->idle);
		sim_check(h->idle.res == -ECANCELED || h->idle.res == -ETIMEDOUT || h->idle.res > 0,
			  "an idle recv gives %" PRId64, h->idle.res);
		(void)sim_op_end(&h->idle, &history);
		MRT_AWAIT(self, mrt_sleep(&h->op, sim_rand_below(&h->rand, MRT_MS(3))));
	}
	MRT_RETURN(self, 0);
}

static void spawn(mrt_poll_fn fn, const void *frame, size_t bytes)
{
	struct mrt_spawn_opts so = { .size = sizeof(so), .flags = sim_chance(500) ? MRT_SPAWN_SPREAD : 0 };

	sim_check(!mrt_spawn((struct mrt_runtime *)(void *)sim.sched, fn, frame, bytes, &so, NULL), "a spawn fails");
}

static void run(void)
{
	struct sleeper s;
	struct hog h;
	unsigned nr;

	if (sim.opts.workers_nr == 1)
		sim.opts.workers_nr = 2;
	/* nothing else that could make anybody late */
	sim.opts.freeze = sim.opts.refuse = sim.opts.errors = 0;
	sim.opts.preempt = mrt__min(sim.opts.preempt, 30u);
	sim.opts.tick_ns_max = mrt__min(sim.opts.tick_ns_max, 2000u);
	sim.opts.delay_ns_max = mrt__min(sim.opts.delay_ns_max, 200000u);
	sim_start();
	stuck_nr = 0;
	latest_ns = 0;
	for (nr = 1 + (unsigned)sim_below(30); nr > 0; nr--) {
		s = (struct sleeper){ .rand = { sim_rand_next(&sim.rand) }, .rounds = (unsigned)sim_below(30) };
		spawn(sleeper_poll, &s, sizeof(s));
	}
	for (nr = 1 + (unsigned)sim_below(4); nr > 0; nr--) {
		memset(&h, 0, sizeof(h));
		h.rand.state = sim_rand_next(&sim.rand);
		h.rounds = (unsigned)sim_below(10);
		spawn(hog_poll, &h, sizeof(h));
	}
	sim_run_to_idle();
	sim_log("at most %" PRIu64 " us late", latest_ns / 1000);
	sim_close();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "stuck", run };

	return sim_main(argc, argv, &program);
}
