/* SPDX-License-Identifier: MIT */
/*
 * The runtime: composes rings, workers, the blocking pool and the statistics; starts and stops the threads.
 *
 * Start. Rings are created here, disabled, so that what is missing shows in mrt_runtime_create(); each worker enables
 * its own and reports; if one cannot, all leave and the whole start fails.
 *
 * Shutdown, in phases (docs/shutdown.md): (1) closing: spawns are refused, the pool takes no more calls, every
 * worker aborts the tasks of its heap; (2) draining: workers go on until every task has ended, which means that every op
 * has been collected; (3) stopping: the worker that sees the last end wakes the others, each drains its own ring and
 * leaves; (4) the pool's threads are joined; (5) memory is freed. A limit may pass in 2 or 4: then nothing is freed,
 * what holds it up is named, and shutdown may be called again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <martlet/runtime.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "blocking/pool.h"
#include "ring/ring.h"
#include "rt/fork.h"
#include "rt/watchdog.h"
#include "sched/arena.h"
#include "sched/files.h"
#include "sched/layout.h"
#include "sched/sched.h"
#include "sched/worker.h"

#define NAME_BYTES 16
#define WHY_BYTES 512
#define REPORT_WAIT_NS (200 * MRT__NS_PER_MS)
#define ARENA_BYTES_MIN (UINT64_C(2) << 20)
#define ARENA_BYTES_MAX_DEFAULT (UINT64_C(1) << 30)

enum phase {
	PHASE_STARTING,
	PHASE_RUNNING,          /* start succeeded: workers go to work */
	PHASE_FAILED,           /* start failed: workers leave */
};

struct mrt_runtime {
	struct mrt__sched sched;        /* first: see mrt_spawn() */
	struct mrt__fork_link fork;
	char name[NAME_BYTES];
	unsigned rings_nr, workers_made, threads_nr;
	struct mrt__ring **rings;
	pthread_t *threads;
	struct mrt__watchdog *watchdog; /* NULL: none */

	pthread_mutex_t lock;           /* of what follows */
	pthread_cond_t changed;
	enum phase phase;
	unsigned enabled_nr;            /* workers that have reported */
	int start_err;                  /* the first failure among them */
	unsigned left_nr;               /* workers that have left their loop */
	unsigned joined_nr;
	int drain_err;                  /* a ring that could not be drained: leak it */

	pthread_mutex_t shutdown_lock;  /* one shutdown at a time */
	int enable_err;                 /* current-thread: the owner's ring could not be enabled */
	bool stopped;                   /* current-thread: its worker has left its loop */
};
_Static_assert(offsetof(struct mrt_runtime, sched) == 0, "mrt_spawn() casts");

/* ---- options ---- */

void mrt_runtime_opts_init(struct mrt_runtime_opts *opts)
{
	memset(opts, 0, sizeof(*opts));
	opts->size = sizeof(*opts);
}

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static int copy_opts(const struct mrt_runtime_opts *opts, struct mrt_runtime_opts *ret)
{
	const unsigned char *bytes = (const unsigned char *)opts;
	size_t i;

	mrt_runtime_opts_init(ret);
	if (!opts)
		return 0;
	if (opts->size == 0)
		return -EINVAL;
	for (i = sizeof(*ret); i < opts->size; i++)
		if (bytes[i])
			return -E2BIG;
	memcpy(ret, opts, mrt__min(opts->size, sizeof(*ret)));
	return 0;
}

__attribute__((format(printf, 3, 4)))
static void say_at(const struct mrt_runtime_opts *o, int level, const char *fmt, ...)
{
	char sentence[WHY_BYTES];
	va_list ap;

	if (!o->log)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(sentence, sizeof(sentence), fmt, ap); /* cut to fit */
	va_end(ap);
	o->log(level, sentence, o->log_ctx);
}

#define say(o, ...) say_at((o), MRT_LOG_ERROR, __VA_ARGS__)

/* One option's range; 0 was replaced by the default before. */
static int check_range(const struct mrt_runtime_opts *o, const char *name, uint64_t value, uint64_t min, uint64_t max)
{
	if (value >= min && value <= max)
		return 0;
	say(o, "option %s is %llu: it must be %llu..%llu", name, (unsigned long long)value, (unsigned long long)min,
	    (unsigned long long)max);
	return -EINVAL;
}

static int check_cpus(const struct mrt_runtime_opts *o)
{
	uint32_t i;

	if (o->cpus_nr > 0 && !o->cpus) {
		say(o, "option cpus_nr is %u but cpus is NULL", o->cpus_nr);
		return -EINVAL;
	}
	if (o->sqpoll_cpu && (*o->sqpoll_cpu < 0 || *o->sqpoll_cpu >= CPU_SETSIZE)) {
		say(o, "option sqpoll_cpu is %d: not a CPU number", *o->sqpoll_cpu);
		return -EINVAL;
	}
	for (i = 0; i < o->cpus_nr; i++) {
		if (o->cpus[i] >= 0 && o->cpus[i] < CPU_SETSIZE)
			continue;
		say(o, "option cpus[%u] is %d: not a CPU number", i, o->cpus[i]);
		return -EINVAL;
	}
	return 0;
}

