/* SPDX-License-Identifier: MIT */
/*
 * Tasks: spawn, run, wait, end.
 *
 * mrt__task_run() is the heart. The worker has dequeued a task, and is its holder by that; it delivers what else was
 * finished or asked meanwhile, polls if the await is satisfied, and lets go with one compare-exchange. A completer that
 * finds the task idle becomes its holder with one, delivers, and enqueues it. So an op costs its task two atomic
 * read-modify-writes; one of its own worker's ring none, because the worker keeps the task meanwhile; a yield none.
 *
 * End of a task, in order: its poll function returned (RETURNED); ops still in flight are cancelled; each is delivered;
 * then the result is published (ENDED), the joiner is told, the scope is told, and the runtime's reference goes. The
 * frame is alive until the last of these.
 */
#include "sched/task.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/futex.h"
#include "probe/usdt.h"
#include "sched/op_begin.h"
#include "sched/op_run.h"
#include "sched/sched.h"
#include "sched/task_run.h"
#include "sched/worker.h"

#define FRAME_BYTES_MAX ((size_t)1 << 30)
#define SLOW_POLL_NS (100 * MRT__NS_PER_US)     /* a task that polls longer than this gets a flush first */
#define SLOW_POLLS_REMEMBERED 4u

_Static_assert(MRT_POLL_PENDING == 0 && MRT_POLL_READY == 1, "ABI");

/* ---- awaits ---- */

/* The task suspends until `nr` deliveries have come; 0: a yield. */
static bool suspend(struct mrt_task *t, int32_t offset, uint32_t nr)
{
	t->resume = offset;
	t->await_nr = nr;
	return true;
}

static __attribute__((cold, noinline)) void bug_awaited(const struct mrt__op *op)
{
	if (op->state == MRT__OP_IDLE)
		mrt__bug("a task awaits op %p, which was never started", (const void *)op);
	mrt__bug("a task awaits op %p (%s) of another task", (const void *)op, mrt__op_kind_name(op->kind));
}

static inline void check_awaitable(const struct mrt_task *t, const struct mrt__op *op)
{
	if (mrt__unlikely(op->state == MRT__OP_IDLE || (op->state == MRT__OP_INFLIGHT && op->task != t)))
		bug_awaited(op);
}

/* Out of line: a probe's call would have charge() save registers. */
static __attribute__((noinline)) bool exhaust(struct mrt__worker *w, struct mrt_task *t, int32_t offset)
{
	mrt__stat_add(&w->stats->budget_yields, 1);
	mrt__fire(budget_exhausted, w->index, mrt__arg(t));
	return suspend(t, offset, 0);
}

/* An await that need not wait costs a unit of budget; without budget, or after mrt_yield, it gives others a turn. */
static inline bool charge(struct mrt_task *t, int32_t offset)
{
	struct mrt__worker *w = mrt__worker_self;

	if (mrt__unlikely(!w))
		mrt__bug("a task went on in a child after fork; call exec or _exit there");
	if (mrt__unlikely(t->flags & MRT__TASKF_YIELD)) {
		t->flags &= ~MRT__TASKF_YIELD;
		mrt__stat_add(&w->stats->yields, 1);
		return suspend(t, offset, 0);
	}
	if (mrt__likely(w->budget > 0)) {
		w->budget--;
		return false;
	}
	return exhaust(w, t, offset);
}

bool mrt_task_await(struct mrt_task *t, struct mrt_op *pub, int32_t offset)
{
	struct mrt__op *op = mrt__op_of(pub);

	if (op->state != MRT__OP_DONE) {
		check_awaitable(t, op);
		if (mrt__unlikely(mrt__task_has_news(t))) {
			mrt__task_take_news(t);
			if (op->state == MRT__OP_DONE)
				return charge(t, offset);
		}
		op->hflags |= MRT__OPH_AWAITED;
		return suspend(t, offset, 1);
	}
	return charge(t, offset);
}

