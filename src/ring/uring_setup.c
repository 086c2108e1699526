/* SPDX-License-Identifier: MIT */
/*
 * The real ring's life: create, enable, drain, destroy.
 *
 * A ring is made on the builder's thread, so that what is missing shows where the user can be told, and disabled, so
 * that a SINGLE_ISSUER ring binds to the thread that enables it. What the kernel lacks is found by trying: flags are
 * taken off tier by tier on -EINVAL. The feature word is used only for what cannot be tried without side effects.
 *
 * SQPOLL and HYBRID_IOPOLL are wishes: refused, the ring is an ordinary one, or polls without sleeping, and the report
 * says so. NO_SQARRAY is one, too; only the flags tell. IOPOLL and big rings are needs: their users have nothing to do
 * with a ring that is neither, and get an error.
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
#include <sys/syscall.h>
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
#define MRT__RING_ENABLE_NS_MAX MRT__NS_PER_SEC /* to submit two polls; refusals for want of memory pass */
#define MRT__RING_SQPOLL_SLOWER 10u     /* its thread may share a CPU with many: 0.5 s was seen to submit two polls */
#define MRT__RING_SQPOLL_PAUSE_NS (50 * MRT__NS_PER_US)
#define MRT__RING_OPCODES_NR 64u        /* bits of the opcode set */

/* 5.13: EXT_ARG is the timed wait, NODROP the lossless overflow, RSRC_TAGS came with the multishot poll. */
#define MRT__RING_FEATURES_NEEDED (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_RSRC_TAGS)

#define MRT__RING_FLAGS_BASE (IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP)
#define MRT__RING_FLAGS_BIG (IORING_SETUP_SQE128 | IORING_SETUP_CQE32)

static const unsigned tier_flags[] = {
	MRT__RING_FLAGS_BASE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_DEFER_TASKRUN |
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_R_DISABLED,
	MRT__RING_FLAGS_BASE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_COOP_TASKRUN,
	MRT__RING_FLAGS_BASE,
};
#define MRT__RING_TIERS_NR (sizeof(tier_flags) / sizeof(tier_flags[0]))

/* SQPOLL has no task work of ours to run, and refuses the flags about it. */
static const unsigned sqpoll_flags[] = {
	MRT__RING_FLAGS_BASE | IORING_SETUP_SQPOLL | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER |
		IORING_SETUP_R_DISABLED,
	MRT__RING_FLAGS_BASE | IORING_SETUP_SQPOLL,
};

#define MRT__RING_SAME(ours, kernel) \
	_Static_assert((int)MRT__OPCODE_##ours == (int)IORING_OP_##kernel, "the kernel's opcode")
MRT__RING_SAME(NOP, NOP);
MRT__RING_SAME(READV, READV);
MRT__RING_SAME(WRITEV, WRITEV);
MRT__RING_SAME(FSYNC, FSYNC);
MRT__RING_SAME(READ_FIXED, READ_FIXED);
MRT__RING_SAME(WRITE_FIXED, WRITE_FIXED);
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
MRT__RING_SAME(URING_CMD, URING_CMD);
_Static_assert((unsigned)MRT__RING_SQE_FIXED_FILE == IOSQE_FIXED_FILE, "the kernel's flag");
_Static_assert((unsigned)MRT__RING_SQE_ASYNC == IOSQE_ASYNC, "the kernel's flag");
_Static_assert(MRT__RING_CMD_FIXED == IORING_URING_CMD_FIXED, "the kernel's flag");
_Static_assert(MRT__RING_FSYNC_DATASYNC == IORING_FSYNC_DATASYNC, "the kernel's flag");
_Static_assert(MRT__OPCODE_WRITEV_FIXED < MRT__RING_OPCODES_NR, "fits the opcode set");

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

static int refuse_enomem(struct why *why, const struct mrt__ring_opts *opts)
{
	unsigned sq_entries = opts->sq_entries, cq_entries = opts->cq_entries;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), big = opts->flags & MRT__RING_OPT_BIG ? 2 : 1;
	size_t sqes = sq_entries * sizeof(struct io_uring_sqe) * big;
	size_t rings = 64 + cq_entries * sizeof(struct io_uring_cqe) * big + sq_entries * sizeof(unsigned);
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

static int refuse_einval(struct why *why, const struct mrt__ring_opts *opts)
{
	/* of the flags that 5.6 has, or that were asked for, with sizes that we have checked */
	if (!(opts->flags & MRT__RING_OPT_BIG))
		return refuse_old(why);
	say(why, "this kernel's io_uring has no 128-byte entries, which commands need: Linux 5.19 or later has them");
	return -EOPNOTSUPP;
}

static int refuse(struct why *why, int error, const struct mrt__ring_opts *opts)
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
		return refuse_enomem(why, opts);
	case -EMFILE:
	case -ENFILE:
		return refuse_emfile(why);
	case -EINVAL:
		return refuse_einval(why, opts);
	default:
		say(why, "setting up io_uring failed with error %d", -error);
		return error;
	}
}