static int fill_defaults(struct mrt_runtime_opts *o, unsigned cpus_allowed)
{
	const uint32_t flags = MRT_RUNTIME_FLOAT | MRT_RUNTIME_TUNE_INJECT | MRT_RUNTIME_TUNE_EVENTS |
			       MRT_RUNTIME_COOP_TASKRUN | MRT_RUNTIME_PLAIN_RINGS | MRT_RUNTIME_SQPOLL |
			       MRT_RUNTIME_HYBRID_POLL | MRT_RUNTIME_NVME | MRT_RUNTIME_STATS_PIN |
			       MRT_RUNTIME_STATS_MEMFD | MRT_RUNTIME_STATS_HEAP;
	bool single = o->flavour == MRT_FLAVOUR_CURRENT_THREAD;

	if (o->flags & ~flags) {
		say(o, "option flags has unknown bits %#x", o->flags & ~flags);
		return -EINVAL;
	}
	if (o->workers_nr == 0)
		o->workers_nr = single ? 1 : o->cpus_nr ? o->cpus_nr : cpus_allowed;
	if (o->sq_entries == 0)
		o->sq_entries = 256;
	if (check_range(o, "flavour", o->flavour, 0, 1) || check_cpus(o) ||
	    check_range(o, "workers_nr", o->workers_nr, 1, single ? 1 : MRT__WORKERS_MAX) ||
	    check_range(o, "sq_entries", o->sq_entries, 1, 32768))
		return -EINVAL;
	o->sq_entries = mrt__max(round_up_pow2(o->sq_entries), 8u); /* two are kept back for cancels and wakes */
	if (o->cq_entries == 0)
		o->cq_entries = mrt__min(8 * o->sq_entries, 65536u);
	if (o->inject_interval == 0)
		o->inject_interval = MRT__INTERVAL_DEFAULT;
	if (o->event_interval == 0)
		o->event_interval = MRT__INTERVAL_DEFAULT;
	if (o->blocking_threads_max == 0)
		o->blocking_threads_max = MRT__POOL_THREADS_DEFAULT;
	if (o->files_max == 0)
		o->files_max = MRT__FILES_DEFAULT;
	if (o->sqpoll_idle_ms == 0)
		o->sqpoll_idle_ms = 1000;
	if (o->arena_bytes_max == 0)
		o->arena_bytes_max = mrt__max(ARENA_BYTES_MAX_DEFAULT, o->arena_bytes);
	if (check_range(o, "files_max", o->files_max, 1, MRT__FILES_MAX) ||
	    check_range(o, "sqpoll_idle_ms", o->sqpoll_idle_ms, 1, 60000) ||
	    check_range(o, "arena_bytes_max", o->arena_bytes_max, ARENA_BYTES_MIN, MRT__ARENA_BYTES_MAX) ||
	    check_range(o, "arena_bytes", o->arena_bytes, 0, o->arena_bytes_max))
		return -EINVAL;
	if (o->watchdog_ns && check_range(o, "watchdog_ns", o->watchdog_ns, MRT__WATCHDOG_NS_MIN, MRT__WATCHDOG_NS_MAX))
		return -EINVAL;
	/* beyond the grace others would fire what a sleeper may still put off */
	if (check_range(o, "timer_slack_ns", o->timer_slack_ns, 0, MRT__SENTRY_GRACE_NS))
		return -EINVAL;
	o->files_max = round_up_pow2(o->files_max);
	if (check_range(o, "cq_entries", o->cq_entries, 2, 65536) ||
	    check_range(o, "inject_interval", o->inject_interval, 1, MRT__INTERVAL_MAX) ||
	    check_range(o, "event_interval", o->event_interval, 1, MRT__INTERVAL_MAX) ||
	    check_range(o, "blocking_threads_max", o->blocking_threads_max, 1, MRT__POOL_THREADS_MAX))
		return -EINVAL;
	o->cq_entries = mrt__max(round_up_pow2(o->cq_entries), o->sq_entries);
	if (o->seed == 0)
		o->seed = mrt__clock_now();
	return 0;
}

/* ---- a worker's thread ---- */

static void pin_self(struct mrt__worker *w)
{
	cpu_set_t set;
	int err;

	if (w->cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)w->cpu, &set);
	err = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (err) {
		mrt__sched_log(w->sched, MRT_LOG_WARN, "worker %u could not be pinned to CPU %d (%s): it floats", w->index,
			       w->cpu, strerrordesc_np(err));
		w->cpu = -1;
		mrt__stat_set(&w->stats->cpu, -1);
	}
}

/* What the thread that runs a worker needs, whoever made it. */
static int enter_worker(struct mrt__worker *w)
{
	mrt__worker_self = w;
	mrt__stat_set(&w->stats->tid, (int32_t)syscall(SYS_gettid));
	return mrt__ring_enable(w->ring, mrt__worker_iowq_cpus(w));
}

/* Report, and wait for the verdict. @return true: go to work */
static bool report_start(struct mrt_runtime *rt, int err)
{
	bool go;

	pthread_mutex_lock(&rt->lock);
	rt->enabled_nr++;
	if (err && !rt->start_err)
		rt->start_err = err;
	pthread_cond_broadcast(&rt->changed);
	while (rt->phase == PHASE_STARTING)
		pthread_cond_wait(&rt->changed, &rt->lock);
	go = rt->phase == PHASE_RUNNING;
	pthread_mutex_unlock(&rt->lock);
	return go;
}

