/* SPDX-License-Identifier: MIT */
/*
 * `martlet trace`: finds what has the probes, listens until it is told to stop, and prints what the programs have counted.
 *
 * A command is forked before the probes are attached and executed after, so that its first event is seen. Functions are
 * named as soon as they are met, since a process that has ended has no mappings any more.
 */
#include "viewer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach.h"
#include "bench.h"
#include "bpf/tracer.h"
#include "clock.h"
#include "fn_names.h"
#include "probed.h"
#include "proc.h"
#include "timeline.h"
#include "trace_opts.h"
#include "trace_result.h"

#define SAMPLE_HZ 1000u
#define PIN_BPFFS "/sys/fs/bpf"
#define PIN_ROOT PIN_BPFFS "/mrt"
#define PIN_PREFIX "top-"
#define DRAIN_MS 50             /* between two looks at the records, so that the kernel need not wake us for each */

struct trace_run {
	struct trace_opts o;
	pid_t pid;                      /* the process, or the command; 0: all */
	int go_fd;                      /* the command starts when it is written to; -1 */
	int pid_fd;                     /* readable when the process ends; -1 */
	int signal_fd;
	struct probed probed;
	struct attach_set set;          /* what is known of the runtimes */
	struct tracer *tracer;
	struct fn_names *names;
	struct timeline *timeline;
	uint64_t begin_ns;
	unsigned depths_nr;             /* workers whose depths are sampled */
};

__attribute__((format(printf, 1, 2)))
static int fail(const char *fmt, ...)
{
	va_list ap;

	fputs("martlet trace: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return -EINVAL;
}

/* ---- whom to trace ---- */

static void run_command(char **command, int go_fd, const sigset_t *mask)
{
	char go;

	if (read(go_fd, &go, 1) != 1)
		_exit(0); /* the tracer has given up */
	(void)sigprocmask(SIG_SETMASK, mask, NULL); /* as it was given to us */
	execvp(command[0], command);
	fprintf(stderr, "martlet trace: %s: %s\n", command[0], strerror(errno));
	_exit(127);
}

static int fork_command(struct trace_run *r, const sigset_t *mask)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return fail("pipe: %s", strerror(errno));
	r->pid = fork();
	if (r->pid == 0) {
		(void)close(fds[1]); /* or we would not see the end of it */
		run_command(r->o.command, fds[0], mask);
	}
	(void)close(fds[0]); /* the child's */
	r->go_fd = fds[1];
	return r->pid < 0 ? fail("fork: %s", strerror(errno)) : 0;
}

static int find_all(struct trace_run *r)
{
	int scan_err = attach_scan(&r->set, NULL, 0);

	if (scan_err)
		return fail("%s", strerror(-scan_err));
	for (unsigned i = 0; i < r->set.nr; i++) {
		int pid = r->set.items[i]->pid, err = probed_process(&r->probed, pid);

		if (err && err != -ENOENT)
			fprintf(stderr, "martlet trace: process %d is left out: %s\n", pid, strerror(-err));
	}
	if (r->probed.nr == 0)
		return fail("no process with a runtime was found%s", r->set.refusals_nr ?
			    "; some were seen that cannot be used: `martlet top --once` says why" : "");
	return 0;
}

static int find_process(struct trace_run *r)
{
	int err = probed_process(&r->probed, r->o.pid);
	char why[200];

	r->pid = r->o.pid;
	if (err == -ENOENT || err == -ESRCH)
		return fail("there is no process %d", (int)r->pid);
	if (err == -EACCES)
		return fail("%s", proc_why_not(r->pid, why, sizeof(why)));
	if (err)
		return fail("process %d: %s", (int)r->pid, strerror(-err));
	if (r->probed.nr == 0)
		return fail("process %d has no probes of Martlet in its program and libraries", (int)r->pid);
	err = attach_scan(&r->set, &r->pid, 1);
	return err ? fail("%s", strerror(-err)) : 0;
}

static int find_command_files(struct trace_run *r)
{
	int err = probed_command(&r->probed, r->o.command[0]);

	if (err)
		return fail("%s: %s", r->o.command[0], strerror(-err));
	if (r->probed.nr == 0)
		return fail("%s has no probes of Martlet, nor have the libraries that it is linked with; trace what it starts "
			    "by its process number, or with -a", r->o.command[0]);
	return 0;
}

/* ---- records ---- */

static void on_record(void *ctx, const struct trace_rec *rec)
{
	struct trace_run *r = ctx;

	if (rec->kind == TRACE_REC_FUNCTION)
		(void)fn_name(r->names, r->pid ? r->pid : (int)rec->tgid, rec->function.fn); /* kept there */
	else if (r->timeline)
		timeline_add(r->timeline, rec);
}

/* ---- the run ---- */

