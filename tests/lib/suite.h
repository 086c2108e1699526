/* SPDX-License-Identifier: MIT */
/* Run a suite of Check's: the end of every test program's main(). */
#ifndef MRT_TESTS_SUITE_H
#define MRT_TESTS_SUITE_H

#include <check.h>

/**
 * Run a suite and free it. CK_VERBOSITY says how much is printed.
 *
 * @return exit code of the program
 */
int suite_main(Suite *suite);

#endif
