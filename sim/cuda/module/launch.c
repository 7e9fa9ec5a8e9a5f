/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/module/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/module/occupancy.h"
#include "sim/cuda/module/print.h"
#include "sim/cuda/memory/kernel_access.h"
#include "sim/cuda/core/report.h"
#include "sim/cuda/stream/submit.h"

enum {
    SAMPLED_BLOCKS = 4,          /* of a grid on a timing-only box */
    LEAST_STACK_BYTES = 1 << 16, /* our frames are larger than a compiler's */
    GRACE_SECONDS = 2,           /* for kernels of a context that ends */
};

DEFINE_FREEP(struct launch, launch_freep, launch_free)

static uint64_t product(const unsigned n[3]) {
    return (uint64_t)n[0] * n[1] * n[2];
}

static CUresult check_cluster(const struct function *function, const struct launch_shape *shape) {
    const struct cuda_device *device = function->module->context->device;

    if (!shape->cluster[0] && !shape->cluster[1] && !shape->cluster[2])
        return CUDA_SUCCESS;
    if (product(shape->cluster) == 1)
        return CUDA_SUCCESS;
    if (device->model->cc_major < 9)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (product(shape->cluster) == 0 ||
        product(shape->cluster) > (function->settings.nonportable_cluster ? 16 : 8))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    for (int i = 0; i < 3; i++)
        if (shape->grid[i] % shape->cluster[i])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    /* Blocks of a cluster that look for one another would find nothing: an error is better than a
     * wrong result. */
    return function->attributes.uses_clusters ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* The function must be loaded: this reads its attributes. */
static CUresult check_shape(struct function *function, const struct launch_shape *shape) {
    static const unsigned most_grid[3] = { INT32_MAX, 65535, 65535 };
    static const unsigned most_block[3] = { 1024, 1024, 64 };
    const struct ptx_attributes *attributes = &function->attributes;
    const struct cuda_device *device = function->module->context->device;

    for (int i = 0; i < 3; i++)
        if (!shape->grid[i] || !shape->block[i] || shape->grid[i] > most_grid[i] ||
            shape->block[i] > most_block[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (product(shape->block) > MIN(attributes->max_threads, 1024U))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if (attributes->required_block[0] && attributes->required_block[i] != shape->block[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (attributes->shared_bytes > device->model->shared_bytes_per_block ||
        shape->shared_bytes > (unsigned)function_max_dynamic_shared(function))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(check_cluster(function, shape));
    if (shape->cooperative) {
        const uint64_t per_sm = occupancy_blocks(
            attributes, device, (unsigned)product(shape->block), shape->shared_bytes);

        if (product(shape->grid) > per_sm * device->multiprocessors)
            return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    return CUDA_SUCCESS;
}

/* The one buffer that `extra` describes. */
static CUresult read_extra(void **extra, const void **ret, size_t *ret_bytes) {
    const void *buffer = NULL;
    const size_t *bytes = NULL;

    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (!bytes || (!buffer && *bytes))
        return CUDA_ERROR_INVALID_VALUE;
    *ret = buffer;
    *ret_bytes = *bytes;
    return CUDA_SUCCESS;
}

static CUresult copy_arguments(struct launch *launch, void **params, void **extra) {
    const size_t n = ptx_function_n_params(launch->kernel);
    const void *buffer;
    size_t bytes;

    if (params && extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra) {
        TRY(read_extra(extra, &buffer, &bytes));
        if (bytes < launch->param_bytes) /* padding at the end may be there or not */
            return CUDA_ERROR_INVALID_VALUE;
        if (launch->param_bytes)
            memcpy(launch->params, buffer, launch->param_bytes);
        return CUDA_SUCCESS;
    }
    if (n && !params)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        struct ptx_param param;

        ptx_function_param(launch->kernel, i, &param);
        if (!params[i])
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(launch->params + param.offset, params[i], param.bytes);
    }
    return CUDA_SUCCESS;
}

CUresult launch_new(struct launch **ret, struct function *function,
                    const struct launch_shape *shape, void **params, void **extra) {
    cleanup(launch_freep) struct launch *launch = NULL;
    size_t n_params;

    TRY(function_load(function));
    TRY(check_shape(function, shape));
    n_params = ptx_function_n_params(function->code);
    launch = calloc(1, sizeof(*launch) + round_up(function->attributes.param_bytes, 16) +
                           n_params * sizeof(void *));
    if (!launch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    launch->context = function->module->context;
    launch->function = function;
    launch->code = module_code_ref(function->module->code);
    launch->kernel = function->code;
    launch->shape = *shape;
    launch->param_bytes = function->attributes.param_bytes;
    launch->n_params = n_params;
    for (size_t i = 0; i < n_params; i++) {
        struct ptx_param param;

        ptx_function_param(launch->kernel, i, &param);
        launch_pointers(launch)[i] = launch->params + param.offset;
    }
    TRY(copy_arguments(launch, params, extra));
    *ret = TAKE(launch);
    return CUDA_SUCCESS;
}

void **launch_pointers(const struct launch *launch) {
    return (void **)(launch->params + round_up(launch->param_bytes, 16));
}

void launch_free(void *argument) {
    struct launch *launch = argument;

    if (!launch)
        return;
    module_code_unref(launch->code);
    free(launch);
}

/* ---- running ----------------------------------------------------------------------------------
 */

static void on_print(void *user, const char *text, size_t n) {
    print_add(user, text, n);
}

/* malloc() on the device takes from the context's memory, up to its limit. */
static uint64_t on_malloc(void *user, uint64_t bytes) {
    struct context *context = user;
    CUdeviceptr address;

    DRIVER_LOCKED();
    bytes = round_up(MAX(bytes, UINT64_C(1)), 16);
    if (!bytes || bytes > context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] - context->device_heap_bytes ||
        heap_alloc(&context->heap, bytes, &address) != CUDA_SUCCESS)
        return 0;
    context->device_heap_bytes += bytes;
    return address;
}

static void on_free(void *user, uint64_t address) {
    struct context *context = user;
    struct allocation found;

    DRIVER_LOCKED();
    if (!memory_find(address, &found) || found.base != address ||
        found.range->heap != &context->heap)
        return;
    context->device_heap_bytes -= MIN(found.bytes, context->device_heap_bytes);
    heap_free(&found);
}

static CUresult fault_code(enum ptx_fault_kind kind) {
    switch (kind) {
    case PTX_FAULT_NONE:
        return CUDA_SUCCESS;
    case PTX_FAULT_ADDRESS:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case PTX_FAULT_MISALIGNED:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case PTX_FAULT_ASSERT:
        return CUDA_ERROR_ASSERT;
    case PTX_FAULT_INSTRUCTION:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case PTX_FAULT_DEADLOCK:
    case PTX_FAULT_CANCELLED:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    default:
        return CUDA_ERROR_LAUNCH_FAILED;
    }
}

static uint64_t cost_of(const struct launch *launch, const struct ptx_stats *stats) {
    const struct cost_device device = device_cost(launch->context->device);

    return cost_kernel(&device, stats->n_thread_instructions,
                       stats->global_read_bytes + stats->global_write_bytes);
}

uint64_t launch_run(void *argument) {
    const struct launch *launch = argument;
    const struct launch_shape *shape = &launch->shape;
    struct context *context = launch->context;
    struct ptx_result result = { 0 };
    struct allot_error err = { 0 };
    struct ptx_launch run = {
        .kernel = launch->kernel,
        .grid = { shape->grid[0], shape->grid[1], shape->grid[2] },
        .block = { shape->block[0], shape->block[1], shape->block[2] },
        .dynamic_shared_bytes = shape->shared_bytes,
        .params = launch->params,
        .param_bytes = launch->param_bytes,
        .memory = kernel_access_get(context),
        .cancel = &context->cancel,
        .waiting = executor_waiting_flag(),
        .cooperative = shape->cooperative,
        .n_sample_blocks = timing_only() ? SAMPLED_BLOCKS : 0,
        .stack_bytes = (uint32_t)MIN(
            MAX(context->limits[CU_LIMIT_STACK_SIZE], (size_t)LEAST_STACK_BYTES), (size_t)1 << 24),
        .n_sms = context->device->multiprocessors,
        .clock_base = executor_host_ns(driver.executor),
        .user = context,
        .print = timing_only() ? NULL : on_print,
        .heap_alloc = on_malloc,
        .heap_free = on_free,
    };
    int r;

    if (!run.memory) {
        context_fail(context, CUDA_ERROR_OUT_OF_MEMORY);
        return 0;
    }
    atomic_fetch_add(&address_space.n_kernels, 1);
    r = ptx_launch(&run, &result, &err);
    atomic_fetch_sub(&address_space.n_kernels, 1);
    if (r < 0) {
        report_error(launch, err.text);
        context_fail(context, r == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_LAUNCH_FAILED);
        return 0;
    }
    /* Sampled blocks compute with undefined contents, so their faults mean nothing. */
    if (result.fault.kind != PTX_FAULT_NONE && !timing_only()) {
        report_fault(launch, &result.fault);
        context_fail(context, fault_code(result.fault.kind));
    }
    return cost_of(launch, &result.stats);
}

/* ---- streams ----------------------------------------------------------------------------------
 */

void launch_context_end(struct context *context) {
    const struct timespec pause = { .tv_nsec = 1000000 };
    const uint64_t until_ns = box_now_ns() + GRACE_SECONDS * UINT64_C(1000000000);

    while (!context_idle(context) && box_now_ns() < until_ns)
        nanosleep(&pause, NULL);
    atomic_store(&context->cancel, true);
}

struct stream_order launch_order(struct launch *launch) {
    return (struct stream_order){
        .type = CU_GRAPH_NODE_TYPE_KERNEL,
        .run = launch_run,
        .argument = launch,
        .release = launch_free,
        .engine = TIMELINE_COMPUTE,
        .utilization = UTILIZATION_COMPUTE,
    };
}

CUresult launch_submit(struct launch *launch, CUstream stream) {
    const struct stream_order order = launch_order(launch);
    struct context *context = NULL;
    CUresult r = stream_find(stream, NULL, &context);

    if (r == CUDA_SUCCESS && context != launch->context)
        r = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD
                ? CUDA_ERROR_INVALID_CONTEXT
                : CUDA_ERROR_INVALID_HANDLE;
    if (r != CUDA_SUCCESS) {
        launch_free(launch);
        return r;
    }
    r = stream_submit(stream, &order, NULL);
    if (r != CUDA_SUCCESS)
        launch_free(launch);
    return r;
}

/* ---- calls ------------------------------------------------------------------------------------
 */

static CUresult launch(CUfunction handle, const struct launch_shape *shape, CUstream stream,
                       void **params, void **extra) {
    struct function *function;
    struct launch *launch;

    TRY(function_get(handle, &function));
    TRY(context_check(function->module->context));
    TRY(launch_new(&launch, function, shape, params, extra));
    return launch_submit(launch, stream);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void **kernelParams, void **extra) {
    const struct launch_shape shape = {
        .grid = { gridDimX, gridDimY, gridDimZ },
        .block = { blockDimX, blockDimY, blockDimZ },
        .shared_bytes = sharedMemBytes,
    };

    ENTER(context_gpu());
    return launch(f, &shape, hStream, kernelParams, extra);
}
PTSZ(cuLaunchKernel,
     (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared, CUstream s, void **params, void **extra),
     f, gx, gy, gz, bx, by, bz, shared, stream_own(s), params, extra)

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams) {
    const struct launch_shape shape = {
        .grid = { gridDimX, gridDimY, gridDimZ },
        .block = { blockDimX, blockDimY, blockDimZ },
        .shared_bytes = sharedMemBytes,
        .cooperative = true,
    };

    ENTER(context_gpu());
    return launch(f, &shape, hStream, kernelParams, NULL);
}
PTSZ(cuLaunchCooperativeKernel,
     (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared, CUstream s, void **params),
     f, gx, gy, gz, bx, by, bz, shared, stream_own(s), params)

CUresult launch_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue *value,
                          struct launch_shape *shape) {
    switch ((int)id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        shape->cooperative = value->cooperative != 0;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        shape->cluster[0] = value->clusterDim.x;
        shape->cluster[1] = value->clusterDim.y;
        shape->cluster[2] = value->clusterDim.z;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: /* of streams */
        return CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return (unsigned)id < CU_LAUNCH_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                          void **extra) {
    struct launch_shape shape;

    ENTER(context_gpu());
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    shape = (struct launch_shape){
        .grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
        .block = { config->blockDimX, config->blockDimY, config->blockDimZ },
        .shared_bytes = config->sharedMemBytes,
    };
    for (unsigned i = 0; i < config->numAttrs; i++)
        TRY(launch_attribute(config->attrs[i].id, &config->attrs[i].value, &shape));
    return launch(f, &shape, config->hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                               void **extra) {
    CUlaunchConfig own;

    if (!config)
        return cuLaunchKernelEx(config, f, kernelParams, extra);
    own = *config;
    own.hStream = stream_own(own.hStream);
    return cuLaunchKernelEx(&own, f, kernelParams, extra);
}