static void leave_worker(struct mrt_runtime *rt, struct mrt__worker *w, bool enabled)
{
	int err = enabled ? mrt__worker_drain(w) : 0;

	mrt__stat_set(&w->stats->state, MRT_WORKER_STOPPED);
	mrt__worker_self = NULL;
	pthread_mutex_lock(&rt->lock);
	rt->left_nr++;
	if (err)
		rt->drain_err = err;
	pthread_cond_broadcast(&rt->changed);
	pthread_mutex_unlock(&rt->lock);
}

static void *worker_main(void *arg)
{
	struct mrt__worker *w = arg;
	struct mrt_runtime *rt = mrt__container_of(w->sched, struct mrt_runtime, sched);
	char name[NAME_BYTES + 16];
	bool stop = false;
	int err;

	(void)snprintf(name, sizeof(name), "%.9s-w%u", rt->name, w->index);
	name[NAME_BYTES - 1] = '\0';
	(void)pthread_setname_np(pthread_self(), name); /* a wrong name harms nobody */
	(void)prctl(PR_SET_TIMERSLACK, 1UL); /* the default rounds waits by 50 us; without it they are only later */
	pin_self(w);
	err = enter_worker(w);
	if (!report_start(rt, err)) {
		leave_worker(rt, w, err == 0);
		return NULL;
	}
	mrt__stat_set(&w->stats->state, MRT_WORKER_RUNNING);
	while (!stop) {
		switch (mrt__worker_ticks(w, NULL)) {
		case MRT__TICK_RAN:
			break;
		case MRT__TICK_PARK:
			mrt__worker_park(w);
			break;
		case MRT__TICK_STOP:
			stop = true;
			break;
		}
	}
	leave_worker(rt, w, true);
	return NULL;
}

/* ---- create ---- */

static int allowed_cpus(int *ret_cpus, unsigned max)
{
	cpu_set_t set;
	unsigned nr = 0;
	int cpu;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -errno;
	for (cpu = 0; cpu < CPU_SETSIZE && nr < max; cpu++)
		if (CPU_ISSET((unsigned)cpu, &set))
			ret_cpus[nr++] = cpu;
	return (int)nr;
}

static uint32_t ring_tier(const struct mrt_runtime_opts *o)
{
	return o->flags & MRT_RUNTIME_PLAIN_RINGS ? 2 : o->flags & MRT_RUNTIME_COOP_TASKRUN ? 1 : 0;
}

/* Where SQPOLL's thread runs: a CPU that no worker has. */
static int sqpoll_cpu(const struct mrt_runtime_opts *o, const int *cpus, unsigned cpus_nr)
{
	cpu_set_t allowed;
	unsigned i;
	int cpu;

	if (o->sqpoll_cpu)
		return *o->sqpoll_cpu;
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return -1;
	for (i = 0; i < o->workers_nr && i < cpus_nr; i++)
		CPU_CLR((size_t)cpus[i], &allowed);
	for (cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET((size_t)cpu, &allowed))
			return cpu;
	say_at(o, MRT_LOG_WARN, "SQPOLL: %u workers take all %u CPUs, so that its thread shares CPU %d with one of them: expect "
				"less I/O for more CPU time; use fewer workers, or no SQPOLL", o->workers_nr, cpus_nr,
	       cpus_nr ? cpus[cpus_nr - 1] : -1);
	return cpus_nr ? cpus[cpus_nr - 1] : -1;
}

static int make_rings(struct mrt_runtime *rt, const struct mrt_runtime_opts *o, const int *cpus, unsigned cpus_nr)
{
	uint32_t big = o->flags & MRT_RUNTIME_NVME ? MRT__RING_OPT_BIG : 0;
	bool sqpoll = o->flags & MRT_RUNTIME_SQPOLL;
	int sq_cpu = sqpoll ? sqpoll_cpu(o, cpus, cpus_nr) : -1;
	char why[WHY_BYTES] = "";
	int err;

	rt->sched.polled_opts = (struct mrt__ring_opts){
		.sq_entries = o->sq_entries, .cq_entries = o->cq_entries, .tier = ring_tier(o),
		.flags = big | MRT__RING_OPT_IOPOLL | (o->flags & MRT_RUNTIME_HYBRID_POLL ? MRT__RING_OPT_HYBRID : 0),
	};

	for (; rt->rings_nr < o->workers_nr; rt->rings_nr++) {
		struct mrt__ring_opts ro = { .sq_entries = o->sq_entries, .cq_entries = o->cq_entries,
					     .tier = ring_tier(o), .stats = &rt->sched.stats[rt->rings_nr],
					     .flags = big | (sqpoll ? MRT__RING_OPT_SQPOLL : 0), .sq_cpu = sq_cpu,
					     .sq_idle_ms = o->sqpoll_idle_ms,
					     .attach = sqpoll && rt->rings_nr ? rt->rings[0] : NULL };

		err = mrt__ring_create(&ro, &rt->rings[rt->rings_nr], why, sizeof(why));
		if (err) {
			say(o, "ring %u of %u: %s", rt->rings_nr + 1, o->workers_nr, why);
			return err;
		}
	}
	return 0;
}

