/* SPDX-License-Identifier: MIT */
/*
 * See attach.h.
 *
 * A candidate is a set of four maps behind one of three kinds of keys (ids, descriptors of the process, paths of pins), or a
 * memfd. mrt_global is read first: it says whose the statistics are, and which ids the other maps have. A candidate whose
 * process is already in the set with the same time of creation is skipped, so the order of the ways decides.
 *
 * What is read was written by another program, maybe of another user, who may go on writing: sizes, offsets, and what says whose
 * it is are copied, checked and kept, never read a second time; and a memfd must have the seal that keeps its owner from
 * shortening it under us.
 */
#include "attach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpfmap.h"
#include "clock.h"
#include "proc.h"

#define PINS "/sys/fs/bpf/mrt"
#define MEMFD_LINK "/memfd:mrt_workers"
#define MAP_LINK "anon_inode:bpf-map"
#define WORKERS_MAX 1024u       /* more is not a runtime */
#define RUNTIMES_MAX 64u        /* of one process: each costs us memory, and its owner a memfd that may be empty */
#define PAGE_BYTES 4096u
#define GLOBAL_HEAD_BYTES offsetof(struct mrt_global_stats, name) /* the same in every version */
#define GLOBAL_BYTES_MAX 65536u /* of any version */
#define LOOK_FDS_NR 6u          /* open at a time: /proc, a folder in it, what is there, and what that is compared with */

static const struct {
	const char *name;
	uint32_t bytes;
} blocks[ATTACH_BLOCKS_NR] = {
	[ATTACH_WORKERS] = { "mrt_workers", sizeof(struct mrt_worker_stats) },
	[ATTACH_HISTS] = { "mrt_hists", sizeof(struct mrt_worker_hists) },
	[ATTACH_GLOBAL] = { "mrt_global", sizeof(struct mrt_global_stats) },
	[ATTACH_CTL] = { "mrt_ctl", sizeof(struct mrt_ctl) },
};

/* One scan. */
struct scan {
	struct attach_set *set;
	const int *pids;
	unsigned pids_nr;
	bool ids_allowed;
	int err;
};

/* Where the maps of a candidate are looked up. */
struct source {
	enum { BY_ID, BY_FD, BY_PIN } by;
	int pid;                /* BY_FD */
	const char *folder;     /* BY_PIN */
};

/* ---- refusals ---- */

__attribute__((format(printf, 3, 4)))
static int refuse(struct scan *s, int pid, const char *fmt, ...)
{
	struct attach_refusal *r = &s->set->refusals[s->set->refusals_nr % ATTACH_REFUSALS_MAX];
	va_list ap;

	va_start(ap, fmt);
	r->pid = pid;
	(void)vsnprintf(r->why, sizeof(r->why), fmt, ap); /* cut to fit */
	va_end(ap);
	s->set->refusals_nr++;
	return -EINVAL;
}

const char *attach_why_not(const struct attach_set *set, int pid, char *buf, size_t buf_bytes)
{
	unsigned i, nr = set->refusals_nr < ATTACH_REFUSALS_MAX ? set->refusals_nr : ATTACH_REFUSALS_MAX;
	char path[64], why[200];

	for (i = 0; i < nr; i++) {
		if (set->refusals[i].pid == pid)
			return set->refusals[i].why;
	}
	(void)snprintf(path, sizeof(path), "/proc/%d/fd", pid); /* fits */
	if (proc_start_ticks(pid) == 0)
		(void)snprintf(buf, buf_bytes, "there is no process %d", pid);
	else if (access(path, R_OK))
		(void)snprintf(buf, buf_bytes, "%s; or let it pin its maps (MRT_RUNTIME_STATS_PIN)", proc_why_not(pid, why, sizeof(why)));
	else
		(void)snprintf(buf, buf_bytes, "process %d shows no Martlet runtime (its statistics may be on the heap, or in "
			       "maps that this user may not open)", pid);
	return buf;
}

/* ---- whose it is ---- */

static bool is_wanted(const struct scan *s, int pid)
{
	unsigned i;

	for (i = 0; i < s->pids_nr; i++) {
		if (s->pids[i] == pid)
			return true;
	}
	return s->pids_nr == 0;
}

