/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is PTX text: whatever it is, it is refused with a reason or can be linked, asked about
 * and run. Kernels get no memory but a page of parameters, few blocks and little time.
 */
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "tests/support/sim/ptx/ptx_table.h"
#include "tests/fuzz/fuzz.h"

static unsigned char page[4096];

/* Kernels of hostile text may not end: a sample is cut after so many instructions. */
static void run(struct ptx_function *kernel, struct ptx_memory *memory) {
    struct ptx_attributes attributes;
    struct ptx_result result;
    struct allot_error err = { 0 };
    unsigned char params[32768] = { 0 };
    const uint64_t address = 0x10000;
    struct ptx_launch launch = { .kernel = kernel,
                                 .grid = { 5, 1, 1 },
                                 .block = { 33, 1, 1 },
                                 .dynamic_shared_bytes = 64,
                                 .params = params,
                                 .param_bytes = sizeof(params),
                                 .memory = memory,
                                 .n_threads = 1,
                                 .n_sample_blocks = 2,
                                 .sample_limit = 20000,
                                 .follow_limit = 20000,
                                 .stack_bytes = 4096 };

    for (size_t i = 0; i < ptx_function_n_params(kernel); i++) {
        struct ptx_param param;

        ptx_function_param(kernel, i, &param);
        fuzz_check(param.offset + param.bytes <= sizeof(params));
        if (param.bytes == 8)
            memcpy(params + param.offset, &address, 8);
    }
    if (ptx_function_attributes(kernel, &attributes, &err) < 0) {
        fuzz_check(err.text[0]);
        return;
    }
    if (attributes.required_block[0])
        memcpy(launch.block, attributes.required_block, sizeof(launch.block));
    else if (attributes.max_threads < 33)
        launch.block[0] = attributes.max_threads ? attributes.max_threads : 1;
    for (int i = 0; i < 2; i++) { /* told without computing where it can be, and computed */
        launch.by_samples = i;
        if (ptx_launch(&launch, &result, &err) == 0 && result.fault.kind)
            fuzz_check(result.fault.text[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ptx_module *module;
    struct ptx_table table;
    struct allot_error err = { 0 };
    uint64_t at = 0x100000;
    int r;

    if (size > 1 << 16)
        return 0;
    fuzz_check(ptx_module_new(&module) == 0 && ptx_table_init(&table) == 0);
    r = ptx_module_add(module, "fuzz", (const char *)data, size, &err);
    if (!r)
        r = ptx_module_link(module, &err);
    if (r < 0) {
        fuzz_check(err.text[0] && err.code == r);
    } else {
        fuzz_check(ptx_table_add(&table, &(struct ptx_extent){ 0x10000, sizeof(page), page, 0 }) ==
                   0);
        for (size_t i = 0; i < ptx_module_n_variables(module); i++) {
            struct ptx_variable variable;

            ptx_module_variable(module, i, &variable);
            ptx_module_place(module, i, at);
            if (variable.bytes)
                ptx_table_add(&table, &(struct ptx_extent){ at, variable.bytes, NULL, 0 });
            at += (variable.bytes + 0xffff) & ~UINT64_C(0xffff);
        }
        for (size_t i = 0; i < ptx_module_n_variables(module); i++) {
            struct ptx_variable variable;
            unsigned char *image;

            ptx_module_variable(module, i, &variable);
            if (variable.bytes > 1 << 20)
                continue;
            image = malloc(variable.bytes + 1);
            fuzz_check(image);
            ptx_module_image(module, i, image, variable.bytes, &err);
            free(image);
        }
        for (size_t i = 0; i < ptx_module_n_kernels(module) && i < 8; i++)
            run(ptx_module_kernel(module, i), table.memory);
    }
    ptx_module_free(module);
    ptx_table_done(&table);
    return 0;
}
