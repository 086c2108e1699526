/* SPDX-License-Identifier: MIT */
/*
 * The rung report without a runtime. Proven here: the highest rung and the words for every combination of facts, each
 * rung that was not reached having its reason; what is looked up of files, folders, pipes and this machine's disks is what
 * the kernel says elsewhere; and the trial of polling says no, with a reason, for what cannot be polled here (buffered
 * files, pipes, file systems, disks without poll queues). Not proven: that it says yes (the guest's tests do).
 */
#include "sched/rung.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sched/nvme.h"
#include "suite.h"

/* ---- words ---- */

static const struct {
	struct mrt__rung_facts facts;
	enum mrt_rung rung;
	const char *text;
} word_cases[] = {
	{
		.facts = { .dev = { .kind = MRT__RUNG_REGULAR, .io_poll = 0, .disk = "zram0" } },
		.rung = MRT_RUNG_BUFFERED,
		.text = "buffered; not direct: opened without O_DIRECT; no fixed buffer: the memory is none of mrt_alloc(); "
			"no registered file: see mrt_file_register(); not polled: only direct I/O can be polled for; "
			"no passthrough: zram0 is no NVMe device",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_REGULAR, .direct = true, .io_poll = 0, .disk = "zram0" },
			.fixed_buffer = true, .fixed_file = true, .handle = true,
		},
		.rung = MRT_RUNG_FIXED_FILE,
		.text = "O_DIRECT, fixed buffer, registered file; not polled: /sys/block/zram0/queue/io_poll is 0 (the driver "
			"has no poll queues); no passthrough: zram0 is no NVMe device",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_BLOCK, .direct = true, .io_poll = 0, .disk = "nvme0n1" },
			.handle = true, .polled_asked = true, .file_why = "its tables are full",
			.polled_why = "a sentence of the trial's", .buffer_why = "memlock",
		},
		.rung = MRT_RUNG_DIRECT,
		.text = "O_DIRECT; no fixed buffer: memlock; not registered with the rings: its tables are full; not polled: a "
			"sentence of the trial's; no passthrough: that takes the node /dev/ng0n1",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_REGULAR, .direct = true, .io_poll = 1, .disk = "nvme1n2" },
			.fixed_buffer = true,
		},
		.rung = MRT_RUNG_FIXED_BUFFER,
		.text = "O_DIRECT, fixed buffer; no registered file: see mrt_file_register(); not polled: not registered with "
			"MRT_FILE_POLLED, and the device could; no passthrough: that takes the node /dev/ng1n2, which knows no "
			"file systems",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_BLOCK, .direct = true, .io_poll = 1, .disk = "nvme0n1" },
			.fixed_buffer = true, .fixed_file = true, .handle = true, .polled_asked = true, .polled = true,
			.hybrid_asked = true,
		},
		.rung = MRT_RUNG_POLLED,
		.text = "O_DIRECT, fixed buffer, registered file, polled; not hybrid: the kernel lacks it (6.13); no "
			"passthrough: that takes the node /dev/ng0n1",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_NVME, .io_poll = 1, .disk = "nvme0n1" },
			.fixed_buffer = true, .fixed_file = true, .handle = true, .polled_asked = true, .polled = true,
			.hybrid_asked = true, .hybrid = true, .passthrough = true,
		},
		.rung = MRT_RUNG_PASSTHROUGH,
		.text = "NVMe passthrough, fixed buffer, registered file, polled (hybrid)",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_NVME, .io_poll = 0, .disk = "nvme0n1" },
			.fixed_file = true, .handle = true, .passthrough = true,
		},
		.rung = MRT_RUNG_PASSTHROUGH,
		.text = "NVMe passthrough, registered file; no fixed buffer: the memory is none of mrt_alloc(); not polled: "
			"/sys/block/nvme0n1/queue/io_poll is 0 (the driver has no poll queues: load it with "
			"nvme.poll_queues=N)",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_NVME, .io_poll = 1, .disk = "nvme0n1" }, .buffer_refused = true,
			.fixed_buffer = true, .fixed_file = true, .handle = true, .polled_asked = true, .polled = true,
			.passthrough = true,
		},
		.rung = MRT_RUNG_PASSTHROUGH,
		.text = "NVMe passthrough, registered file, polled; no fixed buffer: this kernel refuses them in NVMe commands",
	},
	{
		.facts = { .dev = { .kind = MRT__RUNG_OTHER, .io_poll = -1 }, .fixed_buffer = true, .fixed_file = true },
		.rung = MRT_RUNG_FIXED_FILE,
		.text = "buffered, fixed buffer, registered file; not direct: neither a file nor a block device; not polled: "
			"neither a file nor a block device; no passthrough: this is no NVMe device",
	},
	{
		.facts = {
			.dev = { .kind = MRT__RUNG_REGULAR, .no_direct = true, .io_poll = -1 }, .fixed_buffer = true,
			.fixed_file = true,
		},
		.rung = MRT_RUNG_FIXED_FILE,
		.text = "buffered, fixed buffer, registered file; not direct: this file system does not support O_DIRECT here; "
			"not polled: only direct I/O can be polled for; no passthrough: this is no NVMe device",
	},
};
#define WORD_CASES_NR ((int)(sizeof(word_cases) / sizeof(word_cases[0])))

