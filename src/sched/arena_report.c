/* SPDX-License-Identifier: MIT */
/* What the arena tells the user: numbers, and the same in words. */
#include "sched/arena_region.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sched/sched.h"
#include "sched/worker.h"

#define UNIT MRT__ARENA_UNIT

struct text {
	char *at;
	size_t left;
};

__attribute__((format(printf, 2, 3)))
static void add_text(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int nr;

	va_start(ap, fmt);
	nr = vsnprintf(t->at, t->left, fmt, ap);
	va_end(ap);
	nr = nr < 0 ? 0 : nr;
	nr = (size_t)nr >= t->left ? (int)t->left - 1 : nr; /* cut */
	t->at += nr;
	t->left -= (size_t)nr;
}

static void report_reasons(struct mrt__arena *a, const struct mrt_arena_report *r, struct text *t)
{
	unsigned reasons = atomic_load_explicit(&a->reasons, memory_order_relaxed); /* relaxed: marks */

	if (reasons & 1u << MRT__REASON_MEMLOCK && r->memlock_limit != UINT64_MAX)
		add_text(t, "; RLIMIT_MEMLOCK is %s, %s would be needed for all", mrt__size_text(r->memlock_limit).text,
			 mrt__size_text(r->memlock_need).text);
	else if (reasons & 1u << MRT__REASON_MEMLOCK)
		add_text(t, "; the kernel refused to lock more");
	if (reasons & 1u << MRT__REASON_GROWTH)
		add_text(t, "; growth is not registered on this kernel (6.13 can): give arena_bytes");
	if (reasons & 1u << MRT__REASON_KERNEL)
		add_text(t, "; this kernel cannot register buffers one by one");
	if (reasons & 1u << MRT__REASON_REFUSED)
		add_text(t, "; the kernel refused: %s",
			 strerrordesc_np(atomic_load_explicit(&a->refusal, memory_order_relaxed))); /* relaxed: a number */
	if (reasons & 1u << MRT__REASON_SPACE)
		add_text(t, "; the address space was too small for more");
	if (reasons & 1u << MRT__REASON_LIMIT)
		add_text(t, "; a block did not fit in arena_bytes_max");
	if (reasons & 1u << MRT__REASON_MEMORY)
		add_text(t, "; there was no memory to grow");
}

static void report_text(struct mrt__arena *a, struct mrt_arena_report *r)
{
	static const char *const hows[] = { "nothing is registered", "registered once and cloned into each ring",
					    "registered with each ring on its own" };
	struct text t = { .at = r->text, .left = sizeof(r->text) };

	if (r->regions_nr == 0) {
		add_text(&t, "no memory yet; up to %s", mrt__size_text(r->limit_bytes).text);
	} else {
		add_text(&t, "%s of up to %s in %u %s, ", mrt__size_text(r->mapped_bytes).text, mrt__size_text(r->limit_bytes).text,
			 r->regions_nr, r->regions_nr == 1 ? "region" : "regions");
		if (r->registered_bytes > 0)
			add_text(&t, "%s of it %s", mrt__size_text(r->registered_bytes).text, hows[r->how]);
		else
			add_text(&t, "%s", hows[MRT_ARENA_UNREGISTERED]);
		if (r->huge_bytes > 0)
			add_text(&t, ", %s in huge pages", mrt__size_text(r->huge_bytes).text);
	}
	report_reasons(a, r, &t);
}

static void report_arena(struct mrt__arena *a, struct mrt_arena_report *r)
{
	uint32_t i;

	memset(r, 0, sizeof(*r));
	r->limit_bytes = a->span;
	r->regions_nr = atomic_load_explicit(&a->regions_nr, memory_order_acquire); /* [ARENA.regions.obs] */
	r->how = atomic_load_explicit(&a->how, memory_order_relaxed); /* relaxed: published with the regions */
	r->mapped_bytes = mrt__arena_mapped(a);
	for (i = 0; i < r->regions_nr; i++) {
		uint64_t fixed = mrt__region_fixed(&a->regions[i]);

		r->registered_bytes += fixed;
		r->huge_bytes += a->regions[i].huge ? a->regions[i].bytes : 0;
		r->regions_unregistered += fixed < a->regions[i].bytes;
	}
	if (r->registered_bytes == 0)
		r->how = MRT_ARENA_UNREGISTERED;
	mrt__lock(&a->lock);
	r->allocated_bytes = a->allocated_units * UNIT;
	r->waiting_bytes = a->waiting_units * UNIT;
	r->allocs = a->allocs;
	r->frees = a->frees;
	mrt__unlock(&a->lock);
	r->memlock_need = mrt__arena_memlock_need(a, r->mapped_bytes);
	r->memlock_limit = mrt__arena_memlock_limit(a);
	report_text(a, r);
}

int mrt_arena_report(struct mrt_runtime *rt, struct mrt_arena_report *ret_report)
{
	struct mrt__sched *s;
	int err = mrt__sched_find(rt, &s);

	if (err)
		return err;
	if (!ret_report || !s->arena)
		return -EINVAL;
	report_arena(s->arena, ret_report);
	return 0;
}
