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

struct watch {
	struct run *r;
	const struct control_view *view;
	struct result *res;
	uint64_t t0;
	struct moment begin, end;       /* of the window */
	bool begun, ended;
	struct moment sample, point, line;      /* last one of each kind */
	double sum[DIRS_NR], squares[DIRS_NR];
	uint64_t status_due_ns;
	bool line_shown;
};

static void read_done(const struct run *r, uint64_t done[DIRS_NR])
{
	for (unsigned d = 0; d < DIRS_NR; d++) {
		done[d] = 0;
		for (unsigned i = 0; i < r->lanes_nr; i++) /* relaxed: a figure of the moment */
			done[d] += atomic_load_explicit(&r->lanes[i].done[d], memory_order_relaxed);
	}
}

static void take_moment(const struct run *r, struct moment *m)
{
	m->ns = clock_ns();
	(void)getrusage(RUSAGE_SELF, &m->usage); /* cannot fail with these arguments */
	read_done(r, m->done);
	if (!sys_cpu_ticks(&m->ticks))
		memset(&m->ticks, 0, sizeof(m->ticks));
}

/* --- while it runs --- */

static void add_sample(struct watch *w, const struct moment *now)
{
	double seconds = (double)(now->ns - w->sample.ns) / 1e9;

	for (unsigned d = 0; d < DIRS_NR; d++) {
		struct dir_result *dr = &w->res->dir[d];
		double iops = (double)(now->done[d] - w->sample.done[d]) / seconds;

		if (dr->samples == 0 || iops < dr->iops_min)
			dr->iops_min = iops;
		if (iops > dr->iops_max)
			dr->iops_max = iops;
		w->sum[d] += iops;
		w->squares[d] += iops * iops;
		dr->samples++;
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
}

static void end_window(struct watch *w, const struct moment *now)
{
	if (!w->begun)
		begin_window(w, now);
	w->ended = true;
	w->end = *now;
	w->res->iowq_threads = sys_iowq_threads();
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

static void sum_dirs(struct watch *w)
{
	for (unsigned d = 0; d < DIRS_NR; d++) {
		struct dir_result *dr = &w->res->dir[d];
		double n = dr->samples;

		dr->bytes += dr->ios * w->r->bs;
		if (dr->samples == 0) {
			dr->iops_min = dr->iops_max = dr->iops_mean = result_iops(w->res, d);
			continue;
		}
		dr->iops_mean = w->sum[d] / n;
		dr->iops_stddev = sqrt(fmax(0, w->squares[d] / n - dr->iops_mean * dr->iops_mean));
	}
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
	sum_dirs(w);
	sum_cpu(w);
	res->note = r->note;
}

static void init_result(struct result *res, const struct engine *e, bool read_back)
{
	memset(res, 0, sizeof(*res));
	res->engine = e->name;
	res->read_back = read_back;
	hist_init(&res->pacing);
	for (unsigned d = 0; d < DIRS_NR; d++) {
		hist_init(&res->dir[d].lat);
		hist_init(&res->dir[d].slat);
		hist_init(&res->dir[d].clat);
	}
}

/* Fix the run's times and let the engine go. */
static void release(struct watch *w)
{
	struct run *r = w->r;
	bool read_back = r->pick == PICK_VERIFY;
	uint64_t runtime = read_back ? 0 : r->o->runtime_ns;

	w->t0 = clock_ns();
	r->ramp_end_ns = w->t0 + (read_back ? 0 : r->o->ramp_ns);
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

int control_run(struct run *r, const struct engine *e, const struct control_view *view, const atomic_int *stop,
		struct result *ret)
{
	struct watch w = { .r = r, .view = view, .res = ret };
	int rc;

	init_result(ret, e, r->pick == PICK_VERIFY);
	if (r->targets_nr > 1) {
		ret->targets = calloc(r->targets_nr, sizeof(*ret->targets));
		if (!ret->targets)
			return -ENOMEM;
		ret->targets_nr = r->targets_nr;
	}
	rc = e->start(r);
	if (rc)
		return rc;
	release(&w);
	e->go(r);
	watch_run(&w, stop);
	ret->elapsed_ns = clock_ns() - w.t0;
	e->finish(r);
	sum_up(&w);
	return r->failed;
}
