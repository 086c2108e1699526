/* SPDX-License-Identifier: MIT */
/*
 * Life of an op: begin, submit or wait, finish, deliver; and how it is cancelled.
 *
 *	IDLE/DONE --begin--> INFLIGHT --(completer: finish)--> [on the task's done stack] --(holder: deliver)--> DONE
 *
 * An op is in flight until it is delivered, and a task with ops in flight is not freed: that is the whole proof that
 * the kernel never writes into freed memory. Three things may hold a delivery up, each of them bounded by somebody who
 * is certain to come by: a cancel message in another worker's mailbox, a deadline that has fired but was not popped,
 * and, before the op is on the stack at all, the kernel.
 */
#include "sched/op.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <martlet/task.h>
#include <martlet/time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "sched/arena.h"
#include "sched/cancels.h"
#include "sched/files.h"
#include "sched/nvme.h"
#include "sched/op_begin.h"
#include "sched/op_run.h"
#include "sched/rung.h"
#include "sched/sched.h"
#include "sched/task.h"
#include "sched/worker.h"

#define STATX_BYTES 256 /* struct statx, since 4.11 */
#define RANGES_MAX 3u   /* of outputs_of() */
#define REAP_BATCH 64u
#define NO_FIXED UINT16_MAX /* buf_index of an op whose file refused the fixed-buffer opcode */

#if MRT_VALGRIND
#include <valgrind/memcheck.h>

/* Tell memcheck what the kernel wrote: it does not see io_uring's writes. */
static void mark_written(const struct mrt__op *op, int32_t res)
{
	const struct iovec *iov = (const struct iovec *)(uintptr_t)op->io.addr;
	size_t left = res > 0 ? (size_t)res : 0;

	if (op->kind == MRT__OP_READ || op->kind == MRT__OP_RECV)
		(void)VALGRIND_MAKE_MEM_DEFINED((void *)(uintptr_t)op->io.addr, left);
	for (; op->kind == MRT__OP_READV && left > 0; left -= mrt__min(left, iov->iov_len), iov++)
		(void)VALGRIND_MAKE_MEM_DEFINED(iov->iov_base, mrt__min(left, iov->iov_len));
	if (op->kind == MRT__OP_STATX && res == 0)
		(void)VALGRIND_MAKE_MEM_DEFINED((void *)(uintptr_t)op->io.off, STATX_BYTES);
}
#else
static inline void mark_written(const struct mrt__op *op, int32_t res)
{
	(void)op;
	(void)res;
}
#endif

/* What the kernel says of an op that io-wq was told to stop; no error number of its own outside the kernel. */
#define RESTARTSYS 512

const char *const mrt__op_kind_names[MRT__OP_KINDS_NR] = {
#define MRT__X(NAME, name) [MRT__OP_##NAME] = name,
	MRT__OP_KINDS(MRT__X)
#undef MRT__X
};

const char *mrt__op_kind_name(unsigned kind)
{
	return kind < MRT__OP_KINDS_NR ? mrt__op_kind_names[kind] : "?";
}

/* ---- begin ---- */

static void bug_reused(const struct mrt__op *op, const char *starts)
{
	char held[64] = "?", now[64] = "outside a task";

	mrt__bug("op %p is started as %s by task %s while it is in flight as %s of task %s: an op may be started again "
		 "only after it was delivered",
		 (const void *)op, starts,
		 mrt_task_self() ? mrt_task_name(mrt_task_self(), now, sizeof(now)) : now,
		 mrt__op_kind_name(op->kind), mrt_task_name(op->task, held, sizeof(held)));
}

__attribute__((cold, noinline)) void mrt__op_bug_not_startable(const struct mrt__op *op, enum mrt__op_kind kind)
{
	if (op->state == MRT__OP_INFLIGHT)
		bug_reused(op, mrt__op_kind_name(kind));
	mrt__bug("op %p is started as %s but holds garbage: zero it before its first use", (const void *)op,
		 mrt__op_kind_name(kind));
}

struct mrt_op *mrt__op_refuse(struct mrt_op *pub, enum mrt__op_kind kind, int64_t res)
{
	struct mrt__op *op = mrt__op_of(pub);

	mrt__op_check_startable(op, kind);
	op->kind = (uint8_t)kind;
	op->flags = 0;
	op->hflags = 0;
	op->why = 0;
	mrt__op_set_done(op, mrt__sched_is_forked() ? -ECHILD : res);
	return pub;
}

/* Outside a task there is nobody to deliver to. */
struct mrt__worker *mrt__op_begin_outside(struct mrt__op *op, enum mrt__op_kind kind)
{
	(void)mrt__op_refuse(mrt__op_public(op), kind, -EINVAL);
	if (!mrt__sched_is_forked())
		mrt__sched_log_all(MRT_LOG_ERROR,
				   "%s was started outside a task; start ops in a poll function, or use mrt_block_on()",
				   mrt__op_kind_name(kind));
	return NULL;
}

struct mrt__worker *mrt__op_begin_aborted(struct mrt__op *op, enum mrt__op_kind kind, struct mrt_task *t)
{
	/* relaxed: which of the two codes is a courtesy */
	bool closing = atomic_load_explicit(&t->sched->closing, memory_order_relaxed);

	return (void)mrt__op_refuse(mrt__op_public(op), kind, closing ? -ESHUTDOWN : -ECANCELED), NULL;
}

struct mrt__worker *mrt__op_begin(struct mrt__op *op, enum mrt__op_kind kind, unsigned flags)
{
	return mrt__op_begin_fast(op, kind, flags);
}

/* ---- finish ---- */

static void deliver(struct mrt_task *t, struct mrt__op *op);

/*
 * Deliver at once, as the task's new holder, if that takes a worker no lock that its caller may hold, and no system call:
 * whatever comes after the task has returned may (it is given back).
 */
static __attribute__((noinline)) bool hand_over(struct mrt__worker *w, struct mrt_task *t, struct mrt__op *op, bool by_end)
{
	if (mrt__unlikely(t->flags & MRT__TASKF_RETURNED))
		(void)mrt__task_push(t, op); /* held, by us */
	else
		deliver(t, op);
	/* it may wait for more: then nobody need run it */
	if (!mrt__task_is_runnable(t) && mrt__task_let_go(t))
		return false;
	if (by_end)
		mrt__worker_schedule_joiner(w, t);
	else
		mrt__worker_schedule(w, t);
	return true;
}

/* The same by a thread that is no worker of the runtime: it delivers a value, and drops no handle. */
static __attribute__((noinline)) bool hand_over_outside(struct mrt_task *t, struct mrt__op *op)
{
	if (mrt__unlikely(!mrt__op_is_plain(t, op) || op->kind == MRT__OP_JOIN)) {
		(void)mrt__task_push(t, op); /* held, by us */
	} else {
		deliver(t, op);
		if (!mrt__task_is_runnable(t) && mrt__task_let_go(t))
			return false;
	}
	mrt__sched_enqueue(t);
	return true;
}

/* The task rests with us, who are its holder by that: the word is not looked at. @return true: made runnable */
static inline __attribute__((always_inline)) bool finish_kept(struct mrt__worker *w, struct mrt_task *t, struct mrt__op *op,
							       bool by_end)
{
	mrt__assert(w && mrt__task_rests_at(t, w->index));
	if (mrt__unlikely(op->kind == MRT__OP_DEADLINE)) {
		/* its delivery ends another op, which must find the task in a hand, and not at rest */
		mrt__task_set_place(t, w->index);
		return hand_over(w, t, op, by_end);
	}
	if (mrt__unlikely(t->flags & MRT__TASKF_RETURNED))
		(void)mrt__task_push(t, op); /* as in hand_over() */
	else
		deliver(t, op);
	if (!mrt__task_is_runnable(t) && mrt__likely(!(t->flags & MRT__TASKF_RETURNED)))
		return false;
	mrt__task_set_place(t, w->index);
	if (by_end)
		mrt__worker_schedule_joiner(w, t);
	else if (mrt__likely(w->in_turn))
		mrt__worker_push_woken(w, t);
	else
		mrt__sched_enqueue(t); /* an op of it is ended from within another task's poll */
	return true;
}

