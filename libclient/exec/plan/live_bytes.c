/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/live_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ledger_init(struct ledger *ledger, const struct order_problem *problem) {
    *ledger = (struct ledger){ .problem = problem };
    ledger->left = malloc((problem->n_buffers + 1) * sizeof(*ledger->left));
    ledger->heir = calloc(problem->n_buffers + 1, sizeof(*ledger->heir));
    if (!ledger->left || !ledger->heir) {
        ledger_done(ledger);
        return -ENOMEM;
    }
    memcpy(ledger->left, problem->n_users, problem->n_buffers * sizeof(*ledger->left));
    return 0;
}

void ledger_done(struct ledger *ledger) {
    free(ledger->left);
    free(ledger->heir);
    *ledger = (struct ledger){ 0 };
}

/* The first that `job` makes goes where one lies that nobody else needs any more, if it may. */
static void inherit(struct ledger *ledger, uint32_t job) {
    const struct order_lists *over = &ledger->problem->over;

    if (!over->first)
        return;
    for (uint32_t i = over->first[job]; i < over->first[job + 1]; i++) {
        uint32_t buffer = over->items[i];

        if (ledger->left[buffer] != 1)
            continue;
        ledger->heir[buffer] = job + 1;
        ledger->now_bytes -= ledger->problem->bytes[buffer];
        return;
    }
}

void ledger_begin(struct ledger *ledger, uint32_t job) {
    const struct order_problem *problem = ledger->problem;

    inherit(ledger, job);
    for (uint32_t i = problem->makes.first[job]; i < problem->makes.first[job + 1]; i++)
        ledger->now_bytes += problem->bytes[problem->makes.items[i]];
    if (ledger->now_bytes > ledger->peak_bytes)
        ledger->peak_bytes = ledger->now_bytes;
}

void ledger_end(struct ledger *ledger, uint32_t job) {
    const struct order_problem *problem = ledger->problem;

    for (uint32_t i = problem->makes.first[job]; i < problem->makes.first[job + 1]; i++)
        if (ledger->left[problem->makes.items[i]] == 0)
            ledger->now_bytes -= problem->bytes[problem->makes.items[i]];
    for (uint32_t i = problem->uses.first[job]; i < problem->uses.first[job + 1]; i++) {
        uint32_t buffer = problem->uses.items[i];

        if (--ledger->left[buffer] == 0 && ledger->heir[buffer] != job + 1)
            ledger->now_bytes -= problem->bytes[buffer];
    }
}
