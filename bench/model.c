/* SPDX-License-Identifier: MIT */
/*
 * A model of the scheduler on more cores than there are here: a discrete-event simulation of its rules, with the costs of its
 * primitives as parameters. It tells where workers wait for each other, not how fast a machine is.
 *
 *	model LOAD CORES [name=value ...]      prints one line of name=value; `model` alone prints the parameters
 *
 *	fork      a root for each `per_root` cores spawns bursts of `burst` tasks and joins them in order
 *	inject    a thread outside for each `per_injector` cores spawns tasks as fast as it can
 *	uniform   `tasks` tasks a core, each starts an I/O, waits, computes; placed evenly
 *	skewed    the same, all spawned on the first core
 *
 * The rules are those of src/sched: next slot and three polls from it, 256 slots, overflow of 129 to inject, a look at inject
 * and a ring turn every 61 ticks, batches from inject of length / workers + 1, half-steals of at most 128 from a random start,
 * the inject queue and then next slots of those in a poll as the last passes, at most half of the workers searching, one wake
 * if nobody searches, the last searcher that finds work looks at all queues and wakes one more, completions come to the worker
 * whose ring has them. Left out: the sentry, timers, budgets, yields, credits, self-tuning.
 *
 * Inject is two lists with a lock each: a push takes that of `in`; a pop takes that of `out`, in it shortly that of `in`, and
 * walks its batch when `in` is free again. A spawn from outside has a heap's lock, which a few threads share, a cell that
 * another core had last, the runtime's statistics, `in`, the idle word, and a count of its heap. Who ends such a task keeps
 * the cell, and sends cells of one heap back together.
 *
 * What costs: a line that another core wrote last (`line`), and waits for whoever is at the same line or lock; a system call
 * into the ring (`enter`), a wake (`write` for who wakes, `wake` until the other runs). Every core is as far from every other.
 * Steps (a victim looked at, a task spawned) are events; what a step does, it does at its beginning, but it has a line or a lock
 * only from the time on at which it comes to it: until then others may.
 *
 * What is tried beside the rules as they are: notify_load=1 (a publisher reads the idle word, after a fence, instead of adding 0),
 * shards=N (as many inject queues), searchers=N (at most so many at once; 0: half of the workers), depth=0 (inject's length is not
 * published: one line less under its lock).
 */
#include "machine.h"

#define CORES_MAX 1024
#define SLOTS 256
#define INTERVAL 61
#define BATCH_MAX 128
#define NEXT_POLLS_MAX 3
#define STAGED_MAX 128          /* are worth an enter of their own */
#define WORDS (CORES_MAX / 64 * 2)
#define OUTSIDE_HEAPS 8         /* threads outside share them */
#define AWAY_MAX 32             /* cells of another heap that go back together */

static void *grow(void *p, size_t bytes)
{
	p = realloc(p, bytes);
	if (!p)
		bench_die("model: no memory for %zu bytes", bytes);
	return p;
}

/* ---- parameters; times in ns ---- */

static struct params {
	double line, rmw, fence, enter, sqe, reap, write, wake, spawn, spawn_out, poll, tick, work, io;
	double burst, per_root, per_injector, tasks, ops, seed, notify_load, shards, searchers, depth;
} par = {
	.line = 60, .rmw = 6, .fence = 8, .enter = 250, .sqe = 150, .reap = 15, .write = 700, .wake = 5000, .spawn = 60,
	.spawn_out = 120, .poll = 40, .tick = 8, .work = 5000, .io = 80000, .burst = 64, .per_root = 8, .per_injector = 16,
	.tasks = 64, .ops = 2000, .seed = 1, .notify_load = 0, .shards = 1, .searchers = 0, .depth = 1,
};

static const struct {
	const char *name, *what;
	double *value;
} names[] = {
#define PAR(name, what) { #name, what, &par.name }
	PAR(line, "a line that another core wrote last"), PAR(rmw, "a read-modify-write of an own line"), PAR(fence, "a full fence"),
	PAR(enter, "io_uring_enter"), PAR(sqe, "the kernel's part of an op"), PAR(reap, "a completion, until its task is queued"),
	PAR(write, "waking a worker, for the waker"), PAR(wake, "from there until it runs"), PAR(spawn, "a spawn by a task"),
	PAR(spawn_out, "a spawn by a thread outside that meets nobody"), PAR(poll, "around a poll"), PAR(tick, "around a tick"),
	PAR(work, "what a task computes"), PAR(io, "time of an I/O; 0: it ends in the system call"),
	PAR(burst, "fork: tasks of a burst"), PAR(per_root, "fork: cores for each root"),
	PAR(per_injector, "inject: cores for each thread outside"), PAR(tasks, "uniform, skewed: tasks for each core"),
	PAR(ops, "tasks (fork, inject) or I/Os run, for each core"), PAR(seed, "of the victims"),
	PAR(notify_load, "1: a publisher reads the idle word"), PAR(shards, "inject queues"),
	PAR(searchers, "at most; 0: half of the workers"), PAR(depth, "0: inject's length is not published"),
#undef PAR
};
#define PARS_NR (sizeof(names) / sizeof(names[0]))

