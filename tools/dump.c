/* SPDX-License-Identifier: MIT */
/*
 * `martlet dump`: what a process with a runtime is doing, told without its help. Two sources: the statistics, which each
 * worker writes as it goes (attach.h), and the process's memory (walk.h). Both can be read while every worker is stuck and while
 * the process is stopped.
 *
 * It looks twice, so that a poll count that does not move shows. `--watch` goes on looking at the statistics alone.
 */
#include "dump.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "clock.h"
#include "proc.h"
#include "sys.h"

#define EXIT_PARTLY 3           /* something could not be read: it says what and why */
#define LOOK_DEFAULT_MS 100u
#define LIMIT_DEFAULT_MS 100u
#define MS_MAX 3600000u
#define WALKS_MAX 3u            /* tries to find all lists whole */
#define NAMES_NR 4u
#define LIST_MAX 50000u         /* ops, tasks; as JSON each takes 3 KiB until its runtime is printed */

struct opts {
	bool as_json, watch;
	unsigned ops_max, tasks_max, look_ms, limit_ms, stalls_max;
	const char *once_only, *watch_only;     /* an option that was given; NULL: none */
	int pid;
};

/* ---- names ---- */

const char *dump_fn(struct dump *d, uint64_t addr)
{
	static char bufs[NAMES_NR][SYMBOLS_NAME_MAX];
	static unsigned next;

	return symbols_name(d->symbols, addr, bufs[next++ % NAMES_NR], SYMBOLS_NAME_MAX);
}

const char *dump_fd(const struct dump *d, int fd, char *buf, size_t buf_bytes)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", d->a->pid, fd);
	n = readlink(path, buf, buf_bytes - 1);
	buf[n > 0 ? n : 0] = '\0';
	proc_printable(buf);
	return buf;
}

/* ---- workers ---- */

static void look_at_thread(int pid, int tid, struct dump_worker *w)
{
	char line[512], *end;

	w->thread_state = '?';
	if (sys_read_line(line, sizeof(line), "/proc/%d/task/%d/stat", pid, tid) && (end = strrchr(line, ')')) && end[1] == ' ')
		w->thread_state = end[2];
	if (sys_read_line(line, sizeof(line), "/proc/%d/task/%d/wchan", pid, tid) && strcmp(line, "0") != 0)
		snprintf(w->wchan, sizeof(w->wchan), "%.39s", line);
	proc_printable(w->wchan);
}

static void look_at_worker(const struct attach *a, const struct mrt_worker_stats *before, unsigned i, struct dump_worker *w)
{
	const struct mrt_worker_stats *s = &a->workers[i];

	w->stats = s;
	w->is_polling = s->poll_fn != 0;
	w->polls_moved = s->polls - before->polls;
	w->is_stuck = w->is_polling && w->polls_moved == 0 && before->poll_fn == s->poll_fn;
	if (w->is_polling && s->poll_start_ns) {
		w->since_ns = s->poll_start_ns;
		w->is_exact = true;
	} else if (w->is_polling || s->state == MRT_WORKER_PARKED) {
		w->since_ns = s->turn_ns; /* no turn comes before it ends */
		w->is_exact = !w->is_polling;
	}
	look_at_thread(a->pid, s->tid, w);
}

/* Twice, look_ms apart. */
static int look(struct dump *d, struct attach *a, unsigned look_ms)
{
	struct mrt_worker_stats *before = aligned_alloc(_Alignof(struct mrt_worker_stats), a->workers_nr * sizeof(*before));
	struct timespec pause = clock_timespec(look_ms * CLOCK_NS_PER_MS);
	uint64_t before_ns;
	int err;

	d->workers = calloc(a->workers_nr, sizeof(*d->workers));
	if (!before || !d->workers) {
		free(before);
		return -ENOMEM;
	}
	err = attach_read(a);
	memcpy(before, a->workers, a->workers_nr * sizeof(*before));
	before_ns = a->read_ns;
	(void)nanosleep(&pause, NULL); /* shorter does no harm */
	if (!err)
		err = attach_read(a);
	d->now_ns = a->read_ns;
	d->look_ns = a->read_ns - before_ns;
	for (unsigned i = 0; i < a->workers_nr; i++)
		look_at_worker(a, &before[i], i, &d->workers[i]);
	free(before);
	return err;
}

