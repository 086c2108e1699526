/* SPDX-License-Identifier: MIT */
/*
 * The limit: what a bare io_uring loop gives on this machine, in this minute, with the same offsets, stamps and
 * histogram as the runtime. One thread a job, pinned, with a ring of its own; one system call a batch, which submits
 * what is staged, runs deferred work and waits for one completion; then everything that is there is reaped and the
 * next I/Os are staged. No registered buffers or files, as the runtime has none.
 *
 * The flags are those that measured best (SINGLE_ISSUER | DEFER_TASKRUN | TASKRUN_FLAG | SUBMIT_ALL), stripped step by
 * step where a kernel refuses them. Entering is done by hand, as liburing 2.3's wrappers skip the call when nothing is
 * staged and know only one form of wait.
 *
 * This is the one place outside the runtime's ring layer that knows liburing, so that nothing of the runtime is in it.
 */
#include <errno.h>
#include <liburing.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "job.h"

#define RAW_CQ_FACTOR 2u

struct raw_job {
	pthread_t id;
	struct job *job;
	struct lane *lane;
	struct io_uring ring;
	unsigned flags;                 /* granted */
	int enter_fd;                   /* index of the registered ring, or the descriptor */
	unsigned enter_flags;
	unsigned staged, inflight;
	struct slot **idle;             /* [iodepth] rate mode: slots without an I/O */
	unsigned idle_nr;
	int failed;
};

static struct raw_job *raw_jobs;        /* [jobs_nr] of the run; one run at a time */

/* --- the ring --- */

static const unsigned flag_tiers[] = {
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
	IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
	0,
};

static int open_ring(struct raw_job *w)
{
	unsigned entries = w->job->run->o->iodepth;
	int rc = -EINVAL;

	for (size_t i = 0; i < sizeof(flag_tiers) / sizeof(flag_tiers[0]) && rc == -EINVAL; i++) {
		struct io_uring_params p = {
			.flags = flag_tiers[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
			.cq_entries = entries * RAW_CQ_FACTOR,
		};

		rc = io_uring_queue_init_params(entries, &w->ring, &p);
		w->flags = p.flags;
	}
	if (rc)
		return rc;
	for (unsigned i = 0; i < *w->ring.sq.kring_entries; i++)
		w->ring.sq.array[i] = i;
	w->enter_fd = w->ring.ring_fd;
	if (io_uring_register_ring_fd(&w->ring) == 1) {
		w->enter_fd = w->ring.enter_ring_fd;
		w->enter_flags = IORING_ENTER_REGISTERED_RING;
	}
	return 0;
}

/* Submit what is staged and wait for `wait` completions, at most until `until_ns` (0: without end). */
static int enter(struct raw_job *w, unsigned wait, uint64_t until_ns)
{
	struct __kernel_timespec ts;
	struct io_uring_getevents_arg arg = { .ts = (uint64_t)(uintptr_t)&ts };
	unsigned flags = w->enter_flags | IORING_ENTER_GETEVENTS;
	void *argp = NULL;
	size_t arg_bytes = 0;
	long n;

	if (until_ns) {
		uint64_t now = clock_ns(), ns = until_ns > now ? until_ns - now : 0;

		ts.tv_sec = (long long)(ns / CLOCK_NS_PER_SEC);
		ts.tv_nsec = (long long)(ns % CLOCK_NS_PER_SEC);
		flags |= IORING_ENTER_EXT_ARG;
		argp = &arg;
		arg_bytes = sizeof(arg);
	}
	w->lane->enters++;
	n = syscall(SYS_io_uring_enter, w->enter_fd, w->staged, wait, flags, argp, arg_bytes);
	if (n < 0)
		return -errno;
	w->staged -= (unsigned)n;
	w->inflight += (unsigned)n;
	return 0;
}

static void stage(struct raw_job *w, struct slot *s)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);

	if (!sqe)
		abort();        /* as many entries as slots, and each slot has one I/O: cannot be full */
	if (s->is_write)
		io_uring_prep_write(sqe, slot_fd(s), s->buf, s->len, s->off);
	else
		io_uring_prep_read(sqe, slot_fd(s), s->buf, s->len, s->off);
	io_uring_sqe_set_data(sqe, s);
	w->staged++;
	slot_staged(s);
}

/* liburing keeps a tail of its own; the index array is the identity, so the kernel's need only follow. */
static void publish(struct raw_job *w)
{
	io_uring_smp_store_release(w->ring.sq.ktail, w->ring.sq.sqe_tail);
}

