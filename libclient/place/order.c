/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order: each strategy is a walk over the jobs whose inputs are ready. The walks cost O(n log n) at
 * most, so that the orders of a large graph are found in milliseconds; the best is kept.
 *
 * Greedy: a heap of ready jobs, ordered by the memory they take minus the memory they free. A job
 * frees more once it becomes the last user of a buffer: the walk then adds it to the heap again
 * with the better number, and skips the old entry when it comes up.
 *
 * Depth first: each job's need is estimated as if its inputs were made by trees (Sethi and Ullman's
 * register rule): the branch with the largest need beyond its result goes first. Jobs come out in
 * postorder from the last ones back.
 */
#include "libclient/place/order.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/halt.h"
#include "libclient/place/heap.h"
#include "libclient/place/live_bytes.h"

int order_profile(const struct order_problem *problem, const uint32_t *sequence,
                  uint64_t *ret_most_bytes, uint64_t *ret_bytes) {
    struct live_bytes live;
    int r = live_bytes_init(&live, problem);

    if (r < 0)
        return r;
    for (uint32_t s = 0; s < problem->n_jobs && !halt_is_set(problem->halt); s++) {
        live_bytes_begin(&live, sequence[s]);
        if (ret_bytes)
            ret_bytes[s] = live.now_bytes;
        live_bytes_end(&live, sequence[s]);
    }
    *ret_most_bytes = live.peak_bytes;
    live_bytes_done(&live);
    return halt_is_set(problem->halt) ? -ECANCELED : 0;
}

static uint32_t n_before(const struct order_problem *problem, uint32_t job) {
    return problem->before.first[job + 1] - problem->before.first[job];
}

int order_ready(const struct order_problem *problem, uint32_t *ret_sequence) {
    cleanup(freep) uint32_t *waits = malloc((problem->n_jobs + 1) * sizeof(*waits));
    uint32_t n = 0;

    if (!waits)
        return -ENOMEM;
    for (uint32_t job = 0; job < problem->n_jobs; job++)
        if ((waits[job] = n_before(problem, job)) == 0)
            ret_sequence[n++] = job;
    for (uint32_t s = 0; s < n; s++) {
        uint32_t job = ret_sequence[s];

        for (uint32_t i = problem->after.first[job]; i < problem->after.first[job + 1]; i++)
            if (--waits[problem->after.items[i]] == 0)
                ret_sequence[n++] = problem->after.items[i];
    }
    return 0;
}

struct order_greedy {
    const struct order_problem *problem;
    struct heap heap; /* key: bytes that a job takes, less those it frees */
    uint32_t *waits;  /* by job */
    uint32_t *left;   /* by buffer: users to come */
    uint64_t *xored;  /* by buffer: the xor of all users to come: when one is left, this is it */
    bool *is_done;
};

static void greedy_offer(struct order_greedy *greedy, uint32_t job) {
    const struct order_problem *problem = greedy->problem;
    struct heap_entry entry = { 0, job };

    for (uint32_t i = problem->makes.first[job]; i < problem->makes.first[job + 1]; i++)
        entry.key += (int64_t)problem->bytes[problem->makes.items[i]];
    for (uint32_t i = problem->uses.first[job]; i < problem->uses.first[job + 1]; i++)
        if (greedy->left[problem->uses.items[i]] == 1)
            entry.key -= (int64_t)problem->bytes[problem->uses.items[i]];
    heap_push(&greedy->heap, entry);
}

static void greedy_do(struct order_greedy *greedy, uint32_t job) {
    const struct order_problem *problem = greedy->problem;

    greedy->is_done[job] = true;
    for (uint32_t i = problem->uses.first[job]; i < problem->uses.first[job + 1]; i++) {
        uint32_t buffer = problem->uses.items[i];

        greedy->xored[buffer] ^= job;
        if (--greedy->left[buffer] == 1) {
            uint32_t user = (uint32_t)greedy->xored[buffer];

            if (greedy->waits[user] == 0 && !greedy->is_done[user])
                greedy_offer(greedy, user);
        }
    }
    for (uint32_t i = problem->after.first[job]; i < problem->after.first[job + 1]; i++)
        if (--greedy->waits[problem->after.items[i]] == 0)
            greedy_offer(greedy, problem->after.items[i]);
}

static int order_greedy(const struct order_problem *problem, uint32_t *ret_sequence) {
    uint32_t n_uses = problem->uses.first[problem->n_jobs], n = 0;
    /* The heap gets each job once when it is ready, and once more for each buffer of which it
     * becomes the last user.
     */
    cleanup(freep) struct heap_entry *entries =
        malloc((problem->n_jobs + n_uses + 1) * sizeof(*entries));
    cleanup(freep) uint32_t *waits = malloc((problem->n_jobs + 1) * sizeof(*waits));
    cleanup(freep) uint32_t *left = malloc((problem->n_buffers + 1) * sizeof(*left));
    cleanup(freep) uint64_t *xored = calloc(problem->n_buffers + 1, sizeof(*xored));
    cleanup(freep) bool *is_done = calloc(problem->n_jobs + 1, sizeof(*is_done));
    struct order_greedy greedy = { problem, { entries, 0 }, waits, left, xored, is_done };

    if (!entries || !waits || !left || !xored || !is_done)
        return -ENOMEM;
    memcpy(left, problem->n_users, problem->n_buffers * sizeof(*left));
    for (uint32_t job = 0; job < problem->n_jobs; job++)
        for (uint32_t i = problem->uses.first[job]; i < problem->uses.first[job + 1]; i++)
            xored[problem->uses.items[i]] ^= job;
    for (uint32_t job = 0; job < problem->n_jobs; job++)
        waits[job] = n_before(problem, job);
    for (uint32_t job = 0; job < problem->n_jobs; job++)
        if (waits[job] == 0)
            greedy_offer(&greedy, job);
    while (greedy.heap.n > 0) {
        uint32_t job = heap_pop(&greedy.heap).job;

        if (halt_is_set(problem->halt))
            return -ECANCELED;
        if (is_done[job])
            continue;
        ret_sequence[n++] = job;
        greedy_do(&greedy, job);
    }
    return 0;
}

