/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>

#include "base/random.h"
#include "guard/table.h"
#include "tests/support/suite.h"

static struct table_entry entry_of(enum table_kind kind, uint64_t key, uint64_t bytes) {
    return (struct table_entry){ .key = key, .bytes = bytes, .kind = (uint8_t)kind };
}

START_TEST(a_key_is_told_apart_by_its_kind) {
    struct table_entry a = entry_of(TABLE_MEMORY, 0x1000, 1), b = entry_of(TABLE_ARRAY, 0x1000, 2);
    struct table_entry found;

    ck_assert(table_put(&a));
    ck_assert(table_put(&b));
    ck_assert(table_take(TABLE_ARRAY, 0x1000, &found));
    ck_assert_uint_eq(found.bytes, 2);
    ck_assert(!table_take(TABLE_ARRAY, 0x1000, NULL));
    ck_assert(table_get(TABLE_MEMORY, 0x1000, &found));
    ck_assert_uint_eq(found.bytes, 1);
    ck_assert(table_take(TABLE_MEMORY, 0x1000, NULL));
}
END_TEST

START_TEST(a_key_that_comes_again_is_replaced) {
    struct table_entry a = entry_of(TABLE_MEMORY, 7, 1), found;

    ck_assert(table_put(&a));
    a.bytes = 5;
    ck_assert(table_put(&a));
    ck_assert(table_take(TABLE_MEMORY, 7, &found));
    ck_assert_uint_eq(found.bytes, 5);
    ck_assert(!table_get(TABLE_MEMORY, 7, NULL));
}
END_TEST

/* Against an array that says what must be there. */
START_TEST(a_random_walk_loses_and_invents_nothing) {
    enum { KEYS = 4096, STEPS = 400000 };
    static uint64_t there[KEYS];
    uint64_t seed = 20;

    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t r = random_next(&seed), key = r % KEYS;
        struct table_entry entry = entry_of(TABLE_MEMORY, key * 512, step + 1), found;

        if (r >> 32 & 1) {
            ck_assert(table_put(&entry));
            there[key] = entry.bytes;
        } else {
            ck_assert(table_take(TABLE_MEMORY, key * 512, &found) == (there[key] != 0));
            if (there[key])
                ck_assert_uint_eq(found.bytes, there[key]);
            there[key] = 0;
        }
    }
    for (uint64_t key = 0; key < KEYS; key++)
        ck_assert(table_take(TABLE_MEMORY, key * 512, NULL) == (there[key] != 0));
}
END_TEST

static uint64_t dropped_bytes;

static void dropped(const struct table_entry *entry) {
    dropped_bytes += entry->bytes;
}

START_TEST(a_context_takes_all_that_is_its_own_along) {
    int here, there;

    for (uint64_t key = 1; key <= 10000; key++) {
        struct table_entry entry = entry_of(TABLE_MEMORY, key << 9, 1);

        entry.context = key % 3 == 0 ? &here : &there;
        ck_assert(table_put(&entry));
    }
    table_drop_context(&here, dropped);
    ck_assert_uint_eq(dropped_bytes, 3333);
    for (uint64_t key = 1; key <= 10000; key++)
        ck_assert(table_take(TABLE_MEMORY, key << 9, NULL) == (key % 3 != 0));
}
END_TEST

static void *put_and_take(void *user) {
    uint64_t base = (uint64_t)(uintptr_t)user << 40;

    for (unsigned round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < 500; i++) {
            struct table_entry entry = entry_of(TABLE_MEMORY, base + i * 512, i);

            if (!table_put(&entry))
                return user;
        }
        for (uint64_t i = 0; i < 500; i++) {
            struct table_entry found;

            if (!table_take(TABLE_MEMORY, base + i * 512, &found) || found.bytes != i)
                return user;
        }
    }
    return NULL;
}

START_TEST(threads_do_not_meet) {
    pthread_t threads[4];
    void *failed;

    for (uintptr_t i = 0; i < ELEMENTSOF(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, put_and_take, (void *)(i + 1)), 0);
    for (size_t i = 0; i < ELEMENTSOF(threads); i++) {
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
}
END_TEST

SUITE("guard-table", a_key_is_told_apart_by_its_kind, a_key_that_comes_again_is_replaced,
      a_random_walk_loses_and_invents_nothing, a_context_takes_all_that_is_its_own_along,
      threads_do_not_meet)
