/* SPDX-License-Identifier: MIT */
/*
 * NVMe commands as passthrough takes them: 72 bytes behind an SQE.
 *
 * The kernel hands such a command to the device without comparing data_len with the number of blocks in it, and the
 * device moves as many blocks as the command says: one that says more than the buffer holds is a write into foreign
 * memory by DMA. So no command leaves here whose length is known and is not that of its buffer, and what a read or write
 * says is always made of one number: data_len == (nlb + 1) << lba_shift.
 *
 * The size of a block comes from the device's own answer, never from a guess. What the block layer would do with a
 * range (cut it at the last block, read 0 beyond it, refuse a write there) is done here in the same way, so that a file
 * that becomes a passthrough file behaves as before.
 *
 * Limits: mdts, and those of the kernel's queue: passthrough does not split, it refuses. A buffer may lie in as many
 * pieces as it has pages, and begin within one, so the pages that max_segments allows, less one, bound it too.
 *
 * Rejected: metadata for reads and writes (another buffer, another length; whoever has such a namespace formats it
 * without, or sends commands of his own, which are checked with it).
 */
#include "sched/nvme.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/nvme_ioctl.h>

#include <martlet/file.h>

#include "sched/sysfs.h"

_Static_assert(sizeof(struct nvme_uring_cmd) == MRT__RING_CMD_BYTES, "copied whole behind the SQE");
_Static_assert(NVME_URING_CMD_IO == MRT__NVME_URING_IO, "the kernel's ABI");
_Static_assert(NVME_URING_CMD_IO_VEC == MRT__NVME_URING_IO_VEC, "the kernel's ABI");
_Static_assert(NVME_URING_CMD_ADMIN == MRT__NVME_URING_ADMIN, "the kernel's ABI");

/* Opcodes of the specification. */
enum {
	IO_FLUSH = 0x00,
	IO_WRITE = 0x01,
	IO_READ = 0x02,
	IO_WRITE_UNCORRECTABLE = 0x04,
	IO_COMPARE = 0x05,
	IO_WRITE_ZEROES = 0x08,
	IO_DSM = 0x09,
	IO_VERIFY = 0x0c,
	IO_RESV_REGISTER = 0x0d,
	IO_RESV_REPORT = 0x0e,
	IO_RESV_ACQUIRE = 0x11,
	IO_RESV_RELEASE = 0x15,
	IO_COPY = 0x19,
	IO_ZONE_RECEIVE = 0x7a,
	IO_ZONE_APPEND = 0x7d,
	ADMIN_GET_LOG_PAGE = 0x02,
	ADMIN_IDENTIFY = 0x06,
};

#define RW_PRACT (UINT32_C(1) << 29)    /* cdw12: the controller makes and takes off the protection information */
#define LBA_SHIFT_MIN 9
#define LBA_SHIFT_MAX 16                /* the kernel's own limit is a page, or 64 KiB */
#define PAGE_SHIFT 12                   /* the smallest page of a controller, which mdts counts */
#define NLB_MAX UINT32_C(65536)         /* blocks of one command */
#define TRANSFER_UNKNOWN (UINT32_C(128) << 10) /* a limit that every queue has: where sysfs is silent */
#define PI_BYTES 8u

__attribute__((format(printf, 3, 4)))
static void say(char *text, size_t text_bytes, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, text_bytes, fmt, args); /* cut to fit */
	va_end(args);
}

/* ---- what the device is -------------------------------------------------------------------------------------- */

