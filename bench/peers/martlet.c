/* SPDX-License-Identifier: MIT */
/*
 * Martlet in the shapes that its peers run too (docs/bench-peers.md says what each is). The reads are not here: that is
 * `martlet bench`.
 *
 * A pass runs twice, and the second one counts, as in every peer; what takes seconds or measures memory runs once.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "../bench.h"
#include "peer.h"

static struct mrt_runtime *runtime_files(const struct peer_args *a, uint32_t files_max)
{
	static struct bench b; /* zero but for the CPUs */

	b.cpus_nr = bench_cpus(b.cpus);
	if (a->workers > 2) {
		fprintf(stderr, "martlet: 0, 1 or 2 workers\n");
		exit(2);
	}
	return bench_runtime_files(&b, a->workers == 0 ? BENCH_CT : a->workers == 1 ? BENCH_W1 : BENCH_W2, files_max);
}

static struct mrt_runtime *runtime(const struct peer_args *a)
{
	return runtime_files(a, 0);
}

/* The root of a shape: it counts what was done. */
struct root {
	const struct peer_args *a;
	uint64_t done;
};

/* Run a root twice on one runtime, print the second pass. Its frame begins with a struct root. */
static void run_twice(const struct peer_args *a, mrt_poll_fn fn, void *frame, size_t frame_bytes)
{
	struct mrt_runtime *rt = runtime(a);
	struct root *root = frame;
	struct peer_span s;
	unsigned i;

	for (i = 0; i < 2; i++) {
		memset(frame, 0, frame_bytes);
		root->a = a;
		s = peer_start();
		bench_block_on(rt, fn, frame, frame_bytes);
		peer_stop(&s);
	}
	peer_print(a, NULL, root->done, &s, "%s", "");
	mrt_runtime_destroy(rt);
}

/* ---- spawn and join ---- */

static enum mrt_poll empty_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_RETURN(self, 1);
}

struct joins {
	struct root root;
	struct mrt_op op;
	struct mrt_task *tasks[PEER_JOIN_ROUND];
	unsigned i;
};

static enum mrt_poll join_poll(struct mrt_task *self, void *frame)
{
	struct joins *f = frame;

	MRT_BEGIN(self);
	while (f->root.done < f->root.a->n) {
		bench_spawn(NULL, empty_poll, NULL, 0, &f->tasks[0]);
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[0]));
		f->root.done += (uint64_t)f->op.res;
	}
	MRT_RETURN(self, 0);
}

static void spawn_join(const struct peer_args *a)
{
	struct joins f;

	run_twice(a, join_poll, &f, sizeof(f));
}

static enum mrt_poll join_many_poll(struct mrt_task *self, void *frame)
{
	struct joins *f = frame;

	MRT_BEGIN(self);
	while (f->root.done < f->root.a->n) {
		for (f->i = 0; f->i < PEER_JOIN_ROUND; f->i++)
			bench_spawn(NULL, empty_poll, NULL, 0, &f->tasks[f->i]);
		for (f->i = 0; f->i < PEER_JOIN_ROUND; f->i++) {
			MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
			f->root.done += (uint64_t)f->op.res;
		}
	}
	MRT_RETURN(self, 0);
}

static void spawn_join_many(const struct peer_args *a)
{
	struct joins f;

	run_twice(a, join_many_poll, &f, sizeof(f));
}

/* ---- yield ---- */

struct yielder {
	struct mrt_op op;
	uint64_t left, done;
};

static enum mrt_poll yielder_poll(struct mrt_task *self, void *frame)
{
	struct yielder *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_yield(&f->op));
		f->done++;
	}
	MRT_RETURN(self, (int64_t)f->done);
}

struct yields {
	struct root root;
	struct mrt_op op;
	struct mrt_task *tasks[PEER_YIELDERS];
	unsigned i;
};

static enum mrt_poll yields_poll(struct mrt_task *self, void *frame)
{
	struct yields *f = frame;
	struct yielder y;

