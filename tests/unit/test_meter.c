/* SPDX-License-Identifier: MIT */
/*
 * The meter and the blocks' tables: buckets of histograms against the function that viewers use, what each knob comes to,
 * integrals, copies of whole blocks, and the type information, walked as the kernel walks it. How it is all driven by
 * workers is in tests/integration/test_observe.c.
 */
#include <check.h>
#include <linux/btf.h>
#include <stdlib.h>
#include <string.h>

#include "probe/btf.h"
#include "probe/meter.h"
#include "suite.h"

static struct mrt__stats stats;
static struct mrt__meter meter;

static void setup(void)
{
	struct mrt__stats_opts so = { .workers_nr = 2, .backend = MRT__STATS_HEAP, .name = "unit" };

	ck_assert_int_eq(mrt__stats_create(&so, &stats), 0);
	mrt__meter_init(&meter, &stats, 1, 1000, 7);
}

static void teardown(void)
{
	mrt__stats_destroy(&stats);
}

START_TEST(a_duration_is_in_the_bucket_that_begins_at_or_below_it)
{
	uint64_t ns, low, high;
	unsigned bucket, i;

	for (bucket = 1; bucket < MRT_HIST_NR; bucket++) {
		low = mrt_hist_min_ns(bucket);
		ck_assert_uint_gt(low, mrt_hist_min_ns(bucket - 1));
		ck_assert_uint_eq(mrt__hist_bucket(low), bucket);
		ck_assert_uint_eq(mrt__hist_bucket(low - 1), bucket - 1);
	}
	ck_assert_uint_eq(mrt_hist_min_ns(0), 0);
	ck_assert_uint_eq(mrt_hist_min_ns(1), 64);
	ck_assert_uint_eq(mrt_hist_min_ns(MRT_HIST_NR - 1), UINT64_C(1) << 36);
	ck_assert_uint_eq(mrt__hist_bucket(0), 0);
	ck_assert_uint_eq(mrt__hist_bucket(UINT64_MAX), MRT_HIST_NR - 1);
	for (i = 7, ns = 100; i < 36; i++, ns *= 2) {
		bucket = mrt__hist_bucket(ns);
		low = mrt_hist_min_ns(bucket);
		high = mrt_hist_min_ns(bucket + 1);
		ck_assert(low <= ns && ns < high);
		ck_assert_uint_le((high - low) * 4, low); /* 25 % */
	}
}
END_TEST

START_TEST(knobs_say_which_polls_are_timed_and_recorded)
{
	static const struct {
		uint32_t timing, shift;
		unsigned timed, recorded;       /* of 1024 */
	} cases[] = {
		{ MRT_TIMING_OFF, 0, 16, 0 }, { MRT_TIMING_FULL, 9, 1024, 1024 }, { MRT_TIMING_SAMPLED, 5, 32, 32 },
		{ MRT_TIMING_SAMPLED, 0, 1024, 1024 }, { MRT_TIMING_SAMPLED, 8, 16, 4 },
		{ MRT_TIMING_SAMPLED, 200, 16, 1 }, { 77, 0, 16, 0 },
	};
	unsigned i, timed;
	uint64_t polls, before;

	for (i = 0; i < MRT__ARRAY_NR(cases); i++) {
		stats.ctl->poll_timing = cases[i].timing;
		stats.ctl->poll_shift = cases[i].shift;
		mrt__meter_look(&meter);
		before = stats.hists[1].polls_timed;
		for (polls = timed = 0; polls < 1024; polls++) {
			if (!mrt__meter_times_poll(&meter, polls))
				continue;
			timed++;
			mrt__meter_poll_end(&meter, polls, polls);
		}
		ck_assert_uint_eq(timed, cases[i].timed);
		ck_assert_uint_eq(stats.hists[1].polls_timed - before, cases[i].recorded);
	}
	ck_assert_uint_eq(stats.hists[1].poll_max_ns, 1023);
	ck_assert_uint_eq(stats.hists[0].polls_timed, 0);
}
END_TEST

static bool times_all(void)
{
	return meter.record_mask == 0 && meter.shows_start && meter.records_polls && meter.op_interval == 1 && meter.records_ops;
}

