/* SPDX-License-Identifier: MIT */
/*
 * Many more ops than a ring has room for: an SQ of 8 entries, a CQ of 16, and tasks that start up to 200 ops at once.
 * Idle waits take no credits, so a read behind twice as many of them as the CQ has entries ends all the same; ops that
 * wait for credits or SQEs are submitted as soon as there are some, whatever the kernel takes at a time.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <martlet/file.h>
#include <martlet/op.h>
#include <martlet/task.h>
#include <martlet/time.h>

#include "base/compiler.h"
#include "sim.h"

#define OPS_NR 200u

struct crowd {
	struct sim_rand rand;
	unsigned nr;
	unsigned idle_nr;               /* the first of them wait for a peer */
	bool cancels;                   /* its idle waits; else it returns, and the runtime does */
	unsigned i;
	struct mrt_op read;
	struct mrt_op pause;
	char buf[16];
	struct mrt_op *all[OPS_NR];
	struct mrt_op ops[OPS_NR];
};

static unsigned ended;

static void start_crowd(struct crowd *c)
{
	unsigned i;

	for (i = 0; i < c->nr; i++) {
		sim_op_begin(&c->ops[i], false);
		if (i < c->idle_nr)
			mrt_poll_fd(&c->ops[i], SIM_FD_IDLE, 1);
		else
			mrt_nop(&c->ops[i]);
		c->all[i] = &c->ops[i];
	}
	sim_op_begin(&c->read, true);
	mrt_read_exact(&c->read, SIM_FD_DISK, c->buf, sizeof(c->buf), 0);
}

static void check_op(struct mrt_op *op, int64_t want)
{
	struct sim_op_history h;
	bool seen = sim_op_end(op, &h);

	sim_check(op->res == want, "op #%" PRIu64 " gives %" PRId64 " instead of %" PRId64, h.serial, op->res, want);
	sim_check(h.ends == h.stages && (seen || want < 0), "op #%" PRIu64 " ended %u times", h.serial, h.ends);
}

static enum mrt_poll crowd_poll(struct mrt_task *self, void *frame)
{
	struct crowd *c = frame;
	struct sim_op_history h;

	MRT_BEGIN(self);
	start_crowd(c);
	if (sim_rand_chance(&c->rand, 300))
		MRT_AWAIT(self, mrt_yield(&c->pause));
	MRT_AWAIT_ALL(self, c->all + c->idle_nr, c->nr - c->idle_nr);
	for (c->i = c->idle_nr; c->i < c->nr; c->i++)
		check_op(&c->ops[c->i], 0);
	MRT_AWAIT(self, &c->read);
	(void)sim_op_end(&c->read, &h);
	sim_check(sim_pattern_is(c->buf, (size_t)h.moved, SIM_FD_DISK, 0), "a read behind idle waits gives rubbish");
	ended++;
	if (!c->cancels)
		MRT_RETURN(self, 0);
	for (c->i = 0; c->i < c->idle_nr; c->i++)
		mrt_cancel(&c->ops[c->i]);
	MRT_AWAIT_ALL(self, c->all, c->idle_nr);
	for (c->i = 0; c->i < c->idle_nr; c->i++)
		check_op(&c->ops[c->i], -ECANCELED);
	MRT_RETURN(self, 0);
}

static void run(void)
{
	unsigned tasks = 1 + (unsigned)sim_below(8), i;
	struct crowd c;

	sim.opts.sq_entries = 8;
	sim.opts.cq_entries = 16;
	if (sim_chance(300))
		sim.opts.cq_entries = 1024; /* SQEs run out, credits do not */
	if (sim_chance(300))
		sim.opts.refuse = 500;
	sim_start();
	ended = 0;
	for (i = 0; i < tasks; i++) {
		memset(&c, 0, sizeof(c));
		c.rand.state = sim_rand_next(&sim.rand);
		c.nr = (unsigned)sim_below(OPS_NR + 1);
		c.idle_nr = sim_chance(500) ? 0 : (unsigned)sim_below(c.nr + 1);
		c.cancels = sim_chance(500);
		sim_check(!mrt_spawn((struct mrt_runtime *)(void *)sim.sched, crowd_poll, &c, sizeof(c), NULL, NULL),
			  "a spawn fails");
	}
	sim_run_to_idle();
	sim_check(ended == tasks, "%u of %u tasks got what they waited for", ended, tasks);
	sim_close();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "queues", run };

	return sim_main(argc, argv, &program);
}
