/* SPDX-License-Identifier: MIT */
/*
 * `martlet trace` as its users run it, on a process whose polls, spawns and ops are known: every figure is exact, attached before
 * the process starts and while it runs, by uprobe_multi and one by one; functions have their names; ops add up; results
 * are the same while it listens, and after it was killed; the timeline is well-formed and adds up to the worker's own
 * busy time; a buffer that is too small is told; and it says what it lacks.
 *
 * Each is tried first: where BPF programs cannot be loaded, or are not built, all but the refusals is left out.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <linux/capability.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/tracer.h"
#include "fixture.h"
#include "itest.h"
#include "probe/usdt.h"
#include "subject.h"
#include "work.h"

#define COMMAND MRT_TEST_BUILD_DIR "/martlet"
#define ARGS_MAX 24
#define WORKERS 2u

/* ---- what is traced ---- */

#define LEAVES 200u
#define LEAF_POLLS 4u
#define NOPS 100u
#define FSYNCS 5u
#define BLOCKS 3u
#define BLOCK_NS MRT_MS(10)

/* What the traced process says of itself. */
struct facts {
	uint64_t polls, spawns, busy_ns, opcodes[MRT_OPCODES_NR];
	int64_t sum;            /* of the last work */
	unsigned listened;      /* probes that somebody listens to */
};

static struct facts *facts;     /* shared with it */
static char folder[FIXTURE_PATH];

ITEST_CHILD(leaf, { struct mrt_op op; uint64_t seed, sum; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 1; f->i < LEAF_POLLS; f->i++) {
		f->sum = work_mix(f->sum + f->seed + f->i);
		MRT_AWAIT(self, mrt_yield(&f->op));
	}
	MRT_RETURN(self, (int64_t)(f->sum >> 1));
}

ITEST_CHILD(nopper, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < NOPS; f->i++)
		ITEST_RES(mrt_nop(&f->op), 0);
	MRT_RETURN(self, 0);
}

/* The kernel hands an fsync to io-wq at once. */
ITEST_CHILD(syncer, { struct mrt_op op; int fd; unsigned i; })
{
	MRT_BEGIN(self);
	f->fd = memfd_create("traced", MFD_CLOEXEC);
	ck_assert_int_ge(f->fd, 0);
	for (f->i = 0; f->i < FSYNCS; f->i++)
		MRT_AWAIT(self, mrt_fsync(&f->op, f->fd));
	(void)close(f->fd);
	MRT_RETURN(self, 0);
}

/* What a task must not do. */
ITEST_CHILD(blocker, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < BLOCKS; f->i++) {
		usleep((useconds_t)(BLOCK_NS / 1000));
		MRT_AWAIT(self, mrt_yield(&f->op));
	}
	MRT_RETURN(self, 0);
}

ITEST_CHILD(spinner, { int unused; })
{
	(void)f;
	MRT_BEGIN(self);
	itest_spin(MRT_MS(20));
	MRT_RETURN(self, 0);
}

#define MEETERS WORKERS

static atomic_uint met;

/* Each holds its worker until all are there, and blocks it: so every worker has something to do, and time without a CPU. */
ITEST_CHILD(meeter, { int unused; })
{
	uint64_t until = mrt_now() + MRT_SEC(20);

	(void)f;
	MRT_BEGIN(self);
	atomic_fetch_add(&met, 1);
	while (atomic_load(&met) < MEETERS)
		ck_assert_uint_lt(mrt_now(), until);
	usleep((useconds_t)(BLOCK_NS / 1000));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(root, { struct mrt_op op; struct mrt_task *tasks[LEAVES + 4 + MEETERS]; struct leaf leaf; uint64_t sum, park_ns; unsigned i, nr; })
{
	static const struct nopper no_nopper;
	static const struct syncer no_syncer;
	static const struct blocker no_blocker;
	static const struct spinner no_spinner;

	MRT_BEGIN(self);
	for (f->nr = 0; f->nr < LEAVES; f->nr++) {
		f->leaf.seed = f->nr;
		ck_assert_int_eq(mrt_spawn(NULL, leaf_poll, &f->leaf, sizeof(f->leaf), NULL, &f->tasks[f->nr]), 0);
	}
	ck_assert_int_eq(mrt_spawn(NULL, nopper_poll, &no_nopper, sizeof(no_nopper), NULL, &f->tasks[f->nr++]), 0);
	ck_assert_int_eq(mrt_spawn(NULL, syncer_poll, &no_syncer, sizeof(no_syncer), NULL, &f->tasks[f->nr++]), 0);
	ck_assert_int_eq(mrt_spawn(NULL, blocker_poll, &no_blocker, sizeof(no_blocker), NULL, &f->tasks[f->nr++]), 0);
	ck_assert_int_eq(mrt_spawn(NULL, spinner_poll, &no_spinner, sizeof(no_spinner), NULL, &f->tasks[f->nr++]), 0);
	atomic_store(&met, 0);
	for (f->i = 0; f->i < MEETERS; f->i++)
		f->tasks[f->nr++] = itest_spawn(mrt_runtime_self(), meeter_poll, NULL, sizeof(struct meeter));
	for (f->i = 0; f->i < f->nr; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		f->sum = work_mix(f->sum + (uint64_t)f->op.res);
	}
	/* the last that happens is a park that ends */
	f->park_ns = itest_stats(mrt_runtime_self()).park_ns;
	do
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(1)));
	while (itest_stats(mrt_runtime_self()).park_ns == f->park_ns);
	MRT_RETURN(self, (int64_t)(f->sum >> 1));
}
#define SPAWNS (LEAVES + 5 + MEETERS)

/* A worker that is on its way out of its sleep is still called PARKED: look twice, some time apart. */
static bool is_still(struct mrt_runtime *rt, struct mrt_worker_stats *ret)
{
	struct mrt_worker_stats before = itest_stats(rt);
	uint64_t start = mrt_now();

	if (!itest_all_parked(rt))
		return false;
	while (mrt_now() < start + MRT_MS(5))
		itest_pause();
	*ret = itest_stats(rt);
	return itest_all_parked(rt) && memcmp(&before, ret, sizeof(before)) == 0;
}

static void take_facts(struct mrt_runtime *rt, struct facts *ret)
{
	struct mrt_worker_hists h;
	struct mrt_worker_stats s;

	memset(ret, 0, sizeof(*ret));
	ITEST_WAIT(is_still(rt, &s), 20000);
	ret->polls = s.polls;
	ret->spawns = s.spawns;
	ret->busy_ns = s.busy_ns;
	for (unsigned w = 0; w < mrt_runtime_workers_nr(rt); w++) {
		ck_assert_int_eq(mrt_stats_hists_get(rt, w, &h), 0);
		for (unsigned i = 0; i < MRT_OPCODES_NR; i++)
			ret->opcodes[i] += h.op_nr[i];
	}
}

