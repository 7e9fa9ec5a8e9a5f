/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Arena: the memory of one device inside one process, handed out in blocks of 256-byte granules.
 *
 * The arena takes memory from a source and never reads it: all records of blocks are in host
 * memory. It does not give memory back by itself: it grows under its cap until it ends or the
 * caller calls arena_trim(). It knows neither CUDA nor the daemon. docs/allocator.md explains how
 * it works.
 *
 * Threads: any thread may make any call at any time, except arena_free(). One thread at a time
 * calls the source's functions; meanwhile arena_dealloc(), and arena_alloc() if the arena has free
 * memory, do not block. The same calls by one thread give the same addresses, relative to the
 * source's, on every machine.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

struct allot_error;
struct arena;

#define ARENA_GRANULE_BYTES ((uint64_t)256)
#define ARENA_PAGE_BYTES    ((uint64_t)2 << 20)
#define ARENA_STREAMS_MAX   254
#define ARENA_SHARDS_MAX    64

/*
 * Where the memory comes from. Offsets count from `base`; offsets and lengths are whole pages.
 * A source that can place memory (virtual memory management: reserve once, map pages anywhere in
 * the reservation) has `span_bytes` and `grow`; one that cannot has `region_new`. One with both
 * serves ordinary blocks by `grow` and those of ARENA_PLAIN by `region_new`.
 */
struct mem_source {
    void *userdata;
    uint64_t base;       /* address of the reservation, a multiple of the page */
    uint64_t span_bytes; /* length of the reservation; 0: none. 16 times the cap (or the largest cap
                            to come) is enough for 16 shards, 4 times for 5 */
    uint64_t page_bytes; /* power of two; 0: ARENA_PAGE_BYTES */

    /* Map memory at [offset, offset + bytes). Returns 0, or -errno if refused; then `*ret_bytes`
     * may say how much is mapped nevertheless, from `offset` on (the arena undoes that with `trim`,
     * or keeps it if there is no `trim`). The function must not wait, because other allocations
     * wait for it: if it would have to, it records the reason and returns -EAGAIN. Then the arena
     * tries nothing else and arena_alloc() returns -EAGAIN. Its caller knows the source, waits and
     * tries again. */
    int (*grow)(void *userdata, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes);
    /* Optional: give the memory at [offset, offset + bytes) back. */
    int (*trim)(void *userdata, uint64_t offset, uint64_t bytes);
    /* Optional: move the mapping from `from` to `to`, all of it or (-errno) none. Default: `trim`
     * the old place and `grow` the new one. */
    int (*remap)(void *userdata, uint64_t from, uint64_t to, uint64_t bytes);

    /* A separate region at an address that the source chooses, a multiple of the granule (otherwise
     * the arena gives it back and returns -EIO): ordinary device memory, with which legacy IPC and
     * every transport work. -EAGAIN as above. */
    int (*region_new)(void *userdata, uint64_t bytes, uint64_t *ret_address);
    /* Optional: give a whole region back. */
    int (*region_free)(void *userdata, uint64_t address, uint64_t bytes);

    /* Optional: a sentence for the out-of-memory report, such as the other jobs on this device.
     * Returns the length as snprintf() does. */
    int (*describe)(void *userdata, char *text, size_t size);
};

/*
 * Streams: queues of device work. A block freed on a stream may still be read by work queued there.
 * So it is free for that stream at once, and for all others when an event that was recorded on the
 * stream after the free has completed. All but `wait` and `order` are required.
 */
struct stream_ops {
    int (*record)(void *userdata, uint64_t stream, uint64_t *ret_event);
    /* 1: completed, 0: not yet, -errno: unknown, which counts as not yet. */
    int (*query)(void *userdata, uint64_t event);
    void (*discard)(void *userdata, uint64_t event);
    /* Optional, before an allocation fails: block until the event has completed. */
    int (*wait)(void *userdata, uint64_t event);
    /* Optional and better: let `stream` wait for the event instead of the host. The event may be
     * discarded before it has completed. */
    int (*order)(void *userdata, uint64_t stream, uint64_t event);
};

struct arena_options {
    const char *name;       /* name of the device, for reports; borrowed; NULL: "device" */
    uint64_t cap_bytes;     /* never hold more than this from the source; 0: no cap */
    uint64_t initial_bytes; /* taken by arena_new() at once, in whole pages, as many as the cap
                             * allows; equal to the cap for a fixed fraction */
    unsigned max_shards;    /* threads that can allocate without contention, if the reservation has
                               addresses for them; 0: one per CPU, ≤ 16 */
    const struct stream_ops *stream_ops; /* NULL: arena_stream_new() is refused */
    void *stream_userdata;
};

enum arena_flag {
    ARENA_PLAIN = 1 << 0, /* from a separate region, for communication buffers */
};

struct arena_request {
    uint64_t bytes;       /* 0 still gives a block with an address of its own */
    uint64_t align_bytes; /* power of two; 0: the granule */
    uint32_t tag;         /* from arena_tag(); 0: none */
    uint8_t stream;       /* from arena_stream_new(); 0: used by the host or by any stream */
    uint8_t flags;        /* bits of enum arena_flag */
};

