/* SPDX-License-Identifier: MIT */
/*
 * A Chrome trace file (https://ui.perfetto.dev and chrome://tracing open it) from records as they come.
 *
 * A track per worker: "busy" and "parked" spans that alternate, polls inside of busy ones, named by their functions, and
 * steals. Ops are asynchronous spans of their process, with what they did inside: queued, kernel, unreaped. Written as it
 * comes, so memory is bounded by the number of workers.
 */
#ifndef TOOLS_TIMELINE_H
#define TOOLS_TIMELINE_H

#include <stdint.h>

#include "bpf/tracer.h"
#include "fn_names.h"
#include "trace_result.h"

struct timeline;

struct timeline_opts {
	const char *path;
	uint64_t begin_ns;              /* when the tracing began, CLOCK_MONOTONIC; 0 in the file */
	uint64_t events_max;
	int pid;                        /* of all records; 0: each one's own */
	struct fn_names *names;
};

/* @return 0; -errno of the file; -ENOMEM */
int timeline_create(const struct timeline_opts *opts, struct timeline **ret_timeline);

/* One record. Trouble is kept for timeline_end(). */
void timeline_add(struct timeline *t, const struct trace_rec *rec);

/* What a thread was in the middle of when the tracing ended. After the last record. */
void timeline_add_thread(struct timeline *t, const struct trace_thread *th, uint64_t end_ns);

/**
 * Write the end and close.
 *
 * @param records_lost  for the file to tell
 */
void timeline_end(struct timeline *t, uint64_t records_lost, struct trace_file *ret_file);

#endif
