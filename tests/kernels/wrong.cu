/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that go wrong, each in its own way. */

extern "C" __global__ void write_at(int *p, long long index) {
    if (threadIdx.x == 7)
        p[index] = 1;
}

extern "C" __global__ void read_at(const char *p, long long offset, int *out) {
    out[threadIdx.x] = *(const int *)(p + offset);
}

extern "C" __global__ void shared_at(int index, int *out) {
    __shared__ int box[32];

    box[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = box[index];
}

extern "C" __global__ void trap() {
    if (threadIdx.x == 3)
        asm volatile("trap;");
}

extern "C" __global__ void for_ever(volatile int *p) {
    while (*p == 0)
        ;
}

extern "C" __global__ void busy_for_ever(int *p) {
    unsigned x = 1;

    while (x)
        x = x * 5 + 2;
    *p = x;
}

__device__ __noinline__ int deeper(int n, int *p) {
    int local[32];

    for (int i = 0; i < 32; i++)
        local[i] = n + p[i];
    return deeper(n + 1, local) + local[n & 31];
}

extern "C" __global__ void stack(int *p) {
    *p = deeper(0, p);
}

extern "C" __global__ void lost_barrier(int *p) {
    if (threadIdx.x < 32)
        asm volatile("bar.sync 3, 64;");
    p[threadIdx.x] = 1;
}

typedef void (*nothing)();
extern "C" __global__ void wild_call(nothing f) {
    f();
}
