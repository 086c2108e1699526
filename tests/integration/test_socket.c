/* SPDX-License-Identifier: MIT */
/* Sockets over loopback and socketpairs: every op of net.h, its errors, and an echo server with many connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fixture.h"
#include "itest.h"

#define CONNECTIONS 200
#define MESSAGES 30

/* A port of our own, where nobody listens yet. */
static int bind_any(struct sockaddr_in *ret_addr)
{
	socklen_t len = sizeof(*ret_addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	memset(ret_addr, 0, sizeof(*ret_addr));
	ret_addr->sin_family = AF_INET;
	ret_addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)ret_addr, sizeof(*ret_addr)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)ret_addr, &len), 0);
	return fd;
}

static int listen_any(struct sockaddr_in *ret_addr)
{
	int fd = bind_any(ret_addr);

	ck_assert_int_eq(listen(fd, CONNECTIONS), 0);
	return fd;
}

/* ---- one connection, each op ---- */

ITEST_TASK(connect_accept_and_the_rest, {
	struct mrt_op accept; struct mrt_op op; struct mrt_op recv; int listener; int client; int server;
	struct sockaddr_in addr; struct sockaddr_in peer; socklen_t peer_len; char buf[64];
})
{
	MRT_BEGIN(self);
	f->listener = listen_any(&f->addr);
	f->peer_len = sizeof(f->peer);
	mrt_accept(&f->accept, f->listener, (struct sockaddr *)&f->peer, &f->peer_len, 0);
	MRT_AWAIT(self, mrt_socket(&f->op, AF_INET, SOCK_STREAM, 0));
	ck_assert_int_ge(f->op.res, 0);
	f->client = (int)f->op.res;
	ck_assert_int_eq(fcntl(f->client, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	MRT_AWAIT(self, mrt_connect(&f->op, f->client, (struct sockaddr *)&f->addr, sizeof(f->addr)));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, &f->accept);
	ck_assert_int_ge(f->accept.res, 0);
	f->server = (int)f->accept.res;
	ck_assert_int_eq(fcntl(f->server, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_uint_eq(f->peer_len, sizeof(f->peer));
	ck_assert_uint_eq(f->peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));

	MRT_AWAIT(self, mrt_send(&f->op, f->client, "hello", 5, 0));
	ck_assert_int_eq(f->op.res, 5);
	MRT_AWAIT(self, mrt_recv(&f->recv, f->server, f->buf, sizeof(f->buf), MSG_PEEK));
	ck_assert_int_eq(f->recv.res, 5);
	MRT_AWAIT(self, mrt_recv(&f->recv, f->server, f->buf, 3, 0));
	ck_assert_int_eq(f->recv.res, 3);
	ck_assert_mem_eq(f->buf, "hel", 3);
	mrt_recv_exact(&f->recv, f->server, f->buf, 6);
	MRT_AWAIT(self, mrt_send_all(&f->op, f->client, "more", 4));
	ck_assert_int_eq(f->op.res, 4);
	MRT_AWAIT(self, &f->recv);
	ck_assert_int_eq(f->recv.res, 6);
	ck_assert_mem_eq(f->buf, "lomore", 6);
	/* a half-closed connection: its reader sees the end, the other direction works */
	MRT_AWAIT(self, mrt_shutdown(&f->op, f->client, SHUT_WR));
	ck_assert_int_eq(f->op.res, 0);
	MRT_AWAIT(self, mrt_recv(&f->recv, f->server, f->buf, sizeof(f->buf), 0));
	ck_assert_int_eq(f->recv.res, 0);
	MRT_AWAIT(self, mrt_recv_exact(&f->recv, f->server, f->buf, sizeof(f->buf)));
	ck_assert_int_eq(f->recv.res, 0);
	MRT_AWAIT(self, mrt_send(&f->op, f->server, "bye", 3, 0));
	MRT_AWAIT(self, mrt_recv_exact(&f->recv, f->client, f->buf, 3));
	ck_assert_int_eq(f->recv.res, 3);
	/* a shutdown wakes who waits */
	mrt_recv(&f->recv, f->client, f->buf, sizeof(f->buf), 0);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(300)));
	MRT_AWAIT(self, mrt_shutdown(&f->op, f->client, SHUT_RDWR));
	MRT_AWAIT(self, &f->recv);
	ck_assert_int_eq(f->recv.res, 0);
	/* no SIGPIPE: we are alive */
	MRT_AWAIT(self, mrt_send(&f->op, f->client, "x", 1, 0));
	ck_assert_int_eq(f->op.res, -EPIPE);
	MRT_AWAIT(self, mrt_send_all(&f->op, f->client, "x", 1));
	ck_assert_int_eq(f->op.res, -EPIPE);
	MRT_AWAIT(self, mrt_close(&f->op, f->client));
	MRT_AWAIT(self, mrt_close(&f->op, f->server));
	MRT_AWAIT(self, mrt_close(&f->op, f->listener));
	MRT_RETURN(self, 0);
}

