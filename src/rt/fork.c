/* SPDX-License-Identifier: MIT */
/* See fork.h. The list's lock is held across fork, so that the child finds the list whole. */
#include "rt/fork.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "sched/sched.h"
#include "sched/worker.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mrt__fork_link *links;
static bool forked;     /* written in the child only, before it has a second thread */
static int registered = 1; /* pthread_atfork's answer; 1: not asked yet */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	struct mrt__fork_link *link;

	if (links)
		forked = true;
	mrt__worker_self = NULL;
	for (link = links; link; link = link->next)
		link->abandon(link);
	pthread_mutex_unlock(&lock);
}

bool mrt__sched_is_forked(void)
{
	return forked;
}

int mrt__fork_add(struct mrt__fork_link *link)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (registered == 1)
		registered = -pthread_atfork(before_fork, in_parent, in_child);
	err = registered;
	if (!err) {
		link->next = links;
		link->pprev = &links;
		if (links)
			links->pprev = &link->next;
		links = link;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void mrt__fork_remove(struct mrt__fork_link *link)
{
	pthread_mutex_lock(&lock);
	if (link->pprev) {
		*link->pprev = link->next;
		if (link->next)
			link->next->pprev = link->pprev;
		link->pprev = NULL;
	}
	pthread_mutex_unlock(&lock);
}
