/* SPDX-License-Identifier: Apache-2.0 */
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "base/store.h"
#include "tests/support/suite.h"

START_TEST(what_is_given_is_zero_aligned_and_apart) {
    struct store store = { 0 };
    unsigned char *parts[300];

    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ELEMENTSOF(parts); i++) {
            parts[i] = store_get(&store, i * 7);
            ck_assert_ptr_nonnull(parts[i]);
            ck_assert_uint_eq((uintptr_t)parts[i] % alignof(max_align_t), 0);
            for (size_t b = 0; b < i * 7; b++)
                ck_assert_uint_eq(parts[i][b], 0);
            memset(parts[i], (int)i | 1, i * 7);
        }
        for (size_t i = 0; i < ELEMENTSOF(parts); i++)
            for (size_t b = 0; b < i * 7; b++)
                ck_assert_uint_eq(parts[i][b], (unsigned char)(i | 1));
        store_reset(&store);
    }
    store_done(&store);
    store_done(&store);
}
END_TEST

START_TEST(a_size_that_cannot_be_is_refused) {
    struct store store = { 0 };

    ck_assert_ptr_null(store_get(&store, SIZE_MAX));
    ck_assert_ptr_null(store_get(&store, SIZE_MAX - 8));
    ck_assert_ptr_nonnull(store_get(&store, 0));
    ck_assert_ptr_null(store_copy(&store, NULL));
    ck_assert_str_eq(store_copy(&store, "text"), "text");
    store_done(&store);
}
END_TEST

SUITE("store", what_is_given_is_zero_aligned_and_apart, a_size_that_cannot_be_is_refused)
