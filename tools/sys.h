/* SPDX-License-Identifier: MIT */
/* Small questions to /proc and /sys. All may be asked from any thread; none changes anything. */
#ifndef TOOLS_SYS_H
#define TOOLS_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First line of a file, without its newline and trailing blanks. false: unreadable or empty; buf untouched then. */
__attribute__((format(printf, 3, 4)))
bool sys_read_line(char *buf, size_t buf_bytes, const char *path_fmt, ...);

/* File system type and mount source of an open file. false: not found. */
bool sys_mount_of_fd(int fd, char *fs, size_t fs_bytes, char *source, size_t source_bytes);

/* Where a device, or a partition of it, is mounted in this mount namespace. false: nowhere. */
bool sys_mounted_at(unsigned major, unsigned minor, char *where, size_t where_bytes);

/* What a block device has done since boot; times in ms. */
struct sys_disk_stat {
	uint64_t read_ios, read_merges, read_ticks, write_ios, write_merges, write_ticks, busy_ms, in_queue;
};

bool sys_disk_stat(unsigned major, unsigned minor, struct sys_disk_stat *ret_stat);

/* CPU time of all CPUs since boot, in clock ticks. */
struct sys_cpu_ticks {
	uint64_t busy, idle, steal;     /* busy without steal */
};

bool sys_cpu_ticks(struct sys_cpu_ticks *ret_ticks);

/* What has slowed this process down so far. Where it is unknown: 0. */
struct sys_throttle {
	uint64_t quota_us;              /* its control group (v2) waited for the next period of its CPU quota */
	uint64_t hot_nr;                /* thermal throttle events, summed over all cores */
};

void sys_throttle(struct sys_throttle *ret_throttle);

/* io-wq threads of this process right now ("iou-wrk-..."). */
unsigned sys_iowq_threads(void);

/* CPU time and context switches of one of this process' threads; the time comes in clock ticks. false: it has ended. */
struct sys_thread_usage {
	uint64_t usr_us, sys_us, ctx;
};

bool sys_thread_usage(int tid, struct sys_thread_usage *ret_usage);

/* "AMD EPYC ..."; "" where unknown. */
void sys_cpu_model(char *buf, size_t buf_bytes);

/* "Linux 6.18.0 x86_64". */
void sys_kernel(char *buf, size_t buf_bytes);

uint64_t sys_memory_bytes(void);

#endif
