/* SPDX-License-Identifier: MIT */
/*
 * The simulated world: workers that take turns on one thread, a pool whose calls run in between, a clock that moves
 * by a little with each step, and by a leap when all sleep.
 *
 * A step is one tick of a worker, or its waking up, or a call of the pool. Steps nest: where a worker that is in the
 * middle of a step reads the clock, would enter the kernel or calls another file (sim_wrap.c), and where a task's poll
 * says that it takes long, others may make steps before it goes on. The interrupted worker is busy meanwhile, as a thread is that lost its CPU. So
 * interleavings are tried at all points where the runtime touches the outside, though not between any two instructions;
 * that is what tests/model is for.
 *
 * When all sleep nothing may be left to do, and the clock may not leap over a timer that somebody has set: that is where
 * lost wake-ups show.
 */
#include "sim.h"
#include "sim_ledger.h"
#include "sim_regs.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "blocking/pool.h"
#include "sched/arena_region.h"

#define SECONDS_DEFAULT 10
#define SEED_SECONDS_MAX 60u    /* of real time; a worker that spins for ever is found by it */
#define STEPS_MAX 20000000u
#define NESTED_STEPS_MAX 12u
#define FREEZE_STEPS_MAX 200u

struct sim sim;

static const struct sim_program *program;
static const char *program_path;

/* ---- failing ---- */

/* Only what may be called in a signal handler. */
static void say(const char *text)
{
	(void)!write(STDERR_FILENO, text, strlen(text)); /* nothing better to do */
}

static char replay[512];

static void on_death(void)
{
	say(replay);
}

static void on_signal(int signo)
{
	say(signo == SIGALRM ? "sim: this seed takes too long: something spins\n" : "");
	say(replay);
	if (signo == SIGALRM)
		abort();
}

#if MRT__ASAN
#include <sanitizer/common_interface_defs.h>
static void catch_deaths(void)
{
	__sanitizer_set_death_callback(on_death);
}
#else
static void catch_deaths(void)
{
	(void)on_death;
}
#endif

void sim_fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sim: at %" PRIu64 " ns, step %" PRIu64 ": ", sim.now_ns, sim.steps);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	abort();
}

