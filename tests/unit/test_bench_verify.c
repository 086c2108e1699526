/* SPDX-License-Identifier: MIT */
/*
 * The checks: CRC-32C against known answers and its two forms against each other; every kind of corruption of a block
 * is found and told apart.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "rng.h"
#include "verify.h"
#include "suite.h"

#define TIME_LIMIT_S 30
#define BS 4096u
#define BLOCKS 16u

static struct bench_opts o;
static struct verify v;
static FILE *err;
static char said[8192];
static unsigned char block[BS];

static void set_up(void)
{
	memset(&o, 0, sizeof(o));
	o.bs = BS;
	o.verify = VERIFY_CRC32C;
	o.pattern[0] = 0xab;
	o.pattern[1] = 0xcd;
	o.pattern[2] = 0xef;
	o.pattern_nr = 3;
	err = fmemopen(said, sizeof(said), "w");
	setvbuf(err, NULL, _IONBF, 0);
	ck_assert_int_eq(verify_init(&v, &o, BLOCKS, err), 0);
}

static void tear_down(void)
{
	verify_fini(&v);
	fclose(err);
}

static bool check(uint64_t offset, uint32_t gen)
{
	struct verify_place want = { .offset = offset, .gen = gen };

	return verify_check(&v, block, &want);
}

static void fill(uint64_t offset, uint32_t gen)
{
	struct verify_place place = { .offset = offset, .gen = gen };

	verify_fill(&v, block, &place);
}

START_TEST(crc32c_gives_the_known_answers)
{
	static const unsigned char zeros[32], ones[32] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	};

	/* RFC 3720, appendix B.4 */
	ck_assert_uint_eq(crc32c(0, zeros, 32), 0x8a9136aau);
	ck_assert_uint_eq(crc32c(0, ones, 32), 0x62a8ab43u);
	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283u);
}
END_TEST

START_TEST(both_forms_of_crc32c_agree_at_every_length_and_cut)
{
	uint64_t state = rng_seed(1);

	for (unsigned i = 0; i < BS; i++)
		block[i] = (unsigned char)rng_next(&state);
	for (unsigned len = 0; len < 200; len++) {
		uint32_t whole = crc32c_table(0, block + 3, len);

		ck_assert_uint_eq(crc32c(0, block + 3, len), whole);
		for (unsigned cut = 0; cut <= len; cut += 7)
			ck_assert_uint_eq(crc32c(crc32c(0, block + 3, cut), block + 3 + cut, len - cut), whole);
	}
}
END_TEST

START_TEST(what_was_filled_is_good)
{
	fill(8192, 3);
	ck_assert(check(8192, 3));
	ck_assert(check(8192, 0));
	ck_assert_uint_eq(atomic_load(&v.checked), 2);
	ck_assert_uint_eq(atomic_load(&v.bad), 0);
}
END_TEST

START_TEST(any_flipped_bit_is_found)
{
	for (unsigned i = 0; i < BS; i += i < 48 ? 1 : 97) {
		fill(0, 1);
		block[i] ^= 0x10;
		ck_assert_msg(!check(0, 1), "byte %u", i);
	}
}
END_TEST

START_TEST(the_first_wrong_byte_is_named)
{
	fill(4096, 1);
	block[1000] ^= 0xff;
	block[2000] ^= 0xff;
	ck_assert(!check(4096, 1));
	ck_assert_msg(strstr(said, "bad block at offset 4096"), "%s", said);
	ck_assert_msg(strstr(said, "crc32c expected"), "%s", said);
	ck_assert_msg(strstr(said, "first wrong byte at offset 5096: expected 0x"), "%s", said);
}
END_TEST

START_TEST(a_misdirected_write_is_found)
{
	fill(4096, 1);
	ck_assert(!check(8192, 1));
	ck_assert_msg(strstr(said, "holds the block of offset 4096"), "%s", said);
}
END_TEST

