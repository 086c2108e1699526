/* SPDX-License-Identifier: MIT */
/*
 * The sentry: somebody looks after workers that are stuck in a long poll.
 *
 * Pushes into a next slot and inserts into a wheel wake nobody, and idle workers sleep without a time-out. So while any
 * worker is awake and any sleeps, one sleeper is the sentry: a timer on its ring wakes it every 2 ms. It fires wheels
 * that are overdue, and takes the queue, the next slot and the inbox of a worker that is in the same poll as at the last
 * look. Latency: stuck just after a look, seen at the next but one, so 4 ms and a wake.
 *
 * What it cannot take: what the stuck worker has staged but not submitted, its completions, its yielded tasks, and
 * cancels that wait for it. They wait for the end of that poll.
 *
 * Hand-over. Whoever parks while others are awake and there is no sentry becomes it; whoever begins to work after a park
 * appoints a sleeper if there is none, and resigns first if it was the sentry itself. The sentry that finds everybody else
 * asleep resigns and stops its timer, so an idle runtime stays idle. Whoever is the last to fall asleep after a long sleep
 * (requests come one at a time, far apart) does that for it, so that each request does not wake two workers; where they
 * come close together the timer is left running, as setting it costs more than its wakes.
 *
 * [SENTRY.dekker] It resigns, then looks at the count of the awake once more; whoever wakes is counted first (in the
 * idle word), then looks whether there is a sentry. All four are seq_cst, so at least one of the two sees the other. A
 * sleeper is appointed under the idle lock, so it cannot have begun to work before.
 *
 * [SENTRY.timer] Appointed, then the timer armed unless it runs; stopped, then looked whether one was appointed: seq_cst
 * again, so a sentry always has a timer. A timer left running by one who resigned goes off on a ring whose worker is not
 * the sentry: that stops it.
 */
#include "base/assert.h"
#include "sched/op_run.h"
#include "sched/worker.h"

/*
 * Looks that are closer than this count as one. So two looks are at most MRT__SENTRY_NS and this apart, however often the
 * watch is handed over, and a stuck worker, which the second one recognises, is seen within 4.5 ms.
 */
#define LOOK_APART_NS (MRT__SENTRY_NS / 8)

static unsigned sentry_get(struct mrt__sched *s)
{
	/* [SENTRY.dekker] pairs with the exchanges below and in mrt__idle_appoint() */
	return atomic_load_explicit(&s->sentry, memory_order_seq_cst);
}

/*
 * Is v in the same poll as when somebody looked before? The notes are v's, not the looker's:
 * sleepers take turns at being the sentry.
 */
static bool is_stuck(struct mrt__worker *v, uint64_t now)
{
	uint64_t polls = mrt__stat_get(&v->stats->polls);

	/* relaxed: notes; two who look at once may take v for stuck that is not, which harms nobody */
	if (polls != atomic_load_explicit(&v->seen_polls, memory_order_relaxed)) {
		atomic_store_explicit(&v->seen_polls, polls, memory_order_relaxed);
		atomic_store_explicit(&v->seen_ns, now, memory_order_relaxed);
		return false;
	}
	return mrt__stat_get(&v->stats->poll_fn) != 0 &&
	       atomic_load_explicit(&v->seen_ns, memory_order_relaxed) + LOOK_APART_NS <= now;
}

static void start_timer(struct mrt__worker *w)
{
	/* [SENTRY.timer] after the appointment; pairs with stop_timer() */
	if (!atomic_exchange_explicit(&w->sentry_armed, true, memory_order_seq_cst))
		mrt__ring_sentry_arm(w->ring, MRT__SENTRY_NS);
}

static bool is_sentry(const struct mrt__worker *w)
{
	return sentry_get(w->sched) == w->index + 1u;
}

/* Stop the timer of one who is not the sentry. @thread any */
static void stop_timer(struct mrt__worker *w)
{
	mrt__ring_sentry_disarm(w->ring);
	/* [SENTRY.timer] before the look at the office; pairs with start_timer() */
	(void)atomic_exchange_explicit(&w->sentry_armed, false, memory_order_seq_cst);
	if (is_sentry(w))
		start_timer(w); /* appointed while it was being stopped */
}

/* Make w itself the sentry if there is none. */
static bool try_appoint(struct mrt__worker *w)
{
	unsigned none = 0;

	/* [SENTRY.dekker] pairs with sentry_get() */
	if (!atomic_compare_exchange_strong_explicit(&w->sched->sentry, &none, w->index + 1u, memory_order_seq_cst,
						     memory_order_seq_cst))
		return false;
	start_timer(w);
	return true;
}

static void appoint_sleeper(struct mrt__sched *s, const struct mrt__worker *except)
{
	int sleeper = mrt__idle_appoint(&s->idle, except->index, &s->sentry);

	if (sleeper >= 0)
		start_timer(s->workers[sleeper]);
}

static bool try_resign(struct mrt__worker *w)
{
	unsigned me = w->index + 1u;

	/* [SENTRY.dekker] before the look at the awake that follows; pairs with sentry_get() of who has just woken */
	return atomic_compare_exchange_strong_explicit(&w->sched->sentry, &me, 0, memory_order_seq_cst,
						       memory_order_seq_cst);
}

/* Everybody sleeps: `sentry` (not the caller) need not wake to find that out. */
static void dismiss(struct mrt__worker *w, struct mrt__worker *sentry)
{
	if (!try_resign(sentry))
		return;
	stop_timer(sentry);
	/* [SENTRY.dekker] somebody may have woken between the look and the resignation */
	if (mrt__idle_unparked_nr(&w->sched->idle) > 0)
		appoint_sleeper(w->sched, w);
}

