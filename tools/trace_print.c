/* SPDX-License-Identifier: MIT */
/* See trace_result.h: the text, as bcc's tools print histograms. */
#include <inttypes.h>
#include <string.h>

#include "opcode.h"
#include "trace_result.h"

#define BAR_WIDTH 40

static const char *const stage_names[TRACE_STAGES_NR] = {
#define NAME(name, text) #name,
	TRACE_STAGES(NAME)
#undef NAME
};

static const char *const stage_texts[TRACE_STAGES_NR] = {
#define TEXT(name, text) text,
	TRACE_STAGES(TEXT)
#undef TEXT
};

static const char *const lost_texts[TRACE_LOST_NR] = {
#define TEXT(name, text) text,
	TRACE_LOST_LIST(TEXT)
#undef TEXT
};

static const char *const depth_names[TRACE_DEPTHS_NR] = {
	[TRACE_DEPTH_LOCAL] = "tasks queued", [TRACE_DEPTH_INFLIGHT] = "ops in flight",
	[TRACE_DEPTH_QUEUED] = "ops not submitted", [TRACE_DEPTH_CQ] = "completions ready",
};

static void print_row(FILE *out, uint64_t low, uint64_t high, uint64_t nr, uint64_t most)
{
	unsigned stars = most ? (unsigned)((double)nr * BAR_WIDTH / (double)most) : 0;

	fprintf(out, "%10" PRIu64 " -> %-10" PRIu64 " : %-8" PRIu64 " |%.*s%*s|\n", low, high, nr, (int)stars,
		"****************************************", (int)(BAR_WIDTH - stars), "");
}

static void print_slots(FILE *out, const char *unit, const uint64_t *slots, unsigned nr, uint64_t (*min)(unsigned))
{
	unsigned first = nr, last = 0;
	uint64_t most = 0;

	for (unsigned i = 0; i < nr; i++) {
		if (!slots[i])
			continue;
		first = first == nr ? i : first;
		last = i;
		most = slots[i] > most ? slots[i] : most;
	}
	if (first == nr)
		return;
	fprintf(out, "%24s : %-8s distribution\n", unit, "count");
	for (unsigned i = first; i <= last; i++)
		print_row(out, min(i), min(i + 1) - 1, slots[i], most);
}

/* "12.3 us" */
static const char *time_text(double ns, char buf[16])
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	unsigned i = 0;

	for (; ns >= 1000 && i < 3; i++)
		ns /= 1000;
	(void)snprintf(buf, 16, i == 0 ? "%.0f %s" : "%.1f %s", ns, units[i]); /* fits */
	return buf;
}

static const char *mean_text(const struct trace_hist *h, char buf[16])
{
	if (!h->count)
		return "-";
	return time_text((double)h->sum_ns / (double)h->count, buf);
}

static const char *quantile_text(const struct trace_hist *h, double share, char buf[16])
{
	return h->count ? time_text((double)trace_hist_quantile(h, share), buf) : "-";
}

static void print_hist(FILE *out, const char *title, const struct trace_hist *h)
{
	char mean[16];

	fprintf(out, "\n%s: %" PRIu64 "%s%s\n", title, h->count, h->count ? ", mean " : "",
		h->count ? mean_text(h, mean) : "");
	print_slots(out, "nsecs", h->slots, TRACE_HIST_SLOTS, trace_slot_min);
}

static void print_functions(FILE *out, const struct trace_result *r, bool has_pids)
{
	char a[16], b[16], c[16], d[16], e[16], f[16];

	fprintf(out, "\n%-40s %9s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "FUNCTION", "POLLS", "TIME", "MEAN", "P50<", "P99<",
		"WAIT", "WAIT99<", "UNWOKEN", "SPAWNED", "ENDED");
	for (size_t i = 0; i < r->functions_nr; i++) {
		const struct trace_fn_row *row = &r->functions[i];
		char name[128];

		(void)snprintf(name, sizeof(name), has_pids ? "%.100s (%d)" : "%.100s", row->name, row->pid); /* fits */
		fprintf(out, "%-40s %9" PRIu64 " %9s %9s %9s %9s %9s %9s %9" PRIu64 " %9" PRIu64 " %9" PRIu64 "\n", name,
			row->f.poll.count, time_text((double)row->f.poll.sum_ns, a), mean_text(&row->f.poll, b),
			quantile_text(&row->f.poll, 0.5, c), quantile_text(&row->f.poll, 0.99, d),
			mean_text(&row->f.sched, e), quantile_text(&row->f.sched, 0.99, f), row->f.unwoken, row->f.spawns,
			row->f.ends);
	}
	for (size_t i = 0; i < r->functions_nr; i++) {
		const struct trace_fn_row *row = &r->functions[i];
		char title[192];

		if (!row->f.poll.count)
			continue;
		(void)snprintf(title, sizeof(title), "%.100s: length of polls", row->name); /* fits */
		print_hist(out, title, &row->f.poll);
		(void)snprintf(title, sizeof(title), "%.100s: from wake to poll", row->name); /* fits */
		print_hist(out, title, &row->f.sched);
	}
}

