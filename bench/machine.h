/* SPDX-License-Identifier: MIT */
/*
 * What benchmark programs need of the machine, whichever runtime they measure: memory, random numbers, clocks, statistics,
 * CPUs. Compiles as C and as C++.
 */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- small things ---- */

__attribute__((noreturn, format(printf, 1, 2)))
static inline void bench_die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static inline void *bench_alloc(size_t nr, size_t bytes)
{
	void *p = calloc(nr, bytes);

	if (!p)
		bench_die("no memory for %zu x %zu bytes", nr, bytes);
	return p;
}

/*
 * Zeroed memory whose pages are there: faults are not what is measured. Not by memset: a compiler makes one calloc of
 * an allocation and its clearing.
 */
static inline void *bench_alloc_touched(size_t nr, size_t bytes)
{
	volatile char *p = (volatile char *)bench_alloc(nr, bytes);
	size_t off;

	for (off = 0; off < nr * bytes; off += 4096)
		p[off] = 0;
	return (void *)(uintptr_t)p;
}

/* xorshift64*: offsets and deadlines need no better. */
static inline uint64_t bench_rand(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static inline uint64_t bench_clock(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts))
		bench_die("clock %d: %s", (int)id, strerror(errno));
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* CPU time of all threads of this process, ns. */
static inline uint64_t bench_cpu_ns(void)
{
	return bench_clock(CLOCK_PROCESS_CPUTIME_ID);
}

static inline void bench_sleep_ns(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static inline void bench_spin_ns(uint64_t ns)
{
	uint64_t end = bench_clock(CLOCK_MONOTONIC) + ns;

	while (bench_clock(CLOCK_MONOTONIC) < end)
		;
}

/* ---- statistics ---- */

static inline int bench_cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline double bench_median(double *sorted, unsigned nr)
{
	return nr % 2 ? sorted[nr / 2] : (sorted[nr / 2 - 1] + sorted[nr / 2]) / 2;
}

static inline int bench_cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Sorts; the nearest-rank percentile, 0 < p <= 100. */
static inline void bench_sort_u64(uint64_t *v, size_t nr)
{
	qsort(v, nr, sizeof(*v), bench_cmp_u64);
}

static inline uint64_t bench_percentile(const uint64_t *sorted, size_t nr, double p)
{
	size_t i = (size_t)(p / 100 * (double)nr);

	return sorted[i < nr ? i : nr - 1];
}

/* ---- the machine ---- */

/* CPU time that anybody used or the hypervisor took, in ticks. */
static inline uint64_t bench_busy_ticks(void)
{
	unsigned long long user, nice_, system_, idle, iowait, irq, softirq, steal;
	FILE *f = fopen("/proc/stat", "re");
	int nr;

	if (!f)
		return 0;
	nr = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice_, &system_, &idle, &iowait, &irq,
		    &softirq, &steal);
	(void)fclose(f); /* only read */
	return nr == 8 ? user + nice_ + system_ + irq + softirq + steal : 0;
}

static inline uint64_t bench_own_ns(void)
{
	struct rusage r;
	uint64_t ns = bench_cpu_ns();

	if (getrusage(RUSAGE_CHILDREN, &r) == 0)
		ns += (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000u +
		      (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000u;
	return ns;
}

static inline size_t bench_rss_bytes(void)
{
	unsigned long size, resident;
	FILE *f = fopen("/proc/self/statm", "re");
	int nr;

	if (!f)
		bench_die("/proc/self/statm: %s", strerror(errno));
	nr = fscanf(f, "%lu %lu", &size, &resident);
	(void)fclose(f); /* only read */
	if (nr != 2)
		bench_die("/proc/self/statm: not two numbers");
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static inline void bench_pin(const int *cpus, unsigned nr)
{
	cpu_set_t set;
	unsigned i;

	CPU_ZERO(&set);
	for (i = 0; i < nr; i++)
		CPU_SET((unsigned)cpus[i], &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		bench_die("pinning to CPU %d: %s", cpus[0], strerror(errno));
}

/* The CPUs that this thread may run on. @param ret_cpus  [CPU_SETSIZE] @return how many */
static inline unsigned bench_cpus(int *ret_cpus)
{
	unsigned nr = 0;
	cpu_set_t set;
	int cpu;

	if (sched_getaffinity(0, sizeof(set), &set))
		bench_die("sched_getaffinity: %s", strerror(errno));
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((unsigned)cpu, &set))
			ret_cpus[nr++] = cpu;
	return nr;
}

#endif
