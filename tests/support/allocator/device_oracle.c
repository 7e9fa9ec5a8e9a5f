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
    uint32_t left[DEVICE_ORACLE_STREAMS]; /* per stream: the last work that may touch it, 0: none */
};

struct device_oracle {
    pthread_mutex_t lock;
    struct device_oracle_options options;
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

    uint32_t queued[DEVICE_ORACLE_STREAMS], done[DEVICE_ORACLE_STREAMS];
    uint32_t knows[DEVICE_ORACLE_STREAMS]
                  [DEVICE_ORACLE_STREAMS]; /* what a queues now runs after b's work here */
    struct {
        uint32_t at;       /* the stream's own work from here on … */
        uint32_t position; /* … waits for this work … */
        uint8_t other;     /* … of this stream */
    } waits[DEVICE_ORACLE_STREAMS][WAITS];
    unsigned n_waits[DEVICE_ORACLE_STREAMS];
    struct {
        uint8_t stream; /* from 1; 0: no event */
        uint32_t position;
        uint32_t knows[DEVICE_ORACLE_STREAMS]; /* what the stream waits for comes before the event,
                                                  too */
    } events[EVENTS];
    unsigned n_events;
    char mistake[256];
};

static __attribute__((format(printf, 2, 3))) void wrong(struct device_oracle *oracle,
                                                        const char *format, ...) {
    va_list args;

    if (oracle->mistake[0])
        return;
    va_start(args, format);
    vsnprintf(oracle->mistake, sizeof(oracle->mistake), format, args);
    va_end(args);
}

/* Does this call of the source fail? */
static bool fails(struct device_oracle *oracle) {
    oracle->n_calls++;
    return oracle->fail_at && oracle->n_calls >= oracle->fail_at &&
           (!oracle->fail_once || oracle->n_calls == oracle->fail_at);
}

static void set_mapped(struct device_oracle *oracle, uint64_t offset, uint64_t bytes, bool mapped) {
    uint64_t page = oracle->options.page_bytes;

    if (offset % page || bytes % page || !bytes || offset + bytes > oracle->n_granules << 8) {
        wrong(oracle, "the source was asked for %#llx+%#llx", (unsigned long long)offset,
              (unsigned long long)bytes);
        return;
    }
    for (uint64_t p = offset / page; p < (offset + bytes) / page; p++) {
        if (oracle->mapped[p] == mapped)
            wrong(oracle, "page %llu is %s already", (unsigned long long)p,
                  mapped ? "mapped" : "gone");
        oracle->mapped[p] = mapped;
        for (uint64_t g = p * page >> 8; !mapped && g < (p + 1) * page >> 8; g++) {
            if (oracle->granules[g].live)
                wrong(oracle, "a page under a live block was unmapped");
            for (unsigned s = 0; s < DEVICE_ORACLE_STREAMS; s++)
                if (oracle->granules[g].left[s] > oracle->done[s])
                    wrong(oracle, "a page that stream %u still uses was unmapped", s + 1);
            memset(&oracle->granules[g], 0, sizeof(oracle->granules[g]));
        }
    }
    oracle->mapped_bytes += mapped ? bytes : -bytes;
    if (oracle->mapped_bytes > oracle->peak_bytes)
        oracle->peak_bytes = oracle->mapped_bytes;
}

static bool refuses(const struct device_oracle *oracle, uint64_t bytes) {
    return oracle->options.device_bytes &&
           oracle->mapped_bytes + bytes > oracle->options.device_bytes;
}

