/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Topology: how far GPUs are from each other and from processors.
 *
 * Where this machine has the GPU's NUMA node, the GPU is near that node's processors; otherwise it
 * is near all processors.
 */
#include "sim/nvml/core.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BITS_PER_LONG (8 * sizeof(unsigned long))

static nvmlGpuTopologyLevel_t level_of(const struct box *box, unsigned a, unsigned b) {
    const struct box_gpu *one = &box->file->gpu[a], *other = &box->file->gpu[b];

    if (a == b)
        return NVML_TOPOLOGY_INTERNAL;
    if (one->pcie_switch && one->pcie_switch == other->pcie_switch)
        return NVML_TOPOLOGY_SINGLE;
    if (one->numa_node == other->numa_node)
        return NVML_TOPOLOGY_NODE;
    return NVML_TOPOLOGY_SYSTEM;
}

/* The second device of a call: checked like the first, but the box is already locked. */
static nvmlReturn_t second(const struct target *t, nvmlDevice_t device, unsigned *ret) {
    struct handle_location location;

    REQUIRE(handle_locate_device(device, &location) && location.gi == HANDLE_WHOLE &&
            location.gpu < t->box->n_gpus && (core_visible() & UINT32_C(1) << location.gpu));
    if (t->box->file->gpu[location.gpu].lost)
        return NVML_ERROR_GPU_IS_LOST;
    *ret = location.gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t *pathInfo) {
    ENTER(t, device1, ON_GPU);
    unsigned other = 0;
    nvmlReturn_t r = second(&t, device2, &other);

    REQUIRE(pathInfo);
    if (r == NVML_SUCCESS)
        *pathInfo = level_of(t.box, t.part.gpu, other);
    return r;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *deviceArray) {
    ENTER(t, device, ON_GPU);
    unsigned n = 0, room;

    REQUIRE(count && (*count == 0 || deviceArray) && level <= NVML_TOPOLOGY_SYSTEM &&
            level % 10 == 0);
    room = *count;
    for (unsigned gpu = 0; gpu < t.box->n_gpus; gpu++) {
        if (gpu == t.part.gpu || !(core_visible() & UINT32_C(1) << gpu) ||
            level_of(t.box, t.part.gpu, gpu) != level)
            continue;
        if (n < room)
            deviceArray[n] = handle_of_gpu(gpu);
        n++;
    }
    *count = room ? MIN(n, room) : n;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    nvmlGpuP2PCapsIndex_t p2pIndex, nvmlGpuP2PStatus_t *p2pStatus) {
    ENTER(t, device1, ON_GPU);
    unsigned other = 0;
    nvmlReturn_t r = second(&t, device2, &other);
    bool linked;

    REQUIRE(p2pStatus && (unsigned)p2pIndex < NVML_P2P_CAPS_INDEX_UNKNOWN);
    if (r != NVML_SUCCESS)
        return r;
    linked = other != t.part.gpu && t.gpu->nvlinks[other] > 0;
    switch (p2pIndex) {
    case NVML_P2P_CAPS_INDEX_NVLINK:
        *p2pStatus = linked ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
        break;
    case NVML_P2P_CAPS_INDEX_ATOMICS:
        *p2pStatus = linked ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
        break;
    default:
        if (is_consumer(&t) || strcmp(t.gpu->model, t.box->file->gpu[other].model))
            *p2pStatus = NVML_P2P_STATUS_GPU_NOT_SUPPORTED;
        else if (t.box->file->no_p2p && !linked)
            *p2pStatus = NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
        else if (linked || level_of(t.box, t.part.gpu, other) <= NVML_TOPOLOGY_NODE)
            *p2pStatus = NVML_P2P_STATUS_OK;
        else
            *p2pStatus = NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
        break;
    }
    return NVML_SUCCESS;
}

