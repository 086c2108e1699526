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

static int print_once(struct top *t, bool as_json)
{
	unsigned missing;
	int err;

	t->watches_all = t->pids.nr > 0;
	err = top_look(t, NULL);
	if (!err) {
		wait_interval(t);
		err = top_look(t, NULL);
	}
	if (!err)
		err = as_json ? top_print_json(stdout, &t->model)
			      : top_print(stdout, &t->model, t->watches_all && !t->keeps_timing);
	if (err || fflush(stdout)) {
		fprintf(stderr, "martlet top: %s\n", strerror(err ? -err : errno));
		return EXIT_FAILURE;
	}
	missing = viewer_complain(&t->set, &t->pids, "top");
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
	fputs("usage: martlet top [--interval=TIME] [--keep-timing] [--once | --json] [PID ...]\n\n"
	      "What the workers of all Martlet runtimes on this machine do, or of those of these processes.\n\n"
	      "  --interval=TIME   between two looks, 100ms to 2s (1s)\n"
	      "  --keep-timing     do not have all polls and ops timed while it looks\n"
	      "  --once            look twice, print plain text, and end\n"
	      "  --json            the same as JSON\n\n"
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

int top_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "interval", required_argument, NULL, 'd' }, { "keep-timing", no_argument, NULL, 'k' },
		{ "once", no_argument, NULL, '1' }, { "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, 'h' },
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
	rc = once || as_json ? print_once(&t, as_json) : show(&t);
	top_close(&t.model);
	attach_set_close(&t.set);
	return rc;
}
