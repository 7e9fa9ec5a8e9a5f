/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers that are objects in shared memory. */
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>

using barrier = cuda::barrier<cuda::thread_scope_block>;

/* The first warp makes what the others use, one of two boxes ahead of them. */
extern "C" __global__ void stages(const int *in, int *out, int rounds) {
    __shared__ int box[2][32];
    __shared__ barrier full[2], empty[2];
    int t = threadIdx.x, lane = t % 32;

    if (t == 0)
        for (int i = 0; i < 2; i++) {
            init(&full[i], blockDim.x);
            init(&empty[i], blockDim.x);
        }
    __syncthreads();
    if (t < 32) {
        for (int round = 0; round < rounds; round++) {
            int i = round % 2;

            if (round >= 2)
                empty[i].arrive_and_wait();
            box[i][lane] = in[(blockIdx.x * rounds + round) * 32 + lane];
            (void)full[i].arrive();
        }
    } else {
        int sum = 0;

        for (int round = 0; round < rounds; round++) {
            int i = round % 2;

            full[i].arrive_and_wait();
            sum += box[i][31 - lane] * (round + 1);
            (void)empty[i].arrive();
        }
        out[blockIdx.x * (blockDim.x - 32) + t - 32] = sum;
    }
}

/* Threads leave one after the other; those that stay go on in step. */
extern "C" __global__ void leavers(int *out, int rounds) {
    __shared__ barrier meeting;
    __shared__ int n;
    int t = threadIdx.x;

    if (t == 0) {
        init(&meeting, blockDim.x);
        n = 0;
    }
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        if (t % rounds == round) {
            meeting.arrive_and_drop();
            return;
        }
        atomicAdd(&n, 1);
        meeting.arrive_and_wait();
        if (t % rounds == round + 1)
            out[t] = n;
        if (round + 1 < rounds)
            meeting.arrive_and_wait();
    }
}

/* Copies that a barrier waits for, in two stages. */
extern "C" __global__ void pipelined(const int *in, int *out, int rounds) {
    __shared__ int box[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int t = threadIdx.x, sum = 0;

    for (int made = 0, used = 0; used < rounds; used++) {
        for (; made < rounds && made < used + 2; made++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, box[made % 2], in + made * 128, sizeof(int) * 128, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += box[used % 2][127 - t];
        pipe.consumer_release();
    }
    out[t] = sum;
}
