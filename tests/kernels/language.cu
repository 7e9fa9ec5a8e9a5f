/* SPDX-License-Identifier: Apache-2.0 */
/* What the language offers beside arithmetic. References in
 * tests/unit/sim/ptx/exec/test-ptx-kernels.c.
 */
#include <cassert>
#include <cstdarg>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __noinline__ int factorial(int n) {
    return n < 2 ? 1 : n * factorial(n - 1);
}

__device__ __noinline__ long long fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

/* Recursion with a different depth in every lane. */
extern "C" __global__ void recursion(int *f, long long *g) {
    f[threadIdx.x] = factorial(threadIdx.x % 13);
    g[threadIdx.x] = fibonacci(threadIdx.x % 11);
}

typedef int (*unary)(int);
__device__ int twice(int x) {
    return 2 * x;
}
__device__ int square(int x) {
    return x * x;
}
__device__ int negate(int x) {
    return -x;
}
__device__ unary table[3] = { twice, square, negate };

extern "C" __global__ void pointers(int *out) {
    out[threadIdx.x] = table[threadIdx.x % 3](threadIdx.x);
}

__constant__ int primes[8] = { 2, 3, 5, 7, 11, 13, 17, 19 };
__device__ int counter;
__device__ const char *words[3] = { "zero", "one", "two" };

extern "C" __global__ void variables(int *out) {
    out[threadIdx.x] = primes[threadIdx.x & 7] * 1000 + words[threadIdx.x % 3][threadIdx.x % 3];
    atomicAdd(&counter, 1);
}

struct record {
    char tag;
    double weight;
    int values[5];
    short last;
};

extern "C" __global__ void records(record r, int index, double *out) {
    record copy = r;

    copy.values[threadIdx.x % 5] += index;
    out[threadIdx.x] = copy.weight + copy.values[(threadIdx.x + index) % 5] + copy.tag + copy.last;
}

/* An array that must be in local memory. */
extern "C" __global__ void sort(int *data, int n) {
    int mine[16];

    for (int i = 0; i < 16; i++)
        mine[i] = data[threadIdx.x * 16 + i];
    for (int i = 1; i < n; i++) {
        int key = mine[i], j = i - 1;

        while (j >= 0 && mine[j] > key) {
            mine[j + 1] = mine[j];
            j--;
        }
        mine[j + 1] = key;
    }
    for (int i = 0; i < 16; i++)
        data[threadIdx.x * 16 + i] = mine[i];
}

/* Loops of different length, breaks, switches, early returns, nested. */
extern "C" __global__ void diverge(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, x, sum = 0;

    if (i >= n)
        return;
    x = in[i];
    for (int k = 0; k < x; k++) {
        if (k % 3 == 0)
            continue;
        for (int m = 0; m < k % 5; m++) {
            if ((x + m) % 7 == 6)
                break;
            sum += m * k;
        }
        if (sum > 5000)
            break;
    }
    switch (x % 11) {
    case 0:
        sum += 1;
        break;
    case 1:
        sum ^= 0x55;
    case 2:
        sum -= 7;
        break;
    case 3:
        sum *= 3;
        break;
    case 4:
        out[i] = -1;
        return;
    case 5:
        sum <<= 2;
        break;
    case 6:
        sum |= 1024;
        break;
    case 7:
        sum = -sum;
        break;
    default:
        sum += x;
    }
    out[i] = sum;
}

/* Warps meet again before they vote and shuffle; a divergent part waits for the rest. */
extern "C" __global__ void warps(int *out) {
    int lane = threadIdx.x % 32, v = lane;
    unsigned even, any, same;

    if (lane % 2)
        for (int i = 0; i < lane; i++)
            v += i;
    else
        v = 1000 + lane;
    __syncwarp();
    even = __ballot_sync(~0u, v % 2 == 0);
    any = __any_sync(~0u, v == 1000) | __all_sync(~0u, v >= 0) << 1;
    same = __match_any_sync(~0u, lane / 5);
    out[threadIdx.x] = v;
    out[64 + threadIdx.x] = even;
    out[128 + threadIdx.x] = any;
    out[192 + threadIdx.x] = same;
    out[256 + threadIdx.x] = __shfl_sync(~0u, v, (lane + 5) % 32);
    out[320 + threadIdx.x] = __shfl_up_sync(~0u, v, 3);
    out[384 + threadIdx.x] = __shfl_xor_sync(~0u, v, 9);
    out[448 + threadIdx.x] = __shfl_down_sync(~0u, v, 2, 8);
    if (lane < 20)
        out[512 + threadIdx.x] = __shfl_sync(0xfffff, v, lane / 2);
    out[576 + threadIdx.x] = __activemask() == ~0u;
}

