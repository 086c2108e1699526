/* SPDX-License-Identifier: MIT */
/* A process that is looked at: prints the addresses of functions that it and its library have, and waits for its end. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "library.h"

__attribute__((noinline)) int in_program(int n);

__attribute__((noinline)) int in_program(int n)
{
	return n * 7 + in_library(n);
}

static __attribute__((noinline, used)) int static_in_program(int n)
{
	return n * 11 + 1;
}

static int variable;

int main(void)
{
	char byte;

	printf("in_program %p\n", (void *)in_program);
	printf("static_in_program %p\n", (void *)static_in_program);
	printf("in_library %p\n", in_library_address());
	printf("static_in_library %p\n", static_in_library_address());
	printf("variable %p\n", (void *)&variable);
	printf("stack %p\n", __builtin_frame_address(0));
	printf("end 0x0\n");
	(void)fflush(stdout);
	return read(STDIN_FILENO, &byte, 1) < 0; /* until the pipe is closed */
}
