/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's own caching allocator for CUDA, out of the torch wheel (libc10_cuda.so), over
 * fake-cudart.c.
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>

#include "bench/engine.h"

extern "C" void fake_cuda_start(uint64_t bytes);
extern "C" uint64_t fake_cuda_peak(void);

namespace {

void *start(uint64_t capacity) {
    static int arena;

    fake_cuda_start(capacity);
    c10::cuda::CUDACachingAllocator::init(1);
    return &arena;
}

void end(void *) {
    c10::cuda::CUDACachingAllocator::emptyCache();
}

uint64_t alloc(void *, uint64_t bytes) {
    try {
        return reinterpret_cast<uint64_t>(
            c10::cuda::CUDACachingAllocator::raw_alloc(bytes ? bytes : 1));
    } catch (const std::exception &) {
        return 0;
    }
}

void free_block(void *, uint64_t block) {
    c10::cuda::CUDACachingAllocator::raw_delete(reinterpret_cast<void *>(block));
}

uint64_t peak_reserved(void *) {
    return fake_cuda_peak();
}

const struct engine caching = { "torch", start, end, alloc, free_block, peak_reserved, nullptr,
                                nullptr };

}  // namespace

extern "C" __attribute__((visibility("default"))) const struct engine *const replay_engine =
    &caching;