/* @return true: the task was made runnable */
static inline __attribute__((always_inline)) bool finish(struct mrt__worker *w, struct mrt__op *op, int64_t raw, bool by_end)
{
	struct mrt_task *t = op->task;

	op->raw = raw;
	if (mrt__likely(mrt__task_rests(t)))
		return finish_kept(w, t, op, by_end);
	if (mrt__task_hold_or_push(t, op) == MRT__CLAIM_PUSHED)
		return false;
	return mrt__likely(w && w->sched == t->sched) ? hand_over(w, t, op, by_end) : hand_over_outside(t, op);
}

void mrt__op_finish(struct mrt__op *op, int64_t raw)
{
	(void)finish(mrt__worker_self, op, raw, false); /* for those who count */
}

void mrt__op_finish_join(struct mrt__worker *w, struct mrt__op *op, int64_t raw)
{
	(void)finish(w, op, raw, true); /* as above */
}

/* ---- ring ops: submit, step ---- */

/* ---- what an op holds: its files, and its buffers' places in the arena ----
 *
 * Held when it is staged and released when its CQE comes, both by the ring's owner, each step of an _all form anew. What
 * waits in the queue holds its buffers, but no file: a handle says by itself that it is stale, while memory that was freed
 * would be somebody else's by the time that it is staged. So a block that is freed under an op is kept from its start to its
 * end; a step that is staged later, and an op that has waited, are refused.
 */

/* Memory that the kernel reads or writes besides io.addr, io.len. */
static unsigned outputs_of(const struct mrt__op *op, struct iovec out[RANGES_MAX])
{
	unsigned nr = 0;

	if (op->kind == MRT__OP_STATX)
		out[nr++] = (struct iovec){ (void *)(uintptr_t)op->io.off, STATX_BYTES };
	if (op->kind == MRT__OP_ACCEPT && op->io.addr) {
		/* how much of the address is the caller's says *off, which may change: its first byte stands for it */
		out[nr++] = (struct iovec){ (void *)(uintptr_t)op->io.addr, 1 };
		out[nr++] = (struct iovec){ (void *)(uintptr_t)op->io.off, sizeof(socklen_t) };
	}
	if (op->kind == MRT__OP_NVME_CMD) {
		struct mrt_nvme_cmd *cmd = (struct mrt_nvme_cmd *)(uintptr_t)op->io.addr;

		out[nr++] = (struct iovec){ cmd->data, cmd->data_bytes };
		out[nr++] = (struct iovec){ cmd->metadata, cmd->metadata_bytes };
		out[nr++] = (struct iovec){ cmd, sizeof(*cmd) };
	}
	return nr;
}

/* An op's buffers beyond the one of BUF: the array of IOV, or what OUT stands for, in `out`. */
static const struct iovec *ranges_of(const struct mrt__op *op, struct iovec out[RANGES_MAX], unsigned *ret_nr)
{
	if (op->flags & MRT__OPF_IOV) {
		*ret_nr = op->io.len;
		return (const struct iovec *)(uintptr_t)op->io.addr;
	}
	*ret_nr = outputs_of(op, out);
	return out;
}

static __attribute__((noinline)) bool ranges_touch_arena(const struct mrt__worker *w, const struct mrt__op *op)
{
	struct iovec out[RANGES_MAX];
	const struct iovec *ranges;
	unsigned nr, i;

	ranges = ranges_of(op, out, &nr);
	for (i = 0; i < nr; i++)
		if (mrt__arena_has(&w->arena, ranges[i].iov_base))
			return true;
	return false;
}

static inline bool needs_hold(const struct mrt__worker *w, const struct mrt__op *op)
{
	if (op->flags & MRT__OPF_BUF && mrt__arena_has(&w->arena, (const void *)(uintptr_t)op->io.addr))
		return true;
	if (op->flags & (MRT__OPF_FILE | MRT__OPF_FILE2))
		return true;
	return mrt__unlikely(op->flags & (MRT__OPF_IOV | MRT__OPF_OUT)) && ranges_touch_arena(w, op);
}

static void release_ranges(struct mrt__worker *w, const struct iovec *ranges, unsigned nr)
{
	unsigned i;

	for (i = 0; i < nr; i++)
		if (mrt__arena_has(&w->arena, ranges[i].iov_base))
			mrt__arena_release(&w->arena, (uintptr_t)ranges[i].iov_base);
}

/* What is given to a ring for an op. */
struct staging {
	struct mrt__ring_args args;
	struct mrt__ring *ring;
	struct mrt__arena_view *view;   /* the ring's */
	const struct mrt__nvme_ns *ns;  /* passthrough */
	bool unfixed;                   /* ... whose commands take no registered buffers */
	int32_t extra_fd;
};

/* @return false: freed memory, or beyond its block; nothing is held */
static __attribute__((noinline)) bool hold_ranges(struct mrt__worker *w, struct mrt__op *op, struct staging *st)
{
	uint16_t index = 0, first = 0;
	unsigned nr, i, how, fixed = 0;
	const struct iovec *ranges;
	struct iovec out[RANGES_MAX];

	ranges = ranges_of(op, out, &nr);
	for (i = 0; i < nr; i++) {
		uint32_t len = (uint32_t)mrt__min(ranges[i].iov_len, (size_t)MRT_IO_BYTES_MAX);

		if (!mrt__arena_has(st->view, ranges[i].iov_base))
			continue;
		how = mrt__arena_hold(st->view, st->ring, (uintptr_t)ranges[i].iov_base, len, &index);
		if (how == MRT__ARENA_BAD) {
			release_ranges(w, ranges, i);
			return false;
		}
		if (how != MRT__ARENA_FIXED)
			continue;
		if (op->kind == MRT__OP_NVME_CMD && i == 0 && op->io.buf_index != NO_FIXED) {
			st->args.op_flags = MRT__RING_CMD_FIXED;
			st->args.buf_index = index;
		}
		if (fixed == 0 || index == first) {
			first = index;
			fixed++;
		}
	}
	if (op->flags & MRT__OPF_IOV && fixed == nr && op->io.buf_index != NO_FIXED &&
	    mrt__ring_has_opcode(st->ring, MRT__OPCODE_WRITEV_FIXED)) {
		st->args.opcode = op->kind == MRT__OP_READV ? MRT__OPCODE_READV_FIXED : MRT__OPCODE_WRITEV_FIXED;
		st->args.buf_index = first;
	}
	return true;
}

static inline bool hold_buffers(struct mrt__worker *w, struct mrt__op *op, struct staging *st)
{
	uint16_t index;
	unsigned how;

	st->args.buf_index = 0;
	if (mrt__unlikely(op->flags & (MRT__OPF_IOV | MRT__OPF_OUT)))
		return hold_ranges(w, op, st);
	if (!(op->flags & MRT__OPF_BUF) || !mrt__arena_has(st->view, (const void *)(uintptr_t)op->io.addr))
		return true;
	how = mrt__arena_hold(st->view, st->ring, op->io.addr, op->io.len, &index);
	if (mrt__unlikely(how == MRT__ARENA_BAD))
		return false;
	if (mrt__likely(how == MRT__ARENA_FIXED && op->io.buf_index != NO_FIXED)) {
		if (op->kind == MRT__OP_READ)
			st->args.opcode = MRT__OPCODE_READ_FIXED;
		else if (op->kind == MRT__OP_WRITE)
			st->args.opcode = MRT__OPCODE_WRITE_FIXED;
		else
			return true; /* sockets: the plain opcode */
		st->args.buf_index = index;
	}
	return true;
}

