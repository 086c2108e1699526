/* SPDX-License-Identifier: MIT */
/* What is printed arrives, or somebody is told. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <stdio.h>

/**
 * Make descriptors 0 to 2 taken. One that whoever started us has closed would else be given to the next file that is opened,
 * a target say, and what is printed would go there. Reads and writes of what is put there fail, as those of a closed one.
 *
 * @return 0, -errno
 */
int output_hold_standard(void);

/* Write what is buffered. @return 0, or -errno, of earlier writes too (-EIO where the reason is no longer known) */
int output_flush(FILE *out);

#endif
