/* SPDX-License-Identifier: MIT */
/*
 * The load generator of the echo shapes: starts a server, opens connections, keeps one request of 64 bytes in flight on each,
 * and tells what the server's process used for each request.
 *
 *	load PEER CONNECTIONS WARM_MS WINDOW_MS PROGRAM SHAPE WORKERS N
 *
 * The server runs on the first allowed CPU, this program on the last. The server's first line is "port N"; it is killed in
 * the end. Every reply is compared with what was sent. One ring, one thread: a recv is in flight before its reply can come.
 */
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "peer.h"

#define BYTES 64u
#define CONNS_MAX 16384u
#define SAMPLES_MAX (8u << 20)  /* of latency; later ones are not kept */
#define RING_ENTRIES 4096u

/* What a completion is of: in the low bits of its user data, above them the connection. */
enum {
	OF_SEND,
	OF_RECV
};

struct conn {
	int fd;
	unsigned got;           /* bytes of the reply so far */
	uint64_t sent_ns;
	uint64_t seq;
	char out[BYTES], in[BYTES];
};

static struct {
	struct io_uring ring;
	struct conn *conns;     /* [conns_nr] */
	unsigned conns_nr;
	uint64_t *replies;      /* [conns_nr], in the window */
	uint64_t *ns;           /* [samples_nr], latencies in the window */
	size_t samples_nr;
	bool counts;
} load;

/* ---- the server ---- */

static pid_t start_server(int cpu, char **argv, FILE **ret_out)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		bench_die("pipe2: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail */
		bench_pin(&cpu, 1);
		(void)dup2(fds[1], STDOUT_FILENO); /* a bad one shows: no port is said */
		execv(argv[0], argv);
		bench_die("%s: %s", argv[0], strerror(errno));
	}
	(void)close(fds[1]); /* the child's */
	*ret_out = fdopen(fds[0], "re");
	if (!*ret_out)
		bench_die("fdopen: %s", strerror(errno));
	return pid;
}

static uint16_t read_port(FILE *from)
{
	unsigned port;

	if (fscanf(from, "port %u", &port) != 1 || port == 0 || port > UINT16_MAX)
		bench_die("the server said no port");
	return (uint16_t)port;
}

static uint64_t cpu_ns_of(pid_t pid)
{
	clockid_t id;

	if (clock_getcpuclockid(pid, &id))
		bench_die("the server has ended");
	return bench_clock(id);
}

/* ---- connections ---- */

static int connect_to(uint16_t port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in addr;

	memset(&addr, 0, sizeof(addr));
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	addr.sin_port = htons(port);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		bench_die("a connection: %s", strerror(errno));
	peer_no_delay(fd);
	return fd;
}

/* A connection that was answered once is accepted: to wait for that is no matter of fairness. */
static void ask_once(struct conn *c)
{
	ssize_t got = send(c->fd, c->out, BYTES, MSG_NOSIGNAL);

	if (got != (ssize_t)BYTES || recv(c->fd, c->in, BYTES, MSG_WAITALL) != got)
		bench_die("a first request: %s", strerror(errno));
}

static struct io_uring_sqe *get_sqe(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&load.ring);

	while (!sqe) {
		if (io_uring_submit(&load.ring) < 0)
			bench_die("io_uring_submit failed");
		sqe = io_uring_get_sqe(&load.ring);
	}
	return sqe;
}

static void queue_recv(struct conn *c)
{
	struct io_uring_sqe *sqe = get_sqe();

	io_uring_prep_recv(sqe, c->fd, c->in + c->got, BYTES - c->got, 0);
	sqe->user_data = (uint64_t)(c - load.conns) << 1 | OF_RECV;
}

static void send_request(struct conn *c)
{
	struct io_uring_sqe *sqe = get_sqe();

	c->seq++;
	memcpy(c->out, &c->seq, sizeof(c->seq));
	c->got = 0;
	c->sent_ns = bench_clock(CLOCK_MONOTONIC);
	io_uring_prep_send(sqe, c->fd, c->out, BYTES, MSG_NOSIGNAL);
	sqe->user_data = (uint64_t)(c - load.conns) << 1 | OF_SEND;
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	queue_recv(c);
}

static void take_reply(struct conn *c)
{
	uint64_t now = bench_clock(CLOCK_MONOTONIC);

	if (memcmp(c->in, c->out, BYTES) != 0)
		bench_die("a reply is not what was sent");
	if (load.counts) {
		load.replies[c - load.conns]++;
		if (load.samples_nr < SAMPLES_MAX)
			load.ns[load.samples_nr++] = now - c->sent_ns;
	}
	send_request(c);
}