#define SEMAPHORE(name, text, ...) +(unsigned)(mrt__sem_##name != 0)

/* What one work adds to the facts, and its result. */
static void work(struct mrt_runtime *rt)
{
	static struct facts before, after;

	take_facts(rt, &before);
	after.sum = itest_run(rt, root_poll, NULL, sizeof(struct root));
	facts->sum = after.sum;
	take_facts(rt, &after);
	facts->polls = after.polls - before.polls;
	facts->spawns = after.spawns - before.spawns + 1; /* the root, from outside */
	facts->busy_ns = after.busy_ns - before.busy_ns;
	for (unsigned i = 0; i < MRT_OPCODES_NR; i++)
		facts->opcodes[i] = after.opcodes[i] - before.opcodes[i];
}

static void look(struct mrt_runtime *rt)
{
	(void)rt;
	facts->listened = 0u MRT__PROBES(SEMAPHORE);
}

/* As a command: one work, and its facts to a file. A test of its own, since the assertions want one. */
static const char *facts_path;

START_TEST(workload)
{
	struct mrt_runtime *rt = itest_runtime(ITEST_TWO);
	static struct facts own;
	FILE *out = fopen(facts_path, "we");

	facts = &own;
	work(rt);
	mrt_runtime_destroy(rt);
	ck_assert(out && fwrite(&own, sizeof(own), 1, out) == 1 && fclose(out) == 0);
}
END_TEST

static int workload_main(const char *path)
{
	Suite *suite = suite_create("workload");
	TCase *tc = tcase_create("workload");
	SRunner *runner;
	int failed;

	unsetenv("CK_RUN_CASE"); /* was for whoever runs us */
	unsetenv("CK_RUN_SUITE");
	facts_path = path;
	tcase_add_test(tc, workload);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}

static struct subject start_subject(uint64_t caps)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = caps, .work = work, .other = look };

	return subject_start(&so);
}

/* ---- running it ---- */

struct tracer_run {
	pid_t pid;
	char out[FIXTURE_PATH + 16], err[FIXTURE_PATH + 16];    /* files */
	int status;
};

#define CAPS_WITHOUT_PTRACE (SUBJECT_CAPS_ALL - 1) /* root, and this one is missing */

/* @param caps  SUBJECT_CAPS_ALL: as we are */
static struct tracer_run start_trace(uint64_t caps, const char *const args[])
{
	const char *argv[ARGS_MAX] = { "martlet", "trace" };
	static unsigned runs;
	struct tracer_run t;
	int command = open(COMMAND, O_PATH | O_CLOEXEC);

	ck_assert_int_ge(command, 0);
	for (unsigned i = 0; args[i]; i++) {
		ck_assert_uint_lt(i + 3, ARGS_MAX);
		argv[i + 2] = args[i];
	}
	runs++;
	snprintf(t.out, sizeof(t.out), "%.230s/out.%u", folder, runs);
	snprintf(t.err, sizeof(t.err), "%.230s/err.%u", folder, runs);
	(void)unlink(t.out); /* of the test before, which counted from one, too */
	(void)unlink(t.err);
	fflush(NULL);
	t.pid = fork();
	ck_assert_int_ge(t.pid, 0);
	if (t.pid == 0) {
		int out = open(t.out, O_CREAT | O_WRONLY | O_TRUNC, 0666), err = open(t.err, O_CREAT | O_WRONLY | O_TRUNC, 0666);

		alarm(2 * ITEST_LIMIT_S);
		dup2(out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
		if (caps == CAPS_WITHOUT_PTRACE && prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE))
			_exit(8);
		else if (caps < CAPS_WITHOUT_PTRACE)
			subject_become_nobody(caps);
		syscall(SYS_execveat, command, "", argv, environ, AT_EMPTY_PATH);
		_exit(126);
	}
	close(command);
	return t;
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t bytes = 0;

	if (f && getdelim(&text, &bytes, '\0', f) < 0 && text)
		text[0] = '\0';
	if (f)
		fclose(f);
	return text ? text : strdup("");
}

static bool has(const char *path, const char *what)
{
	char *text = slurp(path);
	bool found = strstr(text, what) != NULL;

	free(text);
	return found;
}

static bool has_ended(struct tracer_run *t)
{
	if (t->pid > 0 && waitpid(t->pid, &t->status, WNOHANG) == t->pid)
		t->pid = 0;
	return t->pid == 0;
}

/* It says so on standard error with --json, which leaves the other to the document. */
static void wait_until_tracing(struct tracer_run *t)
{
	ITEST_WAIT(has(t->err, "Ctrl-C ends") || has(t->out, "Ctrl-C ends") || has_ended(t), 20000);
	ck_assert_msg(t->pid > 0, "it has ended: %s", slurp(t->err));
}

/* @return its exit code */
static int wait_trace(struct tracer_run *t)
{
	ITEST_WAIT(has_ended(t), 20000);
	ck_assert_msg(WIFEXITED(t->status), "ended by signal %d: %s", WTERMSIG(t->status), slurp(t->err));
	return WEXITSTATUS(t->status);
}

static void end_trace(struct tracer_run *t)
{
	kill(t->pid, SIGINT);
	ck_assert_msg(wait_trace(t) == 0, "%s", slurp(t->err));
}

static const char *pid_text(const struct subject *s)
{
	static char text[16];

	snprintf(text, sizeof(text), "%d", (int)s->pid);
	return text;
}

/* ---- reading what it says ---- */

static struct json_object *document(const char *path)
{
	char *text = slurp(path);
	struct json_object *doc = json_tokener_parse(text);

	ck_assert_msg(doc != NULL, "no JSON: %s", text);
	free(text);
	return doc;
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *value = NULL;

	ck_assert_msg(json_object_object_get_ex(o, key, &value), "no %s in %s", key, json_object_to_json_string(o));
	return value;
}

static uint64_t u64(struct json_object *o, const char *key)
{
	return json_object_get_uint64(get(o, key));
}

static const char *text_of(struct json_object *o, const char *key)
{
	return json_object_get_string(get(o, key));
}

/* The element of an array of which key is value; NULL: none. */
static struct json_object *find(struct json_object *array, const char *key, const char *value)
{
	for (size_t i = 0; i < json_object_array_length(array); i++)
		if (strcmp(text_of(json_object_array_get_idx(array, i), key), value) == 0)
			return json_object_array_get_idx(array, i);
	return NULL;
}

