/* SPDX-License-Identifier: MIT */
/* The few commands of bpf(2) that the statistics need. Without libbpf, which the library does not link. */
#ifndef MRT_PROBE_MAP_H
#define MRT_PROBE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct mrt__map_opts {
	const char *name;       /* at most 15 characters */
	uint32_t value_bytes;
	uint32_t nr;
	int btf_fd;
	uint32_t key_type_id, value_type_id;
};

/* Give type information to the kernel. @return a descriptor, -errno */
int mrt__map_btf_load(const void *blob, size_t bytes);

/**
 * An array map, mapped into memory. Element i is at i * value_bytes (a multiple of 8).
 *
 * @param bytes    to map: nr * value_bytes, rounded up to pages
 * @param ret_fd   its descriptor
 * @param ret_mem  its memory, zeroed
 * @return 0, -errno: -EPERM (no CAP_BPF, or locked memory exceeded before 5.11), -ENOSYS, -EINVAL (before 5.5), -ENOMEM, ...
 */
int mrt__map_create(const struct mrt__map_opts *opts, size_t bytes, int *ret_fd, void **ret_mem);

/* The number that bpftool knows it by; 0: unknown. */
uint32_t mrt__map_id(int fd);

/* Give it a name in bpffs. @return 0, -errno */
int mrt__map_pin(int fd, const char *path);

/* Read the beginning of element 0 of the map pinned at path. @return 0, -errno; -EINVAL: no array of that name, or of smaller values */
int mrt__map_read_pinned(const char *path, const char *name, void *value, uint32_t value_bytes);

#endif
