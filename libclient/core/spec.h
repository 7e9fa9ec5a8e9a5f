/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Spec: a device name of which parts may be open, as TensorFlow writes them.
 *
 *     /job:worker/replica:0/task:1/device:GPU:0     a full name: every part given
 *     /job:worker/device:GPU:*                      some parts open
 *     /gpu:0  /cpu:0  /device:GPU  GPU:0            short forms of a type and a number
 *
 * Only CPU and GPU have short forms, in either case; any other type stands behind "device:".
 *
 * A plain value, nothing to free, any thread. Texts may come from anywhere.
 */
#include <stdbool.h>
#include <stddef.h>

#define SPEC_WORD_SIZE 64
/* Enough for every spec as text. */
#define SPEC_TEXT_SIZE (2 * SPEC_WORD_SIZE + 96)

struct spec {
    bool has_job, has_replica, has_task, has_type, has_id;
    char job[SPEC_WORD_SIZE];
    char type[SPEC_WORD_SIZE];
    int replica, task, id;
};

/* -EINVAL for what is no spec. The empty text is the spec with every part open. */
int spec_parse(struct spec *ret, const char *text);
/* Canonical; "" where every part is open. Returns `text`. */
const char *spec_format(const struct spec *spec, char text[static SPEC_TEXT_SIZE]);

bool spec_is_full(const struct spec *spec);
/* Whether every part that `wanted` gives is the same in `full`. */
bool spec_matches(const struct spec *wanted, const struct spec *full);
/* Whether no part is given differently in both. */
bool spec_compatible(const struct spec *a, const struct spec *b);

/*
 * The union of what both give. Returns what they disagree about, with `into` unchanged; if `soft`,
 * types and ids that differ are left open instead (a different type leaves both open).
 */
const char *spec_merge(struct spec *into, const struct spec *other, bool soft);

/* Every part that `by` gives replaces that of `into`. */
void spec_override(struct spec *into, const struct spec *by);
