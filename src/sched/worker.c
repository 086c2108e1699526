/* SPDX-License-Identifier: MIT */
/*
 * The worker's loop: pick a task, run it, and turn the ring in between.
 *
 *	tick    every event_interval ticks   a ring turn, although there is work
 *	        every inject_interval ticks  one task from inject first
 *	        next slot, local queue       and up to three next-slot polls behind each task, on one budget
 *	        a ring turn                  submit, reap, timers, yielded tasks, a batch from inject
 *	        search                       steal; the next slot of somebody stuck, last
 *	        park                         in the ring
 *
 * The ring turn serves everybody evenly. What waits outside the local queue (inject, yielded tasks, completions, due
 * timers, what spilled) shares the queue's free slots in rotation, each oldest first, and nothing that is yielded or reaped
 * spills into inject. Reaping stops where the slots end; the rest waits in the CQ, in order. So with any number of ready tasks
 * each gets its turn: a full queue that is refilled from the CQ first would starve whoever was pushed out of it.
 */
#include "sched/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sched/op_run.h"
#include "sched/task_run.h"

#define DRAIN_MAX 128u          /* completions that one turn asks the kernel for beyond the first pass */
#define CREDIT_RESERVE_SHIFT 3  /* an eighth of the CQ is kept for wakes, messages and waits for peers */
#define TUNE_TARGET_NS (200 * MRT__NS_PER_US)
#define TRIM_AFTER_NS MRT__NS_PER_SEC   /* empty task memory is kept this long for the next burst */
#define MISSES_MAX 2u           /* flushes that found nothing, after which submitting is left to the wait */
#define LATE_MAX 16u            /* waits in a row that submit; then a flush shows whether it still finds nothing */
#define TRIM_BATCH 2u                   /* slabs given back between two looks for work: some 0.1 ms */
#define TUNE_MIN 2u
#define TUNE_MAX 127u

__thread struct mrt__worker *mrt__worker_self __attribute__((tls_model("initial-exec")));

/* ---- make and free ---- */

int mrt__worker_create(const struct mrt__worker_opts *opts, struct mrt__worker **ret_worker)
{
	struct mrt__worker *w = aligned_alloc(MRT__CACHE_PAIR, sizeof(*w));

	if (!w)
		return -ENOMEM;
	memset(w, 0, sizeof(*w));
	w->sched = opts->sched;
	w->ring = opts->ring;
	w->index = (uint16_t)opts->index;
	w->cpu = opts->cpu;
	w->id_base = ((uint64_t)opts->index + 1) << 48;
	w->keeper = MRT__WORD_KEEPER_OF(opts->index);
	w->shared_kinds = opts->sched->workers_nr == 1 ? MRT__OP_KINDS_OUTSIDE : MRT__OP_KINDS_SHARED;
	w->stats = &opts->sched->stats[opts->index];
	mrt__stat_set(&w->stats->cpu, opts->cpu);
	w->next_enabled = true;
	w->inject_interval = w->inject_left = opts->sched->inject_interval;
	w->event_interval = w->event_left = opts->sched->event_interval;
	w->credits = w->credits_max = opts->cq_entries - (opts->cq_entries >> CREDIT_RESERVE_SHIFT);
	mrt__rand_init(&w->rand, opts->seed);
	w->big = opts->sched->polled_opts.flags & MRT__RING_OPT_BIG;
	w->recv_found = UINT8_MAX;
	w->recv_polls = mrt__ring_has_opcode(opts->ring, MRT__OPCODE_SOCKET); /* came with the same kernel */
	w->file_mask = opts->sched->files->max - 1;
	w->file_use = calloc(opts->sched->files->max, sizeof(*w->file_use));
	if (!w->file_use || mrt__arena_view_init(&w->arena, opts->sched->arena, NULL)) {
		free(w->file_use);
		free(w);
		return -ENOMEM;
	}
	mrt__heap_init(&w->heap);
	mrt__runq_init(&w->runq, 0, opts->sched->workers_nr == 1);
	mrt__park_init(&w->park);
	w->parked_ns = mrt__clock_now();
	mrt__meter_init(&w->meter, &opts->sched->stats_mem, opts->index, w->parked_ns, mrt__rand_next(&w->rand));
	mrt__wheel_init(&w->wheel, w->parked_ns);
	w->armed_tail = &w->armed;
	atomic_init(&w->wheel_next, UINT64_MAX);
	*ret_worker = w;
	return 0;
}

void mrt__worker_destroy(struct mrt__worker *w)
{
	if (!w)
		return;
	mrt__heap_fini(&w->heap);
	mrt__arena_view_fini(&w->arena);
	free(w->cancels.list);
	free(w->file_use);
	free(w);
}

/* ---- the polled ring ---- */

/* Its ring may be there or not, enabled only if it was drained. */
static void free_polled(struct mrt__worker *w)
{
	struct mrt__ring *ring = w->polled;

	w->polled = NULL; /* first: a fork by another thread looks here for what to abandon */
	mrt__ring_destroy(ring);
	mrt__arena_view_fini(&w->polled_arena);
}

bool mrt__worker_make_polled(struct mrt__worker *w)
{
	struct mrt__ring_opts opts = w->sched->polled_opts;
	char why[256] = "";

	if (w->polled || w->polled_error)
		return w->polled != NULL;
	opts.stats = w->stats;
	w->polled_error = mrt__arena_view_init(&w->polled_arena, w->sched->arena, &w->arena);
	if (!w->polled_error)
		w->polled_error = mrt__ring_create(&opts, &w->polled, why, sizeof(why));
	if (!w->polled_error)
		w->polled_error = mrt__ring_enable(w->polled, mrt__worker_iowq_cpus(w));
	if (!w->polled_error)
		return true;
	mrt__sched_log(w->sched, MRT_LOG_WARN, "worker %u has no polled ring, so its polled files go through the ordinary one: "
					       "%s (error %d)", w->index, why[0] ? why : strerrordesc_np(-w->polled_error),
		       -w->polled_error);
	free_polled(w);
	return false;
}

