/* SPDX-License-Identifier: MIT */
/*
 * What the BPF programs of `martlet trace` and their loader share: keys and values of the maps, records of the ring
 * buffer. Times are CLOCK_MONOTONIC ns. tgid and tid are as the initial PID namespace numbers them.
 */
#ifndef BPF_TRACE_H
#define BPF_TRACE_H

#include <stdint.h>

#define TRACE_HIST_SLOTS 36     /* slot i: 2^i .. 2^(i+1) - 1 ns, 0 and 1 in the first; the last has all that is longer */
#define TRACE_OPCODES 64
#define TRACE_WORKERS_MAX 256   /* the depths of so many workers are sampled */
#define TRACE_TASKS_MAX 10240   /* tasks that are told apart; those that nothing happens to go first */
#define TRACE_REAPED_MAX 8      /* ops of one task that wait for its next poll */

/* The probes that are listened to; a link's cookie says which. X(name) */
#define TRACE_PROBES(X)                                                                 \
	X(task_spawn) X(task_wake) X(task_end) X(poll_start) X(poll_end)                \
	X(park) X(unpark) X(steal) X(op_submit) X(op_complete)

#define TRACE_PROBE_ID(name) TRACE_##name,
enum trace_probe { TRACE_PROBES(TRACE_PROBE_ID) TRACE_PROBES_NR };

/* What found no room, and what could not be joined. X(name, text) */
#define TRACE_LOST_LIST(X)                                                              \
	X(functions, "events of functions beyond the table (counted under address 0)")  \
	X(wakes, "wakes not remembered: too many tasks wait to be polled")              \
	X(ops, "ops not split: too many in flight")                                     \
	X(ops_early, "ops not split: they began before the tracing did")                \
	X(reaped, "ops whose wait to be polled is not known")                           \
	X(threads, "events of threads beyond the table")                                \
	X(tasks, "events of tasks that found no entry")                                 \
	X(punts, "io-wq punts beyond the table")                                        \
	X(records, "records for the timeline: the buffer was full")

#define TRACE_LOST_ID(name, text) TRACE_LOST_##name,
enum trace_lost { TRACE_LOST_LIST(TRACE_LOST_ID) TRACE_LOST_NR };

struct trace_hist {
	uint64_t count, sum_ns;
	uint64_t slots[TRACE_HIST_SLOTS];
};

/* A task function of a process; fn 0: those that the table has no room for. */
struct trace_fn_key {
	uint64_t fn;
	uint32_t tgid, reserved;
};

struct trace_fn {
	uint64_t spawns, ends;
	uint64_t unwoken;          /* polls without a wake before: yields, and what began before the tracing */
	uint64_t blocked_nr, blocked_ns;           /* its worker slept in the middle of a poll */
	uint64_t preempted_nr, preempted_ns;       /* its worker was runnable and had no CPU */
	struct trace_hist poll; /* a poll's length */
	struct trace_hist sched;        /* from the wake to the poll */
};

/* Where an op's time goes. X(name, text) */
#define TRACE_STAGES(X)                                                                 \
	X(queued, "started, and not yet taken by the kernel")                           \
	X(kernel, "in the kernel")                                                      \
	X(unreaped, "completed, and not yet reaped")                                    \
	X(unpolled, "reaped, and its task not yet polled")                              \
	X(total, "from its start until it was reaped")

#define TRACE_STAGE_ID(name, text) TRACE_STAGE_##name,
enum trace_stage { TRACE_STAGES(TRACE_STAGE_ID) TRACE_STAGES_NR };

struct trace_op_key {
	uint64_t op;               /* its address, and the SQE's user_data */
	uint32_t tgid, reserved;
};

struct trace_op {
	uint64_t task, fn;
	uint64_t start_ns, taken_ns, cqe_ns;       /* 0: not seen */
	uint32_t opcode, worker;
};

struct trace_task_key {
	uint64_t task;
	uint32_t tgid, reserved;
};

