/* SPDX-License-Identifier: MIT */
/*
 * What the benchmark programs of Martlet alone share: options, runtimes, repeats, one line of output a figure.
 *
 *	metric.variant  median  unit  min <n> max <n> n <repeats> foreign <CPUs>
 *
 * The first three fields are the same for every program that measures these shapes, so that one script makes the table.
 * `foreign` says how many CPUs others used meanwhile: above 0.3 the figure is doubtful.
 *
 * A test has a pass, which is run twice on a fresh runtime; the second, warm one counts; that is a repeat. A fresh runtime
 * for each, because the flavours have modes (a second worker that keeps stealing, or parks) that one runtime stays in.
 *
 * All is in this header because each program is one file, and sees the public API only.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>

#include <martlet/martlet.h>

#include "machine.h"

#define BENCH_VALUES_MAX 6u
#define BENCH_REPEATS 5u
#define BENCH_REPEATS_MAX 101u
#define BENCH_LIMIT_S 600u      /* a program that is not done by then is ended by SIGALRM */

#define BENCH_CT (1u << 0)      /* current-thread */
#define BENCH_W1 (1u << 1)      /* multi-thread, one worker on the last allowed CPU, the caller on the first */
#define BENCH_W2 (1u << 2)      /* multi-thread, two workers on the first two allowed CPUs */
#define BENCH_ALL (BENCH_CT | BENCH_W1 | BENCH_W2)
#define BENCH_VARIANTS_NR 3u

struct bench {
	bool quick;
	unsigned repeats;
	unsigned variants;      /* BENCH_*, those asked for */
	const char *only;       /* run tests one of whose metrics has this in its name; NULL: all */
	const char *dir;        /* for files; not a tmpfs, whose reads are not completed inline */
	int cpus[CPU_SETSIZE];
	unsigned cpus_nr;
};

/* What a pass gets. */
struct bench_pass {
	const struct bench *b;
	struct mrt_runtime *rt; /* NULL where the test makes its own */
	unsigned variant;
	unsigned workers_nr;
};

struct bench_value {
	const char *metric;
	const char *unit;
};

struct bench_test {
	struct bench_value values[BENCH_VALUES_MAX]; /* up to the first without a metric */
	unsigned variants;
	unsigned repeats;       /* 0: the program's; where a pass takes seconds, fewer */
	bool no_warm_up;        /* one pass a repeat */
	bool no_runtime;
	/* @param ret [BENCH_VALUES_MAX] one figure for each of values */
	void (*pass)(const struct bench_pass *p, double *ret);
};

/* What the kernel says of a runtime's workers. */
struct bench_usage {
	uint64_t switches;      /* voluntary context switches */
	uint64_t cpu_ns;        /* exact, unlike the ticks of other files */
};

static inline FILE *bench_open_task(int tid, const char *name)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, name);
	f = fopen(path, "re");
	if (!f)
		bench_die("%s: %s", path, strerror(errno));
	return f;
}

static inline struct bench_usage bench_usage_of(struct mrt_runtime *rt)
{
	struct bench_usage u = { 0, 0 };
	unsigned i;

	for (i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		struct mrt_worker_stats stats;
		unsigned long long nr;
		char line[128];
		FILE *f;

		(void)mrt_stats_get(rt, i, &stats); /* the worker exists */
		f = bench_open_task(stats.tid, "status");
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "voluntary_ctxt_switches: %llu", &nr) == 1)
				u.switches += nr;
		(void)fclose(f); /* only read */
		f = bench_open_task(stats.tid, "schedstat");
		if (fscanf(f, "%llu", &nr) == 1)
			u.cpu_ns += nr;
		(void)fclose(f); /* only read */
	}
	return u;
}

