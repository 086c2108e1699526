/* SPDX-License-Identifier: MIT */
/*
 * `martlet compare`: neighbouring runs in pairs, from their JSON, whichever tool wrote it: fio's fields are bench's. What
 * a run is worth is its IOPS and its CPU time per I/O; a pair gives a ratio, the pairs give a median with a bootstrap
 * interval. A bound is missed only when the whole interval lies beyond it: less is noise.
 *
 * Figures of another kind are given as plain numbers (--figures); for these the ratios of the medians and of the minima are told
 * as well, and the bound holds where both do: with the five rounds of a program that takes its time, that is sharper than
 * an interval.
 *
 * fio writes warnings in front of its document, so reading begins at the first line that opens one.
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <json-c/json.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap.h"
#include "series.h"

#define FILE_BYTES_MAX (8u << 20)

struct figures {
	double iops, cpu_us;            /* cpu_us: per I/O */
};

struct bound {
	const char *name;
	bool given, at_least;
	double value;
};

struct pairs {
	bool scaling, as_json, as_figures, by_minima;
	const char *label;
	struct bound iops, cpu, at_most;
	struct figures *runs;
	unsigned runs_nr;
};

/* --- a run --- */

static char *read_whole(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(FILE_BYTES_MAX + 1) : NULL;
	size_t n = 0;

	if (text) {
		n = fread(text, 1, FILE_BYTES_MAX, f);
		text[n] = '\0';
	}
	if (f)
		(void)fclose(f); /* only read */
	return text;
}

/* The document: from a line that begins with a brace. */
static struct json_object *parse(const char *text)
{
	const char *start = text;

	while (*start != '{') {
		start = strchr(start, '\n');
		if (!start)
			return NULL;
		start++;
	}
	return json_tokener_parse(start);
}

static struct json_object *child(struct json_object *o, const char *key)
{
	struct json_object *c = NULL;

	(void)json_object_object_get_ex(o, key, &c); /* c stays NULL */
	return c;
}

static double number(struct json_object *o, const char *key)
{
	return json_object_get_double(child(o, key));
}

/* Sum over jobs and directions. CPU shares are per cent of the job's run time. */
static int judge_document(struct json_object *doc, struct figures *ret)
{
	struct json_object *jobs = child(doc, "jobs");
	size_t nr = jobs && json_object_is_type(jobs, json_type_array) ? json_object_array_length(jobs) : 0;
	double ios = 0, cpu_us = 0, iops = 0;

	for (size_t i = 0; i < nr; i++) {
		struct json_object *job = json_object_array_get_idx(jobs, i), *own = child(job, "martlet");
		struct json_object *r = child(job, "read"), *w = child(job, "write");
		double job_ios = number(r, "total_ios") + number(w, "total_ios");
		double ms = fmax(number(r, "runtime"), number(w, "runtime"));

		if (number(job, "error") != 0)
			return -EIO;
		ios += job_ios;
		iops += number(r, "iops") + number(w, "iops");
		if (own && child(own, "cpu_us_per_io"))
			cpu_us += number(own, "cpu_us_per_io") * job_ios;
		else
			cpu_us += (number(job, "usr_cpu") + number(job, "sys_cpu")) / 100 * ms * 1000;
	}
	if (ios <= 0 || iops <= 0)
		return -ENODATA;
	*ret = (struct figures){ iops, cpu_us / ios };
	return 0;
}

static int read_run(const char *path, struct figures *ret)
{
	char *text = read_whole(path);
	struct json_object *doc = text ? parse(text) : NULL;
	int rc = doc ? judge_document(doc, ret) : -EINVAL;

	if (rc)
		fprintf(stderr, "martlet compare: %s: %s\n", path, !text ? "cannot be read" : !doc ? "no JSON document" :
			rc == -EIO ? "the run had errors" : "no I/O in any job");
	(void)json_object_put(doc); /* the count of what it freed */
	free(text);
	return rc;
}

/* --- the figures --- */

static double ratio_of(const struct pairs *p, unsigned group, bool cpu)
{
	const struct figures *f = p->runs + (size_t)group * (p->scaling ? 4 : 2);
	double v[4] = { 0 };

	for (unsigned i = 0; i < (p->scaling ? 4u : 2u); i++)
		v[i] = cpu ? f[i].cpu_us : f[i].iops;
	return p->scaling ? v[2] / v[0] / (v[3] / v[1]) : v[0] / v[1];
}