START_TEST(somebody_who_looks_has_all_timed_until_then)
{
	mrt__meter_clock(&meter, 5000);
	ck_assert(!times_all());
	stats.ctl->watched_until_ns = 5000; /* is over */
	mrt__meter_clock(&meter, 5001);
	ck_assert(!times_all());
	stats.ctl->watched_until_ns = 7000;
	mrt__meter_clock(&meter, 6000);
	ck_assert(times_all());
	stats.ctl->watched_until_ns = 9000; /* goes on looking */
	mrt__meter_clock(&meter, 8999);
	ck_assert(times_all());
	stats.ctl->poll_timing = MRT_TIMING_OFF; /* the knobs are for later */
	mrt__meter_look(&meter);
	ck_assert(times_all());
	mrt__meter_slept(&meter, 0, 1, 9000);
	ck_assert(!times_all());
	ck_assert(!meter.records_polls);
	ck_assert_uint_eq(meter.op_interval, 32);
}
END_TEST

#if MRT__USDT
/* As the kernel does, which writes where the program only reads. */
static void listen_to(const volatile uint16_t *sem, int by)
{
	volatile uint16_t *word = (volatile uint16_t *)(uintptr_t)sem;

	*word = (uint16_t)(*word + by);
}

START_TEST(a_listener_is_noticed_also_where_another_listens_already)
{
	listen_to(&mrt__sem_op_complete, 1);
	mrt__meter_look(&meter);
	ck_assert_uint_ne(meter.poll_mask, 0);
	ck_assert_uint_eq(meter.op_interval, 1);
	listen_to(&mrt__sem_poll_start, 1);
	mrt__meter_look(&meter);
	ck_assert_uint_eq(meter.poll_mask, 0); /* every poll */
	listen_to(&mrt__sem_poll_start, -1);
	mrt__meter_look(&meter);
	ck_assert_uint_ne(meter.poll_mask, 0);
	ck_assert_uint_eq(meter.op_interval, 1);
	listen_to(&mrt__sem_op_complete, -1);
	mrt__meter_look(&meter);
	ck_assert_uint_ne(meter.op_interval, 1);
}
END_TEST
#endif

START_TEST(ops_are_sampled_near_their_rate_and_not_in_step)
{
	unsigned i, timed = 0, in_step = 0;

	stats.ctl->op_shift = 4;
	mrt__meter_look(&meter);
	for (i = 0; i < 16000; i++) {
		if (!mrt__meter_op_start(&meter, 22))
			continue;
		timed++;
		in_step += i % 16 == 0;
		mrt__meter_op_end(&meter, 22, timed % 2, 100 + i * 37 % 1000);
	}
	ck_assert_uint_ge(timed, 900);
	ck_assert_uint_le(timed, 1100);
	ck_assert_uint_lt(in_step, timed / 4);
	ck_assert_uint_eq(stats.hists[1].op_nr[22], 16000);
	ck_assert_uint_eq(stats.hists[1].ops_timed, timed);
	ck_assert_uint_eq(stats.hists[1].op_timed[22], timed);
	ck_assert_uint_eq(stats.hists[1].io_sum_ns + stats.hists[1].peer_sum_ns, stats.hists[1].op_sum_ns[22]);
}
END_TEST

START_TEST(each_opcode_has_a_histogram_while_there_are_slots)
{
	struct mrt_worker_hists *h = &stats.hists[1];
	unsigned i, slot;
	uint64_t sum;

	for (i = 0; i < MRT_OP_SLOTS_NR + 3; i++) {
		mrt__meter_op_end(&meter, 40 - i, true, 1000);
		mrt__meter_op_end(&meter, 40 - i, true, 1u << 20);
	}
	for (slot = 0; slot < MRT_OP_SLOTS_NR; slot++) {
		const uint64_t *buckets = &h->op_hist[slot * MRT_HIST_NR];

		ck_assert_uint_eq(h->op_slot[slot], 40 - slot + 1);
		ck_assert_uint_eq(buckets[mrt__hist_bucket(1000)], 1);
		ck_assert_uint_eq(buckets[mrt__hist_bucket(1u << 20)], 1);
		for (sum = i = 0; i < MRT_HIST_NR; i++)
			sum += buckets[i];
		ck_assert_uint_eq(sum, 2);
	}
	ck_assert_uint_eq(h->op_sum_ns[40 - MRT_OP_SLOTS_NR], 1000 + (1u << 20)); /* found no slot */
}
END_TEST

