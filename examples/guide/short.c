/* SPDX-License-Identifier: Apache-2.0 */
#include <allot/ops.h>
#include <allot/session.h>
#include <stdio.h>

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    const float numbers[] = { 1, 2, 3, 4, 5, 6 };
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_tensor *value;
    struct allot_error err;
    char text[64];

    options.log_device_placement = true;
    if (allot_graph_new(&graph, &err) < 0)
        return 1;
    struct allot_output a = allot_constant_f32(graph, "a", 2, (int64_t[]){ 2, 3 }, numbers);
    struct allot_output b = allot_constant_f32(graph, "b", 2, (int64_t[]){ 3, 2 }, numbers);
    struct allot_output c = allot_matmul(a, b);
    if (allot_graph_error(graph, &err) < 0 ||
        allot_session_new(&session, graph, &options, &err) < 0 ||
        allot_session_run(session, NULL, NULL, 0, &c, 1, NULL, 0, &value, &err) < 0)
        return fprintf(stderr, "%s\n", err.text), 1;
    puts(allot_tensor_format(value, text, sizeof(text)));
    allot_tensor_unref(value);
    allot_session_free(session);
    allot_graph_unref(graph);
}
