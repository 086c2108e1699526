/* SPDX-License-Identifier: MIT */
/* /proc and /sys, read line by line; whatever is missing reads as unknown, since a report must not fail for it. */
#include "sys.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

static void trim_end(char *line)
{
	size_t n = strlen(line);

	while (n && isspace((unsigned char)line[n - 1]))
		line[--n] = '\0';
}

bool sys_read_line(char *buf, size_t buf_bytes, const char *path_fmt, ...)
{
	char path[512], line[1024];
	va_list ap;
	FILE *f;
	bool ok;

	va_start(ap, path_fmt);
	vsnprintf(path, sizeof(path), path_fmt, ap);
	va_end(ap);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(line, sizeof(line), f) != NULL;
	(void)fclose(f);
	if (!ok)
		return false;
	trim_end(line);
	if (line[0] == '\0')
		return false;
	snprintf(buf, buf_bytes, "%s", line);
	return true;
}

/* --- mounts --- */

struct mount {
	unsigned id, major, minor;
	char at[512], fs[32], source[256];
};

/* "26 1 254:0 / /mnt rw,relatime shared:1 - ext4 /dev/vda rw" */
static bool parse_mount(const char *line, struct mount *m)
{
	const char *dash = strstr(line, " - ");

	if (!dash || sscanf(line, "%u %*u %u:%u %*s %511s", &m->id, &m->major, &m->minor, m->at) != 4)
		return false;
	return sscanf(dash + 3, "%31s %255s", m->fs, m->source) == 2;
}

/* Calls look() for each mount until it says true. */
static bool find_mount(bool (*look)(const struct mount *m, void *ctx), void *ctx)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	struct mount m;
	bool found = false;

	if (!f)
		return false;
	while (!found && getline(&line, &room, f) > 0)
		found = parse_mount(line, &m) && look(&m, ctx);
	free(line);
	(void)fclose(f);
	return found;
}

struct by_id {
	unsigned id;
	char *fs, *source;
	size_t fs_bytes, source_bytes;
};

static bool look_by_id(const struct mount *m, void *ctx)
{
	struct by_id *want = ctx;

	if (m->id != want->id)
		return false;
	snprintf(want->fs, want->fs_bytes, "%s", m->fs);
	snprintf(want->source, want->source_bytes, "%s", m->source);
	return true;
}

bool sys_mount_of_fd(int fd, char *fs, size_t fs_bytes, char *source, size_t source_bytes)
{
	struct by_id want = { .fs = fs, .source = source, .fs_bytes = fs_bytes, .source_bytes = source_bytes };
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "mnt_id: %u", &want.id) == 1)
			break;
	}
	(void)fclose(f);
	return find_mount(look_by_id, &want);
}

struct by_device {
	unsigned major, minor;
	char *where;
	size_t where_bytes;
};

static bool is_partition_of(const struct mount *m, const struct by_device *d)
{
	char path[128], line[32];

	/* the parent of a partition's folder is its disk's */
	snprintf(path, sizeof(path), "%u:%u", d->major, d->minor);
	return sys_read_line(line, sizeof(line), "/sys/dev/block/%u:%u/../dev", m->major, m->minor) &&
	       strcmp(line, path) == 0;
}

static bool look_by_device(const struct mount *m, void *ctx)
{
	struct by_device *d = ctx;
	bool same = m->major == d->major && m->minor == d->minor;
	struct stat st;

	/* file systems over several devices (btrfs) have a number of their own, but name a device as their source */
	if (!same && m->source[0] == '/' && stat(m->source, &st) == 0 && S_ISBLK(st.st_mode))
		same = major(st.st_rdev) == d->major && minor(st.st_rdev) == d->minor;
	if (!same && !is_partition_of(m, d))
		return false;
	snprintf(d->where, d->where_bytes, "%s", m->at);
	return true;
}

bool sys_mounted_at(unsigned major, unsigned minor, char *where, size_t where_bytes)
{
	struct by_device d = { major, minor, where, where_bytes };

	return find_mount(look_by_device, &d);
}

