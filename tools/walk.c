/* SPDX-License-Identifier: MIT */
/*
 * See walk.h. A slab of tasks is read with one system call, and ops that lie in it (most do: they are in the frames) cost none.
 *
 * Against what a broken or hostile process may have there: members are taken by take(), which never leaves what was read;
 * slabs that were seen are remembered, so that a list that runs in a circle ends; a list of ops is as long as a limit; and
 * sizes in a slab's header must fit each other.
 */
#include "walk.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "proc.h"
#include "remote.h"

#define STRUCT_BYTES_MAX 4096u
#define SLAB_BYTES_MAX (1u << 20)
#define CELL_READ_MAX (64u << 10)       /* of a cell that has a mapping of its own */
#define OPS_MAX (1u << 20)              /* of one task */
#define OUTSIDE_MAX 1024u
#define FRESH_UNITS 0x10000000u         /* a stamp may be a little newer than our look at the clock */

static const char *const state_names[WALK_STATES_NR] = { "running", "runnable", "waiting", "ending", "ended" };

const char *walk_state_name(enum walk_state state)
{
	return state_names[state];
}

__attribute__((format(printf, 2, 3)))
static void note_torn(struct walk *w, const char *fmt, ...)
{
	va_list ap;

	if (w->torn_nr++)
		return;
	va_start(ap, fmt);
	vsnprintf(w->torn, sizeof(w->torn), fmt, ap);
	va_end(ap);
}

/* ---- members ---- */

/* A copy of a struct of the process. */
struct view {
	const unsigned char *p;
	size_t bytes;
};

/* 0 where the table leads outside. */
static uint64_t take(struct view v, uint32_t offset, unsigned bytes)
{
	uint64_t n = 0;

	if (bytes <= v.bytes && offset <= v.bytes - bytes)
		memcpy(&n, v.p + offset, bytes); /* little-endian, as the magic has shown */
	return n;
}

#define U8(v, at) ((uint8_t)take((v), (at), 1))
#define U16(v, at) ((uint16_t)take((v), (at), 2))
#define U32(v, at) ((uint32_t)take((v), (at), 4))
#define U64(v, at) take((v), (at), 8)

static int read_u64(const struct walk *w, uint64_t addr, uint64_t *ret)
{
	return remote_read(w->pid, addr, ret, sizeof(*ret));
}

/* ---- the table ---- */

static bool is_sane(const struct mrt_layout *l)
{
	return l->task_bytes >= 16 && l->task_bytes <= STRUCT_BYTES_MAX && l->op_bytes >= 16 && l->op_bytes <= STRUCT_BYTES_MAX &&
	       l->slab_align >= 4096 && l->slab_align <= SLAB_BYTES_MAX && !(l->slab_align & (l->slab_align - 1)) &&
	       l->slab_header_bytes >= 16 && l->slab_header_bytes <= STRUCT_BYTES_MAX && l->outside_nr <= OUTSIDE_MAX &&
	       l->op_kinds_nr > 0 && l->op_kinds_nr <= WALK_KINDS_MAX && l->op_stamp_shift < 32 && l->op_stamp_mask;
}

static int read_kinds(struct walk *w)
{
	uint64_t at[WALK_KINDS_MAX];
	int err = remote_read(w->pid, (uintptr_t)w->layout.op_kinds, at, w->layout.op_kinds_nr * sizeof(at[0]));

	for (unsigned i = 0; !err && i < w->layout.op_kinds_nr; i++)
		err = remote_read_text(w->pid, at[i], w->kinds[i], WALK_KIND_BYTES);
	return err;
}

static int explain(const struct walk *w, int err, const char *what, char *why, size_t why_bytes)
{
	if (err == -EPERM || err == -EACCES) {
		(void)remote_why_not(w->pid, why, why_bytes);
		return -EPERM;
	}
	if (err == -ESRCH) {
		snprintf(why, why_bytes, "process %d has ended", (int)w->pid);
		return -ESRCH;
	}
	snprintf(why, why_bytes, "%s of process %d cannot be read: %s", what, (int)w->pid, strerror(-err));
	return -EINVAL;
}

