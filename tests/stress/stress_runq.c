/* SPDX-License-Identifier: MIT */
/*
 * The local queue, the next slot, and the sleep protocol under real threads; meant to run under ThreadSanitizer too,
 * which checks the memory orders that the model checker cannot. Proven: every task is taken exactly once, its plain fields
 * written before the push are seen by the taker, and no wake is lost.
 *
 * Environment: MRT_SEED (printed at the start), MRT_STRESS_MS (default 2000, shared by the cases). The thieves' speed
 * is not reproducible, so a seed only repeats the owner's choices.
 */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/rand.h"
#include "sched/idle.h"
#include "sched/park.h"
#include "sched/runq.h"

#define THIEVES_NR 2u
#define TASKS_NR 4096u
#define HANG_MS 20000

/* Both fields plain on purpose: only the queue orders their accesses between threads. */
struct mrt_task {
	uint64_t serial;        /* written by the owner before the push */
	bool queued;            /* true from push to take */
};

static void fail(const char *what, uint64_t a, uint64_t b)
{
	(void)fprintf(stderr, "FAILED: %s (%" PRIu64 ", %" PRIu64 ")\n", what, a, b); /* best effort */
	abort();
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s != NULL && *s != '\0' ? strtoull(s, NULL, 0) : otherwise;
}

static void start_thread(pthread_t *ret, void *(*fn)(void *), void *arg)
{
	if (pthread_create(ret, NULL, fn, arg) != 0)
		fail("pthread_create", 0, 0);
}

static void join_thread(pthread_t t)
{
	if (pthread_join(t, NULL) != 0)
		fail("pthread_join", 0, 0);
}

/* --- every task exactly once: owner and two thieves, tasks recycled through a bin --- */

struct mill {
	struct mrt__runq victim;
	struct mrt__runq thief_q[THIEVES_NR];
	struct mrt_task *tasks;
	/* a bin of free tasks per thread that takes: only its taker puts, only the owner collects, by exchange */
	_Atomic(struct mrt_task *) bin[THIEVES_NR][TASKS_NR];
	atomic_bool stop;
	_Atomic uint64_t stolen_nr[THIEVES_NR], ops_nr[THIEVES_NR], next_nr[THIEVES_NR];
	atomic_uint thief_id;
	uint64_t seed;
};

static struct mill mill;

/* The taker's side of "exactly once". */
static void take(struct mrt_task *task)
{
	if (!task->queued)
		fail("a task was taken twice", task->serial, 0);
	task->queued = false;
}

static void thief_return(unsigned id, struct mrt_task *task)
{
	take(task);
	/* [TEST.bin.put] hands the task back; pairs with [TEST.bin.get] */
	atomic_store_explicit(&mill.bin[id][task - mill.tasks], task, memory_order_release);
}

static void thief_round(unsigned id, bool last_pass)
{
	struct mrt__runq *mine = &mill.thief_q[id];
	struct mrt_task *task;
	unsigned nr = 0;
	uint64_t moved = 0;

	task = mrt__runq_steal(&mill.victim, mine, &nr);
	if (task == NULL && last_pass) {
		/* the other thief's queue, and the next slot */
		task = mrt__runq_steal(&mill.thief_q[1 - id], mine, &nr);
		if (task == NULL) {
			task = mrt__runq_next_take(&mill.victim);
			if (task == NULL)
				return;
			thief_return(id, task);
			atomic_fetch_add_explicit(&mill.next_nr[id], 1, memory_order_relaxed);
			return;
		}
	}
	if (task == NULL)
		return;
	if (nr > MRT__RUNQ_SLOTS / 2)
		fail("stole more than half", nr, 0);
	do {
		thief_return(id, task);
		moved++;
		task = mrt__runq_pop(mine);
	} while (task != NULL);
	/* not nr: the other thief may have taken some from here */
	atomic_fetch_add_explicit(&mill.stolen_nr[id], moved, memory_order_relaxed);
	atomic_fetch_add_explicit(&mill.ops_nr[id], 1, memory_order_relaxed);
}

static void *thief_main(void *arg)
{
	unsigned id = atomic_fetch_add_explicit(&mill.thief_id, 1, memory_order_relaxed);
	struct mrt__rand rand;

	(void)arg;
	mrt__rand_init(&rand, mill.seed + id + 1);
	while (!atomic_load_explicit(&mill.stop, memory_order_acquire)) {
		thief_round(id, mrt__rand_below(&rand, 4) == 0);
		if (mrt__rand_below(&rand, 64) == 0)
			(void)sched_yield(); /* cannot fail on Linux */
	}
	return NULL;
}

/* The owner's list of tasks that are in no queue. */
struct free_list {
	struct mrt_task *items[TASKS_NR];
	unsigned nr;
};

