/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/slots.h"

int slots_next(const struct slots *slots, int after) {
    for (unsigned slot = (unsigned)(after + 1); slot < BOOKS_MAX;) {
        uint64_t word = slots->words[slot / 64] >> slot % 64;

        if (word)
            return (int)(slot + (unsigned)__builtin_ctzll(word));
        slot = (slot / 64 + 1) * 64;
    }
    return -1;
}