/* ---- create -------------------------------------------------------------------------------------------------- */

/* By hand: liburing 2.3 would write an index array over the head of a ring that has none. */
static int setup_by_hand(struct mrt__ring *ring, const struct mrt__ring_opts *opts, struct io_uring_params *params)
{
	long fd = syscall(__NR_io_uring_setup, opts->sq_entries, params);
	int ret;

	if (fd < 0)
		return -errno;
	ret = io_uring_queue_mmap((int)fd, params, &ring->uring);
	if (ret)
		(void)close((int)fd); /* nothing was done with it */
	else
		ring->uring.features = params->features;
	return ret;
}

static int setup_once(struct mrt__ring *ring, const struct mrt__ring_opts *opts, unsigned flags)
{
	const struct timespec pause = { .tv_nsec = MRT__RING_ENOMEM_PAUSE_US * 1000 };
	struct io_uring_params params;
	unsigned tries;
	int ret;

	for (tries = 0;; tries++) {
		memset(&params, 0, sizeof(params));
		params.flags = flags;
		params.cq_entries = opts->cq_entries;
		if (flags & IORING_SETUP_SQPOLL)
			params.sq_thread_idle = opts->sq_idle_ms;
		if (flags & IORING_SETUP_SQ_AFF)
			params.sq_thread_cpu = (unsigned)opts->sq_cpu;
		if (flags & IORING_SETUP_ATTACH_WQ)
			params.wq_fd = (unsigned)opts->attach->uring.ring_fd;
		ret = setup_by_hand(ring, opts, &params);
		if (ret != -ENOMEM || tries == MRT__RING_ENOMEM_TRIES_MAX)
			break;
		(void)nanosleep(&pause, NULL); /* cut short: a shorter pause */
	}
	if (ret == 0)
		ring->setup_flags = params.flags;
	return ret;
}

static int setup_sqpoll(struct mrt__ring *ring, const struct mrt__ring_opts *opts)
{
	unsigned more = opts->flags & MRT__RING_OPT_BIG ? MRT__RING_FLAGS_BIG : 0, i;
	int ret;

	if (opts->attach && !opts->attach->sqpoll)
		return opts->attach->sqpoll_error; /* it asked for the thread before */
	if (opts->sq_cpu >= 0)
		more |= IORING_SETUP_SQ_AFF;
	if (opts->attach)
		more |= IORING_SETUP_ATTACH_WQ;
	ret = setup_once(ring, opts, sqpoll_flags[0] | MRT__IORING_SETUP_NO_SQARRAY | more);
	for (i = 0; i < sizeof(sqpoll_flags) / sizeof(sqpoll_flags[0]) && ret == -EINVAL; i++)
		ret = setup_once(ring, opts, sqpoll_flags[i] | more);
	if (ret == 0) {
		ring->sqpoll = true;
		ring->sq_idle_ms = opts->sq_idle_ms;
		ring->sq_cpu = opts->sq_cpu;
		ring->attached = opts->attach != NULL;
	}
	return ret;
}