static void print_ops(FILE *out, const struct trace_result *r)
{
	char name[OPCODE_NAME_MAX], a[16], b[16], c[16];

	fprintf(out, "\n%-16s %-10s %9s %9s %9s %9s\n", "OP", "STAGE", "OPS", "MEAN", "P50<", "P99<");
	for (size_t i = 0; i < r->ops_nr; i++) {
		const struct trace_op_row *row = &r->ops[i];

		for (unsigned s = 0; s < TRACE_STAGES_NR; s++) {
			const struct trace_hist *h = &row->stages[s];

			if (h->count)
				fprintf(out, "%-16s %-10s %9" PRIu64 " %9s %9s %9s\n", opcode_text(row->opcode, name),
					stage_names[s], h->count, mean_text(h, a), quantile_text(h, 0.5, b),
					quantile_text(h, 0.99, c));
		}
	}
	for (unsigned s = 0; s < TRACE_STAGES_NR; s++)
		fprintf(out, "%s: %s\n", stage_names[s], stage_texts[s]);
	if (!r->punts_nr) {
		fprintf(out, "\nno op was handed to io-wq\n");
		return;
	}
	fprintf(out, "\n%-16s %9s %s\n", "HANDED TO IO-WQ", "OPS", "BY");
	for (size_t i = 0; i < r->punts_nr; i++)
		fprintf(out, "%-16s %9" PRIu64 " %s\n", opcode_text(r->punts[i].opcode, name), r->punts[i].nr,
			r->punts[i].fn ? r->punts[i].name : "(unknown)");
}

static void print_offcpu(FILE *out, const struct trace_result *r)
{
	static const char *const whys[TRACE_OFF_NR] = {
		[TRACE_OFF_PARKED] = "parked", [TRACE_OFF_BLOCKED] = "blocked", [TRACE_OFF_PREEMPTED] = "preempted",
	};
	char a[16], b[16], c[16];

	fprintf(out, "\n%-8s %-8s %-10s %9s %9s %9s %9s\n", "PID", "WORKER", "NO CPU", "TIMES", "TIME", "MEAN", "P99<");
	for (size_t i = 0; i < r->workers_nr; i++) {
		for (unsigned why = 0; why < TRACE_OFF_NR; why++) {
			const struct trace_hist *h = &r->workers[i].w.off[why];

			fprintf(out, "%-8d %-8u %-10s %9" PRIu64 " %9s %9s %9s\n", r->workers[i].pid, r->workers[i].worker,
				whys[why], h->count, time_text((double)h->sum_ns, a), mean_text(h, b),
				quantile_text(h, 0.99, c));
		}
	}
	fprintf(out, "\n%-40s %9s %9s %9s %9s\n", "IN A POLL OF", "BLOCKED", "TIME", "PREEMPTED", "TIME");
	for (size_t i = 0; i < r->functions_nr; i++) {
		const struct trace_fn *f = &r->functions[i].f;

		if (f->blocked_nr || f->preempted_nr)
			fprintf(out, "%-40s %9" PRIu64 " %9s %9" PRIu64 " %9s\n", r->functions[i].name, f->blocked_nr,
				time_text((double)f->blocked_ns, a), f->preempted_nr, time_text((double)f->preempted_ns, b));
	}
}

static uint64_t depth_min(unsigned slot)
{
	return slot ? UINT64_C(1) << (slot - 1) : 0;
}

static void print_depths(FILE *out, const struct trace_result *r)
{
	for (size_t i = 0; i < r->depths_nr; i++) {
		const struct trace_depths *d = &r->depths[i].d;

		for (unsigned which = 0; which < TRACE_DEPTHS_NR && d->count; which++) {
			fprintf(out, "\nworker %u, %s: %" PRIu64 " looks, mean %.2f\n", r->depths[i].worker, depth_names[which],
				d->count, (double)d->sum[which] / (double)d->count);
			print_slots(out, "depth", d->slots[which], TRACE_DEPTH_SLOTS, depth_min);
		}
	}
}

static void print_lost(FILE *out, const struct trace_result *r)
{
	for (unsigned i = 0; i < r->notes_nr; i++)
		fprintf(out, "left out: %s\n", r->notes[i]);
	for (unsigned i = 0; i < TRACE_LOST_NR; i++)
		if (r->lost[i])
			fprintf(out, "lost: %" PRIu64 " %s\n", r->lost[i], lost_texts[i]);
	if (r->file.skipped)
		fprintf(out, "lost: %" PRIu64 " events of the timeline beyond --events\n", r->file.skipped);
	if (r->file.gaps)
		fprintf(out, "lost: %" PRIu64 " stretches of a worker's time in the timeline\n", r->file.gaps);
}

void trace_result_print(FILE *out, const struct trace_result *r, const struct trace_opts *o)
{
	uint64_t unwoken = 0, lost = 0;

	for (size_t i = 0; i < r->functions_nr; i++)
		unwoken += r->functions[i].f.unwoken;
	if (o->by_function)
		print_functions(out, r, o->all);
	if (!o->by_function || r->functions_nr != 1) {
		print_hist(out, "length of polls", &r->poll);
		print_hist(out, "from wake to poll", &r->sched);
	}
	if (unwoken)
		fprintf(out, "polls without a wake (after a yield, or woken before the tracing): %" PRIu64 "\n", unwoken);
	if (o->ops)
		print_ops(out, r);
	if (o->offcpu)
		print_offcpu(out, r);
	print_depths(out, r);
	if (o->timeline && !r->file.error)
		fprintf(out, "\n%s: %" PRIu64 " events\n", o->timeline, r->file.events);
	fprintf(out, "\n%.3f s, %" PRIu64 " tasks spawned, %" PRIu64 " ended, by %s\n", (double)r->duration_ns / 1e9,
		r->hits[TRACE_task_spawn], r->hits[TRACE_task_end], r->how == TRACER_MULTI ? "uprobe_multi" : "usdt");
	for (unsigned i = 0; i < TRACE_LOST_NR; i++)
		lost += r->lost[i];
	print_lost(out, r);
	if (!lost && !r->file.skipped && !r->file.gaps)
		fprintf(out, "nothing was lost\n");
}
