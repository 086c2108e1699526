/* SPDX-License-Identifier: MIT */
/*
 * See files.h. Slots are freed to the tail and taken from the head of the free list, so that a handle that was kept too
 * long is told from its successor for as many registrations as there are slots times generations.
 */
#include "sched/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <martlet/runtime.h>

#include "base/assert.h"
#include "sched/arena.h"
#include "sched/cancels.h"
#include "sched/nvme.h"
#include "sched/op_begin.h"
#include "sched/op_run.h"
#include "sched/rung.h"
#include "sched/sched.h"
#include "sched/task.h"
#include "sched/worker.h"

#define TURN_BATCH 16u
#define WHY_BYTES 256

/* ---- the table ---- */

static void free_push(struct mrt__files *files, struct mrt__file *f)
{
	f->state = MRT__FILE_EMPTY;
	f->next = NULL;
	if (files->free_tail)
		files->free_tail->next = f;
	else
		files->free_head = f;
	files->free_tail = f;
}

static struct mrt__file *free_pop(struct mrt__files *files)
{
	struct mrt__file *f = files->free_head;

	if (!f)
		return NULL;
	files->free_head = f->next;
	if (!f->next)
		files->free_tail = NULL;
	return f;
}

int mrt__files_create(struct mrt__sched *s, unsigned max, struct mrt__files **ret_files)
{
	struct mrt__files *files = aligned_alloc(MRT__CACHE_PAIR, sizeof(*files));
	unsigned i;

	if (!files)
		return -ENOMEM;
	memset(files, 0, sizeof(*files));
	files->sched = s;
	files->max = max;
	files->words = (s->workers_nr + 63) / 64;
	files->slots = calloc(max, sizeof(*files->slots));
	files->learned = calloc((size_t)max * files->words, sizeof(*files->learned));
	if (!files->slots || !files->learned) {
		free(files->slots);
		free(files->learned);
		free(files);
		return -ENOMEM;
	}
	pthread_mutex_init(&files->lock, NULL);
	for (i = 0; i < max; i++) {
		files->slots[i].learned = &files->learned[(size_t)i * files->words];
		free_push(files, &files->slots[i]);
	}
	*ret_files = files;
	return 0;
}

void mrt__files_destroy(struct mrt__files *files)
{
	unsigned i;

	if (!files)
		return;
	for (i = 0; i < files->max; i++) {
		mrt__assert(files->slots[i].state != MRT__FILE_CLOSING);
		if (files->slots[i].state == MRT__FILE_OPEN) {
			(void)close(files->slots[i].fd); /* nobody is left to tell; what was to be durable was synced */
			free(files->slots[i].nvme);
		}
	}
	pthread_mutex_destroy(&files->lock);
	free(files->slots);
	free(files->learned);
	free(files);
}

void mrt__files_close(struct mrt__files *files)
{
	pthread_mutex_lock(&files->lock);
	files->closed = true;
	pthread_mutex_unlock(&files->lock);
}

struct mrt__file *mrt__file_of(struct mrt__files *files, int handle)
{
	unsigned slot = mrt__handle_slot(handle);

	if (!mrt__is_handle(handle) || slot >= files->max)
		return NULL;
	/* [FILE.handle.obs] the file's fields are readable; pairs with [FILE.handle.pub] */
	if (atomic_load_explicit(&files->slots[slot].handle, memory_order_acquire) != handle)
		return NULL;
	return &files->slots[slot];
}

/* ---- register ---- */