/* --- the loops --- */

/* Hand each finished slot to next(). */
static void reap(struct raw_job *w, void (*next)(struct raw_job *w, struct slot *s, uint64_t now))
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	io_uring_for_each_cqe(&w->ring, head, cqe) {
		struct slot *s = io_uring_cqe_get_data(cqe);

		w->inflight--;
		n++;
		next(w, s, slot_done(s, w->lane, cqe->res));
	}
	io_uring_cq_advance(&w->ring, n);
}

static bool is_transient(int rc)
{
	return rc == 0 || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc == -ETIME;
}

static void next_closed(struct raw_job *w, struct slot *s, uint64_t now)
{
	if (slot_next(s, w->lane, now))
		stage(w, s);
}

static int run_closed(struct raw_job *w)
{
	int rc = 0;

	for (unsigned i = 0; i < w->job->run->o->iodepth; i++)
		next_closed(w, &w->job->slots[i], clock_ns());
	while ((w->staged || w->inflight) && is_transient(rc)) {
		publish(w);
		rc = enter(w, 1, 0);
		reap(w, next_closed);
	}
	return is_transient(rc) ? 0 : rc;
}

static void next_paced(struct raw_job *w, struct slot *s, uint64_t now)
{
	if (s->retry && slot_next(s, w->lane, now))
		stage(w, s);
	else
		w->idle[w->idle_nr++] = s;
}

/*
 * Start what is due. A claimed start belongs to whichever slot is on top of the idle stack when its time comes. Slots
 * whose schedule has ended leave the stack.
 *
 * @param claim  the start claimed and not yet due, 0: none
 */
static void start_due(struct raw_job *w, uint64_t *claim)
{
	while (w->idle_nr) {
		struct slot *s = w->idle[w->idle_nr - 1];
		uint64_t now;

		if (!*claim) {
			if (!slot_claim(s, w->lane)) {
				w->idle_nr--;
				continue;
			}
			*claim = s->intended_ns;
		}
		now = clock_ns();
		if (*claim > now)
			return;
		s->intended_ns = *claim;
		*claim = 0;
		w->idle_nr--;
		if (slot_next(s, w->lane, now))
			stage(w, s);
	}
}

/* With a start ahead: sleep for it or, if it is near, only look. Without one: wait for a completion. */
static int wait_paced(struct raw_job *w, uint64_t claim)
{
	uint64_t wake = clock_ns() + JOB_NAP_NS_MAX;
	int rc;

	if (!w->idle_nr)
		return enter(w, 1, wake);
	w->idle[w->idle_nr - 1]->intended_ns = claim;
	if (!slot_must_sleep(w->idle[w->idle_nr - 1], w->lane, &wake))
		return enter(w, 0, 0);
	rc = enter(w, 1, wake);
	if (rc == -ETIME)
		lane_note_oversleep(w->lane, wake);
	return rc;
}

static int run_paced(struct raw_job *w)
{
	uint64_t claim = 0;
	int rc = 0;

	for (unsigned i = 0; i < w->job->run->o->iodepth; i++)
		w->idle[w->idle_nr++] = &w->job->slots[i];
	while (is_transient(rc)) {
		/* relaxed: see run_stop() */
		if (!atomic_load_explicit(&w->job->run->deadline_ns, memory_order_relaxed))
			w->idle_nr = 0;
		start_due(w, &claim);
		if (!w->idle_nr && !w->staged && !w->inflight)
			return 0;
		publish(w);
		rc = wait_paced(w, claim);
		reap(w, next_paced);
	}
	return rc;
}

/* --- threads --- */

static void pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set); /* a CPU that went away: it floats */
}

static void report_ready(struct raw_job *w, int rc)
{
	w->failed = rc;
	run_ended(w->job->run, 1);
}

static void *thread_main(void *arg)
{
	struct raw_job *w = arg;
	struct run *r = w->job->run;
	int rc;

	pin(w->job->cpu);
	rc = open_ring(w);
	report_ready(w, rc);
	if (rc)
		return NULL;
	run_wait_go(r);
	rc = r->o->rate_iops && r->pick != PICK_VERIFY ? run_paced(w) : run_closed(w);
	w->failed = rc;
	io_uring_queue_exit(&w->ring);
	run_ended(r, 1);
	return NULL;
}

static unsigned raw_lanes_nr(const struct bench_opts *o)
{
	return o->numjobs;
}

static void join_all(struct run *r, unsigned started)
{
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(raw_jobs[i].id, NULL);
	for (unsigned i = 0; i < r->jobs_nr; i++)
		free(raw_jobs[i].idle);
	free(raw_jobs);
	raw_jobs = NULL;
}

