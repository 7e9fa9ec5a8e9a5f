/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "allocator/allocator.h"
#include "base/error.h"
#include "tests/support/shadow.h"
#include "tests/support/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define PAGE   KIB(64)

static struct shadow *shadow;
static struct arena *arena;

static void begin(const struct shadow_options *shadow_options,
                  const struct arena_options *options) {
    struct shadow_options with_page = *shadow_options;
    struct arena_options with_streams = *options;

    with_page.page_bytes = with_page.page_bytes ? with_page.page_bytes : PAGE;
    ck_assert_int_eq(shadow_new(&shadow, &with_page), 0);
    with_streams.stream_ops = shadow_stream_ops();
    with_streams.stream_userdata = shadow;
    ck_assert_int_eq(arena_new(&arena, shadow_source(shadow), &with_streams, NULL), 0);
}

static void right(void) {
    struct allot_error err = { 0 };

    ck_assert_msg(arena_check(arena, &err) == 0, "%s", err.text);
    ck_assert_msg(!shadow_mistake(shadow), "%s", shadow_mistake(shadow));
}

/* The arena's end takes its blocks with it, and all of its memory where the source takes it. */
static void end(void) {
    bool gives = !shadow_source(shadow)->grow || shadow_source(shadow)->trim;

    right();
    arena = arena_free(arena);
    if (gives)
        ck_assert_uint_eq(shadow_mapped_bytes(shadow), 0);
    shadow = shadow_free(shadow);
}

static struct arena_block take_on(uint64_t bytes, uint8_t stream) {
    struct arena_request request = { .bytes = bytes, .stream = stream };
    struct arena_block block;

    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    shadow_take(shadow, block.address, bytes, 0, stream);
    return block;
}

static struct arena_block take(uint64_t bytes) {
    return take_on(bytes, 0);
}

static int try(uint64_t bytes) {
    struct arena_request request = { .bytes = bytes };
    struct arena_block block;
    int r = arena_alloc(arena, &request, &block, NULL);

    if (r == 0)
        ck_assert_int_eq(arena_dealloc(arena, block.handle), 0);
    return r;
}

static void give(struct arena_block block) {
    uint64_t bytes;

    ck_assert_int_eq(arena_find(arena, block.handle, NULL, &bytes), 0);
    shadow_give(shadow, block.address, bytes, NULL, 0);
    ck_assert_int_eq(arena_dealloc(arena, block.handle), 0);
}

static void give_on(struct arena_block block, uint8_t stream) {
    uint64_t bytes;

    ck_assert_int_eq(arena_find(arena, block.handle, NULL, &bytes), 0);
    shadow_give(shadow, block.address, bytes, &stream, 1);
    ck_assert_int_eq(arena_dealloc_on(arena, block.handle, &stream, 1), 0);
}

static struct arena_stats stats(void) {
    struct arena_stats ret;

    arena_get_stats(arena, &ret);
    return ret;
}

static const struct shadow_options placed = { .span_bytes = MIB(64) };
static const struct arena_options plainly = { .cap_bytes = MIB(8), .max_shards = 1 };

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
        ck_assert_ptr_nonnull(strstr(err.text, "more than the whole cap"));
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
        shadow_take(shadow, block.address, 1000, request.align_bytes, 0);
        right();
    }
    ck_assert_int_eq(arena_alloc(arena, &(struct arena_request){ .bytes = 1, .align_bytes = 768 },
                                 &(struct arena_block){ 0 }, NULL),
                     -EINVAL);
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

START_TEST(growth_is_in_pages_and_at_most_one_percent_beyond_the_need) {
    begin(&(struct shadow_options){ .span_bytes = MIB(512) },
          &(struct arena_options){ .max_shards = 1 });
    for (unsigned n = 0; n < 3000; n++) {
        struct arena_stats now;

        take(KIB(60));
        now = stats();
        ck_assert_uint_eq(now.reserved_bytes % PAGE, 0);
        ck_assert_uint_le(now.reserved_bytes, now.used_bytes + PAGE + now.used_bytes / 100);
    }
    ck_assert_uint_lt(stats().grows, 1500);
    end();
}
END_TEST

