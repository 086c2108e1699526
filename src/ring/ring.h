/* SPDX-License-Identifier: MIT */
/*
 * One io_uring, as the scheduler sees it. Narrow on purpose: tests/lib has a simulated ring behind the same functions,
 * chosen at link time. src/ring is the only folder that knows liburing and the kernel's structures.
 *
 * The ring never names a task: it is given a pointer (`user`, 8-aligned) with each op and hands it back once, with the
 * result, when the kernel has let go of the op.
 *
 * Threads: create and destroy by the builder; wake, sentry_arm and sentry_disarm by any thread while the ring exists;
 * donors by any one at a time; all else by the worker that enabled the ring (asserted).
 */
#ifndef MRT_RING_RING_H
#define MRT_RING_RING_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <martlet/runtime.h>
#include <martlet/stats.h>

struct mrt__ring;

/* The opcodes that Martlet uses; values are the kernel's (asserted in uring_setup.c where its header knows them). */
enum mrt__opcode {
	MRT__OPCODE_NOP = 0,
	MRT__OPCODE_READV = 1,
	MRT__OPCODE_WRITEV = 2,
	MRT__OPCODE_FSYNC = 3,
	MRT__OPCODE_READ_FIXED = 4,
	MRT__OPCODE_WRITE_FIXED = 5,
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
	MRT__OPCODE_URING_CMD = 46,
	MRT__OPCODE_FTRUNCATE = 55,
	MRT__OPCODE_BIND = 56,          /* not used; came with the 64-bit lengths of FADVISE (6.11) */
	MRT__OPCODE_READV_FIXED = 60,
	MRT__OPCODE_WRITEV_FIXED = 61,
};

#define MRT__RING_SQE_FIXED_FILE (1u << 0) /* IOSQE_FIXED_FILE: fd is a slot of the ring's file table */
#define MRT__RING_SQE_ASYNC (1u << 4) /* IOSQE_ASYNC: straight to io-wq */
#define MRT__RING_CMD_FIXED (1u << 0) /* op_flags of URING_CMD: the command's buffer lies in buf_index */
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
	uint32_t flags;                 /* MRT__RING_OPT_* */
	uint32_t sq_idle_ms;            /* SQPOLL: how long its thread spins before it sleeps; 0: the kernel's second */
	int32_t sq_cpu;                 /* SQPOLL: where its thread runs, -1: anywhere */
	struct mrt__ring *attach;       /* SQPOLL: share this ring's thread; NULL: one of its own */
};

/*
 * A kernel thread submits: a flush publishes, and enters only to wake it. No DEFER or COOP_TASKRUN. Where it is refused
 * the ring is an ordinary one of the tier, and the report says so.
 */
#define MRT__RING_OPT_SQPOLL (1u << 0)
/*
 * Polled: takes reads, writes and commands only. It has no wake and no sentry, cannot be waited in and cancels nothing;
 * a flush polls the devices once. Made and enabled by its worker, beside the worker's own ring.
 */
#define MRT__RING_OPT_IOPOLL (1u << 1)
#define MRT__RING_OPT_HYBRID (1u << 2)  /* with IOPOLL: the kernel sleeps before it polls (6.13); dropped where refused */
#define MRT__RING_OPT_BIG (1u << 3)     /* 128-byte SQEs, 32-byte CQEs: for mrt__ring_stage_cmd() */

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
 * Make the calling thread the ring's owner: enable, register the ring's descriptor, limit io-wq and say where it runs, arm
 * the polls of the wake eventfd and the sentry's timerfd.
 *
 * @param iowq_cpus  where the thread's io-wq may run, less SQPOLL's CPU if it is not the only one; NULL: as it inherits
 * @return 0 or -errno; the ring may only be destroyed after a failure
 */
int mrt__ring_enable(struct mrt__ring *ring, const cpu_set_t *iowq_cpus);

/**
 * Before the owner ends: cancel our own polls and collect what the kernel still has to say.
 *
 * All ops must have been handed back. Bounded: about 1 s, SQPOLL 10.
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

/* Four of struct mrt__ring_args in one register. */
static inline uint64_t mrt__ring_head(unsigned opcode, unsigned sqe_flags, unsigned buf_index, int fd)
{
	return opcode | sqe_flags << 8 | (uint64_t)buf_index << 16 | (uint64_t)(uint32_t)fd << 32;
}

