/* SPDX-License-Identifier: MIT */
/*
 * Sleeps: what they cost, and how late they fire.
 *
 *	timer_insert_cancel_1live  1,000,000 x { start a sleep of 10-11 s, cancel it, await it }
 *	timer_insert_1Mlive        start 1,000,000 sleeps of 60-70 s
 *	timer_cancel_1Mlive        cancel them all and await them
 *	timer_expire_1M            1,000,000 tasks with deadlines uniform over one second, the first 4 s after the start:
 *	                           lateness seen by the tasks, of the median, the 99th percentile and the last; time of a
 *	                           spawn; CPU of the whole process for each task. None may fire early: that ends the run
 *	timer_acc                  sleeps of 1, 2 .. 50 ms in sequence, twice: lateness
 *
 * A stopped sleep costs what it costs a task here: a cancel completes the op through the task's done stack.
 */
#include <stdatomic.h>

#include "bench.h"

#define LIVE 1000000u
#define EXPIRE_AHEAD_NS MRT_SEC(4)
#define ACC_MS_MAX 50u

/* ---- one live ---- */

struct one {
	struct mrt_op op;
	unsigned left;
	uint64_t rand;
	uint64_t start_ns, end_ns;
};

static enum mrt_poll one_poll(struct mrt_task *self, void *frame)
{
	struct one *f = frame;

	MRT_BEGIN(self);
	f->start_ns = mrt_now();
	while (f->left-- > 0) {
		(void)mrt_sleep(&f->op, MRT_SEC(10) + bench_rand(&f->rand) % MRT_SEC(1)); /* awaited below */
		mrt_cancel(&f->op);
		MRT_AWAIT(self, &f->op);
		if (f->op.res != -ECANCELED)
			MRT_RETURN(self, -EBADMSG);
	}
	f->end_ns = mrt_now();
	MRT_RETURN(self, 0);
}

static void pass_one(const struct bench_pass *p, double *ret)
{
	struct one f = { .left = LIVE, .rand = 1 };

	bench_block_on(p->rt, one_poll, &f, sizeof(f));
	ret[0] = (double)(f.end_ns - f.start_ns) / LIVE;
}

/* ---- a million live ---- */

struct many {
	struct mrt_op *ops;     /* [LIVE] */
	unsigned i;
	uint64_t rand;
	uint64_t insert_ns, cancel_ns;
};

static enum mrt_poll many_poll(struct mrt_task *self, void *frame)
{
	struct many *f = frame;

	MRT_BEGIN(self);
	f->insert_ns = mrt_now();
	for (f->i = 0; f->i < LIVE; f->i++)
		(void)mrt_sleep(&f->ops[f->i], MRT_SEC(60) + bench_rand(&f->rand) % MRT_SEC(10)); /* awaited below */
	f->cancel_ns = mrt_now();
	f->insert_ns = f->cancel_ns - f->insert_ns;
	for (f->i = 0; f->i < LIVE; f->i++)
		mrt_cancel(&f->ops[f->i]);
	for (f->i = 0; f->i < LIVE; f->i++) {
		MRT_AWAIT(self, &f->ops[f->i]);
		if (f->ops[f->i].res != -ECANCELED)
			MRT_RETURN(self, -EBADMSG);
	}
	f->cancel_ns = mrt_now() - f->cancel_ns;
	MRT_RETURN(self, 0);
}

static void pass_many(const struct bench_pass *p, double *ret)
{
	struct many f = { .ops = bench_alloc_touched(LIVE, sizeof(struct mrt_op)), .rand = 1 };

	bench_block_on(p->rt, many_poll, &f, sizeof(f));
	free(f.ops);
	ret[0] = (double)f.insert_ns / LIVE;
	ret[1] = (double)f.cancel_ns / LIVE;
}

/* ---- a million expire ---- */

struct expiry {
	uint64_t *late_ns;      /* [LIVE] */
	atomic_uint left;
	struct mrt_oneshot done;
	uint64_t first_ns;      /* the first deadline */
	uint64_t spawn_ns;
	uint64_t last_due_ns, end_ns;
};

struct sleeper {
	struct mrt_op op;
	struct expiry *all;
	uint64_t due_ns;
	unsigned i;
};

static enum mrt_poll sleeper_poll(struct mrt_task *self, void *frame)
{
	struct sleeper *f = frame;
	struct expiry *all = f->all;
	uint64_t now;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due_ns));
	now = mrt_now();
	if (now < f->due_ns)
		bench_die("timer_expire_1M: a sleep ended %llu ns early", (unsigned long long)(f->due_ns - now));
	all->late_ns[f->i] = now - f->due_ns;
	/* the last one publishes all lateness by the oneshot, together with the order of the countdown */
	if (atomic_fetch_sub_explicit(&all->left, 1, memory_order_acq_rel) == 1) {
		all->end_ns = now;
		(void)mrt_oneshot_send(&all->done, 0); /* the only send */
	}
	MRT_RETURN(self, f->op.res);
}

