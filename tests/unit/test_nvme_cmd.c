/* SPDX-License-Identifier: MIT */
/*
 * NVMe commands without a device. Proven here: no read or write is built whose data_len is not that of its blocks,
 * whatever length, offset, block size, namespace size and limit (all small ones, and random ones); ranges are cut and
 * refused as the block layer does it; a caller's command is refused when its length is not what the opcode moves, by one
 * block, one dword or one byte, metadata included; identify data is read at the right places; statuses have the block
 * layer's errno and the specification's words; and nodes that are no NVMe are refused with a sentence that says why. Not
 * proven: that a device agrees (the integration tests, in the guest).
 */
#include "sched/nvme.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/nvme_ioctl.h>

#include "base/rand.h"
#include "suite.h"

#define KIB 1024u

static const struct mrt__nvme_ns ns512 = {
	.nsid = 3, .lba_shift = 9, .blocks = 1000, .mdts_bytes = 64 * KIB, .transfer_bytes_max = 64 * KIB, .node = "ng0n3",
};
static const struct mrt__nvme_ns controller = { .nsid = 0, .mdts_bytes = 512 * KIB, .node = "nvme0" };

static char why[256];

static uint64_t slba_of(const struct nvme_uring_cmd *cmd)
{
	return cmd->cdw10 | (uint64_t)cmd->cdw11 << 32;
}

/* ---- reads and writes ---- */

/* What must hold for whatever was built. */
static void check_built(const struct mrt__nvme_ns *ns, bool write, uint64_t addr, uint32_t len, uint64_t off, uint64_t bytes,
			const struct nvme_uring_cmd *cmd)
{
	uint64_t blocks = (cmd->cdw12 & 0xffff) + UINT64_C(1);

	ck_assert_uint_le(bytes, len);
	ck_assert_uint_le(bytes, ns->transfer_bytes_max);
	ck_assert_uint_eq(cmd->data_len, bytes);
	ck_assert_uint_eq(cmd->data_len, blocks << ns->lba_shift);
	ck_assert_uint_eq(cmd->cdw12 >> 16, 0);
	ck_assert_uint_eq(slba_of(cmd), off >> ns->lba_shift);
	ck_assert_uint_le(slba_of(cmd) + blocks, ns->blocks);
	ck_assert_uint_eq(cmd->addr, addr);
	ck_assert_uint_eq(cmd->nsid, ns->nsid);
	ck_assert_uint_eq(cmd->opcode, write ? 1 : 2);
	ck_assert_uint_eq(cmd->flags, 0);
	ck_assert_uint_eq(cmd->metadata, 0);
	ck_assert_uint_eq(cmd->metadata_len, 0);
	ck_assert_uint_eq(cmd->cdw13 | cmd->cdw14 | cmd->cdw15 | cmd->cdw2 | cmd->cdw3 | cmd->timeout_ms, 0);
}

static const struct rw_case {
	uint64_t off;
	uint32_t len;
	int64_t read;
	int64_t write;
} rw_cases[] = {
	{ 0, 512, 512, 512 },
	{ 0, 0, 0, 0 },
	{ 0, 4096, 4096, 4096 },
	{ 511 * 512, 4096, 4096, 4096 },
	{ 999 * 512, 512, 512, 512 },
	{ 999 * 512, 1024, 512, 512 },                  /* straddles the end */
	{ 998 * 512, 1 << 20, 1024, 1024 },
	{ 1000 * 512, 512, 0, -ENOSPC },                /* at the end */
	{ UINT64_C(1) << 40, 512, 0, -ENOSPC },         /* far beyond */
	{ UINT64_C(1) << 62, 512, 0, -ENOSPC },
	{ 0, 64 * KIB, 64 * KIB, 64 * KIB },
	{ 0, 64 * KIB + 512, 64 * KIB, 64 * KIB },      /* more than the device takes */
	{ 1, 512, -EINVAL, -EINVAL },
	{ 256, 512, -EINVAL, -EINVAL },
	{ 0, 511, -EINVAL, -EINVAL },
	{ 0, 513, -EINVAL, -EINVAL },
	{ 0, 1, -EINVAL, -EINVAL },
	{ 1000 * 512 + 1, 512, -EINVAL, -EINVAL },      /* misaligned first, as in the block layer */
};
#define RW_CASES_NR ((int)(sizeof(rw_cases) / sizeof(rw_cases[0])))

