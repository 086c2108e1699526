/* SPDX-License-Identifier: MIT */
/*
 * The scheduler's promises: everybody gets a turn, nobody waits for a worker that is stuck, idle means idle, one request
 * costs one context switch, and the counters add up.
 *
 * Promises about time are contracts, but the machine may be shared: each is tried in short rounds for a long time, and must hold
 * in one of them. They are not asked of instrumented code.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define TRY_NS MRT_SEC(20)

/* ---- a thousand tasks, always ready ---- */

#define FAIR_TASKS 1000
#define FAIR_POLLS 200          /* mean at the end */

enum ready_by {
	READY_BY_YIELD,
	READY_BY_NOP,
	READY_BY_READ,
	READY_NR
};

struct fair {
	atomic_ullong total;
	atomic_bool stop;
	uint64_t polls[FAIR_TASKS];
	int fd;
};

struct fair_task {
	struct mrt_op op;
	struct fair *fair;
	int index, how;
	char buf[512];
};

static struct mrt_op *start_ready(struct fair_task *f)
{
	switch (f->how) {
	case READY_BY_YIELD:
		return mrt_yield(&f->op);
	case READY_BY_NOP:
		return mrt_nop(&f->op);
	default:
		return mrt_read(&f->op, f->fair->fd, f->buf, sizeof(f->buf), 512 * (f->index % 8));
	}
}

static enum mrt_poll fair_poll(struct mrt_task *self, void *frame)
{
	struct fair_task *f = frame;

	MRT_BEGIN(self);
	while (!atomic_load_explicit(&f->fair->stop, memory_order_relaxed)) {
		f->fair->polls[f->index]++;
		if (atomic_fetch_add_explicit(&f->fair->total, 1, memory_order_relaxed) == FAIR_TASKS * FAIR_POLLS)
			atomic_store(&f->fair->stop, true);
		MRT_AWAIT(self, start_ready(f));
		if (f->op.res < 0)
			MRT_RETURN(self, f->op.res);
	}
	MRT_RETURN(self, 0);
}

ITEST_CHILD(fair_parent, { struct fair *fair; int how; struct mrt_task *tasks[FAIR_TASKS]; struct mrt_op op; int i; })
{
	struct fair_task child = { .fair = f->fair, .how = f->how };

	MRT_BEGIN(self);
	for (f->i = 0; f->i < FAIR_TASKS; f->i++) {
		child.index = f->i;
		ck_assert_int_eq(mrt_spawn(NULL, fair_poll, &child, sizeof(child), NULL, &f->tasks[f->i]), 0);
	}
	for (f->i = 0; f->i < FAIR_TASKS; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		ck_assert_int_eq(f->op.res, 0);
	}
	MRT_RETURN(self, 0);
}

/* A file in the page cache of a real file system: its reads complete inline. tmpfs would send each to io-wq. */
static int cached_file(void)
{
	static const char block[4096] = "cached";
	char path[] = "/tmp/martlet-itest-XXXXXX";
	const char *dir = getenv("TMPDIR");
	char at[4096];
	int fd;

	snprintf(at, sizeof(at), "%s/martlet-itest-XXXXXX", dir && *dir ? dir : "/tmp");
	fd = mkstemp(at);
	if (fd < 0) {
		fd = mkstemp(path);
		ck_assert_int_ge(fd, 0);
		unlink(path);
	} else {
		unlink(at);
	}
	ck_assert_int_eq(write(fd, block, sizeof(block)), sizeof(block));
	return fd;
}

/* One worker: with more than 256 ready at once, the local queue alone cannot hold them. */
static void check_fair(int how, bool current)
{
	static const char *const names[READY_NR] = { "yields", "nops", "cached reads" };
	static struct fair fair;
	static struct fair_parent parent;
	struct mrt_runtime_opts opts = itest_opts(current ? ITEST_CURRENT : ITEST_TWO);
	struct mrt_runtime *rt;
	uint64_t min = UINT64_MAX, max = 0, sum = 0;
	int i;

	memset(&fair, 0, sizeof(fair));
	memset(&parent, 0, sizeof(parent));
	fair.fd = cached_file();
	parent.fair = &fair;
	parent.how = how;
	opts.workers_nr = 1;
	rt = itest_create(&opts);
	ck_assert_int_eq(itest_run(rt, fair_parent_poll, &parent, sizeof(parent)), 0);
	mrt_runtime_destroy(rt);
	close(fair.fd);
	for (i = 0; i < FAIR_TASKS; i++) {
		min = fair.polls[i] < min ? fair.polls[i] : min;
		max = fair.polls[i] > max ? fair.polls[i] : max;
		sum += fair.polls[i];
	}
	printf("%d tasks ready by %s%s: slowest %llu, mean %llu, fastest %llu polls\n", FAIR_TASKS, names[how],
	       current ? ", current-thread" : "", (unsigned long long)min, (unsigned long long)(sum / FAIR_TASKS),
	       (unsigned long long)max);
	ck_assert_uint_ge(min * 10, sum / FAIR_TASKS * 8);
}

START_TEST(a_thousand_ready_tasks_are_served_evenly)
{
	check_fair(_i, false);
}
END_TEST

START_TEST(a_thousand_ready_tasks_are_served_evenly_on_one_thread)
{
	check_fair(_i, true);
}
END_TEST

/* ---- the only worker's queue has no end ---- */

