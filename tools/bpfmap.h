/* SPDX-License-Identifier: MIT */
/* The few commands of bpf(2) that a reader of maps needs, without libbpf. Descriptors are close-on-exec. */
#ifndef TOOLS_BPFMAP_H
#define TOOLS_BPFMAP_H

#include <stdbool.h>
#include <stdint.h>

struct bpfmap_info {
	char name[16];          /* terminated */
	uint32_t id, type, value_bytes, nr;
};

/* The lowest id above `id`; 0: from the beginning. @return 0; -ENOENT: no more; -EPERM */
int bpfmap_next(uint32_t id, uint32_t *ret_id);

/* @return a descriptor that can be mapped, -errno */
int bpfmap_by_id(uint32_t id);

/* Open a pin, for writing if that is allowed. @return a descriptor, -errno */
int bpfmap_by_pin(const char *path, bool *ret_writable);

/* @return 0; -EINVAL: no map */
int bpfmap_info(int fd, struct bpfmap_info *ret_info);

/* One element by system call. @return 0, -errno */
int bpfmap_lookup(int fd, uint32_t key, void *value);
int bpfmap_update(int fd, uint32_t key, const void *value);

#endif
