/* SPDX-License-Identifier: MIT */
/*
 * The part of job.h that is not on the plain read path: laying out a run, and the I/Os that are checked, paced, short
 * or failed.
 *
 * Regions. Random jobs share the whole region. Sequential jobs split it into contiguous parts, one each, and wrap
 * around in theirs; so N jobs read all of it once where fio's jobs would each read the same.
 *
 * Several targets. Every job is on all of them, and its I/Os go to them in turn, as fio's do (file_service_type
 * roundrobin). A pass that ends skips the targets that it has finished.
 */
#include "job.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "target.h"
#include "verify.h"

const char *const rung_names[RUNGS_NR] = {
	[RUNG_BUFFERED] = "buffered", [RUNG_DIRECT] = "direct", [RUNG_FIXED_BUFFER] = "fixed buffer",
	[RUNG_FIXED_FILE] = "fixed file", [RUNG_POLLED] = "polled", [RUNG_PASSTHROUGH] = "passthrough",
};

#define LATE_NS UINT64_C(100000)        /* a start this much after its intended time is counted as late */
#define PICK_TRIES_MAX 64u

/* --- lay-out --- */

static void *map_zeroed(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

#define HUGE_BYTES ((size_t)2 << 20)

/* Memory that is going to be registered is scattered as little as the machine allows: in huge pages. */
char *job_map_buffers(const struct run *r)
{
	size_t bytes = (r->buffers_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1), lead;
	char *p;

	if (!r->o->fast.fixedbufs)
		return map_zeroed(r->buffers_bytes);
	p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	lead = -(uintptr_t)p & (HUGE_BYTES - 1);
	if (lead)
		(void)munmap(p, lead);
	(void)munmap(p + lead + bytes, HUGE_BYTES - lead);
	(void)madvise(p + lead, bytes, MADV_HUGEPAGE); /* an optimisation */
	memset(p + lead, 0, r->buffers_bytes);
	return p + lead;
}

void job_unmap_buffers(struct run *r)
{
	size_t bytes = r->buffers_bytes;

	if (r->o->fast.fixedbufs)
		bytes = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
	(void)munmap(r->buffers, bytes);
}

static void init_lane(struct lane *l, struct run *r, struct target_count *counts)
{
	/* fresh mappings are zero: only what must not be */
	l->run = r;
	l->per_target = counts;
	l->extras = counts != NULL;
	l->sample_left = 1;
	l->lead_ns = JOB_LEAD_NS_START;
	l->pacing.min = UINT64_MAX;
	for (unsigned d = 0; d < DIRS_NR; d++)
		l->lat[d].min = l->slat[d].min = l->clat[d].min = UINT64_MAX;
}

static int nth_cpu(const cpu_set_t *set, unsigned n)
{
	unsigned count = (unsigned)CPU_COUNT(set), want = count ? n % count : 0;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET((size_t)cpu, set) && want-- == 0)
			return cpu;
	}
	return -1;
}

static uint64_t ios_per_job(const struct run *r, bool read_back)
{
	const struct bench_opts *o = r->o;
	uint64_t by_size = o->io_size ? o->io_size / o->bs : UINT64_MAX;

	if (read_back)
		return UINT64_MAX;
	if (o->number_ios && o->number_ios < by_size)
		return o->number_ios;
	return by_size;
}

static void init_slot(struct slot *s, struct job *j, unsigned nth, bool read_back)
{
	struct run *r = j->run;
	unsigned depth = r->o->iodepth, idx = j->idx * depth + nth;
	uint64_t ios = ios_per_job(r, read_back);

	s->job = j;
	s->part = j->parts;
	s->buf = r->buffers + (size_t)idx * (r->buffers_bytes / r->slots_nr);
	s->len = r->bs;
	s->rng = rng_seed(r->o->seed ^ (uint64_t)(idx + 1) << 32);
	s->left = ios == UINT64_MAX ? ios : ios / depth + (nth < ios % depth);
}

static void init_part(struct part *p, const struct job *j, const struct target *t, uint64_t first)
{
	const struct run *r = j->run;

	p->target = t->idx;
	p->base = t->off;
	p->blocks = t->len / r->bs;
	p->first = first;
	p->lo = p->blocks * j->idx / r->jobs_nr;
	p->hi = p->blocks * (j->idx + 1) / r->jobs_nr;
	if (r->pick == PICK_ZIPF)
		zipf_init(&p->zipf, p->blocks, r->o->zipf_theta, r->o->seed + t->idx);
}