int mrt__worker_drain(struct mrt__worker *w)
{
	int err;

	if (w->polled) {
		mrt__assert(w->polled_inflight == 0);
		err = mrt__ring_drain(w->polled);
		if (err)
			return err;
		free_polled(w);
	}
	return mrt__ring_drain(w->ring);
}

/* ---- queues ---- */

/* The only worker: nobody helps with what its queue has no room for, so that it waits here, in order, without a lock. */
static void spill(struct mrt__worker *w, struct mrt_task *t)
{
	if (w->spilled_nr++ == 0) {
		mrt__stat_add(&w->stats->overflows, 1);
		mrt__fire(overflow, w->index, 1);
	}
	mrt__worker_append(&w->spilled_head, &w->spilled_tail, t);
}

void mrt__worker_push(struct mrt__worker *w, struct mrt_task *t)
{
	struct mrt_task *batch[MRT__RUNQ_BATCH_MAX];
	unsigned nr;

	if (mrt__likely(mrt__runq_try_push(&w->runq, t)))
		return;
	if (w->runq.solo) {
		spill(w, t);
		return;
	}
	if (mrt__runq_push(&w->runq, t, batch, &nr) == MRT__RUNQ_PUSHED)
		return;
	mrt__stat_add(&w->stats->overflows, 1);
	mrt__fire(overflow, w->index, nr);
	mrt__inject_push(&w->sched->inject, batch, nr);
	mrt__sched_notify(w->sched);
}

void mrt__worker_push_yielded(struct mrt__worker *w, struct mrt_task *t)
{
	mrt__worker_append_yielded(w, t);
}

void mrt__sched_wake(struct mrt__worker *w)
{
	struct mrt__worker *self = mrt__worker_self;

	if (!mrt__park_wake(&w->park))
		return;
	if (self && self->sched == w->sched)
		mrt__stat_add(&self->stats->wakes_sent, 1);
	mrt__ring_wake(w->ring);
}

void mrt__sched_notify(struct mrt__sched *s)
{
	int i;

	if (s->workers_nr == 1) { /* there are no books of who sleeps */
		if (mrt__park_sleeps(&s->workers[0]->park))
			mrt__sched_wake(s->workers[0]);
		return;
	}
	i = mrt__idle_worker_to_notify(&s->idle);
	if (i >= 0)
		mrt__sched_wake(s->workers[i]);
}

void mrt__worker_schedule_behind(struct mrt__worker *w, struct mrt_task *t)
{
	if (mrt__unlikely(w->spilled_nr > 0))
		spill(w, t); /* behind those */
	else if (mrt__unlikely(!mrt__runq_try_push(&w->runq, t)))
		mrt__worker_push(w, t);
	/* one alone is run by this worker, after the present poll: as with a slot push, others are woken if that one is long */
	if (w->sched->workers_nr > 1 && mrt__runq_len(&w->runq) + mrt__runq_has_next(&w->runq) > 1)
		mrt__sched_notify(w->sched);
}

void mrt__sched_inject(struct mrt__sched *s, struct mrt_task *t)
{
	struct mrt__worker *w = mrt__worker_self;

	mrt__fire(task_wake, w ? w->index : MRT__NO_WORKER, mrt__arg(t), MRT__NO_WORKER);
	mrt__inject_push(&s->inject, &t, 1);
	mrt__sched_notify(s);
}

void mrt__sched_enqueue(struct mrt_task *t)
{
	struct mrt__worker *w = mrt__worker_self;
	struct mrt__sched *s = t->sched;
	struct mrt__outside *out;

	if (mrt__likely(w && w->sched == s)) {
		mrt__worker_schedule(w, t);
		return;
	}
	out = mrt__outside_begin(s);
	mrt__sched_inject(s, t);
	mrt__outside_end(out);
}

/* ---- inbox and mailbox: stacks that others push and the owner takes whole (no ABA) ---- */

void mrt__inbox_push(struct mrt__worker *w, struct mrt_task *t)
{
	struct mrt__worker *self = mrt__worker_self;
	bool outside = !self || self->sched != w->sched;
	/* relaxed: the exchange decides */
	struct mrt_task *old = atomic_load_explicit(&w->inbox, memory_order_relaxed);

	mrt__fire(task_wake, outside ? MRT__NO_WORKER : self->index, mrt__arg(t), w->index);
	/* relaxed: an estimate, for placing; before the push, so that a take never counts below zero */
	atomic_fetch_add_explicit(&w->inbox_nr, 1, memory_order_relaxed);
	do
		t->queue_next = old;
	/* [WORKER.inbox.push] publishes the task; pairs with [WORKER.inbox.take] */
	while (!atomic_compare_exchange_weak_explicit(&w->inbox, &old, t, memory_order_release, memory_order_relaxed));
	if (w != self)
		mrt__sched_wake(w);
}

struct mrt_task *mrt__inbox_take(struct mrt__worker *v)
{
	struct mrt_task *t, *next, *list = NULL;
	unsigned nr = 0;

	/* relaxed: empty needs no order */
	if (!atomic_load_explicit(&v->inbox, memory_order_relaxed))
		return NULL;
	/* [WORKER.inbox.take] pairs with [WORKER.inbox.push] */
	for (t = atomic_exchange_explicit(&v->inbox, NULL, memory_order_acquire); t; t = next) {
		next = t->queue_next;
		t->queue_next = list;
		list = t;
		nr++;
	}
	/* relaxed: an estimate */
	atomic_fetch_sub_explicit(&v->inbox_nr, nr, memory_order_relaxed);
	return list;
}

