/* SPDX-License-Identifier: MIT */
/*
 * What broken memory does to the walk: tables of other versions, sizes that cannot be, lists that run in circles or lead
 * nowhere, structs that do not fit, and random bytes everywhere. The "process" is this one; the structs are made here, at
 * offsets of the test's own, so the table is followed and not guessed. (That the table is right is test_dump's.)
 */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "remote.h"
#include "suite.h"
#include "walk.h"

#define TIME_LIMIT_S 60
#define SLAB 4096u
#define SLABS_NR 4u
#define CELL 256u
#define CELLS_NR 8u
#define HEADER 64u
#define FUZZ_ROUNDS 3000u

struct op {
	uint8_t pad[3], state, kind, hflags, rflags, opcode;
	uint16_t flags, ring;
	int32_t fd;
	uint64_t task, next;
	uint32_t stamp, len;
	uint64_t staged, off, object, deadline_ns;
};

struct task {
	uint64_t id, fn, ops, word;
	uint32_t flags, await_nr, frame_bytes;
	uint16_t place, pad;
	struct op frame[2];
};
_Static_assert(sizeof(struct task) <= CELL, "a cell holds a task and its frame");

struct slab {
	uint32_t cell_bytes, used_nr, cells_nr, pad;
	uint64_t next, heap;
};

struct heap {
	uint64_t pad, slabs;
};

struct worker {
	uint64_t pad, task;
	struct heap heap;
};

struct runtime {
	uint64_t pad;
	struct worker **workers;
	struct heap outside[2];
};

enum { STATE_INFLIGHT = 7, IS_RING = 1, IS_WAIT = 2, IS_HANDLE = 4, AWAITED = 8, CANCELLED = 16, ENDED = 1, QUEUED = 2, TIMED = 4 };

static const char *kinds[] = { "read", "sleep", "join" };

#define AT(type, member) ((uint32_t)offsetof(struct type, member))

static const struct mrt_layout good = {
	.magic = MRT_LAYOUT_MAGIC, .version = MRT_LAYOUT_VERSION, .bytes = sizeof(struct mrt_layout),
	.op_kinds = kinds, .op_kinds_nr = 3,
	.runtime_workers = AT(runtime, workers), .runtime_outside = AT(runtime, outside), .outside_nr = 2,
	.outside_bytes = sizeof(struct heap), .outside_heap = 0,
	.worker_task = AT(worker, task), .worker_heap = AT(worker, heap), .heap_slabs = AT(heap, slabs),
	.slab_align = SLAB, .slab_header_bytes = HEADER, .slab_heap = AT(slab, heap), .slab_next = AT(slab, next),
	.slab_cell_bytes = AT(slab, cell_bytes), .slab_cells_nr = AT(slab, cells_nr), .slab_used_nr = AT(slab, used_nr),
	.task_bytes = offsetof(struct task, frame), .task_word = AT(task, word), .task_flags = AT(task, flags),
	.task_fn = AT(task, fn), .task_ops = AT(task, ops), .task_await_nr = AT(task, await_nr),
	.task_frame_bytes = AT(task, frame_bytes), .task_place = AT(task, place), .task_id = AT(task, id),
	.word_live = 1, .word_held = 2, .word_ended = 4, .word_aborted = 8, .flag_polled = 1, .flag_returned = 2,
	.task_named = 1u << 31, .task_rests = 0x8000,
	.op_bytes = sizeof(struct op), .op_state = AT(op, state), .op_kind = AT(op, kind), .op_flags = AT(op, flags),
	.op_hflags = AT(op, hflags), .op_rflags = AT(op, rflags), .op_task = AT(op, task), .op_next = AT(op, next),
	.op_ring = AT(op, ring), .op_staged = AT(op, staged), .op_stamp = AT(op, stamp), .op_stamp_shift = 20,
	.op_stamp_mask = ~3u, .op_opcode = AT(op, opcode), .op_fd = AT(op, fd), .op_len = AT(op, len), .op_off = AT(op, off),
	.op_object = AT(op, object), .op_deadline_ns = AT(op, deadline_ns), .state_inflight = STATE_INFLIGHT,
	.op_is_ring = IS_RING, .op_is_wait = IS_WAIT, .op_is_handle = IS_HANDLE, .op_awaited = AWAITED,
	.op_cancelled = CANCELLED, .op_ended = ENDED, .op_queued = QUEUED, .op_timed = TIMED,
};

