/* SPDX-License-Identifier: MIT */
/*
 * The command line. getopt_long() splits it; a table gives each option its setter and its line of help. Two things
 * getopt does not do: fio writes ramp_time with an underscore and output-format with a dash, so both are accepted
 * everywhere; and getopt takes any unique prefix, which would let a mistyped option mean another one, so names are
 * checked to be exact before getopt sees them. An option that fio has and we lack is refused by name: a benchmark that
 * ignores an option measures something else than was asked.
 */
#include "opts.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NS_PER_SEC UINT64_C(1000000000)
#define RUNTIME_DEFAULT_NS (10 * NS_PER_SEC)
#define COMPARE_RUNTIME_DEFAULT_NS (2 * NS_PER_SEC)

struct parse {
	struct bench_opts *o;
	FILE *err;
	const char *name;       /* the option being set */
};

typedef int set_fn(struct parse *p, const char *v);

struct option_row {
	const char *name;
	int arg;                /* no_argument, required_argument, optional_argument */
	set_fn *set;
	const char *value, *help;
};

__attribute__((format(printf, 2, 3)))
static int refuse(struct parse *p, const char *fmt, ...)
{
	va_list ap;

	fprintf(p->err, "martlet bench: --%s: ", p->name);
	va_start(ap, fmt);
	vfprintf(p->err, fmt, ap);
	va_end(ap);
	fputc('\n', p->err);
	return -EINVAL;
}

/* --- values --- */

static int parse_u64(const char *text, uint64_t *ret, const char **ret_end)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	*ret = strtoull(text, &end, 0);
	*ret_end = end;
	return errno ? -EINVAL : 0;
}

int opts_size(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "kmgtp";
	const char *end, *unit;
	unsigned shift = 0;
	uint64_t n;

	if (parse_u64(text, &n, &end))
		return -EINVAL;
	if (*end && (unit = strchr(units, tolower((unsigned char)*end)))) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
		if (tolower((unsigned char)*end) == 'i')
			end++;
	}
	if (tolower((unsigned char)*end) == 'b')
		end++;
	if (*end || n > UINT64_MAX >> shift)
		return -EINVAL;
	*ret_bytes = n << shift;
	return 0;
}

int opts_time(const char *text, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {
		{ "", 1e9 }, { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 }, { "m", 60e9 }, { "h", 3600e9 },
	};
	char *end;
	double n;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	n = strtod(text, &end);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].unit) == 0 && n * units[i].ns < 9e18) {
			*ret_ns = (uint64_t)(n * units[i].ns);
			return 0;
		}
	}
	return -EINVAL;
}

static int set_bytes(struct parse *p, const char *v, uint64_t *field)
{
	if (opts_size(v, field))
		return refuse(p, "'%s' is no size; write 4096, 4k, 1m, 2g", v);
	return 0;
}

static int set_ns(struct parse *p, const char *v, uint64_t *field)
{
	if (opts_time(v, field))
		return refuse(p, "'%s' is no time; write 10, 10s, 500ms, 2m", v);
	return 0;
}

static int set_count(struct parse *p, const char *v, uint64_t min, uint64_t max, uint64_t *field)
{
	const char *end;
	uint64_t n = 0;

	if (parse_u64(v, &n, &end) || *end || n < min || n > max)
		return refuse(p, "'%s' is not a number from %llu to %llu", v, (unsigned long long)min,
			      (unsigned long long)max);
	*field = n;
	return 0;
}

static int set_unsigned(struct parse *p, const char *v, unsigned min, unsigned max, unsigned *field)
{
	uint64_t n = min;
	int rc = set_count(p, v, min, max, &n);

	if (rc == 0)
		*field = (unsigned)n;
	return rc;
}

/* A flag is on when it is named; =0 and =1 say it as fio's files do. */
static int set_flag(struct parse *p, const char *v, bool *field)
{
	if (!v || strcmp(v, "1") == 0)
		*field = true;
	else if (strcmp(v, "0") == 0)
		*field = false;
	else
		return refuse(p, "'%s' is neither 0 nor 1", v);
	return 0;
}

/* For behaviour that this tool always has, or never has: only the true value is accepted. */
static int set_fixed(struct parse *p, const char *v, bool truth, const char *why)
{
	bool want = truth;
	int rc = set_flag(p, v, &want);

	if (rc == 0 && want != truth)
		return refuse(p, "%s", why);
	return rc;
}

/* --- setters, in the order of the table --- */

const char *opts_target(const struct bench_opts *o, unsigned idx)
{
	return o->target_text + o->target_at[idx];
}

/* fio's list: colons separate, a backslash takes the meaning from the colon or the backslash that follows it. */
static int set_filename(struct parse *p, const char *v)
{
	struct bench_opts *o = p->o;
	char *to = o->target_text;

	if (strlen(v) >= sizeof(o->target_text))
		return refuse(p, "more than %u bytes of names", OPTS_TARGET_BYTES - 1);
	o->filename = v;
	o->targets_nr = 0;
	for (;;) {
		const char *start = to;

		if (o->targets_nr == OPTS_TARGETS_MAX)
			return refuse(p, "more than %u targets", OPTS_TARGETS_MAX);
		o->target_at[o->targets_nr++] = (unsigned)(to - o->target_text);
		for (; *v && *v != ':'; v++) {
			if (*v == '\\' && (v[1] == ':' || v[1] == '\\'))
				v++;
			*to++ = *v;
		}
		*to++ = '\0';
		if (*start == '\0')
			return refuse(p, "an empty name in '%s'; write \\: for a colon that belongs to a name",
				      o->filename);
		if (*v++ == '\0')
			return 0;
	}
}

