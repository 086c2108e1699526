/* SPDX-License-Identifier: MIT */
/*
 * The limit: what a bare io_uring loop gives on this machine, in this minute, with the same offsets, stamps and
 * histogram as the runtime. One thread a job, pinned, with a ring of its own; one system call a batch, which submits
 * what is staged, runs deferred work and waits for one completion; then everything that is there is reaped and the
 * next I/Os are staged. What the fast path's options ask for is done as one would by hand: a job's buffers are one
 * registered region (with commands one each), its file is slot 0 of a table, commands go into 128-byte entries.
 *
 * The flags are those that measured best (SINGLE_ISSUER | DEFER_TASKRUN | TASKRUN_FLAG | SUBMIT_ALL | NO_SQARRAY),
 * stripped step by step where a kernel refuses them. Entering is done by hand, as liburing 2.3's wrappers skip the call
 * when nothing is staged and know only one form of wait.
 *
 * As in fio's t/io_uring, the loop that people quote, there is no index array (NO_SQARRAY), and the system call stands in
 * line, without the C library's wrapper.
 *
 * With a kernel thread that submits, the loop spins for a while on the completion queue before it sleeps: whoever gives
 * a CPU to submission has one to give to this as well.
 *
 * This is the one place outside the runtime's ring layer that knows liburing, so that nothing of the runtime is in it.
 */
#include <errno.h>
#include <liburing.h>
#include <linux/nvme_ioctl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "job.h"
#include "target.h"

#define RAW_CQ_FACTOR 2u
#define RAW_SPIN_NS (50 * CLOCK_NS_PER_US)
#define RAW_SQ_IDLE_MS 1000u

/* Newer than liburing 2.3: kernel 6.13. */
#ifndef IORING_SETUP_HYBRID_IOPOLL
#define IORING_SETUP_HYBRID_IOPOLL (1u << 17)
#endif

/* 6.6 */
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1u << 16)
#endif

#define NVME_CMD_WRITE 0x01
#define NVME_CMD_READ 0x02

struct raw_job {
	pthread_t id;
	struct job *job;
	struct lane *lane;
	struct io_uring ring;
	unsigned flags;                 /* granted */
	const char *refused;            /* of what was asked: in words, or NULL */
	unsigned sqe_flags;
	unsigned char opcode[DIRS_NR];
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
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL |
		IORING_SETUP_NO_SQARRAY,
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
	IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
	0,
};

/* The kernel thread runs the task work: nothing to defer. */
static const unsigned flag_tiers_sqpoll[] = {
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_NO_SQARRAY,
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_SUBMIT_ALL,
	0,
	0,
};

#define TIERS_NR (sizeof(flag_tiers) / sizeof(flag_tiers[0]))

/* Where the kernel thread runs: as asked, or on an allowed CPU without a job. -1: there is none, it shares. */
static int sq_cpu(const struct run *r)
{
	int cpu = r->o->fast.sqpoll_cpu;

	for (int i = 0; i < CPU_SETSIZE && cpu < 0; i++) {
		bool taken = !CPU_ISSET((size_t)i, &r->o->cpus);

		for (unsigned k = 0; k < r->jobs_nr && !taken; k++)
			taken = r->jobs[k].cpu == i;
		if (!taken)
			cpu = i;
	}
	return cpu;
}

static bool can_poll(const struct run *r)
{
	for (unsigned i = 0; i < r->targets_nr; i++) {
		if (!r->targets->t[i].io_poll)
			return false;
	}
	return true;
}

static unsigned asked_flags(const struct run *r)
{
	const struct opts_fast *f = &r->o->fast;
	unsigned flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;

	if (f->sqpoll)
		flags |= IORING_SETUP_SQPOLL | (sq_cpu(r) >= 0 ? IORING_SETUP_SQ_AFF : 0);
	if (f->hipri && can_poll(r))
		flags |= IORING_SETUP_IOPOLL | (f->hybrid ? IORING_SETUP_HYBRID_IOPOLL : 0);
	if (f->nvme)
		flags |= IORING_SETUP_SQE128 | IORING_SETUP_CQE32;
	return flags;
}

/* By hand, since liburing 2.3 would write an index array over the head of a ring that has none. */
static int set_up(struct io_uring *ring, unsigned entries, struct io_uring_params *p)
{
	long fd = syscall(SYS_io_uring_setup, entries, p);
	int rc;

	if (fd < 0)
		return -errno;
	rc = io_uring_queue_mmap((int)fd, p, ring);
	if (rc)
		(void)close((int)fd); /* nothing was done with it */
	return rc;
}

