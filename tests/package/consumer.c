/* SPDX-License-Identifier: MIT */
/*
 * A user of an installed Martlet, who has nothing but the headers and the libraries. The packaging test builds this
 * with find_package() and with pkg-config, against the shared and the static library, and runs it.
 */
#include <martlet/martlet.h>

#include <stdio.h>

int main(void)
{
	if (mrt_task_self() != NULL) {
		fputs("a task is running outside a runtime\n", stderr);
		return 1;
	}
	puts("linked against the installed martlet");
	return 0;
}