static int examine_nvme(struct mrt__sched *s, struct mrt__file *f, int fd)
{
	char why[WHY_BYTES] = "";
	int err;

	if (!(s->polled_opts.flags & MRT__RING_OPT_BIG)) {
		mrt__sched_log(s, MRT_LOG_ERROR, "fd %d: MRT_FILE_PASSTHROUGH needs a runtime that was created with "
						 "MRT_RUNTIME_NVME", fd);
		return -EOPNOTSUPP;
	}
	f->nvme = malloc(sizeof(*f->nvme));
	if (!f->nvme)
		return -ENOMEM;
	err = mrt__nvme_identify(fd, f->nvme, why, sizeof(why));
	if (why[0])
		mrt__sched_log(s, err ? MRT_LOG_ERROR : MRT_LOG_WARN, "fd %d: %s", fd, why);
	if (err) {
		free(f->nvme);
		f->nvme = NULL;
	}
	return err;
}

/* What a descriptor must be, and what it gets. @return 0 or -errno */
static int examine(struct mrt__sched *s, struct mrt__file *f, int fd, unsigned flags)
{
	bool hybrid = s->polled_opts.flags & MRT__RING_OPT_HYBRID;
	char why[WHY_BYTES] = "";
	int err;

	f->asked = flags;
	f->flags = flags;
	if (flags & MRT_FILE_PASSTHROUGH) {
		err = examine_nvme(s, f, fd);
		if (err)
			return err;
	}
	if (!(flags & MRT_FILE_POLLED))
		return 0;
	err = mrt__rung_poll_trial(fd, f->nvme, hybrid, &f->hybrid, why, sizeof(why));
	if (err) {
		f->flags &= ~MRT_FILE_POLLED;
		mrt__sched_log(s, MRT_LOG_WARN, "fd %d is registered without polling: %s", fd, why);
	}
	f->polled_bytes_max = mrt__rung_polled_max(fd, f->nvme);
	(void)snprintf(f->why, sizeof(f->why), "%s", why); /* cut to fit */
	return 0;
}

static int publish(struct mrt__files *files, const struct mrt__file *found)
{
	struct mrt__file *f;
	int handle;

	pthread_mutex_lock(&files->lock);
	f = files->closed ? NULL : free_pop(files);
	if (!f) {
		handle = files->closed ? -ESHUTDOWN : -ENFILE;
		goto out;
	}
	f->fd = found->fd;
	f->flags = found->flags;
	f->asked = found->asked;
	f->nvme = found->nvme;
	f->hybrid = found->hybrid;
	f->polled_bytes_max = found->polled_bytes_max;
	memcpy(f->why, found->why, sizeof(f->why));
	/* relaxed: published with the handle */
	atomic_store_explicit(&f->unpollable, false, memory_order_relaxed);
	atomic_store_explicit(&f->unfixed, false, memory_order_relaxed); /* the same */
	memset(f->learned, 0, files->words * sizeof(*f->learned));
	f->gen = (uint16_t)((f->gen + 1) % MRT__FILE_GENS);
	f->state = MRT__FILE_OPEN;
	handle = MRT__HANDLE_BIT | (int)((unsigned)f->gen << MRT__FILE_SLOT_BITS) | (int)(f - files->slots);
	/* [FILE.handle.pub] the fields above; pairs with [FILE.handle.obs] */
	atomic_store_explicit(&f->handle, handle, memory_order_release);
out:
	pthread_mutex_unlock(&files->lock);
	return handle;
}

int mrt_file_register(struct mrt_runtime *rt, int fd, unsigned flags)
{
	struct mrt__file found = { .fd = fd };
	struct mrt__sched *s;
	int ret = mrt__sched_find(rt, &s);

	if (ret)
		return ret;
	if (flags & ~(MRT_FILE_POLLED | MRT_FILE_PASSTHROUGH))
		return -EINVAL;
	if (fd < 0 || mrt__is_handle(fd) || fcntl(fd, F_GETFD) < 0)
		return -EBADF;
	ret = examine(s, &found, fd, flags);
	if (ret)
		return ret;
	ret = publish(s->files, &found);
	if (ret < 0)
		free(found.nvme);
	if (ret == -ENFILE)
		mrt__sched_log(s, MRT_LOG_ERROR, "a file could not be registered: all %u slots are taken; raise the option "
						 "files_max", s->files->max);
	return ret;
}

