/* SPDX-License-Identifier: MIT */
/* The subcommands of `martlet`. argv[0] is its name, "martlet bench", say; each returns the exit code. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#define EXIT_USAGE 2            /* nothing was run: bad options, or refused */
#define EXIT_INTERRUPTED 130    /* Ctrl-C; what there was has been printed */

int bench_main(int argc, char **argv);
int compare_main(int argc, char **argv);
int dump_main(int argc, char **argv);
int probe_main(int argc, char **argv);

#endif
