/* SPDX-License-Identifier: MIT */
/*
 * `martlet top` on a terminal, by ncursesw. Keys are those of htop and less where these have one.
 *
 *	list      all runtimes                      enter opens one
 *	runtime   its workers, ops and warnings     enter opens a worker, esc goes back
 *	worker    one of them, with its histogram
 *	tasks     one by one                        enter opens a task; while the probes are listened to
 *	functions the same tasks by function
 *	task      one of them, with its histograms
 *	help      keys and columns, over any of them
 *
 * Everything is drawn anew after each look and each key; what does not fit is left out, from the bottom, and tables scroll.
 */
#ifdef TOOLS_NCURSES
#include "top.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <ncurses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "clock.h"
#include "report.h"
#include "top_view.h"

#define KEY_ESC 27
#define ESC_WAIT_MS 25          /* longer, and it is a key of its own */
#define LINES_FOR_CURVES 18     /* terminals of fewer lines have no sparklines */
#define CURVE_LABEL 27
#define BAR_WIDTH 40
#define ROWS_MAX TASK_LIST_MAX

enum view { VIEW_LIST, VIEW_RUNTIME, VIEW_WORKER, VIEW_TASKS, VIEW_FUNCTIONS, VIEW_TASK };
enum colour { COLOUR_NONE, COLOUR_GOOD, COLOUR_BUSY, COLOUR_BAD, COLOUR_DIM };

/* Where somebody is in a table. */
struct cursor {
	unsigned selected;      /* row as sorted */
	unsigned first;         /* row shown first */
	unsigned first_column;  /* column that comes after the two that stay */
	unsigned sort;          /* column */
	bool reverse;
};

struct screen {
	struct top *t;
	enum view view;
	bool helps, paused, ends, has_colours, is_utf8;
	struct cursor list, workers, tasks_at, functions, help;
	struct top_runtime *open;       /* VIEW_RUNTIME, VIEW_WORKER */
	unsigned worker;                /* VIEW_WORKER: its index */
	struct top_tasks tasks;         /* VIEW_TASKS, VIEW_FUNCTIONS, VIEW_TASK */
	uint64_t task, task_met_ns;     /* VIEW_TASK: its address, and which of those that had it */
	char why[TOP_TASKS_WHY_BYTES];  /* it could not be had; "" */
	uint64_t looked_ns;
	const char *error;
	const void *rows[ROWS_MAX];     /* as drawn last: of the table with the cursor */
	unsigned rows_nr;
};

static volatile sig_atomic_t told_to_end;

static void on_end(int sig)
{
	(void)sig;
	told_to_end = 1;
}

/* ---- drawing ---- */

static attr_t colour(const struct screen *s, enum colour c)
{
	if (!s->has_colours)
		return c == COLOUR_BAD ? A_BOLD : c == COLOUR_DIM ? A_DIM : A_NORMAL;
	return c == COLOUR_NONE ? A_NORMAL : (attr_t)COLOR_PAIR((short)c) | (c == COLOUR_BAD ? A_BOLD : A_NORMAL);
}

/* Cut to the line. ncurses returns ERR where there is no room, which is what is wanted. */
static void put(int y, int x, const char *text, attr_t attr)
{
	if (y < 0 || y >= LINES || x >= COLS)
		return;
	(void)attrset((int)attr);
	(void)mvaddnstr(y, x, text, COLS - x);
	(void)attrset(A_NORMAL);
}

static void put_bar(int y, const char *text)
{
	if (y < 0 || y >= LINES)
		return;
	(void)attrset(A_REVERSE);
	(void)mvhline(y, 0, ' ', COLS);
	(void)attrset(A_NORMAL);
	put(y, 0, text, A_REVERSE);
}

/* ---- tables ---- */

/* The table with the cursor, and that; NULL: the view has none. */
static const struct top_table *table_of(const struct screen *s)
{
	return s->view == VIEW_LIST ? &top_runtimes : s->view == VIEW_RUNTIME ? &top_workers :
	       s->view == VIEW_TASKS ? &top_task_rows : s->view == VIEW_FUNCTIONS ? &top_functions : NULL;
}

static struct cursor *cursor_of(struct screen *s)
{
	return s->view == VIEW_LIST ? &s->list : s->view == VIEW_RUNTIME ? &s->workers :
	       s->view == VIEW_TASKS ? &s->tasks_at : s->view == VIEW_FUNCTIONS ? &s->functions : NULL;
}