	MRT_BEGIN(self);
	memset(&y, 0, sizeof(y));
	y.left = f->root.a->n / PEER_YIELDERS;
	for (f->i = 0; f->i < PEER_YIELDERS; f->i++)
		bench_spawn(NULL, yielder_poll, &y, sizeof(y), &f->tasks[f->i]);
	for (f->i = 0; f->i < PEER_YIELDERS; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		f->root.done += (uint64_t)f->op.res;
	}
	MRT_RETURN(self, 0);
}

static void yield(const struct peer_args *a)
{
	struct yields f;

	run_twice(a, yields_poll, &f, sizeof(f));
}

/* ---- spawn ---- */

/* Static where it is used: the last task may still be inside its notify when the one that waited for it has gone on. */
struct countdown {
	atomic_size_t left;
	bool for_thread;        /* a plain thread waits, not a task */
	struct mrt_notify notify;
	sem_t sem;
};

static void countdown_init(struct countdown *c, bool for_thread)
{
	c->for_thread = for_thread;
	mrt_notify_init(&c->notify);
	if (sem_init(&c->sem, 0, 0))
		bench_die("sem_init: %s", strerror(errno));
}

static void countdown_wait(struct countdown *c)
{
	while (sem_wait(&c->sem) && errno == EINTR)
		;
}

static void countdown_hit(struct countdown *c)
{
	/* acq_rel: what the others did before stands before the last one's word */
	if (atomic_fetch_sub_explicit(&c->left, 1, memory_order_acq_rel) != 1)
		return;
	if (c->for_thread)
		(void)sem_post(&c->sem); /* cannot overflow at 1 */
	else
		mrt_notify_one(&c->notify);
}

static enum mrt_poll count_poll(struct mrt_task *self, void *frame)
{
	countdown_hit(*(struct countdown **)frame);
	MRT_RETURN(self, 0);
}

/* Until all of nr tasks ran. */
static void spawn_counted(struct mrt_runtime *rt, struct countdown *c, size_t nr)
{
	size_t i;

	for (i = 0; i < nr; i++)
		bench_spawn(rt, count_poll, &c, sizeof(c), NULL);
}

struct spawns {
	struct root root;
	struct mrt_op op;
};

static enum mrt_poll spawns_poll(struct mrt_task *self, void *frame)
{
	static struct countdown c;
	struct spawns *f = frame;

	MRT_BEGIN(self);
	countdown_init(&c, false);
	while (f->root.done < f->root.a->n) {
		atomic_store_explicit(&c.left, PEER_SPAWN_ROUND, memory_order_relaxed); /* the spawns publish it */
		spawn_counted(NULL, &c, PEER_SPAWN_ROUND);
		MRT_AWAIT(self, mrt_notify_wait(&f->op, &c.notify));
		f->root.done += PEER_SPAWN_ROUND;
	}
	MRT_RETURN(self, 0);
}

static void spawn_worker(const struct peer_args *a)
{
	struct spawns f;

	run_twice(a, spawns_poll, &f, sizeof(f));
}

static void spawn_outside(const struct peer_args *a)
{
	static struct countdown c;
	struct mrt_runtime *rt = runtime(a);
	struct peer_span s;
	uint64_t done = 0;
	unsigned i;

	countdown_init(&c, true);
	for (i = 0; i < 2; i++) {
		s = peer_start();
		for (done = 0; done < a->n; done += PEER_SPAWN_ROUND) {
			atomic_store_explicit(&c.left, PEER_SPAWN_ROUND, memory_order_relaxed); /* as above */
			spawn_counted(rt, &c, PEER_SPAWN_ROUND);
			countdown_wait(&c);
		}
		peer_stop(&s);
	}
	peer_print(a, NULL, done, &s, "%s", "");
	mrt_runtime_destroy(rt);
}

struct spawner {
	struct mrt_runtime *rt;
	pthread_barrier_t *barrier;
	struct countdown *c;
	size_t nr;
	uint64_t end_ns;
	pthread_t id;
};

static void *spawner_main(void *arg)
{
	struct spawner *s = arg;

	(void)pthread_barrier_wait(s->barrier); /* one of them gets another value, which does not matter */
	spawn_counted(s->rt, s->c, s->nr);
	s->end_ns = mrt_now();
	return NULL;
}

