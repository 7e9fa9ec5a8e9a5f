/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/allocator/plan_shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/plan_lives.h"
#include "base/cleanup.h"
#include "base/random.h"

#define KIB ((uint64_t)1 << 10)

/* Buffers as they are made, until there are enough of them. */
struct maker {
    struct plan_buffer *buffers;
    size_t n, n_max;
    uint64_t *random;
};

/* One of these in a call at most: which argument is worked out first is the compiler's choice. */
static uint64_t below(struct maker *maker, uint64_t limit) {
    return random_next(maker->random) % limit;
}

static bool more(const struct maker *maker) {
    return maker->n < maker->n_max;
}

static void add(struct maker *maker, uint64_t start, uint64_t end, uint64_t bytes) {
    if (more(maker))
        maker->buffers[maker->n++] = (struct plan_buffer){ start, end, bytes, 0 };
}

/* Between a half and the whole of `bytes`, in granules. */
static uint64_t about(struct maker *maker, uint64_t bytes) {
    uint64_t granules = bytes / 256 / 2 + 1;

    return (granules + below(maker, granules)) * 256;
}

#define SHAPE(name)                                                                                \
    static void name##_shape(struct maker *maker);                                                 \
    static void make_##name(struct plan_buffer *buffers, size_t n, uint64_t *random) {             \
        struct maker maker = { buffers, 0, n, random };                                            \
                                                                                                   \
        name##_shape(&maker);                                                                      \
        if (more(&maker))                                                                          \
            abort();                                                                               \
    }                                                                                              \
    static void name##_shape(struct maker *maker)

/* Each output is read by the next op and no other. */
SHAPE(chain) {
    for (uint64_t t = 0; more(maker); t++)
        add(maker, t, t + 2, about(maker, 256 * KIB << below(maker, 6)));
}

/* Outputs with several readers: most of them near, some far. */
SHAPE(branches) {
    for (uint64_t t = 0; more(maker); t++) {
        uint64_t length = below(maker, 20) ? 1 + below(maker, 6) : 20 + below(maker, 200);

        add(maker, t, t + length, about(maker, (uint64_t)512 << below(maker, 14)));
    }
}

/* Blocks of three convolutions and a sum; maps shrink and channels grow from stage to stage. */
SHAPE(residual) {
    uint64_t t = 0;

    while (more(maker))
        for (unsigned stage = 0; stage < 4; stage++)
            for (unsigned block = 0; block < 3 + stage; block++, t += 4) {
                uint64_t map = 4096 * KIB >> stage;

                add(maker, t, t + 5, map); /* what goes round the block */
                add(maker, t + 1, t + 3, map / 4);
                add(maker, t + 2, t + 4, map / 4);
                add(maker, t + 3, t + 5, map);
                add(maker, t + 1, t + 2, about(maker, 2048 * KIB)); /* workspace */
            }
}

/* The first half of the outputs is read again by the second half, the last of them first. */
static void u_net(struct maker *maker, uint64_t t, uint64_t levels, unsigned convolutions,
                  uint64_t top_bytes, uint64_t least_bytes) {
    uint64_t turn = t + levels * convolutions, end = turn + levels * convolutions;

    for (uint64_t level = 0; level < levels; level++) {
        uint64_t bytes = MAX(top_bytes >> (level * 12 / levels), least_bytes);

        for (unsigned k = 0; k < convolutions; k++) {
            uint64_t down = t + level * convolutions + k, up = end - 1 - (down - t);
            bool skip = k + 1 == convolutions;

            add(maker, down, skip ? up + 1 : down + 2, about(maker, bytes));
            add(maker, down, down + 1, about(maker, bytes * 2)); /* workspace */
            add(maker, up, up + 2, about(maker, bytes));
            add(maker, up, up + 1, about(maker, bytes * 2));
        }
    }
}

SHAPE(u_net) {
    u_net(maker, 0, maker->n_max / 12 + 1, 3, 65536 * KIB, 4 * KIB);
}

/* The same small one again and again, with a state that lives on. */
SHAPE(diffusion) {
    for (uint64_t t = 0; more(maker); t += 96) {
        u_net(maker, t, 12, 4, 16384 * KIB, 64 * KIB);
        add(maker, t, t + 97, 4096 * KIB);
    }
}

