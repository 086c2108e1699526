/* SPDX-License-Identifier: MIT */
/*
 * Work that is to be counted, not timed: scripts/bench-instructions runs a shape under callgrind with two counts, and the
 * difference, divided by the difference of the counts, is what one op costs in instructions, set-up left out. On the
 * current-thread flavour, as a worker that waits in the kernel would hold valgrind's lock.
 *
 *	count SHAPE NUMBER
 *
 *	read         random 4 KiB reads of a cached file by 32 tasks
 *	read_fast    the same with the runtime's arena and a registered file
 *	read_alone   the same by one task
 *	bare_read    as read by a bare io_uring loop of depth 32, in the shape of bench/raw/raw.c without its stamps
 *	bare_read_fast  the same with registered buffers and file
 *	bare_read_alone ... of depth 1
 *	spawn        spawn a task and join it
 *	wake         two tasks wake each other: a round trip, two wakes
 *	timer        start a sleep of 10 s, cancel it, await it: in one poll, so that it never comes into the wheel
 *	timeout      the same, with a yield before the cancel: it has come into the wheel
 *	echo         64 bytes there and back over a socket pair: two sends, two receives
 *	yield        two tasks give way to each other: a yield of each
 *	fork         32 tasks are spawned, then joined: an op is a task
 *	outside      a plain thread spawns tasks
 *
 * With --workers=W the runtime has W workers, for counts that need no valgrind (scripts/bench-workers), and with --roots=R each
 * R-th of the ops is done by a root of its own, placed by MRT_SPAWN_SPREAD: shapes without a file, from `spawn` to `fork`. With
 * --held all workers but one are in one poll from before the first op to after the last, so they neither steal nor sleep, and
 * the counts do not depend on chance. Prints what the workers' own statistics say, per op.
 */
#include <liburing.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "bench.h"

#define DEPTH 32u               /* but of the shapes that are "alone" */
#define BLOCK 4096u
#define FILE_BYTES (UINT64_C(4) << 20)
#define BLOCKS (FILE_BYTES / BLOCK)
#define MSG_BYTES 64u

struct work {
	struct bench b;
	uint64_t nr;
	int fd;
	unsigned depth;
	char *bufs;             /* [DEPTH * BLOCK] */
};

/* ---- reads ---- */

struct reader {
	struct mrt_op op;
	int fd;
	char *buf;
	uint64_t rand, left;
};

static enum mrt_poll reader_poll(struct mrt_task *self, void *frame)
{
	struct reader *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_read(&f->op, f->fd, f->buf, BLOCK, (int64_t)(bench_rand(&f->rand) % BLOCKS * BLOCK)));
		if (f->op.res != (int64_t)BLOCK)
			bench_die("a read gave %lld", (long long)f->op.res);
	}
	MRT_RETURN(self, 0);
}

struct root {
	struct mrt_op op, yield;
	struct work *w;
	bool fast;
	char *bufs;             /* [DEPTH * BLOCK] of the reads */
	struct mrt_scope scope;
	struct mrt_op *joined;
	struct mrt_notify there, back;
	struct mrt_task *task;
	uint64_t left;
	int fds[2];
	char msg[MSG_BYTES];
};

/* The arena's memory, and a handle that takes the file over. */
static void take_fast_path(struct root *f)
{
	void *bufs;
	int rc = mrt_alloc(NULL, DEPTH * BLOCK, 0, &bufs);

	if (rc == 0)
		rc = mrt_file_register(NULL, f->w->fd, 0);
	if (rc < 0)
		bench_die("registering: %s", strerror(-rc));
	f->bufs = bufs;
	f->w->fd = rc;
}

static enum mrt_poll read_root(struct mrt_task *self, void *frame)
{
	struct root *f = frame;
	struct reader r;

	MRT_BEGIN(self);
	f->bufs = f->w->bufs;
	if (f->fast)
		take_fast_path(f);
	mrt_scope_init(&f->scope, 0);
	memset(&r, 0, sizeof(r));
	r.fd = f->w->fd;
	r.left = f->w->nr / f->w->depth;
	for (unsigned i = 0; i < f->w->depth; i++) {
		r.rand = i + 1;
		r.buf = f->bufs + (size_t)i * BLOCK;
		if (mrt_scope_spawn(&f->scope, reader_poll, &r, sizeof(r), NULL))
			bench_die("no task");
	}
	f->joined = mrt_scope_join(&f->scope);
	MRT_AWAIT(self, f->joined);
	if (f->joined->res < 0)
		MRT_RETURN(self, f->joined->res);
	MRT_AWAIT(self, mrt_close(&f->op, f->w->fd));
	if (f->fast)
		mrt_free(NULL, f->bufs);
	MRT_RETURN(self, f->op.res);
}

