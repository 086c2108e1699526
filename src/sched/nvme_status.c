/* SPDX-License-Identifier: MIT */
/*
 * NVMe statuses: which errno, and which words.
 *
 * A status here is the completion entry's status field without its phase bit: code 0-7, type 8-10, retry delay 11-12,
 * more 13, do not retry 14. The errno is the one that a read or write through the block layer would have got, so that
 * changing the rung changes no error handling. (@source: Linux nvme_error_status() and blk_errors[]; the two codes that
 * only Linux makes, host aborted and host path error, among them.) The words are those of the specification: NVM Express
 * Base 2.0, NVM command set 1.0, Zoned namespaces 1.1.
 */
#include "sched/nvme.h"

#include <errno.h>
#include <stdio.h>

#define CODE_MASK 0x7ffu        /* type and code */
#define STATUS_MORE (1u << 13)
#define STATUS_DNR (1u << 14)

int32_t mrt__nvme_errno(uint32_t status)
{
	switch (status & CODE_MASK) {
	case 0x000:
		return 0;
	case 0x001: /* invalid opcode */
	case 0x002: /* invalid field */
	case 0x00b: /* invalid namespace */
	case 0x180: /* conflicting attributes */
	case 0x183: /* command size limit exceeded: so until 6.15, which has no case of its own for it */
		return -EOPNOTSUPP;
	case 0x021: /* command interrupted */
	case 0x080: /* LBA out of range */
	case 0x082: /* namespace not ready */
		return -EREMOTEIO;
	case 0x081: /* capacity exceeded */
		return -ENOSPC;
	case 0x083: /* reservation conflict */
		return -EBADE;
	case 0x182: /* write to a read-only range */
	case 0x280: /* write fault */
	case 0x281: /* unrecovered read error */
	case 0x285: /* compare failure */
	case 0x286: /* access denied */
	case 0x287: /* deallocated or unwritten block */
		return -ENODATA;
	case 0x181: /* invalid protection information */
	case 0x282: /* guard */
	case 0x283: /* application tag */
	case 0x284: /* reference tag */
		return -EILSEQ;
	case 0x1bd: /* too many active zones */
		return -EOVERFLOW;
	case 0x1be: /* too many open zones */
		return -ETOOMANYREFS;
	case 0x370: /* host path error */
		return -ENOLINK;
	default:
		return -EIO;
	}
}

