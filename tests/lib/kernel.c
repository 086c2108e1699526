/* SPDX-License-Identifier: MIT */
/* See kernel.h. */
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

bool kernel_pipe_reads_may_block(void)
{
	char byte;
	struct iovec iov = { &byte, 1 };
	int fds[2];
	bool may;

	if (pipe2(fds, O_CLOEXEC))
		return false;
	may = preadv2(fds[0], &iov, 1, -1, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP;
	(void)close(fds[0]); /* empty */
	(void)close(fds[1]);
	return may;
}
