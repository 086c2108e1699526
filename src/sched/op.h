/* SPDX-License-Identifier: MIT */
/*
 * The private side of struct mrt_op.
 *
 * Who may touch what. "Holder" is who has the task (task.h). "Completer" is whoever sees the op's terminal event: the reaping worker, a wheel's driver, a pool thread, another task. "Ring owner" is the worker `ring`.
 *
 *	field            who, when
 *	res, why, state  holder; while a cancel message is under way `res` is the ring owner's mailbox link; while the ring's
 *	                 owner has the op in its list of cancels (cancels.h) `why` is its place there
 *	kind, flags      set at start, before anybody else can see the op; then read by all
 *	hflags           holder, also in flight
 *	next, pprev      holder: the task's list of ops in flight
 *	task             set at start, read by the completer and the ring owner
 *	raw              while in flight: the ring owner's (bytes moved so far; splice: fd_in); then the completer's result
 *	done_next        completer: link of the task's done stack; before that the ring owner's queue of ops not yet staged,
 *	                 then when it was staged, if it is timed
 *	ring, rflags     ring owner
 *	msg              holder and ring owner, atomic: the cancel message
 *	io, timer, wait  the starter; then whoever the kind says
 *
 * The completer writes raw (mrt__op_finish). If it becomes the task's holder by that, it delivers: unlinks, sets res; else
 * it pushes the op on the task's done stack, and the holder pops and delivers it. Then it touches neither op nor frame
 * again. In flight until delivered.
 */
#ifndef MRT_SCHED_OP_H
#define MRT_SCHED_OP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/op.h>

#include "ring/ring.h"
#include "timer/wheel.h"

struct mrt_task;
struct mrt__op;
struct mrt__worker;

enum mrt__op_state {
	MRT__OP_IDLE = 0,       /* the caller's; never started. -> INFLIGHT, DONE (bad argument, inline completion) */
	MRT__OP_INFLIGHT = 1,   /* the runtime's. -> DONE, at delivery only */
	MRT__OP_DONE = 2,       /* the caller's; res valid. -> INFLIGHT, DONE (started again) */
	MRT__OP_STATES_NR
};

/* What kind of op, for cancel, delivery and names. X(NAME, "name") */
#define MRT__OP_KINDS(X)                                                                                               \
	X(NONE, "none") X(NOP, "nop") X(YIELD, "yield") X(READ, "read") X(WRITE, "write") X(READV, "readv")            \
	X(WRITEV, "writev") X(OPEN, "open") X(CLOSE, "close") X(FSYNC, "fsync") X(FDATASYNC, "fdatasync")              \
	X(FALLOCATE, "fallocate") X(FTRUNCATE, "ftruncate") X(STATX, "statx") X(UNLINK, "unlink")                      \
	X(RENAME, "rename") X(MKDIR, "mkdir") X(FADVISE, "fadvise") X(SPLICE, "splice") X(POLL, "poll_fd")             \
	X(SOCKET, "socket") X(ACCEPT, "accept") X(CONNECT, "connect") X(RECV, "recv") X(SEND, "send")                  \
	X(SHUTDOWN, "shutdown") X(NVME_CMD, "nvme_command") X(NVME_IDENTIFY, "nvme_identify")                          \
	X(SLEEP, "sleep") X(DEADLINE, "deadline") X(JOIN, "join") X(SCOPE, "scope")                                    \
	X(BLOCKING, "blocking") X(ONESHOT, "oneshot_recv") X(NOTIFY, "notify_wait")                                    \
	X(SEMAPHORE, "semaphore_acquire") X(CHANNEL_SEND, "channel_send") X(CHANNEL_RECV, "channel_recv")             \
	X(CLOSE_FILE, "close") X(UNREGISTER, "file_unregister")