void mrt__mailbox_push(struct mrt__worker *owner, struct mrt__op *op)
{
	/* relaxed: the exchange decides */
	struct mrt__op *old = atomic_load_explicit(&owner->mailbox, memory_order_relaxed);

	do
		op->res = (int64_t)(intptr_t)old; /* the visible result is not valid in flight: it is the link */
	/* [WORKER.mailbox.push] publishes the request; pairs with [WORKER.mailbox.take] */
	while (!atomic_compare_exchange_weak_explicit(&owner->mailbox, &old, op, memory_order_release,
						      memory_order_relaxed));
	mrt__sched_wake(owner);
}

void mrt__tell(struct mrt__worker *keeper, struct mrt_task *t)
{
	struct mrt__worker *self = mrt__worker_self;
	struct mrt__sched *s = keeper->sched;
	struct mrt__outside *out = NULL;
	struct mrt_task *old;

	if (keeper == self) {
		mrt__task_told(self, t);
		return;
	}
	if (!self || self->sched != s)
		out = mrt__outside_begin(s);
	/* relaxed: the exchange decides */
	old = atomic_load_explicit(&keeper->told, memory_order_relaxed);
	do
		t->told_next = old;
	/* [WORKER.told.push] publishes the link, and the ask with it; pairs with [WORKER.told.take] */
	while (!atomic_compare_exchange_weak_explicit(&keeper->told, &old, t, memory_order_release,
						      memory_order_relaxed));
	mrt__sched_wake(keeper);
	if (out)
		mrt__outside_end(out);
}

static void drain_told(struct mrt__worker *w)
{
	struct mrt_task *t, *next;

	/* relaxed: empty needs no order */
	if (mrt__likely(!atomic_load_explicit(&w->told, memory_order_relaxed)))
		return;
	w->heard = true;
	/* [WORKER.told.take] pairs with [WORKER.told.push] */
	for (t = atomic_exchange_explicit(&w->told, NULL, memory_order_acquire); t; t = next) {
		next = t->told_next;
		mrt__task_told(w, t);
	}
}

static void drain_mailbox(struct mrt__worker *w)
{
	struct mrt__op *op, *next;

	/* relaxed: empty needs no order */
	if (mrt__likely(!atomic_load_explicit(&w->mailbox, memory_order_relaxed)))
		return;
	/* [WORKER.mailbox.take] pairs with [WORKER.mailbox.push] */
	for (op = atomic_exchange_explicit(&w->mailbox, NULL, memory_order_acquire); op; op = next) {
		bool terminal = op->rflags & MRT__OPR_TERMINAL;
		int64_t raw = op->raw;

		next = (struct mrt__op *)(intptr_t)op->res;
		if (!terminal && !(op->rflags & MRT__OPR_QUEUED))
			mrt__op_cancel_on_owner(w, op);
		/*
		 * [OP.msg.consume] our accesses are over; pairs with [OP.msg.wait]. WAITING: it was finished and popped
		 * before, and the holder waits for us to push it once more. An op that is not terminal lives on until its
		 * CQE; a queued one is taken out only after the message is consumed, as its finish may free it.
		 */
		if (atomic_exchange_explicit(&op->msg, MRT__OP_MSG_CONSUMED, memory_order_acq_rel) ==
		    MRT__OP_MSG_WAITING) {
			mrt__assert(terminal);
			mrt__op_finish(op, raw);
		} else if (!terminal && op->rflags & MRT__OPR_QUEUED) {
			mrt__op_cancel_on_owner(w, op);
		}
	}
}

/* ---- closing ---- */

static void abort_cell(void *cell, void *ctx)
{
	(void)ctx;
	mrt__task_abort(cell); /* only if it is LIVE: free cells have word 0 */
}

/*
 * No task slips through: a worker's own heap is walked by its owner, who spawns nothing after it has seen the close; an
 * outside heap under the lock that its spawners hold while they set the task's word, and whoever comes later sees the
 * close by that lock's order and is refused.
 */
static void abort_all(struct mrt__worker *w)
{
	struct mrt__sched *s = w->sched;
	unsigned i;

	w->heap_aborted = true;
	mrt__heap_walk(&w->heap, abort_cell, NULL);
	for (;;) {
		/* relaxed: a ticket */
		i = atomic_fetch_add_explicit(&s->aborted_heaps, 1, memory_order_relaxed);
		if (i >= MRT__OUTSIDE_HEAPS_NR)
			break;
		pthread_mutex_lock(&s->outside[i].lock);
		mrt__heap_walk(&s->outside[i].heap, abort_cell, NULL);
		pthread_mutex_unlock(&s->outside[i].lock);
		/* [SCHED.walked.pub] what was spawned there is counted; pairs with may_stop() */
		atomic_fetch_add_explicit(&s->walked_heaps, 1, memory_order_acq_rel);
	}
}

/* ---- the ring turn ---- */

/* A thread that is woken may take this CPU at once: not before all calls of a poll are queued, and one wake serves them all. */
static inline void send_calls(struct mrt__worker *w)
{
	void (*calls_due)(struct mrt__pool *pool) = w->calls_due;

	if (mrt__unlikely(calls_due)) {
		w->calls_due = NULL;
		calls_due(w->sched->pool);
	}
}

void mrt__worker_flush(struct mrt__worker *w)
{
	send_calls(w);
	if (mrt__ring_staged(w->ring) > 0)
		(void)mrt__ring_flush(w->ring); /* what is not taken stays staged for the next turn */
	if (mrt__unlikely(w->polled_inflight > 0))
		(void)mrt__ring_flush(w->polled); /* the same */
}

/* Move up to `room` tasks into the local queue. */
static inline unsigned take_list(struct mrt__worker *w, struct mrt_task **head, struct mrt_task **tail, unsigned room)
{
	struct mrt_task *t = *head;
	unsigned nr = 0;

	room = mrt__min(room, mrt__runq_room(&w->runq));
	for (; nr < room && t; t = t->queue_next)
		mrt__runq_stage(&w->runq, nr++, t);
	mrt__runq_publish(&w->runq, nr);
	*head = t;
	if (!t)
		*tail = NULL;
	return nr;
}