void sim_log_line(const char *fmt, ...)
{
	struct mrt__worker *w = mrt__worker_self;
	va_list ap;

	printf("%10" PRIu64 ".%03u us ", sim.now_ns / 1000, (unsigned)(sim.now_ns % 1000));
	printf("%*s", (int)(2 * sim.depth), "");
	if (w)
		printf("w%u ", w->index);
	else
		printf("-- ");
	if (w && w->task)
		printf("t%u.%u ", (unsigned)(w->task->id >> 48), (unsigned)w->task->id);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void on_log(int level, const char *sentence, void *ctx)
{
	(void)ctx;
	sim_log("log %d: %s", level, sentence);
	sim_preempt();
}

/* ---- options ---- */

static uint64_t pick(const uint32_t *values, size_t nr)
{
	return values[sim_below(nr)];
}

#define PICK(...) \
	pick((const uint32_t[]){ __VA_ARGS__ }, sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

/* Some worlds are rough in one way, some in all, some in none: faults that come at once hide each other. */
void sim_opts_draw(struct sim_opts *o)
{
	memset(o, 0, sizeof(*o));
	o->workers_nr = (unsigned)PICK(1, 2, 2, 3, 4);
	o->sq_entries = (uint32_t)PICK(8, 8, 16, 64, 256);
	o->cq_entries = (uint32_t)PICK(16, 32, 128, 2048);
	if (o->cq_entries < o->sq_entries)
		o->cq_entries = o->sq_entries;
	o->inject_interval = (uint32_t)PICK(1, 3, 31, 61, 61);
	o->event_interval = (uint32_t)PICK(1, 3, 31, 61, 61);
	o->tune_inject = sim_chance(200);
	o->tune_events = sim_chance(200);
	o->preempt = (unsigned)PICK(0, 5, 30, 100, 200);
	o->freeze = (unsigned)PICK(0, 0, 2, 10);
	o->spurious = (unsigned)PICK(0, 0, 2, 20);
	o->refuse = (unsigned)PICK(0, 0, 20, 200);
	o->stale = (unsigned)PICK(0, 0, 100, 1000);
	o->inline_ends = (unsigned)PICK(0, 100, 500, 950);
	o->shorts = (unsigned)PICK(0, 50, 300, 600);
	o->errors = (unsigned)PICK(0, 0, 20, 100, 300);
	o->busy_overflow = sim_chance(200);
	o->delay_ns_max = PICK(100, 20000, 200000, 5000000);
	o->tick_ns_max = PICK(1, 200, 2000, 20000);
	o->reg_fails = (unsigned)PICK(0, 0, 20, 200);
	o->clone = (enum sim_clone)PICK(SIM_CLONE_NEVER, SIM_CLONE_ONCE, SIM_CLONE_SLOTS, SIM_CLONE_SLOTS);
	o->hide = (unsigned)PICK(0, 0, 20, 500);
}

static void log_opts(void)
{
	const struct sim_opts *o = &sim.opts;

	sim_log("seed %" PRIu64 ": %u workers, SQ %u, CQ %u, inject every %u%s, events every %u%s", sim.seed,
		o->workers_nr, o->sq_entries, o->cq_entries, o->inject_interval, o->tune_inject ? " (tuned)" : "",
		o->event_interval, o->tune_events ? " (tuned)" : "");
	sim_log("per mille: preempt %u, freeze %u, spurious %u, refuse %u, stale %u, inline %u, short %u, error %u, "
		"failed registration %u, hidden from cancels %u; clones %u; delay up to %" PRIu64 " ns, tick up to %" PRIu64 " ns%s", o->preempt,
		o->freeze, o->spurious, o->refuse, o->stale, o->inline_ends, o->shorts, o->errors, o->reg_fails, o->hide,
		(unsigned)o->clone, o->delay_ns_max, o->tick_ns_max, o->busy_overflow ? ", EBUSY on overflow" : "");
}

/* ---- building, as src/rt/runtime.c does ---- */

static void start_worker(unsigned i)
{
	struct mrt__sched *s = sim.sched;
	struct mrt__ring_opts ro = { .sq_entries = sim.opts.sq_entries, .cq_entries = sim.opts.cq_entries,
				     .stats = &s->stats[i] };
	struct mrt__worker_opts wo = { .sched = s, .index = i, .cpu = -1, .cq_entries = sim.opts.cq_entries,
				       .seed = sim_rand_next(&sim.rand) };
	int err = mrt__ring_create(&ro, &sim.rings[i], NULL, 0);

	wo.ring = sim.rings[i];
	if (!err)
		err = mrt__worker_create(&wo, &s->workers[i]);
	if (!err)
		err = mrt__ring_enable(sim.rings[i], NULL);
	sim_check(!err, "worker %u: error %d", i, err);
	sim.workers[i] = (struct sim_worker){ .w = s->workers[i] };
	mrt__stat_set(&s->stats[i].state, MRT_WORKER_RUNNING);
}

static uint64_t draw_preemption(void)
{
	return sim.opts.preempt ? 1 + sim_below(2000 / sim.opts.preempt) : UINT64_MAX;
}

void sim_start(void)
{
	struct mrt__sched *s = aligned_alloc(MRT__CACHE_PAIR, sizeof(*s));
	struct mrt__stats_opts so = { .workers_nr = sim.opts.workers_nr, .backend = MRT__STATS_HEAP };
	struct mrt__pool_opts po = { .threads_max = 0, .queue_max = (uint32_t)sim_below(4) };
	struct mrt__arena_opts ao = { .sched = s, .bytes_max = SIM_ARENA_BYTES, .workers_nr = sim.opts.workers_nr };
	unsigned i;

	sim_check(s && sim.opts.workers_nr >= 1 && sim.opts.workers_nr <= SIM_WORKERS_MAX, "no memory, or bad options");
	log_opts();
	memset(s, 0, sizeof(*s));
	sim.sched = s;
	sim.preempt_left = UINT64_MAX;
	s->workers_nr = sim.opts.workers_nr;
	s->tune_inject = sim.opts.tune_inject;
	s->tune_events = sim.opts.tune_events;
	s->inject_interval = sim.opts.inject_interval;
	s->event_interval = sim.opts.event_interval;
	s->timer_slack_ns = sim_below(3) * 25 * MRT__NS_PER_US; /* 0: none */
	s->log = on_log;
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++) {
		pthread_mutex_init(&s->outside[i].lock, NULL);
		mrt__heap_init(&s->outside[i].heap);
	}
	s->workers = calloc(s->workers_nr, sizeof(struct mrt__worker *));
	sim_check(!mrt__stats_create(&so, &s->stats_mem), "no memory");
	mrt__sched_attach_stats(s);
	po.stats = s->stats_mem.global;
	sim_check(s->workers && !mrt__idle_init(&s->idle, s->workers_nr), "no memory");
	sim_check(!mrt__files_create(s, SIM_FILES_MAX, &s->files), "no memory");
	sim_check(!mrt__arena_create(&ao, &s->arena), "no arena");
	s->arena->exempt = true; /* whatever the limit of this user is: the simulated kernel refuses by itself */
	s->polled_opts = (struct mrt__ring_opts){ .sq_entries = sim.opts.sq_entries, .cq_entries = sim.opts.cq_entries,
						  .flags = MRT__RING_OPT_IOPOLL };
	for (i = 0; i < s->workers_nr; i++)
		start_worker(i);
	sim_check(!mrt__pool_create(&po, &s->pool), "no pool");
	sim.preempt_left = draw_preemption();
}

/* ---- steps ---- */

/* A worker sleeps: it has handed on all that it alone can. */
static void check_sleeper(const struct mrt__worker *w)
{
	unsigned i = w->index;

	sim_check(w->yielded_nr == 0, "worker %u sleeps, but has yielded tasks", i);
	sim_check(!mrt__runq_has_next(&w->runq), "worker %u sleeps, but has a task in its next slot", i);
	sim_check(mrt__ring_staged(w->ring) == 0, "worker %u sleeps, but has staged ops", i);
	sim_check(!w->queued_head || (w->queued_head->flags & MRT__OPF_CREDIT && w->credits == 0 && w->inflight > 0),
		  "worker %u sleeps, but has ops that it could submit", i);
	sim_check(!w->searching, "worker %u sleeps, but says that it searches", i);
}

static void park(struct sim_worker *sw)
{
	uint64_t begun_ns = sim.now_ns, timeout_ns;

	if (!mrt__worker_park_begin(sw->w, &timeout_ns))
		return;
	/* a wait without a time-out is a flush */
	if (timeout_ns > 0 ? sim_ring_wait_begin(sw->w->ring) : (mrt__ring_flush(sw->w->ring), false)) {
		sw->parked = true;
		sw->until_ns = mrt__clock_add(sim.now_ns, timeout_ns);
		sw->slip_ns = sim.now_ns - begun_ns;
		sim_log("sleeps, timeout %" PRId64, (int64_t)timeout_ns);
		check_sleeper(sw->w);
		return;
	}
	mrt__worker_park_end(sw->w);
}

static void run_worker(struct sim_worker *sw)
{
	struct mrt__worker *before = mrt__worker_self;

	mrt__worker_self = sw->w;
	sw->busy = true;
	if (sw->parked) {
		sim_log("wakes up");
		sw->parked = false;
		sim_ring_wait_end(sw->w->ring);
		mrt__worker_park_end(sw->w);
	} else {
		switch (mrt__worker_tick(sw->w)) {
		case MRT__TICK_RAN:
			break;
		case MRT__TICK_PARK:
			park(sw);
			break;
		case MRT__TICK_STOP:
			sim_log("stops");
			(void)mrt__worker_drain(sw->w);
			sw->stopped = true;
			break;
		}
	}
	sw->busy = false;
	mrt__worker_self = before;
}

static bool run_pool(void)
{
	struct mrt__worker *before = mrt__worker_self;
	bool ran;

	mrt__worker_self = NULL;
	ran = mrt__pool_run_one(sim.sched->pool);
	mrt__worker_self = before;
	return ran;
}

/* Would it do anything if it got the CPU now? */
static bool can_run(const struct sim_worker *sw)
{
	if (sw->busy || sw->stopped)
		return false;
	return !sw->parked || sim.now_ns >= sw->until_ns || sim_ring_can_wake(sw->w->ring);
}

static unsigned pick_runnable(struct sim_worker **ret_sw)
{
	struct sim_worker *able[SIM_WORKERS_MAX], *frozen = NULL;
	unsigned nr = 0, i;

	for (i = 0; i < sim.opts.workers_nr; i++) {
		struct sim_worker *sw = &sim.workers[i];

		if (sw->parked && !sw->busy && sim_chance(sim.opts.spurious)) {
			*ret_sw = sw; /* a signal */
			return 1;
		}
		if (!can_run(sw))
			continue;
		if (sw->frozen_until_step > sim.steps)
			frozen = sw;
		else
			able[nr++] = sw;
	}
	if (nr == 0 && frozen && sim.depth == 0) {
		able[nr++] = frozen;
		frozen->frozen_until_step = 0;
	}
	if (nr > 0)
		*ret_sw = able[sim_below(nr)];
	return nr;
}

/* Somebody outside wakes a worker, with or without a reason. */
static void disturb(void)
{
	struct mrt__worker *w = sim.workers[sim_below(sim.opts.workers_nr)].w, *before = mrt__worker_self;

	mrt__worker_self = NULL;
	if (sim_chance(300))
		atomic_store_explicit(&w->report, true, memory_order_release);
	mrt__sched_wake(w);
	mrt__worker_self = before;
}

bool sim_step(void)
{
	struct mrt__pool_stats pool;
	struct sim_worker *sw;

	sim_check(++sim.steps <= sim.steps_max, "no end is in sight");
	sim.now_ns += sim_below(sim.opts.tick_ns_max + 1);
	sim_kernel_run();
	if (sim_chance(sim.opts.spurious))
		disturb();
	mrt__pool_stats_get(sim.sched->pool, &pool);
	if (pool.queued > 0 && sim_chance(300))
		return run_pool();
	if (pick_runnable(&sw) == 0)
		return pool.queued > 0 && run_pool();
	run_worker(sw);
	if (sim_chance(sim.opts.freeze))
		sw->frozen_until_step = sim.steps + sim_below(FREEZE_STEPS_MAX);
	return true;
}

static bool is_locked(pthread_mutex_t *lock)
{
	if (pthread_mutex_trylock(lock))
		return true;
	pthread_mutex_unlock(lock);
	return false;
}

/* Is a lock held that a nested step might want? A real thread would wait for it. */
static bool has_locked(struct mrt__sched *s)
{
	unsigned i;

	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++)
		if (is_locked(&s->outside[i].lock))
			return true;
	if (!sim.registering && (is_locked(&s->arena->growth) || is_locked(&s->arena->table)))
		return true;
	return is_locked(&s->files->lock);
}

