/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/machine_probe.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "driver/nvml.h"
#include "driver/nvml_topology.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"

/* The parts of their nominal rates that programs reach. */
#define MEMORY_PART  0.85
#define PRODUCT_PART 0.80
#define LINK_PART    0.85
/* Feeds and fetches lie in pageable memory, which the driver copies twice. */
#define PAGEABLE_PART 0.5
/* From one kernel to the next on a stream, and what a copy costs besides its bytes. */
#define GPU_LAUNCH_USEC   4.5
#define COPY_LATENCY_USEC 6.0

/* A thread of the host. */
#define CPU_PRODUCTS_PER_USEC 8e3
#define CPU_OPS_PER_USEC      1e3
#define CPU_BYTES_PER_USEC    4e3
#define CPU_MEMORY_THREADS    6 /* as many use up the memory's rate */
#define CPU_LAUNCH_USEC       0.2

/* Lanes of PCIe 3 and links of NVLink carry so many bytes per microsecond each way. */
#define PCIE3_LANE_BYTES    985.0
#define NVLINK1_BYTES       20e3
#define NVLINK_BYTES        25e3
#define PCIE_GENERATION     3u
#define PCIE_WIDTH          16u
#define PCIE_GENERATION_MAX 7u
#define PCIE_WIDTH_MAX      32u

/* What is found out of one GPU before its links are settled. */
struct probed {
    struct nvml_device nvml;
    bool has_nvml;
    double pcie_bytes_per_usec;
    struct nvml_link links[NVML_LINKS_MAX];
    size_t n_links;
    uint32_t uplink; /* the first GPU that is behind the same switch */
};

static int attribute(const struct gpu *gpu, CUdevice_attribute which, int otherwise) {
    int value = 0;

    return cuda_device_get_attribute(gpu->cuda, NULL, &value, which, gpu->device) == 0 && value > 0
               ? value
               : otherwise;
}

/* By compute capability, as the vendor's programming guide lists them. */
static double cores_of(int major, int minor) {
    return (major == 8 && minor == 0) || major == 7 || (major == 6 && minor == 0) ? 64 : 128;
}

static bool has_full_f64(int major, int minor) {
    return minor == 0 && major >= 6 && major <= 9;
}

static double tensor_products_of(int major, int minor) {
    return major >= 9 ? 2048 : major == 8 && minor == 0 ? 1024 : major >= 7 ? 512 : 0;
}

static void probe_gpu(struct machine_device *to, const struct gpu *gpu) {
    int major = attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7);
    int minor = attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    double clocks = attribute(gpu, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000) / 1e3 *
                    (gpu->multiprocessors > 0 ? gpu->multiprocessors : 1);
    double cores = cores_of(major, minor), tensor = tensor_products_of(major, minor);
    double bus_bytes = attribute(gpu, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 256) / 8.0;
    double memory_mhz = attribute(gpu, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 5000000) / 1e3;
    int version = 0;

    cuda_driver_get_version(gpu->cuda, NULL, &version);
    snprintf(to->kind, sizeof(to->kind), "%.80s, %d multiprocessors, CUDA %d", gpu->name,
             gpu->multiprocessors, version);
    to->is_gpu = true;
    to->product_per_usec[MACHINE_F32] = clocks * cores * PRODUCT_PART;
    to->product_per_usec[MACHINE_F64] =
        clocks * (has_full_f64(major, minor) ? cores : 2) * PRODUCT_PART;
    to->product_per_usec[MACHINE_F16] = clocks * (tensor > 0 ? tensor : cores) * PRODUCT_PART;
    to->op_per_usec = clocks * cores;
    to->bytes_per_usec = memory_mhz * 2 * bus_bytes * MEMORY_PART;
    to->launch_usec = GPU_LAUNCH_USEC;
}

/* "Intel(R) Xeon(R) …"; "": the system does not say. */
static void find_cpu_model(char *ret, size_t size) {
    cleanup(fclosep) FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    *ret = '\0';
    while (file && !*ret && fgets(line, sizeof(line), file)) {
        const char *value = strchr(line, ':');

        if (value && strncmp(line, "model name", strlen("model name")) == 0)
            snprintf(ret, size, "%.*s", (int)strcspn(value + 1, "\n"), value + 1);
    }
}