static unsigned cores, outside_nr;
static enum load { LOAD_FORK, LOAD_INJECT, LOAD_UNIFORM, LOAD_SKEWED } load;

/* ---- lines and locks ---- */

enum place { AT_IDLE, AT_INJECT, AT_QUEUES, AT_HEAPS, PLACES_NR };

struct span {
	double from, until;
};

struct line {
	struct span *busy;      /* [busy_nr] in order and apart: when it is on its way, or a lock in it is held */
	unsigned busy_nr, busy_max;
	int writer;
	enum place place;
	uint64_t seen[WORDS];   /* who has a copy */
};

static double now;              /* of the event; nothing is asked about the time before */
static double waited[PLACES_NR], moved[PLACES_NR]; /* of workers */

/* @return from when on, after t, nobody else has the line for so long */
static double first_gap(struct line *l, double t, double ns)
{
	unsigned over = 0;

	while (over < l->busy_nr && l->busy[over].until <= now)
		over++;
	l->busy_nr -= over;
	memmove(l->busy, l->busy + over, l->busy_nr * sizeof(*l->busy));
	for (unsigned i = 0; i < l->busy_nr && l->busy[i].from < t + ns; i++)
		t = l->busy[i].until > t ? l->busy[i].until : t;
	return t;
}

/* It may meet others: a lock's holder does not know beforehand for how long it has to wait inside. */
static void occupy(struct line *l, double from, double until)
{
	unsigned i = 0, end;

	while (i < l->busy_nr && l->busy[i].until < from)
		i++;
	for (end = i; end < l->busy_nr && l->busy[end].from <= until; end++) {
		from = l->busy[end].from < from ? l->busy[end].from : from;
		until = l->busy[end].until > until ? l->busy[end].until : until;
	}
	if (end == i && l->busy_nr == l->busy_max) {
		l->busy_max = l->busy_max ? 2 * l->busy_max : 8;
		l->busy = grow(l->busy, l->busy_max * sizeof(*l->busy));
	}
	memmove(l->busy + i + 1, l->busy + end, (l->busy_nr - end) * sizeof(*l->busy));
	l->busy_nr = l->busy_nr + 1 - (end - i);
	l->busy[i] = (struct span){ from, until };
}

static int has_copy(const struct line *l, int who)
{
	return l->seen[who / 64] >> (who % 64) & 1;
}

/* Nobody else wrote it, or has a copy. */
static int is_own(const struct line *l, int who)
{
	int others = l->writer != who;

	for (int i = 0; !others && i < WORDS; i++)
		others = (l->seen[i] & ~(i == who / 64 ? UINT64_C(1) << who % 64 : 0)) != 0;
	return !others;
}

static void make_own(struct line *l, int who)
{
	memset(l->seen, 0, sizeof(l->seen));
	l->writer = who;
	l->seen[who / 64] |= UINT64_C(1) << who % 64;
}

/* How many lines went to it, and how long it waited for others. */
static void account(const struct line *l, int who, double lines, double wait)
{
	if (who >= (int)cores)
		return; /* a thread outside is on no core of ours */
	moved[l->place] += lines;
	waited[l->place] += wait;
}

/* @return what it takes */
static double write_line(struct line *l, int who, double t)
{
	double from;

	if (is_own(l, who))
		return par.rmw;
	from = first_gap(l, t, par.line);
	account(l, who, 1, from - t);
	occupy(l, from, from + par.line);
	make_own(l, who);
	return from - t + par.line;
}

static double read_line(struct line *l, int who, double t)
{
	double from;

	if (has_copy(l, who))
		return 0;
	from = first_gap(l, t, 0);
	account(l, who, 1, from - t);
	l->seen[who / 64] |= UINT64_C(1) << who % 64;
	return from - t + par.line;
}

/*
 * The lock is in the line: whoever comes meanwhile waits until it is free again.
 *
 * @param least  it is held for no less
 * @param ret_from  for unlock_line()
 * @return what it takes to have it
 */
static double lock_line(struct line *l, int who, double t, double least, double *ret_from)
{
	int own = is_own(l, who);
	double cost = own ? par.rmw : par.line;

	*ret_from = first_gap(l, t, cost + least);
	account(l, who, !own, *ret_from - t);
	make_own(l, who);
	return *ret_from - t + cost;
}

static void unlock_line(struct line *l, double from, double t)
{
	occupy(l, from, t);
}

/* With nothing in the section that has to wait. */
static double pass_lock(struct line *l, int who, double t, double section)
{
	double from, cost = lock_line(l, who, t, section, &from) + section;

	unlock_line(l, from, t + cost);
	return cost;
}

/* ---- tasks, queues, workers ---- */

enum kind { LEAF, ROOT, IO };

