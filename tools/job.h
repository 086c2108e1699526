/* SPDX-License-Identifier: MIT */
/*
 * What an engine does for each I/O besides the I/O itself, inline and the same for all engines, so that their figures
 * differ by the engine alone: choose offset and direction, stamp, count, record.
 *
 *	run    one execution of one engine: all of the below, and when it ends
 *	job    fio's job: its part of each target, `iodepth` slots, a schedule in rate mode
 *	slot   one I/O at a time: a buffer, a random stream, what is in flight. In the martlet engine: a task
 *	lane   what one thread counts. raw: one a job; psync: one a slot; martlet: one a worker, since tasks may move
 *
 * Clock reads per I/O: one at its end, which is also the start stamp of the slot's next I/O (so choosing the offset and
 * recording belong to the next I/O's latency, some 20 ns), and on every n-th I/O one more when it has been handed over.
 * So `lat` is exact for every I/O; `slat` (start to handed over: staged in the ring) and `clat` (handed over to end)
 * are sampled. All stamps are taken before the submission that they time.
 */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "hist.h"
#include "log.h"
#include "opts.h"
#include "pace.h"
#include "rng.h"
#include "zipf.h"

struct targets;
struct verify;

enum job_dir { DIR_READ, DIR_WRITE, DIRS_NR };
enum job_pick { PICK_SEQ, PICK_UNIFORM, PICK_ZIPF, PICK_VERIFY };

#define JOB_DEPTHS_NR 7u                /* 1, 2, 4, 8, 16, 32, 64 and more */
#define JOB_ERRNOS_NR 134u
#define JOB_GIVE_UP_FAILURES 1000u      /* of a lane that has not had one success */
#define JOB_LEAD_NS_START UINT64_C(50000)        /* see lane_note_oversleep() */
#define JOB_LEAD_NS_MAX UINT64_C(200000)
#define JOB_LEAD_UP_NS UINT64_C(1000)
#define JOB_LEAD_DOWN_NS UINT64_C(20)
#define JOB_SLEEP_NS_MIN UINT64_C(20000)        /* shorter waits are polled through */
#define JOB_NAP_NS_MAX (100 * CLOCK_NS_PER_MS)  /* longest sleep of a paced slot, so that Ctrl-C is heard */

/* A job's part of one target. */
struct part {
	int fd;                         /* the job's own; -1: an engine has taken it */
	int io_fd;                      /* what the engine's I/O names it by: fd, a slot, a handle */
	unsigned target;                /* number */
	uint64_t base;                  /* bytes: where the region starts */
	uint64_t blocks;                /* of bs in the region */
	uint64_t first;                 /* number of the region's first block among those of all targets */
	uint64_t lo, hi;                /* blocks, in sequential modes this job's own */
	struct zipf zipf;
	_Alignas(128) _Atomic uint64_t cursor;  /* sequential modes: next block, counted from lo */
};

struct job {
	struct run *run;
	unsigned idx;
	int cpu;                        /* pinned to; -1: not */
	struct pace pace;
	struct slot *slots;             /* [iodepth] */
	struct part *parts;             /* [targets_nr] */
	_Alignas(128) _Atomic uint64_t turn;    /* several targets: I/Os go to them in turn */
};

struct slot {
	_Alignas(64) char *buf;
	uint64_t off;                   /* of the I/O in flight, bytes from the start of the target */
	uint64_t start_ns;              /* its start stamp; rate mode: its intended start */
	uint64_t begun_ns;              /* its actual start */
	uint64_t staged_ns;             /* when it was handed over, if sampled */
	uint64_t rng;
	uint64_t left;                  /* I/Os still to start */
	uint64_t intended_ns;           /* rate mode: the claimed start of the next I/O */
	struct job *job;
	struct part *part;              /* what the I/O in flight is on */
	uint32_t len;
	uint32_t gen;                   /* verify: generation that it writes, or expects */
	bool is_write, sampled, retry, ended;
};

/* What a lane counts of one target, where there are several. */
struct target_count {
	uint64_t ios[DIRS_NR], short_ios[DIRS_NR], failed[DIRS_NR];     /* ios: in the measured window */
};

