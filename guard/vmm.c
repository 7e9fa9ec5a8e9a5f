/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vmm: memory by handle. It is charged when its handle is made and refunded when the driver frees
 * it: after the last use of the handle was released and its last mapping is gone, in either order.
 *
 * A piece of memory is one block here, shared by its handle and by its mappings, which are in a
 * list ordered by address. Memory from other processes has no block: the process that created it is
 * charged.
 *
 * Exported memory may outlive this process's use of it in another process. Its charge stays here
 * for EXPORTED_MSEC more: by then the daemon has seen through NVML which process has it, and
 * charges that one.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "guard/memory.h"
#include "guard/vmm.h"

#define EXPORTED_MSEC 5000

struct vmm_block {
    CUmemGenericAllocationHandle handle;
    struct memory_charge charge;
    size_t n_uses; /* of the handle */
    size_t n_maps;
    bool exported;
};

/* The charge of an exported block that this process no longer uses. */
struct exported_charge {
    struct memory_charge charge;
    uint64_t until_msec;
    struct exported_charge *next;
};

struct mapping {
    CUdeviceptr start;
    size_t bytes;
    struct vmm_block *block;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vmm_block **blocks; /* by handle */
static size_t n_blocks, blocks_size;
static struct mapping *mappings; /* by address */
static size_t n_mappings, mappings_size;
static struct exported_charge *exported;

void vmm_settle(int share) {
    uint64_t now = credit_now_msec();

    if (pthread_mutex_trylock(&lock) != 0)
        return; /* another thread is doing it; try again later */
    for (struct exported_charge **at = &exported; *at;) {
        struct exported_charge *entry = *at;

        if (entry->charge.share != share || entry->until_msec > now) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        memory_drop(&entry->charge);
        free(entry);
    }
    pthread_mutex_unlock(&lock);
}

/* The first block whose handle is not smaller. */
static size_t block_place(CUmemGenericAllocationHandle handle) {
    size_t low = 0, high = n_blocks;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (blocks[middle]->handle < handle)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct vmm_block *block_find(CUmemGenericAllocationHandle handle) {
    /* Blocks that are only mapped, whose handle was released, may have the same handle. */
    for (size_t i = block_place(handle); i < n_blocks && blocks[i]->handle == handle; i++)
        if (blocks[i]->n_uses)
            return blocks[i];
    return NULL;
}

static bool make_room(void *array, size_t *size, size_t n, size_t width) {
    void **items = array, *larger;

    if (n < *size)
        return true;
    larger = realloc(*items, MAX(*size * 2, (size_t)16) * width);
    if (!larger)
        return false;
    *items = larger;
    *size = MAX(*size * 2, (size_t)16);
    return true;
}

static bool block_add(CUmemGenericAllocationHandle handle, const struct memory_charge *charge) {
    struct vmm_block *block = malloc(sizeof(*block));
    size_t i;

    if (!block || !make_room(&blocks, &blocks_size, n_blocks, sizeof(struct vmm_block *))) {
        free(block);
        return false;
    }
    *block = (struct vmm_block){ .handle = handle, .charge = *charge, .n_uses = 1 };
    i = block_place(handle);
    memmove(&blocks[i + 1], &blocks[i], (n_blocks - i) * sizeof(struct vmm_block *));
    blocks[i] = block;
    n_blocks++;
    return true;
}

/* Refund and forget a block without users. */
static void block_check(struct vmm_block *block) {
    if (block->n_uses || block->n_maps)
        return;
    for (size_t i = block_place(block->handle); i < n_blocks; i++)
        if (blocks[i] == block) {
            n_blocks--;
            memmove(&blocks[i], &blocks[i + 1], (n_blocks - i) * sizeof(struct vmm_block *));
            break;
        }
    if (block->exported) {
        struct exported_charge *entry = malloc(sizeof(*entry));

        if (entry) { /* otherwise the charge stays for good, which harms no other job */
            *entry = (struct exported_charge){ block->charge, credit_now_msec() + EXPORTED_MSEC,
                                               exported };
            exported = entry;
        }
    } else {
        memory_drop(&block->charge);
    }
    free(block);
}

static size_t mapping_place(CUdeviceptr start) {
    size_t low = 0, high = n_mappings;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (mappings[middle].start < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    __typeof__(&cuMemCreate) real = REAL(cuMemCreate);
    struct memory_charge charge;
    bool kept;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!handle || !prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return real(handle, size, prop, flags);
    /* A handle has whole pages. */
    r = memory_take_on(&charge, memory_share_of(prop->location.id),
                       credit_size(MAX(size, (size_t)2 << 20)));
    if (r != CUDA_SUCCESS || charge.share < 0)
        return r == CUDA_SUCCESS ? real(handle, size, prop, flags) : r;
    r = real(handle, size, prop, flags);
    if (r != CUDA_SUCCESS) {
        memory_drop(&charge);
        return r;
    }
    pthread_mutex_lock(&lock);
    kept = block_add(*handle, &charge);
    pthread_mutex_unlock(&lock);
    if (!kept) {
        REAL(cuMemRelease)(*handle);
        memory_drop(&charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return r;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    __typeof__(&cuMemRelease) real = REAL(cuMemRelease);
    struct vmm_block *block;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    /* With the lock: the driver may give the same handle to another thread as soon as it is
     * free. */
    pthread_mutex_lock(&lock);
    r = real(handle);
    block = r == CUDA_SUCCESS ? block_find(handle) : NULL;
    if (block) {
        block->n_uses--;
        block_check(block);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    __typeof__(&cuMemMap) real = REAL(cuMemMap);
    struct vmm_block *block;
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    OR_NOT_SUPPORTED(real);
    pthread_mutex_lock(&lock);
    block = block_find(handle);
    if (!block) {
        r = real(ptr, size, offset, handle, flags);
    } else if (make_room(&mappings, &mappings_size, n_mappings, sizeof(struct mapping))) {
        r = real(ptr, size, offset, handle, flags);
        if (r == CUDA_SUCCESS) {
            size_t i = mapping_place(ptr);

            memmove(&mappings[i + 1], &mappings[i], (n_mappings - i) * sizeof(struct mapping));
            mappings[i] = (struct mapping){ ptr, size, block };
            n_mappings++;
            block->n_maps++;
        }
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    __typeof__(&cuMemUnmap) real = REAL(cuMemUnmap);
    CUresult r;

    OR_NOT_SUPPORTED(real);
    pthread_mutex_lock(&lock);
    r = real(ptr, size);
    if (r == CUDA_SUCCESS) {
        size_t first = mapping_place(ptr), end = first;

        while (end < n_mappings && mappings[end].start - ptr < size) {
            struct vmm_block *block = mappings[end++].block;

            block->n_maps--;
            block_check(block);
        }
        memmove(&mappings[first], &mappings[end], (n_mappings - end) * sizeof(struct mapping));
        n_mappings -= end - first;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    __typeof__(&cuMemRetainAllocationHandle) real = REAL(cuMemRetainAllocationHandle);
    CUresult r;

    OR_NOT_SUPPORTED(real);
    pthread_mutex_lock(&lock);
    r = real(handle, addr);
    if (r == CUDA_SUCCESS) {
        CUdeviceptr address = (CUdeviceptr)(uintptr_t)addr;
        size_t i = mapping_place(address + 1);

        if (i > 0 && address - mappings[i - 1].start < mappings[i - 1].bytes) {
            struct vmm_block *block = mappings[i - 1].block;

            /* The driver may give it a new handle after its last release. */
            if (block->handle == *handle || block->n_uses == 0) {
                if (block->handle != *handle) {
                    size_t old = block_place(block->handle), new;

                    while (blocks[old] != block)
                        old++;
                    n_blocks--;
                    memmove(&blocks[old], &blocks[old + 1], (n_blocks - old) * sizeof(*blocks));
                    block->handle = *handle;
                    new = block_place(*handle);
                    memmove(&blocks[new + 1], &blocks[new], (n_blocks - new) * sizeof(*blocks));
                    blocks[new] = block;
                    n_blocks++;
                }
                block->n_uses++;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
    __typeof__(&cuMemExportToShareableHandle) real = REAL(cuMemExportToShareableHandle);
    struct vmm_block *block;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    pthread_mutex_lock(&lock);
    r = real(shareableHandle, handle, handleType, flags);
    block = r == CUDA_SUCCESS ? block_find(handle) : NULL;
    if (block)
        block->exported = true;
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType) {
    __typeof__(&cuMemImportFromShareableHandle) real = REAL(cuMemImportFromShareableHandle);
    struct vmm_block *block;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    pthread_mutex_lock(&lock);
    r = real(handle, osHandle, shHandleType);
    /* Memory of this very process comes back under its existing handle. */
    block = r == CUDA_SUCCESS ? block_find(*handle) : NULL;
    if (block)
        block->n_uses++;
    pthread_mutex_unlock(&lock);
    return r;
}

static void lock_blocks(void) {
    pthread_mutex_lock(&lock);
}

static void unlock_blocks(void) {
    pthread_mutex_unlock(&lock);
}

static void forget_blocks(void) {
    for (size_t i = 0; i < n_blocks; i++)
        free(blocks[i]);
    n_blocks = n_mappings = 0;
    exported = NULL; /* a few bytes, leaked on purpose */
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(lock_blocks, unlock_blocks, forget_blocks);
}
