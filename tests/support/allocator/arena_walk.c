/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/allocator/arena_walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/internal.h"
#include "base/error.h"
#include "base/random.h"

#define BLOCKS 512

#define KIB << 10
#define MIB << 20

const struct arena_walk_options arena_walk_configs[] = {
    /* name of the case: pages move */
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB },
    /* the same with streams, some of which cannot be waited for */
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB,
      .n_streams = 3 },
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB, .no_wait = true, .no_order = true },
      .cap_bytes = 8u MIB,
      .max_bytes = 512u KIB,
      .n_streams = 4 },
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB, .no_order = true },
      .cap_bytes = 4u MIB,
      .max_bytes = 512u KIB,
      .n_streams = 2 },
    /* a source that fails, whole or in part */
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB,
      .n_streams = 2,
      .failures = true },
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB, .no_trim = true },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB,
      .failures = true },
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB, .no_remap = true },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB,
      .failures = true },
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB, .no_remap = true, .no_trim = true },
      .max_bytes = 256u KIB },
    /* the device is full before the cap */
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 16u KIB, .device_bytes = 4u MIB },
      .cap_bytes = 16u MIB,
      .max_bytes = 300u KIB,
      .n_streams = 1 },
    /* hardly any addresses beyond the cap: holes must be used again */
    { .oracle = { .span_bytes = 9u MIB, .page_bytes = 64u KIB },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB },
    /* the whole share at the start */
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB },
      .cap_bytes = 8u MIB,
      .initial_bytes = 8u MIB,
      .max_bytes = 1u MIB,
      .n_streams = 2 },
    /* regions */
    { .oracle = { .page_bytes = 64u KIB }, .cap_bytes = 8u MIB, .max_bytes = 1u MIB },
    { .oracle = { .page_bytes = 64u KIB },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB,
      .n_streams = 3,
      .failures = true },
    { .oracle = { .page_bytes = 4u KIB, .no_region_free = true },
      .cap_bytes = 8u MIB,
      .initial_bytes = 2u MIB,
      .max_bytes = 256u KIB },
    /* both: communication buffers in regions of their own */
    { .oracle = { .span_bytes = 64u MIB, .page_bytes = 64u KIB, .regions = true },
      .cap_bytes = 8u MIB,
      .max_bytes = 1u MIB,
      .n_streams = 2,
      .failures = true },
    /* several shards, which one thread never leaves */
    { .oracle = { .span_bytes = 256u MIB, .page_bytes = 64u KIB },
      .cap_bytes = 8u MIB,
      .max_bytes = 100u KIB,
      .max_shards = 4 },
};
const unsigned n_arena_walk_configs = ELEMENTSOF(arena_walk_configs);

struct arena_walk {
    const struct arena_walk_options *options;
    struct arena_walk_numbers *numbers;
    bool ended;
    struct device_oracle *oracle;
    struct arena *arena;
    uint32_t tags[4];
    struct {
        struct arena_block block;
        uint64_t bytes;
        uint8_t stream;
    } blocks[BLOCKS];
    unsigned n_blocks;
    uint64_t live_bytes, peak_bytes, allocs, frees, failures, last_freed;
    char mistake[1024];
};

static uint32_t number(struct arena_walk *walk) {
    struct arena_walk_numbers *numbers = walk->numbers;
    uint32_t value = 0;

    if (!numbers->data)
        return (uint32_t)random_next(&numbers->seed);
    if (!numbers->size) {
        walk->ended = true;
        return 0;
    }
    /* One byte decides most things; large ones take more. */
    for (unsigned n = 0; n < 2 && numbers->size; n++) {
        value = value << 8 | *numbers->data++;
        numbers->size--;
    }
    return value * 2654435761u;
}

static unsigned below(struct arena_walk *walk, unsigned n) {
    return (unsigned)((uint64_t)number(walk) * n >> 32);
}

/* Sizes of all magnitudes, and the odd ones. */
static uint64_t some_bytes(struct arena_walk *walk) {
    static const uint64_t odd[] = {
        0,
        1,
        255,
        256,
        257,
        65535,
        65536,
        65537,
        131072,
        1 << 20,
        UINT64_MAX,
        UINT64_MAX - 254,
        (uint64_t)1 << 40,
        (uint64_t)1 << 62,
    };
    uint64_t bytes = number(walk);

    if (below(walk, 24) == 0)
        return odd[below(walk, ELEMENTSOF(odd))];
    bytes >>= below(walk, 24) + 8;
    return bytes % walk->options->max_bytes + 1;
}