/* What a lane's thread had used at one moment. */
struct lane_moment {
	uint64_t ns;                    /* 0: not taken */
	uint64_t usr_us, sys_us, ctx;
	uint64_t ios;                   /* ended well by then */
};

/* One thread's counters. Written by that thread; `done` is read live by the controller. */
struct lane {
	_Alignas(128) struct run *run;
	_Atomic uint64_t done[DIRS_NR]; /* I/Os ended well, from the very start */
	_Atomic int tid;                /* of the thread, once `begin` has been taken */
	atomic_bool taken;              /* lane_take() */
	bool extras;                    /* lane_count_extras() is to be called */
	int32_t inflight;               /* started less ended here: tasks that moved make it drift, also below 0 */
	uint32_t sample_left;
	uint64_t last_end_ns;           /* of the last counted I/O */
	/* by the thread: at the first I/O that is begun in the window, and whenever a slot ends */
	struct lane_moment begin, end;
	struct lane_moment seen;        /* by the controller, at the end of the window: where no slot ended */
	uint64_t enters;                /* system calls that submit or reap; 0 where the engine counts otherwise */
	uint64_t retries, late_starts;
	uint64_t lead_ns;               /* rate mode: how much before a start a sleep for it ends */
	uint64_t short_ios[DIRS_NR], short_bytes[DIRS_NR], failed[DIRS_NR];
	uint64_t depth[JOB_DEPTHS_NR];
	uint32_t errnos[JOB_ERRNOS_NR];
	struct target_count *per_target;        /* [targets_nr]; NULL with one */
	struct lat_log *log;            /* NULL: none */
	struct hist lat[DIRS_NR], slat[DIRS_NR], clat[DIRS_NR];
	struct hist pacing;             /* rate mode: actual less intended start */
};

/* The ways that I/O can go, each with what the one below has: enum mrt_rung, which the bare loop has no part in. */
enum rung { RUNG_BUFFERED, RUNG_DIRECT, RUNG_FIXED_BUFFER, RUNG_FIXED_FILE, RUNG_POLLED, RUNG_PASSTHROUGH, RUNGS_NR };

extern const char *const rung_names[RUNGS_NR];

/* What an engine says about itself, for the report. */
struct engine_note {
	char what[160];                 /* one line: threads, tasks, rings */
	char ring[256];                 /* flags granted and fall-backs; empty without a ring */
	char rung[32];                  /* highest rung of the fast path that the I/O got; empty: not asked, or no ring */
	char rung_text[512];            /* what it got, and why not the next one */
	char arena[512];                /* registered memory, in words; empty: none asked for */
	uint64_t enters;
	unsigned extra_nr;
	struct {
		const char *name;
		double value;
	} extra[8];                     /* engine's own figures */
};

struct run {
	/* read on every I/O, written before it starts (deadline: also to stop early) */
	_Atomic uint64_t deadline_ns;
	uint64_t ramp_end_ns;
	uint32_t bs, slat_sample;
	unsigned targets_nr;
	uint32_t mix_read;              /* a random 32-bit word below this reads */
	enum job_pick pick;
	bool mixed, all_writes, random;
	bool odd;                       /* verify or rate: slot_next_odd() does it */
	bool once;                      /* sequential: end after one pass */

	const struct bench_opts *o;
	const struct targets *targets;
	const struct engine *engine;
	bool opened;                    /* engine->open() gave the buffers */
	struct verify *verify;          /* NULL: no checks */
	struct job *jobs;
	unsigned jobs_nr, slots_nr, lanes_nr;
	struct slot *slots;
	struct lane *lanes;
	struct part *parts;             /* [jobs_nr][targets_nr] */
	struct target_count *counts;    /* [lanes_nr][targets_nr]; NULL with one target */
	struct lat_log *logs;           /* [lanes_nr]; NULL: none */
	struct lat_entry *log_entries;  /* [lanes_nr][max of each] */
	size_t log_bytes;
	char *buffers;
	size_t buffers_bytes;
	struct engine_note note;
	int failed;                     /* -errno of an engine that could not run */

	/* the start and the end of an engine's threads */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool going;
	unsigned running;               /* threads or tasks that have not ended */
};

