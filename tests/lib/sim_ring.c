/* SPDX-License-Identifier: MIT */
/*
 * The simulated kernel: one struct mrt__ring per worker behind src/ring/ring.h, and the clock.
 *
 * What it does as the real one does (reference: io_uring(7), io_uring_cancelation(7), and what was measured):
 *
 *	submit      in order, and only in an enter; may take a part only, and then does not wait
 *	end         at submission, or later; later ones are deferred work that becomes a CQE in an enter, 20 at a time
 *	overflow    what finds the CQ full goes to a list, lossless and in order, which an enter moves on
 *	cancel      disk I/O goes on (-ENOENT); io-wq is told to stop (-EALREADY: -EINTR, -512, -ECANCELED, or a part was
 *	            moved); what waits for a peer ends with -ECANCELED, or with what came just then. For a while after its
 *	            submission an op may be in none of the kernel's lists (-ENOENT, as while io-wq takes it), or not yet
 *	            waiting (-EALREADY): such a cancel does nothing
 *	buffers     are read and written when the op *ends*, as a device would, and so are iovecs; a frame that was freed or
 *	            an array on a stack that is gone is found by AddressSanitizer, or by the pattern
 *	timer       of the sentry: the next period begins when the last was read
 *	tables      (sim_regs.c) an op's file and buffer are looked up when it is submitted, and it keeps its file
 *	polled      a ring that takes reads, writes and commands only, and that nobody can wait in or wake
 *
 * The ledger follows each op by its address: it is staged only when the kernel does not have it, handed back once for
 * each time, in the state that the task layer must have it in; steps of _all forms go on where the last one ended.
 *
 * Paths are read when the op ends, too: later than the real kernel does, so whoever keeps them too short is caught.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "probe/stat.h"
#include "sched/op.h"
#include "sched/task.h"
#include "sim.h"
#include "sim_ledger.h"
#include "sim_regs.h"

#define RESERVE 2u              /* as the real ring */
#define DEFERRED_MAX 20u        /* deferred work that one enter does */
#define BUCKETS_NR 1024u
#define RESTARTSYS 512
#define FDS_MAX 4096u
#define POLLED_STEPS 30u        /* how long an op on a polled ring takes, at most */
#define HIDDEN_NS_MAX 5000000u  /* how long a cancel does not find an op; a thread that got no CPU meanwhile */

enum kind {
	KIND_OP,
	KIND_WAKE,
	KIND_SENTRY,
	KIND_CANCEL,
	KIND_CANCEL_FILE,
};

struct sqe {
	enum kind kind;
	struct mrt__ring_args args;
	int32_t extra_fd;
	void *user;             /* CANCEL: the target */
	bool slot;              /* CANCEL_FILE: args.fd is one */
	unsigned handle;        /* CANCEL_FILE: whose close it is */
};

struct cqe {
	enum kind kind;
	void *user;
	int32_t res;
};

/* A queue of completions; grows. */
struct queue {
	struct cqe *items;
	unsigned head, nr, room;
};

enum where {
	WHERE_CALLER,           /* not staged, or handed back */
	WHERE_SQ,
	WHERE_KERNEL,
	WHERE_CQ,               /* ended; deferred, overflowed or in the CQ */
};

/* What the ledger knows of the op at an address. */
struct record {
	struct record *next;
	void *user;
	enum where where;
	bool all;
	struct mrt__ring *ring;
	struct sim_op_history history;
	struct mrt__ring_args first;    /* as it was staged first */
	unsigned retries;
	unsigned lowered;               /* tried again with another opcode, or on another ring */
	unsigned handle, block;         /* sim_ledger.h; 0: none */
	bool closed;                    /* its handle's close has hit it */
	unsigned twin;                  /* the handle whose close has hit it last, and is not its own */

	/* while the kernel has it, or the ring */
	struct mrt__ring_args args;
	uint64_t due_ns;                /* SIM_NEVER: only a cancel ends it */
	uint64_t order;
	size_t heap_idx;
	uint64_t hidden_ns;             /* until then no cancel finds it */
	bool deaf;                      /* the next one does, and does nothing */
	bool has_planned;               /* a cancel has decided how it ends */
	int32_t planned;
	bool partly;                    /* planned by a cancel: a part was moved */
};

struct mrt__ring {
	unsigned index;
	unsigned sq_entries;
	unsigned cq_entries;
	struct mrt_worker_stats *stats;
	struct mrt_worker_stats own_stats;
	struct sqe *sq;
	unsigned sq_nr;
	struct queue cq;
	struct queue deferred;
	struct queue overflow;
	void **late;            /* cancels that found no SQE */
	unsigned late_nr, late_room;
	unsigned cancels;       /* whose answer has not come */
	struct sim_tables tables;
	struct mrt__ring *next; /* of all */
	bool polled;
	const struct mrt__worker *owner; /* of a polled ring: who enabled it */
	bool wake_posted;       /* a wake is under way and not yet in the CQ */
	bool enabled;

	uint64_t sentry_period_ns;      /* 0: stopped */
	uint64_t sentry_next_ns;        /* SIM_NEVER: must be read first, or stopped */
	bool sentry_expired;            /* and not read */
};

/* The kernel at large. */
static struct {
	struct record *buckets[BUCKETS_NR];
	struct record **heap;           /* of ops that end at a known time, by (due_ns, order) */
	size_t heap_nr, heap_room;
	uint64_t order;
	uint64_t serial;
	size_t kernel_nr;               /* ops that it has */
	uint64_t stream_pos[2 * SIM_FD_RANGE];
	int fds[FDS_MAX];               /* real descriptors that ops have opened */
	unsigned fds_nr;
	struct mrt__ring *rings;
	unsigned rings_nr;
} kernel;

static bool chance(unsigned per_mille)
{
	return sim_rand_chance(&sim.ring_rand, per_mille);
}

static uint64_t below(uint64_t n)
{
	return sim_rand_below(&sim.ring_rand, n);
}

static void *grow(void *old, size_t bytes)
{
	void *p = realloc(old, bytes);

	sim_check(p, "no memory");
	return p;
}

/* ---- the clock ---- */

uint64_t mrt__clock_now(void)
{
	uint64_t before = sim.now_ns;

	/* the caller may be interrupted before or after it reads the clock */
	sim_preempt();
	return sim.now_ns != before && sim_chance(500) ? before : sim.now_ns;
}

/* ---- patterns and streams ---- */

uint8_t sim_pattern(int fd, uint64_t off)
{
	uint64_t x = (uint64_t)(unsigned)fd * UINT64_C(0x9e3779b97f4a7c15) + off * UINT64_C(0xff51afd7ed558ccd);

	return (uint8_t)(x >> 56 ^ x >> 29);
}

