/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/reduce_transfer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "libclient/device/gpu.h"

static char *argument(const struct kernel_run *run, const struct reduce_transfer *transfer,
                      uint32_t i) {
    return i < transfer->n_inputs ? run->inputs[i] : run->outputs[i - transfer->n_inputs];
}

int reduce_transfer_copy(const struct kernel_run *run) {
    const struct reduce_transfer *transfer = run->state;
    struct allot_error err;

    for (uint32_t i = 0; i < transfer->n_segments; i++) {
        const struct reduce_segment *s = &transfer->segments[i];
        CUdeviceptr to = (uintptr_t)argument(run, transfer, s->to) + s->to_offset;
        CUdeviceptr from = (uintptr_t)argument(run, transfer, s->from) + s->from_offset;
        int r = s->bytes == 0
                    ? 0 /* of an empty tensor */
                    : cuda_copy_peer_async(transfer->to->cuda, &err, to, transfer->to->context,
                                           from, transfer->from->context, s->bytes,
                                           transfer->to->streams[GPU_PEER + transfer->channel]);

        if (r < 0)
            return kernel_fail(r, "%s", err.text);
    }
    return 0;
}

int reduce_transfer_add(const struct kernel_run *run) {
    const struct reduce_transfer *transfer = run->state;
    struct kernel_step step = *run->step;
    void **inputs = malloc((transfer->n_addends + 1) * sizeof(void *));
    int r = inputs ? 0 : kernel_fail(-ENOMEM, "no host memory to add up replicas");

    step.stream = transfer->to->streams[GPU_COLLECTIVE + transfer->channel];
    for (uint32_t i = 0; r == 0 && i < transfer->n_segments; i++) {
        const struct reduce_segment *s = &transfer->segments[i];
        void *own = argument(run, transfer, s->to) + s->to_offset;
        struct kernel_run addition = { .state = s->add_state,
                                       .inputs = inputs,
                                       .outputs = &own,
                                       .pool = run->pool,
                                       .step = &step };

        inputs[0] = own;
        for (uint32_t k = 0; k < transfer->n_addends; k++)
            inputs[k + 1] = argument(run, transfer, k) + s->from_offset;
        r = s->add(&addition);
    }
    free(inputs);
    return r;
}

void reduce_transfer_free(void *state) {
    struct reduce_transfer *transfer = state;

    for (uint32_t i = 0; transfer && i < transfer->n_segments; i++)
        if (transfer->segments[i].add_state_free)
            transfer->segments[i].add_state_free(transfer->segments[i].add_state);
        else
            free(transfer->segments[i].add_state);
    free(transfer);
}

int reduce_transfer_begin(const struct kernel_run *run) {
    const struct reduce_transfer *transfer = run->state;
    struct allot_error err;
    int r;

    if (run->outputs[0] == run->inputs[0] || transfer->segments[0].bytes == 0)
        return 0;
    r = cuda_copy_dtod_async(transfer->to->cuda, &err, (uintptr_t)run->outputs[0],
                             (uintptr_t)run->inputs[0], transfer->segments[0].bytes,
                             transfer->to->streams[GPU_ADDEND]);
    return r < 0 ? kernel_fail(r, "%s", err.text) : 0;
}
