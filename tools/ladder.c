/* SPDX-License-Identifier: MIT */
/*
 * Two kinds of refusal: what can be known beforehand is not run (no poll queues, no character device, no direct I/O);
 * and where an engine says afterwards that it ran on another rung than asked, its figures are not shown as that rung's.
 */
#include "ladder.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4)))
static void leave_out(struct ladder *l, enum rung rung, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->rung[rung].reason, sizeof(l->rung[rung].reason), fmt, ap);
	va_end(ap);
}

static void check_direct(struct ladder *l, const struct targets *ts)
{
	const struct bench_opts *o = &l->o[RUNG_DIRECT];

	for (unsigned i = 0; i < ts->nr; i++) {
		const struct target *t = &ts->t[i];
		int fd = target_reopen(t, o);

		if (fd < 0)
			leave_out(l, RUNG_DIRECT, "%s cannot be opened for direct I/O: %s", t->path, strerror(-fd));
		else
			(void)close(fd); /* nothing was done with it */
		if (fd >= 0 && (o->bs % t->off_align || o->offset % t->off_align))
			leave_out(l, RUNG_DIRECT, "direct I/O of %s needs offsets and lengths in multiples of %u", t->path,
				  t->off_align);
	}
}

static void check_polled(struct ladder *l, const struct targets *ts)
{
	if (!l->o[RUNG_POLLED].direct)
		leave_out(l, RUNG_POLLED, "only direct I/O can be polled");
	for (unsigned i = 0; i < ts->nr; i++) {
		const struct target *t = &ts->t[i];

		if (!t->io_poll)
			leave_out(l, RUNG_POLLED, "%s has no poll queues (queue/io_poll is 0)",
				  t->disk[0] ? t->disk : t->path);
	}
}

/* Another target, so another set of options. */
static void open_nvme(struct ladder *l, const struct target *t, const atomic_int *stop)
{
	struct bench_opts *o = &l->o[RUNG_PASSTHROUGH];
	char *said = NULL;
	size_t said_bytes;
	FILE *err = open_memstream(&said, &said_bytes);

	if (!err)
		return leave_out(l, RUNG_PASSTHROUGH, "no memory");
	o->targets_nr = 1;
	o->target_at[0] = 0;
	snprintf(o->target_text, sizeof(o->target_text), "/dev/ng%.60s", t->disk + strlen("nvme"));
	o->filename = o->target_text;
	if (targets_open(&l->nvme, o, stop, err)) {
		(void)fclose(err); /* memory */
		leave_out(l, RUNG_PASSTHROUGH, "%.*s", (int)strcspn(said, "\n"), said);
	} else {
		(void)fclose(err); /* memory */
		if (!l->nvme.t[0].io_poll)
			o->fast.hipri = o->fast.hybrid = false;
	}
	free(said);
}

static void check_passthrough(struct ladder *l, const struct targets *ts, const atomic_int *stop)
{
	const struct target *t = &ts->t[0];

	if (ts->nr > 1)
		leave_out(l, RUNG_PASSTHROUGH, "one target only");
	else if (!t->is_block)
		leave_out(l, RUNG_PASSTHROUGH, "a file; commands go to a whole NVMe namespace");
	else if (strncmp(t->disk, "nvme", 4) || strchr(t->disk, 'p'))
		leave_out(l, RUNG_PASSTHROUGH, "%s is no NVMe namespace", t->disk[0] ? t->disk : t->path);
	else
		open_nvme(l, t, stop);
}

/* Each rung has what the one below has, as far as that one exists. */
static void make_options(struct ladder *l, const struct bench_opts *o, const struct targets *ts)
{
	bool hybrid = o->fast.hybrid;

	for (unsigned i = 0; i < RUNGS_NR; i++) {
		struct bench_opts *r = &l->o[i];

		*r = *o;
		r->direct = i >= RUNG_DIRECT;
		r->fast.fixedbufs = i >= RUNG_FIXED_BUFFER;
		r->fast.registerfiles = i >= RUNG_FIXED_FILE;
		r->fast.hipri = i >= RUNG_POLLED;
		r->fast.hybrid = i >= RUNG_POLLED && hybrid;
		r->fast.nvme = i == RUNG_PASSTHROUGH;
	}
	check_direct(l, ts);
	if (l->rung[RUNG_DIRECT].reason[0])
		l->o[RUNG_FIXED_BUFFER].direct = l->o[RUNG_FIXED_FILE].direct = l->o[RUNG_POLLED].direct = false;
}

void ladder_init(struct ladder *l, const struct bench_opts *o, const struct targets *ts, const struct engine *e,
		 const atomic_int *stop)
{
	memset(l, 0, sizeof(*l));
	make_options(l, o, ts);
	check_polled(l, ts);
	check_passthrough(l, ts, stop);
	for (unsigned i = 0; i < RUNGS_NR; i++) {
		l->rung[i].name = rung_names[i];
		l->rung[i].variant = -1;
		if (l->rung[i].reason[0])
			continue;
		l->rung[i].variant = (int)l->variants_nr;
		l->variants[l->variants_nr++] = (struct series_variant){
			rung_names[i], &l->o[i], i == RUNG_PASSTHROUGH ? &l->nvme : ts, e,
		};
	}
}

void ladder_fini(struct ladder *l)
{
	if (l->nvme.t)
		targets_close(&l->nvme);
}

void ladder_judge(struct ladder *l, const struct series *s)
{
	for (unsigned i = 0; i < RUNGS_NR && s->rounds; i++) {
		const struct result *r;

		if (l->rung[i].variant < 0)
			continue;
		r = series_at(s, 0, (unsigned)l->rung[i].variant);
		if (r->note.rung[0] && strcmp(r->note.rung, l->rung[i].name))
			leave_out(l, (enum rung)i, "%s", r->note.rung_text);
		else if (result_iops_all(r) <= 0)
			leave_out(l, (enum rung)i, "no I/O ended well");
	}
}