/* ---- tasks and ops ---- */

/* Is the first older? What is unknown is the youngest. */
static bool is_older(enum walk_age age, uint64_t ns, enum walk_age than_age, uint64_t than_ns)
{
	if (age == WALK_AGE_UNKNOWN || than_age == WALK_AGE_UNKNOWN)
		return age != WALK_AGE_UNKNOWN && than_age == WALK_AGE_UNKNOWN;
	return ns < than_ns;
}

static int compare_age(enum walk_age age, uint64_t ns, uint64_t addr, enum walk_age other_age, uint64_t other_ns,
		       uint64_t other_addr)
{
	if (is_older(age, ns, other_age, other_ns))
		return -1;
	if (is_older(other_age, other_ns, age, ns))
		return 1;
	return addr < other_addr ? -1 : addr > other_addr;
}

static int compare_ops(const void *a, const void *b)
{
	const struct walk_op *x = &((const struct dump_op *)a)->op, *y = &((const struct dump_op *)b)->op;

	return compare_age(x->age, x->began_ns, x->addr, y->age, y->began_ns, y->addr);
}

static int compare_tasks(const void *a, const void *b)
{
	const struct dump_task *x = a, *y = b;

	return compare_age(x->age, x->began_ns, x->task.addr, y->age, y->began_ns, y->task.addr);
}

/* The oldest `max` of the list, in order. There is room for twice as many, so that this is seldom. */
static void trim(void *list, unsigned *nr, unsigned max, size_t bytes, int (*compare)(const void *, const void *))
{
	qsort(list, *nr, bytes, compare);
	if (*nr > max)
		*nr = max;
}

static void keep_op(struct dump *d, const struct walk_task *t, const struct walk_op *op)
{
	/* what waits inside the process is shown with its task */
	if (!op->is_ring && strcmp(op->kind, "blocking") != 0)
		return;
	d->ops_out_nr++;
	if (d->ops_max == 0)
		return;
	if (d->ops_kept == 2 * d->ops_max)
		trim(d->ops, &d->ops_kept, d->ops_max, sizeof(d->ops[0]), compare_ops);
	d->ops[d->ops_kept++] = (struct dump_op){ *op, t->addr, t->fn };
}

static void keep_task(struct dump *d, const struct dump_task *t)
{
	if (d->tasks_max == 0)
		return;
	if (d->tasks_kept == 2 * d->tasks_max)
		trim(d->tasks, &d->tasks_kept, d->tasks_max, sizeof(d->tasks[0]), compare_tasks);
	d->tasks[d->tasks_kept++] = *t;
}

/* What one op is waited for as: "recv", "join worker_poll". */
static void wait_name(struct dump *d, const struct walk_op *op, char *buf, size_t buf_bytes)
{
	if (op->object_fn)
		snprintf(buf, buf_bytes, "%s %s", op->kind, dump_fn(d, op->object_fn));
	else
		snprintf(buf, buf_bytes, "%s", op->kind);
}

/* Is it one of the words of the text already? */
static bool has_word(const char *text, const char *word, char separator)
{
	size_t n = strlen(word);

	for (const char *at = text; (at = strstr(at, word)) != NULL; at += n) {
		if ((at == text || at[-1] == separator) && (at[n] == '\0' || at[n] == separator))
			return true;
	}
	return false;
}

