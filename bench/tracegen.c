/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of programs as they are, made from a seed: the same on every machine.
 *
 *     tracegen --all DIR       every trace below into DIR/NAME.trace
 *     tracegen [--seed N] NAME > FILE
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/random.h"

struct gen {
    FILE *file;
    uint64_t random, next_id;
    uint64_t seed; /* 0: the trace that is meant by its name */
};

static uint64_t below(struct gen *gen, uint64_t n) {
    return random_next(&gen->random) % n;
}

/* Between `low` and `high`, every magnitude equally likely. */
static uint64_t log_uniform(struct gen *gen, double low, double high) {
    double u = (double)(random_next(&gen->random) >> 11) / 9007199254740992.0;

    return (uint64_t)exp(log(low) + u * (log(high) - log(low)));
}

static uint64_t take(struct gen *gen, uint64_t bytes) {
    fprintf(gen->file, "a %llu %llu\n", (unsigned long long)gen->next_id,
            (unsigned long long)bytes);
    return gen->next_id++;
}

static void give(struct gen *gen, uint64_t id) {
    fprintf(gen->file, "f %llu\n", (unsigned long long)id);
}

static void warm(struct gen *gen) {
    fputs("w\n", gen->file);
}

/* Temporaries of nested calls: what came last goes first. */
static void gen_lifo(struct gen *gen, unsigned n) {
    uint64_t stack[64];
    unsigned depth = 0;

    for (unsigned k = 0; k < 32; k++)
        stack[depth++] = take(gen, log_uniform(gen, 256, 65536));
    warm(gen);
    while (n-- > 0)
        if (depth == 1 || (depth < 64 && below(gen, 2)))
            stack[depth++] = take(gen, log_uniform(gen, 256, 65536));
        else
            give(gen, stack[--depth]);
}

/* `live` blocks, of which any may go next. */
static void gen_live(struct gen *gen, unsigned live, unsigned n, double low, double high) {
    cleanup(freep) uint64_t *ids = calloc(live, sizeof(*ids));

    if (!ids)
        abort();
    for (unsigned k = 0; k < live; k++)
        ids[k] = take(gen, log_uniform(gen, low, high));
    warm(gen);
    while (n-- > 0) {
        uint64_t *id = &ids[below(gen, live)];

        give(gen, *id);
        *id = take(gen, log_uniform(gen, low, high));
    }
}

static void gen_random(struct gen *gen, unsigned n) {
    gen_live(gen, 10000, n, 256, 64 << 20);
}

static void gen_live3(struct gen *gen, unsigned n) {
    gen_live(gen, 1000, n, 256, 64 << 10);
}

static void gen_live4(struct gen *gen, unsigned n) {
    gen_live(gen, 10000, n, 256, 64 << 10);
}

static void gen_live5(struct gen *gen, unsigned n) {
    gen_live(gen, 100000, n, 256, 64 << 10);
}

static void gen_live6(struct gen *gen, unsigned n) {
    gen_live(gen, 1000000, n, 256, 64 << 10);
}

/*
 * Steps of a transformer: weights and the optimizer's state stay; each step has its own sequence
 * length; the forward pass keeps activations and drops temporaries, the backward pass frees the
 * activations in reverse and makes gradients, which the optimizer frees.
 */
#define LAYERS 24

static void gen_training(struct gen *gen, unsigned n_steps) {
    const uint64_t hidden = 2048, batch = 4, heads = 16, vocabulary = 32000;

    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (unsigned k = 0; k < 3; k++) { /* weights, and two moments of Adam */
            take(gen, hidden * hidden * 3 * 2);
            take(gen, hidden * hidden * 2);
            take(gen, hidden * hidden * 4 * 2);
            take(gen, hidden * hidden * 4 * 2);
            take(gen, hidden * 2);
            take(gen, hidden * 2);
        }
    take(gen, vocabulary * hidden * 2);
    for (unsigned step = 0; step < n_steps; step++) {
        uint64_t tokens = (64 + below(gen, 961)) * batch, length = tokens / batch;
        uint64_t kept[LAYERS][7], grads[LAYERS][4], input, logits, flow;

        if (step == n_steps / 4)
            warm(gen);
        input = take(gen, tokens * hidden * 2);
        for (unsigned layer = 0; layer < LAYERS; layer++) {
            uint64_t norm, scores, up;

            kept[layer][0] = norm = take(gen, tokens * hidden * 2);
            kept[layer][1] = take(gen, tokens * hidden * 3 * 2);
            scores = take(gen, batch * heads * length * length * 2);
            kept[layer][2] = take(gen, batch * heads * length * length * 2);
            give(gen, scores);
            kept[layer][3] = take(gen, tokens * hidden * 2);
            up = take(gen, tokens * hidden * 2);
            kept[layer][4] = take(gen, tokens * hidden * 2);
            give(gen, up);
            kept[layer][5] = take(gen, tokens * hidden * 4 * 2);
            kept[layer][6] = take(gen, tokens * hidden * 4 * 2);
            for (unsigned k = 0; k < 4; k++) { /* means, variances, a dropout mask */
                uint64_t small = take(gen, tokens * 4 + k * 256);

                give(gen, small);
            }
        }
        logits = take(gen, tokens * vocabulary * 2);
        flow = take(gen, tokens * hidden * 2);
        give(gen, logits);
        for (unsigned layer = LAYERS; layer-- > 0;) {
            uint64_t next, wide;

            wide = take(gen, tokens * hidden * 4 * 2);
            grads[layer][0] = take(gen, hidden * hidden * 4 * 2);
            give(gen, kept[layer][6]);
            grads[layer][1] = take(gen, hidden * hidden * 4 * 2);
            give(gen, kept[layer][5]);
            give(gen, wide);
            give(gen, kept[layer][4]);
            wide = take(gen, batch * heads * length * length * 2);
            give(gen, kept[layer][2]);
            grads[layer][2] = take(gen, hidden * hidden * 3 * 2);
            grads[layer][3] = take(gen, hidden * hidden * 2);
            give(gen, wide);
            give(gen, kept[layer][3]);
            give(gen, kept[layer][1]);
            next = take(gen, tokens * hidden * 2);
            give(gen, kept[layer][0]);
            give(gen, flow);
            flow = next;
        }
        give(gen, flow);
        give(gen, input);
        for (unsigned layer = 0; layer < LAYERS; layer++)
            for (unsigned k = 0; k < 4; k++) {
                uint64_t update = take(gen, hidden * hidden * 4);

                give(gen, grads[layer][k]);
                give(gen, update);
            }
    }
}

