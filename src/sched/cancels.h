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
 * After a burst of cancels the CQEs take longer than a cancel waits, and each that is sent again has the kernel look through what
 * it still has, which delays the rest. So while some of the ops end, or the ring has CQEs for us, only the one that is due
 * for the longest is sent, each millisecond.
 *
 * A closing file's ops are cancelled by the file, all at once. That is sent again only on kernels with the first of the above:
 * it hits the ops of other handles of the same open file, too, each time, and they are tried again as often. On no kernel does
 * it find a splice by the file that is read, or one that io-wq has not begun: so splices by handle are in the list from the
 * start, to be cancelled one by one.
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

#define MRT__CANCEL_SLOT_NONE UINT16_MAX

struct mrt__cancel {
	struct mrt__op *op;             /* NULL: all ops on a closing file */
	uint16_t slots[2];              /* ... the file's; or those of a splice; or MRT__CANCEL_SLOT_NONE */
	uint32_t wait_ms;               /* from the last time until due_ns; 0: a splice, and no cancel was sent */
	uint64_t due_ns;
};

struct mrt__cancels {
	uint32_t nr, max;
	uint32_t sent_nr;               /* those of nr that were sent */
	uint32_t ended_nr;              /* of those, since the last look */
	uint64_t next_ns;               /* sent_nr > 0: none is due before */
	struct mrt__cancel *list;       /* [max], nr of them in use, in no order */
	uint32_t files_nr;              /* ... those that are of files */
	uint64_t files_hit_ns;          /* until then what was sent again for a file may hit other ops; 0: never sent */
};

/* The ring was asked to cancel an op, for the first time. @thread the ring's owner, as all of these */
void mrt__cancels_add(struct mrt__worker *w, struct mrt__op *op);

/* A splice by handle is staged. @return false: no memory */
bool mrt__cancels_watch(struct mrt__worker *w, struct mrt__op *op);

/* An op's CQE has come. One that is not in the list is ignored. */
void mrt__cancels_drop(struct mrt__worker *w, struct mrt__op *op);

/* Cancel the splices on a closing file. */
void mrt__cancels_close(struct mrt__worker *w, unsigned slot);

/* As the first and the third, for all ops on a closing file. */
void mrt__cancels_add_file(struct mrt__worker *w, unsigned slot);
void mrt__cancels_drop_file(struct mrt__worker *w, unsigned slot);

/* May an op that was not cancelled have been hit once more by the close of another handle? */
bool mrt__cancels_may_hit(const struct mrt__worker *w);

/* Send what is due again, as far as SQEs are free; the rest is due at the next turn. */
void mrt__cancels_turn(struct mrt__worker *w);

#endif
