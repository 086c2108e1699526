/* SPDX-License-Identifier: MIT */
/*
 * `martlet dump` on processes whose state is known: all workers in a poll that sleeps, running and stopped; a read on an empty
 * pipe and a recv on a silent socket; so many tasks of each function, waiting for so many kinds of things. With statistics in
 * maps and in a memfd, as root and as the same user; with the process's memory forbidden; on what is no process, or has no
 * runtime, or ends while it is read.
 *
 * Bounds on ages are those that the test itself has measured around the event: they do not depend on how fast the machine is.
 *
 * Not shown here: what broken memory does to it (test_walk).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "itest.h"
#include "observe.h"
#include "subject.h"
#include "symbols.h"
#include "work.h"

#define COMMAND MRT_TEST_BUILD_DIR "/martlet"
#define OUT_BYTES (1u << 20)
#define PARTLY 3

/* ---- the command ---- */

static char out[OUT_BYTES], err[16384];
static struct json_object *doc;

static void slurp(int fd, char *buf, size_t bytes)
{
	size_t used = 0;
	ssize_t n;

	while ((n = read(fd, buf + used, bytes - 1 - used)) > 0)
		used += (size_t)n;
	ck_assert_int_eq(n, 0);
	buf[used] = '\0';
	close(fd);
}

struct command {
	uint64_t caps;          /* become nobody with these; SUBJECT_CAPS_ALL: stay */
	bool blind;             /* process_vm_readv(2) is forbidden */
};

static const struct command as_is = { .caps = SUBJECT_CAPS_ALL };

struct started {
	pid_t pid;
	int out, err;
};

/* `martlet dump ARGS` */
static struct started start_command(const struct command *c, const char *args)
{
	int o[2], e[2];
	char copy[256], *argv[16] = { (char *)(uintptr_t)"martlet", (char *)(uintptr_t)"dump" };
	struct started s;
	unsigned n = 2;

	ck_assert(pipe2(o, O_CLOEXEC) == 0 && pipe2(e, O_CLOEXEC) == 0);
	snprintf(copy, sizeof(copy), "%s", args);
	for (char *w = strtok(copy, " "); w && n < 15; w = strtok(NULL, " "))
		argv[n++] = w;
	s.pid = fork();
	ck_assert_int_ge(s.pid, 0);
	if (s.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(o[1], 1);
		dup2(e[1], 2);
		if (c->caps != SUBJECT_CAPS_ALL)
			subject_become_nobody(c->caps);
		if (c->blind)
			subject_forbid(SYS_process_vm_readv);
		execv(COMMAND, argv);
		_exit(126);
	}
	close(o[1]);
	close(e[1]);
	s.out = o[0];
	s.err = e[0];
	return s;
}

static int end_command(struct started *s)
{
	int status;

	slurp(s->out, out, sizeof(out)); /* errors are fewer than a pipe holds */
	slurp(s->err, err, sizeof(err));
	ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
	ck_assert_msg(WIFEXITED(status), "ended by signal %d: %s", WTERMSIG(status), err);
	return WEXITSTATUS(status);
}

/* @return exit code */
__attribute__((format(printf, 2, 3)))
static int dump(const struct command *c, const char *fmt, ...)
{
	struct started s;
	char args[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	s = start_command(c, args);
	return end_command(&s);
}

/* Does it sleep, as it does between two looks? In no other place. */
static bool is_pausing(pid_t pid)
{
	char path[64];
	long nr = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	f = fopen(path, "re");
	if (f && fscanf(f, "%ld", &nr) != 1)
		nr = -1; /* it runs */
	if (f)
		fclose(f);
	return nr == SYS_nanosleep || nr == SYS_clock_nanosleep || nr == SYS_ppoll;
}

/* Has the command the statistics in its memory? */
static bool has_mapped(pid_t pid)
{
	char path[64], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "mrt_workers") || strstr(line, "bpf-map");
	if (f)
		fclose(f);
	return found;
}

static struct json_object *parse_list(void)
{
	struct json_object *list;

	if (doc)
		json_object_put(doc);
	doc = json_tokener_parse(out);
	ck_assert_msg(doc && json_object_object_get_ex(doc, "runtimes", &list), "no JSON: %s%s", out, err);
	return list;
}

/* The only runtime of the document. */
static struct json_object *parse(void)
{
	struct json_object *list = parse_list();

