/* SPDX-License-Identifier: MIT */
/*
 * See extent.h. The added units are cut into extents without gaps; each is free or allocated. What holds between calls:
 *
 *	head of an extent's first unit    its size, FREE, BORDER, its pool
 *	tail of its last unit             first unit + 1 if free, else 0: so the neighbour behind finds us, or knows not to
 *	free                              in the list of exactly its class; no free neighbour of its pool but over a border
 *
 * A border belongs to a place, not to an extent: it stays at its unit when the extent that begins there is cut or grows.
 *
 * After Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic memory allocator for real-time systems" (2004), with the
 * headers in arrays: pinned memory that a device writes is no place for them, and a free block costs no page.
 */
#include "base/extent.h"

#include <string.h>

#include "base/assert.h"

#define FREE (1u << 31)
#define BORDER (1u << 30)
#define POOL_SHIFT 29u
#define POOL (1u << POOL_SHIFT)
#define SIZE (POOL - 1)

enum { NEXT, PREV };      /* of a tag's link */

_Static_assert(MRT__EXTENT_UNITS_MAX <= SIZE, "a size and the flags fit one word");
_Static_assert(MRT__EXTENT_POOLS_NR <= 2, "one bit names the pool");
_Static_assert(MRT__EXTENT_FIRST_NR <= 32 && MRT__EXTENT_SECOND_NR <= 32, "the bitmaps are words");

struct class {
	unsigned first, second;
};

static unsigned log2_floor(uint32_t n)
{
	return 31u - (unsigned)__builtin_clz(n);
}

/* The class whose list an extent of this size is in. Sizes below 16 have a class each. */
static struct class class_of(uint32_t nr)
{
	struct class c = { .first = 0, .second = nr };

	if (nr >= MRT__EXTENT_SECOND_NR) {
		unsigned log = log2_floor(nr);

		c.first = log - MRT__EXTENT_SECOND_BITS + 1;
		c.second = (nr >> (log - MRT__EXTENT_SECOND_BITS)) & (MRT__EXTENT_SECOND_NR - 1);
	}
	return c;
}

/* The smallest size whose class holds nothing that is smaller than nr. */
static uint32_t round_to_class(uint32_t nr)
{
	uint32_t step;

	if (nr < MRT__EXTENT_SECOND_NR)
		return nr;
	step = 1u << (log2_floor(nr) - MRT__EXTENT_SECOND_BITS);
	return (nr + step - 1) & ~(step - 1);
}

static unsigned pool_of(uint32_t head)
{
	return (head & POOL) >> POOL_SHIFT;
}

/* ---- free extents and their lists ---- */

static void link_free(struct mrt__extent *e, uint32_t first, uint32_t nr, uint32_t flags)
{
	struct mrt__extent_pool *p = &e->pools[pool_of(flags)];
	struct mrt__extent_tag *tag = &e->tags[first];
	struct class c = class_of(nr);
	uint32_t *list = &p->lists[c.first][c.second];

	tag->head = nr | flags | FREE;
	tag->link[NEXT] = *list;
	tag->link[PREV] = 0;
	if (*list)
		e->tags[*list - 1].link[PREV] = first + 1;
	*list = first + 1;
	e->tags[first + nr - 1].tail = first + 1;
	p->first_map |= 1u << c.first;
	p->second_map[c.first] |= 1u << c.second;
	p->free_nr += nr;
}

static void unlink_free(struct mrt__extent *e, uint32_t first)
{
	struct mrt__extent_tag *tag = &e->tags[first];
	struct mrt__extent_pool *p = &e->pools[pool_of(tag->head)];
	uint32_t nr = tag->head & SIZE;
	struct class c = class_of(nr);

	mrt__assert(tag->head & FREE);
	if (tag->link[NEXT])
		e->tags[tag->link[NEXT] - 1].link[PREV] = tag->link[PREV];
	if (tag->link[PREV])
		e->tags[tag->link[PREV] - 1].link[NEXT] = tag->link[NEXT];
	else
		p->lists[c.first][c.second] = tag->link[NEXT];
	if (!p->lists[c.first][c.second]) {
		p->second_map[c.first] &= ~(1u << c.second);
		if (!p->second_map[c.first])
			p->first_map &= ~(1u << c.first);
	}
	e->tags[first + nr - 1].tail = 0;
	tag->head = 0;
	p->free_nr -= nr;
}

