/* SPDX-License-Identifier: MIT */
/*
 * A process that is looked at: a child with a runtime, with the capabilities and system calls that a test allows it, which does
 * what it is told, and then waits, hangs or is stopped.
 */
#ifndef MRT_TESTS_SUBJECT_H
#define MRT_TESTS_SUBJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <martlet/martlet.h>

/* Newer than some headers. */
#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#define CAP_BPF 39
#endif
#define SUBJECT_NOBODY 65534
#define SUBJECT_CAPS_ALL UINT64_MAX     /* stay who we are */

struct subject_opts {
	int kind;                               /* enum itest_kind */
	uint32_t flags;                         /* of the runtime */
	uint64_t caps;                          /* become nobody with these */
	unsigned forbidden[2];                  /* system calls that fail with EPERM; 0: none */
	bool own_proc;                          /* mount the /proc of its PID namespace, in a mount namespace of its own */
	void (*work)(struct mrt_runtime *rt);   /* before it is looked at, and when it is told to */
	void (*other)(struct mrt_runtime *rt);  /* when it is told to */
};

enum { SUBJECT_END, SUBJECT_WORK, SUBJECT_OTHER };

struct subject {
	pid_t pid;
	int to, from;
	char backend[16];
	uint64_t note;          /* what the work has left */
};

/* What the work leaves for the test, in the subject. */
extern atomic_uint_fast64_t subject_note;

/* May this process make maps? Found by trying. */
bool subject_has_bpf(void);

/* Have a system call fail with EPERM from now on, by seccomp. */
void subject_forbid(unsigned nr);

/* Become nobody, with these capabilities alone, also after exec. */
void subject_become_nobody(uint64_t caps);

/* Start one, and wait until it has done its work; fails the test if it does not. It ends with the test at the latest. */
struct subject subject_start(const struct subject_opts *so);

/* Let it do something more, and wait until it has. */
void subject_do(struct subject *s, char what);

/* Let it destroy its runtime and end, and wait for that. */
void subject_end(struct subject *s);

void subject_kill(struct subject *s);

#endif