static unsigned take_yielded(struct mrt__worker *w, unsigned room)
{
	unsigned nr = take_list(w, &w->yielded_head, &w->yielded_tail, room);

	w->yielded_nr -= nr;
	return nr;
}

static unsigned take_spilled(struct mrt__worker *w, unsigned room)
{
	unsigned nr = take_list(w, &w->spilled_head, &w->spilled_tail, room);

	w->spilled_nr -= nr;
	return nr;
}

static unsigned take_inject(struct mrt__worker *w, unsigned room)
{
	struct mrt_task *batch[MRT__INJECT_BATCH_MAX];
	size_t share = mrt__inject_len(&w->sched->inject) / w->sched->workers_nr + 1, nr, i;

	nr = mrt__inject_pop(&w->sched->inject, batch, mrt__min(share, mrt__min(room, MRT__INJECT_BATCH_MAX)));
	for (i = 0; i < nr; i++)
		mrt__worker_push(w, batch[i]);
	mrt__stat_add(&w->stats->injects, nr);
	w->heard = true;
	return (unsigned)nr;
}

/* What was placed here: few, and not bounded by room; beyond it they overflow like any push. */
static unsigned take_inbox(struct mrt__worker *w)
{
	struct mrt_task *t = mrt__inbox_take(w), *next;
	unsigned nr = 0;

	w->heard |= t != NULL;
	for (; t; t = next) {
		next = t->queue_next;
		mrt__worker_push(w, t);
		nr++;
	}
	return nr;
}

enum source {
	SOURCE_INJECT,
	SOURCE_SPILLED,
	SOURCE_YIELDED,
	SOURCE_CQ,
	SOURCE_POLLED,          /* the polled ring's CQ */
	SOURCE_TIMERS,
	SOURCES_NR
};

/* Is there something from it? A bit for each source. */
static inline unsigned sources_waiting(struct mrt__worker *w, uint64_t now)
{
	unsigned waiting = (unsigned)(mrt__inject_len(&w->sched->inject) > 0) << SOURCE_INJECT;

	waiting |= (unsigned)(w->spilled_nr > 0) << SOURCE_SPILLED;
	waiting |= (unsigned)(w->yielded_nr > 0) << SOURCE_YIELDED;
	waiting |= (unsigned)(mrt__ring_ready(w->ring) > 0) << SOURCE_CQ;
	if (mrt__unlikely(w->polled_inflight > 0))
		waiting |= (unsigned)(mrt__ring_ready(w->polled) > 0) << SOURCE_POLLED;
	/* relaxed: we wrote it, or a sentry that took timers out */
	waiting |= (unsigned)(atomic_load_explicit(&w->wheel_next, memory_order_relaxed) <= now) << SOURCE_TIMERS;
	return waiting;
}

static unsigned source_take(struct mrt__worker *w, enum source s, uint64_t now, unsigned room)
{
	switch (s) {
	case SOURCE_INJECT:
		return take_inject(w, room);
	case SOURCE_SPILLED:
		return take_spilled(w, room);
	case SOURCE_YIELDED:
		return take_yielded(w, room);
	case SOURCE_CQ:
		return mrt__op_reap(w, w->ring, room);
	case SOURCE_POLLED:
		return mrt__op_reap(w, w->polled, room);
	case SOURCE_TIMERS:
		return mrt__worker_fire(w, w, now, room);
	case SOURCES_NR:
		break;
	}
	mrt__bug("no such source: %d", s);
}

/* Several: first an equal part for each, then what is left over, both beginning with another source each turn. */
static __attribute__((noinline)) unsigned refill_shared(struct mrt__worker *w, uint64_t now, unsigned waiting, unsigned room)
{
	unsigned part = mrt__max(room / (unsigned)__builtin_popcount(waiting), 1u), first = w->turn_first, total = 0, pass, i;
	bool begun = false;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < SOURCES_NR; i++) {
			enum source s = (enum source)((first + i) % SOURCES_NR);
			/* not what is left by count: a sentry's look inside a reap fills slots, too */
			unsigned left = mrt__runq_room(&w->runq);

			if (!(waiting & 1u << s))
				continue;
			if (!begun)
				w->turn_first = s + 1; /* behind the one that is first now; who does not wait takes no turn */
			begun = true;
			if (left == 0 || (pass == 1 && !(sources_waiting(w, now) & 1u << s)))
				continue;
			total += source_take(w, s, now, pass == 0 ? mrt__min(part, left) : left);
		}
	}
	if (room == 0 && mrt__ring_ready(w->ring) > 0)
		(void)mrt__op_reap(w, w->ring, 0); /* wakes and acknowledgements need no slot */
	return total;
}

/* Share the free slots among the sources that wait. @return slots used */
static inline unsigned refill(struct mrt__worker *w, uint64_t now)
{
	unsigned waiting = sources_waiting(w, now), room = mrt__runq_room(&w->runq);
	enum source s;

	if (waiting == 0)
		return 0;
	if (mrt__unlikely(waiting & (waiting - 1) || room == 0))
		return refill_shared(w, now, waiting, room);
	s = (enum source)__builtin_ctz(waiting);
	w->turn_first = s + 1;
	return source_take(w, s, now, room);
}

/* Now, if anything here needs it: a clock read costs as much as a short poll. The meter needs it in one turn of a few. */
static uint64_t turn_clock(struct mrt__worker *w)
{
	/* relaxed: ours, or a sentry's, as above */
	if (--w->meter.turns_left > 0 && atomic_load_explicit(&w->wheel_next, memory_order_relaxed) == UINT64_MAX)
		return 0;
	return mrt__clock_now();
}