/*
 * Where pinned workers' io-wq may run: on CPUs without a worker, if there are as many as workers. If not, where it inherits,
 * which is its worker's CPU (before 6.12 anywhere): kept off that one it would be on the others', and run against them
 * instead of when its own worker waits. (Both is not to be had: the kernel takes its mask and what it inherits together.)
 */
static void choose_iowq_cpus(struct mrt__sched *s, const int *cpus, unsigned cpus_nr)
{
	cpu_set_t free;
	unsigned i;

	CPU_ZERO(&s->iowq_cpus);
	if (sched_getaffinity(0, sizeof(free), &free))
		return; /* more CPUs than the set holds */
	for (i = 0; i < s->workers_nr && i < cpus_nr; i++)
		if (cpus[i] < CPU_SETSIZE)
			CPU_CLR((size_t)cpus[i], &free);
	if ((unsigned)CPU_COUNT(&free) >= s->workers_nr)
		s->iowq_cpus = free;
}

static int make_workers(struct mrt_runtime *rt, const struct mrt_runtime_opts *o, const int *cpus, unsigned cpus_nr)
{
	struct mrt__sched *s = &rt->sched;
	bool pin = !(o->flags & MRT_RUNTIME_FLOAT) && !s->current_thread && cpus_nr > 0;
	int err;

	choose_iowq_cpus(s, cpus, cpus_nr);
	for (; rt->workers_made < s->workers_nr; rt->workers_made++) {
		unsigned i = rt->workers_made;
		struct mrt_ring_report report;
		struct mrt__worker_opts wo = { .sched = s, .ring = rt->rings[i], .index = i,
					       .cpu = pin ? cpus[i % cpus_nr] : -1,
					       .seed = o->seed + i * UINT64_C(0x9e3779b97f4a7c15) };

		mrt__ring_report(rt->rings[i], &report);
		wo.cq_entries = report.cq_entries;
		mrt__stat_set(&s->stats[i].sq_entries, report.sq_entries);
		mrt__stat_set(&s->stats[i].cq_entries, report.cq_entries);
		err = mrt__worker_create(&wo, &s->workers[i]);
		if (err)
			return err;
	}
	return 0;
}

/* Threads start with all signals blocked: signals are the application's. */
static int start_threads(struct mrt_runtime *rt, const struct mrt_runtime_opts *o)
{
	sigset_t all, old;
	int err = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (; rt->threads_nr < rt->sched.workers_nr; rt->threads_nr++) {
		err = pthread_create(&rt->threads[rt->threads_nr], NULL, worker_main,
				     rt->sched.workers[rt->threads_nr]);
		if (err) {
			say(o, "worker thread %u could not be started: %s", rt->threads_nr, strerrordesc_np(err));
			break;
		}
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_mutex_lock(&rt->lock);
	while (rt->enabled_nr < rt->threads_nr)
		pthread_cond_wait(&rt->changed, &rt->lock);
	if (!err && rt->start_err) {
		bool forbidden = rt->start_err == -EPERM || rt->start_err == -EACCES || rt->start_err == -ENOSYS;

		err = forbidden ? EPERM : -rt->start_err;
		say(o, "a worker could not enable its ring: %s%s", strerrordesc_np(-rt->start_err),
		    forbidden ? "; io_uring_enter or io_uring_register is forbidden, probably by a seccomp filter: allow "
				"io_uring_setup, io_uring_enter and io_uring_register in its profile" : "");
	}
	rt->phase = err ? PHASE_FAILED : PHASE_RUNNING;
	pthread_cond_broadcast(&rt->changed);
	pthread_mutex_unlock(&rt->lock);
	return -err;
}

static void init_sched(struct mrt_runtime *rt, const struct mrt_runtime_opts *o)
{
	struct mrt__sched *s = &rt->sched;
	unsigned i;

	s->workers_nr = o->workers_nr;
	s->current_thread = o->flavour == MRT_FLAVOUR_CURRENT_THREAD;
	s->tune_inject = o->flags & MRT_RUNTIME_TUNE_INJECT;
	s->tune_events = o->flags & MRT_RUNTIME_TUNE_EVENTS;
	s->inject_interval = o->inject_interval;
	s->event_interval = o->event_interval;
	s->timer_slack_ns = o->timer_slack_ns;
	s->log = o->log;
	s->log_ctx = o->log_ctx;
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++) {
		pthread_mutex_init(&s->outside[i].lock, NULL);
		mrt__heap_init(&s->outside[i].heap);
	}
}

static void init_locks(struct mrt_runtime *rt)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&rt->lock, NULL);
	pthread_mutex_init(&rt->shutdown_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&rt->changed, &attr);
	pthread_condattr_destroy(&attr);
}

static void abandon(struct mrt__fork_link *link)
{
	struct mrt_runtime *rt = mrt__container_of(link, struct mrt_runtime, fork);
	unsigned i;

	for (i = 0; i < rt->rings_nr; i++)
		mrt__ring_abandon(rt->rings[i]);
	for (i = 0; i < rt->workers_made; i++)
		if (rt->sched.workers[i]->polled)
			mrt__ring_abandon(rt->sched.workers[i]->polled);
	mrt__arena_abandon(rt->sched.arena);
}

