/* SPDX-License-Identifier: MIT */
/*
 * Loads the programs of trace.bpf.c, listens to the probes of processes, and reads what was counted.
 *
 * One thread at a time. absent.c stands in for all of it in a build without clang, bpftool or libbpf: tracer_missing() says
 * which, and everything else fails with -EOPNOTSUPP.
 */
#ifndef BPF_TRACER_H
#define BPF_TRACER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace.h"

#define TRACER_WHY_BYTES 512
#define TRACER_NOTES_MAX 16

struct tracer;

/* How probes are listened to. */
enum tracer_attach {
	TRACER_AUTO,            /* the first that works */
	TRACER_MULTI,           /* uprobe_multi: Linux 6.6, CAP_BPF and CAP_PERFMON */
	TRACER_USDT,            /* libbpf's, a perf event each: CAP_SYS_ADMIN */
};

struct tracer_opts {
	pid_t pid;                      /* the process; 0: every one that has the files */
	const char *const *files;       /* [files_nr] absolute paths of what has the probes */
	unsigned files_nr;
	enum tracer_attach how;
	bool ops;                       /* where ops spend their time; io_uring's tracepoints; with punts */
	bool punts;                     /* ops handed to io-wq: of its own one tracepoint, and no function is known (fn 0) */
	bool offcpu;                    /* why workers have no CPU; the scheduler's tracepoint */
	bool timeline;                  /* records; with ops */
	bool tasks;                     /* each task by itself, of the last TRACE_TASKS_MAX */
	int task_id_at;                 /* with tasks: where in a task its id stands; -1: unknown */
	size_t buffer_bytes;            /* for records; rounded up to a power of two */
	int workers_fd;                 /* map mrt_workers, whose depths are sampled; -1: none */
	unsigned workers_nr, sample_hz;
	void (*on_record)(void *ctx, const struct trace_rec *rec);
	void *ctx;
};

/* What is missing of the build, in a sentence; NULL: nothing. */
const char *tracer_missing(void);

/* May we trace at all? @return 0, -EPERM, -EOPNOTSUPP, with *ret_why */
int tracer_check(enum tracer_attach how, char ret_why[TRACER_WHY_BYTES]);

/**
 * Load and attach. Something that is not there but optional is left out, and told by tracer_note().
 *
 * @param ret_why  what failed and what to do, on failure
 * @return 0, -EOPNOTSUPP (kernel or build), -EPERM (a capability is missing), -errno
 */
int tracer_open(const struct tracer_opts *opts, struct tracer **ret_tracer, char ret_why[TRACER_WHY_BYTES]);

/* Detaches, and forgets all. NULL is ignored. */
void tracer_close(struct tracer *t);

/* What was left out, and why: sentence idx; NULL: there are no more. */
const char *tracer_note(const struct tracer *t, unsigned idx);

/* In use: TRACER_MULTI or TRACER_USDT. */
enum tracer_attach tracer_how(const struct tracer *t);

/* Hand over some of the records that are there. @return 1: there are more; 0; -errno */
int tracer_consume(struct tracer *t);

/* A descriptor that is readable when there are records. */
int tracer_fd(const struct tracer *t);

/* Stop listening: what was counted stays as it is. */
void tracer_detach(struct tracer *t);

/* Hits of each probe, and what was lost. */
void tracer_counts(const struct tracer *t, uint64_t ret_hits[TRACE_PROBES_NR], uint64_t ret_lost[TRACE_LOST_NR]);

/* Ops of an opcode in a stage. */
void tracer_stage(const struct tracer *t, unsigned opcode, enum trace_stage stage, struct trace_hist *ret_hist);

/* Depths of a worker. */
void tracer_depths(const struct tracer *t, unsigned worker, struct trace_depths *ret_depths);

/* Tables. Keys and values: struct trace_fn_key, trace_fn; trace_punt_key, uint64_t; trace_worker_key, trace_worker; uint32_t,
 * trace_thread. */
enum tracer_table { TRACER_FUNCTIONS, TRACER_PUNTS, TRACER_WORKERS, TRACER_THREADS, TRACER_TABLES_NR };

/**
 * The entry after that of prev_key (NULL: the first).
 *
 * @return false: there are no more
 */
bool tracer_next(const struct tracer *t, enum tracer_table table, const void *prev_key, void *ret_key, void *ret_value);

/* Room for what tracer_tasks() gives. */
struct tracer_tasks {
	struct trace_task_key keys[TRACE_TASKS_MAX];
	struct trace_task tasks[TRACE_TASKS_MAX];
	unsigned nr;
	uint64_t dropped;       /* entries that had to make room for others, so far */
};

/* Tasks by themselves, with opts.tasks; in no order. @return 0, -errno */
int tracer_tasks(const struct tracer *t, struct tracer_tasks *ret);

/**
 * Pin an iterator over a runtime's workers: whoever may read `path` sees them with cat.
 *
 * @param workers_fd  map mrt_workers
 * @return 0, -errno with *ret_why
 */
int tracer_pin_workers(pid_t pid, int workers_fd, unsigned workers_nr, const char *path, char ret_why[TRACER_WHY_BYTES]);

#endif
