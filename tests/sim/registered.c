/* SPDX-License-Identifier: MIT */
/*
 * Registered files and memory of the arena: ops by handle and on blocks, from tasks that others steal, while anybody closes
 * the handle on all rings or frees the block; stale handles, freed memory, an arena that grows, rings that learn late, and a
 * runtime that closes in the middle of it. See sim_ledger.h for what is held against what.
 */
#include "sim.h"
#include "sim_actor.h"

static void run(void)
{
	struct sim_actors_opts actors = { .acts_max = 40, .alive_max = 60, .depth_max = 2 };
	bool closes = sim_chance(400);
	unsigned turns;

	if (sim.opts.workers_nr == 1 && sim_chance(800))
		sim.opts.workers_nr = SIM_WORKERS_MAX;
	if (sim_chance(500)) {
		sim.opts.sq_entries = 8; /* ops wait in the workers' queues */
		sim.opts.cq_entries = sim_chance(500) ? 16 : 1024;
	}
	if (sim_chance(150)) {
		sim.opts.refuse = 500; /* the cancels of a close, too */
		sim.opts.inline_ends = 0;
	}
	actors.twins = 200;
	if (sim_chance(150)) {
		/* closes that last, and are sent again, on kernels where that hits other handles of the file */
		sim.opts.hide = 900;
		sim.opts.inline_ends = 0;
		sim.opts.delay_ns_max = 20000000;
		sim.opts.workers_nr = 1 + (unsigned)sim_below(2);
		actors.twins = 800;
	}
	sim_start();
	actors.by_handle = 300 + (unsigned)sim_below(700);
	actors.on_block = 300 + (unsigned)sim_below(700);
	actors.weights[SIM_ACT_FILE] = 1 + (unsigned)sim_below(6);
	actors.weights[SIM_ACT_MEMORY] = 1 + (unsigned)sim_below(6);
	actors.weights[SIM_ACT_OP] = 1 + (unsigned)sim_below(10);
	actors.weights[SIM_ACT_ALL] = 2 + (unsigned)sim_below(10);
	actors.weights[SIM_ACT_ANY] = (unsigned)sim_below(5);
	actors.weights[SIM_ACT_YIELD] = 2; /* to be stolen there */
	actors.weights[SIM_ACT_SHIELD] = (unsigned)sim_below(3);
	actors.weights[SIM_ACT_SPAWN] = (unsigned)sim_below(3);
	actors.weights[SIM_ACT_ABORT] = (unsigned)sim_below(3);
	actors.weights[SIM_ACT_FORGET] = sim_chance(300);
	actors.weights[SIM_ACT_STUCK] = sim_chance(400);
	actors.weights[SIM_ACT_HANG] = closes && sim_chance(500);
	actors.sleep_ns_max = 1 + sim_below(2000000);
	actors.stuck_ns_max = 1 + sim_below(10000000);
	sim_actors_start(&actors);
	sim_actors_spawn(2 + (unsigned)sim_below(30));
	for (turns = (unsigned)sim_below(40); turns > 0 && sim_run_steps(sim_below(100)); turns--)
		sim_actors_meddle();
	if (!closes)
		sim_run_to_idle();
	sim_close();
	sim_actors_finish();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "registered", run };

	return sim_main(argc, argv, &program);
}
