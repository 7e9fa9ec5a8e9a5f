/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Suite: the main() of a unit test.
 *
 *     SUITE("error", null_is_accepted_everywhere, wrap_puts_the_outer_sentence_first)
 *
 * runs each test in a process of its own (CK_FORK=no for a debugger) and ends with Check's summary.
 */
#include <check.h>
#include <stddef.h>

#include "base/cleanup.h"

/* Run `n` tests as one suite, each limited to `timeout_seconds`; the exit status for main(). */
int suite_run(const char *name, const TTest *const *tests, size_t n, double timeout_seconds);

#define SUITE_TIMEOUT(name, seconds, ...)                                                          \
    int main(void) {                                                                               \
        const TTest *const tests[] = { __VA_ARGS__ };                                              \
                                                                                                   \
        return suite_run(name, tests, ELEMENTSOF(tests), seconds);                                 \
    }
#define SUITE(name, ...) SUITE_TIMEOUT(name, 30, __VA_ARGS__)