struct engine {
	const char *name;
	/* How many lanes it needs; they are made before start. */
	unsigned (*lanes_nr)(const struct bench_opts *o);
	/* Make everything ready; nothing is measured yet. 0 or -errno after a message. */
	int (*start)(struct run *r);
	/* Begin the I/O. */
	void (*go)(struct run *r);
	/* All slots have ended: join, free, fill in r->note. */
	void (*finish)(struct run *r);
	/*
	 * Own memory for I/O instead of the run's: set r->buffers to r->buffers_bytes of it. NULL: none. 0 or -errno after a
	 * message. close is called at the end of a run that was laid out, also if it never started.
	 */
	int (*open)(struct run *r);
	void (*close)(struct run *r);
};

extern const struct engine engine_martlet, engine_raw, engine_psync;

/* --- for the controller --- */

/**
 * Lay out jobs, slots, lanes and buffers of one run.
 *
 * @param v          NULL: no checks
 * @param read_back  read what v knows to be written, instead of what the options say
 * @return 0, or -ENOMEM, or what reopening a target gave
 */
int run_init(struct run *r, const struct bench_opts *o, const struct targets *ts, const struct engine *e,
	     struct verify *v, bool read_back);
void run_fini(struct run *r);

/* --- for engines --- */

/* r->buffers_bytes of zeroed memory for I/O, aligned to 4096, or NULL; and back. For an engine's open and close. */
char *job_map_buffers(const struct run *r);
void job_unmap_buffers(struct run *r);

/* Out-of-line halves of the functions below. */
bool slot_next_odd(struct slot *s, struct lane *l, uint64_t now);
uint64_t slot_done_odd(struct slot *s, struct lane *l, int64_t res, uint64_t now);
void lane_count_extras(struct lane *l, const struct slot *s, uint64_t now);
void lane_note_begin(struct lane *l, uint64_t now);
void lane_note_end(struct lane *l);

/* A lane for the calling thread: that of the job on this CPU, where workers are pinned. */
struct lane *lane_take(struct run *r);

/* Job that a lane belongs to. */
static inline unsigned lane_job(const struct run *r, unsigned lane)
{
	return (unsigned)((uint64_t)lane * r->jobs_nr / r->lanes_nr);
}

/* File of the I/O that slot_next() chose: a descriptor, unless the engine has set another name. */
static inline int slot_fd(const struct slot *s)
{
	return s->part->io_fd;
}

/* Rate mode: claim the next start; false: the slot has ended. Then wait until s->intended_ns, then slot_next(). */
bool slot_claim(struct slot *s, struct lane *l);

/*
 * Waiting for a start. A timer of a virtual machine fires some 60 us late, with a tail of hundreds, whoever sets it; so
 * a sleep ends `lead_ns` before the start, and what is left is polled through (a task yields, a ring is driven). The
 * lead follows the 98th percentile of how late sleeps end: a step up for each that is later, a fiftieth of it down for
 * each that is not. On hardware with good timers it comes down to a few microseconds.
 */

/* Sleep first? Then until *ret_wake, and lane_note_oversleep() afterwards. */
bool slot_must_sleep(const struct slot *s, const struct lane *l, uint64_t *ret_wake);

/* Then poll on, until this says false. */
bool slot_must_poll(const struct slot *s, const struct lane *l);

static inline void lane_note_oversleep(struct lane *l, uint64_t wake_ns)
{
	uint64_t now = clock_ns(), late = now > wake_ns ? now - wake_ns : 0;

	if (late > l->lead_ns && l->lead_ns < JOB_LEAD_NS_MAX)
		l->lead_ns += JOB_LEAD_UP_NS;
	else if (late <= l->lead_ns && l->lead_ns >= JOB_LEAD_DOWN_NS)
		l->lead_ns -= JOB_LEAD_DOWN_NS;
}

/* Wait in an engine's thread until the controller says go. */
void run_wait_go(struct run *r);

/* Say it. For the controller; and for an engine that cannot start, after run_stop(): threads that wait then just end. */
void run_go(struct run *r);

/* n threads or tasks have ended. */
void run_ended(struct run *r, unsigned n);

/* End the run early. @thread any */
static inline void run_stop(struct run *r)
{
	/* relaxed: slots may see it late by an I/O */
	atomic_store_explicit(&r->deadline_ns, 0, memory_order_relaxed);
}

