/* SPDX-License-Identifier: MIT */
/*
 * The runtime: workers, each with a ring, a run queue and a timer wheel. Multi-thread: one pinned worker per allowed
 * CPU. Current-thread: the thread that first drives it is its only worker, for life.
 */
#ifndef MARTLET_RUNTIME_H
#define MARTLET_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>
#include <martlet/task.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt_runtime;

enum mrt_flavour {
	MRT_FLAVOUR_MULTI_THREAD = 0,
	MRT_FLAVOUR_CURRENT_THREAD = 1
};

enum mrt_log_level {
	MRT_LOG_ERROR = 0,      /* something failed; the sentence says what to do */
	MRT_LOG_WARN = 1,       /* it goes on, with less */
	MRT_LOG_INFO = 2,
	MRT_LOG_DEBUG = 3
};

/**
 * Receives what the library has to say; the library itself prints nothing.
 *
 * It may be called with locks of the library's held: it must not call the library.
 *
 * @thread  any, also several at once
 * @param level     enum mrt_log_level
 * @param sentence  NUL-terminated, no newline; valid during the call
 * @param ctx       log_ctx of the options
 */
typedef void (*mrt_log_fn)(int level, const char *sentence, void *ctx);

#define MRT_RUNTIME_FLOAT (1u << 0)       /* do not pin workers to CPUs */
#define MRT_RUNTIME_TUNE_INJECT (1u << 1) /* tune inject_interval itself, 2..127 */
#define MRT_RUNTIME_TUNE_EVENTS (1u << 2) /* tune event_interval itself: seldom under load, soon when idle */
#define MRT_RUNTIME_COOP_TASKRUN (1u << 3)  /* rings without DEFER_TASKRUN (as on kernels before 6.1) */
#define MRT_RUNTIME_PLAIN_RINGS (1u << 4)   /* rings without any task-work flag (as on kernels before 5.19) */
#define MRT_RUNTIME_SQPOLL (1u << 5)        /* a kernel thread submits for all rings: see sqpoll_cpu */
#define MRT_RUNTIME_HYBRID_POLL (1u << 6)   /* polled rings sleep a while before they poll (kernel 6.13) */
#define MRT_RUNTIME_NVME (1u << 7)          /* rings with 128-byte SQEs and 32-byte CQEs: for MRT_FILE_PASSTHROUGH */
#define MRT_RUNTIME_STATS_PIN (1u << 8)     /* pin the statistics' BPF maps in /sys/fs/bpf/mrt/PID/ */
#define MRT_RUNTIME_STATS_MEMFD (1u << 9)   /* statistics in a memfd, without asking for BPF */
#define MRT_RUNTIME_STATS_HEAP (1u << 10)   /* statistics on the heap, not to be seen from outside: to measure the others */

/* Options; zero is the default of each. */
struct mrt_runtime_opts {
	size_t size;                    /* sizeof(struct mrt_runtime_opts); set by mrt_runtime_opts_init */
	uint32_t flavour;               /* enum mrt_flavour */
	uint32_t flags;                 /* MRT_RUNTIME_* */
	uint32_t workers_nr;            /* 1..1024; 0: one per allowed CPU; current-thread: 0 or 1 */
	uint32_t sq_entries;            /* 1..32768, rounded up to a power of two; 0: 256 */
	uint32_t cq_entries;            /* sq_entries..65536; 0: 8 x SQ */
	uint32_t inject_interval;       /* ticks between looks at the inject queue, 1..65536; 0: 61 */
	uint32_t event_interval;        /* ticks between turns of the ring under load, 1..65536; 0: 61 */
	uint32_t blocking_threads_max;  /* 1..65536; 0: 512 */
	uint32_t blocking_queue_max;    /* calls that may wait for a thread; 0: no bound */
	uint32_t cpus_nr;               /* entries of cpus; 0: the CPUs that the calling thread may run on */
	const int *cpus;                /* [cpus_nr] CPU numbers; worker i is pinned to cpus[i % cpus_nr] */
	uint32_t files_max;             /* files that may be registered at once, 1..32768, rounded up to a power of two;
					   0: 1024 */
	uint32_t sqpoll_idle_ms;        /* SQPOLL: its thread sleeps after so long without work, 1..60000; 0: 1000 */
	const int *sqpoll_cpu;          /* SQPOLL: the CPU of its thread; NULL: an allowed one that has no worker, or the
					   last one, with a warning: where CPUs are fewer than workers + 1 it makes things slower */
	uint64_t arena_bytes;           /* arena memory that is mapped and registered at once; 0: as it is needed */
	uint64_t arena_bytes_max;       /* what mrt_alloc() may use; 0: 1 GiB, or arena_bytes if that is more */
	uint64_t blocking_keep_alive_ns;/* 0: 10 s */
	uint64_t seed;                  /* of victim selection; 0: from the clock */
	mrt_log_fn log;                 /* NULL: nothing is said */
	void *log_ctx;
	const char *name;               /* copied; thread names begin with it; NULL: "mrt" */
	uint64_t watchdog_ns;           /* the log is told of each poll that takes longer, and again when it has taken twice as
					   long as told last; by a thread of its own. 1 ms..1 day; 0: nobody watches */
	uint64_t timer_slack_ns;        /* a worker may sleep so much beyond a deadline if another one is due then, so that it
					   wakes once for both: at most 500,000; 0: each is met */
};

