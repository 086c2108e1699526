/* SPDX-License-Identifier: MIT */
/*
 * What a runtime has before it has done anything, by number of workers: a process of its own for each.
 *
 *	footprint WORKERS...
 *
 * rss: growth of the resident set, with the pages of the rings that are mapped; map: of the address space; then for each worker
 * beyond those of the line before.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "bench.h"

struct footprint {
	uint64_t rss, mapped, fds, threads;
};

static struct footprint footprint_now(void)
{
	struct footprint f = { 0 };
	unsigned long long n;
	char line[128], path[64];
	FILE *in = fopen("/proc/self/status", "re");

	if (!in)
		bench_die("/proc/self/status: %s", strerror(errno));
	while (fgets(line, sizeof(line), in)) {
		if (sscanf(line, "VmRSS: %llu", &n) == 1)
			f.rss = n;
		else if (sscanf(line, "VmSize: %llu", &n) == 1)
			f.mapped = n;
		else if (sscanf(line, "Threads: %llu", &n) == 1)
			f.threads = n;
	}
	(void)fclose(in); /* only read */
	for (int fd = 0; fd < 65536; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		f.fds += access(path, F_OK) == 0 || readlink(path, line, sizeof(line)) > 0;
	}
	return f;
}

static void measure(unsigned workers_nr, struct footprint *ret)
{
	struct footprint before = footprint_now(), after;
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	int err;

	mrt_runtime_opts_init(&opts);
	opts.log = bench_log;
	opts.workers_nr = workers_nr;
	err = mrt_runtime_create(&opts, &rt);
	if (err)
		bench_die("mrt_runtime_create with %u workers: %s", workers_nr, strerror(-err));
	bench_sleep_ns(MRT_MS(50)); /* all have gone to sleep */
	after = footprint_now();
	*ret = (struct footprint){ after.rss - before.rss, after.mapped - before.mapped, after.fds - before.fds,
				   after.threads - before.threads };
	mrt_runtime_destroy(rt);
}

int main(int argc, char **argv)
{
	struct footprint *f, last = { 0 };
	unsigned long nr, last_nr = 0;
	double more;
	char *end;

	if (argc < 2) {
		fputs("usage: footprint WORKERS...; each more than the one before\n", stderr);
		return 2;
	}
	(void)alarm(BENCH_LIMIT_S);
	f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f == MAP_FAILED)
		bench_die("mmap: %s", strerror(errno));
	printf("%8s %10s %10s %6s %8s   %s\n", "workers", "rss KiB", "map KiB", "fds", "threads", "each more: rss KiB, map KiB, fds, threads");
	for (int i = 1; i < argc; i++) {
		int status;
		pid_t pid;

		nr = strtoul(argv[i], &end, 10);
		if (*end || nr <= last_nr || nr > 1024) {
			fprintf(stderr, "footprint: %s: not a number up to 1024 and above the one before\n", argv[i]);
			return 2;
		}
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			(void)alarm(BENCH_LIMIT_S / 4); /* alarms are not inherited */
			measure((unsigned)nr, f);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			bench_die("footprint: the measuring process failed");
		more = (double)(nr - last_nr);
		printf("%8lu %10llu %10llu %6llu %8llu", nr, (unsigned long long)f->rss, (unsigned long long)f->mapped,
		       (unsigned long long)f->fds, (unsigned long long)f->threads);
		if (last_nr)
			printf("   %.0f, %.0f, %.1f, %.1f", ((double)f->rss - (double)last.rss) / more,
			       ((double)f->mapped - (double)last.mapped) / more, ((double)f->fds - (double)last.fds) / more,
			       ((double)f->threads - (double)last.threads) / more);
		putchar('\n');
		last = *f;
		last_nr = nr;
	}
	return 0;
}
