/* SPDX-License-Identifier: MIT */
/*
 * See sim_actor.h. An actor's frame holds a few slots, each with an op, its deadline, its buffer, and what was asked;
 * when the op is delivered, the answer is held against that and against the ledger of the simulated kernel:
 *
 *	the kernel never saw it     then it was cancelled, timed out or refused, and there was a cause
 *	a plain op                  the kernel's last word
 *	an _all form                what was moved in all, and why it ended; an error only if nothing was moved
 *
 * A cause must be there: no -ECANCELED without a cancel or an abort, no -ETIMEDOUT before the deadline. Buffers hold a
 * pattern of descriptor and offset as far as the result says, and are untouched beyond. After delivery a buffer is
 * filled with a mark, which must be there when it is used next: whoever writes later is caught.
 *
 * Handles and blocks of the arena are everybody's. A block is one op's at a time, but anybody may free it under the op, and
 * anybody may close a handle; which of them are meant to be what is in sim_ledger.h.
 */
#include "sim_actor.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <martlet/arena.h>
#include <martlet/blocking.h>
#include <martlet/file.h>
#include <martlet/net.h>
#include <martlet/scope.h>
#include <martlet/sync.h>
#include <martlet/task.h>
#include <martlet/time.h>

#include "base/compiler.h"
#include "sim.h"
#include "sim_ledger.h"
#include "sim_regs.h"

#define SLOTS_NR 8u
#define BUF_BYTES 96u
#define IOV_NR 3u
#define MARK_OWNED 0xcc         /* the op's buffer, before it is written */
#define MARK_FREE 0xee          /* between ops */
#define MAGIC UINT64_C(0x6d61727461637472)
#define HANDLES_NR 32u
#define CHANNELS_NR 2u
#define ONESHOTS_NR 8u
#define PERMITS 5u
#define CHILDREN_MAX 4u
#define RESTARTSYS 512

enum kind {
	KIND_READ, KIND_READ_EXACT, KIND_WRITE, KIND_WRITE_ALL, KIND_READV, KIND_WRITEV, KIND_RECV, KIND_RECV_EXACT,
	KIND_SEND, KIND_SEND_ALL, KIND_NOP, KIND_FSYNC, KIND_UNLINK, KIND_SLEEP,
	KIND_ENDS_NR,           /* up to here: they end by themselves */
	KIND_IDLE_RECV = KIND_ENDS_NR, KIND_IDLE_RECV_EXACT, KIND_IDLE_POLL, KIND_IDLE_ACCEPT, KIND_SLEEP_FOR_EVER,
	KIND_NOTIFY, KIND_SEMAPHORE, KIND_CHANNEL_SEND, KIND_CHANNEL_RECV, KIND_ONESHOT,
	KIND_WAITS_NR
};

struct slot {
	struct mrt_op op;
	struct mrt_timer timer;
	uint8_t kind;
	bool ring;
	bool all;
	bool cancelled;
	bool shielded;
	bool refused;           /* its handle or its memory was none any more when it was started */
	int fd;                 /* by a handle: the file that it must reach */
	unsigned handle, block; /* sim_ledger.h; 0: none */
	uint64_t off;
	size_t len;
	uint64_t deadline_ns;   /* 0: none */
	uint64_t when_ns;       /* sleep: its end */
	unsigned object;
	uint64_t permits;
	uint64_t msg;
	struct iovec iov[IOV_NR];
	unsigned char *data;    /* [BUF_BYTES] buf, or memory of the arena */
	unsigned char buf[BUF_BYTES];
};

struct actor {
	uint64_t magic;
	struct sim_rand rand;
	uint32_t serial;
	uint32_t left;
	uint32_t act;
	uint32_t depth;
	bool in_poll;
	bool begun;
	bool polled;
	bool fails;             /* its result is negative */
	uint32_t rounds;
	struct actor *parent;   /* a scope's child: its parent's frame, which must outlive it */
	struct mrt_call call;
	struct mrt_op pause;
	struct mrt_op join;
	struct mrt_op *ops[SLOTS_NR];
	size_t idx;
	struct mrt_task *child;
	uint32_t child_serial;
	bool child_aborted;
	unsigned handle;
	struct mrt_scope scope;
	struct slot slots[SLOTS_NR];
};

/* What happens to a message. */
enum message {
	MESSAGE_NONE,
	MESSAGE_SENDING,
	MESSAGE_SENT,
	MESSAGE_CANCELLED,
	MESSAGE_UNKNOWN,        /* its sender returned without waiting */
	MESSAGE_RECEIVED,
};

static struct {
	struct sim_actors_opts opts;
	struct sim_rand rand;
	unsigned weights_sum;
	uint32_t serials;
	unsigned alive;
	struct mrt_task *handles[HANDLES_NR];
	struct mrt_channel *channels[CHANNELS_NR];
	struct mrt_semaphore semaphore;
	struct mrt_notify notify;
	struct mrt_oneshot oneshots[ONESHOTS_NR];
	bool oneshot_sent[ONESHOTS_NR];
	bool oneshot_closed[ONESHOTS_NR];
	bool channel_closed[CHANNELS_NR];
	bool semaphore_closed;
	uint8_t *messages;      /* [messages_room] enum message */
	uint64_t messages_nr, messages_room;
	uint64_t forgotten_recvs;
	uint64_t permits_held;
	int streams;
} world;

static const char *const kind_names[KIND_WAITS_NR] = {
	"read", "read_exact", "write", "write_all", "readv", "writev", "recv", "recv_exact", "send", "send_all", "nop",
	"fsync", "unlink", "sleep", "idle recv", "idle recv_exact", "idle poll", "idle accept", "sleep for ever", "notify",
	"semaphore", "channel send", "channel recv", "oneshot",
};

static uint64_t below(struct actor *a, uint64_t n)
{
	return sim_rand_below(&a->rand, n);
}

static bool chance(struct actor *a, unsigned per_mille)
{
	return sim_rand_chance(&a->rand, per_mille);
}

/* Many short, few long, 0 now and then. */
static uint64_t draw_ns(struct actor *a, uint64_t max)
{
	static const uint64_t shares[] = { 0, 1000, 1000, 50, 50, 3, 1 };
	uint64_t share = shares[below(a, MRT__ARRAY_NR(shares))];

	return share ? below(a, max / share + 1) : 0;
}

/* ---- messages ---- */

static uint64_t message_new(void)
{
	if (world.messages_nr == world.messages_room) {
		world.messages_room = world.messages_room ? 2 * world.messages_room : 256;
		world.messages = realloc(world.messages, world.messages_room);
		sim_check(world.messages, "no memory");
	}
	world.messages[world.messages_nr] = MESSAGE_SENDING;
	return world.messages_nr++;
}

