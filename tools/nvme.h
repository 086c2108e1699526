/* SPDX-License-Identifier: MIT */
/* NVMe namespaces by their character nodes, /dev/ngXnY: what is needed to send commands to one. */
#ifndef TOOLS_NVME_H
#define TOOLS_NVME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nvme_namespace {
	uint32_t nsid;
	unsigned lba_shift;
	uint64_t bytes;
	uint32_t metadata_bytes;        /* per block */
};

/**
 * Ask the device itself, so that no block node is needed.
 *
 * @return 0; -ENOTTY no NVMe namespace; -EIO the device answered with an error, or with nonsense; or -errno
 */
int nvme_identify(int fd, struct nvme_namespace *ret);

/* "nvme0n1" for the node /dev/ng0n1, if there is such a disk. false: there is none. */
bool nvme_disk_of(const char *path, char *disk, size_t disk_bytes);

#endif
