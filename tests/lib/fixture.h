/* SPDX-License-Identifier: MIT */
/*
 * Things that outlive a process: folders, mounts, loop devices, throttles. Made in the process that forks the tests
 * (unchecked fixtures), so that a test that is killed leaves nothing behind; and made so that even that process may be
 * killed: mounts are in a mount namespace of its own, loop devices detach with their last user, folders of dead
 * processes are swept by the next run.
 *
 * All return 0 or -errno, and say nothing: what is missing is the caller's reason to skip.
 */
#ifndef MRT_TESTS_FIXTURE_H
#define MRT_TESTS_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIXTURE_PATH 256

/* A new folder under $TMPDIR, else /tmp; removed with all in it when this process exits. */
int fixture_dir(char ret_path[FIXTURE_PATH]);

/* Remove a file or folder with all in it. */
void fixture_remove(const char *path);

/* May we mount and make loop devices? Makes a mount namespace on the first call. */
int fixture_privileged(void);

/* A tmpfs of so many bytes on a new folder. */
int fixture_tmpfs(size_t bytes, char ret_path[FIXTURE_PATH]);

struct fixture_loop {
	char path[64];          /* /dev/loopN */
	int fd;                 /* keeps it alive: it detaches at the last close */
	int image_fd;           /* the file behind it */
	unsigned major, minor;
};

/* A loop device over a file of random bytes in dir. direct: the file is read with O_DIRECT, if its file system can. */
int fixture_loop(const char *dir, size_t bytes, bool read_only, struct fixture_loop *ret_loop);
void fixture_loop_close(struct fixture_loop *loop);

/* An ext4 on the loop device, mounted. */
int fixture_mount_ext4(const struct fixture_loop *loop, char ret_path[FIXTURE_PATH]);

struct fixture_throttle {
	char group[FIXTURE_PATH];
	unsigned major, minor;
};

/*
 * A cgroup in which reads of a device are limited; removed at exit. enter: the calling process, with all its threads and
 * those to come, is limited from now on. set 0: no limit.
 */
int fixture_throttle(unsigned major, unsigned minor, struct fixture_throttle *ret_throttle);
int fixture_throttle_set(const struct fixture_throttle *t, unsigned reads_per_second);
int fixture_throttle_enter(const struct fixture_throttle *t);

/* May the io-wq thread of thread `tid` of this process run on this CPU? -1: it has none */
int fixture_iowq_may_run_on(int tid, int cpu);

/* Fill with bytes that depend on seed and position. */
void fixture_pattern(void *buf, size_t bytes, uint64_t seed, uint64_t position);

#endif