static void probe_cpu(struct machine_device *to, unsigned n_threads) {
    double n = n_threads > 0 ? n_threads : 1;
    char model[128];

    find_cpu_model(model, sizeof(model));
    snprintf(to->kind, sizeof(to->kind), "CPU%s, %u threads", model, n_threads);
    for (int format = 0; format < N_MACHINE_FORMATS; format++)
        to->product_per_usec[format] = n * CPU_PRODUCTS_PER_USEC / (format == MACHINE_F64 ? 2 : 1);
    to->op_per_usec = n * CPU_OPS_PER_USEC;
    to->bytes_per_usec = MIN(n, (double)CPU_MEMORY_THREADS) * CPU_BYTES_PER_USEC;
    to->launch_usec = CPU_LAUNCH_USEC;
    to->memory_bytes = UINT64_MAX; /* the system pages */
}

static void probe_slot(const struct nvml *nvml, const struct gpu *gpu, struct probed *ret) {
    unsigned generation, width;

    ret->has_nvml = nvml && nvml_device_find(nvml, &ret->nvml, gpu->uuid, NULL) == 0;
    if (!ret->has_nvml || nvml_topology_pcie(nvml, &ret->nvml, &generation, &width, NULL) < 0 ||
        generation == 0 || width == 0) {
        generation = PCIE_GENERATION;
        width = PCIE_WIDTH;
    }
    generation = MIN(generation, PCIE_GENERATION_MAX);
    ret->pcie_bytes_per_usec = PCIE3_LANE_BYTES * MIN(width, PCIE_WIDTH_MAX) * LINK_PART *
                               (generation >= 3 ? 1 << (generation - 3) : 0.5);
    if (!ret->has_nvml ||
        nvml_topology_list_links(nvml, &ret->nvml, ret->links, &ret->n_links, NULL) < 0)
        ret->n_links = 0;
}

static bool is_at(const struct gpu *gpu, const struct pci_id *id) {
    return attribute(gpu, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, -1) == id->bus &&
           attribute(gpu, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0) == (int)id->domain;
}

/* NVLinks that lead to the peer, or to a switch that does. */
static double nvlink_bytes(const struct probed *from, const struct gpu *peer) {
    double sum = 0;

    for (size_t i = 0; i < from->n_links; i++) {
        const struct nvml_link *link = &from->links[i];

        if (link->end == NVML_END_SWITCH || (link->has_remote && is_at(peer, &link->remote)))
            sum += link->version == 1 ? NVLINK1_BYTES : NVLINK_BYTES;
    }
    return sum * LINK_PART;
}

static void find_uplinks(const struct nvml *nvml, struct probed *gpus, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        gpus[i].uplink = i;
        for (uint32_t j = 0; j < i; j++) {
            enum nvml_path path;

            if (gpus[i].has_nvml && gpus[j].has_nvml &&
                nvml_topology_path(nvml, &gpus[i].nvml, &gpus[j].nvml, &path, NULL) == 0 &&
                path <= NVML_PATH_SWITCH) {
                gpus[i].uplink = gpus[j].uplink;
                break;
            }
        }
    }
}

static bool has_switch(const struct probed *gpu) {
    for (size_t i = 0; i < gpu->n_links; i++)
        if (gpu->links[i].end == NVML_END_SWITCH)
            return true;
    return false;
}

/* Whether copies between the two can go over PCIe without the host. */
static bool reach_each_other(const struct gpu *from, const struct gpu *to) {
    int value = 0;

    if (cuda_device_get_p2p_attribute(from->cuda, NULL, &value,
                                      CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, from->device,
                                      to->device) < 0 &&
        cuda_device_can_access_peer(from->cuda, NULL, &value, from->device, to->device) < 0)
        return false;
    return value != 0;
}

/* Numbers of media: the lanes by which each GPU sends, both directions of each uplink, and the
 * NVLinks by which a GPU sends if these lead to switches. Those by which it receives are no
 * narrower than its stream for copies. */
enum { SENT, UP, DOWN, FABRIC };

