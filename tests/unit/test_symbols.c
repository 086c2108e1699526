/* SPDX-License-Identifier: MIT */
/*
 * Names of functions of another process: of a position-independent program and one that is not, of its shared library, static
 * functions too; of files that are deleted or replaced while they are mapped; of stripped files, with and without a debug file.
 * The process itself says where its functions are. What has no name is shown as file and address, which addr2line must resolve.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "suite.h"
#include "symbols.h"

#define BUILT MRT_TEST_BUILD_DIR "/tests/symbols"
#define TIME_LIMIT_S 30
#define ADDRESSES_MAX 8

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

START_TEST(garbage_instead_of_tables_gives_no_name_and_no_crash)
{
	struct symbols *s;
	struct target t;

	/* section headers and symbol tables are at the end of the file, what is mapped and runs is not */
	copy("symbols_pie");
	sh("size=$(stat -c %%s '%s/program'); head -c 6000 /dev/urandom | dd of='%s/program' bs=1 seek=$((size - 6000)) conv=notrunc "
	   "status=none", dir, dir);
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
	tcase_add_test(tc, no_process_is_an_error);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