static const struct top_column *sort_column;
static bool sort_reverse;

/* Ties keep the order of the numbers that come first in each row, so that equal rows do not dance. */
static int compare_rows(const void *x, const void *y)
{
	const void *a = *(const void *const *)x, *b = *(const void *const *)y;
	char text_a[TOP_CELL_BYTES], text_b[TOP_CELL_BYTES];
	int order;

	if (sort_column->format == TOP_TEXT) {
		top_cell(sort_column, a, text_a);
		top_cell(sort_column, b, text_b);
		order = strcmp(text_a, text_b);
	} else {
		double va = sort_column->value(a), vb = sort_column->value(b);

		order = va < vb ? -1 : va > vb;
	}
	if (order == 0)
		return a < b ? -1 : a > b;
	return sort_reverse ? -order : order;
}

static void sort_rows(struct screen *s, const struct top_table *t, const struct cursor *c)
{
	sort_column = &t->columns[c->sort];
	sort_reverse = c->reverse;
	qsort(s->rows, s->rows_nr, sizeof(s->rows[0]), compare_rows);
}

/* The next column that is shown, from i on in a direction; i itself if there is none. */
static unsigned next_column(const struct top_table *t, unsigned i, int step)
{
	unsigned j = i;

	for (;;) {
		if ((step < 0 && j == 0) || (step > 0 && j + 1 >= t->nr))
			return i;
		j = (unsigned)((int)j + step);
		if (t->columns[j].title)
			return j;
	}
}

/* Draw a row, or the titles (row NULL). @param c  NULL: nothing is sorted or scrolled */
static void draw_row(int y, const struct top_table *t, const struct cursor *c, const void *row, attr_t attr)
{
	unsigned i, shown = 0;
	char cell[TOP_CELL_BYTES];
	int x = 0;

	(void)attrset((int)attr);
	(void)mvhline(y, 0, ' ', COLS);
	for (i = 0; i < t->nr && x < COLS; i++) {
		const struct top_column *col = &t->columns[i];
		int width = col->width, indent = 0;

		if (!col->title)
			continue;
		if (c && shown >= 2 && i < c->first_column)
			continue;
		shown++;
		if (row)
			top_cell(col, row, cell);
		else
			(void)snprintf(cell, sizeof(cell), "%s", col->title); /* fits */
		if (col->format == TOP_TEXT && i + 1 < t->nr && (int)strlen(cell) > width)
			cell[width] = '\0';
		if (col->format != TOP_TEXT && (int)strlen(cell) < width)
			indent = width - (int)strlen(cell);
		put(y, x + indent, cell, !row && c && i == c->sort ? attr | A_BOLD | A_UNDERLINE : attr);
		x += width + 1;
	}
	(void)attrset(A_NORMAL);
}

static attr_t row_attr(const struct screen *s, const struct top_table *t, const void *row)
{
	if (t == &top_workers) {
		const struct top_worker *w = row;

		if (w->is_stuck)
			return colour(s, COLOUR_BAD);
		return colour(s, w->state == MRT_WORKER_PARKED ? COLOUR_DIM : w->state == MRT_WORKER_SEARCHING ? COLOUR_BUSY :
			      COLOUR_GOOD);
	}
	if (t == &top_task_rows) {
		const struct task_row *r = row;

		return r->warnings ? colour(s, COLOUR_BAD) : r->state == TRACE_TASK_RUNNING ? colour(s, COLOUR_GOOD) :
		       r->state == TRACE_TASK_SCHED ? colour(s, COLOUR_BUSY) : r->state == TRACE_TASK_DONE ?
		       colour(s, COLOUR_DIM) : A_NORMAL;
	}
	if (t == &top_runtimes && ((const struct top_runtime *)row)->warnings_nr)
		return colour(s, COLOUR_BAD);
	return A_NORMAL;
}

