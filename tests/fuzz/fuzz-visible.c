/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is CUDA_DEVICE_ORDER, a newline, and CUDA_VISIBLE_DEVICES; without a newline the order
 * is not set. It is tried on boxes with and without MIG.
 */
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/visible.h"
#include "tests/fuzz/fuzz.h"

static const struct visible_gpu gpus[] = {
    { "GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1", { .bus = 0x07 }, 1, false },
    { "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293", { .bus = 0x0b }, 1, true },
    { "GPU-e429a63e-c61c-4795-b757-5132caeb8e70", { .bus = 0x48 }, 0, false },
    { "GPU-eee1dfbc-0a0f-6ad8-5ff6-dc942a8b9d98", { .bus = 0x4c }, 1, true },
    { NULL, { .bus = 0x4d }, 1, false },
};
static const struct visible_mig migs[] = {
    { "MIG-f2b5fbbd-850e-51bb-8ffa-ac9fb48126da", 1, 2, 0 },
    { "MIG-89c850dc-38e3-57df-85c7-690c186b68e9", 1, 1, 0 },
    { NULL, 1, 1, 1 },
};
static const struct visible_box boxes[] = {
    { gpus, ELEMENTSOF(gpus), migs, ELEMENTSOF(migs) },
    { gpus, 1, NULL, 0 },
    { NULL, 0, NULL, 0 },
};

static bool is_printable(const char *text, size_t size) {
    size_t n = strnlen(text, size);

    for (size_t i = 0; i < n; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    return n < size;
}

static void check(const struct visible_box *box, const struct visible_env *env) {
    struct visible_list list, again;

    memset(&list, 0xa5, sizeof(list));
    memset(&again, 0x5a, sizeof(again));
    fuzz_check(visible_decide(&list, box, env) == 0);
    fuzz_check(visible_decide(&again, box, env) == 0);
    fuzz_check(list.n_devices == again.n_devices && strcmp(list.reason, again.reason) == 0);

    fuzz_check(list.n_devices <= box->n_gpus);
    fuzz_check(list.cut_at <= env->devices_len);
    fuzz_check(is_printable(list.reason, sizeof(list.reason)));
    fuzz_check(is_printable(list.warning, sizeof(list.warning)));
    for (size_t i = 0; i < list.n_devices; i++) {
        const struct visible_device *device = &list.devices[i];

        fuzz_check(device->gpu < box->n_gpus);
        fuzz_check(box->gpus[device->gpu].mig_enabled == (device->mig != VISIBLE_WHOLE));
        if (device->mig != VISIBLE_WHOLE) {
            fuzz_check(list.n_devices == 1);
            fuzz_check(device->mig < box->n_migs && box->migs[device->mig].gpu == device->gpu);
        }
        for (size_t j = 0; j < i; j++)
            fuzz_check(list.devices[j].gpu != device->gpu);
    }

    /* What follows a cut has no say, unless it emptied the list. */
    if (list.n_devices > 0 && list.cut_at > 0 && list.cut_at < env->devices_len) {
        struct visible_env shorter = *env;

        shorter.devices_len = list.cut_at - 1;
        fuzz_check(visible_decide(&again, box, &shorter) == 0);
        fuzz_check(list.n_devices == again.n_devices);
        fuzz_check(memcmp(list.devices, again.devices, list.n_devices * sizeof(list.devices[0])) ==
                   0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *newline = size ? memchr(text, '\n', size) : NULL;
    struct visible_env env = { .devices = text, .devices_len = size };

    if (!text)
        return 0;
    if (newline) {
        env.order = text;
        env.order_len = (size_t)(newline - text);
        env.devices = newline + 1;
        env.devices_len = size - env.order_len - 1;
    }
    for (size_t i = 0; i < ELEMENTSOF(boxes); i++)
        check(&boxes[i], &env);
    return 0;
}
