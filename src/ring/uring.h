/* SPDX-License-Identifier: MIT */
/*
 * The inside of the real ring: uring.c has the paths that run all the time, uring_setup.c those that run once,
 * uring_regs.c the tables of buffers and files, uring_report.c what it got.
 *
 * The kernel's ring contract, to which the labels in the code refer:
 *
 *	[SQ.tail]  we write, the kernel reads: SQEs below it are filled
 *	[SQ.head]  the kernel writes, we read: SQEs below it have been copied, their slots may be filled again
 *	[CQ.tail]  the kernel writes, we read: CQEs below it are filled
 *	[CQ.head]  we write, the kernel reads: CQEs below it have been read, their slots may be filled again
 *
 *	[SQ.wakeup] SQPOLL: the kernel's thread says in the SQ's flags that it will sleep, and looks at [SQ.tail] once more;
 *	           we write [SQ.tail] and look at the flags. The only place with a store of ours before a load.
 */
#ifndef MRT_RING_URING_H
#define MRT_RING_URING_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <liburing.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "ring/ring.h"

/*
 * user_data: an op's pointer, whose low three bits are 0, or one of these. Op CQEs are told apart by one test.
 * The two polls are named by their kind alone, so that a cancel can name them too.
 */
enum mrt__ring_kind {
	MRT__RING_KIND_OP = 0,
	MRT__RING_KIND_WAKE = 1,        /* the multishot poll of the eventfd */
	MRT__RING_KIND_CANCEL = 2,      /* the answer to an ASYNC_CANCEL: says nothing about its op */
	MRT__RING_KIND_SENTRY = 3,      /* the multishot poll of the timerfd */
};
#define MRT__RING_KIND_MASK UINT64_C(7)

#define MRT__RING_RESERVE 2u            /* SQEs that stage() leaves to cancels and polls */
#define MRT__RING_ENTRIES_MIN 4u        /* so that something is left for ops */

/* armed: which polls the kernel has, or will have with the next enter */
#define MRT__RING_ARMED_WAKE (1u << MRT__RING_KIND_WAKE)
#define MRT__RING_ARMED_SENTRY (1u << MRT__RING_KIND_SENTRY)
#define MRT__RING_ARMED_ALL (MRT__RING_ARMED_WAKE | MRT__RING_ARMED_SENTRY)
/* due: of these, what must be staged and could not be, or was not yet; and */
#define MRT__RING_DUE_LATE (1u << 0)    /* there are cancels in late */

struct mrt__ring {
	/* submission: the owner's */
	unsigned char *sqes;
	struct mrt_worker_stats *stats;
	uint32_t *staged_gauge;         /* of the worker's ordinary ring alone: a polled one shares its stats */
	unsigned sq_tail;               /* next slot to fill; the kernel learns it when it is published */
	unsigned sq_head;               /* [SQ.head] as we saw it last: at the last enter, or flush */
	unsigned sqe_bytes;             /* 64, or 128 */
	unsigned sq_bytes_mask;         /* bytes of all SQEs, less one */
	unsigned sq_ops_max;            /* entries - reserve */
	unsigned sq_entries;
	atomic_uint *sq_khead;          /* these three are shared with the kernel */
	atomic_uint *sq_ktail;
	atomic_uint *sq_kflags;

	/* completion: the owner's */
	struct io_uring_cqe *cqes;
	atomic_uint *cq_khead;          /* shared with the kernel */
	atomic_uint *cq_ktail;
	unsigned cq_head;               /* next to read; equals [CQ.head] between calls */
	unsigned cq_mask;
	unsigned due;                   /* MRT__RING_ARMED_*, MRT__RING_DUE_LATE; 0 nearly always */
	uint64_t *extras;               /* [CQ entries] second results of the last reap; NULL: the ring is not big */
	unsigned deferred_mask;         /* bits of sq_kflags that say: an enter would bring completions */
	unsigned armed;                 /* MRT__RING_ARMED_* */
	unsigned cancels;               /* ASYNC_CANCELs whose answer has not come */
	bool overflowed;                /* the overflow flag, when we looked last */
	bool draining;                  /* polls that end are not armed again */
	bool sqpoll;                    /* these two are set by the builder */
	bool polled;

	/* cancels that found no SQE and for which the kernel would take none: the owner's */
	uint64_t *late;                 /* [late_max] user_data */
	unsigned late_nr;
	unsigned late_max;

	/* set once: by the builder, and by the owner in enable */
	unsigned enter_fd;              /* ring descriptor, or index of the registered one */
	unsigned enter_flags;           /* for every enter */
	unsigned wait_flags;            /* for an enter that waits, besides */
	const void *owner;              /* identity of the owner's thread; NULL: not enabled */
	int wake_fd;                    /* eventfd, never read: its poll is a level; any thread writes */
	int sentry_fd;                  /* timerfd; any thread sets it, the owner reads it */
	bool drained;
	bool enabled;                   /* the first enter has succeeded: from then on it is never forbidden */
	int forbidden;                  /* 0, or why it did not */
	struct io_uring uring;
	uint64_t opcodes;               /* bit n: the kernel knows opcode n */
	unsigned setup_flags;           /* as granted */
	unsigned tier;                  /* as granted */
	unsigned tier_asked;
	int sqpoll_error;               /* 0, or why SQPOLL was asked for and not granted */
	bool hybrid_refused;
	unsigned sq_idle_ms;            /* SQPOLL: as asked */
	int sq_cpu;                     /* SQPOLL: as asked */
	bool attached;                  /* SQPOLL: the thread is another ring's */
	atomic_int sq_tid;              /* SQPOLL: its thread; 0: not known yet; written by whoever finds out, always the same */
	int register_error;             /* 0 or -errno of registering the ring's descriptor */
	int limit_error;                /* of limiting io-wq */
	int affinity_error;             /* of keeping io-wq off the owner's CPU */
	unsigned buffers_nr;            /* slots of the buffer table, 0: none; the owner's */
	unsigned files_nr;              /* slots of the file table, 0: none; the owner's */
	struct mrt_worker_stats own_stats; /* if the caller gave none */
};

/* The calling thread's identity: an address that no other living thread has. */
const void *mrt__ring_thread(void);

/* Enter without submitting or waiting: is it allowed? */
int mrt__ring_first_enter(struct mrt__ring *ring);

/* The id of SQPOLL's thread, 0: none, or not said. */
int mrt__ring_sq_thread(struct mrt__ring *ring);

/* Stage one of our own two polls. false: no SQE is free. */
bool mrt__ring_poll_arm(struct mrt__ring *ring, enum mrt__ring_kind kind);

#ifdef MRT_DEBUG
#define mrt__ring_assert_owner(ring) mrt__assert((ring)->owner == mrt__ring_thread())
#else
#define mrt__ring_assert_owner(ring) ((void)(ring)) /* two instructions too many for stage and ready */
#endif

#endif
