/* SPDX-License-Identifier: MIT */
/*
 * Statistics in the text format of Prometheus. Names, types and help texts come from the lists of <martlet/stats.h>:
 *
 *	mrt_worker_FIELD     of mrt_workers, a series a worker
 *	mrt_runtime_FIELD    of mrt_global
 *	mrt_...              histograms and ops by opcode, of mrt_hists
 *
 * Counters end in _total. What the statistics have in ns is in seconds; a moment (turn_ns) is an age.
 */
#ifndef TOOLS_METRICS_H
#define TOOLS_METRICS_H

#include <stdio.h>

#include "attach.h"

/**
 * Write all runtimes of the set, as they were read last.
 *
 * @return 0, -EIO
 */
int metrics_write(FILE *out, const struct attach_set *set);

#endif
