/* SPDX-License-Identifier: MIT */
/*
 * Order of judgement for crc32c: is it a block of ours at all, does it belong here (misdirected write), is it intact
 * (checksum), is it the newest (lost write). The first answer is told.
 */
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "crc32c.h"
#include "rng.h"

#define IN_FLIGHT (UINT32_C(1) << 31)

int verify_init(struct verify *v, const struct bench_opts *o, uint64_t blocks, FILE *err)
{
	memset(v, 0, sizeof(*v));
	v->kind = o->verify;
	v->bs = (uint32_t)o->bs;
	v->blocks = blocks;
	v->pattern = o->pattern;
	v->pattern_nr = o->pattern_nr;
	v->err = err;
	if (getrandom(&v->run_id, sizeof(v->run_id), 0) != sizeof(v->run_id))
		v->run_id = clock_ns();         /* no entropy yet: it only has to differ from the last run's */
	v->gens = calloc(blocks, sizeof(*v->gens));
	if (!v->gens)
		return -ENOMEM;
	(void)pthread_mutex_init(&v->tell, NULL); /* cannot fail with default attributes */
	return 0;
}

void verify_fini(struct verify *v)
{
	free(v->gens);
	v->gens = NULL;
	(void)pthread_mutex_destroy(&v->tell);
}

bool verify_try_lock(struct verify *v, uint64_t block)
{
	/* [GENS.busy.acq] the generation as the last holder left it; pairs with [GENS.busy.rel] */
	return !(atomic_fetch_or_explicit(&v->gens[block], IN_FLIGHT, memory_order_acquire) & IN_FLIGHT);
}

void verify_unlock(struct verify *v, uint64_t block)
{
	/* [GENS.busy.rel] pairs with [GENS.busy.acq] */
	atomic_fetch_and_explicit(&v->gens[block], ~IN_FLIGHT, memory_order_release);
}

void verify_unlock_written(struct verify *v, uint64_t block, uint32_t gen)
{
	/* [GENS.busy.rel] pairs with [GENS.busy.acq] */
	atomic_store_explicit(&v->gens[block], gen & ~IN_FLIGHT, memory_order_release);
}

uint32_t verify_gen(const struct verify *v, uint64_t block)
{
	/* relaxed: the holder's own, or read after all writers have ended */
	return atomic_load_explicit(&v->gens[block], memory_order_relaxed) & ~IN_FLIGHT;
}

/* --- contents --- */

static uint32_t block_crc(const void *buf, uint32_t bytes)
{
	struct verify_header h;
	uint32_t crc;

	memcpy(&h, buf, sizeof(h));
	h.crc = 0;
	crc = crc32c(0, &h, sizeof(h));
	return crc32c(crc, (const char *)buf + sizeof(h), bytes - sizeof(h));
}

/* Everything but the checksum. */
static void fill_block(void *buf, const struct verify_header *h)
{
	uint64_t state = rng_seed(h->offset ^ h->run_id ^ (uint64_t)h->gen << 32);
	char *at = buf;

	memcpy(at, h, sizeof(*h));
	for (uint32_t i = sizeof(*h); i + 8 <= h->bytes; i += 8) {
		uint64_t word = rng_next(&state);

		memcpy(at + i, &word, 8);
	}
}

static void fill_pattern(const struct verify *v, void *buf)
{
	unsigned char *at = buf;

	for (uint32_t i = 0; i < v->bs; i++)
		at[i] = v->pattern[i % v->pattern_nr];
}

void verify_fill(const struct verify *v, void *buf, const struct verify_place *at)
{
	struct verify_header h = {
		.magic = VERIFY_MAGIC, .offset = at->offset, .run_id = v->run_id, .bytes = v->bs, .gen = at->gen,
		.target = at->target,
	};

	if (v->kind == VERIFY_PATTERN) {
		fill_pattern(v, buf);
		return;
	}
	fill_block(buf, &h);
	h.crc = block_crc(buf, v->bs);
	memcpy((char *)buf + offsetof(struct verify_header, crc), &h.crc, sizeof(h.crc));
}

/* --- judgement --- */

