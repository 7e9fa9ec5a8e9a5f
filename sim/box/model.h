/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Model: the published figures of a GPU that a box can hold.
 *
 * Constant data. A box file names a model by its key; figures that a box may override (memory)
 * are copied into the box.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One way to cut a GPU: the vendor's MIG profile. Placement is in units of memory slices. */
struct sim_mig_profile {
    unsigned id;              /* NVML_GPU_INSTANCE_PROFILE_…: what NVML's calls take */
    unsigned number;          /* what NVML reports in return and nvidia-smi shows: 19 is 1g.5gb */
    const char *name;         /* "3g.20gb" */
    unsigned compute_slices;  /* of 7 */
    unsigned memory_slices;   /* of 8 */
    unsigned max_instances;   /* as many as fit on an otherwise empty GPU */
    unsigned multiprocessors; /* of the instance */
    unsigned copy_engines;
    unsigned decoders;
    uint64_t memory_bytes;
};

struct sim_model {
    const char *key;  /* what people type: "a100-40g" */
    const char *name; /* what drivers report; begins with SIM so that it misleads no reader */
    const char *architecture;
    unsigned nvml_architecture; /* NVML_DEVICE_ARCH_… */
    unsigned nvml_brand;        /* NVML_BRAND_… */
    unsigned cc_major, cc_minor;
    unsigned speed_rank; /* for CUDA_DEVICE_ORDER=FASTEST_FIRST: larger is faster */

    uint64_t total_bytes;    /* NVML's total */
    uint64_t reserved_bytes; /* kept by driver and firmware; CUDA's total is total - reserved */
    uint64_t context_bytes;  /* what one CUDA context costs, in whole granules */
    uint64_t bar1_bytes;
    unsigned memory_bus_bits;
    uint64_t memory_bytes_per_second;
    uint64_t l2_bytes;

    unsigned multiprocessors;
    unsigned cores_per_multiprocessor;
    unsigned max_threads_per_multiprocessor;
    unsigned max_blocks_per_multiprocessor;
    unsigned registers_per_multiprocessor;
    unsigned shared_bytes_per_multiprocessor;
    unsigned shared_bytes_per_block;       /* without opting in */
    unsigned shared_bytes_per_block_optin; /* at most */
    unsigned copy_engines;

    unsigned sm_clock_idle_mhz, sm_clock_base_mhz, sm_clock_max_mhz;
    unsigned memory_clock_mhz;
    unsigned power_idle_mw, power_min_mw, power_limit_mw, power_max_mw;
    unsigned temperature_idle_c, temperature_slowdown_c, temperature_shutdown_c;
    unsigned fans;

    unsigned pcie_generation, pcie_width;
    unsigned nvlink_version; /* 0: none */
    unsigned nvlink_links;
    uint64_t nvlink_bytes_per_second; /* per link and direction */

    uint32_t pci_device_id; /* device << 16 | vendor */
    uint32_t pci_subsystem_id;
    bool ecc;       /* on by default; off means the card has none or ships with it off */
    bool fp64_full; /* half rate double precision, as data-centre cards */
    const char *vbios;
    const char *part_number;

    const struct sim_mig_profile *mig_profiles; /* NULL: no MIG */
    size_t n_mig_profiles;
};

extern const struct sim_model sim_models[];
extern const size_t n_sim_models;

const struct sim_model *model_find(const char *key); /* NULL: no such model */

/* The profile `name` ("3g.20gb") or, with name NULL, the one with `id`. NULL: none. */
const struct sim_mig_profile *model_find_profile(const struct sim_model *model, const char *name,
                                                 unsigned id);