START_TEST(the_text_says_what_was_reached_and_why_not_more)
{
	const struct mrt__rung_facts *f = &word_cases[_i].facts;
	struct mrt_rung_report report;

	mrt__rung_report(f, &report);
	ck_assert_str_eq(report.text, word_cases[_i].text);
	ck_assert_uint_eq(report.rung, word_cases[_i].rung);
	ck_assert_uint_eq(report.direct, f->dev.direct || f->passthrough);
	ck_assert_uint_eq(report.fixed_buffer, f->fixed_buffer && !f->buffer_refused);
	ck_assert_uint_eq(report.fixed_file, f->fixed_file);
	ck_assert_uint_eq(report.polled, f->polled);
	ck_assert_uint_eq(report.hybrid, f->hybrid);
	ck_assert_uint_eq(report.passthrough, f->passthrough);
}
END_TEST

START_TEST(a_long_text_is_cut_and_ended)
{
	char reason[1000];
	struct mrt__rung_facts facts = { .buffer_why = reason, .file_why = reason, .handle = true };
	struct mrt_rung_report report;
	size_t i;

	for (i = 0; i < sizeof(reason); i++) {
		memset(reason, 'x', sizeof(reason));
		reason[i] = '\0';
		memset(&report, 'y', sizeof(report));
		mrt__rung_report(&facts, &report);
		ck_assert_ptr_nonnull(memchr(report.text, '\0', sizeof(report.text)));
		ck_assert_uint_eq(strspn(report.text, "y"), 0);
	}
	ck_assert_uint_eq(strlen(report.text), sizeof(report.text) - 1);
}
END_TEST

/* ---- what is there ---- */

static char path[4096];

static int open_temp(int flags)
{
	const char *dir = getenv("TMPDIR");
	int fd;

	snprintf(path, sizeof(path), "%s/martlet-rung-XXXXXX", dir ? dir : "/var/tmp");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 1 << 16), 0);
	(void)close(fd);
	fd = open(path, flags | O_CLOEXEC);
	(void)unlink(path);
	return fd; /* -1 where the file system has no O_DIRECT */
}

