/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Slots: a set of devices, each by its slot in the broker's arrays. A plain value.
 */
#include <stdbool.h>
#include <stdint.h>

#define BOOKS_MAX 256 /* devices of a box */

struct slots {
    uint64_t words[BOOKS_MAX / 64];
};

static inline bool slots_has(const struct slots *slots, unsigned slot) {
    return slots->words[slot / 64] >> slot % 64 & 1;
}
static inline void slots_add(struct slots *slots, unsigned slot) {
    slots->words[slot / 64] |= UINT64_C(1) << slot % 64;
}
static inline void slots_remove(struct slots *slots, unsigned slot) {
    slots->words[slot / 64] &= ~(UINT64_C(1) << slot % 64);
}
/* The next after this one, which is -1 to start; -1: no more. */
static inline int slots_next(const struct slots *slots, int after) {
    for (unsigned slot = (unsigned)(after + 1); slot < BOOKS_MAX;) {
        uint64_t word = slots->words[slot / 64] >> slot % 64;

        if (word)
            return (int)(slot + (unsigned)__builtin_ctzll(word));
        slot = (slot / 64 + 1) * 64;
    }
    return -1;
}