	ck_assert_uint_eq(json_object_array_length(list), 1);
	return json_object_array_get_idx(list, 0);
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *found;

	ck_assert_msg(json_object_object_get_ex(o, key, &found), "no %s in %s", key, json_object_to_json_string(o));
	return found;
}

static uint64_t num(struct json_object *o, const char *key)
{
	return json_object_get_uint64(get(o, key));
}

static const char *text(struct json_object *o, const char *key)
{
	const char *s = json_object_get_string(get(o, key));

	return s ? s : "(null)";
}

/* The element of a list with this value; NULL: none. */
static struct json_object *find(struct json_object *list, const char *key, const char *value)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (strcmp(text(o, key), value) == 0)
			return o;
	}
	return NULL;
}

/* ---- workers in a poll that does not end ---- */

/*
 * One poll that lasts, and right behind it, with no ring turn in between, the one that does not end: a time that is not the
 * poll's own shows. The note is the earliest moment at which one of them can have begun.
 */
ITEST_CHILD(long_before_blocked, { struct mrt_op op; })
{
	uint64_t none = 0, now;

	(void)f;
	itest_spin(MRT_MS(30));
	now = mrt_now();
	atomic_compare_exchange_strong(&subject_note, &none, now);
	ck_assert_int_eq(mrt_spawn(NULL, work_stuck_poll, NULL, 0, NULL, NULL), 0);
	mrt_task_return(self, 0);
	return MRT_POLL_READY;
}

static void turn(struct mrt_runtime *rt)
{
	struct mrt_spawn_opts spread = { .size = sizeof(spread), .flags = MRT_SPAWN_SPREAD };
	struct mrt_task *tasks[16];

	for (unsigned i = 0; i < 16; i++)
		ck_assert_int_eq(mrt_spawn(rt, work_turner_poll, NULL, sizeof(struct work_turner), &spread, &tasks[i]), 0);
	for (unsigned i = 0; i < 16; i++)
		(void)itest_join(tasks[i]);
}

static void block_all(struct mrt_runtime *rt)
{
	struct mrt_spawn_opts spread = { .size = sizeof(spread), .flags = MRT_SPAWN_SPREAD };

	turn(rt);
	for (unsigned i = 0; i < mrt_runtime_workers_nr(rt); i++)
		ck_assert_int_eq(mrt_spawn(rt, long_before_blocked_poll, NULL, sizeof(struct long_before_blocked), &spread, NULL),
				 0);
	ITEST_WAIT(atomic_load(&work_stuck_nr) == mrt_runtime_workers_nr(rt), 10000);
}

static void ask_full_timing(pid_t pid)
{
	struct observe o;

	ck_assert_int_eq(observe_open(pid, &o), 0);
	__atomic_store_n(&o.ctl->poll_timing, MRT_TIMING_FULL, __ATOMIC_RELAXED);
	observe_close(&o);
}

/* All of its threads: the signal alone is not the stop. */
static void stop(const struct subject *s)
{
	int status;

	ck_assert_int_eq(kill(s->pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(s->pid, &status, WUNTRACED), s->pid);
	ck_assert_msg(WIFSTOPPED(status), "status %#x", status);
}

enum { STOPPED = 1, FULL = 2, MEMFD = 4, CASES_NR = 8 };

START_TEST(workers_in_a_poll_are_named_with_since_when)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = turn, .other = block_all,
				   .flags = _i & MEMFD ? MRT_RUNTIME_STATS_MEMFD : 0 };
	uint64_t after, started;
	struct json_object *r, *list;
	struct subject s = subject_start(&so);

	if (_i & FULL)
		ask_full_timing(s.pid);
	subject_do(&s, SUBJECT_OTHER);
	after = mrt_now();
	itest_pause();
	if (_i & STOPPED)
		stop(&s);
	started = mrt_now();
	ck_assert_int_eq(dump(&as_is, "--json --look=20 %d", s.pid), 0);
	ck_assert_str_eq(err, "");
	r = parse();
	if (_i & STOPPED)
		ck_assert_str_eq(text(r, "process_state"), "T");
	ck_assert_str_eq(text(r, "backend"), _i & MEMFD || !subject_has_bpf() ? "memfd" : "bpf");
	list = get(r, "workers");
	ck_assert_uint_eq(json_object_array_length(list), 2);
	for (size_t i = 0; i < 2; i++) {
		struct json_object *w = json_object_array_get_idx(list, i);

		ck_assert_str_eq(text(w, "function"), "work_stuck_poll");
		ck_assert(json_object_get_boolean(get(w, "stuck")));
		ck_assert_uint_eq(num(w, "polls_moved"), 0);
		ck_assert_uint_gt(num(w, "polls"), 0);
		/* it was in the poll at `after`, and has not been for longer than since it could be */
		ck_assert_uint_ge(num(w, "since_ns"), started - after);
		if (_i & FULL) {
			ck_assert_str_eq(text(w, "since_is"), "exact");
			ck_assert_uint_le(num(w, "since_ns"), num(r, "now_ns") - s.note);
		} else {
			ck_assert_str_eq(text(w, "since_is"), "at_most");
			ck_assert_uint_le(num(w, "since_ns"), num(r, "now_ns") - num(r, "created_ns"));
		}
		if (_i & STOPPED)
			ck_assert_str_eq(text(w, "thread_state"), "T");
	}
	ck_assert_uint_eq(num(get(r, "tasks"), "running"), 2);
	ck_assert_uint_eq(num(get(r, "tasks"), "waiting"), 0);
	ck_assert_int_eq(dump(&as_is, "--look=1 %d", s.pid), 0);
	ck_assert_ptr_nonnull(strstr(out, "work_stuck_poll"));
	subject_kill(&s);
}
END_TEST

