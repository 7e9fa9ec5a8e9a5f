/* SPDX-License-Identifier: Apache-2.0 */
/* Unknown device: an op on a card that the box has not is an error, with the cards that it has. */
#include "guide.h"

int main(void) {
    struct allot_graph *graph = graph_new();
    struct allot_tensor *tensor;
    struct allot_session *session;
    struct allot_output c = { 0 };
    struct allot_error err;
    int r;

    allot_with_device(graph, "/gpu:97") {
        struct allot_output a = one_to_six(graph, "a", 2);
        struct allot_output b = one_to_six(graph, "b", 3);

        c = allot_matmul(a, b);
    }
    session = session_new(graph, NULL);
    r = allot_session_run(session, NULL, NULL, 0, &c, 1, NULL, 0, &tensor, &err);
    if (r == 0)
        print_tensor("there is a /gpu:97: ", tensor);
    else
        printf("error: %s\n", err.text);

    allot_session_free(session);
    allot_graph_unref(graph);
    return r == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
