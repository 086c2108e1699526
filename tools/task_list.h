/* SPDX-License-Identifier: MIT */
/*
 * The tasks of a runtime one by one: what the BPF programs have counted of each since they listen, joined with what the
 * process's memory says of it (number, name, state, and that it is there at all: one that sleeps fires no probe).
 *
 * Either source may be missing. Without memory a task is known from its first event on, and a task that has yielded counts as
 * idle until it is polled; one without an entry among the counted (new, or dropped) has no figures of its own.
 */
#ifndef TOOLS_TASK_LIST_H
#define TOOLS_TASK_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/tracer.h"
#include "walk.h"

#define TASK_LIST_MAX (2 * TRACE_TASKS_MAX)     /* those that are counted, and as many that are not */
#define TASK_NAME_BYTES 40u

#define TASK_LONG_POLL_NS UINT64_C(10000000)
#define TASK_LONG_WAIT_NS UINT64_C(100000000)
#define TASK_NEVER_YIELDS_NS UINT64_C(1000000000)
#define TASK_SELF_WAKES_POLLS 10u               /* of fewer polls half is no sign */

enum task_warning {
	TASK_NEVER_YIELDS = 1u << 0,    /* is in one poll for a second */
	TASK_SELF_WAKES = 1u << 1,      /* more than half of its polls came without a wake */
	TASK_LONG_POLL = 1u << 2,       /* one took 10 ms */
	TASK_LONG_WAIT = 1u << 3,       /* it was runnable for 100 ms */
};

struct task_row {
	uint64_t addr, fn;
	uint64_t id;                    /* 0: unknown */
	char name[TASK_NAME_BYTES];     /* that it was given; "" */
	const char *fn_name;            /* whoever owns the list sets it; NULL: not yet */
	enum trace_task_state state;
	bool is_counted;                /* it has an entry among the counted */
	uint64_t met_ns;                /* of that entry; 0: it never had one */
	uint64_t first_ns;              /* spawned, or the listening began */
	uint64_t state_ns;              /* since it is in its state; 0: unknown */
	uint64_t total_ns, busy_ns, sched_ns, idle_ns;  /* the last three add up to the first */
	uint64_t polls, self_wakes;
	uint64_t poll_max_ns, sched_max_ns;             /* what runs is in them */
	uint64_t running_ns;            /* the poll that runs lasts so long; 0: none does */
	unsigned warnings;              /* of enum task_warning */
	struct trace_hist poll, sched;  /* what has ended */
};

struct task_list {
	struct task_row *rows;          /* [nr] by address */
	unsigned nr;
	uint64_t dropped;               /* entries that had to make room */
	uint64_t hidden;                /* tasks in memory beyond TASK_LIST_MAX */
	uint64_t since_ns;              /* CLOCK_MONOTONIC: it listens since; set before the first look */

	/* its own */
	struct task_row *before;        /* [before_nr] rows of the look before */
	unsigned before_nr;
	bool has_looked;
	unsigned counted_nr;            /* rows with an entry come first while a look is made */
	uint64_t now_ns;
};

/* Begin a look: take in what was counted. @return 0, -ENOMEM */
int task_list_count(struct task_list *l, const struct tracer_tasks *counted, uint64_t now_ns);

/* Take in what is in memory; a walk_fn whose context is the list. After task_list_count(). */
void task_list_walked(const struct walk_task *task, void *list);

/* In place of a walk: what the last one has found is still there. */
void task_list_keep(struct task_list *l);

/* A worker says that it is in a poll of this task for so long. */
void task_list_polled(struct task_list *l, uint64_t addr, uint64_t ns);

/* End the look: order, and what follows from the figures. */
void task_list_finish(struct task_list *l);

/* The row of a task; NULL: there is none (any more). */
const struct task_row *task_list_find(const struct task_list *l, uint64_t addr, uint64_t met_ns);

void task_list_free(struct task_list *l);

/* "RUNNING", "IDLE", "SCHED", "DONE" */
const char *task_state_name(enum trace_task_state state);

/* The gravest in a few words, and "" if there is none. */
const char *task_warning_name(unsigned warnings);

#endif
