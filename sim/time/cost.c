/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/time/cost.h"

#include "base/cleanup.h"

/* From the start of a kernel to its first instruction and from its last to the next one. */
#define KERNEL_LATENCY_NS 2000
/* The latency of a copy over a link, whatever its size. */
#define COPY_LATENCY_NS 6000
/* The part of a link's or a memory's nominal rate that programs achieve. */
#define EFFICIENCY_PERCENT 85
/* A pageable copy is slower: its bytes are also copied to or from a staging buffer. */
#define PAGEABLE_PERCENT 50
/* The part of its peak that a large matrix product reaches. */
#define GEMM_PERCENT 80

/* n / rate, in nanoseconds; at most three centuries. */
static uint64_t ns(unsigned __int128 n, uint64_t rate_per_second) {
    const unsigned __int128 rate = MAX(rate_per_second, (uint64_t)1);

    if (n / rate >= INT64_MAX / 1000000000)
        return INT64_MAX - 1000000000;
    return (uint64_t)(n * 1000000000u / rate);
}

static uint64_t share(const struct cost_device *device, uint64_t of_whole) {
    return of_whole / device->model->multiprocessors *
           MIN(device->multiprocessors, device->model->multiprocessors);
}

static uint64_t memory_rate(const struct cost_device *device) {
    return share(device, device->model->memory_bytes_per_second / 100 * EFFICIENCY_PERCENT);
}

uint64_t cost_kernel(const struct cost_device *device, uint64_t thread_instructions,
                     uint64_t bytes) {
    const uint64_t rate = (uint64_t)device->multiprocessors *
                          device->model->cores_per_multiprocessor *
                          device->model->sm_clock_max_mhz * 1000000;

    return MAX(ns(thread_instructions, rate), ns(bytes, memory_rate(device))) + KERNEL_LATENCY_NS;
}

uint64_t cost_memory(const struct cost_device *device, uint64_t bytes) {
    return ns(bytes, memory_rate(device)) + KERNEL_LATENCY_NS;
}

/* Bytes per second of PCIe, one direction: 985 MB/s per lane of generation 3, doubling. */
static uint64_t pcie_rate(const struct sim_model *model) {
    return (UINT64_C(985000000) << (model->pcie_generation - 3)) * model->pcie_width / 100 *
           EFFICIENCY_PERCENT;
}

uint64_t cost_host_copy(const struct cost_device *device, uint64_t bytes, bool pinned) {
    return ns(bytes, pcie_rate(device->model) / 100 * (pinned ? 100 : PAGEABLE_PERCENT)) +
           COPY_LATENCY_NS;
}

uint64_t cost_peer_copy(const struct cost_device *from, const struct cost_device *to,
                        unsigned nvlinks, uint64_t bytes) {
    uint64_t rate = MIN(pcie_rate(from->model), pcie_rate(to->model));

    if (nvlinks)
        rate = MIN(from->model->nvlink_bytes_per_second, to->model->nvlink_bytes_per_second) *
               nvlinks / 100 * EFFICIENCY_PERCENT;
    return ns(bytes, rate) + COPY_LATENCY_NS;
}

/* Multiply-adds per multiprocessor and clock, from the vendor's peak figures. */
static unsigned gemm_rate(const struct sim_model *model, enum cost_gemm_type type) {
    const bool ampere_or_later = model->cc_major >= 8;
    const unsigned tensor = model->cc_major >= 9 ? 2048 : model->fp64_full ? 1024 : 512;

    switch (type) {
    case COST_GEMM_F64:
        return model->fp64_full ? model->cores_per_multiprocessor : 2;
    case COST_GEMM_F32:
        return model->cores_per_multiprocessor;
    case COST_GEMM_TF32:
        return ampere_or_later ? tensor / 2 : model->cores_per_multiprocessor;
    case COST_GEMM_F16:
        return tensor;
    case COST_GEMM_I8:
        return tensor * 2;
    }
    return 1;
}

uint64_t cost_gemm(const struct cost_device *device, enum cost_gemm_type type, uint64_t m,
                   uint64_t n, uint64_t k, uint64_t batch, unsigned element_bytes) {
    const unsigned __int128 products = (unsigned __int128)m * n * k * batch;
    const unsigned __int128 elements =
        ((unsigned __int128)m * k + (unsigned __int128)k * n + (unsigned __int128)m * n) * batch;
    const uint64_t rate = (uint64_t)device->multiprocessors * gemm_rate(device->model, type) *
                          device->model->sm_clock_max_mhz * 1000000 / 100 * GEMM_PERCENT;

    return MAX(ns(products, rate), ns(elements * element_bytes, memory_rate(device))) +
           KERNEL_LATENCY_NS;
}
