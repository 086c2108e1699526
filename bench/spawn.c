/* SPDX-License-Identifier: MIT */
/*
 * Spawning: many at once from a task and from outside, one after the other, spawn and join, and from several threads.
 *
 *	spawn_local_10k, _1M      a task spawns N empty tasks; until the last one ran
 *	spawn_remote_10k          a plain thread does (ct: before it drives the runtime)
 *	spawn_remote_busy_1k      1,000, while 2 x workers tasks loop { yield; spin 10 us }
 *	chained_spawn             1,000,000 tasks, each spawns the next and ends
 *	spawn_join                one task: { spawn an empty task, await it } 200,000 times
 *	scheduler_spawn, _10      block_on { spawn 1 or 10, await them }; each yields once and returns 2
 *	remote_spawn_1t, _2t      start N threads; together they spawn 12,800; join the threads. The tasks are awaited
 *	                          outside the timed part
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "bench.h"

#define BUSY_SPIN_NS 10000u
#define REMOTE_THREADS_MAX 2u
#define REMOTE_TASKS 12800u
#define JOIN_ROUNDS 200000u
#define BLOCK_ON_ROUNDS 5000u

/* ---- counted tasks ---- */

struct countdown {
	atomic_size_t left;
	uint64_t end_ns;        /* when the last one ran */
	sem_t done;
};

static void countdown_init(struct countdown *c, size_t nr)
{
	atomic_init(&c->left, nr);
	if (sem_init(&c->done, 0, 0))
		bench_die("sem_init: %s", strerror(errno));
}

static void countdown_wait(struct countdown *c)
{
	while (sem_wait(&c->done) && errno == EINTR)
		;
	sem_destroy(&c->done);
}

static enum mrt_poll count_poll(struct mrt_task *self, void *frame)
{
	struct countdown *c = *(struct countdown **)frame;

	/* the last one publishes end_ns by the semaphore */
	if (atomic_fetch_sub_explicit(&c->left, 1, memory_order_relaxed) == 1) {
		c->end_ns = mrt_now();
		(void)sem_post(&c->done); /* cannot overflow at 1 */
	}
	MRT_RETURN(self, 0);
}

/* The current-thread runtime is driven by whoever waits; it must run until all have. */
static enum mrt_poll drive_poll(struct mrt_task *self, void *frame)
{
	struct {
		struct mrt_op op;
		struct countdown *c;
	} *f = frame;

	MRT_BEGIN(self);
	while (atomic_load_explicit(&f->c->left, memory_order_relaxed) > 0)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

static void drive(const struct bench_pass *p, struct countdown *c)
{
	struct {
		struct mrt_op op;
		struct countdown *c;
	} frame = { .c = c };

	if (p->variant == BENCH_CT)
		bench_block_on(p->rt, drive_poll, &frame, sizeof(frame));
	countdown_wait(c);
}

/* ---- local ---- */

struct local {
	struct countdown *c;
	size_t nr;
	uint64_t start_ns;
};

static enum mrt_poll local_poll(struct mrt_task *self, void *frame)
{
	struct local *l = frame;
	size_t i;

	l->start_ns = mrt_now();
	for (i = 0; i < l->nr; i++)
		bench_spawn(NULL, count_poll, &l->c, sizeof(l->c), NULL);
	MRT_RETURN(self, 0);
}

static double spawn_local(const struct bench_pass *p, size_t nr)
{
	struct countdown c;
	struct local l = { .c = &c, .nr = nr };

	countdown_init(&c, nr);
	bench_block_on(p->rt, local_poll, &l, sizeof(l));
	drive(p, &c);
	return (double)(c.end_ns - l.start_ns) / (double)nr;
}

static void pass_local_10k(const struct bench_pass *p, double *ret)
{
	ret[0] = spawn_local(p, 10000);
}

static void pass_local_1m(const struct bench_pass *p, double *ret)
{
	ret[0] = spawn_local(p, 1000000);
}

/* ---- remote ---- */

static double spawn_remote(const struct bench_pass *p, size_t nr)
{
	struct countdown c, *cp = &c;
	uint64_t start;
	size_t i;

	countdown_init(&c, nr);
	start = mrt_now();
	for (i = 0; i < nr; i++)
		bench_spawn(p->rt, count_poll, &cp, sizeof(cp), NULL);
	drive(p, &c);
	return (double)(c.end_ns - start) / (double)nr;
}

static void pass_remote_10k(const struct bench_pass *p, double *ret)
{
	ret[0] = spawn_remote(p, 10000);
}

struct busy {
	struct mrt_op op;
	atomic_bool *stop;
};

static enum mrt_poll busy_poll(struct mrt_task *self, void *frame)
{
	struct busy *f = frame;