struct task {
	enum kind kind;
	int core;               /* that polled it last */
	int step, waits_for;    /* ROOT: the child that it joins; -1: it does not wait */
	int child, done;        /* LEAF: number in its burst; has ended */
	int heap;               /* LEAF: of the outside heaps; -1: of a worker, who frees it after its join */
	struct task *parent, **kids, *next;
	double ready;
};

struct list {
	struct task *head, *tail;
	uint64_t nr;
};

static void list_push(struct list *l, struct task *t)
{
	t->next = NULL;
	if (l->tail)
		l->tail->next = t;
	else
		l->head = t;
	l->tail = t;
	l->nr++;
}

static struct task *list_pop(struct list *l)
{
	struct task *t = l->head;

	if (!t)
		return NULL;
	l->head = t->next;
	if (!l->head)
		l->tail = NULL;
	l->nr--;
	return t;
}

enum phase { TICK, TASK, SEARCH, SEARCH_SLOTS, PARKED };

static struct worker {
	enum phase phase;
	struct task *slot[SLOTS];
	unsigned head, tail;    /* free running */
	struct line queue;      /* head, tail and next slot: one */
	struct task *next, *cur;
	int next_polls, next_enabled, searching, picked;
	int inject_left, event_left;
	unsigned first, visited;
	struct list staged, done;
	int deferred;           /* completions that an enter makes visible */
	int away_of, away_nr;   /* cells of that outside heap, not sent back yet */
	double useful, ran;
} *workers;

static struct line idle_word, idle_lock;
static unsigned searching, unparked, sleepers_nr;
static int sleepers[CORES_MAX];

static struct shard {
	struct line in, out;    /* the two lists' locks, heads and numbers */
	struct line depth;      /* the length for those who look from outside */
	struct list list;       /* both, one behind the other */
	uint64_t in_nr;         /* of these in `in` */
	int pusher;             /* who wrote the last one's link */
} *shards;
static unsigned shards_nr;

static struct line spawns_stat; /* spawns from outside */

static struct outside {
	struct line heap;       /* its lock and what it guards */
	struct line back;       /* cells that workers sent back */
	struct line done;
	double free_nr, back_nr; /* cells */
} outside[OUTSIDE_HEAPS];

static struct {
	double polls, ops, steals, thefts, searches, looks, parks, wakes, injects, overflows, notifies, outs, outs_ns;
} nr;

static double *waits;           /* of runnable tasks, a sample */
static size_t waits_nr, waits_max, wait_skip;

static uint64_t rand_state;

static unsigned rand_below(unsigned n)
{
	uint64_t z = rand_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (unsigned)((z ^ z >> 31) % n);
}

/* ---- events ---- */

enum what { STEP, WAKE, COMPLETE, INJECT };

static struct event {
	double t;
	uint64_t nr;            /* of equal times the older one */
	enum what what;
	int who;
	struct task *task;
} *heap;
static size_t heap_nr, heap_max;
static uint64_t events_nr;

static int is_before(const struct event *a, const struct event *b)
{
	return a->t < b->t || (a->t <= b->t && a->nr < b->nr);
}