#define ERR(expr, code)                                                                                 \
	do {                                                                                            \
		MRT_AWAIT(self, expr);                                                                  \
		ck_assert_msg(f->op.res == -(code), "%s: %lld, expected %d", #expr, (long long)f->op.res, -(code)); \
	} while (0)

ITEST_TASK(errors_of_sockets, {
	struct mrt_op op; char buf[8]; struct sockaddr_in addr; socklen_t len; int fd; int deaf;
	int pipe[2];
})
{
	MRT_BEGIN(self);
	ck_assert_int_eq(pipe(f->pipe), 0);
	f->deaf = bind_any(&f->addr); /* held, so that nobody else listens there */
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ERR(mrt_socket(&f->op, 12345, SOCK_STREAM, 0), EAFNOSUPPORT);
	ERR(mrt_socket(&f->op, AF_INET, 77, 0), EINVAL);
	ERR(mrt_connect(&f->op, f->fd, (struct sockaddr *)&f->addr, sizeof(f->addr)), ECONNREFUSED);
	ERR(mrt_connect(&f->op, f->fd, (struct sockaddr *)&f->addr, 3), EINVAL);
	ERR(mrt_connect(&f->op, -1, (struct sockaddr *)&f->addr, sizeof(f->addr)), EBADF);
	ERR(mrt_accept(&f->op, f->fd, NULL, NULL, 0), EINVAL);
	ERR(mrt_accept(&f->op, f->fd, NULL, NULL, 1 << 30), EINVAL);
	ERR(mrt_accept(&f->op, f->fd, (struct sockaddr *)&f->addr, NULL, 0), EINVAL);
	ERR(mrt_accept(&f->op, f->fd, NULL, &f->len, 0), EINVAL);
	ERR(mrt_accept(&f->op, -1, NULL, NULL, 0), EBADF);
	ERR(mrt_recv(&f->op, f->pipe[0], f->buf, 8, 0), ENOTSOCK);
	ERR(mrt_send(&f->op, f->pipe[1], f->buf, 8, 0), ENOTSOCK);
	ERR(mrt_recv(&f->op, -1, f->buf, 8, 0), EBADF);
	ERR(mrt_send(&f->op, -1, f->buf, 8, 0), EBADF);
	ERR(mrt_shutdown(&f->op, f->pipe[0], SHUT_WR), ENOTSOCK);
	ERR(mrt_shutdown(&f->op, f->fd, 99), EINVAL);
	ERR(mrt_recv_exact(&f->op, f->fd, f->buf, (size_t)MRT_IO_BYTES_MAX + 1), EINVAL);
	ERR(mrt_send_all(&f->op, f->fd, f->buf, (size_t)3 << 30), EINVAL);
	close(f->fd);
	close(f->deaf);
	close(f->pipe[0]);
	close(f->pipe[1]);
	MRT_RETURN(self, 0);
}

/* A nonblocking socket waits all the same: an op never says -EAGAIN where it could have waited. */
ITEST_TASK(nonblocking_descriptors, { struct mrt_op op; struct mrt_op recv; int fds[2]; char buf[8]; })
{
	MRT_BEGIN(self);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, f->fds), 0);
	mrt_recv(&f->recv, f->fds[0], f->buf, 8, 0);
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(1)));
	MRT_AWAIT(self, mrt_send(&f->op, f->fds[1], "x", 1, 0));
	MRT_AWAIT(self, &f->recv);
	ck_assert(f->recv.res == 1 || f->recv.res == -EAGAIN); /* the latter as the system call */
	close(f->fds[0]);
	close(f->fds[1]);
	MRT_RETURN(self, 0);
}

