/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/constants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/halt.h"
#include "libclient/core/buffer.h"
#include "libclient/device/device.h"
#include "libclient/exec/plan/program.h"

/* Bytes that are gathered on the host for one copy. Larger constants are copied by themselves. */
enum { STAGE_BYTES = 4 << 20 };

static bool is_one(const struct program_value *value) {
    return value->where == VALUE_CONSTANT && value->source;
}

bool constants_are_any(const struct program *program) {
    for (uint32_t v = 0; v < program->n_values; v++)
        if (is_one(&program->values[v]))
            return true;
    return false;
}

static uint64_t place_bytes(const struct program_value *value) {
    return (MAX(value->bytes, (uint64_t)1) + PROGRAM_ALIGNMENT - 1) / PROGRAM_ALIGNMENT *
           PROGRAM_ALIGNMENT;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Constants that lie side by side, gathered for one copy. */
struct stage {
    struct device *device;
    char *data; /* STAGE_BYTES, or as many as there are */
    char *to;   /* where the first of them goes */
    uint64_t n_bytes, size;
};

static int send(struct stage *stage, struct allot_error *err) {
    int r = stage->n_bytes
                ? device_copy_in(stage->device, stage->to, stage->data, stage->n_bytes, err)
                : 0;

    stage->to += stage->n_bytes;
    stage->n_bytes = 0;
    return r;
}

static int add(struct stage *stage, const struct program_value *value, struct allot_error *err) {
    uint64_t bytes = place_bytes(value);
    int r = bytes > stage->size - stage->n_bytes ? send(stage, err) : 0;

    if (r < 0)
        return r;
    if (bytes > stage->size) {
        r = device_copy_in(stage->device, stage->to, value->source, value->bytes, err);
        stage->to += bytes;
        return r;
    }
    if (value->bytes)
        memcpy(stage->data + stage->n_bytes, value->source, value->bytes);
    stage->n_bytes += bytes;
    return 0;
}

/* Give each constant of the device its place in the block, and a reference to it. */
static int copy_all(struct program *program, uint32_t device, struct buffer *block,
                    const atomic_bool *stopped, struct allot_error *err) {
    struct stage stage = { .device = program->devices[device],
                           .to = block->data,
                           .size = MIN((uint64_t)STAGE_BYTES, (uint64_t)block->bytes) };
    cleanup(freep) char *data = calloc(1, stage.size + 1);
    int r = 0;

    if (!data)
        return error_set(err, -ENOMEM, "no host memory for constants");
    stage.data = data;
    for (uint32_t v = 0; r == 0 && v < program->n_values; v++) {
        struct program_value *value = &program->values[v];

        if (!is_one(value) || value->space != device)
            continue;
        if (halt_is_set(stopped))
            return error_set(err, -ECANCELED, "stopped while the constants are copied");
        value->address = stage.to + stage.n_bytes;
        value->uploaded = buffer_ref(block);
        r = add(&stage, value, err);
    }
    return r < 0 ? r : send(&stage, err);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

int constants_name(const struct constants_need *need, int r, struct allot_error *err) {
    const struct node *largest = need->largest;

    if (!largest)
        return r;
    if (need->n == 1)
        return error_wrap(err, r, "'%s' (%s)", largest->name, largest->op->name);
    return error_wrap(err, r, "'%s' (%s) and %u more", largest->name, largest->op->name,
                      need->n - 1);
}

struct constants_need constants_need(const struct program *program, uint32_t device) {
    struct constants_need need = { 0 };
    uint64_t most = 0;

    for (uint32_t v = 0; v < program->n_values; v++) {
        const struct program_value *value = &program->values[v];

        if (!is_one(value) || value->space != device)
            continue;
        need.bytes += place_bytes(value);
        if (need.n++ == 0 || value->bytes > most) {
            most = value->bytes;
            need.largest = value->node;
        }
    }
    return need;
}

int constants_copy(struct program *program, uint32_t device, struct buffer *block,
                   const atomic_bool *stopped, struct allot_error *err) {
    int r = copy_all(program, device, block, stopped, err);
    struct constants_need need;

    if (r == 0)
        return 0;
    need = constants_need(program, device);
    return constants_name(&need, r, err);
}

void constants_drop(struct program *program) {
    for (uint32_t v = 0; v < program->n_values; v++) {
        struct program_value *value = &program->values[v];

        if (!is_one(value))
            continue;
        value->uploaded = buffer_unref(value->uploaded);
        value->address = NULL;
    }
}