int walk_open(struct walk *ret_walk, pid_t pid, uint64_t runtime, uint64_t layout, unsigned workers_nr, char *why,
	      size_t why_bytes)
{
	struct walk *w = ret_walk;
	struct mrt_layout *l = &w->layout;
	int err;

	memset(w, 0, sizeof(*w));
	w->pid = pid;
	w->runtime = runtime;
	w->workers_nr = workers_nr;
	w->slabs_max = WALK_SLABS_MAX;
	if (!layout || !runtime) {
		snprintf(why, why_bytes, "process %d does not say where its tasks are: it is just starting, or its library is older "
			 "than this program", (int)pid);
		return -EINVAL;
	}
	err = remote_read(pid, layout, l, offsetof(struct mrt_layout, op_kinds));
	if (err)
		return explain(w, err, "the table of structs", why, why_bytes);
	if (l->magic != MRT_LAYOUT_MAGIC) {
		snprintf(why, why_bytes, "there is no table of structs where process %d says (it was overwritten, or is not "
			 "Martlet's)", (int)pid);
		return -EINVAL;
	}
	if (l->version != MRT_LAYOUT_VERSION || l->bytes < sizeof(*l)) {
		snprintf(why, why_bytes, "process %d has a library whose table of structs is of version %u (%u bytes), this program "
			 "knows %u (%zu): use the `martlet` of that library", (int)pid, l->version, l->bytes,
			 MRT_LAYOUT_VERSION, sizeof(*l));
		return -EINVAL;
	}
	err = remote_read(pid, layout, l, sizeof(*l));
	if (err)
		return explain(w, err, "the table of structs", why, why_bytes);
	if (!is_sane(l)) {
		snprintf(why, why_bytes, "the table of structs of process %d has impossible sizes: it was overwritten", (int)pid);
		return -EINVAL;
	}
	err = read_kinds(w);
	return err ? explain(w, err, "the names of ops", why, why_bytes) : 0;
}

/* ---- slabs that were seen: open addressing, at most half full ---- */

struct seen {
	uint64_t *slots;
	size_t nr, room;
};

static size_t seen_slot(const struct seen *s, uint64_t addr)
{
	size_t i = (size_t)(addr * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (s->room - 1);

	while (s->slots[i] && s->slots[i] != addr)
		i = (i + 1) & (s->room - 1);
	return i;
}

static int seen_grow(struct seen *s)
{
	struct seen more = { .room = s->room ? 2 * s->room : 1024 };

	more.slots = calloc(more.room, sizeof(*more.slots));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < s->room; i++) {
		if (s->slots[i])
			more.slots[seen_slot(&more, s->slots[i])] = s->slots[i];
	}
	more.nr = s->nr;
	free(s->slots);
	*s = more;
	return 0;
}

/* @return 1: new; 0: seen before; -ENOMEM */
static int seen_add(struct seen *s, uint64_t addr)
{
	size_t i;

	if (2 * s->nr >= s->room && seen_grow(s))
		return -ENOMEM;
	i = seen_slot(s, addr);
	if (s->slots[i])
		return 0;
	s->slots[i] = addr;
	s->nr++;
	return 1;
}

/* ---- one walk ---- */

struct visit {
	struct walk *w;
	walk_fn *fn;
	void *ctx;
	struct seen seen;
	uint64_t now_ns;
	uint64_t *hands;                /* [workers_nr] tasks in hand */
	unsigned char *cells;           /* [cells_bytes] of the slab, read from cells_at */
	uint64_t cells_at;
	size_t cells_bytes;
	struct walk_op *ops;
	unsigned ops_room;
	int err;                        /* ends the walk */
};

/* A struct: in the slab that was read, or from the process into buf. */
static int view_at(struct visit *v, uint64_t addr, size_t bytes, unsigned char *buf, struct view *ret_view)
{
	if (addr >= v->cells_at && bytes <= v->cells_bytes && addr - v->cells_at <= v->cells_bytes - bytes) {
		*ret_view = (struct view){ v->cells + (addr - v->cells_at), bytes };
		return 0;
	}
	*ret_view = (struct view){ buf, bytes };
	return remote_read(v->w->pid, addr, buf, bytes);
}

