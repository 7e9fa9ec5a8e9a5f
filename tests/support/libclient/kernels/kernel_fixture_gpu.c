/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/kernels/kernel_fixture_gpu.h"

#include <check.h>
#include <stdlib.h>

#include "libclient/device/gpu.h"
#include "tests/support/libclient/kernels/kernel_fixture.h"

#define OK(call) ck_assert_msg((call) == 0, "%s", err.text)

static size_t bytes_of(const struct kernel_value *value) {
    return (size_t)shape_count(&value->shape) * dtype_bytes(value->dtype);
}

/* Whether flat input or output `i` is one of the arguments that lie on the host. */
static bool on_host(const struct kernel_fixture *fixture, const struct opdef_arg *args,
                    size_t n_args, uint32_t i, uint32_t bits) {
    for (size_t k = 0; k < n_args; k++) {
        uint32_t n = args[k].length_attr < 0 ? 1 : (uint32_t)fixture->attrs[args[k].length_attr].i;

        if (i < n)
            return bits >> k & 1;
        i -= n;
    }
    return false;
}

static void *device_block(struct gpu *gpu, size_t bytes, const void *from) {
    struct allot_error err = { 0 };
    CUdeviceptr data;

    OK(cuda_mem_alloc(gpu->cuda, &err, &data, bytes ? bytes : 1));
    if (from && bytes)
        OK(cuda_copy_htod(gpu->cuda, &err, data, from, bytes));
    return (void *)data;
}

void kernel_fixture_run_on_gpu(struct kernel_fixture *fixture, struct gpu *gpu) {
    const struct opdef *op = fixture->node.op;
    const struct kernel *kernel = kernel_find(&fixture->node, KERNEL_GPU);
    struct kernel_plan plan = { .node = &fixture->node,
                                .kernel = kernel,
                                .inputs = fixture->in,
                                .outputs = fixture->out,
                                .n_inputs = fixture->n_in,
                                .n_outputs = fixture->n_out,
                                .gpu = gpu,
                                .random_seed = fixture->seed };
    atomic_bool cancelled = false;
    struct kernel_step step = { .number = fixture->step,
                                .cancelled = &cancelled,
                                .stream = gpu->compute };
    struct kernel_run run = { .step = &step };
    void *in[KERNEL_FIXTURE_VALUES], *out[KERNEL_FIXTURE_VALUES];
    bool in_host[KERNEL_FIXTURE_VALUES], out_host[KERNEL_FIXTURE_VALUES];
    struct allot_error err = { 0 };

    ck_assert_msg(kernel, "%s has no kernel on the GPU", op->name);
    ck_assert_msg(kernel->prepare(&plan, &err) == 0, "%s: %s", op->name, err.text);
    for (uint32_t i = 0; i < fixture->n_in; i++) {
        in_host[i] = on_host(fixture, op->inputs, op->n_inputs, i, kernel->host_inputs);
        in[i] = in_host[i] ? fixture->in_data[i]
                           : device_block(gpu, bytes_of(&fixture->in[i]), fixture->in_data[i]);
    }
    for (uint32_t i = 0; i < fixture->n_out; i++) {
        out_host[i] = on_host(fixture, op->outputs, op->n_outputs, i, kernel->host_outputs);
        out[i] = out_host[i] ? fixture->out_data[i]
                             : device_block(gpu, bytes_of(&fixture->out[i]), NULL);
    }
    run.state = plan.state;
    run.inputs = in;
    run.outputs = out;
    if (plan.scratch_bytes)
        run.scratch = device_block(gpu, plan.scratch_bytes, NULL);
    ck_assert_msg(plan.run(&run) == 0, "%s: %s", op->name, kernel_failure()->text);
    ck_assert_msg(cuda_stream_synchronize(gpu->cuda, &err, gpu->compute) == 0, "%s of %s: %s",
                  op->name, dtype_name(fixture->in[0].dtype), err.text);
    for (uint32_t i = 0; i < fixture->n_out; i++) {
        if (!out_host[i] && bytes_of(&fixture->out[i]))
            OK(cuda_copy_dtoh(gpu->cuda, &err, fixture->out_data[i], (CUdeviceptr)out[i],
                              bytes_of(&fixture->out[i])));
        if (!out_host[i])
            OK(cuda_mem_free(gpu->cuda, &err, (CUdeviceptr)out[i]));
    }
    for (uint32_t i = 0; i < fixture->n_in; i++) {
        if (!in_host[i] && kernel->writes >> i & 1)
            OK(cuda_copy_dtoh(gpu->cuda, &err, fixture->in_data[i], (CUdeviceptr)in[i],
                              bytes_of(&fixture->in[i])));
        if (!in_host[i])
            OK(cuda_mem_free(gpu->cuda, &err, (CUdeviceptr)in[i]));
    }
    if (run.scratch)
        OK(cuda_mem_free(gpu->cuda, &err, (CUdeviceptr)run.scratch));
    if (plan.state_free)
        plan.state_free(plan.state);
    else
        free(plan.state);
}
