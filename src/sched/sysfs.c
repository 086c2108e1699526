/* SPDX-License-Identifier: MIT */
/* The links of /sys/dev lead from a device number to its name; see sysfs.h. */
#include "sched/sysfs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PATH_BYTES 96u

int64_t mrt__sysfs_number(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32], *end;
	ssize_t bytes;
	long long value;

	if (fd < 0)
		return -1;
	bytes = read(fd, text, sizeof(text) - 1);
	(void)close(fd); /* read only: nothing to lose */
	if (bytes <= 0)
		return -1;
	text[bytes] = '\0';
	value = strtoll(text, &end, 10);
	return end == text || value < 0 ? -1 : value;
}

static void device_path(bool block, dev_t dev, const char *rest, char *ret_path, size_t path_bytes)
{
	snprintf(ret_path, path_bytes, "/sys/dev/%s/%u:%u%s", block ? "block" : "char", major(dev), minor(dev), rest);
}

/* The last part of where a link leads; `up` parts are dropped before. */
static bool link_name(const char *path, unsigned up, char *ret_name, size_t name_bytes)
{
	char target[PATH_MAX], *slash;
	ssize_t bytes = readlink(path, target, sizeof(target) - 1);
	size_t len;

	if (bytes <= 0)
		return false;
	target[bytes] = '\0';
	for (;;) {
		slash = strrchr(target, '/');
		if (!slash)
			return false;
		if (up-- == 0)
			break;
		*slash = '\0';
	}
	len = strlen(slash + 1);
	if (len == 0 || len >= name_bytes)
		return false;
	memcpy(ret_name, slash + 1, len + 1);
	return true;
}

bool mrt__sysfs_name(bool block, dev_t dev, char *ret_name, size_t name_bytes)
{
	char path[PATH_BYTES];

	device_path(block, dev, "", path, sizeof(path));
	return link_name(path, 0, ret_name, name_bytes);
}

bool mrt__sysfs_subsystem(bool block, dev_t dev, char *ret_name, size_t name_bytes)
{
	char path[PATH_BYTES];

	device_path(block, dev, "/subsystem", path, sizeof(path));
	return link_name(path, 0, ret_name, name_bytes);
}

bool mrt__sysfs_disk(dev_t dev, char *ret_name, size_t name_bytes)
{
	char path[PATH_BYTES];

	device_path(true, dev, "/partition", path, sizeof(path));
	if (access(path, F_OK))
		return mrt__sysfs_name(true, dev, ret_name, name_bytes);
	device_path(true, dev, "", path, sizeof(path));
	return link_name(path, 1, ret_name, name_bytes); /* a partition's folder is in its disk's */
}
