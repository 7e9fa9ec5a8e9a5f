/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol: cuGetProcAddress, by name, version and kind of default stream.
 *
 * The table is sorted by name at build time; within a name the rows for the legacy stream come
 * before those for the per-thread stream, each oldest first. A per-thread row is taken only if it
 * is a variant of the very symbol that the legacy rows would give: cuMemcpyHtoD at 3020 has none.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/core/api.h"
#include "sim/cuda/core/driver.h"
#include <cudaTypedefs.h>
#include <cudaProfilerTypedefs.h>

struct symbol {
    const char *name;
    int version;
    bool per_thread;
    void (*function)(void);
};

/* Names whose prototypes stand in headers that need OpenGL, EGL or VDPAU. */
#define SYMBOL(name, version, symbol)
#define THREAD(name, version, symbol, ending)
#define EXTRA_PROTOTYPE(symbol) __typeof__(int(void)) symbol
#define EXTRA(name, version, symbol)                                                               \
    extern void extra_##symbol##_##version(void) __asm__(#symbol)                                  \
        __attribute__((visibility("default")));
#define EXTRA_THREAD(name, version, symbol, ending) EXTRA(name, version, symbol)
#include "vendor/cuda_symbols.def"
#undef SYMBOL
#undef THREAD
#undef EXTRA
#undef EXTRA_THREAD

#define SAME_TYPE(symbol, typedef_name)                                                            \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), typedef_name),                \
                   #symbol " is not what " #typedef_name " says");
#define SYMBOL(name, version, symbol)         SAME_TYPE(symbol, PFN_##name##_v##version)
#define THREAD(name, version, symbol, ending) SAME_TYPE(symbol, PFN_##name##_v##version##_##ending)
#define EXTRA(name, version, symbol)
#define EXTRA_THREAD(name, version, symbol, ending)
#include "vendor/cuda_symbols.def"
#undef SYMBOL
#undef THREAD
#undef EXTRA
#undef EXTRA_THREAD

#define ROW(name, version, per_thread, function)                                                   \
    { #name, version, per_thread, (void (*)(void))function },
#define SYMBOL(name, version, symbol)         ROW(name, version, false, symbol)
#define THREAD(name, version, symbol, ending) ROW(name, version, true, symbol)
#define EXTRA(name, version, symbol)          ROW(name, version, false, extra_##symbol##_##version)
#define EXTRA_THREAD(name, version, symbol, ending)                                                \
    ROW(name, version, true, extra_##symbol##_##version)

static const struct symbol symbols[] = {
#include "vendor/cuda_symbols.def"
};

/* The first row of `name`, or NULL. */
static const struct symbol *find(const char *name) {
    size_t low = 0, high = ELEMENTSOF(symbols);

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(symbols[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == ELEMENTSOF(symbols) || strcmp(symbols[low].name, name) != 0)
        return NULL;
    return &symbols[low];
}

static CUresult lookup(const char *name, void **ret, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *ret_status) {
    const struct symbol *end = symbols + ELEMENTSOF(symbols);
    const struct symbol *row, *best = NULL, *best_thread = NULL;

    if (!name || !ret || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = NULL;
    *ret_status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (version < 0 || version > driver_cuda_version())
        return CUDA_ERROR_INVALID_VALUE;

    row = find(name);
    if (!row)
        return CUDA_SUCCESS;
    for (; row < end && strcmp(row->name, name) == 0; row++) {
        if (row->version > version)
            continue;
        if (row->per_thread)
            best_thread = row;
        else
            best = row;
    }
    if (!best) {
        *ret_status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        return CUDA_SUCCESS;
    }
    /* A name may have got a new version after its per-thread variant of the old one: the typedefs
     * give both the same number then, so the variant is never older than the legacy row. */
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && best_thread &&
        (best_thread->version >= best->version))
        best = best_thread;
    memcpy(ret, &best->function, sizeof(*ret));
    *ret_status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult r = lookup(symbol, pfn, cudaVersion, flags, &status);

    if (symbolStatus)
        *symbolStatus = status;
    return r;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    CUdriverProcAddressQueryResult status;
    CUresult r = lookup(symbol, pfn, cudaVersion, flags, &status);

    if (r == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    return r;
}
