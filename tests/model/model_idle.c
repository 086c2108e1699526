/* SPDX-License-Identifier: MIT */
/*
 * Model of the idle bookkeeping (src/sched/idle.c). Proven, within model.h's limits: the counts are exact at rest; nobody
 * is woken twice for one sleep; and the responsibility rule: of a publisher, a searcher that finds something else, and a
 * worker that parks, at least one either sees the published work or has a worker named to look for it.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "model.h"
#include "sched/idle.h"

#define WORKERS_MAX 4u

/* Ways to break the rules on purpose. */
enum rule {
	RULE_OURS,
	RULE_SEARCHER_KEEPS_QUIET,      /* the last searcher wakes nobody when it found something */
	RULE_NO_RESCAN,                 /* nobody looks again after parking */
	RULE_SEARCHERS_RESCAN_ONLY,     /* Tokio's: who did not search does not look again */
};

struct config {
	unsigned workers_nr, sleepers_nr;       /* the last sleepers_nr workers sleep at the start */
	enum rule rule;
};

static struct {
	struct mrt__idle idle;
	atomic_uint work;               /* 1: published, nobody has seen it */
	unsigned seen_nr;               /* looks that saw it */
	unsigned named[WORKERS_MAX];    /* times that a worker was named to be woken */
	unsigned named_nr;
	unsigned end_unparked;          /* what the count must be at the end, without the named ones */
} world;

static const struct config *config_of(const void *arg)
{
	return arg;
}

static void setup(const void *arg)
{
	const struct config *c = config_of(arg);
	unsigned w;

	mrt__idle_fini(&world.idle);
	mdl_assert(mrt__idle_init(&world.idle, c->workers_nr) == 0);
	for (w = c->workers_nr - c->sleepers_nr; w < c->workers_nr; w++)
		(void)mrt__idle_park(&world.idle, w, false); /* nothing to rescan yet */
	atomic_init(&world.work, 0);
	world.seen_nr = 0;
	world.named_nr = 0;
	for (w = 0; w < WORKERS_MAX; w++)
		world.named[w] = 0;
	world.end_unparked = c->workers_nr - c->sleepers_nr;
}

static void look(void)
{
	world.seen_nr += atomic_load_explicit(&world.work, memory_order_relaxed);
}

static void note_named(int w)
{
	if (w < 0)
		return;
	mdl_assert(!mrt__idle_is_parked(&world.idle, (unsigned)w));
	world.named[w]++;
	world.named_nr++;
}

static void publish(void)
{
	atomic_store_explicit(&world.work, 1, memory_order_release);
	note_named(mrt__idle_worker_to_notify(&world.idle));
}

/* Searches, finds work of another kind (so it does not see ours unless it looked after), and goes to run it. */
static void search_and_find(const struct config *c)
{
	if (!mrt__idle_try_search(&world.idle))
		return;
	if (mrt__idle_end_search(&world.idle) && c->rule != RULE_SEARCHER_KEEPS_QUIET)
		note_named(mrt__idle_worker_to_notify(&world.idle));
}

/* Searches if it may, finds nothing unless it sees our work, and parks. */
static void search_and_park(const struct config *c, unsigned w)
{
	bool searching = mrt__idle_try_search(&world.idle), rescan;

	look();
	rescan = mrt__idle_park(&world.idle, w, searching);
	world.end_unparked--;
	if (c->rule == RULE_SEARCHERS_RESCAN_ONLY)
		rescan = rescan && searching;
	if (rescan && c->rule != RULE_NO_RESCAN)
		look();
}

static void check_counts(const void *arg)
{
	unsigned w;

	(void)arg;
	mdl_assert(mrt__idle_check(&world.idle, stdout));
	mdl_assert(mrt__idle_searching_nr(&world.idle) == world.named_nr);
	mdl_assert(mrt__idle_unparked_nr(&world.idle) == world.end_unparked + world.named_nr);
	for (w = 0; w < WORKERS_MAX; w++)
		mdl_assert(world.named[w] <= 1);
}

static void check_responsibility(const void *arg)
{
	check_counts(arg);
	mdl_assert(world.seen_nr != 0 || world.named_nr != 0);
}

/* 0 publishes, 1 parks. */
static void publish_park_run(unsigned thread, const void *arg)
{
	if (thread == 0)
		publish();
	else
		search_and_park(config_of(arg), 0);
}

/* 0 publishes, 1 finds something else, 2 parks. A worker that sleeps from the start may stand by. */
static void publish_find_park_run(unsigned thread, const void *arg)
{
	if (thread == 0)
		publish();
	else if (thread == 1)
		search_and_find(config_of(arg));
	else
		search_and_park(config_of(arg), 0);
}

/* Two publishers and one sleeper that wakes by itself: it is named or wakes, never both, and counted once. */
static void self_wake_run(unsigned thread, const void *arg)
{
	const struct config *c = config_of(arg);

	if (thread != 0) {
		publish();
		return;
	}
	if (mrt__idle_unpark_worker(&world.idle, c->workers_nr - 1))
		world.end_unparked++;
}

/* Two parking searchers and a publisher, to whom a worker that sleeps from the start stands by. */
static void searchers_park_run(unsigned thread, const void *arg)
{
	const struct config *c = config_of(arg);

	if (thread == 0)
		publish();
	else
		search_and_park(c, thread - 1);
}

static const struct config one = { .workers_nr = 1 };
static const struct config one_no_rescan = { .workers_nr = 1, .rule = RULE_NO_RESCAN };
static const struct config two = { .workers_nr = 2 };
static const struct config two_tokio = { .workers_nr = 2, .rule = RULE_SEARCHERS_RESCAN_ONLY };
static const struct config three = { .workers_nr = 3, .sleepers_nr = 1 };
static const struct config three_quiet = { .workers_nr = 3, .sleepers_nr = 1, .rule = RULE_SEARCHER_KEEPS_QUIET };
static const struct config three_no_rescan = { .workers_nr = 3, .rule = RULE_NO_RESCAN };
static const struct config four = { .workers_nr = 4, .sleepers_nr = 1 };

#define TEST(test_name, nr, cfg, run_fn, check_fn, breaks) \
	{ .name = (test_name), .threads_nr = (nr), .arg = &(cfg), .setup = setup, .run = (run_fn), \
	  .check = (check_fn), .must_fail = (breaks), .preemptions = 4 }

static const struct mdl_test tests[] = {
	TEST("publish_against_park", 2, one, publish_park_run, check_responsibility, false),
	TEST("publish_against_park, no rescan", 2, one_no_rescan, publish_park_run, check_responsibility, true),
	TEST("publish_find_park", 3, two, publish_find_park_run, check_responsibility, false),
	TEST("publish_find_park, Tokio's rescan rule", 3, two_tokio, publish_find_park_run, check_responsibility, true),
	TEST("publish_find_park_sleeper", 3, three, publish_find_park_run, check_responsibility, false),
	TEST("publish_find_park_sleeper, quiet finder", 3, three_quiet, publish_find_park_run, check_responsibility,
	     true),
	TEST("publish_find_park of 3, no rescan", 3, three_no_rescan, publish_find_park_run, check_responsibility,
	     true),
	TEST("self_wake", 3, three, self_wake_run, check_counts, false),
	TEST("searchers_park", 3, four, searchers_park_run, check_responsibility, false),
};

int main(void)
{
	int status = mdl_main(tests, MRT__ARRAY_NR(tests));

	mrt__idle_fini(&world.idle);
	return status;
}
