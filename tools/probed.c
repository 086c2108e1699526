/* SPDX-License-Identifier: MIT */
/*
 * See probed.h. A process's files are seen through /proc/PID/root, so also those of a container; one that was deleted, or
 * replaced by an update, through /proc/PID/map_files, which takes CAP_SYS_ADMIN.
 */
#include "probed.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/notes.h"

#define PROVIDER "martlet"

static bool has_probes(const char *path)
{
	struct note *notes = malloc(NOTES_MAX * sizeof(*notes));
	int nr = notes ? notes_read(path, notes) : 0, i;
	bool has = false;

	for (i = 0; i < nr && !has; i++)
		has = strcmp(notes[i].provider, PROVIDER) == 0;
	free(notes);
	return has;
}

static int add_file(struct probed *p, const char *path)
{
	struct stat st, other;
	char *copy;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return 0;
	for (unsigned i = 0; i < p->nr; i++)
		if (stat(p->files[i], &other) == 0 && other.st_dev == st.st_dev && other.st_ino == st.st_ino)
			return 0;
	if (!has_probes(path))
		return 0;
	if (p->nr == PROBED_FILES_MAX)
		return -E2BIG;
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	p->files[p->nr++] = copy;
	return 0;
}

/* One line of /proc/PID/maps. @return as probed_process(); -EACCES: this file */
static int add_mapping(struct probed *p, pid_t pid, char *line)
{
	char perms[5], path[PROBED_PATH_BYTES + 64];
	unsigned long long start, end, inode;
	struct stat st;
	int at = 0;

	if (sscanf(line, "%llx-%llx %4s %*x %*x:%*x %llu %n", &start, &end, perms, &inode, &at) < 4 || at == 0)
		return 0;
	line += at;
	line[strcspn(line, "\n")] = '\0';
	if (perms[2] != 'x' || line[0] != '/')
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/%d/root%.4000s", (int)pid, line); /* cut: then it is not found */
	if (stat(path, &st) || st.st_ino != inode) {
		(void)snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)pid, start, end); /* fits */
		if (stat(path, &st) && (errno == EACCES || errno == EPERM))
			return -EACCES;
	}
	return add_file(p, path);
}

int probed_process(struct probed *p, pid_t pid)
{
	size_t line_bytes = 0;
	char path[64], *line = NULL;
	unsigned before = p->nr;
	bool is_denied = false;
	int err = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid); /* fits */
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (!err && getline(&line, &line_bytes, f) > 0) {
		err = add_mapping(p, pid, line);
		if (err == -EACCES) {
			is_denied = true; /* that one may be without probes */
			err = 0;
		}
	}
	free(line);
	(void)fclose(f); /* only read */
	return !err && is_denied && p->nr == before ? -EACCES : err;
}

/* ---- a command that does not run yet ---- */

/* As execvp(3) finds it. @return 0, -ENOENT, -EACCES */
static int find_command(const char *name, char path[PROBED_PATH_BYTES])
{
	const char *dirs = getenv("PATH"), *end;
	int err = -ENOENT;

	if (strchr(name, '/')) {
		(void)snprintf(path, PROBED_PATH_BYTES, "%s", name); /* cut: then it is not found */
		return access(path, X_OK) ? -errno : 0;
	}
	for (dirs = dirs ? dirs : "/bin:/usr/bin"; dirs; dirs = *end ? end + 1 : NULL) {
		struct stat st;

		end = strchrnul(dirs, ':');
		(void)snprintf(path, PROBED_PATH_BYTES, "%.*s/%s", end == dirs ? 1 : (int)(end - dirs),
			       end == dirs ? "." : dirs, name); /* cut: then it is not found */
		if (access(path, X_OK) == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode))
			return 0;
		if (errno == EACCES)
			err = -EACCES;
	}
	return err;
}

/* "	libx.so.1 => /usr/lib/libx.so.1 (0x7f..)" */
static int add_libraries(struct probed *p, FILE *list)
{
	size_t line_bytes = 0;
	char *line = NULL;
	int err = 0;

	while (getline(&line, &line_bytes, list) > 0) {
		char *path = strstr(line, "=> /"), *end;

		path = path ? path + 3 : line + strspn(line, "\t ");
		end = strrchr(path, '(');
		if (path[0] != '/' || !end || end == path)
			continue;
		end[-1] = '\0';
		if (!err)
			err = add_file(p, path);
	}
	free(line);
	return err;
}

extern char **environ;

/* What ldd(1) does: the dynamic linker prints what it would load, and the program does not run. */
static int ask_linker(struct probed *p, char *path)
{
	char *argv[] = { path, NULL };
	posix_spawn_file_actions_t fa;
	int pipe_fds[2], err, status;
	pid_t child;
	FILE *list;

	if (pipe2(pipe_fds, O_CLOEXEC))
		return -errno;
	list = fdopen(pipe_fds[0], "re");
	if (!list || posix_spawn_file_actions_init(&fa)) {
		(void)(list ? fclose(list) : close(pipe_fds[0])); /* nothing was written */
		(void)close(pipe_fds[1]);
		return -ENOMEM;
	}
	err = posix_spawn_file_actions_adddup2(&fa, pipe_fds[1], STDOUT_FILENO);
	if (!err && setenv("LD_TRACE_LOADED_OBJECTS", "1", 1))
		err = ENOMEM;
	if (!err)
		err = posix_spawn(&child, path, &fa, NULL, argv, environ);
	(void)unsetenv("LD_TRACE_LOADED_OBJECTS"); /* cannot fail: it is a good name */
	(void)posix_spawn_file_actions_destroy(&fa); /* its memory alone */
	(void)close(pipe_fds[1]); /* the child has it */
	if (!err) {
		err = -add_libraries(p, list);
		(void)waitpid(child, &status, 0); /* what it said is what counts */
	}
	(void)fclose(list); /* only read */
	return -err;
}

/* Running a file that is linked statically, or no ELF file, with that variable would run it for real. */
static bool is_dynamic(const char *path)
{
	Elf64_Ehdr eh;
	Elf64_Phdr ph;
	bool found = false;
	FILE *f = fopen(path, "re");

	if (!f)
		return false;
	if (fread(&eh, sizeof(eh), 1, f) == 1 && memcmp(eh.e_ident, ELFMAG, SELFMAG) == 0 &&
	    eh.e_ident[EI_CLASS] == ELFCLASS64 && eh.e_phentsize == sizeof(ph) && fseek(f, (long)eh.e_phoff, SEEK_SET) == 0)
		for (unsigned i = 0; i < eh.e_phnum && !found && fread(&ph, sizeof(ph), 1, f) == 1; i++)
			found = ph.p_type == PT_INTERP;
	(void)fclose(f); /* only read */
	return found;
}

int probed_command(struct probed *p, const char *name)
{
	char path[PROBED_PATH_BYTES];
	int err = find_command(name, path);

	if (!err)
		err = add_file(p, path);
	if (!err && p->nr == 0 && is_dynamic(path))
		err = ask_linker(p, path);
	return err;
}

void probed_free(struct probed *p)
{
	for (unsigned i = 0; i < p->nr; i++)
		free(p->files[i]);
	p->nr = 0;
}
