/* SPDX-License-Identifier: MIT */
/*
 * Socket ops. What waits for a peer takes no credit, or a thousand idle connections would stop file I/O; socket and
 * shutdown end by themselves.
 *
 * send_all and recv_exact do not use MSG_WAITALL: with it the kernel loops, but an error that comes after bytes were
 * moved is consumed with the count and can no longer be told.
 */
#include "sched/io.h"

#include <errno.h>
#include <sys/socket.h>

#include <martlet/net.h>

#include "sched/op_begin.h"
#include "sched/worker.h"

struct mrt_op *mrt_socket(struct mrt_op *pub, int domain, int type, int protocol)
{
	struct mrt__op *op = mrt__op_of(pub);
	struct mrt__worker *w = mrt__op_begin(op, MRT__OP_SOCKET, MRT__OPF_CREDIT | MRT__OPF_OPENS_FD);
	int fd;

	if (!w)
		return pub;
	if (!mrt__ring_has_opcode(w->ring, MRT__OPCODE_SOCKET)) { /* before 5.19; it does not block */
		fd = socket(domain, type | SOCK_CLOEXEC, protocol);
		mrt__op_end_inline(op, fd < 0 ? -errno : fd);
		return pub;
	}
	op->raw = 0;
	op->io = (struct mrt__ring_args){
		.opcode = MRT__OPCODE_SOCKET, .fd = domain, .off = (uint32_t)(type | SOCK_CLOEXEC),
		.len = (uint32_t)protocol,
	};
	return mrt__op_submit(w, op);
}

struct mrt_op *mrt_accept(struct mrt_op *op, int fd, struct sockaddr *ret_addr, socklen_t *addr_len, int flags)
{
	if ((flags & ~SOCK_NONBLOCK) || !ret_addr != !addr_len)
		return mrt__op_refuse(op, MRT__OP_ACCEPT, -EINVAL);
	return mrt__io_start(op, MRT__OP_ACCEPT, MRT__OPF_OPENS_FD | MRT__OPF_OUT, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_ACCEPT, .fd = fd, .addr = mrt__io_addr(ret_addr), .off = mrt__io_addr(addr_len),
		.op_flags = (uint32_t)(flags | SOCK_CLOEXEC),
	});
}

struct mrt_op *mrt_connect(struct mrt_op *op, int fd, const struct sockaddr *addr, socklen_t addr_len)
{
	return mrt__io_start(op, MRT__OP_CONNECT, 0, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_CONNECT, .fd = fd, .addr = mrt__io_addr(addr), .off = addr_len,
	});
}

struct mrt_op *mrt_recv(struct mrt_op *op, int fd, void *buf, size_t len, int flags)
{
	return mrt__op_start_recv(op, 0, fd, buf, mrt__io_len(len), (uint32_t)flags);
}

struct mrt_op *mrt_send(struct mrt_op *op, int fd, const void *buf, size_t len, int flags)
{
	return mrt__op_start_send(op, 0, fd, buf, mrt__io_len(len), (uint32_t)(flags | MSG_NOSIGNAL));
}

struct mrt_op *mrt_recv_exact(struct mrt_op *op, int fd, void *buf, size_t len)
{
	if (mrt__unlikely(len > MRT_IO_BYTES_MAX))
		return mrt__op_refuse(op, MRT__OP_RECV, -EINVAL);
	return mrt__op_start_recv(op, MRT__OPF_ALL, fd, buf, (uint32_t)len, 0);
}

struct mrt_op *mrt_send_all(struct mrt_op *op, int fd, const void *buf, size_t len)
{
	if (mrt__unlikely(len > MRT_IO_BYTES_MAX))
		return mrt__op_refuse(op, MRT__OP_SEND, -EINVAL);
	return mrt__op_start_send(op, MRT__OPF_ALL, fd, buf, (uint32_t)len, MSG_NOSIGNAL);
}

struct mrt_op *mrt_shutdown(struct mrt_op *op, int fd, int how)
{
	return mrt__io_start(op, MRT__OP_SHUTDOWN, MRT__OPF_CREDIT, (struct mrt__ring_args){
		.opcode = MRT__OPCODE_SHUTDOWN, .fd = fd, .len = (uint32_t)how,
	});
}
