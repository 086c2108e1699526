/* SPDX-License-Identifier: MIT */
/* The result for programs: one JSON document with fio's field names. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdio.h>

#include "ladder.h"
#include "merge.h"
#include "result.h"
#include "series.h"
#include "target.h"
#include "verify.h"

#define JSON_SCHEMA_VERSION 1u

struct json_in {
	const struct bench_opts *o;
	const struct targets *targets;  /* NULL: nothing was run */
	const struct merged *merged;    /* NULL: none; else it was */
	const struct result *results;   /* [results_nr] */
	unsigned results_nr;
	const struct series *series;    /* NULL: a single run */
	const struct ladder *ladder;    /* of that series; NULL: none */
	const struct verify *verify;    /* NULL: none */
	int exit_code;
};

/**
 * Write the document and a newline.
 *
 * @return 0, -ENOMEM, or -EIO
 */
int json_write(FILE *out, const struct json_in *in);

#endif
