/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/core/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cuda/module/launch.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/kernel_access.h"

static bool wanted(void) {
    const char *value = secure_getenv("GPUSIM_REPORT");

    return value && *value && strcmp(value, "0") != 0;
}

static const char *kind_name(enum range_kind kind) {
    switch (kind) {
    case RANGE_HOST:
        return "page-locked host memory";
    case RANGE_REGISTERED:
        return "registered host memory";
    case RANGE_MANAGED:
        return "managed memory";
    case RANGE_MAPPED:
        return "mapped memory";
    case RANGE_IMPORTED:
        return "memory of another process";
    default:
        return "device memory";
    }
}

/* ", 4 bytes after the end of 4096 bytes of device memory at 0x…" */
static void describe(uint64_t address, char *ret, size_t n) {
    struct allocation near;
    uint64_t offset;

    if (!kernel_access_nearest(address, &near)) {
        snprintf(ret, n, "nothing is allocated");
        return;
    }
    offset = address - near.base;
    if (address < near.base)
        snprintf(ret, n, "%llu bytes before", (unsigned long long)(near.base - address));
    else if (offset >= near.bytes)
        snprintf(ret, n, "%llu bytes after the end of", (unsigned long long)(offset - near.bytes));
    else
        snprintf(ret, n, "at offset %llu of", (unsigned long long)offset);
    snprintf(ret + strlen(ret), n - strlen(ret), " the nearest allocation, %llu bytes of %s",
             (unsigned long long)near.bytes, kind_name(near.range->kind));
    if (near.range->device)
        snprintf(ret + strlen(ret), n - strlen(ret), " of device %d", near.range->device->ordinal);
    snprintf(ret + strlen(ret), n - strlen(ret), " at 0x%llx", (unsigned long long)near.base);
}

void report_fault(const struct launch *launch, const struct ptx_fault *fault) {
    char nearest[256] = "";

    if (!wanted())
        return;
    if (fault->kind == PTX_FAULT_ADDRESS || fault->kind == PTX_FAULT_MISALIGNED)
        describe(fault->address, nearest, sizeof(nearest));
    flockfile(stderr);
    fprintf(stderr, "gpusim: kernel '%s' on device %d, block (%u, %u, %u), thread (%u, %u, %u): %s",
            fault->kernel ? fault->kernel : ptx_function_name(launch->kernel),
            launch->context->device->ordinal, fault->block[0], fault->block[1], fault->block[2],
            fault->thread[0], fault->thread[1], fault->thread[2], fault->text);
    if (*nearest)
        fprintf(stderr, " at 0x%llx: %s", (unsigned long long)fault->address, nearest);
    if (fault->line)
        fprintf(stderr, " (line %u of the PTX)", fault->line);
    fputc('\n', stderr);
    funlockfile(stderr);
}

void report_error(const struct launch *launch, const char *text) {
    if (wanted())
        fprintf(stderr, "gpusim: kernel '%s' on device %d cannot run: %s\n",
                ptx_function_name(launch->kernel), launch->context->device->ordinal, text);
}
