/* SPDX-License-Identifier: MIT */
/* See ringtest.h. Everything here fails the test that calls it, so nothing returns an error. */
#include "ringtest.h"
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct mrt_worker_stats stats;
uint64_t ops[OPS_MAX];
struct mrt__ring_done done[OPS_MAX];

struct mrt__ring *make_ring_opts(const struct mrt__ring_opts *opts)
{
	struct mrt__ring_opts o = *opts;
	struct mrt__ring *ring = NULL;
	char why[256] = "";

	memset(&stats, 0, sizeof(stats));
	o.stats = &stats;
	ck_assert_msg(mrt__ring_create(&o, &ring, why, sizeof(why)) == 0, "create: %s", why);
	return ring;
}

struct mrt__ring *make_enabled_opts(const struct mrt__ring_opts *opts)
{
	struct mrt__ring *ring = make_ring_opts(opts);

	ck_assert_int_eq(mrt__ring_enable(ring, NULL), 0);
	return ring;
}

struct mrt__ring *make_ring(unsigned sq_entries, unsigned cq_entries, unsigned tier)
{
	return make_ring_opts(&(struct mrt__ring_opts){
		.sq_entries = sq_entries, .cq_entries = cq_entries, .tier = tier,
	});
}

struct mrt__ring *make_enabled(unsigned sq_entries, unsigned cq_entries, unsigned tier)
{
	struct mrt__ring *ring = make_ring(sq_entries, cq_entries, tier);

	ck_assert_int_eq(mrt__ring_enable(ring, NULL), 0);
	return ring;
}

void end_ring(struct mrt__ring *ring)
{
	ck_assert_int_eq(mrt__ring_drain(ring), 0);
	mrt__ring_destroy(ring);
}

bool stage_nop(struct mrt__ring *ring, void *user)
{
	struct mrt__ring_args args = { .opcode = MRT__OPCODE_NOP, .fd = -1 };

	return mrt__ring_stage(ring, &args, 0, user);
}

bool stage_read(struct mrt__ring *ring, int fd, void *buf, uint32_t len, uint64_t off, void *user)
{
	struct mrt__ring_args args = {
		.opcode = MRT__OPCODE_READ, .fd = fd, .addr = (uintptr_t)buf, .len = len, .off = off,
	};

	return mrt__ring_stage(ring, &args, 0, user);
}

void collect(struct mrt__ring *ring, unsigned nr)
{
	uint64_t deadline = mrt__clock_now() + PATIENCE;
	unsigned got = 0, events = 0;

	for (;;) {
		got += mrt__ring_reap(ring, done + got, nr - got, &events);
		if (got == nr)
			return;
		ck_assert_msg(mrt__clock_now() < deadline, "%u of %u ops came back", got, nr);
		mrt__ring_wait(ring, 100 * MS);
	}
}

int32_t run_op(struct mrt__ring *ring, const struct mrt__ring_args *args)
{
	ck_assert(mrt__ring_stage(ring, args, 0, &ops[0]));
	collect(ring, 1);
	ck_assert_ptr_eq(done[0].user, &ops[0]);
	return done[0].res;
}

void assert_quiet(struct mrt__ring *ring)
{
	unsigned events = 0, i;

	for (i = 0; i < 3; i++) {
		(void)mrt__ring_flush(ring);
		ck_assert_uint_eq(mrt__ring_reap(ring, done, 1, &events), 0);
	}
	ck_assert_uint_eq(mrt__ring_ready(ring), 0);
}

void make_pipe(int fds[2])
{
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
}

unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned nr = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		nr++;
	(void)closedir(dir);
	return nr;
}

void in_child(int (*fn)(void))
{
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(fn());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %#x", (unsigned)status);
}

int try_create(unsigned sq_entries, unsigned cq_entries, char *why, size_t why_bytes)
{
	struct mrt__ring_opts opts = { .sq_entries = sq_entries, .cq_entries = cq_entries };
	struct mrt__ring *ring = NULL;
	int ret = mrt__ring_create(&opts, &ring, why, why_bytes);

	if (ret == 0)
		mrt__ring_destroy(ring);
	else if (ring)
		return 1;       /* touched on failure */
	return ret;
}

int ring_main(Suite *suite)
{
	char why[256] = "";
	int ret = try_create(8, 16, why, sizeof(why));

	if (ret == -ENOSYS || ret == -EPERM || ret == -EOPNOTSUPP) {
		printf("skipped: %s\n", why);
		srunner_free(srunner_create(suite)); /* what owns it frees it */
		return 77;
	}
	return suite_main(suite);
}
