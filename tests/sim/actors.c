/* SPDX-License-Identifier: MIT */
/* Random tasks run until all have ended by themselves. Nothing may be left, lost, early, or done twice. */
#include "sim.h"
#include "sim_actor.h"

static void run(void)
{
	struct sim_actors_opts actors;
	unsigned turns;

	sim_start();
	sim_actors_draw(&actors);
	sim_actors_start(&actors);
	sim_actors_spawn(1 + (unsigned)sim_below(8));
	for (turns = (unsigned)sim_below(20); turns > 0 && sim_run_steps(sim_below(500)); turns--) {
		if (sim_chance(300))
			sim_actors_spawn(1);
		sim_actors_meddle();
		if (sim_chance(10))
			sim_actors_close_objects();
	}
	sim_run_to_idle();
	sim_close();
	sim_actors_finish();
	sim_finish();
}

int main(int argc, char **argv)
{
	static const struct sim_program program = { "actors", run };

	return sim_main(argc, argv, &program);
}
