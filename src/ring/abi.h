/* SPDX-License-Identifier: MIT */
/*
 * Kernel constants that are newer than the packaged liburing (2.3), under our own prefix: the originals are enum
 * members or macros, depending on the header, and cannot be tested for. Values are the kernel's ABI and never change.
 */
#ifndef MRT_RING_ABI_H
#define MRT_RING_ABI_H

#define MRT__IORING_ENTER_NO_IOWAIT (1u << 7)   /* 6.15: a waiting thread is idle, not in iowait */
#define MRT__IORING_FEAT_NO_IOWAIT (1u << 17)

/* liburing 2.3 declares io_uring_enable_rings(), but its shared library lacks it. */
#define MRT__IORING_REGISTER_ENABLE_RINGS 12u

#endif
