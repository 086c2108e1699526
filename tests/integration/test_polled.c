/* SPDX-License-Identifier: MIT */
/*
 * Polled files. With poll queues: what is written polled is read through the ordinary ring and the other way round, on
 * both flavours, with tasks, timers and sockets going on meanwhile; what cannot go on a polled ring (fsync, close, a
 * socket's ops) goes on the other by itself; a close with reads in flight waits for them; a runtime that has nothing
 * polled in flight sleeps. Without poll queues, on file systems and on buffered files: the same I/O works, not polled,
 * and the report says why.
 *
 * Devices that may be overwritten: MRT_TEST_NVME, MRT_TEST_VIRTIO, MRT_TEST_NULLB, with MRT_TEST_POLL=1 where they have
 * poll queues, as in the guests of scripts/vm-test. Without them only what cannot be polled is tried.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define KIB (1u << 10)
#define MIB (1u << 20)
#define AREA (32 * (int64_t)MIB)
#define BIG (1u * MIB)

static const char *const variables[] = { "MRT_TEST_NVME", "MRT_TEST_VIRTIO", "MRT_TEST_NULLB" };
#define DEVICES_MAX 3
static const char *devices[DEVICES_MAX];
static int devices_nr;
static bool poll_queues;
static char dir[FIXTURE_PATH];

/* Loop indices: the device, and on which runtime. */
#define DEVICE(i) devices[(i) / 2]
#define KIND(i) ((i) % 2 ? ITEST_CURRENT : ITEST_TWO)

static struct mrt_runtime *rt;
static int polled, plain;       /* handle, and a descriptor of the same device */
static bool is_null;            /* the device is null_blk's */
static char out[BIG] __attribute__((aligned(4096)));
static char in[BIG] __attribute__((aligned(4096)));

static int open_direct(const char *path)
{
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	return fd;
}

static void setup(int i, unsigned flags)
{
	struct mrt_runtime_opts opts = itest_opts(KIND(i));

	opts.flags |= flags;
	rt = itest_create(&opts);
	polled = mrt_file_register(rt, open_direct(DEVICE(i)), MRT_FILE_POLLED);
	ck_assert_int_ge(polled, 1 << 30);
	plain = open_direct(DEVICE(i));
	is_null = strstr(DEVICE(i), "null");
}

static void run(int i, mrt_poll_fn fn, size_t frame_bytes)
{
	void *frame = calloc(1, frame_bytes);

	ck_assert_ptr_nonnull(frame);
	setup(i, 0);
	ck_assert_int_eq(itest_run(rt, fn, frame, frame_bytes), 0);
	mrt_runtime_destroy(rt);
	free(frame);
}

#define POLLED_TASK(name, ...) ITEST_TASK_WITH(name, run, __VA_ARGS__)

static void fresh(void)
{
	fixture_pattern(out, sizeof(out), (uint64_t)getpid() * 1000003, 0);
	memset(in, 0x5a, sizeof(in));
}

/* ---- devices ---- */

POLLED_TASK(the_report_says_polled_or_why_not, { struct mrt_rung_report report; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_file_report(NULL, polled, NULL, &f->report), 0);
	ck_assert_uint_eq(f->report.direct, 1);
	ck_assert_uint_eq(f->report.fixed_file, 1);
	if (f->report.polled) {
		ck_assert_msg(poll_queues, "%s", f->report.text);
		ck_assert_uint_eq(f->report.rung, MRT_RUNG_POLLED);
	} else {
		ck_assert_msg(strstr(f->report.text, "not polled: ") != NULL, "%s", f->report.text);
		ck_assert_uint_eq(f->report.rung, MRT_RUNG_FIXED_FILE);
		ck_assert_msg(poll_queues || strstr(f->report.text, "io_poll is 0"), "%s", f->report.text);
	}
	/* NVMe and virtio have them whenever they were asked for; null_blk only where its driver knows how */
	if (poll_queues && !is_null)
		ck_assert_msg(f->report.polled, "%s", f->report.text);
	MRT_RETURN(self, 0);
}

