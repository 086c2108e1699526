/* SPDX-License-Identifier: MIT */
/* Names of functions of several processes; kept, so that they outlive the process. */
#ifndef TOOLS_FN_NAMES_H
#define TOOLS_FN_NAMES_H

#include <stdint.h>

struct fn_names;

/* @return NULL: no memory */
struct fn_names *fn_names_create(void);
void fn_names_destroy(struct fn_names *n);

/**
 * The function's name, or file and address. What is asked for while the process lives can be asked for afterwards.
 *
 * @return valid until fn_names_destroy(); "?" without memory
 */
const char *fn_name(struct fn_names *n, int pid, uint64_t fn);

#endif
