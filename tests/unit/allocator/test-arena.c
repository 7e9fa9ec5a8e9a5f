/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: sizes, handles, streams, numbers, words. */
#include "tests/support/allocator/arena_fixture.h"

START_TEST(blocks_of_no_bytes_have_an_address_each) {
    struct arena_block a, b;

    begin(&placed, &plainly);
    a = take(0);
    b = take(0);
    ck_assert_uint_ne(a.address, b.address);
    ck_assert_uint_eq(stats().live_bytes, 0);
    ck_assert_uint_eq(stats().used_bytes, 512);
    give(a);
    give(b);
    end();
}
END_TEST

START_TEST(huge_and_overflowing_sizes_are_refused_in_words) {
    static const uint64_t sizes[] = { UINT64_MAX,        UINT64_MAX - 254,  (uint64_t)1 << 63,
                                      (uint64_t)1 << 48, (uint64_t)1 << 40, MIB(8) + 1 };

    begin(&placed, &plainly);
    for (unsigned n = 0; n < ELEMENTSOF(sizes); n++) {
        struct arena_request request = { .bytes = sizes[n] };
        struct allot_error err = { 0 };
        struct arena_block block = { 7, 7 };

        ck_assert_int_eq(arena_alloc(arena, &request, &block, &err), -ENOMEM);
        ck_assert_uint_eq(block.handle, 7);
        ck_assert_ptr_nonnull(strstr(err.text, "out of memory"));
        ck_assert_msg(strstr(err.text, sizes[n] > MIB(8) + 1 ? "look at how the size was computed"
                                                             : "more than the whole cap"),
                      "%s", err.text);
    }
    ck_assert_uint_eq(stats().failures, ELEMENTSOF(sizes));
    ck_assert_uint_eq(stats().reserved_bytes, 0);
    end();
}
END_TEST

START_TEST(alignments_are_kept_and_nonsense_is_refused) {
    begin(&placed, &plainly);
    take(300);
    for (unsigned shift = 0; shift <= 21; shift++) {
        struct arena_request request = { .bytes = 1000, .align_bytes = (uint64_t)1 << shift };
        struct arena_block block;

        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
        device_oracle_take(oracle, block.address, 1000, request.align_bytes, 0);
        right();
    }
    for (unsigned shift = 2; shift < 64; shift++)
        ck_assert_int_eq(
            arena_alloc(arena,
                        &(struct arena_request){ .bytes = shift % 2 ? 1 : UINT64_MAX,
                                                 .align_bytes = ((uint64_t)1 << shift) + 1 },
                        &(struct arena_block){ 0 }, NULL),
            -EINVAL);
    ck_assert_int_eq(
        arena_alloc(arena, &(struct arena_request){ .bytes = 1, .align_bytes = (uint64_t)1 << 63 },
                    &(struct arena_block){ 0 }, NULL),
        -ENOMEM);
    ck_assert_int_eq(arena_alloc(arena, &(struct arena_request){ .bytes = 1, .stream = 3 },
                                 &(struct arena_block){ 0 }, NULL),
                     -EINVAL);
    end();
}
END_TEST

START_TEST(free_neighbours_become_one_and_what_is_too_much_is_split_off) {
    struct arena_block blocks[9];

    begin(&placed, &plainly);
    for (unsigned n = 0; n < 9; n++)
        blocks[n] = take(KIB(1));
    for (unsigned n = 0; n < 9; n += 2)
        give(blocks[n]);
    ck_assert_uint_eq(stats().free_blocks, 5);
    for (unsigned n = 1; n < 9; n += 2)
        give(blocks[n]);
    ck_assert_uint_eq(stats().free_blocks, 1);
    ck_assert_uint_eq(stats().fragmentation_permyriad, 0);
    ck_assert_uint_eq(stats().largest_free_bytes, PAGE);

    /* The smallest hole that fits is taken, and only as much of it as is needed. */
    blocks[0] = take(KIB(4));
    blocks[1] = take(256);
    blocks[2] = take(KIB(2));
    blocks[3] = take(256);
    give(blocks[0]);
    give(blocks[2]);
    blocks[4] = take(KIB(1));
    ck_assert_uint_eq(blocks[4].address, blocks[2].address);
    blocks[5] = take(KIB(1));
    ck_assert_uint_eq(blocks[5].address, blocks[2].address + KIB(1));
    end();
}
END_TEST

