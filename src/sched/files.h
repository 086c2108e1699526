/* SPDX-License-Identifier: MIT */
/*
 * Registered files. A handle is a number outside the range of descriptors, made of a slot and its generation; wherever an
 * op takes a descriptor it takes a handle. The slot is the same on every ring, and each ring learns of a file at the
 * first op that it is given for it: registering is local and never waited for. Where a ring's table could not be had,
 * the plain descriptor is used.
 *
 * Closing (mrt_close, mrt_file_unregister):
 *
 *	1  under the lock the handle becomes stale: no worker learns it from now on; the workers that had learned it are
 *	   counted and woken
 *	2  each of them forgets it in its next turn, so that no op starts on it any more, and has its ring cancel what is
 *	   in flight on it
 *	3  when the last op on it has been collected there, the ring's slot is emptied, and the worker is done
 *	4  the last of them frees the slot, and closes the descriptor or gives it back
 *
 * So the slot, and the descriptor's number, are not used again before the last op on the file has ended.
 *
 * Threads: `file_use` of a worker is its owner's alone. struct mrt__file: `handle`, `learned`, the lists under the lock;
 * `fd`, `flags`, `nvme` are written before the handle is published and constant until the slot is freed.
 */
#ifndef MRT_SCHED_FILES_H
#define MRT_SCHED_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <martlet/file.h>

#include "base/compiler.h"
#include "ring/ring.h"

struct mrt__op;
struct mrt__sched;
struct mrt__worker;
struct mrt__nvme_ns;

#define MRT__HANDLE_BIT (1 << 30)       /* no descriptor is that large: fs.nr_open is at most a billion entries */
#define MRT__FILE_SLOT_BITS 15
#define MRT__FILES_MAX (1u << MRT__FILE_SLOT_BITS)
#define MRT__FILES_DEFAULT 1024u
#define MRT__FILE_GENS (1u << (30 - MRT__FILE_SLOT_BITS))
#define MRT__FILE_WHY_BYTES 256

enum mrt__file_state {
	MRT__FILE_EMPTY,        /* in the free list. -> OPEN */
	MRT__FILE_OPEN,         /* its handle is valid. -> CLOSING */
	MRT__FILE_CLOSING,      /* in the closing list until every worker that learned it is done. -> EMPTY */
};

struct mrt__file {
	/* [FILE.handle.pub] written under the lock; 0: none. What stands below is readable by whoever finds his handle */
	_Atomic int32_t handle;
	int fd;
	uint32_t flags;                 /* MRT_FILE_* as granted */
	uint32_t asked;                 /* ... as asked for */
	struct mrt__nvme_ns *nvme;      /* passthrough; the file's */
	bool hybrid;                    /* polled, and the kernel sleeps before it polls */
	uint32_t polled_bytes_max;      /* what is longer goes through the ordinary ring: mrt__rung_polled_max() */
	atomic_bool unpollable;         /* its polled ops were refused while running */
	atomic_bool unfixed;            /* its commands were refused registered buffers while running */
	char why[MRT__FILE_WHY_BYTES];  /* why it is not polled */

	/* under the lock */
	uint8_t state;                  /* enum mrt__file_state */
	uint16_t gen;
	struct mrt__file *next;         /* of the free list (oldest first), or of the closing list */
	struct mrt__op *closer;         /* CLOSING: the op that ends it */
	uint64_t *learned;              /* [(workers_nr + 63) / 64] bits of workers that know it */
	atomic_uint acks_left;          /* workers that have not finished with it. [FILE.acks.done] */
};

struct mrt__files {
	struct mrt__sched *sched;
	unsigned max;                   /* a power of two */
	unsigned words;                 /* of `learned` */
	struct mrt__file *slots;        /* [max] */
	uint64_t *learned;              /* [max * words] */
	pthread_mutex_t lock;
	struct mrt__file *free_head, *free_tail;
	struct mrt__file *closing;
	bool closed;                    /* the runtime is: no more registering */
	atomic_int table_error;         /* a ring took no file into its table, -errno; 0: none refused */
	/* [FILES.version.pub] raised under the lock by each close; workers compare in each turn */
	mrt__cache_aligned atomic_uint version;
};

#define MRT__FILE_ON_MAIN (1u << 0)     /* the worker's ring has it in its table */
#define MRT__FILE_ON_POLLED (1u << 1)   /* its polled ring has */

/* What one worker knows of a slot. */
struct mrt__file_use {
	int32_t handle;                 /* 0: not learned, or forgotten */
	int32_t fd;
	uint32_t inflight;              /* ops on this worker's rings */
	uint8_t flags;                  /* MRT_FILE_* that hold here */
	uint8_t ready;                  /* MRT__FILE_ON_* */
	uint32_t polled_bytes_max;
	bool unfixed;
	bool closing;
	bool cancel_due;                /* closing: the ring had no SQE for the cancel */
};

static inline bool mrt__is_handle(int fd)
{
	return fd >= MRT__HANDLE_BIT;
}

static inline unsigned mrt__handle_slot(int handle)
{
	return (unsigned)handle & (MRT__FILES_MAX - 1);
}

/* @param max  a power of two @return 0, -ENOMEM */
int mrt__files_create(struct mrt__sched *s, unsigned max, struct mrt__files **ret_files);

/* Close what is still registered, and free. All workers have ended. NULL is ignored. */
void mrt__files_destroy(struct mrt__files *files);

/* The runtime is closing: nothing is registered any more. @thread any */
void mrt__files_close(struct mrt__files *files);

/**
 * The file of a handle that is valid now. Whoever has no op on it in flight can lose it at any time.
 *
 * @thread any
 * @return NULL: stale
 */
struct mrt__file *mrt__file_of(struct mrt__files *files, int handle);

/**
 * A worker's first op on a handle: have its rings know the file.
 *
 * @thread the worker
 * @return false: stale
 */
bool mrt__file_learn(struct mrt__worker *w, int handle);

/* Start the end of a handle: kind is MRT__OP_CLOSE_FILE or MRT__OP_UNREGISTER. @thread the running task's worker */
struct mrt_op *mrt__file_end(struct mrt_op *op, unsigned kind, int handle);

/* A worker's part of closing; called in its turn when `version` has changed. @thread the worker */
void mrt__files_turn(struct mrt__worker *w);

/* The last op on a closing file has ended on this worker. @thread the worker */
void mrt__file_drained(struct mrt__worker *w, unsigned slot);

/* A file that closes: have the ring cancel what is left on it. @thread the worker @return false: no SQE is free */
bool mrt__file_try_cancel(struct mrt__worker *w, unsigned slot);

/* The polled ring refused an op on it: from now on through the ordinary ring. @thread the worker */
void mrt__file_unpoll(struct mrt__worker *w, int handle, int error);

/* The kernel refused a command of a passthrough file for its registered buffer: from now on without. @thread the worker */
void mrt__file_unfix(struct mrt__worker *w, int handle, int error);

#endif
