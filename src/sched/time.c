/* SPDX-License-Identifier: MIT */
/*
 * Sleeps and deadlines: ops whose completer is a wheel.
 *
 * A wheel is under its worker's short lock, and the lock decides between firing and cancelling: an entry is taken out,
 * and its state changed, by whoever holds the lock first. So an entry that was taken out to fire can still be read
 * after the lock is dropped: its op is undelivered until it is finished, and a canceller that finds it FIRED waits for
 * that. (Deciding by a compare-exchange on the state alone would not do: the canceller could free the entry while the
 * firing side walks its list.)
 *
 * A timer goes into the wheel when the poll that armed it is over. Until then its task runs, here, and nobody else can cancel it
 * or has a use for it: it stands in a list of the worker's own, without the lock. So a time-out that the same poll takes back, as
 * of an op that was done at once, never sees lock or wheel; and what a poll arms goes in under one hold, ARMED_MAX at most.
 */
#include <martlet/time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "sched/op_begin.h"
#include "sched/op_run.h"
#include "sched/task.h"
#include "sched/worker.h"

#define ARMED_MAX 32u           /* timers of the running poll; one more puts these into the wheel */
#define MOVING_HOLDS_MAX 16u    /* then other work of the turn comes first; the wheel says that it is due still */

enum timer_state {
	TIMER_ARMED = 1,                /* in the wheel */
	TIMER_FIRED = 2,
	TIMER_CANCELLED = 3,
	TIMER_OWN = 4,                  /* in the list of the worker whose poll has armed it */
};

static struct mrt__op *op_of_entry(struct mrt__wheel_entry *e)
{
	return mrt__container_of(e, struct mrt__op, timer);
}

static void set_state(struct mrt__wheel_entry *e, enum timer_state state)
{
	/* relaxed, no partner: under the lock; or from and to OWN, which only the thread reads whose poll armed it */
	atomic_store_explicit(&e->state, state, memory_order_relaxed);
}

static enum timer_state get_state(const struct mrt__wheel_entry *e)
{
	/* relaxed: as above; without the lock only OWN is to be believed */
	return (enum timer_state)atomic_load_explicit(&e->state, memory_order_relaxed);
}

/* The one worker of a runtime is alone with its wheel. */
static inline void lock_wheel(struct mrt__worker *v)
{
	if (v->sched->workers_nr > 1)
		mrt__lock(&v->wheel_lock);
}

static inline void unlock_wheel(struct mrt__worker *v)
{
	if (v->sched->workers_nr > 1)
		mrt__unlock(&v->wheel_lock);
}

/* Under the lock, as all that write it. [WORKER.wheel_next] orders nothing, so it has no partner: a hint for parking and
 * for the sentry, each of which looks again under the lock. It is mrt__wheel_next(), or earlier. */
static inline uint64_t published_next(const struct mrt__worker *v)
{
	return atomic_load_explicit(&v->wheel_next, memory_order_relaxed);
}

static inline void publish_next(struct mrt__worker *v, uint64_t next)
{
	atomic_store_explicit(&v->wheel_next, next, memory_order_relaxed);
}

void mrt__worker_put_timers(struct mrt__worker *w)
{
	struct mrt__wheel_entry *e = w->armed, *next;
	uint64_t now = w->armed_ns, first = UINT64_MAX;
	bool stale;

	w->task->flags &= ~MRT__TASKF_ARMED;
	if (!e)
		return;
	w->armed = NULL;
	w->armed_tail = &w->armed;
	w->armed_nr = 0;
	lock_wheel(w);
	/* after an idle hour "soon" would be a coarse slot of the wheel's old time, to be moved down entry by entry */
	stale = mrt__wheel_catch_up(&w->wheel, now);
	for (; e; e = next) {
		next = e->next;
		set_state(e, TIMER_ARMED);
		mrt__wheel_insert(&w->wheel, e, e->deadline_ns);
		first = mrt__min(first, e->deadline_ns);
		stale |= mrt__wheel_is_far(e->deadline_ns, now);
	}
	if (mrt__unlikely(stale))
		publish_next(w, mrt__wheel_next(&w->wheel));
	else if (first < published_next(w))
		publish_next(w, first);
	mrt__stat_set(&w->stats->timers, mrt__wheel_nr(&w->wheel));
	unlock_wheel(w);
}

