/* SPDX-License-Identifier: Apache-2.0 */
/* Growth: where memory comes from, what is tried before a failure, how it goes back. */
#include <sys/resource.h>

#include "base/random.h"
#include "base/units.h"
#include "tests/support/allocator/arena_fixture.h"

START_TEST(growth_is_in_pages_and_at_most_one_percent_beyond_the_need) {
    begin(&(struct device_oracle_options){ .span_bytes = MIB(512) },
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
        device_oracle_new(
            &oracle, &(struct device_oracle_options){ .span_bytes = MIB(64), .page_bytes = PAGE }),
        0);
    device_oracle_fail(oracle, 1, true);
    ck_assert_int_eq(arena_new(&second, device_oracle_source(oracle),
                               &(struct arena_options){ .initial_bytes = MIB(8) }, NULL),
                     -ENOMEM);
    ck_assert_uint_eq(device_oracle_mapped_bytes(oracle), 0);
    oracle = device_oracle_free(oracle);
}
END_TEST

START_TEST(what_cannot_be_taken_at_the_start_is_refused_in_words) {
    static const struct {
        struct device_oracle_options oracle;
        uint64_t cap, initial;
        const char *words;
    } cases[] = {
        { { .span_bytes = MIB(64), .page_bytes = PAGE }, MIB(8), MIB(16), "more than the cap" },
        { { .span_bytes = MIB(64), .page_bytes = PAGE }, MIB(8), UINT64_MAX, "more than the cap" },
        { { .span_bytes = MIB(64), .page_bytes = PAGE }, 0, UINT64_MAX, "has addresses" },
        { { .span_bytes = MIB(64), .page_bytes = PAGE }, 0, MIB(64) + 1, "has addresses" },
        { { .page_bytes = PAGE }, 0, UINT64_MAX, "has addresses" },
        { { .page_bytes = PAGE }, 0, UINT64_MAX - 254, "has addresses" },
    };

    for (unsigned n = 0; n < ELEMENTSOF(cases); n++) {
        struct arena_options options = { .cap_bytes = cases[n].cap,
                                         .initial_bytes = cases[n].initial };
        struct allot_error err = { 0 };
        struct arena *none = NULL;

        ck_assert_int_eq(device_oracle_new(&oracle, &cases[n].oracle), 0);
        ck_assert_int_eq(arena_new(&none, device_oracle_source(oracle), &options, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, cases[n].words), "%u: %s", n, err.text);
        ck_assert_uint_eq(device_oracle_calls(oracle), 0);
        oracle = device_oracle_free(oracle);
    }
    /* A cap that is not a multiple of the page is used up to its last whole page. */
    begin(&placed, &(struct arena_options){ .cap_bytes = MIB(8) - 1, .initial_bytes = MIB(8) - 1 });
    ck_assert_uint_eq(stats().reserved_bytes, MIB(8) - PAGE);
    end();
}
END_TEST

static unsigned regions_held;

static int region_new_askew(void *userdata, uint64_t bytes, uint64_t *ret_address) {
    *ret_address = ((uint64_t)1 << 40) + 128;
    regions_held++;
    return 0;
}

static int region_free_askew(void *userdata, uint64_t address, uint64_t bytes) {
    regions_held--;
    return 0;
}

START_TEST(a_misaligned_region_is_given_back_and_refused_in_words) {
    struct mem_source source = { .region_new = region_new_askew,
                                 .region_free = region_free_askew,
                                 .page_bytes = PAGE };
    struct arena_options options = { .initial_bytes = PAGE };
    struct allot_error err = { 0 };
    struct arena_block block;

    ck_assert_int_eq(arena_new(&arena, &source, &options, &err), -EIO);
    ck_assert_msg(strstr(err.text, "no multiple of 256"), "%s", err.text);
    options.initial_bytes = 0;
    for (unsigned gives_back = 2; gives_back-- > 0;) {
        if (!gives_back)
            source.region_free = NULL;
        ck_assert_int_eq(arena_new(&arena, &source, &options, NULL), 0);
        err = (struct allot_error){ 0 };
        ck_assert_int_eq(arena_alloc(arena, &(struct arena_request){ .bytes = 100 }, &block, &err),
                         -EIO);
        ck_assert_msg(strstr(err.text, "no multiple of 256"), "%s", err.text);
        ck_assert_uint_eq(regions_held, !gives_back);
        ck_assert_uint_eq(stats().failures, 1);
        /* What cannot go back is still held. */
        ck_assert_uint_eq(stats().reserved_bytes, gives_back ? 0 : PAGE);
        ck_assert_uint_eq(stats().free_bytes, stats().reserved_bytes);
        ck_assert_msg(arena_check(arena, &err) == 0, "%s", err.text);
        arena = arena_free(arena);
    }
}
END_TEST

