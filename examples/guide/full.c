/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full card: a program that does not want to wait for memory is told what was asked for, for
 * which op, what it holds itself, and who has the rest.
 */
#include "guide.h"

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_output sum = { 0 };
    struct allot_session *session;
    struct allot_tensor *tensor;
    struct allot_error err;
    int r;

    allot_with_device(graph, "/gpu:0") {
        struct allot_output x =
            allot_filled(graph, ALLOT_F32, 1, (int64_t[]){ INT64_C(4) << 30 }, 1);

        sum = allot_sum(allot_add(allot_exp(x), x));
    }
    options.no_wait = true;
    session = session_new(graph, &options);
    r = allot_session_run(session, NULL, NULL, 0, &sum, 1, NULL, 0, &tensor, &err);
    if (r == 0)
        print_tensor("there was room: ", tensor);
    else
        printf("error: %s\n", err.text);

    allot_session_free(session);
    allot_graph_unref(graph);
    return r == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