/* Make units that are in no extent a free one, together with its free neighbours. */
static void release(struct mrt__extent *e, uint32_t first, uint32_t nr, uint32_t flags)
{
	uint32_t behind = first + nr;

	if (!(flags & BORDER) && first > 0 && e->tags[first - 1].tail) {
		uint32_t front = e->tags[first - 1].tail - 1, head = e->tags[front].head;

		if (pool_of(head) == pool_of(flags)) {
			unlink_free(e, front);
			first = front;
			nr += head & SIZE;
			flags |= head & BORDER;
		}
	}
	if (behind < e->units_nr) {
		uint32_t head = e->tags[behind].head;

		if (head & FREE && !(head & BORDER) && pool_of(head) == pool_of(flags)) {
			unlink_free(e, behind);
			nr += head & SIZE;
		}
	}
	link_free(e, first, nr, flags);
}

/* ---- find ---- */

/* How many units of the extent are lost in front of the first aligned one. */
static uint32_t lead_of(uint32_t first, uint32_t align)
{
	return (0u - first) & (align - 1);
}

/* Any extent of this class or a larger one. @return unit + 1, 0: none */
static uint32_t find_from(const struct mrt__extent_pool *p, struct class c)
{
	uint32_t map;

	if (c.first >= MRT__EXTENT_FIRST_NR)
		return 0;
	map = p->second_map[c.first] & (~0u << c.second);
	if (!map) {
		uint32_t firsts = c.first + 1 < 32 ? p->first_map & (~0u << (c.first + 1)) : 0;

		if (!firsts)
			return 0;
		c.first = (unsigned)__builtin_ctz(firsts);
		map = p->second_map[c.first];
	}
	return p->lists[c.first][__builtin_ctz(map)];
}

/* Extents whose class does not promise that they fit, smallest first, so many of them. @return unit + 1, 0: none */
static uint32_t find_by_looking(const struct mrt__extent *e, const struct mrt__extent_pool *p, uint32_t nr, uint32_t align)
{
	unsigned looks = 0;
	uint32_t at = find_from(p, class_of(nr));

	while (at && looks < MRT__EXTENT_LOOKS_MAX) {
		struct class c = class_of(e->tags[at - 1].head & SIZE);

		for (; at && looks < MRT__EXTENT_LOOKS_MAX; at = e->tags[at - 1].link[NEXT], looks++)
			if ((uint64_t)lead_of(at - 1, align) + nr <= (e->tags[at - 1].head & SIZE))
				return at;
		if (++c.second == MRT__EXTENT_SECOND_NR) {
			c.second = 0;
			c.first++;
		}
		at = find_from(p, c);
	}
	return 0;
}

/* ---- the interface ---- */

void mrt__extent_init(struct mrt__extent *e, struct mrt__extent_tag *tags, uint32_t units_nr)
{
	mrt__assert(units_nr > 0 && units_nr <= MRT__EXTENT_UNITS_MAX);
	memset(e, 0, sizeof(*e));
	e->tags = tags;
	e->units_nr = units_nr;
}

void mrt__extent_add(struct mrt__extent *e, unsigned pool, uint32_t first, uint32_t nr, bool border)
{
	mrt__assert(pool < MRT__EXTENT_POOLS_NR);
	mrt__assert(nr > 0 && first < e->units_nr && nr <= e->units_nr - first);
	mrt__assert(e->tags[first].head == 0 && e->tags[first + nr - 1].head == 0);
	release(e, first, nr, pool << POOL_SHIFT | (border ? BORDER : 0));
}

bool mrt__extent_alloc(struct mrt__extent *e, unsigned pool, uint32_t nr, uint32_t align, uint32_t *ret_first)
{
	const struct mrt__extent_pool *p = &e->pools[pool];
	uint32_t at, first, lead, size, flags;

	mrt__assert(pool < MRT__EXTENT_POOLS_NR);
	mrt__assert(nr > 0 && align > 0 && (align & (align - 1)) == 0);
	if (nr > e->units_nr || align > e->units_nr)
		return false;
	at = find_from(p, class_of(round_to_class(nr + align - 1)));
	if (!at)
		at = find_by_looking(e, p, nr, align);
	if (!at)
		return false;
	first = at - 1;
	size = e->tags[first].head & SIZE;
	flags = e->tags[first].head & (BORDER | POOL);
	lead = lead_of(first, align);
	mrt__assert(lead + nr <= size);
	unlink_free(e, first);
	if (lead) {
		link_free(e, first, lead, flags);
		flags &= ~BORDER;
	}
	if (size > lead + nr)
		link_free(e, first + lead + nr, size - lead - nr, flags & ~BORDER);
	e->tags[first + lead].head = nr | flags;
	e->tags[first + lead + nr - 1].tail = 0;
	*ret_first = first + lead;
	return true;
}

void mrt__extent_free(struct mrt__extent *e, uint32_t first)
{
	uint32_t head = e->tags[first].head;

	mrt__assert(first < e->units_nr);
	mrt__assert(head != 0 && !(head & FREE));
	e->tags[first].head = 0;
	release(e, first, head & SIZE, head & (BORDER | POOL));
}

