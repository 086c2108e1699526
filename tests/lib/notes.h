/* SPDX-License-Identifier: MIT */
/* USDT notes of an ELF file, as a tracer reads them. */
#ifndef MRT_TESTS_NOTES_H
#define MRT_TESTS_NOTES_H

#include <stdbool.h>
#include <stdint.h>

#define NOTES_MAX 64

struct note {
	char provider[32], name[32], args[64];
	uint64_t offset, sem_offset;    /* in the file: what uprobes want */
	uint64_t address, sem_address;  /* as linked */
	unsigned sem_segments;          /* writable segments that map the semaphore's page of the file */
	bool sem_alone;                 /* its section fills whole pages, so no linker puts anything else there */
	unsigned char code[8];          /* at the place */
};

/* @return how many, -errno */
int notes_read(const char *path, struct note ret[NOTES_MAX]);

#endif
