/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device reader: one GPU or instance as allot-reader keeps it, and how it is read from NVML.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "daemon/broker/sample.h"
#include "driver/nvml.h"

struct device_reader {
    struct sample_device seen;
    struct nvml_device handle; /* handle.handle is NULL while it is closed or lost */
    bool is_closed;            /* a GPU that is not to be opened */
    bool is_here;              /* in this sample */
    uint64_t use_usec;         /* up to when process utilization was read */
};

/* Why it could not be read: `r`, and the sentence in `err`. */
void device_reader_lose(struct device_reader *device, int r, const struct allot_error *err);

/* What changes from sample to sample; with `slow` also modes and errors. */
int device_reader_read(struct device_reader *device, const struct nvml *nvml, bool slow,
                       struct allot_error *err);

/* What does not change. Of an instance, place and nodes are those of `gpu`; else it is NULL. */
void device_reader_identify(struct device_reader *device, const struct nvml_identity *identity,
                            const struct device_reader *gpu);

/* The connections of a GPU to all the others of `all` that are open. */
void device_reader_read_links(struct device_reader *device, const struct nvml *nvml,
                              const struct device_reader *all, size_t n);