static int init_job(struct job *j, struct run *r, unsigned idx, bool read_back)
{
	const struct bench_opts *o = r->o;
	uint64_t first = 0;

	j->run = r;
	j->idx = idx;
	j->slots = r->slots + (size_t)idx * o->iodepth;
	j->parts = r->parts + (size_t)idx * r->targets_nr;
	if (o->rate_iops)
		pace_init(&j->pace, o->rate_iops, o->rate_poisson, o->seed + idx);
	for (unsigned i = 0; i < o->iodepth; i++)
		init_slot(&j->slots[i], j, i, read_back);
	for (unsigned i = 0; i < r->targets_nr; i++) {
		struct part *p = &j->parts[i];

		init_part(p, j, &r->targets->t[i], first);
		first += p->blocks;
		p->fd = target_reopen(&r->targets->t[i], o);
		if (p->fd < 0)
			return p->fd;
		p->io_fd = p->fd;
	}
	return 0;
}

static void fill_buffers(struct run *r)
{
	uint64_t state = rng_seed(r->o->seed);

	for (size_t i = 0; i < r->buffers_bytes; i += 8) {
		uint64_t word = rng_next(&state);

		memcpy(r->buffers + i, &word, 8);
	}
}

/* The engine's own memory, or plain. */
static int allocate_buffers(struct run *r)
{
	size_t stride = ((size_t)r->bs + 4095) & ~(size_t)4095;
	int rc;

	r->buffers_bytes = r->slots_nr * stride;
	if (!r->engine->open) {
		r->buffers = job_map_buffers(r);
		return r->buffers ? 0 : -ENOMEM;
	}
	rc = r->engine->open(r);
	r->opened = rc == 0;
	return rc;
}

static int allocate(struct run *r)
{
	size_t parts_bytes;

	r->lanes_nr = r->engine->lanes_nr(r->o);
	r->slots_nr = r->jobs_nr * r->o->iodepth;
	parts_bytes = (size_t)r->jobs_nr * r->targets_nr * sizeof(*r->parts);
	r->parts = aligned_alloc(128, parts_bytes);
	if (r->targets_nr > 1)
		r->counts = calloc((size_t)r->lanes_nr * r->targets_nr, sizeof(*r->counts));
	r->jobs = aligned_alloc(128, r->jobs_nr * sizeof(*r->jobs));
	r->slots = aligned_alloc(64, r->slots_nr * sizeof(*r->slots));
	r->lanes = map_zeroed(r->lanes_nr * sizeof(*r->lanes));
	if (r->parts) {
		memset(r->parts, 0, parts_bytes);
		for (size_t i = 0; i < (size_t)r->jobs_nr * r->targets_nr; i++)
			r->parts[i].fd = r->parts[i].io_fd = -1;
	}
	if (!r->parts || !r->jobs || !r->slots || !r->lanes || (r->targets_nr > 1 && !r->counts))
		return -ENOMEM;
	memset(r->jobs, 0, r->jobs_nr * sizeof(*r->jobs));
	memset(r->slots, 0, r->slots_nr * sizeof(*r->slots));
	for (unsigned i = 0; i < r->jobs_nr; i++)
		r->jobs[i].cpu = nth_cpu(&r->o->cpus, i);
	for (unsigned i = 0; i < r->lanes_nr; i++)
		init_lane(&r->lanes[i], r, r->counts ? r->counts + (size_t)i * r->targets_nr : NULL);
	return allocate_buffers(r);
}

static void choose_work(struct run *r, bool read_back)
{
	const struct bench_opts *o = r->o;

	r->random = o->random && !read_back;
	r->mixed = o->reads && o->writes && !read_back;
	r->all_writes = o->writes && !o->reads && !read_back;
	r->mix_read = (uint32_t)((double)o->rwmixread / 100 * UINT32_MAX);
	r->odd = r->verify || (o->rate_iops && !read_back);
	r->once = o->verify && !o->random && !o->runtime_given && !o->number_ios && !o->io_size;
	if (read_back)
		r->pick = PICK_VERIFY;
	else if (!o->random)
		r->pick = PICK_SEQ;
	else
		r->pick = o->dist == DIST_ZIPF ? PICK_ZIPF : PICK_UNIFORM;
}

static void init_sync(struct run *r)
{
	pthread_condattr_t monotonic;

	/* none of these can fail with valid arguments on Linux */
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&r->lock, NULL);
	(void)pthread_cond_init(&r->changed, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
}