static int open_tiers(struct raw_job *w, unsigned asked)
{
	const struct opts_fast *f = &w->job->run->o->fast;
	const unsigned *tier = f->sqpoll ? flag_tiers_sqpoll : flag_tiers;
	/* a kernel thread gives entries back only at the end of its batch, after completions have shown */
	unsigned entries = w->job->run->o->iodepth * (f->sqpoll ? 2 : 1);
	int rc = -EINVAL;

	for (size_t i = 0; i < TIERS_NR && rc == -EINVAL; i++) {
		struct io_uring_params p = {
			.flags = tier[i] | asked,
			.cq_entries = entries * RAW_CQ_FACTOR,
			.sq_thread_cpu = asked & IORING_SETUP_SQ_AFF ? (unsigned)sq_cpu(w->job->run) : 0,
			.sq_thread_idle = f->sqpoll_idle_ms ? f->sqpoll_idle_ms : RAW_SQ_IDLE_MS,
		};

		rc = set_up(&w->ring, entries, &p);
		w->flags = p.flags;
	}
	return rc;
}

/* Slot k of the table is target k. */
static int register_files(struct raw_job *w)
{
	struct part *parts = w->job->parts;
	int fds[OPTS_TARGETS_MAX] = { 0 }, rc;
	unsigned nr = w->job->run->targets_nr;

	for (unsigned i = 0; i < nr; i++)
		fds[i] = parts[i].fd;
	rc = io_uring_register_files(&w->ring, fds, nr);
	if (rc)
		return rc;
	for (unsigned i = 0; i < nr; i++)
		parts[i].io_fd = (int)i;
	w->sqe_flags = IOSQE_FIXED_FILE;
	return 0;
}

/*
 * One region for all of a job's buffers. With commands one for each: kernels before 6.2 count the pages from the buffer to
 * the end of its region against the most that a command may have.
 */
static int register_buffers(struct raw_job *w)
{
	const struct run *r = w->job->run;
	unsigned depth = r->o->iodepth, nr = r->o->fast.nvme ? depth : 1;
	struct iovec iov[OPTS_IODEPTH_MAX];

	iov[0] = (struct iovec){ w->job->slots[0].buf, r->buffers_bytes / r->jobs_nr };
	for (unsigned i = 0; r->o->fast.nvme && i < depth; i++)
		iov[i] = (struct iovec){ w->job->slots[i].buf, w->job->slots[i].len };
	return io_uring_register_buffers(&w->ring, iov, nr);
}

static int register_resources(struct raw_job *w)
{
	const struct run *r = w->job->run;
	int rc = 0;

	w->opcode[DIR_READ] = IORING_OP_READ;
	w->opcode[DIR_WRITE] = IORING_OP_WRITE;
	if (r->o->fast.fixedbufs) {
		rc = register_buffers(w);
		w->opcode[DIR_READ] = IORING_OP_READ_FIXED;
		w->opcode[DIR_WRITE] = IORING_OP_WRITE_FIXED;
	}
	if (rc == 0 && r->o->fast.registerfiles)
		rc = register_files(w);
	return rc;
}

static int open_ring(struct raw_job *w)
{
	const struct run *r = w->job->run;
	unsigned asked = asked_flags(r);
	int rc = open_tiers(w, asked);

	if (r->o->fast.hipri && !can_poll(r))
		w->refused = "the device has no poll queues, so nothing is polled";
	if (r->o->fast.sqpoll && sq_cpu(r) < 0)
		w->refused = "the thread that submits has no CPU of its own: figures say little";
	if (rc == -EINVAL && asked & IORING_SETUP_HYBRID_IOPOLL) {
		w->refused = "this kernel has no hybrid polling";
		rc = open_tiers(w, asked & ~IORING_SETUP_HYBRID_IOPOLL);
	}
	if (rc)
		return rc;
	for (unsigned i = 0; !(w->flags & IORING_SETUP_NO_SQARRAY) && i < *w->ring.sq.kring_entries; i++)
		w->ring.sq.array[i] = i;
	w->enter_fd = w->ring.ring_fd;
	if (io_uring_register_ring_fd(&w->ring) == 1) {
		w->enter_fd = w->ring.enter_ring_fd;
		w->enter_flags = IORING_ENTER_REGISTERED_RING;
	}
	rc = register_resources(w);
	if (rc)
		io_uring_queue_exit(&w->ring);
	return rc;
}