START_TEST(watch_tells_of_each_stuck_worker)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = turn, .other = block_all };
	struct subject s = subject_start(&so);

	subject_do(&s, SUBJECT_OTHER);
	ck_assert_int_eq(dump(&as_is, "--watch --limit=20 --stalls=4 %d", s.pid), 0);
	ck_assert_ptr_nonnull(strstr(out, "worker 0"));
	ck_assert_ptr_nonnull(strstr(out, "worker 1"));
	for (const char *line = out, *next; *line; line = next + 1) {
		next = strchr(line, '\n');
		ck_assert_ptr_nonnull(next);
		ck_assert_msg(strstr(line, ": work_stuck_poll, task 0x") < next, "%s", line);
	}
	subject_kill(&s);
}
END_TEST

START_TEST(watch_is_silent_where_nobody_is_stuck_and_ends_with_the_process)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = turn, .flags = MRT_RUNTIME_STATS_MEMFD };
	struct subject s = subject_start(&so);
	struct started c;
	char args[64];

	snprintf(args, sizeof(args), "--watch --limit=3600000 %d", s.pid);
	c = start_command(&as_is, args);
	ITEST_WAIT(has_mapped(c.pid) && is_pausing(c.pid), 10000);
	subject_do(&s, SUBJECT_WORK);
	subject_kill(&s);
	ck_assert_int_eq(kill(c.pid, SIGINT), 0); /* its pause is a quarter of the limit */
	(void)end_command(&c);
	ck_assert_str_eq(out, "");
	s = subject_start(&so);
	snprintf(args, sizeof(args), "--watch --limit=20 %d", s.pid);
	c = start_command(&as_is, args);
	subject_end(&s);
	/* 1: it came too late to find the runtime */
	ck_assert_int_le(end_command(&c), 1);
	ck_assert_ptr_null(strstr(out, "in one poll"));
}
END_TEST

/* ---- ops ---- */

static int pipe_fds[2], socket_fds[2];

