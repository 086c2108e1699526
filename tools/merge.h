/* SPDX-License-Identifier: MIT */
/*
 * --merge: several results (--output-format=json+) into one. Histograms are added up bucket by bucket, so the merged
 * percentiles are exactly those of one histogram that had been given all the samples.
 */
#ifndef TOOLS_MERGE_H
#define TOOLS_MERGE_H

#include "opts.h"
#include "result.h"

/* One file. */
struct merge_input {
	const char *path;
	uint64_t ios, runtime_ns;
};

struct merged {
	struct result r;
	struct merge_input *inputs;     /* [inputs_nr] */
	unsigned inputs_nr;
	char *work;                     /* what was done, as JSON: of the first file */
	unsigned warnings_nr;
	char warning[2][320];
};

/**
 * Read and add up the files that the options name.
 *
 * @param o    its block size and rate are set to those of the files, since reports show them
 * @param err  told why a file cannot be merged
 * @return 0, or -errno after a message; merge_fini() in either case
 */
int merge_read(struct merged *m, struct bench_opts *o, FILE *err);
void merge_fini(struct merged *m);

#endif