static void take_completion(const struct io_uring_cqe *cqe)
{
	struct conn *c = &load.conns[cqe->user_data >> 1];

	if (cqe->res <= 0)
		bench_die("a %s: %s", cqe->user_data & OF_RECV ? "recv" : "send",
			  cqe->res ? strerror(-cqe->res) : "the server closed the connection");
	if (!(cqe->user_data & OF_RECV)) {
		if (cqe->res != (int)BYTES)
			bench_die("a short send");
		return;
	}
	c->got += (unsigned)cqe->res;
	if (c->got == BYTES)
		take_reply(c);
	else
		queue_recv(c);
}

static void run_for(uint64_t ns)
{
	uint64_t end = bench_clock(CLOCK_MONOTONIC) + ns;
	struct io_uring_cqe *cqe;
	unsigned head, nr;
	int rc;

	while (bench_clock(CLOCK_MONOTONIC) < end) {
		rc = io_uring_submit_and_wait(&load.ring, 1);
		if (rc < 0 && rc != -EINTR)
			bench_die("io_uring_submit_and_wait: %s", strerror(-rc));
		nr = 0;
		io_uring_for_each_cqe(&load.ring, head, cqe) {
			take_completion(cqe);
			nr++;
		}
		io_uring_cq_advance(&load.ring, nr);
	}
}

/* ---- all ---- */

static void make_ring(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN };
	int rc = io_uring_queue_init_params(RING_ENTRIES, &load.ring, &p);

	if (rc == -EINVAL) { /* before Linux 6.1 */
		memset(&p, 0, sizeof(p));
		rc = io_uring_queue_init_params(RING_ENTRIES, &load.ring, &p);
	}
	if (rc)
		bench_die("a ring: %s", strerror(-rc));
}

/* Both ends inherit it. */
static void raise_files_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		bench_die("RLIMIT_NOFILE: %s", strerror(errno));
	r.rlim_cur = r.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &r); /* if it does not suffice, a connection fails and says so */
}

static void print(char **argv, const struct peer_span *client, uint64_t server_cpu_ns)
{
	struct peer_shares shares = peer_shares_of(load.replies, load.conns_nr);
	struct peer_span s = { client->wall_ns, server_cpu_ns };
	struct peer_args a = { .peer = argv[1], .shape = argv[6], .workers = (unsigned)peer_number(argv[7]) };

	bench_sort_u64(load.ns, load.samples_nr);
	peer_print(&a, NULL, shares.sum, &s, PEER_LATENESS "," PEER_SHARES ",\"client_busy\":%.3f",
		   PEER_LATENESS_OF(load.ns, load.samples_nr), shares.slowest, shares.fastest,
		   (double)client->cpu_ns / (double)client->wall_ns);
}

int main(int argc, char **argv)
{
	int cpus[CPU_SETSIZE];
	unsigned cpus_nr = bench_cpus(cpus), i;
	uint64_t warm_ms, window_ms, server_cpu_ns;
	struct peer_span client;
	uint16_t port;
	FILE *out;
	pid_t pid;

	if (argc < 9) {
		fprintf(stderr, "usage: %s PEER CONNECTIONS WARM_MS WINDOW_MS PROGRAM SHAPE WORKERS N\n", argv[0]);
		return 2;
	}
	load.conns_nr = (unsigned)peer_number(argv[2]);
	warm_ms = peer_number(argv[3]);
	window_ms = peer_number(argv[4]);
	if (load.conns_nr < 1 || load.conns_nr > CONNS_MAX) {
		fprintf(stderr, "%s: 1 to %u connections\n", argv[0], CONNS_MAX);
		return 2;
	}
	(void)alarm(PEER_LIMIT_S); /* none was set */
	raise_files_limit();
	pid = start_server(cpus[0], argv + 5, &out);
	bench_pin(&cpus[cpus_nr - 1], 1);
	port = read_port(out);
	load.conns = bench_alloc(load.conns_nr, sizeof(*load.conns));
	load.replies = bench_alloc(load.conns_nr, sizeof(*load.replies));
	load.ns = bench_alloc(SAMPLES_MAX, sizeof(*load.ns));
	make_ring();
	for (i = 0; i < load.conns_nr; i++) {
		load.conns[i].fd = connect_to(port);
		ask_once(&load.conns[i]);
	}
	for (i = 0; i < load.conns_nr; i++)
		send_request(&load.conns[i]);
	run_for(warm_ms * 1000000);
	load.counts = true;
	server_cpu_ns = cpu_ns_of(pid);
	client = peer_start();
	do {
		run_for(window_ms * 1000000);
	} while (load.samples_nr == 0); /* on a machine that is busy with others */
	peer_stop(&client);
	server_cpu_ns = cpu_ns_of(pid) - server_cpu_ns;
	(void)kill(pid, SIGKILL); /* ours, not waited for yet */
	(void)waitpid(pid, NULL, 0);
	print(argv, &client, server_cpu_ns);
	return 0;
}
