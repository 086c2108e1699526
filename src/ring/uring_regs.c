/* SPDX-License-Identifier: MIT */
/*
 * Registered buffers and files: the tables of a ring, and the donor whose buffers all rings of a runtime share.
 *
 * A donor is a ring of one entry that is never entered and never mapped; only its table counts. It has no issuer, so any
 * thread may fill it, and rings may clone it from theirs. What it can do is found out on it and on a second ring, which
 * is thrown away, when it is made.
 *
 * Tables are made with all slots empty and filled one by one, so that indices can be given out before memory or files
 * are there. Empty slots are (NULL, 0) and -1, which all kernels that we run on take; the sparse registrations are
 * newer, and liburing's for files raises RLIMIT_NOFILE behind the application's back. Each call of the kernel's either
 * does its one slot or leaves the table alone, and there is never more than one slot in a call, so nothing has to be
 * undone here.
 *
 * Rejected: a source other than the donor (a worker's ring refuses foreign threads), and large regions cut into slots (a
 * slot's pages are charged each time, even if two slots name the same page).
 */
#include "ring/uring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ring/abi.h"

#define MRT__RING_BUFFERS_MAX 16384u    /* the kernel's */
#define MRT__RING_BUFFER_BYTES_MAX (UINT64_C(1) << 30) /* the kernel's */
#define MRT__RING_FILES_MAX 32768u      /* the kernel's, where it is smallest */
#define MRT__RING_LATE_NS_MAX (30 * MRT__NS_PER_MS) /* a closed ring's charge came back within 20 ms */
#define MRT__RING_LATE_PAUSE_NS (200 * MRT__NS_PER_US)

struct mrt__ring_donor {
	int fd;
	unsigned nr;
	bool can_grow;
};

/*
 * RLIMIT_MEMLOCK is per user, and what others of the user have unpinned is given back late. By time and not by number:
 * a try pins all pages before it looks at the limit.
 */
