/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Safetensors: the head of a safetensors file, which says where each tensor lies.
 *
 * The file begins with eight bytes, the little-endian length of the head; then come the head, a
 * JSON object, and the data. Reading is strict: every byte of the data belongs to exactly one
 * tensor, lengths follow from type and shape, and names are unique. A caller may therefore use an
 * accepted head without further checks. Pure; no locking.
 */
#include <stddef.h>
#include <stdint.h>

#include "libclient/core/dtype.h"
#include "libclient/core/shape.h"

struct allot_error;

/* Longer heads are refused, as the reference implementation does. */
#define SAFETENSORS_HEAD_MAX (100u << 20)

struct safetensors_entry {
    char *name;
    enum dtype dtype;   /* DTYPE_NONE: a type or rank that liballot does not have */
    struct shape shape; /* whole; empty of a foreign one */
    char foreign[24];   /* what it is instead, for people: "F8_E4M3", "of rank 9" */
    uint64_t begin;     /* of its bytes, from the beginning of the data */
    uint64_t bytes;
};

struct safetensors {
    struct safetensors_entry *entries; /* in the order of their bytes */
    size_t n;
};

void safetensors_done(struct safetensors *file);

/* The length of the head, from the first eight bytes of a file of `file_bytes`. -EBADMSG */
int safetensors_head_bytes(const uint8_t first[static 8], uint64_t file_bytes, uint64_t *ret,
                           struct allot_error *err);
/* Parse the head, in place: it is changed. `data_bytes` follow it in the file. -EBADMSG: `err` says
 * what is wrong; -ENOMEM. */
int safetensors_parse(struct safetensors *ret, char *head, size_t head_bytes, uint64_t data_bytes,
                      struct allot_error *err);
/* NULL: none. */
const struct safetensors_entry *safetensors_find(const struct safetensors *file, const char *name);

/* Make the first bytes of a file with these entries: length and head, padded so that the data
 * begins at a multiple of 8. Fills in each entry's `begin`. The caller frees the bytes. -ENOMEM. */
int safetensors_format(struct safetensors_entry *entries, size_t n, char **ret, size_t *ret_bytes,
                       struct allot_error *err);