bool mrt_task_await_any(struct mrt_task *t, struct mrt_op *const *ops, size_t ops_nr, int32_t offset, size_t *ret_idx)
{
	size_t i, done = ops_nr, inflight = 0;

	mrt__task_collect(t);
	for (i = 0; i < ops_nr; i++) {
		struct mrt__op *op = ops[i] ? mrt__op_of(ops[i]) : NULL;

		if (!op)
			continue;
		check_awaitable(t, op);
		if (op->state != MRT__OP_DONE)
			inflight++;
		else if (done == ops_nr)
			done = i;
	}
	if (done == ops_nr && inflight == 0)
		mrt__bug("a task awaits any of %zu ops, but all are NULL", ops_nr);
	/* marks of an earlier wait on these must not count in a later one */
	for (i = 0; i < ops_nr; i++) {
		if (!ops[i] || mrt__op_of(ops[i])->state == MRT__OP_DONE)
			continue;
		if (done == ops_nr)
			mrt__op_of(ops[i])->hflags |= MRT__OPH_AWAITED;
		else
			mrt__op_of(ops[i])->hflags &= (uint8_t)~MRT__OPH_AWAITED;
	}
	if (done == ops_nr)
		return suspend(t, offset, 1);
	*ret_idx = done;
	return charge(t, offset);
}

bool mrt_task_await_all(struct mrt_task *t, struct mrt_op *const *ops, size_t ops_nr, int32_t offset)
{
	uint32_t inflight = 0;
	size_t i;

	mrt__task_collect(t);
	for (i = 0; i < ops_nr; i++) {
		struct mrt__op *op = ops[i] ? mrt__op_of(ops[i]) : NULL;

		if (!op)
			continue;
		check_awaitable(t, op);
		/* an op named twice counts once: its mark says so */
		if (op->state == MRT__OP_DONE || op->hflags & MRT__OPH_AWAITED)
			continue;
		op->hflags |= MRT__OPH_AWAITED;
		inflight++;
	}
	return inflight ? suspend(t, offset, inflight) : charge(t, offset);
}

void mrt_task_return(struct mrt_task *t, int64_t result)
{
	t->result = result;
}

int64_t mrt_task_result(const struct mrt_task *t)
{
	return t->result;
}

struct mrt_op *mrt_yield(struct mrt_op *pub)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w = mrt__worker_self;
	struct mrt_task *t = w ? w->task : NULL;

	if (mrt__unlikely(!t))
		return mrt__op_refuse(pub, MRT__OP_YIELD, -EINVAL);
	mrt__op_check_startable(op, MRT__OP_YIELD);
	/* an aborted task yields all the same, but is told */
	mrt__op_done_at_once(op, MRT__OP_YIELD,
			     mrt__unlikely(t->flags & MRT__TASKF_ABORTED) && !t->shield ? -ECANCELED : 0, 0);
	t->flags |= MRT__TASKF_YIELD; /* the next await, usually of this op, suspends */
	return pub;
}

void mrt_shield(struct mrt_task *self, bool up)
{
	if (up) {
		if (self->shield == UINT8_MAX)
			mrt__bug("mrt_shield: more than %u levels", UINT8_MAX);
		self->shield++;
	} else {
		if (self->shield == 0)
			mrt__bug("mrt_shield: lowered more often than raised");
		self->shield--;
	}
}

/* ---- run ---- */

/* An abort was seen for the first time: ask everything in flight to end. */
static void abort_ops(struct mrt_task *t, bool shielded_too)
{
	struct mrt__op *op, *next;

	/* a cancel never unlinks: it goes through the done stack */
	for (op = t->ops; op; op = next) {
		next = op->next;
		if (shielded_too || !(op->flags & MRT__OPF_SHIELDED))
			mrt__op_cancel(op, 0);
	}
}

/* The done stack is newest first: deliver oldest first. */
static struct mrt__op *reverse(struct mrt__op *op)
{
	struct mrt__op *list = NULL, *next;

	for (; op; op = next) {
		next = op->done_next;
		op->done_next = list;
		list = op;
	}
	return list;
}

static void take_once(struct mrt_task *t)
{
	uint64_t old = mrt__task_take(t);
	struct mrt__op *op = (struct mrt__op *)(uintptr_t)(old & MRT__WORD_PTR), *next;

	if (op && op->done_next)
		op = reverse(op);
	for (; op; op = next) {
		next = op->done_next;
		mrt__op_deliver(t, op);
	}
	if (mrt__unlikely(old & MRT__WORD_ABORT)) {
		t->flags |= MRT__TASKF_ABORTED;
		abort_ops(t, false);
	}
}

void mrt__task_take_news(struct mrt_task *t)
{
	do
		take_once(t);
	while (mrt__task_has_news(t));
}

