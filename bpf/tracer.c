/* SPDX-License-Identifier: MIT */
/*
 * See tracer.h.
 *
 * Probes are attached with one link per file and all their places, by uprobe_multi. libbpf 1.1 does not know it, so the link
 * is made by bpf(2) itself. Before Linux 6.6 libbpf attaches them one by one.
 *
 * A tracepoint that this kernel lacks, or that has other arguments, costs its program and nothing else: one program that
 * does not load would fail the whole object, so the kernel's type information is asked before.
 */
#include "tracer.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mrt_trace_bpf.skel.h"
#include "mrt_workers_bpf.skel.h"
#include "notes.h"

#define PROVIDER "martlet"
#define LINKS_MAX 128           /* tracepoints, and either files or each of their probes */
#define NOTE_BYTES 160
#define BATCH 4096u             /* records in one go: whoever writes faster than we read must not keep us */
#define ARGS_ALL "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9"

/* The headers of Debian 12 are older than these (6.6). */
#define UPROBE_MULTI ((enum bpf_attach_type)48)

struct uprobe_multi_attr {      /* the link_create part of union bpf_attr */
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, uprobe_flags, pid, path_fd;
};

struct tracer {
	struct mrt_trace_bpf *skel;
	struct ring_buffer *ring;
	struct bpf_link *links[LINKS_MAX];
	unsigned links_nr;
	int fds[LINKS_MAX];             /* links made by hand */
	unsigned fds_nr;
	bool sampling;
	enum tracer_attach how;
	unsigned cpus_nr;
	void *percpu;                   /* a value of each CPU; the largest that is read */
	char notes[TRACER_NOTES_MAX][NOTE_BYTES];
	unsigned notes_nr;
	void (*on_record)(void *ctx, const struct trace_rec *rec);
	void *ctx;
	unsigned batch_left;            /* records until tracer_consume() returns */
};

static const char *const probe_names[TRACE_PROBES_NR] = {
#define NAME(name) [TRACE_##name] = #name,
	TRACE_PROBES(NAME)
#undef NAME
};

/* The first thing that libbpf complained of: what comes later follows from it. */
static char complaint[160];

__attribute__((format(printf, 2, 0)))
static int hear(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (level == LIBBPF_WARN && !complaint[0]) {
		(void)vsnprintf(complaint, sizeof(complaint), fmt, ap); /* cut to fit */
		complaint[strcspn(complaint, "\n")] = '\0';
	}
	return 0;
}

__attribute__((format(printf, 3, 4)))
static int fail(char why[TRACER_WHY_BYTES], int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, TRACER_WHY_BYTES, fmt, ap); /* cut to fit */
	va_end(ap);
	return err;
}

__attribute__((format(printf, 2, 3)))
static void note(struct tracer *t, const char *fmt, ...)
{
	va_list ap;

	if (t->notes_nr == TRACER_NOTES_MAX)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(t->notes[t->notes_nr++], NOTE_BYTES, fmt, ap); /* cut to fit */
	va_end(ap);
}

/* ---- what this machine allows ---- */

/* CAP_SYS_ADMIN stands for both of the others. */
static bool has_capability(unsigned bit)
{
	unsigned long long effective = 0;
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	if (f)
		(void)fclose(f); /* only read */
	return effective >> bit & 1;
}

enum { CAP_SYS_ADMIN_BIT = 21, CAP_PERFMON_BIT = 38, CAP_BPF_BIT = 39 };

static int explain_refusal(char why[TRACER_WHY_BYTES], int err, const char *what)
{
	bool admin = has_capability(CAP_SYS_ADMIN_BIT), bpf = admin || has_capability(CAP_BPF_BIT),
	     perfmon = admin || has_capability(CAP_PERFMON_BIT);

	if ((err == -EPERM || err == -EACCES) && (!bpf || !perfmon))
		return fail(why, -EPERM, "%s: not permitted: %s%s%s missing; run as root, or with CAP_BPF and CAP_PERFMON",
			    what, bpf ? "" : "CAP_BPF", bpf || perfmon ? "" : " and ", perfmon ? "" : "CAP_PERFMON");
	if (err == -EPERM || err == -EACCES)
		return fail(why, -EPERM, "%s: not permitted%s; a container or a security module may forbid it", what,
			    admin ? "" : " without CAP_SYS_ADMIN");
	return fail(why, err, "%s: %s%s%s", what, strerror(-err), complaint[0] ? "; libbpf: " : "", complaint);
}