struct arena_block {
    uint64_t address;
    uint64_t handle; /* never 0; not reused before its shard has handed out 2^29 more blocks: until
                        then a second free of it is refused */
};

/* Per power of two: sizes of [256 << i, 256 << (i + 1)). */
#define ARENA_CLASSES 32

/* All statistics of the arena: name and meaning. */
#define ARENA_STATS(X)                                                                             \
    X(live_bytes, "requested by live blocks")                                                      \
    X(live_blocks, "live blocks")                                                                  \
    X(used_bytes, "the same blocks in granules")                                                   \
    X(reserved_bytes, "held of the source")                                                        \
    X(cap_bytes, "may be held from the source, 0: no cap")                                         \
    X(peak_live_bytes, "most requested bytes live at one time")                                    \
    X(peak_reserved_bytes, "most bytes held from the source at one time")                          \
    X(free_bytes,                                                                                  \
      "held and not used, including memory that is being moved: used + free = reserved")           \
    X(free_blocks, "holes")                                                                        \
    X(pending_bytes, "of free_bytes, freed on a stream and not yet free for all")                  \
    X(largest_free_bytes, "the largest hole")                                                      \
    X(fragmentation_permyriad, "of free_bytes, those outside the largest hole")                    \
    X(allocs, "blocks ever handed out")                                                            \
    X(frees, "blocks ever taken back")                                                             \
    X(failures, "allocations refused")                                                             \
    X(grows, "times the source gave memory")                                                       \
    X(refusals, "times the source refused memory")                                                 \
    X(moved_bytes, "moved inside the reservation instead of growing")                              \
    X(trimmed_bytes, "given back to the source")                                                   \
    X(shards, "shards in use")                                                                     \
    X(metadata_bytes, "host memory for all records, including tag names and deferred frees")

struct arena_stats {
#define X(name, what) uint64_t name;
    ARENA_STATS(X)
#undef X
    struct {
        uint64_t live_blocks;
        uint64_t live_bytes; /* rounded up to granules */
        uint64_t free_blocks;
        uint64_t free_bytes;
    } classes[ARENA_CLASSES];
};

/* The source is copied; what its userdata points to is borrowed. -EINVAL: options or a source that
 * cannot work, such as initial bytes above the cap or the reservation. Otherwise the error of
 * `grow` or `region_new` for the initial bytes. */
int arena_new(struct arena **ret, const struct mem_source *source,
              const struct arena_options *options, struct allot_error *err);
/* End the arena and all of its blocks, live or not. Waits for streams that may still use memory
 * that was freed on them, if there is a `wait`. The memory goes back through `trim` and
 * `region_free`, if the source has them. Accepts NULL, returns NULL. */
struct arena *arena_free(struct arena *arena);

/* -ENOMEM: the device does not have that much memory left, or the host has none for the arena's
 * records; `err` says which. -EINVAL: no such stream, tag or flag, or an alignment that is not a
 * power of two. -ENOTSUP: ARENA_PLAIN without `region_new`. -EIO: the source's region does not
 * start at a multiple of the granule. */
int arena_alloc(struct arena *arena, const struct arena_request *request, struct arena_block *ret,
                struct allot_error *err);
/* Free a block that work queued on these streams may still use; no streams: no queued work uses it
 * any more. With one stream, that stream can reuse it at once. All other streams, and all streams
 * if there are several, can reuse it after the events. (If a stream freed this memory before and
 * got it again as this block, the memory also waits for that earlier free.) -EINVAL: no live block
 * has this handle, or there is no such stream; -ENOMEM: the host has no memory to record several
 * streams, and the block stays live. */
int arena_dealloc(struct arena *arena, uint64_t handle, const uint8_t *streams, unsigned n_streams);

/* Register a stream under the caller's own number for it, which stays valid until the arena ends.
 * -ENOSPC: there are ARENA_STREAMS_MAX already. */
int arena_stream_new(struct arena *arena, uint64_t stream, uint8_t *ret);

/* The number of a name, such as an op's; the same name always has the same number. 0 if there is no
 * memory for it. A tag does not make an allocation slower. */
uint32_t arena_tag(struct arena *arena, const char *name);

/* Give free pages and regions back to the source until `keep_bytes` are left. */
int arena_trim(struct arena *arena, uint64_t keep_bytes, uint64_t *ret_bytes);
/* Hold no more than this from now on, because the lease was enlarged or cut; 0: no cap. Memory
 * above the cap stays until it is trimmed. */
void arena_set_cap(struct arena *arena, uint64_t cap_bytes);

/* O(1), and exact at one instant: no allocation, growth, move or trim of any thread is half
 * counted. Only if the largest hole has just been taken does it search those of nearly that size
 * (within 0.4 %). */
void arena_get_stats(struct arena *arena, struct arena_stats *ret);

/* Check every invariant; -EUCLEAN, with the first broken one in words. For tests and debuggers. */
int arena_check(struct arena *arena, struct allot_error *err);

/* Explain why a request of this size fails, or would fail: the bytes requested, live and reserved,
 * the largest hole, the cap, the tags with most bytes, and what would help. Returns the length as
 * snprintf() does. */
int arena_report(struct arena *arena, const struct arena_request *request, char *text, size_t size);

#include "base/cleanup.h"
DEFINE_FREEP(struct arena, arena_freep, arena_free)
