/* SPDX-License-Identifier: MIT */
/*
 * See counted.h. Each thread counts for itself; when the process ends the sums go to standard output:
 *
 *	atomics: <read-modify-writes> rmw, <writes to lines that another thread wrote last> moved
 *
 * The last writer of a line stands in a table that is indexed by its address. Two lines that share an entry throw each other
 * out, so a move may be missed, never invented. Two threads that write a line at once may be counted in either order.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define THREADS_MAX 4096u
#define LINE_SHIFT 6
#define LINES_NR (1u << 18)
#define THREAD_BITS 16

void bench_counted_rmw(const volatile void *p);
void bench_counted_store(const volatile void *p);

static struct counts {
	_Alignas(128) uint64_t rmw, moved;
} counts[THREADS_MAX];

static atomic_uint threads_nr;
static _Atomic uint64_t last[LINES_NR]; /* line << THREAD_BITS | thread; 0: not written */
static __thread struct counts *mine;

static struct counts *find_mine(void)
{
	if (!mine) /* relaxed: a ticket; more than there is room for share the last one */
		mine = &counts[atomic_fetch_add_explicit(&threads_nr, 1, memory_order_relaxed) % THREADS_MAX];
	return mine;
}

void bench_counted_store(const volatile void *p)
{
	struct counts *c = find_mine();
	uint64_t line = (uint64_t)(uintptr_t)p >> LINE_SHIFT, now = line << THREAD_BITS | (uint64_t)(c - counts + 1);
	/* relaxed, all: counts */
	uint64_t old = atomic_load_explicit(&last[line % LINES_NR], memory_order_relaxed);

	if (old == now)
		return;
	atomic_store_explicit(&last[line % LINES_NR], now, memory_order_relaxed);
	c->moved += old >> THREAD_BITS == line;
}

void bench_counted_rmw(const volatile void *p)
{
	find_mine()->rmw++;
	bench_counted_store(p);
}

/* Its threads have been joined. */
static __attribute__((destructor)) void print_counts(void)
{
	uint64_t rmw = 0, moved = 0;
	unsigned i;

	for (i = 0; i < THREADS_MAX; i++) {
		rmw += counts[i].rmw;
		moved += counts[i].moved;
	}
	printf("atomics: %llu rmw, %llu moved\n", (unsigned long long)rmw, (unsigned long long)moved);
}