ITEST_CHILD(pipe_reader, {
	struct mrt_op op;
	char buf[32];
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_read(&f->op, pipe_fds[0], f->buf, sizeof(f->buf), MRT_OFF_CURRENT));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(socket_reader, {
	struct mrt_op op;
	char buf[48];
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_recv(&f->op, socket_fds[0], f->buf, sizeof(f->buf), 0));
	MRT_RETURN(self, 0);
}

static void turn_once(struct mrt_runtime *rt)
{
	ck_assert_int_eq(itest_run(rt, work_turner_poll, NULL, sizeof(struct work_turner)), 0);
	/* asleep, a worker looks at what is to be timed before it runs anything */
	ITEST_WAIT(mrt_runtime_workers_nr(rt) == 1 || itest_all_parked(rt), 10000);
}

static void start_readers(struct mrt_runtime *rt)
{
	ck_assert_int_eq(pipe(pipe_fds), 0);
	itest_socketpair(socket_fds);
	(void)itest_spawn(rt, pipe_reader_poll, NULL, sizeof(struct pipe_reader));
	(void)itest_spawn(rt, socket_reader_poll, NULL, sizeof(struct socket_reader));
	turn_once(rt); /* drives a current-thread runtime */
	ITEST_WAIT(itest_stats(rt).inflight >= 2, 10000);
	atomic_store(&subject_note, (uint64_t)pipe_fds[0] << 32 | (unsigned)socket_fds[0]);
}

static void expect_op(struct json_object *r, const char *fn, const char *name, unsigned opcode, uint64_t fd, unsigned len,
		      const char *what, uint64_t age_min, uint64_t age_max)
{
	struct json_object *o = find(get(r, "ops"), "function", fn);

	ck_assert_msg(o != NULL, "no op of %s: %s", fn, out);
	ck_assert_str_eq(text(o, "op"), name);
	ck_assert_str_eq(text(o, "opcode_name"), name);
	ck_assert_uint_eq(num(o, "opcode"), opcode);
	ck_assert_uint_eq(num(o, "fd"), fd);
	ck_assert_uint_eq(num(o, "len"), len);
	ck_assert_msg(strncmp(text(o, "fd_is"), what, strlen(what)) == 0, "fd is %s", text(o, "fd_is"));
	ck_assert(json_object_get_boolean(get(o, "submitted")));
	ck_assert(!json_object_get_boolean(get(o, "over")));
	ck_assert_uint_ge(num(o, "age_ns"), age_min);
	ck_assert_uint_le(num(o, "age_ns"), age_max);
}

START_TEST(ops_in_flight_have_opcode_fd_and_age)
{
	struct subject_opts so = { .kind = _i / 2 ? ITEST_CURRENT : ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = turn_once,
				   .other = start_readers };
	bool full = _i % 2;
	uint64_t before, after, started;
	struct json_object *r;
	struct subject s = subject_start(&so);
	struct observe o;

	if (full) {
		ck_assert_int_eq(observe_open(s.pid, &o), 0);
		__atomic_store_n(&o.ctl->op_timing, MRT_TIMING_FULL, __ATOMIC_RELAXED);
		observe_close(&o);
		subject_do(&s, SUBJECT_WORK);
	}
	before = mrt_now();
	subject_do(&s, SUBJECT_OTHER);
	after = mrt_now();
	itest_pause();
	started = mrt_now();
	ck_assert_msg(dump(&as_is, "--json --look=0 %d", s.pid) == 0, "%s", err);
	r = parse();
	ck_assert_uint_eq(num(r, "ops_out_nr"), 2);
	/* without timing it may have begun up to a few turns after the clock was looked at: not before the runtime did */
	expect_op(r, "pipe_reader_poll", "read", 22, s.note >> 32, 32, "pipe:[", started - after,
		  num(r, "now_ns") - (full ? before : num(r, "created_ns") - 5000000));
	expect_op(r, "socket_reader_poll", "recv", 27, s.note & UINT32_MAX, 48, "socket:[", started - after,
		  num(r, "now_ns") - (full ? before : num(r, "created_ns") - 5000000));
	ck_assert_str_eq(text(find(get(r, "ops"), "op", "read"), "age_is"), full ? "exact" : "about");
	ck_assert_int_eq(dump(&as_is, "--json --look=0 --ops=1 %d", s.pid), 0);
	r = parse();
	ck_assert_uint_eq(json_object_array_length(get(r, "ops")), 1);
	ck_assert_uint_eq(num(r, "ops_out_nr"), 2);
	subject_kill(&s);
}
END_TEST

/* ---- tasks ---- */

static struct mrt_notify notify;
static struct mrt_semaphore semaphore;
static struct mrt_channel *channel;
static struct mrt_oneshot oneshot;

ITEST_CHILD(sleeper, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_SEC(1000)));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(joiner, {
	struct mrt_op op;
	struct mrt_task *child;
})
{
	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_spawn(NULL, sleeper_poll, NULL, sizeof(struct sleeper), NULL, &f->child), 0);
	MRT_AWAIT(self, mrt_join(&f->op, f->child));
	MRT_RETURN(self, 0);
}

