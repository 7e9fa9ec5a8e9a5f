/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floats of eight bits, and minima and maxima of several integers: instructions since sm_89 and
 * sm_90, for older cards made of many others. Both ways must give the same.
 */
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void to_small(const float *in, unsigned short *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x, y;

    if (i + 1 >= n)
        return;
    x = in[i];
    y = in[i + 1];
    out += 8 * i;
    out[0] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    out[1] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    out[2] = __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, __NV_E4M3);
    out[3] = __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, __NV_E5M2);
    out[4] = __nv_cvt_halfraw2_to_fp8x2(__floats2half2_rn(x, y), __NV_SATFINITE, __NV_E4M3);
    out[5] = __nv_cvt_halfraw2_to_fp8x2(__floats2half2_rn(x, y), __NV_SATFINITE, __NV_E5M2);
    out[6] = __nv_cvt_bfloat16raw2_to_fp8x2(__floats2bfloat162_rn(x, y), __NV_SATFINITE, __NV_E4M3);
    out[7] = __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2);
}

extern "C" __global__ void from_small(unsigned *out) {
    unsigned i = threadIdx.x;
    unsigned short pair = (unsigned short)(i | (255 - i) << 8);
    __half2_raw a = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
    __half2_raw b = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E5M2);

    out[4 * i] = a.x | (unsigned)a.y << 16;
    out[4 * i + 1] = b.x | (unsigned)b.y << 16;
    out[4 * i + 2] = __nv_cvt_fp8_to_halfraw((unsigned char)i, __NV_E4M3).x;
    out[4 * i + 3] = __nv_cvt_fp8_to_halfraw((unsigned char)i, __NV_E5M2).x;
}

extern "C" __global__ void extremes(const unsigned *in, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned a, b, c;
    bool high, low;

    if (i + 2 >= n)
        return;
    a = in[i];
    b = in[i + 1];
    c = in[i + 2];
    out += 40 * i;
    *out++ = __vimax3_s32(a, b, c);
    *out++ = __vimin3_s32(a, b, c);
    *out++ = __vimax3_u32(a, b, c);
    *out++ = __vimin3_u32(a, b, c);
    *out++ = __vimax3_s16x2(a, b, c);
    *out++ = __vimin3_s16x2(a, b, c);
    *out++ = __vimax3_u16x2(a, b, c);
    *out++ = __vimin3_u16x2(a, b, c);
    *out++ = __vimax3_s32_relu(a, b, c);
    *out++ = __vimin3_s32_relu(a, b, c);
    *out++ = __vimax3_s16x2_relu(a, b, c);
    *out++ = __vimin3_s16x2_relu(a, b, c);
    *out++ = __vimax_s32_relu(a, b);
    *out++ = __vimin_s32_relu(a, b);
    *out++ = __vimax_s16x2_relu(a, b);
    *out++ = __vimin_s16x2_relu(a, b);
    *out++ = __viaddmax_s32(a, b, c);
    *out++ = __viaddmin_s32(a, b, c);
    *out++ = __viaddmax_u32(a, b, c);
    *out++ = __viaddmin_u32(a, b, c);
    *out++ = __viaddmax_s16x2(a, b, c);
    *out++ = __viaddmin_s16x2(a, b, c);
    *out++ = __viaddmax_u16x2(a, b, c);
    *out++ = __viaddmin_u16x2(a, b, c);
    *out++ = __viaddmax_s32_relu(a, b, c);
    *out++ = __viaddmin_s32_relu(a, b, c);
    *out++ = __viaddmax_s16x2_relu(a, b, c);
    *out++ = __viaddmin_s16x2_relu(a, b, c);
    *out++ = __vibmax_s32(a, b, &low);
    *out++ = low;
    *out++ = __vibmin_u32(a, b, &low);
    *out++ = low;
    *out++ = __vibmax_s16x2(a, b, &high, &low);
    *out++ = high * 2 + low;
    *out++ = __vibmin_u16x2(a, b, &high, &low);
    *out++ = high * 2 + low;
}

/* A cluster of one block. Threads of the second warp have arrived when they wait for the first one
 * to be through: only a barrier in two halves lets them all end. */
extern "C" __global__ void cluster(int *out) {
#if __CUDA_ARCH__ >= 900
    __shared__ volatile int through;
    __shared__ int number;
    cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
    unsigned t = threadIdx.x;

    through = 0;
    if (t == 3)
        number = 4711;
    group.sync();
    out[t] = *group.map_shared_rank(&number, 0) + (int)group.query_shared_rank(&number) +
             (int)group.block_rank() + (int)group.num_blocks() + (int)group.thread_rank();
    asm volatile("barrier.cluster.arrive.aligned;");
    while (t >= 32 && !through)
        ;
    asm volatile("barrier.cluster.wait.aligned;");
    if (t == 0)
        through = 1;
    for (int i = 0; i < 5; i++)
        group.sync();
    if (t == 40)
        number = 1;
    group.sync();
    out[64 + t] = number;
#endif
}