/* When it began: exactly, if it was timed; else from the worker's look at the clock before. */
static void find_age(const struct visit *v, struct view o, uint32_t rflags, struct walk_op *op)
{
	const struct mrt_layout *l = &v->w->layout;
	uint64_t step = (uint64_t)(l->op_stamp_mask & -l->op_stamp_mask) << l->op_stamp_shift, ns;
	uint32_t stamp = U32(o, l->op_stamp), units;

	if (op->is_ring && rflags & l->op_timed && !op->is_queued && !op->is_ended) {
		op->age = WALK_AGE_EXACT;
		op->began_ns = U64(o, l->op_staged);
		return;
	}
	if (stamp & ~l->op_stamp_mask)
		return; /* a cancel was sent by it */
	units = (((uint32_t)(v->now_ns >> l->op_stamp_shift)) & l->op_stamp_mask) - stamp;
	if (units > UINT32_MAX - FRESH_UNITS)
		units = 0;
	/* the begin of the step that the stamp names, so that no age is too short */
	ns = ((uint64_t)units << l->op_stamp_shift) + v->now_ns % step;
	op->age = WALK_AGE_ABOUT;
	op->began_ns = v->now_ns > ns ? v->now_ns - ns : 0;
}

/* @return false: it is none that this task has in flight */
static bool parse_op(struct visit *v, struct view o, uint64_t addr, uint64_t task, struct walk_op *op)
{
	const struct mrt_layout *l = &v->w->layout;
	uint32_t flags = U16(o, l->op_flags), hflags = U8(o, l->op_hflags), rflags = U8(o, l->op_rflags);
	uint8_t kind = U8(o, l->op_kind);

	if (U8(o, l->op_state) != l->state_inflight || kind >= l->op_kinds_nr || U64(o, l->op_task) != task)
		return false;
	*op = (struct walk_op){ .addr = addr, .kind = v->w->kinds[kind], .is_ring = flags & l->op_is_ring,
				.is_awaited = hflags & l->op_awaited, .is_cancelled = hflags & l->op_cancelled };
	if (op->is_ring) {
		op->is_handle = flags & l->op_is_handle;
		op->is_ended = rflags & l->op_ended;
		op->is_queued = rflags & l->op_queued;
		op->opcode = U8(o, l->op_opcode);
		op->fd = (int32_t)U32(o, l->op_fd);
		op->len = U32(o, l->op_len);
		op->off = U64(o, l->op_off);
		op->worker = U16(o, l->op_ring);
	} else if (flags & l->op_is_wait) {
		op->object = U64(o, l->op_object);
		if (strcmp(op->kind, "join") == 0 && read_u64(v->w, op->object + l->task_fn, &op->object_fn))
			op->object_fn = 0; /* it has just ended */
	} else if (strcmp(op->kind, "sleep") == 0 || strcmp(op->kind, "deadline") == 0) {
		op->deadline_ns = U64(o, l->op_deadline_ns);
	}
	if (strcmp(op->kind, "deadline") != 0) /* as old as what it is a deadline of */
		find_age(v, o, rflags, op);
	return true;
}

static bool grow_ops(struct visit *v)
{
	unsigned room = v->ops_room ? 2 * v->ops_room : 64;
	struct walk_op *more = realloc(v->ops, room * sizeof(*more));

	if (!more) {
		v->err = -ENOMEM;
		return false;
	}
	v->ops = more;
	v->ops_room = room;
	return true;
}

/* Is the task in the process another one by now than the copy of it? */
static bool has_changed(const struct visit *v, struct view cell, uint64_t addr)
{
	unsigned char now[STRUCT_BYTES_MAX];

	return remote_read(v->w->pid, addr, now, cell.bytes) || memcmp(now, cell.p, cell.bytes) != 0;
}

