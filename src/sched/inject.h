/* SPDX-License-Identifier: MIT */
/*
 * The inject queue: a FIFO of tasks through their headers. Tasks come from outside threads and from full local queues;
 * workers take batches. It is two lists, each under a short lock (after the two-lock queue of Michael and Scott 1996): who
 * pushes appends to the one; who pops first moves all of that behind the other, in one step, and then takes from there. A
 * batch is walked task by task, each of them in another CPU's cache: with one lock whoever pushes would wait for that.
 *
 *	function             who      progress
 *	mrt__inject_push     any      blocking (short lock)
 *	mrt__inject_pop      worker   blocking (short locks); returns at once when the length reads 0
 *	mrt__inject_len      any      wait-free
 */
#ifndef MRT_SCHED_INJECT_H
#define MRT_SCHED_INJECT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/lock.h"

struct mrt_task;

/* One of the two. */
struct mrt__inject_list {
	mrt__cache_aligned struct mrt__lock lock;
	struct mrt_task *head, *tail;
	atomic_size_t nr;       /* written under the lock of `in`, read without */
};

struct mrt__inject {
	struct mrt__inject_list in;     /* the newer ones, as they come */
	struct mrt__inject_list out;    /* the older ones. Its lock is taken before that of `in` */
	uint64_t *depth_stat;           /* written under the lock of `in`: the length, for those who look from outside */
};

/* @param depth_stat  where the length is published */
void mrt__inject_init(struct mrt__inject *q, uint64_t *depth_stat);

/* Append tasks in order. The caller then notifies a worker. */
void mrt__inject_push(struct mrt__inject *q, struct mrt_task *const *tasks, size_t nr);

/* Take up to max tasks, oldest first. @return number taken */
size_t mrt__inject_pop(struct mrt__inject *q, struct mrt_task **ret_tasks, size_t max);

/* A hint. What goes from one list to the other meanwhile may count twice, but is never missed. */
static inline size_t mrt__inject_len(const struct mrt__inject *q)
{
	/* [INJECT.nr.move] in this order; acquire: what has left `in` stands in `out`. Where it decides about sleeping, the idle
	 * word's read-modify-writes order the push before it */
	size_t in = atomic_load_explicit(&q->in.nr, memory_order_acquire);

	/* relaxed: as said */
	return in + atomic_load_explicit(&q->out.nr, memory_order_relaxed);
}

#endif