/* ---- a worker's knowledge ---- */

static void set_learned(struct mrt__file *f, unsigned worker)
{
	f->learned[worker / 64] |= UINT64_C(1) << worker % 64;
}

static bool take_learned(struct mrt__file *f, unsigned worker)
{
	uint64_t bit = UINT64_C(1) << worker % 64;
	bool was = f->learned[worker / 64] & bit;

	f->learned[worker / 64] &= ~bit;
	return was;
}

/* Put a file into the tables of the rings that will need it. Where that fails the plain descriptor is used. */
static void table_set(struct mrt__worker *w, struct mrt__file_use *u, unsigned slot)
{
	unsigned max = w->sched->files->max;
	int err = mrt__ring_file_set(w->ring, max, slot, u->fd);

	if (err == 0)
		u->ready |= MRT__FILE_ON_MAIN;
	else
		/* relaxed: for the report */
		atomic_store_explicit(&w->sched->files->table_error, err, memory_order_relaxed);
	if (u->flags & MRT_FILE_POLLED && mrt__ring_file_set(w->polled, max, slot, u->fd) == 0)
		u->ready |= MRT__FILE_ON_POLLED;
}

static void table_clear(struct mrt__worker *w, struct mrt__file_use *u, unsigned slot)
{
	unsigned max = w->sched->files->max;
	int err = 0, polled_err = 0;

	if (u->ready & MRT__FILE_ON_MAIN)
		err = mrt__ring_file_set(w->ring, max, slot, -1);
	if (u->ready & MRT__FILE_ON_POLLED)
		polled_err = mrt__ring_file_set(w->polled, max, slot, -1);
	if (err || polled_err)
		mrt__sched_log(w->sched, MRT_LOG_WARN, "a ring could not let go of a closed file (error %d): it stays open until "
						       "its slot %u is used again", err ? -err : -polled_err, slot);
	u->ready = 0;
}

bool mrt__file_learn(struct mrt__worker *w, int handle)
{
	struct mrt__files *files = w->sched->files;
	unsigned slot = mrt__handle_slot(handle);
	struct mrt__file_use *u;
	struct mrt__file *f;
	uint32_t flags;

	if (slot >= files->max)
		return false;
	u = &w->file_use[slot];
	f = &files->slots[slot];
	pthread_mutex_lock(&files->lock);
	/* relaxed: under the lock */
	if (u->closing || atomic_load_explicit(&f->handle, memory_order_relaxed) != handle) {
		pthread_mutex_unlock(&files->lock);
		return false;
	}
	set_learned(f, w->index);
	flags = f->flags;
	pthread_mutex_unlock(&files->lock);
	/* from here on a close waits for us, so that the descriptor stays what it is */
	*u = (struct mrt__file_use){
		.handle = handle, .fd = f->fd, .flags = (uint8_t)flags, .polled_bytes_max = f->polled_bytes_max,
		/* relaxed: a hint; whoever does not see it finds out */
		.unfixed = atomic_load_explicit(&f->unfixed, memory_order_relaxed),
	};
	/* relaxed: the same */
	if (flags & MRT_FILE_POLLED && (atomic_load_explicit(&f->unpollable, memory_order_relaxed) ||
					!mrt__worker_make_polled(w)))
		u->flags &= (uint8_t)~MRT_FILE_POLLED;
	table_set(w, u, slot);
	return true;
}

void mrt__file_unpoll(struct mrt__worker *w, int handle, int error)
{
	struct mrt__files *files = w->sched->files;
	struct mrt__file *f = &files->slots[mrt__handle_slot(handle)];

	w->file_use[mrt__handle_slot(handle)].flags &= (uint8_t)~MRT_FILE_POLLED;
	/* relaxed: a hint */
	if (atomic_exchange_explicit(&f->unpollable, true, memory_order_relaxed))
		return;
	pthread_mutex_lock(&files->lock);
	(void)snprintf(f->why, sizeof(f->why), "a polled op got error %d, so its I/O goes through the ordinary ring", -error);
	pthread_mutex_unlock(&files->lock);
	mrt__sched_log(w->sched, MRT_LOG_WARN, "a registered file is not polled any more: a polled op got error %d (%s)", -error,
		       strerrordesc_np(-error));
}