struct verdict {
	struct ratio q;
	bool missed;
};

static struct verdict judge(const struct pairs *p, bool cpu)
{
	const struct bound *b = cpu ? &p->cpu : &p->iops;
	unsigned nr = p->runs_nr / (p->scaling ? 4 : 2);
	double values[BOOTSTRAP_VALUES_MAX];
	struct verdict v;

	for (unsigned i = 0; i < nr; i++)
		values[i] = ratio_of(p, i, cpu);
	v.q.ci = bootstrap_median(values, nr);
	v.q.spread = spread_of(values, nr);
	v.missed = b->given && (b->at_least ? v.q.ci.high < b->value : v.q.ci.low > b->value);
	return v;
}

/* Median of column i of the groups. */
static double column(const struct pairs *p, unsigned i, bool cpu)
{
	unsigned width = p->scaling ? 4 : 2, nr = p->runs_nr / width;
	double values[BOOTSTRAP_VALUES_MAX];

	for (unsigned k = 0; k < nr; k++)
		values[k] = cpu ? p->runs[k * width + i].cpu_us : p->runs[k * width + i].iops;
	return spread_of(values, nr).median;
}

static void print_text(const struct pairs *p, const struct verdict *v, bool cpu)
{
	const struct bound *b = cpu ? &p->cpu : &p->iops;

	printf("%-24s %-12s %.3f  95 %% %.3f..%.3f  all %.3f..%.3f", p->label, cpu ? "CPU per I/O" : "IOPS",
	       v->q.spread.median, v->q.ci.low, v->q.ci.high, v->q.spread.min, v->q.spread.max);
	printf(cpu ? "  (%.2f, %.2f us)" : "  (%.0f, %.0f)", column(p, p->scaling ? 2 : 0, cpu),
	       column(p, p->scaling ? 3 : 1, cpu));
	if (b->given)
		printf("  %s (%s %.3g)", v->missed ? "SHORT" : "ok", b->at_least ? "at least" : "at most", b->value);
	putchar('\n');
}

static void add_verdict(struct json_object *doc, const struct pairs *p, const struct verdict *v, bool cpu)
{
	const struct bound *b = cpu ? &p->cpu : &p->iops;
	struct json_object *o = json_object_new_object(), *columns = json_object_new_array();
	const struct {
		const char *key;
		double value;
	} rows[] = {
		{ "median", v->q.spread.median }, { "ci95_low", v->q.ci.low }, { "ci95_high", v->q.ci.high },
		{ "min", v->q.spread.min }, { "max", v->q.spread.max },
	};

	/* what cannot be added is missing in the print */
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		(void)json_object_object_add(o, rows[i].key, json_object_new_double(rows[i].value));
	for (unsigned i = 0; i < (p->scaling ? 4u : 2u); i++)
		(void)json_object_array_add(columns, json_object_new_double(column(p, i, cpu)));
	(void)json_object_object_add(o, "medians", columns);
	if (b->given) {
		(void)json_object_object_add(o, b->at_least ? "at_least" : "at_most", json_object_new_double(b->value));
		(void)json_object_object_add(o, "short", json_object_new_boolean(v->missed));
	}
	(void)json_object_object_add(doc, cpu ? "cpu_us_per_io" : "iops", o);
}

static void print_json(const struct pairs *p, const struct verdict v[2])
{
	struct json_object *doc = json_object_new_object();

	(void)json_object_object_add(doc, "label", json_object_new_string(p->label));
	(void)json_object_object_add(doc, "pairs", json_object_new_int((int)(p->runs_nr / (p->scaling ? 4 : 2))));
	add_verdict(doc, p, &v[0], false);
	if (!p->scaling)
		add_verdict(doc, p, &v[1], true);
	printf("%s\n", json_object_to_json_string_ext(doc, JSON_C_TO_STRING_NOSLASHESCAPE));
	(void)json_object_put(doc); /* the count of what it freed */
}

/* --- plain figures --- */

struct plain {
	struct ratio q;
	struct spread side[2];          /* A, B */
	double medians, minima;         /* ratios of these */
	bool missed;
};

