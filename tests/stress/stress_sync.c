/* SPDX-License-Identifier: MIT */
/*
 * Waiting ops, the blocking pool and scopes under races: cancels and deadlines against completions, from tasks on
 * several workers and from threads that are no workers; meant to run under both sanitizers too.
 *
 * Proven: permits and messages are conserved whatever is cancelled when; no wake is lost (the program would hang, and
 * says where); a completer does not touch an object whose last waiter has freed it; calls run at most once, and not
 * after a cancel that succeeded; parents never end before their children.
 *
 * Environment: MRT_SEED (printed at the start), MRT_STRESS_MS (default 3000, shared by the cases). Threads are not
 * reproducible, so a seed only repeats the choices of each task.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <martlet/martlet.h>

#include "base/rand.h"

#define WORKERS_NR 3u
#define TASKS_NR 24u
#define OUTSIDERS_NR 2u
#define HANG_S 60u

static _Atomic(const char *) now_running = "start";

static void fail(const char *what, int64_t a, int64_t b)
{
	const char *where = atomic_load_explicit(&now_running, memory_order_relaxed);

	(void)fprintf(stderr, "FAILED: %s: %s (%" PRId64 ", %" PRId64 ")\n", where, what, a, b); /* best effort */
	abort();
}

#define check(c, a, b) do {                                     \
	if (!(c))                                               \
		fail(#c, (int64_t)(a), (int64_t)(b));           \
} while (0)

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s != NULL && *s != '\0' ? strtoull(s, NULL, 0) : otherwise;
}

static pthread_t start_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	check(pthread_create(&thread, NULL, fn, arg) == 0, 0, 0);
	return thread;
}

/* A counter when its writers are done, or where a newer value would do as well. */
#define get(counter) atomic_load_explicit(&(counter), memory_order_acquire)

/* How a wait of this round is treated. */
enum treatment { PATIENT, CANCELLED_AT_ONCE, CANCELLED_AFTER_A_YIELD, DEADLINE, TREATMENTS_NR };

/* ---- what the cases share ---- */

struct stress {
	struct mrt_runtime *rt;
	uint64_t seed;
	uint64_t end_ns;
	atomic_bool stop;
};

static struct stress stress;

static bool is_over(void)
{
	return atomic_load_explicit(&stress.stop, memory_order_relaxed) || mrt_now() >= stress.end_ns;
}

/* May a wait of this treatment have ended so? */
static void check_refusal(int64_t res, uint32_t treatment)
{
	check(treatment != PATIENT, res, treatment);
	check(res == (treatment == DEADLINE ? -ETIMEDOUT : -ECANCELED), res, treatment);
}

/*
 * A chain is a task that may leave and be replaced by a copy of itself, which nobody joins. A case is over when every
 * chain has come to its end.
 */
static atomic_uint chains_nr;
static struct mrt_oneshot chains_ended;

struct waiter {
	struct mrt_op op;
};

static enum mrt_poll waiter_poll(struct mrt_task *self, void *frame)
{
	struct waiter *w = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_oneshot_recv(&w->op, &chains_ended));
	MRT_RETURN(self, w->op.res);
}

static void end_chain(void)
{
	if (atomic_fetch_sub_explicit(&chains_nr, 1, memory_order_acq_rel) == 1)
		check(mrt_oneshot_send(&chains_ended, 0) == 0, 0, 0);
}

/* What each task begins with. */
struct start {
	struct mrt__rand rand;
	unsigned number;
};

static void spawn_chains(mrt_poll_fn fn, size_t frame_bytes)
{
	atomic_store_explicit(&chains_nr, TASKS_NR, memory_order_relaxed);
	mrt_oneshot_init(&chains_ended);
	for (unsigned i = 0; i < TASKS_NR; i++) {
		struct start start = { .number = i };
		struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = frame_bytes };

		mrt__rand_init(&start.rand, stress.seed + i * UINT64_C(0x9e3779b97f4a7c15));
		check(mrt_spawn(stress.rt, fn, &start, sizeof(start), &opts, NULL) == 0, i, 0);
	}
}

