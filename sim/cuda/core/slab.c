/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/core/slab.h"

#include <string.h>
#include <sys/mman.h>

/* Memory that live objects point to is not leaked, but the leak checker does not scan mappings. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define LEAK_ROOT(p, bytes) __lsan_register_root_region(p, bytes)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#define LEAK_ROOT(p, bytes) __lsan_register_root_region(p, bytes)
#endif
#endif
#ifndef LEAK_ROOT
#define LEAK_ROOT(p, bytes) (void)0
#endif

static size_t chunk_objects(unsigned k) {
    return (size_t)64 << k;
}

static int grow(struct slab *slab) {
    unsigned k = atomic_load_explicit(&slab->n_chunks, memory_order_relaxed);
    char *chunk;

    if (k == SLAB_CHUNKS)
        return -1;
    chunk = mmap(NULL, chunk_objects(k) * slab->size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (chunk == MAP_FAILED)
        return -1;
    LEAK_ROOT(chunk, chunk_objects(k) * slab->size);
    for (size_t i = 0; i < chunk_objects(k); i++) {
        struct slab_head *head = (struct slab_head *)(chunk + i * slab->size);

        if (slab->last_free)
            slab->last_free->next = head;
        else
            slab->first_free = head;
        slab->last_free = head;
    }
    slab->chunk[k] = chunk;
    atomic_store_explicit(&slab->n_chunks, k + 1, memory_order_release);
    return 0;
}

void *slab_new(struct slab *slab) {
    struct slab_head *head;

    if (!slab->first_free && grow(slab) < 0)
        return NULL;
    head = slab->first_free;
    slab->first_free = head->next;
    if (!slab->first_free)
        slab->last_free = NULL;
    if (!slab->keep)
        memset((char *)head + sizeof(*head), 0, slab->size - sizeof(*head));
    head->next = NULL;
    return head;
}

void slab_free(struct slab *slab, void *object) {
    struct slab_head *head = object;

    atomic_store_explicit(&head->live, 0, memory_order_release);
    head->next = NULL;
    if (slab->last_free)
        slab->last_free->next = head;
    else
        slab->first_free = head;
    slab->last_free = head;
}

bool slab_live(struct slab *slab, const void *object) {
    unsigned n = atomic_load_explicit(&slab->n_chunks, memory_order_acquire);

    for (unsigned k = 0; k < n; k++) {
        size_t offset = (size_t)((uintptr_t)object - (uintptr_t)slab->chunk[k]);

        if (offset >= chunk_objects(k) * slab->size)
            continue;
        return offset % slab->size == 0 &&
               atomic_load_explicit(&((const struct slab_head *)object)->live,
                                    memory_order_acquire) == 1;
    }
    return false;
}

void *slab_next(struct slab *slab, const void *object) {
    unsigned n = atomic_load_explicit(&slab->n_chunks, memory_order_acquire);
    bool past = !object;

    for (unsigned k = 0; k < n; k++) {
        size_t first = 0, bytes = chunk_objects(k) * slab->size;

        if (!past) {
            size_t offset = (size_t)((uintptr_t)object - (uintptr_t)slab->chunk[k]);

            if (offset >= bytes)
                continue;
            past = true;
            first = offset + slab->size;
        }
        for (size_t at = first; at < bytes; at += slab->size) {
            struct slab_head *head = (struct slab_head *)((char *)slab->chunk[k] + at);

            if (atomic_load_explicit(&head->live, memory_order_relaxed))
                return head;
        }
    }
    return NULL;
}
