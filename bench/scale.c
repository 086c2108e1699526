/* SPDX-License-Identifier: MIT */
/*
 * The loads of bench/model.c on the real runtime, with the same counts per task in the same form, and what the model's primitives
 * cost here. scripts/bench-model puts the two side by side.
 *
 *	scale LOAD WORKERS [name=value ...]    fork, inject, uniform, skewed; burst, tasks, ops, work (ns) as in the model
 *	scale costs                            name=value of the model's parameters, the least of some rounds
 *
 * I/Os are nops: they end in the system call, as io=0 in the model. Computing is looking at the clock until `work` ns are over.
 */
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "bench.h"

#define BURST_MAX 1024u
#define ROUNDS 40u

static struct {
	double work, burst, tasks, ops;
	struct mrt_runtime *rt;
	unsigned workers_nr;
	atomic_ullong done;
	uint64_t until;
} st = { .work = 5000, .burst = 64, .tasks = 64, .ops = 2000 };

static const struct {
	const char *name;
	double *value;
} names[] = { { "work", &st.work }, { "burst", &st.burst }, { "tasks", &st.tasks }, { "ops", &st.ops } };

/* ---- loads ---- */

static bool count_one(void)
{
	/* relaxed: a count */
	return atomic_fetch_add_explicit(&st.done, 1, memory_order_relaxed) + 1 >= st.until;
}

static enum mrt_poll leaf_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_BEGIN(self);
	bench_spin_ns((uint64_t)st.work);
	(void)count_one();
	MRT_RETURN(self, 0);
}

struct root {
	struct mrt_op op;
	struct mrt_task *tasks[BURST_MAX];
	unsigned i;
};

static enum mrt_poll root_poll(struct mrt_task *self, void *frame)
{
	struct root *f = frame;

	MRT_BEGIN(self);
	while (atomic_load_explicit(&st.done, memory_order_relaxed) < st.until) { /* relaxed: a count */
		for (f->i = 0; f->i < (unsigned)st.burst; f->i++)
			bench_spawn(NULL, leaf_poll, NULL, 0, &f->tasks[f->i]);
		for (f->i = 0; f->i < (unsigned)st.burst; f->i++)
			MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
	}
	MRT_RETURN(self, 0);
}

struct io {
	struct mrt_op op;
};

static enum mrt_poll io_poll(struct mrt_task *self, void *frame)
{
	struct io *f = frame;

	MRT_BEGIN(self);
	do {
		MRT_AWAIT(self, mrt_nop(&f->op));
		bench_spin_ns((uint64_t)st.work);
	} while (!count_one());
	MRT_RETURN(self, 0);
}

struct io_root {
	struct mrt_op op;
	struct mrt_scope scope;
	struct mrt_op *joined;
	bool spread;
};

static enum mrt_poll io_root_poll(struct mrt_task *self, void *frame)
{
	struct io_root *f = frame;
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .flags = f->spread ? MRT_SPAWN_SPREAD : 0 };

	MRT_BEGIN(self);
	mrt_scope_init(&f->scope, 0);
	for (unsigned i = 0; i < (unsigned)st.tasks * st.workers_nr; i++)
		if (mrt_scope_spawn(&f->scope, io_poll, NULL, sizeof(struct io), &opts))
			bench_die("no task");
	f->joined = mrt_scope_join(&f->scope);
	MRT_AWAIT(self, f->joined);
	MRT_RETURN(self, f->joined->res);
}

/* As much ahead as the model's. */
static void inject_all(void)
{
	uint64_t i, done;

	for (i = 0; i < st.until; i++) {
		bench_spawn(st.rt, leaf_poll, NULL, 0, NULL);
		while (done = atomic_load_explicit(&st.done, memory_order_relaxed), i - done > 64 * st.workers_nr && i > done)
			(void)sched_yield();
	}
	while (atomic_load_explicit(&st.done, memory_order_relaxed) < st.until) /* relaxed: a count */
		bench_sleep_ns(MRT_US(100));
}

static void report(const char *load, uint64_t ns)
{
	double done = (double)atomic_load_explicit(&st.done, memory_order_relaxed), most = 0, polls = 0;
	struct mrt_worker_stats sum = { 0 }, s;

	for (unsigned i = 0; i < st.workers_nr; i++) {
		(void)mrt_stats_get(st.rt, i, &s); /* the worker exists */
		sum.steal_ops += s.steal_ops;
		sum.steals += s.steals;
		sum.steal_tries += s.steal_tries;
		sum.parks += s.parks;
		sum.wakes_sent += s.wakes_sent;
		sum.injects += s.injects;
		polls += (double)s.polls;
		most = (double)s.polls > most ? (double)s.polls : most;
	}
	printf("load=%s cores=%u ops_per_us=%.3f imbalance=%.2f thefts=%.4f steals=%.4f searches=%.4f parks=%.4f wakes=%.4f injects=%.4f\n",
	       load, st.workers_nr, done / (double)ns * 1e3, most * st.workers_nr / polls, (double)sum.steal_ops / done,
	       (double)sum.steals / done, (double)sum.steal_tries / done, (double)sum.parks / done,
	       (double)sum.wakes_sent / done, (double)sum.injects / done);
}