static const char *advice(int rc)
{
	switch (rc) {
	case -EPERM:
		return "; io_uring is forbidden here: sysctl kernel.io_uring_disabled, or a container's seccomp filter";
	case -ENOSYS:
		return "; this kernel has no io_uring";
	case -ENOMEM:
		return "; rings count against RLIMIT_MEMLOCK (ulimit -l)";
	default:
		return "";
	}
}

static int start_threads(struct run *r, unsigned *ret_started)
{
	for (unsigned i = 0; i < r->jobs_nr; i++) {
		struct raw_job *w = &raw_jobs[i];
		int rc;

		w->job = &r->jobs[i];
		w->lane = &r->lanes[i];
		w->idle = calloc(r->o->iodepth, sizeof(*w->idle));
		rc = w->idle ? -pthread_create(&w->id, NULL, thread_main, w) : -ENOMEM;
		if (rc)
			return rc;
		++*ret_started;
	}
	return 0;
}

/* Every started thread says once that its ring is there, or why not. */
static int wait_ready(struct run *r, unsigned started)
{
	(void)pthread_mutex_lock(&r->lock);
	while (r->running > r->jobs_nr - started)
		(void)pthread_cond_wait(&r->changed, &r->lock);
	(void)pthread_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < started; i++) {
		if (raw_jobs[i].failed)
			return raw_jobs[i].failed;
	}
	return 0;
}

static int raw_start(struct run *r)
{
	unsigned started = 0;
	int rc, ready;

	raw_jobs = calloc(r->jobs_nr, sizeof(*raw_jobs));
	if (!raw_jobs)
		return -ENOMEM;
	r->running = r->jobs_nr;
	rc = start_threads(r, &started);
	ready = wait_ready(r, started);
	r->running = r->jobs_nr;        /* no thread counts now: they have reported and wait, or have ended */
	if (rc == 0)
		rc = ready;
	if (rc == 0)
		return 0;
	fprintf(stderr, "martlet bench: raw: no ring or thread: %s%s\n", strerror(-rc), advice(rc));
	run_stop(r);            /* threads that wait for go run into a deadline that has passed */
	run_go(r);
	join_all(r, started);
	return rc;
}

static void raw_go(struct run *r)
{
	(void)r;                /* the controller has released them */
}

static void describe_ring(const struct raw_job *w, char *buf, size_t buf_bytes)
{
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {
		{ IORING_SETUP_SINGLE_ISSUER, "SINGLE_ISSUER " }, { IORING_SETUP_DEFER_TASKRUN, "DEFER_TASKRUN " },
		{ IORING_SETUP_COOP_TASKRUN, "COOP_TASKRUN " }, { IORING_SETUP_TASKRUN_FLAG, "TASKRUN_FLAG " },
		{ IORING_SETUP_SUBMIT_ALL, "SUBMIT_ALL " }, { IORING_SETUP_CQSIZE, "CQSIZE " },
		{ IORING_SETUP_CLAMP, "CLAMP " },
	};
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (w->flags & names[i].bit && at < buf_bytes)
			at += (size_t)snprintf(buf + at, buf_bytes - at, "%s", names[i].name);
	}
	if (at < buf_bytes)
		snprintf(buf + at, buf_bytes - at, "ring fd %sregistered%s", w->enter_flags ? "" : "not ",
			 w->flags & IORING_SETUP_DEFER_TASKRUN ? "" : "; fell back: this kernel refuses DEFER_TASKRUN");
}

static void raw_finish(struct run *r)
{
	describe_ring(&raw_jobs[0], r->note.ring, sizeof(r->note.ring));
	for (unsigned i = 0; i < r->jobs_nr; i++) {
		r->note.enters += r->lanes[i].enters;
		if (raw_jobs[i].failed && !r->failed) {
			r->failed = raw_jobs[i].failed;
			fprintf(stderr, "martlet bench: raw: io_uring_enter: %s\n", strerror(-r->failed));
		}
	}
	snprintf(r->note.what, sizeof(r->note.what), "%u thread%s with a bare ring each, pinned, no registered buffers "
		 "or files", r->jobs_nr, r->jobs_nr == 1 ? "" : "s");
	join_all(r, r->jobs_nr);
}

const struct engine engine_raw = {
	.name = "raw",
	.lanes_nr = raw_lanes_nr,
	.start = raw_start,
	.go = raw_go,
	.finish = raw_finish,
};