/* @return when the last spawner was done, from the start of the span */
static uint64_t spawn_from_threads(struct mrt_runtime *rt, unsigned threads, size_t each, struct peer_span *ret_span)
{
	static struct countdown c;
	struct spawner *s = bench_alloc(threads, sizeof(*s));
	pthread_barrier_t barrier;
	uint64_t start, end = 0;
	unsigned i;

	countdown_init(&c, true);
	atomic_store_explicit(&c.left, threads * each, memory_order_relaxed); /* the threads' start publishes it */
	if (pthread_barrier_init(&barrier, NULL, threads + 1))
		bench_die("pthread_barrier_init failed");
	for (i = 0; i < threads; i++) {
		s[i] = (struct spawner){ .rt = rt, .barrier = &barrier, .c = &c, .nr = each };
		if (pthread_create(&s[i].id, NULL, spawner_main, &s[i]))
			bench_die("pthread_create failed");
	}
	start = mrt_now();
	*ret_span = peer_start();
	(void)pthread_barrier_wait(&barrier); /* as above */
	countdown_wait(&c);
	peer_stop(ret_span);
	for (i = 0; i < threads; i++) {
		(void)pthread_join(s[i].id, NULL); /* ours */
		end = s[i].end_ns > end ? s[i].end_ns : end;
	}
	pthread_barrier_destroy(&barrier);
	free(s);
	return end - start;
}

static void spawn_threads(const struct peer_args *a)
{
	unsigned threads = (unsigned)a->arg, i;
	struct mrt_runtime *rt = runtime(a);
	uint64_t each = a->n / threads, ns = 0;
	struct peer_span s;

	for (i = 0; i < 2; i++)
		ns = spawn_from_threads(rt, threads, each, &s);
	peer_print(a, NULL, each * threads, &s, "\"spawned\":%.3f", (double)ns / (double)(each * threads));
	mrt_runtime_destroy(rt);
}

struct chain {
	struct countdown *c;
	uint64_t left;
};

static enum mrt_poll chain_poll(struct mrt_task *self, void *frame)
{
	struct chain *f = frame;
	struct chain next = { .c = f->c, .left = f->left - 1 };

	if (next.left > 0)
		bench_spawn(NULL, chain_poll, &next, sizeof(next), NULL);
	else
		countdown_hit(f->c);
	MRT_RETURN(self, 0);
}

static enum mrt_poll chains_poll(struct mrt_task *self, void *frame)
{
	static struct countdown c;
	struct spawns *f = frame;
	struct chain first = { .c = &c, .left = f->root.a->n };

	MRT_BEGIN(self);
	countdown_init(&c, false);
	atomic_store_explicit(&c.left, 1, memory_order_relaxed); /* the spawn publishes it */
	bench_spawn(NULL, chain_poll, &first, sizeof(first), NULL);
	MRT_AWAIT(self, mrt_notify_wait(&f->op, &c.notify));
	f->root.done = f->root.a->n;
	MRT_RETURN(self, 0);
}

static void chained(const struct peer_args *a)
{
	struct spawns f;

	run_twice(a, chains_poll, &f, sizeof(f));
}

/* ---- wakes ---- */

struct pair {
	struct mrt_oneshot there, back;
};

static struct countdown pings;  /* of both tasks of each pair: none is inside its send when the round ends */

struct partner {
	struct mrt_op op;
	struct pair *pair;
};

static enum mrt_poll partner_poll(struct mrt_task *self, void *frame)
{
	struct partner *f = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->pair->there));
	(void)mrt_oneshot_send(&f->pair->back, f->op.res); /* the only send */
	countdown_hit(&pings);
	MRT_RETURN(self, 0);
}

static enum mrt_poll ping_poll(struct mrt_task *self, void *frame)
{
	struct partner *f = frame;
	struct partner partner;

