/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth: memory of the card is taken when it is needed, not when the session is made. Each line on
 * standard input makes the product eight times as large; in between one can look:
 *
 *     gpuctl leases
 */
#include "guide.h"

static float square_of(struct allot_session *session, struct allot_output x, struct allot_output y,
                       int64_t n) {
    struct allot_tensor *ones, *result;
    struct allot_error err;
    float *numbers, sum;

    must(allot_tensor_new(&ones, ALLOT_F32, 2, (int64_t[]){ n, n }, &err), &err);
    numbers = allot_tensor_data(ones);
    for (int64_t i = 0; i < n * n; i++)
        numbers[i] = 1;
    must(allot_session_run(session, &x, &ones, 1, &y, 1, NULL, 0, &result, &err), &err);
    sum = *(float *)allot_tensor_data(result);
    allot_tensor_unref(result);
    allot_tensor_unref(ones);
    return sum;
}

int main(void) {
    struct allot_graph *graph = graph_new();
    struct allot_output x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, -1 });
    struct allot_output y = allot_mean(allot_add(x, x));
    struct allot_session *session = session_new(graph, NULL);
    char line[16];

    printf("ready\n");
    fflush(stdout);
    for (int64_t n = 64; n <= 4096 && fgets(line, sizeof(line), stdin); n *= 8) {
        printf("%lld x %lld: %g\n", (long long)n, (long long)n,
               (double)square_of(session, x, y, n));
        fflush(stdout);
    }
    while (getchar() != EOF)
        ;

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