/* Equal shares of the memory, touched now, so that the run takes no page fault for them. */
static int allocate_logs(struct run *r)
{
	uint64_t each = r->o->log_mem / r->lanes_nr / sizeof(struct lat_entry);

	if (each == 0)
		each = 1;
	r->log_bytes = each * r->lanes_nr * sizeof(struct lat_entry);
	r->log_entries = map_zeroed(r->log_bytes);
	r->logs = aligned_alloc(128, r->lanes_nr * sizeof(*r->logs));
	if (!r->log_entries || !r->logs)
		return -ENOMEM;
	memset(r->logs, 0, r->lanes_nr * sizeof(*r->logs));
	for (unsigned i = 0; i < r->lanes_nr; i++) {
		r->logs[i].entries = r->log_entries + i * each;
		r->logs[i].max = each;
		r->logs[i].interval_ns = r->o->log_avg_given ? r->o->log_avg_ms * CLOCK_NS_PER_MS : 0;
		r->lanes[i].log = &r->logs[i];
		r->lanes[i].extras = true;
	}
	return 0;
}

int run_init(struct run *r, const struct bench_opts *o, const struct targets *ts, const struct engine *e,
	     struct verify *v, bool read_back)
{
	int rc;

	memset(r, 0, sizeof(*r));
	init_sync(r);
	r->o = o;
	r->targets = ts;
	r->targets_nr = ts->nr;
	r->verify = v;
	r->engine = e;
	r->bs = (uint32_t)o->bs;
	r->slat_sample = o->slat_sample;
	r->jobs_nr = o->numjobs;
	choose_work(r, read_back);
	rc = allocate(r);
	if (rc == 0 && o->lat_log && !read_back)
		rc = allocate_logs(r);
	for (unsigned i = 0; i < r->jobs_nr && rc == 0; i++)
		rc = init_job(&r->jobs[i], r, i, read_back);
	if (rc == 0 && o->writes)
		fill_buffers(r);
	if (rc)
		run_fini(r);
	return rc;
}

void run_fini(struct run *r)
{
	for (size_t i = 0; r->parts && i < (size_t)r->jobs_nr * r->targets_nr; i++) {
		if (r->parts[i].fd >= 0)
			(void)close(r->parts[i].fd); /* data was synced where it matters */
	}
	if (r->lanes)
		(void)munmap(r->lanes, r->lanes_nr * sizeof(*r->lanes));
	if (r->opened)
		r->engine->close(r);
	else if (r->buffers)
		job_unmap_buffers(r);
	if (r->log_entries)
		(void)munmap(r->log_entries, r->log_bytes);
	free(r->logs);
	free(r->counts);
	free(r->parts);
	free(r->slots);
	free(r->jobs);
	(void)pthread_cond_destroy(&r->changed);
	(void)pthread_mutex_destroy(&r->lock);
	memset(r, 0, sizeof(*r));
}

/* --- start and end --- */

void run_wait_go(struct run *r)
{
	(void)pthread_mutex_lock(&r->lock);
	while (!r->going)
		(void)pthread_cond_wait(&r->changed, &r->lock);
	(void)pthread_mutex_unlock(&r->lock);
}

void run_go(struct run *r)
{
	(void)pthread_mutex_lock(&r->lock);
	r->going = true;
	(void)pthread_cond_broadcast(&r->changed);
	(void)pthread_mutex_unlock(&r->lock);
}

void run_ended(struct run *r, unsigned n)
{
	(void)pthread_mutex_lock(&r->lock);
	r->running -= n;
	(void)pthread_cond_broadcast(&r->changed);
	(void)pthread_mutex_unlock(&r->lock);
}

/* --- lanes --- */

struct lane *lane_take(struct run *r)
{
	int cpu = sched_getcpu();

	for (unsigned i = 0; i < 2 * r->lanes_nr; i++) {
		struct lane *l = &r->lanes[i % r->lanes_nr];

		/* first those of this CPU; relaxed: only who was first counts */
		if ((i >= r->lanes_nr || r->jobs[lane_job(r, i)].cpu == cpu) &&
		    !atomic_exchange_explicit(&l->taken, true, memory_order_relaxed))
			return l;
	}
	abort();        /* more threads than lanes: no engine has that */
}