/* The task leaves, with whatever it has in flight; a copy goes on. */
static void replace(mrt_poll_fn fn, const struct start *start, size_t frame_bytes)
{
	struct start copy = *start;
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = frame_bytes };

	check(mrt_spawn(NULL, fn, &copy, sizeof(copy), &opts, NULL) == 0, 0, 0);
}

static void await_chains(void)
{
	int64_t res = -1;

	check(mrt_block_on(stress.rt, waiter_poll, NULL, sizeof(struct waiter), &res) == 0, 0, 0);
	check(res == 0, res, 0);
}

/* ---- semaphore ---- */

#define SEM_PERMITS 7u

static struct mrt_semaphore sem;
static atomic_int sem_held;
static _Atomic uint64_t sem_grants, sem_refusals;

struct sem_task {
	struct start start;
	struct mrt_op op;
	struct mrt_op sleep;
	struct mrt_timer timer;
	uint32_t want;
	uint32_t treatment;
};

static void sem_hold(uint32_t nr)
{
	int held = atomic_fetch_add_explicit(&sem_held, (int)nr, memory_order_relaxed) + (int)nr;

	check(held <= (int)SEM_PERMITS, held, nr);
}

static void sem_give(uint32_t nr)
{
	atomic_fetch_sub_explicit(&sem_held, (int)nr, memory_order_relaxed);
	check(mrt_semaphore_release(&sem, nr) == 0, nr, 0);
}

static enum mrt_poll sem_poll(struct mrt_task *self, void *frame)
{
	struct sem_task *t = frame;

	MRT_BEGIN(self);
	while (!is_over()) {
		t->want = 1 + mrt__rand_below(&t->start.rand, SEM_PERMITS);
		t->treatment = mrt__rand_below(&t->start.rand, TREATMENTS_NR);
		mrt_semaphore_acquire(&t->op, &sem, t->want);
		if (t->treatment == DEADLINE)
			mrt_deadline(&t->op, &t->timer, mrt__rand_below(&t->start.rand, 50000));
		if (t->treatment == CANCELLED_AFTER_A_YIELD)
			MRT_AWAIT(self, mrt_yield(&t->sleep));
		if (t->treatment == CANCELLED_AFTER_A_YIELD || t->treatment == CANCELLED_AT_ONCE)
			mrt_cancel(&t->op);
		MRT_AWAIT(self, &t->op);
		if (t->op.res < 0) {
			check_refusal(t->op.res, t->treatment);
			atomic_fetch_add_explicit(&sem_refusals, 1, memory_order_relaxed);
			continue;
		}
		atomic_fetch_add_explicit(&sem_grants, 1, memory_order_relaxed);
		sem_hold(t->want);
		if (mrt__rand_below(&t->start.rand, 2))
			MRT_AWAIT(self, mrt_yield(&t->sleep));
		sem_give(t->want);
		if (mrt__rand_below(&t->start.rand, 64) == 0) {
			/* leave with a wait in flight, to be collected; others take this one's place */
			mrt_semaphore_acquire(&t->op, &sem, 1);
			if (!mrt_op_is_done(&t->op) && mrt__rand_below(&t->start.rand, 2)) {
				replace(sem_poll, &t->start, sizeof(*t));
				MRT_RETURN(self, 0);
			}
			MRT_AWAIT(self, &t->op);
			sem_hold(1);
			sem_give(1);
		}
	}
	end_chain();
	MRT_RETURN(self, 0);
}

static void *sem_outsider(void *arg)
{
	(void)arg;
	while (!is_over()) {
		if (mrt_semaphore_try_acquire(&sem, 2) == 0) {
			sem_hold(2);
			(void)sched_yield();
			sem_give(2);
		}
	}
	return NULL;
}

static void case_semaphore(void)
{
	pthread_t threads[OUTSIDERS_NR];

	check(mrt_semaphore_init(&sem, SEM_PERMITS) == 0, 0, 0);
	spawn_chains(sem_poll, sizeof(struct sem_task));
	for (unsigned i = 0; i < OUTSIDERS_NR; i++)
		threads[i] = start_thread(sem_outsider, NULL);
	for (unsigned i = 0; i < OUTSIDERS_NR; i++)
		(void)pthread_join(threads[i], NULL);
	await_chains();
	/* the waits that were left behind may still be on their way back */
	while (mrt_semaphore_permits(&sem) != SEM_PERMITS)
		(void)sched_yield();
	printf("semaphore: %" PRIu64 " grants, %" PRIu64 " refusals\n", get(sem_grants), get(sem_refusals));
}

