/* SPDX-License-Identifier: MIT */
/*
 * NVMe passthrough as ops.
 *
 * A read or write of a passthrough file is the op that it is of any other file, and becomes a command when it is staged:
 * so credits, _exact and _all forms, retries and deadlines need to know nothing of NVMe. Each step is built anew from
 * what the op still has to move, and its completion is turned into what a file would have said: bytes, 0 or -errno. The
 * one thing that a file does not have, the device's status, stays in the op until it is started again: in io.op_flags, of
 * which these kinds use no more than the lowest bit. In flight a read or write keeps the bytes of its step there.
 *
 * What is refused is refused at staging, before the kernel sees it, with a sentence in the log; the op ends all the same.
 */
#include "sched/nvme.h"

#include <errno.h>
#include <pthread.h>

#include <martlet/file.h>
#include <martlet/nvme.h>
#include <martlet/runtime.h>

#include "sched/files.h"
#include "sched/io.h"
#include "sched/sched.h"
#include "sched/task.h"
#include "sched/worker.h"

#define STATUS_CODE 0x7ffu      /* type and code: 0 is success */
#define HAS_STATUS (1u << 31)   /* in io.op_flags: the rest is a status. No step has so many bytes */

/* ---- start --------------------------------------------------------------------------------------------------- */

/* @return 0, or why an op of this header cannot be started on a file. Outside a task: 0, the start will say so */
static int check_file(int file, enum mrt__op_kind kind)
{
	struct mrt__worker *w = mrt__worker_self;
	const struct mrt__file_use *u;

	if (!w || !w->task)
		return 0;
	u = mrt__is_handle(file) ? mrt__file_use_of(w, file) : NULL;
	if (!u)
		return -EBADF;
	if (u->flags & MRT_FILE_PASSTHROUGH)
		return 0;
	mrt__sched_log(w->sched, MRT_LOG_ERROR, "%s on file %d: it was not registered with MRT_FILE_PASSTHROUGH",
		       mrt__op_kind_name(kind), file);
	return -EOPNOTSUPP;
}

struct mrt_op *mrt_nvme_read(struct mrt_op *op, int file, void *buf, size_t len, int64_t off)
{
	int ret = check_file(file, MRT__OP_READ);

	return ret ? mrt__op_refuse(op, MRT__OP_READ, ret) : mrt_read(op, file, buf, len, off);
}

struct mrt_op *mrt_nvme_write(struct mrt_op *op, int file, const void *buf, size_t len, int64_t off)
{
	int ret = check_file(file, MRT__OP_WRITE);

	return ret ? mrt__op_refuse(op, MRT__OP_WRITE, ret) : mrt_write(op, file, buf, len, off);
}

struct mrt_op *mrt_nvme_flush(struct mrt_op *op, int file)
{
	int ret = check_file(file, MRT__OP_FSYNC);

	return ret ? mrt__op_refuse(op, MRT__OP_FSYNC, ret) : mrt_fsync(op, file);
}

struct mrt_op *mrt_nvme_identify(struct mrt_op *op, int file, unsigned cns, uint32_t nsid, void *buf)
{
	int ret = check_file(file, MRT__OP_NVME_IDENTIFY);

	if (ret)
		return mrt__op_refuse(op, MRT__OP_NVME_IDENTIFY, ret);
	return mrt__io_start(op, MRT__OP_NVME_IDENTIFY, MRT__OPF_CREDIT | MRT__OPF_BUF, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_URING_CMD, .fd = file, .addr = mrt__io_addr(buf), .len = MRT_NVME_IDENTIFY_BYTES,
		.off = (uint64_t)cns << 32 | nsid,
	});
}

struct mrt_op *mrt_nvme_command(struct mrt_op *op, int file, struct mrt_nvme_cmd *cmd, unsigned flags)
{
	int ret = cmd ? check_file(file, MRT__OP_NVME_CMD) : -EINVAL;

	if (ret)
		return mrt__op_refuse(op, MRT__OP_NVME_CMD, ret);
	cmd->status = 0;
	cmd->result = 0;
	return mrt__io_start(op, MRT__OP_NVME_CMD, MRT__OPF_CREDIT | MRT__OPF_OUT, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_URING_CMD, .fd = file, .addr = mrt__io_addr(cmd), .off = flags,
	});
}

