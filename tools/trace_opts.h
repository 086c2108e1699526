/* SPDX-License-Identifier: MIT */
/* What `martlet trace` was asked to do. */
#ifndef TOOLS_TRACE_OPTS_H
#define TOOLS_TRACE_OPTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "bpf/tracer.h"

struct trace_opts {
	pid_t pid;              /* 0: a command, or all */
	char **command;         /* NULL-terminated; NULL: none */
	bool all;
	bool pin;               /* only that */

	bool by_function, ops, offcpu, depths, json;
	uint64_t duration_ns;   /* 0: until Ctrl-C, or the process ends */
	enum tracer_attach how;

	const char *timeline;   /* file; NULL: none */
	uint64_t buffer_bytes;
	uint64_t events_max;    /* of the file */
};

/**
 * Read the command line of `martlet trace` (argv[0] is "trace"). Strings point into argv.
 *
 * @return 0; 1 when help was asked for and printed; -EINVAL after a message on `err`
 */
int trace_opts_parse(struct trace_opts *o, int argc, char **argv, FILE *err);

#endif
