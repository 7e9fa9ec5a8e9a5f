/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/spare.h"

#include <errno.h>

#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/exec/cache.h"

/* Try `call`, an expression, again and again, unless it asks for more than there is in all. The
 * last time it may wait for others. */
#define SPARE(device, bytes, call)                                                                 \
    ({                                                                                             \
        int r_;                                                                                    \
                                                                                                   \
        gpu_memory_wait_not(true);                                                                 \
        do                                                                                         \
            r_ = (call);                                                                           \
        while (r_ == -ENOMEM && (bytes) <= (device)->memory_limit_bytes && cache_reclaim(device)); \
        gpu_memory_wait_not(false);                                                                \
        r_ == -ENOMEM && (device)->gpu ? (call) : r_;                                              \
    })

int spare_alloc(struct device *device, uint64_t bytes, const char *tag, struct device_block *ret,
                struct allot_error *err) {
    return SPARE(device, bytes, device_alloc(device, bytes, tag, ret, err));
}

int spare_buffer_new(struct device *device, uint64_t bytes, const char *tag, struct buffer **ret,
                     struct allot_error *err) {
    return SPARE(device, bytes, device_buffer_new(device, bytes, tag, ret, err));
}

int spare_host_alloc(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                     struct allot_error *err) {
    return SPARE(host, bytes, gpu_host_alloc(gpu, bytes, ret, err));
}