/* ---- tasks ---- */

static enum mrt_poll empty_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_BEGIN(self);
	MRT_RETURN(self, 0);
}

static enum mrt_poll spawn_root(struct mrt_task *self, void *frame)
{
	struct root *f = frame;

	MRT_BEGIN(self);
	for (f->left = f->w->nr; f->left > 0; f->left--) {
		bench_spawn(NULL, empty_poll, NULL, 0, &f->task);
		MRT_AWAIT(self, mrt_join(&f->op, f->task));
	}
	MRT_RETURN(self, 0);
}

/* What the other side of a pair needs; its root outlives it. */
struct peer {
	struct mrt_op op;
	struct root *root;
	uint64_t left;
	char msg[MSG_BYTES];
};

static enum mrt_poll waker_poll(struct mrt_task *self, void *frame)
{
	struct peer *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_notify_wait(&f->op, &f->root->there));
		mrt_notify_one(&f->root->back);
	}
	MRT_RETURN(self, 0);
}

static void spawn_peer(struct root *f, mrt_poll_fn fn)
{
	struct peer p;

	memset(&p, 0, sizeof(p));
	p.root = f;
	p.left = f->w->nr;
	bench_spawn(NULL, fn, &p, sizeof(p), &f->task);
}

static enum mrt_poll wake_root(struct mrt_task *self, void *frame)
{
	struct root *f = frame;

	MRT_BEGIN(self);
	mrt_notify_init(&f->there);
	mrt_notify_init(&f->back);
	spawn_peer(f, waker_poll);
	for (f->left = f->w->nr; f->left > 0; f->left--) {
		mrt_notify_one(&f->there);
		MRT_AWAIT(self, mrt_notify_wait(&f->op, &f->back));
	}
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	MRT_RETURN(self, f->op.res);
}

static enum mrt_poll yielder_poll(struct mrt_task *self, void *frame)
{
	struct peer *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

/* Two tasks that yield by turns: an op of the count is a yield of each. */
static enum mrt_poll yield_root(struct mrt_task *self, void *frame)
{
	struct root *f = frame;

	MRT_BEGIN(self);
	spawn_peer(f, yielder_poll);
	for (f->left = f->w->nr; f->left > 0; f->left--)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	MRT_RETURN(self, f->op.res);
}

/* A burst of tasks, which other workers can help with. */
struct fork_root {
	struct root r;
	struct mrt_task *tasks[DEPTH];
	unsigned i;
};

static enum mrt_poll fork_root_poll(struct mrt_task *self, void *frame)
{
	struct fork_root *f = frame;

	MRT_BEGIN(self);
	for (f->r.left = f->r.w->nr / DEPTH; f->r.left > 0; f->r.left--) {
		for (f->i = 0; f->i < DEPTH; f->i++)
			bench_spawn(NULL, empty_poll, NULL, 0, &f->tasks[f->i]);
		for (f->i = 0; f->i < DEPTH; f->i++)
			MRT_AWAIT(self, mrt_join(&f->r.op, f->tasks[f->i]));
	}
	MRT_RETURN(self, 0);
}

static enum mrt_poll counted_poll(struct mrt_task *self, void *frame)
{
	atomic_ullong *ran = *(atomic_ullong **)frame;

	MRT_BEGIN(self);
	/* relaxed: a count */
	atomic_fetch_add_explicit(ran, 1, memory_order_relaxed);
	MRT_RETURN(self, 0);
}

static void spawn_outside(struct mrt_runtime *rt, uint64_t nr)
{
	atomic_ullong ran = 0, *at = &ran;
	uint64_t i;

	for (i = 0; i < nr; i++)
		bench_spawn(rt, counted_poll, &at, sizeof(at), NULL);
	while (atomic_load_explicit(&ran, memory_order_relaxed) < nr) /* relaxed: as above */
		bench_sleep_ns(MRT_US(200));
}

static enum mrt_poll timer_root(struct mrt_task *self, void *frame)
{
	struct root *f = frame;

	MRT_BEGIN(self);
	for (f->left = f->w->nr; f->left > 0; f->left--) {
		(void)mrt_sleep(&f->op, MRT_SEC(10)); /* awaited below */
		mrt_cancel(&f->op);
		MRT_AWAIT(self, &f->op);
	}
	MRT_RETURN(self, 0);
}

static enum mrt_poll timeout_root(struct mrt_task *self, void *frame)
{
	struct root *f = frame;

