/* SPDX-License-Identifier: MIT */
/*
 * Task scopes.
 *
 * The scope's op is what ties the children to their parent: it is in flight while one of them lives, so that whatever
 * the runtime does for a task that ends with ops in flight (cancel them, wait, then free the frame) holds for its
 * children too. Each child has a node behind its frame, in the scope's list.
 *
 *	       spawn: HOLD           join: HOLD dropped           last child ends
 *	idle ----------------> open ----------------------> joining ----------------> done, may be used again
 *	                         |      (no child: done)       ^
 *	                         +---- cancel of the op -------+    (parent aborted or returned: children aborted)
 *
 * HOLD is the owner's own share in the op. Without it the op would complete whenever the number of children falls to
 * zero, and a spawn could not tell whether the op of the children before is about to be delivered. So children only
 * finish the op once nothing can be added any more: no spawn while it is being joined or after a cancel.
 *
 * Who may touch the scope, which lives in the parent's frame: the owner, always; a child, until it has given up its
 * share in `nr` under the lock, since the op cannot be finished before. The last child's unlock is its last access
 * but for the finish itself.
 *
 * Aborting a child schedules it, which may lock the inject queue and make a system call, so it is not done under the
 * scope's lock. Children are moved from `live` to `aborted` one by one, with a reference each; no child is added to a
 * cancelled scope, so `live` runs dry. Several threads may do this at once.
 */
#include <martlet/scope.h>

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/lock.h"
#include "sched/op_begin.h"
#include "sched/task.h"
#include "sched/worker.h"

/* In a child's trailer. Links: under the scope's lock. */
struct mrt__scope_node {
	struct mrt__scope *scope;
	struct mrt_task *task;
	struct mrt__scope_node *next;
	struct mrt__scope_node **pprev;
};

#define MRT__SCOPE_HOLD (1u << 0)       /* the owner's share: open for spawns */
#define MRT__SCOPE_CANCELLED (1u << 1)  /* no spawns until it was joined */
#define MRT__SCOPE_JOINED (1u << 2)     /* the next spawn starts afresh */

struct __attribute__((may_alias)) mrt__scope {
	struct mrt__op op;
	struct mrt__lock lock;          /* guards all below */
	uint8_t opts;                   /* MRT_SCOPE_*, const */
	uint8_t bits;                   /* MRT__SCOPE_* */
	uint8_t pad;
	atomic_uint nr;                 /* children; also read without the lock, by mrt_scope_nr */
	int64_t result;                 /* first negative result since the last join */
	struct mrt__scope_node *live;
	struct mrt__scope_node *aborted;
};
_Static_assert(sizeof(struct mrt__scope) == sizeof(struct mrt_scope), "overlays the public struct");

static struct mrt__scope *scope_of(struct mrt_scope *scope)
{
	return (struct mrt__scope *)(void *)scope;
}

/* relaxed in the next two: nr changes under the lock only, which orders */
static unsigned scope_nr(const struct mrt__scope *s)
{
	return atomic_load_explicit(&s->nr, memory_order_relaxed);
}

static void scope_set_nr(struct mrt__scope *s, unsigned nr)
{
	atomic_store_explicit(&s->nr, nr, memory_order_relaxed);
}

static void node_link(struct mrt__scope_node **head, struct mrt__scope_node *node)
{
	node->next = *head;
	node->pprev = head;
	if (*head)
		(*head)->pprev = &node->next;
	*head = node;
}

static void node_unlink(struct mrt__scope_node *node)
{
	*node->pprev = node->next;
	if (node->next)
		node->next->pprev = node->pprev;
}

/* @return a child that was not aborted yet, with a reference; NULL: all were */
static struct mrt_task *scope_next_victim(struct mrt__scope *s)
{
	struct mrt__scope_node *node;
	struct mrt_task *task = NULL;

	mrt__lock(&s->lock);
	node = s->live;
	if (node) {
		node_unlink(node);
		node_link(&s->aborted, node);
		task = node->task;
		mrt__task_ref(task); /* it is in the list, so its own is still there */
	}
	mrt__unlock(&s->lock);
	return task;
}

/* @thread the owner, or a child that still has its share */
static void scope_abort_all(struct mrt__scope *s)
{
	struct mrt_task *task;

	while ((task = scope_next_victim(s)) != NULL) {
		mrt__task_abort(task);
		mrt__task_unref(task);
	}
}

/* A child gives up its share; the last one finishes the op, if the owner has given up his. */
static void scope_leave(struct mrt__scope *s)
{
	int64_t result;
	bool last;

	mrt__lock(&s->lock);
	mrt__assert(scope_nr(s) > 0);
	scope_set_nr(s, scope_nr(s) - 1);
	last = scope_nr(s) == 0 && !(s->bits & MRT__SCOPE_HOLD);
	result = s->result;
	mrt__unlock(&s->lock);
	if (last)
		mrt__op_finish(&s->op, result);
}

static void scope_on_child_end(struct mrt_task *task)
{
	struct mrt__scope_node *node = mrt__task_trailer_data(task);
	struct mrt__scope *s = node->scope;
	bool fail_fast = false;

	mrt__lock(&s->lock);
	node_unlink(node);
	if (task->result < 0) {
		if (s->result == 0)
			s->result = task->result;
		if (s->opts & MRT_SCOPE_FAIL_FAST) {
			s->bits |= MRT__SCOPE_CANCELLED;
			fail_fast = true;
		}
	}
	mrt__unlock(&s->lock);
	if (fail_fast)
		scope_abort_all(s);
	scope_leave(s);
}

