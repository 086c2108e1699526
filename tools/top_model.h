/* SPDX-License-Identifier: MIT */
/*
 * What `martlet top` shows, without the showing: rates, percentiles and warnings, made from two looks at a runtime.
 *
 * Rates are of the time between the last two looks; percentiles of what was timed in it. What was never timed is 0.
 */
#ifndef TOOLS_TOP_MODEL_H
#define TOOLS_TOP_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "attach.h"
#include "buckets.h"
#include "symbols.h"

#define TOP_HISTORY_NR 128u     /* looks that a sparkline can show */
#define TOP_WARNINGS_NR 64u
#define TOP_FN_BYTES 96u
#define TOP_STUCK_NS UINT64_C(500000000)        /* in one poll for so long: stuck */
#define TOP_LONG_POLL_NS UINT64_C(10000000)     /* a poll that keeps others waiting, without being stuck */

/* In per cent of what it is of, a second, or as the statistics have them. */
struct top_worker {
	unsigned index;
	int tid, cpu;
	unsigned state;                 /* enum mrt_worker_state, POLLING made out of poll_fn */
	double busy, park;
	uint32_t local_queue, next_slot, yielded, inflight, queued, sq_staged, sq_entries, cq_ready, cq_entries;
	uint64_t timers;
	double queue_mean;              /* of local_queue, true over time */
	double polls, yields, budget_yields, steals, steal_ops, overflows, injects, parks, enters, stalls;
	double noop;                    /* of parks, those that ended without work */
	double sqes_an_enter, cqes_a_turn;
	double sq_fulls, credit_waits, cq_overflows;
	struct buckets poll;            /* since the last look */
	uint64_t poll_nr;               /* all polls so far */

	/* the poll that runs */
	uint64_t poll_fn, poll_task;    /* 0: none does */
	char fn[TOP_FN_BYTES];          /* its name */
	bool is_stuck;
	bool is_exact;                  /* poll_ns is since the poll began; else since the last ring turn before it */
	uint64_t poll_ns;
};

struct top_op {
	unsigned opcode;
	double rate;                    /* a second */
	uint64_t nr;                    /* all so far */
	struct buckets lat;             /* since the last look */
	bool has_percentiles;           /* its histogram found a slot */
};

struct top_warning {
	int worker;                     /* -1: the runtime */
	char text[200];
};

/* A value a look, the newest last. */
struct top_history {
	unsigned nr;
	double value[TOP_HISTORY_NR];
};

struct top_runtime {
	struct attach *a;               /* the set's; NULL: it has ended, and all below is of the last look */
	int pid;
	char process[64], label[32];
	const char *backend;
	char process_state;             /* of ps(1) */
	bool has_rates;                 /* it was looked at twice */
	uint64_t uptime_ns, span_ns;
	bool is_current_thread;
	struct mrt_global_stats global;
	int64_t tasks_alive;            /* exact */
	unsigned workers_nr;
	struct top_worker *workers;     /* [workers_nr] */
	struct top_worker sum;          /* of rates and depths; busy and park: means */
	unsigned ops_nr;
	struct top_op ops[MRT_OPCODES_NR];      /* those that came, the most frequent first */
	double iops;                    /* SQEs staged for ops */
	struct buckets lat;             /* of all ops */
	unsigned warnings_nr;
	struct top_warning warnings[TOP_WARNINGS_NR];
	struct top_history queue, poll_p99, io;

	/* the model's own: the look before */
	uint64_t before_ns;
	struct mrt_global_stats before_global;
	struct mrt_worker_stats *before;        /* [workers_nr] */
	struct mrt_worker_hists *before_hists;  /* [workers_nr] */
	struct top_same {
		uint64_t polls, since_ns;       /* so many polls since that look */
	} *same;                        /* [workers_nr] */
	uint64_t starved_ns;            /* inject has been full and nothing was taken since that look; 0: it is not so */
	struct symbols *symbols;
	bool is_old;                    /* while looking through the set */
};

struct top_model {
	struct top_runtime **items;     /* [nr], in the set's order; what has ended stays until it is forgotten */
	unsigned nr;
};

/**
 * Take in the set as it was read last. Runtimes that are no more in it lose their `a`.
 *
 * @return 0, -ENOMEM
 */
int top_update(struct top_model *m, const struct attach_set *set);

/* Drop what has ended. */
void top_forget(struct top_model *m);

void top_close(struct top_model *m);

/* "RUN", "POLL" */
const char *top_state_name(unsigned state);

#endif
