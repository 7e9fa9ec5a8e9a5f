/* SPDX-License-Identifier: Apache-2.0 */
/* Checks our tables against the vendor's header. Only the compiler reads this. */
#define __CUDA_API_VERSION_INTERNAL /* declares each name that the library has, old ones too */
#include <cuda.h>

#include "driver/cuda_calls.h"

#define X(needed, since, where, field, symbol, parameters, arguments)                              \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters),      \
                   #symbol " is declared otherwise");
#define X0(needed, since, where, field, symbol)                                                    \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult (*)(void)),          \
                   #symbol " is declared otherwise");
CUDA_CALLS(X, X0)
#undef X
#undef X0

/* The headers whose codes we know exactly; others may have fewer or more. */
#if CUDA_VERSION == 13000 || CUDA_VERSION == 13040
#define CUDA_CODES_OF_HEADER
#define X(code, name, error, text) _Static_assert(code == name, #name " has another value");
#include "driver/cuda_codes.h"
#undef X

/* No default: the compiler names the code that the header has and our table lacks. */
int cuda_check_codes(CUresult code);
int cuda_check_codes(CUresult code) {
    switch (code) {
    case CUDA_SUCCESS:
#define X(number, name, error, text) case name:
#include "driver/cuda_codes.h"
#undef X
        return 0;
    }
    return -1;
}
#endif