START_TEST(reads_and_writes_are_cut_and_refused_as_the_block_layer_does)
{
	const struct rw_case *c = &rw_cases[_i];
	struct nvme_uring_cmd cmd;
	int64_t bytes;
	int write;

	for (write = 0; write < 2; write++) {
		memset(&cmd, 0xee, sizeof(cmd));
		bytes = mrt__nvme_build_rw(&ns512, write, 0x1000, c->len, c->off, &cmd);
		ck_assert_int_eq(bytes, write ? c->write : c->read);
		if (bytes > 0)
			check_built(&ns512, write, 0x1000, c->len, c->off, (uint64_t)bytes, &cmd);
		else
			ck_assert_uint_eq(cmd.data_len, 0xeeeeeeee);
	}
}
END_TEST

static uint64_t random_bits(struct mrt__rand *rand)
{
	return (uint64_t)mrt__rand_next(rand) << 32 | mrt__rand_next(rand);
}

START_TEST(the_length_is_always_that_of_the_blocks)
{
	struct mrt__rand rand;
	struct nvme_uring_cmd cmd;
	struct mrt__nvme_ns ns = { .nsid = 1 };
	int64_t bytes;
	uint64_t off;
	uint32_t len;
	unsigned i, built = 0;

	mrt__rand_init(&rand, UINT64_C(0x123456789abcdef));
	for (i = 0; i < 30000; i++) {
		uint64_t bits = random_bits(&rand);
		bool write = bits & 1;

		ns.lba_shift = (uint8_t)(9 + (bits >> 1) % 8);
		ns.blocks = 1 + ((bits >> 8) & (bits & 0x80 ? 0xff : UINT64_MAX));
		ns.transfer_bytes_max = UINT32_C(1) << ns.lba_shift << (bits >> 4) % 9;
		bits = random_bits(&rand);
		len = (uint32_t)(bits % 300) << (bits >> 40 & 1 ? ns.lba_shift : 8);
		off = (bits >> 10 & 0x1ff) << (bits >> 41 & 1 ? ns.lba_shift : 8);
		if (bits >> 42 & 1)
			off = ((ns.blocks - 1) << ns.lba_shift) - off; /* about the end, or wrapped */
		bytes = mrt__nvme_build_rw(&ns, write, 0x2000, len, off, &cmd);
		if (bytes > 0) {
			built++;
			check_built(&ns, write, 0x2000, len, off, (uint64_t)bytes, &cmd);
		} else if (bytes == -EINVAL) {
			ck_assert_uint_ne((len | off) & ((1u << ns.lba_shift) - 1), 0);
		} else {
			ck_assert(len == 0 || off >> ns.lba_shift >= ns.blocks);
			ck_assert_int_eq(bytes, write && len ? -ENOSPC : 0);
		}
	}
	ck_assert_uint_gt(built, 5000);
}
END_TEST

