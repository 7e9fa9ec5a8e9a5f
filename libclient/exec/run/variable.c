/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/run/variable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
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
