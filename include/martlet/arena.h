/* SPDX-License-Identifier: MIT */
/*
 * The arena: memory of a runtime that is registered with the rings of all its workers, so that I/O on it needs no page
 * look-ups, whichever worker runs the task. mrt_read(), mrt_write() and their like see that a buffer lies in it and use
 * the fixed-buffer opcodes by themselves; nothing else changes.
 *
 * Registration costs locked memory (RLIMIT_MEMLOCK). Where the limit does not allow it, or the kernel cannot do it, the
 * memory is the same and I/O on it uses the plain opcodes; the log and mrt_arena_report() say so.
 */
#ifndef MARTLET_ARENA_H
#define MARTLET_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include <martlet/export.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mrt_runtime;

#define MRT_ARENA_UNIT 4096u            /* sizes are rounded up to this */
#define MRT_ARENA_ALIGN_MAX 2097152u    /* 2 MiB */

/**
 * Take a block from the arena. Its contents are undefined.
 *
 * Constant time but for one store per 4 KiB of the block, unless the arena has to grow: then new memory is mapped, touched
 * and registered, which takes milliseconds. Growth at least doubles the arena; `arena_bytes` of the runtime's options
 * makes room at the start.
 *
 * An op on memory that is not wholly inside one live block completes with -EFAULT.
 *
 * @thread  any
 * @owner   *ret_ptr is the caller's until mrt_free(), or until the runtime is destroyed
 * @blocks  while the arena grows
 *
 * @param rt       NULL: the running task's
 * @param bytes    1.., rounded up to MRT_ARENA_UNIT
 * @param align    power of two up to MRT_ARENA_ALIGN_MAX; less than MRT_ARENA_UNIT counts as that, and so does 0
 * @param ret_ptr  the block
 * @return 0, or
 *         -EINVAL  bytes is 0; align is not as above; rt is NULL outside a task
 *         -ENOMEM  no memory, or the arena has reached arena_bytes_max; the log says which, the first time
 *         -ECHILD  in a child after fork
 */
MRT_API int mrt_alloc(struct mrt_runtime *rt, size_t bytes, size_t align, void **ret_ptr);

/**
 * Give a block back. NULL is ignored; in a child after fork all are.
 *
 * Ops in flight on the block are the caller's mistake, and harmless: the block is kept until they have ended, and the log
 * says so. No new op may be started on it. What is not the start of a live block ends the process with a sentence.
 *
 * @thread  any
 * @blocks  never
 * @param rt  the runtime that the block came from; NULL: the running task's
 */
MRT_API void mrt_free(struct mrt_runtime *rt, void *ptr);

enum mrt_arena_how {
	MRT_ARENA_UNREGISTERED = 0,     /* nothing is registered (yet, or at all) */
	MRT_ARENA_CLONED = 1,           /* once, and shared by all rings; kernel 6.12 */
	MRT_ARENA_PER_RING = 2          /* with each ring on its own, which each locks the memory again */
};

/* What the arena is made of. Bytes, unless said. */
struct mrt_arena_report {
	uint64_t limit_bytes;           /* how far it may grow: arena_bytes_max; less if the address space was short */
	uint64_t mapped_bytes;          /* memory that it has */
	uint64_t registered_bytes;      /* of that, registered with every ring that has used it */
	uint64_t huge_bytes;            /* of that, in explicit huge pages (else transparent ones are asked for) */
	uint64_t allocated_bytes;       /* in blocks, with those that wait */
	uint64_t waiting_bytes;         /* in blocks that were freed with ops in flight */
	uint64_t memlock_need;          /* what RLIMIT_MEMLOCK would have to allow for all of it to be registered */
	uint64_t memlock_limit;         /* RLIMIT_MEMLOCK now; UINT64_MAX: none, or this process is exempt */
	uint64_t allocs, frees;         /* calls that succeeded */
	uint32_t how;                   /* enum mrt_arena_how */
	uint32_t regions_nr;            /* pieces in which it has grown */
	uint32_t regions_unregistered;  /* of those, not or not wholly registered */
	char text[512];                 /* the same in words, with each reason */
};

/* The function has the name of the structure, as stat() has: g++ -Wshadow minds. */
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/**
 * Say what the arena got.
 *
 * @thread  any
 * @blocks  never
 * @param rt  NULL: the running task's
 * @return 0, -EINVAL, -ECHILD
 */
MRT_API int mrt_arena_report(struct mrt_runtime *rt, struct mrt_arena_report *ret_report);

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
