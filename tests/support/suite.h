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

/* Whether the test runs under a sanitizer, and is to try less: gcc and clang say so in other words.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SUITE_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SUITE_IS_SANITIZED 1
#endif
#endif
#ifndef SUITE_IS_SANITIZED
#define SUITE_IS_SANITIZED 0
#endif

/* Run `n` tests as one suite, each limited to `timeout_seconds`; the exit status for main(). */
int suite_run(const char *name, const TTest *const *tests, size_t n, double timeout_seconds);

#define SUITE_TIMEOUT(name, seconds, ...)                                                          \
    int main(void) {                                                                               \
        const TTest *const tests[] = { __VA_ARGS__ };                                              \
                                                                                                   \
        return suite_run(name, tests, ELEMENTSOF(tests), seconds);                                 \
    }
#define SUITE(name, ...) SUITE_TIMEOUT(name, 30, __VA_ARGS__)
