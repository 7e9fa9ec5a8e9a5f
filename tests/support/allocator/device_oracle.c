/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/allocator/device_oracle.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "base/random.h"

#define BASE    ((uint64_t)1 << 40)
#define EVENTS  4096
#define REGIONS 1024
#define WAITS   256

struct granule {
    uint8_t live;
    uint32_t left[SHADOW_STREAMS]; /* per stream: the last work that may touch it, 0: none */
};

struct shadow {
    pthread_mutex_t lock;
    struct shadow_options options;
    struct mem_source source;
    uint64_t n_granules; /* the reservation, and behind it as much again for regions */
    struct granule *granules;
    uint8_t *mapped; /* by page */
    uint64_t mapped_bytes, peak_bytes;
    struct {
        uint64_t address, bytes;
    } regions[REGIONS];
    unsigned n_regions;
    uint64_t region_next, random;

    unsigned n_calls, fail_at;
    bool fail_part, fail_once;

    uint32_t queued[SHADOW_STREAMS], done[SHADOW_STREAMS];
    uint32_t knows[SHADOW_STREAMS][SHADOW_STREAMS]; /* what a queues now runs after b's work here */
    struct {
        uint32_t at;       /* the stream's own work from here on … */
        uint32_t position; /* … waits for this work … */
        uint8_t other;     /* … of this stream */
    } waits[SHADOW_STREAMS][WAITS];
    unsigned n_waits[SHADOW_STREAMS];
    struct {
        uint8_t stream; /* from 1; 0: no event */
        uint32_t position;
        uint32_t knows[SHADOW_STREAMS]; /* what the stream waits for comes before the event, too */
    } events[EVENTS];
    unsigned n_events;
    char mistake[256];
};

static __attribute__((format(printf, 2, 3))) void wrong(struct shadow *shadow, const char *format,
                                                        ...) {
    va_list args;

    if (shadow->mistake[0])
        return;
    va_start(args, format);
    vsnprintf(shadow->mistake, sizeof(shadow->mistake), format, args);
    va_end(args);
}

/* Does this call of the source fail? */
static bool fails(struct shadow *shadow) {
    shadow->n_calls++;
    return shadow->fail_at && shadow->n_calls >= shadow->fail_at &&
           (!shadow->fail_once || shadow->n_calls == shadow->fail_at);
}

static void set_mapped(struct shadow *shadow, uint64_t offset, uint64_t bytes, bool mapped) {
    uint64_t page = shadow->options.page_bytes;

    if (offset % page || bytes % page || !bytes || offset + bytes > shadow->n_granules << 8) {
        wrong(shadow, "the source was asked for %#llx+%#llx", (unsigned long long)offset,
              (unsigned long long)bytes);
        return;
    }
    for (uint64_t p = offset / page; p < (offset + bytes) / page; p++) {
        if (shadow->mapped[p] == mapped)
            wrong(shadow, "page %llu is %s already", (unsigned long long)p,
                  mapped ? "mapped" : "gone");
        shadow->mapped[p] = mapped;
        for (uint64_t g = p * page >> 8; !mapped && g < (p + 1) * page >> 8; g++) {
            if (shadow->granules[g].live)
                wrong(shadow, "a page under a live block was unmapped");
            for (unsigned s = 0; s < SHADOW_STREAMS; s++)
                if (shadow->granules[g].left[s] > shadow->done[s])
                    wrong(shadow, "a page that stream %u still uses was unmapped", s + 1);
            memset(&shadow->granules[g], 0, sizeof(shadow->granules[g]));
        }
    }
    shadow->mapped_bytes += mapped ? bytes : -bytes;
    if (shadow->mapped_bytes > shadow->peak_bytes)
        shadow->peak_bytes = shadow->mapped_bytes;
}

static bool refuses(const struct shadow *shadow, uint64_t bytes) {
    return shadow->options.device_bytes &&
           shadow->mapped_bytes + bytes > shadow->options.device_bytes;
}

