/* SPDX-License-Identifier: MIT */
/* What sysfs says about devices. Nothing here fails loudly: where sysfs is not mounted, nothing is known. */
#ifndef MRT_SCHED_SYSFS_H
#define MRT_SCHED_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MRT__SYSFS_NAME 32u     /* the kernel's DISK_NAME_LEN */

/* A number in a file of sysfs. @return -1: no such file, or no number */
int64_t mrt__sysfs_number(const char *path);

/**
 * The kernel's name of a device: "nvme0n1", "sda3", "ng0n1".
 *
 * @param ret_name  [name_bytes]
 * @return false: unknown
 */
bool mrt__sysfs_name(bool block, dev_t dev, char *ret_name, size_t name_bytes);

/* The name of the class or bus that a device belongs to: "nvme-generic", "block". @return false: unknown */
bool mrt__sysfs_subsystem(bool block, dev_t dev, char *ret_name, size_t name_bytes);

/* The disk of a block device: itself, or of a partition the whole. @return false: unknown */
bool mrt__sysfs_disk(dev_t dev, char *ret_name, size_t name_bytes);

#endif
