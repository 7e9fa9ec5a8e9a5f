/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Processes on a device, as NVML lists them. See driver/nvml.h.
 *
 * Pids are the host's. A process that ended may still be listed, and one listed may have ended.
 */
#include "driver/nvml.h"

enum nvml_process_kind {
    NVML_COMPUTE = 1 << 0,
    NVML_GRAPHICS = 1 << 1,
    NVML_MPS = 1 << 2, /* a client of the MPS server */
};

#define NVML_NO_INSTANCE UINT32_MAX

struct nvml_process {
    uint32_t pid;
    uint32_t kinds;        /* nvml_process_kind bits: a process may be in several lists */
    bool has_used;         /* the driver knows its bytes */
    uint64_t used_bytes;   /* on this device, or instance */
    uint32_t gpu_instance; /* NVML_NO_INSTANCE: not in MIG mode, or the driver does not say */
    uint32_t compute_instance;
};

/*
 * The processes of all kinds, each once, by pid and instance. The caller frees `*ret`, NULL if
 * there are none. -EOPNOTSUPP if the driver lists none of the kinds.
 */
int nvml_process_list(const struct nvml *nvml, const struct nvml_device *device,
                      struct nvml_process **ret, size_t *ret_n, struct allot_error *err);

/* Busy percentages of a process between two samples of the driver. */
struct nvml_process_use {
    uint32_t pid;
    uint64_t usec; /* when it was sampled, CLOCK_REALTIME */
    uint32_t sm, memory, encoder, decoder;
};

/*
 * Samples newer than `since_usec` (0: all that the driver has kept). Records that the driver leaves
 * empty or fills with nonsense are left out. `*ret` as above.
 */
int nvml_process_use_list(const struct nvml *nvml, const struct nvml_device *device,
                          uint64_t since_usec, struct nvml_process_use **ret, size_t *ret_n,
                          struct allot_error *err);

/*
 * The driver's own limit on what the processes of a cgroup may allocate on a device (driver 615 and
 * later, root, not for instances). `cgroup` is its folder under /sys/fs/cgroup.
 */
#define NVML_NO_LIMIT UINT64_MAX

struct nvml_limit {
    uint64_t soft_bytes; /* guaranteed under pressure; 0: nothing */
    uint64_t hard_bytes; /* NVML_NO_LIMIT: none */
    uint64_t used_bytes; /* read only */
};

int nvml_process_limit_get(const struct nvml *nvml, const struct nvml_device *device,
                           const char *cgroup, struct nvml_limit *ret, struct allot_error *err);
int nvml_process_limit_set(const struct nvml *nvml, const struct nvml_device *device,
                           const char *cgroup, const struct nvml_limit *limit,
                           struct allot_error *err);