/* ---- channel ---- */

#define CHANNEL_CAPACITY 3u
#define MSG_WORDS 6u    /* a torn copy is seen */

static struct mrt_channel *channel;
static _Atomic uint64_t sent_nr, sent_sum, received_nr, received_sum;
static atomic_uint senders_left;

struct msg {
	uint64_t word[MSG_WORDS];
};

struct channel_task {
	struct start start;
	struct mrt_op op;
	struct mrt_op sleep;
	struct mrt_timer timer;
	struct msg msg;
	uint64_t serial;
	uint32_t treatment;
};

static struct msg msg_make(uint64_t value)
{
	struct msg m;

	for (unsigned i = 0; i < MSG_WORDS; i++)
		m.word[i] = value;
	return m;
}

static void msg_sent(const struct msg *m)
{
	atomic_fetch_add_explicit(&sent_nr, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&sent_sum, m->word[0], memory_order_relaxed);
}

static void msg_received(const struct msg *m)
{
	for (unsigned i = 1; i < MSG_WORDS; i++)
		check(m->word[i] == m->word[0], m->word[i], m->word[0]);
	atomic_fetch_add_explicit(&received_nr, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&received_sum, m->word[0], memory_order_relaxed);
}

/* The last one that sends closes the channel; then the receivers drain it. */
static void sender_ends(void)
{
	if (atomic_fetch_sub_explicit(&senders_left, 1, memory_order_acq_rel) == 1)
		mrt_channel_close(channel);
}

static enum mrt_poll channel_poll(struct mrt_task *self, void *frame)
{
	struct channel_task *t = frame;
	bool sends = t->start.number % 2;

	MRT_BEGIN(self);
	for (;;) {
		if (sends && is_over())
			break;
		t->treatment = mrt__rand_below(&t->start.rand, TREATMENTS_NR);
		if (sends) {
			t->msg = msg_make(++t->serial * TASKS_NR + t->start.number);
			mrt_channel_send(&t->op, channel, &t->msg);
		} else {
			t->msg = msg_make(0);
			mrt_channel_recv(&t->op, channel, &t->msg);
		}
		if (t->treatment == DEADLINE)
			mrt_deadline(&t->op, &t->timer, mrt__rand_below(&t->start.rand, 50000));
		if (t->treatment == CANCELLED_AFTER_A_YIELD)
			MRT_AWAIT(self, mrt_yield(&t->sleep));
		if (t->treatment == CANCELLED_AFTER_A_YIELD || t->treatment == CANCELLED_AT_ONCE)
			mrt_cancel(&t->op);
		MRT_AWAIT(self, &t->op);
		if (t->op.res == -EPIPE) {
			check(!sends, 0, 0);
			break;
		}
		if (t->op.res < 0) {
			check_refusal(t->op.res, t->treatment);
			check(sends || t->msg.word[0] == 0, t->msg.word[0], 0); /* nothing taken */
		} else if (sends) {
			msg_sent(&t->msg);
		} else {
			msg_received(&t->msg);
		}
	}
	if (sends)
		sender_ends();
	end_chain();
	MRT_RETURN(self, 0);
}

static void *channel_outsider(void *arg)
{
	bool sends = arg != NULL;
	uint64_t serial = 1;

	for (;;) {
		struct msg m = msg_make(sends ? serial++ : 0);
		int err;

		if (sends && is_over())
			break;
		err = sends ? mrt_channel_try_send(channel, &m) : mrt_channel_try_recv(channel, &m);
		if (err == -EPIPE)
			break;
		if (err == -EAGAIN)
			(void)sched_yield();
		else if (sends)
			msg_sent(&m);
		else
			msg_received(&m);
	}
	if (sends)
		sender_ends();
	return NULL;
}

