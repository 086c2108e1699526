/* SPDX-License-Identifier: MIT */
/*
 * More places to be interrupted at: calls between the files of the core. The linker sends them here (--wrap, see
 * tests/CMakeLists.txt), so the core itself knows nothing of it. None of them is called with a short lock held.
 *
 * Such a point is worth most between two steps of a protocol: a task is marked scheduled, and not yet in a queue; a timer is
 * taken out, and its op not yet finished; a worker is counted as asleep, and has not looked around for the last time.
 */
#include "sched/arena.h"
#include "sched/cancels.h"
#include "sched/files.h"
#include "sched/idle.h"
#include "sched/inject.h"
#include "sched/op_run.h"
#include "sched/runq.h"
#include "sched/task.h"
#include "sched/worker.h"
#include "sim.h"
#include "sim_ledger.h"

/* name, parameters, arguments: interrupted before the call */
#define WRAP(ret, name, params, args)   \
	ret __real_##name params;       \
	ret __wrap_##name params;       \
	ret __wrap_##name params        \
	{                               \
		sim_preempt();          \
		return __real_##name args; \
	}

/* the same for what returns nothing: before and after */
#define WRAP_VOID(name, params, args)   \
	void __real_##name params;      \
	void __wrap_##name params;      \
	void __wrap_##name params       \
	{                               \
		sim_preempt();          \
		__real_##name args;     \
		sim_preempt();          \
	}

/* Also the moment at which a descriptor is given back. */
void __real_mrt__op_finish(struct mrt__op *op, int64_t raw);
void __wrap_mrt__op_finish(struct mrt__op *op, int64_t raw);
void __wrap_mrt__op_finish(struct mrt__op *op, int64_t raw)
{
	if (op->kind == MRT__OP_UNREGISTER && raw >= 0)
		sim_handle_ended((int)raw);
	sim_preempt();
	__real_mrt__op_finish(op, raw);
	sim_preempt();
}

WRAP_VOID(mrt__op_deliver, (struct mrt_task *t, struct mrt__op *op), (t, op))
WRAP_VOID(mrt__op_cancel, (struct mrt__op *op, unsigned reason), (op, reason))
WRAP_VOID(mrt__op_cancel_on_owner, (struct mrt__worker *w, struct mrt__op *op), (w, op))
WRAP_VOID(mrt__mailbox_push, (struct mrt__worker *owner, struct mrt__op *op), (owner, op))
WRAP_VOID(mrt__tell, (struct mrt__worker *keeper, struct mrt_task *t), (keeper, t))
WRAP_VOID(mrt__task_told, (struct mrt__worker *w, struct mrt_task *t), (w, t))
WRAP_VOID(mrt__task_unref, (struct mrt_task *t), (t))
WRAP_VOID(mrt__sched_enqueue, (struct mrt_task *t), (t))
WRAP_VOID(mrt__inject_push, (struct mrt__inject *q, struct mrt_task *const *tasks, size_t nr), (q, tasks, nr))
WRAP_VOID(mrt__worker_push_yielded, (struct mrt__worker *w, struct mrt_task *t), (w, t))
WRAP(bool, mrt__file_learn, (struct mrt__worker *w, int handle), (w, handle))
WRAP_VOID(mrt__file_unpoll, (struct mrt__worker *w, int handle, int error), (w, handle, error))
WRAP_VOID(mrt__cancels_turn, (struct mrt__worker *w), (w))
WRAP_VOID(mrt__files_turn, (struct mrt__worker *w), (w))
WRAP_VOID(mrt__file_drained, (struct mrt__worker *w, unsigned slot), (w, slot))
WRAP_VOID(mrt__op_submit_close, (struct mrt__worker *w, struct mrt__op *op, int fd), (w, op, fd))
WRAP_VOID(mrt__arena_sync, (struct mrt__arena_view *v, struct mrt__ring *ring), (v, ring))
WRAP(bool, mrt__worker_timer_cancel, (struct mrt__sched *s, struct mrt__op *op), (s, op))
WRAP(size_t, mrt__inject_pop, (struct mrt__inject *q, struct mrt_task **ret_tasks, size_t max), (q, ret_tasks, max))
WRAP(struct mrt_task *, mrt__runq_steal, (struct mrt__runq *victim, struct mrt__runq *dst, unsigned *ret_nr),
     (victim, dst, ret_nr))
WRAP(int, mrt__idle_worker_to_notify, (struct mrt__idle *idle), (idle))
WRAP(bool, mrt__idle_unpark_worker, (struct mrt__idle *idle, unsigned w), (idle, w))
WRAP(bool, mrt__idle_park, (struct mrt__idle *idle, unsigned w, bool searching), (idle, w, searching))
WRAP(bool, mrt__idle_try_search, (struct mrt__idle *idle), (idle))
WRAP(bool, mrt__idle_end_search, (struct mrt__idle *idle), (idle))
