/* SPDX-License-Identifier: Apache-2.0 */
/* Shards: whose addresses are whose, and what one does for another. */
#include "allocator/internal.h"
#include "tests/support/allocator/arena_fixture.h"

/* Add shards as threads that meet do; afterwards this thread allocates in the last one. */
static void add_shards(unsigned n_shards) {
    pthread_mutex_lock(&arena->growing);
    for (unsigned n = 1; n < n_shards; n++) {
        ck_assert_int_eq(arena_new_shard(arena, n), 0);
        atomic_fetch_add(&arena->shards[n - 1]->residents, 1);
    }
    pthread_mutex_unlock(&arena->growing);
}

static unsigned shard_of(struct arena_block block) {
    return handle_shard(block.handle);
}

START_TEST(an_enlarged_cap_can_be_used_however_many_shards_there_are) {
    static const unsigned counts[] = { 1, 2, 3, 16 };

    for (unsigned k = 0; k < ELEMENTSOF(counts); k++)
        for (int large = 0; large < 2; large++) {
            begin(&placed, &(struct arena_options){ .cap_bytes = MIB(2), .max_shards = 16 });
            add_shards(counts[k]);
            ck_assert_uint_eq(shard_of(take(1000)), counts[k] - 1);
            arena_set_cap(arena, MIB(56));
            if (large)
                take(MIB(31));
            for (unsigned n = large ? 31 : 0; n < 55; n++)
                take(MIB(1));
            ck_assert_uint_eq(stats().shards, counts[k]);
            end();
        }
}
END_TEST

START_TEST(what_has_addresses_elsewhere_waits_for_no_stream) {
    uint8_t one, two;

    begin(&(struct device_oracle_options){ .span_bytes = MIB(64), .no_order = true },
          &(struct arena_options){ .cap_bytes = MIB(2), .max_shards = 16 });
    ck_assert_int_eq(arena_stream_new(arena, 1, &one), 0);
    ck_assert_int_eq(arena_stream_new(arena, 2, &two), 0);
    add_shards(2);
    arena_set_cap(arena, MIB(56));
    give_on(take_on(MIB(1), one), one);
    take_on(MIB(5), two); /* more than the slice; the host could wait for what one freed */
    ck_assert_uint_eq(stats().pending_bytes, MIB(1));
    end();
}
END_TEST

START_TEST(a_handle_leads_to_its_shard_whichever_that_is) {
    struct arena_block blocks[16 * 4];
    unsigned n_shards = 0;

    begin(&(struct device_oracle_options){ .span_bytes = MIB(64), .regions = true },
          &(struct arena_options){ .cap_bytes = MIB(4), .max_shards = 16 });
    add_shards(16);
    arena_set_cap(arena, MIB(60));
    /* Half a slice each. */
    for (unsigned n = 0; n < ELEMENTSOF(blocks); n++) {
        struct arena_request request = { .bytes = n < 40 ? MIB(1) : 256,
                                         .flags = n % 16 ? 0 : ARENA_PLAIN };

        ck_assert_int_eq(arena_alloc(arena, &request, &blocks[n], NULL), 0);
    }
    for (unsigned n = 0; n < 16; n++)
        n_shards += arena->shards[n]->live_bytes != 0;
    ck_assert_uint_eq(n_shards, 16);
    for (unsigned n = 0; n < ELEMENTSOF(blocks); n++) {
        ck_assert_int_eq(arena_dealloc(arena, blocks[n].handle, NULL, 0), 0);
        ck_assert_int_eq(arena_dealloc(arena, blocks[n].handle, NULL, 0), -EINVAL);
    }
    ck_assert_int_eq(arena_dealloc(arena, 0, NULL, 0), -EINVAL);
    ck_assert_int_eq(arena_dealloc(arena, UINT64_MAX, NULL, 0), -EINVAL);
    end();
}
END_TEST