/* What a vectored command moves: whole segments of it, or a part of the first. */
static void check_vector(const struct mrt__nvme_ns *ns, const struct iovec *iov, uint32_t iov_nr, uint64_t bytes, bool vector,
			 const struct nvme_uring_cmd *cmd)
{
	uint64_t sum = 0;
	uint32_t i;

	ck_assert_uint_eq(bytes, ((cmd->cdw12 & 0xffff) + UINT64_C(1)) << ns->lba_shift);
	ck_assert_uint_le(bytes, ns->transfer_bytes_max);
	if (vector) {
		ck_assert_uint_le(cmd->data_len, iov_nr);
		ck_assert_uint_eq(cmd->addr, (uintptr_t)iov);
		for (i = 0; i < cmd->data_len; i++)
			sum += iov[i].iov_len;
		ck_assert_uint_eq(sum, bytes);
	} else {
		for (i = 0; iov[i].iov_len == 0; i++)
			;
		ck_assert_uint_eq(cmd->addr, (uintptr_t)iov[i].iov_base);
		ck_assert_uint_eq(cmd->data_len, bytes);
		ck_assert_uint_le(bytes, iov[i].iov_len);
	}
}

static int64_t build_vector(const struct mrt__nvme_ns *ns, uint64_t off, uint32_t iov_nr, const uint32_t *lens)
{
	struct iovec iov[8];
	struct nvme_uring_cmd cmd;
	int64_t bytes;
	bool vector = false;
	uint32_t i;

	for (i = 0; i < iov_nr; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)(0x10000 * (i + 1)), lens[i] };
	bytes = mrt__nvme_build_rwv(ns, false, iov, iov_nr, off, &cmd, &vector);
	if (bytes > 0)
		check_vector(ns, iov, iov_nr, (uint64_t)bytes, vector, &cmd);
	return bytes;
}

START_TEST(segments_are_taken_whole_or_the_first_in_part)
{
	static const struct {
		uint64_t off;
		int64_t bytes;
		uint32_t nr;
		uint32_t lens[8];
	} cases[] = {
		{ 0, 1024, 2, { 512, 512 } },
		{ 0, 512, 2, { 256, 256 } },                    /* a block over two */
		{ 0, 1024, 3, { 100, 412, 512 } },
		{ 0, 512, 1, { 512 } },
		{ 0, 0, 2, { 0, 0 } },
		{ 0, 1024, 4, { 0, 512, 0, 512 } },
		{ 0, -EINVAL, 2, { 512, 100 } },
		{ 1, -EINVAL, 2, { 512, 512 } },
		{ 0, 64 * KIB, 3, { 32 * KIB, 32 * KIB, 512 } }, /* what the device takes */
		{ 0, 32 * KIB, 2, { 32 * KIB, 33 * KIB } },     /* the second does not fit: not in part */
		{ 0, 64 * KIB, 2, { 65 * KIB, 512 } },          /* the first does not: in part */
		{ 0, 64 * KIB, 3, { 0, 65 * KIB, 512 } },
		{ 998 * 512, 512, 3, { 512, 1024, 512 } },      /* the end */
		{ 999 * 512, 512, 1, { 2048 } },
		{ 999 * 512, -EINVAL, 3, { 256, 512, 256 } },   /* the last block in pieces that go on */
		{ 1000 * 512, 0, 1, { 512 } },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_msg(build_vector(&ns512, cases[i].off, cases[i].nr, cases[i].lens) == cases[i].bytes,
			      "case %zu", i);
}
END_TEST

START_TEST(a_controller_and_metadata_take_no_reads)
{
	struct mrt__nvme_ns meta = ns512;
	struct nvme_uring_cmd cmd;
	char text[256];

	meta.meta_bytes = 8;
	ck_assert_int_eq(mrt__nvme_build_rw(&controller, false, 0, 512, 0, &cmd), -EOPNOTSUPP);
	ck_assert_int_eq(mrt__nvme_build_rw(&meta, false, 0, 512, 0, &cmd), -EOPNOTSUPP);
	ck_assert_int_eq(mrt__nvme_build_flush(&controller, &cmd), -EOPNOTSUPP);
	ck_assert_int_eq(mrt__nvme_build_flush(&ns512, &cmd), 0);
	ck_assert_uint_eq(cmd.opcode, 0);
	ck_assert_uint_eq(cmd.nsid, 3);
	ck_assert_uint_eq(cmd.data_len, 0);
	mrt__nvme_explain(&controller, false, 512, 0, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "/dev/nvme0"));
	ck_assert_ptr_nonnull(strstr(text, "admin commands only"));
	mrt__nvme_explain(&meta, true, 512, 0, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "8 bytes of metadata"));
	mrt__nvme_explain(&ns512, true, 512, 100, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "length 512, offset 100 (not aligned)"));
	mrt__nvme_explain(&ns512, true, 100, 512, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "length 100 (not aligned), offset 512;"));
}
END_TEST

