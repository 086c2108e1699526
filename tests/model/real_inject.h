/* SPDX-License-Identifier: MIT */
/*
 * The inject queue (src/sched/inject.c) as part of a model: include it where the model would include sched/inject.h. The
 * model is sequentially consistent and could not see that [INJECT.nr.move] is needed, so either half of it can be taken
 * away: then the two stores of a move, or the two loads of a look, happen the other way round, as they may on a machine
 * that is told of no order.
 */
#ifndef MRT_TESTS_MODEL_REAL_INJECT_H
#define MRT_TESTS_MODEL_REAL_INJECT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "model.h"
#include "probe/stat.h"
#include "probe/usdt.h"
#include "sched/task.h"

static struct {
	bool moves_backwards;           /* `in` falls before `out` rises */
	bool looks_backwards;           /* reads `out` before `in` */
	size_t late;                    /* what `out` is to become: one at a time, under its lock */
	size_t early[MDL_THREADS_MAX];  /* what a thread has read from `out` already */
} inject_order;

static size_t inject_load(const atomic_size_t *nr, const char *what, const char *file, int line);
static void inject_store(atomic_size_t *nr, size_t value, const char *what, const char *file, int line);

/* All that inject.[ch] have are of size_t; what they include is above. */
#pragma push_macro("atomic_load_explicit")
#pragma push_macro("atomic_store_explicit")
#pragma push_macro("atomic_init")
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_init
#define atomic_load_explicit(p, mo) inject_load((p), #p, __FILE__, __LINE__)
#define atomic_store_explicit(p, v, mo) inject_store((p), (v), #p, __FILE__, __LINE__)
#define atomic_init(p, v) MDL__STORE((p), (v))
#define MRT__INJECT_LIST_POINT() mdl_point("list", "", __FILE__, __LINE__)
#include "../../src/sched/inject.c"
#pragma pop_macro("atomic_init")
#pragma pop_macro("atomic_store_explicit")
#pragma pop_macro("atomic_load_explicit")

/* By the words of inject.[ch]: if they change, the versions that must fail no longer do, and that is a failure. */
#define IN_NR "&q->in.nr"
#define OUT_NR "&q->out.nr"

static struct mrt__inject *queue_of(const atomic_size_t *nr, size_t offset)
{
	return (struct mrt__inject *)((uintptr_t)nr - offset);
}

static size_t inject_load(const atomic_size_t *nr, const char *what, const char *file, int line)
{
	struct mrt__inject *q;
	bool backwards = inject_order.looks_backwards;

	mdl_point("load", what, file, line);
	if (backwards && strcmp(what, OUT_NR) == 0)
		return inject_order.early[mdl_thread()];
	if (backwards && strcmp(what, IN_NR) == 0) {
		q = queue_of(nr, offsetof(struct mrt__inject, in.nr));
		inject_order.early[mdl_thread()] = MDL__LOAD(&q->out.nr);
		mdl_point("load", "after the other", file, line);
	}
	return MDL__LOAD(nr);
}

static void inject_store(atomic_size_t *nr, size_t value, const char *what, const char *file, int line)
{
	struct mrt__inject *q;
	bool backwards = inject_order.moves_backwards;

	mdl_point("store", what, file, line);
	if (backwards && strcmp(what, OUT_NR) == 0) {
		q = queue_of(nr, offsetof(struct mrt__inject, out.nr));
		inject_order.late = value;
		if (MDL__LOAD(&q->in.nr) > 0)
			return;
	}
	MDL__STORE(nr, value);
	if (backwards && strcmp(what, IN_NR) == 0 && value == 0) {
		q = queue_of(nr, offsetof(struct mrt__inject, in.nr));
		mdl_point("store", "after the other", file, line);
		MDL__STORE(&q->out.nr, inject_order.late);
	}
}

#endif
