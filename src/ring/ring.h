/* SPDX-License-Identifier: MIT */
/*
 * One io_uring, as the scheduler sees it. Narrow on purpose: tests/lib has a simulated ring behind the same functions,
 * chosen at link time. src/ring is the only folder that knows liburing and the kernel's structures.
 *
 * The ring never names a task: it is given a pointer (`user`, 8-aligned) with each op and hands it back once, with the
 * result, when the kernel has let go of the op.
 *
 * Threads: create and destroy by the builder; wake, sentry_arm and sentry_disarm by any thread while the ring exists;
 * all else by the worker that enabled the ring (asserted).
 */
#ifndef MRT_RING_RING_H
#define MRT_RING_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/runtime.h>
#include <martlet/stats.h>

struct mrt__ring;

/* The opcodes that Martlet uses; values are the kernel's (asserted in uring.c where its header knows them). */
enum mrt__opcode {
	MRT__OPCODE_NOP = 0,
	MRT__OPCODE_READV = 1,
	MRT__OPCODE_WRITEV = 2,
	MRT__OPCODE_FSYNC = 3,
	MRT__OPCODE_POLL_ADD = 6,
	MRT__OPCODE_ACCEPT = 13,
	MRT__OPCODE_CONNECT = 16,
	MRT__OPCODE_FALLOCATE = 17,
	MRT__OPCODE_OPENAT = 18,
	MRT__OPCODE_CLOSE = 19,
	MRT__OPCODE_STATX = 21,
	MRT__OPCODE_READ = 22,
	MRT__OPCODE_WRITE = 23,
	MRT__OPCODE_FADVISE = 24,
	MRT__OPCODE_SEND = 26,
	MRT__OPCODE_RECV = 27,
	MRT__OPCODE_SPLICE = 30,
	MRT__OPCODE_SHUTDOWN = 34,
	MRT__OPCODE_RENAMEAT = 35,
	MRT__OPCODE_UNLINKAT = 36,
	MRT__OPCODE_MKDIRAT = 37,
	MRT__OPCODE_SOCKET = 45,
	MRT__OPCODE_FTRUNCATE = 55,
	MRT__OPCODE_BIND = 56,          /* not used; came with the 64-bit lengths of FADVISE (6.11) */
};

#define MRT__RING_SQE_ASYNC (1u << 4) /* IOSQE_ASYNC: straight to io-wq */
#define MRT__RING_FSYNC_DATASYNC (1u << 0) /* op_flags of FSYNC */

/*
 * What an SQE is made of: the first 32 bytes of struct io_uring_sqe, but for buf_index, which stands where the SQE has
 * ioprio (always 0). `off` is off/addr2, `addr` is addr/splice_off_in, `op_flags` is the union of rw_flags, fsync_flags,
 * msg_flags, open_flags, accept_flags, poll32_events and the like.
 */
struct mrt__ring_args {
	uint8_t opcode;         /* enum mrt__opcode */
	uint8_t sqe_flags;      /* IOSQE_* */
	uint16_t buf_index;
	int32_t fd;
	uint64_t off;
	uint64_t addr;
	uint32_t len;
	uint32_t op_flags;
};
_Static_assert(sizeof(struct mrt__ring_args) == 32, "overlays a wheel entry in struct mrt_op");

struct mrt__ring_opts {
	uint32_t sq_entries;            /* power of two */
	uint32_t cq_entries;            /* power of two, >= sq_entries */
	uint32_t tier;                  /* best set-up to try: 0 DEFER_TASKRUN, 1 COOP_TASKRUN, 2 plain */
	struct mrt_worker_stats *stats; /* enters, sqes, cqes, cq_overflows, sq_staged are written here, by the owner */
};

/* A finished op. */
struct mrt__ring_done {
	void *user;
	int32_t res;
	uint32_t flags;                 /* CQE flags */
};

/* What a reap saw besides finished ops. */
#define MRT__RING_EVENT_WAKE (1u << 0)   /* somebody wrote the eventfd */
#define MRT__RING_EVENT_SENTRY (1u << 1) /* the sentry's timer went off */

/**
 * Create a ring, disabled where the kernel can, with the best flags that it grants.
 *
 * @thread  the builder
 * @param ret_why  [why_bytes] on failure: one sentence that says what to do
 * @return 0; -ENOSYS, -EPERM, -EOPNOTSUPP, -ENOMEM, -EMFILE, -EINVAL as mrt_runtime_create
 */
