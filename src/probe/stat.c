/* SPDX-License-Identifier: MIT */
/*
 * The blocks of statistics as tables, and where they live.
 *
 * The lists of <martlet/stats.h> are expanded here once more, to tables of fields: copies and type information (btf.c)
 * are made from those, so a field that is added to a list is everywhere.
 *
 * Backends, first that works: maps (map.c), a memfd, the heap. What fails is a reason to take the next one, never a
 * reason not to start. The descriptors stay open: with maps the links in /proc/PID/fd show whose they are; the memfd
 * could not be found without.
 */
#include "probe/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "probe/btf.h"
#include "probe/map.h"

#define PAGE_BYTES 4096u        /* sections of the memfd; a worker's block shares no line with another's */
#define POLL_SHIFT_DEFAULT 6u
#define OP_SHIFT_DEFAULT 5u

/* ---- tables ---- */

#define FIELD(cls, type_, name_, text) \
	{ .name = #name_, .type = MRT__STAT_##type_, .offset = (uint32_t)offsetof(struct STRUCT, name_) },
#define FIELDS(cls, type_, name_, nr_, text) \
	{ .name = #name_, .type = MRT__STAT_##type_, .nr = nr_, .offset = (uint32_t)offsetof(struct STRUCT, name_) },

#define STRUCT mrt_worker_stats
static const struct mrt__stat_field workers_fields[] = { MRT_WORKER_STATS(FIELD, FIELDS, FIELD) };
#undef STRUCT
#define STRUCT mrt_worker_hists
static const struct mrt__stat_field hists_fields[] = { MRT_WORKER_HISTS(FIELD, FIELDS, FIELD) };
#undef STRUCT
#define STRUCT mrt_global_stats
static const struct mrt__stat_field global_fields[] = { MRT_GLOBAL_STATS(FIELD, FIELDS, FIELD) };
#undef STRUCT
#define STRUCT mrt_ctl
static const struct mrt__stat_field ctl_fields[] = { MRT_CTL(FIELD, FIELDS, FIELD) };
#undef STRUCT

const struct mrt__stat_block mrt__stat_blocks[MRT__STAT_BLOCKS_NR] = {
	[MRT__STAT_WORKERS] = { "mrt_workers", "mrt_worker_stats", sizeof(struct mrt_worker_stats),
				MRT__ARRAY_NR(workers_fields), workers_fields },
	[MRT__STAT_HISTS] = { "mrt_hists", "mrt_worker_hists", sizeof(struct mrt_worker_hists),
			      MRT__ARRAY_NR(hists_fields), hists_fields },
	[MRT__STAT_GLOBAL] = { "mrt_global", "mrt_global_stats", sizeof(struct mrt_global_stats),
			       MRT__ARRAY_NR(global_fields), global_fields },
	[MRT__STAT_CTL] = { "mrt_ctl", "mrt_ctl", sizeof(struct mrt_ctl), MRT__ARRAY_NR(ctl_fields), ctl_fields },
};

static void copy_field(const struct mrt__stat_field *f, const char *from, char *to)
{
	unsigned i, nr = f->nr ? f->nr : 1;

	switch ((enum mrt__stat_type)f->type) {
	case MRT__STAT_u64:
	case MRT__STAT_i64:
		for (i = 0; i < nr; i++)
			((uint64_t *)(void *)to)[i] = mrt__stat_get((const uint64_t *)(const void *)from + i);
		break;
	case MRT__STAT_char: /* set once */
		memcpy(to, from, nr);
		break;
	case MRT__STAT_u32:
	case MRT__STAT_i32:
	case MRT__STAT_worker_state:
	case MRT__STAT_timing:
	case MRT__STAT_TYPES_NR:
		for (i = 0; i < nr; i++)
			((uint32_t *)(void *)to)[i] = mrt__stat_get((const uint32_t *)(const void *)from + i);
		break;
	}
}

void mrt__stat_block_copy(enum mrt__stat_block_id id, const void *from, void *to)
{
	const struct mrt__stat_block *b = &mrt__stat_blocks[id];
	uint32_t i;

	memset(to, 0, b->bytes);
	for (i = 0; i < b->fields_nr; i++)
		copy_field(&b->fields[i], (const char *)from + b->fields[i].offset, (char *)to + b->fields[i].offset);
}

/* ---- memory ---- */

const char *mrt__stats_backend_name(enum mrt__stats_backend backend)
{
	static const char *const names[] = { [MRT__STATS_BPF] = "bpf", [MRT__STATS_MEMFD] = "memfd",
					     [MRT__STATS_HEAP] = "heap" };

	return names[backend];
}

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static void point(struct mrt__stats *s, void *const blocks[MRT__STAT_BLOCKS_NR])
{
	s->workers = blocks[MRT__STAT_WORKERS];
	s->hists = blocks[MRT__STAT_HISTS];
	s->global = blocks[MRT__STAT_GLOBAL];
	s->ctl = blocks[MRT__STAT_CTL];
}

static size_t block_bytes(const struct mrt__stats *s, unsigned id)
{
	bool each = id == MRT__STAT_WORKERS || id == MRT__STAT_HISTS;

	return mrt__stat_blocks[id].bytes * (size_t)(each ? s->workers_nr : 1);
}

static int map_bpf(struct mrt__stats *s)
{
	uint32_t type_ids[MRT__STAT_BLOCKS_NR] = { 0 };
	void *blocks[MRT__STAT_BLOCKS_NR];
	int btf = mrt__btf_load(type_ids), err = 0;
	unsigned i, last;

	if (btf < 0)
		return btf;
	for (i = 0; i < MRT__STAT_BLOCKS_NR && !err; i++) {
		const struct mrt__stat_block *b = &mrt__stat_blocks[i];
		struct mrt__map_opts mo = { .name = b->map_name, .value_bytes = b->bytes,
					    .nr = (uint32_t)(block_bytes(s, i) / b->bytes), .btf_fd = btf,
					    .key_type_id = MRT__BTF_KEY_ID, .value_type_id = type_ids[i] };

		s->mem_bytes[i] = round_up(block_bytes(s, i), PAGE_BYTES);
		err = mrt__map_create(&mo, s->mem_bytes[i], &s->fds[i], &blocks[i]);
	}
	(void)close(btf); /* the maps keep it */
	if (!err) {
		memcpy(s->mem, blocks, sizeof(blocks));
		point(s, blocks);
		return 0;
	}
	last = i - 1; /* the one that failed has left nothing */
	for (i = 0; i < last; i++) {
		(void)munmap(blocks[i], s->mem_bytes[i]); /* as it was mapped */
		(void)close(s->fds[i]);
		s->fds[i] = -1;
	}
	return err;
}

static void fill_file(struct mrt__stats *s, struct mrt_stats_file *f, const uint32_t offs[MRT__STAT_BLOCKS_NR],
		      const struct mrt__btf *btf, uint32_t btf_off)
{
	f->version = MRT_STATS_VERSION;
	f->workers_nr = s->workers_nr;
	f->workers_off = offs[MRT__STAT_WORKERS];
	f->worker_bytes = sizeof(struct mrt_worker_stats);
	f->hists_off = offs[MRT__STAT_HISTS];
	f->hist_bytes = sizeof(struct mrt_worker_hists);
	f->global_off = offs[MRT__STAT_GLOBAL];
	f->global_bytes = sizeof(struct mrt_global_stats);
	f->ctl_off = offs[MRT__STAT_CTL];
	f->ctl_bytes = sizeof(struct mrt_ctl);
	f->btf_off = btf_off;
	f->btf_bytes = (uint32_t)btf->bytes;
	memcpy((char *)f + btf_off, btf->blob, btf->bytes);
	/* [STATS.magic.pub] last: who sees the magic sees the rest; pairs with the acquire of whoever maps the memfd */
	__atomic_store_n(&f->magic, MRT_STATS_MAGIC, __ATOMIC_RELEASE);
}

static int map_memfd(struct mrt__stats *s)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL; /* nobody can make us fault */
	void *blocks[MRT__STAT_BLOCKS_NR];
	uint32_t offs[MRT__STAT_BLOCKS_NR];
	struct mrt__btf btf;
	size_t bytes, btf_off;
	unsigned i;
	char *mem;
	int fd, err = mrt__btf_build(&btf);

	if (err)
		return err;
	btf_off = round_up(sizeof(struct mrt_stats_file), 64);
	bytes = round_up(btf_off + btf.bytes, PAGE_BYTES);
	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++) {
		offs[i] = (uint32_t)bytes;
		bytes += round_up(block_bytes(s, i), PAGE_BYTES);
	}
	fd = memfd_create("mrt_workers", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, seals)) {
		err = -errno;
		goto err_close;
	}
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED) {
		err = -errno;
		goto err_close;
	}
	fill_file(s, (struct mrt_stats_file *)(void *)mem, offs, &btf, (uint32_t)btf_off);
	mrt__btf_free(&btf);
	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++)
		blocks[i] = mem + offs[i];
	point(s, blocks);
	s->fds[0] = fd;
	s->mem[0] = mem;
	s->mem_bytes[0] = bytes;
	return 0;