/* ---- a process's memory: slabs 0 and 1 are worker 0's, 2 is worker 1's, 3 an outside heap's ---- */

static struct mrt_layout layout;
static struct runtime runtime;
static struct worker workers[2], *worker_table[2] = { &workers[0], &workers[1] };
static char *slabs;

static struct slab *slab_at(unsigned i)
{
	return (struct slab *)(void *)(slabs + i * SLAB);
}

static struct task *task_at(unsigned slab, unsigned cell)
{
	return (struct task *)(void *)(slabs + slab * SLAB + HEADER + cell * CELL);
}

static void make_task(struct task *t, unsigned n)
{
	*t = (struct task){ .id = n, .fn = 0x1000 + n, .word = 1, .ops = (uintptr_t)&t->frame[0], .await_nr = 1, .place = 1 };
	for (unsigned i = 0; i < 2; i++) {
		t->frame[i] = (struct op){ .state = STATE_INFLIGHT, .kind = (uint8_t)i, .flags = i ? 0 : IS_RING, .fd = (int)n,
					   .hflags = AWAITED, .task = (uintptr_t)t, .opcode = 22, .len = 100 + n,
					   .stamp = (uint32_t)(clock_ns() >> 20) & ~3u,
					   .next = i ? 0 : (uintptr_t)&t->frame[1], .deadline_ns = 5 };
	}
}

static void make_memory(void)
{
	struct heap *heaps[] = { &workers[0].heap, &workers[0].heap, &workers[1].heap, &runtime.outside[1] };

	layout = good;
	memset(workers, 0, sizeof(workers));
	runtime = (struct runtime){ .workers = worker_table };
	for (unsigned i = 0; i < SLABS_NR; i++) {
		*slab_at(i) = (struct slab){ .cell_bytes = CELL, .cells_nr = CELLS_NR, .used_nr = CELLS_NR,
					     .next = heaps[i]->slabs, .heap = (uintptr_t)heaps[i] };
		heaps[i]->slabs = (uintptr_t)slab_at(i);
		for (unsigned k = 0; k < CELLS_NR; k++)
			make_task(task_at(i, k), i * CELLS_NR + k);
	}
}

static void set_up(void)
{
	slabs = aligned_alloc(SLAB, SLABS_NR * SLAB);
	ck_assert_ptr_nonnull(slabs);
	make_memory();
}

static void tear_down(void)
{
	free(slabs);
}

/* ---- walks ---- */

static struct found {
	unsigned tasks, ops, states[WALK_STATES_NR];
	struct walk_task last;
	struct walk_op last_ops[2];
} found;

static void on_task(const struct walk_task *t, void *ctx)
{
	(void)ctx;
	found.tasks++;
	found.ops += t->ops_nr;
	found.states[t->state]++;
	found.last = *t;
	if (t->ops_nr)
		memcpy(found.last_ops, t->ops, sizeof(t->ops[0]) * (t->ops_nr < 2 ? t->ops_nr : 2));
}

static struct walk w;
static char why[400];

static int try_open(void)
{
	return walk_open(&w, getpid(), (uintptr_t)&runtime, (uintptr_t)&layout, 2, why, sizeof(why));
}

static void walk_at_most(unsigned slabs_max)
{
	memset(&found, 0, sizeof(found));
	ck_assert_msg(try_open() == 0, "%s", why);
	ck_assert_uint_eq(w.slabs_max, WALK_SLABS_MAX);
	w.slabs_max = slabs_max;
	ck_assert_int_eq(walk_tasks(&w, on_task, NULL), 0);
}

static void walk(void)
{
	walk_at_most(WALK_SLABS_MAX);
}

