/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void free_memory(void *data, void *userdata) {
    (void)userdata;
    free(data);
}

int buffer_new(struct buffer **ret, size_t bytes) {
    size_t rounded = (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    void *data;
    int r;

    if (rounded < bytes)
        return -ENOMEM;
    /* Never of 0 bytes: an empty tensor has an address too. */
    data = aligned_alloc(BUFFER_ALIGNMENT, rounded ? rounded : BUFFER_ALIGNMENT);
    if (!data)
        return -ENOMEM;
    memset(data, 0, rounded);
    r = buffer_over(ret, data, bytes, free_memory, NULL);
    if (r < 0)
        free(data);
    return r;
}

int buffer_over(struct buffer **ret, void *data, size_t bytes,
                void (*release)(void *data, void *userdata), void *userdata) {
    struct buffer *buffer = malloc(sizeof(*buffer));

    if (!buffer)
        return -ENOMEM;
    *buffer = (struct buffer){ 1, data, bytes, release, userdata };
    *ret = buffer;
    return 0;
}

struct buffer *buffer_ref(struct buffer *buffer) {
    atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
    return buffer;
}

struct buffer *buffer_unref(struct buffer *buffer) {
    if (buffer && atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) == 1) {
        if (buffer->release)
            buffer->release(buffer->data, buffer->userdata);
        free(buffer);
    }
    return NULL;
}