void mrt__file_unfix(struct mrt__worker *w, int handle, int error)
{
	struct mrt__file *f = &w->sched->files->slots[mrt__handle_slot(handle)];

	w->file_use[mrt__handle_slot(handle)].unfixed = true;
	/* relaxed: a hint */
	if (!atomic_exchange_explicit(&f->unfixed, true, memory_order_relaxed))
		mrt__sched_log(w->sched, MRT_LOG_WARN, "this kernel refuses registered buffers in NVMe commands of /dev/%s (error "
						       "%d): they are sent without", f->nvme->node, -error);
}

/* ---- closing ---- */

static void unlink_closing(struct mrt__files *files, const struct mrt__file *f)
{
	struct mrt__file **link = &files->closing;

	while (*link != f)
		link = &(*link)->next;
	*link = f->next;
}

/* No worker has an op on it: give the slot back, then the descriptor. */
static void finish_close(struct mrt__worker *w, struct mrt__file *f)
{
	struct mrt__files *files = w->sched->files;
	struct mrt__op *op = f->closer;
	int fd = f->fd;

	free(f->nvme);
	f->nvme = NULL;
	pthread_mutex_lock(&files->lock);
	unlink_closing(files, f);
	free_push(files, f);
	pthread_mutex_unlock(&files->lock);
	if (op->kind == MRT__OP_UNREGISTER)
		mrt__op_finish(op, fd);
	else
		mrt__op_submit_close(w, op, fd);
}

static void ack(struct mrt__worker *w, struct mrt__file *f)
{
	/* [FILE.acks.done] each worker's last use of the file comes before the last one's finish_close() */
	if (atomic_fetch_sub_explicit(&f->acks_left, 1, memory_order_acq_rel) == 1)
		finish_close(w, f);
}

void mrt__file_drained(struct mrt__worker *w, unsigned slot)
{
	struct mrt__file_use *u = &w->file_use[slot];

	mrt__assert(u->closing && u->inflight == 0);
	mrt__cancels_drop_file(w, slot);
	table_clear(w, u, slot);
	w->cancels_due -= u->cancel_due;
	*u = (struct mrt__file_use){ 0 };
	ack(w, &w->sched->files->slots[slot]);
}

bool mrt__file_try_cancel(struct mrt__worker *w, unsigned slot)
{
	const struct mrt__file_use *u = &w->file_use[slot];
	/* by the file, so it finds what was started through the descriptor, too; a polled ring cancels nothing */
	bool fixed = u->ready & MRT__FILE_ON_MAIN;

	return mrt__ring_cancel_file(w->ring, fixed ? (int)slot : u->fd, fixed);
}

/* @return false: no SQE */
static bool send_cancels(struct mrt__worker *w, unsigned slot)
{
	if (mrt__file_try_cancel(w, slot))
		return true;
	(void)mrt__ring_flush(w->ring); /* what matters is the room */
	return mrt__file_try_cancel(w, slot);
}

static void forget(struct mrt__worker *w, unsigned slot)
{
	struct mrt__file_use *u = &w->file_use[slot];

	mrt__assert(u->handle != 0 && !u->closing);
	u->handle = 0;
	u->closing = true;
	if (u->inflight == 0) {
		mrt__file_drained(w, slot);
		return;
	}
	u->cancel_due = !send_cancels(w, slot);
	w->cancels_due += u->cancel_due;
	mrt__cancels_add_file(w, slot);
	mrt__cancels_close(w, slot);
}