/* An open file of random bytes without a name, in the page cache. */
static inline int bench_file(const struct bench *b, size_t bytes)
{
	static char block[1 << 16];
	uint64_t seed = 1, n;
	char path[4096];
	size_t off, i;
	int fd;

	snprintf(path, sizeof(path), "%s/martlet-bench.XXXXXX", b->dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		bench_die("%s: %s", path, strerror(errno));
	if (unlink(path))
		bench_die("%s: %s", path, strerror(errno));
	for (off = 0; off < bytes; off += sizeof(block)) {
		for (i = 0; i < sizeof(block); i += sizeof(n)) {
			n = bench_rand(&seed);
			memcpy(block + i, &n, sizeof(n));
		}
		if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			bench_die("writing %zu bytes in %s: %s", bytes, b->dir, strerror(errno));
	}
	return fd;
}

/* ---- runtimes ---- */

static inline const char *bench_variant_name(unsigned variant)
{
	return variant == BENCH_CT ? "ct" : variant == BENCH_W1 ? "w1" : "w2";
}

static inline void bench_log(int level, const char *sentence, void *ctx)
{
	(void)ctx;
	if (level <= MRT_LOG_WARN)
		fprintf(stderr, "martlet: %s\n", sentence);
}

/* Places the caller, too: see BENCH_*. */
/* @param files_max  as in its options; 0: the default */
static inline struct mrt_runtime *bench_runtime_files(const struct bench *b, unsigned variant, uint32_t files_max)
{
	const int *last = &b->cpus[b->cpus_nr - 1];
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	int err;

	mrt_runtime_opts_init(&opts);
	opts.log = bench_log;
	opts.seed = 1;
	if (files_max)
		opts.files_max = files_max;
	if (variant == BENCH_CT) {
		opts.flavour = MRT_FLAVOUR_CURRENT_THREAD;
		bench_pin(last, 1);
	} else if (variant == BENCH_W1) {
		opts.workers_nr = 1;
		opts.cpus = last;
		opts.cpus_nr = 1;
		bench_pin(b->cpus, 1);
	} else {
		opts.workers_nr = 2;
		opts.cpus = b->cpus;
		opts.cpus_nr = b->cpus_nr < 2 ? b->cpus_nr : 2;
		bench_pin(b->cpus, b->cpus_nr);
	}
	err = mrt_runtime_create(&opts, &rt);
	if (err)
		bench_die("mrt_runtime_create: %s", strerror(-err));
	return rt;
}

static inline struct mrt_runtime *bench_runtime(const struct bench *b, unsigned variant)
{
	return bench_runtime_files(b, variant, 0);
}

static inline void bench_block_on(struct mrt_runtime *rt, mrt_poll_fn fn, void *frame, size_t frame_bytes)
{
	int64_t result = 0;
	int err = mrt_block_on(rt, fn, frame, frame_bytes, &result);

	if (err || result < 0)
		bench_die("the root task failed: %s", strerror((int)-(err ? err : result)));
}

static inline void bench_spawn(struct mrt_runtime *rt, mrt_poll_fn fn, const void *frame, size_t frame_bytes,
			       struct mrt_task **ret_task)
{
	int err = mrt_spawn(rt, fn, frame, frame_bytes, NULL, ret_task);

	if (err)
		bench_die("mrt_spawn: %s", strerror(-err));
}

/* ---- options and the run ---- */

static inline void bench_print_usage(const char *program, FILE *out)
{
	fprintf(out,
		"usage: %s [--quick] [--repeats=N] [--variants=ct,w1,w2] [--only=TEXT] [--dir=FOLDER]\n"
		"  --quick     one repeat of each test\n"
		"  --repeats   of each test (%u)\n"
		"  --variants  ct current-thread, w1 one worker, w2 two workers (all)\n"
		"  --only      only tests with TEXT in a metric's name\n"
		"  --dir       where files are made, not a tmpfs ($TMPDIR or /var/tmp)\n",
		program, BENCH_REPEATS);
}

static inline unsigned bench_parse_variants(const char *text)
{
	unsigned mask = 0;

	mask |= strstr(text, "ct") ? BENCH_CT : 0;
	mask |= strstr(text, "w1") ? BENCH_W1 : 0;
	mask |= strstr(text, "w2") ? BENCH_W2 : 0;
	if (!mask)
		bench_die("--variants=%s: none of ct, w1, w2", text);
	return mask;
}

static inline unsigned bench_parse_repeats(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || n < 1 || n > BENCH_REPEATS_MAX)
		bench_die("--repeats=%s: not a number from 1 to %u", text, BENCH_REPEATS_MAX);
	return (unsigned)n;
}