void sim_preempt(void)
{
	unsigned left;

	if (!mrt__worker_self || --sim.preempt_left > 0)
		return;
	if (has_locked(sim.sched)) {
		sim.preempt_left = 1;
		return;
	}
	sim.preempt_left = draw_preemption();
	sim.depth++;
	for (left = 1 + (unsigned)sim_below(NESTED_STEPS_MAX); left > 0 && sim_step(); left--)
		continue;
	sim.depth--;
}

void sim_preempt_registering(void)
{
	if (sim.registering)
		return;
	sim.registering = true;
	if (sim.opts.preempt)
		sim.preempt_left = 1; /* it takes long, and is rare */
	sim_preempt();
	sim.registering = false;
}

/* ---- when nobody can run ---- */

static uint64_t next_event(void)
{
	uint64_t next = sim_kernel_next();
	unsigned i;

	for (i = 0; i < sim.opts.workers_nr; i++)
		if (sim.workers[i].parked && !sim.workers[i].busy)
			next = mrt__min(next, sim.workers[i].until_ns);
	return next;
}

void sim_stuck(uint64_t ns)
{
	uint64_t until_ns = sim.now_ns + ns;

	sim_log("its poll takes %" PRIu64 " us", ns / 1000);
	sim.depth++;
	while (sim.now_ns < until_ns) {
		if (!sim_step())
			sim.now_ns = mrt__max(sim.now_ns, mrt__min(until_ns, next_event()));
	}
	sim.depth--;
	sim_log("its poll goes on");
}