enum mrt__op_kind {
#define MRT__X(NAME, name) MRT__OP_##NAME,
	MRT__OP_KINDS(MRT__X)
#undef MRT__X
	MRT__OP_KINDS_NR,
	/* from here on: kinds that go through no ring, and that other workers may complete */
	MRT__OP_KINDS_SHARED = MRT__OP_SLEEP,
	/* from here on: kinds that threads outside may complete, too */
	MRT__OP_KINDS_OUTSIDE = MRT__OP_BLOCKING
};

/* flags: set by the starter before anybody else can see the op, then read by all */
#define MRT__OPF_SHIELDED (1u << 0)     /* an abort leaves it alone */
#define MRT__OPF_RING (1u << 1)         /* goes through a ring: io is valid */
#define MRT__OPF_ALL (1u << 2)          /* _all, _exact: go on after a short result */
#define MRT__OPF_CREDIT (1u << 3)       /* ends by itself: takes a credit */
#define MRT__OPF_OPENS_FD (1u << 4)     /* the result is a descriptor, to be closed if nobody takes it */
#define MRT__OPF_OWNS_MEM (1u << 5)     /* io.addr was malloc'ed for it (a path) */
#define MRT__OPF_WAIT (1u << 6)         /* wait is valid */
#define MRT__OPF_RETRY (1u << 7)        /* -EAGAIN may be tried again through io-wq (files, not NOWAIT) */
#define MRT__OPF_BUF (1u << 8)          /* io.addr, io.len is the caller's buffer, which may lie in the arena */
#define MRT__OPF_IOV (1u << 9)          /* io.addr, io.len is an array of such buffers */
#define MRT__OPF_OUT (1u << 10)         /* the kernel writes elsewhere: see outputs_of() */
#define MRT__OPF_FILE (1u << 11)        /* io.fd is a handle, see files.h */
#define MRT__OPF_FILE2 (1u << 12)       /* ... and so is the second descriptor: see second_fd() */
#define MRT__OPF_DIRFD (1u << 13)       /* the descriptor is a directory's, which no ring takes from its table */

/* hflags: the holder's alone, also in flight */
#define MRT__OPH_AWAITED (1u << 0)      /* the current await counts it */
#define MRT__OPH_CANCELLED (1u << 1)    /* cancel was asked for */
#define MRT__OPH_TIMEDOUT (1u << 2)     /* ... by its deadline */
#define MRT__OPH_DEADLINE (1u << 3)     /* has one: the next op in the task's list */
#define MRT__OPH_HELD (1u << 4)         /* finished, but its deadline has fired and not been popped */
#define MRT__OPH_MSG (1u << 5)          /* a cancel message was sent */

/* rflags: the ring owner's */
#define MRT__OPR_TERMINAL (1u << 0)     /* finished: a cancel message that comes now finds nothing to do */
#define MRT__OPR_QUEUED (1u << 1)       /* in the ring owner's queue, not staged */
#define MRT__OPR_RETRIED (1u << 2)      /* was sent to io-wq once */
#define MRT__OPR_PARTIAL (1u << 3)      /* raw = bytes moved; io.len = errno that ended it */

#define MRT__OPR_UNDONE (1u << 4)       /* no ring op; the holder's: it was cancelled before anything was done */
#define MRT__OPR_STOPPED (1u << 5)      /* the kernel was asked to cancel it: no further step of an _all form */
#define MRT__OPR_HELD (1u << 6)         /* counted at its file, or at its buffers' place in the arena */
#define MRT__OPR_POLLED (1u << 7)       /* on the polled ring */
#define MRT__OPR_TIMED (1u << 4)        /* a ring op (the others have UNDONE there): done_next holds when it was staged */

/* In the bits above: the worker's clock when the op began, as in mrt__meter.stamp. Gone once there is a message. */
enum mrt__op_msg {
	MRT__OP_MSG_NONE = 0,
	MRT__OP_MSG_SENT = 1,           /* in the ring owner's mailbox. -> CONSUMED by it, WAITING by the holder */
	MRT__OP_MSG_CONSUMED = 2,
	MRT__OP_MSG_WAITING = 3,        /* the holder has popped the op: the owner pushes it again when it consumes */
};

