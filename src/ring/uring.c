/* SPDX-License-Identifier: MIT */
/*
 * The real ring: stage, flush, wait, reap. Set-up and tear-down are in uring_setup.c.
 *
 * Invariants:
 * - Staging is a store of 64 bytes and never enters the kernel. [SQ.tail] is published once per enter. What the kernel
 *   did not take (short submit, -EAGAIN, -EBUSY, -EINTR) stays staged, in order; its own head says what it took, so
 *   the value that enter returns is looked at for errors only.
 * - Every enter asks for events. On a DEFER_TASKRUN ring nothing completes otherwise.
 * - Two SQEs stay free for cancels and wake polls. Neither is ever dropped: a poll that ended and a cancel that found no
 *   room (it is kept in `late`) each set a bit in `due`, and each enter and reap makes up for both.
 * - A cancel names its op by address, and addresses are used again. Submission is in order, so a staged cancel reaches
 *   the kernel before anything that is staged after the op's end. The same holds for one in `late`: while there is one
 *   the SQ is full, since whoever sees that there is room stages it before its caller can stage anything.
 * - The kernel's TASKRUN flag is a hint that may stay set with nothing pending, so nothing here loops on it.
 *
 * SQPOLL. A kernel thread takes what [SQ.tail] publishes, and an enter only wakes it when it sleeps ([SQ.wakeup]). The
 * kernel's head then moves at any time; `sq_head` is what we have seen of it, and all of the above is said of that: the
 * SQ is full until we look, and every look (see_room) is followed by what is due. The head may move after the CQEs of
 * what it passes are there, so a staged SQE may be one that has ended. A full SQ waits for the thread, a bounded
 * number of times, in flush and wait alike: a wait with a full SQ could be one for completions that never come.
 *
 * Polled rings have no kinds of their own: no polls, no cancels. Nothing is ever due there.
 *
 * Big rings have SQEs and CQEs of twice the size. The size of an SQE is a factor; for CQEs there is a second reap, which
 * also keeps the second result.
 *
 * Rejected: liburing's prep functions (a switch per opcode, for bytes that the op already has) and its enter paths
 * (they hide which part of submit-and-wait failed, and peek makes a call for what is one load).
 */
#include "ring/uring.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "probe/stat.h"
#include "probe/usdt.h"
#include "ring/abi.h"

#define MRT__RING_ROOM_TRIES_MAX 256u   /* looks at a full SQ, each an enter */
#define MRT__RING_ROOM_NS_MAX MRT__NS_PER_MS /* a wait with a full SQ */

_Static_assert(sizeof(struct io_uring_sqe) == 64, "one line; the fields below are all of it");
#define MRT__RING_SAME(ours, kernel) \
	_Static_assert(offsetof(struct mrt__ring_args, ours) == offsetof(struct io_uring_sqe, kernel), "copied whole")
MRT__RING_SAME(opcode, opcode);
MRT__RING_SAME(sqe_flags, flags);
MRT__RING_SAME(buf_index, ioprio);
MRT__RING_SAME(fd, fd);
MRT__RING_SAME(off, off);
MRT__RING_SAME(addr, addr);
MRT__RING_SAME(len, len);
MRT__RING_SAME(op_flags, rw_flags);
_Static_assert(sizeof(struct mrt__ring_done) == sizeof(struct io_uring_cqe), "copied whole");
_Static_assert(offsetof(struct mrt__ring_done, user) == offsetof(struct io_uring_cqe, user_data), "copied whole");
_Static_assert(offsetof(struct mrt__ring_done, res) == offsetof(struct io_uring_cqe, res), "copied whole");
_Static_assert(offsetof(struct mrt__ring_done, flags) == offsetof(struct io_uring_cqe, flags), "copied whole");
_Static_assert(sizeof(void *) == 8, "an op's pointer is a user_data");

static _Thread_local __attribute__((tls_model("initial-exec"))) char ring_thread;

const void *mrt__ring_thread(void)
{
	return &ring_thread;
}

_Static_assert(MRT__RING_CMD_BYTES <= 2 * sizeof(struct io_uring_sqe) - offsetof(struct io_uring_sqe, addr3), "fits");

static inline unsigned staged(const struct mrt__ring *ring)
{
	return ring->sq_tail - ring->sq_head;
}