/* ---- commands of the caller's ---- */

static char buf[128 * KIB];

static const struct cmd_case {
	struct mrt_nvme_cmd cmd;
	uint32_t moves;         /* data_bytes that is right */
} cmd_cases[] = {
	{ { .opcode = 0x02, .nsid = 3 }, 512 },
	{ { .opcode = 0x02, .nsid = 3, .cdw12 = 7 }, 4096 },
	{ { .opcode = 0x01, .nsid = 3, .cdw12 = 0x04000007 }, 4096 },   /* other bits of cdw12 are none of the length */
	{ { .opcode = 0x05, .nsid = 3, .cdw12 = 1 }, 1024 },
	{ { .opcode = 0x7d, .nsid = 3, .cdw12 = 3 }, 2048 },
	{ { .opcode = 0x00, .nsid = 3 }, 0 },
	{ { .opcode = 0x04, .nsid = 3, .cdw12 = 7 }, 0 },
	{ { .opcode = 0x08, .nsid = 3, .cdw12 = 7 }, 0 },
	{ { .opcode = 0x0c, .nsid = 3, .cdw12 = 7 }, 0 },
	{ { .opcode = 0x09, .nsid = 3, .cdw10 = 0 }, 16 },
	{ { .opcode = 0x09, .nsid = 3, .cdw10 = 255 }, 4096 },
	{ { .opcode = 0x0d, .nsid = 3 }, 16 },
	{ { .opcode = 0x0e, .nsid = 3, .cdw10 = 1023 }, 4096 },
	{ { .opcode = 0x11, .nsid = 3 }, 16 },
	{ { .opcode = 0x15, .nsid = 3 }, 8 },
	{ { .opcode = 0x19, .nsid = 3, .cdw12 = 1 }, 64 },
	{ { .opcode = 0x19, .nsid = 3, .cdw12 = 0x101 }, 80 },
	{ { .opcode = 0x7a, .nsid = 3, .cdw12 = 1023 }, 4096 },
};
#define CMD_CASES_NR ((int)(sizeof(cmd_cases) / sizeof(cmd_cases[0])))

static int build(const struct mrt__nvme_ns *ns, const struct mrt_nvme_cmd *cmd, unsigned flags, struct nvme_uring_cmd *out)
{
	why[0] = '\0';
	return mrt__nvme_build_cmd(ns, cmd, flags, out, why, sizeof(why));
}