static inline struct mrt__file_use *hold_file(struct mrt__worker *w, int handle)
{
	struct mrt__file_use *u = mrt__file_use_of(w, handle);

	if (mrt__likely(u))
		u->inflight++;
	return u;
}

static inline void release_file(struct mrt__worker *w, struct mrt__op *op, int handle)
{
	struct mrt__file_use *u = &w->file_use[mrt__handle_slot(handle)];

	u->inflight--;
	if (mrt__unlikely(u->closing)) {
		op->rflags |= MRT__OPR_RETRIED | MRT__OPR_STOPPED;
		if (u->inflight == 0)
			mrt__file_drained(w, mrt__handle_slot(handle));
	}
}

/* The second descriptor of the kinds that have two. */
static int second_fd(const struct mrt__op *op)
{
	return op->kind == MRT__OP_SPLICE ? (int)op->raw : (int)op->io.len;
}

static bool hold_second(struct mrt__worker *w, struct mrt__op *op, struct staging *st)
{
	struct mrt__file_use *u = hold_file(w, second_fd(op));

	if (!u)
		return false;
	if (op->kind == MRT__OP_SPLICE)
		st->extra_fd = u->fd;
	else
		st->args.len = (uint32_t)u->fd;
	return true;
}

/* A read or write that a polled ring takes: see mrt__rung_polled_max(). */
static bool is_pollable(const struct mrt__file_use *u, const struct mrt__op *op)
{
	if (op->flags & MRT__OPF_IOV && !(u->flags & MRT_FILE_PASSTHROUGH))
		return mrt__rung_polled_takes(u->polled_bytes_max, (const struct iovec *)(uintptr_t)op->io.addr, op->io.len);
	return op->flags & MRT__OPF_IOV || op->io.len <= u->polled_bytes_max;
}

/* @return 0, or -EBADF: stale, nothing held */
static inline int hold_files(struct mrt__worker *w, struct mrt__op *op, struct staging *st)
{
	struct mrt__file_use *u = hold_file(w, op->io.fd);
	uint8_t on = MRT__FILE_ON_MAIN;

	if (mrt__unlikely(!u))
		return -EBADF;
	if (mrt__unlikely(u->flags & MRT_FILE_POLLED && mrt__op_is_rw(op)) && is_pollable(u, op)) {
		on = MRT__FILE_ON_POLLED;
		st->ring = w->polled;
		st->view = &w->polled_arena;
	}
	if (mrt__unlikely(u->flags & MRT_FILE_PASSTHROUGH)) {
		st->ns = w->sched->files->slots[mrt__handle_slot(op->io.fd)].nvme;
		st->unfixed = u->unfixed;
	}
	if (mrt__likely(u->ready & on && !(op->flags & MRT__OPF_DIRFD))) {
		st->args.fd = (int32_t)mrt__handle_slot(op->io.fd);
		st->args.sqe_flags |= MRT__RING_SQE_FIXED_FILE;
	} else {
		st->args.fd = u->fd;
	}
	return 0;
}

static inline int32_t extra_fd(const struct mrt__op *op)
{
	return op->kind == MRT__OP_SPLICE ? (int32_t)op->raw : 0;
}

/* @param addr  io.addr as it was when they were held */
static void release_buffers(struct mrt__worker *w, const struct mrt__op *op, uint64_t addr)
{
	if (op->flags & MRT__OPF_BUF) {
		if (mrt__arena_has(&w->arena, (const void *)(uintptr_t)addr))
			mrt__arena_release(&w->arena, addr);
	} else if (mrt__unlikely(op->flags & (MRT__OPF_IOV | MRT__OPF_OUT))) {
		struct iovec out[RANGES_MAX];
		unsigned nr;
		const struct iovec *ranges = ranges_of(op, out, &nr);

		release_ranges(w, ranges, nr);
	}
}

static void release_files(struct mrt__worker *w, struct mrt__op *op)
{
	if (op->flags & MRT__OPF_FILE)
		release_file(w, op, op->io.fd);
	if (mrt__unlikely(op->flags & MRT__OPF_FILE2))
		release_file(w, op, second_fd(op));
	if (mrt__unlikely(op->kind == MRT__OP_SPLICE))
		mrt__cancels_drop(w, op);
}

static void release_held(struct mrt__worker *w, struct mrt__op *op)
{
	op->rflags &= (uint8_t)~MRT__OPR_HELD;
	release_files(w, op);
	release_buffers(w, op, op->io.addr);
}

static __attribute__((cold, noinline)) int refuse_memory(struct mrt__worker *w, const struct mrt__op *op)
{
	mrt__sched_log(w->sched, MRT_LOG_ERROR,
		       "%s: its buffer at %#llx is arena memory that was freed, or runs beyond its block: refused",
		       mrt__op_kind_name(op->kind), (unsigned long long)op->io.addr);
	return -EFAULT;
}

/* @return 0; -EBADF, -EFAULT: refused, nothing held */
static int hold(struct mrt__worker *w, struct mrt__op *op, struct staging *st)
{
	int err;

	st->args = op->io;
	st->ring = w->ring;
	st->view = &w->arena;
	st->ns = NULL;
	st->extra_fd = extra_fd(op);
	if (op->flags & MRT__OPF_FILE) {
		err = hold_files(w, op, st);
		if (mrt__unlikely(err))
			return err;
	}
	if (mrt__unlikely(op->flags & MRT__OPF_FILE2) && !hold_second(w, op, st)) {
		err = -EBADF;
		goto err_file;
	}
	if (mrt__unlikely(op->kind == MRT__OP_SPLICE) && !mrt__cancels_watch(w, op)) {
		err = -ENOMEM;
		goto err_second;
	}
	if (mrt__likely(hold_buffers(w, op, st))) {
		op->rflags |= MRT__OPR_HELD;
		return 0;
	}
	err = refuse_memory(w, op);
err_second:
	if (op->flags & MRT__OPF_FILE2)
		release_file(w, op, second_fd(op));
err_file:
	if (op->flags & MRT__OPF_FILE)
		release_file(w, op, op->io.fd);
	return err;
}

/* ---- staging ---- */

/* What staging comes to. Zero and negative: it is over without the kernel, and this is the op's, or this step's, result. */
enum {
	STAGED = 1,
	NO_ROOM = 2,            /* no credit, or no SQE */
};

/* Build and stage an NVMe command. @return as try_stage() */
static __attribute__((noinline)) int stage_command(struct mrt__worker *w, struct mrt__op *op, struct staging *st)
{
	unsigned char cmd[MRT__RING_CMD_BYTES];
	int32_t ret;

	if (st->unfixed) {
		st->args.opcode = op->io.opcode;
		st->args.op_flags = 0;
	}
	ret = mrt__nvme_stage_build(op, st->ns, &st->args, cmd);
	if (ret != MRT__NVME_STAGE) {
		release_held(w, op);
		return ret;
	}
	if (!mrt__ring_stage_cmd(st->ring, &st->args, cmd, op)) {
		mrt__stat_add(&w->stats->sq_fulls, 1);
		(void)mrt__ring_flush(st->ring); /* as below */
		if (!mrt__ring_stage_cmd(st->ring, &st->args, cmd, op)) {
			release_held(w, op);
			return NO_ROOM;
		}
	}
	return STAGED;
}