struct order {
	int nr;
	int at[FAIR_TASKS];
};

ITEST_CHILD(order_child, { struct order *order; int index; })
{
	(void)self;
	f->order->at[f->order->nr++] = f->index;
	return MRT_POLL_READY;
}

ITEST_CHILD(order_parent, { struct order *order; struct mrt_op op; })
{
	struct order_child child = { .order = f->order };

	MRT_BEGIN(self);
	for (child.index = 0; child.index < FAIR_TASKS; child.index++)
		ck_assert_int_eq(mrt_spawn(NULL, order_child_poll, &child, sizeof(child), NULL, NULL), 0);
	while (f->order->nr < FAIR_TASKS)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

START_TEST(more_ready_tasks_than_the_queue_holds_run_in_order)
{
	static struct order order; /* zero: each test is a process of its own */
	struct order_parent parent = { .order = &order };
	struct mrt_runtime *rt = itest_runtime(ITEST_CURRENT);
	struct mrt_worker_stats stats;
	int i;

	ck_assert_int_eq(itest_run(rt, order_parent_poll, &parent, sizeof(parent)), 0);
	ck_assert_int_eq(order.nr, FAIR_TASKS);
	ck_assert_int_eq(order.at[0], FAIR_TASKS - 1); /* the next slot */
	for (i = 1; i < FAIR_TASKS; i++)
		ck_assert_int_eq(order.at[i], i - 1);
	stats = itest_stats(rt);
	ck_assert_uint_eq(stats.overflows, 1);
	ck_assert_uint_eq(stats.injects, 1); /* the root */
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- who joins many is woken once ---- */

#define JOINED_NR 100   /* fewer than a poll has budget for */

ITEST_CHILD(joined, { int nothing; })
{
	(void)self;
	(void)f;
	return MRT_POLL_READY;
}

ITEST_CHILD(joiner, { struct mrt_op op; struct mrt_task *tasks[JOINED_NR]; int i, polls; })
{
	f->polls++;
	MRT_BEGIN(self);
	for (f->i = 0; f->i < JOINED_NR; f->i++)
		ck_assert_int_eq(mrt_spawn(NULL, joined_poll, NULL, 0, NULL, &f->tasks[f->i]), 0);
	for (f->i = 0; f->i < JOINED_NR; f->i++)
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
	MRT_RETURN(self, f->polls);
}

/* The first end wakes it, behind the others that are ready. */
START_TEST(who_joins_many_is_woken_once)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_CURRENT);
	struct joiner f = { .polls = 0 };

	ck_assert_int_eq(itest_run(rt, joiner_poll, &f, sizeof(f)), 2);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- what one worker does alone wakes no other ---- */

#define CHAIN_NR 1000   /* done before a time slice is over */

ITEST_CHILD(link, { struct mrt_oneshot *end; int left; })
{
	struct link next = { .end = f->end, .left = f->left - 1 };

	(void)self;
	if (next.left > 0)
		ck_assert_int_eq(mrt_spawn(NULL, link_poll, &next, sizeof(next), NULL, NULL), 0);
	else
		ck_assert_int_eq(mrt_oneshot_send(f->end, 1), 0);
	return MRT_POLL_READY;
}

ITEST_CHILD(chain, { struct mrt_op op; struct mrt_oneshot end; int i; })
{
	struct link first = { .end = &f->end, .left = CHAIN_NR };
	struct mrt_task *task;

	MRT_BEGIN(self);
	mrt_oneshot_init(&f->end);
	ck_assert_int_eq(mrt_spawn(NULL, link_poll, &first, sizeof(first), NULL, NULL), 0);
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->end));
	for (f->i = 0; f->i < CHAIN_NR; f->i++) {
		ck_assert_int_eq(mrt_spawn(NULL, joined_poll, NULL, 0, NULL, &task), 0);
		MRT_AWAIT(self, mrt_join(&f->op, task));
	}
	MRT_RETURN(self, 0);
}

/* Never two are ready. (A sentry may take the one from a worker that has lost its CPU, and wake for what it finds.) */
START_TEST(a_chain_of_spawns_wakes_nobody)
{
	uint64_t wakes = UINT64_MAX, until = mrt_now() + TRY_NS;
	unsigned tries;

	for (tries = 0; wakes > 0 && mrt_now() < until; tries++) {
		struct mrt_runtime *rt = itest_runtime(_i);
		struct chain f = { .i = 0 };

		ck_assert_int_eq(itest_run(rt, chain_poll, &f, sizeof(f)), 0);
		wakes = itest_stats(rt).wakes_sent;
		mrt_runtime_destroy(rt);
	}
	printf("%d spawns in a row, and %d that are joined, kind %d: %llu wakes at try %u\n", CHAIN_NR, CHAIN_NR, _i,
	       (unsigned long long)wakes, tries);
	ck_assert_uint_eq(wakes, 0);
}
END_TEST

/* ---- a successor that is spawned for ever does not starve others ---- */

struct successor {
	atomic_bool *stop;
};

static enum mrt_poll successor_poll(struct mrt_task *self, void *frame)
{
	struct successor *f = frame;

	MRT_BEGIN(self);
	if (!atomic_load(f->stop))
		MRT_RETURN(self, mrt_spawn(NULL, successor_poll, f, sizeof(*f), NULL, NULL)); /* refused at the end */
	MRT_RETURN(self, 0);
}