/* Lanes of one warp take a lock in turn: none may starve. */
extern "C" __global__ void locks(int *lock, int *value) {
    bool done = false;

    while (!done)
        if (atomicCAS(lock, 0, 1) == 0) {
            *value = *(volatile int *)value + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
}

__device__ __noinline__ void acquire(int *lock) {
    while (atomicCAS(lock, 0, 1))
        __nanosleep(10);
}
extern "C" __global__ void locks_in_calls(int *lock, int *value) {
    acquire(lock);
    *value = *(volatile int *)value + 1;
    __threadfence();
    atomicExch(lock, 0);
}

/* The last block to finish adds up: blocks see one another's writes. */
__device__ unsigned finished;
extern "C" __global__ void last_block(const int *in, int *part, int *out, int n) {
    __shared__ int sum;
    __shared__ bool last;

    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int total = 0;

        for (int i = 0; i < gridDim.x; i++)
            total += ((volatile int *)part)[i];
        *out = total;
    }
}

/* Every block waits for all others: they must be resident together. */
extern "C" __global__ void grid_barrier(int *arrived, int *out) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile int *)arrived < gridDim.x)
            ;
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = *(volatile int *)arrived;
}

extern "C" __global__ void atomics(int *i, unsigned *u, unsigned long long *l, float *f,
                                   double *d) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;

    atomicAdd(&i[0], t);
    atomicSub(&i[1], t);
    atomicMin(&i[2], -t);
    atomicMax(&i[3], t);
    atomicAnd(&u[0], ~(1u << t % 32));
    atomicOr(&u[1], 1u << t % 31);
    atomicXor(&u[2], t);
    atomicInc(&u[3], 9);
    atomicDec(&u[4], 100);
    atomicAdd(&l[0], (unsigned long long)t << 33);
    atomicMax(&l[1], (unsigned long long)t << 40);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
}

extern "C" __global__ void halves(const __half2 *a, const __half2 *b, __half2 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n)
        return;
    out[i] = __hadd2(a[i], b[i]);
    out[n + i] = __hmul2(a[i], b[i]);
    out[2 * n + i] = __hfma2(a[i], b[i], a[i]);
    out[3 * n + i] = __floats2half2_rn(__low2float(a[i]) * 3, __high2float(b[i]) - 1);
    out[4 * n + i] = __hlt(__low2half(a[i]), __low2half(b[i])) ? a[i] : b[i];
}

extern "C" __global__ void bfloats(const float *a, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        out[i] =
            __bfloat162float(__float2bfloat16(a[i])) + __bfloat162float(__float2bfloat16(1.5f));
}

extern "C" __global__ void integers(const long long *a, const long long *b, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n)
        return;
    long long x = a[i], y = b[i];

    out[i] = x + y;
    out[n + i] = x * y;
    out[2 * n + i] = y ? x / y : 0;
    out[3 * n + i] = y ? x % y : 0;
    out[4 * n + i] = __mul64hi(x, y);
    out[5 * n + i] = x << (y & 63) ^ (unsigned long long)x >> (y & 31);
    out[6 * n + i] = __popcll(x) + __clzll(x) * 100 + __ffsll(x) * 10000;
    out[7 * n + i] = (int)x * (int)y + (short)x % ((short)y | 1);
    out[8 * n + i] = __byte_perm((int)x, (int)y, 0x2514) + (long long)__brev((int)x);
    out[9 * n + i] =
        (long long)(((unsigned __int128)(unsigned long long)x * (unsigned long long)y) >> 32);
    out[10 * n + i] = (unsigned)x / ((unsigned)y | 1) + (unsigned char)x + (signed char)y;
    out[11 * n + i] =
        (long long)(double)x + (long long)(float)(int)y + (unsigned)(float)(unsigned short)x;
}

extern "C" __global__ void print(int n) {
    if (threadIdx.x < n)
        printf("thread %d of %u: %5.2f %s %c %lld %%\n", threadIdx.x, blockDim.x, threadIdx.x * 1.5,
               threadIdx.x ? "more" : "first", 'a' + threadIdx.x, 1LL << (40 + threadIdx.x));
}