/* The table with the cursor, in so many lines, titles included. */
static void draw_table(struct screen *s, int y, int height, const struct top_table *t, struct cursor *c)
{
	unsigned fit = height > 1 ? (unsigned)height - 1 : 0, i;

	if (height < 1)
		return;
	sort_rows(s, t, c);
	if (s->rows_nr && c->selected >= s->rows_nr)
		c->selected = s->rows_nr - 1;
	if (c->selected < c->first)
		c->first = c->selected;
	if (fit && c->selected >= c->first + fit)
		c->first = c->selected - fit + 1;
	if (s->rows_nr <= fit)
		c->first = 0;
	draw_row(y, t, c, NULL, A_REVERSE);
	for (i = 0; i < fit && c->first + i < s->rows_nr; i++) {
		unsigned row = c->first + i;

		draw_row(y + 1 + (int)i, t, c, s->rows[row],
			 row == c->selected ? A_REVERSE | A_BOLD : row_attr(s, t, s->rows[row]));
	}
}

/* ---- sparklines ---- */

static void draw_curve(const struct screen *s, int y, const char *name, const struct top_history *h, bool is_time)
{
	static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const plain[] = { "_", ".", ",", "-", "=", "+", "*", "#" };
	char label[64], now[16], most[16];
	double max = 0;
	unsigned i, from, room;
	int x = CURVE_LABEL;

	room = COLS > CURVE_LABEL + 1 ? (unsigned)(COLS - CURVE_LABEL - 1) : 0;
	from = h->nr > room ? h->nr - room : 0;
	for (i = from; i < h->nr; i++)
		max = h->value[i] > max ? h->value[i] : max;
	if (is_time) {
		(void)top_ns(now, h->nr ? h->value[h->nr - 1] : 0);
		(void)top_ns(most, max);
	} else {
		(void)report_si(now, h->nr ? h->value[h->nr - 1] : 0);
		(void)report_si(most, max);
	}
	(void)snprintf(label, sizeof(label), "%-8s %6s of %6s", name, now, most); /* fits */
	put(y, 0, label, A_NORMAL);
	for (i = from; i < h->nr; i++, x++) {
		unsigned level = max > 0 ? (unsigned)(h->value[i] / max * 7.999) : 0;

		put(y, x, (s->is_utf8 ? blocks : plain)[level], colour(s, COLOUR_GOOD));
	}
}

/* ---- views ---- */

static void draw_title(const struct screen *s)
{
	char line[256], clock[16];
	time_t now = time(NULL);
	struct tm tm;

	if (!localtime_r(&now, &tm) || !strftime(clock, sizeof(clock), "%H:%M:%S", &tm))
		clock[0] = '\0';
	(void)snprintf(line, sizeof(line), " martlet top  %s  every %.1f s%s%s", clock, (double)s->t->interval_ns * 1e-9,
		       s->paused ? "  PAUSED" : "", s->error ? s->error : ""); /* fits */
	put_bar(0, line);
}

static void draw_list(struct screen *s)
{
	char line[256];
	unsigned i;

	(void)snprintf(line, sizeof(line), "%u runtime%s; %u found that cannot be shown%s%s", s->t->model.nr,
		       s->t->model.nr == 1 ? "" : "s", s->t->set.refusals_nr, s->t->set.refusals_nr ? ", say " : "",
		       s->t->set.refusals_nr ? s->t->set.refusals[0].why : ""); /* cut to fit */
	put(1, 0, line, A_NORMAL);
	s->rows_nr = 0;
	for (i = 0; i < s->t->model.nr && i < ROWS_MAX; i++)
		s->rows[s->rows_nr++] = s->t->model.items[i];
	draw_table(s, 3, LINES - 4, &top_runtimes, &s->list);
	if (s->rows_nr == 0)
		put(5, 2, "no Martlet runtime that this user may look at is running", A_BOLD);
	put_bar(LINES - 1, " q quit  h help  space pause  enter open  </> sort by  I invert");
}

static int draw_warnings(const struct screen *s, int y, int end)
{
	const struct top_runtime *r = s->open;
	char line[256];
	unsigned i;

	for (i = 0; i < r->warnings_nr && y < end; i++, y++) {
		if (i + 1 < r->warnings_nr && y + 1 == end)
			(void)snprintf(line, sizeof(line), "! and %u more", r->warnings_nr - i); /* fits */
		else if (r->warnings[i].worker >= 0)
			(void)snprintf(line, sizeof(line), "! worker %d: %s", r->warnings[i].worker, r->warnings[i].text);
		else
			(void)snprintf(line, sizeof(line), "! %s", r->warnings[i].text);
		put(y, 0, line, colour(s, COLOUR_BAD));
	}
	return y;
}