/* Four ways from each module's input to the sum of their outputs. */
SHAPE(inception) {
    for (uint64_t t = 0, module = 0; more(maker); module++) {
        uint64_t map = 2048 * KIB >> module % 3, at = t + 1, outputs[4], lengths[4], end;

        for (unsigned way = 0; way < 4; way++) {
            lengths[way] = 1 + below(maker, 4);
            outputs[way] = at + lengths[way] - 1;
            at += lengths[way];
        }
        end = at + 1;
        add(maker, t, outputs[3] + 1 - lengths[3] + 1, map); /* the input, to its last reader */
        for (unsigned way = 0; way < 4; way++)
            for (uint64_t k = outputs[way] + 1 - lengths[way]; k <= outputs[way]; k++)
                add(maker, k, k == outputs[way] ? end : k + 2, about(maker, map / 2));
        t = at;
    }
}

static const struct {
    unsigned start, length, kib;
} layer[] = {
    { 0, 9, 512 }, { 0, 2, 512 }, { 1, 3, 1536 }, { 2, 2, 2048 }, { 3, 2, 2048 },
    { 4, 2, 512 }, { 5, 6, 512 }, { 6, 2, 512 },  { 7, 2, 2048 }, { 8, 2, 2048 },
};

/* The same few sizes again and again, and two sums in each layer. */
SHAPE(transformer) {
    for (uint64_t t = 0; more(maker); t += ELEMENTSOF(layer))
        for (unsigned k = 0; k < ELEMENTSOF(layer); k++)
            add(maker, t + layer[k].start, t + layer[k].start + layer[k].length,
                layer[k].kib * KIB + below(maker, 16) * 256);
}

/* Its training: all of these wait for the way back, where gradients come and go; those of the
 * weights stay to the end. */
SHAPE(transformer_training) {
    uint64_t layers = maker->n_max / (2 * ELEMENTSOF(layer) + 2) + 1;
    uint64_t turn = layers * ELEMENTSOF(layer), end = 2 * turn;

    for (uint64_t l = 0; l < layers; l++) {
        uint64_t t = l * ELEMENTSOF(layer);

        for (unsigned k = 0; k < ELEMENTSOF(layer); k++) {
            uint64_t start = t + layer[k].start, back = end - 1 - start;
            uint64_t bytes = layer[k].kib * KIB + below(maker, 16) * 256;

            add(maker, start, back + 1, bytes);
            add(maker, back, back + layer[k].length, bytes);
        }
        add(maker, end - t - 5, end + 2, 1024 * KIB);
        add(maker, end - t - 9, end + 2, 4096 * KIB);
    }
}

/* Activations live until the way back comes by; and temporaries. */
SHAPE(training) {
    uint64_t half = maker->n_max / 2 + 1;

    for (uint64_t i = 0; i < half; i++) {
        uint64_t at = below(maker, 2 * half), length = 1 + below(maker, 5);
        uint64_t late = below(maker, 4), bytes = (1 + below(maker, 64)) * 64 * KIB;

        add(maker, i, 2 * half - i + late, bytes);
        add(maker, at, at + length, (1 + below(maker, 256)) * 4 * KIB);
    }
}

/* Training that keeps every eighth activation and makes the others again on the way back. */
SHAPE(checkpoints) {
    uint64_t steps = maker->n_max / 23 * 8 + 8, end = 3 * steps;

    for (uint64_t s = 0; s < steps; s += 8) {
        uint64_t back = end - 2 * s - 16;

        add(maker, s, back + 16, about(maker, 2048 * KIB));
        for (uint64_t k = 1; k < 8; k++) {
            add(maker, s + k, s + k + 2, about(maker, 4096 * KIB));
            add(maker, back + k, back + 16 - k, about(maker, 4096 * KIB));
            add(maker, back + 16 - k, back + 18 - k, about(maker, 4096 * KIB));
        }
        add(maker, back, end, about(maker, 256 * KIB));
    }
}

/* Chains side by side, a step of each in turn, each of its own size. */
SHAPE(towers) {
    enum { TOWERS = 48 };

    for (uint64_t t = 0; more(maker); t++) {
        uint64_t steps = below(maker, 4) ? 1 : 2;

        add(maker, t, t + TOWERS * steps + 1, about(maker, 64 * KIB << t % TOWERS % 7));
    }
}

