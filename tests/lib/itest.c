/* SPDX-License-Identifier: MIT */
/*
 * See itest.h. Failing a test from a worker's thread is fine: in a forked test Check reports and ends the process,
 * whichever thread calls.
 */
#include "itest.h"
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* For what is also used outside a test of Check's, where its assertions cannot be. */
static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

/* ---- runtimes ---- */

struct mrt_runtime_opts itest_opts(int kind)
{
	struct mrt_runtime_opts opts;

	mrt_runtime_opts_init(&opts);
	opts.log = itest_log;
	opts.name = "itest";
	opts.workers_nr = 2;
	switch (kind) {
	case ITEST_CURRENT:
		opts.flavour = MRT_FLAVOUR_CURRENT_THREAD;
		opts.workers_nr = 1;
		break;
	case ITEST_FLOAT:
		opts.workers_nr = 4;
		opts.flags = MRT_RUNTIME_FLOAT;
		break;
	case ITEST_COOP:
		opts.flags = MRT_RUNTIME_COOP_TASKRUN;
		break;
	case ITEST_PLAIN:
		opts.flags = MRT_RUNTIME_PLAIN_RINGS;
		break;
	default:
		break;
	}
	return opts;
}

struct mrt_runtime *itest_create(const struct mrt_runtime_opts *opts)
{
	struct mrt_runtime *rt = NULL;
	int err = mrt_runtime_create(opts, &rt);

	if (err) {
		char *log = itest_log_text();

		ck_abort_msg("mrt_runtime_create: %s; it says: %s", strerror(-err), log);
	}
	return rt;
}

struct mrt_runtime *itest_runtime(int kind)
{
	struct mrt_runtime_opts opts = itest_opts(kind);

	return itest_create(&opts);
}

int64_t itest_run(struct mrt_runtime *rt, mrt_poll_fn fn, void *frame, size_t frame_bytes)
{
	int64_t result = INT64_MIN;

	ck_assert_int_eq(mrt_block_on(rt, fn, frame, frame_bytes, &result), 0);
	return result;
}

void itest_task(int kind, mrt_poll_fn fn, size_t frame_bytes)
{
	struct mrt_runtime *rt = itest_runtime(kind);
	void *frame = calloc(1, frame_bytes);

	ck_assert_ptr_nonnull(frame);
	ck_assert_int_eq(itest_run(rt, fn, frame, frame_bytes), 0);
	mrt_runtime_destroy(rt);
	free(frame);
}

struct mrt_task *itest_spawn(struct mrt_runtime *rt, mrt_poll_fn fn, const void *frame, size_t frame_bytes)
{
	struct mrt_task *task = NULL;

	ck_assert_int_eq(mrt_spawn(rt, fn, frame, frame_bytes, NULL, &task), 0);
	ck_assert_ptr_nonnull(task);
	return task;
}

int64_t itest_join(struct mrt_task *task)
{
	int64_t result = INT64_MIN;

	ck_assert_int_eq(mrt_task_join_wait(task, &result), 0);
	return result;
}

#define ADD_info(name)
#define ADD_gauge(name)
#define ADD_counter(name) sum.name += one.name;
#define ADD(cls, type, name, ...) ADD_##cls(name)

/* All counters, and three of the gauges, are sums; the rest is 0. */
struct mrt_worker_stats itest_stats(struct mrt_runtime *rt)
{
	struct mrt_worker_stats sum = { 0 }, one;
	unsigned i;

	for (i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		need(mrt_stats_get(rt, i, &one) == 0, "mrt_stats_get");
		MRT_WORKER_STATS(ADD, ADD, ADD)
		sum.inflight += one.inflight;
		sum.queued += one.queued;
		sum.timers += one.timers;
	}
	return sum;
}

bool itest_all_parked(struct mrt_runtime *rt)
{
	struct mrt_worker_stats one;
	unsigned i;

	for (i = 0; i < mrt_runtime_workers_nr(rt); i++) {
		if (mrt_stats_get(rt, i, &one) || one.state != MRT_WORKER_PARKED)
			return false;
	}
	return true;
}