START_TEST(the_whole_share_can_be_taken_at_the_start) {
    struct arena *second;

    begin(&placed,
          &(struct arena_options){ .cap_bytes = MIB(8), .initial_bytes = MIB(8), .max_shards = 1 });
    ck_assert_uint_eq(stats().reserved_bytes, MIB(8));
    take(MIB(8));
    ck_assert_int_eq(try(1), -ENOMEM);
    ck_assert_uint_eq(stats().grows, 1);
    end();

    ck_assert_int_eq(
        shadow_new(&shadow, &(struct shadow_options){ .span_bytes = MIB(64), .page_bytes = PAGE }),
        0);
    shadow_fail(shadow, 1, true);
    ck_assert_int_eq(arena_new(&second, shadow_source(shadow),
                               &(struct arena_options){ .initial_bytes = MIB(8) }, NULL),
                     -ENOMEM);
    ck_assert_uint_eq(shadow_mapped_bytes(shadow), 0);
    shadow = shadow_free(shadow);
}
END_TEST

START_TEST(a_refused_growth_is_tried_smaller) {
    /* The device has exactly what is needed, and nothing for a batch. */
    begin(&(struct shadow_options){ .span_bytes = MIB(512), .device_bytes = MIB(64) },
          &(struct arena_options){ .max_shards = 1 });
    for (unsigned n = 0; n < 1024; n++)
        take(PAGE);
    ck_assert_uint_eq(stats().reserved_bytes, MIB(64));
    ck_assert_uint_gt(stats().refusals, 0);
    ck_assert_int_eq(try(1), -ENOMEM);
    end();
}
END_TEST

START_TEST(a_growth_that_fails_half_way_is_undone) {
    begin(&placed, &plainly);
    take(KIB(10));
    shadow_fail(shadow, 1, true);
    ck_assert_int_eq(try(MIB(2)), -ENOMEM);
    ck_assert_uint_eq(shadow_mapped_bytes(shadow), stats().reserved_bytes);
    ck_assert_uint_eq(stats().reserved_bytes, PAGE);
    shadow_fail(shadow, 0, false);
    take(MIB(2));
    end();

    /* What cannot be undone is kept, counted and used. */
    begin(&(struct shadow_options){ .span_bytes = MIB(64), .no_trim = true }, &plainly);
    shadow_fail(shadow, 1, true);
    ck_assert_int_eq(try(MIB(2)), -ENOMEM);
    ck_assert_uint_gt(stats().reserved_bytes, 0);
    ck_assert_uint_eq(shadow_mapped_bytes(shadow), stats().reserved_bytes);
    shadow_fail(shadow, 0, false);
    take(MIB(2));
    end();
}
END_TEST

/* A program with every kind of growth in it; what fails is left out. */
static void program(void) {
    struct arena_block blocks[64] = { 0 };

    for (unsigned n = 0; n < 200; n++) {
        struct arena_block *block = &blocks[n * 29 % 64];

        if (block->handle) {
            give(*block);
            block->handle = 0;
        } else {
            struct arena_request request = { .bytes = KIB(1) << n % 10,
                                             .flags = n % 7 == 0 ? ARENA_PLAIN : 0 };

            if (arena_alloc(arena, &request, block, NULL) == 0)
                shadow_take(shadow, block->address, request.bytes, 0, 0);
        }
        if (n % 16 == 0)
            right();
    }
    for (unsigned n = 0; n < 64; n++)
        if (blocks[n].handle)
            give(blocks[n]);
}

START_TEST(a_source_that_fails_at_any_call_does_no_harm) {
    static const struct shadow_options kinds[] = {
        { .span_bytes = MIB(64), .regions = true },
        { .span_bytes = MIB(64), .regions = true, .no_remap = true },
        { .span_bytes = MIB(64), .regions = true, .no_remap = true, .no_trim = true },
        { .span_bytes = 0 },
    };

    for (unsigned kind = 0; kind < ELEMENTSOF(kinds); kind++) {
        unsigned n_calls = 1;

        for (unsigned n = 0; n <= n_calls; n++)
            for (int part = 0; part < 2; part++) {
                begin(&kinds[kind], &(struct arena_options){ .cap_bytes = MIB(2) });
                shadow_fail(shadow, n, part);
                program();
                if (n == 0)
                    n_calls = shadow_calls(shadow);
                /* Once the source is well again, everything is there. */
                shadow_fail(shadow, 0, false);
                arena_trim(arena, 0, NULL);
                if (!kinds[kind].no_trim)
                    ck_assert_int_eq(try(MIB(2)), 0);
                end();
            }
        ck_assert_uint_gt(n_calls, 3);
    }
}
END_TEST