struct owner {
	const struct mrt_global_stats *g;
	int pid;
};

static bool owns(int pid, const struct mrt_global_stats *g)
{
	return g->start_ticks && proc_start_ticks(pid) == g->start_ticks && proc_inner_pid(pid) == (int)g->pid && proc_pid_ns(pid) == g->pid_ns;
}

static bool look_for_owner(int pid, void *ctx)
{
	struct owner *o = ctx;

	if (!owns(pid, o->g))
		return true;
	o->pid = pid;
	return false;
}

/* The process that made the statistics, by our numbers; or 0, having said why if it is one that was asked for. */
static int owner_of(struct scan *s, const struct mrt_global_stats *g)
{
	struct owner o = { .g = g };
	uint64_t ticks;

	if (g->pid_ns != proc_own_pid_ns()) {
		(void)proc_each(look_for_owner, &o); /* without /proc nothing is found */
		if (o.pid == 0)
			(void)refuse(s, 0, "a runtime of process %u of another PID namespace: it has ended, or cannot be "
				     "seen from here", g->pid);
		return o.pid;
	}
	ticks = proc_start_ticks((int)g->pid);
	if (ticks == g->start_ticks)
		return (int)g->pid;
	if (ticks == 0)
		(void)refuse(s, (int)g->pid, "process %u has ended; what it has left is stale", g->pid);
	else
		(void)refuse(s, (int)g->pid, "process %u is not the one that the statistics are of: that one has ended, and its "
			     "number was used again", g->pid);
	return 0;
}

static bool has_file(const struct scan *s, int pid, uint64_t inode)
{
	unsigned i;

	for (i = 0; i < s->set->nr; i++) {
		const struct attach *a = s->set->items[i];

		if (a->pid == pid && a->fds[ATTACH_WORKERS] < 0 && a->held_id == inode)
			return true;
	}
	return false;
}

static bool has_too_many(struct scan *s, int pid)
{
	unsigned i, nr = 0;

	for (i = 0; i < s->set->nr; i++)
		nr += s->set->items[i]->pid == pid;
	if (nr < RUNTIMES_MAX)
		return false;
	(void)refuse(s, pid, "process %d has more than %u runtimes: the rest is not looked at", pid, RUNTIMES_MAX);
	return true;
}

static bool has_already(const struct scan *s, int pid, const struct mrt_global_stats *g)
{
	unsigned i;

	for (i = 0; i < s->set->nr; i++) {
		const struct attach *a = s->set->items[i];

		if (a->pid == pid && a->global.start_ticks == g->start_ticks && a->global.created_ns == g->created_ns)
			return true;
	}
	return false;
}

/* ---- one runtime ---- */

typedef uint64_t __attribute__((may_alias)) any_word; /* two fields of 4 bytes, too */

static void copy_words(void *to, const void *from, size_t bytes)
{
	const any_word *f = from;
	any_word *t = to;
	size_t i;

	/* relaxed: words of counters and gauges; fields are of 4 or 8 bytes, and both halves of a load are whole */
	for (i = 0; i < bytes / sizeof(*t); i++)
		t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
}

static void close_item(struct attach *a)
{
	unsigned i;

	if (!a)
		return;
	for (i = 0; i < ATTACH_BLOCKS_NR; i++) {
		if (a->maps[i])
			(void)munmap(a->maps[i], a->map_bytes[i]); /* as it was mapped */
		if (a->fds[i] >= 0)
			(void)close(a->fds[i]); /* nothing was written through it */
	}
	free(a->workers);
	free(a->hists);
	free(a);
}

static struct attach *make_item(int pid, const char *backend, unsigned workers_nr, const struct mrt_global_stats *g)
{
	struct attach *a = aligned_alloc(128, (sizeof(*a) + 127) / 128 * 128);
	size_t w = workers_nr * sizeof(struct mrt_worker_stats), h = workers_nr * sizeof(struct mrt_worker_hists);
	unsigned i;

