/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/readings.h"

static struct wire_maybe member(const struct readings *readings, enum readings_index which) {
    return readings->has >> which & 1 ? wire_some(readings->values[which])
                                      : (struct wire_maybe){ 0 };
}

void wire_readings_fill(struct wire_device *ret, const struct readings *readings) {
#define X(group, kind, field) ret->field = member(readings, READING_##field);
    READINGS(X)
#undef X
    ret->minor = member(readings, READING_minor);
    ret->numa = member(readings, READING_numa);
    ret->used_bytes = member(readings, READING_used_bytes);
}
