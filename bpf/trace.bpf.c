/* SPDX-License-Identifier: MIT */
/*
 * The programs of `martlet trace`.
 *
 *	on_probe, on_usdt       the probes of Martlet: one program for all of them, told apart by the link's cookie
 *	on_submit_req, ...      io_uring's tracepoints: when the kernel took an op, handed it to io-wq, completed it
 *	on_switch               when a worker's thread loses its CPU, and why
 *	sampler_begin, _end     a timer of the kernel: how deep the queues are, from the workers' own map
 *
 * A hit costs some 500 ns, nearly all of it the trap, so durations come along with the event that ends them, and nothing
 * is written to user space but for a timeline: all else is added up here. Whatever finds no room is counted (`lost`).
 *
 * The probes' links are filtered by process; the tracepoints see the whole machine, so they look first whether the process
 * has fired a probe before (`processes`).
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>
#include <linux/time.h>

#include <martlet/stats.h>

#include "trace.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile bool with_ops = false;
const volatile bool with_timeline = false;
const volatile bool with_tasks = false;
const volatile __s32 task_id_at = -1;   /* in a task; -1: nobody knows */
const volatile __u32 workers_nr = 0;    /* of mrt_workers */
const volatile __u64 sample_ns = 0;

volatile bool active;           /* links come and go one by one; what counts is between the last and the first */
__u64 tasks_made;               /* entries: those that are no more there had to make room */

#define NO_SCHED (~0ULL)

#define MAP(name_, type_, key_, value_, nr_)    \
struct {                                        \
	__uint(type, type_);                    \
	__uint(max_entries, nr_);               \
	__type(key, key_);                      \
	__type(value, value_);                  \
} name_ SEC(".maps")

MAP(hits, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, TRACE_PROBES_NR);
MAP(lost, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, TRACE_LOST_NR);
MAP(processes, BPF_MAP_TYPE_HASH, __u32, __u8, 1024);
MAP(threads, BPF_MAP_TYPE_HASH, __u32, struct trace_thread, 4096);
MAP(functions, BPF_MAP_TYPE_HASH, struct trace_fn_key, struct trace_fn, 1024);
MAP(wakes, BPF_MAP_TYPE_HASH, struct trace_task_key, __u64, 65536);
MAP(tasks, BPF_MAP_TYPE_LRU_HASH, struct trace_task_key, struct trace_task, TRACE_TASKS_MAX);
MAP(ops, BPF_MAP_TYPE_HASH, struct trace_op_key, struct trace_op, 65536);
MAP(reaped, BPF_MAP_TYPE_HASH, struct trace_task_key, struct trace_reaped, 16384);
MAP(stages, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct trace_hist, TRACE_OPCODES * TRACE_STAGES_NR);
MAP(punts, BPF_MAP_TYPE_HASH, struct trace_punt_key, __u64, 1024);
MAP(workers, BPF_MAP_TYPE_HASH, struct trace_worker_key, struct trace_worker, 1024);
MAP(depths, BPF_MAP_TYPE_ARRAY, __u32, struct trace_depths, TRACE_WORKERS_MAX);

/* A timer, and not an event of a CPU's clock: some kernels keep the clock's events from a CPU that idles. */
struct sampler {
	struct bpf_timer timer;
	__u64 due_ns;
};
MAP(samplers, BPF_MAP_TYPE_ARRAY, __u32, struct sampler, 1);

/* The process's own: the loader puts its map in the place of this one. */
MAP(mrt_workers, BPF_MAP_TYPE_ARRAY, __u32, struct mrt_worker_stats, 1);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536); /* more with a timeline */
} records SEC(".maps");

/* ---- counting: atomically also where each CPU has its own, since a program may be preempted by another ---- */

