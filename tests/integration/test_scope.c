/* SPDX-License-Identifier: MIT */
/*
 * Task scopes, through the public API on a real runtime.
 *
 * Proven: a parent never ends before its children, whatever ends it (return, abort, shutdown); results, fail-fast,
 * reuse; that cancel, deadline and fail-fast reach children wherever they are. Not proven: which child is the first of
 * several that fail at once.
 */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <martlet/martlet.h>

#include "suite.h"

#define LIMIT_S 30
#define FLAVOURS_NR 2   /* loop index: 0 multi-thread with 3 workers, 1 current-thread */

static struct mrt_runtime *runtime_create(int flavour)
{
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt = NULL;

	mrt_runtime_opts_init(&opts);
	opts.flavour = flavour ? MRT_FLAVOUR_CURRENT_THREAD : MRT_FLAVOUR_MULTI_THREAD;
	opts.workers_nr = flavour ? 1 : 3;
	opts.sq_entries = 64;
	ck_assert_int_eq(mrt_runtime_create(&opts, &rt), 0);
	return rt;
}

struct script {
	struct mrt_scope scope;
	struct mrt_op op;
	struct mrt_op sleep;
	struct mrt_timer timer;
	struct mrt_oneshot go;
	struct mrt_task *task;
	unsigned i;
};

static void script_run(int flavour, mrt_poll_fn fn)
{
	struct mrt_runtime *rt = runtime_create(flavour);
	struct script script;
	int64_t result = -1;

	memset(&script, 0, sizeof(script));
	ck_assert_int_eq(mrt_block_on(rt, fn, &script, sizeof(script), &result), 0);
	ck_assert_int_eq(result, 0);
	mrt_runtime_destroy(rt);
}

/* A test whose body is a poll function on a struct script. */
#define SCRIPT(name)                                                                                    \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame);                           \
	START_TEST(name)                                                                                \
	{                                                                                               \
		script_run(_i, name##_poll);                                                            \
	}                                                                                               \
	END_TEST                                                                                        \
	static enum mrt_poll name##_poll(struct mrt_task *self, void *frame)

/* ---- children ---- */

static atomic_uint alive;       /* children that have been polled and not returned */
static atomic_uint ended;       /* children that have returned by themselves */
static atomic_uint aborted;     /* ... that saw an abort */

struct child {
	struct mrt_op op;
	struct mrt_oneshot *go;         /* begins when this is sent; NULL: at once */
	uint64_t sleep_ns;              /* UINT64_MAX: for ever */
	int64_t result;
	unsigned yields;
	unsigned clean_up_yields;       /* after an abort, inside a shield */
};

static enum mrt_poll child_poll(struct mrt_task *self, void *frame)
{
	struct child *c = frame;

	MRT_BEGIN(self);
	atomic_fetch_add_explicit(&alive, 1, memory_order_relaxed);
	if (c->go)
		MRT_AWAIT(self, mrt_oneshot_recv(&c->op, c->go));
	for (; c->yields > 0; c->yields--)
		MRT_AWAIT(self, mrt_yield(&c->op));
	MRT_AWAIT(self, mrt_sleep(&c->op, c->sleep_ns));
	if (c->op.res == -ECANCELED) {
		ck_assert(mrt_task_is_aborted(self));
		mrt_shield(self, true);
		for (; c->clean_up_yields > 0; c->clean_up_yields--)
			MRT_AWAIT(self, mrt_yield(&c->op));
		mrt_shield(self, false);
		atomic_fetch_add_explicit(&aborted, 1, memory_order_relaxed);
		c->result = -ECANCELED;
	} else {
		atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
	}
	atomic_fetch_sub_explicit(&alive, 1, memory_order_release);
	MRT_RETURN(self, c->result);
}

static int spawn(struct mrt_scope *scope, struct child child)
{
	return mrt_scope_spawn(scope, child_poll, &child, sizeof(child), NULL);
}

static unsigned count(atomic_uint *counter)
{
	return atomic_load_explicit(counter, memory_order_acquire);
}

#define FOREVER UINT64_MAX

/* ---- join ---- */

SCRIPT(join_waits_for_all_children)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	for (s->i = 0; s->i < 100; s->i++)
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .yields = s->i % 7, .sleep_ns = s->i % 5 * 100000,
								  .result = s->i }), 0);
	ck_assert_uint_le(mrt_scope_nr(&s->scope), 100);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, 0);
	ck_assert_uint_eq(count(&ended), 100);
	ck_assert_uint_eq(count(&alive), 0);
	ck_assert_uint_eq(mrt_scope_nr(&s->scope), 0);
	MRT_RETURN(self, 0);
}

