/* SPDX-License-Identifier: MIT */
/* Where the statistics live. The seam for the maps that make them visible from outside. */
#include "probe/stat.h"

#include <stdlib.h>
#include <string.h>

struct mrt_worker_stats *mrt__stats_create(unsigned workers_nr)
{
	struct mrt_worker_stats *stats = aligned_alloc(128, workers_nr * sizeof(*stats));

	if (stats)
		memset(stats, 0, workers_nr * sizeof(*stats));
	return stats;
}

void mrt__stats_destroy(struct mrt_worker_stats *stats, unsigned workers_nr)
{
	(void)workers_nr;
	free(stats);
}

void mrt__stats_copy(const struct mrt_worker_stats *from, struct mrt_worker_stats *to)
{
	const uint32_t *src = (const void *)from;
	uint32_t *dst = (void *)to;
	const uint64_t *src64;
	uint64_t *dst64;
	size_t i, gauges = offsetof(struct mrt_worker_stats, timers) / sizeof(*src);

	_Static_assert(offsetof(struct mrt_worker_stats, timers) % 8 == 0, "32-bit gauges first, then 64-bit words");
	for (i = 0; i < gauges; i++)
		dst[i] = mrt__stat_get(&src[i]);
	src64 = (const void *)&src[i];
	dst64 = (void *)&dst[i];
	for (i = 0; i < (sizeof(*from) - offsetof(struct mrt_worker_stats, timers)) / sizeof(*src64); i++)
		dst64[i] = mrt__stat_get(&src64[i]);
}