static void publish_gauges(struct mrt__worker *w)
{
	uint32_t queue = mrt__runq_len(&w->runq) + w->spilled_nr, io = w->credits_max - w->credits;

	mrt__stat_set(&w->stats->local_queue, queue);
	mrt__stat_set(&w->stats->next_slot, mrt__runq_has_next(&w->runq));
	mrt__stat_set(&w->stats->yielded, w->yielded_nr);
	mrt__stat_set(&w->stats->inflight, w->inflight);
	mrt__stat_set(&w->stats->inflight_io, io);
	mrt__stat_set(&w->stats->inflight_peer, w->inflight - io);
	mrt__stat_set(&w->stats->inflight_polled, w->polled_inflight);
	mrt__meter_depths(&w->meter, queue, w->inflight);
}

/* What came from outside since somebody did this last. */
static __attribute__((noinline)) void publish_outside(struct mrt__worker *w)
{
	struct mrt_global_stats *g = w->sched->stats_mem.global;
	uint64_t spawns = mrt__stat_get(&g->spawns_outside);
	/* relaxed: a count, as the exchange */
	uint64_t shared = atomic_load_explicit(&w->sched->outside_shared, memory_order_relaxed);

	w->heard = false;
	mrt__stat_raise(&g->remote_wakes, mrt__sched_remote_wakes(w->sched));
	while (shared < spawns)
		if (atomic_compare_exchange_weak_explicit(&w->sched->outside_shared, &shared, spawns, memory_order_relaxed,
							  memory_order_relaxed)) {
			mrt__stat_add_shared(&g->tasks_alive, (int64_t)(spawns - shared));
			break;
		}
}

/* Bring this worker's share of the sums in mrt_global up to date. Seldom: its line is everybody's. */
static void publish_shares(struct mrt__worker *w)
{
	struct mrt_global_stats *g = w->sched->stats_mem.global;
	int64_t alive = (int64_t)(w->stats->spawns - w->stats->ends);
	int64_t timers = (int64_t)mrt__stat_get(&w->stats->timers);

	if (alive != w->alive_shared)
		mrt__stat_add_shared(&g->tasks_alive, alive - w->alive_shared);
	if (timers != w->timers_shared)
		mrt__stat_add_shared(&g->timers, timers - w->timers_shared);
	w->alive_shared = alive;
	w->timers_shared = timers;
	if (mrt__unlikely(w->heard))
		publish_outside(w);
}

/* Work that others could help with: wake a searcher. A stale count only delays the help. */
static void notify_if_plenty(struct mrt__worker *w, unsigned made)
{
	if (made < 2 || w->sched->workers_nr == 1)
		return;
	if (mrt__idle_unparked_nr(&w->sched->idle) < w->sched->workers_nr)
		mrt__sched_notify(w->sched);
}

/* Deferred work comes in pieces (20 a call on newer kernels): ask again while it does, and there is room. */
static unsigned drain_deferred(struct mrt__worker *w)
{
	unsigned total = 0, nr, room;

	while (total < DRAIN_MAX && mrt__ring_has_deferred(w->ring) && (room = mrt__runq_room(&w->runq)) > 0) {
		(void)mrt__ring_flush(w->ring); /* looked at by its completions */
		nr = mrt__op_reap(w, w->ring, mrt__min(room, DRAIN_MAX - total));
		if (nr == 0)
			break; /* the flag alone is only a hint */
		total += nr;
	}
	return total;
}

#define REPORT_TASKS_MAX 16u

static void report_cell(void *cell, void *ctx)
{
	unsigned *left = ctx;

	if (*left > 0)
		*left -= mrt__task_report(cell);
}

/* A shutdown runs late: say what holds it up. The outside heaps are walked by whoever comes first. */
static void report_tasks(struct mrt__worker *w)
{
	struct mrt__sched *s = w->sched;
	unsigned left = REPORT_TASKS_MAX, i;

	mrt__heap_walk(&w->heap, report_cell, &left);
	for (i = w->index; i < MRT__OUTSIDE_HEAPS_NR; i += s->workers_nr) {
		pthread_mutex_lock(&s->outside[i].lock);
		mrt__heap_walk(&s->outside[i].heap, report_cell, &left);
		pthread_mutex_unlock(&s->outside[i].lock);
	}
	/* [WORKER.report.done] our sentences are out; pairs with report_holdups() */
	atomic_store_explicit(&w->report, false, memory_order_release);
}

/*
 * Submit late: a worker that has nothing left to run submits what is staged, finds that nothing has completed, and waits:
 * two system calls where one would do. But if something does complete (page cache, a socket with room) there is no wait, and
 * to go to sleep for it would cost about as much as the call saved. Which it will be is told by the opcode that is staged
 * last: an answer is written behind a request's read, and a reader that has sent waits. After a few flushes that found
 * nothing, submitting is left to the wait; now and then a flush looks whether that is still so.
 */
static inline struct mrt__foresight *foresight_of(struct mrt__worker *w)
{
	int opcode = mrt__ring_staged_last(w->ring);

	return opcode < 0 ? NULL : &w->foresight[(unsigned)opcode % MRT__FORESIGHTS_NR];
}

static inline bool may_submit_late(const struct mrt__worker *w, struct mrt__foresight *f)
{
	if (mrt__likely(!f || f->misses < MISSES_MAX))
		return false;
	if (f->left-- > 0)
		return !w->queued_head && w->cancels_due == 0 && w->polled_inflight == 0;
	f->left = LATE_MAX;
	return false;
}

static inline void learn(struct mrt__foresight *f, bool ended)
{
	if (mrt__likely(ended))
		f->misses = 0;
	else if (f->misses < MISSES_MAX && ++f->misses == MISSES_MAX)
		f->left = LATE_MAX;
}

/*
 * @param f     foresight_of()
 * @param late  what is staged is submitted by the wait, if it comes to that
 */