static int draw_head(const struct screen *s)
{
	const struct top_runtime *r = s->open;
	char line[512];
	int y = 1;

	top_headline(r, line, sizeof(line));
	put(y++, 0, line, A_BOLD);
	if (!r->a) {
		put(y++, 0, "This runtime has ended; below is what was seen last. Esc goes back.", colour(s, COLOUR_BAD));
		return y;
	}
	if (LINES < 8)
		return y;
	top_tasks_line(r, line, sizeof(line));
	put(y++, 0, line, A_NORMAL);
	top_rates_line(r, line, sizeof(line));
	put(y++, 0, line, A_NORMAL);
	if (LINES < 12)
		return y;
	top_timing_line(r, !s->t->keeps_timing, line, sizeof(line));
	put(y++, 0, line, A_NORMAL);
	if (LINES < LINES_FOR_CURVES)
		return y;
	draw_curve(s, y++, "queued", &r->queue, false);
	draw_curve(s, y++, "poll p99", &r->poll_p99, true);
	draw_curve(s, y++, "ops/s", &r->io, false);
	return y + 1;
}

/* Who gets how many lines: the workers what the others leave, and two at least. */
static void draw_runtime(struct screen *s)
{
	struct top_runtime *r = s->open;
	int y = draw_head(s), body = LINES - 1 - y, warnings = (int)r->warnings_nr, ops = r->ops_nr ? (int)r->ops_nr + 2 : 0;
	unsigned i;

	if (warnings > body / 3)
		warnings = body / 3;
	if (ops > (body - warnings) / 2)
		ops = (body - warnings) / 2;
	if (ops < 3)
		ops = 0;
	s->rows_nr = 0;
	for (i = 0; i < r->workers_nr && i < ROWS_MAX; i++)
		s->rows[s->rows_nr++] = &r->workers[i];
	(void)draw_warnings(s, y, y + warnings);
	y += warnings;
	body -= warnings + ops;
	if (body > (int)r->workers_nr + 1)
		body = (int)r->workers_nr + 1;
	draw_table(s, y, body, &top_workers, &s->workers);
	y += body + 1;
	if (ops)
		draw_row(y, &top_ops, NULL, NULL, A_REVERSE);
	for (i = 0; i + 2 < (unsigned)(ops ? ops : 2) && i < r->ops_nr; i++)
		draw_row(y + 1 + (int)i, &top_ops, NULL, &r->ops[i], A_NORMAL);
	put_bar(LINES - 1, " q quit  h help  space pause  esc back  enter worker  t tasks  f functions  </> sort by  I invert  left/right columns");
}

/*
 * A bar for each power of two, above line `end`. @param octaves  [nr], the first from 0, each other one from 2^(its index + shift) ns
 * @return the line behind
 */
static int draw_octaves(const struct screen *s, int y, int end, const uint64_t *octaves, unsigned nr, unsigned shift)
{
	unsigned i, first = 0, last = 0;
	char line[128], low[16], high[16];
	uint64_t most = 0;

	for (i = 0; i < nr; i++) {
		if (octaves[i] == 0)
			continue;
		first = most ? first : i;
		last = i;
		most = octaves[i] > most ? octaves[i] : most;
	}
	if (most == 0) {
		put(y++, 2, "none was timed", A_NORMAL);
		return y;
	}
	for (i = first; i <= last && y < end; i++, y++) {
		int bar = (int)(octaves[i] * BAR_WIDTH / most);

		(void)top_ns(low, i ? (double)(UINT64_C(1) << (i + shift)) : 0);
		(void)top_ns(high, (double)(UINT64_C(1) << (i + 1 + shift)));
		(void)snprintf(line, sizeof(line), "%8s .. %-8s %10llu |%.*s", low, high, (unsigned long long)octaves[i], bar,
			       "****************************************"); /* fits */
		put(y, 0, line, colour(s, COLOUR_GOOD));
	}
	return y;
}

static void draw_histogram(const struct screen *s, int y, const struct buckets *b)
{
	uint64_t octaves[MRT_HIST_NR / 4 + 2] = { 0 };
	unsigned i;

	for (i = 0; i < MRT_HIST_NR; i++)
		octaves[i ? (i - 1) / 4 + 1 : 0] += b->bucket[i];
	put(y++, 0, "polls since the last look, by time:", A_BOLD);
	(void)draw_octaves(s, y, LINES - 1, octaves, sizeof(octaves) / sizeof(octaves[0]), MRT_HIST_FIRST_SHIFT - 1);
}

