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

/* Of the runtime's options. */
#define SQ_ENTRIES_DEFAULT 256u
#define FILES_MAX_DEFAULT 1024u
#define ARENA_BYTES_MAX_DEFAULT (UINT64_C(1) << 30)

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

/* A file needs a handle for what only registered files can do. */
static bool wants_handles(const struct opts_fast *f)
{
	return f->registerfiles || f->hipri || f->nvme;
}

static void set_fast_options(struct mrt_runtime_opts *opts, const struct run *r)
{
	const struct opts_fast *f = &r->o->fast;
	unsigned files_nr = r->jobs_nr * r->targets_nr;

	opts->flags |= f->sqpoll ? MRT_RUNTIME_SQPOLL : 0;
	opts->flags |= f->hybrid ? MRT_RUNTIME_HYBRID_POLL : 0;
	opts->flags |= f->nvme ? MRT_RUNTIME_NVME : 0;
	opts->sqpoll_idle_ms = f->sqpoll_idle_ms;
	opts->sqpoll_cpu = f->sqpoll_cpu >= 0 ? &f->sqpoll_cpu : NULL;
	if (f->fixedbufs) {
		opts->arena_bytes = r->buffers_bytes;
		if (2 * r->buffers_bytes > ARENA_BYTES_MAX_DEFAULT)
			opts->arena_bytes_max = 2 * r->buffers_bytes;
	}
	if (files_nr > FILES_MAX_DEFAULT)
		opts->files_max = files_nr;
}

static int create_runtime(struct run *r)
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
	set_fast_options(&opts, r);
	return mrt_runtime_create(&opts, &rt);
}

/* The buffers are the runtime's own memory where they are to be registered. */
static int martlet_open(struct run *r)
{
	void *p;
	int rc = create_runtime(r);

	if (rc)
		return rc;
	if (!r->o->fast.fixedbufs) {
		r->buffers = job_map_buffers(r);
		rc = r->buffers ? 0 : -ENOMEM;
	} else {
		rc = mrt_alloc(rt, r->buffers_bytes, 4096, &p);
		r->buffers = rc ? NULL : p;
	}
	if (rc == 0)
		return 0;
	mrt_runtime_destroy(rt);
	rt = NULL;
	return rc;
}

/* The runtime takes the descriptors over. */
static int register_files(struct run *r)
{
	const struct opts_fast *f = &r->o->fast;
	unsigned flags = (f->hipri ? MRT_FILE_POLLED : 0) | (f->nvme ? MRT_FILE_PASSTHROUGH : 0);

	for (unsigned i = 0; i < r->jobs_nr * r->targets_nr && wants_handles(f); i++) {
		struct part *p = &r->parts[i];
		int handle = mrt_file_register(rt, p->fd, flags);

		if (handle < 0) {
			fprintf(stderr, "martlet bench: martlet: registering a file: %s\n", strerror(-handle));
			return handle;
		}
		p->io_fd = handle;
		p->fd = -1;
	}
	return 0;
}

static int martlet_start(struct run *r)
{
	r->running = r->slots_nr;
	return register_files(r);
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

_Static_assert((int)RUNG_BUFFERED == MRT_RUNG_BUFFERED && (int)RUNG_DIRECT == MRT_RUNG_DIRECT &&
	       (int)RUNG_FIXED_BUFFER == MRT_RUNG_FIXED_BUFFER && (int)RUNG_FIXED_FILE == MRT_RUNG_FIXED_FILE &&
	       (int)RUNG_POLLED == MRT_RUNG_POLLED && (int)RUNG_PASSTHROUGH == MRT_RUNG_PASSTHROUGH,
	       "the runtime's rungs are ours");

/* Which of the fast ways the I/O went, and why not a faster one. */
static void note_rung(struct run *r)
{
	struct mrt_rung_report file;
	struct mrt_arena_report arena;

	if (mrt_file_report(rt, r->parts[0].io_fd, r->buffers, &file) == 0) {
		snprintf(r->note.rung, sizeof(r->note.rung), "%s", rung_names[file.rung]);
		snprintf(r->note.rung_text, sizeof(r->note.rung_text), "%s", file.text);
	}
	if (r->o->fast.fixedbufs && mrt_arena_report(rt, &arena) == 0)
		snprintf(r->note.arena, sizeof(r->note.arena), "%s", arena.text);
}

static void martlet_finish(struct run *r)
{
	struct mrt_ring_report ring;

	snprintf(r->note.what, sizeof(r->note.what), "%u tasks on %u pinned worker%s, each I/O an op", r->slots_nr,
		 r->jobs_nr, r->jobs_nr == 1 ? "" : "s");
	if (mrt_runtime_ring_report(rt, &ring) == 0)
		snprintf(r->note.ring, sizeof(r->note.ring), "%s", ring.text);
	else
		ring.sqpoll_ns = 0;
	note_rung(r);
	note_stats(&r->note);
	if (ring.sqpoll_ns > 0)
		note_extra(&r->note, "sqpoll_cpu_ms", (double)ring.sqpoll_ns / 1e6);
}

struct close_frame {
	struct mrt_op op;
	const struct run *run;
	unsigned at;
};

static enum mrt_poll close_poll(struct mrt_task *self, void *frame)
{
	struct close_frame *f = frame;

	MRT_BEGIN(self);
	for (; f->at < f->run->jobs_nr * f->run->targets_nr; f->at++) {
		if (f->run->parts[f->at].fd < 0 && f->run->parts[f->at].io_fd >= 0)
			MRT_AWAIT(self, mrt_close(&f->op, f->run->parts[f->at].io_fd));
	}
	MRT_RETURN(self, 0);
}

static void martlet_close(struct run *r)
{
	struct close_frame f = { .run = r };

	if (wants_handles(&r->o->fast))
		(void)mrt_block_on(rt, close_poll, &f, sizeof(f), NULL); /* destroying the runtime closes what is left */
	if (r->o->fast.fixedbufs)
		mrt_free(rt, r->buffers);
	else
		job_unmap_buffers(r);
	mrt_runtime_destroy(rt);
	rt = NULL;
}

const struct engine engine_martlet = {
	.name = "martlet",
	.lanes_nr = martlet_lanes_nr,
	.open = martlet_open,
	.close = martlet_close,
	.start = martlet_start,
	.go = martlet_go,
	.finish = martlet_finish,
};
