/* SPDX-License-Identifier: Apache-2.0 */
/* Checks our tables against the vendor's header. Only the compiler reads this. */
#include "driver/nvml_calls.h"

/* Deprecated calls are still the ones that older drivers have. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), nvmlReturn_t(*) parameters),  \
                   #symbol " is declared otherwise");
#define X0(needed, since, field, symbol)                                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), nvmlReturn_t (*)(void)),      \
                   #symbol " is declared otherwise");
NVML_CALLS(X, X0)
#undef X
#undef X0

#define X(code, name, error, text) _Static_assert(code == name, #name " has another value");
#include "driver/nvml_codes.h"
#undef X

/* No default: the compiler names the code that the header has and our table lacks. */
int nvml_check_codes(nvmlReturn_t code);
int nvml_check_codes(nvmlReturn_t code) {
    switch (code) {
    case NVML_SUCCESS:
#define X(number, name, error, text) case name:
#include "driver/nvml_codes.h"
#undef X
        return 0;
    }
    return -1;
}
