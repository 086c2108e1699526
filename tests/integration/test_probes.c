/* SPDX-License-Identifier: MIT */
/*
 * The probes: the notes in this executable (static library) and in the shared one are those of the list, each at the entry
 * of a stub of its own, with a semaphore that lies in one writable segment; a tracer that attaches by uprobe_multi, before
 * or after the work has begun, sees each event once, with the arguments; results are the same while it does; and when it
 * is killed, the semaphores go back to 0.
 *
 * The tracer is a child with a BPF program in bytes: it adds one, and the six arguments, to the element that the probe's
 * cookie names. So nothing here needs libbpf or a compiler for BPF.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "itest.h"
#include "work.h"
#include "bpf/notes.h"
#include "probe/usdt.h"

#define ARGS_MAX 6

/* ---- the list ---- */

struct listed {
	const char *name;
	unsigned args_nr;
};

#define LISTED(name, text, ...) { #name, MRT__ARGS_NR(__VA_ARGS__) },
static const struct listed listed[] = { MRT__PROBES(LISTED) };
#define LISTED_NR (sizeof(listed) / sizeof(listed[0]))

#define ID(name, text, ...) ID_##name,
enum { MRT__PROBES(ID) IDS_NR };

#if MRT__USDT
#define SEMAPHORE(name, text, ...) &mrt__sem_##name,
static const volatile uint16_t *const semaphores[] = { MRT__PROBES(SEMAPHORE) };

static const char *const files[] = { "/proc/self/exe", MRT_TEST_BUILD_DIR "/libmartlet.so" };

START_TEST(notes_are_those_of_the_list)
{
	static const char args[] = "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9";
	static const size_t args_bytes[] = { 0, 6, 13, 20, 27, 33, 39 };
	static const unsigned char stub[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3 };
	struct note notes[NOTES_MAX];
	int nr = notes_read(files[_i], notes);
	unsigned i;

	ck_assert_int_eq(nr, (int)LISTED_NR);
	for (i = 0; i < LISTED_NR; i++) {
		const struct note *n = &notes[i];

		ck_assert_str_eq(n->provider, "martlet");
		ck_assert_str_eq(n->name, listed[i].name);
		ck_assert_uint_eq(strlen(n->args), args_bytes[listed[i].args_nr]);
		ck_assert(strncmp(n->args, args, strlen(n->args)) == 0);
		/* a function of its own, aligned: nothing of a caller's lies below its stack pointer */
		ck_assert_uint_eq(n->address % 16, 0);
		ck_assert(memcmp(n->code, stub, sizeof(stub)) == 0);
		ck_assert_uint_ne(n->sem_address, 0);
		ck_assert_uint_ne(n->sem_offset, 0);
		ck_assert_uint_eq(n->sem_segments, 1);
		ck_assert(n->sem_alone);
	}
}
END_TEST

/* ---- the tracer ---- */

enum { UPROBE_MULTI = 48, COOKIE_HELPER = 174 }; /* BPF_TRACE_UPROBE_MULTI, of 6.6; headers of 6.1 lack it */

struct uprobe_multi_attr {      /* the link_create part of union bpf_attr */
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, uprobe_flags, pid, path_fd;
};

struct seen {
	uint64_t nr;
	uint64_t sums[ARGS_MAX];        /* of arguments */
};

static struct seen *seen;       /* [IDS_NR], the tracer's map */
static int seen_fd = -1;

static long bpf(int cmd, void *attr, unsigned bytes)
{
	long ret = syscall(SYS_bpf, cmd, attr, bytes);

	return ret < 0 ? -errno : ret;
}

static long make_seen(void)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .map_flags = BPF_F_MMAPABLE, .key_size = 4,
				.value_size = sizeof(struct seen), .max_entries = IDS_NR };
	long fd = bpf(BPF_MAP_CREATE, &attr, sizeof(attr));

	if (fd < 0)
		return fd;
	seen_fd = (int)fd;
	seen = mmap(NULL, IDS_NR * sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, seen_fd, 0);
	return seen == MAP_FAILED ? -errno : 0;
}

