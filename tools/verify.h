/* SPDX-License-Identifier: MIT */
/*
 * Blocks that can be checked. With crc32c each block starts with a header that says where it belongs, which run wrote
 * it, for the how-manieth time, and the checksum of the whole block; the rest is a random stream that follows from
 * these, so that the first wrong byte can be named. With a pattern the block is the pattern, over and over.
 *
 * A table holds, for each block of the region, the generation written last by this run, so that a write that was lost
 * is found although the old block is intact; and a bit that marks it as in flight, since two I/Os on one block at once
 * have no defined order.
 */
#ifndef TOOLS_VERIFY_H
#define TOOLS_VERIFY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "opts.h"

#define VERIFY_MAGIC UINT64_C(0x3154454c5452414d)       /* "MARTLET1" in a little-endian dump */
#define VERIFY_TOLD_MAX 10u                             /* bad blocks described; the rest is counted */

/* First bytes of a block, native byte order. */
struct verify_header {
	uint64_t magic, offset, run_id;
	uint32_t bytes, gen;
	uint32_t crc;           /* of the block with this field 0 */
	uint32_t target;        /* number of the target in the run that wrote it */
};

struct verify {
	enum opts_verify kind;
	uint32_t bs;
	uint64_t blocks, run_id;
	const unsigned char *pattern;
	unsigned pattern_nr;
	FILE *err;
	/* [blocks] generation, 0: not written by this run; the top bit: in flight */
	_Atomic uint32_t *gens;
	_Atomic uint64_t checked, bad;
	pthread_mutex_t tell;
};

/* Where a block belongs, and what the caller knows of it. */
struct verify_place {
	uint64_t offset;
	uint32_t gen;           /* a block that was read, 0: written by whatever run, so only itself can be judged */
	uint32_t target;
	const char *path;       /* named in what is told; NULL: there is one target only */
};

/**
 * @param err  where bad blocks are told
 * @return 0, or -ENOMEM
 */
int verify_init(struct verify *v, const struct bench_opts *o, uint64_t blocks, FILE *err);
void verify_fini(struct verify *v);

/* Take a block for one I/O. @thread any @return false: somebody has it */
bool verify_try_lock(struct verify *v, uint64_t block);

/* Give it back as it was, or (gen != 0) written, or (gen == 0) in an unknown state. */
void verify_unlock(struct verify *v, uint64_t block);
void verify_unlock_written(struct verify *v, uint64_t block, uint32_t gen);

/* Generation of a block, without the mark. */
uint32_t verify_gen(const struct verify *v, uint64_t block);

/* Fill [bs] with the block of this place. */
void verify_fill(const struct verify *v, void *buf, const struct verify_place *at);

/**
 * Judge a block.
 *
 * @thread  any
 * @param buf  [bs] as read
 * @return true: as expected; false: counted, and told on err
 */
bool verify_check(struct verify *v, const void *buf, const struct verify_place *want);

#endif