static int source_grow(void *userdata, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes) {
    struct device_oracle *oracle = userdata;
    int r = 0;

    pthread_mutex_lock(&oracle->lock);
    if (fails(oracle) || refuses(oracle, bytes)) {
        uint64_t half = bytes / 2 / oracle->options.page_bytes * oracle->options.page_bytes;

        if (oracle->fail_part && half && !refuses(oracle, half)) {
            set_mapped(oracle, offset, half, true);
            *ret_bytes = half;
        }
        r = -ENOMEM;
    } else
        set_mapped(oracle, offset, bytes, true);
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

static int source_trim(void *userdata, uint64_t offset, uint64_t bytes) {
    struct device_oracle *oracle = userdata;
    int r = 0;

    pthread_mutex_lock(&oracle->lock);
    if (oracle->options.trim_fails && fails(oracle))
        r = -EIO;
    else
        set_mapped(oracle, offset, bytes, false);
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

static int source_remap(void *userdata, uint64_t from, uint64_t to, uint64_t bytes) {
    struct device_oracle *oracle = userdata;
    int r = 0;

    pthread_mutex_lock(&oracle->lock);
    if (fails(oracle))
        r = -EIO;
    else {
        set_mapped(oracle, from, bytes, false);
        set_mapped(oracle, to, bytes, true);
    }
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

static int source_region_new(void *userdata, uint64_t bytes, uint64_t *ret_address) {
    struct device_oracle *oracle = userdata;
    uint64_t page = oracle->options.page_bytes, offset;
    int r = -ENOMEM;

    pthread_mutex_lock(&oracle->lock);
    /* Not page-aligned in general, and never beside the last one. */
    offset = oracle->region_next + page + (random_next(&oracle->random) % 4) * page;
    if (!fails(oracle) && !refuses(oracle, bytes) && oracle->n_regions < REGIONS &&
        offset + bytes <= oracle->n_granules << 8) {
        set_mapped(oracle, offset, bytes, true);
        oracle->regions[oracle->n_regions].address = *ret_address = BASE + offset;
        oracle->regions[oracle->n_regions++].bytes = bytes;
        oracle->region_next = offset + bytes;
        r = 0;
    }
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

static int source_region_free(void *userdata, uint64_t address, uint64_t bytes) {
    struct device_oracle *oracle = userdata;
    unsigned n = 0;
    int r = 0;

    pthread_mutex_lock(&oracle->lock);
    while (n < oracle->n_regions &&
           (oracle->regions[n].address != address || oracle->regions[n].bytes != bytes))
        n++;
    if (n == oracle->n_regions)
        wrong(oracle, "a region was given back that never was");
    else if (oracle->options.trim_fails && fails(oracle))
        r = -EIO;
    else {
        set_mapped(oracle, address - BASE, bytes, false);
        oracle->regions[n] = oracle->regions[--oracle->n_regions];
        if (!oracle->n_regions)
            oracle->region_next = oracle->options.span_bytes;
    }
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

int device_oracle_new(struct device_oracle **ret, const struct device_oracle_options *options) {
    cleanup(device_oracle_freep) struct device_oracle *oracle = calloc(1, sizeof(*oracle));
    void *map;

    if (!oracle)
        return -ENOMEM;
    pthread_mutex_init(&oracle->lock, NULL);
    oracle->options = *options;
    oracle->random = options->seed;
    oracle->n_granules =
        (options->span_bytes + (options->regions || !options->span_bytes ? 512u << 20 : 0)) >> 8;
    oracle->region_next = options->span_bytes;
    oracle->mapped = calloc(1, (oracle->n_granules << 8) / options->page_bytes);
    map = mmap(NULL, oracle->n_granules * sizeof(*oracle->granules), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!oracle->mapped || map == MAP_FAILED)
        return -ENOMEM;
    oracle->granules = map;
    oracle->source = (struct mem_source){
        .userdata = oracle,
        .base = BASE,
        .span_bytes = options->span_bytes,
        .page_bytes = options->page_bytes,
        .grow = options->span_bytes ? source_grow : NULL,
        .trim = options->span_bytes && !options->no_trim ? source_trim : NULL,
        .remap = options->span_bytes && !options->no_remap ? source_remap : NULL,
        .region_new = options->regions || !options->span_bytes ? source_region_new : NULL,
        .region_free = options->no_region_free ? NULL : source_region_free,
    };
    *ret = TAKE(oracle);
    return 0;
}

struct device_oracle *device_oracle_free(struct device_oracle *oracle) {
    if (!oracle)
        return NULL;
    if (oracle->granules)
        munmap(oracle->granules, oracle->n_granules * sizeof(*oracle->granules));
    free(oracle->mapped);
    pthread_mutex_destroy(&oracle->lock);
    free(oracle);
    return NULL;
}

const struct mem_source *device_oracle_source(struct device_oracle *oracle) {
    return &oracle->source;
}

void device_oracle_fail(struct device_oracle *oracle, unsigned n, bool part) {
    pthread_mutex_lock(&oracle->lock);
    oracle->fail_at = n ? oracle->n_calls + n : 0;
    oracle->fail_part = part;
    oracle->fail_once = false;
    pthread_mutex_unlock(&oracle->lock);
}

void device_oracle_fail_once(struct device_oracle *oracle, unsigned n, bool part) {
    device_oracle_fail(oracle, n, part);
    pthread_mutex_lock(&oracle->lock);
    oracle->fail_once = true;
    pthread_mutex_unlock(&oracle->lock);
}

unsigned device_oracle_calls(struct device_oracle *oracle) {
    return oracle->n_calls;
}

/* `stream` 0: the host, or streams the arena was not told of: nothing may be left to do. */
static bool may_touch(const struct device_oracle *oracle, unsigned stream, unsigned left_on,
                      uint32_t left) {
    if (left <= oracle->done[left_on])
        return true;
    return stream && (stream - 1 == left_on || left <= oracle->knows[stream - 1][left_on]);
}

void device_oracle_take(struct device_oracle *oracle, uint64_t address, uint64_t bytes,
                        uint64_t align_bytes, unsigned stream) {
    uint64_t first = (address - BASE) >> 8, n = bytes ? (bytes + 255) >> 8 : 1;

    pthread_mutex_lock(&oracle->lock);
    if (address < BASE || address % 256 || (align_bytes && address % align_bytes))
        wrong(oracle, "a block at %#llx", (unsigned long long)address);
    if (first + n > oracle->n_granules) {
        wrong(oracle, "a block outside the device");
        n = 0;
    }
    for (uint64_t g = first; g < first + n; g++) {
        struct granule *granule = &oracle->granules[g];

        if (granule->live)
            wrong(oracle, "two blocks overlap at %#llx", (unsigned long long)(BASE + (g << 8)));
        if (!oracle->mapped[(g << 8) / oracle->options.page_bytes])
            wrong(oracle, "a block lies on memory that is not there");
        for (unsigned s = 0; s < DEVICE_ORACLE_STREAMS; s++) {
            if (!may_touch(oracle, stream, s, granule->left[s]))
                wrong(oracle, "stream %u got memory that stream %u still uses", stream, s + 1);
            /* Unfinished work stays unfinished, whichever block has the memory meanwhile. */
            if (granule->left[s] <= oracle->done[s])
                granule->left[s] = 0;
        }
        granule->live = 1;
    }
    pthread_mutex_unlock(&oracle->lock);
}

void device_oracle_give(struct device_oracle *oracle, uint64_t address, uint64_t bytes,
                        const uint8_t *streams, unsigned n_streams) {
    uint64_t first = (address - BASE) >> 8, n = bytes ? (bytes + 255) >> 8 : 1;

    pthread_mutex_lock(&oracle->lock);
    for (unsigned k = 0; k < n_streams; k++)
        oracle->queued[streams[k] - 1]++;
    for (uint64_t g = first; g < first + n; g++) {
        if (!oracle->granules[g].live)
            wrong(oracle, "a block was freed that is not live");
        oracle->granules[g].live = 0;
        for (unsigned k = 0; k < n_streams; k++)
            oracle->granules[g].left[streams[k] - 1] = oracle->queued[streams[k] - 1];
    }
    pthread_mutex_unlock(&oracle->lock);
}

/* The next work of a stream can run unless it waits for another stream. */
static bool run_one(struct device_oracle *oracle, unsigned s) {
    if (oracle->done[s] == oracle->queued[s])
        return false;
    for (unsigned n = 0; n < oracle->n_waits[s];) {
        if (oracle->waits[s][n].position <= oracle->done[oracle->waits[s][n].other])
            oracle->waits[s][n] = oracle->waits[s][--oracle->n_waits[s]];
        else if (oracle->waits[s][n++].at <= oracle->done[s] + 1)
            return false;
    }
    oracle->done[s]++;
    return true;
}

void device_oracle_run(struct device_oracle *oracle, unsigned stream) {
    pthread_mutex_lock(&oracle->lock);
    run_one(oracle, stream - 1);
    pthread_mutex_unlock(&oracle->lock);
}

static int stream_record(void *userdata, uint64_t stream, uint64_t *ret_event) {
    struct device_oracle *oracle = userdata;
    unsigned n = 0;
    int r = -ENOMEM;

    pthread_mutex_lock(&oracle->lock);
    while (n < EVENTS && oracle->events[n].stream)
        n++;
    if (n < EVENTS && random_next(&oracle->random) % 16) {
        oracle->events[n].stream = (uint8_t)stream;
        oracle->events[n].position = ++oracle->queued[stream - 1];
        memcpy(oracle->events[n].knows, oracle->knows[stream - 1], sizeof(oracle->events[n].knows));
        oracle->n_events++;
        *ret_event = n + 1;
        r = 0;
    }
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

static bool is_over(const struct device_oracle *oracle, uint64_t event) {
    return oracle->done[oracle->events[event - 1].stream - 1] >= oracle->events[event - 1].position;
}

static int stream_query(void *userdata, uint64_t event) {
    struct device_oracle *oracle = userdata;
    int r;

    pthread_mutex_lock(&oracle->lock);
    if (!oracle->events[event - 1].stream)
        wrong(oracle, "an event was asked for that is not there");
    r = random_next(&oracle->random) % 16 ? is_over(oracle, event) : -EIO;
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

static void stream_discard(void *userdata, uint64_t event) {
    struct device_oracle *oracle = userdata;

    pthread_mutex_lock(&oracle->lock);
    if (!oracle->events[event - 1].stream)
        wrong(oracle, "an event was discarded twice");
    oracle->events[event - 1].stream = 0;
    oracle->n_events--;
    pthread_mutex_unlock(&oracle->lock);
}

static int stream_wait(void *userdata, uint64_t event) {
    struct device_oracle *oracle = userdata;
    bool moved = true;

    pthread_mutex_lock(&oracle->lock);
    while (!oracle->options.no_wait && !is_over(oracle, event) && moved) {
        moved = false;
        for (unsigned s = 0; s < DEVICE_ORACLE_STREAMS; s++)
            moved |= run_one(oracle, s);
    }
    if (!oracle->options.no_wait && !is_over(oracle, event))
        wrong(oracle, "the streams wait for each other");
    pthread_mutex_unlock(&oracle->lock);
    return oracle->options.no_wait ? -ENOTSUP : 0;
}

static int stream_order(void *userdata, uint64_t stream, uint64_t event) {
    struct device_oracle *oracle = userdata;
    unsigned s = (unsigned)stream - 1, n, other;
    int r = -ENOTSUP;

    pthread_mutex_lock(&oracle->lock);
    n = oracle->n_waits[s];
    if (!oracle->options.no_order && n < WAITS) {
        other = oracle->events[event - 1].stream - 1u;
        oracle->waits[s][n].at = oracle->queued[s] + 1;
        oracle->waits[s][n].position = oracle->events[event - 1].position;
        oracle->waits[s][n].other = (uint8_t)other;
        oracle->n_waits[s]++;
        for (unsigned k = 0; k < DEVICE_ORACLE_STREAMS; k++)
            oracle->knows[s][k] = MAX(oracle->knows[s][k], oracle->events[event - 1].knows[k]);
        oracle->knows[s][other] = MAX(oracle->knows[s][other], oracle->events[event - 1].position);
        r = 0;
    }
    pthread_mutex_unlock(&oracle->lock);
    return r;
}

const struct stream_ops *device_oracle_stream_ops(void) {
    static const struct stream_ops ops = {
        .record = stream_record,
        .query = stream_query,
        .discard = stream_discard,
        .wait = stream_wait,
        .order = stream_order,
    };

    return &ops;
}

uint64_t device_oracle_mapped_bytes(struct device_oracle *oracle) {
    return oracle->mapped_bytes;
}

uint64_t device_oracle_peak_mapped_bytes(struct device_oracle *oracle) {
    return oracle->peak_bytes;
}

unsigned device_oracle_events(struct device_oracle *oracle) {
    return oracle->n_events;
}

bool device_oracle_is_mapped(struct device_oracle *oracle, uint64_t address) {
    return oracle->mapped[(address - BASE) / oracle->options.page_bytes];
}

const char *device_oracle_mistake(struct device_oracle *oracle) {
    return oracle->mistake[0] ? oracle->mistake : NULL;
}