/* Every other page is free, and the cap is reached. */
static void fragment(const struct shadow_options *options) {
    struct arena_block blocks[128];

    begin(options, &plainly);
    for (unsigned n = 0; n < 128; n++)
        blocks[n] = take(PAGE);
    for (unsigned n = 0; n < 128; n += 2)
        give(blocks[n]);
    ck_assert_uint_eq(stats().largest_free_bytes, PAGE);
}

START_TEST(wholly_free_pages_move_to_where_they_are_needed_before_anything_fails) {
    struct arena_block large;

    fragment(&placed);
    large = take(MIB(4)); /* all 64 free pages at once */
    ck_assert_uint_eq(stats().reserved_bytes, MIB(8));
    ck_assert_uint_eq(stats().moved_bytes, MIB(4));
    right();
    ck_assert_int_eq(try(1), -ENOMEM);
    give(large);
    ck_assert_int_eq(try(MIB(4)), 0);
    ck_assert_int_eq(try(MIB(4) + 1), -ENOMEM);
    end();

    /* By trim and grow, where the source cannot move. */
    fragment(&(struct shadow_options){ .span_bytes = MIB(64), .no_remap = true });
    take(MIB(4));
    ck_assert_uint_eq(stats().peak_reserved_bytes, MIB(8));
    end();
}
END_TEST

START_TEST(where_pages_cannot_move_the_report_says_so) {
    char text[2048];

    fragment(&(struct shadow_options){ .span_bytes = MIB(64), .no_remap = true, .no_trim = true });
    ck_assert_int_eq(try(MIB(2)), -ENOMEM);
    arena_report(arena, &(struct arena_request){ .bytes = MIB(2) }, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "in pieces"));
    ck_assert_ptr_nonnull(strstr(text, "cannot move"));
    end();
}
END_TEST

START_TEST(moved_pages_leave_holes_that_are_used_again) {
    /* 64 MiB of addresses for 8 MiB of memory: without holes they would be gone soon. */
    fragment(&placed);
    for (unsigned n = 0; n < 100; n++) {
        struct arena_block blocks[8];

        for (unsigned k = 0; k < 8; k++)
            blocks[k] = take(KIB(300) + k * KIB(30));
        for (unsigned k = 0; k < 8; k++)
            give(blocks[k * 3 % 8]);
        right();
    }
    end();
}
END_TEST

