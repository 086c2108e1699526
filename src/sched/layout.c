/* SPDX-License-Identifier: MIT */
/* The table of <martlet/layout.h>, made from the structs themselves: it cannot become wrong by a change of theirs. */
#include "sched/layout.h"

#include <stddef.h>

#include "sched/heap.h"
#include "sched/op.h"
#include "sched/sched.h"
#include "sched/task.h"
#include "sched/worker.h"

#define AT(type, member) ((uint32_t)offsetof(struct type, member))

const struct mrt_layout mrt__layout = {
	.magic = MRT_LAYOUT_MAGIC,
	.version = MRT_LAYOUT_VERSION,
	.bytes = sizeof(struct mrt_layout),
	.op_kinds = mrt__op_kind_names,
	.op_kinds_nr = MRT__OP_KINDS_NR,

	.runtime_workers = AT(mrt__sched, workers),
	.runtime_outside = AT(mrt__sched, outside),
	.outside_nr = MRT__OUTSIDE_HEAPS_NR,
	.outside_bytes = sizeof(struct mrt__outside),
	.outside_heap = AT(mrt__outside, heap),
	.worker_task = AT(mrt__worker, task),
	.worker_heap = AT(mrt__worker, heap),

	.heap_slabs = AT(mrt__heap, slabs),
	.slab_align = MRT__SLAB_BYTES,
	.slab_header_bytes = MRT__SLAB_HEADER_BYTES,
	.slab_heap = AT(mrt__slab, heap),
	.slab_next = AT(mrt__slab, next),
	.slab_cell_bytes = AT(mrt__slab, cell_bytes),
	.slab_cells_nr = AT(mrt__slab, cells_nr),
	.slab_used_nr = AT(mrt__slab, used_nr),

	.task_bytes = sizeof(struct mrt_task),
	.task_word = AT(mrt_task, word),
	.task_flags = AT(mrt_task, flags),
	.task_fn = AT(mrt_task, fn),
	.task_ops = AT(mrt_task, ops),
	.task_await_nr = AT(mrt_task, await_nr),
	.task_frame_bytes = AT(mrt_task, frame_bytes),
	.task_place = AT(mrt_task, place),
	.task_id = AT(mrt_task, id),
	.word_live = MRT__WORD_LIVE,
	.word_held = MRT__WORD_HELD,
	.word_ended = MRT__WORD_ENDED,
	.word_aborted = MRT__WORD_ABORTED,
	.flag_polled = MRT__TASKF_POLLED,
	.flag_returned = MRT__TASKF_RETURNED,
	.task_named = MRT__FRAME_NAMED,
	.task_rests = MRT__PLACE_RESTS,

	.op_bytes = sizeof(struct mrt__op),
	.op_state = AT(mrt__op, state),
	.op_kind = AT(mrt__op, kind),
	.op_flags = AT(mrt__op, flags),
	.op_hflags = AT(mrt__op, hflags),
	.op_rflags = AT(mrt__op, rflags),
	.op_task = AT(mrt__op, task),
	.op_next = AT(mrt__op, next),
	.op_ring = AT(mrt__op, ring),
	.op_staged = AT(mrt__op, done_next),
	.op_stamp = AT(mrt__op, msg),
	.op_stamp_shift = MRT__METER_STAMP_SHIFT,
	.op_stamp_mask = MRT__METER_STAMP_MASK,
	.op_opcode = AT(mrt__op, io.opcode),
	.op_fd = AT(mrt__op, io.fd),
	.op_len = AT(mrt__op, io.len),
	.op_off = AT(mrt__op, io.off),
	.op_object = AT(mrt__op, wait.object),
	.op_deadline_ns = AT(mrt__op, timer.deadline_ns),
	.state_inflight = MRT__OP_INFLIGHT,
	.op_is_ring = MRT__OPF_RING,
	.op_is_wait = MRT__OPF_WAIT,
	.op_is_handle = MRT__OPF_FILE,
	.op_awaited = MRT__OPH_AWAITED,
	.op_cancelled = MRT__OPH_CANCELLED,
	.op_ended = MRT__OPR_TERMINAL,
	.op_queued = MRT__OPR_QUEUED,
	.op_timed = MRT__OPR_TIMED,
};
