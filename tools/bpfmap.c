/* SPDX-License-Identifier: MIT */
/* See bpfmap.h. */
#include "bpfmap.h"

#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
	long ret = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	return ret < 0 ? -errno : (int)ret;
}

int bpfmap_next(uint32_t id, uint32_t *ret_id)
{
	union bpf_attr attr = { .start_id = id };
	int err = bpf(BPF_MAP_GET_NEXT_ID, &attr);

	if (!err)
		*ret_id = attr.next_id;
	return err;
}

int bpfmap_by_id(uint32_t id)
{
	union bpf_attr attr = { .map_id = id };

	return bpf(BPF_MAP_GET_FD_BY_ID, &attr);
}

int bpfmap_by_pin(const char *path, bool *ret_writable)
{
	union bpf_attr attr = { .pathname = (uintptr_t)path };
	int fd = bpf(BPF_OBJ_GET, &attr);

	*ret_writable = fd >= 0;
	if (fd != -EACCES && fd != -EPERM)
		return fd;
	attr.file_flags = BPF_F_RDONLY;
	return bpf(BPF_OBJ_GET, &attr);
}

int bpfmap_info(int fd, struct bpfmap_info *ret_info)
{
	struct bpf_map_info info;
	union bpf_attr attr = { .info = { .bpf_fd = (uint32_t)fd, .info_len = sizeof(info), .info = (uintptr_t)&info } };
	int err;

	memset(&info, 0, sizeof(info));
	err = bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
	if (err)
		return err;
	memcpy(ret_info->name, info.name, sizeof(ret_info->name));
	ret_info->name[sizeof(ret_info->name) - 1] = '\0';
	ret_info->id = info.id;
	ret_info->type = info.type;
	ret_info->value_bytes = info.value_size;
	ret_info->nr = info.max_entries;
	return 0;
}

int bpfmap_lookup(int fd, uint32_t key, void *value)
{
	union bpf_attr attr = { .map_fd = (uint32_t)fd };

	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)value;
	return bpf(BPF_MAP_LOOKUP_ELEM, &attr);
}

int bpfmap_update(int fd, uint32_t key, const void *value)
{
	union bpf_attr attr = { .map_fd = (uint32_t)fd };

	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)value;
	return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}
