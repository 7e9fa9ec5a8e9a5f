/* SPDX-License-Identifier: Apache-2.0 */
/* Checks our tables against the toolkit's header, if there is one. Only the compiler reads this. */
#include <cublas_v2.h>

#include "vendor/cublas_calls.h"

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(__typeof__(&symbol), cublasStatus_t(*) parameters),           \
        #symbol " is declared otherwise");
CUBLAS_CALLS_PLAIN(X)
#undef X

#define X(name, value) _Static_assert(name == value, #name " has another value");
CUBLAS_CONSTANTS(X)
#undef X
_Static_assert(sizeof(cublasOperation_t) == sizeof(int) && sizeof(cublasStatus_t) == sizeof(int) &&
                   sizeof(cublasComputeType_t) == sizeof(int) &&
                   sizeof(cudaDataType) == sizeof(int),
               "we declare the enumerations as int");

#define X(code, name, error, text) _Static_assert(code == name, #name " has another value");
#include "vendor/cublas_codes.h"
#undef X

/* No default: the compiler names the code that the header has and our table lacks. */
int cublas_check_codes(cublasStatus_t code);
int cublas_check_codes(cublasStatus_t code) {
    switch (code) {
    case CUBLAS_STATUS_SUCCESS:
#define X(number, name, error, text) case name:
#include "vendor/cublas_codes.h"
#undef X
        return 0;
    }
    return -1;
}
