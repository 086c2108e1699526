/* SPDX-License-Identifier: MIT */
/*
 * What the peers that are written in C and C++ share: arguments and output. Those in Rust and Go have the same ones.
 *
 *	PROGRAM SHAPE WORKERS N [ARG [FILE [direct]]]
 *
 *	WORKERS   0: the flavour that runs on the calling thread; else so many worker threads
 *	N         operations; of shapes that have a window, its length in ms
 *	ARG       threads, pause in us, depth, live timers' lead in ms: the shape says (docs/bench-peers.md)
 *
 * One line of JSON for each figure, wall and CPU time for each operation that was done:
 *
 *	{"shape":"yield","peer":"martlet","workers":0,"ops":1000000,"wall_ns":12.3,"cpu_ns":12.2,"extra":{}}
 *
 * A shape that a peer does not have is exit status 77.
 */
#ifndef BENCH_PEERS_PEER_H
#define BENCH_PEERS_PEER_H

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "../machine.h"

#define PEER_NO_SUCH_SHAPE 77
#define PEER_LIMIT_S 120u       /* whoever is not done by then is ended by SIGALRM */

#define PEER_SPAWN_ROUND 10000u /* tasks that are spawned before they are waited for */
#define PEER_JOIN_ROUND 1000u
#define PEER_PING_ROUND 1000u
#define PEER_YIELDERS 200u
#define PEER_BLOCKING_ROUND 16u
#define PEER_FAIR_TASKS 1000u
#define PEER_FAIR_WARM_NS 100000000u
#define PEER_ACC_MS_MAX 50u
#define PEER_BLOCK_BYTES 4096u
#define PEER_ECHO_BUF_BYTES 1024u

struct peer_args {
	const char *peer;
	const char *shape;
	unsigned workers;
	uint64_t n;
	uint64_t arg;
	const char *file;
	bool direct;
};

struct peer_shape {
	const char *name;
	void (*run)(const struct peer_args *a);
};

/* A measured stretch. */
struct peer_span {
	uint64_t wall_ns, cpu_ns;
};

static inline struct peer_span peer_start(void)
{
	struct peer_span s;

	s.cpu_ns = bench_cpu_ns();
	s.wall_ns = bench_clock(CLOCK_MONOTONIC);
	return s;
}

static inline void peer_stop(struct peer_span *s)
{
	s->wall_ns = bench_clock(CLOCK_MONOTONIC) - s->wall_ns;
	s->cpu_ns = bench_cpu_ns() - s->cpu_ns;
}

/*
 * Print a figure.
 *
 * @param shape  NULL: the one that was asked for
 * @param ops    counted where the work was done, not what was asked for
 * @param extra  the inside of a JSON object; empty: none
 */
__attribute__((format(printf, 5, 6)))
static inline void peer_print(const struct peer_args *a, const char *shape, uint64_t ops, const struct peer_span *s,
			      const char *extra, ...)
{
	va_list ap;

	if (ops == 0)
		bench_die("%s %s: nothing was done", a->peer, a->shape);
	printf("{\"shape\":\"%s\",\"peer\":\"%s\",\"workers\":%u,\"ops\":%llu,\"wall_ns\":%.3f,\"cpu_ns\":%.3f,\"extra\":{",
	       shape ? shape : a->shape, a->peer, a->workers, (unsigned long long)ops,
	       (double)s->wall_ns / (double)ops, (double)s->cpu_ns / (double)ops);
	va_start(ap, extra);
	vprintf(extra, ap);
	va_end(ap);
	printf("}}\n");
	fflush(stdout);
}

struct peer_shares {
	uint64_t sum;
	double slowest, fastest;        /* of the mean */
};

