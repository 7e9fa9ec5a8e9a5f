/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: the table of live allocations, sorted by address, in leaves of at most 256:
 *
 *     leaves ─▶ [base of first | n | extents…] [ … ] [ … ]
 *
 * so that adding and removing moves at most one leaf's worth and the list of leaves. Lookups take a
 * read lock; running kernels make few, because each instruction keeps the extent it used last.
 *
 * Removal must be seen by kernels that hold such copies. Every change of generation is noticed at a
 * kernel's next poll, where it drops its copies and says so (`seen`). The remover waits for that.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/block.h"

#define LEAF 256

struct leaf {
    size_t n;
    struct ptx_extent extents[LEAF];
};

struct ptx_memory {
    ptx_find_fn find; /* asks the owner; NULL: we have the table */
    void *user;
    pthread_rwlock_t lock;
    struct leaf **leaves;
    size_t n_leaves, cap_leaves;
    _Atomic uint64_t own_generation;
    const _Atomic uint64_t *generation; /* `own_generation`, or the owner's */
    pthread_mutex_t readers_lock;
    struct ptx_reader *readers;
};

int ptx_memory_new(struct ptx_memory **ret) {
    struct ptx_memory *memory = calloc(1, sizeof(*memory));

    if (!memory)
        return -ENOMEM;
    pthread_rwlock_init(&memory->lock, NULL);
    pthread_mutex_init(&memory->readers_lock, NULL);
    memory->own_generation = 1;
    memory->generation = &memory->own_generation;
    *ret = memory;
    return 0;
}

int ptx_memory_new_asking(struct ptx_memory **ret, ptx_find_fn find, void *user,
                          const _Atomic uint64_t *generation) {
    int r = ptx_memory_new(ret);

    if (r == 0) {
        (*ret)->find = find;
        (*ret)->user = user;
        (*ret)->generation = generation;
    }
    return r;
}

struct ptx_memory *ptx_memory_free(struct ptx_memory *memory) {
    if (!memory)
        return NULL;
    for (size_t i = 0; i < memory->n_leaves; i++)
        free(memory->leaves[i]);
    free(memory->leaves);
    pthread_rwlock_destroy(&memory->lock);
    pthread_mutex_destroy(&memory->readers_lock);
    free(memory);
    return NULL;
}

/* The last leaf that begins at or below `address`, and in it the last extent that does. -1: none.
 */
