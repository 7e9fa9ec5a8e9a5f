/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "tests/support/cudalib.h"
#include "tests/support/gate.h"
#include "tests/support/suite.h"

static void count(void *argument) {
    (*(atomic_int *)argument)++;
}

START_TEST(a_slow_callback_holds_up_its_stream_but_not_the_caller) {
    CUstream busy, idle;
    CUevent event;
    struct gate gate = GATE_INIT;
    atomic_int n = 0;
    struct simbox s;

    cudalib_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuStreamCreate)(&busy, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuStreamCreate)(&idle, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuEventCreate)(&event, 0));
    ck_assert_cuda_ok(CU(cuEventQuery)(event)); /* never recorded */
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(busy, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(busy, count, &n));
    ck_assert_cuda_ok(CU(cuEventRecord)(event, busy));
    gate_await(&gate);
    ck_assert_cuda(CU(cuStreamQuery)(busy), CUDA_ERROR_NOT_READY);
    ck_assert_cuda(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
    ck_assert_cuda_ok(CU(cuStreamQuery)(idle));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(idle, event, 0));
    ck_assert_cuda(CU(cuStreamQuery)(idle), CUDA_ERROR_NOT_READY);
    ck_assert_int_eq(n, 0);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(idle));
    ck_assert_int_eq(n, 1);
    ck_assert_cuda_ok(CU(cuEventQuery)(event));
    ck_assert_cuda_ok(CU(cuStreamQuery)(busy));
    simbox_done(&s);
}
END_TEST

SUITE("cuda-stream", a_slow_callback_holds_up_its_stream_but_not_the_caller)
