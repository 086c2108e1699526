/* SPDX-License-Identifier: MIT */
/*
 * The watchdog (watchdog_ns): a poll that takes too long is told to the log with worker, thread and function, also where all
 * workers are stuck and where there is one alone; addr2line finds the function by what the sentence says; it is told again after
 * twice the time and not more often; nobody is told of where nobody is stuck. Without the option there is no thread.
 *
 * The polls here last until the log has said what is expected, so no test depends on how fast the machine is.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "itest.h"
#include "observe.h"
#include "work.h"

#define LIMIT_NS MRT_MS(20)
#define WAIT_MS 20000

static struct mrt_runtime *make(int kind, uint64_t limit_ns)
{
	struct mrt_runtime_opts opts = itest_opts(kind);

	opts.watchdog_ns = limit_ns;
	return itest_create(&opts);
}

static unsigned count_in_log(const char *part)
{
	char *text = itest_log_text();
	unsigned nr = 0;

	for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
		nr++;
	free(text);
	return nr;
}

/* ---- polls that last ---- */

static atomic_bool go_on;
static atomic_int tids[2];

ITEST_CHILD(stuck_until_told, {
	struct mrt_op op;
	unsigned number;
})
{
	(void)self;
	atomic_store(&tids[f->number], gettid());
	while (!atomic_load(&go_on))
		itest_pause();
	return MRT_POLL_READY;
}

/* Both workers, or the only one (then in a task that this thread drives). */
START_TEST(all_stuck_workers_are_named)
{
	struct mrt_spawn_opts spread = { .size = sizeof(spread), .flags = MRT_SPAWN_SPREAD };
	struct mrt_runtime *rt = make(ITEST_TWO, LIMIT_NS);
	struct mrt_task *tasks[2];
	char part[128], *text, *at, file[256];
	struct stuck_until_told f = { 0 };
	unsigned long addr;

	atomic_store(&go_on, false);
	for (f.number = 0; f.number < 2; f.number++)
		ck_assert_int_eq(mrt_spawn(rt, stuck_until_told_poll, &f, sizeof(f), &spread, &tasks[f.number]), 0);
	ITEST_WAIT(itest_log_has("worker 0 (thread") && itest_log_has("worker 1 (thread"), WAIT_MS);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(part, sizeof(part), "(thread %d) has been in one poll for at least", atomic_load(&tids[i]));
		ck_assert(itest_log_has(part));
	}
	text = itest_log_text();
	at = strstr(text, " ms: ");
	ck_assert_ptr_nonnull(at);
	/* static, so that the dynamic loader does not know it */
	ck_assert_int_eq(sscanf(at, " ms: %255[^+]+%lx,", file, &addr), 2);
	free(text);
	snprintf(part, sizeof(part), "addr2line -f -e '/proc/%d/exe' %#lx | grep -qx stuck_until_told_poll", getpid(), addr);
	ck_assert_msg(system(part) == 0, "%s (of %s)", part, file);
	atomic_store(&go_on, true);
	ITEST_WAIT(count_in_log("goes on: that poll took about") == 2, WAIT_MS);
	for (unsigned i = 0; i < 2; i++)
		(void)itest_join(tasks[i]);
	mrt_runtime_destroy(rt);
}
END_TEST

/* The only worker is this thread, so the poll itself looks at the log. */
ITEST_CHILD(stuck_until_logged, {
	struct mrt_op op;
	unsigned nr;
})
{
	uint64_t until = mrt_now() + MRT_MS(WAIT_MS);

	(void)self;
	while (count_in_log("worker 0 (thread") < f->nr && mrt_now() < until)
		itest_pause();
	mrt_task_return(self, count_in_log("worker 0 (thread"));
	return MRT_POLL_READY;
}

