/* SPDX-License-Identifier: MIT */
/* See tracer.h: what a build without BPF has. CMake names in MRT_TRACER_MISSING what it looked for in vain. */
#include "tracer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *tracer_missing(void)
{
	return "this martlet was built without its BPF programs; missing then: " MRT_TRACER_MISSING;
}

int tracer_check(enum tracer_attach how, char ret_why[TRACER_WHY_BYTES])
{
	(void)how;
	(void)snprintf(ret_why, TRACER_WHY_BYTES, "%s", tracer_missing()); /* fits */
	return -EOPNOTSUPP;
}

int tracer_open(const struct tracer_opts *opts, struct tracer **ret_tracer, char ret_why[TRACER_WHY_BYTES])
{
	(void)opts;
	(void)ret_tracer;
	(void)snprintf(ret_why, TRACER_WHY_BYTES, "%s", tracer_missing()); /* fits */
	return -EOPNOTSUPP;
}

void tracer_close(struct tracer *t)
{
	(void)t;
}

const char *tracer_note(const struct tracer *t, unsigned idx)
{
	(void)t;
	(void)idx;
	return NULL;
}

enum tracer_attach tracer_how(const struct tracer *t)
{
	(void)t;
	return TRACER_AUTO;
}

int tracer_consume(struct tracer *t)
{
	(void)t;
	return -EOPNOTSUPP;
}

int tracer_fd(const struct tracer *t)
{
	(void)t;
	return -1;
}

void tracer_detach(struct tracer *t)
{
	(void)t;
}

void tracer_counts(const struct tracer *t, uint64_t ret_hits[TRACE_PROBES_NR], uint64_t ret_lost[TRACE_LOST_NR])
{
	(void)t;
	memset(ret_hits, 0, TRACE_PROBES_NR * sizeof(*ret_hits));
	memset(ret_lost, 0, TRACE_LOST_NR * sizeof(*ret_lost));
}

void tracer_stage(const struct tracer *t, unsigned opcode, enum trace_stage stage, struct trace_hist *ret_hist)
{
	(void)t;
	(void)opcode;
	(void)stage;
	memset(ret_hist, 0, sizeof(*ret_hist));
}

void tracer_depths(const struct tracer *t, unsigned worker, struct trace_depths *ret_depths)
{
	(void)t;
	(void)worker;
	memset(ret_depths, 0, sizeof(*ret_depths));
}

bool tracer_next(const struct tracer *t, enum tracer_table table, const void *prev_key, void *ret_key, void *ret_value)
{
	(void)t;
	(void)table;
	(void)prev_key;
	(void)ret_key;
	(void)ret_value;
	return false;
}

int tracer_tasks(const struct tracer *t, struct tracer_tasks *ret)
{
	(void)t;
	ret->nr = 0;
	ret->dropped = 0;
	return -EOPNOTSUPP;
}

int tracer_pin_workers(pid_t pid, int workers_fd, unsigned workers_nr, const char *path, char ret_why[TRACER_WHY_BYTES])
{
	(void)pid;
	(void)workers_fd;
	(void)workers_nr;
	(void)path;
	(void)snprintf(ret_why, TRACER_WHY_BYTES, "%s", tracer_missing()); /* fits */
	return -EOPNOTSUPP;
}