static void take_moment(struct lane *l, struct lane_moment *m, uint64_t now)
{
	struct rusage u;

	(void)getrusage(RUSAGE_THREAD, &u); /* cannot fail with these arguments */
	m->ns = now;
	m->usr_us = (uint64_t)u.ru_utime.tv_sec * 1000000 + (uint64_t)u.ru_utime.tv_usec;
	m->sys_us = (uint64_t)u.ru_stime.tv_sec * 1000000 + (uint64_t)u.ru_stime.tv_usec;
	m->ctx = (uint64_t)(u.ru_nvcsw + u.ru_nivcsw);
	/* relaxed: this thread's own counters */
	m->ios = atomic_load_explicit(&l->done[DIR_READ], memory_order_relaxed) +
		 atomic_load_explicit(&l->done[DIR_WRITE], memory_order_relaxed);
}

void lane_note_begin(struct lane *l, uint64_t now)
{
	if (now < l->run->ramp_end_ns)
		return;
	take_moment(l, &l->begin, now);
	/* relaxed: the controller looks the thread up by it, and reads `begin` after the run */
	atomic_store_explicit(&l->tid, (int)gettid(), memory_order_relaxed);
}

void lane_note_end(struct lane *l)
{
	take_moment(l, &l->end, clock_ns());
}

/* --- checked I/Os --- */

/* Number of a slot's block among those of all targets. */
static uint64_t slot_block(const struct slot *s, const struct run *r)
{
	return s->part->first + (s->off - s->part->base) / r->bs;
}

/*
 * The next block of a pass over the job's parts, beginning with s->part, which becomes that block's. UINT64_MAX: the
 * pass is over.
 */
static uint64_t next_in_pass(struct slot *s, const struct run *r)
{
	for (unsigned i = 0; i < r->targets_nr; i++) {
		struct part *p = s->part;
		/* relaxed: the numbers need only be distinct */
		uint64_t at = atomic_fetch_add_explicit(&p->cursor, 1, memory_order_relaxed);

		if (at < p->hi - p->lo)
			return p->lo + at;
		s->part = &s->job->parts[(p->target + 1) % r->targets_nr];
	}
	return UINT64_MAX;
}

static uint64_t lock_written(struct slot *s, const struct run *r)
{
	uint64_t block;

	do {
		block = next_in_pass(s, r);
	} while (block != UINT64_MAX && verify_gen(r->verify, s->part->first + block) == 0);
	if (block != UINT64_MAX) /* each block is handed out once: nobody else has it */
		(void)verify_try_lock(r->verify, s->part->first + block);
	return block;
}

/* Some block that no other I/O is on. A region has twice as many as there are slots, so the walk finds one. */
static uint64_t lock_any(struct slot *s, const struct run *r)
{
	const struct part *p = s->part;
	uint64_t block = 0;

	for (unsigned i = 0; i < PICK_TRIES_MAX; i++) {
		block = slot_pick(s, r);
		if (verify_try_lock(r->verify, p->first + block))
			return block;
	}
	while (!verify_try_lock(r->verify, p->first + block))
		block = (block + 1) % p->blocks;
	return block;
}

static uint64_t lock_next(struct slot *s, const struct run *r)
{
	uint64_t block;

	if (r->pick == PICK_VERIFY)
		return lock_written(s, r);
	if (!r->once)
		return lock_any(s, r);
	block = next_in_pass(s, r);
	if (block != UINT64_MAX)
		(void)verify_try_lock(r->verify, s->part->first + block); /* as above: handed out once */
	return block;
}

static bool prepare_checked(struct slot *s, const struct run *r)
{
	uint64_t block = lock_next(s, r);

	if (block == UINT64_MAX)
		return false;
	s->off = s->part->base + block * r->bs;
	s->gen = verify_gen(r->verify, s->part->first + block);
	if (s->is_write) {
		s->gen = s->gen == INT32_MAX ? 1 : s->gen + 1;
		verify_fill(r->verify, s->buf, &(struct verify_place){ s->off, s->gen, s->part->target, NULL });
	}
	return true;
}

/* Judge what was read; give the block back. */
static void conclude_checked(struct slot *s, struct run *r, int64_t res)
{
	struct verify_place want = { s->off, s->gen, s->part->target, NULL };
	uint64_t block = slot_block(s, r);
	bool whole = res == s->len, good = true;

	if (r->targets_nr > 1)
		want.path = r->targets->t[want.target].path;
	if (s->is_write) {
		verify_unlock_written(r->verify, block, whole ? s->gen : 0);
		return;
	}
	/* in a mix, blocks that this run has not written may hold anything */
	if (whole && !(r->mixed && s->gen == 0))
		good = verify_check(r->verify, s->buf, &want);
	verify_unlock(r->verify, block);
	if (!good && r->o->verify_fatal)
		run_stop(r);
}

/* --- the odd halves --- */