static int set_service(struct parse *p, const char *v)
{
	if (strcmp(v, "roundrobin"))
		return refuse(p, "'%s': the I/Os of a job always go to its targets in turn, which is roundrobin", v);
	return 0;
}

static int set_size(struct parse *p, const char *v)
{
	size_t n = strlen(v);
	char *end;

	if (n && v[n - 1] == '%') {
		unsigned long percent = strtoul(v, &end, 10);

		if (end != v + n - 1 || percent < 1 || percent > 100)
			return refuse(p, "'%s' is not 1%% to 100%%", v);
		p->o->size_percent = (unsigned)percent;
		p->o->size = 0;
		return 0;
	}
	p->o->size_percent = 0;
	return set_bytes(p, v, &p->o->size);
}

static int set_offset(struct parse *p, const char *v) { return set_bytes(p, v, &p->o->offset); }
static int set_direct(struct parse *p, const char *v) { return set_flag(p, v, &p->o->direct); }
static int set_create(struct parse *p, const char *v) { return set_flag(p, v, &p->o->create); }
static int set_keep(struct parse *p, const char *v) { return set_flag(p, v, &p->o->keep); }
static int set_allow_write(struct parse *p, const char *v) { return set_flag(p, v, &p->o->allow_write); }
static int set_readonly(struct parse *p, const char *v) { return set_flag(p, v, &p->o->readonly); }

static int set_rw(struct parse *p, const char *v)
{
	static const struct {
		const char *word;
		bool reads, writes, random;
	} words[] = {
		{ "read", true, false, false }, { "write", false, true, false },
		{ "randread", true, false, true }, { "randwrite", false, true, true },
		{ "rw", true, true, false }, { "readwrite", true, true, false }, { "randrw", true, true, true },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(v, words[i].word) == 0) {
			p->o->rw = words[i].word;
			p->o->reads = words[i].reads;
			p->o->writes = words[i].writes;
			p->o->random = words[i].random;
			return 0;
		}
	}
	return refuse(p, "'%s' is none of read, write, randread, randwrite, rw, randrw", v);
}

static int set_mix(struct parse *p, const char *v) { return set_unsigned(p, v, 0, 100, &p->o->rwmixread); }

static int set_mix_write(struct parse *p, const char *v)
{
	unsigned writes = 0;
	int rc = set_unsigned(p, v, 0, 100, &writes);

	if (rc == 0)
		p->o->rwmixread = 100 - writes;
	return rc;
}

static int set_bs(struct parse *p, const char *v)
{
	int rc = set_bytes(p, v, &p->o->bs);

	if (rc == 0 && (p->o->bs == 0 || p->o->bs > UINT64_C(1) << 30))
		return refuse(p, "'%s' is outside 1 byte to 1 GiB", v);
	return rc;
}

static int set_iodepth(struct parse *p, const char *v)
{
	return set_unsigned(p, v, 1, OPTS_IODEPTH_MAX, &p->o->iodepth);
}

static int set_numjobs(struct parse *p, const char *v)
{
	return set_unsigned(p, v, 1, OPTS_NUMJOBS_MAX, &p->o->numjobs);
}

static int set_distribution(struct parse *p, const char *v)
{
	char *end;

	if (strcmp(v, "random") == 0) {
		p->o->dist = DIST_UNIFORM;
		return 0;
	}
	if (strncmp(v, "zipf", 4) == 0 && (v[4] == ':' || v[4] == '\0')) {
		p->o->dist = DIST_ZIPF;
		p->o->zipf_theta = 1.1;
		if (v[4] == '\0')
			return 0;
		p->o->zipf_theta = strtod(v + 5, &end);
		if (end != v + 5 && *end == '\0' && p->o->zipf_theta > 0 && p->o->zipf_theta <= 20)
			return 0;
		return refuse(p, "the theta of '%s' is not above 0 and at most 20", v);
	}
	return refuse(p, "'%s' is neither random nor zipf:THETA", v);
}

static int set_norandommap(struct parse *p, const char *v)
{
	return set_fixed(p, v, true, "blocks are always drawn independently of each other; there is no map of those "
			 "already visited");
}

static int set_seed(struct parse *p, const char *v) { return set_count(p, v, 0, UINT64_MAX, &p->o->seed); }

static int set_randrepeat(struct parse *p, const char *v)
{
	bool repeat = true;
	int rc = set_flag(p, v, &repeat);

	if (rc == 0 && !repeat && getrandom(&p->o->seed, sizeof(p->o->seed), 0) != sizeof(p->o->seed))
		return refuse(p, "no random seed from the kernel: %s", strerror(errno));
	return rc;
}

static int set_runtime(struct parse *p, const char *v)
{
	int rc = set_ns(p, v, &p->o->runtime_ns);

	p->o->runtime_given = true;
	if (rc == 0 && p->o->runtime_ns == 0)
		return refuse(p, "a run of no time measures nothing");
	return rc;
}

static int set_ramp(struct parse *p, const char *v) { return set_ns(p, v, &p->o->ramp_ns); }

static int set_time_based(struct parse *p, const char *v)
{
	return set_fixed(p, v, true, "runs are time based unless --number_ios or --io_size ends them; use one of these");
}