/* Each kind once: "a|b" any of them, "a+b" all. */
static void describe_wait(struct dump *d, const struct walk_task *t, struct dump_task *ret)
{
	unsigned awaited = 0;
	size_t used = 0;
	char separator;

	for (unsigned i = 0; i < t->ops_nr; i++)
		awaited += t->ops[i].is_awaited;
	separator = t->await_nr < awaited ? '|' : '+';
	for (unsigned i = t->ops_nr; i-- > 0;) { /* in the order in which they began */
		char name[DUMP_WAIT_BYTES];
		const struct walk_op *op = &t->ops[i];

		if (!op->is_awaited)
			continue;
		if (is_older(op->age, op->began_ns, ret->age, ret->began_ns)) {
			ret->age = op->age;
			ret->began_ns = op->began_ns;
		}
		ret->object = awaited == 1 ? op->object : 0;
		wait_name(d, op, name, sizeof(name));
		if (has_word(ret->wait, name, separator) || used + strlen(name) + 2 > sizeof(ret->wait))
			continue;
		used += (size_t)snprintf(ret->wait + used, sizeof(ret->wait) - used, "%s%s",
					 used ? (char[2]){ separator, '\0' } : "", name);
	}
	if (!used)
		snprintf(ret->wait, sizeof(ret->wait), "nothing in flight");
}

static void count_group(struct dump *d, const struct dump_task *t)
{
	struct dump_group *g;
	unsigned i;

	for (i = 0; i < d->groups_nr; i++) {
		if (d->groups[i].fn == t->task.fn && strcmp(d->groups[i].wait, t->wait) == 0)
			break;
	}
	if (i == DUMP_GROUPS_MAX) {
		d->groups_left++;
		return;
	}
	g = &d->groups[i];
	if (i == d->groups_nr) {
		*g = (struct dump_group){ .fn = t->task.fn };
		memcpy(g->wait, t->wait, sizeof(g->wait));
		d->groups_nr++;
	}
	g->nr++;
	if (is_older(t->age, t->began_ns, g->age, g->began_ns)) {
		g->age = t->age;
		g->began_ns = t->began_ns;
	}
}

static void on_task(const struct walk_task *t, void *ctx)
{
	struct dump *d = ctx;
	struct dump_task kept = { .task = *t };

	d->tasks_nr[t->state]++;
	d->ops_nr += t->ops_nr;
	for (unsigned i = 0; i < t->ops_nr; i++)
		keep_op(d, t, &t->ops[i]);
	if (t->state != WALK_WAITING)
		return;
	describe_wait(d, t, &kept);
	kept.task.ops = NULL;
	keep_task(d, &kept);
	count_group(d, &kept);
}

static int compare_groups(const void *a, const void *b)
{
	const struct dump_group *x = a, *y = b;

	if (x->nr != y->nr)
		return x->nr > y->nr ? -1 : 1;
	return x->fn != y->fn ? (x->fn < y->fn ? -1 : 1) : strcmp(x->wait, y->wait);
}

/* Again where it did not fit: a process that runs changes under the look. */
static int walk(struct dump *d)
{
	int err = 0;

	for (unsigned i = 0; i < WALKS_MAX && !err && (i == 0 || (d->walk.torn_nr > 0 && !d->walk.is_cut)); i++) {
		d->walk.torn_nr = d->walk.changed_nr = 0;
		memset(d->tasks_nr, 0, sizeof(d->tasks_nr));
		d->ops_nr = d->ops_out_nr = d->groups_left = 0;
		d->ops_kept = d->tasks_kept = d->groups_nr = 0;
		err = walk_tasks(&d->walk, on_task, d);
	}
	trim(d->ops, &d->ops_kept, d->ops_max, sizeof(d->ops[0]), compare_ops);
	trim(d->tasks, &d->tasks_kept, d->tasks_max, sizeof(d->tasks[0]), compare_tasks);
	qsort(d->groups, d->groups_nr, sizeof(d->groups[0]), compare_groups);
	return err;
}

