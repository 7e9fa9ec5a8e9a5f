/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is two names of devices with a newline between. What is accepted reads back as the same,
 * and merging two keeps what they agree about.
 */
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/spec.h"
#include "tests/fuzz/fuzz.h"

static void check_text(const struct spec *spec) {
    char text[SPEC_TEXT_SIZE], again[SPEC_TEXT_SIZE];
    struct spec back;

    memset(text, 'x', sizeof(text));
    fuzz_check(spec_format(spec, text) == text && memchr(text, '\0', sizeof(text)));
    fuzz_check(spec_parse(&back, text) == 0);
    fuzz_check(strcmp(spec_format(&back, again), text) == 0);
    fuzz_check(spec_compatible(spec, &back) && spec_is_full(spec) == spec_is_full(&back));
    if (spec_is_full(spec))
        fuzz_check(spec_matches(spec, &back) && spec_matches(&back, spec));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) char *text = malloc(size + 1);
    struct spec a, b, merged;
    char *second;

    fuzz_check(text);
    memcpy(text, data, size);
    text[size] = '\0';
    second = strchr(text, '\n');
    if (second)
        *second++ = '\0';
    if (spec_parse(&a, text) < 0)
        return 0;
    check_text(&a);
    if (!second || spec_parse(&b, second) < 0)
        return 0;
    fuzz_check(spec_compatible(&a, &b) == spec_compatible(&b, &a));
    for (int soft = 0; soft < 2; soft++) {
        const char *what;

        merged = a;
        what = spec_merge(&merged, &b, soft);
        check_text(&merged);
        if (!what && spec_compatible(&a, &b))
            fuzz_check(spec_compatible(&merged, &a) && spec_compatible(&merged, &b));
        fuzz_check(soft || !what == spec_compatible(&a, &b));
    }
    merged = a;
    spec_override(&merged, &b);
    check_text(&merged);
    if (spec_is_full(&merged))
        fuzz_check(spec_matches(&b, &merged));
    return 0;
}
