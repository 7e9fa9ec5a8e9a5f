/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: what kernels know of the owner's allocations.
 *
 * Each instruction keeps the extent that it used last, so a running kernel asks the owner rarely.
 * When the owner changes the generation, every kernel notices at its next poll, drops these copies
 * and says so (`seen`). ptx_memory_settle() waits for that.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/block.h"

struct ptx_memory {
    ptx_find_fn find;
    void *user;
    const _Atomic uint64_t *generation; /* the owner's */
    pthread_mutex_t readers_lock;
    struct ptx_reader *readers;
};

int ptx_memory_new(struct ptx_memory **ret, ptx_find_fn find, void *user,
                   const _Atomic uint64_t *generation) {
    struct ptx_memory *memory = calloc(1, sizeof(*memory));

    if (!memory)
        return -ENOMEM;
    *memory = (struct ptx_memory){ .find = find, .user = user, .generation = generation };
    pthread_mutex_init(&memory->readers_lock, NULL);
    *ret = memory;
    return 0;
}

struct ptx_memory *ptx_memory_free(struct ptx_memory *memory) {
    if (!memory)
        return NULL;
    pthread_mutex_destroy(&memory->readers_lock);
    free(memory);
    return NULL;
}

void ptx_memory_settle(struct ptx_memory *memory) {
    const struct timespec pause = { .tv_nsec = 20000 };
    const uint64_t generation = atomic_load(memory->generation);

    for (;;) {
        bool behind = false;

        pthread_mutex_lock(&memory->readers_lock);
        for (struct ptx_reader *reader = memory->readers; reader; reader = reader->next)
            behind |= atomic_load(&reader->seen) < generation;
        pthread_mutex_unlock(&memory->readers_lock);
        if (!behind)
            return;
        nanosleep(&pause, NULL);
    }
}

int ptx_memory_find(struct ptx_memory *memory, uint64_t address, struct ptx_extent *ret) {
    return memory->find(memory->user, address, ret);
}

/* Whether an extent holds all `bytes` at `address`: the owner's answer is not trusted. */
static bool has(const struct ptx_extent *extent, uint64_t address, uint64_t bytes) {
    const uint64_t at =
        address - extent->base; /* wraps to a very large number if the address is below the base */

    return at < extent->bytes && extent->bytes - at >= bytes;
}

uint64_t ptx_memory_generation(struct ptx_memory *memory) {
    return atomic_load(memory->generation);
}

uint64_t ptx_memory_enter(struct ptx_memory *memory, struct ptx_reader *reader) {
    uint64_t seen;

    pthread_mutex_lock(&memory->readers_lock);
    seen = atomic_load(memory->generation);
    atomic_store(&reader->seen, seen);
    reader->next = memory->readers;
    memory->readers = reader;
    pthread_mutex_unlock(&memory->readers_lock);
    return seen;
}

void ptx_memory_leave(struct ptx_memory *memory, struct ptx_reader *reader) {
    pthread_mutex_lock(&memory->readers_lock);
    for (struct ptx_reader **p = &memory->readers; *p; p = &(*p)->next)
        if (*p == reader) {
            *p = reader->next;
            break;
        }
    pthread_mutex_unlock(&memory->readers_lock);
}

/* ---- for the executor --------------------------------------------------------------------------
 */

int ptx_memory_lookup(struct ptx_worker *worker, struct ptx_extent *slot, uint64_t address,
                      uint32_t bytes, bool store) {
    struct ptx_extent extent;

    if (ptx_memory_find(worker->launch->memory, address, &extent) < 0 ||
        !has(&extent, address, bytes))
        return -EFAULT;
    if (store && extent.flags & PTX_EXTENT_READ_ONLY)
        return -EACCES;
    *slot = extent;
    return 0;
}

unsigned char *ptx_memory_resolve(struct ptx_warp *w, unsigned lane, uint64_t address,
                                  uint32_t bytes, bool store, bool *ret_unbacked) {
    struct ptx_extent extent;
    uint64_t at;

    *ret_unbacked = false;
    if (address >= PTX_SHARED_BASE) {
        at = address & (PTX_WINDOW - 1);
        switch (address - at) {
        case PTX_SHARED_BASE:
            return at + bytes <= w->block->shared_bytes ? w->block->shared + at : NULL;
        case PTX_LOCAL_BASE:
            return at + bytes <= w->local_stride
                       ? (unsigned char *)w->local + (size_t)lane * w->local_stride + at
                       : NULL;
        case PTX_PARAM_BASE:
            return !store && at + bytes <= w->worker->program->function->param_bytes
                       ? (unsigned char *)w->worker->launch->params + at
                       : NULL;
        case PTX_GRID_BASE:
            return w->worker->launch->cooperative && at + bytes <= sizeof(w->worker->run->workspace)
                       ? (unsigned char *)w->worker->run->workspace + at
                       : NULL;
        default:
            return NULL;
        }
    }
    if (ptx_memory_lookup(w->worker, &extent, address, bytes, store) < 0)
        return NULL;
    if (!extent.host) {
        *ret_unbacked = true;
        return NULL;
    }
    return extent.host + (address - extent.base);
}

bool ptx_memory_poll(struct ptx_warp *w) {
    struct ptx_worker *worker = w->worker;

    ptx_launch_refresh(worker);
    return worker->stop;
}
