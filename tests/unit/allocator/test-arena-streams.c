/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: memory whose past is unfinished, and what it may not withhold. */
#include "tests/support/allocator/arena_fixture.h"

static uint8_t one, two, three;

/* A full arena of 1 MiB: every allocation reuses memory of another block. */
static void begin_streams(bool wait, bool order) {
    begin(&(struct device_oracle_options){ .span_bytes = MIB(64),
                                           .no_wait = !wait,
                                           .no_order = !order },
          &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
    ck_assert_int_eq(arena_stream_new(arena, 1, &one), 0);
    ck_assert_int_eq(arena_stream_new(arena, 2, &two), 0);
    ck_assert_int_eq(arena_stream_new(arena, 3, &three), 0);
}

static int try_on(uint64_t bytes, uint8_t stream) {
    struct arena_request request = { .bytes = bytes, .stream = stream };
    struct arena_block block;
    int r = arena_alloc(arena, &request, &block, NULL);

    if (r == 0) {
        device_oracle_take(oracle, block.address, bytes, 0, stream);
        give(block);
    }
    right();
    return r;
}

static void run(uint8_t stream) {
    for (unsigned n = 0; n < 40; n++) {
        device_oracle_run(oracle, stream);
        stream_poll(arena); /* records and queries of the fake fail now and then */
    }
}

START_TEST(what_a_stream_had_before_outlives_a_block_that_is_freed_plainly) {
    struct arena_block block;

    begin_streams(false, false);
    give_on(take_on(MIB(1), one), one);
    block = take_on(MIB(1), one);
    give(block);
    ck_assert_uint_eq(stats().pending_bytes, MIB(1));
    ck_assert_int_eq(try_on(KIB(1), two), -ENOMEM);
    ck_assert_int_eq(try_on(KIB(1), 0), -ENOMEM);
    ck_assert_int_eq(arena_trim(arena, 0, NULL), 0); /* and it is not unmapped either */
    ck_assert_uint_eq(stats().reserved_bytes, MIB(1));
    right();
    run(one);
    ck_assert_uint_eq(stats().pending_bytes, 0);
    ck_assert_int_eq(try_on(MIB(1), two), 0);
    end();
}
END_TEST

START_TEST(what_a_stream_had_before_outlives_a_block_that_is_freed_on_another) {
    uint8_t both[] = { 0, 0 };

    for (unsigned n = 0; n < 2; n++) {
        struct arena_block block;

        begin_streams(false, false);
        give_on(take_on(MIB(1), one), one);
        if (n == 0)
            give_on(take_on(MIB(1), one), two);
        else {
            both[0] = two;
            both[1] = three;
            block = take_on(MIB(1), one);
            device_oracle_give(oracle, block.address, MIB(1), both, 2);
            ck_assert_int_eq(arena_dealloc(arena, block.handle, both, 2), 0);
        }
        for (uint8_t stream = 0; stream <= three; stream++)
            ck_assert_int_eq(try_on(KIB(1), stream), -ENOMEM);
        run(two);
        run(three);
        for (uint8_t stream = 0; stream <= three; stream++)
            ck_assert_int_eq(try_on(KIB(1), stream), -ENOMEM);
        run(one);
        ck_assert_uint_eq(stats().pending_bytes, 0);
        ck_assert_int_eq(try_on(MIB(1), 0), 0);
        end();
    }
}
END_TEST

START_TEST(a_past_on_plain_memory_outlives_its_block_too) {
    struct arena_request request = { .bytes = KIB(64), .flags = ARENA_PLAIN };
    struct arena_block block;

    begin(
        &(struct device_oracle_options){ .span_bytes = MIB(64), .regions = true, .no_wait = true },
        &(struct arena_options){ .cap_bytes = KIB(64) });
    ck_assert_int_eq(arena_stream_new(arena, 1, &one), 0);
    request.stream = one;
    for (unsigned n = 0; n < 2; n++) {
        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
        device_oracle_take(oracle, block.address, KIB(64), 0, one);
        if (n)
            give(block);
        else
            give_on(block, one);
    }
    ck_assert_int_eq(arena_trim(arena, 0, NULL), 0);
    ck_assert_uint_eq(stats().reserved_bytes, KIB(64)); /* the region waits */
    ck_assert_int_eq(try_on(KIB(64), 0), -ENOMEM);      /* nor is it given back for this */
    run(one);
    ck_assert_int_eq(arena_trim(arena, 0, NULL), 0);
    ck_assert_uint_eq(stats().reserved_bytes, 0);
    end();
}
END_TEST

START_TEST(a_few_bytes_of_a_stream_do_not_withhold_a_large_neighbour) {
    struct arena_block large, small, rest;

    for (int first = 0; first < 2; first++) {
        begin_streams(false, false);
        large = take(KIB(512));
        small = take_on(256, one);
        rest = take(KIB(512) - 256);
        if (first)
            give(large);
        give_on(small, one);
        if (!first)
            give(large);
        ck_assert_uint_eq(stats().pending_bytes, 256);
        ck_assert_int_eq(try_on(KIB(512), two), 0);
        ck_assert_int_eq(try_on(KIB(512), 0), 0);

        /* The stream itself may have both; the rests keep their streams. */
        ck_assert_int_eq(try_on(KIB(512) + 256, two), -ENOMEM);
        large = take_on(KIB(500), 0);
        give_on(take_on(KIB(12) + 256, one), one);
        ck_assert_uint_eq(stats().pending_bytes, KIB(12) + 256);
        give(large);
        give(rest);
        run(one);
        ck_assert_int_eq(try_on(MIB(1), two), 0);
        end();
    }
}
END_TEST

START_TEST(what_was_freed_later_does_not_withhold_what_was_freed_before) {
    struct arena_block large, small;

    begin_streams(false, false);
    large = take_on(KIB(512), one);
    small = take_on(256, one);
    take(KIB(512) - 256);
    give_on(large, one);
    for (unsigned n = 0; n < 40; n++)
        stream_poll(arena); /* an event is recorded */
    give_on(small, one);
    device_oracle_run(oracle, one); /* what was queued at the first free … */
    device_oracle_run(oracle, one); /* … and the event */
    for (unsigned n = 0; n < 40; n++)
        stream_poll(arena);
    ck_assert_uint_eq(stats().pending_bytes, 256);
    ck_assert_int_eq(try_on(KIB(512), two), 0);
    end();
}
END_TEST

START_TEST(neighbours_that_are_enough_for_a_stream_are_taken_together) {
    for (unsigned aligned = 0; aligned < 2; aligned++) {
        struct arena_request request = { .bytes = KIB(300) };
        struct arena_block blocks[6], block;

        begin_streams(false, false);
        for (unsigned n = 0; n < 6; n++)
            blocks[n] = take_on(n == 5 ? KIB(524) : KIB(100), n % 2 ? one : 0);
        /* 0 stays; 1 of the stream, 2 for all, 3 of the stream, 4 for all */
        for (unsigned n = 1; n < 5; n++)
            if (n % 2)
                give_on(blocks[n], one);
            else
                give(blocks[n]);
        request.align_bytes = aligned ? KIB(64) : 0;
        for (unsigned stream = 0; stream < 3; stream++) {
            if (stream == one)
                continue;
            request.stream = (uint8_t)stream;
            ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), -ENOMEM);
        }
        request.stream = one;
        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
        device_oracle_take(oracle, block.address, KIB(300), request.align_bytes, one);
        ck_assert_uint_eq(block.address, blocks[1].address + (aligned ? KIB(28) : 0));
        right();
        give(block);
        run(one);
        ck_assert_int_eq(try_on(KIB(400), two), 0);
        end();
    }
}
END_TEST

