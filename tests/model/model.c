/* SPDX-License-Identifier: MIT */
/*
 * The model checker: see model.h for what it promises.
 *
 * An execution is a sequence of decisions, one before each atomic access: which runnable thread goes next. Where there
 * is more than one choice, the decision is kept on a stack with the number of its alternatives; after an execution the
 * deepest decision that has an alternative left takes it, those below it are dropped, and the test runs again from its
 * start, replaying the stack. So the stack is the only state, memory use is that of one execution, and the search
 * ends by itself. The first choice is always to let the running thread go on: it costs no preemption.
 *
 * Fibers hand over to each other directly. A failure jumps back to the explorer and leaves the fibers as they are;
 * they are made anew for each execution.
 */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "base/assert.h"

#define STACK_BYTES (64u * 1024u)
#define STEPS_MAX 20000u                /* of one execution; more is a livelock */
#define PREEMPTIONS_DEFAULT 3
#define EXECUTIONS_MAX 50000000ull
#define SECONDS_MAX 120ull

struct thread {
	ucontext_t ctx;
	bool done;
	bool (*cond)(const void *arg);  /* NULL: runnable */
	const void *cond_arg;
};

struct decision {
	unsigned char taken, options_nr;        /* position in, and number of, the choices at this point */
};

enum outcome { RUNNING, PASSED, FAILED };

/* The one execution under way, and the search. */
static struct {
	const struct mdl_test *test;
	ucontext_t explorer;
	struct thread threads[MDL_THREADS_MAX];
	unsigned current;               /* MDL_THREADS_MAX: none, we are in the explorer */
	bool explorer_waits;            /* explorer holds a place in execute() to come back to */
	enum outcome outcome;
	char message[512];

	struct decision stack[STEPS_MAX];
	unsigned stack_nr;              /* decisions to replay */
	unsigned depth;                 /* decisions met in this execution */
	unsigned preemptions_left;

	unsigned char ran[STEPS_MAX];   /* thread that went on, per step */
	unsigned steps_nr;
	unsigned script_nr;             /* > 0: ran[] is a script to follow */
	bool trace;
} mdl;

static _Alignas(64) char stacks[MDL_THREADS_MAX][STACK_BYTES];

static unsigned long long env_number(const char *name, unsigned long long otherwise)
{
	const char *s = getenv(name);

	return s != NULL && *s != '\0' ? strtoull(s, NULL, 10) : otherwise;
}

void mdl_fail(const char *fmt, ...)
{
	va_list ap;

	if (mdl.outcome != FAILED) {
		va_start(ap, fmt);
		(void)vsnprintf(mdl.message, sizeof(mdl.message), fmt, ap); /* cut off if too long */
		va_end(ap);
		mdl.outcome = FAILED;
	}
	if (mdl.explorer_waits)
		(void)setcontext(&mdl.explorer); /* does not return */
	(void)fprintf(stderr, "%s: setup: %s\n", mdl.test->name, mdl.message); /* no schedule is to blame */
	abort();
}

/* The code under test asserts through base/assert.h; here such a failure belongs to a schedule. */
void mrt__bug_at(const char *file, int line, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* cut off if too long */
	va_end(ap);
	mdl_fail("%s:%d: %s", file, line, text);
}

static bool is_runnable(unsigned t)
{
	const struct thread *th = &mdl.threads[t];

	return !th->done && (th->cond == NULL || th->cond(th->cond_arg));
}

/* The runnable threads, the current one first if it is one of them; others only if a switch is free or allowed. */
static unsigned list_options(unsigned char *options)
{
	unsigned nr = 0, t;
	bool stays = is_runnable(mdl.current);

	if (stays)
		options[nr++] = (unsigned char)mdl.current;
	if (stays && mdl.preemptions_left == 0 && mdl.script_nr == 0)
		return nr;
	for (t = 0; t < mdl.test->threads_nr; t++) {
		if (t != mdl.current && is_runnable(t))
			options[nr++] = (unsigned char)t;
	}
	return nr;
}

/* Replay, or take the first choice of a new decision. */
static unsigned decide(const unsigned char *options, unsigned nr)
{
	struct decision *d;

	if (nr == 1)
		return options[0];
	d = &mdl.stack[mdl.depth++];
	if (mdl.depth > mdl.stack_nr) {
		mdl.stack_nr = mdl.depth;
		*d = (struct decision){ .taken = 0, .options_nr = (unsigned char)nr };
	} else if (d->options_nr != nr) {
		mdl_fail("the test is not deterministic: %u choices where there were %u", nr, d->options_nr);
	}
	return options[d->taken];
}

