/* SPDX-License-Identifier: MIT */
/*
 * BTF by hand: a header, types, strings (Linux Documentation/bpf/btf.rst). Types are numbered from 1 in the order in which
 * they are put. Integers, enums, arrays and structs are all that the blocks need; their fields come from the tables of
 * stat.c. By hand because the library has no other use for libbpf, and because a compiler's BTF (gcc 12) is refused by
 * kernels for its signed char.
 */
#include "probe/btf.h"

#include <errno.h>
#include <linux/btf.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "probe/map.h"

#define TYPES_BYTES 8192u
#define STRINGS_BYTES 8192u

struct builder {
	uint32_t types_used, strings_used, last_id;
	char types[TYPES_BYTES];
	char strings[STRINGS_BYTES];
};

static uint32_t put_string(struct builder *b, const char *s)
{
	uint32_t at = b->strings_used;
	size_t bytes = strlen(s) + 1;

	mrt__assert(at + bytes <= STRINGS_BYTES);
	memcpy(b->strings + at, s, bytes);
	b->strings_used += (uint32_t)bytes;
	return at;
}

static void put(struct builder *b, const void *bytes, size_t nr)
{
	mrt__assert(b->types_used + nr <= TYPES_BYTES);
	memcpy(b->types + b->types_used, bytes, nr);
	b->types_used += (uint32_t)nr;
}

/* Begin a type; what belongs to it is put behind it. @return its id */
static uint32_t put_type(struct builder *b, const char *name, uint32_t kind, uint32_t vlen, uint32_t size)
{
	struct btf_type t = { .name_off = name ? put_string(b, name) : 0, .info = kind << 24 | vlen, .size = size };

	put(b, &t, sizeof(t));
	return ++b->last_id;
}

static uint32_t put_int(struct builder *b, const char *name, uint32_t bytes, uint32_t encoding)
{
	uint32_t id = put_type(b, name, BTF_KIND_INT, 0, bytes), data = encoding << 24 | bytes * 8;

	put(b, &data, sizeof(data));
	return id;
}

static void put_enumerator(struct builder *b, const char *name, int32_t value)
{
	struct btf_enum e = { .name_off = put_string(b, name), .val = value };

	put(b, &e, sizeof(e));
}

static uint32_t put_array(struct builder *b, uint32_t type_id, uint32_t index_id, uint32_t nr)
{
	struct btf_array a = { .type = type_id, .index_type = index_id, .nelems = nr };
	uint32_t id = put_type(b, NULL, BTF_KIND_ARRAY, 0, 0);

	put(b, &a, sizeof(a));
	return id;
}

#define MRT__ONE(...) +1
#define MRT__STATE(NAME, value, text) put_enumerator(b, "MRT_WORKER_" #NAME, value);
#define MRT__TIMING(NAME, value, text) put_enumerator(b, "MRT_TIMING_" #NAME, value);

static void put_scalars(struct builder *b, uint32_t ret_ids[MRT__STAT_TYPES_NR])
{
	ret_ids[MRT__STAT_u32] = put_int(b, "u32", 4, 0);
	mrt__assert(ret_ids[MRT__STAT_u32] == MRT__BTF_KEY_ID);
	ret_ids[MRT__STAT_i32] = put_int(b, "s32", 4, BTF_INT_SIGNED);
	ret_ids[MRT__STAT_u64] = put_int(b, "u64", 8, 0);
	ret_ids[MRT__STAT_i64] = put_int(b, "s64", 8, BTF_INT_SIGNED);
	ret_ids[MRT__STAT_char] = put_int(b, "char", 1, 0);
	ret_ids[MRT__STAT_worker_state] =
		put_type(b, "mrt_worker_state", BTF_KIND_ENUM, 0 MRT_WORKER_STATES(MRT__ONE), 4);
	MRT_WORKER_STATES(MRT__STATE)
	ret_ids[MRT__STAT_timing] = put_type(b, "mrt_timing", BTF_KIND_ENUM, 0 MRT_TIMINGS(MRT__ONE), 4);
	MRT_TIMINGS(MRT__TIMING)
}

static uint32_t put_block(struct builder *b, const struct mrt__stat_block *block,
			  const uint32_t scalar_ids[MRT__STAT_TYPES_NR])
{
	uint32_t ids[128], i, id;

	mrt__assert(block->fields_nr <= MRT__ARRAY_NR(ids));
	/* a type's own data follows it, so arrays come before the struct that has them */
	for (i = 0; i < block->fields_nr; i++) {
		const struct mrt__stat_field *f = &block->fields[i];

		ids[i] = scalar_ids[f->type];
		if (f->nr)
			ids[i] = put_array(b, ids[i], scalar_ids[MRT__STAT_u32], f->nr);
	}
	id = put_type(b, block->struct_name, BTF_KIND_STRUCT, block->fields_nr, block->bytes);
	for (i = 0; i < block->fields_nr; i++) {
		struct btf_member m = { .name_off = put_string(b, block->fields[i].name), .type = ids[i],
					.offset = block->fields[i].offset * 8 };

		put(b, &m, sizeof(m));
	}
	return id;
}

int mrt__btf_build(struct mrt__btf *ret_btf)
{
	struct builder *b = calloc(1, sizeof(*b));
	struct btf_header h = { .magic = BTF_MAGIC, .version = BTF_VERSION, .hdr_len = sizeof(h) };
	uint32_t scalar_ids[MRT__STAT_TYPES_NR];
	unsigned i;
	char *blob;

	memset(ret_btf, 0, sizeof(*ret_btf));
	if (!b)
		return -ENOMEM;
	(void)put_string(b, ""); /* offset 0 is "no name" */
	put_scalars(b, scalar_ids);
	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++)
		ret_btf->type_ids[i] = put_block(b, &mrt__stat_blocks[i], scalar_ids);

	h.type_len = h.str_off = b->types_used;
	h.str_len = b->strings_used;
	ret_btf->bytes = sizeof(h) + h.type_len + h.str_len;
	blob = malloc(ret_btf->bytes);
	if (blob) {
		memcpy(blob, &h, sizeof(h));
		memcpy(blob + sizeof(h), b->types, h.type_len);
		memcpy(blob + sizeof(h) + h.type_len, b->strings, h.str_len);
	}
	free(b);
	ret_btf->blob = blob;
	return blob ? 0 : -ENOMEM;
}

void mrt__btf_free(struct mrt__btf *btf)
{
	free(btf->blob);
	btf->blob = NULL;
}

int mrt__btf_load(uint32_t ret_type_ids[MRT__STAT_BLOCKS_NR])
{
	struct mrt__btf btf;
	int ret = mrt__btf_build(&btf);

	if (ret)
		return ret;
	memcpy(ret_type_ids, btf.type_ids, sizeof(btf.type_ids));
	ret = mrt__map_btf_load(btf.blob, btf.bytes);
	mrt__btf_free(&btf);
	return ret;
}
