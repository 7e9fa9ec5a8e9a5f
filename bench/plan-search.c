/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a plan that fits a given number of bytes.
 *
 * Of all plans that fit, take the one whose offsets add up to the least: in it each buffer lies on
 * another or at 0, and nothing could lie lower. Name its buffers from the lowest offset to the
 * highest. So it is enough to lay buffers in that order, each as low as those already laid allow,
 * and to go back when that leads nowhere. What makes it fast:
 *
 *  - Room (plan-pack.c): in each section of time the lowest place left and all that is still to be
 *    laid must fit. In a section that is full to the last byte, the first gap is one too many. And
 *    nothing more comes below the last one laid, so the fullest section says how high the next one
 *    may lie at most.
 *  - Order. A buffer is not laid above a gap in which another one would fit whole: in the plan that
 *    is looked for, that one lies in the gap. A buffer that no other has to make way for lies where
 * it does in that plan, whatever else is laid: if it does not work out, nothing does.
 *  - Parts. Once the buffers still to be laid fall into groups that share no time, each group is a
 *    search of its own, and one without an answer ends all.
 *  - Memory. What is left, and how low each of it could come, is all that matters of a branch: one
 *    that failed is not tried again below another branch that leads to the same.
 *  - Turns. Which of several buffers at the same height goes first is decided by one of several
 *    rules; each gets turns with a limit, and later turns shuffle.
 */
#include "bench/plan-search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/plan-pack.h"
#include "base/cleanup.h"
#include "base/random.h"
#include "tests/support/allocator/plan_shape.h"

/* Failures that are remembered; those that come later take the places of earlier ones. */
#define FAILURES 65536

/* What is left, by its hash, does not fit above this place in the order. */
struct failure {
    uint64_t hash;
    int32_t floor;
    uint32_t turn;
};

/* A buffer that may be laid next. */
struct choice {
    int32_t low;
    uint32_t turn;
    uint32_t buffer;
};

struct part {
    uint32_t start, n;
};

struct search {
    struct plan_pack pack;
    uint32_t *turn;  /* by buffer: its place by the rule of the round */
    uint32_t *group; /* every buffer once: a group is a stretch of it, those left come first */
    uint32_t *place; /* by buffer: where it is in `group` */
    struct choice *choices; /* a stack, as the search goes down */
    size_t n_choices, n_choices_max;
    struct part *parts; /* the same */
    size_t n_parts;
    struct failure *failures;
    uint64_t nodes, nodes_max, deadline_usec;
    bool stop;
};