START_TEST(a_refused_growth_is_tried_smaller) {
    /* The device has exactly what is needed, and nothing for a batch. */
    begin(&(struct device_oracle_options){ .span_bytes = MIB(512), .device_bytes = 1023 * PAGE },
          &(struct arena_options){ .max_shards = 1 });
    for (unsigned n = 0; n < 1023; n++)
        take(PAGE);
    ck_assert_uint_eq(stats().reserved_bytes, 1023 * PAGE);
    ck_assert_uint_gt(stats().refusals, 0);
    ck_assert_int_eq(try(1), -ENOMEM);
    end();
}
END_TEST

START_TEST(a_growth_that_fails_half_way_is_undone) {
    begin(&placed, &plainly);
    take(KIB(10));
    device_oracle_fail(oracle, 1, true);
    ck_assert_int_eq(try(MIB(2)), -ENOMEM);
    ck_assert_uint_eq(device_oracle_mapped_bytes(oracle), stats().reserved_bytes);
    ck_assert_uint_eq(stats().reserved_bytes, PAGE);
    device_oracle_fail(oracle, 0, false);
    take(MIB(2));
    end();

    /* What cannot be undone is kept, counted and used. */
    begin(&(struct device_oracle_options){ .span_bytes = MIB(64), .no_trim = true }, &plainly);
    device_oracle_fail(oracle, 1, true);
    ck_assert_int_eq(try(MIB(2)), -ENOMEM);
    ck_assert_uint_gt(stats().reserved_bytes, 0);
    ck_assert_uint_eq(device_oracle_mapped_bytes(oracle), stats().reserved_bytes);
    device_oracle_fail(oracle, 0, false);
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
                device_oracle_take(oracle, block->address, request.bytes, 0, 0);
        }
        if (n % 16 == 0)
            right();
    }
    for (unsigned n = 0; n < 64; n++)
        if (blocks[n].handle)
            give(blocks[n]);
}

START_TEST(a_source_that_fails_at_any_call_does_no_harm) {
    static const struct device_oracle_options kinds[] = {
        { .span_bytes = MIB(64), .regions = true },
        { .span_bytes = MIB(64), .regions = true, .no_remap = true },
        { .span_bytes = MIB(64), .regions = true, .no_remap = true, .no_trim = true },
        { .span_bytes = 0 },
        { .span_bytes = MIB(64), .regions = true, .trim_fails = true },
        { .span_bytes = MIB(64), .regions = true, .no_remap = true, .trim_fails = true },
        { .span_bytes = 0, .trim_fails = true },
    };

    for (unsigned kind = 0; kind < ELEMENTSOF(kinds); kind++) {
        unsigned n_calls = 1;

        for (unsigned n = 0; n <= n_calls; n++)
            for (int how = 0; how < 4; how++) {
                begin(&kinds[kind], &(struct arena_options){ .cap_bytes = MIB(2) });
                (how & 2 ? device_oracle_fail_once : device_oracle_fail)(oracle, n, how & 1);
                program();
                if (n == 0)
                    n_calls = device_oracle_calls(oracle);
                /* Once the source works again, all memory is there. */
                device_oracle_fail(oracle, 0, false);
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
static void fragment(const struct device_oracle_options *options) {
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
    fragment(&(struct device_oracle_options){ .span_bytes = MIB(64), .no_remap = true });
    take(MIB(4));
    ck_assert_uint_eq(stats().peak_reserved_bytes, MIB(8));
    end();
}
END_TEST

START_TEST(where_pages_cannot_move_the_report_says_so) {
    char text[2048];

    fragment(&(struct device_oracle_options){
        .span_bytes = MIB(64), .no_remap = true, .no_trim = true });
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

START_TEST(communication_buffers_lie_in_plain_regions) {
    struct arena_request request = { .bytes = KIB(100), .flags = ARENA_PLAIN };
    struct arena_block block, other;

    begin(&(struct device_oracle_options){ .span_bytes = MIB(64), .regions = true }, &plainly);
    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    other = take(KIB(100));
    ck_assert_uint_ge(block.address, device_oracle_source(oracle)->base + MIB(64));
    ck_assert_uint_lt(other.address, device_oracle_source(oracle)->base + MIB(64));
    ck_assert_int_eq(arena_dealloc(arena, block.handle, NULL, 0), 0);
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
    ck_assert_uint_eq(device_oracle_mapped_bytes(oracle), MIB(6));
    ck_assert_int_eq(arena_trim(arena, 0, &bytes), 0);
    ck_assert_uint_eq(device_oracle_mapped_bytes(oracle), MIB(4));
    ck_assert_uint_eq(stats().trimmed_bytes, MIB(4));
    ck_assert_uint_eq(stats().free_bytes, 0);
    right();
    take(MIB(4));
    end();

    /* Nothing goes below any amount, however large. */
    for (unsigned kind = 0; kind < 2; kind++) {
        begin(kind ? &placed : &(struct device_oracle_options){ 0 }, &plainly);
        give(take(MIB(1)));
        for (uint64_t keep = UINT64_MAX; keep >= MIB(1); keep /= 2) {
            ck_assert_int_eq(arena_trim(arena, keep, &bytes), 0);
            ck_assert_uint_eq(bytes, 0);
        }
        ck_assert_int_eq(arena_trim(arena, 0, &bytes), 0);
        ck_assert_uint_eq(bytes, MIB(1));
        end();
    }
}
END_TEST

START_TEST(idle_regions_go_back_before_a_request_fails) {
    struct arena_block blocks[8];

    begin(&(struct device_oracle_options){ .device_bytes = MIB(8) }, &plainly);
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
    static const struct device_oracle_options kinds[] = {
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
            ck_assert_int_eq(arena_dealloc(arena, block.handle, NULL, 0), 0);
            give(take(MIB(7)));
            right();
        }
        ck_assert_uint_le(stats().peak_reserved_bytes, MIB(8));
        give(kept);
        end();
    }
}
END_TEST

START_TEST(a_host_without_memory_for_records_costs_the_device_nothing) {
    struct rlimit limit;
    struct arena_block *blocks = calloc(400000, sizeof(*blocks));
    struct allot_error err = { 0 };
    unsigned n = 0;
    uint64_t reserved;
    int r;

    ck_assert_ptr_nonnull(blocks);
    begin(&(struct device_oracle_options){ .span_bytes = MIB(256) },
          &(struct arena_options){ .cap_bytes = MIB(128), .max_shards = 1 });
    take(MIB(100)); /* the memory is there, in one piece */
    give(take(MIB(20)));
    reserved = stats().reserved_bytes;
    /* Nothing of the host's from now on, not even a page more of what it reserved. */
    ck_assert_int_eq(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = 4096;
    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &limit), 0);
    do
        r = arena_alloc(arena, &(struct arena_request){ .bytes = 1 }, &blocks[n], &err);
    while (r == 0 && ++n < 400000);
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &limit), 0);
    /* Sanitizers and huge pages may have had it all along. */
    if (r < 0) {
        ck_assert_int_eq(r, -ENOMEM);
        ck_assert_msg(strstr(err.text, "host"), "%s", err.text);
        ck_assert_uint_eq(stats().reserved_bytes, reserved);
    }
    right();
    while (n-- > 0)
        ck_assert_int_eq(arena_dealloc(arena, blocks[n].handle, NULL, 0), 0);
    right();
    free(blocks);
    end();
}
END_TEST

