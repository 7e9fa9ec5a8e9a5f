/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Towers: a device function deals the products out to two cards in turn, and the CPU adds up.
 *
 *     [[88 112] [196 256]]
 */
#include <string.h>

#include "guide.h"

/* Asked for each op: products go round, the rest stays where the scopes have it. */
static const char *in_turn(const char *op, const char *name, const char *device, void *userdata) {
    unsigned *n_seen = userdata;

    if (strcmp(op, "MatMul") != 0)
        return NULL;
    return (*n_seen)++ % 2 == 0 ? "/gpu:0" : "/gpu:1";
}

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_output towers[4], sum = { 0 };
    struct allot_session *session;
    unsigned n_seen = 0;

    allot_device_push_fn(graph, in_turn, &n_seen);
    for (int i = 0; i < 4; i++) {
        struct allot_output a = one_to_six(graph, "a", 2);
        struct allot_output b = one_to_six(graph, "b", 3);

        towers[i] = allot_matmul(a, b);
    }
    allot_device_pop(graph);
    allot_with_device(graph, "/cpu:0") {
        sum = allot_add_n(towers, 4);
    }

    allot_log_set(print_line, NULL);
    options.allow_soft_placement = true; /* a box with one card, or none */
    options.log_device_placement = true;
    session = session_new(graph, &options);
    print_tensor("", value_of(session, sum));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
