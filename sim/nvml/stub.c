/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every name of NVML as a weak symbol that answers NOT_SUPPORTED; a real
 * definition in another file wins. Weak symbols have no prototype: this file does not include
 * nvml.h, and the arguments, which stay in the registers of the caller, are not looked at.
 */
#include "sim/nvml/stub.h"

#pragma GCC visibility push(default)
#define X(name)                                                                                    \
    int name(void);                                                                                \
    __attribute__((weak)) int name(void) {                                                         \
        return stub_answer(__func__);                                                              \
    }
#include "sim/nvml/names.def"
#undef X
#pragma GCC visibility pop