ITEST_CHILD(oneshot_waiter, { struct mrt_op op; struct mrt_oneshot *o; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, f->o));
	MRT_RETURN(self, f->op.res);
}

static void *send_later(void *arg)
{
	itest_spin(MRT_MS(10));
	ck_assert_int_eq(mrt_oneshot_send(arg, 21), 0);
	return NULL;
}

START_TEST(endless_successors_starve_nobody)
{
	struct mrt_runtime_opts opts = itest_opts(_i);
	struct mrt_oneshot o;
	struct oneshot_waiter w = { .o = &o };
	atomic_bool stop = false;
	struct successor s = { .stop = &stop };
	struct mrt_runtime *rt;
	pthread_t thread;

	opts.workers_nr = 1;
	rt = itest_create(&opts);
	mrt_oneshot_init(&o);
	ck_assert_int_eq(mrt_spawn(rt, successor_poll, &s, sizeof(s), NULL, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, send_later, &o), 0);
	ck_assert_int_eq(itest_run(rt, oneshot_waiter_poll, &w, sizeof(w)), 21);
	pthread_join(thread, NULL);
	atomic_store(&stop, true);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- a worker that spins ---- */

struct stuck {
	atomic_int sleeping;            /* the sleeper's worker, as thread id */
	atomic_ullong sleep_due, slept_at, child_at, spun_from;
};

enum { STUCK_HELPED, STUCK_STOLEN, STUCK_ALONE };

static enum mrt_poll stuck_child_poll(struct mrt_task *self, void *frame)
{
	struct stuck *s = *(struct stuck **)frame;

	MRT_BEGIN(self);
	atomic_store(&s->child_at, mrt_now());
	MRT_RETURN(self, 0);
}

ITEST_CHILD(stuck_sleeper, { struct mrt_op op; struct stuck *s; })
{
	MRT_BEGIN(self);
	atomic_store(&f->s->sleep_due, mrt_now() + MRT_MS(30));
	mrt_sleep(&f->op, MRT_MS(30));
	atomic_store(&f->s->sleeping, (int)gettid());
	MRT_AWAIT(self, &f->op);
	atomic_store(&f->s->slept_at, mrt_now());
	MRT_RETURN(self, 0);
}

/* Runs the sleeper on this very worker, then spins there until it and a child have run all the same. */
ITEST_CHILD(stuck_spinner, {
	struct mrt_op op; struct mrt_op join; struct stuck *s; struct mrt_task *sleeper; bool alone;
})
{
	struct stuck_sleeper sleeper = { .s = f->s };

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_spawn(NULL, stuck_sleeper_poll, &sleeper, sizeof(sleeper), NULL, &f->sleeper), 0);
	while (!atomic_load(&f->s->sleeping))
		MRT_AWAIT(self, mrt_yield(&f->op));
	if (atomic_load(&f->s->sleeping) != (int)gettid()) {
		/* stolen: this round shows nothing */
		mrt_abort(f->sleeper);
		MRT_AWAIT(self, mrt_join(&f->join, f->sleeper));
		MRT_RETURN(self, STUCK_STOLEN);
	}
	ck_assert_int_eq(mrt_spawn(NULL, stuck_child_poll, &f->s, sizeof(f->s), NULL, NULL), 0);
	atomic_store(&f->s->spun_from, mrt_now());
	while (!atomic_load(&f->s->child_at) || !atomic_load(&f->s->slept_at))
		if (mrt_now() - atomic_load(&f->s->spun_from) > TRY_NS) {
			f->alone = true;
			break;
		}
	MRT_AWAIT(self, mrt_join(&f->join, f->sleeper));
	MRT_RETURN(self, f->alone ? STUCK_ALONE : STUCK_HELPED);
}

START_TEST(nobody_waits_for_a_worker_that_spins)
{
	const unsigned late_ms = ITEST_SLOW ? 500 : 5;
	struct mrt_runtime *rt = itest_runtime(_i);
	uint64_t until = mrt_now() + TRY_NS, sleep_late, child_late;
	unsigned rounds = 0;
	bool good = false;
	int64_t result;

	while (!good && mrt_now() < until) {
		struct stuck s = { .sleeping = 0 };
		struct stuck_spinner f = { .s = &s };

		result = itest_run(rt, stuck_spinner_poll, &f, sizeof(f));
		ck_assert_int_ne(result, STUCK_ALONE);
		if (result == STUCK_STOLEN)
			continue;
		sleep_late = atomic_load(&s.slept_at) - atomic_load(&s.sleep_due);
		child_late = atomic_load(&s.child_at) - atomic_load(&s.spun_from);
		good = sleep_late <= MRT_MS(late_ms) && child_late <= MRT_MS(late_ms);
		if (rounds++ < 5 || good)
			printf("a worker spins: sleep late by %llu us, child polled after %llu us\n",
			       (unsigned long long)sleep_late / 1000, (unsigned long long)child_late / 1000);
	}
	ck_assert_msg(good, "never within %u ms in %u rounds", late_ms, rounds);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- idle means idle ---- */

ITEST_CHILD(idle_mix, {
	struct mrt_op op; struct mrt_op wait; struct mrt_op *ops[2]; struct mrt_notify *n; atomic_int *ready;
	int i;
})
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 20; f->i++)
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(200)));
	f->ops[0] = mrt_sleep(&f->op, MRT_SEC(10000));
	f->ops[1] = mrt_notify_wait(&f->wait, f->n);
	atomic_fetch_add(f->ready, 1);
	MRT_AWAIT_ALL(self, f->ops, 2);
	MRT_RETURN(self, 0);
}

