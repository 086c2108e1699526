/* SPDX-License-Identifier: MIT */
/*
 * An allocator of ranges of units (numbers, not memory: whose they are it does not know). Pure: no clock, no lock, no
 * allocation; all that it remembers is in arrays beside the units, so that the units themselves are never touched.
 *
 * Two-level segregated fit: free extents hang in lists by size class (16 classes to each power of two), two bitmaps find
 * the first class that is not empty. Alloc and free take constant time. There are several pools, each with lists of its
 * own; an extent stays in its pool.
 *
 * Threads: the caller excludes all others (X), but for mrt__extent_size().
 */
#ifndef MRT_BASE_EXTENT_H
#define MRT_BASE_EXTENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MRT__EXTENT_POOLS_NR 2u
#define MRT__EXTENT_SECOND_BITS 4u
#define MRT__EXTENT_SECOND_NR (1u << MRT__EXTENT_SECOND_BITS)
#define MRT__EXTENT_UNITS_MAX (1u << 27)        /* units: a size and its flags share a word */
#define MRT__EXTENT_FIRST_NR (27u - MRT__EXTENT_SECOND_BITS + 2u)
#define MRT__EXTENT_LOOKS_MAX 64u               /* extents that one alloc looks at where no class is sure to fit */

/* Of each unit; valid at the ends of extents only. Zero: the unit was never added. */
struct mrt__extent_tag {
	uint32_t head;          /* first unit of an extent: its units, and flags */
	uint32_t tail;          /* last unit of a free extent: its first unit + 1; else 0 */
	/* first unit of a free extent: next and previous in the list of its class, unit + 1, 0: none; else the caller's */
	uint32_t link[2];
};

struct mrt__extent_pool {
	uint32_t first_map;     /* bit i: second_map[i] is not 0 */
	uint32_t second_map[MRT__EXTENT_FIRST_NR];
	uint32_t lists[MRT__EXTENT_FIRST_NR][MRT__EXTENT_SECOND_NR]; /* unit + 1; 0: empty */
	uint64_t free_nr;       /* units */
};

struct mrt__extent {
	struct mrt__extent_tag *tags;   /* [units_nr] */
	uint32_t units_nr;
	struct mrt__extent_pool pools[MRT__EXTENT_POOLS_NR];
};

/**
 * Begin with no units at all.
 *
 * @owner  tags is the caller's, and lives as long as e
 * @param tags      [units_nr], zeroed
 * @param units_nr  1..MRT__EXTENT_UNITS_MAX
 */
void mrt__extent_init(struct mrt__extent *e, struct mrt__extent_tag *tags, uint32_t units_nr);

/**
 * Add units that were not added before.
 *
 * @param border  never to be one extent with what is in front of them: an allocation will not reach over it
 */
void mrt__extent_add(struct mrt__extent *e, unsigned pool, uint32_t first, uint32_t nr, bool border);

/**
 * Take `nr` units that stand together.
 *
 * May miss an extent that would do if it is less than 1/16 larger than asked for, or needed only a part of the room that
 * the alignment may cost: then up to MRT__EXTENT_LOOKS_MAX extents are looked at, not all.
 *
 * @param nr     1..
 * @param align  power of two: *ret_first is a multiple of it
 * @return false: none found
 */
bool mrt__extent_alloc(struct mrt__extent *e, unsigned pool, uint32_t nr, uint32_t align, uint32_t *ret_first);

/* Give back what alloc gave. It becomes one with free neighbours of its pool. */
void mrt__extent_free(struct mrt__extent *e, uint32_t first);

/* Units of an allocated extent. @thread its holder; others may be at other extents meanwhile */
uint32_t mrt__extent_size(const struct mrt__extent *e, uint32_t first);

/* [2] words that belong to whoever has an allocated extent; at first they hold anything. */
static inline uint32_t *mrt__extent_link(struct mrt__extent *e, uint32_t first)
{
	return e->tags[first].link;
}

/* Walk everything. @return false: broken, and `why` was told how */
bool mrt__extent_check(const struct mrt__extent *e, FILE *why);

#endif
