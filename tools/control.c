/* SPDX-License-Identifier: MIT */
/*
 * The controller is the calling thread. It wakes ten times a second, reads the lanes' live counters, and writes the
 * progress line; everything else is read when the engine's threads have ended. CPU time is taken between the two ends
 * of the measured window, from the process' own usage (which holds the rings' io-wq threads, but not those of loop
 * devices), and divided by the I/Os that ended between the same two moments.
 */
#include "control.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sys.h"
#include "target.h"

#define WAKE_NS (100 * CLOCK_NS_PER_MS)
#define SAMPLE_NS (500 * CLOCK_NS_PER_MS)

struct moment {
	uint64_t ns;
	struct rusage usage;
	struct sys_cpu_ticks ticks;
	uint64_t done[DIRS_NR];
};

/* Half-second samples of the I/Os of one job, or of all. */
struct samples {
	uint64_t done[DIRS_NR];         /* at the last one */
	double sum[DIRS_NR], squares[DIRS_NR];
};

struct watch {
	struct run *r;
	const struct control_view *view;
	struct result *res;
	uint64_t t0;
	struct moment begin, end;       /* of the window */
	struct sys_throttle throttle;   /* at its begin */
	bool begun, ended;
	struct moment sample, point, line;      /* last one of each kind */
	struct samples all;
	struct rate_log rates;
	uint64_t (*jobs_done)[DIRS_NR]; /* [jobs_nr] for the rate logs; NULL: none */
	FILE **lat_files;               /* [jobs_nr]; NULL: no latency log */
	struct samples *jobs;           /* [parts_nr of the result] */
	uint64_t status_due_ns;
	bool line_shown;
};

static void read_lanes_done(const struct run *r, unsigned first, unsigned end, uint64_t done[DIRS_NR])
{
	for (unsigned d = 0; d < DIRS_NR; d++) {
		done[d] = 0;
		for (unsigned i = first; i < end; i++) /* relaxed: a figure of the moment */
			done[d] += atomic_load_explicit(&r->lanes[i].done[d], memory_order_relaxed);
	}
}

/* A job's lanes are neighbours. */
static void read_job_done(const struct run *r, unsigned job, uint64_t done[DIRS_NR])
{
	unsigned each = r->lanes_nr / r->jobs_nr;

	read_lanes_done(r, job * each, (job + 1) * each, done);
}

static void take_moment(const struct run *r, struct moment *m)
{
	m->ns = clock_ns();
	(void)getrusage(RUSAGE_SELF, &m->usage); /* cannot fail with these arguments */
	read_lanes_done(r, 0, r->lanes_nr, m->done);
	if (!sys_cpu_ticks(&m->ticks))
		memset(&m->ticks, 0, sizeof(m->ticks));
}

/* --- logs --- */

static void read_jobs_done(struct watch *w)
{
	for (unsigned i = 0; i < w->r->jobs_nr; i++)
		read_job_done(w->r, i, w->jobs_done[i]);
}

static void begin_logs(struct watch *w, uint64_t now)
{
	if (!w->jobs_done)
		return;
	read_jobs_done(w);
	rate_log_begin(&w->rates, now, (const uint64_t (*)[LOG_DIRS_NR])w->jobs_done);
}

static void step_logs(struct watch *w, uint64_t now, bool last)
{
	if (!w->jobs_done || (now < w->rates.due_ns && !last))
		return;
	read_jobs_done(w);
	rate_log_step(&w->rates, w->r->o, now, (const uint64_t (*)[LOG_DIRS_NR])w->jobs_done, last);
}

static int open_logs(struct watch *w)
{
	const struct run *r = w->r;
	int rc = 0;

	if (r->pick != PICK_VERIFY)
		rc = rate_log_open(&w->rates, r->o, r->jobs_nr);
	if (rc == 0 && w->rates.interval_ns) {
		w->jobs_done = calloc(r->jobs_nr, sizeof(*w->jobs_done));
		if (!w->jobs_done)
			rc = -ENOMEM;
	}
	if (rc || !r->logs)
		return rc;
	w->res->has_lat_log = true;
	w->lat_files = calloc(r->jobs_nr, sizeof(*w->lat_files));
	if (!w->lat_files)
		return -ENOMEM;
	for (unsigned i = 0; i < r->jobs_nr; i++) {
		w->lat_files[i] = log_open(r->o->lat_log, "lat", i);
		if (!w->lat_files[i])
			return -errno;
	}
	return 0;
}

