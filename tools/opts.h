/* SPDX-License-Identifier: MIT */
/* What `martlet bench` was asked to do: fio's names where the meaning is fio's. */
#ifndef TOOLS_OPTS_H
#define TOOLS_OPTS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define OPTS_PERCENTILES_MAX 32u
#define OPTS_PATTERN_MAX 64u
#define OPTS_GIVEN_MAX 64u
#define OPTS_IODEPTH_MAX 4096u
#define OPTS_NUMJOBS_MAX 256u
#define OPTS_COMPARE_ROUNDS 5u
#define OPTS_LADDER_ROUNDS 3u
#define OPTS_TARGETS_MAX 64u
#define OPTS_TARGET_BYTES 8192u         /* all names of targets */

enum opts_engine { ENGINE_MARTLET, ENGINE_RAW, ENGINE_PSYNC, ENGINES_NR };
enum opts_dist { DIST_UNIFORM, DIST_ZIPF };
enum opts_verify { VERIFY_NONE, VERIFY_CRC32C, VERIFY_PATTERN };
enum opts_output { OUTPUT_NORMAL, OUTPUT_JSON, OUTPUT_JSON_PLUS };
enum opts_merge { MERGE_NONE, MERGE_PARALLEL, MERGE_SERIAL };
enum opts_tristate { OPTS_AUTO = -1, OPTS_NO, OPTS_YES };

/* One option as it was given; for the report. */
struct opts_given {
	const char *name, *value;
};

struct bench_opts {
	/* targets */
	const char *filename;           /* as given; opts_target() has the names in it */
	unsigned targets_nr;
	unsigned target_at[OPTS_TARGETS_MAX];
	char target_text[OPTS_TARGET_BYTES];    /* by position, not by pointer: this struct is copied */
	uint64_t size;                  /* bytes, shared by all targets; 0: to the end of each */
	unsigned size_percent;          /* of each target; 0: use size */
	uint64_t offset;
	bool direct, create, keep, allow_write, readonly;

	/* work */
	const char *rw;                 /* the word given, e.g. "randread" */
	bool reads, writes, random;
	unsigned rwmixread;             /* per cent of reads when both */
	uint64_t bs;
	unsigned iodepth, numjobs;
	enum opts_dist dist;
	double zipf_theta;
	uint64_t seed;

	/* end */
	uint64_t runtime_ns, ramp_ns;
	bool runtime_given;
	uint64_t number_ios, io_size;   /* per job; 0: no such end */

	/* rate */
	uint64_t rate_iops;             /* per job; 0: closed loop */
	bool rate_poisson;

	/* verify */
	enum opts_verify verify;
	bool do_verify, verify_fatal;
	unsigned char pattern[OPTS_PATTERN_MAX];
	unsigned pattern_nr;

	/* engine */
	enum opts_engine engine;
	unsigned compare_rounds;        /* 0: no comparison */
	unsigned repeat;                /* runs; 1: one */
	unsigned ladder_rounds;         /* 0: no ladder */
	bool cpus_given;
	cpu_set_t cpus;                 /* allowed CPUs, given or inherited */
	unsigned slat_sample;           /* every n-th I/O has its submission timed */
	struct opts_fast {              /* the rungs above direct I/O; ring engines only */
		bool fixedbufs, registerfiles, hipri, hybrid, nvme;
		bool sqpoll;
		int sqpoll_cpu;                 /* -1: the engine chooses */
		unsigned sqpoll_idle_ms;
	} fast;
	enum opts_tristate pre_read;

	/* instead of a run: results to merge */
	enum opts_merge merge;
	char *const *inputs;            /* [inputs_nr] files, in argv */
	unsigned inputs_nr;

	/* output */
	const char *name;
	bool group;                     /* jobs are reported as one */
	const char *output;             /* file instead of standard output; NULL: none */
	const char *iops_log, *bw_log, *lat_log;        /* prefixes of fio's logs; NULL: none */
	unsigned log_avg_ms;
	bool log_avg_given, log_offset; /* not given: latencies are logged one by one */
	uint64_t log_mem;               /* bytes that the latency log may take */
	const char *hdr_log;            /* percentile distribution; NULL: none */
	const char *plot;               /* SVG file; NULL: none */
	enum opts_output format;
	enum opts_tristate eta;
	unsigned status_interval_s;
	double percentile[OPTS_PERCENTILES_MAX];
	unsigned percentiles_nr;

	struct opts_given given[OPTS_GIVEN_MAX];
	unsigned given_nr;
};

/**
 * Read the command line of `martlet bench` (argv[0] is not read).
 *
 * Nothing is ever ignored: an unknown option, a bad value or a contradiction is told in one sentence on `err`.
 * Strings point into argv.
 *
 * @return 0; 1 when help was asked for and printed on standard output; -EINVAL after a message
 */
int opts_parse(struct bench_opts *o, int argc, char **argv, FILE *err);

/* Name of a target, 0 .. targets_nr - 1. */
const char *opts_target(const struct bench_opts *o, unsigned idx);

void opts_help(FILE *out);

const char *opts_engine_name(enum opts_engine e);

/**
 * A size with fio's suffixes k, m, g, t (powers of 1024, case does not matter, "ib" and "b" may follow).
 *
 * @return 0, or -EINVAL with *ret_bytes untouched
 */
int opts_size(const char *text, uint64_t *ret_bytes);

/* A time with suffix ns, us, ms, s (the default), m, h. Returns 0 or -EINVAL. */
int opts_time(const char *text, uint64_t *ret_ns);

#endif