static void case_channel(void)
{
	pthread_t threads[2];

	check(mrt_channel_create(CHANNEL_CAPACITY, sizeof(struct msg), &channel) == 0, 0, 0);
	atomic_store_explicit(&senders_left, TASKS_NR / 2 + 1, memory_order_relaxed);
	spawn_chains(channel_poll, sizeof(struct channel_task));
	threads[0] = start_thread(channel_outsider, NULL);
	threads[1] = start_thread(channel_outsider, channel);
	(void)pthread_join(threads[0], NULL);
	(void)pthread_join(threads[1], NULL);
	await_chains();
	check(get(sent_nr) == get(received_nr), get(sent_nr), get(received_nr));
	check(get(sent_sum) == get(received_sum), get(sent_sum), get(received_sum));
	check(mrt_channel_nr(channel) == 0, mrt_channel_nr(channel), 0);
	mrt_channel_destroy(channel);
	printf("channel: %" PRIu64 " messages\n", get(sent_nr));
}

/* ---- notify ---- */

/*
 * A counter of things to do and a notification for each: who adds one notifies one; who takes looks again after each
 * wait. A lost notification leaves a thing undone while all wait: the case hangs.
 */
static struct mrt_notify notify;
static atomic_int things;
static _Atomic uint64_t things_done;
static atomic_bool no_more_things;

struct notify_task {
	struct start start;
	struct mrt_op op;
	struct mrt_op sleep;
	struct mrt_timer timer;
	uint32_t treatment;
};

static bool take_thing(void)
{
	int nr = atomic_load_explicit(&things, memory_order_acquire);

	while (nr > 0)
		if (atomic_compare_exchange_weak_explicit(&things, &nr, nr - 1, memory_order_acq_rel,
							  memory_order_acquire))
			return true;
	return false;
}

static enum mrt_poll notify_poll(struct mrt_task *self, void *frame)
{
	struct notify_task *t = frame;

	MRT_BEGIN(self);
	for (;;) {
		while (take_thing())
			atomic_fetch_add_explicit(&things_done, 1, memory_order_relaxed);
		if (atomic_load_explicit(&no_more_things, memory_order_acquire))
			break;
		t->treatment = mrt__rand_below(&t->start.rand, TREATMENTS_NR);
		mrt_notify_wait(&t->op, &notify);
		if (t->treatment == DEADLINE)
			mrt_deadline(&t->op, &t->timer, mrt__rand_below(&t->start.rand, 100000));
		if (t->treatment == CANCELLED_AFTER_A_YIELD)
			MRT_AWAIT(self, mrt_yield(&t->sleep));
		if (t->treatment == CANCELLED_AFTER_A_YIELD || t->treatment == CANCELLED_AT_ONCE)
			mrt_cancel(&t->op);
		if (t->start.number > 1 && mrt__rand_below(&t->start.rand, 64) == 0) {
			/* leave while being notified, perhaps: the notification must go to another */
			replace(notify_poll, &t->start, sizeof(*t));
			MRT_RETURN(self, 0);
		}
		MRT_AWAIT(self, &t->op);
	}
	end_chain();
	MRT_RETURN(self, 0);
}

static void *notify_outsider(void *arg)
{
	struct mrt__rand rand;
	uint64_t *nr = arg;

	mrt__rand_init(&rand, stress.seed ^ (uintptr_t)arg);
	while (!is_over()) {
		atomic_fetch_add_explicit(&things, 1, memory_order_release);
		mrt_notify_one(&notify);
		(*nr)++;
		if (mrt__rand_below(&rand, 16) == 0)
			mrt_notify_all(&notify);
		/* now and then all of them must have gone to sleep and woken up for the last one */
		while (mrt__rand_below(&rand, 8) == 0 && get(things) > 0)
			(void)sched_yield();
	}
	return NULL;
}