POLLED_TASK(both_ways_see_the_same, { struct mrt_op op; int64_t bytes; void *block; })
{
	MRT_BEGIN(self);
	fresh();
	for (f->bytes = 4096; f->bytes <= 64 * KIB; f->bytes *= 2) {
		ITEST_RES(mrt_write(&f->op, polled, out, (size_t)f->bytes, AREA), f->bytes);
		ck_assert_int_eq(pread(plain, in, (size_t)f->bytes, AREA), f->bytes);
		ck_assert_mem_eq(in, out, (size_t)f->bytes);
		memset(in, 0, sizeof(in));
		ITEST_RES(mrt_read(&f->op, polled, in, (size_t)f->bytes, AREA), f->bytes);
		ck_assert_mem_eq(in, out, (size_t)f->bytes);
		out[f->bytes / 2]++;
		ck_assert_int_eq(pwrite(plain, out, (size_t)f->bytes, AREA), f->bytes);
		ITEST_RES(mrt_read(&f->op, polled, in, (size_t)f->bytes, AREA), f->bytes);
		ck_assert_mem_eq(in, out, (size_t)f->bytes);
	}
	/* from registered memory */
	ck_assert_int_eq(mrt_alloc(NULL, 64 * KIB, 0, &f->block), 0);
	memcpy(f->block, out + 64 * KIB, 64 * KIB);
	ITEST_RES(mrt_write(&f->op, polled, f->block, 64 * KIB, AREA), 64 * KIB);
	memset(f->block, 0, 64 * KIB);
	ITEST_RES(mrt_read(&f->op, polled, f->block, 64 * KIB, AREA), 64 * KIB);
	ck_assert_mem_eq(f->block, out + 64 * KIB, 64 * KIB);
	mrt_free(NULL, f->block);
	MRT_RETURN(self, 0);
}

POLLED_TASK(long_vectored_and_exact_forms_work, { struct mrt_op op; struct iovec iov[2]; })
{
	MRT_BEGIN(self);
	fresh();
	ITEST_RES(mrt_write_all(&f->op, polled, out, BIG, AREA), BIG);
	ITEST_RES(mrt_read_exact(&f->op, polled, in, BIG, AREA), BIG);
	ck_assert_mem_eq(in, out, BIG);
	memset(in, 0, sizeof(in));
	f->iov[0] = (struct iovec){ in, 8 * KIB };
	f->iov[1] = (struct iovec){ in + 8 * KIB, 4 * KIB };
	ITEST_RES(mrt_readv(&f->op, polled, f->iov, 2, AREA), 12 * KIB);
	ck_assert_mem_eq(in, out, 12 * KIB);
	/* segments that no request of the device can hold as they are */
	f->iov[0] = (struct iovec){ in + 512, 1024 };
	f->iov[1] = (struct iovec){ in + 8192 + 512, 3072 };
	ITEST_RES(mrt_readv(&f->op, polled, f->iov, 2, AREA), 4096);
	ck_assert_mem_eq(in + 512, out, 1024);
	ck_assert_mem_eq(in + 8192 + 512, out + 1024, 3072);
	ITEST_RES(mrt_read(&f->op, polled, in, 100, AREA), -EINVAL);
	ITEST_RES(mrt_read(&f->op, polled, in, 4096, INT64_C(1) << 50), 0);
	MRT_RETURN(self, 0);
}

POLLED_TASK(what_a_polled_ring_refuses_goes_on_the_other, { struct mrt_op op; struct statx stx; int fd; })
{
	MRT_BEGIN(self);
	ITEST_RES(mrt_fsync(&f->op, polled), 0);
	ITEST_RES(mrt_fdatasync(&f->op, polled), 0);
	ITEST_RES(mrt_statx(&f->op, polled, "", AT_EMPTY_PATH, STATX_MODE, &f->stx), 0);
	ITEST_RES(mrt_fadvise(&f->op, polled, 0, 4096, POSIX_FADV_RANDOM), 0);
	ITEST_RES(mrt_nop(&f->op), 0);
	ITEST_RES(mrt_read(&f->op, polled, in, 4096, AREA), 4096);
	MRT_AWAIT(self, mrt_file_unregister(&f->op, polled));
	f->fd = (int)f->op.res;
	ck_assert_int_ge(f->fd, 0);
	ITEST_RES(mrt_read(&f->op, polled, in, 4096, AREA), -EBADF);
	ITEST_RES(mrt_read(&f->op, f->fd, in, 4096, AREA), 4096);
	ITEST_RES(mrt_close(&f->op, f->fd), 0);
	MRT_RETURN(self, 0);
}