/* The kinds that may be commands, and so have a status in io.op_flags. */
static bool is_command(const struct mrt__op *op)
{
	return mrt__op_is_rw(op) || op->kind == MRT__OP_FSYNC || op->kind == MRT__OP_FDATASYNC ||
	       op->kind == MRT__OP_NVME_CMD || op->kind == MRT__OP_NVME_IDENTIFY;
}

bool mrt__nvme_has_status(const struct mrt__op *op)
{
	return is_command(op) && op->io.op_flags & HAS_STATUS;
}

uint32_t mrt_nvme_status(const struct mrt_op *pub)
{
	const struct mrt__op *op = (const struct mrt__op *)(const void *)pub;

	/* an op that was refused at its start has the io of its last life, but no flags */
	if (op->state != MRT__OP_DONE || !(op->flags & MRT__OPF_RING) || !mrt__nvme_has_status(op))
		return 0;
	return op->io.op_flags & ~HAS_STATUS;
}

static void fill_info(const struct mrt__nvme_ns *ns, struct mrt_nvme_node *ret_node)
{
	*ret_node = (struct mrt_nvme_node){
		.blocks = ns->blocks, .nsid = ns->nsid, .block_bytes = ns->nsid ? UINT32_C(1) << ns->lba_shift : 0,
		.mdts_bytes = ns->mdts_bytes, .transfer_bytes_max = ns->transfer_bytes_max,
		.metadata_bytes = ns->meta_bytes, .has_write_cache = ns->flags & MRT__NVME_VWC ? 1 : 0,
	};
}

int mrt_nvme_info(struct mrt_runtime *rt, int file, struct mrt_nvme_node *ret_node)
{
	const struct mrt__file *f;
	struct mrt__sched *s;
	int ret = mrt__sched_find(rt, &s);

	if (ret)
		return ret;
	if (!ret_node)
		return -EINVAL;
	pthread_mutex_lock(&s->files->lock); /* no close frees it meanwhile */
	f = mrt__file_of(s->files, file);
	if (!f)
		ret = -EBADF;
	else if (!f->nvme)
		ret = -EOPNOTSUPP;
	else
		fill_info(f->nvme, ret_node);
	pthread_mutex_unlock(&s->files->lock);
	return ret;
}

/* ---- stage --------------------------------------------------------------------------------------------------- */

static bool is_write(const struct mrt__op *op)
{
	return op->kind == MRT__OP_WRITE || op->kind == MRT__OP_WRITEV;
}

static uint64_t asked_bytes(const struct mrt__op *op)
{
	const struct iovec *iov = (const struct iovec *)(uintptr_t)op->io.addr;
	uint64_t sum = 0;
	uint32_t i;

	if (!mrt__op_is_vectored(op))
		return op->io.len;
	for (i = 0; i < op->io.len; i++)
		sum += iov[i].iov_len;
	return sum;
}

static void log_refusal(const struct mrt__op *op, const char *why)
{
	mrt__sched_log(op->task->sched, MRT_LOG_ERROR, "%s", why);
}

static int64_t build_rw(struct mrt__op *op, const struct mrt__nvme_ns *ns, void *cmd, bool *ret_vector)
{
	char why[200];
	int64_t bytes;

	if (op->io.off == (uint64_t)MRT_OFF_CURRENT) {
		log_refusal(op, "a passthrough file has no position of its own: give an offset instead of MRT_OFF_CURRENT");
		return -EINVAL;
	}
	if (mrt__op_is_vectored(op))
		bytes = mrt__nvme_build_rwv(ns, is_write(op), (const struct iovec *)(uintptr_t)op->io.addr, op->io.len,
					    op->io.off, cmd, ret_vector);
	else
		bytes = mrt__nvme_build_rw(ns, is_write(op), op->io.addr, op->io.len, op->io.off, cmd);
	if (bytes == -EINVAL || bytes == -EOPNOTSUPP) {
		mrt__nvme_explain(ns, is_write(op), asked_bytes(op), op->io.off, why, sizeof(why));
		log_refusal(op, why);
	}
	if (bytes > 0)
		op->io.op_flags = (uint32_t)bytes;
	return bytes;
}