static void draw_worker(struct screen *s)
{
	const struct top_runtime *r = s->open;
	const struct top_worker *w = &r->workers[s->worker];
	char line[512], cell[TOP_CELL_BYTES];
	unsigned i, nr = 0, lines;
	int y = 3, wide = 26;

	(void)snprintf(line, sizeof(line), "%s (%d), runtime %s, worker %u", r->process, r->pid, r->label, s->worker);
	put(1, 0, line, A_BOLD);
	if (!r->a)
		put(2, 0, "This runtime has ended; below is what was seen last. Esc goes back.", colour(s, COLOUR_BAD));
	for (i = 0; i < top_workers.nr; i++)
		nr += top_workers.columns[i].title != NULL;
	lines = COLS >= 2 * wide ? (nr + (unsigned)(COLS / wide) - 1) / (unsigned)(COLS / wide) : nr;
	for (i = 0, nr = 0; i < top_workers.nr; i++) {
		const struct top_column *c = &top_workers.columns[i];

		if (!c->title)
			continue;
		top_cell(c, w, cell);
		(void)snprintf(line, sizeof(line), "%-9s %s", c->title, cell); /* fits */
		put(y + (int)(nr % lines), wide * (int)(nr / lines), line, row_attr(s, &top_workers, w));
		nr++;
	}
	draw_histogram(s, y + (int)lines + 1, &w->poll);
	put_bar(LINES - 1, " q quit  h help  space pause  esc back  up/down another worker");
}

static void draw_punts(const struct screen *s)
{
	char line[256];

	if (top_punts_line(&s->tasks, line, sizeof(line)))
		put(3, 0, line, colour(s, COLOUR_BAD));
}

/* @param lack  what cannot be had of the tasks; NULL: nothing */
static void draw_cost(const struct screen *s, const char *lack)
{
	if (!s->open->a)
		put(2, 0, "This runtime has ended; below is what was seen last. Esc goes back.", colour(s, COLOUR_BAD));
	else
		put(2, 0, lack ? lack : "Each hit of a probe costs the process about half a microsecond; esc ends that.", A_NORMAL);
}

static void draw_tasks(struct screen *s)
{
	const struct task_list *l = &s->tasks.list;
	char line[TOP_TASKS_WHY_BYTES + 64];
	unsigned i;

	top_task_list_line(s->open, &s->tasks, line, sizeof(line));
	put(1, 0, line, A_BOLD);
	(void)snprintf(line, sizeof(line), "no numbers, and none that sleeps: %s", s->tasks.why); /* cut to fit */
	draw_cost(s, s->tasks.why[0] ? line : NULL);
	draw_punts(s);
	s->rows_nr = 0;
	for (i = 0; i < l->nr && i < ROWS_MAX; i++)
		s->rows[s->rows_nr++] = &l->rows[i];
	draw_table(s, 4, LINES - 5, &top_task_rows, &s->tasks_at);
	if (s->rows_nr == 0)
		put(6, 2, "there is no task", A_BOLD);
	put_bar(LINES - 1, " q quit  h help  space pause  esc back  enter task  f by function  </> sort by  I invert");
}

static int draw_task_hist(const struct screen *s, int y, int end, const char *what, const struct trace_hist *h)
{
	char line[256];

	top_quantiles_line(what, h, line, sizeof(line));
	put(y++, 0, line, A_BOLD);
	return draw_octaves(s, y, end, h->slots, TRACE_HIST_SLOTS, 0) + 1;
}

