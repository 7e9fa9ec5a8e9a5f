/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Halt: a flag by which another thread ends a long computation. Whoever computes looks at it at
 * every step, and returns -ECANCELED with nothing done and nothing kept.
 */
#include <stdatomic.h>
#include <stdbool.h>

/* NULL: nobody ends it. */
static inline bool halt_is_set(const atomic_bool *halt) {
    return halt && atomic_load_explicit(halt, memory_order_relaxed);
}
