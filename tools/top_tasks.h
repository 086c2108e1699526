/* SPDX-License-Identifier: MIT */
/*
 * The tasks of a process, one by one and by function, for `martlet top`: what the BPF programs of `martlet trace` count while it
 * listens to the probes. Only while somebody looks at them, since each hit costs the process.
 */
#ifndef TOOLS_TOP_TASKS_H
#define TOOLS_TOP_TASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/trace.h"
#include "fn_names.h"
#include "task_list.h"
#include "top_model.h"

#define TOP_TASKS_WHY_BYTES 512u

struct top_function {
	uint64_t fn;
	const char *name;               /* of the names' */
	uint64_t spawns, ends;          /* since it listens */
	double polls, unwoken;          /* a second */
	double busy;                    /* of one worker's time, per cent */
	struct trace_hist poll, sched;  /* since the last look */
	const char *warning;            /* "" */
	struct trace_fn before;         /* as the look before found it */
};

struct top_tasks {
	int pid;
	struct tracer *tracer;
	struct fn_names *names;
	struct top_function *functions; /* [nr] */
	unsigned nr;
	struct task_list list;
	uint64_t looked_ns, lost;
	uint64_t punts[TRACE_OPCODES];  /* ops handed to io-wq since it listens, by opcode */
	double punts_per_s;             /* between the last two looks */

	/* memory */
	struct walk walk;
	bool may_walk;
	char why[TOP_TASKS_WHY_BYTES];  /* it may not; "" */
	uint64_t walk_ns;               /* not before */
	struct tracer_tasks *counted;   /* read into; large */
};

/**
 * Begin to listen.
 *
 * @return 0, or -errno with a sentence
 */
int top_tasks_open(struct top_tasks *t, const struct top_runtime *r, char ret_why[TOP_TASKS_WHY_BYTES]);

/* Take in what has come. @param r  as it was looked at last @return 0, -ENOMEM */
int top_tasks_look(struct top_tasks *t, const struct top_runtime *r);

/* Its tasks, the longest total first. @param ret_rows  [TASK_LIST_MAX], until the next look @return how many there are */
unsigned top_tasks_sorted(const struct top_tasks *t, const struct task_row **ret_rows);

/* End; nothing of it is left in the process. A zeroed one is ignored. */
void top_tasks_close(struct top_tasks *t);

#endif