static int stage_held(struct mrt__worker *w, struct mrt__op *op)
{
	struct staging st;
	int err = hold(w, op, &st), ret;

	if (mrt__unlikely(err))
		return err;
	if (mrt__unlikely(st.ns != NULL)) {
		ret = stage_command(w, op, &st);
		if (ret != STAGED)
			return ret;
	} else if (mrt__unlikely(!mrt__ring_stage(st.ring, &st.args, st.extra_fd, op))) {
		mrt__stat_add(&w->stats->sq_fulls, 1);
		(void)mrt__ring_flush(st.ring); /* as below */
		if (!mrt__ring_stage(st.ring, &st.args, st.extra_fd, op)) {
			release_held(w, op);
			return NO_ROOM;
		}
	}
	if (mrt__unlikely(st.ring != w->ring)) {
		op->rflags |= MRT__OPR_POLLED;
		w->polled_inflight++;
	}
	return STAGED;
}

/* It is timed from now on; a further step of an _all form keeps its first stamp. */
static __attribute__((cold, noinline)) void stamp(struct mrt__op *op)
{
	if (op->rflags & MRT__OPR_TIMED)
		return;
	op->rflags |= MRT__OPR_TIMED;
	op->done_next = (struct mrt__op *)(uintptr_t)mrt__clock_now();
}

/* It is timed, or somebody listens. Out of line: op_step() is short. */
static __attribute__((cold, noinline)) void note_complete(struct mrt__worker *w, const struct mrt__op *op, int64_t raw)
{
	uint64_t ns = 0;

	if (op->rflags & MRT__OPR_TIMED) {
		ns = mrt__clock_now() - (uint64_t)(uintptr_t)op->done_next;
		mrt__meter_op_end(&w->meter, op->io.opcode, op->flags & MRT__OPF_CREDIT, ns);
	}
	mrt__fire(op_complete, w->index, mrt__arg(op), op->io.opcode, (uint64_t)raw, ns);
}

/* Give an op to the ring if a credit and an SQE are there. */
static inline __attribute__((always_inline)) int try_stage(struct mrt__worker *w, struct mrt__op *op)
{
	bool credit = op->flags & MRT__OPF_CREDIT;
	int ret;

	if (mrt__unlikely(credit && w->credits == 0)) {
		mrt__stat_add(&w->stats->credit_waits, 1);
		return NO_ROOM;
	}
	if (needs_hold(w, op)) {
		ret = stage_held(w, op);
		if (mrt__unlikely(ret != STAGED))
			return ret;
	} else if (mrt__unlikely(!mrt__ring_stage(w->ring, &op->io, extra_fd(op), op))) {
		mrt__stat_add(&w->stats->sq_fulls, 1);
		(void)mrt__ring_flush(w->ring); /* a short submit leaves the rest staged; then there is still no SQE */
		if (!mrt__ring_stage(w->ring, &op->io, extra_fd(op), op))
			return NO_ROOM;
	}
	w->credits -= credit;
	w->inflight++;
	if (mrt__unlikely(mrt__meter_op_start(&w->meter, op->io.opcode)))
		stamp(op);
	return STAGED;
}

/*
 * No credit, or no SQE: queue it, and hold its buffers there.
 *
 * @return NO_ROOM; -EFAULT: they are none any more, and it is not queued
 */
static int enqueue_unstaged(struct mrt__worker *w, struct mrt__op *op)
{
	struct staging st = { .ring = w->ring, .view = &w->arena };

	if (mrt__unlikely(!hold_buffers(w, op, &st)))
		return refuse_memory(w, op);
	op->rflags = (op->rflags & (uint8_t)~MRT__OPR_TIMED) | MRT__OPR_QUEUED; /* the stamp stood in the link */
	op->done_next = NULL;
	if (w->queued_tail)
		w->queued_tail->done_next = op;
	else
		w->queued_head = op;
	w->queued_tail = op;
	mrt__stat_set(&w->stats->queued, ++w->queued_nr);
	return NO_ROOM;
}

static void release_inputs(struct mrt__op *op)
{
	if (op->flags & MRT__OPF_OWNS_MEM)
		free((void *)(uintptr_t)op->io.addr);
}

/* What is staged is worth an enter of its own; what is not taken stays staged for the next turn. */
static inline void flush_if_many(struct mrt__worker *w)
{
	if (mrt__unlikely(mrt__ring_staged(w->ring) >= MRT__FLUSH_STAGED))
		(void)mrt__ring_flush(w->ring); /* as said */
	if (mrt__unlikely(w->polled_inflight >= MRT__FLUSH_STAGED) && mrt__ring_staged(w->polled) >= MRT__FLUSH_STAGED)
		(void)mrt__ring_flush(w->polled); /* as said */
}

struct mrt_op *mrt__op_submit(struct mrt__worker *w, struct mrt__op *op)
{
	int ret = NO_ROOM;

	mrt__assert_slow(op->kind < MRT__OP_KINDS_SHARED);
	op->flags |= MRT__OPF_RING;
	mrt__fire(op_submit, w->index, mrt__arg(op), op->io.opcode, (uint64_t)op->io.fd);
	/* FIFO among those that wait for credits; what needs none passes them by */
	if (mrt__likely(!(w->queued_head && op->flags & MRT__OPF_CREDIT)))
		ret = try_stage(w, op);
	if (mrt__likely(ret == STAGED)) {
		flush_if_many(w);
		return mrt__op_public(op);
	}
	if (ret == NO_ROOM)
		ret = enqueue_unstaged(w, op);
	if (ret != NO_ROOM) {
		release_inputs(op);
		mrt__op_end_inline(op, ret);
	}
	return mrt__op_public(op);
}

/*
 * A receive tries at once, and if there is no data the kernel waits for some and tries again. Where most first tries of late
 * have failed (requests and replies), the kernel is told to wait first, which saves that try; where they succeed, waiting
 * first would cost more. Which it was is seen by when it ends: with its submission, in the turn after its start, or later.
 * Only on a descriptor that is known to be a socket from which can be read, because this op was used on it before and did
 * not fail: on others the kernel would wait for data and not refuse.
 */
#define RECV_FOUND_SHIFT 3u
#define RECV_FOUND_MIN 64u      /* of 255: below it, wait first */

/* Before the op is begun. */
static inline bool may_poll_first(const struct mrt__worker *w, const struct mrt__op *op, int fd)
{
	return w && w->recv_polls && w->recv_found < RECV_FOUND_MIN && op->state == MRT__OP_DONE && op->io.fd == fd &&
	       (op->kind == MRT__OP_RECV || op->kind == MRT__OP_SEND) && op->res >= 0;
}

/* The turn in which a receive began, in a field that none of a socket's ops has. */
static inline void mark_turn(const struct mrt__worker *w, struct mrt__op *op)
{
	op->io.buf_index = (uint16_t)w->stats->turns;
}

static inline void learn_recv(struct mrt__worker *w, const struct mrt__op *op)
{
	if (op->io.buf_index == (uint16_t)w->stats->turns)
		w->recv_found += (uint8_t)(UINT8_MAX - w->recv_found) >> RECV_FOUND_SHIFT;
	else
		w->recv_found -= w->recv_found >> RECV_FOUND_SHIFT;
}

/*
 * What most I/O comes to, in registers: one buffer, on the worker's own ring, by a file that is plain or in the ring's table.
 * @return false: nothing was done; mrt__op_submit() deals with it
 */