static int build_identify(const struct mrt__op *op, const struct mrt__nvme_ns *ns, void *cmd)
{
	int ret = mrt__nvme_build_identify(ns, (unsigned)(op->io.off >> 32), (uint32_t)op->io.off, op->io.addr, cmd);

	if (ret == -EOPNOTSUPP)
		log_refusal(op, "Identify is an admin command: it goes to the controller, /dev/nvmeX");
	else if (ret)
		log_refusal(op, "Identify needs memory of 4096 bytes, and a structure number of at most 255");
	return ret;
}

static int build_cmd(const struct mrt__op *op, const struct mrt__nvme_ns *ns, void *cmd)
{
	const struct mrt_nvme_cmd *asked = (const struct mrt_nvme_cmd *)(uintptr_t)op->io.addr;
	char why[200];
	int ret = mrt__nvme_build_cmd(ns, asked, (unsigned)op->io.off, cmd, why, sizeof(why));

	if (ret)
		log_refusal(op, why);
	return ret;
}

/* Has the stager found the op's memory in a registered buffer? A vectored command takes none. */
static bool is_fixed(const struct mrt__op *op, const struct mrt__ring_args *args)
{
	if (op->kind == MRT__OP_NVME_CMD)
		return args->op_flags & MRT__RING_CMD_FIXED;
	return args->opcode == MRT__OPCODE_READ_FIXED || args->opcode == MRT__OPCODE_WRITE_FIXED;
}

int32_t mrt__nvme_stage_build(struct mrt__op *op, const struct mrt__nvme_ns *ns, struct mrt__ring_args *args, void *cmd)
{
	bool fixed = is_fixed(op, args);
	uint32_t cmd_op = MRT__NVME_URING_IO;
	bool vector = false;
	int64_t ret;

	switch (op->kind) {
	case MRT__OP_READ:
	case MRT__OP_WRITE:
	case MRT__OP_READV:
	case MRT__OP_WRITEV:
		ret = build_rw(op, ns, cmd, &vector);
		if (ret <= 0)
			return (int32_t)ret;
		if (vector)
			cmd_op = MRT__NVME_URING_IO_VEC;
		break;
	case MRT__OP_FSYNC:
	case MRT__OP_FDATASYNC:
		ret = mrt__nvme_build_flush(ns, cmd);
		break;
	case MRT__OP_NVME_IDENTIFY:
		ret = build_identify(op, ns, cmd);
		cmd_op = MRT__NVME_URING_ADMIN;
		break;
	case MRT__OP_NVME_CMD:
		ret = build_cmd(op, ns, cmd);
		if (op->io.off & MRT_NVME_ADMIN)
			cmd_op = MRT__NVME_URING_ADMIN;
		break;
	default:
		mrt__sched_log(op->task->sched, MRT_LOG_ERROR, "%s on /dev/%s: a passthrough file takes reads, writes, "
			       "fsync and NVMe commands", mrt__op_kind_name(op->kind), ns->node);
		ret = -EOPNOTSUPP;
	}
	if (ret < 0)
		return (int32_t)ret;
	args->opcode = MRT__OPCODE_URING_CMD;
	args->off = cmd_op;
	args->addr = 0;
	args->len = 0;
	args->op_flags = fixed ? MRT__RING_CMD_FIXED : 0;
	if (!fixed)
		args->buf_index = 0;
	return MRT__NVME_STAGE;
}

/* ---- end ----------------------------------------------------------------------------------------------------- */

static void fill_outcome(const struct mrt__op *op, uint32_t status, uint64_t extra)
{
	struct mrt_nvme_cmd *cmd = (struct mrt_nvme_cmd *)(uintptr_t)op->io.addr;

	cmd->status = (uint16_t)status;
	cmd->result = extra;
}

int32_t mrt__nvme_end(struct mrt__op *op, int32_t res, uint64_t extra)
{
	uint32_t step = op->io.op_flags;

	if (res < 0) {
		/* the driver's word for a command that a reset of the controller took away; nobody here sent a signal */
		if (res == -EINTR && !(op->rflags & MRT__OPR_STOPPED))
			return -EIO;
		return res;
	}
	if (op->kind == MRT__OP_NVME_CMD)
		fill_outcome(op, (uint32_t)res, extra);
	if ((uint32_t)res & STATUS_CODE) {
		op->io.op_flags = (uint32_t)res | HAS_STATUS;
		return mrt__nvme_errno((uint32_t)res);
	}
	return mrt__op_is_rw(op) ? (int32_t)step : 0;
}