struct expiry_root {
	struct mrt_op op;
	struct expiry *all;
};

static enum mrt_poll expiry_poll(struct mrt_task *self, void *frame)
{
	struct expiry_root *f = frame;
	struct sleeper s;
	uint64_t rand = 1, start;

	MRT_BEGIN(self);
	start = mrt_now();
	f->all->first_ns = start + EXPIRE_AHEAD_NS;
	memset(&s, 0, sizeof(s));
	s.all = f->all;
	for (s.i = 0; s.i < LIVE; s.i++) {
		s.due_ns = f->all->first_ns + bench_rand(&rand) % MRT_SEC(1);
		if (s.due_ns > f->all->last_due_ns)
			f->all->last_due_ns = s.due_ns;
		bench_spawn(NULL, sleeper_poll, &s, sizeof(s), NULL);
	}
	f->all->spawn_ns = mrt_now() - start;
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->all->done));
	MRT_RETURN(self, f->op.res);
}

static void pass_expire(const struct bench_pass *p, double *ret)
{
	static struct expiry all; /* static: the last sender may still be in its send when the root ends */
	struct expiry_root root = { .all = &all };
	uint64_t cpu = bench_cpu_ns();

	all = (struct expiry){ .late_ns = bench_alloc_touched(LIVE, sizeof(uint64_t)) };
	atomic_store_explicit(&all.left, LIVE, memory_order_release);
	mrt_oneshot_init(&all.done);
	bench_block_on(p->rt, expiry_poll, &root, sizeof(root));
	cpu = bench_cpu_ns() - cpu;
	bench_sort_u64(all.late_ns, LIVE);
	ret[0] = (double)bench_percentile(all.late_ns, LIVE, 50) / 1e3;
	ret[1] = (double)bench_percentile(all.late_ns, LIVE, 99) / 1e3;
	ret[2] = ((double)all.end_ns - (double)all.last_due_ns) / 1e3;
	ret[3] = (double)all.spawn_ns / LIVE;
	ret[4] = (double)cpu / LIVE;
	free(all.late_ns);
}

/* ---- accuracy ---- */

struct acc {
	struct mrt_op op;
	unsigned i;
	uint64_t due_ns;
	uint64_t late_ns[2 * ACC_MS_MAX];
};

static enum mrt_poll acc_poll(struct mrt_task *self, void *frame)
{
	struct acc *f = frame;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < 2 * ACC_MS_MAX; f->i++) {
		f->due_ns = mrt_now() + MRT_MS(f->i % ACC_MS_MAX + 1);
		MRT_AWAIT(self, mrt_sleep_until(&f->op, f->due_ns));
		f->late_ns[f->i] = mrt_now();
		if (f->late_ns[f->i] < f->due_ns)
			bench_die("timer_acc: a sleep ended early");
		f->late_ns[f->i] -= f->due_ns;
	}
	MRT_RETURN(self, 0);
}

static void pass_acc(const struct bench_pass *p, double *ret)
{
	struct acc f = { .i = 0 };

	bench_block_on(p->rt, acc_poll, &f, sizeof(f));
	bench_sort_u64(f.late_ns, 2 * ACC_MS_MAX);
	ret[0] = (double)bench_percentile(f.late_ns, 2 * ACC_MS_MAX, 50) / 1e3;
	ret[1] = (double)bench_percentile(f.late_ns, 2 * ACC_MS_MAX, 99) / 1e3;
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "timer_insert_cancel_1live", "ns/op" } }, .variants = BENCH_ALL, .pass = pass_one },
		{ { { "timer_insert_1Mlive", "ns/op" }, { "timer_cancel_1Mlive", "ns/op" } }, .variants = BENCH_ALL,
		  .pass = pass_many },
		{ { { "timer_expire_1M_p50", "us" }, { "timer_expire_1M_p99", "us" }, { "timer_expire_1M_last", "us" },
		    { "timer_expire_1M_spawn", "ns/task" }, { "timer_expire_1M_cpu", "ns/task" } },
		  .variants = BENCH_CT | BENCH_W2, .repeats = 3, .pass = pass_expire },
		{ { { "timer_acc_p50", "us" }, { "timer_acc_p99", "us" } }, .variants = BENCH_ALL, .repeats = 3,
		  .no_warm_up = true, .pass = pass_acc },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
