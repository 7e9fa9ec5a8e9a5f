/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private: the table behind nvmlInternalGetExportTable, from which nvidia-smi gets its process
 * list.
 *
 * The table is a size and then functions by number. The mock in NVIDIA's k8s-test-infra shows what
 * a few of them do; those are implemented here. All others return NOT_SUPPORTED, which nvidia-smi
 * takes for a GPU without the feature.
 */
#include "sim/nvml/core.h"

#include <string.h>

#include "sim/nvml/stub.h"

enum {
    TABLE_SLOTS = 256,
    TABLE_BYTES = TABLE_SLOTS * 8, /* what the first word says */

    SLOT_COMMON_ANCESTOR = 23,
    SLOT_DEVICE_PROBE = 72,
    SLOT_DEVICE_BY_INDEX = 81,
    SLOT_COMPUTE_PROCESSES = 213,
    SLOT_GRAPHICS_PROCESSES = 214,
    SLOT_MPS_PROCESSES = 215,
    SLOT_HOST_MAX_PCIE_GENERATION = 230,
};

/* A process as these slots give it: nvmlProcessDetail_v1_t, and its name. */
struct private_process {
    nvmlProcessDetail_v1_t detail;
    char name[4096];
};
_Static_assert(sizeof(struct private_process) == 4128, "the caller's stride");

static nvmlReturn_t not_supported(void) {
    return (nvmlReturn_t)stub_answer("nvmlInternal");
}

static nvmlReturn_t device_by_index(unsigned index, nvmlDevice_t *ret) {
    return nvmlDeviceGetHandleByIndex_v2(index, ret);
}

static nvmlReturn_t processes(nvmlDevice_t device, unsigned kinds, unsigned *count,
                              struct private_process *ret) {
    ENTER_(t, core_enter(&t, "nvmlInternalProcesses", device, ON_ANY));
    struct process_row rows[BOX_MAX_PROCS];
    nvmlReturn_t r;
    unsigned n;

    REQUIRE(count);
    r = process_collect(&t, kinds, rows, &n);
    if (r == NVML_SUCCESS)
        r = core_give_list(count, ret, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++) {
        ret[i].detail = (nvmlProcessDetail_v1_t){ .pid = rows[i].pid,
                                                  .usedGpuMemory = rows[i].used_bytes,
                                                  .gpuInstanceId = rows[i].gi_id,
                                                  .computeInstanceId = rows[i].ci_id };
        if (process_name(rows[i].pid, ret[i].name, sizeof(ret[i].name)) != NVML_SUCCESS)
            strcpy(ret[i].name, "[Not Found]");
    }
    return r;
}

static nvmlReturn_t compute_processes(nvmlDevice_t device, unsigned *count,
                                      struct private_process *ret) {
    return processes(device, PROC_COMPUTE, count, ret);
}

static nvmlReturn_t graphics_processes(nvmlDevice_t device, unsigned *count,
                                       struct private_process *ret) {
    return processes(device, PROC_GRAPHICS, count, ret);
}

static nvmlReturn_t mps_processes(nvmlDevice_t device, unsigned *count,
                                  struct private_process *ret) {
    return processes(device, 0, count, ret);
}

/* `topo -m` asks for the way between two places on the bus: 0 is PIX, 4 is SYS. */
static nvmlReturn_t common_ancestor(const char *bus_id, const char *other_bus_id, unsigned *ret) {
    nvmlGpuTopologyLevel_t level;
    nvmlDevice_t one, other;
    nvmlReturn_t r = nvmlDeviceGetHandleByPciBusId_v2(bus_id, &one);

    if (r == NVML_SUCCESS)
        r = nvmlDeviceGetHandleByPciBusId_v2(other_bus_id, &other);
    if (r == NVML_SUCCESS)
        r = nvmlDeviceGetTopologyCommonAncestor(one, other, &level);
    if (r == NVML_SUCCESS)
        *ret = level <= NVML_TOPOLOGY_SINGLE ? 0 : (unsigned)level / 10 - 1;
    return r;
}

/* `dmon` and `pmon` skip a device for which this returns 0. */
static nvmlReturn_t device_probe(nvmlDevice_t device, unsigned *ret) {
    ENTER_(t, core_enter(&t, "nvmlInternalProbe", device, ON_ANY));
    REQUIRE(ret);
    *ret = 1;
    return NVML_SUCCESS;
}

static nvmlReturn_t host_max_pcie_generation(nvmlDevice_t device, unsigned *ret) {
    return nvmlDeviceGetMaxPcieLinkGeneration(device, ret);
}

#pragma GCC visibility push(default)
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id);
#pragma GCC visibility pop

nvmlReturn_t nvmlInternalGetExportTable(const void **ret, const void *id) {
    static const unsigned char known[16] = {
        0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
        0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
    };
    static const void *const table[TABLE_SLOTS] = {
        [0] = (const void *)(uintptr_t)TABLE_BYTES,
        [1 ... SLOT_COMMON_ANCESTOR - 1] = (const void *)not_supported,
        [SLOT_COMMON_ANCESTOR] = (const void *)common_ancestor,
        [SLOT_COMMON_ANCESTOR + 1 ... SLOT_DEVICE_PROBE - 1] = (const void *)not_supported,
        [SLOT_DEVICE_PROBE] = (const void *)device_probe,
        [SLOT_DEVICE_PROBE + 1 ... SLOT_DEVICE_BY_INDEX - 1] = (const void *)not_supported,
        [SLOT_DEVICE_BY_INDEX] = (const void *)device_by_index,
        [SLOT_DEVICE_BY_INDEX + 1 ... SLOT_COMPUTE_PROCESSES - 1] = (const void *)not_supported,
        [SLOT_COMPUTE_PROCESSES] = (const void *)compute_processes,
        [SLOT_GRAPHICS_PROCESSES] = (const void *)graphics_processes,
        [SLOT_MPS_PROCESSES] = (const void *)mps_processes,
        [SLOT_MPS_PROCESSES + 1 ... SLOT_HOST_MAX_PCIE_GENERATION - 1] =
            (const void *)not_supported,
        [SLOT_HOST_MAX_PCIE_GENERATION] = (const void *)host_max_pcie_generation,
        [SLOT_HOST_MAX_PCIE_GENERATION + 1 ... TABLE_SLOTS - 1] = (const void *)not_supported,
    };

    REQUIRE(ret && id);
    if (memcmp(id, known, sizeof(known)))
        return NVML_ERROR_NOT_SUPPORTED;
    *ret = table;
    return NVML_SUCCESS;
}