SCRIPT(join_of_an_empty_scope_completes_at_once)
{
	struct script *s = frame;
	struct mrt_op *op;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	op = mrt_scope_join(&s->scope);
	ck_assert(mrt_op_is_done(op));
	ck_assert_int_eq(op->res, 0);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	/* children that have all ended by the time of the join */
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 1 }), 0);
	while (mrt_scope_nr(&s->scope) > 0)
		MRT_AWAIT(self, mrt_yield(&s->op));
	op = mrt_scope_join(&s->scope);
	ck_assert(mrt_op_is_done(op));
	ck_assert_int_eq(op->res, 0);
	MRT_RETURN(self, 0);
}

SCRIPT(join_gives_the_first_failure_and_the_others_go_on)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	mrt_oneshot_init(&s->go);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .go = &s->go, .result = -EIO }), 0);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = -EPROTO }), 0);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .go = &s->go, .sleep_ns = MRT_MS(5), .result = 3 }), 0);
	while (mrt_scope_nr(&s->scope) == 3)
		MRT_AWAIT(self, mrt_yield(&s->op));
	ck_assert_uint_eq(mrt_scope_nr(&s->scope), 2);
	ck_assert_int_eq(mrt_oneshot_send(&s->go, 0), 0);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, -EPROTO);
	ck_assert_uint_eq(count(&ended), 3);
	MRT_RETURN(self, 0);
}

SCRIPT(a_scope_may_be_used_again_after_its_join)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	for (s->i = 0; s->i < 200; s->i++) {
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .yields = s->i % 3, .result = -(int64_t)(s->i % 2) }), 0);
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .yields = s->i % 4 }), 0);
		MRT_AWAIT(self, mrt_scope_join(&s->scope));
		ck_assert_int_eq(s->scope.mrt__op.res, -(int64_t)(s->i % 2));   /* nothing is left of the round before */
		ck_assert_uint_eq(mrt_scope_nr(&s->scope), 0);
	}
	ck_assert_uint_eq(count(&ended), 400);
	MRT_RETURN(self, 0);
}

SCRIPT(no_child_is_added_to_a_join_in_flight)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	mrt_oneshot_init(&s->go);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .go = &s->go }), 0);
	mrt_scope_join(&s->scope);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), -EBUSY);
	ck_assert_ptr_eq(mrt_scope_join(&s->scope), &s->scope.mrt__op);
	ck_assert_int_eq(mrt_oneshot_send(&s->go, 0), 0);
	MRT_AWAIT(self, &s->scope.mrt__op);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), 0);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_uint_eq(count(&ended), 2);
	MRT_RETURN(self, 0);
}

SCRIPT(a_spawn_that_fails_leaves_the_scope_as_it_was)
{
	struct script *s = frame;
	struct mrt_op *op;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	ck_assert_int_eq(mrt_scope_spawn(&s->scope, NULL, NULL, 0, NULL), -EINVAL);
	ck_assert_uint_eq(mrt_scope_nr(&s->scope), 0);
	ck_assert(mrt_op_is_done(&s->scope.mrt__op));   /* nothing is in flight */
	op = mrt_scope_join(&s->scope);
	ck_assert(mrt_op_is_done(op));
	ck_assert_int_eq(op->res, 0);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .sleep_ns = MRT_MS(1) }), 0);
	ck_assert_int_eq(mrt_scope_spawn(&s->scope, NULL, NULL, 0, NULL), -EINVAL);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, 0);
	ck_assert_uint_eq(count(&ended), 1);
	MRT_RETURN(self, 0);
}

