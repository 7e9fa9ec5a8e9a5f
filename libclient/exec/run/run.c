/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With one thread the items run one after the other as they stand, without counts of what is ready
 * and without a queue: two loads and a call for each. That holds where no item of the host waits
 * for a GPU.
 */
#include "libclient/exec/run/run.h"

#include "libclient/exec/run/workers.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/run/trace.h"

static void run_in_order(struct run_state *state) {
    uint32_t n = state->program->n_items;

    for (uint32_t i = 0; i < n; i++) {
        const struct run_state_item *item = &state->items[i];
        int r;

        if (__builtin_expect(atomic_load_explicit(&state->cancelled, memory_order_relaxed), 0))
            return;
        r = item->fn(&item->run);
        if (__builtin_expect(r < 0, 0)) {
            run_state_fail(state, i, r);
            return;
        }
    }
    state->has_ended = true;
}

static void run_traced(struct run_state *state) {
    uint32_t n = state->program->n_items, i;

    for (i = 0; i < n && !atomic_load(&state->cancelled); i++) {
        int r = trace_item(state->trace, state, i, 0);

        if (r < 0)
            run_state_fail(state, i, r);
    }
    state->has_ended = i == n && state->failure.code == 0;
}

int run_program(struct run_state *state, struct pool *inter, uint32_t n_threads) {
    /* A wait of the host must not hold up the other items: that needs workers, even if the caller
     * is alone. */
    if (n_threads <= 1 && state->program->n_told == 0) {
        if (state->trace)
            run_traced(state);
        else
            run_in_order(state);
        return 0;
    }
    if (!state->workers) {
        int r = workers_new(&state->workers, state, inter, n_threads);

        if (r < 0)
            return r;
    }
    state->has_ended = workers_run(state->workers);
    return 0;
}