/* A worker sleeps, and so do all others: there must be nothing that it could do. */
static void check_quiet(const struct mrt__worker *w)
{
	unsigned i = w->index;

	check_sleeper(w);
	sim_check(!mrt__runq_has_work(&w->runq), "all sleep, but worker %u has tasks in its queue", i);
	sim_check(!atomic_load(&w->inbox), "all sleep, but worker %u has tasks in its inbox", i);
	sim_check(!atomic_load(&w->mailbox), "all sleep, but worker %u has messages", i);
	sim_check(!sim.closing || w->heap_aborted, "all sleep, but worker %u has not seen the close", i);
}

/* Who parks has published its share, and that of threads outside if it took anything of theirs. */
static void check_sums(void)
{
	const struct mrt_global_stats *g = sim.sched->stats_mem.global;

	sim_check((uint64_t)g->tasks_alive == mrt__sched_tasks_alive(sim.sched), "all sleep, with %" PRIu64 " tasks, and mrt_global has %"
		  PRId64, mrt__sched_tasks_alive(sim.sched), g->tasks_alive);
	sim_check(g->remote_wakes == mrt__sched_remote_wakes(sim.sched), "all sleep, after %" PRIu64 " wakes from outside, and "
		  "mrt_global has %" PRIu64, mrt__sched_remote_wakes(sim.sched), g->remote_wakes);
}