static int run_load(const char *load)
{
	struct io_root io = { .spread = strcmp(load, "uniform") == 0 };
	struct mrt_runtime_opts opts;
	struct root root = { .i = 0 };
	uint64_t start;
	int err;

	mrt_runtime_opts_init(&opts);
	opts.log = bench_log;
	opts.seed = 1;
	opts.workers_nr = st.workers_nr;
	err = mrt_runtime_create(&opts, &st.rt);
	if (err)
		bench_die("mrt_runtime_create: %s", strerror(-err));
	st.until = (uint64_t)st.ops * st.workers_nr;
	start = mrt_now();
	if (strcmp(load, "fork") == 0)
		bench_block_on(st.rt, root_poll, &root, sizeof(root));
	else if (strcmp(load, "inject") == 0)
		inject_all();
	else
		bench_block_on(st.rt, io_root_poll, &io, sizeof(io));
	report(load, mrt_now() - start);
	mrt_runtime_destroy(st.rt);
	return 0;
}

/* ---- costs ---- */

static double least(double (*measure)(void))
{
	double min = measure(), now;

	for (unsigned i = 1; i < ROUNDS; i++) {
		now = measure();
		min = now < min ? now : min;
	}
	return min;
}

static atomic_uint word;

static double rmw_cost(void)
{
	uint64_t start = mrt_now();

	for (unsigned i = 0; i < 100000; i++)
		atomic_fetch_add_explicit(&word, 1, memory_order_seq_cst);
	return (double)(mrt_now() - start) / 100000;
}

static double fence_cost(void)
{
	uint64_t start = mrt_now();

	for (unsigned i = 0; i < 100000; i++)
		atomic_thread_fence(memory_order_seq_cst);
	return (double)(mrt_now() - start) / 100000;
}

static int cpus[CPU_SETSIZE];

#define TURNS 20000u
#define TURNS_TIMED 100u        /* few: neither side may lose its CPU meanwhile */

/* @return ns a turn in the best stretch */
static double play(unsigned odd)
{
	uint64_t start = mrt_now(), now, min = UINT64_MAX;

	for (unsigned i = odd; i < 2 * TURNS; i += 2) {
		while (atomic_load_explicit(&word, memory_order_relaxed) != i)
			;
		atomic_store_explicit(&word, i + 1, memory_order_relaxed);
		if (i % (2 * TURNS_TIMED) != odd)
			continue;
		now = mrt_now();
		min = i > odd && now - start < min ? now - start : min;
		start = now;
	}
	return (double)min / (2 * TURNS_TIMED);
}

static void *play_odd(void *arg)
{
	(void)arg;
	bench_pin(&cpus[1], 1);
	atomic_store_explicit(&word, 0, memory_order_relaxed); /* it is there */
	(void)play(1);
	return NULL;
}

/* A turn is a line that goes over: it is read, then written, by one who has it not. */
static double line_cost(void)
{
	pthread_t thread;
	double ns;

	atomic_store_explicit(&word, UINT32_MAX, memory_order_relaxed);
	if (pthread_create(&thread, NULL, play_odd, NULL))
		bench_die("no thread");
	while (atomic_load_explicit(&word, memory_order_relaxed) > 0)
		;
	ns = play(0);
	(void)pthread_join(thread, NULL); /* it exists */
	return ns;
}

static struct io_uring ring;

static double enter_of(unsigned nr)
{
	struct io_uring_cqe *cqe;
	uint64_t start = mrt_now();

	for (unsigned i = 0; i < 1000; i++) {
		for (unsigned k = 0; k < nr; k++) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			if (!sqe)
				bench_die("a full ring");
			io_uring_prep_nop(sqe);
		}
		if (io_uring_submit_and_wait(&ring, nr) < 0 || io_uring_peek_cqe(&ring, &cqe))
			bench_die("nops failed");
		io_uring_cq_advance(&ring, nr);
	}
	return (double)(mrt_now() - start) / 1000;
}

static double enter_1(void)
{
	return enter_of(1);
}

static double enter_32(void)
{
	return enter_of(32);
}

static int event;
static _Atomic uint64_t woken_ns;

static void *sleep_once(void *arg)
{
	uint64_t n;

	(void)arg;
	bench_pin(&cpus[1], 1);
	if (read(event, &n, sizeof(n)) != sizeof(n))
		bench_die("eventfd: %s", strerror(errno));
	atomic_store_explicit(&woken_ns, mrt_now(), memory_order_release);
	return NULL;
}

static double write_ns;