/* Waits for one of the objects, by number. */
ITEST_CHILD(waiter, {
	struct mrt_op op;
	unsigned which;
	int msg;
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, f->which == 0 ? mrt_notify_wait(&f->op, &notify) :
			f->which == 1 ? mrt_semaphore_acquire(&f->op, &semaphore, 1) :
			f->which == 2 ? mrt_channel_recv(&f->op, channel, &f->msg) : mrt_oneshot_recv(&f->op, &oneshot));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(either, {
	struct mrt_op ops[2];
	struct mrt_op *both[2];
	size_t idx;
	char buf[16];
	bool all;
})
{
	MRT_BEGIN(self);
	f->both[0] = mrt_sleep(&f->ops[0], MRT_SEC(1000));
	f->both[1] = mrt_recv(&f->ops[1], socket_fds[0], f->buf, sizeof(f->buf), 0);
	if (f->all)
		MRT_AWAIT_ALL(self, f->both, 2);
	else
		MRT_AWAIT_ANY(self, f->both, 2, f->idx);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(scoper, {
	struct mrt_scope scope;
	unsigned i;
})
{
	MRT_BEGIN(self);
	mrt_scope_init(&f->scope, 0);
	for (f->i = 0; f->i < 2; f->i++)
		ck_assert_int_eq(mrt_scope_spawn(&f->scope, sleeper_poll, NULL, sizeof(struct sleeper), NULL), 0);
	MRT_AWAIT(self, mrt_scope_join(&f->scope));
	MRT_RETURN(self, 0);
}

/* A frame that is larger than any shared slab has room for. */
ITEST_CHILD(giant, {
	struct mrt_op op;
	char bytes[100000];
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_SEC(1000)));
	MRT_RETURN(self, f->bytes[0]);
}

static int64_t call_that_lasts(void *arg)
{
	(void)arg;
	for (;;)
		sleep(1000);
	return 0;
}

ITEST_CHILD(caller, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_blocking(&f->op, call_that_lasts, NULL));
	MRT_RETURN(self, 0);
}

static enum mrt_poll ends_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	mrt_task_return(self, 0);
	return MRT_POLL_READY;
}

#define SLEEPERS 1000u
#define JOINERS 7u
#define ENDED 5u
#define READERS 6u /* wait for their own ring alone: their worker keeps them */

/* Everybody waits, and each worker that is needed for that is asleep: nothing runs any more. */
static void start_crowd(struct mrt_runtime *rt)
{
	struct mrt_spawn_opts named = { .size = sizeof(named), .name = "the one with a name" };
	struct waiter w = { 0 };
	struct either e = { 0 };
	struct mrt_task *ended;
	unsigned i;

	itest_socketpair(socket_fds);
	mrt_notify_init(&notify);
	mrt_oneshot_init(&oneshot);
	ck_assert_int_eq(mrt_semaphore_init(&semaphore, 0), 0);
	ck_assert_int_eq(mrt_channel_create(4, sizeof(int), &channel), 0);
	for (i = 0; i < SLEEPERS; i++)
		mrt_detach(itest_spawn(rt, sleeper_poll, NULL, sizeof(struct sleeper)));
	ck_assert_int_eq(mrt_spawn(rt, sleeper_poll, NULL, sizeof(struct sleeper), &named, NULL), 0);
	for (i = 0; i < JOINERS; i++)
		mrt_detach(itest_spawn(rt, joiner_poll, NULL, sizeof(struct joiner)));
	for (w.which = 0; w.which < 4; w.which++)
		for (i = 0; i <= w.which && (w.which < 3 || i == 0); i++)
			mrt_detach(itest_spawn(rt, waiter_poll, &w, sizeof(w)));
	mrt_detach(itest_spawn(rt, either_poll, &e, sizeof(e)));
	e.all = true;
	mrt_detach(itest_spawn(rt, either_poll, &e, sizeof(e)));
	mrt_detach(itest_spawn(rt, scoper_poll, NULL, sizeof(struct scoper)));
	mrt_detach(itest_spawn(rt, giant_poll, NULL, sizeof(struct giant)));
	mrt_detach(itest_spawn(rt, caller_poll, NULL, sizeof(struct caller)));
	ck_assert_int_eq(pipe(pipe_fds), 0);
	for (i = 0; i < READERS; i++)
		mrt_detach(itest_spawn(rt, pipe_reader_poll, NULL, sizeof(struct pipe_reader)));
	for (i = 0; i < ENDED; i++) {
		ended = itest_spawn(rt, ends_poll, NULL, 0); /* kept */
		ITEST_WAIT(mrt_task_is_finished(ended), 10000);
	}
	ITEST_WAIT(itest_stats(rt).timers >= SLEEPERS + 1 + JOINERS + 2 + 2 + 1, 10000);
	ITEST_WAIT(itest_all_parked(rt), 10000);
}

