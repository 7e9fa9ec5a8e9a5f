/* SPDX-License-Identifier: Apache-2.0 */
/* The linker sends calls of NAME to __wrap_NAME (--wrap), which works under the sanitizers too. */
#include "tests/support/base/failing_malloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static _Atomic int64_t left; /* until the one that fails; 0: none will */
static atomic_bool has_failed, no_pages;

void failing_malloc_at(uint64_t n) {
    atomic_store(&has_failed, false);
    atomic_store(&left, (int64_t)n);
}

bool failing_malloc_end(void) {
    atomic_store(&left, 0);
    return atomic_load(&has_failed);
}

void failing_malloc_pages(bool fail) {
    atomic_store(&no_pages, fail);
}

static bool fails(void) {
    if (atomic_load_explicit(&left, memory_order_relaxed) <= 0 || atomic_fetch_sub(&left, 1) != 1)
        return false;
    atomic_store(&has_failed, true);
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
int __real_posix_memalign(void **ret, size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
int __real_mprotect(void *at, size_t bytes, int protection);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
int __wrap_posix_memalign(void **ret, size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
int __wrap_mprotect(void *at, size_t bytes, int protection);

void *__wrap_malloc(size_t bytes) {
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
    return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    return fails() ? NULL : __real_realloc(memory, bytes);
}

int __wrap_posix_memalign(void **ret, size_t alignment, size_t bytes) {
    return fails() ? ENOMEM : __real_posix_memalign(ret, alignment, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

char *__wrap_strdup(const char *text) {
    return fails() ? NULL : __real_strdup(text);
}

int __wrap_mprotect(void *at, size_t bytes, int protection) {
    if (!atomic_load_explicit(&no_pages, memory_order_relaxed))
        return __real_mprotect(at, bytes, protection);
    errno = ENOMEM;
    return -1;
}