void sim_pattern_fill(void *buf, size_t bytes, int fd, uint64_t off)
{
	uint8_t *p = buf;
	size_t i;

	for (i = 0; i < bytes; i++)
		p[i] = sim_pattern(fd, off + i);
}

bool sim_pattern_is(const void *buf, size_t bytes, int fd, uint64_t off)
{
	const uint8_t *p = buf;
	size_t i;

	for (i = 0; i < bytes; i++)
		if (p[i] != sim_pattern(fd, off + i))
			return false;
	return true;
}

static bool is_stream(int fd)
{
	return fd >= SIM_FD_STREAM && fd < SIM_FD_IDLE + SIM_FD_RANGE;
}

static bool is_idle(int fd)
{
	return fd >= SIM_FD_IDLE && fd < SIM_FD_IDLE + SIM_FD_RANGE;
}

static uint64_t *stream(int fd)
{
	sim_check(is_stream(fd), "fd %d is no stream of the simulation", fd);
	return &kernel.stream_pos[fd - SIM_FD_STREAM];
}

uint64_t sim_stream_pos(int fd)
{
	return *stream(fd);
}

/* ---- queues ---- */

static struct cqe *queue_at(const struct queue *q, unsigned i)
{
	return &q->items[(q->head + i) % q->room];
}

static void queue_push(struct queue *q, struct cqe cqe)
{
	if (q->nr == q->room) {
		struct queue bigger = { .room = q->room ? 2 * q->room : 16 };
		unsigned i;

		bigger.items = grow(NULL, bigger.room * sizeof(cqe));
		for (i = 0; i < q->nr; i++)
			bigger.items[i] = *queue_at(q, i);
		bigger.nr = q->nr;
		free(q->items);
		*q = bigger;
	}
	*queue_at(q, q->nr++) = cqe;
}

static struct cqe queue_pop(struct queue *q)
{
	struct cqe cqe = *queue_at(q, 0);

	q->head = (q->head + 1) % q->room;
	q->nr--;
	return cqe;
}

/* ---- the heap of ends ---- */

