/* SPDX-License-Identifier: MIT */
/* What this kernel can, found by trying, where tests must know it and the product need not. */
#ifndef MRT_TESTS_KERNEL_H
#define MRT_TESTS_KERNEL_H

#include <stdbool.h>

/* A read of a pipe cannot be asked not to block (6.1): io_uring has to let io-wq do it. */
bool kernel_pipe_reads_may_block(void);

#endif
