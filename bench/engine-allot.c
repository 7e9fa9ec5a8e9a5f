/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our arena over a device that exists in numbers only: as every engine here, it never touches
 * the memory. All features are on: several shards, streams known, tags given.
 */
#include <errno.h>
#include <stdlib.h>

#include "allocator/arena.h"
#include "allocator/lock.h"
#include "bench/engine.h"
#include "bench/lookup.h"

#define BASE ((uint64_t)1 << 44)
#define TAGS 64

struct device {
    struct arena *arena;
    uint64_t capacity, held, peak, mapped;
    uint32_t tags[TAGS];
    struct lock looking; /* for the next */
    struct lookup lookup;
};

static int device_grow(void *userdata, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes) {
    struct device *device = userdata;

    if (bytes > device->capacity - device->held)
        return -ENOMEM;
    device->held += bytes;
    device->mapped += bytes;
    if (device->held > device->peak)
        device->peak = device->held;
    return 0;
}

static int device_trim(void *userdata, uint64_t offset, uint64_t bytes) {
    struct device *device = userdata;

    device->held -= bytes;
    return 0;
}

static int device_remap(void *userdata, uint64_t from, uint64_t to, uint64_t bytes) {
    struct device *device = userdata;

    device->mapped += bytes;
    return 0;
}

/* Streams are known, so that records say whose they are; nothing is freed on one. */
static int record(void *userdata, uint64_t stream, uint64_t *ret_event) {
    *ret_event = 1;
    return 0;
}

static int query(void *userdata, uint64_t event) {
    return 1;
}

static void discard(void *userdata, uint64_t event) {
}

static const struct stream_ops stream_ops = { record, query, discard, NULL, NULL };

static void *start(uint64_t capacity) {
    struct device *device = calloc(1, sizeof(*device));
    struct mem_source source = {
        .userdata = device,
        .base = BASE,
        .span_bytes = (uint64_t)1 << 43, /* addresses cost nothing */
        .grow = device_grow,
        .trim = device_trim,
        .remap = device_remap,
    };
    struct arena_options options = { .cap_bytes = capacity, .stream_ops = &stream_ops };
    char name[] = "op/00";
    uint8_t stream;

    if (!device)
        return NULL;
    device->capacity = capacity;
    if (arena_new(&device->arena, &source, &options, NULL) < 0) {
        free(device);
        return NULL;
    }
    for (uint64_t n = 1; n <= 2; n++)
        if (arena_stream_new(device->arena, n, &stream) < 0)
            abort();
    for (unsigned n = 0; n < TAGS; n++) {
        name[3] = (char)('0' + n / 10);
        name[4] = (char)('0' + n % 10);
        device->tags[n] = arena_tag(device->arena, name);
    }
    return device;
}

static void end(void *arena) {
    struct device *device = arena;

    arena_free(device->arena);
    lookup_done(&device->lookup);
    free(device);
}

static uint64_t alloc_handle(void *arena, uint64_t bytes) {
    struct device *device = arena;
    struct arena_request request = { .bytes = bytes, .tag = device->tags[bytes >> 8 & (TAGS - 1)] };
    struct arena_block block;

    return arena_alloc(device->arena, &request, &block, NULL) < 0 ? 0 : block.handle;
}

static void free_handle(void *arena, uint64_t block) {
    struct device *device = arena;

    if (arena_dealloc(device->arena, block, NULL, 0) < 0)
        abort();
}

static uint64_t alloc_pointer(void *arena, uint64_t bytes) {
    struct device *device = arena;
    struct arena_request request = { .bytes = bytes, .tag = device->tags[bytes >> 8 & (TAGS - 1)] };
    struct arena_block block;
    int r;

    if (arena_alloc(device->arena, &request, &block, NULL) < 0)
        return 0;
    lock_take(&device->looking);
    r = lookup_add(&device->lookup, block.address, block.handle);
    lock_drop(&device->looking);
    if (r < 0)
        abort();
    return block.address;
}

static void free_pointer(void *arena, uint64_t block) {
    struct device *device = arena;

    uint64_t handle;

    lock_take(&device->looking);
    handle = lookup_take(&device->lookup, block);
    lock_drop(&device->looking);
    if (arena_dealloc(device->arena, handle, NULL, 0) < 0)
        abort();
}

static uint64_t peak_reserved(void *arena) {
    return ((struct device *)arena)->peak;
}

static uint64_t peak_live(void *arena) {
    struct arena_stats stats;

    arena_get_stats(((struct device *)arena)->arena, &stats);
    return stats.peak_live_bytes;
}

static uint64_t mapped(void *arena) {
    return ((struct device *)arena)->mapped;
}

const struct engine engine_allot = {
    .name = "allot",
    .start = start,
    .end = end,
    .alloc = alloc_handle,
    .free = free_handle,
    .peak_reserved = peak_reserved,
    .peak_live = peak_live,
    .mapped = mapped,
};

const struct engine engine_allot_ptr = {
    .name = "allot-ptr",
    .start = start,
    .end = end,
    .alloc = alloc_pointer,
    .free = free_pointer,
    .peak_reserved = peak_reserved,
    .peak_live = peak_live,
    .mapped = mapped,
};
