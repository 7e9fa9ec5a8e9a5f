/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manual placement: `a` and `b` are on the CPU because the program says so; the product goes where
 * its kernel is fastest, and what it needs is copied there.
 */
#include "guide.h"

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_output a, b, c;
    struct allot_session *session;

    allot_with_device(graph, "/cpu:0") {
        a = one_to_six(graph, "a", 2);
        b = one_to_six(graph, "b", 3);
    }
    c = allot_matmul(a, b);

    allot_log_set(print_line, NULL);
    options.log_device_placement = true;
    session = session_new(graph, &options);
    print_tensor("", value_of(session, c));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
