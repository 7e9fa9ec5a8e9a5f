/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Immediate mode: the product at once, without a graph; then by hand on the CPU.
 *
 *     Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0
 *     [[22 28] [49 64]]
 */
#include <allot/config.h>
#include <allot/now.h>

#include "guide.h"

int main(void) {
    static const float numbers[] = { 1, 2, 3, 4, 5, 6 };
    struct allot_tensor *a, *b, *c;
    struct allot_error err;

    allot_log_set(print_line, NULL);
    allot_set_log_device_placement(true);
    must(allot_tensor_copy_of(&a, ALLOT_F32, 2, (int64_t[]){ 2, 3 }, numbers, &err), &err);
    must(allot_tensor_copy_of(&b, ALLOT_F32, 2, (int64_t[]){ 3, 2 }, numbers, &err), &err);

    must(allot_now_matmul(&c, a, b, &err), &err);
    print_tensor("", c);

    must(allot_now_set_device("/cpu:0", &err), &err);
    must(allot_now_matmul(&c, a, b, &err), &err);
    print_tensor("", c);

    allot_tensor_unref(a);
    allot_tensor_unref(b);
    allot_now_clear();
    return EXIT_SUCCESS;
}