/* ---- many ---- */

#define CROWD 48u
#define ROUNDS 8u

ITEST_CHILD(crowd, { struct mrt_op op; void *block; char *buf; unsigned nr, round; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(mrt_alloc(NULL, 8 * KIB, 0, &f->block), 0);
	f->buf = f->block;
	for (f->round = 0; f->round < ROUNDS; f->round++) {
		fixture_pattern(f->buf, 4096, f->nr, f->round);
		ITEST_RES(mrt_write(&f->op, polled, f->buf, 4096, AREA + f->nr * 4096), 4096);
		MRT_AWAIT(self, mrt_yield(&f->op));
		ITEST_RES(mrt_read(&f->op, polled, f->buf + 4096, 4096, AREA + f->nr * 4096), 4096);
		ck_assert_mem_eq(f->buf, f->buf + 4096, 4096);
	}
	mrt_free(NULL, f->block);
	MRT_RETURN(self, 0);
}

/* Sleeps and a pipe, while others keep the polled rings busy. */
ITEST_CHILD(bystander, { struct mrt_op op; int fds[2]; char byte; unsigned round; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->fds, O_CLOEXEC), 0);
	for (f->round = 0; f->round < 20; f->round++) {
		ITEST_RES(mrt_sleep(&f->op, MRT_MS(1)), 0);
		ITEST_RES(mrt_write(&f->op, f->fds[1], "x", 1, MRT_OFF_CURRENT), 1);
		ITEST_RES(mrt_read(&f->op, f->fds[0], &f->byte, 1, MRT_OFF_CURRENT), 1);
	}
	ITEST_RES(mrt_close(&f->op, f->fds[0]), 0);
	ITEST_RES(mrt_close(&f->op, f->fds[1]), 0);
	MRT_RETURN(self, 0);
}

START_TEST(a_crowd_polls_while_others_sleep_and_talk)
{
	struct mrt_task *tasks[CROWD], *other;
	struct bystander none = { 0 };
	unsigned i;

	setup(2 * (_i / 2), 0); /* two workers: tasks must run while this thread spawns */
	other = itest_spawn(rt, bystander_poll, &none, sizeof(none));
	for (i = 0; i < CROWD; i++) {
		struct crowd frame = { .nr = i };

		tasks[i] = itest_spawn(rt, crowd_poll, &frame, sizeof(frame));
	}
	for (i = 0; i < CROWD; i++)
		ck_assert_int_eq(itest_join(tasks[i]), 0);
	ck_assert_int_eq(itest_join(other), 0);
	ck_assert_uint_eq(itest_stats(rt).inflight, 0);
	mrt_runtime_destroy(rt);
}
END_TEST

ITEST_CHILD(one_read, { struct mrt_op op; })
{
	MRT_BEGIN(self);
	ITEST_RES(mrt_read(&f->op, polled, in, 4096, AREA), 4096);
	MRT_RETURN(self, 0);
}

