/* SPDX-License-Identifier: MIT */
/*
 * A task is what is scheduled: a poll function and its frame, which holds all state that lives across a wait. Nothing
 * lives on a stack between polls, so a task may move between workers at every wait.
 *
 *	struct copy {
 *		struct mrt_op op;
 *		char buf[4096];
 *	};
 *
 *	static enum mrt_poll copy_poll(struct mrt_task *self, void *frame)
 *	{
 *		struct copy *c = frame;                 (locals are lost at a wait: initialise above MRT_BEGIN)
 *
 *		MRT_BEGIN(self);
 *		MRT_AWAIT(self, mrt_read(&c->op, 0, c->buf, sizeof(c->buf), MRT_OFF_CURRENT));
 *		MRT_RETURN(self, c->op.res);
 *	}
 *
 * Resume points are label addresses kept as offsets (GNU C), so a wait may stand inside a loop or a switch.
 */
#ifndef MARTLET_TASK_H
#define MARTLET_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>
#include <martlet/op.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt_runtime;
struct mrt_task;

/* What one run of a poll function says. */
enum mrt_poll {
	MRT_POLL_PENDING = 0,   /* it waits; the runtime calls again when what it waits for is there */
	MRT_POLL_READY = 1      /* it has ended; its result was given by MRT_RETURN */
};

/**
 * A task's body. Called on a worker, never concurrently with itself, never while an await is unsatisfied.
 *
 * @param self   the task
 * @param frame  its frame, 16-byte aligned, at the same address for the task's whole life
 */
typedef enum mrt_poll (*mrt_poll_fn)(struct mrt_task *self, void *frame);

#define MRT_SPAWN_SPREAD (1u << 0) /* start on the worker with the least work instead of this one */

/* Options of a spawn; zero is the default of each. */
struct mrt_spawn_opts {
	size_t size;            /* sizeof(struct mrt_spawn_opts), for later versions */
	const char *name;       /* for dumps and logs; must outlive the task; NULL: the poll function's symbol */
	size_t frame_bytes;     /* size of the frame where it exceeds what is copied; the rest is zeroed */
	uint32_t flags;         /* MRT_SPAWN_* */
	uint32_t reserved;
};

/**
 * Start a task.
 *
 * One allocation; the frame is copied from `frame` (which may be NULL: all zero). The task runs soon, on this worker
 * or on another, never inside this call.
 *
 * @thread  any; outside a worker the task goes through the inject queue
 * @owner   `frame` is copied; *ret_task is the caller's until mrt_join has delivered or mrt_detach was called
 * @blocks  never
 *
 * @param rt           runtime; NULL: the one whose task is running
 * @param fn           poll function
 * @param frame        [frame_bytes] initial frame, or NULL
 * @param frame_bytes  0..1 GiB
 * @param opts         NULL: defaults
 * @param ret_task     handle, or NULL: detached from the start
 * @return 0, or
 *         -EINVAL      fn NULL, sizes out of range, unknown flags, or rt NULL outside a task
 *         -E2BIG       opts is newer than this library
 *         -ENOMEM      no memory
 *         -ESHUTDOWN   the runtime is closing
 *         -ECHILD      in a child after fork
 */
MRT_API int mrt_spawn(struct mrt_runtime *rt, mrt_poll_fn fn, const void *frame, size_t frame_bytes,
		      const struct mrt_spawn_opts *opts, struct mrt_task **ret_task);

/**
 * Wait for a task to end, and take its result.
 *
 * On delivery with why == 0 the handle is gone. One join at a time; joins and detaches of one handle come one after another,
 * since any of them may be the handle's end. The task may be of another runtime.
 *
 * @thread  the running task's worker
 * @owner   op is the runtime's until it completes
 * @blocks  never
 * @result  with op->why == 0: the task's result (-ECANCELED where an abort ended it before it returned one);
 *          with op->why != 0, res is the same code, and the handle is still the caller's:
 *          -EBUSY       another join of this task is in flight
 *          -EDEADLK     a task joining itself
 *          -ECANCELED, -ETIMEDOUT  this join was cancelled
 * @return op
 */
MRT_API struct mrt_op *mrt_join(struct mrt_op *op, struct mrt_task *task);