/* What an object (a channel, a join, a scope, the pool) does for the ops that wait in it. */
struct mrt__wait_class {
	/*
	 * Take a waiting op out. Called by the holder of the op's task.
	 * true: it will not be completed by anybody else; the caller finishes it with -ECANCELED.
	 * false: a completer has it, or it will be finished later (a scope, a call that has begun).
	 */
	bool (*cancel)(struct mrt__op *op);
	/*
	 * The op completed with raw >= 0 after its task had returned, so nobody will see the result: pass on what it
	 * took (permits, a notification). NULL: nothing to do. Called by the holder.
	 */
	void (*orphan)(struct mrt__op *op);
};

/* An op that waits in an object. The links are the object's, under its lock. */
struct mrt__op_wait {
	const struct mrt__wait_class *cls;
	void *object;
	struct mrt__op *next;
	struct mrt__op **pprev;         /* NULL: not linked */
};

struct __attribute__((may_alias)) mrt__op {
	int64_t res;
	union {
		struct {
			int32_t why;
			uint8_t state;          /* enum mrt__op_state */
			uint8_t kind;           /* enum mrt__op_kind */
			uint16_t flags;         /* MRT__OPF_* */
		};
		uint64_t what;                  /* the four in one: mrt__op_what() */
	};
	struct mrt_task *task;
	struct mrt__op *done_next;
	struct mrt__op *next;
	struct mrt__op **pprev;
	int64_t raw;
	union {
		struct {
			uint16_t ring;
			uint8_t rflags;         /* MRT__OPR_* */
			uint8_t hflags;         /* MRT__OPH_* */
			atomic_uint msg;        /* enum mrt__op_msg */
		};
		uint64_t where;                 /* the four in one: mrt__op_where() */
	};
	union {
		struct mrt__ring_args io;
		struct mrt__wheel_entry timer;
		struct mrt__op_wait wait;
	};
};
_Static_assert(sizeof(struct mrt__op) == sizeof(struct mrt_op) && sizeof(struct mrt_op) <= 96, "design: an op is 96 B");
_Static_assert(offsetof(struct mrt__op, io) == 64, "design: the completion path touches the first 64 bytes");
_Static_assert(offsetof(struct mrt__op, res) == offsetof(struct mrt_op, res), "visible fields");
_Static_assert(offsetof(struct mrt__op, why) == offsetof(struct mrt_op, why), "visible fields");

/* Fields that are written or looked at together, in one word: a start and an end of an op are many small stores. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MRT__OP_PACK(low32, byte4, byte5, high16) \
	((uint64_t)(uint32_t)(low32) | (uint64_t)(byte4) << 32 | (uint64_t)(byte5) << 40 | (uint64_t)(high16) << 48)
#define MRT__OP_PACK_LAST(low16, byte2, byte3, high32) \
	((uint64_t)(low16) | (uint64_t)(byte2) << 16 | (uint64_t)(byte3) << 24 | (uint64_t)(high32) << 32)
#else
#define MRT__OP_PACK(low32, byte4, byte5, high16) \
	((uint64_t)(uint32_t)(low32) << 32 | (uint64_t)(byte4) << 24 | (uint64_t)(byte5) << 16 | (uint64_t)(high16))
#define MRT__OP_PACK_LAST(low16, byte2, byte3, high32) \
	((uint64_t)(low16) << 48 | (uint64_t)(byte2) << 40 | (uint64_t)(byte3) << 32 | (uint64_t)(high32))
#endif

/* For op->what: why is 0. */
static inline uint64_t mrt__op_what(enum mrt__op_state state, unsigned kind, unsigned flags)
{
	return MRT__OP_PACK(0, state, kind, flags);
}

