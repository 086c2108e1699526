/* SPDX-License-Identifier: MIT */
/* A small server of one page, by libmicrohttpd; http_absent.c stands in where the build has none. */
#ifndef TOOLS_HTTP_H
#define TOOLS_HTTP_H

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>

struct http;

/* Writes the page. On the server's thread, one call at a time. @return 0, -errno: the client gets an error */
typedef int (*http_page_fn)(FILE *out, void *ctx);

/* What is missing of the build, in a sentence; NULL: nothing. */
const char *http_missing(void);

/**
 * Serve GET and HEAD of /metrics; at a loopback address to nobody who calls us by a name other than localhost.
 *
 * @param addr  where to listen; port 0: any that is free
 * @return 0, -errno; -EOPNOTSUPP: not in this build
 */
int http_start(const struct sockaddr *addr, http_page_fn page, void *ctx, struct http **ret_http);

/* The port that it listens on. */
unsigned http_port(const struct http *h);

/* Ends all connections. NULL is ignored. */
void http_stop(struct http *h);

#endif
