/* SPDX-License-Identifier: MIT */
/*
 * What the workers count, and where it can be seen.
 *
 * Four blocks, each one BPF array map that can be mapped into memory (BPF_F_MMAPABLE), with type information, so that
 * `bpftool map dump name mrt_workers` prints them; where BPF is not allowed, the same in one memfd (struct
 * mrt_stats_file). The counters live there and nowhere else, so they can be read while every worker hangs.
 *
 *	mrt_workers  struct mrt_worker_stats   one element a worker
 *	mrt_global   struct mrt_global_stats   one element
 *	mrt_hists    struct mrt_worker_hists   one element a worker
 *	mrt_ctl      struct mrt_ctl            one element; the one that others write
 *
 * One writer per worker's element: its worker, with plain stores; readers see each field whole, and fields of one
 * element at slightly different times. Counters never fall.
 *
 * The lists below are the one source of the structs, of the maps' type information and of the tables in
 * docs/observability.md. X(class, type, name, text) is a word; A(class, type, name, nr, text) an array; L as X, on a
 * cache line of its own. class: info (set once), gauge, counter (the field's unit is in its text).
 */
#ifndef MARTLET_STATS_H
#define MARTLET_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt_runtime;

/* X(NAME, value, text) */
#define MRT_WORKER_STATES(X)                                                                                           \
	X(STARTING, 0, "its thread has not begun")                                                                     \
	X(RUNNING, 1, "between polls")                                                                                 \
	X(POLLING, 2, "inside a task's poll function; the map says RUNNING with poll_fn set")                          \
	X(SEARCHING, 3, "looking for work elsewhere")                                                                  \
	X(PARKED, 4, "in io_uring_enter, with nothing to do")                                                          \
	X(STOPPED, 5, "has left")

enum mrt_worker_state {
	MRT_WORKER_STARTING = 0,
	MRT_WORKER_RUNNING = 1,
	MRT_WORKER_POLLING = 2,
	MRT_WORKER_SEARCHING = 3,
	MRT_WORKER_PARKED = 4,
	MRT_WORKER_STOPPED = 5
};

/* X(NAME, value, text) */
#define MRT_TIMINGS(X)                                                                                                 \
	X(OFF, 0, "nothing is timed for the statistics")                                                               \
	X(SAMPLED, 1, "one in 2^shift is")                                                                             \
	X(FULL, 2, "all are")

enum mrt_timing {
	MRT_TIMING_OFF = 0,
	MRT_TIMING_SAMPLED = 1,
	MRT_TIMING_FULL = 2
};

