/* SPDX-License-Identifier: MIT */
/*
 * 1,000 tasks that are always ready, spawned at once on one worker: by yields, by nops, by reads from the cache, or
 * some of each. On one worker, where all do the same, the slowest gets at least 0.8 of the mean number of polls.
 */
#include <inttypes.h>

#include <martlet/file.h>
#include <martlet/op.h>
#include <martlet/task.h>
#include <martlet/time.h>

#include "base/compiler.h"
#include "sim.h"

#define TASKS_NR 1000u
#define POLLS_MEAN 60u

enum way {
	WAY_YIELD,
	WAY_NOP,
	WAY_READ,
	WAY_MIXED,
	WAYS_NR
};

struct worker {
	unsigned idx;
	unsigned way;
	struct mrt_op op;
	char buf[16];
};

static uint64_t polls[TASKS_NR];
static uint64_t total;
static bool over;

static struct mrt_op *turn(struct worker *w)
{
	switch (w->way == WAY_MIXED ? w->idx % WAY_MIXED : w->way) {
	case WAY_YIELD:
		return mrt_yield(&w->op);
	case WAY_NOP:
		sim_op_begin(&w->op, false);
		return mrt_nop(&w->op);
	default:
		sim_op_begin(&w->op, false);
		return mrt_read(&w->op, SIM_FD_DISK, w->buf, sizeof(w->buf), 0);
	}
}

static enum mrt_poll worker_poll(struct mrt_task *self, void *frame)
{
	struct worker *w = frame;

	MRT_BEGIN(self);
	while (!over) {
		polls[w->idx]++;
		total++;
		MRT_AWAIT(self, turn(w));
	}
	MRT_RETURN(self, 0);
}

static enum mrt_poll spawner_poll(struct mrt_task *self, void *frame)
{
	struct worker w = { .way = *(unsigned *)frame };

	for (w.idx = 0; w.idx < TASKS_NR; w.idx++)
		sim_check(!mrt_spawn(NULL, worker_poll, &w, sizeof(w), NULL, NULL), "a spawn fails");
	MRT_RETURN(self, 0);
}

/* What is promised is the first. */
static unsigned least_percent(unsigned way)
{
	if (way == WAY_MIXED)
		return 50;      /* yielded tasks and completions each get half of the room, though they are not as many */
	return sim.opts.workers_nr == 1 ? 80 : 70; /* stealing evens out, but not to the task */
}

static void run(void)
{
	unsigned way = (unsigned)sim_below(WAYS_NR), i;
	uint64_t least = UINT64_MAX;

	sim.opts.freeze = sim.opts.refuse = sim.opts.preempt = 0;
	sim.opts.workers_nr = sim_chance(500) ? 1 : sim.opts.workers_nr;
	sim.opts.errors = 0;
	/* always ready, so that each could run in each round; a ring that holds them all */
	sim.opts.cq_entries = 2048;
	sim.opts.inline_ends = 1000;
	sim_start();
	for (i = 0; i < TASKS_NR; i++)
		polls[i] = 0;
	total = 0;
	over = false;
	sim_log("way %u", way);
	sim_check(!mrt_spawn((struct mrt_runtime *)(void *)sim.sched, spawner_poll, &way, sizeof(way), NULL, NULL),
		  "a spawn fails");
	while (total < TASKS_NR * POLLS_MEAN && (sim_step() || sim_advance()))
		continue;
	over = true;
	for (i = 0; i < TASKS_NR; i++) {
		least = mrt__min(least, polls[i]);
		sim_log("task %u: %" PRIu64 " polls", i, polls[i]);
	}
	sim_check(least * TASKS_NR * 100 >= total * least_percent(way),
		  "way %u, %u workers: the slowest got %" PRIu64 " polls, the mean is %" PRIu64, way, sim.opts.workers_nr,
		  least, total / TASKS_NR);
	sim_run_to_idle();
	sim_close();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "fair", run };

	return sim_main(argc, argv, &program);
}
