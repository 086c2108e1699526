/* SPDX-License-Identifier: MIT */
/* Which files have Martlet's probes: those that a process has mapped, or that a command will. */
#ifndef TOOLS_PROBED_H
#define TOOLS_PROBED_H

#include <stdbool.h>
#include <sys/types.h>

#define PROBED_FILES_MAX 64u
#define PROBED_PATH_BYTES 4096u

struct probed {
	char *files[PROBED_FILES_MAX];  /* paths that can be opened from here */
	unsigned nr;
};

/**
 * Add the files of a process. A file that is there already, by device and inode, is not added again.
 *
 * @return 0, also if there was none; -ENOENT (no such process), -EACCES (of it, or of files while none was found), -ENOMEM, -E2BIG
 *         (more than PROBED_FILES_MAX)
 */
int probed_process(struct probed *p, pid_t pid);

/**
 * Add the files of a command: itself, or the libraries that the dynamic linker would load for it, which is asked.
 *
 * @param name  as execvp(3) takes it
 * @return 0, also if there was none; -ENOENT (no such command), -EACCES, -ENOMEM, -E2BIG
 */
int probed_command(struct probed *p, const char *name);

void probed_free(struct probed *p);

#endif