static int set_number_ios(struct parse *p, const char *v)
{
	return set_count(p, v, 1, UINT64_MAX, &p->o->number_ios);
}

static int set_io_size(struct parse *p, const char *v)
{
	int rc = set_bytes(p, v, &p->o->io_size);

	return rc == 0 && p->o->io_size == 0 ? refuse(p, "0 bytes measure nothing") : rc;
}

static int set_rate(struct parse *p, const char *v)
{
	return set_count(p, v, 1, 100000000, &p->o->rate_iops);
}

static int set_rate_process(struct parse *p, const char *v)
{
	if (strcmp(v, "linear") && strcmp(v, "poisson"))
		return refuse(p, "'%s' is neither linear nor poisson", v);
	p->o->rate_poisson = v[0] == 'p';
	return 0;
}

static int set_verify(struct parse *p, const char *v)
{
	if (strcmp(v, "crc32c") == 0)
		p->o->verify = VERIFY_CRC32C;
	else if (strcmp(v, "pattern") == 0)
		p->o->verify = VERIFY_PATTERN;
	else
		return refuse(p, "'%s' is neither crc32c nor pattern", v);
	return 0;
}

static int hex_digit(char c)
{
	if (isdigit((unsigned char)c))
		return c - '0';
	return isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

static int set_pattern(struct parse *p, const char *v)
{
	size_t n = strlen(v);

	if (n < 4 || n % 2 || n > 2 + 2 * OPTS_PATTERN_MAX || v[0] != '0' || tolower((unsigned char)v[1]) != 'x')
		return refuse(p, "'%s' is not 0x and 1 to %u bytes of two hex digits each", v, OPTS_PATTERN_MAX);
	p->o->pattern_nr = 0;
	for (const char *c = v + 2; *c; c += 2) {
		int high = hex_digit(c[0]), low = hex_digit(c[1]);

		if (high < 0 || low < 0)
			return refuse(p, "'%s' has a digit that is not hex", v);
		p->o->pattern[p->o->pattern_nr++] = (unsigned char)(high << 4 | low);
	}
	p->o->verify = VERIFY_PATTERN;
	return 0;
}

static int set_do_verify(struct parse *p, const char *v) { return set_flag(p, v, &p->o->do_verify); }
static int set_verify_fatal(struct parse *p, const char *v) { return set_flag(p, v, &p->o->verify_fatal); }

const char *opts_engine_name(enum opts_engine e)
{
	static const char *const names[ENGINES_NR] = { "martlet", "raw", "psync" };

	return names[e];
}

static int set_engine(struct parse *p, const char *v)
{
	for (unsigned i = 0; i < ENGINES_NR; i++) {
		if (strcmp(v, opts_engine_name((enum opts_engine)i)) == 0) {
			p->o->engine = (enum opts_engine)i;
			return 0;
		}
	}
	return refuse(p, "'%s' is none of martlet, raw, psync", v);
}

static int set_compare(struct parse *p, const char *v)
{
	p->o->compare_rounds = OPTS_COMPARE_ROUNDS;
	return v ? set_unsigned(p, v, 1, 1000, &p->o->compare_rounds) : 0;
}

static int set_repeat(struct parse *p, const char *v) { return set_unsigned(p, v, 1, 1000, &p->o->repeat); }

static int set_ladder(struct parse *p, const char *v)
{
	p->o->ladder_rounds = OPTS_LADDER_ROUNDS;
	return v ? set_unsigned(p, v, 1, 1000, &p->o->ladder_rounds) : 0;
}

static int set_thread(struct parse *p, const char *v)
{
	return set_fixed(p, v, true, "jobs are always threads of one process");
}

/* "0-3,8": as in fio's cpus_allowed and /proc/self/status. */
static int set_cpus(struct parse *p, const char *v)
{
	const char *at = v;

	CPU_ZERO(&p->o->cpus);
	for (;;) {
		uint64_t first, last;
		const char *end;

		if (parse_u64(at, &first, &end))
			break;
		last = first;
		if (*end == '-' && parse_u64(end + 1, &last, &end))
			break;
		if (first > last || last >= CPU_SETSIZE)
			break;
		for (uint64_t cpu = first; cpu <= last; cpu++)
			CPU_SET((size_t)cpu, &p->o->cpus);
		if (*end == '\0') {
			p->o->cpus_given = true;
			return 0;
		}
		if (*end != ',')
			break;
		at = end + 1;
	}
	return refuse(p, "'%s' is no list of CPUs; write 0-3,8", v);
}

static int set_slat_sample(struct parse *p, const char *v)
{
	return set_unsigned(p, v, 1, 1000000, &p->o->slat_sample);
}

static int set_fixedbufs(struct parse *p, const char *v) { return set_flag(p, v, &p->o->fast.fixedbufs); }
static int set_registerfiles(struct parse *p, const char *v) { return set_flag(p, v, &p->o->fast.registerfiles); }
static int set_hipri(struct parse *p, const char *v) { return set_flag(p, v, &p->o->fast.hipri); }
static int set_hybrid(struct parse *p, const char *v) { return set_flag(p, v, &p->o->fast.hybrid); }
static int set_sqpoll(struct parse *p, const char *v) { return set_flag(p, v, &p->o->fast.sqpoll); }

static int set_sqpoll_cpu(struct parse *p, const char *v)
{
	unsigned cpu = 0;
	int rc = set_unsigned(p, v, 0, CPU_SETSIZE - 1, &cpu);

	if (rc == 0)
		p->o->fast.sqpoll_cpu = (int)cpu;
	return rc;
}

static int set_sqpoll_idle(struct parse *p, const char *v)
{
	return set_unsigned(p, v, 1, 60000, &p->o->fast.sqpoll_idle_ms);
}

static int set_cmd_type(struct parse *p, const char *v)
{
	if (strcmp(v, "none") && strcmp(v, "nvme"))
		return refuse(p, "'%s' is neither none nor nvme", v);
	p->o->fast.nvme = v[1] == 'v';
	return 0;
}

static int set_nonvectored(struct parse *p, const char *v)
{
	return set_fixed(p, v, true, "reads and writes are never vectored here");
}

static int set_pre_read(struct parse *p, const char *v)
{
	bool on = true;
	int rc;

	if (v && strcmp(v, "auto") == 0)
		return 0;
	rc = set_flag(p, v, &on);
	p->o->pre_read = on ? OPTS_YES : OPTS_NO;
	return rc;
}

static int set_invalidate(struct parse *p, const char *v)
{
	return set_fixed(p, v, false, "page caches are never dropped here; use --direct for the device's speed");
}

static int set_name(struct parse *p, const char *v)
{
	p->o->name = v;
	return 0;
}

static int set_group(struct parse *p, const char *v)
{
	return set_flag(p, v, &p->o->group);
}

static int set_output(struct parse *p, const char *v)
{
	p->o->output = v;
	return 0;
}

/* fio: without a name, that of the job, which may be given later. */
static int set_iops_log(struct parse *p, const char *v)
{
	p->o->iops_log = v ? v : "";
	return 0;
}

static int set_bw_log(struct parse *p, const char *v)
{
	p->o->bw_log = v ? v : "";
	return 0;
}

static int set_lat_log(struct parse *p, const char *v)
{
	p->o->lat_log = v ? v : "";
	return 0;
}

static int set_log_avg(struct parse *p, const char *v)
{
	p->o->log_avg_given = true;
	return set_unsigned(p, v, 10, 3600000, &p->o->log_avg_ms);
}

static int set_log_offset(struct parse *p, const char *v) { return set_flag(p, v, &p->o->log_offset); }

static int set_log_mem(struct parse *p, const char *v)
{
	int rc = set_bytes(p, v, &p->o->log_mem);

	if (rc == 0 && (p->o->log_mem < 4096 || p->o->log_mem > UINT64_C(1) << 40))
		return refuse(p, "'%s' is outside 4k to 1t", v);
	return rc;
}

static int set_plot(struct parse *p, const char *v)
{
	p->o->plot = v;
	return 0;
}

static int set_hdr_log(struct parse *p, const char *v)
{
	p->o->hdr_log = v;
	return 0;
}

static int set_merge(struct parse *p, const char *v)
{
	if (v && strcmp(v, "parallel") && strcmp(v, "serial"))
		return refuse(p, "'%s' is neither parallel nor serial; the results are words of their own: --merge A B", v);
	p->o->merge = v && v[0] == 's' ? MERGE_SERIAL : MERGE_PARALLEL;
	return 0;
}

static int set_format(struct parse *p, const char *v)
{
	if (strcmp(v, "normal") == 0)
		p->o->format = OUTPUT_NORMAL;
	else if (strcmp(v, "json") == 0)
		p->o->format = OUTPUT_JSON;
	else if (strcmp(v, "json+") == 0)
		p->o->format = OUTPUT_JSON_PLUS;
	else
		return refuse(p, "'%s' is none of normal, json, json+", v);
	return 0;
}

static int set_eta(struct parse *p, const char *v)
{
	if (strcmp(v, "auto") == 0)
		p->o->eta = OPTS_AUTO;
	else if (strcmp(v, "never") == 0)
		p->o->eta = OPTS_NO;
	else if (strcmp(v, "always") == 0)
		p->o->eta = OPTS_YES;
	else
		return refuse(p, "'%s' is none of auto, always, never", v);
	return 0;
}

static int set_status(struct parse *p, const char *v)
{
	uint64_t ns = 0;
	int rc = set_ns(p, v, &ns);

	if (rc == 0 && (ns < NS_PER_SEC || ns / NS_PER_SEC > 86400))
		return refuse(p, "'%s' is outside 1 second to 1 day", v);
	p->o->status_interval_s = (unsigned)(ns / NS_PER_SEC);
	return rc;
}

static int set_percentiles(struct parse *p, const char *v)
{
	unsigned n = 0;
	char *end;

	do {
		double value = strtod(v, &end);

		/* said so that it refuses nan as well */
		if (end == v || (*end && *end != ':' && *end != ',') || !(value >= 0 && value <= 100))
			return refuse(p, "'%s' is no list such as 50:99:99.9", v);
		if (n == OPTS_PERCENTILES_MAX)
			return refuse(p, "more than %u percentiles", OPTS_PERCENTILES_MAX);
		p->o->percentile[n++] = value;
		v = end + 1;
	} while (*end);
	p->o->percentiles_nr = n;
	return 0;
}

static const struct option_row rows[] = {
	{ "filename", required_argument, set_filename, "A[:B..]",
	  "files or block devices; PATH alone means the same; \\: is a colon in a name" },
	{ "file_service_type", required_argument, set_service, "roundrobin",
	  "always so: a job's I/Os go to the targets in turn" },
	{ "size", required_argument, set_size, "SIZE|N%",
	  "length of the region (default: to the end); SIZE is divided among several targets" },
	{ "offset", required_argument, set_offset, "SIZE", "where the region starts" },
	{ "direct", optional_argument, set_direct, "0|1", "O_DIRECT; default 0, through the page cache" },
	{ "create", optional_argument, set_create, NULL,
	  "make the file (PATH may be a folder) with random data, remove it at the end; needs --size" },
	{ "keep", optional_argument, set_keep, NULL, "with --create: do not remove it" },
	{ "allow_write", optional_argument, set_allow_write, NULL,
	  "let write workloads overwrite what is there; refused on devices in use" },
	{ "readonly", optional_argument, set_readonly, NULL, "refuse any workload that writes" },

	{ "rw", required_argument, set_rw, "WORD", "read, write, randread (default), randwrite, rw, randrw" },
	{ "readwrite", required_argument, set_rw, "WORD", "the same as --rw" },
	{ "rwmixread", required_argument, set_mix, "PERCENT", "share of reads in rw and randrw (50)" },
	{ "rwmixwrite", required_argument, set_mix_write, "PERCENT", "share of writes in rw and randrw" },
	{ "bs", required_argument, set_bs, "SIZE", "bytes of an I/O (4k); offsets are multiples of it" },
	{ "blocksize", required_argument, set_bs, "SIZE", "the same as --bs" },
	{ "iodepth", required_argument, set_iodepth, "N", "I/Os in flight per job (32)" },
	{ "numjobs", required_argument, set_numjobs, "N", "jobs: workers, rings or groups of threads (1)" },
	{ "random_distribution", required_argument, set_distribution, "D", "random, or zipf:THETA (1.1)" },
	{ "norandommap", optional_argument, set_norandommap, NULL, "always so: blocks may repeat" },
	{ "randseed", required_argument, set_seed, "N", "seed of offsets, mix and data (1)" },
	{ "randrepeat", optional_argument, set_randrepeat, "0|1", "0: a new seed for each run" },

	{ "runtime", required_argument, set_runtime, "TIME", "length of the run (10s; 2s a round with --compare, --ladder)" },
	{ "ramp_time", required_argument, set_ramp, "TIME", "run this long first without counting" },
	{ "time_based", optional_argument, set_time_based, NULL, "always so, unless the next two end the run" },
	{ "number_ios", required_argument, set_number_ios, "N", "end after N I/Os per job" },
	{ "io_size", required_argument, set_io_size, "SIZE", "end after this many bytes per job" },

	{ "rate_iops", required_argument, set_rate, "N", "open loop: start N I/Os a second per job" },
	{ "rate_process", required_argument, set_rate_process, "P", "linear (default) or poisson" },

	{ "verify", required_argument, set_verify, "M", "crc32c or pattern: write checkable blocks, check reads" },
	{ "verify_pattern", required_argument, set_pattern, "HEX", "bytes of verify=pattern (0xa5)" },
	{ "do_verify", optional_argument, set_do_verify, "0|1", "read back what was written at the end (1)" },
	{ "verify_fatal", optional_argument, set_verify_fatal, "0|1", "stop at the first bad block (0)" },

	{ "engine", required_argument, set_engine, "E", "martlet (default), raw (bare ring), psync (pread threads)" },
	{ "ioengine", required_argument, set_engine, "E", "the same as --engine" },
	{ "compare", optional_argument, set_compare, "ROUNDS", "all engines in turn (5 rounds) and their ratios" },
	{ "repeat", required_argument, set_repeat, "N", "the same run N times: medians and spread" },
	{ "ladder", optional_argument, set_ladder, "ROUNDS",
	  "rung by rung: buffered, direct, registered buffers, file, polled, commands (3 rounds)" },
	{ "fixedbufs", optional_argument, set_fixedbufs, "0|1",
	  "registered buffers: the runtime's arena; the bare loop registers its own" },
	{ "registerfiles", optional_argument, set_registerfiles, "0|1", "registered files" },
	{ "hipri", optional_argument, set_hipri, "0|1", "poll the device for completions (IOPOLL); needs --direct=1" },
	{ "hybrid", optional_argument, set_hybrid, "0|1", "with --hipri: sleep before polling (kernel 6.13)" },
	{ "sqthread_poll", optional_argument, set_sqpoll, "0|1", "a kernel thread submits (SQPOLL); it needs a CPU" },
	{ "sqthread_poll_cpu", required_argument, set_sqpoll_cpu, "CPU", "where that thread runs" },
	{ "sqthread_idle", required_argument, set_sqpoll_idle, "MS", "how long it spins before it sleeps (1000)" },
	{ "cmd_type", required_argument, set_cmd_type, "T",
	  "none, or nvme: NVMe commands past the block layer; PATH is then /dev/ngXnY" },
	{ "nonvectored", optional_argument, set_nonvectored, NULL, "always so" },
	{ "cpus_allowed", required_argument, set_cpus, "LIST", "CPUs to run on, job i on the i-th of them" },
	{ "thread", optional_argument, set_thread, NULL, "always so" },
	{ "slat_sample", required_argument, set_slat_sample, "N", "time the submission of every Nth I/O (17)" },
	{ "pre_read", optional_argument, set_pre_read, "0|1|auto",
	  "read the region into the page cache first (auto: buffered reads of up to half of memory)" },
	{ "prefill", optional_argument, set_pre_read, "0|1|auto", "the same as --pre_read" },
	{ "invalidate", optional_argument, set_invalidate, "0", "always 0: caches are not dropped" },

	{ "name", required_argument, set_name, "NAME", "name of the job in the report" },
	{ "group_reporting", optional_argument, set_group, "0|1",
	  "1: jobs in one report with a line each (the default here, not in fio); 0: a report each" },
	{ "output", required_argument, set_output, "FILE", "write the result there" },
	{ "output_format", required_argument, set_format, "F", "normal, json, json+ (with histograms)" },
	{ "write_iops_log", optional_argument, set_iops_log, "PREFIX", "fio's log of IOPS, PREFIX_iops.JOB.log" },
	{ "write_bw_log", optional_argument, set_bw_log, "PREFIX", "fio's log of KiB/s, PREFIX_bw.JOB.log" },
	{ "write_lat_log", optional_argument, set_lat_log, "PREFIX",
	  "fio's log of latencies in ns, PREFIX_lat.JOB.log: of each I/O, or averaged" },
	{ "log_avg_msec", required_argument, set_log_avg, "MS", "interval of the logs (1000 for rates; latencies: none)" },
	{ "log_offset", optional_argument, set_log_offset, "0|1", "the offset of each I/O in the logs (0)" },
	{ "log_mem", required_argument, set_log_mem, "SIZE", "memory for the latency log (64m); what does not fit is counted" },
	{ "hdr_log", required_argument, set_hdr_log, "FILE", "latency distribution in HdrHistogram's format (.hgrm)" },
	{ "merge", optional_argument, set_merge, "parallel|serial",
	  "run nothing: add up results (json+) given as words, that ran side by side or one after the other" },
	{ "plot", required_argument, set_plot, "FILE", "a chart as SVG: IOPS over time, or of each run or engine" },
	{ "eta", required_argument, set_eta, "WHEN", "progress line: auto (on a terminal), always, never" },
	{ "status_interval", required_argument, set_status, "TIME", "a line of progress on stderr this often" },
	{ "percentile_list", required_argument, set_percentiles, "P:P..", "percentiles to report" },
};

#define ROWS_NR (sizeof(rows) / sizeof(rows[0]))

void opts_help(FILE *out)
{
	fputs("usage: martlet bench [options] PATH\n\n"
	      "Measures a file or block device; every I/O is an op of a Martlet task. Reads only, unless asked.\n"
	      "Options have fio's names where they mean the same.\n\n", out);
	for (size_t i = 0; i < ROWS_NR; i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].value ? "=" : "",
			 rows[i].value ? rows[i].value : "");
		fprintf(out, "  %-30s %s\n", left, rows[i].help);
	}
	fputs("\nexamples:\n"
	      "  martlet bench /var/tmp --create --size=1g --compare\n"
	      "  martlet bench --filename=/dev/nvme0n1 --direct=1 --iodepth=128 --runtime=30\n"
	      "  martlet bench /var/tmp/f --create --size=256m --rw=write --bs=64k --verify=crc32c\n", out);
}