static int read_figure(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	if (end != text && *end == '\0' && isfinite(*ret) && *ret > 0)
		return 0;
	fprintf(stderr, "martlet compare: '%s' is no figure above 0\n", text);
	return -EINVAL;
}

/* texts: [2 * nr], A B A B.. */
static int judge_plain(const struct pairs *p, char **texts, unsigned nr, struct plain *ret)
{
	double side[2][BOOTSTRAP_VALUES_MAX], ratios[BOOTSTRAP_VALUES_MAX];
	int rc = 0;

	for (unsigned i = 0; i < 2 * nr && rc == 0; i++)
		rc = read_figure(texts[i], &side[i % 2][i / 2]);
	if (rc)
		return rc;
	for (unsigned i = 0; i < nr; i++)
		ratios[i] = side[0][i] / side[1][i];
	ret->q.ci = bootstrap_median(ratios, nr);
	ret->q.spread = spread_of(ratios, nr);
	for (unsigned i = 0; i < 2; i++)
		ret->side[i] = spread_of(side[i], nr);
	ret->medians = ret->side[0].median / ret->side[1].median;
	ret->minima = ret->side[0].min / ret->side[1].min;
	ret->missed = p->at_most.given && (ret->minima > p->at_most.value ||
					   (!p->by_minima && ret->medians > p->at_most.value));
	return 0;
}

static void print_plain_text(const struct pairs *p, const struct plain *v)
{
	printf("%-24s %.3f  95 %% %.3f..%.3f  all %.3f..%.3f  medians %.3f  minima %.3f", p->label, v->q.spread.median,
	       v->q.ci.low, v->q.ci.high, v->q.spread.min, v->q.spread.max, v->medians, v->minima);
	if (p->at_most.given)
		printf("  %s (at most %.3g)", v->missed ? "SHORT" : "ok", p->at_most.value);
	putchar('\n');
}

static void print_plain_json(const struct pairs *p, const struct plain *v, unsigned nr)
{
	struct json_object *doc = json_object_new_object();
	const struct {
		const char *key;
		double value;
	} rows[] = {
		{ "median", v->q.spread.median }, { "ci95_low", v->q.ci.low }, { "ci95_high", v->q.ci.high },
		{ "min", v->q.spread.min }, { "max", v->q.spread.max }, { "ratio_of_medians", v->medians },
		{ "ratio_of_minima", v->minima },
	};

	/* what cannot be added is missing in the print */
	(void)json_object_object_add(doc, "label", json_object_new_string(p->label));
	(void)json_object_object_add(doc, "pairs", json_object_new_int((int)nr));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		(void)json_object_object_add(doc, rows[i].key, json_object_new_double(rows[i].value));
	if (p->at_most.given) {
		(void)json_object_object_add(doc, "at_most", json_object_new_double(p->at_most.value));
		(void)json_object_object_add(doc, "short", json_object_new_boolean(v->missed));
	}
	printf("%s\n", json_object_to_json_string_ext(doc, JSON_C_TO_STRING_NOSLASHESCAPE));
	(void)json_object_put(doc); /* the count of what it freed */
}