/* mrt_workers: one worker. Words are those of docs/architecture.md. */
#define MRT_WORKER_STATS(X, A, L)                                                                                      \
	X(info, u32, index, "number of the worker")                                                                    \
	X(gauge, worker_state, state, "what it is doing")                                                              \
	X(info, u32, pid, "process")                                                                                   \
	X(info, i32, tid, "thread")                                                                                    \
	X(info, i32, cpu, "pinned to; -1: floats")                                                                     \
	X(gauge, u32, local_queue, "tasks in the local queue, at the last ring turn")                                  \
	X(gauge, u32, next_slot, "0 or 1, at the last ring turn")                                                      \
	X(gauge, u32, yielded, "tasks waiting for the next ring turn, at the last one")                                \
	X(gauge, u32, inflight, "ops that the kernel has, or that are staged, at the last ring turn")                  \
	X(gauge, u32, inflight_io, "of these, ops that end by themselves: positional file I/O, paths, nop")            \
	X(gauge, u32, inflight_peer, "of these, ops that wait for a peer: sockets, pipes, polls")                      \
	X(gauge, u32, inflight_polled, "of these, ops on the polled ring")                                             \
	X(gauge, u32, queued, "ops waiting for credits or SQ room")                                                    \
	X(gauge, u32, sq_staged, "SQEs not yet submitted")                                                             \
	X(info, u32, sq_entries, "size of the SQ")                                                                     \
	X(gauge, u32, cq_ready, "completions seen at the last ring turn")                                              \
	X(info, u32, cq_entries, "size of the CQ")                                                                     \
	X(gauge, u64, poll_fn, "address of the function being polled; 0: none is")                                     \
	X(gauge, u64, poll_task, "address of the task last polled")                                                    \
	X(gauge, u64, poll_start_ns, "when the poll that runs began, CLOCK_MONOTONIC; 0: not timed")                   \
	X(counter, u64, polls, "polls")                                                                                \
	X(counter, u64, ends, "tasks that ended here")                                                                 \
	X(counter, u64, spawns, "tasks spawned by tasks here")                                                         \
	X(counter, u64, local_schedules, "tasks made runnable here that went to this worker")                          \
	X(counter, u64, ticks, "turns of the worker's loop")                                                           \
	X(gauge, u64, turn_ns, "time of a recent ring turn (at most 8 turns ago), CLOCK_MONOTONIC; 0: never")          \
	X(counter, u64, turns, "ring turns")                                                                           \
	X(gauge, u64, timers, "entries in the wheel")                                                                  \
	X(info, u64, start_ticks, "start time of the process, field 22 of /proc/PID/stat")                             \
	X(counter, u64, moved, "polls of tasks that were last polled, or spawned, by another worker")                  \
	X(counter, u64, steals, "tasks taken from others")                                                             \
	X(counter, u64, steal_ops, "successful thefts")                                                                \
	X(counter, u64, steal_tries, "searches")                                                                       \
	X(counter, u64, overflows, "times that the local queue was full: half of it went to inject (one worker: what came waits behind it)") \
	X(counter, u64, injects, "tasks taken from the inject queue")                                                  \
	X(counter, u64, parks, "parks")                                                                                \
	X(counter, u64, noop_wakes, "parks that ended without work")                                                   \
	X(counter, u64, wakes_sent, "workers woken by this one")                                                       \
	X(counter, u64, sentry_wakes, "wakes as sentry")                                                               \
	X(counter, u64, rescued, "tasks and timers taken from a stuck worker by this sentry")                          \
	X(counter, u64, stalls, "polls of other workers that this one, as sentry, found stuck")                        \
	X(counter, u64, budget_yields, "polls that ended because the budget was spent")                                \
	X(counter, u64, yields, "polls that ended with mrt_yield")                                                     \
	X(counter, u64, enters, "io_uring_enter calls")                                                                \
	X(counter, u64, sqes, "SQEs submitted")                                                                        \
	X(counter, u64, cqes, "CQEs reaped")                                                                           \
	X(counter, u64, cq_overflows, "times that the kernel held completions back")                                   \
	X(counter, u64, sq_fulls, "times that an op found no SQ entry")                                                \
	X(counter, u64, credit_waits, "ops that waited for credits")                                                   \
	X(counter, u64, retries, "ops sent again after -EAGAIN or -EINTR, and steps of _all forms")                    \
	X(counter, u64, cancels, "cancels sent to the kernel")                                                         \
	X(counter, u64, timer_fires, "timers fired")                                                                   \
	X(counter, u64, busy_ns, "time not parked, at the last park, ns")                                              \
	X(counter, u64, park_ns, "time parked, ns")                                                                    \
	X(counter, u64, local_queue_ns, "integral of the local queue's length over time, task ns")                     \
	X(counter, u64, inflight_ns, "integral of inflight over time, op ns")

/*
 * mrt_global: the whole runtime. Several writers: atomic adds, or under the lock of what is described. The first four fields stand
 * there in every version, so that whoever knows another one can say whose it is; the other maps have the same version.
 */