static bool is_before(const struct record *a, const struct record *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void heap_put(size_t idx, struct record *r)
{
	kernel.heap[idx] = r;
	r->heap_idx = idx;
}

static void heap_up(struct record *r)
{
	size_t idx = r->heap_idx, parent;

	for (; idx > 0; idx = parent) {
		parent = (idx - 1) / 2;
		if (!is_before(r, kernel.heap[parent]))
			break;
		heap_put(idx, kernel.heap[parent]);
	}
	heap_put(idx, r);
}

static void heap_down(struct record *r)
{
	size_t idx = r->heap_idx, child;

	for (; (child = 2 * idx + 1) < kernel.heap_nr; idx = child) {
		if (child + 1 < kernel.heap_nr && is_before(kernel.heap[child + 1], kernel.heap[child]))
			child++;
		if (!is_before(kernel.heap[child], r))
			break;
		heap_put(idx, kernel.heap[child]);
	}
	heap_put(idx, r);
}

static void heap_insert(struct record *r)
{
	if (kernel.heap_nr == kernel.heap_room) {
		kernel.heap_room = kernel.heap_room ? 2 * kernel.heap_room : 64;
		kernel.heap = grow(kernel.heap, kernel.heap_room * sizeof(struct record *));
	}
	heap_put(kernel.heap_nr++, r);
	heap_up(r);
}

static void heap_remove(struct record *r)
{
	size_t idx = r->heap_idx;
	struct record *last = kernel.heap[--kernel.heap_nr];

	if (last == r)
		return;
	heap_put(idx, last);
	heap_up(last);
	heap_down(last);
}

/* ---- the ledger ---- */

static struct record **bucket_of(const void *user)
{
	return &kernel.buckets[((uintptr_t)user >> 4) % BUCKETS_NR];
}

static struct record *record_of(const void *user)
{
	struct record *r = *bucket_of(user);

	while (r && r->user != user)
		r = r->next;
	return r;
}

static void record_free(struct record *r)
{
	struct record **link = bucket_of(r->user);

	while (*link != r)
		link = &(*link)->next;
	*link = r->next;
	free(r);
}

void sim_op_begin(struct mrt_op *op, bool all)
{
	struct record *r = record_of(op);

	if (r) {
		sim_check(r->where == WHERE_CALLER, "op #%llu is started again while the kernel has it",
			  (unsigned long long)r->history.serial);
		record_free(r);
	}
	r = grow(NULL, sizeof(*r));
	memset(r, 0, sizeof(*r));
	r->user = op;
	r->all = all;
	r->history.serial = ++kernel.serial;
	r->next = *bucket_of(op);
	*bucket_of(op) = r;
}

void sim_op_uses(struct mrt_op *op, unsigned handle, unsigned block)
{
	struct record *r = record_of(op);

	sim_check(r, "what an op uses is told before it is begun");
	r->handle = handle;
	r->block = block;
}

bool sim_op_end(struct mrt_op *op, struct sim_op_history *ret_history)
{
	struct record *r = record_of(op);

	sim_check(r, "an op ends that was not begun");
	sim_check(r->where == WHERE_CALLER, "op #%llu was delivered (%lld) while the kernel has it",
		  (unsigned long long)r->history.serial, (long long)op->res);
	*ret_history = r->history;
	record_free(r);
	return ret_history->stages > 0;
}

uint64_t sim_op_serial(const void *op)
{
	struct record *r = record_of(op);

	return r ? r->history.serial : 0;
}

/* Whatever the kernel does with an op, its task must be alive and have it in flight. */
static void check_alive(const struct record *r, const char *when)
{
	const struct mrt__op *op = r->user;
	uint64_t word;

	sim_check(op->state == MRT__OP_INFLIGHT, "op #%llu (%s) is not in flight (state %u) when %s",
		  (unsigned long long)r->history.serial, mrt__op_kind_name(op->kind), op->state, when);
	word = atomic_load_explicit(&op->task->word, memory_order_relaxed);
	sim_check(word & MRT__WORD_LIVE && !(word & MRT__WORD_ENDED), "the task of op #%llu (%s) has ended when %s",
		  (unsigned long long)r->history.serial, mrt__op_kind_name(op->kind), when);
}

static bool is_positional(unsigned opcode)
{
	return opcode == MRT__OPCODE_READ || opcode == MRT__OPCODE_WRITE || opcode == MRT__OPCODE_READ_FIXED ||
	       opcode == MRT__OPCODE_WRITE_FIXED;
}

static bool is_read(unsigned opcode)
{
	return opcode == MRT__OPCODE_READ || opcode == MRT__OPCODE_READV || opcode == MRT__OPCODE_RECV ||
	       opcode == MRT__OPCODE_READ_FIXED || opcode == MRT__OPCODE_READV_FIXED;
}

static bool is_write(unsigned opcode)
{
	return opcode == MRT__OPCODE_WRITE || opcode == MRT__OPCODE_WRITEV || opcode == MRT__OPCODE_SEND ||
	       opcode == MRT__OPCODE_WRITE_FIXED || opcode == MRT__OPCODE_WRITEV_FIXED;
}

static bool is_vectored(unsigned opcode)
{
	return opcode == MRT__OPCODE_READV || opcode == MRT__OPCODE_WRITEV || opcode == MRT__OPCODE_READV_FIXED ||
	       opcode == MRT__OPCODE_WRITEV_FIXED;
}

static bool is_fixed(const struct mrt__ring_args *args)
{
	return args->opcode == MRT__OPCODE_READ_FIXED || args->opcode == MRT__OPCODE_WRITE_FIXED ||
	       args->opcode == MRT__OPCODE_READV_FIXED || args->opcode == MRT__OPCODE_WRITEV_FIXED;
}

/* An op failed, and is tried again. */
static void check_retry(struct record *r, const struct mrt__ring_args *args)
{
	unsigned long long serial = r->history.serial;
	int32_t last = r->history.last;

	if (last == -EOPNOTSUPP) {
		sim_check(r->ring->polled || is_fixed(&r->args), "op #%llu is tried again, but no rung was refused", serial);
		sim_check(r->lowered++ < 2, "op #%llu is tried again on more rungs than there are", serial);
		return;
	}
	sim_check(last == -EAGAIN || last == -EINTR || (last == -ECANCELED && r->history.twins_closed),
		  "op #%llu is tried again after %d", serial, last);
	r->history.retries += last != -ECANCELED;
	/* an old kernel is told of a close more than once */
	sim_check((last == -ECANCELED && sim.opts.hide) || r->retries++ == 0, "op #%llu is tried again more than once", serial);
	sim_check(last == -ECANCELED || r->ring->polled || args->sqe_flags & MRT__RING_SQE_ASYNC,
		  "op #%llu is tried again, but not by io-wq", serial);
}

/* An op comes a second time: only for the rest of an _all form, or to be tried again. */
static void check_restage(struct record *r, const struct mrt__ring_args *args)
{
	unsigned long long serial = r->history.serial;
	uint64_t moved = (uint64_t)r->history.moved;

	sim_check(!r->history.cancel_seen && !r->closed, "op #%llu is staged again (last result %d) after it was cancelled",
		  serial, r->history.last);
	if (r->history.last < 0)
		check_retry(r, args);
	else
		sim_check(r->all && r->history.last > 0, "op #%llu is staged again after %d", serial, r->history.last);
	/* one that is by a handle may go on by slot or descriptor: it is held against the file when it is submitted */
	sim_check(args->addr == r->first.addr + moved && args->len == r->first.len - moved &&
		  (args->fd == r->first.fd || r->handle),
		  "op #%llu goes on at the wrong place: %llu moved, %u of %u left", serial, (unsigned long long)moved,
		  args->len, r->first.len);
	if (is_positional(args->opcode))
		sim_check(args->off == (r->first.off == UINT64_MAX ? UINT64_MAX : r->first.off + moved),
			  "op #%llu goes on at offset %lld", serial, (long long)args->off);
}

/* ---- how ops end ---- */

static const char *opcode_name(unsigned opcode)
{
	switch (opcode) {
	case MRT__OPCODE_NOP: return "nop";
	case MRT__OPCODE_READV: return "readv";
	case MRT__OPCODE_WRITEV: return "writev";
	case MRT__OPCODE_FSYNC: return "fsync";
	case MRT__OPCODE_READ_FIXED: return "read_fixed";
	case MRT__OPCODE_WRITE_FIXED: return "write_fixed";
	case MRT__OPCODE_READV_FIXED: return "readv_fixed";
	case MRT__OPCODE_WRITEV_FIXED: return "writev_fixed";
	case MRT__OPCODE_URING_CMD: return "command";
	case MRT__OPCODE_POLL_ADD: return "poll";
	case MRT__OPCODE_ACCEPT: return "accept";
	case MRT__OPCODE_OPENAT: return "open";
	case MRT__OPCODE_CLOSE: return "close";
	case MRT__OPCODE_READ: return "read";
	case MRT__OPCODE_WRITE: return "write";
	case MRT__OPCODE_SEND: return "send";
	case MRT__OPCODE_RECV: return "recv";
	case MRT__OPCODE_UNLINKAT: return "unlink";
	default: return "op";
	}
}

static size_t total_bytes(const struct mrt__ring_args *args)
{
	const struct iovec *iov = (const struct iovec *)(uintptr_t)args->addr;
	size_t total = 0;
	uint32_t i;

	if (!is_vectored(args->opcode))
		return args->len;
	for (i = 0; i < args->len; i++)
		total += iov[i].iov_len;
	return total;
}

/*
 * Blocks that were freed with ops in flight are kept for them, but poisoned: a device does not know of that.
 *
 * @return what was to be read is there
 */
__attribute__((no_sanitize("address")))
static bool transfer_arena(const struct record *r, uint8_t *buf, size_t bytes, uint64_t pos)
{
	size_t i;

	for (i = 0; i < bytes; i++) {
		uint8_t byte = sim_pattern(r->args.fd, pos + i);

		if (is_read(r->args.opcode))
			buf[i] = byte;
		else if (buf[i] != byte)
			return false;
	}
	return true;
}

/* One segment: the device writes the pattern, or reads it and finds it right. */
static void transfer(const struct record *r, void *buf, size_t bytes, uint64_t pos)
{
	const struct mrt__ring_args *args = &r->args;

	if (sim_block_check(r->block, (uintptr_t)buf, bytes, r->history.serial))
		sim_check(transfer_arena(r, buf, bytes, pos), "op #%llu: somebody has changed memory of block %u under it",
			  (unsigned long long)r->history.serial, r->block);
	else if (is_read(args->opcode))
		sim_pattern_fill(buf, bytes, args->fd, pos);
	else
		sim_check(sim_pattern_is(buf, bytes, args->fd, pos),
			  "op #%llu: the device finds other bytes than were to be written, at %llu + %zu of fd %d",
			  (unsigned long long)r->history.serial, (unsigned long long)pos, bytes, args->fd);
}

/* Move `bytes` bytes from the front of what the op names. */
static void dma(struct record *r, size_t bytes)
{
	const struct mrt__ring_args *args = &r->args;
	const struct iovec *iov = (const struct iovec *)(uintptr_t)args->addr;
	bool streams = is_stream(args->fd);
	uint64_t pos = streams ? *stream(args->fd) : args->off;
	size_t left = bytes;

	if (streams) {
		if (r->history.moved == 0)
			r->history.stream_pos = pos;
		*stream(args->fd) += bytes;
	}
	if (!is_vectored(args->opcode)) {
		transfer(r, (void *)(uintptr_t)args->addr, bytes, pos);
		return;
	}
	for (; left > 0; iov++) {
		size_t part = mrt__min(left, iov->iov_len);

		transfer(r, iov->iov_base, part, pos);
		pos += part;
		left -= part;
	}
}

struct range {
	uintptr_t base;
	size_t bytes;
};

/* Calls fn for each of an op's buffers, until it says true. @return it did */
static bool each_range(const struct record *r, const struct mrt__ring_args *args,
		       bool (*fn)(const struct record *r, struct range range, const void *arg), const void *arg)
{
	const struct iovec *iov = (const struct iovec *)(uintptr_t)args->addr;
	uint32_t i;

	if (!is_read(args->opcode) && !is_write(args->opcode))
		return false;
	if (!is_vectored(args->opcode))
		return fn(r, (struct range){ args->addr, args->len }, arg);
	for (i = 0; i < args->len; i++)
		if (fn(r, (struct range){ (uintptr_t)iov[i].iov_base, iov[i].iov_len }, arg))
			return true;
	return false;
}

static bool check_range(const struct record *r, struct range range, const void *arg)
{
	(void)arg;
	(void)sim_block_check(r->block, range.base, range.bytes, r->history.serial); /* whether it is the arena's */
	return false;
}

/* What an op names of the arena belongs to the block that it was started on. */
static void check_memory(const struct record *r, const struct mrt__ring_args *args)
{
	(void)each_range(r, args, check_range, NULL);
}

/* @return serial number, 0: none */
static uint64_t find_op(bool (*fits)(const struct record *r, const void *arg), const void *arg)
{
	const struct record *r;
	unsigned i;

	for (i = 0; i < BUCKETS_NR; i++)
		for (r = kernel.buckets[i]; r; r = r->next)
			if (r->where != WHERE_CALLER && fits(r, arg))
				return r->history.serial;
	return 0;
}

static bool is_by(const struct record *r, const void *id)
{
	return r->handle == *(const unsigned *)id;
}

uint64_t sim_op_by_handle(unsigned id)
{
	return find_op(is_by, &id);
}

static bool is_left_waiting(const struct record *r, const void *arg)
{
	(void)arg;
	if (r->where != WHERE_KERNEL || r->due_ns != SIM_NEVER || !r->handle || sim_handle_at(r->handle)->closers == 0)
		return false;
	/* the close may be sent once more */
	return r->ring->polled || sim.workers[r->ring->index].w->cancels.files_nr == 0;
}

uint64_t sim_op_left_waiting(void)
{
	return find_op(is_left_waiting, NULL);
}

static bool overlaps(const struct record *r, struct range range, const void *arg)
{
	const struct range *wanted = arg;

	(void)r;
	return range.base < wanted->base + wanted->bytes && wanted->base < range.base + range.bytes;
}

static bool is_on(const struct record *r, const void *wanted)
{
	return r->block && each_range(r, &r->args, overlaps, wanted);
}

uint64_t sim_op_on_memory(uintptr_t base, size_t bytes)
{
	return find_op(is_on, &(struct range){ base, bytes });
}

bool sim_rings_have(unsigned slot, int file)
{
	const struct mrt__ring *ring;

	for (ring = kernel.rings; ring; ring = ring->next)
		if (sim_tables_file(&ring->tables, slot) == file)
			return true;
	return false;
}

static int32_t draw_error(const struct record *r)
{
	static const int32_t errors[] = { -EIO, -ENOSPC, -EAGAIN, -EINTR, -EIO };
	const struct mrt__ring_args *args = &r->args;
	int32_t err = errors[below(MRT__ARRAY_NR(errors))];

	/* not every device can be polled for whatever was said, nor do all files take registered buffers */
	if ((r->ring->polled || is_fixed(args)) && chance(300))
		return -EOPNOTSUPP;

	/* streams: neither is tried again inside, and a plain user would not expect them of a blocking socket */
	return is_stream(args->fd) && (err == -EAGAIN || err == -EINTR) ? -ECONNRESET : err;
}

static int32_t open_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	unsigned i;

	sim_check(fd >= 0 && kernel.fds_nr < FDS_MAX, "the simulation is out of descriptors");
	for (i = 0; i < kernel.fds_nr && kernel.fds[i] != fd; i++)
		continue;
	kernel.fds[i] = fd; /* there already: the runtime has closed it meanwhile */
	if (i == kernel.fds_nr)
		kernel.fds_nr++;
	return fd;
}

