/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Copy: copies bytes from anywhere to anywhere, as a box of rows and slices. Every copy call of the
 * API becomes one of these.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"

enum copy_side {
    COPY_UNIFIED = 0, /* an address of either side */
    COPY_HOST,        /* must be host memory */
    COPY_DEVICE,      /* must be memory that a device can access */
    COPY_ARRAY,
};

struct copy_end {
    enum copy_side kind;
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

/*
 * Check a copy and submit it to `stream`. A `blocking` copy is done when this returns if host
 * memory takes part; between devices it goes on in the stream, as with the real driver.
 *
 * Other copies are really asynchronous where host memory is page-locked. The program may reuse
 * pageable memory at once: up to 64 KiB of it are read when the copy is submitted, and more makes
 * the call wait, as does every copy to pageable memory.
 */
CUresult copy_submit(const struct copy *copy, CUstream stream, bool blocking);

struct context;
struct stream_order;
/* From the API's struct to a copy, and back. */
CUresult copy_of_3d(const CUDA_MEMCPY3D *params, struct copy *ret);
void copy_to_3d(const struct copy *copy, CUDA_MEMCPY3D *ret);
/* Make the order of a copy for `context`, for a graph; the caller must release or submit its
 * argument. */
CUresult copy_order(const struct copy *copy, struct context *context, struct stream_order *ret);
/* The copy behind an order that copy_order() or a capture made. */
const struct copy *copy_of_order(const struct stream_order *order);
