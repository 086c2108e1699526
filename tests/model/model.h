/* SPDX-License-Identifier: MIT */
/*
 * A small model checker: runs the two to six threads of a test as fibers of one OS thread and tries every
 * interleaving of their atomic accesses, depth first, by replaying the test from its start. As Tokio does it with loom,
 * but home-made, so that it needs nothing that Debian does not have.
 *
 * What a pass proves: no interleaving with at most P preemptions (a switch away from a thread that could have gone on;
 * switches away from a waiting or finished thread are free) breaks an assertion or leaves somebody waiting for ever.
 * P is 3, or what the test says, or MRT_MODEL_PREEMPTIONS; -1 is all interleavings. What it does not prove: memory is
 * sequentially consistent here, so a missing acquire or release is not found (the stress tests under ThreadSanitizer
 * are for that), and no compare-exchange fails spuriously.
 *
 * Build: the code under test, model.c and the test, all with -include model_atomic.h and -DMRT__RUNQ_SLOTS=4; not
 * src/base/assert.c, since assertions of the code under test are failures of a schedule here. No ThreadSanitizer: it
 * does not follow fibers.
 *
 * Environment:
 *    MRT_MODEL_PREEMPTIONS=n       bound for all tests
 *    MRT_MODEL_EXECUTIONS_MAX=n    per test, default 50,000,000
 *    MRT_MODEL_SECONDS_MAX=n       per test, default 120. A test that meets either limit *fails*, as BOUNDED
 *    MRT_MODEL_TEST=name           only this test
 *    MRT_MODEL_REPLAY=schedule     with MRT_MODEL_TEST: run one schedule, as a failure printed it, and trace it
 */
#ifndef MRT_TESTS_MODEL_H
#define MRT_TESTS_MODEL_H

#include <stdbool.h>

#define MDL_THREADS_MAX 6u

struct mdl_test {
	const char *name;
	unsigned threads_nr;                    /* 1..MDL_THREADS_MAX */
	const void *arg;                        /* handed to the three functions */
	void (*setup)(const void *arg);         /* makes the world anew before each execution; not interleaved */
	void (*run)(unsigned thread, const void *arg);  /* body of each thread */
	void (*check)(const void *arg);         /* at the end of each execution; not interleaved */
	bool may_rest;          /* threads that wait for ever are a good end: check() says if it is (else: a failure) */
	bool must_fail;         /* a version that is broken on purpose: passes if a failing schedule is found */
	int preemptions;        /* 0: the default; else this test's bound */
};

/**
 * Explore each test and print one line for it.
 *
 * @return exit status: 0 all passed, 1 not
 */
int mdl_main(const struct mdl_test *tests, unsigned tests_nr);

/* A point where another thread may run; does nothing outside run(). The strings name it in a trace. */
void mdl_point(const char *what, const char *object, const char *file, int line);

/* Which thread runs; 0 outside run(). */
unsigned mdl_thread(void);

/* Wait until cond(arg), which must not contain points; the caller goes on with cond true and nothing run since. */
void mdl_wait(bool (*cond)(const void *arg), const void *arg);

/* This schedule is a failure. From setup() it ends the program: no schedule is to blame there. */
__attribute__((noreturn, format(printf, 1, 2)))
void mdl_fail(const char *fmt, ...);

#define mdl_assert(c) do {                                                      \
	if (!(c))                                                               \
		mdl_fail("%s:%d: %s", __FILE__, __LINE__, #c);                  \
} while (0)

#endif