static void retry_cancels(struct mrt__worker *w)
{
	unsigned i;

	for (i = 0; i < w->sched->files->max && w->cancels_due > 0; i++) {
		struct mrt__file_use *u = &w->file_use[i];

		if (!u->cancel_due)
			continue;
		if (!send_cancels(w, i))
			return;
		u->cancel_due = false;
		w->cancels_due--;
	}
}

void mrt__files_turn(struct mrt__worker *w)
{
	struct mrt__files *files = w->sched->files;
	unsigned slots[TURN_BATCH], nr, i;
	struct mrt__file *f;

	if (w->cancels_due > 0)
		retry_cancels(w);
	do {
		nr = 0;
		pthread_mutex_lock(&files->lock);
		/* relaxed: under the lock */
		w->files_seen = atomic_load_explicit(&files->version, memory_order_relaxed);
		for (f = files->closing; f && nr < TURN_BATCH; f = f->next)
			if (take_learned(f, w->index))
				slots[nr++] = (unsigned)(f - files->slots);
		pthread_mutex_unlock(&files->lock);
		for (i = 0; i < nr; i++)
			forget(w, slots[i]);
	} while (nr == TURN_BATCH);
}

/* With the lock: make the handle stale. @return how many workers know it */
static unsigned begin_close(struct mrt__files *files, struct mrt__file *f, struct mrt__op *op)
{
	unsigned knows = 0, i;

	for (i = 0; i < files->words; i++)
		knows += (unsigned)__builtin_popcountll(f->learned[i]);
	/* relaxed: learners hold the lock; others only look */
	atomic_store_explicit(&f->handle, 0, memory_order_relaxed);
	f->state = MRT__FILE_CLOSING;
	f->closer = op;
	f->next = files->closing;
	files->closing = f;
	/* relaxed: the lock publishes it to the workers that will count it down */
	atomic_store_explicit(&f->acks_left, knows, memory_order_relaxed);
	/* relaxed: whoever sees it takes the lock */
	atomic_fetch_add_explicit(&files->version, 1, memory_order_relaxed);
	return knows;
}

/* Wake those that must forget it. `learned` is a copy: they clear their bits meanwhile. */
static void wake_learners(struct mrt__worker *w, const uint64_t *learned, unsigned words)
{
	unsigned i;

	for (i = 0; i < words * 64; i++)
		if (learned[i / 64] & UINT64_C(1) << i % 64 && i != w->index)
			mrt__sched_wake(w->sched->workers[i]);
}

struct mrt_op *mrt__file_end(struct mrt_op *pub, unsigned kind, int handle)
{
	uint64_t learned[MRT__WORKERS_MAX / 64];
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w;
	struct mrt__files *files;
	struct mrt__file *f;
	unsigned knows;

	/* shielded, and never cancelled: it ends by itself, and a descriptor that nobody closes is lost */
	w = mrt__op_begin(op, (enum mrt__op_kind)kind,
			  MRT__OPF_SHIELDED | (kind == MRT__OP_CLOSE_FILE ? MRT__OPF_RING | MRT__OPF_CREDIT : MRT__OPF_OPENS_FD));
	if (!w)
		return pub;
	files = w->sched->files;
	pthread_mutex_lock(&files->lock);
	f = mrt__file_of(files, handle);
	if (!f) {
		pthread_mutex_unlock(&files->lock);
		mrt__op_end_inline(op, -EBADF);
		return pub;
	}
	knows = begin_close(files, f, op);
	memcpy(learned, f->learned, files->words * sizeof(*learned));
	pthread_mutex_unlock(&files->lock);
	if (knows == 0) {
		finish_close(w, f);
		return pub;
	}
	wake_learners(w, learned, files->words);
	mrt__files_turn(w); /* ours at once: what this task starts next finds a stale handle */
	return pub;
}

struct mrt_op *mrt_file_unregister(struct mrt_op *op, int file)
{
	return mrt__file_end(op, MRT__OP_UNREGISTER, file);
}

/* ---- which rung ---- */