static int write_latencies(struct watch *w)
{
	const struct run *r = w->r;
	unsigned each = r->lanes_nr / r->jobs_nr;
	int rc = 0;

	for (unsigned i = 0; r->logs && i < r->lanes_nr; i++) {
		lat_log_end(&r->logs[i]);
		w->res->log_entries += r->logs[i].nr;
		w->res->log_dropped += r->logs[i].dropped;
	}
	for (unsigned i = 0; r->logs && i < r->jobs_nr && rc == 0; i++)
		rc = lat_log_write(w->lat_files[i], &r->logs[i * each], each, r->o);
	return rc;
}

static int close_logs(struct watch *w)
{
	int rc = rate_log_close(&w->rates);

	for (unsigned i = 0; w->lat_files && i < w->r->jobs_nr; i++) {
		if (w->lat_files[i] && fclose(w->lat_files[i]))
			rc = -EIO;
	}
	free(w->lat_files);
	free(w->jobs_done);
	return rc;
}

/* --- while it runs --- */

static void sample_one(struct samples *s, struct result *res, const uint64_t done[DIRS_NR], double seconds)
{
	for (unsigned d = 0; d < DIRS_NR; d++) {
		struct dir_result *dr = &res->dir[d];
		double iops = (double)(done[d] - s->done[d]) / seconds;

		if (dr->samples == 0 || iops < dr->iops_min)
			dr->iops_min = iops;
		if (iops > dr->iops_max)
			dr->iops_max = iops;
		s->sum[d] += iops;
		s->squares[d] += iops * iops;
		s->done[d] = done[d];
		dr->samples++;
	}
}

static void add_sample(struct watch *w, const struct moment *now)
{
	double seconds = (double)(now->ns - w->sample.ns) / 1e9;

	sample_one(&w->all, w->res, now->done, seconds);
	for (unsigned i = 0; i < w->res->parts_nr; i++) {
		uint64_t done[DIRS_NR];

		read_job_done(w->r, i, done);
		sample_one(&w->jobs[i], &w->res->parts[i], done, seconds);
	}
	w->sample = *now;
}

static void add_point(struct watch *w, const struct moment *now)
{
	struct result *res = w->res;
	struct series_point *grown;

	if (res->series_nr == RESULT_SERIES_MAX)
		return;
	if ((res->series_nr & (res->series_nr - 1)) == 0) {
		size_t room = res->series_nr ? 2 * (size_t)res->series_nr : 1;

		grown = realloc(res->series, room * sizeof(*grown));
		if (!grown)
			return;         /* the series ends here; it is an extra */
		res->series = grown;
	}
	res->series[res->series_nr++] = (struct series_point){
		.ms = (uint32_t)((now->ns - w->begin.ns) / CLOCK_NS_PER_MS),
		.ios = { now->done[0] - w->point.done[0], now->done[1] - w->point.done[1] },
	};
	w->point = *now;
}

static void print_rates(struct watch *w, const struct moment *now, FILE *out)
{
	double seconds = (double)(now->ns - w->line.ns) / 1e9;
	static const char *const names[DIRS_NR] = { "read", "write" };

	fprintf(out, "%s %5.1f s", w->view->label, (double)(now->ns - w->t0) / 1e9);
	for (unsigned d = 0; d < DIRS_NR; d++) {
		double iops = (double)(now->done[d] - w->line.done[d]) / seconds;

		if (now->done[d])
			fprintf(out, "  %s %.1fk IOPS %.1f MiB/s", names[d], iops / 1e3, iops * w->r->bs / 0x1p20);
	}
	if (!w->begun)
		fputs("  (ramp)", out);
	w->line = *now;
}

static void show_progress(struct watch *w, const struct moment *now)
{
	bool status_due = w->view->status_s && now->ns >= w->status_due_ns;

	if (!status_due && !(w->view->live && now->ns - w->line.ns >= CLOCK_NS_PER_SEC))
		return;
	if (w->view->live)
		fputs("\r\033[K", stderr);
	print_rates(w, now, stderr);
	w->line_shown = w->view->live && !status_due;
	if (status_due) {
		fputc('\n', stderr);
		w->status_due_ns += w->view->status_s * CLOCK_NS_PER_SEC;
	}
	(void)fflush(stderr);
}