void mrt__sentry_on_park(struct mrt__worker *w)
{
	struct mrt__sched *s = w->sched;
	unsigned now_sentry, awake;

	if (s->workers_nr == 1)
		return;
	now_sentry = sentry_get(s);
	awake = mrt__idle_unparked_nr(&s->idle);
	if (now_sentry == w->index + 1u)
		start_timer(w); /* it runs, but for a race that is not worth an argument */
	else if (now_sentry && awake == 0 && w->slept_ns > MRT__SENTRY_NS)
		dismiss(w, s->workers[now_sentry - 1]);
	else if (!now_sentry && awake > 0)
		(void)try_appoint(w); /* somebody else may have been quicker */
}

/* Take what another thread may take from a worker that is stuck. */
static unsigned rescue(struct mrt__worker *w, struct mrt__worker *v)
{
	struct mrt_task *t, *next;
	unsigned total = 0, nr;

	t = mrt__runq_steal(&v->runq, &w->runq, &nr);
	if (t) {
		mrt__worker_push(w, t);
		total += nr;
	}
	t = mrt__runq_next_take(&v->runq);
	if (t) {
		mrt__worker_push(w, t);
		total++;
	}
	t = mrt__inbox_take(v);
	w->heard |= t != NULL; /* as take_inbox() */
	for (; t; t = next) {
		next = t->queue_next;
		mrt__worker_push(w, t);
		total++;
	}
	mrt__stat_add(&w->stats->steals, total);
	if (total > 0)
		mrt__fire(steal, w->index, v->index, total);
	return total;
}

/* Say once of each poll that is stuck. */
static void note_stall(struct mrt__worker *w, struct mrt__worker *v, uint64_t now)
{
	/* relaxed: notes, as in is_stuck(); two who look at once may both say it */
	uint64_t polls = atomic_load_explicit(&v->seen_polls, memory_order_relaxed);

	if (atomic_exchange_explicit(&v->stalled_polls, polls, memory_order_relaxed) == polls)
		return;
	mrt__stat_add(&w->stats->stalls, 1);
	mrt__fire(stall, w->index, v->index, mrt__stat_get(&v->stats->poll_fn),
		  now - atomic_load_explicit(&v->seen_ns, memory_order_relaxed));
}

/* Look at everybody else once. @return tasks and timers taken */
static unsigned look(struct mrt__worker *w, uint64_t now)
{
	struct mrt__sched *s = w->sched;
	unsigned i, total = 0;

	for (i = 0; i < s->workers_nr; i++) {
		struct mrt__worker *v = s->workers[i];
		uint64_t next;

		if (v == w)
			continue;
		/* relaxed: a hint, looked at again under the lock */
		next = atomic_load_explicit(&v->wheel_next, memory_order_relaxed);
		if (next != UINT64_MAX && next + MRT__SENTRY_GRACE_NS <= now)
			total += mrt__worker_fire(w, v, now, mrt__runq_room(&w->runq));
		if (is_stuck(v, now)) {
			note_stall(w, v, now);
			total += rescue(w, v);
		}
	}
	mrt__stat_add(&w->stats->rescued, total);
	return total;
}

/*
 * The sentry is about to hand its watch over. Each hand-over sets a timer anew, so where they follow each other fast
 * none would ever go off: it looks once more, unless somebody has just done so.
 */
static void look_if_due(struct mrt__worker *w)
{
	struct mrt__sched *s = w->sched;

	/* relaxed: a hint, as in mrt__sentry_on_event_turn() */
	if (atomic_load_explicit(&s->sentry_ns, memory_order_relaxed) + LOOK_APART_NS > w->parked_ns)
		return;
	atomic_store_explicit(&s->sentry_ns, w->parked_ns, memory_order_relaxed);
	if (look(w, w->parked_ns) > 0)
		mrt__sched_notify(s); /* behind the task that it woke for */
}

void mrt__sentry_on_work(struct mrt__worker *w)
{
	if (is_sentry(w)) {
		look_if_due(w);
		(void)try_resign(w); /* its timer stops itself when it next goes off */
	}
	if (!sentry_get(w->sched))
		appoint_sleeper(w->sched, w);
}

void mrt__sentry_on_timer(struct mrt__worker *w)
{
	struct mrt__sched *s = w->sched;
	uint64_t now;

	mrt__stat_add(&w->stats->sentry_wakes, 1);
	if (!is_sentry(w)) {
		stop_timer(w);
		return;
	}
	if (mrt__idle_unparked_nr(&s->idle) <= 1) {
		/* only this worker, and it goes back to sleep */
		if (!try_resign(w))
			return;
		stop_timer(w);
		/* [SENTRY.dekker] somebody may have woken between the look and the resignation */
		if (mrt__idle_unparked_nr(&s->idle) > 1)
			(void)try_appoint(w);
		return;
	}
	now = mrt__clock_now();
	/* relaxed: a hint for the busy look */
	atomic_store_explicit(&s->sentry_ns, now, memory_order_relaxed);
	w->turn_woken += look(w, now);
}

void mrt__sentry_on_event_turn(struct mrt__worker *w, uint64_t now)
{
	struct mrt__sched *s = w->sched;
	/* relaxed: the exchange decides who looks */
	uint64_t last = atomic_load_explicit(&s->sentry_ns, memory_order_relaxed);

	if (s->workers_nr == 1 || sentry_get(s) || now - last < MRT__SENTRY_NS)
		return;
	if (!atomic_compare_exchange_strong_explicit(&s->sentry_ns, &last, now, memory_order_relaxed,
						     memory_order_relaxed))
		return;
	(void)look(w, now); /* what was taken is in our queue already */
}