	if (!a)
		return NULL;
	memset(a, 0, sizeof(*a));
	for (i = 0; i < ATTACH_BLOCKS_NR; i++)
		a->fds[i] = -1;
	a->pid = pid;
	a->backend = backend;
	a->workers_nr = workers_nr;
	a->global = *g;
	a->held_fd = -1;
	a->workers = aligned_alloc(128, w);
	a->hists = aligned_alloc(128, h);
	if (!a->workers || !a->hists) {
		close_item(a);
		return NULL;
	}
	memset(a->workers, 0, w);
	memset(a->hists, 0, h);
	return a;
}

static int compare_items(const void *x, const void *y)
{
	const struct attach *a = *(struct attach *const *)x, *b = *(struct attach *const *)y;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return a->global.created_ns < b->global.created_ns ? -1 : a->global.created_ns > b->global.created_ns;
}

static bool is_label_taken(const struct attach_set *set, int pid, const char *label)
{
	unsigned i;

	for (i = 0; i < set->nr; i++) {
		if (set->items[i]->pid == pid && strcmp(set->items[i]->label, label) == 0)
			return true;
	}
	return false;
}

/* The set takes it over. */
static int add_item(struct scan *s, struct attach *a)
{
	struct attach **grown = realloc(s->set->items, (s->set->nr + 1) * sizeof(struct attach *));

	if (!grown) {
		close_item(a);
		return s->err = -ENOMEM;
	}
	s->set->items = grown;
	grown[s->set->nr++] = a;
	return 0;
}

/* Labels last as long as the set has the runtime, so they are given when all of a scan are known and in order. */
static void label_items(struct attach_set *set)
{
	char label[sizeof(set->items[0]->label)];
	unsigned i, n;

	if (set->nr)
		qsort(set->items, set->nr, sizeof(struct attach *), compare_items);
	for (i = 0; i < set->nr; i++) {
		struct attach *a = set->items[i];

		if (a->label[0])
			continue;
		(void)snprintf(label, sizeof(label), "%s", a->global.name[0] ? a->global.name : "mrt"); /* fits */
		for (n = 2; is_label_taken(set, a->pid, label); n++)
			(void)snprintf(label, sizeof(label), "%.15s-%u", a->global.name[0] ? a->global.name : "mrt", n);
		memcpy(a->label, label, sizeof(label));
	}
}

/* ---- maps ---- */

/* The process's descriptor of the map with this id; -1: none that we may see. */
static int held_map_fd(int pid, uint32_t id)
{
	char path[64], line[128];
	struct dirent *e;
	unsigned seen;
	int found = -1;
	DIR *dir;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo", pid); /* fits */
	dir = opendir(path);
	while (dir && found < 0 && (e = readdir(dir)) != NULL) {
		int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC);

		f = fd >= 0 ? fdopen(fd, "r") : NULL;
		while (f && fgets(line, sizeof(line), f)) {
			if (sscanf(line, "map_id: %u", &seen) == 1 && seen == id)
				found = atoi(e->d_name);
		}
		if (f)
			(void)fclose(f); /* only read */
		else if (fd >= 0)
			(void)close(fd);
	}
	if (dir)
		(void)closedir(dir);
	return found;
}

/* Our own descriptor of a descriptor of another process. */
static int take_fd(int pid, int fd)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), ours;

	if (pidfd < 0)
		return -errno;
	ours = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	if (ours < 0)
		ours = -errno;
	(void)close(pidfd);
	return ours;
}

static int open_map(const struct source *src, enum attach_block b, uint32_t id, bool *ret_writable)
{
	char path[128];
	int fd;

	*ret_writable = true;
	switch (src->by) {
	case BY_ID:
		return bpfmap_by_id(id);
	case BY_FD:
		fd = held_map_fd(src->pid, id);
		return fd < 0 ? -ENOENT : take_fd(src->pid, fd);
	case BY_PIN:
		break;
	}
	(void)snprintf(path, sizeof(path), "%.64s/%s", src->folder, blocks[b].name); /* fits */
	return bpfmap_by_pin(path, ret_writable);
}

