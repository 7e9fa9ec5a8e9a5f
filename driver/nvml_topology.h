/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * How devices are divided and connected: MIG instances, PCIe and NVLink. See driver/nvml.h.
 */
#include "driver/nvml.h"

/* An instance of a GPU in MIG mode. */
struct nvml_mig {
    struct nvml_device device;
    char uuid[96];
    uint32_t gpu_instance, compute_instance;
    bool has_attributes; /* the rest: */
    uint32_t multiprocessors;
    uint32_t gpu_slices, compute_slices;
    uint64_t memory_bytes;
};

/*
 * The instances of a GPU, in NVML's order; none if it is not, or cannot be, in MIG mode. The caller
 * frees `*ret`, NULL if there are none.
 */
int nvml_topology_list_migs(const struct nvml *nvml, const struct nvml_device *device,
                            struct nvml_mig **ret, size_t *ret_n, struct allot_error *err);

/* The nearest thing that connects two GPUs, nearest first. */
enum nvml_path {
    NVML_PATH_BOARD,
    NVML_PATH_SWITCH,   /* one PCIe switch */
    NVML_PATH_SWITCHES, /* several, no host bridge */
    NVML_PATH_BRIDGE,   /* a host bridge */
    NVML_PATH_NODE,     /* a NUMA node */
    NVML_PATH_SYSTEM,   /* the link between NUMA nodes */
};

int nvml_topology_path(const struct nvml *nvml, const struct nvml_device *a,
                       const struct nvml_device *b, enum nvml_path *ret, struct allot_error *err);

enum {
    NVML_P2P_READ = 1 << 0,
    NVML_P2P_WRITE = 1 << 1,
    NVML_P2P_NVLINK = 1 << 2,
    NVML_P2P_ATOMICS = 1 << 3,
};

/* What `a` can do directly in the memory of `b`: NVML_P2P_… bits. */
int nvml_topology_p2p(const struct nvml *nvml, const struct nvml_device *a,
                      const struct nvml_device *b, uint32_t *ret, struct allot_error *err);

/* The fastest that its slot and the GPU can do: generation 4, 16 lanes. */
int nvml_topology_pcie(const struct nvml *nvml, const struct nvml_device *device,
                       unsigned *ret_generation, unsigned *ret_width, struct allot_error *err);

enum nvml_link_end { NVML_END_UNKNOWN, NVML_END_GPU, NVML_END_SWITCH, NVML_END_CPU };

#define NVML_LINKS_MAX 36

/* An NVLink of a GPU, which is up. */
struct nvml_link {
    uint32_t number;
    uint32_t version; /* 0: the driver does not say */
    enum nvml_link_end end;
    bool has_remote;
    struct pci_id remote; /* what is at the other end */
};

/* The links that are up; none if the GPU has no NVLink. */
int nvml_topology_list_links(const struct nvml *nvml, const struct nvml_device *device,
                             struct nvml_link ret[static NVML_LINKS_MAX], size_t *ret_n,
                             struct allot_error *err);
