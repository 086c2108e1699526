/* SPDX-License-Identifier: MIT */
/* See map.h. Descriptors of bpf(2) are close-on-exec by themselves. */
#include "probe/map.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VALUE_BYTES_MAX 4096u /* that are read; the kernel gives whole ones */

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
	long ret = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	return ret < 0 ? -errno : (int)ret;
}

int mrt__map_btf_load(const void *blob, size_t bytes)
{
	union bpf_attr attr = { .btf = (uintptr_t)blob, .btf_size = (uint32_t)bytes };

	return bpf(BPF_BTF_LOAD, &attr);
}

int mrt__map_create(const struct mrt__map_opts *opts, size_t bytes, int *ret_fd, void **ret_mem)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .map_flags = BPF_F_MMAPABLE, .key_size = 4,
				.value_size = opts->value_bytes, .max_entries = opts->nr,
				.btf_fd = (uint32_t)opts->btf_fd, .btf_key_type_id = opts->key_type_id,
				.btf_value_type_id = opts->value_type_id };
	void *mem;
	int fd, err;

	(void)snprintf(attr.map_name, sizeof(attr.map_name), "%s", opts->name); /* fits */
	fd = bpf(BPF_MAP_CREATE, &attr);
	if (fd < 0)
		return fd;
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED) {
		err = -errno;
		(void)close(fd);
		return err;
	}
	*ret_fd = fd;
	*ret_mem = mem;
	return 0;
}

static int get_info(int fd, struct bpf_map_info *ret_info)
{
	union bpf_attr attr = { .info = { .bpf_fd = (uint32_t)fd, .info_len = sizeof(*ret_info),
					  .info = (uintptr_t)ret_info } };

	memset(ret_info, 0, sizeof(*ret_info));
	return bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

uint32_t mrt__map_id(int fd)
{
	struct bpf_map_info info;

	return get_info(fd, &info) ? 0 : info.id;
}

int mrt__map_pin(int fd, const char *path)
{
	union bpf_attr attr = { .pathname = (uintptr_t)path, .bpf_fd = (uint32_t)fd };

	return bpf(BPF_OBJ_PIN, &attr);
}

static int read_element(int fd, const char *name, void *value, uint32_t value_bytes)
{
	union bpf_attr attr = { .map_fd = (uint32_t)fd };
	struct bpf_map_info info;
	uint64_t whole[VALUE_BYTES_MAX / 8];
	uint32_t key = 0;
	int err = get_info(fd, &info);

	if (err)
		return err;
	if (info.type != BPF_MAP_TYPE_ARRAY || info.value_size < value_bytes || info.value_size > sizeof(whole) ||
	    strncmp(info.name, name, sizeof(info.name)) != 0)
		return -EINVAL;
	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)whole;
	err = bpf(BPF_MAP_LOOKUP_ELEM, &attr);
	if (!err)
		memcpy(value, whole, value_bytes);
	return err;
}

int mrt__map_read_pinned(const char *path, const char *name, void *value, uint32_t value_bytes)
{
	union bpf_attr attr = { .pathname = (uintptr_t)path, .file_flags = BPF_F_RDONLY };
	int fd = bpf(BPF_OBJ_GET, &attr), err;

	if (fd < 0)
		return fd;
	err = read_element(fd, name, value, value_bytes);
	(void)close(fd);
	return err;
}