/* As decide(), from a script; when it has run out, the current thread goes on. */
static unsigned follow_script(const unsigned char *options, unsigned nr)
{
	unsigned i;

	for (i = 0; mdl.steps_nr < mdl.script_nr && i < nr; i++) {
		if (options[i] == mdl.ran[mdl.steps_nr])
			return options[i];
	}
	if (mdl.steps_nr < mdl.script_nr)
		mdl_fail("step %u: the schedule wants thread %u, which cannot run", mdl.steps_nr,
			 mdl.ran[mdl.steps_nr]);
	return options[0];
}

/* Nobody can go on. Back to the explorer for good. */
static void end_execution(void)
{
	unsigned t;

	for (t = 0; t < mdl.test->threads_nr; t++) {
		if (!mdl.threads[t].done && !mdl.test->may_rest)
			mdl_fail("deadlock: thread %u waits for ever", t);
	}
	mdl.outcome = PASSED;
	(void)setcontext(&mdl.explorer); /* does not return */
}

/* The scheduling point: who runs next? Returns when the caller does. */
static void reschedule(void)
{
	unsigned char options[MDL_THREADS_MAX];
	unsigned from = mdl.current, nr = list_options(options), to;

	if (nr == 0)
		end_execution();
	if (mdl.steps_nr == STEPS_MAX)
		mdl_fail("livelock: more than %u steps", STEPS_MAX);
	to = mdl.script_nr > 0 ? follow_script(options, nr) : decide(options, nr);
	mdl.ran[mdl.steps_nr++] = (unsigned char)to;
	mdl.threads[to].cond = NULL;
	if (to == from)
		return;
	if (options[0] == from && mdl.preemptions_left > 0)
		mdl.preemptions_left--;
	mdl.current = to;
	(void)swapcontext(&mdl.threads[from].ctx, &mdl.threads[to].ctx); /* fails for bad stacks only */
}

void mdl_point(const char *what, const char *object, const char *file, int line)
{
	const char *slash = strrchr(mdl.trace ? file : "", '/');

	if (mdl.current == MDL_THREADS_MAX)
		return;
	reschedule();
	if (mdl.trace)
		(void)printf("    %*sT%u %s %s (%s:%d)\n", (int)mdl.current * 8, "", mdl.current, what, object,
			     slash != NULL ? slash + 1 : file, line);
}

unsigned mdl_thread(void)
{
	return mdl.current == MDL_THREADS_MAX ? 0 : mdl.current;
}

void mdl_wait(bool (*cond)(const void *arg), const void *arg)
{
	if (cond(arg))
		return;
	if (mdl.current == MDL_THREADS_MAX)
		mdl_fail("a wait outside run() that nobody can end");
	mdl.threads[mdl.current].cond = cond;
	mdl.threads[mdl.current].cond_arg = arg;
	reschedule();
}

static void fiber_main(void)
{
	unsigned t = mdl.current;

	mdl.test->run(t, mdl.test->arg);
	mdl.threads[t].done = true;
	reschedule();
	abort(); /* a thread that is done is never chosen */
}

/* One execution, from setup to check. */
static void execute(unsigned preemptions)
{
	unsigned t;

	mdl.outcome = RUNNING;
	mdl.depth = 0;
	mdl.steps_nr = 0;
	mdl.preemptions_left = preemptions;
	mdl.current = MDL_THREADS_MAX;
	mdl.test->setup(mdl.test->arg);
	for (t = 0; t < mdl.test->threads_nr; t++) {
		struct thread *th = &mdl.threads[t];

		th->done = false;
		th->cond = NULL;
		th->ctx.uc_stack.ss_sp = stacks[t];
		th->ctx.uc_stack.ss_size = STACK_BYTES;
		th->ctx.uc_link = NULL;
		makecontext(&th->ctx, fiber_main, 0);
	}
	/* thread 0 starts: the first decision is at its first point. end_execution() and mdl_fail() come back here, the
	 * latter a second time if check() complains */
	mdl.current = 0;
	mdl.explorer_waits = true;
	(void)swapcontext(&mdl.explorer, &mdl.threads[0].ctx); /* fails for bad stacks only */
	mdl.current = MDL_THREADS_MAX;
	if (mdl.outcome == PASSED)
		mdl.test->check(mdl.test->arg);
	mdl.explorer_waits = false;
}

/* Move the stack to the next unexplored choice. False: there is none. */
static bool backtrack(void)
{
	mdl.stack_nr = mdl.depth;
	while (mdl.stack_nr > 0) {
		struct decision *d = &mdl.stack[mdl.stack_nr - 1];

		if (++d->taken < d->options_nr)
			return true;
		mdl.stack_nr--;
	}
	return false;
}