	MRT_BEGIN(self);
	for (f->left = f->w->nr; f->left > 0; f->left--) {
		(void)mrt_sleep(&f->op, MRT_SEC(10)); /* awaited below */
		MRT_AWAIT(self, mrt_yield(&f->yield));
		mrt_cancel(&f->op);
		MRT_AWAIT(self, &f->op);
	}
	MRT_RETURN(self, 0);
}

/* ---- sockets ---- */

static enum mrt_poll echo_poll(struct mrt_task *self, void *frame)
{
	struct peer *f = frame;

	MRT_BEGIN(self);
	while (f->left-- > 0) {
		MRT_AWAIT(self, mrt_recv(&f->op, f->root->fds[1], f->msg, MSG_BYTES, 0));
		MRT_AWAIT(self, mrt_send(&f->op, f->root->fds[1], f->msg, MSG_BYTES, 0));
	}
	MRT_RETURN(self, f->op.res);
}

static enum mrt_poll echo_root(struct mrt_task *self, void *frame)
{
	struct root *f = frame;

	MRT_BEGIN(self);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->fds))
		bench_die("socketpair: %s", strerror(errno));
	spawn_peer(f, echo_poll);
	for (f->left = f->w->nr; f->left > 0; f->left--) {
		MRT_AWAIT(self, mrt_send(&f->op, f->fds[0], f->msg, MSG_BYTES, 0));
		MRT_AWAIT(self, mrt_recv(&f->op, f->fds[0], f->msg, MSG_BYTES, 0));
		if (f->op.res != (int64_t)MSG_BYTES)
			bench_die("a receive gave %lld", (long long)f->op.res);
	}
	MRT_AWAIT(self, mrt_join(&f->op, f->task));
	(void)close(f->fds[0]); /* nothing is in it */
	(void)close(f->fds[1]);
	MRT_RETURN(self, f->op.res < 0 ? f->op.res : 0);
}

/* ---- the bare loop ---- */

struct bare {
	struct io_uring ring;
	uint64_t rand[DEPTH];
	unsigned char opcode, flags;
};

static void bare_stage(struct bare *r, const struct work *w, unsigned i)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	if (!sqe)
		bench_die("a full ring");
	io_uring_prep_rw(r->opcode, sqe, r->flags & IOSQE_FIXED_FILE ? 0 : w->fd, w->bufs + (size_t)i * BLOCK, BLOCK,
			 bench_rand(&r->rand[i]) % BLOCKS * BLOCK);
	sqe->flags = r->flags;
	sqe->user_data = i;
}

static uint64_t bare_run(struct bare *r, const struct work *w)
{
	uint64_t started = w->depth, ended = 0, enters = 0;
	struct io_uring_cqe *cqe;
	unsigned head, n;

	for (unsigned i = 0; i < w->depth; i++)
		bare_stage(r, w, i);
	while (ended < w->nr) {
		int rc = io_uring_submit_and_wait(&r->ring, 1);

		if (rc < 0)
			bench_die("io_uring_enter: %s", strerror(-rc));
		enters++;
		n = 0;
		io_uring_for_each_cqe(&r->ring, head, cqe) {
			if (cqe->res != (int)BLOCK)
				bench_die("a read gave %d", cqe->res);
			n++;
			if (started < w->nr) {
				started++;
				bare_stage(r, w, (unsigned)cqe->user_data);
			}
		}
		io_uring_cq_advance(&r->ring, n);
		ended += n;
	}
	return enters;
}

static uint64_t run_bare(struct work *w, bool fast)
{
	struct bare r = { .opcode = IORING_OP_READ };
	unsigned flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL;
	struct iovec iov = { w->bufs, DEPTH * BLOCK };
	uint64_t enters;
	int rc = io_uring_queue_init(DEPTH, &r.ring, flags);

	if (rc == -EINVAL)
		rc = io_uring_queue_init(DEPTH, &r.ring, 0);
	if (rc)
		bench_die("io_uring_setup: %s", strerror(-rc));
	for (unsigned i = 0; i < DEPTH; i++)
		r.rand[i] = i + 1;
	if (fast) {
		rc = io_uring_register_buffers(&r.ring, &iov, 1);
		rc = rc ? rc : io_uring_register_files(&r.ring, &w->fd, 1);
		if (rc)
			bench_die("io_uring_register: %s", strerror(-rc));
		r.opcode = IORING_OP_READ_FIXED;
		r.flags = IOSQE_FIXED_FILE;
	}
	(void)io_uring_register_ring_fd(&r.ring); /* without it each enter looks the ring up */
	enters = bare_run(&r, w);
	io_uring_queue_exit(&r.ring);
	return enters;
}

