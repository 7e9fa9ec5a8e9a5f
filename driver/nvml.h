/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML: what the driver reports about its devices.
 *
 * Every call returns 0 or -errno and fills `err` (may be NULL) with a sentence that names the call
 * and the device. Results are untouched on failure. A value that the driver does not give is absent
 * (a bit in `has`), never 0. Loading, threads and fork: driver/driver.h. Errors that will not go
 * away by themselves:
 *
 *     -EOPNOTSUPP       this device cannot do it, or the driver is too old
 *     -ENODEV           no driver, or no device at all
 *     -ENXIO            this device has fallen off the bus
 *     -ENOTRECOVERABLE  this device needs a reset
 *     -ELIBBAD          library and kernel module are of different versions
 *     -EACCES           the device exists but is closed to us (device nodes, cgroup)
 *     -ESTALE           opened before fork()
 *
 * driver_is_gone() is true for all of these except the first.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/gpuid.h"
#include "driver/driver.h"

struct nvml;
struct nvmlDevice_st;

int nvml_open(struct nvml **ret, const struct driver_options *options, struct allot_error *err);
void nvml_close(struct nvml *nvml); /* accepts NULL */
DEFINE_FREEP(struct nvml, nvml_closep, nvml_close)

/* Where it was loaded from; whether it is the simulator's. Borrowed. */
const char *nvml_path(const struct nvml *nvml);
bool nvml_is_simulated(const struct nvml *nvml);

struct nvml_system {
    char driver[80];  /* "535.154.05" */
    char library[80]; /* NVML's own version; "" if it does not say */
    unsigned cuda;    /* 12020 for CUDA 12.2; 0 if it does not say */
};

int nvml_system_read(const struct nvml *nvml, struct nvml_system *ret, struct allot_error *err);

/*
 * A device, or a MIG instance: a plain value, valid as long as its struct nvml is open. The handle
 * of an instance becomes invalid with the instance, and may be reused for another one.
 */
struct nvml_device {
    struct nvmlDevice_st *handle;
    char label[128]; /* "GPU 0 (GPU-9e8d35e3-…)", for messages */
};

int nvml_device_count(const struct nvml *nvml, unsigned *ret, struct allot_error *err);
int nvml_device_at(const struct nvml *nvml, struct nvml_device *ret, unsigned index,
                   struct allot_error *err);
/* By the full text of a GPU's or instance's UUID. -ENOENT if the box has no such device. */
int nvml_device_find(const struct nvml *nvml, struct nvml_device *ret, const char *uuid,
                     struct allot_error *err);
int nvml_device_find_pci(const struct nvml *nvml, struct nvml_device *ret, const struct pci_id *id,
                         struct allot_error *err);

enum {
    NVML_HAS_INDEX = 1 << 0,
    NVML_HAS_MINOR = 1 << 1,
    NVML_HAS_NUMA_NODE = 1 << 2,
    NVML_HAS_SERIAL = 1 << 3,
    NVML_HAS_VBIOS = 1 << 4,
    NVML_HAS_CAPABILITY = 1 << 5,
    NVML_HAS_CORES = 1 << 6,
};

/* What does not change while the machine is running. */
struct nvml_identity {
    uint32_t has;
    char uuid[96];
    char name[96];
    struct pci_id pci;   /* of an instance: its GPU's */
    uint32_t pci_device; /* device id << 16 | vendor id */
    uint32_t pci_subsystem;
    uint32_t index;     /* NVML's, in bus order. Not an identity: it changes when a GPU is lost */
    uint32_t minor;     /* of /dev/nvidiaN, which is not the index */
    uint32_t numa_node; /* nearest memory of the host */
    uint32_t capability_major, capability_minor;
    uint32_t cores;
    char serial[32];
    char vbios[32];
};

int nvml_identity_read(const struct nvml *nvml, const struct nvml_device *device,
                       struct nvml_identity *ret, struct allot_error *err);