static uint16_t le16_at(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint64_t le64_at(const uint8_t *p)
{
	uint64_t v = 0;
	unsigned i;

	for (i = 0; i < 8; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

/* Identify Controller: mdts at 77 (a power of two of pages, 0: none), vwc at 525. */
static void parse_controller(const uint8_t *id, struct mrt__nvme_ns *ns)
{
	uint8_t mdts = id[77];

	if (mdts && mdts < 32 - PAGE_SHIFT)
		ns->mdts_bytes = UINT32_C(1) << (PAGE_SHIFT + mdts);
	if (id[525] & 1)
		ns->flags |= MRT__NVME_VWC;
}

/* Identify Namespace: nsze at 0, flbas at 26, dps at 29, formats of four bytes from 128: ms, lbads. */
static void parse_namespace(const uint8_t *id, struct mrt__nvme_ns *ns)
{
	uint8_t flbas = id[26];
	unsigned format = (flbas & 0xfu) | (flbas & 0x60u) >> 1;
	const uint8_t *lbaf = id + 128 + 4 * format;

	ns->blocks = le64_at(id);
	ns->lba_shift = lbaf[2];
	ns->meta_bytes = le16_at(lbaf);
	if (ns->meta_bytes && flbas & 0x10)
		ns->flags |= MRT__NVME_EXTENDED;
	if (ns->meta_bytes == PI_BYTES && id[29] & 7)
		ns->flags |= MRT__NVME_PI;
}

static uint32_t round_to_block(const struct mrt__nvme_ns *ns, uint64_t bytes)
{
	uint64_t block = UINT64_C(1) << ns->lba_shift;

	if (bytes > MRT_IO_BYTES_MAX)
		bytes = MRT_IO_BYTES_MAX;
	return (uint32_t)(bytes < block ? block : bytes & ~(block - 1));
}

int mrt__nvme_parse(uint32_t nsid, const uint8_t *id_ns, const uint8_t *id_ctrl, struct mrt__nvme_ns *ret_ns, char *why,
		    size_t why_bytes)
{
	struct mrt__nvme_ns ns = { .nsid = nsid };
	uint64_t most;

	parse_controller(id_ctrl, &ns);
	if (nsid) {
		parse_namespace(id_ns, &ns);
		if (ns.lba_shift < LBA_SHIFT_MIN || ns.lba_shift > LBA_SHIFT_MAX || ns.blocks == 0) {
			say(why, why_bytes, "namespace %u has no format that can be used: block size 2^%u, %llu blocks",
			    nsid, ns.lba_shift, (unsigned long long)ns.blocks);
			return -EOPNOTSUPP;
		}
		most = (uint64_t)NLB_MAX << ns.lba_shift;
		if (ns.mdts_bytes && ns.mdts_bytes < most)
			most = ns.mdts_bytes;
		ns.transfer_bytes_max = round_to_block(&ns, most);
	}
	say(why, why_bytes, "%s", "");
	if (ns.meta_bytes)
		say(why, why_bytes, "namespace %u has %u bytes of metadata per block: reads and writes are refused, only "
		    "mrt_nvme_command() works; nvme format --lbaf=N chooses a format without", nsid, ns.meta_bytes);
	*ret_ns = ns;
	return 0;
}

void mrt__nvme_limit(struct mrt__nvme_ns *ns, uint32_t sectors_kib, uint32_t segments)
{
	uint64_t most = ns->transfer_bytes_max;

	if (sectors_kib == 0 && most > TRANSFER_UNKNOWN)
		most = TRANSFER_UNKNOWN;
	if (sectors_kib && (uint64_t)sectors_kib << 10 < most)
		most = (uint64_t)sectors_kib << 10;
	if (segments > 1 && (uint64_t)(segments - 1) << PAGE_SHIFT < most)
		most = (uint64_t)(segments - 1) << PAGE_SHIFT;
	ns->transfer_bytes_max = round_to_block(ns, most);
}

/* @return 0, or -errno with a sentence */
static int ask(int fd, uint32_t cns, uint32_t nsid, uint8_t *ret_id, char *why, size_t why_bytes)
{
	struct nvme_passthru_cmd cmd = {
		.opcode = ADMIN_IDENTIFY, .nsid = nsid, .addr = (uintptr_t)ret_id,
		.data_len = MRT_NVME_IDENTIFY_BYTES, .cdw10 = cns,
	};
	char text[160];
	int ret;

	memset(ret_id, 0, MRT_NVME_IDENTIFY_BYTES);
	ret = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &cmd);
	if (ret == 0)
		return 0;
	if (ret > 0) {
		say(why, why_bytes, "Identify was refused by the device: %s",
		    mrt_nvme_status_text((uint32_t)ret, text, sizeof(text)));
		return mrt__nvme_errno((uint32_t)ret);
	}
	ret = -errno;
	if (ret == -EACCES || ret == -EPERM)
		say(why, why_bytes, "this user may not send NVMe commands: it takes CAP_SYS_ADMIN, or from kernel 6.2 on a "
		    "node that is open for reading and writing");
	else
		say(why, why_bytes, "Identify failed: %s", strerror(-ret));
	return ret == -EPERM ? -EACCES : ret;
}

/* A block device was given: name the node that would have done. */
static int refuse_block(dev_t dev, char *why, size_t why_bytes)
{
	char disk[MRT__SYSFS_NAME];
	unsigned ctrl, ns;

	if (mrt__sysfs_disk(dev, disk, sizeof(disk)) && sscanf(disk, "nvme%un%u", &ctrl, &ns) == 2)
		say(why, why_bytes, "/dev/%s is the block device: passthrough takes the namespace's character device, "
		    "/dev/ng%un%u", disk, ctrl, ns);
	else
		say(why, why_bytes, "a block device that is no NVMe namespace: passthrough takes /dev/ngXnY");
	return -EOPNOTSUPP;
}

static int refuse_other(char *why, size_t why_bytes)
{
	say(why, why_bytes, "no NVMe device: passthrough takes /dev/ngXnY, or /dev/nvmeX for admin commands");
	return -EOPNOTSUPP;
}

static void name_disk(struct mrt__nvme_ns *ns)
{
	unsigned ctrl, nr;

	if (sscanf(ns->node, "ng%un%u", &ctrl, &nr) == 2)
		say(ns->disk, sizeof(ns->disk), "nvme%un%u", ctrl, nr);
}

static uint32_t queue_limit(const struct mrt__nvme_ns *ns, const char *name)
{
	char path[96];
	int64_t value;

	say(path, sizeof(path), "/sys/block/%s/queue/%s", ns->disk, name);
	value = mrt__sysfs_number(path);
	return value > 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

int mrt__nvme_identify(int fd, struct mrt__nvme_ns *ret_ns, char *why, size_t why_bytes)
{
	uint8_t id_ns[MRT_NVME_IDENTIFY_BYTES], id_ctrl[MRT_NVME_IDENTIFY_BYTES];
	char node[MRT__SYSFS_NAME] = "", cls[MRT__SYSFS_NAME] = "";
	struct mrt__nvme_ns ns;
	struct stat st;
	int nsid, ret;

	if (fstat(fd, &st)) {
		ret = -errno;
		say(why, why_bytes, "descriptor %d: %s", fd, strerror(-ret));
		return ret;
	}
	if (S_ISBLK(st.st_mode))
		return refuse_block(st.st_rdev, why, why_bytes);
	if (!S_ISCHR(st.st_mode))
		return refuse_other(why, why_bytes);
	/* other drivers may have other ideas of the ioctls below: ask sysfs first, where it is there */
	if (mrt__sysfs_subsystem(false, st.st_rdev, cls, sizeof(cls)) && strcmp(cls, "nvme") && strcmp(cls, "nvme-generic"))
		return refuse_other(why, why_bytes);
	(void)mrt__sysfs_name(false, st.st_rdev, node, sizeof(node)); /* unknown: "" */

	nsid = ioctl(fd, NVME_IOCTL_ID); /* a controller's node has none */
	if (nsid <= 0 && !strcmp(cls, "nvme-generic")) {
		ret = nsid < 0 ? -errno : -EOPNOTSUPP;
		say(why, why_bytes, "/dev/%s does not name its namespace: %s", node, strerror(-ret));
		return ret;
	}
	ret = ask(fd, 1, 0, id_ctrl, why, why_bytes);
	if (ret == -ENOTTY)
		return refuse_other(why, why_bytes);
	if (ret == 0 && nsid > 0)
		ret = ask(fd, 0, (uint32_t)nsid, id_ns, why, why_bytes);
	if (ret == 0)
		ret = mrt__nvme_parse(nsid > 0 ? (uint32_t)nsid : 0, id_ns, id_ctrl, &ns, why, why_bytes);
	if (ret)
		return ret;
	say(ns.node, sizeof(ns.node), "%.23s", node);
	if (ns.nsid) {
		name_disk(&ns);
		mrt__nvme_limit(&ns, queue_limit(&ns, "max_hw_sectors_kb"), queue_limit(&ns, "max_segments"));
	}
	*ret_ns = ns;
	return 0;
}

/* ---- reads and writes ---------------------------------------------------------------------------------------- */

static void put_rw(const struct mrt__nvme_ns *ns, bool write, uint64_t addr, uint32_t data_len, uint64_t off,
		   uint32_t blocks, struct nvme_uring_cmd *ret_cmd)
{
	uint64_t slba = off >> ns->lba_shift;

	*ret_cmd = (struct nvme_uring_cmd){
		.opcode = write ? IO_WRITE : IO_READ, .nsid = ns->nsid, .addr = addr, .data_len = data_len,
		.cdw10 = (uint32_t)slba, .cdw11 = (uint32_t)(slba >> 32), .cdw12 = blocks - 1,
	};
}

/* How much of [off, off + len) may be moved at once? @return as mrt__nvme_build_rw() */
static int64_t rw_bytes(const struct mrt__nvme_ns *ns, bool write, uint64_t len, uint64_t off)
{
	uint64_t block, end;

	if (ns->nsid == 0 || ns->meta_bytes)
		return -EOPNOTSUPP;
	block = UINT64_C(1) << ns->lba_shift;
	if ((len | off) & (block - 1))
		return -EINVAL;
	if (len == 0)
		return 0;
	end = ns->blocks > UINT64_MAX >> ns->lba_shift ? UINT64_MAX : ns->blocks << ns->lba_shift;
	if (off >= end)
		return write ? -ENOSPC : 0;
	if (len > end - off)
		len = end - off;
	return (int64_t)(len < ns->transfer_bytes_max ? len : ns->transfer_bytes_max);
}

int64_t mrt__nvme_build_rw(const struct mrt__nvme_ns *ns, bool write, uint64_t addr, uint32_t len, uint64_t off,
			   void *ret_cmd)
{
	int64_t bytes = rw_bytes(ns, write, len, off);

	if (bytes > 0)
		put_rw(ns, write, addr, (uint32_t)bytes, off, (uint32_t)bytes >> ns->lba_shift, ret_cmd);
	return bytes;
}

int64_t mrt__nvme_build_rwv(const struct mrt__nvme_ns *ns, bool write, const struct iovec *iov, uint32_t iov_nr,
			    uint64_t off, void *ret_cmd, bool *ret_vector)
{
	uint64_t block = UINT64_C(1) << ns->lba_shift, total = 0, sum = 0;
	uint32_t i, whole = 0;
	int64_t bytes, run = 0;

	for (i = 0; i < iov_nr; i++) {
		if (iov[i].iov_len > MRT_IO_BYTES_MAX - total)
			return -EINVAL;
		total += iov[i].iov_len;
	}
	bytes = rw_bytes(ns, write, total, off);
	if (bytes <= 0)
		return bytes;
	for (i = 0; i < iov_nr && sum + iov[i].iov_len <= (uint64_t)bytes; i++) {
		sum += iov[i].iov_len;
		if (sum && sum % block == 0) {
			whole = i + 1;
			run = (int64_t)sum;
		}
	}
	*ret_vector = whole > 0;
	if (whole) {
		/* of a vectored command data_len is the number of segments */
		put_rw(ns, write, (uintptr_t)iov, whole, off, (uint32_t)(run >> ns->lba_shift), ret_cmd);
		return run;
	}
	for (i = 0; iov[i].iov_len == 0; i++)
		;
	run = (int64_t)(iov[i].iov_len < (uint64_t)bytes ? iov[i].iov_len : (uint64_t)bytes) & ~(int64_t)(block - 1);
	if (run == 0)
		return -EINVAL; /* a block over more segments than one command takes */
	put_rw(ns, write, (uintptr_t)iov[i].iov_base, (uint32_t)run, off, (uint32_t)(run >> ns->lba_shift), ret_cmd);
	return run;
}

void mrt__nvme_explain(const struct mrt__nvme_ns *ns, bool write, uint64_t len, uint64_t off, char *text, size_t text_bytes)
{
	uint64_t block = UINT64_C(1) << ns->lba_shift;
	const char *what = write ? "write" : "read";

	if (ns->nsid == 0)
		say(text, text_bytes, "%s on /dev/%s: a controller takes admin commands only; open the namespace, /dev/ngXnY",
		    what, ns->node);
	else if (ns->meta_bytes)
		say(text, text_bytes, "%s on /dev/%s: the namespace has %u bytes of metadata per block; send commands of your "
		    "own, or format it without", what, ns->node, ns->meta_bytes);
	else
		say(text, text_bytes, "%s on /dev/%s: length %llu%s, offset %llu%s; both must be multiples of the logical "
		    "block, %llu", what, ns->node, (unsigned long long)len, len % block ? " (not aligned)" : "",
		    (unsigned long long)off, off % block ? " (not aligned)" : "", (unsigned long long)block);
}

/* ---- other commands ------------------------------------------------------------------------------------------ */

int mrt__nvme_build_flush(const struct mrt__nvme_ns *ns, void *ret_cmd)
{
	struct nvme_uring_cmd cmd = { .opcode = IO_FLUSH, .nsid = ns->nsid };

	if (ns->nsid == 0)
		return -EOPNOTSUPP;
	memcpy(ret_cmd, &cmd, sizeof(cmd));
	return 0;
}

int mrt__nvme_build_identify(const struct mrt__nvme_ns *ns, unsigned cns, uint32_t nsid, uint64_t buf, void *ret_cmd)
{
	struct nvme_uring_cmd cmd = {
		.opcode = ADMIN_IDENTIFY, .nsid = nsid, .addr = buf, .data_len = MRT_NVME_IDENTIFY_BYTES, .cdw10 = cns,
	};

	if (ns->nsid)
		return -EOPNOTSUPP;
	if (!buf || cns > 0xff)
		return -EINVAL;
	memcpy(ret_cmd, &cmd, sizeof(cmd));
	return 0;
}

/* What a command moves. */
struct moved {
	int64_t data;           /* bytes; -1: not known here */
	int64_t meta;
};

static struct moved blocks_moved(const struct mrt__nvme_ns *ns, const struct mrt_nvme_cmd *cmd)
{
	int64_t blocks = (cmd->cdw12 & 0xffff) + INT64_C(1);
	bool stripped = ns->flags & MRT__NVME_PI && cmd->cdw12 & RW_PRACT;
	int64_t meta = stripped ? 0 : blocks * ns->meta_bytes;
	int64_t data = blocks << ns->lba_shift;

	return ns->flags & MRT__NVME_EXTENDED ? (struct moved){ data + meta, 0 } : (struct moved){ data, meta };
}

static struct moved io_moved(const struct mrt__nvme_ns *ns, const struct mrt_nvme_cmd *cmd)
{
	int64_t copy_format = cmd->cdw12 >> 8 & 0xf;

	switch (cmd->opcode) {
	case IO_READ:
	case IO_WRITE:
	case IO_COMPARE:
	case IO_ZONE_APPEND:
		return blocks_moved(ns, cmd);
	case IO_FLUSH:
	case IO_WRITE_UNCORRECTABLE:
	case IO_WRITE_ZEROES:
	case IO_VERIFY:
		return (struct moved){ 0, 0 };
	case IO_DSM:
		return (struct moved){ ((cmd->cdw10 & 0xff) + INT64_C(1)) * 16, 0 };
	case IO_COPY:
		return (struct moved){ ((cmd->cdw12 & 0xff) + INT64_C(1)) * (copy_format & 1 ? 40 : 32), 0 };
	case IO_RESV_REGISTER:
	case IO_RESV_ACQUIRE:
		return (struct moved){ 16, 0 };
	case IO_RESV_RELEASE:
		return (struct moved){ 8, 0 };
	case IO_RESV_REPORT:
		return (struct moved){ (cmd->cdw10 + INT64_C(1)) * 4, 0 };
	case IO_ZONE_RECEIVE:
		return (struct moved){ (cmd->cdw12 + INT64_C(1)) * 4, 0 };
	default:
		return (struct moved){ -1, -1 };
	}
}

static struct moved admin_moved(const struct mrt_nvme_cmd *cmd)
{
	int64_t dwords;

	switch (cmd->opcode) {
	case ADMIN_IDENTIFY:
		return (struct moved){ MRT_NVME_IDENTIFY_BYTES, 0 };
	case ADMIN_GET_LOG_PAGE:
		dwords = (cmd->cdw10 >> 16 | (int64_t)(cmd->cdw11 & 0xffff) << 16) + 1;
		return (struct moved){ dwords * 4, 0 };
	default:
		return (struct moved){ -1, -1 };
	}
}

static int check_node(const struct mrt__nvme_ns *ns, const struct mrt_nvme_cmd *cmd, bool admin, char *why, size_t why_bytes)
{
	if (admin && ns->nsid) {
		say(why, why_bytes, "opcode %#x: admin commands go to the controller, /dev/nvmeX, not to /dev/%s", cmd->opcode,
		    ns->node);
		return -EOPNOTSUPP;
	}
	if (!admin && !ns->nsid) {
		say(why, why_bytes, "opcode %#x: I/O commands go to a namespace, /dev/ngXnY, not to /dev/%s; or is "
		    "MRT_NVME_ADMIN missing?", cmd->opcode, ns->node);
		return -EOPNOTSUPP;
	}
	if (!admin && cmd->nsid != ns->nsid) {
		say(why, why_bytes, "opcode %#x: nsid is %u, but /dev/%s is namespace %u", cmd->opcode, cmd->nsid, ns->node,
		    ns->nsid);
		return -EINVAL;
	}
	return 0;
}

static int check_buffer(const struct mrt_nvme_cmd *cmd, const char *which, const void *buf, uint32_t bytes, int64_t moves,
			char *why, size_t why_bytes)
{
	if (moves >= 0 && bytes != moves) {
		say(why, why_bytes, "opcode %#x moves %lld bytes of %s, but %s_bytes is %u", cmd->opcode, (long long)moves,
		    which, which, bytes);
		return -EINVAL;
	}
	if (bytes > MRT_IO_BYTES_MAX || (bytes && !buf)) {
		say(why, why_bytes, "opcode %#x: %s is %s", cmd->opcode, which, buf ? "too long" : "NULL");
		return -EINVAL;
	}
	return 0;
}

int mrt__nvme_build_cmd(const struct mrt__nvme_ns *ns, const struct mrt_nvme_cmd *cmd, unsigned flags, void *ret_cmd,
			char *why, size_t why_bytes)
{
	bool admin = flags & MRT_NVME_ADMIN;
	struct nvme_uring_cmd out;
	struct moved moved;
	int ret;

	if (flags & ~MRT_NVME_ADMIN || cmd->flags || cmd->mrt__reserved) {
		say(why, why_bytes, "opcode %#x: flags are %#x, the command's %#x: the kernel takes no fused commands and no "
		    "SGLs", cmd->opcode, flags, cmd->flags);
		return -EINVAL;
	}
	ret = check_node(ns, cmd, admin, why, why_bytes);
	if (ret)
		return ret;
	moved = admin ? admin_moved(cmd) : io_moved(ns, cmd);
	ret = check_buffer(cmd, "data", cmd->data, cmd->data_bytes, moved.data, why, why_bytes);
	if (ret == 0)
		ret = check_buffer(cmd, "metadata", cmd->metadata, cmd->metadata_bytes, moved.meta, why, why_bytes);
	if (ret)
		return ret;
	out = (struct nvme_uring_cmd){
		.opcode = cmd->opcode, .nsid = cmd->nsid, .cdw2 = cmd->cdw2, .cdw3 = cmd->cdw3,
		.metadata = (uintptr_t)cmd->metadata, .metadata_len = cmd->metadata_bytes,
		.addr = (uintptr_t)cmd->data, .data_len = cmd->data_bytes,
		.cdw10 = cmd->cdw10, .cdw11 = cmd->cdw11, .cdw12 = cmd->cdw12, .cdw13 = cmd->cdw13, .cdw14 = cmd->cdw14,
		.cdw15 = cmd->cdw15, .timeout_ms = cmd->timeout_ms,
	};
	memcpy(ret_cmd, &out, sizeof(out));
	return 0;
}
