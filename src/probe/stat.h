/* SPDX-License-Identifier: MIT */
/*
 * Statistics words: one writer, any readers. A write is a plain store to the machine; it is an atomic store to the
 * compiler and to ThreadSanitizer, so that readers never see half a word. No order is meant by any of them.
 */
#ifndef MRT_PROBE_STAT_H
#define MRT_PROBE_STAT_H

#include <stddef.h>

#include <martlet/stats.h>

/* relaxed: counts and gauges order nothing */
#define mrt__stat_set(p, v) __atomic_store_n((p), (__typeof__(*(p)))(v), __ATOMIC_RELAXED)
#define mrt__stat_get(p) __atomic_load_n((p), __ATOMIC_RELAXED)
/* the writer reads its own word plainly */
#define mrt__stat_add(p, n) mrt__stat_set((p), *(p) + (n))

/**
 * Memory for the workers' blocks, zeroed. (Here a BPF map or a memfd takes the place of the heap.)
 *
 * @thread  the builder
 * @return NULL: no memory
 */
struct mrt_worker_stats *mrt__stats_create(unsigned workers_nr);

void mrt__stats_destroy(struct mrt_worker_stats *stats, unsigned workers_nr);

/* Copy a block that its worker is writing, word by word. @thread any */
void mrt__stats_copy(const struct mrt_worker_stats *from, struct mrt_worker_stats *to);

#endif