/* All 64 bytes, since a slot's last user may have been of any opcode. The arguments are laid out for one copy. */
static inline void fill(struct io_uring_sqe *sqe, const struct mrt__ring_args *args, int32_t extra_fd, uint64_t user_data)
{
	memcpy(sqe, args, sizeof(*args));
	sqe->ioprio = 0;
	sqe->user_data = user_data;
	sqe->buf_index = args->buf_index;
	sqe->personality = 0;
	sqe->splice_fd_in = extra_fd;
	sqe->addr3 = 0;
	sqe->__pad2[0] = 0;
}

/* The size is a power of two, and so is the number, so that the product wraps as the position does. */
static inline struct io_uring_sqe *sqe_at(const struct mrt__ring *ring, unsigned pos)
{
	return (struct io_uring_sqe *)(ring->sqes + (pos * ring->sqe_bytes & ring->sq_bytes_mask));
}

static inline void stage(struct mrt__ring *ring, const struct mrt__ring_args *args, int32_t extra_fd, uint64_t user_data)
{
	unsigned tail = ring->sq_tail;

	fill(sqe_at(ring, tail), args, extra_fd, user_data);
	ring->sq_tail = tail + 1;
	mrt__stat_set(ring->staged_gauge, tail + 1 - ring->sq_head);
}

static void stage_cancel(struct mrt__ring *ring, uint64_t user_data)
{
	struct mrt__ring_args args = { .opcode = IORING_OP_ASYNC_CANCEL, .fd = -1, .addr = user_data };

	stage(ring, &args, 0, MRT__RING_KIND_CANCEL);
	ring->cancels++;
}

bool mrt__ring_poll_arm(struct mrt__ring *ring, enum mrt__ring_kind kind)
{
	struct mrt__ring_args args = {
		.opcode = IORING_OP_POLL_ADD,
		.fd = kind == MRT__RING_KIND_WAKE ? ring->wake_fd : ring->sentry_fd,
		.len = IORING_POLL_ADD_MULTI,
		.op_flags = POLLIN,
	};

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	args.op_flags = (uint32_t)POLLIN << 16; /* the kernel reads the halves of poll32_events swapped */
#endif
	if (staged(ring) == ring->sq_entries)
		return false;
	stage(ring, &args, 0, kind);
	ring->armed |= 1u << kind;
	ring->due &= ~(1u << kind);
	return true;
}

static void late_push(struct mrt__ring *ring, uint64_t user_data)
{
	unsigned max = ring->late_max ? 2 * ring->late_max : 64;
	uint64_t *late;

	if (ring->late_nr == ring->late_max) {
		late = realloc(ring->late, max * sizeof(*late));
		if (!late)
			mrt__bug("no memory for a cancel while the kernel takes no submissions: it would be lost");
		ring->late = late;
		ring->late_max = max;
	}
	ring->late[ring->late_nr++] = user_data;
	ring->due |= MRT__RING_DUE_LATE;
}

/* Stage what could not be staged when it was due. */
static __attribute__((noinline)) void catch_up(struct mrt__ring *ring)
{
	if (ring->due & MRT__RING_ARMED_WAKE)
		(void)mrt__ring_poll_arm(ring, MRT__RING_KIND_WAKE); /* no room: next time */
	if (ring->due & MRT__RING_ARMED_SENTRY)
		(void)mrt__ring_poll_arm(ring, MRT__RING_KIND_SENTRY); /* the same */
	while (ring->late_nr && staged(ring) < ring->sq_entries)
		stage_cancel(ring, ring->late[--ring->late_nr]);
	if (!ring->late_nr)
		ring->due &= ~MRT__RING_DUE_LATE;
}

/* @return SQEs that the kernel has taken since we looked last */
static inline int see_head(struct mrt__ring *ring)
{
	/* [SQ.head] the kernel has copied what lies below; pairs with its release */
	unsigned head = atomic_load_explicit(ring->sq_khead, memory_order_acquire);
	unsigned taken = head - ring->sq_head;

	ring->sq_head = head;
	mrt__stat_add(&ring->stats->sqes, taken);
	mrt__stat_set(ring->staged_gauge, staged(ring));
	return (int)taken;
}

/* SQPOLL: look at the head, and let what is due have the room first. */
static int see_room(struct mrt__ring *ring)
{
	int taken = see_head(ring);

	if (mrt__unlikely(ring->due))
		catch_up(ring);
	return taken;
}

/* The SQ had no room for an op when we looked last. SQPOLL's thread may have made some. */
static __attribute__((cold, noinline)) bool stage_after_look(struct mrt__ring *ring, const struct mrt__ring_args *args,
							     int32_t extra_fd, void *user)
{
	if (ring->sqpoll)
		(void)see_room(ring); /* what matters is the room */
	if (staged(ring) >= ring->sq_ops_max)
		return false;
	stage(ring, args, extra_fd, (uintptr_t)user);
	return true;
}

