/* SPDX-License-Identifier: MIT */
/*
 * The whole runtime under a mix of everything, for as long as it is given: tasks that start ops of every kind, several
 * at a time, with cancels, deadlines and shields at random; parents that spawn, join, abort, detach and leave early;
 * threads outside that spawn, abort and join; runtimes of random shape, shut down in the middle.
 *
 * Checked: each op ends exactly once with a result that its history allows; sleeps are never early; bytes sent are bytes
 * received, in order; every handle resolves; frames keep their canaries; after the shutdown nothing is in flight, no
 * timer is armed, no descriptor is open, and spawns equal ends.
 *
 * Environment: MRT_SEED (printed), MRT_STRESS_MS (default 4000). Threads are not reproducible: a seed repeats the
 * choices only. A hang is a failure with the name of the phase.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "itest.h"

#define HANG_S 60
#define OPS_MAX 6
#define THREADS_NR 3
#define CANARY UINT64_C(0xfeedfacecafebeef)

static struct {
	struct mrt_runtime *rt;
	uint64_t seed;
	atomic_bool closing;    /* the pool ends what waits in its queue a moment before tasks are aborted */
	atomic_ullong actors, ops, cancels, timeouts, aborts, results;
	_Atomic(const char *) phase;
	int file;
	int quiet[2];           /* a socket pair on which nothing ever comes */
	struct mrt_notify notify;
	struct mrt_semaphore sem;
} st;

__attribute__((noreturn, format(printf, 1, 2)))
static void die(const char *fmt, ...)
{
	char *log = itest_log_text();
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "stress_sched: seed %" PRIu64 ", phase %s: ", st.seed, atomic_load(&st.phase));
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\nlog: %s\n", log);
	va_end(ap);
	abort();
}