START_TEST(a_command_whose_length_is_not_that_of_its_blocks_is_refused)
{
	struct mrt_nvme_cmd cmd = cmd_cases[_i].cmd;
	uint32_t moves = cmd_cases[_i].moves;
	const int64_t wrong[] = { -512, -4, -1, 1, 4, 512, 4096 };
	struct nvme_uring_cmd out;
	size_t i;

	cmd.data = buf;
	cmd.data_bytes = moves;
	ck_assert_msg(build(&ns512, &cmd, 0, &out) == 0, "%s", why);
	ck_assert_uint_eq(out.opcode, cmd.opcode);
	ck_assert_uint_eq(out.data_len, moves);
	ck_assert_uint_eq(out.addr, (uintptr_t)buf);
	ck_assert_uint_eq(out.cdw10, cmd.cdw10);
	ck_assert_uint_eq(out.cdw12, cmd.cdw12);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (wrong[i] + moves < 0)
			continue;
		cmd.data_bytes = (uint32_t)(wrong[i] + moves);
		memset(&out, 0xee, sizeof(out));
		ck_assert_int_eq(build(&ns512, &cmd, 0, &out), -EINVAL);
		ck_assert_uint_eq(out.data_len, 0xeeeeeeee);
		ck_assert_ptr_nonnull(strstr(why, "data_bytes is"));
	}
	cmd.data_bytes = moves;
	cmd.metadata = buf;
	cmd.metadata_bytes = 8;
	ck_assert_int_eq(build(&ns512, &cmd, 0, &out), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "metadata_bytes is 8"));
	cmd.metadata_bytes = 0;
	cmd.data = NULL;
	ck_assert_int_eq(build(&ns512, &cmd, 0, &out), moves ? -EINVAL : 0);
	cmd.data = buf;
	cmd.nsid = 4;
	ck_assert_int_eq(build(&ns512, &cmd, 0, &out), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "nsid is 4"));
	cmd.nsid = 3;
	cmd.flags = 1;
	ck_assert_int_eq(build(&ns512, &cmd, 0, &out), -EINVAL);
}
END_TEST

START_TEST(metadata_is_counted_where_the_format_has_it)
{
	struct mrt__nvme_ns ns = ns512;
	struct mrt_nvme_cmd cmd = { .opcode = 2, .nsid = 3, .cdw12 = 7, .data = buf, .metadata = buf };
	struct nvme_uring_cmd out;

	/* apart */
	ns.meta_bytes = 8;
	cmd.data_bytes = 4096;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), -EINVAL);
	cmd.metadata_bytes = 64;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), 0);
	ck_assert_uint_eq(out.metadata_len, 64);
	ck_assert_uint_eq(out.metadata, (uintptr_t)buf);
	/* PRACT without protection information means nothing */
	cmd.cdw12 |= UINT32_C(1) << 29;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), 0);
	ns.flags = MRT__NVME_PI;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), -EINVAL);
	cmd.metadata_bytes = 0;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), 0);
	/* behind each block */
	ns.flags = MRT__NVME_PI | MRT__NVME_EXTENDED;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), 0);
	cmd.cdw12 = 7;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), -EINVAL);
	cmd.data_bytes = 4096 + 64;
	ck_assert_int_eq(build(&ns, &cmd, 0, &out), 0);
}
END_TEST

START_TEST(admin_commands_are_for_the_controller_and_others_are_not)
{
	struct mrt_nvme_cmd identify = { .opcode = 6, .cdw10 = 1, .data = buf, .data_bytes = 4096 };
	struct mrt_nvme_cmd log = { .opcode = 2, .cdw10 = 127 << 16 | 2, .data = buf, .data_bytes = 512 };
	struct mrt_nvme_cmd big_log = { .opcode = 2, .cdw10 = 0xffffu << 16, .cdw11 = 1, .data = buf };
	struct mrt_nvme_cmd feature = { .opcode = 0x0a, .cdw10 = 7 };
	struct mrt_nvme_cmd read = { .opcode = 2, .nsid = 3, .data = buf, .data_bytes = 512 };
	struct nvme_uring_cmd out;

	ck_assert_int_eq(build(&controller, &identify, MRT_NVME_ADMIN, &out), 0);
	ck_assert_int_eq(build(&controller, &log, MRT_NVME_ADMIN, &out), 0);
	ck_assert_int_eq(build(&controller, &feature, MRT_NVME_ADMIN, &out), 0);
	log.data_bytes = 508;
	ck_assert_int_eq(build(&controller, &log, MRT_NVME_ADMIN, &out), -EINVAL);
	big_log.data_bytes = 0x80000;
	ck_assert_int_eq(build(&controller, &big_log, MRT_NVME_ADMIN, &out), 0);
	identify.data_bytes = 512;
	ck_assert_int_eq(build(&controller, &identify, MRT_NVME_ADMIN, &out), -EINVAL);

	ck_assert_int_eq(build(&ns512, &feature, MRT_NVME_ADMIN, &out), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(why, "/dev/nvmeX"));
	ck_assert_int_eq(build(&controller, &read, 0, &out), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(why, "MRT_NVME_ADMIN"));
	ck_assert_int_eq(build(&controller, &feature, 6, &out), -EINVAL);

	ck_assert_int_eq(mrt__nvme_build_identify(&controller, 2, 0, (uintptr_t)buf, &out), 0);
	ck_assert_uint_eq(out.opcode, 6);
	ck_assert_uint_eq(out.data_len, 4096);
	ck_assert_uint_eq(out.cdw10, 2);
	ck_assert_int_eq(mrt__nvme_build_identify(&controller, 256, 0, (uintptr_t)buf, &out), -EINVAL);
	ck_assert_int_eq(mrt__nvme_build_identify(&controller, 1, 0, 0, &out), -EINVAL);
	ck_assert_int_eq(mrt__nvme_build_identify(&ns512, 1, 0, (uintptr_t)buf, &out), -EOPNOTSUPP);
}
END_TEST