/* ---- cancel ---- */

SCRIPT(cancel_aborts_all_children_and_refuses_new_ones)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	for (s->i = 0; s->i < 50; s->i++)
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .sleep_ns = FOREVER, .clean_up_yields = 3 }), 0);
	while (count(&alive) < 50)
		MRT_AWAIT(self, mrt_yield(&s->op));
	ck_assert_uint_eq(mrt_scope_nr(&s->scope), 50);
	mrt_scope_cancel(&s->scope);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), -ECANCELED);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, -ECANCELED);
	ck_assert_uint_eq(count(&aborted), 50);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), 0);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, 0);
	MRT_RETURN(self, 0);
}

SCRIPT(cancel_of_an_empty_scope_holds_until_it_is_joined)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	for (s->i = 0; s->i < 2; s->i++) {
		mrt_scope_cancel(&s->scope);
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), -ECANCELED);
		MRT_AWAIT(self, mrt_scope_join(&s->scope));
		ck_assert_int_eq(s->scope.mrt__op.res, 0);
	}
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), 0);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	MRT_RETURN(self, 0);
}

SCRIPT(cancel_before_a_child_has_run_means_that_it_never_does)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	for (s->i = 0; s->i < 20; s->i++)
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .sleep_ns = FOREVER }), 0);
	mrt_scope_cancel(&s->scope);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, -ECANCELED);
	ck_assert_uint_eq(count(&alive), 0);
	ck_assert_uint_le(count(&aborted), 20);         /* on other workers some may have begun */
	MRT_RETURN(self, 0);
}

SCRIPT(a_deadline_on_the_join_aborts_the_children)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	for (s->i = 0; s->i < 10; s->i++)
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .sleep_ns = FOREVER, .clean_up_yields = 2 }), 0);
	while (count(&alive) < 10) /* who has not begun never does */
		MRT_AWAIT(self, mrt_yield(&s->op));
	MRT_AWAIT(self, mrt_deadline(mrt_scope_join(&s->scope), &s->timer, MRT_MS(3)));
	ck_assert_int_eq(s->scope.mrt__op.res, -ECANCELED);
	ck_assert_uint_eq(count(&aborted), 10);
	ck_assert_uint_eq(mrt_scope_nr(&s->scope), 0);
	MRT_RETURN(self, 0);
}

SCRIPT(fail_fast_aborts_the_others)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, MRT_SCOPE_FAIL_FAST);
	for (s->i = 0; s->i < 20; s->i++)
		ck_assert_int_eq(spawn(&s->scope, (struct child){ .sleep_ns = FOREVER, .clean_up_yields = 1 }), 0);
	while (count(&alive) < 20)
		MRT_AWAIT(self, mrt_yield(&s->op));
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .sleep_ns = MRT_MS(1), .result = -EIO }), 0);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, -EIO);
	ck_assert_uint_eq(count(&aborted), 20);
	ck_assert_uint_eq(count(&ended), 1);
	/* the failure belongs to the round before */
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), 0);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, 0);
	MRT_RETURN(self, 0);
}

SCRIPT(fail_fast_refuses_children_after_the_failure)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, MRT_SCOPE_FAIL_FAST);
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = -EIO }), 0);
	while (mrt_scope_nr(&s->scope) > 0)
		MRT_AWAIT(self, mrt_yield(&s->op));
	ck_assert_int_eq(spawn(&s->scope, (struct child){ .result = 0 }), -ECANCELED);
	MRT_AWAIT(self, mrt_scope_join(&s->scope));
	ck_assert_int_eq(s->scope.mrt__op.res, -EIO);
	MRT_RETURN(self, 0);
}

