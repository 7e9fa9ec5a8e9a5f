/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/segment.h"

#include "sim/box/charge.h"

/* How often each segment is used in this process. Only as many as the box can hold. */
static struct {
    uint64_t id; /* 0: free */
    unsigned uses;
} here[BOX_MAX_SEGMENTS];
static unsigned n_here; /* entries ever used */

static int find(uint64_t id) {
    for (unsigned i = 0; i < n_here; i++)
        if (here[i].id == id)
            return (int)i;
    return -1;
}

static void enter(uint64_t id) {
    int i = find(0);

    if (i < 0)
        i = (int)n_here++;
    here[i].id = id;
    here[i].uses = 1;
}

CUresult segment_new(const struct cuda_device *device, uint64_t bytes, uint64_t *ret_id) {
    int r;

    if (find(0) < 0 && n_here == BOX_MAX_SEGMENTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (box_lock(driver.box) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    r = charge_segment_new(driver.box, driver.slot, device->part, bytes, ret_id);
    box_unlock(driver.box);
    if (r < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    enter(*ret_id);
    return CUDA_SUCCESS;
}

static struct cuda_device *device_of(struct box_part part) {
    for (int i = 0; i < driver.n_devices; i++)
        if (driver.devices[i].part.gpu == part.gpu && driver.devices[i].part.part == part.part)
            return &driver.devices[i];
    return NULL;
}

CUresult segment_join(uint64_t id, struct cuda_device **ret_device, uint64_t *ret_bytes) {
    struct box_part part;
    uint64_t bytes;
    int i = find(id), r;

    if (i < 0 && find(0) < 0 && n_here == BOX_MAX_SEGMENTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (box_lock(driver.box) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    r = charge_segment_find(driver.box, id, &part, &bytes);
    if (r == 0 && !device_of(part))
        r = -1;
    if (r == 0 && i < 0)
        r = charge_segment_join(driver.box, driver.slot, id);
    box_unlock(driver.box);
    if (r < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (i < 0)
        enter(id);
    else
        here[i].uses++;
    *ret_device = device_of(part);
    *ret_bytes = bytes;
    return CUDA_SUCCESS;
}

bool segment_exists(uint64_t id) {
    struct box_part part;
    uint64_t bytes;
    bool exists;

    if (box_lock(driver.box) < 0)
        return true;
    exists = charge_segment_find(driver.box, id, &part, &bytes) == 0;
    box_unlock(driver.box);
    return exists;
}

bool segment_leave(uint64_t id) {
    int i = find(id);

    if (i < 0)
        return !segment_exists(id);
    if (--here[i].uses > 0)
        return false;
    here[i].id = 0;
    if (box_lock(driver.box) < 0)
        return false;
    charge_segment_leave(driver.box, driver.slot, id);
    box_unlock(driver.box);
    return !segment_exists(id);
}
