/* SPDX-License-Identifier: MIT */
/* What /proc says about other processes. Any thread may ask; numbers are those of this process's PID namespace. */
#ifndef TOOLS_PROC_H
#define TOOLS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start time in clock ticks since boot, field 22 of its stat file; 0: there is no such process (or it is a zombie). */
uint64_t proc_start_ticks(int pid);

/* Its number in its own PID namespace; 0: unknown. */
int proc_inner_pid(int pid);

/* Inode of its PID namespace; 0: unknown, or not for us to know. */
uint64_t proc_pid_ns(int pid);

/* PID namespace of this process; 0: unknown. */
uint64_t proc_own_pid_ns(void);

/* Name of the process, up to 15 characters, printable; "?": unknown. @param name_bytes  16 or more */
void proc_name(int pid, char *name, size_t name_bytes);

/* State letter of the process, as ps(1) has it ('T' stopped); '?': unknown. */
char proc_state(int pid);

/**
 * Call fn for each process, in no order, until it returns false.
 *
 * @return 0, or -errno of /proc
 */
int proc_each(bool (*fn)(int pid, void *ctx), void *ctx);

/* Replace what a terminal would not print, in place. */
void proc_printable(char *text);

/* Does this program have it now? @param nr  CAP_SYS_PTRACE, ... */
bool proc_has_capability(unsigned nr);

/* What to do where this program may not look into a process, in words that may follow a colon. */
const char *proc_how_to_look(void);

/* Why this program may not look into a process, and what to do. @return buf */
const char *proc_why_not(int pid, char *buf, size_t buf_bytes);

#endif
