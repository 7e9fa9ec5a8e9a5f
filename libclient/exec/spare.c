/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/spare.h"

#include <errno.h>

#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/exec/cache.h"

/* Try `call`, an expression, again and again, unless it asks for more than there is in all. On GPUs
 * the terms have it done already. */
#define SPARE(device, bytes, call)                                                                 \
    ({                                                                                             \
        int r_;                                                                                    \
                                                                                                   \
        do                                                                                         \
            r_ = (call);                                                                           \
        while (r_ == -ENOMEM && !(device)->gpu && (bytes) <= (device)->memory_limit_bytes &&       \
               cache_reclaim(device));                                                             \
        r_;                                                                                        \
    })

static bool reclaim(void *device) {
    return cache_reclaim(device);
}

static struct gpu_memory_terms terms_of(struct device *device, uint64_t bytes,
                                        const struct spare_wait *wait) {
    return (struct gpu_memory_terms){
        .until_nsec = wait ? wait->until_nsec : 0,
        .stopped = wait ? wait->stopped : NULL,
        .reclaim = bytes <= device->memory_limit_bytes ? reclaim : NULL,
        .userdata = device,
    };
}

int spare_alloc(struct device *device, uint64_t bytes, const char *tag,
                const struct spare_wait *wait, struct device_block *ret, struct allot_error *err) {
    const struct gpu_memory_terms terms = terms_of(device, bytes, wait);

    return SPARE(device, bytes, device_alloc(device, bytes, tag, &terms, ret, err));
}

int spare_buffer_new(struct device *device, uint64_t bytes, const char *tag,
                     const struct spare_wait *wait, struct buffer **ret, struct allot_error *err) {
    const struct gpu_memory_terms terms = terms_of(device, bytes, wait);

    return SPARE(device, bytes, device_buffer_new(device, bytes, tag, &terms, ret, err));
}

int spare_host_alloc(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                     struct allot_error *err) {
    return SPARE(host, bytes, gpu_host_alloc(gpu, bytes, ret, err));
}
