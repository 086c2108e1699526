/* SPDX-License-Identifier: MIT */
/* Runs one engine once, watches it, and sums up. */
#ifndef TOOLS_CONTROL_H
#define TOOLS_CONTROL_H

#include "result.h"

/* What the controller writes while the engine runs. */
struct control_view {
	bool live;                      /* a line on stderr, rewritten once a second */
	unsigned status_s;              /* a line on stderr this often; 0: never */
	const char *label;              /* in front of the line */
};

/**
 * @param r       laid out by run_init() for this engine
 * @param stop    set by a signal: the run ends early and what it has is the result
 * @param ret     overwritten; result_free() it
 * @return 0, or -errno of an engine that could not start (it has said why)
 */
int control_run(struct run *r, const struct engine *e, const struct control_view *view, const atomic_int *stop,
		struct result *ret);

#endif
