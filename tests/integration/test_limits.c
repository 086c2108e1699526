/* SPDX-License-Identifier: MIT */
/*
 * Resource limits: locked memory as an ordinary user, descriptors, threads, address space. A runtime either works, or is
 * refused with a code and a sentence, and what was made so far is given back.
 *
 * Each case is a child. Locked memory is counted per user, also across processes, so each case that needs an ordinary
 * user takes a user id of its own that nobody else has.
 */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "itest.h"

#define UID_BASE 0x50000000u

struct limit {
	int resource;
	rlim_t value;
	unsigned workers, sq, cq;
	bool ordinary;          /* as an ordinary user */
	int expect[2];          /* what mrt_runtime_create may return */
	const char *says;       /* where it fails */
};

static const struct limit limits[] = {
	/* memory for rings of the default size is not there; in small ones there is room */
	{ RLIMIT_MEMLOCK, 0, 2, 0, 0, true, { 0, -ENOMEM }, "RLIMIT_MEMLOCK" },
	{ RLIMIT_MEMLOCK, 16 << 10, 2, 0, 0, true, { 0, -ENOMEM }, "RLIMIT_MEMLOCK" },
	{ RLIMIT_MEMLOCK, 64 << 10, 8, 4096, 8192, true, { 0, -ENOMEM }, "RLIMIT_MEMLOCK" },
	{ RLIMIT_MEMLOCK, 8 << 20, 2, 0, 0, true, { 0, 0 }, "" },
	{ RLIMIT_MEMLOCK, 64 << 10, 1, 8, 8, true, { 0, 0 }, "" },
	/* descriptors: each worker has three */
	{ RLIMIT_NOFILE, 3, 2, 0, 0, false, { -EMFILE, -EMFILE }, "RLIMIT_NOFILE" },
	{ RLIMIT_NOFILE, 4, 2, 0, 0, false, { -EMFILE, -EMFILE }, "RLIMIT_NOFILE" },
	{ RLIMIT_NOFILE, 5, 2, 0, 0, false, { -EMFILE, -EMFILE }, "RLIMIT_NOFILE" },
	{ RLIMIT_NOFILE, 6, 2, 0, 0, false, { -EMFILE, -EMFILE }, "RLIMIT_NOFILE" },
	{ RLIMIT_NOFILE, 8, 2, 0, 0, false, { -EMFILE, -EMFILE }, "RLIMIT_NOFILE" },
	{ RLIMIT_NOFILE, 9, 2, 0, 0, false, { 0, -EMFILE }, "RLIMIT_NOFILE" },
	{ RLIMIT_NOFILE, 20, 64, 16, 16, false, { -EMFILE, -EMFILE }, "RLIMIT_NOFILE" },
	/* threads: 0 is below what the user has already */
	{ RLIMIT_NPROC, 0, 2, 0, 0, true, { -EAGAIN, -EAGAIN }, "thread" },
	{ RLIMIT_NPROC, 2, 4, 0, 0, true, { -EAGAIN, -EAGAIN }, "thread" },
	/* many workers: some of their threads, or of their rings, are there already when the limit comes */
	{ RLIMIT_NPROC, 32, 64, 0, 0, true, { -EAGAIN, -EAGAIN }, "thread" },
	{ RLIMIT_NOFILE, 100, 64, 0, 0, false, { -EMFILE, -EMFILE }, "RLIMIT_NOFILE" },
	{ RLIMIT_MEMLOCK, 1 << 20, 64, 0, 0, true, { 0, -ENOMEM }, "RLIMIT_MEMLOCK" },
};
#define LIMITS_NR ((int)(sizeof(limits) / sizeof(limits[0])))

static int become_ordinary(unsigned uid)
{
	if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		return -errno;
	return 0;
}

ITEST_CHILD(work, { struct mrt_op op; struct mrt_op nop; int i; char buf[64]; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 50; f->i++) {
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(50)));
		MRT_AWAIT(self, mrt_nop(&f->nop));
		if (f->op.res || f->nop.res)
			MRT_RETURN(self, -1);
	}
	MRT_RETURN(self, 0);
}

