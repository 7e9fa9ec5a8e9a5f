/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Slab: the objects behind handles. Memory of a slab only ever holds objects of its type and is
 * never unmapped, so any value that a program passes as a handle can be checked without touching
 * foreign memory, and a late reader finds a dead object instead of a fault.
 *
 * slab_new() and slab_free() need driver.lock; slab_live() is for any thread, without it.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SLAB_CHUNKS = 20, /* chunk k holds 64 << k objects */
};

/* The first member of every object. */
struct slab_head {
    _Atomic uint32_t live;
    struct slab_head *next; /* in the list of free objects */
};

struct slab {
    size_t size;
    bool keep; /* objects keep what they held when they were freed; zeros at first */
    _Atomic unsigned n_chunks;
    void *chunk[SLAB_CHUNKS];
    struct slab_head *first_free, *last_free; /* oldest first: handles are not reused at once */
};

#define SLAB(type, ...)                                                                            \
    { .size = (sizeof(type) + 15) & ~(size_t)15, __VA_ARGS__ }

/* A new object, zeroed but for its head; NULL: no memory. Call slab_publish() when it is whole. */
void *slab_new(struct slab *slab);
static inline void slab_publish(void *object) {
    atomic_store_explicit(&((struct slab_head *)object)->live, 1, memory_order_release);
}
void slab_free(struct slab *slab, void *object);
/* Whether `object` is a live object of this slab. */
bool slab_live(struct slab *slab, const void *object);
/* The live object after `object` (NULL: the first); NULL: no more. Needs the lock. */
void *slab_next(struct slab *slab, const void *object);
