/* SPDX-License-Identifier: MIT */
/*
 * Task scopes: structured concurrency. Children that are spawned in a scope never outlive it: the scope is an op of the
 * parent, in flight while any child lives. If the parent returns or is aborted, the children are aborted and collected
 * before the parent's frame is freed.
 */
#ifndef MARTLET_SCOPE_H
#define MARTLET_SCOPE_H

#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>
#include <martlet/op.h>
#include <martlet/task.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MRT_SCOPE_FAIL_FAST (1u << 0) /* the first child with a negative result aborts the others */

/* In the parent's frame; set up by mrt_scope_init. */
struct mrt_scope {
	struct mrt_op mrt__op;
	uint64_t mrt__priv[4];
};

/* Set up an empty scope. @thread the running task that will own it @param flags MRT_SCOPE_* */
MRT_API void mrt_scope_init(struct mrt_scope *scope, unsigned flags);

/**
 * Spawn a child. There is no handle: the scope is how it is waited for.
 *
 * @thread  the running task that owns the scope
 * @owner   `frame` is copied
 * @blocks  never
 * @param opts  as mrt_spawn; NULL: defaults
 * @return 0; as mrt_spawn; or
 *         -ECANCELED  the scope was cancelled (by its owner, by MRT_SCOPE_FAIL_FAST) and not joined since, or its task
 *                     was aborted
 *         -EBUSY      a join is in flight
 */
MRT_API int mrt_scope_spawn(struct mrt_scope *scope, mrt_poll_fn fn, const void *frame, size_t frame_bytes,
			    const struct mrt_spawn_opts *opts);

/**
 * Wait until all children have ended. The scope may be used again once the op was delivered. Cancelling the join, or a
 * deadline on it, aborts the children; it still completes only when they have ended, with what they gave.
 *
 * @thread  the running task that owns the scope
 * @blocks  never
 * @result  0 if no child failed, else the first negative result that a child gave
 * @return the scope's op, to await
 */
MRT_API struct mrt_op *mrt_scope_join(struct mrt_scope *scope);

/* Abort all children. They still have to be joined. @thread the running task that owns the scope @blocks never */
MRT_API void mrt_scope_cancel(struct mrt_scope *scope);

/* Children that have not ended: exact for the owner between its own calls, falling meanwhile. */
MRT_API size_t mrt_scope_nr(const struct mrt_scope *scope);

#ifdef __cplusplus
}
#endif

#endif
