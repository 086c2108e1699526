/* SPDX-License-Identifier: MIT */
/*
 * The tasks of `martlet top` one by one, of a process whose tasks are known: exact polls, ids, names, states of one that sleeps,
 * one that spins and those that have ended, also of what was there before anybody listened; that what yields and what never
 * yields is warned of; more tasks than there are entries; and ops that go to io-wq.
 *
 * What follows from figures is in tests/unit/test_task_list.c, the screen in test_top_screen.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "itest.h"
#include "subject.h"

#include "symbols.h"
#include "top_model.h"
#include "top_tasks.h"
#include "top_view.h"

#define YIELDS 31u
#define NAPS 5u
#define NAP_NS MRT_MS(20)
#define SYNCS 7u
#define FSYNC 3u         /* opcode */
#define CHURNS 1000u
#define MANY (TRACE_TASKS_MAX + 1500u)
#define WAIT_MS 20000

/* What the process says of itself. */
static struct facts {
	uint64_t yielder_id, napper_id, sleeper_id;
} *facts;

ITEST_CHILD(yielder, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	__atomic_store_n(&facts->yielder_id, mrt_task_id(self), __ATOMIC_RELAXED); /* as the sleeper's */
	for (f->i = 0; f->i < YIELDS; f->i++)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(napper, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	facts->napper_id = mrt_task_id(self);
	for (f->i = 0; f->i < NAPS; f->i++)
		MRT_AWAIT(self, mrt_sleep(&f->op, NAP_NS));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(sleeper, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	/* relaxed: one of many, or the only one; joined by what the subject is asked for */
	__atomic_store_n(&facts->sleeper_id, mrt_task_id(self), __ATOMIC_RELAXED);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_SEC(1000)));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(spinner, { int unused; })
{
	(void)self;
	(void)f;
	atomic_fetch_add(&subject_note, 1);
	for (;;)
		itest_spin(MRT_MS(10));
	return MRT_POLL_PENDING;
}

/* What is seen of a poll is counted when it is over, which is after its task has been joined. */
static void settle(struct mrt_runtime *rt)
{
	ITEST_WAIT(itest_all_parked(rt), WAIT_MS);
}

static void work(struct mrt_runtime *rt)
{
	const struct mrt_spawn_opts opts = { .size = sizeof(opts), .name = "the sleeper" };
	struct mrt_task *yields, *naps, *sleeps;

	/* all before the first ends, whose memory would be the next one's */
	ck_assert_int_eq(mrt_spawn(rt, sleeper_poll, NULL, sizeof(struct sleeper), &opts, &sleeps), 0);
	yields = itest_spawn(rt, yielder_poll, NULL, sizeof(struct yielder));
	naps = itest_spawn(rt, napper_poll, NULL, sizeof(struct napper));
	ck_assert_int_eq(itest_join(yields), 0);
	ck_assert_int_eq(itest_join(naps), 0);
	mrt_detach(sleeps);
	settle(rt);
}

static void spin(struct mrt_runtime *rt)
{
	mrt_detach(itest_spawn(rt, spinner_poll, NULL, sizeof(struct spinner)));
	ITEST_WAIT(atomic_load(&subject_note) == 1, WAIT_MS);
}

static void spawn_many(struct mrt_runtime *rt)
{
	unsigned i;

	for (i = 0; i < MANY; i++)
		mrt_detach(itest_spawn(rt, sleeper_poll, NULL, sizeof(struct sleeper)));
}

/* The kernel hands an fsync to io-wq at once. */
ITEST_CHILD(syncer, { struct mrt_op op; int fd; unsigned i; })
{
	MRT_BEGIN(self);
	f->fd = memfd_create("synced", MFD_CLOEXEC);
	ck_assert_int_ge(f->fd, 0);
	for (f->i = 0; f->i < SYNCS; f->i++)
		MRT_AWAIT(self, mrt_fsync(&f->op, f->fd));
	(void)close(f->fd); /* nothing is in it */
	MRT_RETURN(self, 0);
}

static void sync_often(struct mrt_runtime *rt)
{
	ck_assert_int_eq(itest_run(rt, syncer_poll, NULL, sizeof(struct syncer)), 0);
	settle(rt);
}

/* Two at once, so that there are two in the list, whatever has whose memory. */
static void churn(struct mrt_runtime *rt)
{
	struct mrt_task *one = itest_spawn(rt, yielder_poll, NULL, sizeof(struct yielder));
	struct mrt_task *two = itest_spawn(rt, yielder_poll, NULL, sizeof(struct yielder));
	unsigned i;

	ck_assert_int_eq(itest_join(one), 0);
	ck_assert_int_eq(itest_join(two), 0);
	for (i = 0; i < CHURNS; i++)
		ck_assert_int_eq(itest_run(rt, yielder_poll, NULL, sizeof(struct yielder)), 0);
	settle(rt);
}

static void do_nothing(struct mrt_runtime *rt)
{
	(void)rt;
}

/* ---- looking ---- */

static struct attach_set set;
static struct top_model model;
static struct top_tasks tasks;

static void setup(void)
{
	facts = mmap(NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(facts, MAP_FAILED);
}

static void teardown(void)
{
	top_tasks_close(&tasks);
	top_close(&model);
	attach_set_close(&set);
	munmap(facts, sizeof(*facts));
}

static void look(void)
{
	unsigned i;

	for (i = 0; i < set.nr; i++)
		ck_assert_int_eq(attach_read(set.items[i]), 0);
	ck_assert_int_eq(top_update(&model, &set), 0);
	ck_assert_int_eq(top_tasks_look(&tasks, model.items[0]), 0);
}

static struct subject start(void (*first)(struct mrt_runtime *rt), void (*other)(struct mrt_runtime *rt))
{
	struct subject_opts so = { .kind = ITEST_TWO, .caps = SUBJECT_CAPS_ALL, .work = first, .other = other };

	return subject_start(&so);
}

static void listen_to(const struct subject *s)
{
	char why[TOP_TASKS_WHY_BYTES] = "";
	int pid = (int)s->pid;

	if (!set.nr) {
		ck_assert_int_eq(attach_scan(&set, &pid, 1), 0);
		ck_assert_uint_eq(set.nr, 1);
	}
	ck_assert_int_eq(top_update(&model, &set), 0);
	ck_assert_msg(top_tasks_open(&tasks, model.items[0], why) == 0, "%s", why);
	ck_assert_msg(tasks.may_walk, "%s", tasks.why);
}

/* The one row with this number; NULL: there is none. */
static const struct task_row *row_of(uint64_t id)
{
	const struct task_row *found = NULL;
	unsigned i;

	for (i = 0; i < tasks.list.nr; i++) {
		const struct task_row *r = &tasks.list.rows[i];

		ck_assert_uint_eq(r->busy_ns + r->sched_ns + r->idle_ns, r->total_ns);
		if (r->id != id)
			continue;
		ck_assert_ptr_null(found);
		found = r;
	}
	return found;
}

static bool never_yields(void)
{
	unsigned i;

	look();
	for (i = 0; i < tasks.list.nr; i++) {
		const struct task_row *r = &tasks.list.rows[i];

		if (r->warnings & TASK_NEVER_YIELDS) {
			ck_assert_int_eq(r->state, TRACE_TASK_RUNNING);
			ck_assert_uint_ge(r->running_ns, TASK_NEVER_YIELDS_NS);
			ck_assert_uint_ge(r->poll_max_ns, r->running_ns);
			ck_assert_uint_eq(r->polls, 0); /* none has ended */
			ck_assert(r->warnings & TASK_LONG_POLL);
			return true;
		}
	}
	return false;
}

/* ---- tests ---- */

START_TEST(polls_states_and_ids_are_the_tasks_own)
{
	struct subject s = start(do_nothing, work);
	struct task_row asleep, ended;
	const struct task_row *r;

	listen_to(&s);
	look();
	ck_assert_uint_eq(tasks.list.nr, 0);
	subject_do(&s, SUBJECT_OTHER);
	look();
	ck_assert_uint_eq(tasks.list.nr, 3);
	ck_assert_uint_eq(tasks.list.dropped + tasks.list.hidden + tasks.lost, 0);

	r = row_of(facts->yielder_id);
	ck_assert_ptr_nonnull(r);
	ck_assert_int_eq(r->state, TRACE_TASK_DONE);
	ck_assert_uint_eq(r->polls, YIELDS + 1);
	ck_assert_uint_eq(r->poll.count, YIELDS + 1);
	ck_assert_uint_eq(r->sched.count, YIELDS + 1);
	ck_assert_uint_eq(r->self_wakes, YIELDS);
	ck_assert(r->warnings & TASK_SELF_WAKES);

	r = row_of(facts->napper_id);
	ck_assert_ptr_nonnull(r);
	ck_assert_int_eq(r->state, TRACE_TASK_DONE);
	ck_assert_uint_eq(r->polls, NAPS + 1);
	ck_assert_uint_eq(r->self_wakes, 0);
	ck_assert_uint_ge(r->idle_ns, NAPS * NAP_NS / 2); /* but for what a noisy machine makes of it */
	ck_assert(!(r->warnings & (TASK_SELF_WAKES | TASK_NEVER_YIELDS)));

	r = row_of(facts->sleeper_id);
	ck_assert_ptr_nonnull(r);
	ck_assert_int_eq(r->state, TRACE_TASK_IDLE);
	ck_assert_uint_eq(r->polls, 1);
	ck_assert_str_eq(r->name, "the sleeper");
	if (symbols_has_names())
		ck_assert_str_eq(r->fn_name, "sleeper_poll");

	/* those that have ended stand still, the one that sleeps goes on */
	asleep = *r;
	ended = *row_of(facts->napper_id);
	look();
	ck_assert_uint_eq(row_of(ended.id)->total_ns, ended.total_ns);
	ck_assert_uint_gt(row_of(asleep.id)->total_ns, asleep.total_ns);
	ck_assert_uint_gt(row_of(asleep.id)->idle_ns, asleep.idle_ns);
	subject_kill(&s);
}
END_TEST

START_TEST(what_has_the_memory_of_an_ended_task_begins_anew)
{
	struct subject s = start(do_nothing, churn);
	const struct task_row **sorted;
	unsigned i;

	listen_to(&s);
	subject_do(&s, SUBJECT_OTHER);
	look();
	ck_assert_uint_gt(tasks.list.nr, 0);
	ck_assert_uint_lt(tasks.list.nr, CHURNS); /* else none was where another has been */
	for (i = 0; i < tasks.list.nr; i++) {
		ck_assert_int_eq(tasks.list.rows[i].state, TRACE_TASK_DONE);
		ck_assert_uint_eq(tasks.list.rows[i].polls, YIELDS + 1);
		ck_assert_uint_eq(tasks.list.rows[i].self_wakes, YIELDS);
	}
	ck_assert_ptr_nonnull(row_of(facts->yielder_id)); /* the last one */

	sorted = calloc(TASK_LIST_MAX, sizeof(*sorted));
	ck_assert_ptr_nonnull(sorted);
	ck_assert_uint_eq(top_tasks_sorted(&tasks, sorted), tasks.list.nr);
	ck_assert_uint_ge(tasks.list.nr, 2);
	ck_assert_uint_gt(sorted[0]->total_ns, sorted[tasks.list.nr - 1]->total_ns); /* else nothing is shown of the order */
	for (i = 1; i < tasks.list.nr; i++)
		ck_assert_uint_ge(sorted[i - 1]->total_ns, sorted[i]->total_ns);
	free(sorted);
	subject_end(&s);
}
END_TEST

/* As where the process's memory may not be read, but for the ids, which the programs have read. */
START_TEST(without_memory_tasks_are_known_from_their_events)
{
	struct subject s = start(work, work);
	const struct task_row *r;

	listen_to(&s);
	tasks.may_walk = false;
	look();
	ck_assert_uint_eq(tasks.list.nr, 0); /* the one that sleeps fires no probe */
	subject_do(&s, SUBJECT_OTHER);
	look();
	ck_assert_uint_eq(tasks.list.nr, 3);
	r = row_of(facts->sleeper_id);
	ck_assert_ptr_nonnull(r);
	ck_assert_int_eq(r->state, TRACE_TASK_IDLE);
	ck_assert_uint_eq(r->polls, 1);
	ck_assert_str_eq(r->name, "");
	ck_assert_int_eq(row_of(facts->yielder_id)->state, TRACE_TASK_DONE);
	subject_kill(&s);
}
END_TEST

START_TEST(a_task_that_never_yields_is_warned_of)
{
	struct subject s = start(do_nothing, spin);

	listen_to(&s);
	subject_do(&s, SUBJECT_OTHER);
	ITEST_WAIT(never_yields(), WAIT_MS);
	ck_assert_uint_eq(tasks.list.nr, 1);
	ck_assert(tasks.list.rows[0].is_counted);
	if (symbols_has_names())
		ck_assert_str_eq(tasks.list.rows[0].fn_name, "spinner_poll");
	subject_kill(&s);
}
END_TEST

/* No probe fires of either: memory and the statistics alone tell of them. */
START_TEST(what_was_there_before_is_shown_too)
{
	struct subject s = start(work, spin);
	const struct task_row *r;

	subject_do(&s, SUBJECT_OTHER);
	listen_to(&s);
	ITEST_WAIT(never_yields(), WAIT_MS);
	ck_assert_uint_eq(tasks.list.nr, 2);
	ck_assert_ptr_nonnull(row_of(facts->sleeper_id));
	r = row_of(facts->sleeper_id);
	ck_assert(!r->is_counted);
	ck_assert_int_eq(r->state, TRACE_TASK_IDLE);
	ck_assert_str_eq(r->name, "the sleeper");
	ck_assert_uint_eq(r->polls, 0);
	ck_assert_uint_eq(r->idle_ns, r->total_ns);
	ck_assert_ptr_null(row_of(facts->yielder_id));
	subject_kill(&s);
}
END_TEST

START_TEST(tasks_beyond_the_entries_are_counted_as_dropped)
{
	struct subject s = start(do_nothing, spawn_many);
	unsigned i, counted = 0;

	listen_to(&s);
	subject_do(&s, SUBJECT_OTHER);
	ITEST_WAIT((look(), tasks.list.nr == MANY), WAIT_MS);
	for (i = 0; i < tasks.list.nr; i++)
		counted += tasks.list.rows[i].is_counted;
	ck_assert_uint_le(counted, TRACE_TASKS_MAX);
	/* one that was dropped and is met again makes an entry anew */
	ck_assert_uint_ge(tasks.list.dropped, MANY - counted);
	ck_assert_uint_eq(tasks.list.hidden, 0);
	subject_kill(&s);
}
END_TEST

START_TEST(ops_that_go_to_io_wq_are_counted)
{
	struct subject s = start(do_nothing, sync_often);
	char line[256];

	listen_to(&s);
	look();
	ck_assert(!top_punts_line(&tasks, line, sizeof(line)));
	subject_do(&s, SUBJECT_OTHER);
	look();
	if (tracer_note(tasks.tracer, 0)) {
		printf("skipped: %s\n", tracer_note(tasks.tracer, 0));
	} else {
		ck_assert_uint_eq(tasks.punts[FSYNC], SYNCS);
		ck_assert(tasks.punts_per_s > 0);
		ck_assert(top_punts_line(&tasks, line, sizeof(line)));
		ck_assert_msg(strstr(line, "since it listens: fsync 7") != NULL, "%s", line);
	}
	subject_end(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("top_tasks");
	TCase *tc = tcase_create("tasks");
	char why[TRACER_WHY_BYTES];

	itest_need_io_uring();
	if (tracer_missing() || tracer_check(TRACER_AUTO, why)) {
		printf("skipped: no BPF programs here: %s\n", tracer_missing() ? tracer_missing() : why);
		return ITEST_SKIP;
	}
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 4 * ITEST_LIMIT_S);
	tcase_add_test(tc, polls_states_and_ids_are_the_tasks_own);
	tcase_add_test(tc, what_has_the_memory_of_an_ended_task_begins_anew);
	tcase_add_test(tc, without_memory_tasks_are_known_from_their_events);
	tcase_add_test(tc, a_task_that_never_yields_is_warned_of);
	tcase_add_test(tc, what_was_there_before_is_shown_too);
	tcase_add_test(tc, tasks_beyond_the_entries_are_counted_as_dropped);
	tcase_add_test(tc, ops_that_go_to_io_wq_are_counted);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
