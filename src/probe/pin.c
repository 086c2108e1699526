/* SPDX-License-Identifier: MIT */
/*
 * Pins: names for the maps in bpffs, so that they can be found by process and read by others than root.
 *
 *	/sys/fs/bpf/mrt/PID/{mrt_workers,mrt_hists,mrt_global,mrt_ctl}    PID-2, PID-3: further runtimes of the process
 *
 * A pin outlives its process. So whoever pins first removes what the dead have left: a folder whose mrt_global names a
 * process of this PID namespace that is gone, or that began at another time (the number was used again); also one of another
 * version, since that much stands in the same place in all. What cannot be read, or belongs to another PID namespace is left
 * alone: from here nobody could say whether that process lives.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe/map.h"
#include "probe/stat.h"

#define ROOT "/sys/fs/bpf/mrt"
#define RUNTIMES_MAX 64u        /* pinned runtimes of one process */
#define MODE_DIR 0755
#define PATH_BYTES 128

/* "1234" or "1234-2"; nothing else is ours. */
static bool is_our_name(const char *name)
{
	size_t digits = strspn(name, "0123456789"), more;

	if (digits == 0 || digits > 10)
		return false;
	if (name[digits] == '\0')
		return true;
	more = strspn(name + digits + 1, "0123456789");
	return name[digits] == '-' && more > 0 && more < 4 && name[digits + 1 + more] == '\0';
}

/* Folders are at most ROOT and 16 characters, map names 15. */
static const char *path_of(const char *folder, enum mrt__stat_block_id id, char path[PATH_BYTES])
{
	(void)snprintf(path, PATH_BYTES, "%.64s/%.16s", folder, mrt__stat_blocks[id].map_name); /* fits */
	return path;
}

static void remove_folder(const char *folder)
{
	char path[PATH_BYTES];
	unsigned i;

	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++) {
		(void)unlink(path_of(folder, i, path)); /* what is left makes rmdir fail */
	}
	(void)rmdir(folder); /* somebody put other things there: then it stays */
}

static bool is_stale(const char *folder, uint64_t pid_ns)
{
	struct mrt_global_stats global;
	char path[PATH_BYTES];

	if (mrt__map_read_pinned(path_of(folder, MRT__STAT_GLOBAL, path), mrt__stat_blocks[MRT__STAT_GLOBAL].map_name, &global,
				 offsetof(struct mrt_global_stats, name)))
		return false;
	return global.pid_ns == pid_ns && mrt__stats_start_ticks((int)global.pid) != global.start_ticks;
}

static void remove_stale(uint64_t pid_ns)
{
	char folder[PATH_BYTES];
	struct dirent *e;
	DIR *dir = opendir(ROOT);

	if (!dir)
		return;
	while ((e = readdir(dir)) != NULL) {
		if (!is_our_name(e->d_name))
			continue;
		(void)snprintf(folder, sizeof(folder), ROOT "/%.16s", e->d_name); /* fits, by its form */
		if (is_stale(folder, pid_ns))
			remove_folder(folder);
	}
	(void)closedir(dir);
}

/* A folder that nobody else has. */
static int make_folder(struct mrt__stats *s)
{
	unsigned i;

	for (i = 1; i <= RUNTIMES_MAX; i++) {
		int n = snprintf(s->pin, sizeof(s->pin), ROOT "/%d", (int)getpid());

		if (i > 1)
			(void)snprintf(s->pin + n, sizeof(s->pin) - (size_t)n, "-%u", i); /* fits */
		if (mkdir(s->pin, MODE_DIR) == 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	s->pin[0] = '\0';
	return -errno;
}

int mrt__stats_pin(struct mrt__stats *s)
{
	char path[PATH_BYTES];
	unsigned i;
	int err;

	if (s->backend != MRT__STATS_BPF)
		return -EOPNOTSUPP;
	if (mkdir(ROOT, MODE_DIR) && errno != EEXIST)
		return -errno;
	remove_stale(s->global->pid_ns);
	err = make_folder(s);
	for (i = 0; i < MRT__STAT_BLOCKS_NR && !err; i++) {
		err = mrt__map_pin(s->fds[i], path_of(s->pin, i, path));
	}
	if (err)
		mrt__stats_unpin(s);
	return err;
}

void mrt__stats_unpin(struct mrt__stats *s)
{
	if (s->pin[0] == '\0')
		return;
	remove_folder(s->pin);
	s->pin[0] = '\0';
}