/* @param nr_of  [nr] how often each had its turn */
static inline struct peer_shares peer_shares_of(const uint64_t *nr_of, size_t nr)
{
	struct peer_shares s = { 0, 0, 0 };
	uint64_t min = UINT64_MAX, max = 0;
	size_t i;

	for (i = 0; i < nr; i++) {
		min = nr_of[i] < min ? nr_of[i] : min;
		max = nr_of[i] > max ? nr_of[i] : max;
		s.sum += nr_of[i];
	}
	if (s.sum == 0)
		bench_die("none of %zu had a turn", nr);
	if (s.sum < 4 * nr)
		fprintf(stderr, "%llu turns of %zu: too few to judge fairness\n", (unsigned long long)s.sum, nr);
	s.slowest = (double)(min * nr) / (double)s.sum;
	s.fastest = (double)(max * nr) / (double)s.sum;
	return s;
}

#define PEER_SHARES "\"slowest\":%.4f,\"fastest\":%.4f"

/* A listening socket of the loopback device; its port is said in a line of its own, which the load generator reads. */
static inline int peer_listen(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in addr;
	socklen_t len = sizeof(addr);

	memset(&addr, 0, sizeof(addr));
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) || listen(fd, 4096) ||
	    getsockname(fd, (struct sockaddr *)&addr, &len))
		bench_die("a listening socket: %s", strerror(errno));
	printf("port %u\n", ntohs(addr.sin_port));
	fflush(stdout);
	return fd;
}

/* The file that is to be read. @param ret_blocks  its size in blocks of PEER_BLOCK_BYTES */
static inline int peer_open(const struct peer_args *a, uint64_t *ret_blocks)
{
	int fd = a->file ? open(a->file, O_RDONLY | O_CLOEXEC | (a->direct ? O_DIRECT : 0)) : -1;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || st.st_size < (off_t)PEER_BLOCK_BYTES || a->arg < 1)
		bench_die("%s: no file to read at a depth of 1 or more", a->file ? a->file : "(none)");
	*ret_blocks = (uint64_t)st.st_size / PEER_BLOCK_BYTES;
	return fd;
}

static inline void peer_no_delay(int fd)
{
	int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		bench_die("TCP_NODELAY: %s", strerror(errno));
}

static inline uint64_t peer_number(const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	if (end == text || *end) {
		fprintf(stderr, "'%s' is no number\n", text);
		exit(2);
	}
	return n;
}

/* Read the arguments, run the shape. @return exit status */
static inline int peer_main(const char *peer, const struct peer_shape *shapes, size_t shapes_nr, int argc, char **argv)
{
	struct peer_args a = { peer, NULL, 0, 0, 0, NULL, false };
	size_t i;

	if (argc < 4) {
		fprintf(stderr, "usage: %s SHAPE WORKERS N [ARG [FILE [direct]]]\nshapes:", argv[0]);
		for (i = 0; i < shapes_nr; i++)
			fprintf(stderr, " %s", shapes[i].name);
		fputc('\n', stderr);
		return 2;
	}
	a.shape = argv[1];
	a.workers = (unsigned)peer_number(argv[2]);
	a.n = peer_number(argv[3]);
	a.arg = argc > 4 ? peer_number(argv[4]) : 0;
	a.file = argc > 5 ? argv[5] : NULL;
	a.direct = argc > 6;
	(void)alarm(PEER_LIMIT_S); /* none was set */
	for (i = 0; i < shapes_nr; i++) {
		if (strcmp(shapes[i].name, a.shape) == 0) {
			shapes[i].run(&a);
			return 0;
		}
	}
	fprintf(stderr, "%s has no shape '%s'\n", peer, a.shape);
	return PEER_NO_SUCH_SHAPE;
}

/* How late sleeps were: the inside of "extra". Sorts. */
#define PEER_LATENESS "\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f"
#define PEER_LATENESS_OF(late, nr)                                                                      \
	(double)bench_percentile(late, nr, 50) / 1e3, (double)bench_percentile(late, nr, 99) / 1e3,      \
		(double)(late)[(nr)-1] / 1e3

#endif