static int link_create(const struct uprobe_multi_attr *a)
{
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, a, sizeof(*a));

	return fd < 0 ? -errno : (int)fd;
}

/* A program that does nothing, and a place that cannot be: EBADF means that the kernel knows what we want of it. */
static int try_multi(void)
{
	struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = UPROBE_MULTI);
	int prog = bpf_prog_load(BPF_PROG_TYPE_KPROBE, NULL, "GPL", code, sizeof(code) / sizeof(code[0]), &opts), err;
	const uint64_t offset = 1;

	if (prog < 0)
		return prog;
	err = link_create(&(struct uprobe_multi_attr){ .prog_fd = (uint32_t)prog, .attach_type = UPROBE_MULTI,
						       .path = (uintptr_t)"/", .offsets = (uintptr_t)&offset, .cnt = 1 });
	(void)close(prog); /* it did its work */
	if (err >= 0)
		(void)close(err); /* cannot be: / is no file */
	return err == -EBADF ? 0 : -EOPNOTSUPP;
}

static int choose_how(enum tracer_attach asked, enum tracer_attach *ret_how, char why[TRACER_WHY_BYTES])
{
	int err = try_multi();

	*ret_how = err || asked == TRACER_USDT ? TRACER_USDT : TRACER_MULTI;
	if (err == -EPERM || err == -EACCES)
		return explain_refusal(why, err, "loading BPF programs");
	if (err && asked == TRACER_MULTI)
		return fail(why, err, "this kernel has no uprobe_multi (Linux 6.6)");
	if (access("/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset", F_OK) != 0)
		return fail(why, -EOPNOTSUPP, "this kernel's uprobes know no semaphores, without which the probes stay off");
	return 0;
}

/* ---- tracepoints ---- */

/* How many arguments a tracepoint gives its programs; 0: there is none, or nobody knows. */
static unsigned arguments_of(const struct btf *btf, const char *tracepoint)
{
	const struct btf_type *type;
	char name[64];
	int id;

	(void)snprintf(name, sizeof(name), "btf_trace_%s", tracepoint); /* fits */
	id = btf ? btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF) : -ENOENT;
	if (id < 0)
		return 0;
	type = btf__type_by_id(btf, btf__type_by_id(btf, (uint32_t)id)->type); /* a pointer */
	type = type && btf_is_ptr(type) ? btf__type_by_id(btf, type->type) : NULL;
	return type && btf_is_func_proto(type) && btf_vlen(type) > 0 ? btf_vlen(type) - 1u : 0; /* the first is its own */
}

static void choose_tracepoint(struct tracer *t, const struct btf *btf, struct bpf_program *prog, const char *tracepoint,
			      unsigned args_nr, const char *loss)
{
	unsigned nr = arguments_of(btf, tracepoint);

	if (nr == args_nr)
		return;
	(void)bpf_program__set_autoload(prog, false); /* it is not loaded yet */
	if (loss && !btf)
		note(t, "%s: the kernel tells no types (/sys/kernel/btf/vmlinux)", loss);
	else if (loss)
		note(t, "%s: the kernel's tracepoint %s %s", loss, tracepoint, nr ? "is another" : "is missing");
}

#define COMPLETE_ARGS 3u        /* ring, request, CQE */
#define COMPLETE_ARGS_BEFORE 7u /* of older kernels: the CQE word by word */

