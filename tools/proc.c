/* SPDX-License-Identifier: MIT */
/* See proc.h. */
#include "proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys.h"

/* What follows the name of a process in its stat file: the name in parentheses may hold anything, newlines too. */
static const char *after_name(int pid, char *text, size_t text_bytes)
{
	char path[64];
	const char *p;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid); /* fits */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	n = read(fd, text, text_bytes - 1);
	(void)close(fd); /* only read */
	if (n <= 0)
		return NULL;
	text[n] = '\0';
	p = strrchr(text, ')');
	return p && p[1] == ' ' ? p + 2 : NULL;
}

uint64_t proc_start_ticks(int pid)
{
	unsigned long long ticks = 0;
	char text[1024];
	const char *p = after_name(pid, text, sizeof(text)); /* field 3, the state */
	unsigned field;

	if (!p || *p == 'Z' || *p == 'X')
		return 0;
	for (field = 3; p && field < 22; field++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	return p && sscanf(p, "%llu", &ticks) == 1 ? ticks : 0;
}

char proc_state(int pid)
{
	char text[1024];
	const char *p = after_name(pid, text, sizeof(text));

	return p ? *p : '?';
}

int proc_inner_pid(int pid)
{
	char path[64], line[256];
	const char *last;
	int inner = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid); /* fits */
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "NSpid:", 6) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		last = strrchr(line, '\t');
		inner = last ? atoi(last) : 0;
		break;
	}
	if (f)
		(void)fclose(f); /* only read */
	return inner;
}

static uint64_t inode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_ino : 0;
}

uint64_t proc_pid_ns(int pid)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid); /* fits */
	return inode_of(path);
}

uint64_t proc_own_pid_ns(void)
{
	return inode_of("/proc/self/ns/pid");
}

void proc_printable(char *text)
{
	for (; *text; text++) {
		if (!isprint((unsigned char)*text))
			*text = '?';
	}
}

void proc_name(int pid, char *name, size_t name_bytes)
{
	if (!sys_read_line(name, name_bytes, "/proc/%d/comm", pid))
		(void)snprintf(name, name_bytes, "?"); /* fits */
	proc_printable(name);
}

int proc_each(bool (*fn)(int pid, void *ctx), void *ctx)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	bool go = true;

	if (!dir)
		return -errno;
	while (go && (e = readdir(dir)) != NULL) {
		if (isdigit((unsigned char)e->d_name[0]))
			go = fn(atoi(e->d_name), ctx);
	}
	(void)closedir(dir); /* only read */
	return 0;
}

bool proc_has_capability(unsigned nr)
{
	unsigned long long caps = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	}
	if (f)
		(void)fclose(f); /* only read */
	return caps >> nr & 1;
}

const char *proc_how_to_look(void)
{
	if (proc_has_capability(CAP_SYS_PTRACE))
		return "not for lack of CAP_SYS_PTRACE; a security module forbids it, or it is of another user namespace";
	return geteuid() == 0 ? "root is not enough, CAP_SYS_PTRACE is missing" : "be root (CAP_SYS_PTRACE)";
}

const char *proc_why_not(int pid, char *buf, size_t buf_bytes)
{
	(void)snprintf(buf, buf_bytes, "this user may not look into process %d (another user's, or one with more capabilities): %s", pid,
		       proc_how_to_look()); /* cut to fit */
	return buf;
}
