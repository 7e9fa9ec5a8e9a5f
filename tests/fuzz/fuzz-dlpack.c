/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a DLManagedTensor of another library: device, type, dimensions, strides, offset. Its
 * memory is as large as its shape says, to the byte, where that is not too much. It is refused and
 * left to its owner, or taken, read, handed on, and given back once.
 */
#include <string.h>

#include "base/cleanup.h"
#include "libclient/allot/tensor.h"
#include "libclient/core/tensor.h"
#include "tests/fuzz/fuzz.h"

#define RANK_MAX  40
#define BYTES_MAX ((int64_t)1 << 16)

/* DLPack's own, version 0. */
struct managed {
    struct {
        void *data;
        int32_t device_type, device_id;
        int32_t ndim;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } tensor;
    void *context;
    void (*deleter)(struct managed *self);
};

static unsigned n_given_back;

static void give_back(struct managed *managed) {
    (void)managed;
    n_given_back++;
}

struct input {
    const uint8_t *at, *end;
};

static uint8_t take(struct input *input) {
    return input->at < input->end ? *input->at++ : 0;
}

/* Small ones mostly, and the ends of what there is. */
static int64_t take_number(struct input *input) {
    static const int64_t odd[] = { -1, INT64_MIN, INT64_MAX, INT64_C(1) << 32, INT64_C(1) << 62 };
    const uint8_t byte = take(input);

    return byte < 0xf0 ? byte % 9 : odd[byte % ELEMENTSOF(odd)];
}

/* Bytes that the shape says; -1: too many for this test, or no shape. */
static int64_t wanted_bytes(const struct managed *managed) {
    int64_t bytes = (managed->tensor.bits + 7) / 8;

    for (int i = 0; i < managed->tensor.ndim && i < RANK_MAX; i++) {
        if (managed->tensor.shape[i] < 0 ||
            __builtin_mul_overflow(bytes, managed->tensor.shape[i], &bytes) || bytes > BYTES_MAX)
            return -1;
    }
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = { data, data + size };
    int64_t shape[RANK_MAX], strides[RANK_MAX];
    struct managed managed = { .deleter = give_back };
    cleanup(freep) char *memory = NULL;
    struct allot_error err = { 0 };
    struct allot_tensor *tensor = NULL;
    int64_t bytes;
    uint8_t flags = take(&input);

    managed.tensor.device_type = flags & 1 ? take(&input) : 1;
    managed.tensor.device_id = take(&input);
    managed.tensor.code = take(&input) % 8;
    managed.tensor.bits = flags & 2 ? take(&input) : (uint8_t)(8 << take(&input) % 4);
    managed.tensor.lanes = flags & 4 ? take(&input) : 1;
    managed.tensor.ndim = flags & 8 ? (int32_t)(int8_t)take(&input) : take(&input) % 5;
    for (int i = 0; i < RANK_MAX; i++) {
        shape[i] = take_number(&input);
        strides[i] = flags & 16 ? take_number(&input) : 0;
    }
    if (!(flags & 16)) { /* dense */
        int64_t stride = 1;

        for (int i = MIN(managed.tensor.ndim, RANK_MAX) - 1; i >= 0; i--) {
            strides[i] = stride;
            if (__builtin_mul_overflow(stride, shape[i] ? shape[i] : 1, &stride))
                stride = 0;
        }
    }
    managed.tensor.shape = flags & 32 ? NULL : shape;
    managed.tensor.strides = flags & 64 ? NULL : strides;
    managed.tensor.byte_offset = flags & 128 ? take(&input) : 0;
    bytes = managed.tensor.shape || managed.tensor.ndim <= 0 ? wanted_bytes(&managed) : 0;
    memory = calloc(1, (bytes > 0 ? (size_t)bytes : 0) + managed.tensor.byte_offset + 1);
    fuzz_check(memory);
    /* Ends where the tensor does. */
    managed.tensor.data = memory + 1;

    n_given_back = 0;
    if (allot_tensor_from_dlpack(&tensor, &managed, &err) < 0) {
        fuzz_check(err.code < 0 && *err.text && n_given_back == 0);
        return 0;
    }
    fuzz_check(bytes >= 0 || tensor_data(tensor) == memory + 1 + managed.tensor.byte_offset);
    if (bytes >= 0) {
        void *again;
        unsigned sum = 0;

        fuzz_check((int64_t)tensor->bytes == bytes);
        for (size_t i = 0; i < tensor->bytes; i++)
            sum += ((unsigned char *)tensor_data(tensor))[i];
        fuzz_check(sum == 0);
        fuzz_check(allot_tensor_to_dlpack(tensor, &again, &err) == 0);
        fuzz_check(((struct managed *)again)->tensor.ndim == managed.tensor.ndim);
        ((struct managed *)again)->deleter(again);
    }
    fuzz_check(n_given_back == 0);
    allot_tensor_unref(tensor);
    fuzz_check(n_given_back == 1);
    return 0;
}