bool mrt__ring_stage(struct mrt__ring *ring, const struct mrt__ring_args *args, int32_t extra_fd, void *user)
{
	mrt__ring_assert_owner(ring);
	mrt__assert_slow(user != NULL && ((uintptr_t)user & MRT__RING_KIND_MASK) == 0);
	mrt__assert_slow(ring->late_nr == 0 || staged(ring) == ring->sq_entries);

	if (mrt__unlikely(staged(ring) >= ring->sq_ops_max))
		return stage_after_look(ring, args, extra_fd, user); /* apart, so that this function needs no frame */
	stage(ring, args, extra_fd, (uintptr_t)user);
	return true;
}

unsigned mrt__ring_stage_packed(struct mrt__ring *ring, uint64_t head, uint64_t off, uint64_t addr, uint64_t length, void *user)
{
	unsigned tail = ring->sq_tail;
	struct io_uring_sqe *sqe;

	mrt__ring_assert_owner(ring);
	mrt__assert_slow(user != NULL && ((uintptr_t)user & MRT__RING_KIND_MASK) == 0);
	mrt__assert_slow(ring->late_nr == 0 || staged(ring) == ring->sq_entries);

	if (mrt__unlikely(tail - ring->sq_head >= ring->sq_ops_max))
		return 0; /* the caller's other way looks for room */
	sqe = sqe_at(ring, tail);
	/* all 64 bytes, as fill(); what the arguments have as buf_index is ioprio here */
	mrt__ring_args_set((struct mrt__ring_args *)(void *)sqe, head & ~(UINT64_C(0xffff) << 16), off, addr, length);
	sqe->user_data = (uintptr_t)user;
	sqe->buf_index = (uint16_t)(head >> 16);
	sqe->personality = 0;
	sqe->splice_fd_in = 0;
	sqe->addr3 = 0;
	sqe->__pad2[0] = 0;
	ring->sq_tail = ++tail;
	mrt__stat_set(ring->staged_gauge, tail - ring->sq_head);
	return tail - ring->sq_head;
}

void mrt__ring_poll_first(struct mrt__ring *ring)
{
	struct io_uring_sqe *sqe = sqe_at(ring, ring->sq_tail - 1);

	mrt__assert(sqe->opcode == IORING_OP_RECV);
	sqe->ioprio = IORING_RECVSEND_POLL_FIRST;
}

bool mrt__ring_stage_cmd(struct mrt__ring *ring, const struct mrt__ring_args *args, const void *cmd, void *user)
{
	mrt__assert(ring->extras);
	if (!mrt__ring_stage(ring, args, 0, user))
		return false;
	memcpy((unsigned char *)sqe_at(ring, ring->sq_tail - 1) + offsetof(struct io_uring_sqe, addr3), cmd,
	       MRT__RING_CMD_BYTES);
	return true;
}

void mrt__ring_cancel(struct mrt__ring *ring, void *user)
{
	mrt__ring_assert_owner(ring);

	if (ring->polled)
		return;
	if (mrt__unlikely(staged(ring) == ring->sq_entries))
		(void)mrt__ring_flush(ring); /* what matters is the room */
	if (mrt__unlikely(staged(ring) == ring->sq_entries))
		late_push(ring, (uintptr_t)user);
	else
		stage_cancel(ring, (uintptr_t)user);
}

bool mrt__ring_try_cancel(struct mrt__ring *ring, void *user)
{
	mrt__ring_assert_owner(ring);
	mrt__assert(!ring->polled);

	if (staged(ring) == ring->sq_entries && ring->sqpoll)
		(void)see_room(ring); /* what matters is the room */
	if (staged(ring) == ring->sq_entries)
		return false;
	stage_cancel(ring, (uintptr_t)user);
	return true;
}

bool mrt__ring_cancel_file(struct mrt__ring *ring, int fd, bool slot)
{
	struct mrt__ring_args args = {
		.opcode = IORING_OP_ASYNC_CANCEL,
		.fd = fd,
		.op_flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL | (slot ? IORING_ASYNC_CANCEL_FD_FIXED : 0),
	};

	mrt__ring_assert_owner(ring);
	if (ring->polled)
		return true;
	if (staged(ring) == ring->sq_entries && ring->sqpoll)
		(void)see_room(ring); /* what matters is the room */
	if (staged(ring) == ring->sq_entries)
		return false;
	stage(ring, &args, 0, MRT__RING_KIND_CANCEL);
	ring->cancels++;
	return true;
}