START_TEST(memory_freed_on_a_stream_is_its_own_at_once_and_others_after_the_event) {
    struct arena_block a, b;
    uint8_t one, two;

    begin(&(struct shadow_options){ .span_bytes = MIB(64), .no_wait = true, .no_order = true },
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
        shadow_run(shadow, one);
        arena_poll(arena);
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

    begin(&(struct shadow_options){ .span_bytes = MIB(64), .no_wait = true, .no_order = true },
          &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
    ck_assert_int_eq(arena_stream_new(arena, 1, &streams[0]), 0);
    ck_assert_int_eq(arena_stream_new(arena, 2, &streams[1]), 0);
    block = take_on(MIB(1), streams[0]);
    shadow_give(shadow, block.address, MIB(1), streams, 2);
    ck_assert_int_eq(arena_dealloc_on(arena, block.handle, streams, 2), 0);
    ck_assert_int_eq(arena_dealloc_on(arena, block.handle, streams, 2), -EINVAL);
    for (unsigned n = 0; n < 40; n++) {
        shadow_run(shadow, streams[0]);
        arena_poll(arena);
    }
    ck_assert_int_eq(arena_alloc(arena,
                                 &(struct arena_request){ .bytes = MIB(1), .stream = streams[0] },
                                 &block, NULL),
                     -ENOMEM);
    right();
    for (unsigned n = 0; n < 40; n++) {
        shadow_run(shadow, streams[1]);
        arena_poll(arena);
    }
    take_on(MIB(1), streams[0]);
    end();
}
END_TEST

START_TEST(before_failing_a_stream_is_made_to_wait_or_else_the_host) {
    uint8_t one, two;

    for (int order = 0; order < 2; order++) {
        struct arena_block block;
        unsigned tries = 0;
        int r = -ENOMEM;

        begin(
            &(struct shadow_options){ .span_bytes = MIB(64), .no_order = !order, .no_wait = order },
            &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
        ck_assert_int_eq(arena_stream_new(arena, 1, &one), 0);
        ck_assert_int_eq(arena_stream_new(arena, 2, &two), 0);
        give_on(take_on(MIB(1), one), one);
        /* The fake's events fail to be recorded one time in sixteen. */
        for (; r < 0 && tries < 20; tries++)
            r = arena_alloc(arena, &(struct arena_request){ .bytes = MIB(1), .stream = two },
                            &block, NULL);
        ck_assert_int_eq(r, 0);
        shadow_take(shadow, block.address, MIB(1), 0, two);
        end();
    }
}
END_TEST

START_TEST(a_handle_is_good_for_one_free) {
    struct arena_block a, b;

    begin(&placed, &plainly);
    a = take(1000);
    give(a);
    ck_assert_int_eq(arena_dealloc(arena, a.handle), -EINVAL);
    b = take(1000);
    ck_assert_uint_eq(a.address, b.address);
    ck_assert_uint_ne(a.handle, b.handle);
    ck_assert_int_eq(arena_dealloc(arena, a.handle), -EINVAL);
    ck_assert_int_eq(arena_dealloc(arena, 0), -EINVAL);
    ck_assert_int_eq(arena_dealloc(arena, UINT64_MAX), -EINVAL);
    ck_assert_int_eq(arena_find(arena, a.handle, NULL, NULL), -EINVAL);
    give(b);
    end();
}
END_TEST

START_TEST(pointers_lead_to_their_blocks_and_other_addresses_to_none) {
    uint64_t addresses[500];

    begin(&(struct shadow_options){ .span_bytes = MIB(64), .regions = true }, &plainly);
    for (unsigned n = 0; n < 500; n++) {
        struct arena_request request = { .bytes = 256 * (n % 9 + 1),
                                         .flags = n % 5 ? 0 : ARENA_PLAIN };

        ck_assert_int_eq(arena_alloc_pointer(arena, &request, &addresses[n], NULL), 0);
        ck_assert_int_eq(arena_dealloc_pointer(arena, addresses[n] + 256), -EINVAL);
    }
    right();
    for (unsigned n = 0; n < 500; n++) {
        ck_assert_int_eq(arena_dealloc_pointer(arena, addresses[n * 7 % 500]), 0);
        ck_assert_int_eq(arena_dealloc_pointer(arena, addresses[n * 7 % 500]), -EINVAL);
    }
    ck_assert_int_eq(arena_dealloc_pointer(arena, 0), -EINVAL);
    ck_assert_uint_eq(stats().live_blocks, 0);
    end();
}
END_TEST

START_TEST(communication_buffers_lie_in_plain_regions) {
    struct arena_request request = { .bytes = KIB(100), .flags = ARENA_PLAIN };
    struct arena_block block, other;

    begin(&(struct shadow_options){ .span_bytes = MIB(64), .regions = true }, &plainly);
    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    other = take(KIB(100));
    ck_assert_uint_ge(block.address, shadow_source(shadow)->base + MIB(64));
    ck_assert_uint_lt(other.address, shadow_source(shadow)->base + MIB(64));
    ck_assert_int_eq(arena_dealloc(arena, block.handle), 0);
    ck_assert_uint_eq(stats().live_bytes, KIB(100));
    end();

    begin(&placed, &plainly);
    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), -ENOTSUP);
    end();
}
END_TEST

START_TEST(trim_gives_back_what_is_wholly_free_and_keeps_what_it_is_told) {
    uint64_t bytes;

    fragment(&placed);
    ck_assert_int_eq(arena_trim(arena, MIB(6), &bytes), 0);
    ck_assert_uint_eq(bytes, MIB(2));
    ck_assert_uint_eq(shadow_mapped_bytes(shadow), MIB(6));
    ck_assert_int_eq(arena_trim(arena, 0, &bytes), 0);
    ck_assert_uint_eq(shadow_mapped_bytes(shadow), MIB(4));
    ck_assert_uint_eq(stats().trimmed_bytes, MIB(4));
    ck_assert_uint_eq(stats().free_bytes, 0);
    right();
    take(MIB(4));
    end();
}
END_TEST

START_TEST(idle_regions_go_back_before_a_request_fails) {
    struct arena_block blocks[8];

    begin(&(struct shadow_options){ .device_bytes = MIB(8) }, &plainly);
    for (unsigned n = 0; n < 8; n++)
        blocks[n] = take(MIB(1));
    for (unsigned n = 0; n < 8; n++)
        give(blocks[n]);
    take(MIB(8)); /* no region is that large */
    ck_assert_uint_le(stats().peak_reserved_bytes, MIB(8));
    end();
}
END_TEST

START_TEST(idle_memory_of_the_other_kind_goes_back_before_a_request_fails) {
    static const struct shadow_options kinds[] = {
        { .span_bytes = MIB(64), .regions = true },
        { .span_bytes = MIB(64), .regions = true, .no_remap = true },
    };

    for (unsigned kind = 0; kind < ELEMENTSOF(kinds); kind++) {
        struct arena_request plain = { .bytes = MIB(6), .flags = ARENA_PLAIN };
        struct arena_block block, kept;

        begin(&kinds[kind], &plainly);
        kept = take(KIB(10));
        for (unsigned n = 0; n < 2; n++) {
            ck_assert_int_eq(arena_alloc(arena, &plain, &block, NULL), 0);
            ck_assert_int_eq(arena_dealloc(arena, block.handle), 0);
            give(take(MIB(7)));
            right();
        }
        ck_assert_uint_le(stats().peak_reserved_bytes, MIB(8));
        give(kept);
        end();
    }
}
END_TEST

START_TEST(a_cap_can_be_changed) {
    begin(&placed, &plainly);
    arena_set_cap(arena, MIB(1));
    take(MIB(1));
    ck_assert_int_eq(try(1), -ENOMEM);
    arena_set_cap(arena, MIB(2));
    take(MIB(1));
    arena_set_cap(arena, 0);
    take(MIB(10));
    ck_assert_uint_eq(stats().cap_bytes, 0);
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
        shadow_new(&shadow, &(struct shadow_options){ .span_bytes = MIB(64), .page_bytes = PAGE }),
        0);
    source = *shadow_source(shadow);
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
            "GPU-1",        "asked for 3 MiB", "for matmul",      "live 6 MiB in 2 blocks",
            "cap of 8 MiB", "largest",         "conv1 3 MiB (1)", "conv2 3 MiB (1)",
            "A cap larger", "Lease 7 of anna",
        };

        ck_assert_msg(strstr(err.text, words[n]), "%s is not in: %s", words[n], err.text);
    }
    length = arena_report(arena, &request, cut, sizeof(cut));
    ck_assert_int_eq(length, (int)strlen(err.text));
    ck_assert_uint_eq(strlen(cut), sizeof(cut) - 1);
    arena = arena_free(arena);
    shadow = shadow_free(shadow);
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