static void message_received(uint64_t msg)
{
	sim_check(msg < world.messages_nr, "a message was received that nobody sent: %" PRIu64, msg);
	sim_check(world.messages[msg] != MESSAGE_RECEIVED, "message %" PRIu64 " was received twice", msg);
	sim_check(world.messages[msg] != MESSAGE_CANCELLED, "message %" PRIu64 " was received, but its send failed", msg);
	world.messages[msg] = MESSAGE_RECEIVED;
}

static void message_sent(uint64_t msg)
{
	if (world.messages[msg] == MESSAGE_SENDING)
		world.messages[msg] = MESSAGE_SENT; /* it may have been received already */
}

static void message_not_sent(uint64_t msg, int64_t res)
{
	sim_check(world.messages[msg] == MESSAGE_SENDING, "message %" PRIu64 " was received, but its send says %" PRId64,
		  msg, res);
	world.messages[msg] = MESSAGE_CANCELLED;
}

/* ---- starting ops ---- */

static bool is_read(unsigned kind)
{
	return kind == KIND_READ || kind == KIND_READ_EXACT || kind == KIND_READV || kind == KIND_RECV ||
	       kind == KIND_RECV_EXACT || kind == KIND_IDLE_RECV || kind == KIND_IDLE_RECV_EXACT;
}

static bool moves_data(unsigned kind)
{
	return kind <= KIND_SEND_ALL || kind == KIND_IDLE_RECV || kind == KIND_IDLE_RECV_EXACT;
}

/* ---- handles and blocks ---- */

static struct mrt_runtime *runtime(void)
{
	return (struct mrt_runtime *)(void *)sim.sched;
}

/* What files a kind can be by, if they are everybody's; 0: none. On a stream only one receive: others may come in between. */
static int range_of(unsigned kind)
{
	if (kind <= KIND_WRITEV || kind == KIND_FSYNC)
		return SIM_FD_DISK;
	if (kind == KIND_RECV)
		return SIM_FD_STREAM;
	return kind == KIND_IDLE_RECV || kind == KIND_IDLE_POLL || kind == KIND_IDLE_ACCEPT ? SIM_FD_IDLE : 0;
}

static void use_handle(struct slot *s, unsigned id)
{
	s->handle = id;
	s->fd = sim_handle_at(id)->file;
	s->refused = s->refused || sim_handle_at(id)->ended;
}

/* @return 0: there is no room, or who asks would have to wait */
static unsigned new_block(struct sim_rand *rand)
{
	size_t units = sim_rand_chance(rand, 100) ? 1 + sim_rand_below(rand, 400) : 1 + sim_rand_below(rand, 6);
	size_t align = sim_rand_chance(rand, 100) ? MRT_ARENA_UNIT << sim_rand_below(rand, 10) : 0;
	void *p;
	int err;

	if (sim.registering)
		return 0;
	err = mrt_alloc(runtime(), units * MRT_ARENA_UNIT - sim_rand_below(rand, 100), align, &p);
	sim_check(!err || err == -ENOMEM, "an allocation fails with %d", err);
	return err ? 0 : sim_block_new(p, units * MRT_ARENA_UNIT);
}

static void free_block(unsigned id)
{
	sim_block_freed(id);
	mrt_free(runtime(), sim_block_at(id)->base);
}

/* Now and then memory that was freed, or that runs beyond its block: such ops never reach the kernel. */
static void use_block(struct actor *a, struct slot *s)
{
	bool vectored = s->kind == KIND_READV || s->kind == KIND_WRITEV;
	struct sim_block *b;
	size_t off;

	if (chance(a, 30)) {
		s->block = sim_block_draw_freed(&a->rand);
		s->refused = s->refused || s->block;
	} else {
		s->block = sim_block_draw(&a->rand, true);
		if (!s->block || chance(a, 200))
			s->block = new_block(&a->rand);
	}
	if (!s->block)
		return;
	b = sim_block_at(s->block);
	b->busy = b->starting = true;
	/* an empty segment behind the last byte would be outside; and segments may be cut where the next block begins */
	off = b->bytes - BUF_BYTES - vectored;
	if (!b->freed && s->len > 1 && !vectored && chance(a, 30)) {
		off = b->bytes - s->len / 2;
		s->refused = true;
	} else if (chance(a, 800)) {
		off = below(a, off + 1);
	}
	s->data = (unsigned char *)b->base + off;
}

/* May the memory be looked at? */
static bool has_data(const struct slot *s)
{
	return !s->refused && (!s->block || !sim_block_at(s->block)->freed);
}

static int descriptor_of(const struct slot *s)
{
	return s->handle ? sim_handle_at(s->handle)->handle : s->fd;
}

static void prepare(struct actor *a, struct slot *s, unsigned kind)
{
	int range = range_of(kind);
	unsigned id;
	size_t i;

	for (i = 0; i < BUF_BYTES && a->begun; i++)
		sim_check(s->buf[i] == MARK_FREE, "somebody wrote into a buffer after its op was delivered");
	s->kind = (uint8_t)kind;
	s->ring = kind <= KIND_UNLINK || (kind >= KIND_IDLE_RECV && kind <= KIND_IDLE_ACCEPT);
	s->all = kind == KIND_READ_EXACT || kind == KIND_WRITE_ALL || kind == KIND_RECV_EXACT || kind == KIND_SEND_ALL ||
		 kind == KIND_IDLE_RECV_EXACT;
	s->cancelled = s->shielded = s->refused = false;
	s->deadline_ns = 0;
	s->handle = s->block = 0;
	s->data = s->buf;
	s->len = 1 + below(a, BUF_BYTES);
	s->off = below(a, 1 << 20);
	s->fd = SIM_FD_DISK + (int)below(a, SIM_FD_PLAIN);
	if (kind >= KIND_RECV && kind <= KIND_SEND_ALL)
		s->fd = SIM_FD_STREAM + world.streams++ % SIM_FD_PLAIN;
	else if (kind >= KIND_IDLE_RECV)
		s->fd = SIM_FD_IDLE + world.streams++ % SIM_FD_PLAIN;
	if (moves_data(kind) && chance(a, world.opts.on_block))
		use_block(a, s);
	/* the file comes first, and while it is looked up memory that was freed may become another block */
	if (range && !s->refused && chance(a, world.opts.by_handle)) {
		id = sim_handle_draw(&a->rand, range, chance(a, 900));
		if (id)
			use_handle(s, id);
	}
	memset(s->buf, MARK_OWNED, BUF_BYTES);
	if (has_data(s) && s->block)
		memset(s->data, MARK_OWNED, BUF_BYTES);
	if (has_data(s) && (kind == KIND_SEND || kind == KIND_SEND_ALL))
		sim_pattern_fill(s->data, s->len, s->fd, sim_stream_pos(s->fd));
	else if (has_data(s) && !is_read(kind))
		sim_pattern_fill(s->data, s->len, s->fd, s->off);
	if (!s->ring)
		return;
	sim_op_begin(&s->op, s->all);
	sim_op_uses(&s->op, s->handle, s->block);
}

