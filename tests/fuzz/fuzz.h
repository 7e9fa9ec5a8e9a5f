/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fuzz: what each target defines and libFuzzer, or corpus.c, calls. Returns 0; a broken promise
 * ends the process (fuzz_check).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Holds with NDEBUG too: a fuzzer that checks nothing finds nothing. */
#define fuzz_check(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
