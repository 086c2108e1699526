/* SPDX-License-Identifier: MIT */
/* The one place where the library ends a process. */
#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void mrt__bug_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("martlet: ", stderr);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (%s:%d)\n", file, line);
	abort();
}