static void draw_task(struct screen *s)
{
	const struct task_row *t = task_list_find(&s->tasks.list, s->task, s->task_met_ns);
	char line[512];
	unsigned i;
	int y = 1;

	put_bar(LINES - 1, " q quit  h help  space pause  esc back");
	if (!t) {
		put(y, 0, "This task has ended, and its memory is another's; or its entry was dropped. Esc goes back.",
		    colour(s, COLOUR_BAD));
		return;
	}
	s->task_met_ns = t->met_ns;
	top_task_head(t, s->tasks.list.now_ns, line, sizeof(line));
	put(y++, 0, line, A_BOLD);
	top_task_times(t, line, sizeof(line));
	put(y++, 0, line, A_NORMAL);
	for (i = 0; top_task_warning(t, i, line + 2, sizeof(line) - 2); i++) {
		line[0] = '!';
		line[1] = ' ';
		put(y++, 0, line, colour(s, COLOUR_BAD));
	}
	if (!s->open->a)
		put(y++, 0, "This runtime has ended; this is what was seen last. Esc goes back.", colour(s, COLOUR_BAD));
	y = draw_task_hist(s, y + 1, (y + LINES) / 2, "polls", &t->poll);
	(void)draw_task_hist(s, y, LINES - 1, "waits from the wake to the poll", &t->sched);
}

static void draw_functions(struct screen *s)
{
	char line[256];
	unsigned i;

	(void)snprintf(line, sizeof(line), "%s (%d): tasks by function, while the probes are listened to; %llu events lost",
		       s->open->process, s->open->pid, (unsigned long long)s->tasks.lost); /* fits */
	put(1, 0, line, A_BOLD);
	draw_cost(s, NULL);
	draw_punts(s);
	s->rows_nr = 0;
	for (i = 0; i < s->tasks.nr && i < ROWS_MAX; i++)
		s->rows[s->rows_nr++] = &s->tasks.functions[i];
	draw_table(s, 4, LINES - 5, &top_functions, &s->functions);
	if (s->rows_nr == 0)
		put(6, 2, "no task was polled since", A_BOLD);
	put_bar(LINES - 1, " q quit  h help  space pause  esc back  t tasks one by one  </> sort by  I invert");
}

static void draw_help(struct screen *s)
{
	static const char *const keys[] = {
		"q, F10        end", "h, ?, F1      this help", "space         pause: nothing is looked at until the next space",
		"up, down, PgUp, PgDn, Home, End       move", "left, right   move the columns", "enter         open what is selected",
		"esc           go back", "<, >          sort by another column (F6: the next)", "I, R          invert the order",
		"t             tasks one by one, with the BPF programs of martlet trace",
		"f             tasks by function, with the same",
		"+, -          look more, less often", "", "All polls and ops of a runtime are timed while it is looked into; that ends",
		"three seconds after the last look, however martlet top ends.", "",
	};
	const struct top_table *t = s->view == VIEW_WORKER ? &top_workers : s->view == VIEW_TASK ? &top_task_rows : table_of(s);
	unsigned i, at = 0;
	char line[256];

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++, at++) {
		if (at >= s->help.first)
			put(1 + (int)(at - s->help.first), 1, keys[i], A_NORMAL);
	}
	for (i = 0; i < t->nr + top_ops.nr; i++) {
		const struct top_column *c = i < t->nr ? &t->columns[i] : &top_ops.columns[i - t->nr];

		if (!c->title || (i >= t->nr && t != &top_workers))
			continue;
		(void)snprintf(line, sizeof(line), "%-9s %s", c->title, c->help); /* fits */
		if (at >= s->help.first)
			put(1 + (int)(at - s->help.first), 1, line, A_NORMAL);
		at++;
	}
	if (s->help.first + 1 > at)
		s->help.first = at ? at - 1 : 0;
	put_bar(LINES - 1, " up/down scroll  any other key goes back");
}

static void draw(struct screen *s)
{
	(void)erase();
	draw_title(s);
	if (s->helps)
		draw_help(s);
	else if (s->view == VIEW_LIST)
		draw_list(s);
	else if (s->view == VIEW_RUNTIME)
		draw_runtime(s);
	else if (s->view == VIEW_TASKS)
		draw_tasks(s);
	else if (s->view == VIEW_FUNCTIONS)
		draw_functions(s);
	else if (s->view == VIEW_TASK)
		draw_task(s);
	else
		draw_worker(s);
	if (s->why[0]) {
		put(LINES - 2, 0, "tasks cannot be shown: ", colour(s, COLOUR_BAD));
		put(LINES - 2, 23, s->why, colour(s, COLOUR_BAD));
	}
	(void)refresh();
}

/* ---- keys ---- */

static void open_runtime(struct screen *s, struct top_runtime *r)
{
	s->open = r;
	s->view = VIEW_RUNTIME;
	s->workers.selected = s->workers.first = 0;
	s->looked_ns = 0; /* ask for timing now */
}