err_close:
	if (fd >= 0)
		(void)close(fd);
	mrt__btf_free(&btf);
	return err;
}

static int alloc_heap(struct mrt__stats *s)
{
	size_t offs[MRT__STAT_BLOCKS_NR], bytes = 0;
	void *blocks[MRT__STAT_BLOCKS_NR];
	unsigned i;
	char *mem;

	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++) {
		offs[i] = bytes;
		bytes += round_up(block_bytes(s, i), MRT__CACHE_PAIR);
	}
	mem = aligned_alloc(MRT__CACHE_PAIR, bytes);
	if (!mem)
		return -ENOMEM;
	memset(mem, 0, bytes);
	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++)
		blocks[i] = mem + offs[i];
	point(s, blocks);
	s->mem[0] = mem;
	return 0;
}

/* ---- what is const in them ---- */

uint64_t mrt__stats_start_ticks(int pid)
{
	char path[32], line[1024];
	unsigned long long ticks = 0;
	const char *p;
	ssize_t n;
	unsigned field;
	int fd;

	if (pid > 0)
		(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid); /* fits */
	else
		(void)snprintf(path, sizeof(path), "/proc/self/stat"); /* right also where /proc is that of another PID namespace */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, line, sizeof(line) - 1);
	(void)close(fd);
	if (n <= 0)
		return 0;
	line[n] = '\0';
	p = strrchr(line, ')'); /* the name in parentheses may hold anything; what follows begins with field 3 */
	for (field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p && sscanf(p, " %llu", &ticks) == 1 ? ticks : 0;
}