/* Every task has ended, so a cell that is in use is kept by a handle. */
static void report_handles(struct mrt__sched *s, unsigned workers_nr)
{
	uint64_t live = 0;
	unsigned i;

	for (i = 0; i < workers_nr; i++)
		live += mrt__heap_live(&s->workers[i]->heap);
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++)
		live += mrt__heap_live(&s->outside[i].heap);
	if (live > 0)
		mrt__sched_log(s, MRT_LOG_WARN,
			       "%llu task handles were neither joined nor detached before the runtime was destroyed: they are "
			       "not valid any more",
			       (unsigned long long)live);
}

/* Free a runtime whose threads have all been joined (or never started). */
static void free_runtime(struct mrt_runtime *rt)
{
	struct mrt__sched *s = &rt->sched;
	unsigned i;

	mrt__sched_await_outside(s);
	mrt__watchdog_destroy(rt->watchdog);
	report_handles(s, rt->workers_made);
	mrt__sched_log_remove(s);
	mrt__fork_remove(&rt->fork);
	mrt__pool_destroy(s->pool);
	for (i = 0; i < rt->workers_made; i++)
		mrt__worker_destroy(s->workers[i]);
	for (i = 0; i < rt->rings_nr; i++)
		mrt__ring_destroy(rt->rings[i]);
	mrt__files_destroy(s->files);
	mrt__arena_destroy(s->arena);
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++) {
		mrt__heap_fini(&s->outside[i].heap);
		pthread_mutex_destroy(&s->outside[i].lock);
	}
	mrt__idle_fini(&s->idle);
	mrt__stats_destroy(&s->stats_mem);
	pthread_cond_destroy(&rt->changed);
	pthread_mutex_destroy(&rt->lock);
	pthread_mutex_destroy(&rt->shutdown_lock);
	free(s->workers);
	free(rt->rings);
	free(rt->threads);
	free(rt);
}

static void join_threads(struct mrt_runtime *rt)
{
	for (; rt->joined_nr < rt->threads_nr; rt->joined_nr++)
		(void)pthread_join(rt->threads[rt->joined_nr], NULL); /* ours, and joined once */
}

/* Where the statistics live; what is missing there is said, and is no reason not to start. */
static int make_stats(struct mrt_runtime *rt, const struct mrt_runtime_opts *o)
{
	struct mrt__stats_opts so = { .workers_nr = o->workers_nr, .name = rt->name, .flavour = o->flavour,
				      .now_ns = mrt__clock_now(),
				      .backend = o->flags & MRT_RUNTIME_STATS_HEAP	? MRT__STATS_HEAP :
						 o->flags & MRT_RUNTIME_STATS_MEMFD ? MRT__STATS_MEMFD :
										      MRT__STATS_BPF };
	struct mrt__stats *stats = &rt->sched.stats_mem;
	int err = mrt__stats_create(&so, stats);

	if (err)
		return err;
	mrt__sched_attach_stats(&rt->sched);
	if (stats->bpf_error)
		mrt__sched_log(&rt->sched, MRT_LOG_DEBUG, "statistics are in a %s, not in BPF maps: %s%s",
			       mrt__stats_backend_name(stats->backend), strerrordesc_np(-stats->bpf_error),
			       stats->bpf_error == -EPERM ? " (CAP_BPF is missing)" : "");
	if (o->flags & MRT_RUNTIME_STATS_PIN) {
		err = mrt__stats_pin(stats);
		if (err)
			mrt__sched_log(&rt->sched, MRT_LOG_WARN, "statistics are not pinned in /sys/fs/bpf/mrt: %s",
				       err == -EOPNOTSUPP ? "there are no BPF maps" : strerrordesc_np(-err));
	}
	return 0;
}

static int alloc_parts(struct mrt_runtime *rt, const struct mrt_runtime_opts *o)
{
	struct mrt__sched *s = &rt->sched;
	int err = make_stats(rt, o);

	s->workers = calloc(s->workers_nr, sizeof(struct mrt__worker *));
	rt->rings = calloc(s->workers_nr, sizeof(struct mrt__ring *));
	rt->threads = calloc(s->workers_nr, sizeof(pthread_t));
	if (!s->workers || !rt->rings || !rt->threads)
		return -ENOMEM;
	return err ? err : mrt__idle_init(&s->idle, s->workers_nr);
}

/* Parts that say nothing themselves. @return err */
static int tell(const struct mrt_runtime_opts *o, const char *part, int err)
{
	if (err)
		say(o, "no room for %s: %s; ask for fewer workers, or see which limit is reached (ulimit -a)", part,
		    strerrordesc_np(-err));
	return err;
}

static int build(struct mrt_runtime *rt, const struct mrt_runtime_opts *o, const int *cpus, unsigned cpus_nr)
{
	struct mrt__pool_opts po = { .threads_max = o->blocking_threads_max, .queue_max = o->blocking_queue_max,
				     .keep_alive_ns = o->blocking_keep_alive_ns, .name = rt->name };
	struct mrt__arena_opts ao = { .sched = &rt->sched, .bytes = o->arena_bytes, .bytes_max = o->arena_bytes_max,
				      .workers_nr = o->workers_nr };
	int err = tell(o, "the tables and the statistics", alloc_parts(rt, o));

	po.stats = rt->sched.stats_mem.global;
	if (!err)
		err = make_rings(rt, o, cpus, cpus_nr);
	if (!err)
		err = tell(o, "the registered files", mrt__files_create(&rt->sched, o->files_max, &rt->sched.files));
	if (!err)
		err = tell(o, "the arena", mrt__arena_create(&ao, &rt->sched.arena));
	if (!err)
		err = tell(o, "the workers", make_workers(rt, o, cpus, cpus_nr));
	if (!err)
		err = tell(o, "the blocking pool", mrt__pool_create(&po, &rt->sched.pool));
	if (!err)
		err = tell(o, "a fork handler", mrt__fork_add(&rt->fork));
	if (!err && o->watchdog_ns)
		err = tell(o, "the watchdog", mrt__watchdog_create(&rt->sched, o->watchdog_ns, rt->name, &rt->watchdog));
	if (!err && !rt->sched.current_thread)
		err = start_threads(rt, o);
	return err;
}