static void choose_programs(struct tracer *t, const struct tracer_opts *opts)
{
	struct mrt_trace_bpf *s = t->skel;
	struct btf *btf = opts->punts || opts->offcpu ? btf__load_vmlinux_btf() : NULL;
	bool words = arguments_of(btf, "io_uring_complete") == COMPLETE_ARGS_BEFORE;

	/* none of these is loaded yet, so none fails */
	(void)bpf_program__set_autoload(s->progs.on_probe, t->how == TRACER_MULTI);
	(void)bpf_program__set_autoload(s->progs.on_usdt, t->how == TRACER_USDT);
	(void)bpf_program__set_expected_attach_type(s->progs.on_probe, UPROBE_MULTI);
	(void)bpf_program__set_autoload(s->progs.on_submit_req, opts->ops);
	(void)bpf_program__set_autoload(s->progs.on_punt, opts->punts);
	(void)bpf_program__set_autoload(s->progs.on_complete, opts->ops && !words);
	(void)bpf_program__set_autoload(s->progs.on_complete_words, opts->ops && words);
	(void)bpf_program__set_autoload(s->progs.on_switch, opts->offcpu);
	(void)bpf_program__set_autoload(s->progs.sampler_begin, opts->workers_fd >= 0);
	(void)bpf_program__set_autoload(s->progs.sampler_end, opts->workers_fd >= 0);
	if (opts->ops) {
		choose_tracepoint(t, btf, s->progs.on_submit_req, "io_uring_submit_req", 1,
				  "ops are not split into queued and in the kernel");
		if (!words)
			choose_tracepoint(t, btf, s->progs.on_complete, "io_uring_complete", COMPLETE_ARGS,
					  "ops are not split into in the kernel and not reaped");
	}
	if (opts->punts)
		choose_tracepoint(t, btf, s->progs.on_punt, "io_uring_queue_async_work", 2, "io-wq punts are not counted");
	if (opts->offcpu && arguments_of(btf, "sched_switch") == 3) /* of older kernels: the fourth is not looked at */
		;
	else if (opts->offcpu)
		choose_tracepoint(t, btf, s->progs.on_switch, "sched_switch", 4, "time without CPU is not counted");
	btf__free(btf);
}

static int attach_programs(struct tracer *t, char why[TRACER_WHY_BYTES])
{
	struct mrt_trace_bpf *s = t->skel;
	struct bpf_program *const progs[] = { s->progs.on_submit_req, s->progs.on_punt, s->progs.on_complete,
					      s->progs.on_complete_words, s->progs.on_switch };

	for (unsigned i = 0; i < sizeof(progs) / sizeof(progs[0]); i++) {
		struct bpf_link *link;

		if (!bpf_program__autoload(progs[i]))
			continue;
		link = bpf_program__attach(progs[i]);
		if (!link)
			return explain_refusal(why, -errno, bpf_program__name(progs[i]));
		t->links[t->links_nr++] = link;
	}
	return 0;
}

/* ---- probes ---- */

static bool is_wanted(const struct tracer_opts *opts, enum trace_probe id)
{
	switch (id) {
	case TRACE_op_submit:
	case TRACE_op_complete:
		return opts->ops;
	case TRACE_park:
	case TRACE_unpark:
		return opts->offcpu || opts->timeline;
	case TRACE_steal:
		return opts->timeline;
	default:
		return true;
	}
}

static const struct note *find_note(const struct note *notes, int notes_nr, const char *name)
{
	for (int i = 0; i < notes_nr; i++)
		if (strcmp(notes[i].provider, PROVIDER) == 0 && strcmp(notes[i].name, name) == 0)
			return &notes[i];
	return NULL;
}

static int check_note(const struct note *n, const char *file, const char *name, char why[TRACER_WHY_BYTES])
{
	if (!n)
		return fail(why, -ENOENT, "%s has no probe " PROVIDER ":%s: it is another version of Martlet", file, name);
	if (strncmp(ARGS_ALL, n->args, strlen(n->args)) != 0)
		return fail(why, -ENOTSUP, "%s: probe %s has its arguments elsewhere: it is another version of Martlet", file,
			    name);
	if (!n->sem_offset || n->sem_segments != 1)
		return fail(why, -ENOTSUP, "%s: the semaphore of probe %s lies in %u writable segments, and must in one; link "
			    "with -Wl,-z,separate-loadable-segments", file, name, n->sem_segments);
	return 0;
}