/* Set the bits of a list like "0-3,8,10-11". */
static void parse_list(const char *text, size_t n_words, unsigned long *words) {
    while (*text) {
        char *end;
        unsigned long from = strtoul(text, &end, 10), to = from;

        if (end == text)
            return;
        if (*end == '-')
            to = strtoul(end + 1, &end, 10);
        for (unsigned long i = from; i <= to && i / BITS_PER_LONG < n_words; i++)
            words[i / BITS_PER_LONG] |= 1ul << i % BITS_PER_LONG;
        text = *end == ',' ? end + 1 : end;
    }
}

static bool read_list(const char *path, size_t n_words, unsigned long *words) {
    cleanup(fclosep) FILE *file = fopen(path, "re");
    char line[4096];

    if (!file || !fgets(line, sizeof(line), file))
        return false;
    parse_list(line, n_words, words);
    return true;
}

/* Processors near a GPU on NUMA node `node`. */
static void near_cpus(int node, size_t n_words, unsigned long *words) {
    char path[64];

    memset(words, 0, n_words * sizeof(*words));
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    if (node >= 0 && read_list(path, n_words, words))
        return;
    (void)read_list("/sys/devices/system/cpu/online", n_words, words);
}

static nvmlReturn_t cpu_affinity(const struct target *t, unsigned size, unsigned long *set) {
    REQUIRE(set && size > 0);
    near_cpus(t->gpu->numa_node, size, set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize,
                                      unsigned long *cpuSet) {
    ENTER(t, device, ON_ANY);
    return cpu_affinity(&t, cpuSetSize, cpuSet);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int cpuSetSize,
                                                 unsigned long *cpuSet, nvmlAffinityScope_t scope) {
    ENTER(t, device, ON_ANY);
    REQUIRE(scope == NVML_AFFINITY_SCOPE_NODE || scope == NVML_AFFINITY_SCOPE_SOCKET);
    return cpu_affinity(&t, cpuSetSize, cpuSet);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize,
                                         unsigned long *nodeSet, nvmlAffinityScope_t scope) {
    ENTER(t, device, ON_ANY);
    unsigned node;

    REQUIRE(nodeSet && nodeSetSize > 0 &&
            (scope == NVML_AFFINITY_SCOPE_NODE || scope == NVML_AFFINITY_SCOPE_SOCKET));
    if (t.gpu->numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    node = (unsigned)t.gpu->numa_node;
    memset(nodeSet, 0, nodeSetSize * sizeof(*nodeSet));
    if (node / BITS_PER_LONG < nodeSetSize)
        nodeSet[node / BITS_PER_LONG] |= 1ul << node % BITS_PER_LONG;
    return NVML_SUCCESS;
}

static nvmlReturn_t bind_thread(int node) {
    unsigned long words[sizeof(cpu_set_t) / sizeof(unsigned long)];
    cpu_set_t set;

    near_cpus(node, ELEMENTSOF(words), words);
    memcpy(&set, words, sizeof(set));
    return sched_setaffinity(0, sizeof(set), &set) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device) {
    ENTER(t, device, ON_GPU);
    return bind_thread(t.gpu->numa_node);
}

nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device) {
    ENTER(t, device, ON_GPU);
    return bind_thread(-1);
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int *count,
                                         nvmlDevice_t *deviceArray) {
    ENTER_BOX(t);
    unsigned n = 0, room;

    REQUIRE(count && (*count == 0 || deviceArray) && cpuNumber < CPU_SETSIZE);
    room = *count;
    for (unsigned gpu = 0; gpu < t.box->n_gpus; gpu++) {
        unsigned long words[CPU_SETSIZE / BITS_PER_LONG];

        near_cpus(t.box->file->gpu[gpu].numa_node, ELEMENTSOF(words), words);
        if (!(core_visible() & UINT32_C(1) << gpu) ||
            !(words[cpuNumber / BITS_PER_LONG] & 1ul << cpuNumber % BITS_PER_LONG))
            continue;
        if (n < room)
            deviceArray[n] = handle_of_gpu(gpu);
        n++;
    }
    *count = room ? MIN(n, room) : n;
    return NVML_SUCCESS;
}