static void do_alloc(struct arena_walk *walk) {
    struct arena_request request = { .bytes = some_bytes(walk) };
    struct arena_block block = { 0 };
    struct allot_error err = { 0 };
    int r;

    if (walk->n_blocks == BLOCKS)
        return;
    if (below(walk, 6) == 0)
        request.align_bytes = (uint64_t)1 << below(walk, 20);
    if (walk->options->n_streams)
        request.stream = (uint8_t)below(walk, walk->options->n_streams + 1);
    if (below(walk, 2))
        request.tag = walk->tags[below(walk, 4)];
    if (walk->options->oracle.regions && below(walk, 4) == 0)
        request.flags = ARENA_PLAIN;

    r = arena_alloc(walk->arena, &request, &block, &err);
    if (r == -ENOMEM) {
        walk->failures++;
        if (!err.text[0])
            snprintf(walk->mistake, sizeof(walk->mistake), "a failure without a word");
        return;
    }
    if (r < 0) {
        snprintf(walk->mistake, sizeof(walk->mistake), "alloc: %s: %s", strerror(-r), err.text);
        return;
    }
    device_oracle_take(walk->oracle, block.address, request.bytes, request.align_bytes,
                       request.stream);
    walk->blocks[walk->n_blocks].block = block;
    walk->blocks[walk->n_blocks].bytes = request.bytes;
    walk->blocks[walk->n_blocks++].stream = request.stream;
    walk->allocs++;
    walk->live_bytes += request.bytes;
    walk->peak_bytes = MAX(walk->peak_bytes, walk->live_bytes);
}

static void do_free(struct arena_walk *walk, unsigned n) {
    uint8_t streams[DEVICE_ORACLE_STREAMS] = { 0 };
    unsigned n_streams = 0;
    struct arena_block block = walk->blocks[n].block;
    int r;

    /* Mostly on the stream it was allocated for, at times on several or on another one. */
    if (walk->options->n_streams && below(walk, 4)) {
        for (unsigned s = 1; s <= walk->options->n_streams; s++)
            if (walk->blocks[n].stream == s ? below(walk, 8) != 0 : below(walk, 8) == 0)
                streams[n_streams++] = (uint8_t)s;
    }
    /* Before the arena has it: another thread might get it at once. */
    device_oracle_give(walk->oracle, block.address, walk->blocks[n].bytes, streams, n_streams);
    r = arena_dealloc(walk->arena, block.handle, streams, n_streams);
    if (r < 0)
        snprintf(walk->mistake, sizeof(walk->mistake), "free: %s", strerror(-r));
    walk->last_freed = block.handle;
    walk->frees++;
    walk->live_bytes -= walk->blocks[n].bytes;
    walk->blocks[n] = walk->blocks[--walk->n_blocks];
}

/* What is not there must not be freed: handles that were, and that never were. */
static void do_nonsense(struct arena_walk *walk) {
    uint64_t handle =
        below(walk, 2) ? walk->last_freed : (uint64_t)number(walk) << 32 | number(walk);
    uint8_t stream = 200;

    for (unsigned n = 0; n < walk->n_blocks; n++)
        if (walk->blocks[n].block.handle == handle)
            return;
    if ((handle >> 40 == 0 || handle == walk->last_freed) &&
        arena_dealloc(walk->arena, handle, NULL, 0) != -EINVAL)
        snprintf(walk->mistake, sizeof(walk->mistake), "a handle without a block was freed");
    if (arena_dealloc(walk->arena, handle, &stream, 1) != -EINVAL)
        snprintf(walk->mistake, sizeof(walk->mistake), "a stream that is not there was accepted");
}

static void check(struct arena_walk *walk) {
    const char *mistake = device_oracle_mistake(walk->oracle);
    struct allot_error err = { 0 };
    struct arena_stats stats;
    uint64_t classes = 0;

    if (walk->mistake[0])
        return;
    if (mistake) {
        snprintf(walk->mistake, sizeof(walk->mistake), "oracle: %s", mistake);
        return;
    }
    if (arena_check(walk->arena, &err) < 0) {
        snprintf(walk->mistake, sizeof(walk->mistake), "check: %s", err.text);
        return;
    }
    arena_get_stats(walk->arena, &stats);
    for (unsigned n = 0; n < ARENA_CLASSES; n++)
        classes += stats.classes[n].live_bytes + stats.classes[n].free_bytes;
    if (stats.live_bytes != walk->live_bytes || stats.live_blocks != walk->n_blocks ||
        stats.peak_live_bytes != walk->peak_bytes || stats.allocs != walk->allocs ||
        stats.frees != walk->frees || stats.failures != walk->failures)
        snprintf(walk->mistake, sizeof(walk->mistake),
                 "%llu bytes live and %llu at the peak, not %llu and %llu",
                 (unsigned long long)walk->live_bytes, (unsigned long long)walk->peak_bytes,
                 (unsigned long long)stats.live_bytes, (unsigned long long)stats.peak_live_bytes);
    else if (stats.reserved_bytes != device_oracle_mapped_bytes(walk->oracle) ||
             stats.reserved_bytes != stats.used_bytes + stats.free_bytes)
        snprintf(walk->mistake, sizeof(walk->mistake), "%llu bytes reserved, %llu mapped",
                 (unsigned long long)stats.reserved_bytes,
                 (unsigned long long)device_oracle_mapped_bytes(walk->oracle));
    else if (walk->options->cap_bytes && stats.peak_reserved_bytes > walk->options->cap_bytes)
        snprintf(walk->mistake, sizeof(walk->mistake), "the cap was passed");
    else if (!walk->options->n_streams && classes != stats.reserved_bytes)
        snprintf(walk->mistake, sizeof(walk->mistake), "the classes do not add up");
}