static int32_t close_fd(int fd)
{
	unsigned i;

	if (sim_fd_is(fd)) {
		sim_handle_ended(fd);
		sim_check(!sim_fd_close(fd), "fd %d was closed before", fd);
		return 0;
	}
	for (i = 0; i < kernel.fds_nr && kernel.fds[i] != fd; i++)
		continue;
	sim_check(i < kernel.fds_nr, "fd %d is closed, but no op has opened it", fd);
	kernel.fds[i] = kernel.fds[--kernel.fds_nr];
	sim_check(close(fd) == 0, "fd %d was closed before", fd);
	return 0;
}

static int32_t end_transfer(struct record *r)
{
	size_t total = total_bytes(&r->args), bytes = total;

	if (r->partly || chance(sim.opts.shorts))
		bytes = total > 1 ? 1 + below(total - 1) : total;
	else if (is_read(r->args.opcode) && chance(sim.opts.shorts / 8))
		bytes = 0; /* end of file */
	dma(r, bytes);
	r->history.moved += (int64_t)bytes;
	return (int32_t)bytes;
}

/* The op does what it does, now. @return its result */
static int32_t perform(struct record *r)
{
	const struct mrt__ring_args *args = &r->args;

	if (r->has_planned && !r->partly)
		return r->planned;
	if (args->opcode == MRT__OPCODE_CLOSE)
		return close_fd(args->fd);
	if (args->opcode != MRT__OPCODE_NOP && !r->partly && chance(sim.opts.errors))
		return draw_error(r);
	if (is_read(args->opcode) || is_write(args->opcode))
		return end_transfer(r);
	switch (args->opcode) {
	case MRT__OPCODE_POLL_ADD:
		return POLLIN;
	case MRT__OPCODE_OPENAT:
	case MRT__OPCODE_UNLINKAT:
		sim_check(!strcmp((const char *)(uintptr_t)args->addr, "some/path"), "a path has changed");
		return args->opcode == MRT__OPCODE_OPENAT ? open_fd() : 0;
	case MRT__OPCODE_ACCEPT:
		return open_fd();
	default:
		return 0;
	}
}

/* ---- completions ---- */

static void note_overflow(struct mrt__ring *ring, bool overflowed)
{
	if (overflowed && ring->overflow.nr == 0)
		mrt__stat_add(&ring->stats->cq_overflows, 1);
}