static void print_schedule(void)
{
	unsigned i, run;

	(void)printf("  schedule: MRT_MODEL_TEST='%s' MRT_MODEL_REPLAY=", mdl.test->name);
	for (i = 0; i < mdl.steps_nr; i += run) {
		for (run = 1; i + run < mdl.steps_nr && mdl.ran[i + run] == mdl.ran[i]; run++)
			;
		(void)printf("%s%ux%u", i == 0 ? "" : ",", mdl.ran[i], run);
	}
	(void)printf("\n");
}

/* Run what ran[] holds once more, loudly. */
static void trace_script(unsigned steps_nr)
{
	mdl.script_nr = steps_nr > 0 ? steps_nr : 1;
	mdl.trace = true;
	execute(0);
	(void)printf("  %s\n", mdl.outcome == FAILED ? mdl.message : "this schedule passes");
	mdl.trace = false;
	mdl.script_nr = 0;
}

static int replay(const char *schedule)
{
	unsigned nr = 0;
	char *end;

	while (*schedule != '\0' && nr < STEPS_MAX) {
		unsigned long thread = strtoul(schedule, &end, 10), run;

		run = *end == 'x' ? strtoul(end + 1, &end, 10) : 1;
		while (run-- > 0 && nr < STEPS_MAX)
			mdl.ran[nr++] = (unsigned char)thread;
		schedule = *end == ',' ? end + 1 : "";
	}
	trace_script(nr);
	return mdl.outcome == FAILED;
}

static double seconds_since(const struct timespec *start)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static unsigned preemption_bound(const struct mdl_test *test)
{
	const char *s = getenv("MRT_MODEL_PREEMPTIONS");

	if (s != NULL && *s != '\0')
		return (unsigned)strtol(s, NULL, 10); /* -1: more than any execution can use */
	return (unsigned)(test->preemptions != 0 ? test->preemptions : PREEMPTIONS_DEFAULT);
}

/* 0: as the test promises. */
static int explore(const struct mdl_test *test)
{
	unsigned long long executions_max = env_number("MRT_MODEL_EXECUTIONS_MAX", EXECUTIONS_MAX);
	unsigned long long seconds_max = env_number("MRT_MODEL_SECONDS_MAX", SECONDS_MAX), executions = 0;
	unsigned bound = preemption_bound(test), steps_max = 0;
	bool more = true, bounded = false;
	struct timespec start;

	(void)clock_gettime(CLOCK_MONOTONIC, &start); /* cannot fail */
	mdl.stack_nr = 0;
	while (more && !bounded) {
		execute(bound);
		executions++;
		if (mdl.steps_nr > steps_max)
			steps_max = mdl.steps_nr;
		if (mdl.outcome == FAILED)
			break;
		more = backtrack();
		bounded = executions >= executions_max ||
			  (executions % 4096 == 0 && seconds_since(&start) > (double)seconds_max);
	}
	bounded = bounded && more;
	(void)printf("%-44s %9llu executions, longest %u steps, at most %d preemptions, %.1f s: %s%s%s\n",
		     test->name,
		     executions, steps_max, (int)bound, seconds_since(&start),
		     mdl.outcome == FAILED ? test->must_fail ? "broken, as it must be" : "FAILED" :
		     bounded ? "BOUNDED: stopped before all were tried" :
		     test->must_fail ? "FAILED: no schedule breaks it" : "all pass",
		     mdl.outcome == FAILED && test->must_fail ? ": " : "",
		     mdl.outcome == FAILED && test->must_fail ? mdl.message : "");
	(void)fflush(stdout);
	if (mdl.outcome == FAILED && !test->must_fail) {
		(void)printf("  %s\n", mdl.message);
		print_schedule();
		trace_script(mdl.steps_nr);
		return 1;
	}
	return bounded || (mdl.outcome == FAILED) != test->must_fail;
}

/* Apart from its caller: the compiler must take getcontext() for a function that may return twice. */
static __attribute__((noinline)) void init_contexts(void)
{
	unsigned i;

	for (i = 0; i < MDL_THREADS_MAX; i++)
		(void)getcontext(&mdl.threads[i].ctx); /* cannot fail; once is enough for every makecontext() */
}

int mdl_main(const struct mdl_test *tests, unsigned tests_nr)
{
	const char *only = getenv("MRT_MODEL_TEST"), *schedule = getenv("MRT_MODEL_REPLAY");
	int failed = 0, ran = 0;
	unsigned i;

	init_contexts();
	for (i = 0; i < tests_nr; i++) {
		if (only != NULL && strcmp(only, tests[i].name) != 0)
			continue;
		mdl.test = &tests[i];
		failed |= only != NULL && schedule != NULL ? replay(schedule) : explore(&tests[i]);
		ran++;
	}
	if (ran == 0)
		(void)printf("no such test\n");
	return failed != 0 || ran == 0;
}
