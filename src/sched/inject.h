/* SPDX-License-Identifier: MIT */
/*
 * The inject queue: a FIFO of tasks through their headers, under a short lock, with a length that is read without it.
 * Tasks come from outside threads and from full local queues; workers take batches.
 *
 *	function             who      progress
 *	mrt__inject_push     any      blocking (short lock)
 *	mrt__inject_pop      worker   blocking (short lock); returns at once when the length reads 0
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

struct mrt__inject {
	mrt__cache_aligned struct mrt__lock lock;
	struct mrt_task *head, *tail;
	/* written under the lock, read without; seq_cst in push: see [INJECT.len.pub] */
	mrt__cache_aligned atomic_size_t len;
	uint64_t *depth_stat;   /* written under the lock: the length, for those who look from outside */
};

/* @param depth_stat  where the length is published */
void mrt__inject_init(struct mrt__inject *q, uint64_t *depth_stat);

/* Append tasks in order. The caller then notifies a worker. */
void mrt__inject_push(struct mrt__inject *q, struct mrt_task *const *tasks, size_t nr);

/* Take up to max tasks, oldest first. @return number taken */
size_t mrt__inject_pop(struct mrt__inject *q, struct mrt_task **ret_tasks, size_t max);

static inline size_t mrt__inject_len(const struct mrt__inject *q)
{
	/* relaxed: a hint; where it decides about sleeping, the idle word's read-modify-writes order it */
	return atomic_load_explicit(&q->len, memory_order_relaxed);
}

#endif