static inline __attribute__((always_inline)) bool turn(struct mrt__worker *w, struct mrt__foresight *f, bool late)
{
	unsigned made, ready;
	uint64_t now;

	if (mrt__unlikely(mrt__sched_is_forked()))
		mrt__bug("a task went on in a child after fork; call exec or _exit there");
	mrt__assert(!w->armed); /* between polls */
	w->in_turn = true;
	w->turn_woken = 0;
	/* relaxed: it comes with a wake; seen now or at the next turn */
	if (mrt__unlikely(atomic_load_explicit(&w->sched->closing, memory_order_relaxed)) && !w->heap_aborted)
		abort_all(w);
	/* relaxed: as closing, it comes with a wake. [WORKER.report.ask] pairs with report_holdups() */
	if (mrt__unlikely(atomic_load_explicit(&w->report, memory_order_relaxed)))
		report_tasks(w);
	drain_told(w);
	drain_mailbox(w);
	send_calls(w);
	/* relaxed: it comes with a wake, and its lock orders the rest */
	if (mrt__unlikely(atomic_load_explicit(&w->sched->files->version, memory_order_relaxed) != w->files_seen ||
			  w->cancels_due > 0))
		mrt__files_turn(w);
	if (mrt__unlikely(w->cancels.sent_nr > 0))
		mrt__cancels_turn(w);
	late = late && !mrt__ring_has_deferred(w->ring);
	if (!late && (f || mrt__ring_staged(w->ring) > 0 || mrt__ring_has_deferred(w->ring)))
		(void)mrt__ring_flush(w->ring); /* what is not taken stays staged */
	if (mrt__unlikely(w->polled_inflight > 0))
		(void)mrt__ring_flush(w->polled); /* submits, and polls the devices once */
	now = turn_clock(w);
	ready = mrt__ring_ready(w->ring);
	mrt__stat_set(&w->stats->cq_ready, ready);
	if (f && !late)
		learn(f, ready > 0);
	made = take_inbox(w);
	made += refill(w, now);
	made += drain_deferred(w);
	if (mrt__unlikely(w->queued_head != NULL))
		mrt__worker_resubmit(w);
	w->in_turn = false;
	mrt__stat_add(&w->stats->local_schedules, w->turn_woken);
	mrt__stat_add(&w->stats->turns, 1);
	publish_gauges(w);
	if (now) {
		mrt__stat_set(&w->stats->turn_ns, now);
		mrt__meter_clock(&w->meter, now);
	}
	notify_if_plenty(w, mrt__max(made, w->turn_woken));
	/* mailbox and aborts make tasks runnable without taking a share */
	return made > 0 || w->turn_woken > 0;
}

bool mrt__worker_turn(struct mrt__worker *w)
{
	return turn(w, foresight_of(w), false);
}

/* ---- self-tuning ---- */

/* Look at inject about every 200 us of polling (Tokio's rule; reference: its stats.rs). */
static void tune_inject(struct mrt__worker *w, uint64_t now)
{
	uint64_t polls = w->stats->polls - w->tune_polls, weight;
	double mean, keep = 1.0, interval;

	if (w->tune_ns && polls > 0) {
		mean = (double)(now - w->tune_ns) / (double)polls;
		for (weight = mrt__min(polls, 64u); weight > 0; weight--)
			keep *= 0.9;
		w->tune_mean_ns = w->tune_mean_ns > 0 ? keep * w->tune_mean_ns + (1 - keep) * mean : mean;
		interval = (double)TUNE_TARGET_NS / mrt__max(w->tune_mean_ns, 1.0);
		interval = mrt__min(mrt__max(interval, (double)TUNE_MIN), (double)TUNE_MAX);
		if (interval - (double)w->inject_interval > 2 || (double)w->inject_interval - interval > 2)
			w->inject_interval = (uint32_t)interval;
	}
	w->tune_ns = now;
	w->tune_polls = w->stats->polls;
}

/* Seldom under load, to save enters; soon when work is scarce, to answer fast. */
static void tune_events(struct mrt__worker *w)
{
	uint32_t len = mrt__runq_len(&w->runq), base = w->sched->event_interval;

	w->event_interval = len >= 64 ? 3 * base : len >= 16 ? base : mrt__max(base / 4, 1u);
}

static __attribute__((noinline)) void event_turn(struct mrt__worker *w)
{
	w->meter.queue_sum += mrt__runq_len(&w->runq); /* other turns come when it is empty */
	(void)mrt__worker_turn(w); /* there is work in any case */
	publish_shares(w);
	if (w->sched->tune_events)
		tune_events(w);
	w->event_left = w->event_interval;
	if (w->sched->tune_inject || w->sched->workers_nr > 1) {
		uint64_t now = mrt__clock_now();

		if (w->sched->tune_inject)
			tune_inject(w, now);
		mrt__sentry_on_event_turn(w, now);
	}
}

/* ---- one tick ---- */

static __attribute__((noinline)) struct mrt_task *pop_inject(struct mrt__worker *w)
{
	struct mrt_task *t;

	if (mrt__inject_pop(&w->sched->inject, &t, 1) == 0)
		return NULL;
	mrt__stat_add(&w->stats->injects, 1);
	w->heard = true;
	return t;
}

static inline __attribute__((always_inline)) struct mrt_task *next_task(struct mrt__worker *w)
{
	struct mrt_task *t;

	if (--w->inject_left == 0) {
		w->inject_left = w->inject_interval;
		t = pop_inject(w);
		if (t)
			return t;
	}
	t = mrt__runq_next_take(&w->runq);
	return t ? t : mrt__runq_pop(&w->runq);
}

/* The last searcher looks at every queue: what was pushed while it searched woke nobody. */
static bool work_elsewhere(struct mrt__worker *w)
{
	struct mrt__sched *s = w->sched;
	unsigned i;

	if (mrt__inject_len(&s->inject) > 0)
		return true;
	for (i = 0; i < s->workers_nr; i++)
		if (s->workers[i] != w && mrt__runq_has_work(&s->workers[i]->runq))
			return true;
	return false;
}

