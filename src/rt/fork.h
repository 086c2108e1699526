/* SPDX-License-Identifier: MIT */
/*
 * The runtimes of this process, and what becomes of them in a child after fork: the child closes the rings'
 * descriptors, and calls that start or wait for something answer -ECHILD. The parent notices nothing. (A process that
 * forks before it creates its first runtime is not concerned.)
 */
#ifndef MRT_RT_FORK_H
#define MRT_RT_FORK_H

/* A list node in struct mrt_runtime. */
struct mrt__fork_link {
	struct mrt__fork_link *next, **pprev;
	void (*abandon)(struct mrt__fork_link *link);   /* in the child: close what must be closed */
};

/* @return 0, -ENOMEM (the handlers could not be registered) */
int mrt__fork_add(struct mrt__fork_link *link);
void mrt__fork_remove(struct mrt__fork_link *link);

#endif