static int read_memory(struct dump *d, const struct opts *o, char *why, size_t why_bytes)
{
	int err;

	d->ops_max = o->ops_max;
	d->tasks_max = o->tasks_max;
	d->ops = calloc(2 * d->ops_max + 1u, sizeof(d->ops[0]));
	d->tasks = calloc(2 * d->tasks_max + 1u, sizeof(d->tasks[0]));
	d->groups = calloc(DUMP_GROUPS_MAX, sizeof(d->groups[0]));
	if (!d->ops || !d->tasks || !d->groups)
		return -ENOMEM;
	err = walk_open(&d->walk, d->a->pid, d->a->global.runtime, d->a->global.layout, d->a->workers_nr, why, why_bytes);
	if (err) {
		d->memory_why = why;
		return err;
	}
	err = walk(d);
	if (err == -ESRCH) {
		snprintf(why, why_bytes, "process %d ended while it was read", d->a->pid);
		d->memory_why = why;
	}
	return err;
}

/* ---- dump ---- */

static void free_dump(struct dump *d)
{
	symbols_close(d->symbols);
	free(d->workers);
	free(d->ops);
	free(d->tasks);
	free(d->groups);
}

/* @return exit code */
static int dump_one(const struct opts *o, struct attach *a, bool is_first)
{
	struct dump d = { .a = a, .state = proc_state(a->pid) };
	char why[400] = "", symbols_why[200];
	int err, rc = EXIT_SUCCESS;

	proc_name(a->pid, d.process, sizeof(d.process));
	err = symbols_open(a->pid, &d.symbols);
	if (err == -ENOMEM)
		goto out;
	if (err || !symbols_has_names()) {
		snprintf(symbols_why, sizeof(symbols_why), err ? "functions have no names: /proc/%d/maps: %s" :
			 "functions have no names: this program was built without libelf", a->pid, strerror(-err));
		d.symbols_why = symbols_why;
		rc = err ? EXIT_PARTLY : EXIT_SUCCESS; /* what it was built without is no news */
	}
	err = look(&d, a, o->look_ms);
	if (err == -ENOMEM)
		goto out;
	if (!err)
		err = read_memory(&d, o, why, sizeof(why));
	else
		d.memory_why = strcpy(why, err == -ESRCH ? "the process ended while it was read" :
				      "its runtime was destroyed while it was read");
	if (err == -ENOMEM)
		goto out;
	if (d.memory_why || d.walk.torn_nr)
		rc = EXIT_PARTLY;
	if (!is_first)
		fputs(o->as_json ? ",\n" : "\n", stdout);
	if (o->as_json)
		dump_json(&d, stdout);
	else
		dump_text(&d, stdout);
	if (d.memory_why)
		fprintf(stderr, "martlet dump: tasks and ops are not shown: %s\n", d.memory_why);
	if (d.symbols_why)
		fprintf(stderr, "martlet dump: %s\n", d.symbols_why);
	err = 0;
out:
	if (err) {
		fprintf(stderr, "martlet dump: %s\n", strerror(-err));
		rc = EXIT_FAILURE;
	}
	free_dump(&d);
	return rc;
}

static int dump_all(const struct opts *o, struct attach_set *set)
{
	int rc = EXIT_SUCCESS;

	/* each runtime by itself, so that one at a time is in memory */
	if (o->as_json)
		fputs("{\n\"schema_version\":1,\n\"runtimes\":[\n", stdout);
	for (unsigned i = 0; i < set->nr && rc != EXIT_FAILURE; i++) {
		int one = dump_one(o, set->items[i], i == 0);

		if (one != EXIT_SUCCESS)
			rc = one;
	}
	if (o->as_json)
		fputs("\n]\n}\n", stdout);
	return rc;
}

/* ---- watch ---- */

static volatile sig_atomic_t interrupted;
static sigset_t pause_mask;     /* the signals that end the watch come in its pauses only: none is missed before one */

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static void await_signals(void)
{
	sigset_t ends;

	(void)sigemptyset(&ends);                       /* valid signals */
	(void)sigaddset(&ends, SIGINT);
	(void)sigaddset(&ends, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &ends, &pause_mask);
	(void)sigdelset(&pause_mask, SIGINT);
	(void)sigdelset(&pause_mask, SIGTERM);
	(void)signal(SIGINT, on_signal);
	(void)signal(SIGTERM, on_signal);
}