/*
 * @param found  tasks in our own queue that we run next: 1, or 0 if we have it in hand. They are no work for others
 */
static __attribute__((noinline)) void leave_search(struct mrt__worker *w, unsigned found)
{
	w->searching = false;
	mrt__stat_set(&w->stats->state, MRT_WORKER_RUNNING);
	/*
	 * The last searcher to find work wakes another, if there is more: whoever pushed before our count fell saw a
	 * searcher and woke nobody, and its push is visible here. (Without the look each lone request wakes two.)
	 */
	if (mrt__idle_end_search(&w->sched->idle) && (mrt__runq_len(&w->runq) > found || work_elsewhere(w)))
		mrt__sched_notify(w->sched);
}

static __attribute__((noinline)) void first_after_park(struct mrt__worker *w)
{
	w->woken = false;
	if (w->sched->workers_nr > 1)
		mrt__sentry_on_work(w);
}

/* Run a task, and up to three that the one before put into the next slot, on one budget. */
static inline __attribute__((always_inline)) void run(struct mrt__worker *w, struct mrt_task *t)
{
	unsigned next_polls = 0;

	if (mrt__unlikely(w->searching))
		leave_search(w, 0);
	if (mrt__unlikely(w->woken))
		first_after_park(w);
	w->budget = MRT__BUDGET;
	for (;;) {
		mrt__task_run(w, t);
		if (next_polls == MRT__NEXT_POLLS_MAX)
			break;
		t = mrt__runq_next_take(&w->runq);
		if (!t)
			break;
		if (w->budget == 0) {
			mrt__worker_push(w, t); /* it has waited its turn: to the queue, without a wake */
			break;
		}
		if (++next_polls == MRT__NEXT_POLLS_MAX)
			w->next_enabled = false;
	}
	if (next_polls == MRT__NEXT_POLLS_MAX)
		w->next_enabled = true;
}

/* What was found elsewhere: out of line. */
static __attribute__((noinline)) void run_found(struct mrt__worker *w, struct mrt_task *t)
{
	run(w, t);
}

static struct mrt_task *search(struct mrt__worker *w)
{
	struct mrt__sched *s = w->sched;
	unsigned first, i, nr;
	struct mrt_task *t;

	if (s->workers_nr == 1)
		return NULL;
	if (!w->searching) {
		if (!mrt__idle_try_search(&s->idle))
			return NULL;
		w->searching = true;
		mrt__stat_set(&w->stats->state, MRT_WORKER_SEARCHING);
	}
	mrt__stat_add(&w->stats->steal_tries, 1);
	first = mrt__rand_below(&w->rand, s->workers_nr);
	for (i = 0; i < s->workers_nr; i++) {
		struct mrt__worker *v = s->workers[(first + i) % s->workers_nr];

		if (v == w)
			continue;
		t = mrt__runq_steal(&v->runq, &w->runq, &nr);
		if (!t)
			continue;
		mrt__stat_add(&w->stats->steals, nr);
		mrt__stat_add(&w->stats->steal_ops, 1);
		mrt__fire(steal, w->index, v->index, nr);
		return t;
	}
	t = pop_inject(w);
	if (t)
		return t;
	/* the last pass: a task in the next slot of somebody who is in the middle of a poll */
	for (i = 0; i < s->workers_nr; i++) {
		struct mrt__worker *v = s->workers[(first + i) % s->workers_nr];

		if (v == w || !mrt__stat_get(&v->stats->poll_fn))
			continue;
		t = mrt__runq_next_take(&v->runq);
		if (!t)
			continue;
		mrt__stat_add(&w->stats->steals, 1);
		mrt__stat_add(&w->stats->steal_ops, 1);
		mrt__fire(steal, w->index, v->index, 1);
		return t;
	}
	return NULL;
}

/* Closing, and every task has ended: all workers may leave. */
static bool may_stop(struct mrt__sched *s)
{
	unsigned i;

	/* acquire: what was set before the close; pairs with [SCHED.closing.dekker] in mrt__sched_close() */
	if (!atomic_load_explicit(&s->closing, memory_order_acquire))
		return false;
	/*
	 * [SCHED.walked.pub] before that a spawn from outside may be on its way, and the count be zero but for a
	 * moment; pairs with abort_all(). A read-modify-write, also between our own count of ends and the
	 * look at the others': with plain loads two workers that each end a last task could both see the other's as
	 * alive, and nobody would stop.
	 */
	if (atomic_fetch_add_explicit(&s->walked_heaps, 0, memory_order_acq_rel) < MRT__OUTSIDE_HEAPS_NR ||
	    mrt__sched_tasks_alive(s) > 0)
		return false;
	/* who sets it wakes the others; each of them looks at the counts for itself. acq_rel: pairs with itself, one sets it first */
	if (!atomic_exchange_explicit(&s->stopping, true, memory_order_acq_rel))
		for (i = 0; i < s->workers_nr; i++)
			if (s->workers[i] != mrt__worker_self)
				mrt__sched_wake(s->workers[i]);
	return true;
}

/* Nothing to do, and for long enough: give memory back, a little between two looks for work. @return look again */
static bool trim(struct mrt__worker *w)
{
	unsigned i;

	if (mrt__likely(!mrt__heap_can_trim(&w->heap))) {
		w->trim_ns = 0;
		return false;
	}
	if (!w->trim_ns || mrt__clock_now() < w->trim_ns)
		return false;
	for (i = 0; i < TRIM_BATCH && mrt__heap_can_trim(&w->heap); i++)
		mrt__heap_trim(&w->heap);
	return true;
}

