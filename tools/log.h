/* SPDX-License-Identifier: MIT */
/*
 * fio's logs, one file a job: PREFIX_iops.N.log, PREFIX_bw.N.log, PREFIX_lat.N.log, N from 1. A line is
 *
 *	time, value, direction, block size[, offset], priority
 *
 * with the time in ms from the start of the measured window, the value in I/Os a second, KiB a second or ns, the
 * direction 0 for reads and 1 for writes, and the priority always 0. The two rate logs are written by the controller
 * while it runs. Latencies are kept by the lanes in memory of a fixed size and written when the run has ended, so that
 * the log costs the run a few stores an I/O and no system call; what does not fit is counted.
 */
#ifndef TOOLS_LOG_H
#define TOOLS_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bench_opts;
struct result;
struct run;

#define LOG_DIRS_NR 2u

/* An I/O; or, averaged, an interval of one direction. */
struct lat_entry {
	uint32_t ms, dir;       /* of the end, from the start of the window */
	uint64_t ns;            /* latency; averaged: the mean */
	uint64_t off;           /* bytes; averaged: the number of I/Os */
};

/* Of one lane. Written by its thread. */
struct lat_log {
	_Alignas(128) struct lat_entry *entries;        /* [max] */
	uint64_t nr, max, dropped;
	uint64_t from_ns;       /* start of the window */
	uint64_t interval_ns;   /* 0: an entry for each I/O */
	uint64_t interval;      /* averaged: the number of the one that the sums are of */
	uint64_t sum[LOG_DIRS_NR], count[LOG_DIRS_NR];
};

/* Note an I/O that ended at `now`, at or after from_ns. */
void lat_log_add(struct lat_log *l, unsigned dir, uint64_t now, uint64_t ns, uint64_t off);

/* Averaged: the last interval is over. */
void lat_log_end(struct lat_log *l);

/**
 * Write a job's file out of the logs of its lanes, in the order of time.
 *
 * @param l  [lanes_nr], ended
 * @return 0, -ENOMEM or -EIO
 */
int lat_log_write(FILE *out, const struct lat_log *l, unsigned lanes_nr, const struct bench_opts *o);

/* The rate logs of a run. All zero: none. */
struct rate_log {
	unsigned jobs_nr;
	FILE **iops, **bw;      /* [jobs_nr] or NULL */
	uint64_t *done;         /* [jobs_nr][2] at last_ns */
	uint64_t interval_ns, begin_ns, last_ns;
	uint64_t due_ns;        /* of the next lines; UINT64_MAX: none */
	bool broken;            /* a write failed */
};

/* Is there a reason why the logs that the options name cannot be written? Said on err. 0 or -errno. */
int log_check(const struct bench_opts *o, FILE *err);

/* PREFIX_kind.N.log for writing. NULL: errno says why. */
FILE *log_open(const char *prefix, const char *kind, unsigned job);

/* @return 0 or -errno; rate_log_close() in either case */
int rate_log_open(struct rate_log *g, const struct bench_opts *o, unsigned jobs_nr);

/* The window begins; done[jobs_nr][2] I/Os had ended before. */
void rate_log_begin(struct rate_log *g, uint64_t now, const uint64_t (*done)[LOG_DIRS_NR]);

/* Lines for the interval up to now, if they are due, or `last` and at least half of it has passed. */
void rate_log_step(struct rate_log *g, const struct bench_opts *o, uint64_t now, const uint64_t (*done)[LOG_DIRS_NR],
		   bool last);

/* @return 0, or -EIO: some line was not written */
int rate_log_close(struct rate_log *g);

#endif