/* --- the scan --- */

static int set_help(struct parse *p, const char *v)
{
	(void)p;
	(void)v;
	opts_help(stdout);
	return 1;
}

static const struct option_row help_row = { "help", no_argument, set_help, NULL, NULL };

static const struct option_row *find_row(const char *name, size_t len)
{
	for (size_t i = 0; i < ROWS_NR; i++) {
		if (strlen(rows[i].name) == len && strncmp(rows[i].name, name, len) == 0)
			return &rows[i];
	}
	return len == 4 && strncmp(name, "help", 4) == 0 ? &help_row : NULL;
}

static bool is_fio_option(const char *name)
{
	static const char *const lacking[] = {
		"allow_file_create", "allow_mounted_write", "blockalign", "ba", "bs_unaligned", "bsrange", "bssplit",
		"buffer_compress_percentage", "buffered", "clat_percentiles", "clocksource",
		"cpus_allowed_policy", "directory", "end_fsync", "exec_prerun", "experimental_verify", "fadvise_hint",
		"fallocate", "fdatasync", "filesize", "fill_device", "force_async",
		"fsync", "fsync_on_close", "gtod_reduce", "iodepth_batch", "iodepth_batch_complete_max",
		"iodepth_batch_complete_min", "iodepth_batch_submit", "iodepth_low", "ioscheduler", "iomem", "mem",
		"lat_percentiles", "latency_target", "latency_window", "lockmem", "loops", "nice",
		"nowait", "nrfiles", "offset_increment", "openfiles", "overwrite", "percentage_random",
		"prio", "rate", "rate_min", "refill_buffers", "rw_sequencer", "serialize_overlap",
		"softrandommap", "startdelay", "steadystate", "stonewall",
		"sync", "thinktime", "uncached", "unlink", "verify_async", "verify_backlog", "verify_interval",
		"verify_only", "wait_for", "zero_buffers", "zonemode",
	};

	for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
		if (strcmp(name, lacking[i]) == 0)
			return true;
	}
	return false;
}

