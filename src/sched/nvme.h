/* SPDX-License-Identifier: MIT */
/*
 * NVMe commands: what a namespace takes, commands built and checked, statuses in errno and in words. Pure but for
 * mrt__nvme_identify(), which asks the device at registration. nvme_ops.c joins it with ops.
 */
#ifndef MRT_SCHED_NVME_H
#define MRT_SCHED_NVME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <martlet/nvme.h>

#include "ring/ring.h"

struct mrt__op;

/* A namespace, or a controller: const after mrt__nvme_identify(). */
struct mrt__nvme_ns {
	uint64_t blocks;                /* logical blocks */
	uint32_t nsid;                  /* 0: a controller's node, which takes admin commands only */
	uint32_t mdts_bytes;            /* what the device takes in one command; 0: no limit */
	uint32_t transfer_bytes_max;    /* what a read or write is cut to: a multiple of the block, > 0 */
	uint16_t meta_bytes;            /* per block */
	uint8_t lba_shift;              /* 9..16 */
	uint8_t flags;                  /* MRT__NVME_* */
	char node[24];                  /* "ng0n1", "nvme0" */
	char disk[24];                  /* "nvme0n1": the block device of the same namespace; "": none */
};

#define MRT__NVME_EXTENDED (1u << 0)    /* metadata travels behind each block's data, not apart */
#define MRT__NVME_PI (1u << 1)          /* the metadata is protection information alone: PRACT leaves it out */
#define MRT__NVME_VWC (1u << 2)         /* has a volatile write cache */

/**
 * Ask the device behind a descriptor what it is.
 *
 * @blocks  for two or three admin commands
 * @param ret_ns  the namespace; all zero but for the limits and names if it is a controller's node
 * @param why     [why_bytes] on failure a sentence; on success "", or what does not work with this namespace
 * @return 0; -EOPNOTSUPP (no NVMe character node, a block node), -EACCES (not allowed to ask), or what the kernel says
 */
int mrt__nvme_identify(int fd, struct mrt__nvme_ns *ret_ns, char *why, size_t why_bytes);

/* The same from a device's answers. @param id_ns, id_ctrl [4096] @return as above */
int mrt__nvme_parse(uint32_t nsid, const uint8_t *id_ns, const uint8_t *id_ctrl, struct mrt__nvme_ns *ret_ns, char *why,
		    size_t why_bytes);

/* Lower transfer_bytes_max to what the block device's queue takes; 0: unknown. */
void mrt__nvme_limit(struct mrt__nvme_ns *ns, uint32_t sectors_kib, uint32_t segments);

/**
 * Build a read or write command.
 *
 * @param off      bytes
 * @param ret_cmd  [MRT__RING_CMD_BYTES], written if the result is > 0
 * @return bytes that the command moves, a multiple of the block, at most len; 0: nothing to do (len 0, a read at or
 *         beyond the end); -EINVAL misaligned; -ENOSPC a write at or beyond the end; -EOPNOTSUPP metadata, or no namespace
 */
int64_t mrt__nvme_build_rw(const struct mrt__nvme_ns *ns, bool write, uint64_t addr, uint32_t len, uint64_t off,
			   void *ret_cmd);

/**
 * The same for segments. The command takes the longest run of whole segments that is possible, or a part of the first.
 *
 * @param iov         [iov_nr]
 * @param ret_vector  true: the command is one of MRT__NVME_URING_IO_VEC
 * @return as above
 */
int64_t mrt__nvme_build_rwv(const struct mrt__nvme_ns *ns, bool write, const struct iovec *iov, uint32_t iov_nr,
			    uint64_t off, void *ret_cmd, bool *ret_vector);

/* Build a flush. @return 0, -EOPNOTSUPP: no namespace */
int mrt__nvme_build_flush(const struct mrt__nvme_ns *ns, void *ret_cmd);

/* Build an Identify. @param buf [4096] @return 0, -EINVAL: buf NULL or cns > 255; -EOPNOTSUPP: not a controller's node */
int mrt__nvme_build_identify(const struct mrt__nvme_ns *ns, unsigned cns, uint32_t nsid, uint64_t buf, void *ret_cmd);

/**
 * Check and build a caller's command.
 *
 * @param flags  MRT_NVME_*
 * @param why    [why_bytes] on failure what is wrong
 * @return 0, -EINVAL, -EOPNOTSUPP: the wrong node
 */
int mrt__nvme_build_cmd(const struct mrt__nvme_ns *ns, const struct mrt_nvme_cmd *cmd, unsigned flags, void *ret_cmd,
			char *why, size_t why_bytes);

/* What is wrong with a read or write that mrt__nvme_build_rw() refused, in words. */
void mrt__nvme_explain(const struct mrt__nvme_ns *ns, bool write, uint64_t len, uint64_t off, char *text, size_t text_bytes);

/* A status as the errno that the block layer makes of it: 0, or -errno. */
int32_t mrt__nvme_errno(uint32_t status);

/* ---- for the stager and the reaper (nvme_ops.c) ---- */

/* The kernel's ioctl numbers, which are cmd_op of URING_CMD. */
#define MRT__NVME_URING_IO 0xc0484e80u
#define MRT__NVME_URING_IO_VEC 0xc0484e81u
#define MRT__NVME_URING_ADMIN 0xc0484e82u

#define MRT__NVME_STAGE 1

/**
 * Fill in what a passthrough op is staged as. Kinds: READ, WRITE, READV, WRITEV, FSYNC, FDATASYNC, NVME_CMD,
 * NVME_IDENTIFY; others are refused. Looks at kind and io; keeps the bytes of this step in io.op_flags of reads and writes.
 *
 * @thread  the ring's owner
 * @param args   in: fd, sqe_flags; and where the memory lies in a registered buffer its buf_index, with the opcode of a fixed
 *               read or write, or for a command of the caller's MRT__RING_CMD_FIXED in op_flags. All else is written
 * @param cmd    [MRT__RING_CMD_BYTES]
 * @return MRT__NVME_STAGE: stage them; else the op (this step of it) is over without the kernel, with this result: 0 or
 *         -errno. What was wrong has been logged.
 */
int32_t mrt__nvme_stage_build(struct mrt__op *op, const struct mrt__nvme_ns *ns, struct mrt__ring_args *args, void *cmd);

/**
 * A completion of a passthrough op, as if a file had done it: bytes, 0 or -errno. Keeps the status for mrt_nvme_status()
 * and fills a command's outcome in.
 *
 * @thread  the ring's owner, before the step logic of op.c
 * @param res    of the CQE
 * @param extra  mrt__ring_extra() of the CQE
 */
int32_t mrt__nvme_end(struct mrt__op *op, int32_t res, uint64_t extra);

/* Did the device end this step, with a status? Then the result is its answer: not one to be tried again on a lower rung. */
bool mrt__nvme_has_status(const struct mrt__op *op);

#endif
