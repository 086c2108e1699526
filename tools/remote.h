/* SPDX-License-Identifier: MIT */
/* Memory of another process, read without stopping it (process_vm_readv). A wrong address is an error, never a crash. */
#ifndef TOOLS_REMOTE_H
#define TOOLS_REMOTE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * All of it, or nothing that is of use.
 *
 * @return 0; -EFAULT: not mapped; -ESRCH: the process has ended; -EPERM: this user may not trace it
 */
int remote_read(pid_t pid, uint64_t addr, void *buf, size_t bytes);

/* A string, cut to fit, made printable and terminated. @param buf_bytes  at least 1 @return as remote_read() */
int remote_read_text(pid_t pid, uint64_t addr, char *buf, size_t buf_bytes);

/* Why remote_read() failed with -EPERM, and what to do, in a sentence. */
const char *remote_why_not(pid_t pid, char *buf, size_t buf_bytes);

#endif