/* Dashes to underscores in the name of a long option, in place; then it must be one of ours, in full. */
static int check_name(struct parse *p, char *arg)
{
	char *name = arg + 2, *end = strchr(name, '=');
	size_t len = end ? (size_t)(end - name) : strlen(name);

	for (size_t i = 0; i < len; i++) {
		if (name[i] == '-')
			name[i] = '_';
	}
	if (find_row(name, len))
		return 0;
	if (end)
		*end = '\0';
	p->name = name;
	if (is_fio_option(name))
		return refuse(p, "fio has this option, martlet bench has not; nothing is ignored, so nothing was run");
	return refuse(p, "no such option; `martlet bench --help` lists them");
}

static int check_names(struct parse *p, int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		const struct option_row *row;

		if (argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-' && strcmp(argv[i], "-h")) {
			fprintf(p->err, "martlet bench: %s: options are spelt with two dashes\n", argv[i]);
			return -EINVAL;
		}
		if (strncmp(argv[i], "--", 2))
			continue;
		if (check_name(p, argv[i]))
			return -EINVAL;
		row = find_row(argv[i] + 2, strcspn(argv[i] + 2, "="));
		if (row && row->arg == required_argument && !strchr(argv[i], '='))
			i++;            /* the value is the next word, whatever it looks like */
	}
	return 0;
}

