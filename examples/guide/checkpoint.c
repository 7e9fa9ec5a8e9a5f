/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint: what one session has learned goes to a file, and another one goes on from there.
 *
 *     checkpoint model.safetensors
 */
#include <allot/saver.h>

#include "guide.h"

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "model.safetensors";
    struct allot_graph *graph = graph_new();
    struct allot_output initial = one_to_six(graph, "initial", 2);
    struct allot_output weights = allot_variable(graph, "weights", initial);
    struct allot_output doubled = allot_assign_add(weights, weights);
    struct allot_node *init = allot_initializer(graph);
    struct allot_session *session = session_new(graph, NULL);
    struct allot_error err;

    run_node(session, init);
    run_node(session, doubled.node);
    must(allot_save(session, NULL, 0, path, &err), &err);
    allot_session_free(session);

    session = session_new(graph, NULL);
    must(allot_restore(session, NULL, 0, path, &err), &err);
    print_tensor("restored: ", value_of(session, weights));
    run_node(session, doubled.node);
    print_tensor("and doubled: ", value_of(session, weights));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