/* A worker that has lost its CPU before it could park keeps a sentry busy. */
static bool is_still(struct mrt_runtime *rt)
{
	uint64_t ticks = itest_stats(rt).ticks, start = mrt_now();

	while (mrt_now() < start + MRT_MS(20))
		itest_pause();
	return itest_all_parked(rt) && itest_stats(rt).ticks == ticks;
}

START_TEST(an_idle_runtime_uses_no_cpu)
{
	unsigned ms = itest_env("MRT_TEST_IDLE_MS", 3000);
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_worker_stats before, after;
	struct mrt_notify n;
	atomic_int ready = 0;
	struct idle_mix f = { .n = &n, .ready = &ready };
	uint64_t until = mrt_now() + TRY_NS, limit = MRT_MS(ITEST_SLOW ? 60 : 3), used;
	int i;

	mrt_notify_init(&n);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(mrt_spawn(rt, idle_mix_poll, &f, sizeof(f), NULL, NULL), 0);
	ITEST_WAIT(atomic_load(&ready) == 100, 20000);
	ITEST_WAIT(is_still(rt), 20000);
	/* time that is stolen from the machine may be counted as what we have used */
	do {
		before = itest_stats(rt);
		used = itest_cpu_ns();
		nanosleep(&ts, NULL); /* what is measured is the time itself */
		used = itest_cpu_ns() - used;
		after = itest_stats(rt);
		printf("idle for %u ms, kind %d: %llu us of CPU, %llu ticks, %llu enters\n", ms, _i,
		       (unsigned long long)used / 1000, (unsigned long long)(after.ticks - before.ticks),
		       (unsigned long long)(after.enters - before.enters));
	} while (used > limit && mrt_now() < until);
	ck_assert_uint_le(used, limit);
	ck_assert_uint_le(after.ticks - before.ticks, 20);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- one request at a time ---- */

#define REQUESTS 2000
#define REQUESTS_APART 100

ITEST_CHILD(server, { struct mrt_op op; int in; int out; uint64_t value; uint64_t served; })
{
	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_read(&f->op, f->in, &f->value, sizeof(f->value), MRT_OFF_CURRENT));
		if (f->op.res != sizeof(f->value) || f->value >= UINT32_MAX)
			break;
		f->served++;
		/* inline: an eventfd does not block */
		if (write(f->out, &f->value, sizeof(f->value)) != sizeof(f->value))
			break;
	}
	MRT_RETURN(self, (int64_t)f->served);
}

static uint64_t all_switches(struct mrt_runtime *rt)
{
	struct mrt_worker_stats stats;
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		ck_assert_int_eq(mrt_stats_get(rt, i, &stats), 0);
		sum += itest_switches(stats.tid);
	}
	return sum;
}

START_TEST(a_request_costs_one_context_switch)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	double per_request = 1e9, rate, sentry;
	int in = eventfd(0, EFD_CLOEXEC), out = eventfd(0, EFD_CLOEXEC), i;
	struct server f = { .in = in, .out = out };
	struct mrt_task *task = itest_spawn(rt, server_poll, &f, sizeof(f));
	uint64_t value = UINT32_MAX, switches, wakes, start, until = mrt_now() + TRY_NS;

	/* a machine that is busy elsewhere stretches the time, in which the sentry wakes 500 times a second: not counted */
	while (per_request > 1.05 && mrt_now() < until) {
		switches = all_switches(rt);
		wakes = itest_stats(rt).sentry_wakes;
		start = mrt_now();
		for (i = 0; i < REQUESTS; i++) {
			value = 1;
			ck_assert_int_eq(write(in, &value, sizeof(value)), sizeof(value));
			ck_assert_int_eq(read(out, &value, sizeof(value)), sizeof(value));
		}
		rate = REQUESTS * 1e9 / (double)(mrt_now() - start);
		switches = all_switches(rt) - switches;
		sentry = (double)(itest_stats(rt).sentry_wakes - wakes) / REQUESTS;
		per_request = (double)switches / REQUESTS - sentry;
		printf("one request at a time, kind %d: %.0f a second, %.3f voluntary context switches each, and %.3f of the sentry\n",
		       _i, rate, per_request, sentry);
	}
	value = UINT32_MAX;
	ck_assert_int_eq(write(in, &value, sizeof(value)), sizeof(value));
	ck_assert_int_gt(itest_join(task), 0);
	ck_assert_msg(per_request <= 1.05, "%.3f switches a request", per_request);
	mrt_runtime_destroy(rt);
}
END_TEST

static uint64_t sum_of(struct mrt_runtime *rt, bool *ret_all_parked)
{
	struct mrt_worker_stats stats;
	uint64_t enters = 0;
	unsigned i;

	*ret_all_parked = true;
	for (i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		ck_assert_int_eq(mrt_stats_get(rt, i, &stats), 0);
		*ret_all_parked = *ret_all_parked && stats.state == MRT_WORKER_PARKED;
		enters += stats.enters;
	}
	return enters;
}