static inline __attribute__((always_inline)) bool stage_simple(struct mrt__worker *w, struct mrt__op *op, unsigned opcode,
							       unsigned opcode_fixed, unsigned flags, int fd,
							       uint64_t addr, uint32_t len, uint32_t op_flags,
							       uint64_t off, bool poll_first)
{
	bool credit = flags & MRT__OPF_CREDIT, mine = mrt__arena_has(&w->arena, (const void *)(uintptr_t)addr);
	struct mrt__file_use *u = NULL;
	/* the name that its completion and the probes have, whichever form the kernel gets */
	unsigned name = opcode, sqe_flags = 0, staged_nr;
	uint16_t index = 0;

	if (mrt__unlikely((credit && w->credits == 0) || w->queued_head))
		return false;
	if (flags & MRT__OPF_FILE) {
		u = &w->file_use[(unsigned)fd & w->file_mask];
		if (mrt__unlikely(u->handle != fd || u->flags & (MRT_FILE_POLLED | MRT_FILE_PASSTHROUGH) ||
				  !(u->ready & MRT__FILE_ON_MAIN)))
			return false;
		fd = (int)mrt__handle_slot(fd);
		sqe_flags = MRT__RING_SQE_FIXED_FILE;
	}
	if (mine) {
		enum mrt__arena_kind how = mrt__arena_hold(&w->arena, w->ring, addr, len, &index);

		if (mrt__unlikely(how == MRT__ARENA_BAD))
			return false;
		if (opcode == opcode_fixed)
			index = 0; /* sockets take no registered buffers */
		else if (how == MRT__ARENA_FIXED)
			opcode = opcode_fixed;
	}
	staged_nr = mrt__ring_stage_packed(w->ring, mrt__ring_head(opcode, sqe_flags, index, fd), off, addr,
					   mrt__ring_length(len, op_flags), op);
	if (mrt__unlikely(staged_nr == 0)) {
		if (mine)
			mrt__arena_release(&w->arena, addr);
		return false;
	}
	if (poll_first)
		mrt__ring_poll_first(w->ring);
	if (opcode_fixed == MRT__OPCODE_RECV)
		mark_turn(w, op);
	if (u)
		u->inflight++;
	if (u || mine)
		op->rflags = MRT__OPR_HELD;
	w->credits -= credit;
	w->inflight++;
	if (mrt__unlikely(mrt__meter_op_start(&w->meter, name)))
		stamp(op);
	if (mrt__unlikely(staged_nr >= MRT__FLUSH_STAGED))
		(void)mrt__ring_flush(w->ring); /* as said */
	return true;
}

static inline __attribute__((always_inline)) struct mrt_op *start_simple(struct mrt_op *pub, enum mrt__op_kind kind,
									 enum mrt__opcode opcode,
									 enum mrt__opcode opcode_fixed, unsigned flags,
									 int fd, const void *buf, uint32_t len,
									 uint32_t op_flags, uint64_t off, bool poll_first)
{
	struct mrt__op *op = mrt__op_of(pub);
	uint64_t addr = (uintptr_t)buf;
	struct mrt__worker *w;

	flags |= MRT__OPF_BUF | MRT__OPF_RING;
	if (mrt__is_handle(fd))
		flags |= MRT__OPF_FILE;
	w = mrt__op_begin_fast(op, kind, flags);
	if (mrt__unlikely(!w))
		return pub;
	op->raw = 0;
	mrt__ring_args_set(&op->io, mrt__ring_head(opcode, 0, 0, fd), off, addr, mrt__ring_length(len, op_flags));
	if (mrt__unlikely(!stage_simple(w, op, opcode, opcode_fixed, flags, fd, addr, len, op_flags, off,
					poll_first)))
		return mrt__op_submit(w, op);
	mrt__fire(op_submit, w->index, mrt__arg(op), opcode, (uint64_t)fd);
	return pub;
}

#define FILE_RW (MRT__OPF_CREDIT | MRT__OPF_RETRY) /* at a position: it ends by itself, and may be tried again */

/* At the file's own position, which may be a stream's. */
static __attribute__((noinline)) struct mrt_op *start_current(struct mrt_op *op, enum mrt__op_kind kind, enum mrt__opcode opcode,
							      enum mrt__opcode opcode_fixed, unsigned flags, int fd,
							      const void *buf, uint32_t len, int64_t off)
{
	if (off != MRT_OFF_CURRENT)
		return mrt__op_refuse(op, kind, -EINVAL);
	return start_simple(op, kind, opcode, opcode_fixed, flags, fd, buf, len, 0, (uint64_t)off, false);
}

struct mrt_op *mrt__op_start_read(struct mrt_op *op, unsigned flags, int fd, void *buf, uint32_t len, int64_t off)
{
	if (mrt__unlikely(off < 0))
		return start_current(op, MRT__OP_READ, MRT__OPCODE_READ, MRT__OPCODE_READ_FIXED, flags, fd, buf, len, off);
	return start_simple(op, MRT__OP_READ, MRT__OPCODE_READ, MRT__OPCODE_READ_FIXED, flags | FILE_RW, fd, buf, len, 0,
			    (uint64_t)off, false);
}

struct mrt_op *mrt__op_start_write(struct mrt_op *op, unsigned flags, int fd, const void *buf, uint32_t len, int64_t off)
{
	if (mrt__unlikely(off < 0))
		return start_current(op, MRT__OP_WRITE, MRT__OPCODE_WRITE, MRT__OPCODE_WRITE_FIXED, flags, fd, buf, len, off);
	return start_simple(op, MRT__OP_WRITE, MRT__OPCODE_WRITE, MRT__OPCODE_WRITE_FIXED, flags | FILE_RW, fd, buf, len, 0,
			    (uint64_t)off, false);
}

struct mrt_op *mrt__op_start_recv(struct mrt_op *pub, unsigned flags, int fd, void *buf, uint32_t len, uint32_t msg_flags)
{
	bool poll_first = msg_flags == 0 && may_poll_first(mrt__worker_self, mrt__op_of(pub), fd);

	return start_simple(pub, MRT__OP_RECV, MRT__OPCODE_RECV, MRT__OPCODE_RECV, flags, fd, buf, len, msg_flags, 0, poll_first);
}

struct mrt_op *mrt__op_start_send(struct mrt_op *op, unsigned flags, int fd, const void *buf, uint32_t len, uint32_t msg_flags)
{
	return start_simple(op, MRT__OP_SEND, MRT__OPCODE_SEND, MRT__OPCODE_SEND, flags, fd, buf, len, msg_flags, 0, false);
}

void mrt__op_submit_close(struct mrt__worker *w, struct mrt__op *op, int fd)
{
	op->raw = 0;
	op->io = (struct mrt__ring_args){ .opcode = MRT__OPCODE_CLOSE, .fd = fd };
	op->ring = w->index;
	if (w->queued_head || try_stage(w, op) != STAGED)
		(void)enqueue_unstaged(w, op); /* it has no buffer */
}

/*
 * An op that had its turn before is over without the kernel: its file was closed, its buffer freed, or there is nothing
 * left to read.
 */
static void finish_unstaged(struct mrt__op *op, int ret)
{
	int64_t raw = ret == -EBADF ? -ECANCELED : ret; /* the file's close cancels what is on it */

	op->rflags |= MRT__OPR_TERMINAL;
	if (raw == -ECANCELED)
		op->rflags |= MRT__OPR_STOPPED;
	if (op->flags & MRT__OPF_ALL && op->raw > 0) {
		if (raw < 0) {
			op->rflags |= MRT__OPR_PARTIAL;
			op->io.len = (uint32_t)-raw;
		}
		raw = op->raw;
	}
	mrt__op_finish(op, raw);
}

void mrt__worker_resubmit(struct mrt__worker *w)
{
	struct mrt__op *op;
	int ret;

	while ((op = w->queued_head) != NULL) {
		struct mrt__op *next = op->done_next;

		ret = try_stage(w, op);
		if (ret == NO_ROOM)
			return;
		op->rflags &= (uint8_t)~MRT__OPR_QUEUED;
		release_buffers(w, op, op->io.addr); /* the queue's hold */
		w->queued_head = next;
		if (!next)
			w->queued_tail = NULL;
		mrt__stat_set(&w->stats->queued, --w->queued_nr);
		if (ret <= 0)
			finish_unstaged(op, ret);
	}
}

