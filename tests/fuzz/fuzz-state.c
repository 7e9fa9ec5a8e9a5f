/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a file. The first byte says how it is to be taken: as it is, or as the payloads of
 * good frames (checksums are made, so that the fuzzer gets behind them), cut into frames where a
 * byte of 0xfe stands. What is read is within bounds, and what is live after it can be read again.
 */
#include <string.h>

#include "base/cleanup.h"
#include "daemon/state/live.h"
#include "daemon/state/scan.h"
#include "tests/fuzz/fuzz.h"

static int apply(void *userdata, const struct record *record, const uint8_t *bytes, size_t size) {
    uint8_t again[RECORD_SIZE_MAX];

    fuzz_check(record_encode(record, again) == size);
    fuzz_check(memcmp(again, bytes, size) == 0);
    fuzz_check(state_live_apply(userdata, record, bytes, size) == 0);
    return 0;
}

static int reread(void *userdata, const uint8_t *bytes, size_t size) {
    struct record record;

    fuzz_check(record_decode(&record, bytes, size) == 0);
    ++*(uint64_t *)userdata;
    return 0;
}

static size_t framed(const uint8_t *data, size_t size, uint8_t **ret) {
    size_t capacity = (STATE_HEAD_SIZE + size * 32 + STATE_CHUNK) / STATE_CHUNK * STATE_CHUNK;
    uint8_t *bytes = calloc(1, capacity + STATE_CHUNK);
    size_t at = STATE_HEAD_SIZE;
    uint64_t sequence = 1;

    fuzz_check(bytes);
    state_scan_write_head(bytes);
    for (size_t from = 0; from < size;) {
        const uint8_t *cut = memchr(data + from, 0xfe, size - from);
        size_t length = cut ? (size_t)(cut - data) - from : size - from;

        memcpy(bytes + at + STATE_FRAME_HEAD, data + from, length);
        at += state_scan_close_frame(bytes + at, length, sequence++);
        from += length + 1;
    }
    *ret = bytes;
    return capacity + STATE_CHUNK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) uint8_t *made = NULL;
    struct state_live live;
    struct state_scan scan;
    uint64_t n = 0, n_live = 0;

    if (size < 1 || size > 1 << 16)
        return 0;
    state_live_init(&live);
    if (data[0] & 1) {
        size = framed(data + 1, size - 1, &made);
        fuzz_check(state_scan(made, size, apply, &live, &scan) == 0);
        fuzz_check(scan.damage == STATE_WHOLE || scan.damage == STATE_CORRUPTED);
    } else {
        fuzz_check(state_scan(data + 1, size - 1, apply, &live, &scan) == 0);
        fuzz_check(scan.end <= size - 1 || scan.end == STATE_HEAD_SIZE);
    }
    fuzz_check(state_live_each(&live, reread, &n) == 0);
    for (size_t i = 0; i < STATE_LIVE_KINDS; i++)
        n_live += live.n[i];
    fuzz_check(n == n_live && n <= scan.n_records);
    state_live_reboot(&live);
    fuzz_check(live.n[RECORD_LEASE] == 0 && live.n[RECORD_HOLDER] == 0);
    state_live_done(&live);
    return 0;
}
