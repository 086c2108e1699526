/* SPDX-License-Identifier: MIT */
/*
 * Where things stand in the memory of a process with a runtime, for tools that read it from outside (`martlet dump`): a
 * process that hangs or is stopped cannot answer. The library makes this table from its own structs, so it is right for the
 * library that the process has, whichever that is.
 *
 * `layout` in mrt_global is its address in the process, `runtime` that of the runtime's struct, in which the members named
 * runtime_* are found. Offsets and sizes are in bytes. Nothing here is a promise to programs: what is read may change while it
 * is read, and the version rises whenever a member means something else.
 */
#ifndef MARTLET_LAYOUT_H
#define MARTLET_LAYOUT_H

#include <stdint.h>

#define MRT_LAYOUT_MAGIC UINT64_C(0x3159414c54524d2f) /* "/MRTLAY1" in memory, on little-endian machines */
#define MRT_LAYOUT_VERSION 1u

struct mrt_layout {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes;                 /* of this table; later versions may be longer */
	const char *const *op_kinds;    /* [op_kinds_nr] names, in the process */
	uint32_t op_kinds_nr;

	/* the runtime */
	uint32_t runtime_workers;       /* pointer to an array of pointers to workers; how many: mrt_global.workers_nr */
	uint32_t runtime_outside;       /* [outside_nr] heaps of threads that are no workers, in the struct itself, */
	uint32_t outside_nr, outside_bytes, outside_heap; /* each so long, its heap here */
	uint32_t worker_task;           /* pointer to the task in hand; NULL: none */
	uint32_t worker_heap;

	/* A heap is a list of slabs; a slab is a header and cells of one size, of which the first used_nr have been used. */
	uint32_t heap_slabs;            /* pointer to the first slab */
	uint32_t slab_align;            /* of its address */
	uint32_t slab_header_bytes;     /* the cells follow */
	uint32_t slab_heap, slab_next;  /* pointers */
	uint32_t slab_cell_bytes, slab_cells_nr, slab_used_nr;  /* u32 */

	/* A cell begins with a task, if its word has LIVE; the frame follows, and behind that, rounded up to 16, a name. */
	uint32_t task_bytes;
	uint32_t task_word;             /* u64, the four flags below */
	uint32_t task_flags;            /* u32, likewise */
	uint32_t task_fn;               /* pointer */
	uint32_t task_ops;              /* pointer to the newest op in flight */
	uint32_t task_await_nr;         /* u32: deliveries that it waits for */
	uint32_t task_frame_bytes;      /* u32, and the bit task_named: pointer to a name behind the frame */
	uint32_t task_place;            /* u16: worker, and the bit task_rests */
	uint32_t task_id;               /* u64 */
	uint64_t word_live, word_held, word_ended, word_aborted;
	uint32_t flag_polled, flag_returned;
	uint32_t task_named, task_rests;

	/* an op in flight */
	uint32_t op_bytes;
	uint32_t op_state;              /* u8: state_inflight, or it is none */
	uint32_t op_kind;               /* u8 */
	uint32_t op_flags;              /* u16: op_is_* */
	uint32_t op_hflags;             /* u8: op_awaited, op_cancelled */
	uint32_t op_rflags;             /* u8: op_ended, op_queued, op_timed */
	uint32_t op_task, op_next;      /* pointers */
	uint32_t op_ring;               /* u16: worker; with op_is_ring */
	uint32_t op_staged;             /* u64: with op_timed when it was staged, CLOCK_MONOTONIC */
	uint32_t op_stamp;              /* u32: time of a ring turn shortly before it began, in ns >> op_stamp_shift, ... */
	uint32_t op_stamp_shift;
	uint32_t op_stamp_mask;         /* ... in these bits; the others not 0: there is none */
	uint32_t op_opcode, op_fd, op_len, op_off; /* u8, i32, u32, u64: with op_is_ring */
	uint32_t op_object;             /* pointer to what it waits in: with op_is_wait; of a "join" a task */
	uint32_t op_deadline_ns;        /* u64: of a "sleep" or "deadline", CLOCK_MONOTONIC */
	uint32_t state_inflight;
	uint32_t op_is_ring, op_is_wait, op_is_handle; /* the descriptor is the number of a registered file */
	uint32_t op_awaited, op_cancelled;
	uint32_t op_ended, op_queued, op_timed; /* over but not seen by the task; not yet given to the kernel */
};

#endif