/* The next request comes when all sleep, so its read never completes as it is submitted: the wait may as well submit it. */
START_TEST(a_request_that_is_waited_for_costs_one_enter)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	int in = eventfd(0, EFD_CLOEXEC), out = eventfd(0, EFD_CLOEXEC), i;
	struct server f = { .in = in, .out = out };
	struct mrt_task *task = itest_spawn(rt, server_poll, &f, sizeof(f));
	uint64_t value, enters, until = mrt_now() + TRY_NS;
	double per_request = 1e9;
	bool parked;

	/* a worker that is woken for nothing, by a sentry say, enters too */
	while (per_request > 1.5 && mrt_now() < until) {
		ITEST_WAIT((enters = sum_of(rt, &parked), parked), 20000);
		for (i = 0; i < REQUESTS_APART; i++) {
			value = 1;
			ck_assert_int_eq(write(in, &value, sizeof(value)), sizeof(value));
			ck_assert_int_eq(read(out, &value, sizeof(value)), sizeof(value));
			ITEST_WAIT(((void)sum_of(rt, &parked), parked), 20000);
		}
		per_request = (double)(sum_of(rt, &parked) - enters) / REQUESTS_APART;
		printf("requests that are waited for, kind %d: %.3f enters each\n", _i, per_request);
	}
	value = UINT32_MAX;
	ck_assert_int_eq(write(in, &value, sizeof(value)), sizeof(value));
	ck_assert_int_gt(itest_join(task), 0);
	ck_assert_msg(per_request <= 1.5, "%.3f enters a request", per_request);
	mrt_runtime_destroy(rt);
}
END_TEST

ITEST_CHILD(waiter, { struct mrt_op op; struct mrt_notify *notify; atomic_uint *got; })
{
	MRT_BEGIN(self);
	/* relaxed: counts */
	while (atomic_fetch_add_explicit(f->got, 1, memory_order_relaxed) < REQUESTS_APART)
		MRT_AWAIT(self, mrt_notify_wait(&f->op, f->notify));
	MRT_RETURN(self, 0);
}

/*
 * Whoever finds it searches no more, and has no reason to wake another: what it found it runs itself. (A sentry that takes a task
 * from a worker without a CPU has one. And where there are few CPUs a worker that was woken in vain may sleep again too late for
 * the next request to wake it, so parks alone do not tell.)
 */
START_TEST(a_request_from_outside_wakes_one_worker)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_TWO);
	struct mrt_worker_stats before, after;
	double per_request = 1e9;
	struct mrt_notify notify;
	struct mrt_task *task;
	atomic_uint got;
	struct waiter f = { .notify = &notify, .got = &got };
	uint64_t until = mrt_now() + TRY_NS, wakes = UINT64_MAX;
	unsigned i;
	bool parked;

	mrt_notify_init(&notify);
	while ((per_request > 1.2 || wakes > 0) && mrt_now() < until) {
		atomic_store_explicit(&got, 0, memory_order_relaxed);
		task = itest_spawn(rt, waiter_poll, &f, sizeof(f));
		ITEST_WAIT(((void)sum_of(rt, &parked), parked), 20000);
		before = itest_stats(rt);
		for (i = 2; i <= REQUESTS_APART + 1; i++) {
			mrt_notify_one(&notify);
			ITEST_WAIT(((void)sum_of(rt, &parked),
				    parked && atomic_load_explicit(&got, memory_order_relaxed) == i), 20000);
		}
		after = itest_stats(rt);
		ck_assert_int_eq(itest_join(task), 0);
		/* a sentry's wakes are no request's */
		per_request = (double)(after.parks - before.parks - (after.sentry_wakes - before.sentry_wakes)) / REQUESTS_APART;
		wakes = after.wakes_sent - before.wakes_sent;
		printf("notified from outside: %.3f workers woken each, %llu of %d by others\n", per_request,
		       (unsigned long long)wakes, REQUESTS_APART);
	}
	ck_assert_uint_eq(wakes, 0);
	ck_assert_msg(per_request <= 1.2, "%.3f workers woken for a request", per_request);
	mrt_runtime_destroy(rt);
}
END_TEST

/* Or woken by its own timer. */
ITEST_CHILD(ticker, { struct mrt_op op; int i; int nr; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < f->nr; f->i++)
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(50)));
	MRT_RETURN(self, 0);
}

START_TEST(a_sleep_costs_one_context_switch)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct ticker f = { .nr = 1000 };
	double per_sleep = 1e9, sentry;
	uint64_t switches, wakes, until = mrt_now() + TRY_NS;

	/* a machine that is busy elsewhere stretches the time, in which the sentry wakes 500 times a second: not counted */
	while (per_sleep > 1.05 && mrt_now() < until) {
		switches = all_switches(rt);
		wakes = itest_stats(rt).sentry_wakes;
		ck_assert_int_eq(itest_run(rt, ticker_poll, &f, sizeof(f)), 0);
		sentry = (double)(itest_stats(rt).sentry_wakes - wakes) / f.nr;
		per_sleep = (double)(all_switches(rt) - switches) / f.nr - sentry;
		printf("50 us sleeps, kind %d: %.3f voluntary context switches each, and %.3f of the sentry\n", _i, per_sleep,
		       sentry);
	}
	ck_assert_msg(per_sleep <= 1.05, "%.3f switches a sleep", per_sleep);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- many workers, many spawners ---- */

struct spawner {
	struct mrt_runtime *rt;
	atomic_ullong *ran;
	unsigned nr, flags;
};

