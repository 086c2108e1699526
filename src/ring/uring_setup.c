/* SPDX-License-Identifier: MIT */
/*
 * The real ring's life: create, enable, drain, destroy, and the report of what it got.
 *
 * A ring is made on the builder's thread, so that what is missing shows where the user can be told, and disabled, so
 * that a SINGLE_ISSUER ring binds to the thread that enables it. What the kernel lacks is found by trying: flags are
 * taken off tier by tier on -EINVAL. The feature word is used only for what cannot be tried without side effects.
 *
 * Ring memory counts against RLIMIT_MEMLOCK (per user, on kernels from about 6.14), and the charge of a closed ring
 * comes back late. So -ENOMEM is tried again for a while before it is believed.
 */
#include "ring/uring.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ring/abi.h"

#define MRT__RING_IOWQ_BOUNDED 16u      /* io-wq threads per worker for files: a few that hang must not stop the rest */
#define MRT__RING_IOWQ_UNBOUNDED 16u    /* ... for what waits for a peer; the kernel's own limit is RLIMIT_NPROC */
#define MRT__RING_ENOMEM_TRIES_MAX 250u
#define MRT__RING_ENOMEM_PAUSE_US 200u
#define MRT__RING_DRAIN_NS_MAX MRT__NS_PER_SEC
#define MRT__RING_OPCODES_NR 64u        /* bits of the opcode set */

/* 5.13: EXT_ARG is the timed wait, NODROP the lossless overflow, RSRC_TAGS came with the multishot poll. */
#define MRT__RING_FEATURES_NEEDED (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_RSRC_TAGS)

#define MRT__RING_FLAGS_BASE (IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP)

static const unsigned tier_flags[] = {
	MRT__RING_FLAGS_BASE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_DEFER_TASKRUN |
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_R_DISABLED,
	MRT__RING_FLAGS_BASE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_COOP_TASKRUN,
	MRT__RING_FLAGS_BASE,
};
#define MRT__RING_TIERS_NR (sizeof(tier_flags) / sizeof(tier_flags[0]))

#define MRT__RING_SAME(ours, kernel) \
	_Static_assert((int)MRT__OPCODE_##ours == (int)IORING_OP_##kernel, "the kernel's opcode")
MRT__RING_SAME(NOP, NOP);
MRT__RING_SAME(READV, READV);
MRT__RING_SAME(WRITEV, WRITEV);
MRT__RING_SAME(FSYNC, FSYNC);
MRT__RING_SAME(POLL_ADD, POLL_ADD);
MRT__RING_SAME(ACCEPT, ACCEPT);
MRT__RING_SAME(CONNECT, CONNECT);
MRT__RING_SAME(FALLOCATE, FALLOCATE);
MRT__RING_SAME(OPENAT, OPENAT);
MRT__RING_SAME(CLOSE, CLOSE);
MRT__RING_SAME(STATX, STATX);
MRT__RING_SAME(READ, READ);
MRT__RING_SAME(WRITE, WRITE);
MRT__RING_SAME(FADVISE, FADVISE);
MRT__RING_SAME(SEND, SEND);
MRT__RING_SAME(RECV, RECV);
MRT__RING_SAME(SPLICE, SPLICE);
MRT__RING_SAME(SHUTDOWN, SHUTDOWN);
MRT__RING_SAME(RENAMEAT, RENAMEAT);
MRT__RING_SAME(UNLINKAT, UNLINKAT);
MRT__RING_SAME(MKDIRAT, MKDIRAT);
MRT__RING_SAME(SOCKET, SOCKET);
_Static_assert((unsigned)MRT__RING_SQE_ASYNC == IOSQE_ASYNC, "the kernel's flag");
_Static_assert(MRT__RING_FSYNC_DATASYNC == IORING_FSYNC_DATASYNC, "the kernel's flag");
_Static_assert(MRT__OPCODE_BIND < MRT__RING_OPCODES_NR, "fits the opcode set");

/* ---- why it failed ------------------------------------------------------------------------------------------- */

struct why {
	char *text;
	size_t bytes;
};

static __attribute__((format(printf, 2, 3))) void say(struct why *why, const char *fmt, ...)
{
	va_list ap;

	if (!why->bytes)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(why->text, why->bytes, fmt, ap); /* too long: cut */
	va_end(ap);
}

/* @return 0, 1, 2; -1: the kernel has no such switch, or hides it */
static int read_disabled_sysctl(void)
{
	FILE *f = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	int value;

	if (!f)
		return -1;
	if (fscanf(f, "%d", &value) != 1)
		value = -1;
	(void)fclose(f); /* read only */
	return value;
}

static int refuse_eperm(struct why *why)
{
	int disabled = read_disabled_sysctl();

	if (disabled == 2)
		say(why, "io_uring is switched off on this machine: kernel.io_uring_disabled is 2; "
			 "set it to 0 (sysctl -w kernel.io_uring_disabled=0)");
	else if (disabled == 1)
		say(why, "io_uring is restricted on this machine: kernel.io_uring_disabled is 1; "
			 "set it to 0, or add the user to the group in kernel.io_uring_group");
	else
		say(why, "io_uring is forbidden for this process, probably by a seccomp filter, as container runtimes "
			 "install: allow io_uring_setup, io_uring_enter and io_uring_register in its profile");
	return -EPERM;
}

static int refuse_enomem(struct why *why, unsigned sq_entries, unsigned cq_entries)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t sqes = sq_entries * sizeof(struct io_uring_sqe);
	size_t rings = 64 + cq_entries * sizeof(struct io_uring_cqe) + sq_entries * sizeof(unsigned);
	size_t need = (sqes + page - 1) / page * page + (rings + page - 1) / page * page;
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		say(why, "no memory for a ring: each needs %zu KiB of locked memory for its %u and %u entries, and "
			 "RLIMIT_MEMLOCK allows all processes of this user %llu KiB together; raise it (ulimit -l, "
			 "LimitMEMLOCK=), or ask for fewer workers or entries", need / 1024, sq_entries, cq_entries,
		    (unsigned long long)limit.rlim_cur / 1024);
	else
		say(why, "no memory for a ring of %zu KiB (%u and %u entries); ask for fewer workers or entries",
		    need / 1024, sq_entries, cq_entries);
	return -ENOMEM;
}