static void expect_group(struct json_object *r, const char *fn, const char *what, uint64_t nr)
{
	struct json_object *list = get(r, "waiting");
	uint64_t found = 0;

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *g = json_object_array_get_idx(list, i);

		if (strcmp(text(g, "function"), fn) == 0 && strcmp(text(g, "for"), what) == 0)
			found = num(g, "nr");
	}
	ck_assert_msg(found == nr, "%s waits for %s: %" PRIu64 ", not %" PRIu64 "; %s", fn, what, found, nr,
		      json_object_to_json_string(list));
}

static void expect_crowd(struct json_object *r)
{
	expect_group(r, "sleeper_poll", "sleep", SLEEPERS + 1 + JOINERS + 2);
	expect_group(r, "joiner_poll", "join sleeper_poll", JOINERS);
	expect_group(r, "waiter_poll", "notify_wait", 1);
	expect_group(r, "waiter_poll", "semaphore_acquire", 2);
	expect_group(r, "waiter_poll", "channel_recv", 3);
	expect_group(r, "waiter_poll", "oneshot_recv", 1);
	expect_group(r, "either_poll", "sleep|recv", 1);
	expect_group(r, "either_poll", "sleep+recv", 1);
	expect_group(r, "scoper_poll", "scope", 1);
	expect_group(r, "giant_poll", "sleep", 1);
	expect_group(r, "caller_poll", "blocking", 1);
	expect_group(r, "pipe_reader_poll", "read", READERS);
	ck_assert_uint_eq(json_object_array_length(get(r, "waiting")), 12);
	ck_assert_uint_eq(num(get(r, "tasks"), "waiting"), SLEEPERS + 1 + JOINERS + 2 + JOINERS + 7 + 2 + 3 + READERS);
	ck_assert_uint_eq(num(get(r, "tasks"), "ended"), ENDED);
	ck_assert_uint_eq(num(get(r, "tasks"), "running"), 0);
	ck_assert_uint_eq(num(get(r, "tasks"), "runnable"), 0);
	ck_assert_uint_eq(num(r, "torn"), 0);
	/* two recvs, the call, and the readers */
	ck_assert_uint_eq(num(r, "ops_out_nr"), 3 + READERS);
	ck_assert_ptr_nonnull(find(get(r, "ops"), "op", "blocking"));
}

START_TEST(waiting_tasks_are_counted_by_function_and_what_they_wait_for)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = start_crowd,
				   .flags = _i & MEMFD ? MRT_RUNTIME_STATS_MEMFD : 0 };
	struct subject s = subject_start(&so);
	struct json_object *r, *named;

	if (_i & STOPPED)
		stop(&s);
	ck_assert_int_eq(dump(&as_is, "--json --look=0 --tasks=50000 %d", s.pid), 0);
	r = parse();
	expect_crowd(r);
	ck_assert_uint_eq(json_object_array_length(get(r, "waiting_tasks")), num(get(r, "tasks"), "waiting"));
	named = find(get(r, "waiting_tasks"), "name", "the one with a name");
	ck_assert_ptr_nonnull(named);
	ck_assert_str_eq(text(named, "function"), "sleeper_poll");
	ck_assert_int_eq(dump(&as_is, "--json --look=0 --tasks=3 --ops=0 %d", s.pid), 0);
	r = parse();
	ck_assert_uint_eq(json_object_array_length(get(r, "waiting_tasks")), 3);
	ck_assert_uint_eq(json_object_array_length(get(r, "ops")), 0);
	subject_kill(&s);
}
END_TEST

/* Tasks come, go and wait all the time: whatever is read, it is no crash, and what cannot change is right. */
ITEST_CHILD(churn, {
	struct mrt_op op;
	char buf[512];
})
{
	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(50)));
		ck_assert_int_eq(mrt_spawn(NULL, work_turner_poll, NULL, sizeof(struct work_turner), NULL, NULL), 0);
		MRT_AWAIT(self, mrt_nop(&f->op));
	}
	MRT_RETURN(self, 0);
}

