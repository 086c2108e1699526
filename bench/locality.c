/* SPDX-License-Identifier: MIT */
/*
 * Locality: random 4 KiB reads of a cached file by 2 x 32 tasks on two workers, for two seconds.
 *
 *	locality_stay      share of polls of tasks that the same worker polled or spawned last: 1 - moved / polls
 *	locality_reads     reads a second
 *	locality_balance   polls of the worker with fewer of them over the other's
 *	locality_enters    system calls into the ring for each read
 */
#include <stdatomic.h>

#include "bench.h"

#define TASKS 64u
#define WARM_NS MRT_MS(300)
#define WINDOW_NS MRT_SEC(2)
#define FILE_BYTES (UINT64_C(64) << 20)
#define BLOCK 4096u

struct all {
	atomic_bool stop;
	int fd;
	char *bufs;     /* [TASKS * BLOCK] */
};

struct reader {
	struct mrt_op op;
	struct all *all;
	unsigned i;
	uint64_t rand;
};

static enum mrt_poll reader_poll(struct mrt_task *self, void *frame)
{
	struct reader *f = frame;

	MRT_BEGIN(self);
	/* relaxed: a flag */
	while (!atomic_load_explicit(&f->all->stop, memory_order_relaxed)) {
		MRT_AWAIT(self, mrt_read(&f->op, f->all->fd, f->all->bufs + (size_t)f->i * BLOCK, BLOCK,
					 (int64_t)(bench_rand(&f->rand) % (FILE_BYTES / BLOCK) * BLOCK)));
		if (f->op.res != BLOCK)
			MRT_RETURN(self, -EIO);
	}
	MRT_RETURN(self, 0);
}

struct totals {
	double polls[2], moved, cqes, enters;
};

static struct totals totals_of(const struct bench_pass *p)
{
	struct totals t = { .moved = 0 };
	struct mrt_worker_stats s;
	unsigned i;

	for (i = 0; i < p->workers_nr; i++) {
		(void)mrt_stats_get(p->rt, i, &s); /* the worker exists */
		t.polls[i] = (double)s.polls;
		t.moved += (double)s.moved;
		t.cqes += (double)s.cqes;
		t.enters += (double)s.enters;
	}
	return t;
}

static void pass_locality(const struct bench_pass *p, double *ret)
{
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = MRT_SPAWN_SPREAD };
	struct all all = { .fd = bench_file(p->b, FILE_BYTES), .bufs = bench_alloc_touched(TASKS, BLOCK) };
	struct mrt_task *tasks[TASKS];
	struct totals a, b;
	uint64_t start;
	int64_t result;
	double seconds, polls[2];
	unsigned i;

	for (i = 0; i < TASKS; i++) {
		struct reader r = { .all = &all, .i = i, .rand = i + 1 };
		int err = mrt_spawn(p->rt, reader_poll, &r, sizeof(r), &opts, &tasks[i]);

		if (err)
			bench_die("mrt_spawn: %s", strerror(-err));
	}
	bench_sleep_ns(WARM_NS);
	a = totals_of(p);
	start = mrt_now();
	bench_sleep_ns(WINDOW_NS);
	b = totals_of(p);
	seconds = (double)(mrt_now() - start) / 1e9;
	atomic_store_explicit(&all.stop, true, memory_order_release);
	for (i = 0; i < TASKS; i++)
		if (mrt_task_join_wait(tasks[i], &result) || result < 0)
			bench_die("locality: a read failed");
	for (i = 0; i < 2; i++)
		polls[i] = b.polls[i] - a.polls[i];
	ret[0] = 1 - (b.moved - a.moved) / (polls[0] + polls[1]);
	ret[1] = (b.cqes - a.cqes) / seconds;
	ret[2] = polls[0] < polls[1] ? polls[0] / polls[1] : polls[1] / polls[0];
	ret[3] = (b.enters - a.enters) / (b.cqes - a.cqes);
	(void)close(all.fd); /* only read */
	free(all.bufs);
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "locality_stay", "share" }, { "locality_reads", "/s" }, { "locality_balance", "ratio" },
		    { "locality_enters", "/read" } }, .variants = BENCH_W2, .no_warm_up = true, .pass = pass_locality },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
