/* SPDX-License-Identifier: MIT */
/*
 * See cancels.h. An array without order: there are few at a time, or many for a moment, when all of a program is aborted. What
 * is due is found by a look at all of them.
 *
 * Rejected: to send again what was answered by -ENOENT. The answer would have to name its op, which then could not be delivered
 * before the answer has come; and the other answers are no proof, either.
 */
#include "sched/cancels.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "probe/stat.h"
#include "sched/files.h"
#include "sched/op.h"
#include "sched/op_run.h"
#include "sched/worker.h"

_Static_assert(MRT__FILES_MAX <= MRT__CANCEL_SLOT_NONE, "a slot fits");

#define WAIT_MS_MIN 1u
#define WAIT_MS_MAX 1024u
#define FILES_HIT_NS (100 * MRT__NS_PER_MS) /* by then the CQEs of ops that a close hits were reaped */
#define ROOM_MIN 16u
#define ROOM_KEPT 4096u         /* of a longer list the memory is given back when it is empty */

static bool make_room(struct mrt__cancels *c)
{
	uint32_t max = mrt__max(2 * c->max, ROOM_MIN);
	struct mrt__cancel *list;

	if (mrt__likely(c->nr < c->max))
		return true;
	list = realloc(c->list, max * sizeof(*list));
	if (!list)
		return false;
	c->list = list;
	c->max = max;
	return true;
}

/* @return NULL: no memory */
static struct mrt__cancel *push(struct mrt__cancels *c, struct mrt__op *op)
{
	struct mrt__cancel *one;

	if (!make_room(c))
		return NULL;
	one = &c->list[c->nr++];
	*one = (struct mrt__cancel){ .op = op, .slots = { MRT__CANCEL_SLOT_NONE, MRT__CANCEL_SLOT_NONE } };
	if (op)
		op->why = (int32_t)(one - c->list);
	return one;
}

static struct mrt__cancel *find(struct mrt__cancels *c, const struct mrt__op *op)
{
	uint32_t place = (uint32_t)op->why;

	return place < c->nr && c->list[place].op == op ? &c->list[place] : NULL;
}

static void sent_first(struct mrt__cancels *c, struct mrt__cancel *one)
{
	mrt__assert(one->wait_ms == 0);
	one->wait_ms = WAIT_MS_MIN;
	one->due_ns = mrt__clock_now() + WAIT_MS_MIN * MRT__NS_PER_MS;
	if (c->sent_nr == 0)
		c->ended_nr = 0;
	if (c->sent_nr++ == 0 || one->due_ns < c->next_ns)
		c->next_ns = one->due_ns;
}

/* The last one takes its place. */
static void drop(struct mrt__cancels *c, struct mrt__cancel *one)
{
	struct mrt__cancel *last = &c->list[--c->nr];

	c->sent_nr -= one->wait_ms > 0; /* next_ns may be too early from now on: then a turn finds nothing, and knows better */
	c->ended_nr += one->wait_ms > 0;
	if (one != last && last->op)
		last->op->why = (int32_t)(one - c->list);
	*one = *last;
	if (c->nr == 0 && mrt__unlikely(c->max > ROOM_KEPT)) {
		free(c->list);
		c->list = NULL;
		c->max = 0;
	}
}

void mrt__cancels_add(struct mrt__worker *w, struct mrt__op *op)
{
	struct mrt__cancel *one = find(&w->cancels, op);

	if (!one)
		one = push(&w->cancels, op);
	if (one) /* no memory: it was sent once, which is enough nearly always */
		sent_first(&w->cancels, one);
}

static uint16_t slot_of(int fd)
{
	return mrt__is_handle(fd) ? (uint16_t)mrt__handle_slot(fd) : MRT__CANCEL_SLOT_NONE;
}

bool mrt__cancels_watch(struct mrt__worker *w, struct mrt__op *op)
{
	struct mrt__cancel *one = push(&w->cancels, op);

	if (!one)
		return false;
	one->slots[0] = slot_of(op->io.fd);
	one->slots[1] = slot_of((int)op->raw);
	return true;
}