/* Take an op out of the queue of unstaged ops; false: not there. */
static bool unqueue(struct mrt__worker *w, struct mrt__op *op)
{
	struct mrt__op **link, *prev = NULL;

	for (link = &w->queued_head; *link && *link != op; link = &(*link)->done_next)
		prev = *link;
	if (!*link)
		return false;
	*link = op->done_next;
	if (w->queued_tail == op)
		w->queued_tail = prev;
	op->rflags &= (uint8_t)~MRT__OPR_QUEUED;
	release_buffers(w, op, op->io.addr); /* the queue's hold */
	mrt__stat_set(&w->stats->queued, --w->queued_nr);
	return true;
}

/*
 * Stage an op's next step, or queue it; it keeps its place in the task's list.
 *
 * @param held  the last step's buffers are held, at `addr`: they are released when this one's are, so that a block which was
 *              freed meanwhile is nobody else's in between
 * @return false: it was over, and is finished
 */
static bool restage(struct mrt__worker *w, struct mrt__op *op, bool held, uint64_t addr)
{
	int ret = try_stage(w, op);

	mrt__stat_add(&w->stats->retries, 1);
	if (ret == NO_ROOM)
		ret = enqueue_unstaged(w, op);
	if (held)
		release_buffers(w, op, addr);
	if (ret <= 0)
		finish_unstaged(op, ret);
	return ret > 0;
}

/* An _all or _exact form moved `res` bytes: is there more to do? */
static bool advance_all(struct mrt__op *op, int32_t res)
{
	op->raw += res;
	if (res == 0 || (uint32_t)res >= op->io.len)
		return false;
	op->io.addr += (uint32_t)res;
	op->io.len -= (uint32_t)res;
	if (op->io.off != (uint64_t)-1 && (op->kind == MRT__OP_READ || op->kind == MRT__OP_WRITE))
		op->io.off += (uint32_t)res;
	return true;
}

/*
 * Was an op refused for the rung that it was given? Then the next lower one: the ordinary ring, the plain opcode (files
 * without read_iter take no fixed buffers).
 */
static bool lower_rung(struct mrt__worker *w, struct mrt__op *op, bool polled)
{
	if (polled) {
		if (op->flags & MRT__OPF_FILE && !w->file_use[mrt__handle_slot(op->io.fd)].closing)
			mrt__file_unpoll(w, op->io.fd, -EOPNOTSUPP);
		return op->flags & MRT__OPF_FILE;
	}
	if (!mrt__op_is_rw(op) || op->io.buf_index == NO_FIXED || !needs_hold(w, op))
		return false;
	op->io.buf_index = NO_FIXED;
	return true;
}

static inline bool is_passthrough(const struct mrt__worker *w, int handle)
{
	return w->file_use[mrt__handle_slot(handle)].flags & MRT_FILE_PASSTHROUGH;
}

/*
 * Was a command refused for its registered buffer? Kernel 6.1 maps such a buffer from where the data begin to the end of
 * the registration, and refuses it if that is long or lies in large pages. A read or write has nothing else that could be
 * invalid, so that the file goes without from now on; a command of the caller's is tried without this once.
 */
static bool lower_buffer(struct mrt__worker *w, struct mrt__op *op)
{
	const struct mrt_nvme_cmd *cmd = (const struct mrt_nvme_cmd *)(uintptr_t)op->io.addr;
	const void *data = cmd;

	if (!(op->flags & MRT__OPF_FILE) || op->io.buf_index == NO_FIXED || !is_passthrough(w, op->io.fd))
		return false;
	if (op->kind == MRT__OP_NVME_CMD)
		data = cmd->data;
	else if (op->kind != MRT__OP_READ && op->kind != MRT__OP_WRITE)
		return false;
	if (!mrt__arena_has(&w->arena, data) || w->file_use[mrt__handle_slot(op->io.fd)].unfixed)
		return false;
	op->io.buf_index = NO_FIXED;
	if (op->kind != MRT__OP_NVME_CMD)
		mrt__file_unfix(w, op->io.fd, -EINVAL);
	return true;
}

/* Errors that are the runtime's to deal with, not the task's. @return true: it is to be staged again */
static bool may_retry(struct mrt__worker *w, struct mrt__op *op, int32_t res, bool polled)
{
	if (op->rflags & MRT__OPR_STOPPED || mrt__nvme_has_status(op))
		return false;
	if (res == -EOPNOTSUPP)
		return lower_rung(w, op, polled);
	if (res == -EINVAL)
		return lower_buffer(w, op);
	/* a close cancels by the open file, which another handle may have, too; and so does each time that it is sent again */
	if (res == -ECANCELED && op->flags & MRT__OPF_FILE &&
	    (!(op->rflags & MRT__OPR_RETRIED) || mrt__cancels_may_hit(w))) {
		op->rflags |= MRT__OPR_RETRIED;
		return true;
	}
	if (op->rflags & MRT__OPR_RETRIED)
		return false;
	if (!(op->flags & MRT__OPF_RETRY) || (res != -EAGAIN && res != -EINTR))
		return false;
	/*
	 * A request that io-wq was told to stop ends with -EINTR, too. A cancel that this ring has seen set RETRIED, so
	 * it is not undone here; one that is still in the mailbox finds the second try. Positional file I/O only.
	 */
	op->rflags |= MRT__OPR_RETRIED;
	if (!polled)
		op->io.sqe_flags |= MRT__RING_SQE_ASYNC; /* io-wq may block where the first try said it would have to */
	return true;
}

/* With errors, further steps, and what it held. */
static __attribute__((noinline)) bool step_slow(struct mrt__worker *w, struct mrt__op *op, int32_t res)
{
	bool polled = op->rflags & MRT__OPR_POLLED, held = op->rflags & MRT__OPR_HELD;
	uint64_t addr = op->io.addr;
	int64_t raw;

	if (mrt__unlikely(op->rflags & MRT__OPR_STOPPED))
		mrt__cancels_drop(w, op);
	if (mrt__unlikely(polled)) {
		w->polled_inflight--;
		op->rflags &= (uint8_t)~MRT__OPR_POLLED;
	}
	if (held) {
		if (op->flags & MRT__OPF_FILE && mrt__unlikely(is_passthrough(w, op->io.fd)))
			res = mrt__nvme_end(op, res, w->extra);
		op->rflags &= (uint8_t)~MRT__OPR_HELD;
		release_files(w, op);
	}
	raw = res;
	mark_written(op, res);
	if (mrt__unlikely(res < 0)) {
		if (may_retry(w, op, res, polled))
			return !restage(w, op, held, addr);
		if (op->flags & MRT__OPF_ALL && op->raw > 0) {
			op->rflags |= MRT__OPR_PARTIAL;
			op->io.len = (uint32_t)-res;
			raw = op->raw;
		}
	} else if (mrt__unlikely(op->flags & MRT__OPF_ALL)) {
		bool more = advance_all(op, res);

		/* A cancel that found this step completed would not find the next: it is staged before it. */
		if (more && !(op->rflags & MRT__OPR_STOPPED))
			return !restage(w, op, held, addr);
		if (more) {
			op->rflags |= MRT__OPR_PARTIAL;
			op->io.len = ECANCELED;
		}
		raw = op->raw;
	}
	if (mrt__unlikely(op->rflags & MRT__OPR_TIMED) || mrt__listens(op_complete))
		note_complete(w, op, raw);
	if (held)
		release_buffers(w, op, addr);
	op->rflags |= MRT__OPR_TERMINAL;
	return finish(w, op, raw, false);
}

