/* SPDX-License-Identifier: MIT */
/*
 * Names of functions of another process: of a position-independent program and one that is not, of its shared library, static
 * functions too; of files that are deleted or replaced while they are mapped; of stripped files, with and without a debug file.
 * The process itself says where its functions are. What has no name is shown as file and address, which addr2line must resolve.
 */
#include <check.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "suite.h"
#include "symbols.h"

#define BUILT MRT_TEST_BUILD_DIR "/tests/symbols"
#define TIME_LIMIT_S 30
#define ADDRESSES_MAX 8
#define SPARSE_BYTES (UINT64_C(1) << 30) /* a file that takes no room */

static char dir[FIXTURE_PATH]; /* copies, so that they can be stripped and deleted */

__attribute__((format(printf, 1, 2)))
static void sh(const char *fmt, ...)
{
	char command[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	ck_assert_msg(system(command) == 0, "%s", command);
}

/* ---- the process ---- */

struct target {
	pid_t pid;
	int to;
	struct {
		char name[32];
		uint64_t addr;
	} at[ADDRESSES_MAX];
};

static void target_start(struct target *t, const char *program)
{
	int to[2], from[2];
	FILE *f;

	ck_assert(pipe(to) == 0 && pipe(from) == 0);
	t->pid = fork();
	ck_assert_int_ge(t->pid, 0);
	if (t->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		setenv("LD_LIBRARY_PATH", dir, 1);
		execl(program, program, NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	t->to = to[1];
	f = fdopen(from[0], "r");
	ck_assert_ptr_nonnull(f);
	for (unsigned i = 0;; i++) {
		ck_assert_uint_lt(i, ADDRESSES_MAX);
		ck_assert_msg(fscanf(f, "%31s %" SCNx64, t->at[i].name, &t->at[i].addr) == 2, "%s does not run", program);
		if (strcmp(t->at[i].name, "end") == 0)
			break;
	}
	fclose(f);
}

static uint64_t target_at(const struct target *t, const char *name)
{
	for (unsigned i = 0; i < ADDRESSES_MAX; i++) {
		if (strcmp(t->at[i].name, name) == 0)
			return t->at[i].addr;
	}
	ck_abort_msg("no address of %s", name);
}

static void target_end(struct target *t)
{
	close(t->to);
	ck_assert_int_eq(waitpid(t->pid, NULL, 0), t->pid);
}

/* Copies of what was built. */
static void copy(const char *program)
{
	if (!dir[0])
		ck_assert_int_eq(fixture_dir(dir), 0);
	sh("cp --remove-destination '" BUILT "/%s' '%s/program' && cp --remove-destination '" BUILT "/libsymbols.so' '%s/libsymbols.so'", program, dir, dir);
}

static void start_copy(struct target *t)
{
	char path[FIXTURE_PATH + 16];

	snprintf(path, sizeof(path), "%s/program", dir);
	target_start(t, path);
}

/* The name of what is at the address that the process said, and of what is so many bytes behind. */
static void expect(struct symbols *s, const struct target *t, const char *name)
{
	uint64_t addr = target_at(t, name);
	char buf[SYMBOLS_NAME_MAX], want[SYMBOLS_NAME_MAX];
	struct symbol sym;

	ck_assert_msg(symbols_find(s, addr, &sym), "%s: unknown", name);
	ck_assert_str_eq(sym.function, name);
	ck_assert_uint_eq(sym.offset, 0);
	ck_assert_str_eq(symbols_name(s, addr, buf, sizeof(buf)), name);
	snprintf(want, sizeof(want), "%s+0x2", name);
	ck_assert_str_eq(symbols_name(s, addr + 2, buf, sizeof(buf)), want);
}

static void expect_none(struct symbols *s, uint64_t addr, const char *module)
{
	char buf[SYMBOLS_NAME_MAX], want[SYMBOLS_NAME_MAX];
	struct symbol sym;

	ck_assert_msg(!symbols_find(s, addr, &sym), "a name for what has none: %s", sym.function);
	ck_assert_ptr_null(sym.function);
	if (module) {
		ck_assert_str_eq(sym.module, module);
		snprintf(want, sizeof(want), "%s+0x%" PRIx64, module, sym.module_addr);
	} else {
		snprintf(want, sizeof(want), "0x%" PRIx64, addr);
	}
	ck_assert_str_eq(symbols_name(s, addr, buf, sizeof(buf)), want);
}

/* addr2line gives the name for the module's address that was shown for want of one. */
static void expect_resolvable(struct symbols *s, const struct target *t, const char *name, const char *module, const char *file)
{
	struct symbol sym;

	expect_none(s, target_at(t, name), module);
	(void)symbols_find(s, target_at(t, name), &sym);
	sh("addr2line -f -e '" BUILT "/%s' 0x%" PRIx64 " | grep -qx %s", file, sym.module_addr, name);
}

/* ---- tests ---- */

static const char *const programs[] = { "symbols_pie", "symbols_nopie" };

START_TEST(functions_of_program_and_library_have_names)
{
	struct symbols *s;
	struct target t;

	copy(programs[_i]);
	start_copy(&t);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	expect(s, &t, "in_program");
	expect(s, &t, "static_in_program");
	expect(s, &t, "in_library");
	expect(s, &t, "static_in_library");
	expect_none(s, target_at(&t, "variable"), "program");
	expect_none(s, target_at(&t, "stack"), "[stack]");
	expect_none(s, 16, NULL);
	expect_none(s, UINT64_MAX, NULL);
	symbols_close(s);
	target_end(&t);
}
END_TEST

START_TEST(deleted_and_replaced_files_keep_their_names)
{
	struct symbols *s;
	struct target t;

	copy(programs[_i]);
	start_copy(&t);
	/* something else has the name by now */
	sh("rm '%s/program' && cp /bin/true '%s/program'", dir, dir);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	expect(s, &t, "in_program");
	expect(s, &t, "static_in_program");
	symbols_close(s);
	sh("rm '%s/libsymbols.so'", dir);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	if (geteuid() == 0) { /* map_files */
		expect(s, &t, "static_in_library");
	} else {
		expect_none(s, target_at(&t, "static_in_library"), "libsymbols.so");
	}
	symbols_close(s);
	target_end(&t);
}
END_TEST

START_TEST(names_outlive_the_process)
{
	struct symbols *s;
	struct target t;

	copy(programs[_i]);
	start_copy(&t);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	expect(s, &t, "in_program");
	target_end(&t);
	expect(s, &t, "static_in_program");
	expect_none(s, 16, NULL);
	symbols_close(s);
}
END_TEST

START_TEST(stripped_files_are_shown_as_file_and_address)
{
	struct symbols *s;
	struct target t;

	copy(programs[_i]);
	sh("strip -s '%s/program' '%s/libsymbols.so'", dir, dir);
	start_copy(&t);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	expect_resolvable(s, &t, "static_in_program", "program", programs[_i]);
	expect_resolvable(s, &t, "static_in_library", "libsymbols.so", "libsymbols.so");
	expect(s, &t, "in_library"); /* is exported */
	symbols_close(s);
	target_end(&t);
}
END_TEST

/* Below the root that the process has: one of our own, so that nothing is written to the machine's. */
START_TEST(debug_files_are_found_by_build_id)
{
	struct symbols *s;
	struct target t;
	char id[128] = "", line[512];
	FILE *f;

	if (geteuid() != 0 || access("/usr/lib/debug/.build-id", F_OK) == 0)
		return; /* no mount namespace, or a folder that is not to be hidden */
	copy("symbols_pie");
	if (fixture_privileged())
		return;
	snprintf(line, sizeof(line), "readelf -n '%s/program'", dir);
	f = popen(line, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, " Build ID: %127s", id);
	pclose(f);
	ck_assert_uint_gt(strlen(id), 2);
	sh("mkdir -p /usr/lib/debug && mount -t tmpfs debug /usr/lib/debug && mkdir -p /usr/lib/debug/.build-id/%.2s && "
	   "objcopy --only-keep-debug '%s/program' /usr/lib/debug/.build-id/%.2s/%s.debug && strip -s '%s/program'", id, dir, id,
	   id + 2, dir);
	start_copy(&t);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	expect(s, &t, "in_program");
	expect(s, &t, "static_in_program");
	symbols_close(s);
	target_end(&t);
}
END_TEST

/* Change the headers of the copy before it runs: `change` gets the file and its section headers. */
static void change_headers(void (*change)(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr), off_t bytes)
{
	char path[FIXTURE_PATH + 16], *mem;
	struct stat st;
	Elf64_Ehdr *eh;
	int fd;

	copy("symbols_pie");
	snprintf(path, sizeof(path), "%s/program", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert(fd >= 0 && fstat(fd, &st) == 0);
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(mem != MAP_FAILED);
	eh = (void *)mem;
	change(eh, (void *)(mem + eh->e_shoff), eh->e_shnum);
	munmap(mem, (size_t)st.st_size);
	ck_assert(bytes <= st.st_size || ftruncate(fd, bytes) == 0);
	close(fd);
}

static void set_all(Elf64_Shdr *sh, unsigned nr, uint64_t size, uint64_t entry)
{
	for (unsigned i = 0; i < nr; i++) {
		if (sh[i].sh_type != SHT_SYMTAB && sh[i].sh_type != SHT_DYNSYM)
			continue;
		sh[i].sh_size = size ? size : sh[i].sh_size;
		sh[i].sh_entsize = entry ? entry : sh[i].sh_entsize;
	}
}

static void huge_entries(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr)
{
	(void)eh;
	set_all(sh, nr, 0, UINT64_C(1) << 40); /* tables with room for no entry */
}

static void huge_tables(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr)
{
	(void)eh;
	set_all(sh, nr, SPARSE_BYTES / 2 / sizeof(Elf64_Sym) * sizeof(Elf64_Sym), 0);
}

static void huge_strings(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr)
{
	(void)eh;
	for (unsigned i = 0; i < nr; i++)
		sh[i].sh_size = sh[i].sh_type == SHT_STRTAB ? SPARSE_BYTES / 2 : sh[i].sh_size;
}

static void huge_notes(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr)
{
	(void)eh;
	for (unsigned i = 0; i < nr; i++) {
		if (sh[i].sh_type == SHT_NOTE)
			sh[i].sh_size = SPARSE_BYTES / 2;
		else if (sh[i].sh_type == SHT_SYMTAB)
			sh[i].sh_type = SHT_PROGBITS; /* so that a debug file is looked for */
	}
}

static void very_many_sections(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr)
{
	(void)nr;
	eh->e_shnum = 0;
	sh[0].sh_size = (SPARSE_BYTES / 4 * 3 - eh->e_shoff) / sizeof(*sh);
}

static uint64_t max_rss(void)
{
	struct rusage ru;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &ru), 0);
	return (uint64_t)ru.ru_maxrss * 1024;
}

static void spoil(void *mem, size_t bytes)
{
	for (unsigned char *c = mem; bytes > 0; bytes--)
		*c++ = (unsigned char)rand();
}

/* What is not loaded, and the headers that say so. */
static void garbage(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr)
{
	for (unsigned i = 1; i < nr; i++) {
		if (!(sh[i].sh_flags & SHF_ALLOC) && sh[i].sh_type != SHT_NOBITS)
			spoil((char *)eh + sh[i].sh_offset, sh[i].sh_size);
	}
	spoil(sh, nr * sizeof(*sh));
}

START_TEST(garbage_instead_of_tables_gives_no_name_and_no_crash)
{
	struct symbols *s;
	struct target t;

	change_headers(garbage, 0);
	start_copy(&t);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	for (uint64_t i = 0; i < 256; i++) {
		char buf[SYMBOLS_NAME_MAX];

		ck_assert_uint_gt(strlen(symbols_name(s, target_at(&t, "in_program") + i, buf, sizeof(buf))), 0);
	}
	symbols_close(s);
	target_end(&t);
}
END_TEST

START_TEST(headers_that_lie_cost_neither_memory_nor_a_crash)
{
	static void (*const changes[])(Elf64_Ehdr *eh, Elf64_Shdr *sh, unsigned nr) = { huge_entries, huge_tables, huge_strings,
		huge_notes, very_many_sections };
	char buf[SYMBOLS_NAME_MAX];
	uint64_t before, after;
	struct symbols *s;
	struct target t;

	change_headers(changes[_i], _i ? (off_t)SPARSE_BYTES : 0);
	start_copy(&t);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	before = max_rss();
	for (uint64_t i = 0; i < 64; i++)
		ck_assert_uint_gt(strlen(symbols_name(s, target_at(&t, "static_in_program") + i, buf, sizeof(buf))), 0);
	after = max_rss();
	ck_assert_msg(after - before < SPARSE_BYTES / 8, "%" PRIu64 " bytes", after - before);
	symbols_close(s);
	target_end(&t);
}
END_TEST

START_TEST(names_cannot_write_to_the_terminal)
{
	char buf[SYMBOLS_NAME_MAX], path[FIXTURE_PATH + 16];
	struct symbols *s;
	struct target t;

	copy("symbols_pie");
	sh("cd '%s' && objcopy --redefine-sym static_in_program=\"$(printf 'a\\033]0;b\\007c')\" program && rm -f red* && "
	   "cp program \"$(printf 'red\\033[31m')\" && objcopy --strip-all red*", dir);
	start_copy(&t);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	ck_assert_str_eq(symbols_name(s, target_at(&t, "static_in_program"), buf, sizeof(buf)), "a?]0;b?c");
	symbols_close(s);
	target_end(&t);
	snprintf(path, sizeof(path), "%s/red\033[31m", dir);
	target_start(&t, path);
	ck_assert_int_eq(symbols_open(t.pid, &s), 0);
	ck_assert_int_eq(strncmp(symbols_name(s, target_at(&t, "static_in_program"), buf, sizeof(buf)), "red?[31m+0x", 11), 0);
	symbols_close(s);
	target_end(&t);
}
END_TEST

START_TEST(no_process_is_an_error)
{
	struct symbols *s;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(symbols_open(pid, &s), -ENOENT);
	expect_none(s, 0x1000, NULL);
	symbols_close(s);
	symbols_close(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("symbols");
	TCase *tc = tcase_create("symbols");

	if (!symbols_has_names()) {
		printf("built without libelf: no names\n");
		return 77;
	}
	if (fixture_dir(dir)) {
		printf("no temporary folder\n");
		return 77;
	}
	tcase_set_timeout(tc, TIME_LIMIT_S);
	tcase_add_loop_test(tc, functions_of_program_and_library_have_names, 0, 2);
	tcase_add_loop_test(tc, deleted_and_replaced_files_keep_their_names, 0, 2);
	tcase_add_loop_test(tc, names_outlive_the_process, 0, 2);
	tcase_add_loop_test(tc, stripped_files_are_shown_as_file_and_address, 0, 2);
	tcase_add_test(tc, debug_files_are_found_by_build_id);
	tcase_add_test(tc, garbage_instead_of_tables_gives_no_name_and_no_crash);
	tcase_add_loop_test(tc, headers_that_lie_cost_neither_memory_nor_a_crash, 0, 5);
	tcase_add_test(tc, names_cannot_write_to_the_terminal);
	tcase_add_test(tc, no_process_is_an_error);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