/* The list of a task's ops in flight, as far as it can be followed. */
static void collect_ops(struct visit *v, struct walk_task *t, struct view cell)
{
	uint64_t at = U64(cell, v->w->layout.task_ops);
	const struct mrt_layout *l = &v->w->layout;
	unsigned char buf[STRUCT_BYTES_MAX];
	uint64_t mark = 0, next;
	struct view o;
	int err;

	for (; at; at = next) {
		if (at == mark || t->ops_nr == OPS_MAX) {
			note_torn(v->w, "the ops of task %#llx run in a circle", (unsigned long long)t->addr);
			t->ops_nr = at == mark ? 0 : t->ops_nr;
			return;
		}
		if ((t->ops_nr & (t->ops_nr - 1)) == 0)
			mark = at; /* one that stands still for twice as long each time: met again in a circle of any length */
		err = view_at(v, at, l->op_bytes, buf, &o);
		if (err == -ESRCH)
			v->err = err;
		if (t->ops_nr == v->ops_room && !grow_ops(v))
			return;
		if (err || !parse_op(v, o, at, t->addr, &v->ops[t->ops_nr])) {
			if (t->state == WALK_RUNNING || has_changed(v, cell, t->addr))
				v->w->changed_nr++;
			else
				note_torn(v->w, "op %#llx of task %#llx %s", (unsigned long long)at,
					  (unsigned long long)t->addr, err ? "cannot be read" : "is not in flight");
			return;
		}
		next = U64(o, l->op_next);
		t->ops_nr++;
	}
}

static bool is_in_hand(const struct visit *v, uint64_t task)
{
	for (unsigned i = 0; i < v->w->workers_nr; i++) {
		if (v->hands[i] == task)
			return true;
	}
	return false;
}

static void read_name(struct visit *v, struct view cell, uint64_t addr, struct walk_task *t)
{
	const struct mrt_layout *l = &v->w->layout;
	uint32_t frame = U32(cell, l->task_frame_bytes);
	uint64_t behind, name;

	if (!(frame & l->task_named))
		return;
	behind = l->task_bytes + (((uint64_t)(frame & ~l->task_named) + 15) & ~UINT64_C(15));
	if (read_u64(v->w, addr + behind, &name) || remote_read_text(v->w->pid, name, t->name, sizeof(t->name)))
		snprintf(t->name, sizeof(t->name), "?");
}

static void visit_cell(struct visit *v, uint64_t addr)
{
	const struct mrt_layout *l = &v->w->layout;
	unsigned char buf[STRUCT_BYTES_MAX];
	struct walk_task t = { .addr = addr };
	struct view cell;
	uint64_t word;
	uint32_t flags;
	uint16_t place;

	if (view_at(v, addr, l->task_bytes, buf, &cell)) {
		note_torn(v->w, "task %#llx cannot be read", (unsigned long long)addr);
		return;
	}
	word = U64(cell, l->task_word);
	if (!(word & l->word_live))
		return;
	flags = U32(cell, l->task_flags);
	place = U16(cell, l->task_place);
	t.id = U64(cell, l->task_id);
	t.fn = U64(cell, l->task_fn);
	t.await_nr = U32(cell, l->task_await_nr);
	t.is_aborted = word & l->word_aborted;
	t.worker = (place & ~l->task_rests) < v->w->workers_nr ? (int)(place & ~l->task_rests) : -1;
	read_name(v, cell, addr, &t);
	if (word & l->word_ended)
		t.state = WALK_ENDED;
	else if (is_in_hand(v, addr))
		t.state = WALK_RUNNING;
	else if (flags & l->flag_returned)
		t.state = WALK_ENDING;
	else
		t.state = !(word & l->word_held) || place & l->task_rests ? WALK_WAITING : WALK_RUNNABLE;
	if (t.state != WALK_ENDED)
		collect_ops(v, &t, cell);
	t.ops = v->ops;
	if (!v->err)
		v->fn(&t, v->ctx);
}