static void start_churn(struct mrt_runtime *rt)
{
	for (unsigned i = 0; i < 300; i++)
		mrt_detach(itest_spawn(rt, sleeper_poll, NULL, sizeof(struct sleeper)));
	ITEST_WAIT(itest_stats(rt).timers == 300 && itest_all_parked(rt), 10000);
	for (unsigned i = 0; i < 4; i++)
		mrt_detach(itest_spawn(rt, churn_poll, NULL, sizeof(struct churn)));
}

START_TEST(a_busy_process_is_read_without_stopping_it)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = start_churn };
	struct subject s = subject_start(&so);

	for (unsigned i = 0; i < 20; i++) {
		int rc = dump(&as_is, "--json --look=0 --ops=1000 --tasks=1000 %d", s.pid);

		ck_assert_msg(rc == 0 || rc == PARTLY, "%d: %s", rc, err);
		/* they never move, and their slabs are never empty */
		if (rc == 0)
			expect_group(parse(), "sleeper_poll", "sleep", 300);
	}
	subject_kill(&s);
}
END_TEST

/* ---- who may ---- */

static const struct {
	uint64_t subject;       /* its capabilities, as nobody */
	struct command command;
	const char *backend;
} users[] = {
	{ 0, { SUBJECT_CAPS_ALL, false }, "memfd" },
	{ UINT64_C(1) << CAP_BPF, { SUBJECT_CAPS_ALL, false }, "bpf" },
	{ UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON, { SUBJECT_CAPS_ALL, false }, "bpf" },
	{ 0, { 0, false }, "memfd" },
};

START_TEST(root_and_the_same_user_see_all)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = users[_i].subject, .work = start_crowd };
	struct json_object *r;
	struct subject s;

	if (geteuid() != 0 || (strcmp(users[_i].backend, "bpf") == 0 && !subject_has_bpf()))
		return; /* cannot become somebody else; no maps here */
	s = subject_start(&so);
	ck_assert_msg(dump(&users[_i].command, "--json --look=0 %d", s.pid) == 0, "%s", err);
	r = parse();
	ck_assert_str_eq(text(r, "backend"), users[_i].backend);
	expect_crowd(r);
	subject_kill(&s);
}
END_TEST

START_TEST(where_memory_is_forbidden_workers_are_shown_and_why)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = turn, .other = block_all };
	const struct command c = { .caps = SUBJECT_CAPS_ALL, .blind = true };
	struct subject s = subject_start(&so);
	struct json_object *r;

	subject_do(&s, SUBJECT_OTHER);
	ck_assert_int_eq(dump(&c, "--json --look=20 %d", s.pid), PARTLY);
	r = parse();
	ck_assert_ptr_nonnull(find(get(r, "workers"), "function", "work_stuck_poll"));
	ck_assert_ptr_nonnull(strstr(text(r, "memory_missing"), "may not read the memory"));
	ck_assert_ptr_nonnull(strstr(err, "CAP_SYS_PTRACE"));
	ck_assert(!json_object_object_get_ex(r, "tasks", NULL));
	ck_assert_int_eq(dump(&c, "--look=0 %d", s.pid), PARTLY);
	ck_assert_ptr_nonnull(strstr(out, "work_stuck_poll"));
	ck_assert_ptr_null(strstr(out, "tasks:"));
	subject_kill(&s);
}
END_TEST

START_TEST(another_user_is_told_what_to_do)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = turn };
	const struct command nobody = { .caps = 0 };
	struct subject s;

	if (geteuid() != 0)
		return; /* cannot become somebody else */
	s = subject_start(&so);
	ck_assert_int_eq(dump(&nobody, "%d", s.pid), 1);
	ck_assert_ptr_nonnull(strstr(err, "may not look into"));
	ck_assert_str_eq(out, "");
	subject_kill(&s);
}
END_TEST

static void make_further(struct mrt_runtime *rt)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_CURRENT);

	(void)rt;
	(void)itest_create(&opts); /* as long as its process */
}

START_TEST(several_runtimes_are_one_document)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = make_further };
	struct subject s = subject_start(&so);
	struct json_object *list;

	ck_assert_int_eq(dump(&as_is, "--json --look=0 %d", s.pid), 0);
	list = parse_list();
	ck_assert_uint_eq(num(doc, "schema_version"), 1);
	ck_assert_uint_eq(json_object_array_length(list), 2);
	ck_assert_ptr_nonnull(find(list, "runtime", "itest"));
	ck_assert_ptr_nonnull(find(list, "runtime", "itest-2"));
	subject_kill(&s);
}
END_TEST

