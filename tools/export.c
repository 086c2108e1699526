/* SPDX-License-Identifier: MIT */
/*
 * `martlet export`: the statistics for Prometheus. Every scrape looks for runtimes anew, so processes come and go without a
 * word. Nothing is switched on in them: what is timed is what mrt_ctl says.
 */
#include "viewer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "http.h"
#include "metrics.h"

#define LISTEN_DEFAULT "127.0.0.1:9798"

struct export {
	struct viewer_pids pids;
	struct attach_set set;
};

static int page(FILE *out, void *ctx)
{
	struct export *e = ctx;
	int err = viewer_look(&e->set, &e->pids);

	return err ? err : metrics_write(out, &e->set);
}

/* ADDR:PORT, [ADDR]:PORT for IPv6. */
static int parse_listen(const char *text, struct sockaddr_storage *ret_addr)
{
	struct sockaddr_in *v4 = (void *)ret_addr;
	struct sockaddr_in6 *v6 = (void *)ret_addr;
	const char *colon = strrchr(text, ':');
	char host[64], *end;
	unsigned long port;
	size_t n;

	memset(ret_addr, 0, sizeof(*ret_addr));
	if (!colon || colon == text || (size_t)(colon - text) >= sizeof(host) || colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	if (*end || port > UINT16_MAX)
		return -EINVAL;
	n = (size_t)(colon - text);
	memcpy(host, text, n);
	host[n] = '\0';
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	v4->sin_family = AF_INET;
	v4->sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -EINVAL;
}

static int print_once(struct export *e)
{
	int err = page(stdout, e);

	if (err || fflush(stdout)) {
		fprintf(stderr, "martlet export: %s\n", strerror(err ? -err : errno));
		return EXIT_FAILURE;
	}
	return viewer_complain(&e->set, &e->pids, "export") ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int serve(struct export *e, const struct sockaddr_storage *addr, const char *where)
{
	struct http *http;
	sigset_t ends;
	int err, sig;

	if (http_missing()) {
		fprintf(stderr, "martlet export: %s; --once prints to standard output\n", http_missing());
		return EXIT_USAGE;
	}
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	(void)pthread_sigmask(SIG_BLOCK, &ends, NULL); /* inherited by the server's thread */
	err = http_start((const void *)addr, page, e, &http);
	if (err) {
		fprintf(stderr, "martlet export: cannot listen at %s: %s\n", where, strerror(-err));
		return EXIT_FAILURE;
	}
	printf("metrics at http://%.*s:%u/metrics\n", (int)(strrchr(where, ':') - where), where, http_port(http));
	(void)fflush(stdout); /* whoever started us may wait for it */
	(void)sigwait(&ends, &sig); /* cannot fail */
	http_stop(http);
	return EXIT_SUCCESS;
}

static void help(void)
{
	fputs("usage: martlet export [--listen=ADDR:PORT] [--once] [PID ...]\n\n"
	      "The statistics of all runtimes on this machine, or of these processes, for Prometheus.\n\n"
	      "  --listen=ADDR:PORT   serve http://ADDR:PORT/metrics, [ADDR]:PORT for IPv6, port 0 for any (" LISTEN_DEFAULT ")\n"
	      "  --once               print to standard output, and end\n",
	      stdout);
}

int export_main(int argc, char **argv)
{
	static const struct option options[] = { { "listen", required_argument, NULL, 'l' }, { "once", no_argument, NULL, '1' },
						 { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 } };
	const char *where = LISTEN_DEFAULT;
	struct sockaddr_storage addr;
	static struct export e;
	bool once = false;
	int c, rc;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'l':
			where = optarg;
			break;
		case '1':
			once = true;
			break;
		case 'h':
			help();
			return EXIT_SUCCESS;
		default:
			fprintf(stderr, "`martlet export --help` lists the options\n");
			return EXIT_USAGE;
		}
	}
	if (parse_listen(where, &addr)) {
		fprintf(stderr, "martlet export: --listen=%s: it must be ADDR:PORT, as " LISTEN_DEFAULT " or [::1]:9798\n", where);
		return EXIT_USAGE;
	}
	if (viewer_pids_parse(&e.pids, argc - optind, argv + optind, "export"))
		return EXIT_USAGE;
	rc = once ? print_once(&e) : serve(&e, &addr, where);
	attach_set_close(&e.set);
	return rc;
}
