/* SPDX-License-Identifier: MIT */
/* Stands in for http.c in a build without libmicrohttpd. */
#ifndef TOOLS_MICROHTTPD
#include "http.h"

#include <errno.h>

const char *http_missing(void)
{
	return "this martlet was built without libmicrohttpd (libmicrohttpd-dev)";
}

int http_start(const struct sockaddr *addr, http_page_fn page, void *ctx, struct http **ret_http)
{
	(void)addr;
	(void)page;
	(void)ctx;
	(void)ret_http;
	return -EOPNOTSUPP;
}

unsigned http_port(const struct http *h)
{
	(void)h;
	return 0;
}

void http_stop(struct http *h)
{
	(void)h;
}
#endif
