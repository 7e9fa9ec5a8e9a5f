/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A definition of every name that libcuda.so.1 exports. They are weak: where another file of the
 * library defines the name, that is the one exported. cuda.h is not included,
 * because nothing here has the real arguments.
 */
#include <stdint.h>

#include "sim/cuda/core/stub.h"

#define EXPORT __attribute__((weak, visibility("default")))

#define FUNCTION(name)                                                                             \
    EXPORT int name(void);                                                                         \
    EXPORT int name(void) {                                                                        \
        return stub_answer(#name);                                                                 \
    }
#define DATA(name, bytes)                                                                          \
    extern char name[bytes];                                                                       \
    EXPORT char name[bytes] __attribute__((aligned(8)));
#include "vendor/cuda_names.def"
#undef FUNCTION
#undef DATA
