/* SPDX-License-Identifier: MIT */
/* See sim_ledger.h. */
#include "sim_ledger.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "sched/arena_region.h"
#include "sched/files.h"
#include "sim.h"
#include "sim_regs.h"

#define UNITS_NR (SIM_ARENA_BYTES / MRT_ARENA_UNIT)
#define LOOK_BACK 12u   /* the newest entries, of which one is drawn */

/* Entries of one size; an entry keeps its number, not its place. */
struct book {
	char *entries;
	unsigned nr, room;
};

static struct {
	struct book handles;
	struct book blocks;
	uint32_t owners[UNITS_NR];      /* of each unit the block that had it last */
} ledger;

static unsigned book_add(struct book *b, const void *entry, size_t bytes)
{
	if (b->nr == b->room) {
		b->room = b->room ? 2 * b->room : 64;
		b->entries = realloc(b->entries, b->room * bytes);
		sim_check(b->entries, "no memory");
	}
	memcpy(b->entries + b->nr * bytes, entry, bytes);
	return ++b->nr;
}

/* ---- handles ---- */

struct sim_handle *sim_handle_at(unsigned id)
{
	sim_check(id >= 1 && id <= ledger.handles.nr, "there is no handle %u", id);
	return (struct sim_handle *)(void *)ledger.handles.entries + (id - 1);
}

unsigned sim_handle_new(int handle, int fd)
{
	struct sim_handle h = { .handle = handle, .fd = fd, .file = sim_fd_file(fd) };
	unsigned id;

	for (id = 1; id <= ledger.handles.nr; id++) {
		struct sim_handle *other = sim_handle_at(id);

		sim_check(other->handle != handle, "handle %#x was given before: who has kept it means another file", handle);
		if (other->file == h.file && !other->ended)
			other->twin = h.twin = true;
	}
	id = book_add(&ledger.handles, &h, sizeof(h));
	sim_log("handle %u (%#x) is fd %d, file %d", id, handle, fd, h.file);
	return id;
}

unsigned sim_handle_find(int fd, bool slot)
{
	unsigned id;

	for (id = ledger.handles.nr; id > 0; id--) {
		const struct sim_handle *h = sim_handle_at(id);

		if (!h->ended && (slot ? (int)mrt__handle_slot(h->handle) == fd : h->fd == fd))
			return id;
	}
	return 0;
}

static bool is_of(int file, int range)
{
	return range < 0 || (file >= range && file < range + SIM_FD_RANGE);
}

unsigned sim_handle_draw(struct sim_rand *rand, int range, bool live)
{
	unsigned nr = mrt__min(ledger.handles.nr, LOOK_BACK), i, at;

	if (nr == 0)
		return 0;
	at = (unsigned)sim_rand_below(rand, nr);
	for (i = 0; i < nr; i++) {
		unsigned id = ledger.handles.nr - (at + i) % nr;
		const struct sim_handle *h = sim_handle_at(id);

		if (is_of(h->file, range) && (!live || h->closers == 0))
			return id;
	}
	return 0;
}

void sim_handle_let_go(int fd)
{
	unsigned id = sim_handle_find(fd, false), slot;
	const struct sim_handle *h;

	sim_check(id, "fd %d is let go of, but no handle has it", fd);
	h = sim_handle_at(id);
	slot = mrt__handle_slot(h->handle);
	sim_check(h->closers > 0, "fd %d of handle %u is let go of, but nobody ends that", fd, id);
	sim_check(!sim_op_by_handle(id), "fd %d of handle %u is let go of while op #%llu is on it", fd, id,
		  (unsigned long long)sim_op_by_handle(id));
	sim_check(!sim_rings_have(slot, h->file), "fd %d of handle %u is let go of while a ring has it in slot %u", fd, id, slot);
}

void sim_handle_ended(int fd)
{
	sim_handle_let_go(fd);
	sim_handle_at(sim_handle_find(fd, false))->ended = true;
}

/* ---- blocks ---- */

struct sim_block *sim_block_at(unsigned id)
{
	sim_check(id >= 1 && id <= ledger.blocks.nr, "there is no block %u", id);
	return (struct sim_block *)(void *)ledger.blocks.entries + (id - 1);
}