static void post(struct mrt__ring *ring, struct cqe cqe)
{
	if (ring->overflow.nr > 0 || ring->cq.nr == ring->cq_entries) {
		note_overflow(ring, true);
		queue_push(&ring->overflow, cqe);
	} else {
		queue_push(&ring->cq, cqe);
	}
}

static void end_op(struct record *r, bool now)
{
	struct cqe cqe = { .kind = KIND_OP, .user = r->user };

	check_alive(r, "it ends");
	cqe.res = r->history.last = perform(r);
	r->where = WHERE_CQ;
	kernel.kernel_nr--;
	sim_log("ring %u: %s #%llu ends%s with %d", r->ring->index, opcode_name(r->args.opcode),
		(unsigned long long)r->history.serial, now ? " at once" : "", cqe.res);
	if (now)
		post(r->ring, cqe);
	else
		queue_push(&r->ring->deferred, cqe);
}

static void run_deferred(struct mrt__ring *ring)
{
	unsigned nr;

	while (ring->overflow.nr > 0 && ring->cq.nr < ring->cq_entries)
		queue_push(&ring->cq, queue_pop(&ring->overflow));
	for (nr = 0; nr < DEFERRED_MAX && ring->deferred.nr > 0; nr++) {
		struct cqe cqe = queue_pop(&ring->deferred);

		if (cqe.kind == KIND_WAKE)
			ring->wake_posted = false;
		post(ring, cqe);
	}
}

void sim_kernel_run(void)
{
	struct mrt__ring *ring;

	while (kernel.heap_nr > 0 && kernel.heap[0]->due_ns <= sim.now_ns) {
		struct record *r = kernel.heap[0];

		heap_remove(r);
		end_op(r, false);
	}
	for (ring = kernel.rings; ring; ring = ring->next) {
		if (ring->sentry_next_ns > sim.now_ns)
			continue;
		ring->sentry_next_ns = SIM_NEVER;
		ring->sentry_expired = true;
		queue_push(&ring->deferred, (struct cqe){ .kind = KIND_SENTRY });
	}
}

uint64_t sim_kernel_next(void)
{
	uint64_t next = kernel.heap_nr > 0 ? kernel.heap[0]->due_ns : SIM_NEVER;
	const struct mrt__ring *ring;

	for (ring = kernel.rings; ring; ring = ring->next)
		next = mrt__min(next, ring->sentry_next_ns);
	return next;
}

/* ---- submission ---- */

static uint64_t draw_delay(void)
{
	uint64_t max = sim.opts.delay_ns_max;

	/* many short ones, few long ones */
	return 1 + below(chance(200) ? max : max / 16 + 1);
}

static bool is_polled_opcode(unsigned opcode)
{
	return is_positional(opcode) || is_vectored(opcode) || opcode == MRT__OPCODE_NOP || opcode == MRT__OPCODE_URING_CMD;
}

static bool holds_buffers(const struct mrt__ring *ring, const struct mrt__ring_args *args)
{
	const struct iovec *iov = (const struct iovec *)(uintptr_t)args->addr;
	uint32_t i;

	if (!is_vectored(args->opcode))
		return sim_tables_hold(&ring->tables, args->buf_index, args->addr, args->len);
	for (i = 0; i < args->len; i++)
		if (!sim_tables_hold(&ring->tables, args->buf_index, (uintptr_t)iov[i].iov_base, iov[i].iov_len))
			return false;
	return true;
}

/* Find the file and the buffers in the ring's tables; from now on args names the file itself. What is not there fails. */
static void look_up(const struct mrt__ring *ring, const struct record *r, struct mrt__ring_args *args)
{
	unsigned long long serial = r->history.serial;
	int fd = args->fd;

	sim_check(!ring->polled || is_polled_opcode(args->opcode), "op #%llu is nothing for a polled ring", serial);
	if (args->opcode == MRT__OPCODE_CLOSE)
		return; /* it takes the descriptor */
	if (args->sqe_flags & MRT__RING_SQE_FIXED_FILE)
		args->fd = sim_tables_file(&ring->tables, (unsigned)fd);
	else if (sim_fd_is(fd))
		args->fd = sim_fd_file(fd);
	sim_check(args->fd == fd || args->fd > 0, "op #%llu is by %s %d, which is empty", serial,
		  args->sqe_flags & MRT__RING_SQE_FIXED_FILE ? "slot" : "fd", fd);
	sim_check(!r->handle || sim_handle_at(r->handle)->file == args->fd, "op #%llu by handle %u gets to file %d instead of %d",
		  serial, r->handle, args->fd, r->handle ? sim_handle_at(r->handle)->file : 0);
	sim_check(!is_fixed(args) || holds_buffers(ring, args), "op #%llu: its memory is not in slot %u", serial,
		  args->buf_index);
}

static void submit_op(struct mrt__ring *ring, const struct sqe *sqe)
{
	struct record *r = record_of(sqe->user);

	sim_check(r && r->where == WHERE_SQ, "the ring submits an op that it does not have");
	check_alive(r, "it is submitted");
	r->where = WHERE_KERNEL;
	r->args = sqe->args;
	look_up(ring, r, &r->args);
	r->partly = r->has_planned = false;
	r->hidden_ns = chance(sim.opts.hide) ? sim.now_ns + below(HIDDEN_NS_MAX) : 0;
	r->deaf = chance(sim.opts.hide / 4);
	r->order = ++kernel.order;
	kernel.kernel_nr++;
	if (is_idle(r->args.fd) && r->args.opcode != MRT__OPCODE_CLOSE) {
		r->due_ns = SIM_NEVER;
		sim_log("ring %u: %s #%llu waits", ring->index, opcode_name(r->args.opcode),
			(unsigned long long)r->history.serial);
	} else if (chance(sim.opts.inline_ends)) {
		end_op(r, true);
	} else {
		/* a worker that polls makes steps all the time: there must not be too many of them */
		r->due_ns = sim.now_ns + (ring->polled ? below(POLLED_STEPS * sim.opts.tick_ns_max + 1) : draw_delay());
		heap_insert(r);
	}
}

/* Let an op of the kernel's end soon, with a result, or with a part of what it was to move. */
static void plan(struct record *r, int32_t res, bool partly)
{
	if (r->due_ns != SIM_NEVER)
		heap_remove(r);
	r->has_planned = true;
	r->planned = res;
	r->partly = partly;
	r->due_ns = sim.now_ns + (chance(500) ? 0 : below(20000));
	heap_insert(r);
}

static bool can_be_partial(const struct record *r)
{
	return (is_read(r->args.opcode) || is_write(r->args.opcode)) && total_bytes(&r->args) > 1;
}

