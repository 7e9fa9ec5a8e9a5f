/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that touch one address, without variables that would lie beside it. */

extern "C" __global__ void write_int(int *p, int value) {
    *p = value;
}

extern "C" __global__ void read_int(const int *p, int *out) {
    *out = *p;
}

extern "C" __global__ void wait_for(volatile int *flag, int *done) {
    while (*flag == 0)
        ;
    *done = 1;
}