/*
 * Phases, each with blocks of another size than those of the phase before, as with growing batches
 * or sequences. What belongs together goes together, in any order; what the old ones leave does not
 * quite fit the new ones. The trace "shift" has blocks a little larger from phase to phase, in
 * fours; another seed, another way of shifting.
 */
#define GROUP_MAX 8

enum order { ANY, OLDEST, NEWEST };

struct shift {
    uint64_t total_bytes, first_bytes, more_bytes; /* of a block, and per phase */
    uint64_t jitter_part;                          /* sizes differ by up to this part */
    unsigned group, cycle;                         /* blocks; phases until it begins again */
    enum order order;
};

static struct shift any_shift(struct gen *gen) {
    struct shift shift = {
        .total_bytes = (2 + below(gen, 7)) << 30,
        .first_bytes = log_uniform(gen, 100e3, 1e6),
        .jitter_part = (uint64_t)16 << below(gen, 5),
        .group = 4 + (unsigned)below(gen, GROUP_MAX - 3),
        .cycle = 4 + (unsigned)below(gen, 9),
        .order = (enum order)below(gen, 3),
    };

    shift.more_bytes = 1 + shift.first_bytes * (2 + below(gen, 14)) / 100;
    return shift;
}

static void gen_shift(struct gen *gen, unsigned n_phases) {
    static struct { uint64_t ids[GROUP_MAX], bytes; } groups[65536];
    struct shift shift = { (uint64_t)4 << 30, 220000, 18000, 64, 4, 8, ANY };
    unsigned first = 0, n = 0; /* groups[first, n) live; those before `old` are of older phases */
    uint64_t live = 0;

    if (gen->seed)
        shift = any_shift(gen);
    for (unsigned phase = 0; phase < n_phases; phase++) {
        uint64_t each =
            shift.more_bytes
                ? shift.first_bytes + shift.more_bytes * (phase % shift.cycle)
                : log_uniform(gen, (double)shift.first_bytes / 8, (double)shift.first_bytes * 2);
        unsigned old;

        memmove(groups, groups + first, (n - first) * sizeof(*groups));
        n -= first;
        old = n;
        first = 0;
        if (phase == n_phases / 4)
            warm(gen);
        for (;;) {
            /* While the room lasts, new ones; else old ones go. */
            if (live + each * (shift.group + 1) <= shift.total_bytes && n < ELEMENTSOF(groups)) {
                groups[n].bytes = 0;
                for (unsigned k = 0; k < shift.group; k++) {
                    uint64_t bytes = each + below(gen, each / shift.jitter_part);

                    groups[n].ids[k] = take(gen, bytes);
                    groups[n].bytes += bytes;
                }
                live += groups[n++].bytes;
            } else if (old > first) {
                unsigned gone = shift.order == OLDEST   ? first
                                : shift.order == NEWEST ? old - 1
                                                        : first + (unsigned)below(gen, old - first);

                for (unsigned k = 0; k < shift.group; k++)
                    give(gen, groups[gone].ids[k]);
                live -= groups[gone].bytes;
                if (shift.order == OLDEST)
                    first++;
                else {
                    /* The last old one takes its place, the last new one the last old one's. */
                    groups[gone] = groups[--old];
                    groups[old] = groups[--n];
                }
            } else
                break;
        }
    }
}

