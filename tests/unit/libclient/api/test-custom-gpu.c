/* SPDX-License-Identifier: Apache-2.0 */
/* Custom ops in PTX, on a GPU of a simulated box. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/custom.h"
#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

/* y[i] = x[i] + 1 for i below n */
static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .entry next(.param .u64 x, .param .u64 y, .param .u64 n)\n"
                          "{\n"
                          " .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<8>; .reg .f32 %f<3>;\n"
                          " ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; ld.param.u64 %d6, [n];\n"
                          " mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
                          " mad.lo.s32 %r5, %r2, %r3, %r4;\n"
                          " cvt.u64.u32 %d7, %r5;\n"
                          " setp.ge.u64 %p, %d7, %d6;\n"
                          " @%p bra DONE;\n"
                          " cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2;\n"
                          " mul.wide.u32 %d3, %r5, 4;\n"
                          " add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;\n"
                          " ld.global.f32 %f1, [%d4]; add.f32 %f2, %f1, 0f3F800000;\n"
                          " st.global.f32 [%d5], %f2;\n"
                          "DONE: ret;\n"
                          "}\n";

static int run_on_gpu(const char *name, int64_t n, float *ret, struct allot_error *err) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session = NULL;
    struct allot_tensor *fed, *got;
    struct allot_graph *graph;
    struct allot_output x, y = { NULL, 0 };
    struct allot_op *op;
    int r;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    x = allot_placeholder(graph, "x", ALLOT_F32, 1, (int64_t[]){ -1 });
    op = allot_op_begin(graph, name, NULL);
    allot_op_input(op, x);
    allot_op_device(op, "/gpu:0");
    ck_assert_msg(allot_op_finish(op, &y.node, err) == 0, "%s", err->text);
    ck_assert_int_eq(allot_tensor_new(&fed, ALLOT_F32, 1, &n, NULL), 0);
    for (int64_t i = 0; i < n; i++)
        ((float *)allot_tensor_data(fed))[i] = (float)i;
    r = allot_session_new(&session, graph, &options, err);
    ck_assert_msg(r == 0, "%s", err->text);
    r = allot_session_run(session, &x, &fed, 1, &y, 1, NULL, 0, &got, err);
    if (r == 0) {
        ck_assert_int_eq(allot_tensor_count(got), n);
        memcpy(ret, allot_tensor_data(got), (size_t)n * sizeof(float));
        allot_tensor_unref(got);
    }
    allot_session_free(session);
    allot_tensor_unref(fed);
    allot_graph_unref(graph);
    return r;
}

START_TEST(a_kernel_in_ptx_runs_on_the_gpu_and_its_fault_is_reported) {
    struct allot_op_options options = { .size = sizeof(options),
                                        .name = "Next",
                                        .signature = "(x: T) -> (y: T); T: {f32}",
                                        .shape = allot_shapes_as_input,
                                        .ptx = ptx,
                                        .ptx_entry = "next",
                                        .block_threads = 64 };
    struct allot_error err = { 0 };
    struct sim_box box;
    float got[1000];

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    ck_assert_msg(allot_op_register(&options, &err) == 0, "%s", err.text);
    ck_assert_msg(run_on_gpu("Next", 1000, got, &err) == 0, "%s", err.text);
    for (int i = 0; i < 1000; i++)
        ck_assert(got[i] == (float)i + 1);
    ck_assert_msg(run_on_gpu("Next", 0, got, &err) == 0, "%s", err.text);

    options.name = "NoSuchKernel";
    options.ptx_entry = "previous";
    ck_assert_int_eq(allot_op_register(&options, &err), 0);
    ck_assert_int_lt(run_on_gpu("NoSuchKernel", 4, got, &err), 0);
    ck_assert_msg(strstr(err.text, "previous"), "%s", err.text);
    options.name = "NoSuchText";
    options.ptx = ".version 7.0\n.target sm_75\n.address_size 64\nnonsense\n";
    ck_assert_int_eq(allot_op_register(&options, &err), 0);
    ck_assert_int_lt(run_on_gpu("NoSuchText", 4, got, &err), 0);
    ck_assert_msg(strstr(err.text, "NoSuchText"), "%s", err.text);
    sim_box_done(&box);
}
END_TEST

SUITE_TIMEOUT("custom-gpu", 120, a_kernel_in_ptx_runs_on_the_gpu_and_its_fault_is_reported)
