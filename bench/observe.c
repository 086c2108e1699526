/* SPDX-License-Identifier: MIT */
/*
 * What the statistics cost: so many ops on a current-thread runtime, with the statistics in BPF maps, in a memfd or on the
 * heap, and with timing off, sampled or full. One line: ns an op. scripts/bench-observe runs it under callgrind, with two
 * numbers of ops, so that what comes once cancels out.
 *
 *	observe nop|read|yield bpf|memfd|heap off|sampled|full OPS TASKS [FOLDER]
 *
 * Timing is switched as a viewer would: through the map or the memfd, found among this process's descriptors. On the heap
 * nobody could, so there it is sampled, the default.
 */
#include <dirent.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "bench.h"

#define READ_BYTES 4096u
#define FILE_BYTES (1u << 20)

enum what { NOP, READ, YIELD };
enum backend { BACKEND_BPF, BACKEND_MEMFD, BACKEND_HEAP };
enum timing { TIMING_OFF, TIMING_SAMPLED, TIMING_FULL };

struct job {
	struct mrt_op op;
	enum what what;
	int fd;
	uint32_t left;
	uint32_t at;
	char *buf;
};

static enum mrt_poll job_poll(struct mrt_task *self, void *frame)
{
	struct job *f = frame;

	MRT_BEGIN(self);
	for (; f->left > 0; f->left--) {
		if (f->what == NOP) {
			MRT_AWAIT(self, mrt_nop(&f->op));
		} else if (f->what == YIELD) {
			MRT_AWAIT(self, mrt_yield(&f->op));
		} else {
			f->at = (f->at + 7 * READ_BYTES) % FILE_BYTES;
			MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->buf, READ_BYTES, f->at));
			if (f->op.res != READ_BYTES)
				break;
		}
	}
	MRT_RETURN(self, f->left);
}

struct jobs {
	struct mrt_op op;
	struct mrt_task **tasks;
	unsigned nr, i;
	int64_t left;
};

static enum mrt_poll jobs_poll(struct mrt_task *self, void *frame)
{
	struct jobs *f = frame;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < f->nr; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		f->left += f->op.res;
	}
	MRT_RETURN(self, f->left);
}

/* ---- the control word ---- */

static struct mrt_ctl *map_ctl(int fd, bool memfd)
{
	struct bpf_map_info info = { 0 };
	union bpf_attr attr = { .info = { .bpf_fd = (uint32_t)fd, .info_len = sizeof(info),
					  .info = (uintptr_t)&info } };
	struct stat st;
	char *mem;

	if (memfd) {
		if (fstat(fd, &st))
			return NULL;
		mem = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		return mem == MAP_FAILED ? NULL
					 : (void *)(mem + ((const struct mrt_stats_file *)(const void *)mem)->ctl_off);
	}
	if (syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr)) || strcmp(info.name, "mrt_ctl") != 0)
		return NULL;
	mem = mmap(NULL, sizeof(struct mrt_ctl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return mem == MAP_FAILED ? NULL : (void *)mem;
}

static struct mrt_ctl *find_ctl(void)
{
	struct mrt_ctl *ctl = NULL;
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	char link[64];

	while (dir && !ctl && (e = readdir(dir)) != NULL) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);
		bool memfd;

		if (n < 0)
			continue;
		link[n] = '\0';
		memfd = strncmp(link, "/memfd:mrt_workers", 18) == 0;
		if (memfd || strstr(link, "bpf-map"))
			ctl = map_ctl(atoi(e->d_name), memfd);
	}
	if (dir)
		closedir(dir);
	return ctl;
}

/* ---- main ---- */

static unsigned choose(const char *arg, const char *const *names, unsigned nr)
{
	unsigned i;

	for (i = 0; i < nr; i++)
		if (strcmp(arg, names[i]) == 0)
			return i;
	fprintf(stderr, "observe: what is '%s'?\n", arg);
	exit(2);
}

int main(int argc, char **argv)
{
	static const char *const whats[] = { "nop", "read", "yield" };
	static const char *const backends[] = { "bpf", "memfd", "heap" };
	static const char *const timings[] = { "off", "sampled", "full" };
	static const uint32_t flags[] = { 0, MRT_RUNTIME_STATS_MEMFD, MRT_RUNTIME_STATS_HEAP };
	struct job job = { .fd = -1 };
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	struct mrt_ctl *ctl;
	struct jobs jobs = { .nr = 1 };
	unsigned backend, timing, i;
	uint64_t ops, start;
	int64_t left;
	int err;

	if (argc < 6) {
		fprintf(stderr, "usage: observe nop|read|yield bpf|memfd|heap off|sampled|full OPS TASKS [FOLDER]\n");
		return 2;
	}
	alarm(BENCH_LIMIT_S);
	job.what = choose(argv[1], whats, 3);
	backend = choose(argv[2], backends, 3);
	timing = choose(argv[3], timings, 3);
	if (backend == BACKEND_HEAP && timing != TIMING_SAMPLED) {
		fprintf(stderr, "observe: on the heap nobody can switch timing: sampled\n");
		return 2;
	}
	ops = strtoull(argv[4], NULL, 10);
	jobs.nr = (unsigned)strtoul(argv[5], NULL, 10);
	if (job.what == READ) {
		const struct bench b = { .dir = argc > 6 ? argv[6] : "/var/tmp" };

		job.fd = bench_file(&b, FILE_BYTES);
	}

	mrt_runtime_opts_init(&opts);
	opts.flavour = MRT_FLAVOUR_CURRENT_THREAD;
	opts.flags = flags[backend];
	opts.seed = 1;
	err = mrt_runtime_create(&opts, &rt);
	if (err)
		bench_die("mrt_runtime_create: %s", strerror(-err));
	if (strcmp(mrt_stats_backend(rt), backends[backend]) != 0) {
		fprintf(stderr, "observe: the statistics are in: %s\n", mrt_stats_backend(rt));
		return 77;
	}
	ctl = find_ctl();
	if (!ctl && backend != BACKEND_HEAP)
		bench_die("observe: the control word in %s is not found", backends[backend]);
	if (ctl)
		ctl->poll_timing = ctl->op_timing = timing;

	jobs.tasks = calloc(jobs.nr, sizeof(struct mrt_task *));
	for (i = 0; jobs.tasks && i < jobs.nr; i++) {
		job.left = (uint32_t)(ops / jobs.nr);
		job.buf = aligned_alloc(READ_BYTES, READ_BYTES);
		job.at = i * READ_BYTES;
		if (!job.buf || mrt_spawn(rt, job_poll, &job, sizeof(job), NULL, &jobs.tasks[i]))
			return 1;
	}
	start = mrt_now();
	if (mrt_block_on(rt, jobs_poll, &jobs, sizeof(jobs), &left) || left)
		return 1;
	printf("%.2f\n", (double)(mrt_now() - start) / (double)ops);
	mrt_runtime_destroy(rt);
	free(jobs.tasks);
	return 0;
}