START_TEST(all_heaps_tasks_and_ops_are_found)
{
	struct task *t = task_at(2, CELLS_NR - 1);

	walk();
	ck_assert_uint_eq(found.tasks, SLABS_NR * CELLS_NR);
	ck_assert_uint_eq(found.ops, 2 * SLABS_NR * CELLS_NR);
	ck_assert_uint_eq(w.torn_nr, 0);
	ck_assert_uint_eq(found.states[WALK_WAITING], SLABS_NR * CELLS_NR);

	/* one of each state; a cell that is free */
	workers[1].task = (uintptr_t)task_at(0, 0);
	task_at(0, 0)->word = 3;
	task_at(0, 1)->word = 3;
	task_at(0, 2)->word = 5;
	task_at(0, 3)->flags = 2;
	task_at(0, 4)->word = 3;
	task_at(0, 4)->place = 0x8001;
	task_at(0, 5)->word = 0;
	walk();
	ck_assert_uint_eq(found.states[WALK_RUNNING], 1);
	ck_assert_uint_eq(found.states[WALK_RUNNABLE], 1);
	ck_assert_uint_eq(found.states[WALK_ENDED], 1);
	ck_assert_uint_eq(found.states[WALK_ENDING], 1);
	ck_assert_uint_eq(found.states[WALK_WAITING], SLABS_NR * CELLS_NR - 5);

	/* fields; the last outside heap is walked last */
	make_memory();
	workers[0].heap.slabs = runtime.outside[1].slabs = 0;
	slab_at(2)->used_nr = CELLS_NR;
	t->frame[0].rflags = TIMED;
	t->frame[0].staged = 1234;
	t->frame[1].stamp |= 1;
	walk();
	ck_assert_uint_eq(found.tasks, CELLS_NR);
	ck_assert_uint_eq(found.last.addr, (uintptr_t)t);
	ck_assert_uint_eq(found.last.id, t->id);
	ck_assert_uint_eq(found.last.fn, t->fn);
	ck_assert_int_eq(found.last.worker, 1);
	ck_assert_str_eq(found.last_ops[0].kind, "read");
	ck_assert_int_eq(found.last_ops[0].fd, (int)t->id);
	ck_assert_uint_eq(found.last_ops[0].len, 100 + t->id);
	ck_assert_uint_eq(found.last_ops[0].age, WALK_AGE_EXACT);
	ck_assert_uint_eq(found.last_ops[0].began_ns, 1234);
	ck_assert_str_eq(found.last_ops[1].kind, "sleep");
	ck_assert_uint_eq(found.last_ops[1].deadline_ns, 5);
	ck_assert_uint_eq(found.last_ops[1].age, WALK_AGE_UNKNOWN);
}
END_TEST

START_TEST(a_stamp_is_a_time_also_after_it_has_wrapped)
{
	uint64_t now = clock_ns(), ages[] = { 0, 50 * CLOCK_NS_PER_MS, 3600 * CLOCK_NS_PER_SEC, 50 * 24 * 3600 * CLOCK_NS_PER_SEC };

	for (unsigned i = 0; i < 4; i++) {
		struct op *op = &task_at(3, CELLS_NR - 1)->frame[0];

		/* before the clock began: then it cannot be told apart from 0 */
		op->stamp = (uint32_t)((now - ages[i]) >> 20) & ~3u;
		walk();
		ck_assert_uint_eq(found.last_ops[0].age, WALK_AGE_ABOUT);
		if (now > ages[i])
			ck_assert_uint_le(found.last_ops[0].began_ns, now - ages[i]);
		ck_assert_uint_ge(found.last_ops[0].began_ns + ages[i] + (UINT64_C(1) << 22), now);
	}
}
END_TEST

