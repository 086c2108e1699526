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
	uint32_t zero;
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

/* What the caller knows of a block that it read. */
struct verify_expect {
	uint64_t offset;
	uint32_t gen;           /* 0: written by whatever run, so only the block itself can be judged */
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

/* Fill [bs] with the block of this offset and generation. */
void verify_fill(const struct verify *v, void *buf, uint64_t offset, uint32_t gen);

/**
 * Judge a block.
 *
 * @thread  any
 * @param buf  [bs] as read
 * @return true: as expected; false: counted, and told on err
 */
bool verify_check(struct verify *v, const void *buf, const struct verify_expect *want);

#endif