enum trace_task_state {
	TRACE_TASK_IDLE,        /* has been polled, and waits; also after a yield, which no probe tells */
	TRACE_TASK_SCHED,       /* woken */
	TRACE_TASK_RUNNING,     /* being polled */
	TRACE_TASK_DONE,        /* has ended; its memory is not yet the next task's */
};

/*
 * A task by itself. Its events come one after the other, each with the task's state behind it (a wake finds it polled, a poll
 * finds it woken), so only one CPU at a time writes here.
 */
struct trace_task {
	uint64_t id;               /* 0: unknown */
	uint64_t fn;
	uint64_t first_ns;         /* spawned, or met first */
	uint64_t since_ns;         /* in its state */
	uint64_t self_wakes;       /* polls with no wake since the poll before: yields */
	uint64_t poll_max_ns, sched_max_ns;
	uint32_t state;            /* enum trace_task_state */
	uint32_t spawned;          /* 1: its spawn was seen */
	struct trace_hist poll; /* a poll's length */
	struct trace_hist sched;        /* from the wake, or the poll before, to the poll */
};

/* Ops of a task that are reaped; it was not polled since. */
struct trace_reaped {
	uint64_t ns[TRACE_REAPED_MAX];
	uint8_t opcode[TRACE_REAPED_MAX];
	uint64_t nr;
};

struct trace_punt_key {
	uint64_t fn;
	uint32_t tgid, opcode;
};

/* A worker's thread, by tid. */
struct trace_thread {
	uint64_t task, fn;         /* being polled; 0: none is */
	uint64_t poll_ns;          /* when that began */
	uint64_t sched_ns;         /* how long it had waited; ~0: it was not woken */
	uint64_t park_ns;          /* asleep since; 0: it is not */
	uint64_t off_ns;           /* has no CPU since; 0: it has */
	uint64_t parks;            /* that have ended */
	uint32_t off_why;          /* enum trace_off */
	uint32_t worker;
	uint32_t tgid, tid;
};

/* Why a worker's thread has no CPU. */
enum trace_off { TRACE_OFF_PARKED, TRACE_OFF_BLOCKED, TRACE_OFF_PREEMPTED, TRACE_OFF_NR };

struct trace_worker_key {
	uint32_t tgid, worker;
};

/* Where its queues stood when they were looked at: slot i as in a histogram, of 2^i ... entries; slot 0: none. */
enum trace_depth { TRACE_DEPTH_LOCAL, TRACE_DEPTH_INFLIGHT, TRACE_DEPTH_QUEUED, TRACE_DEPTH_CQ, TRACE_DEPTHS_NR };
#define TRACE_DEPTH_SLOTS 20

struct trace_depths {
	uint64_t count;
	uint64_t sum[TRACE_DEPTHS_NR];
	uint64_t slots[TRACE_DEPTHS_NR][TRACE_DEPTH_SLOTS];
};

struct trace_worker {
	struct trace_hist off[TRACE_OFF_NR];
};

/* ---- records: of functions, so that they are named while the process lives; the rest for a timeline ---- */

enum trace_kind { TRACE_REC_FUNCTION, TRACE_REC_POLL, TRACE_REC_PARK, TRACE_REC_STEAL, TRACE_REC_OP };

struct trace_rec {
	uint32_t kind, tgid, tid, worker;
	uint64_t end_ns;
	union {
		struct {
			uint64_t fn;       /* was not met before */
		} function;
		struct {
			uint64_t start_ns, task, fn, sched_ns, ready;
		} poll;
		struct {
			uint64_t slept_ns;
			uint64_t seq;      /* parks of the thread before: a gap means that some are lost */
		} park;
		struct {
			uint64_t victim, nr;
		} steal;
		struct {
			uint64_t start_ns, taken_ns, cqe_ns, op, task, fn;
			int64_t res;
			uint64_t opcode;
		} op;
	};
};

#endif
