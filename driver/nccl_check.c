/* SPDX-License-Identifier: Apache-2.0 */
/* Checks our tables against NCCL's header, if there is one. Only the compiler reads this. */
#define __CUDA_BF16_TYPES_EXIST__ 1 /* the header hides the number of bf16 otherwise */
#include <nccl.h>

#include "vendor/nccl_calls.h"

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), ncclResult_t(*) parameters),  \
                   #symbol " is declared otherwise");
#define X0(needed, since, field, symbol)                                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), ncclResult_t (*)(void)),      \
                   #symbol " is declared otherwise");
NCCL_CALLS(X, X0)
#undef X
#undef X0

#define X(name, value) _Static_assert(name == value, #name " has another value");
NCCL_CONSTANTS(X)
#undef X
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
                   sizeof(ncclRedOp_t) == sizeof(int),
               "we declare the enumerations as int");

#define X(code, name, error, text) _Static_assert(code == name, #name " has another value");
#include "vendor/nccl_codes.h"
#undef X
