/* SPDX-License-Identifier: MIT */
/*
 * The simulated kernel's registered buffers and files, and descriptors of files that can be registered.
 *
 * A table is what the real one is to an op: slots, some of them empty. Memory is never pinned, so memory that is freed
 * under an op is found by AddressSanitizer when the op ends. Each seed draws what the kernel can (no clone, one clone,
 * single slots later) and how often a registration fails for want of memory; what fails leaves the table alone.
 *
 * The runtime asks the real kernel for three things about a descriptor: fcntl, close, and whether it can be polled for.
 * The linker sends them here, where numbers from SIM_FD_FILES on are answered for.
 */
#include "sim_regs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "ring/ring.h"
#include "sched/rung.h"
#include "sim.h"

struct mrt__ring_donor {
	struct sim_region *slots;
	unsigned nr;
	bool can_grow;
};

static unsigned donors_nr;

static struct {
	int files[SIM_FDS_MAX];         /* 0: closed */
	int opened;                     /* files in all */
} fds;

static bool fails(void)
{
	return sim_rand_chance(&sim.ring_rand, sim.opts.reg_fails);
}

static void *make_slots(size_t nr, size_t bytes)
{
	void *p = calloc(nr, bytes);

	sim_check(p, "no memory");
	return p;
}

bool sim_tables_hold(const struct sim_tables *t, unsigned slot, uintptr_t addr, size_t bytes)
{
	const struct sim_region *r;

	if (slot >= t->buffers_nr)
		return false;
	r = &t->buffers[slot];
	return addr >= r->base && bytes <= r->bytes && addr - r->base <= r->bytes - bytes;
}

int sim_tables_file(const struct sim_tables *t, unsigned slot)
{
	return slot < t->files_nr ? t->files[slot] : -1;
}

void sim_tables_fini(struct sim_tables *t)
{
	free(t->buffers);
	free(t->files);
}

void sim_donors_check(void)
{
	sim_check(donors_nr == 0, "%u donors were not destroyed", donors_nr);
}

/* ---- descriptors ---- */

bool sim_fd_is(int fd)
{
	return fd >= SIM_FD_FILES && fd < SIM_FD_FILES + (int)SIM_FDS_MAX;
}

static int *file_at(int fd)
{
	return &fds.files[fd - SIM_FD_FILES];
}

int sim_fd_file(int fd)
{
	if (!sim_fd_is(fd))
		return fd;
	return *file_at(fd) ? *file_at(fd) : -1;
}

static int give_lowest(int file)
{
	int fd;

	for (fd = SIM_FD_FILES; sim_fd_is(fd); fd++)
		if (*file_at(fd) == 0) {
			*file_at(fd) = file;
			return fd;
		}
	return -1;
}

int sim_fd_open(int range)
{
	sim_check(fds.opened < SIM_FD_RANGE - SIM_FD_PLAIN, "the simulation is out of files");
	return give_lowest(range + SIM_FD_PLAIN + fds.opened++);
}

int sim_fd_dup(int fd)
{
	sim_check(sim_fd_file(fd) > 0, "fd %d is closed, and cannot be had twice", fd);
	return give_lowest(sim_fd_file(fd));
}

int sim_fd_close(int fd)
{
	if (*file_at(fd) == 0)
		return -EBADF;
	sim_log("fd %d is closed, file %d", fd, *file_at(fd));
	*file_at(fd) = 0;
	return 0;
}

void sim_fds_start(void)
{
	memset(&fds, 0, sizeof(fds));
}

void sim_fds_check(void)
{
	int fd;

	for (fd = SIM_FD_FILES; sim_fd_is(fd); fd++)
		sim_check(*file_at(fd) == 0, "fd %d (file %d) was not closed", fd, *file_at(fd));
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	int err = sim_fd_is(fd) ? sim_fd_close(fd) : 0;

	if (!sim_fd_is(fd))
		return __real_close(fd);
	sim_check(!err, "close(2) of fd %d, which is closed", fd);
	return 0;
}

int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	if (!sim_fd_is(fd)) {
		va_start(ap, cmd);
		arg = va_arg(ap, long);
		va_end(ap);
		return __real_fcntl(fd, cmd, arg);
	}
	sim_check(cmd == F_GETFD || cmd == F_GETFL, "fcntl %d is not simulated", cmd);
	if (sim_fd_file(fd) < 0) {
		errno = EBADF;
		return -1;
	}
	return cmd == F_GETFL ? O_RDWR : FD_CLOEXEC;
}

int __wrap_mrt__rung_poll_trial(int fd, const struct mrt__nvme_ns *ns, bool hybrid, bool *ret_hybrid, char *why,
				size_t why_bytes);
int __wrap_mrt__rung_poll_trial(int fd, const struct mrt__nvme_ns *ns, bool hybrid, bool *ret_hybrid, char *why,
				size_t why_bytes)
{
	(void)fd;
	(void)ns;
	(void)hybrid;
	*ret_hybrid = false;
	if (why_bytes > 0)
		why[0] = '\0';
	return sim_rand_chance(&sim.ring_rand, 200) ? -EOPNOTSUPP : 0;
}

