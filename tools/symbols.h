/* SPDX-License-Identifier: MIT */
/*
 * Which function an address of another process lies in: its mappings (/proc/PID/maps) name the files, the symbol tables of these
 * name the functions, static ones too. Position-independent programs, shared libraries, files that were deleted or replaced
 * meanwhile, files of another root, and debug files by build-id (/usr/lib/debug/.build-id). Where there is no symbol, or no
 * libelf in the build: the file and the address in it, which addr2line takes
 * (without libelf the offset in the file, mostly the same).
 *
 * One thread at a time. A file is read when an address in it is asked for first, and kept: names can be asked for after the
 * process has ended, for files whose names were asked for before.
 */
#ifndef TOOLS_SYMBOLS_H
#define TOOLS_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct symbols;

struct symbol {
	const char *function;   /* NULL: unknown */
	uint64_t offset;        /* of the address in the function */
	const char *module;     /* last part of the file's path, "[vdso]" and the like; NULL: mapped nowhere, or no file */
	uint64_t module_addr;   /* the address as the file's own tables have it: for addr2line -e FILE */
};

/* "poll_fn+0x1c", "libfoo.so+0x1234", "0x55d0c0de": what symbols_name() writes at most, with its NUL. */
#define SYMBOLS_NAME_MAX 256

/**
 * @param ret_symbols  also when the mappings cannot be read: then every address is unknown; symbols_close() it
 * @return 0; -ENOENT (no such process), -EACCES (another user's, or ptrace is restricted), -ENOMEM (nothing is made)
 */
int symbols_open(pid_t pid, struct symbols **ret_symbols);

/* NULL is ignored. */
void symbols_close(struct symbols *s);

/**
 * function and module live until symbols_close(), a name in brackets until the next call. An address outside of what was mapped
 * last time makes it read the mappings again.
 *
 * @return true: the function is known. All of *ret_symbol is set in either case
 */
bool symbols_find(struct symbols *s, uint64_t addr, struct symbol *ret_symbol);

/* In words, printable; an offset of 0 is not shown. @return buf */
const char *symbols_name(struct symbols *s, uint64_t addr, char *buf, size_t buf_bytes);

/* Was it built with libelf? Without, functions have no names. */
bool symbols_has_names(void);

#endif
