/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Failing malloc: makes a chosen allocation of the host fail.
 *
 * Every malloc(), calloc(), realloc(), posix_memalign(), aligned_alloc() and strdup() of the code
 * that is linked into the test is counted, on every thread.
 *
 *     for (uint64_t n = 1;; n++) {
 *         failing_malloc_at(n);
 *         r = thing_new(&thing);
 *         if (!failing_malloc_end())
 *             break;                      it went well without meeting the failure
 *         ck_assert_int_eq(r, -ENOMEM);
 *     }
 */
#include <stdbool.h>
#include <stdint.h>

/* From now on the n-th allocation fails, and only that one. */
void failing_malloc_at(uint64_t n);
/* From now on none fails. Whether one did. */
bool failing_malloc_end(void);

/* From now on every mprotect() fails, so that reserved addresses get no memory; or succeeds again.
 */
void failing_malloc_pages(bool fail);