/* ---- the command ---- */

static const struct shape {
	const char *name;
	mrt_poll_fn root;       /* NULL: the bare loop, or a plain thread */
	unsigned depth;         /* of reads; 0: it reads none */
	bool fast;
} shapes[] = {
	{ "read", read_root, DEPTH, false },
	{ "read_fast", read_root, DEPTH, true },
	{ "read_alone", read_root, 1, true },
	{ "bare_read", NULL, DEPTH, false },
	{ "bare_read_fast", NULL, DEPTH, true },
	{ "bare_read_alone", NULL, 1, true },
	{ "spawn", spawn_root, 0, false },
	{ "wake", wake_root, 0, false },
	{ "timer", timer_root, 0, false },
	{ "timeout", timeout_root, 0, false },
	{ "echo", echo_root, 0, false },
	{ "yield", yield_root, 0, false },
	{ "fork", fork_root_poll, 0, false },
	{ "outside", NULL, 0, false },
};

static const struct count {
	const char *name;
	size_t offset;
} counts[] = {
#define COUNT(name) { #name, offsetof(struct mrt_worker_stats, name) }
	COUNT(enters), COUNT(wakes_sent), COUNT(parks), COUNT(noop_wakes), COUNT(sentry_wakes), COUNT(steals), COUNT(steal_ops),
	COUNT(steal_tries), COUNT(injects), COUNT(overflows), COUNT(moved),
#undef COUNT
};
#define COUNTS_NR BENCH_NR(counts)

static struct mrt_runtime *make_runtime(unsigned workers_nr)
{
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	int rc;

	mrt_runtime_opts_init(&opts);
	opts.log = bench_log;
	opts.seed = 1;
	opts.workers_nr = workers_nr;
	if (workers_nr == 0)
		opts.flavour = MRT_FLAVOUR_CURRENT_THREAD;
	rc = mrt_runtime_create(&opts, &rt);
	if (rc)
		bench_die("mrt_runtime_create: %s", strerror(-rc));
	return rt;
}

/* All workers' counts, added or taken away. */
static void add_counts(struct mrt_runtime *rt, int64_t sign, int64_t *sums)
{
	for (unsigned i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		struct mrt_worker_stats st;

		(void)mrt_stats_get(rt, i, &st); /* the worker exists */
		for (size_t k = 0; k < COUNTS_NR; k++)
			sums[k] += sign * *(const int64_t *)(const void *)((const char *)&st + counts[k].offset);
	}
}

/* Roots side by side. */
struct roots {
	struct mrt_op op;
	struct fork_root root;  /* the largest one */
	mrt_poll_fn fn;
	struct mrt_scope scope;
	struct mrt_op *joined;
	unsigned nr;
};

static enum mrt_poll roots_poll(struct mrt_task *self, void *frame)
{
	struct mrt_spawn_opts spread = { .size = sizeof(spread), .flags = MRT_SPAWN_SPREAD };
	struct roots *f = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&f->scope, 0);
	for (unsigned i = 0; i < f->nr; i++)
		if (mrt_scope_spawn(&f->scope, f->fn, &f->root, sizeof(f->root), &spread))
			bench_die("no task");
	f->joined = mrt_scope_join(&f->scope);
	MRT_AWAIT(self, f->joined);
	MRT_RETURN(self, f->joined->res);
}

/* Outlives the runtime. */
struct held {
	sem_t arrived, released;
	unsigned nr;
};

static void wait_sem(sem_t *sem)
{
	while (sem_wait(sem))
		if (errno != EINTR)
			bench_die("sem_wait: %s", strerror(errno));
}

static void post_sem(sem_t *sem)
{
	if (sem_post(sem))
		bench_die("sem_post: %s", strerror(errno));
}

/* Blocks its worker, which main()'s alarm bounds. */
static enum mrt_poll held_poll(struct mrt_task *self, void *frame)
{
	struct held *h = *(struct held **)frame;

	MRT_BEGIN(self);
	post_sem(&h->arrived);
	wait_sem(&h->released);
	MRT_RETURN(self, 0);
}

/* Tasks that have arrived are on as many workers. One that was queued behind another is taken by the sentry, or stolen. */
static void hold_workers(struct mrt_runtime *rt, struct held *h)
{
	unsigned i;

	if (sem_init(&h->arrived, 0, 0) || sem_init(&h->released, 0, 0))
		bench_die("sem_init: %s", strerror(errno));
	for (i = 0; i < h->nr; i++)
		bench_spawn(rt, held_poll, &h, sizeof(h), NULL);
	for (i = 0; i < h->nr; i++)
		wait_sem(&h->arrived);
}