/* What the watch remembers of a worker. */
struct watched {
	uint64_t polls, seen_ns, report_ns;     /* its poll, seen first; when it is to be told of next */
};

static void report_stall(struct dump *d, const struct mrt_worker_stats *s, uint64_t ns, bool exact)
{
	struct timespec now;
	struct tm tm;
	char at[32] = "";

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail */
	if (localtime_r(&now.tv_sec, &tm))
		(void)strftime(at, sizeof(at), "%H:%M:%S", &tm);
	printf("%s.%03ld %s worker %u (tid %d): in one poll for %s%" PRIu64 " ms: %s, task %#" PRIx64 "\n", at,
	       now.tv_nsec / 1000000, d->a->label, s->index, s->tid, exact ? "" : "at least ", ns / CLOCK_NS_PER_MS,
	       dump_fn(d, s->poll_fn), s->poll_task);
	(void)fflush(stdout);
}

/* @return true: it was told of */
static bool watch_worker(struct dump *d, const struct opts *o, const struct mrt_worker_stats *s, struct watched *seen,
			 uint64_t now)
{
	uint64_t limit = o->limit_ms * CLOCK_NS_PER_MS, since;

	if (s->polls != seen->polls || !s->poll_fn) {
		*seen = (struct watched){ .polls = s->polls, .seen_ns = now, .report_ns = limit };
		return false;
	}
	since = s->poll_start_ns && s->poll_start_ns < now ? s->poll_start_ns : seen->seen_ns;
	if (now - since < seen->report_ns)
		return false;
	report_stall(d, s, now - since, since == s->poll_start_ns);
	seen->report_ns = 2 * (now - since);
	return true;
}

static int watch(const struct opts *o, struct attach_set *set)
{
	struct timespec pause = clock_timespec((o->limit_ms * CLOCK_NS_PER_MS + 3) / 4);
	struct watched **seen = calloc(set->nr, sizeof(*seen));
	struct dump *d = calloc(set->nr, sizeof(*d));
	unsigned told = 0, left = set->nr, i, w;

	for (i = 0; seen && d && i < set->nr; i++) {
		seen[i] = calloc(set->items[i]->workers_nr, sizeof(**seen));
		d[i].a = set->items[i];
		(void)symbols_open(set->items[i]->pid, &d[i].symbols); /* then functions are shown as addresses */
	}
	while (seen && d && left > 0 && !interrupted && (o->stalls_max == 0 || told < o->stalls_max)) {
		(void)ppoll(NULL, 0, &pause, &pause_mask);      /* a signal ends it */
		for (i = 0, left = 0; i < set->nr; i++) {
			struct attach *a = set->items[i];

			if (!seen[i] || !d[i].symbols || attach_read(a))
				continue;
			left++;
			for (w = 0; w < a->workers_nr && (o->stalls_max == 0 || told < o->stalls_max); w++)
				told += watch_worker(&d[i], o, &a->workers[w], &seen[i][w], a->read_ns);
		}
	}
	for (i = 0; seen && d && i < set->nr; i++) {
		free(seen[i]);
		symbols_close(d[i].symbols);
	}
	free(seen);
	free(d);
	return interrupted ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

/* ---- options ---- */

static const char usage[] =
	"usage: martlet dump [options] PID\n"
	"\n"
	"  --json         one JSON document\n"
	"  --ops=N        ops of rings and blocking calls to list, oldest first (20; 0: none; 50000 at most)\n"
	"  --tasks=N      waiting tasks to list one by one, oldest first (0; 50000 at most); all are counted by function\n"
	"  --look=MS      distance of the two looks that tell whether polls move (100; 0: one look)\n"
	"  --watch        go on, and say so when a worker is in one poll for more than the limit\n"
	"  --limit=MS     of --watch (100)\n"
	"  --stalls=N     of --watch: end when so many were told (0: when the process ends)\n"
	"\n"
	"Exit status: 0 all was shown; 1 there is no such process, or no runtime in it that this user may see;\n"
	"2 bad options; 3 something could not be read, which is said on standard error.\n";

static bool parse_number(const char *name, const char *text, unsigned max, unsigned *ret)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && !errno && n <= max) {
		*ret = (unsigned)n;
		return true;
	}
	fprintf(stderr, "martlet dump: %s: '%s' is no number from 0 to %u\n", name, text, max);
	return false;
}

