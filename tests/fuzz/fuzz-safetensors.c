/* SPDX-License-Identifier: Apache-2.0 */
/* An input is a safetensors file. What is read can be written, and reads as the same again. */
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/safetensors.h"
#include "tests/fuzz/fuzz.h"

static int take(struct safetensors *ret, const uint8_t *data, size_t size, uint64_t data_bytes) {
    cleanup(freep) char *head = NULL;
    uint64_t bytes;

    if (size < 8 || safetensors_head_bytes(data, size + data_bytes, &bytes, NULL) < 0 ||
        bytes > size - 8)
        return -1;
    head = malloc(bytes + 1);
    fuzz_check(head);
    memcpy(head, data + 8, bytes);
    return safetensors_parse(ret, head, bytes, size + data_bytes - 8 - bytes, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors file = { 0 }, again = { 0 };
    cleanup(freep) char *text = NULL;
    bool is_foreign = false; /* what is not known here is not written, either */
    uint64_t end = 0;
    size_t n;

    if (take(&file, data, size, 0) < 0)
        return 0;
    for (size_t i = 0; i < file.n; i++) {
        fuzz_check(file.entries[i].begin == end);
        end += file.entries[i].bytes;
        fuzz_check(end <= size);
        is_foreign |= file.entries[i].dtype == DTYPE_NONE;
        fuzz_check((file.entries[i].dtype == DTYPE_NONE) == (file.entries[i].foreign[0] != 0));
    }
    if (is_foreign) {
        safetensors_done(&file);
        return 0;
    }
    fuzz_check(safetensors_format(file.entries, file.n, &text, &n, NULL) == 0);
    fuzz_check(take(&again, (const uint8_t *)text, n, end) == 0);
    fuzz_check(again.n == file.n);
    for (size_t i = 0; i < file.n; i++) {
        const struct safetensors_entry *one = safetensors_find(&again, file.entries[i].name);

        fuzz_check(one && one->dtype == file.entries[i].dtype);
        fuzz_check(shape_equal(&one->shape, &file.entries[i].shape));
        fuzz_check(one->begin == file.entries[i].begin && one->bytes == file.entries[i].bytes);
    }
    safetensors_done(&again);
    safetensors_done(&file);
    return 0;
}