static enum mrt_poll tally_poll(struct mrt_task *self, void *frame)
{
	atomic_ullong *ran = *(atomic_ullong **)frame;

	MRT_BEGIN(self);
	atomic_fetch_add_explicit(ran, 1, memory_order_relaxed);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(tree, {
	atomic_ullong *ran; struct mrt_op op; struct mrt_task *kids[4]; int depth; int i; unsigned flags;
})
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = f->flags };
	struct tree kid = { .ran = f->ran, .depth = f->depth - 1, .flags = f->flags };

	MRT_BEGIN(self);
	atomic_fetch_add_explicit(f->ran, 1, memory_order_relaxed);
	if (f->depth == 0)
		MRT_RETURN(self, 1);
	for (f->i = 0; f->i < 4; f->i++)
		ck_assert_int_eq(mrt_spawn(NULL, tree_poll, &kid, sizeof(kid), &opts, &f->kids[f->i]), 0);
	for (f->i = 0; f->i < 4; f->i++)
		MRT_AWAIT(self, mrt_join(&f->op, f->kids[f->i]));
	MRT_RETURN(self, 1);
}

static void *spawn_many(void *arg)
{
	struct spawner *s = arg;
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = s->flags };
	unsigned i;

	for (i = 0; i < s->nr; i++)
		ck_assert_int_eq(mrt_spawn(s->rt, tally_poll, &s->ran, sizeof(s->ran), &opts, NULL), 0);
	return NULL;
}

#define SPAWNERS 4
#define SPAWNS 5000u
#define TREE_DEPTH 5
#define TREE_NODES ((1u << (2 * (TREE_DEPTH + 1))) / 3)

static const unsigned worker_counts[] = { 1, 2, 3, 7, 16, 64 };

START_TEST(spawns_from_inside_and_outside_all_run)
{
	unsigned flags = _i % 2 ? MRT_SPAWN_SPREAD : 0;
	struct mrt_runtime_opts opts = itest_opts(ITEST_FLOAT);
	struct mrt_worker_stats sum;
	atomic_ullong ran = 0, grown = 0;
	struct tree tree = { .ran = &grown, .depth = TREE_DEPTH, .flags = flags };
	struct spawner s = { .ran = &ran, .nr = SPAWNS, .flags = flags };
	pthread_t threads[SPAWNERS];
	unsigned workers = worker_counts[_i / 2];
	int i;

	opts.workers_nr = workers;
	opts.sq_entries = 16;
	if (workers <= 2)
		opts.flags = 0;
	s.rt = itest_create(&opts);
	ck_assert_uint_eq(mrt_runtime_workers_nr(s.rt), workers);
	for (i = 0; i < SPAWNERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, spawn_many, &s), 0);
	ck_assert_int_eq(itest_run(s.rt, tree_poll, &tree, sizeof(tree)), 1);
	for (i = 0; i < SPAWNERS; i++)
		pthread_join(threads[i], NULL);
	ITEST_WAIT(atomic_load(&ran) == SPAWNERS * SPAWNS, 20000);
	ck_assert_uint_eq(atomic_load(&grown), TREE_NODES);
	ck_assert_int_eq(mrt_runtime_shutdown_wait(s.rt, MRT_SEC(20)), 0);
	sum = itest_stats(s.rt);
	ck_assert_uint_eq(sum.spawns, TREE_NODES - 1);
	ck_assert_uint_eq(itest_global(s.rt).spawns_outside, SPAWNERS * SPAWNS + 1);
	ck_assert_uint_eq(sum.ends, SPAWNERS * SPAWNS + TREE_NODES);
	ck_assert_int_eq(itest_global(s.rt).tasks_alive, 0);
	mrt_runtime_destroy(s.rt);
}
END_TEST

/* SPREAD places where there is least to do: with all idle, everywhere. One at a time, as several are stolen from a worker
 * that has taken them and loses its CPU before it runs one. */
ITEST_CHILD(where, { char none; })
{
	(void)f;
	mrt_task_return(self, 0);
	return MRT_POLL_READY;
}

START_TEST(spread_uses_every_worker)
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = MRT_SPAWN_SPREAD };
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_worker_stats one;
	struct mrt_task *task;
	unsigned used = 0, w;
	int i;

	for (i = 0; i < 32; i++) {
		ck_assert_int_eq(mrt_spawn(rt, where_poll, NULL, 0, &opts, &task), 0);
		ck_assert_int_eq(itest_join(task), 0);
	}
	for (w = 0; w < mrt_runtime_workers_nr(rt); w++) {
		ck_assert_int_eq(mrt_stats_get(rt, w, &one), 0);
		used += one.polls > 0;
	}
	ck_assert_uint_ge(used, 2);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- counters ---- */

/*
 * It counts its own polls: 301, unless somebody else's sentry fires a sleep while its task still runs, which is preempted
 * just then.
 */
ITEST_CHILD(counted, { struct mrt_op op; int i; int polls; })
{
	f->polls++;
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 100; f->i++) {
		MRT_AWAIT(self, mrt_yield(&f->op));
		MRT_AWAIT(self, mrt_nop(&f->op));
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(10)));
		MRT_AWAIT(self, mrt_sleep(&f->op, 0)); /* at once: no poll */
	}
	MRT_RETURN(self, f->polls);
}