/* @return the cancel's own result */
static int32_t cancel_op(struct record *r)
{
	static const int32_t stopped[] = { -EINTR, -RESTARTSYS, -ECANCELED };
	unsigned dice = (unsigned)below(100);

	if (r->has_planned)
		return -EALREADY;
	if (sim.now_ns < r->hidden_ns)
		return -ENOENT;
	if (r->deaf) {
		r->deaf = false;
		return -EALREADY;
	}
	if (is_stream(r->args.fd) || r->args.opcode == MRT__OPCODE_POLL_ADD) {
		plan(r, -ECANCELED, dice < 20 && can_be_partial(r));
		return 0;
	}
	if (dice < 50 || r->args.opcode == MRT__OPCODE_CLOSE)
		return -ENOENT; /* the device has it */
	if (dice < 65) {
		plan(r, -ECANCELED, false);
		return 0;
	}
	plan(r, stopped[below(MRT__ARRAY_NR(stopped))], dice < 80 && can_be_partial(r));
	return -EALREADY;
}

static void submit_cancel(struct mrt__ring *ring, const struct sqe *sqe)
{
	struct record *r = record_of(sqe->user);
	int32_t res = -ENOENT;

	if (r && r->where == WHERE_KERNEL && r->ring == ring)
		res = cancel_op(r);
	sim_log("ring %u: cancel of #%llu says %d", ring->index, (unsigned long long)(r ? r->history.serial : 0), res);
	post(ring, (struct cqe){ .kind = KIND_CANCEL, .user = sqe->user, .res = res });
}

/* A close hits an op, perhaps by another handle of the same file. @return it was cancelled */
static bool cancel_for_close(struct record *r, unsigned handle)
{
	bool own = r->handle == handle, planned = r->has_planned;
	int32_t res = cancel_op(r);

	if (!r->has_planned || planned)
		return false;
	if (own) {
		r->closed = true;
	} else if (r->twin != handle || r->history.twins_closed == 0) {
		r->twin = handle;
		r->history.twins_closed++;
	}
	if (!own && r->planned == -RESTARTSYS)
		r->planned = -EINTR; /* reads and writes say that */
	return res == 0;
}

/* The op that the ring was given next after `order`, of those on a file. */
static struct record *next_on_file(const struct mrt__ring *ring, int file, uint64_t order)
{
	struct record *next = NULL, *r;
	unsigned i;

	for (i = 0; i < BUCKETS_NR; i++)
		for (r = kernel.buckets[i]; r; r = r->next)
			if (r->where == WHERE_KERNEL && r->ring == ring && r->args.fd == file && r->order > order &&
			    (!next || r->order < next->order))
				next = r;
	return next;
}

/* All that the ring has on one file: what waits for a peer ends, the rest as it would by a cancel of its own. */
static void submit_cancel_file(struct mrt__ring *ring, const struct sqe *sqe)
{
	int file = sqe->slot ? sim_tables_file(&ring->tables, (unsigned)sqe->args.fd) : sim_fd_file(sqe->args.fd);
	struct record *r = NULL;
	int32_t nr = 0;

	/* whoever closes holds the descriptor until the last op has ended, but that may have been before this is submitted */
	while (file >= 0 && (r = next_on_file(ring, file, r ? r->order : 0)) != NULL)
		nr += cancel_for_close(r, sqe->handle);
	sim_log("ring %u: cancel of file %d says %d", ring->index, file, file < 0 ? -EBADF : nr);
	post(ring, (struct cqe){ .kind = KIND_CANCEL, .res = file < 0 ? -EBADF : nr });
}

/* Take what is staged. @return how many */
static unsigned submit(struct mrt__ring *ring)
{
	unsigned nr = ring->sq_nr, i;

	if (nr > 0 && chance(sim.opts.refuse))
		nr = chance(500) ? 0 : (unsigned)below(nr);
	if (sim.opts.busy_overflow && ring->overflow.nr > 0)
		nr = 0;
	for (i = 0; i < nr; i++) {
		if (ring->sq[i].kind == KIND_OP)
			submit_op(ring, &ring->sq[i]);
		else if (ring->sq[i].kind == KIND_CANCEL_FILE)
			submit_cancel_file(ring, &ring->sq[i]);
		else
			submit_cancel(ring, &ring->sq[i]);
	}
	if (nr < ring->sq_nr)
		sim_log("ring %u: takes %u of %u", ring->index, nr, ring->sq_nr);
	memmove(ring->sq, ring->sq + nr, (ring->sq_nr - nr) * sizeof(*ring->sq));
	ring->sq_nr -= nr;
	mrt__stat_add(&ring->stats->enters, 1);
	mrt__stat_add(&ring->stats->sqes, nr);
	mrt__stat_set(&ring->stats->sq_staged, ring->sq_nr);
	return nr;
}

static void stage(struct mrt__ring *ring, const struct sqe *sqe)
{
	ring->sq[ring->sq_nr++] = *sqe;
	mrt__stat_set(&ring->stats->sq_staged, ring->sq_nr);
}

static void stage_cancel(struct mrt__ring *ring, void *user)
{
	ring->cancels++;
	stage(ring, &(struct sqe){ .kind = KIND_CANCEL, .user = user });
}

static void catch_up(struct mrt__ring *ring)
{
	while (ring->late_nr > 0 && ring->sq_nr < ring->sq_entries)
		stage_cancel(ring, ring->late[--ring->late_nr]);
}

static void check_owner(const struct mrt__ring *ring)
{
	bool own = mrt__worker_self && (ring->polled ? ring->owner == mrt__worker_self : mrt__worker_self->ring == ring);

	sim_check(ring->enabled && own, "ring %u is touched by another than its worker", ring->index);
}

/* ---- the interface ---- */

int mrt__ring_create(const struct mrt__ring_opts *opts, struct mrt__ring **ret_ring, char *ret_why, size_t why_bytes)
{
	struct mrt__ring *ring = grow(NULL, sizeof(*ring));

	(void)ret_why;
	(void)why_bytes;
	memset(ring, 0, sizeof(*ring));
	ring->index = kernel.rings_nr++;
	ring->sq_entries = opts->sq_entries;
	ring->cq_entries = opts->cq_entries;
	ring->stats = opts->stats ? opts->stats : &ring->own_stats;
	ring->sq = grow(NULL, ring->sq_entries * sizeof(*ring->sq));
	ring->sentry_next_ns = SIM_NEVER;
	ring->polled = opts->flags & MRT__RING_OPT_IOPOLL;
	ring->next = kernel.rings;
	kernel.rings = ring;
	*ret_ring = ring;
	return 0;
}

int mrt__ring_enable(struct mrt__ring *ring, const cpu_set_t *iowq_cpus)
{
	(void)iowq_cpus;
	ring->enabled = true;
	ring->owner = mrt__worker_self;
	return 0;
}

