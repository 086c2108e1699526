/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), as in iSCSI, ext4, XFS and NVMe. */
#ifndef TOOLS_CRC32C_H
#define TOOLS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/**
 * Continue a checksum.
 *
 * @thread  any
 * @param crc  0, or what the part before returned
 */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

/* The portable form, for comparison in tests. */
uint32_t crc32c_table(uint32_t crc, const void *buf, size_t len);

#endif
