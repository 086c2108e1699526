/* SPDX-License-Identifier: MIT */
/*
 * `martlet top`: what the workers of running processes do, on the terminal, or once as text or JSON.
 *
 * While it looks into a runtime all its polls and ops are timed. It asks for that at each look for TOP_WATCH_NS ahead (struct
 * mrt_ctl, watched_until_ns), and the runtime goes back to what was set by itself: after q, after kill -9, and whoever else
 * looks.
 */
#include "top.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "clock.h"
#include "opts.h"
#include "top_view.h"

int top_look(struct top *t, const struct top_runtime *open)
{
	int err = viewer_look(&t->set, &t->pids);
	unsigned i;

	if (err)
		return err;
	err = top_update(&t->model, &t->set);
	for (i = 0; i < t->set.nr && !t->keeps_timing; i++) {
		if (t->watches_all || (open && open->a == t->set.items[i]))
			(void)attach_watch(t->set.items[i], clock_ns() + TOP_WATCH_NS); /* where it may not: as it is */
	}
	return err;
}

static void wait_interval(const struct top *t)
{
	struct timespec left = clock_timespec(t->interval_ns);

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int look_twice(struct top *t, struct top_listings *listings)
{
	int err = top_look(t, NULL);

	if (!err && listings)
		err = top_listings_open(listings, &t->model, t->tasks_max);
	if (!err) {
		wait_interval(t);
		err = top_look(t, NULL);
	}
	if (!err && listings)
		err = top_listings_look(listings);
	return err;
}

/* @return how many runtimes have tasks that could not be had */
static unsigned complain_of_tasks(const struct top *t, const struct top_listings *listings)
{
	unsigned i, nr = 0;

	for (i = 0; listings && i < t->model.nr; i++) {
		const struct top_runtime *r = t->model.items[i];
		const char *why = top_listing_why(listings, r);

		if (!why)
			continue;
		fprintf(stderr, "martlet top: the tasks of runtime %s of process %d are not shown: %s\n", r->label, r->pid, why);
		nr++;
	}
	return nr;
}

static int print_once(struct top *t, bool as_json)
{
	static struct top_listings all; /* large */
	struct top_listings *listings = t->tasks_max ? &all : NULL;
	unsigned missing;
	int err;

	t->watches_all = t->pids.nr > 0;
	err = look_twice(t, listings);
	if (!err)
		err = as_json ? top_print_json(stdout, &t->model, listings)
			      : top_print(stdout, &t->model, listings, t->watches_all && !t->keeps_timing);
	missing = err ? 0 : complain_of_tasks(t, listings);
	top_listings_close(&all);
	if (err || fflush(stdout)) {
		fprintf(stderr, "martlet top: %s\n", strerror(err ? -err : errno));
		return EXIT_FAILURE;
	}
	missing += viewer_complain(&t->set, &t->pids, "top");
	return missing ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int show(struct top *t)
{
	if (top_screen_missing()) {
		fprintf(stderr, "martlet top: %s; --once and --json print to standard output\n", top_screen_missing());
		return EXIT_USAGE;
	}
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		fprintf(stderr, "martlet top: no terminal here; --once and --json print to standard output\n");
		return EXIT_USAGE;
	}
	if (top_look(t, NULL)) {
		fprintf(stderr, "martlet top: out of memory\n");
		return EXIT_FAILURE;
	}
	if (viewer_complain(&t->set, &t->pids, "top"))
		return EXIT_FAILURE;
	return top_screen(t);
}

static void help(void)
{
	fputs("usage: martlet top [--interval=TIME] [--keep-timing] [--once | --json] [--tasks=N] [PID ...]\n\n"
	      "What the workers of all Martlet runtimes on this machine do, or of those of these processes.\n\n"
	      "  --interval=TIME   between two looks, 100ms to 2s (1s)\n"
	      "  --keep-timing     do not have all polls and ops timed while it looks\n"
	      "  --once            look twice, print plain text, and end\n"
	      "  --json            the same as JSON\n"
	      "  --tasks=N         of --once and --json, with PIDs: N tasks of each runtime, the longest total first;\n"
	      "                    between the looks their probes are listened to, which costs them\n\n"
	      "On the terminal, h lists the keys.\n",
	      stdout);
}

static int parse_interval(struct top *t, const char *text)
{
	uint64_t ns;

	if (opts_time(text, &ns) || ns < TOP_INTERVAL_MIN_NS || ns > TOP_INTERVAL_MAX_NS) {
		fprintf(stderr, "martlet top: --interval=%s: it must be 100ms to 2s\n", text);
		return -EINVAL;
	}
	t->interval_ns = ns;
	return 0;
}

static int parse_tasks(struct top *t, const char *text)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || n < 1 || n > TASK_LIST_MAX) {
		fprintf(stderr, "martlet top: --tasks=%s: it must be a number from 1 to %u\n", text, TASK_LIST_MAX);
		return -EINVAL;
	}
	t->tasks_max = (unsigned)n;
	return 0;
}

/* Options that do not go together. */
static int check(const struct top *t, bool prints)
{
	const char *why = !t->tasks_max ? NULL : !prints ? "is of --once and --json; on the terminal the key t shows tasks" :
			  t->pids.nr == 0 ? "needs the processes' numbers: it costs whom it listens to" : NULL;

	if (why)
		fprintf(stderr, "martlet top: --tasks %s\n", why);
	return why ? -EINVAL : 0;
}

int top_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "interval", required_argument, NULL, 'd' }, { "keep-timing", no_argument, NULL, 'k' },
		{ "once", no_argument, NULL, '1' }, { "json", no_argument, NULL, 'j' }, { "tasks", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static struct top t = { .interval_ns = CLOCK_NS_PER_SEC };
	bool once = false, as_json = false;
	int c, rc;

	while ((c = getopt_long(argc, argv, "d:h", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			if (parse_interval(&t, optarg))
				return EXIT_USAGE;
			break;
		case 'k':
			t.keeps_timing = true;
			break;
		case '1':
			once = true;
			break;
		case 'j':
			as_json = true;
			break;
		case 't':
			if (parse_tasks(&t, optarg))
				return EXIT_USAGE;
			break;
		case 'h':
			help();
			return EXIT_SUCCESS;
		default:
			fprintf(stderr, "`martlet top --help` lists the options\n");
			return EXIT_USAGE;
		}
	}
	if (viewer_pids_parse(&t.pids, argc - optind, argv + optind, "top"))
		return EXIT_USAGE;
	if (check(&t, once || as_json))
		return EXIT_USAGE;
	rc = once || as_json ? print_once(&t, as_json) : show(&t);
	top_close(&t.model);
	attach_set_close(&t.set);
	return rc;
}