/* The last reference is gone. @param heap  of the calling worker of its runtime, or NULL */
static inline void free_task(struct mrt__heap *heap, struct mrt_task *t)
{
	/* [TASK.word.free] no LIVE: the walk of a closing runtime passes it by, its exchange fails; pairs with
	 * [TASK.word.ask]. (The cell's reuse is ordered by [HEAP.remote.push].) */
	atomic_store_explicit(&t->word, 0, memory_order_release);
	mrt__heap_free(t, heap);
}

/* The runtime has given its reference back, or away. */
static inline void count_end(struct mrt__worker *w)
{
	/* [SCHED.ends.pub] we touch nothing of the task any more; pairs with mrt__sched_tasks_alive() */
	__atomic_store_n(&w->stats->ends, w->stats->ends + 1, __ATOMIC_RELEASE);
}

static void wake_thread(struct mrt_task *t, uintptr_t join);

/*
 * The usual end of a join where there is one worker: who joined rests with us, for a result behind which nothing else stands, and
 * nobody keeps the task.
 *
 * @return false: it is not that, and nothing was done
 */
static inline bool end_own_join(struct mrt__worker *w, struct mrt_task *t, struct mrt__op *op)
{
	struct mrt_task *joiner = op->task;

	op->raw = t->result;
	if (!mrt__task_rests(joiner) || !mrt__op_is_plain_wait(joiner, op) || !mrt__task_is_last_ref(t))
		return false;
	free_task(&w->heap, t);
	mrt__op_deliver_plain(joiner, op);
	if (joiner->await_nr == 0) { /* it has not returned: plain */
		mrt__task_set_place(joiner, w->index);
		mrt__worker_schedule_joiner(w, joiner);
	}
	return true;
}

/*
 * Close the join word, and tell whoever waits. A join has the reference from then on, but does not drop it before its delivery,
 * as its cancel may look at the task until then.
 */
static inline void end_join(struct mrt__worker *w, struct mrt_task *t)
{
	uintptr_t join = mrt__task_close_join(t);

	if (join == MRT__JOIN_DETACHED) {
		if (mrt__task_drop_ref(t))
			free_task(&w->heap, t);
	} else if (mrt__unlikely(join & MRT__JOIN_THREAD)) {
		wake_thread(t, join);
	} else if (join) {
		struct mrt__op *op = (struct mrt__op *)(join & MRT__JOIN_PTR);

		if (!(join & MRT__JOIN_OWN) || !end_own_join(w, t, op))
			mrt__op_finish_join(w, op, t->result);
	}
}

/* A message is on its way: whoever is last, of us and who reads it, drops what keeps the cell for it. */
static __attribute__((noinline)) void end_told(struct mrt__worker *w, struct mrt_task *t)
{
	mrt__task_ref(t);
	end_join(w, t);
	if (!mrt__task_leave(t))
		return;
	mrt__task_unref(t);
	count_end(w);
}

void mrt__task_finish(struct mrt__worker *w, struct mrt_task *t)
{
	mrt__assert(!t->ops);
	mrt__fire(task_end, w->index, mrt__arg(t), mrt__arg(t->fn), (uint64_t)t->result);
	w->task = NULL;
	if (t->flags & MRT__TASKF_TRAILER)
		mrt__task_trailer(t)->on_end(t);
	if (mrt__unlikely(mrt__task_end(t))) {
		end_told(w, t);
		return;
	}
	end_join(w, t);
	count_end(w);
}

void mrt__task_told(struct mrt__worker *w, struct mrt_task *t)
{
	/* before TOLD goes: if it does not rest here, the cell may go with it */
	bool rests = mrt__task_rests_at(t, w->index);

	if (mrt__task_end_told(t)) {
		mrt__task_unref(t);
		count_end(w);
	} else if (rests) {
		mrt__task_set_place(t, w->index);
		mrt__sched_enqueue(t);
	}
}

/*
 * Timed now and then, for the statistics and to find slow tasks; always for tasks that were slow: those get the staged ops
 * out of the way first. Whoever listens to the probes of polls has all of them timed.
 */
enum mrt_poll mrt__task_call_poll_timed(struct mrt__worker *w, struct mrt_task *t)
{
	uint64_t polls = w->stats->polls, start, ns;
	enum mrt_poll poll;