static int try_limited(void *ctx)
{
	const struct limit *l = ctx;
	struct rlimit limit = { l->value, l->value };
	struct mrt_runtime_opts opts = itest_opts(l->workers == 2 ? ITEST_TWO : ITEST_FLOAT);
	struct mrt_runtime *rt = NULL;
	struct work w = { .i = 0 };
	char *log;
	int64_t result;
	unsigned fds_before;
	int err, again;

	if (l->resource == RLIMIT_NOFILE) {
		int fd;

		for (fd = 3; fd < 256; fd++)
			close(fd); /* so that the number means what it says */
	}
	if (l->ordinary && become_ordinary(UID_BASE + (unsigned)getpid()))
		return 10;
	fds_before = itest_fds_nr();
	if (setrlimit((__rlimit_resource_t)l->resource, &limit))
		return 11;
	opts.workers_nr = l->workers;
	opts.sq_entries = l->sq;
	opts.cq_entries = l->cq;
	for (again = 0; again < 3; again++) {
		itest_log_clear();
		err = mrt_runtime_create(&opts, &rt);
		if (err != l->expect[0] && err != l->expect[1]) {
			log = itest_log_text();
			fprintf(stderr, "it returned %d: %s\n", err, log);
			return 1;
		}
		if (err && !itest_log_has(l->says)) {
			log = itest_log_text();
			fprintf(stderr, "'%s' is not in: %s\n", l->says, log);
			return 2;
		}
		if (err)
			continue;
		if (mrt_block_on(rt, work_poll, &w, sizeof(w), &result) || result)
			return 3;
		mrt_runtime_destroy(rt);
	}
	if (l->resource != RLIMIT_NOFILE && itest_fds_nr() > fds_before)
		return 4; /* something stayed open */
	return 0;
}

START_TEST(a_limit_is_kept_or_said)
{
	struct limit l = limits[_i];
	struct itest_exit e;

	if (l.ordinary && geteuid() != 0) {
		printf("skipped: case %d needs root, to become an ordinary user\n", _i);
		return;
	}
	e = itest_child(try_limited, &l, ITEST_LIMIT_S);
	ck_assert_msg(e.status == 0, "status %#x: %s", e.status, e.err);
}
END_TEST

/* ---- a runtime that runs is not harmed by a limit that is lowered ---- */

static int lower_later(void *ctx)
{
	struct rlimit none = { 0, 0 };
	struct mrt_runtime *rt;
	struct work w = { .i = 0 };
	int64_t result = -1;

	(void)ctx;
	rt = itest_runtime(ITEST_TWO);
	if (setrlimit(RLIMIT_MEMLOCK, &none) || setrlimit(RLIMIT_NOFILE, &none))
		return 1;
	if (mrt_block_on(rt, work_poll, &w, sizeof(w), &result) || result)
		return 2;
	mrt_runtime_destroy(rt);
	return 0;
}

START_TEST(limits_that_are_lowered_later_harm_nothing)
{
	itest_child_ok(lower_later, NULL);
}
END_TEST

/* ---- many runtimes ---- */

START_TEST(runtimes_one_after_another_as_an_ordinary_user)
{
	struct limit l = { RLIMIT_MEMLOCK, 1 << 20, 2, 0, 0, true, { 0, 0 }, "" };
	struct itest_exit e;
	int i;

	if (geteuid() != 0) {
		printf("skipped: needs root, to become an ordinary user\n");
		return;
	}
	/* the charge of a closed ring comes back late */
	for (i = 0; i < 10; i++) {
		e = itest_child(try_limited, &l, ITEST_LIMIT_S);
		ck_assert_msg(e.status == 0, "status %#x: %s", e.status, e.err);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("limits");
	TCase *tc = tcase_create("limits");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, a_limit_is_kept_or_said, 0, LIMITS_NR);
	tcase_add_test(tc, limits_that_are_lowered_later_harm_nothing);
	tcase_add_test(tc, runtimes_one_after_another_as_an_ordinary_user);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
