/* SPDX-License-Identifier: MIT */
/*
 * `martlet bench`: options, target, runs, report. With JSON the document is all that standard output gets, and people's
 * text goes to standard error.
 *
 * Exit codes: 0; 1 when an I/O failed or was short, a block was bad, or an engine could not run; 2 when nothing was
 * measured; 130 after Ctrl-C. The first Ctrl-C ends the run and prints what it has; a second one ends the process at
 * once. A file that the run made has no name any more (target.c), so nothing is left in any case.
 */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control.h"
#include "hgrm.h"
#include "json.h"
#include "ladder.h"
#include "merge.h"
#include "opts.h"
#include "plot.h"
#include "report.h"
#include "series.h"
#include "sys.h"
#include "target.h"
#include "verify.h"

static const struct engine *const engines[ENGINES_NR] = {
	[ENGINE_MARTLET] = &engine_martlet, [ENGINE_RAW] = &engine_raw, [ENGINE_PSYNC] = &engine_psync,
};

static atomic_int stop;

struct bench {
	struct bench_opts o;
	struct targets ts;
	struct verify v;
	bool verifying;
	FILE *people;           /* text: standard output, or standard error beside JSON */
	FILE *out;              /* the result */
	struct series_variant variants[ENGINES_NR];
	struct ladder ladder;   /* with --ladder */
	struct series_env env;
	struct series s;        /* its results are all results, also of a single run */
	int exit_code;
};

static void on_signal(int sig)
{
	(void)sig;
	/* relaxed: a flag that is polled; the second signal does not wait for it */
	if (atomic_fetch_add_explicit(&stop, 1, memory_order_relaxed))
		_exit(EXIT_INTERRUPTED);
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	/* none of these fails for these signals */
	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
	(void)sigaction(SIGHUP, &sa, NULL);
}

static bool is_stopped(void)
{
	return atomic_load_explicit(&stop, memory_order_relaxed) != 0; /* relaxed: a flag */
}

/* --- the kinds of bench --- */

static bool is_series(const struct bench *b)
{
	return b->o.compare_rounds || b->o.ladder_rounds || b->o.repeat > 1;
}

static void judge(struct bench *b, const struct result *r)
{
	if (result_failed(r) || result_short(r) || r->log_failed)
		b->exit_code = EXIT_FAILURE;
}

static void after_run(const struct result *r, void *ctx)
{
	struct bench *b = ctx;

	judge(b, r);
	report_round(b->people, r);
	(void)fflush(b->people); /* checked when the result is written */
}

static int run_single(struct bench *b)
{
	bool wrote = b->o.writes && b->verifying && b->o.do_verify;
	int rc = 0;

	for (unsigned i = 0; i < 1u + wrote && !is_stopped() && rc == 0; i++) {
		rc = series_run_one(&b->variants[0], &b->env, 0, 0, i == 1, &b->s.results[i]);
		if (rc == 0)
			judge(b, &b->s.results[b->s.results_nr++]);
	}
	return rc;
}

static bool wants_pre_read(const struct bench *b)
{
	if (b->o.direct || b->o.pre_read == OPTS_NO)
		return false;
	if (b->o.pre_read == OPTS_YES)
		return true;
	return b->o.reads && b->ts.len <= sys_memory_bytes() / 2;
}

static int pre_read(struct bench *b)
{
	int rc;

	if (!wants_pre_read(b))
		return 0;
	fprintf(stderr, "reading the region into the page cache first (--pre_read=0 leaves that out)\n");
	rc = targets_pre_read(&b->ts, &stop);
	if (rc && rc != -EINTR)
		fprintf(stderr, "martlet bench: pre-read: %s\n", strerror(-rc));
	return rc;
}

/* --- output --- */

static void report_people(struct bench *b)
{
	if (b->o.ladder_rounds) {
		report_ladder(b->people, &b->o, &b->ladder, &b->s);
		return;
	}
	if (is_series(b)) {
		report_series(b->people, &b->o, &b->s);
		return;
	}
	for (unsigned i = 0; i < b->s.results_nr; i++)
		report_run(b->people, &b->o, &b->ts, &b->s.results[i],
			   b->verifying && i == b->s.results_nr - 1 ? &b->v : NULL);
}