static void case_notify(void)
{
	pthread_t threads[OUTSIDERS_NR];
	uint64_t added[OUTSIDERS_NR] = { 0 }, sum = 0;

	spawn_chains(notify_poll, sizeof(struct notify_task));
	for (unsigned i = 0; i < OUTSIDERS_NR; i++)
		threads[i] = start_thread(notify_outsider, &added[i]);
	for (unsigned i = 0; i < OUTSIDERS_NR; i++) {
		(void)pthread_join(threads[i], NULL);
		sum += added[i];
	}
	while (get(things) > 0)
		(void)sched_yield();
	atomic_store_explicit(&no_more_things, true, memory_order_release);
	while (get(chains_nr) > 0) {
		mrt_notify_all(&notify);
		(void)sched_yield();
	}
	await_chains();
	check(get(things_done) == sum, sum, get(things_done));
	printf("notify: %" PRIu64 " things\n", sum);
}

/* ---- oneshot: the object dies with its receiver's frame, while the sender is still inside send ---- */

struct oneshot_task {
	struct start start;
	struct mrt_op op;
};

struct oneshot_round {
	struct mrt_op op;
	struct mrt_oneshot oneshot;
	_Atomic(struct mrt_oneshot *) *slot;
};

static _Atomic(struct mrt_oneshot *) oneshot_slots[TASKS_NR];
static _Atomic uint64_t oneshot_rounds;

static enum mrt_poll oneshot_round_poll(struct mrt_task *self, void *frame)
{
	struct oneshot_round *r = frame;

	MRT_BEGIN(self);
	atomic_store_explicit(r->slot, &r->oneshot, memory_order_release);
	MRT_AWAIT(self, mrt_oneshot_recv(&r->op, &r->oneshot));
	check(r->op.res == 5, r->op.res, 0);
	MRT_RETURN(self, r->op.res);
}

static enum mrt_poll oneshot_poll(struct mrt_task *self, void *frame)
{
	struct oneshot_task *t = frame;
	struct mrt_task *child;

	MRT_BEGIN(self);
	while (!is_over()) {
		struct oneshot_round round = { .slot = &oneshot_slots[t->start.number] };

		check(mrt_spawn(NULL, oneshot_round_poll, &round, sizeof(round), NULL, &child) == 0, 0, 0);
		MRT_AWAIT(self, mrt_join(&t->op, child));
		check(t->op.res == 5 && t->op.why == 0, t->op.res, t->op.why);
		atomic_fetch_add_explicit(&oneshot_rounds, 1, memory_order_relaxed);
	}
	end_chain();
	MRT_RETURN(self, 0);
}

static void *oneshot_outsider(void *arg)
{
	struct mrt_oneshot *o;
	unsigned i = 0;

	(void)arg;
	while (!atomic_load_explicit(&stress.stop, memory_order_acquire)) {
		i = (i + 1) % TASKS_NR;
		o = atomic_exchange_explicit(&oneshot_slots[i], NULL, memory_order_acquire);
		if (o)
			check(mrt_oneshot_send(o, 5) == 0, i, 0);
		else if (i == 0)
			(void)sched_yield();
	}
	return NULL;
}

static void case_oneshot(void)
{
	pthread_t threads[OUTSIDERS_NR];

	spawn_chains(oneshot_poll, sizeof(struct oneshot_task));
	for (unsigned i = 0; i < OUTSIDERS_NR; i++)
		threads[i] = start_thread(oneshot_outsider, NULL);
	await_chains();
	atomic_store_explicit(&stress.stop, true, memory_order_release);
	for (unsigned i = 0; i < OUTSIDERS_NR; i++)
		(void)pthread_join(threads[i], NULL);
	printf("oneshot: %" PRIu64 " rounds\n", get(oneshot_rounds));
}

/* ---- the blocking pool ---- */

struct blocking_task {
	struct start start;
	struct mrt_op op;
	struct mrt_op sleep;
	struct mrt_timer timer;
	atomic_uint runs;
	uint32_t treatment;
};

static _Atomic uint64_t calls_run, calls_cancelled, calls_refused;

static int64_t call(void *arg)
{
	struct blocking_task *t = arg;

	return (int64_t)atomic_fetch_add_explicit(&t->runs, 1, memory_order_relaxed);
}

static enum mrt_poll blocking_poll(struct mrt_task *self, void *frame)
{
	struct blocking_task *t = frame;

