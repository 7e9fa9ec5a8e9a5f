/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/record.h"
#include "daemon/state/live.h"
#include "tests/support/suite.h"

/* Objects whose hashed keys agree: `start` is chosen so, by undoing the last step of the hash. */
static uint64_t unmix(uint64_t hash, uint64_t before) {
    uint64_t odd = UINT64_C(0x9e3779b97f4a7c15), inverse = odd;

    for (int i = 0; i < 6; i++)
        inverse *= 2 - odd * inverse;
    return ((hash ^ hash >> 32) * inverse) ^ before;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t start_with_hash(uint64_t lease, int32_t pid, uint64_t hash) {
    return unmix(hash, mix(mix(RECORD_HOLDER, lease), (uint64_t)pid));
}

static int count_live(void *userdata, const uint8_t *bytes, size_t size) {
    ++*(int *)userdata;
    return 0;
}

START_TEST(objects_with_equal_hashes_are_kept_apart) {
    struct state_live live;
    uint8_t bytes[RECORD_SIZE_MAX];
    uint64_t starts[4];

    for (int first = 0; first < 4; first++) {
        int n = 0;

        state_live_init(&live);
        for (int i = 0; i < 4; i++) {
            struct record record = { .kind = RECORD_HOLDER };

            starts[i] = start_with_hash(1, i + 1, 12345);
            record.holder.lease = 1;
            record.holder.pid = i + 1;
            record.holder.start = starts[i];
            ck_assert_int_eq(state_live_apply(&live, &record, bytes, record_encode(&record, bytes)),
                             0);
        }
        ck_assert_uint_eq(live.by_key.n, 1);
        for (int i = 0; i < 4; i++) {
            int which = (first + i) % 4;
            struct record record = { .kind = RECORD_HOLDER_GONE,
                                     .holder_gone = {
                                         .lease = 1, .pid = which + 1, .start = starts[which] } };

            n = 0;
            state_live_each(&live, count_live, &n);
            ck_assert_int_eq(n, 4 - i);
            ck_assert_int_eq(state_live_apply(&live, &record, bytes, record_encode(&record, bytes)),
                             0);
        }
        ck_assert_uint_eq(live.bytes, 0);
        ck_assert_uint_eq(live.by_key.n, 0);
        state_live_done(&live);
    }
}
END_TEST

SUITE("state-live", objects_with_equal_hashes_are_kept_apart)