/* What the report says would help does help. */
START_TEST(a_cap_as_much_larger_as_the_report_says_is_enough) {
    static const struct {
        uint64_t cap, first, asked, align;
        const char *words;
        uint64_t cut; /* the cap, once the first block is live */
    } cases[] = {
        { MIB(1), KIB(900), KIB(200), 0, "Raising the cap by 192 KiB", MIB(1) },
        { KIB(32), 0, KIB(4), 0, "Raising the cap by 32 KiB", KIB(32) }, /* less than a page */
        { MIB(1), KIB(1000), 1, KIB(256), "aligned to 256 KiB", MIB(1) },
        { MIB(1), KIB(1000), KIB(1000), 0, "Raising the cap by 1 MiB", MIB(1) },
        { MIB(4), MIB(4), MIB(1), 0, "Raising the cap by 3 MiB", MIB(2) },
        { MIB(2) - 1, MIB(1), MIB(1), 0, "Raising the cap by 1 B", MIB(2) - 1 },
        { MIB(2), MIB(2), MIB(1) + 1, 0, "Raising the cap by 1.1 MiB", MIB(2) },
    };

    for (unsigned n = 0; n < ELEMENTSOF(cases); n++) {
        struct arena_request request = { .bytes = cases[n].asked, .align_bytes = cases[n].align };
        struct arena_block block;
        struct allot_error err = { 0 };
        const char *larger;
        uint64_t more;
        char amount[32];

        begin(&placed, &(struct arena_options){ .cap_bytes = cases[n].cap, .max_shards = 1 });
        if (cases[n].first)
            take(cases[n].first);
        arena_set_cap(arena, cases[n].cut);
        ck_assert_int_eq(arena_alloc(arena, &request, &block, &err), -ENOMEM);
        ck_assert_msg(strstr(err.text, cases[n].words), "%u: %s", n, err.text);
        larger = strstr(err.text, "Raising the cap by ");
        ck_assert_msg(larger, "%u: %s", n, err.text);
        snprintf(amount, sizeof(amount), "%s", larger + strlen("Raising the cap by "));
        *strchr(amount, ',') = 0;
        ck_assert_int_eq(units_parse_bytes(&more, amount), 0);
        arena_set_cap(arena, cases[n].cut + more);
        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
        end();
    }
}
END_TEST