unsigned mrt__ring_staged(const struct mrt__ring *ring)
{
	return staged(ring);
}

int mrt__ring_staged_last(const struct mrt__ring *ring)
{
	return staged(ring) == 0 || ring->sqpoll ? -1 : sqe_at(ring, ring->sq_tail - 1)->opcode;
}

unsigned mrt__ring_ready(const struct mrt__ring *ring)
{
	/* relaxed: a count; reap acquires before it reads a CQE */
	return atomic_load_explicit(ring->cq_ktail, memory_order_relaxed) - ring->cq_head;
}

bool mrt__ring_has_deferred(const struct mrt__ring *ring)
{
	/* relaxed: a hint; what it announces comes with an enter */
	return atomic_load_explicit(ring->sq_kflags, memory_order_relaxed) & ring->deferred_mask;
}

/* Only an enter clears the flag, so looking before and after each one sees every rise. */
static inline void note_overflow(struct mrt__ring *ring)
{
	/* relaxed: a count */
	unsigned flags = atomic_load_explicit(ring->sq_kflags, memory_order_relaxed);
	bool overflowed = flags & IORING_SQ_CQ_OVERFLOW;

	if (mrt__unlikely(overflowed != ring->overflowed)) {
		if (overflowed)
			mrt__stat_add(&ring->stats->cq_overflows, 1);
		ring->overflowed = overflowed;
	}
}

/* What an enter may say without anything being wrong: the caller reaps and comes again. */
static __attribute__((cold, noinline)) void check_error(struct mrt__ring *ring, int error)
{
	switch (error) {
	case -EPERM:
	case -EACCES:
	case -ENOSYS:
		/* a seccomp filter that allows the set-up alone shows at the first enter, and is the enabler's to report */
		if (!ring->enabled) {
			ring->forbidden = error;
			return;
		}
		break;
	case -EINTR:
	case -ETIME:
	case -EAGAIN:
	case -EBUSY:    /* kernels up to 5.18: completions must be reaped first */
	case -ENOMEM:
		return;
	case -EBADR:
		mrt__bug("the kernel had no memory for completions and dropped some: their ops can never end");
	case -EEXIST:
		mrt__bug("io_uring_enter: the ring belongs to another thread");
	case -EOWNERDEAD:
		mrt__bug("io_uring_enter: the kernel's submission thread (SQPOLL) has ended");
	default:
		break;
	}
	mrt__bug("io_uring_enter: error %d, descriptor %u, flags %#x, %u staged", -error, ring->enter_fd, ring->enter_flags,
		 staged(ring));
}

/* An enter for what has been published. @return SQEs that the kernel took */
static int enter_published(struct mrt__ring *ring, unsigned min_complete, unsigned flags, void *arg, size_t arg_bytes)
{
	int ret, taken;

	mrt__assert(ring->owner == mrt__ring_thread());
	note_overflow(ring);
	ret = io_uring_enter2(ring->enter_fd, staged(ring), min_complete, flags | ring->enter_flags, arg, arg_bytes);
	mrt__stat_add(&ring->stats->enters, 1);
	taken = see_head(ring);
	note_overflow(ring);
	mrt__fire(ring_enter, ring->stats->index, (uint64_t)taken, min_complete, (uint64_t)ret);

	if (mrt__unlikely(ret < 0))
		check_error(ring, ret);
	if (mrt__unlikely(ring->due))
		catch_up(ring);
	return taken;
}

static int enter(struct mrt__ring *ring, unsigned min_complete, unsigned flags, void *arg, size_t arg_bytes)
{
	/* [SQ.tail] publishes the SQEs to the kernel, which acquires it */
	atomic_store_explicit(ring->sq_ktail, ring->sq_tail, memory_order_release);
	return enter_published(ring, min_complete, flags, arg, arg_bytes);
}

int mrt__ring_first_enter(struct mrt__ring *ring)
{
	return enter_published(ring, 0, IORING_ENTER_GETEVENTS, NULL, 0);
}

/* ---- SQPOLL ---------------------------------------------------------------------------------------------------- */

