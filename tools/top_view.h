/* SPDX-License-Identifier: MIT */
/* The tables of `martlet top`, for the terminal, for plain text and for JSON alike. */
#ifndef TOOLS_TOP_VIEW_H
#define TOOLS_TOP_VIEW_H

#include <stdbool.h>
#include <stdio.h>

#include "top_listing.h"
#include "top_model.h"
#include "top_tasks.h"

#define TOP_CELL_BYTES 160u

enum top_format {
	TOP_TEXT,       /* left aligned */
	TOP_NUMBER,     /* as it is */
	TOP_SHORT,      /* 12.3k */
	TOP_DECIMAL,    /* one digit behind the point */
	TOP_PERCENT,
	TOP_NS,         /* 1.2us; 0: nothing */
};

struct top_column {
	const char *title;              /* NULL: in JSON alone */
	const char *key;                /* in JSON; NULL: on the terminal alone */
	int width;                      /* at least; the last column takes what is left */
	enum top_format format;
	double (*value)(const void *row);               /* to sort by, and in JSON unless there is a text */
	void (*text)(const void *row, char cell[TOP_CELL_BYTES]);       /* NULL: the value, formatted */
	const char *help;
};

struct top_table {
	const struct top_column *columns;       /* [nr]; the first two stay when the table is scrolled sideways */
	unsigned nr;
};

extern const struct top_table top_runtimes;     /* rows: struct top_runtime */
extern const struct top_table top_workers;      /* struct top_worker */
extern const struct top_table top_ops;          /* struct top_op */
extern const struct top_table top_functions;    /* struct top_function */
extern const struct top_table top_task_rows;    /* struct task_row */

/* A cell, not padded. */
void top_cell(const struct top_column *c, const void *row, char cell[TOP_CELL_BYTES]);

/* "1.23us", "45ms", "2m10s"; @return buf */
const char *top_ns(char buf[16], double ns);

/* The lines above a runtime's tables. */
void top_headline(const struct top_runtime *r, char *line, size_t line_bytes);
void top_rates_line(const struct top_runtime *r, char *line, size_t line_bytes);
void top_tasks_line(const struct top_runtime *r, char *line, size_t line_bytes);
void top_timing_line(const struct top_runtime *r, bool looks, char *line, size_t line_bytes);

/* A task by itself: who it is, its times, what is to be warned of (@return false: no more), quantiles of a histogram. */
void top_task_head(const struct task_row *t, uint64_t now_ns, char *line, size_t line_bytes);
void top_task_times(const struct task_row *t, char *line, size_t line_bytes);
bool top_task_warning(const struct task_row *t, unsigned idx, char *line, size_t line_bytes);
void top_quantiles_line(const char *what, const struct trace_hist *h, char *line, size_t line_bytes);

/* How many tasks there are, and what is missing. */
void top_task_list_line(const struct top_runtime *r, const struct top_tasks *t, char *line, size_t line_bytes);

/* Ops that were handed to io-wq. @return false: none was */
bool top_punts_line(const struct top_tasks *t, char *line, size_t line_bytes);

/* What --once and --json print. @param l  NULL: no tasks; @param looks  timing was asked for. @return 0, -EIO, -ENOMEM */
int top_print(FILE *out, const struct top_model *m, const struct top_listings *l, bool looks);
int top_print_json(FILE *out, const struct top_model *m, const struct top_listings *l);

#endif