static void say_whom(const struct trace_run *r)
{
	FILE *out = r->o.json ? stderr : stdout;

	if (r->o.all)
		fprintf(out, "Tracing all processes with a runtime (%u now)", r->set.nr);
	else
		fprintf(out, "Tracing process %d%s%s", (int)r->pid, r->set.nr ? ", runtime " : "",
			r->set.nr ? r->set.items[0]->label : "");
	fprintf(out, "... Ctrl-C ends.\n");
	(void)fflush(out);
}

static int ms_left(const struct trace_run *r)
{
	uint64_t now = clock_ns(), end = r->begin_ns + r->o.duration_ns;

	if (!r->o.duration_ns)
		return DRAIN_MS;
	if (now >= end)
		return 0;
	return end - now > DRAIN_MS * UINT64_C(1000000) ? DRAIN_MS : (int)((end - now) / 1000000) + 1;
}

static void run_until_end(struct trace_run *r)
{
	struct pollfd fds[] = {
		{ .fd = r->signal_fd, .events = POLLIN },
		{ .fd = r->pid_fd, .events = POLLIN },
		{ .fd = tracer_fd(r->tracer), .events = POLLIN },
	};
	int ms, more = 0;

	while (more >= 0 && (ms = ms_left(r)) > 0) {
		if (poll(fds, sizeof(fds) / sizeof(fds[0]), more ? 0 : ms) < 0 && errno != EINTR)
			break;
		if (fds[0].revents || fds[1].revents)
			break;
		more = tracer_consume(r->tracer);
	}
}

static const struct attach *runtime_of(const struct trace_run *r)
{
	for (unsigned i = 0; i < r->set.nr; i++)
		if (r->set.items[i]->fds[ATTACH_WORKERS] >= 0)
			return r->set.items[i];
	return NULL;
}

static int refuse_maps(const struct trace_run *r, const char *what)
{
	char why[300];

	if (r->set.nr == 0)
		return fail("%s: %s", what, attach_why_not(&r->set, (int)r->pid, why, sizeof(why)));
	if (strcmp(r->set.items[0]->backend, "bpf") != 0)
		return fail("%s: process %d was not allowed BPF, so its statistics are in a %s", what, (int)r->pid,
			    r->set.items[0]->backend);
	return fail("%s: the maps of process %d cannot be opened; this takes CAP_SYS_ADMIN", what, (int)r->pid);
}

static int open_tracer(struct trace_run *r)
{
	const struct attach *a = r->o.depths ? runtime_of(r) : NULL;
	struct tracer_opts o = { .pid = r->pid, .files = (const char *const *)r->probed.files, .files_nr = r->probed.nr,
				 .how = r->o.how, .ops = r->o.ops, .offcpu = r->o.offcpu, .timeline = r->o.timeline != NULL,
				 .buffer_bytes = r->o.buffer_bytes, .workers_fd = a ? a->fds[ATTACH_WORKERS] : -1,
				 .workers_nr = a ? a->workers_nr : 0, .sample_hz = SAMPLE_HZ, .on_record = on_record, .ctx = r };
	char why[TRACER_WHY_BYTES];
	int err;

	if (r->o.depths && !a)
		return refuse_maps(r, "depths cannot be sampled");
	r->depths_nr = o.workers_nr;
	err = tracer_open(&o, &r->tracer, why);
	return err ? fail("%s", why) : 0;
}

static int open_timeline(struct trace_run *r)
{
	struct timeline_opts o = { .path = r->o.timeline, .begin_ns = r->begin_ns, .events_max = r->o.events_max,
				   .pid = r->pid, .names = r->names };
	int err = r->o.timeline ? timeline_create(&o, &r->timeline) : 0;

	return err ? fail("%s: %s", r->o.timeline, strerror(-err)) : 0;
}

static void end_timeline(struct trace_run *r, uint64_t end_ns, struct trace_result *result)
{
	const void *prev = NULL;
	struct trace_thread th;
	uint32_t tid;

	if (!r->timeline)
		return;
	for (; tracer_next(r->tracer, TRACER_THREADS, prev, &tid, &th); prev = &tid)
		timeline_add_thread(r->timeline, &th, end_ns);
	timeline_end(r->timeline, result->lost[TRACE_LOST_records], &result->file);
	r->timeline = NULL;
}

static int print(struct trace_run *r)
{
	struct trace_result result = { 0 };
	uint64_t end_ns = clock_ns();
	int err;

	tracer_detach(r->tracer);
	while (tracer_consume(r->tracer) > 0)
		;
	result.duration_ns = end_ns - r->begin_ns;
	err = trace_result_read(&result, r->tracer, r->pid, r->depths_nr, r->names);
	end_timeline(r, end_ns, &result);
	if (!err && r->o.json)
		err = trace_result_print_json(stdout, &result, &r->o);
	else if (!err)
		trace_result_print(stdout, &result, &r->o);
	if (!err && result.file.error)
		err = fail("%s: %s", r->o.timeline, strerror(-result.file.error));
	else if (err)
		(void)fail("%s", strerror(-err));
	trace_result_free(&result);
	return err;
}

