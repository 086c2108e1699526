/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int output_hold_standard(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		/* the lowest free number is the one that was found closed, since those below are taken */
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			return -errno;
	}
	return 0;
}

int output_flush(FILE *out)
{
	if (fflush(out))
		return -errno;
	return ferror(out) ? -EIO : 0;
}
