/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/devices/context_seen.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

uint64_t context_seen_of(const struct context_seen *seen, uid_t uid) {
    for (size_t i = 0; i < seen->n; i++)
        if (seen->users[i].uid == uid)
            return seen->users[i].bytes;
    return 0;
}

void context_seen_note(struct context_seen *seen, uid_t uid, uint64_t bytes) {
    size_t i = 0;

    while (i < seen->n && seen->users[i].uid != uid)
        i++;
    if (i == seen->n && seen->n == CONTEXT_SEEN_MAX)
        i = 0;
    if (i < seen->n) {
        memmove(&seen->users[i], &seen->users[i + 1], (seen->n - i - 1) * sizeof(seen->users[0]));
        seen->n--;
    }
    seen->users[seen->n].uid = uid;
    seen->users[seen->n++].bytes = bytes;
}

uint64_t context_seen_clamp(uint64_t bytes, uint64_t usual_bytes) {
    return MIN(MAX(bytes, usual_bytes - usual_bytes / 2), usual_bytes + usual_bytes / 2);
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

uint64_t context_seen_median(const struct context_seen *seen, uint64_t usual_bytes) {
    uint64_t bytes[CONTEXT_SEEN_MAX];

    if (seen->n < CONTEXT_SEEN_LEAST)
        return 0;
    for (size_t i = 0; i < seen->n; i++)
        bytes[i] = seen->users[i].bytes;
    qsort(bytes, seen->n, sizeof(bytes[0]), compare);
    return context_seen_clamp(bytes[(seen->n - 1) / 2], usual_bytes);
}