START_TEST(a_block_of_another_target_is_found)
{
	struct verify_place place = { .offset = 4096, .gen = 1, .target = 1 }, want = place;

	verify_fill(&v, block, &place);
	ck_assert(verify_check(&v, block, &want));
	want.target = 0;
	want.path = "dev-a";
	ck_assert(!verify_check(&v, block, &want));
	ck_assert_msg(strstr(said, "bad block of dev-a at offset 4096"), "%s", said);
	ck_assert_msg(strstr(said, "target 1, not of 0"), "%s", said);
	/* a later run may name its targets in another order */
	v.run_id++;
	want.gen = 0;
	ck_assert(verify_check(&v, block, &want));
}
END_TEST

START_TEST(a_lost_write_is_found)
{
	fill(0, 1);
	ck_assert(!check(0, 2));
	ck_assert_msg(strstr(said, "a write was lost: expected generation 2"), "%s", said);
	v.run_id++;
	ck_assert(!check(0, 1));
	ck_assert_msg(strstr(said, "another run"), "%s", said);
	ck_assert(check(0, 0));
}
END_TEST

START_TEST(foreign_data_is_found)
{
	memset(block, 0, sizeof(block));
	ck_assert(!check(0, 0));
	ck_assert_msg(strstr(said, "no block of martlet bench"), "%s", said);
}
END_TEST

START_TEST(only_the_first_bad_blocks_are_described_but_all_counted)
{
	unsigned lines = 0;

	memset(block, 0, sizeof(block));
	for (unsigned i = 0; i < 3 * VERIFY_TOLD_MAX; i++)
		ck_assert(!check(0, 0));
	for (const char *c = said; *c; c++)
		lines += *c == '\n';
	ck_assert_uint_eq(lines, VERIFY_TOLD_MAX);
	ck_assert_uint_eq(atomic_load(&v.bad), 3 * VERIFY_TOLD_MAX);
}
END_TEST

START_TEST(a_pattern_is_checked_byte_by_byte)
{
	v.kind = VERIFY_PATTERN;
	fill(0, 1);
	ck_assert_uint_eq(block[0], 0xab);
	ck_assert_uint_eq(block[4], 0xcd);
	ck_assert(check(0, 0));
	block[4095] ^= 1;
	ck_assert(!check(0, 0));
	ck_assert_msg(strstr(said, "first wrong byte at offset 4095"), "%s", said);
}
END_TEST

START_TEST(a_block_belongs_to_one_io_at_a_time)
{
	ck_assert(verify_try_lock(&v, 5));
	ck_assert(!verify_try_lock(&v, 5));
	ck_assert(verify_try_lock(&v, 6));
	verify_unlock_written(&v, 5, 9);
	ck_assert_uint_eq(verify_gen(&v, 5), 9);
	ck_assert(verify_try_lock(&v, 5));
	ck_assert_uint_eq(verify_gen(&v, 5), 9);
	verify_unlock(&v, 5);
	ck_assert_uint_eq(verify_gen(&v, 5), 9);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_verify");
	TCase *t = tcase_create("verify");

	tcase_set_timeout(t, TIME_LIMIT_S);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, crc32c_gives_the_known_answers);
	tcase_add_test(t, both_forms_of_crc32c_agree_at_every_length_and_cut);
	tcase_add_test(t, what_was_filled_is_good);
	tcase_add_test(t, any_flipped_bit_is_found);
	tcase_add_test(t, the_first_wrong_byte_is_named);
	tcase_add_test(t, a_misdirected_write_is_found);
	tcase_add_test(t, a_block_of_another_target_is_found);
	tcase_add_test(t, a_lost_write_is_found);
	tcase_add_test(t, foreign_data_is_found);
	tcase_add_test(t, only_the_first_bad_blocks_are_described_but_all_counted);
	tcase_add_test(t, a_pattern_is_checked_byte_by_byte);
	tcase_add_test(t, a_block_belongs_to_one_io_at_a_time);
	suite_add_tcase(s, t);
	return suite_main(s);
}