	MRT_BEGIN(self);
	mrt_oneshot_init(&f->pair->there);
	mrt_oneshot_init(&f->pair->back);
	memset(&partner, 0, sizeof(partner));
	partner.pair = f->pair;
	bench_spawn(NULL, partner_poll, &partner, sizeof(partner), NULL);
	(void)mrt_oneshot_send(&f->pair->there, 7); /* the only send */
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->pair->back));
	if (f->op.res != 7)
		bench_die("ping_pong: %lld came back", (long long)f->op.res);
	countdown_hit(&pings);
	MRT_RETURN(self, 0);
}

static enum mrt_poll pings_poll(struct mrt_task *self, void *frame)
{
	static struct pair pairs[PEER_PING_ROUND];
	struct spawns *f = frame;
	struct partner ping;
	unsigned i;

	MRT_BEGIN(self);
	countdown_init(&pings, false);
	while (f->root.done < f->root.a->n) {
		atomic_store_explicit(&pings.left, 2 * PEER_PING_ROUND, memory_order_relaxed); /* the spawns publish it */
		memset(&ping, 0, sizeof(ping));
		for (i = 0; i < PEER_PING_ROUND; i++) {
			ping.pair = &pairs[i];
			bench_spawn(NULL, ping_poll, &ping, sizeof(ping), NULL);
		}
		MRT_AWAIT(self, mrt_notify_wait(&f->op, &pings.notify));
		f->root.done += PEER_PING_ROUND;
	}
	MRT_RETURN(self, 0);
}

static void ping_pong(const struct peer_args *a)
{
	struct spawns f;

	run_twice(a, pings_poll, &f, sizeof(f));
}

struct sleeper {
	struct mrt_op op;
	struct mrt_notify *notify;
	_Atomic uint64_t *woken_ns;
	uint64_t left;
};

static enum mrt_poll sleeper_poll(struct mrt_task *self, void *frame)
{
	struct sleeper *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_notify_wait(&f->op, f->notify));
		atomic_store_explicit(f->woken_ns, mrt_now(), memory_order_release);
	}
	MRT_RETURN(self, 0);
}

static void wake_idle(const struct peer_args *a)
{
	uint64_t *ns = bench_alloc_touched(a->n, sizeof(*ns)), start, end, i;
	struct mrt_notify notify;
	_Atomic uint64_t woken_ns = 0;
	struct sleeper f = { .notify = &notify, .woken_ns = &woken_ns, .left = a->n };
	struct mrt_runtime *rt = runtime(a);
	struct mrt_task *task;
	struct peer_span s;

	mrt_notify_init(&notify);
	bench_spawn(rt, sleeper_poll, &f, sizeof(f), &task);
	s = peer_start();
	for (i = 0; i < a->n; i++) {
		bench_spin_ns(a->arg * 1000);
		start = mrt_now();
		mrt_notify_one(&notify);
		while ((end = atomic_load_explicit(&woken_ns, memory_order_acquire)) < start)
			;
		ns[i] = end - start;
	}
	peer_stop(&s);
	(void)mrt_task_join_wait(task, NULL); /* not a worker, and the only joiner */
	bench_sort_u64(ns, a->n);
	peer_print(a, NULL, a->n, &s, PEER_LATENESS, PEER_LATENESS_OF(ns, a->n));
	free(ns);
	mrt_runtime_destroy(rt);
}

/* ---- the blocking pool ---- */

static int64_t blocking_call(void *arg)
{
	(void)arg;
	return 1;
}

struct blocking {
	struct root root;
	struct mrt_op ops[PEER_BLOCKING_ROUND];
	struct mrt_op *all[PEER_BLOCKING_ROUND];
};

static enum mrt_poll blocking_poll(struct mrt_task *self, void *frame)
{
	struct blocking *f = frame;
	unsigned i;

	MRT_BEGIN(self);
	while (f->root.done < f->root.a->n) {
		for (i = 0; i < PEER_BLOCKING_ROUND; i++)
			f->all[i] = mrt_blocking(&f->ops[i], blocking_call, NULL);
		MRT_AWAIT_ALL(self, f->all, PEER_BLOCKING_ROUND);
		for (i = 0; i < PEER_BLOCKING_ROUND; i++)
			f->root.done += f->ops[i].res == 1;
	}
	MRT_RETURN(self, 0);
}