static void fill_consts(struct mrt__stats *s, const struct mrt__stats_opts *opts)
{
	struct mrt_global_stats *g = s->global;
	struct stat ns;
	unsigned i;

	mrt__stat_set(&g->version, MRT_STATS_VERSION);
	(void)snprintf(g->name, sizeof(g->name), "%s", opts->name ? opts->name : ""); /* cut to fit */
	mrt__stat_set(&g->workers_nr, s->workers_nr);
	mrt__stat_set(&g->flavour, opts->flavour);
	mrt__stat_set(&g->created_ns, opts->now_ns);
	mrt__stat_set(&g->pid, getpid());
	mrt__stat_set(&g->start_ticks, mrt__stats_start_ticks(0));
	if (stat("/proc/self/ns/pid", &ns) == 0)
		mrt__stat_set(&g->pid_ns, ns.st_ino);
	if (s->backend == MRT__STATS_BPF) {
		mrt__stat_set(&g->map_workers, mrt__map_id(s->fds[MRT__STAT_WORKERS]));
		mrt__stat_set(&g->map_hists, mrt__map_id(s->fds[MRT__STAT_HISTS]));
		mrt__stat_set(&g->map_ctl, mrt__map_id(s->fds[MRT__STAT_CTL]));
	}
	mrt__stat_set(&s->ctl->poll_timing, MRT_TIMING_SAMPLED);
	mrt__stat_set(&s->ctl->poll_shift, POLL_SHIFT_DEFAULT);
	mrt__stat_set(&s->ctl->op_timing, MRT_TIMING_SAMPLED);
	mrt__stat_set(&s->ctl->op_shift, OP_SHIFT_DEFAULT);
	for (i = 0; i < s->workers_nr; i++) {
		mrt__stat_set(&s->workers[i].index, i);
		mrt__stat_set(&s->workers[i].pid, g->pid);
		mrt__stat_set(&s->workers[i].start_ticks, g->start_ticks);
		mrt__stat_set(&s->hists[i].index, i);
		mrt__stat_set(&s->hists[i].pid, g->pid);
	}
}

int mrt__stats_create(const struct mrt__stats_opts *opts, struct mrt__stats *ret_stats)
{
	int err = -EOPNOTSUPP;
	unsigned i;

	memset(ret_stats, 0, sizeof(*ret_stats));
	ret_stats->workers_nr = opts->workers_nr;
	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++)
		ret_stats->fds[i] = -1;
	if (opts->backend == MRT__STATS_BPF) {
		ret_stats->backend = MRT__STATS_BPF;
		err = ret_stats->bpf_error = map_bpf(ret_stats);
	}
	if (err && opts->backend <= MRT__STATS_MEMFD) {
		ret_stats->backend = MRT__STATS_MEMFD;
		err = map_memfd(ret_stats);
	}
	if (err) {
		ret_stats->backend = MRT__STATS_HEAP;
		err = alloc_heap(ret_stats);
	}
	if (!err)
		fill_consts(ret_stats, opts);
	return err;
}

void mrt__stats_destroy(struct mrt__stats *s)
{
	unsigned i;

	if (!s->workers)
		return;
	mrt__stats_unpin(s);
	for (i = 0; i < MRT__STAT_BLOCKS_NR; i++) {
		if (s->backend == MRT__STATS_HEAP)
			free(s->mem[i]);
		else if (s->mem[i])
			(void)munmap(s->mem[i], s->mem_bytes[i]); /* as it was mapped */
		if (s->fds[i] >= 0)
			(void)close(s->fds[i]);
	}
	memset(s, 0, sizeof(*s));
}
