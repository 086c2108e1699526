/* SPDX-License-Identifier: MIT */
/*
 * What the real ring got from the kernel, in words, and what SQPOLL's thread costs.
 *
 * The words name each thing that was granted, and each that was asked for and refused with its error, so that nobody
 * has to know setup_flags. The report reads what the builder and the owner have written once; it changes nothing.
 *
 * The thread's time is read from /proc: its id from the ring's fdinfo, when the ring is enabled, then its schedstat.
 * Inside a PID namespace fdinfo has the id of the outer one, which names nothing here; then the time that fdinfo itself
 * gives (6.9) has to do.
 */
#include "ring/uring.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ring/abi.h"

bool mrt__ring_has_opcode(const struct mrt__ring *ring, enum mrt__opcode opcode)
{
	return ring->opcodes >> opcode & 1;
}

static __attribute__((format(printf, 3, 4))) void append(char *text, size_t bytes, const char *fmt, ...)
{
	size_t used = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text + used, bytes - used, fmt, ap); /* too long: cut */
	va_end(ap);
}

static void append_sqpoll(const struct mrt__ring *ring, char *text, size_t bytes)
{
	append(text, bytes, ", SQPOLL");
	if (ring->attached)
		append(text, bytes, " on another ring's thread");
	else if (ring->sq_cpu >= 0)
		append(text, bytes, " on CPU %d", ring->sq_cpu);
	if (!ring->attached)
		append(text, bytes, ", idle after %u ms", ring->sq_idle_ms ? ring->sq_idle_ms : 1000); /* the kernel's */
}

static void append_tier(const struct mrt__ring *ring, char *text, size_t bytes)
{
	static const char *const names[] = { "DEFER_TASKRUN", "COOP_TASKRUN", "plain" };

	append(text, bytes, ", %s", names[ring->tier]);
	if (ring->tier != ring->tier_asked)
		append(text, bytes, " (kernel refuses %s)", names[ring->tier_asked]);
	else if (ring->tier_asked)
		append(text, bytes, " (as asked)");
	if (ring->sqpoll_error)
		append(text, bytes, ", SQPOLL refused (error %d)", -ring->sqpoll_error);
}

static void append_polled(const struct mrt__ring *ring, char *text, size_t bytes)
{
	if (ring->setup_flags & MRT__IORING_SETUP_HYBRID_IOPOLL)
		append(text, bytes, ", polled, hybrid");
	else
		append(text, bytes, ", polled%s", ring->hybrid_refused ? ", hybrid refused (before 6.13)" : "");
}

static void report_text(const struct mrt__ring *ring, char *text, size_t bytes)
{
	text[0] = '\0';
	append(text, bytes, "SQ %u, CQ %u", ring->sq_entries, ring->cq_mask + 1);
	if (ring->extras)
		append(text, bytes, ", 128-byte SQEs");
	if (ring->sqpoll)
		append_sqpoll(ring, text, bytes);
	else
		append_tier(ring, text, bytes);
	if (ring->polled)
		append_polled(ring, text, bytes);
	if (ring->register_error)
		append(text, bytes, ", descriptor not registered (error %d)", -ring->register_error);
	if (!ring->wait_flags && !ring->polled)
		append(text, bytes, ", parked counts as iowait (before 6.15)");
	if (ring->limit_error)
		append(text, bytes, ", io-wq not limited (error %d)", -ring->limit_error);
	if (ring->affinity_error)
		append(text, bytes, ", io-wq runs where it likes (error %d)", -ring->affinity_error);
}

void mrt__ring_report(struct mrt__ring *ring, struct mrt_ring_report *ret_report)
{
	memset(ret_report, 0, sizeof(*ret_report));
	ret_report->sq_entries = ring->sq_entries;
	ret_report->cq_entries = ring->cq_mask + 1;
	ret_report->setup_flags = ring->setup_flags;
	ret_report->features = ring->uring.features;
	ret_report->ring_fd_registered = ring->owner && !ring->register_error;
	ret_report->no_iowait = ring->wait_flags != 0;
	ret_report->sqpoll_ns = mrt__ring_sq_thread_ns(ring);
	report_text(ring, ret_report->text, sizeof(ret_report->text));
}

/* ---- SQPOLL's thread ------------------------------------------------------------------------------------------- */

struct sq_info {
	int tid;                /* 0: not said */
	uint64_t total_us;
};

static struct sq_info read_fdinfo(const struct mrt__ring *ring)
{
	struct sq_info info = { 0 };
	char path[64], line[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", ring->uring.ring_fd); /* fits */
	f = fopen(path, "re");
	if (!f)
		return info;
	while (fgets(line, sizeof(line), f)) {
		(void)sscanf(line, "SqThread: %d", &info.tid); /* another line: left alone */
		(void)sscanf(line, "SqTotalTime: %" SCNu64, &info.total_us); /* the same */
	}
	(void)fclose(f); /* read only */
	info.tid = mrt__max(info.tid, 0); /* -1: the thread has the lock that the answer needs; on 6.1, while it is awake */
	return info;
}

/* @return 0: unknown */
static uint64_t read_schedstat(int tid)
{
	uint64_t ns = 0;
	char path[64];
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", tid); /* fits */
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%" SCNu64, &ns) != 1)
		ns = 0;
	(void)fclose(f); /* read only */
	return ns;
}

/* Until the thread has run for the first time, newer kernels (6.12) give the id of the one that made the ring. */
static bool is_sq_thread(int tid)
{
	char path[64], name[16] = "";
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid); /* fits */
	f = fopen(path, "re");
	if (!f)
		return false;
	(void)fgets(name, sizeof(name), f); /* empty: somebody else's */
	(void)fclose(f); /* read only */
	return strncmp(name, "iou-sqp-", 8) == 0;
}

int mrt__ring_sq_thread(struct mrt__ring *ring)
{
	/* relaxed, here and below: a number that is found once and stays */
	int tid = atomic_load_explicit(&ring->sq_tid, memory_order_relaxed);

	if (!ring->sqpoll || tid)
		return tid;
	tid = read_fdinfo(ring).tid;
	if (!tid || !is_sq_thread(tid))
		return 0;
	atomic_store_explicit(&ring->sq_tid, tid, memory_order_relaxed);
	return tid;
}

uint64_t mrt__ring_sq_thread_ns(struct mrt__ring *ring)
{
	uint64_t ns;
	int tid;

	if (!ring->sqpoll)
		return 0;
	tid = mrt__ring_sq_thread(ring);
	ns = tid ? read_schedstat(tid) : 0;
	return ns ? ns : read_fdinfo(ring).total_us * 1000;
}