static int refuse_emfile(struct why *why)
{
	struct rlimit limit = { 0 };

	(void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail; 0 would be said */
	say(why, "out of file descriptors: a worker needs three, and RLIMIT_NOFILE is %llu; raise it (ulimit -n, "
		 "LimitNOFILE=) or close some", (unsigned long long)limit.rlim_cur);
	return -EMFILE;
}

static int refuse_old(struct why *why)
{
	say(why, "this kernel's io_uring is too old: it lacks timed waits, lossless overflow or multishot polls; "
		 "Linux 5.13 or later is needed, 6.1 or later is best");
	return -EOPNOTSUPP;
}

static int refuse(struct why *why, int error, unsigned sq_entries, unsigned cq_entries)
{
	switch (error) {
	case -ENOSYS:
		say(why, "this kernel has no io_uring, or a seccomp filter hides it: Linux 5.13 or later, built with "
			 "CONFIG_IO_URING, is needed; in a container, allow io_uring_setup in its seccomp profile");
		return error;
	case -EPERM:
	case -EACCES:
		return refuse_eperm(why);
	case -ENOMEM:
		return refuse_enomem(why, sq_entries, cq_entries);
	case -EMFILE:
	case -ENFILE:
		return refuse_emfile(why);
	case -EINVAL: /* of the flags that 5.6 has, with sizes that we have checked */
		return refuse_old(why);
	default:
		say(why, "setting up io_uring failed with error %d", -error);
		return error;
	}
}

/* ---- create -------------------------------------------------------------------------------------------------- */

static int setup_once(struct mrt__ring *ring, unsigned flags, unsigned sq_entries, unsigned cq_entries)
{
	const struct timespec pause = { .tv_nsec = MRT__RING_ENOMEM_PAUSE_US * 1000 };
	struct io_uring_params params;
	unsigned tries;
	int ret;

	for (tries = 0;; tries++) {
		memset(&params, 0, sizeof(params));
		params.flags = flags;
		params.cq_entries = cq_entries;
		ret = io_uring_queue_init_params(sq_entries, &ring->uring, &params);
		if (ret != -ENOMEM || tries == MRT__RING_ENOMEM_TRIES_MAX)
			break;
		(void)nanosleep(&pause, NULL); /* cut short: a shorter pause */
	}
	if (ret == 0)
		ring->setup_flags = params.flags;
	return ret;
}

static int setup(struct mrt__ring *ring, unsigned sq_entries, unsigned cq_entries)
{
	int ret;

	for (ring->tier = ring->tier_asked;; ring->tier++) {
		ret = setup_once(ring, tier_flags[ring->tier], sq_entries, cq_entries);
		if (ret != -EINVAL || ring->tier == MRT__RING_TIERS_NR - 1)
			return ret;
	}
}

/* Which opcodes are there? Without an answer: the needed ones, and nothing that came later. */
static void probe_opcodes(struct mrt__ring *ring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(&ring->uring);
	unsigned i;

	ring->opcodes = (UINT64_C(1) << (MRT__OPCODE_MKDIRAT + 1)) - 1;
	if (!probe)
		return;
	ring->opcodes = 0;
	for (i = 0; i < probe->ops_len && i < MRT__RING_OPCODES_NR; i++) {
		if (probe->ops[i].flags & IO_URING_OP_SUPPORTED)
			ring->opcodes |= UINT64_C(1) << probe->ops[i].op;
	}
	io_uring_free_probe(probe);
}

static void map_indices(struct mrt__ring *ring)
{
	struct io_uring *uring = &ring->uring;
	unsigned i;

	ring->sqes = uring->sq.sqes;
	ring->sq_khead = (atomic_uint *)uring->sq.khead;
	ring->sq_ktail = (atomic_uint *)uring->sq.ktail;
	ring->sq_kflags = (atomic_uint *)uring->sq.kflags;
	ring->sq_entries = uring->sq.ring_entries;
	ring->sq_mask = uring->sq.ring_entries - 1;
	ring->sq_ops_max = ring->sq_entries - MRT__RING_RESERVE;
	ring->cqes = uring->cq.cqes;
	ring->cq_khead = (atomic_uint *)uring->cq.khead;
	ring->cq_ktail = (atomic_uint *)uring->cq.ktail;
	ring->cq_mask = uring->cq.ring_entries - 1;
	/* Slot n of the queue is SQE n, for good: liburing before 2.3 fills this table at each submit only. */
	for (i = 0; i < ring->sq_entries; i++)
		uring->sq.array[i] = i;

	ring->deferred_mask = IORING_SQ_CQ_OVERFLOW;
	if (ring->setup_flags & IORING_SETUP_TASKRUN_FLAG)
		ring->deferred_mask |= IORING_SQ_TASKRUN;
	ring->enter_fd = (unsigned)uring->ring_fd;
	if (uring->features & MRT__IORING_FEAT_NO_IOWAIT)
		ring->wait_flags = MRT__IORING_ENTER_NO_IOWAIT;
}

static bool sizes_are_valid(const struct mrt__ring_opts *opts)
{
	return opts->sq_entries && opts->cq_entries >= opts->sq_entries && opts->tier < MRT__RING_TIERS_NR &&
	       !(opts->sq_entries & (opts->sq_entries - 1)) && !(opts->cq_entries & (opts->cq_entries - 1));
}

int mrt__ring_create(const struct mrt__ring_opts *opts, struct mrt__ring **ret_ring, char *ret_why, size_t why_bytes)
{
	unsigned sq_entries = mrt__max(opts->sq_entries, MRT__RING_ENTRIES_MIN);
	unsigned cq_entries = mrt__max(opts->cq_entries, MRT__RING_ENTRIES_MIN);
	struct why why = { ret_why, ret_why ? why_bytes : 0 };
	struct mrt__ring *ring;
	int ret;

	if (!sizes_are_valid(opts)) {
		say(&why, "ring sizes must be powers of two, the CQ not smaller than the SQ, the tier 0 to 2");
		return -EINVAL;
	}
	ring = aligned_alloc(MRT__CACHE_PAIR, sizeof(*ring));
	if (!ring) {
		say(&why, "no memory");
		return -ENOMEM;
	}
	memset(ring, 0, sizeof(*ring));
	ring->stats = opts->stats ? opts->stats : &ring->own_stats;
	ring->tier_asked = opts->tier;

	ret = setup(ring, sq_entries, cq_entries);
	if (ret) {
		ret = refuse(&why, ret, sq_entries, cq_entries);
		goto err_free;
	}
	if ((ring->uring.features & MRT__RING_FEATURES_NEEDED) != MRT__RING_FEATURES_NEEDED) {
		ret = refuse_old(&why);
		goto err_exit;
	}
	map_indices(ring);
	probe_opcodes(ring);
	/* A child after fork would share the indices: let it fault instead. Fails only without MADV_DONTFORK (2.6.16). */
	(void)io_uring_ring_dontfork(&ring->uring);

	ring->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (ring->wake_fd < 0) {
		ret = refuse(&why, -errno, sq_entries, cq_entries);
		goto err_exit;
	}
	ring->sentry_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (ring->sentry_fd < 0) {
		ret = refuse(&why, -errno, sq_entries, cq_entries);
		goto err_wake;
	}
	if (sched_getaffinity(0, sizeof(ring->cpus), &ring->cpus))
		ring->cpus_error = -errno; /* more CPUs than the set holds */
	*ret_ring = ring;
	return 0;

err_wake:
	(void)close(ring->wake_fd); /* an eventfd: nothing to lose */
err_exit:
	io_uring_queue_exit(&ring->uring);
err_free:
	free(ring);
	return ret;
}

/* ---- enable -------------------------------------------------------------------------------------------------- */

static int register_descriptor(struct mrt__ring *ring)
{
	int ret = io_uring_register_ring_fd(&ring->uring);

	if (ret < 0)
		return ret;
	if (ret != 1)
		return -EBUSY;
	ring->enter_fd = (unsigned)ring->uring.enter_ring_fd;
	ring->enter_flags |= IORING_ENTER_REGISTERED_RING;
	return 0;
}

static void unregister_descriptor(struct mrt__ring *ring)
{
	if (!(ring->enter_flags & IORING_ENTER_REGISTERED_RING))
		return;
	(void)io_uring_unregister_ring_fd(&ring->uring); /* the slot is freed when its thread ends, at the latest */
	ring->enter_flags &= ~IORING_ENTER_REGISTERED_RING;
	ring->enter_fd = (unsigned)ring->uring.ring_fd;
}

static int limit_iowq(struct mrt__ring *ring)
{
	unsigned limits[2] = { MRT__RING_IOWQ_BOUNDED, MRT__RING_IOWQ_UNBOUNDED };

	return io_uring_register_iowq_max_workers(&ring->uring, limits);
}

/* Threads of io-wq inherit their worker's one CPU (6.12 and later): give them the others, if there are any. */
static int keep_iowq_off(struct mrt__ring *ring, int cpu)
{
	cpu_set_t cpus = ring->cpus;

	if (cpu < 0)
		return 0;
	if (ring->cpus_error)
		return ring->cpus_error;
	if (cpu < CPU_SETSIZE)
		CPU_CLR((size_t)cpu, &cpus);
	if (CPU_COUNT(&cpus) == 0)
		return 0;
	return io_uring_register_iowq_aff(&ring->uring, sizeof(cpus), &cpus);
}

/* Did the kernel refuse one of the polls just submitted? Looks at the CQ and leaves it alone. */
static int check_polls(const struct mrt__ring *ring)
{
	/* [CQ.tail] CQEs below it are filled; pairs with the kernel's release */
	unsigned tail = atomic_load_explicit(ring->cq_ktail, memory_order_acquire);
	unsigned head;

	for (head = ring->cq_head; head != tail; head++) {
		if (ring->cqes[head & ring->cq_mask].res < 0)
			return ring->cqes[head & ring->cq_mask].res;
	}
	return 0;
}

static int arm_polls(struct mrt__ring *ring)
{
	unsigned tries;

	(void)mrt__ring_poll_arm(ring, MRT__RING_KIND_WAKE);    /* the SQ is empty: there is room */
	(void)mrt__ring_poll_arm(ring, MRT__RING_KIND_SENTRY);
	for (tries = 0; mrt__ring_staged(ring); tries++) {
		if (tries == MRT__RING_ENOMEM_TRIES_MAX)
			return -EAGAIN;
		(void)mrt__ring_flush(ring); /* what it left is what the loop tests */
		if (ring->forbidden)
			return ring->forbidden;
	}
	ring->enabled = true;
	return check_polls(ring);
}

int mrt__ring_enable(struct mrt__ring *ring, int cpu)
{
	int ret;

	mrt__assert(!ring->owner);
	if (ring->setup_flags & IORING_SETUP_R_DISABLED) {
		ret = io_uring_register((unsigned)ring->uring.ring_fd, MRT__IORING_REGISTER_ENABLE_RINGS, NULL, 0);
		if (ret < 0)
			return ret;
	}
	ring->owner = mrt__ring_thread();
	ring->register_error = register_descriptor(ring);
	/* Before the first op that goes to io-wq: threads above a later limit linger. */
	ring->limit_error = limit_iowq(ring);
	ring->affinity_error = keep_iowq_off(ring, cpu);
	ret = arm_polls(ring);
	if (ret) {
		unregister_descriptor(ring); /* its index is this thread's: destroy may run on another */
		ring->drained = true;
	}
	return ret;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

int mrt__ring_drain(struct mrt__ring *ring)
{
	uint64_t deadline = mrt__clock_now() + MRT__RING_DRAIN_NS_MAX, now;
	struct mrt__ring_done done;
	unsigned events = 0, i;

	mrt__assert(ring->owner == mrt__ring_thread() && !ring->drained);
	ring->draining = true;
	for (i = MRT__RING_KIND_WAKE; i <= MRT__RING_KIND_SENTRY; i++) {
		if (ring->armed & (1u << i))
			mrt__ring_cancel(ring, (void *)(uintptr_t)i);
	}
	while (ring->armed || ring->cancels || ring->late_nr || mrt__ring_staged(ring)) {
		now = mrt__clock_now();
		/* after the deadline one more look: the process may have been stopped meanwhile */
		mrt__ring_wait(ring, now < deadline ? deadline - now : 0);
		if (mrt__ring_reap(ring, &done, 1, &events))
			mrt__bug("a ring was drained with an op in flight (%p, result %d)", done.user, done.res);
		if (now >= deadline && (ring->armed || ring->cancels || ring->late_nr || mrt__ring_staged(ring)))
			return -ETIMEDOUT;
	}
	/* Now and by the owner: with the close they would go too, but some time after it. */
	mrt__ring_buffers_drop(ring);
	unregister_descriptor(ring);
	ring->drained = true;
	return 0;
}

static void close_descriptor(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* eventfd and timerfd: nothing to lose */
	*fd = -1;
}

void mrt__ring_destroy(struct mrt__ring *ring)
{
	if (!ring)
		return;
	if (ring->uring.ring_fd >= 0) {
		mrt__assert(!ring->owner || ring->drained);
		io_uring_queue_exit(&ring->uring);
	}
	close_descriptor(&ring->wake_fd);
	close_descriptor(&ring->sentry_fd);
	free(ring->late);
	free(ring);
}

void mrt__ring_abandon(struct mrt__ring *ring)
{
	/* Not queue_exit: it would unmap what the child does not have. While the child held the file, the parent's close
	   would cancel nothing. */
	close_descriptor(&ring->uring.ring_fd);
	close_descriptor(&ring->wake_fd);
	close_descriptor(&ring->sentry_fd);
}

/* ---- the sentry's timer -------------------------------------------------------------------------------------- */

static void sentry_set(const struct mrt__ring *ring, uint64_t ns)
{
	const struct timespec ts = {
		.tv_sec = (time_t)(ns / MRT__NS_PER_SEC),
		.tv_nsec = (long)(ns % MRT__NS_PER_SEC),
	};
	const struct itimerspec spec = { .it_interval = ts, .it_value = ts };

	/* Fails on a closed descriptor only, that is in a child after fork, where nothing runs any more. */
	(void)timerfd_settime(ring->sentry_fd, 0, &spec, NULL);
}

void mrt__ring_sentry_arm(struct mrt__ring *ring, uint64_t ns)
{
	mrt__assert(ns > 0);
	sentry_set(ring, ns);
}

void mrt__ring_sentry_disarm(struct mrt__ring *ring)
{
	sentry_set(ring, 0);
}

/* ---- what it got --------------------------------------------------------------------------------------------- */

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

static void report_text(const struct mrt__ring *ring, char *text, size_t bytes)
{
	static const char *const names[MRT__RING_TIERS_NR] = { "DEFER_TASKRUN", "COOP_TASKRUN", "plain" };

	text[0] = '\0';
	append(text, bytes, "SQ %u, CQ %u, %s", ring->sq_entries, ring->cq_mask + 1, names[ring->tier]);
	if (ring->tier != ring->tier_asked)
		append(text, bytes, " (kernel refuses %s)", names[ring->tier_asked]);
	else if (ring->tier_asked)
		append(text, bytes, " (as asked)");
	if (ring->register_error)
		append(text, bytes, ", descriptor not registered (error %d)", -ring->register_error);
	if (!ring->wait_flags)
		append(text, bytes, ", parked counts as iowait (before 6.15)");
	if (ring->limit_error)
		append(text, bytes, ", io-wq not limited (error %d)", -ring->limit_error);
	if (ring->affinity_error)
		append(text, bytes, ", io-wq may share the CPU (error %d)", -ring->affinity_error);
}

void mrt__ring_report(const struct mrt__ring *ring, struct mrt_ring_report *ret_report)
{
	memset(ret_report, 0, sizeof(*ret_report));
	ret_report->sq_entries = ring->sq_entries;
	ret_report->cq_entries = ring->cq_mask + 1;
	ret_report->setup_flags = ring->setup_flags;
	ret_report->features = ring->uring.features;
	ret_report->ring_fd_registered = ring->owner && !ring->register_error;
	ret_report->no_iowait = ring->wait_flags != 0;
	report_text(ring, ret_report->text, sizeof(ret_report->text));
}