	if (t->slow)
		mrt__worker_flush(w);
	start = mrt__clock_now();
	if (w->meter.shows_start)
		mrt__stat_set(&w->stats->poll_start_ns, start);
	mrt__fire(poll_start, w->index, mrt__arg(t), mrt__arg(t->fn));
	poll = mrt__task_call_poll(w, t);
	ns = mrt__clock_now() - start;
	mrt__stat_set(&w->stats->poll_start_ns, 0);
	mrt__fire(poll_end, w->index, mrt__arg(t), mrt__arg(t->fn), ns, poll != MRT_POLL_PENDING);
	mrt__meter_poll_end(&w->meter, polls, ns);
	if (ns > SLOW_POLL_NS)
		t->slow = SLOW_POLLS_REMEMBERED;
	else if (t->slow)
		t->slow--;
	return poll;
}

void mrt__task_move_here(struct mrt__worker *w, struct mrt_task *t)
{
	mrt__stat_add(&w->stats->moved, 1);
	mrt__task_set_place(t, w->index);
	if (t->ops)
		t->flags |= MRT__TASKF_SHARED;
}

void mrt__task_cancel_left(struct mrt_task *t)
{
	abort_ops(t, true);
	mrt__task_collect(t); /* what could be taken out at once is not waited for */
	if (t->flags & MRT__TASKF_ARMED) /* deadlines of ops that end later */
		mrt__worker_put_timers(mrt__worker_self);
}

void mrt__task_run_on(struct mrt__worker *w, struct mrt_task *t)
{
	do {
		mrt__task_collect(t);
		if (mrt__task_is_drained(t)) {
			mrt__task_finish(w, t);
			return;
		}
		if (mrt__task_is_runnable(t)) {
			/* behind those that wait already */
			w->task = NULL;
			mrt__worker_push_yielded(w, t);
			return;
		}
	} while (!mrt__task_rest(w, t, false));
	w->task = NULL;
}

/* ---- spawn ---- */

/* What a task is made of besides its function. */
struct shape {
	const char *name;       /* NULL: none */
	size_t frame_bytes;
	size_t cell_bytes;
	uint32_t flags;         /* MRT_SPAWN_* */
};

static __attribute__((noinline)) int read_opts(const struct mrt_spawn_opts *opts, struct shape *sh)
{
	const unsigned char *tail = (const unsigned char *)opts + sizeof(*opts);
	struct mrt_spawn_opts o = { .size = 0 };
	size_t i;

	for (i = sizeof(*opts); i < opts->size; i++)
		if (*tail++)
			return -E2BIG;
	memcpy(&o, opts, opts->size && opts->size < sizeof(o) ? opts->size : sizeof(o));
	if (o.frame_bytes > FRAME_BYTES_MAX || o.flags & ~MRT_SPAWN_SPREAD || o.reserved)
		return -EINVAL;
	sh->name = o.name;
	sh->frame_bytes = mrt__max(sh->frame_bytes, o.frame_bytes);
	sh->flags = o.flags;
	return 0;
}

static inline int check_spawn(const struct mrt__sched *s, const struct mrt__spawn *sp, struct shape *ret_shape)
{
	struct shape sh = { .name = NULL, .frame_bytes = sp->frame_bytes };

	if (mrt__unlikely(!sp->fn || sp->frame_bytes > FRAME_BYTES_MAX))
		return -EINVAL;
	if (mrt__unlikely(sp->opts != NULL)) {
		struct shape given = sh;
		int err = read_opts(sp->opts, &given);

		if (err)
			return err;
		sh = given; /* so that without options it is never in memory */
	}
	/* relaxed: a spawn that races with the close is aborted by the walk, or refused: both are right */
	if (mrt__unlikely(atomic_load_explicit(&s->closing, memory_order_relaxed)))
		return -ESHUTDOWN;
	sh.cell_bytes = sizeof(struct mrt_task) + mrt__task_frame_room(sh.frame_bytes);
	if (sh.name)
		sh.cell_bytes += MRT__TASK_NAME_ROOM;
	if (sp->on_end)
		sh.cell_bytes += sizeof(struct mrt__task_trailer) + sp->trailer_bytes;
	*ret_shape = sh;
	return 0;
}

/* From the outside heap `out`, whose lock is held on success: the caller drops it when the cell's word is set. */
static __attribute__((noinline)) int alloc_outside(struct mrt__sched *s, struct mrt__outside *out, size_t bytes,
						   struct mrt_task **ret_task)
{
	struct mrt_task *t = NULL;
	int err;