START_TEST(commands_that_nobody_knows_are_believed)
{
	struct mrt_nvme_cmd vendor = { .opcode = 0xc1, .nsid = 3, .data = buf, .data_bytes = 12345, .cdw15 = 7, .cdw2 = 8 };
	struct nvme_uring_cmd out;

	ck_assert_int_eq(build(&ns512, &vendor, 0, &out), 0);
	ck_assert_uint_eq(out.data_len, 12345);
	ck_assert_uint_eq(out.cdw15, 7);
	ck_assert_uint_eq(out.cdw2, 8);
	vendor.data = NULL;
	ck_assert_int_eq(build(&ns512, &vendor, 0, &out), -EINVAL);
}
END_TEST

/* ---- what a device says of itself ---- */

static uint8_t id_ns[4096], id_ctrl[4096];

static void fill_ids(unsigned format, unsigned lbads, unsigned ms, unsigned mdts)
{
	memset(id_ns, 0, sizeof(id_ns));
	memset(id_ctrl, 0, sizeof(id_ctrl));
	id_ns[1] = 0x10;                                        /* nsze 4096 */
	id_ns[26] = (uint8_t)((format & 0xf) | (format & 0x30) << 1);
	id_ns[128 + 4 * format] = (uint8_t)ms;
	id_ns[128 + 4 * format + 2] = (uint8_t)lbads;
	id_ctrl[77] = (uint8_t)mdts;
}

START_TEST(identify_data_is_read_at_the_right_places)
{
	struct mrt__nvme_ns ns;

	fill_ids(0, 9, 0, 7);
	ck_assert_int_eq(mrt__nvme_parse(1, id_ns, id_ctrl, &ns, why, sizeof(why)), 0);
	ck_assert_str_eq(why, "");
	ck_assert_uint_eq(ns.nsid, 1);
	ck_assert_uint_eq(ns.blocks, 4096);
	ck_assert_uint_eq(ns.lba_shift, 9);
	ck_assert_uint_eq(ns.mdts_bytes, 512 * KIB);
	ck_assert_uint_eq(ns.transfer_bytes_max, 512 * KIB);
	ck_assert_uint_eq(ns.flags, 0);
	/* no mdts: the number of blocks bounds it; format 20 is in the high bits of flbas */
	fill_ids(20, 12, 0, 0);
	id_ctrl[525] = 1;
	ck_assert_int_eq(mrt__nvme_parse(2, id_ns, id_ctrl, &ns, why, sizeof(why)), 0);
	ck_assert_uint_eq(ns.lba_shift, 12);
	ck_assert_uint_eq(ns.mdts_bytes, 0);
	ck_assert_uint_eq(ns.transfer_bytes_max, 65536u << 12);
	ck_assert_uint_eq(ns.flags, MRT__NVME_VWC);
	/* metadata: possible, but said */
	fill_ids(1, 9, 8, 7);
	id_ns[26] |= 0x10;
	id_ns[29] = 1;
	ck_assert_int_eq(mrt__nvme_parse(1, id_ns, id_ctrl, &ns, why, sizeof(why)), 0);
	ck_assert_ptr_nonnull(strstr(why, "8 bytes of metadata"));
	ck_assert_uint_eq(ns.flags, MRT__NVME_EXTENDED | MRT__NVME_PI);
	/* no format */
	fill_ids(0, 0, 0, 7);
	ck_assert_int_eq(mrt__nvme_parse(1, id_ns, id_ctrl, &ns, why, sizeof(why)), -EOPNOTSUPP);
	/* a controller */
	ck_assert_int_eq(mrt__nvme_parse(0, id_ns, id_ctrl, &ns, why, sizeof(why)), 0);
	ck_assert_uint_eq(ns.nsid, 0);
	ck_assert_uint_eq(ns.mdts_bytes, 512 * KIB);
	ck_assert_uint_eq(ns.transfer_bytes_max, 0);
}
END_TEST