static long load_program(void)
{
	/* where struct pt_regs has rdi, rsi, rdx, rcx, r8, r9 */
	static const int16_t regs[ARGS_MAX] = { 112, 104, 96, 88, 72, 64 };
	struct bpf_insn code[64] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_6, .src_reg = BPF_REG_1 },
		{ .code = BPF_JMP | BPF_CALL, .imm = COOKIE_HELPER },
		{ .code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .src_reg = BPF_REG_0, .off = -4 },
		{ .code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = seen_fd },
		{ 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4 },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem },
		{ .code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 2 + 2 * ARGS_MAX },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = 1 },
		{ .code = BPF_STX | BPF_ATOMIC | BPF_DW, .dst_reg = BPF_REG_0, .src_reg = BPF_REG_1, .imm = BPF_ADD },
	};
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_KPROBE, .expected_attach_type = UPROBE_MULTI,
				.insns = (uintptr_t)code, .license = (uintptr_t) "MIT" };
	unsigned nr = 11, i;

	for (i = 0; i < ARGS_MAX; i++) {
		code[nr++] = (struct bpf_insn){ .code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1,
						.src_reg = BPF_REG_6, .off = regs[i] };
		code[nr++] = (struct bpf_insn){ .code = BPF_STX | BPF_ATOMIC | BPF_DW, .dst_reg = BPF_REG_0,
						.src_reg = BPF_REG_1, .off = (int16_t)(8 * (i + 1)), .imm = BPF_ADD };
	}
	code[nr++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 };
	code[nr++] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
	attr.insn_cnt = nr;
	return bpf(BPF_PROG_LOAD, &attr, sizeof(attr));
}

/* Listen to all probes of a process. @return a descriptor that keeps it so, -errno */
static long attach(pid_t pid)
{
	uint64_t offsets[IDS_NR], sems[IDS_NR], cookies[IDS_NR];
	struct note notes[NOTES_MAX];
	struct uprobe_multi_attr attr;
	int nr = notes_read("/proc/self/exe", notes), i;
	long prog = load_program();
	char path[256];
	ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (prog < 0 || nr != IDS_NR || bytes < 0)
		return prog < 0 ? prog : -EINVAL;
	path[bytes] = '\0';
	for (i = 0; i < nr; i++) {
		offsets[i] = notes[i].offset;
		sems[i] = notes[i].sem_offset;
		cookies[i] = (uint64_t)i;
	}
	attr = (struct uprobe_multi_attr){ .prog_fd = (uint32_t)prog, .attach_type = UPROBE_MULTI,
					   .path = (uintptr_t)path, .offsets = (uintptr_t)offsets,
					   .ref_ctr_offsets = (uintptr_t)sems, .cookies = (uintptr_t)cookies,
					   .cnt = (uint32_t)nr, .pid = (uint32_t)pid };
	return bpf(BPF_LINK_CREATE, &attr, sizeof(attr));
}

/* A child that listens to us until it is killed. */
static pid_t start_tracer(void)
{
	pid_t us = getpid(), child;
	int up[2], err = 0;

	ck_assert_int_eq(pipe(up), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		long link = attach(us);

		err = link < 0 ? (int)link : 0;
		(void)!write(up[1], &err, sizeof(err));
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(up[0], &err, sizeof(err)), sizeof(err));
	ck_assert_msg(err == 0, "attaching failed: %s", strerrordesc_np(-err));
	close(up[0]);
	close(up[1]);
	return child;
}

static unsigned listened_nr(void)
{
	unsigned i, nr = 0;

	for (i = 0; i < IDS_NR; i++)
		nr += *semaphores[i] != 0;
	return nr;
}

static void kill_tracer(pid_t child)
{
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ITEST_WAIT(listened_nr() == 0, 20000);
}

/* ---- work that meets every probe ---- */

#define CHILDREN 3000u  /* more than a local queue holds, even while others steal */
#define NOPS 200u

ITEST_CHILD(child, { struct mrt_op op; uint64_t seed, sum; unsigned i; })
{
	MRT_BEGIN(self);
	for (f->i = 0; f->i < 4; f->i++) {
		f->sum = work_mix(f->sum + f->seed + f->i);
		MRT_AWAIT(self, mrt_yield(&f->op));
	}
	MRT_RETURN(self, (int64_t)(f->sum >> 1));
}

static int64_t call(void *arg)
{
	return (int64_t)(intptr_t)arg;
}

#define PREY 2u         /* one for the queue, when the other comes to the next slot */

static atomic_uint prey_taken;

ITEST_CHILD(prey, { int unused; })
{
	(void)f;
	MRT_BEGIN(self);
	atomic_fetch_add(&prey_taken, 1);
	MRT_RETURN(self, 0);
}

