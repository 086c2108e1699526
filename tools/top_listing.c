/* SPDX-License-Identifier: MIT */
/* See top_listing.h. */
#include "top_listing.h"

#include <errno.h>
#include <stdlib.h>

#include "clock.h"

int top_listings_open(struct top_listings *l, const struct top_model *m, unsigned rows_max)
{
	unsigned i;

	l->rows_max = rows_max;
	for (i = 0; i < m->nr && i < TOP_LISTINGS_MAX; i++) {
		struct top_listing *item = &l->items[l->nr++];

		item->runtime = m->items[i];
		item->rows = calloc(TASK_LIST_MAX, sizeof(item->rows[0]));
		if (!item->rows || top_tasks_open(&item->tasks, m->items[i], item->why) == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

int top_listings_look(struct top_listings *l)
{
	unsigned i;

	for (i = 0; i < l->nr; i++) {
		struct top_listing *item = &l->items[i];
		uint64_t since_ns = item->tasks.list.since_ns;

		if (item->why[0])
			continue;
		if (top_tasks_look(&item->tasks, item->runtime))
			return -ENOMEM;
		item->span_ns = clock_ns() - since_ns;
		item->rows_nr = top_tasks_sorted(&item->tasks, item->rows);
		if (item->rows_nr > l->rows_max)
			item->rows_nr = l->rows_max;
	}
	return 0;
}

const struct top_listing *top_listing_of(const struct top_listings *l, const struct top_runtime *r)
{
	unsigned i;

	for (i = 0; i < l->nr; i++) {
		if (l->items[i].runtime == r)
			return &l->items[i];
	}
	return NULL;
}

const char *top_listing_why(const struct top_listings *l, const struct top_runtime *r)
{
	const struct top_listing *item = top_listing_of(l, r);

	if (!item)
		return "more runtimes are here than are listened to at a time; name other processes";
	return item->why[0] ? item->why : NULL;
}

void top_listings_close(struct top_listings *l)
{
	unsigned i;

	for (i = 0; i < l->nr; i++) {
		top_tasks_close(&l->items[i].tasks);
		free(l->items[i].rows);
	}
	l->nr = 0;
}