/* A recurrent net unrolled: states hand over, outputs wait for the end. */
SHAPE(recurrent) {
    uint64_t steps = maker->n_max / 4 + 1;

    for (uint64_t t = 0; t < steps; t++) {
        add(maker, 4 * t, 4 * t + 5, 256 * KIB);
        add(maker, 4 * t + 1, 4 * t + 4, 1024 * KIB);
        add(maker, 4 * t + 2, 4 * t + 7, 256 * KIB);
        add(maker, 4 * t + 3, 4 * steps + t % 16, about(maker, 32 * KIB));
    }
}

/* Any two moments. */
SHAPE(long_lives) {
    while (more(maker)) {
        uint64_t a = below(maker, 1000000), b = below(maker, 1000000);

        add(maker, MIN(a, b), MAX(a, b) + 1, (1 + below(maker, 4096)) * 256);
    }
}

/* Sizes and lengths over many magnitudes. */
SHAPE(magnitudes) {
    while (more(maker)) {
        uint64_t start = below(maker, 100000), most = (uint64_t)1 << below(maker, 17);
        uint64_t length = most / 2 + below(maker, most) + 1;

        add(maker, start, start + length, about(maker, (uint64_t)512 << below(maker, 18)));
    }
}

/* Few moments, at each of which very many live. */
SHAPE(crowd) {
    while (more(maker)) {
        uint64_t start = below(maker, 40), length = 1 + below(maker, 12);

        add(maker, start, start + length, (1 + below(maker, 1000)) * 256);
    }
}

/* A box cut into pieces: there is a plan without a gap, hard to find. */
SHAPE(cuts) {
    add(maker, 0, (uint64_t)1 << 40, (uint64_t)1 << 40);
    while (more(maker)) {
        struct plan_buffer *piece = &maker->buffers[below(maker, maker->n)];
        uint64_t length = piece->end - piece->start;

        if (below(maker, 2) && length > 1) {
            uint64_t at = piece->start + 1 + below(maker, length - 1);

            add(maker, at, piece->end, piece->bytes);
            piece->end = at;
        } else if (piece->bytes > 1) {
            uint64_t bytes = 1 + below(maker, piece->bytes - 1);

            add(maker, piece->start, piece->end, bytes);
            piece->bytes -= bytes;
        }
    }
}

/* Holes a little too small: what ends makes room for all but what comes next. */
SHAPE(holes) {
    for (uint64_t t = 0; more(maker); t++) {
        add(maker, t, t + 64, (64 + t % 97) * 256);
        add(maker, t, t + 1 + t % 700, (1 + below(maker, 16)) * 256);
    }
}

/* Like tiles of a roof: each begins while the one before still lives. */
SHAPE(tiles) {
    for (uint64_t t = 0; more(maker); t += 2)
        add(maker, t, t + 3 + below(maker, 2) * 2, (1 + t * 7919 % 1024) * KIB);
}

