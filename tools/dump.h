/* SPDX-License-Identifier: MIT */
/* What `martlet dump` has found in a process, and the two ways to say it. */
#ifndef TOOLS_DUMP_H
#define TOOLS_DUMP_H

#include <stdbool.h>
#include <stdio.h>

#include "attach.h"
#include "symbols.h"
#include "walk.h"

#define DUMP_WAIT_BYTES 96u
#define DUMP_GROUPS_MAX 4096u

struct dump_worker {
	const struct mrt_worker_stats *stats;   /* at the second look */
	bool is_polling;
	bool is_stuck;                  /* in the same poll at both looks */
	uint64_t since_ns;              /* CLOCK_MONOTONIC: the poll, or the park, began; 0: unknown */
	bool is_exact;                  /* no: it began then or later */
	uint64_t polls_moved;           /* between the looks */
	char thread_state;              /* as ps(1) has it; '?': unknown */
	char wchan[40];                 /* where in the kernel; "" */
};

/* An op in flight and whose it is. */
struct dump_op {
	struct walk_op op;
	uint64_t task, fn;
};

struct dump_task {
	struct walk_task task;          /* its ops are not kept */
	char wait[DUMP_WAIT_BYTES];
	uint64_t object;                /* that it waits in, if one alone; 0: none */
	enum walk_age age;              /* of its oldest op */
	uint64_t began_ns;
};

/* Waiting tasks of one function that wait for the same. */
struct dump_group {
	uint64_t fn, nr;
	char wait[DUMP_WAIT_BYTES];
	enum walk_age age;
	uint64_t began_ns;              /* of the oldest op that one of them waits for */
};

struct dump {
	const struct attach *a;
	struct symbols *symbols;
	const char *symbols_why;        /* why names cannot be told; NULL: they can */
	char process[64], state;        /* name, state letter */
	uint64_t now_ns, look_ns;       /* second look; distance of the two */
	struct dump_worker *workers;    /* [a->workers_nr] */

	const char *memory_why;         /* why tasks and ops are not shown; NULL: they are */
	struct walk walk;
	uint64_t tasks_nr[WALK_STATES_NR];
	uint64_t ops_nr;                /* in flight, of all kinds */
	uint64_t ops_out_nr;            /* ... of which rings or the blocking pool have */
	struct dump_op *ops;            /* [ops_kept] oldest first */
	unsigned ops_kept, ops_max;
	struct dump_task *tasks;        /* [tasks_kept] waiting, oldest op first */
	unsigned tasks_kept, tasks_max;
	struct dump_group *groups;      /* [groups_nr] largest first */
	unsigned groups_nr;
	uint64_t groups_left;           /* tasks beyond DUMP_GROUPS_MAX groups */
};

void dump_text(struct dump *d, FILE *out);

/* The same and more as a JSON object, without a line end. */
void dump_json(struct dump *d, FILE *out);

/* Function of an address: its name, or file and address. Uses one of a few buffers in turn. */
const char *dump_fn(struct dump *d, uint64_t addr);

/* What a descriptor of the process is: "socket:[123]", "/path"; "": unknown. @return buf */
const char *dump_fd(const struct dump *d, int fd, char *buf, size_t buf_bytes);

#endif