/**
 * Wait for a task to end from outside the runtime, and take its result.
 *
 * @thread  any but a worker
 * @owner   the handle is gone on success
 * @blocks  until the task has ended
 * @param ret_result  the task's result; NULL: not wanted
 * @return 0, -EBUSY (another join is in flight), -ECHILD, or -EDEADLK: called on a worker, or by the owner of a
 *         current-thread runtime, which runs only inside its own mrt_block_on()
 */
MRT_API int mrt_task_join_wait(struct mrt_task *task, int64_t *ret_result);

/**
 * Give a handle back without waiting; the task goes on. NULL is ignored.
 *
 * @thread  any
 * @blocks  never
 */
MRT_API void mrt_detach(struct mrt_task *task);

/**
 * Ask a task to end: every op in flight is cancelled, and ops that it starts from now on complete at once with
 * -ECANCELED, except mrt_close() and what stands inside mrt_shield(). The poll function goes on until it returns. A task
 * that was never polled does not run at all; its result is -ECANCELED. May be called more than once.
 *
 * @thread  any that holds a handle, or the task itself
 * @blocks  never
 */
MRT_API void mrt_abort(struct mrt_task *task);

/**
 * Was an abort asked for?
 *
 * @thread  any that holds a handle, or the task itself
 */
MRT_API bool mrt_task_is_aborted(const struct mrt_task *task);

/**
 * Has the task ended, all of its ops collected?
 *
 * @thread  any that holds a handle
 */
MRT_API bool mrt_task_is_finished(const struct mrt_task *task);

/**
 * Protect what follows from aborts (clean-up that must happen): ops started while the shield is up are not cancelled
 * by an abort. Nests: each `true` needs its `false`.
 *
 * @thread  the running task
 */
MRT_API void mrt_shield(struct mrt_task *self, bool up);

/* The running task, or NULL outside one. @thread any */
MRT_API struct mrt_task *mrt_task_self(void);

/* Number of a task: unique in its runtime, never 0. @thread any that holds a handle, or the task itself */
MRT_API uint64_t mrt_task_id(const struct mrt_task *task);

/**
 * Name of a task: the one given at spawn, else the symbol of its poll function, else its address. Valid as long as the
 * task.
 *
 * @thread  any that holds a handle, or the task itself
 * @param buf  [buf_bytes] scratch for a name that must be made; >= 1
 * @return the name, NUL-terminated; may be buf
 */
MRT_API const char *mrt_task_name(const struct mrt_task *task, char *buf, size_t buf_bytes);

/**
 * Give others a turn: completes after the ring was driven once and the tasks before it have run.
 *
 * @thread  the running task's worker
 * @result  0; -ECANCELED in an aborted task, which yields all the same
 * @return op
 */
MRT_API struct mrt_op *mrt_yield(struct mrt_op *op);

/* ---- how the macros below reach the runtime; not for direct use ---- */

struct mrt__resume_point {
	int32_t offset;         /* first member of every task */
};

/* True: the task must suspend, and will resume at `offset`. */
MRT_API bool mrt_task_await(struct mrt_task *self, struct mrt_op *op, int32_t offset);
MRT_API bool mrt_task_await_any(struct mrt_task *self, struct mrt_op *const *ops, size_t ops_nr, int32_t offset,
			    size_t *ret_idx);
MRT_API bool mrt_task_await_all(struct mrt_task *self, struct mrt_op *const *ops, size_t ops_nr, int32_t offset);
MRT_API void mrt_task_return(struct mrt_task *self, int64_t result);
MRT_API int64_t mrt_task_result(const struct mrt_task *self);

/* A sub-task's frame is embedded by value; this is the little that the call itself needs beside it. */
struct mrt_call {
	int64_t res;            /* the sub-task's result, after MRT_CALL */
	int32_t mrt__offset;    /* private: where the sub-task resumes */
	int32_t mrt__bits;
};

#define MRT__RESUME(self) (((struct mrt__resume_point *)(void *)(self))->offset)

#define MRT__CAT2(a, b) a##b
#define MRT__CAT(a, b) MRT__CAT2(a, b)

/*
 * A label's distance from the function's first label. It is a static constant because a function whose label addresses
 * are in static data is never cloned or inlined twice: each copy would have other distances.
 */
#define MRT__OFFSET(name, label) \
	static const int32_t name = (int32_t)((char *)__extension__ && label - (char *)__extension__ && mrt__base)

