/* SPDX-License-Identifier: MIT */
/* Type information (BTF) for the blocks of statistics, made from their tables. */
#ifndef MRT_PROBE_BTF_H
#define MRT_PROBE_BTF_H

#include <stddef.h>
#include <stdint.h>

#include "probe/stat.h"

#define MRT__BTF_KEY_ID 1u      /* the type of every map's key: u32, made first */

struct mrt__btf {
	void *blob;
	size_t bytes;
	uint32_t type_ids[MRT__STAT_BLOCKS_NR]; /* of the blocks' structs */
};

/* @thread the builder @return 0, -ENOMEM */
int mrt__btf_build(struct mrt__btf *ret_btf);
void mrt__btf_free(struct mrt__btf *btf);

/* Build and give to the kernel. @thread the builder @return a descriptor, -errno (mostly -EPERM: no CAP_BPF) */
int mrt__btf_load(uint32_t ret_type_ids[MRT__STAT_BLOCKS_NR]);

#endif
