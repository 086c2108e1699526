/* SPDX-License-Identifier: MIT */
/* Figures that follow from others. A window of no time, or a run without an I/O, gives 0, not a division by it. */
#include "result.h"

#include <stdlib.h>
#include <string.h>

double result_iops(const struct result *r, unsigned dir)
{
	return r->runtime_ns ? (double)r->dir[dir].ios * 1e9 / (double)r->runtime_ns : 0;
}

double result_iops_all(const struct result *r)
{
	return result_iops(r, DIR_READ) + result_iops(r, DIR_WRITE);
}

double result_bw(const struct result *r, unsigned dir)
{
	return r->runtime_ns ? (double)r->dir[dir].bytes * 1e9 / (double)r->runtime_ns : 0;
}

uint64_t result_failed(const struct result *r)
{
	return r->dir[DIR_READ].failed + r->dir[DIR_WRITE].failed;
}

uint64_t result_short(const struct result *r)
{
	return r->dir[DIR_READ].short_ios + r->dir[DIR_WRITE].short_ios;
}

double result_enters_per_io(const struct result *r)
{
	return r->ios_all ? (double)r->note.enters / (double)r->ios_all : 0;
}

void result_lat_all(const struct result *r, struct hist *ret_lat)
{
	*ret_lat = r->dir[DIR_READ].lat;
	hist_merge(ret_lat, &r->dir[DIR_WRITE].lat);
}

void result_init(struct result *r, const char *engine)
{
	memset(r, 0, sizeof(*r));
	r->engine = engine;
	r->job = -1;
	hist_init(&r->pacing);
	for (unsigned d = 0; d < DIRS_NR; d++) {
		hist_init(&r->dir[d].lat);
		hist_init(&r->dir[d].slat);
		hist_init(&r->dir[d].clat);
	}
}

void result_set_round(struct result *r, const char *variant, unsigned round)
{
	r->variant = variant;
	r->round = round;
	for (unsigned i = 0; i < r->parts_nr; i++)
		result_set_round(&r->parts[i], variant, round);
}

void result_free(struct result *r)
{
	for (unsigned i = 0; i < r->parts_nr; i++)
		result_free(&r->parts[i]);
	free(r->parts);
	free(r->workers);
	free(r->targets);
	free(r->series);
	r->parts = NULL;
	r->parts_nr = 0;
	r->workers = NULL;
	r->targets = NULL;
	r->series = NULL;
}
