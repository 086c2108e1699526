/* SPDX-License-Identifier: MIT */
/*
 * libuv in the shapes of docs/bench-peers.md that it has: timers, wakes, the pool, TCP and files. It has callbacks and no
 * tasks, so there is nothing to spawn, to yield or to park.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "../peer.h"

static void check(int rc, const char *what)
{
	if (rc < 0)
		bench_die("%s: %s", what, uv_strerror(rc));
}

/* ---- the pool ---- */

static struct {
	const struct peer_args *a;
	uv_work_t work[PEER_BLOCKING_ROUND];
	unsigned left;          /* of the round */
	uint64_t done;
} pool;

static void pool_call(uv_work_t *w)
{
	w->data = w; /* a call that was run */
}

static void pool_round(void);

static void pool_done(uv_work_t *w, int status)
{
	check(status, "uv_queue_work");
	pool.done += w->data == w;
	if (--pool.left == 0 && pool.done < pool.a->n)
		pool_round();
}

static void pool_round(void)
{
	unsigned i;

	pool.left = PEER_BLOCKING_ROUND;
	for (i = 0; i < PEER_BLOCKING_ROUND; i++) {
		pool.work[i].data = NULL;
		check(uv_queue_work(uv_default_loop(), &pool.work[i], pool_call, pool_done), "uv_queue_work");
	}
}

static void spawn_blocking(const struct peer_args *a)
{
	struct peer_span s;
	unsigned i;

	pool.a = a;
	(void)setenv("UV_THREADPOOL_SIZE", "16", 1); /* it is read at the first call */
	for (i = 0; i < 2; i++) {
		pool.done = 0;
		s = peer_start();
		pool_round();
		(void)uv_run(uv_default_loop(), UV_RUN_DEFAULT); /* 0: nothing is left */
		peer_stop(&s);
	}
	peer_print(a, NULL, pool.done, &s, "%s", "");
}

/* ---- timers ---- */

static void timer_unused(uv_timer_t *t)
{
	(void)t;
	bench_die("a timer that was to be stopped has fired");
}

static void timer_arm_cancel(const struct peer_args *a)
{
	struct peer_span s;
	uint64_t rand = 1, done = 0;
	uv_timer_t t;
	unsigned i;

	check(uv_timer_init(uv_default_loop(), &t), "uv_timer_init");
	for (i = 0; i < 2; i++) {
		s = peer_start();
		for (done = 0; done < a->n; done++) {
			check(uv_timer_start(&t, timer_unused, 10000 + bench_rand(&rand) % 1000, 0), "uv_timer_start");
			check(uv_timer_stop(&t), "uv_timer_stop");
		}
		peer_stop(&s);
	}
	peer_print(a, NULL, done, &s, "%s", "");
}

static void timer_live(const struct peer_args *a)
{
	uv_timer_t *t = (uv_timer_t *)bench_alloc_touched(a->n, sizeof(*t));
	struct peer_span arm, cancel;
	uint64_t rand = 1, i;
	unsigned pass;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < a->n; i++)
			check(uv_timer_init(uv_default_loop(), &t[i]), "uv_timer_init");
		arm = peer_start();
		for (i = 0; i < a->n; i++)
			check(uv_timer_start(&t[i], timer_unused, 60000 + bench_rand(&rand) % 10000, 0), "uv_timer_start");
		peer_stop(&arm);
		cancel = peer_start();
		for (i = 0; i < a->n; i++)
			check(uv_timer_stop(&t[i]), "uv_timer_stop");
		peer_stop(&cancel);
	}
	peer_print(a, NULL, a->n, &arm, "\"cancel\":%.3f,\"cancel_cpu\":%.3f", (double)cancel.wall_ns / (double)a->n,
		   (double)cancel.cpu_ns / (double)a->n);
}

struct expiring {
	uv_timer_t timer;
	uint64_t due_ns;
	uint64_t *late_ns;
};

static void expired(uv_timer_t *t)
{
	struct expiring *e = t->data;
	uint64_t now = bench_clock(CLOCK_MONOTONIC);

	/* its clock has milliseconds, rounded down: a timer may be early by less than two */
	*e->late_ns = now > e->due_ns ? now - e->due_ns : 0;
}