static void spawn_blocking(const struct peer_args *a)
{
	struct blocking f;

	run_twice(a, blocking_poll, &f, sizeof(f));
}

/* ---- timers ---- */

struct timer_one {
	struct root root;
	struct mrt_op op;
	uint64_t rand;
};

static enum mrt_poll timer_one_poll(struct mrt_task *self, void *frame)
{
	struct timer_one *f = frame;

	MRT_BEGIN(self);
	f->rand = 1;
	while (f->root.done < f->root.a->n) {
		(void)mrt_sleep(&f->op, MRT_SEC(10) + bench_rand(&f->rand) % MRT_SEC(1)); /* awaited below */
		mrt_cancel(&f->op);
		MRT_AWAIT(self, &f->op);
		f->root.done += f->op.res == -ECANCELED;
	}
	MRT_RETURN(self, 0);
}

static void timer_arm_cancel(const struct peer_args *a)
{
	struct timer_one f;

	run_twice(a, timer_one_poll, &f, sizeof(f));
}

struct timer_live {
	struct root root;
	struct mrt_op *ops;     /* [n] */
	uint64_t i, rand;
	struct peer_span arm, cancel;
};

static enum mrt_poll timer_live_poll(struct mrt_task *self, void *frame)
{
	struct timer_live *f = frame;
	uint64_t i;

	MRT_BEGIN(self);
	f->rand = 1;
	f->arm = peer_start();
	for (i = 0; i < f->root.a->n; i++)
		(void)mrt_sleep(&f->ops[i], MRT_SEC(60) + bench_rand(&f->rand) % MRT_SEC(10)); /* awaited below */
	peer_stop(&f->arm);
	f->cancel = peer_start();
	for (i = 0; i < f->root.a->n; i++)
		mrt_cancel(&f->ops[i]);
	for (f->i = 0; f->i < f->root.a->n; f->i++) {
		MRT_AWAIT(self, &f->ops[f->i]);
		f->root.done += f->ops[f->i].res == -ECANCELED;
	}
	peer_stop(&f->cancel);
	MRT_RETURN(self, 0);
}

static void timer_live(const struct peer_args *a)
{
	struct mrt_runtime *rt = runtime(a);
	struct timer_live f;
	unsigned i;

	for (i = 0; i < 2; i++) {
		f = (struct timer_live){ .root.a = a, .ops = bench_alloc_touched(a->n, sizeof(struct mrt_op)) };
		bench_block_on(rt, timer_live_poll, &f, sizeof(f));
		free(f.ops);
	}
	peer_print(a, NULL, f.root.done, &f.arm, "\"cancel\":%.3f,\"cancel_cpu\":%.3f",
		   (double)f.cancel.wall_ns / (double)a->n, (double)f.cancel.cpu_ns / (double)a->n);
	mrt_runtime_destroy(rt);
}

static struct {
	uint64_t *late_ns;      /* [n] */
	uint64_t first_ns;      /* the earliest deadline that there may be */
	struct countdown left;
} expiry;

static uint64_t expiry_due(uint64_t *rand)
{
	return expiry.first_ns + bench_rand(rand) % MRT_SEC(1);
}

/* How long after the last deadline the last sleep ended. late_ns is in the order of the deadlines' drawing. */
static double expiry_last_us(uint64_t n)
{
	uint64_t rand = 1, due, last_due = 0, end = 0, i;

	for (i = 0; i < n; i++) {
		due = expiry_due(&rand);
		last_due = due > last_due ? due : last_due;
		end = due + expiry.late_ns[i] > end ? due + expiry.late_ns[i] : end;
	}
	return (double)(end - last_due) / 1e3;
}

struct expiring {
	struct mrt_op op;
	uint64_t due_ns, i;
};