static void note_given(struct bench_opts *o, const char *name, const char *value)
{
	if (o->given_nr < OPTS_GIVEN_MAX)
		o->given[o->given_nr++] = (struct opts_given){ name, value ? value : "1" };
}

static int scan(struct parse *p, int argc, char **argv)
{
	struct option table[ROWS_NR + 2] = { 0 };
	int at, rc;

	for (size_t i = 0; i < ROWS_NR; i++)
		table[i] = (struct option){ rows[i].name, rows[i].arg, NULL, 0 };
	table[ROWS_NR] = (struct option){ help_row.name, help_row.arg, NULL, 0 };
	optind = 0;
	opterr = 0;
	for (;;) {
		int c = getopt_long(argc, argv, ":h", table, &at);
		const struct option_row *row;

		if (c == -1)
			break;
		if (c == 'h')
			return set_help(p, NULL);
		if (c == ':' || c == '?') {
			fprintf(p->err, "martlet bench: %s: %s\n", argv[optind - 1],
				c == ':' ? "a value is missing" : "this option takes no value");
			return -EINVAL;
		}
		row = (size_t)at < ROWS_NR ? &rows[at] : &help_row;
		p->name = row->name;
		rc = row->set(p, optarg);
		if (rc)
			return rc;
		note_given(p->o, row->name, optarg);
	}
	if (p->o->merge) {
		p->o->inputs = argv + optind;
		p->o->inputs_nr = (unsigned)(argc - optind);
		return 0;
	}
	for (; optind < argc; optind++) {
		p->name = "filename";
		if (p->o->filename)
			return refuse(p, "name the targets once, as A:B, not '%s' and '%s'", p->o->filename,
				      argv[optind]);
		if (set_filename(p, argv[optind]))
			return -EINVAL;
		note_given(p->o, "filename", argv[optind]);
	}
	return 0;
}

