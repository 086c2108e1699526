/* SPDX-License-Identifier: MIT */
/*
 * By the processor's crc32 instruction where it has one (about 0.5 us for 4 KiB), by a 256-entry table elsewhere. The
 * table is computed on first use; two threads that meet there write the same values behind a pthread_once.
 */
#include "crc32c.h"

#include <pthread.h>
#include <string.h>

#define CRC32C_POLY 0x82f63b78u

static uint32_t table[256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (unsigned bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ CRC32C_POLY : c >> 1;
		table[i] = c;
	}
}

uint32_t crc32c_table(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *p = buf;

	(void)pthread_once(&table_once, fill_table); /* cannot fail with a valid once */
	crc = ~crc;
	while (len--)
		crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
static uint32_t crc32c_sse42(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *p = buf;
	uint64_t c = ~crc;

	for (; len >= 8; len -= 8, p += 8) {
		uint64_t word;

		memcpy(&word, p, sizeof(word));
		c = __builtin_ia32_crc32di(c, word);
	}
	while (len--)
		c = __builtin_ia32_crc32qi((uint32_t)c, *p++);
	return ~(uint32_t)c;
}
#endif

uint32_t crc32c(uint32_t crc, const void *buf, size_t len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_sse42(crc, buf, len);
#endif
	return crc32c_table(crc, buf, len);
}