/* @return exit code */
static int compare_figures(const struct pairs *p, char **texts, int texts_nr)
{
	unsigned nr = (unsigned)texts_nr / 2;
	struct plain v;

	if (texts_nr < 2 || texts_nr % 2 || nr > BOOTSTRAP_VALUES_MAX) {
		fprintf(stderr, "martlet compare: figures come in pairs, at most %u of them\n", BOOTSTRAP_VALUES_MAX);
		return EXIT_USAGE;
	}
	if (judge_plain(p, texts, nr, &v))
		return EXIT_USAGE;
	if (p->as_json)
		print_plain_json(p, &v, nr);
	else
		print_plain_text(p, &v);
	return v.missed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* --- the command --- */

static void print_usage(FILE *out)
{
	fputs("usage: martlet compare [options] A B [A B].. \n"
	      "Ratio A/B of neighbouring runs, from JSON results of `martlet bench` or fio: the median over the pairs and\n"
	      "its 95 % bootstrap interval. Exit code 1: a bound is missed, that is, the whole interval lies beyond it.\n\n"
	      "  --scaling       groups of four: A and B alone, then A and B with more workers: (A4/A1)/(B4/B1)\n"
	      "  --iops-min=R    the IOPS ratio is to be at least this\n"
	      "  --cpu-max=R     the ratio of CPU time per I/O is to be at most this\n"
	      "  --figures       not files but figures, A B A B..; also ratios of the medians and the minima\n"
	      "  --at-most=R     of figures: both of these ratios are to be at most this\n"
	      "  --by-minima     of figures that have modes: only that of the minima is\n"
	      "  --label=TEXT    what is compared\n"
	      "  --json          one JSON document, in one line\n", out);
}

static int set_bound(struct bound *b, const char *name, const char *text)
{
	char *end;

	b->name = name;
	b->given = true;
	b->value = strtod(text, &end);
	if (end != text && *end == '\0' && isfinite(b->value) && b->value > 0)
		return 0;
	fprintf(stderr, "martlet compare: --%s: '%s' is no ratio\n", name, text);
	return -EINVAL;
}

/* Bounds of files and of figures are not mixed. */
static int check_options(const struct pairs *p)
{
	if (p->as_figures && (p->scaling || p->iops.given || p->cpu.given))
		fputs("martlet compare: --figures has the bound --at-most, and is not for --scaling\n", stderr);
	else if (!p->as_figures && (p->at_most.given || p->by_minima))
		fputs("martlet compare: --at-most and --by-minima are for --figures\n", stderr);
	else
		return 0;
	return -EINVAL;
}

static int parse_options(struct pairs *p, int argc, char **argv)
{
	static const struct option table[] = {
		{ "scaling", no_argument, NULL, 's' }, { "iops-min", required_argument, NULL, 'i' },
		{ "cpu-max", required_argument, NULL, 'c' }, { "figures", no_argument, NULL, 'f' },
		{ "at-most", required_argument, NULL, 'm' }, { "by-minima", no_argument, NULL, 'n' },
		{ "label", required_argument, NULL, 'l' },
		{ "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	int c, rc = 0;

	optind = 0;
	while (rc == 0 && (c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (c) {
		case 's':
			p->scaling = true;
			break;
		case 'i':
			rc = set_bound(&p->iops, "iops-min", optarg);
			break;
		case 'c':
			rc = set_bound(&p->cpu, "cpu-max", optarg);
			break;
		case 'f':
			p->as_figures = true;
			break;
		case 'm':
			rc = set_bound(&p->at_most, "at-most", optarg);
			break;
		case 'n':
			p->by_minima = true;
			break;
		case 'l':
			p->label = optarg;
			break;
		case 'j':
			p->as_json = true;
			break;
		case 'h':
			print_usage(stdout);
			return 1;
		default:
			print_usage(stderr);
			rc = -EINVAL;
		}
	}
	if (rc == 0)
		rc = check_options(p);
	return rc;
}

static int read_runs(struct pairs *p, int argc, char **argv)
{
	unsigned width = p->scaling ? 4 : 2, nr = (unsigned)(argc - optind);
	int rc = 0;

	if (nr == 0 || nr % width || nr / width > BOOTSTRAP_VALUES_MAX) {
		fprintf(stderr, "martlet compare: files come in groups of %u, at most %u of them\n", width,
			BOOTSTRAP_VALUES_MAX);
		return -EINVAL;
	}
	p->runs = calloc(nr, sizeof(*p->runs));
	if (!p->runs)
		return -ENOMEM;
	for (p->runs_nr = 0; p->runs_nr < nr && rc == 0; p->runs_nr++)
		rc = read_run(argv[optind + (int)p->runs_nr], &p->runs[p->runs_nr]);
	return rc;
}

int compare_main(int argc, char **argv)
{
	struct pairs p = { .label = "A/B", .iops = { .at_least = true } };
	struct verdict v[2];
	int rc = parse_options(&p, argc, argv);

	if (rc)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	if (p.as_figures)
		return compare_figures(&p, argv + optind, argc - optind);
	rc = read_runs(&p, argc, argv);
	if (rc) {
		free(p.runs);
		return EXIT_USAGE;
	}
	v[0] = judge(&p, false);
	v[1] = judge(&p, true);
	if (p.as_json) {
		print_json(&p, v);
	} else {
		print_text(&p, &v[0], false);
		if (!p.scaling)
			print_text(&p, &v[1], true);
	}
	free(p.runs);
	return v[0].missed || (!p.scaling && v[1].missed) ? EXIT_FAILURE : EXIT_SUCCESS;
}