static enum mrt_poll expiring_poll(struct mrt_task *self, void *frame)
{
	struct expiring *f = frame;
	uint64_t now;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due_ns));
	now = mrt_now();
	if (f->op.res || now < f->due_ns)
		bench_die("timer_expire: a sleep ended early");
	expiry.late_ns[f->i] = now - f->due_ns;
	countdown_hit(&expiry.left);
	MRT_RETURN(self, 0);
}

static enum mrt_poll expiry_poll(struct mrt_task *self, void *frame)
{
	struct spawns *f = frame;
	struct expiring e;
	uint64_t rand = 1;

	MRT_BEGIN(self);
	countdown_init(&expiry.left, false);
	atomic_store_explicit(&expiry.left.left, f->root.a->n, memory_order_relaxed); /* the spawns publish it */
	expiry.first_ns = mrt_now() + MRT_MS(f->root.a->arg);
	memset(&e, 0, sizeof(e));
	for (e.i = 0; e.i < f->root.a->n; e.i++) {
		e.due_ns = expiry_due(&rand);
		bench_spawn(NULL, expiring_poll, &e, sizeof(e), NULL);
	}
	if (mrt_now() > expiry.first_ns)
		bench_die("timer_expire: %llu ms do not suffice to start them", (unsigned long long)f->root.a->arg);
	MRT_AWAIT(self, mrt_notify_wait(&f->op, &expiry.left.notify));
	f->root.done = f->root.a->n;
	MRT_RETURN(self, 0);
}

static void timer_expire(const struct peer_args *a)
{
	struct spawns f = { .root.a = a };
	struct mrt_runtime *rt = runtime(a);
	struct peer_span s;
	double last_us;

	expiry.late_ns = bench_alloc_touched(a->n, sizeof(uint64_t));
	s = peer_start();
	bench_block_on(rt, expiry_poll, &f, sizeof(f));
	peer_stop(&s);
	last_us = expiry_last_us(a->n);
	bench_sort_u64(expiry.late_ns, a->n);
	peer_print(a, NULL, f.root.done, &s, PEER_LATENESS ",\"last_us\":%.2f", PEER_LATENESS_OF(expiry.late_ns, a->n),
		   last_us);
	free(expiry.late_ns);
	mrt_runtime_destroy(rt);
}

struct acc {
	struct root root;
	struct mrt_op op;
	uint64_t due_ns;
	uint64_t *late_ns;      /* [n] */
};

static enum mrt_poll acc_poll(struct mrt_task *self, void *frame)
{
	struct acc *f = frame;
	uint64_t now;

	MRT_BEGIN(self);
	while (f->root.done < f->root.a->n) {
		f->due_ns = mrt_now() + MRT_MS(f->root.done % PEER_ACC_MS_MAX + 1);
		MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due_ns));
		now = mrt_now();
		if (now < f->due_ns)
			bench_die("timer_accuracy: a sleep ended early");
		f->late_ns[f->root.done++] = now - f->due_ns;
	}
	MRT_RETURN(self, 0);
}

static void timer_accuracy(const struct peer_args *a)
{
	struct acc f = { .root.a = a, .late_ns = bench_alloc_touched(a->n, sizeof(uint64_t)) };
	struct mrt_runtime *rt = runtime(a);
	struct peer_span s = peer_start();

	bench_block_on(rt, acc_poll, &f, sizeof(f));
	peer_stop(&s);
	bench_sort_u64(f.late_ns, a->n);
	peer_print(a, NULL, f.root.done, &s, PEER_LATENESS, PEER_LATENESS_OF(f.late_ns, a->n));
	free(f.late_ns);
	mrt_runtime_destroy(rt);
}

/* ---- memory ---- */

static struct mrt_notify never; /* what parked tasks wait for */
static atomic_size_t parked_nr;

struct parked {
	struct mrt_op op;
};

struct sleeping {
	struct mrt_op op;
	uint64_t user[4];
};

static enum mrt_poll parked_poll(struct mrt_task *self, void *frame)
{
	struct parked *f = frame;

	MRT_BEGIN(self);
	atomic_fetch_add_explicit(&parked_nr, 1, memory_order_relaxed);
	MRT_AWAIT(self, mrt_notify_wait(&f->op, &never));
	MRT_RETURN(self, 0);
}