#define MRT_GLOBAL_STATS(X, A, L)                                                                                      \
	X(info, u32, version, "of the layout of all four maps: MRT_STATS_VERSION")                                     \
	X(info, u32, pid, "process")                                                                                   \
	X(info, u64, pid_ns, "PID namespace of pid: inode of /proc/self/ns/pid")                                       \
	X(info, u64, start_ticks, "start time of the process, field 22 of /proc/PID/stat")                             \
	A(info, char, name, 16, "name of the runtime")                                                                 \
	X(info, u32, workers_nr, "workers")                                                                            \
	X(info, u32, flavour, "enum mrt_flavour")                                                                      \
	X(info, u32, map_workers, "id of the BPF map mrt_workers; 0: none")                                            \
	X(info, u32, map_hists, "id of mrt_hists")                                                                     \
	X(info, u32, map_ctl, "id of mrt_ctl")                                                                         \
	X(info, u64, created_ns, "when the runtime was made, CLOCK_MONOTONIC")                                         \
	X(info, u64, runtime, "address of the runtime in the process")                                                 \
	X(info, u64, layout, "address of its struct mrt_layout (martlet/layout.h); 0: none")                           \
	L(gauge, u64, inject_depth, "tasks in the inject queue")                                                       \
	L(gauge, i64, tasks_alive, "tasks that have not ended; a worker adds its share at parks and every 61st tick")  \
	X(gauge, i64, timers, "entries in all wheels; published as tasks_alive")                                       \
	X(counter, u64, spawns_outside, "tasks spawned by threads that are no workers")                                \
	X(counter, u64, remote_wakes, "tasks made runnable by threads that are no workers")                            \
	L(gauge, u64, blocking_threads, "threads of the blocking pool")                                                \
	X(gauge, u64, blocking_idle, "of these, idle")                                                                 \
	X(gauge, u64, blocking_queued, "calls waiting for a thread")                                                   \
	X(counter, u64, blocking_wakes, "threads of the pool that were woken, or started, for calls")

/*
 * Histograms of durations have MRT_HIST_NR buckets: bucket 0 is below 64 ns, then four to each power of two, the last is
 * 2^36 ns (69 s) and above. mrt_hist_min_ns() says where a bucket begins.
 */
#define MRT_HIST_NR 122
#define MRT_HIST_FIRST_SHIFT 6

/* Opcodes counted, by io_uring's own numbers. */
#define MRT_OPCODES_NR 64

/*
 * Ops that are timed have a histogram for each opcode, too, in slots that are taken when an opcode comes for the first time:
 * op_slot[i] is that opcode plus 1, and op_hist[i * MRT_HIST_NR ...] are its buckets. Of opcodes that found all taken there is
 * op_sum_ns alone.
 */
#define MRT_OP_SLOTS_NR 12
#define MRT_OP_HIST_NR 1464 /* MRT_OP_SLOTS_NR * MRT_HIST_NR */

/* mrt_hists: one worker. */
#define MRT_WORKER_HISTS(X, A, L)                                                                                      \
	X(info, u32, index, "number of the worker")                                                                    \
	X(info, u32, pid, "process")                                                                                   \
	X(counter, u64, polls_timed, "polls in the histogram")                                                         \
	X(counter, u64, poll_sum_ns, "their time, ns")                                                                 \
	X(gauge, u64, poll_max_ns, "the longest of them, ns")                                                          \
	X(counter, u64, ops_timed, "ops in the two histograms of ops")                                                 \
	X(counter, u64, io_sum_ns, "time from staging to reaping of ops that end by themselves, ns")                   \
	X(counter, u64, peer_sum_ns, "the same of ops that wait for a peer, ns")                                       \
	A(counter, u64, poll, MRT_HIST_NR, "poll times")                                                               \
	A(counter, u64, io, MRT_HIST_NR, "times from staging to reaping of ops that end by themselves")                \
	A(counter, u64, peer, MRT_HIST_NR, "the same of ops that wait for a peer")                                     \
	A(counter, u64, op_nr, MRT_OPCODES_NR, "SQEs staged for ops, by opcode of io_uring")                           \
	A(counter, u64, op_timed, MRT_OPCODES_NR, "ops timed, by opcode")                                              \
	A(counter, u64, op_sum_ns, MRT_OPCODES_NR, "their time from staging to reaping, by opcode, ns")                \
	A(info, u32, op_slot, MRT_OP_SLOTS_NR, "opcode + 1 that has this slot of op_hist; 0: none yet")                \
	A(counter, u64, op_hist, MRT_OP_HIST_NR, "times from staging to reaping by slot, MRT_HIST_NR buckets each")

/*
 * mrt_ctl: read by each worker every few ring turns; written from outside at any time. Who looks for a while does not turn the
 * knobs: it puts watched_until_ns a little ahead again and again, so that what was set comes back by itself, also when the one
 * who looked was killed, and when several do.
 */
