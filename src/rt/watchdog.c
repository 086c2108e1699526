/* SPDX-License-Identifier: MIT */
/*
 * See watchdog.h. A worker that is stuck has the same poll count at two looks and is in a poll at both: words that it writes
 * anyway, so watching costs workers nothing.
 *
 * Why a thread of its own: the sentry is a worker, so there is none where all are stuck, and none where there is one worker
 * alone. A thread of the blocking pool may be kept from starting by calls that are stuck themselves. Timers of the kernel would
 * need a signal, and those are the application's. The thread wakes four times per limit, also where the runtime is idle; that is
 * the price of the option.
 */
#include "rt/watchdog.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "sched/sched.h"

#define NAME_BYTES 16
#define LOOKS_PER_LIMIT 4u
#define SENTENCES_MAX 8u        /* of one look; the rest are counted */

/* What is remembered of a worker. */
struct watched {
	uint64_t polls;         /* count at the last look */
	uint64_t seen_ns;       /* when it was seen in that poll first; 0: not yet */
	uint64_t next_ns;       /* said when it has lasted so long; doubled each time */
	bool told;
};

struct mrt__watchdog {
	struct mrt__sched *sched;
	uint64_t limit_ns;
	pthread_t thread;
	pthread_mutex_t lock;   /* of stop */
	pthread_cond_t changed;
	bool stop;
	unsigned said_nr, left_nr; /* in this look */
	struct watched workers[];
};

/*
 * "name, file+0x1234" for addr2line -e file 0x1234. dladdr(3) knows exported functions only. It waits for the dynamic loader's
 * lock, so a poll that is stuck in dlopen(3) is told of when that returns.
 */
static void describe(uint64_t fn, char *buf, size_t buf_bytes)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (!dladdr1((void *)(uintptr_t)fn, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		(void)snprintf(buf, buf_bytes, "%#llx", (unsigned long long)fn); /* cut to fit, as all here */
	else
		(void)snprintf(buf, buf_bytes, "%s%s%s+%#llx",
			       info.dli_sname && info.dli_saddr == (void *)(uintptr_t)fn ? info.dli_sname : "",
			       info.dli_sname && info.dli_saddr == (void *)(uintptr_t)fn ? ", " : "", info.dli_fname,
			       (unsigned long long)(fn - map->l_addr));
}

static void tell(struct mrt__watchdog *d, const struct mrt_worker_stats *s, uint64_t fn, uint64_t ns, bool exact)
{
	char what[256];

	describe(fn, what, sizeof(what));
	mrt__sched_log(d->sched, MRT_LOG_WARN, "worker %u (thread %d) has been in one poll for %s%llu ms: %s, task %#llx; its other "
		       "tasks wait: move what blocks or computes to mrt_blocking()", s->index, (int)mrt__stat_get(&s->tid),
		       exact ? "" : "at least ", (unsigned long long)(ns / MRT__NS_PER_MS), what,
		       (unsigned long long)mrt__stat_get(&s->poll_task));
}

static void tell_end(struct mrt__watchdog *d, const struct mrt_worker_stats *s, uint64_t ns)
{
	mrt__sched_log(d->sched, MRT_LOG_INFO, "worker %u (thread %d) goes on: that poll took about %llu ms", s->index,
		       (int)mrt__stat_get(&s->tid), (unsigned long long)(ns / MRT__NS_PER_MS));
}

/* May one more be said in this look? */
static bool may_say(struct mrt__watchdog *d)
{
	if (d->said_nr < SENTENCES_MAX) {
		d->said_nr++;
		return true;
	}
	d->left_nr++;
	return false;
}

static void look_at(struct mrt__watchdog *d, unsigned i, uint64_t now)
{
	const struct mrt_worker_stats *s = &d->sched->stats[i];
	struct watched *w = &d->workers[i];
	uint64_t polls = mrt__stat_get(&s->polls), fn = mrt__stat_get(&s->poll_fn), start = mrt__stat_get(&s->poll_start_ns);
	bool exact;

	if (!fn || polls != w->polls || !w->seen_ns) {
		if (w->told && may_say(d))
			tell_end(d, s, now - w->seen_ns);
		*w = (struct watched){ .polls = polls, .seen_ns = fn ? now : 0, .next_ns = d->limit_ns };
		return;
	}
	/* timed, if it is not the next poll's already */
	if (start && start < w->seen_ns)
		w->seen_ns = start;
	exact = start == w->seen_ns;
	if (now - w->seen_ns < w->next_ns || mrt__stat_get(&s->polls) != polls)
		return;
	w->next_ns = 2 * (now - w->seen_ns);
	w->told = true;
	if (may_say(d))
		tell(d, s, fn, now - w->seen_ns, exact);
}

static void look(struct mrt__watchdog *d)
{
	uint64_t now = mrt__clock_now();

	d->said_nr = d->left_nr = 0;
	for (unsigned i = 0; i < d->sched->workers_nr; i++)
		look_at(d, i, now);
	if (d->left_nr)
		mrt__sched_log(d->sched, MRT_LOG_WARN, "the same of %u further workers", d->left_nr);
}

static void *watchdog_main(void *arg)
{
	struct mrt__watchdog *d = arg;
	struct timespec ts;

	pthread_mutex_lock(&d->lock);
	while (!d->stop) {
		ts = mrt__clock_timespec(mrt__clock_add(mrt__clock_now(), d->limit_ns / LOOKS_PER_LIMIT));
		if (pthread_cond_timedwait(&d->changed, &d->lock, &ts) != ETIMEDOUT)
			continue;
		pthread_mutex_unlock(&d->lock);
		look(d);
		pthread_mutex_lock(&d->lock);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* Threads start with all signals blocked: signals are the application's. */
static int start(struct mrt__watchdog *d, const char *name)
{
	char thread_name[NAME_BYTES];
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&d->thread, NULL, watchdog_main, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -err;
	(void)snprintf(thread_name, sizeof(thread_name), "%.9s-watch", name);
	(void)pthread_setname_np(d->thread, thread_name); /* a wrong name harms nobody */
	return 0;
}

static void free_watchdog(struct mrt__watchdog *d)
{
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

int mrt__watchdog_create(struct mrt__sched *s, uint64_t limit_ns, const char *name, struct mrt__watchdog **ret_watchdog)
{
	struct mrt__watchdog *d = calloc(1, sizeof(*d) + s->workers_nr * sizeof(d->workers[0]));
	pthread_condattr_t attr;
	int err;

	if (!d)
		return -ENOMEM;
	d->sched = s;
	d->limit_ns = limit_ns;
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->changed, &attr);
	pthread_condattr_destroy(&attr);
	err = start(d, name);
	if (err) {
		free_watchdog(d);
		return err;
	}
	*ret_watchdog = d;
	return 0;
}

void mrt__watchdog_destroy(struct mrt__watchdog *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_signal(&d->changed);
	pthread_mutex_unlock(&d->lock);
	(void)pthread_join(d->thread, NULL); /* ours, and joined once */
	free_watchdog(d);
}