bool slot_claim(struct slot *s, struct lane *l)
{
	const struct run *r = l->run;

	s->intended_ns = 0;
	if (s->retry)
		return true;
	if (s->left)
		s->intended_ns = pace_claim(&s->job->pace);
	/* relaxed: see run_stop() */
	if (s->left && s->intended_ns < atomic_load_explicit(&r->deadline_ns, memory_order_relaxed))
		return true;
	lane_note_end(l);
	return false;
}

static bool is_stopped(const struct run *r)
{
	return !atomic_load_explicit(&r->deadline_ns, memory_order_relaxed); /* relaxed: see run_stop() */
}

bool slot_must_sleep(const struct slot *s, const struct lane *l, uint64_t *ret_wake)
{
	uint64_t now = clock_ns(), wake = now + JOB_NAP_NS_MAX;

	if (s->intended_ns < now + l->lead_ns + JOB_SLEEP_NS_MIN || is_stopped(l->run))
		return false;
	if (s->intended_ns - l->lead_ns < wake)
		wake = s->intended_ns - l->lead_ns;
	*ret_wake = wake;
	return true;
}

bool slot_must_poll(const struct slot *s, const struct lane *l)
{
	return clock_ns() < s->intended_ns && !is_stopped(l->run);
}

static void count_pacing(struct slot *s, struct lane *l, uint64_t now)
{
	uint64_t error = now > s->intended_ns ? now - s->intended_ns : 0;

	s->start_ns = s->intended_ns;
	if (now < l->run->ramp_end_ns)
		return;
	hist_record(&l->pacing, error);
	l->late_starts += error > LATE_NS;
}

bool slot_next_odd(struct slot *s, struct lane *l, uint64_t now)
{
	const struct run *r = l->run;

	if (s->retry) {
		s->retry = false;
		l->inflight++;
		return true;
	}
	/* relaxed: see run_stop() */
	if (now >= atomic_load_explicit(&r->deadline_ns, memory_order_relaxed) || s->left == 0) {
		lane_note_end(l);
		return false;
	}
	s->is_write = slot_pick_write(s, r);
	slot_turn(s, r);
	if (!r->verify) {
		s->off = s->part->base + slot_pick(s, r) * r->bs;
	} else if (!prepare_checked(s, r)) {
		lane_note_end(l);
		return false;
	}
	s->left--;
	if (r->verify)
		now = clock_ns();       /* filling a block is not part of its I/O */
	s->start_ns = now;
	if (r->o->rate_iops && r->pick != PICK_VERIFY)
		count_pacing(s, l, now);
	lane_begin_io(s, l, now);
	return true;
}

void lane_count_extras(struct lane *l, const struct slot *s, uint64_t now)
{
	unsigned dir = s->is_write ? DIR_WRITE : DIR_READ;

	if (l->per_target)
		l->per_target[s->part->target].ios[dir]++;
	if (l->log)
		lat_log_add(l->log, dir, now, now - s->start_ns, s->off);
}

static void count_failure(struct slot *s, struct lane *l, int64_t res)
{
	unsigned dir = s->is_write ? DIR_WRITE : DIR_READ;
	uint64_t code = (uint64_t)-res;

	l->failed[dir]++;
	if (l->per_target)
		l->per_target[s->part->target].failed[dir]++;
	l->errnos[code < JOB_ERRNOS_NR ? code : 0]++;
	/* relaxed: this thread's own counters */
	if (l->failed[dir] >= JOB_GIVE_UP_FAILURES && !atomic_load_explicit(&l->done[dir], memory_order_relaxed))
		run_stop(l->run);
}

uint64_t slot_done_odd(struct slot *s, struct lane *l, int64_t res, uint64_t now)
{
	struct run *r = l->run;
	unsigned dir = s->is_write ? DIR_WRITE : DIR_READ;

	/* relaxed: see run_stop() */
	if ((res == -EAGAIN || res == -EINTR) &&
	    now < atomic_load_explicit(&r->deadline_ns, memory_order_relaxed)) {
		l->retries++;
		s->retry = true;
		return now;
	}
	if (res < 0) {
		count_failure(s, l, res);
	} else {
		if (res < s->len) {
			l->short_ios[dir]++;
			if (l->per_target)
				l->per_target[s->part->target].short_ios[dir]++;
			l->short_bytes[dir] += (uint64_t)(s->len - res);
		}
		lane_count(l, s, now);
	}
	if (!r->verify)
		return now;
	conclude_checked(s, r, res);
	return clock_ns();
}