/* What the runtime knows of a handle. With the lock. @param why  [MRT__FILE_WHY_BYTES] */
static void fill_facts(struct mrt__sched *s, struct mrt__file *f, struct mrt__rung_facts *facts, char *why)
{
	/* relaxed, all three: a report */
	facts->handle = true;
	facts->fixed_file = atomic_load_explicit(&s->files->table_error, memory_order_relaxed) == 0;
	facts->polled_asked = f->asked & MRT_FILE_POLLED;
	facts->polled = f->flags & MRT_FILE_POLLED && !atomic_load_explicit(&f->unpollable, memory_order_relaxed);
	facts->hybrid_asked = s->polled_opts.flags & MRT__RING_OPT_HYBRID;
	facts->hybrid = facts->polled && f->hybrid;
	facts->passthrough = f->nvme != NULL;
	facts->buffer_refused = atomic_load_explicit(&f->unfixed, memory_order_relaxed);
	memcpy(why, f->why, MRT__FILE_WHY_BYTES);
}

/* The device is looked at without the lock, which workers take in their turns: a file system may be slow to answer. */
static int look_at_handle(struct mrt__sched *s, int handle, struct mrt__rung_facts *facts, char *why)
{
	struct mrt__nvme_ns ns = { 0 };
	struct mrt__file *f;
	int fd, ret;

	pthread_mutex_lock(&s->files->lock); /* no close takes the descriptor away meanwhile */
	f = mrt__file_of(s->files, handle);
	if (!f) {
		pthread_mutex_unlock(&s->files->lock);
		return -EBADF;
	}
	fill_facts(s, f, facts, why);
	if (f->nvme)
		ns = *f->nvme;
	fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
	ret = -errno;
	pthread_mutex_unlock(&s->files->lock);
	if (fd < 0)
		return ret;
	ret = mrt__rung_look(fd, facts->passthrough ? &ns : NULL, &facts->dev);
	(void)close(fd); /* a second name, read from only */
	return ret;
}

/* Would a read into `buf` use a fixed buffer? @param why  [why_bytes] if it would not because of the arena */
static bool look_at_buffer(struct mrt_runtime *rt, const struct mrt__sched *s, const void *buf, char *why, size_t why_bytes)
{
	struct mrt_arena_report arena;
	enum mrt__arena_kind kind;

	if (mrt_arena_report(rt, &arena))
		return false;
	if (buf)
		kind = mrt__arena_look(s->arena, (uintptr_t)buf, 1);
	else /* what is mapped first is registered first */
		kind = arena.mapped_bytes == 0 || arena.registered_bytes > 0 ? MRT__ARENA_FIXED : MRT__ARENA_PLAIN;
	if (kind == MRT__ARENA_PLAIN)
		(void)snprintf(why, why_bytes, "%s", arena.text); /* cut to fit */
	return kind == MRT__ARENA_FIXED;
}

int mrt_file_report(struct mrt_runtime *rt, int fd, const void *buf, struct mrt_rung_report *ret_report)
{
	char polled_why[MRT__FILE_WHY_BYTES] = "", buffer_why[sizeof(((struct mrt_arena_report *)0)->text)] = "";
	struct mrt__rung_facts facts = { .polled_why = polled_why, .buffer_why = buffer_why };
	struct mrt__sched *s;
	int ret = mrt__sched_find(rt, &s);

	if (ret)
		return ret;
	if (!ret_report)
		return -EINVAL;
	ret = mrt__is_handle(fd) ? look_at_handle(s, fd, &facts, polled_why) : mrt__rung_look(fd, NULL, &facts.dev);
	if (ret)
		return ret;
	facts.fixed_buffer = look_at_buffer(rt, s, buf, buffer_why, sizeof(buffer_why));
	if (facts.handle && !facts.fixed_file)
		/* relaxed: a report */
		facts.file_why = strerrordesc_np(-atomic_load_explicit(&s->files->table_error, memory_order_relaxed));
	mrt__rung_report(&facts, ret_report);
	return 0;
}