static int setup_tiers(struct mrt__ring *ring, const struct mrt__ring_opts *opts)
{
	unsigned more = opts->flags & MRT__RING_OPT_BIG ? MRT__RING_FLAGS_BIG : 0;
	int ret;

	if (opts->flags & MRT__RING_OPT_IOPOLL)
		more |= IORING_SETUP_IOPOLL;
	if (opts->flags & MRT__RING_OPT_HYBRID)
		more |= MRT__IORING_SETUP_HYBRID_IOPOLL;
	/* 6.6; slot n of the queue is SQE n in any case, so the kernel need not look it up */
	if (ring->tier == 0)
		more |= MRT__IORING_SETUP_NO_SQARRAY;
	for (;;) {
		ret = setup_once(ring, opts, tier_flags[ring->tier] | more);
		if (ret != -EINVAL)
			return ret;
		/* a kernel that has HYBRID (6.13) has NO_SQARRAY, and one that has this has all tiers */
		if (more & MRT__IORING_SETUP_HYBRID_IOPOLL) {
			more &= ~MRT__IORING_SETUP_HYBRID_IOPOLL;
			ring->hybrid_refused = true;
		} else if (more & MRT__IORING_SETUP_NO_SQARRAY) {
			more &= ~MRT__IORING_SETUP_NO_SQARRAY;
		} else if (++ring->tier == MRT__RING_TIERS_NR) {
			return ret;
		}
	}
}