int mrt__ring_drain(struct mrt__ring *ring)
{
	struct mrt__ring_done done;
	unsigned events = 0, turns;

	check_owner(ring);
	for (turns = 0; turns < 10000; turns++) {
		(void)mrt__ring_flush(ring);
		sim_check(mrt__ring_reap(ring, &done, 1, &events) == 0, "ring %u hands an op back while it is drained",
			  ring->index);
		if (ring->sq_nr + ring->cq.nr + ring->overflow.nr + ring->deferred.nr + ring->late_nr == 0)
			break;
	}
	sim_check(ring->cancels == 0, "ring %u: %u cancels were not answered", ring->index, ring->cancels);
	mrt__ring_buffers_drop(ring);
	ring->enabled = false;
	return 0;
}

void mrt__ring_destroy(struct mrt__ring *ring)
{
	struct mrt__ring **link = &kernel.rings;

	if (!ring)
		return;
	while (*link && *link != ring)
		link = &(*link)->next;
	if (*link)
		*link = ring->next;
	sim_tables_fini(&ring->tables);
	free(ring->sq);
	free(ring->cq.items);
	free(ring->deferred.items);
	free(ring->overflow.items);
	free(ring->late);
	free(ring);
}

void mrt__ring_abandon(struct mrt__ring *ring)
{
	(void)ring;
}

bool mrt__ring_stage(struct mrt__ring *ring, const struct mrt__ring_args *args, int32_t extra_fd, void *user)
{
	struct record *r = record_of(user);

	check_owner(ring);
	sim_preempt();
	if (ring->sq_nr + RESERVE >= ring->sq_entries)
		return false;
	sim_check(r, "an op is staged that was not begun: %s", opcode_name(args->opcode));
	sim_check(r->where == WHERE_CALLER, "op #%llu is staged while the kernel has it",
		  (unsigned long long)r->history.serial);
	if (r->history.stages++ == 0)
		r->first = *args;
	else
		check_restage(r, args);
	sim_check(!r->handle || !sim_handle_at(r->handle)->ended, "op #%llu is staged by handle %u, which has ended",
		  (unsigned long long)r->history.serial, r->handle);
	if (args->opcode == MRT__OPCODE_CLOSE && sim_fd_is(args->fd))
		sim_handle_let_go(args->fd);
	check_memory(r, args);
	r->where = WHERE_SQ;
	r->ring = ring;
	r->args = *args;
	check_alive(r, "it is staged");
	stage(ring, &(struct sqe){ .kind = KIND_OP, .args = *args, .extra_fd = extra_fd, .user = user });
	sim_log("ring %u: %s #%llu staged, fd %d, %u at %lld", ring->index, opcode_name(args->opcode),
		(unsigned long long)r->history.serial, args->fd, args->len, (long long)args->off);
	return true;
}

unsigned mrt__ring_stage_packed(struct mrt__ring *ring, uint64_t head, uint64_t off, uint64_t addr, uint64_t length, void *user)
{
	struct mrt__ring_args args = {
		.opcode = (uint8_t)head, .sqe_flags = (uint8_t)(head >> 8), .buf_index = (uint16_t)(head >> 16),
		.fd = (int32_t)(head >> 32), .off = off, .addr = addr, .len = (uint32_t)length,
		.op_flags = (uint32_t)(length >> 32),
	};

	return mrt__ring_stage(ring, &args, 0, user) ? ring->sq_nr : 0;
}

/* Here a receive ends when it ends. */
void mrt__ring_poll_first(struct mrt__ring *ring)
{
	sim_check(ring->sq_nr > 0 && ring->sq[ring->sq_nr - 1].args.opcode == MRT__OPCODE_RECV,
		  "ring %u: what was staged last is no receive", ring->index);
}

/* What a command does is the device's affair; here it ends as a NOP does, or with an error. */
bool mrt__ring_stage_cmd(struct mrt__ring *ring, const struct mrt__ring_args *args, const void *cmd, void *user)
{
	(void)cmd;
	return mrt__ring_stage(ring, args, 0, user);
}

uint64_t mrt__ring_extra(const struct mrt__ring *ring, unsigned i)
{
	(void)ring;
	(void)i;
	return 0;
}

bool mrt__ring_cancel_file(struct mrt__ring *ring, int fd, bool slot)
{
	check_owner(ring);
	sim_preempt();
	if (ring->polled)
		return true;
	/* where a kernel thread submits an SQ is full more often: then there is an SQE only when that has come round */
	if (ring->sq_nr == ring->sq_entries || chance(sim.opts.refuse))
		return false;
	ring->cancels++;
	stage(ring, &(struct sqe){ .kind = KIND_CANCEL_FILE, .args.fd = fd, .slot = slot, .handle = sim_handle_find(fd, slot) });
	sim_log("ring %u: cancel of %s %d staged", ring->index, slot ? "slot" : "fd", fd);
	return true;
}

struct sim_tables *sim_ring_tables(struct mrt__ring *ring)
{
	check_owner(ring);
	return &ring->tables;
}

unsigned sim_ring_fixed_nr(const struct mrt__ring *ring)
{
	const struct record *r;
	unsigned nr = 0, i;

	for (i = 0; i < BUCKETS_NR; i++)
		for (r = kernel.buckets[i]; r; r = r->next)
			nr += r->ring == ring && r->where == WHERE_KERNEL && is_fixed(&r->args);
	return nr;
}

static void note_cancel(const struct mrt__ring *ring, const void *user)
{
	struct record *r = record_of(user);

	sim_check(r && r->where != WHERE_CALLER && r->ring == ring, "a cancel names an op that the ring does not have");
	r->history.cancel_seen = true;
	sim_log("ring %u: cancel of #%llu staged", ring->index, (unsigned long long)r->history.serial);
}

bool mrt__ring_try_cancel(struct mrt__ring *ring, void *user)
{
	check_owner(ring);
	sim_check(!ring->polled, "ring %u is polled, and cancels nothing", ring->index);
	sim_preempt();
	if (ring->sq_nr == ring->sq_entries)
		return false;
	note_cancel(ring, user);
	stage_cancel(ring, user);
	return true;
}

void mrt__ring_cancel(struct mrt__ring *ring, void *user)
{
	check_owner(ring);
	if (ring->polled)
		return;
	note_cancel(ring, user);
	if (ring->sq_nr == ring->sq_entries)
		(void)mrt__ring_flush(ring);
	if (ring->sq_nr < ring->sq_entries) {
		stage_cancel(ring, user);
		return;
	}
	if (ring->late_nr == ring->late_room) {
		ring->late_room = ring->late_room ? 2 * ring->late_room : 16;
		ring->late = grow(ring->late, ring->late_room * sizeof(void *));
	}
	ring->late[ring->late_nr++] = user;
}

