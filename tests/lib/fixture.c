/* SPDX-License-Identifier: MIT */
/* See fixture.h. */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MADE_MAX 64
#define PREFIX "martlet-itest-"
#define BLKIO "/sys/fs/cgroup/blkio"

/* ---- what is to be removed at exit, by the process that made it ---- */

struct made {
	pid_t pid;
	bool group;
	char path[FIXTURE_PATH];
};

static struct made made[MADE_MAX];
static unsigned made_nr;

static int drop(const char *path, int depth)
{
	struct dirent *d;
	DIR *dir;

	if (unlink(path) == 0 || (errno != EISDIR && errno != EPERM))
		return 0;
	dir = depth < 16 ? opendir(path) : NULL;
	while (dir && (d = readdir(dir)) != NULL) {
		char sub[FIXTURE_PATH + 256];

		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		snprintf(sub, sizeof(sub), "%.250s/%s", path, d->d_name);
		(void)drop(sub, depth + 1);
	}
	if (dir)
		closedir(dir);
	return rmdir(path) ? -errno : 0;
}

void fixture_remove(const char *path)
{
	(void)drop(path, 0);
}

static void remove_group(const char *path)
{
	int tries;

	/* whoever is in it leaves by ending */
	for (tries = 0; tries < 100 && rmdir(path) && errno == EBUSY; tries++)
		(void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

static void remove_made(void)
{
	while (made_nr > 0) {
		struct made *m = &made[--made_nr];

		if (m->pid != getpid())
			continue;
		if (m->group) {
			remove_group(m->path);
		} else {
			(void)umount2(m->path, MNT_DETACH); /* if it is a mount at all */
			fixture_remove(m->path);
		}
	}
}

static int remember(const char *path, bool group)
{
	static pid_t registered;

	if (made_nr == MADE_MAX)
		return -ENOSPC;
	if (registered != getpid()) {
		registered = getpid();
		if (atexit(remove_made))
			return -ENOMEM;
	}
	made[made_nr].pid = getpid();
	made[made_nr].group = group;
	snprintf(made[made_nr].path, FIXTURE_PATH, "%s", path);
	made_nr++;
	return 0;
}

/* Names are PREFIX pid "-" number: what belongs to nobody alive is removed. */
static void sweep(const char *parent, bool group)
{
	DIR *dir = opendir(parent);
	struct dirent *d;

	while (dir && (d = readdir(dir)) != NULL) {
		char path[FIXTURE_PATH + 256];
		long pid;

		if (strncmp(d->d_name, PREFIX, sizeof(PREFIX) - 1) != 0)
			continue;
		pid = strtol(d->d_name + sizeof(PREFIX) - 1, NULL, 10);
		if (pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
			continue;
		snprintf(path, sizeof(path), "%.200s/%.200s", parent, d->d_name);
		if (group)
			(void)rmdir(path);
		else
			fixture_remove(path);
	}
	if (dir)
		closedir(dir);
}

static int make_dir(const char *parent, bool group, char ret_path[FIXTURE_PATH])
{
	static unsigned number;
	char path[FIXTURE_PATH];
	int err;

	snprintf(path, sizeof(path), "%.180s/" PREFIX "%d-%u", parent, (int)getpid(), number++);
	if (mkdir(path, 0755))
		return -errno;
	err = remember(path, group);
	if (err) {
		(void)rmdir(path);
		return err;
	}
	snprintf(ret_path, FIXTURE_PATH, "%s", path);
	return 0;
}

int fixture_dir(char ret_path[FIXTURE_PATH])
{
	const char *parent = getenv("TMPDIR");

	if (!parent || !*parent)
		parent = "/tmp";
	sweep(parent, false);
	return make_dir(parent, false, ret_path);
}

/* ---- mounts ---- */

int fixture_privileged(void)
{
	static int result = 1;

	if (result <= 0)
		return result;
	if (geteuid() != 0)
		result = -EPERM;
	else if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		result = -errno;
	else
		result = 0;
	return result;
}

int fixture_tmpfs(size_t bytes, char ret_path[FIXTURE_PATH])
{
	char options[64];
	int err = fixture_privileged();

	if (!err)
		err = fixture_dir(ret_path);
	if (err)
		return err;
	snprintf(options, sizeof(options), "size=%zu", bytes);
	return mount("tmpfs", ret_path, "tmpfs", 0, options) ? -errno : 0;
}

void fixture_pattern(void *buf, size_t bytes, uint64_t seed, uint64_t position)
{
	unsigned char *p = buf;
	size_t i;

	for (i = 0; i < bytes; i++) {
		uint64_t x = ((position + i) >> 3) * 0x9e3779b97f4a7c15u + seed;

		x ^= x >> 29;
		x *= 0xbf58476d1ce4e5b9u;
		x ^= x >> 32;
		p[i] = (unsigned char)(x >> (8 * ((position + i) & 7)));
	}
}

static int make_image(const char *dir, size_t bytes)
{
	static unsigned char block[65536];
	size_t at;
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	for (at = 0; at < bytes; at += sizeof(block)) {
		size_t nr = bytes - at < sizeof(block) ? bytes - at : sizeof(block);

		fixture_pattern(block, nr, 1, at);
		if (pwrite(fd, block, nr, (off_t)at) != (ssize_t)nr) {
			int err = errno;

			close(fd);
			return -err;
		}
	}
	return fd;
}

/* Others may be after the same free device: ask again. */
static int attach(int image_fd, bool read_only, struct fixture_loop *ret_loop)
{
	struct loop_config config = {
		.fd = (__u32)image_fd,
		.info = { .lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? (unsigned)LO_FLAGS_READ_ONLY : 0u) },
	};
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), tries, number, fd, err = -EBUSY;

	if (control < 0)
		return -errno;
	for (tries = 0; tries < 50; tries++) {
		number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0) {
			err = -errno;
			break;
		}
		snprintf(ret_loop->path, sizeof(ret_loop->path), "/dev/loop%d", number);
		fd = open(ret_loop->path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (fd < 0) {
			err = -errno;
			break;
		}
		if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
			ret_loop->fd = fd;
			err = 0;
			break;
		}
		err = -errno;
		close(fd);
		if (err != -EBUSY)
			break;
	}
	close(control);
	return err;
}

