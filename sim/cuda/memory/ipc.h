/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Ipc: device memory of another process, by cuIpcGetMemHandle() and through pools.
 *
 * An exporter's file stays where it is; the importer opens it through /proc and maps the same
 * bytes behind addresses of its own. Functions need driver.lock.
 */
#include <stdint.h>

#include "sim/cuda/core/context.h"

struct pool;

/* What this process opened: one per handle and context. */
struct ipc_import {
    struct slab_head head;
    unsigned opened;     /* how often */
    uint64_t segment;    /* 0: memory of a pool, which stays charged to its owner */
    CUdeviceptr address; /* what the program was told; inside the range */
    struct pool *pool;   /* that it came through; NULL: cuIpcOpenMemHandle() */
    uint64_t key;        /* which handle it was: offset in the exporter's file */
};

/* Map `span` bytes at `offset` of file `fd` (which stays the caller's). */
CUresult ipc_import_new(struct context *context, struct cuda_device *device, int fd,
                        uint64_t offset, uint64_t span, uint64_t inner, uint64_t bytes,
                        struct range **ret);
/* Undo it, however often it was opened. */
void ipc_close(struct range *range);