static inline void bench_init(struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'q' }, { "repeats", required_argument, NULL, 'r' },
		{ "variants", required_argument, NULL, 'v' }, { "only", required_argument, NULL, 'o' },
		{ "dir", required_argument, NULL, 'd' }, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	int c;

	*b = (struct bench){ .repeats = BENCH_REPEATS, .variants = BENCH_ALL, .dir = getenv("TMPDIR") };
	if (!b->dir)
		b->dir = "/var/tmp";
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'q':
			b->quick = true;
			b->repeats = 1;
			break;
		case 'r':
			b->repeats = bench_parse_repeats(optarg);
			break;
		case 'v':
			b->variants = bench_parse_variants(optarg);
			break;
		case 'o':
			b->only = optarg;
			break;
		case 'd':
			b->dir = optarg;
			break;
		default:
			bench_print_usage(argv[0], c == 'h' ? stdout : stderr);
			exit(c == 'h' ? 0 : 2);
		}
	}
	if (optind < argc) {
		bench_print_usage(argv[0], stderr);
		exit(2);
	}
	b->cpus_nr = bench_cpus(b->cpus);
	(void)alarm(BENCH_LIMIT_S);
	setvbuf(stdout, NULL, _IOLBF, 0);
}

static inline void bench_repeat(const struct bench *b, const struct bench_test *t, unsigned variant, double *ret)
{
	struct bench_pass p = { .b = b, .variant = variant, .workers_nr = variant == BENCH_W2 ? 2 : 1 };

	if (!t->no_runtime)
		p.rt = bench_runtime(b, variant);
	if (!t->no_warm_up)
		t->pass(&p, ret);
	t->pass(&p, ret);
	mrt_runtime_destroy(p.rt);
}

static inline void bench_run_variant(const struct bench *b, const struct bench_test *t, unsigned variant)
{
	double values[BENCH_VALUES_MAX][BENCH_REPEATS_MAX], ret[BENCH_VALUES_MAX] = { 0 }, foreign;
	unsigned repeats = t->repeats && t->repeats < b->repeats ? t->repeats : b->repeats, i, v;
	uint64_t start = mrt_now(), own = bench_own_ns(), busy = bench_busy_ticks(), tick_ns;

	for (i = 0; i < repeats; i++) {
		bench_repeat(b, t, variant, ret);
		for (v = 0; v < BENCH_VALUES_MAX; v++)
			values[v][i] = ret[v];
	}
	bench_pin(b->cpus, b->cpus_nr);
	tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
	foreign = ((double)((bench_busy_ticks() - busy) * tick_ns) - (double)(bench_own_ns() - own)) /
		  (double)(mrt_now() - start);
	for (v = 0; v < BENCH_VALUES_MAX && t->values[v].metric; v++) {
		qsort(values[v], repeats, sizeof(values[v][0]), bench_cmp);
		printf("%s.%s %.4g %s min %.4g max %.4g n %u foreign %.2f\n", t->values[v].metric,
		       bench_variant_name(variant), bench_median(values[v], repeats), t->values[v].unit, values[v][0],
		       values[v][repeats - 1], repeats, foreign > 0 ? foreign : 0);
	}
}

static inline bool bench_is_wanted(const struct bench *b, const struct bench_test *t)
{
	unsigned v;

	if (!b->only)
		return true;
	for (v = 0; v < BENCH_VALUES_MAX && t->values[v].metric; v++)
		if (strstr(t->values[v].metric, b->only))
			return true;
	return false;
}

/* Run tests and print their lines. @return exit status */
static inline int bench_run(const struct bench *b, const struct bench_test *tests, size_t nr)
{
	size_t i;
	unsigned v;

	for (i = 0; i < nr; i++) {
		if (!bench_is_wanted(b, &tests[i]))
			continue;
		for (v = 0; v < BENCH_VARIANTS_NR; v++) {
			unsigned variant = 1u << v;

			if (!(tests[i].variants & b->variants & variant))
				continue;
			if (variant == BENCH_W2 && b->cpus_nr < 2)
				fprintf(stderr, "two workers share one CPU\n");
			bench_run_variant(b, &tests[i], variant);
		}
	}
	return 0;
}

#define BENCH_NR(array) (sizeof(array) / sizeof((array)[0]))

#endif