static uint64_t slots_sum(struct json_object *hist)
{
	struct json_object *slots = get(hist, "slots");
	uint64_t sum = 0;

	for (size_t i = 0; i < json_object_array_length(slots); i++)
		sum += u64(json_object_array_get_idx(slots, i), "count");
	return sum;
}

/* A histogram whose slots add up to its count, and whose mean lies in a slot that could be it. @return count */
static uint64_t count_of(struct json_object *hist)
{
	uint64_t count = u64(hist, "count");

	ck_assert_uint_eq(slots_sum(hist), count);
	return count;
}

static void check_nothing_lost(struct json_object *doc)
{
	json_object_object_foreach(get(doc, "lost"), key, value)
		ck_assert_msg(json_object_get_uint64(value) == 0, "lost: %s %s", key, json_object_to_json_string(value));
	ck_assert_uint_eq(json_object_array_length(get(doc, "left_out")), 0);
}

static void check_function(struct json_object *functions, const char *name, uint64_t spawned, uint64_t polls,
			   uint64_t yields)
{
	struct json_object *f = find(functions, "function", name);

	ck_assert_msg(f != NULL, "no %s in %s", name, json_object_to_json_string(functions));
	ck_assert_uint_eq(u64(f, "spawned"), spawned);
	ck_assert_uint_eq(u64(f, "ended"), spawned);
	ck_assert_uint_eq(count_of(get(f, "poll")), polls);
	ck_assert_uint_eq(u64(f, "unwoken"), yields);
	ck_assert_uint_eq(count_of(get(f, "wait")), polls - yields);
}

/* The figures of one work. */
static void check_counts(struct json_object *doc, const struct facts *known)
{
	struct json_object *probes = get(doc, "probes"), *functions = get(doc, "functions");

	ck_assert_uint_eq(known->spawns, SPAWNS);
	ck_assert_uint_eq(u64(probes, "task_spawn"), SPAWNS);
	ck_assert_uint_eq(u64(probes, "task_end"), SPAWNS);
	ck_assert_uint_eq(u64(probes, "poll_start"), known->polls);
	ck_assert_uint_eq(u64(probes, "poll_end"), known->polls);
	ck_assert_uint_eq(count_of(get(doc, "poll")), known->polls);
	check_function(functions, "leaf_poll", LEAVES, (uint64_t)LEAVES * LEAF_POLLS, (uint64_t)LEAVES * (LEAF_POLLS - 1));
	check_function(functions, "blocker_poll", 1, BLOCKS + 1, BLOCKS);
	check_function(functions, "spinner_poll", 1, 1, 0);
	check_function(functions, "meeter_poll", MEETERS, MEETERS, 0);
	check_function(functions, "nopper_poll", 1, NOPS + 1, 0);
	check_function(functions, "syncer_poll", 1, FSYNCS + 1, 0);
	ck_assert_uint_ge(u64(get(find(functions, "function", "spinner_poll"), "poll"), "sum_ns"), MRT_MS(20));
	ck_assert_uint_ge(u64(get(find(functions, "function", "blocker_poll"), "poll"), "sum_ns"), BLOCKS * BLOCK_NS);
}

/* Trace the subject while it works. */
static struct tracer_run trace_work(uint64_t caps, const char *const args[], struct subject *s)
{
	struct tracer_run t = start_trace(caps, args);

	wait_until_tracing(&t);
	subject_do(s, SUBJECT_WORK);
	end_trace(&t);
	return t;
}

/* Its document, in which all is counted that the subject has done. */
static struct json_object *exact_document(const struct tracer_run *t)
{
	struct json_object *doc = document(t->out);

	check_counts(doc, facts);
	check_nothing_lost(doc);
	return doc;
}

/* ---- the tests ---- */

