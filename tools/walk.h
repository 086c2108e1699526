/* SPDX-License-Identifier: MIT */
/*
 * Tasks and ops in the memory of another process, by the table that its library has of its own structs
 * (<martlet/layout.h>). The process is neither stopped nor asked, so it may hang or be stopped; if it runs, what is read may
 * have changed since, and counts may be off by what changed.
 *
 * Nothing that is read is trusted: each offset stays inside what was read, each list has an end, and what does not fit is
 * counted as torn. Memory is bounded, too: 8 to 16 bytes a slab, of WALK_SLABS_MAX at most, and the ops of one task.
 */
#ifndef TOOLS_WALK_H
#define TOOLS_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <martlet/layout.h>

#define WALK_KINDS_MAX 128u
#define WALK_KIND_BYTES 24u
#define WALK_SLABS_MAX (1u << 22)       /* a slab is 64 KiB, or one large task */

enum walk_state {
	WALK_RUNNING,   /* in a worker's hand */
	WALK_RUNNABLE,  /* in a queue */
	WALK_WAITING,
	WALK_ENDING,    /* has returned; ops of it are in flight */
	WALK_ENDED,     /* somebody keeps its handle */
	WALK_STATES_NR
};

/* "running", ... */
const char *walk_state_name(enum walk_state state);

enum walk_age {
	WALK_AGE_UNKNOWN,
	WALK_AGE_ABOUT,         /* not after this: when the worker last looked at the clock before */
	WALK_AGE_EXACT,         /* when it was staged */
};

struct walk_op {
	uint64_t addr;
	const char *kind;       /* "read"; lives with the walk */
	bool is_ring;           /* opcode, fd, len, off and worker are valid */
	bool is_handle;         /* fd is the number of a registered file */
	bool is_awaited, is_cancelled;
	bool is_ended;          /* its task has not seen it yet */
	bool is_queued;         /* not yet given to the kernel */
	uint8_t opcode;         /* io_uring's */
	int fd;
	uint32_t len;
	uint64_t off;
	unsigned worker;
	uint64_t object;        /* that it waits in; 0: none */
	uint64_t object_fn;     /* of a join: the function of that task; 0: unknown */
	uint64_t deadline_ns;   /* of a sleep or deadline; 0: none */
	enum walk_age age;
	uint64_t began_ns;      /* CLOCK_MONOTONIC */
};

struct walk_task {
	uint64_t addr, id, fn;
	char name[40];          /* that it was given; "" */
	enum walk_state state;
	bool is_aborted;
	int worker;             /* that polled or spawned it last; -1: none */
	uint32_t await_nr;
	const struct walk_op *ops;      /* [ops_nr] newest first */
	unsigned ops_nr;
};

typedef void walk_fn(const struct walk_task *task, void *ctx);

struct walk {
	pid_t pid;
	uint64_t runtime;
	unsigned workers_nr;
	struct mrt_layout layout;
	char kinds[WALK_KINDS_MAX][WALK_KIND_BYTES];
	unsigned slabs_max;     /* that are read; WALK_SLABS_MAX unless it is changed after walk_open() */

	/* how it went */
	unsigned changed_nr;    /* tasks that changed while they were read: their ops are incomplete */
	unsigned torn_nr;       /* lists and structs that did not fit */
	char torn[160];         /* the first of them, in words */
	bool is_cut;            /* there are more slabs than slabs_max; counted in torn_nr, too */
};

/**
 * Read the table, and check that it is one that this program knows.
 *
 * @param runtime, layout  of mrt_global
 * @param why  [why_bytes] on failure: a sentence
 * @return 0; -EPERM: not allowed; -ESRCH: it has ended; -EINVAL: no such table, or one of another version
 */
int walk_open(struct walk *ret_walk, pid_t pid, uint64_t runtime, uint64_t layout, unsigned workers_nr, char *why,
	      size_t why_bytes);

/* The task that a worker has in hand; 0: none, or unreadable. */
uint64_t walk_worker_task(struct walk *w, unsigned worker);

/**
 * Call fn for each task of the runtime, in no order. The task is gone when fn returns.
 *
 * @return 0, also where parts did not fit (torn_nr); -ESRCH: the process has ended meanwhile; -ENOMEM
 */
int walk_tasks(struct walk *w, walk_fn *fn, void *ctx);

#endif
