/* SPDX-License-Identifier: Apache-2.0 */
/* An input is one text, tried as each kind of value; what is written must read the same again. */
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) char *text = strndup((const char *)data, size);
    char again[UNITS_TEXT_SIZE];
    struct units_amount amount;
    uint64_t value, back;
    uint32_t share, share_back;

    fuzz_check(text);
    if (units_parse_bytes(&value, text) == 0) {
        fuzz_check(units_parse_bytes(&back, units_format_bytes(value, again)) == 0);
        fuzz_check(back <= value && value - back <= value / 9);
    }
    if (units_parse_permyriad(&share, text) == 0) {
        fuzz_check(share <= 10000);
        fuzz_check(units_parse_permyriad(&share_back, units_format_permyriad(share, again)) == 0);
        fuzz_check(share_back == share);
    }
    if (units_parse_usec(&value, text) == 0) {
        fuzz_check(units_parse_usec(&back, units_format_usec(value, again)) == 0);
        fuzz_check(back <= value && value - back <= value / 2);
    }
    if (units_parse_amount(&amount, text) == 0 && amount.is_share)
        fuzz_check(units_amount_of(&amount, 10000) == amount.permyriad);
    return 0;
}
