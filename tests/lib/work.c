/* SPDX-License-Identifier: MIT */
/* See work.h. */
#include "work.h"

#include <unistd.h>

#include "itest.h"

#define WAIT_MS 20000
#define TURNS 40u

/* All is told that workers tell when they park. */
static void settle(struct mrt_runtime *rt)
{
	if (itest_global(rt).flavour == MRT_FLAVOUR_MULTI_THREAD)
		ITEST_WAIT(itest_all_parked(rt), WAIT_MS);
}

ITEST_CHILD(yielder, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < WORK_YIELDS; f->i++)
		MRT_AWAIT(self, mrt_yield(&f->op));
	MRT_RETURN(self, 0);
}

void work_polls(struct mrt_runtime *rt)
{
	unsigned i;

	for (i = 0; i < WORK_TASKS; i++)
		ck_assert_int_eq(itest_run(rt, yielder_poll, NULL, sizeof(struct yielder)), 0);
	settle(rt);
}

ITEST_CHILD(nopper, { struct mrt_op op; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < WORK_NOPS; f->i++)
		MRT_AWAIT(self, mrt_nop(&f->op));
	MRT_RETURN(self, 0);
}

void work_nops(struct mrt_runtime *rt)
{
	ck_assert_int_eq(itest_run(rt, nopper_poll, NULL, sizeof(struct nopper)), 0);
	settle(rt);
}

enum mrt_poll work_turner_poll(struct mrt_task *self, void *frame)
{
	struct work_turner *f = frame;

	MRT_BEGIN(self);
	for (f->i = 0; f->i < TURNS; f->i++)
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(100)));
	MRT_RETURN(self, 0);
}

atomic_uint work_stuck_nr;

enum mrt_poll work_stuck_poll(struct mrt_task *self, void *frame)
{
	(void)self;
	(void)frame;
	atomic_fetch_add(&work_stuck_nr, 1);
	for (;;)
		sleep(1000);
	return MRT_POLL_PENDING;
}

static void get_stuck(struct mrt_runtime *rt, unsigned nr)
{
	unsigned before = atomic_load(&work_stuck_nr), i;

	for (i = 0; i < nr; i++)
		mrt_detach(itest_spawn(rt, work_stuck_poll, NULL, 0));
	ITEST_WAIT(atomic_load(&work_stuck_nr) == before + nr, WAIT_MS);
}

void work_get_stuck(struct mrt_runtime *rt)
{
	get_stuck(rt, 1);
}

void work_get_all_stuck(struct mrt_runtime *rt)
{
	get_stuck(rt, mrt_runtime_workers_nr(rt));
}