static void share(struct machine *machine, uint32_t from, uint32_t to, uint32_t n, int what,
                  uint32_t number) {
    machine_share(machine, from, to, (uint32_t)what * n + number);
}

static void connect_peers(struct machine *machine, struct device *const *devices,
                          const struct probed *gpus, uint32_t n, uint32_t i, uint32_t j) {
    double there = nvlink_bytes(&gpus[i], devices[j + 1]->gpu);
    double back = nvlink_bytes(&gpus[j], devices[i + 1]->gpu);
    double pcie = MIN(gpus[i].pcie_bytes_per_usec, gpus[j].pcie_bytes_per_usec);

    if (there > 0 && back > 0) {
        machine_connect(machine, i + 1, j + 1, COPY_LATENCY_USEC, MIN(there, back), j);
        if (has_switch(&gpus[i]))
            share(machine, i + 1, j + 1, n, FABRIC, i);
        return;
    }
    machine_connect(machine, i + 1, j + 1, COPY_LATENCY_USEC, pcie, j);
    share(machine, i + 1, j + 1, n, SENT, i);
    /* One switch passes them on, but for GPUs that cannot reach each other: those copies go up to
     * the host's memory, and down again. */
    if (gpus[i].uplink != gpus[j].uplink ||
        !reach_each_other(devices[i + 1]->gpu, devices[j + 1]->gpu)) {
        share(machine, i + 1, j + 1, n, UP, gpus[i].uplink);
        share(machine, i + 1, j + 1, n, DOWN, gpus[j].uplink);
    }
}

static void connect_gpus(struct machine *machine, struct device *const *devices,
                         const struct probed *gpus, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        double host = gpus[i].pcie_bytes_per_usec * PAGEABLE_PART;

        machine_connect(machine, 0, i + 1, COPY_LATENCY_USEC, host, i);
        share(machine, 0, i + 1, n, DOWN, gpus[i].uplink);
        machine_connect(machine, i + 1, 0, COPY_LATENCY_USEC, host, n + i);
        share(machine, i + 1, 0, n, SENT, i);
        share(machine, i + 1, 0, n, UP, gpus[i].uplink);
        for (uint32_t j = 0; j < n; j++)
            if (i != j)
                connect_peers(machine, devices, gpus, n, i, j);
    }
}

/* Costs that were measured with another driver are others. */
static void name_driver(const struct nvml *nvml, struct machine *ret) {
    struct nvml_system system;

    if (!nvml || nvml_system_read(nvml, &system, NULL) < 0)
        return;
    for (uint32_t d = 0; d < ret->n_devices; d++) {
        struct machine_device *to = &ret->devices[d];
        size_t n = strlen(to->kind);

        if (to->is_gpu)
            snprintf(to->kind + n, sizeof(to->kind) - n, ", driver %s", system.driver);
    }
}

void machine_probe(struct machine *ret, struct device *const *devices, uint32_t n_devices,
                   unsigned n_cpu_threads) {
    struct driver_options driver = driver_options_read(DRIVER_AUTO);
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    struct probed gpus[TASK_GRAPH_DEVICES_MAX] = { 0 };

    memset(ret, 0, sizeof(*ret));
    ret->n_devices = MIN(n_devices, (uint32_t)TASK_GRAPH_DEVICES_MAX);
    if (ret->n_devices > 1 && nvml_open(&nvml, &driver, NULL) < 0)
        nvml = NULL;
    for (uint32_t d = 0; d < ret->n_devices; d++) {
        struct machine_device *to = &ret->devices[d];

        snprintf(to->name, sizeof(to->name), "%s", devices[d]->name);
        to->memory_bytes = devices[d]->memory_limit_bytes;
        if (!devices[d]->gpu) {
            probe_cpu(to, n_cpu_threads);
            continue;
        }
        probe_gpu(to, devices[d]->gpu);
        probe_slot(nvml, devices[d]->gpu, &gpus[d - 1]);
    }
    name_driver(nvml, ret);
    find_uplinks(nvml, gpus, ret->n_devices - 1);
    connect_gpus(ret, devices, gpus, ret->n_devices - 1);
}
