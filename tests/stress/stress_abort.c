/* SPDX-License-Identifier: MIT */
/*
 * Aborts from outside against the life of tasks that their workers keep: each task does a few nops, so that it rests with its
 * worker in between, yields, so that it may be stolen, and then returns or waits on a socket for ever. Threads outside
 * spawn such tasks, abort them at a random moment, and join or detach them.
 *
 * Checked: every join returns, so no abort is lost; a task that waits for ever returns -ECANCELED; at the end as many tasks
 * have ended as were spawned (the shutdown waits for that). What ThreadSanitizer adds: whoever frees a task has everybody else's uses behind it.
 *
 * Environment: MRT_STRESS_MS (default 3000). A hang is ended by SIGALRM.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "itest.h"

#define HANG_S 100u
#define THREADS_NR 3u
#define TASKS_NR 8u     /* of a thread at a time */

static struct mrt_runtime *rt;
static int quiet[2];    /* nothing ever comes */
static uint64_t until_ns;
static atomic_uint failed;

struct victim {
	struct mrt_op op;
	unsigned nops;
	bool waits;
	char byte;
};

static enum mrt_poll victim_poll(struct mrt_task *self, void *frame)
{
	struct victim *f = frame;

	MRT_BEGIN(self);
	for (; f->nops > 0; f->nops--) {
		MRT_AWAIT(self, mrt_nop(&f->op));
		if (f->nops % 2)
			MRT_AWAIT(self, mrt_yield(&f->op));
	}
	if (!f->waits)
		MRT_RETURN(self, 0);
	MRT_AWAIT(self, mrt_recv(&f->op, quiet[0], &f->byte, 1, 0));
	MRT_RETURN(self, f->op.res);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* One batch: spawn, let a moment pass, abort in a random order, join. */
static void batch(uint64_t *rand)
{
	struct mrt_task *tasks[TASKS_NR];
	bool waits[TASKS_NR];
	unsigned i, first = (unsigned)next_random(rand) % TASKS_NR;
	int64_t result;

	for (i = 0; i < TASKS_NR; i++) {
		struct victim v = { .nops = (unsigned)(next_random(rand) >> 40) % 6, .waits = next_random(rand) >> 62 == 0 };

		waits[i] = v.waits;
		if (mrt_spawn(rt, victim_poll, &v, sizeof(v), NULL, &tasks[i]))
			abort();
	}
	itest_spin(next_random(rand) % 30000);
	for (i = 0; i < TASKS_NR; i++)
		mrt_abort(tasks[(first + i) % TASKS_NR]);
	for (i = 0; i < TASKS_NR; i++) {
		if (next_random(rand) >> 63) {
			mrt_detach(tasks[i]);
			continue;
		}
		if (mrt_task_join_wait(tasks[i], &result))
			abort();
		if (waits[i] ? result != -ECANCELED : result != 0 && result != -ECANCELED)
			atomic_fetch_add(&failed, 1);
	}
}

static void *outside(void *arg)
{
	uint64_t rand = (uintptr_t)arg * UINT64_C(0x9e3779b97f4a7c15);

	while (mrt_now() < until_ns)
		batch(&rand);
	return NULL;
}

int main(void)
{
	const char *ms = getenv("MRT_STRESS_MS");
	uint64_t ns = MRT_MS(ms && *ms ? strtoull(ms, NULL, 10) : 3000);
	struct mrt_runtime_opts opts = itest_opts(ITEST_FLOAT);
	struct mrt_worker_stats stats;
	pthread_t threads[THREADS_NR];
	uintptr_t i;

	alarm(HANG_S);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, quiet) || mrt_runtime_create(&opts, &rt)) {
		(void)fprintf(stderr, "stress_abort: no socket pair or runtime\n");
		return ITEST_SKIP;
	}
	until_ns = mrt_now() + ns;
	for (i = 0; i < THREADS_NR; i++)
		if (pthread_create(&threads[i], NULL, outside, (void *)(i + 1)))
			abort();
	for (i = 0; i < THREADS_NR; i++)
		(void)pthread_join(threads[i], NULL); /* ours, once */
	if (mrt_runtime_shutdown_wait(rt, MRT_MS(20000)))
		abort();
	stats = itest_stats(rt);
	(void)printf("%llu tasks, %u with a wrong result\n", (unsigned long long)stats.ends, atomic_load(&failed));
	mrt_runtime_destroy(rt);
	(void)close(quiet[0]);
	(void)close(quiet[1]);
	return atomic_load(&failed) != 0;
}
