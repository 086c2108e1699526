/* SPDX-License-Identifier: MIT */
/* The `martlet` command: picks the subcommand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <martlet/martlet.h>

#include "bench.h"
#include "output.h"
#include "viewer.h"

static int help_main(int argc, char **argv);
static int version_main(int argc, char **argv);

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{ "bench", bench_main, "measure a file or block device" },
	{ "compare", compare_main, "ratios of neighbouring results, with what they are worth" },
	{ "dump", dump_main, "say what a process is doing: workers, ops in flight, tasks waiting" },
	{ "export", export_main, "statistics of running processes, for Prometheus" },
	{ "probe", probe_main, "say what this machine gives: kernel, rings, limits" },
	{ "top", top_main, "watch the workers of running processes" },
	{ "trace", trace_main, "see how long polls, waits and ops of a process take" },
	{ "version", version_main, "print the version" },
	{ "help", help_main, "print this" },
};

#define COMMANDS_NR (sizeof(commands) / sizeof(commands[0]))

static void print_usage(FILE *out)
{
	fputs("usage: martlet COMMAND [options]\n\n", out);
	for (size_t i = 0; i < COMMANDS_NR; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
	fputs("\n`martlet help bench` lists the options of bench.\n", out);
}

static int version_main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("martlet %s\n", mrt_version());
	return EXIT_SUCCESS;
}

/* Not to have been heard is a failure; a command that failed has said why already. */
static int finish(int status)
{
	int rc = output_flush(stdout);

	if (!rc || status)
		return status;
	fprintf(stderr, "martlet: standard output: %s\n", strerror(-rc));
	return EXIT_FAILURE;
}

/* Run a command; getopt(3) begins its messages with argv[0]. */
static int run(const char *name, int argc, char **argv)
{
	static char full[32];

	for (size_t i = 0; i < COMMANDS_NR; i++) {
		if (strcmp(name, commands[i].name) != 0)
			continue;
		snprintf(full, sizeof(full), "martlet %s", name);
		argv[0] = full;
		return commands[i].run(argc, argv);
	}
	fprintf(stderr, "martlet: no command '%s'\n", name);
	print_usage(stderr);
	return EXIT_USAGE;
}

static int help_main(int argc, char **argv)
{
	static char help[] = "--help";
	char *of[] = { NULL, help, NULL };

	if (argc > 1 && strcmp(argv[1], "help") != 0 && strcmp(argv[1], "version") != 0)
		return run(argv[1], 2, of);
	print_usage(stdout);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	if (output_hold_standard())
		return EXIT_FAILURE; /* there is nobody to tell */
	if (name && (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0))
		name = "help";
	if (name && strcmp(name, "--version") == 0)
		name = "version";
	if (name)
		return finish(run(name, argc - 1, argv + 1));
	print_usage(stderr);
	return EXIT_USAGE;
}
