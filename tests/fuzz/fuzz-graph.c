/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is the file of a graph. The first byte says how it is to be taken: as it is, or with
 * head and checksum put right, so that the fuzzer gets behind them. What is read can be written,
 * and what is written is read again as the same.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "libclient/graph/file.h"
#include "libclient/graph/format.h"
#include "libclient/ops/ops.h"
#include "tests/fuzz/fuzz.h"

static void mend(uint8_t *bytes, size_t size) {
    uint32_t sum;

    if (size < FORMAT_MAGIC_SIZE + 24)
        return;
    memcpy(bytes, FORMAT_MAGIC, FORMAT_MAGIC_SIZE);
    memcpy(bytes + FORMAT_MAGIC_SIZE, (uint8_t[]){ FORMAT_VERSION, 0, 0, 0 }, 4);
    sum = crc32c(0, bytes, size - 4);
    for (int i = 0; i < 4; i++)
        bytes[size - 4 + i] = (uint8_t)(sum >> 8 * i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(graph_unrefp) struct allot_graph *graph = NULL, *again = NULL;
    cleanup(freep) uint8_t *bytes = malloc(size + 1), *one = NULL, *two = NULL;
    size_t one_size, two_size;
    int r;

    fuzz_check(ops_register_all(NULL) == 0);
    fuzz_check(bytes);
    if (size == 0)
        return 0;
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1)
        mend(bytes, size - 1);
    r = graph_decode(&graph, bytes, size - 1, NULL);
    fuzz_check(r <= 0);
    if (r < 0)
        return 0;
    fuzz_check(graph_encode(graph, &one, &one_size, NULL) == 0);
    fuzz_check(graph_decode(&again, one, one_size, NULL) == 0);
    fuzz_check(graph_encode(again, &two, &two_size, NULL) == 0);
    fuzz_check(one_size == two_size && memcmp(one, two, one_size) == 0);
    return 0;
}