/* For op->where. */
static inline uint64_t mrt__op_where(uint16_t ring, unsigned rflags, unsigned hflags, uint32_t msg)
{
	return MRT__OP_PACK_LAST(ring, rflags, hflags, msg);
}

static inline struct mrt__op *mrt__op_of(struct mrt_op *op)
{
	return (struct mrt__op *)(void *)op;
}

static inline struct mrt_op *mrt__op_public(struct mrt__op *op)
{
	return (struct mrt_op *)(void *)op;
}

static inline bool mrt__op_is_vectored(const struct mrt__op *op)
{
	return op->kind == MRT__OP_READV || op->kind == MRT__OP_WRITEV;
}

/* A read or write of a file: what may be direct, polled, or a command. */
static inline bool mrt__op_is_rw(const struct mrt__op *op)
{
	return op->kind == MRT__OP_READ || op->kind == MRT__OP_WRITE || mrt__op_is_vectored(op);
}

/* "read", "sleep", ... */
extern const char *const mrt__op_kind_names[MRT__OP_KINDS_NR];

const char *mrt__op_kind_name(unsigned kind);

/**
 * Begin to start an op: checks the contract, links it into the running task's list, state INFLIGHT.
 *
 * @thread  the running task's worker
 * @param flags  MRT__OPF_* that hold from the start
 * @return NULL: it was completed at once (no task, task aborted, runtime closing): return the op to the caller; else
 *         the running task's worker, and the op must be handed to a completer or finished inline by the starter
 */
struct mrt__worker *mrt__op_begin(struct mrt__op *op, enum mrt__op_kind kind, unsigned flags);

/* Complete an op without beginning it: a bad argument. Aborts if it is in flight. */
struct mrt_op *mrt__op_refuse(struct mrt_op *op, enum mrt__op_kind kind, int64_t res);

/**
 * Hand a begun ring op (io filled) to the current worker's ring, or to its queue where credits or SQEs are missing.
 *
 * @thread  the holder
 */
struct mrt_op *mrt__op_submit(struct mrt__worker *w, struct mrt__op *op);

/**
 * Begin and submit an op on one buffer.
 *
 * @thread  the running task's worker
 * @param flags  MRT__OPF_ALL, or 0: what the other arguments do not say
 */
struct mrt_op *mrt__op_start_read(struct mrt_op *op, unsigned flags, int fd, void *buf, uint32_t len, int64_t off);
struct mrt_op *mrt__op_start_write(struct mrt_op *op, unsigned flags, int fd, const void *buf, uint32_t len, int64_t off);
struct mrt_op *mrt__op_start_recv(struct mrt_op *op, unsigned flags, int fd, void *buf, uint32_t len, uint32_t msg_flags);
struct mrt_op *mrt__op_start_send(struct mrt_op *op, unsigned flags, int fd, const void *buf, uint32_t len, uint32_t msg_flags);

/* Hand an op that ended a file's life to this worker's ring as a close of its descriptor. @thread the worker */
void mrt__op_submit_close(struct mrt__worker *w, struct mrt__op *op, int fd);

/**
 * Complete an op: publish its result, deliver it or push it on its task's done stack, make the task runnable if it was
 * waiting for that. Afterwards the op, its task and its frame may be gone. No lock of an object may be held.
 *
 * @thread    any; the caller is the op's only completer
 * @progress  lock-free but for the inject queue's lock when the caller is no worker of this runtime
 * @order     all that the caller did before is visible to the task after its await
 */
void mrt__op_finish(struct mrt__op *op, int64_t raw);

/* The same, by the end of a task, for a join: the task that joined goes behind what is queued. @thread worker w, not in a turn */
void mrt__op_finish_join(struct mrt__worker *w, struct mrt__op *op, int64_t raw);

/* A deadline's or cancel's common half: ask op to end, by whatever its kind needs. @thread the holder */
void mrt__op_cancel(struct mrt__op *op, unsigned reason_flag);

#endif