static int refuse_version(struct scan *s, int pid, uint32_t version)
{
	return refuse(s, pid, "process %d has another version of libmartlet: its statistics are of version %u, this program (martlet "
		      MRT_VERSION_STRING ") knows %d", pid, version, MRT_STATS_VERSION);
}

static int check_map(struct scan *s, int pid, enum attach_block b, const struct bpfmap_info *info, unsigned nr)
{
	if (info->type != BPF_MAP_TYPE_ARRAY || strcmp(info->name, blocks[b].name) != 0)
		return refuse(s, pid, "process %d: '%s' is not the map %s", pid, info->name, blocks[b].name);
	if (info->value_bytes != blocks[b].bytes)
		return refuse(s, pid, "process %d has another version of libmartlet: its %s has elements of %u bytes, this "
			      "program (martlet " MRT_VERSION_STRING ") knows %u", pid, info->name, info->value_bytes,
			      blocks[b].bytes);
	if (info->nr != nr)
		return refuse(s, pid, "process %d: %s has %u elements, not %u", pid, info->name, info->nr, nr);
	return 0;
}

static void map_block(struct attach *a, enum attach_block b, bool writable)
{
	size_t bytes = (size_t)blocks[b].bytes * (b == ATTACH_WORKERS || b == ATTACH_HISTS ? a->workers_nr : 1);
	int prot = PROT_READ | (b == ATTACH_CTL && writable ? PROT_WRITE : 0);
	void *mem;

	a->map_bytes[b] = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	mem = mmap(NULL, a->map_bytes[b], prot, MAP_SHARED, a->fds[b], 0);
	a->maps[b] = a->mem[b] = mem == MAP_FAILED ? NULL : mem; /* else by lookups */
	if (!a->mem[b]) {
		a->is_mapped = false;
	} else if (b != ATTACH_WORKERS) { /* that one has uses: on a machine with many runtimes descriptors are few */
		(void)close(a->fds[b]); /* the mapping stays */
		a->fds[b] = -1;
	}
}

static int open_maps(struct scan *s, struct attach *a, const struct source *src, const struct mrt_global_stats *g)
{
	const uint32_t ids[ATTACH_BLOCKS_NR] = { [ATTACH_WORKERS] = g->map_workers, [ATTACH_HISTS] = g->map_hists,
						 [ATTACH_CTL] = g->map_ctl };
	struct bpfmap_info info;
	unsigned b;
	int err;

	a->is_mapped = true;
	for (b = 0; b < ATTACH_BLOCKS_NR; b++) {
		bool writable;

		if (b == ATTACH_GLOBAL) {
			map_block(a, b, false);
			continue;
		}
		a->fds[b] = open_map(src, b, ids[b], &writable);
		if (a->fds[b] < 0)
			return refuse(s, a->pid, "process %d: its map %s cannot be opened: %s", a->pid, blocks[b].name,
				      strerror(-a->fds[b]));
		err = bpfmap_info(a->fds[b], &info);
		if (!err)
			err = check_map(s, a->pid, b, &info, b == ATTACH_CTL ? 1 : a->workers_nr);
		if (err)
			return err;
		map_block(a, b, writable);
		if (b == ATTACH_CTL)
			a->may_control = writable;
	}
	a->held_id = g->map_workers;
	a->held_fd = held_map_fd(a->pid, g->map_workers);
	return 0;
}

/*
 * What is in a mrt_global of any version, as far as its head.
 *
 * @return NULL: it is none, or there is no memory
 */
static struct mrt_global_stats *read_global(struct scan *s, int fd, const struct bpfmap_info *info)
{
	size_t bytes = sizeof(struct mrt_global_stats);
	struct mrt_global_stats *g;

	/* other types write more than one value */
	if (info->type != BPF_MAP_TYPE_ARRAY || info->value_bytes < GLOBAL_HEAD_BYTES || info->value_bytes > GLOBAL_BYTES_MAX)
		return NULL;
	if (info->value_bytes > bytes)
		bytes = (info->value_bytes + 127) / 128 * 128;
	g = aligned_alloc(128, bytes);
	if (!g) {
		s->err = -ENOMEM;
		return NULL;
	}
	memset(g, 0, bytes);
	if (bpfmap_lookup(fd, 0, g) == 0)
		return g;
	free(g);
	return NULL;
}

