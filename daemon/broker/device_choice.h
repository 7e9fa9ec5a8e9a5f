/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device choice: which devices a request for "n, any" gets, scored and explained.
 *
 * Pure; no allocation. The same input always gives the same devices: ties go to the lower place in
 * `order`, which is the order that CUDA counts in.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/broker/books.h"
#include "daemon/broker/policy.h"

struct device_choice_input {
    uint32_t n_wanted;
    enum choice choose;
    const uint16_t *order; /* slots of the devices on which it fits now */
    uint32_t n_order;
    const uint64_t *free_bytes; /* by slot: what is free for it there */
    struct book *const *books;  /* by slot */
};

struct device_choice {
    uint32_t n_chosen; /* n_wanted, or 0: it does not fit */
    uint8_t chosen[BOOKS_SHARES_MAX];
    char why[192]; /* "pack: the fullest that fits", the links found, and the scores */
};

/*
 * A process sees at most one MIG instance, and no GPU beside it: more than one device is always
 * whole GPUs, and one device is a whole GPU where one fits, else an instance.
 */
void device_choice_decide(struct device_choice *ret, const struct device_choice_input *input);

/* How good the connection of two devices is: 0 none known; larger is faster. */
uint32_t device_choice_link(const struct book *a, const struct book *b);