static void begin_window(struct watch *w, const struct moment *now)
{
	w->begun = true;
	w->begin = w->sample = w->point = *now;
	sys_throttle(&w->throttle);
	begin_logs(w, now->ns);
	memcpy(w->all.done, now->done, sizeof(w->all.done));
	for (unsigned i = 0; i < w->res->parts_nr; i++)
		read_job_done(w->r, i, w->jobs[i].done);
}

/*
 * What the lanes' threads have used so far. Threads that end with the window read it themselves; a worker whose tasks
 * have all moved away does not, but is still there to be looked up.
 */
static void see_lanes(const struct run *r)
{
	for (unsigned i = 0; r->lanes_nr == r->jobs_nr && i < r->lanes_nr; i++) {
		struct lane *l = &r->lanes[i];
		struct sys_thread_usage u;
		/* relaxed: a number, valid as long as the thread is there */
		int tid = atomic_load_explicit(&l->tid, memory_order_relaxed);
		uint64_t done[DIRS_NR];

		if (!tid || !sys_thread_usage(tid, &u))
			continue;
		read_lanes_done(r, i, i + 1, done);
		l->seen = (struct lane_moment){ clock_ns(), u.usr_us, u.sys_us, u.ctx, done[0] + done[1] };
	}
}

static void end_window(struct watch *w, const struct moment *now)
{
	struct sys_throttle t;

	if (!w->begun)
		begin_window(w, now);
	w->ended = true;
	w->end = *now;
	step_logs(w, now->ns, true);
	sys_throttle(&t);
	w->res->throttled_ms = (double)(t.quota_us - w->throttle.quota_us) / 1e3;
	w->res->hot_throttles = t.hot_nr - w->throttle.hot_nr;
	w->res->iowq_threads = sys_iowq_threads();
	see_lanes(w->r);
}

static void tick(struct watch *w)
{
	/* relaxed: only this thread and a stop write it, and 0 means over as well */
	uint64_t deadline = atomic_load_explicit(&w->r->deadline_ns, memory_order_relaxed);
	struct moment now;

	take_moment(w->r, &now);
	if (!w->begun && now.ns >= w->r->ramp_end_ns)
		begin_window(w, &now);
	if (w->begun && !w->ended && now.ns - w->sample.ns >= SAMPLE_NS)
		add_sample(w, &now);
	if (w->begun && !w->ended && now.ns - w->point.ns >= CLOCK_NS_PER_SEC - WAKE_NS / 2)
		add_point(w, &now);
	if (w->begun && !w->ended)
		step_logs(w, now.ns, false);
	if (!w->ended && now.ns >= deadline)
		end_window(w, &now);
	show_progress(w, &now);
}

static uint64_t next_wake(const struct watch *w, uint64_t now)
{
	uint64_t deadline = atomic_load_explicit(&w->r->deadline_ns, memory_order_relaxed); /* relaxed: as in tick() */
	uint64_t wake = now + WAKE_NS;

	if (!w->begun && w->r->ramp_end_ns < wake)
		wake = w->r->ramp_end_ns;
	if (!w->ended && deadline > now && deadline < wake)
		wake = deadline;
	if (w->begun && !w->ended && w->rates.due_ns < wake)
		wake = w->rates.due_ns;
	return wake;
}