/* Cut the buffer into segments, some of them empty. */
static unsigned cut(struct actor *a, struct slot *s)
{
	size_t first = below(a, s->len + 1), second = below(a, s->len - first + 1);

	s->iov[0] = (struct iovec){ s->data, first };
	s->iov[1] = (struct iovec){ s->data + first, second };
	s->iov[2] = (struct iovec){ s->data + first + second, s->len - first - second };
	return IOV_NR;
}

static void start_sleep(struct actor *a, struct slot *s)
{
	uint64_t ns = draw_ns(a, world.opts.sleep_ns_max);

	if (s->kind == KIND_SLEEP_FOR_EVER) {
		s->when_ns = UINT64_MAX;
		mrt_sleep(&s->op, UINT64_MAX);
	} else if (chance(a, 500)) {
		s->when_ns = sim.now_ns + ns;
		mrt_sleep(&s->op, ns);
	} else {
		s->when_ns = sim.now_ns > 1000 && chance(a, 50) ? sim.now_ns - 1000 : sim.now_ns + ns;
		mrt_sleep_until(&s->op, s->when_ns);
	}
}

static void start_wait(struct actor *a, struct slot *s)
{
	switch (s->kind) {
	case KIND_NOTIFY:
		mrt_notify_wait(&s->op, &world.notify);
		break;
	case KIND_SEMAPHORE:
		s->permits = 1 + below(a, PERMITS);
		mrt_semaphore_acquire(&s->op, &world.semaphore, s->permits);
		break;
	case KIND_CHANNEL_SEND:
		s->object = (unsigned)below(a, CHANNELS_NR);
		s->msg = message_new();
		mrt_channel_send(&s->op, world.channels[s->object], &s->msg);
		break;
	case KIND_CHANNEL_RECV:
		s->object = (unsigned)below(a, CHANNELS_NR);
		s->msg = UINT64_MAX;
		mrt_channel_recv(&s->op, world.channels[s->object], &s->msg);
		break;
	case KIND_ONESHOT:
		s->object = (unsigned)below(a, ONESHOTS_NR);
		mrt_oneshot_recv(&s->op, &world.oneshots[s->object]);
		break;
	default:
		sim_fail("kind %u is no wait", s->kind);
	}
}

static void start_kind(struct actor *a, struct slot *s)
{
	int64_t off = (int64_t)s->off;
	int fd = descriptor_of(s);

	switch (s->kind) {
	case KIND_READ:
		mrt_read(&s->op, fd, s->data, s->len, off);
		break;
	case KIND_READ_EXACT:
		mrt_read_exact(&s->op, fd, s->data, s->len, off);
		break;
	case KIND_WRITE:
		mrt_write(&s->op, fd, s->data, s->len, off);
		break;
	case KIND_WRITE_ALL:
		mrt_write_all(&s->op, fd, s->data, s->len, off);
		break;
	case KIND_READV:
		mrt_readv(&s->op, fd, s->iov, cut(a, s), off);
		break;
	case KIND_WRITEV:
		mrt_writev(&s->op, fd, s->iov, cut(a, s), off);
		break;
	case KIND_RECV:
	case KIND_IDLE_RECV:
		mrt_recv(&s->op, fd, s->data, s->len, 0);
		break;
	case KIND_RECV_EXACT:
	case KIND_IDLE_RECV_EXACT:
		mrt_recv_exact(&s->op, fd, s->data, s->len);
		break;
	case KIND_SEND:
		mrt_send(&s->op, fd, s->data, s->len, 0);
		break;
	case KIND_SEND_ALL:
		mrt_send_all(&s->op, fd, s->data, s->len);
		break;
	case KIND_NOP:
		mrt_nop(&s->op);
		break;
	case KIND_FSYNC:
		mrt_fsync(&s->op, fd);
		break;
	case KIND_UNLINK: {
		char path[] = "some/path"; /* gone when the kernel reads its copy */

		mrt_unlink(&s->op, -1, path, 0);
		memset(path, 0, sizeof(path));
		break;
	}
	case KIND_IDLE_POLL:
		mrt_poll_fd(&s->op, fd, POLLIN);
		break;
	case KIND_IDLE_ACCEPT:
		mrt_accept(&s->op, fd, NULL, NULL, 0);
		break;
	case KIND_SLEEP:
	case KIND_SLEEP_FOR_EVER:
		start_sleep(a, s);
		break;
	default:
		start_wait(a, s);
	}
	if (s->block)
		sim_block_at(s->block)->starting = false;
}

static void start(struct actor *a, struct slot *s, unsigned kind)
{
	prepare(a, s, kind);
	s->shielded = mrt_task_self()->shield > 0;
	sim_log("starts %s #%" PRIu64, kind_names[kind], s->ring ? sim_op_serial(&s->op) : 0);
	start_kind(a, s);
}

static unsigned draw_ending(struct actor *a)
{
	/* sleeps often, and the rest evenly */
	return chance(a, 250) ? KIND_SLEEP : (unsigned)below(a, KIND_ENDS_NR);
}

static unsigned draw_waiting(struct actor *a)
{
	return KIND_ENDS_NR + (unsigned)below(a, KIND_WAITS_NR - KIND_ENDS_NR);
}

static void add_deadline(struct actor *a, struct slot *s)
{
	uint64_t ns = draw_ns(a, world.opts.sleep_ns_max);

	if (mrt_op_is_done(&s->op))
		return;
	s->deadline_ns = sim.now_ns + ns;
	sim_log("deadline in %" PRIu64 " ns", ns);
	mrt_deadline(&s->op, &s->timer, ns);
}

static void cancel(struct slot *s)
{
	if (mrt_op_is_done(&s->op))
		return;
	s->cancelled = true;
	sim_log("cancels %s #%" PRIu64, kind_names[s->kind], s->ring ? sim_op_serial(&s->op) : 0);
	mrt_cancel(&s->op);
}

/* ---- checking what was delivered ---- */

/* Codes of the runtime's own need a cause. @return it is one, and it has */
static bool is_excused(const struct slot *s, int64_t code)
{
	bool aborted = mrt_task_is_aborted(mrt_task_self()) && !s->shielded;
	bool closed = s->handle && sim_handle_at(s->handle)->closers > 0;

	switch (code) {
	case -ECANCELED:
		sim_check(s->cancelled || aborted || closed, "%s ends with ECANCELED, but nobody cancelled it", kind_names[s->kind]);
		return true;
	case -EBADF:
		sim_check(closed, "%s ends with EBADF, but nobody closed its handle", kind_names[s->kind]);
		return true;
	case -EFAULT:
		sim_check(s->block && (s->refused || sim_block_at(s->block)->freed), "%s ends with EFAULT, but its memory is fine",
			  kind_names[s->kind]);
		return true;
	case -ETIMEDOUT:
		sim_check(s->deadline_ns && sim.now_ns >= s->deadline_ns, "%s times out %s", kind_names[s->kind],
			  s->deadline_ns ? "before its deadline" : "without a deadline");
		return true;
	case -ESHUTDOWN:
		sim_check(sim.closing && aborted, "%s ends with ESHUTDOWN, but nothing is closing", kind_names[s->kind]);
		return true;
	default:
		return false;
	}
}

