/* SPDX-License-Identifier: MIT */
/* The files and block devices that are measured: safety first, then what they need and what they are. */
#ifndef TOOLS_TARGET_H
#define TOOLS_TARGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "opts.h"
#include "sys.h"

struct target {
	unsigned idx;                   /* in the list */
	const char *path;               /* as given, or as made */
	char made_path[4096];
	int fd;                         /* holds it open (and a device exclusively) for the whole run */
	int open_flags;
	bool is_block, is_made;
	uint64_t bytes;                 /* all of it */
	uint64_t off, len;              /* region that is measured; len is a multiple of bs */
	uint32_t mem_align, off_align;  /* for direct I/O, bytes */
	bool align_reported;            /* by statx; else the logical block size was taken */
	bool has_holes;
	uint32_t logical_block;
	unsigned major, minor;          /* of the device, or of the one below the file system */
	char fs[32], source[256];       /* files: file system and what it is mounted from */
	char disk[64], model[80], scheduler[32];        /* "" where unknown */
	unsigned nr_requests;
	bool io_poll, rotational;
	bool disk_known;                /* the next two are */
	struct sys_disk_stat disk_begin;
	uint64_t disk_begin_ns;
	bool is_nvme;                   /* an NVMe character device: commands, no file operations */
	uint32_t nvme_nsid;
	unsigned nvme_lba_shift;
	int held_fd;                    /* its block device, held while commands write; else -1 */
};

struct targets {
	struct target *t;               /* [nr] */
	unsigned nr;
	uint64_t len;                   /* of all regions */
};

/**
 * Open what the options name; make it where --create asks for that.
 *
 * Refuses, with a sentence on err: writes without --allow-write (unless the file is made here), devices that are
 * mounted or held, one target under two names, block sizes and offsets that direct I/O cannot do, regions without a
 * block for each job.
 *
 * @param stop  looked at while a file is filled; non-zero gives -EINTR
 * @return 0 or -errno; on failure nothing is left behind
 */
int targets_open(struct targets *ts, const struct bench_opts *o, const atomic_int *stop, FILE *err);

/* Close; what was made and is not to be kept has no name any more, so it is gone then. */
void targets_close(struct targets *ts);

/* Another open file of the same target, so that jobs do not share one reference count. @return fd or -errno */
int target_reopen(const struct target *t, const struct bench_opts *o);

/* Read all regions into the page cache. @return 0, -EINTR when stopped, or -errno */
int targets_pre_read(const struct targets *ts, const atomic_int *stop);

/* Remember what the disks had done by now, for the report's disk_util. */
void targets_note_disks(struct targets *ts);

/* Sentences about what will be measured that the user may not expect; to err. */
void targets_warn(const struct targets *ts, const struct bench_opts *o, FILE *err);

/* One line: what it is. */
void target_describe(const struct target *t, char *buf, size_t buf_bytes);

#endif
