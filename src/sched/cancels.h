/* SPDX-License-Identifier: MIT */
/*
 * Cancels that were sent, and whose ops have not ended. Each is sent again, later and later (after 1 ms, at last every second),
 * until its op has: whatever the kernel answers to a cancel is no proof that the op will end.
 *
 * - On 6.1 it finds nothing (-ENOENT) while a thread of io-wq takes the op from its queue.
 * - An op that the kernel is about to try again is in none of its lists for a moment, and may have to wait once more.
 * - io-wq was told (-EALREADY), but the op did not wait yet, or waits elsewhere now.
 *
 * Nearly always the op's CQE is there before a cancel is due again. Where a device has the op, sending it again is in vain, and
 * costs an SQE a second. Answers are not looked at, so they name nothing, and no op need outlive them.
 *
 * A closing file's ops are cancelled by the file, all at once. That is sent again only on kernels with the first of the above:
 * it hits the ops of other handles of the same open file, too, each time, and they are tried again as often.
 *
 * All of it is the worker's that owns the ring. An op's place in the list stands in its `why`, which nobody else uses from its
 * begin to its delivery.
 */
#ifndef MRT_SCHED_CANCELS_H
#define MRT_SCHED_CANCELS_H

#include <stdbool.h>
#include <stdint.h>

struct mrt__op;
struct mrt__worker;

struct mrt__cancel {
	struct mrt__op *op;             /* NULL: all ops on a closing file */
	uint32_t slot;                  /* ... the file's */
	uint32_t wait_ms;               /* from the last time until due_ns */
	uint64_t due_ns;
};

struct mrt__cancels {
	uint32_t nr, max;
	uint64_t next_ns;               /* nr > 0: none is due before */
	struct mrt__cancel *list;       /* [max], nr of them in use, in no order */
	uint32_t files_nr;              /* ... those that are of files */
	uint64_t files_hit_ns;          /* until then what was sent again for a file may hit other ops; 0: never sent */
};

/* The ring was asked to cancel an op, for the first time. @thread the ring's owner, as all of these */
void mrt__cancels_add(struct mrt__worker *w, struct mrt__op *op);

/* A cancelled op's CQE has come. One that is not in the list is ignored. */
void mrt__cancels_drop(struct mrt__worker *w, struct mrt__op *op);

/* The same for the ops on a closing file. */
void mrt__cancels_add_file(struct mrt__worker *w, unsigned slot);
void mrt__cancels_drop_file(struct mrt__worker *w, unsigned slot);

/* May an op that was not cancelled have been hit once more by the close of another handle? */
bool mrt__cancels_may_hit(const struct mrt__worker *w);

/* Send what is due again, as far as SQEs are free; the rest is due at the next turn. */
void mrt__cancels_turn(struct mrt__worker *w);

#endif
