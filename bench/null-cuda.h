/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the libcuda of null-cuda.c has beyond the vendor's calls; looked up by name.
 */
enum null_cuda {
    NULL_CUDA_WORKS,  /* every call is the simulator's */
    NULL_CUDA_IDLE,   /* those of a step do nothing */
    NULL_CUDA_COUNTS, /* likewise, and all are counted */
};

struct null_cuda_counts {
    unsigned long long of_a_step, others;
};

/* While no thread calls the driver. The counts are those since the last time. */
void null_cuda_set(enum null_cuda to, struct null_cuda_counts *ret_counts);