START_TEST(a_reservation_of_several_times_the_cap_serves_several_threads) {
    static const struct {
        unsigned times, shards;
    } cases[] = { { 1, 1 }, { 2, 1 }, { 3, 3 }, { 4, 5 }, { 8, 9 }, { 16, 16 }, { 64, 16 } };

    for (unsigned n = 0; n < ELEMENTSOF(cases); n++) {
        begin(&(struct device_oracle_options){ .span_bytes = MIB(4) * cases[n].times },
              &(struct arena_options){ .cap_bytes = MIB(4), .max_shards = 16 });
        ck_assert_uint_eq(arena->max_shards, cases[n].shards);
        add_shards(cases[n].shards);
        take(MIB(4));
        end();
    }
}
END_TEST

START_TEST(addresses_that_the_first_shard_uses_are_never_another_ones) {
    begin(&placed, &(struct arena_options){ .cap_bytes = MIB(2), .max_shards = 16 });
    arena_set_cap(arena, MIB(60));
    take(MIB(59));
    pthread_mutex_lock(&arena->growing);
    ck_assert_int_eq(arena_new_shard(arena, 1), 0);
    ck_assert_int_eq(arena_new_shard(arena, 2), 0);
    ck_assert_int_eq(arena_new_shard(arena, 3), -ENOSPC);
    pthread_mutex_unlock(&arena->growing);
    ck_assert_uint_eq(arena->max_shards, 3);
    end();
}
END_TEST

START_TEST(a_handle_is_not_used_again_for_half_a_billion_blocks) {
    struct arena_block first, block;

    begin(&placed, &plainly);
    first = take(1000);
    give(first);
    for (unsigned shift = 1; shift < 29; shift++) {
        arena->shards[0]->allocs = ((uint64_t)1 << shift); /* as if so many had come and gone */
        block = take(1000);
        ck_assert_uint_eq(block.address, first.address);
        ck_assert_uint_ne(block.handle, first.handle);
        ck_assert_int_eq(arena_dealloc(arena, first.handle, NULL, 0), -EINVAL);
        give(block);
    }
    end();
}
END_TEST

START_TEST(a_thread_goes_to_the_shard_that_it_lives_off) {
    struct arena_block block;
    unsigned misses;

    /* Nothing moves or grows, so that its own is never fed. */
    begin(
        &(struct device_oracle_options){ .span_bytes = MIB(64), .no_remap = true, .no_trim = true },
        &(struct arena_options){ .cap_bytes = MIB(2), .max_shards = 16 });
    block = take(MIB(2));
    add_shards(2);
    give(block);
    for (unsigned n = 0; n < 40; n++)
        ck_assert_uint_eq(shard_of(take(KIB(1))), 0);
    ck_assert_uint_eq(arena->shards[0]->residents, 2); /* the test itself set one of them */
    ck_assert_uint_eq(arena->shards[1]->residents, 0);
    misses = arena->shards[1]->misses;
    ck_assert_uint_lt(misses, 40);
    take(KIB(1));
    ck_assert_uint_eq(arena->shards[1]->misses, misses);
    end();
}
END_TEST

START_TEST(a_thread_stays_where_it_is_while_others_use_the_shard_it_lives_off) {
    struct arena_block block;

    begin(
        &(struct device_oracle_options){ .span_bytes = MIB(64), .no_remap = true, .no_trim = true },
        &(struct arena_options){ .cap_bytes = MIB(2), .max_shards = 16 });
    block = take(MIB(2));
    add_shards(2);
    give(block);
    for (unsigned n = 0; n < 80; n++) {
        ck_assert_uint_eq(shard_of(take(KIB(1))), 0);
        if (n % 16 == 15)
            arena->shards[0]->allocs++; /* another thread's */
    }
    ck_assert_uint_eq(arena->shards[1]->residents, 1);
    end();
}
END_TEST

SUITE("arena-shards", an_enlarged_cap_can_be_used_however_many_shards_there_are,
      what_has_addresses_elsewhere_waits_for_no_stream,
      a_handle_leads_to_its_shard_whichever_that_is,
      a_reservation_of_several_times_the_cap_serves_several_threads,
      addresses_that_the_first_shard_uses_are_never_another_ones,
      a_handle_is_not_used_again_for_half_a_billion_blocks,
      a_thread_goes_to_the_shard_that_it_lives_off,
      a_thread_stays_where_it_is_while_others_use_the_shard_it_lives_off)