static int plot(const struct bench *b)
{
	int rc = !b->o.plot ? 0 : b->o.ladder_rounds ? plot_ladder(b->o.plot, &b->o, &b->ladder, &b->s) :
		 plot_write(b->o.plot, &b->o, &b->s);

	if (rc == -ENODATA)
		fprintf(stderr, "martlet bench: --plot=%s: nothing to draw: %s\n", b->o.plot,
			is_series(b) ? "no round was run to its end" : "the run was shorter than a second");
	else if (rc)
		fprintf(stderr, "martlet bench: --plot=%s: %s\n", b->o.plot, strerror(-rc));
	return rc;
}

/* All I/Os of all runs: repeated runs are one distribution. */
static int save_distribution(const struct bench *b)
{
	struct hist *all, lat;
	int rc;

	if (!b->o.hdr_log)
		return 0;
	all = malloc(sizeof(*all));
	if (!all)
		return -ENOMEM;
	hist_init(all);
	for (unsigned i = 0; i < b->s.results_nr; i++) {
		if (b->s.results[i].read_back)
			continue;
		result_lat_all(&b->s.results[i], &lat);
		hist_merge(all, &lat);
	}
	rc = hgrm_save(b->o.hdr_log, all);
	if (rc)
		fprintf(stderr, "martlet bench: --hdr_log=%s: %s\n", b->o.hdr_log, strerror(-rc));
	free(all);
	return rc;
}

static int report(struct bench *b)
{
	struct json_in in = {
		.o = &b->o, .targets = &b->ts, .results = b->s.results, .results_nr = b->s.results_nr,
		.series = is_series(b) ? &b->s : NULL, .ladder = b->o.ladder_rounds ? &b->ladder : NULL, .verify = b->verifying ? &b->v : NULL,
		.exit_code = b->exit_code,
	};
	int rc = 0;

	series_summarise(&b->s);
	if (b->o.ladder_rounds)
		ladder_judge(&b->ladder, &b->s);
	report_people(b);
	if (b->o.format != OUTPUT_NORMAL)
		rc = json_write(b->out, &in);
	if (fflush(b->out))
		rc = -errno;
	if (rc)
		fprintf(stderr, "martlet bench: writing the result: %s\n", strerror(-rc));
	if (plot(b) && rc == 0)
		rc = -EIO;
	if (save_distribution(b) && rc == 0)
		rc = -EIO;
	return rc;
}

/* A file that is written at the end: what stands in its way is said before anything is measured. */
static int check_writable(const char *option, const char *path)
{
	FILE *f = path ? fopen(path, "ae") : NULL;

	if (path && !f) {
		int rc = -errno;

		fprintf(stderr, "martlet bench: --%s=%s: %s\n", option, path, strerror(-rc));
		return rc;
	}
	if (f)
		(void)fclose(f); /* nothing was written */
	return 0;
}

static int open_output(struct bench *b)
{
	int rc = check_writable("plot", b->o.plot);

	if (rc == 0)
		rc = log_check(&b->o, stderr);
	if (rc == 0)
		rc = check_writable("hdr_log", b->o.hdr_log);
	if (rc)
		return rc;
	b->out = stdout;
	if (b->o.output)
		b->out = fopen(b->o.output, "we");
	if (!b->out) {
		fprintf(stderr, "martlet bench: --output=%s: %s\n", b->o.output, strerror(errno));
		return -errno;
	}
	b->people = b->o.format == OUTPUT_NORMAL ? b->out : stderr;
	return 0;
}

/* --- the whole --- */

/* What is run in turn. */
static int init_series(struct bench *b)
{
	if (b->o.ladder_rounds) {
		ladder_init(&b->ladder, &b->o, &b->ts, engines[b->o.engine], &stop);
		return series_init(&b->s, b->ladder.variants, b->ladder.variants_nr, b->o.ladder_rounds);
	}
	if (b->o.compare_rounds) {
		for (unsigned e = 0; e < ENGINES_NR; e++)
			b->variants[e] = (struct series_variant){ engines[e]->name, &b->o, &b->ts, engines[e] };
		return series_init(&b->s, b->variants, ENGINES_NR, b->o.compare_rounds);
	}
	b->variants[0] = (struct series_variant){ NULL, &b->o, &b->ts, engines[b->o.engine] };
	/* a single run may have another that reads back */
	return series_init(&b->s, b->variants, 1, is_series(b) ? b->o.repeat : 2);
}