uint32_t mrt__extent_size(const struct mrt__extent *e, uint32_t first)
{
	mrt__assert(e->tags[first].head != 0 && !(e->tags[first].head & FREE));
	return e->tags[first].head & SIZE;
}

/* ---- check ---- */

#define BROKEN(...) do {                                        \
	if (why)                                                \
		(void)fprintf(why, "extent: " __VA_ARGS__);     \
	return false;                                           \
} while (0)

static bool check_free(const struct mrt__extent *e, uint32_t first, uint32_t nr, uint32_t behind_free, FILE *why)
{
	uint32_t head = e->tags[first].head;

	if (e->tags[first + nr - 1].tail != first + 1)
		BROKEN("free extent %u+%u has tail %u\n", first, nr, e->tags[first + nr - 1].tail);
	if (behind_free && !(head & BORDER) && pool_of(head) == pool_of(behind_free))
		BROKEN("free extent %u+%u stands behind a free one\n", first, nr);
	return true;
}

/* All extents in order of units. */
static bool check_extents(const struct mrt__extent *e, uint64_t *free_nr, uint32_t *extents_nr, FILE *why)
{
	uint32_t u = 0, behind_free = 0;

	while (u < e->units_nr) {
		uint32_t head = e->tags[u].head, nr = head & SIZE;

		if (head == 0) { /* never added */
			if (e->tags[u].tail)
				BROKEN("unit %u was never added but has a tail\n", u);
			behind_free = 0;
			u++;
			continue;
		}
		if (nr == 0 || nr > e->units_nr - u)
			BROKEN("extent %u has size %u\n", u, nr);
		if (head & FREE) {
			if (!check_free(e, u, nr, behind_free, why))
				return false;
			free_nr[pool_of(head)] += nr;
			extents_nr[pool_of(head)]++;
			behind_free = head;
		} else {
			if (e->tags[u + nr - 1].tail)
				BROKEN("allocated extent %u+%u has a tail\n", u, nr);
			behind_free = 0;
		}
		u += nr;
	}
	return true;
}

static bool check_list(const struct mrt__extent *e, unsigned pool, struct class want, uint32_t *linked_nr, FILE *why)
{
	uint32_t at = e->pools[pool].lists[want.first][want.second], prev = 0;
	bool bit = e->pools[pool].second_map[want.first] >> want.second & 1;

	if (bit != (at != 0))
		BROKEN("the bit of class %u.%u of pool %u is wrong\n", want.first, want.second, pool);
	for (; at; prev = at, at = e->tags[at - 1].link[NEXT], ++*linked_nr) {
		uint32_t head = e->tags[at - 1].head;
		struct class c = class_of(head & SIZE);

		if (*linked_nr > e->units_nr)
			BROKEN("a list of pool %u is a circle\n", pool);
		if (!(head & FREE) || pool_of(head) != pool || c.first != want.first || c.second != want.second)
			BROKEN("extent %u (%#x) is in the list of class %u.%u of pool %u\n", at - 1, head, want.first,
			       want.second, pool);
		if (e->tags[at - 1].link[PREV] != prev)
			BROKEN("extent %u names %u as the one before it, not %u\n", at - 1, e->tags[at - 1].link[PREV], prev);
	}
	return true;
}

bool mrt__extent_check(const struct mrt__extent *e, FILE *why)
{
	uint64_t free_nr[MRT__EXTENT_POOLS_NR] = { 0 };
	uint32_t extents_nr[MRT__EXTENT_POOLS_NR] = { 0 };
	unsigned pool;

	if (!check_extents(e, free_nr, extents_nr, why))
		return false;
	for (pool = 0; pool < MRT__EXTENT_POOLS_NR; pool++) {
		const struct mrt__extent_pool *p = &e->pools[pool];
		uint32_t linked_nr = 0;
		struct class c;

		for (c.first = 0; c.first < MRT__EXTENT_FIRST_NR; c.first++) {
			if ((p->first_map >> c.first & 1) != (p->second_map[c.first] != 0))
				BROKEN("bit %u of the first map of pool %u is wrong\n", c.first, pool);
			for (c.second = 0; c.second < MRT__EXTENT_SECOND_NR; c.second++)
				if (!check_list(e, pool, c, &linked_nr, why))
					return false;
		}
		if (linked_nr != extents_nr[pool] || p->free_nr != free_nr[pool])
			BROKEN("pool %u: %u free extents linked of %u, %llu free units counted of %llu\n", pool, linked_nr,
			       extents_nr[pool], (unsigned long long)p->free_nr, (unsigned long long)free_nr[pool]);
	}
	return true;
}