/* @return true: go on; else *ret_rc is the exit code */
static bool parse_opts(int argc, char **argv, struct opts *o, int *ret_rc)
{
	static const struct option names[] = {
		{ "json", no_argument, NULL, 'j' },	   { "ops", required_argument, NULL, 'o' },
		{ "tasks", required_argument, NULL, 't' }, { "look", required_argument, NULL, 'l' },
		{ "watch", no_argument, NULL, 'w' },	   { "limit", required_argument, NULL, 'm' },
		{ "stalls", required_argument, NULL, 's' },{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct {
		char c;
		const char *name;
		unsigned *to, max;
		const char **kind;
	} numbers[] = {
		{ 'o', "--ops", &o->ops_max, LIST_MAX, &o->once_only },	  { 't', "--tasks", &o->tasks_max, LIST_MAX, &o->once_only },
		{ 'l', "--look", &o->look_ms, MS_MAX, &o->once_only },	  { 'm', "--limit", &o->limit_ms, MS_MAX, &o->watch_only },
		{ 's', "--stalls", &o->stalls_max, 1000000, &o->watch_only },
	};
	unsigned pid;
	int c;

	*ret_rc = EXIT_USAGE;
	optind = 0; /* another command's getopt may have run */
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (c == 'h') {
			fputs(usage, stdout);
			*ret_rc = EXIT_SUCCESS;
			return false;
		}
		if (c == '?') {
			fputs(usage, stderr);
			return false;
		}
		if (c == 'j') {
			o->as_json = true;
			o->once_only = "--json";
		}
		o->watch |= c == 'w';
		for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
			if (c != numbers[i].c)
				continue;
			if (!parse_number(numbers[i].name, optarg, numbers[i].max, numbers[i].to))
				return false;
			*numbers[i].kind = numbers[i].name;
		}
	}
	if (argc - optind != 1) {
		fputs(usage, stderr);
		return false;
	}
	if (!parse_number("PID", argv[optind], INT32_MAX, &pid))
		return false;
	if (pid == 0 || o->limit_ms == 0) {
		fprintf(stderr, "martlet dump: %s must be at least 1\n", pid ? "--limit" : "PID");
		return false;
	}
	if (o->watch && o->once_only) {
		fprintf(stderr, "martlet dump: --watch has no %s: it looks at workers alone, and goes on\n", o->once_only);
		return false;
	}
	if (!o->watch && o->watch_only) {
		fprintf(stderr, "martlet dump: %s is of --watch, which is not there\n", o->watch_only);
		return false;
	}
	o->pid = (int)pid;
	return true;
}

int dump_main(int argc, char **argv)
{
	struct opts o = { .ops_max = 20, .look_ms = LOOK_DEFAULT_MS, .limit_ms = LIMIT_DEFAULT_MS };
	static struct attach_set set; /* large */
	char why[400];
	int rc;

	if (!parse_opts(argc, argv, &o, &rc))
		return rc;
	if (o.watch)
		await_signals();
	rc = attach_scan(&set, &o.pid, 1);
	if (rc || set.nr == 0) {
		fprintf(stderr, "martlet dump: %s\n", rc ? strerror(-rc) : attach_why_not(&set, o.pid, why, sizeof(why)));
		rc = EXIT_FAILURE;
	} else {
		rc = o.watch ? watch(&o, &set) : dump_all(&o, &set);
	}
	attach_set_close(&set);
	return rc;
}
