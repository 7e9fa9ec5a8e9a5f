/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/deferred_free.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/map.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"

/* How many entries of other streams one allocation looks at, the oldest first. */
enum { MAX_OTHERS = 16 };

/* Belongs to the work that frees it. */
struct deferred_entry {
    struct list in_entries; /* of all, oldest first */
    struct pool *pool;      /* NULL: plain memory of a context */
    uint32_t stream;        /* number of the one that frees it */
    struct work *work;      /* the one that frees it; NULL until it is submitted */
    CUdeviceptr base;
    uint64_t bytes; /* as they are counted */
    uint64_t id;    /* of the allocation */
    bool gone;      /* in use again, or freed by the end of its pool */
};

static struct list entries = LIST_INIT(entries);
static struct map by_base; /* base → entry */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;

static void leave(struct deferred_entry *entry) {
    if (entry->gone)
        return;
    entry->work = work_unref(driver.executor, entry->work);
    entry->gone = true;
    list_remove(&entry->in_entries);
    map_take(&by_base, entry->base);
    if (entry->pool)
        entry->pool->deferred_bytes -= entry->bytes;
    pthread_cond_broadcast(&left);
}

static CUresult free_now(const struct allocation *allocation) {
    if (allocation->range->kind == RANGE_IMPORTED || allocation->range->heap->pool)
        return pool_free(allocation);
    heap_free(allocation); /* memory of cuMemAlloc() may be freed in stream order too */
    return CUDA_SUCCESS;
}

static uint64_t entry_run(void *argument) {
    struct deferred_entry *entry = argument;
    struct allocation found;
    bool gone;

    DRIVER_LOCKED();
    gone = entry->gone;
    leave(entry);
    if (!gone && memory_find(entry->base, &found) && found.id == entry->id)
        free_now(&found);
    return 0;
}

bool deferred_free_has(CUdeviceptr base) {
    return map_find(&by_base, base);
}

static uint64_t counted(const struct allocation *allocation) {
    return allocation->range->kind == RANGE_BLOCK ? round_up(allocation->bytes, HEAP_UNIT)
                                                  : allocation->range->span;
}

CUresult deferred_free_add(const struct allocation *allocation, CUstream handle) {
    struct stream *stream;
    struct deferred_entry *entry;
    struct work *work;
    CUresult r;

    TRY(stream_find(handle, &stream, NULL));
    if (allocation->range->kind == RANGE_IMPORTED || stream_idle(stream))
        return free_now(allocation);
    entry = calloc(1, sizeof(*entry));
    if (!entry || map_put(&by_base, allocation->base, entry) < 0) {
        free(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    entry->pool = allocation->range->heap->pool;
    entry->stream = stream->number;
    entry->base = allocation->base;
    entry->bytes = counted(allocation);
    entry->id = allocation->id;
    list_append(&entries, &entry->in_entries);
    if (entry->pool)
        entry->pool->deferred_bytes += entry->bytes;

    /* Submitting may have to wait for work that needs the lock. */
    driver_unlock();
    r = stream_submit(handle,
                      &(struct stream_order){
                          .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
                          .run = entry_run,
                          .argument = entry,
                          .release = free, /* after it was run, which removes it from the list */
                          .regardless = true,
                      },
                      &work);
    driver_lock();
    if (r != CUDA_SUCCESS) {
        leave(entry);
        free(entry);
        return r;
    }
    /* `work` has the entry, so it is there even if it was run meanwhile. */
    if (entry->gone)
        work_unref(driver.executor, work);
    else
        entry->work = work;
    return CUDA_SUCCESS;
}

/* Whether what comes next in `stream` comes after the entry was freed. */
static bool is_before(const struct deferred_entry *entry, struct stream *stream) {
    cleanup(submit_list_done) struct submit_list works = { 0 };
    bool found = entry->stream == stream->number;

    if (found || !entry->work || !entry->pool->reuse[POOL_FOLLOW_EVENTS])
        return found;
    STREAM_LOCKED();
    if (stream_awaits(stream, &works) != CUDA_SUCCESS)
        return false;
    if (stream->tail)
        found = work_precedes(driver.executor, entry->work, stream->tail);
    for (size_t i = 0; i < works.n && !found; i++)
        found = work_precedes(driver.executor, entry->work, works.at[i]);
    return found;
}

/* Let `stream` wait for the entry to be freed. */
static bool await_entry(struct stream *stream, const struct deferred_entry *entry) {
    STREAM_LOCKED();
    return entry->work && stream_await(stream, entry->work) == CUDA_SUCCESS;
}

bool deferred_free_reuse(struct pool *pool, struct stream *stream, uint64_t bytes, bool anyhow,
                         CUdeviceptr *ret) {
    struct allocation found;
    struct deferred_entry *entry;
    unsigned n_others = 0;

    if (!pool->deferred_bytes)
        return false;
    list_foreach (entry, &entries, in_entries) {
        if (entry->pool != pool || !memory_find(entry->base, &found) || found.id != entry->id ||
            !heap_fits(&found, bytes))
            continue;
        /*
         * To know whether a stream comes after another's work takes a search of all pending work.
         */
        if (entry->stream != stream->number && n_others++ >= MAX_OTHERS)
            continue;
        if (!is_before(entry, stream) && !(anyhow && await_entry(stream, entry)))
            continue;
        heap_resize(&found, bytes);
        leave(entry);
        *ret = found.base;
        return true;
    }
    return false;
}

static const struct deferred_entry *awaited(const struct pool *pool, struct stream *stream,
                                            bool anyhow) {
    const struct deferred_entry *entry;

    list_foreach (entry, &entries, in_entries) {
        if (entry->pool == pool && (anyhow || is_before(entry, stream)))
            return entry;
    }
    return NULL;
}

bool deferred_free_flush(struct pool *pool, struct stream *stream, bool anyhow) {
    if (!awaited(pool, stream, anyhow))
        return false;
    while (awaited(pool, stream, anyhow))
        pthread_cond_wait(&left, &driver.lock);
    return true;
}

void deferred_free_forget(struct pool *pool) {
    struct deferred_entry *entry, *next;

    list_foreach_safe (entry, next, &entries, in_entries) {
        if (entry->pool == pool)
            leave(entry);
    }
}
