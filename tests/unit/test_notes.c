/* SPDX-License-Identifier: MIT */
/*
 * Notes of probes in files that are not what they should be: this program's own file, cut at many lengths and with bytes
 * spoiled in its headers and notes, or cut while it is read, is read without harm, and never gives more than there is room for. (That the notes of a
 * good file are right, test_probes shows.)
 */
#include <check.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/notes.h"
#include "probe/usdt.h"
#include "suite.h"

#define SPOILT_NR 2000

static struct note notes[NOTES_MAX];
static char *own;
static size_t own_bytes;
static int file;
static char path[64];

#define ONE(name, text, ...) +1
enum { PROBES_NR = 0 MRT__PROBES(ONE) };

static void setup(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	own_bytes = (size_t)st.st_size;
	own = mmap(NULL, own_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	ck_assert_ptr_ne(own, MAP_FAILED);
	close(fd);
	file = memfd_create("notes", MFD_CLOEXEC);
	ck_assert_int_ge(file, 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
}

static int read_copy(size_t bytes)
{
	ck_assert_int_eq(ftruncate(file, 0), 0);
	ck_assert_int_eq(pwrite(file, own, bytes, 0), (ssize_t)bytes);
	return notes_read(path, notes);
}

/* Offset and length of a section. */
static size_t section(const char *name, size_t *ret_bytes)
{
	const Elf64_Ehdr *eh = (const void *)own;
	const Elf64_Shdr *sh = (const void *)(own + eh->e_shoff);
	const char *names = own + sh[eh->e_shstrndx].sh_offset;

	for (unsigned i = 0; i < eh->e_shnum; i++) {
		if (strcmp(names + sh[i].sh_name, name) == 0) {
			*ret_bytes = sh[i].sh_size;
			return sh[i].sh_offset;
		}
	}
	ck_abort_msg("no section %s", name);
}

START_TEST(the_own_file_has_them_all)
{
	ck_assert(!mrt__listens(poll_end)); /* which is what links them */
	ck_assert_int_eq(read_copy(own_bytes), PROBES_NR);
}
END_TEST

START_TEST(a_file_that_is_cut_is_refused)
{
	for (size_t bytes = 0; bytes < own_bytes; bytes = bytes * 5 / 4 + 1)
		ck_assert_int_eq(read_copy(bytes), -ENOEXEC);
	ck_assert_int_eq(notes_read("/dev/zero", notes), -ENOEXEC);
	ck_assert_int_eq(notes_read("/", notes), -ENOEXEC);
	ck_assert_int_eq(notes_read("/nonexistent", notes), -ENOENT);
}
END_TEST

/* 0: the file's header; 1: the notes; 2: the headers of sections */
START_TEST(spoilt_bytes_do_no_harm)
{
	size_t bytes = sizeof(Elf64_Ehdr), at = 0;
	unsigned refused = 0;

	if (_i == 1)
		at = section(".note.stapsdt", &bytes);
	if (_i == 2) {
		at = ((const Elf64_Ehdr *)(const void *)own)->e_shoff;
		bytes = ((const Elf64_Ehdr *)(const void *)own)->e_shnum * sizeof(Elf64_Shdr);
	}
	srand(1);
	ck_assert_int_eq(read_copy(own_bytes), PROBES_NR);
	for (unsigned i = 0; i < SPOILT_NR; i++) {
		size_t place = at + (size_t)rand() % bytes;
		char good = own[place], bad = (char)(rand() % 4 ? rand() : 0xff);
		int nr;

		ck_assert_int_eq(pwrite(file, &bad, 1, (off_t)place), 1);
		nr = notes_read(path, notes);
		ck_assert_msg(nr <= NOTES_MAX && (nr >= 0 || nr == -ENOEXEC), "%d", nr);
		refused += nr != PROBES_NR;
		ck_assert_int_eq(pwrite(file, &good, 1, (off_t)place), 1);
	}
	ck_assert_uint_gt(refused, 0);
	ck_assert_int_eq(notes_read(path, notes), PROBES_NR);
}
END_TEST

static atomic_bool is_enough;

static void *keep_cutting(void *arg)
{
	(void)arg;
	while (!atomic_load(&is_enough)) {
		(void)!ftruncate(file, 0);
		(void)!pwrite(file, own, own_bytes, 0);
	}
	return NULL;
}

START_TEST(a_file_that_is_cut_while_it_is_read_does_no_harm)
{
	pthread_t t;

	ck_assert_int_eq(read_copy(own_bytes), PROBES_NR);
	ck_assert_int_eq(pthread_create(&t, NULL, keep_cutting, NULL), 0);
	for (unsigned i = 0; i < SPOILT_NR; i++) {
		int nr = notes_read(path, notes);

		ck_assert_msg(nr <= NOTES_MAX && (nr >= 0 || nr == -ENOEXEC), "%d", nr);
	}
	atomic_store(&is_enough, true);
	pthread_join(t, NULL);
	ck_assert_int_eq(read_copy(own_bytes), PROBES_NR);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("notes");
	TCase *tc = tcase_create("files");

	if (!MRT__USDT) {
		printf("skipped: there are no probes on this machine\n");
		return 77;
	}
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, the_own_file_has_them_all);
	tcase_add_test(tc, a_file_that_is_cut_is_refused);
	tcase_add_loop_test(tc, spoilt_bytes_do_no_harm, 0, 3);
	tcase_add_test(tc, a_file_that_is_cut_while_it_is_read_does_no_harm);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
