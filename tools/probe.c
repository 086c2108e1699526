/* SPDX-License-Identifier: MIT */
/*
 * `martlet probe`: what this machine gives, in plain words. What can be tried is tried, by creating a runtime, not read
 * from a version: the runtime's own report says which ring flags were granted, and its log says why not and what to do.
 *
 * `martlet probe PATH` describes a file or device as bench would see it, without writing to it.
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <martlet/martlet.h>

#include "sys.h"
#include "target.h"

/* What one worker's ring takes of locked memory on kernels that count it: 256 and 2,048 entries, in pages. */
#define RING_BYTES_TYPICAL (52u << 10)

/* IORING_FEAT_* of the kernel's ABI, as far as the words below speak of them. */
#define FEAT_NODROP (1u << 1)
#define FEAT_FAST_POLL (1u << 5)
#define FEAT_EXT_ARG (1u << 8)
#define FEAT_NATIVE_WORKERS (1u << 9)
#define FEAT_MIN_TIMEOUT (1u << 15)
#define FEAT_NO_IOWAIT (1u << 17)

static void say_yes_no(const char *what, bool yes, const char *otherwise)
{
	printf("  %-58s %s%s%s\n", what, yes ? "yes" : "no", yes ? "" : "; ", yes ? "" : otherwise);
}

static void probe_machine(void)
{
	char kernel[256], cpu[256];
	cpu_set_t set;

	sys_kernel(kernel, sizeof(kernel));
	sys_cpu_model(cpu, sizeof(cpu));
	printf("kernel      %s\n", kernel);
	printf("processor   %s, %ld CPUs", cpu[0] ? cpu : "unknown", sysconf(_SC_NPROCESSORS_ONLN));
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		printf(", of which this process may use %d", CPU_COUNT(&set));
	printf("\nmemory      %.1f GiB\n", (double)sys_memory_bytes() / 0x1p30);
	printf("library     martlet %s\n", mrt_version());
}

static void probe_sysctl(void)
{
	char line[64];

	if (!sys_read_line(line, sizeof(line), "/proc/sys/kernel/io_uring_disabled")) {
		printf("io_uring    no sysctl kernel.io_uring_disabled (kernels before 6.6 have none)\n");
		return;
	}
	printf("io_uring    sysctl kernel.io_uring_disabled = %s: %s\n", line, line[0] == '0' ? "allowed for all" :
	       line[0] == '1' ? "only for members of kernel.io_uring_group and CAP_SYS_ADMIN" : "forbidden");
}

static void print_log(int level, const char *sentence, void *ctx)
{
	(void)ctx;
	if (level <= MRT_LOG_WARN)
		printf("  %s\n", sentence);
}

static void say_features(const struct mrt_ring_report *r)
{
	say_yes_no("completions are never dropped", r->features & FEAT_NODROP, "this kernel is too old");
	say_yes_no("sockets wait in the kernel without threads", r->features & FEAT_FAST_POLL, "they use io-wq threads");
	say_yes_no("a wait can have a time-out of its own", r->features & FEAT_EXT_ARG, "timers cost an entry each");
	say_yes_no("blocking work runs on threads of this process", r->features & FEAT_NATIVE_WORKERS,
		   "on shared kernel threads");
	say_yes_no("a wait can gather completions for a while (min-wait)", r->features & FEAT_MIN_TIMEOUT,
		   "kernels before 6.12");
	say_yes_no("parked workers do not count as iowait", r->no_iowait,
		   r->features & FEAT_NO_IOWAIT ? "the runtime does not ask for it" : "idle shows as iowait before 6.15");
	say_yes_no("enters use a registered ring descriptor", r->ring_fd_registered, "each enter looks the ring up");
}

static int probe_rings(void)
{
	struct mrt_ring_report report;
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	int rc;

	mrt_runtime_opts_init(&opts);
	opts.workers_nr = 1;
	opts.log = print_log;
	rc = mrt_runtime_create(&opts, &rt);
	if (rc) {
		printf("runtime     cannot run here: %s\n", strerror(-rc));
		return EXIT_FAILURE;
	}
	printf("runtime     runs here\n");
	if (mrt_runtime_ring_report(rt, &report) == 0) {
		printf("ring        %s\n", report.text);
		printf("            %u submission and %u completion entries, set-up flags 0x%x, features 0x%x\n",
		       report.sq_entries, report.cq_entries, report.setup_flags, report.features);
		say_features(&report);
	}
	mrt_runtime_destroy(rt);
	return EXIT_SUCCESS;
}