/* ---- the command's end ---- */

static void end_command(struct trace_run *r)
{
	int status;

	if (r->go_fd >= 0)
		(void)close(r->go_fd); /* not started: it ends by itself */
	if (!r->o.command || r->pid <= 0)
		return;
	if (r->tracer && waitpid(r->pid, &status, WNOHANG) == 0)
		(void)kill(r->pid, SIGTERM); /* it is our child, and not waited for: still there */
	else if (r->tracer)
		return;
	(void)waitpid(r->pid, &status, 0); /* whatever it ended with */
}

static void fini(struct trace_run *r)
{
	end_command(r);
	if (r->timeline) {
		struct trace_file file;

		timeline_end(r->timeline, 0, &file);
	}
	tracer_close(r->tracer);
	fn_names_destroy(r->names);
	attach_set_close(&r->set);
	probed_free(&r->probed);
	if (r->pid_fd >= 0)
		(void)close(r->pid_fd); /* only watched */
	if (r->signal_fd >= 0)
		(void)close(r->signal_fd); /* only read */
}

static int run(struct trace_run *r)
{
	char why[TRACER_WHY_BYTES];
	sigset_t ends, mask;
	int err;

	if (tracer_check(r->o.how, why))
		return fail("%s", why);
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &ends, &mask); /* the set is good */
	r->signal_fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
	r->names = fn_names_create();
	if (r->signal_fd < 0 || !r->names)
		return fail("no memory");
	if (r->o.all)
		err = find_all(r);
	else if (r->o.pid)
		err = find_process(r);
	else
		err = find_command_files(r);
	if (!err && r->o.command)
		err = fork_command(r, &mask);
	if (!err && r->pid)
		r->pid_fd = (int)syscall(SYS_pidfd_open, r->pid, 0);
	if (!err)
		err = open_tracer(r);
	r->begin_ns = clock_ns();
	if (!err)
		err = open_timeline(r);
	if (err)
		return err;
	say_whom(r);
	if (r->go_fd >= 0 && write(r->go_fd, "", 1) != 1)
		return fail("%s: it did not start", r->o.command[0]);
	run_until_end(r);
	return print(r);
}

/* ---- the pin ---- */

/* What dead processes have left: their iterators print nothing any more. */
static void remove_stale_pins(void)
{
	DIR *dir = opendir(PIN_ROOT);
	struct dirent *e;
	int pid, end;

	while (dir && (e = readdir(dir))) {
		end = 0;
		if (sscanf(e->d_name, PIN_PREFIX "%d%n", &pid, &end) == 1 && !e->d_name[end] && kill(pid, 0) && errno == ESRCH)
			(void)unlinkat(dirfd(dir), e->d_name, 0); /* another's: it stays */
	}
	if (dir)
		(void)closedir(dir); /* only read */
}

static int make_place(pid_t pid, char path[64])
{
	struct statfs fs;

	if (statfs(PIN_BPFFS, &fs) || fs.f_type != BPF_FS_MAGIC)
		return fail("bpffs is not mounted: mount -t bpf bpf " PIN_BPFFS);
	if (mkdir(PIN_ROOT, 0755) && errno != EEXIST)
		return fail("%s: %s", PIN_ROOT, strerror(errno));
	remove_stale_pins();
	(void)snprintf(path, 64, PIN_ROOT "/" PIN_PREFIX "%d", (int)pid); /* fits */
	(void)unlink(path); /* of an earlier call; if it stays, pinning says so */
	return 0;
}

static int pin(pid_t pid)
{
	struct trace_run r = { .pid = pid, .pid_fd = -1, .signal_fd = -1, .go_fd = -1 };
	char why[TRACER_WHY_BYTES], path[64];
	const struct attach *a;
	int err;

	err = attach_scan(&r.set, &pid, 1);
	if (err)
		return fail("%s", strerror(-err));
	a = runtime_of(&r);
	err = a ? make_place(pid, path) : refuse_maps(&r, "nothing is pinned");
	if (!err) {
		err = tracer_pin_workers(pid, a->fds[ATTACH_WORKERS], a->workers_nr, path, why);
		if (err)
			(void)fail("%s", why);
	}
	if (!err && chmod(path, 0444))
		err = fail("%s: %s", path, strerror(errno));
	if (!err)
		printf("%s\n", path);
	attach_set_close(&r.set);
	return err;
}

int trace_main(int argc, char **argv)
{
	struct trace_run r = { .pid_fd = -1, .signal_fd = -1, .go_fd = -1 };
	int rc = trace_opts_parse(&r.o, argc, argv, stderr);

	if (rc)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	if (tracer_missing()) {
		(void)fail("%s", tracer_missing());
		return EXIT_FAILURE;
	}
	if (r.o.pin)
		return pin(r.o.pid) ? EXIT_FAILURE : EXIT_SUCCESS;
	rc = run(&r);
	fini(&r);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