/* Returns what the kernel does: -errno. */
static inline long call_enter(int fd, unsigned submit, unsigned wait, unsigned flags, void *arg, size_t arg_bytes)
{
#ifdef __x86_64__
	register void *r10 __asm__("r10") = (void *)(uintptr_t)flags;
	register void *r8 __asm__("r8") = arg;
	register size_t r9 __asm__("r9") = arg_bytes;
	long n = SYS_io_uring_enter;

	__asm__ volatile("syscall"
			 : "+a"(n)
			 : "D"((long)fd), "S"((long)submit), "d"((long)wait), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return n;
#else
	long n = syscall(SYS_io_uring_enter, fd, submit, wait, flags, arg, arg_bytes);

	return n < 0 ? -errno : n;
#endif
}

/* One system call. Submit what is staged and wait for `wait` completions, at most until `until_ns` (0: without end). */
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
	n = call_enter(w->enter_fd, w->staged, wait, flags, argp, arg_bytes);
	if (n < 0)
		return (int)n;
	w->staged -= (unsigned)n;
	w->inflight += (unsigned)n;
	return 0;
}

/* The same where a kernel thread submits: it sees what is published, and is woken if it sleeps. */
static int drive_sq_thread(struct raw_job *w, unsigned wait, uint64_t until_ns)
{
	uint64_t spin_end = 0;

	w->inflight += w->staged;
	w->staged = 0;
	/* [RAW.sqpoll.dekker] the tail is out before the flag is read; pairs with the thread's: flag, then tail */
	atomic_thread_fence(memory_order_seq_cst);
	if (IO_URING_READ_ONCE(*w->ring.sq.kflags) & IORING_SQ_NEED_WAKEUP) {
		long n = call_enter(w->enter_fd, 0, 0, w->enter_flags | IORING_ENTER_SQ_WAKEUP, NULL, 0);

		w->lane->enters++;
		if (n < 0)
			return (int)n;
	}
	while (wait && !io_uring_cq_ready(&w->ring)) {
		uint64_t now = clock_ns();

		if (!spin_end)
			spin_end = now + RAW_SPIN_NS;
		if (now >= spin_end)
			return enter(w, wait, until_ns);
	}
	return 0;
}

static int drive(struct raw_job *w, unsigned wait, uint64_t until_ns)
{
	return w->flags & IORING_SETUP_SQPOLL ? drive_sq_thread(w, wait, until_ns) : enter(w, wait, until_ns);
}

/* The command lies where an SQE's address 3 and beyond would be; nlb counts from 0. */
static void prep_command(struct raw_job *w, struct io_uring_sqe *sqe, const struct slot *s)
{
	const struct target *t = &w->job->run->targets->t[s->part->target];
	struct nvme_uring_cmd *cmd = (struct nvme_uring_cmd *)(void *)((char *)sqe + offsetof(struct io_uring_sqe, cmd));
	uint64_t lba = s->off >> t->nvme_lba_shift;

	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = slot_fd(s);
	sqe->cmd_op = NVME_URING_CMD_IO;
	if (w->job->run->o->fast.fixedbufs) {
		sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		sqe->buf_index = (uint16_t)(s - w->job->slots);
	}
	cmd->opcode = s->is_write ? NVME_CMD_WRITE : NVME_CMD_READ;
	cmd->nsid = t->nvme_nsid;
	cmd->addr = (uint64_t)(uintptr_t)s->buf;
	cmd->data_len = s->len;
	cmd->cdw10 = (uint32_t)lba;
	cmd->cdw11 = (uint32_t)(lba >> 32);
	cmd->cdw12 = (s->len >> t->nvme_lba_shift) - 1;
}

static void stage(struct raw_job *w, struct slot *s)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);

	if (!sqe)
		abort();        /* entries for all slots, and each slot has one I/O: cannot be full */
	if (w->flags & IORING_SETUP_SQE128)
		prep_command(w, sqe, s);
	else
		io_uring_prep_rw(w->opcode[s->is_write ? DIR_WRITE : DIR_READ], sqe, slot_fd(s), s->buf, s->len, s->off);
	sqe->flags = (uint8_t)w->sqe_flags;
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

/* A command's result is 0, or the status that the device gave; the rest of this tool counts bytes. */
static int64_t result_of(const struct raw_job *w, const struct slot *s, int res)
{
	if (!(w->flags & IORING_SETUP_SQE128) || res < 0)
		return res;
	return res == 0 ? (int64_t)s->len : -EIO;
}