START_TEST(the_queues_limits_bound_a_transfer)
{
	struct mrt__nvme_ns ns = { .lba_shift = 12, .transfer_bytes_max = 512 * KIB };

	mrt__nvme_limit(&ns, 512, 0);
	ck_assert_uint_eq(ns.transfer_bytes_max, 512 * KIB);
	mrt__nvme_limit(&ns, 256, 127);
	ck_assert_uint_eq(ns.transfer_bytes_max, 256 * KIB);
	mrt__nvme_limit(&ns, 256, 33);
	ck_assert_uint_eq(ns.transfer_bytes_max, 128 * KIB);
	mrt__nvme_limit(&ns, 0, 0);
	ck_assert_uint_eq(ns.transfer_bytes_max, 128 * KIB);
	mrt__nvme_limit(&ns, 1, 0);
	ck_assert_uint_eq(ns.transfer_bytes_max, 4 * KIB); /* never less than a block */
	ns.transfer_bytes_max = 512 * KIB;
	mrt__nvme_limit(&ns, 0, 0);
	ck_assert_uint_eq(ns.transfer_bytes_max, 128 * KIB);
}
END_TEST

static void refused(const char *path, int flags, const char *sentence)
{
	struct mrt__nvme_ns ns;
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0)
		return;
	why[0] = '\0';
	ck_assert_int_eq(mrt__nvme_identify(fd, &ns, why, sizeof(why)), -EOPNOTSUPP);
	ck_assert_msg(strstr(why, sentence) != NULL, "%s: %s", path, why);
	(void)close(fd);
}

START_TEST(what_is_no_nvme_is_refused_with_a_reason)
{
	struct mrt__nvme_ns ns;

	refused("/dev/null", O_RDWR, "no NVMe device");
	refused("/dev/tty", O_RDWR, "no NVMe device");
	refused("/", O_RDONLY, "no NVMe device");
	refused("/dev/vda", O_RDONLY, "a block device that is no NVMe namespace");
	refused("/dev/loop0", O_RDONLY, "a block device that is no NVMe namespace");
	ck_assert_int_eq(mrt__nvme_identify(-1, &ns, why, sizeof(why)), -EBADF);
}
END_TEST

/* ---- statuses ---- */