static int attach_multi(struct tracer *t, const struct tracer_opts *opts, const char *file,
			const struct note *const wanted[TRACE_PROBES_NR], char why[TRACER_WHY_BYTES])
{
	uint64_t offsets[TRACE_PROBES_NR], semaphores[TRACE_PROBES_NR], cookies[TRACE_PROBES_NR];
	uint32_t nr = 0;
	int fd;

	for (unsigned i = 0; i < TRACE_PROBES_NR; i++) {
		if (!wanted[i])
			continue;
		offsets[nr] = wanted[i]->offset;
		semaphores[nr] = wanted[i]->sem_offset;
		cookies[nr++] = i;
	}
	fd = link_create(&(struct uprobe_multi_attr){
			.prog_fd = (uint32_t)bpf_program__fd(t->skel->progs.on_probe), .attach_type = UPROBE_MULTI,
			.path = (uintptr_t)file, .offsets = (uintptr_t)offsets, .ref_ctr_offsets = (uintptr_t)semaphores,
			.cookies = (uintptr_t)cookies, .cnt = nr, .pid = (uint32_t)opts->pid });
	if (fd == -ESRCH)
		return fail(why, fd, "process %d has ended", (int)opts->pid);
	if (fd < 0)
		return explain_refusal(why, fd, file);
	t->fds[t->fds_nr++] = fd;
	return 0;
}

static int attach_usdt(struct tracer *t, const struct tracer_opts *opts, const char *file,
		       const struct note *const wanted[TRACE_PROBES_NR], char why[TRACER_WHY_BYTES])
{
	for (unsigned i = 0; i < TRACE_PROBES_NR; i++) {
		LIBBPF_OPTS(bpf_usdt_opts, usdt, .usdt_cookie = i);
		struct bpf_link *link;

		if (!wanted[i])
			continue;
		link = bpf_program__attach_usdt(t->skel->progs.on_usdt, opts->pid ? opts->pid : -1, file, PROVIDER,
						probe_names[i], &usdt);
		if (!link)
			return explain_refusal(why, -errno, file);
		t->links[t->links_nr++] = link;
	}
	return 0;
}

static int attach_file(struct tracer *t, const struct tracer_opts *opts, const char *file, char why[TRACER_WHY_BYTES])
{
	const struct note *wanted[TRACE_PROBES_NR] = { NULL };
	struct note *notes = calloc(NOTES_MAX, sizeof(*notes));
	int nr = notes ? notes_read(file, notes) : -ENOMEM, err = 0;

	if (nr < 0)
		err = fail(why, nr, "%s: %s", file, strerror(-nr));
	for (unsigned i = 0; i < TRACE_PROBES_NR && !err; i++) {
		if (!is_wanted(opts, i))
			continue;
		wanted[i] = find_note(notes, nr, probe_names[i]);
		err = check_note(wanted[i], file, probe_names[i], why);
	}
	if (!err && t->how == TRACER_MULTI)
		err = attach_multi(t, opts, file, wanted, why);
	else if (!err)
		err = attach_usdt(t, opts, file, wanted, why);
	free(notes);
	return err;
}

/* Of all processes, those that cannot be listened to are left out, as long as there are others. */
static int attach_files(struct tracer *t, const struct tracer_opts *opts, char why[TRACER_WHY_BYTES])
{
	unsigned attached = 0;
	int err = 0, first = 0;

	for (unsigned i = 0; i < opts->files_nr; i++) {
		char sentence[TRACER_WHY_BYTES];

		err = attach_file(t, opts, opts->files[i], sentence);
		attached += !err;
		if (!err)
			continue;
		for (char *c = sentence; *c; c++)
			*c = isprint((unsigned char)*c) ? *c : '?'; /* whoever runs the file has named it */
		if (!first)
			memcpy(why, sentence, sizeof(sentence));
		first = first ? first : err;
		if (opts->pid)
			break;
		note(t, "%s", sentence);
	}
	return opts->pid || !attached ? first : 0;
}