START_TEST(files_and_pipes_are_told_apart)
{
	struct mrt__rung_dev dev;
	struct stat st;
	int fds[2], fd = open_temp(O_RDWR);

	ck_assert_int_eq(mrt__rung_look(fd, NULL, &dev), 0);
	ck_assert_int_eq(dev.kind, MRT__RUNG_REGULAR);
	ck_assert(!dev.direct);
	ck_assert_int_eq(fstat(fd, &st), 0);
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
	ck_assert_int_eq(dev.disk[0] == '\0', access(path, F_OK) != 0);
	(void)close(fd);

	fd = open_temp(O_RDWR | O_DIRECT);
	if (fd >= 0) {
		ck_assert_int_eq(mrt__rung_look(fd, NULL, &dev), 0);
		ck_assert(dev.direct);
		ck_assert(dev.align_off == 0 || (dev.align_off & (dev.align_off - 1)) == 0);
		(void)close(fd);
	}
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(mrt__rung_look(fds[0], NULL, &dev), 0);
	ck_assert_int_eq(dev.kind, MRT__RUNG_OTHER);
	ck_assert_int_eq(mrt__rung_look(-1, NULL, &dev), -EBADF);
}
END_TEST

/* Every block device of this machine: its disk has a queue, and a partition's disk is another device. */
START_TEST(a_partition_has_its_disks_queue)
{
	DIR *dir = opendir("/sys/dev/block");
	char disk[MRT__SYSFS_NAME], name[MRT__SYSFS_NAME], queue[128];
	struct dirent *entry;
	unsigned maj, min;

	if (!dir)
		return;
	while ((entry = readdir(dir)) != NULL) {
		if (sscanf(entry->d_name, "%u:%u", &maj, &min) != 2)
			continue;
		ck_assert(mrt__sysfs_name(true, makedev(maj, min), name, sizeof(name)));
		ck_assert(mrt__sysfs_disk(makedev(maj, min), disk, sizeof(disk)));
		snprintf(queue, sizeof(queue), "/sys/block/%s/queue", disk);
		ck_assert_msg(access(queue, F_OK) == 0, "%s of %s", queue, name);
		snprintf(queue, sizeof(queue), "/sys/dev/block/%u:%u/partition", maj, min);
		ck_assert_int_eq(strcmp(disk, name) != 0, access(queue, F_OK) == 0);
	}
	(void)closedir(dir);
}
END_TEST

START_TEST(sysfs_numbers_are_read_and_nothing_else)
{
	ck_assert_int_eq(mrt__sysfs_number("/sys/none"), -1);
	ck_assert_int_eq(mrt__sysfs_number("/sys"), -1);
	ck_assert_int_eq(mrt__sysfs_number("/proc/version"), -1);
	ck_assert_int_ge(mrt__sysfs_number("/proc/sys/kernel/pid_max"), 300);
}
END_TEST

/* ---- the trial ---- */

static void trial_says_no(int fd, const char *why_part)
{
	char why[256] = "";
	bool hybrid;
	int ret = mrt__rung_poll_trial(fd, NULL, false, &hybrid, why, sizeof(why));

	ck_assert_msg(ret == -EOPNOTSUPP, "%d: %s", ret, why);
	ck_assert_msg(strstr(why, why_part) != NULL, "%s", why);
}

START_TEST(buffered_files_and_pipes_cannot_be_polled)
{
	int fds[2], fd = open_temp(O_RDWR);

	trial_says_no(fd, "only direct I/O");
	ck_assert_int_eq(pipe(fds), 0);
	trial_says_no(fds[0], "neither a file nor a block device");
	(void)close(fd);
}
END_TEST

/* Where io_poll says 1 the trial may say yes; a device without poll queues may not. */
static void trial_agrees(int fd)
{
	struct mrt__rung_dev dev;
	char why[256] = "";
	bool hybrid;
	int ret;

	ck_assert_int_eq(mrt__rung_look(fd, NULL, &dev), 0);
	ret = mrt__rung_poll_trial(fd, NULL, true, &hybrid, why, sizeof(why));
	if (dev.io_poll == 0) {
		ck_assert_int_eq(ret, -EOPNOTSUPP);
		ck_assert_ptr_nonnull(strstr(why, "io_poll is 0"));
	} else if (dev.io_poll < 0) {
		/* no queue to ask: the kernel itself was asked */
		ck_assert_msg(ret == -EOPNOTSUPP, "%d: %s", ret, why);
		ck_assert_ptr_nonnull(strstr(why, "the kernel refuses"));
	} else {
		ck_assert_msg((ret == 0) == (why[0] == '\0'), "%d: %s", ret, why);
	}
}

