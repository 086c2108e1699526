/* SPDX-License-Identifier: MIT */
/* See trace_opts.h. */
#include "trace_opts.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "opts.h"

#define BUFFER_DEFAULT (UINT64_C(16) << 20)
#define BUFFER_MAX (UINT64_C(1) << 30)
#define EVENTS_DEFAULT UINT64_C(1000000)

enum { OPT_OPS = 256, OPT_OFFCPU, OPT_DEPTHS, OPT_TIMELINE, OPT_BUFFER, OPT_EVENTS, OPT_ATTACH, OPT_PIN };

static const struct option table[] = {
	{ "all", no_argument, NULL, 'a' },
	{ "duration", required_argument, NULL, 'd' },
	{ "by-function", no_argument, NULL, 'f' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ "ops", no_argument, NULL, OPT_OPS },
	{ "offcpu", no_argument, NULL, OPT_OFFCPU },
	{ "depths", no_argument, NULL, OPT_DEPTHS },
	{ "timeline", required_argument, NULL, OPT_TIMELINE },
	{ "buffer", required_argument, NULL, OPT_BUFFER },
	{ "events", required_argument, NULL, OPT_EVENTS },
	{ "attach", required_argument, NULL, OPT_ATTACH },
	{ "pin", no_argument, NULL, OPT_PIN },
	{ 0 },
};

static void print_help(FILE *out)
{
	fputs("usage: martlet trace [options] PID\n"
	      "       martlet trace [options] -a\n"
	      "       martlet trace [options] -- COMMAND [ARGUMENTS]\n"
	      "       martlet trace --pin PID\n\n"
	      "Listens to the probes of a process, and shows how long polls take and how long tasks wait for them.\n"
	      "Ends with Ctrl-C, with the process, or after --duration; then prints.\n\n"
	      "  -a, --all           all processes that have a runtime, also those that come (all of them pay for it)\n"
	      "  -d, --duration=TIME end after this time: 10s, 500ms\n"
	      "  -f, --by-function   figures of each task function\n"
	      "      --ops           where ops spend their time, by opcode, and what went to io-wq threads\n"
	      "      --offcpu        why workers have no CPU: parked, blocked in a poll, preempted\n"
	      "      --depths        how deep the queues are, looked at 1000 times a second\n"
	      "      --timeline=FILE polls, parks, steals and ops as a Chrome trace (ui.perfetto.dev opens it)\n"
	      "      --buffer=SIZE   memory between the kernel and us for the timeline (16m)\n"
	      "      --events=N      events that the file may have at most (1000000)\n"
	      "  -j, --json          one JSON document on standard output\n"
	      "      --attach=HOW    auto, multi (Linux 6.6), usdt (one by one)\n"
	      "      --pin           pin a file that shows the workers with cat: /sys/fs/bpf/mrt/top-PID\n\n"
	      "It takes CAP_BPF and CAP_PERFMON, and the right to trace the process.\n", out);
}

__attribute__((format(printf, 2, 3)))
static int refuse(FILE *err, const char *fmt, ...)
{
	va_list ap;

	fputs("martlet trace: ", err);
	va_start(ap, fmt);
	vfprintf(err, fmt, ap);
	va_end(ap);
	fputs("; `martlet trace --help` lists the options\n", err);
	return -EINVAL;
}

static int parse_number(const char *text, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *ret > 0 && *ret <= max ? 0 : -EINVAL;
}

static int parse_how(const char *text, enum tracer_attach *ret)
{
	static const char *const names[] = { [TRACER_AUTO] = "auto", [TRACER_MULTI] = "multi", [TRACER_USDT] = "usdt" };

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) == 0) {
			*ret = (enum tracer_attach)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int set(struct trace_opts *o, int c, const char *v, FILE *err)
{
	switch (c) {
	case 'a':
		o->all = true;
		return 0;
	case 'd':
		return opts_time(v, &o->duration_ns) || !o->duration_ns ?
		       refuse(err, "--duration: '%s' is no time; write 10s, 500ms", v) : 0;
	case 'f':
		o->by_function = true;
		return 0;
	case 'j':
		o->json = true;
		return 0;
	case OPT_OPS:
		o->ops = true;
		return 0;
	case OPT_OFFCPU:
		o->offcpu = true;
		return 0;
	case OPT_DEPTHS:
		o->depths = true;
		return 0;
	case OPT_TIMELINE:
		o->timeline = v;
		return v[0] ? 0 : refuse(err, "--timeline: name a file");
	case OPT_BUFFER:
		return opts_size(v, &o->buffer_bytes) || !o->buffer_bytes || o->buffer_bytes > BUFFER_MAX ?
		       refuse(err, "--buffer: '%s' is no size from 1 to 1g", v) : 0;
	case OPT_EVENTS:
		return parse_number(v, UINT64_MAX, &o->events_max) ?
		       refuse(err, "--events: '%s' is no number above 0", v) : 0;
	case OPT_ATTACH:
		return parse_how(v, &o->how) ? refuse(err, "--attach: '%s' is none of auto, multi, usdt", v) : 0;
	default:
		o->pin = true;
		return 0;
	}
}

/* The options proper; -- and what follows is the command's. */
static int scan(struct trace_opts *o, int argc, char **argv, FILE *err)
{
	int c, rc;

	optind = 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:ad:fjh", table, NULL)) != -1) {
		if (c == 'h') {
			print_help(stdout);
			return 1;
		}
		if (c == ':')
			return refuse(err, "%s: a value is missing", argv[optind - 1]);
		if (c == '?')
			return refuse(err, "%s: no such option", argv[optind - 1]);
		rc = set(o, c, optarg, err);
		if (rc)
			return rc;
	}
	return 0;
}

int trace_opts_parse(struct trace_opts *o, int argc, char **argv, FILE *err)
{
	uint64_t pid;
	int rc;

	*o = (struct trace_opts){ .buffer_bytes = BUFFER_DEFAULT, .events_max = EVENTS_DEFAULT };
	rc = scan(o, argc, argv, err);
	/* options may also stand behind the process */
	while (!rc && optind < argc && strcmp(argv[optind - 1], "--") != 0) {
		if (o->pid)
			return refuse(err, "'%s': name one process; a command comes behind --", argv[optind]);
		if (parse_number(argv[optind], INT_MAX, &pid))
			return refuse(err, "'%s' is no process number; a command comes behind --", argv[optind]);
		o->pid = (pid_t)pid;
		argc -= optind;
		argv += optind;
		rc = scan(o, argc, argv, err);
	}
	if (rc)
		return rc;
	if (optind < argc)
		o->command = argv + optind;
	if (!!o->pid + !!o->all + !!o->command != 1)
		return refuse(err, o->pid || o->all || o->command ? "name one of: a process, -a, a command" :
			      "name a process, -a for all, or a command behind --");
	if (o->pin && (!o->pid || o->timeline || o->ops || o->offcpu || o->depths || o->by_function || o->json))
		return refuse(err, "--pin takes a process, and nothing else");
	if (o->depths && !o->pid)
		return refuse(err, "--depths takes a process that runs already");
	return 0;
}