int mrt__ring_create(const struct mrt__ring_opts *opts, struct mrt__ring **ret_ring, char *ret_why, size_t why_bytes);

/**
 * Make the calling thread the ring's owner: enable, register the ring's descriptor, limit io-wq and keep it off this
 * CPU, arm the polls of the wake eventfd and the sentry's timerfd.
 *
 * @param cpu  the CPU that this thread is pinned to, -1: none
 * @return 0 or -errno; the ring may only be destroyed after a failure
 */
int mrt__ring_enable(struct mrt__ring *ring, int cpu);

/**
 * Before the owner ends: cancel our own polls and collect what the kernel still has to say.
 *
 * All ops must have been handed back. Bounded: about 1 s.
 *
 * @thread  the owner
 * @return 0, or -ETIMEDOUT: the ring may not be destroyed, it is left to the process
 */
int mrt__ring_drain(struct mrt__ring *ring);

/* Free the ring. NULL is ignored. @thread any, after drain, or if it was never enabled */
void mrt__ring_destroy(struct mrt__ring *ring);

/* In a child after fork: close the descriptors, touch nothing that is shared with the parent. */
void mrt__ring_abandon(struct mrt__ring *ring);

/**
 * Stage an op; it reaches the kernel with the next flush or wait, in order. Never enters the kernel.
 *
 * @param extra_fd  splice_fd_in, else 0
 * @param user      8-aligned, not NULL; comes back once from reap
 * @return false: no SQE is free (two are kept for cancels and wake polls): flush, reap, try again
 */
bool mrt__ring_stage(struct mrt__ring *ring, const struct mrt__ring_args *args, int32_t extra_fd, void *user);

/**
 * Ask the kernel to cancel the op that was staged with `user`. Staged too, behind it; the answer is consumed inside.
 *
 * Never dropped: where no SQE is free it flushes, and if that fails remembers to try again with the next flush.
 */
void mrt__ring_cancel(struct mrt__ring *ring, void *user);

/* SQEs staged and not submitted. */
unsigned mrt__ring_staged(const struct mrt__ring *ring);

/* Completions in the CQ now; includes our own kinds. About 1 ns. */
unsigned mrt__ring_ready(const struct mrt__ring *ring);

/* Would an enter bring completions although the CQ looks empty (deferred work, overflow)? A hint: may stay true. */
bool mrt__ring_has_deferred(const struct mrt__ring *ring);

/**
 * One enter that submits what is staged, runs deferred work and does not wait (min_complete 0, GETEVENTS).
 *
 * -EAGAIN, -EBUSY, -EINTR and short submits keep the rest staged.
 *
 * @return SQEs taken by the kernel, >= 0; -EBADR and other impossible codes end the process with a sentence
 */
int mrt__ring_flush(struct mrt__ring *ring);

/**
 * Submit what is staged and wait for at least one completion.
 *
 * @blocks  until a completion, a wake, a signal or the time-out
 * @param timeout_ns  relative; UINT64_MAX: none; 0: as flush
 */
void mrt__ring_wait(struct mrt__ring *ring, uint64_t timeout_ns);

/**
 * Take finished ops from the CQ, oldest first. Our own completions are consumed on the way, also beyond `max` ops
 * while they stand in front. Wake polls are armed again where they ended.
 *
 * @param done        [max]
 * @param ret_events  MRT__RING_EVENT_*, or-ed in
 * @return number of ops, 0..max
 */
unsigned mrt__ring_reap(struct mrt__ring *ring, struct mrt__ring_done *done, unsigned max, unsigned *ret_events);

/* Wake the owner if it is in mrt__ring_wait, or make its next wait return. @thread any, signal handlers too */
void mrt__ring_wake(struct mrt__ring *ring);

/* Set the sentry's timer on this ring: expires every ns from now on. / Stop it. @thread any */
void mrt__ring_sentry_arm(struct mrt__ring *ring, uint64_t ns);
void mrt__ring_sentry_disarm(struct mrt__ring *ring);

/* Does this kernel know an opcode? @thread any, after create */
bool mrt__ring_has_opcode(const struct mrt__ring *ring, enum mrt__opcode opcode);

/* What it got. @thread any, after enable */
void mrt__ring_report(const struct mrt__ring *ring, struct mrt_ring_report *ret_report);

#endif
