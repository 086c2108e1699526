/* SPDX-License-Identifier: MIT */
/* See observe.h. It knows the kernel's interfaces and <martlet/stats.h>, nothing private. */
#include "observe.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORKERS, HISTS, GLOBAL, CTL, BLOCKS_NR };

static const char *const names[BLOCKS_NR] = { "mrt_workers", "mrt_hists", "mrt_global", "mrt_ctl" };

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
	long ret = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	return ret < 0 ? -errno : (int)ret;
}

static unsigned map_id_of(pid_t pid, const char *fd)
{
	char path[64], line[128];
	unsigned id = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.16s", (int)pid, fd);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "map_id: %u", &id) == 1)
			break;
	if (f)
		fclose(f);
	return id;
}

/* Our own descriptor of a map; mapped if it is one of ours. */
static void try_map(struct observe *o, unsigned id)
{
	struct bpf_map_info info = { 0 };
	union bpf_attr attr = { .map_id = id };
	int fd = bpf(BPF_MAP_GET_FD_BY_ID, &attr), i;
	size_t bytes;
	void *mem;

	if (fd < 0)
		return;
	attr = (union bpf_attr){ .info = { .bpf_fd = (unsigned)fd, .info_len = sizeof(info), .info = (uintptr_t)&info } };
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) == 0) {
		for (i = 0; i < BLOCKS_NR; i++) {
			if (strcmp(info.name, names[i]) != 0)
				continue;
			bytes = (size_t)info.value_size * info.max_entries;
			mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			if (mem == MAP_FAILED)
				continue;
			if (o->mem[i])
				munmap(o->mem[i], o->bytes[i]);
			o->mem[i] = mem;
			o->bytes[i] = bytes;
			o->map_ids[i] = id;
			if (i == WORKERS)
				o->workers_nr = info.max_entries;
		}
	}
	close(fd);
}

static int open_file(struct observe *o, pid_t pid, const char *name)
{
	const struct mrt_stats_file *f;
	char path[64];
	struct stat st;
	char *mem;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", (int)pid, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return -errno;
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (mem == MAP_FAILED)
		return -errno;
	f = (const void *)mem;
	if (f->magic != MRT_STATS_MAGIC || f->version != MRT_STATS_VERSION ||
	    f->worker_bytes != sizeof(struct mrt_worker_stats)) {
		munmap(mem, (size_t)st.st_size);
		return -EINVAL;
	}
	o->mem[0] = mem;
	o->bytes[0] = (size_t)st.st_size;
	o->file = f;
	o->workers_nr = f->workers_nr;
	o->workers = (const void *)(mem + f->workers_off);
	o->hists = (const void *)(mem + f->hists_off);
	o->global = (const void *)(mem + f->global_off);
	o->ctl = (void *)(mem + f->ctl_off);
	return 0;
}

int observe_open(pid_t pid, struct observe *ret)
{
	char path[64], link[64];
	int err = -ENOENT;
	struct dirent *e;
	DIR *dir;

	memset(ret, 0, sizeof(*ret));
	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((e = readdir(dir)) != NULL) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		if (n < 0)
			continue;
		link[n] = '\0';
		if (strstr(link, "bpf-map"))
			try_map(ret, map_id_of(pid, e->d_name));
		else if (strncmp(link, "/memfd:mrt_workers", 18) == 0 && !ret->file)
			err = open_file(ret, pid, e->d_name);
	}
	closedir(dir);
	if (ret->file || !ret->mem[WORKERS])
		return err;
	if (!ret->mem[HISTS] || !ret->mem[GLOBAL] || !ret->mem[CTL])
		return -ENOENT;
	ret->workers = ret->mem[WORKERS];
	ret->hists = ret->mem[HISTS];
	ret->global = ret->mem[GLOBAL];
	ret->ctl = ret->mem[CTL];
	return 0;
}

void observe_close(struct observe *o)
{
	unsigned i;

	for (i = 0; i < BLOCKS_NR; i++)
		if (o->mem[i])
			munmap(o->mem[i], o->bytes[i]);
	memset(o, 0, sizeof(*o));
}

int observe_fake_global(unsigned type, size_t bytes, const struct mrt_global_stats *value)
{
	union bpf_attr attr = { .map_type = type, .key_size = 4, .value_size = (uint32_t)bytes, .max_entries = 1,
				.map_name = "mrt_global" };
	char *whole = calloc(1, bytes + sizeof(*value));
	uint32_t key = 0;
	int fd;

	ck_assert_ptr_nonnull(whole);
	memcpy(whole, value, sizeof(*value));
	fd = bpf(BPF_MAP_CREATE, &attr);
	ck_assert_int_ge(fd, 0);
	attr = (union bpf_attr){ .map_fd = (uint32_t)fd };
	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)whole;
	if (type == BPF_MAP_TYPE_ARRAY)
		ck_assert_int_eq(bpf(BPF_MAP_UPDATE_ELEM, &attr), 0);
	free(whole);
	return fd;
}