static uint64_t now_usec(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void search_done(struct search *search) {
    plan_pack_done(&search->pack);
    free(search->turn);
    free(search->group);
    free(search->place);
    free(search->choices);
    free(search->parts);
    free(search->failures);
}

static int search_init(struct search *search, const struct plan_buffer *buffers, size_t n,
                       uint64_t most_bytes) {
    int r;

    r = plan_pack_init(&search->pack, buffers, n, most_bytes);
    if (r < 0)
        return r;
    search->turn = calloc(n + 1, sizeof(*search->turn));
    search->group = calloc(n + 1, sizeof(*search->group));
    search->place = calloc(n + 1, sizeof(*search->place));
    search->parts = calloc(n * 2 + 1, sizeof(*search->parts));
    search->failures = calloc(FAILURES, sizeof(*search->failures));
    return search->turn && search->group && search->place && search->parts && search->failures
               ? 0
               : -ENOMEM;
}

/* Spread over 64 bits: that the buffer is left and could come this low. */
static uint64_t hash_of(uint32_t i, int32_t low) {
    uint64_t z = ((uint64_t)i << 32 | (uint32_t)low) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 32;
}

static bool comes_before(const struct choice *a, const struct choice *b) {
    return a->low != b->low ? a->low < b->low : a->turn < b->turn;
}

static int compare_choices(const void *a, const void *b) {
    return comes_before(a, b) ? -1 : comes_before(b, a);
}

static void move_to(struct search *search, uint32_t buffer, uint32_t place) {
    uint32_t other = search->group[place], from = search->place[buffer];

    search->group[from] = other;
    search->place[other] = from;
    search->group[place] = buffer;
    search->place[buffer] = place;
}

static bool solve(struct search *search, uint32_t start, uint32_t n, int32_t floor, uint32_t turn);

static int compare_parts(const void *a, const void *b) {
    const struct part *x = a, *y = b;

    return x->n != y->n ? (x->n < y->n ? -1 : 1) : x->start < y->start ? -1 : x->start > y->start;
}

/* What is left of a group falls into parts that share no time. The smallest first: if it cannot be
 * done, that is soon known. */
static bool solve_parts(struct search *search, uint32_t start, uint32_t n, int32_t floor,
                        uint32_t turn) {
    const struct plan_pack *pack = &search->pack;
    struct part *parts = search->parts + search->n_parts;
    uint32_t section = UINT32_MAX, done = start, n_parts = 0;
    bool solved = true;

    for (uint32_t k = start; k < start + n; k++)
        section = MIN(section, pack->from[search->group[k]]);
    while (done < start + n) {
        uint32_t first = done, to = section, next = UINT32_MAX;

        /* From here to the next section that nothing goes on from. */
        while (pack->spans[to] > 0)
            to++;
        for (uint32_t k = first; k < start + n; k++) {
            uint32_t i = search->group[k];

            if (pack->from[i] <= to)
                move_to(search, i, done++);
            else
                next = MIN(next, pack->from[i]);
        }
        parts[n_parts++] = (struct part){ first, done - first };
        section = next;
    }
    qsort(parts, n_parts, sizeof(*parts), compare_parts);
    search->n_parts += n_parts;
    for (uint32_t k = 0; k < n_parts && solved; k++)
        solved = solve(search, parts[k].start, parts[k].n, floor, turn);
    search->n_parts -= n_parts;
    return solved;
}

static bool reserve_choices(struct search *search, uint32_t n) {
    struct choice *larger;

    if (search->n_choices + n <= search->n_choices_max)
        return true;
    larger = reallocarray(search->choices, (search->n_choices + n) * 2, sizeof(*larger));
    if (!larger)
        return false;
    search->choices = larger;
    search->n_choices_max = (search->n_choices + n) * 2;
    return true;
}

/* What may be laid next, in order, on the stack of choices. False: it cannot be done. */
static bool find_choices(struct search *search, uint32_t start, uint32_t n, int32_t floor,
                         uint32_t turn, uint64_t *ret_hash) {
    const struct plan_pack *pack = &search->pack;
    const uint32_t *group = search->group + start;
    int32_t ceiling = INT32_MAX, left = 0;
    uint32_t from = UINT32_MAX, to = 0;
    size_t first = search->n_choices;
    uint64_t hash = 0;

    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = group[k];
        int32_t low = pack->low[i];

        if (MAX(low, floor) + pack->size[i] > pack->limit)
            return false;
        ceiling = MIN(ceiling, low + pack->size[i]);
        from = MIN(from, pack->from[i]);
        to = MAX(to, pack->to[i]);
        hash ^= hash_of(i, low);
    }
    for (uint32_t s = from; s < to; s++)
        left = MAX(left, pack->left[s]);
    ceiling = MIN(ceiling, pack->limit - left + 1);
    if (floor >= ceiling || !reserve_choices(search, n)) {
        search->stop |= floor < ceiling;
        return false;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = group[k];
        int32_t low = pack->low[i];

        if (low >= floor && low < ceiling && (low > floor || search->turn[i] >= turn))
            search->choices[search->n_choices++] = (struct choice){ low, search->turn[i], i };
    }
    qsort(search->choices + first, search->n_choices - first, sizeof(*search->choices),
          compare_choices);
    *ret_hash = hash;
    return search->n_choices > first;
}

/*
 * Lay all of a group, none below `floor`. Of several at the same height the order means nothing, so
 * only one is tried: at the floor itself, none whose turn was before that of the last one laid. On
 * failure nothing of the group is laid.
 */
static bool solve(struct search *search, uint32_t start, uint32_t n, int32_t floor, uint32_t turn) {
    size_t n_steps = search->pack.n_steps, first = search->n_choices, last;
    struct failure *failure;
    bool solved = false;
    uint64_t hash;

    if (++search->nodes >= search->nodes_max ||
        (search->nodes % 256 == 0 && now_usec() >= search->deadline_usec))
        search->stop = true;
    if (search->stop || !find_choices(search, start, n, floor, turn, &hash)) {
        search->n_choices = first;
        return false;
    }
    last = search->n_choices;
    failure = &search->failures[hash % FAILURES];
    if (failure->hash == hash &&
        (failure->floor < floor || (failure->floor == floor && failure->turn <= turn))) {
        search->n_choices = first;
        return false;
    }

    for (size_t k = first; k < last && !search->stop; k++) {
        struct choice choice = search->choices[k];
        bool raised = true, cut = false;

        if (plan_pack_lay(&search->pack, choice.buffer, &raised, &cut)) {
            int32_t next_floor = raised ? choice.low : floor;
            uint32_t next_turn = raised ? choice.turn : turn;

            move_to(search, choice.buffer, start + n - 1);
            solved = n == 1 || (cut ? solve_parts(search, start, n - 1, next_floor, next_turn)
                                    : solve(search, start, n - 1, next_floor, next_turn));
            if (solved)
                break;
        }
        plan_pack_undo(&search->pack, n_steps);
        if (!raised)
            break;
    }
    search->n_choices = first;
    if (!solved && !search->stop)
        *failure = (struct failure){ hash, floor, turn };
    return solved;
}

/* What may go first: a letter per key, most first. Length, Area, Total load. */
static const char *const rules[] = { "TLA", "TAL", "LAT" };

/* After the first turn of each rule lengths and areas are a little off, in 1024ths, so that a
 * branch without a way out is not entered for ever. */
static const uint32_t shuffles[] = { 205, 512, 102, 358 };

