/* SPDX-License-Identifier: MIT */
/*
 * The percentile distribution as HdrHistogram writes it (.hgrm), which its plotter and many scripts read: value,
 * percentile, total count, 1 / (1 - percentile); five steps to each halving of what remains. Values are in us with three
 * decimals, so exact to the ns, and those of a bucket's upper end, as HdrHistogram's.
 */
#ifndef TOOLS_HGRM_H
#define TOOLS_HGRM_H

#include <stdio.h>

#include "hist.h"

/* @return 0, or -EIO; an empty histogram gives the head and the foot */
int hgrm_write(FILE *out, const struct hist *h);

/* The same into a file. 0 or -errno. */
int hgrm_save(const char *path, const struct hist *h);

#endif