	pthread_mutex_lock(&out->lock);
	/* [SCHED.closing.outside] by the lock's order: not set here means that the walk of this heap is still to come,
	 * and finds the task; pairs with abort_all() in worker.c. After it nothing may come: nobody might be left to run
	 * it. */
	err = atomic_load_explicit(&s->closing, memory_order_relaxed) ? -ESHUTDOWN : 0;
	if (!err) {
		t = mrt__heap_alloc(&out->heap, bytes);
		err = t ? 0 : -ENOMEM;
	}
	if (err) {
		pthread_mutex_unlock(&out->lock);
		return err;
	}
	t->id = (uint64_t)(0x8000 + (out - s->outside)) << 48 | ++out->ids;
	mrt__stat_add(&out->spawns, 1);
	mrt__stat_add_shared(&s->stats_mem.global->spawns_outside, 1);
	*ret_task = t;
	return 0;
}

/*
 * Memory and a number for a task. Numbers: the allocator's index in the top 16 bits, so that nobody shares a counter.
 * See abort_all() in worker.c for why no task slips through a close.
 */
static inline int alloc_on(struct mrt__worker *w, size_t bytes, struct mrt_task **ret_task)
{
	struct mrt_task *t = mrt__heap_alloc(&w->heap, bytes);
	uint64_t spawns;

	if (mrt__unlikely(!t))
		return -ENOMEM;
	spawns = w->stats->spawns + 1;
	mrt__stat_set(&w->stats->spawns, spawns);
	t->id = w->id_base + spawns;
	*ret_task = t;
	return 0;
}

/* Most are small: two moves that overlap instead of a call. */
static inline void copy_frame(char *to, const char *from, size_t bytes)
{
	if (bytes > 32) {
		memcpy(to, from, bytes);
	} else if (bytes >= 16) {
		memcpy(to, from, 16);
		memcpy(to + bytes - 16, from + bytes - 16, 16);
	} else if (bytes >= 8) {
		memcpy(to, from, 8);
		memcpy(to + bytes - 8, from + bytes - 8, 8);
	} else {
		while (bytes-- > 0)
			to[bytes] = from[bytes];
	}
}

static inline void fill_frame(struct mrt_task *t, const struct mrt__spawn *sp, const struct shape *sh)
{
	char *frame = mrt__task_frame(t);
	size_t copied = sp->frame ? sp->frame_bytes : 0;

	copy_frame(frame, sp->frame, copied);
	/* larger ones come zeroed, without a page touched */
	if (sh->frame_bytes > copied && sh->cell_bytes <= MRT__HEAP_CELL_MAX)
		memset(frame + copied, 0, sh->frame_bytes - copied);
}

static inline void init_task(struct mrt_task *t, struct mrt__sched *s, const struct mrt__spawn *sp, const struct shape *sh,
			     uint16_t place, bool handle)
{
	t->resume = 0;
	t->flags = sp->on_end ? MRT__TASKF_TRAILER : 0;
	t->queue_next = NULL;
	t->fn = sp->fn;
	t->ops = NULL;
	t->await_nr = 0;
	atomic_init(&t->refs, 1);
	t->frame_bytes = (uint32_t)sh->frame_bytes | (sh->name ? MRT__FRAME_NAMED : 0);
	mrt__task_set_place(t, place);
	t->shield = t->slow = 0;
	t->result = 0;
	atomic_init(&t->join, handle ? 0 : MRT__JOIN_DETACHED);
	t->sched = s;
	if (mrt__unlikely(sh->name != NULL))
		*(const char **)(void *)mrt__task_behind_frame(t) = sh->name;
	if (sp->on_end)
		mrt__task_trailer(t)->on_end = sp->on_end;
	/* [TASK.word.spawn] from here on it can be aborted; it is ours, so nobody else enqueues it; pairs with
	 * [TASK.word.ask] and [TASK.word.take]. What queues it publishes it as well */
	atomic_store_explicit(&t->word, MRT__WORD_LIVE | MRT__WORD_HELD, memory_order_release);
}

static void place_spread(struct mrt__sched *s, struct mrt_task *t);

/* @param w  the calling worker of s, NULL: there is none */
static inline __attribute__((always_inline)) int spawn(struct mrt__sched *s, struct mrt__worker *w, const struct mrt__spawn *sp,
							struct mrt_task **ret_task)
{
	struct mrt__outside *out = NULL;
	struct mrt_task *t;
	struct shape sh;
	int err = check_spawn(s, sp, &sh);

