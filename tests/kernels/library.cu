/* SPDX-License-Identifier: Apache-2.0 */
/* What comes with CUDA for the device: cooperative groups, asynchronous copies, CUB's blocks. */
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

extern "C" __global__ void groups(int *out) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int rank = block.thread_rank(), n = block.size();

    out[rank] = cg::reduce(tile, rank, cg::plus<int>());
    if (rank % 3 == 0) {
        auto some = cg::coalesced_threads();

        out[n + rank] = some.size() * 100 + some.thread_rank();
    }
    out[2 * n + rank] = cg::labeled_partition(cg::tiled_partition<32>(block), rank % 4).size();
}

/* Every block adds to the next one's element, again and again, in step. */
extern "C" __global__ void grid_sync(int *data, int rounds) {
    cg::grid_group grid = cg::this_grid();
    int i = grid.thread_rank(), n = grid.size();

    for (int round = 0; round < rounds; round++) {
        int next = data[(i + blockDim.x) % n];

        grid.sync();
        data[i] += next;
        grid.sync();
    }
}

extern "C" __global__ void copy_async(const float4 *in, float4 *out) {
    __shared__ float4 box[128];

    __pipeline_memcpy_async(&box[threadIdx.x], &in[threadIdx.x], sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = box[127 - threadIdx.x];
}

extern "C" __global__ void block_sort(int *keys) {
    typedef cub::BlockRadixSort<int, 128, 4> Sort;
    __shared__ typename Sort::TempStorage storage;
    int mine[4];

    for (int i = 0; i < 4; i++)
        mine[i] = keys[threadIdx.x * 4 + i];
    Sort(storage).Sort(mine);
    for (int i = 0; i < 4; i++)
        keys[threadIdx.x * 4 + i] = mine[i];
}

extern "C" __global__ void block_scan(int *data) {
    typedef cub::BlockScan<int, 128> Scan;
    __shared__ typename Scan::TempStorage storage;
    int v = data[threadIdx.x];

    Scan(storage).InclusiveSum(v, v);
    data[threadIdx.x] = v;
}