/* A mrt_global: adds its runtime. Takes fd over. */
static void consider_maps(struct scan *s, const struct source *src, int fd, const struct bpfmap_info *info)
{
	struct mrt_global_stats *g = read_global(s, fd, info);
	int pid = g ? owner_of(s, g) : 0;
	struct attach *a = NULL;

	if (pid == 0 || !is_wanted(s, pid))
		goto out;
	if (g->version != MRT_STATS_VERSION) {
		(void)refuse_version(s, pid, g->version);
		goto out;
	}
	if (check_map(s, pid, ATTACH_GLOBAL, info, 1) || has_already(s, pid, g) || has_too_many(s, pid))
		goto out;
	if (g->workers_nr == 0 || g->workers_nr > WORKERS_MAX) {
		(void)refuse(s, pid, "process %d: its mrt_global says that it has %u workers", pid, g->workers_nr);
		goto out;
	}
	a = make_item(pid, "bpf", g->workers_nr, g);
	if (!a) {
		s->err = -ENOMEM;
		goto out;
	}
	a->fds[ATTACH_GLOBAL] = fd;
	fd = -1;
	if (src->by == BY_PIN)
		(void)snprintf(a->pin, sizeof(a->pin), "%s", src->folder); /* fits */
	if (open_maps(s, a, src, g))
		goto out;
	(void)snprintf(a->from, sizeof(a->from), "maps %u to %u%s%s%s", g->map_workers, g->map_ctl,
		       src->by == BY_PIN ? ", pinned in " : src->by == BY_FD ? ", its descriptors" : "", a->pin,
		       a->is_mapped ? "" : ", read by system calls"); /* cut to fit */
	if (attach_read(a) == 0) {
		(void)add_item(s, a);
		a = NULL;
	}
out:
	close_item(a);
	if (fd >= 0)
		(void)close(fd);
	free(g);
}

static void scan_ids(struct scan *s)
{
	const struct source src = { .by = BY_ID };
	struct bpfmap_info info;
	uint32_t id = 0;
	int fd;

	while (bpfmap_next(id, &id) == 0) {
		s->ids_allowed = true;
		fd = bpfmap_by_id(id);
		if (fd < 0)
			continue; /* gone meanwhile */
		if (bpfmap_info(fd, &info) == 0 && strcmp(info.name, blocks[ATTACH_GLOBAL].name) == 0)
			consider_maps(s, &src, fd, &info);
		else
			(void)close(fd);
	}
}

static void scan_pins(struct scan *s)
{
	char folder[64], path[128];
	struct bpfmap_info info;
	struct dirent *e;
	bool writable;
	DIR *dir = opendir(PINS);
	int fd;

	while (dir && (e = readdir(dir)) != NULL) {
		struct source src = { .by = BY_PIN, .folder = folder };

		if (e->d_name[0] < '0' || e->d_name[0] > '9' || strlen(e->d_name) > 16 ||
		    e->d_name[strspn(e->d_name, "0123456789-")])
			continue; /* not one of ours */
		(void)snprintf(folder, sizeof(folder), PINS "/%.16s", e->d_name); /* fits */
		(void)snprintf(path, sizeof(path), "%s/%s", folder, blocks[ATTACH_GLOBAL].name); /* fits */
		src.pid = atoi(e->d_name);
		fd = bpfmap_by_pin(path, &writable);
		if (fd < 0) {
			(void)refuse(s, src.pid, "%s: %s", path, strerror(-fd));
			continue;
		}
		if (bpfmap_info(fd, &info) == 0)
			consider_maps(s, &src, fd, &info);
		else
			(void)close(fd);
	}
	if (dir)
		(void)closedir(dir);
}

/* ---- memfd ---- */

static bool fits(size_t bytes, uint32_t off, uint64_t nr, uint32_t each)
{
	return off % 8 == 0 && off <= bytes && nr * each <= bytes - off;
}

