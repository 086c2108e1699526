/* SPDX-License-Identifier: MIT */
/*
 * Bare io_uring loops, the limit of what a runtime on a ring can reach: one thread, no tasks, a switch over completions.
 * The bare loop of reads is bench/raw/raw.c.
 *
 *	echo            a one-shot recv, a one-shot send, a one-shot recv ..
 *	echo_multishot  a multishot recv into provided buffers; what came is copied out and the buffer given back at once
 *			both with registered sockets, each in the slot of its own number
 *	wake_idle       a thread writes to an eventfd that the ring reads
 */
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "peer.h"

#define RING_ENTRIES 4096u
#define CONNS_MAX 16384u        /* descriptors: a connection's state stands at its own */
#define BUFS 4096u
#define BUFS_GROUP 1

enum {
	OF_ACCEPT,
	OF_RECV,
	OF_SEND
};

struct conn {
	char buf[PEER_ECHO_BUF_BYTES];
};

static struct {
	struct io_uring ring;
	int listener;
	struct conn *conns;     /* [CONNS_MAX], by descriptor; touched as they come */
	bool multishot;
	struct io_uring_buf_ring *bufs;
	char *buf_memory;       /* [BUFS * PEER_ECHO_BUF_BYTES] */
} bare;

static void make_ring(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN };
	int rc = io_uring_queue_init_params(RING_ENTRIES, &bare.ring, &p);

	if (rc)
		bench_die("a ring with DEFER_TASKRUN (Linux 6.1): %s", strerror(-rc));
	(void)io_uring_register_ring_fd(&bare.ring); /* without it enters cost a little more */
}

static struct io_uring_sqe *get_sqe(unsigned of, int fd)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&bare.ring);

	while (!sqe) {
		if (io_uring_submit(&bare.ring) < 0)
			bench_die("io_uring_submit failed");
		sqe = io_uring_get_sqe(&bare.ring);
	}
	sqe->user_data = (uint64_t)fd << 2 | of;
	return sqe;
}

/* The preparing functions of liburing clear user_data. */
#define QUEUE(of, of_fd, prepare, ...)                              \
	do {                                                        \
		struct io_uring_sqe *sqe_ = get_sqe(of, of_fd);     \
		uint64_t data_ = sqe_->user_data;                   \
		prepare(sqe_, __VA_ARGS__);                         \
		sqe_->user_data = data_;                            \
		if (of != OF_ACCEPT && bare.conns)                  \
			sqe_->flags |= IOSQE_FIXED_FILE;            \
	} while (0)

/* ---- echo ---- */

static void queue_recv(int fd)
{
	if (bare.multishot) {
		struct io_uring_sqe *sqe = get_sqe(OF_RECV, fd);
		uint64_t data = sqe->user_data;

		io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0);
		sqe->user_data = data;
		sqe->flags |= IOSQE_BUFFER_SELECT | IOSQE_FIXED_FILE;
		sqe->buf_group = BUFS_GROUP;
		return;
	}
	QUEUE(OF_RECV, fd, io_uring_prep_recv, fd, bare.conns[fd].buf, PEER_ECHO_BUF_BYTES, 0);
}

static void give_buffer_back(unsigned id)
{
	io_uring_buf_ring_add(bare.bufs, bare.buf_memory + (size_t)id * PEER_ECHO_BUF_BYTES, PEER_ECHO_BUF_BYTES,
			      (unsigned short)id, io_uring_buf_ring_mask(BUFS), 0);
	io_uring_buf_ring_advance(bare.bufs, 1);
}

static void make_buffers(void)
{
	struct io_uring_buf_reg reg;
	void *ring = NULL;
	unsigned i;
	int rc;

	if (posix_memalign(&ring, 4096, BUFS * sizeof(struct io_uring_buf)))
		bench_die("no memory for buffers");
	memset(ring, 0, BUFS * sizeof(struct io_uring_buf));
	bare.bufs = ring;
	memset(&reg, 0, sizeof(reg));
	reg.ring_addr = (uint64_t)(uintptr_t)ring;
	reg.ring_entries = BUFS;
	reg.bgid = BUFS_GROUP;
	rc = io_uring_register_buf_ring(&bare.ring, &reg, 0);
	if (rc)
		bench_die("provided buffers (Linux 5.19): %s", strerror(-rc));
	bare.buf_memory = bench_alloc_touched(BUFS, PEER_ECHO_BUF_BYTES);
	for (i = 0; i < BUFS; i++)
		give_buffer_back(i);
}

static void take_accept(int fd)
{
	if (fd < 0 || fd >= (int)CONNS_MAX)
		bench_die("accept: %s", fd < 0 ? strerror(-fd) : "too many connections");
	peer_no_delay(fd);
	if (io_uring_register_files_update(&bare.ring, (unsigned)fd, &fd, 1) != 1)
		bench_die("a socket could not be registered");
	queue_recv(fd);
	QUEUE(OF_ACCEPT, bare.listener, io_uring_prep_accept, bare.listener, NULL, NULL, SOCK_CLOEXEC);
}

