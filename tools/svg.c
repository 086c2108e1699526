/* SPDX-License-Identifier: MIT */
/*
 * Fixed size, one plot area, legend on the right. Ticks are at 1, 2 or 5 times a power of ten; a logarithmic x axis has
 * them at the powers of two. Colours are those of Okabe and Ito, which people with any colour vision can tell apart.
 */
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "output.h"

#define WIDTH 860.0
#define HEIGHT 480.0
#define LEFT 84.0
#define RIGHT 150.0             /* room for the legend */
#define TOP 48.0
#define BOTTOM 72.0
#define TICKS_NR 6.0            /* about so many on an axis */
#define CAP 4.0                 /* half the width of an error bar's end */
#define LABEL_CHARS_MAX 14u     /* longer category names are turned */

static const char *const colours[] = {
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442",
};

struct plot {
	FILE *out;
	const struct svg_chart *c;
	double x_min, x_max, y_max;
};

static const char *colour(unsigned idx)
{
	return colours[idx % (sizeof(colours) / sizeof(colours[0]))];
}

/* Text of the user's; control characters are not XML. */
static void put_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
		}
	}
}

/* "250k", "1.2M", "0.5" */
static void put_number(FILE *out, double n)
{
	static const struct {
		double unit;
		const char *suffix;
	} units[] = { { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } };

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (n >= units[i].unit) {
			fprintf(out, "%.4g%s", n / units[i].unit, units[i].suffix);
			return;
		}
	}
	fprintf(out, "%.4g", n);
}

static double tick_step(double span)
{
	double raw = span / TICKS_NR, power = pow(10, floor(log10(raw)));

	if (raw <= power)
		return power;
	if (raw <= 2 * power)
		return 2 * power;
	return raw <= 5 * power ? 5 * power : 10 * power;
}

/* --- positions --- */

static double at_y(const struct plot *p, double y)
{
	return HEIGHT - BOTTOM - y / p->y_max * (HEIGHT - TOP - BOTTOM);
}

static double along_x(const struct plot *p, double share)
{
	(void)p;
	return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double at_x(const struct plot *p, double x)
{
	double from = p->x_min, to = p->x_max;

	if (p->c->log_x) {
		x = log2(x);
		from = log2(from);
		to = log2(to);
	}
	return along_x(p, to > from ? (x - from) / (to - from) : 0.5);
}

/* Where a bar's middle is, and its width. */
static double bar_x(const struct plot *p, unsigned category, unsigned series, double *ret_width)
{
	double slot = (WIDTH - LEFT - RIGHT) / p->c->nr, width = slot * 0.7 / p->c->series_nr;

	*ret_width = width;
	return LEFT + slot * (category + 0.15) + width * (series + 0.5);
}

static void learn_range(struct plot *p)
{
	const struct svg_chart *c = p->c;
	double top = 0;

	for (unsigned s = 0; s < c->series_nr; s++) {
		for (unsigned i = 0; i < c->nr; i++) {
			const struct svg_series *q = &c->series[s];

			top = fmax(top, fmax(q->y[i], q->high ? q->high[i] : 0));
			if (c->kind == SVG_BARS)
				continue;
			if (s + i == 0)
				p->x_min = p->x_max = q->x[i];
			p->x_min = fmin(p->x_min, q->x[i]);
			p->x_max = fmax(p->x_max, q->x[i]);
		}
	}
	if (!(top > 0))
		top = 1;
	p->y_max = ceil(top / tick_step(top) - 1e-9) * tick_step(top);
}

/* --- parts --- */

static void line(FILE *out, double x1, double y1, double x2, double y2, const char *stroke)
{
	fprintf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, stroke);
}

static void text(FILE *out, double x, double y, const char *more, const char *what)
{
	fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" %s>", x, y, more);
	put_text(out, what);
	fputs("</text>\n", out);
}

static void tick_label(FILE *out, double x, double y, const char *anchor, double n)
{
	fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\">", x, y, anchor);
	put_number(out, n);
	fputs("</text>\n", out);
}

static void draw_x_ticks(const struct plot *p)
{
	double step = p->c->log_x ? 2 : tick_step(fmax(p->x_max - p->x_min, 1e-9));
	double first = p->c->log_x ? exp2(ceil(log2(p->x_min) - 1e-9)) : ceil(p->x_min / step - 1e-9) * step;

	for (double x = first; x <= p->x_max * (1 + 1e-9); x = p->c->log_x ? x * step : x + step) {
		line(p->out, at_x(p, x), HEIGHT - BOTTOM, at_x(p, x), HEIGHT - BOTTOM + 5, "#333");
		tick_label(p->out, at_x(p, x), HEIGHT - BOTTOM + 20, "middle", x);
	}
}

