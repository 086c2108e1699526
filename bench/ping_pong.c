/* SPDX-License-Identifier: MIT */
/*
 * Tasks that wake each other.
 *
 *	ping_pong         a task spawns 1,000 tasks; each makes two oneshots, spawns a partner { receive the first, send the
 *	                  second }, sends the first, receives the second; until the last has
 *	notify_pingpong   two tasks hand a token back and forth, 300,000 rounds
 *
 * The oneshots stand in an array of the pass: a partner may still be inside its send when the receiver has ended.
 */
#include <stdatomic.h>

#include "bench.h"

#define PINGS 1000u
#define ROUNDS 300000u

struct pair {
	struct mrt_oneshot there, back;
};

struct pings {
	struct pair *pairs;     /* [PINGS] */
	atomic_uint left;
	struct mrt_oneshot done;
	uint64_t start_ns, end_ns;
};

struct partner {
	struct mrt_op op;
	struct pair *pair;
};

static enum mrt_poll partner_poll(struct mrt_task *self, void *frame)
{
	struct partner *f = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->pair->there));
	(void)mrt_oneshot_send(&f->pair->back, f->op.res); /* the only send */
	MRT_RETURN(self, 0);
}

struct ping {
	struct mrt_op op;
	struct pings *all;
	struct pair *pair;
};

static enum mrt_poll ping_poll(struct mrt_task *self, void *frame)
{
	struct partner partner;
	struct ping *f = frame;

	MRT_BEGIN(self);
	mrt_oneshot_init(&f->pair->there);
	mrt_oneshot_init(&f->pair->back);
	memset(&partner, 0, sizeof(partner));
	partner.pair = f->pair;
	bench_spawn(NULL, partner_poll, &partner, sizeof(partner), NULL);
	(void)mrt_oneshot_send(&f->pair->there, 7); /* the only send */
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->pair->back));
	if (f->op.res != 7)
		bench_die("ping_pong: %lld came back", (long long)f->op.res);
	/* the last one publishes end_ns by the oneshot */
	if (atomic_fetch_sub_explicit(&f->all->left, 1, memory_order_relaxed) == 1) {
		f->all->end_ns = mrt_now();
		(void)mrt_oneshot_send(&f->all->done, 0); /* the only send */
	}
	MRT_RETURN(self, 0);
}

struct root {
	struct mrt_op op;
	struct pings *all;
};

static enum mrt_poll root_poll(struct mrt_task *self, void *frame)
{
	struct root *f = frame;
	struct ping ping;
	unsigned i;

	MRT_BEGIN(self);
	f->all->start_ns = mrt_now();
	memset(&ping, 0, sizeof(ping));
	ping.all = f->all;
	for (i = 0; i < PINGS; i++) {
		ping.pair = &f->all->pairs[i];
		bench_spawn(NULL, ping_poll, &ping, sizeof(ping), NULL);
	}
	MRT_AWAIT(self, mrt_oneshot_recv(&f->op, &f->all->done));
	MRT_RETURN(self, f->op.res);
}

static void pass_ping_pong(const struct bench_pass *p, double *ret)
{
	/* not freed between passes: a partner of the last ping may still be in its send when root ends */
	static struct pair pairs[PINGS];
	static struct pings all;
	struct root root = { .all = &all };
	double sum = 0;
	unsigned i;

	/* one iteration takes half a millisecond: ten give a steadier figure */
	for (i = 0; i < 10; i++) {
		all.pairs = pairs;
		atomic_store_explicit(&all.left, PINGS, memory_order_release);
		mrt_oneshot_init(&all.done);
		bench_block_on(p->rt, root_poll, &root, sizeof(root));
		sum += (double)(all.end_ns - all.start_ns);
	}
	ret[0] = sum / i / PINGS;
}

struct player {
	struct mrt_op op;
	struct mrt_notify *mine, *others;
	unsigned left;
	bool serves;
};

static enum mrt_poll player_poll(struct mrt_task *self, void *frame)
{
	struct player *f = frame;

	MRT_BEGIN(self);
	if (f->serves)
		mrt_notify_one(f->others);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_notify_wait(&f->op, f->mine));
		if (f->left > 0 || !f->serves)
			mrt_notify_one(f->others);
	}
	MRT_RETURN(self, 0);
}

struct match {
	struct mrt_op op;
	struct mrt_notify a, b;
	struct mrt_task *tasks[2];
	uint64_t start_ns, end_ns;
};

static enum mrt_poll match_poll(struct mrt_task *self, void *frame)
{
	struct player p;
	struct match *f = frame;

	MRT_BEGIN(self);
	f->start_ns = mrt_now();
	p = (struct player){ .mine = &f->a, .others = &f->b, .left = ROUNDS };
	bench_spawn(NULL, player_poll, &p, sizeof(p), &f->tasks[0]);
	p = (struct player){ .mine = &f->b, .others = &f->a, .left = ROUNDS, .serves = true };
	bench_spawn(NULL, player_poll, &p, sizeof(p), &f->tasks[1]);
	MRT_AWAIT(self, mrt_join(&f->op, f->tasks[0]));
	MRT_AWAIT(self, mrt_join(&f->op, f->tasks[1]));
	f->end_ns = mrt_now();
	MRT_RETURN(self, 0);
}

static void pass_notify(const struct bench_pass *p, double *ret)
{
	struct match f = { .start_ns = 0 };

	bench_block_on(p->rt, match_poll, &f, sizeof(f));
	ret[0] = (double)(f.end_ns - f.start_ns) / ROUNDS;
}

int main(int argc, char **argv)
{
	static const struct bench_test tests[] = {
		{ { { "ping_pong", "ns/ping" } }, .variants = BENCH_ALL, .pass = pass_ping_pong },
		{ { { "notify_pingpong", "ns/round" } }, .variants = BENCH_ALL, .pass = pass_notify },
	};
	struct bench b;

	bench_init(&b, argc, argv);
	return bench_run(&b, tests, BENCH_NR(tests));
}