/* ---- the sampler ---- */

static int run_once(const struct bpf_program *prog)
{
	LIBBPF_OPTS(bpf_test_run_opts, run);
	int err = bpf_prog_test_run_opts(bpf_program__fd(prog), &run);

	return err ? err : run.retval ? -EIO : 0;
}

static void begin_sampler(struct tracer *t)
{
	int err = run_once(t->skel->progs.sampler_begin);

	t->sampling = err == 0;
	if (err)
		note(t, "depths are not sampled: starting a BPF timer: %s", strerror(-err));
}

/* ---- open and close ---- */

static int hand_over(void *ctx, void *data, size_t bytes)
{
	struct tracer *t = ctx;

	if (bytes >= sizeof(struct trace_rec))
		t->on_record(t->ctx, data);
	return --t->batch_left == 0 ? -EAGAIN : 0;
}

static uint32_t buffer_bytes(size_t asked)
{
	uint32_t bytes = (uint32_t)sysconf(_SC_PAGESIZE);

	while (bytes < asked && bytes < UINT32_C(1) << 30)
		bytes *= 2;
	return bytes;
}

static int load(struct tracer *t, const struct tracer_opts *opts, char why[TRACER_WHY_BYTES])
{
	const struct trace_fn_key other = { 0 };
	static const struct trace_fn zero;
	struct mrt_trace_bpf *s = t->skel;
	int err = 0;

	s->rodata->with_ops = opts->ops;
	s->rodata->with_timeline = opts->timeline;
	s->rodata->with_tasks = opts->tasks;
	s->rodata->task_id_at = opts->task_id_at;
	s->rodata->workers_nr = opts->workers_fd >= 0 ? opts->workers_nr : 0;
	s->rodata->sample_ns = opts->sample_hz ? 1000000000u / opts->sample_hz : 0;
	choose_programs(t, opts);
	if (opts->timeline)
		err = bpf_map__set_max_entries(s->maps.records, buffer_bytes(opts->buffer_bytes));
	if (!err && opts->workers_fd >= 0)
		err = bpf_map__reuse_fd(s->maps.mrt_workers, opts->workers_fd);
	else if (!err)
		err = bpf_map__set_autocreate(s->maps.mrt_workers, false);
	if (!err && !opts->tasks)
		err = bpf_map__set_autocreate(s->maps.tasks, false); /* nobody reaches for it then */
	if (!err)
		err = mrt_trace_bpf__load(s);
	if (err)
		return explain_refusal(why, err, "loading the programs");
	err = bpf_map__update_elem(s->maps.functions, &other, sizeof(other), &zero, sizeof(zero), BPF_ANY);
	if (!err) {
		t->ring = ring_buffer__new(bpf_map__fd(s->maps.records), hand_over, t, NULL);
		err = t->ring ? 0 : -errno;
	}
	return err ? explain_refusal(why, err, "setting up the maps") : 0;
}

static int attach(struct tracer *t, const struct tracer_opts *opts, char why[TRACER_WHY_BYTES])
{
	unsigned each = t->how == TRACER_MULTI ? 1 : TRACE_PROBES_NR;
	int err;

	if (opts->files_nr * each > LINKS_MAX - TRACE_PROBES_NR)
		return fail(why, -E2BIG, "%u files with probes are more than can be listened to at once", opts->files_nr);
	err = attach_programs(t, why);
	if (!err)
		err = attach_files(t, opts, why);
	if (!err && opts->workers_fd >= 0)
		begin_sampler(t);
	t->skel->bss->active = !err;
	return err;
}

const char *tracer_missing(void)
{
	return NULL;
}

int tracer_check(enum tracer_attach how, char ret_why[TRACER_WHY_BYTES])
{
	(void)libbpf_set_print(hear);
	return choose_how(how, &how, ret_why);
}

