/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/next_stage.h"

#include <errno.h>
#include <stdlib.h>

#include "libclient/exec/plan/program.h"

void next_stage_done(struct next_stage *next) {
    free(next->feeds);
    free(next->fetches);
    free(next->targets);
    free(next->tensors);
    free(next->known);
    free(next->fetched);
}

int next_stage_make(struct next_stage *next, const struct program *program,
                    const struct engine_call *call, struct allot_tensor *const *feeds,
                    struct allot_tensor *const *fetched) {
    uint32_t n_own = 0, n_feeds = call->n_feeds, n_fetches = 0, n_targets = 0;

    next->feeds = calloc(call->n_feeds + program->n_fetches + 1, sizeof(*next->feeds));
    next->tensors = calloc(call->n_feeds + program->n_fetches + 1, sizeof(struct allot_tensor *));
    next->known = calloc(call->n_feeds + program->n_fetches + 1, sizeof(struct allot_tensor *));
    next->fetches = calloc(call->n_fetches + 1, sizeof(*next->fetches));
    next->fetched = calloc(call->n_fetches + 1, sizeof(struct allot_tensor *));
    next->targets = calloc(call->n_targets + 1, sizeof(*next->targets));
    if (!next->feeds || !next->tensors || !next->known || !next->fetches || !next->fetched ||
        !next->targets)
        return -ENOMEM;
    for (uint32_t i = 0; i < call->n_feeds; i++) {
        next->feeds[i] = call->feeds[i];
        next->tensors[i] = feeds[i];
        next->known[i] = call->feed_known ? call->feed_known[i] : NULL;
    }
    for (uint32_t i = 0; i < call->n_fetches; i++)
        if (program->fetch_of[i] == PROGRAM_NONE)
            next->fetches[n_fetches++] = call->fetches[i];
        else
            n_own++;
    for (uint32_t i = n_own; i < program->n_fetches; i++) {
        next->feeds[n_feeds] = program->fetches[i].edge;
        next->known[n_feeds] = program->fetches[i].known;
        next->tensors[n_feeds++] = fetched[i];
    }
    for (uint32_t i = 0; i < call->n_targets; i++)
        if (!program->is_done[call->targets[i]])
            next->targets[n_targets++] = call->targets[i];
    next->call = (struct engine_call){ next->feeds,   n_feeds,   next->fetches, n_fetches,
                                       next->targets, n_targets, next->known };
    return 0;
}