/* ---- partial sends ---- */

#define BULK (8 << 20)

ITEST_CHILD(bulk_reader, {
	struct mrt_op op; int fd; size_t total; uint64_t seed; unsigned char buf[65536];
	unsigned char want[65536];
})
{
	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_recv(&f->op, f->fd, f->buf, 1 + f->total % sizeof(f->buf), 0));
		if (f->op.res <= 0)
			break;
		fixture_pattern(f->want, (size_t)f->op.res, f->seed, f->total);
		ck_assert_int_eq(memcmp(f->buf, f->want, (size_t)f->op.res), 0);
		f->total += (size_t)f->op.res;
	}
	ck_assert_int_eq(f->op.res, 0);
	MRT_RETURN(self, (int64_t)f->total);
}

ITEST_TASK(send_all_goes_on_after_short_sends, {
	struct mrt_op op; struct mrt_op join; struct mrt_task *task; int fds[2]; unsigned char *data;
})
{
	struct bulk_reader child = { .seed = 3 };
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizeof(child) };
	int small = 4096;

	MRT_BEGIN(self);
	f->data = malloc(BULK);
	fixture_pattern(f->data, BULK, 3, 0);
	itest_socketpair(f->fds);
	ck_assert_int_eq(setsockopt(f->fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	child.fd = f->fds[1];
	ck_assert_int_eq(mrt_spawn(NULL, bulk_reader_poll, &child, offsetof(struct bulk_reader, buf), &opts, &f->task), 0);
	/* the raw form may be short, and says so */
	MRT_AWAIT(self, mrt_send(&f->op, f->fds[0], f->data, BULK, 0));
	ck_assert_int_gt(f->op.res, 0);
	ck_assert_int_le(f->op.res, BULK);
	MRT_AWAIT(self, mrt_send_all(&f->op, f->fds[0], f->data + f->op.res, BULK - (size_t)f->op.res));
	ck_assert_int_ge(f->op.res, 0);
	ck_assert_int_eq(f->op.why, 0);
	MRT_AWAIT(self, mrt_close(&f->op, f->fds[0]));
	MRT_AWAIT(self, mrt_join(&f->join, f->task));
	ck_assert_int_eq(f->join.res, BULK);
	close(f->fds[1]);
	free(f->data);
	MRT_RETURN(self, 0);
}

/* The peer dies half-way: what was sent is counted, and the reason told. */
ITEST_TASK(send_all_to_a_peer_that_dies, {
	struct mrt_op op; struct mrt_op pause; int fds[2]; int arrived; unsigned char *data;
})
{
	MRT_BEGIN(self);
	f->data = calloc(1, BULK);
	itest_socketpair(f->fds);
	mrt_send_all(&f->op, f->fds[0], f->data, BULK);
	do {
		MRT_AWAIT(self, mrt_sleep(&f->pause, MRT_MS(1)));
		ck_assert_int_eq(ioctl(f->fds[1], FIONREAD, &f->arrived), 0);
	} while (f->arrived == 0);
	ck_assert(!mrt_op_is_done(&f->op));
	close(f->fds[1]);
	MRT_AWAIT(self, &f->op);
	ck_assert_int_gt(f->op.res, 0);
	ck_assert_int_lt(f->op.res, BULK);
	ck_assert(f->op.why == -EPIPE || f->op.why == -ECONNRESET);
	close(f->fds[0]);
	free(f->data);
	MRT_RETURN(self, 0);
}

/* ---- two hundred connections ---- */

ITEST_CHILD(echo, { struct mrt_op op; int fd; char buf[2048]; })
{
	MRT_BEGIN(self);
	for (;;) {
		MRT_AWAIT(self, mrt_recv(&f->op, f->fd, f->buf, sizeof(f->buf), 0));
		if (f->op.res <= 0)
			break;
		MRT_AWAIT(self, mrt_send_all(&f->op, f->fd, f->buf, (size_t)f->op.res));
		if (f->op.res < 0)
			break;
	}
	MRT_AWAIT(self, mrt_close(&f->op, f->fd));
	MRT_RETURN(self, 0);
}

ITEST_CHILD(acceptor, { struct mrt_op op; int fd; int i; })
{
	struct echo child = { .fd = -1 };
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizeof(child), .flags = MRT_SPAWN_SPREAD };

	MRT_BEGIN(self);
	for (f->i = 0; f->i < CONNECTIONS; f->i++) {
		MRT_AWAIT(self, mrt_accept(&f->op, f->fd, NULL, NULL, f->i % 2 ? SOCK_NONBLOCK : 0));
		if (f->op.res < 0)
			MRT_RETURN(self, f->op.res);
		child.fd = (int)f->op.res;
		ck_assert_int_eq(mrt_spawn(NULL, echo_poll, &child, offsetof(struct echo, buf), &opts, NULL), 0);
	}
	MRT_RETURN(self, 0);
}