static void collect_bins(struct free_list *fl)
{
	unsigned id, i;

	for (id = 0; id < THIEVES_NR; id++) {
		for (i = 0; i < TASKS_NR; i++) {
			struct mrt_task *task;

			if (atomic_load_explicit(&mill.bin[id][i], memory_order_relaxed) == NULL)
				continue;
			/* [TEST.bin.get] */
			task = atomic_exchange_explicit(&mill.bin[id][i], NULL, memory_order_acquire);
			if (task->queued)
				fail("a task is in a bin and in a queue", task->serial, 0);
			fl->items[fl->nr++] = task;
		}
	}
}

static void owner_return(struct free_list *fl, struct mrt_task *task)
{
	take(task);
	fl->items[fl->nr++] = task;
}

static void owner_push(struct free_list *fl, uint64_t *serial, uint64_t *out_nr, bool by_next)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX], *task = fl->items[--fl->nr];
	unsigned nr = 0, i;

	task->serial = ++*serial;
	task->queued = true;
	if (by_next)
		task = mrt__runq_next_swap(&mill.victim, task);
	if (task == NULL || mrt__runq_push(&mill.victim, task, batch, &nr) == MRT__RUNQ_PUSHED)
		return;
	if (batch[nr - 1] != task || (nr != 1 && nr != MRT__RUNQ_BATCH_MAX))
		fail("a batch of the wrong shape", nr, 0);
	*out_nr += nr;
	for (i = 0; i < nr; i++)
		owner_return(fl, batch[i]);
}

static void case_mill(uint64_t seed, uint64_t ms)
{
	static struct free_list fl;
	uint64_t serial = 0, popped = 0, out_nr = 0, stolen = 0, ops = 0, nexts = 0, rounds = 0;
	uint64_t end = mrt__clock_now() + ms * MRT__NS_PER_MS;
	pthread_t threads[THIEVES_NR];
	struct mrt_task *task;
	struct mrt__rand rand;
	unsigned i;

	memset(&mill, 0, sizeof(mill));
	mill.seed = seed;
	mrt__rand_init(&rand, seed);
	mrt__runq_init(&mill.victim, UINT32_MAX - 1000, false);
	for (i = 0; i < THIEVES_NR; i++)
		mrt__runq_init(&mill.thief_q[i], UINT32_MAX - 500, false);
	mill.tasks = calloc(TASKS_NR, sizeof(*mill.tasks));
	if (mill.tasks == NULL)
		fail("no memory", 0, 0);
	for (i = 0, fl.nr = 0; i < TASKS_NR; i++)
		fl.items[fl.nr++] = &mill.tasks[i];
	for (i = 0; i < THIEVES_NR; i++)
		start_thread(&threads[i], thief_main, NULL);
	while (mrt__clock_now() < end) {
		/* pushes up to twice the ring in a row, then some pops */
		unsigned pushes = mrt__rand_below(&rand, 512), pops = mrt__rand_below(&rand, 256);

		for (; pushes > 0 && fl.nr > 0; pushes--)
			owner_push(&fl, &serial, &out_nr, mrt__rand_below(&rand, 4) == 0);
		if (mrt__rand_below(&rand, 2) == 0) {
			task = mrt__runq_next_take(&mill.victim);
			if (task != NULL) {
				owner_return(&fl, task);
				popped++;
			}
		}
		for (; pops > 0 && (task = mrt__runq_pop(&mill.victim)) != NULL; pops--) {
			owner_return(&fl, task);
			popped++;
		}
		if (++rounds % 8 == 0 || fl.nr < TASKS_NR / 2)
			collect_bins(&fl);
	}
	/* [TEST.stop] nothing more than the end */
	atomic_store_explicit(&mill.stop, true, memory_order_release);
	for (i = 0; i < THIEVES_NR; i++)
		join_thread(threads[i]);
	while ((task = mrt__runq_pop(&mill.victim)) != NULL) {
		owner_return(&fl, task);
		popped++;
	}
	task = mrt__runq_next_take(&mill.victim);
	if (task != NULL) {
		owner_return(&fl, task);
		popped++;
	}
	collect_bins(&fl);
	for (i = 0; i < THIEVES_NR; i++) {
		stolen += atomic_load_explicit(&mill.stolen_nr[i], memory_order_relaxed);
		ops += atomic_load_explicit(&mill.ops_nr[i], memory_order_relaxed);
		nexts += atomic_load_explicit(&mill.next_nr[i], memory_order_relaxed);
		if (!mrt__runq_check(&mill.thief_q[i], stderr) || mrt__runq_len(&mill.thief_q[i]) != 0)
			fail("a thief left tasks", i, 0);
	}
	if (fl.nr != TASKS_NR)
		fail("tasks were lost: back, made", fl.nr, TASKS_NR);
	if (popped + out_nr + stolen + nexts != serial)
		fail("the sums differ: taken, pushed", popped + out_nr + stolen + nexts, serial);
	if (!mrt__runq_check(&mill.victim, stderr))
		fail("the queue is inconsistent", 0, 0);
	(void)printf("mill: pushed %" PRIu64 " = popped %" PRIu64 " + overflow %" PRIu64 " + stolen %" PRIu64 " (in %"
		     PRIu64 ") + next slot stolen %" PRIu64 "\n", serial, popped, out_nr, stolen, ops, nexts);
	free(mill.tasks);
}

