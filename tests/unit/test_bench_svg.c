/* SPDX-License-Identifier: MIT */
/*
 * Charts: what is written is well-formed XML whatever the texts are (by a small parser here, and by xmllint where that
 * is installed), bars are as tall as their values, error bars end where they should, points rise to the right. Not
 * proven here: that it looks well.
 */
#include <check.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "svg.h"
#include "suite.h"

#define TIME_LIMIT_S 30
#define TEXT_MAX (1u << 20)
#define DEPTH_MAX 32

static char text[TEXT_MAX];

static int draw(const struct svg_chart *c)
{
	FILE *f = fmemopen(text, sizeof(text), "w");
	int rc;

	ck_assert_ptr_nonnull(f);
	rc = svg_write(f, c);
	fclose(f);
	return rc;
}

/* --- a reader of XML: elements, attributes, character data, the five entities --- */

static const char *at;

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '-' || c == '_' || c == ':';
}

static void skip_blanks(void)
{
	while (isspace((unsigned char)*at))
		at++;
}

static void read_entity(void)
{
	static const char *const entities[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&apos;" };

	for (unsigned i = 0; i < 5; i++) {
		if (strncmp(at, entities[i], strlen(entities[i])) == 0) {
			at += strlen(entities[i]);
			return;
		}
	}
	ck_abort_msg("no entity: %.20s", at);
}

static void read_characters(const char *end)
{
	while (*at && !strchr(end, *at)) {
		ck_assert_msg((unsigned char)*at >= ' ' || isspace((unsigned char)*at), "control character %d", *at);
		if (*at == '&')
			read_entity();
		else
			at++;
	}
}

static void read_attributes(void)
{
	for (skip_blanks(); is_name(*at); skip_blanks()) {
		while (is_name(*at))
			at++;
		ck_assert_msg(at[0] == '=' && at[1] == '"', "no value: %.40s", at);
		at += 2;
		read_characters("\"<");
		ck_assert_msg(*at++ == '"', "value without an end: %.40s", at - 1);
	}
}

static size_t read_name(char *name)
{
	size_t n = 0;

	while (is_name(*at) && n < 31)
		name[n++] = *at++;
	name[n] = '\0';
	ck_assert_uint_gt(n, 0);
	return n;
}

/* All of text[]; dies where it is not well-formed. */
static void parse(void)
{
	char open[DEPTH_MAX][32], name[32];
	unsigned depth = 0, roots = 0;

	at = text;
	ck_assert(strncmp(at, "<?xml ", 6) == 0);
	at = strstr(at, "?>") + 2;
	for (;;) {
		if (depth)
			read_characters("<");
		else
			skip_blanks();
		if (*at == '\0')
			break;
		ck_assert_msg(*at++ == '<', "text outside the root: %.40s", at - 1);
		if (*at == '/') {
			at++;
			(void)read_name(name);
			ck_assert_uint_gt(depth, 0);
			ck_assert_str_eq(name, open[--depth]);
			ck_assert(*at++ == '>');
			continue;
		}
		(void)read_name(open[depth]);
		roots += depth == 0;
		read_attributes();
		if (*at == '/')
			at++;
		else
			ck_assert_uint_lt(++depth, DEPTH_MAX);
		ck_assert_msg(*at++ == '>', "tag without an end: %.40s", at - 1);
	}
	ck_assert_uint_eq(depth, 0);
	ck_assert_uint_eq(roots, 1);
}

static void parse_by_xmllint(void)
{
	char path[] = "/tmp/martlet-svg.XXXXXX", line[128];
	int fd = mkstemp(path), rc;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	snprintf(line, sizeof(line), "! command -v xmllint >/dev/null || xmllint --noout %s", path);
	rc = system(line);
	unlink(path);
	ck_assert_int_eq(rc, 0);
}

/* Value of an attribute of the nth element that begins so. */
static double attribute(const char *element, unsigned nth, const char *name)
{
	const char *found = text;
	char want[32];

	for (unsigned i = 0; i <= nth; i++) {
		found = strstr(found + (i > 0), element);
		ck_assert_msg(found != NULL, "no %s number %u", element, nth);
	}
	snprintf(want, sizeof(want), " %s=\"", name);
	return atof(strstr(found, want) + strlen(want));
}

static unsigned count(const char *what)
{
	unsigned n = 0;

	for (const char *p = text; (p = strstr(p, what)); p++)
		n++;
	return n;
}

/* --- charts --- */

static const double depths[] = { 1, 2, 4, 8, 16, 32 }, rates[] = { 20e3, 40e3, 75e3, 130e3, 160e3, 165e3 };

START_TEST(lines_are_well_formed_and_rise_to_the_right)
{
	double low[6], high[6], before = 0;
	struct svg_series lines[2] = {
		{ .name = "martlet", .x = depths, .y = rates, .low = low, .high = high },
		{ .name = "raw", .x = depths, .y = rates },
	};
	struct svg_chart c = {
		.kind = SVG_LINES, .title = "t", .x_label = "depth", .y_label = "IOPS", .nr = 6, .series = lines,
		.series_nr = 2, .log_x = _i,
	};

	for (unsigned i = 0; i < 6; i++) {
		low[i] = rates[i] * 0.9;
		high[i] = rates[i] * 1.1;
	}
	ck_assert_int_eq(draw(&c), 0);
	parse();
	parse_by_xmllint();
	ck_assert_uint_eq(count("<polyline"), 2);
	ck_assert_uint_eq(count("<circle"), 12);
	ck_assert_ptr_nonnull(strstr(text, ">martlet<"));
	ck_assert_ptr_nonnull(strstr(text, ">100k<"));
	for (unsigned i = 0; i < 6; i++) {
		double x = attribute("<circle", i, "cx"), step = x - before;

		ck_assert_double_gt(step, 0);
		if (_i && i > 1)        /* doubles are equal steps */
			ck_assert_double_eq_tol(step, attribute("<circle", 1, "cx") - attribute("<circle", 0, "cx"), 0.02);
		before = x;
	}
}
END_TEST

START_TEST(bars_are_as_tall_as_their_values)
{
	static const char *const names[] = { "buffered", "O_DIRECT", "fixed" };
	static const double y[] = { 100, 200, 50 }, low[] = { 90, 150, 50 }, high[] = { 110, 400, 50 };
	struct svg_series bars = { .name = "IOPS", .y = y, .low = low, .high = high };
	struct svg_chart c = {
		.kind = SVG_BARS, .title = "t", .x_label = "rung", .y_label = "IOPS", .categories = names, .nr = 3,
		.series = &bars, .series_nr = 1,
	};
	double unit, top;

	ck_assert_int_eq(draw(&c), 0);
	parse();
	parse_by_xmllint();
	ck_assert_uint_eq(count("class=\"bar\""), 3);
	unit = attribute("<rect class=\"bar\"", 0, "height") / 100;
	ck_assert_double_eq_tol(attribute("<rect class=\"bar\"", 1, "height"), 200 * unit, 0.02);
	ck_assert_double_eq_tol(attribute("<rect class=\"bar\"", 2, "height"), 50 * unit, 0.02);
	/* nothing is above the plot, the highest error bar included: it is drawn after the second bar */
	top = attribute("<rect class=\"bar\"", 1, "y") - 200 * unit;
	ck_assert_double_ge(top, 0);
	{
		const char *error = strstr(strstr(strstr(text, "class=\"bar\"") + 1, "class=\"bar\""), "<line");
		double y1, y2;

		ck_assert_int_eq(sscanf(error, "<line x1=\"%*f\" y1=\"%lf\" x2=\"%*f\" y2=\"%lf\"", &y1, &y2), 2);
		ck_assert_double_eq_tol(y1 - y2, 250 * unit, 0.03);
	}
}
END_TEST

START_TEST(any_text_is_escaped)
{
	static const char *const names[] = { "a<b>&\"c'", "tab\tand\001" };
	static const double y[] = { 1, 2 };
	struct svg_series bars = { .name = "</svg>", .y = y };
	struct svg_series both[2] = { bars, bars };
	struct svg_chart c = {
		.kind = SVG_BARS, .title = "<script>&", .x_label = "\"", .y_label = "]]>", .categories = names, .nr = 2,
		.series = both, .series_nr = 2,
	};

	ck_assert_int_eq(draw(&c), 0);
	parse();
	parse_by_xmllint();
	ck_assert_ptr_null(strstr(text, "<script"));
}
END_TEST

START_TEST(odd_values_give_a_chart_nevertheless)
{
	static const double zero[] = { 0 }, tiny[] = { 3e-7 }, huge[] = { 5e12 }, *const values[] = { zero, tiny, huge };
	struct svg_series line = { .name = "l", .x = zero, .y = values[_i] };
	struct svg_chart c = {
		.kind = SVG_LINES, .title = "", .x_label = "", .y_label = "", .nr = 1, .series = &line, .series_nr = 1,
	};

	ck_assert_int_eq(draw(&c), 0);
	parse();
	ck_assert_ptr_null(strstr(text, "nan"));
	ck_assert_ptr_null(strstr(text, "inf"));
}
END_TEST

START_TEST(no_points_are_no_chart)
{
	struct svg_chart c = { .title = "", .x_label = "", .y_label = "" };

	ck_assert_int_eq(draw(&c), -EINVAL);
	ck_assert_str_eq(text, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_svg");
	TCase *t = tcase_create("svg");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_loop_test(t, lines_are_well_formed_and_rise_to_the_right, 0, 2);
	tcase_add_test(t, bars_are_as_tall_as_their_values);
	tcase_add_test(t, any_text_is_escaped);
	tcase_add_loop_test(t, odd_values_give_a_chart_nevertheless, 0, 3);
	tcase_add_test(t, no_points_are_no_chart);
	suite_add_tcase(s, t);
	return suite_main(s);
}