ITEST_CHILD(client, {
	struct mrt_op op; struct sockaddr_in addr; int fd; int i; int id; unsigned char out[1500];
	unsigned char in[1500];
})
{
	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_socket(&f->op, AF_INET, SOCK_STREAM, 0));
	if (f->op.res < 0)
		MRT_RETURN(self, f->op.res);
	f->fd = (int)f->op.res;
	MRT_AWAIT(self, mrt_connect(&f->op, f->fd, (struct sockaddr *)&f->addr, sizeof(f->addr)));
	if (f->op.res < 0)
		MRT_RETURN(self, f->op.res);
	for (f->i = 0; f->i < MESSAGES; f->i++) {
		fixture_pattern(f->out, sizeof(f->out), (uint64_t)f->id, (uint64_t)f->i * 4096);
		MRT_AWAIT(self, mrt_send_all(&f->op, f->fd, f->out, sizeof(f->out)));
		if (f->op.res < 0)
			MRT_RETURN(self, f->op.res);
		MRT_AWAIT(self, mrt_recv_exact(&f->op, f->fd, f->in, sizeof(f->in)));
		if (f->op.res != sizeof(f->in) || memcmp(f->in, f->out, sizeof(f->in)) != 0)
			MRT_RETURN(self, f->op.res < 0 ? f->op.res : -EBADMSG);
	}
	MRT_AWAIT(self, mrt_close(&f->op, f->fd));
	MRT_RETURN(self, 0);
}

ITEST_TASK(two_hundred_connections_echo, {
	struct mrt_scope scope; struct mrt_op join; struct mrt_task *acceptor; struct sockaddr_in addr;
	int listener; unsigned fds_nr; struct mrt_op op;
})
{
	struct client child = { .fd = -1 };
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .frame_bytes = sizeof(child) };
	struct acceptor acceptor = { .i = 0 };
	int i;

	MRT_BEGIN(self);
	f->fds_nr = itest_fds_nr();
	f->listener = listen_any(&f->addr);
	acceptor.fd = f->listener;
	ck_assert_int_eq(mrt_spawn(NULL, acceptor_poll, &acceptor, sizeof(acceptor), NULL, &f->acceptor), 0);
	mrt_scope_init(&f->scope, MRT_SCOPE_FAIL_FAST);
	child.addr = f->addr;
	for (i = 0; i < CONNECTIONS; i++) {
		child.id = i;
		ck_assert_int_eq(mrt_scope_spawn(&f->scope, client_poll, &child, offsetof(struct client, out), &opts), 0);
	}
	MRT_AWAIT(self, mrt_scope_join(&f->scope));
	ck_assert_int_eq(mrt_scope_join(&f->scope)->res, 0);
	MRT_AWAIT(self, mrt_join(&f->join, f->acceptor));
	ck_assert_int_eq(f->join.res, 0);
	close(f->listener);
	/* the echo tasks see the end and close */
	while (itest_fds_nr() != f->fds_nr)
		MRT_AWAIT(self, mrt_sleep(&f->op, MRT_MS(1)));
	MRT_RETURN(self, 0);
}

int main(void)
{
	Suite *suite = suite_create("socket");
	TCase *tc = tcase_create("socket");

	itest_need_io_uring();
	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, connect_accept_and_the_rest, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, errors_of_sockets, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, nonblocking_descriptors, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, send_all_goes_on_after_short_sends, 0, ITEST_KINDS_NR);
	tcase_add_loop_test(tc, send_all_to_a_peer_that_dies, 0, ITEST_FLAVOURS_NR);
	tcase_add_loop_test(tc, two_hundred_connections_echo, 0, ITEST_KINDS_NR);
	suite_add_tcase(suite, tc);
	return itest_main(suite);
}