START_TEST(files_without_poll_queues_are_refused_with_the_reason)
{
	int fd = open_temp(O_RDWR | O_DIRECT);

	if (fd >= 0)
		trial_agrees(fd);
	fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600); /* tmpfs: no queue at all */
	if (fd >= 0)
		trial_agrees(fd);
	fd = open("/dev/shm", O_TMPFILE | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600);
	if (fd >= 0)
		trial_agrees(fd);
}
END_TEST

START_TEST(what_would_have_to_be_split_is_not_polled)
{
	static const struct {
		uintptr_t base[3];
		size_t len[3];
		unsigned nr;
		bool takes;
	} cases[] = {
		{ { 0x10000 }, { 4096 }, 1, true },
		{ { 0x10200 }, { 4096 }, 1, true },                     /* one segment may begin anywhere */
		{ { 0x10000 }, { 65536 }, 1, true },
		{ { 0x10000 }, { 65537 }, 1, false },
		{ { 0x10000, 0x20000 }, { 4096, 4096 }, 2, true },
		{ { 0x10200, 0x20000 }, { 0xe00, 4096 }, 2, true },     /* the first to the end of its page */
		{ { 0x10000, 0x20000 }, { 512, 4096 }, 2, false },
		{ { 0x10000, 0x20200 }, { 4096, 512 }, 2, false },
		{ { 0x10000, 0x20000 }, { 4096, 512 }, 2, true },       /* the last ends anywhere */
		{ { 0x10000, 0x20000, 0x30000 }, { 4096, 512, 4096 }, 3, false },
		{ { 0x10000, 0x20000, 0x30000 }, { 32768, 32768, 1 }, 3, false },
		{ { 0x10000, 0x20000 }, { SIZE_MAX, 4096 }, 2, false },
	};
	struct iovec iov[3];
	size_t i;
	unsigned j;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (j = 0; j < cases[i].nr; j++)
			iov[j] = (struct iovec){ (void *)cases[i].base[j], cases[i].len[j] };
		ck_assert_msg(mrt__rung_polled_takes(65536, iov, cases[i].nr) == cases[i].takes, "case %zu", i);
	}
}
END_TEST

START_TEST(the_queue_bounds_what_is_polled)
{
	const struct mrt__nvme_ns ns = { .nsid = 1 };
	int fd = open_temp(O_RDWR);

	ck_assert_uint_ge(mrt__rung_polled_max(fd, NULL), 4096);
	ck_assert_uint_eq(mrt__rung_polled_max(-1, NULL), 128 << 10);
	ck_assert_uint_eq(mrt__rung_polled_max(fd, &ns), UINT32_MAX);
	(void)close(fd);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("rung");
	TCase *tc = tcase_create("report");

	tcase_set_timeout(tc, 20);
	tcase_add_loop_test(tc, the_text_says_what_was_reached_and_why_not_more, 0, WORD_CASES_NR);
	tcase_add_test(tc, a_long_text_is_cut_and_ended);
	tcase_add_test(tc, files_and_pipes_are_told_apart);
	tcase_add_test(tc, a_partition_has_its_disks_queue);
	tcase_add_test(tc, sysfs_numbers_are_read_and_nothing_else);
	tcase_add_test(tc, what_would_have_to_be_split_is_not_polled);
	tcase_add_test(tc, the_queue_bounds_what_is_polled);
	tcase_add_test(tc, buffered_files_and_pipes_cannot_be_polled);
	tcase_add_test(tc, files_without_poll_queues_are_refused_with_the_reason);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_main(make_suite());
}
