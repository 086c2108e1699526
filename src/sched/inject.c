/* SPDX-License-Identifier: MIT */
/* See inject.h. */
#include "sched/inject.h"

#include "probe/stat.h"
#include "probe/usdt.h"
#include "sched/task.h"

void mrt__inject_init(struct mrt__inject *q, uint64_t *depth_stat)
{
	q->depth_stat = depth_stat;
	q->head = q->tail = NULL;
	atomic_init(&q->len, 0);
	atomic_init(&q->lock.held, 0);
}

/* Under the lock. */
static void publish_depth(struct mrt__inject *q)
{
	mrt__stat_set(q->depth_stat, mrt__inject_len(q));
}

void mrt__inject_push(struct mrt__inject *q, struct mrt_task *const *tasks, size_t nr)
{
	size_t i;

	mrt__assert(nr > 0);
	for (i = 0; i + 1 < nr; i++)
		tasks[i]->queue_next = tasks[i + 1];
	tasks[nr - 1]->queue_next = NULL;
	mrt__lock(&q->lock);
	if (q->tail)
		q->tail->queue_next = tasks[0];
	else
		q->head = tasks[0];
	q->tail = tasks[nr - 1];
	/*
	 * [INJECT.len.pub] seq_cst, before the pusher reads the idle word: a worker that has left the unparked count
	 * before we look for sleepers sees this length in its last look; pairs with [IDLE.word.dekker] in
	 * mrt__idle_park(), which comes before it.
	 */
	atomic_fetch_add_explicit(&q->len, nr, memory_order_seq_cst);
	publish_depth(q);
	mrt__unlock(&q->lock);
	mrt__fire(inject, nr, mrt__inject_len(q));
}

size_t mrt__inject_pop(struct mrt__inject *q, struct mrt_task **ret_tasks, size_t max)
{
	size_t nr = 0;

	if (mrt__inject_len(q) == 0)
		return 0;
	mrt__lock(&q->lock);
	while (nr < max && q->head) {
		ret_tasks[nr] = q->head;
		q->head = q->head->queue_next;
		nr++;
	}
	if (!q->head)
		q->tail = NULL;
	/* relaxed: taking makes nobody's sleep wrong */
	atomic_fetch_sub_explicit(&q->len, nr, memory_order_relaxed);
	publish_depth(q);
	mrt__unlock(&q->lock);
	return nr;
}
