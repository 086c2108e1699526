/* SPDX-License-Identifier: MIT */
/*
 * A process's statistics from outside, as a viewer finds them: its maps or its memfd, by the links in /proc/PID/fd. Of a
 * process with several runtimes, those of the one made last.
 */
#ifndef MRT_TESTS_OBSERVE_H
#define MRT_TESTS_OBSERVE_H

#include <stddef.h>
#include <sys/types.h>

#include <martlet/stats.h>

struct observe {
	const struct mrt_worker_stats *workers;
	const struct mrt_worker_hists *hists;
	const struct mrt_global_stats *global;
	struct mrt_ctl *ctl;            /* may be written */
	const struct mrt_stats_file *file;      /* memfd; NULL: maps */
	unsigned workers_nr;
	unsigned map_ids[4];            /* workers, hists, global, ctl */
	void *mem[4];
	size_t bytes[4];
};

/* @return 0; -ENOENT: the process has neither; -errno */
int observe_open(pid_t pid, struct observe *ret);
void observe_close(struct observe *o);

/**
 * A BPF map that is called mrt_global and is none, or one of another version.
 *
 * @param type   BPF_MAP_TYPE_ARRAY: its element begins as value does, as far as there is room; others stay empty
 * @param bytes  of an element
 * @return its descriptor; fails the test if it cannot be made
 */
int observe_fake_global(unsigned type, size_t bytes, const struct mrt_global_stats *value);

#endif