	MRT_BEGIN(self);
	while (!is_over()) {
		atomic_store_explicit(&t->runs, 0, memory_order_relaxed);
		t->treatment = mrt__rand_below(&t->start.rand, TREATMENTS_NR);
		mrt_blocking(&t->op, call, t);
		if (t->treatment == DEADLINE)
			mrt_deadline(&t->op, &t->timer, mrt__rand_below(&t->start.rand, 50000));
		if (t->treatment == CANCELLED_AFTER_A_YIELD)
			MRT_AWAIT(self, mrt_yield(&t->sleep));
		if (t->treatment == CANCELLED_AFTER_A_YIELD || t->treatment == CANCELLED_AT_ONCE)
			mrt_cancel(&t->op);
		if (mrt__rand_below(&t->start.rand, 32) == 0) {
			/* leave while the call may be about to run on this frame */
			replace(blocking_poll, &t->start, sizeof(*t));
			MRT_RETURN(self, 0);
		}
		MRT_AWAIT(self, &t->op);
		if (t->op.res == 0) {
			check(get(t->runs) == 1, get(t->runs), 0);
			atomic_fetch_add_explicit(&calls_run, 1, memory_order_relaxed);
		} else if (t->op.res == -EAGAIN) {
			check(get(t->runs) == 0, get(t->runs), 0);
			atomic_fetch_add_explicit(&calls_refused, 1, memory_order_relaxed);
			MRT_AWAIT(self, mrt_sleep(&t->sleep, MRT_US(20)));
		} else {
			check_refusal(t->op.res, t->treatment);
			check(get(t->runs) == 0, get(t->runs), 0);
			atomic_fetch_add_explicit(&calls_cancelled, 1, memory_order_relaxed);
		}
	}
	end_chain();
	MRT_RETURN(self, 0);
}

static void case_blocking(void)
{
	spawn_chains(blocking_poll, sizeof(struct blocking_task));
	await_chains();
	printf("blocking: %" PRIu64 " run, %" PRIu64 " cancelled, %" PRIu64 " refused\n", get(calls_run),
	       get(calls_cancelled), get(calls_refused));
}

/* ---- scopes ---- */

struct scope_task {
	struct start start;
	struct mrt_op op;
	struct mrt_op sleep;
	struct mrt_timer timer;
	struct mrt_scope scope;
	atomic_int *parent_alive;       /* in the parent's frame: this child's life */
	atomic_int alive;               /* children of this one */
	unsigned depth;
	unsigned i;
	uint32_t treatment;
};

static _Atomic uint64_t scope_children;

/* A subtree: spawns, joins, cancels or just returns; whatever it does, its children are gone first. */
static enum mrt_poll scope_node_poll(struct mrt_task *self, void *frame)
{
	struct scope_task *t = frame;