static void timer_expire(const struct peer_args *a)
{
	struct expiring *e = (struct expiring *)bench_alloc_touched(a->n, sizeof(*e));
	uint64_t *late = (uint64_t *)bench_alloc_touched(a->n, sizeof(*late));
	uint64_t rand = 1, first, last_due = 0, end = 0, now, i;
	struct peer_span s = peer_start();

	first = bench_clock(CLOCK_MONOTONIC) + a->arg * 1000000;
	for (i = 0; i < a->n; i++) {
		e[i].due_ns = first + bench_rand(&rand) % 1000000000;
		e[i].late_ns = &late[i];
		e[i].timer.data = &e[i];
		check(uv_timer_init(uv_default_loop(), &e[i].timer), "uv_timer_init");
		if (i % 1024 == 0)
			uv_update_time(uv_default_loop());
		now = bench_clock(CLOCK_MONOTONIC);
		if (now > first)
			bench_die("timer_expire: %llu ms do not suffice to start them", (unsigned long long)a->arg);
		check(uv_timer_start(&e[i].timer, expired, (e[i].due_ns - now + 999999) / 1000000, 0), "uv_timer_start");
	}
	(void)uv_run(uv_default_loop(), UV_RUN_DEFAULT); /* 0: nothing is left */
	peer_stop(&s);
	for (i = 0; i < a->n; i++) {
		last_due = e[i].due_ns > last_due ? e[i].due_ns : last_due;
		end = e[i].due_ns + late[i] > end ? e[i].due_ns + late[i] : end;
	}
	bench_sort_u64(late, a->n);
	peer_print(a, NULL, a->n, &s, PEER_LATENESS ",\"last_us\":%.2f", PEER_LATENESS_OF(late, a->n),
		   (double)(end - last_due) / 1e3);
}

static struct {
	uint64_t n, i, due_ns;
	uint64_t *late;
} acc;

static void acc_next(uv_timer_t *t)
{
	uint64_t now = bench_clock(CLOCK_MONOTONIC), ms;

	if (acc.due_ns)
		acc.late[acc.i++] = now > acc.due_ns ? now - acc.due_ns : 0;
	if (acc.i == acc.n)
		return;
	ms = acc.i % PEER_ACC_MS_MAX + 1;
	uv_update_time(uv_default_loop());
	acc.due_ns = bench_clock(CLOCK_MONOTONIC) + ms * 1000000;
	check(uv_timer_start(t, acc_next, ms, 0), "uv_timer_start");
}

static void timer_accuracy(const struct peer_args *a)
{
	struct peer_span s = peer_start();
	uv_timer_t t;

	acc.n = a->n;
	acc.late = (uint64_t *)bench_alloc_touched(a->n, sizeof(*acc.late));
	check(uv_timer_init(uv_default_loop(), &t), "uv_timer_init");
	acc_next(&t);
	(void)uv_run(uv_default_loop(), UV_RUN_DEFAULT); /* 0: nothing is left */
	peer_stop(&s);
	bench_sort_u64(acc.late, a->n);
	peer_print(a, NULL, acc.i, &s, PEER_LATENESS, PEER_LATENESS_OF(acc.late, a->n));
}

/* ---- wake ---- */

static _Atomic uint64_t woken_ns;

static void woken(uv_async_t *w)
{
	(void)w;
	atomic_store_explicit(&woken_ns, bench_clock(CLOCK_MONOTONIC), memory_order_release);
}

static void *loop_main(void *arg)
{
	bench_pin(arg, 1);
	(void)uv_run(uv_default_loop(), UV_RUN_DEFAULT); /* until the process ends */
	return NULL;
}

static void wake_idle(const struct peer_args *a)
{
	uint64_t *ns = (uint64_t *)bench_alloc_touched(a->n, sizeof(*ns)), start, end, i;
	int cpus[CPU_SETSIZE];
	unsigned cpus_nr = bench_cpus(cpus);
	struct peer_span s;
	pthread_t thread;
	uv_async_t async;

	check(uv_async_init(uv_default_loop(), &async, woken), "uv_async_init");
	if (pthread_create(&thread, NULL, loop_main, &cpus[cpus_nr - 1]))
		bench_die("pthread_create failed");
	bench_pin(cpus, 1);
	s = peer_start();
	for (i = 0; i < a->n; i++) {
		bench_spin_ns(a->arg * 1000);
		start = bench_clock(CLOCK_MONOTONIC);
		check(uv_async_send(&async), "uv_async_send");
		while ((end = atomic_load_explicit(&woken_ns, memory_order_acquire)) < start)
			;
		ns[i] = end - start;
	}
	peer_stop(&s);
	bench_sort_u64(ns, a->n);
	peer_print(a, NULL, a->n, &s, PEER_LATENESS, PEER_LATENESS_OF(ns, a->n));
	exit(0); /* the loop has no end */
}

/* ---- echo ---- */

struct conn {
	uv_tcp_t tcp;
	uv_write_t write;
	char buf[PEER_ECHO_BUF_BYTES];
};

static void give_buffer(uv_handle_t *h, size_t wanted, uv_buf_t *ret)
{
	struct conn *c = h->data;

	(void)wanted;
	*ret = uv_buf_init(c->buf, sizeof(c->buf));
}