/* Publish to the kernel's thread. @return the enter flag that wakes it, 0: it is awake, or there is nothing to take */
static unsigned publish(struct mrt__ring *ring)
{
	unsigned flags;

	if (staged(ring) == 0)
		return 0;
	/*
	 * [SQ.tail] publishes the SQEs. [SQ.wakeup] our tail before we look at the flag; the thread sets the flag, then
	 * looks at the tail once more, with a full fence between. Without ours both may miss the other, and it sleeps
	 * on what is staged. Sequentially consistent accesses and not a fence, which TSan does not model.
	 */
	(void)atomic_exchange_explicit(ring->sq_ktail, ring->sq_tail, memory_order_seq_cst);
	flags = atomic_load_explicit(ring->sq_kflags, memory_order_seq_cst);
	return flags & IORING_SQ_NEED_WAKEUP ? IORING_ENTER_SQ_WAKEUP : 0;
}

/*
 * The SQ has no room for an op. The kernel sleeps here only if there is no SQE at all; with those that we keep back it
 * returns at once, and then the thread may need this CPU.
 */
static __attribute__((cold, noinline)) int wait_for_room(struct mrt__ring *ring)
{
	unsigned tries;
	int taken = 0;

	for (tries = 0; tries < MRT__RING_ROOM_TRIES_MAX && staged(ring) >= ring->sq_ops_max; tries++) {
		if (tries > 0)
			(void)sched_yield(); /* always succeeds */
		taken += enter_published(ring, 0, IORING_ENTER_SQ_WAIT | publish(ring), NULL, 0);
	}
	return taken;
}

static int sqpoll_flush(struct mrt__ring *ring)
{
	int taken = see_room(ring);
	unsigned flags = publish(ring);

	note_overflow(ring);
	if (flags || ring->overflowed)
		taken += enter_published(ring, 0, flags | IORING_ENTER_GETEVENTS, NULL, 0);
	if (mrt__unlikely(staged(ring) >= ring->sq_ops_max))
		taken += wait_for_room(ring);
	return taken;
}

/* @return may the caller wait, and for how long, with which flag */
static bool sqpoll_may_wait(struct mrt__ring *ring, uint64_t *timeout_ns, unsigned *flags)
{
	unsigned wake;

	(void)see_room(ring); /* what is left the caller sees */
	wake = publish(ring);
	if (mrt__unlikely(staged(ring) >= ring->sq_ops_max)) {
		(void)wait_for_room(ring); /* the same */
		if (staged(ring) < ring->sq_ops_max)
			return false; /* there may be ops that wait for the room */
		*timeout_ns = mrt__min(*timeout_ns, MRT__RING_ROOM_NS_MAX);
	}
	*flags |= wake;
	return wake || mrt__ring_ready(ring) == 0;
}

/* ---------------------------------------------------------------------------------------------------------------- */

int mrt__ring_flush(struct mrt__ring *ring)
{
	if (mrt__unlikely(ring->sqpoll))
		return sqpoll_flush(ring);
	return enter(ring, 0, IORING_ENTER_GETEVENTS, NULL, 0);
}

static void wait_published(struct mrt__ring *ring, uint64_t timeout_ns, unsigned flags)
{
	struct __kernel_timespec ts;
	struct io_uring_getevents_arg arg = { .ts = (uintptr_t)&ts };

	if (timeout_ns == UINT64_MAX) {
		(void)enter_published(ring, 1, flags, NULL, 0); /* what stays staged the caller sees */
		return;
	}
	ts.tv_sec = (int64_t)(timeout_ns / 1000000000u);
	ts.tv_nsec = (int64_t)(timeout_ns % 1000000000u);
	(void)enter_published(ring, 1, flags | IORING_ENTER_EXT_ARG, &arg, sizeof(arg)); /* the same */
}

void mrt__ring_wait(struct mrt__ring *ring, uint64_t timeout_ns)
{
	unsigned flags = IORING_ENTER_GETEVENTS | ring->wait_flags;

	mrt__assert(!ring->polled);
	if (timeout_ns == 0) {
		/* A zero time-out would cost a real sleep: 17 us against 0.2. */
		(void)mrt__ring_flush(ring); /* what stays staged the caller sees */
		return;
	}
	if (mrt__unlikely(ring->sqpoll)) {
		if (!sqpoll_may_wait(ring, &timeout_ns, &flags))
			return;
	} else {
		/* [SQ.tail] publishes the SQEs to the kernel, which acquires it */
		atomic_store_explicit(ring->sq_ktail, ring->sq_tail, memory_order_release);
	}
	wait_published(ring, timeout_ns, flags);
}