START_TEST(counts_are_exact)
{
	static const char *const how[] = { "--attach=multi", "--attach=usdt", "--attach=auto" };
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--json", how[_i], pid_text(&s), NULL };
	struct tracer_run t = trace_work(SUBJECT_CAPS_ALL, args, &s);
	struct json_object *doc;

	doc = exact_document(&t);
	ck_assert_str_eq(text_of(doc, "attached_by"), _i == 1 ? "usdt" : "uprobe_multi");
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

/* Probes come and go one by one; what is counted begins and ends for all at once. */
START_TEST(all_probes_are_counted_for_the_same_time)
{
	static const char *const how[] = { "--attach=multi", "--attach=usdt" };
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--json", how[_i], pid_text(&s), NULL };
	const char work_byte = SUBJECT_WORK;
	struct json_object *doc, *probes;
	struct subject said;
	struct tracer_run t;
	int64_t starts, ends;
	unsigned ahead = 0, works = 0;

	t = start_trace(SUBJECT_CAPS_ALL, args);
	/* busy from before the first probe is there until after the last has gone, and for three works in between */
	while (!has_ended(&t)) {
		for (; ahead < 4; ahead++)
			ck_assert_int_eq(write(s.to, &work_byte, 1), 1);
		ck_assert_int_eq(read(s.from, &said, sizeof(said)), sizeof(said));
		ahead--;
		works += has(t.err, "Ctrl-C ends");
		if (works == 4)
			kill(t.pid, SIGINT);
	}
	for (; ahead > 0; ahead--)
		ck_assert_int_eq(read(s.from, &said, sizeof(said)), sizeof(said));
	ck_assert_msg(wait_trace(&t) == 0, "%s", slurp(t.err));
	doc = document(t.out);
	probes = get(doc, "probes");
	starts = (int64_t)u64(probes, "poll_start");
	ends = (int64_t)u64(probes, "poll_end");
	ck_assert_int_gt(ends, 0);
	ck_assert_msg(llabs(starts - ends) <= WORKERS, "%lld begins, %lld ends", (long long)starts, (long long)ends);
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

START_TEST(a_command_is_seen_from_its_first_event)
{
	char self[FIXTURE_PATH], path[FIXTURE_PATH + 8];
	const char *const args[] = { "--json", "--", self, "workload", path, NULL };
	ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);
	struct json_object *doc;
	struct tracer_run t;
	struct facts known;
	FILE *f;

	ck_assert_int_gt(bytes, 0);
	self[bytes] = '\0';
	snprintf(path, sizeof(path), "%.230s/facts", folder);
	t = start_trace(SUBJECT_CAPS_ALL, args);
	ck_assert_msg(wait_trace(&t) == 0, "%s", slurp(t.err));
	f = fopen(path, "re");
	ck_assert_msg(f != NULL, "%s: %s: %s", path, strerror(errno), slurp(t.err));
	ck_assert_uint_eq(fread(&known, sizeof(known), 1, f), 1);
	fclose(f);
	doc = document(t.out);
	check_counts(doc, &known);
	check_nothing_lost(doc);
	json_object_put(doc);
}
END_TEST

/* Where nothing keeps the tracepoints from it, each op has all stages, and they add up to the whole. */
static void check_op(struct json_object *ops, const char *name, uint64_t nr)
{
	struct json_object *op = find(ops, "op", name);
	uint64_t sum;

	ck_assert_msg(op != NULL, "no %s", name);
	ck_assert_uint_eq(count_of(get(op, "total")), nr);
	ck_assert_uint_eq(count_of(get(op, "queued")), nr);
	ck_assert_uint_eq(count_of(get(op, "kernel")), nr);
	ck_assert_uint_eq(count_of(get(op, "unreaped")), nr);
	ck_assert_uint_eq(count_of(get(op, "unpolled")), nr);
	sum = u64(get(op, "queued"), "sum_ns") + u64(get(op, "kernel"), "sum_ns") + u64(get(op, "unreaped"), "sum_ns");
	ck_assert_uint_eq(sum, u64(get(op, "total"), "sum_ns"));
}

START_TEST(ops_are_split_and_punts_have_an_author)
{
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--json", "--ops", pid_text(&s), NULL };
	struct tracer_run t = trace_work(SUBJECT_CAPS_ALL, args, &s);
	struct json_object *doc, *punt;

	doc = document(t.out);
	if (json_object_array_length(get(doc, "left_out")) > 0) {
		printf("skip: stages of ops: %s\n", json_object_to_json_string(get(doc, "left_out")));
	} else {
		ck_assert_uint_eq(facts->opcodes[0], NOPS);
		check_op(get(doc, "ops"), "nop", NOPS);
		check_op(get(doc, "ops"), "fsync", FSYNCS);
		punt = find(get(doc, "punts"), "op", "fsync");
		ck_assert_ptr_nonnull(punt);
		ck_assert_uint_eq(u64(punt, "count"), FSYNCS);
		ck_assert_str_eq(text_of(punt, "function"), "syncer_poll");
		ck_assert_ptr_null(find(get(doc, "punts"), "op", "nop"));
		check_nothing_lost(doc);
	}
	check_counts(doc, facts);
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

START_TEST(time_without_cpu_has_a_reason)
{
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--json", "--offcpu", pid_text(&s), NULL };
	struct tracer_run t = trace_work(SUBJECT_CAPS_ALL, args, &s);
	struct json_object *doc, *f, *workers;
	uint64_t blocked = 0, parked = 0;

	doc = document(t.out);
	f = find(get(doc, "functions"), "function", "blocker_poll");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_ge(u64(f, "blocked_ns"), BLOCKS * BLOCK_NS);
	ck_assert_uint_lt(u64(find(get(doc, "functions"), "function", "leaf_poll"), "blocked_ns"), BLOCK_NS);
	if (ITEST_SANITIZED) {
		/* their locks make any poll wait for a moment */
		ck_assert_uint_ge(u64(f, "blocked"), BLOCKS);
	} else {
		ck_assert_uint_eq(u64(f, "blocked"), BLOCKS);
		ck_assert_uint_eq(u64(find(get(doc, "functions"), "function", "leaf_poll"), "blocked"), 0);
	}
	workers = get(doc, "workers");
	ck_assert_uint_eq(json_object_array_length(workers), WORKERS);
	for (size_t i = 0; i < WORKERS; i++) {
		blocked += count_of(get(json_object_array_get_idx(workers, i), "blocked"));
		parked += count_of(get(json_object_array_get_idx(workers, i), "parked"));
	}
	ck_assert_uint_ge(blocked, BLOCKS);
	ck_assert_uint_gt(parked, 0);
	check_nothing_lost(doc);
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

START_TEST(depths_are_sampled)
{
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--json", "--depths", "--duration=1s", pid_text(&s), NULL };
	struct json_object *doc, *row;
	struct tracer_run t;

	if (strcmp(s.backend, "bpf") != 0) {
		printf("skip: depths: the statistics are in a %s here\n", s.backend);
		subject_end(&s);
		return;
	}
	t = start_trace(SUBJECT_CAPS_ALL, args);
	ck_assert_msg(wait_trace(&t) == 0, "%s", slurp(t.err));
	doc = document(t.out);
	ck_assert_uint_eq(json_object_array_length(get(doc, "depths")), WORKERS);
	for (size_t i = 0; i < WORKERS; i++) {
		row = json_object_array_get_idx(get(doc, "depths"), i);
		ck_assert_uint_ge(u64(row, "looks"), 50);       /* of 1000, also where its CPU idles, and whoever has it */
		ck_assert_uint_eq(slots_sum(get(row, "local_queue")), u64(row, "looks"));
		ck_assert_uint_eq(slots_sum(get(row, "inflight")), u64(row, "looks"));
		ck_assert_uint_eq(u64(get(row, "local_queue"), "sum"), 0);      /* it sleeps */
	}
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

/* A process that was not allowed BPF has its statistics elsewhere; its probes are as good as any. */
START_TEST(a_process_without_bpf_is_traced_but_for_its_map)
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = 0, .work = work, .other = look };
	struct subject s = subject_start(&so);
	static const char *const want[] = { "--depths", "--pin" };
	const char *const args[] = { "--json", pid_text(&s), NULL };
	struct json_object *doc;
	struct tracer_run t;

	ck_assert_str_eq(s.backend, "memfd");
	for (unsigned i = 0; i < 2; i++) {
		t = start_trace(SUBJECT_CAPS_ALL, (const char *const[]){ want[i], pid_text(&s), NULL });
		ck_assert_int_eq(wait_trace(&t), 1);
		ck_assert_msg(has(t.err, "was not allowed BPF, so its statistics are in a memfd"), "%s", slurp(t.err));
	}
	t = trace_work(SUBJECT_CAPS_ALL, args, &s);
	doc = exact_document(&t);
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

START_TEST(listening_changes_no_result_and_leaves_nothing)
{
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--ops", "--offcpu", pid_text(&s), NULL };
	int64_t expected = facts->sum;
	struct tracer_run t;

	for (unsigned round = 0; round < 4; round++) {
		t = start_trace(SUBJECT_CAPS_ALL, args);
		wait_until_tracing(&t);
		subject_do(&s, SUBJECT_OTHER);
		ck_assert_uint_eq(facts->listened, 9);  /* all that it can but the thefts */
		subject_do(&s, SUBJECT_WORK);
		ck_assert_int_eq(facts->sum, expected);
		kill(t.pid, round % 2 ? SIGKILL : SIGINT);
		ITEST_WAIT(has_ended(&t), 20000);
		do
			subject_do(&s, SUBJECT_OTHER);
		while (facts->listened > 0); /* or the test's own time is over */
		subject_do(&s, SUBJECT_WORK);
		ck_assert_int_eq(facts->sum, expected);
	}
	subject_end(&s);
}
END_TEST

/* ---- the timeline ---- */

static double num(struct json_object *o, const char *key)
{
	struct json_object *v = get(o, key);

	ck_assert_msg(json_object_is_type(v, json_type_double) || json_object_is_type(v, json_type_int), "%s is no number", key);
	return json_object_get_double(v);
}

#define OPEN_MAX 64

/* What was seen of a track. */
struct track {
	int tid;
	double busy_us, polls_us, end_us;       /* end of its last busy or parked span */
	double busy_from, busy_to;              /* of the last */
};

struct seen {
	struct track tracks[16];
	unsigned tracks_nr;
	uint64_t polls, ops, steals, parks, names;
};

static struct track *track_of(struct seen *seen, int tid)
{
	for (unsigned i = 0; i < seen->tracks_nr; i++)
		if (seen->tracks[i].tid == tid)
			return &seen->tracks[i];
	ck_assert_uint_lt(seen->tracks_nr, 16);
	seen->tracks[seen->tracks_nr] = (struct track){ .tid = tid };
	return &seen->tracks[seen->tracks_nr++];
}

static bool is_one_of(const char *word, const char *list)
{
	const char *at = strstr(list, word);

	return at && (at == list || at[-1] == ' ') && (at[strlen(word)] == ' ' || at[strlen(word)] == '\0');
}

/* The format's rules for one event; what it is, is counted. */
static void check_event(struct json_object *e, struct seen *seen)
{
	const char *ph = text_of(e, "ph");
	struct track *k = track_of(seen, json_object_get_int(get(e, "tid")));

	ck_assert_msg(is_one_of(ph, "M X i b e"), "ph %s", ph);
	ck_assert_int_gt(json_object_get_int(get(e, "pid")), 0);
	ck_assert_int_gt((int)strlen(text_of(e, "name")), 0);
	if (ph[0] == 'M') {
		ck_assert(is_one_of(text_of(e, "name"), "process_name thread_name"));
		ck_assert_int_gt((int)strlen(text_of(get(e, "args"), "name")), 0);
		seen->names++;
		return;
	}
	ck_assert(num(e, "ts") >= 0);
	ck_assert(is_one_of(text_of(e, "cat"), "busy park poll steal op"));
	if (ph[0] == 'X') {
		ck_assert(num(e, "dur") >= 0);
		seen->polls += strcmp(text_of(e, "cat"), "poll") == 0;
		seen->parks += strcmp(text_of(e, "cat"), "park") == 0;
		k->busy_us += strcmp(text_of(e, "cat"), "busy") == 0 ? num(e, "dur") : 0;
		k->polls_us += strcmp(text_of(e, "cat"), "poll") == 0 ? num(e, "dur") : 0;
	} else if (ph[0] == 'i') {
		ck_assert_str_eq(text_of(e, "s"), "t");
		seen->steals++;
	} else {
		ck_assert(strncmp(text_of(e, "id"), "0x", 2) == 0);
	}
}

static bool is_cat(struct json_object *e, const char *cat)
{
	struct json_object *v;

	return json_object_object_get_ex(e, "cat", &v) && strcmp(json_object_get_string(v), cat) == 0;
}

/* Spans of a track touch nothing but what they lie in: busy and parked ones follow each other, polls lie in busy ones. */
static void check_nesting(struct json_object *events, int tid)
{
	double end = -1;

	for (size_t i = 0; i < json_object_array_length(events); i++) {
		struct json_object *e = json_object_array_get_idx(events, i);

		if (json_object_get_int(get(e, "tid")) != tid || !(is_cat(e, "busy") || is_cat(e, "park")))
			continue;
		ck_assert_msg(num(e, "ts") >= end - 0.002, "%s overlaps", json_object_to_json_string(e));
		end = num(e, "ts") + num(e, "dur");
		if (!is_cat(e, "busy"))
			continue;
		for (size_t p = 0; p < json_object_array_length(events); p++) {
			struct json_object *poll = json_object_array_get_idx(events, p);
			double from, to;

			if (json_object_get_int(get(poll, "tid")) != tid || !is_cat(poll, "poll"))
				continue;
			from = num(poll, "ts");
			to = from + num(poll, "dur");
			ck_assert_msg(to <= num(e, "ts") + 0.002 || from >= end - 0.002 ||
				      (from >= num(e, "ts") - 0.002 && to <= end + 0.002),
				      "%s is not inside of %s", json_object_to_json_string(poll), json_object_to_json_string(e));
		}
	}
}

/* Each begin has its end, in the order of a stack, by id. @return how many outermost ones */
static uint64_t check_async(struct json_object *events)
{
	uint64_t outer = 0;

	for (size_t i = 0; i < json_object_array_length(events); i++) {
		struct json_object *e = json_object_array_get_idx(events, i);
		unsigned depth = 1;
		double last;

		if (strcmp(text_of(e, "ph"), "b") != 0 || !json_object_object_get_ex(e, "args", NULL))
			continue; /* the outermost has the arguments */
		outer++;
		last = num(e, "ts");
		for (i++; depth > 0; i++) {
			struct json_object *in = json_object_array_get_idx(events, i);

			ck_assert_msg(in != NULL && strcmp(text_of(in, "id"), text_of(e, "id")) == 0, "%s has no end",
				      json_object_to_json_string(e));
			ck_assert(num(in, "ts") >= last);
			last = num(in, "ts");
			depth += text_of(in, "ph")[0] == 'b' ? 1u : -1u;
		}
		i--;
	}
	return outer;
}

static void check_timeline(const char *path, struct seen *seen)
{
	struct json_object *doc = document(path), *events = get(doc, "traceEvents");

	memset(seen, 0, sizeof(*seen));
	ck_assert_str_eq(text_of(doc, "displayTimeUnit"), "ns");
	for (size_t i = 0; i < json_object_array_length(events); i++)
		check_event(json_object_array_get_idx(events, i), seen);
	for (unsigned i = 0; i < seen->tracks_nr; i++)
		check_nesting(events, seen->tracks[i].tid);
	seen->ops = check_async(events);
	json_object_put(doc);
}

START_TEST(the_timeline_is_well_formed_and_adds_up)
{
	char path[FIXTURE_PATH + 16], option[FIXTURE_PATH + 32];
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--json", option, pid_text(&s), NULL };
	struct json_object *doc, *busy;
	struct tracer_run t;
	struct seen seen;
	double sum = 0, told = 0;

	snprintf(path, sizeof(path), "%.230s/timeline", folder);
	snprintf(option, sizeof(option), "--timeline=%s", path);
	t = trace_work(SUBJECT_CAPS_ALL, args, &s);
	doc = exact_document(&t);

	check_timeline(path, &seen);
	ck_assert_uint_eq(seen.polls, facts->polls);
	ck_assert_uint_eq(seen.ops, NOPS + FSYNCS);
	ck_assert_uint_eq(seen.steals, u64(get(doc, "probes"), "steal"));
	ck_assert_uint_ge(seen.parks, u64(get(doc, "probes"), "unpark"));       /* and those that last */
	ck_assert_uint_eq(seen.names, 1 + WORKERS);
	for (unsigned i = 0; i < seen.tracks_nr; i++) {
		sum += seen.tracks[i].busy_us * 1e3;
		ck_assert(seen.tracks[i].polls_us <= seen.tracks[i].busy_us);
	}
	ck_assert_msg(fabs(sum - (double)facts->busy_ns) <= 0.01 * (double)facts->busy_ns, "busy %.0f ns by spans, %.0f by the map",
		      sum, (double)facts->busy_ns);
	json_object_put(doc);
	doc = document(path);
	busy = get(get(doc, "otherData"), "busy_ns");
	json_object_object_foreach(busy, key, value) {
		(void)key;
		told += json_object_get_double(value);
	}
	ck_assert(fabs(told - sum) < 1e3);
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

/* A buffer of a page, and a reader that is stopped: most is lost, and told; what is left is well-formed. */
START_TEST(what_the_timeline_loses_is_told)
{
	char path[FIXTURE_PATH + 16], option[FIXTURE_PATH + 32];
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--json", "--buffer=4k", option, pid_text(&s), NULL };
	struct json_object *doc;
	struct tracer_run t;
	struct seen seen;
	uint64_t lost;
	double sum = 0;

	snprintf(path, sizeof(path), "%.230s/timeline", folder);
	snprintf(option, sizeof(option), "--timeline=%s", path);
	t = start_trace(SUBJECT_CAPS_ALL, args);
	wait_until_tracing(&t);
	kill(t.pid, SIGSTOP);
	subject_do(&s, SUBJECT_WORK);
	kill(t.pid, SIGCONT);
	end_trace(&t);
	doc = document(t.out);
	check_counts(doc, facts);       /* which needs no records */
	lost = u64(get(doc, "lost"), "records");
	ck_assert_uint_gt(lost, facts->polls / 2);
	json_object_put(doc);
	check_timeline(path, &seen);
	ck_assert_uint_lt(seen.polls, facts->polls);
	for (unsigned i = 0; i < seen.tracks_nr; i++)
		sum += seen.tracks[i].busy_us * 1e3;
	ck_assert(sum <= 1.01 * (double)facts->busy_ns); /* no time is made up for what is missing */
	doc = document(path);
	ck_assert_uint_gt(u64(get(doc, "otherData"), "gaps"), 0); /* no room for the last park at least */
	ck_assert_uint_eq(u64(get(doc, "otherData"), "records_lost"), lost);
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

START_TEST(the_timeline_ends_at_its_limit)
{
	char path[FIXTURE_PATH + 16], option[FIXTURE_PATH + 32];
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--events=20", option, pid_text(&s), NULL };
	struct json_object *doc;
	struct tracer_run t;
	struct seen seen;

	snprintf(path, sizeof(path), "%.230s/timeline", folder);
	snprintf(option, sizeof(option), "--timeline=%s", path);
	t = trace_work(SUBJECT_CAPS_ALL, args, &s);
	check_timeline(path, &seen);
	doc = document(path);
	ck_assert_uint_le(json_object_array_length(get(doc, "traceEvents")), 2 * 20);
	ck_assert_uint_gt(u64(get(doc, "otherData"), "events_skipped"), facts->polls);
	ck_assert(has(t.out, "events of the timeline beyond --events"));
	json_object_put(doc);
	subject_end(&s);
}
END_TEST

/* ---- the text ---- */

START_TEST(the_text_has_every_part)
{
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--by-function", "--ops", "--offcpu", pid_text(&s), NULL };
	static const char *const parts[] = {
		"FUNCTION", "leaf_poll", "leaf_poll: length of polls: 800, mean", "nsecs : count    distribution",
		"|****************************************|", "from wake to poll", "HANDED TO IO-WQ", "syncer_poll", "preempted",
		"tasks spawned", "nothing was lost",
	};
	struct tracer_run t = trace_work(SUBJECT_CAPS_ALL, args, &s);

	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		ck_assert_msg(has(t.out, parts[i]), "no '%s' in: %s", parts[i], slurp(t.out));
	subject_end(&s);
}
END_TEST

START_TEST(all_processes_are_traced_that_have_a_runtime)
{
	struct subject one = start_subject(SUBJECT_CAPS_ALL), two;
	const char *const args[] = { "-a", "--json", NULL };
	struct json_object *doc, *functions;
	struct tracer_run t = start_trace(SUBJECT_CAPS_ALL, args);
	uint64_t polls[2] = { 0 };

	wait_until_tracing(&t);
	two = start_subject(SUBJECT_CAPS_ALL);  /* does its work: came later, and is seen */
	subject_do(&one, SUBJECT_WORK);
	end_trace(&t);
	doc = document(t.out);
	functions = get(doc, "functions");
	for (size_t i = 0; i < json_object_array_length(functions); i++) {
		struct json_object *f = json_object_array_get_idx(functions, i);

		if (strcmp(text_of(f, "function"), "leaf_poll") == 0 && u64(f, "pid") == (uint64_t)one.pid)
			polls[0] += count_of(get(f, "poll"));
		if (strcmp(text_of(f, "function"), "leaf_poll") == 0 && u64(f, "pid") == (uint64_t)two.pid)
			polls[1] += count_of(get(f, "poll"));
	}
	ck_assert_uint_eq(polls[0], LEAVES * LEAF_POLLS);
	ck_assert_uint_eq(polls[1], LEAVES * LEAF_POLLS);
	json_object_put(doc);
	subject_end(&one);
	subject_end(&two);
}
END_TEST

/* This program with a probe of another name, as another version would have it. */
static void make_other_version(const char *path)
{
	static const char name[] = "martlet\0unpark", other[] = "martlet\0unparx";
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), out = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0755);
	struct stat st;
	char *mem, *at;

	ck_assert_int_eq(fstat(in, &st), 0);
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, in, 0);
	ck_assert_ptr_ne(mem, MAP_FAILED);
	/* also here, and in the strings of the list */
	for (at = mem; (at = memmem(at, (size_t)(mem + st.st_size - at), name, sizeof(name))); at++)
		memcpy(at, other, sizeof(other));
	ck_assert_int_eq(write(out, mem, (size_t)st.st_size), st.st_size);
	munmap(mem, (size_t)st.st_size);
	close(in);
	close(out);
}

START_TEST(other_versions_are_left_out_of_all)
{
	char other[FIXTURE_PATH + 16], fifo[FIXTURE_PATH + 16];
	const char *const alone[] = { "--offcpu", "--", other, "workload", fifo, NULL };
	const char *const all[] = { "--offcpu", "--json", "--duration=10ms", "-a", NULL };
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	struct json_object *doc = NULL;
	bool seen = false;
	struct tracer_run t;
	pid_t child;

	snprintf(other, sizeof(other), "%.230s/o\033[31mther", folder); /* a name that would colour what follows */
	snprintf(fifo, sizeof(fifo), "%.230s/fifo", folder);
	make_other_version(other);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	t = start_trace(SUBJECT_CAPS_ALL, alone);
	ck_assert_int_eq(wait_trace(&t), 1);
	ck_assert_msg(has(t.err, "/o?[31mther has no probe martlet:unpark: it is another version"), "%s", slurp(t.err));
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		alarm(2 * ITEST_LIMIT_S);
		execl(other, other, "workload", fifo, NULL); /* makes a runtime, and waits for somebody to read */
		_exit(126);
	}
	while (!seen) {
		json_object_put(doc);
		t = start_trace(SUBJECT_CAPS_ALL, all);
		ck_assert_msg(wait_trace(&t) == 0, "%s", slurp(t.err)); /* there is one of ours */
		doc = document(t.out);
		for (size_t i = 0; i < json_object_array_length(get(doc, "left_out")); i++)
			seen |= strstr(json_object_get_string(json_object_array_get_idx(get(doc, "left_out"), i)),
				       "/o?[31mther has no probe martlet:unpark") != NULL;
	}
	json_object_put(doc);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	subject_end(&s);
}
END_TEST

/* ---- privileges ---- */

static int nobody_can_read(void *ctx)
{
	(void)ctx;
	subject_become_nobody(0);
	return access("/proc/self/exe", R_OK) || access(MRT_TEST_BUILD_DIR "/CMakeCache.txt", R_OK) ? 1 : 0;
}

START_TEST(capabilities_that_are_needed_and_no_more)
{
	const uint64_t bpf = UINT64_C(1) << CAP_BPF, perfmon = UINT64_C(1) << CAP_PERFMON;
	struct subject s = start_subject(bpf | perfmon);
	const char *const args[] = { "--json", "--ops", "--offcpu", pid_text(&s), NULL };
	struct json_object *doc;
	struct tracer_run t;

	t = start_trace(0, args);
	ck_assert_int_eq(wait_trace(&t), 1);
	ck_assert_msg(has(t.err, "CAP_BPF and CAP_PERFMON missing"), "%s", slurp(t.err));
	t = start_trace(bpf, args);
	ck_assert_int_eq(wait_trace(&t), 1);
	ck_assert_msg(has(t.err, "not permitted: CAP_PERFMON missing"), "%s", slurp(t.err));
	if (itest_child(nobody_can_read, NULL, ITEST_LIMIT_S).status != 0) {
		printf("skip: with CAP_BPF and CAP_PERFMON: nobody may not look into the build's folder\n");
	} else {
		t = trace_work(bpf | perfmon, args, &s);
		doc = exact_document(&t);
		json_object_put(doc);
	}
	subject_end(&s);
}
END_TEST

START_TEST(who_may_not_look_is_told_what_is_missing)
{
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { pid_text(&s), NULL };
	struct tracer_run t;

	t = start_trace(UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON, args);
	ck_assert_int_eq(wait_trace(&t), 1);
	ck_assert_msg(has(t.err, "this user may not look into process") && has(t.err, ": be root (CAP_SYS_PTRACE)"), "%s", slurp(t.err));
	t = start_trace(CAPS_WITHOUT_PTRACE, args);
	ck_assert_int_eq(wait_trace(&t), 1);
	ck_assert_msg(has(t.err, "root is not enough, CAP_SYS_PTRACE is missing"), "%s", slurp(t.err));
	subject_end(&s);
}
END_TEST

/* ---- the pin ---- */

static char pin_path[64];

static int cat_as_nobody(void *ctx)
{
	char line[256];
	unsigned lines = 0;
	FILE *f;

	(void)ctx;
	subject_become_nobody(0);
	f = fopen(pin_path, "re");
	if (!f)
		return 100;
	while (fgets(line, sizeof(line), f))
		lines++;
	fclose(f);
	return (int)lines;
}

START_TEST(cat_shows_the_workers)
{
	struct subject s = start_subject(SUBJECT_CAPS_ALL);
	const char *const args[] = { "--pin", pid_text(&s), NULL };
	char line[512], tid[64];
	struct tracer_run t;
	char *text;

	if (strcmp(s.backend, "bpf") != 0 || fixture_privileged()) {
		printf("skip: the pin: no maps here, or no mount namespace\n");
		subject_end(&s);
		return;
	}
	/* without bpffs */
	ck_assert_int_eq(mount("none", "/sys/fs/bpf", "tmpfs", 0, "mode=0755"), 0);
	t = start_trace(SUBJECT_CAPS_ALL, args);
	ck_assert_int_eq(wait_trace(&t), 1);
	ck_assert_msg(has(t.err, "mount -t bpf bpf /sys/fs/bpf"), "%s", slurp(t.err));
	/* with */
	ck_assert_int_eq(mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0755"), 0);
	t = start_trace(SUBJECT_CAPS_ALL, args);
	ck_assert_msg(wait_trace(&t) == 0, "%s", slurp(t.err));
	snprintf(pin_path, sizeof(pin_path), "/sys/fs/bpf/mrt/top-%d", (int)s.pid);
	ck_assert(has(t.out, pin_path));
	text = slurp(pin_path);
	snprintf(line, sizeof(line), "\n%d 0 ", (int)s.pid);
	ck_assert_msg(strncmp(text, "pid worker tid state polls ", 27) == 0 && strstr(text, line) && strstr(text, " PARK "), "%s",
		      text);
	snprintf(tid, sizeof(tid), "\n%d 1 ", (int)s.pid);
	ck_assert(strstr(text, tid) != NULL);
	free(text);
	ck_assert_int_eq(WEXITSTATUS(itest_child(cat_as_nobody, NULL, ITEST_LIMIT_S).status), 1 + WORKERS);
	subject_end(&s);
	ITEST_WAIT(!has(pin_path, "PARK"), 20000);      /* the process is gone */
	/* whoever comes next removes it */
	s = start_subject(SUBJECT_CAPS_ALL);
	t = start_trace(SUBJECT_CAPS_ALL, (const char *const[]){ "--pin", pid_text(&s), NULL });
	ck_assert_msg(wait_trace(&t) == 0, "%s", slurp(t.err));
	ck_assert(access(pin_path, F_OK) && errno == ENOENT);
	snprintf(pin_path, sizeof(pin_path), "/sys/fs/bpf/mrt/top-%d", (int)s.pid);
	ck_assert(has(pin_path, "PARK"));
	subject_end(&s);
	ck_assert_int_eq(unlink(pin_path), 0);
}
END_TEST

/* ---- refusals ---- */

static const struct refusal {
	const char *args[6];
	int code;
	const char *says;
} refusals[] = {
	{ { NULL }, 2, "name a process, -a for all, or a command" },
	{ { "0" }, 2, "is no process number" },
	{ { "12x" }, 2, "is no process number" },
	{ { "1", "2" }, 2, "name one process" },
	{ { "-a", "1" }, 2, "name one of" },
	{ { "-a", "--", "true" }, 2, "name one of" },
	{ { "--frobnicate", "1" }, 2, "--frobnicate: no such option" },
	{ { "-d", "soon", "1" }, 2, "'soon' is no time" },
	{ { "--duration=0", "1" }, 2, "is no time" },
	{ { "--attach=magic", "1" }, 2, "'magic' is none of" },
	{ { "--buffer=2g", "--timeline=x", "1" }, 2, "is no size" },
	{ { "--events=0", "1" }, 2, "is no number" },
	{ { "--timeline", }, 2, "a value is missing" },
	{ { "--pin", "-a" }, 2, "--pin takes a process" },
	{ { "--pin", "--ops", "1" }, 2, "--pin takes a process" },
	{ { "--depths", "-a" }, 2, "--depths takes a process" },
	{ { "999999999" }, 1, "there is no process 999999999" },
	{ { "--", "/nonexistent" }, 1, "/nonexistent: No such file" },
	{ { "--", "true" }, 1, "true has no probes of Martlet" },
};

START_TEST(refusals_say_why)
{
	const struct refusal *r = &refusals[_i];
	struct tracer_run t = start_trace(SUBJECT_CAPS_ALL, r->args);
	int code = wait_trace(&t);

	if (code == 1 && tracer_missing()) {
		ck_assert(has(t.err, tracer_missing()));
		return;
	}
	ck_assert_msg(code == r->code && has(t.err, r->says), "exit %d: %s", code, slurp(t.err));
}
END_TEST

START_TEST(a_process_without_probes_is_refused)
{
	char pid[16], comm[40];
	const char *const args[] = { pid, NULL };
	struct tracer_run t;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		execlp("sleep", "sleep", "30", NULL);
		_exit(1);
	}
	snprintf(pid, sizeof(pid), "%d", (int)child);
	snprintf(comm, sizeof(comm), "/proc/%s/comm", pid);
	ITEST_WAIT(has(comm, "sleep"), 20000);  /* and is not we any more */
	t = start_trace(SUBJECT_CAPS_ALL, args);
	ck_assert_int_eq(wait_trace(&t), 1);
	ck_assert(tracer_missing() || has(t.err, "has no probes of Martlet"));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}
END_TEST

/* ---- main ---- */

/* May we do all of it? Found by doing it. */
static int try_all(void *ctx)
{
	char self[FIXTURE_PATH], line[2 * FIXTURE_PATH + sizeof(COMMAND)];
	ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);

	(void)ctx;
	self[bytes > 0 ? bytes : 0] = '\0';
	snprintf(line, sizeof(line), "exec %s trace --json -- %s workload /dev/null >/dev/null", COMMAND, self);
	return system(line) != 0;
}

