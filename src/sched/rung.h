/* SPDX-License-Identifier: MIT */
/* Which rung of the ladder a file is on: what the kernel says of its device, a trial of polling, and the report's words. */
#ifndef MRT_SCHED_RUNG_H
#define MRT_SCHED_RUNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <martlet/file.h>

#include "sched/sysfs.h"

struct mrt__nvme_ns;

/**
 * What direct I/O on a file must be a multiple of.
 *
 * @param ret_mem  addresses
 * @param ret_off  offsets and lengths; 0: this file has no direct I/O
 * @return false: the kernel does not say
 */
bool mrt__rung_alignment(int fd, uint32_t *ret_mem, uint32_t *ret_off);

enum mrt__rung_kind {
	MRT__RUNG_REGULAR,
	MRT__RUNG_BLOCK,
	MRT__RUNG_NVME,         /* a passthrough node */
	MRT__RUNG_OTHER,        /* pipes, sockets, terminals, ... */
};

/* What is known of a descriptor, without doing I/O. */
struct mrt__rung_dev {
	enum mrt__rung_kind kind;
	bool direct;            /* open with O_DIRECT */
	bool no_direct;         /* the kernel says that this file cannot */
	int8_t io_poll;         /* the queue's: 1, 0; -1: no queue, or unknown */
	uint32_t align_mem;     /* statx's; 0: unknown */
	uint32_t align_off;
	char disk[MRT__SYSFS_NAME]; /* the block device below: "nvme0n1", "dm-0"; "": none, or unknown */
};

/**
 * Look at a descriptor.
 *
 * @blocks  for a look into sysfs
 * @param ns  it is a passthrough node, of this namespace; NULL: it is not
 * @return 0, -EBADF and the like
 */
int mrt__rung_look(int fd, const struct mrt__nvme_ns *ns, struct mrt__rung_dev *ret_dev);

/* All that a report is made of. */
struct mrt__rung_facts {
	struct mrt__rung_dev dev;
	bool fixed_buffer;
	bool buffer_refused;    /* passthrough: the kernel refused registered buffers in its commands */
	bool fixed_file;
	bool handle;            /* was registered, whether or not the rings took it */
	bool polled_asked;
	bool polled;
	bool hybrid_asked;
	bool hybrid;
	bool passthrough;
	const char *buffer_why; /* why not a fixed buffer; NULL or "": the memory is none of mrt_alloc() */
	const char *file_why;   /* why the rings did not take a registered file; NULL or "": unknown */
	const char *polled_why; /* why polling was refused: from mrt__rung_poll_trial(); NULL or "": what dev says */
};

/* Make the report, text and all. */
void mrt__rung_report(const struct mrt__rung_facts *facts, struct mrt_rung_report *ret_report);

/**
 * Can reads and writes of a descriptor be polled for? Looks at its queue's io_poll, and tries one read on a ring of its
 * own: on 6.1 a device without poll queues completes polled reads silently by interrupt, so that the trial alone would say
 * yes; and io_poll says nothing of file systems that cannot, so that it would, too.
 *
 * @thread  any
 * @blocks  until the read has completed, at most 2 s
 * @param ns         as mrt__rung_look()
 * @param hybrid     try with hybrid polling too
 * @param ret_hybrid on success: was it granted?
 * @param why        [why_bytes] on failure the reason, as it stands in the report behind "not polled: "; else ""
 * @return 0, -EOPNOTSUPP it cannot; -ENOMEM, -EMFILE and the like: it could not be found out
 */
int mrt__rung_poll_trial(int fd, const struct mrt__nvme_ns *ns, bool hybrid, bool *ret_hybrid, char *why, size_t why_bytes);

/**
 * What one polled read or write of a descriptor may move. The block layer refuses to split what is polled: kernel 6.1 then
 * tries it again in io-wq, without end and on a whole CPU. So what it might have to split is not polled.
 *
 * @blocks  for a look into sysfs
 * @param ns  as mrt__rung_look(): passthrough splits nothing
 */
uint32_t mrt__rung_polled_max(int fd, const struct mrt__nvme_ns *ns);

/* ... and may a vectored one be polled? Segments that begin or end within a page cannot be one request, either. */
bool mrt__rung_polled_takes(uint32_t bytes_max, const struct iovec *iov, unsigned iov_nr);

#endif
