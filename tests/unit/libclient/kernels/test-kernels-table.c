/* SPDX-License-Identifier: Apache-2.0 */
/* Which op has a kernel on which device, for which types. */
#include <string.h>

#include "base/cleanup.h"
#include "libclient/ops/ops.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/kernels/kernel_fixture.h"

static const enum dtype types[] = {
#define X(type, ...) DTYPE_##type,
    DTYPES(X)
#undef X
};

/* Of variables, i32 is the host's alone (as in TensorFlow), and so are two ops. */
static bool is_left_to_the_host(const struct opdef *op, enum dtype dtype) {
    return strcmp(op->name, "ProdGrad") == 0 || strcmp(op->name, "Where") == 0 ||
           (dtype == DTYPE_I32 &&
            (strstr(op->name, "Variable") || strncmp(op->name, "Assign", 6) == 0));
}

START_TEST(gpus_have_what_the_cpu_has) {
    static const struct ops_table *const tables[] = {
        &ops_flow,   &ops_variable, &ops_source, &ops_unary, &ops_binary, &ops_matrix,
        &ops_reduce, &ops_softmax,  &ops_array,  &ops_piece, &ops_like,   &ops_replica,
    };
    size_t n_rows = 0;

    ck_assert_int_eq(kernel_register_all(NULL), 0);
    ck_assert_int_eq(ops_register_all(NULL), 0);
    for (size_t table = 0; table < ELEMENTSOF(tables); table++)
        for (size_t i = 0; i < tables[table]->n; i++) {
            const char *name = tables[table]->rows[i].name;

            for (size_t t = 0; t < ELEMENTSOF(types); t++) {
                cleanup(kernel_fixture_done) struct kernel_fixture fixture = { .n_in = 0 };
                bool on_cpu, on_gpu;

                kernel_fixture_init(&fixture, name);
                if (opdef_attr_index(fixture.node.op, "T") >= 0)
                    kernel_fixture_attr(&fixture, "T", attr_dtype(types[t]));
                on_cpu = kernel_find(&fixture.node, KERNEL_CPU);
                on_gpu = kernel_find(&fixture.node, KERNEL_GPU);
                n_rows += on_gpu;
                ck_assert_msg(on_gpu == (on_cpu && !is_left_to_the_host(fixture.node.op, types[t])),
                              "%s of %s: %son the CPU, %son GPUs", name, dtype_name(types[t]),
                              on_cpu ? "" : "not ", on_gpu ? "" : "not ");
            }
        }
    ck_assert_uint_gt(n_rows, 1000);
}
END_TEST

SUITE("kernels-table", gpus_have_what_the_cpu_has)