/** Begin a poll function; first statement after the declarations. */
#define MRT_BEGIN(self) \
	do { \
		if (MRT__RESUME(self) != 0) \
			__extension__ ({ goto *((char *)&&mrt__base + MRT__RESUME(self)); });           \
	} while (0); \
	mrt__base: \
	(void)0

/** Wait for an op: start it in place, `MRT_AWAIT(self, mrt_read(...))`, or name one that is in flight or done. */
#define MRT_AWAIT(self, op) \
	MRT__AWAIT(self, op, __COUNTER__)
#define MRT__AWAIT(self, op, id) \
	MRT__AWAIT_AT(self, op, MRT__CAT(mrt__resume_, id), MRT__CAT(mrt__offset_, id))
#define MRT__AWAIT_AT(self, op, label, offset) \
	do { \
		MRT__OFFSET(offset, label); \
		if (mrt_task_await((self), (op), offset)) \
			return MRT_POLL_PENDING; \
	label:; \
	} while (0)

/**
 * Wait until one of several ops is done: that is select. The others stay in flight.
 *
 * ops     [ops_nr] pointers to ops in flight or done; NULL entries are skipped; must live in the frame
 * ret_idx an lvalue of type size_t in the frame: the first in the array that is done
 */
#define MRT_AWAIT_ANY(self, ops, ops_nr, ret_idx) \
	MRT__AWAIT_ANY(self, ops, ops_nr, ret_idx, __COUNTER__)
#define MRT__AWAIT_ANY(self, ops, ops_nr, ret_idx, id) \
	MRT__AWAIT_ANY_AT(self, ops, ops_nr, ret_idx, MRT__CAT(mrt__resume_, id), MRT__CAT(mrt__offset_, id))
#define MRT__AWAIT_ANY_AT(self, ops, ops_nr, ret_idx, label, offset) \
	do { \
		MRT__OFFSET(offset, label); \
	label: \
		if (mrt_task_await_any((self), (ops), (ops_nr), offset, &(ret_idx))) \
			return MRT_POLL_PENDING; \
	} while (0)

/** Wait until all of several ops are done. Parameters as MRT_AWAIT_ANY. */
#define MRT_AWAIT_ALL(self, ops, ops_nr) \
	MRT__AWAIT_ALL(self, ops, ops_nr, __COUNTER__)
#define MRT__AWAIT_ALL(self, ops, ops_nr, id) \
	MRT__AWAIT_ALL_AT(self, ops, ops_nr, MRT__CAT(mrt__resume_, id), MRT__CAT(mrt__offset_, id))
#define MRT__AWAIT_ALL_AT(self, ops, ops_nr, label, offset) \
	do { \
		MRT__OFFSET(offset, label); \
		if (mrt_task_await_all((self), (ops), (ops_nr), offset)) \
			return MRT_POLL_PENDING; \
	label:; \
	} while (0)

/**
 * Run a sub-task's poll function to its end inside this task, on a frame embedded in this one.
 *
 * call   struct mrt_call * in the frame; its res is the sub-task's result afterwards
 * fn     poll function
 * sub    pointer to the sub-task's frame, in this frame, initialised by the caller
 */
#define MRT_CALL(self, call, fn, sub) \
	MRT__CALL(self, call, fn, sub, __COUNTER__)
#define MRT__CALL(self, call, fn, sub, id) \
	MRT__CALL_AT(self, call, fn, sub, MRT__CAT(mrt__resume_, id), MRT__CAT(mrt__offset_, id))
#define MRT__CALL_AT(self, call, fn, sub, label, offset) \
	do { \
		MRT__OFFSET(offset, label); \
		(call)->mrt__offset = 0; \
	label: \
		MRT__RESUME(self) = (call)->mrt__offset; \
		if (fn((self), (sub)) == MRT_POLL_PENDING) { \
			(call)->mrt__offset = MRT__RESUME(self); \
			MRT__RESUME(self) = offset; \
			return MRT_POLL_PENDING; \
		} \
		(call)->res = mrt_task_result(self); \
	} while (0)

/** End the task (or the sub-task) with a result, int64_t. */
#define MRT_RETURN(self, result) \
	do { \
		mrt_task_return((self), (result)); \
		return MRT_POLL_READY; \
	} while (0)

#ifdef __cplusplus
}
#endif

#endif