static void conn_closed(uv_handle_t *h)
{
	free(h->data);
}

static void written(uv_write_t *w, int status)
{
	(void)w;
	(void)status; /* a failure shows at the read */
}

static void got(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buf)
{
	struct conn *c = stream->data;
	uv_buf_t out;
	int sent;

	if (bytes < 0) {
		uv_close((uv_handle_t *)stream, conn_closed);
		return;
	}
	if (bytes == 0)
		return;
	out = uv_buf_init(buf->base, (unsigned)bytes);
	sent = uv_try_write(stream, &out, 1);
	if (sent == bytes)
		return;
	/* one message is in flight on a connection: its buffer is not read into before it is written */
	if (sent > 0)
		out = uv_buf_init(buf->base + sent, (unsigned)(bytes - sent));
	check(uv_write(&c->write, stream, &out, 1, written), "uv_write");
}

static void accepted(uv_stream_t *listener, int status)
{
	struct conn *c = (struct conn *)bench_alloc(1, sizeof(*c));

	check(status, "a connection");
	check(uv_tcp_init(uv_default_loop(), &c->tcp), "uv_tcp_init");
	c->tcp.data = c;
	check(uv_accept(listener, (uv_stream_t *)&c->tcp), "uv_accept");
	check(uv_tcp_nodelay(&c->tcp, 1), "uv_tcp_nodelay");
	check(uv_read_start((uv_stream_t *)&c->tcp, give_buffer, got), "uv_read_start");
}

static void echo(const struct peer_args *a)
{
	uv_tcp_t listener;

	(void)a;
	check(uv_tcp_init(uv_default_loop(), &listener), "uv_tcp_init");
	check(uv_tcp_open(&listener, peer_listen()), "uv_tcp_open");
	check(uv_listen((uv_stream_t *)&listener, 4096, accepted), "uv_listen");
	(void)uv_run(uv_default_loop(), UV_RUN_DEFAULT); /* until the process is ended */
}

/* ---- reads ---- */

static struct {
	int fd;
	uint64_t blocks, end_ns, done;
} reads;

struct reader {
	uv_fs_t req;
	uv_buf_t buf;
	uint64_t rand;
};

static void read_done(uv_fs_t *req);

static void read_next(struct reader *r)
{
	r->req.data = r;
	check(uv_fs_read(uv_default_loop(), &r->req, reads.fd, &r->buf, 1,
			 (int64_t)(bench_rand(&r->rand) % reads.blocks * PEER_BLOCK_BYTES), read_done), "uv_fs_read");
}

static void read_done(uv_fs_t *req)
{
	struct reader *r = req->data;

	if (req->result != (ssize_t)PEER_BLOCK_BYTES)
		bench_die("read: %s", req->result < 0 ? uv_strerror((int)req->result) : "a short one");
	uv_fs_req_cleanup(req);
	reads.done++;
	if (bench_clock(CLOCK_MONOTONIC) < reads.end_ns)
		read_next(r);
}

static void read_file(const struct peer_args *a)
{
	struct reader *r = (struct reader *)bench_alloc(a->arg, sizeof(*r));
	struct peer_span s;
	char threads[24];
	void *memory;
	uint64_t i;

	reads.fd = peer_open(a, &reads.blocks);
	snprintf(threads, sizeof(threads), "%llu", (unsigned long long)a->arg);
	(void)setenv("UV_THREADPOOL_SIZE", threads, 1); /* it is read at the first call */
	if (posix_memalign(&memory, PEER_BLOCK_BYTES, a->arg * PEER_BLOCK_BYTES))
		bench_die("no memory for blocks");
	s = peer_start();
	reads.end_ns = bench_clock(CLOCK_MONOTONIC) + a->n * 1000000;
	for (i = 0; i < a->arg; i++) {
		r[i].buf = uv_buf_init((char *)memory + i * PEER_BLOCK_BYTES, PEER_BLOCK_BYTES);
		r[i].rand = i + 1;
		read_next(&r[i]);
	}
	(void)uv_run(uv_default_loop(), UV_RUN_DEFAULT); /* 0: nothing is left */
	peer_stop(&s);
	peer_print(a, NULL, reads.done, &s, "%s", "");
}

int main(int argc, char **argv)
{
	static const struct peer_shape shapes[] = {
		{ "spawn_blocking", spawn_blocking },
		{ "timer_arm_cancel", timer_arm_cancel },
		{ "timer_live", timer_live },
		{ "timer_expire", timer_expire },
		{ "timer_accuracy", timer_accuracy },
		{ "wake_idle", wake_idle },
		{ "echo", echo },
		{ "read", read_file },
	};

	return peer_main("libuv", shapes, sizeof(shapes) / sizeof(shapes[0]), argc, argv);
}