/* ---- what is none ---- */

START_TEST(no_process_and_no_runtime_are_errors)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	ck_assert_int_eq(dump(&as_is, "%d", pid), 1);
	ck_assert_ptr_nonnull(strstr(err, "no Martlet runtime"));
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(dump(&as_is, "%d", pid), 1);
	ck_assert_ptr_nonnull(strstr(err, "no process"));
}
END_TEST

START_TEST(bad_options_are_refused)
{
	static const char *const bad[] = { "", "1 2", "--ops=x 1", "--ops=-1 1", "--tasks=50001 1", "--nonsense 1", "x", "0",
					   "--watch --json 1", "--limit=0 --watch 1", "99999999999", "--ops=50001 1" };
	static const struct {
		const char *args, *says;
	} lonely[] = {
		{ "--limit=50 1", "--limit is of --watch" },	  { "--stalls=1 --ops=2 1", "--stalls is of --watch" },
		{ "--watch --ops=5 1", "--watch has no --ops" },  { "--watch --tasks=5 1", "--watch has no --tasks" },
		{ "--watch --look=5 1", "--watch has no --look" }, { "--json --watch 1", "--watch has no --json" },
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(dump(&as_is, "%s", bad[i]) == 2, "'%s' is taken", bad[i]);
		ck_assert_str_eq(out, "");
		ck_assert_str_ne(err, "");
	}
	for (unsigned i = 0; i < sizeof(lonely) / sizeof(lonely[0]); i++) {
		ck_assert_msg(dump(&as_is, "%s", lonely[i].args) == 2, "'%s' is taken", lonely[i].args);
		ck_assert_msg(strstr(err, lonely[i].says) != NULL, "%s: %s", lonely[i].args, err);
		ck_assert_str_eq(out, "");
	}
	ck_assert_int_eq(dump(&as_is, "--help"), 0);
	ck_assert_ptr_nonnull(strstr(out, "usage: martlet dump"));
}
END_TEST

START_TEST(a_process_that_ends_meanwhile_is_said)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = turn, .flags = MRT_RUNTIME_STATS_MEMFD };
	struct subject s = subject_start(&so);
	struct started c;
	char args[64];

	snprintf(args, sizeof(args), "--look=3000 %d", s.pid);
	c = start_command(&as_is, args);
	ITEST_WAIT(has_mapped(c.pid) && is_pausing(c.pid), 10000); /* between the looks */
	subject_kill(&s);
	ck_assert_int_eq(end_command(&c), PARTLY);
	ck_assert_ptr_nonnull(strstr(err, "ended while it was read"));
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("dump");
	TCase *tc = tcase_create("dump");

	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, workers_in_a_poll_are_named_with_since_when, 0, CASES_NR);
	tcase_add_test(tc, watch_tells_of_each_stuck_worker);
	tcase_add_test(tc, watch_is_silent_where_nobody_is_stuck_and_ends_with_the_process);
	tcase_add_loop_test(tc, ops_in_flight_have_opcode_fd_and_age, 0, 4);
	tcase_add_test(tc, a_busy_process_is_read_without_stopping_it);
	tcase_add_loop_test(tc, waiting_tasks_are_counted_by_function_and_what_they_wait_for, 0, CASES_NR);
	tcase_add_loop_test(tc, root_and_the_same_user_see_all, 0, sizeof(users) / sizeof(users[0]));
	tcase_add_test(tc, where_memory_is_forbidden_workers_are_shown_and_why);
	tcase_add_test(tc, another_user_is_told_what_to_do);
	tcase_add_test(tc, several_runtimes_are_one_document);
	tcase_add_test(tc, no_process_and_no_runtime_are_errors);
	tcase_add_test(tc, bad_options_are_refused);
	tcase_add_test(tc, a_process_that_ends_meanwhile_is_said);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	itest_need_io_uring();
	if (access(COMMAND, X_OK)) {
		printf("the command was not built (MRT_TOOLS)\n");
		return ITEST_SKIP;
	}
	if (!symbols_has_names()) {
		printf("built without libelf: functions have no names\n");
		return ITEST_SKIP;
	}
	return itest_main(make_suite());
}