static enum mrt_poll sleeping_poll(struct mrt_task *self, void *frame)
{
	struct sleeping *f = frame;

	MRT_BEGIN(self);
	atomic_fetch_add_explicit(&parked_nr, 1, memory_order_relaxed);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_SEC(3600)));
	MRT_RETURN(self, (int64_t)f->user[0]);
}

struct crowd {
	struct root root;
	struct mrt_op op;
	mrt_poll_fn fn;
	size_t frame_bytes;
	size_t before;
};

static enum mrt_poll crowd_poll(struct mrt_task *self, void *frame)
{
	struct crowd *f = frame;
	struct sleeping p;      /* the longer one */
	uint64_t i;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(5))); /* what a first task needs is there */
	f->before = bench_rss_bytes();
	memset(&p, 0, sizeof(p));
	for (i = 0; i < f->root.a->n; i++)
		bench_spawn(NULL, f->fn, &p, f->frame_bytes, NULL);
	/* relaxed: a count that is looked at until it is reached */
	while (atomic_load_explicit(&parked_nr, memory_order_relaxed) < f->root.a->n)
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(5)));
	f->root.done = atomic_load_explicit(&parked_nr, memory_order_relaxed);
	MRT_RETURN(self, 0);
}

static void memory_of(const struct peer_args *a, mrt_poll_fn fn, size_t frame_bytes)
{
	struct crowd f = { .root.a = a, .fn = fn, .frame_bytes = frame_bytes };
	struct mrt_runtime *rt = runtime(a);
	struct peer_span s = peer_start();

	mrt_notify_init(&never);
	bench_block_on(rt, crowd_poll, &f, sizeof(f));
	peer_stop(&s);
	peer_print(a, NULL, f.root.done, &s, "\"bytes\":%.1f", (double)(bench_rss_bytes() - f.before) / (double)a->n);
	mrt_runtime_destroy(rt);
}

static void mem_parked(const struct peer_args *a)
{
	memory_of(a, parked_poll, sizeof(struct parked));
}

static void mem_sleeping(const struct peer_args *a)
{
	memory_of(a, sleeping_poll, sizeof(struct sleeping));
}

/* ---- fairness ---- */

static struct {
	_Atomic enum { FAIR_WARM, FAIR_COUNT, FAIR_STOP } phase;
	uint64_t polls[PEER_FAIR_TASKS]; /* each written by its task */
} fair;

struct ready {
	struct mrt_op op;
	unsigned i;
};

static enum mrt_poll ready_poll(struct mrt_task *self, void *frame)
{
	struct ready *f = frame;

	MRT_BEGIN(self);
	/* relaxed: a poll more or less at the borders */
	while (atomic_load_explicit(&fair.phase, memory_order_relaxed) != FAIR_STOP) {
		fair.polls[f->i] += atomic_load_explicit(&fair.phase, memory_order_relaxed) == FAIR_COUNT;
		MRT_AWAIT(self, mrt_yield(&f->op));
	}
	MRT_RETURN(self, 0);
}

struct fair_root {
	struct mrt_scope scope;
	struct mrt_op *joined;
};

static enum mrt_poll fair_poll(struct mrt_task *self, void *frame)
{
	struct fair_root *f = frame;
	struct ready r = { .i = 0 };
	int err;

	MRT_BEGIN(self);
	mrt_scope_init(&f->scope, 0);
	memset(&r, 0, sizeof(r));
	for (r.i = 0; r.i < PEER_FAIR_TASKS; r.i++) {
		err = mrt_scope_spawn(&f->scope, ready_poll, &r, sizeof(r), NULL);
		if (err)
			MRT_RETURN(self, err);
	}
	f->joined = mrt_scope_join(&f->scope);
	MRT_AWAIT(self, f->joined);
	MRT_RETURN(self, f->joined->res);
}