START_TEST(an_opcode_beyond_the_table_stays_inside_it)
{
	(void)mrt__meter_op_start(&meter, MRT_OPCODES_NR + 3);
	ck_assert_uint_eq(stats.hists[1].op_nr[3], 1);
}
END_TEST

START_TEST(integrals_are_depth_times_time)
{
	/* two turns: after the first 10 are queued, and 6 are left when the second begins, which queues 4 */
	mrt__meter_depths(&meter, 10, 4);
	meter.queue_sum += 6;
	mrt__meter_depths(&meter, 4, 8);
	mrt__meter_clock(&meter, 1000 + 600);
	ck_assert_uint_eq(stats.workers[1].local_queue_ns, 5 * 600);
	ck_assert_uint_eq(stats.workers[1].inflight_ns, 6 * 600);
	mrt__meter_clock(&meter, 1000 + 700); /* nobody looked: nothing is known */
	ck_assert_uint_eq(stats.workers[1].local_queue_ns, 5 * 600);
	mrt__meter_slept(&meter, 3, 1000, 2700);
	ck_assert_uint_eq(stats.workers[1].inflight_ns, 6 * 600 + 3000);
	mrt__meter_depths(&meter, 2, 1);
	mrt__meter_clock(&meter, 2800);
	ck_assert_uint_eq(stats.workers[1].local_queue_ns, 5 * 600 + 100);
}
END_TEST

START_TEST(a_block_is_copied_whole)
{
	unsigned id;

	for (id = 0; id < MRT__STAT_BLOCKS_NR; id++) {
		const struct mrt__stat_block *b = &mrt__stat_blocks[id];
		unsigned char *from = aligned_alloc(128, (b->bytes + 127) / 128 * 128), *to = malloc(b->bytes);
		uint32_t i, j, bytes;

		ck_assert(from && to);
		memset(from, 0xab, b->bytes);
		mrt__stat_block_copy(id, from, to);
		for (i = 0; i < b->fields_nr; i++) {
			const struct mrt__stat_field *f = &b->fields[i];

			bytes = f->type == MRT__STAT_char ? 1 : f->type == MRT__STAT_u64 || f->type == MRT__STAT_i64 ? 8 : 4;
			for (j = 0; j < bytes * (f->nr ? f->nr : 1); j++)
				ck_assert_msg(to[f->offset + j] == 0xab, "%s.%s", b->struct_name, f->name);
		}
		free(from);
		free(to);
	}
}
END_TEST

/* ---- BTF ---- */

static size_t extra_bytes(const struct btf_type *t)
{
	uint32_t vlen = BTF_INFO_VLEN(t->info);

	switch (BTF_INFO_KIND(t->info)) {
	case BTF_KIND_INT:
		return 4;
	case BTF_KIND_ENUM:
		return vlen * sizeof(struct btf_enum);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
		return vlen * sizeof(struct btf_member);
	default:
		ck_abort_msg("kind %u", BTF_INFO_KIND(t->info));
	}
}

static const struct btf_type *type_by_id(const struct mrt__btf *btf, uint32_t id)
{
	const struct btf_header *h = btf->blob;
	const char *at = (const char *)btf->blob + h->hdr_len + h->type_off, *end = at + h->type_len;
	const struct btf_type *t = (const void *)at;

	for (; --id > 0; t = (const void *)at) {
		at += sizeof(*t) + extra_bytes(t);
		ck_assert(at < end);
	}
	return t;
}

static const char *string_at(const struct mrt__btf *btf, uint32_t off)
{
	const struct btf_header *h = btf->blob;

	ck_assert_uint_lt(off, h->str_len);
	return (const char *)btf->blob + h->hdr_len + h->str_off + off;
}