/* Nodes of a short turn, per buffer. How long turns are is Luby's sequence, 1 1 2 1 1 2 4 …: the
 * best choice if it is unknown how long it will take. */
#define TURN_NODES 8

/* Pairs of buffers that are looked at in a microsecond before the search begins. */
#define BEGIN_PAIRS 200

struct keyed {
    uint64_t keys[3];
    uint32_t entry;
};

static int compare_keyed(const void *a, const void *b) {
    const struct keyed *x = a, *y = b;

    for (unsigned k = 0; k < 3; k++)
        if (x->keys[k] != y->keys[k])
            return x->keys[k] > y->keys[k] ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void set_turns(struct search *search, struct keyed *keyed, unsigned round,
                      uint64_t *random) {
    const struct plan_pack *pack = &search->pack;
    const char *rule = rules[round % ELEMENTSOF(rules)];
    uint32_t shuffle = shuffles[round / ELEMENTSOF(rules) % ELEMENTSOF(shuffles)];

    for (uint32_t i = 0; i < pack->n; i++) {
        int32_t load = 0;

        for (uint32_t s = pack->from[i]; s < pack->to[i]; s++)
            load = MAX(load, pack->left[s]);
        keyed[i].entry = i;
        for (unsigned k = 0; k < ELEMENTSOF(keyed->keys); k++) {
            uint64_t key = rule[k] == 'T'   ? (uint64_t)load
                           : rule[k] == 'A' ? (uint64_t)pack->size[i] * pack->length[i]
                                            : pack->length[i];

            if (round >= ELEMENTSOF(rules) && rule[k] != 'T') {
                uint64_t part = 1024 - shuffle + random_next(random) % (2 * shuffle + 1);

                key = key / 1024 * part + key % 1024 * part / 1024;
            }
            keyed[i].keys[k] = key;
        }
    }
    qsort(keyed, pack->n, sizeof(*keyed), compare_keyed);
    for (uint32_t k = 0; k < pack->n; k++)
        search->turn[keyed[k].entry] = k;
}

/* The n-th of Luby's sequence, from 1: the last of 2^k - 1 is 2^(k-1), and up to there it repeats.
 */
static uint64_t luby(unsigned n) {
    for (;;) {
        unsigned k = 32 - (unsigned)__builtin_clz(n);

        if (n == (1u << k) - 1)
            return (uint64_t)1 << (k - 1);
        n -= (1u << (k - 1)) - 1;
    }
}

/* Turns until it is solved or time is up. */
static bool search_limit(struct search *search, uint64_t limit_bytes, uint64_t deadline_usec) {
    struct plan_pack *pack = &search->pack;
    uint64_t random = 3;
    cleanup(freep) struct keyed *keyed = reallocarray(NULL, pack->n + 1, sizeof(*keyed));

    search->deadline_usec = deadline_usec;
    for (unsigned round = 0; keyed && now_usec() < deadline_usec; round++) {
        if (!plan_pack_begin(pack, limit_bytes))
            return false;
        for (uint32_t i = 0; i < pack->n; i++)
            search->group[i] = search->place[i] = i;
        memset(search->failures, 0, FAILURES * sizeof(*search->failures));
        search->n_choices = search->n_parts = 0;
        search->nodes = 0;
        search->nodes_max = pack->n * TURN_NODES * luby(round / ELEMENTSOF(rules) + 1);
        search->stop = false;
        set_turns(search, keyed, round, &random);
        if (solve_parts(search, 0, pack->n, 0, 0))
            return true;
        if (!search->stop)
            return false; /* every way was tried */
    }
    return false;
}

int plan_search(struct plan_buffer *buffers, size_t n, uint64_t target_bytes, uint64_t budget_usec,
                uint64_t *ret_bytes) {
    cleanup(search_done) struct search search = { 0 };
    uint64_t start = now_usec(), lower, best, tried;
    int r;

    r = plan_lower_bound(buffers, n, &lower);
    if (r == 0)
        r = plan_fast(buffers, n, NULL, &best);
    if (r < 0)
        return r;
    *ret_bytes = best;
    target_bytes = MAX(target_bytes, lower);
    if (best <= target_bytes)
        return 1;
    if (n > PACK_MAX || budget_usec <= n * n / BEGIN_PAIRS)
        return 0;
    r = search_init(&search, buffers, n, best);
    if (r < 0)
        return r;

    /* Most of the time for the target, the rest for whatever lies between. */
    if (search_limit(&search, target_bytes, start + budget_usec / 10 * 9))
        plan_pack_write(&search.pack, buffers, &best);
    for (tried = target_bytes; best > target_bytes && now_usec() < start + budget_usec;) {
        uint64_t middle = tried + (best - tried) / 2, slice = budget_usec / 50;

        if (middle == tried || middle == best)
            break;
        if (search_limit(&search, middle, MIN(now_usec() + slice, start + budget_usec)))
            plan_pack_write(&search.pack, buffers, &best);
        else
            tried = middle;
    }
    *ret_bytes = best;
    return best <= target_bytes;
}