	MRT_BEGIN(self);
	atomic_fetch_add_explicit(&scope_children, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(t->parent_alive, 1, memory_order_relaxed);
	mrt_scope_init(&t->scope, mrt__rand_below(&t->start.rand, 2) ? MRT_SCOPE_FAIL_FAST : 0);
	if (t->depth > 0) {
		for (t->i = mrt__rand_below(&t->start.rand, 5); t->i > 0; t->i--) {
			struct scope_task child = { .depth = t->depth - 1, .parent_alive = &t->alive };
			int err;

			mrt__rand_init(&child.start.rand, (uint64_t)mrt__rand_next(&t->start.rand) << 32 | t->i);
			err = mrt_scope_spawn(&t->scope, scope_node_poll, &child, sizeof(child), NULL);
			check(err == 0 || err == -ECANCELED, err, 0);
			if (mrt__rand_below(&t->start.rand, 4) == 0)
				MRT_AWAIT(self, mrt_yield(&t->sleep));
		}
	}
	t->treatment = mrt__rand_below(&t->start.rand, 6);
	if (t->treatment == 0) {
		MRT_AWAIT(self, mrt_sleep(&t->sleep, mrt__rand_below(&t->start.rand, 50000)));
	} else if (t->treatment == 1) {
		mrt_scope_cancel(&t->scope);
		MRT_AWAIT(self, mrt_scope_join(&t->scope));
		check(get(t->alive) == 0, get(t->alive), 0);
	} else if (t->treatment == 2) {
		if (!mrt_op_is_done(mrt_scope_join(&t->scope)))
			mrt_deadline(&t->scope.mrt__op, &t->timer, mrt__rand_below(&t->start.rand, 50000));
		MRT_AWAIT(self, &t->scope.mrt__op);
		check(get(t->alive) == 0, get(t->alive), 0);
	} else if (t->treatment < 5) {
		MRT_AWAIT(self, mrt_scope_join(&t->scope));
		check(get(t->alive) == 0, get(t->alive), 0);
	}
	/* the children, if any, still count in t->alive after this return: the frame must stay */
	atomic_fetch_sub_explicit(t->parent_alive, 1, memory_order_release);
	MRT_RETURN(self, mrt__rand_below(&t->start.rand, 4) == 0 ? -EIO : 0);
}

static enum mrt_poll scope_poll(struct mrt_task *self, void *frame)
{
	struct scope_task *t = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&t->scope, 0);
	while (!is_over()) {
		struct scope_task child = { .depth = 3, .parent_alive = &t->alive };

		mrt__rand_init(&child.start.rand, (uint64_t)mrt__rand_next(&t->start.rand) << 32 | 1);
		check(mrt_scope_spawn(&t->scope, scope_node_poll, &child, sizeof(child), NULL) == 0, 0, 0);
		if (mrt__rand_below(&t->start.rand, 2)) {
			MRT_AWAIT(self, mrt_sleep(&t->sleep, mrt__rand_below(&t->start.rand, 100000)));
			mrt_scope_cancel(&t->scope);
		}
		MRT_AWAIT(self, mrt_scope_join(&t->scope));
		check(get(t->alive) == 0, get(t->alive), 0);
	}
	end_chain();
	MRT_RETURN(self, 0);
}

static void case_scope(void)
{
	spawn_chains(scope_poll, sizeof(struct scope_task));
	await_chains();
	printf("scope: %" PRIu64 " children\n", get(scope_children));
}

/* ---- */

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "semaphore", case_semaphore }, { "channel", case_channel },   { "notify", case_notify },
	{ "oneshot", case_oneshot },     { "blocking", case_blocking }, { "scope", case_scope },
};
#define CASES_NR (sizeof(cases) / sizeof(cases[0]))

/* A hang is a failure with a name. */
static void *watch(void *arg)
{
	uint64_t limit = *(const uint64_t *)arg;

	(void)sleep((unsigned)limit);
	fail("hangs", (int64_t)limit, 0);
	return NULL;
}

int main(void)
{
	uint64_t ms = env_number("MRT_STRESS_MS", 3000), limit_s = HANG_S + ms / 1000;
	const char *only = getenv("MRT_CASE");
	struct mrt_runtime_opts opts;

	stress.seed = env_number("MRT_SEED", mrt_now());
	printf("MRT_SEED=%" PRIu64 " MRT_STRESS_MS=%" PRIu64 "\n", stress.seed, ms);
	(void)fflush(stdout);
	(void)pthread_detach(start_thread(watch, &limit_s));
	for (size_t i = 0; i < CASES_NR; i++) {
		if (only && strcmp(only, cases[i].name) != 0)
			continue;
		atomic_store_explicit(&now_running, cases[i].name, memory_order_relaxed);
		mrt_runtime_opts_init(&opts);
		opts.workers_nr = WORKERS_NR;
		opts.sq_entries = 64;
		opts.seed = stress.seed;
		opts.blocking_threads_max = 6;
		opts.blocking_queue_max = 8;
		opts.blocking_keep_alive_ns = MRT_US(200);
		check(mrt_runtime_create(&opts, &stress.rt) == 0, 0, 0);
		atomic_store_explicit(&stress.stop, false, memory_order_relaxed);
		stress.end_ns = mrt_now() + ms * 1000000 / CASES_NR;
		cases[i].run();
		mrt_runtime_destroy(stress.rt);
		(void)fflush(stdout);
	}
	return 0;
}