/* Nothing at home: turn the ring, search. */
static __attribute__((noinline)) enum mrt__tick tick_without_work(struct mrt__worker *w)
{
	struct mrt__foresight *f = foresight_of(w);
	bool late = may_submit_late(w, f);
	struct mrt_task *t;

	if (turn(w, f, late)) {
		/* found at home: whoever was woken to search need not, and tells the others */
		if (mrt__unlikely(w->searching))
			leave_search(w, 1);
		w->event_left = w->event_interval;
		return MRT__TICK_RAN;
	}
	w->event_left = w->event_interval;
	mrt__heap_flush(&w->heap);
	if (mrt__unlikely(may_stop(w->sched)))
		return MRT__TICK_STOP;
	t = search(w);
	if (t) {
		if (late)
			mrt__worker_flush(w); /* not behind somebody else's tasks */
		run_found(w, t);
		return MRT__TICK_RAN;
	}
	if (mrt__unlikely(w->polled_inflight > 0)) {
		/* nothing would wake us: between two looks at the devices we are no searcher, but free for work */
		if (w->searching)
			leave_search(w, 0);
		return MRT__TICK_RAN;
	}
	if (mrt__likely(!trim(w)))
		return MRT__TICK_PARK;
	if (late)
		mrt__worker_flush(w);
	return MRT__TICK_RAN;
}

static inline __attribute__((always_inline)) enum mrt__tick tick(struct mrt__worker *w)
{
	struct mrt_task *t;

	mrt__stat_add(&w->stats->ticks, 1);
	if (mrt__unlikely(--w->event_left == 0))
		event_turn(w);
	t = next_task(w);
	if (mrt__unlikely(!t))
		return tick_without_work(w);
	run(w, t);
	return MRT__TICK_RAN;
}

enum mrt__tick mrt__worker_tick(struct mrt__worker *w)
{
	return tick(w);
}

enum mrt__tick mrt__worker_ticks(struct mrt__worker *w, const struct mrt_task *root)
{
	enum mrt__tick last;

	do
		last = tick(w);
	while (mrt__likely(last == MRT__TICK_RAN) && !(root && mrt__task_has_ended(root)));
	return last;
}

/* ---- park ---- */

static void left_idle(struct mrt__worker *w)
{
	uint64_t now = mrt__clock_now();

	/* not a sleeper any more: somebody took us out, and counted us as a searcher */
	if (w->sched->workers_nr > 1 && !mrt__idle_unpark_worker(&w->sched->idle, w->index))
		w->searching = true;
	mrt__stat_set(&w->stats->state, w->searching ? MRT_WORKER_SEARCHING : MRT_WORKER_RUNNING);
	w->slept_ns = now - w->parked_ns;
	mrt__stat_add(&w->stats->park_ns, w->slept_ns);
	mrt__meter_slept(&w->meter, w->inflight, w->slept_ns, now);
	w->parked_ns = now;
	mrt__fire(unpark, w->index, w->slept_ns, now);
}

/*
 * Does an op, or the cancel of a closing file's ops, wait for an SQE alone? The kernel took nothing when the turn sent queued
 * ops, and may take what is staged when it is asked to wait: then nothing would come by to stage the rest. (Without a credit, a
 * completion will.)
 */
static bool has_submittable(const struct mrt__worker *w)
{
	return w->cancels_due > 0 || (w->queued_head && (w->credits > 0 || !(w->queued_head->flags & MRT__OPF_CREDIT)));
}

bool mrt__worker_park_begin(struct mrt__worker *w, uint64_t *ret_timeout_ns)
{
	struct mrt__sched *s = w->sched;
	uint64_t now = mrt__clock_now(), next;
	bool last, sleeps;

	if (w->woken)
		mrt__stat_add(&w->stats->noop_wakes, 1);
	w->woken = true;
	mrt__stat_add(&w->stats->parks, 1);
	mrt__stat_add(&w->stats->busy_ns, now - w->parked_ns);
	mrt__stat_set(&w->stats->turn_ns, now);
	publish_shares(w);
	mrt__meter_clock(&w->meter, now);
	mrt__stat_set(&w->stats->state, MRT_WORKER_PARKED);
	w->parked_ns = now;
	if (s->workers_nr > 1) {
		last = mrt__idle_park(&s->idle, w->index, w->searching);
		w->searching = false;
		mrt__sentry_on_park(w);
		if (last && (mrt__runq_has_work(&w->runq) || work_elsewhere(w)))
			mrt__sched_notify(s);
	}
	sleeps = mrt__park_begin(&w->park);
	if (sleeps && s->workers_nr == 1 && mrt__unlikely(mrt__inject_len(&s->inject) > 0)) {
		(void)mrt__park_end(&w->park); /* it came before the begin, and so told nobody */
		sleeps = false;
	}
	if (!sleeps) {
		left_idle(w);
		mrt__worker_flush(w); /* what the wait was to submit */
		return false;
	}
	next = mrt__worker_wheel_wake(w, now);
	if (mrt__unlikely(w->cancels.sent_nr > 0))
		next = mrt__min(next, w->cancels.next_ns);
	*ret_timeout_ns = next == UINT64_MAX ? UINT64_MAX : next > now ? next - now : 0;
	if (mrt__unlikely(has_submittable(w)))
		*ret_timeout_ns = 0;
	if (mrt__unlikely(mrt__heap_can_trim(&w->heap))) {
		if (!w->trim_ns)
			w->trim_ns = now + TRIM_AFTER_NS;
		*ret_timeout_ns = mrt__min(*ret_timeout_ns, w->trim_ns > now ? w->trim_ns - now : 0);
	}
	mrt__fire(park, w->index, *ret_timeout_ns, now);
	return true;
}

void mrt__worker_park_end(struct mrt__worker *w)
{
	(void)mrt__park_end(&w->park); /* woken or not, the next tick looks everywhere */
	left_idle(w);
}

void mrt__worker_park(struct mrt__worker *w)
{
	uint64_t timeout_ns;

	if (!mrt__worker_park_begin(w, &timeout_ns))
		return;
	mrt__ring_wait(w->ring, timeout_ns);
	mrt__worker_park_end(w);
}
