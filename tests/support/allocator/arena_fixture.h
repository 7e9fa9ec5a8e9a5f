/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stage: one arena over one shadow, and calls that tell both, for tests of the arena.
 *
 * Each test begin()s and end()s its own; what the calls do not expect fails the test.
 */
#include <errno.h>
#include <string.h>

#include "allocator/arena.h"
#include "base/error.h"
#include "tests/support/allocator/device_oracle.h"
#include "tests/support/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define PAGE   KIB(64)

static struct shadow *shadow;
static struct arena *arena;

static inline void begin(const struct shadow_options *shadow_options,
                         const struct arena_options *options) {
    struct shadow_options with_page = *shadow_options;
    struct arena_options with_streams = *options;

    with_page.page_bytes = with_page.page_bytes ? with_page.page_bytes : PAGE;
    ck_assert_int_eq(shadow_new(&shadow, &with_page), 0);
    with_streams.stream_ops = shadow_stream_ops();
    with_streams.stream_userdata = shadow;
    ck_assert_int_eq(arena_new(&arena, shadow_source(shadow), &with_streams, NULL), 0);
}

static inline void right(void) {
    struct allot_error err = { 0 };

    ck_assert_msg(arena_check(arena, &err) == 0, "%s", err.text);
    ck_assert_msg(!shadow_mistake(shadow), "%s", shadow_mistake(shadow));
}

/* The arena's end takes its blocks with it, and all of its memory where the source takes it. */
static inline void end(void) {
    bool gives = !shadow_source(shadow)->grow || shadow_source(shadow)->trim;

    right();
    arena = arena_free(arena);
    if (gives)
        ck_assert_uint_eq(shadow_mapped_bytes(shadow), 0);
    shadow = shadow_free(shadow);
}

static inline struct arena_block take_on(uint64_t bytes, uint8_t stream) {
    struct arena_request request = { .bytes = bytes, .stream = stream };
    struct arena_block block;

    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    shadow_take(shadow, block.address, bytes, 0, stream);
    return block;
}

static inline struct arena_block take(uint64_t bytes) {
    return take_on(bytes, 0);
}

static inline int try(uint64_t bytes) {
    struct arena_request request = { .bytes = bytes };
    struct arena_block block;
    int r = arena_alloc(arena, &request, &block, NULL);

    if (r == 0)
        ck_assert_int_eq(arena_dealloc(arena, block.handle), 0);
    return r;
}

static inline void give(struct arena_block block) {
    uint64_t bytes;

    ck_assert_int_eq(arena_find(arena, block.handle, NULL, &bytes), 0);
    shadow_give(shadow, block.address, bytes, NULL, 0);
    ck_assert_int_eq(arena_dealloc(arena, block.handle), 0);
}

static inline void give_on(struct arena_block block, uint8_t stream) {
    uint64_t bytes;

    ck_assert_int_eq(arena_find(arena, block.handle, NULL, &bytes), 0);
    shadow_give(shadow, block.address, bytes, &stream, 1);
    ck_assert_int_eq(arena_dealloc_on(arena, block.handle, &stream, 1), 0);
}

static inline struct arena_stats stats(void) {
    struct arena_stats ret;

    arena_get_stats(arena, &ret);
    return ret;
}

static const struct shadow_options placed __attribute__((unused)) = { .span_bytes = MIB(64) };
static const struct arena_options plainly
    __attribute__((unused)) = { .cap_bytes = MIB(8), .max_shards = 1 };