START_TEST(with_nothing_polled_in_flight_the_workers_sleep)
{
	struct one_read frame = { 0 };
	uint64_t enters, until, end = mrt_now() + MRT_SEC(20);

	setup(2 * (_i / 2), 0);
	ck_assert_int_eq(itest_run(rt, one_read_poll, &frame, sizeof(frame)), 0);
	ITEST_WAIT(itest_stats(rt).inflight == 0, 20000);
	/* a worker that polls makes thousands of them; a sentry, beside one that lost its CPU, some dozens */
	do {
		enters = itest_stats(rt).enters;
		until = mrt_now() + MRT_MS(300);
		ITEST_WAIT(mrt_now() >= until, 20000);
		enters = itest_stats(rt).enters - enters;
	} while (enters > 40 && mrt_now() < end);
	ck_assert_uint_le(enters, 40);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- ends ---- */

#define PENDING 16u

POLLED_TASK(a_close_waits_for_reads_in_flight, { struct mrt_op op; struct mrt_op reads[PENDING]; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < PENDING; f->i++)
		(void)mrt_read(&f->reads[f->i], polled, in + f->i * 4096, 4096, AREA + f->i * 4096);
	mrt_flush();
	ITEST_RES(mrt_close(&f->op, polled), 0);
	for (f->i = 0; f->i < PENDING; f->i++)
		ck_assert_msg(mrt_op_is_done(&f->reads[f->i]), "the handle is gone, and read %u is not done", f->i);
	for (f->i = 0; f->i < PENDING; f->i++) {
		MRT_AWAIT(self, &f->reads[f->i]);
		ck_assert(f->reads[f->i].res == 4096 || f->reads[f->i].res == -ECANCELED);
	}
	ITEST_RES(mrt_read(&f->op, polled, in, 4096, AREA), -EBADF);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(forgetful, { struct mrt_op reads[PENDING]; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < PENDING; f->i++)
		(void)mrt_read(&f->reads[f->i], polled, in + f->i * 4096, 4096, AREA + f->i * 4096);
	MRT_RETURN(self, 0);
}

START_TEST(what_a_task_forgot_is_collected)
{
	unsigned i;

	setup(_i, 0);
	for (i = 0; i < 20; i++) {
		struct forgetful frame = { 0 };

		ck_assert_int_eq(itest_run(rt, forgetful_poll, &frame, sizeof(frame)), 0);
	}
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(hybrid_polling_is_granted_or_reported)
{
	struct one_read frame = { 0 };
	struct mrt_rung_report report;

	setup(_i, MRT_RUNTIME_HYBRID_POLL);
	ck_assert_int_eq(itest_run(rt, one_read_poll, &frame, sizeof(frame)), 0);
	ck_assert_int_eq(mrt_file_report(rt, polled, NULL, &report), 0);
	if (report.polled && !report.hybrid)
		ck_assert_msg(strstr(report.text, "not hybrid") != NULL, "%s", report.text);
	ck_assert_uint_le(report.hybrid, report.polled);
	mrt_runtime_destroy(rt);
}
END_TEST

/* ---- what cannot be polled ---- */

static int make_file(const char *where, int flags)
{
	int fd = open(where, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);

	if (fd >= 0)
		ck_assert_int_eq(ftruncate(fd, 1 << 16), 0);
	return fd;
}

ITEST_TASK(a_file_that_cannot_be_polled_works_and_says_why, {
	struct mrt_op op;
	struct mrt_rung_report report;
	int fd, file;
	int flags;
	unsigned round;
})
{
	MRT_BEGIN(self);
	for (f->round = 0; f->round < 3; f->round++) {
		f->flags = f->round ? O_DIRECT : 0;
		f->fd = make_file(f->round == 2 ? "/dev/shm" : dir, f->flags);
		if (f->fd < 0)
			continue; /* no O_DIRECT there */
		f->file = mrt_file_register(NULL, f->fd, MRT_FILE_POLLED);
		ck_assert_int_ge(f->file, 1 << 30);
		ck_assert_int_eq(mrt_file_report(NULL, f->file, NULL, &f->report), 0);
		if (!f->report.polled)
			ck_assert_msg(strstr(f->report.text, "not polled: ") != NULL, "%s", f->report.text);
		if (!f->flags)
			ck_assert_msg(strstr(f->report.text, "only direct I/O can be polled for") != NULL, "%s", f->report.text);
		ck_assert_uint_eq(f->report.direct, f->flags ? 1 : 0);
		ITEST_RES(mrt_write(&f->op, f->file, out, 4096, 0), 4096);
		ITEST_RES(mrt_read(&f->op, f->file, in, 4096, 0), 4096);
		ITEST_RES(mrt_close(&f->op, f->file), 0);
	}
	MRT_RETURN(self, 0);
}

ITEST_TASK(a_pipe_cannot_be_polled, { struct mrt_op op; struct mrt_rung_report report; int fds[2]; int file; char buf[4]; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(pipe2(f->fds, O_CLOEXEC), 0);
	f->file = mrt_file_register(NULL, f->fds[0], MRT_FILE_POLLED);
	ck_assert_int_ge(f->file, 1 << 30);
	ck_assert_int_eq(mrt_file_report(NULL, f->file, NULL, &f->report), 0);
	ck_assert_uint_eq(f->report.polled, 0);
	ck_assert_msg(strstr(f->report.text, "neither a file nor a block device") != NULL, "%s", f->report.text);
	ITEST_RES(mrt_write(&f->op, f->fds[1], "abc", 3, MRT_OFF_CURRENT), 3);
	ITEST_RES(mrt_read(&f->op, f->file, f->buf, 3, MRT_OFF_CURRENT), 3);
	ITEST_RES(mrt_close(&f->op, f->file), 0);
	ITEST_RES(mrt_close(&f->op, f->fds[1]), 0);
	MRT_RETURN(self, 0);
}

ITEST_TASK(every_file_has_a_report, { struct mrt_op op; struct mrt_rung_report report; int fd; void *block; })
{
	MRT_BEGIN(self);
	f->fd = make_file(dir, 0);
	ck_assert_int_eq(mrt_file_report(NULL, f->fd, out, &f->report), 0);
	ck_assert_uint_eq(f->report.rung, MRT_RUNG_BUFFERED);
	ck_assert_msg(!strncmp(f->report.text, "buffered; not direct: opened without O_DIRECT; no fixed buffer: ", 64), "%s",
		      f->report.text);
	ck_assert_int_eq(mrt_alloc(NULL, 4096, 0, &f->block), 0);
	ck_assert_int_eq(mrt_file_report(NULL, f->fd, f->block, &f->report), 0);
	/* registered as soon as it was used */
	ITEST_RES(mrt_write(&f->op, f->fd, f->block, 4096, 0), 4096);
	ck_assert_int_eq(mrt_file_report(NULL, f->fd, f->block, &f->report), 0);
	ck_assert_msg(f->report.fixed_buffer == (f->report.rung == MRT_RUNG_FIXED_BUFFER), "%s", f->report.text);
	ck_assert_msg(f->report.fixed_buffer || strstr(f->report.text, "no fixed buffer: "), "%s", f->report.text);
	ck_assert_msg(!f->report.fixed_buffer || strstr(f->report.text, ", fixed buffer"), "%s", f->report.text);
	mrt_free(NULL, f->block);
	ITEST_RES(mrt_close(&f->op, f->fd), 0);
	ck_assert_int_eq(mrt_file_report(NULL, f->fd, NULL, &f->report), -EBADF);
	ck_assert_int_eq(mrt_file_report(NULL, 1 << 30, NULL, &f->report), -EBADF);
	ck_assert_int_eq(mrt_file_report(NULL, 0, NULL, NULL), -EINVAL);
	MRT_RETURN(self, 0);
}

static void find_devices(void)
{
	unsigned i;

	for (i = 0; i < DEVICES_MAX; i++) {
		const char *path = getenv(variables[i]);

		if (path && access(path, R_OK | W_OK) == 0)
			devices[devices_nr++] = path;
		else
			printf("skipping %s: it names no device\n", variables[i]);
	}
	poll_queues = itest_env("MRT_TEST_POLL", 0);
}

static void add_device_tests(Suite *suite)
{
	TCase *tc = tcase_create("device");
	int nr = 2 * devices_nr;

	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, the_report_says_polled_or_why_not, 0, nr);
	tcase_add_loop_test(tc, both_ways_see_the_same, 0, nr);
	tcase_add_loop_test(tc, long_vectored_and_exact_forms_work, 0, nr);
	tcase_add_loop_test(tc, what_a_polled_ring_refuses_goes_on_the_other, 0, nr);
	tcase_add_loop_test(tc, a_crowd_polls_while_others_sleep_and_talk, 0, nr);
	tcase_add_loop_test(tc, with_nothing_polled_in_flight_the_workers_sleep, 0, nr);
	tcase_add_loop_test(tc, a_close_waits_for_reads_in_flight, 0, nr);
	tcase_add_loop_test(tc, what_a_task_forgot_is_collected, 0, nr);
	tcase_add_loop_test(tc, hybrid_polling_is_granted_or_reported, 0, nr);
	suite_add_tcase(suite, tc);
}

int main(void)
{
	Suite *suite = suite_create("polled");
	TCase *tc = tcase_create("anywhere");

	itest_need_io_uring();
	if (fixture_dir(dir)) {
		fprintf(stderr, "no folder for files\n");
		return EXIT_FAILURE;
	}
	find_devices();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, a_file_that_cannot_be_polled_works_and_says_why, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, a_pipe_cannot_be_polled, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, every_file_has_a_report, 0, ITEST_FLAVOURS_NR);
	suite_add_tcase(suite, tc);
	if (devices_nr)
		add_device_tests(suite);
	return itest_main(suite);
}