uint64_t order_made_bytes(const struct order_problem *problem, uint32_t job) {
    uint64_t bytes = 0;

    for (uint32_t i = problem->makes.first[job]; i < problem->makes.first[job + 1]; i++)
        bytes += problem->bytes[problem->makes.items[i]];
    return bytes;
}

/* Sort the jobs that `job` needs, the largest need first. Insertion sort, because they are few; a
 * very long list stays unsorted. */
static uint32_t hungry_first(const struct order_problem *problem, const uint64_t *need,
                             const uint64_t *made, uint32_t job, uint32_t *ret) {
    const uint32_t *before = &problem->before.items[problem->before.first[job]];
    uint32_t n = n_before(problem, job);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;

        while (n <= 64 && at > 0 &&
               need[ret[at - 1]] - made[ret[at - 1]] < need[before[i]] - made[before[i]]) {
            ret[at] = ret[at - 1];
            at--;
        }
        ret[at] = before[i];
    }
    return n;
}

static int order_depth(const struct order_problem *problem, uint32_t *ret_sequence) {
    uint32_t n_jobs = problem->n_jobs, n = 0, n_stack = 0;
    cleanup(freep) uint64_t *need = calloc(n_jobs + 1, sizeof(*need));
    cleanup(freep) uint64_t *made = calloc(n_jobs + 1, sizeof(*made));
    cleanup(freep) uint32_t *sorted = malloc((problem->before.first[n_jobs] + 1) * sizeof(*sorted));
    cleanup(freep) uint32_t *next = calloc(n_jobs + 1, sizeof(*next)); /* by job: input to visit */
    cleanup(freep) uint8_t *seen = calloc(n_jobs + 1, sizeof(*seen));
    cleanup(freep) uint32_t *stack = malloc((n_jobs + 1) * sizeof(*stack));

    if (!need || !made || !sorted || !next || !seen || !stack)
        return -ENOMEM;
    for (uint32_t job = 0; job < n_jobs; job++) {
        uint32_t *mine = &sorted[problem->before.first[job]];
        uint32_t n_mine;
        uint64_t held = 0;

        if (halt_is_set(problem->halt))
            return -ECANCELED;
        made[job] = order_made_bytes(problem, job);
        n_mine = hungry_first(problem, need, made, job, mine);
        for (uint32_t i = 0; i < n_mine; i++) {
            need[job] = MAX(need[job], held + need[mine[i]]);
            held += made[mine[i]];
        }
        need[job] = MAX(need[job], held + made[job]);
    }
    for (uint32_t root = n_jobs; root-- > 0 && !halt_is_set(problem->halt);) {
        /* Only jobs that no other waits for are roots. */
        if (problem->after.first[root] != problem->after.first[root + 1])
            continue;
        stack[n_stack++] = root;
        seen[root] = 1;
        while (n_stack > 0) {
            uint32_t job = stack[n_stack - 1];

            if (next[job] == n_before(problem, job)) {
                ret_sequence[n++] = job;
                n_stack--;
            } else {
                uint32_t child = sorted[problem->before.first[job] + next[job]++];

                if (!seen[child]) {
                    seen[child] = 1;
                    stack[n_stack++] = child;
                }
            }
        }
    }
    return halt_is_set(problem->halt) ? -ECANCELED : 0;
}

int order_find(const struct order_problem *problem, uint32_t *ret_sequence, uint64_t *ret_bytes) {
    static int (*const ways[])(const struct order_problem *, uint32_t *) = {
        order_ready,
        order_greedy,
        order_depth,
    };
    cleanup(freep) uint32_t *sequence = malloc((problem->n_jobs + 1) * sizeof(*sequence));
    int r;

    if (!sequence)
        return -ENOMEM;
    for (uint32_t job = 0; job < problem->n_jobs; job++)
        ret_sequence[job] = job;
    r = order_profile(problem, ret_sequence, ret_bytes, NULL);
    for (size_t i = 0; r == 0 && i < ELEMENTSOF(ways); i++) {
        uint64_t bytes;

        r = ways[i](problem, sequence);
        if (r == 0)
            r = order_profile(problem, sequence, &bytes, NULL);
        if (r == 0 && bytes < *ret_bytes) {
            *ret_bytes = bytes;
            memcpy(ret_sequence, sequence, problem->n_jobs * sizeof(*sequence));
        }
    }
    return r;
}