/* --- Tokio's two queue stresses, to their numbers --- */

static struct mrt__runq tokio_q;
static struct mrt_task tokio_task; /* one task in many copies: only numbers are compared here */
static uint64_t tokio_stolen;

static uint64_t drain(struct mrt__runq *q)
{
	uint64_t nr = 0;

	while (mrt__runq_pop(q) != NULL)
		nr++;
	return nr;
}

static void *tokio_thief(void *arg)
{
	const unsigned *rounds = arg;
	struct mrt__runq mine;
	unsigned i, nr;

	mrt__runq_init(&mine, 0, false);
	for (i = 0; i < *rounds; i++) {
		if (mrt__runq_steal(&tokio_q, &mine, &nr) != NULL)
			tokio_stolen += 1 + drain(&mine);
		(void)sched_yield(); /* cannot fail on Linux */
	}
	return NULL;
}

static uint64_t push_counted(void)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr = 0;

	return mrt__runq_push(&tokio_q, &tokio_task, batch, &nr) == MRT__RUNQ_PUSHED ? 0 : nr;
}

/* 1,000 x (500 pushes, up to 250 pops) against a thief with 1,000 rounds. */
static void case_tokio_1(void)
{
	unsigned rounds = 1000, i, j;
	uint64_t taken = 0;
	pthread_t thief;

	mrt__runq_init(&tokio_q, UINT32_MAX - 100000, false);
	tokio_stolen = 0;
	start_thread(&thief, tokio_thief, &rounds);
	for (i = 0; i < 1000; i++) {
		for (j = 0; j < 500; j++)
			taken += push_counted();
		for (j = 0; j < 250 && mrt__runq_pop(&tokio_q) != NULL; j++)
			taken++;
	}
	join_thread(thief);
	taken += tokio_stolen + drain(&tokio_q);
	if (taken != 500000)
		fail("tokio 1: taken, pushed", taken, 500000);
	(void)printf("tokio 1: 500000, of which stolen %" PRIu64 "\n", tokio_stolen);
}

/* 1,000,000 pushes with a pop every 128, against a slow thief. */
static void case_tokio_2(void)
{
	unsigned rounds = 5000, i;
	uint64_t taken = 0;
	pthread_t thief;

	mrt__runq_init(&tokio_q, UINT32_MAX - 500000, false);
	tokio_stolen = 0;
	start_thread(&thief, tokio_thief, &rounds);
	for (i = 0; i < 1000000; i++) {
		taken += push_counted();
		if (i % 128 == 0 && mrt__runq_pop(&tokio_q) != NULL)
			taken++;
	}
	join_thread(thief);
	taken += tokio_stolen + drain(&tokio_q);
	if (taken != 1000000)
		fail("tokio 2: taken, pushed", taken, 1000000);
	(void)printf("tokio 2: 1000000, of which stolen %" PRIu64 "\n", tokio_stolen);
}

/* --- sleeping and waking: two workers with eventfds, one publisher, one task at a time and in bursts --- */

#define SLEEPERS_NR 2u

static struct {
	struct mrt__idle idle;
	struct mrt__park park[SLEEPERS_NR];
	int fd[SLEEPERS_NR];
	atomic_uint inject_nr;          /* tasks without a body: a count is enough */
	_Atomic uint64_t done_nr, sleeps_nr;
	atomic_bool stop;
	atomic_uint worker_id;
} dorm;

static void wake_sleeper(int w)
{
	uint64_t one = 1;

	if (w >= 0 && mrt__park_wake(&dorm.park[w]) && write(dorm.fd[w], &one, sizeof(one)) != sizeof(one))
		fail("eventfd write", 0, 0);
}

static bool try_take(void)
{
	unsigned nr = atomic_load_explicit(&dorm.inject_nr, memory_order_acquire);

	while (nr != 0) {
		if (atomic_compare_exchange_weak_explicit(&dorm.inject_nr, &nr, nr - 1, memory_order_acq_rel,
							  memory_order_acquire))
			return true;
	}
	return false;
}

