/* SPDX-License-Identifier: MIT */
/*
 * The same load rung by rung: through the page cache, direct, then with registered buffers, with a registered file, polled,
 * and as NVMe commands; each rung keeps what the one below it has. What the target cannot do is left out, with the reason.
 */
#ifndef TOOLS_LADDER_H
#define TOOLS_LADDER_H

#include "series.h"
#include "target.h"

#define LADDER_REASON_BYTES 512u

struct ladder {
	struct {
		const char *name;
		int variant;                    /* of the series; -1: not run */
		char reason[LADDER_REASON_BYTES];       /* why it has no figures; empty: it has */
	} rung[RUNGS_NR];
	struct bench_opts o[RUNGS_NR];
	struct series_variant variants[RUNGS_NR];
	unsigned variants_nr;
	struct targets nvme;            /* of the last rung */
};

/**
 * Find out which rungs there are, by asking the target.
 *
 * @param o, ts, e  the caller's, kept
 */
void ladder_init(struct ladder *l, const struct bench_opts *o, const struct targets *ts, const struct engine *e,
		 const atomic_int *stop);
void ladder_fini(struct ladder *l);

/* After the runs: a rung that the engine did not get has no figures, but the reason. */
void ladder_judge(struct ladder *l, const struct series *s);

#endif