int fixture_loop(const char *dir, size_t bytes, bool read_only, struct fixture_loop *ret_loop)
{
	struct stat st;
	int err = fixture_privileged();

	if (err)
		return err;
	ret_loop->image_fd = make_image(dir, bytes);
	if (ret_loop->image_fd < 0)
		return ret_loop->image_fd;
	err = attach(ret_loop->image_fd, read_only, ret_loop);
	if (err) {
		close(ret_loop->image_fd);
		return err;
	}
	if (fstat(ret_loop->fd, &st))
		return -errno;
	ret_loop->major = major(st.st_rdev);
	ret_loop->minor = minor(st.st_rdev);
	return 0;
}

void fixture_loop_close(struct fixture_loop *loop)
{
	close(loop->fd);
	close(loop->image_fd);
}

int fixture_mount_ext4(const struct fixture_loop *loop, char ret_path[FIXTURE_PATH])
{
	char command[128];
	int err = fixture_dir(ret_path);

	if (err)
		return err;
	snprintf(command, sizeof(command), "mkfs.ext4 -q -F %s >/dev/null 2>&1", loop->path);
	if (system(command) != 0)
		return -ENOENT;
	return mount(loop->path, ret_path, "ext4", 0, NULL) ? -errno : 0;
}

/* ---- throttle ---- */

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		err = -errno;
	close(fd);
	return err;
}

int fixture_throttle(unsigned major, unsigned minor, struct fixture_throttle *ret_throttle)
{
	char path[FIXTURE_PATH + 64];
	int err;

	sweep(BLKIO, true);
	err = make_dir(BLKIO, true, ret_throttle->group);
	if (err)
		return err;
	ret_throttle->major = major;
	ret_throttle->minor = minor;
	snprintf(path, sizeof(path), "%s/blkio.throttle.read_iops_device", ret_throttle->group);
	return access(path, W_OK) ? -errno : 0;
}

int fixture_throttle_set(const struct fixture_throttle *t, unsigned reads_per_second)
{
	char path[FIXTURE_PATH + 64], text[64];

	snprintf(path, sizeof(path), "%s/blkio.throttle.read_iops_device", t->group);
	snprintf(text, sizeof(text), "%u:%u %u", t->major, t->minor, reads_per_second);
	return write_file(path, text);
}

int fixture_throttle_enter(const struct fixture_throttle *t)
{
	char path[FIXTURE_PATH + 64], text[32];

	snprintf(path, sizeof(path), "%s/cgroup.procs", t->group);
	snprintf(text, sizeof(text), "%d", (int)getpid());
	return write_file(path, text);
}

/* ---- io-wq ---- */

int fixture_iowq_may_run_on(int tid, int cpu)
{
	char path[128], comm[32] = "", want[32];
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	cpu_set_t cpus;
	int found = -1;
	FILE *f;

	if (!dir)
		return -1;
	(void)snprintf(want, sizeof(want), "iou-wrk-%d\n", tid);
	while ((entry = readdir(dir)) != NULL) {
		(void)snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", entry->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) && strcmp(comm, want) == 0 &&
		    sched_getaffinity(atoi(entry->d_name), sizeof(cpus), &cpus) == 0)
			found = CPU_ISSET((size_t)cpu, &cpus) != 0;
		(void)fclose(f);
	}
	(void)closedir(dir);
	return found;
}