/* Wait for the eventfd: long enough to be sure that a wake was lost. */
static void wait_fd(unsigned w)
{
	struct pollfd pfd = { .fd = dorm.fd[w], .events = POLLIN };
	uint64_t n;

	if (poll(&pfd, 1, HANG_MS) != 1)
		fail("a wake was lost: worker, tasks left", w,
		     atomic_load_explicit(&dorm.inject_nr, memory_order_relaxed));
	if (read(dorm.fd[w], &n, sizeof(n)) != sizeof(n))
		fail("eventfd read", w, 0);
}

static bool sleep_until_woken(unsigned w, bool searching)
{
	bool rescan = mrt__idle_park(&dorm.idle, w, searching);

	if (rescan && atomic_load_explicit(&dorm.inject_nr, memory_order_acquire) != 0)
		wake_sleeper(mrt__idle_worker_to_notify(&dorm.idle));
	if (mrt__park_begin(&dorm.park[w])) {
		wait_fd(w);
		(void)mrt__park_end(&dorm.park[w]); /* woken or not, the books say what for */
	}
	return !mrt__idle_unpark_worker(&dorm.idle, w);
}

static void *sleeper_main(void *arg)
{
	unsigned w = atomic_fetch_add_explicit(&dorm.worker_id, 1, memory_order_relaxed);
	bool searching = false;

	(void)arg;
	while (!atomic_load_explicit(&dorm.stop, memory_order_acquire)) {
		searching = searching || mrt__idle_try_search(&dorm.idle);
		if (!try_take()) {
			searching = sleep_until_woken(w, searching);
			atomic_fetch_add_explicit(&dorm.sleeps_nr, 1, memory_order_relaxed);
			continue;
		}
		if (searching && mrt__idle_end_search(&dorm.idle))
			wake_sleeper(mrt__idle_worker_to_notify(&dorm.idle));
		searching = false;
		atomic_fetch_add_explicit(&dorm.done_nr, 1, memory_order_release);
	}
	return NULL;
}

static void publish(unsigned nr)
{
	atomic_fetch_add_explicit(&dorm.inject_nr, nr, memory_order_release);
	wake_sleeper(mrt__idle_worker_to_notify(&dorm.idle));
}

static void case_sleep(uint64_t seed, uint64_t ms)
{
	uint64_t end = mrt__clock_now() + ms * MRT__NS_PER_MS, published = 0;
	pthread_t threads[SLEEPERS_NR];
	struct mrt__rand rand;
	unsigned i;

	memset(&dorm, 0, sizeof(dorm));
	mrt__rand_init(&rand, seed ^ 0x5eed);
	if (mrt__idle_init(&dorm.idle, SLEEPERS_NR) != 0)
		fail("idle_init", 0, 0);
	for (i = 0; i < SLEEPERS_NR; i++) {
		mrt__park_init(&dorm.park[i]);
		dorm.fd[i] = eventfd(0, EFD_CLOEXEC);
		if (dorm.fd[i] < 0)
			fail("eventfd", 0, 0);
	}
	for (i = 0; i < SLEEPERS_NR; i++)
		start_thread(&threads[i], sleeper_main, NULL);
	while (mrt__clock_now() < end) {
		unsigned nr = 1 + mrt__rand_below(&rand, 3), spins = mrt__rand_below(&rand, 2000);

		publish(nr);
		published += nr;
		/* ping-pong: only then do the workers go to sleep again. A lost wake ends in wait_fd() */
		while (atomic_load_explicit(&dorm.done_nr, memory_order_acquire) != published)
			(void)sched_yield(); /* cannot fail on Linux */
		for (; spins > 0; spins--)
			mrt__cpu_relax();
	}
	atomic_store_explicit(&dorm.stop, true, memory_order_release);
	/* once is enough: who is between its look at stop and its park is refused to sleep, and looks again */
	for (i = 0; i < SLEEPERS_NR; i++)
		wake_sleeper((int)i);
	for (i = 0; i < SLEEPERS_NR; i++)
		join_thread(threads[i]);
	(void)printf("sleep: %" PRIu64 " tasks, %" PRIu64 " sleeps\n", published,
		     atomic_load_explicit(&dorm.sleeps_nr, memory_order_relaxed));
	for (i = 0; i < SLEEPERS_NR; i++)
		(void)close(dorm.fd[i]); /* nothing is in it */
	mrt__idle_fini(&dorm.idle);
}

int main(void)
{
	uint64_t seed = env_number("MRT_SEED", mrt__clock_now());
	uint64_t ms = env_number("MRT_STRESS_MS", 2000);

	(void)printf("MRT_SEED=%" PRIu64 " MRT_STRESS_MS=%" PRIu64 "\n", seed, ms);
	(void)fflush(stdout);
	case_tokio_1();
	case_tokio_2();
	case_mill(seed, ms / 2);
	case_sleep(seed, ms / 2);
	return 0;
}
