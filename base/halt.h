/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Halt: a flag by which another thread stops a long computation. The computation checks it at every
 * step and, if it is set, returns -ECANCELED with nothing changed and nothing kept.
 */
#include <stdatomic.h>
#include <stdbool.h>

/* NULL: it cannot be stopped. */
static inline bool halt_is_set(const atomic_bool *halt) {
    return halt && atomic_load_explicit(halt, memory_order_relaxed);
}
