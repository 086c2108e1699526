/* SPDX-License-Identifier: MIT */
/*
 * The tasks of runtimes for `martlet top --once` and `--json`: listened to between the two looks, each runtime by itself, of so many
 * at most. Each costs a table of entries in the kernel, and its process a trap a hit.
 */
#ifndef TOOLS_TOP_LISTING_H
#define TOOLS_TOP_LISTING_H

#include "task_list.h"
#include "top_model.h"
#include "top_tasks.h"

#define TOP_LISTINGS_MAX 8u

struct top_listing {
	const struct top_runtime *runtime;
	struct top_tasks tasks;
	char why[TOP_TASKS_WHY_BYTES];  /* they cannot be listened to; "" */
	const struct task_row **rows;   /* [rows_nr] the longest total first */
	unsigned rows_nr;               /* to be shown */
	uint64_t span_ns;               /* it listened for so long */
};

/* Zeroed: none. */
struct top_listings {
	struct top_listing items[TOP_LISTINGS_MAX];
	unsigned nr;
	unsigned rows_max;              /* of each */
};

/* Begin to listen to the runtimes of a model. @return 0, -ENOMEM */
int top_listings_open(struct top_listings *l, const struct top_model *m, unsigned rows_max);

/* Take in what has come. @return 0, -ENOMEM */
int top_listings_look(struct top_listings *l);

/* That of a runtime; NULL: there were too many. */
const struct top_listing *top_listing_of(const struct top_listings *l, const struct top_runtime *r);

/* Why the tasks of a runtime are not shown, in a sentence; NULL: they are. */
const char *top_listing_why(const struct top_listings *l, const struct top_runtime *r);

void top_listings_close(struct top_listings *l);

#endif