static void scope_on_child_init(struct mrt_task *task, void *ctx)
{
	struct mrt__scope_node *node = mrt__task_trailer_data(task);
	struct mrt__scope *s = ctx;

	bool cancelled;

	node->scope = s;
	node->task = task;
	mrt__lock(&s->lock);
	mrt__assert(scope_nr(s) < UINT32_MAX);
	scope_set_nr(s, scope_nr(s) + 1);
	/* a child may have failed since the spawner looked: whoever aborts the others may have been here already */
	cancelled = s->bits & MRT__SCOPE_CANCELLED;
	node_link(cancelled ? &s->aborted : &s->live, node);
	mrt__unlock(&s->lock);
	if (cancelled)
		mrt__task_abort(task);
}

/*
 * The parent was aborted or has returned, or the join was cancelled or its deadline passed. The children are asked to
 * end, and the last of them finishes the op; it cannot be delivered meanwhile, since the caller is the holder.
 */
static bool scope_op_cancel(struct mrt__op *op)
{
	struct mrt__scope *s = op->wait.object;
	bool alone;

	mrt__lock(&s->lock);
	alone = s->bits & MRT__SCOPE_HOLD && scope_nr(s) == 0;
	s->bits &= (uint8_t)~MRT__SCOPE_HOLD;
	s->bits |= MRT__SCOPE_CANCELLED;
	mrt__unlock(&s->lock);
	if (!alone)
		scope_abort_all(s);
	return alone;
}

static const struct mrt__wait_class scope_class = {
	.cancel = scope_op_cancel,
};

static bool scope_is_in_flight(const struct mrt__scope *s)
{
	if (s->op.state != MRT__OP_INFLIGHT)
		return false;
	if (!mrt__worker_self || mrt__worker_self->task != s->op.task)
		mrt__bug("a task scope was used by another than its task");
	return true;
}

/* A scope that was joined begins a new life. Its op is not in flight, so nobody but the owner sees it. */
static void scope_renew(struct mrt__scope *s)
{
	if (s->bits & MRT__SCOPE_JOINED) {
		s->bits = 0;
		s->result = 0;
	}
}

/* Take the owner's share. @return 0, or why the op could not begin */
static int scope_open(struct mrt__scope *s)
{
	scope_renew(s);
	if (s->bits & MRT__SCOPE_CANCELLED)
		return -ECANCELED;
	if (!mrt__op_begin(&s->op, MRT__OP_SCOPE, MRT__OPF_WAIT))
		return (int)s->op.res;
	s->op.wait.cls = &scope_class;
	s->op.wait.object = s;
	s->bits |= MRT__SCOPE_HOLD;
	return 0;
}

/* May children be added to a scope that has some? */
static int scope_check_open(struct mrt__scope *s)
{
	const struct mrt_task *task = s->op.task;
	uint8_t bits;

	mrt__lock(&s->lock);
	bits = s->bits;
	mrt__unlock(&s->lock);
	if (bits & MRT__SCOPE_CANCELLED || (task->flags & MRT__TASKF_ABORTED && task->shield == 0))
		return -ECANCELED;
	return bits & MRT__SCOPE_HOLD ? 0 : -EBUSY;
}

/* Give up the owner's share; without children that completes the op. */
static void scope_release(struct mrt__scope *s, uint8_t bits)
{
	int64_t result;
	bool alone;

	mrt__lock(&s->lock);
	alone = s->bits & MRT__SCOPE_HOLD && scope_nr(s) == 0;
	s->bits &= (uint8_t)~MRT__SCOPE_HOLD;
	s->bits |= bits;
	result = s->result;
	mrt__unlock(&s->lock);
	if (alone)
		mrt__op_end_inline(&s->op, result);
}

void mrt_scope_init(struct mrt_scope *scope, unsigned flags)
{
	if (flags & ~MRT_SCOPE_FAIL_FAST)
		mrt__bug("mrt_scope_init: unknown flags 0x%x", flags);
	memset(scope, 0, sizeof(*scope));
	scope_of(scope)->opts = (uint8_t)flags;
}

int mrt_scope_spawn(struct mrt_scope *scope, mrt_poll_fn fn, const void *frame, size_t frame_bytes,
		    const struct mrt_spawn_opts *opts)
{
	struct mrt__scope *s = scope_of(scope);
	struct mrt__spawn spawn = {
		.fn = fn,
		.frame = frame,
		.frame_bytes = frame_bytes,
		.opts = opts,
		.trailer_bytes = sizeof(struct mrt__scope_node),
		.on_end = scope_on_child_end,
		.on_init = scope_on_child_init,
		.ctx = s,
	};
	bool opened = !scope_is_in_flight(s);
	int err = opened ? scope_open(s) : scope_check_open(s);

	if (err)
		return err;
	err = mrt__task_spawn(s->op.task->sched, &spawn, NULL);
	if (err && opened)
		scope_release(s, 0);
	return err;
}

struct mrt_op *mrt_scope_join(struct mrt_scope *scope)
{
	struct mrt__scope *s = scope_of(scope);

	if (!scope_is_in_flight(s)) {
		s->bits = MRT__SCOPE_JOINED;
		return mrt__op_refuse(&scope->mrt__op, MRT__OP_SCOPE, s->result);
	}
	scope_release(s, MRT__SCOPE_JOINED);
	return &scope->mrt__op;
}

void mrt_scope_cancel(struct mrt_scope *scope)
{
	struct mrt__scope *s = scope_of(scope);

	if (!scope_is_in_flight(s))
		scope_renew(s);
	mrt__lock(&s->lock);
	s->bits |= MRT__SCOPE_CANCELLED;
	mrt__unlock(&s->lock);
	scope_abort_all(s);
}

size_t mrt_scope_nr(const struct mrt_scope *scope)
{
	return scope_nr((const struct mrt__scope *)(const void *)scope);
}