START_TEST(tables_that_are_none_are_refused_in_words)
{
	struct walk other;
	void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t gone;

	layout.magic++;
	ck_assert_int_eq(try_open(), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "no table"));
	layout = good;
	layout.version++;
	ck_assert_int_eq(try_open(), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "version 2"));
	layout = good;
	layout.bytes--;
	ck_assert_int_eq(try_open(), -EINVAL);
	layout = good;
	layout.bytes += 100; /* a later one, of the same version */
	ck_assert_int_eq(try_open(), 0);
	layout.slab_align = 3;
	ck_assert_int_eq(try_open(), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "impossible"));
	layout = good;
	layout.op_kinds_nr = 1u << 30;
	ck_assert_int_eq(try_open(), -EINVAL);
	layout = good;
	layout.op_kinds = hole;
	ck_assert_int_eq(try_open(), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "names of ops"));
	ck_assert_int_eq(walk_open(&other, getpid(), (uintptr_t)&runtime, (uintptr_t)hole, 2, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(walk_open(&other, getpid(), (uintptr_t)&runtime, 0, 2, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "older"));
	gone = fork();
	if (gone == 0)
		pause();
	kill(gone, SIGKILL);
	ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
	ck_assert_int_eq(walk_open(&other, gone, (uintptr_t)&runtime, (uintptr_t)&layout, 2, why, sizeof(why)), -ESRCH);
	(void)munmap(hole, 4096);
}
END_TEST

START_TEST(lists_that_do_not_end_are_ended)
{
	/* of slabs */
	slab_at(0)->next = (uintptr_t)slab_at(1);
	walk();
	ck_assert_uint_eq(w.torn_nr, 1);
	ck_assert_ptr_nonnull(strstr(w.torn, "circle"));
	ck_assert_uint_eq(found.tasks, SLABS_NR * CELLS_NR); /* each once */

	/* of ops, short and long */
	make_memory();
	task_at(0, 0)->frame[0].next = task_at(0, 0)->ops;
	task_at(0, 1)->frame[1].next = task_at(0, 1)->ops;
	walk();
	ck_assert_uint_eq(w.torn_nr, 2);
	ck_assert_uint_eq(found.tasks, SLABS_NR * CELLS_NR);
	ck_assert_uint_eq(found.ops, 2 * (SLABS_NR * CELLS_NR - 2));
}
END_TEST

START_TEST(pointers_that_lead_nowhere_are_said)
{
	/* unmapped, unaligned, the slab of another heap, a cell that is too small, more cells than there is room for */
	workers[0].heap.slabs = 0x1000;
	walk();
	ck_assert_uint_eq(w.torn_nr, 1);
	ck_assert_uint_eq(found.tasks, 2 * CELLS_NR);
	workers[0].heap.slabs = (uintptr_t)slab_at(0) + 8;
	walk();
	ck_assert_uint_eq(w.torn_nr, 1);
	workers[0].heap.slabs = (uintptr_t)slab_at(2);
	walk();
	ck_assert_uint_ge(w.torn_nr, 1);
	ck_assert_uint_le(found.tasks, 2 * CELLS_NR);
	make_memory();
	slab_at(0)->cell_bytes = 8;
	walk();
	ck_assert_uint_eq(w.torn_nr, 1);
	make_memory();
	slab_at(0)->cells_nr = slab_at(0)->used_nr = 1u << 30;
	walk();
	ck_assert_uint_eq(w.torn_nr, 1);
	make_memory();
	/* ops: unmapped, of another task, over */
	task_at(0, 0)->ops = 16;
	task_at(0, 1)->frame[0].task++;
	task_at(0, 2)->frame[1].state = 0;
	task_at(0, 3)->frame[1].kind = 200;
	walk();
	ck_assert_uint_eq(w.torn_nr, 4);
	ck_assert_uint_eq(found.tasks, SLABS_NR * CELLS_NR);
	/* a table that leads outside of what is read */
	make_memory();
	layout.task_word = UINT32_MAX;
	layout.op_state = UINT32_MAX - 1;
	walk();
	ck_assert_uint_eq(found.tasks, 0);
	/* no workers */
	make_memory();
	runtime.workers = NULL;
	walk();
	ck_assert_uint_ge(w.torn_nr, 2);
	ck_assert_uint_eq(found.tasks, CELLS_NR);
}
END_TEST

START_TEST(more_slabs_than_a_limit_are_left_and_said)
{
	walk_at_most(SLABS_NR); /* as many as there are */
	ck_assert(!w.is_cut);
	ck_assert_uint_eq(w.torn_nr, 0);
	ck_assert_uint_eq(found.tasks, SLABS_NR * CELLS_NR);
	for (unsigned max = 1; max < SLABS_NR; max++) {
		walk_at_most(max);
		ck_assert(w.is_cut);
		ck_assert_uint_eq(w.torn_nr, 1);
		ck_assert_ptr_nonnull(strstr(w.torn, "slabs of tasks: the others are not read"));
		ck_assert_uint_eq(found.tasks, max * CELLS_NR);
	}
}
END_TEST

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Some words of memory and of the table become other words: random, or addresses of the structs. */
static void spoil(uint32_t *state)
{
	struct {
		void *at;
		size_t bytes;
	} const areas[] = { { slabs, SLABS_NR * SLAB }, { workers, sizeof(workers) }, { &layout, sizeof(layout) } };

	for (unsigned n = 1 + next_random(state) % 24; n > 0; n--) {
		unsigned which = next_random(state) % (next_random(state) % 4 ? 2 : 3);
		size_t word = next_random(state) % (areas[which].bytes / 4);
		uint32_t value = next_random(state);
		uint64_t address = (uintptr_t)slabs + value % (SLABS_NR * SLAB);

		if (next_random(state) % 2 && (word & 1) == 0 && word + 1 < areas[which].bytes / 4)
			memcpy((char *)areas[which].at + 4 * word, &address, 8);
		else
			memcpy((char *)areas[which].at + 4 * word, &value, 4);
	}
	if (next_random(state) % 8) { /* else it is refused at once */
		layout.magic = good.magic;
		layout.version = good.version;
		layout.bytes = good.bytes;
		layout.op_kinds = good.op_kinds;
		layout.op_kinds_nr = good.op_kinds_nr;
	}
}

START_TEST(random_memory_neither_crashes_nor_hangs_it)
{
	uint32_t state = 20261130u;
	unsigned walked = 0;

	for (unsigned i = 0; i < FUZZ_ROUNDS; i++) {
		make_memory();
		spoil(&state);
		memset(&found, 0, sizeof(found));
		if (try_open())
			continue;
		walked++;
		ck_assert_int_eq(walk_tasks(&w, on_task, NULL), 0);
		/* a cell of the smallest size, each slab once */
		ck_assert_uint_le(found.tasks, SLABS_NR * SLAB / 16);
	}
	ck_assert_uint_gt(walked, FUZZ_ROUNDS / 2);
}
END_TEST

START_TEST(text_is_cut_cleaned_and_never_read_beyond_its_page)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), buf[16];

	ck_assert(page != MAP_FAILED && mprotect(page + 4096, 4096, PROT_NONE) == 0);
	memcpy(page + 4090, "a\x1b[b\n", 6); /* its end is the page's */
	ck_assert_int_eq(remote_read_text(getpid(), (uintptr_t)page + 4090, buf, sizeof(buf)), 0);
	ck_assert_uint_eq(strlen(buf), 5);
	ck_assert(!strchr(buf, '\x1b') && !strchr(buf, '\n'));
	memset(page + 4086, 'x', 10);
	ck_assert_int_eq(remote_read_text(getpid(), (uintptr_t)page + 4086, buf, sizeof(buf)), -EFAULT);
	ck_assert_int_eq(remote_read_text(getpid(), (uintptr_t)page + 4086, buf, 8), 0);
	ck_assert_str_eq(buf, "xxxxxxx");
	ck_assert_int_eq(remote_read(getpid(), UINT64_MAX - 2, buf, 8), -EFAULT);
	(void)munmap(page, 8192);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("walk");
	TCase *tc = tcase_create("walk");
	uint64_t word = 1, copy = 0;

	if (remote_read(getpid(), (uintptr_t)&word, &copy, sizeof(copy)) || copy != 1) {
		printf("process_vm_readv(2) is not allowed here\n");
		return 77;
	}
	tcase_set_timeout(tc, TIME_LIMIT_S);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, all_heaps_tasks_and_ops_are_found);
	tcase_add_test(tc, a_stamp_is_a_time_also_after_it_has_wrapped);
	tcase_add_test(tc, tables_that_are_none_are_refused_in_words);
	tcase_add_test(tc, lists_that_do_not_end_are_ended);
	tcase_add_test(tc, pointers_that_lead_nowhere_are_said);
	tcase_add_test(tc, more_slabs_than_a_limit_are_left_and_said);
	tcase_add_test(tc, random_memory_neither_crashes_nor_hangs_it);
	tcase_add_test(tc, text_is_cut_cleaned_and_never_read_beyond_its_page);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