static void check_asleep(uint64_t next_ns)
{
	unsigned i;

	if (!sim.closing)
		check_sums();
	sim_check(mrt__inject_len(&sim.sched->inject) == 0, "all sleep, but tasks are in the inject queue");
	sim_check(mrt__idle_searching_nr(&sim.sched->idle) == 0, "all sleep, but %u count as searching",
		  mrt__idle_searching_nr(&sim.sched->idle));
	sim_check(mrt__idle_check(&sim.sched->idle, stderr), "the books of who sleeps are wrong");
	sim_check(!sim_op_left_waiting(), "all sleep, but op #%" PRIu64 " waits by a handle that was closed", sim_op_left_waiting());
	for (i = 0; i < sim.opts.workers_nr; i++) {
		const struct sim_worker *sw = &sim.workers[i];
		uint64_t due_ns = mrt__wheel_next(&sw->w->wheel);

		if (sw->stopped)
			continue;
		check_quiet(sw->w);
		sim_check(due_ns == UINT64_MAX || next_ns <= due_ns + sw->slip_ns + sim.sched->timer_slack_ns,
			  "all sleep until %" PRIu64 ", but a timer of worker %u is due at %" PRIu64, next_ns, i, due_ns);
	}
}

bool sim_advance(void)
{
	uint64_t next_ns = next_event();

	sim.quiet_nr++;
	check_asleep(next_ns);
	if (sim.on_quiet)
		sim.on_quiet();
	if (next_ns == SIM_NEVER)
		return false;
	sim.now_ns = mrt__max(sim.now_ns, next_ns);
	return true;
}

/* ---- running ---- */

static bool all_stopped(void)
{
	unsigned i;

	for (i = 0; i < sim.opts.workers_nr; i++)
		if (!sim.workers[i].stopped)
			return false;
	return true;
}

static void complain_alive(void)
{
	unsigned i;

	for (i = 0; i < sim.opts.workers_nr; i++) {
		sim.verbose = true;
		atomic_store(&sim.workers[i].w->report, true);
		mrt__sched_wake(sim.workers[i].w);
	}
	for (i = 0; i < 1000 && sim_step(); i++)
		continue;
	fflush(stdout);
	sim_fail("%" PRIu64 " tasks wait for something that never comes", mrt__sched_tasks_alive(sim.sched));
}

void sim_run_to_idle(void)
{
	while (sim_step() || sim_advance())
		continue;
	if (mrt__sched_tasks_alive(sim.sched) > 0)
		complain_alive();
}

bool sim_run_steps(uint64_t steps)
{
	while (steps-- > 0)
		if (!sim_step() && !sim_advance())
			return false;
	return true;
}