int tracer_open(const struct tracer_opts *opts, struct tracer **ret_tracer, char ret_why[TRACER_WHY_BYTES])
{
	struct tracer_opts o = *opts;
	struct tracer *t = calloc(1, sizeof(*t));
	int err, cpus;

	if (!t)
		return fail(ret_why, -ENOMEM, "no memory");
	o.ops |= o.timeline;
	o.punts |= o.ops;
	t->on_record = o.on_record;
	t->ctx = o.ctx;
	(void)libbpf_set_print(hear);
	cpus = libbpf_num_possible_cpus();
	t->cpus_nr = cpus > 0 ? (unsigned)cpus : 1;
	t->percpu = calloc(t->cpus_nr, sizeof(struct trace_hist));
	err = t->percpu ? choose_how(o.how, &t->how, ret_why) : fail(ret_why, -ENOMEM, "no memory");
	if (!err) {
		t->skel = mrt_trace_bpf__open();
		err = t->skel ? load(t, &o, ret_why) : explain_refusal(ret_why, -errno, "reading the programs");
	}
	if (!err)
		err = attach(t, &o, ret_why);
	if (err) {
		tracer_close(t);
		return err;
	}
	*ret_tracer = t;
	return 0;
}

void tracer_detach(struct tracer *t)
{
	if (t->skel && t->skel->bss)
		t->skel->bss->active = false;
	if (t->sampling)
		(void)run_once(t->skel->progs.sampler_end); /* it ends with its map in any case */
	t->sampling = false;
	for (unsigned i = 0; i < t->fds_nr; i++)
		(void)close(t->fds[i]); /* which is how a link ends */
	t->fds_nr = 0;
	for (unsigned i = 0; i < t->links_nr; i++)
		(void)bpf_link__destroy(t->links[i]); /* gone in any case */
	t->links_nr = 0;
}

void tracer_close(struct tracer *t)
{
	if (!t)
		return;
	tracer_detach(t);
	ring_buffer__free(t->ring);
	mrt_trace_bpf__destroy(t->skel);
	free(t->percpu);
	free(t);
}

const char *tracer_note(const struct tracer *t, unsigned idx)
{
	return idx < t->notes_nr ? t->notes[idx] : NULL;
}

enum tracer_attach tracer_how(const struct tracer *t)
{
	return t->how;
}

/* ---- records ---- */

int tracer_consume(struct tracer *t)
{
	int ret;

	t->batch_left = BATCH;
	ret = ring_buffer__consume(t->ring); /* an error of the callback ends it; that record is consumed */
	return ret == -EAGAIN ? 1 : ret < 0 ? ret : 0;
}

int tracer_fd(const struct tracer *t)
{
	return ring_buffer__epoll_fd(t->ring);
}

/* ---- what was counted ---- */

/* An element's value, of all CPUs. */
static const void *lookup_percpu(const struct tracer *t, const struct bpf_map *map, uint32_t key, size_t value_bytes)
{
	size_t bytes = (value_bytes + 7) / 8 * 8;

	memset(t->percpu, 0, bytes * t->cpus_nr);
	(void)bpf_map__lookup_elem(map, &key, sizeof(key), t->percpu, bytes * t->cpus_nr, 0); /* 0 then: there is none */
	return t->percpu;
}

static uint64_t sum_of(const struct tracer *t, const struct bpf_map *map, uint32_t key)
{
	const uint64_t *each = lookup_percpu(t, map, key, sizeof(*each));
	uint64_t sum = 0;

	for (unsigned cpu = 0; cpu < t->cpus_nr; cpu++)
		sum += each[cpu];
	return sum;
}

void tracer_counts(const struct tracer *t, uint64_t ret_hits[TRACE_PROBES_NR], uint64_t ret_lost[TRACE_LOST_NR])
{
	for (unsigned i = 0; i < TRACE_PROBES_NR; i++)
		ret_hits[i] = sum_of(t, t->skel->maps.hits, i);
	for (unsigned i = 0; i < TRACE_LOST_NR; i++)
		ret_lost[i] = sum_of(t, t->skel->maps.lost, i);
}

