/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shadow: a memory source, and streams, that know what is true.
 *
 * It plays the device to an arena: which pages are mapped, which region is where, what each stream
 * has still to do. It keeps a map of every granule of that device, with its block and the work
 * that may still touch it, and judges what the arena does: two blocks on one granule, a block on
 * memory that is not mapped, memory that another stream gets too early, a page mapped twice, a cap
 * passed, bytes never given back. The first mistake is kept as a sentence.
 *
 * Owned by a test. Any thread may call.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arena.h"

#define SHADOW_STREAMS 4

struct shadow_options {
    uint64_t span_bytes; /* 0: regions only */
    uint64_t page_bytes;
    uint64_t device_bytes;        /* more than this is refused; 0: never */
    bool no_trim, no_remap;       /* the source has no such call */
    bool trim_fails;              /* what shadow_fail() says goes for giving back, too */
    bool regions, no_region_free; /* it has region_new; it lacks region_free */
    bool no_wait, no_order;       /* the streams have no such call */
    uint64_t seed;
};

struct shadow;

int shadow_new(struct shadow **ret, const struct shadow_options *options);
struct shadow *shadow_free(struct shadow *shadow);

const struct mem_source *shadow_source(struct shadow *shadow);
const struct stream_ops *shadow_stream_ops(void);

/* Let the next calls of the source fail: the n-th from now on (1: the next) and every one after
 * it, until 0 ends it. With `part`, a growth that fails has mapped half of its pages. */
void shadow_fail(struct shadow *shadow, unsigned n, bool part);
/* Only the n-th call fails. */
void shadow_fail_once(struct shadow *shadow, unsigned n, bool part);
/* Calls of the source that could have failed, so far. */
unsigned shadow_calls(struct shadow *shadow);

/* The arena handed out, or took back, a block. A free on streams leaves work behind on them. */
void shadow_take(struct shadow *shadow, uint64_t address, uint64_t bytes, uint64_t align_bytes,
                 unsigned stream);
void shadow_give(struct shadow *shadow, uint64_t address, uint64_t bytes, const uint8_t *streams,
                 unsigned n_streams);
/* Let a stream (numbered as the arena numbers it, from 1) get on with its work by one step. */
void shadow_run(struct shadow *shadow, unsigned stream);

uint64_t shadow_mapped_bytes(struct shadow *shadow);
uint64_t shadow_peak_mapped_bytes(struct shadow *shadow);
unsigned shadow_events(struct shadow *shadow); /* recorded and not discarded */
bool shadow_is_mapped(struct shadow *shadow, uint64_t address);

/* NULL: all was right so far. */
const char *shadow_mistake(struct shadow *shadow);

#include "base/cleanup.h"
DEFINE_FREEP(struct shadow, shadow_freep, shadow_free)