struct mrt_global_stats itest_global(struct mrt_runtime *rt)
{
	struct mrt_global_stats stats;

	need(mrt_stats_global_get(rt, &stats) == 0, "mrt_stats_global_get");
	return stats;
}

/* ---- from one worker to another ---- */

#define MOVE_LIMIT_MS 20000

/*
 * Behind the task that is to move, in its worker's next slot. What it wakes goes into the queue of the worker that it is on; if
 * that is another one already (somebody was idle), the task is tried to be moved once more.
 */
static enum mrt_poll hold_poll(struct mrt_task *self, void *frame)
{
	struct itest_move *move = *(struct itest_move **)frame;
	bool may_hold = move->from == gettid();

	mrt_notify_one(&move->held);
	if (may_hold)
		ITEST_WAIT(__atomic_load_n(&move->let_go, __ATOMIC_ACQUIRE), MOVE_LIMIT_MS);
	mrt_task_return(self, 0);
	return MRT_POLL_READY;
}

void itest_move_begin(struct itest_move *move)
{
	move->from = gettid();
	move->let_go = 0;
	mrt_notify_init(&move->held);
	ck_assert_int_eq(mrt_spawn(NULL, hold_poll, &move, sizeof(struct itest_move *), NULL, &move->holder), 0);
}

bool itest_move_is_done(const struct itest_move *move)
{
	return move->from != gettid();
}

void itest_move_let_go(struct itest_move *move)
{
	__atomic_store_n(&move->let_go, 1, __ATOMIC_RELEASE);
}

/* ---- the log ---- */

#define LOG_BYTES 65536

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[LOG_BYTES];
static size_t log_used;

void itest_log(int level, const char *sentence, void *ctx)
{
	size_t bytes = strlen(sentence);

	(void)level;
	(void)ctx;
	pthread_mutex_lock(&log_lock);
	if (log_used + bytes + 2 <= LOG_BYTES) {
		memcpy(log_text + log_used, sentence, bytes);
		log_used += bytes;
		log_text[log_used++] = '\n';
		log_text[log_used] = '\0';
	}
	pthread_mutex_unlock(&log_lock);
}

bool itest_log_has(const char *part)
{
	bool has;

	pthread_mutex_lock(&log_lock);
	has = strstr(log_text, part) != NULL;
	pthread_mutex_unlock(&log_lock);
	return has;
}

char *itest_log_text(void)
{
	char *copy;

	pthread_mutex_lock(&log_lock);
	copy = strdup(log_text);
	pthread_mutex_unlock(&log_lock);
	return copy;
}

void itest_log_clear(void)
{
	pthread_mutex_lock(&log_lock);
	log_used = 0;
	log_text[0] = '\0';
	pthread_mutex_unlock(&log_lock);
}

/* ---- waits and measures ---- */

void itest_pause(void)
{
	struct timespec ts = { .tv_nsec = 200000 };

	(void)nanosleep(&ts, NULL); /* cut short: looked at sooner */
}

void itest_spin(uint64_t ns)
{
	uint64_t until = mrt_now() + ns;

	while (mrt_now() < until)
		continue;
}

unsigned itest_fds_nr(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned nr = 0;

	need(dir != NULL, "/proc/self/fd");
	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr - 3; /* ".", "..", and the directory itself */
}

uint64_t itest_cpu_ns(void)
{
	struct timespec ts;

	need(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts) == 0, "clock_gettime");
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t itest_switches(pid_t tid)
{
	static const char key[] = "voluntary_ctxt_switches:";
	char path[64], line[256];
	unsigned long long nr = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)tid);
	f = fopen(path, "re");
	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, key, sizeof(key) - 1) == 0)
			found = sscanf(line + sizeof(key) - 1, "%llu", &nr) == 1;
	fclose(f);
	ck_assert(found);
	return nr;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

