/* SPDX-License-Identifier: MIT */
/*
 * The runtime under test: one task a slot, each in a loop of `start an op, await it`. A job is a worker; a first task
 * spawns the others spread over the workers, and from then on they are where the scheduler has them. Counters are the
 * worker's (its lane), found by a thread-local that is looked up anew in each poll, since tasks may move between polls.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <martlet/martlet.h>

#include "job.h"
#include "target.h"

#define SQ_ENTRIES_DEFAULT 256u

struct io_frame {
	struct mrt_op op;
	struct slot *slot;
	uint64_t wake_ns;       /* rate mode: end of the sleep */
};

struct root_frame {
	struct run *run;
};

/* The run's runtime; one run at a time. */
static struct mrt_runtime *rt;
static _Thread_local struct lane *lane_of_thread;

/* Worker threads live as long as their runtime, so as long as the run. */
static struct lane *lane_here(const struct slot *s)
{
	if (__builtin_expect(!lane_of_thread, 0))
		lane_of_thread = lane_take(s->job->run);
	return lane_of_thread;
}

static struct mrt_op *start_io(struct io_frame *f)
{
	struct slot *s = f->slot;

	if (s->is_write)
		(void)mrt_write(&f->op, slot_fd(s), s->buf, s->len, (int64_t)s->off);
	else
		(void)mrt_read(&f->op, slot_fd(s), s->buf, s->len, (int64_t)s->off);
	slot_staged(s);
	return &f->op;
}

static enum mrt_poll closed_poll(struct mrt_task *self, void *frame)
{
	struct io_frame *f = frame;
	struct slot *s = f->slot;
	struct lane *l = lane_here(s);
	uint64_t now = 0;

	MRT_BEGIN(self);
	now = clock_ns();
	while (slot_next(s, l, now)) {
		MRT_AWAIT(self, start_io(f));
		now = slot_done(s, l, f->op.res);
	}
	run_ended(s->job->run, 1);
	MRT_RETURN(self, 0);
}

static enum mrt_poll paced_poll(struct mrt_task *self, void *frame)
{
	struct io_frame *f = frame;
	struct slot *s = f->slot;
	struct lane *l = lane_here(s);

	MRT_BEGIN(self);
	while (slot_claim(s, l)) {
		while (slot_must_sleep(s, l, &f->wake_ns)) {
			MRT_AWAIT(self, mrt_sleep_until(&f->op, f->wake_ns));
			lane_note_oversleep(l, f->wake_ns);
		}
		while (slot_must_poll(s, l))
			MRT_AWAIT(self, mrt_yield(&f->op));
		if (!slot_next(s, l, clock_ns()))
			break;
		MRT_AWAIT(self, start_io(f));
		(void)slot_done(s, l, f->op.res);
	}
	run_ended(s->job->run, 1);
	MRT_RETURN(self, 0);
}

/* --- start and end --- */

static void count_unspawned(struct run *r, unsigned nr, int rc)
{
	fprintf(stderr, "martlet bench: martlet: %u tasks could not be spawned: %s\n", nr, strerror(-rc));
	r->failed = rc;
	run_stop(r);
	run_ended(r, nr);
}

static void spawn_slots(struct run *r)
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .name = "bench-io", .flags = MRT_SPAWN_SPREAD };
	mrt_poll_fn body = r->o->rate_iops && r->pick != PICK_VERIFY ? paced_poll : closed_poll;

	/* the jobs' first slots, then their second ones: so each worker gets some of each */
	for (unsigned i = 0; i < r->slots_nr; i++) {
		struct io_frame f = { .slot = &r->jobs[i % r->jobs_nr].slots[i / r->jobs_nr] };
		int rc = mrt_spawn(NULL, body, &f, sizeof(f), &opts, NULL);

		if (rc) {
			count_unspawned(r, r->slots_nr - i, rc);
			return;
		}
	}
}

static enum mrt_poll root_poll(struct mrt_task *self, void *frame)
{
	struct root_frame *f = frame;

	MRT_BEGIN(self);
	spawn_slots(f->run);
	MRT_RETURN(self, 0);
}

static void print_log(int level, const char *sentence, void *ctx)
{
	(void)ctx;
	if (level <= MRT_LOG_WARN)
		fprintf(stderr, "martlet: %s\n", sentence);
}

static unsigned martlet_lanes_nr(const struct bench_opts *o)
{
	return o->numjobs;
}

static int martlet_start(struct run *r)
{
	struct mrt_runtime_opts opts;
	int cpus[OPTS_NUMJOBS_MAX];

	mrt_runtime_opts_init(&opts);
	opts.workers_nr = r->jobs_nr;
	opts.cpus_nr = r->jobs_nr;
	opts.cpus = cpus;
	for (unsigned i = 0; i < r->jobs_nr; i++)
		cpus[i] = r->jobs[i].cpu;
	if (r->o->iodepth > SQ_ENTRIES_DEFAULT)
		opts.sq_entries = r->o->iodepth;
	opts.log = print_log;
	opts.name = "bench";
	opts.flags = MRT_RUNTIME_TUNE_EVENTS; /* fewer enters while the queue is long */
	r->running = r->slots_nr;
	return mrt_runtime_create(&opts, &rt);
}

static void martlet_go(struct run *r)
{
	struct root_frame f = { r };
	int rc = mrt_spawn(rt, root_poll, &f, sizeof(f), NULL, NULL);

	if (rc)
		count_unspawned(r, r->slots_nr, rc);
}

static void note_extra(struct engine_note *n, const char *name, double value)
{
	n->extra[n->extra_nr].name = name;
	n->extra[n->extra_nr++].value = value;
}

static void note_stats(struct engine_note *n)
{
	uint64_t moved = 0, steals = 0, parks = 0, polls = 0;

	for (unsigned i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		struct mrt_worker_stats st;

		if (mrt_stats_get(rt, i, &st))
			continue;
		n->enters += st.enters;
		moved += st.moved;
		steals += st.steals;
		parks += st.parks;
		polls += st.polls;
	}
	note_extra(n, "polls", (double)polls);
	note_extra(n, "parks", (double)parks);
	note_extra(n, "steals", (double)steals);
	note_extra(n, "moved_polls", (double)moved);
	note_extra(n, "polls_at_home_pct", polls ? (double)(polls - moved) * 100 / (double)polls : 0);
}

static void martlet_finish(struct run *r)
{
	struct mrt_ring_report ring;

	snprintf(r->note.what, sizeof(r->note.what), "%u tasks on %u pinned worker%s, each I/O an op", r->slots_nr,
		 r->jobs_nr, r->jobs_nr == 1 ? "" : "s");
	if (mrt_runtime_ring_report(rt, &ring) == 0)
		snprintf(r->note.ring, sizeof(r->note.ring), "%s", ring.text);
	note_stats(&r->note);
	mrt_runtime_destroy(rt);
	rt = NULL;
}

const struct engine engine_martlet = {
	.name = "martlet",
	.lanes_nr = martlet_lanes_nr,
	.start = martlet_start,
	.go = martlet_go,
	.finish = martlet_finish,
};
