/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Array: the plan of an op that only moves elements, for any device.
 */
#include "libclient/kernels/cpu_copy.h"

enum { FROM_NUMBER = -1 };

struct cpu_array_move {
    int32_t input; /* or FROM_NUMBER */
    uint32_t output;
    struct cpu_copy copy;
};

struct cpu_array {
    uint64_t number; /* an element's bytes */
    uint32_t n;
    struct cpu_array_move moves[];
};
