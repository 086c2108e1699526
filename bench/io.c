/* SPDX-License-Identifier: MIT */
/*
 * What an op through the ring costs: N tasks that do nothing else, N = 1, 32, 128.
 *
 *	nop_1, _32, _128     nops
 *	read_1, _32, _128    random 4 KiB reads of a cached file
 */
#include "bench.h"

#define OPS 400000u
#define FILE_BYTES (UINT64_C(16) << 20)
#define BLOCK 4096u

struct user {
	struct mrt_op op;
	int fd;                 /* -1: nops */
	char *buf;
	uint64_t rand;
	unsigned left;
};

static struct mrt_op *start(struct user *f)
{
	if (f->fd < 0)
		return mrt_nop(&f->op);
	return mrt_read(&f->op, f->fd, f->buf, BLOCK, (int64_t)(bench_rand(&f->rand) % (FILE_BYTES / BLOCK) * BLOCK));
}

static enum mrt_poll user_poll(struct mrt_task *self, void *frame)
{
	struct user *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, start(f));
		if (f->op.res != (f->fd < 0 ? 0 : (int64_t)BLOCK))
			MRT_RETURN(self, -EIO);
	}
	MRT_RETURN(self, 0);
}

struct root {
	struct mrt_scope scope;
	struct mrt_op *joined;
	int fd;
	char *bufs;             /* [tasks_nr * BLOCK] */
	unsigned tasks_nr;
};

static enum mrt_poll root_poll(struct mrt_task *self, void *frame)
{
	struct root *f = frame;
	struct user u;
	unsigned i;
	int err;

	MRT_BEGIN(self);
	mrt_scope_init(&f->scope, 0);
	memset(&u, 0, sizeof(u));
	u.fd = f->fd;
	u.left = OPS / f->tasks_nr;
	for (i = 0; i < f->tasks_nr; i++) {
		u.rand = i + 1;
		u.buf = f->bufs + (size_t)i * BLOCK;
		err = mrt_scope_spawn(&f->scope, user_poll, &u, sizeof(u), NULL);
		if (err)
			MRT_RETURN(self, err);
	}
	f->joined = mrt_scope_join(&f->scope);
	MRT_AWAIT(self, f->joined);
	MRT_RETURN(self, f->joined->res);
}

static void run(const struct bench_pass *p, bool reads, unsigned tasks_nr, double *ret)
{
	struct root f = { .fd = -1, .bufs = bench_alloc_touched(tasks_nr, BLOCK), .tasks_nr = tasks_nr };
	uint64_t start_ns, cpu;

	if (reads)
		f.fd = bench_file(p->b, FILE_BYTES);
	start_ns = mrt_now();
	cpu = bench_cpu_ns();
	bench_block_on(p->rt, root_poll, &f, sizeof(f));
	ret[0] = (double)(mrt_now() - start_ns) / (OPS / tasks_nr * tasks_nr);
	ret[1] = (double)(bench_cpu_ns() - cpu) / (OPS / tasks_nr * tasks_nr);
	if (reads)
		(void)close(f.fd); /* only read */
	free(f.bufs);
}

#define PASS(name, reads, nr)                                                   \
	static void pass_##name##_##nr(const struct bench_pass *p, double *ret) \
	{                                                                       \
		run(p, reads, nr, ret);                                         \
	}

PASS(nop, false, 1)
PASS(nop, false, 32)
PASS(nop, false, 128)
PASS(read, true, 1)
PASS(read, true, 32)
PASS(read, true, 128)

#define TEST(name, nr)                                                                          \
	{ { { #name "_" #nr, "ns/op" }, { #name "_" #nr "_cpu", "ns/op" } }, .variants = BENCH_CT | BENCH_W1, \
	  .pass = pass_##name##_##nr }

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		TEST(nop, 1), TEST(nop, 32), TEST(nop, 128), TEST(read, 1), TEST(read, 32), TEST(read, 128),
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
