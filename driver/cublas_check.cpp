// SPDX-License-Identifier: Apache-2.0
// As cublas_check.c, for the calls with half precision: the vendor's header declares them to C++
// only.
#include <cublas_v2.h>
#include <type_traits>

#define cublas_half __half
#include "vendor/cublas_calls.h"

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    static_assert(std::is_same<decltype(&symbol), cublasStatus_t(*) parameters>::value,            \
                  #symbol " is declared otherwise");
CUBLAS_CALLS_HALF(X)
#undef X
static_assert(sizeof(__half) == sizeof(uint16_t), "we declare it as 16 bits");
