/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

/* Kernels in which the way of every thread follows from numbers alone, for timing without data. All
 * write out[0 … 31] at most, and read it. */
#define KERNEL extern "C" __global__ void

static __device__ __forceinline__ void work(float *out, int n) {
    float x = out[threadIdx.x & 31];

#pragma unroll 1
    for (int i = 0; i < n; i++)
        x = x * 1.0001f + (float)i;
    out[threadIdx.x & 31] = x;
}

KERNEL rare(float *out, int n) {
    work(out, blockIdx.x == gridDim.x / 3 + 17 ? n : 1);
}

KERNEL hashed(float *out, int n) {
    unsigned h = blockIdx.x * 2654435761u;

    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    work(out, (int)(h % (unsigned)n));
}

KERNEL triangle(float *out, int n) {
    if (blockIdx.x < blockIdx.y)
        work(out, n);
}

KERNEL square(float *out, int n) {
    work(out, (int)(blockIdx.x * blockIdx.x % (unsigned)n));
}

KERNEL bounds(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        out[i & 31] = out[(i + 1) & 31] + 1;
}

KERNEL strides(float *out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i & 31] += 2;
}

KERNEL per_thread(float *out, int n) {
    work(out, (int)((blockIdx.x * blockDim.x + threadIdx.x) * 40503u >> 4) % n);
}

KERNEL volume(float *out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
        z = blockIdx.z * blockDim.z + threadIdx.z;

    if (x < n && y < n - 3 && z < n - 5 && (x + y + z) % 3 != 1)
        work(out, z + 1);
}

KERNEL halving(float *out, int n) {
    __shared__ float tile[256];

    tile[threadIdx.x] = out[threadIdx.x & 31];
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s)
            tile[threadIdx.x] += tile[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x < n)
        atomicAdd(out, tile[0]);
}

KERNEL by_warp(float *out, int n) {
    if ((threadIdx.x >> 5) % 3 == blockIdx.x % 3)
        work(out, n);
    else if (__any_sync(0xffffffff, (threadIdx.x & 31) == blockIdx.x % 40))
        work(out, 2 * n);
}

KERNEL chosen(float *out, int n) {
    switch ((blockIdx.x * 7 + 3) % 11) {
    case 0:
        work(out, n);
        break;
    case 1:
        work(out, 2 * n);
        out[1] = 3;
        break;
    case 2:
        out[2] = 4;
        return;
    case 3:
        out[3] = 5;
        work(out, 3 * n);
        break;
    case 4:
        out[4] = 5;
        break;
    case 5:
        work(out, 1);
        break;
    default:
        out[5] = 1;
    }
    out[6] = 1;
}

KERNEL nested(float *out, int n) {
    for (int i = 0; i <= blockIdx.x % 13; i++)
        for (int k = i; k < n; k += 1 + threadIdx.x % 4)
            out[k & 31] += 1;
}

/* ---- functions --------------------------------------------------------------------------------
 */

struct shape {
    float scale;
    int rounds, first;
};

static __device__ __noinline__ int rounds_of(int block, int n) {
    return block % 97 == 5 ? n : block % 7;
}

static __device__ __noinline__ float rounds(float x, shape s) {
#pragma unroll 1
    for (int i = s.first; i < s.rounds; i++)
        x = x * s.scale + i;
    return x;
}

static __device__ __noinline__ int depth(int n) {
    return n <= 1 ? 1 : depth(n - 1) + depth(n - 2);
}

KERNEL calling(float *out, int n) {
    shape s = { out[0], rounds_of(blockIdx.x, n), (int)(threadIdx.x & 3) };

    out[threadIdx.x & 31] = rounds(out[1], s);
}

KERNEL recursive(float *out, int n) {
    out[0] = (float)depth((int)blockIdx.x % n);
}

KERNEL printing(float *out, int n) {
    if (blockIdx.x == n && threadIdx.x == 7) {
        printf("%d\n", n);
        work(out, 100 * n);
    }
}

/* ---- numbers that come through memory ---------------------------------------------------------
 */

static __constant__ int constants[8] = { 1, 2, 4, 8, 16, 32, 64, 512 };

KERNEL from_constants(float *out, int n) {
    work(out, constants[blockIdx.x % 8] * n);
}

KERNEL from_locals(float *out, int n) {
    int table[8] = { 1, 2, 4, 8, 16, 32, 64, 20 * n };

    work(out, table[blockIdx.x % 8]);
}

KERNEL from_shared(float *out, int n) {
    __shared__ int rounds;

    if (threadIdx.x == 0)
        rounds = n * (int)(blockIdx.x % 16);
    __syncthreads();
    work(out, rounds);
}