static int allocate(struct bench *b)
{
	int rc = init_series(b);

	if (rc)
		return rc;
	b->env = (struct series_env){ .stop = &stop, .each = after_run, .ctx = b };
	b->env.live = b->o.eta == OPTS_YES || (b->o.eta == OPTS_AUTO && isatty(STDERR_FILENO));
	if (!b->o.verify)
		return 0;
	b->verifying = true;
	b->env.verify = &b->v;
	return verify_init(&b->v, &b->o, b->ts.len / b->o.bs, stderr);
}

static void release(struct bench *b)
{
	series_fini(&b->s);
	if (b->o.ladder_rounds)
		ladder_fini(&b->ladder);
	if (b->verifying)
		verify_fini(&b->v);
	if (b->out && b->out != stdout)
		(void)fclose(b->out); /* flushed and checked in report() */
	targets_close(&b->ts);
}

static int measure(struct bench *b)
{
	int rc = allocate(b);

	if (rc) {
		fprintf(stderr, "martlet bench: %s\n", strerror(-rc));
		return EXIT_FAILURE;
	}
	report_head(b->people, &b->o, &b->ts);
	targets_warn(&b->ts, &b->o, stderr);
	rc = pre_read(b);
	if (rc == -EINTR || is_stopped())
		return EXIT_INTERRUPTED;
	targets_note_disks(&b->ts);
	rc = is_series(b) ? series_run(&b->s, &b->env) : run_single(b);
	if (rc)
		b->exit_code = EXIT_FAILURE;
	if (b->verifying && atomic_load_explicit(&b->v.bad, memory_order_relaxed)) /* relaxed: the run is over */
		b->exit_code = EXIT_FAILURE;
	if (b->exit_code == 0 && is_stopped())
		b->exit_code = EXIT_INTERRUPTED;
	if (b->s.results_nr && report(b) && b->exit_code == 0)
		b->exit_code = EXIT_FAILURE;
	return b->exit_code;
}

/* --merge: nothing is run. */
static int merge(struct bench *b)
{
	static struct merged m;
	struct json_in in = { .o = &b->o, .results = &m.r, .results_nr = 1, .merged = &m };
	struct hist lat;
	int rc = merge_read(&m, &b->o, stderr);

	if (rc) {
		merge_fini(&m);
		return EXIT_USAGE;
	}
	judge(b, &m.r);
	in.exit_code = b->exit_code;
	report_merged(b->people, &b->o, &m);
	if (b->o.format != OUTPUT_NORMAL)
		rc = json_write(b->out, &in);
	if (fflush(b->out))
		rc = -errno;
	result_lat_all(&m.r, &lat);
	if (rc == 0 && b->o.hdr_log)
		rc = hgrm_save(b->o.hdr_log, &lat);
	if (rc) {
		fprintf(stderr, "martlet bench: writing the result: %s\n", strerror(-rc));
		b->exit_code = EXIT_FAILURE;
	}
	merge_fini(&m);
	if (b->out != stdout)
		(void)fclose(b->out); /* flushed and checked above */
	return b->exit_code;
}

int bench_main(int argc, char **argv)
{
	static struct bench b;
	int rc = opts_parse(&b.o, argc, argv, stderr);

	if (rc)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	if (b.o.cpus_given && sched_setaffinity(0, sizeof(b.o.cpus), &b.o.cpus)) {
		fprintf(stderr, "martlet bench: --cpus_allowed: none of these CPUs may be used: %s\n", strerror(errno));
		return EXIT_USAGE;
	}
	if (sched_getaffinity(0, sizeof(b.o.cpus), &b.o.cpus))
		return EXIT_FAILURE;
	catch_signals();
	if (open_output(&b))
		return EXIT_USAGE;
	if (b.o.merge)
		return merge(&b);
	rc = targets_open(&b.ts, &b.o, &stop, stderr);
	if (rc == 0)
		rc = measure(&b);
	else
		rc = rc == -EINTR ? EXIT_INTERRUPTED : EXIT_USAGE;
	release(&b);
	return rc;
}