static void release_workers(struct held *h)
{
	for (unsigned i = 0; i < h->nr; i++)
		post_sem(&h->released);
}

/*
 * @param held_nr   workers that do nothing else
 * @param ret_sums  [COUNTS_NR] what the workers counted; the bare loop: its enters alone
 */
static void run_shape(struct work *w, const struct shape *s, unsigned workers_nr, unsigned roots_nr, unsigned held_nr,
		      int64_t *ret_sums)
{
	struct roots f = { .root.r = { .w = w, .fast = s->fast }, .fn = s->root, .nr = roots_nr };
	struct held held = { .nr = held_nr };
	struct mrt_runtime *rt;

	w->depth = s->depth;
	if (s->depth)
		w->fd = bench_file(&w->b, FILE_BYTES);
	if (!s->root && s->depth) {
		ret_sums[0] = (int64_t)run_bare(w, s->fast);
		return;
	}
	rt = make_runtime(workers_nr);
	hold_workers(rt, &held);
	add_counts(rt, -1, ret_sums);
	if (!s->root) {
		spawn_outside(rt, w->nr);
	} else if (roots_nr > 1) {
		w->nr /= roots_nr;
		bench_block_on(rt, roots_poll, &f, sizeof(f));
		w->nr *= roots_nr;
	} else {
		bench_block_on(rt, s->root, &f.root, sizeof(f.root));
	}
	add_counts(rt, 1, ret_sums);
	release_workers(&held);
	mrt_runtime_destroy(rt);
}

__attribute__((noreturn))
static void die_usage(void)
{
	fputs("usage: count SHAPE NUMBER [--workers=N] [--roots=N | --held]; shapes:", stderr);
	for (size_t i = 0; i < BENCH_NR(shapes); i++)
		fprintf(stderr, " %s", shapes[i].name);
	fputs("\n--roots needs --workers, and a shape from spawn to fork; --held needs two workers or more\n", stderr);
	exit(2);
}

static unsigned parse_option(const char *text, const char *name)
{
	size_t bytes = strlen(name);
	unsigned long n;
	char *end;

	if (strncmp(text, name, bytes) != 0)
		return 0;
	n = strtoul(text + bytes, &end, 10);
	if (end == text + bytes || *end || n < 1 || n > 1024) {
		fprintf(stderr, "count: %s: not a number from 1 to 1024\n", text);
		exit(2);
	}
	return (unsigned)n;
}

int main(int argc, char **argv)
{
	struct work w = { .fd = -1, .b.dir = getenv("TMPDIR") };
	int64_t sums[COUNTS_NR] = { 0 };
	const struct shape *s = NULL;
	unsigned workers_nr = 0, roots_nr = 0, n;
	bool held = false;

	if (!w.b.dir)
		w.b.dir = "/var/tmp";
	if (argc < 3)
		die_usage();
	for (int i = 3; i < argc; i++) {
		if ((n = parse_option(argv[i], "--workers=")) > 0)
			workers_nr = n;
		else if ((n = parse_option(argv[i], "--roots=")) > 0)
			roots_nr = n;
		else if (strcmp(argv[i], "--held") == 0)
			held = true;
		else
			die_usage();
	}
	for (size_t i = 0; i < BENCH_NR(shapes); i++) {
		if (strcmp(shapes[i].name, argv[1]) == 0)
			s = &shapes[i];
	}
	w.nr = strtoull(argv[2], NULL, 10) / DEPTH * DEPTH;
	if (!s || !w.nr || (roots_nr > 0 && (!s->root || s->depth || workers_nr == 0)) || (!s->root && !s->depth && workers_nr == 0))
		die_usage();
	if (held && (workers_nr < 2 || roots_nr > 0 || (!s->root && s->depth)))
		die_usage();
	if (roots_nr > 0)
		w.nr = w.nr / (DEPTH * roots_nr) * (DEPTH * roots_nr);
	if (!w.nr)
		die_usage();
	(void)alarm(BENCH_LIMIT_S);
	w.bufs = bench_alloc_touched(DEPTH, BLOCK);
	run_shape(&w, s, workers_nr, roots_nr, held ? workers_nr - 1 : 0, sums);
	printf("%s: %llu ops, %.4f enters per op\n", s->name, (unsigned long long)w.nr, (double)sums[0] / (double)w.nr);
	if (workers_nr > 0) {
		printf("counts:");
		for (size_t k = 0; k < COUNTS_NR; k++)
			printf(" %s=%lld", counts[k].name, (long long)sums[k]);
		putchar('\n');
	}
	free(w.bufs);
	return 0;
}
