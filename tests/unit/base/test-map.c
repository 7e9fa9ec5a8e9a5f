/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/map.h"
#include "tests/support/suite.h"

START_TEST(an_empty_map_finds_nothing) {
    struct map map = { 0 };
    size_t pos = 0;

    ck_assert_ptr_null(map_find(&map, 1));
    ck_assert_ptr_null(map_take(&map, 1));
    ck_assert_ptr_null(map_find_text(&map, "a"));
    ck_assert_ptr_null(map_take_text(&map, "a"));
    ck_assert_ptr_null(map_next(&map, &pos));
    map_done(&map);
}
END_TEST

START_TEST(a_key_is_there_once) {
    cleanup(map_done) struct map map = { 0 };
    int a, b;

    ck_assert_int_eq(map_put(&map, 0, &a), 0);
    ck_assert_int_eq(map_put(&map, UINT64_MAX, &b), 0);
    ck_assert_int_eq(map_put(&map, 0, &b), -EEXIST);
    ck_assert_ptr_eq(map_find(&map, 0), &a);
    ck_assert_uint_eq(map.n, 2);
    ck_assert_ptr_eq(map_take(&map, 0), &a);
    ck_assert_ptr_null(map_find(&map, 0));
    ck_assert_int_eq(map_put(&map, 0, &b), 0);
    ck_assert_ptr_eq(map_find(&map, 0), &b);
}
END_TEST

START_TEST(texts_are_compared_by_content) {
    cleanup(map_done) struct map map = { 0 };
    char texts[40][48], other[48];

    /* Every length around the hash's eight-byte words. */
    for (unsigned i = 0; i < ELEMENTSOF(texts); i++) {
        memset(texts[i], 'x', i);
        texts[i][i] = 0;
        ck_assert_int_eq(map_put_text(&map, texts[i], texts[i]), 0);
    }
    for (unsigned i = 0; i < ELEMENTSOF(texts); i++) {
        strcpy(other, texts[i]);
        ck_assert_int_eq(map_put_text(&map, other, other), -EEXIST);
        ck_assert_ptr_eq(map_find_text(&map, other), texts[i]);
        strcat(other, "y");
        ck_assert_ptr_null(map_find_text(&map, other));
        other[0] = 'z';
        ck_assert_ptr_null(map_find_text(&map, other));
    }
    ck_assert_ptr_eq(map_take_text(&map, "xx"), texts[2]);
    ck_assert_ptr_null(map_find_text(&map, "xx"));
    ck_assert_uint_eq(map.n, ELEMENTSOF(texts) - 1);
}
END_TEST

START_TEST(a_walk_goes_in_the_order_of_arrival_and_may_take_entries_out) {
    cleanup(map_done) struct map map = { 0 };
    static int values[1000];
    int *value;
    int expected = 0;

    for (int i = 0; i < 1000; i++) {
        values[i] = i;
        ck_assert_int_eq(map_put(&map, (uint64_t)i * 7919, &values[i]), 0);
    }
    for (size_t pos = 0; (value = map_next(&map, &pos));) {
        ck_assert_int_eq(*value, expected++);
        if (*value % 3)
            ck_assert_ptr_eq(map_take(&map, (uint64_t)*value * 7919), value);
    }
    ck_assert_int_eq(expected, 1000);
    ck_assert_uint_eq(map.n, 334);
    expected = 0;
    for (size_t pos = 0; (value = map_next(&map, &pos)); expected += 3)
        ck_assert_int_eq(*value, expected);
    ck_assert_int_eq(expected, 1002);
}
END_TEST

/* Against an array that answers the same questions, with few keys so that holes and gaps are many.
 */
START_TEST(a_random_walk_agrees_with_an_array) {
    cleanup(map_done) struct map map = { 0 };
    static int values[300];
    int *there[300] = { 0 }, *value;
    uint64_t random = 20240229, seed = random;
    size_t n = 0, seen = 0;

    for (unsigned step = 0; step < 200000; step++) {
        unsigned key;

        random = random * 6364136223846793005u + 1442695040888963407u;
        key = (unsigned)(random >> 40) % 300;
        switch (random >> 33 & 3) {
        case 0:
        case 1:
            ck_assert_msg(map_put(&map, key, &values[key]) == (there[key] ? -EEXIST : 0),
                          "seed %llu step %u", (unsigned long long)seed, step);
            n += !there[key];
            there[key] = &values[key];
            break;
        case 2:
            ck_assert_msg(map_take(&map, key) == there[key], "seed %llu step %u",
                          (unsigned long long)seed, step);
            n -= there[key] != NULL;
            there[key] = NULL;
            break;
        default:
            ck_assert_msg(map_find(&map, key) == there[key], "seed %llu step %u",
                          (unsigned long long)seed, step);
        }
        ck_assert_uint_eq(map.n, n);
    }
    for (size_t pos = 0; (value = map_next(&map, &pos)); seen++)
        ck_assert_ptr_eq(there[value - values], value);
    ck_assert_uint_eq(seen, n);
}
END_TEST

START_TEST(a_map_that_empties_and_fills_does_not_grow) {
    cleanup(map_done) struct map map = { 0 };
    int value;

    for (uint64_t i = 0; i < 100000; i++) {
        ck_assert_int_eq(map_put(&map, i, &value), 0);
        ck_assert_ptr_eq(map_take(&map, i), &value);
    }
    ck_assert_uint_le(map.n_slots, 16);
}
END_TEST

SUITE("map", an_empty_map_finds_nothing, a_key_is_there_once, texts_are_compared_by_content,
      a_walk_goes_in_the_order_of_arrival_and_may_take_entries_out,
      a_random_walk_agrees_with_an_array, a_map_that_empties_and_fills_does_not_grow)