#define MRT_CTL(X, A, L)                                                                                               \
	X(gauge, timing, poll_timing, "which polls are timed")                                                         \
	X(gauge, u32, poll_shift, "SAMPLED: one poll in 2^poll_shift, 0..31")                                          \
	X(gauge, timing, op_timing, "which ops are timed")                                                             \
	X(gauge, u32, op_shift, "SAMPLED: one op in 2^op_shift, 0..31")                                                \
	X(gauge, u64, watched_until_ns, "until then, CLOCK_MONOTONIC, all is timed, whatever is said above; 0: nobody looks")

/* The types of the lists. */
#define MRT_STAT_C_u32 uint32_t
#define MRT_STAT_C_i32 int32_t
#define MRT_STAT_C_u64 uint64_t
#define MRT_STAT_C_i64 int64_t
#define MRT_STAT_C_char char
#define MRT_STAT_C_worker_state uint32_t
#define MRT_STAT_C_timing uint32_t

#define MRT_STAT_WORD(cls, type, name, text) MRT_STAT_C_##type name;
#define MRT_STAT_ARRAY(cls, type, name, nr, text) MRT_STAT_C_##type name[nr];
#define MRT_STAT_LINE(cls, type, name, text) MRT_STAT_C_##type name __attribute__((aligned(128)));

struct mrt_worker_stats {
	MRT_WORKER_STATS(MRT_STAT_WORD, MRT_STAT_ARRAY, MRT_STAT_LINE)
} __attribute__((aligned(128)));

struct mrt_global_stats {
	MRT_GLOBAL_STATS(MRT_STAT_WORD, MRT_STAT_ARRAY, MRT_STAT_LINE)
};

struct mrt_worker_hists {
	MRT_WORKER_HISTS(MRT_STAT_WORD, MRT_STAT_ARRAY, MRT_STAT_LINE)
} __attribute__((aligned(128)));

struct mrt_ctl {
	MRT_CTL(MRT_STAT_WORD, MRT_STAT_ARRAY, MRT_STAT_LINE)
};

/* Where a bucket begins, ns; where the one before it ends. @param bucket  0..MRT_HIST_NR - 1 */
static inline uint64_t mrt_hist_min_ns(unsigned bucket)
{
	unsigned octave = bucket ? (bucket - 1) / 4 + MRT_HIST_FIRST_SHIFT : 0;

	return bucket ? (uint64_t)(4 + (bucket - 1) % 4) << (octave - 2) : 0;
}

#define MRT_STATS_VERSION 4 /* rises with each change of the layout of a map, or of the memfd */

/*
 * Where BPF is not allowed: the memfd `mrt_workers` (see the links in /proc/PID/fd) begins with this; then the blocks at
 * their offsets. Its size is sealed.
 */
#define MRT_STATS_MAGIC UINT64_C(0x315441545354524d) /* "MRTSTAT1" in memory, on little-endian machines */

struct mrt_stats_file {
	uint64_t magic;
	uint32_t version;               /* MRT_STATS_VERSION */
	uint32_t workers_nr;
	uint32_t workers_off, worker_bytes;     /* [workers_nr] struct mrt_worker_stats */
	uint32_t hists_off, hist_bytes;         /* [workers_nr] struct mrt_worker_hists */
	uint32_t global_off, global_bytes;
	uint32_t ctl_off, ctl_bytes;
	uint32_t btf_off, btf_bytes;            /* type information of all of them, as the kernel gets it for the maps */
};

/**
 * Where the statistics live: "bpf", "memfd", or "heap" (cannot be seen from outside).
 *
 * @thread  any
 * @return a constant; NULL: rt is NULL
 */
MRT_API const char *mrt_stats_backend(const struct mrt_runtime *rt);

/**
 * Read one worker's block.
 *
 * @thread  any
 * @blocks  never
 * @return 0, -EINVAL (no such worker)
 */
MRT_API int mrt_stats_get(const struct mrt_runtime *rt, unsigned worker, struct mrt_worker_stats *ret_stats);

/* Read the runtime's block; tasks_alive and timers are counted now. @thread any @return 0, -EINVAL */
MRT_API int mrt_stats_global_get(struct mrt_runtime *rt, struct mrt_global_stats *ret_stats);

/* Read one worker's histograms. @thread any @return 0, -EINVAL */
MRT_API int mrt_stats_hists_get(const struct mrt_runtime *rt, unsigned worker, struct mrt_worker_hists *ret_hists);

#ifdef __cplusplus
}
#endif

#endif