/* Some I/O is longer, and then goes through the ordinary ring. */
uint32_t __wrap_mrt__rung_polled_max(int fd, const struct mrt__nvme_ns *ns);
uint32_t __wrap_mrt__rung_polled_max(int fd, const struct mrt__nvme_ns *ns)
{
	(void)fd;
	(void)ns;
	return sim_rand_chance(&sim.ring_rand, 300) ? 50 : UINT32_MAX;
}

/* ---- buffers ---- */

static int set_slot(struct sim_region *slots, unsigned nr, unsigned slot, void *base, size_t bytes)
{
	if (slot >= nr || !base || bytes == 0 || bytes > (size_t)1 << 30)
		return -EINVAL;
	sim_check(slots[slot].bytes == 0, "slot %u is filled again", slot);
	if (fails())
		return -ENOMEM;
	slots[slot] = (struct sim_region){ .base = (uintptr_t)base, .bytes = bytes };
	return 0;
}

int mrt__ring_donor_create(unsigned nr, struct mrt__ring_donor **ret_donor)
{
	struct mrt__ring_donor *donor;

	if (nr == 0 || nr > 16384)
		return -EINVAL;
	if (sim.opts.clone == SIM_CLONE_NEVER)
		return -EOPNOTSUPP;
	if (fails())
		return -ENOMEM;
	donor = make_slots(1, sizeof(*donor));
	donor->slots = make_slots(nr, sizeof(*donor->slots));
	donor->nr = nr;
	donor->can_grow = sim.opts.clone == SIM_CLONE_SLOTS;
	donors_nr++;
	*ret_donor = donor;
	return 0;
}

void mrt__ring_donor_destroy(struct mrt__ring_donor *donor)
{
	if (!donor)
		return;
	donors_nr--;
	free(donor->slots);
	free(donor);
}

void mrt__ring_donor_abandon(struct mrt__ring_donor *donor)
{
	(void)donor;
}

int mrt__ring_donor_set(struct mrt__ring_donor *donor, unsigned slot, void *base, size_t bytes)
{
	sim_preempt_registering();
	return set_slot(donor->slots, donor->nr, slot, base, bytes);
}

bool mrt__ring_donor_can_grow(const struct mrt__ring_donor *donor)
{
	return donor->can_grow;
}

int mrt__ring_donor_clone(struct mrt__ring_donor *donor, struct mrt__ring *ring, unsigned slot)
{
	struct sim_tables *t = sim_ring_tables(ring);

	if (slot >= donor->nr || (t->buffers_nr && t->buffers_nr != donor->nr))
		return -EINVAL;
	if (t->buffers_nr && !donor->can_grow)
		return -EOPNOTSUPP;
	if (fails())
		return -ENOMEM;
	if (t->buffers_nr) {
		t->buffers[slot] = donor->slots[slot];
		return 0;
	}
	t->buffers = make_slots(donor->nr, sizeof(*t->buffers));
	memcpy(t->buffers, donor->slots, donor->nr * sizeof(*t->buffers));
	t->buffers_nr = donor->nr;
	return 0;
}

int mrt__ring_buffer_set(struct mrt__ring *ring, unsigned nr, unsigned slot, void *base, size_t bytes)
{
	struct sim_tables *t = sim_ring_tables(ring);

	if (slot >= nr || nr > 16384 || (t->buffers_nr && t->buffers_nr != nr))
		return -EINVAL;
	if (!t->buffers_nr) {
		if (fails())
			return -ENOMEM;
		t->buffers = make_slots(nr, sizeof(*t->buffers));
		t->buffers_nr = nr;
	}
	return set_slot(t->buffers, t->buffers_nr, slot, base, bytes);
}

void mrt__ring_buffers_drop(struct mrt__ring *ring)
{
	struct sim_tables *t = sim_ring_tables(ring);

	sim_check(sim_ring_fixed_nr(ring) == 0, "buffers are dropped under %u ops", sim_ring_fixed_nr(ring));
	free(t->buffers);
	t->buffers = NULL;
	t->buffers_nr = 0;
}

/* ---- files ---- */

int mrt__ring_file_set(struct mrt__ring *ring, unsigned nr, unsigned slot, int fd)
{
	struct sim_tables *t = sim_ring_tables(ring);
	unsigned i;

	if (slot >= nr || nr > 32768 || (t->files_nr && t->files_nr != nr))
		return -EINVAL;
	if (fd < -1)
		return -EBADF;
	sim_check(fd == -1 || sim_fd_file(fd) > 0, "fd %d is put into slot %u, but is closed", fd, slot);
	sim_check(fd == -1 || sim_tables_file(t, slot) == -1, "slot %u is filled again", slot);
	if (fd >= 0 && fails())
		return -ENOMEM;
	if (!t->files_nr) {
		if (fd == -1)
			return 0;
		t->files = make_slots(nr, sizeof(*t->files));
		t->files_nr = nr;
		for (i = 0; i < nr; i++)
			t->files[i] = -1;
	}
	t->files[slot] = fd == -1 ? -1 : sim_fd_file(fd);
	return 0;
}