START_TEST(the_counters_add_up)
{
	struct mrt_runtime *rt = itest_runtime(_i);
	struct mrt_worker_stats sum;
	uint64_t polls = 0;
	int i;

	for (i = 0; i < 7; i++) {
		struct counted f = { .i = 0 };

		polls += (uint64_t)itest_run(rt, counted_poll, &f, sizeof(f));
	}
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, UINT64_MAX), 0);
	sum = itest_stats(rt);
	ck_assert_uint_eq(sum.polls, polls);
	ck_assert_uint_le(polls, 7 * 301);
	ck_assert_uint_gt(polls, 7 * 201);
	ck_assert_uint_eq(sum.yields, 700);
	ck_assert_uint_eq(sum.timer_fires, 700);
	ck_assert_uint_eq(sum.ends, 7);
	ck_assert_uint_eq(sum.spawns, 0);
	ck_assert_uint_eq(itest_global(rt).spawns_outside, 7);
	ck_assert_uint_ge(sum.sqes, 700);
	ck_assert_uint_ge(sum.cqes, 700);
	ck_assert_uint_eq(sum.inflight, 0);
	ck_assert_uint_eq(sum.queued, 0);
	ck_assert_uint_eq(sum.budget_yields, 0);
	ck_assert_uint_le(sum.moved, sum.polls);
	ck_assert_int_eq(mrt_stats_get(rt, mrt_runtime_workers_nr(rt), &sum), -EINVAL);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- options ---- */

ITEST_CHILD(syncer, { struct mrt_op op; int fd; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_fsync(&f->op, f->fd));
	MRT_RETURN(self, f->op.res);
}