static void at(double t, enum what what, int who, struct task *task)
{
	struct event e = { t, events_nr++, what, who, task };
	size_t i = heap_nr++;

	if (heap_nr > heap_max) {
		heap_max = heap_max ? 2 * heap_max : 1024;
		heap = grow(heap, heap_max * sizeof(*heap));
	}
	for (; i > 0 && is_before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = e;
}

static struct event next_event(void)
{
	struct event top = heap[0], last = heap[--heap_nr];
	size_t i = 0, kid;

	while ((kid = 2 * i + 1) < heap_nr) {
		kid += kid + 1 < heap_nr && is_before(&heap[kid + 1], &heap[kid]);
		if (!is_before(&heap[kid], &last))
			break;
		heap[i] = heap[kid];
		i = kid;
	}
	heap[i] = last;
	return top;
}

/* ---- idle ---- */

static double wake(int who, double t)
{
	nr.wakes++;
	at(t + par.write + par.wake, WAKE, who, NULL);
	return par.write;
}

/* Work was published. */
static double notify(int who, double t)
{
	double cost = par.notify_load > 0 ? par.fence + read_line(&idle_word, who, t) : write_line(&idle_word, who, t);
	int sleeper;

	nr.notifies++;
	if (searching > 0 || unparked >= cores)
		return cost;
	cost += pass_lock(&idle_lock, who, t + cost, par.rmw);
	cost += write_line(&idle_word, who, t + cost);
	sleeper = sleepers[--sleepers_nr];
	unparked++;
	searching++;
	workers[sleeper].picked = 1;
	return cost + wake(sleeper, t + cost);
}

static double read_inject_nr(struct shard *s, int who, double t)
{
	double cost = read_line(&s->in, who, t);

	return cost + read_line(&s->out, who, t + cost);
}

static unsigned queue_nr(const struct worker *w)
{
	return w->tail - w->head;
}

/* @param ret_found  work is somewhere @return what the look takes */
static double look_everywhere(int who, double t, int *ret_found)
{
	double cost = 0;

	*ret_found = 0;
	for (unsigned i = 0; i < shards_nr && !*ret_found; i++) {
		cost += read_inject_nr(&shards[i], who, t + cost);
		*ret_found = shards[i].list.nr > 0;
	}
	for (unsigned i = 0; i < cores && !*ret_found; i++) {
		cost += read_line(&workers[i].queue, who, t + cost);
		*ret_found = queue_nr(&workers[i]) > 0;
	}
	return cost;
}

static double leave_search(int who, double t)
{
	double cost = write_line(&idle_word, who, t);
	int found = 0;

	workers[who].searching = 0;
	if (--searching == 0) {
		cost += look_everywhere(who, t + cost, &found);
		if (found)
			cost += notify(who, t + cost);
	}
	return cost;
}

static double park(int who, double t)
{
	struct worker *w = &workers[who];
	double cost = pass_lock(&idle_lock, who, t, par.rmw);
	int last = w->searching && searching == 1, found = 0;

	nr.parks++;
	cost += write_line(&idle_word, who, t + cost);
	searching -= (unsigned)w->searching;
	unparked--;
	w->searching = 0;
	sleepers[sleepers_nr++] = who;
	w->phase = PARKED;
	if (last) {
		cost += look_everywhere(who, t + cost, &found);
		if (found)
			cost += notify(who, t + cost);
	}
	if (w->deferred > 0) /* came meanwhile: it does not sleep */
		at(t + cost + par.enter, WAKE, who, NULL);
	return cost;
}

/* ---- queues ---- */

/*
 * Under the lock of `in`: a task's link, and the length, which is published. These come side by side, as none waits for another.
 *
 * @param link  the task was another's
 */
static double inject_link(struct shard *s, int who, int link, double t)
{
	double cost = link ? par.line : par.rmw, len, stat;

	if (par.depth <= 0)
		return cost;
	len = read_line(&s->out, who, t);
	stat = write_line(&s->depth, who, t);
	cost = len > cost ? len : cost;
	return stat > cost ? stat : cost;
}

static double inject_push(int who, unsigned shard, struct list *tasks, double t)
{
	struct shard *s = &shards[shard];
	double cost, from, n = (double)tasks->nr;
	struct task *task;

	cost = n * par.tick; /* the chain */
	cost += lock_line(&s->in, who, t + cost, par.line, &from);
	cost += inject_link(s, who, s->in_nr > 0 && s->pusher != who, t + cost);
	unlock_line(&s->in, from, t + cost);
	while ((task = list_pop(tasks)))
		list_push(&s->list, task);
	s->in_nr += (uint64_t)n;
	s->pusher = who;
	return cost;
}

/* What has come goes behind what is there. Under the lock of `out`. */
static double inject_fetch(struct shard *s, int who, double t)
{
	double from, cost = lock_line(&s->in, who, t, par.line, &from);

	cost += inject_link(s, who, s->in_nr > 0 && s->list.nr > s->in_nr, t + cost);
	unlock_line(&s->in, from, t + cost);
	s->in_nr = 0;
	return cost;
}

/* From its own shard; failing that from the others. @return what it takes */
static double inject_pop(int who, double t, uint64_t max, struct list *ret)
{
	double cost = 0, from, walk;
	struct task *task;

	for (unsigned i = 0; i < shards_nr && ret->nr == 0; i++) {
		struct shard *s = &shards[((unsigned)who + i) % shards_nr];
		uint64_t n = s->list.nr / ((cores + shards_nr - 1) / shards_nr) + 1;

		cost += read_inject_nr(s, who, t + cost);
		if (s->list.nr == 0)
			continue;
		n = n < max ? n : max;
		n = n < s->list.nr ? n : s->list.nr;
		walk = (double)n * par.line / 2; /* somebody else wrote the tasks' own lines */
		cost += lock_line(&s->out, who, t + cost, 2 * par.line + walk, &from);
		cost += inject_fetch(s, who, t + cost) + walk;
		unlock_line(&s->out, from, t + cost);
		while (n-- > 0 && (task = list_pop(&s->list)))
			list_push(ret, task);
	}
	nr.injects += (double)ret->nr;
	return cost;
}

static double push(int who, struct task *task, double t)
{
	struct worker *w = &workers[who];
	struct list out = { 0 };
	double cost;

	if (queue_nr(w) < SLOTS) {
		w->slot[w->tail++ % SLOTS] = task;
		return write_line(&w->queue, who, t) - par.rmw + 1; /* a store, where nobody has looked */
	}
	nr.overflows++;
	for (int i = 0; i < SLOTS / 2; i++)
		list_push(&out, w->slot[(w->head + SLOTS / 2 + (unsigned)i) % SLOTS]);
	list_push(&out, task);
	w->tail -= SLOTS / 2;
	cost = write_line(&w->queue, who, t);
	cost += inject_push(who, (unsigned)who % shards_nr, &out, t + cost);
	return cost + notify(who, t + cost);
}

/* A task makes one runnable. */
static double schedule(int who, struct task *task, double t)
{
	struct worker *w = &workers[who];
	double cost = par.rmw;
	struct task *old = task;

	task->ready = t;
	if (w->next_enabled) {
		old = w->next;
		w->next = task;
		if (!old)
			return cost;
	}
	cost += push(who, old, t + cost);
	return cores > 1 ? cost + notify(who, t + cost) : cost;
}

/* ---- cells of threads outside ---- */

/* @return what it takes to have a cell whose header is here */
static double take_cell(struct outside *out, int who, double t)
{
	double cost = 0;

	if (out->free_nr <= 0 && out->back_nr > 0) {
		cost = write_line(&out->back, who, t);
		out->free_nr = out->back_nr;
		out->back_nr = 0;
	}
	if (out->free_nr <= 0)
		return cost; /* one that was never used */
	out->free_nr--;
	return cost + par.line;
}

static double send_back(int who, double t)
{
	struct worker *w = &workers[who];
	double cost;

	if (w->away_nr == 0)
		return 0;
	cost = write_line(&outside[w->away_of].back, who, t);
	outside[w->away_of].back_nr += w->away_nr;
	w->away_nr = 0;
	return cost;
}

static double free_cell(int who, int of, double t)
{
	struct worker *w = &workers[who];
	double cost = 0;

	if (w->away_of != of)
		cost = send_back(who, t);
	w->away_of = of;
	if (++w->away_nr >= AWAY_MAX)
		cost += send_back(who, t + cost);
	return cost;
}

/* ---- the ring ---- */

static double flush(int who, double t)
{
	struct worker *w = &workers[who];
	double cost;
	struct task *task;

	if (w->staged.nr == 0 && w->deferred == 0)
		return 0;
	cost = par.enter + (double)w->staged.nr * par.sqe;
	w->deferred = 0;
	while ((task = list_pop(&w->staged))) {
		if (par.io > 0)
			at(t + cost + par.io, COMPLETE, who, task);
		else
			list_push(&w->done, task);
	}
	return cost;
}

static double turn(int who, double t, unsigned *ret_made)
{
	struct worker *w = &workers[who];
	double cost = flush(who, t);
	struct list got = { 0 };
	unsigned made = 0, room;
	struct task *task;

	for (unsigned i = 0; i < shards_nr && got.nr == 0; i++)
		cost += read_inject_nr(&shards[i], who, t + cost);
	room = SLOTS - queue_nr(w);
	if (room > 0)
		cost += inject_pop(who, t + cost, room < BATCH_MAX ? room : BATCH_MAX, &got);
	while ((task = list_pop(&got))) {
		cost += push(who, task, t + cost);
		made++;
	}
	/* what an I/O ended is in the CQ after an enter; what has ended since waits for the next one */
	while (w->deferred == 0 && queue_nr(w) < SLOTS && (task = list_pop(&w->done))) {
		task->ready = task->ready < 0 ? t : task->ready;
		cost += par.reap + push(who, task, t + cost);
		made++;
	}
	if (made >= 2 && cores > 1) {
		cost += read_line(&idle_word, who, t + cost);
		if (unparked < cores)
			cost += notify(who, t + cost);
	}
	*ret_made = made;
	return cost;
}

/* ---- a worker's steps ---- */

static void sample_wait(double ns)
{
	if (wait_skip++ % 4 != 0)
		return;
	if (waits_nr == waits_max) {
		waits_max = waits_max ? 2 * waits_max : 65536;
		waits = grow(waits, waits_max * sizeof(*waits));
	}
	waits[waits_nr++] = ns;
}

static double begin_task(int who, struct task *task, int next_polls, double t)
{
	struct worker *w = &workers[who];
	double cost = par.poll;

	if (w->searching)
		cost += leave_search(who, t);
	if (task->core != who)
		cost += 2 * par.line; /* its header and frame */
	task->core = who;
	sample_wait(t - task->ready);
	nr.polls++;
	w->ran++;
	w->cur = task;
	w->next_polls = next_polls;
	w->next_enabled = next_polls < NEXT_POLLS_MAX;
	w->phase = TASK;
	return cost;
}

/* The poll is over: the next slot, or a tick. */
static double end_poll(int who, double t)
{
	struct worker *w = &workers[who];
	struct task *task = w->next;

	w->cur = NULL;
	w->phase = TICK;
	if (!task || w->next_polls >= NEXT_POLLS_MAX) {
		w->next_enabled = 1;
		return 0;
	}
	w->next = NULL;
	return par.rmw + begin_task(who, task, w->next_polls + 1, t);
}

static struct task *new_task(enum kind kind, int core)
{
	struct task *t = grow(NULL, sizeof(*t));

	*t = (struct task){ .kind = kind, .core = core, .waits_for = -1, .heap = -1 };
	return t;
}

static double step_root(int who, struct task *root, double t)
{
	int burst = (int)par.burst;
	struct task *kid;
	double cost = 0;

	if (root->step < burst) {
		kid = new_task(LEAF, who);
		kid->parent = root;
		kid->child = root->step;
		root->kids[root->step++] = kid;
		return par.spawn + schedule(who, kid, t + par.spawn);
	}
	while (root->step < 2 * burst) {
		kid = root->kids[root->step - burst];
		if (!kid->done) {
			root->waits_for = kid->child;
			return cost + end_poll(who, t + cost);
		}
		cost += par.rmw + (kid->core != who ? par.line : 0);
		free(kid);
		root->step++;
	}
	root->step = 0;
	return cost + par.rmw;
}

static double step_leaf(int who, struct task *leaf, double t)
{
	double cost = 2 * par.rmw;
	struct task *root = leaf->parent;

	if (leaf->step++ == 0) {
		workers[who].useful += par.work;
		return par.work;
	}
	nr.ops++;
	leaf->done = 1;
	if (root && root->waits_for == leaf->child) {
		root->waits_for = -1;
		cost += schedule(who, root, t + cost);
	}
	if (leaf->heap >= 0)
		cost += free_cell(who, leaf->heap, t + cost);
	cost += end_poll(who, t + cost);
	if (!root)
		free(leaf);
	return cost;
}

static double step_io(int who, struct task *task, double t)
{
	struct worker *w = &workers[who];
	double cost;

	if (task->step++ == 0) {
		w->useful += par.work;
		return par.work;
	}
	nr.ops++;
	task->step = 0;
	task->ready = -1;
	list_push(&w->staged, task);
	cost = par.reap + (w->staged.nr >= STAGED_MAX ? flush(who, t + par.reap) : 0);
	return cost + end_poll(who, t + cost);
}

static double step_task(int who, double t)
{
	struct task *task = workers[who].cur;

	switch (task->kind) {
	case ROOT:
		return step_root(who, task, t);
	case IO:
		return step_io(who, task, t);
	default:
		return step_leaf(who, task, t);
	}
}

static double begin_search(int who, double t)
{
	struct worker *w = &workers[who];
	double cost = 0, max = par.searchers > 0 ? par.searchers : (double)cores / 2;

	if (cores == 1)
		return park(who, t);
	if (!w->searching) {
		cost += read_line(&idle_word, who, t);
		if (searching >= max)
			return cost + park(who, t + cost);
		cost += write_line(&idle_word, who, t + cost);
		searching++;
		w->searching = 1;
	}
	nr.searches++;
	w->first = rand_below(cores);
	w->visited = 0;
	w->phase = SEARCH;
	return cost;
}

static double step_search(int who, double t)
{
	struct worker *w = &workers[who], *v;
	struct list got = { 0 };
	unsigned n;
	double cost;

	if (w->visited == cores) {
		cost = inject_pop(who, t, 1, &got);
		if (got.nr > 0)
			return cost + begin_task(who, list_pop(&got), 0, t + cost);
		w->visited = 0;
		w->phase = SEARCH_SLOTS;
		return cost;
	}
	v = &workers[(w->first + w->visited++) % cores];
	if (v == w)
		return 0;
	nr.looks++;
	cost = read_line(&v->queue, who, t);
	n = queue_nr(v);
	n -= n / 2;
	if (n == 0)
		return cost;
	cost += write_line(&v->queue, who, t + cost); /* the claim; the slots; done */
	cost += (double)((n + 7) / 8) * par.line + par.rmw;
	for (unsigned i = 0; i + 1 < n; i++)
		w->slot[w->tail++ % SLOTS] = v->slot[v->head++ % SLOTS];
	nr.thefts++;
	nr.steals += n;
	return cost + begin_task(who, v->slot[v->head++ % SLOTS], 0, t + cost);
}

/* The last pass: next slots of those who are in a poll. */
static double step_search_slots(int who, double t)
{
	struct worker *w = &workers[who], *v;
	struct task *task;

	if (w->visited == cores)
		return park(who, t);
	v = &workers[(w->first + w->visited++) % cores];
	if (v == w || v->phase != TASK || !v->next)
		return v == w ? 0 : par.line; /* its statistics tell: they change with each poll */
	task = v->next;
	v->next = NULL;
	nr.thefts++;
	nr.steals++;
	return 2 * par.line + begin_task(who, task, 0, t + 2 * par.line);
}

static double step_tick(int who, double t)
{
	struct worker *w = &workers[who];
	struct list got = { 0 };
	struct task *task = NULL;
	double cost = par.tick;
	unsigned made;

	if (--w->event_left == 0) {
		cost += turn(who, t + cost, &made);
		w->event_left = INTERVAL;
	}
	if (--w->inject_left == 0) {
		w->inject_left = INTERVAL;
		cost += inject_pop(who, t + cost, 1, &got);
		task = list_pop(&got);
	}
	if (!task && w->next) {
		task = w->next;
		w->next = NULL;
		cost += par.rmw;
	}
	if (!task && queue_nr(w) > 0) {
		task = w->slot[w->head++ % SLOTS];
		cost += write_line(&w->queue, who, t + cost);
	}
	if (task)
		return cost + begin_task(who, task, 0, t + cost);
	w->event_left = INTERVAL;
	cost += turn(who, t + cost, &made);
	if (made > 0)
		return w->searching ? cost + leave_search(who, t + cost) : cost;
	cost += send_back(who, t + cost);
	return cost + begin_search(who, t + cost);
}

static double step(int who, double t)
{
	switch (workers[who].phase) {
	case TASK:
		return step_task(who, t);
	case SEARCH:
		return step_search(who, t);
	case SEARCH_SLOTS:
		return step_search_slots(who, t);
	default:
		return step_tick(who, t);
	}
}

/* ---- events that are no worker's step ---- */

static void on_wake(int who, double t)
{
	struct worker *w = &workers[who];
	double cost = 0;
	unsigned i;

	if (w->phase != PARKED)
		return; /* it was awake before this one came */
	if (w->picked) {
		w->searching = 1;
		w->picked = 0;
	} else {
		cost = pass_lock(&idle_lock, who, t, par.rmw) + write_line(&idle_word, who, t);
		for (i = 0; sleepers[i] != who; i++)
			;
		memmove(&sleepers[i], &sleepers[i + 1], (--sleepers_nr - i) * sizeof(sleepers[0]));
		unparked++;
	}
	w->phase = TICK;
	at(t + cost, STEP, who, NULL);
}

static void on_complete(int who, struct task *task, double t)
{
	struct worker *w = &workers[who];

	task->ready = t;
	list_push(&w->done, task);
	if (w->deferred++ == 0 && w->phase == PARKED)
		at(t + par.wake, WAKE, who, NULL);
}

static void on_inject(int who, double t)
{
	struct outside *out = &outside[who % OUTSIDE_HEAPS];
	struct task *task = new_task(LEAF, -1);
	struct list one = { 0 };
	double cost, from;

	task->ready = t;
	task->heap = who % OUTSIDE_HEAPS;
	list_push(&one, task);
	cost = lock_line(&out->heap, who, t, par.spawn_out, &from);
	cost += take_cell(out, who, t + cost);
	cost += write_line(&spawns_stat, who, t + cost) + par.spawn_out;
	unlock_line(&out->heap, from, t + cost);
	cost += inject_push(who, (unsigned)who % shards_nr, &one, t + cost);
	cost += notify(who, t + cost);
	cost += write_line(&out->done, who, t + cost);
	nr.outs++;
	nr.outs_ns += cost;
	at(t + cost, INJECT, who, NULL);
}

/* ---- the run ---- */

static void set_up(void)
{
	static struct list first;

	workers = grow(NULL, cores * sizeof(*workers));
	memset(workers, 0, cores * sizeof(*workers));
	shards = grow(NULL, shards_nr * sizeof(*shards));
	memset(shards, 0, shards_nr * sizeof(*shards));
	for (unsigned i = 0; i < shards_nr; i++)
		shards[i].in.place = shards[i].out.place = shards[i].depth.place = AT_INJECT;
	spawns_stat.place = AT_HEAPS;
	for (unsigned i = 0; i < OUTSIDE_HEAPS; i++)
		outside[i].heap.place = outside[i].back.place = outside[i].done.place = AT_HEAPS;
	idle_word.place = idle_lock.place = AT_IDLE;
	rand_state = (uint64_t)par.seed;
	unparked = cores;
	for (unsigned i = 0; i < cores; i++) {
		struct worker *w = &workers[i];

		w->queue.place = AT_QUEUES;
		w->queue.writer = (int)i;
		w->next_enabled = 1;
		w->inject_left = w->event_left = INTERVAL;
		at(0, STEP, (int)i, NULL);
		if (load == LOAD_FORK && i % (unsigned)par.per_root == 0) {
			w->next = new_task(ROOT, (int)i);
			w->next->kids = grow(NULL, (size_t)par.burst * sizeof(struct task *));
		}
		for (unsigned k = 0; load >= LOAD_UNIFORM && k < (unsigned)par.tasks; k++) {
			struct task *task = new_task(IO, load == LOAD_SKEWED ? 0 : (int)i);

			task->step = 1; /* it begins with an I/O */
			if (load == LOAD_UNIFORM && queue_nr(w) < SLOTS)
				w->slot[w->tail++ % SLOTS] = task;
			else if (load == LOAD_SKEWED && queue_nr(&workers[0]) < SLOTS)
				workers[0].slot[workers[0].tail++ % SLOTS] = task;
			else
				list_push(&first, task);
		}
	}
	if (first.nr > 0)
		(void)inject_push(0, 0, &first, 0);
	if (load == LOAD_INJECT) {
		outside_nr = (unsigned)((cores + par.per_injector - 1) / par.per_injector);
		for (unsigned i = 0; i < outside_nr; i++)
			at((double)i, INJECT, (int)(cores + i), NULL);
	}
}

static double run(void)
{
	double until = par.ops * cores, t = 0;
	struct event e;

	while (nr.ops < until) {
		e = next_event();
		t = now = e.t;
		switch (e.what) {
		case STEP:
			e.t += step(e.who, t);
			if (workers[e.who].phase != PARKED)
				at(e.t, STEP, e.who, NULL);
			break;
		case WAKE:
			on_wake(e.who, t);
			break;
		case COMPLETE:
			on_complete(e.who, e.task, t);
			break;
		case INJECT:
			if (shards[(unsigned)e.who % shards_nr].list.nr > 64 * cores)
				at(t + 1000, INJECT, e.who, NULL); /* enough for all: no more memory than that */
			else
				on_inject(e.who, t);
			break;
		}
	}
	return t;
}

static double quantile(double q)
{
	return waits_nr ? waits[(size_t)((double)(waits_nr - 1) * q)] : 0;
}

static void report(const char *name, double ns)
{
	double useful = 0, most = 0, ran = 0, all = ns * cores;

	for (unsigned i = 0; i < cores; i++) {
		useful += workers[i].useful;
		ran += workers[i].ran;
		most = workers[i].ran > most ? workers[i].ran : most;
	}
	qsort(waits, waits_nr, sizeof(*waits), bench_cmp);
	printf("load=%s cores=%u ops_per_us=%.3f utilisation=%.3f imbalance=%.2f", name, cores, nr.ops / ns * 1e3, useful / all,
	       most * cores / ran);
	printf(" thefts=%.4f steals=%.4f searches=%.4f looks=%.3f parks=%.4f wakes=%.4f injects=%.4f notifies=%.4f", nr.thefts / nr.ops,
	       nr.steals / nr.ops, nr.searches / nr.ops, nr.looks / nr.ops, nr.parks / nr.ops, nr.wakes / nr.ops,
	       nr.injects / nr.ops, nr.notifies / nr.ops);
	printf(" spawn_out_ns=%.0f", nr.outs > 0 ? nr.outs_ns / nr.outs : 0);
	printf(" wait_p50_us=%.2f wait_p99_us=%.2f", quantile(0.5) / 1e3, quantile(0.99) / 1e3);
	printf(" at_idle=%.4f at_inject=%.4f at_queues=%.4f at_heaps=%.4f", (waited[AT_IDLE] + moved[AT_IDLE] * par.line) / all,
	       (waited[AT_INJECT] + moved[AT_INJECT] * par.line) / all,
	       (waited[AT_QUEUES] + moved[AT_QUEUES] * par.line) / all, (waited[AT_HEAPS] + moved[AT_HEAPS] * par.line) / all);
	printf(" events=%llu\n", (unsigned long long)events_nr);
}

static int set(const char *text)
{
	const char *value = strchr(text, '=');
	char *end;

	for (size_t i = 0; value && i < PARS_NR; i++) {
		if (strncmp(names[i].name, text, (size_t)(value - text)) != 0 || names[i].name[value - text])
			continue;
		*names[i].value = strtod(value + 1, &end);
		return end > value + 1 && !*end && *names[i].value >= 0 ? 0 : -1;
	}
	return -1;
}

int main(int argc, char **argv)
{
	static const char *const loads[] = { "fork", "inject", "uniform", "skewed" };
	size_t i;

	if (argc == 1) {
		puts("model LOAD CORES [name=value ...]; loads: fork inject uniform skewed; times in ns");
		for (i = 0; i < PARS_NR; i++)
			printf("  %-14s %8g  %s\n", names[i].name, *names[i].value, names[i].what);
		return 0;
	}
	for (i = 0; i < 4 && strcmp(argv[1], loads[i]) != 0; i++)
		;
	cores = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	if (i == 4 || cores < 1 || cores > CORES_MAX) {
		fprintf(stderr, "model: a load (fork, inject, uniform, skewed) and 1 to %d cores are wanted\n", CORES_MAX);
		return 2;
	}
	load = (enum load)i;
	for (int k = 3; k < argc; k++) {
		if (set(argv[k])) {
			fprintf(stderr, "model: %s: not name=value of a parameter (see `model` alone)\n", argv[k]);
			return 2;
		}
	}
	if (par.shards < 1 || par.shards > cores || par.burst < 1 || par.per_root < 1 || par.per_injector < 1 || par.ops < 1 ||
	    (load == LOAD_INJECT && cores / par.per_injector > CORES_MAX)) {
		fputs("model: shards are 1 to the cores; burst, per_root, per_injector and ops at least 1\n", stderr);
		return 2;
	}
	shards_nr = (unsigned)par.shards;
	set_up();
	report(loads[load], run());
	return 0;
}