static void set_defaults(struct bench_opts *o)
{
	static const double percentiles[] = {
		1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999,
	};

	memset(o, 0, sizeof(*o));
	o->rw = "randread";
	o->reads = o->random = true;
	o->rwmixread = 50;
	o->bs = 4096;
	o->iodepth = 32;
	o->numjobs = 1;
	o->zipf_theta = 1.1;
	o->seed = 1;
	o->do_verify = true;
	o->pattern[0] = 0xa5;
	o->pattern_nr = 1;
	o->fast.sqpoll_cpu = -1;
	o->slat_sample = 17;    /* coprime to the usual depths: no slot is preferred */
	o->pre_read = OPTS_AUTO;
	o->eta = OPTS_AUTO;
	o->name = "bench";
	o->group = true;
	o->repeat = 1;
	o->log_avg_ms = 1000;
	o->log_mem = UINT64_C(64) << 20;
	o->percentiles_nr = sizeof(percentiles) / sizeof(percentiles[0]);
	memcpy(o->percentile, percentiles, sizeof(percentiles));
	if (sched_getaffinity(0, sizeof(o->cpus), &o->cpus))
		CPU_SET(0, &o->cpus);
}

/* --merge runs nothing, so what is about a run is refused. */
static int settle_merge(struct parse *p)
{
	static const char *const about_output[] = {
		"merge", "name", "output", "output_format", "percentile_list", "hdr_log",
	};
	const struct bench_opts *o = p->o;

	for (unsigned i = 0; i < o->given_nr; i++) {
		bool fits = false;

		for (size_t k = 0; k < sizeof(about_output) / sizeof(about_output[0]); k++)
			fits |= strcmp(o->given[i].name, about_output[k]) == 0;
		p->name = o->given[i].name;
		if (!fits)
			return refuse(p, "--merge runs nothing: it takes results and --name, --output, --output-format, "
				      "--percentile_list, --hdr_log");
	}
	p->name = "merge";
	return o->inputs_nr ? 0 : refuse(p, "say which results (--output-format=json+) to merge");
}

static bool is_counted(const struct bench_opts *o)
{
	return o->number_ios || o->io_size;
}