/* `holes` holes, each just too small for what is then asked for. */
static void gen_holes(struct gen *gen, unsigned holes, unsigned n) {
    const uint64_t bytes = 1 << 20;
    cleanup(freep) uint64_t *ids = calloc(holes, sizeof(*ids));

    if (!ids)
        abort();
    for (unsigned k = 0; k < holes; k++) {
        ids[k] = take(gen, bytes + below(gen, 16) * 256);
        take(gen, 256);
    }
    for (unsigned k = 0; k < holes; k++)
        give(gen, ids[k]);
    warm(gen);
    while (n-- > 0)
        give(gen, take(gen, bytes + (16 + below(gen, 16)) * 256));
}

static void gen_holes3(struct gen *gen, unsigned n) {
    gen_holes(gen, 1000, n);
}

static void gen_holes4(struct gen *gen, unsigned n) {
    gen_holes(gen, 10000, n);
}

/*
 * A language model that answers: requests come and go, each with a cache per group of layers that
 * grows by a quarter when it is full (a new one, then the old one is freed), and temporaries of
 * every step, as large as the batch is.
 */
#define SERVED 48
#define GROUPS 8

static void gen_serving(struct gen *gen, unsigned n_steps) {
    const uint64_t token_bytes = 4096 * 4; /* keys and values of a group of layers */
    struct {
        uint64_t cache[GROUPS];
        uint64_t tokens, room, until;
    } served[SERVED] = { 0 };

    for (unsigned k = 0; k < 32; k++)
        take(gen, 200 << 20); /* weights */
    for (unsigned step = 0; step < n_steps; step++) {
        uint64_t running = 0, temporary[3];

        if (step == n_steps / 4)
            warm(gen);
        for (unsigned k = 0; k < SERVED; k++) {
            if (!served[k].room && below(gen, 12) == 0) {
                served[k].tokens = log_uniform(gen, 16, 2048);
                served[k].until = served[k].tokens + log_uniform(gen, 16, 1024);
                served[k].room = served[k].tokens + 32;
                for (unsigned g = 0; g < GROUPS; g++)
                    served[k].cache[g] = take(gen, served[k].room * token_bytes);
            }
            if (!served[k].room)
                continue;
            running++;
            served[k].tokens++;
            if (served[k].tokens >= served[k].until) {
                for (unsigned g = 0; g < GROUPS; g++)
                    give(gen, served[k].cache[g]);
                served[k].room = 0;
            } else if (served[k].tokens > served[k].room) {
                served[k].room += served[k].room / 4;
                for (unsigned g = 0; g < GROUPS; g++) {
                    uint64_t larger = take(gen, served[k].room * token_bytes);

                    give(gen, served[k].cache[g]);
                    served[k].cache[g] = larger;
                }
            }
        }
        for (unsigned k = 0; k < 3; k++)
            temporary[k] = take(gen, (running + 1) * 4096 * 2 * (k + 1));
        for (unsigned k = 3; k-- > 0;)
            give(gen, temporary[k]);
    }
}

static const struct {
    const char *name;
    void (*make)(struct gen *gen, unsigned n);
    unsigned n;
} traces[] = {
    { "lifo", gen_lifo, 400000 },       { "random", gen_random, 200000 },
    { "training", gen_training, 64 },   { "shift", gen_shift, 24 },
    { "holes-1k", gen_holes3, 20000 },  { "holes-10k", gen_holes4, 20000 },
    { "live-1k", gen_live3, 200000 },   { "live-10k", gen_live4, 200000 },
    { "live-100k", gen_live5, 200000 }, { "live-1m", gen_live6, 1000000 },
    { "serving", gen_serving, 4000 },
};

static int write_trace(unsigned n, uint64_t seed, FILE *file) {
    struct gen gen = { .file = file, .random = 20250000 + n + (seed << 32), .seed = seed };

    fprintf(file, "# allot-trace 1\n# %s\n", traces[n].name);
    traces[n].make(&gen, traces[n].n);
    return fflush(file) != 0 || ferror(file) ? -EIO : 0;
}

int main(int argc, char **argv) {
    uint64_t seed = 0;

    if (argc > 2 && strcmp(argv[1], "--seed") == 0) {
        seed = strtoull(argv[2], NULL, 0);
        argv += 2;
        argc -= 2;
    }
    for (unsigned n = 0; n < ELEMENTSOF(traces); n++) {
        cleanup(fclosep) FILE *file = NULL;
        char path[4096];

        if (argc == 2 && strcmp(argv[1], traces[n].name) == 0)
            return write_trace(n, seed, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        if (argc != 3 || strcmp(argv[1], "--all") != 0)
            continue;
        mkdir(argv[2], 0777);
        snprintf(path, sizeof(path), "%s/%s.trace", argv[2], traces[n].name);
        file = fopen(path, "we");
        if (!file || write_trace(n, seed, file) < 0) {
            fprintf(stderr, "tracegen: %s: %s\n", path, strerror(errno));
            return EXIT_FAILURE;
        }
        if (n + 1 == ELEMENTSOF(traces))
            return EXIT_SUCCESS;
    }
    fprintf(stderr,
            "usage: tracegen [--seed N] NAME > FILE, or tracegen [--seed N] --all DIR; names:");
    for (unsigned n = 0; n < ELEMENTSOF(traces); n++)
        fprintf(stderr, " %s", traces[n].name);
    fputc('\n', stderr);
    return EXIT_FAILURE;
}
