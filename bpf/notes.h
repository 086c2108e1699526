/* SPDX-License-Identifier: MIT */
/* USDT notes of an ELF file: where a tracer finds the probes. */
#ifndef BPF_NOTES_H
#define BPF_NOTES_H

#include <stdbool.h>
#include <stdint.h>

#define NOTES_MAX 64

struct note {
	char provider[32], name[32], args[64];
	uint64_t offset, sem_offset;    /* in the file: what uprobes want */
	uint64_t address, sem_address;  /* as linked; sem_address 0: it has no semaphore */
	unsigned sem_segments;          /* writable segments that map the semaphore's page of the file */
	bool sem_alone;                 /* its section fills whole pages, so no linker puts anything else there */
	unsigned char code[8];          /* at the place */
};

/**
 * Read the notes of a 64-bit ELF file of this machine's byte order, whatever it contains.
 *
 * @return how many, at most NOTES_MAX; 0: it has none; -ENOEXEC: not such a file, or a broken one; -errno
 */
int notes_read(const char *path, struct note ret[NOTES_MAX]);

#endif