	if (mrt__unlikely(err))
		return err;
	if (mrt__likely(w != NULL)) {
		err = alloc_on(w, sh.cell_bytes, &t);
	} else {
		out = mrt__sched_outside(s);
		err = alloc_outside(s, out, sh.cell_bytes, &t);
	}
	if (mrt__unlikely(err))
		return err;
	init_task(t, s, sp, &sh, w ? w->index : MRT__PLACE_NONE, ret_task != NULL);
	if (out)
		pthread_mutex_unlock(&out->lock);
	/* nobody runs it before it is enqueued, and nobody but its holder looks at the frame */
	fill_frame(t, sp, &sh);
	if (sp->on_init)
		sp->on_init(t, sp->ctx);
	if (ret_task)
		*ret_task = t;
	mrt__fire(task_spawn, w ? w->index : MRT__NO_WORKER, mrt__arg(t), mrt__arg(t->fn));
	/* [SCHED.closing.dekker] closed since check_spawn() looked: it need not be polled first; pairs with
	 * mrt__sched_close(). Nothing hangs on it: the walk finds the task, see abort_all() in worker.c; a worker's own walk
	 * comes at its next turn, and it looked a moment ago */
	if (mrt__unlikely(out && atomic_load_explicit(&s->closing, memory_order_seq_cst)))
		mrt__task_abort(t);
	if (mrt__unlikely(sh.flags & MRT_SPAWN_SPREAD))
		place_spread(s, t);
	else if (mrt__likely(w != NULL))
		mrt__worker_schedule(w, t);
	else
		mrt__sched_inject(s, t);
	if (out)
		mrt__outside_end(out);
	return 0;
}

int mrt__task_spawn(struct mrt__sched *s, const struct mrt__spawn *sp, struct mrt_task **ret_task)
{
	struct mrt__worker *w = mrt__worker_self;

	if (!w && mrt__sched_is_forked())
		return -ECHILD;
	return spawn(s, w && w->sched == s ? w : NULL, sp, ret_task);
}

/* The least loaded worker by queue, in flight, and what was placed but not taken yet; ties go round. */
static void place_spread(struct mrt__sched *s, struct mrt_task *t)
{
	/* relaxed: any start will do */
	unsigned first = atomic_fetch_add_explicit(&s->spread_next, 1, memory_order_relaxed) % s->workers_nr;
	struct mrt__worker *best = s->workers[first];
	uint64_t best_load = UINT64_MAX;
	unsigned i;

	for (i = 0; i < s->workers_nr; i++) {
		struct mrt__worker *v = s->workers[(first + i) % s->workers_nr];
		uint64_t load = mrt__runq_len(&v->runq) + mrt__stat_get(&v->stats->inflight) +
				mrt__stat_get(&v->stats->yielded) +
				/* relaxed: an estimate */
				atomic_load_explicit(&v->inbox_nr, memory_order_relaxed);

		if (load < best_load) {
			best = v;
			best_load = load;
		}
	}
	mrt__task_set_place(t, best->index);
	mrt__inbox_push(best, t);
}

/* On another runtime than the caller's, or from a thread outside. */
static __attribute__((noinline)) int spawn_elsewhere(struct mrt_runtime *rt, mrt_poll_fn fn, const void *frame,
						     size_t frame_bytes, const struct mrt_spawn_opts *opts,
						     struct mrt_task **ret_task)
{
	const struct mrt__spawn sp = { .fn = fn, .frame = frame, .frame_bytes = frame_bytes, .opts = opts };

	if (mrt__sched_is_forked())
		return -ECHILD;
	/* struct mrt_runtime begins with its scheduler (asserted in src/rt) */
	return rt ? spawn((struct mrt__sched *)(void *)rt, NULL, &sp, ret_task) : -EINVAL;
}

int mrt_spawn(struct mrt_runtime *rt, mrt_poll_fn fn, const void *frame, size_t frame_bytes,
	      const struct mrt_spawn_opts *opts, struct mrt_task **ret_task)
{
	const struct mrt__spawn sp = { .fn = fn, .frame = frame, .frame_bytes = frame_bytes, .opts = opts };
	struct mrt__worker *w = mrt__worker_self;

	if (mrt__likely(w && (!rt || (void *)rt == (void *)w->sched)))
		return spawn(w->sched, w, &sp, ret_task);
	return spawn_elsewhere(rt, fn, frame, frame_bytes, opts, ret_task);
}

void mrt__task_unref(struct mrt_task *t)
{
	struct mrt__worker *w = mrt__worker_self;

	if (mrt__task_drop_ref(t))
		free_task(w && w->sched == t->sched ? &w->heap : NULL, t);
}

