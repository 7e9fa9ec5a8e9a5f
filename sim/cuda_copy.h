/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Copy: bytes from anywhere to anywhere, as a box of rows and slices. Every copy of the API is one
 * of these.
 */
#include <stdint.h>

#include "sim/cuda_api.h"

enum copy_kind {
    COPY_UNIFIED = 0, /* an address of either side */
    COPY_HOST,        /* must be host memory */
    COPY_DEVICE,      /* must be memory that a device can access */
    COPY_ARRAY,
};

struct copy_end {
    enum copy_kind kind;
    uint64_t address;
    CUarray array;
    uint64_t x, y, z; /* x in bytes */
    uint64_t pitch;   /* 0: rows without a gap */
    uint64_t height;  /* rows per slice; 0: slices without a gap */
};

struct copy {
    struct copy_end to, from;
    uint64_t width; /* bytes */
    uint64_t height, depth;
};

/* Check a copy and do it in the order of `stream`. */
CUresult copy_submit(const struct copy *copy, CUstream stream);