/* @param f  a copy: the owner may go on writing */
static int check_file(struct scan *s, int pid, const struct mrt_stats_file *f, size_t bytes)
{
	if (f->version != MRT_STATS_VERSION)
		return refuse_version(s, pid, f->version);
	if (f->worker_bytes != blocks[ATTACH_WORKERS].bytes || f->hist_bytes != blocks[ATTACH_HISTS].bytes ||
	    f->global_bytes != blocks[ATTACH_GLOBAL].bytes || f->ctl_bytes != blocks[ATTACH_CTL].bytes)
		return refuse(s, pid, "process %d has another version of libmartlet: its blocks have %u, %u, %u and %u bytes, "
			      "this program (martlet " MRT_VERSION_STRING ") knows %u, %u, %u and %u", pid, f->worker_bytes,
			      f->hist_bytes, f->global_bytes, f->ctl_bytes, blocks[0].bytes, blocks[1].bytes, blocks[2].bytes,
			      blocks[3].bytes);
	if (f->workers_nr == 0 || f->workers_nr > WORKERS_MAX)
		return refuse(s, pid, "process %d: its memfd mrt_workers says that it has %u workers", pid, f->workers_nr);
	if (!fits(bytes, f->workers_off, f->workers_nr, f->worker_bytes) ||
	    !fits(bytes, f->hists_off, f->workers_nr, f->hist_bytes) || !fits(bytes, f->global_off, 1, f->global_bytes) ||
	    !fits(bytes, f->ctl_off, 1, f->ctl_bytes))
		return refuse(s, pid, "process %d: its memfd mrt_workers is smaller than it says", pid);
	return 0;
}

/*
 * Adds the runtime of a file that was mapped, if it is one and this process's.
 *
 * @param held_fd  the process's descriptor of it
 * @return false: the mapping is still the caller's
 */
static bool consider_file(struct scan *s, int pid, int held_fd, uint64_t inode, char *mem, size_t bytes, bool writable)
{
	const struct mrt_stats_file *live = (const void *)mem;
	struct mrt_stats_file f;
	struct mrt_global_stats g;
	struct attach *a;

	/* [STATS.magic.obs] what the header says is there; pairs with [STATS.magic.pub] */
	if (__atomic_load_n(&live->magic, __ATOMIC_ACQUIRE) != MRT_STATS_MAGIC) {
		(void)refuse(s, pid, "process %d: its memfd mrt_workers has not begun as one", pid);
		return false;
	}
	copy_words(&f, live, sizeof(f));
	if (check_file(s, pid, &f, bytes))
		return false;
	copy_words(&g, mem + f.global_off, sizeof(g));
	if (!owns(pid, &g) || has_already(s, pid, &g) || has_too_many(s, pid))
		return false; /* inherited by fork; its maker is found by itself */
	a = make_item(pid, "memfd", f.workers_nr, &g);
	if (!a) {
		s->err = -ENOMEM;
		return false;
	}
	a->maps[0] = mem;
	a->map_bytes[0] = bytes;
	a->mem[ATTACH_WORKERS] = mem + f.workers_off;
	a->mem[ATTACH_HISTS] = mem + f.hists_off;
	a->mem[ATTACH_GLOBAL] = mem + f.global_off;
	a->mem[ATTACH_CTL] = mem + f.ctl_off;
	a->is_mapped = true;
	a->may_control = writable;
	a->held_fd = held_fd;
	a->held_id = inode;
	(void)snprintf(a->from, sizeof(a->from), "memfd, /proc/%d/fd/%d", pid, held_fd); /* fits */
	if (attach_read(a) == 0)
		(void)add_item(s, a);
	else
		close_item(a);
	return true;
}

/* In its mount namespace a FIFO or a terminal may have the name of a memfd. */
#define OPEN_FLAGS (O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