/* On CPUs without a worker, if there are as many as workers; else on its own. An fsync always goes to io-wq. */
START_TEST(io_wq_runs_against_no_other_worker)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	int pinned[CPU_SETSIZE] = { 0 }, cpu, may, want;
	struct mrt_worker_stats one = { 0 };
	unsigned w, looked = 0, spare;
	char dir[FIXTURE_PATH];
	struct mrt_runtime *rt;
	struct syncer f = { 0 };
	cpu_set_t allowed;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	opts.workers_nr = (unsigned)_i;
	rt = itest_create(&opts);
	ck_assert_int_eq(fixture_dir(dir), 0);
	f.fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_ge(f.fd, 0);
	ck_assert_int_eq(itest_run(rt, syncer_poll, &f, sizeof(f)), 0);
	for (w = 0; w < opts.workers_nr; w++) {
		ck_assert_int_eq(mrt_stats_get(rt, w, &one), 0);
		pinned[one.cpu] = 1;
	}
	for (cpu = 0, spare = 0; cpu < CPU_SETSIZE; cpu++)
		spare += CPU_ISSET((size_t)cpu, &allowed) && !pinned[cpu];
	for (w = 0; w < opts.workers_nr; w++) {
		ck_assert_int_eq(mrt_stats_get(rt, w, &one), 0);
		for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			may = fixture_iowq_may_run_on(one.tid, cpu);
			want = CPU_ISSET((size_t)cpu, &allowed) && (spare < opts.workers_nr ? cpu == one.cpu : !pinned[cpu]);
			if (spare < opts.workers_nr && may == 1 && !want && fixture_iowq_may_run_on(one.tid, one.cpu) == 1)
				want = 1; /* kernels before 6.12: anywhere */
			ck_assert_msg(may < 0 || may == want, "worker %u on CPU %d, its io-wq on CPU %d: %d", w, one.cpu, cpu, may);
			looked += may >= 0;
			if (may < 0)
				break; /* this worker has sent it nothing */
		}
	}
	ck_assert_uint_gt(looked, 0);
	close(f.fd);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(options_out_of_range_are_refused_with_a_sentence)
{
	static const struct {
		size_t off;
		uint32_t value;
		const char *says;
	} bad[] = {
#define BAD(field, value) { offsetof(struct mrt_runtime_opts, field), value, #field }
		BAD(flavour, 2), BAD(flags, 1u << 31), BAD(workers_nr, 1025), BAD(sq_entries, 32769), BAD(cq_entries, 65537),
		BAD(cq_entries, 1), BAD(inject_interval, 65537), BAD(event_interval, 65537), BAD(blocking_threads_max, 65537),
		BAD(cpus_nr, 1), BAD(timer_slack_ns, 500001),
#undef BAD
	};
	struct {
		struct mrt_runtime_opts opts;
		uint64_t later;
	} longer;
	struct mrt_runtime *rt = NULL;
	struct mrt_runtime_opts opts;
	int cpu = -3;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		itest_log_clear();
		opts = itest_opts(ITEST_TWO);
		memcpy((char *)&opts + bad[i].off, &bad[i].value, sizeof(uint32_t));
		ck_assert_int_eq(mrt_runtime_create(&opts, &rt), -EINVAL);
		ck_assert_msg(itest_log_has(bad[i].says), "nothing is said of %s", bad[i].says);
		ck_assert_ptr_null(rt);
	}
	opts = itest_opts(ITEST_TWO);
	opts.cpus_nr = 1;
	opts.cpus = &cpu;
	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), -EINVAL);
	opts = itest_opts(ITEST_CURRENT);
	opts.workers_nr = 2;
	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), -EINVAL);
	opts.size = 0;
	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), -EINVAL);
	longer.opts = itest_opts(ITEST_TWO);
	longer.opts.size = sizeof(longer);
	longer.later = 1;
	ck_assert_int_eq(mrt_runtime_create(&longer.opts, &rt), -E2BIG);
	longer.later = 0;
	ck_assert_int_eq(mrt_runtime_create(&longer.opts, &rt), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(unusual_options_work)
{
	static const struct {
		uint32_t inject_interval, event_interval, flags;
	} some[] = {
		{ 1, 1, 0 }, { 1, 65536, 0 }, { 65536, 1, 0 }, { 2, 3, MRT_RUNTIME_TUNE_INJECT | MRT_RUNTIME_TUNE_EVENTS },
	};
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	atomic_ullong grown = 0;
	struct tree tree = { .ran = &grown, .depth = TREE_DEPTH };
	struct mrt_runtime *rt;

	opts.inject_interval = some[_i].inject_interval;
	opts.event_interval = some[_i].event_interval;
	opts.flags = some[_i].flags;
	rt = itest_create(&opts);
	ck_assert_int_eq(itest_run(rt, tree_poll, &tree, sizeof(tree)), 1);
	ck_assert_uint_eq(atomic_load(&grown), TREE_NODES);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(workers_are_pinned_and_named)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	struct mrt_worker_stats one;
	struct mrt_ring_report report;
	struct mrt_runtime *rt;
	char path[64], name[64];
	cpu_set_t set, allowed;
	unsigned w;
	FILE *f;

	opts.name = "a-very-long-name";
	rt = itest_create(&opts);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	for (w = 0; w < 2; w++) {
		ck_assert_int_eq(mrt_stats_get(rt, w, &one), 0);
		ck_assert_uint_eq(one.index, w);
		ck_assert_int_eq(sched_getaffinity(one.tid, sizeof(set), &set), 0);
		ck_assert_int_eq(CPU_COUNT(&set), 1);
		ck_assert(CPU_ISSET((unsigned)one.cpu, &set) && CPU_ISSET((unsigned)one.cpu, &allowed));
		snprintf(path, sizeof(path), "/proc/self/task/%d/comm", one.tid);
		f = fopen(path, "re");
		ck_assert_ptr_nonnull(f);
		ck_assert_ptr_nonnull(fgets(name, sizeof(name), f));
		fclose(f);
		ck_assert_int_eq(strncmp(name, "a-very-l", 8), 0);
	}
	ck_assert_int_eq(mrt_runtime_ring_report(rt, &report), 0);
	ck_assert_uint_eq(report.sq_entries, 256);
	ck_assert_uint_eq(report.cq_entries, 2048);
	ck_assert_uint_gt(strlen(report.text), 0);
	printf("rings: %s\n", report.text);
	mrt_runtime_destroy(rt);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sched");
	TCase *tc = tcase_create("sched"), *timed;

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, a_thousand_ready_tasks_are_served_evenly, 0, READY_NR);
	tcase_add_loop_test(tc, a_thousand_ready_tasks_are_served_evenly_on_one_thread, 0, READY_NR);
	tcase_add_test(tc, more_ready_tasks_than_the_queue_holds_run_in_order);
	tcase_add_test(tc, who_joins_many_is_woken_once);
	tcase_add_test(tc, a_chain_of_spawns_wakes_nobody);
	tcase_add_loop_test(tc, a_chain_of_spawns_wakes_nobody, ITEST_FLOAT, ITEST_FLOAT + 1);
	tcase_add_loop_test(tc, endless_successors_starve_nobody, 0, ITEST_CURRENT + 1);
	tcase_add_loop_test(tc, spawns_from_inside_and_outside_all_run, 0,
			    2 * sizeof(worker_counts) / sizeof(worker_counts[0]));
	tcase_add_test(tc, spread_uses_every_worker);
	tcase_add_loop_test(tc, spread_uses_every_worker, ITEST_FLOAT, ITEST_FLOAT + 1);
	tcase_add_loop_test(tc, the_counters_add_up, 0, ITEST_KINDS_NR);
	tcase_add_test(tc, options_out_of_range_are_refused_with_a_sentence);
	tcase_add_loop_test(tc, unusual_options_work, 0, 4);
	tcase_add_test(tc, workers_are_pinned_and_named);
	tcase_add_loop_test(tc, io_wq_runs_against_no_other_worker, 1, 4);
	suite_add_tcase(suite, tc);
	if (!ITEST_SANITIZED) {
		timed = tcase_create("timed");
		tcase_set_timeout(timed, 2 * ITEST_LIMIT_S);
		tcase_add_test(timed, nobody_waits_for_a_worker_that_spins);
		tcase_add_loop_test(timed, nobody_waits_for_a_worker_that_spins, ITEST_COOP, ITEST_KINDS_NR);
		tcase_add_test(timed, an_idle_runtime_uses_no_cpu);
		tcase_add_loop_test(timed, an_idle_runtime_uses_no_cpu, ITEST_FLOAT, ITEST_FLOAT + 1);
		tcase_add_test(timed, a_request_costs_one_context_switch);
		tcase_add_test(timed, a_request_that_is_waited_for_costs_one_enter);
		tcase_add_test(timed, a_request_from_outside_wakes_one_worker);
		tcase_add_test(timed, a_sleep_costs_one_context_switch);
		suite_add_tcase(suite, timed);
	}
	return itest_main(suite);
}
