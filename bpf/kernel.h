/* SPDX-License-Identifier: MIT */
/*
 * The few fields of the kernel's structs that the programs read. The loader finds them in the running kernel by name
 * (CO-RE), so neither order nor size matter here.
 */
#ifndef BPF_KERNEL_H
#define BPF_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#define CORE __attribute__((preserve_access_index))

struct io_cqe {
	__u64 user_data;
} CORE;

struct io_kiocb {
	__u8 opcode;
	struct io_cqe cqe;
} CORE;

struct io_uring_cqe {
	__u64 user_data;
} CORE;

struct task_struct {
	__u32 pid;              /* what users call tid */
	__u32 tgid;
	unsigned int __state;
} CORE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id, seq_num;
} CORE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

/* Registers at a probe: the layout is the ABI's, of x86-64. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs, eflags,
		rsp, ss;
};

#endif
