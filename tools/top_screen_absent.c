/* SPDX-License-Identifier: MIT */
/* Stands in for top_screen.c in a build without ncursesw. */
#ifndef TOOLS_NCURSES
#include "top.h"

#include "bench.h"

const char *top_screen_missing(void)
{
	return "this martlet was built without ncursesw (libncurses-dev)";
}

int top_screen(struct top *t)
{
	(void)t;
	return EXIT_USAGE;
}
#endif
