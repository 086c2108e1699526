/* SPDX-License-Identifier: MIT */
/*
 * `martlet probe`: what this machine gives, in plain words. What can be tried is tried, by creating a runtime, not read
 * from a version: the runtime's own report says which ring flags were granted, and its log says why not and what to do.
 *
 * `martlet probe PATH` describes a file or device as bench would see it, without writing to it, and says on which rung of the
 * fast path it is.
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <martlet/martlet.h>

#include "nvme.h"
#include "proc.h"
#include "sys.h"
#include "target.h"

/* What one worker's ring takes of locked memory on kernels that count it: 256 and 2,048 entries, in pages. */
#define RING_BYTES_TYPICAL (52u << 10)

#define ARENA_BYTES (UINT64_C(1) << 20) /* what the arena is tried with, */
#define GROW_BYTES (UINT64_C(8) << 20)  /* and what it has to grow for */

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

/* --- the fast path --- */

/* Growing registers what has been added; the next op of a worker takes it over. */
static enum mrt_poll grow_poll(struct mrt_task *self, void *frame)
{
	struct {
		struct mrt_op op;
		void *block;
		int fd;
	} *f = frame;

	MRT_BEGIN(self);
	f->fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (mrt_alloc(NULL, GROW_BYTES, 0, &f->block) || f->fd < 0)
		MRT_RETURN(self, -ENOMEM);
	MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->block, 4096, 0));
	(void)close(f->fd); /* only read */
	mrt_free(NULL, f->block);
	MRT_RETURN(self, f->op.res);
}

static struct mrt_runtime *make_runtime(uint32_t flags, mrt_log_fn log)
{
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;

	mrt_runtime_opts_init(&opts);
	opts.workers_nr = 1;
	opts.flags = flags;
	opts.arena_bytes = ARENA_BYTES;
	opts.log = log;
	return mrt_runtime_create(&opts, &rt) ? NULL : rt;
}

static void probe_arena(void)
{
	struct mrt_runtime *rt = make_runtime(0, print_log);
	struct mrt_arena_report r;
	int64_t res;

	if (!rt)
		return;
	if (mrt_block_on(rt, grow_poll, NULL, 256, &res) || res < 0)
		printf("arena       could not grow\n");
	if (mrt_arena_report(rt, &r) == 0) {
		printf("arena       %s\n", r.text);
		say_yes_no("registered once and shared by all rings (cloned)", r.how == MRT_ARENA_CLONED,
			   "each ring registers, and pays, for itself; kernels before 6.12");
		say_yes_no("what it grows by is registered too", r.regions_nr > 1 && r.regions_unregistered == 0,
			   "kernels before 6.13, or the limit on locked memory: plain opcodes there");
	}
	mrt_runtime_destroy(rt);
}

static void say_ring_with(const char *what, uint32_t flags)
{
	struct mrt_runtime *rt = make_runtime(flags, print_log);
	struct mrt_ring_report r;

	if (!rt)
		printf("%-11s not here\n", what);
	else if (mrt_runtime_ring_report(rt, &r) == 0)
		printf("%-11s %s\n", what, r.text);
	mrt_runtime_destroy(rt);
}

/* NVMe namespaces that take commands. */
static void probe_nvme(void)
{
	DIR *d = opendir("/dev");
	unsigned found = 0;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		struct nvme_namespace ns;
		int fd, rc;

		if (strncmp(e->d_name, "ng", 2) || e->d_name[2] < '0' || e->d_name[2] > '9')
			continue;
		found++;
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
		rc = fd < 0 ? -errno : nvme_identify(fd, &ns);
		if (rc)
			printf("nvme        /dev/%s: %s\n", e->d_name, strerror(-rc));
		else
			printf("nvme        /dev/%s: takes commands; namespace %u, %.1f GiB in blocks of %u\n", e->d_name,
			       ns.nsid, (double)ns.bytes / 0x1p30, 1u << ns.lba_shift);
		if (fd >= 0)
			(void)close(fd); /* only asked */
	}
	if (d)
		(void)closedir(d);
	if (!found)
		printf("nvme        no character devices (/dev/ngXnY): no passthrough\n");
}

