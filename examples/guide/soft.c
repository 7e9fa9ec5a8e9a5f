/* SPDX-License-Identifier: Apache-2.0 */
/* Soft placement: where the device that an op asks for is not there, it runs on one that is. */
#include "guide.h"

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_output c = { 0 };
    struct allot_session *session;

    allot_with_device(graph, "/gpu:97") {
        struct allot_output a = one_to_six(graph, "a", 2);
        struct allot_output b = one_to_six(graph, "b", 3);

        c = allot_matmul(a, b);
    }

    allot_log_set(print_line, NULL);
    options.allow_soft_placement = true;
    options.log_device_placement = true;
    session = session_new(graph, &options);
    print_tensor("", value_of(session, c));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
