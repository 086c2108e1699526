/* SPDX-License-Identifier: MIT */
/*
 * Kernel constants that are newer than the packaged liburing (2.3), under our own prefix: the originals are enum
 * members or macros, depending on the header, and cannot be tested for. Values are the kernel's ABI and never change.
 */
#ifndef MRT_RING_ABI_H
#define MRT_RING_ABI_H

#include <stdint.h>

#define MRT__IORING_ENTER_NO_IOWAIT (1u << 7)   /* 6.15: a waiting thread is idle, not in iowait */
#define MRT__IORING_FEAT_NO_IOWAIT (1u << 17)

#define MRT__IORING_SETUP_NO_SQARRAY (1u << 16) /* 6.6 */
#define MRT__IORING_SETUP_HYBRID_IOPOLL (1u << 17) /* 6.13 */

/* liburing 2.3 declares io_uring_enable_rings(), but its shared library lacks it. */
#define MRT__IORING_REGISTER_ENABLE_RINGS 12u

#define MRT__IORING_REGISTER_CLONE_BUFFERS 30u  /* 6.12 */
#define MRT__IORING_REGISTER_DST_REPLACE (1u << 1) /* 6.13, with a range */

struct mrt__io_uring_clone_buffers {
	uint32_t src_fd;
	uint32_t flags;
	uint32_t src_off;
	uint32_t dst_off;
	uint32_t nr;
	uint32_t pad[3];
};

#endif