/* The best that this file can have: everything is asked for, and the report says what was given. */
static void say_rung(const struct target *t)
{
	unsigned flags = MRT_FILE_POLLED | (t->is_nvme ? MRT_FILE_PASSTHROUGH : 0);
	struct mrt_runtime *rt = make_runtime(t->is_nvme ? MRT_RUNTIME_NVME : 0, NULL);
	int fd = open(t->path, O_RDONLY | O_CLOEXEC | (t->is_nvme ? 0 : O_DIRECT)), handle;
	struct mrt_rung_report r;

	if (fd < 0 && errno == EINVAL)
		fd = open(t->path, O_RDONLY | O_CLOEXEC); /* a file system without direct I/O */
	handle = rt && fd >= 0 ? mrt_file_register(rt, fd, flags) : -EBADF;
	if (handle < 0 && fd >= 0)
		(void)close(fd); /* it stayed ours */
	if (handle >= 0 && mrt_file_report(rt, handle, NULL, &r) == 0)
		printf("rung: %s\n", r.text);
	else
		printf("rung: cannot be told: %s\n", rt ? strerror(-handle) : "no runtime here");
	mrt_runtime_destroy(rt);        /* closes it */
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

static void probe_limits(void)
{
	struct rlimit l;

	/* none of these fails for these limits */
	(void)getrlimit(RLIMIT_NOFILE, &l);
	say_limit("open files", &l, 1, "");
	(void)getrlimit(RLIMIT_NPROC, &l);
	say_limit("threads", &l, 1, "");
	(void)getrlimit(RLIMIT_MEMLOCK, &l);
	say_limit("memlock", &l, 1024, " KiB");
	if (proc_has_capability(CAP_IPC_LOCK))
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

/* What bench would say in words that are about a measurement. */
static int check_path(const char *path, struct stat *ret_st)
{
	int fd = -1;

	if (stat(path, ret_st) == 0 && !S_ISREG(ret_st->st_mode) && !S_ISBLK(ret_st->st_mode) && !S_ISCHR(ret_st->st_mode)) {
		fprintf(stderr, "martlet probe: %s is neither a file nor a device\n", path);
		return -EINVAL;
	}
	if (stat(path, ret_st) || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
		fprintf(stderr, "martlet probe: %s: %s\n", path, strerror(errno));
		return -EINVAL;
	}
	(void)close(fd);
	return 0;
}

static int probe_path(char *path)
{
	/* blocks of one byte, since bench refuses a file that has none of its blocks; commands have blocks of their own */
	char bench[] = "bench", small[] = "--bs=1", nvme[] = "--cmd_type=nvme", *argv[] = { bench, path, small, NULL };
	static const atomic_int never;
	static struct bench_opts o;
	struct stat st;
	struct targets ts;
	char line[1024];

	if (check_path(path, &st))
		return EXIT_USAGE;
	if (S_ISCHR(st.st_mode))
		argv[2] = nvme;
	if (opts_parse(&o, 3, argv, stderr) || targets_open(&ts, &o, &never, stderr))
		return EXIT_USAGE;
	for (unsigned i = 0; i < ts.nr; i++) {
		const struct target *t = &ts.t[i];

		target_describe(t, line, sizeof(line));
		printf("%s\n", line);
		printf("direct I/O: memory in multiples of %u, offset and length of %u (%s)\n", t->mem_align,
		       t->off_align, t->align_reported ? "reported by the file system or device" :
		       "not reported: logical block size");
		say_rung(t);
	}
	targets_warn(&ts, &o, stdout);
	targets_close(&ts);
	return EXIT_SUCCESS;
}

int probe_main(int argc, char **argv)
{
	int rc;

	if (argc > 1 && strncmp(argv[1], "--file=", 7) == 0) {
		argv[1] += 7;
	} else if (argc > 2 && strcmp(argv[1], "--file") == 0) {
		argv++;
		argc--;
	}
	if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
		bool help = argc == 2 && strcmp(argv[1], "--help") == 0;

		if (!help && argc == 2)
			fprintf(stderr, "martlet probe: %s: no such option\n", argv[1]);
		fputs("usage: martlet probe [[--file] FILE or DEVICE]\n", help ? stdout : stderr);
		return help ? EXIT_SUCCESS : EXIT_USAGE;
	}
	if (argc == 2)
		return probe_path(argv[1]);
	probe_machine();
	probe_sysctl();
	rc = probe_rings();
	if (rc == EXIT_SUCCESS) {
		probe_arena();
		say_ring_with("sqpoll", MRT_RUNTIME_SQPOLL);
	}
	probe_limits();
	probe_disks();
	probe_nvme();
	probe_bpf();
	return rc;
}