/* ... and two more. */
static inline uint64_t mrt__ring_length(uint32_t len, uint32_t op_flags)
{
	return len | (uint64_t)op_flags << 32;
}

/* The same in memory. */
static inline void mrt__ring_args_set(struct mrt__ring_args *args, uint64_t head, uint64_t off, uint64_t addr, uint64_t length)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	/* one by one: an array would be copied with wider loads than it was stored with, and those wait */
	memcpy(args, &head, sizeof(head));
	memcpy(&args->off, &off, sizeof(off));
	memcpy(&args->addr, &addr, sizeof(addr));
	memcpy(&args->len, &length, sizeof(length));
#else
	args->opcode = (uint8_t)head;
	args->sqe_flags = (uint8_t)(head >> 8);
	args->buf_index = (uint16_t)(head >> 16);
	args->fd = (int32_t)(head >> 32);
	args->len = (uint32_t)length;
	args->off = off;
	args->addr = addr;
	args->op_flags = (uint32_t)(length >> 32);
#endif
}

/**
 * Stage an op that has no extra_fd: as mrt__ring_stage(), but all in registers. Arguments in memory that were just written
 * field by field hold up the wide loads that copy them.
 *
 * @param head    of mrt__ring_head()
 * @param length  of mrt__ring_length()
 * @return entries staged, this one included; 0: as false there
 */
unsigned mrt__ring_stage_packed(struct mrt__ring *ring, uint64_t head, uint64_t off, uint64_t addr, uint64_t length, void *user);

/*
 * Have the receive that was staged last wait for data before it tries: a first try that finds none is not free. Kernel 5.19;
 * the descriptor must be a socket's. @thread owner, before anything else is staged or flushed
 */
void mrt__ring_poll_first(struct mrt__ring *ring);

/* Bytes of a command: struct nvme_uring_cmd. */
#define MRT__RING_CMD_BYTES 72u

/**
 * Stage a URING_CMD: `args` as above (opcode, fd, op_flags, buf_index; `off` is cmd_op), and behind it the command. BIG
 * rings only. Otherwise as mrt__ring_stage().
 *
 * @param cmd  [MRT__RING_CMD_BYTES], copied
 */
bool mrt__ring_stage_cmd(struct mrt__ring *ring, const struct mrt__ring_args *args, const void *cmd, void *user);

/**
 * Ask the kernel to cancel all ops that the ring has on one file. Staged too; the answer is consumed inside. Kernels
 * before 6.0 (slots), 5.19 (descriptors) do nothing: the ops end by themselves.
 *
 * @param fd    a descriptor, or with `slot` a slot of the ring's file table
 * @return false: no SQE is free: flush, try again
 */
bool mrt__ring_cancel_file(struct mrt__ring *ring, int fd, bool slot);

/**
 * Ask the kernel to cancel the op that was staged with `user`. Staged too, behind it; the answer is consumed inside.
 *
 * Never dropped: where no SQE is free it flushes, and if that fails remembers to try again with the next flush.
 */
void mrt__ring_cancel(struct mrt__ring *ring, void *user);

/* The same, where an SQE is free. Not on a polled ring. @return false: none is, and nothing was done */
bool mrt__ring_try_cancel(struct mrt__ring *ring, void *user);

/* SQEs staged and not submitted; SQPOLL: and not taken by the kernel's thread when a flush or wait looked last. */
unsigned mrt__ring_staged(const struct mrt__ring *ring);

/* Opcode of the SQE that was staged last; -1: none is staged, or a kernel thread submits (SQPOLL). */
int mrt__ring_staged_last(const struct mrt__ring *ring);

/* Completions in the CQ now; includes our own kinds. About 1 ns. */
unsigned mrt__ring_ready(const struct mrt__ring *ring);

/* Would an enter bring completions although the CQ looks empty (deferred work, overflow)? A hint: may stay true. */
bool mrt__ring_has_deferred(const struct mrt__ring *ring);

/**
 * One enter that submits what is staged, runs deferred work and does not wait (min_complete 0, GETEVENTS).
 *
 * -EAGAIN, -EBUSY, -EINTR and short submits keep the rest staged. SQPOLL: publishes, looks what the thread has taken, and
 * enters only to wake it, for an overflow, or to let it make room in a full SQ (bounded; it may stay full).
 *
 * @return SQEs taken by the kernel, >= 0; -EBADR and other impossible codes end the process with a sentence
 */
