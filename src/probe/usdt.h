/* SPDX-License-Identifier: MIT */
/*
 * The probes: provider `martlet`, USDT notes that bpftrace, perf and libbpf read.
 *
 * mrt__fire(name, arguments...) costs one load and one branch while nobody listens; the arguments are computed only if
 * somebody does. A probe is a function of its own that does nothing (see usdt.c for why), so its arguments are in the
 * registers of a call. All are 64 bits wide. Times are CLOCK_MONOTONIC ns, as bpf_ktime_get_ns() gives.
 *
 * Only x86-64 has them; elsewhere mrt__fire() is nothing.
 */
#ifndef MRT_PROBE_USDT_H
#define MRT_PROBE_USDT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* `worker` of what a thread does that is no worker, and of what goes to no worker in particular. */
#define MRT__NO_WORKER UINT64_MAX

/* X(name, text, arguments...): at most six arguments */
#define MRT__PROBES(X)                                                                                                 \
	X(task_spawn, "a task was made; worker -1: by a thread outside", worker, task, fn)                             \
	X(task_wake, "a task was made runnable by worker (-1: outside) and queued at worker `to` (-1: inject)",        \
	  worker, task, to)                                                                                            \
	X(task_end, "a task has ended, all its ops collected", worker, task, fn, result)                               \
	X(poll_start, "a poll begins", worker, task, fn)                                                               \
	X(poll_end, "a poll has ended; ready 1: the task is done", worker, task, fn, poll_ns, ready)                   \
	X(steal, "`thief` took nr tasks from `victim`", thief, victim, nr)                                             \
	X(overflow, "a full local queue gave nr tasks to inject, or, with one worker, lets what comes wait behind it", worker, nr)                                          \
	X(inject, "nr tasks came into the inject queue, which now holds `depth`", nr, depth)                           \
	X(park, "a worker goes to sleep at `now_ns`; timeout -1: until it is woken", worker, timeout_ns, now_ns)       \
	X(unpark, "since `now_ns` it is awake again; also after a park that ended before it slept, and was not fired", \
	  worker, slept_ns, now_ns)                                                                                    \
	X(op_submit, "an op for the ring was started; opcode is io_uring's", worker, op, opcode, fd)                   \
	X(op_complete, "its last completion was reaped; op_ns: since it was staged, 0: not timed", worker, op, opcode, \
	  res, op_ns)                                                                                                  \
	X(op_cancel, "an op was asked to end; timeout 1: by its deadline", worker, op, timeout)                        \
	X(ring_enter, "io_uring_enter returned `ret`, the kernel took nr SQEs", worker, nr, min_complete, ret)         \
	X(cq_drain, "nr CQEs were reaped", worker, nr)                                                                 \
	X(timer_fire, "worker fired nr timers of `owner`'s wheel, the first of them late by late_ns", worker, owner,   \
	  nr, late_ns)                                                                                                 \
	X(blocking_start, "a thread of the pool begins a call; `queued` more wait", op, fn, queued)                    \
	X(blocking_end, "the call has returned", op, fn, call_ns, result)                                              \
	X(budget_exhausted, "a task spent its budget and yields", worker, task)                                        \
	X(stall, "`sentry` found `worker` in one poll for since_ns at least", sentry, worker, fn, since_ns)

#if defined(__x86_64__)
#define MRT__USDT 1
#else
#define MRT__USDT 0
#endif

#define MRT__ARGS_NR(...) MRT__ARGS_NR_(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)
#define MRT__ARGS_NR_(a, b, c, d, e, f, nr, ...) nr
#define MRT__PASTE(a, b) MRT__PASTE_(a, b)
#define MRT__PASTE_(a, b) a##b

#if MRT__USDT

#define MRT__ARGS_1 uint64_t
#define MRT__ARGS_2 uint64_t, uint64_t
#define MRT__ARGS_3 uint64_t, uint64_t, uint64_t
#define MRT__ARGS_4 uint64_t, uint64_t, uint64_t, uint64_t
#define MRT__ARGS_5 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
#define MRT__ARGS_6 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t

/* The kernel counts a semaphore up while somebody listens; only "not 0" has a meaning. Hidden, so that reading it is one
 * load. */
#define MRT__DECLARE_PROBE(name, text, ...)                                                     \
	extern __attribute__((visibility("hidden"))) const volatile uint16_t mrt__sem_##name;   \
	__attribute__((visibility("hidden")))                                                   \
	void mrt__usdt_##name(MRT__PASTE(MRT__ARGS_, MRT__ARGS_NR(__VA_ARGS__)));
MRT__PROBES(MRT__DECLARE_PROBE)
#undef MRT__DECLARE_PROBE

#define mrt__listens(name) mrt__unlikely(mrt__sem_##name != 0)
#define mrt__fire(name, ...) do {                       \
	if (mrt__listens(name))                         \
		mrt__usdt_##name(__VA_ARGS__);          \
} while (0)

#else

#define mrt__listens(name) false
#define mrt__fire(name, ...) do { } while (0)

#endif

/* A pointer as a probe's argument. */
#define mrt__arg(p) ((uint64_t)(uintptr_t)(p))

#endif
