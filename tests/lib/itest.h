/* SPDX-License-Identifier: MIT */
/*
 * What the integration tests share: runtimes of every flavour, tasks that are tests, a log that can be searched, waits
 * with a limit, children whose death can be looked at.
 *
 * A test runs in a process of its own (Check forks), so a fixture made here dies with it. What outlives a process is in
 * fixture.h.
 */
#ifndef MRT_TESTS_ITEST_H
#define MRT_TESTS_ITEST_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <martlet/martlet.h>

#if defined(__SANITIZE_ADDRESS__)
#define ITEST_ASAN 1
#else
#define ITEST_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define ITEST_TSAN 1
#else
#define ITEST_TSAN 0
#endif
/* Instrumented code costs what it costs. */
#define ITEST_SANITIZED (ITEST_ASAN || ITEST_TSAN)
/* So it does on an emulated machine (scripts/vm-test), whose clock runs on meanwhile: longer times, fewer rounds. */
#define ITEST_SLOW (ITEST_SANITIZED || itest_env("MRT_TEST_SLOW", 0))

#define ITEST_LIMIT_S 30        /* of a test; Check multiplies it by CK_TIMEOUT_MULTIPLIER */
#define ITEST_SKIP 77

/* ---- runtimes ---- */

/* Loop indices of tests that run on several kinds of runtime. */
enum itest_kind {
	ITEST_TWO = 0,          /* two pinned workers */
	ITEST_CURRENT = 1,      /* current-thread */
	ITEST_FLOAT = 2,        /* four workers that float: on fewer CPUs, so any of them may be preempted anywhere */
	ITEST_FLAVOURS_NR,
	ITEST_COOP = ITEST_FLAVOURS_NR, /* two workers, rings without DEFER_TASKRUN */
	ITEST_PLAIN,            /* two workers, rings without any task-work flag */
	ITEST_KINDS_NR
};

/* Options of a kind; the log is itest's. */
struct mrt_runtime_opts itest_opts(int kind);

/* Create or fail the test. */
struct mrt_runtime *itest_create(const struct mrt_runtime_opts *opts);

/* A runtime of a kind, with defaults. */
struct mrt_runtime *itest_runtime(int kind);

/* Run a task to its end; fails the test if it cannot be run. @return its result */
int64_t itest_run(struct mrt_runtime *rt, mrt_poll_fn fn, void *frame, size_t frame_bytes);

/* Make a runtime, run a task with a zeroed frame on it, expect 0, destroy the runtime. */
void itest_task(int kind, mrt_poll_fn fn, size_t frame_bytes);

/* Spawn with a handle or fail the test. */
struct mrt_task *itest_spawn(struct mrt_runtime *rt, mrt_poll_fn fn, const void *frame, size_t frame_bytes);

/* Wait from outside for a task that itest_spawn gave. @return its result */
int64_t itest_join(struct mrt_task *task);

/* Sums over all workers. */
struct mrt_worker_stats itest_stats(struct mrt_runtime *rt);
struct mrt_global_stats itest_global(struct mrt_runtime *rt);

/* Is every worker in a park? One that is on its way out of it is still called PARKED. */
bool itest_all_parked(struct mrt_runtime *rt);

/*
 * A test whose body is a poll function: ITEST_TASK(name, { members of the frame }) { body }. The frame is `f`. Runs on
 * the kind of runtime that its loop index names; ITEST_TASK_WITH hands index, function and size of the frame to `run`.
 */
#define ITEST_TASK(name, ...) ITEST_TASK_WITH(name, itest_task, __VA_ARGS__)

