/* SPDX-License-Identifier: MIT */
/*
 * More tasks than a local queue holds, spawned by tasks, made ready by each other, by yields and by the ring, while workers
 * are interrupted between any two steps of a push, a steal and a park. Each task is polled as often as it asked for.
 */
#include <inttypes.h>

#include <martlet/op.h>
#include <martlet/sync.h>
#include <martlet/task.h>
#include <martlet/time.h>

#include "base/compiler.h"
#include "sim.h"

#define TASKS_MAX 900u
#define ROUNDS_MAX 8u

struct member {
	struct sim_rand rand;
	unsigned idx;
	unsigned rounds;
	unsigned children;              /* that it spawns first */
	struct mrt_op op;
};

static uint16_t polls[TASKS_MAX + 1];
static unsigned spawned, ended;
static uint64_t asked;                  /* polls that are due in all */
static struct mrt_notify gate;

static enum mrt_poll member_poll(struct mrt_task *self, void *frame);

/* One more task, with up to `children` of its own. */
static void spawn(struct sim_rand *rand, unsigned children)
{
	struct mrt_spawn_opts so = { .size = sizeof(so), .flags = sim_rand_chance(rand, 100) ? MRT_SPAWN_SPREAD : 0 };
	struct member m = { .rand = { sim_rand_next(rand) }, .idx = spawned++, .children = children };

	m.rounds = (unsigned)sim_rand_below(&m.rand, ROUNDS_MAX);
	asked += m.rounds + 1;
	sim_check(!mrt_spawn((struct mrt_runtime *)(void *)sim.sched, member_poll, &m, sizeof(m), &so, NULL),
		  "a spawn fails");
}

static struct mrt_op *turn(struct member *m)
{
	switch (sim_rand_below(&m->rand, 4)) {
	case 0:
		sim_op_begin(&m->op, false);
		return mrt_nop(&m->op);
	case 1:
		return mrt_sleep(&m->op, 1 + sim_rand_below(&m->rand, 10000));
	case 2:
		if (sim_rand_chance(&m->rand, 500))
			return mrt_notify_wait(&m->op, &gate);
		mrt_notify_all(&gate); /* many at once, from a task */
		return mrt_yield(&m->op);
	default:
		return mrt_yield(&m->op);
	}
}

static enum mrt_poll member_poll(struct mrt_task *self, void *frame)
{
	struct member *m = frame;

	polls[m->idx]++;
	asked--;
	MRT_BEGIN(self);
	while (m->children > 0 && spawned < TASKS_MAX) {
		m->children--;
		spawn(&m->rand, 0);
	}
	for (; m->rounds > 0; m->rounds--)
		MRT_AWAIT(self, turn(m));
	ended++;
	MRT_RETURN(self, 0);
}

static void run(void)
{
	struct sim_rand rand = { sim_rand_next(&sim.rand) };
	unsigned nr;

	sim.opts.preempt = mrt__max(sim.opts.preempt, 5u);
	sim_start();
	spawned = ended = 0;
	asked = 0;
	mrt_notify_init(&gate);
	for (nr = 0; nr <= TASKS_MAX; nr++)
		polls[nr] = 0;
	for (nr = 1 + (unsigned)sim_below(5); nr > 0; nr--)
		spawn(&rand, (unsigned)sim_below(TASKS_MAX));
	/* where nobody is left to open the gate; each time all that wait get through once */
	for (nr = 0; nr < 2 * ROUNDS_MAX; nr++) {
		while (sim_step() || sim_advance())
			continue;
		mrt_notify_all(&gate);
	}
	sim_run_to_idle();
	sim_check(ended == spawned, "%u of %u tasks have ended", ended, spawned);
	sim_check(asked == 0, "%" PRId64 " polls too few", (int64_t)asked);
	sim_close();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "crowd", run };

	return sim_main(argc, argv, &program);
}