void sim_close(void)
{
	sim_log("the runtime closes, %" PRIu64 " tasks alive", mrt__sched_tasks_alive(sim.sched));
	sim.closing = true;
	mrt__sched_close(sim.sched);
	mrt__files_close(sim.sched->files);
	mrt__pool_shutdown(sim.sched->pool);
	while (!all_stopped())
		if (!sim_step() && !sim_advance())
			complain_alive();
}

/* ---- the end ---- */

static void check_worker_end(struct mrt__worker *w)
{
	const uint32_t credits = sim.opts.cq_entries - (sim.opts.cq_entries >> 3);
	unsigned i = w->index;

	sim_check(w->inflight == 0, "worker %u ends with %u ops in flight", i, w->inflight);
	sim_check(w->credits == credits, "worker %u ends with %u of %u credits", i, w->credits, credits);
	sim_check(!w->queued_head && w->queued_nr == 0, "worker %u ends with queued ops", i);
	sim_check(!w->yielded_head && w->yielded_nr == 0, "worker %u ends with yielded tasks", i);
	sim_check(!mrt__runq_has_work(&w->runq) && !mrt__runq_has_next(&w->runq), "worker %u ends with tasks", i);
	sim_check(!atomic_load(&w->inbox) && !atomic_load(&w->mailbox), "worker %u ends with messages", i);
	sim_check(mrt__wheel_nr(&w->wheel) == 0, "worker %u ends with timers", i);
	sim_check(w->cancels.nr == 0 && w->cancels.sent_nr == 0 && w->cancels.files_nr == 0,
		  "worker %u ends with %u cancels of ops that have ended", i,
		  w->cancels.nr);
	sim_check(mrt__wheel_check(&w->wheel, stderr), "worker %u: its wheel is broken", i);
	sim_check(!w->task, "worker %u ends inside a task", i);
	sim_check(w->heap.away_nr == 0, "worker %u ends with cells of another heap", i);
	sim_check(mrt__heap_live(&w->heap) == 0, "worker %u: %" PRIu64 " cells were not freed", i,
		  mrt__heap_live(&w->heap));
}

/* What waited for its ops is given back by later calls. */
static void check_arena_end(struct mrt__arena *a)
{
	unsigned turns, i;
	uint64_t u;
	void *p;

	for (turns = 0; turns < 1000 && a->waiting_nr > 0 && !mrt_alloc((struct mrt_runtime *)(void *)sim.sched, 1, 0, &p); turns++)
		mrt_free((struct mrt_runtime *)(void *)sim.sched, p);
	sim_check(mrt__arena_check(a, stderr), "the arena's books are wrong");
	sim_check(a->waiting_nr == 0, "%u freed blocks wait for ops that have ended", a->waiting_nr);
	sim_check(a->allocated_units == 0, "%" PRIu64 " units were not given back", a->allocated_units);
	for (i = 0; i < sim.opts.workers_nr; i++)
		for (u = 0; u < a->span / MRT__ARENA_UNIT; u++)
			sim_check(sim.workers[i].w->arena.use[u] == 0, "worker %u ends with ops on unit %" PRIu64 " of the arena", i, u);
}

/* What workers know of files; after the last op only of such as are open. */
static void check_files_end(struct mrt__files *files)
{
	unsigned i, slot;

	sim_check(!files->closing, "a file's close has not ended");
	for (i = 0; i < sim.opts.workers_nr; i++)
		for (slot = 0; slot < SIM_FILES_MAX; slot++) {
			const struct mrt__file_use *u = &sim.workers[i].w->file_use[slot];

			sim_check(u->inflight == 0 && !u->closing && !u->cancel_due, "worker %u ends with %u ops on slot %u%s", i,
				  u->inflight, slot, u->closing ? ", which closes" : "");
			sim_check(u->handle == 0 || u->handle == atomic_load(&files->slots[slot].handle),
				  "worker %u ends with a stale handle in slot %u", i, slot);
		}
}

