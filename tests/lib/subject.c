/* SPDX-License-Identifier: MIT */
/* See subject.h. */
#include "subject.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "itest.h"

/* Check ends it with its test; this is for one that was started otherwise, and longer than any test on a slow machine. */
#define LIFE_S (20 * ITEST_LIMIT_S)

bool subject_has_bpf(void)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .map_flags = BPF_F_MMAPABLE, .key_size = 4,
				.value_size = 8, .max_entries = 1 };
	long fd = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));

	if (fd >= 0)
		close((int)fd);
	return fd >= 0;
}

atomic_uint_fast64_t subject_note;

void subject_forbid(unsigned nr)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(9);
}

void subject_become_nobody(uint64_t caps)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { (uint32_t)caps, (uint32_t)caps, (uint32_t)caps },
					       { (uint32_t)(caps >> 32), (uint32_t)(caps >> 32), (uint32_t)(caps >> 32) } };
	unsigned cap;

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(SUBJECT_NOBODY, SUBJECT_NOBODY, SUBJECT_NOBODY) ||
	    setresuid(SUBJECT_NOBODY, SUBJECT_NOBODY, SUBJECT_NOBODY) || syscall(SYS_capset, &h, d) || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
		_exit(8);
	for (cap = 0; cap < 64; cap++) {
		if (caps >> cap & 1 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0))
			_exit(8);
	}
}

static void subject_main(const struct subject_opts *so, int from, int to)
{
	struct mrt_runtime_opts opts = itest_opts(so->kind);
	struct subject s = { .pid = getpid() };
	struct mrt_runtime *rt;
	char byte;

	itest_alarm(LIFE_S);
	opts.flags |= so->flags;
	if (so->own_proc && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
			     mount("proc", "/proc", "proc", 0, NULL)))
		_exit(6);
	if (so->caps != SUBJECT_CAPS_ALL)
		subject_become_nobody(so->caps);
	if (so->forbidden[0])
		subject_forbid(so->forbidden[0]);
	if (so->forbidden[1])
		subject_forbid(so->forbidden[1]);
	rt = itest_create(&opts);
	if (so->work)
		so->work(rt);
	snprintf(s.backend, sizeof(s.backend), "%s", mrt_stats_backend(rt));
	s.note = atomic_load(&subject_note);
	for (;;) {
		if (write(to, &s, sizeof(s)) != sizeof(s) || read(from, &byte, 1) != 1)
			_exit(7);
		if (byte == SUBJECT_END)
			break;
		(byte == SUBJECT_WORK ? so->work : so->other)(rt);
		s.note = atomic_load(&subject_note);
	}
	mrt_runtime_destroy(rt);
	_exit(0);
}

struct subject subject_start(const struct subject_opts *so)
{
	struct subject s;
	int down[2], up[2];
	pid_t pid;

	ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(down[1]);
		close(up[0]);
		subject_main(so, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	ck_assert_msg(read(up[0], &s, sizeof(s)) == sizeof(s), "the subject did not start");
	s.pid = pid;
	s.to = down[1];
	s.from = up[0];
	return s;
}

void subject_do(struct subject *s, char what)
{
	struct subject said;

	ck_assert_int_eq(write(s->to, &what, 1), 1);
	ck_assert_msg(read(s->from, &said, sizeof(said)) == sizeof(said), "the subject has ended");
	s->note = said.note;
}

void subject_end(struct subject *s)
{
	const char end = SUBJECT_END;
	int status;

	ck_assert_int_eq(write(s->to, &end, 1), 1);
	ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
	ck_assert_msg(status == 0, "the subject ended with status %#x", status);
	close(s->to);
	close(s->from);
}

void subject_kill(struct subject *s)
{
	ck_assert_int_eq(kill(s->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(s->pid, NULL, 0), s->pid);
	close(s->to);
	close(s->from);
}
