/* SPDX-License-Identifier: MIT */
/*
 * NVMe passthrough: commands that go to the device without the block layer, through the character node of a namespace
 * (/dev/ngXnY) or of a controller (/dev/nvmeX: admin commands only). The runtime needs MRT_RUNTIME_NVME, and the
 * descriptor must have been registered with MRT_FILE_PASSTHROUGH. On x86-64 each worker of such a runtime has one io-wq thread
 * for files instead of 16, but for MRT_RUNTIME_SQPOLL: with more, some kernels cut addresses (docs/nvme.md).
 *
 * There is no page cache, no scheduler, no partition and nothing that retries. Offsets are bytes from the start of the
 * namespace. Offset and length must be multiples of its logical block; the address may be any.
 *
 * mrt_read(), mrt_write(), their _exact, _all and vectored forms, mrt_fsync() and mrt_fdatasync() on such a file do the
 * same as the functions of this header.
 *
 * For every op here:
 *
 * @thread  the running task's worker (elsewhere the op completes with -EINVAL and the log says how)
 * @owner   op, command and buffers are the runtime's until the op completes
 * @blocks  never
 * @result  >= 0, or -errno; besides those of file.h:
 *          -EBADF       file is no registered file
 *          -EOPNOTSUPP  not registered with MRT_FILE_PASSTHROUGH; the wrong node (an I/O command on the controller's, an
 *                       admin command on the namespace's); a read or write on a namespace with metadata; the device
 *                       does not know the command
 *          -EINVAL      the length is not that of the blocks which the command moves, or another argument is wrong: the
 *                       log says which; nothing was sent
 *          -EACCES      the kernel does not let this user send the command
 *          -EIO         the controller was reset, or failed with a status that has no errno of its own
 *          and what the block layer makes of the other statuses: -ENODATA for a media error, -ENOSPC for a full device,
 *          -EREMOTEIO for a block out of range, -EILSEQ, -EBADE, -ENOLINK. mrt_nvme_status() has the device's own word.
 * @return op
 */
#ifndef MARTLET_NVME_H
#define MARTLET_NVME_H

#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>
#include <martlet/op.h>
#include <martlet/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MRT_NVME_IDENTIFY_BYTES 4096u

/*
 * A command, for mrt_nvme_command(): the caller fills in all but result and status; zero what is not used. Names and
 * numbers are those of the NVMe specification; values are in the CPU's byte order.
 */
struct mrt_nvme_cmd {
	uint8_t opcode;
	uint8_t flags;          /* 0: the kernel takes nothing else */
	uint16_t status;        /* written at completion: 0, or as mrt_nvme_status() */
	uint32_t nsid;          /* on /dev/ngXnY the node's own: see mrt_nvme_info() */
	uint32_t cdw2;
	uint32_t cdw3;
	uint32_t cdw10;
	uint32_t cdw11;
	uint32_t cdw12;
	uint32_t cdw13;
	uint32_t cdw14;
	uint32_t cdw15;
	void *data;             /* [data_bytes], or NULL */
	void *metadata;         /* [metadata_bytes], or NULL */
	uint32_t data_bytes;
	uint32_t metadata_bytes;
	uint32_t timeout_ms;    /* after which the kernel resets the controller; 0: its own, 30 or 60 s */
	uint32_t mrt__reserved; /* 0 */
	uint64_t result;        /* written at completion: dwords 0 and 1 of the completion entry */
};

#define MRT_NVME_ADMIN (1u << 0) /* an admin command: needs /dev/nvmeX */

/**
 * Read blocks. One command: longer than the device takes at once is cut, and so is what goes beyond the last block.
 *
 * @param file  of mrt_file_register()
 * @param buf   [len]
 * @param len   a multiple of the logical block
 * @param off   >= 0, a multiple of the logical block
 * @result  bytes, may be short; 0 at or beyond the end
 */
MRT_API struct mrt_op *mrt_nvme_read(struct mrt_op *op, int file, void *buf, size_t len, int64_t off);

/* Write blocks; parameters as mrt_nvme_read. @result bytes, may be short; -ENOSPC at or beyond the end */
MRT_API struct mrt_op *mrt_nvme_write(struct mrt_op *op, int file, const void *buf, size_t len, int64_t off);

/* Make what was written durable: empty the device's write cache. Writes in flight are not waited for. @result 0 */
MRT_API struct mrt_op *mrt_nvme_flush(struct mrt_op *op, int file);

/**
 * The Identify command. On /dev/nvmeX only: it is an admin command.
 *
 * @param cns   which structure: 0 a namespace, 1 the controller, 2 the list of namespaces, ...
 * @param nsid  0 where the structure is none of a namespace
 * @param buf   [MRT_NVME_IDENTIFY_BYTES]
 * @result  0
 */
MRT_API struct mrt_op *mrt_nvme_identify(struct mrt_op *op, int file, unsigned cns, uint32_t nsid, void *buf);

/**
 * Send a command.
 *
 * The kernel does not compare data_bytes with what the command moves, and a device that moves more than that writes over
 * memory. So the library does, for every I/O command whose length it knows (read, write, compare, zone append, dataset
 * management, copy, reservations, those without data, ...) and for the admin commands Identify and Get Log Page. For
 * others, vendors' among them, data_bytes is believed: it must be no less than what the device moves.
 *
 * @param cmd    result and status are written when the op completes
 * @param flags  0 or MRT_NVME_ADMIN
 * @result  0; the outcome is in cmd
 */
MRT_API struct mrt_op *mrt_nvme_command(struct mrt_op *op, int file, struct mrt_nvme_cmd *cmd, unsigned flags);

/**
 * The status that the device ended an op with: bits 0-7 the code, 8-10 its type, 11-12 the retry delay's index, 13 more
 * in the error log, 14 do not retry.
 *
 * @thread  the running task that started the op, after delivery
 * @return 0: success, or no NVMe status is behind this op's result
 */
MRT_API uint32_t mrt_nvme_status(const struct mrt_op *op);

/**
 * A status in the specification's words.
 *
 * @thread  any
 * @param ret_text    [text_bytes] NUL-terminated, cut to fit; 160 are enough
 * @return ret_text
 */
MRT_API const char *mrt_nvme_status_text(uint32_t status, char *ret_text, size_t text_bytes);

struct mrt_nvme_node {
	uint64_t blocks;                /* logical blocks of the namespace */
	uint32_t nsid;                  /* 0: a controller's node; then all but mdts_bytes is 0 */
	uint32_t block_bytes;           /* of a logical block, without metadata */
	uint32_t mdts_bytes;            /* what the device takes in one command; 0: no limit */
	uint32_t transfer_bytes_max;    /* what one read or write is cut to: mdts and the kernel's limits */
	uint32_t metadata_bytes;        /* per block; reads and writes are refused unless 0 */
	uint32_t has_write_cache;       /* 1: writes are durable after a flush only */
};

/**
 * What is known of a passthrough file's namespace.
 *
 * @thread  any
 * @blocks  for a short lock
 * @param rt  NULL: the running task's
 * @return 0, -EINVAL, -EBADF (no registered file), -EOPNOTSUPP (not MRT_FILE_PASSTHROUGH), -ECHILD
 */
MRT_API int mrt_nvme_info(struct mrt_runtime *rt, int file, struct mrt_nvme_node *ret_node);

#ifdef __cplusplus
}
#endif

#endif