static void open_file(struct scan *s, int pid, int held_fd)
{
	bool writable = true;
	char path[64], *mem;
	struct stat st;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, held_fd); /* fits */
	fd = open(path, O_RDWR | OPEN_FLAGS);
	if (fd < 0) {
		writable = false;
		fd = open(path, O_RDONLY | OPEN_FLAGS);
	}
	if (fd < 0 || fstat(fd, &st)) {
		(void)refuse(s, pid, "%s: %s", path, strerror(errno));
		goto out;
	}
	if (has_file(s, pid, st.st_ino))
		goto out;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct mrt_stats_file) || !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK)) {
		(void)refuse(s, pid, "%s: not the statistics of a runtime, whose size would be sealed", path);
		goto out;
	}
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		(void)refuse(s, pid, "%s: cannot be mapped: %s", path, strerror(errno));
	else if (!consider_file(s, pid, held_fd, st.st_ino, mem, (size_t)st.st_size, writable))
		(void)munmap(mem, (size_t)st.st_size); /* as it was mapped */
out:
	if (fd >= 0)
		(void)close(fd);
}

/* ---- descriptors of processes ---- */

static void try_held_map(struct scan *s, int pid, int held_fd)
{
	struct source src = { .by = BY_FD, .pid = pid };
	struct bpfmap_info info;
	int fd = take_fd(pid, held_fd);

	if (fd < 0)
		(void)refuse(s, pid, "process %d has BPF maps that this user may not open: %s", pid, strerror(-fd));
	else if (bpfmap_info(fd, &info) == 0 && strcmp(info.name, blocks[ATTACH_GLOBAL].name) == 0)
		consider_maps(s, &src, fd, &info);
	else
		(void)close(fd);
}

static bool scan_process(int pid, void *ctx)
{
	struct scan *s = ctx;
	char path[64], link[64];
	struct dirent *e;
	DIR *dir;

	if (!is_wanted(s, pid))
		return true;
	(void)snprintf(path, sizeof(path), "/proc/%d/fd", pid); /* fits */
	dir = opendir(path);
	while (dir && (e = readdir(dir)) != NULL) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		if (n < 0)
			continue;
		link[n] = '\0';
		if (strncmp(link, MEMFD_LINK, strlen(MEMFD_LINK)) == 0)
			open_file(s, pid, atoi(e->d_name));
		else if (strcmp(link, MAP_LINK) == 0 && !s->ids_allowed)
			try_held_map(s, pid, atoi(e->d_name));
	}
	if (dir)
		(void)closedir(dir);
	return true;
}

/* What was found is kept, so if there are descriptors to look at one process now, there were all the time. */
static int check_descriptors(void)
{
	int fds[LOOK_FDS_NR], err = 0;
	unsigned nr = 0;

	while (nr < LOOK_FDS_NR && !err) {
		fds[nr] = open("/", O_PATH | O_CLOEXEC);
		err = fds[nr] < 0 ? -errno : 0;
		nr += !err;
	}
	while (nr > 0)
		(void)close(fds[--nr]); /* nothing was done with it */
	return err == -EMFILE || err == -ENFILE ? err : 0;
}

int attach_scan(struct attach_set *set, const int *pids, unsigned pids_nr)
{
	struct scan s = { .set = set, .pids = pids, .pids_nr = pids_nr };

	set->refusals_nr = 0;
	scan_ids(&s);
	(void)proc_each(scan_process, &s); /* without /proc there are pins */
	scan_pins(&s);
	label_items(set);
	return s.err ? s.err : check_descriptors();
}

/* ---- reading ---- */