START_TEST(memory_freed_on_a_stream_is_its_own_at_once_and_others_after_the_event) {
    struct arena_block a, b;
    uint8_t one, two;

    begin(
        &(struct device_oracle_options){ .span_bytes = MIB(64), .no_wait = true, .no_order = true },
        &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
    ck_assert_int_eq(arena_stream_new(arena, 1, &one), 0);
    ck_assert_int_eq(arena_stream_new(arena, 2, &two), 0);

    a = take_on(KIB(100), one);
    take_on(KIB(900), one);
    give_on(a, one);
    b = take_on(KIB(100), one);
    ck_assert_uint_eq(a.address, b.address);
    give_on(b, one);
    ck_assert_uint_eq(stats().pending_bytes, KIB(100));

    /* Neither the other stream nor the host may have it before the event is over. */
    ck_assert_int_eq(
        arena_alloc(arena, &(struct arena_request){ .bytes = KIB(90), .stream = two }, &b, NULL),
        -ENOMEM);
    ck_assert_int_eq(try(KIB(90)), -ENOMEM);
    for (unsigned n = 0; n < 40; n++) {
        device_oracle_run(oracle, one);
        stream_poll(arena);
    }
    ck_assert_uint_eq(stats().pending_bytes, 0);
    b = take_on(KIB(90), two);
    ck_assert_uint_eq(a.address, b.address);
    end();
}
END_TEST

START_TEST(a_block_of_several_streams_waits_for_all_of_them) {
    struct arena_block block;
    uint8_t streams[2];

    begin(
        &(struct device_oracle_options){ .span_bytes = MIB(64), .no_wait = true, .no_order = true },
        &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
    ck_assert_int_eq(arena_stream_new(arena, 1, &streams[0]), 0);
    ck_assert_int_eq(arena_stream_new(arena, 2, &streams[1]), 0);
    block = take_on(MIB(1), streams[0]);
    device_oracle_give(oracle, block.address, MIB(1), streams, 2);
    ck_assert_int_eq(arena_dealloc(arena, block.handle, streams, 2), 0);
    ck_assert_int_eq(arena_dealloc(arena, block.handle, streams, 2), -EINVAL);
    for (unsigned n = 0; n < 40; n++) {
        device_oracle_run(oracle, streams[0]);
        stream_poll(arena);
    }
    ck_assert_int_eq(arena_alloc(arena,
                                 &(struct arena_request){ .bytes = MIB(1), .stream = streams[0] },
                                 &block, NULL),
                     -ENOMEM);
    right();
    for (unsigned n = 0; n < 40; n++) {
        device_oracle_run(oracle, streams[1]);
        stream_poll(arena);
    }
    take_on(MIB(1), streams[0]);
    end();
}
END_TEST

START_TEST(host_memory_for_tags_and_waiting_frees_is_counted) {
    struct arena_block blocks[100];
    uint8_t streams[2];
    uint64_t before;
    char name[1000];

    begin(&placed, &plainly);
    ck_assert_int_eq(arena_stream_new(arena, 1, &streams[0]), 0);
    ck_assert_int_eq(arena_stream_new(arena, 2, &streams[1]), 0);
    before = stats().metadata_bytes;
    memset(name, 'x', sizeof(name));
    for (unsigned n = 0; n < 100; n++) {
        snprintf(name + 990, 10, "%u", n);
        ck_assert_uint_eq(arena_tag(arena, name), n + 1);
        ck_assert_uint_eq(arena_tag(arena, name), n + 1); /* known */
    }
    ck_assert_uint_ge(stats().metadata_bytes, before + 100 * 991 + 100 * sizeof(char *));
    ck_assert_uint_le(stats().metadata_bytes, before + 100 * 1000 + 128 * 32);

    for (unsigned n = 0; n < 100; n++)
        blocks[n] = take_on(1000, streams[0]);
    before = stats().metadata_bytes;
    for (unsigned n = 0; n < 100; n++) {
        device_oracle_give(oracle, blocks[n].address, 1000, streams, 2);
        ck_assert_int_eq(arena_dealloc(arena, blocks[n].handle, streams, 2), 0);
    }
    ck_assert_uint_ge(stats().metadata_bytes, before + 100 * 40);
    for (unsigned n = 0; stats().pending_bytes && n < 1000; n++) {
        device_oracle_run(oracle, streams[n % 2]);
        stream_poll(arena);
    }
    ck_assert_uint_eq(stats().metadata_bytes, before);
    end();
}
END_TEST

START_TEST(before_failing_a_stream_is_made_to_wait_or_else_the_host) {
    uint8_t one, two;

    for (int order = 0; order < 2; order++) {
        struct arena_block block;
        unsigned tries = 0;
        int r = -ENOMEM;

        begin(&(struct device_oracle_options){ .span_bytes = MIB(64),
                                               .no_order = !order,
                                               .no_wait = order },
              &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
        ck_assert_int_eq(arena_stream_new(arena, 1, &one), 0);
        ck_assert_int_eq(arena_stream_new(arena, 2, &two), 0);
        give_on(take_on(MIB(1), one), one);
        /* The fake's events fail to be recorded one time in sixteen. */
        for (; r < 0 && tries < 20; tries++)
            r = arena_alloc(arena, &(struct arena_request){ .bytes = MIB(1), .stream = two },
                            &block, NULL);
        ck_assert_int_eq(r, 0);
        device_oracle_take(oracle, block.address, MIB(1), 0, two);
        end();
    }
}
END_TEST

START_TEST(a_handle_is_good_for_one_free) {
    struct arena_block a, b;

    begin(&placed, &plainly);
    a = take(1000);
    give(a);
    ck_assert_int_eq(arena_dealloc(arena, a.handle, NULL, 0), -EINVAL);
    b = take(1000);
    ck_assert_uint_eq(a.address, b.address);
    ck_assert_uint_ne(a.handle, b.handle);
    ck_assert_int_eq(arena_dealloc(arena, a.handle, NULL, 0), -EINVAL);
    ck_assert_int_eq(arena_dealloc(arena, 0, NULL, 0), -EINVAL);
    ck_assert_int_eq(arena_dealloc(arena, UINT64_MAX, NULL, 0), -EINVAL);
    give(b);
    end();
}
END_TEST

static int describe(void *userdata, char *text, size_t size) {
    return snprintf(text, size, "Lease 7 of anna holds 12 GiB of this device.");
}

START_TEST(the_report_names_holders_and_what_would_help) {
    struct mem_source source;
    struct arena_request request = { .bytes = MIB(3) };
    struct arena_block block;
    struct allot_error err = { 0 };
    char cut[20];
    int length;

    ck_assert_int_eq(
        device_oracle_new(
            &oracle, &(struct device_oracle_options){ .span_bytes = MIB(64), .page_bytes = PAGE }),
        0);
    source = *device_oracle_source(oracle);
    source.describe = describe;
    ck_assert_int_eq(arena_new(&arena, &source,
                               &(struct arena_options){ .name = "GPU-1", .cap_bytes = MIB(8) },
                               NULL),
                     0);
    ck_assert_uint_eq(arena_tag(arena, "conv1"), arena_tag(arena, "conv1"));
    ck_assert_uint_ne(arena_tag(arena, "conv1"), arena_tag(arena, "conv2"));
    ck_assert_uint_eq(arena_tag(arena, ""), 0);
    for (unsigned n = 0; n < 2; n++) {
        request.tag = arena_tag(arena, n ? "conv2" : "conv1");
        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    }
    request.tag = arena_tag(arena, "matmul");
    ck_assert_int_eq(arena_alloc(arena, &request, &block, &err), -ENOMEM);
    for (unsigned n = 0; n < 10; n++) {
        static const char *const words[] = {
            "GPU-1",           "asked for 3 MiB", "for matmul",      "live 6 MiB in 2 blocks",
            "cap of 8 MiB",    "largest",         "conv1 3 MiB (1)", "conv2 3 MiB (1)",
            "Raising the cap", "Lease 7 of anna",
        };

        ck_assert_msg(strstr(err.text, words[n]), "%s is not in: %s", words[n], err.text);
    }
    /* Where there is little room, the details of the process itself are what is cut. */
    ck_assert(strstr(err.text, "Lease 7 of anna") < strstr(err.text, "conv1 3 MiB"));
    length = arena_report(arena, &request, cut, sizeof(cut));
    ck_assert_int_eq(length, (int)strlen(err.text));
    ck_assert_uint_eq(strlen(cut), sizeof(cut) - 1);
    arena = arena_free(arena);
    oracle = device_oracle_free(oracle);
}
END_TEST

START_TEST(unknown_tags_and_flags_are_refused) {
    struct arena_request request = { .bytes = 1, .flags = 0xfe };
    struct arena_block block = { 7, 7 };
    struct allot_error err = { 0 };

    begin(&placed, &plainly);
    ck_assert_int_eq(arena_alloc(arena, &request, &block, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "0xfe"), "%s", err.text);
    request.flags = 0;
    for (uint32_t known = arena_tag(arena, "conv"), tag = known + 1; tag; tag *= 2) {
        request.tag = tag;
        ck_assert_int_eq(arena_alloc(arena, &request, &block, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, "no tag"), "%s", err.text);
    }
    ck_assert_uint_eq(block.handle, 7);
    request.tag = arena_tag(arena, "conv");
    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    ck_assert_uint_eq(stats().live_blocks, 1);
    end();
}
END_TEST

START_TEST(without_a_cap_the_report_says_that_addresses_are_short) {
    static const struct {
        uint64_t bytes;
        const char *words;
    } cases[] = {
        { UINT64_MAX, "No device is that large" },
        { (uint64_t)1 << 41, "No device is that large" },
        { MIB(64) + 1, "reservation of 64 MiB" },
        { MIB(33), "reservation of 64 MiB" }, /* beside what is live */
    };

    begin(&(struct device_oracle_options){ .span_bytes = MIB(64) },
          &(struct arena_options){ .max_shards = 1 });
    take(MIB(32));
    for (unsigned n = 0; n < ELEMENTSOF(cases); n++) {
        struct arena_request request = { .bytes = cases[n].bytes };
        struct allot_error err = { 0 };
        struct arena_block block;

        ck_assert_int_eq(arena_alloc(arena, &request, &block, &err), -ENOMEM);
        ck_assert_msg(strstr(err.text, cases[n].words), "%u: %s", n, err.text);
        ck_assert_msg(!strstr(err.text, "others hold"), "%u: %s", n, err.text);
    }
    end();
}
END_TEST

START_TEST(classes_count_what_is_live_and_free) {
    struct arena_stats now;

    begin(&placed, &plainly);
    take(256);
    take(511);
    take(KIB(64));
    give(take(KIB(32)));
    now = stats();
    ck_assert_uint_eq(now.classes[0].live_blocks, 1);
    ck_assert_uint_eq(now.classes[1].live_blocks, 1);
    ck_assert_uint_eq(now.classes[1].live_bytes, 512);
    ck_assert_uint_eq(now.classes[8].live_blocks, 1);
    ck_assert_uint_eq(now.live_bytes, 256 + 511 + KIB(64));
    ck_assert_uint_eq(now.used_bytes, 256 + 512 + KIB(64));
    ck_assert_uint_eq(now.peak_live_bytes, now.live_bytes + KIB(32));
    ck_assert_uint_eq(now.free_bytes, now.reserved_bytes - now.used_bytes);
    end();
}
END_TEST

START_TEST(the_largest_hole_is_exact_among_hundreds_of_nearly_its_size) {
    struct arena_block blocks[200];

    /* Sizes of 1024 to 1027 granules share a bin; the largest was freed first, of all. */
    begin(&(struct device_oracle_options){ .span_bytes = MIB(256),
                                           .no_remap = true,
                                           .no_trim = true },
          &(struct arena_options){ .cap_bytes = MIB(128), .max_shards = 1 });
    for (unsigned n = 0; n < 200; n++) {
        blocks[n] = take(256 * (n < 2 ? 1027 : 1024));
        take(256);
    }
    while (stats().largest_free_bytes)
        take(stats().largest_free_bytes);
    for (unsigned n = 0; n < 200; n++)
        give(blocks[n]);
    ck_assert_uint_eq(stats().largest_free_bytes, 256 * 1027);
    for (unsigned n = 0; n < 2; n++) {
        ck_assert_uint_eq(stats().largest_free_bytes, 256 * 1027);
        take(256 * 1027);
        right();
    }
    ck_assert_uint_eq(stats().largest_free_bytes, 256 * 1024);
    end();
}
END_TEST

START_TEST(the_same_calls_give_the_same_offsets) {
    uint64_t first[400];

    for (unsigned round = 0; round < 3; round++) {
        struct arena_block blocks[400] = { 0 };

        /* However many shards there may be: one thread uses one. */
        begin(&(struct device_oracle_options){ .span_bytes = MIB(512) },
              &(struct arena_options){ .cap_bytes = MIB(16), .max_shards = 1 + round * 3 });
        for (unsigned n = 0; n < 400; n++) {
            blocks[n] = take(n * 7919 % 20000);
            if (n % 3 == 2) {
                give(blocks[n * 5 % n]);
                blocks[n * 5 % n] = take(n * 31 % 9000);
            }
            if (round == 0)
                first[n] = blocks[n].address;
            ck_assert_uint_eq(blocks[n].address, first[n]);
        }
        end();
    }
}
END_TEST

START_TEST(a_source_that_cannot_work_is_refused) {
    static const struct mem_source nothing, no_grow = { .span_bytes = MIB(8) };
    struct mem_source odd;
    struct arena *none = NULL;

    begin(&placed, &plainly);
    ck_assert_int_eq(arena_new(&none, &nothing, NULL, NULL), -EINVAL);
    ck_assert_int_eq(arena_new(&none, &no_grow, NULL, NULL), -EINVAL);
    odd = *device_oracle_source(oracle);
    odd.page_bytes = 3000;
    ck_assert_int_eq(arena_new(&none, &odd, NULL, NULL), -EINVAL);
    odd = *device_oracle_source(oracle);
    odd.base += 256;
    ck_assert_int_eq(arena_new(&none, &odd, NULL, NULL), -EINVAL);
    ck_assert_ptr_null(none);
    ck_assert_ptr_null(arena_free(NULL));
    end();
}
END_TEST

SUITE("arena", blocks_of_no_bytes_have_an_address_each,
      huge_and_overflowing_sizes_are_refused_in_words, alignments_are_kept_and_nonsense_is_refused,
      free_neighbours_become_one_and_what_is_too_much_is_split_off,
      memory_freed_on_a_stream_is_its_own_at_once_and_others_after_the_event,
      a_block_of_several_streams_waits_for_all_of_them,
      host_memory_for_tags_and_waiting_frees_is_counted,
      before_failing_a_stream_is_made_to_wait_or_else_the_host, a_handle_is_good_for_one_free,
      the_report_names_holders_and_what_would_help, classes_count_what_is_live_and_free,
      the_largest_hole_is_exact_among_hundreds_of_nearly_its_size,
      the_same_calls_give_the_same_offsets, a_source_that_cannot_work_is_refused,
      unknown_tags_and_flags_are_refused, without_a_cap_the_report_says_that_addresses_are_short)