/* @return false: it is not in the arena */
static bool unit_of(uintptr_t addr, size_t *ret_unit)
{
	uintptr_t base = (uintptr_t)sim.sched->arena->base;

	*ret_unit = (addr - base) / MRT_ARENA_UNIT;
	return addr >= base && addr - base < sim.sched->arena->span;
}

unsigned sim_block_new(void *base, size_t bytes)
{
	struct sim_block b = { .base = base, .bytes = bytes };
	size_t unit = 0, nr = (bytes + MRT_ARENA_UNIT - 1) / MRT_ARENA_UNIT, i;
	bool inside = unit_of((uintptr_t)base, &unit);
	uint64_t serial = sim_op_on_memory((uintptr_t)base, nr * MRT_ARENA_UNIT);
	unsigned id;

	sim_check(inside && unit + nr <= UNITS_NR, "a block of %zu bytes is no memory of the arena", bytes);
	sim_check(!serial, "memory is given out while op #%llu is on it", (unsigned long long)serial);
	for (i = unit; i < unit + nr; i++)
		sim_check(ledger.owners[i] == 0 || sim_block_at(ledger.owners[i])->freed,
			  "memory is given out that block %u has", ledger.owners[i]);
	id = book_add(&ledger.blocks, &b, sizeof(b));
	for (i = unit; i < unit + nr; i++)
		ledger.owners[i] = id;
	sim_log("block %u is %zu units from %zu on", id, nr, unit);
	return id;
}

unsigned sim_block_draw(struct sim_rand *rand, bool idle)
{
	unsigned nr = mrt__min(ledger.blocks.nr, LOOK_BACK), i, at;

	if (nr == 0)
		return 0;
	at = (unsigned)sim_rand_below(rand, nr);
	for (i = 0; i < nr; i++) {
		unsigned id = ledger.blocks.nr - (at + i) % nr;
		const struct sim_block *b = sim_block_at(id);

		if (!b->freed && !b->starting && !(idle && b->busy))
			return id;
	}
	return 0;
}

unsigned sim_block_draw_freed(struct sim_rand *rand)
{
	unsigned nr = mrt__min(ledger.blocks.nr, LOOK_BACK), id;
	size_t unit = 0, i;

	if (nr == 0)
		return 0;
	id = ledger.blocks.nr - (unsigned)sim_rand_below(rand, nr);
	if (!sim_block_at(id)->freed || !unit_of((uintptr_t)sim_block_at(id)->base, &unit))
		return 0;
	for (i = 0; i * MRT_ARENA_UNIT < sim_block_at(id)->bytes; i++)
		if (ledger.owners[unit + i] != id)
			return 0;
	return id;
}

bool sim_block_check(unsigned id, uintptr_t addr, size_t bytes, uint64_t serial)
{
	size_t unit = 0, last = 0;

	if (!unit_of(addr, &unit))
		return false;
	sim_check(bytes == 0 || unit_of(addr + bytes - 1, &last), "op #%llu reaches out of the arena", (unsigned long long)serial);
	for (; bytes > 0 && unit <= last; unit++)
		sim_check(id && ledger.owners[unit] == id, "op #%llu is on memory of block %u, but was started on block %u",
			  (unsigned long long)serial, ledger.owners[unit], id);
	return true;
}

void sim_block_freed(unsigned id)
{
	sim_log("frees block %u%s", id, sim_block_at(id)->busy ? ", which is in use" : "");
	sim_block_at(id)->freed = true;
}

void sim_blocks_free(void (*free_fn)(unsigned id))
{
	unsigned id;

	for (id = 1; id <= ledger.blocks.nr; id++)
		if (!sim_block_at(id)->freed)
			free_fn(id);
}

/* ---- begin and end ---- */

void sim_ledger_start(void)
{
	memset(&ledger, 0, sizeof(ledger));
}

void sim_ledger_finish(void)
{
	unsigned id;

	for (id = 1; id <= ledger.handles.nr; id++)
		sim_check(!sim_handle_at(id)->closers == !sim_handle_at(id)->ended, "handle %u was%s closed, but has%s ended", id,
			  sim_handle_at(id)->closers ? "" : " not", sim_handle_at(id)->ended ? "" : " not");
	for (id = 1; id <= ledger.blocks.nr; id++)
		sim_check(sim_block_at(id)->freed, "block %u was not freed", id);
	free(ledger.handles.entries);
	free(ledger.blocks.entries);
}