/* Zero the options and set their size. @thread any */
MRT_API void mrt_runtime_opts_init(struct mrt_runtime_opts *opts);

/**
 * Create a runtime and, multi-thread, start its workers.
 *
 * Rings are created here, so that what is missing shows here. Each failure but -E2BIG, -EDEADLK and -ECHILD is also told
 * to the log with a sentence that says what to do (but a `size` of 0: then there is no log).
 *
 * @thread  any but a worker
 * @owner   *ret_rt is the caller's until mrt_runtime_destroy; the options are copied
 * @blocks  until every worker has its ring
 *
 * @param opts    NULL: defaults
 * @param ret_rt  the runtime
 * @return 0, or
 *         -EINVAL      an option outside its range
 *         -E2BIG       opts is newer than this library
 *         -ENOSYS      this kernel has no io_uring
 *         -EPERM       io_uring is forbidden (sysctl kernel.io_uring_disabled, or a seccomp filter)
 *         -EOPNOTSUPP  the kernel's io_uring is too old
 *         -ENOMEM      no memory, or the rings exceed RLIMIT_MEMLOCK
 *         -EMFILE      out of file descriptors
 *         -EAGAIN      no thread could be started
 *         -EDEADLK     called on a worker
 *         -ECHILD      in a child after fork
 */
MRT_API int mrt_runtime_create(const struct mrt_runtime_opts *opts, struct mrt_runtime **ret_rt);

/**
 * Run a task and wait for its result.
 *
 * Multi-thread: the task runs on a worker, this thread sleeps. Current-thread: this thread drives the runtime, and
 * other tasks, until the task has ended. Afterwards the frame holds what the task left in it. Ops that other tasks have
 * started are with the kernel then; they go on, and are delivered by the next call.
 *
 * @thread  any but a worker; current-thread: always the same one
 * @owner   frame is copied in and back out
 * @blocks  until the task has ended
 *
 * @param frame       [frame_bytes], or NULL: zeroed, not copied back
 * @param ret_result  the task's result; NULL: not wanted
 * @return 0; as mrt_spawn; or
 *         -EDEADLK  called on a worker
 *         -EXDEV    current-thread, and another thread owns it
 */
MRT_API int mrt_block_on(struct mrt_runtime *rt, mrt_poll_fn fn, void *frame, size_t frame_bytes, int64_t *ret_result);

/**
 * End all tasks: abort them, wait for their ops, free them; then stop the workers.
 *
 * Nothing that the kernel may still write into is freed. May be called again after -ETIMEDOUT. Of several calls at once
 * each waits for the one before it.
 *
 * @thread  any but a worker; current-thread: its owner, or any thread if nobody has driven it
 * @blocks  until all is drained, or for timeout_ns
 * @param timeout_ns  UINT64_MAX: no limit
 * @return 0, or
 *         -ETIMEDOUT  not drained; the log names what holds it up; everything stays alive
 *         -EDEADLK    called on a worker
 *         -EXDEV      current-thread, and another thread owns it
 *         -ECHILD     in a child after fork
 */
MRT_API int mrt_runtime_shutdown_wait(struct mrt_runtime *rt, uint64_t timeout_ns);

/**
 * Shut down without a limit, and free the runtime. NULL is ignored. All handles must have been given
 * back before; a join that a task of another runtime has begun has one until its op is done.
 *
 * @thread  as mrt_runtime_shutdown_wait
 * @blocks  until all is drained
 */
MRT_API void mrt_runtime_destroy(struct mrt_runtime *rt);

/* Number of workers. @thread any */
MRT_API unsigned mrt_runtime_workers_nr(const struct mrt_runtime *rt);

/* The running task's runtime, or NULL outside one. @thread any */
MRT_API struct mrt_runtime *mrt_runtime_self(void);

/* What the rings of a runtime got from the kernel. */
struct mrt_ring_report {
	uint32_t sq_entries;
	uint32_t cq_entries;
	uint32_t setup_flags;   /* IORING_SETUP_* as granted */
	uint32_t features;      /* IORING_FEAT_* */
	uint32_t ring_fd_registered;    /* 1: enters use a registered ring descriptor */
	uint32_t no_iowait;             /* 1: parked workers do not count as iowait */
	uint64_t sqpoll_ns;             /* SQPOLL: CPU time of the kernel's thread so far; 0: none, or unknown */
	char text[256];         /* the same in words, with each fall-back and its reason */
};

/**
 * Say what the rings really got.
 *
 * @thread  any
 * @blocks  never; with SQPOLL for a look into /proc
 * @return 0, -EINVAL
 */
MRT_API int mrt_runtime_ring_report(const struct mrt_runtime *rt, struct mrt_ring_report *ret_report);

#define MRT_VERSION "0.2.0" /* of these headers */

/* Version of the library, "MAJOR.MINOR.PATCH". @thread any */
MRT_API const char *mrt_version(void);

#ifdef __cplusplus
}
#endif

#endif
