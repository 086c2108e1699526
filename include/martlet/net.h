/* SPDX-License-Identifier: MIT */
/*
 * Socket ops, one-shot forms. Thread, ownership, blocking and common errors as in file.h. Ops that wait for a peer
 * take no I/O credits: idle connections never hold up file I/O.
 */
#ifndef MARTLET_NET_H
#define MARTLET_NET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <martlet/export.h>
#include <martlet/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Make a socket; SOCK_CLOEXEC is added. A descriptor that arrives after its task has returned is closed.
 *
 * @result  descriptor
 */
MRT_API struct mrt_op *mrt_socket(struct mrt_op *op, int domain, int type, int protocol);

/**
 * Accept a connection; SOCK_CLOEXEC is added. A descriptor that arrives after its task has returned is closed.
 *
 * @param ret_addr, addr_len  as accept(2); both NULL: not wanted. Both are the runtime's until the op completes
 * @param flags  SOCK_NONBLOCK or 0
 * @result  descriptor
 */
MRT_API struct mrt_op *mrt_accept(struct mrt_op *op, int fd, struct sockaddr *ret_addr, socklen_t *addr_len, int flags);

/**
 * Connect.
 *
 * @param addr      the runtime's until the op completes
 * @param addr_len  bytes of addr
 * @result  0
 */
MRT_API struct mrt_op *mrt_connect(struct mrt_op *op, int fd, const struct sockaddr *addr, socklen_t addr_len);

/**
 * Receive.
 *
 * @param buf    [len]
 * @param flags  MSG_*
 * @result  bytes, 0 when the peer has ended; may be short
 */
MRT_API struct mrt_op *mrt_recv(struct mrt_op *op, int fd, void *buf, size_t len, int flags);

/* Send; no SIGPIPE. @result bytes; may be short */
MRT_API struct mrt_op *mrt_send(struct mrt_op *op, int fd, const void *buf, size_t len, int flags);

/**
 * Receive until len bytes or the peer's end.
 *
 * @param len  0..MRT_IO_BYTES_MAX; more is -EINVAL
 * @result  bytes: len, or less where the peer has ended; where an error ended it after it had moved bytes, their number,
 *          and the error in op->why
 */
MRT_API struct mrt_op *mrt_recv_exact(struct mrt_op *op, int fd, void *buf, size_t len);

/**
 * Send all len bytes; no SIGPIPE.
 *
 * @param len  0..MRT_IO_BYTES_MAX; more is -EINVAL
 * @result  len; where an error ended it after it had moved bytes, their number, and the error in op->why
 */
MRT_API struct mrt_op *mrt_send_all(struct mrt_op *op, int fd, const void *buf, size_t len);

/* Shut a connection's directions: SHUT_RD, SHUT_WR, SHUT_RDWR; wakes what waits on it. @result 0 */
MRT_API struct mrt_op *mrt_shutdown(struct mrt_op *op, int fd, int how);

#ifdef __cplusplus
}
#endif

#endif
