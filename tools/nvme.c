/* SPDX-License-Identifier: MIT */
/*
 * Identify by ioctl. The size of a block is what the namespace says it is formatted to: a wrong guess would have the
 * kernel, which does not check, let the device write beyond a buffer.
 */
#include "nvme.h"

#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ADMIN_IDENTIFY 0x06
#define IDENTIFY_BYTES 4096u
#define LBA_SHIFT_MAX 16u

/* Offsets in the namespace's identify data. */
#define AT_NSZE 0u
#define AT_FLBAS 26u
#define AT_LBAF 128u

static uint64_t get_le64(const unsigned char *p)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < 8; i++)
		n |= (uint64_t)p[i] << 8 * i;
	return n;
}

/* Formats above 16 have their upper two bits apart. */
static unsigned format_of(unsigned char flbas)
{
	return (flbas & 0xfu) | (flbas >> 5 & 0x3u) << 4;
}

static int decode(const unsigned char *data, struct nvme_namespace *ns)
{
	const unsigned char *format = data + AT_LBAF + 4u * format_of(data[AT_FLBAS]);

	ns->metadata_bytes = (uint32_t)format[0] | (uint32_t)format[1] << 8;
	ns->lba_shift = format[2];
	if (ns->lba_shift < 9 || ns->lba_shift > LBA_SHIFT_MAX)
		return -EIO;
	ns->bytes = get_le64(data + AT_NSZE) << ns->lba_shift;
	return 0;
}

int nvme_identify(int fd, struct nvme_namespace *ret)
{
	struct nvme_passthru_cmd cmd = { .opcode = ADMIN_IDENTIFY, .data_len = IDENTIFY_BYTES };
	int nsid = ioctl(fd, NVME_IOCTL_ID), rc;
	unsigned char *data;

	if (nsid <= 0)
		return nsid < 0 ? -errno : -EIO;
	data = aligned_alloc(IDENTIFY_BYTES, IDENTIFY_BYTES);
	if (!data)
		return -ENOMEM;
	cmd.nsid = (uint32_t)nsid;
	cmd.addr = (uint64_t)(uintptr_t)data;
	rc = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &cmd);
	rc = rc < 0 ? -errno : rc > 0 ? -EIO : decode(data, ret);
	ret->nsid = (uint32_t)nsid;
	free(data);
	return rc;
}

bool nvme_disk_of(const char *path, char *disk, size_t disk_bytes)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	char sys[160];

	if (strncmp(name, "ng", 2))
		return false;
	snprintf(disk, disk_bytes, "nvme%.40s", name + 2);
	snprintf(sys, sizeof(sys), "/sys/block/%.60s", disk);
	return access(sys, F_OK) == 0;
}