static const struct {
	uint32_t status;
	int32_t error;
	const char *text;
} status_cases[] = {
	{ 0x0000, 0, "successful completion (generic, code 0x00)" },
	{ 0x4080, -EREMOTEIO, "LBA out of range (generic, code 0x80, do not retry)" },
	{ 0x0080, -EREMOTEIO, "LBA out of range (generic, code 0x80)" },
	{ 0x4001, -EOPNOTSUPP, "invalid command opcode (generic, code 0x01, do not retry)" },
	{ 0x4002, -EOPNOTSUPP, "invalid field in command (generic, code 0x02, do not retry)" },
	{ 0x400b, -EOPNOTSUPP, "invalid namespace or format (generic, code 0x0b, do not retry)" },
	{ 0x0081, -ENOSPC, "capacity exceeded (generic, code 0x81)" },
	{ 0x0083, -EBADE, "reservation conflict (generic, code 0x83)" },
	{ 0x0006, -EIO, "internal error (generic, code 0x06)" },
	{ 0x0281, -ENODATA, "unrecovered read error (media and data integrity, code 0x81)" },
	{ 0x2280, -ENODATA, "write fault (media and data integrity, code 0x80, more in the error log)" },
	{ 0x4285, -ENODATA, "compare failure (media and data integrity, code 0x85, do not retry)" },
	{ 0x0282, -EILSEQ, "end-to-end guard check error (media and data integrity, code 0x82)" },
	{ 0x0370, -ENOLINK, "host pathing error (path related, code 0x70)" },
	{ 0x0371, -EIO, "command aborted by host (path related, code 0x71)" },
	{ 0x01be, -ETOOMANYREFS, "too many open zones (command specific, code 0xbe)" },
	{ 0x1821, -EREMOTEIO, "command interrupted (generic, code 0x21)" },    /* with a retry delay */
	{ 0x07c1, -EIO, "a status of the vendor's (vendor specific, code 0xc1)" },
	{ 0x0043, -EIO, "a status that has no name (generic, code 0x43)" },
};
#define STATUS_CASES_NR ((int)(sizeof(status_cases) / sizeof(status_cases[0])))

START_TEST(statuses_have_the_block_layers_errno_and_the_specifications_words)
{
	char text[160], small[8];

	ck_assert_int_eq(mrt__nvme_errno(status_cases[_i].status), status_cases[_i].error);
	ck_assert_ptr_eq(mrt_nvme_status_text(status_cases[_i].status, text, sizeof(text)), text);
	ck_assert_str_eq(text, status_cases[_i].text);
	(void)mrt_nvme_status_text(status_cases[_i].status, small, sizeof(small));
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
}
END_TEST

START_TEST(every_status_has_a_negative_errno_and_words)
{
	char text[256];
	uint32_t status;

	/* an assertion of Check's costs microseconds: one where it matters */
	for (status = 1; status < 0x8000; status++) {
		if ((status & 0x7ff && mrt__nvme_errno(status) >= 0) ||
		    strlen(mrt_nvme_status_text(status, text, sizeof(text))) >= 160)
			ck_abort_msg("%#x: %d, %s", status, mrt__nvme_errno(status), text);
	}
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("nvme");
	TCase *tc = tcase_create("commands");

	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, reads_and_writes_are_cut_and_refused_as_the_block_layer_does, 0, RW_CASES_NR);
	tcase_add_test(tc, the_length_is_always_that_of_the_blocks);
	tcase_add_test(tc, segments_are_taken_whole_or_the_first_in_part);
	tcase_add_test(tc, a_controller_and_metadata_take_no_reads);
	tcase_add_loop_test(tc, a_command_whose_length_is_not_that_of_its_blocks_is_refused, 0, CMD_CASES_NR);
	tcase_add_test(tc, metadata_is_counted_where_the_format_has_it);
	tcase_add_test(tc, admin_commands_are_for_the_controller_and_others_are_not);
	tcase_add_test(tc, commands_that_nobody_knows_are_believed);
	tcase_add_test(tc, identify_data_is_read_at_the_right_places);
	tcase_add_test(tc, the_queues_limits_bound_a_transfer);
	tcase_add_test(tc, what_is_no_nvme_is_refused_with_a_reason);
	tcase_add_loop_test(tc, statuses_have_the_block_layers_errno_and_the_specifications_words, 0, STATUS_CASES_NR);
	tcase_add_test(tc, every_status_has_a_negative_errno_and_words);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_main(make_suite());
}