static Suite *trace_suite(bool traced)
{
	Suite *suite = suite_create("trace");
	TCase *tc = tcase_create("refusals");

	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_loop_test(tc, refusals_say_why, 0, (int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_test(tc, a_process_without_probes_is_refused);
	suite_add_tcase(suite, tc);
	if (!traced)
		return suite;
	tc = tcase_create("traced");
	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_loop_test(tc, counts_are_exact, 0, 3);
	tcase_add_loop_test(tc, all_probes_are_counted_for_the_same_time, 0, 2);
	tcase_add_test(tc, a_command_is_seen_from_its_first_event);
	tcase_add_test(tc, ops_are_split_and_punts_have_an_author);
	tcase_add_test(tc, time_without_cpu_has_a_reason);
	tcase_add_test(tc, depths_are_sampled);
	tcase_add_test(tc, a_process_without_bpf_is_traced_but_for_its_map);
	tcase_add_test(tc, listening_changes_no_result_and_leaves_nothing);
	tcase_add_test(tc, the_timeline_is_well_formed_and_adds_up);
	tcase_add_test(tc, what_the_timeline_loses_is_told);
	tcase_add_test(tc, the_timeline_ends_at_its_limit);
	tcase_add_test(tc, the_text_has_every_part);
	tcase_add_test(tc, all_processes_are_traced_that_have_a_runtime);
	tcase_add_test(tc, other_versions_are_left_out_of_all);
	tcase_add_test(tc, capabilities_that_are_needed_and_no_more);
	tcase_add_test(tc, who_may_not_look_is_told_what_is_missing);
	tcase_add_test(tc, cat_shows_the_workers);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(int argc, char **argv)
{
	struct itest_exit e;
	bool traced;

	if (argc == 3 && strcmp(argv[1], "workload") == 0)
		return workload_main(argv[2]);
	itest_need_io_uring();
	facts = mmap(NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (facts == MAP_FAILED || fixture_dir(folder) || chmod(folder, 0777)) {
		printf("skipped: no folder for files\n");
		return ITEST_SKIP;
	}
	e = itest_child(try_all, NULL, ITEST_LIMIT_S);
	traced = e.status == 0;
	if (!traced)
		printf("skip: tracing: %s\n", e.err);
	return itest_main(trace_suite(traced));
}