static const struct {
	uint16_t code;          /* type << 8 | code */
	const char *words;
} statuses[] = {
	{ 0x000, "successful completion" },
	{ 0x001, "invalid command opcode" },
	{ 0x002, "invalid field in command" },
	{ 0x003, "command ID conflict" },
	{ 0x004, "data transfer error" },
	{ 0x005, "commands aborted due to power loss notification" },
	{ 0x006, "internal error" },
	{ 0x007, "command abort requested" },
	{ 0x008, "command aborted due to SQ deletion" },
	{ 0x009, "command aborted due to failed fused command" },
	{ 0x00a, "command aborted due to missing fused command" },
	{ 0x00b, "invalid namespace or format" },
	{ 0x00c, "command sequence error" },
	{ 0x00d, "invalid SGL segment descriptor" },
	{ 0x00e, "invalid number of SGL descriptors" },
	{ 0x00f, "data SGL length invalid" },
	{ 0x010, "metadata SGL length invalid" },
	{ 0x011, "SGL descriptor type invalid" },
	{ 0x012, "invalid use of controller memory buffer" },
	{ 0x013, "PRP offset invalid" },
	{ 0x014, "atomic write unit exceeded" },
	{ 0x015, "operation denied" },
	{ 0x016, "SGL offset invalid" },
	{ 0x018, "host identifier inconsistent format" },
	{ 0x019, "keep alive timer expired" },
	{ 0x01a, "keep alive timeout invalid" },
	{ 0x01b, "command aborted due to preempt and abort" },
	{ 0x01c, "sanitize failed" },
	{ 0x01d, "sanitize in progress" },
	{ 0x01e, "SGL data block granularity invalid" },
	{ 0x01f, "command not supported for queue in CMB" },
	{ 0x020, "namespace is write protected" },
	{ 0x021, "command interrupted" },
	{ 0x022, "transient transport error" },
	{ 0x023, "command prohibited by command and feature lockdown" },
	{ 0x024, "admin command media not ready" },
	{ 0x080, "LBA out of range" },
	{ 0x081, "capacity exceeded" },
	{ 0x082, "namespace not ready" },
	{ 0x083, "reservation conflict" },
	{ 0x084, "format in progress" },
	{ 0x085, "invalid value size" },
	{ 0x086, "invalid key size" },
	{ 0x087, "KV key does not exist" },
	{ 0x088, "unrecovered error" },
	{ 0x089, "key exists" },
	{ 0x100, "completion queue invalid" },
	{ 0x101, "invalid queue identifier" },
	{ 0x102, "invalid queue size" },
	{ 0x103, "abort command limit exceeded" },
	{ 0x105, "asynchronous event request limit exceeded" },
	{ 0x106, "invalid firmware slot" },
	{ 0x107, "invalid firmware image" },
	{ 0x108, "invalid interrupt vector" },
	{ 0x109, "invalid log page" },
	{ 0x10a, "invalid format" },
	{ 0x10b, "firmware activation requires conventional reset" },
	{ 0x10c, "invalid queue deletion" },
	{ 0x10d, "feature identifier not saveable" },
	{ 0x10e, "feature not changeable" },
	{ 0x10f, "feature not namespace specific" },
	{ 0x110, "firmware activation requires NVM subsystem reset" },
	{ 0x111, "firmware activation requires controller level reset" },
	{ 0x112, "firmware activation requires maximum time violation" },
	{ 0x113, "firmware activation prohibited" },
	{ 0x114, "overlapping range" },
	{ 0x115, "namespace insufficient capacity" },
	{ 0x116, "namespace identifier unavailable" },
	{ 0x118, "namespace already attached" },
	{ 0x119, "namespace is private" },
	{ 0x11a, "namespace not attached" },
	{ 0x11b, "thin provisioning not supported" },
	{ 0x11c, "controller list invalid" },
	{ 0x11d, "device self-test in progress" },
	{ 0x11e, "boot partition write prohibited" },
	{ 0x11f, "invalid controller identifier" },
	{ 0x120, "invalid secondary controller state" },
	{ 0x121, "invalid number of controller resources" },
	{ 0x122, "invalid resource identifier" },
	{ 0x123, "sanitize prohibited while persistent memory region is enabled" },
	{ 0x124, "ANA group identifier invalid" },
	{ 0x125, "ANA attach failed" },
	{ 0x126, "insufficient capacity" },
	{ 0x127, "namespace attachment limit exceeded" },
	{ 0x128, "prohibition of command execution not supported" },
	{ 0x129, "I/O command set not supported" },
	{ 0x12a, "I/O command set not enabled" },
	{ 0x12b, "I/O command set combination rejected" },
	{ 0x12c, "invalid I/O command set" },
	{ 0x12d, "identifier unavailable" },
	{ 0x180, "conflicting attributes" },
	{ 0x181, "invalid protection information" },
	{ 0x182, "attempted write to read only range" },
	{ 0x183, "command size limit exceeded" },
	{ 0x1b8, "zoned boundary error" },
	{ 0x1b9, "zone is full" },
	{ 0x1ba, "zone is read only" },
	{ 0x1bb, "zone is offline" },
	{ 0x1bc, "zone invalid write" },
	{ 0x1bd, "too many active zones" },
	{ 0x1be, "too many open zones" },
	{ 0x1bf, "invalid zone state transition" },
	{ 0x280, "write fault" },
	{ 0x281, "unrecovered read error" },
	{ 0x282, "end-to-end guard check error" },
	{ 0x283, "end-to-end application tag check error" },
	{ 0x284, "end-to-end reference tag check error" },
	{ 0x285, "compare failure" },
	{ 0x286, "access denied" },
	{ 0x287, "deallocated or unwritten logical block" },
	{ 0x288, "end-to-end storage tag check error" },
	{ 0x300, "internal path error" },
	{ 0x301, "asymmetric access persistent loss" },
	{ 0x302, "asymmetric access inaccessible" },
	{ 0x303, "asymmetric access transition" },
	{ 0x360, "controller pathing error" },
	{ 0x370, "host pathing error" },
	{ 0x371, "command aborted by host" },
};

static const char *const types[8] = {
	"generic", "command specific", "media and data integrity", "path related", "type 4", "type 5", "type 6",
	"vendor specific",
};

static const char *words_of(uint32_t status)
{
	size_t i;

	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		if (statuses[i].code == (status & CODE_MASK))
			return statuses[i].words;
	}
	return (status & CODE_MASK) >> 8 == 7 ? "a status of the vendor's" : "a status that has no name";
}

const char *mrt_nvme_status_text(uint32_t status, char *ret_text, size_t text_bytes)
{
	(void)snprintf(ret_text, text_bytes, "%s (%s, code 0x%02x%s%s)", words_of(status), types[status >> 8 & 7],
		       status & 0xff, status & STATUS_DNR ? ", do not retry" : "",
		       status & STATUS_MORE ? ", more in the error log" : ""); /* cut to fit */
	return ret_text;
}
