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
#define BUF_BYTES 8u

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
	bool cancelled[OPS_NR];
	char bufs[OPS_NR][BUF_BYTES];   /* of those that read */
};

static unsigned ended;

static bool reads(unsigned i)
{
	return i % 3 == 0;
}

static void start_crowd(struct crowd *c)
{
	unsigned i;

	for (i = 0; i < c->nr; i++) {
		sim_op_begin(&c->ops[i], reads(i));
		if (i < c->idle_nr)
			mrt_poll_fd(&c->ops[i], SIM_FD_IDLE, 1);
		else if (reads(i))
			mrt_read_exact(&c->ops[i], SIM_FD_DISK, c->bufs[i], BUF_BYTES, 0);
		else
			mrt_nop(&c->ops[i]);
		c->all[i] = &c->ops[i];
	}
	sim_op_begin(&c->read, true);
	mrt_read_exact(&c->read, SIM_FD_DISK, c->buf, sizeof(c->buf), 0);
}

/* A read may have moved a part; whatever was not done must have a cause. */
static void check_read(const struct crowd *c, unsigned i, const struct sim_op_history *h)
{
	const struct mrt_op *op = &c->ops[i];
	int64_t why = op->res < 0 ? op->res : op->why;

	sim_check(op->res < 0 ? h->moved == 0 : op->res == h->moved, "op #%" PRIu64 " moved %" PRId64 ", but gives %"
		  PRId64, h->serial, h->moved, op->res);
	sim_check(why == 0 ? h->moved == BUF_BYTES || h->last == 0 : c->cancelled[i] || h->last == why,
		  "op #%" PRIu64 " ends with %" PRId64 ", the kernel said %d", h->serial, why, h->last);
	sim_check(why != -ECANCELED || c->cancelled[i], "op #%" PRIu64 " was cancelled by nobody", h->serial);
	sim_check(sim_pattern_is(c->bufs[i], (size_t)h->moved, SIM_FD_DISK, 0), "op #%" PRIu64 " has read rubbish", h->serial);
}

static void check_op(struct crowd *c, unsigned i)
{
	struct mrt_op *op = &c->ops[i];
	struct sim_op_history h;
	bool seen = sim_op_end(op, &h);

	sim_check(h.ends == h.stages, "op #%" PRIu64 " ended %u times of %u", h.serial, h.ends, h.stages);
	if (i >= c->idle_nr && reads(i)) {
		check_read(c, i, &h);
		return;
	}
	sim_check(op->res == 0 || (op->res == -ECANCELED && c->cancelled[i]), "op #%" PRIu64 " gives %" PRId64, h.serial,
		  op->res);
	sim_check(seen || op->res == -ECANCELED, "op #%" PRIu64 " gives %" PRId64 ", but the kernel never saw it", h.serial,
		  op->res);
}

static void cancel_some(struct crowd *c, unsigned from, unsigned to, unsigned per_mille)
{
	for (; from < to; from++) {
		if (!sim_rand_chance(&c->rand, per_mille))
			continue;
		c->cancelled[from] = true;
		mrt_cancel(&c->ops[from]);
	}
}

static enum mrt_poll crowd_poll(struct mrt_task *self, void *frame)
{
	struct crowd *c = frame;
	struct sim_op_history h;

	MRT_BEGIN(self);
	start_crowd(c);
	if (sim_rand_chance(&c->rand, 300))
		MRT_AWAIT(self, mrt_yield(&c->pause));
	if (sim_rand_chance(&c->rand, 300))
		cancel_some(c, c->idle_nr, c->nr, 300);
	MRT_AWAIT_ALL(self, c->all + c->idle_nr, c->nr - c->idle_nr);
	for (c->i = c->idle_nr; c->i < c->nr; c->i++)
		check_op(c, c->i);
	MRT_AWAIT(self, &c->read);
	(void)sim_op_end(&c->read, &h);
	sim_check(sim_pattern_is(c->buf, (size_t)h.moved, SIM_FD_DISK, 0), "a read behind idle waits gives rubbish");
	ended++;
	if (!c->cancels)
		MRT_RETURN(self, 0);
	cancel_some(c, 0, c->idle_nr, 1000);
	MRT_AWAIT_ALL(self, c->all, c->idle_nr);
	for (c->i = 0; c->i < c->idle_nr; c->i++)
		check_op(c, c->i);
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
