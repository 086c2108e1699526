/* SPDX-License-Identifier: MIT */
/* See <martlet/layout.h>. */
#ifndef MRT_SCHED_LAYOUT_H
#define MRT_SCHED_LAYOUT_H

#include <martlet/layout.h>

extern const struct mrt_layout mrt__layout;

#endif
