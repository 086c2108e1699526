/* SPDX-License-Identifier: MIT */
/* See library.h. */
#include "library.h"

__attribute__((visibility("default"), noinline)) int in_library(int n)
{
	return n * 3 + 1;
}

static __attribute__((noinline, used)) int static_in_library(int n)
{
	return n * 5 + 1;
}

__attribute__((visibility("default"))) void *in_library_address(void)
{
	return (void *)in_library;
}

__attribute__((visibility("default"))) void *static_in_library_address(void)
{
	return (void *)static_in_library;
}
