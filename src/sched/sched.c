/* SPDX-License-Identifier: MIT */
/* What concerns all workers: the log, the count of tasks, the close; and what fork does to them. */
#include "sched/sched.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

#include "sched/worker.h"

#define SENTENCE_BYTES 512

void mrt__sched_attach_stats(struct mrt__sched *s)
{
	s->stats = s->stats_mem.workers;
	mrt__inject_init(&s->inject, &s->stats_mem.global->inject_depth);
}

void mrt__sched_log(struct mrt__sched *s, int level, const char *fmt, ...)
{
	char sentence[SENTENCE_BYTES];
	va_list ap;

	if (!s->log)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(sentence, sizeof(sentence), fmt, ap); /* cut to fit */
	va_end(ap);
	s->log(level, sentence, s->log_ctx);
}

/* ---- what belongs to no runtime is told to all ---- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mrt__sched *all;

void mrt__sched_log_add(struct mrt__sched *s)
{
	pthread_mutex_lock(&all_lock);
	s->log_next = all;
	all = s;
	pthread_mutex_unlock(&all_lock);
}

void mrt__sched_log_remove(struct mrt__sched *s)
{
	struct mrt__sched **link;

	pthread_mutex_lock(&all_lock);
	for (link = &all; *link && *link != s; link = &(*link)->log_next)
		;
	if (*link)
		*link = s->log_next;
	pthread_mutex_unlock(&all_lock);
}

void mrt__sched_log_all(int level, const char *fmt, ...)
{
	char sentence[SENTENCE_BYTES];
	struct mrt__sched *s;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(sentence, sizeof(sentence), fmt, ap); /* cut to fit */
	va_end(ap);
	pthread_mutex_lock(&all_lock);
	for (s = all; s; s = s->log_next)
		if (s->log)
			s->log(level, sentence, s->log_ctx);
	pthread_mutex_unlock(&all_lock);
}

uintptr_t mrt__sched_thread(void)
{
	static __thread char here __attribute__((tls_model("initial-exec")));

	return (uintptr_t)&here;
}

struct mrt__outside *mrt__sched_outside(struct mrt__sched *s)
{
	static atomic_uint next;
	static __thread unsigned mine __attribute__((tls_model("initial-exec")));

	if (!mine) /* relaxed: the numbers need only be spread */
		mine = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % MRT__OUTSIDE_HEAPS_NR;
	return &s->outside[mine - 1];
}

static uint64_t wakes_of(const struct mrt__outside *out)
{
	/* relaxed: a count */
	return mrt__stat_get(&out->spawns) + atomic_load_explicit(&out->wakes, memory_order_relaxed);
}

uint64_t mrt__sched_remote_wakes(const struct mrt__sched *s)
{
	uint64_t nr = 0;
	unsigned i;

	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++)
		nr += wakes_of(&s->outside[i]);
	return nr;
}

void mrt__sched_await_outside(const struct mrt__sched *s)
{
	unsigned i;

	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++)
		/* [OUTSIDE.done] pairs with mrt__outside_end(). What it is compared with does not rise any more */
		while (atomic_load_explicit(&s->outside[i].done, memory_order_acquire) != wakes_of(&s->outside[i]))
			(void)sched_yield(); /* for a few instructions of theirs; cannot fail on Linux */
}

uint64_t mrt__sched_tasks_alive(const struct mrt__sched *s)
{
	uint64_t ends = 0, spawns = 0;
	unsigned i;

	/* [SCHED.ends.pub] ends first: each end that is seen has its spawn seen, so the difference is never too small */
	for (i = 0; i < s->workers_nr; i++)
		ends += __atomic_load_n(&s->stats[i].ends, __ATOMIC_ACQUIRE);
	for (i = 0; i < s->workers_nr; i++)
		spawns += mrt__stat_get(&s->stats[i].spawns);
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++)
		spawns += mrt__stat_get(&s->outside[i].spawns);
	return spawns - ends;
}

void mrt__sched_close(struct mrt__sched *s)
{
	unsigned i;

	/* [SCHED.closing.dekker] before the heaps are walked; pairs with mrt__task_spawn() and, through the wakes,
	 * with the relaxed look in mrt__worker_turn() */
	atomic_store_explicit(&s->closing, true, memory_order_seq_cst);
	for (i = 0; i < s->workers_nr; i++)
		mrt__sched_wake(s->workers[i]);
}