static void say_limit(const char *what, const struct rlimit *l, double unit, const char *unit_name)
{
	printf("%-11s ", what);
	if (l->rlim_cur == RLIM_INFINITY)
		printf("unlimited");
	else
		printf("%.10g%s", (double)l->rlim_cur / unit, unit_name);
	if (l->rlim_max != l->rlim_cur && l->rlim_max != RLIM_INFINITY)
		printf(" (may be raised to %.10g%s)", (double)l->rlim_max / unit, unit_name);
	else if (l->rlim_max != l->rlim_cur)
		printf(" (may be raised without limit)");
	putchar('\n');
}

static bool has_capability(unsigned bit)
{
	FILE *f = fopen("/proc/self/status", "re");
	uint64_t caps = 0;
	char line[256];

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "CapEff: %" SCNx64, &caps) == 1)
			break;
	}
	(void)fclose(f);
	return caps >> bit & 1;
}

static void probe_limits(void)
{
	enum { CAP_IPC_LOCK_BIT = 14 };
	struct rlimit l;

	/* none of these fails for these limits */
	(void)getrlimit(RLIMIT_NOFILE, &l);
	say_limit("open files", &l, 1, "");
	(void)getrlimit(RLIMIT_NPROC, &l);
	say_limit("threads", &l, 1, "");
	(void)getrlimit(RLIMIT_MEMLOCK, &l);
	say_limit("memlock", &l, 1024, " KiB");
	if (has_capability(CAP_IPC_LOCK_BIT))
		printf("            not enforced for this user (CAP_IPC_LOCK)\n");
	else if (l.rlim_cur != RLIM_INFINITY)
		printf("            per user, enough for about %" PRIu64 " workers' rings of %u KiB and nothing else\n",
		       (uint64_t)l.rlim_cur / RING_BYTES_TYPICAL, RING_BYTES_TYPICAL >> 10);
}

/* A disk with its queue, as far as it has one. */
static void say_disk(const char *name)
{
	char sectors[32], scheduler[128] = "none", poll[16] = "0", model[80] = "", requests[32] = "?";

	if (!sys_read_line(sectors, sizeof(sectors), "/sys/block/%s/size", name) || strcmp(sectors, "0") == 0)
		return;
	(void)sys_read_line(scheduler, sizeof(scheduler), "/sys/block/%s/queue/scheduler", name);
	(void)sys_read_line(requests, sizeof(requests), "/sys/block/%s/queue/nr_requests", name);
	(void)sys_read_line(poll, sizeof(poll), "/sys/block/%s/queue/io_poll", name);
	(void)sys_read_line(model, sizeof(model), "/sys/block/%s/device/model", name);
	printf("disk        %s %s%s%.1f GiB, scheduler %s, nr_requests %s, %s\n", name, model, model[0] ? " " : "",
	       (double)strtoull(sectors, NULL, 10) / 2097152, scheduler, requests,
	       poll[0] == '1' ? "can be polled" : "cannot be polled");
}

static void probe_disks(void)
{
	DIR *d = opendir("/sys/block");
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d))) {
		if (e->d_name[0] != '.')
			say_disk(e->d_name);
	}
	(void)closedir(d);
}

static void probe_bpf(void)
{
	printf("bpf         %s\n", access("/sys/kernel/btf/vmlinux", R_OK) == 0 ?
	       "the kernel has type information (BTF)" : "no type information of the kernel (BTF)");
}

static int probe_path(char *path)
{
	char bench[] = "bench", *argv[] = { bench, path, NULL };
	static const atomic_int never;
	struct bench_opts o;
	struct targets ts;
	char line[1024];

	if (opts_parse(&o, 2, argv, stderr) || targets_open(&ts, &o, &never, stderr))
		return EXIT_USAGE;
	for (unsigned i = 0; i < ts.nr; i++) {
		const struct target *t = &ts.t[i];

		target_describe(t, line, sizeof(line));
		printf("%s\n", line);
		printf("direct I/O: memory in multiples of %u, offset and length of %u (%s)\n", t->mem_align,
		       t->off_align, t->align_reported ? "reported by the file system or device" :
		       "not reported: logical block size");
	}
	targets_warn(&ts, &o, stdout);
	targets_close(&ts);
	return EXIT_SUCCESS;
}

int probe_main(int argc, char **argv)
{
	int rc;

	if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
		bool help = argc == 2 && strcmp(argv[1], "--help") == 0;

		fputs("usage: martlet probe [FILE or DEVICE]\n", help ? stdout : stderr);
		return help ? EXIT_SUCCESS : EXIT_USAGE;
	}
	if (argc == 2)
		return probe_path(argv[1]);
	probe_machine();
	probe_sysctl();
	rc = probe_rings();
	probe_limits();
	probe_disks();
	probe_bpf();
	return rc;
}