/* ---- abort ---- */

void mrt__task_abort(struct mrt_task *t)
{
	struct mrt__worker *w = mrt__worker_self;
	unsigned keeper;

	switch (mrt__task_ask_abort(t, &keeper)) {
	case MRT__ASK_ENQUEUE:
		mrt__sched_enqueue(t);
		break;
	case MRT__ASK_TELL:
		mrt__tell(t->sched->workers[keeper], t);
		break;
	case MRT__ASK_NOTHING:
		break;
	}
	/* itself: what it starts next in this very poll is refused already */
	if (w && w->task == t)
		mrt__task_collect(t);
}

void mrt_abort(struct mrt_task *t)
{
	if (!mrt__sched_is_forked())
		mrt__task_abort(t);
}

bool mrt_task_is_aborted(const struct mrt_task *t)
{
	/* relaxed: a flag; what it leads to is ordered by the take */
	return atomic_load_explicit(&t->word, memory_order_relaxed) & MRT__WORD_ABORTED;
}

bool mrt_task_is_finished(const struct mrt_task *t)
{
	return mrt__task_has_ended(t);
}

/* ---- join ---- */

/* A thread outside that waits; on its stack. */
struct thread_joiner {
	atomic_uint done;
	int64_t result;
} __attribute__((aligned(8)));

/* The join consumes the handle: here. */
static __attribute__((noinline)) void wake_thread(struct mrt_task *t, uintptr_t join)
{
	struct thread_joiner *j = (struct thread_joiner *)(join & ~MRT__JOIN_THREAD);
	atomic_uint *word = &j->done;

	j->result = t->result;
	mrt__task_unref(t);
	/* [JOIN.done.pub] after this the waiter may be gone; the wake by address is harmless then */
	atomic_store_explicit(word, 1, memory_order_release);
	mrt__futex_wake(word, INT_MAX);
}

static bool cancel_join(struct mrt__op *op)
{
	return mrt__task_cancel_join(op->wait.object, op);
}

static const struct mrt__wait_class join_class = { .cancel = cancel_join };

static __attribute__((noinline)) struct mrt_op *join_failed(struct mrt__op *op, int32_t err)
{
	mrt__op_done_at_once(op, MRT__OP_JOIN, err, err);
	return mrt__op_public(op);
}

/* It had ended: the join consumes the handle here. */
static inline struct mrt_op *join_late(struct mrt__worker *w, struct mrt__op *op, struct mrt_task *t)
{
	int64_t result = t->result;

	if (mrt__task_drop_ref(t))
		free_task(w->sched == t->sched ? &w->heap : NULL, t);
	mrt__op_done_at_once(op, MRT__OP_JOIN, result, 0);
	return mrt__op_public(op);
}

struct mrt_op *mrt_join(struct mrt_op *pub, struct mrt_task *t)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w = mrt__op_check(op, MRT__OP_JOIN, MRT__OPF_WAIT);
	uintptr_t waiter = (uintptr_t)op, old;

	if (mrt__unlikely(!w)) {
		op->why = (int32_t)op->res;
		return pub;
	}
	if (mrt__unlikely(t == w->task))
		return join_failed(op, -EDEADLK);
	if (mrt__task_join_is_closed(t))
		return join_late(w, op, t);
	mrt__op_enter(w, op, MRT__OP_JOIN, MRT__OPF_WAIT);
	op->wait.cls = &join_class;
	op->wait.object = t;
	if (mrt__unlikely(w->sched != t->sched))
		w->task->flags |= MRT__TASKF_SHARED; /* a worker of another runtime completes it */
	else if (w->runq.solo)
		waiter |= MRT__JOIN_OWN;
	old = mrt__task_wait_join(t, waiter);
	if (mrt__likely(!old))
		return pub;
	mrt__op_unlink(op);
	return old == MRT__JOIN_ENDED ? join_late(w, op, t) : join_failed(op, -EBUSY);
}

