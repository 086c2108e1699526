/* SPDX-License-Identifier: MIT */
/* A shared library with a function that it exports and one that it does not. */
#ifndef MRT_TESTS_SYMBOLS_LIBRARY_H
#define MRT_TESTS_SYMBOLS_LIBRARY_H

int in_library(int n);

/* Where they are: a program that is not position-independent has addresses of its own for functions of libraries. */
void *in_library_address(void);
void *static_in_library_address(void);

#endif