void tracer_stage(const struct tracer *t, unsigned opcode, enum trace_stage stage, struct trace_hist *ret_hist)
{
	const struct trace_hist *each =
		lookup_percpu(t, t->skel->maps.stages, opcode * TRACE_STAGES_NR + stage, sizeof(*each));

	memset(ret_hist, 0, sizeof(*ret_hist));
	for (unsigned cpu = 0; cpu < t->cpus_nr; cpu++) {
		ret_hist->count += each[cpu].count;
		ret_hist->sum_ns += each[cpu].sum_ns;
		for (unsigned i = 0; i < TRACE_HIST_SLOTS; i++)
			ret_hist->slots[i] += each[cpu].slots[i];
	}
}

void tracer_depths(const struct tracer *t, unsigned worker, struct trace_depths *ret_depths)
{
	uint32_t key = worker;

	memset(ret_depths, 0, sizeof(*ret_depths));
	/* 0 then: there is none */
	(void)bpf_map__lookup_elem(t->skel->maps.depths, &key, sizeof(key), ret_depths, sizeof(*ret_depths), 0);
}

bool tracer_next(const struct tracer *t, enum tracer_table table, const void *prev_key, void *ret_key, void *ret_value)
{
	const struct bpf_map *const maps[TRACER_TABLES_NR] = {
		[TRACER_FUNCTIONS] = t->skel->maps.functions, [TRACER_PUNTS] = t->skel->maps.punts,
		[TRACER_WORKERS] = t->skel->maps.workers, [TRACER_THREADS] = t->skel->maps.threads,
	};
	const struct bpf_map *map = maps[table];

	return bpf_map__get_next_key(map, prev_key, ret_key, bpf_map__key_size(map)) == 0 &&
	       bpf_map__lookup_elem(map, ret_key, bpf_map__key_size(map), ret_value, bpf_map__value_size(map), 0) == 0;
}

/* By whole buckets, since a walk from key to key begins anew when its key has made room for another. */
int tracer_tasks(const struct tracer *t, struct tracer_tasks *ret)
{
	uint64_t made = __atomic_load_n(&t->skel->bss->tasks_made, __ATOMIC_RELAXED);
	uint32_t nr = TRACE_TASKS_MAX, batch;

	if (bpf_map_lookup_batch(bpf_map__fd(t->skel->maps.tasks), NULL, &batch, ret->keys, ret->tasks, &nr, NULL) &&
	    errno != ENOENT) /* which is that there are no more */
		return -errno;
	ret->nr = nr;
	ret->dropped = made > nr ? made - nr : 0;
	return 0;
}

/* ---- the iterator ---- */

int tracer_pin_workers(pid_t pid, int workers_fd, unsigned workers_nr, const char *path, char ret_why[TRACER_WHY_BYTES])
{
	union bpf_iter_link_info info = { .task = { .tid = (uint32_t)pid } };
	LIBBPF_OPTS(bpf_iter_attach_opts, opts, .link_info = &info, .link_info_len = sizeof(info));
	struct mrt_workers_bpf *s;
	struct bpf_link *link;
	int err;

	(void)libbpf_set_print(hear);
	s = mrt_workers_bpf__open();
	if (!s)
		return explain_refusal(ret_why, -errno, "reading the program");
	s->rodata->workers_nr = workers_nr;
	err = bpf_map__reuse_fd(s->maps.mrt_workers, workers_fd);
	if (!err)
		err = mrt_workers_bpf__load(s);
	link = err ? NULL : bpf_program__attach_iter(s->progs.print_workers, &opts);
	if (!err && !link)
		err = -errno;
	if (!err)
		err = bpf_link__pin(link, path);
	if (err)
		err = explain_refusal(ret_why, err, path);
	(void)bpf_link__destroy(link); /* the pin keeps it */
	mrt_workers_bpf__destroy(s);
	return err;
}