void sim_finish(void)
{
	struct mrt__sched *s = sim.sched;
	uint32_t running;
	unsigned i;

	sim_check(mrt__sched_tasks_alive(s) == 0, "tasks are alive after the close");
	sim_check(mrt__inject_len(&s->inject) == 0, "tasks are in the inject queue after the close");
	for (i = 0; i < s->workers_nr; i++)
		check_worker_end(s->workers[i]);
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++)
		sim_check(mrt__heap_live(&s->outside[i].heap) == 0, "cells of an outside heap were not freed");
	check_arena_end(s->arena);
	check_files_end(s->files);
	sim_ledger_finish();
	sim_kernel_finish();
	sim_check(!mrt__pool_join_wait(s->pool, 0, &running), "a pool without threads has one");
	mrt__pool_destroy(s->pool);
	for (i = 0; i < s->workers_nr; i++) {
		mrt__worker_destroy(s->workers[i]);
		mrt__ring_destroy(sim.rings[i]);
	}
	mrt__files_destroy(s->files);
	sim_fds_check();
	mrt__arena_destroy(s->arena);
	sim_donors_check();
	for (i = 0; i < MRT__OUTSIDE_HEAPS_NR; i++) {
		mrt__heap_fini(&s->outside[i].heap);
		pthread_mutex_destroy(&s->outside[i].lock);
	}
	mrt__idle_fini(&s->idle);
	mrt__stats_destroy(&s->stats_mem);
	free(s->workers);
	free(s);
	sim.sched = NULL;
}

/* ---- programs ---- */

static void run_seed(uint64_t seed, bool verbose)
{
	(void)snprintf(replay, sizeof(replay), "sim: replay with: scripts/sim %" PRIu64 " %s\n", seed, program->name);
	(void)alarm(verbose ? 0 : SEED_SECONDS_MAX);
	memset(&sim, 0, sizeof(sim));
	sim.seed = seed;
	sim.verbose = verbose;
	sim.rand.state = seed;
	sim.ring_rand.state = ~seed;
	sim.steps_max = STEPS_MAX;
	sim.now_ns = 1000000000 + sim_below(1000000000);
	sim.preempt_left = UINT64_MAX;
	sim_kernel_start();
	sim_fds_start();
	sim_ledger_start();
	sim_opts_draw(&sim.opts);
	program->run();
	(void)alarm(0);
}

static double seconds_now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail with this clock */
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static uint64_t number_of(const char *name, const char *text)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || *end || end == text) {
		fprintf(stderr, "%s: %s is '%s', which is no number\n", program_path, name, text);
		exit(2);
	}
	return value;
}

static uint64_t number_from_env(const char *name, uint64_t value)
{
	const char *text = getenv(name);

	return text && *text ? number_of(name, text) : value;
}

static void run_many(uint64_t seeds_max)
{
	uint64_t first = number_from_env("MRT_SIM_FIRST", 1), seed = first, steps = 0;
	double begun = seconds_now(), limit = (double)number_from_env("MRT_SIM_SECONDS", SECONDS_DEFAULT);

	do {
		run_seed(seed++, false);
		steps += sim.steps;
	} while (seeds_max ? seed - first < seeds_max : seconds_now() - begun < limit);
	printf("%s: %" PRIu64 " seeds, from %" PRIu64 " on, %" PRIu64 " steps, %.1f s\n", program->name, seed - first,
	       first, steps, seconds_now() - begun);
}

int sim_main(int argc, char **argv, const struct sim_program *prog)
{
	uint64_t seed = 0, seeds = 0;
	bool verbose = false, one = false;
	int i;

	program = prog;
	program_path = argv[0];
	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose")) {
			verbose = true;
		} else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
			seed = number_of("--seed", argv[++i]);
			one = true;
		} else if (!strcmp(argv[i], "--seeds") && i + 1 < argc) {
			seeds = number_of("--seeds", argv[++i]);
		} else {
			fprintf(stderr, "usage: %s [--seed N [--verbose] | --seeds N]\n", argv[0]);
			return 2;
		}
	}
	catch_deaths();
	(void)signal(SIGABRT, on_signal);
	(void)signal(SIGALRM, on_signal);
	if (one) {
		if (verbose)
			(void)setvbuf(stdout, NULL, _IOLBF, 0); /* so that the log is whole when the process dies */
		run_seed(seed, verbose);
		printf("%s: seed %" PRIu64 " is fine: %" PRIu64 " steps, %" PRIu64 " times all slept\n", prog->name, seed,
		       sim.steps, sim.quiet_nr);
	} else {
		run_many(seeds);
	}
	return 0;
}