START_TEST(the_same_calls_give_the_same_offsets) {
    uint64_t first[400];

    for (unsigned round = 0; round < 3; round++) {
        struct arena_block blocks[400] = { 0 };

        /* However many shards there may be: one thread uses one. */
        begin(&(struct shadow_options){ .span_bytes = MIB(512) },
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
    odd = *shadow_source(shadow);
    odd.page_bytes = 3000;
    ck_assert_int_eq(arena_new(&none, &odd, NULL, NULL), -EINVAL);
    odd = *shadow_source(shadow);
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
      growth_is_in_pages_and_at_most_one_percent_beyond_the_need,
      the_whole_share_can_be_taken_at_the_start, a_refused_growth_is_tried_smaller,
      a_growth_that_fails_half_way_is_undone, a_source_that_fails_at_any_call_does_no_harm,
      wholly_free_pages_move_to_where_they_are_needed_before_anything_fails,
      where_pages_cannot_move_the_report_says_so, moved_pages_leave_holes_that_are_used_again,
      memory_freed_on_a_stream_is_its_own_at_once_and_others_after_the_event,
      a_block_of_several_streams_waits_for_all_of_them,
      before_failing_a_stream_is_made_to_wait_or_else_the_host, a_handle_is_good_for_one_free,
      pointers_lead_to_their_blocks_and_other_addresses_to_none,
      communication_buffers_lie_in_plain_regions,
      trim_gives_back_what_is_wholly_free_and_keeps_what_it_is_told,
      idle_regions_go_back_before_a_request_fails,
      idle_memory_of_the_other_kind_goes_back_before_a_request_fails, a_cap_can_be_changed,
      the_report_names_holders_and_what_would_help, classes_count_what_is_live_and_free,
      the_same_calls_give_the_same_offsets, a_source_that_cannot_work_is_refused)