/* From the write until the sleeper runs; write_ns: of that, until the write is over. */
static double wake_cost(void)
{
	uint64_t one = 1, start, written;
	pthread_t thread;

	if (pthread_create(&thread, NULL, sleep_once, NULL))
		bench_die("no thread");
	bench_sleep_ns(MRT_MS(5)); /* it sleeps */
	start = mrt_now();
	if (write(event, &one, sizeof(one)) != sizeof(one))
		bench_die("eventfd: %s", strerror(errno));
	written = mrt_now();
	(void)pthread_join(thread, NULL); /* it exists */
	if (write_ns <= 0 || (double)(written - start) < write_ns)
		write_ns = (double)(written - start);
	return (double)(atomic_load_explicit(&woken_ns, memory_order_acquire) - start);
}

static enum mrt_poll empty_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_BEGIN(self);
	MRT_RETURN(self, 0);
}

#define BURST 200u

static double spawned_ns, ran_ns;

static enum mrt_poll spawner_poll(struct mrt_task *self, void *frame)
{
	struct root *f = frame;
	uint64_t start, spawned;

	MRT_BEGIN(self);
	start = mrt_now();
	for (unsigned i = 0; i < BURST; i++)
		bench_spawn(NULL, empty_poll, NULL, 0, &f->tasks[i]);
	spawned = mrt_now();
	spawned_ns = (double)(spawned - start) / BURST;
	ran_ns = (double)spawned;
	for (f->i = 0; f->i < BURST; f->i++)
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
	ran_ns = ((double)mrt_now() - ran_ns) / BURST;
	MRT_RETURN(self, 0);
}

static double spawn_cost(void)
{
	struct root f = { .i = 0 };

	bench_block_on(st.rt, spawner_poll, &f, sizeof(f));
	return spawned_ns;
}

static double poll_cost(void)
{
	(void)spawn_cost();
	return ran_ns;
}

static double spawn_out_cost(void)
{
	uint64_t start = mrt_now();

	for (unsigned i = 0; i < BURST; i++)
		bench_spawn(st.rt, empty_poll, NULL, 0, NULL);
	return (double)(mrt_now() - start) / BURST;
}

static int print_costs(void)
{
	struct mrt_runtime_opts opts;
	double one, many, wake;
	int err;

	if (bench_cpus(cpus) < 2)
		bench_die("costs: two CPUs are wanted");
	bench_pin(cpus, 1);
	event = eventfd(0, EFD_CLOEXEC);
	if (event < 0 || io_uring_queue_init(64, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN))
		bench_die("no eventfd, or no ring");
	mrt_runtime_opts_init(&opts);
	opts.flavour = MRT_FLAVOUR_CURRENT_THREAD;
	err = mrt_runtime_create(&opts, &st.rt);
	if (err)
		bench_die("mrt_runtime_create: %s", strerror(-err));
	one = least(enter_1);
	many = least(enter_32);
	wake = least(wake_cost);
	printf("line=%.1f rmw=%.1f fence=%.1f", least(line_cost), least(rmw_cost), least(fence_cost));
	printf(" enter=%.0f sqe=%.0f", one - (many - one) / 31, (many - one) / 31);
	printf(" write=%.0f wake=%.0f", write_ns, wake > write_ns ? wake - write_ns : 0);
	printf(" spawn=%.1f poll=%.1f", least(spawn_cost), least(poll_cost));
	printf(" spawn_out=%.1f\n", least(spawn_out_cost));
	io_uring_queue_exit(&ring);
	mrt_runtime_destroy(st.rt);
	return 0;
}

/* ---- the command ---- */

static void parse(const char *text)
{
	const char *value = strchr(text, '=');
	char *end;

	for (size_t i = 0; value && i < BENCH_NR(names); i++) {
		if (strncmp(names[i].name, text, (size_t)(value - text)) != 0 || names[i].name[value - text])
			continue;
		*names[i].value = strtod(value + 1, &end);
		if (end > value + 1 && !*end && *names[i].value >= 1 && *names[i].value <= 1e9)
			return;
	}
	fprintf(stderr, "scale: %s: not name=value; names are work, burst, tasks, ops\n", text);
	exit(2);
}

int main(int argc, char **argv)
{
	static const char *const loads[] = { "fork", "inject", "uniform", "skewed" };
	bool known = false;

	(void)alarm(BENCH_LIMIT_S);
	if (argc == 2 && strcmp(argv[1], "costs") == 0)
		return print_costs();
	for (size_t i = 0; argc >= 3 && i < BENCH_NR(loads); i++)
		known |= strcmp(argv[1], loads[i]) == 0;
	st.workers_nr = argc >= 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	if (!known || st.workers_nr < 1 || st.workers_nr > 1024) {
		fputs("usage: scale fork|inject|uniform|skewed WORKERS [name=value ...]; or scale costs\n", stderr);
		return 2;
	}
	for (int i = 3; i < argc; i++)
		parse(argv[i]);
	if (st.burst > BURST_MAX) {
		fprintf(stderr, "scale: burst is at most %u\n", BURST_MAX);
		return 2;
	}
	return run_load(argv[1]);
}
