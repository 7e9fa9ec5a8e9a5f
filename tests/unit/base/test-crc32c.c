/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "tests/support/suite.h"

/* The vectors of RFC 3720, B.4, and the check value of the polynomial. */
START_TEST(published_vectors_come_out) {
    uint8_t bytes[32];

    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(crc32c(0, "", 0), 0);
    memset(bytes, 0, sizeof(bytes));
    ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x8a9136aa);
    memset(bytes, 0xff, sizeof(bytes));
    ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x62a8ab43);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x46dd794e);
    ck_assert_uint_eq(crc32c_by_table(0, bytes, sizeof(bytes)), 0x46dd794e);
}
END_TEST

START_TEST(both_ways_and_every_cut_agree) {
    uint8_t bytes[257];
    uint64_t seed = 1;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)random_next(&seed);
    for (size_t size = 0; size <= sizeof(bytes); size++) {
        uint32_t whole = crc32c(0, bytes, size);

        ck_assert_uint_eq(whole, crc32c_by_table(0, bytes, size));
        for (size_t cut = 0; cut <= size; cut += 7) {
            uint32_t head = crc32c(0, bytes, cut);

            ck_assert_uint_eq(crc32c(head, bytes + cut, size - cut), whole);
        }
    }
}
END_TEST

SUITE("crc32c", published_vectors_come_out, both_ways_and_every_cut_agree)