/* ---- the parent's end ---- */

struct parent {
	struct mrt_scope scope;
	struct mrt_op op;
	unsigned i;
	unsigned children_nr;
	bool joins;
	bool stays;
	unsigned depth;
};

static enum mrt_poll parent_poll(struct mrt_task *self, void *frame)
{
	struct parent *p = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&p->scope, 0);
	for (p->i = 0; p->i < p->children_nr; p->i++) {
		if (p->depth > 0) {
			struct parent sub = { .children_nr = p->children_nr, .joins = p->joins, .stays = p->stays,
					      .depth = p->depth - 1 };

			ck_assert_int_eq(mrt_scope_spawn(&p->scope, parent_poll, &sub, sizeof(sub), NULL), 0);
		} else {
			ck_assert_int_eq(spawn(&p->scope, (struct child){ .sleep_ns = FOREVER,
									  .clean_up_yields = p->i % 3 }), 0);
		}
	}
	if (p->joins)
		MRT_AWAIT(self, mrt_scope_join(&p->scope));
	else if (p->stays)
		MRT_AWAIT(self, mrt_sleep(&p->op, FOREVER));
	else
		MRT_AWAIT(self, mrt_sleep(&p->op, MRT_MS(1)));
	MRT_RETURN(self, 17);
}

SCRIPT(a_parent_that_returns_takes_its_children_along)
{
	struct script *s = frame;
	struct parent p = { .children_nr = 10 };

	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_spawn(NULL, parent_poll, &p, sizeof(p), NULL, &s->task), 0);
	MRT_AWAIT(self, mrt_join(&s->op, s->task));
	ck_assert_int_eq(s->op.res, 17);
	ck_assert_uint_eq(count(&alive), 0);
	MRT_RETURN(self, 0);
}

/* Four ways to stand when the abort comes, each three levels deep. */
SCRIPT(an_aborted_parent_takes_its_children_along)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 8; s->i++) {
		atomic_store_explicit(&alive, 0, memory_order_relaxed);
		{
			struct parent p = { .children_nr = 4, .depth = s->i / 4 * 2, .joins = s->i % 2, .stays = true };

			ck_assert_int_eq(mrt_spawn(NULL, parent_poll, &p, sizeof(p), NULL, &s->task), 0);
		}
		while (s->i % 4 / 2 && count(&alive) < (s->i / 4 ? 64 : 4))
			MRT_AWAIT(self, mrt_yield(&s->op));
		mrt_abort(s->task);
		MRT_AWAIT(self, mrt_join(&s->op, s->task));
		ck_assert_int_eq(s->op.why, 0);
		ck_assert(s->op.res == 17 || s->op.res == -ECANCELED);  /* -ECANCELED: before its first poll */
		ck_assert_uint_eq(count(&alive), 0);
	}
	MRT_RETURN(self, 0);
}

START_TEST(shutdown_takes_scopes_down)
{
	struct mrt_runtime *rt = runtime_create(0);
	struct parent p = { .children_nr = 5, .depth = 2, .joins = _i, .stays = true };

	ck_assert_int_eq(mrt_spawn(rt, parent_poll, &p, sizeof(p), NULL, NULL), 0);
	while (count(&alive) < 125)
		(void)sched_yield();
	ck_assert_int_eq(mrt_runtime_shutdown_wait(rt, MRT_SEC(20)), 0);
	ck_assert_uint_eq(count(&alive), 0);
	mrt_runtime_destroy(rt);
}
END_TEST

/* A child uses its parent's frame until it has ended: safe, because the parent's frame lives as long. */
struct lender {
	struct mrt_scope scope;
	uint64_t cells[16];
};

struct borrower {
	struct mrt_op op;
	uint64_t *cell;
};

static enum mrt_poll borrower_poll(struct mrt_task *self, void *frame)
{
	struct borrower *b = frame;

