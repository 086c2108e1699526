/* SPDX-License-Identifier: MIT */
/* The subcommands of `martlet` that look at other processes, and what they share. argv[0] is "martlet top", say. */
#ifndef TOOLS_VIEWER_H
#define TOOLS_VIEWER_H

#include "attach.h"

#define VIEWER_PIDS_MAX 64u

int export_main(int argc, char **argv);
int top_main(int argc, char **argv);
int trace_main(int argc, char **argv);

/* Processes that were asked for; nr 0: all. */
struct viewer_pids {
	int pid[VIEWER_PIDS_MAX];
	unsigned nr;
};

/* The rest of the command line. @return 0; -EINVAL after a message on standard error */
int viewer_pids_parse(struct viewer_pids *pids, int argc, char **argv, const char *command);

/**
 * Look for runtimes, and read those that were known; what has ended is dropped.
 *
 * @return 0, -ENOMEM
 */
int viewer_look(struct attach_set *set, const struct viewer_pids *pids);

/* After the first look: say on standard error why nothing is seen of a process that was asked for. @return how many there are */
unsigned viewer_complain(const struct attach_set *set, const struct viewer_pids *pids, const char *command);

#endif