/* Hand each finished slot to next(). */
static void reap(struct raw_job *w, void (*next)(struct raw_job *w, struct slot *s, uint64_t now))
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	io_uring_for_each_cqe(&w->ring, head, cqe) {
		struct slot *s = io_uring_cqe_get_data(cqe);

		w->inflight--;
		n++;
		next(w, s, slot_done(s, w->lane, result_of(w, s, cqe->res)));
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
		rc = drive(w, 1, 0);
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
		return drive(w, 1, wake);
	w->idle[w->idle_nr - 1]->intended_ns = claim;
	/* a polled ring does not sleep */
	if (w->flags & IORING_SETUP_IOPOLL || !slot_must_sleep(w->idle[w->idle_nr - 1], w->lane, &wake))
		return drive(w, 0, 0);
	rc = drive(w, 1, wake);
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
		return "; rings and registered buffers count against RLIMIT_MEMLOCK (ulimit -l)";
	case -EFAULT:
		return "; a registered region is at most 1 GiB: less depth or a smaller block size";
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
		{ IORING_SETUP_SUBMIT_ALL, "SUBMIT_ALL " },
		{ IORING_SETUP_NO_SQARRAY, "NO_SQARRAY " }, { IORING_SETUP_CQSIZE, "CQSIZE " },
		{ IORING_SETUP_CLAMP, "CLAMP " }, { IORING_SETUP_SQPOLL, "SQPOLL " }, { IORING_SETUP_SQ_AFF, "SQ_AFF " },
		{ IORING_SETUP_IOPOLL, "IOPOLL " }, { IORING_SETUP_HYBRID_IOPOLL, "HYBRID_IOPOLL " },
		{ IORING_SETUP_SQE128, "SQE128 " }, { IORING_SETUP_CQE32, "CQE32 " },
	};
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (w->flags & names[i].bit && at < buf_bytes)
			at += (size_t)snprintf(buf + at, buf_bytes - at, "%s", names[i].name);
	}
	if (at < buf_bytes)
		snprintf(buf + at, buf_bytes - at, "ring fd %sregistered%s", w->enter_flags ? "" : "not ",
			 w->flags & (IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SQPOLL) ? "" :
			 "; fell back: this kernel refuses DEFER_TASKRUN");
}

static void describe_rung(const struct raw_job *w, struct engine_note *n)
{
	const struct bench_opts *o = w->job->run->o;
	bool polled = w->flags & IORING_SETUP_IOPOLL;

	snprintf(n->rung, sizeof(n->rung), "%s", rung_names[o->fast.nvme ? RUNG_PASSTHROUGH : polled ? RUNG_POLLED :
		 o->fast.registerfiles ? RUNG_FIXED_FILE : o->fast.fixedbufs ? RUNG_FIXED_BUFFER :
		 o->direct ? RUNG_DIRECT : RUNG_BUFFERED]);
	snprintf(n->rung_text, sizeof(n->rung_text), "%s%s%s%s%s%s%s", o->direct || o->fast.nvme ? "direct" : "buffered",
		 o->fast.fixedbufs ? ", registered buffers" : "", o->fast.registerfiles ? ", registered file" : "",
		 polled ? ", polled" : "", o->fast.nvme ? ", NVMe commands" : "", w->refused ? "; " : "",
		 w->refused ? w->refused : "");
}

static void raw_finish(struct run *r)
{
	describe_ring(&raw_jobs[0], r->note.ring, sizeof(r->note.ring));
	describe_rung(&raw_jobs[0], &r->note);
	for (unsigned i = 0; i < r->jobs_nr; i++) {
		r->note.enters += r->lanes[i].enters;
		if (raw_jobs[i].failed && !r->failed) {
			r->failed = raw_jobs[i].failed;
			fprintf(stderr, "martlet bench: raw: io_uring_enter: %s\n", strerror(-r->failed));
		}
	}
	snprintf(r->note.what, sizeof(r->note.what), "%u thread%s with a bare ring each, pinned", r->jobs_nr,
		 r->jobs_nr == 1 ? "" : "s");
	join_all(r, r->jobs_nr);
}

const struct engine engine_raw = {
	.name = "raw",
	.lanes_nr = raw_lanes_nr,
	.start = raw_start,
	.go = raw_go,
	.finish = raw_finish,
};
