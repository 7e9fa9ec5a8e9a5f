/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/foresee.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/visible.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/lease/offers.h"

enum { GPUS_MAX = TASK_GRAPH_DEVICES_MAX - 1 };

/* Devices without contexts: enough to describe a machine. */
struct visible_gpus {
    struct cuda *cuda;
    struct gpu gpus[GPUS_MAX];
    struct lease_offer offers[GPUS_MAX];
    struct device devices[GPUS_MAX + 1], *list[GPUS_MAX + 1];
    uint32_t n; /* devices, the CPU included */
};

static struct visible_gpus *visible_gpus_free(struct visible_gpus *visible) {
    if (visible)
        cuda_close(visible->cuda);
    free(visible);
    return NULL;
}
DEFINE_FREEP(struct visible_gpus, visible_gpus_freep, visible_gpus_free)

static struct device *add_device(struct visible_gpus *visible, struct gpu *gpu) {
    struct device *device = &visible->devices[visible->n];

    snprintf(device->name, sizeof(device->name), "/job:localhost/replica:0/task:0/device:%s:%u",
             gpu ? DEVICE_GPU_TYPE : DEVICE_CPU_TYPE, gpu ? visible->n - 1 : 0);
    device->is_gpu = gpu != NULL;
    device->gpu = gpu;
    visible->list[visible->n++] = device;
    return device;
}

/* What the daemon would lease now; without a daemon, all of the device. */
static void limit_devices(struct visible_gpus *visible, uint32_t n_seen, uint64_t limit_bytes) {
    struct allot_error ignored;
    bool is_managed;

    for (uint32_t i = 0; i < n_seen; i++)
        visible->offers[i].device = visible->gpus[i].uuid;
    is_managed = n_seen > 0 && lease_offers(visible->offers, n_seen, &ignored) == 0;
    for (uint32_t i = 0; i < n_seen; i++) {
        const struct lease_offer *offer = &visible->offers[i];
        struct device *device;
        size_t total = 0;

        if (is_managed && (!offer->is_ready || offer->free_bytes <= offer->context_bytes))
            continue;
        if (!is_managed)
            cuda_device_total_mem(visible->cuda, NULL, &total, visible->gpus[i].device);
        device = add_device(visible, &visible->gpus[i]);
        device->memory_limit_bytes =
            is_managed ? offer->free_bytes - offer->context_bytes : (uint64_t)total;
        if (limit_bytes)
            device->memory_limit_bytes = MIN(device->memory_limit_bytes, limit_bytes);
    }
}

static int look(struct visible_gpus *visible, const struct foresee_options *options,
                struct allot_error *err) {
    struct driver_options driver = driver_options_read(DRIVER_AUTO);
    cleanup(device_visible_done) struct device_visible chosen = { 0 };
    uint32_t n = 0;
    int r;

    add_device(visible, NULL);
    if (cuda_open(&visible->cuda, &driver, NULL) < 0)
        return 0; /* there is the CPU */
    r = device_visible_make(&chosen, visible->cuda, options->visible_devices, err);
    for (size_t i = 0; r == 0 && i < chosen.n && n < GPUS_MAX; i++) {
        visible->gpus[n] = (struct gpu){ .cuda = visible->cuda, .number = chosen.numbers[i] };
        r = gpu_identify(&visible->gpus[n], err);
        n++;
    }
    if (r == 0)
        limit_devices(visible, n, options->limit_bytes);
    return r;
}

static void report(struct foresee_result *ret, const struct visible_gpus *visible,
                   const struct dynamic_placement *dynamic) {
    const struct task_graph *graph = &dynamic->last.build.graph;
    const struct assignment *plan = &dynamic->last.result.plan;

    *ret = (struct foresee_result){ .step_usec = plan->makespan_usec,
                                    .n_copies = assignment_copies(graph, plan) };
    for (uint32_t d = 1; d < graph->n_devices; d++) {
        struct foresee_gpu *to = &ret->gpus[ret->n_gpus];
        const struct gpu *gpu = visible->list[d]->gpu;

        if (plan->first[d] == plan->first[d + 1])
            continue;
        *to = (struct foresee_gpu){
            .tensor_bytes = plan->peak_bytes[d],
            .context_bytes = visible->offers[gpu - visible->gpus].context_bytes,
        };
        memcpy(to->uuid, gpu->uuid, sizeof(to->uuid));
        ret->n_gpus++;
    }
}

/* The steps of program.c up to the devices; nothing is lowered, as that needs contexts. */
static int plan(struct dynamic_placement *dynamic, const struct program_request *request,
                struct allot_error *err) {
    struct program program = { 0 };
    struct compile compile = { .request = request, .program = &program };
    int r = compile_prune(&compile, err);

    if (r == 0)
        r = compile_shapes(&compile, err);
    if (r == 0 && compile.asks)
        r = error_set(err, -EINVAL, "a shape depends on the value of a feed that was not given");
    if (r == 0)
        r = dynamic_placement_make(dynamic, &compile, err);
    free(program.asked);
    program_plan_free(program.plan);
    compile_done(&compile);
    return r;
}

int foresee_run(struct foresee_result *ret, const struct program_request *request,
                const struct foresee_options *options, struct allot_error *err) {
    cleanup(visible_gpus_freep) struct visible_gpus *visible = calloc(1, sizeof(*visible));
    struct program_request own = *request;
    struct placement placement = { 0 };
    struct dynamic_placement *dynamic = NULL;
    struct allot_error why = { 0 };
    int r = visible ? kernel_register_all(&why) : -ENOMEM;

    if (r == 0)
        r = look(visible, options, &why);
    if (r == 0) {
        own.devices = visible->list;
        own.n_devices = visible->n;
        r = dynamic_placement_new(&dynamic, &options->dynamic, &placement, visible->list,
                                  visible->n, options->n_cpu_threads);
    }
    if (r == 0)
        r = plan(dynamic, &own, &why);
    if (r == 0)
        report(ret, visible, dynamic);
    dynamic_placement_free(dynamic);
    placement_done(&placement);
    return r == 0     ? 0
           : why.code ? error_set(err, r, "%s", why.text)
                      : error_set(err, r, "no host memory for a plan");
}