/* Does `code` rightly stand for what the kernel said? */
static void check_mapped(const struct slot *s, const struct sim_op_history *h, int64_t code)
{
	/* of an op by a handle one such close, or one error, is made up for */
	bool given_up = h->twins_closed > 0 && (!s->handle || h->twins_closed + h->retries > 1);
	uint64_t serial = h->serial;
	int32_t kernel = h->last;

	if (kernel == -ECANCELED || kernel == -RESTARTSYS) {
		sim_check((code == -EAGAIN && given_up) || is_excused(s, code),
			  "op #%" PRIu64 " gives %" PRId64 ", the kernel said %d", serial, code, kernel);
		return;
	}
	/* what a stopped request says in io-wq; or it was to be tried again, and then it was too late */
	if ((kernel == -EINTR || kernel == -EAGAIN || kernel == -EOPNOTSUPP) && code != kernel) {
		sim_check(is_excused(s, code), "op #%" PRIu64 " gives %" PRId64 ", the kernel said %d", serial, code, kernel);
		return;
	}
	sim_check(code == kernel, "op #%" PRIu64 " gives %" PRId64 ", the kernel said %d", serial, code, kernel);
}

static void check_buffer(const struct slot *s, int64_t res, uint64_t pos)
{
	size_t good = res > 0 ? (size_t)res : 0, i;

	sim_check(good <= s->len, "%s gives %" PRId64 " of %zu bytes", kind_names[s->kind], res, s->len);
	if (!is_read(s->kind) || !has_data(s))
		return;
	sim_check(sim_pattern_is(s->data, good, s->fd, pos), "%s of %" PRId64 " bytes: not what is in the file",
		  kind_names[s->kind], res);
	for (i = good; i < BUF_BYTES; i++)
		sim_check(s->data[i] == MARK_OWNED, "%s of %" PRId64 " bytes: byte %zu was written, too",
			  kind_names[s->kind], res, i);
}

static void check_ring_op(struct slot *s)
{
	struct sim_op_history h;
	int64_t res = s->op.res;

	if (!sim_op_end(&s->op, &h)) {
		sim_check(is_excused(s, res), "op #%" PRIu64 " gives %" PRId64 ", but the kernel never saw it", h.serial,
			  res);
		check_buffer(s, 0, 0);
		return;
	}
	sim_check(!s->refused, "op #%" PRIu64 " was not refused", h.serial);
	sim_check(h.stages == h.ends, "op #%" PRIu64 " was staged %u times, and ended %u times", h.serial, h.stages, h.ends);
	if (h.moved > 0) {
		sim_check(res == h.moved, "op #%" PRIu64 " moved %" PRId64 " bytes, but gives %" PRId64, h.serial, h.moved,
			  res);
		if (h.last < 0)
			check_mapped(s, &h, s->op.why);
		else if (s->op.why) /* the rest was cancelled before it was staged again */
			sim_check(s->all && is_excused(s, s->op.why), "op #%" PRIu64 ": why is %d", h.serial, s->op.why);
		else
			sim_check(!s->all || res == (int64_t)s->len || h.last == 0,
				  "op #%" PRIu64 " gives %" PRId64 " of %zu bytes and says not why", h.serial, res, s->len);
	} else if (h.last >= 0) {
		sim_check(res == h.last, "op #%" PRIu64 " gives %" PRId64 ", the kernel said %d", h.serial, res, h.last);
	} else if ((h.last == -EAGAIN || h.last == -EINTR) && res != h.last) {
		/* tried again, and cancelled before it was staged */
		sim_check(is_excused(s, res), "op #%" PRIu64 " gives %" PRId64 ", the kernel said %d", h.serial, res, h.last);
	} else {
		check_mapped(s, &h, res);
	}
	check_buffer(s, res, s->fd >= SIM_FD_STREAM ? h.stream_pos : s->off);
}

/* The object was closed, and says so. */
static bool is_closed(const struct slot *s, int64_t res)
{
	if (res != -EPIPE)
		return false;
	switch (s->kind) {
	case KIND_SEMAPHORE:
		return world.semaphore_closed;
	case KIND_CHANNEL_SEND:
	case KIND_CHANNEL_RECV:
		return world.channel_closed[s->object];
	case KIND_ONESHOT:
		return world.oneshot_closed[s->object];
	default:
		return false;
	}
}

static void check_wait(struct slot *s)
{
	int64_t res = s->op.res;
	bool good = res >= 0 || (!is_excused(s, res) && !is_closed(s, res));

	switch (s->kind) {
	case KIND_SLEEP:
	case KIND_SLEEP_FOR_EVER:
		sim_check(!good || res == 0, "a sleep gives %" PRId64, res);
		sim_check(!good || sim.now_ns >= s->when_ns, "a sleep ends %" PRIu64 " ns early", s->when_ns - sim.now_ns);
		break;
	case KIND_NOTIFY:
		sim_check(!good || res == 0, "a notification gives %" PRId64, res);
		break;
	case KIND_SEMAPHORE:
		sim_check(!good || res == 0, "a semaphore gives %" PRId64, res);
		if (good)
			world.permits_held += s->permits;
		sim_check(world.permits_held <= PERMITS, "%" PRIu64 " permits of %u are held", world.permits_held, PERMITS);
		break;
	case KIND_CHANNEL_SEND:
		sim_check(!good || res == 0, "a channel's send gives %" PRId64, res);
		if (good)
			message_sent(s->msg);
		else
			message_not_sent(s->msg, res);
		break;
	case KIND_CHANNEL_RECV:
		sim_check(!good || res == 0, "a channel's receive gives %" PRId64, res);
		if (good)
			message_received(s->msg);
		else
			sim_check(s->msg == UINT64_MAX, "a receive gives %" PRId64 ", but took a message", res);
		break;
	case KIND_ONESHOT:
		sim_check(!good || (world.oneshot_sent[s->object] && res == (int64_t)s->object), "a oneshot gives %" PRId64,
			  res);
		break;
	default:
		sim_fail("kind %u is no wait", s->kind);
	}
}