/* @return address of the next slab; 0: there is none, or it cannot be told */
static uint64_t visit_slab(struct visit *v, uint64_t slab, uint64_t heap)
{
	const struct mrt_layout *l = &v->w->layout;
	unsigned char buf[STRUCT_BYTES_MAX];
	struct view h = { buf, l->slab_header_bytes };
	uint32_t cell_bytes, cells_nr, used_nr;
	int err = remote_read(v->w->pid, slab, buf, l->slab_header_bytes);

	cell_bytes = U32(h, l->slab_cell_bytes);
	cells_nr = U32(h, l->slab_cells_nr);
	used_nr = U32(h, l->slab_used_nr);
	if (err || U64(h, l->slab_heap) != heap || cell_bytes < l->task_bytes || used_nr > cells_nr ||
	    (cells_nr > 1 && (uint64_t)cell_bytes * cells_nr + l->slab_header_bytes > l->slab_align)) {
		if (err == -ESRCH)
			v->err = err;
		note_torn(v->w, "a slab of tasks at %#llx %s", (unsigned long long)slab, err ? "cannot be read" : "is none");
		return 0;
	}
	v->cells_at = slab + l->slab_header_bytes;
	v->cells_bytes = (size_t)cell_bytes * used_nr;
	if (v->cells_bytes > l->slab_align)
		v->cells_bytes = CELL_READ_MAX < l->slab_align ? CELL_READ_MAX : l->slab_align; /* a large one */
	if (v->cells_bytes && remote_read(v->w->pid, v->cells_at, v->cells, v->cells_bytes))
		v->cells_bytes = 0; /* then each by itself */
	for (uint32_t i = 0; i < used_nr && !v->err; i++)
		visit_cell(v, v->cells_at + (uint64_t)i * cell_bytes);
	return U64(h, l->slab_next);
}

static void visit_heap(struct visit *v, uint64_t heap)
{
	uint64_t slab;
	int found;

	if (read_u64(v->w, heap + v->w->layout.heap_slabs, &slab)) {
		note_torn(v->w, "a heap at %#llx cannot be read", (unsigned long long)heap);
		return;
	}
	while (slab && !v->err) {
		if (slab & (v->w->layout.slab_align - 1)) {
			note_torn(v->w, "a list of slabs leads to %#llx", (unsigned long long)slab);
			return;
		}
		if (v->seen.nr == v->w->slabs_max) {
			note_torn(v->w, "it has more than %u slabs of tasks: the others are not read", v->w->slabs_max);
			v->w->is_cut = true;
			return;
		}
		found = seen_add(&v->seen, slab);
		if (found < 0)
			v->err = found;
		if (found == 0)
			note_torn(v->w, "a list of slabs runs in a circle");
		if (found <= 0)
			return;
		slab = visit_slab(v, slab, heap);
	}
}

/* 0: unreadable */
static uint64_t worker_at(const struct walk *w, unsigned worker)
{
	uint64_t table, at;

	if (read_u64(w, w->runtime + w->layout.runtime_workers, &table) || read_u64(w, table + 8 * (uint64_t)worker, &at))
		return 0;
	return at;
}

uint64_t walk_worker_task(struct walk *w, unsigned worker)
{
	uint64_t at = worker_at(w, worker), task;

	return at && !read_u64(w, at + w->layout.worker_task, &task) ? task : 0;
}

static void visit_all(struct visit *v)
{
	const struct mrt_layout *l = &v->w->layout;

	for (unsigned i = 0; i < v->w->workers_nr; i++)
		v->hands[i] = walk_worker_task(v->w, i);
	for (unsigned i = 0; i < v->w->workers_nr && !v->err && !v->w->is_cut; i++) {
		uint64_t at = worker_at(v->w, i);

		if (at)
			visit_heap(v, at + l->worker_heap);
		else
			note_torn(v->w, "worker %u cannot be read", i);
	}
	for (unsigned i = 0; i < l->outside_nr && !v->err && !v->w->is_cut; i++)
		visit_heap(v, v->w->runtime + l->runtime_outside + (uint64_t)i * l->outside_bytes + l->outside_heap);
}

int walk_tasks(struct walk *w, walk_fn *fn, void *ctx)
{
	struct visit v = { .w = w, .fn = fn, .ctx = ctx, .now_ns = clock_ns() };

	w->is_cut = false;
	v.cells = malloc(w->layout.slab_align);
	v.hands = calloc(w->workers_nr ? w->workers_nr : 1, sizeof(*v.hands));
	if (v.cells && v.hands)
		visit_all(&v);
	else
		v.err = -ENOMEM;
	free(v.cells);
	free(v.hands);
	free(v.ops);
	free(v.seen.slots);
	return v.err;
}