	MRT_BEGIN(self);
	while (!mrt_task_is_aborted(self)) {
		(*b->cell)++;
		MRT_AWAIT(self, mrt_yield(&b->op));
	}
	*b->cell = 0;
	MRT_RETURN(self, 0);
}

static enum mrt_poll lender_poll(struct mrt_task *self, void *frame)
{
	struct lender *l = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&l->scope, 0);
	for (unsigned i = 0; i < 16; i++) {
		struct borrower b = { .cell = &l->cells[i] };

		ck_assert_int_eq(mrt_scope_spawn(&l->scope, borrower_poll, &b, sizeof(b), NULL), 0);
	}
	MRT_RETURN(self, 0);
}

SCRIPT(children_may_use_their_parents_frame)
{
	struct script *s = frame;

	MRT_BEGIN(self);
	for (s->i = 0; s->i < 50; s->i++) {
		ck_assert_int_eq(mrt_spawn(NULL, lender_poll, NULL, sizeof(struct lender), NULL, &s->task), 0);
		MRT_AWAIT(self, mrt_join(&s->op, s->task));
		ck_assert_int_eq(s->op.res, 0);
	}
	MRT_RETURN(self, 0);
}

static enum mrt_poll thief_poll(struct mrt_task *self, void *frame)
{
	struct mrt_scope **scope = frame;

	MRT_BEGIN(self);
	(void)mrt_scope_join(*scope);
	MRT_RETURN(self, 0);
}

static enum mrt_poll robbed_poll(struct mrt_task *self, void *frame)
{
	struct script *s = frame;
	struct mrt_scope *scope = &s->scope;

	MRT_BEGIN(self);
	mrt_scope_init(&s->scope, 0);
	ck_assert_int_eq(mrt_scope_spawn(&s->scope, thief_poll, &scope, sizeof(scope), NULL), 0);
	MRT_AWAIT(self, mrt_sleep(&s->sleep, FOREVER));
	MRT_RETURN(self, 0);
}

START_TEST(a_scope_used_by_another_task_ends_the_process)
{
	script_run(0, robbed_poll);
}
END_TEST

#define ADD(tc, name) tcase_add_loop_test(tc, name, 0, FLAVOURS_NR)

static Suite *scope_suite(void)
{
	Suite *s = suite_create("scope");
	TCase *join = tcase_create("join"), *cancel = tcase_create("cancel"), *parent = tcase_create("parent");

	tcase_set_timeout(join, LIMIT_S);
	ADD(join, join_waits_for_all_children);
	ADD(join, join_of_an_empty_scope_completes_at_once);
	ADD(join, join_gives_the_first_failure_and_the_others_go_on);
	ADD(join, a_scope_may_be_used_again_after_its_join);
	ADD(join, no_child_is_added_to_a_join_in_flight);
	ADD(join, a_spawn_that_fails_leaves_the_scope_as_it_was);
	suite_add_tcase(s, join);

	tcase_set_timeout(cancel, LIMIT_S);
	ADD(cancel, cancel_aborts_all_children_and_refuses_new_ones);
	ADD(cancel, cancel_of_an_empty_scope_holds_until_it_is_joined);
	ADD(cancel, cancel_before_a_child_has_run_means_that_it_never_does);
	ADD(cancel, a_deadline_on_the_join_aborts_the_children);
	ADD(cancel, fail_fast_aborts_the_others);
	ADD(cancel, fail_fast_refuses_children_after_the_failure);
	suite_add_tcase(s, cancel);

	tcase_set_timeout(parent, LIMIT_S);
	ADD(parent, a_parent_that_returns_takes_its_children_along);
	ADD(parent, an_aborted_parent_takes_its_children_along);
	tcase_add_loop_test(parent, shutdown_takes_scopes_down, 0, 2);
	ADD(parent, children_may_use_their_parents_frame);
	tcase_add_test_raise_signal(parent, a_scope_used_by_another_task_ends_the_process, SIGABRT);
	suite_add_tcase(s, parent);
	return s;
}

int main(void)
{
	return suite_main(scope_suite());
}
