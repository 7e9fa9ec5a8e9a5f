/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/address_space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"

/*
 * How many addresses to reserve. They cost nothing, but address space can be limited (ulimit -v,
 * a sanitizer's layout), so smaller windows are tried as well.
 */
#if defined(__SANITIZE_THREAD__)
#define MAX_BYTES (UINT64_C(1) << 38)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MAX_BYTES (UINT64_C(1) << 38)
#endif
#endif
#ifndef MAX_BYTES
#define MAX_BYTES (UINT64_C(1) << 44)
#endif
#define MIN_BYTES (UINT64_C(1) << 33)

struct address_space address_space = { .fd = -1 };

/* A bit per granule that is taken; `low`: no word before it has room. */
struct granules {
    uint64_t *bits;
    size_t n;
    size_t low;
};
static struct granules device_granules, host_granules, file_granules;

static int granules_open(struct granules *granules, uint64_t bytes) {
    size_t n = bytes >> ADDRESS_SPACE_SHIFT;
    void *bits = mmap(NULL, n / 8, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (bits == MAP_FAILED)
        return -1;
    *granules = (struct granules){ .bits = bits, .n = n };
    return 0;
}

static bool taken(const struct granules *granules, size_t i) {
    return granules->bits[i / 64] >> (i % 64) & 1;
}

/* The first taken granule of [from, to); `to` if all are free. */
static size_t first_taken(const struct granules *granules, size_t from, size_t to) {
    for (size_t i = from; i < to;) {
        uint64_t word = granules->bits[i / 64] >> (i % 64);

        if (word) {
            i += (size_t)__builtin_ctzll(word);
            return MIN(i, to);
        }
        i = (i / 64 + 1) * 64;
    }
    return to;
}

/* The first free granule at or after `from`; n: none. */
static size_t first_free(const struct granules *granules, size_t from) {
    for (size_t i = from; i < granules->n;) {
        uint64_t word = ~granules->bits[i / 64] >> (i % 64);

        if (word)
            return i + (size_t)__builtin_ctzll(word);
        i = (i / 64 + 1) * 64;
    }
    return granules->n;
}

static void mark(struct granules *granules, size_t from, size_t n, bool take) {
    for (size_t i = from; i < from + n;) {
        size_t in_word = MIN((size_t)64 - i % 64, from + n - i);
        uint64_t mask = (in_word == 64 ? ~UINT64_C(0) : (UINT64_C(1) << in_word) - 1) << (i % 64);

        if (take)
            granules->bits[i / 64] |= mask;
        else
            granules->bits[i / 64] &= ~mask;
        i += in_word;
    }
    if (!take)
        granules->low = MIN(granules->low, from);
}

/* First fit. SIZE_MAX: no room. */
static size_t granules_take(struct granules *granules, size_t n, size_t align, uint64_t origin) {
    size_t i = first_free(granules, granules->low);

    granules->low = i;
    while (i < granules->n && n <= granules->n - i) {
        uint64_t at = origin + i;
        size_t stop;

        if (align > 1 && at % align) {
            i += align - at % align;
            if (i >= granules->n)
                break;
            if (taken(granules, i)) {
                i = first_free(granules, i);
                continue;
            }
            continue;
        }
        if (n > granules->n - i)
            break;
        stop = first_taken(granules, i, i + n);
        if (stop == i + n) {
            mark(granules, i, n, true);
            if (i == granules->low)
                granules->low = i + n;
            return i;
        }
        i = first_free(granules, stop);
    }
    return SIZE_MAX;
}

/* Neither children nor core dumps get any of it. */
static void keep_private(uint64_t address, uint64_t bytes) {
    madvise((void *)(uintptr_t)address, bytes, MADV_DONTFORK);
    madvise((void *)(uintptr_t)address, bytes, MADV_DONTDUMP);
}

static uint64_t largest_file(void) {
    struct rlimit limit;

    /* Growing a file past this limit is a signal, not an error. */
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

static int try_open(uint64_t bytes) {
    cleanup(closep) int fd = -1;
    uint64_t host_bytes = bytes / 4;
    size_t n = (bytes + host_bytes) >> ADDRESS_SPACE_SHIFT;
    void *base, *table;
    uint64_t aligned, reserved = 2 * bytes + host_bytes + ADDRESS_SPACE_GRANULE;

    if (2 * bytes > largest_file())
        return -EFBIG;
    fd = memfd_create("gpusim-memory", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(2 * bytes)) < 0)
        return -errno;
    base = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    aligned = round_up((uintptr_t)base, ADDRESS_SPACE_GRANULE);
    if (mmap((void *)(uintptr_t)(aligned + bytes + host_bytes), bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
        munmap(base, reserved);
        return -ENOMEM;
    }
    table = mmap(NULL, n * sizeof(*address_space.table), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED || granules_open(&device_granules, bytes) < 0 ||
        granules_open(&host_granules, host_bytes) < 0 || granules_open(&file_granules, bytes) < 0) {
        munmap(base, reserved);
        return -ENOMEM;
    }
    keep_private((uintptr_t)base, reserved);
    address_space = (struct address_space){
        .base = aligned,
        .device_bytes = bytes,
        .host_bytes = host_bytes,
        .delta = bytes + host_bytes,
        .fd = TAKE_FD(fd),
        .file_bytes = 2 * bytes,
        .table = table,
    };
    return 0;
}

CUresult address_space_open(void) {
    if (address_space.fd >= 0)
        return CUDA_SUCCESS;
    for (uint64_t bytes = MAX_BYTES; bytes >= MIN_BYTES; bytes /= 4)
        if (try_open(bytes) == 0)
            return CUDA_SUCCESS;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUdeviceptr address_space_reserve(enum address_space_part part, uint64_t bytes, uint64_t align,
                                  CUdeviceptr hint) {
    struct granules *granules = part == ADDRESS_SPACE_DEVICE ? &device_granules : &host_granules;
    uint64_t origin =
        address_space.base + (part == ADDRESS_SPACE_DEVICE ? 0 : address_space.device_bytes);
    uint64_t span = round_up(bytes, ADDRESS_SPACE_GRANULE);
    size_t n = span >> ADDRESS_SPACE_SHIFT, i;

    if (n == 0 || n > granules->n)
        return 0;
    if (hint && hint >= origin && hint % ADDRESS_SPACE_GRANULE == 0 &&
        (align == 0 || hint % align == 0)) {
        i = (hint - origin) >> ADDRESS_SPACE_SHIFT;
        if (i < granules->n && n <= granules->n - i && first_taken(granules, i, i + n) == i + n) {
            mark(granules, i, n, true);
            return hint;
        }
    }
    i = granules_take(granules, n, align >> ADDRESS_SPACE_SHIFT, origin >> ADDRESS_SPACE_SHIFT);
    return i == SIZE_MAX ? 0 : origin + ((uint64_t)i << ADDRESS_SPACE_SHIFT);
}

void address_space_release(CUdeviceptr base, uint64_t bytes) {
    uint64_t offset = base - address_space.base;
    size_t n = round_up(bytes, ADDRESS_SPACE_GRANULE) >> ADDRESS_SPACE_SHIFT;

    if (offset < address_space.device_bytes)
        mark(&device_granules, offset >> ADDRESS_SPACE_SHIFT, n, false);
    else
        mark(&host_granules, (offset - address_space.device_bytes) >> ADDRESS_SPACE_SHIFT, n,
             false);
}

void address_space_enter(struct range *range, CUdeviceptr base, uint64_t bytes) {
    size_t first = (base - address_space.base) >> ADDRESS_SPACE_SHIFT;
    size_t n = round_up(bytes, ADDRESS_SPACE_GRANULE) >> ADDRESS_SPACE_SHIFT;

    for (size_t i = first; i < first + n; i++)
        atomic_store_explicit(&address_space.table[i], range, memory_order_release);
    address_space_changed();
}

void address_space_discard(int fd, CUdeviceptr base, uint64_t bytes) {
    uint64_t offset = base - address_space.base;

    fallocate(fd >= 0 ? fd : address_space.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)offset, (off_t)round_up(bytes, ADDRESS_SPACE_GRANULE));
}

CUresult address_space_map(CUdeviceptr base, uint64_t bytes, int fd, uint64_t offset) {
    uint64_t at = base + address_space.delta;

    if (fd < 0) {
        fd = address_space.fd;
        offset = base - address_space.base;
    }
    if (mmap((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    keep_private(at, bytes);
    return CUDA_SUCCESS;
}

CUresult address_space_expose(CUdeviceptr base, uint64_t bytes, int fd, uint64_t offset) {
    if (mmap((void *)(uintptr_t)base, bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    keep_private(base, bytes);
    return CUDA_SUCCESS;
}

void address_space_hide(CUdeviceptr base, uint64_t bytes) {
    mmap((void *)(uintptr_t)base, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    keep_private(base, bytes);
}

CUresult address_space_host_map(CUdeviceptr base, uint64_t bytes) {
    if (mmap((void *)(uintptr_t)base, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    keep_private(base, bytes);
    return CUDA_SUCCESS;
}

void address_space_host_unmap(CUdeviceptr base, uint64_t bytes) {
    if (atomic_load(&address_space.n_kernels) &&
        address_space_host_map(base, bytes) == CUDA_SUCCESS)
        return;
    address_space_hide(base, round_up(bytes, ADDRESS_SPACE_GRANULE));
}

uint64_t address_space_file_reserve(uint64_t bytes) {
    size_t i = granules_take(&file_granules, bytes >> ADDRESS_SPACE_SHIFT, 1, 0);

    return i == SIZE_MAX ? 0 : address_space.device_bytes + ((uint64_t)i << ADDRESS_SPACE_SHIFT);
}

void address_space_file_release(uint64_t offset, uint64_t bytes, bool discard) {
    if (discard)
        fallocate(address_space.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)bytes);
    mark(&file_granules, (offset - address_space.device_bytes) >> ADDRESS_SPACE_SHIFT,
         bytes >> ADDRESS_SPACE_SHIFT, false);
}