ITEST_CHILD(worker_of_all, {
	struct mrt_op op, sleep; struct mrt_task *tasks[CHILDREN]; struct child c; uint64_t sum, stalls; unsigned i;
})
{
	MRT_BEGIN(self);
	f->stalls = itest_stats(mrt_runtime_self()).stalls;
	for (f->i = 0; f->i < CHILDREN; f->i++) {
		f->c.seed = f->i;
		ck_assert_int_eq(mrt_spawn(NULL, child_poll, &f->c, sizeof(f->c), NULL, &f->tasks[f->i]), 0);
	}
	for (f->i = 0; f->i < CHILDREN; f->i++) {
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
		f->sum = work_mix(f->sum + (uint64_t)f->op.res);
	}
	for (f->i = 0; f->i < NOPS; f->i++) {
		MRT_AWAIT(self, mrt_nop(&f->op));
		f->sum += (uint64_t)f->op.res;
	}
	MRT_AWAIT(self, mrt_sleep(&f->op, MRT_US(100)));
	mrt_sleep(&f->sleep, MRT_MS(1000000));
	mrt_cancel(&f->sleep);
	MRT_AWAIT(self, &f->sleep);
	f->sum += (uint64_t)f->sleep.res;
	MRT_AWAIT(self, mrt_blocking(&f->op, call, (void *)(intptr_t)77));
	f->sum += (uint64_t)f->op.res;
	/* the budget: ops that complete at once */
	for (f->i = 0; f->i < 300; f->i++)
		MRT_AWAIT(self, mrt_sleep(&f->op, 0));
	atomic_store(&prey_taken, 0);
	for (f->i = 0; f->i < PREY; f->i++)
		f->tasks[f->i] = itest_spawn(mrt_runtime_self(), prey_poll, NULL, sizeof(struct prey));
	itest_spin(MRT_MS(30));
	/* where there is another worker: long enough for it to steal, and for a sentry to see this poll */
	ITEST_WAIT(mrt_runtime_workers_nr(mrt_runtime_self()) == 1 ||
		   (atomic_load(&prey_taken) > 0 && itest_stats(mrt_runtime_self()).stalls > f->stalls), 20000);
	for (f->i = 0; f->i < PREY; f->i++)
		MRT_AWAIT(self, mrt_join(&f->op, f->tasks[f->i]));
	MRT_RETURN(self, (int64_t)(f->sum >> 1));
}

static int64_t work(struct mrt_runtime *rt)
{
	int64_t result;

	ck_assert_int_eq(mrt_block_on(rt, worker_of_all_poll, NULL, sizeof(struct worker_of_all), &result), 0);
	return result;
}

struct figures {
	struct mrt_worker_stats stats;
	struct seen seen[IDS_NR];
};

static void take_figures(struct mrt_runtime *rt, struct figures *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->stats = itest_stats(rt);
	memcpy(ret->seen, seen, sizeof(ret->seen));
}

/* A worker that is on its way out of its sleep is still called PARKED: look twice, some time apart. */
static bool is_still(struct mrt_runtime *rt, struct figures *ret)
{
	struct figures before;
	uint64_t start = mrt_now();

	if (!itest_all_parked(rt))
		return false;
	take_figures(rt, &before);
	while (mrt_now() < start + MRT_MS(5))
		itest_pause();
	take_figures(rt, ret);
	return itest_all_parked(rt) && memcmp(&before, ret, sizeof(before)) == 0;
}

static struct figures *figures_now(struct mrt_runtime *rt)
{
	struct figures *f = malloc(sizeof(*f));

	ck_assert_ptr_nonnull(f);
	ITEST_WAIT(is_still(rt, f), 20000);
	return f;
}

#define SEEN(probe) (after->seen[ID_##probe].nr - before->seen[ID_##probe].nr)
#define SUM(probe, arg) (after->seen[ID_##probe].sums[arg] - before->seen[ID_##probe].sums[arg])
#define COUNTED(field) (after->stats.field - before->stats.field)

