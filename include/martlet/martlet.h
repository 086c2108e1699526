/* SPDX-License-Identifier: MIT */
/* All of Martlet. One header per concept; see docs/architecture.md for the whole. */
#ifndef MARTLET_MARTLET_H
#define MARTLET_MARTLET_H

#include <martlet/arena.h>
#include <martlet/blocking.h>
#include <martlet/export.h>
#include <martlet/file.h>
#include <martlet/layout.h>
#include <martlet/net.h>
#include <martlet/nvme.h>
#include <martlet/op.h>
#include <martlet/runtime.h>
#include <martlet/scope.h>
#include <martlet/stats.h>
#include <martlet/sync.h>
#include <martlet/task.h>
#include <martlet/time.h>

#endif