/* The current-thread runtime needs the main thread: another one holds the watch. */
static void *fair_watch(void *arg)
{
	const struct peer_args *a = arg;

	bench_sleep_ns(PEER_FAIR_WARM_NS);
	atomic_store_explicit(&fair.phase, FAIR_COUNT, memory_order_relaxed);
	bench_sleep_ns(a->n * 1000000);
	atomic_store_explicit(&fair.phase, FAIR_STOP, memory_order_relaxed);
	return NULL;
}

static void fair_yield(const struct peer_args *a)
{
	struct mrt_runtime *rt = runtime(a);
	struct peer_args copy = *a;
	struct fair_root f;
	struct peer_shares shares;
	struct peer_span s;
	pthread_t watch;

	memset(&f, 0, sizeof(f));
	if (pthread_create(&watch, NULL, fair_watch, &copy))
		bench_die("pthread_create failed");
	s = peer_start();
	bench_block_on(rt, fair_poll, &f, sizeof(f));
	peer_stop(&s);
	(void)pthread_join(watch, NULL); /* ours */
	shares = peer_shares_of(fair.polls, PEER_FAIR_TASKS);
	peer_print(a, NULL, shares.sum, &s, PEER_SHARES, shares.slowest, shares.fastest);
	mrt_runtime_destroy(rt);
}

/* ---- echo ---- */

struct conn {
	struct mrt_op op;
	int fd;
	char buf[PEER_ECHO_BUF_BYTES];
};

static enum mrt_poll conn_poll(struct mrt_task *self, void *frame)
{
	struct conn *f = frame;

	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_recv(&f->op, f->fd, f->buf, sizeof(f->buf), 0));
		if (f->op.res <= 0)
			break;
		MRT_AWAIT(self, mrt_send_all(&f->op, f->fd, f->buf, (size_t)f->op.res));
		if (f->op.res < 0)
			break;
	}
	MRT_AWAIT(self, mrt_close(&f->op, f->fd));
	MRT_RETURN(self, 0);
}

struct server {
	struct mrt_op op;
	int fd;
};

static enum mrt_poll server_poll(struct mrt_task *self, void *frame)
{
	struct server *f = frame;
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizeof(struct conn) };
	struct conn c;
	int handle;

	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_accept(&f->op, f->fd, NULL, NULL, 0));
		if (f->op.res < 0)
			MRT_RETURN(self, f->op.res);
		memset(&c, 0, offsetof(struct conn, buf));
		c.fd = (int)f->op.res;
		peer_no_delay(c.fd);
		handle = mrt_file_register(NULL, c.fd, 0);
		if (handle < 0)
			MRT_RETURN(self, handle);
		c.fd = handle;
		if (mrt_spawn(NULL, conn_poll, &c, offsetof(struct conn, buf), &opts, NULL))
			MRT_RETURN(self, -ENOMEM);
	}
}

#define ECHO_FILES_MAX 16384u   /* what the load generator may open */

static void echo(const struct peer_args *a)
{
	struct mrt_runtime *rt = runtime_files(a, ECHO_FILES_MAX);
	struct server f = { .fd = peer_listen() };

	bench_block_on(rt, server_poll, &f, sizeof(f)); /* until the process is ended */
}

int main(int argc, char **argv)
{
	static const struct peer_shape shapes[] = {
		{ "spawn_join", spawn_join },
		{ "spawn_join_many", spawn_join_many },
		{ "spawn_worker", spawn_worker },
		{ "spawn_outside", spawn_outside },
		{ "spawn_threads", spawn_threads },
		{ "yield", yield },
		{ "ping_pong", ping_pong },
		{ "chained", chained },
		{ "spawn_blocking", spawn_blocking },
		{ "timer_arm_cancel", timer_arm_cancel },
		{ "timer_live", timer_live },
		{ "timer_expire", timer_expire },
		{ "timer_accuracy", timer_accuracy },
		{ "mem_parked", mem_parked },
		{ "mem_sleeping", mem_sleeping },
		{ "wake_idle", wake_idle },
		{ "fair_yield", fair_yield },
		{ "echo", echo },
	};

	return peer_main("martlet", shapes, BENCH_NR(shapes), argc, argv);
}