/* A sleep or deadline of the running task begins. */
static inline void add_timer(struct mrt__worker *w, struct mrt__op *op, uint64_t deadline_ns, uint64_t now)
{
	struct mrt__wheel_entry *e = &op->timer;

	if (mrt__unlikely(w->armed_nr == ARMED_MAX))
		mrt__worker_put_timers(w);
	e->owner = w->index;
	set_state(e, TIMER_OWN);
	e->deadline_ns = deadline_ns;
	e->next = NULL;
	e->pprev = w->armed_tail;
	*w->armed_tail = e;
	w->armed_tail = &e->next;
	w->armed_nr++;
	w->armed_ns = now;
	w->task->flags |= MRT__TASKF_ARMED;
}

static void take_own(struct mrt__worker *v, struct mrt__wheel_entry *e)
{
	mrt__assert(v == mrt__worker_self && *e->pprev == e);
	*e->pprev = e->next;
	if (e->next)
		e->next->pprev = e->pprev;
	else
		v->armed_tail = e->pprev;
	e->pprev = NULL;
	v->armed_nr--;
	set_state(e, TIMER_CANCELLED);
}

bool mrt__worker_timer_cancel(struct mrt__sched *s, struct mrt__op *op)
{
	struct mrt__worker *v = s->workers[op->timer.owner];
	bool armed;

	if (get_state(&op->timer) == TIMER_OWN) {
		take_own(v, &op->timer);
		return true;
	}
	lock_wheel(v);
	armed = get_state(&op->timer) == TIMER_ARMED;
	if (armed) {
		mrt__wheel_remove(&v->wheel, &op->timer);
		set_state(&op->timer, TIMER_CANCELLED);
		mrt__stat_set(&v->stats->timers, mrt__wheel_nr(&v->wheel));
		if (op->timer.deadline_ns <= published_next(v)) /* it was the earliest: nobody need wake for it */
			publish_next(v, mrt__wheel_nr(&v->wheel) > 0 ? mrt__wheel_next(&v->wheel) : UINT64_MAX);
	}
	unlock_wheel(v);
	return armed;
}

uint64_t mrt__worker_wheel_wake(struct mrt__worker *w, uint64_t now)
{
	/* a sentry that takes timers out only makes it later */
	uint64_t next = published_next(w);

	if (mrt__likely(w->sched->timer_slack_ns == 0) || next == UINT64_MAX || next <= now)
		return next;
	lock_wheel(w);
	next = mrt__wheel_next_within(&w->wheel, w->sched->timer_slack_ns);
	unlock_wheel(w);
	return next;
}