void mrt__cancels_drop(struct mrt__worker *w, struct mrt__op *op)
{
	struct mrt__cancel *one = find(&w->cancels, op);

	if (!one)
		return;
	drop(&w->cancels, one);
	op->why = 0;
}

void mrt__cancels_close(struct mrt__worker *w, unsigned slot)
{
	struct mrt__cancels *c = &w->cancels;
	uint32_t i;

	for (i = 0; i < c->nr; i++) {
		const struct mrt__cancel *one = &c->list[i];

		if (one->op && one->wait_ms == 0 && (one->slots[0] == slot || one->slots[1] == slot))
			mrt__op_cancel_on_owner(w, one->op);
	}
}

void mrt__cancels_add_file(struct mrt__worker *w, unsigned slot)
{
	struct mrt__cancel *one;

	if (mrt__ring_has_opcode(w->ring, MRT__OPCODE_BIND)) /* 6.11: not such a kernel */
		return;
	one = push(&w->cancels, NULL);
	if (!one)
		return;
	one->slots[0] = (uint16_t)slot;
	sent_first(&w->cancels, one);
	w->cancels.files_nr++;
}

void mrt__cancels_drop_file(struct mrt__worker *w, unsigned slot)
{
	struct mrt__cancels *c = &w->cancels;
	uint32_t i;

	for (i = 0; i < c->nr && c->files_nr > 0; i++) {
		if (c->list[i].op || c->list[i].slots[0] != slot)
			continue;
		c->files_nr--;
		drop(c, &c->list[i]);
		return;
	}
}

bool mrt__cancels_may_hit(const struct mrt__worker *w)
{
	return w->cancels.files_hit_ns > 0 && mrt__clock_now() < w->cancels.files_hit_ns;
}

/* @return false: no SQE is free */
static bool send_again(struct mrt__worker *w, const struct mrt__cancel *one, uint64_t now)
{
	if (!one->op) {
		w->cancels.files_hit_ns = now + FILES_HIT_NS;
		return mrt__file_try_cancel(w, one->slots[0]);
	}
	if (!mrt__ring_try_cancel(w->ring, one->op))
		return false;
	mrt__stat_add(&w->stats->cancels, 1);
	return true;
}

static bool send_if_due(struct mrt__worker *w, struct mrt__cancel *one, uint64_t now)
{
	if (one->due_ns > now || !send_again(w, one, now))
		return false;
	one->wait_ms = mrt__min(2 * one->wait_ms, WAIT_MS_MAX);
	one->due_ns = now + one->wait_ms * MRT__NS_PER_MS;
	return true;
}

/* Are there, or may there soon be, ends of ops in the list? */
static bool is_ending(struct mrt__worker *w)
{
	return w->cancels.ended_nr > 0 || mrt__ring_ready(w->ring) > 0 || mrt__ring_has_deferred(w->ring);
}

/* @return when to look again */
static uint64_t send_one(struct mrt__worker *w, uint64_t now)
{
	struct mrt__cancels *c = &w->cancels;
	struct mrt__cancel *first = NULL;
	uint32_t i;

	for (i = 0; i < c->nr; i++)
		if (c->list[i].wait_ms > 0 && (!first || c->list[i].due_ns < first->due_ns))
			first = &c->list[i];
	mrt__assert(first);
	return send_if_due(w, first, now) ? now + WAIT_MS_MIN * MRT__NS_PER_MS : first->due_ns;
}

static uint64_t send_all(struct mrt__worker *w, uint64_t now)
{
	struct mrt__cancels *c = &w->cancels;
	uint64_t next = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < c->nr; i++) {
		struct mrt__cancel *one = &c->list[i];

		if (one->wait_ms == 0)
			continue;
		(void)send_if_due(w, one, now); /* if there is no SQE it is due still */
		next = mrt__min(next, one->due_ns);
	}
	return next;
}

void mrt__cancels_turn(struct mrt__worker *w)
{
	uint64_t now = mrt__clock_now();

	if (now < w->cancels.next_ns)
		return;
	w->cancels.next_ns = is_ending(w) ? send_one(w, now) : send_all(w, now);
	w->cancels.ended_nr = 0;
}
