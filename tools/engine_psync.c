/* SPDX-License-Identifier: MIT */
/*
 * The baseline: plain threads in pread() and pwrite(). A thread has one I/O at a time, so a depth of N is N threads a
 * job. They are not pinned one by one but may run on all CPUs allowed, which is how such programs are run; so with one
 * job it may use more CPUs than the ring engines' one thread, and CPU per I/O is the figure to compare.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "job.h"
#include "target.h"

struct psync_thread {
	pthread_t id;
	struct slot *slot;
	struct lane *lane;
	int fd[OPTS_TARGETS_MAX];       /* its own: shared ones would have them all count references to one file */
};

static struct psync_thread *threads;   /* [lanes_nr] of the run; one run at a time */

static int64_t do_io(const struct psync_thread *t)
{
	const struct slot *s = t->slot;
	int fd = t->fd[s->part->target];
	ssize_t n = s->is_write ? pwrite(fd, s->buf, s->len, (off_t)s->off) : pread(fd, s->buf, s->len, (off_t)s->off);

	return n < 0 ? -errno : n;
}

static void wait_for_start(struct psync_thread *t)
{
	uint64_t wake;

	while (slot_must_sleep(t->slot, t->lane, &wake)) {
		struct timespec until = clock_timespec(wake);

		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL); /* cut short: look again */
		lane_note_oversleep(t->lane, wake);
	}
	while (slot_must_poll(t->slot, t->lane))
		(void)sched_yield(); /* cannot fail on Linux */
}

static void run_closed(struct psync_thread *t)
{
	uint64_t now = clock_ns();

	while (slot_next(t->slot, t->lane, now))
		now = slot_done(t->slot, t->lane, do_io(t));
}

static void run_paced(struct psync_thread *t)
{
	while (slot_claim(t->slot, t->lane)) {
		wait_for_start(t);
		if (!slot_next(t->slot, t->lane, clock_ns()))
			break;
		(void)slot_done(t->slot, t->lane, do_io(t));
	}
}

static void *thread_main(void *arg)
{
	struct psync_thread *t = arg;
	struct run *r = t->lane->run;

	(void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* sleeps are then late by microseconds, not by 50 more */
	run_wait_go(r);
	if (r->o->rate_iops && r->pick != PICK_VERIFY)
		run_paced(t);
	else
		run_closed(t);
	run_ended(r, 1);
	return NULL;
}

static unsigned psync_lanes_nr(const struct bench_opts *o)
{
	return o->numjobs * o->iodepth;
}

static void join_all(struct run *r, unsigned started)
{
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(threads[i].id, NULL);
	for (unsigned i = 0; i < r->lanes_nr; i++) {
		for (unsigned k = 0; k < r->targets_nr; k++) {
			if (threads[i].fd[k] >= 0)
				(void)close(threads[i].fd[k]); /* data was synced where it matters */
		}
	}
	free(threads);
	threads = NULL;
}

/* Threads that did start must end: with the deadline at 0 they do no I/O. */
static int give_up(struct run *r, unsigned started, int rc)
{
	fprintf(stderr, "martlet bench: psync: thread %u of %u: %s\n", started + 1, r->lanes_nr, strerror(-rc));
	run_stop(r);
	run_go(r);
	join_all(r, started);
	return rc;
}

static int open_all(struct psync_thread *t, const struct run *r)
{
	for (unsigned k = 0; k < r->targets_nr; k++) {
		t->fd[k] = target_reopen(&r->targets->t[k], r->o);
		if (t->fd[k] < 0)
			return t->fd[k];
	}
	return 0;
}

static int psync_start(struct run *r)
{
	threads = calloc(r->lanes_nr, sizeof(*threads));
	if (!threads)
		return -ENOMEM;
	r->running = r->lanes_nr;
	for (unsigned i = 0; i < r->lanes_nr; i++)
		memset(threads[i].fd, -1, sizeof(threads[i].fd));
	for (unsigned i = 0; i < r->lanes_nr; i++) {
		struct psync_thread *t = &threads[i];
		int rc;

		t->slot = &r->slots[i];
		t->lane = &r->lanes[i];
		rc = open_all(t, r);
		if (rc == 0)
			rc = -pthread_create(&t->id, NULL, thread_main, t);
		if (rc)
			return give_up(r, i, rc);
	}
	return 0;
}

static void psync_go(struct run *r)
{
	(void)r;                /* the controller has released them */
}

static void psync_finish(struct run *r)
{
	snprintf(r->note.what, sizeof(r->note.what), "%u threads in %s, on all %d CPUs allowed", r->lanes_nr,
		 r->mixed ? "pread and pwrite" : r->all_writes ? "pwrite" : "pread", CPU_COUNT(&r->o->cpus));
	join_all(r, r->lanes_nr);
}

const struct engine engine_psync = {
	.name = "psync",
	.lanes_nr = psync_lanes_nr,
	.start = psync_start,
	.go = psync_go,
	.finish = psync_finish,
};
