/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorFlow's own BFC allocator, out of the tensorflow-cpu wheel, over memory that is only
 * addresses. `tf` grows as it is needed, as with allow_growth; -DFIXED gives `tf-fixed`, which takes
 * all of the capacity at its first allocation, as TensorFlow does by default.
 */
#include <cstdint>
#include <memory>

#include "bench/engine.h"
#include "xla/tsl/framework/allocator.h"
#include "xla/tsl/framework/bfc_allocator.h"

#ifdef FIXED
#define NAME   "tf-fixed"
#define GROWTH false
#else
#define NAME   "tf"
#define GROWTH true
#endif

namespace {

struct Device {
    uint64_t capacity, held = 0, peak = 0;
    tsl::BFCAllocator *allocator = nullptr;
};

/* Addresses without memory, since BFC never looks into it, and the same in every process: where a
 * region lies decides which of its chunks fits best. */
constexpr uint64_t kBase = uint64_t{ 1 } << 44, kRegionStep = uint64_t{ 2 } << 20;

class Addresses : public tsl::SubAllocator {
  public:
    explicit Addresses(Device *device) : SubAllocator({}, {}), device_(device) {
    }
    void *Alloc(size_t alignment, size_t bytes, size_t *bytes_received) override {
        void *at = reinterpret_cast<void *>(next_);

        if (bytes > device_->capacity - device_->held)
            return nullptr;
        next_ += (bytes + kRegionStep - 1) / kRegionStep * kRegionStep;
        *bytes_received = bytes;
        device_->held += bytes;
        if (device_->held > device_->peak)
            device_->peak = device_->held;
        return at;
    }
    void Free(void *at, size_t bytes) override {
        device_->held -= bytes;
    }
    bool SupportsCoalescing() const override {
        return false;
    }

  private:
    Device *device_;
    uint64_t next_ = kBase;
};

void *start(uint64_t capacity) {
    Device *device = new Device{ capacity };
    tsl::BFCAllocator::Options options;

    options.allow_growth = GROWTH;
    options.allow_retry_on_failure = false; /* it would sleep for ten seconds */
    device->allocator = new tsl::BFCAllocator(std::make_unique<Addresses>(device), capacity,
                                              "replay", options);
    return device;
}

void end(void *arena) {
    Device *device = static_cast<Device *>(arena);

    delete device->allocator;
    delete device;
}

uint64_t alloc(void *arena, uint64_t bytes) {
    tsl::AllocationAttributes attributes(/*retry_on_failure=*/false,
                                         /*allocation_will_be_logged=*/false, nullptr);

    return reinterpret_cast<uint64_t>(
        static_cast<Device *>(arena)->allocator->AllocateRaw(256, bytes, attributes));
}

void free_block(void *arena, uint64_t block) {
    static_cast<Device *>(arena)->allocator->DeallocateRaw(reinterpret_cast<void *>(block));
}

uint64_t peak_reserved(void *arena) {
    return static_cast<Device *>(arena)->peak;
}

const struct engine bfc = { NAME, start, end, alloc, free_block, peak_reserved, nullptr,
                               nullptr };

}  // namespace

extern "C" __attribute__((visibility("default"))) const struct engine *const replay_engine =
    &bfc;
