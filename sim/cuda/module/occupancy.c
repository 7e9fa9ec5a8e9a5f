/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/module/occupancy.h"

#include "base/cleanup.h"
#include "sim/cuda/module/function.h"

enum {
    WARP = 32,
    REGISTER_UNIT = 256, /* registers are given to a warp in such pieces */
    WARP_UNIT = 4,       /* and to as many warps as there are schedulers */
};

/* Shared memory that the system keeps of each block, and the unit it is given in. */
static unsigned reserved_shared(const struct cuda_device *device) {
    return device->model->cc_major >= 8 ? 1024 : 0;
}

static uint64_t shared_of_block(const struct cuda_device *device, uint64_t bytes) {
    return round_up(bytes + reserved_shared(device), device->model->cc_major >= 8 ? 128 : 256);
}

static unsigned by_registers(const struct ptx_attributes *attributes,
                             const struct cuda_device *device, unsigned warps) {
    const unsigned per_warp =
        (unsigned)round_up((uint64_t)MAX(attributes->n_regs, 1U) * WARP, REGISTER_UNIT);
    const unsigned fit =
        device->model->registers_per_multiprocessor / per_warp / WARP_UNIT * WARP_UNIT;

    return fit / warps;
}

unsigned occupancy_blocks(const struct ptx_attributes *attributes, const struct cuda_device *device,
                          unsigned block_threads, uint64_t dynamic_shared_bytes) {
    const struct sim_model *model = device->model;
    const unsigned warps = (block_threads + WARP - 1) / WARP;
    const uint64_t shared =
        shared_of_block(device, attributes->shared_bytes + dynamic_shared_bytes);
    unsigned n = model->max_blocks_per_multiprocessor;

    if (block_threads == 0 || block_threads > MIN(attributes->max_threads, 1024U) ||
        attributes->shared_bytes + dynamic_shared_bytes > model->shared_bytes_per_block_optin)
        return 0;
    n = MIN(n, model->max_threads_per_multiprocessor / WARP / warps);
    n = MIN(n, by_registers(attributes, device, warps));
    if (shared)
        n = (unsigned)MIN((uint64_t)n, model->shared_bytes_per_multiprocessor / shared);
    return n;
}

static CUresult find(CUfunction handle, struct function **ret) {
    struct context *context;

    TRY(context_current(&context));
    TRY(function_get(handle, ret));
    return function_load(*ret);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
    struct function *function;

    ENTER(context_gpu());
    if (!numBlocks || blockSize <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(func, &function));
    *numBlocks = (int)occupancy_blocks(&function->attributes, function->module->context->device,
                                       (unsigned)blockSize, dynamicSMemSize);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
    struct function *function;
    const struct cuda_device *device;
    unsigned most, best = 0, best_size = 0, best_blocks = 0;

    ENTER(context_gpu());
    if (!minGridSize || !blockSize || blockSizeLimit < 0 ||
        flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(func, &function));
    device = function->module->context->device;
    most = MIN(function->attributes.max_threads, 1024U);
    if (blockSizeLimit > 0)
        most = MIN(most, (unsigned)blockSizeLimit);
    /* From the largest down: of equals the largest block wins. */
    for (unsigned size = (most + WARP - 1) / WARP * WARP; size > 0; size -= WARP) {
        const unsigned threads = MIN(size, most);
        const size_t shared =
            blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize((int)threads) : dynamicSMemSize;
        const unsigned blocks = occupancy_blocks(&function->attributes, device, threads, shared);

        if (blocks * threads > best) {
            best = blocks * threads;
            best_size = threads;
            best_blocks = blocks;
        }
        if (best == device->model->max_threads_per_multiprocessor)
            break;
    }
    *blockSize = (int)best_size;
    *minGridSize = (int)(best_blocks * device->multiprocessors);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func,
                                                     blockSizeToDynamicSMemSize, dynamicSMemSize,
                                                     blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
    struct function *function;
    const struct cuda_device *device;
    uint64_t each, used;

    ENTER(context_gpu());
    if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(func, &function));
    device = function->module->context->device;
    if ((unsigned)numBlocks >
        occupancy_blocks(&function->attributes, device, (unsigned)blockSize, 0))
        return CUDA_ERROR_INVALID_VALUE;
    each = device->model->shared_bytes_per_multiprocessor / (unsigned)numBlocks / 128 * 128;
    used = reserved_shared(device) + function->attributes.shared_bytes;
    *dynamicSmemSize =
        each > used ? MIN(each - used, (uint64_t)device->model->shared_bytes_per_block_optin -
                                           function->attributes.shared_bytes)
                    : 0;
    return CUDA_SUCCESS;
}

static CUresult cluster_of(const CUlaunchConfig *config, unsigned *ret) {
    *ret = 1;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            *ret = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
                   config->attrs[i].value.clusterDim.z;
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                            const CUlaunchConfig *config) {
    struct function *function;

    ENTER(context_gpu());
    if (!clusterSize || !config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(func, &function));
    if (function->module->context->device->model->cc_major < 9)
        return CUDA_ERROR_NOT_SUPPORTED;
    *clusterSize = function->settings.nonportable_cluster ? 16 : 8;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                      const CUlaunchConfig *config) {
    struct function *function;
    const struct cuda_device *device;
    unsigned blocks, cluster;

    ENTER(context_gpu());
    if (!numClusters || !config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(func, &function));
    device = function->module->context->device;
    if (device->model->cc_major < 9)
        return CUDA_ERROR_NOT_SUPPORTED;
    TRY(cluster_of(config, &cluster));
    blocks = occupancy_blocks(&function->attributes, device,
                              config->blockDimX * config->blockDimY * config->blockDimZ,
                              config->sharedMemBytes);
    *numClusters = (int)(blocks * device->multiprocessors / cluster);
    return CUDA_SUCCESS;
}
