/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device oracle: a memory source and streams that check everything the arena does.
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

#define DEVICE_ORACLE_STREAMS 4

struct device_oracle_options {
    uint64_t span_bytes; /* 0: regions only */
    uint64_t page_bytes;
    uint64_t device_bytes;        /* more than this is refused; 0: never */
    bool no_trim, no_remap;       /* the source has no such call */
    bool trim_fails;              /* what device_oracle_fail() says goes for giving back, too */
    bool regions, no_region_free; /* it has region_new; it lacks region_free */
    bool no_wait, no_order;       /* the streams have no such call */
    uint64_t seed;
};

struct device_oracle;

int device_oracle_new(struct device_oracle **ret, const struct device_oracle_options *options);
struct device_oracle *device_oracle_free(struct device_oracle *oracle);

const struct mem_source *device_oracle_source(struct device_oracle *oracle);
const struct stream_ops *device_oracle_stream_ops(void);

/* Let the next calls of the source fail: the n-th from now on (1: the next) and every one after
 * it, until 0 ends it. With `part`, a growth that fails has mapped half of its pages. */
void device_oracle_fail(struct device_oracle *oracle, unsigned n, bool part);
/* Only the n-th call fails. */
void device_oracle_fail_once(struct device_oracle *oracle, unsigned n, bool part);
/* Calls of the source that could have failed, so far. */
unsigned device_oracle_calls(struct device_oracle *oracle);

/* The arena handed out, or took back, a block. A free on streams leaves work behind on them. */
void device_oracle_take(struct device_oracle *oracle, uint64_t address, uint64_t bytes,
                        uint64_t align_bytes, unsigned stream);
void device_oracle_give(struct device_oracle *oracle, uint64_t address, uint64_t bytes,
                        const uint8_t *streams, unsigned n_streams);
/* Let a stream (numbered as the arena numbers it, from 1) get on with its work by one step. */
void device_oracle_run(struct device_oracle *oracle, unsigned stream);

uint64_t device_oracle_mapped_bytes(struct device_oracle *oracle);
uint64_t device_oracle_peak_mapped_bytes(struct device_oracle *oracle);
unsigned device_oracle_events(struct device_oracle *oracle); /* recorded and not discarded */
bool device_oracle_is_mapped(struct device_oracle *oracle, uint64_t address);

/* NULL: all was right so far. */
const char *device_oracle_mistake(struct device_oracle *oracle);

#include "base/cleanup.h"
DEFINE_FREEP(struct device_oracle, device_oracle_freep, device_oracle_free)