START_TEST(the_only_worker_is_watched)
{
	struct mrt_runtime *rt = make(ITEST_CURRENT, LIMIT_NS);
	struct stuck_until_logged f = { .nr = 1 };
	int64_t result;

	ck_assert_int_eq(mrt_block_on(rt, stuck_until_logged_poll, &f, sizeof(f), &result), 0);
	ck_assert_int_ge(result, 1);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(it_is_told_again_after_twice_the_time)
{
	struct mrt_runtime *rt = make(ITEST_CURRENT, LIMIT_NS);
	struct stuck_until_logged f = { .nr = 4 };
	unsigned long last = 0, ms;
	uint64_t start = mrt_now();
	unsigned told = 0;
	int64_t result;
	char *text;

	ck_assert_int_eq(mrt_block_on(rt, stuck_until_logged_poll, &f, sizeof(f), &result), 0);
	text = itest_log_text();
	for (const char *at = text; (at = strstr(at, "for at least ")) != NULL; at++, told++) {
		ck_assert_int_eq(sscanf(at, "for at least %lu ms", &ms), 1);
		ck_assert_uint_ge(ms, LIMIT_NS / 1000000);
		/* whole ms */
		ck_assert_uint_ge(ms + 1, 2 * last);
		last = ms;
	}
	ck_assert_uint_ge(told, 4);
	ck_assert_uint_le(last, (mrt_now() - start) / 1000000);
	free(text);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(each_poll_is_told_of_by_itself)
{
	struct mrt_runtime *rt = make(ITEST_CURRENT, LIMIT_NS);
	int64_t result;

	for (unsigned i = 1; i <= 3; i++) {
		struct stuck_until_logged f = { .nr = 1 };

		itest_log_clear();
		ck_assert_int_eq(mrt_block_on(rt, stuck_until_logged_poll, &f, sizeof(f), &result), 0);
		ck_assert_int_ge(result, 1);
	}
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(a_timed_poll_is_told_of_exactly)
{
	struct mrt_runtime *rt = make(ITEST_CURRENT, LIMIT_NS);
	struct stuck_until_logged f = { .nr = 1 };
	struct work_turner t = { 0 };
	struct observe o;
	int64_t result;

	if (observe_open(getpid(), &o))
		return; /* statistics on the heap */
	__atomic_store_n(&o.ctl->poll_timing, MRT_TIMING_FULL, __ATOMIC_RELAXED);
	observe_close(&o);
	ck_assert_int_eq(itest_run(rt, work_turner_poll, &t, sizeof(t)), 0);
	ck_assert_int_eq(mrt_block_on(rt, stuck_until_logged_poll, &f, sizeof(f), &result), 0);
	ck_assert_int_ge(result, 1);
	ck_assert(!itest_log_has("at least"));
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- nobody is stuck ---- */

START_TEST(nobody_is_told_of_where_nobody_is_stuck)
{
	/* far longer than anything here; then it would be told of the sleeps of idle workers, if it could not tell them */
	struct mrt_runtime *rt = make(_i, MRT_SEC(20)), *quick = make(_i, MRT_MS(1));
	struct work_turner f = { 0 };

	ck_assert_int_eq(itest_run(rt, work_turner_poll, &f, sizeof(f)), 0);
	mrt_runtime_destroy(rt);
	ck_assert(!itest_log_has("in one poll"));
	/* parked, or driven by nobody, for many limits */
	for (unsigned i = 0; i < 50; i++)
		itest_spin(MRT_MS(1));
	mrt_runtime_destroy(quick);
	ck_assert(!itest_log_has("in one poll"));
}
END_TEST

/* ---- the thread ---- */

/* Threads of this process that are called as the watchdog's is. */
static unsigned watchdogs_nr(void)
{
	DIR *d = opendir("/proc/self/task");
	char path[300], name[32];
	struct dirent *e;
	unsigned nr = 0;
	FILE *f;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "re");
		if (f && fgets(name, sizeof(name), f))
			nr += strstr(name, "-watch") != NULL;
		if (f)
			fclose(f);
	}
	closedir(d);
	return nr;
}

START_TEST(there_is_a_thread_only_where_it_was_asked_for)
{
	struct mrt_runtime *rt = make(ITEST_TWO, 0);

	ck_assert_uint_eq(watchdogs_nr(), 0);
	mrt_runtime_destroy(rt);
	rt = make(ITEST_TWO, MRT_SEC(3600)); /* and it does not keep the destruction waiting */
	ck_assert_uint_eq(watchdogs_nr(), 1);
	mrt_runtime_destroy(rt);
	ITEST_WAIT(watchdogs_nr() == 0, WAIT_MS); /* the kernel shows a joined thread for a moment */
}
END_TEST

START_TEST(limits_outside_the_range_are_refused)
{
	static const uint64_t bad[] = { 1, MRT_MS(1) - 1, MRT_SEC(86400) + 1, UINT64_MAX };
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	struct mrt_runtime *rt;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		itest_log_clear();
		opts.watchdog_ns = bad[i];
		ck_assert_int_eq(mrt_runtime_create(&opts, &rt), -EINVAL);
		ck_assert(itest_log_has("watchdog_ns"));
	}
	/* a program that was built before there was the option */
	opts.size = offsetof(struct mrt_runtime_opts, watchdog_ns);
	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("watchdog");
	TCase *tc = tcase_create("watchdog");

	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_test(tc, all_stuck_workers_are_named);
	tcase_add_test(tc, the_only_worker_is_watched);
	tcase_add_test(tc, it_is_told_again_after_twice_the_time);
	tcase_add_test(tc, each_poll_is_told_of_by_itself);
	tcase_add_test(tc, a_timed_poll_is_told_of_exactly);
	tcase_add_loop_test(tc, nobody_is_told_of_where_nobody_is_stuck, 0, ITEST_FLAVOURS_NR);
	tcase_add_test(tc, there_is_a_thread_only_where_it_was_asked_for);
	tcase_add_test(tc, limits_outside_the_range_are_refused);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	itest_need_io_uring();
	return itest_main(make_suite());
}