/* All is built: who looks from outside may follow pointers from here on. */
static void publish(struct mrt_runtime *rt)
{
	mrt__stat_set(&rt->sched.stats_mem.global->runtime, (uintptr_t)&rt->sched);
	mrt__stat_set(&rt->sched.stats_mem.global->layout, (uintptr_t)&mrt__layout);
}

int mrt_runtime_create(const struct mrt_runtime_opts *opts, struct mrt_runtime **ret_rt)
{
	int cpus[CPU_SETSIZE], cpus_nr, err;
	struct mrt_runtime_opts o;
	struct mrt_runtime *rt;

	if (mrt__sched_is_forked())
		return -ECHILD;
	if (mrt__worker_self)
		return -EDEADLK;
	err = copy_opts(opts, &o);
	if (err)
		return err;
	cpus_nr = allowed_cpus(cpus, CPU_SETSIZE);
	err = fill_defaults(&o, cpus_nr > 0 ? (unsigned)cpus_nr : 1);
	if (err)
		return err;
	rt = aligned_alloc(MRT__CACHE_PAIR, (sizeof(*rt) + MRT__CACHE_PAIR - 1) & ~(size_t)(MRT__CACHE_PAIR - 1));
	if (!rt)
		return -ENOMEM;
	memset(rt, 0, sizeof(*rt));
	rt->fork.abandon = abandon;
	(void)snprintf(rt->name, sizeof(rt->name), "%s", o.name ? o.name : "mrt"); /* cut to fit */
	init_locks(rt);
	init_sched(rt, &o);
	err = o.cpus_nr ? build(rt, &o, o.cpus, o.cpus_nr) : build(rt, &o, cpus, cpus_nr > 0 ? (unsigned)cpus_nr : 0);
	if (err) {
		join_threads(rt);
		if (rt->drain_err) {
			mrt__watchdog_destroy(rt->watchdog);
			say(&o, "a ring still holds requests of the kernel's: its memory is not freed");
		} else {
			free_runtime(rt);
		}
		return err;
	}
	publish(rt);
	mrt__sched_log_add(&rt->sched);
	*ret_rt = rt;
	return 0;
}

/* ---- drive a current-thread runtime ---- */

/* Become the owner, or check that we are. */
static int claim(struct mrt_runtime *rt)
{
	uintptr_t me = mrt__sched_thread(), none = 0;

	/* relaxed: the owner compares with itself; another thread only learns that it is not */
	if (atomic_compare_exchange_strong_explicit(&rt->sched.owner, &none, me, memory_order_relaxed,
						    memory_order_relaxed)) {
		rt->enable_err = enter_worker(rt->sched.workers[0]);
		mrt__worker_self = NULL;
		none = me;
	}
	return none == me ? rt->enable_err : -EXDEV;
}

/*
 * Park, but not beyond the deadline. The thread is the caller's: its timer slack is made small for the first wait and
 * given back at the end (the system call is slow, and many drives never wait). *slack: 0 until then.
 */
static void park_until(struct mrt__worker *w, uint64_t deadline_ns, int *slack)
{
	uint64_t timeout_ns, now;

	if (!mrt__worker_park_begin(w, &timeout_ns))
		return;
	if (deadline_ns != UINT64_MAX) {
		now = mrt__clock_now();
		timeout_ns = mrt__min(timeout_ns, deadline_ns > now ? deadline_ns - now : 0);
	}
	if (*slack == 0 && timeout_ns != UINT64_MAX) {
		*slack = prctl(PR_GET_TIMERSLACK);
		(void)prctl(PR_SET_TIMERSLACK, 1UL); /* without it waits are only a little later */
	}
	mrt__ring_wait(w->ring, timeout_ns);
	mrt__worker_park_end(w);
}

/* Run until `root` has ended (NULL: until the runtime stops) or the deadline. @return true: that happened */
static bool drive(struct mrt_runtime *rt, const struct mrt_task *root, uint64_t deadline_ns)
{
	struct mrt__worker *w = rt->sched.workers[0];
	bool done = false;
	int slack = 0;

	mrt__worker_self = w;
	mrt__stat_set(&w->stats->state, MRT_WORKER_RUNNING);
	mrt__meter_look(&w->meter); /* between two drives is as good as a sleep */
	while (!done) {
		enum mrt__tick tick;

		if (root && mrt__task_has_ended(root))
			break;
		tick = deadline_ns == UINT64_MAX ? mrt__worker_ticks(w, root) : mrt__worker_tick(w);
		if (tick == MRT__TICK_STOP)
			done = true;
		else if (deadline_ns != UINT64_MAX && mrt__clock_now() >= deadline_ns)
			break;
		else if (tick == MRT__TICK_PARK)
			park_until(w, deadline_ns, &slack);
	}
	if (slack > 0)
		(void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack); /* the caller's thread, as it was */
	mrt__worker_flush(w); /* what other tasks have started: until the next drive nobody would */
	mrt__worker_self = NULL;
	return done || (root && mrt_task_is_finished(root));
}