bool sys_disk_stat(unsigned major, unsigned minor, struct sys_disk_stat *ret_stat)
{
	struct sys_disk_stat *s = ret_stat;
	char line[512];

	if (!sys_read_line(line, sizeof(line), "/sys/dev/block/%u:%u/stat", major, minor))
		return false;
	return sscanf(line, "%" SCNu64 " %" SCNu64 " %*u %" SCNu64 " %" SCNu64 " %" SCNu64 " %*u %" SCNu64 " %*u %" SCNu64
		      " %" SCNu64, &s->read_ios, &s->read_merges, &s->read_ticks, &s->write_ios, &s->write_merges,
		      &s->write_ticks, &s->busy_ms, &s->in_queue) == 8;
}

/* --- CPUs and threads --- */

bool sys_cpu_ticks(struct sys_cpu_ticks *ret_ticks)
{
	uint64_t user, nice, sys, idle, iowait, irq, soft, steal;
	char line[512];

	if (!sys_read_line(line, sizeof(line), "/proc/stat"))
		return false;
	if (sscanf(line, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64, &user, &nice, &sys, &idle, &iowait, &irq, &soft, &steal) != 8)
		return false;
	ret_ticks->busy = user + nice + sys + irq + soft;
	ret_ticks->idle = idle + iowait;
	ret_ticks->steal = steal;
	return true;
}

static uint64_t quota_us(void)
{
	char group[512], path[640], line[128];
	uint64_t us = 0;
	FILE *f;

	/* "0::/system.slice/x.service": version 2 has this one line, and it is the first where it is alone */
	if (!sys_read_line(group, sizeof(group), "/proc/self/cgroup") || strncmp(group, "0::", 3))
		return 0;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.stat", group + 3);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "throttled_usec %" SCNu64, &us) == 1)
			break;
	}
	(void)fclose(f);
	return us;
}

void sys_throttle(struct sys_throttle *ret_throttle)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	char line[64];

	*ret_throttle = (struct sys_throttle){ .quota_us = quota_us() };
	for (long i = 0; i < cpus; i++) {
		if (!sys_read_line(line, sizeof(line), "/sys/devices/system/cpu/cpu%ld/thermal_throttle/"
				   "core_throttle_count", i))
			return;         /* what the first CPU lacks all lack */
		ret_throttle->hot_nr += strtoull(line, NULL, 10);
	}
}

unsigned sys_iowq_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d))) {
		char comm[64];

		if (isdigit((unsigned char)e->d_name[0]) &&
		    sys_read_line(comm, sizeof(comm), "/proc/self/task/%s/comm", e->d_name))
			n += strncmp(comm, "iou-wrk", 7) == 0;
	}
	(void)closedir(d);
	return n;
}

static uint64_t thread_switches(int tid)
{
	char path[64], line[128];
	uint64_t sum = 0, n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &n) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %" SCNu64, &n) == 1)
			sum += n;
	}
	(void)fclose(f);
	return sum;
}

bool sys_thread_usage(int tid, struct sys_thread_usage *ret_usage)
{
	uint64_t usr, sys, tick_us = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	char line[1024];
	const char *rest;

	if (!sys_read_line(line, sizeof(line), "/proc/self/task/%d/stat", tid))
		return false;
	rest = strrchr(line, ')'); /* the name may hold anything */
	if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &usr, &sys) != 2)
		return false;
	*ret_usage = (struct sys_thread_usage){ usr * tick_us, sys * tick_us, thread_switches(tid) };
	return true;
}

void sys_cpu_model(char *buf, size_t buf_bytes)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(buf, buf_bytes, "%s", "");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) == 0 && colon) {
			trim_end(line);
			snprintf(buf, buf_bytes, "%s", colon + 2);
			break;
		}
	}
	(void)fclose(f);
}

void sys_kernel(char *buf, size_t buf_bytes)
{
	struct utsname u;

	if (uname(&u) == 0)
		snprintf(buf, buf_bytes, "%s %s %s", u.sysname, u.release, u.machine);
	else
		snprintf(buf, buf_bytes, "unknown");
}

uint64_t sys_memory_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}
