/* SPDX-License-Identifier: MIT */
/*
 * Ops under pressure: cancels, deadlines and aborts at any point, on rings that are far too small, with a kernel that
 * takes a part, overflows, and says the truth late.
 */
#include "sim.h"
#include "sim_actor.h"

static void run(void)
{
	struct sim_actors_opts actors = { .acts_max = 40, .alive_max = 100, .depth_max = 2 };
	unsigned turns;

	if (sim_chance(700)) {
		sim.opts.sq_entries = 8;
		sim.opts.cq_entries = sim_chance(500) ? 16 : 1024; /* credits run out first, or SQEs do */
	}
	if (sim_chance(500))
		sim.opts.event_interval = 61; /* so that much is staged at once */
	if (sim_chance(100)) {
		sim.opts.refuse = 500;
		sim.opts.inline_ends = 0;
	}
	sim_start();
	actors.weights[SIM_ACT_OP] = 1 + (unsigned)sim_below(10);
	actors.weights[SIM_ACT_ALL] = (unsigned)sim_below(10);
	actors.weights[SIM_ACT_ANY] = (unsigned)sim_below(10);
	actors.weights[SIM_ACT_SHIELD] = (unsigned)sim_below(3);
	actors.weights[SIM_ACT_OPEN] = (unsigned)sim_below(3);
	actors.weights[SIM_ACT_ABORT] = (unsigned)sim_below(3);
	actors.weights[SIM_ACT_FORGET] = sim_chance(300);
	actors.weights[SIM_ACT_STUCK] = sim_chance(200);
	actors.sleep_ns_max = 1 + sim_below(2000000);
	actors.stuck_ns_max = 1 + sim_below(10000000);
	sim_actors_start(&actors);
	sim_actors_spawn(1 + (unsigned)sim_below(40));
	for (turns = 40; turns > 0 && sim_run_steps(sim_below(100)); turns--)
		sim_actors_meddle();
	sim_run_to_idle();
	sim_close();
	sim_actors_finish();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "ops", run };

	return sim_main(argc, argv, &program);
}