static inline void lane_begin_io(struct slot *s, struct lane *l, uint64_t now)
{
	unsigned level;

	s->begun_ns = now;
	s->sampled = --l->sample_left == 0;
	if (s->sampled) {
		l->sample_left = l->run->slat_sample;
		if (__builtin_expect(!l->begin.ns, 0))
			lane_note_begin(l, now);
	}
	level = ++l->inflight > 0 ? 31u - (unsigned)__builtin_clz((unsigned)l->inflight) : 0;
	l->depth[level < JOB_DEPTHS_NR ? level : JOB_DEPTHS_NR - 1]++;
}

/* The part that is next in turn. */
static inline void slot_turn(struct slot *s, const struct run *r)
{
	struct job *j = s->job;

	if (__builtin_expect(r->targets_nr > 1, 0)) /* relaxed: only the number counts */
		s->part = &j->parts[atomic_fetch_add_explicit(&j->turn, 1, memory_order_relaxed) % r->targets_nr];
}

/* A block of the slot's part. */
static inline uint64_t slot_pick(struct slot *s, const struct run *r)
{
	struct part *p = s->part;

	switch (r->pick) {
	case PICK_UNIFORM:
		return rng_below(&s->rng, p->blocks);
	case PICK_ZIPF:
		return zipf_next(&p->zipf, &s->rng);
	default:
		/* relaxed: the numbers need only be distinct */
		return p->lo + atomic_fetch_add_explicit(&p->cursor, 1, memory_order_relaxed) % (p->hi - p->lo);
	}
}

static inline bool slot_pick_write(struct slot *s, const struct run *r)
{
	if (r->mixed)
		return (uint32_t)(rng_next(&s->rng) >> 32) >= r->mix_read;
	return r->all_writes;
}

/**
 * Choose a slot's next I/O and stamp it: slot_fd(), off, len, is_write, buf are then what to do.
 *
 * @param now  the end of its last I/O, or the clock
 * @return false: the slot has ended
 */
static inline bool slot_next(struct slot *s, struct lane *l, uint64_t now)
{
	const struct run *r = l->run;

	if (__builtin_expect(r->odd || s->retry, 0))
		return slot_next_odd(s, l, now);
	/* relaxed: see run_stop() */
	if (now >= atomic_load_explicit(&r->deadline_ns, memory_order_relaxed) || s->left == 0) {
		lane_note_end(l);
		return false;
	}
	s->left--;
	slot_turn(s, r);
	s->off = s->part->base + slot_pick(s, r) * r->bs;
	s->is_write = slot_pick_write(s, r);
	s->start_ns = now;
	lane_begin_io(s, l, now);
	return true;
}

/* The I/O has been handed over: staged in a ring. Not for engines whose call does it all (psync). */
static inline void slot_staged(struct slot *s)
{
	if (s->sampled)
		s->staged_ns = clock_ns();
}

/* Count an I/O that has moved all its bytes. */
static inline void lane_count(struct lane *l, const struct slot *s, uint64_t now)
{
	unsigned dir = s->is_write ? DIR_WRITE : DIR_READ;

	/* relaxed, not a read-modify-write: one writer; the controller reads a figure for its display */
	atomic_store_explicit(&l->done[dir], atomic_load_explicit(&l->done[dir], memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (now < l->run->ramp_end_ns) {
		l->sample_left = 1;     /* so that the first I/O after the ramp is, and lane_note_begin() sees it */
		return;
	}
	if (__builtin_expect(l->extras, 0))
		lane_count_extras(l, s, now);
	hist_record(&l->lat[dir], now - s->start_ns);
	if (s->sampled && s->staged_ns) {
		hist_record(&l->slat[dir], s->staged_ns - s->begun_ns);
		hist_record(&l->clat[dir], now - s->staged_ns);
	}
	l->last_end_ns = now;
}

/**
 * An I/O has ended.
 *
 * @param res  bytes, or -errno
 * @return the clock, to be handed to slot_next()
 */
static inline uint64_t slot_done(struct slot *s, struct lane *l, int64_t res)
{
	uint64_t now = clock_ns();

	l->inflight--;
	if (__builtin_expect(res != s->len || l->run->verify, 0))
		return slot_done_odd(s, l, res, now);
	lane_count(l, s, now);
	return now;
}

#endif