#define ITEST_TASK_WITH(name, run, ...)                                                                 \
	struct name##_frame __VA_ARGS__;                                                                \
	static enum mrt_poll name##_body(struct mrt_task *self, struct name##_frame *f);                \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame)                            \
	{                                                                                               \
		return name##_body(self, frame);                                                        \
	}                                                                                               \
	START_TEST(name)                                                                                \
	{                                                                                               \
		run(_i, name##_poll, sizeof(struct name##_frame));                                      \
	}                                                                                               \
	END_TEST                                                                                        \
	static enum mrt_poll name##_body(struct mrt_task *self, struct name##_frame *f)

/* In a task whose frame has an `op`: await it, expect the result. */
#define ITEST_RES(expr, value)                                                                          \
	do {                                                                                            \
		MRT_AWAIT(self, expr);                                                                  \
		ck_assert_int_eq(f->op.res, value);                                                     \
	} while (0)

/* A child task: ITEST_CHILD(name, { members }) { body }; the frame is `f`, its type `struct name`. */
#define ITEST_CHILD(name, ...)                                                                          \
	struct name __VA_ARGS__;                                                                        \
	static enum mrt_poll name##_body(struct mrt_task *self, struct name *f);                        \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame)                            \
	{                                                                                               \
		return name##_body(self, frame);                                                        \
	}                                                                                               \
	static enum mrt_poll name##_body(struct mrt_task *self, struct name *f)

/* ---- from one worker to another ---- */

/*
 * Moves the running task to another worker, not by chance: the one that it is on is held in a poll, by a task that this one
 * starts for it, and the queue of a worker in a long poll is others' to take. Where there is no other, or nobody comes, the
 * test fails. One move at a time, as each holds a worker.
 */
struct itest_move {
	struct mrt_op op;
	struct mrt_notify held;
	struct mrt_task *holder;
	pid_t from;             /* thread of the worker that is left */
	int let_go;             /* atomic */
};

/* In a task: it is on another worker afterwards, and the former is still in that poll. The move is in the frame. */
#define ITEST_MOVE(self, move)                                                                          \
	for (;;) {                                                                                      \
		itest_move_begin(move);                                                                 \
		MRT_AWAIT(self, mrt_notify_wait(&(move)->op, &(move)->held));                           \
		if (itest_move_is_done(move))                                                           \
			break;                                                                          \
		ITEST_MOVE_END(self, move);                                                             \
	}

/* Let the former worker go on: at once, or with the end, which must come in any case. */
void itest_move_let_go(struct itest_move *move);
#define ITEST_MOVE_END(self, move)                                                                      \
	do {                                                                                            \
		itest_move_let_go(move);                                                                \
		MRT_AWAIT(self, mrt_join(&(move)->op, (move)->holder));                                 \
	} while (0)

/* Of ITEST_MOVE. */
void itest_move_begin(struct itest_move *move);
bool itest_move_is_done(const struct itest_move *move);

/* ---- the log ---- */

/* Receives the log of every runtime that itest_opts() was used for. */
void itest_log(int level, const char *sentence, void *ctx);

/* Has a sentence with this in it been logged? */
bool itest_log_has(const char *part);

/* All that was logged, one sentence a line. The caller frees it. */
char *itest_log_text(void);

void itest_log_clear(void);

/* ---- waits and measures ---- */

/* Poll a condition until it holds; the test fails after `ms`. */
#define ITEST_WAIT(cond, ms)                                                                            \
	do {                                                                                            \
		uint64_t itest_until = mrt_now() + MRT_MS(ms);                                          \
		while (!(cond)) {                                                                       \
			ck_assert_msg(mrt_now() < itest_until, "waited %d ms for: %s", (int)(ms), #cond); \
			itest_pause();                                                                  \
		}                                                                                       \
	} while (0)

/* Give the CPU away for a moment, between two looks. */
void itest_pause(void);

/* Compute for this long. */
void itest_spin(uint64_t ns);

/* Open descriptors of this process. */
unsigned itest_fds_nr(void);

/* CPU time of this process, ns. */
uint64_t itest_cpu_ns(void);

/* Voluntary context switches of a thread so far. */
uint64_t itest_switches(pid_t tid);

/* Sort in place; the value at `permille` of 1000. */
uint64_t itest_quantile(uint64_t *values, size_t nr, unsigned permille);

/* An unsigned number from the environment. */
unsigned itest_env(const char *name, unsigned otherwise);

/* Two connected stream sockets. */
void itest_socketpair(int ret_fds[2]);

/* ---- processes ---- */

struct itest_exit {
	int status;             /* of waitpid */
	char err[8192];         /* what it wrote to stderr, NUL-terminated, cut to fit */
};

/* Have this process killed after so many seconds, multiplied as Check does it. */
void itest_alarm(unsigned seconds);

/* Run fn in a child, which ends with its result as exit code, or is killed after `seconds` (as itest_alarm()). */
struct itest_exit itest_child(int (*fn)(void *ctx), void *ctx, unsigned seconds);

/* As above; it must abort, having said all of these; the list ends with NULL. */
void itest_aborts_with(int (*fn)(void *ctx), void *ctx, ...);

/* As itest_child; it must exit with 0. */
void itest_child_ok(int (*fn)(void *ctx), void *ctx);

/* ---- main ---- */

/* Exit with 77 and a reason if no runtime can be made here. */
void itest_need_io_uring(void);

/* Run a suite. @return exit code */
int itest_main(Suite *suite);

#endif
