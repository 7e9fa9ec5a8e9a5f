/* SPDX-License-Identifier: Apache-2.0 */
/* Control dependencies: the counter is read after it was raised, because the program says so. */
#include "guide.h"

int main(void) {
    struct allot_graph *graph = graph_new();
    struct allot_output counter = { 0 }, raised = { 0 }, after = { 0 };
    struct allot_session *session;

    allot_with_device(graph, "/cpu:0") {
        counter = allot_variable(graph, "counter", allot_scalar(graph, ALLOT_F32, 0));
        raised = allot_assign_add(counter, allot_scalar(graph, ALLOT_F32, 1));
        allot_with_control(graph, raised.node) {
            after = allot_mul(allot_read(counter), allot_scalar(graph, ALLOT_F32, 10));
        }
    }

    struct allot_node *init = allot_initializer(graph);

    session = session_new(graph, NULL);
    run_node(session, init);
    for (int i = 0; i < 3; i++)
        print_tensor("ten times the counter: ", value_of(session, after));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