#define ENTRY(name, graph_like)                                                                    \
    { #name, graph_like, make_##name }
const struct plan_shape plan_shapes[] = {
    ENTRY(chain, true),       ENTRY(branches, true),
    ENTRY(residual, true),    ENTRY(u_net, true),
    ENTRY(diffusion, true),   ENTRY(inception, true),
    ENTRY(transformer, true), ENTRY(transformer_training, true),
    ENTRY(training, true),    ENTRY(checkpoints, true),
    ENTRY(towers, true),      ENTRY(recurrent, true),
    ENTRY(long_lives, false), ENTRY(magnitudes, false),
    ENTRY(crowd, false),      ENTRY(cuts, false),
    ENTRY(holes, false),      ENTRY(tiles, false),
};
const size_t n_plan_shapes = ELEMENTSOF(plan_shapes);

static int compare_bytes(const void *a, const void *b) {
    const struct plan_buffer *x = *(struct plan_buffer *const *)a;
    const struct plan_buffer *y = *(struct plan_buffer *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

uint64_t plan_greedy(struct plan_buffer *buffers, size_t n, enum greedy_gap gap) {
    cleanup(freep) struct plan_buffer **order = calloc(n + 1, sizeof(*order));
    cleanup(freep) struct plan_buffer **laid = calloc(n + 1, sizeof(*laid));
    uint64_t bytes = 0;
    size_t n_order = 0;

    if (!order || !laid)
        abort();
    for (size_t i = 0; i < n; i++)
        if (buffers[i].start < buffers[i].end && buffers[i].bytes)
            order[n_order++] = &buffers[i];
    qsort(order, n_order, sizeof(struct plan_buffer *), compare_bytes);
    for (size_t k = 0; k < n_order; k++) {
        struct plan_buffer *buffer = order[k];
        uint64_t top = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
        size_t at = k;

        for (size_t m = 0; m < k && (gap == GREEDY_TIGHTEST || best == UINT64_MAX); m++) {
            const struct plan_buffer *other = laid[m];

            if (other->start >= buffer->end || buffer->start >= other->end)
                continue;
            if (other->offset > top && other->offset - top >= buffer->bytes &&
                other->offset - top < best_gap) {
                best = top;
                best_gap = other->offset - top;
            }
            top = MAX(top, other->offset + other->bytes);
        }
        buffer->offset = best == UINT64_MAX ? top : best;
        bytes = MAX(bytes, buffer->offset + buffer->bytes);
        while (at > 0 && laid[at - 1]->offset > buffer->offset) {
            laid[at] = laid[at - 1];
            at--;
        }
        laid[at] = buffer;
    }
    return bytes;
}

struct moment {
    uint64_t time;
    bool begins; /* what ends at the same time comes first */
    const struct plan_buffer *buffer;
};

static int compare_moments(const void *a, const void *b) {
    const struct moment *x = a, *y = b;

    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->begins - y->begins;
}

const char *plan_mistake(const struct plan_buffer *buffers, size_t n, uint64_t bytes) {
    cleanup(freep) struct moment *moments = calloc(2 * n + 1, sizeof(*moments));
    cleanup(freep) const struct plan_buffer **live = calloc(n + 1, sizeof(*live));
    size_t n_moments = 0, n_live = 0;

    if (!moments || !live)
        abort();
    for (size_t i = 0; i < n; i++) {
        const struct plan_buffer *buffer = &buffers[i];

        if (buffer->start >= buffer->end || !buffer->bytes) {
            if (buffer->offset)
                return "one that never lives does not lie at 0";
            continue;
        }
        if (buffer->bytes > bytes || buffer->offset > bytes - buffer->bytes)
            return "one sticks out";
        moments[n_moments++] = (struct moment){ buffer->start, true, buffer };
        moments[n_moments++] = (struct moment){ buffer->end, false, buffer };
    }
    qsort(moments, n_moments, sizeof(*moments), compare_moments);
    for (size_t m = 0; m < n_moments; m++) {
        const struct plan_buffer *buffer = moments[m].buffer;
        size_t at = 0, last = n_live;

        while (at < last) {
            size_t middle = (at + last) / 2;

            if (live[middle]->offset < buffer->offset)
                at = middle + 1;
            else
                last = middle;
        }
        if (!moments[m].begins) {
            n_live--;
            memmove(&live[at], &live[at + 1], (n_live - at) * sizeof(*live));
            continue;
        }
        if ((at > 0 && live[at - 1]->offset + live[at - 1]->bytes > buffer->offset) ||
            (at < n_live && buffer->offset + buffer->bytes > live[at]->offset))
            return "two share a byte while both live";
        memmove(&live[at + 1], &live[at], (n_live - at) * sizeof(*live));
        live[at] = buffer;
        n_live++;
    }
    return NULL;
}

int plan_lower_bound(const struct plan_buffer *buffers, size_t n, uint64_t *ret_bytes) {
    cleanup(plan_lives_done) struct plan_lives lives = { 0 };
    int r;

    r = plan_lives_init(&lives, buffers, n);
    if (r == 0)
        *ret_bytes = lives.lower;
    return r;
}

int plan_check(const struct plan_buffer *buffers, size_t n, uint64_t bytes) {
    for (size_t i = 0; i < n; i++) {
        const struct plan_buffer *a = &buffers[i];

        if (a->start >= a->end || !a->bytes)
            continue;
        if (a->bytes > bytes || a->offset > bytes - a->bytes)
            return -EUCLEAN;
        for (size_t k = 0; k < i; k++) {
            const struct plan_buffer *b = &buffers[k];

            if (b->start < b->end && a->start < b->end && b->start < a->end &&
                a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                return -EUCLEAN;
        }
    }
    return 0;
}