int mrt_task_join_wait(struct mrt_task *t, int64_t *ret_result)
{
	struct thread_joiner j = { .result = 0 };
	uintptr_t old;

	if (mrt__worker_self)
		return -EDEADLK;
	if (mrt__sched_is_forked())
		return -ECHILD;
	/* relaxed: the owner compares with itself */
	if (t->sched->current_thread && !mrt_task_is_finished(t) &&
	    atomic_load_explicit(&t->sched->owner, memory_order_relaxed) == mrt__sched_thread())
		return -EDEADLK;
	atomic_init(&j.done, 0);
	old = mrt__task_wait_join(t, (uintptr_t)&j | MRT__JOIN_THREAD);
	if (!old) {
		/* [JOIN.done.obs] the result is there; pairs with [JOIN.done.pub] */
		while (!atomic_load_explicit(&j.done, memory_order_acquire))
			(void)mrt__futex_wait(&j.done, 0, UINT64_MAX); /* no limit */
	} else if (old == MRT__JOIN_ENDED) {
		j.result = t->result;
		mrt__task_unref(t);
	} else {
		return -EBUSY;
	}
	if (ret_result)
		*ret_result = j.result;
	return 0;
}

void mrt_detach(struct mrt_task *t)
{
	if (t && !mrt__sched_is_forked() && mrt__task_drop_handle(t))
		mrt__task_unref(t);
}

/* ---- who is it, and what holds it up ---- */

#define REPORT_OPS_MAX 4u

/* One op in words. @return characters written, cut to fit */
static size_t describe_op(const struct mrt__op *op, char *buf, size_t bytes)
{
	/* what is left of an _all form changes with each step, by its ring's owner */
	bool moves = op->flags & MRT__OPF_ALL && op->ring != mrt__worker_self->index;
	int n;

	if (op->flags & MRT__OPF_RING && moves)
		n = snprintf(buf, bytes, " %s(fd %d)", mrt__op_kind_name(op->kind), op->io.fd);
	else if (op->flags & MRT__OPF_RING)
		n = snprintf(buf, bytes, " %s(fd %d, %u bytes at %#llx)", mrt__op_kind_name(op->kind), op->io.fd, op->io.len,
			     (unsigned long long)op->io.addr);
	else
		n = snprintf(buf, bytes, " %s", mrt__op_kind_name(op->kind));
	return n < 0 ? 0 : mrt__min((size_t)n, bytes - 1);
}

bool mrt__task_report(struct mrt_task *t)
{
	/* relaxed: a look; try_hold decides */
	uint64_t word = atomic_load_explicit(&t->word, memory_order_relaxed), old;
	char name[64], ops[256] = "";
	const struct mrt__op *op;
	size_t used = 0;
	unsigned nr = 0;

	if (!(word & MRT__WORD_LIVE) || word & MRT__WORD_ENDED)
		return false;
	if (word & MRT__WORD_HELD) {
		/* not ours: its name may go with it. A keeper has aborted what it keeps, or does not answer */
		mrt__sched_log(t->sched, MRT_LOG_WARN, "task %llu is runnable, or being polled", (unsigned long long)t->id);
		return true;
	}
	old = word;
	/* [TASK.word.hold] be its holder while we read its list; pairs with [TASK.word.put]; relaxed on failure: then
	 * it is not reported */
	if (!atomic_compare_exchange_strong_explicit(&t->word, &old, word | MRT__WORD_HELD, memory_order_acquire,
						     memory_order_relaxed))
		return true;
	for (op = t->ops; op; op = op->next, nr++)
		if (nr < REPORT_OPS_MAX)
			used += describe_op(op, ops + used, sizeof(ops) - used);
	mrt__sched_log(t->sched, MRT_LOG_WARN, "task %s (%llu) waits with %u ops in flight:%s%s",
		       mrt_task_name(t, name, sizeof(name)), (unsigned long long)t->id, nr, ops,
		       nr > REPORT_OPS_MAX ? " ..." : "");
	if (!mrt__task_let_go(t))
		mrt__sched_enqueue(t);
	return true;
}

struct mrt_task *mrt_task_self(void)
{
	return mrt__worker_self ? mrt__worker_self->task : NULL;
}

uint64_t mrt_task_id(const struct mrt_task *t)
{
	return t->id;
}

const char *mrt_task_name(const struct mrt_task *t, char *buf, size_t buf_bytes)
{
	Dl_info info;

	if (t->frame_bytes & MRT__FRAME_NAMED)
		return *(const char *const *)(const void *)mrt__task_behind_frame((struct mrt_task *)(uintptr_t)t);
	if (dladdr((void *)(uintptr_t)t->fn, &info) && info.dli_sname)
		return info.dli_sname;
	(void)snprintf(buf, buf_bytes, "task@%p", (void *)(uintptr_t)t->fn); /* cut to fit */
	return buf;
}
