/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Buffer: reference-counted bytes that tensors share, with the function that frees them. Any
 * thread. The bytes may lie on the host or on a device: the code that made the buffer knows which.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct buffer {
    _Atomic uint32_t refs;
    void *data;
    size_t bytes;
    void (*release)(void *data, void *userdata); /* NULL: borrowed */
    void *userdata;
};

/* Zeroed host memory, aligned to BUFFER_ALIGNMENT; -ENOMEM. */
#define BUFFER_ALIGNMENT 64
int buffer_new(struct buffer **ret, size_t bytes);
/* Over memory that is there. */
int buffer_over(struct buffer **ret, void *data, size_t bytes,
                void (*release)(void *data, void *userdata), void *userdata);

struct buffer *buffer_ref(struct buffer *buffer);
struct buffer *buffer_unref(struct buffer *buffer); /* accepts and returns NULL */
