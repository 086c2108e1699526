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

#include "compare.h"
#include "control.h"
#include "json.h"
#include "opts.h"
#include "report.h"
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
	struct compare c;       /* its results are all results, also without a comparison */
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

/* --- one run --- */

static struct control_view view_of(const struct bench *b, const char *label)
{
	bool live = b->o.eta == OPTS_YES || (b->o.eta == OPTS_AUTO && isatty(STDERR_FILENO));

	return (struct control_view){ .live = live, .status_s = b->o.status_interval_s, .label = label };
}

static void judge(struct bench *b, const struct result *r)
{
	if (result_failed(r) || result_short(r))
		b->exit_code = EXIT_FAILURE;
}

/* Append a result of one engine. 0 or -errno. */
static int run_once(struct bench *b, const struct engine *e, unsigned round, bool read_back)
{
	struct result *res = &b->c.results[b->c.results_nr];
	struct control_view view;
	struct run r;
	char label[48];
	int rc;

	rc = run_init(&r, &b->o, &b->ts, e, b->verifying ? &b->v : NULL, read_back);
	if (rc) {
		fprintf(stderr, "martlet bench: %s: setting up: %s\n", e->name, strerror(-rc));
		return rc;
	}
	if (round)
		snprintf(label, sizeof(label), "round %u/%u %s", round, b->o.compare_rounds, e->name);
	else
		snprintf(label, sizeof(label), "%s%s", e->name, read_back ? " verify" : "");
	view = view_of(b, label);
	rc = control_run(&r, e, &view, &stop, res);
	run_fini(&r);
	if (rc) {
		result_free(res);
		fprintf(stderr, "martlet bench: engine %s did not run: %s\n", e->name, strerror(-rc));
		return rc;
	}
	result_set_round(res, round);
	b->c.results_nr++;
	judge(b, res);
	return 0;
}

/* --- the kinds of bench --- */

static int run_single(struct bench *b)
{
	bool wrote = b->o.writes && b->verifying && b->o.do_verify;
	int rc = run_once(b, engines[b->o.engine], 0, false);

	if (rc == 0 && wrote && !is_stopped())
		rc = run_once(b, engines[b->o.engine], 0, true);
	return rc;
}

static int run_compare(struct bench *b)
{
	for (unsigned round = 1; round <= b->o.compare_rounds && !is_stopped(); round++) {
		for (unsigned e = 0; e < ENGINES_NR && !is_stopped(); e++) {
			int rc = run_once(b, engines[e], round, false);

			if (rc)
				return rc;
			report_round(b->people, &b->c.results[b->c.results_nr - 1]);
			(void)fflush(b->people);
		}
	}
	return 0;
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
	if (b->o.compare_rounds) {
		report_compare(b->people, &b->o, &b->c);
		return;
	}
	for (unsigned i = 0; i < b->c.results_nr; i++)
		report_run(b->people, &b->o, &b->ts, &b->c.results[i],
			   b->verifying && i == b->c.results_nr - 1 ? &b->v : NULL);
}

static int report(struct bench *b)
{
	struct json_in in = {
		.o = &b->o, .targets = &b->ts, .results = b->c.results, .results_nr = b->c.results_nr,
		.compare = b->o.compare_rounds ? &b->c : NULL, .verify = b->verifying ? &b->v : NULL,
		.exit_code = b->exit_code,
	};
	int rc = 0;

	compare_summarise(&b->c);
	report_people(b);
	if (b->o.format != OUTPUT_NORMAL)
		rc = json_write(b->out, &in);
	if (fflush(b->out))
		rc = -errno;
	if (rc)
		fprintf(stderr, "martlet bench: writing the result: %s\n", strerror(-rc));
	return rc;
}

static int open_output(struct bench *b)
{
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

static int allocate(struct bench *b)
{
	size_t runs = b->o.compare_rounds ? (size_t)b->o.compare_rounds * ENGINES_NR : 2;

	b->c.results = calloc(runs, sizeof(*b->c.results));
	if (!b->c.results)
		return -ENOMEM;
	if (!b->o.verify)
		return 0;
	b->verifying = true;
	return verify_init(&b->v, &b->o, b->ts.len / b->o.bs, stderr);
}

static void release(struct bench *b)
{
	for (unsigned i = 0; i < b->c.results_nr; i++)
		result_free(&b->c.results[i]);
	free(b->c.results);
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
	rc = b->o.compare_rounds ? run_compare(b) : run_single(b);
	if (rc)
		b->exit_code = EXIT_FAILURE;
	if (b->verifying && atomic_load_explicit(&b->v.bad, memory_order_relaxed)) /* relaxed: the run is over */
		b->exit_code = EXIT_FAILURE;
	if (b->exit_code == 0 && is_stopped())
		b->exit_code = EXIT_INTERRUPTED;
	if (b->c.results_nr && report(b) && b->exit_code == 0)
		b->exit_code = EXIT_FAILURE;
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
	rc = targets_open(&b.ts, &b.o, &stop, stderr);
	if (rc == 0)
		rc = measure(&b);
	else
		rc = rc == -EINTR ? EXIT_INTERRUPTED : EXIT_USAGE;
	release(&b);
	return rc;
}
