/* SPDX-License-Identifier: MIT */
/*
 * The runtime closes at a random point, with everything in flight, tasks that hang for ever, polls that take long, and
 * spawns that race with the close. All tasks end, every op is handed back first, and all workers stop.
 */
#include "sim.h"
#include "sim_actor.h"

static void run(void)
{
	struct sim_actors_opts actors;
	unsigned turns;

	sim_start();
	sim_actors_draw(&actors);
	actors.weights[SIM_ACT_HANG] = (unsigned)sim_below(5);
	actors.weights[SIM_ACT_STUCK] = sim_chance(200);
	actors.weights[SIM_ACT_SPAWN] += 5;
	sim_actors_start(&actors);
	sim_actors_spawn(1 + (unsigned)sim_below(20));
	for (turns = (unsigned)sim_below(10); turns > 0 && sim_run_steps(sim_below(200)); turns--)
		sim_actors_meddle();
	sim_close();
	sim_actors_finish();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "shutdown", run };

	return sim_main(argc, argv, &program);
}