static void check_figures(const struct figures *before, const struct figures *after)
{
	unsigned i;

	for (i = 0; i < IDS_NR; i++)
		ck_assert_msg(after->seen[i].nr > before->seen[i].nr, "%s was not seen", listed[i].name);
	ck_assert_uint_eq(SEEN(task_spawn), CHILDREN + PREY + 1);
	ck_assert_uint_eq(SEEN(task_end), CHILDREN + PREY + 1);
	ck_assert_uint_eq(SEEN(poll_start), COUNTED(polls));
	ck_assert_uint_eq(SEEN(poll_end), COUNTED(polls));
	ck_assert_uint_eq(SUM(poll_end, 4), CHILDREN + PREY + 1); /* ready */
	ck_assert_uint_ge(SUM(poll_end, 3), MRT_MS(30));        /* poll_ns */
	ck_assert_uint_eq(SEEN(op_submit), NOPS);
	ck_assert_uint_eq(SEEN(op_complete), NOPS);
	ck_assert_uint_eq(SUM(op_submit, 1), SUM(op_complete, 1));      /* op */
	ck_assert_uint_ge(SUM(op_complete, 4), NOPS);           /* op_ns: all are timed */
	ck_assert_uint_eq(SEEN(op_cancel), 1);
	ck_assert_uint_eq(SEEN(ring_enter), COUNTED(enters));
	ck_assert_uint_eq(SUM(ring_enter, 1), COUNTED(sqes));
	ck_assert_uint_eq(SUM(cq_drain, 1), COUNTED(cqes));
	ck_assert_uint_eq(SEEN(overflow), COUNTED(overflows));
	ck_assert_uint_eq(SUM(steal, 2), COUNTED(steals));
	ck_assert_uint_eq(SUM(timer_fire, 2), COUNTED(timer_fires));
	ck_assert_uint_eq(SEEN(budget_exhausted), COUNTED(budget_yields));
	ck_assert_uint_eq(SEEN(blocking_start), 1);
	ck_assert_uint_eq(SEEN(blocking_end), 1);
	ck_assert_uint_eq(SUM(blocking_end, 3), 77);
	ck_assert_uint_eq(SEEN(stall), COUNTED(stalls));
	ck_assert_uint_ge(SEEN(inject), SEEN(overflow) + 1);
	ck_assert_uint_le(SEEN(park), COUNTED(parks));
	ck_assert_uint_eq(SEEN(unpark), COUNTED(parks));
	ck_assert_uint_eq(SUM(unpark, 1), COUNTED(park_ns));
	ck_assert_uint_ge(SEEN(task_wake), SEEN(task_spawn));
}

START_TEST(a_tracer_sees_every_event_once_and_changes_no_result)
{
	struct mrt_runtime_opts opts = itest_opts(ITEST_TWO);
	struct mrt_runtime *rt = NULL;
	struct figures *before, *after;
	int64_t untraced, traced;
	pid_t tracer = 0;
	unsigned i;

	if (_i == 0)
		tracer = start_tracer(); /* the tracer first */
	rt = itest_create(&opts);
	if (_i == 1) {
		untraced = work(rt);
		tracer = start_tracer();
	}
	ck_assert_uint_eq(listened_nr(), IDS_NR);
	before = figures_now(rt);
	traced = work(rt);
	after = figures_now(rt);
	check_figures(before, after);

	kill_tracer(tracer);
	free(before);
	before = figures_now(rt);
	untraced = work(rt);
	ck_assert_int_eq(untraced, traced);
	free(after);
	after = figures_now(rt);
	for (i = 0; i < IDS_NR; i++)
		ck_assert_uint_eq(after->seen[i].nr, before->seen[i].nr);
	free(before);
	free(after);
	mrt_runtime_destroy(rt);
}
END_TEST

START_TEST(a_tracer_that_comes_and_goes_under_load_changes_no_result)
{
	struct mrt_runtime *rt = itest_create(&(struct mrt_runtime_opts){ .size = sizeof(struct mrt_runtime_opts) });
	int64_t expected = work(rt);
	pid_t tracer;
	int round;

	for (round = 0; round < 3; round++) {
		tracer = start_tracer();
		ck_assert_int_eq(work(rt), expected);
		kill_tracer(tracer);
		ck_assert_int_eq(work(rt), expected);
	}
	mrt_runtime_destroy(rt);
}
END_TEST

static int can_attach(void *ctx)
{
	long link;

	(void)ctx;
	link = make_seen();
	if (link >= 0)
		link = attach(getpid());
	return link < 0 ? (int)-link : 0;
}

static Suite *probes_suite(bool traced)
{
	Suite *suite = suite_create("probes");
	TCase *tc = tcase_create("notes");

	tcase_set_timeout(tc, ITEST_LIMIT_S);
	tcase_add_loop_test(tc, notes_are_those_of_the_list, 0, (int)(sizeof(files) / sizeof(files[0])));
	suite_add_tcase(suite, tc);
	if (!traced)
		return suite;
	tc = tcase_create("traced");
	tcase_set_timeout(tc, 2 * ITEST_LIMIT_S);
	tcase_add_loop_test(tc, a_tracer_sees_every_event_once_and_changes_no_result, 0, 2);
	tcase_add_test(tc, a_tracer_that_comes_and_goes_under_load_changes_no_result);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	struct itest_exit e;
	bool traced;

	itest_need_io_uring();
	e = itest_child(can_attach, NULL, ITEST_LIMIT_S);
	traced = WIFEXITED(e.status) && WEXITSTATUS(e.status) == 0 && make_seen() == 0;
	if (!traced)
		printf("tracing is skipped: uprobe_multi: %s\n", strerrordesc_np(WEXITSTATUS(e.status)));
	return itest_main(probes_suite(traced));
}
#else
int main(void)
{
	printf("skipped: there are no probes on this machine\n");
	return ITEST_SKIP;
}
#endif
