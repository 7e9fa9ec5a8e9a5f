/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/run/variable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/wait.h"
#include "libclient/device/device.h"
#include "libclient/exec/memory/alloc.h"
#include "libclient/graph/graph.h"

void variable_table_init(struct variable_table *variables) {
    *variables = (struct variable_table){ .lock = PTHREAD_MUTEX_INITIALIZER };
}

void variable_table_done(struct variable_table *variables) {
    struct variable *variable;

    for (size_t pos = 0; (variable = map_next(&variables->by_node, &pos));) {
        buffer_unref(variable->buffer);
        device_unref(variable->device);
        pthread_mutex_destroy(&variable->lock);
        free(variable);
    }
    map_done(&variables->by_node);
    pthread_mutex_destroy(&variables->lock);
}

int variable_table_get(struct variable_table *variables, const struct node *node,
                       struct device *device, struct variable **ret) {
    struct variable *variable;
    int r = 0;

    pthread_mutex_lock(&variables->lock);
    variable = map_find(&variables->by_node, node->id);
    if (!variable) {
        variable = calloc(1, sizeof(*variable));
        r = variable ? map_put(&variables->by_node, node->id, variable) : -ENOMEM;
        if (r == 0) {
            pthread_mutex_init(&variable->lock, NULL);
            variable->node = node;
            variable->device = device_ref(device);
            variable->bytes = (uint64_t)shape_count(&node->outputs[0].shape) *
                              dtype_bytes(node->outputs[0].dtype);
        } else
            free(variable);
    }
    pthread_mutex_unlock(&variables->lock);
    if (r == 0)
        *ret = variable;
    return r;
}

int variable_read(struct variable *variable, struct buffer **ret, bool *ret_settled) {
    int r = 0;

    pthread_mutex_lock(&variable->lock);
    *ret_settled = atomic_load(&variable->n_unsettled) == 0;
    if (variable->buffer)
        *ret = buffer_ref(variable->buffer);
    else
        r = -ENODATA;
    pthread_mutex_unlock(&variable->lock);
    return r;
}

bool variable_lacks(const struct variable *variable, uint32_t n_own) {
    return !variable->buffer || atomic_load(&variable->buffer->refs) > 1 + n_own;
}

int variable_fresh(const struct variable *variable, struct wait *wait, struct buffer **ret,
                   struct allot_error *err) {
    return alloc_buffer(variable->device, variable->bytes, variable->node->name, wait, ret, err);
}

int variable_prepare(struct variable *variable, uint32_t n_own, bool keep, struct buffer **fresh,
                     struct allot_error *err) {
    struct buffer *old = variable->buffer;
    int r = 0;

    if (!old && keep)
        return -ENODATA;
    if (!variable_lacks(variable, n_own))
        return 0;
    if (keep)
        r = device_copy_within(variable->device, (*fresh)->data, old->data, variable->bytes, err);
    if (r < 0)
        return r;
    variable->buffer = *fresh;
    *fresh = old;
    return 0;
}

/* Values are copied through the host in pieces of this many bytes. */
enum { PIECE_BYTES = 16 << 20 };

static int copy_value(const struct variable *variable, struct device *to, struct buffer *fresh,
                      struct allot_error *err) {
    const uint64_t piece = MIN(variable->bytes, (uint64_t)PIECE_BYTES);
    cleanup(freep) char *host = malloc(piece + 1);
    int r = device_await(variable->device, NULL, err);

    if (!host)
        return error_set(err, -ENOMEM, "no host memory to move variable '%s'",
                         variable->node->name);
    /* Earlier users of the new block may have work there. */
    if (r == 0)
        r = device_await(to, NULL, err);
    for (uint64_t at = 0; r == 0 && at < variable->bytes; at += piece) {
        uint64_t n = MIN(piece, variable->bytes - at);

        r = device_copy_out(variable->device, host, (char *)variable->buffer->data + at, n, err);
        if (r == 0)
            r = device_copy_in(to, (char *)fresh->data + at, host, n, err);
    }
    return r;
}

int variable_move(struct variable *variable, struct device *to, bool is_lost,
                  struct allot_error *err) {
    struct buffer *old = variable->buffer, *fresh = NULL;
    struct device *from = variable->device;
    int r = 0;

    if (old && !is_lost) {
        struct wait wait = wait_begin(UINT64_MAX, NULL);

        wait.is_hasty = true; /* runs wait meanwhile */
        r = alloc_buffer(to, variable->bytes, variable->node->name, &wait, &fresh, err);
        wait_end(&wait);
        if (r == 0)
            r = copy_value(variable, to, fresh, err);
    }
    if (r < 0) {
        buffer_unref(fresh);
        return r;
    }
    pthread_mutex_lock(&variable->lock);
    variable->buffer = fresh;
    variable->device = device_ref(to);
    pthread_mutex_unlock(&variable->lock);
    buffer_unref(old);
    device_unref(from);
    return 0;
}
