/* SPDX-License-Identifier: MIT */
/* See opcode.h. Numbers are the kernel's ABI; liburing's header of Debian 12 does not know the newer ones. */
#include "opcode.h"

#include <stddef.h>
#include <stdio.h>

static const char *const names[] = {
	"nop", "readv", "writev", "fsync", "read_fixed", "write_fixed", "poll_add", "poll_remove", "sync_file_range",
	"sendmsg", "recvmsg", "timeout", "timeout_remove", "accept", "async_cancel", "link_timeout", "connect",
	"fallocate", "openat", "close", "files_update", "statx", "read", "write", "fadvise", "madvise", "send", "recv",
	"openat2", "epoll_ctl", "splice", "provide_buffers", "remove_buffers", "tee", "shutdown", "renameat", "unlinkat",
	"mkdirat", "symlinkat", "linkat", "msg_ring", "fsetxattr", "setxattr", "fgetxattr", "getxattr", "socket",
	"uring_cmd", "send_zc", "sendmsg_zc", "read_multishot", "waitid", "futex_wait", "futex_wake", "futex_waitv",
	"fixed_fd_install", "ftruncate", "bind", "listen", "recv_zc", "epoll_wait", "readv_fixed", "writev_fixed", "pipe",
};

const char *opcode_name(unsigned opcode)
{
	return opcode < sizeof(names) / sizeof(names[0]) ? names[opcode] : NULL;
}

const char *opcode_text(unsigned opcode, char buf[OPCODE_NAME_MAX])
{
	const char *name = opcode_name(opcode);

	if (name)
		(void)snprintf(buf, OPCODE_NAME_MAX, "%s", name); /* fits */
	else
		(void)snprintf(buf, OPCODE_NAME_MAX, "op %u", opcode); /* fits */
	return buf;
}