static int source_grow(void *userdata, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes) {
    struct shadow *shadow = userdata;
    int r = 0;

    pthread_mutex_lock(&shadow->lock);
    if (fails(shadow) || refuses(shadow, bytes)) {
        uint64_t half = bytes / 2 / shadow->options.page_bytes * shadow->options.page_bytes;

        if (shadow->fail_part && half && !refuses(shadow, half)) {
            set_mapped(shadow, offset, half, true);
            *ret_bytes = half;
        }
        r = -ENOMEM;
    } else
        set_mapped(shadow, offset, bytes, true);
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

static int source_trim(void *userdata, uint64_t offset, uint64_t bytes) {
    struct shadow *shadow = userdata;
    int r = 0;

    pthread_mutex_lock(&shadow->lock);
    if (shadow->options.trim_fails && fails(shadow))
        r = -EIO;
    else
        set_mapped(shadow, offset, bytes, false);
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

static int source_remap(void *userdata, uint64_t from, uint64_t to, uint64_t bytes) {
    struct shadow *shadow = userdata;
    int r = 0;

    pthread_mutex_lock(&shadow->lock);
    if (fails(shadow))
        r = -EIO;
    else {
        set_mapped(shadow, from, bytes, false);
        set_mapped(shadow, to, bytes, true);
    }
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

static int source_region_new(void *userdata, uint64_t bytes, uint64_t *ret_address) {
    struct shadow *shadow = userdata;
    uint64_t page = shadow->options.page_bytes, offset;
    int r = -ENOMEM;

    pthread_mutex_lock(&shadow->lock);
    /* Not page-aligned in general, and never beside the last one. */
    offset = shadow->region_next + page + (random_next(&shadow->random) % 4) * page;
    if (!fails(shadow) && !refuses(shadow, bytes) && shadow->n_regions < REGIONS &&
        offset + bytes <= shadow->n_granules << 8) {
        set_mapped(shadow, offset, bytes, true);
        shadow->regions[shadow->n_regions].address = *ret_address = BASE + offset;
        shadow->regions[shadow->n_regions++].bytes = bytes;
        shadow->region_next = offset + bytes;
        r = 0;
    }
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

static int source_region_free(void *userdata, uint64_t address, uint64_t bytes) {
    struct shadow *shadow = userdata;
    unsigned n = 0;
    int r = 0;

    pthread_mutex_lock(&shadow->lock);
    while (n < shadow->n_regions &&
           (shadow->regions[n].address != address || shadow->regions[n].bytes != bytes))
        n++;
    if (n == shadow->n_regions)
        wrong(shadow, "a region was given back that never was");
    else if (shadow->options.trim_fails && fails(shadow))
        r = -EIO;
    else {
        set_mapped(shadow, address - BASE, bytes, false);
        shadow->regions[n] = shadow->regions[--shadow->n_regions];
        if (!shadow->n_regions)
            shadow->region_next = shadow->options.span_bytes;
    }
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

int shadow_new(struct shadow **ret, const struct shadow_options *options) {
    cleanup(shadow_freep) struct shadow *shadow = calloc(1, sizeof(*shadow));
    void *map;

    if (!shadow)
        return -ENOMEM;
    pthread_mutex_init(&shadow->lock, NULL);
    shadow->options = *options;
    shadow->random = options->seed;
    shadow->n_granules =
        (options->span_bytes + (options->regions || !options->span_bytes ? 512u << 20 : 0)) >> 8;
    shadow->region_next = options->span_bytes;
    shadow->mapped = calloc(1, (shadow->n_granules << 8) / options->page_bytes);
    map = mmap(NULL, shadow->n_granules * sizeof(*shadow->granules), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!shadow->mapped || map == MAP_FAILED)
        return -ENOMEM;
    shadow->granules = map;
    shadow->source = (struct mem_source){
        .userdata = shadow,
        .base = BASE,
        .span_bytes = options->span_bytes,
        .page_bytes = options->page_bytes,
        .grow = options->span_bytes ? source_grow : NULL,
        .trim = options->span_bytes && !options->no_trim ? source_trim : NULL,
        .remap = options->span_bytes && !options->no_remap ? source_remap : NULL,
        .region_new = options->regions || !options->span_bytes ? source_region_new : NULL,
        .region_free = options->no_region_free ? NULL : source_region_free,
    };
    *ret = TAKE(shadow);
    return 0;
}

struct shadow *shadow_free(struct shadow *shadow) {
    if (!shadow)
        return NULL;
    if (shadow->granules)
        munmap(shadow->granules, shadow->n_granules * sizeof(*shadow->granules));
    free(shadow->mapped);
    pthread_mutex_destroy(&shadow->lock);
    free(shadow);
    return NULL;
}

const struct mem_source *shadow_source(struct shadow *shadow) {
    return &shadow->source;
}

void shadow_fail(struct shadow *shadow, unsigned n, bool part) {
    pthread_mutex_lock(&shadow->lock);
    shadow->fail_at = n ? shadow->n_calls + n : 0;
    shadow->fail_part = part;
    shadow->fail_once = false;
    pthread_mutex_unlock(&shadow->lock);
}

void shadow_fail_once(struct shadow *shadow, unsigned n, bool part) {
    shadow_fail(shadow, n, part);
    pthread_mutex_lock(&shadow->lock);
    shadow->fail_once = true;
    pthread_mutex_unlock(&shadow->lock);
}

unsigned shadow_calls(struct shadow *shadow) {
    return shadow->n_calls;
}

/* `stream` 0: the host, or streams the arena was not told of: nothing may be left to do. */
static bool may_touch(const struct shadow *shadow, unsigned stream, unsigned left_on,
                      uint32_t left) {
    if (left <= shadow->done[left_on])
        return true;
    return stream && (stream - 1 == left_on || left <= shadow->knows[stream - 1][left_on]);
}

void shadow_take(struct shadow *shadow, uint64_t address, uint64_t bytes, uint64_t align_bytes,
                 unsigned stream) {
    uint64_t first = (address - BASE) >> 8, n = bytes ? (bytes + 255) >> 8 : 1;

    pthread_mutex_lock(&shadow->lock);
    if (address < BASE || address % 256 || (align_bytes && address % align_bytes))
        wrong(shadow, "a block at %#llx", (unsigned long long)address);
    if (first + n > shadow->n_granules) {
        wrong(shadow, "a block outside the device");
        n = 0;
    }
    for (uint64_t g = first; g < first + n; g++) {
        struct granule *granule = &shadow->granules[g];

        if (granule->live)
            wrong(shadow, "two blocks overlap at %#llx", (unsigned long long)(BASE + (g << 8)));
        if (!shadow->mapped[(g << 8) / shadow->options.page_bytes])
            wrong(shadow, "a block lies on memory that is not there");
        for (unsigned s = 0; s < SHADOW_STREAMS; s++) {
            if (!may_touch(shadow, stream, s, granule->left[s]))
                wrong(shadow, "stream %u got memory that stream %u still uses", stream, s + 1);
            /* What is unfinished stays so, whoever has the memory meanwhile. */
            if (granule->left[s] <= shadow->done[s])
                granule->left[s] = 0;
        }
        granule->live = 1;
    }
    pthread_mutex_unlock(&shadow->lock);
}

void shadow_give(struct shadow *shadow, uint64_t address, uint64_t bytes, const uint8_t *streams,
                 unsigned n_streams) {
    uint64_t first = (address - BASE) >> 8, n = bytes ? (bytes + 255) >> 8 : 1;

    pthread_mutex_lock(&shadow->lock);
    for (unsigned k = 0; k < n_streams; k++)
        shadow->queued[streams[k] - 1]++;
    for (uint64_t g = first; g < first + n; g++) {
        if (!shadow->granules[g].live)
            wrong(shadow, "a block was freed that is not live");
        shadow->granules[g].live = 0;
        for (unsigned k = 0; k < n_streams; k++)
            shadow->granules[g].left[streams[k] - 1] = shadow->queued[streams[k] - 1];
    }
    pthread_mutex_unlock(&shadow->lock);
}

/* The next work of a stream can run unless it waits for another stream. */
static bool run_one(struct shadow *shadow, unsigned s) {
    if (shadow->done[s] == shadow->queued[s])
        return false;
    for (unsigned n = 0; n < shadow->n_waits[s];) {
        if (shadow->waits[s][n].position <= shadow->done[shadow->waits[s][n].other])
            shadow->waits[s][n] = shadow->waits[s][--shadow->n_waits[s]];
        else if (shadow->waits[s][n++].at <= shadow->done[s] + 1)
            return false;
    }
    shadow->done[s]++;
    return true;
}

void shadow_run(struct shadow *shadow, unsigned stream) {
    pthread_mutex_lock(&shadow->lock);
    run_one(shadow, stream - 1);
    pthread_mutex_unlock(&shadow->lock);
}

static int stream_record(void *userdata, uint64_t stream, uint64_t *ret_event) {
    struct shadow *shadow = userdata;
    unsigned n = 0;
    int r = -ENOMEM;

    pthread_mutex_lock(&shadow->lock);
    while (n < EVENTS && shadow->events[n].stream)
        n++;
    if (n < EVENTS && random_next(&shadow->random) % 16) {
        shadow->events[n].stream = (uint8_t)stream;
        shadow->events[n].position = ++shadow->queued[stream - 1];
        memcpy(shadow->events[n].knows, shadow->knows[stream - 1], sizeof(shadow->events[n].knows));
        shadow->n_events++;
        *ret_event = n + 1;
        r = 0;
    }
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

static bool is_over(const struct shadow *shadow, uint64_t event) {
    return shadow->done[shadow->events[event - 1].stream - 1] >= shadow->events[event - 1].position;
}

static int stream_query(void *userdata, uint64_t event) {
    struct shadow *shadow = userdata;
    int r;

    pthread_mutex_lock(&shadow->lock);
    if (!shadow->events[event - 1].stream)
        wrong(shadow, "an event was asked for that is not there");
    r = random_next(&shadow->random) % 16 ? is_over(shadow, event) : -EIO;
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

static void stream_discard(void *userdata, uint64_t event) {
    struct shadow *shadow = userdata;

    pthread_mutex_lock(&shadow->lock);
    if (!shadow->events[event - 1].stream)
        wrong(shadow, "an event was discarded twice");
    shadow->events[event - 1].stream = 0;
    shadow->n_events--;
    pthread_mutex_unlock(&shadow->lock);
}

static int stream_wait(void *userdata, uint64_t event) {
    struct shadow *shadow = userdata;
    bool moved = true;

    pthread_mutex_lock(&shadow->lock);
    while (!shadow->options.no_wait && !is_over(shadow, event) && moved) {
        moved = false;
        for (unsigned s = 0; s < SHADOW_STREAMS; s++)
            moved |= run_one(shadow, s);
    }
    if (!shadow->options.no_wait && !is_over(shadow, event))
        wrong(shadow, "the streams wait for each other");
    pthread_mutex_unlock(&shadow->lock);
    return shadow->options.no_wait ? -ENOTSUP : 0;
}

static int stream_order(void *userdata, uint64_t stream, uint64_t event) {
    struct shadow *shadow = userdata;
    unsigned s = (unsigned)stream - 1, n, other;
    int r = -ENOTSUP;

    pthread_mutex_lock(&shadow->lock);
    n = shadow->n_waits[s];
    if (!shadow->options.no_order && n < WAITS) {
        other = shadow->events[event - 1].stream - 1u;
        shadow->waits[s][n].at = shadow->queued[s] + 1;
        shadow->waits[s][n].position = shadow->events[event - 1].position;
        shadow->waits[s][n].other = (uint8_t)other;
        shadow->n_waits[s]++;
        for (unsigned k = 0; k < SHADOW_STREAMS; k++)
            shadow->knows[s][k] = MAX(shadow->knows[s][k], shadow->events[event - 1].knows[k]);
        shadow->knows[s][other] = MAX(shadow->knows[s][other], shadow->events[event - 1].position);
        r = 0;
    }
    pthread_mutex_unlock(&shadow->lock);
    return r;
}

const struct stream_ops *shadow_stream_ops(void) {
    static const struct stream_ops ops = {
        .record = stream_record,
        .query = stream_query,
        .discard = stream_discard,
        .wait = stream_wait,
        .order = stream_order,
    };

    return &ops;
}

uint64_t shadow_mapped_bytes(struct shadow *shadow) {
    return shadow->mapped_bytes;
}

uint64_t shadow_peak_mapped_bytes(struct shadow *shadow) {
    return shadow->peak_bytes;
}

unsigned shadow_events(struct shadow *shadow) {
    return shadow->n_events;
}

bool shadow_is_mapped(struct shadow *shadow, uint64_t address) {
    return shadow->mapped[(address - BASE) / shadow->options.page_bytes];
}

const char *shadow_mistake(struct shadow *shadow) {
    return shadow->mistake[0] ? shadow->mistake : NULL;
}
