/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/reduce_collective.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/device/device.h"

struct collective *reduce_collective_find(struct device *const *devices, const uint32_t *spaces,
                                          uint32_t n, enum dtype dtype) {
    cleanup(freep) struct gpu **gpus = calloc(n, sizeof(struct gpu *));

    for (uint32_t i = 0; gpus && i < n; i++)
        gpus[i] = devices[spaces[i]]->gpu;
    return gpus && collective_has(dtype) ? collective_get(gpus, n) : NULL;
}

int reduce_collective_new(struct reduce_collective **ret, struct collective *collective,
                          enum dtype dtype, uint32_t channel, const uint64_t *offsets,
                          uint32_t n_tensors) {
    struct reduce_collective *sum = calloc(1, sizeof(*sum) + n_tensors * sizeof(sum->counts[0]));

    if (!sum)
        return -ENOMEM;
    sum->collective = collective_ref(collective);
    sum->dtype = dtype;
    sum->channel = channel;
    sum->n_tensors = n_tensors;
    for (uint32_t t = 0; t < n_tensors; t++)
        sum->counts[t] = offsets[t + 1] - offsets[t];
    *ret = sum;
    return 0;
}

void reduce_collective_free(void *state) {
    struct reduce_collective *sum = state;

    if (sum)
        collective_put(sum->collective);
    free(sum);
}

int reduce_collective_sum(const struct kernel_run *run) {
    const struct reduce_collective *sum = run->state;
    struct allot_error err = { 0 };
    int r = collective_sum(sum->collective, run->inputs, sum->counts, sum->n_tensors, sum->dtype,
                           sum->channel, &err);

    return r < 0 ? kernel_fail(r, "%s", err.text) : 0;
}