/* ---- block_on ---- */

int mrt_block_on(struct mrt_runtime *rt, mrt_poll_fn fn, void *frame, size_t frame_bytes, int64_t *ret_result)
{
	struct mrt__spawn sp = { .fn = fn, .frame = frame, .frame_bytes = frame_bytes };
	struct mrt_task *root;
	int64_t result;
	int err;

	if (mrt__sched_is_forked())
		return -ECHILD;
	if (mrt__worker_self)
		return -EDEADLK;
	if (rt->sched.current_thread) {
		err = claim(rt);
		if (err)
			return err;
	}
	err = mrt__task_spawn(&rt->sched, &sp, &root);
	if (err)
		return err;
	mrt__task_ref(root); /* its frame is read after the join */
	if (rt->sched.current_thread)
		(void)drive(rt, root, UINT64_MAX); /* returns when root has ended */
	err = mrt_task_join_wait(root, &result);
	mrt__assert(err == 0);
	if (frame && frame_bytes)
		memcpy(frame, mrt__task_frame(root), frame_bytes);
	mrt__task_unref(root);
	if (ret_result)
		*ret_result = result;
	return 0;
}

/* ---- shutdown ---- */

/* @return true: all workers have left their loops */
static bool wait_workers(struct mrt_runtime *rt, uint64_t deadline_ns)
{
	struct timespec ts = mrt__clock_timespec(deadline_ns);
	bool all;

	pthread_mutex_lock(&rt->lock);
	while (rt->left_nr < rt->threads_nr) {
		if (deadline_ns == UINT64_MAX)
			pthread_cond_wait(&rt->changed, &rt->lock);
		else if (pthread_cond_timedwait(&rt->changed, &rt->lock, &ts) == ETIMEDOUT)
			break;
	}
	all = rt->left_nr == rt->threads_nr;
	pthread_mutex_unlock(&rt->lock);
	return all;
}

static void name_stuck(struct mrt_runtime *rt, struct mrt__worker *w)
{
	uint64_t fn = mrt__stat_get(&w->stats->poll_fn);
	Dl_info info;
	const char *symbol = "?";

	if (fn && dladdr((void *)(uintptr_t)fn, &info) && info.dli_sname)
		symbol = info.dli_sname;
	mrt__sched_log(&rt->sched, MRT_LOG_WARN, "worker %u does not answer: it is in poll function %s (%#llx)", w->index,
		       symbol, (unsigned long long)fn);
}

/* The limit has passed: let the workers say what their tasks wait for, and name those that do not answer. */
static void report_holdups(struct mrt_runtime *rt)
{
	struct mrt__sched *s = &rt->sched;
	uint64_t until = mrt__clock_now() + REPORT_WAIT_NS;
	struct timespec pause = { .tv_nsec = 1000000 };
	unsigned i;

	mrt__sched_log(s, MRT_LOG_WARN, "shutdown is late: %llu tasks have not ended",
		       (unsigned long long)mrt__sched_tasks_alive(s));
	for (i = 0; i < s->workers_nr; i++) {
		/* [WORKER.report.ask] the wake publishes it ([PARK.state.dekker]); pairs with mrt__worker_turn() */
		atomic_store_explicit(&s->workers[i]->report, true, memory_order_release);
		mrt__sched_wake(s->workers[i]);
	}
	if (s->current_thread) {
		mrt__worker_self = s->workers[0];
		(void)mrt__worker_turn(s->workers[0]); /* this very thread answers */
		mrt__worker_self = NULL;
		return;
	}
	for (i = 0; i < s->workers_nr; i++) {
		/* [WORKER.report.done] acquire: its sentences are out; pairs with report_tasks() */
		while (atomic_load_explicit(&s->workers[i]->report, memory_order_acquire) && mrt__clock_now() < until)
			(void)nanosleep(&pause, NULL); /* bounded by `until` */
		if (atomic_load_explicit(&s->workers[i]->report, memory_order_relaxed))
			name_stuck(rt, s->workers[i]);
	}
}

static int stop_current_thread(struct mrt_runtime *rt, uint64_t deadline_ns)
{
	struct mrt__worker *w = rt->sched.workers[0];

	if (rt->stopped)
		return 0;
	if (!drive(rt, NULL, deadline_ns)) {
		report_holdups(rt);
		return -ETIMEDOUT;
	}
	mrt__worker_self = w;
	rt->drain_err = mrt__worker_drain(w);
	mrt__worker_self = NULL;
	mrt__stat_set(&w->stats->state, MRT_WORKER_STOPPED);
	rt->stopped = true;
	return 0;
}