/* What the fast path needs, or cannot be together. */
static int settle_fast(struct parse *p)
{
	struct bench_opts *o = p->o;
	struct opts_fast *f = &o->fast;

	p->name = f->nvme ? "cmd_type" : f->hipri ? "hipri" : f->sqpoll ? "sqthread_poll" :
		  f->registerfiles ? "registerfiles" : "fixedbufs";
	if (o->engine == ENGINE_PSYNC && !o->compare_rounds &&
	    (f->fixedbufs || f->registerfiles || f->hipri || f->sqpoll || f->nvme))
		return refuse(p, "pread has no ring; use --engine=martlet or --engine=raw");
	if (f->hipri && !o->direct && !f->nvme)
		return refuse(p, "only direct I/O can be polled: add --direct=1");
	if (f->nvme && o->create)
		return refuse(p, "commands go to an NVMe character device, not to a file that is made");
	if (f->nvme && o->compare_rounds)
		return refuse(p, "pread cannot send commands: run --engine=martlet and --engine=raw instead of --compare");
	if (f->nvme && f->sqpoll)
		return refuse(p, "together with --sqthread_poll it is one option too many: choose");
	if (f->nvme)
		o->direct = true;       /* commands never see the page cache */
	p->name = "ladder";
	if (o->ladder_rounds && (f->fixedbufs || f->registerfiles || f->hipri || f->nvme || o->direct))
		return refuse(p, "goes through direct, fixedbufs, registerfiles, hipri and cmd_type by itself: leave them out");
	if (o->ladder_rounds && (o->compare_rounds || o->repeat > 1 || o->verify))
		return refuse(p, "is a series of its own: leave out --compare, --repeat and --verify");
	if (o->ladder_rounds && o->engine == ENGINE_PSYNC)
		return refuse(p, "pread has no ring; use --engine=martlet or --engine=raw");
	p->name = "hybrid";
	if (f->hybrid && !f->hipri && !o->ladder_rounds)
		return refuse(p, "is a way of polling: add --hipri=1");
	p->name = "sqthread_poll_cpu";
	if (f->sqpoll_cpu >= 0 && !f->sqpoll)
		return refuse(p, "needs --sqthread_poll=1");
	p->name = "sqthread_idle";
	if (f->sqpoll_idle_ms && !f->sqpoll)
		return refuse(p, "needs --sqthread_poll=1");
	return 0;
}

/* Contradictions between options, and defaults that depend on others. */
static int settle(struct parse *p)
{
	struct bench_opts *o = p->o;

	if (o->merge)
		return settle_merge(p);
	p->name = "filename";
	if (!o->filename)
		return refuse(p, "say which file or block device to measure");
	p->name = "create";
	if (o->create && !o->size)
		return refuse(p, "--size=SIZE says how large the file is to be");
	if (o->create && o->offset)
		return refuse(p, "--offset makes no sense in a file that is made for this run");
	if (o->keep && !o->create)
		return refuse(p, "--keep is about a file that --create makes");
	p->name = "readonly";
	if (o->readonly && o->writes)
		return refuse(p, "--rw=%s writes", o->rw);
	p->name = "random_distribution";
	if (o->dist == DIST_ZIPF && !o->random)
		return refuse(p, "--rw=%s is sequential; zipf needs randread, randwrite or randrw", o->rw);
	p->name = "rate_process";
	if (o->rate_poisson && !o->rate_iops)
		return refuse(p, "needs --rate_iops");
	p->name = "verify";
	if (o->verify == VERIFY_CRC32C && (o->bs < 64 || o->bs % 8))
		return refuse(p, "crc32c needs blocks of at least 64 bytes in multiples of 8, not --bs=%llu",
			      (unsigned long long)o->bs);
	if (o->verify && o->compare_rounds)
		return refuse(p, "checking costs more than the I/O: verify and compare are two runs");
	p->name = "repeat";
	if (o->repeat > 1 && o->compare_rounds)
		return refuse(p, "--compare=%u already runs each engine %u times: say there how often", o->compare_rounds,
			      o->compare_rounds);
	if (o->repeat > 1 && o->verify)
		return refuse(p, "checking costs more than the I/O: verify and repeat are two runs");
	p->name = o->lat_log ? "write_lat_log" : o->bw_log ? "write_bw_log" : "write_iops_log";
	if (o->iops_log && !*o->iops_log)
		o->iops_log = o->name;
	if (o->bw_log && !*o->bw_log)
		o->bw_log = o->name;
	if (o->lat_log && !*o->lat_log)
		o->lat_log = o->name;
	if ((o->iops_log || o->bw_log || o->lat_log) && (o->repeat > 1 || o->compare_rounds || o->ladder_rounds))
		return refuse(p, "logs are of one run: leave out --repeat, --compare and --ladder");
	p->name = "hdr_log";
	if (o->hdr_log && o->compare_rounds)
		return refuse(p, "one distribution is of one engine: leave out --compare");
	if (o->hdr_log && o->ladder_rounds)
		return refuse(p, "one distribution is of one rung: leave out --ladder");
	if (o->io_size && o->io_size < o->bs) {
		p->name = "io_size";
		return refuse(p, "less than one block of %llu bytes", (unsigned long long)o->bs);
	}
	if (!o->runtime_given) {
		o->runtime_ns = o->compare_rounds || o->ladder_rounds ? COMPARE_RUNTIME_DEFAULT_NS : RUNTIME_DEFAULT_NS;
		if (is_counted(o) || (o->verify && !o->random))
			o->runtime_ns = 0;      /* the count, or one pass over the region, ends it */
	}
	return settle_fast(p);
}

int opts_parse(struct bench_opts *o, int argc, char **argv, FILE *err)
{
	struct parse p = { o, err, "" };
	int rc;

	set_defaults(o);
	rc = check_names(&p, argc, argv);
	if (rc == 0)
		rc = scan(&p, argc, argv);
	if (rc == 0)
		rc = settle(&p);
	return rc;
}
