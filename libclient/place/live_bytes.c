/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/live_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int live_bytes_init(struct live_bytes *live, const struct order_problem *problem) {
    *live = (struct live_bytes){ .problem = problem };
    live->left = malloc((problem->n_buffers + 1) * sizeof(*live->left));
    live->reused_by = calloc(problem->n_buffers + 1, sizeof(*live->reused_by));
    if (!live->left || !live->reused_by) {
        live_bytes_done(live);
        return -ENOMEM;
    }
    memcpy(live->left, problem->n_users, problem->n_buffers * sizeof(*live->left));
    return 0;
}

void live_bytes_done(struct live_bytes *live) {
    free(live->left);
    free(live->reused_by);
    *live = (struct live_bytes){ 0 };
}

/* If allowed, the first buffer that `job` makes overwrites a buffer that no other job still needs.
 */
static void inherit(struct live_bytes *live, uint32_t job) {
    const struct order_lists *over = &live->problem->over;

    if (!over->first)
        return;
    for (uint32_t i = over->first[job]; i < over->first[job + 1]; i++) {
        uint32_t buffer = over->items[i];

        if (live->left[buffer] != 1)
            continue;
        live->reused_by[buffer] = job + 1;
        live->now_bytes -= live->problem->bytes[buffer];
        return;
    }
}

void live_bytes_begin(struct live_bytes *live, uint32_t job) {
    const struct order_problem *problem = live->problem;

    inherit(live, job);
    for (uint32_t i = problem->makes.first[job]; i < problem->makes.first[job + 1]; i++)
        live->now_bytes += problem->bytes[problem->makes.items[i]];
    if (live->now_bytes > live->peak_bytes)
        live->peak_bytes = live->now_bytes;
}

void live_bytes_end(struct live_bytes *live, uint32_t job) {
    const struct order_problem *problem = live->problem;

    for (uint32_t i = problem->makes.first[job]; i < problem->makes.first[job + 1]; i++)
        if (live->left[problem->makes.items[i]] == 0)
            live->now_bytes -= problem->bytes[problem->makes.items[i]];
    for (uint32_t i = problem->uses.first[job]; i < problem->uses.first[job + 1]; i++) {
        uint32_t buffer = problem->uses.items[i];

        if (--live->left[buffer] == 0 && live->reused_by[buffer] != job + 1)
            live->now_bytes -= problem->bytes[buffer];
    }
}
