/* SPDX-License-Identifier: MIT */
/*
 * See http.h. One thread of the library's serves all connections, so a page is never made twice at a time, and what is here
 * needs no lock.
 *
 * Whoever holds connections open, silent or with a byte now and then, must not keep others out: beyond CONNECTIONS_MAX the one that
 * is open for longest is shut down. A server that scrapes is done with its own in a moment.
 *
 * On the loopback address the Host header must be an address or localhost. A web page whose name is made to lead to 127.0.0.1
 * (DNS rebinding) has its reader's browser ask here, but with its own name. Elsewhere any name may be a right one, and who can
 * connect can read.
 */
#ifdef TOOLS_MICROHTTPD
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define CONNECTIONS_MAX 32u
#define TIMEOUT_S 15u

#define CONNECTIONS_LIMIT (2 * CONNECTIONS_MAX) /* the library's: with those that are shut down and not yet gone */

struct connection {
	struct connection *next;
	int fd;
	bool shut;
};

struct http {
	struct MHD_Daemon *daemon;
	http_page_fn page;
	void *ctx;
	bool is_local;          /* at a loopback address */
	struct connection *oldest;
	unsigned open_nr;       /* that are not shut */
};

static void shut_oldest(struct http *h)
{
	struct connection *c = h->oldest;

	while (c && c->shut)
		c = c->next;
	if (!c)
		return;
	(void)shutdown(c->fd, SHUT_RDWR); /* if it has gone already, the better */
	c->shut = true;
	h->open_nr--;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **ctx, enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct connection *c = *ctx, **link;
	struct http *h = cls;

	for (link = &h->oldest; *link && *link != c; link = &(*link)->next)
		;
	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (!c)
			return;
		*link = c->next;
		h->open_nr -= !c->shut;
		free(c);
		return;
	}
	c = info ? calloc(1, sizeof(*c)) : NULL; /* without memory it goes by the time-out alone */
	if (!c)
		return;
	c->fd = info->connect_fd;
	*link = *ctx = c; /* it had none: the end of the list */
	if (++h->open_nr > CONNECTIONS_MAX)
		shut_oldest(h);
}

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, char *text, size_t bytes,
			      enum MHD_ResponseMemoryMode mode, const char *type)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(bytes, text, mode);
	enum MHD_Result ret = MHD_NO;

	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	if (MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
	    (status != MHD_HTTP_METHOD_NOT_ALLOWED || MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES))
		ret = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return ret;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *sentence)
{
	char *copy = strdup(sentence);

	return copy ? answer(c, status, copy, strlen(copy), MHD_RESPMEM_MUST_FREE, "text/plain; charset=utf-8") : MHD_NO;
}

static enum MHD_Result answer_page(struct http *h, struct MHD_Connection *c)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int err;

	if (!out)
		return MHD_NO;
	err = h->page(out, h->ctx);
	if (fclose(out) && !err)
		err = -ENOMEM;
	if (!err)
		return answer(c, MHD_HTTP_OK, text, bytes, MHD_RESPMEM_MUST_FREE, "text/plain; version=0.0.4; charset=utf-8");
	free(text);
	return say(c, MHD_HTTP_INTERNAL_SERVER_ERROR, strerrordesc_np(-err));
}

static bool is_loopback(const struct sockaddr *addr)
{
	const struct sockaddr_in *v4 = (const void *)addr;
	const struct sockaddr_in6 *v6 = (const void *)addr;

	if (addr->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) || (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

/* "127.0.0.1:9798", "[::1]", "localhost:9798" */
static bool is_address_or_localhost(const char *text)
{
	unsigned char addr[sizeof(struct in6_addr)];
	bool is_v6 = text[0] == '[';
	size_t n = is_v6 ? strcspn(++text, "]") : strcspn(text, ":");
	char name[INET6_ADDRSTRLEN];

	if (n >= sizeof(name))
		return false;
	memcpy(name, text, n);
	name[n] = '\0';
	return inet_pton(is_v6 ? AF_INET6 : AF_INET, name, addr) == 1 || (!is_v6 && strcasecmp(name, "localhost") == 0);
}

static bool is_for_us(const struct http *h, struct MHD_Connection *c)
{
	const char *host = h->is_local ? MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST) : NULL;

	return !host || is_address_or_localhost(host); /* no browser leaves it out */
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method, const char *version,
				  const char *upload, size_t *upload_bytes, void **con_cls)
{
	static char begun;

	(void)version;
	(void)upload;
	if (*con_cls == NULL) { /* headers alone have come */
		*con_cls = &begun;
		return MHD_YES;
	}
	if (*upload_bytes) { /* what comes with it is of no interest */
		*upload_bytes = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
	if (!is_for_us(cls, c))
		return say(c, MHD_HTTP_FORBIDDEN, "at a loopback address Host must be localhost or an address; a proxy has to set it\n");
	if (strcmp(url, "/metrics") == 0)
		return answer_page(cls, c);
	if (strcmp(url, "/") == 0)
		return say(c, MHD_HTTP_OK, "martlet export: the metrics are at /metrics\n");
	return say(c, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n");
}

const char *http_missing(void)
{
	return NULL;
}

int http_start(const struct sockaddr *addr, http_page_fn page, void *ctx, struct http **ret_http)
{
	struct http *h = calloc(1, sizeof(*h));
	unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | (addr->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0);

	if (!h)
		return -ENOMEM;
	h->page = page;
	h->ctx = ctx;
	h->is_local = is_loopback(addr);
	errno = 0;
	h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, h, MHD_OPTION_SOCK_ADDR, addr, MHD_OPTION_CONNECTION_LIMIT,
				     CONNECTIONS_LIMIT, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
				     MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S, MHD_OPTION_LISTENING_ADDRESS_REUSE,
				     0u, MHD_OPTION_END);
	if (!h->daemon) {
		free(h);
		return errno ? -errno : -EIO;
	}
	*ret_http = h;
	return 0;
}

unsigned http_port(const struct http *h)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);

	return info ? info->port : 0;
}

void http_stop(struct http *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->daemon);
	free(h);
}
#endif
