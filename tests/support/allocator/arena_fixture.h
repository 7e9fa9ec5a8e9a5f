/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Arena fixture: one arena over one device oracle, and calls that tell both, for tests of the
 * arena.
 *
 * Each test begin()s and end()s its own; anything unexpected fails the test.
 */
#include <errno.h>
#include <string.h>

#include "allocator/internal.h"
#include "base/error.h"
#include "tests/support/allocator/device_oracle.h"
#include "tests/support/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define PAGE   KIB(64)

static struct device_oracle *oracle;
static struct arena *arena;

static inline void begin(const struct device_oracle_options *device_oracle_options,
                         const struct arena_options *options) {
    struct device_oracle_options with_page = *device_oracle_options;
    struct arena_options with_streams = *options;

    with_page.page_bytes = with_page.page_bytes ? with_page.page_bytes : PAGE;
    ck_assert_int_eq(device_oracle_new(&oracle, &with_page), 0);
    with_streams.stream_ops = device_oracle_stream_ops();
    with_streams.stream_userdata = oracle;
    ck_assert_int_eq(arena_new(&arena, device_oracle_source(oracle), &with_streams, NULL), 0);
}

static inline void right(void) {
    struct allot_error err = { 0 };

    ck_assert_msg(arena_check(arena, &err) == 0, "%s", err.text);
    ck_assert_msg(!device_oracle_mistake(oracle), "%s", device_oracle_mistake(oracle));
}

/* Ending the arena frees its blocks, and gives its memory back if the source takes it. */
static inline void end(void) {
    bool gives = !device_oracle_source(oracle)->grow || device_oracle_source(oracle)->trim;

    right();
    arena = arena_free(arena);
    if (gives)
        ck_assert_uint_eq(device_oracle_mapped_bytes(oracle), 0);
    oracle = device_oracle_free(oracle);
}

static inline struct arena_block take_on(uint64_t bytes, uint8_t stream) {
    struct arena_request request = { .bytes = bytes, .stream = stream };
    struct arena_block block;

    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    device_oracle_take(oracle, block.address, bytes, 0, stream);
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
        ck_assert_int_eq(arena_dealloc(arena, block.handle, NULL, 0), 0);
    return r;
}

/* What was requested, of a live block; no other thread uses the arena. */
static inline uint64_t bytes_of(struct arena_block block) {
    const struct shard *shard = arena->shards[handle_shard(block.handle)];

    return chunk_live_bytes(&shard->table.chunks[handle_index(block.handle)]);
}

static inline void give(struct arena_block block) {
    device_oracle_give(oracle, block.address, bytes_of(block), NULL, 0);
    ck_assert_int_eq(arena_dealloc(arena, block.handle, NULL, 0), 0);
}

static inline void give_on(struct arena_block block, uint8_t stream) {
    device_oracle_give(oracle, block.address, bytes_of(block), &stream, 1);
    ck_assert_int_eq(arena_dealloc(arena, block.handle, &stream, 1), 0);
}

static inline struct arena_stats stats(void) {
    struct arena_stats ret;

    arena_get_stats(arena, &ret);
    return ret;
}

static const struct device_oracle_options placed
    __attribute__((unused)) = { .span_bytes = MIB(64) };
static const struct arena_options plainly
    __attribute__((unused)) = { .cap_bytes = MIB(8), .max_shards = 1 };
