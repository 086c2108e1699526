/* SPDX-License-Identifier: MIT */
/* Names of io_uring's opcodes. */
#ifndef TOOLS_OPCODE_H
#define TOOLS_OPCODE_H

#define OPCODE_NAME_MAX 24

/* In lower case, without the prefix: "read_fixed". NULL: newer than this list (Linux 6.16). */
const char *opcode_name(unsigned opcode);

/* The same, or "op 77". @return buf */
const char *opcode_text(unsigned opcode, char buf[OPCODE_NAME_MAX]);

#endif
