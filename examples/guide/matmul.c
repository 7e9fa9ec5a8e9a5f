/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmul: which device each op is on, of a graph that does not ask for any.
 *
 *     [[22 28] [49 64]]
 */
#include "guide.h"

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_output a = one_to_six(graph, "a", 2);
    struct allot_output b = one_to_six(graph, "b", 3);
    struct allot_output c = allot_matmul(a, b);
    struct allot_session *session;

    allot_log_set(print_line, NULL);
    options.log_device_placement = true;
    session = session_new(graph, &options);
    print_tensor("", value_of(session, c));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