static ssize_t find_leaf(const struct ptx_memory *memory, uint64_t address) {
    size_t low = 0, high = memory->n_leaves;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (memory->leaves[middle]->extents[0].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return (ssize_t)low - 1;
}

static size_t find_in_leaf(const struct leaf *leaf, uint64_t address) {
    size_t low = 0, high = leaf->n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (leaf->extents[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low; /* one past it */
}

static int insert_leaf(struct ptx_memory *memory, size_t at) {
    struct leaf *leaf = calloc(1, sizeof(*leaf));

    if (!leaf)
        return -ENOMEM;
    if (memory->n_leaves == memory->cap_leaves) {
        size_t cap = memory->cap_leaves ? memory->cap_leaves * 2 : 16;
        struct leaf **leaves = realloc(memory->leaves, cap * sizeof(*leaves));

        if (!leaves) {
            free(leaf);
            return -ENOMEM;
        }
        memory->leaves = leaves;
        memory->cap_leaves = cap;
    }
    memmove(memory->leaves + at + 1, memory->leaves + at,
            (memory->n_leaves - at) * sizeof(*memory->leaves));
    memory->leaves[at] = leaf;
    memory->n_leaves++;
    return 0;
}

static bool overlaps(const struct ptx_extent *a, const struct ptx_extent *b) {
    return a->base < b->base ? b->base - a->base < a->bytes : a->base - b->base < b->bytes;
}

static int add_locked(struct ptx_memory *memory, const struct ptx_extent *extent) {
    ssize_t l = find_leaf(memory, extent->base);
    struct leaf *leaf;
    size_t at;
    int r;

    if (l < 0) {
        if (!memory->n_leaves) {
            r = insert_leaf(memory, 0);
            if (r < 0)
                return r;
        }
        l = 0;
    }
    leaf = memory->leaves[l];
    at = find_in_leaf(leaf, extent->base);
    if (at && overlaps(&leaf->extents[at - 1], extent))
        return -EEXIST;
    if (at < leaf->n && overlaps(&leaf->extents[at], extent))
        return -EEXIST;
    if (at == leaf->n && (size_t)l + 1 < memory->n_leaves &&
        overlaps(&memory->leaves[l + 1]->extents[0], extent))
        return -EEXIST;
    if (leaf->n == LEAF) {
        struct leaf *upper;

        r = insert_leaf(memory, (size_t)l + 1);
        if (r < 0)
            return r;
        upper = memory->leaves[l + 1];
        upper->n = LEAF / 2;
        leaf->n = LEAF / 2;
        memcpy(upper->extents, leaf->extents + LEAF / 2, sizeof(*extent) * (LEAF / 2));
        if (at > LEAF / 2) {
            leaf = upper;
            at -= LEAF / 2;
        }
    }
    memmove(leaf->extents + at + 1, leaf->extents + at, (leaf->n - at) * sizeof(*extent));
    leaf->extents[at] = *extent;
    leaf->n++;
    return 0;
}

int ptx_memory_add(struct ptx_memory *memory, const struct ptx_extent *extent) {
    int r;

    if (!extent->bytes || extent->base >= PTX_SHARED_BASE ||
        extent->bytes > PTX_SHARED_BASE - extent->base)
        return -EINVAL;
    pthread_rwlock_wrlock(&memory->lock);
    r = add_locked(memory, extent);
    pthread_rwlock_unlock(&memory->lock);
    return r;
}

/* Every kernel that was running has dropped what it kept of an older generation. */
static void wait_for_readers(struct ptx_memory *memory, uint64_t generation) {
    const struct timespec pause = { .tv_nsec = 20000 };

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

void ptx_memory_settle(struct ptx_memory *memory) {
    wait_for_readers(memory, atomic_load(memory->generation));
}

int ptx_memory_remove(struct ptx_memory *memory, uint64_t base) {
    uint64_t generation = 0;
    struct leaf *leaf;
    ssize_t l;
    size_t at;
    int r = -ENOENT;

    pthread_rwlock_wrlock(&memory->lock);
    l = find_leaf(memory, base);
    leaf = l < 0 ? NULL : memory->leaves[l];
    at = leaf ? find_in_leaf(leaf, base) : 0;
    if (at && leaf->extents[at - 1].base == base) {
        memmove(leaf->extents + at - 1, leaf->extents + at,
                (leaf->n - at) * sizeof(*leaf->extents));
        if (!--leaf->n) {
            free(leaf);
            memmove(memory->leaves + l, memory->leaves + l + 1,
                    (memory->n_leaves - (size_t)l - 1) * sizeof(*memory->leaves));
            memory->n_leaves--;
        }
        generation = atomic_fetch_add(&memory->own_generation, 1) + 1;
        r = 0;
    }
    pthread_rwlock_unlock(&memory->lock);
    if (!r)
        wait_for_readers(memory, generation);
    return r;
}

int ptx_memory_find(struct ptx_memory *memory, uint64_t address, bool nearest,
                    struct ptx_extent *ret) {
    int r = -ENOENT;
    ssize_t l;

    if (memory->find)
        return memory->find(memory->user, address, ret);
    pthread_rwlock_rdlock(&memory->lock);
    l = find_leaf(memory, address);
    if (l >= 0) {
        const struct leaf *leaf = memory->leaves[l];
        const struct ptx_extent *below = &leaf->extents[find_in_leaf(leaf, address) - 1], *above;

        above = below + 1 < leaf->extents + leaf->n ? below + 1
                : (size_t)l + 1 < memory->n_leaves  ? &memory->leaves[l + 1]->extents[0]
                                                    : NULL;
        if (address - below->base < below->bytes || nearest) {
            uint64_t past = address - below->base - below->bytes;

            r = 0;
            *ret = address - below->base >= below->bytes && above && above->base - address < past
                       ? *above
                       : *below;
        }
    } else if (nearest && memory->n_leaves) {
        *ret = memory->leaves[0]->extents[0];
        r = 0;
    }
    pthread_rwlock_unlock(&memory->lock);
    return r;
}

/* Whether all of a piece lies in an extent, whatever the owner of the table answered. */
static bool has(const struct ptx_extent *extent, uint64_t address, uint64_t bytes) {
    const uint64_t at = address - extent->base; /* very large below it */

    return at < extent->bytes && extent->bytes - at >= bytes;
}

static int copy(struct ptx_memory *memory, uint64_t address, void *bytes, size_t n, bool write) {
    while (n) {
        struct ptx_extent extent;
        size_t part;
        int r = ptx_memory_find(memory, address, false, &extent);

        if (r < 0 || !has(&extent, address, 1) || (write && extent.flags & PTX_EXTENT_READ_ONLY))
            return -EFAULT;
        part = MIN((uint64_t)n, extent.bytes - (address - extent.base));
        if (!extent.host && !write)
            memset(bytes, 0, part);
        else if (extent.host && write)
            memcpy(extent.host + (address - extent.base), bytes, part);
        else if (extent.host)
            memcpy(bytes, extent.host + (address - extent.base), part);
        bytes = (char *)bytes + part;
        address += part;
        n -= part;
    }
    return 0;
}

int ptx_memory_read(struct ptx_memory *memory, uint64_t address, void *bytes, size_t n) {
    return copy(memory, address, bytes, n, false);
}

int ptx_memory_write(struct ptx_memory *memory, uint64_t address, const void *bytes, size_t n) {
    return copy(memory, address, (void *)bytes, n, true);
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

    if (ptx_memory_find(worker->launch->memory, address, false, &extent) < 0 ||
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