/* The op was awaited: check it, and take the buffer back. */
static void finish(struct slot *s)
{
	sim_check(mrt_op_is_done(&s->op), "an await of %s returned before its op was delivered", kind_names[s->kind]);
	sim_log("%s gives %" PRId64 "%s", kind_names[s->kind], s->op.res, s->op.why ? ", with a reason" : "");
	if (s->ring)
		check_ring_op(s);
	else
		check_wait(s);
	memset(s->buf, MARK_FREE, BUF_BYTES);
	if (s->block)
		sim_block_at(s->block)->busy = false;
	if (s->kind == KIND_SEMAPHORE && s->op.res == 0) {
		world.permits_held -= s->permits;
		sim_check(!mrt_semaphore_release(&world.semaphore, s->permits), "permits are refused");
	}
}

/* Something short to wait for. */
static struct mrt_op *pause(struct actor *a)
{
	switch (below(a, 3)) {
	case 0:
		return mrt_yield(&a->pause);
	case 1:
		sim_op_begin(&a->pause, false);
		return mrt_nop(&a->pause);
	default:
		return mrt_sleep(&a->pause, draw_ns(a, world.opts.sleep_ns_max));
	}
}

/* ---- acts: each is a sub-task on the actor's own frame ---- */

static enum mrt_poll act_op(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	struct slot *s = &a->slots[0];

	MRT_BEGIN(self);
	start(a, s, chance(a, 700) ? draw_ending(a) : draw_waiting(a));
	if (s->kind >= KIND_ENDS_NR || chance(a, 300))
		add_deadline(a, s);
	if (chance(a, 100))
		cancel(s);
	if (chance(a, 200)) {
		MRT_AWAIT(self, pause(a));
		if (chance(a, 500))
			cancel(s);
	}
	MRT_AWAIT(self, &s->op);
	finish(s);
	MRT_RETURN(self, 0);
}

static void start_several(struct actor *a)
{
	unsigned i, nr = 1 + (unsigned)below(a, SLOTS_NR);

	for (i = 0; i < SLOTS_NR; i++) {
		struct slot *s = &a->slots[i];

		a->ops[i] = NULL;
		if (i >= nr || (i > 0 && chance(a, 100)))
			continue;
		start(a, s, chance(a, 600) ? draw_ending(a) : draw_waiting(a));
		if (s->kind >= KIND_ENDS_NR || chance(a, 100))
			add_deadline(a, s);
		a->ops[i] = &s->op;
	}
}

static void cancel_some(struct actor *a, unsigned per_mille)
{
	unsigned i;

	for (i = 0; i < SLOTS_NR; i++)
		if (a->ops[i] && chance(a, per_mille))
			cancel(&a->slots[i]);
}

static enum mrt_poll act_all(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	unsigned i;

	MRT_BEGIN(self);
	start_several(a);
	cancel_some(a, 100);
	if (chance(a, 200)) {
		MRT_AWAIT(self, pause(a));
		cancel_some(a, 300);
	}
	MRT_AWAIT_ALL(self, a->ops, SLOTS_NR);
	for (i = 0; i < SLOTS_NR; i++)
		if (a->ops[i])
			finish(&a->slots[i]);
	MRT_RETURN(self, 0);
}

static bool has_ops(const struct actor *a)
{
	unsigned i;

	for (i = 0; i < SLOTS_NR; i++)
		if (a->ops[i])
			return true;
	return false;
}

static enum mrt_poll act_any(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	MRT_BEGIN(self);
	start_several(a);
	while (has_ops(a)) {
		MRT_AWAIT_ANY(self, a->ops, SLOTS_NR, a->idx);
		finish(&a->slots[a->idx]);
		a->ops[a->idx] = NULL;
		cancel_some(a, 200);
		if (chance(a, 100))
			MRT_AWAIT(self, pause(a));
	}
	MRT_RETURN(self, 0);
}

static void give_oneshot(unsigned i, bool closes)
{
	bool settled = world.oneshot_sent[i] || world.oneshot_closed[i];
	int err;

	if (!settled && closes)
		world.oneshot_closed[i] = true;
	else if (!settled)
		world.oneshot_sent[i] = true;
	err = closes ? mrt_oneshot_close(&world.oneshots[i]) : mrt_oneshot_send(&world.oneshots[i], i);
	sim_check(err == (settled ? -EALREADY : 0), "a oneshot that was%s settled says %d", settled ? "" : " not", err);
}

/* Do something that others wait for. */
static void give(struct sim_rand *rand)
{
	unsigned i;
	uint64_t msg;

	switch (sim_rand_below(rand, 5)) {
	case 0:
		mrt_notify_one(&world.notify);
		break;
	case 1:
		mrt_notify_all(&world.notify);
		break;
	case 2:
		i = (unsigned)sim_rand_below(rand, ONESHOTS_NR);
		give_oneshot(i, sim_rand_chance(rand, 200));
		break;
	case 3:
		i = (unsigned)sim_rand_below(rand, CHANNELS_NR);
		if (!mrt_channel_try_recv(world.channels[i], &msg))
			message_received(msg);
		break;
	default:
		i = (unsigned)sim_rand_below(rand, CHANNELS_NR);
		msg = message_new();
		if (!mrt_channel_try_send(world.channels[i], &msg))
			message_sent(msg);
		else
			message_not_sent(msg, -EAGAIN);
	}
}

