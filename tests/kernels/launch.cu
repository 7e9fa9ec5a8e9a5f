/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels as programs launch them, for tests/unit/sim/cuda/module/test-cuda-launch.c and its
 * neighbours. */
#include <cassert>
#include <cstdio>

extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        c[i] = a[i] + b[i];
}

__constant__ float factors[4] = { 1, 2, 3, 4 };
__device__ int counter = 100;
__device__ float table[256];
__managed__ int shared_with_host = 5;

extern "C" __global__ void use_variables(float *out) {
    out[threadIdx.x] = factors[threadIdx.x & 3] + table[threadIdx.x];
    atomicAdd(&counter, 1);
    if (threadIdx.x == 0)
        shared_with_host += 1;
}

/* Parameters of every alignment. */
struct pair {
    char tag;
    double value;
};
extern "C" __global__ void parameters(char a, short b, pair p, int c, long long d, double *out) {
    out[0] = a;
    out[1] = b;
    out[2] = p.tag + p.value;
    out[3] = c;
    out[4] = (double)d;
}

extern "C" __global__ void reverse(int *data) {
    extern __shared__ int box[];

    box[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = box[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(128) bounded(int *out) {
    out[threadIdx.x] = threadIdx.x;
}

extern "C" __global__ void say(int n) {
    if ((int)threadIdx.x < n)
        printf("thread %d of block %d says %s %.2f\n", threadIdx.x, blockIdx.x, "hello", 1.5);
}

extern "C" __global__ void lists(int n, int *sum) {
    int *mine = (int *)malloc(n * sizeof(int)), total = 0;

    if (!mine) {
        atomicAdd(sum + 1, 1);
        return;
    }
    for (int i = 0; i < n; i++)
        mine[i] = i;
    for (int i = 0; i < n; i++)
        total += mine[i];
    atomicAdd(sum, total);
    free(mine);
}

/* Each block writes, all meet, each reads what its neighbour wrote. */
extern "C" __global__ void neighbours(int *data, int *out, volatile unsigned *arrived) {
    if (threadIdx.x == 0) {
        data[blockIdx.x] = blockIdx.x + 1;
        __threadfence();
        atomicAdd((unsigned *)arrived, 1);
        while (*arrived < gridDim.x)
            ;
        out[blockIdx.x] = ((volatile int *)data)[(blockIdx.x + 1) % gridDim.x];
    }
}

extern "C" __global__ void grid_stride(float *x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        x[i] = x[i] * 2 + 1;
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[16][16], right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;

    for (int t = 0; t < n; t += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void sum(const float *x, float *out, int n) {
    __shared__ float part[256];
    float mine = 0;

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += x[i];
    part[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(out, part[0]);
}

extern "C" __global__ void check(int wanted) {
    assert(wanted == (int)threadIdx.x + 1);
}

/* Blocks that differ from one another, but not by what is in memory. */
extern "C" __global__ void alternating(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        float v = x[i];

        for (int k = 0; blockIdx.x % 2 == 0 && k < 200; k++)
            v = v * 1.01f + 0.5f;
        x[i] = v;
    }
}

extern "C" __global__ void below_diagonal(float *x, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;

    if (column <= row && row < n) {
        float v = 0;

        for (int k = 0; k < 64; k++)
            v += x[(row * n + k) % (n * n)];
        x[row * n + column] = v;
    }
}

extern "C" __global__ void rows_of_a_triangle(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0;

    for (int k = 0; i < n && k <= i; k++)
        v += x[k];
    if (i < n)
        out[i] = v;
}
