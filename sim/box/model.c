/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/model.h"

#include <string.h>

#include "base/cleanup.h"

#define MIB(n) (UINT64_C(n) << 20)
#define GIB(n) (UINT64_C(n) << 30)

/* Profile enum values of nvml.h: NVML_GPU_INSTANCE_PROFILE_{1,2,3,4,7}_SLICE, 1_SLICE_REV2. */
enum {
    SLICE_1 = 0,
    SLICE_2 = 1,
    SLICE_3 = 2,
    SLICE_4 = 3,
    SLICE_7 = 4,
    SLICE_1_REV2 = 9,
};

static const struct sim_mig_profile a100_40g_profiles[] = {
    { SLICE_1, 19, "1g.5gb", 1, 1, 7, 14, 1, 0, MIB(4864) },
    { SLICE_1_REV2, 15, "1g.10gb", 1, 2, 4, 14, 1, 1, MIB(9856) },
    { SLICE_2, 14, "2g.10gb", 2, 2, 3, 28, 2, 1, MIB(9856) },
    { SLICE_3, 9, "3g.20gb", 3, 4, 2, 42, 3, 2, MIB(19968) },
    { SLICE_4, 5, "4g.20gb", 4, 4, 1, 56, 4, 2, MIB(19968) },
    { SLICE_7, 0, "7g.40gb", 7, 8, 1, 98, 7, 5, MIB(40192) },
};

static const struct sim_mig_profile a100_80g_profiles[] = {
    { SLICE_1, 19, "1g.10gb", 1, 1, 7, 14, 1, 0, MIB(9728) },
    { SLICE_1_REV2, 15, "1g.20gb", 1, 2, 4, 14, 1, 1, MIB(19968) },
    { SLICE_2, 14, "2g.20gb", 2, 2, 3, 28, 2, 1, MIB(19968) },
    { SLICE_3, 9, "3g.40gb", 3, 4, 2, 42, 3, 2, MIB(40192) },
    { SLICE_4, 5, "4g.40gb", 4, 4, 1, 56, 4, 2, MIB(40192) },
    { SLICE_7, 0, "7g.80gb", 7, 8, 1, 98, 7, 5, MIB(80896) },
};

static const struct sim_mig_profile h100_80g_profiles[] = {
    { SLICE_1, 19, "1g.10gb", 1, 1, 7, 16, 1, 1, MIB(9984) },
    { SLICE_1_REV2, 15, "1g.20gb", 1, 2, 4, 26, 1, 1, MIB(20096) },
    { SLICE_2, 14, "2g.20gb", 2, 2, 3, 32, 2, 2, MIB(20096) },
    { SLICE_3, 9, "3g.40gb", 3, 4, 2, 60, 3, 3, MIB(40448) },
    { SLICE_4, 5, "4g.40gb", 4, 4, 1, 64, 4, 4, MIB(40448) },
    { SLICE_7, 0, "7g.80gb", 7, 8, 1, 132, 8, 7, MIB(80896) },
};

#define MIG(profiles) .mig_profiles = (profiles), .n_mig_profiles = ELEMENTSOF(profiles)

/* What the two A100 have in common. */
#define A100                                                                                       \
    .architecture = "Ampere", .nvml_architecture = 7, .nvml_brand = 14, .cc_major = 8,             \
    .cc_minor = 0, .context_bytes = MIB(414), .memory_bus_bits = 5120, .l2_bytes = MIB(40),        \
    .multiprocessors = 108, .cores_per_multiprocessor = 64,                                        \
    .max_threads_per_multiprocessor = 2048, .max_blocks_per_multiprocessor = 32,                   \
    .registers_per_multiprocessor = 65536, .shared_bytes_per_multiprocessor = 167936,              \
    .shared_bytes_per_block = 49152, .shared_bytes_per_block_optin = 166912, .copy_engines = 3,    \
    .sm_clock_idle_mhz = 210, .sm_clock_max_mhz = 1410, .power_min_mw = 100000,                    \
    .power_limit_mw = 400000, .power_max_mw = 400000, .temperature_slowdown_c = 89,                \
    .temperature_shutdown_c = 92, .pcie_generation = 4, .pcie_width = 16, .nvlink_version = 3,     \
    .nvlink_links = 12, .nvlink_bytes_per_second = UINT64_C(25) * 1000000000, .ecc = true,         \
    .fp64_full = true