static void watch_run(struct watch *w, const atomic_int *stop)
{
	struct run *r = w->r;
	bool running = true;

	while (running) {
		uint64_t now = clock_ns();
		struct timespec until = clock_timespec(next_wake(w, now));

		(void)pthread_mutex_lock(&r->lock);
		if (r->running)
			(void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
		running = r->running > 0;
		(void)pthread_mutex_unlock(&r->lock);
		if (atomic_load_explicit(stop, memory_order_relaxed) && !w->res->interrupted) { /* relaxed: a flag */
			w->res->interrupted = true;
			run_stop(r);
		}
		tick(w);
	}
	if (!w->ended) {
		struct moment now;

		take_moment(r, &now);
		end_window(w, &now);
	}
	if (w->line_shown)
		fputs("\r\033[K", stderr);
}

/* --- afterwards --- */

static void init_result(struct result *res, const struct engine *e, bool read_back)
{
	result_init(res, e->name);
	res->read_back = read_back;
}

static double seconds_of(const struct timeval *tv)
{
	return (double)tv->tv_sec + (double)tv->tv_usec / 1e6;
}

static void sum_cpu(const struct watch *w)
{
	const struct moment *b = &w->begin, *e = &w->end;
	struct result *res = w->res;
	double wall = (double)(e->ns - b->ns) / 1e9, hz = (double)sysconf(_SC_CLK_TCK);
	double usr = seconds_of(&e->usage.ru_utime) - seconds_of(&b->usage.ru_utime);
	double sys = seconds_of(&e->usage.ru_stime) - seconds_of(&b->usage.ru_stime);
	uint64_t ios = e->done[0] - b->done[0] + e->done[1] - b->done[1];

	if (wall <= 0)
		return;
	res->cpu_us_per_io = ios ? (usr + sys) * 1e6 / (double)ios : 0;
	res->usr_pct = usr / wall * 100;
	res->sys_pct = sys / wall * 100;
	res->other_cpus = (double)(e->ticks.busy - b->ticks.busy) / hz / wall - (usr + sys) / wall;
	if (res->other_cpus < 0)
		res->other_cpus = 0;    /* ticks of 10 ms against exact times */
	res->steal_cpus = (double)(e->ticks.steal - b->ticks.steal) / hz / wall;
	res->ctx = (uint64_t)(e->usage.ru_nvcsw - b->usage.ru_nvcsw + e->usage.ru_nivcsw - b->usage.ru_nivcsw);
	res->majf = (uint64_t)(e->usage.ru_majflt - b->usage.ru_majflt);
	res->minf = (uint64_t)(e->usage.ru_minflt - b->usage.ru_minflt);
	res->disk_reads_512 = (uint64_t)(e->usage.ru_inblock - b->usage.ru_inblock);
}

static void sum_target(struct target_result *to, const struct target_count *c)
{
	for (unsigned d = 0; d < DIRS_NR; d++) {
		to->ios[d] += c->ios[d];
		to->short_ios[d] += c->short_ios[d];
		to->failed[d] += c->failed[d];
	}
}

static void sum_lane(struct result *res, const struct lane *l, uint64_t *last_end)
{
	for (unsigned d = 0; d < DIRS_NR; d++) {
		struct dir_result *dr = &res->dir[d];

		hist_merge(&dr->lat, &l->lat[d]);
		hist_merge(&dr->slat, &l->slat[d]);
		hist_merge(&dr->clat, &l->clat[d]);
		dr->ios = hist_count(&dr->lat);
		dr->short_ios += l->short_ios[d];
		dr->bytes -= l->short_bytes[d]; /* wraps; the sum below makes it whole */
		dr->failed += l->failed[d];
		res->ios_all += atomic_load_explicit(&l->done[d], memory_order_relaxed); /* relaxed: its thread ended */
	}
	hist_merge(&res->pacing, &l->pacing);
	res->late_starts += l->late_starts;
	if (l->lead_ns > res->lead_ns)
		res->lead_ns = l->lead_ns;
	res->retries += l->retries;
	for (unsigned i = 0; i < JOB_DEPTHS_NR; i++)
		res->depth[i] += l->depth[i];
	for (unsigned i = 0; i < JOB_ERRNOS_NR; i++)
		res->errnos[i] += l->errnos[i];
	for (unsigned i = 0; i < res->targets_nr; i++)
		sum_target(&res->targets[i], &l->per_target[i]);
	if (l->last_end_ns > *last_end)
		*last_end = l->last_end_ns;
}

static void sum_dirs(struct result *res, const struct samples *s, uint32_t bs)
{
	for (unsigned d = 0; d < DIRS_NR; d++) {
		struct dir_result *dr = &res->dir[d];
		double n = dr->samples;

		dr->bytes += dr->ios * bs;
		if (dr->samples == 0) {
			dr->iops_min = dr->iops_max = dr->iops_mean = result_iops(res, d);
			continue;
		}
		dr->iops_mean = s->sum[d] / n;
		dr->iops_stddev = sqrt(fmax(0, s->squares[d] / n - dr->iops_mean * dr->iops_mean));
	}
}

/* The lanes' own CPU, each over the time and the I/Os between its own two moments. */
static void sum_worker_cpu(struct worker_result *wr, const struct run *r, unsigned first, unsigned end)
{
	uint64_t us = 0, ios = 0;

	for (unsigned i = first; i < end; i++) {
		const struct lane *l = &r->lanes[i];
		const struct lane_moment *b = &l->begin, *e = l->end.ns > b->ns ? &l->end : &l->seen;
		double wall_us;

		if (!b->ns || e->ns <= b->ns)
			continue;
		wall_us = (double)(e->ns - b->ns) / 1e3;
		wr->cpu_known = true;
		wr->usr_pct += (double)(e->usr_us - b->usr_us) / wall_us * 100;
		wr->sys_pct += (double)(e->sys_us - b->sys_us) / wall_us * 100;
		wr->ctx += e->ctx - b->ctx;
		us += e->usr_us - b->usr_us + e->sys_us - b->sys_us;
		ios += e->ios - b->ios;
	}
	wr->cpu_us_per_io = ios ? (double)us / (double)ios : 0;
}

static void sum_worker(struct worker_result *wr, const struct result *part)
{
	struct hist lat;

	result_lat_all(part, &lat);
	for (unsigned d = 0; d < DIRS_NR; d++)
		wr->ios[d] = part->dir[d].ios;
	wr->failed = result_failed(part);
	wr->short_ios = result_short(part);
	wr->lat_min = hist_count(&lat) ? lat.min : 0;
	wr->lat_p50 = hist_percentile(&lat, 50);
	wr->lat_p99 = hist_percentile(&lat, 99);
	wr->lat_p999 = hist_percentile(&lat, 99.9);
	wr->lat_max = lat.max;
	wr->lat_mean = hist_mean(&lat);
}

/* One job's result out of its lanes; what only the whole process has is copied from `res`. */
static void sum_part(struct watch *w, unsigned job, struct result *part, struct worker_result *wr)
{
	const struct run *r = w->r;
	const struct result *res = w->res;
	unsigned each = r->lanes_nr / r->jobs_nr;
	uint64_t last_end = 0;

	for (unsigned i = job * each; i < (job + 1) * each; i++)
		sum_lane(part, &r->lanes[i], &last_end);
	wr->cpu = strcmp(res->engine, "psync") ? r->jobs[job].cpu : -1;
	sum_worker_cpu(wr, r, job * each, (job + 1) * each);
	part->job = (int)job;
	part->runtime_ns = last_end > r->ramp_end_ns ? last_end - r->ramp_end_ns : 0;
	part->elapsed_ns = res->elapsed_ns;
	part->interrupted = res->interrupted;
	part->cpu_us_per_io = wr->cpu_us_per_io;
	part->usr_pct = wr->usr_pct;
	part->sys_pct = wr->sys_pct;
	part->ctx = wr->ctx;
	part->other_cpus = res->other_cpus;
	part->steal_cpus = res->steal_cpus;
	part->throttled_ms = res->throttled_ms;
	part->hot_throttles = res->hot_throttles;
	part->iowq_threads = res->iowq_threads;
	part->offered = w->r->o->rate_iops && r->pick != PICK_VERIFY && last_end > r->ramp_end_ns ?
			pace_offered(&r->jobs[job].pace, last_end) -
			pace_offered(&r->jobs[job].pace, r->ramp_end_ns) : 0;
	memcpy(part->note.what, r->note.what, sizeof(part->note.what));
	memcpy(part->note.ring, r->note.ring, sizeof(part->note.ring));
	if (res->parts_nr)
		sum_dirs(part, &w->jobs[job], r->bs);
	sum_worker(wr, part);
}

/* The jobs by themselves: their results are kept where they are reported, else one after the other is summed up. */
static int sum_parts(struct watch *w, const struct engine *e)
{
	struct result *res = w->res, *one = res->parts;

	if (!res->parts_nr)
		one = malloc(sizeof(*one));
	if (!one)
		return -ENOMEM;
	for (unsigned i = 0; i < res->workers_nr; i++) {
		if (res->parts_nr)
			one = &res->parts[i];
		else
			init_result(one, e, res->read_back);
		sum_part(w, i, one, &res->workers[i]);
	}
	if (!res->parts_nr)
		free(one);
	return 0;
}

static void sum_up(struct watch *w)
{
	struct run *r = w->r;
	struct result *res = w->res;
	uint64_t last_end = 0, end;

	for (unsigned i = 0; i < r->lanes_nr; i++)
		sum_lane(res, &r->lanes[i], &last_end);
	res->runtime_ns = last_end > r->ramp_end_ns ? last_end - r->ramp_end_ns : 0;
	end = last_end > r->ramp_end_ns ? last_end : w->end.ns;
	for (unsigned i = 0; r->o->rate_iops && r->pick != PICK_VERIFY && i < r->jobs_nr; i++)
		res->offered += pace_offered(&r->jobs[i].pace, end) - pace_offered(&r->jobs[i].pace, r->ramp_end_ns);
	sum_dirs(res, &w->all, r->bs);
	sum_cpu(w);
	res->note = r->note;
}

/* Fix the run's times and let the engine go. */
static void release(struct watch *w)
{
	struct run *r = w->r;
	bool read_back = r->pick == PICK_VERIFY;
	uint64_t runtime = read_back ? 0 : r->o->runtime_ns;

	w->t0 = clock_ns();
	r->ramp_end_ns = w->t0 + (read_back ? 0 : r->o->ramp_ns);
	for (unsigned i = 0; r->logs && i < r->lanes_nr; i++)
		r->logs[i].from_ns = r->ramp_end_ns;
	/* relaxed: the lock below publishes it */
	atomic_store_explicit(&r->deadline_ns, runtime ? r->ramp_end_ns + runtime : UINT64_MAX, memory_order_relaxed);
	for (unsigned i = 0; i < r->jobs_nr; i++)
		pace_begin(&r->jobs[i].pace, w->t0);
	w->status_due_ns = w->t0 + w->view->status_s * CLOCK_NS_PER_SEC;
	take_moment(r, &w->line);
	if (r->ramp_end_ns == w->t0)
		begin_window(w, &w->line);
	run_go(r);
}

/* What depends on the number of jobs and targets. */
static int allocate(struct watch *w, const struct engine *e)
{
	struct run *r = w->r;
	struct result *res = w->res;

	if (r->targets_nr > 1) {
		res->targets = calloc(r->targets_nr, sizeof(*res->targets));
		if (!res->targets)
			return -ENOMEM;
		res->targets_nr = r->targets_nr;
	}
	res->workers = calloc(r->jobs_nr, sizeof(*res->workers));
	if (!res->workers)
		return -ENOMEM;
	res->workers_nr = r->jobs_nr;
	if (r->o->group)
		return 0;
	res->parts = calloc(r->jobs_nr, sizeof(*res->parts));
	w->jobs = calloc(r->jobs_nr, sizeof(*w->jobs));
	if (!res->parts || !w->jobs)
		return -ENOMEM;
	res->parts_nr = r->jobs_nr;
	for (unsigned i = 0; i < r->jobs_nr; i++)
		init_result(&res->parts[i], e, res->read_back);
	return 0;
}

int control_run(struct run *r, const struct engine *e, const struct control_view *view, const atomic_int *stop,
		struct result *ret)
{
	struct watch w = { .r = r, .view = view, .res = ret, .rates.due_ns = UINT64_MAX };
	int rc, log_rc;

	init_result(ret, e, r->pick == PICK_VERIFY);
	rc = allocate(&w, e);
	if (rc == 0)
		rc = open_logs(&w);
	if (rc == 0)
		rc = e->start(r);
	if (rc) {
		(void)close_logs(&w); /* the run's own failure counts */
		free(w.jobs);
		return rc;
	}
	release(&w);
	e->go(r);
	watch_run(&w, stop);
	ret->elapsed_ns = clock_ns() - w.t0;
	e->finish(r);
	sum_up(&w);
	rc = sum_parts(&w, e);
	log_rc = write_latencies(&w);
	if (close_logs(&w) && log_rc == 0)
		log_rc = -EIO;
	if (log_rc) {
		fprintf(stderr, "martlet bench: writing the logs: %s\n", strerror(-log_rc));
		ret->log_failed = true;
	}
	free(w.jobs);
	return r->failed ? r->failed : rc;
}
