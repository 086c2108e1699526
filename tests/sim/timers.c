/* SPDX-License-Identifier: MIT */
/*
 * Sleeps from 1 ns to 3 years and deadlines of every length, cancelled now and then, on a clock that leaps from one
 * to the next. None is early, none is forgotten, and with nobody in the way none is later than a few steps.
 */
#include <errno.h>
#include <inttypes.h>

#include <martlet/sync.h>
#include <martlet/task.h>
#include <martlet/time.h>

#include "base/compiler.h"
#include "sim.h"

#define YEARS_3_NS (UINT64_C(3) * 365 * 24 * 3600 * 1000000000)
#define SLEEPS_NR 4u

struct sleeper {
	struct sim_rand rand;
	unsigned rounds, i;
	uint64_t when_ns[SLEEPS_NR];
	bool cancelled[SLEEPS_NR];
	struct mrt_op ops[SLEEPS_NR];
	struct mrt_op *all[SLEEPS_NR];
	struct mrt_timer timers[SLEEPS_NR];
	bool deadline[SLEEPS_NR];       /* it is a deadline on a wait that nobody ends */
	size_t idx;
};

static uint64_t late_ns_max;
static struct mrt_notify never;

/* Log-uniform: as many microseconds as months. */
static uint64_t draw_ns(struct sim_rand *rand)
{
	uint64_t max = YEARS_3_NS >> sim_rand_below(rand, 57);

	return 1 + sim_rand_below(rand, max);
}

static void start(struct sleeper *s)
{
	uint64_t ns;
	unsigned i;

	for (i = 0; i < SLEEPS_NR; i++) {
		ns = draw_ns(&s->rand);
		s->all[i] = &s->ops[i];
		s->when_ns[i] = sim.now_ns + ns;
		s->cancelled[i] = false;
		s->deadline[i] = sim_rand_chance(&s->rand, 300);
		if (s->deadline[i])
			mrt_deadline(mrt_notify_wait(&s->ops[i], &never), &s->timers[i], ns);
		else
			mrt_sleep(&s->ops[i], ns);
	}
}

static void check(struct sleeper *s, size_t i)
{
	int64_t res = s->ops[i].res;

	if (res == -ECANCELED) {
		sim_check(s->cancelled[i], "a sleep that nobody cancelled gives ECANCELED");
		return;
	}
	sim_check(res == (s->deadline[i] ? -ETIMEDOUT : 0), "a sleep gives %" PRId64, res);
	sim_check(sim.now_ns >= s->when_ns[i], "a timer is %" PRIu64 " ns early", s->when_ns[i] - sim.now_ns);
	sim_check(s->cancelled[i] || sim.now_ns - s->when_ns[i] <= late_ns_max, "a timer is %" PRIu64 " ns late",
		  sim.now_ns - s->when_ns[i]);
}

static enum mrt_poll sleeper_poll(struct mrt_task *self, void *frame)
{
	struct sleeper *s = frame;

	MRT_BEGIN(self);
	for (; s->rounds > 0; s->rounds--) {
		start(s);
		for (s->i = 0; s->i < SLEEPS_NR; s->i++) {
			MRT_AWAIT_ANY(self, s->all, SLEEPS_NR, s->idx);
			check(s, s->idx);
			s->all[s->idx] = NULL;
			s->idx = (size_t)sim_rand_below(&s->rand, SLEEPS_NR);
			if (s->all[s->idx] && sim_rand_chance(&s->rand, 300)) {
				s->cancelled[s->idx] = true;
				mrt_cancel(s->all[s->idx]);
			}
		}
	}
	MRT_RETURN(self, 0);
}

static void run(void)
{
	unsigned nr;
	struct sleeper s;

	sim.opts.freeze = 0;
	if (sim_chance(500))
		sim.opts.preempt = 0;
	sim.opts.tick_ns_max = mrt__min(sim.opts.tick_ns_max, 2000u);
	sim_start();
	/* interrupted ones may be late by what the others do meanwhile */
	late_ns_max = sim.opts.preempt ? YEARS_3_NS * 100 : MRT_US(500);
	mrt_notify_init(&never);
	for (nr = 1 + (unsigned)sim_below(30); nr > 0; nr--) {
		s = (struct sleeper){ .rand = { sim_rand_next(&sim.rand) }, .rounds = 1 + (unsigned)sim_below(10) };
		sim_check(!mrt_spawn((struct mrt_runtime *)(void *)sim.sched, sleeper_poll, &s, sizeof(s), NULL, NULL),
			  "a spawn fails");
	}
	sim_run_to_idle();
	sim_close();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "timers", run };

	return sim_main(argc, argv, &program);
}
