/* SPDX-License-Identifier: MIT */
/* What the parts of `martlet top` share: the loop of looks, and the terminal that shows them. */
#ifndef TOOLS_TOP_H
#define TOOLS_TOP_H

#include <stdbool.h>
#include <stdint.h>

#include "top_model.h"
#include "viewer.h"

/* Timing is asked for so far ahead, at every look; the longest time between two looks is less. */
#define TOP_WATCH_NS UINT64_C(3000000000)
#define TOP_INTERVAL_MIN_NS UINT64_C(100000000)
#define TOP_INTERVAL_MAX_NS UINT64_C(2000000000)

struct top {
	struct viewer_pids pids;
	struct attach_set set;
	struct top_model model;
	uint64_t interval_ns;
	bool keeps_timing;              /* ask for nothing */
	bool watches_all;               /* else what is open alone */
	unsigned tasks_max;             /* --once, --json: tasks to list of each runtime; 0: none, and no probe is listened to */
};

/* Look, and ask for timing. @param open  the runtime that is looked into; NULL: none. @return 0, -ENOMEM */
int top_look(struct top *t, const struct top_runtime *open);

/* What is missing of the build for the terminal, in a sentence; NULL: nothing. */
const char *top_screen_missing(void);

/* Show until the user ends it. @return exit code */
int top_screen(struct top *t);

#endif