	MRT_BEGIN(self);
	while (!atomic_load_explicit(f->stop, memory_order_relaxed)) {
		MRT_AWAIT(self, mrt_yield(&f->op));
		bench_spin_ns(BUSY_SPIN_NS);
	}
	MRT_RETURN(self, 0);
}

static void pass_remote_busy(const struct bench_pass *p, double *ret)
{
	struct mrt_task *tasks[4];
	atomic_bool stop = false;
	struct busy f = { .stop = &stop };
	unsigned nr = 2 * p->workers_nr, i;

	for (i = 0; i < nr; i++)
		bench_spawn(p->rt, busy_poll, &f, sizeof(f), &tasks[i]);
	ret[0] = spawn_remote(p, 1000);
	atomic_store_explicit(&stop, true, memory_order_release);
	for (i = 0; i < nr; i++)
		(void)mrt_task_join_wait(tasks[i], NULL); /* not a worker, and the only joiner */
}

/* ---- chained ---- */

struct chain {
	struct countdown *c;
	size_t left;
};

static enum mrt_poll chain_poll(struct mrt_task *self, void *frame)
{
	struct chain *f = frame;
	struct chain next = { .c = f->c, .left = f->left - 1 };

	if (next.left > 0) {
		bench_spawn(NULL, chain_poll, &next, sizeof(next), NULL);
	} else {
		f->c->end_ns = mrt_now();
		atomic_store_explicit(&f->c->left, 0, memory_order_relaxed);
		(void)sem_post(&f->c->done); /* cannot overflow at 1 */
	}
	MRT_RETURN(self, 0);
}

static void pass_chained(const struct bench_pass *p, double *ret)
{
	struct countdown c;
	struct chain f = { .c = &c, .left = 1000000 };
	uint64_t start;

	countdown_init(&c, 1);
	start = mrt_now();
	bench_spawn(p->rt, chain_poll, &f, sizeof(f), NULL);
	drive(p, &c);
	ret[0] = (double)(c.end_ns - start) / 1e6;
}

/* ---- spawn and join ---- */

static enum mrt_poll empty_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_RETURN(self, 2);
}

struct joins {
	struct mrt_op op;
	unsigned left;
	uint64_t start_ns, end_ns;
};

static enum mrt_poll joins_poll(struct mrt_task *self, void *frame)
{
	struct joins *f = frame;
	struct mrt_task *child;

	MRT_BEGIN(self);
	f->start_ns = mrt_now();
	while (f->left-- > 0) {
		bench_spawn(NULL, empty_poll, NULL, 0, &child);
		MRT_AWAIT(self, mrt_join(&f->op, child));
		if (f->op.res != 2)
			MRT_RETURN(self, -EBADMSG);
	}
	f->end_ns = mrt_now();
	MRT_RETURN(self, 0);
}

static void pass_join(const struct bench_pass *p, double *ret)
{
	struct joins f = { .left = JOIN_ROUNDS };

	bench_block_on(p->rt, joins_poll, &f, sizeof(f));
	ret[0] = (double)(f.end_ns - f.start_ns) / JOIN_ROUNDS;
}

static enum mrt_poll yield_once_poll(struct mrt_task *self, void *frame)
{
	struct mrt_op *op = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_yield(op));
	MRT_RETURN(self, 2);
}

struct few {
	struct mrt_op op;
	struct mrt_task *tasks[10];
	unsigned nr, i;
};