/* Of an op with one buffer and one file, or less. @return false: nothing was done; step_slow() deals with it */
static inline bool release_simple(struct mrt__worker *w, struct mrt__op *op)
{
	if (mrt__unlikely(op->flags & (MRT__OPF_IOV | MRT__OPF_OUT | MRT__OPF_FILE2)))
		return false;
	if (op->flags & MRT__OPF_FILE) {
		struct mrt__file_use *u = &w->file_use[mrt__handle_slot(op->io.fd)];

		if (mrt__unlikely(u->closing || u->flags & MRT_FILE_PASSTHROUGH))
			return false;
		u->inflight--;
	}
	if (op->flags & MRT__OPF_BUF && mrt__arena_has(&w->arena, (const void *)(uintptr_t)op->io.addr))
		mrt__arena_release(&w->arena, op->io.addr);
	op->rflags &= (uint8_t)~MRT__OPR_HELD;
	return true;
}

/* What makes an end more than a few stores: see deliver() for the second and third. */
#define SLOW_FLAGS (MRT__OPF_ALL | MRT__OPF_OWNS_MEM)
#define SLOW_RFLAGS (MRT__OPR_POLLED | MRT__OPR_TIMED | MRT__OPR_TERMINAL | MRT__OPR_STOPPED)
#define SLOW_HFLAGS (MRT__OPH_MSG | MRT__OPH_DEADLINE)

/*
 * Most I/O: it succeeded, nothing stands behind it, and its task rests here. As finish_kept() and deliver(), without what
 * cannot be of such an op.
 *
 * @return true: the task was made runnable
 */
static inline __attribute__((always_inline)) bool finish_simple(struct mrt__worker *w, struct mrt_task *t, struct mrt__op *op,
								int32_t res)
{
	mrt__assert_slow(op->task == t && mrt__task_rests_at(t, w->index));
	mrt__op_unlink(op);
	op->res = res;
	op->state = MRT__OP_DONE;
	if (mrt__likely(op->hflags & MRT__OPH_AWAITED)) {
		op->hflags &= (uint8_t)~MRT__OPH_AWAITED;
		if (mrt__likely(t->await_nr > 0))
			t->await_nr--;
	}
	if (t->await_nr > 0)
		return false;
	mrt__task_set_place(t, w->index);
	mrt__worker_push_woken(w, t);
	return true;
}

static inline __attribute__((always_inline)) bool step(struct mrt__worker *w, struct mrt__op *op, int32_t res)
{
	const uint64_t slow_what = mrt__op_what(0xff, 0, SLOW_FLAGS);
	struct mrt_task *t = op->task;

	w->inflight--;
	w->credits += !!(op->flags & MRT__OPF_CREDIT);
	/* who listens to op_complete has every op timed that is staged from then on */
	if (mrt__unlikely((op->what & slow_what) != mrt__op_what(MRT__OP_INFLIGHT, 0, 0) || op->rflags & SLOW_RFLAGS || res < 0)) {
		mrt__assert(op->state == MRT__OP_INFLIGHT && !(op->rflags & MRT__OPR_TERMINAL));
		return step_slow(w, op, res);
	}
	if (op->rflags & MRT__OPR_HELD) {
		if (mrt__unlikely(!release_simple(w, op)))
			return step_slow(w, op, res);
	}
	if (op->kind == MRT__OP_RECV)
		learn_recv(w, op);
	mark_written(op, res);
	/* a task that rests is ours, its place has our index: what is its holder's is ours only then */
	if (mrt__likely(mrt__task_rests(t) && !(t->flags & MRT__TASKF_RETURNED) && !(op->hflags & SLOW_HFLAGS)))
		return finish_simple(w, t, op, res);
	op->rflags |= MRT__OPR_TERMINAL;
	return finish(w, op, res, false);
}

/* ---- reap ---- */

/*
 * The kernel has copied the data of a whole batch since these lines were last touched, so most of them have left the
 * nearer caches. Cells are 32-byte aligned: op and header may each begin in the middle of a line.
 */
static inline void prefetch_ops(const struct mrt__ring_done *done, unsigned nr)
{
	unsigned i;

	for (i = 0; i < nr; i++) {
		__builtin_prefetch(done[i].user, 1);
		__builtin_prefetch((char *)done[i].user + 64, 1);
	}
}

unsigned mrt__op_reap(struct mrt__worker *w, struct mrt__ring *ring, unsigned room)
{
	struct mrt__ring_done done[REAP_BATCH];
	unsigned events = 0, used = 0, max, nr, i;

	do {
		max = mrt__min(REAP_BATCH, room - used);
		nr = mrt__ring_reap(ring, done, max, &events);
		prefetch_ops(done, nr);
		for (i = 0; i < nr; i++) {
			if (i + MRT__OP_PREFETCH_AHEAD < nr)
				mrt__op_prefetch_task(done[i + MRT__OP_PREFETCH_AHEAD].user);
			if (mrt__unlikely(w->big))
				w->extra = mrt__ring_extra(ring, i);
			used += step(w, done[i].user, done[i].res);
		}
	} while (nr == max && used < room); /* fewer: that was all */
	if (mrt__unlikely(events & MRT__RING_EVENT_SENTRY))
		mrt__sentry_on_timer(w);
	return used;
}

/* ---- deliver ---- */

/* The kernel's codes for "stopped by a cancel", where a cancel was asked for. */
static int32_t map_error(const struct mrt__op *op, int64_t raw)
{
	/* its task asked, or closed its file */
	bool asked = op->hflags & MRT__OPH_CANCELLED || op->rflags & MRT__OPR_STOPPED;

	/* nobody asked: io-wq gives up what it has no thread for, and can start none (RLIMIT_NPROC) */
	if (raw == -ECANCELED && op->flags & MRT__OPF_RING && !asked)
		return -EAGAIN;
	/* io-wq says -EINTR; a first try that was not sent on to io-wq because of the cancel says -EAGAIN */
	bool stopped = raw == -ECANCELED || raw == -RESTARTSYS ||
		       (asked && (raw == -EINTR || (raw == -EAGAIN && op->flags & MRT__OPF_RETRY)));

	if (!stopped)
		return (int32_t)raw;
	return op->hflags & MRT__OPH_TIMEDOUT ? -ETIMEDOUT : -ECANCELED;
}

/* Nobody will see this result: undo what it took. */
static void drop_result(struct mrt__op *op)
{
	if (op->raw < 0)
		return;
	if (op->flags & MRT__OPF_OPENS_FD)
		(void)close((int)op->raw); /* nobody is left to tell */
	else if (op->flags & MRT__OPF_WAIT && op->wait.cls->orphan)
		op->wait.cls->orphan(op);
}

/* The op's deadline stands behind it in the list. @return false: it has fired, and must be popped first */
static bool settle_deadline(struct mrt__op *op)
{
	struct mrt__op *d = op->next;

	mrt__assert(d && d->kind == MRT__OP_DEADLINE);
	if (!mrt__worker_timer_cancel(op->task->sched, d)) {
		op->hflags |= MRT__OPH_HELD;
		return false;
	}
	mrt__op_unlink(d);
	mrt__op_set_done(d, -ECANCELED);
	op->hflags &= (uint8_t)~MRT__OPH_DEADLINE;
	return true;
}

/* Has the ring's owner consumed our cancel message? If not, it pushes the op again when it does. */
static bool settle_message(struct mrt__op *op)
{
	unsigned old = MRT__OP_MSG_SENT;

	/* [OP.msg.wait] pairs with [OP.msg.consume]: exactly one of us sees the other's store; relaxed on failure would
	 * do for the value, acquire because the owner's last accesses to the op must be over before it is delivered */
	return !atomic_compare_exchange_strong_explicit(&op->msg, &old, MRT__OP_MSG_WAITING, memory_order_acq_rel,
							memory_order_acquire);
}