static int read_element(const struct attach *a, enum attach_block b, unsigned i, void *to)
{
	if (!a->mem[b])
		return bpfmap_lookup(a->fds[b], i, to);
	copy_words(to, (const char *)a->mem[b] + (size_t)i * blocks[b].bytes, blocks[b].bytes);
	return 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * The worker adds to its times when a park begins and ends, which may be never: bring them up to now. A park begins at turn_ns.
 * State and times may be of two moments, so what was said before is a floor.
 */
static void bring_up(const struct attach *a, struct mrt_worker_stats *w, const struct mrt_worker_stats *before)
{
	uint64_t now = a->read_ns, since = a->global.created_ns;

	if (w->state != MRT_WORKER_STARTING && w->state != MRT_WORKER_STOPPED && now > since) {
		if (w->state == MRT_WORKER_PARKED && now > w->turn_ns)
			w->park_ns += now - w->turn_ns;
		if (now - since > w->park_ns)
			w->busy_ns = now - since - w->park_ns;
	}
	w->park_ns = later(w->park_ns, before->park_ns);
	w->busy_ns = later(w->busy_ns, before->busy_ns);
}

static int read_workers(struct attach *a)
{
	struct mrt_worker_stats one;
	int err = 0;
	unsigned i;

	for (i = 0; i < a->workers_nr && !err; i++) {
		err = read_element(a, ATTACH_WORKERS, i, &one);
		if (!err) {
			bring_up(a, &one, &a->workers[i]);
			a->workers[i] = one;
			err = read_element(a, ATTACH_HISTS, i, &a->hists[i]);
		}
	}
	return err;
}

static bool is_fd_held(const struct attach *a)
{
	char path[64], line[128];
	struct stat st;
	unsigned id = 0;
	FILE *f;

	if (a->fds[ATTACH_WORKERS] < 0) {
		(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", a->pid, a->held_fd); /* fits */
		return stat(path, &st) == 0 && st.st_ino == a->held_id;
	}
	(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", a->pid, a->held_fd); /* fits */
	f = fopen(path, "re");
	while (f && id == 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "map_id: %u", &id) != 1)
			id = 0;
	}
	if (f)
		(void)fclose(f); /* only read */
	return id == a->held_id;
}

/* Does the runtime still exist in its process, which lives? What we have mapped stays in any case. */
static bool is_there(const struct attach *a)
{
	unsigned i;

	if (a->held_fd >= 0)
		return is_fd_held(a);
	if (a->pin[0] && access(a->pin, F_OK))
		return false;
	for (i = 0; i < a->workers_nr; i++) {
		if (a->workers[i].state != MRT_WORKER_STOPPED)
			return true;
	}
	return false;
}

int attach_read(struct attach *a)
{
	uint64_t start = a->global.start_ticks, created = a->global.created_ns, ns = a->global.pid_ns;
	uint32_t pid = a->global.pid;
	int err;

	if (proc_start_ticks(a->pid) != start)
		return -ESRCH;
	if (!is_there(a))
		return -ENOENT;
	err = read_element(a, ATTACH_GLOBAL, 0, &a->global);
	/* whose it is was found out when it was opened, whatever the owner writes there now */
	a->global.start_ticks = start;
	a->global.created_ns = created;
	a->global.pid_ns = ns;
	a->global.pid = pid;
	a->global.name[sizeof(a->global.name) - 1] = '\0';
	proc_printable(a->global.name);
	if (!err)
		err = read_element(a, ATTACH_CTL, 0, &a->ctl);
	a->read_ns = clock_ns();
	return err ? err : read_workers(a);
}

int attach_watch(struct attach *a, uint64_t until_ns)
{
	struct mrt_ctl *live = a->mem[ATTACH_CTL];
	uint64_t seen;

	if (!a->may_control)
		return -EACCES;
	if (!live) {
		int err = bpfmap_lookup(a->fds[ATTACH_CTL], 0, &a->ctl);

		if (err || a->ctl.watched_until_ns >= until_ns)
			return err;
		a->ctl.watched_until_ns = until_ns;
		return bpfmap_update(a->fds[ATTACH_CTL], 0, &a->ctl);
	}
	/* relaxed: the word orders nothing; after a failure `seen` is what another viewer has made of it */
	seen = __atomic_load_n(&live->watched_until_ns, __ATOMIC_RELAXED);
	while (seen < until_ns && !__atomic_compare_exchange_n(&live->watched_until_ns, &seen, until_ns, false, __ATOMIC_RELAXED,
							       __ATOMIC_RELAXED))
		;
	return 0;
}

/* ---- the set ---- */

void attach_set_drop(struct attach_set *set, unsigned idx)
{
	close_item(set->items[idx]);
	set->nr--;
	memmove(&set->items[idx], &set->items[idx + 1], (set->nr - idx) * sizeof(struct attach *));
}

void attach_set_close(struct attach_set *set)
{
	while (set->nr > 0)
		attach_set_drop(set, set->nr - 1);
	free(set->items);
	memset(set, 0, sizeof(*set));
}