static int register_patiently(int fd, unsigned opcode, const void *arg, unsigned nr)
{
	const struct timespec pause = { .tv_nsec = MRT__RING_LATE_PAUSE_NS };
	uint64_t deadline = 0;
	int ret;

	for (;;) {
		ret = io_uring_register((unsigned)fd, opcode, arg, nr);
		if (ret != -ENOMEM)
			return ret;
		if (deadline == 0)
			deadline = mrt__clock_now() + MRT__RING_LATE_NS_MAX;
		else if (mrt__clock_now() >= deadline)
			return ret;
		(void)nanosleep(&pause, NULL); /* cut short: a shorter pause */
	}
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static int buffers_make(int fd, unsigned nr)
{
	struct iovec *empty;
	int ret;

	if (nr == 0 || nr > MRT__RING_BUFFERS_MAX)
		return -EINVAL;
	empty = calloc(nr, sizeof(*empty));
	if (!empty)
		return -ENOMEM;
	ret = register_patiently(fd, IORING_REGISTER_BUFFERS, empty, nr);
	free(empty);
	return mrt__min(ret, 0);
}

static int buffers_update(int fd, unsigned slot, void *base, size_t bytes)
{
	struct iovec iov = { .iov_base = base, .iov_len = bytes };
	struct io_uring_rsrc_update2 update = { .offset = slot, .data = (uintptr_t)&iov, .nr = 1 };

	if (!base || bytes == 0 || bytes > MRT__RING_BUFFER_BYTES_MAX)
		return -EINVAL;
	return mrt__min(register_patiently(fd, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof(update)), 0);
}

/* nr 0: the whole table */
static int buffers_clone(int src_fd, int dst_fd, unsigned flags, unsigned slot, unsigned nr)
{
	struct mrt__io_uring_clone_buffers clone = {
		.src_fd = (uint32_t)src_fd, .flags = flags, .src_off = slot, .dst_off = slot, .nr = nr,
	};

	return mrt__min(register_patiently(dst_fd, MRT__IORING_REGISTER_CLONE_BUFFERS, &clone, 1), 0);
}

int mrt__ring_buffer_set(struct mrt__ring *ring, unsigned nr, unsigned slot, void *base, size_t bytes)
{
	int ret;

	mrt__assert(ring->owner == mrt__ring_thread() && !ring->drained);
	if (slot >= nr || (ring->buffers_nr && nr != ring->buffers_nr))
		return -EINVAL;
	if (!ring->buffers_nr) {
		ret = buffers_make(ring->uring.ring_fd, nr);
		if (ret)
			return ret;
		ring->buffers_nr = nr;
	}
	return buffers_update(ring->uring.ring_fd, slot, base, bytes);
}

void mrt__ring_buffers_drop(struct mrt__ring *ring)
{
	if (!ring->buffers_nr)
		return;
	mrt__assert(ring->owner == mrt__ring_thread());
	/* fails only without a table */
	(void)io_uring_register((unsigned)ring->uring.ring_fd, IORING_UNREGISTER_BUFFERS, NULL, 0);
	ring->buffers_nr = 0;
}

/* ---- donors ---------------------------------------------------------------------------------------------------- */

/* A ring for its tables alone; nobody maps it. @return its descriptor or -errno */
static int bare_ring(void)
{
	const struct timespec pause = { .tv_nsec = MRT__RING_LATE_PAUSE_NS };
	uint64_t deadline = mrt__clock_now() + MRT__RING_LATE_NS_MAX;
	struct io_uring_params params;
	int fd;

	for (;;) {
		memset(&params, 0, sizeof(params));
		fd = io_uring_setup(1, &params);
		if (fd != -ENOMEM || mrt__clock_now() >= deadline)
			return fd;
		(void)nanosleep(&pause, NULL); /* cut short: a shorter pause */
	}
}

/* Clone the empty table, then one slot of it. */
static int try_clone(struct mrt__ring_donor *donor)
{
	int fd = bare_ring(), ret;

	if (fd < 0)
		return fd;
	ret = buffers_clone(donor->fd, fd, 0, 0, 0);
	if (ret == 0)
		donor->can_grow = buffers_clone(donor->fd, fd, MRT__IORING_REGISTER_DST_REPLACE, 0, 1) == 0;
	(void)close(fd); /* of no use any more */
	return ret == -EINVAL || ret == -EBUSY ? -EOPNOTSUPP : ret;
}

int mrt__ring_donor_create(unsigned nr, struct mrt__ring_donor **ret_donor)
{
	struct mrt__ring_donor *donor = calloc(1, sizeof(*donor));
	int ret;

	if (!donor)
		return -ENOMEM;
	donor->nr = nr;
	ret = donor->fd = bare_ring();
	if (ret < 0)
		goto err_free;
	ret = buffers_make(donor->fd, nr);
	if (ret)
		goto err_close;
	ret = try_clone(donor);
	if (ret)
		goto err_close;
	*ret_donor = donor;
	return 0;

err_close:
	(void)close(donor->fd); /* nothing is pinned */
err_free:
	free(donor);
	return ret;
}

void mrt__ring_donor_destroy(struct mrt__ring_donor *donor)
{
	if (!donor)
		return;
	if (donor->fd >= 0) {
		/* before the close, which would give the charge back some time later; fails only without a table */
		(void)io_uring_register((unsigned)donor->fd, IORING_UNREGISTER_BUFFERS, NULL, 0);
		(void)close(donor->fd); /* nothing to lose */
	}
	free(donor);
}

void mrt__ring_donor_abandon(struct mrt__ring_donor *donor)
{
	/* the table is the parent's */
	if (donor->fd >= 0)
		(void)close(donor->fd); /* nothing to lose */
	donor->fd = -1;
}

int mrt__ring_donor_set(struct mrt__ring_donor *donor, unsigned slot, void *base, size_t bytes)
{
	if (slot >= donor->nr)
		return -EINVAL;
	return buffers_update(donor->fd, slot, base, bytes);
}

bool mrt__ring_donor_can_grow(const struct mrt__ring_donor *donor)
{
	return donor->can_grow;
}

int mrt__ring_donor_clone(struct mrt__ring_donor *donor, struct mrt__ring *ring, unsigned slot)
{
	int ret;

	mrt__assert(ring->owner == mrt__ring_thread() && !ring->drained);
	if (slot >= donor->nr || (ring->buffers_nr && ring->buffers_nr != donor->nr))
		return -EINVAL;
	if (ring->buffers_nr) {
		if (!donor->can_grow)
			return -EOPNOTSUPP;
		return buffers_clone(donor->fd, ring->uring.ring_fd, MRT__IORING_REGISTER_DST_REPLACE, slot, 1);
	}
	ret = buffers_clone(donor->fd, ring->uring.ring_fd, 0, 0, 0);
	if (ret == 0)
		ring->buffers_nr = donor->nr;
	return ret;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static int files_make(int fd, unsigned nr)
{
	int *empty, ret;
	unsigned i;

	if (nr > MRT__RING_FILES_MAX)
		return -EINVAL;
	empty = malloc(nr * sizeof(*empty));
	if (!empty)
		return -ENOMEM;
	for (i = 0; i < nr; i++)
		empty[i] = -1;
	ret = register_patiently(fd, IORING_REGISTER_FILES, empty, nr);
	free(empty);
	return mrt__min(ret, 0);
}

static int files_update(int ring_fd, unsigned slot, int fd)
{
	struct io_uring_files_update update = { .offset = slot, .fds = (uintptr_t)&fd };

	return mrt__min(io_uring_register((unsigned)ring_fd, IORING_REGISTER_FILES_UPDATE, &update, 1), 0);
}

int mrt__ring_file_set(struct mrt__ring *ring, unsigned nr, unsigned slot, int fd)
{
	int ret;

	mrt__assert(ring->owner == mrt__ring_thread() && !ring->drained);
	if (slot >= nr || (ring->files_nr && nr != ring->files_nr))
		return -EINVAL;
	if (fd < -1)
		return -EBADF; /* -2 would mean to the kernel: leave the slot alone, and succeed */
	if (!ring->files_nr) {
		if (fd == -1)
			return 0;
		ret = files_make(ring->uring.ring_fd, nr);
		if (ret)
			return ret;
		ring->files_nr = nr;
	}
	return files_update(ring->uring.ring_fd, slot, fd);
}