unsigned mrt__worker_fire(struct mrt__worker *w, struct mrt__worker *v, uint64_t now, unsigned max)
{
	unsigned total = 0, nr, i, holds = 0;
	bool due = true;

	/* a hold may only move entries down (a cascade is bounded, too), so holds have a bound of their own */
	while (due && total < max && holds++ < max / MRT__TIMERS_PER_HOLD + MOVING_HOLDS_MAX) {
		unsigned want = mrt__min(max - total, MRT__TIMERS_PER_HOLD);
		struct mrt__wheel_entry *e = NULL, *next, *ahead;

		if (v == w)
			lock_wheel(v);
		else if (!mrt__lock_try(&v->wheel_lock))
			break;
		nr = mrt__wheel_advance(&v->wheel, now, want, &e);
		for (i = 0, next = e; i < nr && next; i++, next = next->next) {
			set_state(next, TIMER_FIRED);
			/* nobody has looked at the op since it began to sleep; the entry is behind its first line */
			__builtin_prefetch(op_of_entry(next), 1);
		}
		due = mrt__wheel_is_due(&v->wheel, now);
		publish_next(v, mrt__wheel_next(&v->wheel));
		mrt__stat_set(&v->stats->timers, mrt__wheel_nr(&v->wheel));
		unlock_wheel(v);
		if (e)
			mrt__fire(timer_fire, w->index, v->index, nr, now - e->deadline_ns);
		for (i = 0, ahead = e; ahead && i < MRT__OP_PREFETCH_AHEAD; i++, ahead = ahead->next)
			mrt__op_prefetch_task(op_of_entry(ahead));
		for (i = 0; e; e = next, i++) {
			next = e->next;
			if (ahead) {
				mrt__op_prefetch_task(op_of_entry(ahead));
				ahead = ahead->next; /* still linked: it is not finished before we have come to it */
			}
			mrt__op_finish(op_of_entry(e), 0);
		}
		total += i;
	}
	mrt__stat_add(&w->stats->timer_fires, total);
	return total;
}

uint64_t mrt_now(void)
{
	return mrt__clock_now();
}

static inline __attribute__((always_inline)) struct mrt_op *sleep_until(struct mrt_op *pub, uint64_t when_ns, uint64_t now)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w = mrt__op_begin_fast(op, MRT__OP_SLEEP, 0);

	if (!w)
		return pub;
	if (when_ns <= now)
		mrt__op_end_inline(op, 0);
	else
		add_timer(w, op, when_ns, now);
	return pub;
}

struct mrt_op *mrt_sleep(struct mrt_op *op, uint64_t ns)
{
	uint64_t now = mrt__clock_now();

	return sleep_until(op, mrt__clock_add(now, ns), now);
}

struct mrt_op *mrt_sleep_until(struct mrt_op *op, uint64_t when_ns)
{
	return sleep_until(op, when_ns, mrt__clock_now());
}

/* Put the deadline right behind its op in the task's list: that is how the op finds it. */
static void link_behind(struct mrt__op *op, struct mrt__op *d)
{
	d->next = op->next;
	d->pprev = &op->next;
	if (d->next)
		d->next->pprev = &d->next;
	op->next = d;
}

struct mrt_op *mrt_deadline(struct mrt_op *pub, struct mrt_timer *timer, uint64_t ns)
{
	struct mrt__op *op = mrt__op_of(pub), *d = mrt__op_of(&timer->mrt__op);
	struct mrt__worker *w = mrt__worker_self;
	uint64_t now;

	if (op->state != MRT__OP_INFLIGHT)
		return pub;
	if (!w || op->task != w->task)
		mrt__bug("mrt_deadline: op %p (%s) belongs to another task", (void *)op, mrt__op_kind_name(op->kind));
	if (op->hflags & MRT__OPH_DEADLINE)
		mrt__bug("mrt_deadline: op %p (%s) has one already", (void *)op, mrt__op_kind_name(op->kind));
	if (d->state == MRT__OP_INFLIGHT)
		mrt__bug("mrt_deadline: timer %p is in use by another op in flight", (void *)timer);
	if (ns == 0) {
		mrt__op_cancel(op, MRT__OPH_TIMEDOUT);
		return pub;
	}
	timer->mrt__target = pub;
	d->why = 0;
	d->state = MRT__OP_INFLIGHT;
	d->kind = MRT__OP_DEADLINE;
	d->flags = MRT__OPF_SHIELDED;
	d->hflags = 0;
	d->task = op->task;
	d->rflags = 0;
	atomic_init(&d->msg, MRT__OP_MSG_NONE);
	link_behind(op, d);
	op->hflags |= MRT__OPH_DEADLINE;
	if (MRT__OP_DEADLINE >= w->shared_kinds)
		w->task->flags |= MRT__TASKF_SHARED; /* the sentry may fire it */
	now = mrt__clock_now();
	add_timer(w, d, mrt__clock_add(now, ns), now);
	return pub;
}