extern "C" __global__ void check(int n) {
    assert(threadIdx.x < n);
}

extern "C" __global__ void heap(int *out) {
    int *mine = (int *)malloc(4 * sizeof(int));

    if (!mine) {
        out[threadIdx.x] = -1;
        return;
    }
    mine[3] = threadIdx.x * 7;
    out[threadIdx.x] = mine[3];
    free(mine);
}

/* Named barriers: producers and consumers. */
extern "C" __global__ void named_barriers(int *out) {
    __shared__ int box[32];
    int lane = threadIdx.x % 32;

    if (threadIdx.x < 32) {
        for (int round = 0; round < 4; round++) {
            asm volatile("bar.sync 2, 64;" ::: "memory");
            box[lane] = round * 100 + lane;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        }
    } else {
        for (int round = 0; round < 4; round++) {
            asm volatile("bar.arrive 2, 64;" ::: "memory");
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[round * 32 + lane] = box[31 - lane];
        }
    }
}

extern "C" __global__ void block_votes(int *out) {
    out[threadIdx.x] = __syncthreads_count(threadIdx.x % 3 == 0);
    out[256 + threadIdx.x] = __syncthreads_and(threadIdx.x < 96);
    out[512 + threadIdx.x] = __syncthreads_or(threadIdx.x == 50);
}

/* Division of 128 bits, which nvcc makes of carry chains that mix sums and differences, and the
 * instructions that see a word as bytes. */
extern "C" __global__ void wide(const unsigned long long *in, unsigned long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        unsigned __int128 a = (unsigned __int128)in[3 * i] << 64 | in[3 * i + 1];
        unsigned __int128 q = a / in[3 * i + 2];
        __int128 r = (__int128)a % (long long)in[3 * i + 2];
        unsigned x = (unsigned)in[3 * i], y = (unsigned)in[3 * i + 1];

        out[5 * i] = (unsigned long long)(q >> 64);
        out[5 * i + 1] = (unsigned long long)q;
        out[5 * i + 2] = (unsigned long long)r;
        out[5 * i + 3] = __vabsdiffu4(x, y);
        out[5 * i + 4] = (unsigned long long)__vsadu4(x, y) << 32 | __vsadu2(x, y);
    }
}

/* Memory on the stack of a size that only the thread knows, under calls and beside them. */
__device__ __noinline__ int stacked(int n, int depth) {
    int *mine = (int *)alloca(n * sizeof(int)), sum = 0;

    for (int i = 0; i < n; i++)
        mine[i] = i * depth;
    sum = depth ? stacked(n % 5 + 1, depth - 1) : 0;
    for (int i = 0; i < n; i++)
        sum += mine[i];
    return sum;
}

extern "C" __global__ void stacks(int *out) {
    int n = threadIdx.x % 9 + 1;
    long long *mine = (long long *)alloca(n * sizeof(long long));

    for (int i = 0; i < n; i++)
        mine[i] = i + 1;
    out[threadIdx.x] = stacked(n, threadIdx.x % 4) + (int)mine[n - 1] + (int)mine[0];
}

/* Arguments without names: of several sizes, none at all, handed on, and between recursive calls.
 */
__device__ __noinline__ double mixed(int n, ...) {
    va_list list;
    double sum = 0;

    va_start(list, n);
    for (int i = 0; i < n; i++)
        sum += i % 3 == 0   ? va_arg(list, int)
               : i % 3 == 1 ? va_arg(list, double)
                            : (double)va_arg(list, long long);
    va_end(list);
    return sum;
}
__device__ __noinline__ int sum_of(int n, va_list list) {
    int sum = 0;

    while (n-- > 0)
        sum += va_arg(list, int);
    return sum;
}
__device__ __noinline__ int deeper(int depth, int n, ...) {
    int below = depth ? deeper(depth - 1, 2, depth, 2 * depth) : 0, sum;
    va_list list;

    va_start(list, n);
    sum = sum_of(n, list);
    va_end(list);
    return below + sum;
}

extern "C" __global__ void variadic(double *out, int x) {
    out[0] = mixed(5, x, 2.5, 1LL << 40, (int)threadIdx.x, 1.25);
    out[1] = deeper(4, 3, x, 1, 2);
    out[2] = mixed(0) + deeper(0, 0);
}