static enum mrt_poll few_poll(struct mrt_task *self, void *frame)
{
	struct few *f = frame;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < f->nr; f->i++)
		bench_spawn(NULL, yield_once_poll, NULL, sizeof(struct mrt_op), &f->tasks[f->i]);
	for (f->i = 0; f->i < f->nr; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		if (f->op.res != 2)
			MRT_RETURN(self, -EBADMSG);
	}
	MRT_RETURN(self, 0);
}

static double scheduler_spawn(const struct bench_pass *p, unsigned nr)
{
	uint64_t start = mrt_now();
	unsigned i;

	for (i = 0; i < BLOCK_ON_ROUNDS; i++) {
		struct few f = { .nr = nr };

		bench_block_on(p->rt, few_poll, &f, sizeof(f));
	}
	return (double)(mrt_now() - start) / BLOCK_ON_ROUNDS;
}

static void pass_scheduler_spawn(const struct bench_pass *p, double *ret)
{
	ret[0] = scheduler_spawn(p, 1);
}

static void pass_scheduler_spawn10(const struct bench_pass *p, double *ret)
{
	ret[0] = scheduler_spawn(p, 10);
}

/* ---- from several threads ---- */

struct spawner {
	const struct bench_pass *p;
	pthread_barrier_t *barrier;
	struct countdown *c;
	unsigned nr;
	pthread_t id;
};

static void *spawner_main(void *arg)
{
	struct spawner *s = arg;
	unsigned i;

	(void)pthread_barrier_wait(s->barrier); /* one of them gets another value, which does not matter */
	for (i = 0; i < s->nr; i++)
		bench_spawn(s->p->rt, count_poll, &s->c, sizeof(s->c), NULL);
	return NULL;
}

static double remote_spawn(const struct bench_pass *p, unsigned threads)
{
	struct spawner s[REMOTE_THREADS_MAX];
	pthread_barrier_t barrier;
	struct countdown c;
	uint64_t start, ns;
	unsigned i;

	countdown_init(&c, REMOTE_TASKS);
	if (pthread_barrier_init(&barrier, NULL, threads))
		bench_die("pthread_barrier_init failed");
	start = mrt_now();
	for (i = 0; i < threads; i++) {
		s[i] = (struct spawner){ .p = p, .barrier = &barrier, .c = &c, .nr = REMOTE_TASKS / threads };
		if (pthread_create(&s[i].id, NULL, spawner_main, &s[i]))
			bench_die("pthread_create failed");
	}
	for (i = 0; i < threads; i++)
		(void)pthread_join(s[i].id, NULL); /* ours */
	ns = mrt_now() - start;
	drive(p, &c);
	pthread_barrier_destroy(&barrier);
	return (double)ns / REMOTE_TASKS;
}

static void pass_remote_1t(const struct bench_pass *p, double *ret)
{
	ret[0] = remote_spawn(p, 1);
}

static void pass_remote_2t(const struct bench_pass *p, double *ret)
{
	ret[0] = remote_spawn(p, 2);
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "spawn_local_10k", "ns/task" } }, .variants = BENCH_ALL, .pass = pass_local_10k },
		{ { { "spawn_local_1M", "ns/task" } }, .variants = BENCH_ALL, .pass = pass_local_1m },
		{ { { "spawn_remote_10k", "ns/task" } }, .variants = BENCH_ALL, .pass = pass_remote_10k },
		{ { { "spawn_remote_busy_1k", "ns/task" } }, .variants = BENCH_W1 | BENCH_W2, .pass = pass_remote_busy },
		{ { { "chained_spawn", "ns/spawn" } }, .variants = BENCH_ALL, .pass = pass_chained },
		{ { { "spawn_join", "ns/task" } }, .variants = BENCH_ALL, .pass = pass_join },
		{ { { "scheduler_spawn", "ns/iter" } }, .variants = BENCH_CT | BENCH_W1, .pass = pass_scheduler_spawn },
		{ { { "scheduler_spawn10", "ns/iter" } }, .variants = BENCH_CT | BENCH_W1, .pass = pass_scheduler_spawn10 },
		{ { { "remote_spawn_1t", "ns/task" } }, .variants = BENCH_W1 | BENCH_W2, .pass = pass_remote_1t },
		{ { { "remote_spawn_2t", "ns/task" } }, .variants = BENCH_W1 | BENCH_W2, .pass = pass_remote_2t },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
