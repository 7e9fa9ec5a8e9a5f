/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/constants.h"

#include <errno.h>

#include "base/error.h"
#include "libclient/core/buffer.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/cache.h"
#include "libclient/exec/spare.h"

static bool is_one(const struct program_value *value) {
    return value->where == VALUE_CONSTANT && value->source;
}

bool constants_are_any(const struct program *program) {
    for (uint32_t v = 0; v < program->n_values; v++)
        if (is_one(&program->values[v]))
            return true;
    return false;
}

static int upload(struct device *device, struct program_value *value, const struct spare_wait *wait,
                  struct allot_error *err) {
    struct buffer *buffer;
    int r = spare_buffer_new(device, value->bytes, "constant", wait, &buffer, err);

    if (r < 0)
        return r;
    r = device_copy_in(device, buffer->data, value->source, value->bytes, err);
    if (r < 0) {
        buffer_unref(buffer);
        return r;
    }
    value->uploaded = buffer;
    value->address = buffer->data;
    return 0;
}

/* All or none: what nobody can use yet is not kept from others. */
static int upload_all(struct program *program, const struct spare_wait *wait,
                      struct allot_error *err) {
    int r = 0;

    gpu_leave();
    for (uint32_t v = 0; r == 0 && v < program->n_values; v++) {
        struct program_value *value = &program->values[v];

        if (!is_one(value))
            continue;
        r = upload(program->devices[value->space], value, wait, err);
        if (r < 0 && value->node)
            error_wrap(err, r, "'%s' (%s)", value->node->name, value->node->op->name);
    }
    for (uint32_t v = 0; r < 0 && v < program->n_values; v++) {
        struct program_value *value = &program->values[v];

        if (!is_one(value))
            continue;
        value->uploaded = buffer_unref(value->uploaded);
        value->address = NULL;
    }
    return r;
}

int constants_bring(struct cache *cache, struct cache_entry *entry, const struct spare_wait *wait,
                    struct allot_error *err) {
    bool is_mine, is_there;
    int r;

    pthread_mutex_lock(&cache->lock);
    while (entry->constants == CONSTANTS_ON_THEIR_WAY && !atomic_load(wait->stopped))
        pthread_cond_wait(&cache->news, &cache->lock);
    is_there = entry->constants == CONSTANTS_THERE;
    is_mine = entry->constants == CONSTANTS_AWAY;
    if (is_mine)
        entry->constants = CONSTANTS_ON_THEIR_WAY;
    pthread_mutex_unlock(&cache->lock);
    if (is_there)
        return 0;
    if (!is_mine)
        return error_set(err, -ECANCELED,
                         "stopped while another run brings the constants of its plan");
    r = upload_all(entry->program, wait, err);
    pthread_mutex_lock(&cache->lock);
    entry->constants = r < 0 ? CONSTANTS_AWAY : CONSTANTS_THERE;
    pthread_cond_broadcast(&cache->news);
    pthread_mutex_unlock(&cache->lock);
    return r;
}