/* The target of a deadline that has fired: end it, or deliver it if that is all that was missing. */
static void deadline_fired(struct mrt_task *t, struct mrt__op *d)
{
	struct mrt__op *target = mrt__op_of(((struct mrt_timer *)(void *)d)->mrt__target);

	target->hflags &= (uint8_t)~MRT__OPH_DEADLINE;
	if (target->hflags & MRT__OPH_HELD) {
		target->hflags &= (uint8_t)~MRT__OPH_HELD;
		mrt__op_deliver(t, target);
	} else {
		mrt__op_cancel(target, MRT__OPH_TIMEDOUT);
	}
}

/* With everything that may stand behind a result. */
static __attribute__((noinline)) void deliver_slow(struct mrt_task *t, struct mrt__op *op)
{
	if (op->hflags & MRT__OPH_MSG && !settle_message(op))
		return;
	op->hflags &= (uint8_t)~MRT__OPH_MSG;
	if (op->hflags & MRT__OPH_DEADLINE && !settle_deadline(op))
		return;
	if (t->flags & MRT__TASKF_RETURNED)
		drop_result(op);
	if (op->kind == MRT__OP_JOIN && !(op->rflags & MRT__OPR_UNDONE))
		mrt__task_unref(op->wait.object); /* the join has consumed the handle */
	release_inputs(op);
	mrt__op_unlink(op);
	if (op->hflags & MRT__OPH_AWAITED && t->await_nr > 0)
		t->await_nr--;
	op->hflags &= (uint8_t)~MRT__OPH_AWAITED;
	if (op->rflags & MRT__OPR_PARTIAL)
		op->why = map_error(op, -(int64_t)op->io.len);
	if (op->raw == -EINVAL && op->flags & MRT__OPF_RING)
		mrt__file_explain_einval(op);
	if (op->kind == MRT__OP_DEADLINE) {
		mrt__op_set_done(op, op->raw);
		deadline_fired(t, op);
		return;
	}
	/* what an object or a task gave is a value, whatever it looks like; the kernel's codes are translated */
	if (op->raw < 0 && (op->flags & MRT__OPF_RING || op->rflags & MRT__OPR_UNDONE))
		op->raw = map_error(op, op->raw);
	if (op->kind == MRT__OP_JOIN && op->rflags & MRT__OPR_UNDONE)
		op->why = (int32_t)op->raw;
	mrt__op_set_done(op, op->raw);
}

/* Most results have nothing behind them, and are delivered in a few stores. */
static inline void deliver(struct mrt_task *t, struct mrt__op *op)
{
	mrt__assert(op->state == MRT__OP_INFLIGHT && op->task == t);
	if (mrt__unlikely(!mrt__op_is_plain(t, op))) {
		deliver_slow(t, op);
		return;
	}
	if (op->kind == MRT__OP_JOIN)
		mrt__task_unref(op->wait.object); /* as above */
	mrt__op_deliver_plain(t, op);
}

void mrt__op_deliver(struct mrt_task *t, struct mrt__op *op)
{
	deliver(t, op);
}

/* ---- cancel ---- */

static void cancel_ring_op(struct mrt__worker *w, struct mrt__op *op)
{
	struct mrt__worker *owner = w->sched->workers[op->ring];

	if (mrt__likely(owner == w)) {
		mrt__op_cancel_on_owner(w, op);
		return;
	}
	op->hflags |= MRT__OPH_MSG;
	/* relaxed: the mailbox push publishes it */
	atomic_store_explicit(&op->msg, MRT__OP_MSG_SENT, memory_order_relaxed);
	mrt__mailbox_push(owner, op);
}

void mrt__op_cancel_on_owner(struct mrt__worker *w, struct mrt__op *op)
{
	if (op->rflags & MRT__OPR_TERMINAL)
		return;
	if (op->rflags & MRT__OPR_QUEUED) {
		bool found = unqueue(w, op);

		mrt__assert(found);
		op->rflags |= MRT__OPR_TERMINAL;
		if (op->flags & MRT__OPF_ALL && op->raw > 0) {
			op->rflags |= MRT__OPR_PARTIAL;
			op->io.len = ECANCELED;
			mrt__op_finish(op, op->raw);
		} else {
			mrt__op_finish(op, -ECANCELED);
		}
		return;
	}
	if (op->rflags & MRT__OPR_STOPPED)
		return; /* the close of its handle was first */
	/* positional file I/O may be tried again after -EINTR: not after a cancel that we know of */
	op->rflags |= MRT__OPR_RETRIED | MRT__OPR_STOPPED;
	if (op->rflags & MRT__OPR_POLLED)
		return; /* a polled ring cancels nothing: the device ends it */
	mrt__stat_add(&w->stats->cancels, 1);
	mrt__ring_cancel(w->ring, op);
	mrt__cancels_add(w, op);
}

/* Ask an op to end. @thread the holder @return true: it was taken out, and nobody else completes it */
static inline __attribute__((always_inline)) bool ask_to_end(struct mrt__op *op, unsigned reason_flag)
{
	struct mrt__worker *w = mrt__worker_self;

	if (op->state != MRT__OP_INFLIGHT || op->hflags & (MRT__OPH_CANCELLED | MRT__OPH_HELD))
		return false;
	if (op->kind == MRT__OP_CLOSE || op->kind == MRT__OP_CLOSE_FILE || op->kind == MRT__OP_UNREGISTER)
		return false; /* it ends by itself, and a descriptor that is not closed is lost */
	op->hflags |= (uint8_t)(MRT__OPH_CANCELLED | reason_flag);
	mrt__fire(op_cancel, w->index, mrt__arg(op), reason_flag == MRT__OPH_TIMEDOUT);
	if (op->kind == MRT__OP_SLEEP) {
		if (!mrt__worker_timer_cancel(w->sched, op))
			return false;
	} else if (op->flags & MRT__OPF_RING) {
		cancel_ring_op(w, op);
		return false;
	} else if (!(op->flags & MRT__OPF_WAIT) || !op->wait.cls->cancel(op)) {
		return false; /* also: a deadline ends with its op */
	}
	op->rflags |= MRT__OPR_UNDONE;
	return true;
}

/* As if somebody else had completed it: the task is held, so it goes through the done stack, and whoever walks the task's
 * list is not surprised. */
void mrt__op_cancel(struct mrt__op *op, unsigned reason_flag)
{
	if (ask_to_end(op, reason_flag))
		mrt__op_finish(op, -ECANCELED);
}

/* ---- the public half ---- */

bool mrt_op_is_done(const struct mrt_op *pub)
{
	const struct mrt__op *op = (const struct mrt__op *)(const void *)pub;

	return op->state == MRT__OP_DONE;
}

void mrt_cancel(struct mrt_op *pub)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w = mrt__worker_self;

	if (op->state != MRT__OP_INFLIGHT)
		return;
	if (mrt__unlikely(!w || op->task != w->task))
		mrt__bug("mrt_cancel: op %p (%s) belongs to another task", (void *)op, mrt__op_kind_name(op->kind));
	if (!ask_to_end(op, 0))
		return;
	/* the task runs, so it walks no list of ops: nothing need be stacked for it */
	if (mrt__unlikely(op->hflags & MRT__OPH_DEADLINE || op->kind == MRT__OP_JOIN)) {
		op->raw = -ECANCELED;
		deliver_slow(op->task, op);
		return;
	}
	mrt__op_unlink(op);
	op->hflags &= (uint8_t)~MRT__OPH_AWAITED;
	mrt__op_set_done(op, -ECANCELED);
}

struct mrt_op *mrt_nop(struct mrt_op *pub)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w = mrt__op_begin(op, MRT__OP_NOP, MRT__OPF_CREDIT);

	if (!w)
		return pub;
	op->raw = 0;
	op->io = (struct mrt__ring_args){ .opcode = MRT__OPCODE_NOP, .fd = -1 };
	return mrt__op_submit(w, op);
}

void mrt_flush(void)
{
	struct mrt__worker *w = mrt__worker_self;

	if (w && w->task)
		mrt__worker_flush(w);
}