#define CHECK(cond, ...)                                                                                \
	do {                                                                                            \
		if (!(cond))                                                                            \
			die(#cond ": " __VA_ARGS__);                                                   \
	} while (0)

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static unsigned below(uint64_t *state, unsigned n)
{
	return (unsigned)(next_random(state) >> 33) % n;
}

/* ---- an actor: a task that does a number of random steps ---- */

enum kind {
	KIND_SLEEP, KIND_NOP, KIND_READ, KIND_RECV_QUIET, KIND_RECV, KIND_RECV_EXACT, KIND_POLL, KIND_NOTIFY, KIND_SEMAPHORE,
	KIND_OPEN, KIND_BLOCKING, KIND_YIELD, KINDS_NR
};

struct slot {
	struct mrt_op op;
	struct mrt_timer timer;
	enum kind kind;
	bool cancelled, deadlined, shielded;
	uint64_t due;
	unsigned char buf[32];
};

struct actor {
	uint64_t canary;
	uint64_t rand;
	struct slot slot[OPS_MAX];
	struct mrt_op *ops[OPS_MAX];
	struct mrt_op op;
	struct mrt_task *child;
	unsigned nr, steps, step, i, depth;
	size_t which;
	int pair[2];            /* our own: what is sent on [1] is received on [0] */
	unsigned char sent, received;
	unsigned pending;       /* bytes sent and not received */
	bool wild;              /* leaves with ops in flight */
	uint64_t canary2;
};

static int64_t work(void *arg)
{
	itest_spin((uintptr_t)arg % 20000);
	return 7;
}

static void start_kind(struct actor *a, struct slot *s)
{
	switch (s->kind) {
	case KIND_SLEEP: {
		uint64_t ns = below(&a->rand, 3) ? below(&a->rand, 300000) : 0;

		s->due = mrt_now() + ns;
		mrt_sleep(&s->op, ns);
		break;
	}
	case KIND_NOP:
		mrt_nop(&s->op);
		break;
	case KIND_READ:
		mrt_read(&s->op, st.file, s->buf, sizeof(s->buf), below(&a->rand, 4000));
		break;
	case KIND_RECV_QUIET:
		mrt_recv(&s->op, st.quiet[0], s->buf, sizeof(s->buf), 0);
		break;
	case KIND_RECV:
		mrt_recv(&s->op, a->pair[0], s->buf, 1, 0);
		break;
	case KIND_RECV_EXACT:
		mrt_recv_exact(&s->op, a->pair[0], s->buf, sizeof(s->buf));
		break;
	case KIND_POLL:
		mrt_poll_fd(&s->op, st.quiet[1], below(&a->rand, 2) ? POLLIN : POLLOUT);
		break;
	case KIND_NOTIFY:
		mrt_notify_wait(&s->op, &st.notify);
		break;
	case KIND_SEMAPHORE:
		mrt_semaphore_acquire(&s->op, &st.sem, 1 + below(&a->rand, 3));
		break;
	case KIND_OPEN:
		mrt_open(&s->op, MRT_AT_FDCWD, "/dev/null", O_RDONLY, 0);
		break;
	case KIND_BLOCKING:
		mrt_blocking(&s->op, work, (void *)(uintptr_t)below(&a->rand, 40000));
		break;
	default:
		mrt_yield(&s->op);
	}
}

/* Which of several ops gets a byte first is theirs to settle: only one receive on the own pair at a time. */
static bool receives(enum kind kind)
{
	return kind == KIND_RECV || kind == KIND_RECV_EXACT;
}

static void start_ops(struct actor *a)
{
	struct mrt_task *self = mrt_task_self();
	bool receiving = false;
	unsigned i;

	a->nr = 1 + below(&a->rand, OPS_MAX);
	for (i = 0; i < a->nr; i++) {
		struct slot *s = &a->slot[i];

		s->kind = (enum kind)below(&a->rand, KINDS_NR);
		if (receives(s->kind) && receiving)
			s->kind = KIND_NOP;
		receiving |= receives(s->kind);
		s->cancelled = s->deadlined = false;
		s->shielded = s->kind != KIND_RECV_QUIET && s->kind != KIND_NOTIFY && s->kind != KIND_POLL &&
			      !receives(s->kind) && s->kind != KIND_SEMAPHORE && below(&a->rand, 8) == 0;
		if (s->shielded)
			mrt_shield(self, true);
		start_kind(a, s);
		if (s->shielded)
			mrt_shield(self, false);
		if (below(&a->rand, 3) == 0) {
			s->deadlined = true;
			mrt_deadline(&s->op, &s->timer, below(&a->rand, 200000));
		}
		a->ops[i] = &s->op;
		atomic_fetch_add_explicit(&st.ops, 1, memory_order_relaxed);
	}
	if (below(&a->rand, 6) == 0)
		mrt_flush();
}

/* What waits for something that may never come must be ended by us. */
static bool may_wait_for_ever(const struct slot *s)
{
	return s->kind == KIND_RECV_QUIET || s->kind == KIND_NOTIFY || s->kind == KIND_POLL || s->kind == KIND_SEMAPHORE ||
	       receives(s->kind);
}

static void cancel_some(struct actor *a, bool all)
{
	unsigned i;

	for (i = 0; i < a->nr; i++) {
		struct slot *s = &a->slot[i];

		if (mrt_op_is_done(&s->op) || !(all ? may_wait_for_ever(s) : below(&a->rand, 3) == 0))
			continue;
		s->cancelled = true;
		mrt_cancel(&s->op);
		atomic_fetch_add_explicit(&st.cancels, 1, memory_order_relaxed);
	}
}

static void check_bytes(struct actor *a, const struct slot *s)
{
	int64_t i;

	for (i = 0; i < s->op.res; i++)
		CHECK(s->buf[i] == a->received++, "byte %d of %d is %u", (int)i, (int)s->op.res, s->buf[i]);
	a->pending -= (unsigned)s->op.res;
}

/* Undo what was taken; is the result one that its history allows? */
static void check_slot(struct actor *a, struct slot *s)
{
	int64_t res = s->op.res;
	bool aborted = mrt_task_is_aborted(mrt_task_self()) || (s->kind == KIND_BLOCKING && atomic_load(&st.closing));

	atomic_fetch_add_explicit(&st.results, 1, memory_order_relaxed);
	if (res == -ECANCELED) {
		CHECK(s->cancelled || aborted, "kind %d", s->kind);
		return;
	}
	if (res == -ESHUTDOWN) {
		CHECK(aborted, "kind %d", s->kind);
		return;
	}
	if (res == -ETIMEDOUT) {
		CHECK(s->deadlined, "kind %d", s->kind);
		atomic_fetch_add_explicit(&st.timeouts, 1, memory_order_relaxed);
		return;
	}
	if (res == -EAGAIN && s->kind == KIND_BLOCKING)
		return; /* its queue is bounded */
	CHECK(res >= 0, "kind %d: %lld", s->kind, (long long)res);
	if (s->op.why)
		CHECK(s->kind == KIND_RECV_EXACT && (s->cancelled || s->deadlined || aborted), "why %d", s->op.why);
	switch (s->kind) {
	case KIND_SLEEP:
		CHECK(mrt_now() >= s->due, "early by %llu", (unsigned long long)(s->due - mrt_now()));
		break;
	case KIND_READ:
		CHECK(res == sizeof(s->buf), "%lld", (long long)res);
		break;
	case KIND_RECV_QUIET:
		die("something came: %lld", (long long)res);
	case KIND_RECV:
	case KIND_RECV_EXACT:
		check_bytes(a, s);
		break;
	case KIND_OPEN:
		close((int)res);
		break;
	case KIND_BLOCKING:
		CHECK(res == 7, "%lld", (long long)res);
		break;
	default:
		break;
	}
}

static void send_bytes(struct actor *a)
{
	unsigned char buf[40];
	unsigned nr = 1 + below(&a->rand, sizeof(buf)), i;

	if (a->pending > 1000)
		return;
	for (i = 0; i < nr; i++)
		buf[i] = a->sent++;
	CHECK(send(a->pair[1], buf, nr, MSG_NOSIGNAL) == (ssize_t)nr, "%d", errno);
	a->pending += nr;
}

/* Permits come from nowhere and go nowhere: the semaphore is only there to be waited for. */
static void poke_others(struct actor *a)
{
	switch (below(&a->rand, 6)) {
	case 0:
		mrt_notify_one(&st.notify);
		break;
	case 1:
		mrt_notify_all(&st.notify);
		break;
	case 2:
		if (mrt_semaphore_permits(&st.sem) < 10)
			(void)mrt_semaphore_release(&st.sem, 2);
		break;
	default:
		break;
	}
}

static enum mrt_poll actor_poll(struct mrt_task *self, void *frame);

static void init_actor(struct actor *a, uint64_t rand, unsigned depth)
{
	memset(a, 0, sizeof(*a));
	a->canary = a->canary2 = CANARY;
	a->rand = rand;
	a->depth = depth;
	a->steps = 1 + below(&a->rand, 30);
	a->wild = below(&a->rand, 4) == 0;
	a->pair[0] = a->pair[1] = -1;
}

static int spawn_actor(struct mrt_runtime *rt, uint64_t rand, unsigned depth, struct mrt_task **ret_task)
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts) };
	struct actor a;

	init_actor(&a, rand, depth);
	opts.flags = rand & 1 ? MRT_SPAWN_SPREAD : 0;
	opts.frame_bytes = sizeof(a) + (rand & 6) * 700; /* cells of several classes */
	atomic_fetch_add_explicit(&st.actors, 1, memory_order_relaxed);
	return mrt_spawn(rt, actor_poll, &a, sizeof(a), &opts, ret_task);
}

