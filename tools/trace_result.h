/* SPDX-License-Identifier: MIT */
/* What `martlet trace` has counted, read once, and printed as text or JSON. */
#ifndef TOOLS_TRACE_RESULT_H
#define TOOLS_TRACE_RESULT_H

#include <stdint.h>
#include <stdio.h>

#include "bpf/tracer.h"
#include "fn_names.h"
#include "trace_opts.h"

struct trace_fn_row {
	int pid;
	uint64_t fn;
	const char *name;       /* of the names' */
	struct trace_fn f;
};

struct trace_op_row {
	unsigned opcode;
	struct trace_hist stages[TRACE_STAGES_NR];
};

struct trace_punt_row {
	int pid;
	unsigned opcode;
	uint64_t fn, nr;
	const char *name;
};

struct trace_worker_row {
	int pid;
	unsigned worker;
	struct trace_worker w;
};

struct trace_depth_row {
	unsigned worker;
	struct trace_depths d;
};

/* A timeline that was written. */
struct trace_file {
	uint64_t events, skipped;       /* written; beyond --events */
	uint64_t gaps;                  /* stretches of a worker that are missing, since records were lost */
	int error;                      /* of writing: 0, -errno */
};

struct trace_result {
	uint64_t duration_ns;
	enum tracer_attach how;
	uint64_t hits[TRACE_PROBES_NR], lost[TRACE_LOST_NR];
	const char *notes[TRACER_NOTES_MAX];    /* the tracer's */
	unsigned notes_nr;

	/* by falling time, or number */
	struct trace_fn_row *functions;
	struct trace_punt_row *punts;
	/* by process and number */
	struct trace_worker_row *workers;
	struct trace_op_row *ops;
	struct trace_depth_row *depths;
	size_t functions_nr, punts_nr, workers_nr, ops_nr, depths_nr;

	struct trace_hist poll, sched;  /* of all functions */
	struct trace_file file;
};

/**
 * Read it; the tracer is detached.
 *
 * @param pid         of all that was counted; 0: each row's own
 * @param depths_nr   workers whose depths were sampled
 * @return 0, -ENOMEM
 */
int trace_result_read(struct trace_result *r, const struct tracer *t, int pid, unsigned depths_nr, struct fn_names *names);

void trace_result_free(struct trace_result *r);

/* ns that this share of h lasts at most, by the end of a slot; 0: h is empty. @param share  0..1 */
uint64_t trace_hist_quantile(const struct trace_hist *h, double share);

/* What a slot begins with. */
uint64_t trace_slot_min(unsigned slot);

void trace_result_print(FILE *out, const struct trace_result *r, const struct trace_opts *o);

/* @return 0, -ENOMEM, -EIO */
int trace_result_print_json(FILE *out, const struct trace_result *r, const struct trace_opts *o);

#endif