int mrt__ring_flush(struct mrt__ring *ring);

/**
 * Submit what is staged and wait for at least one completion. Not for polled rings. SQPOLL: an SQ that was full returns
 * as soon as it is not.
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

/* A BIG ring: the second result (extra word) of done[i] of the last reap. @thread owner */
uint64_t mrt__ring_extra(const struct mrt__ring *ring, unsigned i);

/* ---- registered buffers and files ---- */

/*
 * Buffers are indexed alike on all rings of a runtime. Kernels from 6.12 on pin them once, in a donor: a ring that never
 * submits, whose table the others clone. Before that each ring registers, and pays, for itself.
 */
struct mrt__ring_donor;

/**
 * @param nr  slots of its table, 1..16384, all empty
 * @return 0; -EOPNOTSUPP the kernel cannot clone (before 6.12); -ENOMEM, -EMFILE
 */
int mrt__ring_donor_create(unsigned nr, struct mrt__ring_donor **ret_donor);

/* Unpins what no clone holds. NULL is ignored. */
void mrt__ring_donor_destroy(struct mrt__ring_donor *donor);

/* In a child after fork. */
void mrt__ring_donor_abandon(struct mrt__ring_donor *donor);

/**
 * Register memory in an empty slot. The caller serialises.
 *
 * @thread  any
 * @param bytes  1..1 GiB, of anonymous memory
 * @return 0, -ENOMEM (RLIMIT_MEMLOCK, or memory), -EFAULT (the kind of memory)
 */
int mrt__ring_donor_set(struct mrt__ring_donor *donor, unsigned slot, void *base, size_t bytes);

/* Can rings clone single slots after their first clone (6.13), so that the table may grow? Found out at creation. */
bool mrt__ring_donor_can_grow(const struct mrt__ring_donor *donor);

/**
 * Make a ring's table like the donor's: whole at the ring's first call, later slot `slot` alone.
 *
 * @thread  the ring's owner; not while donor_set runs
 * @return 0, or -errno: the ring's table is as it was
 */
int mrt__ring_donor_clone(struct mrt__ring_donor *donor, struct mrt__ring *ring, unsigned slot);

/**
 * Without a donor: register memory in a slot of this ring's own table, which the first call makes.
 *
 * @thread  the ring's owner
 * @param nr  slots of the table
 * @return as mrt__ring_donor_set(); -EINVAL the kernel is too old
 */
int mrt__ring_buffer_set(struct mrt__ring *ring, unsigned nr, unsigned slot, void *base, size_t bytes);

/*
 * Let go of all buffers, at once and not when the ring's memory is freed. All ops must have ended. A drain does it too.
 * @thread owner
 */
void mrt__ring_buffers_drop(struct mrt__ring *ring);

/**
 * Set, or with fd -1 empty, a slot of the ring's file table, which the first call makes. Ops in flight keep their file.
 *
 * @thread  the ring's owner
 * @param nr  slots of the table
 * @return 0; -ENOMEM, -EMFILE (the table counts against RLIMIT_NOFILE), -EBADF
 */
int mrt__ring_file_set(struct mrt__ring *ring, unsigned nr, unsigned slot, int fd);

/*
 * SQPOLL: CPU time of the ring's kernel thread, ns; 0: none, or unknown: 6.1 names the thread only while it sleeps. Rings
 * that share a thread say the same. Opens files of /proc. @thread any, after enable
 */
uint64_t mrt__ring_sq_thread_ns(struct mrt__ring *ring);

/* Wake the owner if it is in mrt__ring_wait, or make its next wait return. @thread any, signal handlers too */
void mrt__ring_wake(struct mrt__ring *ring);

/* Set the sentry's timer on this ring: expires every ns from now on. / Stop it. @thread any */
void mrt__ring_sentry_arm(struct mrt__ring *ring, uint64_t ns);
void mrt__ring_sentry_disarm(struct mrt__ring *ring);

/* Does this kernel know an opcode? @thread any, after create */
bool mrt__ring_has_opcode(const struct mrt__ring *ring, enum mrt__opcode opcode);

/* What it got. @thread any, after enable */
void mrt__ring_report(struct mrt__ring *ring, struct mrt_ring_report *ret_report);

#endif
