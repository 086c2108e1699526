/* SPDX-License-Identifier: MIT */
/* What a run gave, summed over its lanes: all that the reports print. */
#ifndef TOOLS_RESULT_H
#define TOOLS_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include "job.h"

#define RESULT_SERIES_MAX 86400u

struct dir_result {
	uint64_t ios, bytes;            /* in the measured window */
	uint64_t short_ios, failed;     /* in the whole run */
	struct hist lat, slat, clat;
	/* IOPS over half-second intervals of the window */
	double iops_min, iops_max, iops_mean, iops_stddev;
	unsigned samples;
};

/* One of several targets. */
struct target_result {
	uint64_t ios[DIRS_NR];          /* in the measured window */
	uint64_t short_ios[DIRS_NR], failed[DIRS_NR];   /* in the whole run */
};

/* A job by itself: a worker, a ring's thread, or a group of threads. */
struct worker_result {
	int cpu;                        /* pinned to; -1: not */
	uint64_t ios[DIRS_NR];          /* in the measured window */
	uint64_t failed, short_ios;     /* in the whole run */
	bool cpu_known;                 /* its threads saw the window's end */
	double cpu_us_per_io, usr_pct, sys_pct;
	uint64_t ctx;
	/* reads and writes together, ns */
	uint64_t lat_min, lat_p50, lat_p99, lat_p999, lat_max;
	double lat_mean;
};

struct series_point {
	uint32_t ms;                    /* end of the interval, from the start of the window */
	uint64_t ios[DIRS_NR];          /* in the interval */
};

struct result {
	const char *engine;
	int job;                        /* of a part: its number; -1: all jobs together */
	const char *variant;            /* of a series that has several; NULL: none */
	unsigned round;                 /* of a series, from 1; 0: not part of one */
	bool read_back;                 /* the verify pass */
	bool interrupted;
	uint64_t runtime_ns;            /* of the measured window */
	uint64_t elapsed_ns;            /* with ramp, from go to the last thread's end */
	struct dir_result dir[DIRS_NR];

	/* rate mode */
	struct hist pacing;
	uint64_t offered, late_starts, lead_ns;

	/* CPU, between the window's two ends */
	double cpu_us_per_io, usr_pct, sys_pct;
	double other_cpus, steal_cpus;  /* CPUs that others used, and the hypervisor took */
	double throttled_ms;            /* the control group was out of its CPU quota */
	uint64_t hot_throttles;         /* CPUs slowed down for heat */
	uint64_t ctx, majf, minf;
	uint64_t disk_reads_512;        /* 512-byte blocks that this process had read from a device */

	uint64_t ios_all;               /* ended well, ramp included */
	uint64_t retries;
	uint64_t depth[JOB_DEPTHS_NR];
	uint64_t errnos[JOB_ERRNOS_NR];
	unsigned iowq_threads;          /* alive at the end of the window */
	struct engine_note note;
	bool has_lat_log, log_failed;
	uint64_t log_entries, log_dropped;      /* of the latency log */
	struct worker_result *workers;  /* [workers_nr], one a job */
	unsigned workers_nr;
	struct result *parts;           /* [parts_nr] the jobs' own results; 0 of them where jobs are reported as one */
	unsigned parts_nr;
	struct target_result *targets;  /* [targets_nr], in the order of their names */
	unsigned targets_nr;            /* 0: there is only one, whose figures are the run's */
	struct series_point *series;    /* [series_nr], about one a second */
	unsigned series_nr;
};

double result_iops(const struct result *r, unsigned dir);
double result_iops_all(const struct result *r);
double result_bw(const struct result *r, unsigned dir); /* bytes a second */
uint64_t result_failed(const struct result *r);
uint64_t result_short(const struct result *r);
double result_enters_per_io(const struct result *r);

/* Latencies of reads and writes together. */
void result_lat_all(const struct result *r, struct hist *ret_lat);

/* Nothing measured yet. engine: kept */
void result_init(struct result *r, const char *engine);

void result_set_round(struct result *r, const char *variant, unsigned round);

void result_free(struct result *r);

#endif
