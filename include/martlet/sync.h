/* SPDX-License-Identifier: MIT */
/*
 * What tasks wait for besides I/O. Waits are ops: they can be awaited together with reads and sleeps, cancelled, and
 * given deadlines. The completing side works from any thread, inside a runtime or not, and never blocks.
 *
 * Memory is the caller's: an object may be zeroed or set up by its init function. What happened before a send, release or
 * notify is visible after the wait that it completes.
 *
 * Lifetime: an object must outlive the *delivery* of every wait on it, of cancelled ones too (await it, or let its task
 * end), and the return of every other call on it. That a wait has been completed is not enough: until it is delivered its
 * task may still cancel it or pass on what it took, and both look into the object. So a oneshot with a single waiter may
 * stand in the waiter's frame, which is not freed before, if the sender is certain to send before that wait is over, or
 * never to send after it; an object with several waiters belongs in memory that outlives them all.
 *
 * In a child after fork do not use them: the calls that do not wait do not answer -ECHILD, wake nobody, and may spin.
 */
#ifndef MARTLET_SYNC_H
#define MARTLET_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>
#include <martlet/op.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt__wait_queue {
	void *mrt__head;
	void *mrt__tail;
	uint64_t mrt__bits;
};

/* ---- oneshot: one value, once ---- */

struct mrt_oneshot {
	struct mrt__wait_queue mrt__waiters;
	int64_t mrt__value;
	uint64_t mrt__bits;
};

MRT_API void mrt_oneshot_init(struct mrt_oneshot *o);

/**
 * Give the value.
 *
 * @thread  any
 * @blocks  never
 * @param value  >= 0: becomes the result of the receive; negative values are allowed and look like errors
 * @return 0, -EALREADY if it was sent or closed before
 */
MRT_API int mrt_oneshot_send(struct mrt_oneshot *o, int64_t value);

/* Say that no value will come: receives complete with -EPIPE. @thread any @return 0, -EALREADY */
MRT_API int mrt_oneshot_close(struct mrt_oneshot *o);

/**
 * Receive the value. It stays: several receivers, and later ones, all get it.
 *
 * @thread  the running task's worker
 * @result  the value; -EPIPE closed; -ECANCELED, -ETIMEDOUT, -ESHUTDOWN
 * @return op
 */
MRT_API struct mrt_op *mrt_oneshot_recv(struct mrt_op *op, struct mrt_oneshot *o);

/* ---- notify: an event without a value ---- */

struct mrt_notify {
	struct mrt__wait_queue mrt__waiters;
	uint64_t mrt__bits;
};

MRT_API void mrt_notify_init(struct mrt_notify *n);

/* Complete the oldest wait; without one store a permit (one, not a count) for the next. @thread any @blocks never */
MRT_API void mrt_notify_one(struct mrt_notify *n);

/* Complete exactly the waits that were started before this call; stores nothing. @thread any @blocks never */
MRT_API void mrt_notify_all(struct mrt_notify *n);

/* Wait to be notified. A cancelled wait that was notified passes its permit on. @result 0 @return op */
MRT_API struct mrt_op *mrt_notify_wait(struct mrt_op *op, struct mrt_notify *n);

/* ---- semaphore: FIFO, a big request is not starved by small ones ---- */

struct mrt_semaphore {
	struct mrt__wait_queue mrt__waiters;
	uint64_t mrt__permits;
	uint64_t mrt__bits;
};

#define MRT_SEMAPHORE_PERMITS_MAX (UINT64_MAX >> 3)

/* @param permits 0..MRT_SEMAPHORE_PERMITS_MAX @return 0, -EINVAL */
MRT_API int mrt_semaphore_init(struct mrt_semaphore *s, uint64_t permits);

/**
 * Take permits.
 *
 * @thread  the running task's worker
 * @param nr  1..MRT_SEMAPHORE_PERMITS_MAX
 * @result  0; -EPIPE closed; -ECANCELED, -ETIMEDOUT (nothing taken), -ESHUTDOWN
 * @return op
 */
MRT_API struct mrt_op *mrt_semaphore_acquire(struct mrt_op *op, struct mrt_semaphore *s, uint64_t nr);

/* Take permits if they are there and nobody waits. @thread any @return 0, -EAGAIN, -EPIPE, -EINVAL */
MRT_API int mrt_semaphore_try_acquire(struct mrt_semaphore *s, uint64_t nr);

/* Give permits back, or add new ones. @thread any @return 0, -EINVAL (more than the maximum; nothing is changed) */
MRT_API int mrt_semaphore_release(struct mrt_semaphore *s, uint64_t nr);

/* Fail all waits and later acquires with -EPIPE. @thread any */
MRT_API void mrt_semaphore_close(struct mrt_semaphore *s);

/* Permits that are free now. @thread any */
MRT_API uint64_t mrt_semaphore_permits(struct mrt_semaphore *s);

/* ---- channel: bounded, many senders, many receivers, FIFO, fixed-size messages ---- */

struct mrt_channel;

/**
 * Create a channel.
 *
 * @param capacity   messages that wait at most, 1..1 Gi
 * @param msg_bytes  bytes of a message, 0..1 MiB
 * @owner   *ret_channel is the caller's until mrt_channel_destroy
 * @return 0, -EINVAL, -ENOMEM
 */
MRT_API int mrt_channel_create(size_t capacity, size_t msg_bytes, struct mrt_channel **ret_channel);

/* Free a channel without waiters (else the process ends); messages in it are dropped. NULL is ignored. @thread any */
MRT_API void mrt_channel_destroy(struct mrt_channel *ch);

/**
 * Send a message; waits while the channel is full.
 *
 * @thread  the running task's worker
 * @owner   [msg_bytes] at msg is the runtime's until the op completes, then it has been copied
 * @result  0; -EPIPE closed; -ECANCELED, -ETIMEDOUT (not sent), -ESHUTDOWN
 * @return op
 */
MRT_API struct mrt_op *mrt_channel_send(struct mrt_op *op, struct mrt_channel *ch, const void *msg);

/**
 * Receive a message; waits while the channel is empty. Messages sent before a close are still received. A message that
 * came for a task which had returned by then goes back to the front, or is dropped if the channel has filled up.
 *
 * @thread  the running task's worker
 * @owner   [msg_bytes] at ret_msg is the runtime's until the op completes
 * @result  0; -EPIPE closed and empty; -ECANCELED, -ETIMEDOUT (nothing taken), -ESHUTDOWN
 * @return op
 */
MRT_API struct mrt_op *mrt_channel_recv(struct mrt_op *op, struct mrt_channel *ch, void *ret_msg);

/* Send or receive without waiting. @thread any @return 0, -EAGAIN (full; empty), -EPIPE (closed) */
MRT_API int mrt_channel_try_send(struct mrt_channel *ch, const void *msg);
MRT_API int mrt_channel_try_recv(struct mrt_channel *ch, void *ret_msg);

/* No more sends; waiting senders get -EPIPE, receivers drain what is there. @thread any */
MRT_API void mrt_channel_close(struct mrt_channel *ch);

/* Messages waiting now. @thread any */
MRT_API size_t mrt_channel_nr(struct mrt_channel *ch);

#ifdef __cplusplus
}
#endif

#endif