static void take_recv(int fd, const struct io_uring_cqe *cqe)
{
	const int none = -1;

	if (cqe->res <= 0 && cqe->res != -ENOBUFS) {
		/* nothing was left to send */
		(void)io_uring_register_files_update(&bare.ring, (unsigned)fd, &none, 1);
		(void)close(fd);
		return;
	}
	if (bare.multishot) {
		if (cqe->res > 0) {
			unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;

			memcpy(bare.conns[fd].buf, bare.buf_memory + (size_t)id * PEER_ECHO_BUF_BYTES, (size_t)cqe->res);
			give_buffer_back(id);
		}
		if (!(cqe->flags & IORING_CQE_F_MORE))
			queue_recv(fd);
	}
	if (cqe->res > 0)
		QUEUE(OF_SEND, fd, io_uring_prep_send, fd, bare.conns[fd].buf, (size_t)cqe->res, MSG_NOSIGNAL);
}

static void take_completion(const struct io_uring_cqe *cqe)
{
	int fd = (int)(cqe->user_data >> 2);

	switch (cqe->user_data & 3) {
	case OF_ACCEPT:
		take_accept(cqe->res);
		break;
	case OF_RECV:
		take_recv(fd, cqe);
		break;
	default:
		/* small messages are sent whole; a failure shows at the recv */
		if (!bare.multishot && cqe->res > 0)
			queue_recv(fd);
	}
}

static void serve(bool multishot)
{
	struct io_uring_cqe *cqe;
	unsigned head, nr;
	int rc;

	bare.multishot = multishot;
	bare.conns = bench_alloc(CONNS_MAX, sizeof(*bare.conns));
	make_ring();
	if (io_uring_register_files_sparse(&bare.ring, CONNS_MAX))
		bench_die("no table of registered files (Linux 5.19)");
	if (multishot)
		make_buffers();
	bare.listener = peer_listen();
	QUEUE(OF_ACCEPT, bare.listener, io_uring_prep_accept, bare.listener, NULL, NULL, SOCK_CLOEXEC);
	for (;;) { /* until the process is ended */
		rc = io_uring_submit_and_wait(&bare.ring, 1);
		if (rc < 0 && rc != -EINTR)
			bench_die("io_uring_submit_and_wait: %s", strerror(-rc));
		nr = 0;
		io_uring_for_each_cqe(&bare.ring, head, cqe) {
			take_completion(cqe);
			nr++;
		}
		io_uring_cq_advance(&bare.ring, nr);
	}
}

static void echo(const struct peer_args *a)
{
	(void)a;
	serve(false);
}

static void echo_multishot(const struct peer_args *a)
{
	(void)a;
	serve(true);
}

/* ---- wake ---- */

static struct {
	int event;
	uint64_t n;
	_Atomic uint64_t woken_ns;
} wake;

/* The ring belongs to the thread that waits. */
static void *wait_main(void *arg)
{
	struct io_uring_cqe *cqe;
	uint64_t value, i;

	bench_pin(arg, 1);
	make_ring();
	for (i = 0; i < wake.n; i++) {
		QUEUE(OF_RECV, wake.event, io_uring_prep_read, wake.event, &value, sizeof(value), 0);
		if (io_uring_submit_and_wait(&bare.ring, 1) < 0 || io_uring_peek_cqe(&bare.ring, &cqe) ||
		    cqe->res != (int)sizeof(value))
			bench_die("wake_idle: no event");
		io_uring_cqe_seen(&bare.ring, cqe);
		atomic_store_explicit(&wake.woken_ns, bench_clock(CLOCK_MONOTONIC), memory_order_release);
	}
	return NULL;
}

static void wake_idle(const struct peer_args *a)
{
	uint64_t *ns = bench_alloc_touched(a->n, sizeof(*ns)), one = 1, start, end, i;
	int cpus[CPU_SETSIZE];
	unsigned cpus_nr = bench_cpus(cpus);
	struct peer_span s;
	pthread_t waiter;

	wake.event = eventfd(0, EFD_CLOEXEC);
	wake.n = a->n;
	if (wake.event < 0 || pthread_create(&waiter, NULL, wait_main, &cpus[cpus_nr - 1]))
		bench_die("wake_idle: no thread");
	bench_pin(cpus, 1);
	s = peer_start();
	for (i = 0; i < a->n; i++) {
		bench_spin_ns(a->arg * 1000);
		start = bench_clock(CLOCK_MONOTONIC);
		if (write(wake.event, &one, sizeof(one)) != (ssize_t)sizeof(one))
			bench_die("wake_idle: %s", strerror(errno));
		while ((end = atomic_load_explicit(&wake.woken_ns, memory_order_acquire)) < start)
			;
		ns[i] = end - start;
	}
	peer_stop(&s);
	(void)pthread_join(waiter, NULL); /* ours */
	bench_sort_u64(ns, a->n);
	peer_print(a, NULL, a->n, &s, PEER_LATENESS, PEER_LATENESS_OF(ns, a->n));
	free(ns);
}

int main(int argc, char **argv)
{
	static const struct peer_shape shapes[] = {
		{ "echo", echo },
		{ "echo_multishot", echo_multishot },
		{ "wake_idle", wake_idle },
	};

	return peer_main("bare", shapes, sizeof(shapes) / sizeof(shapes[0]), argc, argv);
}