START_TEST(one_thread_has_all_addresses_however_many_shards_there_may_be) {
    begin(&(struct device_oracle_options){ .span_bytes = MIB(64) },
          &(struct arena_options){ .cap_bytes = MIB(2), .max_shards = 16 });
    take(MIB(1));
    arena_set_cap(arena, MIB(60)); /* the lease was enlarged */
    give(take(MIB(50)));
    end();

    begin(&(struct device_oracle_options){ .span_bytes = MIB(64) },
          &(struct arena_options){ .cap_bytes = 0 });
    take(MIB(60));
    end();
}
END_TEST

START_TEST(offsets_do_not_depend_on_the_number_of_processors) {
    static uint64_t first[20000];

    /* 0: as many shards as there are processors, up to 16. Pages move so often that addresses are
     * used up: how many there are for a shard must be the same everywhere. */
    for (unsigned round = 0; round < 2; round++) {
        struct arena_block blocks[24] = { 0 };
        uint64_t random = 3;

        begin(&(struct device_oracle_options){ .span_bytes = MIB(64) },
              &(struct arena_options){ .cap_bytes = MIB(2), .max_shards = round ? 16 : 0 });
        for (unsigned n = 0; n < 20000; n++) {
            struct arena_block *block = &blocks[random_next(&random) % 24];
            struct arena_request request = { .bytes = KIB(1) + random_next(&random) % KIB(300) };

            if (block->handle) {
                give(*block);
                block->handle = 0;
            } else if (arena_alloc(arena, &request, block, NULL) == 0)
                device_oracle_take(oracle, block->address, request.bytes, 0, 0);
            if (!round)
                first[n] = block->handle ? block->address : 0;
            ck_assert_uint_eq(block->handle ? block->address : 0, first[n]);
        }
        ck_assert_uint_gt(stats().moved_bytes, MIB(8));
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

START_TEST(the_hole_that_fits_is_found_behind_others_that_do_not) {
    struct arena_request request = { .bytes = 256 * 601 };
    struct arena_block holes[12], block;

    begin(
        &(struct device_oracle_options){ .span_bytes = MIB(64), .no_remap = true, .no_trim = true },
        &(struct arena_options){ .cap_bytes = MIB(3), .max_shards = 1 });
    /* All of one bin; the last ones freed are the first to be looked at. */
    for (unsigned n = 0; n < 12; n++) {
        holes[n] = take(n == 3 || n == 5 ? 256 * 601 : 256 * 600);
        take(256);
    }
    while (try(256) == 0)
        take(256);
    give(holes[3]);
    give(holes[5]);
    for (unsigned n = 6; n < 12; n++)
        give(holes[n]);
    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    device_oracle_take(oracle, block.address, request.bytes, 0, 0);
    ck_assert(block.address == holes[3].address || block.address == holes[5].address);

    /* And one that happens to lie right, though not every one of its size would. */
    give(block);
    for (uint64_t align = KIB(64); align >= 512; align /= 2) {
        if (holes[3].address % align && holes[5].address % align)
            continue;
        request.align_bytes = align;
        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
        device_oracle_take(oracle, block.address, request.bytes, align, 0);
        give(block);
    }
    end();
}
END_TEST

SUITE("arena-grow", growth_is_in_pages_and_at_most_one_percent_beyond_the_need,
      the_whole_share_can_be_taken_at_the_start, a_refused_growth_is_tried_smaller,
      a_growth_that_fails_half_way_is_undone, a_source_that_fails_at_any_call_does_no_harm,
      wholly_free_pages_move_to_where_they_are_needed_before_anything_fails,
      where_pages_cannot_move_the_report_says_so, moved_pages_leave_holes_that_are_used_again,
      communication_buffers_lie_in_plain_regions,
      trim_gives_back_what_is_wholly_free_and_keeps_what_it_is_told,
      idle_regions_go_back_before_a_request_fails,
      idle_memory_of_the_other_kind_goes_back_before_a_request_fails,
      a_host_without_memory_for_records_costs_the_device_nothing,
      a_cap_as_much_larger_as_the_report_says_is_enough,
      one_thread_has_all_addresses_however_many_shards_there_may_be,
      offsets_do_not_depend_on_the_number_of_processors, a_cap_can_be_changed,
      the_hole_that_fits_is_found_behind_others_that_do_not,
      what_cannot_be_taken_at_the_start_is_refused_in_words,
      a_misaligned_region_is_given_back_and_refused_in_words)
