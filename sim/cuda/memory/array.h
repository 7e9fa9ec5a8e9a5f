/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Array: device memory for textures. It has no address that programs see; its bytes are stored row
 * by row.
 */
#include <stdint.h>

#include "sim/cuda/core/context.h"

struct array {
    struct slab_head head;
    struct context *context;
    CUDA_ARRAY3D_DESCRIPTOR desc; /* as it was asked for */
    unsigned element_bytes;
    uint64_t width_bytes, height, depth; /* of what is there: at least 1 each */
    CUdeviceptr base;
    bool level; /* of a mipmapped array, which has the memory */
};

/* The live array of a handle; NULL: there is none. */
struct array *array_get(CUarray handle);

/* Bytes of one channel of a format that does not itself say how many channels it has; 0: of any
 * other. */
unsigned array_channel_bytes(CUarray_format format);