static void end_pair(struct actor *a)
{
	if (a->pair[0] >= 0) {
		close(a->pair[0]);
		close(a->pair[1]);
	}
}

static enum mrt_poll actor_poll(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	CHECK(a->canary == CANARY && a->canary2 == CANARY, "the frame was overwritten");
	MRT_BEGIN(self);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a->pair))
		MRT_RETURN(self, -EMFILE);
	for (a->step = 0; a->step < a->steps; a->step++) {
		if (mrt_task_is_aborted(self) && below(&a->rand, 2))
			break;
		start_ops(a);
		if (below(&a->rand, 2))
			send_bytes(a);
		if (a->depth < 3 && below(&a->rand, 8) == 0) {
			/* a child, in the middle of it */
			if (spawn_actor(NULL, next_random(&a->rand), a->depth + 1, &a->child) == 0) {
				switch (below(&a->rand, 4)) {
				case 0:
					mrt_detach(a->child);
					a->child = NULL;
					break;
				case 1:
					mrt_abort(a->child);
					break;
				default:
					break;
				}
			} else {
				a->child = NULL;
			}
		}
		poke_others(a);
		switch (below(&a->rand, 4)) {
		case 0:
			MRT_AWAIT_ANY(self, a->ops, a->nr, a->which);
			CHECK(mrt_op_is_done(a->ops[a->which]), "%zu", a->which);
			break;
		case 1:
			MRT_AWAIT(self, mrt_yield(&a->op));
			break;
		case 2:
			cancel_some(a, false);
			break;
		default:
			MRT_AWAIT(self, mrt_sleep(&a->op, below(&a->rand, 50000)));
		}
		if (a->wild && a->step + 1 == a->steps) {
			/* leave: the runtime collects */
			mrt_detach(a->child);
			/* receives that are still in flight use the pair: they are cancelled before it can be used again */
			if (a->pair[0] >= 0 && below(&a->rand, 2))
				shutdown(a->pair[0], SHUT_RDWR);
			cancel_some(a, true);
			MRT_AWAIT_ALL(self, a->ops, a->nr);
			for (a->i = 0; a->i < a->nr; a->i++)
				check_slot(a, &a->slot[a->i]);
			end_pair(a);
			mrt_sleep(&a->slot[0].op, UINT64_MAX);
			mrt_recv(&a->slot[1].op, st.quiet[0], a->slot[1].buf, 32, 0);
			mrt_open(&a->slot[2].op, MRT_AT_FDCWD, "/dev/null", O_RDONLY, 0);
			mrt_read(&a->slot[3].op, st.file, a->slot[3].buf, 32, 0);
			mrt_deadline(&a->slot[3].op, &a->slot[3].timer, below(&a->rand, 30000));
			mrt_notify_wait(&a->slot[4].op, &st.notify);
			mrt_nop(&a->slot[5].op);
			MRT_RETURN(self, 1);
		}
		cancel_some(a, true);
		MRT_AWAIT_ALL(self, a->ops, a->nr);
		for (a->i = 0; a->i < a->nr; a->i++)
			check_slot(a, &a->slot[a->i]);
		if (a->child) {
			if (below(&a->rand, 2)) {
				mrt_abort(a->child);
				atomic_fetch_add_explicit(&st.aborts, 1, memory_order_relaxed);
			}
			MRT_AWAIT(self, mrt_join(&a->op, a->child));
			if (a->op.why) {
				CHECK(a->op.why == -ECANCELED || a->op.why == -ESHUTDOWN, "why %d", a->op.why);
				mrt_detach(a->child);
			}
			a->child = NULL;
		}
	}
	end_pair(a);
	MRT_RETURN(self, 0);
}

