/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Release by scope, hand over by TAKE.
 *
 *     cleanup(lease_freep) struct lease *lease = NULL;
 *     ...
 *     *ret = TAKE(lease);
 *     return 0;
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define cleanup(fn) __attribute__((cleanup(fn)))

/* The value of `p`, which is NULL afterwards: ownership passes to the expression that uses TAKE().
 */
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) *take_from_ = &(p);                                                          \
        __typeof__(p) taken_ = *take_from_;                                                        \
        *take_from_ = NULL;                                                                        \
        taken_;                                                                                    \
    })

/* The descriptor in `fd`, which is -1 afterwards. */
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int *take_from_ = &(fd);                                                                   \
        int taken_ = *take_from_;                                                                  \
        *take_from_ = -1;                                                                          \
        taken_;                                                                                    \
    })

/* Defines `name`, for cleanup(), from a free function that accepts NULL. */
#define DEFINE_FREEP(type, name, fn)                                                               \
    static inline void name(type **p) {                                                            \
        fn(*p);                                                                                    \
    }

static inline void freep(void *p) {
    free(*(void **)p);
}

static inline void closep(int *fd) {
    if (*fd >= 0)
        close(*fd);
}

static inline void fclosep(FILE **f) {
    if (*f)
        fclose(*f);
}

#define ELEMENTSOF(array) (sizeof(array) / sizeof((array)[0]))
#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) min_a_ = (a);                                                                \
        __typeof__(b) min_b_ = (b);                                                                \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) max_a_ = (a);                                                                \
        __typeof__(b) max_b_ = (b);                                                                \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                         \
    })