unsigned mrt__ring_staged(const struct mrt__ring *ring)
{
	return ring->sq_nr;
}

int mrt__ring_staged_last(const struct mrt__ring *ring)
{
	return ring->sq_nr == 0 ? -1 : ring->sq[ring->sq_nr - 1].args.opcode; /* a cancel's counts as a NOP */
}

unsigned mrt__ring_ready(const struct mrt__ring *ring)
{
	sim_preempt();
	return ring->cq.nr;
}

bool mrt__ring_has_deferred(const struct mrt__ring *ring)
{
	sim_preempt();
	return ring->deferred.nr > 0 || ring->overflow.nr > 0 || chance(sim.opts.stale);
}

int mrt__ring_flush(struct mrt__ring *ring)
{
	unsigned nr;

	check_owner(ring);
	sim_preempt();
	nr = submit(ring);
	run_deferred(ring);
	catch_up(ring);
	sim_preempt();
	return (int)nr;
}

bool sim_ring_wait_begin(struct mrt__ring *ring)
{
	check_owner(ring);
	sim_preempt();
	(void)submit(ring);
	catch_up(ring);
	run_deferred(ring);
	/* a short submission does not wait, nor does an enter that finds completions */
	return ring->sq_nr == 0 && ring->cq.nr == 0;
}

bool sim_ring_can_wake(const struct mrt__ring *ring)
{
	return ring->deferred.nr > 0 || ring->cq.nr > 0;
}

void sim_ring_wait_end(struct mrt__ring *ring)
{
	run_deferred(ring);
}

void mrt__ring_wait(struct mrt__ring *ring, uint64_t timeout_ns)
{
	(void)timeout_ns;
	sim_fail("ring %u: the simulation parks workers itself", ring->index);
}

/* A completion of the ring's own. @return MRT__RING_EVENT_* */
static unsigned own_done(struct mrt__ring *ring, const struct cqe *cqe)
{
	switch (cqe->kind) {
	case KIND_WAKE:
		return MRT__RING_EVENT_WAKE;
	case KIND_CANCEL:
		sim_check(ring->cancels-- > 0, "ring %u: an answer to no cancel", ring->index);
		return 0;
	case KIND_SENTRY:
		if (!ring->sentry_expired)
			return 0; /* set anew or stopped meanwhile: nothing to read */
		ring->sentry_expired = false;
		ring->sentry_next_ns = sim.now_ns + 1 + below(ring->sentry_period_ns);
		return MRT__RING_EVENT_SENTRY;
	case KIND_OP:
	case KIND_CANCEL_FILE:
		break;
	}
	sim_fail("ring %u: a completion of no kind", ring->index);
}

static void hand_back(struct mrt__ring *ring, const struct cqe *cqe)
{
	struct record *r = record_of(cqe->user);
	unsigned i, kept = 0;

	sim_check(r && r->where == WHERE_CQ && r->ring == ring, "a completion of an op that the kernel does not have");
	check_alive(r, "it is handed back");
	r->where = WHERE_CALLER;
	r->history.ends++;
	for (i = 0; i < ring->late_nr; i++)
		if (ring->late[i] != cqe->user)
			ring->late[kept++] = ring->late[i];
	ring->late_nr = kept;
}

unsigned mrt__ring_reap(struct mrt__ring *ring, struct mrt__ring_done *done, unsigned max, unsigned *ret_events)
{
	unsigned nr = 0, seen = 0;

	check_owner(ring);
	for (; ring->cq.nr > 0; seen++) {
		struct cqe cqe = *queue_at(&ring->cq, 0);

		if (cqe.kind == KIND_OP) {
			if (nr == max)
				break;
			hand_back(ring, &cqe);
			done[nr++] = (struct mrt__ring_done){ .user = cqe.user, .res = cqe.res };
		} else {
			*ret_events |= own_done(ring, &cqe);
		}
		(void)queue_pop(&ring->cq);
	}
	mrt__stat_add(&ring->stats->cqes, seen);
	catch_up(ring);
	return nr;
}

void mrt__ring_wake(struct mrt__ring *ring)
{
	sim_check(!ring->polled, "ring %u is polled, and nothing wakes it", ring->index);
	if (!ring->wake_posted) {
		ring->wake_posted = true;
		queue_push(&ring->deferred, (struct cqe){ .kind = KIND_WAKE });
	}
	sim_log("ring %u: woken", ring->index);
	sim_preempt();
}

uint64_t mrt__ring_sq_thread_ns(struct mrt__ring *ring)
{
	(void)ring;
	return 0; /* no ring has SQPOLL here */
}

void mrt__ring_sentry_arm(struct mrt__ring *ring, uint64_t ns)
{
	ring->sentry_period_ns = ns;
	ring->sentry_next_ns = sim.now_ns + ns;
	ring->sentry_expired = false;
	sim_log("ring %u: sentry's timer armed", ring->index);
	sim_preempt();
}

void mrt__ring_sentry_disarm(struct mrt__ring *ring)
{
	ring->sentry_period_ns = 0;
	ring->sentry_next_ns = SIM_NEVER;
	ring->sentry_expired = false;
	sim_log("ring %u: sentry's timer stopped", ring->index);
	sim_preempt();
}

bool mrt__ring_has_opcode(const struct mrt__ring *ring, enum mrt__opcode opcode)
{
	(void)ring;
	/* what hides is an old kernel */
	return opcode != MRT__OPCODE_BIND || !sim.opts.hide;
}

void mrt__ring_report(struct mrt__ring *ring, struct mrt_ring_report *ret_report)
{
	*ret_report = (struct mrt_ring_report){
		.sq_entries = ring->sq_entries, .cq_entries = ring->cq_entries, .text = "simulated",
	};
}

/* ---- begin and end ---- */

void sim_kernel_start(void)
{
	memset(&kernel, 0, sizeof(kernel));
}

void sim_kernel_finish(void)
{
	unsigned i;

	sim_check(kernel.kernel_nr == 0 && kernel.heap_nr == 0, "the kernel still has %zu ops", kernel.kernel_nr);
	for (i = 0; i < BUCKETS_NR; i++) {
		struct record *r = kernel.buckets[i], *next;

		for (; r; r = next) {
			next = r->next;
			sim_check(r->where == WHERE_CALLER, "op #%llu was never handed back",
				  (unsigned long long)r->history.serial);
			free(r);
		}
	}
	/* what a task did not take was closed behind the kernel's back, by close(2) */
	for (i = 0; i < kernel.fds_nr; i++)
		sim_check(fcntl(kernel.fds[i], F_GETFD) < 0, "descriptor %d was opened and nobody closed it",
			  kernel.fds[i]);
	free(kernel.heap);
	kernel.heap = NULL;
	kernel.heap_nr = kernel.heap_room = 0;
}