static enum mrt_poll act_sync(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	struct slot *s = &a->slots[1];

	MRT_BEGIN(self);
	give(&a->rand);
	start(a, s, KIND_NOTIFY + (unsigned)below(a, KIND_WAITS_NR - KIND_NOTIFY));
	add_deadline(a, s);
	if (chance(a, 300)) {
		MRT_AWAIT(self, pause(a));
		if (chance(a, 300))
			cancel(s);
	}
	MRT_AWAIT(self, &s->op);
	finish(s);
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_yield(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_yield(&a->pause));
	sim_check(a->pause.res == 0 || (a->pause.res == -ECANCELED && mrt_task_is_aborted(self)),
		  "a yield gives %" PRId64, a->pause.res);
	if (chance(a, 300))
		mrt_flush();
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_budget(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	MRT_BEGIN(self);
	for (a->rounds = (uint32_t)below(a, 300); a->rounds > 0; a->rounds--)
		MRT_AWAIT(self, mrt_sleep(&a->pause, 0));
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_shield(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	struct slot *s = &a->slots[2];

	MRT_BEGIN(self);
	mrt_shield(self, true);
	start(a, s, draw_ending(a));
	MRT_AWAIT(self, &s->op);
	finish(s);
	if (chance(a, 500)) {
		start(a, s, draw_ending(a));
		mrt_shield(self, false); /* it stays shielded */
	} else {
		mrt_shield(self, false);
		start(a, s, draw_ending(a));
	}
	MRT_AWAIT(self, &s->op);
	finish(s);
	MRT_RETURN(self, 0);
}

/* ---- children ---- */

static enum mrt_poll actor_poll(struct mrt_task *self, void *frame);

static void draw_actor(struct sim_rand *rand, struct actor *ret)
{
	unsigned i;

	memset(ret, 0, sizeof(*ret));
	ret->magic = MAGIC;
	ret->rand.state = sim_rand_next(rand);
	ret->serial = ++world.serials;
	ret->left = 1 + (uint32_t)sim_rand_below(rand, world.opts.acts_max);
	for (i = 0; i < SLOTS_NR; i++)
		memset(ret->slots[i].buf, MARK_FREE, BUF_BYTES);
	ret->begun = true;
}

static int spawn_actor(const struct actor *child, struct sim_rand *rand, struct mrt_task **ret_task)
{
	struct mrt_spawn_opts so = { .size = sizeof(so), .name = "actor" };
	int err;

	if (sim_rand_chance(rand, 300))
		so.flags = MRT_SPAWN_SPREAD;
	err = mrt_spawn((struct mrt_runtime *)(void *)sim.sched, actor_poll, child, sizeof(*child), &so, ret_task);
	sim_check(!err || (err == -ESHUTDOWN && sim.closing), "a spawn fails with %d", err);
	if (!err) {
		world.alive++;
		sim_log("spawns actor %u", child->serial);
	}
	return err;
}

static bool may_spawn(const struct actor *a)
{
	return world.alive < world.opts.alive_max && a->depth < world.opts.depth_max;
}

/* Take a handle out of the table, or NULL. */
static struct mrt_task *handle_take(uint64_t dice)
{
	struct mrt_task *t = world.handles[dice % HANDLES_NR];

	world.handles[dice % HANDLES_NR] = NULL;
	return t;
}

/* Keep a handle, so that others can abort the task. */
static void handle_keep(struct mrt_task *t, uint64_t dice)
{
	mrt_detach(handle_take(dice));
	world.handles[dice % HANDLES_NR] = t;
}

static enum mrt_poll act_spawn(struct mrt_task *self, void *frame)
{
	struct actor *a = frame, child;
	struct mrt_task *t;

	(void)self;
	if (may_spawn(a)) {
		draw_actor(&a->rand, &child);
		child.depth = a->depth + 1;
		if (chance(a, 500))
			(void)spawn_actor(&child, &a->rand, NULL); /* refused while closing */
		else if (!spawn_actor(&child, &a->rand, &t))
			handle_keep(t, below(a, HANDLES_NR));
	}
	MRT_RETURN(self, 0);
}

static void check_child(const struct actor *a, int64_t res)
{
	if (res == -ECANCELED)
		sim_check(a->child_aborted || sim.closing, "a child that nobody aborted gives ECANCELED");
	else
		sim_check(res == (int64_t)a->child_serial || res == -EPERM, "child %u gives %" PRId64, a->child_serial, res);
}

static enum mrt_poll act_join(struct mrt_task *self, void *frame)
{
	struct actor *a = frame, child;

	MRT_BEGIN(self);
	if (!may_spawn(a))
		MRT_RETURN(self, 0);
	draw_actor(&a->rand, &child);
	child.depth = a->depth + 1;
	a->child_serial = child.serial;
	a->child_aborted = false;
	if (spawn_actor(&child, &a->rand, &a->child))
		MRT_RETURN(self, 0);
	if (chance(a, 300))
		MRT_AWAIT(self, pause(a));
	if (chance(a, 300)) {
		sim_log("aborts actor %u", a->child_serial);
		a->child_aborted = true;
		mrt_abort(a->child);
	}
	if (chance(a, 300))
		MRT_AWAIT(self, pause(a));
	mrt_join(&a->join, a->child);
	if (chance(a, 200)) {
		a->slots[0].deadline_ns = 0;
		mrt_deadline(&a->join, &a->slots[0].timer, draw_ns(a, world.opts.sleep_ns_max));
	}
	if (chance(a, 100))
		mrt_cancel(&a->join);
	MRT_AWAIT(self, &a->join);
	sim_log("join of actor %u gives %" PRId64 ", why %d", a->child_serial, a->join.res, a->join.why);
	if (a->join.why) {
		sim_check(a->join.res == a->join.why, "a join failed with %d, but gives %" PRId64, a->join.why, a->join.res);
		handle_keep(a->child, below(a, HANDLES_NR)); /* it is still ours */
	} else {
		check_child(a, a->join.res);
	}
	MRT_RETURN(self, 0);
}

static void spawn_children(struct actor *a)
{
	unsigned nr = (unsigned)below(a, CHILDREN_MAX + 1);
	struct actor child;
	int err;

	for (; nr > 0 && may_spawn(a); nr--) {
		draw_actor(&a->rand, &child);
		child.depth = a->depth + 1;
		child.parent = a;
		child.fails = chance(a, 100);
		err = mrt_scope_spawn(&a->scope, actor_poll, &child, sizeof(child), NULL);
		sim_check(!err || err == -ECANCELED || (err == -ESHUTDOWN && sim.closing), "a scope's spawn fails with %d",
			  err);
		if (!err)
			world.alive++;
	}
}

static enum mrt_poll act_scope(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	MRT_BEGIN(self);
	mrt_scope_init(&a->scope, chance(a, 500) ? MRT_SCOPE_FAIL_FAST : 0);
	for (a->rounds = (uint32_t)below(a, 3); a->rounds > 0; a->rounds--) {
		spawn_children(a);
		if (chance(a, 300))
			MRT_AWAIT(self, pause(a));
	}
	if (chance(a, 200))
		mrt_scope_cancel(&a->scope);
	if (chance(a, 50))
		MRT_RETURN(self, -EPIPE); /* without a join: the runtime's to collect */
	mrt_scope_join(&a->scope);
	if (chance(a, 200))
		mrt_deadline(&a->scope.mrt__op, &a->slots[0].timer, draw_ns(a, world.opts.sleep_ns_max));
	MRT_AWAIT(self, &a->scope.mrt__op);
	sim_check(mrt_scope_nr(&a->scope) == 0, "a scope was joined with children");
	sim_check(a->scope.mrt__op.res == 0 || a->scope.mrt__op.res == -EPERM || a->scope.mrt__op.res == -ECANCELED ||
		  a->scope.mrt__op.res == -EPIPE || (a->scope.mrt__op.res == -ETIMEDOUT) ||
		  (a->scope.mrt__op.res == -ESHUTDOWN && sim.closing), "a scope gives %" PRId64, a->scope.mrt__op.res);
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_abort(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	struct mrt_task *t = world.handles[below(a, HANDLES_NR)];

	(void)self;
	if (t && chance(a, 800)) {
		sim_log("aborts task %" PRIu64, mrt_task_id(t) & 0xffffffff);
		mrt_abort(t);
	} else if (chance(a, 100)) {
		sim_log("aborts itself");
		mrt_abort(self);
	}
	MRT_RETURN(self, 0);
}

/* ---- the rest ---- */

static int64_t blocking_call(void *arg)
{
	struct actor *a = arg;

	sim_check(a->magic == MAGIC, "a blocking call runs on a frame that is gone");
	return a->serial;
}

static enum mrt_poll act_blocking(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	MRT_BEGIN(self);
	mrt_blocking(&a->join, blocking_call, a);
	if (chance(a, 200))
		mrt_cancel(&a->join);
	if (chance(a, 20))
		MRT_RETURN(self, -EPIPE);
	MRT_AWAIT(self, &a->join);
	sim_check(a->join.res == a->serial || a->join.res == -EAGAIN || a->join.res == -ECANCELED ||
		  (a->join.res == -ESHUTDOWN && sim.closing), "a blocking call gives %" PRId64, a->join.res);
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_open(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	MRT_BEGIN(self);
	sim_op_begin(&a->join, false);
	{
		char path[] = "some/path"; /* gone when the kernel reads its copy */

		mrt_open(&a->join, -1, path, 0, 0);
		memset(path, 0, sizeof(path));
	}
	if (chance(a, 100))
		mrt_cancel(&a->join);
	if (chance(a, 50))
		MRT_RETURN(self, -EPIPE); /* the runtime closes what comes */
	MRT_AWAIT(self, &a->join);
	if (a->join.res >= 0) {
		a->slots[0].fd = (int)a->join.res;
		if (chance(a, 300))
			MRT_AWAIT(self, pause(a));
		sim_op_begin(&a->join, false);
		MRT_AWAIT(self, mrt_close(&a->join, a->slots[0].fd));
		sim_check(a->join.res == 0, "a close gives %" PRId64, a->join.res);
	}
	MRT_RETURN(self, 0);
}

/* A file of its own, or another handle of one that somebody has. */
static void register_file(struct actor *a)
{
	static const int ranges[] = { SIM_FD_DISK, SIM_FD_DISK, SIM_FD_DISK, SIM_FD_STREAM, SIM_FD_IDLE };
	int range = ranges[below(a, MRT__ARRAY_NR(ranges))], fd, ret;
	unsigned twin = chance(a, world.opts.twins) ? sim_handle_draw(&a->rand, range, true) : 0, flags;

	if (twin && !sim_handle_at(twin)->twin)
		fd = sim_fd_dup(sim_handle_at(twin)->fd);
	else
		fd = sim_fd_open(range);
	if (fd < 0)
		return;
	flags = sim_fd_file(fd) < SIM_FD_STREAM && chance(a, 300) ? MRT_FILE_POLLED : 0;
	ret = mrt_file_register(chance(a, 500) ? runtime() : NULL, fd, flags);
	if (ret >= 0) {
		(void)sim_handle_new(ret, fd); /* to be drawn by whoever likes */
		return;
	}
	sim_check(ret == -ENFILE || (ret == -ESHUTDOWN && sim.closing), "a file is refused with %d", ret);
	sim_check(!sim_fd_close(fd), "fd %d was refused, but is closed", fd);
}

static void start_end(struct actor *a)
{
	struct sim_handle *h = sim_handle_at(a->handle);

	h->closers++;
	if (chance(a, 600)) {
		sim_log("closes handle %u", a->handle);
		sim_op_begin(&a->join, false);
		mrt_close(&a->join, h->handle);
	} else {
		sim_log("unregisters handle %u", a->handle);
		mrt_file_unregister(&a->join, h->handle);
	}
}

/* A handle was closed by this very task: it is stale at once, unless somebody else was faster. */
static void try_stale(struct actor *a, struct slot *s)
{
	prepare(a, s, KIND_READ);
	if (!s->refused) { /* else its memory is the reason already */
		s->handle = a->handle;
		s->refused = !mrt_op_is_done(&a->join) || a->join.res != -EBADF;
		s->fd = sim_handle_at(a->handle)->file;
		sim_op_uses(&s->op, s->handle, s->block);
	}
	sim_log("reads by handle %u", s->handle);
	start_kind(a, s);
}

static void check_end(struct actor *a)
{
	struct sim_handle *h = sim_handle_at(a->handle);
	int64_t res = a->join.res;

	sim_log("the end of handle %u gives %" PRId64, a->handle, res);
	if (res == -EBADF) {
		sim_check(h->closers > 1, "handle %u cannot be ended: EBADF, but nobody else has", a->handle);
		return;
	}
	sim_check(res >= 0, "the end of a handle gives %" PRId64, res);
	sim_check(h->ended, "handle %u is said to have ended, but its descriptor was not let go of", a->handle);
	sim_check(++h->closed == 1, "handle %u has ended twice", a->handle);
	if (res == 0)
		return;
	sim_check(res == h->fd, "handle %u gives back fd %" PRId64 " and not %d", a->handle, res, h->fd);
	sim_check(!sim_fd_close(h->fd), "fd %d was given back, but is closed", h->fd);
}

static enum mrt_poll act_file(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	struct slot *s = &a->slots[4];

	MRT_BEGIN(self);
	a->handle = sim_handle_draw(&a->rand, -1, chance(a, 900));
	if (!a->handle || chance(a, 500)) {
		register_file(a);
		MRT_RETURN(self, 0);
	}
	start_end(a);
	a->ops[0] = NULL;
	if (chance(a, 400)) {
		try_stale(a, s);
		a->ops[0] = &s->op;
	}
	if (chance(a, 30))
		MRT_RETURN(self, -EPIPE); /* it goes on without us */
	MRT_AWAIT(self, &a->join);
	check_end(a);
	if (a->ops[0]) {
		MRT_AWAIT(self, &s->op);
		finish(s);
	}
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_memory(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	unsigned id = sim_block_draw(&a->rand, chance(a, 500));

	if (id && chance(a, 700))
		free_block(id); /* perhaps under an op */
	else
		(void)new_block(&a->rand); /* to be drawn by whoever likes */
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_stuck(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	(void)self;
	if (chance(a, 300))
		mrt_flush();
	sim_stuck(draw_ns(a, world.opts.stuck_ns_max));
	MRT_RETURN(self, 0);
}

static enum mrt_poll act_forget(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	unsigned i;

	(void)self;
	for (i = 0; i < SLOTS_NR; i++) {
		struct slot *s = &a->slots[i];

		start(a, s, chance(a, 400) ? draw_ending(a) : draw_waiting(a));
		if (chance(a, 200))
			add_deadline(a, s);
		if (s->kind == KIND_CHANNEL_SEND && world.messages[s->msg] == MESSAGE_SENDING)
			world.messages[s->msg] = MESSAGE_UNKNOWN;
		if (s->kind == KIND_CHANNEL_RECV && mrt_op_is_done(&s->op) && s->op.res == 0)
			message_received(s->msg);
		else if (s->kind == KIND_CHANNEL_RECV)
			world.forgotten_recvs++;
		if (s->kind == KIND_SEMAPHORE && mrt_op_is_done(&s->op) && s->op.res == 0)
			mrt_semaphore_release(&world.semaphore, s->permits);
	}
	if (chance(a, 500))
		sim_stuck(draw_ns(a, 1000000)); /* some of them end meanwhile, and nobody will look */
	sim_log("returns with ops in flight");
	MRT_RETURN(self, -EPIPE);
}

static enum mrt_poll act_hang(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	struct slot *s = &a->slots[3];

	MRT_BEGIN(self);
	start(a, s, draw_waiting(a));
	MRT_AWAIT(self, &s->op);
	finish(s);
	MRT_RETURN(self, 0);
}

/* ---- an actor ---- */

static mrt_poll_fn const act_fns[SIM_ACTS_NR] = {
#define SIM_X(NAME, function) [SIM_ACT_##NAME] = function,
	SIM_ACTS(SIM_X)
#undef SIM_X
};

static unsigned draw_act(struct actor *a)
{
	uint64_t dice = below(a, world.weights_sum);
	unsigned act;

	for (act = 0; dice >= world.opts.weights[act]; act++)
		dice -= world.opts.weights[act];
	return act;
}

static int64_t result_of(const struct actor *a)
{
	return a->fails ? -EPERM : (int64_t)a->serial;
}

static enum mrt_poll actor_body(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;

	MRT_BEGIN(self);
	for (; a->left > 0; a->left--) {
		a->act = draw_act(a);
		MRT_CALL(self, &a->call, act_fns[a->act], a);
		if (a->call.res == -EPIPE)
			break; /* it was the last thing to do */
	}
	sim_log("actor %u has done all", a->serial);
	MRT_RETURN(self, result_of(a));
}

static enum mrt_poll actor_poll(struct mrt_task *self, void *frame)
{
	struct actor *a = frame;
	enum mrt_poll poll;

	sim_check(a->magic == MAGIC, "a task is polled whose frame is no frame");
	sim_check(!a->in_poll, "actor %u is polled while it is being polled", a->serial);
	sim_check(!a->parent || a->parent->magic == MAGIC, "actor %u has outlived its scope", a->serial);
	sim_check(a->polled || !(self->flags & MRT__TASKF_ABORTED), "actor %u is polled, but was aborted before", a->serial);
	a->polled = true;
	a->in_poll = true;
	poll = actor_body(self, a);
	a->in_poll = false;
	if (poll == MRT_POLL_READY)
		world.alive--;
	return poll;
}

/* ---- for programs ---- */

void sim_actors_draw(struct sim_actors_opts *o)
{
	unsigned i;

	memset(o, 0, sizeof(*o));
	for (i = 0; i < SIM_ACTS_NR; i++)
		o->weights[i] = sim_chance(150) ? 0 : 1 + (unsigned)sim_below(10);
	o->weights[SIM_ACT_OP] += 5;
	o->weights[SIM_ACT_FORGET] = sim_chance(300) ? 1 + (unsigned)sim_below(3) : 0;
	o->weights[SIM_ACT_STUCK] = o->weights[SIM_ACT_HANG] = 0;
	if (sim_chance(300)) {
		o->by_handle = (unsigned)sim_below(1000);
		o->on_block = (unsigned)sim_below(1000);
		o->twins = 200;
	} else {
		o->weights[SIM_ACT_FILE] = o->weights[SIM_ACT_MEMORY] = 0;
	}
	o->acts_max = 1 + (unsigned)sim_below(30);
	o->alive_max = 1 + (unsigned)sim_below(60);
	o->depth_max = 1 + (unsigned)sim_below(6);
	o->sleep_ns_max = sim_chance(300) ? 1 + sim_below(1000000000) : 1 + sim_below(20000000);
	o->stuck_ns_max = 1 + sim_below(30000000);
}

/* All sleep: whoever waits for permits wants more than there are. */
static void check_semaphore(void)
{
	const struct mrt__op *head = world.semaphore.mrt__waiters.mrt__head;

	sim_check(!head || (uint64_t)head->raw > mrt_semaphore_permits(&world.semaphore),
		  "all sleep, but a task waits for permits that are there");
}

void sim_actors_start(const struct sim_actors_opts *opts)
{
	unsigned i;

	memset(&world, 0, sizeof(world));
	world.opts = *opts;
	world.rand.state = sim_rand_next(&sim.rand);
	for (i = 0; i < SIM_ACTS_NR; i++)
		world.weights_sum += opts->weights[i];
	for (i = 0; i < CHANNELS_NR; i++)
		sim_check(!mrt_channel_create(1 + sim_below(4), sizeof(uint64_t), &world.channels[i]), "no channel");
	for (i = 0; i < ONESHOTS_NR; i++)
		mrt_oneshot_init(&world.oneshots[i]);
	mrt_notify_init(&world.notify);
	sim_check(!mrt_semaphore_init(&world.semaphore, PERMITS), "no semaphore");
	sim.on_quiet = check_semaphore;
}

void sim_actors_spawn(unsigned nr)
{
	struct actor a;
	struct mrt_task *t;

	for (; nr > 0; nr--) {
		draw_actor(&world.rand, &a);
		if (!spawn_actor(&a, &world.rand, &t))
			handle_keep(t, sim_rand_next(&world.rand));
	}
}

void sim_actors_meddle(void)
{
	struct mrt_task *t = world.handles[sim_rand_below(&world.rand, HANDLES_NR)];

	if (t && sim_rand_chance(&world.rand, 300)) {
		sim_log("aborts task %" PRIu64 " from outside", mrt_task_id(t) & 0xffffffff);
		mrt_abort(t);
	} else {
		give(&world.rand);
	}
}

void sim_actors_close_objects(void)
{
	unsigned i;

	for (i = 0; i < CHANNELS_NR; i++) {
		sim_log("closes channel %u", i);
		world.channel_closed[i] = true;
		mrt_channel_close(world.channels[i]);
	}
	sim_log("closes the semaphore");
	world.semaphore_closed = true;
	mrt_semaphore_close(&world.semaphore);
}

unsigned sim_actors_alive(void)
{
	return world.alive;
}

void sim_actors_finish(void)
{
	uint64_t msg, lost = 0;
	unsigned i;

	for (i = 0; i < HANDLES_NR; i++)
		mrt_detach(handle_take(i));
	sim_blocks_free(free_block);
	for (i = 0; i < CHANNELS_NR; i++) {
		while (!mrt_channel_try_recv(world.channels[i], &msg))
			message_received(msg);
		mrt_channel_destroy(world.channels[i]);
	}
	for (msg = 0; msg < world.messages_nr; msg++)
		lost += world.messages[msg] == MESSAGE_SENT;
	sim_check(lost <= world.forgotten_recvs, "%" PRIu64 " messages were sent and not received", lost);
	sim_check(mrt_semaphore_permits(&world.semaphore) == PERMITS, "the semaphore ends with %" PRIu64 " of %u permits",
		  mrt_semaphore_permits(&world.semaphore), PERMITS);
	free(world.messages);
	world.messages = NULL;
}
