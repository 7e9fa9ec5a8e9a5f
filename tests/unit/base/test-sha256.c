/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/sha256.h"
#include "tests/support/suite.h"

static const char *hex(const uint8_t sum[static SHA256_SIZE], char text[static 65]) {
    for (int i = 0; i < SHA256_SIZE; i++)
        sprintf(text + 2 * i, "%02x", sum[i]);
    return text;
}

START_TEST(known_sums_come_out) {
    static const struct {
        const char *text;
        const char *sum;
    } rows[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        uint8_t sum[SHA256_SIZE];
        char text[65];

        sha256(sum, rows[i].text, strlen(rows[i].text));
        ck_assert_str_eq(hex(sum, text), rows[i].sum);
    }
}
END_TEST

/* The sum of the sums of the beginnings of 'a' × 200: every length around the padding. */
START_TEST(every_length_around_a_block_is_padded_rightly) {
    char text[200], shown[65];
    uint8_t sums[201][SHA256_SIZE], sum[SHA256_SIZE];

    memset(text, 'a', sizeof(text));
    for (size_t n = 0; n <= sizeof(text); n++)
        sha256(sums[n], text, n);
    sha256(sum, sums, sizeof(sums));
    ck_assert_str_eq(hex(sum, shown),
                     "1be2d7d291484baf4c78d463a65b40a26c255b1946e5205eac8edad606a76fdd");
}
END_TEST

START_TEST(equal_is_every_byte) {
    uint8_t a[SHA256_SIZE] = { 0 };

    for (int i = 0; i < SHA256_SIZE; i++) {
        uint8_t b[SHA256_SIZE] = { 0 };

        ck_assert(sha256_equal(a, b));
        b[i] = 0x80;
        ck_assert(!sha256_equal(a, b));
    }
}
END_TEST

SUITE("sha256", known_sums_come_out, every_length_around_a_block_is_padded_rightly,
      equal_is_every_byte)