/* ---- threads outside ---- */

static void *outside(void *arg)
{
	uint64_t rand = st.seed ^ (uint64_t)(uintptr_t)arg * 7919;
	struct mrt_task *tasks[32] = { NULL };
	int64_t result;
	int err = 0;
	size_t i;

	while (!err) {
		i = below(&rand, 32);
		if (tasks[i]) {
			switch (below(&rand, 3)) {
			case 0:
				mrt_abort(tasks[i]);
				atomic_fetch_add_explicit(&st.aborts, 1, memory_order_relaxed);
				break;
			case 1:
				mrt_detach(tasks[i]);
				tasks[i] = NULL;
				break;
			default:
				CHECK(mrt_task_join_wait(tasks[i], &result) == 0, "%zu", i);
				tasks[i] = NULL;
			}
			continue;
		}
		if (mrt_now() % 4 == 0)
			itest_pause();
		err = spawn_actor(st.rt, next_random(&rand), 0, &tasks[i]);
		CHECK(err == 0 || err == -ESHUTDOWN, "%d", err);
		if (err)
			tasks[i] = NULL;
	}
	for (i = 0; i < 32; i++)
		if (tasks[i])
			CHECK(mrt_task_join_wait(tasks[i], NULL) == 0, "%zu", i);
	return NULL;
}

/* ---- a round: one runtime, from its making to its end ---- */

static struct mrt_runtime_opts random_opts(uint64_t *rand)
{
	struct mrt_runtime_opts opts = itest_opts((int)below(rand, 2) ? ITEST_FLOAT : ITEST_TWO);
	static const uint32_t queues[] = { 8, 16, 64, 256 }, intervals[] = { 1, 2, 61, 500 };
	static const uint32_t workers[] = { 1, 2, 3, 4, 5, 8, 16, 64 };

	opts.workers_nr = workers[below(rand, 8)];
	opts.sq_entries = queues[below(rand, 4)];
	opts.cq_entries = opts.sq_entries * (1 + below(rand, 2) * 7);
	opts.inject_interval = intervals[below(rand, 4)];
	opts.event_interval = intervals[below(rand, 4)];
	opts.blocking_threads_max = 1 + below(rand, 4);
	opts.blocking_queue_max = below(rand, 20);
	opts.blocking_keep_alive_ns = MRT_MS(1);
	opts.seed = next_random(rand) | 1;
	switch (below(rand, 5)) {
	case 0:
		opts.flags |= MRT_RUNTIME_COOP_TASKRUN;
		break;
	case 1:
		opts.flags |= MRT_RUNTIME_PLAIN_RINGS;
		break;
	case 2:
		opts.flags |= MRT_RUNTIME_TUNE_EVENTS | MRT_RUNTIME_TUNE_INJECT;
		break;
	default:
		break;
	}
	return opts;
}