START_TEST(type_information_says_what_the_structs_are)
{
	struct mrt__btf btf;
	const struct btf_type *t;
	unsigned id, i;

	ck_assert_int_eq(mrt__btf_build(&btf), 0);
	for (id = 0; id < MRT__STAT_BLOCKS_NR; id++) {
		const struct mrt__stat_block *b = &mrt__stat_blocks[id];
		const struct btf_member *m;

		ck_assert_uint_lt(strlen(b->map_name), 16);
		t = type_by_id(&btf, btf.type_ids[id]);
		ck_assert_uint_eq(BTF_INFO_KIND(t->info), BTF_KIND_STRUCT);
		ck_assert_uint_eq(t->size, b->bytes);
		ck_assert_uint_eq(BTF_INFO_VLEN(t->info), b->fields_nr);
		ck_assert_str_eq(string_at(&btf, t->name_off), b->struct_name);
		m = (const void *)(t + 1);
		for (i = 0; i < b->fields_nr; i++) {
			const struct btf_type *ft = type_by_id(&btf, m[i].type);

			ck_assert_str_eq(string_at(&btf, m[i].name_off), b->fields[i].name);
			ck_assert_uint_eq(m[i].offset, b->fields[i].offset * 8);
			ck_assert_int_eq(BTF_INFO_KIND(ft->info) == BTF_KIND_ARRAY, b->fields[i].nr > 0);
			if (b->fields[i].nr)
				ck_assert_uint_eq(((const struct btf_array *)(const void *)(ft + 1))->nelems,
						  b->fields[i].nr);
		}
	}
	mrt__btf_free(&btf);
}
END_TEST

/* Of names, types and offsets of all fields. */
#define LAYOUT_HASH UINT64_C(0xde2a2e397b8fdf33)

START_TEST(a_layout_that_changes_has_another_version)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
	struct mrt__btf btf;
	size_t i;

	ck_assert_int_eq(mrt__btf_build(&btf), 0);
	for (i = 0; i < btf.bytes; i++)
		hash = (hash ^ ((const unsigned char *)btf.blob)[i]) * UINT64_C(0x100000001b3);
	mrt__btf_free(&btf);
	ck_assert_msg(hash == LAYOUT_HASH && MRT_STATS_VERSION == 4,
		      "the statistics are laid out differently: raise MRT_STATS_VERSION, and put %#llx here", (unsigned long long)hash);
}
END_TEST

START_TEST(elements_share_no_line)
{
	ck_assert_uint_eq(sizeof(struct mrt_worker_stats) % 128, 0);
	ck_assert_uint_eq(sizeof(struct mrt_worker_hists) % 128, 0);
	ck_assert_uint_eq((uintptr_t)stats.workers % 128, 0);
	ck_assert_uint_eq((uintptr_t)stats.hists % 128, 0);
	ck_assert_uint_ne(offsetof(struct mrt_global_stats, inject_depth) / 128,
			  offsetof(struct mrt_global_stats, tasks_alive) / 128);
	ck_assert_uint_ne(offsetof(struct mrt_global_stats, blocking_threads) / 128,
			  offsetof(struct mrt_global_stats, tasks_alive) / 128);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("meter");
	TCase *tc = tcase_create("meter");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_duration_is_in_the_bucket_that_begins_at_or_below_it);
	tcase_add_test(tc, knobs_say_which_polls_are_timed_and_recorded);
#if MRT__USDT
	tcase_add_test(tc, a_listener_is_noticed_also_where_another_listens_already);
#endif
	tcase_add_test(tc, somebody_who_looks_has_all_timed_until_then);
	tcase_add_test(tc, ops_are_sampled_near_their_rate_and_not_in_step);
	tcase_add_test(tc, each_opcode_has_a_histogram_while_there_are_slots);
	tcase_add_test(tc, an_opcode_beyond_the_table_stays_inside_it);
	tcase_add_test(tc, integrals_are_depth_times_time);
	tcase_add_test(tc, a_block_is_copied_whole);
	tcase_add_test(tc, type_information_says_what_the_structs_are);
	tcase_add_test(tc, a_layout_that_changes_has_another_version);
	tcase_add_test(tc, elements_share_no_line);
	suite_add_tcase(suite, tc);
	return suite_main(suite);
}