START_TEST(memory_of_several_streams_is_waited_for_before_failing) {
    for (unsigned order = 0; order < 2; order++)
        for (uint8_t asks = 0; asks <= 3; asks++) {
            uint8_t streams[2];
            struct arena_block block;
            int r = -ENOMEM;

            if (!asks && order) /* the host can only wait */
                continue;
            begin_streams(!order, order);
            streams[0] = one;
            streams[1] = two;
            block = take(MIB(1));
            device_oracle_give(oracle, block.address, MIB(1), streams, 2);
            ck_assert_int_eq(arena_dealloc(arena, block.handle, streams, 2), 0);
            for (unsigned n = 0; r < 0 && n < 20; n++) /* events fail to be recorded at times */
                r = try_on(MIB(1), asks);
            ck_assert_int_eq(r, 0);
            end();
        }
}
END_TEST

START_TEST(the_end_of_an_arena_waits_for_its_streams) {
    for (unsigned live = 0; live < 2; live++) {
        begin_streams(true, false);
        give_on(take_on(MIB(1), one), one);
        if (live) { /* the past of a live block: the same holds as for the one before */
            struct arena_block block = take_on(MIB(1), one);

            device_oracle_give(oracle, block.address, MIB(1), NULL, 0);
        }
        arena = arena_free(arena);
        ck_assert_msg(!device_oracle_mistake(oracle), "%s", device_oracle_mistake(oracle));
        ck_assert_uint_eq(device_oracle_events(oracle), 0);
        oracle = device_oracle_free(oracle);
    }
}
END_TEST

SUITE("arena-streams", what_a_stream_had_before_outlives_a_block_that_is_freed_plainly,
      what_a_stream_had_before_outlives_a_block_that_is_freed_on_another,
      a_past_on_plain_memory_outlives_its_block_too,
      a_few_bytes_of_a_stream_do_not_withhold_a_large_neighbour,
      what_was_freed_later_does_not_withhold_what_was_freed_before,
      neighbours_that_are_enough_for_a_stream_are_taken_together,
      memory_of_several_streams_is_waited_for_before_failing,
      the_end_of_an_arena_waits_for_its_streams)
