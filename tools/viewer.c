/* SPDX-License-Identifier: MIT */
/* See viewer.h. */
#include "viewer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int viewer_pids_parse(struct viewer_pids *pids, int argc, char **argv, const char *command)
{
	int i;

	for (i = 0; i < argc; i++) {
		char *end;
		long pid;

		errno = 0;
		pid = strtol(argv[i], &end, 10);
		if (errno || *end || end == argv[i] || pid <= 0 || pid > 1 << 22) {
			fprintf(stderr, "martlet %s: '%s' is not the number of a process\n", command, argv[i]);
			return -EINVAL;
		}
		if (pids->nr == VIEWER_PIDS_MAX) {
			fprintf(stderr, "martlet %s: more than %u processes; without any, all are looked at\n", command,
				VIEWER_PIDS_MAX);
			return -EINVAL;
		}
		pids->pid[pids->nr++] = (int)pid;
	}
	return 0;
}

int viewer_look(struct attach_set *set, const struct viewer_pids *pids)
{
	unsigned i, known = set->nr;

	for (i = known; i-- > 0;) {
		if (attach_read(set->items[i]))
			attach_set_drop(set, i);
	}
	return attach_scan(set, pids->pid, pids->nr);
}

static bool has_pid(const struct attach_set *set, int pid)
{
	unsigned i;

	for (i = 0; i < set->nr; i++) {
		if (set->items[i]->pid == pid)
			return true;
	}
	return false;
}

unsigned viewer_complain(const struct attach_set *set, const struct viewer_pids *pids, const char *command)
{
	unsigned i, nr = 0;
	char buf[256];

	for (i = 0; i < pids->nr; i++) {
		if (has_pid(set, pids->pid[i]))
			continue;
		fprintf(stderr, "martlet %s: %s\n", command, attach_why_not(set, pids->pid[i], buf, sizeof(buf)));
		nr++;
	}
	return nr;
}