static void open_selected(struct screen *s)
{
	const struct cursor *c = cursor_of(s);
	unsigned at = c ? c->selected : 0, i;

	if (!c || s->view == VIEW_FUNCTIONS || at >= s->rows_nr)
		return;
	if (s->view == VIEW_TASKS) {
		const struct task_row *t = s->rows[at];

		s->task = t->addr;
		s->task_met_ns = t->met_ns;
		s->view = VIEW_TASK;
		return;
	}
	if (s->view == VIEW_LIST) {
		for (i = 0; i < s->t->model.nr; i++) {
			if (s->t->model.items[i] == s->rows[at])
				open_runtime(s, s->t->model.items[i]);
		}
		return;
	}
	s->worker = ((const struct top_worker *)s->rows[at])->index;
	if (s->worker < s->open->workers_nr) /* it is what another program says */
		s->view = VIEW_WORKER;
}

static bool listens(const struct screen *s)
{
	return s->view == VIEW_TASKS || s->view == VIEW_FUNCTIONS || s->view == VIEW_TASK;
}

/* Why not is shown until the next key. */
static void open_tasks(struct screen *s, enum view view)
{
	if (!listens(s)) {
		if (s->view != VIEW_RUNTIME || !s->open->a || top_tasks_open(&s->tasks, s->open, s->why))
			return;
		s->functions = (struct cursor){ .sort = 1, .reverse = true };
		s->tasks_at = (struct cursor){ .sort = 4, .reverse = true }; /* the longest total first */
		s->looked_ns = 0; /* those that are there are shown now */
	}
	s->view = view;
}

static void go_back(struct screen *s)
{
	if (s->view == VIEW_TASK) {
		s->view = VIEW_TASKS;
	} else if (listens(s)) {
		top_tasks_close(&s->tasks);
		s->view = VIEW_RUNTIME;
	} else if (s->view == VIEW_WORKER) {
		s->view = VIEW_RUNTIME;
	} else if (s->view == VIEW_RUNTIME) {
		s->view = VIEW_LIST;
		s->open = NULL;
		top_forget(&s->t->model);
	}
}

static void move_by(struct screen *s, int by)
{
	struct cursor *c = cursor_of(s);
	unsigned *at = s->helps ? &s->help.first : c ? &c->selected : &s->worker;
	unsigned end = s->helps ? 200 : s->view == VIEW_TASK ? 0 : s->view == VIEW_WORKER ? s->open->workers_nr : s->rows_nr;
	long to = (long)*at + by;

	if (end == 0)
		return;
	if (to >= (long)end)
		to = (long)end - 1;
	*at = to < 0 ? 0 : (unsigned)to;
}

static void change_columns(struct screen *s, int key)
{
	const struct top_table *t = table_of(s);
	struct cursor *c = cursor_of(s);

	if (!t || !c)
		return;
	switch (key) {
	case KEY_LEFT:
		c->first_column = c->first_column > 3 ? next_column(t, c->first_column, -1) : 2;
		break;
	case KEY_RIGHT:
		c->first_column = next_column(t, c->first_column < 2 ? 2 : c->first_column, 1);
		break;
	case '<':
	case ',':
		c->sort = next_column(t, c->sort, -1);
		break;
	default:
		c->sort = next_column(t, c->sort, 1);
		break;
	}
	/* the biggest first, but for names and numbers of things */
	if (key == '<' || key == ',' || key == '>' || key == '.' || key == KEY_F(6))
		c->reverse = t->columns[c->sort].format != TOP_TEXT && c->sort > 3;
}

static void change_interval(struct top *t, int key)
{
	uint64_t ns = key == '+' ? t->interval_ns / 2 : t->interval_ns * 2;

	if (ns >= TOP_INTERVAL_MIN_NS && ns <= TOP_INTERVAL_MAX_NS)
		t->interval_ns = ns;
}

/* Moves in tables and in the help. @return false: it is another key */
static bool handle_move(struct screen *s, int key)
{
	int page = LINES > 10 ? LINES - 8 : 2;

	switch (key) {
	case KEY_UP:
	case 'k':
		move_by(s, -1);
		return true;
	case KEY_DOWN:
	case 'j':
		move_by(s, 1);
		return true;
	case KEY_PPAGE:
		move_by(s, -page);
		return true;
	case KEY_NPAGE:
		move_by(s, page);
		return true;
	case KEY_HOME:
		move_by(s, -(int)ROWS_MAX);
		return true;
	case KEY_END:
		move_by(s, (int)ROWS_MAX);
		return true;
	default:
		return false;
	}
}

