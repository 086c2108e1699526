/* SPDX-License-Identifier: MIT */
/* See remote.h. */
#include "remote.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "proc.h"
#include "sys.h"

#define PAGE_BYTES 4096u

int remote_read(pid_t pid, uint64_t addr, void *buf, size_t bytes)
{
	struct iovec to = { buf, bytes }, from = { (void *)(uintptr_t)addr, bytes };
	ssize_t n;

	if (bytes == 0)
		return 0;
	if (addr + bytes < addr)
		return -EFAULT;
	n = process_vm_readv(pid, &to, 1, &from, 1, 0);
	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -EFAULT;
}

int remote_read_text(pid_t pid, uint64_t addr, char *buf, size_t buf_bytes)
{
	size_t got = 0;

	memset(buf, 0, buf_bytes);
	while (got < buf_bytes - 1 && !memchr(buf, '\0', got)) {
		/* not beyond a page that holds the end */
		size_t part = PAGE_BYTES - (addr + got) % PAGE_BYTES;
		int err;

		if (part > buf_bytes - 1 - got)
			part = buf_bytes - 1 - got;
		err = remote_read(pid, addr + got, buf + got, part);
		if (err) {
			buf[got] = '\0';
			return err;
		}
		got += part;
	}
	proc_printable(buf);
	return 0;
}

const char *remote_why_not(pid_t pid, char *buf, size_t buf_bytes)
{
	char scope[16];

	if (sys_read_line(scope, sizeof(scope), "/proc/sys/kernel/yama/ptrace_scope") && scope[0] != '0')
		snprintf(buf, buf_bytes, "this user may not read the memory of process %d: kernel.yama.ptrace_scope is %s; %s%s",
			 (int)pid, scope, proc_how_to_look(), scope[0] == '1' ? ", or set it to 0" : "");
	else
		snprintf(buf, buf_bytes, "this user may not read the memory of process %d (another user's, one with more "
			 "capabilities, or one that is not dumpable): %s", (int)pid, proc_how_to_look());
	return buf;
}