/* A poll of ours has fired, or has ended. */
static bool poll_done(struct mrt__ring *ring, enum mrt__ring_kind kind, int32_t res, uint32_t flags)
{
	if (!(flags & IORING_CQE_F_MORE)) {
		ring->armed &= ~(1u << kind);
		ring->due |= ring->draining ? 0 : 1u << kind;
	}
	if (res >= 0)
		return true;
	/* Out of memory or the like heals by arming again; these never do. */
	if (!ring->draining && (res == -EINVAL || res == -EBADF))
		mrt__bug("a ring's own poll (kind %d) ended with error %d: was its descriptor closed?", (int)kind, -res);
	return false;
}

/*
 * The kernel starts a period of a timerfd only when the last one has been read, so unlike the eventfd this one is
 * read. Nothing to read: it was set anew or stopped meanwhile.
 */
static bool sentry_read(const struct mrt__ring *ring)
{
	uint64_t expirations;

	return read(ring->sentry_fd, &expirations, sizeof(expirations)) == (ssize_t)sizeof(expirations);
}

/* A CQE that is none of an op. @return MRT__RING_EVENT_* */
static __attribute__((noinline)) unsigned own_done(struct mrt__ring *ring, const struct io_uring_cqe *cqe)
{
	switch (cqe->user_data) {
	case MRT__RING_KIND_WAKE:
		return poll_done(ring, MRT__RING_KIND_WAKE, cqe->res, cqe->flags) ? MRT__RING_EVENT_WAKE : 0;
	case MRT__RING_KIND_SENTRY:
		if (!poll_done(ring, MRT__RING_KIND_SENTRY, cqe->res, cqe->flags) || !sentry_read(ring))
			return 0;
		return MRT__RING_EVENT_SENTRY;
	case MRT__RING_KIND_CANCEL:
		mrt__assert(ring->cancels > 0);
		ring->cancels--;
		return 0;
	default:
		mrt__bug("a completion names nothing of ours: user_data %#llx, res %d",
			 (unsigned long long)cqe->user_data, cqe->res);
	}
}

/* CQEs of one size; inlined for each. */
static inline __attribute__((always_inline)) unsigned reap(struct mrt__ring *ring, struct mrt__ring_done *done, unsigned max,
							   unsigned *ret_events, bool big)
{
	const struct io_uring_cqe *cqe;
	unsigned head = ring->cq_head, nr = 0, tail;

	mrt__ring_assert_owner(ring);

	/* [CQ.tail] CQEs below it are filled; pairs with the kernel's release */
	tail = atomic_load_explicit(ring->cq_ktail, memory_order_acquire);
	for (; head != tail; head++) {
		cqe = &ring->cqes[(size_t)(head & ring->cq_mask) << big];
		if (mrt__unlikely(cqe->user_data & MRT__RING_KIND_MASK)) {
			*ret_events |= own_done(ring, cqe);
			continue;
		}
		if (nr == max)
			break;
		if (big)
			ring->extras[nr] = cqe->big_cqe[0];
		memcpy(&done[nr++], cqe, sizeof(done[0]));
	}
	if (head != ring->cq_head) {
		mrt__stat_add(&ring->stats->cqes, head - ring->cq_head);
		mrt__fire(cq_drain, ring->stats->index, head - ring->cq_head);
		ring->cq_head = head;
		/* [CQ.head] gives the slots back, after their CQEs were read; pairs with the kernel's acquire */
		atomic_store_explicit(ring->cq_khead, head, memory_order_release);
	}
	if (mrt__unlikely(ring->due))
		catch_up(ring);
	return nr;
}

static __attribute__((noinline)) unsigned reap_big(struct mrt__ring *ring, struct mrt__ring_done *done, unsigned max,
						   unsigned *ret_events)
{
	return reap(ring, done, max, ret_events, true);
}

unsigned mrt__ring_reap(struct mrt__ring *ring, struct mrt__ring_done *done, unsigned max, unsigned *ret_events)
{
	if (mrt__unlikely(ring->extras))
		return reap_big(ring, done, max, ret_events);
	return reap(ring, done, max, ret_events, false);
}

uint64_t mrt__ring_extra(const struct mrt__ring *ring, unsigned i)
{
	mrt__assert(ring->extras && i <= ring->cq_mask);
	return ring->extras[i];
}

void mrt__ring_wake(struct mrt__ring *ring)
{
	static const uint64_t one = 1;
	int saved = errno; /* a signal handler's caller may be about to read it */

	/* Fails only if the counter is full, and then it is readable: the poll is a level. */
	if (write(ring->wake_fd, &one, sizeof(one)) < 0)
		errno = saved;
}