static void handle_key(struct screen *s, int key)
{
	if (key == 'q' || key == KEY_F(10)) {
		s->ends = true;
		return;
	}
	if (key == ERR || key == KEY_RESIZE)
		return;
	s->why[0] = '\0';
	if (handle_move(s, key))
		return;
	if (s->helps) {
		s->helps = false;
		return;
	}
	switch (key) {
	case 'h':
	case '?':
	case KEY_F(1):
		s->helps = true;
		s->help.first = 0;
		break;
	case ' ':
		s->paused = !s->paused;
		break;
	case '\n':
	case '\r':
	case KEY_ENTER:
		open_selected(s);
		break;
	case KEY_ESC:
	case KEY_BACKSPACE:
		go_back(s);
		break;
	case '+':
	case '-':
		change_interval(s->t, key);
		break;
	case 'I':
	case 'R':
		if (cursor_of(s))
			cursor_of(s)->reverse ^= true;
		break;
	case 't':
		open_tasks(s, VIEW_TASKS);
		break;
	case 'f':
		open_tasks(s, VIEW_FUNCTIONS);
		break;
	case KEY_LEFT:
	case KEY_RIGHT:
	case '<':
	case ',':
	case '>':
	case '.':
	case KEY_F(6):
		change_columns(s, key);
		break;
	default:
		break;
	}
}

/* ---- the loop ---- */

static void look(struct screen *s)
{
	s->looked_ns = clock_ns();
	s->error = top_look(s->t, s->open) || (listens(s) && s->open->a && top_tasks_look(&s->tasks, s->open)) ? "  out of memory" : NULL;
	if (s->view == VIEW_LIST)
		top_forget(&s->t->model);
}

static void run(struct screen *s)
{
	while (!s->ends && !told_to_end) {
		uint64_t now = clock_ns(), due = s->looked_ns + s->t->interval_ns;

		if (!s->paused && now >= due) {
			look(s);
			due = s->looked_ns + s->t->interval_ns;
		}
		draw(s);
		now = clock_ns();
		timeout(s->paused ? -1 : due > now ? (int)((due - now) / CLOCK_NS_PER_MS) + 1 : 0);
		handle_key(s, getch());
	}
}

static void set_up(struct screen *s)
{
	const char *no_colour = getenv("NO_COLOR");

	(void)cbreak();
	(void)noecho();
	(void)nonl();
	(void)curs_set(0); /* a terminal that cannot: then it blinks */
	(void)keypad(stdscr, true);
	(void)set_escdelay(ESC_WAIT_MS);
	s->is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	s->has_colours = has_colors() && !(no_colour && *no_colour) && start_color() == OK && use_default_colors() == OK;
	if (!s->has_colours)
		return;
	(void)init_pair(COLOUR_GOOD, COLOR_GREEN, -1);
	(void)init_pair(COLOUR_BUSY, COLOR_YELLOW, -1);
	(void)init_pair(COLOUR_BAD, COLOR_RED, -1);
	(void)init_pair(COLOUR_DIM, COLOR_CYAN, -1);
}

const char *top_screen_missing(void)
{
	return NULL;
}

int top_screen(struct top *t)
{
	static struct screen s;         /* rows make it large */
	struct sigaction sa = { .sa_handler = on_end };
	SCREEN *terminal;

	(void)setlocale(LC_CTYPE, "");
	terminal = newterm(NULL, stdout, stdin);
	if (!terminal) {
		const char *term = getenv("TERM");

		fprintf(stderr, "martlet top: terminal '%s' is not known here: set TERM; or use --once\n", term ? term : "");
		return EXIT_FAILURE;
	}
	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
	(void)sigaction(SIGHUP, &sa, NULL);
	s.t = t;
	s.list.sort = 5; /* the busiest first */
	s.list.reverse = true;
	set_up(&s);
	s.looked_ns = clock_ns();
	if (t->model.nr == 1)
		open_runtime(&s, t->model.items[0]);
	run(&s);
	(void)endwin();
	top_tasks_close(&s.tasks);
	delscreen(terminal);
	return EXIT_SUCCESS;
}
#endif
