/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placed buffers are kept by offset, in a list per bucket of time; a buffer is in the lists of all
 * buckets in which it is live. Each bucket of a new buffer in turn pushes it up, until it collides
 * with nothing in any of them. Buckets are as wide as a life is long on average: then most buffers
 * are in one or two, and the number of steps is about the number of overlapping pairs.
 */
#include "allocator/plan_fit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/halt.h"

/* More buckets than this are not worth their memory. */
#define BUCKETS_MAX 4096

struct laid {
    uint64_t offset, end;
    uint32_t from, to;
};

struct bucket {
    struct laid *laid; /* by offset */
    uint32_t n, n_max;
};

struct plan_fit {
    struct bucket *buckets;
    uint32_t n_buckets, width; /* in columns */
    uint64_t steps;
};

static void fit_done(struct plan_fit *fit) {
    for (uint32_t b = 0; fit->buckets && b < fit->n_buckets; b++)
        free(fit->buckets[b].laid);
    free(fit->buckets);
}

static int fit_init(struct plan_fit *fit, const struct plan_lives *lives) {
    uint64_t lengths = 0, length, least = lives->n_columns / BUCKETS_MAX;

    for (uint32_t i = 0; i < lives->n; i++)
        lengths += lives->life[i].to - lives->life[i].from;
    length = lives->n ? lengths / lives->n : 0;
    fit->width = (uint32_t)MAX(length, least) + 1;
    fit->n_buckets = lives->n_columns / fit->width + 1;
    fit->buckets = calloc(fit->n_buckets, sizeof(*fit->buckets));
    return fit->buckets ? 0 : -ENOMEM;
}

static int bucket_add(struct plan_fit *fit, struct bucket *bucket, const struct laid *laid) {
    uint32_t at = bucket->n;

    if (bucket->n == bucket->n_max) {
        uint32_t n_max = MAX(bucket->n_max * 2, 16u);
        struct laid *larger = reallocarray(bucket->laid, n_max, sizeof(*larger));

        if (!larger)
            return -ENOMEM;
        bucket->laid = larger;
        bucket->n_max = n_max;
    }
    while (at > 0 && bucket->laid[at - 1].offset > laid->offset)
        at--;
    fit->steps += 12 + (bucket->n - at) / 4;
    memmove(&bucket->laid[at + 1], &bucket->laid[at], (bucket->n - at) * sizeof(*laid));
    bucket->laid[at] = *laid;
    bucket->n++;
    return 0;
}

/* The lowest place from `offset` on that collides with no block of this bucket. */
static uint64_t lowest_gap(struct plan_fit *fit, const struct bucket *bucket,
                           const struct plan_life *life, uint64_t offset) {
    uint32_t k = 0;

    for (; k < bucket->n; k++) {
        const struct laid *laid = &bucket->laid[k];

        if (laid->offset >= offset + life->bytes)
            break;
        if (laid->end > offset && laid->from < life->to && life->from < laid->to)
            offset = laid->end;
    }
    fit->steps += 4 + k / 2;
    return offset;
}

int plan_fit_lay(const struct plan_lives *lives, const uint32_t *turns, uint64_t most_bytes,
                 uint64_t steps_max, const atomic_bool *halt, uint64_t *offsets,
                 uint64_t *ret_bytes, uint64_t *ret_steps) {
    cleanup(fit_done) struct plan_fit fit = { 0 };
    uint64_t bytes = 0;
    int r;

    r = fit_init(&fit, lives);
    if (r < 0)
        return r;
    for (uint32_t k = 0; k < lives->n && bytes != UINT64_MAX; k++) {
        const struct plan_life *life = &lives->life[turns[k]];
        uint32_t first = life->from / fit.width, last = (life->to - 1) / fit.width;
        uint64_t offset = 0, before;

        if (halt_is_set(halt))
            return -ECANCELED;
        /* A place that is free in one bucket may collide in another. */
        do {
            before = offset;
            for (uint32_t b = first; b <= last; b++)
                offset = lowest_gap(&fit, &fit.buckets[b], life, offset);
        } while (offset != before && first != last);
        for (uint32_t b = first; b <= last; b++) {
            r = bucket_add(&fit, &fit.buckets[b],
                           &(struct laid){ offset, offset + life->bytes, life->from, life->to });
            if (r < 0)
                return r;
        }
        offsets[turns[k]] = offset;
        bytes = MAX(bytes, offset + life->bytes);
        if (bytes >= most_bytes || fit.steps > steps_max)
            bytes = UINT64_MAX;
    }
    *ret_bytes = bytes;
    *ret_steps = fit.steps;
    return 0;
}