static void draw_categories(const struct plot *p)
{
	bool turned = false;

	for (unsigned i = 0; i < p->c->nr; i++)
		turned |= strlen(p->c->categories[i]) > LABEL_CHARS_MAX || p->c->nr > 8;
	for (unsigned i = 0; i < p->c->nr; i++) {
		double x = along_x(p, (i + 0.5) / p->c->nr), y = HEIGHT - BOTTOM + 20;
		char more[96] = "text-anchor=\"middle\"";

		if (turned)
			snprintf(more, sizeof(more), "text-anchor=\"end\" transform=\"rotate(-25 %.2f %.2f)\"", x, y);
		text(p->out, x, y, more, p->c->categories[i]);
	}
}

static void draw_axes(const struct plot *p)
{
	double step = tick_step(p->y_max);
	char turned[96];

	for (double y = 0; y <= p->y_max * (1 + 1e-9); y += step) {
		line(p->out, LEFT, at_y(p, y), WIDTH - RIGHT, at_y(p, y), "#ddd");
		tick_label(p->out, LEFT - 8, at_y(p, y) + 4, "end", y);
	}
	if (p->c->kind == SVG_BARS)
		draw_categories(p);
	else
		draw_x_ticks(p);
	line(p->out, LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#333");
	line(p->out, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#333");
	text(p->out, LEFT, 26, "font-size=\"16\" font-weight=\"bold\"", p->c->title);
	text(p->out, along_x(p, 0.5), HEIGHT - 12, "text-anchor=\"middle\"", p->c->x_label);
	snprintf(turned, sizeof(turned), "text-anchor=\"middle\" transform=\"rotate(-90 18 %.2f)\"",
		 (TOP + HEIGHT - BOTTOM) / 2);
	text(p->out, 18, (TOP + HEIGHT - BOTTOM) / 2, turned, p->c->y_label);
}

static void draw_error(const struct plot *p, double x, double low, double high)
{
	line(p->out, x, at_y(p, low), x, at_y(p, high), "#333");
	line(p->out, x - CAP, at_y(p, low), x + CAP, at_y(p, low), "#333");
	line(p->out, x - CAP, at_y(p, high), x + CAP, at_y(p, high), "#333");
}

static void draw_bars(const struct plot *p, unsigned s)
{
	const struct svg_series *q = &p->c->series[s];

	for (unsigned i = 0; i < p->c->nr; i++) {
		double width, x = bar_x(p, i, s, &width), top = at_y(p, q->y[i]);

		fprintf(p->out, "<rect class=\"bar\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n",
			x - width / 2, top, width, HEIGHT - BOTTOM - top, colour(s));
		if (q->low && q->high)
			draw_error(p, x, q->low[i], q->high[i]);
	}
}

static void draw_lines(const struct plot *p, unsigned s)
{
	const struct svg_series *q = &p->c->series[s];

	fprintf(p->out, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"", colour(s));
	for (unsigned i = 0; i < p->c->nr; i++)
		fprintf(p->out, "%s%.2f,%.2f", i ? " " : "", at_x(p, q->x[i]), at_y(p, q->y[i]));
	fputs("\"/>\n", p->out);
	for (unsigned i = 0; i < p->c->nr; i++) {
		if (q->low && q->high)
			draw_error(p, at_x(p, q->x[i]), q->low[i], q->high[i]);
		if (p->c->nr <= 100)
			fprintf(p->out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"3\" fill=\"%s\"/>\n", at_x(p, q->x[i]),
				at_y(p, q->y[i]), colour(s));
	}
}

static void draw_legend(const struct plot *p)
{
	for (unsigned s = 0; p->c->series_nr > 1 && s < p->c->series_nr; s++) {
		double y = TOP + 10 + 20 * s;

		fprintf(p->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
			WIDTH - RIGHT + 14, y, colour(s));
		text(p->out, WIDTH - RIGHT + 32, y + 10, "", p->c->series[s].name);
	}
}

int svg_write(FILE *out, const struct svg_chart *c)
{
	struct plot p = { .out = out, .c = c };

	if (c->series_nr == 0 || c->nr == 0)
		return -EINVAL;
	learn_range(&p);
	fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
		"height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n", WIDTH, HEIGHT,
		WIDTH, HEIGHT);
	fprintf(out, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"white\"/>\n", WIDTH, HEIGHT);
	draw_axes(&p);
	for (unsigned s = 0; s < c->series_nr; s++) {
		if (c->kind == SVG_BARS)
			draw_bars(&p, s);
		else
			draw_lines(&p, s);
	}
	draw_legend(&p);
	fputs("</svg>\n", out);
	return output_flush(out);
}