static void step(struct arena_walk *walk) {
    unsigned what = below(walk, 256);

    if (what < 110)
        do_alloc(walk);
    else if (what < 210) {
        if (walk->n_blocks)
            do_free(walk, below(walk, 2) ? walk->n_blocks - 1 : below(walk, walk->n_blocks));
    } else if (what < 240) {
        if (walk->options->n_streams)
            device_oracle_run(walk->oracle, 1 + below(walk, walk->options->n_streams));
    } else if (what < 244)
        stream_poll(walk->arena);
    else if (what < 247)
        arena_trim(walk->arena, below(walk, 2) ? 0 : number(walk) % (8u MIB), NULL);
    else if (what < 250) {
        if (walk->options->failures)
            (below(walk, 2) ? device_oracle_fail : device_oracle_fail_once)(
                walk->oracle, 1 + below(walk, 4), below(walk, 2));
    } else if (what < 254)
        device_oracle_fail(walk->oracle, 0, false);
    else
        do_nonsense(walk);
}

char *arena_walk_run(const struct arena_walk_options *options, struct arena_walk_numbers *numbers,
                     unsigned n_steps) {
    struct arena_walk *walk = calloc(1, sizeof(*walk));
    struct arena_options arena_options = {
        .cap_bytes = options->cap_bytes,
        .initial_bytes = options->initial_bytes,
        .max_shards = options->max_shards ? options->max_shards : 1,
        .stream_ops = options->n_streams ? device_oracle_stream_ops() : NULL,
    };
    struct device_oracle_options device_oracle_options = options->oracle;
    struct allot_error err = { 0 };
    char *mistake = NULL;

    if (!walk)
        return strdup("no memory");
    walk->options = options;
    walk->numbers = numbers;
    device_oracle_options.trim_fails = options->failures;
    if (device_oracle_new(&walk->oracle, &device_oracle_options) < 0) {
        free(walk);
        return strdup("no oracle");
    }
    arena_options.stream_userdata = walk->oracle;
    if (arena_new(&walk->arena, device_oracle_source(walk->oracle), &arena_options, &err) < 0)
        snprintf(walk->mistake, sizeof(walk->mistake), "new: %s", err.text);
    for (uint8_t s = 1, n; walk->arena && s <= options->n_streams; s++)
        if (arena_stream_new(walk->arena, s, &n) < 0 || n != s)
            snprintf(walk->mistake, sizeof(walk->mistake), "no stream");
    for (unsigned n = 1; walk->arena && n < ELEMENTSOF(walk->tags); n++)
        walk->tags[n] = arena_tag(walk->arena, (const char *[]){ "a", "b", "c", "d" }[n]);

    for (unsigned n = 0; n < n_steps && !walk->mistake[0] && !walk->ended; n++) {
        step(walk);
        if (n % options->check_every == 0)
            check(walk);
        if (walk->mistake[0])
            asprintf(&mistake, "step %u: %s", n, walk->mistake);
    }

    /* Nothing may be left over: all blocks freed, all streams run, all memory given back. */
    if (!walk->mistake[0]) {
        check(walk);
        device_oracle_fail(walk->oracle, 0, false);
        while (walk->n_blocks && !walk->mistake[0])
            do_free(walk, walk->n_blocks - 1);
        for (unsigned n = 0; options->n_streams && n < 100000; n++) {
            struct arena_stats stats;

            device_oracle_run(walk->oracle, 1 + n % options->n_streams);
            if (n % 100)
                continue;
            stream_poll(walk->arena); /* records and queries fail now and then */
            arena_get_stats(walk->arena, &stats);
            if (!stats.pending_bytes)
                break;
        }
        arena_trim(walk->arena, 0, NULL);
        check(walk);
        if (!walk->mistake[0] && !options->oracle.no_trim && !options->oracle.no_region_free &&
            device_oracle_mapped_bytes(walk->oracle))
            snprintf(walk->mistake, sizeof(walk->mistake), "%llu bytes are free and stay mapped",
                     (unsigned long long)device_oracle_mapped_bytes(walk->oracle));
        arena_free(walk->arena);
        walk->arena = NULL;
        if (!walk->mistake[0] && device_oracle_mistake(walk->oracle))
            snprintf(walk->mistake, sizeof(walk->mistake), "%s",
                     device_oracle_mistake(walk->oracle));
        if (!walk->mistake[0] && device_oracle_events(walk->oracle))
            snprintf(walk->mistake, sizeof(walk->mistake), "events were not discarded");
        if (walk->mistake[0])
            asprintf(&mistake, "at the end: %s", walk->mistake);
    }
    arena_free(walk->arena);
    device_oracle_free(walk->oracle);
    free(walk);
    return mistake;
}
