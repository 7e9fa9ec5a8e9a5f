/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/upload.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/halt.h"
#include "libclient/core/buffer.h"
#include "libclient/device/device.h"
#include "libclient/exec/program.h"

/* What is gathered on the host for one copy. Larger constants go by themselves. */
enum { STAGE_BYTES = 4 << 20 };

static bool is_on(const struct program_value *value, uint32_t device) {
    return value->where == VALUE_CONSTANT && value->source && value->space == device;
}

static uint64_t place_bytes(const struct program_value *value) {
    return (MAX(value->bytes, (uint64_t)1) + PROGRAM_ALIGNMENT - 1) / PROGRAM_ALIGNMENT *
           PROGRAM_ALIGNMENT;
}

uint64_t upload_bytes(const struct program *program, uint32_t device) {
    uint64_t bytes = 0;

    for (uint32_t v = 0; v < program->n_values; v++)
        if (is_on(&program->values[v], device))
            bytes += place_bytes(&program->values[v]);
    return bytes;
}

/* Constants that lie side by side, on their way. */
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

int upload_constants(struct program *program, uint32_t device, struct buffer *block,
                     const atomic_bool *halt, struct allot_error *err) {
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

        if (!is_on(value, device))
            continue;
        if (halt_is_set(halt))
            return -ECANCELED;
        value->address = stage.to + stage.n_bytes;
        value->uploaded = buffer_ref(block);
        r = add(&stage, value, err);
    }
    return r < 0 ? r : send(&stage, err);
}
