/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run: with one thread, the items one after the other as they stand: no counting of what is ready,
 * no queue, two loads and a call for each. That is, where no item of the host waits for a GPU.
 */
#include "libclient/exec/run/run.h"

#include "libclient/exec/run/workers.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/run/trace.h"

static void run_in_order(struct frame *frame) {
    uint32_t n = frame->program->n_items;

    for (uint32_t i = 0; i < n; i++) {
        const struct frame_item *item = &frame->items[i];
        int r;

        if (__builtin_expect(atomic_load_explicit(&frame->cancelled, memory_order_relaxed), 0))
            return;
        r = item->fn(&item->run);
        if (__builtin_expect(r < 0, 0)) {
            frame_fail(frame, i, r);
            return;
        }
    }
    frame->has_ended = true;
}

static void run_traced(struct frame *frame) {
    uint32_t n = frame->program->n_items, i;

    for (i = 0; i < n && !atomic_load(&frame->cancelled); i++) {
        int r = trace_item(frame->trace, frame, i, 0);

        if (r < 0)
            frame_fail(frame, i, r);
    }
    frame->has_ended = i == n && frame->failure.code == 0;
}

int run_frame(struct frame *frame, struct pool *inter, uint32_t n_threads) {
    /* What the host waits for must not hold up the rest: that is for a crew, if of one. */
    if (n_threads <= 1 && frame->program->n_told == 0) {
        if (frame->trace)
            run_traced(frame);
        else
            run_in_order(frame);
        return 0;
    }
    if (!frame->crew) {
        int r = crew_new(&frame->crew, frame, inter, n_threads);

        if (r < 0)
            return r;
    }
    frame->has_ended = crew_run(frame->crew);
    return 0;
}