/* Count a bad block; true: it may be described, and the caller unlocks. */
static bool begin_telling(struct verify *v, const struct verify_place *at)
{
	/* relaxed: counters */
	if (atomic_fetch_add_explicit(&v->bad, 1, memory_order_relaxed) >= VERIFY_TOLD_MAX)
		return false;
	(void)pthread_mutex_lock(&v->tell);
	fprintf(v->err, "verify: bad block%s%s at offset %" PRIu64 " (%" PRIu32 " bytes): ", at->path ? " of " : "",
		at->path ? at->path : "", at->offset, v->bs);
	return true;
}

static void end_telling(struct verify *v)
{
	fputc('\n', v->err);
	(void)pthread_mutex_unlock(&v->tell);
}

static void tell_first_difference(struct verify *v, const void *got, const void *want, uint64_t offset)
{
	const unsigned char *g = got, *w = want;

	for (uint32_t i = 0; i < v->bs; i++) {
		if (g[i] != w[i]) {
			fprintf(v->err, "first wrong byte at offset %" PRIu64 ": expected 0x%02x, got 0x%02x",
				offset + i, w[i], g[i]);
			return;
		}
	}
}

static bool check_pattern(struct verify *v, const void *buf, const struct verify_place *at)
{
	void *want = malloc(v->bs);
	bool good;

	if (!want)
		abort();        /* a check that cannot be made must not look like one that passed */
	fill_pattern(v, want);
	good = memcmp(buf, want, v->bs) == 0;
	if (!good && begin_telling(v, at)) {
		tell_first_difference(v, buf, want, at->offset);
		end_telling(v);
	}
	free(want);
	return good;
}

static void tell_bad_crc(struct verify *v, const void *buf, const struct verify_header *h, uint32_t crc)
{
	struct verify_header clean = *h;
	char *want = malloc(v->bs);

	fprintf(v->err, "crc32c expected 0x%08" PRIx32 " (stored), got 0x%08" PRIx32 " (of the data); ", h->crc, crc);
	if (!want)
		return;
	fill_block(want, &clean);
	tell_first_difference(v, buf, want, h->offset);
	free(want);
}

static bool tell_bad_header(struct verify *v, const struct verify_header *h, const struct verify_place *want)
{
	if (!begin_telling(v, want))
		return false;
	if (h->magic != VERIFY_MAGIC)
		fprintf(v->err, "no block of martlet bench: expected magic 0x%016" PRIx64 ", got 0x%016" PRIx64,
			VERIFY_MAGIC, h->magic);
	else if (h->bytes != v->bs)
		fprintf(v->err, "written with --bs=%" PRIu32 ", read with --bs=%" PRIu32, h->bytes, v->bs);
	else if (h->offset != want->offset)
		fprintf(v->err, "it holds the block of offset %" PRIu64, h->offset);
	else
		fprintf(v->err, "it holds this offset's block of target %" PRIu32 ", not of %" PRIu32, h->target,
			want->target);
	end_telling(v);
	return false;
}

static bool check_crc32c(struct verify *v, const void *buf, const struct verify_place *want)
{
	struct verify_header h;
	uint32_t crc;

	memcpy(&h, buf, sizeof(h));
	/* another run may have had its targets in another order */
	if (h.magic != VERIFY_MAGIC || h.bytes != v->bs || h.offset != want->offset ||
	    (h.run_id == v->run_id && h.target != want->target))
		return tell_bad_header(v, &h, want);
	crc = block_crc(buf, v->bs);
	if (crc != h.crc) {
		if (begin_telling(v, want)) {
			tell_bad_crc(v, buf, &h, crc);
			end_telling(v);
		}
		return false;
	}
	if (want->gen && (h.run_id != v->run_id || h.gen != want->gen)) {
		if (begin_telling(v, want)) {
			fprintf(v->err, "a write was lost: expected generation %" PRIu32 " of this run, got %" PRIu32
				" of %s", want->gen, h.gen, h.run_id == v->run_id ? "this run" : "another run");
			end_telling(v);
		}
		return false;
	}
	return true;
}

bool verify_check(struct verify *v, const void *buf, const struct verify_place *want)
{
	atomic_fetch_add_explicit(&v->checked, 1, memory_order_relaxed); /* relaxed: a counter */
	if (v->kind == VERIFY_PATTERN)
		return check_pattern(v, buf, want);
	return check_crc32c(v, buf, want);
}
