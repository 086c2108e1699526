/* SPDX-License-Identifier: MIT */
/* The file or block device that is measured: safety first, then what it needs and what it is. */
#ifndef TOOLS_TARGET_H
#define TOOLS_TARGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "opts.h"

struct target {
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
};

/**
 * Open what the options name; make it where --create asks for that.
 *
 * Refuses, with a sentence on err: writes without --allow-write (unless the file is made here), devices that are
 * mounted or held, block sizes and offsets that direct I/O cannot do, regions without a single block.
 *
 * @param stop  looked at while a file is filled; non-zero gives -EINTR
 * @return 0 or -errno; on failure nothing is left behind
 */
int target_open(struct target *t, const struct bench_opts *o, const atomic_int *stop, FILE *err);

/* Remove what was made, unless it is to be kept, and close. */
void target_close(struct target *t);

/* Another open file of the same target, so that jobs do not share one reference count. @return fd or -errno */
int target_reopen(const struct target *t);

/* Read the region into the page cache. @return 0, -EINTR when stopped, or -errno */
int target_pre_read(const struct target *t, const atomic_int *stop);

/* Sentences about what will be measured that the user may not expect; to err. */
void target_warn(const struct target *t, const struct bench_opts *o, FILE *err);

/* One line: what it is. */
void target_describe(const struct target *t, char *buf, size_t buf_bytes);

#endif
