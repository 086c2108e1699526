/* SPDX-License-Identifier: MIT */
/*
 * An iterator that prints a runtime's workers, a line each, when somebody reads the file that it is pinned to.
 *
 * It walks over one task, the process's first, and not over the map's elements: some kernels refuse iterators that get map
 * values to write to (EPERM); and so it prints nothing any more when the process has ended.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include <martlet/stats.h>

#include "trace.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile __u32 workers_nr = 0;

/* The process's own: the loader puts its map in the place of this one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mrt_worker_stats);
} mrt_workers SEC(".maps");

static const char state_names[][8] = { "START", "RUN", "POLL", "SEARCH", "PARK", "STOP" };
#define STATES_NR (sizeof(state_names) / sizeof(state_names[0]))

static void print(struct seq_file *seq, const struct mrt_worker_stats *s)
{
	__u32 state = s->state == MRT_WORKER_RUNNING && s->poll_fn ? MRT_WORKER_POLLING : s->state;

	BPF_SEQ_PRINTF(seq, "%u %u %d %s ", s->pid, s->index, s->tid, state_names[state < STATES_NR ? state : 0]);
	BPF_SEQ_PRINTF(seq, "%llu %u %u %u %u %llu ", s->polls, s->local_queue + s->next_slot, s->inflight, s->sq_staged,
		       s->cq_ready, s->timers);
	BPF_SEQ_PRINTF(seq, "%llu %llu %llu %llu %llu %llu ", s->steals, s->parks, s->sqes, s->cqes, s->busy_ns,
		       s->park_ns);
	BPF_SEQ_PRINTF(seq, "%llu 0x%llx\n", s->turn_ns, s->poll_fn);
}

SEC("iter/task")
int print_workers(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	__u32 i;

	if (!ctx->task)
		return 0;
	BPF_SEQ_PRINTF(seq, "pid worker tid state polls local_queue inflight sq_staged cq_ready timers steals parks sqes cqes "
			    "busy_ns park_ns turn_ns poll_fn\n");
	for (i = 0; i < TRACE_WORKERS_MAX && i < workers_nr; i++) {
		__u32 key = i;  /* the loop's own has no address, or the verifier sees no end of it */
		struct mrt_worker_stats *s = bpf_map_lookup_elem(&mrt_workers, &key);

		if (!s)
			break;
		print(seq, s);
	}
	return 0;
}