static int setup(struct mrt__ring *ring, const struct mrt__ring_opts *opts)
{
	ring->tier = ring->tier_asked = opts->tier;
	if (opts->flags & MRT__RING_OPT_SQPOLL) {
		ring->sqpoll_error = setup_sqpoll(ring, opts);
		if (ring->sqpoll_error == 0)
			return 0;
	}
	return setup_tiers(ring, opts);
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

	ring->sqes = (unsigned char *)uring->sq.sqes;
	ring->sq_khead = (atomic_uint *)uring->sq.khead;
	ring->sq_ktail = (atomic_uint *)uring->sq.ktail;
	ring->sq_kflags = (atomic_uint *)uring->sq.kflags;
	ring->sq_entries = uring->sq.ring_entries;
	ring->sqe_bytes = sizeof(struct io_uring_sqe) * (ring->setup_flags & IORING_SETUP_SQE128 ? 2 : 1);
	ring->sq_bytes_mask = ring->sqe_bytes * ring->sq_entries - 1;
	ring->sq_ops_max = ring->sq_entries - MRT__RING_RESERVE;
	ring->cqes = uring->cq.cqes;
	ring->cq_khead = (atomic_uint *)uring->cq.khead;
	ring->cq_ktail = (atomic_uint *)uring->cq.ktail;
	ring->cq_mask = uring->cq.ring_entries - 1;
	/* Slot n of the queue is SQE n, for good. */
	for (i = 0; !(ring->setup_flags & MRT__IORING_SETUP_NO_SQARRAY) && i < ring->sq_entries; i++)
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

static bool flags_are_valid(uint32_t flags)
{
	return !(flags & MRT__RING_OPT_IOPOLL) ? !(flags & MRT__RING_OPT_HYBRID) : !(flags & MRT__RING_OPT_SQPOLL);
}

/* What wakes the owner; a polled ring has neither. */
static int make_wake(struct mrt__ring *ring)
{
	int ret;

	ring->wake_fd = ring->sentry_fd = -1;
	if (ring->polled)
		return 0;
	ring->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (ring->wake_fd < 0)
		return -errno;
	ring->sentry_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (ring->sentry_fd < 0) {
		ret = -errno;
		(void)close(ring->wake_fd); /* an eventfd: nothing to lose */
		return ret;
	}
	return 0;
}

static int make_extras(struct mrt__ring *ring)
{
	if (!(ring->setup_flags & IORING_SETUP_CQE32))
		return 0;
	ring->extras = calloc((size_t)ring->cq_mask + 1, sizeof(*ring->extras));
	return ring->extras ? 0 : -ENOMEM;
}

int mrt__ring_create(const struct mrt__ring_opts *caller_opts, struct mrt__ring **ret_ring, char *ret_why, size_t why_bytes)
{
	struct why why = { ret_why, ret_why ? why_bytes : 0 };
	struct mrt__ring_opts opts = *caller_opts;
	struct mrt__ring *ring;
	int ret;

	if (!sizes_are_valid(&opts) || !flags_are_valid(opts.flags)) {
		say(&why, "ring sizes must be powers of two, the CQ not smaller than the SQ, the tier 0 to 2; "
			  "IOPOLL goes without SQPOLL, HYBRID with IOPOLL");
		return -EINVAL;
	}
	opts.sq_entries = mrt__max(opts.sq_entries, MRT__RING_ENTRIES_MIN);
	opts.cq_entries = mrt__max(opts.cq_entries, MRT__RING_ENTRIES_MIN);
	ring = aligned_alloc(MRT__CACHE_PAIR, sizeof(*ring));
	if (!ring) {
		say(&why, "no memory");
		return -ENOMEM;
	}
	memset(ring, 0, sizeof(*ring));
	ring->stats = opts.stats ? opts.stats : &ring->own_stats;
	ring->polled = opts.flags & MRT__RING_OPT_IOPOLL;
	ring->staged_gauge = ring->polled ? &ring->own_stats.sq_staged : &ring->stats->sq_staged;

	ret = setup(ring, &opts);
	if (ret) {
		ret = refuse(&why, ret, &opts);
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

	ret = make_extras(ring);
	if (ret) {
		say(&why, "no memory");
		goto err_exit;
	}
	ret = make_wake(ring);
	if (ret) {
		ret = refuse(&why, ret, &opts);
		goto err_extras;
	}
	*ret_ring = ring;
	return 0;

err_extras:
	free(ring->extras);
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

/*
 * Where x86-64 has the x32 ABI (CONFIG_X86_X32_ABI, as in Debian's 6.12), a thread of io-wq may believe that it works for a
 * program with 32-bit pointers: it inherits the registers of the thread that made it, and these are an interrupt's, with the
 * bit set that marks a system call as x32's, if that thread was interrupted for it. Then the NVMe driver cuts the address of a
 * command's buffer to 32 bits, and the device writes elsewhere if there is memory. A first thread is made by the system call
 * that gives it work; it is those that follow which are made like that, so there is none.
 */
static bool io_wq_cuts_addresses(const struct mrt__ring *ring)
{
#ifdef __x86_64__
	return ring->extras && !ring->sqpoll;
#else
	(void)ring;
	return false;
#endif
}

static int limit_iowq(struct mrt__ring *ring)
{
	unsigned limits[2] = { MRT__RING_IOWQ_BOUNDED, MRT__RING_IOWQ_UNBOUNDED };

	if (io_wq_cuts_addresses(ring))
		limits[0] = 1;
	return io_uring_register_iowq_max_workers(&ring->uring, limits);
}

/* Threads of io-wq inherit their worker's one CPU (6.12 and later). */
static int place_iowq(struct mrt__ring *ring, const cpu_set_t *iowq_cpus)
{
	cpu_set_t cpus;

	if (!iowq_cpus)
		return 0;
	cpus = *iowq_cpus;
	if (ring->sqpoll && ring->sq_cpu >= 0 && ring->sq_cpu < CPU_SETSIZE && CPU_COUNT(&cpus) > 1)
		CPU_CLR((size_t)ring->sq_cpu, &cpus);
	return io_uring_register_iowq_aff(&ring->uring, sizeof(cpus), &cpus);
}

/* Did the kernel refuse one of the polls just submitted? Looks at the CQ and leaves it alone. */
static int check_polls(const struct mrt__ring *ring)
{
	/* [CQ.tail] CQEs below it are filled; pairs with the kernel's release */
	unsigned tail = atomic_load_explicit(ring->cq_ktail, memory_order_acquire);
	const struct io_uring_cqe *cqe;
	unsigned head;

	for (head = ring->cq_head; head != tail; head++) {
		cqe = &ring->cqes[(size_t)(head & ring->cq_mask) << (ring->extras != NULL)];
		if (cqe->res < 0)
			return cqe->res;
	}
	return 0;
}

/* How long the kernel may take for what should take no time. */
static uint64_t patience(const struct mrt__ring *ring, uint64_t ns)
{
	return ring->sqpoll ? ns * MRT__RING_SQPOLL_SLOWER : ns;
}

/* Leave the CPU to SQPOLL's thread; it may have no other. */
static void let_thread_run(const struct mrt__ring *ring)
{
	const struct timespec pause = { .tv_nsec = MRT__RING_SQPOLL_PAUSE_NS };

	if (ring->sqpoll)
		(void)nanosleep(&pause, NULL); /* cut short: a shorter pause */
}

/* Submit what is staged, all of it. */
static int flush_all(struct mrt__ring *ring)
{
	uint64_t deadline = mrt__clock_now() + patience(ring, MRT__RING_ENABLE_NS_MAX);

	while (mrt__ring_staged(ring)) {
		if (mrt__clock_now() >= deadline)
			return -EAGAIN;
		(void)mrt__ring_flush(ring); /* what it left is what the loop tests */
		if (ring->forbidden)
			return ring->forbidden;
		if (mrt__ring_staged(ring))
			let_thread_run(ring);
	}
	return 0;
}

static int arm_polls(struct mrt__ring *ring)
{
	int ret;

	if (ring->polled || ring->sqpoll) {
		(void)mrt__ring_first_enter(ring); /* nothing is staged */
		if (ring->forbidden)
			return ring->forbidden;
	}
	if (!ring->polled) {
		(void)mrt__ring_poll_arm(ring, MRT__RING_KIND_WAKE);    /* the SQ is empty: there is room */
		(void)mrt__ring_poll_arm(ring, MRT__RING_KIND_SENTRY);
	}
	ret = flush_all(ring);
	if (ret)
		return ret;
	ring->enabled = true;
	return check_polls(ring);
}

int mrt__ring_enable(struct mrt__ring *ring, const cpu_set_t *iowq_cpus)
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
	ring->affinity_error = place_iowq(ring, iowq_cpus);
	ret = arm_polls(ring);
	(void)mrt__ring_sq_thread(ring); /* not known yet: who wants it asks again */
	if (ret) {
		unregister_descriptor(ring); /* its index is this thread's: destroy may run on another */
		ring->drained = true;
	}
	return ret;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

static bool is_drained(const struct mrt__ring *ring)
{
	return !(ring->armed || ring->cancels || ring->late_nr || mrt__ring_staged(ring));
}

/* Let the kernel say something. */
static void drain_turn(struct mrt__ring *ring, uint64_t timeout_ns)
{
	/* with SQPOLL a completion may be there before its SQE is seen to be taken: then none would end a wait */
	if (ring->armed || ring->cancels) {
		mrt__ring_wait(ring, timeout_ns);
	} else {
		(void)mrt__ring_flush(ring); /* what it left the caller sees */
		let_thread_run(ring);
	}
}

int mrt__ring_drain(struct mrt__ring *ring)
{
	uint64_t deadline = mrt__clock_now() + patience(ring, MRT__RING_DRAIN_NS_MAX), now;
	struct mrt__ring_done done;
	unsigned events = 0, i;

	mrt__assert(ring->owner == mrt__ring_thread() && !ring->drained);
	ring->draining = true;
	ring->due &= ~MRT__RING_ARMED_ALL;
	for (i = MRT__RING_KIND_WAKE; i <= MRT__RING_KIND_SENTRY; i++) {
		if (ring->armed & (1u << i))
			mrt__ring_cancel(ring, (void *)(uintptr_t)i);
	}
	while (!is_drained(ring)) {
		now = mrt__clock_now();
		/* after the deadline one more look: the process may have been stopped meanwhile */
		drain_turn(ring, now < deadline ? deadline - now : 0);
		if (mrt__ring_reap(ring, &done, 1, &events))
			mrt__bug("a ring was drained with an op in flight (%p, result %d)", done.user, done.res);
		if (now >= deadline && !is_drained(ring))
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
	free(ring->extras);
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
