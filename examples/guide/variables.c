/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables on the CPU: a device function keeps what outlives a step in the host's memory, where
 * all cards find it, and leaves the rest alone.
 */
#include <string.h>

#include "guide.h"

static const char *variables_on_cpu(const char *op, const char *name, const char *device,
                                    void *userdata) {
    return strcmp(op, "Variable") == 0 ? "/cpu:0" : NULL;
}

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_output weights, product;
    struct allot_session *session;
    struct allot_node *init;

    allot_device_push_fn(graph, variables_on_cpu, NULL);
    weights = allot_variable(graph, "weights", one_to_six(graph, "initial", 3));
    product = allot_matmul(one_to_six(graph, "x", 2), weights);
    allot_device_pop(graph);
    init = allot_initializer(graph);

    allot_log_set(print_line, NULL);
    options.log_device_placement = true;
    session = session_new(graph, &options);
    run_node(session, init);
    print_tensor("", value_of(session, product));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