/* With the shutdown lock. */
static int shut_down(struct mrt_runtime *rt, uint64_t deadline_ns)
{
	uint32_t running = 0;
	int err = 0;

	mrt__sched_close(&rt->sched);
	mrt__files_close(rt->sched.files);
	mrt__pool_shutdown(rt->sched.pool);
	if (rt->sched.current_thread) {
		err = stop_current_thread(rt, deadline_ns);
	} else if (!wait_workers(rt, deadline_ns)) {
		report_holdups(rt);
		err = -ETIMEDOUT;
	} else {
		join_threads(rt);
	}
	if (err)
		return err;
	err = mrt__pool_join_wait(rt->sched.pool, deadline_ns, &running);
	if (err)
		mrt__sched_log(&rt->sched, MRT_LOG_WARN, "shutdown is late: %u blocking calls are still running", running);
	return err;
}

int mrt_runtime_shutdown_wait(struct mrt_runtime *rt, uint64_t timeout_ns)
{
	uint64_t deadline_ns;
	int err;

	if (mrt__sched_is_forked())
		return -ECHILD;
	if (mrt__worker_self)
		return -EDEADLK;
	if (rt->sched.current_thread && !rt->stopped) {
		err = claim(rt); /* a refused call closes nothing */
		if (err)
			return err;
	}
	deadline_ns = mrt__clock_add(mrt__clock_now(), timeout_ns);
	pthread_mutex_lock(&rt->shutdown_lock);
	err = shut_down(rt, deadline_ns);
	pthread_mutex_unlock(&rt->shutdown_lock);
	return err;
}

void mrt_runtime_destroy(struct mrt_runtime *rt)
{
	int err;

	if (!rt || mrt__sched_is_forked())
		return;
	err = mrt_runtime_shutdown_wait(rt, UINT64_MAX);
	/* current-thread: where its ring was never usable, nothing ever ran */
	if (err && !rt->enable_err) {
		mrt__sched_log(&rt->sched, MRT_LOG_ERROR, "mrt_runtime_destroy: %s; the runtime stays alive",
			       strerrordesc_np(-err));
		return;
	}
	if (rt->drain_err) {
		mrt__sched_log(&rt->sched, MRT_LOG_ERROR,
			       "a ring still holds requests of the kernel's: the runtime's memory is not freed");
		mrt__watchdog_destroy(rt->watchdog);
		mrt__sched_log_remove(&rt->sched); /* its context may go with the caller */
		return;
	}
	free_runtime(rt);
}

/* ---- views ---- */

unsigned mrt_runtime_workers_nr(const struct mrt_runtime *rt)
{
	return rt->sched.workers_nr;
}

struct mrt_runtime *mrt_runtime_self(void)
{
	struct mrt__worker *w = mrt__worker_self;

	return w && w->task ? mrt__container_of(w->sched, struct mrt_runtime, sched) : NULL;
}

int mrt_runtime_ring_report(const struct mrt_runtime *rt, struct mrt_ring_report *ret_report)
{
	if (!rt || !ret_report)
		return -EINVAL;
	mrt__ring_report(rt->rings[0], ret_report);
	return 0;
}

int mrt_stats_get(const struct mrt_runtime *rt, unsigned worker, struct mrt_worker_stats *ret_stats)
{
	if (!rt || worker >= rt->sched.workers_nr)
		return -EINVAL;
	mrt__stat_block_copy(MRT__STAT_WORKERS, &rt->sched.stats[worker], ret_stats);
	if (ret_stats->poll_fn && ret_stats->state == MRT_WORKER_RUNNING)
		ret_stats->state = MRT_WORKER_POLLING;
	return 0;
}

int mrt_stats_global_get(struct mrt_runtime *rt, struct mrt_global_stats *ret_stats)
{
	struct mrt__pool_stats pool;
	unsigned i;

	if (!rt)
		return -EINVAL;
	mrt__stat_block_copy(MRT__STAT_GLOBAL, rt->sched.stats_mem.global, ret_stats);
	ret_stats->inject_depth = mrt__inject_len(&rt->sched.inject);
	ret_stats->tasks_alive = (int64_t)mrt__sched_tasks_alive(&rt->sched);
	ret_stats->timers = 0;
	for (i = 0; i < rt->sched.workers_nr; i++)
		ret_stats->timers += (int64_t)mrt__stat_get(&rt->sched.stats[i].timers);
	mrt__pool_stats_get(rt->sched.pool, &pool);
	ret_stats->blocking_threads = pool.threads;
	ret_stats->blocking_idle = pool.idle;
	ret_stats->blocking_queued = pool.queued;
	ret_stats->spawns_outside = 0;
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++)
		ret_stats->spawns_outside += mrt__stat_get(&rt->sched.outside[i].spawns);
	ret_stats->remote_wakes = mrt__sched_remote_wakes(&rt->sched);
	return 0;
}

int mrt_stats_hists_get(const struct mrt_runtime *rt, unsigned worker, struct mrt_worker_hists *ret_hists)
{
	if (!rt || worker >= rt->sched.workers_nr)
		return -EINVAL;
	mrt__stat_block_copy(MRT__STAT_HISTS, &rt->sched.stats_mem.hists[worker], ret_hists);
	return 0;
}

const char *mrt_stats_backend(const struct mrt_runtime *rt)
{
	return rt ? mrt__stats_backend_name(rt->sched.stats_mem.backend) : NULL;
}

const char *mrt_version(void)
{
	return MRT_VERSION;
}
