/* SPDX-License-Identifier: MIT */
/*
 * Statistics words: one writer, any readers. A write is a plain store to the machine; it is an atomic store to the
 * compiler and to ThreadSanitizer, so that readers never see half a word. No order is meant by any of them.
 */
#ifndef MRT_PROBE_STAT_H
#define MRT_PROBE_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/stats.h>

/* relaxed: counts and gauges order nothing */
#define mrt__stat_set(p, v) __atomic_store_n((p), (__typeof__(*(p)))(v), __ATOMIC_RELAXED)
#define mrt__stat_get(p) __atomic_load_n((p), __ATOMIC_RELAXED)
/* the writer reads its own word plainly */
#define mrt__stat_add(p, n) mrt__stat_set((p), *(p) + (n))
/* Make a count that several write at least n: it never falls. @progress lock-free */
static inline void mrt__stat_raise(uint64_t *p, uint64_t n)
{
	uint64_t seen = mrt__stat_get(p);

	/* relaxed: a count; on failure `seen` is what somebody else has made of it */
	while (seen < n && !__atomic_compare_exchange_n(p, &seen, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* words of mrt_global that have several writers */
#define mrt__stat_add_shared(p, n) ((void)__atomic_fetch_add((p), (__typeof__(*(p)))(n), __ATOMIC_RELAXED))

/* ---- the blocks, as tables made from the lists of <martlet/stats.h> ---- */

enum mrt__stat_type {
	MRT__STAT_u32,
	MRT__STAT_i32,
	MRT__STAT_u64,
	MRT__STAT_i64,
	MRT__STAT_char,
	MRT__STAT_worker_state,
	MRT__STAT_timing,
	MRT__STAT_TYPES_NR
};

struct mrt__stat_field {
	const char *name;
	uint16_t type;          /* enum mrt__stat_type */
	uint16_t nr;            /* elements; 0: no array */
	uint32_t offset;
};

struct mrt__stat_block {
	const char *map_name;   /* at most 15 characters */
	const char *struct_name;
	uint32_t bytes;
	uint32_t fields_nr;
	const struct mrt__stat_field *fields;
};

enum mrt__stat_block_id {
	MRT__STAT_WORKERS,
	MRT__STAT_HISTS,
	MRT__STAT_GLOBAL,
	MRT__STAT_CTL,
	MRT__STAT_BLOCKS_NR
};

extern const struct mrt__stat_block mrt__stat_blocks[MRT__STAT_BLOCKS_NR];

/* Copy a block that somebody is writing, word by word. @thread any */
void mrt__stat_block_copy(enum mrt__stat_block_id id, const void *from, void *to);

/* ---- where they live ---- */

enum mrt__stats_backend {
	MRT__STATS_BPF,         /* four maps */
	MRT__STATS_MEMFD,       /* one file, see struct mrt_stats_file */
	MRT__STATS_HEAP,        /* seen from inside alone */
};

/* Memory for the statistics of a runtime. Const after creation. */
struct mrt__stats {
	struct mrt_worker_stats *workers;       /* [workers_nr] */
	struct mrt_worker_hists *hists;         /* [workers_nr] */
	struct mrt_global_stats *global;
	struct mrt_ctl *ctl;
	unsigned workers_nr;
	enum mrt__stats_backend backend;
	int fds[MRT__STAT_BLOCKS_NR];           /* of the maps, or the memfd's first; -1: none */
	void *mem[MRT__STAT_BLOCKS_NR];         /* what is to be unmapped, or freed; one alone but for maps */
	size_t mem_bytes[MRT__STAT_BLOCKS_NR];
	int bpf_error;                          /* 0, or why there are no maps; what was not tried is 0 */
	char pin[64];                           /* folder of the pins; "": none */
};

struct mrt__stats_opts {
	unsigned workers_nr;
	enum mrt__stats_backend backend;        /* the first one to try */
	const char *name;                       /* of the runtime */
	uint32_t flavour;
	uint64_t now_ns;
};

/**
 * Make memory for the statistics, zeroed but for what is const in it: maps, else a memfd, else the heap.
 *
 * @thread  the builder
 * @return 0, -ENOMEM (no memory at all; that BPF is not allowed is no error)
 */
int mrt__stats_create(const struct mrt__stats_opts *opts, struct mrt__stats *ret_stats);

/* Give it back, and the pins; a zeroed one is ignored. @thread the destroyer, when nobody writes any more */
void mrt__stats_destroy(struct mrt__stats *stats);

/* "bpf", "memfd", "heap" */
const char *mrt__stats_backend_name(enum mrt__stats_backend backend);

/**
 * Pin the maps in a folder of this process below /sys/fs/bpf/mrt, and remove what dead processes have left there.
 *
 * @thread  the builder
 * @blocks  for file system calls
 * @return 0, -EOPNOTSUPP (there are no maps), -errno: nothing is pinned
 */
int mrt__stats_pin(struct mrt__stats *stats);

/* Remove the pins. The maps live on with the memory. */
void mrt__stats_unpin(struct mrt__stats *stats);

/* Start time of a process in clock ticks since boot, field 22 of its stat file; 0: there is no such process. @param pid  0: this one */
uint64_t mrt__stats_start_ticks(int pid);

#endif
