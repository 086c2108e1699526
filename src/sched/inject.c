/* SPDX-License-Identifier: MIT */
/* See inject.h. */
#include "sched/inject.h"

#include "probe/stat.h"
#include "probe/usdt.h"
#include "sched/task.h"

/* A plain access to a list. The model checker makes it a point where another thread may run, as atomics are. */
#ifndef MRT__INJECT_LIST_POINT
#define MRT__INJECT_LIST_POINT() ((void)0)
#endif

static void list_init(struct mrt__inject_list *list)
{
	list->head = list->tail = NULL;
	atomic_init(&list->nr, 0);
	atomic_init(&list->lock.held, 0);
}

void mrt__inject_init(struct mrt__inject *q, uint64_t *depth_stat)
{
	q->depth_stat = depth_stat;
	list_init(&q->in);
	list_init(&q->out);
}

/* Under its lock. */
static size_t list_nr(const struct mrt__inject_list *list)
{
	/* relaxed: whoever wrote it had the lock */
	return atomic_load_explicit(&list->nr, memory_order_relaxed);
}

/* Append a chain; the number is the caller's to set. Under the list's lock. */
static void list_append(struct mrt__inject_list *list, struct mrt_task *head, struct mrt_task *tail)
{
	if (list->tail)
		list->tail->queue_next = head;
	else
		list->head = head;
	MRT__INJECT_LIST_POINT();
	list->tail = tail;
}

void mrt__inject_push(struct mrt__inject *q, struct mrt_task *const *tasks, size_t nr)
{
	size_t i;

	mrt__assert(nr > 0);
	for (i = 0; i + 1 < nr; i++)
		tasks[i]->queue_next = tasks[i + 1];
	tasks[nr - 1]->queue_next = NULL;
	mrt__lock(&q->in.lock);
	list_append(&q->in, tasks[0], tasks[nr - 1]);
	/*
	 * relaxed: [IDLE.word.dekker] publishes it, the read-modify-write by which the pusher then looks for sleepers: a worker
	 * that has left the unparked count before that sees this number in its last look
	 */
	atomic_store_explicit(&q->in.nr, list_nr(&q->in) + nr, memory_order_relaxed);
	mrt__stat_set(q->depth_stat, mrt__inject_len(q));
	mrt__unlock(&q->in.lock);
	mrt__fire(inject, nr, mrt__inject_len(q));
}

/* All that has come goes behind what is in `out`, and max of that, at most, are counted out. Under the lock of `out`. */
static size_t fetch(struct mrt__inject *q, size_t max)
{
	size_t in_nr, nr, left;

	mrt__lock(&q->in.lock);
	in_nr = list_nr(&q->in);
	left = list_nr(&q->out) + in_nr;
	nr = mrt__min(max, left);
	left -= nr;
	/* relaxed: the store below publishes it; taking makes nobody's sleep wrong */
	atomic_store_explicit(&q->out.nr, left, memory_order_relaxed);
	if (in_nr > 0) {
		list_append(&q->out, q->in.head, q->in.tail);
		q->in.head = q->in.tail = NULL;
		/* [INJECT.nr.move] release: the other number has risen; pairs with mrt__inject_len() */
		atomic_store_explicit(&q->in.nr, 0, memory_order_release);
	}
	mrt__stat_set(q->depth_stat, left);
	mrt__unlock(&q->in.lock);
	return nr;
}

size_t mrt__inject_pop(struct mrt__inject *q, struct mrt_task **ret_tasks, size_t max)
{
	struct mrt__inject_list *out = &q->out;
	size_t nr, i;

	if (mrt__inject_len(q) == 0)
		return 0;
	mrt__lock(&out->lock);
	nr = fetch(q, max);
	for (i = 0; i < nr; i++) {
		ret_tasks[i] = out->head;
		MRT__INJECT_LIST_POINT();
		out->head = out->head->queue_next;
	}
	if (!out->head)
		out->tail = NULL;
	mrt__unlock(&out->lock);
	return nr;
}