static void check_after(unsigned fds_nr)
{
	struct mrt_worker_stats sum = itest_stats(st.rt);
	struct mrt_global_stats global = itest_global(st.rt);

	CHECK(global.tasks_alive == 0, "%llu tasks", (unsigned long long)global.tasks_alive);
	CHECK(sum.spawns + global.spawns_outside == sum.ends, "%llu + %llu spawns, %llu ends",
	      (unsigned long long)sum.spawns, (unsigned long long)global.spawns_outside, (unsigned long long)sum.ends);
	CHECK(sum.inflight == 0 && sum.queued == 0, "%u in flight, %u queued", sum.inflight, sum.queued);
	CHECK(sum.timers == 0, "%llu timers", (unsigned long long)sum.timers);
	CHECK(global.inject_depth == 0, "%llu in inject", (unsigned long long)global.inject_depth);
	mrt_runtime_destroy(st.rt);
	CHECK(itest_fds_nr() == fds_nr, "%u descriptors, %u before", itest_fds_nr(), fds_nr);
}

static void round_once(uint64_t *rand, uint64_t ms)
{
	struct mrt_runtime_opts opts = random_opts(rand);
	unsigned fds_nr = itest_fds_nr(), i;
	pthread_t threads[THREADS_NR];
	uint64_t until;
	int err;

	atomic_store(&st.phase, "create");
	atomic_store(&st.closing, false);
	mrt_notify_init(&st.notify);
	CHECK(mrt_semaphore_init(&st.sem, 3) == 0, "semaphore");
	err = mrt_runtime_create(&opts, &st.rt);
	CHECK(err == 0, "%d", err);
	atomic_store(&st.phase, "run");
	for (i = 0; i < THREADS_NR; i++)
		CHECK(pthread_create(&threads[i], NULL, outside, (void *)(uintptr_t)(next_random(rand) | 1)) == 0, "thread");
	for (until = mrt_now() + MRT_MS(ms); mrt_now() < until;)
		itest_pause();
	atomic_store(&st.closing, true);
	atomic_store(&st.phase, "shutdown");
	if (below(rand, 2)) {
		err = mrt_runtime_shutdown_wait(st.rt, below(rand, 300000));
		CHECK(err == 0 || err == -ETIMEDOUT, "%d", err);
	}
	err = mrt_runtime_shutdown_wait(st.rt, UINT64_MAX);
	CHECK(err == 0, "%d", err);
	atomic_store(&st.phase, "join");
	for (i = 0; i < THREADS_NR; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&st.phase, "after");
	check_after(fds_nr);
	itest_log_clear();
}

static void *watch(void *arg)
{
	(void)sleep(*(const unsigned *)arg);
	die("hangs");
	return NULL;
}

int main(void)
{
	unsigned ms = itest_env("MRT_STRESS_MS", 4000), limit_s = HANG_S + ms / 1000, rounds = 0;
	const char *seed = getenv("MRT_SEED");
	char block[4096] = "stress", path[256];
	uint64_t rand, until;
	pthread_t watcher;

	itest_need_io_uring();
	st.seed = seed && *seed ? strtoull(seed, NULL, 10) : mrt_now();
	rand = st.seed;
	printf("MRT_SEED=%" PRIu64 " MRT_STRESS_MS=%u\n", st.seed, ms);
	(void)fflush(stdout);
	snprintf(path, sizeof(path), "%.200s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	st.file = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	CHECK(st.file >= 0 && write(st.file, block, sizeof(block)) == sizeof(block), "%s", path);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, st.quiet) == 0, "socketpair");
	CHECK(pthread_create(&watcher, NULL, watch, &limit_s) == 0, "thread");
	until = mrt_now() + MRT_MS(ms);
	do {
		round_once(&rand, 1 + below(&rand, 200));
		rounds++;
	} while (mrt_now() < until);
	printf("%u runtimes, %llu actors, %llu ops, %llu cancels, %llu deadlines passed, %llu aborts\n", rounds,
	       (unsigned long long)st.actors, (unsigned long long)st.ops, (unsigned long long)st.cancels,
	       (unsigned long long)st.timeouts, (unsigned long long)st.aborts);
	return 0;
}
