/* SPDX-License-Identifier: MIT */
/*
 * Runtimes of other processes, seen from outside: found, opened for reading, read, and their timing switched. Works while
 * the process hangs or is stopped; nothing of it runs in the process.
 *
 * A runtime is found in the first of these ways that this user is allowed:
 *
 *	ids    all BPF maps of the machine (CAP_SYS_ADMIN); of any PID namespace
 *	fds    the maps behind /proc/PID/fd, by pidfd_getfd(2): processes that this user may trace
 *	memfd  the file `mrt_workers` among /proc/PID/fd: processes of the same user, or all for root
 *	pins   /sys/fs/bpf/mrt/PID: readable is enough, then every read is system calls; nothing can be mapped
 *
 * Whose they are is never taken from a name: the block mrt_global says process, start time and PID namespace, and the process
 * must be that one and alive. So a pin of a dead process, a number that was used again, and a child that inherited the
 * descriptors are refused. So is another version of the statistics than that of this program's <martlet/stats.h>: that process has
 * another libmartlet.
 *
 * Not thread-safe: a set belongs to one thread.
 */
#ifndef TOOLS_ATTACH_H
#define TOOLS_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/stats.h>

enum attach_block { ATTACH_WORKERS, ATTACH_HISTS, ATTACH_GLOBAL, ATTACH_CTL, ATTACH_BLOCKS_NR };

/* One runtime, and a copy of its statistics as they were at the last attach_read(). */
struct attach {
	int pid;                        /* in this process's PID namespace */
	char label[32];                 /* its name, with "-2" and so on for further ones of that name in the process */
	const char *backend;            /* "bpf", "memfd" */
	char from[160];                 /* where it was found, in words */
	bool is_mapped;                 /* false: read by system calls */
	bool may_control;               /* attach_watch() can work */
	unsigned workers_nr;

	uint64_t read_ns;               /* CLOCK_MONOTONIC, when the copy was made */
	struct mrt_global_stats global; /* name: terminated and printable */
	struct mrt_ctl ctl;
	struct mrt_worker_stats *workers;       /* [workers_nr]; busy_ns and park_ns are brought up to read_ns */
	struct mrt_worker_hists *hists;         /* [workers_nr] */

	/* attach.c's own */
	int fds[ATTACH_BLOCKS_NR];      /* of maps; -1: none, or mapped; mrt_workers' is kept */
	void *mem[ATTACH_BLOCKS_NR];    /* live blocks; NULL: not mapped */
	void *maps[ATTACH_BLOCKS_NR];   /* what is to be unmapped */
	size_t map_bytes[ATTACH_BLOCKS_NR];
	int held_fd;                    /* number of the descriptor that the process keeps while the runtime lives; -1: unknown */
	uint64_t held_id;               /* what it is: inode of the memfd, or id of mrt_workers */
	char pin[64];                   /* folder of the pins that it was opened by; "" */
};

/* What was found and cannot be used. */
struct attach_refusal {
	int pid;                        /* 0: unknown */
	char why[200];                  /* a sentence */
};

#define ATTACH_REFUSALS_MAX 32u

/* All runtimes that were found, sorted by pid and creation. Zeroed: none yet. */
struct attach_set {
	struct attach **items;          /* [nr] */
	unsigned nr;
	struct attach_refusal refusals[ATTACH_REFUSALS_MAX];    /* of the last scan */
	unsigned refusals_nr;           /* may be more than there is room for */
};

/**
 * Look for runtimes, and add those that are not in the set yet; each new one has been read once.
 *
 * @param pids  [pids_nr] processes to look at; pids_nr 0: all
 * @return 0, also if nothing was found; -ENOMEM; -EMFILE, -ENFILE: no descriptor left to look with. What was found stays
 */
int attach_scan(struct attach_set *set, const int *pids, unsigned pids_nr);

/* Why there is none for this process, in a sentence; for a process of which nothing was found. */
const char *attach_why_not(const struct attach_set *set, int pid, char *buf, size_t buf_bytes);

/**
 * Copy the statistics anew.
 *
 * @return 0; -ESRCH: the process has ended; -ENOENT: it lives, and its runtime is gone; -errno. The copy stays as it was
 */
int attach_read(struct attach *a);

/**
 * Have all polls and ops timed until then, or longer if somebody else wants it: the workers themselves go back to what was set.
 *
 * @param until_ns  CLOCK_MONOTONIC; a little ahead, and renewed while somebody looks
 * @return 0; -EACCES: opened for reading only; -errno
 */
int attach_watch(struct attach *a, uint64_t until_ns);

/* Take one out of the set and close it. The others move up. */
void attach_set_drop(struct attach_set *set, unsigned idx);

/* Close all; the set is empty again. */
void attach_set_close(struct attach_set *set);

#endif
