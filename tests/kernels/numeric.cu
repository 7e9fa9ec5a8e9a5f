/* SPDX-License-Identifier: Apache-2.0 */
/* What numeric programs are made of. Each has a reference in
 * tests/unit/sim/ptx/exec/test-ptx-kernels.c.
 */

extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        c[i] = a[i] + b[i];
}

extern "C" __global__ void relu4(const float4 *a, float4 *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        float4 v = a[i];

        b[i] = make_float4(fmaxf(v.x, 0), fmaxf(v.y, 0), fmaxf(v.z, 0), fmaxf(v.w, 0));
    }
}

#define TILE 16
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float at[TILE][TILE], bt[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;

    for (int k = 0; k < n; k += TILE) {
        at[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        bt[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += at[threadIdx.y][i] * bt[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

/* One block per row, tree reductions in dynamic shared memory. */
extern "C" __global__ void softmax(const float *in, float *out, int n) {
    extern __shared__ float part[];
    const float *row = in + (size_t)blockIdx.x * n;
    float *result = out + (size_t)blockIdx.x * n, top = -1e30f, sum = 0;

    for (int i = threadIdx.x; i < n; i += blockDim.x)
        top = fmaxf(top, row[i]);
    part[threadIdx.x] = top;
    __syncthreads();
    for (int s = blockDim.x / 2; s; s /= 2) {
        if (threadIdx.x < s)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    top = part[0];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += __expf(row[i] - top);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s; s /= 2) {
        if (threadIdx.x < s)
            part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    sum = part[0];
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        result[i] = __expf(row[i] - top) / sum;
}

/* Warp shuffles, then one atomic per block. */
extern "C" __global__ void reduce(const float *in, float *out, int n) {
    __shared__ float warps[32];
    float sum = 0;

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int s = 16; s; s /= 2)
        sum += __shfl_down_sync(~0u, sum, s);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
        for (int s = 16; s; s /= 2)
            sum += __shfl_down_sync(~0u, sum, s);
        if (threadIdx.x == 0)
            atomicAdd(out, sum);
    }
}

extern "C" __global__ void histogram(const unsigned char *in, unsigned *out, int n) {
    __shared__ unsigned bins[256];

    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&out[i], bins[i]);
}

extern "C" __global__ void sgd(float *w, const float *g, float rate, float decay, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        w[i] -= rate * (g[i] + decay * w[i]);
}

/* The functions of libdevice, at full accuracy. */
extern "C" __global__ void functions(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n)
        return;
    float x = in[i];

    out[i] = sinf(x);
    out[n + i] = cosf(x);
    out[2 * n + i] = expf(x);
    out[3 * n + i] = logf(fabsf(x) + 0.5f);
    out[4 * n + i] = tanhf(x);
    out[5 * n + i] = powf(fabsf(x), 1.7f);
    out[6 * n + i] = sqrtf(fabsf(x));
    out[7 * n + i] = erff(x);
    out[8 * n + i] = atan2f(x, 0.7f);
    out[9 * n + i] = x / 3.7f;
    out[10 * n + i] = rsqrtf(fabsf(x) + 1);
    out[11 * n + i] = cbrtf(x);
}

extern "C" __global__ void functions_double(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n)
        return;
    double x = in[i];

    out[i] = sin(x);
    out[n + i] = exp(x);
    out[2 * n + i] = log(fabs(x) + 0.5);
    out[3 * n + i] = x / 3.7;
    out[4 * n + i] = sqrt(fabs(x));
    out[5 * n + i] = pow(fabs(x), 1.7);
}

extern "C" __global__ void black_scholes(const float *price, const float *strike, float *call,
                                         float *put, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float rate = 0.02f, volatility = 0.3f, years = 1.5f;

    if (i >= n)
        return;
    float root = sqrtf(years);
    float d1 = (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years) /
               (volatility * root);
    float d2 = d1 - volatility * root, discounted = strike[i] * expf(-rate * years);
    float n1 = normcdff(d1), n2 = normcdff(d2);

    call[i] = price[i] * n1 - discounted * n2;
    put[i] = discounted * (1 - n2) - price[i] * (1 - n1);
}