uint64_t itest_quantile(uint64_t *values, size_t nr, unsigned permille)
{
	ck_assert_uint_gt(nr, 0);
	qsort(values, nr, sizeof(*values), compare);
	return values[(nr - 1) * permille / 1000];
}

unsigned itest_env(const char *name, unsigned otherwise)
{
	const char *value = getenv(name);

	return value && *value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

void itest_socketpair(int ret_fds[2])
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds), 0);
}

/* ---- processes ---- */

void itest_alarm(unsigned seconds)
{
	(void)signal(SIGALRM, SIG_DFL);
	(void)alarm(seconds * itest_env("CK_TIMEOUT_MULTIPLIER", 1));
}

static void run_child(int (*fn)(void *ctx), void *ctx, int err_fd, unsigned seconds)
{
	struct rlimit no_core = { 0, 0 };

	(void)setrlimit(RLIMIT_CORE, &no_core); /* deaths here are wanted */
	(void)signal(SIGABRT, SIG_DFL);
	(void)dup2(err_fd, STDERR_FILENO);
	itest_alarm(seconds);
	_exit(fn(ctx));
}

struct itest_exit itest_child(int (*fn)(void *ctx), void *ctx, unsigned seconds)
{
	struct itest_exit e = { 0 };
	size_t used = 0;
	int fds[2];
	pid_t pid;

	need(pipe(fds) == 0, "pipe");
	fflush(NULL);
	pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		close(fds[0]);
		run_child(fn, ctx, fds[1], seconds);
	}
	close(fds[1]);
	for (;;) {
		char drop[512];
		bool full = used == sizeof(e.err) - 1;
		ssize_t nr = read(fds[0], full ? drop : e.err + used, full ? sizeof(drop) : sizeof(e.err) - 1 - used);

		if (nr < 0 && errno == EINTR)
			continue;
		if (nr <= 0)
			break;
		if (!full)
			used += (size_t)nr;
	}
	close(fds[0]);
	while (waitpid(pid, &e.status, 0) < 0)
		need(errno == EINTR, "waitpid");
	return e;
}

void itest_aborts_with(int (*fn)(void *ctx), void *ctx, ...)
{
	struct itest_exit e = itest_child(fn, ctx, ITEST_LIMIT_S);
	const char *part;
	va_list ap;

	ck_assert_msg(WIFSIGNALED(e.status) && WTERMSIG(e.status) == SIGABRT, "status %#x, stderr: %s", e.status, e.err);
	va_start(ap, ctx);
	while ((part = va_arg(ap, const char *)) != NULL)
		ck_assert_msg(strstr(e.err, part) != NULL, "'%s' is not in: %s", part, e.err);
	va_end(ap);
}

void itest_child_ok(int (*fn)(void *ctx), void *ctx)
{
	struct itest_exit e = itest_child(fn, ctx, ITEST_LIMIT_S);

	ck_assert_msg(WIFEXITED(e.status) && WEXITSTATUS(e.status) == 0, "status %#x, stderr: %s", e.status, e.err);
}

/* ---- main ---- */

/* In a child: the process that forks the tests never has a runtime of its own. */
static int try_runtime(void *ctx)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	struct mrt_runtime *rt;
	int err;

	(void)ctx;
	err = mrt_runtime_create(&opts, &rt);
	if (err) {
		char *log = itest_log_text();

		fprintf(stderr, "%s", log);
		return -err;
	}
	mrt_runtime_destroy(rt);
	return 0;
}

void itest_need_io_uring(void)
{
	struct itest_exit e = itest_child(try_runtime, NULL, ITEST_LIMIT_S);
	int code = WIFEXITED(e.status) ? WEXITSTATUS(e.status) : 0;

	if (code == ENOSYS || code == EPERM || code == EOPNOTSUPP) {
		printf("skipped: no io_uring here: %s\n", e.err);
		exit(ITEST_SKIP);
	}
}

int itest_main(Suite *suite)
{
	return suite_main(suite);
}