static void count(void *map, __u32 id)
{
	__u64 *n = bpf_map_lookup_elem(map, &id);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static void lose(enum trace_lost what)
{
	count(&lost, what);
}

static __u32 log2_of(__u64 v)
{
	__u32 n = 0;

	if (v >> 32) {
		n += 32;
		v >>= 32;
	}
	if (v >> 16) {
		n += 16;
		v >>= 16;
	}
	if (v >> 8) {
		n += 8;
		v >>= 8;
	}
	if (v >> 4) {
		n += 4;
		v >>= 4;
	}
	if (v >> 2) {
		n += 2;
		v >>= 2;
	}
	return n + (v >> 1);
}

static __always_inline __u32 slot_of(__u64 ns)
{
	__u32 slot = log2_of(ns);

	return slot < TRACE_HIST_SLOTS ? slot : TRACE_HIST_SLOTS - 1;
}

static __always_inline void add(struct trace_hist *h, __u64 ns)
{
	__sync_fetch_and_add(&h->count, 1);
	__sync_fetch_and_add(&h->sum_ns, ns);
	__sync_fetch_and_add(&h->slots[slot_of(ns)], 1);
}

static void add_stage(__u32 opcode, enum trace_stage stage, __u64 ns)
{
	__u32 key = (opcode & (TRACE_OPCODES - 1)) * TRACE_STAGES_NR + stage;
	struct trace_hist *h = bpf_map_lookup_elem(&stages, &key);

	if (h)
		add(h, ns);
}

/* ---- who is who ---- */

/* Made when it is first met; NULL: no room. */
static struct trace_thread *thread_of(__u64 pid_tgid, __u64 worker)
{
	struct trace_thread zero = { .worker = worker, .tgid = pid_tgid >> 32, .tid = pid_tgid };
	__u32 tid = pid_tgid, tgid = pid_tgid >> 32;
	struct trace_thread *th = bpf_map_lookup_elem(&threads, &tid);
	__u8 one = 1;

	/* a thread number is used again after its thread's end, and a thread may be a worker of one runtime after another */
	if (th && th->tgid == tgid && th->worker == zero.worker)
		return th;
	if (!th)
		bpf_map_update_elem(&processes, &tgid, &one, BPF_ANY);
	if (bpf_map_update_elem(&threads, &tid, &zero, BPF_ANY)) {
		lose(TRACE_LOST_threads);
		return NULL;
	}
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline struct trace_rec *record(enum trace_kind kind, __u64 pid_tgid, __u64 worker, __u64 now)
{
	struct trace_rec *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	if (!r) {
		lose(TRACE_LOST_records);
		return NULL;
	}
	r->kind = kind;
	r->tgid = pid_tgid >> 32;
	r->tid = pid_tgid;
	r->worker = worker;
	r->end_ns = now;
	return r;
}

static struct trace_fn *function_of(__u32 tgid, __u64 fn)
{
	static const struct trace_fn zero;
	struct trace_fn_key key = { .fn = fn, .tgid = tgid };
	struct trace_fn *f = bpf_map_lookup_elem(&functions, &key);
	struct trace_rec *r;

	if (f)
		return f;
	if (!bpf_map_update_elem(&functions, &key, &zero, BPF_NOEXIST)) {
		r = record(TRACE_REC_FUNCTION, (__u64)tgid << 32, 0, 0);
		if (r) {
			r->function.fn = fn;
			bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
		}
	}
	f = bpf_map_lookup_elem(&functions, &key); /* ours, or of another CPU that was faster */
	if (f)
		return f;
	lose(TRACE_LOST_functions);
	key = (struct trace_fn_key){ 0 }; /* the loader has made it */
	return bpf_map_lookup_elem(&functions, &key);
}

/* ---- tasks by themselves ---- */

static struct trace_task *task_of(const struct trace_task_key *key, __u64 now)
{
	static const struct trace_task zero;
	struct trace_task *t = bpf_map_lookup_elem(&tasks, key);

	if (t)
		return t;
	if (!bpf_map_update_elem(&tasks, key, &zero, BPF_NOEXIST)) {
		__sync_fetch_and_add(&tasks_made, 1);
		t = bpf_map_lookup_elem(&tasks, key);
	}
	if (t)
		t->first_ns = t->since_ns = now;
	else
		lose(TRACE_LOST_tasks);
	return t;
}

static void move_task(struct trace_task *t, enum trace_task_state state, __u64 now)
{
	t->state = state;
	t->since_ns = now;
}

/* The memory of one that has ended is used again. */
static void task_spawned(const struct trace_task_key *key, __u64 fn, __u64 now)
{
	static const struct trace_task zero;
	struct trace_task *t = bpf_map_lookup_elem(&tasks, key);

	if (t)
		bpf_map_update_elem(&tasks, key, &zero, BPF_EXIST);
	t = task_of(key, now);
	if (!t)
		return;
	t->fn = fn;
	t->first_ns = now;
	t->spawned = 1;
	if (task_id_at >= 0 && bpf_probe_read_user(&t->id, sizeof(t->id), (const void *)(key->task + task_id_at)))
		t->id = 0;
	move_task(t, TRACE_TASK_IDLE, now);
}

static void task_woken(const struct trace_task_key *key, __u64 now)
{
	struct trace_task *t = task_of(key, now);

	if (t)
		move_task(t, TRACE_TASK_SCHED, now);
}

static void task_poll_begins(const struct trace_task_key *key, __u64 fn, __u64 now)
{
	struct trace_task *t = task_of(key, now);
	__u64 waited;

	if (!t)
		return;
	t->fn = fn;
	waited = now - t->since_ns;
	if (t->state == TRACE_TASK_IDLE && t->poll.count)
		t->self_wakes++;
	if (t->state == TRACE_TASK_SCHED || t->poll.count) {
		add(&t->sched, waited);
		if (waited > t->sched_max_ns)
			t->sched_max_ns = waited;
	}
	move_task(t, TRACE_TASK_RUNNING, now);
}

/* Which may be the first that is seen of it: then it began before. */
static void task_poll_ends(const struct trace_task_key *key, __u64 fn, __u64 ns, __u64 now)
{
	struct trace_task *t = task_of(key, now - ns);

	if (!t)
		return;
	t->fn = fn;
	add(&t->poll, ns);
	if (ns > t->poll_max_ns)
		t->poll_max_ns = ns;
	move_task(t, TRACE_TASK_IDLE, now);
}

static void task_ended(const struct trace_task_key *key, __u64 fn, __u64 now)
{
	struct trace_task *t = task_of(key, now);

	if (!t)
		return;
	t->fn = fn;
	move_task(t, TRACE_TASK_DONE, now);
}

/* ---- tasks ---- */

static int on_wake(__u32 tgid, __u64 task, __u64 now)
{
	struct trace_task_key key = { .task = task, .tgid = tgid };

	if (with_tasks)
		task_woken(&key, now);
	if (bpf_map_update_elem(&wakes, &key, &now, BPF_ANY))
		lose(TRACE_LOST_wakes);
	return 0;
}

static int on_spawn(__u32 tgid, __u64 task, __u64 fn, __u64 now)
{
	struct trace_task_key key = { .task = task, .tgid = tgid };
	struct trace_fn *f = function_of(tgid, fn);

	if (with_tasks)
		task_spawned(&key, fn, now);
	if (f)
		__sync_fetch_and_add(&f->spawns, 1);
	return 0;
}

/* Its memory is the next task's. */
static int on_end(__u32 tgid, __u64 task, __u64 fn, __u64 now)
{
	struct trace_task_key key = { .task = task, .tgid = tgid };
	struct trace_fn *f = function_of(tgid, fn);

	if (f)
		__sync_fetch_and_add(&f->ends, 1);
	if (with_tasks)
		task_ended(&key, fn, now);
	bpf_map_delete_elem(&wakes, &key);
	if (with_ops)
		bpf_map_delete_elem(&reaped, &key);
	return 0;
}

static void end_unpolled(const struct trace_task_key *key, __u64 now)
{
	struct trace_reaped *r = bpf_map_lookup_elem(&reaped, key);
	__u32 i;

	if (!r)
		return;
	for (i = 0; i < TRACE_REAPED_MAX && i < r->nr; i++)
		add_stage(r->opcode[i], TRACE_STAGE_unpolled, now - r->ns[i]);
	bpf_map_delete_elem(&reaped, key);
}

static int on_poll_start(struct trace_thread *th, __u64 task, __u64 fn, __u64 now)
{
	struct trace_task_key key = { .task = task, .tgid = th->tgid };
	__u64 *woken = bpf_map_lookup_elem(&wakes, &key);
	struct trace_fn *f = function_of(th->tgid, fn);
	__u64 waited = NO_SCHED;

	if (woken) {
		waited = now - *woken;
		bpf_map_delete_elem(&wakes, &key);
	}
	if (f && woken)
		add(&f->sched, waited);
	else if (f)
		__sync_fetch_and_add(&f->unwoken, 1);
	th->task = task;
	th->fn = fn;
	th->poll_ns = now;
	th->sched_ns = waited;
	if (with_tasks)
		task_poll_begins(&key, fn, now);
	if (with_ops)
		end_unpolled(&key, now);
	return 0;
}

static int on_poll_end(struct trace_thread *th, struct pt_regs *ctx, __u64 pid_tgid, __u64 now)
{
	struct trace_task_key key = { .task = ctx->rsi, .tgid = th->tgid };
	struct trace_fn *f = function_of(th->tgid, ctx->rdx);
	__u64 ns = ctx->rcx;
	struct trace_rec *r;

	if (f)
		add(&f->poll, ns);
	if (with_tasks)
		task_poll_ends(&key, ctx->rdx, ns, now);
	if (with_timeline) {
		r = record(TRACE_REC_POLL, pid_tgid, th->worker, now);
		if (r) {
			bool whole = th->task == ctx->rsi;      /* its start was seen */

			r->poll.start_ns = whole ? th->poll_ns : now - ns;
			r->poll.sched_ns = whole ? th->sched_ns : NO_SCHED;
			r->poll.task = ctx->rsi;
			r->poll.fn = ctx->rdx;
			r->poll.ready = ctx->r8;
			bpf_ringbuf_submit(r, 0);
		}
	}
	th->task = th->fn = th->poll_ns = 0;
	return 0;
}

/* ---- workers ---- */

/* By the runtime's own clock reads, as mrt_workers has it: our thread may have lost its CPU between that and the probe. */
static int on_unpark(struct trace_thread *th, __u64 slept_ns, __u64 pid_tgid, __u64 now)
{
	struct trace_rec *r;

	th->park_ns = 0;
	th->parks++;
	if (!with_timeline)
		return 0;
	r = record(TRACE_REC_PARK, pid_tgid, th->worker, now);
	if (r) {
		r->park.slept_ns = slept_ns;
		r->park.seq = th->parks - 1;
		bpf_ringbuf_submit(r, 0);
	}
	return 0;
}

static int on_steal(__u64 thief, __u64 victim, __u64 nr, __u64 pid_tgid, __u64 now)
{
	struct trace_rec *r;

	if (!with_timeline)
		return 0;
	r = record(TRACE_REC_STEAL, pid_tgid, thief, now);
	if (r) {
		r->steal.victim = victim;
		r->steal.nr = nr;
		bpf_ringbuf_submit(r, 0);
	}
	return 0;
}

/* ---- ops ---- */

static int on_op_submit(struct trace_thread *th, __u64 op, __u64 opcode, __u64 now)
{
	struct trace_op_key key = { .op = op, .tgid = th->tgid };
	struct trace_op o = { .task = th->task, .fn = th->fn, .start_ns = now, .opcode = opcode, .worker = th->worker };

	if (bpf_map_update_elem(&ops, &key, &o, BPF_ANY))
		lose(TRACE_LOST_ops);
	return 0;
}

static void begin_unpolled(const struct trace_op *o, __u32 tgid, __u64 now)
{
	struct trace_task_key key = { .task = o->task, .tgid = tgid };
	struct trace_reaped *r, first = { .ns = { now }, .opcode = { o->opcode }, .nr = 1 };

	r = o->task ? bpf_map_lookup_elem(&reaped, &key) : NULL;
	if (r && r->nr < TRACE_REAPED_MAX) {
		r->ns[r->nr & (TRACE_REAPED_MAX - 1)] = now;
		r->opcode[r->nr & (TRACE_REAPED_MAX - 1)] = o->opcode;
		r->nr++;
	} else if (r || !o->task || bpf_map_update_elem(&reaped, &key, &first, BPF_ANY)) {
		lose(TRACE_LOST_reaped);
	}
}

static void add_stages(const struct trace_op *o, __u64 now)
{
	add_stage(o->opcode, TRACE_STAGE_total, now - o->start_ns);
	if (!o->taken_ns)
		return;
	add_stage(o->opcode, TRACE_STAGE_queued, o->taken_ns - o->start_ns);
	if (o->cqe_ns < o->taken_ns)
		return;
	add_stage(o->opcode, TRACE_STAGE_kernel, o->cqe_ns - o->taken_ns);
	add_stage(o->opcode, TRACE_STAGE_unreaped, now - o->cqe_ns);
}

static int on_op_complete(struct trace_thread *th, struct pt_regs *ctx, __u64 pid_tgid, __u64 now)
{
	struct trace_op_key key = { .op = ctx->rsi, .tgid = th->tgid };
	struct trace_op *o = bpf_map_lookup_elem(&ops, &key), copy;
	struct trace_rec *r;

	if (!o) {
		lose(TRACE_LOST_ops_early);
		return 0;
	}
	copy = *o;
	bpf_map_delete_elem(&ops, &key);
	add_stages(&copy, now);
	begin_unpolled(&copy, th->tgid, now);
	if (!with_timeline)
		return 0;
	r = record(TRACE_REC_OP, pid_tgid, copy.worker, now);
	if (r) {
		r->op.start_ns = copy.start_ns;
		r->op.taken_ns = copy.taken_ns;
		r->op.cqe_ns = copy.cqe_ns;
		r->op.op = key.op;
		r->op.task = copy.task;
		r->op.fn = copy.fn;
		r->op.res = ctx->rcx;
		r->op.opcode = copy.opcode;
		bpf_ringbuf_submit(r, 0);
	}
	return 0;
}

/* ---- the probes ---- */

static __always_inline int handle(struct pt_regs *ctx, __u64 probe)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct trace_thread *th;

	if (!active)
		return 0;
	count(&hits, probe);
	switch (probe) {        /* what threads outside do, too */
	case TRACE_task_wake:
		return on_wake(pid_tgid >> 32, ctx->rsi, now);
	case TRACE_task_spawn:
		return on_spawn(pid_tgid >> 32, ctx->rsi, ctx->rdx, now);
	case TRACE_task_end:
		return on_end(pid_tgid >> 32, ctx->rsi, ctx->rdx, now);
	case TRACE_steal:
		return on_steal(ctx->rdi, ctx->rsi, ctx->rdx, pid_tgid, now);
	}
	th = thread_of(pid_tgid, ctx->rdi);
	if (!th)
		return 0;
	switch (probe) {
	case TRACE_poll_start:
		return on_poll_start(th, ctx->rsi, ctx->rdx, now);
	case TRACE_poll_end:
		return on_poll_end(th, ctx, pid_tgid, now);
	case TRACE_park:
		th->park_ns = ctx->rdx;
		return 0;
	case TRACE_unpark:
		return on_unpark(th, ctx->rsi, pid_tgid, ctx->rdx);
	case TRACE_op_submit:
		return on_op_submit(th, ctx->rsi, ctx->rdx, now);
	case TRACE_op_complete:
		return on_op_complete(th, ctx, pid_tgid, now);
	}
	return 0;
}

SEC("uprobe")
int on_probe(struct pt_regs *ctx)
{
	return handle(ctx, bpf_get_attach_cookie(ctx));
}

/* The same, attached by libbpf one by one: its cookie is another. */
SEC("usdt")
int on_usdt(struct pt_regs *ctx)
{
	return handle(ctx, bpf_usdt_cookie(ctx));
}

/* ---- io_uring's tracepoints ---- */

static __always_inline struct trace_op *op_of(__u64 user_data)
{
	struct trace_op_key key = { .op = user_data, .tgid = bpf_get_current_pid_tgid() >> 32 };

	if (!bpf_map_lookup_elem(&processes, &key.tgid))
		return NULL;
	return bpf_map_lookup_elem(&ops, &key);
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(on_submit_req, struct io_kiocb *req)
{
	struct trace_op *o = op_of(req->cqe.user_data);

	if (o && !o->taken_ns) /* a further step of the same op is the kernel's time, too */
		o->taken_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(on_punt, struct io_kiocb *req)
{
	struct trace_punt_key key = { .tgid = bpf_get_current_pid_tgid() >> 32, .opcode = req->opcode };
	struct trace_op *o;
	__u64 *n, one = 1;

	if (!bpf_map_lookup_elem(&processes, &key.tgid))
		return 0;
	if (with_ops) {
		o = op_of(req->cqe.user_data);
		if (!o)
			return 0;
		key.fn = o->fn;
	}
	n = bpf_map_lookup_elem(&punts, &key);
	if (n)
		__sync_fetch_and_add(n, 1);
	else if (bpf_map_update_elem(&punts, &key, &one, BPF_NOEXIST))
		lose(TRACE_LOST_punts);
	return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(on_complete, void *ring, void *req, struct io_uring_cqe *cqe)
{
	struct trace_op *o = op_of(cqe->user_data);

	if (o)
		o->cqe_ns = bpf_ktime_get_ns();
	return 0;
}

/* Of older kernels: the CQE word by word. */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(on_complete_words, void *ring, void *req, __u64 user_data)
{
	struct trace_op *o = op_of(user_data);

	if (o)
		o->cqe_ns = bpf_ktime_get_ns();
	return 0;
}

/* ---- CPUs ---- */

static void on_cpu_again(struct trace_thread *th, __u64 now)
{
	static const struct trace_worker zero;
	struct trace_worker_key key = { .tgid = th->tgid, .worker = th->worker };
	struct trace_worker *w = bpf_map_lookup_elem(&workers, &key);
	__u64 ns = now - th->off_ns;
	__u32 why = th->off_why;
	struct trace_fn *f;

	th->off_ns = 0;
	if (!w) {
		bpf_map_update_elem(&workers, &key, &zero, BPF_NOEXIST);
		w = bpf_map_lookup_elem(&workers, &key);
	}
	if (!w) {
		lose(TRACE_LOST_threads);
		return;
	}
	if (why < TRACE_OFF_NR)
		add(&w->off[why], ns);
	f = th->task ? function_of(th->tgid, th->fn) : NULL;
	if (f && why == TRACE_OFF_BLOCKED) {
		__sync_fetch_and_add(&f->blocked_nr, 1);
		__sync_fetch_and_add(&f->blocked_ns, ns);
	} else if (f && why == TRACE_OFF_PREEMPTED) {
		__sync_fetch_and_add(&f->preempted_nr, 1);
		__sync_fetch_and_add(&f->preempted_ns, ns);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 tid = prev->pid;
	struct trace_thread *th = bpf_map_lookup_elem(&threads, &tid);
	__u64 now = bpf_ktime_get_ns();

	if (th && th->tgid == prev->tgid) {
		th->off_ns = now;
		th->off_why = preempt || !prev->__state ? TRACE_OFF_PREEMPTED :
			      th->park_ns ? TRACE_OFF_PARKED : TRACE_OFF_BLOCKED;
	}
	tid = next->pid;
	th = bpf_map_lookup_elem(&threads, &tid);
	if (th && th->tgid == next->tgid && th->off_ns)
		on_cpu_again(th, now);
	return 0;
}

/* ---- depths ---- */

static __always_inline void add_depth(struct trace_depths *d, enum trace_depth which, __u32 depth)
{
	__u32 slot = depth ? log2_of(depth) + 1 : 0;

	d->sum[which] += depth;
	d->slots[which][slot < TRACE_DEPTH_SLOTS ? slot : TRACE_DEPTH_SLOTS - 1]++;
}

static void look(void)
{
	__u32 i;

	for (i = 0; i < TRACE_WORKERS_MAX && i < workers_nr; i++) {
		__u32 key = i;  /* the loop's own has no address, or the verifier sees no end of it */
		struct mrt_worker_stats *s = bpf_map_lookup_elem(&mrt_workers, &key);
		struct trace_depths *d = bpf_map_lookup_elem(&depths, &key);

		if (!s || !d)
			break;
		d->count++;
		add_depth(d, TRACE_DEPTH_LOCAL, s->local_queue + s->next_slot + s->yielded);
		add_depth(d, TRACE_DEPTH_INFLIGHT, s->inflight);
		add_depth(d, TRACE_DEPTH_QUEUED, s->queued + s->sq_staged);
		add_depth(d, TRACE_DEPTH_CQ, s->cq_ready);
	}
}

static int on_timer(void *map, __u32 *key, struct sampler *s)
{
	__u64 now = bpf_ktime_get_ns();

	look();
	s->due_ns += sample_ns;
	if (s->due_ns <= now)
		s->due_ns = now + sample_ns; /* looks that were missed are not made up for */
	bpf_timer_start(&s->timer, s->due_ns - now, 0);
	return 0;
}

SEC("syscall")
int sampler_begin(void *ctx)
{
	__u32 key = 0;
	struct sampler *s = bpf_map_lookup_elem(&samplers, &key);

	if (!s)
		return -1;
	s->due_ns = bpf_ktime_get_ns() + sample_ns;
	return bpf_timer_init(&s->timer, &samplers, CLOCK_MONOTONIC) || bpf_timer_set_callback(&s->timer, on_timer) ||
	       bpf_timer_start(&s->timer, sample_ns, 0);
}

/* Waits for a look that is under way. */
SEC("syscall")
int sampler_end(void *ctx)
{
	__u32 key = 0;
	struct sampler *s = bpf_map_lookup_elem(&samplers, &key);

	if (s)
		bpf_timer_cancel(&s->timer);
	return 0;
}
