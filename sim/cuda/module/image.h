/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Image: device code as programs hand it over, reduced to the PTX that is in it.
 *
 * That is a text, a fat binary (bare or in the wrapper that nvcc makes), a file of either, or what
 * cuLinkComplete() made here. Machine code cannot run; the log then says how to get PTX.
 */
#include <stddef.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"

struct cuda_device;
struct jit;

struct image_input {
    char *name; /* as the compiler's messages have it */
    char *text; /* ends with a NUL that does not count */
    size_t n;
};

/* Owned by the caller; all zeros is an empty one. */
struct image {
    struct image_input *inputs;
    size_t n_inputs;
};
void image_done(struct image *image);

/* Add a copy of one more text. `name` may be NULL. */
CUresult image_add(struct image *image, const char *name, const char *text, size_t n);
/*
 * Add what is in `code`. `bytes` 0: as long as it says itself, or up to its NUL. `device` (NULL:
 * any) chooses among the variants in a fat binary. Errors go to the log of `jit` (may be NULL).
 */
CUresult image_read(struct image *image, const char *name, const void *code, size_t bytes,
                    const struct cuda_device *device, struct jit *jit);
CUresult image_read_file(struct image *image, const char *path, const struct cuda_device *device,
                         struct jit *jit);
/* Whether this driver and `device` (NULL: any) can take these texts, by their own heads. */
CUresult image_check(const struct image *image, const struct cuda_device *device, struct jit *jit);

/* As one piece of memory that image_read() understands, to be freed; NULL: no memory. */
void *image_pack(const struct image *image, size_t *ret_bytes);
