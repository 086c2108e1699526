/* SPDX-License-Identifier: MIT */
/* What the start functions of file.c and net.c share: begin an op, fill in its SQE, submit. */
#ifndef MRT_SCHED_IO_H
#define MRT_SCHED_IO_H

#include <stddef.h>
#include <stdint.h>

#include <martlet/file.h>

#include "base/compiler.h"
#include "sched/files.h"
#include "sched/op.h"

/* @thread the running task's worker */
static inline struct mrt_op *mrt__io_start(struct mrt_op *pub, enum mrt__op_kind kind, unsigned flags,
					   struct mrt__ring_args args)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w;

	flags |= mrt__is_handle(args.fd) ? MRT__OPF_FILE : 0;
	w = mrt__op_begin(op, kind, flags);
	if (mrt__unlikely(!w))
		return pub;
	op->raw = 0;
	op->io = args;
	return mrt__op_submit(w, op);
}

static inline uint64_t mrt__io_addr(const void *ptr)
{
	return (uintptr_t)ptr;
}

/* What a raw read or write is cut to, as read(2) does it. */
static inline uint32_t mrt__io_len(size_t len)
{
	return len < MRT_IO_BYTES_MAX ? (uint32_t)len : MRT_IO_BYTES_MAX;
}

#endif