/*
 * Figures from the vendor's data sheets and white papers; memory totals and reserves as drivers
 * report them (NVML's total, and the difference to what CUDA calls total).
 */
const struct sim_model sim_models[] = {
    {
        .key = "t4-16g",
        .name = "SIM Tesla T4",
        .architecture = "Turing",
        .nvml_architecture = 6,
        .nvml_brand = 2,
        .cc_major = 7,
        .cc_minor = 5,
        .speed_rank = 81,
        .total_bytes = MIB(15360),
        .reserved_bytes = MIB(442),
        .context_bytes = MIB(106),
        .bar1_bytes = MIB(256),
        .memory_bus_bits = 256,
        .memory_bytes_per_second = UINT64_C(320) * 1000000000,
        .l2_bytes = MIB(4),
        .multiprocessors = 40,
        .cores_per_multiprocessor = 64,
        .max_threads_per_multiprocessor = 1024,
        .max_blocks_per_multiprocessor = 16,
        .registers_per_multiprocessor = 65536,
        .shared_bytes_per_multiprocessor = 65536,
        .shared_bytes_per_block = 49152,
        .shared_bytes_per_block_optin = 65536,
        .copy_engines = 3,
        .sm_clock_idle_mhz = 300,
        .sm_clock_base_mhz = 585,
        .sm_clock_max_mhz = 1590,
        .memory_clock_mhz = 5001,
        .power_idle_mw = 9800,
        .power_min_mw = 60000,
        .power_limit_mw = 70000,
        .power_max_mw = 70000,
        .temperature_idle_c = 35,
        .temperature_slowdown_c = 93,
        .temperature_shutdown_c = 96,
        .pcie_generation = 3,
        .pcie_width = 16,
        .pci_device_id = 0x1eb810de,
        .pci_subsystem_id = 0x12a210de,
        .ecc = true,
        .vbios = "90.04.96.00.02",
        .part_number = "900-2G183-0000-001",
    },
    {
        .key = "a100-40g",
        .name = "SIM A100-SXM4-40GB",
        .speed_rank = 195,
        .total_bytes = MIB(40960),
        .reserved_bytes = MIB(424),
        .bar1_bytes = GIB(64),
        .memory_bytes_per_second = UINT64_C(1555) * 1000000000,
        .sm_clock_base_mhz = 1095,
        .memory_clock_mhz = 1215,
        .power_idle_mw = 52000,
        .temperature_idle_c = 31,
        .pci_device_id = 0x20b010de,
        .pci_subsystem_id = 0x134f10de,
        .vbios = "92.00.45.00.03",
        .part_number = "692-2G506-0200-002",
        A100,
        MIG(a100_40g_profiles),
    },
    {
        .key = "a100-80g",
        .name = "SIM A100-SXM4-80GB",
        .speed_rank = 196,
        .total_bytes = MIB(81920),
        .reserved_bytes = MIB(670),
        .bar1_bytes = GIB(128),
        .memory_bytes_per_second = UINT64_C(2039) * 1000000000,
        .sm_clock_base_mhz = 1275,
        .memory_clock_mhz = 1593,
        .power_idle_mw = 61000,
        .temperature_idle_c = 32,
        .pci_device_id = 0x20b210de,
        .pci_subsystem_id = 0x147f10de,
        .vbios = "92.00.9E.00.01",
        .part_number = "692-2G506-0212-003",
        A100,
        MIG(a100_80g_profiles),
    },
    {
        .key = "h100-80g",
        .name = "SIM H100 80GB HBM3",
        .architecture = "Hopper",
        .nvml_architecture = 9,
        .nvml_brand = 14,
        .cc_major = 9,
        .cc_minor = 0,
        .speed_rank = 669,
        .total_bytes = MIB(81559),
        .reserved_bytes = MIB(479),
        .context_bytes = MIB(520),
        .bar1_bytes = GIB(128),
        .memory_bus_bits = 5120,
        .memory_bytes_per_second = UINT64_C(3352) * 1000000000,
        .l2_bytes = MIB(50),
        .multiprocessors = 132,
        .cores_per_multiprocessor = 128,
        .max_threads_per_multiprocessor = 2048,
        .max_blocks_per_multiprocessor = 32,
        .registers_per_multiprocessor = 65536,
        .shared_bytes_per_multiprocessor = 233472,
        .shared_bytes_per_block = 49152,
        .shared_bytes_per_block_optin = 232448,
        .copy_engines = 3,
        .sm_clock_idle_mhz = 345,
        .sm_clock_base_mhz = 1590,
        .sm_clock_max_mhz = 1980,
        .memory_clock_mhz = 2619,
        .power_idle_mw = 70000,
        .power_min_mw = 200000,
        .power_limit_mw = 700000,
        .power_max_mw = 700000,
        .temperature_idle_c = 29,
        .temperature_slowdown_c = 87,
        .temperature_shutdown_c = 92,
        .pcie_generation = 5,
        .pcie_width = 16,
        .nvlink_version = 4,
        .nvlink_links = 18,
        .nvlink_bytes_per_second = UINT64_C(25) * 1000000000,
        .pci_device_id = 0x233010de,
        .pci_subsystem_id = 0x16c110de,
        .ecc = true,
        .fp64_full = true,
        .vbios = "96.00.74.00.01",
        .part_number = "692-2G520-0200-000",
        MIG(h100_80g_profiles),
    },
    {
        .key = "rtx4090-24g",
        .name = "SIM GeForce RTX 4090",
        .architecture = "Ada Lovelace",
        .nvml_architecture = 8,
        .nvml_brand = 5,
        .cc_major = 8,
        .cc_minor = 9,
        .speed_rank = 826,
        .total_bytes = MIB(24564),
        .reserved_bytes = MIB(346),
        .context_bytes = MIB(362),
        .bar1_bytes = MIB(256),
        .memory_bus_bits = 384,
        .memory_bytes_per_second = UINT64_C(1008) * 1000000000,
        .l2_bytes = MIB(72),
        .multiprocessors = 128,
        .cores_per_multiprocessor = 128,
        .max_threads_per_multiprocessor = 1536,
        .max_blocks_per_multiprocessor = 24,
        .registers_per_multiprocessor = 65536,
        .shared_bytes_per_multiprocessor = 102400,
        .shared_bytes_per_block = 49152,
        .shared_bytes_per_block_optin = 101376,
        .copy_engines = 2,
        .sm_clock_idle_mhz = 210,
        .sm_clock_base_mhz = 2235,
        .sm_clock_max_mhz = 3105,
        .memory_clock_mhz = 10501,
        .power_idle_mw = 17000,
        .power_min_mw = 150000,
        .power_limit_mw = 450000,
        .power_max_mw = 600000,
        .temperature_idle_c = 36,
        .temperature_slowdown_c = 90,
        .temperature_shutdown_c = 100,
        .fans = 2,
        .pcie_generation = 4,
        .pcie_width = 16,
        .pci_device_id = 0x268410de,
        .pci_subsystem_id = 0x16f310de,
        .vbios = "95.02.3C.00.8C",
        .part_number = "900-1G136-2530-000",
    },
};
const size_t n_sim_models = ELEMENTSOF(sim_models);

const struct sim_model *model_find(const char *key) {
    for (size_t i = 0; i < n_sim_models; i++)
        if (!strcmp(sim_models[i].key, key))
            return &sim_models[i];
    return NULL;
}

const struct sim_mig_profile *model_find_profile(const struct sim_model *model, const char *name,
                                                 unsigned id) {
    for (size_t i = 0; i < model->n_mig_profiles; i++) {
        const struct sim_mig_profile *profile = &model->mig_profiles[i];

        if (name ? !strcmp(profile->name, name) : profile->id == id)
            return profile;
    }
    return NULL;
}
