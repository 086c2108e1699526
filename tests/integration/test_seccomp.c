/* SPDX-License-Identifier: MIT */
/*
 * io_uring forbidden, hidden or too old: three codes, three sentences. A filter cannot be taken off again, so each case
 * is a child of its own, filtered before it has a runtime.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "itest.h"

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif

struct rule {
	unsigned nr;            /* system call */
	int err;                /* it fails with */
	int expect;             /* mrt_runtime_create returns; 0: it works */
	const char *says[2];
};

static const struct rule rules[] = {
	{ SYS_io_uring_setup, ENOSYS, -ENOSYS, { "has no io_uring", "seccomp" } },
	{ SYS_io_uring_setup, EPERM, -EPERM, { "forbidden", "seccomp" } },
	{ SYS_io_uring_setup, EACCES, -EPERM, { "forbidden", "seccomp" } },
	{ SYS_io_uring_setup, EINVAL, -EOPNOTSUPP, { "too old", "5.13" } },
	{ SYS_io_uring_setup, EMFILE, -EMFILE, { "out of file descriptors", "RLIMIT_NOFILE" } },
	{ SYS_io_uring_setup, ENOMEM, -ENOMEM, { "no memory for a ring", "" } },
};
#define RULES_NR ((int)(sizeof(rules) / sizeof(rules[0])))

static int forbid(unsigned nr, int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) ? -errno : 0;
}

static int create_forbidden(void *ctx)
{
	const struct rule *rule = ctx;
	struct mrt_runtime *rt = (void *)&rule;
	struct mrt_runtime_opts opts;
	unsigned fds_nr, kind, i;
	int err;

	if (forbid(rule->nr, rule->err))
		return ITEST_SKIP;
	fds_nr = itest_fds_nr();
	for (kind = ITEST_TWO; kind <= ITEST_CURRENT; kind++) {
		itest_log_clear();
		opts = itest_opts((int)kind);
		err = mrt_runtime_create(&opts, &rt);
		if (err != rule->expect) {
			fprintf(stderr, "it returned %d\n", err);
			return 1;
		}
		for (i = 0; i < 2; i++) {
			if (!itest_log_has(rule->says[i])) {
				char *log = itest_log_text();

				fprintf(stderr, "'%s' is not in: %s\n", rule->says[i], log);
				return 2;
			}
		}
		if (rt != (void *)&rule)
			return 3; /* untouched on failure */
		opts.log = NULL;
		if (mrt_runtime_create(&opts, &rt) != rule->expect)
			return 4;
	}
	return itest_fds_nr() == fds_nr ? 0 : 5;
}

START_TEST(what_is_wrong_with_io_uring_is_said_in_words)
{
	struct rule rule = rules[_i];
	struct itest_exit e = itest_child(create_forbidden, &rule, ITEST_LIMIT_S);

	ck_assert_msg(e.status == 0, "status %#x: %s", e.status, e.err);
}
END_TEST

/* ---- set-up works, the rest does not ---- */

static enum mrt_poll nothing_poll(struct mrt_task *self, void *frame)
{
	(void)frame;
	MRT_BEGIN(self);
	MRT_RETURN(self, 0);
}

/* Registering what is optional may fail: it runs with less, or says that it cannot. */
static int create_half(void *ctx)
{
	const struct rule *rule = ctx;
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	struct mrt_runtime *rt;
	int err;

	if (forbid(rule->nr, rule->err))
		return ITEST_SKIP;
	err = mrt_runtime_create(&opts, &rt);
	if (err) {
		char *log = itest_log_text();

		fprintf(stderr, "%d: %s\n", err, log);
		return *log ? 0 : 1; /* an error without a word is not enough */
	}
	err = mrt_block_on(rt, nothing_poll, NULL, 0, NULL);
	mrt_runtime_destroy(rt);
	return err;
}

static const struct rule halves[] = {
	{ SYS_io_uring_register, EPERM, 0, { "", "" } },
	{ SYS_io_uring_register, ENOSYS, 0, { "", "" } },
	{ SYS_io_uring_register, ENOMEM, 0, { "", "" } },
};

START_TEST(half_an_io_uring_works_or_is_refused_in_words)
{
	struct rule rule = halves[_i];
	struct itest_exit e = itest_child(create_half, &rule, ITEST_LIMIT_S);

	ck_assert_msg(e.status == 0, "status %#x: %s", e.status, e.err);
}
END_TEST

static int try_filter(void *ctx)
{
	(void)ctx;
	return forbid(SYS_io_uring_setup, ENOSYS) ? 1 : 0;
}

int main(void)
{
	Suite *suite = suite_create("seccomp");
	TCase *tc = tcase_create("seccomp");

	itest_need_io_uring();
	if (itest_child(try_filter, NULL, ITEST_LIMIT_S).status != 0) {
		printf("skipped: no seccomp filter can be installed here\n");
		return ITEST_SKIP;
	}
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, what_is_wrong_with_io_uring_is_said_in_words, 0, RULES_NR);
	tcase_add_loop_test(tc, half_an_io_uring_works_or_is_refused_in_words, 0, (int)(sizeof(halves) / sizeof(halves[0])));
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
